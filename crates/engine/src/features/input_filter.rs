//! The input filter: filter rules with `out = "gateway"`, for packets to the gateway itself.
//!
//! Packets to the gateway itself have no session. Instead, [`GatewayFlows`] has an entry for each flow that a rule has
//! accepted, and for each flow that the gateway's own host has started. Packets of the flows in [`GatewayFlows`] pass
//! without an evaluation of rules, even if the filter for forwarded packets is stateless.

use sluice_filter::{Field, Filter, Filters, Header, NONE, Reason as Denied};
use sluice_nat::{TimeoutClass, Tuple};
use sluice_wire::ipv4::protocol::{TCP, UDP, is_icmp};
use sluice_wire::layers::{Class, Flags, Fragment, Layers};
use sluice_wire::tcp::flag::{ACK, RST, SYN};

use crate::features::context::NodeContext;
use crate::features::creation::is_first_segment;
use crate::features::filter::{self, Rejection};
use crate::packet::batch::Meta;
use crate::session::family::{Family, V4, V6};
use crate::snapshot::Snapshot;
use crate::snapshot::gateway_flows::GatewayFlows;

/// Converts the filter query of a forwarded packet to the filter query of a packet to the gateway itself.
pub fn header<A: sluice_filter::Address>(header: Header<A>) -> Header<A> {
    header.with(Field::Outgoing, NONE)
}

/// Whether input filter rules exist for packets that arrive on an interface.
#[inline]
pub fn has_rules(snapshot: &Snapshot, interface: u16) -> bool {
    snapshot.local_flows.is_some()
        && snapshot
            .interface(interface)
            .and_then(|interface| snapshot.filter_of(interface.context))
            .is_some_and(|filters| filters.gateway.is_some())
}

/// Evaluates the input filter for a packet to the gateway itself. If the packet is a fragment, its ports must be known.
pub fn admit(ctx: &NodeContext<'_, '_>, meta: &Meta, frame: &[u8]) -> Result<(), Rejection> {
    match meta.layers.class {
        Class::Ipv6 => admit_of::<V6>(ctx, meta, frame),
        _ => admit_of::<V4>(ctx, meta, frame),
    }
}

fn admit_of<F: Family>(ctx: &NodeContext<'_, '_>, meta: &Meta, frame: &[u8]) -> Result<(), Rejection> {
    let (snapshot, layers) = (ctx.snapshot, &meta.layers);
    let context = snapshot.context(meta, frame);
    let (Some(filters), Some(flows)) = (snapshot.filter_of(context), snapshot.local_flows.as_deref()) else {
        return Ok(());
    };
    let Some(filter) = F::gateway_filter(filters) else {
        return Ok(());
    };
    let key = F::key(layers, frame, context);
    let datagram = || datagram::<F>(ctx, meta, &F::tuple(&key));
    if layers.fragment == Fragment::Later {
        // A later fragment gets the result of the first fragment, because only the first fragment has the fields that
        // rules match.
        return match flows.datagrams.is_known(datagram(), ctx.now, DATAGRAM) {
            true => Ok(()),
            false => Err((None, Denied::Fragment.into())),
        };
    }
    admit_datagram::<F>(ctx, meta, frame, &key, (filters, filter, flows))?;
    if layers.fragment == Fragment::First {
        flows.datagrams.note(datagram(), ctx.now, snapshot.generation);
    }
    Ok(())
}

/// The hash of a fragmented datagram. Fragments to a multicast group bypass virtual reassembly, so their IP ID is not
/// part of the hash. A later fragment to a group gets the result of the newest first fragment that has the same source
/// and the same group.
fn datagram<F: Family>(ctx: &NodeContext<'_, '_>, meta: &Meta, tuple: &F::Tuple) -> u64 {
    let ends = F::Tuple::new(tuple.source(), tuple.destination(), 0, 0, tuple.context());
    let hash = F::hash_one(ctx.hasher, &F::make_key(ends, meta.layers.protocol));
    hash ^ u64::from(meta.identification).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Seconds for which later fragments are accepted after the first fragment (RFC 791 recommends 15, Linux waits 30).
const DATAGRAM: u32 = 30;

fn admit_datagram<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    frame: &[u8],
    key: &F::Key,
    (filters, filter, flows): (&Filters, &Filter<F::Number>, &GatewayFlows),
) -> Result<(), Rejection> {
    let (snapshot, layers) = (ctx.snapshot, &meta.layers);
    let is_error = layers.flags.has(Flags::ICMP_ERROR);
    let flow = match is_error {
        true => F::quoted(layers, frame, F::tuple(key).context(), false).ok(),
        false => Some(*key),
    };
    let generation = snapshot.generation;
    if let Some(flow) = flow
        && !is_first_segment(layers)
    {
        let (hash, seconds) = (F::hash_one(ctx.hasher, &flow), timeout::<F>(snapshot, &flow));
        let (query, reply) = (layers.flags.has(Flags::ICMP_QUERY), layers.flags.has(Flags::ICMP_REPLY));
        // Both endpoints may send queries with the same identifier. The ICMP type of a packet (request or reply) shows
        // which endpoint has sent the query.
        if (!query || reply) && flows.initiated.is_known(hash, ctx.now, seconds) {
            return Ok(());
        }
        match flows
            .admitted
            .generation(hash, ctx.now, seconds)
            .filter(|_| !query || !reply)
        {
            Some(known) if known == generation => return Ok(()),
            Some(_) if would_start::<F>(snapshot, meta, frame, &flow, filter) => {
                flows.admitted.note(hash, ctx.now, generation);
                return Ok(());
            }
            _ => {}
        }
    }
    let queried = filter::header::<F>(snapshot, meta, frame, &F::tuple(key), 0);
    filter::query_filter::<F>((filters, filter), &header(queried), ctx.own, ctx.now.nanoseconds)?;
    if !is_error && layers.tcp_flags & RST == 0 {
        flows.admitted.note(F::hash_one(ctx.hasher, key), ctx.now, generation);
    }
    Ok(())
}

/// Whether the present rules still accept a flow that earlier rules accepted.
#[cold]
fn would_start<F: Family>(
    snapshot: &Snapshot,
    meta: &Meta,
    frame: &[u8],
    flow: &F::Key,
    filter: &Filter<F::Number>,
) -> bool {
    let first = filter::first_header::<F>(snapshot, meta, F::protocol(flow), &F::tuple(flow), 0);
    let first = filter::with_macs(snapshot, header(first), || filter::macs_of(frame, &meta.layers));
    filter::would_pass::<F>(filter, &first)
}

/// Records a flow that a router's host starts, so that answers pass without a rule.
pub fn sent(ctx: &NodeContext<'_, '_>, meta: &Meta, frame: &[u8]) {
    if !has_rules(ctx.snapshot, meta.interface) || meta.layers.fragment == Fragment::Later {
        return;
    }
    match meta.layers.class {
        Class::Ipv6 => sent_of::<V6>(ctx, meta, frame),
        _ => sent_of::<V4>(ctx, meta, frame),
    }
}

fn sent_of<F: Family>(ctx: &NodeContext<'_, '_>, meta: &Meta, frame: &[u8]) {
    let snapshot = ctx.snapshot;
    let Some(flows) = snapshot.local_flows.as_deref() else {
        return;
    };
    let key = F::key(&meta.layers, frame, snapshot.context(meta, frame));
    let tuple = &F::tuple(&key);
    if F::is_group(tuple.destination()) || !may_be_of_flow(&meta.layers) {
        return;
    }
    let answers = F::Tuple::new(
        tuple.destination(),
        tuple.source(),
        tuple.destination_port(),
        tuple.source_port(),
        tuple.context(),
    );
    let answer = F::make_key(answers, F::protocol(&key));
    let (hash, seconds) = (F::hash_one(ctx.hasher, &answer), timeout::<F>(snapshot, &answer));
    // A flow that a remote host has started stays in the table of accepted flows, so that the flow is evaluated again when rules change.
    let is_admitted = !meta.layers.flags.has(Flags::ICMP_QUERY) && flows.admitted.is_known(hash, ctx.now, seconds);
    if !is_admitted && may_start(&meta.layers) {
        flows.initiated.note(hash, ctx.now, snapshot.generation);
    }
}

/// Whether a packet from a host may belong to a flow that the host started. ICMP errors never belong to such a flow.
fn may_be_of_flow(layers: &Layers) -> bool {
    match is_icmp(layers.protocol) {
        true => layers.flags.has(Flags::ICMP_QUERY) && !layers.flags.has(Flags::ICMP_REPLY),
        false => true,
    }
}

/// Whether the sender of a packet may have started the packet's flow, if the flow is unknown. The result is true for
/// midstream packets. The result is false for a reset or SYN-ACK, because a host may send one in response to packets
/// that rules reject.
fn may_start(layers: &Layers) -> bool {
    layers.protocol != TCP || layers.tcp_flags & RST == 0 && layers.tcp_flags & (SYN | ACK) != SYN | ACK
}

/// A flow is removed after this number of seconds without packets.
fn timeout<F: Family>(snapshot: &Snapshot, key: &F::Key) -> u32 {
    snapshot.timeouts.seconds(match F::protocol(key) {
        TCP => TimeoutClass::TCP_ESTABLISHED,
        UDP => TimeoutClass::UDP,
        protocol if is_icmp(protocol) => TimeoutClass::ICMP,
        _ => TimeoutClass::OTHER,
    })
}

//! local-delivery: receives packets that are addressed to the gateway itself. Each class has a policer, so that a flood of one
//! class does not affect other classes.

use sluice_route::policer::ControlClass as Policed;
use sluice_wire::echo::Echo;
use sluice_wire::ipv4::protocol::{self, is_icmp};
use sluice_wire::layers::{Class, Flags, Fragment, Layers};
use sluice_wire::{icmp, icmpv6};

use crate::features::context::{NodeContext, OwnerState};
use crate::features::input_filter;
use crate::features::sites;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::icmp_error::reinject;
use crate::nodes::subscriber;
use crate::packet::batch::Meta;
use crate::packet::batch::{Batch, put};
use crate::packet::counters::CycleStage;
use crate::packet::hand_off::{EntryPoint, HandOffNote};
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::BufferIndex;
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::EngineReason;
use crate::session::family::{Family, V4, V6};
use crate::snapshot::Snapshot;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "local-delivery",
    help: "receives what is addressed to the router itself",
    stage: Some(CycleStage::Forward),
    leaves: &[Leave::LocalDelivery, Leave::HandOver, Leave::Drop],
    exits: &[
        Exit::new("forward", "echo reply", needs::ROUTED),
        Exit::new("icmp-error", "no listener", needs::ROUTED),
        Exit::new("virtual-reassembly", "fragment of an echo request", needs::ROUTED),
        Exit::new("punt", "its router has a host", needs::HOSTED),
        Exit::new("subscriber", "DHCP for sites", needs::SITES),
        Exit::new("transmit", "echo reply in a site", needs::SITES),
    ],
};

/// Delivers packets to the gateway's own addresses.
#[inline(never)]
pub fn local_delivery(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    _tools: &mut NodeTools<'_>,
) {
    for slot in std::mem::take(&mut lists.local_delivery) {
        let meta = *batch.meta(slot);
        let of_site = sites::is_from_terminal(ctx.snapshot, &meta);
        if is_for_relay(ctx.snapshot, &meta, batch.packets[slot as usize].bytes()) {
            put(&mut lists.subscriber, slot);
            continue;
        }
        if is_expected_reply(ctx, &meta, batch.packets[slot as usize].bytes()) {
            put(&mut lists.taken, slot);
            continue;
        }
        let is_punted = !of_site && !is_answered(&meta.layers) && ctx.snapshot.host(meta.interface).is_some();
        if !is_punted && ctx.owner.is_none() {
            lists.hand_over(slot, ctx.snapshot.owner, HandOffNote::new(EntryPoint::Gateway, &meta));
            continue;
        }
        let layers = &meta.layers;
        let is_fragment = layers.fragment != Fragment::Whole;
        let is_asked = input_filter::has_rules(ctx.snapshot, meta.interface);
        if is_fragment && (is_asked || !is_punted && is_icmp(layers.protocol)) && meta.identification == 0 {
            // The policer class depends on the ports, so the ports are set first. Fragments that precede their first fragment are parked.
            put(&mut lists.virtual_reassembly, slot);
            continue;
        }
        if is_asked && let Err(refused) = input_filter::admit(ctx, &meta, batch.packets[slot as usize].bytes()) {
            lists.reject(slot, refused);
            continue;
        }
        if is_punted {
            put(&mut lists.punt, slot);
            continue;
        }
        let Some(owner) = ctx.owner.as_deref_mut() else {
            lists.hand_over(slot, ctx.snapshot.owner, HandOffNote::new(EntryPoint::Gateway, &meta));
            continue;
        };
        let now = ctx.now.nanoseconds;
        let packet = &mut batch.packets[slot as usize];
        let is_query = match is_fragment {
            true => icmp::is_echo_request(packet.bytes(), layers) || icmpv6::is_echo_request(packet.bytes(), layers),
            false => layers.flags.has(Flags::ICMP_QUERY),
        };
        if !is_query {
            refuse(slot, &meta, owner, lists, now);
            continue;
        }
        if !owner.policer.admits(Policed::Icmp, meta.interface, now) {
            lists.drop_packet(slot, EngineReason::PolicedEcho);
            continue;
        }
        answer_echo(slot, &meta, of_site, batch, lists, ctx);
    }
}

/// Refuses a packet for which the gateway has no service.
#[inline(always)]
fn refuse(slot: BufferIndex, meta: &Meta, owner: &mut OwnerState, lists: &mut Lists, now: u64) {
    let layers = &meta.layers;
    if !owner.policer.admits(Policed::Other, meta.interface, now) {
        lists.drop_packet(slot, EngineReason::PolicedOther);
    } else if layers.flags.has(Flags::ICMP_ERROR) {
        put(&mut lists.taken, slot);
    } else if matches!(
        (layers.class, layers.protocol),
        (Class::Ipv4, protocol::ICMP) | (Class::Ipv6, protocol::ICMPV6)
    ) {
        // Drop an ICMP message of an unknown type silently (RFC 1122, 3.2.2; RFC 4443, 2.4).
        lists.drop_packet(slot, EngineReason::NoLocalService);
    } else {
        lists.icmp_error(slot, IcmpError::PortUnreachable, EngineReason::NoLocalService);
    }
}

/// Answers an echo request in its buffer. `of_site`: the request came from a terminal of a site.
#[inline(always)]
fn answer_echo(
    slot: BufferIndex,
    meta: &Meta,
    of_site: bool,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let layers = &meta.layers;
    let packet = &mut batch.packets[slot as usize];
    let answered = match layers.class {
        Class::Ipv4 => {
            let address = V4::addresses(layers, packet.bytes()).1;
            icmp::answer_echo(packet.bytes_mut(), layers, address)
        }
        _ => {
            let [high, low] = V6::addresses(layers, packet.bytes()).1;
            icmpv6::answer_echo(packet.bytes_mut(), layers, u128::from(high) << 64 | u128::from(low))
        }
    };
    if !answered {
        return put(&mut lists.taken, slot);
    }
    if let Some(counters) = ctx.counters.interfaces.get(meta.interface as usize) {
        counters.to_host.add(1);
        counters.originated.add(1);
    }
    if of_site {
        // The answer is sent to the source MAC of the packet, because sites have no routes.
        let frame = batch.packets[slot as usize].bytes();
        let mac = frame.get(6..12).and_then(|mac| mac.try_into().ok()).unwrap_or_default();
        return subscriber::answer(slot, mac, None, batch, lists, ctx);
    }
    reinject(slot, batch, lists);
}

/// Whether a packet must be passed to the DHCP relay of sites.
fn is_for_relay(snapshot: &Snapshot, meta: &Meta, frame: &[u8]) -> bool {
    let Some(sites) = snapshot.sites.as_deref() else {
        return false;
    };
    let router = snapshot.router_of(meta.interface).into();
    sites.takes(meta.interface, router, &meta.layers, frame)
}

/// Whether a packet is the reply to an echo request of the gateway. The function records the reply.
#[inline]
fn is_expected_reply(ctx: &NodeContext<'_, '_>, meta: &Meta, frame: &[u8]) -> bool {
    meta.layers.flags.has(Flags::ICMP_REPLY)
        && Echo::replied(frame, &meta.layers)
            .is_some_and(|echo| ctx.snapshot.probes.answered(&echo, ctx.now.nanoseconds))
}

/// Whether a packet is a query that the gateway answers itself, even if its address is also the address of a router's
/// host.
fn is_answered(layers: &Layers) -> bool {
    let query = layers.flags.has(Flags::ICMP_QUERY) && !layers.flags.has(Flags::ICMP_REPLY);
    query && layers.fragment == Fragment::Whole
}

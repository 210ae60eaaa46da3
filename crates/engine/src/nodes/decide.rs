//! decide: the first packet of a flow: destination rule, route, source rule, port, insert.
//!
//! Exits: established again (a session now exists), forward (nothing to translate), gateway, unresolved, complain,
//! park (a SYN that nobody expects), drop. What is found is data in the session's record; only `established` touches the packet.

use sluice_nat::bindings::Inbound;
use sluice_nat::{Address, PoolIndex, PortClass, Target, TimeoutClass, Tuple};
use sluice_route::SourceValidation;
use sluice_wire::ipv4::protocol::TCP;
use sluice_wire::layers::{Flags, Fragment};
use sluice_wire::tcp::flag::{ACK, FIN, RST, SYN};

use crate::batch::{Batch, Complaint, Hop, Lists, Meta, Origin, put};
use crate::context::Ctx;
use crate::family::Family;
use crate::io::{HAND, Slot};
use crate::opening::Openings;
use crate::paths::{Destination, Wanted};
use crate::reason::{Own, Reason};
use crate::unsolicited::Unsolicited;

/// What is to become of a flow.
pub enum Plan<F: Family> {
    /// A session, translated so.
    Session(Translation<F>),
    /// Forwarding without a session.
    Plain,
    /// An address of the gateway's own.
    Gateway,
    /// To an inside host by its outside address, from one that is not translated itself: as if it came from outside.
    Hairpin,
    /// A neighbour has to be found first.
    Wait(Wanted),
    /// Refused, and the sender is told.
    Complain(Complaint, Reason),
    /// Refused.
    Drop(Reason),
}

/// What rules and routes say of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Translation<F: Family> {
    /// Where a destination rule leads.
    pub target: Option<Target<F::Address>>,
    /// Pool that a source rule names.
    pub pool: Option<PoolIndex>,
    /// Pool whose mapping leads to the target.
    pub mapped: Option<PoolIndex>,
    /// Next hops of both directions.
    pub hops: [Hop; 2],
}

/// Ask rules and routes about a flow that came in by the interface of `meta`, and belongs to its shard.
pub fn plan<F: Family>(ctx: &Ctx<'_, '_>, meta: &Meta, key: &F::Key) -> Plan<F> {
    let nat = F::nat(ctx.policy);
    let (tuple, interface, layers) = (F::tuple(key), meta.interface, &meta.layers);
    let came = ctx.policy.interface(interface);
    let turned = meta.origin == Origin::Hairpinned;
    let outside = turned || came.is_some_and(|i| i.outside);
    let validation = came.map_or(SourceValidation::Strict, |i| i.validation);
    let (mut target, mut mapped) = (nat.rules.decide_destination(tuple, F::protocol(key)), None);
    if outside && target.is_none() && nat.pools.owner(tuple.destination()).is_some() {
        match inbound::<F>(ctx, meta, key) {
            Inbound::Inside {
                address, port, pool, ..
            } => (target, mapped) = (Some(Target { address, port }), Some(pool)),
            Inbound::Filtered => return Plan::Drop(sluice_nat::Reason::Filtered.into()),
            Inbound::Unmapped => {}
        }
    }
    let public = target.is_some() || nat.pools.owner(tuple.destination()).is_some();
    let address = match target {
        Some(target) if outside => target.address,
        _ => tuple.destination(),
    };
    if F::is_group(address) {
        return Plan::Drop(Own::Multicast.into());
    }
    let destination = ctx.paths.find::<F>(address);
    if target.is_none() && public {
        // An interface's own address may be a pool's too: what asks for the gateway itself is answered by it.
        let asks = layers.flags.has(Flags::ICMP_QUERY) && !layers.flags.has(Flags::ICMP_REPLY);
        if matches!(destination, Destination::Local) && asks {
            return Plan::Gateway;
        }
        if outside {
            return Plan::Drop(sluice_nat::Reason::Unsolicited.into());
        }
    }
    // A source that only a packet between inside hosts can have.
    let inside_source = nat.pools.owner(tuple.source()).is_some();
    if outside && !turned && inside_source {
        return Plan::Drop(sluice_nat::Reason::ForgedSource.into());
    }
    if (destination != Destination::Local || public && !outside)
        && !turned
        && let Err(reason) = ctx.paths.validate_source::<F>(validation, interface, tuple.source())
    {
        return Plan::Drop(reason.into());
    }
    if public && !outside {
        return hairpin::<F>(ctx, key, destination);
    }
    let there = match destination {
        Destination::Hop(hop) => hop,
        Destination::Local => return Plan::Gateway,
        Destination::Unknown(wanted) => return Plan::Wait(wanted),
        Destination::Refused(reason) => {
            return match Complaint::of(reason) {
                Some(complaint) => Plan::Complain(complaint, reason.into()),
                None => Plan::Drop(reason.into()),
            };
        }
    };
    let pool = if target.is_none() {
        nat.rules.decide_source(tuple, there.interface() as u16)
    } else {
        None
    };
    if target.is_none() && pool.is_none() {
        return Plan::Plain;
    }
    let back = match ctx.paths.find::<F>(tuple.source()) {
        _ if turned && inside_source => Hop::HAIRPIN,
        Destination::Hop(hop) => hop,
        Destination::Unknown(wanted) => return Plan::Wait(wanted),
        Destination::Local => return Plan::Drop(Own::Loop.into()),
        Destination::Refused(reason) => return Plan::Drop(reason.into()),
    };
    Plan::Session(Translation {
        target,
        pool,
        mapped,
        hops: [there, back],
    })
}

/// Who is behind an outside address and port.
fn inbound<F: Family>(ctx: &Ctx<'_, '_>, meta: &Meta, key: &F::Key) -> Inbound<F::Address> {
    // Queries are answered to whom the inside host asked, and nobody asks it by an identifier.
    let class = PortClass::of(F::protocol(key), <F::Address as Address>::BITS);
    let class = class.filter(|&class| class != PortClass::Query);
    let (Some(class), Some(shard)) = (class, ctx.shard_of(meta)) else {
        return Inbound::Unmapped;
    };
    F::bindings_ref(shard).inbound(F::tuple(key), class)
}

/// A packet from inside to an outside address that is translated: its source is translated as if it left, and then it
/// comes back (RFC 4787, REQ-9).
#[cold]
fn hairpin<F: Family>(ctx: &Ctx<'_, '_>, key: &F::Key, destination: Destination) -> Plan<F> {
    let (nat, tuple) = (F::nat(ctx.policy), F::tuple(key));
    let leaves = match destination {
        Destination::Hop(hop) => Some(hop.interface() as u16),
        Destination::Unknown(wanted) => Some(wanted.interface),
        Destination::Local | Destination::Refused(_) => None,
    };
    let interfaces = (0u16..).zip(&ctx.policy.interfaces);
    let outside = interfaces
        .filter(|(_, interface)| interface.outside)
        .map(|(number, _)| number);
    let pool = leaves
        .into_iter()
        .chain(outside)
        .find_map(|interface| nat.rules.decide_source(tuple, interface));
    let Some(pool) = pool else { return Plan::Hairpin };
    match ctx.paths.find::<F>(tuple.source()) {
        Destination::Hop(back) => Plan::Session(Translation {
            target: None,
            pool: Some(pool),
            mapped: None,
            hops: [Hop::HAIRPIN, back],
        }),
        Destination::Unknown(wanted) => Plan::Wait(wanted),
        Destination::Local => Plan::Drop(Own::Loop.into()),
        Destination::Refused(reason) => Plan::Drop(reason.into()),
    }
}

/// A SYN from outside that nobody expects waits before it is answered.
fn unsolicited<F: Family>(
    ctx: &Ctx<'_, '_>,
    slot: Slot,
    meta: &Meta,
    key: &F::Key,
    reason: Reason,
) -> Option<Unsolicited> {
    use sluice_nat::Reason::{Filtered, Unsolicited as Unexpected};
    let waits = matches!(reason, Reason::Nat(Unexpected | Filtered))
        && ctx.policy.answers_syns
        && ctx.setup.unsolicited_syns > 0
        && meta.origin == Origin::Received
        && F::protocol(key) == TCP
        && meta.layers.fragment == Fragment::Whole
        && meta.layers.tcp_flags & (SYN | ACK | RST | FIN) == SYN;
    let pools = &F::nat(ctx.policy).pools;
    let pool = pools.owner(F::tuple(key).destination());
    let timeouts = pool
        .and_then(|pool| pools.get(pool))
        .map_or(&ctx.policy.timeouts, |pool| pool.timeouts());
    let seconds = u64::from(timeouts.seconds(TimeoutClass::TCP_INCOMING_SYN));
    waits.then(|| Unsolicited {
        slot,
        hash: F::hash_one(ctx.hasher, key),
        due: ctx.now.nanoseconds + seconds * 1_000_000_000,
        reason,
    })
}

/// Decide about packets of no known session.
#[inline(never)]
pub fn decide<F: Family>(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut Ctx<'_, '_>) {
    let mut openings = Openings::<F>::default();
    for slot in std::mem::take(F::decides(lists)) {
        let meta = &mut batch.meta[slot as usize % HAND];
        let frame = batch.packets[slot as usize].bytes();
        let context = ctx.policy.interface(meta.interface).map_or(0, |i| i.context);
        let key = F::key(&meta.layers, frame, context);
        let error = meta.layers.flags.has(Flags::ICMP_ERROR);
        match plan::<F>(ctx, meta, &key) {
            // What would have to be translated is about a session that does not exist (RFC 5508, REQ-4 and REQ-5).
            Plan::Session(_) | Plan::Drop(Reason::Nat(sluice_nat::Reason::Unsolicited)) if error => {
                lists.discard(slot, sluice_nat::Reason::IcmpErrorWithoutSession);
            }
            Plan::Session(translation) => openings.ask(slot, key, translation),
            Plan::Plain => put(F::forwards(lists), slot),
            Plan::Gateway => put(&mut lists.gateway, slot),
            Plan::Hairpin => {
                meta.origin = Origin::Hairpinned;
                put(F::lookups(lists), slot);
            }
            Plan::Wait(wanted) => lists.wait(slot, Some(wanted)),
            Plan::Complain(complaint, reason) => lists.complain(slot, complaint, reason),
            Plan::Drop(reason) => match unsolicited::<F>(ctx, slot, meta, &key, reason) {
                Some(syn) => put(&mut lists.park_syn, syn),
                None => lists.discard(slot, reason),
            },
        }
    }
    openings.open(batch, lists, ctx);
}

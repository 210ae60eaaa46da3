//! decide: the first packet of a flow: destination rule, route, source rule, port, insert.
//!
//! Exits: established again (a session now exists), forward (nothing to translate), gateway, unresolved, complain,
//! drop. What is found is data in the session's record; only `established` touches the packet.

use sluice_nat::{PoolIndex, Target, Tuple};
use sluice_route::SourceValidation;
use sluice_wire::layers::{Flags, Layers};

use crate::batch::{Batch, Complaint, Hop, Lists, put};
use crate::context::Ctx;
use crate::family::Family;
use crate::opening::Openings;
use crate::paths::{Destination, Wanted};
use crate::reason::{Own, Reason};

/// What is to become of a flow.
pub enum Plan<F: Family> {
    /// A session, translated so.
    Session(Translation<F>),
    /// Forwarding without a session.
    Plain,
    /// An address of the gateway's own.
    Gateway,
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
    /// Next hops of both directions.
    pub hops: [Hop; 2],
}

/// Ask rules and routes about a flow that came in by `interface`.
pub fn plan<F: Family>(ctx: &Ctx<'_, '_>, interface: u16, key: &F::Key, layers: &Layers) -> Plan<F> {
    let nat = F::nat(ctx.policy);
    let tuple = F::tuple(key);
    let came = ctx.policy.interface(interface);
    let outside = came.is_some_and(|i| i.outside);
    let validation = came.map_or(SourceValidation::Strict, |i| i.validation);
    let target = if outside {
        nat.rules.decide_destination(tuple, F::protocol(key))
    } else {
        None
    };
    let address = target.map_or(tuple.destination(), |target| target.address);
    if F::is_group(address) {
        return Plan::Drop(Own::Multicast.into());
    }
    let destination = ctx.paths.find::<F>(address);
    if target.is_none() && nat.pools.owner(address).is_some() {
        // An interface's own address may be a pool's too: what asks for the gateway itself is answered by it.
        let asks = layers.flags.has(Flags::ICMP_QUERY) && !layers.flags.has(Flags::ICMP_REPLY);
        let own = matches!(destination, Destination::Local) && asks;
        return if own {
            Plan::Gateway
        } else {
            Plan::Drop(sluice_nat::Reason::Unsolicited.into())
        };
    }
    if destination != Destination::Local
        && let Err(reason) = ctx.paths.validate_source::<F>(validation, interface, tuple.source())
    {
        return Plan::Drop(reason.into());
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
        Destination::Hop(hop) => hop,
        Destination::Unknown(wanted) => return Plan::Wait(wanted),
        Destination::Local => return Plan::Drop(Own::Loop.into()),
        Destination::Refused(reason) => return Plan::Drop(reason.into()),
    };
    Plan::Session(Translation {
        target,
        pool,
        hops: [there, back],
    })
}

/// Decide about packets of no known session.
#[inline(never)]
pub fn decide<F: Family>(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut Ctx<'_, '_>) {
    let mut openings = Openings::<F>::default();
    for slot in std::mem::take(F::decides(lists)) {
        let meta = batch.meta(slot);
        let frame = batch.packets[slot as usize].bytes();
        let context = ctx.policy.interface(meta.interface).map_or(0, |i| i.context);
        let key = F::key(&meta.layers, frame, context);
        let error = meta.layers.flags.has(Flags::ICMP_ERROR);
        match plan::<F>(ctx, meta.interface, &key, &meta.layers) {
            // What would have to be translated is about a session that does not exist (RFC 5508, REQ-4 and REQ-5).
            Plan::Session(_) | Plan::Drop(Reason::Nat(sluice_nat::Reason::Unsolicited)) if error => {
                lists.discard(slot, sluice_nat::Reason::IcmpErrorWithoutSession);
            }
            Plan::Session(translation) => openings.ask(slot, key, translation),
            Plan::Plain => put(F::forwards(lists), slot),
            Plan::Gateway => put(&mut lists.gateway, slot),
            Plan::Wait(wanted) => lists.wait(slot, Some(wanted)),
            Plan::Complain(complaint, reason) => lists.complain(slot, complaint, reason),
            Plan::Drop(reason) => lists.discard(slot, reason),
        }
    }
    openings.open(batch, lists, ctx);
}

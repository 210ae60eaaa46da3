//! Source validation of every packet of a session, not only of the first (BCP 38, RFC 3704).
//!
//! A session is bound to one interface by direction. A packet that comes in by it costs one comparison; one that comes in by
//! another is validated as the first packet of a flow is, and the session is bound to that interface, or it is dropped.

use sluice_nat::Tuple;
use sluice_nat::sites::is_site;
use sluice_route::SourceValidation;
use sluice_wire::layers::Flags;
use sluice_wire::{Context, Direction};

use crate::features::context::OutputContext;
use crate::features::sites;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Meta, Origin};
use crate::packet::reason::Reason;
use crate::session::family::{Family, Session};
use crate::snapshot::Snapshot;
use crate::snapshot::forwarding::ForwardingState;

/// Whether an address is one that inside hosts have outside.
#[inline]
pub fn is_outside_address<F: Family>(snapshot: &Snapshot, context: Context, address: F::Address) -> bool {
    let nat = snapshot.nat::<F>();
    nat.pools.owner(context, address).is_some()
        || nat.rules.stands_in_for(context, address)
        || sites::is_own::<F>(snapshot, context, address)
}

/// Validate the source of a packet of a known session as that of a first packet. `context` is its key's.
pub fn validate<F: Family>(
    exit: &OutputContext<'_>,
    meta: &Meta,
    source: F::Address,
    context: Context,
) -> Result<(), Reason> {
    let snapshot = exit.snapshot;
    let Some(interface) = snapshot.interface(meta.interface) else {
        return Ok(());
    };
    // Of what is the gateway's own nothing is asked, of a site's terminals the lease says more than routes do, and a bridge has
    // no routes.
    if matches!(meta.origin, Origin::Own | Origin::Hairpinned) || is_site(context) || interface.bridge.is_some() {
        return Ok(());
    }
    if interface.outside && is_outside_address::<F>(snapshot, context, source) {
        return Err(sluice_nat::Reason::ForgedSource.into());
    }
    let router = snapshot.router_of(meta.interface);
    exit.paths
        .validate_source::<F>(interface.validation, router, meta.interface, source)?;
    Ok(())
}

/// A packet of a session came in by another interface than those of its direction before: it is dropped, or the session is
/// bound to that interface, where routes have something to say about it.
#[cold]
pub fn rebind<F: Family>(
    exit: &OutputContext<'_>,
    meta: &Meta,
    tuple: &F::Tuple,
    session: &mut F::Session,
    direction: Direction,
) -> Result<(), Reason> {
    // An error comes from any router on the way: it is validated where it is translated, and binds nothing.
    if meta.layers.flags.has(Flags::ICMP_ERROR) {
        return Ok(());
    }
    validate::<F>(exit, meta, tuple.source(), tuple.context())?;
    let validation = exit
        .snapshot
        .interface(meta.interface)
        .map(|interface| interface.validation);
    // What anybody may send moves nothing. Neither is a side bound to the other's interface, from which it may be feigned where
    // any route will do.
    let binds = matches!(meta.origin, Origin::Received | Origin::Routed)
        && validation.is_some_and(|validation| validation != SourceValidation::Off)
        && session.bound_interface(direction.opposite()) != meta.interface
        && session.adjacency(direction.opposite()) != AdjacencyIndex::HAIRPIN;
    if binds {
        session.set_bound_interface(direction, meta.interface);
        exit.counters.sessions_rebound.add(1);
    }
    Ok(())
}

/// Whether routes still let the packets of a session come in by the interfaces that it is bound to.
pub fn are_valid<F: Family>(session: &F::Session, snapshot: &Snapshot, paths: &ForwardingState) -> bool {
    let ends = [
        (Direction::Forward, session.forward()),
        (Direction::Reverse, session.reverse()),
    ];
    ends.into_iter().all(|(direction, tuple)| {
        let number = session.bound_interface(direction);
        // Where packets to the sender leave by the same interface, that is already known to be a way to it.
        let is_way = session.adjacency(direction.opposite()).interface() == usize::from(number);
        let Some(interface) = snapshot
            .interface(number)
            .filter(|_| !is_way && !is_site(tuple.context()))
        else {
            return true;
        };
        let router = snapshot.router_of(number);
        let valid = paths.validate_source::<F>(interface.validation, router, number, tuple.source());
        interface.bridge.is_some() || valid.is_ok()
    })
}

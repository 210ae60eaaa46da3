//! Source validation of every packet of a session, not only of its first packet (BCP 38, RFC 3704).
//!
//! Each direction of a session is bound to an interface. For a packet that arrives on this interface, validation is a
//! single comparison. A packet that arrives on a different interface is validated like the first packet of a flow; then
//! the session is bound to that interface, or the packet is dropped.

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

/// Whether an address is an outside address of NAT, to which sources of inside hosts are translated.
#[inline]
pub fn is_outside_address<F: Family>(snapshot: &Snapshot, context: Context, address: F::Address) -> bool {
    let nat = snapshot.nat::<F>();
    nat.pools.owner(context, address).is_some()
        || nat.rules.proxies_for(context, address)
        || sites::is_own::<F>(snapshot, context, address)
}

/// Validates the source of a packet of a known session like the source of a first packet. `context` is the context of
/// the packet's key.
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
    // Packets of the gateway itself are not validated, terminals of a site are validated by their leases, and a bridge has no
    // routes.
    if matches!(meta.origin, Origin::Gateway | Origin::Hairpinned) || is_site(context) || interface.bridge.is_some() {
        return Ok(());
    }
    if interface.outside && is_outside_address::<F>(snapshot, context, source) {
        return Err(sluice_nat::Reason::ForgedSource.into());
    }
    let router = snapshot.router_of(meta.interface);
    exit.forwarding
        .validate_source::<F>(interface.validation, router, meta.interface, source)?;
    Ok(())
}

/// Handles a packet that arrived on a different interface than the earlier packets of its session in the same
/// direction. The packet is dropped if it fails validation. Otherwise, if source validation is enabled on the
/// interface, the session is bound to the interface.
#[cold]
pub fn rebind<F: Family>(
    exit: &OutputContext<'_>,
    meta: &Meta,
    tuple: &F::Tuple,
    session: &mut F::Session,
    direction: Direction,
) -> Result<(), Reason> {
    // Any router on the path may send an ICMP error. An ICMP error is validated during translation, and does not rebind the session.
    if meta.layers.flags.has(Flags::ICMP_ERROR) {
        return Ok(());
    }
    validate::<F>(exit, meta, tuple.source(), tuple.context())?;
    let validation = exit
        .snapshot
        .interface(meta.interface)
        .map(|interface| interface.validation);
    // Without validation, a forged packet must not rebind a session. A direction is also never bound to the interface
    // of the other direction. Otherwise, loose validation would accept forged packets on this interface.
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

/// Whether source validation still accepts the packets of a session on the interfaces to which it is bound.
pub fn are_valid<F: Family>(session: &F::Session, snapshot: &Snapshot, forwarding: &ForwardingState) -> bool {
    let ends = [
        (Direction::Forward, &session.forward()),
        (Direction::Reverse, &session.reverse()),
    ];
    ends.into_iter().all(|(direction, tuple)| {
        let number = session.bound_interface(direction);
        // If packets to the sender leave through this interface, the route to the sender has already been verified.
        let is_expected_interface = session.adjacency(direction.opposite()).interface() == usize::from(number);
        let Some(interface) = snapshot
            .interface(number)
            .filter(|_| !is_expected_interface && !is_site(tuple.context()))
        else {
            return true;
        };
        let router = snapshot.router_of(number);
        let valid = forwarding.validate_source::<F>(interface.validation, router, number, tuple.source());
        interface.bridge.is_some() || valid.is_ok()
    })
}

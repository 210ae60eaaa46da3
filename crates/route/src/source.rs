//! Source validation: BCP 38, RFC 3704.

use crate::{Address, DropKind, FibReader, InterfaceIndex, NextHop, NextHops, Reason, RouterIndex};

/// How the source address of a packet is held against the routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceValidation {
    /// The best route to the source leads out by the interface that the packet came in by (RFC 3704 section 2.2).
    Strict,
    /// There is a route to the source, be it the default route (RFC 3704 section 2.4).
    Loose,
    /// Not at all.
    #[default]
    Off,
}

/// Validate the source of a packet that came in by `arrival`, an interface of `router`. With `Strict` and `Loose`, an address of the gateway
/// itself, a refused prefix or a broadcast address is no valid source either.
#[inline]
pub fn validate_source(
    mode: SourceValidation,
    router: RouterIndex,
    source: Address,
    arrival: InterfaceIndex,
    fib: &FibReader,
    next_hops: &NextHops,
) -> Result<(), Reason> {
    // A link-local source is of the link that it came by, and has no route.
    if mode == SourceValidation::Off || source.is_link_local() {
        return Ok(());
    }
    let route = fib.find(router, source).ok_or(Reason::SourceValidation)?;
    validate_reverse_path(mode, route.value, arrival, next_hops)
}

/// The same where it is known what the route to the source leads to.
#[inline]
pub fn validate_reverse_path(
    mode: SourceValidation,
    next_hop: u32,
    arrival: InterfaceIndex,
    next_hops: &NextHops,
) -> Result<(), Reason> {
    // Of several ways any one counts: answers may take another than the one that the packet came by.
    let mut valid = Err(Reason::SourceValidation);
    for member in next_hops.members(next_hop) {
        valid = by_member(mode, next_hops.get(member), arrival);
        if valid.is_ok() {
            break;
        }
    }
    valid
}

#[inline(always)]
fn by_member(mode: SourceValidation, next_hop: NextHop, arrival: InterfaceIndex) -> Result<(), Reason> {
    let interface = match next_hop {
        NextHop::Attached(interface) | NextHop::Gateway { interface, .. } => interface,
        NextHop::Drop(DropKind::LinkLocal) => return Err(Reason::LinkLocal),
        NextHop::Local(_) | NextHop::Drop(_) => return Err(Reason::SourceValidation),
    };
    let valid = mode == SourceValidation::Loose || interface == arrival;
    if valid { Ok(()) } else { Err(Reason::SourceValidation) }
}

//! Source validation: BCP 38, RFC 3704.

use crate::{Address, DropKind, FibReader, InterfaceIndex, NextHop, NextHops, Reason, RouterIndex};

/// Mode of checking the source address of a packet against the routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceValidation {
    /// The best route to the source must use the interface through which the packet arrived (RFC 3704, section 2.2).
    Strict,
    /// A route to the source must exist, possibly the default route (RFC 3704, section 2.4).
    Loose,
    /// No check.
    #[default]
    Off,
}

/// Validate the source of a packet that arrived through `arrival`, an interface of `router`. `Strict` and `Loose` also
/// reject sources that are addresses of the gateway itself, in a dropped prefix, or broadcast addresses.
#[inline]
pub fn validate_source(
    mode: SourceValidation,
    router: RouterIndex,
    source: Address,
    arrival: InterfaceIndex,
    fib: &FibReader,
    next_hops: &NextHops,
) -> Result<(), Reason> {
    // A link-local source belongs to the link on which it arrived and has no route.
    if mode == SourceValidation::Off || source.is_link_local() {
        return Ok(());
    }
    let route = fib.find(router, source).ok_or(Reason::SourceValidation)?;
    validate_reverse_path(mode, route.value, arrival, next_hops)
}

/// Validate the source if the next hop of the route to it is already known.
#[inline]
pub fn validate_reverse_path(
    mode: SourceValidation,
    next_hop: u32,
    arrival: InterfaceIndex,
    next_hops: &NextHops,
) -> Result<(), Reason> {
    // With several next hops any of them is valid: answers may use a different one than the packet did.
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

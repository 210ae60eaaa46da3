//! Source address validation (BCP 38, RFC 3704).

use crate::{Address, DropKind, FibReader, InterfaceIndex, NextHop, NextHops, Reason, RouterIndex};

/// How the source address of a packet is checked against the routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceValidation {
    /// The best route to the source must use the interface through which the packet arrived (RFC 3704, section 2.2).
    Strict,
    /// A route to the source must exist. The route may be the default route (RFC 3704, section 2.4).
    Loose,
    /// The source is not checked.
    #[default]
    Off,
}

/// Validates the source of a packet that arrived through `arrival`, an interface of `router`. `Strict` and `Loose` also
/// reject addresses of the gateway, broadcast addresses, and addresses with a drop route.
#[inline]
pub fn validate_source(
    mode: SourceValidation,
    router: RouterIndex,
    source: Address,
    arrival: InterfaceIndex,
    fib: &FibReader,
    next_hops: &NextHops,
) -> Result<(), Reason> {
    // A link-local source belongs to the link on which the packet arrived, and has no route.
    if mode == SourceValidation::Off || source.is_link_local() {
        return Ok(());
    }
    let route = fib.find(router, source).ok_or(Reason::SourceValidation)?;
    validate_reverse_path(mode, route.value, arrival, next_hops)
}

/// Validates a source, given the next hop of the route to the source.
#[inline]
pub fn validate_reverse_path(
    mode: SourceValidation,
    next_hop: u32,
    arrival: InterfaceIndex,
    next_hops: &NextHops,
) -> Result<(), Reason> {
    // Any next hop of a multipath route is valid, because replies may use a different next hop than the packet.
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

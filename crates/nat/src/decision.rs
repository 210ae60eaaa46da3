//! Translation decision, as stored in a session's record. The decision takes eight bytes in addition to the two keys.

use bytemuck::{Pod, Zeroable};
use sluice_wire::checksum::Delta;
use sluice_wire::{Context, Direction};

use crate::ports::{Lease, PortClass};
use crate::rule::Target;
use crate::{Address, PoolIndex, Tuple};

/// How the packets of a session are translated. The translated addresses and ports are not included, because the key of
/// the opposite direction contains them.
///
/// All zeros represent the decision of a session that is not translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Decision {
    /// Change of the IPv4 header checksum when a forward packet is rewritten, in the byte order of packets.
    l3: u16,
    /// Change of the transport checksum when a forward packet is rewritten, in the byte order of packets.
    l4: u16,
    /// Pool from which the source port was allocated.
    pool: PoolIndex,
    /// Bitwise OR of the flag constants.
    flags: u16,
}

const SOURCE: u16 = 1;
const DESTINATION: u16 = 2;
const POOLED: u16 = 4;

/// Resources that must be released when a session ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources(u16);

impl Resources {
    /// No resources.
    pub const NONE: Self = Self(0);
    /// An outside port that only this session uses.
    pub const PORT: Self = Self(8);
    /// The mapping of the session's inside address and port.
    pub const MAPPING: Self = Self(16);
    /// Flag: the subscriber counts the session.
    pub const SUBSCRIBER: Self = Self(32);
    /// Flag: the pool counts the session.
    pub const POOL: Self = Self(64);
    /// Flag: the virtual router counts the session.
    pub const ROUTER: Self = Self(128);
    const ALL: u16 = Self::ALLOCATED.0 | Self::POOL.0 | Self::ROUTER.0;
    /// The resources that [`crate::Bindings`] allocates.
    const ALLOCATED: Self = Self(Self::PORT.0 | Self::MAPPING.0 | Self::SUBSCRIBER.0);

    /// The resources of this set that [`crate::Bindings`] has allocated.
    #[inline(always)]
    pub fn allocated(self) -> Self {
        Self(self.0 & Self::ALLOCATED.0)
    }

    /// Whether these resources include all of `other`.
    #[inline(always)]
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl core::ops::BitOr for Resources {
    type Output = Self;
    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Decision {
    /// The decision of a session that is not translated.
    pub const NONE: Self = Self {
        l3: 0,
        l4: 0,
        pool: 0,
        flags: 0,
    };

    /// Whether the session's packets are rewritten.
    #[inline(always)]
    pub fn translates(self) -> bool {
        self.flags & (SOURCE | DESTINATION) != 0
    }

    /// Whether the source of forward packets is rewritten.
    #[inline(always)]
    pub fn translates_source(self) -> bool {
        self.flags & SOURCE != 0
    }

    /// Whether the destination of forward packets is rewritten.
    #[inline(always)]
    pub fn translates_destination(self) -> bool {
        self.flags & DESTINATION != 0
    }

    /// Pool that the session uses; `None` without a pool.
    #[inline(always)]
    pub fn pool(self) -> Option<PoolIndex> {
        (self.flags & POOLED != 0).then_some(self.pool)
    }

    /// Pool that the session uses. The value is valid only if the session uses a pool.
    #[inline(always)]
    pub(crate) fn pool_index(self) -> PoolIndex {
        self.pool
    }

    /// Resources of the session.
    #[inline(always)]
    pub fn resources(self) -> Resources {
        Resources(self.flags & Resources::ALL)
    }

    /// Returns this decision with its resources replaced by `resources` of `pool`.
    #[inline(always)]
    pub fn with_resources(self, pool: PoolIndex, resources: Resources) -> Self {
        Self {
            pool,
            flags: self.flags & !Resources::ALL | resources.0 | POOLED,
            ..self
        }
    }

    /// Returns this decision with the pool that has taken over the port. Only the previous pool has admitted the
    /// session, so the new pool does not count it.
    pub fn with_pool(self, pool: PoolIndex) -> Self {
        let flags = self.flags & !Resources::POOL.0;
        Self { pool, flags, ..self }
    }

    /// Returns this decision with the flags `by` added. `by` tells whether the pool and the virtual router count the
    /// session.
    #[inline(always)]
    pub fn counted(self, by: Resources) -> Self {
        Self {
            flags: self.flags | by.0,
            ..self
        }
    }

    /// Whether packets of this direction are outbound (RFC 4787, REQ-6): towards the host that receives translated
    /// addresses. If the source is translated, the result is true for forward packets. If only a destination rule
    /// applies, the result is true for reverse packets.
    #[inline(always)]
    pub fn outbound(self, direction: Direction) -> bool {
        (self.flags & (SOURCE | DESTINATION) == DESTINATION) == (direction == Direction::Reverse)
    }

    /// Change of the IPv4 header checksum when a packet of this direction is rewritten.
    #[inline(always)]
    pub fn l3(self, direction: Direction) -> Delta {
        Delta(u16::from_be(self.l3 ^ mask(direction)))
    }

    /// Changes of the IPv4 header checksum and of the transport checksum when a packet of this direction is rewritten, as
    /// numbers in the byte order of the packet's memory.
    #[inline(always)]
    pub(crate) fn in_packet_order(self, direction: Direction) -> [Delta; 2] {
        let mask = mask(direction);
        [Delta(self.l3 ^ mask), Delta(self.l4 ^ mask)]
    }

    /// Change of the transport checksum when a packet of this direction is rewritten.
    #[inline(always)]
    pub fn l4(self, direction: Direction) -> Delta {
        Delta(u16::from_be(self.l4 ^ mask(direction)))
    }
}

/// XOR mask for a checksum change: all ones for the reverse direction, which complements the change; 0 for the forward
/// direction.
#[inline(always)]
fn mask(direction: Direction) -> u16 {
    (direction as u16).wrapping_neg()
}

/// Translation of a new session: the reverse key, and the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation<T> {
    /// Key of reverse packets before their translation.
    pub reverse: T,
    /// The decision for the record of the session.
    pub decision: Decision,
}

/// Source of a new session's packets after translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewSource<A> {
    /// The original source is kept.
    Original,
    /// An address and a port that a pool has allocated.
    Allocated(PoolIndex, Lease<A>),
    /// A different address with the original port (static mapping).
    Static(A),
    /// A different address and port, which no pool has allocated.
    At(Lease<A>),
    /// The original address with a different port. Used with a destination rule if the client already has a session
    /// from the original port to the same target.
    Port(u16),
}

/// Creates the translation of a new session from its forward key. `target` is set if a destination rule matched,
/// `source` if a source rule matched. `outside` is the context in which answers arrive.
pub fn translate<T: Tuple>(
    forward: &T,
    protocol: u8,
    outside: Context,
    target: Option<Target<T::Address>>,
    source: NewSource<T::Address>,
) -> Translation<T> {
    let query = PortClass::of(protocol, T::Address::BITS) == Some(PortClass::Query);
    let mut flags = 0;
    let (mut remote, mut remote_port) = (forward.destination(), forward.destination_port());
    let (mut inside, mut inside_port) = (forward.source(), forward.source_port());
    let mut pool = 0;
    if let Some(target) = target {
        flags |= DESTINATION;
        remote = target.address;
        remote_port = target.port;
    }
    match source {
        NewSource::Original => {}
        NewSource::Allocated(index, lease) => {
            flags |= SOURCE | POOLED | Resources::PORT.0;
            (inside, inside_port) = (lease.address, lease.port);
            pool = index;
        }
        NewSource::Static(address) => {
            flags |= SOURCE;
            inside = address;
        }
        NewSource::At(lease) => {
            flags |= SOURCE;
            (inside, inside_port) = (lease.address, lease.port);
        }
        NewSource::Port(port) => inside_port = port,
    }
    if query {
        // One port of the reverse key is the translated identifier. The other one is the translated identifier plus the
        // ICMP request type.
        let kind = forward.destination_port().wrapping_sub(forward.source_port());
        remote_port = inside_port.wrapping_add(kind);
    }
    let reverse = T::new(remote, inside, remote_port, inside_port, outside);
    let mut l3 = Delta::default();
    let mut l4 = Delta::default();
    if flags != 0 {
        let addresses = forward.source().exchange(inside, Delta::default());
        let addresses = forward.destination().exchange(remote, addresses);
        l3 = addresses;
        // ICMP for IPv4 has no pseudo-header, so address changes don't affect its checksum.
        l4 = if query && T::Address::BITS == 32 {
            Delta::default()
        } else {
            addresses
        };
        l4 = l4.word(forward.source_port(), inside_port);
        if !query {
            l4 = l4.word(forward.destination_port(), remote_port);
        }
    }
    Translation {
        reverse,
        decision: Decision {
            l3: l3.0.to_be(),
            l4: l4.0.to_be(),
            pool,
            flags,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_wire::Tuple4;

    const FORWARD: Tuple4 = Tuple4 {
        source: 1,
        destination: 2,
        source_port: 3,
        destination_port: 4,
        context: 5,
    };

    #[test]
    fn translate_nothing_is_no_decision_and_the_plain_answer() {
        let made = translate(&FORWARD, 6, 5, None, NewSource::Original);
        assert_eq!(Decision::NONE, made.decision);
        let reverse = Tuple4 {
            source: 2,
            destination: 1,
            source_port: 4,
            destination_port: 3,
            context: 5,
        };
        assert_eq!(reverse, made.reverse);
        assert!(!made.decision.translates());
        assert_eq!(None, made.decision.pool());
    }

    #[test]
    fn translate_source_and_destination_are_told_apart() {
        let lease = NewSource::Allocated(9, Lease { address: 10, port: 11 });
        let target = Some(Target { address: 12, port: 13 });
        let source = translate(&FORWARD, 6, 7, None, lease);
        let destination = translate(&FORWARD, 6, 7, target, NewSource::Original);
        let both = translate(&FORWARD, 6, 7, target, lease);
        let reverse = Tuple4 {
            source: 12,
            destination: 10,
            source_port: 13,
            destination_port: 11,
            context: 7,
        };
        assert_eq!(reverse, both.reverse);
        assert_eq!(
            [Some(9), None, Some(9)],
            [source, destination, both].map(|made| made.decision.pool())
        );
        let make = |made: Translation<_>| {
            (
                made.decision.translates_source(),
                made.decision.translates_destination(),
            )
        };
        assert_eq!(
            [(true, false), (false, true), (true, true)],
            [source, destination, both].map(make)
        );
    }

    #[test]
    fn rfc4787_req6_outbound_is_from_the_translated_side() {
        let lease = NewSource::Allocated(9, Lease { address: 10, port: 11 });
        let target = Some(Target { address: 12, port: 13 });
        let outbound = |target, lease| {
            let decision = translate(&FORWARD, 17, 7, target, lease).decision;
            [Direction::Forward, Direction::Reverse].map(|direction| decision.outbound(direction))
        };
        assert_eq!([true, false], outbound(None, lease));
        assert_eq!([false, true], outbound(target, NewSource::Original));
        assert_eq!([true, false], outbound(None, NewSource::Original));
    }

    #[test]
    fn translate_source_one_to_one_keeps_the_port_and_needs_no_pool() {
        let made = translate(&FORWARD, 17, 7, None, NewSource::Static(10));
        assert_eq!((10, 3), (made.reverse.destination, made.reverse.destination_port));
        assert!(made.decision.translates_source() && made.decision.outbound(Direction::Forward));
        assert_eq!(
            (None, Resources::NONE),
            (made.decision.pool(), made.decision.resources())
        );
    }

    #[test]
    fn translate_source_to_an_address_and_port_that_nobody_lends_holds_nothing() {
        let lease = Lease { address: 10, port: 11 };
        let made = translate(&FORWARD, 6, 7, None, NewSource::At(lease));
        assert_eq!((10, 11), (made.reverse.destination, made.reverse.destination_port));
        let allocated = translate(&FORWARD, 6, 7, None, NewSource::Allocated(0, lease)).decision;
        assert_eq!(allocated.l4(Direction::Forward), made.decision.l4(Direction::Forward));
        assert_eq!(
            (None, Resources::NONE),
            (made.decision.pool(), made.decision.resources())
        );
    }

    #[test]
    fn translate_query_changes_the_identifier_and_keeps_what_is_asked() {
        let query = Tuple4 {
            destination_port: FORWARD.source_port + 8,
            ..FORWARD
        };
        let made = translate(
            &query,
            1,
            5,
            None,
            NewSource::Allocated(0, Lease { address: 10, port: 11 }),
        );
        assert_eq!((19, 11), (made.reverse.source_port, made.reverse.destination_port));
        assert_eq!(Delta::default().word(3, 11), made.decision.l4(Direction::Forward));
    }
}

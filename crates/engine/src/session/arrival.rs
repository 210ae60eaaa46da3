//! What a session's record knows about the arrival of packets of a direction.

use bytemuck::{Pod, Zeroable};

use crate::packet::adjacency::AdjacencyIndex;

/// For one direction of a session: the interface on which its packets arrive, whether they refresh the session (RFC 4787,
/// REQ-6), whether the express lane may take usual ones, and the high bits of the context in the key of the direction. The lane
/// compares them with one instruction, except for the refresh flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct Arrival(u32);

impl Arrival {
    /// Mask of the interface.
    const INTERFACE: u32 = AdjacencyIndex::MAX_INTERFACES as u32;
    /// Flag: packets of the direction refresh the session.
    const REFRESHES: u32 = Self::INTERFACE + 1;
    /// Flag: the express lane may take usual packets of the direction.
    const PASSES: u32 = Self::REFRESHES << 1;
    /// Position of the high bits of the context.
    const HIGH: u32 = 24;
    /// Interface number of a direction that is not bound to an interface.
    pub const NONE: u16 = AdjacencyIndex::MAX_INTERFACES as u16;

    /// Creates the value from the interface, and whether packets refresh the session. The lane may not take packets.
    pub fn new(interface: u16, refreshes: bool) -> Self {
        Self(u32::from(refreshes) * Self::REFRESHES).with_interface(interface)
    }

    /// The value of a direction of which the lane may take packets that arrive on `interface`, with the context's bits `high` in
    /// their keys.
    #[inline(always)]
    pub fn in_lane(interface: u16, high: u8) -> Self {
        Self(Self::PASSES).with_interface(interface).with_high(high)
    }

    /// Replaces the interface.
    #[inline(always)]
    #[must_use]
    pub fn with_interface(self, interface: u16) -> Self {
        Self(self.0 & !Self::INTERFACE | u32::from(interface.min(Self::NONE)))
    }

    /// Replaces the high bits of the context.
    #[inline(always)]
    #[must_use]
    pub fn with_high(self, high: u8) -> Self {
        Self(self.0 & !(0xff << Self::HIGH) | u32::from(high) << Self::HIGH)
    }

    /// Allows or forbids the express lane to take usual packets.
    #[inline(always)]
    #[must_use]
    pub fn with_pass(self, passes: bool) -> Self {
        Self(self.0 & !Self::PASSES | (u32::from(passes) * Self::PASSES))
    }

    /// Whether this value equals `expected`, which [`in_lane`](Self::in_lane) has made, apart from the refresh flag.
    #[inline(always)]
    pub fn is_in_lane(self, expected: Self) -> bool {
        (self.0 ^ expected.0) & !Self::REFRESHES == 0
    }

    /// The interface on which packets arrive, or [`Arrival::NONE`] if every packet must pass source validation.
    #[inline(always)]
    pub fn interface(self) -> u16 {
        (self.0 & Self::INTERFACE) as u16
    }

    /// Whether packets refresh the session.
    #[inline(always)]
    pub fn refreshes(self) -> bool {
        self.0 & Self::REFRESHES != 0
    }

    /// The high bits of the context in the key.
    #[inline(always)]
    pub fn high(self) -> u8 {
        (self.0 >> Self::HIGH) as u8
    }
}

const _: () = assert!(Arrival::INTERFACE.count_ones() == Arrival::INTERFACE.trailing_ones());
const _: () = assert!(Arrival::PASSES < 1 << Arrival::HIGH);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_replaced_alone() {
        let arrival = Arrival::new(7, true).with_high(0xa5).with_pass(true);
        let parts = |arrival: Arrival| {
            let in_lane = Arrival::in_lane(arrival.interface(), arrival.high());
            let passes = arrival.is_in_lane(in_lane);
            (arrival.interface(), arrival.refreshes(), passes, arrival.high())
        };
        assert_eq!((7, true, true, 0xa5), parts(arrival));
        assert_eq!((2, true, true, 0xa5), parts(arrival.with_interface(2)));
        assert_eq!(
            (Arrival::NONE, true, true, 0xa5),
            parts(arrival.with_interface(u16::MAX))
        );
        assert_eq!((7, true, true, 1), parts(arrival.with_high(1)));
        assert_eq!((7, true, false, 0xa5), parts(arrival.with_pass(false)));
    }

    #[test]
    fn lane_compares_all_but_the_refresh_flag() {
        let expected = Arrival::in_lane(7, 3);
        for refreshes in [false, true] {
            let arrival = Arrival::new(7, refreshes).with_high(3);
            assert!(!arrival.is_in_lane(expected));
            let arrival = arrival.with_pass(true);
            assert!(arrival.is_in_lane(expected));
            assert!(!arrival.with_interface(8).is_in_lane(expected));
            assert!(!arrival.with_high(2).is_in_lane(expected));
        }
    }
}

//! The interfaces to which the directions of a session are bound, as stored in its record.

use bytemuck::{Pod, Zeroable};
use sluice_wire::Direction;

use crate::packet::adjacency::AdjacencyIndex;

/// For each direction: the interface on which packets of this direction arrive, and whether they refresh the session
/// (RFC 4787, REQ-6).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct BoundInterfaces([u16; 2]);

impl BoundInterfaces {
    /// Mask of an interface.
    const INTERFACE: u16 = AdjacencyIndex::MAX_INTERFACES as u16;
    /// Flag in the bit above the interface number: packets of the direction refresh the session.
    const REFRESHES: u16 = Self::INTERFACE + 1;
    /// Interface number of a direction that is not bound to an interface.
    pub const NONE: u16 = AdjacencyIndex::MAX_INTERFACES as u16;

    /// Creates the value from, for each direction, the interface and whether packets refresh the session.
    pub fn new([forward, reverse]: [u16; 2], refreshes: [bool; 2]) -> Self {
        let bare = Self(refreshes.map(|refreshes| u16::from(refreshes) * Self::REFRESHES));
        bare.with(Direction::Forward, forward).with(Direction::Reverse, reverse)
    }

    /// Replaces the interface of a direction.
    pub fn with(mut self, direction: Direction, interface: u16) -> Self {
        let word = &mut self.0[direction as usize];
        *word = *word & !Self::INTERFACE | interface.min(Self::NONE);
        self
    }

    #[inline(always)]
    fn of(self, direction: Direction) -> u16 {
        self.0[direction as usize]
    }

    /// The interface on which packets of a direction arrive, or [`BoundInterfaces::NONE`] if every packet of the
    /// direction must pass source validation.
    #[inline(always)]
    pub fn interface(self, direction: Direction) -> u16 {
        self.of(direction) & Self::INTERFACE
    }

    /// Whether packets of a direction refresh the session.
    #[inline(always)]
    pub fn refreshes(self, direction: Direction) -> bool {
        self.of(direction) & Self::REFRESHES != 0
    }
}

const _: () = assert!(BoundInterfaces::INTERFACE.count_ones() == BoundInterfaces::INTERFACE.trailing_ones());

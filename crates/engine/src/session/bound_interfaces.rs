//! The interfaces to which the directions of a session are bound, as stored in its record.

use bytemuck::{Pod, Zeroable};
use sluice_wire::Direction;

use crate::packet::adjacency::AdjacencyIndex;

/// Word that contains, for each direction, two values: the interface on which packets of
/// this direction arrive, and whether they refresh the session (RFC 4787, REQ-6).
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct BoundInterfaces(u32);

impl BoundInterfaces {
    /// Mask of an interface.
    const INTERFACE: u32 = AdjacencyIndex::MAX_INTERFACES as u32;
    /// Flag in the bit above the interface number: packets of the direction refresh the session.
    const REFRESHES: u32 = Self::INTERFACE + 1;
    /// Number of bits for each direction.
    const WIDTH: u32 = 12;
    /// Interface number of a direction that is not bound to an interface.
    pub const NONE: u16 = AdjacencyIndex::MAX_INTERFACES as u16;

    /// Creates the word from, for each direction, the interface and whether packets refresh the session.
    pub fn new(interfaces: [u16; 2], refreshes: [bool; 2]) -> Self {
        let refreshes = refreshes.map(|refreshes| u32::from(refreshes) * Self::REFRESHES);
        let bare = Self(refreshes[0] | refreshes[1] << Self::WIDTH);
        let [forward, reverse] = interfaces;
        bare.with(Direction::Forward, forward).with(Direction::Reverse, reverse)
    }

    /// Replaces the interface of a direction.
    pub fn with(self, direction: Direction, interface: u16) -> Self {
        let shift = direction as u32 * Self::WIDTH;
        let interface = u32::from(interface.min(Self::NONE));
        Self(self.0 & !(Self::INTERFACE << shift) | interface << shift)
    }

    #[inline(always)]
    fn of(self, direction: Direction) -> u32 {
        self.0 >> (direction as u32 * Self::WIDTH)
    }

    /// The interface on which packets of a direction arrive, or [`BoundInterfaces::NONE`] if every packet of the
    /// direction must pass source validation.
    #[inline(always)]
    pub fn interface(self, direction: Direction) -> u16 {
        (self.of(direction) & Self::INTERFACE) as u16
    }

    /// Whether packets of a direction refresh the session.
    #[inline(always)]
    pub fn refreshes(self, direction: Direction) -> bool {
        self.of(direction) & Self::REFRESHES != 0
    }
}

const _: () = assert!(AdjacencyIndex::MAX_INTERFACES == (1 << (BoundInterfaces::WIDTH - 1)) - 1);

//! By which interfaces the packets of a session come in, as its record keeps it.

use bytemuck::{Pod, Zeroable};
use sluice_wire::Direction;

use crate::packet::adjacency::AdjacencyIndex;

/// The protocol of a session, and by direction the interface that its packets come in by and whether they keep it alive
/// (RFC 4787, REQ-6), in a word.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(transparent)]
pub struct BoundInterfaces(u32);

impl BoundInterfaces {
    /// Bits of an interface.
    const INTERFACE: u32 = AdjacencyIndex::MAX_INTERFACES as u32;
    /// Behind them: packets of the direction keep the session alive.
    const REFRESHES: u32 = Self::INTERFACE + 1;
    /// Bits of a direction.
    const WIDTH: u32 = 12;
    /// No interface is the one that packets come in by.
    pub const NONE: u16 = AdjacencyIndex::MAX_INTERFACES as u16;

    /// Of a protocol; by direction the interface and whether its packets keep the session alive.
    pub fn new(protocol: u8, interfaces: [u16; 2], refreshes: [bool; 2]) -> Self {
        let refreshes = refreshes.map(|refreshes| u32::from(refreshes) * Self::REFRESHES);
        let bare = Self(u32::from(protocol) << (2 * Self::WIDTH) | refreshes[0] | refreshes[1] << Self::WIDTH);
        let [forward, reverse] = interfaces;
        bare.with(Direction::Forward, forward).with(Direction::Reverse, reverse)
    }

    /// The same with another interface for a direction.
    pub fn with(self, direction: Direction, interface: u16) -> Self {
        let shift = direction as u32 * Self::WIDTH;
        let interface = u32::from(interface.min(Self::NONE));
        Self(self.0 & !(Self::INTERFACE << shift) | interface << shift)
    }

    #[inline(always)]
    fn of(self, direction: Direction) -> u32 {
        self.0 >> (direction as u32 * Self::WIDTH)
    }

    /// The interface that packets of a direction come in by; [`BoundInterfaces::NONE`] where that has to be asked each time.
    #[inline(always)]
    pub fn interface(self, direction: Direction) -> u16 {
        (self.of(direction) & Self::INTERFACE) as u16
    }

    /// Whether packets of a direction keep the session alive.
    #[inline(always)]
    pub fn refreshes(self, direction: Direction) -> bool {
        self.of(direction) & Self::REFRESHES != 0
    }

    /// IP protocol.
    #[inline(always)]
    pub fn protocol(self) -> u8 {
        (self.0 >> (2 * Self::WIDTH)) as u8
    }
}

const _: () = assert!(AdjacencyIndex::MAX_INTERFACES == (1 << (BoundInterfaces::WIDTH - 1)) - 1);

//! The session record and its memory layout.
//!
//! A record has two cache lines for IPv4 and three for IPv6. The first holds the keys of both directions, which are also the
//! translated tuples, and all decisions; the slow path writes it. The last holds the state that packets change.

use bytemuck::{Pod, Zeroable};
use sluice_nat::{Decision, Tracking};
use sluice_table::flow::{Links, Record};
use sluice_wire::{Direction, FlowKey4, FlowKey6, Tuple4, Tuple6};

use crate::packet::adjacency::AdjacencyIndex;
use crate::session::bound_interfaces::BoundInterfaces;

/// The state that packets change.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Track {
    /// Packets by direction.
    pub packets: [u64; 2],
    /// Bytes of L3 datagrams by direction.
    pub bytes: [u64; 2],
    /// Connection state.
    pub tracking: Tracking,
    /// Tick of the last packet that refreshed the session.
    pub last_seen: u32,
    /// Links of the timer wheel.
    pub links: Links,
}

/// The decisions of the slow path, equal for both families: 32 bytes behind the two tuples of the first line.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Verdict {
    /// How packets are translated.
    pub nat: Decision,
    /// Adjacency indexes by direction.
    pub adjacencies: [u32; 2],
    /// Generation of the snapshot that the session was decided by.
    pub generation: u32,
    /// Encoded [`Application`](crate::features::applications::Application); unused by ICMP.
    pub(crate) application: u32,
    /// Encoded state of inspection.
    pub inspect: u32,
    /// Protocol, and the interfaces that packets arrive on.
    pub bound: BoundInterfaces,
}

impl Verdict {
    /// The adjacency of a direction.
    #[inline(always)]
    pub fn adjacency(&self, direction: Direction) -> AdjacencyIndex {
        AdjacencyIndex(self.adjacencies[direction as usize])
    }
}

/// An IPv4 session: 128 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Session4 {
    /// Key of the packets in the direction of the first one.
    pub forward: Tuple4,
    /// Key of the packets in the reverse direction.
    pub reverse: Tuple4,
    /// The decisions of the slow path.
    pub verdict: Verdict,
    /// The state that packets change.
    pub track: Track,
}

/// An IPv6 session: 192 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Session6 {
    /// Key of the packets in the direction of the first one.
    pub forward: Tuple6,
    /// Key of the packets in the reverse direction.
    pub reverse: Tuple6,
    /// The decisions of the slow path.
    pub verdict: Verdict,
    spare: [u8; 16],
    /// The state that packets change.
    pub track: Track,
}

impl Default for Session4 {
    fn default() -> Self {
        Self::zeroed()
    }
}

impl Default for Session6 {
    fn default() -> Self {
        Self::zeroed()
    }
}

impl Record for Session4 {
    type Key = FlowKey4;

    #[inline(always)]
    fn key(&self, direction: Direction) -> FlowKey4 {
        let tuple = match direction {
            Direction::Forward => self.forward,
            Direction::Reverse => self.reverse,
        };
        let protocol = self.verdict.bound.protocol();
        FlowKey4 { tuple, protocol }
    }

    #[inline(always)]
    fn matches(&self, key: &FlowKey4, direction: Direction) -> bool {
        let tuple = match direction {
            Direction::Forward => &self.forward,
            Direction::Reverse => &self.reverse,
        };
        *tuple == key.tuple && self.verdict.bound.protocol() == key.protocol
    }

    #[inline(always)]
    fn links(&self) -> &Links {
        &self.track.links
    }

    #[inline(always)]
    fn links_mut(&mut self) -> &mut Links {
        &mut self.track.links
    }
}

impl Record for Session6 {
    type Key = FlowKey6;

    #[inline(always)]
    fn key(&self, direction: Direction) -> FlowKey6 {
        let tuple = match direction {
            Direction::Forward => self.forward,
            Direction::Reverse => self.reverse,
        };
        let protocol = self.verdict.bound.protocol();
        FlowKey6 { tuple, protocol }
    }

    #[inline(always)]
    fn matches(&self, key: &FlowKey6, direction: Direction) -> bool {
        let tuple = match direction {
            Direction::Forward => &self.forward,
            Direction::Reverse => &self.reverse,
        };
        *tuple == key.tuple && self.verdict.bound.protocol() == key.protocol
    }

    #[inline(always)]
    fn links(&self) -> &Links {
        &self.track.links
    }

    #[inline(always)]
    fn links_mut(&mut self) -> &mut Links {
        &mut self.track.links
    }
}

const _: () = assert!(size_of::<Session4>() == 128 && size_of::<Session6>() == 192);

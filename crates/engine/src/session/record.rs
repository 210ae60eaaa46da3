//! The session record and its memory layout.
//!
//! A record has two cache lines for IPv4 and three for IPv6. The slow path writes the first line, which contains the
//! keys of both directions and all decisions. The key of one direction also serves as the translated tuple of the other
//! direction. The last line contains the state that packets update.

use bytemuck::{Pod, Zeroable};
use sluice_nat::{Decision, Tracking};
use sluice_table::flow::{Links, Record};
use sluice_wire::{Direction, FlowKey4, FlowKey6, Tuple4, Tuple6};

use crate::packet::adjacency::AdjacencyIndex;
use crate::session::bound_interfaces::BoundInterfaces;

/// The state that is updated by packets.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Track {
    /// Number of packets in each direction.
    pub packets: [u64; 2],
    /// Number of bytes of L3 datagrams in each direction.
    pub bytes: [u64; 2],
    /// Connection state.
    pub tracking: Tracking,
    /// Tick of the last packet that refreshed the session.
    pub last_seen: u32,
    /// Links of the timer wheel.
    pub links: Links,
}

/// The decisions that the slow path has made. Both families have one layout: 32 bytes after the tuples.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Verdict {
    /// Translation of the session's packets.
    pub nat: Decision,
    /// Adjacency indexes by direction.
    pub adjacencies: [u32; 2],
    /// Generation of the snapshot from which the decision for this session was made.
    pub generation: u32,
    /// Encoded [`Application`](crate::session::application::Application); unused by ICMP.
    pub(crate) application: u32,
    /// Encoded state of the session's inspection.
    pub inspect: u32,
    /// Protocol of the session, and interfaces on which its packets arrive.
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
    /// Key of packets in the direction of the first packet.
    pub forward: Tuple4,
    /// Key of the packets in the reverse direction.
    pub reverse: Tuple4,
    /// The decisions that the slow path has made.
    pub verdict: Verdict,
    /// The state that is updated by packets.
    pub track: Track,
}

/// An IPv6 session: 192 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Session6 {
    /// Key of packets in the direction of the first packet.
    pub forward: Tuple6,
    /// Key of the packets in the reverse direction.
    pub reverse: Tuple6,
    /// The decisions that the slow path has made.
    pub verdict: Verdict,
    spare: [u8; 16],
    /// The state that is updated by packets.
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

//! The session record and its memory layout.
//!
//! A record has two cache lines for IPv4 and three for IPv6. The slow path writes the first line, which contains the
//! keys of both directions and all decisions. The key of one direction also serves as the translated tuple of the other
//! direction. The last line contains the state that packets update.

use bytemuck::{Pod, Zeroable};
use sluice_nat::{Decision, Tracking};
use sluice_table::flow::{Links, Record};
use sluice_wire::key::{KeyWords4, KeyWords6};
use sluice_wire::{Direction, FlowKey4, FlowKey6};

use crate::packet::adjacency::AdjacencyIndex;
use crate::session::arrival::Arrival;

/// The state that is updated by packets.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(C)]
pub struct Track {
    /// Number of bytes of L3 datagrams in each direction.
    bytes: [u64; 2],
    /// Low 32 bits of the number of packets in each direction.
    packets: [u32; 2],
    /// High bits of the number of packets in each direction.
    packets_high: [u16; 2],
    /// Encoded state of the session's inspection.
    pub(super) inspect: u32,
    /// Connection state.
    pub tracking: Tracking,
    /// Tick of the last packet that refreshed the session.
    pub last_seen: u32,
    /// Links of the timer wheel.
    pub links: Links,
}

impl Track {
    /// Number of packets in each direction.
    pub fn packets(&self) -> [u64; 2] {
        [0, 1].map(|direction| u64::from(self.packets_high[direction]) << 32 | u64::from(self.packets[direction]))
    }

    /// Number of bytes of L3 datagrams in each direction.
    pub fn bytes(&self) -> [u64; 2] {
        self.bytes
    }

    /// Counts a packet with a datagram of this length.
    #[inline(always)]
    pub fn count(&mut self, direction: Direction, length: u16) {
        let (packets, carry) = self.packets[direction as usize].overflowing_add(1);
        self.packets[direction as usize] = packets;
        if carry {
            self.packets_high[direction as usize] += 1;
        }
        self.bytes[direction as usize] += u64::from(length);
    }
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
    /// What the arrival of packets is compared with, by direction.
    pub arrivals: [Arrival; 2],
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
    /// Keys of packets by direction, without the high bits of their contexts.
    pub keys: [KeyWords4; 2],
    /// The decisions that the slow path has made.
    pub verdict: Verdict,
    /// The state that is updated by packets.
    pub track: Track,
}

/// An IPv6 session: 192 bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Session6 {
    /// Keys of packets by direction, without the high bits of their contexts.
    pub keys: [KeyWords6; 2],
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

impl Session4 {
    /// Whether the key of a direction has these words.
    #[inline(always)]
    pub fn has_words(&self, direction: Direction, words: &KeyWords4) -> bool {
        self.keys[direction as usize].is(words)
    }
}

impl Session6 {
    /// Whether the key of a direction has these words.
    #[inline(always)]
    pub fn has_words(&self, direction: Direction, words: &KeyWords6) -> bool {
        self.keys[direction as usize].is(words)
    }
}

impl Record for Session4 {
    type Key = FlowKey4;

    #[inline(always)]
    fn key(&self, direction: Direction) -> FlowKey4 {
        FlowKey4 {
            words: self.keys[direction as usize],
            high: self.verdict.arrivals[direction as usize].high(),
        }
    }

    #[inline(always)]
    fn matches(&self, key: &FlowKey4, direction: Direction) -> bool {
        self.key(direction) == *key
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
        FlowKey6 {
            words: self.keys[direction as usize],
            high: self.verdict.arrivals[direction as usize].high(),
        }
    }

    #[inline(always)]
    fn matches(&self, key: &FlowKey6, direction: Direction) -> bool {
        self.key(direction) == *key
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

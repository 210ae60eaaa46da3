//! The batch: what nodes see of the hand.

use arrayvec::ArrayVec;
use sluice_wire::layers::Layers;

use crate::packet::io::{BURST_BUFFERS, BufferIndex, Packets};

/// A list of slots.
pub type BufferIndices = ArrayVec<BufferIndex, BURST_BUFFERS>;

/// Where a packet comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Origin {
    /// Received.
    #[default]
    Received,
    /// Made by the gateway itself: not counted down, not validated, not translated.
    Own,
    /// Received from inside and addressed to the outside address of an inside host: it goes on as if it came from
    /// outside (RFC 4787, REQ-9).
    Hairpinned,
    /// Received, and a chain of its router has led it past the sessions.
    Routed,
}

impl Origin {
    pub(super) fn pack(self) -> u64 {
        self as u64
    }
    pub(super) fn unpack(word: u64) -> Self {
        match word & 3 {
            1 => Self::Own,
            2 => Self::Hairpinned,
            3 => Self::Routed,
            _ => Self::Received,
        }
    }
}

/// What later nodes need to know of a packet: found out once, by `parse`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub struct Meta {
    /// Where the headers are.
    pub layers: Layers,
    /// Interface that the packet came in by.
    pub interface: u16,
    /// Shard that its session belongs to.
    pub shard: u16,
    /// Interface that it goes out by, once it is finished.
    pub egress: u16,
    /// Where it comes from.
    pub origin: Origin,
    /// Virtual links that it has crossed, tunnels that it has gone into and come out of.
    pub crossed: u8,
    /// Identification of the fragments of its datagram when they leave; 0 where it is none.
    pub identification: u16,
}

const _: () = assert!(size_of::<Meta>() == 32);

impl Meta {
    /// Whether the gateway itself made it.
    #[inline(always)]
    pub fn is_from_gateway(&self) -> bool {
        self.origin == Origin::Own
    }
}

/// Put on a list. A list has room for the whole hand and a slot is on one list once, so it never overflows;
/// what a bug would put too much is found as forgotten at the end of the burst.
#[inline(always)]
pub fn put<T, const N: usize>(list: &mut ArrayVec<T, N>, item: T) {
    let _ = list.try_push(item);
}

/// The hand with what is known of it.
pub struct Batch<'b, 'p> {
    /// The packets, by slot.
    pub packets: &'b mut Packets<'p>,
    /// What is known of them, by slot.
    pub meta: &'b mut [Meta; BURST_BUFFERS],
}

impl<'b, 'p> Batch<'b, 'p> {
    /// What is known of a slot.
    #[inline(always)]
    pub fn meta(&self, slot: BufferIndex) -> &Meta {
        &self.meta[slot as usize % BURST_BUFFERS]
    }
}

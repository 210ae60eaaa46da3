//! The batch: the packets and metadata that nodes see.

use arrayvec::ArrayVec;
use sluice_wire::layers::Layers;

use crate::packet::io::{BURST_BUFFERS, BufferIndex, Packets};

/// A list of buffer indexes.
pub type BufferIndices = ArrayVec<BufferIndex, BURST_BUFFERS>;

/// Origin of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Origin {
    /// Received.
    #[default]
    Received,
    /// Made by the gateway itself: its TTL is not decremented, and it is neither validated nor translated.
    Own,
    /// Received from inside and addressed to the outside address of an inside host: it is processed as if it had been received
    /// from outside (RFC 4787, REQ-9).
    Hairpinned,
    /// Received, and a chain of its router forwards it without a session.
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

/// Metadata of a packet, which `parse` determines once for all later nodes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub struct Meta {
    /// Offsets and fields of the headers.
    pub layers: Layers,
    /// Interface that the packet was received on.
    pub interface: u16,
    /// Shard that its session belongs to.
    pub shard: u16,
    /// Egress interface of a finished packet.
    pub egress: u16,
    /// Origin of the packet.
    pub origin: Origin,
    /// Number of inter-router links crossed, encapsulations and decapsulations.
    pub crossed: u8,
    /// IP ID with which the fragments of its datagram leave; 0 if it is not a fragment.
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

/// Push to a list. A list has room for all burst buffers, and a slot is on one list at a time, so it never overflows. If a bug
/// overflows it, the buffer is detected as forgotten at the end of the burst.
#[inline(always)]
pub fn put<T, const N: usize>(list: &mut ArrayVec<T, N>, item: T) {
    let _ = list.try_push(item);
}

/// The burst buffers with their metadata.
pub struct Batch<'b, 'p> {
    /// The packets, by slot.
    pub packets: &'b mut Packets<'p>,
    /// The metadata, by slot.
    pub meta: &'b mut [Meta; BURST_BUFFERS],
}

impl<'b, 'p> Batch<'b, 'p> {
    /// The metadata of a slot.
    #[inline(always)]
    pub fn meta(&self, slot: BufferIndex) -> &Meta {
        &self.meta[slot as usize % BURST_BUFFERS]
    }
}

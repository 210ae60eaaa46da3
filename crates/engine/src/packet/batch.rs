//! The batch: the packets and metadata that nodes process.

use arrayvec::ArrayVec;
use sluice_wire::layers::Layers;

use crate::packet::io::{BURST_BUFFERS, BufferIndex, Packets};

/// A list of buffer indexes.
pub type BufferIndices = ArrayVec<BufferIndex, BURST_BUFFERS>;

/// Origin of a packet in the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Origin {
    /// The packet was received.
    #[default]
    Received,
    /// The gateway itself made the packet. The packet is neither validated nor translated, and its TTL is not
    /// decremented.
    Gateway,
    /// The packet was received from inside and is addressed to the outside address of an inside host. The packet is
    /// processed like a packet from outside (RFC 4787, REQ-9).
    Hairpinned,
    /// The packet was received, and a chain of its router forwards it without a session.
    Routed,
}

impl Origin {
    pub(super) fn pack(self) -> u64 {
        self as u64
    }
    pub(super) fn unpack(word: u64) -> Self {
        match word & 3 {
            1 => Self::Gateway,
            2 => Self::Hairpinned,
            3 => Self::Routed,
            _ => Self::Received,
        }
    }
}

/// Metadata of a packet. `parse` determines the metadata once for all later nodes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub struct Meta {
    /// Offsets and fields of the headers.
    pub layers: Layers,
    /// Interface on which the packet was received.
    pub interface: u16,
    /// Shard to which the packet's session belongs.
    pub shard: u16,
    /// Egress interface of a finished packet.
    pub egress: u16,
    /// Origin of the packet.
    pub origin: Origin,
    /// Number of inter-router links, encapsulations and decapsulations that the packet has passed.
    pub link_passes: u8,
    /// IP ID that the fragments of the datagram get; 0 if the packet is not a fragment.
    pub identification: u16,
}

const _: () = assert!(size_of::<Meta>() == 32);

impl Meta {
    /// Whether the gateway itself made the packet.
    #[inline(always)]
    pub fn is_from_gateway(&self) -> bool {
        self.origin == Origin::Gateway
    }
}

/// Appends an item to a list. A list has space for all burst buffers, and a slot is on only one list at a time, so a
/// list can't overflow. If a bug causes an overflow, [`PacketIo::end`](crate::packet::io::PacketIo::end) reports a
/// buffer that was not disposed of.
#[inline(always)]
pub fn put<T, const N: usize>(list: &mut ArrayVec<T, N>, item: T) {
    let _ = list.try_push(item);
}

/// The burst buffers and their metadata.
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

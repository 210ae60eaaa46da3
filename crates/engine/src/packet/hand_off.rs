//! Metadata that accompanies a packet from one worker to another.

use sluice_route::Address;

use crate::packet::batch::{Meta, Origin};
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::{NoteWords, PortIndex};
use crate::packet::reason::Reason;
use crate::packet::task::UnresolvedNeighbour;

/// Node at which the receiving worker continues the processing of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryPoint {
    /// Session lookup. The receiving worker owns the session's shard. For a fragment, the note contains the ports of
    /// its datagram.
    Session,
    /// Virtual reassembly. The receiving worker collects the fragments of the datagram.
    Fragment,
    /// Neighbour resolution. The receiving worker resolves neighbours.
    Wait(UnresolvedNeighbour),
    /// Local delivery, including neighbour discovery. The receiving worker handles packets to the gateway's own
    /// addresses.
    Gateway,
    /// ICMP error. The receiving worker makes ICMP errors.
    SendIcmpError(IcmpError, Reason),
    /// Transmission. The packet is finished, and the receiving worker has a queue of the port.
    Finished(u16),
    /// Parse. The packet is unchanged since it was received on the port.
    Received(PortIndex),
    /// Forward. The packet is routed without a session.
    Forward,
}

/// The note: metadata that accompanies a packet to another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandOffNote {
    /// Node at which the receiving worker continues.
    pub stage: EntryPoint,
    /// Interface on which the packet was received.
    pub interface: u16,
    /// Origin of the packet.
    pub origin: Origin,
    /// Ports of the datagram if the packet is a fragment.
    pub ports: (u16, u16),
    /// IP ID for the fragments of the packet's datagram.
    pub identification: u16,
    /// Number of inter-router links, encapsulations and decapsulations that the packet has passed.
    pub link_passes: u8,
}

impl HandOffNote {
    /// Creates the note of a packet for an entry point.
    pub fn new(stage: EntryPoint, meta: &Meta) -> Self {
        let ports = (meta.layers.source_port, meta.layers.destination_port);
        Self {
            stage,
            interface: meta.interface,
            origin: meta.origin,
            ports,
            identification: meta.identification,
            link_passes: meta.link_passes,
        }
    }

    /// Encodes the note as words.
    pub fn pack(self) -> NoteWords {
        let (stage, more, address) = match self.stage {
            EntryPoint::Session => (0, 0, 0),
            EntryPoint::Fragment => (1, 0, 0),
            EntryPoint::Wait(wanted) => {
                let v6 = u64::from(matches!(wanted.address, Address::V6(_)));
                (2, u64::from(wanted.interface) | v6 << 16, wanted.address.number())
            }
            EntryPoint::Gateway => (3, 0, 0),
            EntryPoint::SendIcmpError(icmp_error, reason) => (4, icmp_error.pack() | (reason.number() as u64) << 32, 0),
            EntryPoint::Finished(interface) => (5, u64::from(interface), 0),
            EntryPoint::Received(port) => (6, u64::from(port), 0),
            EntryPoint::Forward => (7, 0, 0),
        };
        let from = u64::from(self.interface) << 8 | self.origin.pack() << 24 | u64::from(self.link_passes & 7) << 26;
        let ports = u64::from(self.ports.0) << 16 | u64::from(self.ports.1);
        [
            stage | from | ports << 32,
            u64::from(self.identification) << 48 | more,
            (address >> 64) as u64,
            address as u64,
        ]
    }

    /// Decodes a note; `None` if the words don't encode a note.
    pub fn unpack(words: &NoteWords) -> Option<Self> {
        let [first, second, high, low] = *words;
        let more = second & 0xffff_ffff_ffff;
        let stage = match first as u8 {
            0 => EntryPoint::Session,
            1 => EntryPoint::Fragment,
            2 => {
                let address = match more >> 16 & 1 {
                    0 => Address::V4(low as u32),
                    _ => Address::V6(u128::from(high) << 64 | u128::from(low)),
                };
                EntryPoint::Wait(UnresolvedNeighbour {
                    interface: more as u16,
                    address,
                })
            }
            3 => EntryPoint::Gateway,
            4 => EntryPoint::SendIcmpError(
                IcmpError::unpack(more & 0xffff_ffff),
                Reason::numbered((more >> 32) as usize)?,
            ),
            5 => EntryPoint::Finished(more as u16),
            6 => EntryPoint::Received(more as PortIndex),
            7 => EntryPoint::Forward,
            _ => return None,
        };
        Some(Self {
            stage,
            interface: (first >> 8) as u16,
            origin: Origin::unpack(first >> 24),
            link_passes: (first >> 26) as u8 & 7,
            ports: ((first >> 48) as u16, (first >> 32) as u16),
            identification: (second >> 48) as u16,
        })
    }
}

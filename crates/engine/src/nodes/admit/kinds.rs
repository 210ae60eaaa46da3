//! Classification of the frames of a burst by their VLAN tags and routers.

use arrayvec::ArrayVec;
use sluice_wire::Packet;
use sluice_wire::vlan::{Tag, is_tag};

use crate::features::context::NodeContext;
use crate::packet::batch::put;
use crate::packet::io::{BURST_BUFFERS, BURST_SIZE, PortIndex};
use crate::packet::reason::EngineReason;
use crate::snapshot::Snapshot;
use crate::snapshot::shares::{RouterEntry, Shares};

/// Value for frames that belong to no interface, or to a router without a share. The value is used both as index of a
/// kind and as index of a part.
pub(super) const NO_SHARE: u8 = BURST_BUFFERS as u8 - 1;

/// Number of leading bytes of a frame that contain the MAC addresses, two VLAN tags and the EtherType.
const HEAD: usize = 20;

/// The packets of one router in a burst.
pub(super) struct Part {
    pub(super) number: u16,
    pub(super) entry: RouterEntry,
    pub(super) packets: u64,
    /// Number of packets and bits that the rate still permits, if the router has a rate limit.
    pub(super) remaining: Option<[u64; 2]>,
    pub(super) used: [u64; 2],
}

impl Part {
    /// Whether the rate limit admits a packet of this many bits. An admitted packet is counted.
    #[inline(always)]
    pub(super) fn takes(&mut self, bits: u64) -> bool {
        let Some([packets, all]) = self.remaining else {
            return true;
        };
        let fits = self.used[0] < packets && self.used[1] + bits <= all;
        if fits {
            self.used[0] += 1;
            self.used[1] += bits;
        }
        fits
    }
}

/// Index of the [`Part`] of an interface's router. Interfaces of bridges have no part.
pub(super) fn part_of(parts: &mut ArrayVec<Part, BURST_SIZE>, shares: &Shares, interface: u16, now: u64) -> u8 {
    let Some((number, entry)) = shares.entry_of(interface) else {
        return NO_SHARE;
    };
    let known = parts.iter().position(|part| part.number == number);
    let place = known.unwrap_or_else(|| {
        put(
            parts,
            Part {
                number,
                entry,
                packets: 0,
                remaining: shares.remaining(entry.router, now),
                used: [0; 2],
            },
        );
        parts.len() - 1
    });
    place as u8
}

/// Frames of a burst. Frames with equal VLAN tags form a kind, so that few cycles are needed to refuse a frame. The
/// arrays are indexed by kind, including [`NO_SHARE`].
pub(super) struct Kinds {
    /// Cache that maps tags to kinds.
    known: [(u64, u8); 16],
    pub(super) count: u8,
    interface: [u16; BURST_BUFFERS],
    pub(super) part: [u8; BURST_BUFFERS],
    pub(super) packets: [u16; BURST_BUFFERS],
    /// Number of frames refused by the rate limit, and number of frames refused by the fair share.
    pub(super) refused: [[u16; BURST_BUFFERS]; 2],
    /// Number of bytes of all refused frames.
    pub(super) bytes: [u32; BURST_BUFFERS],
}

impl Kinds {
    pub(super) fn new() -> Self {
        Self {
            known: [(u64::MAX, NO_SHARE); 16],
            count: 0,
            interface: [0; BURST_BUFFERS],
            part: [NO_SHARE; BURST_BUFFERS],
            packets: [0; BURST_BUFFERS],
            refused: [[0; BURST_BUFFERS]; 2],
            bytes: [0; BURST_BUFFERS],
        }
    }

    /// Counts a frame with these tags and returns its kind. For tags that are not in the cache, `find` returns the interface and
    /// the part.
    #[inline(always)]
    pub(super) fn see(&mut self, tags: u64, find: impl FnOnce() -> Option<(u16, u8)>) -> u8 {
        let place = (tags ^ tags >> 32) as usize % self.known.len();
        if self.known[place].0 != tags {
            let found = find().filter(|_| self.count < NO_SHARE);
            let kind = found.map_or(NO_SHARE, |(interface, part)| {
                let kind = self.count;
                self.count += 1;
                (self.interface[usize::from(kind)], self.part[usize::from(kind)]) = (interface, part);
                kind
            });
            self.known[place] = (tags, kind);
        }
        let kind = self.known[place].1;
        self.packets[usize::from(kind) % BURST_BUFFERS] += 1;
        kind
    }

    /// Refuses the packets of a router beyond the number that the router may send. Returns the slots of the refused
    /// packets as a bit mask.
    #[inline(always)]
    pub(super) fn refuse(&mut self, kinds: &[u8], packets: &[Packet<'_>], allowance: &mut [u16; BURST_BUFFERS]) -> u64 {
        let mut bits = 0;
        for (place, (kind, packet)) in kinds.iter().zip(packets).enumerate() {
            let kind = usize::from(*kind) % BURST_BUFFERS;
            let allowance = &mut allowance[usize::from(self.part[kind]) % BURST_BUFFERS];
            let is_refused = *allowance == 0;
            *allowance -= u16::from(!is_refused);
            self.refused[1][kind] += u16::from(is_refused);
            self.bytes[kind] += if is_refused { packet.len() as u32 } else { 0 };
            bits |= u64::from(is_refused) << place;
        }
        bits
    }

    /// Counts refused packets as received and dropped. If a trace or a capture runs, the graph counts the drops
    /// instead.
    pub(super) fn count(&self, ctx: &NodeContext<'_, '_>, reason: EngineReason, is_observed: bool) {
        for kind in 0..usize::from(self.count) {
            let refused = [0, 1].map(|by: usize| u64::from(self.refused[by][kind]));
            let Some(counters) = ctx.counters.interfaces.get(usize::from(self.interface[kind])) else {
                continue;
            };
            counters.received.add(refused[0] + refused[1]);
            counters.received_bytes.add(self.bytes[kind].into());
            if !is_observed {
                counters.drop_many(EngineReason::RateLimited.into(), refused[0]);
                counters.drop_many(reason.into(), refused[1]);
            }
        }
    }
}

/// TPIDs and VLAN identifiers of a frame's two outermost tags; 0 if the frame has no tags.
#[inline(always)]
pub(super) fn tags_of(head: &[u8; HEAD]) -> u64 {
    let [.., a, b, c, d, e, f, g, h] = *head;
    let word = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    let mask = match (is_tag((word >> 48) as u16), is_tag((word >> 16) as u16)) {
        (true, true) => 0xffff_0fff_ffff_0fff,
        (true, false) => 0xffff_0fff_0000_0000,
        (false, _) => 0,
    };
    word & mask
}

/// The interface that receives a frame, determined only by the frame's tags. `parse` makes all other checks.
#[inline(never)]
pub(super) fn interface_of(snapshot: &Snapshot, port: PortIndex, untagged: Option<u16>, tags: u64) -> Option<u16> {
    let tag = |bits: u64| Tag {
        protocol: (bits >> 16) as u16,
        control: bits as u16,
    };
    match (tags >> 32, tags & u64::from(u32::MAX)) {
        (0, _) => untagged,
        (outer, 0) => snapshot.tagged(port, &[Some(tag(outer)), None]),
        (outer, inner) => snapshot.tagged(port, &[Some(tag(outer)), Some(tag(inner))]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_protocols_and_identifiers_of_the_two_outermost() {
        let head = |end: [u8; 8]| {
            let mut head = [7; HEAD];
            head[12..].copy_from_slice(&end);
            tags_of(&head)
        };
        assert_eq!(0, head([8, 0, 0x45, 0, 0, 46, 0x81, 0]));
        assert_eq!(0x8100_000a_0000_0000, head([0x81, 0, 0xe0, 10, 8, 0, 0x45, 0]));
        assert_eq!(0x88a8_0005_8100_000a, head([0x88, 0xa8, 0, 5, 0x81, 0, 0x20, 10]));
    }
}

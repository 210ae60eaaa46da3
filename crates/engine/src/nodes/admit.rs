//! admit: enforces the rate limits of routers on received packets and, while the worker is overloaded, the fair division among routers. The node runs
//! before any other work is done for the packets. The port and the VLAN tags determine the router of a packet.

use std::ops::Range;

use arrayvec::ArrayVec;
use sluice_wire::Packet;
use sluice_wire::vlan::{Tag, is_tag};

use crate::features::context::NodeContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::io::{BURST_BUFFERS, BURST_SIZE, BufferIndex, PortIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::Own;
use crate::snapshot::Snapshot;
use crate::snapshot::shares::deficit::Demand;
use crate::snapshot::shares::{RouterEntry, Shares, SideState};

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "admit",
    help: "limits routers to their share of a receive queue",
    stage: None,
    leaves: &[Leave::Drop],
    exits: &[Exit::new("parse", "within its share", needs::SHARED)],
};

/// Maximum number of packets that a router may save from unused parts of its share.
const SAVED: u64 = 2 * BURST_SIZE as u64;

/// Index for frames that belong to no interface, or to a router without a share. Used as kind and as part.
const NOBODY: u8 = BURST_BUFFERS as u8 - 1;

/// Number of leading bytes of a frame that contain the MAC addresses, two VLAN tags and the EtherType.
const HEAD: usize = 20;

/// The packets of one router in a burst.
struct Part {
    number: u16,
    entry: RouterEntry,
    packets: u64,
    /// Number of packets and bits that the rate still permits, if the router has a rate limit.
    left: Option<[u64; 2]>,
    had: [u64; 2],
}

/// Frames of a burst, grouped by their VLAN tags into kinds, so that refusing a frame costs few cycles. The arrays are
/// indexed by kind, including [`NOBODY`].
struct Kinds {
    /// Cache that maps tags to kinds.
    known: [(u64, u8); 16],
    count: u8,
    interface: [u16; BURST_BUFFERS],
    part: [u8; BURST_BUFFERS],
    packets: [u16; BURST_BUFFERS],
    /// Number of frames refused by the rate limit, and number of frames refused by the fair share.
    refused: [[u16; BURST_BUFFERS]; 2],
    /// Number of bytes of all refused frames.
    bytes: [u32; BURST_BUFFERS],
}

/// Admits at most a given number of the packets received on `port`. Returns the slots of the refused packets as a bit
/// mask. While a trace or a capture runs, the graph drops refused packets like other packets; otherwise only their
/// buffers are freed.
#[inline(never)]
pub fn admit(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
    shares: &Shares,
    side: &mut SideState,
    (port, slots, most): (PortIndex, Range<usize>, usize),
    is_watched: bool,
) -> u128 {
    let Some(of) = shares.port(port) else { return 0 };
    let Some(gate) = side.gates.get_mut(usize::from(port)) else {
        return 0;
    };
    let slots = slots.start..slots.end.min(batch.packets.len()).min(BURST_BUFFERS);
    let budget = if of.shared {
        gate.observe(slots.len()).min(most)
    } else {
        BURST_BUFFERS
    };
    if !of.limited && slots.len() <= budget {
        return 0;
    }
    let mut kind_of = [NOBODY; BURST_BUFFERS];
    let mut kinds = Kinds::new();
    let mut parts = ArrayVec::<Part, BURST_SIZE>::new();
    let untagged = ctx.snapshot.untagged.get(usize::from(port)).copied().flatten();
    for (packet, kind) in batch.packets[slots.clone()].iter().zip(&mut kind_of[slots.clone()]) {
        let Some(head) = packet.bytes().first_chunk() else {
            continue;
        };
        let tags = tags_of(head);
        *kind = kinds.see(tags, || {
            let interface = interface_of(ctx.snapshot, port, untagged, tags)?;
            Some((interface, part_of(&mut parts, shares, interface, ctx.now.nanoseconds)))
        });
    }
    for kind in 0..usize::from(kinds.count) {
        if let Some(part) = parts.get_mut(usize::from(kinds.part[kind])) {
            part.packets += u64::from(kinds.packets[kind]);
        }
    }
    let mut limited = 0u128;
    if of.limited {
        for slot in slots.clone() {
            let kind = usize::from(kind_of[slot]);
            let Some(part) = parts.get_mut(usize::from(kinds.part[kind])) else {
                continue;
            };
            let bytes = batch.packets[slot].len();
            if !part.takes(bytes as u64 * 8) {
                part.packets -= 1;
                kinds.refused[0][kind] += 1;
                kinds.bytes[kind] += bytes as u32;
                limited |= 1 << slot;
                // The share does not apply to packets that the rate limit has already refused.
                kind_of[slot] = NOBODY;
            }
        }
        for part in parts.iter().filter(|part| part.left.is_some()) {
            shares.charge(part.entry.router, part.had, ctx.now.nanoseconds);
        }
    }
    // A router that is alone on its port can't take capacity from other routers, so the NIC drops the packets for which its queue has no space.
    let routers = parts.iter().map(|part| part.entry.router);
    let (budget, reason) = match of.shared && gate.senders.observe(routers, ctx.now.nanoseconds) {
        true => (most, Own::Shed),
        false => (budget, Own::OverShare),
    };
    let mut refused = limited;
    if parts.iter().map(|part| part.packets).sum::<u64>() > budget as u64 {
        let claim = |part: &Part| Demand {
            number: part.number,
            weight: part.entry.weight,
            wants: part.packets,
        };
        let claims: ArrayVec<Demand, BURST_SIZE> = parts.iter().map(claim).collect();
        side.credits.distribute(&claims, budget as u64, &mut gate.dealt, SAVED);
        let mut granted = [u16::MAX; BURST_BUFFERS];
        for (granted, part) in granted.iter_mut().zip(&parts) {
            *granted = side.credits.take_up_to(part.number, part.packets, &mut gate.dealt) as u16;
        }
        for first in slots.clone().step_by(BURST_SIZE) {
            let those = first..slots.end.min(first + BURST_SIZE);
            let bits = kinds.refuse(&kind_of[those.clone()], &batch.packets[those], &mut granted);
            refused |= u128::from(bits) << first;
        }
    }
    if refused != 0 {
        kinds.count(ctx, reason, is_watched);
        if is_watched {
            watched(batch, lists, (refused, limited), reason, |frame| {
                let tags = frame.first_chunk().map_or(0, tags_of);
                interface_of(ctx.snapshot, port, untagged, tags)
            });
        } else {
            free(lists, refused);
        }
    }
    refused
}

/// Drops refused packets through the graph, because a trace or a capture runs.
#[cold]
fn watched(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    (refused, limited): (u128, u128),
    reason: Own,
    interface_of: impl Fn(&[u8]) -> Option<u16>,
) {
    for slot in (0..batch.packets.len()).filter(|slot| refused >> slot & 1 != 0) {
        batch.meta[slot] = Meta {
            interface: interface_of(batch.packets[slot].bytes()).unwrap_or(0),
            ..Meta::default()
        };
        let was_limited = limited >> slot & 1 != 0;
        lists.drop_packet(slot as BufferIndex, if was_limited { Own::RateLimited } else { reason });
    }
}

/// Frees the buffers of these slots.
#[inline(always)]
fn free(lists: &mut Lists, slots: u128) {
    for (half, first) in [(slots as u64, 0), ((slots >> 64) as u64, 64)] {
        let mut left = half;
        while left != 0 {
            put(&mut lists.used, (first + left.trailing_zeros()) as BufferIndex);
            left &= left - 1;
        }
    }
}

impl Kinds {
    fn new() -> Self {
        Self {
            known: [(u64::MAX, NOBODY); 16],
            count: 0,
            interface: [0; BURST_BUFFERS],
            part: [NOBODY; BURST_BUFFERS],
            packets: [0; BURST_BUFFERS],
            refused: [[0; BURST_BUFFERS]; 2],
            bytes: [0; BURST_BUFFERS],
        }
    }

    /// Counts a frame with these tags and returns its kind. For tags that are not in the cache, `find` returns the interface and
    /// the part.
    #[inline(always)]
    fn see(&mut self, tags: u64, find: impl FnOnce() -> Option<(u16, u8)>) -> u8 {
        let place = (tags ^ tags >> 32) as usize % self.known.len();
        if self.known[place].0 != tags {
            let found = find().filter(|_| self.count < NOBODY);
            let kind = found.map_or(NOBODY, |(interface, part)| {
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

    /// Refuses the packets that exceed the number granted to their router. Returns the slots of the refused packets as
    /// a bit mask.
    #[inline(always)]
    fn refuse(&mut self, kinds: &[u8], packets: &[Packet<'_>], granted: &mut [u16; BURST_BUFFERS]) -> u64 {
        let mut bits = 0;
        for (place, (kind, packet)) in kinds.iter().zip(packets).enumerate() {
            let kind = usize::from(*kind) % BURST_BUFFERS;
            let granted = &mut granted[usize::from(self.part[kind]) % BURST_BUFFERS];
            let is_refused = *granted == 0;
            *granted -= u16::from(!is_refused);
            self.refused[1][kind] += u16::from(is_refused);
            self.bytes[kind] += if is_refused { packet.len() as u32 } else { 0 };
            bits |= u64::from(is_refused) << place;
        }
        bits
    }

    /// Counts refused packets as received and dropped. If a trace or a capture runs, the graph counts the drops
    /// instead.
    fn count(&self, ctx: &NodeContext<'_, '_>, reason: Own, is_watched: bool) {
        for kind in 0..usize::from(self.count) {
            let refused = [0, 1].map(|by: usize| u64::from(self.refused[by][kind]));
            let Some(counters) = ctx.counters.interfaces.get(usize::from(self.interface[kind])) else {
                continue;
            };
            counters.received.add(refused[0] + refused[1]);
            counters.received_bytes.add(self.bytes[kind].into());
            if !is_watched {
                counters.drop_many(Own::RateLimited.into(), refused[0]);
                counters.drop_many(reason.into(), refused[1]);
            }
        }
    }
}

impl Part {
    /// Whether the rate limit admits a packet of this many bits. An admitted packet is counted.
    #[inline(always)]
    fn takes(&mut self, bits: u64) -> bool {
        let Some([packets, all]) = self.left else { return true };
        let fits = self.had[0] < packets && self.had[1] + bits <= all;
        if fits {
            self.had[0] += 1;
            self.had[1] += bits;
        }
        fits
    }
}

/// Index of the [`Part`] of an interface's router. Interfaces of bridges have no part.
fn part_of(parts: &mut ArrayVec<Part, BURST_SIZE>, shares: &Shares, interface: u16, now: u64) -> u8 {
    let Some((number, entry)) = shares.entry_of(interface) else {
        return NOBODY;
    };
    let known = parts.iter().position(|part| part.number == number);
    let place = known.unwrap_or_else(|| {
        put(
            parts,
            Part {
                number,
                entry,
                packets: 0,
                left: shares.left(entry.router, now),
                had: [0; 2],
            },
        );
        parts.len() - 1
    });
    place as u8
}

/// TPIDs and VLAN identifiers of a frame's two outermost tags; 0 if the frame has no tags.
#[inline(always)]
fn tags_of(head: &[u8; HEAD]) -> u64 {
    let [.., a, b, c, d, e, f, g, h] = *head;
    let word = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    let mask = match (is_tag((word >> 48) as u16), is_tag((word >> 16) as u16)) {
        (true, true) => 0xffff_0fff_ffff_0fff,
        (true, false) => 0xffff_0fff_0000_0000,
        (false, _) => 0,
    };
    word & mask
}

/// The interface that receives a frame, determined by its tags only. `parse` makes all other checks.
#[inline(never)]
fn interface_of(snapshot: &Snapshot, port: PortIndex, untagged: Option<u16>, tags: u64) -> Option<u16> {
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

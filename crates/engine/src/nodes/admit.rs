//! admit: enforces the rate limits of routers on received packets. While the worker is overloaded, the node also
//! divides the capacity fairly among the routers. The node runs before any other work is done for the packets. The port
//! and the VLAN tags determine the router of a packet.

use std::ops::Range;

use arrayvec::ArrayVec;
use sluice_wire::Packet;

use crate::features::context::NodeContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::io::{BURST_BUFFERS, BURST_SIZE, BufferIndex, PortIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::EngineReason;
use crate::snapshot::shares::deficit::{Deficits, Demand, Distribution};
use crate::snapshot::shares::{Shares, SideState};

use kinds::{Kinds, NO_SHARE, Part, interface_of, part_of, tags_of};

mod kinds;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "admit",
    help: "limits routers to their share of a receive queue",
    stage: None,
    leaves: &[Leave::Drop],
    exits: &[Exit::new("parse", "within its share", needs::SHARED)],
};

/// Maximum number of packets that a router may save up while it does not use its share.
const MAX_PACKETS: u64 = 2 * BURST_SIZE as u64;

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
    (port, slots, max): (PortIndex, Range<usize>, usize),
    is_observed: bool,
) -> u128 {
    let Some(of) = shares.port(port) else { return 0 };
    let Some(gate) = side.gates.get_mut(usize::from(port)) else {
        return 0;
    };
    let slots = slots.start..slots.end.min(batch.packets.len()).min(BURST_BUFFERS);
    let budget = if of.shared {
        gate.observe(slots.len()).min(max)
    } else {
        BURST_BUFFERS
    };
    if !of.limited && slots.len() <= budget {
        return 0;
    }
    let mut kind_of = [NO_SHARE; BURST_BUFFERS];
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
        let frames = (slots.clone(), &mut kind_of, &mut kinds);
        limited = enforce_rates(batch.packets, frames, &mut parts, shares, ctx.now.nanoseconds);
    }
    // If a router is alone on its port, it can't take capacity from other routers. The limit of its share is not
    // applied then; the NIC drops packets when its queue is full.
    let routers = parts.iter().map(|part| part.entry.router);
    let (budget, reason) = match of.shared && gate.senders.observe(routers, ctx.now.nanoseconds) {
        true => (max, EngineReason::Shed),
        false => (budget, EngineReason::OverShare),
    };
    let mut refused = limited;
    if parts.iter().map(|part| part.packets).sum::<u64>() > budget as u64 {
        let deficits = (&mut side.deficits, &mut gate.distribution);
        let frames = (slots.clone(), &kind_of, &mut kinds);
        refused |= divide(batch.packets, frames, &parts, budget as u64, deficits);
    }
    if refused != 0 {
        kinds.count(ctx, reason, is_observed);
        if is_observed {
            drop_observed(batch, lists, (refused, limited), reason, |frame| {
                let tags = frame.first_chunk().map_or(0, tags_of);
                interface_of(ctx.snapshot, port, untagged, tags)
            });
        } else {
            free(lists, refused);
        }
    }
    refused
}

/// Enforces the rate limits of routers. Returns the refused packets as a bit mask of slots.
#[inline(always)]
fn enforce_rates(
    packets: &[Packet<'_>],
    (slots, kind_of, kinds): (Range<usize>, &mut [u8; BURST_BUFFERS], &mut Kinds),
    parts: &mut ArrayVec<Part, BURST_SIZE>,
    shares: &Shares,
    now: u64,
) -> u128 {
    let mut limited = 0u128;
    for slot in slots {
        let kind = usize::from(kind_of[slot]);
        let Some(part) = parts.get_mut(usize::from(kinds.part[kind])) else {
            continue;
        };
        let bytes = packets[slot].len();
        if !part.takes(bytes as u64 * 8) {
            part.packets -= 1;
            kinds.refused[0][kind] += 1;
            kinds.bytes[kind] += bytes as u32;
            limited |= 1 << slot;
            // The share does not apply to packets that the rate limit has already refused.
            kind_of[slot] = NO_SHARE;
        }
    }
    for part in parts.iter().filter(|part| part.remaining.is_some()) {
        shares.charge(part.entry.router, part.used, now);
    }
    limited
}

/// Divides `budget` packets among the routers. Returns the refused packets as a bit mask of slots.
#[inline(always)]
fn divide(
    packets: &[Packet<'_>],
    (slots, kind_of, kinds): (Range<usize>, &[u8; BURST_BUFFERS], &mut Kinds),
    parts: &ArrayVec<Part, BURST_SIZE>,
    budget: u64,
    (deficits, distribution): (&mut Deficits, &mut Distribution),
) -> u128 {
    let claim = |part: &Part| Demand {
        number: part.number,
        weight: part.entry.weight,
        wants: part.packets,
    };
    let claims: ArrayVec<Demand, BURST_SIZE> = parts.iter().map(claim).collect();
    deficits.distribute(&claims, budget, distribution, MAX_PACKETS);
    let mut allowance = [u16::MAX; BURST_BUFFERS];
    for (allowance, part) in allowance.iter_mut().zip(parts) {
        *allowance = deficits.take_up_to(part.number, part.packets, distribution) as u16;
    }
    let mut refused = 0u128;
    for first in slots.clone().step_by(BURST_SIZE) {
        let those = first..slots.end.min(first + BURST_SIZE);
        let bits = kinds.refuse(&kind_of[those.clone()], &packets[those], &mut allowance);
        refused |= u128::from(bits) << first;
    }
    refused
}

/// Drops refused packets through the graph, because a trace or a capture runs.
#[cold]
fn drop_observed(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    (refused, limited): (u128, u128),
    reason: EngineReason,
    interface_of: impl Fn(&[u8]) -> Option<u16>,
) {
    for slot in (0..batch.packets.len()).filter(|slot| refused >> slot & 1 != 0) {
        batch.meta[slot] = Meta {
            interface: interface_of(batch.packets[slot].bytes()).unwrap_or(0),
            ..Meta::default()
        };
        let was_limited = limited >> slot & 1 != 0;
        lists.drop_packet(
            slot as BufferIndex,
            if was_limited { EngineReason::RateLimited } else { reason },
        );
    }
}

/// Frees the buffers of these slots.
#[inline(always)]
fn free(lists: &mut Lists, slots: u128) {
    for (half, first) in [(slots as u64, 0), ((slots >> 64) as u64, 64)] {
        let mut remaining = half;
        while remaining != 0 {
            put(&mut lists.used, (first + remaining.trailing_zeros()) as BufferIndex);
            remaining &= remaining - 1;
        }
    }
}

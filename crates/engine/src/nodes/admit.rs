//! admit: what routers may have of what came from a port, before anything is spent on it: their rates, and while more comes
//! than the worker can deal with, their shares. Port and tags alone say whose a packet is.
//!
//! Exits: parse (all that is not refused), drop (above the router's rate, or its share).

use std::ops::Range;

use arrayvec::ArrayVec;
use sluice_wire::vlan::{Tag, is_tag};

use crate::batch::{Batch, Lists, Meta, put};
use crate::context::Ctx;
use crate::io::{BATCH, HAND, PortIndex, Slot};
use crate::nodes::parse::Tally;
use crate::policy::Policy;
use crate::reason::Own;
use crate::shares::credit::Claim;
use crate::shares::{Entry, Shares, Side};

/// Packets that a router may have saved up of its share.
const SAVED: u64 = 2 * BATCH as u64;

/// A router's part of a burst.
struct Part {
    number: u16,
    entry: Entry,
    packets: u64,
    /// What its rate leaves, where it has one.
    left: Option<[u64; 2]>,
    had: [u64; 2],
}

/// Slots that came from `port`, of which at most so many may go on. Returns those that do not, a bit each.
#[inline(never)]
pub fn admit(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &Ctx<'_, '_>,
    shares: &Shares,
    side: &mut Side,
    (port, slots, most): (PortIndex, Range<usize>, usize),
) -> u128 {
    let Some(of) = shares.port(port) else { return 0 };
    let Some(gate) = side.gates.get_mut(usize::from(port)) else {
        return 0;
    };
    let slots = slots.start..slots.end.min(batch.packets.len()).min(HAND);
    let budget = if of.shared {
        gate.see(slots.len()).min(most)
    } else {
        HAND
    };
    if !of.limited && slots.len() <= budget {
        return 0;
    }
    let (mut owner, mut interfaces) = ([u8::MAX; HAND], [0; HAND]);
    let mut parts = ArrayVec::<Part, BATCH>::new();
    let untagged = ctx.policy.untagged.get(usize::from(port)).copied().flatten();
    let mut last = (u16::MAX, u8::MAX);
    for slot in slots.clone() {
        let frame = batch.packets[slot].bytes();
        let Some(interface) = interface_of(ctx.policy, port, untagged, frame) else {
            continue;
        };
        interfaces[slot] = interface;
        if interface != last.0 {
            last = (interface, part_of(&mut parts, shares, interface, ctx.now.nanoseconds));
        }
        owner[slot] = last.1;
        if let Some(part) = parts.get_mut(usize::from(last.1)) {
            part.packets += 1;
        }
    }
    let mut refused = 0u128;
    if of.limited {
        for slot in slots.clone() {
            let Some(part) = parts.get_mut(usize::from(owner[slot])) else {
                continue;
            };
            let bits = batch.packets[slot].len() as u64 * 8;
            if !part.takes(bits) {
                part.packets -= 1;
                refused |= 1 << slot;
                put(&mut lists.drop, (slot as Slot, Own::RateLimited.into()));
            }
        }
        for part in parts.iter().filter(|part| part.left.is_some()) {
            shares.charge(part.entry.router, part.had, ctx.now.nanoseconds);
        }
    }
    // Who is alone is kept out for nobody's sake: what is too much, the card drops.
    let routers = parts.iter().map(|part| part.entry.router);
    let (budget, reason) = match of.shared && gate.company.see(routers, ctx.now.nanoseconds) {
        true => (most, Own::Shed),
        false => (budget, Own::OverShare),
    };
    if parts.iter().map(|part| part.packets).sum::<u64>() > budget as u64 {
        let claim = |part: &Part| Claim {
            number: part.number,
            weight: part.entry.weight,
            wants: part.packets,
        };
        let claims: ArrayVec<Claim, BATCH> = parts.iter().map(claim).collect();
        side.credits.deal(&claims, budget as u64, &mut gate.dealt, SAVED);
        let limited = refused;
        for slot in slots.clone().filter(|slot| limited >> slot & 1 == 0) {
            let Some(part) = parts.get(usize::from(owner[slot])) else {
                continue;
            };
            if !side.credits.take(part.number, 1, &mut gate.dealt) {
                refused |= 1 << slot;
                put(&mut lists.drop, (slot as Slot, reason.into()));
            }
        }
    }
    receive(batch, ctx, refused, &interfaces, slots);
    refused
}

/// What is refused was received all the same.
fn receive(batch: &mut Batch<'_, '_>, ctx: &Ctx<'_, '_>, refused: u128, interfaces: &[u16; HAND], slots: Range<usize>) {
    let mut tally = Tally::at(interfaces[slots.start % HAND]);
    for slot in slots.filter(|slot| refused >> slot & 1 != 0) {
        batch.meta[slot] = Meta {
            interface: interfaces[slot],
            ..Meta::default()
        };
        tally.count(ctx, interfaces[slot], batch.packets[slot].len() as u64);
    }
    tally.flush(ctx);
}

impl Part {
    /// Whether the rate leaves a packet of so many bits, which is counted then.
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

/// The part of an interface's router; there is none of a bridge's.
fn part_of(parts: &mut ArrayVec<Part, BATCH>, shares: &Shares, interface: u16, now: u64) -> u8 {
    let Some((number, entry)) = shares.entry_of(interface) else {
        return u8::MAX;
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

/// The interface that a frame comes in by, as far as its tags tell; `parse` finds out what else is wrong with it.
#[inline(always)]
fn interface_of(policy: &Policy, port: PortIndex, untagged: Option<u16>, frame: &[u8]) -> Option<u16> {
    let head: &[u8; 22] = frame.first_chunk()?;
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    if !is_tag(word(12)) {
        return untagged;
    }
    let tag = |at| Tag {
        protocol: word(at),
        control: word(at + 2),
    };
    let inner = is_tag(word(16)).then(|| tag(16));
    policy.tagged(port, &[Some(tag(12)), inner])
}

//! hand-off: passes packets to the workers of the next pipeline stage.

use sluice_wire::ethernet::ethertype;

use crate::features::context::NodeContext;
use crate::nodes::declaration::Node;
use crate::nodes::parse::ReceiveTally;
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::hand_off::{EntryPoint, HandOffNote};
use crate::packet::io::{BURST_BUFFERS, BufferIndex, PortIndex, WorkerIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::EngineReason;
use crate::session::family::{Family, V4, V6};

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "hand-off",
    help: "hands packets to the workers of the next stage",
    stage: None,
    leaves: &[Leave::HandOver, Leave::Drop],
    exits: &[],
};

/// Passes received packets, from slot `first` on, to the workers that parse packets. If the ring to a worker is full,
/// packets are dropped and counted as shed.
pub fn received(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
    port: PortIndex,
    first: usize,
    free_entries: &mut [usize],
) {
    let mut tally = ReceiveTally::of(ctx, port);
    let mut passed = 0;
    for slot in first..batch.packets.len().min(BURST_BUFFERS) {
        let (meta, frame) = (&mut batch.meta[slot], batch.packets[slot].bytes());
        *meta = Meta {
            interface: tally.interface,
            ..Meta::default()
        };
        let next = match ctx.role.parsers.len() {
            1 => 0,
            parsers => spread(hash(frame), parsers),
        };
        match (ctx.role.parsers.get(next), free_entries.get_mut(next)) {
            (Some(&parser), Some(capacity)) if *capacity > 0 => {
                *capacity -= 1;
                passed += 1;
                lists.hand_over(
                    slot as BufferIndex,
                    parser,
                    HandOffNote::new(EntryPoint::Received(port), meta),
                );
            }
            _ => {
                tally.count(ctx, meta.interface, frame.len() as u64);
                lists.drop_packet(slot as BufferIndex, EngineReason::Shed);
            }
        }
    }
    tally.flush(ctx);
    ctx.counters.unparsed.add(passed);
}

/// Drops the first `count` packets received on a port, because the next stage has no space for them.
#[cold]
pub fn shed(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>, port: PortIndex, count: usize) {
    let mut tally = ReceiveTally::of(ctx, port);
    for slot in 0..count {
        batch.meta[slot % BURST_BUFFERS] = Meta {
            interface: tally.interface,
            ..Meta::default()
        };
        tally.count(ctx, tally.interface, batch.packets[slot].len() as u64);
        put(&mut lists.drop, (slot as BufferIndex, EngineReason::Shed.into()));
    }
    tally.flush(ctx);
}

/// Passes packets that need no session to the workers that route them. All packets between the same two addresses go to
/// one worker.
pub fn forward<F: Family>(batch: &Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>) {
    for slot in std::mem::take(lists.forward.of::<F>()) {
        let (meta, frame) = (batch.meta(slot), batch.packets[slot as usize].bytes());
        let worker = router(hash(frame), &ctx.role.sessions).unwrap_or(ctx.own);
        lists.hand_over(slot, worker, HandOffNote::new(EntryPoint::Forward, meta));
    }
}

/// Passes packets of both address families to other workers.
pub fn both(batch: &Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>) {
    forward::<V4>(batch, lists, ctx);
    forward::<V6>(batch, lists, ctx);
}

fn router(hash: u32, workers: &[WorkerIndex]) -> Option<WorkerIndex> {
    workers.get(spread(hash, workers.len())).copied()
}

/// Maps a hash to a number below `count`.
fn spread(hash: u32, count: usize) -> usize {
    ((u64::from(hash) * count as u64) >> 32) as usize
}

/// Hash of the addresses in an unparsed frame. All packets of a flow have one hash, so that one worker processes the
/// flow in order.
fn hash(frame: &[u8]) -> u32 {
    let kind = |at: usize| {
        frame
            .get(at..at + 2)
            .map_or(0, |kind| u16::from_be_bytes([kind[0], kind[1]]))
    };
    let mut at = 12;
    while at < 20 && matches!(kind(at), ethertype::VLAN | ethertype::SERVICE_VLAN) {
        at += 4;
    }
    let addresses = match kind(at) {
        ethertype::IPV4 => frame.get(at + 14..at + 22),
        ethertype::IPV6 => frame.get(at + 10..at + 42),
        _ => None,
    };
    let words = addresses.unwrap_or_default().chunks_exact(4);
    let mixed = words.fold(0u32, |hash, word| {
        let word = word.try_into().map_or(0, u32::from_be_bytes);
        (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b1)
    });
    mixed ^ (mixed >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_behind_tags_and_spread() {
        let mut plain = vec![0; 60];
        plain[12..14].copy_from_slice(&[8, 0]);
        plain[26..34].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 1]);
        let mut tagged = plain.clone();
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        assert_ne!(0, hash(&plain));
        assert_eq!(hash(&plain), hash(&tagged));
        // The flipped bytes outside of the addresses don't affect the hash.
        let mut other = plain.clone();
        (other[18], other[40]) = (9, 9);
        assert_eq!(hash(&plain), hash(&other));
        assert_eq!(hash(&[]), hash(&[0; 13]));
        let mut seen = [0; 4];
        for host in 0..=255 {
            plain[29] = host;
            seen[spread(hash(&plain), 4)] += 1;
        }
        assert!(seen.iter().all(|&count| count > 32), "{seen:?}");
    }
}

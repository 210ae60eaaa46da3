//! SYNs from outside that nobody expects, and what they are answered (RFC 5382, REQ-4).
//!
//! An inside host may be about to open the same connection itself, from its side: so such a SYN waits, at least 6
//! seconds, and is dropped silently if the connection has a session by then. Else its sender is told that the port is
//! unreachable, as far as the limit of ICMP errors allows. What is sent again while it waits is dropped at once.
//!
//! Each worker keeps those of its shards, and each shard has room for the same number, so that how many workers there
//! are does not show. Whatever there is no room for is dropped silently, and so is what waits when its shard goes to another worker: a flood of SYNs takes no more than that.

use std::collections::VecDeque;

use sluice_table::flow::FlowTable;

use crate::features::context::{NodeContext, WaitingPacket};
use crate::packet::batch::Batch;
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::BufferIndex;
use crate::packet::lists::Lists;
use crate::packet::reason::{Own, Reason};
use crate::packet::task::UnsolicitedSyn;
use crate::session::family::{Family, V4, V6};
use crate::snapshot::Nat;
use sluice_wire::layers::Class;

#[derive(Debug)]
struct Entry {
    packet: WaitingPacket,
    hash: u64,
    due: u64,
    shard: u16,
    reason: Reason,
}

/// SYNs that wait, of one worker.
#[derive(Debug)]
pub struct PendingSyns {
    /// By the time of their answer.
    entries: VecDeque<Entry>,
    /// Hashes of those that wait, each at its place as long as no other took that: a hint of what comes again.
    seen: Box<[u64]>,
    /// How many of each shard wait.
    counts: Box<[u32]>,
    /// How many of one shard may.
    most: u32,
}

impl PendingSyns {
    /// For `shards` shards, any of which may come here, that have room for `most` in all.
    pub fn new(shards: usize, most: usize) -> Self {
        let each = most.div_ceil(shards.max(1));
        Self {
            entries: VecDeque::with_capacity(shards * each),
            seen: vec![0; (2 * shards * each).next_power_of_two()].into(),
            counts: vec![0; shards].into(),
            most: each as u32,
        }
    }

    /// Whether a SYN of a shard may wait; else why it is dropped.
    pub fn admit(&self, syn: &UnsolicitedSyn, shard: u16) -> Result<(), Reason> {
        if self.seen.get(self.place(syn.hash)) == Some(&syn.hash) {
            return Err(syn.reason);
        }
        match self.counts.get(usize::from(shard)) {
            Some(&count) if count < self.most => Ok(()),
            _ => Err(Own::SynsFull.into()),
        }
    }

    /// Let a SYN wait that was admitted.
    pub fn wait(&mut self, syn: &UnsolicitedSyn, shard: u16, packet: WaitingPacket) {
        let place = self.place(syn.hash);
        if let (Some(seen), Some(count)) = (self.seen.get_mut(place), self.counts.get_mut(usize::from(shard))) {
            *seen = syn.hash;
            *count += 1;
        }
        // Nearly always behind all others: pools differ little in how long they let wait.
        let behind = self.entries.partition_point(|entry| entry.due <= syn.due);
        self.entries.insert(
            behind,
            Entry {
                packet,
                hash: syn.hash,
                due: syn.due,
                shard,
                reason: syn.reason,
            },
        );
    }

    /// The next one that has waited long enough.
    pub fn take_due(&mut self, now: u64) -> Option<(WaitingPacket, Reason)> {
        let entry = match self.entries.front() {
            Some(entry) if entry.due <= now => self.entries.pop_front()?,
            _ => return None,
        };
        let place = self.place(entry.hash);
        if let Some(seen) = self.seen.get_mut(place).filter(|seen| **seen == entry.hash) {
            *seen = 0;
        }
        if let Some(count) = self.counts.get_mut(usize::from(entry.shard)) {
            *count -= 1;
        }
        Some((entry.packet, entry.reason))
    }

    fn place(&self, hash: u64) -> usize {
        hash as usize & (self.seen.len() - 1)
    }
}

/// A SYN has waited long enough: answer it, unless its connection has a session by now.
pub fn answer(slot: BufferIndex, reason: Reason, batch: &Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>) {
    let opened = match batch.meta(slot).layers.class {
        Class::Ipv6 => has_session::<V6>(slot, batch, ctx, &ctx.snapshot.nat6),
        _ => has_session::<V4>(slot, batch, ctx, &ctx.snapshot.nat4),
    };
    match opened {
        Some(true) => lists.drop_packet(slot, Own::SynOvertaken),
        Some(false) => lists.icmp_error(slot, IcmpError::PortUnreachable, reason),
        // Its shard went to another worker, and the session with it, if there is one.
        None => lists.drop_packet(slot, reason),
    }
}

fn has_session<F: Family>(
    slot: BufferIndex,
    batch: &Batch<'_, '_>,
    ctx: &NodeContext<'_, '_>,
    nat: &Nat<F>,
) -> Option<bool> {
    let meta = batch.meta(slot);
    let context = ctx.snapshot.interface(meta.interface).map_or(0, |i| i.context);
    let key = F::key(&meta.layers, batch.packets[slot as usize].bytes(), context);
    let shard = ctx
        .start
        .steering
        .shard_among_sites::<F>(nat, &key, meta.interface, true);
    let hash = F::hash_one(ctx.hasher, &key);
    let table: Option<&FlowTable<'_, F::Session>> = ctx
        .shards
        .get(usize::from(shard))
        .and_then(|shard| shard.as_deref())
        .map(F::table_ref);
    table.map(|table| table.find(hash, &key).is_some())
}

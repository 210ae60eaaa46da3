//! Unsolicited SYNs from outside, and the answers to these SYNs (RFC 5382, REQ-4).
//!
//! An inside host may be about to open the same connection (simultaneous open). An unsolicited SYN is therefore parked
//! for at least 6 seconds. If the connection has a session by then, the SYN is dropped silently; otherwise its sender
//! gets an ICMP port unreachable error, subject to the rate limit of ICMP errors. Until then, retransmissions are
//! dropped.
//!
//! Each worker stores the SYNs of its shards, and each shard has the same capacity, independent of the number of
//! workers. SYNs beyond the capacity are dropped silently. Parked SYNs are also dropped silently if their shard moves
//! to another worker. The limits bound the memory and the buffers that a SYN flood can occupy.

use std::collections::VecDeque;

use sluice_table::flow::FlowTable;

use crate::features::context::{NodeContext, WaitingPacket};
use crate::packet::batch::Batch;
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::BufferIndex;
use crate::packet::lists::Lists;
use crate::packet::reason::{EngineReason, Reason};
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

/// Parked SYNs of one worker.
#[derive(Debug)]
pub struct PendingSyns {
    /// Parked SYNs, sorted by the time at which they are answered.
    entries: VecDeque<Entry>,
    /// Hashes of parked SYNs, for the detection of retransmissions. A later SYN may overwrite an entry, so the detection is not
    /// reliable.
    seen: Box<[u64]>,
    /// Number of parked SYNs for each shard.
    counts: Box<[u32]>,
    /// Maximum number of parked SYNs of a shard.
    max: u32,
}

impl PendingSyns {
    /// Creates the state for `shards` shards, with space for `max` SYNs in total. All shards may be assigned to this
    /// worker.
    pub fn new(shards: usize, max: usize) -> Self {
        let each = max.div_ceil(shards.max(1));
        Self {
            entries: VecDeque::with_capacity(shards * each),
            seen: vec![0; (2 * shards * each).next_power_of_two()].into(),
            counts: vec![0; shards].into(),
            max: each as u32,
        }
    }

    /// Checks whether a SYN of a shard may be parked. The error is the drop reason.
    pub fn admit(&self, syn: &UnsolicitedSyn, shard: u16) -> Result<(), Reason> {
        if self.seen.get(self.place(syn.hash)) == Some(&syn.hash) {
            return Err(syn.reason);
        }
        match self.counts.get(usize::from(shard)) {
            Some(&count) if count < self.max => Ok(()),
            _ => Err(EngineReason::SynsFull.into()),
        }
    }

    /// Parks a SYN that was admitted.
    pub fn wait(&mut self, syn: &UnsolicitedSyn, shard: u16, packet: WaitingPacket) {
        let place = self.place(syn.hash);
        if let (Some(seen), Some(count)) = (self.seen.get_mut(place), self.counts.get_mut(usize::from(shard))) {
            *seen = syn.hash;
            *count += 1;
        }
        // SYNs are almost always appended, because the waiting times of pools differ little.
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

    /// Removes and returns the next SYN whose waiting time is over.
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

/// Answers a SYN at the end of its waiting time, unless its connection has a session by now.
pub fn answer(slot: BufferIndex, reason: Reason, batch: &Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>) {
    let opened = match batch.meta(slot).layers.class {
        Class::Ipv6 => has_session::<V6>(slot, batch, ctx, &ctx.snapshot.nat6),
        _ => has_session::<V4>(slot, batch, ctx, &ctx.snapshot.nat4),
    };
    match opened {
        Some(true) => lists.drop_packet(slot, EngineReason::SynOvertaken),
        Some(false) => lists.icmp_error(slot, IcmpError::PortUnreachable, reason),
        // The shard has moved to another worker, together with any session of the connection.
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

//! Fragments that inspection has parked: processing after their release, and expiry.

use sluice_inspect::Reason;

use super::{ResumeReason, Worker};
use crate::features::context::WaitingPacket;
use crate::features::inspection::{Released, ReleasedPacket};
use crate::packet::io::BURST_SIZE;
use crate::packet::time::Now;

/// Number of fragmented datagrams that one round checks.
const BUDGET: usize = 16;

impl Worker<'_> {
    /// Whether any packets have been released but not yet processed again.
    pub(super) fn has_resumed(&mut self) -> bool {
        if let Some(work) = self.parts.inspecting.as_deref_mut() {
            while !self.resumed.is_full()
                && let Some(ReleasedPacket { waiting, note, passed }) = work.parked_packets.next_released()
            {
                self.resumed.push((waiting, ResumeReason::Fragment(note, passed)));
            }
        }
        !self.resumed.is_empty()
    }

    /// Updates the overload state from the number of packets that wait in rings and in devices. For a device that
    /// delivers full bursts, only a lower bound of this number is known.
    pub(super) fn update_load(&mut self, full: usize, waiting: u64) {
        let Some(work) = self.parts.inspecting.as_deref_mut() else {
            return;
        };
        self.behind = match full {
            0 => 0,
            full => self.behind.saturating_add((full * BURST_SIZE) as u64),
        };
        if let Some(inspection) = &self.snapshot.load().inspection {
            let waiting = waiting.saturating_add(self.behind);
            work.load.observe(waiting, &inspection.overload, &self.parts.counters);
        }
    }

    /// Sets the counter of packets that wait for inspection.
    pub(super) fn count_held(&self) {
        if let Some(work) = self.parts.inspecting.as_deref() {
            self.parts
                .counters
                .inspection
                .waiting
                .set(work.parked_packets.waiting() as u64);
        }
    }

    /// Drops packets that inspection has rejected since the last round, and fragments of datagrams that have timed out.
    pub(super) fn drop_timed_out(&mut self, now: Now) {
        let Some(work) = self.parts.inspecting.as_deref_mut() else {
            return;
        };
        let mut gone = std::mem::take(&mut self.gone);
        let parked_packets = &mut work.parked_packets;
        let expired = work.expired.drain(..);
        gone.extend(expired.filter_map(|(ticket, reason)| Some((parked_packets.take(ticket)?, reason))));
        work.assemblies.sweep(now.nanoseconds, BUDGET, |ticket| {
            gone.extend(
                parked_packets
                    .take(ticket)
                    .map(|waiting| (waiting, Reason::FragmentTimeout)),
            );
        });
        self.drop_all(gone);
    }

    /// Drops parked packets.
    fn drop_all(&mut self, mut gone: Vec<(WaitingPacket, Reason)>) {
        for (waiting, reason) in gone.drain(..) {
            self.drop_parked(waiting, reason.into());
        }
        self.gone = gone;
    }

    /// Makes this worker, and one of its shards if it has any, load new inspection rules, even if no packets arrive.
    pub(super) fn refresh_rules(&mut self, place: Option<usize>, now: Now) {
        let generation = self.snapshot.load().inspected;
        if let Some(work) = self.parts.inspecting.as_deref_mut() {
            work.follow(generation);
        }
        let shard = place.and_then(|place| self.parts.shards.get_mut(place)?.as_deref_mut());
        if let Some(shard) = shard {
            shard.load_rules(generation, now);
            shard.retire_rules(now);
        }
    }

    /// Releases the parked fragments of a shard that leaves. The shard's new worker processes the fragments.
    pub(super) fn free_held(&mut self, place: usize) {
        let Some(work) = self.parts.inspecting.as_deref_mut() else {
            return;
        };
        let Some(shard) = self.parts.shards.get_mut(place).and_then(Option::as_deref_mut) else {
            return;
        };
        // The new worker inspects and counts the fragment, so this worker removes it from its counter.
        let counters = &self.parts.counters;
        work.assemblies.drop_parked(shard.number, |ticket| {
            if matches!(work.parked_packets.release(ticket), Released::Later) {
                counters.inspection.received.remove(1);
            }
        });
    }
}

//! Flows to and from the gateway itself, in tables of fixed size that all workers share.

use core::sync::atomic::{AtomicU64, Ordering};

use bytemuck::allocation::zeroed_slice_box;

use crate::packet::time::{Now, TICKS_PER_SECOND};

/// Number of flows in a table.
const FLOWS: usize = 32_768;
/// Number of flows in a set. A new flow replaces the least recently used flow of its set.
const WAYS: usize = 8;

/// Known flows to and from the gateway itself.
#[derive(Debug, Default)]
pub struct GatewayFlows {
    /// Flows that the gateway's host has started. Packets that remote hosts send can't fill this table.
    pub initiated: FlowSet,
    /// Flows that rules have accepted.
    pub admitted: FlowSet,
    /// Fragmented datagrams after their first fragment has passed.
    pub datagrams: FlowSet,
}

/// Flows, by the keyed hash of the direction towards the gateway.
#[derive(Debug)]
pub struct FlowSet(Box<[[Entry; WAYS]]>);

/// Two words of a flow. The first word is the hash (0 if the entry is free). The second word contains the time of the
/// last packet in its high 32 bits and the snapshot generation in its low 32 bits. A reader that runs concurrently with
/// a writer may see a wrong age of the flow, but never the data of another flow.
type Entry = [AtomicU64; 2];

impl Default for FlowSet {
    fn default() -> Self {
        // The memory is zeroed on demand, so unused pages occupy no memory.
        Self(zeroed_slice_box(FLOWS / WAYS))
    }
}

/// Time of a flow's last packet, and generation of the flow.
fn state([_, state]: &Entry) -> (u32, u32) {
    let state = state.load(Ordering::Relaxed);
    ((state >> 32) as u32, state as u32)
}

fn set([_, state]: &Entry, stamp: u32, generation: u32) {
    let new = u64::from(stamp) << 32 | u64::from(generation);
    if state.load(Ordering::Relaxed) != new {
        state.store(new, Ordering::Relaxed);
    }
}

impl FlowSet {
    fn set(&self, hash: u64) -> &[Entry] {
        let sets = self.0.len().max(1);
        self.0.get(hash as usize % sets).map_or(&[], |set| set)
    }

    fn find(&self, hash: u64, now: Now, seconds: u32) -> Option<&Entry> {
        let entry = self
            .set(hash)
            .iter()
            .find(|[own, _]| own.load(Ordering::Relaxed) == hash.max(1))?;
        let silent = now.since(state(entry).0);
        (u64::from(silent) <= u64::from(seconds) * TICKS_PER_SECOND).then_some(entry)
    }

    /// Refreshes a flow if its last packet is at most `seconds` old. Returns the generation of the snapshot that was in
    /// use when the flow was recorded.
    pub fn generation(&self, hash: u64, now: Now, seconds: u32) -> Option<u32> {
        let entry = self.find(hash, now, seconds)?;
        let (_, generation) = state(entry);
        set(entry, now.stamp(), generation);
        Some(generation)
    }

    /// Refreshes a flow if it is known. Returns whether it is known.
    pub fn is_known(&self, hash: u64, now: Now, seconds: u32) -> bool {
        self.generation(hash, now, seconds).is_some()
    }

    /// Records a flow with its current generation.
    pub fn note(&self, hash: u64, now: Now, generation: u32) {
        let (entries, hash) = (self.set(hash), hash.max(1));
        let age = |entry: &&Entry| match entry[0].load(Ordering::Relaxed) {
            own if own == hash => (2, 0),
            0 => (1, 0),
            _ => (0, now.since(state(entry).0)),
        };
        if let Some(entry) = entries.iter().max_by_key(age) {
            set(entry, now.stamp(), generation);
            entry[0].store(hash, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(seconds: u64) -> Now {
        Now::at(seconds * 1_000_000_000)
    }

    #[test]
    fn flow_is_known_for_as_long_as_packets_come_and_not_longer() {
        let flows = FlowSet::default();
        assert_eq!(None, flows.generation(7, after(1), 60));
        flows.note(7, after(1), 3);
        assert_eq!(Some(3), flows.generation(7, after(50), 60));
        assert_eq!(Some(3), flows.generation(7, after(110), 60));
        assert_eq!(None, flows.generation(7, after(171), 60));
        flows.note(7, after(171), 4);
        assert_eq!(Some(4), flows.generation(7, after(171), 60));
        assert!(!flows.is_known(8, after(171), 60));
        // A flow with the hash 0 is handled like every other flow.
        assert!(!flows.is_known(0, after(171), 60));
        flows.note(0, after(171), 4);
        assert!(flows.is_known(0, after(171), 60));
    }

    #[test]
    fn flow_beyond_a_full_set_takes_the_place_of_the_longest_silent() {
        let flows = FlowSet::default();
        let hash = |number: u64| number * (FLOWS / WAYS) as u64 + 5;
        for number in 0..WAYS as u64 {
            flows.note(hash(number), after(number), 0);
        }
        assert!(flows.is_known(hash(0), after(8), 600));
        flows.note(hash(99), after(9), 0);
        let known = |number| flows.find(hash(number), after(9), 600).is_some();
        assert_eq!([true, false, true, true], [0, 1, 2, 99].map(known));
    }
}

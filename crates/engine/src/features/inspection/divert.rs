//! Diversion of packets before they are translated, if their session is inspected, is being identified, or is denied.

use sluice_inspect::Skipped;
use sluice_table::flow::RecordIndex;
use sluice_wire::layers::{Flags, Layers};
use sluice_wire::{Direction, Packet};

use super::InspectState;
use crate::features::filter;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::put;
use crate::packet::counters::WorkerCounters;
use crate::packet::io::BufferIndex;
use crate::packet::lists::Lists;
use crate::packet::time::Now;
use crate::session::family::{Family, Session};
use crate::snapshot::marks::{Marks, class_of, set_class};

/// Diverts a packet before translation, if its session requires the diversion. Returns whether the packet was diverted.
/// A packet of a denied session is dropped. Any other packet is inspected first and then identified, so that
/// identification gets only inspected packets, in order. A packet that is not diverted gets the DSCP of its session.
#[inline(never)]
pub fn divert<F: Family>(
    slot: BufferIndex,
    layers: &Layers,
    (index, direction): (RecordIndex, Direction),
    session: &mut F::Session,
    lists: &mut Lists,
    (now, counters): (Now, &WorkerCounters),
    (packet, code_points, shard): (&mut Packet<'_>, Option<&Marks>, u16),
) -> bool {
    let inspect = session.inspect();
    let passed = lists.was_inspected(slot);
    if let InspectState::Denied(with) = inspect {
        // A packet refreshes the session of a denied flow. As long as packets arrive, the session continues to exist,
        // and the decision for the flow is not made again.
        if session.refreshes(direction) && !layers.flags.has(Flags::ICMP_ERROR) {
            session.track_mut().last_seen = now.stamp();
        }
        lists.reject(slot, filter::denied(with, layers));
        return true;
    }
    if session.adjacency(direction) == AdjacencyIndex::UNRESOLVED {
        // The packet may have no route. Session lookup checks that before the packet is diverted.
        return false;
    }
    if matches!(inspect, InspectState::Enabled | InspectState::Flow(_)) && !passed {
        put(lists.inspect.of::<F>(), (slot, index, direction));
        return true;
    }
    if session.application().is_open() && !lists.was_identified(slot) {
        put(lists.identify.of::<F>(), (slot, index, direction));
        return true;
    }
    if inspect == InspectState::Bypassed && !passed {
        counters.bypass_before(Skipped::Bypassed);
    }
    let kept = |code_points: &Marks| class_of(code_points.get::<F>(shard, index));
    if direction == Direction::Forward
        && let Some(class) = code_points.and_then(kept)
    {
        set_class::<F>(packet.bytes_mut(), layers, class);
    }
    false
}

//! Verdicts: which verdict a packet gets if it is not inspected, and how a verdict is applied to a packet.

use sluice_inspect::inspector::{FlowHandle, Verdict};
use sluice_inspect::{Reason, Skipped};
use sluice_wire::ipv4::protocol;
use sluice_wire::layers::{self, Fragment};
use sluice_wire::tcp::Reset;

use crate::features::inspection::classification::payload;
use crate::features::inspection::{InspectState, Inspector, Shed};
use crate::features::session_end::{SessionTools, log_end};
use crate::packet::batch::Batch;
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::Lists;
use crate::session::family::{Family, Session};
use crate::session::records::{EndReason, RecordSubject};
use crate::session::shard::Shard;

use super::fragments::{drop_reassembly, forward_fragment};
use super::{Packet, forward};

/// The verdict for a packet under overload. `None` means that the packet is inspected, in full or up to a reduced depth.
pub(super) fn shed<F: Family>(
    packet: &mut Packet<'_, F>,
    open: Option<FlowHandle>,
    shard: &mut Shard<'_>,
    work: &Inspector,
) -> Option<Verdict> {
    if !work.load.is_on() {
        return None;
    }
    match packet.inspection.overload.shed(&packet.ends) {
        Shed::Inspect => None,
        Shed::Less(depth) => {
            packet.settings.depth = match packet.settings.depth {
                0 => depth,
                usual => usual.min(depth),
            };
            let inspector = shard.inspector.as_deref_mut()?;
            let searched = inspector.cleared_bytes(open?)?;
            (searched >= depth).then_some(Verdict::Leave(Some(Skipped::Overload)))
        }
        Shed::Bypass if packet.session.protocol() == protocol::TCP => Some(Verdict::Leave(Some(Skipped::Overload))),
        Shed::Bypass => Some(Verdict::Skip(Skipped::Overload)),
        Shed::Drop => Some(Verdict::Drop(Reason::Overload)),
    }
}

/// Applies the verdict to a packet and to the other fragments of its datagram.
#[expect(
    clippy::too_many_arguments,
    reason = "what is said, of what, and everything that it is done with"
)]
pub(super) fn finish<F: Family>(
    packet: &Packet<'_, F>,
    verdict: Verdict,
    others: &[u32],
    shard: &mut Shard<'_>,
    batch: Option<&mut Batch<'_, '_>>,
    lists: &mut Lists,
    tools: &SessionTools<'_>,
    work: &mut Inspector,
) {
    let (slot, counters) = (packet.slot, tools.counters);
    let skipped = match verdict {
        Verdict::Pass | Verdict::Leave(None) => None,
        Verdict::Skip(cause) | Verdict::Leave(Some(cause)) => Some(cause),
        Verdict::Drop(reason) | Verdict::Reject(reason) => {
            log_drop(packet, shard, reason, tools);
            for &ticket in others {
                log_drop(packet, shard, reason, tools);
                drop_reassembly(ticket, reason, lists, work);
            }
            // A fragmented datagram has several buffers, so no reset or ICMP error can be made in a single buffer.
            let sends_reject = matches!(verdict, Verdict::Reject(_)) && packet.meta.layers.fragment == Fragment::Whole;
            return match packet.session.protocol() {
                _ if !sends_reject => lists.drop_packet(slot, reason),
                // The receiver gets the reset now. The sender gets a reset when it retransmits the unacknowledged segment.
                protocol::TCP if reason == Reason::Signature && batch.is_some_and(|batch| reset(slot, batch)) => {
                    if let Some(counters) = counters.interfaces.get(packet.meta.interface as usize) {
                        counters.drop(reason.into());
                        counters.originated.add(1);
                    }
                    forward::<F>(slot, lists);
                }
                protocol::TCP => lists.icmp_error(slot, IcmpError::Reset, reason),
                _ => lists.icmp_error(slot, IcmpError::Prohibited, reason),
            };
        }
    };
    let count = 1 + others.len() as u64;
    match skipped {
        None => counters.inspection.inspected.add(count),
        Some(cause) => counters.bypass(cause, count),
    }
    forward_fragment::<F>(slot, &packet.meta, others, lists, work);
    if matches!(verdict, Verdict::Leave(_)) {
        counters.inspection.bypassed_flows.add(1);
        leave::<F>(shard, packet, tools);
    }
}

/// Logs that a packet is dropped.
pub(super) fn log_drop<F: Family>(
    packet: &Packet<'_, F>,
    shard: &mut Shard<'_>,
    reason: Reason,
    tools: &SessionTools<'_>,
) {
    let (number, now, interface) = (shard.number, tools.now.nanoseconds, packet.meta.interface);
    let known = F::table_ref(shard).get(packet.index).map(Session::inspect);
    let summary = match (known, shard.inspector.as_deref_mut()) {
        (Some(InspectState::Flow(handle)), Some(inspector)) => inspector.summary(FlowHandle(handle)),
        _ => None,
    };
    let about = || match &summary {
        Some(summary) => {
            let about = RecordSubject::flow(now, number, summary, packet.direction)?;
            Some(RecordSubject { interface, ..about })
        }
        // The packet belongs to no flow.
        None => Some(RecordSubject::packet(now, 0, &packet.ends, interface)),
    };
    let rule = summary.and_then(|summary| summary.ended_by);
    let layers = &packet.meta.layers;
    let length = u32::from(layers.end.saturating_sub(layers.l3));
    tools.records.push_drop(about, reason, rule, length, tools.counters);
}

/// Turns a segment with data into a reset of its connection. Returns `false` if that is not possible.
fn reset(slot: BufferIndex, batch: &mut Batch<'_, '_>) -> bool {
    let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
    let packet = &mut batch.packets[slot as usize];
    let (start, end) = (usize::from(meta.layers.l4), usize::from(meta.layers.end));
    let segment = packet.bytes().get(start..end).unwrap_or_default();
    if payload(meta.layers.protocol, segment) == segment.len() || !Reset::replace(packet, &meta.layers) {
        return false;
    }
    let layers = layers::parse(packet.bytes());
    layers.map(|layers| meta.layers = layers).is_ok()
}

/// Ends the inspection of a flow.
fn leave<F: Family>(shard: &mut Shard<'_>, packet: &Packet<'_, F>, tools: &SessionTools<'_>) {
    let number = shard.number;
    let Some(session) = F::table(shard).get_mut(packet.index) else {
        return;
    };
    let before = session.inspect();
    session.set_inspect(InspectState::Bypassed);
    if let (InspectState::Flow(handle), Some(inspector)) = (before, shard.inspector.as_deref_mut()) {
        let handle = FlowHandle(handle);
        log_end::<F>(inspector, (number, handle), &packet.session, EndReason::Bypass, tools);
        inspector.remove_flow(handle);
    }
}

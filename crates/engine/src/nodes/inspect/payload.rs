//! Inspection of the payload of one packet.

use sluice_inspect::evaluate::PacketFields;
use sluice_inspect::inspector::{
    BurstContext, DetectionContext, FlowHandle, FlowPacket, Inspector as ShardInspector, InspectorCounters, RuleMatch,
    Verdict,
};
use sluice_inspect::stream::Exception;
use sluice_inspect::transactions::Transaction;
use sluice_inspect::{Reason, Skipped};
use sluice_wire::Direction;

use crate::features::inspection::classification::payload;
use crate::features::inspection::{Alert, AlertQueue};
use crate::features::session_end::SessionTools;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::counters::WorkerCounters;
use crate::packet::lists::Lists;
use crate::session::family::{Family, Session};
use crate::session::records::{RecordKind, RecordSubject, flow_number};
use crate::session::shard::Shard;

use super::Packet;
use super::verdict::log_drop;

/// State that is needed to inspect one packet.
pub(super) struct InspectContext<'a, 'm, F: Family> {
    pub(super) packet: &'a Packet<'a, F>,
    pub(super) handle: FlowHandle,
    pub(super) shard: &'a mut Shard<'m>,
    pub(super) now: u64,
    pub(super) counters: &'a WorkerCounters,
    /// State that is needed to end a flow and to log its end.
    pub(super) ends: &'a SessionTools<'a>,
}

impl<F: Family> InspectContext<'_, '_, F> {
    /// The verdict for a packet with this transport header and payload.
    pub(super) fn inspect_payload(
        &mut self,
        facts: PacketFields,
        segment: &mut [u8],
        tools: &mut DetectionContext,
        alerts: &mut AlertQueue,
    ) -> Verdict {
        let Packet {
            session,
            ends,
            meta,
            inspection,
            settings,
            direction,
            ..
        } = self.packet;
        let track = session.track();
        let (at, counters) = (self.now, self.counters);
        let (number, records) = (self.shard.number, self.ends.records);
        let Some(inspector) = self.shard.inspector.as_deref_mut() else {
            return Verdict::Skip(Skipped::NoMemory);
        };
        let mut note = |matched: RuleMatch| {
            let flow = flow_number(number, matched.flow);
            let alert = Alert {
                about: RecordSubject {
                    service: matched.service,
                    ..RecordSubject::packet(at, flow, ends, meta.interface)
                },
                rule: matched.rule,
                action: matched.action,
                packets: track.packets(),
                bytes: track.bytes(),
            };
            alerts.push(alert, counters);
        };
        // In protocol events, the client is always the first endpoint of the flow.
        let client = match direction {
            Direction::Forward => *ends,
            Direction::Reverse => ends.reversed(),
        };
        let mut said = |flow, transaction: &Transaction| {
            let about = RecordSubject {
                service: Some(transaction.service),
                ..RecordSubject::packet(at, flow_number(number, flow), &client, session.interface())
            };
            records.push(about, RecordKind::Transaction(*transaction), counters);
        };
        let mut round = BurstContext {
            settings,
            hosts: &inspection.rates,
            context: tools,
            now: at,
            matches: &mut note,
            log: &mut said,
        };
        let payload = payload(meta.layers.protocol, segment);
        let seen = FlowPacket {
            ends: *ends,
            fields: PacketFields {
                payload: (segment.len() - payload) as u32,
                ..facts
            },
            direction: *direction,
            segment,
            payload,
            own_side: is_own_side::<F>(session, *direction, meta.interface),
        };
        let before = inspector.counters;
        let urgent = inspector.streams().counters().urgent;
        let verdict = inspector.inspect(self.handle, seen, &mut round);
        report_progress(inspector, (before, urgent), counters);
        verdict
    }

    /// Drops the packet and logs the drop.
    pub(super) fn refuse(&mut self, reason: Reason, lists: &mut Lists) {
        log_drop(self.packet, self.shard, reason, self.ends);
        lists.drop_packet(self.packet.slot, reason);
    }

    /// The verdict for a packet that can't be inspected.
    pub(super) fn exception(&mut self, exception: Exception) -> Verdict {
        let Some(inspector) = self.shard.inspector.as_deref_mut() else {
            return Verdict::Skip(exception.into());
        };
        inspector.streams().count(exception);
        inspector.apply_policy(self.handle, exception, &self.packet.settings)
    }
}

/// Whether a packet arrived on the interface of its sender. The result is `false` only if the two endpoints have
/// different interfaces, the route to the server is known, and the packet arrived on the interface of the other
/// endpoint.
fn is_own_side<F: Family>(session: &F::Session, direction: Direction, interface: u16) -> bool {
    let [client, server] = [
        usize::from(session.interface()),
        session.adjacency(Direction::Forward).interface(),
    ];
    let other = match direction {
        Direction::Forward => server,
        Direction::Reverse => client,
    };
    client == server || server >= AdjacencyIndex::MAX_INTERFACES || usize::from(interface) != other
}

/// Adds the progress that a shard's inspector made for one packet to the counters of the worker. `before` and `urgent`
/// are the counts before the packet.
#[inline(always)]
fn report_progress(
    inspector: &mut ShardInspector<'_>,
    (before, urgent): (InspectorCounters, u64),
    counters: &WorkerCounters,
) {
    counters
        .inspection
        .searched
        .add(inspector.counters.searched - before.searched);
    counters
        .inspection
        .reopened
        .add(inspector.counters.rule_switches - before.rule_switches);
    counters
        .inspection
        .records_lost
        .add(inspector.counters.unlogged - before.unlogged);
    inspector.report_counts(
        |anomaly, count| counters.inspection.anomalies.add(anomaly, count),
        |limit, count| counters.inspection.limits.add(limit, count),
    );
    counters
        .inspection
        .urgent_cleared
        .add(inspector.streams().counters().urgent - urgent);
}

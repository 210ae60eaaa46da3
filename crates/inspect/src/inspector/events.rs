//! Events in TCP connections, and the rules that test them.

use super::buffers::PacketBuffers;
use super::detection::PacketDetection;
use super::{BurstContext, FlowAction, FlowHandle, FlowPacket, Inspector};
use crate::evaluate::BufferView;
use crate::stream::{SegmentKind, StreamEvent};

impl Inspector<'_> {
    /// Stream events that a segment causes.
    #[inline(always)]
    pub(super) fn step_events(
        &mut self,
        handle: FlowHandle,
        seen: &FlowPacket<'_>,
        step: SegmentKind,
        round: &mut BurstContext<'_>,
    ) {
        let rewritten = match step {
            SegmentKind::InOrder { rewritten, .. } | SegmentKind::OutOfOrder { rewritten, .. } => rewritten,
            SegmentKind::Retransmission { rewritten } => {
                if seen.segment.len() > seen.payload {
                    self.stream_event(handle, seen, StreamEvent::Retransmission, round);
                }
                rewritten
            }
            SegmentKind::Exception(exception) => {
                if let Some(event) = StreamEvent::of(exception) {
                    self.stream_event(handle, seen, event, round);
                }
                return;
            }
        };
        if rewritten > 0 {
            self.stream_event(handle, seen, StreamEvent::Differs, round);
        }
    }

    /// Evaluates the rules for a stream event with the packet that caused it.
    pub(super) fn stream_event(
        &mut self,
        handle: FlowHandle,
        seen: &FlowPacket<'_>,
        event: StreamEvent,
        round: &mut BurstContext<'_>,
    ) {
        let Some((flow, place)) = self.flows.get(handle) else {
            return;
        };
        let (rules, _, notes, lists) = self.rulesets.of(flow, place, round.now).parts(place);
        let of_event = rules.of_stream_event(event);
        if of_event.is_empty() || flow.action != FlowAction::Open {
            return;
        }
        let known = PacketBuffers {
            payload: BufferView {
                bytes: seen.segment.get(seen.payload..).unwrap_or_default(),
                base: 0,
                complete: true,
                is_final: true,
            },
            slot: None,
            unknown: false,
            ended: false,
        };
        let mut ends = seen.ends;
        ends.service = flow.service;
        let mut detection = PacketDetection {
            rules,
            hosts: round.hosts,
            second: (round.now / 1_000_000_000) as u32,
            ends: &ends,
            fields: &seen.fields,
            context: round.context,
            flow_vars: notes,
            pending: &mut flow.pending[seen.direction as usize],
            lists,
            action: &mut flow.action,
            stream: None,
            unknown: false,
            by_packet: true,
        };
        detection.evaluate_all(of_event, &known);
        detection.evaluate_blocked(&known);
    }
}

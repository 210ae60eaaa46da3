//! Buffers that rules inspect: the current message, the buffers of its protocol, and a single packet.

use sluice_wire::Direction;

use super::detection::PacketDetection;
use crate::evaluate::{BufferSource, BufferView};
use crate::prefilter::PatternClass;
use crate::protocols::{MessageEvent, Slot};
use crate::ruleset::PortSelection;
use crate::signature::Buffer;
use crate::stream::{self, Streams};

/// Evaluates packet rules.
pub(super) fn evaluate_packet_rules(
    detection: &mut PacketDetection<'_>,
    known: &PacketBuffers<'_>,
    class: PatternClass,
    of_ports: &PortSelection,
) {
    let rules = detection.rules;
    detection.by_packet = true;
    if let Some(group) = rules.prefilter().group(class)
        && !known.payload.bytes.is_empty()
    {
        detection.block(group, known.payload.bytes, known);
    }
    let single = rules.packet_rules(detection.ends.protocol);
    detection.evaluate_prechecked(single.always.iter(), known);
    detection.evaluate_of_ports(&single.by_port, of_ports, known);
    detection.evaluate_blocked(known);
}

/// Units of work charged when a buffer has grown, in addition to its new bytes, because a new search starts.
const GROWTH_COST: u32 = 128;
/// Units of work charged for the end of a message.
const END_COST: u32 = 64;

/// Finds and evaluates the rules for an event of a message: a buffer that has grown, or the end of the message.
pub(super) fn evaluate_message(
    detection: &mut PacketDetection<'_>,
    payload: BufferView<'_>,
    slot: Slot<'_>,
    piece: &MessageEvent,
) {
    let known = PacketBuffers {
        payload,
        slot: Some(slot),
        unknown: false,
        ended: *piece == MessageEvent::End,
    };
    match piece {
        MessageEvent::Anomaly(anomaly) => {
            let rules = detection.rules.of_anomaly(*anomaly);
            if detection.start_evaluation(0, rules.len()) {
                detection.evaluate_anomaly(rules, &known);
            }
        }
        MessageEvent::End => {
            let rules = detection.rules.message_rules();
            if detection.start_evaluation(END_COST, rules.len()) {
                evaluate_pending(detection, slot, None, &known);
                detection.evaluate_all(rules, &known);
            }
        }
        MessageEvent::Grew { buffer, fresh, .. } => {
            let units = match fresh.len() as u32 {
                0 => 0,
                bytes => GROWTH_COST + bytes,
            };
            if !detection.start_evaluation(units, 0) {
                return;
            }
            evaluate_pending(detection, slot, Some(*buffer), &known);
            let rules = detection.rules;
            // A request body counts as file data, too.
            let also = match buffer {
                Buffer::HttpClientBody => Some(Buffer::FileData),
                Buffer::FileData => Some(Buffer::HttpClientBody),
                _ => None,
            };
            for buffer in [Some(*buffer), also].into_iter().flatten() {
                let without_pattern = rules.prefilter().without_pattern(PatternClass::Buffer(buffer));
                if detection.start_evaluation(0, without_pattern.len()) {
                    detection.evaluate_all(without_pattern, &known);
                }
                let Some(group) = rules.prefilter().group(PatternClass::Buffer(buffer)) else {
                    continue;
                };
                let bytes = slot.buffer(buffer).bytes;
                let start = fresh.start.saturating_sub(group.overlap());
                if let Some(data) = bytes.get(start..fresh.end.min(bytes.len()))
                    && !data.is_empty()
                {
                    detection.block(group, data, &known);
                }
            }
        }
    }
    detection.evaluate_blocked(&known);
}

/// Evaluates the rules that wait for more data of a message. A message that arrived as a whole is skipped: its pending
/// rules are evaluated once for the packet, because the packet may contain many messages.
fn evaluate_pending(
    detection: &mut PacketDetection<'_>,
    slot: Slot<'_>,
    grown: Option<Buffer>,
    known: &PacketBuffers<'_>,
) {
    if !slot.is_whole() {
        detection.evaluate_pending(grown, known);
    }
}

/// Buffers that rules can inspect with the current packet.
pub(super) struct PacketBuffers<'a> {
    pub payload: BufferView<'a>,
    pub slot: Option<Slot<'a>>,
    /// Whether the protocol of the flow, which determines its set of buffers, may still be identified.
    pub unknown: bool,
    /// Whether the message has ended, so that missing buffers can no longer appear.
    pub ended: bool,
}

impl BufferSource for PacketBuffers<'_> {
    fn message(&self, buffer: Buffer) -> (usize, u32) {
        let slot = self.slot.as_ref().filter(|_| buffer != Buffer::Payload);
        slot.map_or((0, 0), Slot::identity)
    }

    fn view(&self, buffer: Buffer) -> Option<BufferView<'_>> {
        if buffer == Buffer::Payload {
            return Some(self.payload);
        }
        if buffer.transformed().is_some() {
            return None;
        }
        match &self.slot {
            Some(slot) => {
                let view = slot.buffer(buffer);
                Some(BufferView {
                    bytes: view.bytes,
                    base: view.base,
                    complete: view.complete || self.ended,
                    is_final: false,
                })
            }
            None => self.unknown.then_some(BufferView {
                bytes: &[],
                base: 0,
                complete: false,
                is_final: false,
            }),
        }
    }
}

/// The buffers of another source, except that the payload is replaced.
pub(super) struct WithPayload<'k, B> {
    pub buffers: &'k B,
    pub payload: BufferView<'k>,
}

impl<B: BufferSource> BufferSource for WithPayload<'_, B> {
    fn message(&self, buffer: Buffer) -> (usize, u32) {
        self.buffers.message(buffer)
    }

    fn view(&self, buffer: Buffer) -> Option<BufferView<'_>> {
        match buffer {
            Buffer::Payload => Some(self.payload),
            other => self.buffers.view(other),
        }
    }
}

/// The retained stream data of a direction.
pub(super) fn stream<'s>(
    streams: &'s Streams<'_>,
    stream: stream::StreamHandle,
    direction: Direction,
) -> BufferView<'s> {
    let view = streams.view(stream, direction);
    BufferView {
        bytes: view.bytes,
        base: view.offset,
        complete: false,
        is_final: false,
    }
}

/// The current message of a direction.
pub(super) fn message<'s>(
    streams: &'s Streams<'_>,
    stream: stream::StreamHandle,
    direction: Direction,
    complete: bool,
) -> BufferView<'s> {
    let view = streams.view(stream, direction);
    let skip = view.message.saturating_sub(view.offset) as usize;
    BufferView {
        bytes: view.bytes.get(skip..).unwrap_or_default(),
        base: view.offset.max(view.message) - view.message,
        complete,
        is_final: true,
    }
}

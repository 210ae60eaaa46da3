//! What rules can look at: the message as far as it has come, the buffers of its protocol, a packet by itself.

use sluice_wire::Direction;

use super::asking::Asking;
use crate::evaluate::{Buffers, View};
use crate::prefilter::Class;
use crate::protocols::{Piece, Slot};
use crate::ruleset::OfPorts;
use crate::signature::Buffer;
use crate::stream::{self, Streams};

/// Rules about single packets.
pub(super) fn by_packet(asking: &mut Asking<'_>, known: &Known<'_>, class: Class, of_ports: &OfPorts) {
    let rules = asking.rules;
    asking.by_packet = true;
    if let Some(group) = rules.prefilter().group(class)
        && !known.payload.bytes.is_empty()
    {
        asking.block(group, known.payload.bytes, known);
    }
    let single = rules.of_packet(asking.ends.protocol);
    asking.ask_listed(single.always.iter(), known);
    asking.ask_of_ports(&single.by_port, of_ports, known);
    asking.ask_blocked(known);
}

/// Units of work for a buffer that has grown, beside its bytes: a search begins anew.
const GREW: u32 = 128;
/// Units of work for the end of a message.
const ENDED: u32 = 64;

/// A buffer of a message has grown, or the message has ended: its rules are found and asked.
pub(super) fn piece_of_message(asking: &mut Asking<'_>, payload: View<'_>, slot: Slot<'_>, piece: &Piece) {
    let known = Known {
        payload,
        slot: Some(slot),
        unknown: false,
        ended: *piece == Piece::End,
    };
    match piece {
        Piece::Anomaly(anomaly) => {
            let rules = asking.rules.of_anomaly(*anomaly);
            if asking.begin_piece(0, rules.len()) {
                asking.ask_of_anomaly(rules, &known);
            }
        }
        Piece::End => {
            let rules = asking.rules.by_message();
            if asking.begin_piece(ENDED, rules.len()) {
                ask_waiting(asking, slot, None, &known);
                asking.ask_all(rules, &known);
            }
        }
        Piece::Grew { buffer, fresh, .. } => {
            let units = match fresh.len() as u32 {
                0 => 0,
                bytes => GREW + bytes,
            };
            if !asking.begin_piece(units, 0) {
                return;
            }
            ask_waiting(asking, slot, Some(*buffer), &known);
            let rules = asking.rules;
            // What a client sends as a body is a file, too.
            let also = match buffer {
                Buffer::HttpClientBody => Some(Buffer::FileData),
                Buffer::FileData => Some(Buffer::HttpClientBody),
                _ => None,
            };
            for buffer in [Some(*buffer), also].into_iter().flatten() {
                let unsearched = rules.prefilter().unsearched(Class::Buffer(buffer));
                if asking.begin_piece(0, unsearched.len()) {
                    asking.ask_all(unsearched, &known);
                }
                let Some(group) = rules.prefilter().group(Class::Buffer(buffer)) else {
                    continue;
                };
                let bytes = slot.buffer(buffer).bytes;
                let begin = fresh.start.saturating_sub(group.overlap());
                if let Some(data) = bytes.get(begin..fresh.end.min(bytes.len()))
                    && !data.is_empty()
                {
                    asking.block(group, data, &known);
                }
            }
        }
    }
    asking.ask_blocked(&known);
}

/// Ask the rules that wait for more of the message. None does if it came as a whole: what waits then is asked once, with the
/// packet, however many messages it brings.
fn ask_waiting(asking: &mut Asking<'_>, slot: Slot<'_>, grown: Option<Buffer>, known: &Known<'_>) {
    if !slot.is_whole() {
        asking.ask_waiting(grown, known);
    }
}

/// What rules can look at.
pub(super) struct Known<'a> {
    pub payload: View<'a>,
    pub slot: Option<Slot<'a>>,
    /// The protocol, and so its buffers, may still become known.
    pub unknown: bool,
    /// The message has ended: buffers that it does not have will not come.
    pub ended: bool,
}

impl Buffers for Known<'_> {
    fn message(&self, buffer: Buffer) -> (usize, u32) {
        let slot = self.slot.as_ref().filter(|_| buffer != Buffer::Payload);
        slot.map_or((0, 0), Slot::identity)
    }

    fn view(&self, buffer: Buffer) -> Option<View<'_>> {
        if buffer == Buffer::Payload {
            return Some(self.payload);
        }
        if buffer.transformed().is_some() {
            return None;
        }
        match &self.slot {
            Some(slot) => {
                let view = slot.buffer(buffer);
                Some(View {
                    bytes: view.bytes,
                    base: view.base,
                    complete: view.complete || self.ended,
                    ends_here: false,
                })
            }
            None => self.unknown.then_some(View {
                bytes: &[],
                base: 0,
                complete: false,
                ends_here: false,
            }),
        }
    }
}

/// The same, with another payload.
pub(super) struct WithPayload<'k, B> {
    pub buffers: &'k B,
    pub payload: View<'k>,
}

impl<B: Buffers> Buffers for WithPayload<'_, B> {
    fn message(&self, buffer: Buffer) -> (usize, u32) {
        self.buffers.message(buffer)
    }

    fn view(&self, buffer: Buffer) -> Option<View<'_>> {
        match buffer {
            Buffer::Payload => Some(self.payload),
            other => self.buffers.view(other),
        }
    }
}

/// What a direction has sent, as far as it is kept, and may go on with.
pub(super) fn stream<'s>(streams: &'s Streams<'_>, stream: stream::Handle, direction: Direction) -> View<'s> {
    let view = streams.view(stream, direction);
    View {
        bytes: view.bytes,
        base: view.offset,
        complete: false,
        ends_here: false,
    }
}

/// The current message of a direction.
pub(super) fn message<'s>(
    streams: &'s Streams<'_>,
    stream: stream::Handle,
    direction: Direction,
    complete: bool,
) -> View<'s> {
    let view = streams.view(stream, direction);
    let skip = view.message.saturating_sub(view.offset) as usize;
    View {
        bytes: view.bytes.get(skip..).unwrap_or_default(),
        base: view.offset.max(view.message) - view.message,
        complete,
        ends_here: true,
    }
}

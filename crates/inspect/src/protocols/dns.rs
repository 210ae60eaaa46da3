//! Questions of DNS messages (RFC 1035) over UDP and over TCP. Over TCP, a length precedes each message (RFC 7766).
//!
//! [`Buffer::DnsQuery`] contains one name at a time, which is complete when it is reported. A name consists of the
//! labels as sent, separated by dots; the name of the root is empty.

use super::anomaly::AnomalySet;
use super::writer::MessageWriter;
use super::{Anomaly, MessageEvent, ParserPools, Slot, SlotHandle};
use crate::signature::Buffer;

/// Maximum number of parsed questions of a message.
pub const QUESTIONS: usize = 16;
/// Number of retained bytes of a message over TCP. The questions are at the start of a message.
pub const MAX_RETAINED: usize = 512;
const HEADER: usize = 12;
const JUMPS: usize = 16;

/// A flow of DNS messages.
#[derive(Debug, Default)]
pub struct Dns {
    handle: Option<SlotHandle>,
    seen: AnomalySet,
}

impl Dns {
    /// Parses the message of a datagram.
    pub fn message(&mut self, store: &mut ParserPools, bytes: &[u8], sink: &mut impl FnMut(Slot<'_>, MessageEvent)) {
        let (handle, seen) = (self.handle, self.seen);
        let mut writer = MessageWriter {
            slots: &mut store.names,
            counts: &mut store.anomalies,
            handle,
            seen,
            sink,
        };
        writer.start(true);
        questions(bytes, false, &mut writer);
        writer.end();
        (self.handle, self.seen) = (writer.handle, writer.seen);
    }

    /// Slot of the last question.
    pub fn slot<'a>(&self, store: &'a ParserPools) -> Slot<'a> {
        self.handle
            .and_then(|handle| store.names.slot(handle))
            .unwrap_or(Slot::NO_SLOT)
    }

    /// Releases the slot after the message was evaluated, or at the end of the flow.
    pub fn release(&mut self, store: &mut ParserPools) {
        if let Some(handle) = self.handle.take() {
            store.names.release(handle);
        }
    }
}

/// One direction of a connection with DNS messages.
#[derive(Debug)]
pub struct DnsStream {
    dns: Dns,
    /// Number of received bytes of the length field and the message.
    at: usize,
    length: usize,
    kept: [u8; MAX_RETAINED],
}

impl Default for DnsStream {
    fn default() -> Self {
        Self {
            dns: Dns::default(),
            at: 0,
            length: 0,
            kept: [0; MAX_RETAINED],
        }
    }
}

impl DnsStream {
    /// Parses the next bytes of the stream.
    pub fn bytes(&mut self, store: &mut ParserPools, mut bytes: &[u8], sink: &mut impl FnMut(Slot<'_>, MessageEvent)) {
        while let Some(&first) = bytes.first() {
            if self.at < 2 {
                self.length = (self.length << 8 | usize::from(first)) & 0xffff;
                self.at += 1;
                bytes = &bytes[1..];
            } else {
                let taken = bytes.len().min(self.length + 2 - self.at);
                if let Some(capacity) = self.kept.get_mut(self.at - 2..) {
                    let fits = taken.min(capacity.len());
                    capacity[..fits].copy_from_slice(&bytes[..fits]);
                }
                self.at += taken;
                bytes = &bytes[taken..];
            }
            if self.at >= 2 && self.at == self.length + 2 {
                let (kept, cut) = (self.length.min(MAX_RETAINED), self.length > MAX_RETAINED);
                self.finish(store, kept, cut, sink);
            }
        }
    }

    fn finish(
        &mut self,
        store: &mut ParserPools,
        kept: usize,
        cut: bool,
        sink: &mut impl FnMut(Slot<'_>, MessageEvent),
    ) {
        let (handle, seen) = (self.dns.handle, self.dns.seen);
        let mut writer = MessageWriter {
            slots: &mut store.names,
            counts: &mut store.anomalies,
            handle,
            seen,
            sink,
        };
        writer.start(true);
        questions(&self.kept[..kept], cut, &mut writer);
        writer.end();
        (self.dns.handle, self.dns.seen) = (writer.handle, writer.seen);
        (self.at, self.length) = (0, 0);
    }

    /// Slot of the last question.
    pub fn slot<'a>(&self, store: &'a ParserPools) -> Slot<'a> {
        self.dns.slot(store)
    }

    /// Releases the slot after the message was evaluated, or at the end of the flow.
    pub fn release(&mut self, store: &mut ParserPools) {
        self.dns.release(store);
    }
}

/// Whether a message is a response. Returns false for a truncated header, too.
pub fn is_answer(message: &[u8]) -> bool {
    message.get(2).is_some_and(|flags| flags & 0x80 != 0)
}

fn questions<S: FnMut(Slot<'_>, MessageEvent)>(message: &[u8], cut: bool, writer: &mut MessageWriter<'_, S>) {
    let end_of_message = if cut { Anomaly::TooLong } else { Anomaly::BadDns };
    if message.len() < HEADER {
        return writer.anomaly(Anomaly::BadDns);
    }
    let count = u16::from_be_bytes([message[4], message[5]]) as usize;
    if count > QUESTIONS {
        writer.anomaly(Anomaly::TooLong);
    }
    let mut at = HEADER;
    for _ in 0..count.min(QUESTIONS) {
        writer.clear(Buffer::DnsQuery);
        match name(message, at, writer) {
            Ok(end) => at = end + 4,
            Err(Wrong::End) => return writer.anomaly(end_of_message),
            Err(Wrong::Pointer) => return writer.anomaly(Anomaly::DnsPointer),
        }
        writer.show(Buffer::DnsQuery);
        writer.complete(&[Buffer::DnsQuery]);
        writer.flush();
        if at > message.len() {
            return writer.anomaly(end_of_message);
        }
    }
}

enum Wrong {
    End,
    Pointer,
}

/// Copies the name at offset `at`, and returns the offset of its end. A compression pointer must refer to a position
/// before the name that contains it, and a name has at most 255 bytes, so parsing terminates.
fn name<S: FnMut(Slot<'_>, MessageEvent)>(
    message: &[u8],
    at: usize,
    writer: &mut MessageWriter<'_, S>,
) -> Result<usize, Wrong> {
    let (mut at, mut start, mut end, mut length, mut jumps) = (at, at, None, 0, 0);
    loop {
        let byte = *message.get(at).ok_or(Wrong::End)?;
        match byte >> 6 {
            0 if byte == 0 => return Ok(end.unwrap_or(at + 1)),
            0 => {
                let label = message.get(at + 1..at + 1 + usize::from(byte)).ok_or(Wrong::End)?;
                let dot: &[u8] = if length > 0 { b"." } else { b"" };
                length += 1 + label.len();
                if length > 254 {
                    return Err(Wrong::End);
                }
                writer.push(Buffer::DnsQuery, dot);
                writer.push(Buffer::DnsQuery, label);
                at += 1 + label.len();
            }
            3 => {
                let low = *message.get(at + 1).ok_or(Wrong::End)?;
                let target = usize::from(byte & 0x3f) << 8 | usize::from(low);
                end = end.or(Some(at + 2));
                jumps += 1;
                if target >= start || target < HEADER || jumps > JUMPS {
                    return Err(Wrong::Pointer);
                }
                (at, start) = (target, target);
            }
            _ => return Err(Wrong::Pointer),
        }
    }
}

//! Parses the lines of a message byte by byte: start line, header fields, and chunk headers.

use arrayvec::ArrayVec;

use super::RequestKind;
use super::fields::Field;
use super::side::{Event, Side, Step};
use super::uri::Target;
use crate::protocols::probe::is_token;
use crate::protocols::writer::MessageWriter;
use crate::protocols::{Anomaly, MessageEvent, Slot};
use crate::signature::Buffer;

const HTTP: &[u8] = b"HTTP/";
const LONGEST_METHOD: u32 = 32;
const LONGEST_CHUNK: u64 = 1 << 60;
/// Maximum number of skipped bytes before a status line.
const MAX_GARBAGE: usize = 4;

fn is_space(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

impl Side {
    /// Parses lines up to the next event or body.
    pub fn lines<S>(&mut self, bytes: &[u8], w: &mut MessageWriter<'_, S>) -> (usize, Option<Event>)
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        let mut header = self.is_in_header().then_some(0);
        let (mut at, mut event) = (0, None);
        while at < bytes.len() && event.is_none() && self.is_in_lines() {
            let run = self.run(&bytes[at..], w);
            if run > 0 {
                at += run;
                continue;
            }
            let taken;
            (taken, event) = self.byte(bytes[at], w);
            at += usize::from(taken);
            if header.is_none() && self.is_in_header() {
                header = Some(at);
            }
        }
        if let Some(start) = header {
            w.append(Buffer::HttpRawHeader, &bytes[start..at]);
        }
        (at, event)
    }

    /// Handles a run of bytes without special meaning.
    fn run<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, bytes: &[u8], w: &mut MessageWriter<'_, S>) -> usize {
        let ordinary = |byte: u8| !matches!(byte, b'\r' | b'\n' | 0 | b' ' | b'\t');
        let length = |means: &[u8]| {
            bytes
                .iter()
                .take_while(|&&byte| ordinary(byte) && !means.contains(&byte))
                .count()
        };
        if self.carriage {
            return 0;
        }
        match self.step {
            Step::Value => {
                let length = length(b"");
                if length > 0 {
                    self.value(&bytes[..length], w);
                }
                length
            }
            Step::Name if self.count == 0 => {
                let length = length(b":");
                bytes[..length]
                    .iter()
                    .for_each(|byte| self.spell(byte.to_ascii_lowercase()));
                w.push(Buffer::HttpHeader, &bytes[..length]);
                length
            }
            Step::Target if self.target.is_plain() => {
                let length = length(b"%?#\\");
                self.target.plain_bytes(&bytes[..length], w);
                length
            }
            _ => 0,
        }
    }

    fn is_in_header(&self) -> bool {
        matches!(self.step, Step::LineStart | Step::Name | Step::ValueStart | Step::Value)
    }

    fn is_in_lines(&self) -> bool {
        use Step::*;
        !matches!(self.step, Length | UntilClose | ChunkData | Opaque)
    }

    /// Handles one byte. Returns false if the byte belongs to the body.
    fn byte<S: FnMut(Slot<'_>, MessageEvent)>(
        &mut self,
        byte: u8,
        w: &mut MessageWriter<'_, S>,
    ) -> (bool, Option<Event>) {
        if self.step == Step::Start {
            if byte == b'\r' || byte == b'\n' {
                return (true, None);
            }
            self.start(w);
        }
        if self.step == Step::Protocol {
            return (self.protocol(byte, w), None);
        }
        if std::mem::take(&mut self.carriage) {
            if byte == b'\n' {
                return (true, self.line_end(w));
            }
            w.anomaly(Anomaly::BareCarriageReturn);
            self.plain(b'\r', w);
            if !self.is_in_lines() {
                return (false, None);
            }
        }
        match byte {
            b'\r' => {
                self.carriage = true;
                return (true, None);
            }
            b'\n' => {
                w.anomaly(Anomaly::BareLineFeed);
                return (true, self.line_end(w));
            }
            0 => w.anomaly(Anomaly::Nul),
            _ => {}
        }
        (self.plain(byte, w), None)
    }

    /// Matches `HTTP/` of a response.
    fn protocol<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, byte: u8, w: &mut MessageWriter<'_, S>) -> bool {
        let matched = self.count as usize;
        if byte.eq_ignore_ascii_case(&HTTP[matched]) {
            self.count += 1;
            self.spell(byte);
            if self.count as usize == HTTP.len() {
                if self.word.len() > HTTP.len() {
                    w.anomaly(Anomaly::JunkBeforeStatus);
                }
                self.start_word();
                self.step = Step::ProtocolVersion;
            }
            return true;
        }
        let garbage = self.word.len();
        let starts = byte.eq_ignore_ascii_case(&HTTP[0]);
        // The whole response to an HTTP/0.9 request is a body.
        if self.kind == RequestKind::Bare || garbage + usize::from(!starts) > MAX_GARBAGE {
            let start = std::mem::take(&mut self.word);
            self.no_status_line(&start, w);
            return false;
        }
        self.count = u32::from(starts);
        self.spell(byte);
        true
    }

    /// Handles a byte other than a line end. Returns false if the byte belongs to the body.
    fn plain<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, byte: u8, w: &mut MessageWriter<'_, S>) -> bool {
        match self.step {
            Step::Method if is_token(byte) && self.count < LONGEST_METHOD => {
                self.count += 1;
                self.spell(byte);
                w.append(Buffer::HttpMethod, &[byte]);
            }
            Step::Method if is_space(byte) && self.count > 0 => self.method(w),
            Step::Method => self.not_http(w),
            Step::Gap if is_space(byte) => {}
            Step::Gap | Step::Target if !is_space(byte) => {
                self.step = Step::Target;
                self.target.byte(byte, w);
            }
            Step::Gap | Step::Target => {
                (self.step, self.count) = (Step::Version, 0);
                self.start_word();
                self.spell(byte);
            }
            Step::Version => self.version(byte, w),
            Step::VersionNumber => self.version_number(byte, w),
            Step::ProtocolVersion if !is_space(byte) => self.spell(byte),
            Step::ProtocolVersion => {
                self.check_version(0, w);
                self.start_word();
                self.step = Step::Code;
            }
            Step::Code if !is_space(byte) => {
                self.spell(byte);
                w.append(Buffer::HttpStatusCode, &[byte]);
            }
            Step::Code if !self.word.is_empty() => (self.step, self.count) = (Step::Message, 0),
            Step::Message if !is_space(byte) => {
                self.count = 1;
                w.append(Buffer::HttpStatusMessage, &[byte]);
            }
            Step::Message if self.count > 0 => w.push(Buffer::HttpStatusMessage, &[byte]),
            Step::LineStart if self.line_open && is_space(byte) => self.fold(w),
            Step::LineStart => {
                self.end_header_line(w);
                if is_space(byte) {
                    w.anomaly(Anomaly::SpaceBeforeHeader);
                }
                self.step = Step::Name;
                self.start_word();
                self.count = 0;
                self.name(byte, w);
            }
            Step::Name => self.name(byte, w),
            Step::ValueStart if is_space(byte) => {}
            Step::ValueStart => {
                self.start_value(w);
                self.value(&[byte], w);
            }
            Step::Value if is_space(byte) => {
                self.spell(byte);
                self.each_target(|buffer| w.push(buffer, &[byte]));
            }
            Step::Value => self.value(&[byte], w),
            Step::ChunkSize => return self.chunk_size(byte, w),
            Step::ChunkEnd => return self.bad_chunk(w),
            Step::TrailerStart => self.step = Step::Trailer,
            _ => {}
        }
        true
    }

    /// Handles the end of a line.
    fn line_end<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, w: &mut MessageWriter<'_, S>) -> Option<Event> {
        match self.step {
            Step::Method | Step::Gap => self.not_http(w),
            Step::Target | Step::Version => {
                if self.step == Step::Version && self.count > 0 {
                    self.spill_into_target(w);
                }
                self.target.end(w);
                w.anomaly(Anomaly::NoVersion);
                self.kind = RequestKind::Bare;
                return Some(Event::Line);
            }
            Step::VersionNumber => {
                self.target.end(w);
                if self.check_version(HTTP.len(), w) == Some(b'2') {
                    self.not_http(w);
                    return None;
                }
                self.step = Step::LineStart;
                return Some(Event::Line);
            }
            Step::ProtocolVersion | Step::Code | Step::Message => {
                let code = if self.step == Step::ProtocolVersion {
                    &[][..]
                } else {
                    &self.word[..]
                };
                self.status = match *code {
                    [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
                        u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0')
                    }
                    _ => {
                        w.anomaly(Anomaly::BadStatus);
                        0
                    }
                };
                w.undo(Buffer::HttpStatusMessage);
                w.complete(&[Buffer::HttpStatusCode, Buffer::HttpStatusMessage]);
                self.step = Step::LineStart;
            }
            Step::LineStart => {
                self.end_header_line(w);
                // The empty line is part of the header buffer, because many rules search for the end of the headers.
                w.append(Buffer::HttpHeader, b"\r\n");
                return Some(Event::Headers);
            }
            Step::Name => {
                w.anomaly(Anomaly::HeaderWithoutColon);
                w.show(Buffer::HttpHeader);
                (self.field, self.value_started) = (Field::Other, true);
                (self.step, self.line_open) = (Step::LineStart, true);
            }
            Step::ValueStart | Step::Value => (self.step, self.line_open) = (Step::LineStart, true),
            Step::ChunkSize if self.count == 0 => _ = self.bad_chunk(w),
            Step::ChunkSize | Step::ChunkExtension => {
                self.step = if self.remaining > 0 {
                    Step::ChunkData
                } else {
                    Step::TrailerStart
                };
            }
            Step::ChunkEnd => (self.step, self.count, self.remaining) = (Step::ChunkSize, 0, 0),
            Step::TrailerStart => return Some(Event::End),
            Step::Trailer => self.step = Step::TrailerStart,
            _ => {}
        }
        None
    }

    fn start_word(&mut self) {
        self.word.clear();
        self.word_cut = false;
    }

    fn spell(&mut self, byte: u8) {
        self.word_cut |= self.word.try_push(byte).is_err();
    }

    fn method<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, w: &mut MessageWriter<'_, S>) {
        w.complete(&[Buffer::HttpMethod]);
        self.kind = match self.word.as_slice() {
            b"HEAD" => RequestKind::Head,
            b"CONNECT" => RequestKind::Connect,
            _ => RequestKind::Ordinary,
        };
        self.has_no_body = matches!(self.word.as_slice(), b"GET" | b"HEAD" | b"TRACE");
        self.target = Target::start(self.kind == RequestKind::Connect);
        self.step = Step::Gap;
    }

    /// Handles a byte after white space in the target. Either `HTTP/` or more of the target follows.
    fn version<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, byte: u8, w: &mut MessageWriter<'_, S>) {
        if byte.eq_ignore_ascii_case(&HTTP[self.count as usize]) {
            self.spell(byte);
            self.count += 1;
            if self.count as usize == HTTP.len() {
                self.step = Step::VersionNumber;
            }
            return;
        }
        if self.count > 0 || !is_space(byte) {
            self.spill_into_target(w);
        }
        if is_space(byte) {
            self.spell(byte);
        } else {
            self.step = Step::Target;
            self.target.byte(byte, w);
        }
    }

    /// Handles a byte of the version. If text follows the version, version and text belong to the target.
    fn version_number<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, byte: u8, w: &mut MessageWriter<'_, S>) {
        let over = self.word.last().is_some_and(|&last| is_space(last));
        if (is_space(byte) || !over) && !self.word.is_full() {
            return self.spell(byte);
        }
        let end = self.word.trim_ascii_end().len();
        let spaces: ArrayVec<u8, 64> = self.word.drain(end..).collect();
        self.spill_into_target(w);
        self.word = spaces;
        self.step = Step::Version;
        self.version(byte, w);
    }

    fn spill_into_target<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, w: &mut MessageWriter<'_, S>) {
        w.anomaly(Anomaly::SpaceInUri);
        for byte in std::mem::take(&mut self.word) {
            self.target.byte(byte, w);
        }
        self.count = 0;
    }

    /// Returns the first digit of the version. The version begins at offset `from` of the word.
    fn check_version<S: FnMut(Slot<'_>, MessageEvent)>(
        &mut self,
        from: usize,
        w: &mut MessageWriter<'_, S>,
    ) -> Option<u8> {
        let version = self.word.trim_ascii().get(from..).unwrap_or(&[]);
        match version {
            &[major @ b'0'..=b'9', b'.', minor @ b'0'..=b'9'] => {
                self.old = [major, minor] < *b"11";
                w.version(u16::from_be_bytes([major - b'0', minor - b'0']));
            }
            _ => w.anomaly(Anomaly::BadVersion),
        }
        version.first().copied()
    }

    /// Handles a byte of a field name, or the colon after it.
    fn name<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, byte: u8, w: &mut MessageWriter<'_, S>) {
        if is_space(byte) {
            self.count = self.count.saturating_add(1);
            return;
        }
        let spaces = std::mem::take(&mut self.count);
        if byte != b':' {
            for _ in 0..if self.word.is_empty() {
                0
            } else {
                spaces.min(self.word.remaining_capacity() as u32)
            } {
                self.spell(b' ');
                w.push(Buffer::HttpHeader, b" ");
            }
            self.spell(byte.to_ascii_lowercase());
            w.push(Buffer::HttpHeader, &[byte]);
            return;
        }
        if spaces > 0 {
            w.anomaly(Anomaly::SpaceBeforeColon);
        }
        self.field = if self.word_cut {
            Field::Other
        } else {
            Field::of(&self.word, self.client)
        };
        self.start_word();
        if self.field == Field::Cookie {
            w.undo(Buffer::HttpHeader);
        } else {
            w.append(Buffer::HttpHeader, b": ");
        }
        self.upgrade |= self.field == Field::Upgrade;
        if self.field == Field::Host {
            self.hosts = self.hosts.saturating_add(1);
            if self.hosts > 1 {
                w.anomaly(Anomaly::RepeatedHost);
            }
            if self.target.names_host {
                self.field = Field::Other;
            }
        }
        (self.step, self.value_started) = (Step::ValueStart, false);
    }

    /// Buffers to which the field's value is written.
    fn each_target(&self, mut to: impl FnMut(Buffer)) {
        if self.field != Field::Cookie {
            to(Buffer::HttpHeader);
        }
        if let Some(buffer) = self.field.buffer() {
            to(buffer);
        }
    }

    fn start_value<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, w: &mut MessageWriter<'_, S>) {
        self.step = Step::Value;
        if !std::mem::replace(&mut self.value_started, true)
            && let Some(buffer) = self.field.buffer()
        {
            w.join(buffer);
        }
    }

    /// Handles bytes of a value that are not white space.
    fn value<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, bytes: &[u8], w: &mut MessageWriter<'_, S>) {
        if self.field.is_read() {
            bytes.iter().for_each(|byte| self.spell(byte.to_ascii_lowercase()));
        }
        self.each_target(|buffer| w.append(buffer, bytes));
    }

    fn fold<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, w: &mut MessageWriter<'_, S>) {
        w.anomaly(Anomaly::FoldedHeader);
        if self.value_started {
            self.spell(b' ');
            self.each_target(|buffer| {
                w.undo(buffer);
                w.push(buffer, b" ");
            });
        }
        (self.step, self.line_open) = (Step::ValueStart, false);
    }

    /// Ends the preceding header line, if any.
    fn end_header_line<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, w: &mut MessageWriter<'_, S>) {
        if !std::mem::take(&mut self.line_open) {
            return;
        }
        self.each_target(|buffer| w.undo(buffer));
        if self.field != Field::Cookie {
            w.append(Buffer::HttpHeader, b"\r\n");
        }
        if self.field.is_read() {
            let value = self.word.trim_ascii();
            self.framing
                .field(self.field, value, self.word_cut, &mut |anomaly| w.anomaly(anomaly));
        }
        self.field = Field::Other;
    }

    fn chunk_size<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, byte: u8, w: &mut MessageWriter<'_, S>) -> bool {
        let started = self.count > 0;
        match (char::from(byte).to_digit(16), byte) {
            (Some(_), _) if self.remaining >= LONGEST_CHUNK >> 4 => return self.bad_chunk(w),
            (Some(digit), _) => {
                self.remaining = self.remaining << 4 | u64::from(digit);
                self.count = self.count.saturating_add(1);
                return true;
            }
            (None, b';' | b' ' | b'\t') if started => {
                self.step = Step::ChunkExtension;
                return true;
            }
            (None, b' ' | b'\t' | b'+') => {}
            (None, b'x' | b'X') if self.count == 1 && self.remaining == 0 => self.count = 0,
            (None, b'_') if started => {}
            (None, _) if started => self.step = Step::ChunkExtension,
            _ => return self.bad_chunk(w),
        }
        w.anomaly(Anomaly::OddChunkSize);
        true
    }

    /// Handles an invalid chunk header. The data after the header is treated as body. Returns false, because the current byte belongs to the body.
    fn bad_chunk<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, w: &mut MessageWriter<'_, S>) -> bool {
        w.anomaly(Anomaly::BadChunk);
        self.step = Step::UntilClose;
        false
    }
}

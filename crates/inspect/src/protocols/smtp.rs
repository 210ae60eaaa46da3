//! Parser of SMTP (RFC 5321) for the client's HELO name, sender and recipients, and for the files of messages, which
//! are decoded bodies and MIME parts (RFC 2045, RFC 2046).

use arrayvec::ArrayVec;

use super::anomaly::AnomalySet;
use super::writer::MessageWriter;
use super::{Anomaly, MessageEvent, ParserPools, Slot, SlotHandle};
use crate::signature::{Buffer, Toward};
use crate::source_quota::SlotPool;

/// Maximum number of bytes of a line processed at a time; a longer line is processed in several parts.
const MAX_LINE: usize = 1024;
/// Maximum number of bytes of a boundary (RFC 2046, section 5.1.1).
const MAX_BOUNDARY: usize = 70;
/// Maximum nesting depth of parts.
pub const MAX_DEPTH: usize = 4;

/// Encoding of a part (RFC 2045, section 6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Encoding {
    #[default]
    Plain,
    Base64,
    QuotedPrintable,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Commands,
    /// `STARTTLS` was sent: the following data may be TLS.
    StartTls,
    /// The header of a message or of a part.
    Header,
    /// Text between parts.
    Between,
    Body,
    /// The following data is no longer parsed.
    Opaque,
}

/// Memory for connections.
#[derive(Debug)]
pub struct MailSessions {
    all: Box<[MailSession]>,
    pub(super) places: SlotPool,
}

impl MailSessions {
    pub(super) fn new(count: u32) -> Self {
        Self {
            all: (0..count).map(|_| MailSession::default()).collect(),
            places: SlotPool::new(count),
        }
    }

    /// Number of free connections.
    pub fn available(&self) -> usize {
        self.places.available()
    }
}

/// A connection.
#[derive(Debug, Default)]
pub struct Smtp {
    place: Option<u32>,
    /// Set if no memory was free for the connection, which is therefore not parsed.
    lost: bool,
}

impl Smtp {
    /// Parses the next bytes of one side.
    pub fn bytes<S>(&mut self, store: &mut ParserPools, toward: Toward, bytes: &[u8], sink: &mut S)
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        if self.place.is_none() && !self.lost && !bytes.is_empty() {
            self.place = store.mail_sessions.places.allocate();
            match self
                .place
                .and_then(|place| store.mail_sessions.all.get_mut(place as usize))
            {
                Some(mail) => *mail = MailSession::default(),
                None => {
                    self.lost = true;
                    store.anomalies.add(Anomaly::NoSlot);
                }
            }
        }
        let Some(place) = self.place else { return };
        // Take the sessions out of the pools, because a session borrows the other pools.
        let mut all = std::mem::take(&mut store.mail_sessions.all);
        if let Some(mail) = all.get_mut(place as usize) {
            mail.bytes(store, toward, bytes, sink);
        }
        store.mail_sessions.all = all;
    }

    /// Slot of the message.
    pub fn slot<'a>(&self, store: &'a ParserPools) -> Slot<'a> {
        let mail = self.place.and_then(|place| store.mail_sessions.all.get(place as usize));
        mail.and_then(|mail| mail.handle)
            .and_then(|handle| store.messages.slot(handle))
            .unwrap_or(Slot::NO_SLOT)
    }

    /// Releases all resources at the end of the flow.
    pub fn release(&mut self, store: &mut ParserPools) {
        let Some(place) = self.place.take() else { return };
        if let Some(handle) = store
            .mail_sessions
            .all
            .get_mut(place as usize)
            .and_then(|mail| mail.handle.take())
        {
            store.messages.release(handle);
        }
        store.mail_sessions.places.release(place);
    }
}

/// The client's side of a connection.
#[derive(Debug, Default)]
struct MailSession {
    handle: Option<SlotHandle>,
    seen: AnomalySet,
    state: State,
    line: ArrayVec<u8, MAX_LINE>,
    /// Whether the current text continues an earlier part of its line.
    continued: bool,
    /// Whether `DATA` was sent, but no line of the message yet.
    required: bool,
    /// Whether the server's last reply line is incomplete.
    in_reply: bool,
    /// Remaining bytes of a chunk (RFC 3030), and whether it is the last chunk.
    chunk: u64,
    last: bool,
    /// Whether the message is sent in chunks. The lines between chunks are commands. A line of the message may continue
    /// in the next chunk.
    chunked: bool,
    chunk_continued: bool,
    /// A header field, unfolded.
    field: ArrayVec<u8, MAX_LINE>,
    encoding: Encoding,
    multipart: bool,
    boundaries: ArrayVec<ArrayVec<u8, MAX_BOUNDARY>, MAX_DEPTH>,
    /// Bits of Base64 data that do not form a complete byte yet.
    bits: u32,
    digits: u8,
}

impl MailSession {
    /// Parses the next bytes of one side.
    fn bytes<S>(&mut self, store: &mut ParserPools, toward: Toward, mut bytes: &[u8], sink: &mut S)
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        if toward == Toward::Client {
            return self.replies(bytes);
        }
        if bytes.is_empty() || self.state == State::Opaque {
            return;
        }
        let starts = self.handle.is_none() && !self.seen.has(Anomaly::NoSlot);
        let mut writer = MessageWriter {
            slots: &mut store.messages,
            counts: &mut store.anomalies,
            handle: self.handle,
            seen: self.seen,
            sink,
        };
        if starts {
            writer.start(false);
        }
        while let Some(&first) = bytes.first()
            && self.state != State::Opaque
        {
            if self.state == State::StartTls {
                self.state = if first == 22 { State::Opaque } else { State::Commands };
                continue;
            }
            let capacity = self.line.remaining_capacity();
            let max = match self.chunk {
                0 => bytes.len(),
                remaining => bytes.len().min(usize::try_from(remaining).unwrap_or(usize::MAX)),
            };
            let window = &bytes[..max.min(capacity)];
            let end = window.iter().position(|&byte| byte == b'\n').map(|end| end + 1);
            let taken = end.unwrap_or(window.len());
            let _ = self.line.try_extend_from_slice(&window[..taken]);
            bytes = &bytes[taken..];
            let in_chunk = self.chunk > 0;
            self.chunk -= if in_chunk { taken as u64 } else { 0 };
            let chunk_ends = in_chunk && self.chunk == 0;
            if end.is_some() || self.line.is_full() || chunk_ends {
                let line = std::mem::take(&mut self.line);
                let open = match in_chunk {
                    true => &mut self.chunk_continued,
                    false => &mut self.continued,
                };
                let continued = std::mem::replace(open, end.is_none());
                self.part_of_line(&line, continued, in_chunk, &mut writer);
                if chunk_ends && self.last {
                    self.message_ends(&mut writer);
                }
            }
        }
        writer.flush();
        (self.handle, self.seen) = (writer.handle, writer.seen);
    }

    /// Parses replies. The server refuses a message if it does not answer `DATA` with 354.
    fn replies(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if !self.in_reply && self.required && matches!(byte, b'4' | b'5') && self.line.is_empty() {
                (self.state, self.required) = (State::Commands, false);
            }
            self.in_reply = byte != b'\n';
        }
    }

    fn part_of_line<S>(&mut self, line: &[u8], continued: bool, chunk: bool, w: &mut MessageWriter<'_, S>)
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if !chunk && (self.state == State::Commands || self.chunked) {
            if !continued {
                self.command(text, w);
            }
            return;
        }
        self.required = false;
        if !chunk && !continued && text == b"." {
            return self.message_ends(w);
        }
        // If a line starts with two dots, the first dot is not part of the message (RFC 5321, section 4.5.2).
        let stuffed = !chunk && !continued && text.first() == Some(&b'.');
        let (line, text) = (&line[usize::from(stuffed)..], &text[usize::from(stuffed)..]);
        if !continued && self.state != State::Header && self.boundary(text, w) {
            return;
        }
        match self.state {
            State::Header => self.header(text, continued, w),
            State::Body => self.body(line, text, w),
            _ => {}
        }
    }

    fn command<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, line: &[u8], w: &mut MessageWriter<'_, S>) {
        let starts = |word: &[u8]| line.len() >= word.len() && line[..word.len()].eq_ignore_ascii_case(word);
        // The value ends at the next blank; parameters may follow it (RFC 5321, section 4.1.1.11).
        let value = |word: &[u8]| {
            let rest = line[word.len()..].trim_ascii_start();
            let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
            &rest[..end]
        };
        let mut report = |buffer, value: &[u8]| {
            w.clear(buffer);
            w.append(buffer, value);
            w.complete(&[buffer]);
            w.flush();
        };
        match () {
            () if starts(b"HELO ") || starts(b"EHLO ") => report(Buffer::SmtpHelo, line[5..].trim_ascii()),
            () if starts(b"MAIL FROM:") => {
                report(Buffer::SmtpMailFrom, value(b"MAIL FROM:"));
            }
            () if starts(b"RCPT TO:") => report(Buffer::SmtpRecipient, value(b"RCPT TO:")),
            () if line.trim_ascii().eq_ignore_ascii_case(b"DATA") => {
                self.start_message();
                self.required = true;
            }
            () if starts(b"BDAT ") => self.start_chunk(&line[5..], w),
            () if line.trim_ascii().eq_ignore_ascii_case(b"STARTTLS") => self.state = State::StartTls,
            () => {}
        }
    }

    /// `BDAT 1000`, `BDAT 86 LAST` (RFC 3030, section 2).
    fn start_chunk<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, value: &[u8], w: &mut MessageWriter<'_, S>) {
        let value = value.trim_ascii();
        let end = value.iter().position(|&byte| byte == b' ').unwrap_or(value.len());
        let size = std::str::from_utf8(&value[..end])
            .ok()
            .and_then(|digits| digits.parse().ok());
        self.last = value[end..].trim_ascii().eq_ignore_ascii_case(b"LAST");
        self.chunk = size.unwrap_or(0);
        if !self.chunked {
            self.start_message();
            self.chunked = true;
        }
        if self.chunk == 0 && self.last {
            self.message_ends(w);
        }
    }

    fn start_message(&mut self) {
        self.boundaries.clear();
        (self.chunked, self.chunk_continued) = (false, false);
        self.start_part();
    }

    fn start_part(&mut self) {
        self.state = State::Header;
        (self.encoding, self.multipart) = (Encoding::Plain, false);
        self.field.clear();
    }

    /// Ends a file; another file may follow.
    fn file_ends<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, w: &mut MessageWriter<'_, S>) {
        if self.state == State::Body {
            w.complete(&[Buffer::FileData]);
            w.flush();
        }
    }

    fn message_ends<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, w: &mut MessageWriter<'_, S>) {
        self.file_ends(w);
        w.end();
        (self.state, self.continued, self.chunked) = (State::Commands, false, false);
        self.boundaries.clear();
        self.field.clear();
    }

    /// Whether a line is a boundary. The innermost boundary is compared first.
    fn boundary<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, line: &[u8], w: &mut MessageWriter<'_, S>) -> bool {
        let Some(line) = line.strip_prefix(b"--") else {
            return false;
        };
        let found = self.boundaries.iter().rposition(|boundary| line.starts_with(boundary));
        let Some(place) = found else { return false };
        let closes = line[self.boundaries[place].len()..].starts_with(b"--");
        // The line end before a boundary belongs to the boundary (RFC 2046, section 5.1.1).
        if self.state == State::Body && self.encoding != Encoding::Base64 {
            w.file_ends_before_line_end();
        }
        self.file_ends(w);
        self.boundaries.truncate(if closes { place } else { place + 1 });
        match closes {
            true => self.state = State::Between,
            false => self.start_part(),
        }
        true
    }

    /// Handles a part of a header line.
    fn header<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, line: &[u8], continued: bool, w: &mut MessageWriter<'_, S>) {
        let folded = continued || matches!(line.first(), Some(b' ' | b'\t'));
        if !folded {
            self.field_ends(w);
        }
        let fits = line.len().min(self.field.remaining_capacity());
        let _ = self.field.try_extend_from_slice(&line[..fits]);
        if line.is_empty() && !continued {
            self.state = match self.multipart {
                true => State::Between,
                false => State::Body,
            };
            (self.bits, self.digits) = (0, 0);
            w.clear(Buffer::FileData);
        }
    }

    fn field_ends<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, w: &mut MessageWriter<'_, S>) {
        let field = std::mem::take(&mut self.field);
        let Some(colon) = field.iter().position(|&byte| byte == b':') else {
            return;
        };
        let (name, value) = (field[..colon].trim_ascii(), field[colon + 1..].trim_ascii());
        let starts = |word: &[u8]| value.len() >= word.len() && value[..word.len()].eq_ignore_ascii_case(word);
        if name.eq_ignore_ascii_case(b"content-transfer-encoding") {
            self.encoding = match () {
                () if starts(b"base64") => Encoding::Base64,
                () if starts(b"quoted-printable") => Encoding::QuotedPrintable,
                () => Encoding::Plain,
            };
        } else if name.eq_ignore_ascii_case(b"content-type") && starts(b"multipart/") && !self.multipart {
            let Some(boundary) = boundary_of(value) else { return };
            self.multipart = true;
            if self.boundaries.try_push(boundary).is_err() {
                w.anomaly(Anomaly::DeepMail);
            }
        }
    }

    /// Handles a part of a body line. `text` is the line without the line break.
    fn body<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, line: &[u8], text: &[u8], w: &mut MessageWriter<'_, S>) {
        match self.encoding {
            Encoding::Plain => w.body(line),
            Encoding::Base64 => {
                for &byte in text {
                    let Some(digit) = base64(byte) else { continue };
                    self.bits = self.bits << 6 | digit;
                    self.digits += 1;
                    // In each group of four digits, the second, third and fourth digit complete a byte.
                    if self.digits > 1 {
                        w.body(&[(self.bits >> (2 * (4 - self.digits))) as u8]);
                    }
                    self.digits %= 4;
                }
            }
            Encoding::QuotedPrintable => {
                let soft = text.last() == Some(&b'=');
                let mut rest = &text[..text.len() - usize::from(soft)];
                while let Some((&first, behind)) = rest.split_first() {
                    let digits = |pair: &[u8]| {
                        let [high, low] = [pair[0], pair[1]].map(|digit| char::from(digit).to_digit(16));
                        Some((high? << 4 | low?) as u8)
                    };
                    let escaped = (first == b'=').then(|| behind.get(..2).and_then(digits)).flatten();
                    match escaped {
                        Some(byte) => {
                            w.body(&[byte]);
                            rest = &behind[2..];
                        }
                        None => {
                            let plain = 1 + behind.iter().take_while(|&&byte| byte != b'=').count();
                            w.body(&rest[..plain]);
                            rest = &rest[plain..];
                        }
                    }
                }
                if !soft {
                    w.body(&line[text.len()..]);
                }
            }
        }
    }
}

fn base64(byte: u8) -> Option<u32> {
    Some(
        match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        }
        .into(),
    )
}

/// `boundary="…"` of a Content-Type.
fn boundary_of(value: &[u8]) -> Option<ArrayVec<u8, MAX_BOUNDARY>> {
    let name = b"boundary=";
    let start = value
        .windows(name.len())
        .position(|part| part.eq_ignore_ascii_case(name))?;
    let rest = &value[start + name.len()..];
    let boundary = match rest.strip_prefix(b"\"") {
        Some(quoted) => quoted.split(|&byte| byte == b'"').next()?,
        None => rest.split(|&byte| b"; \t".contains(&byte)).next()?,
    };
    (!boundary.is_empty()).then(|| boundary.iter().copied().take(MAX_BOUNDARY).collect())
}

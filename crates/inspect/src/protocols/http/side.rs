//! One direction of an HTTP connection. The state determines the message part to which the next bytes belong.

use arrayvec::ArrayVec;

use super::RequestKind;
use super::fields::{self, Field, Framing};
use super::uri::Target;
use crate::protocols::anomaly::AnomalySet;
use crate::protocols::inflate::{Decoding, Inflaters};
use crate::protocols::writer::MessageWriter;
use crate::protocols::{Anomaly, MessageEvent, ParserPools, Slot, SlotHandle};
use crate::signature::Buffer;

/// The expected part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Start,
    Method,
    /// White space between the method and the target.
    Gap,
    Target,
    /// White space after the target, and possibly `HTTP/`.
    Version,
    VersionNumber,
    /// `HTTP/` of a response.
    Protocol,
    ProtocolVersion,
    Code,
    Message,
    LineStart,
    Name,
    ValueStart,
    Value,
    Length,
    UntilClose,
    ChunkSize,
    ChunkExtension,
    ChunkData,
    ChunkEnd,
    TrailerStart,
    Trailer,
    Opaque,
}

/// The part of a message that has just ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The request line has ended.
    Line,
    /// The header block has ended.
    Headers,
    /// The body has ended.
    End,
}

const REQUEST_HEAD: &[Buffer] = &[
    Buffer::HttpMethod,
    Buffer::HttpUri,
    Buffer::HttpRawUri,
    Buffer::HttpHeader,
    Buffer::HttpRawHeader,
    Buffer::HttpHost,
    Buffer::HttpRawHost,
    Buffer::HttpCookie,
    Buffer::HttpUserAgent,
];
const RESPONSE_HEAD: &[Buffer] = &[
    Buffer::HttpStatusCode,
    Buffer::HttpStatusMessage,
    Buffer::HttpHeader,
    Buffer::HttpRawHeader,
    Buffer::HttpCookie,
];
const LONGEST_HOST: usize = 512;

/// One direction.
#[derive(Debug)]
pub(super) struct Side {
    pub client: bool,
    pub handle: Option<SlotHandle>,
    pub seen: AnomalySet,
    pub step: Step,
    pub kind: RequestKind,
    pub status: u16,
    pub target: Target,
    pub framing: Framing,
    /// Whether the last byte was a carriage return, which a line feed may follow.
    pub carriage: bool,
    /// The current name, or the value of a field that the parser evaluates.
    pub word: ArrayVec<u8, 64>,
    pub word_cut: bool,
    pub field: Field,
    /// Whether a header line was received. The next line may still continue the header line.
    pub line_open: bool,
    /// Whether the first part of the line's value was received.
    pub value_started: bool,
    pub hosts: u8,
    /// Whether the message requests an upgrade to another protocol.
    pub upgrade: bool,
    /// Whether the method needs no body.
    pub has_no_body: bool,
    /// Whether the version of the message is older than HTTP/1.1.
    pub old: bool,
    /// Number of bytes in the current part: method, literal, digits, or spaces.
    pub count: u32,
    /// Remaining bytes of the body or the chunk.
    pub remaining: u64,
    decoding: Option<Decoding>,
}

impl Side {
    pub fn new(client: bool) -> Self {
        Self {
            client,
            handle: None,
            seen: AnomalySet::default(),
            step: Step::Start,
            kind: RequestKind::Ordinary,
            status: 0,
            target: Target::default(),
            framing: Framing::default(),
            carriage: false,
            word: ArrayVec::new(),
            word_cut: false,
            field: Field::Other,
            line_open: false,
            value_started: false,
            hosts: 0,
            upgrade: false,
            has_no_body: false,
            old: false,
            count: 0,
            remaining: 0,
            decoding: None,
        }
    }

    /// Parses bytes up to the next event.
    pub fn advance<S>(
        &mut self,
        bytes: &[u8],
        pool: &mut Inflaters,
        w: &mut MessageWriter<'_, S>,
    ) -> (usize, Option<Event>)
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match self.step {
                Step::Opaque => break,
                Step::UntilClose => {
                    self.content(rest, pool, w);
                    at = bytes.len();
                }
                Step::Length | Step::ChunkData => {
                    let taken = rest.len().min(usize::try_from(self.remaining).unwrap_or(usize::MAX));
                    self.content(&rest[..taken], pool, w);
                    self.remaining -= taken as u64;
                    at += taken;
                    match self.step {
                        _ if self.remaining > 0 => {}
                        Step::Length => return (at, Some(Event::End)),
                        _ => self.step = Step::ChunkEnd,
                    }
                }
                _ => {
                    let (taken, event) = self.lines(rest, w);
                    at += taken;
                    if event.is_some() {
                        return (at, event);
                    }
                }
            }
        }
        (at, None)
    }

    fn content<S: FnMut(Slot<'_>, MessageEvent)>(
        &mut self,
        bytes: &[u8],
        pool: &mut Inflaters,
        w: &mut MessageWriter<'_, S>,
    ) {
        w.count(bytes.len());
        match &mut self.decoding {
            None => w.body(bytes),
            Some(decoding) => {
                let odd = decoding.feed(pool, bytes, &mut |decoded| w.body(decoded));
                odd.iter().for_each(|anomaly| w.anomaly(anomaly));
            }
        }
    }

    /// Begins a message.
    pub fn start<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, w: &mut MessageWriter<'_, S>) {
        w.start(self.client);
        let step = if self.client { Step::Method } else { Step::Protocol };
        *self = Self {
            step,
            kind: self.kind,
            decoding: self.decoding.take(),
            ..Self::new(self.client)
        };
    }

    /// Handles the end of the header block.
    pub fn headers<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, w: &mut MessageWriter<'_, S>) {
        if self.client {
            let (mut value, mut length) = ([0; LONGEST_HOST], 0);
            w.edit(Buffer::HttpRawHost, |raw| {
                length = fields::host(raw, &mut value);
                raw.len()
            });
            w.append(Buffer::HttpHost, &value[..length]);
        }
        w.complete(if self.client { REQUEST_HEAD } else { RESPONSE_HEAD });
    }

    /// Starts the body, if the message has one.
    pub fn start_body<S>(&mut self, request: bool, pool: &mut Inflaters, w: &mut MessageWriter<'_, S>)
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        let framing = std::mem::take(&mut self.framing);
        if framing.chunked && framing.length.is_some() {
            w.anomaly(Anomaly::LengthAndChunked);
        }
        if framing.chunked && self.old {
            w.anomaly(Anomaly::OldChunked);
        }
        if self.has_no_body && (framing.chunked || framing.length > Some(0)) {
            w.anomaly(Anomaly::RequestBody);
        }
        (self.count, self.remaining) = (0, framing.length.unwrap_or(0));
        self.step = match framing.length {
            _ if framing.chunked => {
                self.remaining = 0;
                Step::ChunkSize
            }
            Some(1..) => Step::Length,
            None if !request => Step::UntilClose,
            _ => return self.finish(pool, w),
        };
        let formats = framing.formats(&mut |anomaly| w.anomaly(anomaly));
        if !formats.is_empty() {
            self.decoding = Decoding::new(&formats, pool);
            if self.decoding.is_none() {
                w.anomaly(Anomaly::NoInflater);
            }
        }
    }

    /// Skips the body regardless of the header.
    pub fn no_body<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, pool: &mut Inflaters, w: &mut MessageWriter<'_, S>) {
        if self.framing.chunked || self.framing.length > Some(0) {
            w.anomaly(Anomaly::UnexpectedBody);
        }
        self.finish(pool, w);
    }

    /// Ends the message.
    pub fn finish<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, pool: &mut Inflaters, w: &mut MessageWriter<'_, S>) {
        if let Some(decoding) = self.decoding.take()
            && !decoding.release(pool)
        {
            w.anomaly(Anomaly::TruncatedEncoding);
        }
        w.complete(&[Buffer::FileData]);
        w.end();
        self.step = Step::Start;
    }

    /// Handles data that is not HTTP; the following data is not parsed.
    pub fn not_http<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, w: &mut MessageWriter<'_, S>) {
        w.anomaly(Anomaly::NotHttp);
        w.complete(REQUEST_HEAD);
        w.complete(&[Buffer::FileData]);
        w.end();
        self.step = Step::Opaque;
    }

    /// Handles data in place of a status line. `start` and all bytes after `start` are treated as a body.
    pub fn no_status_line<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, start: &[u8], w: &mut MessageWriter<'_, S>) {
        if self.kind != RequestKind::Bare {
            w.anomaly(Anomaly::ResponseNotHttp);
        }
        w.complete(RESPONSE_HEAD);
        w.count(start.len());
        w.body(start);
        self.step = Step::UntilClose;
    }

    /// Handles the end of the stream.
    pub fn close<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, pool: &mut Inflaters, w: &mut MessageWriter<'_, S>) {
        if self.step == Step::Protocol {
            let start = std::mem::take(&mut self.word);
            self.no_status_line(&start, w);
        }
        if !self.is_between() {
            if self.step != Step::UntilClose {
                w.anomaly(Anomaly::CutShort);
            }
            if matches!(self.step, Step::Target | Step::Version | Step::VersionNumber) {
                self.target.end(w);
            }
            if self.is_in_head() {
                self.headers(w);
            }
            self.finish(pool, w);
        }
        self.step = Step::Opaque;
    }

    fn is_in_head(&self) -> bool {
        use Step::*;
        let start = matches!(
            self.step,
            Method | Gap | Target | Version | VersionNumber | Protocol | ProtocolVersion
        );
        start || matches!(self.step, Code | Message | LineStart | Name | ValueStart | Value)
    }

    /// Whether no message is open.
    pub fn is_between(&self) -> bool {
        matches!(self.step, Step::Start | Step::Opaque)
    }

    /// Releases all resources.
    pub fn release(&mut self, store: &mut ParserPools) {
        if let Some(decoding) = self.decoding.take() {
            decoding.release(&mut store.inflaters);
        }
        if let Some(handle) = self.handle.take() {
            store.messages.release(handle);
        }
    }
}

//! Parser of HTTP/0.9, 1.0 and 1.1 (RFC 9112) for both directions of a connection. The parser is as lenient as servers
//! are.
//!
//! | buffer | of requests | of responses |
//! | --- | --- | --- |
//! | method, URIs, hosts, `User-Agent` | yes | |
//! | status code and message | | yes |
//! | headers, cookie (`Cookie`, `Set-Cookie`; several joined by `, `) | yes | yes |
//! | client body | yes: chunks joined, decoded | |
//! | file data | the same bytes | chunks joined, decoded |
//!
//! Header buffers are complete when the header block ends. Folded lines are joined by one space, white space around
//! values is removed, and every normalised line ends with CR LF; the raw header ends with the empty line. Trailers are
//! not stored in any buffer.
//!
//! A message keeps its slot until the next message of its direction begins, or until [`Http::release_ended`]. If no
//! slot is free, the message is parsed without a slot, so that the next message is found. [`Http::release`] must be
//! called at the end of the flow.

mod fields;
mod lines;
mod side;
mod uri;

use super::inflate::Inflaters;
use super::slots::Slot;
use super::writer::MessageWriter;
use super::{Anomaly, MessageEvent, ParserPools};
use side::{Event, Side, Step};

/// Kind of a request, which determines the format of the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RequestKind {
    #[default]
    Ordinary,
    Head,
    Connect,
    /// HTTP/0.9: the response has no header.
    Bare,
}

/// Requests without a response so far: two bits for the kind of each request, a bit for each upgrade request, and the
/// number of requests that did not fit.
#[derive(Debug, Default)]
struct RequestQueue {
    kinds: u64,
    upgrades: u32,
    length: u32,
    forgotten: u32,
}

impl RequestQueue {
    const QUEUE_CAPACITY: u32 = 32;

    /// Adds a request. Returns false if the queue is full.
    fn push(&mut self, kind: RequestKind) -> bool {
        if self.length == Self::QUEUE_CAPACITY || self.forgotten > 0 {
            self.forgotten = self.forgotten.saturating_add(1);
            return false;
        }
        self.kinds |= (kind as u64) << (2 * self.length);
        self.length += 1;
        true
    }

    fn front(&self) -> RequestKind {
        match self.kinds & 3 {
            _ if self.length == 0 => RequestKind::Ordinary,
            0 => RequestKind::Ordinary,
            1 => RequestKind::Head,
            2 => RequestKind::Connect,
            _ => RequestKind::Bare,
        }
    }

    /// Marks the last request as an upgrade request.
    fn upgrade(&mut self) {
        if self.forgotten == 0 && self.length > 0 {
            self.upgrades |= 1 << (self.length - 1);
        }
    }

    fn is_upgrade(&self) -> bool {
        self.upgrades & 1 != 0
    }

    fn is_empty(&self) -> bool {
        self.length == 0 && self.forgotten == 0
    }

    fn pop(&mut self) {
        if self.length > 0 {
            self.kinds >>= 2;
            self.upgrades >>= 1;
            self.length -= 1;
        } else {
            self.forgotten = self.forgotten.saturating_sub(1);
        }
    }
}

/// An HTTP connection.
#[derive(Debug)]
pub struct Http {
    request: Side,
    response: Side,
    queue: RequestQueue,
    tunnel: bool,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            request: Side::new(true),
            response: Side::new(false),
            queue: RequestQueue::default(),
            tunnel: false,
        }
    }
}

impl Http {
    /// Parses the next bytes of the client. Returns the number of parsed bytes. The remaining bytes are opaque: not
    /// HTTP, a tunnel, or another protocol after an upgrade.
    pub fn request<S>(&mut self, store: &mut ParserPools, bytes: &[u8], sink: &mut S) -> usize
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        let (mut writer, pool) = writer(store, &self.request, sink);
        let mut at = 0;
        loop {
            let (taken, event) = self.request.advance(&bytes[at..], pool, &mut writer);
            at += taken;
            match event {
                None => break,
                Some(Event::Line) => {
                    let kind = self.request.kind;
                    if !self.queue.push(kind) {
                        writer.anomaly(Anomaly::DeepPipeline);
                    }
                    if kind == RequestKind::Bare {
                        self.request.headers(&mut writer);
                        self.request.finish(pool, &mut writer);
                    }
                }
                Some(Event::Headers) => {
                    self.request.headers(&mut writer);
                    if self.request.upgrade {
                        self.queue.upgrade();
                    }
                    if self.request.kind == RequestKind::Connect {
                        // The client may send requests before the response arrives, and the response may refuse the
                        // tunnel, so these requests are parsed.
                        self.request.no_body(pool, &mut writer);
                    } else {
                        self.request.start_body(true, pool, &mut writer);
                    }
                }
                Some(Event::End) => self.request.finish(pool, &mut writer),
            }
        }
        writer.flush();
        (self.request.handle, self.request.seen) = (writer.handle, writer.seen);
        at
    }

    /// Parses the next bytes of the server. Returns the number of parsed bytes, as [`Http::request`] does.
    pub fn response<S>(&mut self, store: &mut ParserPools, bytes: &[u8], sink: &mut S) -> usize
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        let (mut writer, pool) = writer(store, &self.response, sink);
        let mut at = 0;
        loop {
            if matches!(self.response.step, Step::Start | Step::Protocol) {
                self.response.kind = self.queue.front();
            }
            let (taken, event) = self.response.advance(&bytes[at..], pool, &mut writer);
            at += taken;
            match event {
                None => break,
                Some(Event::Line) => {}
                Some(Event::Headers) => self.response_headers(pool, &mut writer),
                Some(Event::End) => self.response.finish(pool, &mut writer),
            }
        }
        writer.flush();
        (self.response.handle, self.response.seen) = (writer.handle, writer.seen);
        at
    }

    fn response_headers<S>(&mut self, pool: &mut Inflaters, writer: &mut MessageWriter<'_, S>)
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        let kind = self.queue.front();
        let upgrade = self.queue.is_upgrade();
        self.response.headers(writer);
        let changes = match self.response.status {
            101 if upgrade => true,
            // Some clients treat this response as final; other clients wait for another response.
            101 => {
                writer.anomaly(Anomaly::UnaskedUpgrade);
                false
            }
            // The final response follows this one.
            100..=199 => return self.response.no_body(pool, writer),
            200..=299 => kind == RequestKind::Connect,
            _ => false,
        };
        self.queue.pop();
        // If the client sent more data before the response, that data was parsed as HTTP and is not the start of the
        // tunnel.
        let tunnel = changes && self.queue.is_empty() && self.request.is_between();
        // Responses to HEAD, and 304 responses, state the length of a body that is not sent.
        let other = kind == RequestKind::Head || self.response.status == 304;
        if changes || other || self.response.status == 204 {
            match other {
                true => self.response.finish(pool, writer),
                false => self.response.no_body(pool, writer),
            }
            if tunnel {
                (self.request.step, self.response.step) = (Step::Opaque, Step::Opaque);
                self.tunnel = true;
            }
        } else {
            self.response.start_body(false, pool, writer);
        }
    }

    /// Handles the end of the client's stream: an incomplete message ends here.
    pub fn close_request<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, store: &mut ParserPools, sink: &mut S) {
        let (mut writer, pool) = writer(store, &self.request, sink);
        self.request.close(pool, &mut writer);
        (self.request.handle, self.request.seen) = (writer.handle, writer.seen);
    }

    /// Handles the end of the server's stream: a body without a length ends here.
    pub fn close_response<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, store: &mut ParserPools, sink: &mut S) {
        let (mut writer, pool) = writer(store, &self.response, sink);
        self.response.close(pool, &mut writer);
        (self.response.handle, self.response.seen) = (writer.handle, writer.seen);
    }

    /// Slot of the last request.
    pub fn request_slot<'a>(&self, store: &'a ParserPools) -> Slot<'a> {
        self.request
            .handle
            .and_then(|handle| store.messages.slot(handle))
            .unwrap_or(Slot::NO_SLOT)
    }

    /// Slot of the last response.
    pub fn response_slot<'a>(&self, store: &'a ParserPools) -> Slot<'a> {
        self.response
            .handle
            .and_then(|handle| store.messages.slot(handle))
            .unwrap_or(Slot::NO_SLOT)
    }

    /// Whether client and server have switched to another protocol, by CONNECT or an upgrade. The other protocol starts
    /// at the first byte that this parser does not parse.
    pub fn is_tunnel(&self) -> bool {
        self.tunnel
    }

    /// Whether the client's bytes are no longer parsed.
    pub fn is_request_opaque(&self) -> bool {
        self.request.step == Step::Opaque
    }

    /// Whether the server's bytes are no longer parsed.
    pub fn is_response_opaque(&self) -> bool {
        self.response.step == Step::Opaque
    }

    /// Marks the files of the current messages as incomplete.
    pub(super) fn mark_incomplete(&mut self, store: &mut ParserPools) {
        for handle in [self.request.handle, self.response.handle].into_iter().flatten() {
            store.messages.file_incomplete(handle);
        }
    }

    /// Releases the slots of messages that have ended, after they were evaluated. The start of the next message also
    /// releases the slots of ended messages.
    pub fn release_ended(&mut self, store: &mut ParserPools) {
        for side in [&mut self.request, &mut self.response] {
            if side.is_between() {
                side.release(store);
            }
        }
    }

    /// Releases all resources at the end of the flow.
    pub fn release(&mut self, store: &mut ParserPools) {
        self.request.release(store);
        self.response.release(store);
    }
}

fn writer<'a, S>(
    store: &'a mut ParserPools,
    side: &Side,
    sink: &'a mut S,
) -> (MessageWriter<'a, S>, &'a mut Inflaters) {
    let (slots, counts) = (&mut store.messages, &mut store.anomalies);
    (
        MessageWriter {
            slots,
            counts,
            handle: side.handle,
            seen: side.seen,
            sink,
        },
        &mut store.inflaters,
    )
}

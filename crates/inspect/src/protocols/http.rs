//! HTTP/0.9, 1.0 and 1.1 (RFC 9112), both directions of a connection, as lenient as servers are.
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
//! values is taken off, and every normalised line ends with CR LF; the raw header ends with the empty line. Trailers are
//! in no buffer.
//!
//! A message keeps its slot until the next one of its direction begins, or [`Http::settle`]; one that got none is
//! followed all the same, so that the next is found. [`Http::release`] must be called when the flow ends.

mod fields;
mod lines;
mod side;
mod uri;

use super::inflate::Inflaters;
use super::slots::Slot;
use super::writer::MessageWriter;
use super::{Anomaly, MessageEvent, ParserPools};
use side::{Event, Side, Step};

/// What a request says about the form of its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RequestKind {
    #[default]
    Ordinary,
    Head,
    Connect,
    /// HTTP/0.9: the response has no header.
    Bare,
}

/// Requests that wait for responses: two bits each, a bit for each that asks for another protocol, and the number of those
/// that found no room.
#[derive(Debug, Default)]
struct RequestQueue {
    kinds: u64,
    upgrades: u32,
    length: u32,
    forgotten: u32,
}

impl RequestQueue {
    const QUEUE_CAPACITY: u32 = 32;

    /// False where it is full.
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

    /// The headers of the last request are over, and ask for another protocol.
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
    /// Bytes that the client sent, in order. Returns how many were parsed: fewer than given where the rest is opaque
    /// (not HTTP, a tunnel, another protocol after an upgrade).
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
                        // What follows may come before the answer, which may refuse the tunnel: requests are parsed there.
                        self.request.no_body(pool, &mut writer);
                    } else {
                        self.request.body_begins(true, pool, &mut writer);
                    }
                }
                Some(Event::End) => self.request.finish(pool, &mut writer),
            }
        }
        writer.flush();
        (self.request.handle, self.request.seen) = (writer.handle, writer.seen);
        at
    }

    /// Bytes that the server sent, in order; as [`Http::request`].
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
            // Some take it for the response, others wait for another.
            101 => {
                writer.anomaly(Anomaly::UnaskedUpgrade);
                false
            }
            // The response proper follows.
            100..=199 => return self.response.no_body(pool, writer),
            200..=299 => kind == RequestKind::Connect,
            _ => false,
        };
        self.queue.pop();
        // A client that has gone on before it had the answer has begun what it says in the tunnel as HTTP.
        let tunnel = changes && self.queue.is_empty() && self.request.is_between();
        // In answers to HEAD, and that say that nothing is new, a length is that of another response.
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
            self.response.body_begins(false, pool, writer);
        }
    }

    /// The client will send no more: a message that is not over is complete as it is.
    pub fn close_request<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, store: &mut ParserPools, sink: &mut S) {
        let (mut writer, pool) = writer(store, &self.request, sink);
        self.request.close(pool, &mut writer);
        (self.request.handle, self.request.seen) = (writer.handle, writer.seen);
    }

    /// The server will send no more: a body without a length ends here.
    pub fn close_response<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, store: &mut ParserPools, sink: &mut S) {
        let (mut writer, pool) = writer(store, &self.response, sink);
        self.response.close(pool, &mut writer);
        (self.response.handle, self.response.seen) = (writer.handle, writer.seen);
    }

    /// What is known of the last request.
    pub fn request_slot<'a>(&self, store: &'a ParserPools) -> Slot<'a> {
        self.request
            .handle
            .and_then(|handle| store.messages.slot(handle))
            .unwrap_or(Slot::NO_SLOT)
    }

    /// What is known of the last response.
    pub fn response_slot<'a>(&self, store: &'a ParserPools) -> Slot<'a> {
        self.response
            .handle
            .and_then(|handle| store.messages.slot(handle))
            .unwrap_or(Slot::NO_SLOT)
    }

    /// Both sides have gone over to another protocol, by CONNECT or an upgrade: it begins with what is not parsed here.
    pub fn is_tunnel(&self) -> bool {
        self.tunnel
    }

    /// What the client sends is not parsed any more.
    pub fn is_request_opaque(&self) -> bool {
        self.request.step == Step::Opaque
    }

    /// What the server sends is not parsed any more.
    pub fn is_response_opaque(&self) -> bool {
        self.response.step == Step::Opaque
    }

    /// The current messages are not whole.
    pub(super) fn mark_incomplete(&mut self, store: &mut ParserPools) {
        for handle in [self.request.handle, self.response.handle].into_iter().flatten() {
            store.messages.file_incomplete(handle);
        }
    }

    /// The slots of messages that ended go back: they were evaluated. The next message does the same.
    pub fn release_ended(&mut self, store: &mut ParserPools) {
        for side in [&mut self.request, &mut self.response] {
            if side.is_between() {
                side.release(store);
            }
        }
    }

    /// Everything goes back: the flow ended.
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

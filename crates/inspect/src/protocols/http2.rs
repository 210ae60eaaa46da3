//! Parser of HTTP/2 (RFC 9113) in clear text. The parser decodes frames and header blocks, and passes each stream as a
//! message to an HTTP/1 parser. Buffers and decoding of bodies are therefore the same in HTTP/1 and HTTP/2.
//!
//! A request with a body gets `Transfer-Encoding: chunked`. `content-length` and `transfer-encoding` are omitted, because
//! the frames alone determine where a message ends. Bytes in a field that would end an HTTP/1 line are replaced by blanks.

mod hpack;
mod huffman;

use arrayvec::ArrayVec;
use hpack::{Table, Text};

use super::http::Http;
use super::probe::{PREFACE, is_token};
use super::{Anomaly, MessageEvent, ParserPools, Slot};
use crate::signature::Toward;
use crate::source_quota::SlotPool;

/// Maximum number of tracked streams of a connection.
pub const STREAMS: usize = 32;
/// Maximum number of bytes of a header block, with its continuations.
pub const BLOCK: usize = 8 << 10;
/// Number of decoded field bytes that a direction may produce initially.
const FIELDS: usize = 64 << 10;
/// Number of additional decoded field bytes that each sent byte of a direction permits.
const RATIO: usize = 64;
/// Maximum number of field bytes of one message that are passed to the HTTP/1 parser.
const LINES: usize = 32 << 10;
/// Maximum number of bytes of a request target that are passed to the HTTP/1 parser.
const TARGET: usize = 8 << 10;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// One direction.
#[derive(Debug)]
struct Half {
    /// Remaining bytes of the preface.
    preface: usize,
    /// Whether parsing of this direction has ended.
    dead: bool,
    frame: ArrayVec<u8, 9>,
    kind: u8,
    flags: u8,
    stream: u32,
    length: u32,
    /// Number of remaining bytes of the frame, of its padding, and of the bytes before its content.
    remaining: u32,
    padding: u32,
    before: u32,
    /// Whether the next byte is the pad length.
    padded: bool,
    /// State of a header block: whether it is open, its stream, and whether it ends the stream or is a push promise.
    open: bool,
    block_stream: u32,
    ends: bool,
    promise: bool,
    block: ArrayVec<u8, BLOCK>,
    table: Table,
    budget: usize,
}

impl Half {
    fn start(&mut self, preface: usize) {
        (self.preface, self.dead, self.remaining, self.padding, self.before) = (preface, false, 0, 0, 0);
        (self.padded, self.open, self.budget) = (false, false, FIELDS);
        self.frame.clear();
        self.block.clear();
        self.table.clear();
    }
}

impl Default for Half {
    fn default() -> Self {
        Self {
            preface: 0,
            dead: false,
            frame: ArrayVec::new(),
            kind: 0,
            flags: 0,
            stream: 0,
            length: 0,
            remaining: 0,
            padding: 0,
            before: 0,
            padded: false,
            open: false,
            block_stream: 0,
            ends: false,
            promise: false,
            block: ArrayVec::new(),
            table: Table::default(),
            budget: 0,
        }
    }
}

/// A stream: its request and its response.
#[derive(Debug, Default)]
struct Stream {
    id: u32,
    http: Http,
    /// For the request and the response: whether the header was received, and whether the message has ended.
    started: [bool; 2],
    ended: [bool; 2],
}

#[derive(Debug, Default)]
struct Connection {
    sides: [Half; 2],
    streams: ArrayVec<Stream, STREAMS>,
    /// The stream of the last frame of each direction.
    latest: [u32; 2],
}

/// Memory for connections, and buffers that the connections share while packets are parsed.
#[derive(Debug)]
pub struct Connections {
    all: Box<[Connection]>,
    pub(super) places: SlotPool,
    shared: Shared,
}

#[derive(Debug, Default)]
struct Shared {
    name: Text,
    value: Text,
    target: Vec<u8>,
    lines: Vec<u8>,
}

impl Connections {
    pub(super) fn new(count: u32) -> Self {
        Self {
            all: (0..count).map(|_| Connection::default()).collect(),
            places: SlotPool::new(count),
            shared: Shared {
                name: Text::new(),
                value: Text::new(),
                target: Vec::with_capacity(TARGET),
                lines: Vec::with_capacity(LINES),
            },
        }
    }

    /// Number of free connections.
    pub fn available(&self) -> usize {
        self.places.available()
    }
}

/// An HTTP/2 connection.
#[derive(Debug, Default)]
pub struct Http2 {
    place: Option<u32>,
    /// Set if no memory was free for the connection, which is therefore not parsed.
    lost: bool,
}

impl Http2 {
    /// Parses the next bytes of one direction.
    pub fn bytes<S>(&mut self, store: &mut ParserPools, toward: Toward, bytes: &[u8], sink: &mut S)
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        if self.place.is_none() && !self.lost && !bytes.is_empty() {
            self.place = store.connections.places.allocate();
            match self
                .place
                .and_then(|place| store.connections.all.get_mut(place as usize))
            {
                Some(connection) => {
                    connection.sides[0].start(PREFACE.len());
                    connection.sides[1].start(0);
                    connection.latest = [0; 2];
                }
                None => {
                    self.lost = true;
                    store.anomalies.add(Anomaly::NoSlot);
                }
            }
        }
        let Some(place) = self.place else { return };
        // Take the connections out of the pools, because the parsers of the streams borrow the other pools.
        let mut all = std::mem::take(&mut store.connections.all);
        let mut shared = std::mem::take(&mut store.connections.shared);
        if let Some(connection) = all.get_mut(place as usize) {
            connection.bytes(store, &mut shared, toward, bytes, sink);
            store.messages.stream = 0;
        }
        (store.connections.all, store.connections.shared) = (all, shared);
    }

    /// Slot of the message of a direction's last frame.
    pub fn slot<'a>(&self, store: &'a ParserPools, toward: Toward) -> Slot<'a> {
        let connection = self.place.and_then(|place| store.connections.all.get(place as usize));
        let stream = connection.and_then(|connection| {
            let id = connection.latest[toward as usize];
            connection.streams.iter().find(|stream| stream.id == id)
        });
        stream.map_or(Slot::NO_SLOT, |stream| match toward {
            Toward::Server => stream.http.request_slot(store),
            Toward::Client => stream.http.response_slot(store),
        })
    }

    /// Releases all resources at the end of the flow.
    pub fn release(&mut self, store: &mut ParserPools) {
        let Some(place) = self.place.take() else { return };
        let mut all = std::mem::take(&mut store.connections.all);
        if let Some(connection) = all.get_mut(place as usize) {
            for mut stream in connection.streams.drain(..) {
                stream.http.release(store);
            }
        }
        store.connections.all = all;
        store.connections.places.release(place);
    }
}

impl Connection {
    fn bytes<S>(&mut self, store: &mut ParserPools, shared: &mut Shared, toward: Toward, mut bytes: &[u8], sink: &mut S)
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        while !bytes.is_empty() && !self.sides[toward as usize].dead {
            let side = &mut self.sides[toward as usize];
            let taken = if side.preface > 0 {
                let taken = bytes.len().min(side.preface);
                side.preface -= taken;
                taken
            } else if !side.frame.is_full() {
                let taken = bytes.len().min(side.frame.remaining_capacity());
                side.frame.extend(bytes[..taken].iter().copied());
                if side.frame.is_full() {
                    self.start_frame(store, toward, sink);
                }
                taken
            } else {
                self.content(store, toward, bytes, sink)
            };
            bytes = &bytes[taken..];
            let side = &self.sides[toward as usize];
            if side.frame.is_full() && side.remaining == 0 && !side.dead {
                self.frame_ends(store, shared, toward, sink);
            }
        }
    }

    /// Stops parsing a direction.
    fn fail<S: FnMut(Slot<'_>, MessageEvent)>(
        &mut self,
        store: &mut ParserPools,
        toward: Toward,
        anomaly: Anomaly,
        sink: &mut S,
    ) {
        self.sides[toward as usize].dead = true;
        store.anomalies.add(anomaly);
        sink(Slot::NO_SLOT, MessageEvent::Anomaly(anomaly));
    }

    /// Handles the header of a frame (section 4.1).
    fn start_frame<S>(&mut self, store: &mut ParserPools, toward: Toward, sink: &mut S)
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        let side = &mut self.sides[toward as usize];
        let Ok([a, b, c, kind, flags, d, e, f, g]) = side.frame.as_slice().try_into().map(|header: [u8; 9]| header)
        else {
            return;
        };
        (side.kind, side.flags) = (kind, flags);
        side.length = u32::from_be_bytes([0, a, b, c]);
        side.remaining = side.length;
        side.stream = u32::from_be_bytes([d & 0x7f, e, f, g]);
        side.padded = matches!(kind, DATA | HEADERS | PUSH_PROMISE) && flags & PADDED != 0;
        side.padding = 0;
        side.before = match kind {
            HEADERS if flags & PRIORITY != 0 => 5,
            PUSH_PROMISE => 4,
            _ => 0,
        };
        let continues = kind == CONTINUATION && side.stream == side.block_stream;
        if side.open != (kind == CONTINUATION) || side.open && !continues {
            // No other frame is allowed between a header block and its continuation (section 6.10).
            return self.fail(store, toward, Anomaly::BadFrame, sink);
        }
        if matches!(kind, HEADERS | PUSH_PROMISE) {
            (side.open, side.block_stream) = (true, side.stream);
            side.ends = kind == HEADERS && flags & END_STREAM != 0;
            side.promise = kind == PUSH_PROMISE;
            side.block.clear();
        }
        if side.remaining < u32::from(side.padded) + side.before {
            self.fail(store, toward, Anomaly::BadFrame, sink);
        }
    }

    /// Parses bytes of a frame. Returns the number of consumed bytes.
    fn content<S>(&mut self, store: &mut ParserPools, toward: Toward, bytes: &[u8], sink: &mut S) -> usize
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        let side = &mut self.sides[toward as usize];
        if std::mem::take(&mut side.padded) {
            side.remaining -= 1;
            side.padding = bytes[0].into();
            if side.padding + side.before > side.remaining {
                self.fail(store, toward, Anomaly::BadFrame, sink);
            }
            return 1;
        }
        if side.before > 0 {
            let taken = bytes.len().min(side.before as usize);
            side.before -= taken as u32;
            side.remaining -= taken as u32;
            return taken;
        }
        let content = side.remaining.saturating_sub(side.padding) as usize;
        if content == 0 {
            let taken = bytes.len().min(side.remaining as usize);
            side.remaining -= taken as u32;
            side.padding = side.padding.min(side.remaining);
            return taken;
        }
        let taken = bytes.len().min(content);
        side.remaining -= taken as u32;
        let (kind, id) = (side.kind, side.stream);
        match kind {
            HEADERS | PUSH_PROMISE | CONTINUATION if side.block.try_extend_from_slice(&bytes[..taken]).is_err() => {
                self.fail(store, toward, Anomaly::HeaderFlood, sink);
            }
            DATA => self.data(store, toward, id, &bytes[..taken], sink),
            _ => {}
        }
        taken
    }

    fn data<S>(&mut self, store: &mut ParserPools, toward: Toward, id: u32, bytes: &[u8], sink: &mut S)
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) else {
            return;
        };
        let place = toward as usize;
        if !stream.started[place] || stream.ended[place] {
            return;
        }
        self.latest[place] = id;
        store.messages.stream = id;
        match toward {
            Toward::Server => {
                let mut size = ArrayVec::<u8, 10>::new();
                for shift in (0..8).rev() {
                    let digit = bytes.len() >> (4 * shift) & 15;
                    if digit > 0 || !size.is_empty() {
                        let _ = size.try_push(b"0123456789abcdef"[digit]);
                    }
                }
                let _ = size.try_extend_from_slice(b"\r\n");
                stream.http.request(store, &size, sink);
                stream.http.request(store, bytes, sink);
                stream.http.request(store, b"\r\n", sink);
            }
            Toward::Client => _ = stream.http.response(store, bytes, sink),
        }
    }

    fn frame_ends<S>(&mut self, store: &mut ParserPools, shared: &mut Shared, toward: Toward, sink: &mut S)
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        let side = &mut self.sides[toward as usize];
        side.frame.clear();
        // The budget grows only by whole frames, so that it does not depend on the segmentation.
        let added = (side.length as usize + 9) * RATIO;
        side.budget = side.budget.saturating_add(added).min(16 * FIELDS);
        let (kind, flags, id) = (side.kind, side.flags, side.stream);
        match kind {
            HEADERS | PUSH_PROMISE | CONTINUATION if flags & END_HEADERS != 0 => {
                side.open = false;
                self.block(store, shared, toward, sink);
            }
            DATA if flags & END_STREAM != 0 => self.stream_ends(store, toward, id, sink),
            RST_STREAM => {
                if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
                    stream.http.mark_incomplete(store);
                }
                for toward in [Toward::Server, Toward::Client] {
                    self.stream_ends(store, toward, id, sink);
                }
            }
            _ => {}
        }
    }

    /// Handles a complete header block.
    fn block<S>(&mut self, store: &mut ParserPools, shared: &mut Shared, toward: Toward, sink: &mut S)
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        let side = &mut self.sides[toward as usize];
        let Shared {
            name,
            value,
            target,
            lines,
        } = shared;
        target.clear();
        lines.clear();
        let mut head = Head {
            method: ArrayVec::new(),
            authority: ArrayVec::new(),
            status: ArrayVec::new(),
            target,
            lines,
            odd: false,
            cut: false,
        };
        let (beyond, missed) = (side.table.beyond, side.table.missed);
        let decoded = hpack::decode(
            &side.block,
            &mut side.table,
            [name, value],
            (&mut side.budget, &store.work),
            &mut |name, value| head.field(name, value),
        );
        let anomalies = [
            (head.odd, Anomaly::BadField),
            (head.cut, Anomaly::TooLong),
            (side.table.beyond && !beyond, Anomaly::LargeTable),
            (side.table.missed && !missed, Anomaly::UnknownEntry),
        ];
        let (ends, promise, id) = (side.ends, side.promise, side.block_stream);
        let (method, authority, status) = (head.method, head.authority, head.status);
        for (_, anomaly) in anomalies.into_iter().filter(|(is, _)| *is) {
            store.anomalies.add(anomaly);
            sink(Slot::NO_SLOT, MessageEvent::Anomaly(anomaly));
        }
        match decoded {
            Ok(()) => {}
            Err(hpack::Error::Malformed) => return self.fail(store, toward, Anomaly::BadHeaderBlock, sink),
            Err(hpack::Error::TooLarge) => return self.fail(store, toward, Anomaly::HeaderFlood, sink),
            Err(hpack::Error::TooMuchWork) => {
                self.sides[toward as usize].dead = true;
                return;
            }
        }
        // A push promise contains a request on behalf of the client. The response to this request is on another stream.
        if promise {
            return;
        }
        let is_head = match toward {
            Toward::Server => !method.is_empty(),
            Toward::Client => !status.is_empty(),
        };
        if is_head {
            let Some(stream) = self.stream(store, toward, id, sink) else {
                return;
            };
            stream.started[toward as usize] = true;
            store.messages.stream = id;
            let host = [&b"Host: "[..], &authority, b"\r\n"];
            match toward {
                Toward::Server => {
                    let target: &[u8] = if target.is_empty() { &authority } else { target };
                    for part in [&method[..], b" ", target, b" HTTP/1.1\r\n"] {
                        stream.http.request(store, part, sink);
                    }
                    for part in host.into_iter().filter(|_| !authority.is_empty()).chain([&lines[..]]) {
                        stream.http.request(store, part, sink);
                    }
                    if !ends {
                        stream.http.request(store, b"Transfer-Encoding: chunked\r\n", sink);
                    }
                    stream.http.request(store, b"\r\n", sink);
                    stream.ended[0] |= ends;
                }
                Toward::Client => {
                    for part in [b"HTTP/1.1 ", &status[..], b"\r\n", lines, b"\r\n"] {
                        stream.http.response(store, part, sink);
                    }
                }
            }
        }
        // Trailers also end a stream.
        if ends {
            self.stream_ends(store, toward, id, sink);
        }
    }

    /// Returns the stream with this number. A stream that does not exist yet is allocated from the pool.
    fn stream<S>(&mut self, store: &mut ParserPools, toward: Toward, id: u32, sink: &mut S) -> Option<&mut Stream>
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        self.latest[toward as usize] = id;
        let place = match self.streams.iter().position(|stream| stream.id == id) {
            Some(place) => place,
            None => {
                // If the table is full, evict a stream that has ended, otherwise the oldest stream.
                if self.streams.is_full() {
                    let over = self.streams.iter().position(|stream| stream.ended == [true; 2]);
                    if over.is_none() {
                        store.anomalies.add(Anomaly::ManyStreams);
                        sink(Slot::NO_SLOT, MessageEvent::Anomaly(Anomaly::ManyStreams));
                    }
                    self.streams.remove(over.unwrap_or(0)).http.release(store);
                }
                // Streams that have ended need no resources.
                for stream in &mut self.streams {
                    if stream.ended == [true; 2] {
                        stream.http.release(store);
                    }
                }
                let _ = self.streams.try_push(Stream {
                    id,
                    ..Stream::default()
                });
                self.streams.len() - 1
            }
        };
        self.streams.get_mut(place)
    }

    fn stream_ends<S>(&mut self, store: &mut ParserPools, toward: Toward, id: u32, sink: &mut S)
    where
        S: FnMut(Slot<'_>, MessageEvent),
    {
        let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) else {
            return;
        };
        let place = toward as usize;
        if std::mem::replace(&mut stream.ended[place], true) || !stream.started[place] {
            return;
        }
        self.latest[place] = id;
        store.messages.stream = id;
        match toward {
            Toward::Server => _ = stream.http.request(store, b"0\r\n\r\n", sink),
            Toward::Client => stream.http.close_response(store, sink),
        }
    }
}

/// Decoded header of a message.
struct Head<'a> {
    method: ArrayVec<u8, 32>,
    authority: ArrayVec<u8, 512>,
    status: ArrayVec<u8, 8>,
    target: &'a mut Vec<u8>,
    /// The other header fields, as HTTP/1 lines.
    lines: &'a mut Vec<u8>,
    /// Whether a field contains invalid bytes.
    odd: bool,
    /// Whether header fields were omitted because they did not fit.
    cut: bool,
}

impl Head<'_> {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b":method" => {
                self.odd |= !value.iter().all(|&byte| is_token(byte));
                let token = value.iter().map(|&byte| if is_token(byte) { byte } else { b'_' });
                self.cut |= value.len() > self.method.remaining_capacity();
                self.method.extend(token.take(self.method.remaining_capacity()));
            }
            b":path" => {
                for &byte in value {
                    let plain = byte > b' ' && byte != 0x7f;
                    let written = if plain { 1 } else { 3 };
                    if self.target.len() + written > TARGET {
                        self.cut = true;
                        break;
                    }
                    if plain {
                        self.target.push(byte);
                    } else {
                        self.odd = true;
                        let digits = b"0123456789abcdef";
                        let (high, low) = (digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]);
                        self.target.extend([b'%', high, low]);
                    }
                }
            }
            b":authority" => {
                self.cut |= value.len() > self.authority.remaining_capacity();
                let rest = self.authority.remaining_capacity();
                self.authority.extend(value.iter().map(|&byte| plain(byte)).take(rest));
                self.odd |= value.iter().any(|&byte| plain(byte) != byte);
            }
            b":status" => {
                let rest = self.status.remaining_capacity();
                self.status.extend(value.iter().map(|&byte| plain(byte)).take(rest));
            }
            [b':', ..] | b"content-length" | b"transfer-encoding" => {}
            _ => {
                let size = name.len() + value.len() + 4;
                if self.lines.len() + size > LINES {
                    self.cut = true;
                    return;
                }
                self.odd |= name.is_empty() || !name.iter().all(|&byte| is_token(byte));
                let token = name.iter().map(|&byte| if is_token(byte) { byte } else { b'_' });
                self.lines.extend(token);
                self.lines.extend(b": ");
                self.odd |= value.iter().any(|&byte| plain(byte) != byte);
                self.lines.extend(value.iter().map(|&byte| plain(byte)));
                self.lines.extend(b"\r\n");
            }
        }
    }
}

/// Replaces a byte that would end a line by a blank.
fn plain(byte: u8) -> u8 {
    match byte {
        b'\r' | b'\n' | 0 => b' ',
        other => other,
    }
}

//! Builds transactions from the events of parsers.

use super::hello::ServerHello;
use super::pool::TransactionQueue;
use super::{LoggedProtocols, Part, Transaction, TransactionPool, TransactionSink};
use crate::protocols::{Anomaly, MessageEvent, Slot};
use crate::signature::{Buffer, Service, Toward};

/// Length of a DNS header. Shorter data is not a DNS message.
const SHORTEST_MESSAGE: usize = 12;

/// Maximum number of HTTP/2 requests waiting for their responses: one for each tracked stream, and the same number for streams
/// that were reset.
const STREAMS: u32 = 2 * crate::protocols::http2::STREAMS as u32;
/// Version recorded for HTTP/2. HTTP/1 requests contain their version.
const HTTP2: u16 = 0x0200;

/// Transactions of a flow that are not logged yet.
#[derive(Debug, Default)]
pub(crate) struct PendingTransactions {
    row: TransactionQueue,
    count: u32,
    /// Whether the data does not belong to the identified protocol.
    is_malformed: bool,
    reading: Reading,
}

/// State of the log's own parsers, which parse data that the protocol parsers skip.
#[derive(Clone, Copy, Debug, Default)]
enum Reading {
    #[default]
    Nothing,
    /// Data of DNS over TCP, by direction.
    Names([Tail; 2]),
    Hello(ServerHello),
}

/// A partially received DNS message over TCP, including its length field.
#[derive(Clone, Copy, Debug, Default)]
struct Tail {
    at: u32,
    length: u32,
    place: Option<u32>,
}

/// Resources for recording the transactions of a flow.
pub(crate) struct TransactionRecorder<'a> {
    pub logged: LoggedProtocols,
    pub pool: &'a mut TransactionPool,
    pub pending: &'a mut PendingTransactions,
    /// Number of the flow.
    pub flow: u64,
    pub sink: TransactionSink<'a>,
}

impl TransactionRecorder<'_> {
    fn number(&mut self) -> u32 {
        let number = self.pending.count;
        self.pending.count = number.wrapping_add(1);
        number
    }

    fn take(&mut self, service: Service) -> Option<u32> {
        let number = self.number();
        self.pool.allocate(service, number)
    }

    /// Records an event of a parser.
    pub fn piece(&mut self, slot: Slot<'_>, piece: &MessageEvent, service: Option<Service>) {
        match service {
            Some(Service::Http | Service::Http2) if self.logged.http => match slot.is_client() {
                true => self.request(slot, piece),
                false => self.response(slot, piece),
            },
            Some(Service::Tls) if self.logged.tls && slot.is_client() => self.client_hello(slot, piece),
            _ => {}
        }
    }

    fn request(&mut self, slot: Slot<'_>, piece: &MessageEvent) {
        match piece {
            MessageEvent::Anomaly(Anomaly::NotHttp) => self.pending.is_malformed = true,
            // This is the last field that is copied from the request header.
            MessageEvent::Grew {
                buffer: Buffer::HttpHost,
                complete: true,
                ..
            } if !self.pending.is_malformed => {
                let place = match slot.stream() {
                    0 => self.take(Service::Http),
                    stream => self.take_of_stream(stream),
                };
                let Some(place) = place else { return };
                let Some(transaction) = self.pool.at(place) else { return };
                copy(transaction, Part::Method, slot, Buffer::HttpMethod);
                copy(transaction, Part::Host, slot, Buffer::HttpHost);
                copy(transaction, Part::Url, slot, Buffer::HttpRawUri);
                copy(transaction, Part::Agent, slot, Buffer::HttpUserAgent);
                let header = slot.buffer(Buffer::HttpHeader).bytes;
                transaction.set(Part::Referrer, field(header, b"referer"));
                if transaction.stream == 0 {
                    transaction.version = slot.version();
                    self.pool.append(&mut self.pending.row, place);
                }
            }
            _ => {}
        }
    }

    fn response(&mut self, slot: Slot<'_>, piece: &MessageEvent) {
        let digits = std::str::from_utf8(slot.buffer(Buffer::HttpStatusCode).bytes);
        let status = digits.ok().and_then(|digits| digits.parse().ok()).unwrap_or(0);
        // The final response follows this one.
        if matches!(status, 100 | 102..=199) {
            return;
        }
        if matches!(piece, MessageEvent::Anomaly(_)) {
            return;
        }
        let Some(place) = self.request_of(slot.stream(), piece) else {
            return;
        };
        let Some(transaction) = self.pool.at(place) else { return };
        match piece {
            MessageEvent::Grew {
                buffer: Buffer::HttpHeader,
                complete: true,
                ..
            } => {
                transaction.status = status;
                let header = slot.buffer(Buffer::HttpHeader).bytes;
                transaction.set(Part::ContentType, field(header, b"content-type"));
            }
            MessageEvent::Grew {
                buffer: Buffer::FileData,
                ..
            } => transaction.length = slot.length(),
            MessageEvent::End => {
                transaction.length = slot.length();
                self.pool.remove(&mut self.pending.row, place);
                self.emit(place);
            }
            _ => {}
        }
    }

    /// The request of a response: the first request of the queue or, in HTTP/2, the request on the same stream. An
    /// HTTP/2 response without a request is logged alone. It is either a pushed response, or the response to an HTTP/1
    /// request with an upgrade to HTTP/2 (RFC 7540, section 3.2).
    fn request_of(&mut self, stream: u32, piece: &MessageEvent) -> Option<u32> {
        let is_head = matches!(
            piece,
            MessageEvent::Grew {
                buffer: Buffer::HttpHeader,
                complete: true,
                ..
            }
        );
        match self.pool.of_stream(&self.pending.row, stream) {
            None if is_head && stream > 0 => self.take_of_stream(stream),
            found => found,
        }
    }

    /// Allocates a transaction for another HTTP/2 stream.
    fn take_of_stream(&mut self, stream: u32) -> Option<u32> {
        let place = self.take(Service::Http)?;
        let transaction = self.pool.at(place)?;
        (transaction.stream, transaction.version) = (stream, HTTP2);
        if self.pending.row.length >= STREAMS {
            self.finish();
        }
        self.pool.append(&mut self.pending.row, place);
        Some(place)
    }

    fn client_hello(&mut self, slot: Slot<'_>, piece: &MessageEvent) {
        match piece {
            MessageEvent::Anomaly(Anomaly::BadHello) => self.pending.is_malformed = true,
            MessageEvent::End if !self.pending.is_malformed => {
                let Some(place) = self.take(Service::Tls) else { return };
                let Some(transaction) = self.pool.at(place) else { return };
                copy(transaction, Part::ServerName, slot, Buffer::TlsSni);
                copy(transaction, Part::Ja3, slot, Buffer::Ja3Hash);
                self.pool.append(&mut self.pending.row, place);
            }
            _ => {}
        }
    }

    /// Completes the first transaction of the queue.
    fn finish(&mut self) {
        if let Some(place) = self.pool.pop(&mut self.pending.row) {
            self.emit(place);
        }
    }

    /// Logs and releases a transaction that was removed from the queue.
    fn emit(&mut self, place: u32) {
        if let Some(transaction) = self.pool.at(place) {
            (self.sink)(self.flow, transaction);
        }
        self.pool.release(place);
    }

    /// Records bytes of a stream that its parser does not read completely.
    pub fn bytes(&mut self, toward: Toward, bytes: &[u8], service: Option<Service>) {
        match service {
            Some(Service::Dns) if self.logged.dns => self.names(toward, bytes),
            Some(Service::Tls) if self.logged.tls && toward == Toward::Client => {
                let mut hello = match self.pending.reading {
                    Reading::Hello(hello) => hello,
                    _ => ServerHello::default(),
                };
                if let Some(version) = hello.bytes(bytes) {
                    if let Some(transaction) = self.pool.first(&self.pending.row) {
                        transaction.version = version;
                    }
                    self.finish();
                }
                self.pending.reading = Reading::Hello(hello);
            }
            _ => {}
        }
    }

    fn names(&mut self, toward: Toward, mut bytes: &[u8]) {
        let mut tails = match self.pending.reading {
            Reading::Names(tails) => tails,
            _ => Default::default(),
        };
        let tail = &mut tails[usize::from(toward == Toward::Client)];
        while let Some(&first) = bytes.first() {
            if tail.at < 2 {
                tail.length = tail.length << 8 | u32::from(first);
                bytes = &bytes[1..];
                tail.at += 1;
                if tail.at == 2 {
                    tail.place = self.take(Service::Dns);
                }
            } else {
                let taken = bytes.len().min((tail.length + 2 - tail.at) as usize);
                if let Some(transaction) = tail.place.and_then(|place| self.pool.at(place)) {
                    transaction.extend(Part::Message, &bytes[..taken]);
                }
                tail.at += taken as u32;
                bytes = &bytes[taken..];
            }
            if tail.at >= 2 && tail.at == tail.length + 2 {
                if let Some(place) = tail.place {
                    if let Some(transaction) = self.pool.at(place)
                        && tail.length >= SHORTEST_MESSAGE as u32
                    {
                        (transaction.toward, transaction.length) = (toward, tail.length.into());
                        (self.sink)(self.flow, transaction);
                    }
                    self.pool.release(place);
                }
                *tail = Tail::default();
            }
        }
        self.pending.reading = Reading::Names(tails);
    }

    /// Records a datagram.
    pub fn datagram(&mut self, toward: Toward, bytes: &[u8], service: Option<Service>) {
        if self.logged.dns && service == Some(Service::Dns) && bytes.len() >= SHORTEST_MESSAGE {
            let number = self.number();
            let transaction = &mut *self.pool.passing;
            transaction.start(Service::Dns, number);
            (transaction.toward, transaction.length) = (toward, bytes.len() as u64);
            transaction.set(Part::Message, bytes);
            (self.sink)(self.flow, transaction);
        }
    }

    /// Logs all incomplete transactions at the end of the flow.
    pub fn end(&mut self) {
        while self.pool.first(&self.pending.row).is_some() {
            self.finish();
        }
    }
}

impl PendingTransactions {
    /// Releases all transactions of the flow.
    pub fn release(&mut self, pool: &mut TransactionPool) {
        while let Some(place) = pool.pop(&mut self.row) {
            pool.release(place);
        }
        if let Reading::Names(tails) = self.reading {
            tails
                .iter()
                .filter_map(|tail| tail.place)
                .for_each(|place| pool.release(place));
        }
        *self = Self::default();
    }
}

fn copy(transaction: &mut Transaction, part: Part, slot: Slot<'_>, buffer: Buffer) {
    let view = slot.buffer(buffer);
    transaction.set(part, view.bytes);
    if view.truncated {
        transaction.mark_cut(part);
    }
}

/// Value of a header field, by its name in lower case.
fn field<'h>(header: &'h [u8], name: &[u8]) -> &'h [u8] {
    let mut lines = header.split(|&byte| byte == b'\n');
    let value = lines.find_map(|line| {
        let (said, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        said.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
    });
    value.unwrap_or_default()
}

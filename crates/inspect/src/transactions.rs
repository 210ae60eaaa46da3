//! Transactions of flows for a log: HTTP requests with their responses, DNS messages, and TLS hellos.
//!
//! A [`Transaction`] has a fixed size: text that does not fit is truncated and marked. A request is stored in the
//! shard's [`TransactionPool`] until its response arrives. If the pool is full, the transaction is counted but not
//! recorded. Only the protocols that [`LoggedProtocols`] enables are recorded.

pub mod dns_message;
mod hello;
mod pool;
mod recorder;

pub use pool::TransactionPool;
pub(crate) use recorder::{PendingTransactions, TransactionRecorder};

use crate::signature::{Service, Toward};

/// Size in bytes of the text of a transaction.
pub const TEXT: usize = 1024;
const PARTS: usize = 6;

/// Protocols whose transactions are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoggedProtocols {
    /// HTTP requests with their responses.
    pub http: bool,
    /// DNS messages.
    pub dns: bool,
    /// TLS hellos.
    pub tls: bool,
}

impl LoggedProtocols {
    /// Whether any protocol is logged.
    pub fn any(self) -> bool {
        self.http || self.dns || self.tls
    }
}

/// A text field of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Method of an HTTP request.
    Method,
    /// Host of an HTTP request.
    Host,
    /// URL of an HTTP request, as sent.
    Url,
    /// `User-Agent` of an HTTP request.
    Agent,
    /// `Content-Type` of an HTTP response.
    ContentType,
    /// `Referer` of an HTTP request.
    Referrer,
    /// Server name of a TLS hello.
    ServerName,
    /// JA3 of a TLS hello, in hexadecimal digits.
    Ja3,
    /// A DNS message as sent, to be parsed with [`dns_message`].
    Message,
}

impl Part {
    /// Index of the field, and start and end of its text.
    fn place(self) -> (usize, usize, usize) {
        match self {
            Self::Method => (0, 0, 32),
            Self::Host => (1, 32, 160),
            Self::Url => (2, 160, 672),
            Self::Agent => (3, 672, 864),
            Self::ContentType => (4, 864, 928),
            Self::Referrer => (5, 928, TEXT),
            Self::ServerName => (0, 0, 256),
            Self::Ja3 => (1, 256, 288),
            Self::Message => (0, 0, TEXT),
        }
    }
}

/// A transaction of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Transaction {
    /// Protocol.
    pub service: Service,
    /// Number of the transaction in its flow, counted from 0.
    pub number: u32,
    /// Direction of a DNS message. For other protocols, the direction is always to the server.
    pub toward: Toward,
    /// Status of an HTTP response; 0 if no response has arrived.
    pub status: u16,
    /// For an HTTP response, the number of encoded body bytes received so far. For a DNS message, its length.
    pub length: u64,
    /// HTTP version of the request, with its digits as bytes, or the TLS version that the server selected; 0 if the
    /// version is unknown.
    pub version: u16,
    /// Number of the HTTP/2 stream; 0 for other protocols.
    pub stream: u32,
    lengths: [u16; PARTS],
    cut: u8,
    text: [u8; TEXT],
}

impl Transaction {
    /// Creates an empty transaction.
    pub fn new(service: Service, number: u32) -> Self {
        Self {
            service,
            number,
            toward: Toward::Server,
            status: 0,
            length: 0,
            version: 0,
            stream: 0,
            lengths: [0; PARTS],
            cut: 0,
            text: [0; TEXT],
        }
    }

    /// Resets the transaction in place. The text is not cleared, but its length becomes 0.
    fn start(&mut self, service: Service, number: u32) {
        (self.service, self.number, self.toward) = (service, number, Toward::Server);
        (self.status, self.length, self.version, self.stream) = (0, 0, 0, 0);
        (self.lengths, self.cut) = ([0; PARTS], 0);
    }

    /// Sets a text field, truncated to its capacity.
    pub fn set(&mut self, part: Part, bytes: &[u8]) {
        self.lengths[part.place().0] = 0;
        self.extend(part, bytes);
    }

    /// Appends to a text field.
    pub fn extend(&mut self, part: Part, bytes: &[u8]) {
        let (place, start, end) = part.place();
        let at = start + usize::from(self.lengths[place]);
        let capacity = self.text.get_mut(at..end).unwrap_or_default();
        let fits = bytes.len().min(capacity.len());
        capacity[..fits].copy_from_slice(&bytes[..fits]);
        self.lengths[place] += fits as u16;
        if fits < bytes.len() {
            self.mark_cut(part);
        }
    }

    /// Marks a text field as truncated.
    pub fn mark_cut(&mut self, part: Part) {
        self.cut |= 1 << part.place().0;
    }

    /// A text field.
    pub fn text(&self, part: Part) -> &[u8] {
        let (place, start, _) = part.place();
        self.text
            .get(start..start + usize::from(self.lengths[place]))
            .unwrap_or_default()
    }

    /// Whether a text field is truncated.
    pub fn is_cut(&self, part: Part) -> bool {
        self.cut & 1 << part.place().0 != 0
    }
}

/// Sink of transactions, with the number of their flow.
pub type TransactionSink<'t> = &'t mut dyn FnMut(u64, &Transaction);

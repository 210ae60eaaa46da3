//! What flows say in the protocols that are parsed, for a log: requests with their answers, names asked for, hellos.
//!
//! A [`Transaction`] has a fixed size: what does not fit is cut, and marked so. Of a request little is known to be its
//! answer's until that has come, so it waits in a pool of the shard, [`Transactions`]; where that is full, nothing is
//! recorded, and counted. Nothing of this is done unless it is [`Wanted`].

pub mod dns_message;
mod hello;
mod pool;
mod recorder;

pub use pool::TransactionPool;
pub(crate) use recorder::{PendingTransactions, TransactionRecorder};

use crate::signature::{Service, Toward};

/// Bytes of text in a transaction.
pub const TEXT: usize = 1024;
const PARTS: usize = 6;

/// Of which protocols transactions are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoggedProtocols {
    /// Requests with their responses.
    pub http: bool,
    /// Messages.
    pub dns: bool,
    /// Hellos.
    pub tls: bool,
}

impl LoggedProtocols {
    /// Whether any are.
    pub fn any(self) -> bool {
        self.http || self.dns || self.tls
    }
}

/// A text of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Of an HTTP request.
    Method,
    /// Whom an HTTP request is for.
    Host,
    /// What an HTTP request is for, as sent.
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
    /// A DNS message as sent: [`names`] reads it.
    Message,
}

impl Part {
    /// Its number in a transaction, where it begins and ends.
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

/// One thing that a flow said.
#[derive(Clone, Copy, Debug)]
pub struct Transaction {
    /// In which protocol.
    pub service: Service,
    /// Which of its flow's, from 0.
    pub number: u32,
    /// Where a DNS message went; the server of others.
    pub toward: Toward,
    /// Status of an HTTP response; 0 where none has come.
    pub status: u16,
    /// Bytes of the body of an HTTP response as far as it has come, as encoded; of a DNS message.
    pub length: u64,
    /// Of an HTTP request, its digits as bytes; of TLS, what the server chose. 0 where it is not known.
    pub version: u16,
    /// The stream of HTTP/2 that it is of; 0: of none.
    pub stream: u32,
    lengths: [u16; PARTS],
    cut: u8,
    text: [u8; TEXT],
}

impl Transaction {
    /// About which nothing is known.
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

    /// Begin anew, in place: the text is not cleared, for nothing of it is shown.
    fn begin(&mut self, service: Service, number: u32) {
        (self.service, self.number, self.toward) = (service, number, Toward::Server);
        (self.status, self.length, self.version, self.stream) = (0, 0, 0, 0);
        (self.lengths, self.cut) = ([0; PARTS], 0);
    }

    /// A text, as far as it fits.
    pub fn set(&mut self, part: Part, bytes: &[u8]) {
        self.lengths[part.place().0] = 0;
        self.extend(part, bytes);
    }

    /// More of a text.
    pub fn extend(&mut self, part: Part, bytes: &[u8]) {
        let (place, begin, end) = part.place();
        let at = begin + usize::from(self.lengths[place]);
        let room = self.text.get_mut(at..end).unwrap_or_default();
        let fits = bytes.len().min(room.len());
        room[..fits].copy_from_slice(&bytes[..fits]);
        self.lengths[place] += fits as u16;
        if fits < bytes.len() {
            self.mark_cut(part);
        }
    }

    /// There was more of a text than was kept.
    pub fn mark_cut(&mut self, part: Part) {
        self.cut |= 1 << part.place().0;
    }

    /// A text.
    pub fn text(&self, part: Part) -> &[u8] {
        let (place, begin, _) = part.place();
        self.text
            .get(begin..begin + usize::from(self.lengths[place]))
            .unwrap_or_default()
    }

    /// Whether a text did not fit.
    pub fn is_cut(&self, part: Part) -> bool {
        self.cut & 1 << part.place().0 != 0
    }
}

/// Transactions go here, with the number of their flow.
pub type TransactionSink<'t> = &'t mut dyn FnMut(u64, &Transaction);

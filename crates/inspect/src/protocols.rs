//! Parsers that fill the buffers of signatures from the bytes of a stream as they arrive, in pieces of any size.
//!
//! A parser never waits for more than it was given: after every call its [`Slot`] holds what is known so far, so that
//! a match is seen before its last byte is delivered. What it tells is a [`Piece`]; the sink gets the slot with it and
//! may search right there, which it must for bodies, whose window goes on.
//!
//! The same bytes give the same buffers and the same anomalies however they are cut.

pub mod anomaly;
mod brotli;
pub mod dns;
mod events;
pub mod expectations;
pub mod ftp;
pub mod ftp_data;
pub mod hostile;
pub mod http;
pub mod http2;
mod inflate;
pub mod probe;
pub mod quic;
pub mod slots;
pub mod smtp;
pub mod tls;
mod writer;

use std::ops::Range;

pub use anomaly::{Anomaly, AnomalyCounts};
pub use dns::{Dns, DnsStream};
pub use expectations::Expectations;
pub use ftp::Ftp;
pub use ftp_data::FtpData;
pub use http::Http;
pub use http2::{Connections, Http2};
pub use inflate::Inflaters;
pub use probe::{ProbeResult, ProtocolProbe};
pub use quic::{HelloBuffers, Quic};
pub use slots::{BufferLimits, FieldView, FileHashes, Slot, SlotHandle, Slots};
pub use smtp::{MailSessions, Smtp};
pub use tls::ClientHello;
pub use tls::Records as TlsRecords;
pub use tls::ServerFlight as TlsServer;

use crate::signature::Buffer;
use crate::source_quota::Source;
use crate::work_budget::WorkBudget;

/// What a parser tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageEvent {
    /// A buffer grew, or will not grow any more.
    Grew {
        /// Which.
        buffer: Buffer,
        /// The new bytes, as indices into [`View::bytes`] at this moment.
        fresh: Range<usize>,
        /// It will not grow any more.
        complete: bool,
    },
    /// Something is odd; told once per message.
    Anomaly(Anomaly),
    /// The message ended: all its buffers are complete.
    End,
}

/// What the parsers of a shard share: the slots, the decoders, the counters. Allocated once.
#[derive(Debug)]
pub struct ParserPools {
    /// Slots of HTTP messages.
    pub messages: Slots,
    /// Slots of DNS messages and TLS hellos.
    pub names: Slots,
    /// Slots of TLS servers.
    pub servers: Slots,
    /// The slot of an FTP command or reply, in use only while it is reported.
    pub commands: Slots,
    /// Connections of HTTP/2.
    pub connections: Connections,
    /// Connections of mail.
    pub mail_sessions: MailSessions,
    /// Hellos in QUIC that are put in order.
    pub hellos: HelloBuffers,
    /// Decoders of content encodings, and their memory.
    pub inflaters: Inflaters,
    /// Data connections of FTP that are agreed on.
    pub expected: Expectations,
    /// Anomalies met.
    pub anomalies: AnomalyCounts,
    /// What the packet at hand may still cost.
    pub work: WorkBudget,
}

/// How large a [`Store`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParserCapacity {
    /// HTTP messages that are open at once; each direction of a connection may have one.
    pub messages: u32,
    /// DNS messages and TLS hellos that are open at once.
    pub names: u32,
    /// Bodies that are decoded at once, about 73 KiB each; for what those in brotli repeat there are 10 MiB, and 128 KiB for each.
    pub inflaters: u16,
    /// Transactions that are recorded and not over at once; 0: none are recorded.
    pub transactions: u32,
    /// Room of each buffer.
    pub limits: BufferLimits,
    /// A body is decoded to at most so many bytes, and…
    pub decoded_bytes: u64,
    /// … beyond 64 KiB to at most so many times its encoded bytes. Checked every 256 encoded bytes; what follows is
    /// left as sent.
    pub decoded_ratio: u32,
}

impl Default for ParserCapacity {
    fn default() -> Self {
        Self {
            messages: 1024,
            names: 1024,
            inflaters: 64,
            transactions: 0,
            limits: BufferLimits::default(),
            decoded_bytes: 8 << 20,
            decoded_ratio: 200,
        }
    }
}

impl ParserPools {
    /// What is taken from now on is for a source.
    #[inline]
    pub fn set_source(&mut self, source: Source) {
        if self.messages.holders.source != source {
            let slots = [&mut self.messages, &mut self.names, &mut self.servers];
            slots.into_iter().for_each(|slots| slots.holders.source = source);
            self.inflaters.take_for(source);
            self.mail_sessions.places.owners.source = source;
            self.connections.places.owners.source = source;
            self.hellos.places.owners.source = source;
        }
    }

    /// The rules of the flow that is parsed from now on ask for these hashes of its files.
    #[inline]
    pub fn hash_files(&mut self, wanted: FileHashes) {
        self.messages.hash_files(wanted);
    }

    /// A store with all its memory.
    pub fn new(capacity: &ParserCapacity) -> Self {
        let ParserCapacity {
            messages,
            names,
            inflaters,
            limits,
            decoded_bytes,
            decoded_ratio,
            ..
        } = *capacity;
        let work = WorkBudget::default();
        Self {
            messages: Slots::for_files(messages, slots::Layout::message(&limits), work.clone()),
            names: Slots::new(names, slots::Layout::name(&limits)),
            // A server has spoken soon: few do so at once.
            servers: Slots::new((names / 4).max(1), slots::Layout::server()),
            commands: Slots::new(1, slots::Layout::command(ftp::MAX_LINE as u32)),
            mail_sessions: MailSessions::new((messages / 16).max(1)),
            hellos: HelloBuffers::new((names / 16).max(1)),
            connections: Connections::new((messages / 16).max(1)),
            inflaters: Inflaters::new(inflaters, decoded_bytes, decoded_ratio, work.clone()),
            expected: Expectations::default(),
            anomalies: AnomalyCounts::default(),
            work,
        }
    }
}

//! Application-layer parsers, which fill the buffers of signatures from the bytes of a stream. The bytes arrive in
//! segments of any size.
//!
//! A parser does not wait for more data: after every call its [`Slot`] contains all content received so far, so that a
//! match is found before its last byte is forwarded. A parser reports [`MessageEvent`]s. The sink receives the slot
//! with each event and may search the slot's buffers. A body must be searched at this time, because its window moves on
//! with later data.
//!
//! The same bytes yield the same buffers and the same anomalies, however they are segmented.

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

/// An event that a parser reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageEvent {
    /// A buffer grew or became complete.
    Grew {
        /// The buffer.
        buffer: Buffer,
        /// Range of the new bytes in [`FieldView::bytes`] at the time of this event.
        fresh: Range<usize>,
        /// Whether the buffer is complete and grows no more.
        complete: bool,
    },
    /// An anomaly; reported once per message.
    Anomaly(Anomaly),
    /// The message ended: all of its buffers are complete.
    End,
}

/// Resources that the parsers of a shard share: slots, decoders and counters. All are allocated at start.
#[derive(Debug)]
pub struct ParserPools {
    /// Slots of HTTP messages.
    pub messages: Slots,
    /// Slots of DNS messages and TLS hellos.
    pub names: Slots,
    /// Slots of TLS server messages.
    pub servers: Slots,
    /// The slot of an FTP command or reply, which is occupied only while the message is reported.
    pub commands: Slots,
    /// State of HTTP/2 connections.
    pub connections: Connections,
    /// State of SMTP sessions.
    pub mail_sessions: MailSessions,
    /// Reassembly buffers of TLS hellos in QUIC.
    pub hellos: HelloBuffers,
    /// Decoders of content encodings, and their memory.
    pub inflaters: Inflaters,
    /// Expected FTP data connections.
    pub expected: Expectations,
    /// Counters of anomalies.
    pub anomalies: AnomalyCounts,
    /// Work budget of the current packet.
    pub work: WorkBudget,
}

/// Sizes of [`ParserPools`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParserCapacity {
    /// Maximum number of open HTTP messages; each direction of a connection may have one.
    pub messages: u32,
    /// Maximum number of open DNS messages and TLS hellos.
    pub names: u32,
    /// Maximum number of bodies being decoded. Each decoder takes about 73 KiB; Brotli windows take another 10 MiB in
    /// total, plus 128 KiB for each decoder.
    pub inflaters: u16,
    /// Maximum number of recorded transactions that are not complete yet; 0 disables recording.
    pub transactions: u32,
    /// Capacity of each buffer.
    pub limits: BufferLimits,
    /// Maximum number of decoded bytes of a body.
    pub decoded_bytes: u64,
    /// Maximum ratio of decoded to encoded bytes of a body, beyond the first 64 KiB. The ratio is checked every 256
    /// encoded bytes. If it is exceeded, the remaining body is not decoded.
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
    /// Accounts later allocations to a source.
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

    /// Enables the file hashes that the rules of the next flow need.
    #[inline]
    pub fn hash_files(&mut self, wanted: FileHashes) {
        self.messages.hash_files(wanted);
    }

    /// Allocates all memory of the parsers.
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
            // The handshake of a TLS server is short, so only a few are in progress at a time.
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

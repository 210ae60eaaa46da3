//! Parser of the clear-text messages of a TLS server: its hello and, before TLS 1.3, its first certificate (RFC 5246,
//! sections 7.4.1.3 and 7.4.2; RFC 8446, section 4.1.3).

use arrayvec::ArrayVec;
use sha1::{Digest, Sha1};

use super::certificate::{self, Certificate};
use super::ja3::Ja3s;
use super::{LONGEST_RECORD, RECORD};
use crate::protocols::anomaly::AnomalySet;
use crate::protocols::slots::CERTIFICATE;
use crate::protocols::writer::MessageWriter;
use crate::protocols::{Anomaly, MessageEvent, ParserPools, Slot, SlotHandle};
use crate::signature::Buffer;

const SERVER_HELLO: u32 = 2;
const CERTIFICATES: u32 = 11;
const HELLO_DONE: u32 = 14;
const SUPPORTED_VERSIONS: u16 = 43;
const PROTOCOLS: u16 = 16;
/// The first version that encrypts certificates.
const TLS13: u16 = 0x0304;
/// Maximum number of parsed messages: a hello, a certificate, and a few messages between them.
const MESSAGES: u8 = 8;

const FILLED: [Buffer; 7] = [
    Buffer::Ja3sHash,
    Buffer::TlsVersion,
    Buffer::TlsAlpn,
    Buffer::TlsCertSubject,
    Buffer::TlsCertIssuer,
    Buffer::TlsCertSerial,
    Buffer::TlsCertFingerprint,
];

/// A field of the messages, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Kind,
    Length,
    Version,
    Random,
    SessionLength,
    Session,
    Cipher,
    Compression,
    ExtensionsLength,
    ExtensionKind,
    ExtensionLength,
    Chosen,
    ProtocolsLength,
    ProtocolLength,
    Protocol,
    SkipExtension,
    ChainLength,
    CertificateLength,
    Certificate,
    /// Skip the remaining bytes of a message.
    Skip,
    Done,
}

/// The digest in progress: first the digest of the hello, then the digest of the certificate.
#[derive(Clone, Debug)]
enum Sum {
    Hello(Ja3s),
    Certificate(Sha1),
}

/// The server's side of a connection, until its certificate is complete.
#[derive(Debug)]
pub struct ServerFlight {
    handle: Option<SlotHandle>,
    seen: AnomalySet,
    /// Received bytes of the record header, and remaining bytes of the record.
    header: u32,
    record: u32,
    step: Step,
    /// Number of remaining bytes of the field, its value so far, and the numbers of remaining bytes of the message and
    /// of the extension.
    need: u32,
    number: u32,
    message: u32,
    extension: u32,
    extension_kind: u16,
    kind: u32,
    messages: u8,
    version: u16,
    sum: Sum,
}

impl Default for ServerFlight {
    fn default() -> Self {
        Self {
            handle: None,
            seen: AnomalySet::default(),
            header: 0,
            record: 0,
            step: Step::Kind,
            need: 1,
            number: 0,
            message: 4,
            extension: 0,
            extension_kind: 0,
            kind: 0,
            messages: 0,
            version: 0,
            sum: Sum::Hello(Ja3s::default()),
        }
    }
}

impl ServerFlight {
    /// Parses the next bytes of the stream.
    pub fn bytes(&mut self, store: &mut ParserPools, mut bytes: &[u8], sink: &mut impl FnMut(Slot<'_>, MessageEvent)) {
        if self.is_done() || bytes.is_empty() {
            return;
        }
        let starts = self.header == 0 && self.messages == 0 && self.handle.is_none();
        let mut writer = MessageWriter {
            slots: &mut store.servers,
            counts: &mut store.anomalies,
            handle: self.handle,
            seen: self.seen,
            sink,
        };
        if starts {
            writer.start(false);
        }
        while let Some(&first) = bytes.first()
            && !self.is_done()
        {
            let (taken, over) = match self.header {
                RECORD => self.part(bytes, &mut writer),
                _ => (1, self.record_header(first)),
            };
            bytes = &bytes[taken..];
            if over {
                writer.complete(&FILLED);
                writer.end();
                self.step = Step::Done;
            }
        }
        writer.flush();
        (self.handle, self.seen) = (writer.handle, writer.seen);
    }

    /// Whether parsing has ended.
    pub fn is_done(&self) -> bool {
        self.step == Step::Done
    }

    /// Slot of the server's messages.
    pub fn slot<'a>(&self, store: &'a ParserPools) -> Slot<'a> {
        self.handle
            .and_then(|handle| store.servers.slot(handle))
            .unwrap_or(Slot::NO_SLOT)
    }

    /// Releases the slot.
    pub fn release(&mut self, store: &mut ParserPools) {
        if let Some(handle) = self.handle.take() {
            store.servers.release(handle);
        }
    }

    /// Handles a byte of a record header. Returns true if parsing ends because the record is not a handshake.
    fn record_header(&mut self, byte: u8) -> bool {
        self.header += 1;
        match self.header {
            1 => byte != 22,
            2 => byte != 3,
            3 => false,
            4 => {
                self.record = u32::from(byte) << 8;
                false
            }
            _ => {
                self.record |= u32::from(byte);
                self.record == 0 || self.record > LONGEST_RECORD
            }
        }
    }

    /// Handles bytes of the handshake, at most up to the end of a field. Returns the number of bytes handled, and
    /// whether parsing ends.
    fn part<S: FnMut(Slot<'_>, MessageEvent)>(
        &mut self,
        bytes: &[u8],
        writer: &mut MessageWriter<'_, S>,
    ) -> (usize, bool) {
        let taken = bytes
            .len()
            .min(self.record as usize)
            .min(self.need as usize)
            .min(self.message as usize);
        let part = &bytes[..taken];
        let Ok(count) = u32::try_from(taken) else {
            return (0, true);
        };
        if count == 0 {
            // The field is longer than its message.
            writer.anomaly(Anomaly::BadServerHello);
            return (0, true);
        }
        self.record -= count;
        if self.record == 0 {
            self.header = 0;
        }
        self.message -= count;
        self.need -= count;
        match self.step {
            Step::Certificate => {
                if let Sum::Certificate(sum) = &mut self.sum {
                    sum.update(part);
                }
                let capacity = writer.length_of(Buffer::Payload);
                let fits = part.len().min((CERTIFICATE as usize).saturating_sub(capacity));
                writer.push(Buffer::Payload, &part[..fits]);
            }
            Step::Protocol => writer.push(Buffer::TlsAlpn, part),
            Step::Random | Step::Session | Step::Skip | Step::SkipExtension => {}
            _ => self.number = part.iter().fold(self.number, |all, &byte| all << 8 | u32::from(byte)),
        }
        let in_extension = matches!(
            self.step,
            Step::Chosen | Step::ProtocolsLength | Step::ProtocolLength | Step::Protocol | Step::SkipExtension
        );
        if in_extension {
            match self.extension.checked_sub(count) {
                Some(remaining) => self.extension = remaining,
                None => {
                    writer.anomaly(Anomaly::BadServerHello);
                    return (taken, true);
                }
            }
        }
        let mut over = false;
        if self.need == 0 {
            let number = std::mem::take(&mut self.number);
            over = self.field(number, writer);
        }
        if !over && self.message == 0 && self.step != Step::Length {
            over = self.message_ends(writer);
        }
        (taken, over)
    }

    fn next(&mut self, step: Step, need: u32) -> bool {
        (self.step, self.need) = (step, need);
        false
    }

    /// Continues with the remaining bytes of the extension, or with the next extension.
    fn rest_of_extension(&mut self) -> bool {
        match self.extension {
            0 => self.next(Step::ExtensionKind, 2),
            remaining => self.next(Step::SkipExtension, remaining),
        }
    }

    /// Handles a complete field. Returns true if parsing ends.
    fn field<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, number: u32, writer: &mut MessageWriter<'_, S>) -> bool {
        match self.step {
            Step::Kind => {
                self.kind = number;
                self.next(Step::Length, 3)
            }
            Step::Length => {
                self.message = number;
                let first = self.messages == 0;
                self.messages += 1;
                match self.kind {
                    SERVER_HELLO if first => self.next(Step::Version, 2),
                    _ if first => {
                        writer.anomaly(Anomaly::BadServerHello);
                        true
                    }
                    CERTIFICATES => self.next(Step::ChainLength, 3),
                    HELLO_DONE => true,
                    _ if self.messages > MESSAGES => true,
                    _ if number == 0 => self.next_message(),
                    _ => self.next(Step::Skip, number),
                }
            }
            Step::Version => {
                self.version = number as u16;
                if let Sum::Hello(hello) = &mut self.sum {
                    hello.version(number as u16);
                }
                self.next(Step::Random, 32)
            }
            Step::Random => self.next(Step::SessionLength, 1),
            Step::SessionLength if number > 0 => self.next(Step::Session, number),
            Step::SessionLength | Step::Session => self.next(Step::Cipher, 2),
            Step::Cipher => {
                if let Sum::Hello(hello) = &mut self.sum {
                    hello.cipher(number as u16);
                }
                self.next(Step::Compression, 1)
            }
            Step::Compression => self.next(Step::ExtensionsLength, 2),
            Step::ExtensionsLength => self.next(Step::ExtensionKind, 2),
            Step::ExtensionKind => {
                if let Sum::Hello(hello) = &mut self.sum {
                    hello.extension(number as u16);
                }
                self.extension_kind = number as u16;
                self.next(Step::ExtensionLength, 2)
            }
            Step::ExtensionLength => {
                self.extension = number;
                match self.extension_kind {
                    SUPPORTED_VERSIONS if number == 2 => self.next(Step::Chosen, 2),
                    PROTOCOLS if number >= 4 => self.next(Step::ProtocolsLength, 2),
                    _ => self.rest_of_extension(),
                }
            }
            Step::Chosen => {
                self.version = number as u16;
                self.rest_of_extension()
            }
            Step::ProtocolsLength => self.next(Step::ProtocolLength, 1),
            Step::ProtocolLength if number > 0 && number <= self.extension => self.next(Step::Protocol, number),
            Step::ProtocolLength | Step::Protocol | Step::SkipExtension => self.rest_of_extension(),
            Step::ChainLength => self.next(Step::CertificateLength, 3),
            Step::CertificateLength if number > 0 => {
                self.sum = Sum::Certificate(Sha1::new());
                self.next(Step::Certificate, number)
            }
            Step::CertificateLength => true,
            Step::Certificate => {
                self.certificate(writer);
                true
            }
            // The message ends with this field.
            Step::Skip => false,
            Step::Done => true,
        }
    }

    fn next_message(&mut self) -> bool {
        self.message = 4;
        self.next(Step::Kind, 1)
    }

    /// Handles the end of a message. Returns true if parsing ends.
    fn message_ends<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, writer: &mut MessageWriter<'_, S>) -> bool {
        match self.step {
            // The hello ends between two extensions, or it has no extensions.
            Step::ExtensionKind | Step::ExtensionsLength if self.need == 2 => {
                if let Sum::Hello(hello) = &mut self.sum {
                    let hash = hello.hash();
                    writer.append(Buffer::Ja3sHash, &hash);
                }
                writer.append(Buffer::TlsVersion, &self.version.to_be_bytes());
                writer.show(Buffer::TlsAlpn);
                writer.complete(&FILLED[..3]);
                writer.flush();
                self.version >= TLS13 || self.next_message()
            }
            Step::Skip if self.need == 0 => self.next_message(),
            Step::Kind => false,
            _ => {
                writer.anomaly(Anomaly::BadServerHello);
                true
            }
        }
    }

    /// Handles the complete first certificate.
    fn certificate<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, writer: &mut MessageWriter<'_, S>) {
        let mut kept = ArrayVec::<u8, { CERTIFICATE as usize }>::new();
        writer.edit(Buffer::Payload, |written| {
            let fits = written.len().min(kept.remaining_capacity());
            kept.extend(written[..fits].iter().copied());
            0
        });
        if let Sum::Certificate(sum) = &mut self.sum {
            let sum = std::mem::take(sum).finalize();
            certificate::pairs(&sum, b"0123456789abcdef", &mut |bytes| {
                writer.push(Buffer::TlsCertFingerprint, bytes)
            });
            writer.show(Buffer::TlsCertFingerprint);
        }
        let Some(read) = Certificate::read(&kept) else {
            return writer.anomaly(Anomaly::BadCertificate);
        };
        certificate::pairs(read.serial, b"0123456789ABCDEF", &mut |bytes| {
            writer.push(Buffer::TlsCertSerial, bytes)
        });
        certificate::name(read.issuer, &mut |bytes| writer.push(Buffer::TlsCertIssuer, bytes));
        certificate::name(read.subject, &mut |bytes| writer.push(Buffer::TlsCertSubject, bytes));
        for buffer in [Buffer::TlsCertSerial, Buffer::TlsCertIssuer, Buffer::TlsCertSubject] {
            writer.show(buffer);
        }
    }
}

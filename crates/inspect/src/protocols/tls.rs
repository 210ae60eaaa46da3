//! Parser of the TLS ClientHello (RFC 8446, section 4.1.2; RFC 6066, section 3) in records of any size: server name,
//! offered protocols, and fingerprints JA3 and JA4. [`ServerFlight`] parses the other direction, and [`Records`] parses
//! the data after the hello in both directions.

mod certificate;
mod ja3;
mod ja4;
mod records;
mod server;

use super::anomaly::AnomalySet;
use super::writer::MessageWriter;
use super::{Anomaly, MessageEvent, ParserPools, Slot, SlotHandle};
use crate::signature::Buffer;
use ja3::Ja3;
use ja4::Ja4;
pub use records::Records;
pub use server::ServerFlight;

/// Units of work for a byte of a hello, because its numbers are formatted and hashed.
const HASHED: u32 = 6;

const RECORD: u32 = 5;
const LONGEST_RECORD: u32 = (1 << 14) + 256;
/// Extensions.
const SERVER_NAME: u16 = 0;
const GROUPS: u16 = 10;
const POINT_FORMATS: u16 = 11;
const SIGNATURES: u16 = 13;
const PROTOCOLS: u16 = 16;
const VERSIONS: u16 = 43;

/// A field of the ClientHello, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Kind,
    Length,
    Version,
    Random,
    SessionLength,
    Session,
    CiphersLength,
    Cipher,
    CompressionLength,
    Compression,
    ExtensionsLength,
    ExtensionKind,
    ExtensionLength,
    NamesLength,
    NameKind,
    NameLength,
    Name,
    GroupsLength,
    Group,
    FormatsLength,
    Format,
    SignaturesLength,
    Signature,
    ProtocolsLength,
    ProtocolLength,
    Protocol,
    VersionsLength,
    OfferedVersion,
    /// Skip the remaining bytes of an extension.
    Skip,
    Done,
}

/// The client's side of a connection, until its hello is complete.
#[derive(Debug)]
pub struct ClientHello {
    handle: Option<SlotHandle>,
    seen: AnomalySet,
    /// State of the record: received bytes of its header, its length, and its remaining bytes.
    header: u32,
    record: u32,
    step: Step,
    /// Remaining bytes of the field, and its value so far.
    need: u32,
    number: u32,
    /// Number of remaining bytes of the hello, of the list that contains the field, of all extensions, and of the current
    /// extension.
    hello: u32,
    list: u32,
    extensions: u32,
    extension: u32,
    named: bool,
    /// Number of offered protocols.
    protocols: u32,
    /// Whether the hello is in QUIC and therefore not in records.
    bare: bool,
    ja3: Ja3,
    ja4: Ja4,
}

impl Default for ClientHello {
    fn default() -> Self {
        Self {
            handle: None,
            seen: AnomalySet::default(),
            header: 0,
            record: 0,
            step: Step::Kind,
            need: 1,
            number: 0,
            hello: 4,
            list: 0,
            extensions: 0,
            extension: 0,
            named: false,
            protocols: 0,
            bare: false,
            ja3: Ja3::default(),
            ja4: Ja4::default(),
        }
    }
}

impl ClientHello {
    /// Creates a parser for a hello in CRYPTO frames of QUIC, which has no records (RFC 9001, section 4).
    pub(super) fn within_quic() -> Self {
        Self {
            header: RECORD,
            record: u32::MAX,
            bare: true,
            ..Self::default()
        }
    }

    /// Parses the next bytes of the stream.
    pub fn bytes(&mut self, store: &mut ParserPools, bytes: &[u8], sink: &mut impl FnMut(Slot<'_>, MessageEvent)) {
        if self.is_done() || bytes.is_empty() {
            return;
        }
        // The hello is parsed completely even if the budget is exhausted; without budget, only the hello's rules are skipped.
        store.work.charge(HASHED * bytes.len() as u32);
        let starts = (self.header == 0 || self.bare) && self.step == Step::Kind && self.need == 1;
        let (handle, seen) = (self.handle, self.seen);
        let mut writer = MessageWriter {
            slots: &mut store.names,
            counts: &mut store.anomalies,
            handle,
            seen,
            sink,
        };
        if starts && handle.is_none() {
            writer.start(true);
        }
        for &byte in bytes {
            let wrong = match self.header {
                RECORD => self.byte(byte, &mut writer),
                _ => self.record_header(byte),
            };
            if wrong {
                writer.anomaly(Anomaly::BadHello);
                self.finish(&mut writer);
            }
            if self.is_done() {
                break;
            }
        }
        writer.flush();
        (self.handle, self.seen) = (writer.handle, writer.seen);
    }

    /// Whether parsing has ended. Parsing ends when the hello is complete, or if the data is not a hello.
    pub fn is_done(&self) -> bool {
        self.step == Step::Done
    }

    /// Slot of the hello.
    pub fn slot<'a>(&self, store: &'a ParserPools) -> Slot<'a> {
        self.handle
            .and_then(|handle| store.names.slot(handle))
            .unwrap_or(Slot::NO_SLOT)
    }

    /// Releases the slot after the hello was evaluated, or at the end of the flow.
    pub fn release(&mut self, store: &mut ParserPools) {
        if let Some(handle) = self.handle.take() {
            store.names.release(handle);
        }
    }

    fn finish<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, writer: &mut MessageWriter<'_, S>) {
        writer.complete(&[Buffer::TlsSni, Buffer::Ja3Hash, Buffer::Ja4Hash, Buffer::TlsAlpn]);
        writer.end();
        self.step = Step::Done;
    }

    /// Handles a byte of a record header. Returns true if the record is not a handshake.
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

    /// Handles a byte of the handshake. Returns true if the byte is invalid.
    fn byte<S: FnMut(Slot<'_>, MessageEvent)>(&mut self, byte: u8, writer: &mut MessageWriter<'_, S>) -> bool {
        self.record -= 1;
        if self.record == 0 {
            self.header = 0;
        }
        self.hello -= 1;
        self.need -= 1;
        self.number = self.number << 8 | u32::from(byte);
        if self.step >= Step::ExtensionKind && self.extensions == 0 {
            return true;
        }
        if self.step >= Step::ExtensionKind {
            self.extensions -= 1;
        }
        if self.step >= Step::NamesLength {
            self.extension -= 1;
        }
        if self.step == Step::Name {
            writer.append(Buffer::TlsSni, &[byte]);
        }
        if self.step == Step::Protocol {
            writer.push(Buffer::TlsAlpn, &[byte]);
            if self.protocols == 1 {
                self.ja4.protocol(byte);
            }
            if self.need == 0 {
                // Each protocol is reported as a separate buffer.
                writer.show(Buffer::TlsAlpn);
                writer.complete(&[Buffer::TlsAlpn]);
                writer.flush();
                if self.list > 0 {
                    writer.clear(Buffer::TlsAlpn);
                }
            }
        }
        let wrong = self.need == 0 && {
            let number = std::mem::take(&mut self.number);
            self.field(number)
        };
        if !wrong && self.hello == 0 {
            // A hello without extensions ends after its compression methods.
            let between = self.step == Step::ExtensionsLength || self.step == Step::ExtensionKind;
            if !between || self.need != 2 || self.extensions > 0 {
                return true;
            }
            let hash = self.ja3.hash();
            writer.append(Buffer::Ja3Hash, &hash);
            let hash = self.ja4.hash(if self.bare { b'q' } else { b't' });
            writer.append(Buffer::Ja4Hash, &hash);
            if self.ja3.is_cut() || self.ja4.is_cut() {
                writer.anomaly(Anomaly::LongOffer);
            }
            self.finish(writer);
        }
        wrong
    }

    fn next(&mut self, step: Step, need: u32) -> bool {
        (self.step, self.need) = (step, need);
        false
    }

    /// Continues with the next element of a list, or with the field after the list.
    fn listed(&mut self, step: Step, size: u32, behind: (Step, u32)) -> bool {
        match self.list {
            0 => self.next(behind.0, behind.1),
            remaining if remaining < size => true,
            _ => {
                self.list -= size;
                self.next(step, size)
            }
        }
    }

    /// Continues with the remaining bytes of an extension, or with the next extension.
    fn rest(&mut self) -> bool {
        match self.extension {
            0 => self.next(Step::ExtensionKind, 2),
            remaining => self.next(Step::Skip, remaining),
        }
    }

    /// Handles a complete field. Returns true if the field is invalid.
    fn field(&mut self, number: u32) -> bool {
        match self.step {
            Step::Kind => number != 1 || self.next(Step::Length, 3),
            Step::Length => {
                self.hello = number;
                number < 38 || self.next(Step::Version, 2)
            }
            Step::Version => {
                self.ja3.version(number as u16);
                self.ja4.version(number as u16);
                self.next(Step::Random, 32)
            }
            Step::Random => self.next(Step::SessionLength, 1),
            Step::SessionLength if number > 0 => self.next(Step::Session, number),
            Step::SessionLength | Step::Session => self.next(Step::CiphersLength, 2),
            Step::CiphersLength => {
                self.list = number;
                self.listed(Step::Cipher, 2, (Step::CompressionLength, 1))
            }
            Step::Cipher => {
                self.ja3.cipher(number as u16);
                self.ja4.cipher(number as u16);
                self.listed(Step::Cipher, 2, (Step::CompressionLength, 1))
            }
            Step::CompressionLength if number > 0 => self.next(Step::Compression, number),
            Step::CompressionLength | Step::Compression => self.next(Step::ExtensionsLength, 2),
            Step::ExtensionsLength => {
                self.extensions = number;
                number != self.hello || self.next(Step::ExtensionKind, 2)
            }
            Step::ExtensionKind => {
                self.ja3.extension(number as u16);
                self.ja4.extension(number as u16);
                self.list = number;
                self.next(Step::ExtensionLength, 2)
            }
            Step::ExtensionLength => {
                let kind = std::mem::take(&mut self.list) as u16;
                self.extension = number;
                if number > self.extensions {
                    return true;
                }
                match kind {
                    SERVER_NAME if number >= 2 && !self.named => self.next(Step::NamesLength, 2),
                    GROUPS if number >= 2 => self.next(Step::GroupsLength, 2),
                    POINT_FORMATS if number >= 1 => self.next(Step::FormatsLength, 1),
                    SIGNATURES if number >= 2 => self.next(Step::SignaturesLength, 2),
                    PROTOCOLS if number >= 2 && self.protocols == 0 => self.next(Step::ProtocolsLength, 2),
                    VERSIONS if number >= 1 => self.next(Step::VersionsLength, 1),
                    _ => self.rest(),
                }
            }
            Step::NamesLength if self.extension >= 3 => self.next(Step::NameKind, 1),
            Step::NameKind if number == 0 && self.extension >= 2 => self.next(Step::NameLength, 2),
            Step::NameLength => {
                self.named = true;
                number > self.extension
                    || if number > 0 {
                        self.next(Step::Name, number)
                    } else {
                        self.rest()
                    }
            }
            Step::GroupsLength => {
                self.list = number;
                number > self.extension || self.group()
            }
            Step::Group => {
                self.ja3.group(number as u16);
                self.group()
            }
            Step::FormatsLength => {
                self.list = number;
                number > self.extension || self.format()
            }
            Step::Format => {
                self.ja3.format(number as u8);
                self.format()
            }
            Step::SignaturesLength => {
                self.list = number;
                number > self.extension || self.element(Step::Signature, 2)
            }
            Step::Signature => {
                self.ja4.signature(number as u16);
                self.element(Step::Signature, 2)
            }
            Step::VersionsLength => {
                self.list = number;
                number > self.extension || self.element(Step::OfferedVersion, 2)
            }
            Step::OfferedVersion => {
                self.ja4.offered_version(number as u16);
                self.element(Step::OfferedVersion, 2)
            }
            Step::ProtocolsLength => {
                self.list = number;
                number > self.extension || self.element(Step::ProtocolLength, 1)
            }
            Step::ProtocolLength if number == 0 || number > self.list => true,
            Step::ProtocolLength => {
                self.protocols += 1;
                self.list -= number;
                self.next(Step::Protocol, number)
            }
            Step::Protocol => self.element(Step::ProtocolLength, 1),
            Step::NamesLength | Step::NameKind | Step::Name | Step::Skip => self.rest(),
            Step::Done => false,
        }
    }

    fn group(&mut self) -> bool {
        self.element(Step::Group, 2)
    }

    fn format(&mut self) -> bool {
        self.element(Step::Format, 1)
    }

    /// Continues with the next element of a list in an extension, or with the bytes of the extension after the list.
    fn element(&mut self, step: Step, size: u32) -> bool {
        match self.list {
            0 => self.rest(),
            _ => self.listed(step, size, (Step::Skip, 0)),
        }
    }
}

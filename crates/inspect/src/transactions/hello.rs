//! Parser of the TLS ServerHello (RFC 8446, section 4.1.3) for the version that the server selected.

const RECORD: u8 = 5;
const HANDSHAKE: u8 = 22;
const SERVER_HELLO: u32 = 2;
const SUPPORTED_VERSIONS: u32 = 43;

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
    Skip,
    Done,
}

/// Parser of the server's side of a connection, until its hello is complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerHello {
    step: Step,
    /// Number of received bytes of the record header.
    header: u8,
    /// Remaining bytes of the record, of the message, and of the field.
    record: u16,
    message: u32,
    need: u32,
    number: u32,
    chooses: bool,
    version: u16,
}

impl Default for ServerHello {
    fn default() -> Self {
        Self {
            step: Step::Kind,
            header: 0,
            record: 0,
            message: 4,
            need: 1,
            number: 0,
            chooses: false,
            version: 0,
        }
    }
}

impl ServerHello {
    /// Parses the next bytes of the stream. Returns the selected version once it is known, or 0 if the stream does not
    /// begin with a hello.
    pub fn bytes(&mut self, bytes: &[u8]) -> Option<u16> {
        for &byte in bytes {
            if self.step == Step::Done {
                return None;
            }
            if self.byte(byte) {
                self.step = Step::Done;
                return Some(self.version);
            }
        }
        None
    }

    /// Parses a byte. Returns true if the hello is complete, or if the data is not a hello.
    fn byte(&mut self, byte: u8) -> bool {
        if self.header < RECORD {
            self.header += 1;
            match self.header {
                1 => return byte != HANDSHAKE,
                2 => return byte != 3,
                3 => {}
                _ => self.record = self.record << 8 | u16::from(byte),
            }
            return self.header == RECORD && self.record == 0;
        }
        self.record -= 1;
        if self.record == 0 {
            self.header = 0;
        }
        self.message -= 1;
        self.need -= 1;
        self.number = self.number << 8 | u32::from(byte);
        if self.need == 0 {
            let number = std::mem::take(&mut self.number);
            if self.field(number) {
                return true;
            }
        }
        // A hello without extensions ends after its compression method.
        self.message == 0
    }

    fn next(&mut self, step: Step, need: u32) -> bool {
        (self.step, self.need) = (step, need);
        false
    }

    /// Handles a complete field. Returns true if the data is not a hello, or if the remaining bytes of the hello are
    /// not needed.
    fn field(&mut self, number: u32) -> bool {
        match self.step {
            Step::Kind => number != SERVER_HELLO || self.next(Step::Length, 3),
            Step::Length => {
                self.message = number;
                number < 38 || self.next(Step::Version, 2)
            }
            Step::Version => {
                self.version = number as u16;
                self.next(Step::Random, 32)
            }
            Step::Random => self.next(Step::SessionLength, 1),
            Step::SessionLength if number > 0 => self.next(Step::Session, number),
            Step::SessionLength | Step::Session => self.next(Step::Cipher, 2),
            Step::Cipher => self.next(Step::Compression, 1),
            Step::Compression => self.next(Step::ExtensionsLength, 2),
            Step::ExtensionsLength => self.next(Step::ExtensionKind, 2),
            Step::ExtensionKind => {
                self.chooses = number == SUPPORTED_VERSIONS;
                self.next(Step::ExtensionLength, 2)
            }
            Step::ExtensionLength => match number {
                2 if self.chooses => self.next(Step::Chosen, 2),
                0 => self.next(Step::ExtensionKind, 2),
                length => self.next(Step::Skip, length),
            },
            Step::Chosen => {
                self.version = number as u16;
                true
            }
            Step::Skip => self.next(Step::ExtensionKind, 2),
            Step::Done => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(extensions: &[u8]) -> Vec<u8> {
        let length = |bytes: usize| (bytes as u16).to_be_bytes();
        let body = [
            &[3, 3][..],
            &[7; 32],
            &[4, 1, 2, 3, 4],
            &[0x13, 1, 0],
            &length(extensions.len()),
            extensions,
        ]
        .concat();
        let message = [&[2, 0][..], &length(body.len()), &body].concat();
        // The message is split into two records here.
        let (first, second) = message.split_at(20);
        [first, second]
            .map(|part| [&[22, 3, 3][..], &length(part.len()), part].concat())
            .concat()
    }

    fn version(bytes: &[u8], step: usize) -> Option<u16> {
        let mut hello = ServerHello::default();
        let said: Vec<_> = bytes.chunks(step).filter_map(|part| hello.bytes(part)).collect();
        assert!(said.len() < 2, "{said:?}");
        said.first().copied()
    }

    #[test]
    fn version_is_the_one_that_the_server_chose_however_its_hello_is_cut() {
        let newer = hello(&[0, 51, 0, 3, 9, 9, 9, 0, 43, 0, 2, 3, 4, 0, 44, 0, 0]);
        let older = hello(&[0, 23, 0, 0]);
        for step in 1..newer.len() {
            assert_eq!(Some(0x0304), version(&newer, step), "every {step}");
            assert_eq!(Some(0x0303), version(&older, step), "every {step}");
        }
        assert_eq!(Some(0x0303), version(&hello(&[]), 7));
    }

    #[test]
    fn what_is_no_hello_has_no_version() {
        assert_eq!(Some(0), version(b"\x15\x03\x03\x00\x02\x02\x28", 1));
        assert_eq!(Some(0), version(b"\x16\x03\x03\x00\x04\x01\x00\x00\x05", 1));
        assert_eq!(None, version(&hello(&[])[..30], 3));
    }
}

//! Records after the hellos. Only the record headers are parsed (RFC 8446, section 5.1).

use super::{LONGEST_RECORD, RECORD};

const CHANGE_CIPHER_SPEC: u8 = 20;
const HEARTBEAT: u8 = 24;
const APPLICATION_DATA: u8 = 23;

/// State of the records of one direction.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Received bytes of the header, and remaining bytes of the record.
    header: u8,
    remaining: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// All records so far are not encrypted: the hello, the certificate, and other messages before the keys are agreed.
    #[default]
    Clear,
    /// Application data was received, so all later records are encrypted.
    Encrypted,
    /// The data is not a sequence of records.
    Broken,
}

impl Records {
    /// Parses the bytes of the stream, in order and from its start.
    pub fn bytes(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.state == State::Broken {
                return;
            }
            if u32::from(self.header) == RECORD {
                let here = bytes.len().min(self.remaining as usize);
                bytes = &bytes[here..];
                self.remaining -= here as u32;
            } else {
                self.header += 1;
                self.header_byte(byte);
                bytes = rest;
            }
            if u32::from(self.header) == RECORD && self.remaining == 0 {
                self.header = 0;
            }
        }
    }

    fn header_byte(&mut self, byte: u8) {
        let is_right = match self.header {
            1 => {
                let is_data = byte == APPLICATION_DATA;
                let is_usual = (CHANGE_CIPHER_SPEC..=HEARTBEAT).contains(&byte);
                if is_data && self.state == State::Clear {
                    self.state = State::Encrypted;
                }
                is_usual
            }
            2 => byte == 3,
            3 => byte <= 4,
            4 => {
                self.remaining = u32::from(byte) << 8;
                true
            }
            _ => {
                self.remaining |= u32::from(byte);
                self.remaining <= LONGEST_RECORD
            }
        };
        if !is_right {
            self.state = State::Broken;
        }
    }

    /// Whether all later records are encrypted, according to their headers.
    pub fn are_encrypted(&self) -> bool {
        self.state == State::Encrypted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, length: u16) -> Vec<u8> {
        let [high, low] = length.to_be_bytes();
        [&[kind, 3, 3, high, low][..], &vec![7; length.into()]].concat()
    }

    fn after(pieces: &[&[u8]]) -> Records {
        let mut records = Records::default();
        pieces.iter().for_each(|piece| records.bytes(piece));
        records
    }

    #[test]
    fn application_data_says_that_all_is_encrypted_wherever_it_is_cut() {
        let hello = [record(22, 300), record(20, 1)].concat();
        assert!(!after(&[&hello]).are_encrypted());
        let all = [hello, record(23, 40), record(21, 20), record(23, 16_640)].concat();
        for cut in 0..all.len() {
            let records = after(&[&all[..cut], &all[cut..]]);
            assert!(records.are_encrypted(), "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_record_is_never_taken_for_encrypted() {
        let hello = record(22, 300);
        for wrong in [
            &b"GET / HTTP/1.1"[..],
            &[23, 2, 3, 0, 1, 0],
            &[23, 3, 9, 0, 1, 0],
            &[23, 3, 3, 0xff, 0xff],
        ] {
            assert!(!after(&[&hello, wrong]).are_encrypted(), "{wrong:?}");
            assert!(!after(&[&hello, &record(23, 9), wrong]).are_encrypted(), "{wrong:?}");
        }
        // An empty record ends with its header.
        assert!(after(&[&record(22, 0), &record(23, 0), &record(23, 3)]).are_encrypted());
    }
}

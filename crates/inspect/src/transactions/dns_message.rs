//! Parser of complete DNS messages (RFC 1035, section 4) for a log. The parser allocates memory and is not used on the
//! packet path.

use std::net::{Ipv4Addr, Ipv6Addr};

const HEADER: usize = 12;
/// Maximum number of parsed records of a section.
const RECORDS: usize = 64;
/// Maximum number of compression pointers in a name.
const JUMPS: usize = 16;
const LONGEST_NAME: usize = 255;

/// A DNS message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Identifier.
    pub id: u16,
    /// Flags, operation code and response code, as in the header.
    pub flags: u16,
    /// Questions.
    pub questions: Vec<Question>,
    /// Answers.
    pub answers: Vec<Answer>,
    /// Whether only the beginning of the message was parsed: the message is too long, truncated, or malformed.
    pub is_cut: bool,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Name, without the final dot.
    pub name: String,
    /// Type.
    pub kind: u16,
}

/// A resource record of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Name, without the final dot.
    pub name: String,
    /// Type.
    pub kind: u16,
    /// Time to live in seconds.
    pub ttl: u32,
    /// Data as text, for records that contain an address, a name or text.
    pub data: Option<String>,
}

impl Message {
    /// Parses the well-formed part of a message. Returns `None` if the header is incomplete.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let word = |at| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let mut message = Self {
            id: word(0)?,
            flags: word(2)?,
            ..Self::default()
        };
        let (questions, answers) = (word(4)?, word(6)?);
        word(HEADER - 2)?;
        message.is_cut = message.records(bytes, questions.into(), answers.into()).is_none();
        Some(message)
    }

    /// Whether the message is a response.
    pub fn is_answer(&self) -> bool {
        self.flags & 0x8000 != 0
    }

    /// Operation code; 0 is a query.
    pub fn operation(&self) -> u8 {
        (self.flags >> 11 & 15) as u8
    }

    /// Name of the response code (RFC 1035, RFC 2136).
    pub fn code(&self) -> String {
        const CODES: [&str; 11] = [
            "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET",
            "NOTAUTH", "NOTZONE",
        ];
        let code = usize::from(self.flags & 15);
        CODES.get(code).map_or_else(|| code.to_string(), |&name| name.into())
    }

    /// Parses the sections. Returns `None` if the message ends before the last record, or is malformed.
    fn records(&mut self, bytes: &[u8], questions: usize, answers: usize) -> Option<()> {
        let word = |at| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        let mut at = HEADER;
        for _ in 0..questions.min(RECORDS) {
            let (name, end) = name(bytes, at)?;
            let kind = word(end)?;
            at = end + 4;
            self.questions.push(Question { name, kind });
        }
        for _ in 0..answers.min(RECORDS) {
            let (name, end) = name(bytes, at)?;
            let (kind, length) = (word(end)?, word(end + 8)?);
            let ttl = u32::from_be_bytes(*bytes.get(end + 4..)?.first_chunk()?);
            at = end + 10 + usize::from(length);
            let data = data(bytes, kind, end + 10, at)?;
            self.answers.push(Answer { name, kind, ttl, data });
        }
        (questions.max(answers) <= RECORDS).then_some(())
    }
}

/// Name of a record type; its number if the type is uncommon.
pub fn kind(number: u16) -> String {
    let name = match number {
        1 => "A",
        2 => "NS",
        5 => "CNAME",
        6 => "SOA",
        12 => "PTR",
        15 => "MX",
        16 => "TXT",
        28 => "AAAA",
        33 => "SRV",
        35 => "NAPTR",
        41 => "OPT",
        43 => "DS",
        46 => "RRSIG",
        47 => "NSEC",
        48 => "DNSKEY",
        50 => "NSEC3",
        64 => "SVCB",
        65 => "HTTPS",
        252 => "AXFR",
        255 => "ANY",
        257 => "CAA",
        other => return other.to_string(),
    };
    name.into()
}

/// Data of a record; `None` if the message ends within it.
fn data(bytes: &[u8], kind: u16, start: usize, end: usize) -> Option<Option<String>> {
    let data = bytes.get(start..end)?;
    Some(match kind {
        1 => data
            .first_chunk::<4>()
            .map(|&address| Ipv4Addr::from(address).to_string()),
        28 => data
            .first_chunk::<16>()
            .map(|&address| Ipv6Addr::from(address).to_string()),
        2 | 5 | 12 => name(bytes, start).map(|(name, _)| name),
        15 => name(bytes, start + 2).map(|(name, _)| name),
        16 => {
            let (mut text, mut rest) = (String::new(), data);
            while let Some((&length, more)) = rest.split_first() {
                let (part, more) = more.split_at(usize::from(length).min(more.len()));
                text += &String::from_utf8_lossy(part);
                rest = more;
            }
            Some(text)
        }
        _ => None,
    })
}

/// Returns the name at offset `at`, and the offset of its end. A compression pointer must refer to a position before
/// the name that contains it, so parsing terminates.
fn name(bytes: &[u8], at: usize) -> Option<(String, usize)> {
    let (mut at, mut start, mut end, mut jumps) = (at, at, None, 0);
    let mut name = Vec::new();
    loop {
        let length = *bytes.get(at)?;
        match length >> 6 {
            0 if length == 0 => return Some((String::from_utf8_lossy(&name).into(), end.unwrap_or(at + 1))),
            0 => {
                if !name.is_empty() {
                    name.push(b'.');
                }
                name.extend(bytes.get(at + 1..at + 1 + usize::from(length))?);
                at += 1 + usize::from(length);
            }
            3 => {
                let target = usize::from(length & 0x3f) << 8 | usize::from(*bytes.get(at + 1)?);
                end = end.or(Some(at + 2));
                jumps += 1;
                if target >= start || jumps > JUMPS {
                    return None;
                }
                (at, start) = (target, target);
            }
            _ => return None,
        }
        if name.len() > LONGEST_NAME {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RESPONSE: &[u8] =
        b"\x12\x34\x81\x80\x00\x01\x00\x03\x00\x00\x00\x00\x03www\x07example\x04test\x00\x00\x01\x00\x01\
        \xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x3c\x00\x06\x03alt\xc0\x10\
        \xc0\x2e\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc6\x33\x64\x07\
        \xc0\x2e\x00\x63\x00\x01\x00\x00\x00\x00\x00\x01x";

    fn answer(name: &str, kind: u16, ttl: u32, data: Option<&str>) -> Answer {
        let (name, data) = (name.into(), data.map(String::from));
        Answer { name, kind, ttl, data }
    }

    #[test]
    fn answer_is_read_with_names_and_addresses() {
        let message = Message::read(RESPONSE).unwrap();
        assert!(message.is_answer() && !message.is_cut);
        assert_eq!(
            (0x1234, 0, "NOERROR"),
            (message.id, message.operation(), &*message.code())
        );
        let name = "www.example.test".into();
        assert_eq!(vec![Question { name, kind: 1 }], message.questions);
        let expected = vec![
            answer("www.example.test", 5, 60, Some("alt.example.test")),
            answer("alt.example.test", 1, 60, Some("198.51.100.7")),
            answer("alt.example.test", 99, 0, None),
        ];
        assert_eq!(expected, message.answers);
        assert_eq!(["A", "CNAME", "99"].map(String::from), [1, 5, 99].map(kind));
    }

    #[test]
    fn message_that_is_cut_gives_what_was_before() {
        for length in 0..HEADER {
            assert_eq!(None, Message::read(&RESPONSE[..length]));
        }
        for length in HEADER..RESPONSE.len() {
            let message = Message::read(&RESPONSE[..length]).unwrap();
            assert!(message.is_cut, "{length}");
            assert!(message.answers.len() < 3, "{length}");
        }
    }

    #[test]
    fn pointers_that_lead_nowhere_end() {
        for name in [&b"\xc0\x0c"[..], b"\xc0\xff", b"\x01a\xc0\x0c", b"\x41a"] {
            let bytes = [&RESPONSE[..12], name, b"\x00\x01\x00\x01"].concat();
            let message = Message::read(&bytes).unwrap();
            assert_eq!((true, 0), (message.is_cut, message.questions.len()));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = Message::read(&bytes);
        }

        #[test]
        fn any_change_of_an_answer_is_read_to_an_end(at in 0..RESPONSE.len(), byte in any::<u8>()) {
            let mut bytes = RESPONSE.to_vec();
            bytes[at] = byte;
            prop_assert!(Message::read(&bytes).is_some());
        }
    }
}

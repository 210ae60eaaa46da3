//! Identifies the application of a connection or a datagram flow from the first bytes of each direction. Ports matter only
//! for protocols without a distinctive pattern: NTP, and malformed DNS.
//!
//! Each protocol has a function that compares the first bytes of one direction with the protocol. A protocol is
//! identified when one direction matches with certainty, or when both directions are likely matches: `USER` belongs to
//! FTP after `220`, and to POP3 after `+OK`. A prefix of identified bytes is either undecided or yields the same
//! protocol.

mod binary;
mod datagram;
mod text;

use arrayvec::ArrayVec;

use crate::signature::{Service, Toward};
pub use datagram::probe_datagram;

/// Result of the identification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeResult {
    /// More bytes are needed.
    NeedMore,
    /// The protocol is identified.
    Identified(Service),
    /// The bytes match no known protocol.
    Unknown,
}

/// Result of comparing the first bytes of one direction with a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Confidence {
    /// The bytes do not belong to this protocol.
    NoMatch,
    /// More bytes are needed.
    NeedMore,
    /// The bytes are valid in this protocol and in other protocols. The bytes of the other direction are needed to
    /// distinguish the protocols.
    Likely,
    /// The bytes belong to this protocol.
    Certain,
}

use Confidence::{Certain, Likely, NeedMore, NoMatch};

/// The first bytes of one direction.
#[derive(Clone, Copy)]
struct Head<'a> {
    toward: Toward,
    bytes: &'a [u8],
    /// Whether the other direction has no data yet.
    first: bool,
}

/// Function that compares the first bytes of a direction with a protocol.
type Probe = fn(&Head<'_>) -> Confidence;

/// Protocols over TCP. If two protocols match with certainty, the first in this list is chosen.
const PROBES: &[(Service, Probe)] = &[
    (Service::Http, http),
    (Service::Http2, http2),
    (Service::Tls, tls),
    (Service::Ssh, text::ssh),
    (Service::Smtp, text::smtp),
    (Service::Ftp, text::ftp),
    (Service::Pop3, text::pop3),
    (Service::Imap, text::imap),
    (Service::Sip, text::sip),
    (Service::Irc, text::irc),
    (Service::Telnet, binary::telnet),
    (Service::Smb, binary::smb),
    (Service::Rdp, binary::rdp),
    (Service::Ldap, binary::ldap),
    (Service::Krb5, binary::kerberos),
    (Service::Nfs, binary::nfs),
    (Service::Rpc, binary::rpc),
    (Service::Dcerpc, binary::dcerpc),
    (Service::Postgres, binary::postgres),
    (Service::MySql, binary::mysql),
    (Service::Mqtt, binary::mqtt),
    (Service::Dns, dns),
];

/// Maximum number of bytes stored of each direction.
pub const MAX_HEAD: usize = 64;

/// Maximum number of datagrams of a flow that are compared.
const MAX_DATAGRAMS: u8 = 4;

/// Collects the first bytes of both directions until they identify the protocol. The parser then receives
/// [`ProtocolProbe::head`] first.
#[derive(Clone, Debug, Default)]
pub struct ProtocolProbe {
    heads: [ArrayVec<u8, MAX_HEAD>; 2],
    datagrams: u8,
}

impl ProtocolProbe {
    /// Adds bytes of one direction. Returns the result for both directions, and the number of bytes that were stored
    /// for this direction. The caller passes the remaining bytes to the parser.
    pub fn bytes(&mut self, toward: Toward, bytes: &[u8]) -> (ProbeResult, usize) {
        let head = &mut self.heads[toward as usize];
        let taken = bytes.len().min(head.remaining_capacity());
        if taken == 0 {
            return (ProbeResult::NeedMore, 0);
        }
        head.extend(bytes[..taken].iter().copied());
        (probe([&self.heads[0], &self.heads[1]]), taken)
    }

    /// Compares a datagram of an unidentified flow. Only the first few datagrams are compared.
    pub fn datagram(&mut self, toward: Toward, ports: [u16; 2], bytes: &[u8]) -> ProbeResult {
        self.datagrams += 1;
        match probe_datagram(toward, ports, bytes) {
            Some(service) => ProbeResult::Identified(service),
            None if self.datagrams >= MAX_DATAGRAMS => ProbeResult::Unknown,
            None => ProbeResult::NeedMore,
        }
    }

    /// The stored bytes of a direction.
    pub fn head(&self, toward: Toward) -> &[u8] {
        &self.heads[toward as usize]
    }

    /// Whether no bytes are stored.
    pub fn is_empty(&self) -> bool {
        self.heads.iter().all(ArrayVec::is_empty)
    }
}

/// Compares the first bytes of both directions; the bytes sent to the server come first in `heads`. A direction with
/// [`MAX_HEAD`] bytes gets no more data.
pub fn probe(heads: [&[u8]; 2]) -> ProbeResult {
    let [client, server] = heads;
    let toward_server = Head {
        toward: Toward::Server,
        bytes: client,
        first: server.is_empty(),
    };
    let toward_client = Head {
        toward: Toward::Client,
        bytes: server,
        first: client.is_empty(),
    };
    let mut open = false;
    for &(service, compare) in PROBES {
        let said = [toward_server, toward_client].map(|head| match head.bytes.len() {
            0 => NeedMore,
            MAX_HEAD.. => match compare(&head) {
                NeedMore => NoMatch,
                said => said,
            },
            _ => compare(&head),
        });
        match said {
            [Certain, _] | [_, Certain] | [Likely, Likely] => return ProbeResult::Identified(service),
            [NoMatch, _] | [_, NoMatch] => {}
            _ => open = true,
        }
    }
    match open {
        true => ProbeResult::NeedMore,
        false => ProbeResult::Unknown,
    }
}

/// A BER length (X.690, section 8.1.3), and the bytes after it.
pub(super) fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    binary::length(bytes).ok()
}

/// Compares the start of a direction with a word, ignoring case. Returns `then` if the word matches.
fn starts(bytes: &[u8], with: &[u8], then: Confidence) -> Confidence {
    let common = bytes.len().min(with.len());
    match bytes[..common].eq_ignore_ascii_case(&with[..common]) {
        true if common == with.len() => then,
        true => NeedMore,
        false => NoMatch,
    }
}

/// Highest confidence of several comparisons.
fn best_of(compared: impl IntoIterator<Item = Confidence>) -> Confidence {
    let mut best = NoMatch;
    for said in compared {
        best = match (best, said) {
            (Certain, _) | (_, Certain) => Certain,
            (Likely, _) | (_, Likely) => Likely,
            (NeedMore, _) | (_, NeedMore) => NeedMore,
            _ => NoMatch,
        };
    }
    best
}

/// Whether the byte may occur in a token (RFC 9110, section 5.6.2).
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

const METHODS: [&[u8]; 14] = [
    b"GET",
    b"HEAD",
    b"POST",
    b"PUT",
    b"DELETE",
    b"CONNECT",
    b"TRACE",
    b"PATCH",
    b"PROPFIND",
    b"PROPPATCH",
    b"MKCOL",
    b"COPY",
    b"MOVE",
    b"UNLOCK",
];

/// HTTP/0.9, 1.0 and 1.1.
fn http(head: &Head<'_>) -> Confidence {
    let (toward, full) = (head.toward, head.bytes.len() >= MAX_HEAD);
    let Some(start) = head.bytes.iter().position(|&byte| byte != b'\r' && byte != b'\n') else {
        return NeedMore;
    };
    let head = &head.bytes[start..];
    if toward == Toward::Client {
        return starts(head, b"HTTP/", Certain);
    }
    let Some(end) = head.iter().position(|&byte| !is_token(byte)) else {
        return if head.len() <= 32 { NeedMore } else { NoMatch };
    };
    if end == 0 || end > 32 || !matches!(head[end], b' ' | b'\t') || &head[..end] == b"PRI" {
        return NoMatch;
    }
    if METHODS.contains(&&head[..end]) {
        return Certain;
    }
    let Some(target) = head[end..].iter().position(|byte| !matches!(byte, b' ' | b'\t')) else {
        return NeedMore;
    };
    match &head[end + target..] {
        [b'/', ..] if head[..end].iter().all(u8::is_ascii_uppercase) => Certain,
        // A slash may also begin a path in shell and Git commands.
        [b'/', rest @ ..] => match rest.iter().position(|byte| matches!(byte, b'\n' | 0)) {
            _ if rest.windows(6).any(|part| part.eq_ignore_ascii_case(b" HTTP/")) => Certain,
            Some(_) => NoMatch,
            None if full => Certain,
            None => NeedMore,
        },
        // Target of `OPTIONS`. The same target occurs in other protocols: `STAT *`, `EXPN *@host`.
        [b'*', rest @ ..] => {
            let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            match &rest[blanks..] {
                [] => NeedMore,
                _ if blanks == 0 => NoMatch,
                version => starts(version, b"HTTP/", Certain),
            }
        }
        // Many protocols start with two words. Only a target with an `http` scheme is distinctive.
        target => starts(target, b"http", Certain),
    }
}

/// The client's HTTP/2 connection preface (RFC 9113, section 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// HTTP/2: the client sends the preface; the server sends a SETTINGS frame on stream 0, which is possibly the first
/// frame of an upgraded connection (RFC 7540, section 3.2).
fn http2(head: &Head<'_>) -> Confidence {
    match (head.toward, head.bytes) {
        (Toward::Server, bytes) if bytes.starts_with(&PREFACE[..bytes.len().min(PREFACE.len())]) => {
            if bytes.len() < PREFACE.len() { NeedMore } else { Certain }
        }
        (Toward::Server, _) => NoMatch,
        (Toward::Client, bytes) => {
            let settings = [Some(0), None, None, Some(4), None, Some(0), Some(0), Some(0), Some(0)];
            let is_whole = bytes.get(2).is_none_or(|length| length.is_multiple_of(6));
            let starts = head.first && is_whole && bytes.get(4).is_none_or(|flags| *flags == 0);
            binary::pattern(bytes, &settings, if starts { Certain } else { Likely })
        }
    }
}

/// TLS: the first record starts a handshake of version 3.x, or contains an alert of the server.
fn tls(head: &Head<'_>) -> Confidence {
    let toward = head.toward;
    let kind = |byte| byte == 22 || byte == 21 && toward == Toward::Client;
    match *head.bytes {
        [] => NeedMore,
        [first, ..] if !kind(first) => NoMatch,
        [_, version, ..] if version != 3 => NoMatch,
        [_, _, minor, ..] if minor > 4 => NoMatch,
        [22, _, _, _, _, kind, ..] => match (toward, kind) {
            (Toward::Server, 1) | (Toward::Client, 2) => Certain,
            _ => NoMatch,
        },
        [21, _, _, 0, 2, ..] => Certain,
        [21, _, _, _, _, ..] => NoMatch,
        _ => NeedMore,
    }
}

/// DNS: a length field, the header of a query or response with one to 16 questions, and the stored part of the first
/// question.
fn dns(head: &Head<'_>) -> Confidence {
    let (toward, head) = (head.toward, head.bytes);
    let at = |at: usize| head.get(at).copied().unwrap_or(0);
    let length = u16::from_be_bytes([at(0), at(1)]);
    let answer = toward == Toward::Client;
    let said = head.len();
    let wrong = said >= 2 && length < 17
        || said >= 5 && ((at(4) & 0x80 != 0) != answer || at(4) >> 3 & 15 > 5)
        || said >= 8 && (at(6) != 0 || !(1..=16).contains(&at(7)))
        || said >= 10 && !answer && at(4) >> 3 & 15 != 5 && (at(8), at(9)) != (0, 0);
    if wrong {
        return NoMatch;
    }
    let mut label = 14;
    while label < said {
        match usize::from(at(label)) {
            0 if said < label + 5 => return if said == MAX_HEAD { Certain } else { NeedMore },
            0 if label + 3 > usize::from(length) || !is_class([at(label + 3), at(label + 4)]) => return NoMatch,
            0 => return Certain,
            64.. => return NoMatch,
            bytes => label += 1 + bytes,
        }
        if label - 2 >= usize::from(length) {
            return NoMatch;
        }
    }
    match said {
        // The name is longer than the stored bytes, and its first labels are valid.
        MAX_HEAD.. => Certain,
        _ => NeedMore,
    }
}

/// Classes of questions (RFC 6895, section 3.2), with or without the top bit of RFC 6762, section 5.4.
fn is_class(class: [u8; 2]) -> bool {
    matches!(class, [0 | 0x80, 1] | [0, 3 | 4 | 254 | 255])
}

#[cfg(test)]
mod tests;

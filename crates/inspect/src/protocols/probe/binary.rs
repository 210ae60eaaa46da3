//! Protocols with binary headers.

use super::{Certain, Confidence, Head, Likely, NeedMore, NoMatch, best_of};
use crate::signature::Toward;

/// Compares bytes with a pattern in which `None` matches any byte. Returns `then` if the bytes match.
pub fn pattern(bytes: &[u8], pattern: &[Option<u8>], then: Confidence) -> Confidence {
    let agrees = bytes
        .iter()
        .zip(pattern)
        .all(|(byte, wanted)| wanted.is_none_or(|wanted| wanted == *byte));
    match (agrees, bytes.len() >= pattern.len()) {
        (false, _) => NoMatch,
        (true, false) => NeedMore,
        (true, true) => then,
    }
}

/// Telnet options assigned by IANA, and the extended options list.
fn is_telnet_option(option: u8) -> bool {
    matches!(option, 0..=49 | 138..=140 | 255)
}

/// Telnet negotiations (RFC 854): IAC, a command from WILL to DONT, an option. Two negotiations are a certain match,
/// and one negotiation is a likely match.
pub fn telnet(head: &Head<'_>) -> Confidence {
    let mut count = 0;
    for command in head.bytes.chunks(3) {
        match *command {
            [255, 251..=254, option] if is_telnet_option(option) => count += 1,
            [255, 250, option] if count > 0 && is_telnet_option(option) => return Certain,
            [255] | [255, 250..=254] if count < 2 => return if count == 0 { NeedMore } else { Likely },
            // Text follows a single negotiation.
            _ if count == 1 && command[0] != 255 => return Likely,
            _ if count > 1 => return Certain,
            _ => return NoMatch,
        }
    }
    match count {
        0 => NeedMore,
        1 => Likely,
        _ => Certain,
    }
}

/// SMB 1, 2 and 3 over TCP (MS-SMB2, section 2.1), and NetBIOS sessions (RFC 1002, section 4.3).
pub fn smb(head: &Head<'_>) -> Confidence {
    let bytes = head.bytes;
    let message = best_of([0xff, 0xfe, 0xfd, 0xfc].map(|version| {
        let magic = [
            Some(0),
            None,
            None,
            None,
            Some(version),
            Some(b'S'),
            Some(b'M'),
            Some(b'B'),
        ];
        pattern(bytes, &magic, Certain)
    }));
    let session = match head.toward {
        // The called name: a length byte, and 32 letters from A to P.
        Toward::Server => match pattern(bytes, &[Some(0x81), Some(0), Some(0), Some(68), Some(32)], Certain) {
            Certain => {
                let name = &bytes[5..bytes.len().min(37)];
                match (name.iter().all(|byte| (b'A'..=b'P').contains(byte)), name.len()) {
                    (false, _) => NoMatch,
                    (true, 32) => Certain,
                    (true, _) => NeedMore,
                }
            }
            said => said,
        },
        Toward::Client => best_of([
            pattern(bytes, &[Some(0x82), Some(0), Some(0), Some(0)], Likely),
            pattern(bytes, &[Some(0x83), Some(0), Some(0), Some(1)], Likely),
        ]),
    };
    best_of([message, session])
}

/// RDP: a TPKT header (RFC 2126), then an X.224 connection request or confirmation, and only data that RDP allows
/// (MS-RDPBCGR, sections 2.2.1.1 and 2.2.1.2).
pub fn rdp(head: &Head<'_>) -> Confidence {
    let bytes = head.bytes;
    let kind = match head.toward {
        Toward::Server => 0xe0,
        Toward::Client => 0xd0,
    };
    match pattern(bytes, &[Some(3), Some(0), None, None, None, Some(kind)], Certain) {
        Certain => {}
        said => return said,
    }
    let length = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
    if length < 11 || usize::from(bytes[4]) + 5 != length {
        return NoMatch;
    }
    let Some(rest) = bytes.get(11..) else { return NeedMore };
    let negotiates = |kinds: &[u8]| {
        best_of(
            kinds
                .iter()
                .map(|&kind| pattern(rest, &[Some(kind), None, Some(8), Some(0)], Certain)),
        )
    };
    match (length, head.toward) {
        (11, Toward::Server) => Certain,
        (11, Toward::Client) => Likely,
        (_, Toward::Server) => best_of([super::starts(rest, b"Cookie: ", Certain), negotiates(&[1])]),
        (_, Toward::Client) => negotiates(&[2, 3]),
    }
}

/// A BER length (X.690, section 8.1.3) of up to four bytes, and the bytes after the length. `Err` if the length is
/// invalid or incomplete.
pub fn length(bytes: &[u8]) -> Result<(usize, &[u8]), Confidence> {
    match *bytes {
        [] => Err(NeedMore),
        [short @ ..=0x7f, ref rest @ ..] => Ok((usize::from(short), rest)),
        [long @ 0x81..=0x84, ref rest @ ..] => {
            let count = usize::from(long & 0x7f);
            let (number, rest) = rest.split_at_checked(count).ok_or(NeedMore)?;
            Ok((number.iter().fold(0, |all, &byte| all << 8 | usize::from(byte)), rest))
        }
        [..] => Err(NoMatch),
    }
}

/// An LDAP message (RFC 4511, section 4.1.1): a sequence of a message ID and an operation that is allowed in this
/// direction.
pub fn ldap(head: &Head<'_>) -> Confidence {
    ldap_message(head.toward, head.bytes).unwrap_or_else(|said| said)
}

pub fn ldap_message(toward: Toward, bytes: &[u8]) -> Result<Confidence, Confidence> {
    let Some((0x30, rest)) = bytes.split_first() else {
        return Ok(if bytes.is_empty() { NeedMore } else { NoMatch });
    };
    let (outer, rest) = length(rest)?;
    let &[kind, ref rest @ ..] = rest else {
        return Ok(NeedMore);
    };
    if kind != 2 || outer < 5 {
        return Ok(NoMatch);
    }
    let (number, rest) = match *rest {
        [] => return Ok(NeedMore),
        [count @ 1..=4, ref rest @ ..] => (usize::from(count), rest),
        _ => return Ok(NoMatch),
    };
    let Some(&[operation, ref rest @ ..]) = rest.get(number..) else {
        return Ok(NeedMore);
    };
    let own = match toward {
        // Bind, search, extended request and other requests.
        Toward::Server => matches!(
            operation,
            0x42 | 0x4a | 0x50 | 0x60 | 0x63 | 0x66 | 0x68 | 0x6c | 0x6e | 0x77
        ),
        Toward::Client => matches!(
            operation,
            0x61 | 0x64 | 0x65 | 0x67 | 0x69 | 0x6b | 0x6d | 0x6f | 0x73 | 0x78 | 0x79
        ),
    };
    if !own {
        return Ok(NoMatch);
    }
    let (inner, rest) = length(rest)?;
    if inner + number + 4 > outer {
        return Ok(NoMatch);
    }
    let &[first, ref rest @ ..] = rest else {
        return Ok(if inner == 0 { Likely } else { NeedMore });
    };
    Ok(match (operation, first, rest) {
        // A bind has a version of 1 to 3; a search has a base object.
        (0x60, 2, [1, 1..=3, ..]) => Certain,
        (0x60, 2, [] | [1]) => NeedMore,
        (0x60, ..) => NoMatch,
        (0x63, 4, _) => Certain,
        (0x77, 0x80, _) => Certain,
        (0x63 | 0x77, ..) => NoMatch,
        // A result.
        (0x61 | 0x65 | 0x78, 10, [1, ..]) => Certain,
        (0x61 | 0x65 | 0x78, 10, []) => NeedMore,
        (0x61 | 0x65 | 0x78, ..) => NoMatch,
        (0x64, 4, _) => Certain,
        (0x64, ..) => NoMatch,
        _ => Likely,
    })
}

/// Kerberos over TCP (RFC 4120, section 7.2.2): a length field, then a message.
pub fn kerberos(head: &Head<'_>) -> Confidence {
    let bytes = head.bytes;
    let Some(rest) = bytes.get(4..).filter(|rest| !rest.is_empty()) else {
        // A message has a few kilobytes at most.
        return if bytes.first().is_some_and(|&byte| byte != 0) {
            NoMatch
        } else {
            NeedMore
        };
    };
    let length = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    kerberos_message(head.toward, rest, length).unwrap_or_else(|said| said)
}

/// A message of `whole` bytes: an application tag, a sequence, and the protocol version in its first field (sections 5.4
/// and 5.9).
pub fn kerberos_message(toward: Toward, bytes: &[u8], whole: usize) -> Result<Confidence, Confidence> {
    let Some((&tag, rest)) = bytes.split_first() else {
        return Ok(NeedMore);
    };
    // The client sends AS-REQ, TGS-REQ and AP-REQ; the server sends the responses, and KRB-ERROR.
    let own = match toward {
        Toward::Server => matches!(tag, 0x6a | 0x6c | 0x6e),
        Toward::Client => matches!(tag, 0x6b | 0x6d | 0x6f | 0x7e),
    };
    if !own {
        return Ok(NoMatch);
    }
    let (outer, inside) = length(rest)?;
    if bytes.len() - inside.len() + outer != whole {
        return Ok(NoMatch);
    }
    let Some((0x30, rest)) = inside.split_first() else {
        return Ok(if inside.is_empty() { NeedMore } else { NoMatch });
    };
    let (_, rest) = length(rest)?;
    let versions = [0xa0, 0xa1].map(|field| pattern(rest, &[field, 3, 2, 1, 5].map(Some), Certain));
    Ok(best_of(versions))
}

/// NFS: calls of program 100003 (RFC 1813, RFC 7530).
pub fn nfs(head: &Head<'_>) -> Confidence {
    record(head, true)
}

/// ONC RPC over TCP (RFC 5531, sections 9 and 11).
pub fn rpc(head: &Head<'_>) -> Confidence {
    record(head, false)
}

fn record(head: &Head<'_>, nfs: bool) -> Confidence {
    let bytes = head.bytes;
    let last = match bytes.first() {
        None => return NeedMore,
        Some(mark) => mark & 0x7f == 0,
    };
    if !last {
        return NoMatch;
    }
    let Some((mark, rest)) = bytes.split_at_checked(4) else {
        return NeedMore;
    };
    let size = u32::from_be_bytes([mark[0] & 0x7f, mark[1], mark[2], mark[3]]);
    match (head.toward, size) {
        (Toward::Server, 40..) => rpc_call(rest, nfs),
        // Only a call contains the program number; a reply does not.
        (Toward::Client, 12..) => match rpc_reply(rest) {
            Certain => Likely,
            said => said,
        },
        _ => NoMatch,
    }
}

const NFS: u32 = 100_003;

/// A call: transaction ID, message type 0, RPC version 2, program, program version, procedure, and credentials of a known
/// kind.
pub fn rpc_call(bytes: &[u8], nfs: bool) -> Confidence {
    let word = |number: usize| {
        let word = bytes.get(number * 4..number * 4 + 4)?;
        Some(u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
    };
    let checks: [fn(u32) -> bool; 8] = [
        |_| true,
        |kind| kind == 0,
        |version| version == 2,
        // Program numbers that are assigned, user-defined, or transient.
        |program| (1..0x6000_0000).contains(&program),
        |version| version <= 0xff,
        |procedure| procedure <= 0xff,
        |flavor| flavor <= 6 || flavor == 390_003,
        |length| length <= 400,
    ];
    for (number, check) in checks.iter().enumerate() {
        match word(number) {
            None => return NeedMore,
            Some(value) if !check(value) => return NoMatch,
            Some(value) if number == 3 && nfs != (value == NFS) => return NoMatch,
            Some(_) => {}
        }
    }
    Certain
}

/// A reply: transaction ID, message type 1, and whether the call was accepted.
fn rpc_reply(bytes: &[u8]) -> Confidence {
    match bytes.get(4..12) {
        None => match bytes.get(4..) {
            Some(some)
                if !some
                    .iter()
                    .zip([0, 0, 0, 1, 0, 0, 0])
                    .all(|(byte, wanted)| *byte == wanted) =>
            {
                NoMatch
            }
            _ => NeedMore,
        },
        Some([0, 0, 0, 1, 0, 0, 0, 0 | 1]) => Certain,
        Some(_) => NoMatch,
    }
}

/// DCE RPC over TCP (C706, section 12.6): a bind or a bind acknowledgement.
pub fn dcerpc(head: &Head<'_>) -> Confidence {
    let own = |kind| match head.toward {
        Toward::Server => kind == 11,
        Toward::Client => matches!(kind, 12 | 13),
    };
    let at = |at: usize| head.bytes.get(at).copied();
    let wrong = at(0).is_some_and(|version| version != 5)
        || at(1).is_some_and(|minor| minor > 1)
        || at(2).is_some_and(|kind| !own(kind))
        || at(4).is_some_and(|order| order & 0xef != 0)
        || at(5).is_some_and(|float| float > 3)
        || at(6).is_some_and(|zero| zero != 0)
        || at(7).is_some_and(|zero| zero != 0);
    if wrong {
        return NoMatch;
    }
    let (Some(little), Some(first), Some(second)) = (at(4), at(8), at(9)) else {
        return NeedMore;
    };
    let length = match little & 0x10 {
        0 => u16::from_be_bytes([first, second]),
        _ => u16::from_le_bytes([first, second]),
    };
    if length >= 18 { Certain } else { NoMatch }
}

/// PostgreSQL (documentation, section 55.7): a startup packet, or a request for encryption or cancellation.
pub fn postgres(head: &Head<'_>) -> Confidence {
    let bytes = head.bytes;
    if head.toward == Toward::Client {
        return match *bytes {
            [b'R' | b'E', 0, 0, ..] => Likely,
            [b'R' | b'E'] | [b'R' | b'E', 0] => NeedMore,
            _ => NoMatch,
        };
    }
    let requires = [(8, 47), (8, 48), (16, 46)]
        .map(|(length, code)| pattern(bytes, &[0, 0, 0, length, 4, 210, 22, code].map(Some), Certain));
    let start = match pattern(
        bytes,
        &[Some(0), Some(0), None, None, Some(0), Some(3), Some(0), None],
        Certain,
    ) {
        Certain => {
            // Parameter names follow; most clients send `user` first.
            match bytes.get(8) {
                None => NeedMore,
                Some(_) if bytes[7] > 2 || bytes[2] > 0x27 => NoMatch,
                Some(byte) if !byte.is_ascii_lowercase() => NoMatch,
                Some(_) => {
                    let name = &bytes[8..];
                    match name.iter().position(|byte| !byte.is_ascii_lowercase() && *byte != b'_') {
                        None if name.len() <= 32 => NeedMore,
                        Some(end) if name[end] == 0 => Certain,
                        _ => NoMatch,
                    }
                }
            }
        }
        said => said,
    };
    best_of(requires.into_iter().chain([start]))
}

/// MySQL and MariaDB: the server sends the greeting (protocol 10, version as text), and the client sends its response.
pub fn mysql(head: &Head<'_>) -> Confidence {
    let bytes = head.bytes;
    if head.toward == Toward::Server {
        return match pattern(bytes, &[None, None, Some(0), Some(1)], Likely) {
            Likely if u16::from_le_bytes([bytes[0], bytes[1]]) < 32 => NoMatch,
            said => said,
        };
    }
    match pattern(bytes, &[None, None, Some(0), Some(0), Some(10)], Certain) {
        Certain => {
            let version = &bytes[5..];
            match version.iter().position(|byte| !byte.is_ascii_graphic()) {
                _ if version.first().is_some_and(|byte| !byte.is_ascii_digit()) => NoMatch,
                None if version.len() <= 50 => NeedMore,
                Some(end) if version[end] == 0 && version[..end].contains(&b'.') => Certain,
                _ => NoMatch,
            }
        }
        // A server that refuses the client sends an error packet instead of the greeting.
        NoMatch => match pattern(
            bytes,
            &[None, None, Some(0), Some(0), Some(0xff), None, Some(4)],
            Likely,
        ) {
            Likely if head.first && bytes.len() >= 9 && bytes[7..9].iter().all(u8::is_ascii_graphic) => Certain,
            Likely if bytes.len() < 9 => NeedMore,
            Likely => NoMatch,
            said => said,
        },
        said => said,
    }
}

/// MQTT 3.1 to 5: the client sends CONNECT with the protocol's name (OASIS MQTT 5.0, section 3.1), and the server sends
/// CONNACK.
pub fn mqtt(head: &Head<'_>) -> Confidence {
    if head.toward == Toward::Client {
        return pattern(head.bytes, &[Some(0x20), None, Some(0)], Likely);
    }
    let Some((0x10, rest)) = head.bytes.split_first() else {
        return if head.bytes.is_empty() { NeedMore } else { NoMatch };
    };
    // The remaining-length field has one to four bytes.
    let Some(end) = rest.iter().take(4).position(|byte| byte & 0x80 == 0) else {
        return if rest.len() < 4 { NeedMore } else { NoMatch };
    };
    let name = &rest[end + 1..];
    best_of(
        [&b"\0\x04MQTT"[..], b"\0\x06MQIsdp"].map(|wanted| match name.len() < wanted.len() {
            true if wanted.starts_with(name) => NeedMore,
            false if name.starts_with(wanted) => Certain,
            _ => NoMatch,
        }),
    )
}

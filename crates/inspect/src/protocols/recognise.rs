//! Which protocol a connection speaks, from the first bytes of each direction, whatever its ports.

use arrayvec::ArrayVec;

use crate::signature::Toward;

/// What the first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognised {
    /// Too few bytes.
    More,
    /// HTTP/0.9, 1.0 or 1.1.
    Http,
    /// TLS or SSL 3.
    Tls,
    /// DNS with its length before each message.
    Dns,
    /// None of these.
    Other,
}

/// Bytes that are kept of each direction; a protocol that they do not show is [`Recognised::Other`].
pub const HEAD: usize = 64;

/// The first bytes of both directions, until they say something. The parser then gets [`Recognise::head`] first.
#[derive(Clone, Debug, Default)]
pub struct Recognise {
    heads: [ArrayVec<u8, HEAD>; 2],
}

impl Recognise {
    /// Takes bytes of one direction; returns what that direction says, and how many of the bytes became part of its
    /// head (the parser gets the others from the caller).
    pub fn bytes(&mut self, toward: Toward, bytes: &[u8]) -> (Recognised, usize) {
        let head = &mut self.heads[toward as usize];
        let before = recognise(toward, head);
        if before != Recognised::More {
            return (before, 0);
        }
        let taken = bytes.len().min(head.remaining_capacity());
        head.extend(bytes[..taken].iter().copied());
        match recognise(toward, head) {
            Recognised::More if head.is_full() => (Recognised::Other, taken),
            said => (said, taken),
        }
    }

    /// What was taken of a direction.
    pub fn head(&self, toward: Toward) -> &[u8] {
        &self.heads[toward as usize]
    }
}

/// What the first bytes of a direction say.
pub fn recognise(toward: Toward, head: &[u8]) -> Recognised {
    let each = [http(toward, head), tls(toward, head), dns(toward, head)];
    let sure = each
        .iter()
        .find(|said| !matches!(said, Recognised::More | Recognised::Other));
    match sure {
        Some(&said) => said,
        None if each.contains(&Recognised::More) => Recognised::More,
        None => Recognised::Other,
    }
}

/// A byte of a token (RFC 9110, section 5.6.2).
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

fn http(toward: Toward, head: &[u8]) -> Recognised {
    let Some(begin) = head.iter().position(|&byte| byte != b'\r' && byte != b'\n') else {
        return Recognised::More;
    };
    let head = &head[begin..];
    if toward == Toward::Client {
        return begins(head, b"HTTP/", Recognised::Http);
    }
    let Some(end) = head.iter().position(|&byte| !is_token(byte)) else {
        return if head.len() <= 32 {
            Recognised::More
        } else {
            Recognised::Other
        };
    };
    if end == 0 || end > 32 || !matches!(head[end], b' ' | b'\t') {
        return Recognised::Other;
    }
    if METHODS.contains(&&head[..end]) {
        return Recognised::Http;
    }
    let Some(target) = head[end..].iter().position(|byte| !matches!(byte, b' ' | b'\t')) else {
        return Recognised::More;
    };
    match &head[end + target..] {
        [b'/', ..] => Recognised::Http,
        // Of `OPTIONS`; other protocols have it, too: `STAT *`, `EXPN *@host`.
        [b'*', rest @ ..] => {
            let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            match &rest[blanks..] {
                [] => Recognised::More,
                _ if blanks == 0 => Recognised::Other,
                version => begins(version, b"HTTP/", Recognised::Http),
            }
        }
        // A word behind a word is what many a protocol begins with; this one names itself.
        target => begins(target, b"http", Recognised::Http),
    }
}

fn begins(head: &[u8], with: &[u8], then: Recognised) -> Recognised {
    let common = head.len().min(with.len());
    match head[..common].eq_ignore_ascii_case(&with[..common]) {
        true if common == with.len() => then,
        true => Recognised::More,
        false => Recognised::Other,
    }
}

/// A record that begins a handshake (or, from the server, an alert) of version 3.x.
fn tls(toward: Toward, head: &[u8]) -> Recognised {
    let kind = |byte| byte == 22 || byte == 21 && toward == Toward::Client;
    match *head {
        [] => Recognised::More,
        [first, ..] if !kind(first) => Recognised::Other,
        [_, version, ..] if version != 3 => Recognised::Other,
        [_, _, minor, ..] if minor > 4 => Recognised::Other,
        [22, _, _, _, _, kind, ..] => match (toward, kind) {
            (Toward::Server, 1) | (Toward::Client, 2) => Recognised::Tls,
            _ => Recognised::Other,
        },
        [21, _, _, 0, 2, ..] => Recognised::Tls,
        [21, _, _, _, _, ..] => Recognised::Other,
        _ => Recognised::More,
    }
}

/// A length and a header with one to 16 questions that asks, or answers.
fn dns(toward: Toward, head: &[u8]) -> Recognised {
    let at = |at: usize| head.get(at).copied().unwrap_or(0);
    let length = u16::from_be_bytes([at(0), at(1)]);
    let answer = toward == Toward::Client;
    let said = head.len();
    let wrong = said >= 2 && length < 17
        || said >= 5 && ((at(4) & 0x80 != 0) != answer || at(4) >> 3 & 15 > 5)
        || said >= 8 && (at(6) != 0 || !(1..=16).contains(&at(7)))
        || said >= 10 && !answer && at(4) >> 3 & 15 != 5 && (at(8), at(9)) != (0, 0)
        || said >= 15 && (at(14) > 63 || u16::from(at(14)) > length - 13);
    match said {
        _ if wrong => Recognised::Other,
        0..15 => Recognised::More,
        _ => Recognised::Dns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Recognised::*;

    #[test]
    fn heads_of_protocols_are_recognised_once_they_are_long_enough() {
        let query = b"\x00\x1d\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01";
        let cases: [(Toward, &[u8], Recognised); 25] = [
            (Toward::Server, b"GET / HTTP/1.1\r\n", Http),
            (Toward::Server, b"\r\n\r\nGET\t/", Http),
            (Toward::Server, b"GE", More),
            (Toward::Server, b"BREW /pot", Http),
            (Toward::Server, b"OPTIONS * HTTP/1.1", Http),
            (Toward::Server, b"OPTIONS * HT", More),
            (Toward::Server, b"EXPN *@example.org\r\n", Other),
            (Toward::Server, b"STAT *\r\n", Other),
            (Toward::Server, b"BREW  http", Http),
            (Toward::Server, b"OPTIONS sip:a@b SIP/2.0", Other),
            (Toward::Server, b"INVITE sip:a@b", Other),
            (Toward::Server, b"SSH-2.0-OpenSSH_9.6 Debian", Other),
            (Toward::Server, b"USER anonymous\r\n", Other),
            (Toward::Client, b"HTTP/1.1 200 OK", Http),
            (Toward::Client, b"http/", Http),
            (Toward::Client, b"HTT", More),
            (Toward::Client, b"220 ready", Other),
            (Toward::Server, b"\x16\x03\x01\x02\x00\x01", Tls),
            (Toward::Server, b"\x16\x03\x01\x02\x00", More),
            (Toward::Client, b"\x16\x03\x03\x00\x40\x02", Tls),
            (Toward::Client, b"\x15\x03\x03\x00\x02\x02\x28", Tls),
            (Toward::Server, b"\x16\x02\x01\x02\xff", Other),
            (Toward::Server, query, Dns),
            (Toward::Server, &query[..14], More),
            (Toward::Client, query, Other),
        ];
        for (toward, head, expected) in cases {
            assert_eq!(expected, recognise(toward, head), "{toward:?} {}", head.escape_ascii());
            if expected != More {
                let mut recognised = Recognise::default();
                let mut said = More;
                for &byte in head {
                    if said == More {
                        said = recognised.bytes(toward, &[byte]).0;
                    }
                }
                assert_eq!(expected, said, "byte by byte: {}", head.escape_ascii());
            }
        }
    }
}

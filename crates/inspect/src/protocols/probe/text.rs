//! Line-based protocols.

use super::{Certain, Confidence, Head, Likely, NeedMore, NoMatch, best_of, starts};
use crate::signature::Toward;

/// SSH: client and server send the line `SSH-2.0-…` (RFC 4253, section 4.2).
pub fn ssh(head: &Head<'_>) -> Confidence {
    match head.bytes {
        [b'S', b'S', b'H', b'-', digit, ..] if digit.is_ascii_digit() => Certain,
        [b'S', b'S', b'H', b'-', _, ..] => NoMatch,
        bytes => match b"SSH-".starts_with(&bytes[..bytes.len().min(4)]) {
            true => NeedMore,
            false => NoMatch,
        },
    }
}

/// Compares the first word of a line with commands, case-insensitively. The word ends at a blank or at the end of the
/// line.
fn command(bytes: &[u8], commands: &[&[u8]], then: Confidence) -> Confidence {
    best_of(commands.iter().map(|command| match starts(bytes, command, then) {
        said if said == then => match bytes.get(command.len()) {
            None => NeedMore,
            Some(b' ' | b'\r' | b'\n') => then,
            Some(_) => NoMatch,
        },
        said => said,
    }))
}

/// The first line, if it is complete.
fn line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    Some(bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]))
}

/// A reply with a code in `codes` (RFC 959, section 4.2; RFC 5321, section 4.2).
fn reply(bytes: &[u8], codes: &[&[u8]]) -> Confidence {
    best_of(codes.iter().map(|code| match starts(bytes, code, Likely) {
        Likely => match bytes.get(3) {
            None => NeedMore,
            Some(b' ' | b'-' | b'\r' | b'\n') => Likely,
            Some(_) => NoMatch,
        },
        said => said,
    }))
}

/// Whether a greeting contains the name of a protocol as a separate word.
fn names(line: &[u8], word: &[u8]) -> bool {
    line.split(|byte| !byte.is_ascii_alphanumeric() && !b".-".contains(byte))
        .any(|part| part.eq_ignore_ascii_case(word))
}

fn contains(line: &[u8], word: &[u8]) -> bool {
    line.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

/// The protocol that a complete greeting names. Both SMTP and FTP servers greet with 220.
enum Greeting {
    Smtp,
    Ftp,
    Neither,
}

fn greeting(head: &Head<'_>) -> Greeting {
    let Some(line) = line(head.bytes).filter(|line| head.first && reply(line, &[b"220"]) == Likely) else {
        return Greeting::Neither;
    };
    let smtp = names(line, b"SMTP") || names(line, b"ESMTP");
    match (smtp, contains(line, b"FTP")) {
        (true, false) => Greeting::Smtp,
        (false, true) => Greeting::Ftp,
        _ => Greeting::Neither,
    }
}

/// SMTP (RFC 5321). `EHLO` and `HELO` occur in no other protocol.
pub fn smtp(head: &Head<'_>) -> Confidence {
    if head.toward == Toward::Client {
        return match (reply(head.bytes, &[b"220", b"421", b"554"]), greeting(head)) {
            (_, Greeting::Smtp) => Certain,
            (_, Greeting::Ftp) => NoMatch,
            (said, Greeting::Neither) => said,
        };
    }
    best_of([
        command(head.bytes, &[b"EHLO", b"HELO"], Certain),
        command(
            head.bytes,
            &[
                b"MAIL",
                b"RCPT",
                b"RSET",
                b"VRFY",
                b"EXPN",
                b"HELP",
                b"NOOP",
                b"QUIT",
                b"STARTTLS",
            ],
            Likely,
        ),
    ])
}

/// The FTP control connection (RFC 959, RFC 2228, RFC 2389).
pub fn ftp(head: &Head<'_>) -> Confidence {
    if head.toward == Toward::Client {
        return match (reply(head.bytes, &[b"220", b"120", b"421"]), greeting(head)) {
            (_, Greeting::Ftp) => Certain,
            (_, Greeting::Smtp) => NoMatch,
            (said, Greeting::Neither) => said,
        };
    }
    command(
        head.bytes,
        &[
            b"USER", b"AUTH", b"FEAT", b"SYST", b"HOST", b"OPTS", b"CLNT", b"PASS", b"HELP", b"NOOP", b"QUIT", b"PBSZ",
        ],
        Likely,
    )
}

/// POP3 (RFC 1939). `+OK` is a certain match only if the server sends first, because servers of other protocols also
/// answer with `+OK`.
pub fn pop3(head: &Head<'_>) -> Confidence {
    if head.toward == Toward::Client {
        let then = if head.first { Certain } else { Likely };
        return best_of([
            command(head.bytes, &[b"+OK"], then),
            command(head.bytes, &[b"-ERR"], Likely),
        ]);
    }
    command(
        head.bytes,
        &[b"USER", b"APOP", b"AUTH", b"CAPA", b"STLS", b"PASS", b"NOOP", b"QUIT"],
        Likely,
    )
}

/// IMAP (RFC 9051, section 7.1): the server sends an untagged greeting, and the client sends a tag and a command.
pub fn imap(head: &Head<'_>) -> Confidence {
    if head.toward == Toward::Client {
        let then = if head.first { Certain } else { Likely };
        return best_of(
            [&b"* OK"[..], b"* PREAUTH", b"* BYE", b"* CAPABILITY"]
                .iter()
                .map(|greeting| command(head.bytes, &[greeting], then)),
        );
    }
    // A tag is any string without characters that have a special meaning (section 9).
    let is_tag = |byte: &u8| byte.is_ascii_graphic() && !b"(){%*\"\\+".contains(byte);
    match head.bytes.iter().position(|byte| !is_tag(byte)) {
        None if head.bytes.len() <= 32 => NeedMore,
        Some(end @ 1..=32) if head.bytes[end] == b' ' => command(
            &head.bytes[end + 1..],
            &[
                b"CAPABILITY",
                b"LOGIN",
                b"AUTHENTICATE",
                b"STARTTLS",
                b"ID",
                b"NOOP",
                b"LOGOUT",
                b"ENABLE",
                b"SELECT",
                b"EXAMINE",
            ],
            Likely,
        ),
        _ => NoMatch,
    }
}

const SIP_METHODS: [&[u8]; 14] = [
    b"INVITE",
    b"ACK",
    b"BYE",
    b"CANCEL",
    b"REGISTER",
    b"OPTIONS",
    b"PRACK",
    b"SUBSCRIBE",
    b"NOTIFY",
    b"PUBLISH",
    b"INFO",
    b"REFER",
    b"MESSAGE",
    b"UPDATE",
];

/// SIP (RFC 3261, section 7): either host sends `METHOD sip:…` or `SIP/2.0 200 OK`.
pub fn sip(head: &Head<'_>) -> Confidence {
    let status = starts(head.bytes, b"SIP/2.0 ", Certain);
    let requests = SIP_METHODS.map(|method| match starts(head.bytes, method, Certain) {
        Certain => match &head.bytes[method.len()..] {
            [] => NeedMore,
            [b' ', target @ ..] => {
                best_of([&b"sip:"[..], b"sips:", b"tel:"].map(|scheme| starts(target, scheme, Certain)))
            }
            _ => NoMatch,
        },
        said => said,
    });
    best_of(requests.into_iter().chain([status]))
}

/// IRC (RFC 2812, section 3.1): a nickname and a user name, or a capability negotiation.
pub fn irc(head: &Head<'_>) -> Confidence {
    if head.toward == Toward::Client {
        let prefixed = match head.bytes.first() {
            Some(b':') => match head.bytes.iter().position(|&byte| byte == b' ') {
                None => NeedMore,
                Some(end) => match &head.bytes[end + 1..] {
                    [a, b, c, b' ', ..] if [a, b, c].iter().all(|byte| byte.is_ascii_digit()) => Likely,
                    rest => match rest.iter().take(3).all(u8::is_ascii_digit) {
                        true if rest.len() <= 3 => NeedMore,
                        _ => command(rest, &[b"NOTICE", b"PING", b"ERROR"], Likely),
                    },
                },
            },
            _ => NoMatch,
        };
        return best_of([prefixed, command(head.bytes, &[b"NOTICE", b"PING", b"ERROR"], Likely)]);
    }
    // A client may send a password, or request capabilities, before its nickname.
    let own = command(head.bytes, &[b"NICK", b"USER", b"PASS", b"CAP"], Likely);
    if own != Likely {
        return own;
    }
    let lines = || head.bytes.split(|&byte| byte == b'\n');
    let whole = lines().count() - 1;
    let has = |word: &[u8]| {
        lines()
            .take(whole)
            .any(|line| command(line, &[word], Certain) != NoMatch)
    };
    match has(b"NICK") && has(b"USER") || has(b"CAP LS") {
        true => Certain,
        false => Likely,
    }
}

//! Protocols of lines.

use super::{Compared, Fits, Head, More, No, Sure, any, begins};
use crate::signature::Toward;

/// `SSH-2.0-…` (RFC 4253, section 4.2), of either side.
pub fn ssh(head: &Head<'_>) -> Compared {
    match head.bytes {
        [b'S', b'S', b'H', b'-', digit, ..] if digit.is_ascii_digit() => Sure,
        [b'S', b'S', b'H', b'-', _, ..] => No,
        bytes => match b"SSH-".starts_with(&bytes[..bytes.len().min(4)]) {
            true => More,
            false => No,
        },
    }
}

/// Compares the first word of a line, in any case, with commands; a command ends with a blank or the line.
fn command(bytes: &[u8], commands: &[&[u8]], then: Compared) -> Compared {
    any(commands.iter().map(|command| match begins(bytes, command, then) {
        said if said == then => match bytes.get(command.len()) {
            None => More,
            Some(b' ' | b'\r' | b'\n') => then,
            Some(_) => No,
        },
        said => said,
    }))
}

/// The first line, where it is whole.
fn line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    Some(bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]))
}

/// A reply of one of these codes (RFC 959, section 4.2; RFC 5321, section 4.2).
fn reply(bytes: &[u8], codes: &[&[u8]]) -> Compared {
    any(codes.iter().map(|code| match begins(bytes, code, Fits) {
        Fits => match bytes.get(3) {
            None => More,
            Some(b' ' | b'-' | b'\r' | b'\n') => Fits,
            Some(_) => No,
        },
        said => said,
    }))
}

/// Whether a greeting names a protocol: the word stands alone.
fn names(line: &[u8], word: &[u8]) -> bool {
    line.split(|byte| !byte.is_ascii_alphanumeric() && !b".-".contains(byte))
        .any(|part| part.eq_ignore_ascii_case(word))
}

fn contains(line: &[u8], word: &[u8]) -> bool {
    line.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

/// Which protocol a whole greeting names: 220 is the greeting of both.
enum Greeting {
    Smtp,
    Ftp,
    Neither,
}

fn greeting(head: &Head<'_>) -> Greeting {
    let Some(line) = line(head.bytes).filter(|line| head.first && reply(line, &[b"220"]) == Fits) else {
        return Greeting::Neither;
    };
    let smtp = names(line, b"SMTP") || names(line, b"ESMTP");
    match (smtp, contains(line, b"FTP")) {
        (true, false) => Greeting::Smtp,
        (false, true) => Greeting::Ftp,
        _ => Greeting::Neither,
    }
}

/// Mail (RFC 5321). `EHLO` and `HELO` are of no other protocol.
pub fn smtp(head: &Head<'_>) -> Compared {
    if head.toward == Toward::Client {
        return match (reply(head.bytes, &[b"220", b"421", b"554"]), greeting(head)) {
            (_, Greeting::Smtp) => Sure,
            (_, Greeting::Ftp) => No,
            (said, Greeting::Neither) => said,
        };
    }
    any([
        command(head.bytes, &[b"EHLO", b"HELO"], Sure),
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
            Fits,
        ),
    ])
}

/// The control connection of FTP (RFC 959, RFC 2228, RFC 2389).
pub fn ftp(head: &Head<'_>) -> Compared {
    if head.toward == Toward::Client {
        return match (reply(head.bytes, &[b"220", b"120", b"421"]), greeting(head)) {
            (_, Greeting::Ftp) => Sure,
            (_, Greeting::Smtp) => No,
            (said, Greeting::Neither) => said,
        };
    }
    command(
        head.bytes,
        &[
            b"USER", b"AUTH", b"FEAT", b"SYST", b"HOST", b"OPTS", b"CLNT", b"PASS", b"HELP", b"NOOP", b"QUIT", b"PBSZ",
        ],
        Fits,
    )
}

/// POP3 (RFC 1939). Of a server that speaks first `+OK` is certain; others answer so, too.
pub fn pop3(head: &Head<'_>) -> Compared {
    if head.toward == Toward::Client {
        let then = if head.first { Sure } else { Fits };
        return any([
            command(head.bytes, &[b"+OK"], then),
            command(head.bytes, &[b"-ERR"], Fits),
        ]);
    }
    command(
        head.bytes,
        &[b"USER", b"APOP", b"AUTH", b"CAPA", b"STLS", b"PASS", b"NOOP", b"QUIT"],
        Fits,
    )
}

/// IMAP (RFC 9051, section 7.1): an untagged greeting; a tag and a command.
pub fn imap(head: &Head<'_>) -> Compared {
    if head.toward == Toward::Client {
        let then = if head.first { Sure } else { Fits };
        return any([&b"* OK"[..], b"* PREAUTH", b"* BYE", b"* CAPABILITY"]
            .iter()
            .map(|greeting| command(head.bytes, &[greeting], then)));
    }
    // A tag is any string without the characters that mean something else (section 9).
    let is_tag = |byte: &u8| byte.is_ascii_graphic() && !b"(){%*\"\\+".contains(byte);
    match head.bytes.iter().position(|byte| !is_tag(byte)) {
        None if head.bytes.len() <= 32 => More,
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
            Fits,
        ),
        _ => No,
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

/// SIP (RFC 3261, section 7), of either side: `METHOD sip:…`, `SIP/2.0 200 OK`.
pub fn sip(head: &Head<'_>) -> Compared {
    let status = begins(head.bytes, b"SIP/2.0 ", Sure);
    let requests = SIP_METHODS.map(|method| match begins(head.bytes, method, Sure) {
        Sure => match &head.bytes[method.len()..] {
            [] => More,
            [b' ', target @ ..] => any([&b"sip:"[..], b"sips:", b"tel:"].map(|scheme| begins(target, scheme, Sure))),
            _ => No,
        },
        said => said,
    });
    any(requests.into_iter().chain([status]))
}

/// IRC (RFC 2812, section 3.1): a nickname and a user, or a negotiation of capabilities.
pub fn irc(head: &Head<'_>) -> Compared {
    if head.toward == Toward::Client {
        let prefixed = match head.bytes.first() {
            Some(b':') => match head.bytes.iter().position(|&byte| byte == b' ') {
                None => More,
                Some(end) => match &head.bytes[end + 1..] {
                    [a, b, c, b' ', ..] if [a, b, c].iter().all(|byte| byte.is_ascii_digit()) => Fits,
                    rest => match rest.iter().take(3).all(u8::is_ascii_digit) {
                        true if rest.len() <= 3 => More,
                        _ => command(rest, &[b"NOTICE", b"PING", b"ERROR"], Fits),
                    },
                },
            },
            _ => No,
        };
        return any([prefixed, command(head.bytes, &[b"NOTICE", b"PING", b"ERROR"], Fits)]);
    }
    // A client may give a password, or ask for capabilities, and then names itself.
    let own = command(head.bytes, &[b"NICK", b"USER", b"PASS", b"CAP"], Fits);
    if own != Fits {
        return own;
    }
    let lines = || head.bytes.split(|&byte| byte == b'\n');
    let whole = lines().count() - 1;
    let has = |word: &[u8]| lines().take(whole).any(|line| command(line, &[word], Sure) != No);
    match has(b"NICK") && has(b"USER") || has(b"CAP LS") {
        true => Sure,
        false => Fits,
    }
}

//! Tests the buffers of SMTP messages and FTP files, for any segmentation of the streams.

use crate::flows::play::{Wire, in_parts, play};
use crate::lab::{Connection, Lab};
use sluice_inspect::protocols::{MessageEvent, ParserCapacity, ParserPools, Slot, Smtp};
use sluice_inspect::signature::Buffer;
use sluice_inspect::signature::Toward::{self, Client, Server};
use sluice_inspect::signatures::Dialect::Suricata;
use sluice_wire::Direction;

/// Complete buffers in order. The buffer of a file contains all bytes of the file.
fn told(turns: &[(Toward, &[u8])], step: usize) -> Vec<(Buffer, String)> {
    let mut store = ParserPools::new(&ParserCapacity {
        messages: 1,
        names: 1,
        inflaters: 1,
        ..ParserCapacity::default()
    });
    let (mut mail, mut told, mut file) = (Smtp::default(), Vec::new(), Vec::new());
    for (toward, bytes) in turns {
        for part in bytes.chunks(step) {
            mail.bytes(&mut store, *toward, part, &mut |slot: Slot<'_>, piece| {
                let MessageEvent::Grew {
                    buffer,
                    fresh,
                    complete,
                } = piece
                else {
                    return;
                };
                let bytes = slot.buffer(buffer).bytes;
                if buffer == Buffer::FileData {
                    file.extend_from_slice(&bytes[fresh]);
                    if complete {
                        told.push((buffer, std::mem::take(&mut file).escape_ascii().to_string()));
                    }
                } else if complete {
                    told.push((buffer, bytes.escape_ascii().to_string()));
                }
            });
        }
    }
    mail.release(&mut store);
    assert_eq!((1, 1), (store.messages.available(), store.mail_sessions.available()));
    told
}

const MAIL: &[u8] = b"EHLO bar.com\r\nMAIL FROM:<Smith@bar.com> SIZE=100\r\nRCPT TO:<Jones@foo.com>\r\n\
    rcpt to: <Brown@foo.com>\r\nDATA\r\n\
    Subject: parts\r\nContent-Type: multipart/mixed;\r\n boundary=\"a b\"\r\n\r\n\
    preamble\r\n--a b\r\nContent-Type: text/plain\r\n\r\nplain\r\n..dot\r\n\
    --a b\r\nContent-Transfer-Encoding: BASE64\r\n\r\naGVsbG8g\r\nd29y\r\nbGQ=\r\n\
    --a b\r\nContent-Type: Multipart/Alternative; boundary=in\r\n\r\n\
    --in\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nsoft=\r\nbreak=3D=3d=zz\r\n--in--\r\n\
    --a b--\r\nepilogue\r\n.\r\n\
    MAIL FROM:<>\r\nDATA\r\n\r\nbody\r\n.\r\nQUIT\r\n";

#[test]
fn senders_recipients_and_files_are_told_however_they_are_cut() {
    let whole = told(&[(Server, MAIL)], usize::MAX);
    let expected: Vec<(Buffer, String)> = [
        (Buffer::SmtpHelo, "bar.com"),
        (Buffer::SmtpMailFrom, "<Smith@bar.com>"),
        (Buffer::SmtpRecipient, "<Jones@foo.com>"),
        (Buffer::SmtpRecipient, "<Brown@foo.com>"),
        (Buffer::FileData, "plain\\r\\n.dot\\r\\n"),
        (Buffer::FileData, "hello world"),
        (Buffer::FileData, "softbreak===zz\\r\\n"),
        (Buffer::SmtpMailFrom, "<>"),
        (Buffer::FileData, "body\\r\\n"),
    ]
    .map(|(buffer, value)| (buffer, value.to_owned()))
    .into();
    assert_eq!(expected, whole);
    for step in 1..80 {
        assert_eq!(expected, told(&[(Server, MAIL)], step), "segments of {step}");
    }
}

#[test]
fn chunks_and_refusals_and_encryption_are_followed() {
    let file = |text: &str| vec![(Buffer::FileData, text.to_owned())];
    for step in [1, 5, 1000] {
        let chunks: &[u8] = b"BDAT 8\r\n\r\nab\r\nc.BDAT 4 LAST\r\n\r\n.dRSET\r\n";
        assert_eq!(
            file("ab\\r\\nc.\\r\\n.d"),
            told(&[(Server, chunks)], step),
            "segments of {step}"
        );
        let refused: &[(Toward, &[u8])] = &[
            (Server, b"DATA\r\n"),
            (Client, b"250 of before\r\n503 Bad sequence\r\n"),
            (Server, b"DATA\r\n"),
            (Client, b"354 go on\r\n"),
            (Server, b"\r\nx\r\n.\r\n"),
        ];
        assert_eq!(file("x\\r\\n"), told(refused, step), "segments of {step}");
        let encrypted: &[(Toward, &[u8])] = &[
            (Server, b"STARTTLS\r\n"),
            (Client, b"220 go\r\n"),
            (Server, b"\x16\x03\x01\r\nDATA\r\n\r\nx\r\n.\r\n"),
        ];
        assert_eq!(Vec::<(Buffer, String)>::new(), told(encrypted, step));
    }
    // A line longer than the parser's line buffer.
    let long = [&b"DATA\r\n\r\n"[..], &vec![b'x'; 5000], b"\r\n.\r\n"].concat();
    let whole = told(&[(Server, &long)], usize::MAX);
    assert_eq!(5004, whole[0].1.len());
    assert_eq!(whole, told(&[(Server, &long)], 77));
}

#[test]
fn any_bytes_are_parsed_alike_however_they_are_cut() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..3_000 {
        let mut changed = MAIL.to_vec();
        for _ in 0..4 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = state as usize % changed.len();
            changed[at] = b"\r\n.-=: A\x16\x80"[(state >> 32) as usize % 10];
        }
        let whole = told(&[(Server, &changed)], usize::MAX);
        assert_eq!(whole, told(&[(Server, &changed)], 1 + (state >> 40) as usize % 40));
    }
}

fn wire(port: u16) -> Wire {
    Wire {
        ports: [40_000, port],
        ..Wire::default()
    }
}

#[test]
fn rules_about_mail_fire() {
    let rules = r#"alert smtp any any -> any any (msg:"m"; smtp.helo; content:"bar.com"; bsize:7; sid:1;)
        alert smtp any any -> any any (msg:"m"; smtp.mail_from; content:"Smith"; sid:2;)
        alert smtp any any -> any any (msg:"m"; smtp.rcpt_to; content:"Jones"; sid:3;)
        alert smtp any any -> any any (msg:"m"; smtp.rcpt_to; content:"Brown"; sid:4;)
        alert smtp any any -> any any (msg:"m"; file.data; content:"hello world"; sid:5;)
        alert smtp any any -> any any (msg:"m"; smtp.rcpt_to; content:"Smith"; sid:6;)
        alert smtp any any -> any any (msg:"m"; http.request_body; content:"hello world"; sid:7;)"#;
    for step in [1, 17, 1460] {
        let mut lab = Lab::new(Suricata, rules);
        let messages = in_parts(&[(Client, b"220 foo.com ready\r\n"), (Server, MAIL)], step);
        play(&mut lab, &wire(2525), &messages);
        lab.fired.sort_unstable();
        assert_eq!(vec![1, 2, 3, 4, 5], lab.fired, "segments of {step}");
    }
}

#[test]
fn rules_about_files_of_ftp_fire() {
    let rules = r#"alert ftp-data any any -> any any (msg:"m"; file.data; content:"some marker"; sid:1;)
        alert ftp-data any any -> any any (msg:"m"; ftpdata_command:retr; file.data; content:"marker"; sid:2;)
        alert ftp-data any any -> any any (msg:"m"; ftpdata_command:stor; file.data; content:"marker"; sid:3;)"#;
    for (command, data, expected) in [
        (&b"RETR a\r\n"[..], Client, vec![1, 2]),
        (b"STOR a\r\n", Server, vec![1, 3]),
        (b"LIST\r\n", Client, vec![1]),
    ] {
        let mut lab = Lab::new(Suricata, rules);
        let control: &[(Toward, &[u8])] = &[
            (Client, b"220 a FTP server\r\n"),
            (Server, b"PASV\r\n"),
            (Client, b"227 Entering Passive Mode (198,51,100,7,16,1)\r\n"),
            (Server, command),
        ];
        play(&mut lab, &wire(21), &in_parts(control, 1460));
        play(&mut lab, &wire(4097), &in_parts(&[(data, b"some marker")], 3));
        lab.fired.sort_unstable();
        assert_eq!(expected, lab.fired);
    }
}

#[test]
fn file_of_ftp_goes_on_where_its_receiver_sends_no_more() {
    let rule =
        r#"alert ftp-data any any -> any any (msg:"m"; file.data; content:"marker"; endswith; bsize:11; sid:1;)"#;
    let mut lab = Lab::new(Suricata, rule);
    let control: &[(Toward, &[u8])] = &[
        (Client, b"220 a FTP server\r\n"),
        (Server, b"PASV\r\n"),
        (Client, b"227 Entering Passive Mode (198,51,100,7,16,1)\r\n"),
    ];
    play(&mut lab, &wire(21), &in_parts(control, 1460));
    let mut connection = Connection::open(&mut lab, 4097);
    connection.server(0, b"some ");
    connection.finish(Direction::Forward, 0);
    connection.server(5, b"marker");
    assert_eq!(Vec::<u32>::new(), connection.lab.fired);
    connection.finish(Direction::Reverse, 11);
    assert_eq!(vec![1], lab.fired);
}

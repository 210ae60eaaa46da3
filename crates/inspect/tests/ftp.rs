//! Tests the buffers of FTP commands and replies, for any segmentation of the streams.

use crate::flows::play::{Wire, in_parts, play};
use crate::lab::{Connection, Lab};
use sluice_inspect::protocols::ftp::{ControlHosts, MAX_LINE};
use sluice_inspect::protocols::{Anomaly, Ftp, MessageEvent, ParserCapacity, ParserPools, Slot};
use sluice_inspect::signature::Buffer;
use sluice_inspect::signature::Toward::{self, Client, Server};
use sluice_inspect::signatures::Dialect::Suricata;
use sluice_inspect::signatures::{Classes, Variables, read};
use sluice_inspect::work_budget::{PACKET_BUDGET, WorkTokens};
use sluice_inspect::{Reason, Verdict};

fn store() -> ParserPools {
    ParserPools::new(&ParserCapacity {
        messages: 0,
        names: 0,
        inflaters: 0,
        ..ParserCapacity::default()
    })
}

fn hosts() -> ControlHosts {
    ControlHosts {
        client: [10, 0, 0, 1].into(),
        server: [192, 0, 2, 1].into(),
        flow: 1,
        second: 5,
    }
}

/// The reported messages, each with its buffers.
fn told(turns: &[(Toward, &[u8])], step: usize) -> Vec<Vec<(Buffer, String)>> {
    let (mut store, mut ftp) = (store(), Ftp::default());
    let (mut told, mut message) = (Vec::new(), Vec::new());
    for (toward, bytes) in turns {
        for part in bytes.chunks(step) {
            ftp.bytes(
                &mut store,
                *toward,
                part,
                &hosts(),
                &mut |slot: Slot<'_>, piece| match piece {
                    MessageEvent::Grew {
                        buffer,
                        fresh,
                        complete,
                    } => {
                        let bytes = slot.buffer(buffer).bytes;
                        assert!(complete && fresh == (0..bytes.len()) && slot.is_client() == (*toward == Server));
                        message.push((buffer, bytes.escape_ascii().to_string()));
                    }
                    MessageEvent::Anomaly(_) => {}
                    MessageEvent::End => told.push(std::mem::take(&mut message)),
                },
            );
        }
    }
    assert_eq!(1, store.commands.available());
    told
}

fn messages(expected: &[&[(Buffer, &str)]]) -> Vec<Vec<(Buffer, String)>> {
    let owned = |message: &&[(Buffer, &str)]| {
        message
            .iter()
            .map(|(buffer, text)| (*buffer, (*text).to_owned()))
            .collect()
    };
    expected.iter().map(owned).collect()
}

const COMMANDS: &[u8] =
    b"USER anonymous\r\npass  a b \r\n\r\nPASV\r\nPORT 10,0,0,1,19,137\r\nEPRT |2|::1|66275|\nQuit\n";
const REPLIES: &[u8] = b"220-FTP server\r\n text\r\n331-more\r\n331 less\r\n220 ready\r\ntext\r\n\
    227 Entering Passive Mode (192,0,2,1,0,21)\r\n229 =\r\n150\r\n2000 bytes\r\n";

#[test]
fn commands_and_replies_are_messages_however_they_are_cut() {
    use Buffer::{FtpCommand, FtpCommandData, FtpCompletionCode, FtpDynamicPort, FtpMode, FtpReply};
    let commands = messages(&[
        &[(FtpCommand, "USER"), (FtpCommandData, "anonymous")],
        &[(FtpCommand, "PASS"), (FtpCommandData, "a b")],
        &[(FtpCommand, "PASV")],
        &[
            (FtpCommand, "PORT"),
            (FtpCommandData, "10,0,0,1,19,137"),
            (FtpMode, "active"),
            (FtpDynamicPort, "\\x13\\x89"),
        ],
        &[(FtpCommand, "EPRT"), (FtpCommandData, "|2|::1|66275|")],
        &[(FtpCommand, "QUIT")],
    ]);
    let replies = messages(&[
        &[(FtpCompletionCode, "220"), (FtpReply, "FTP server")],
        &[(FtpCompletionCode, "220"), (FtpReply, "text")],
        &[(FtpCompletionCode, "331"), (FtpReply, "more")],
        &[(FtpCompletionCode, "331"), (FtpReply, "less")],
        &[(FtpCompletionCode, "220"), (FtpReply, "ready")],
        &[(FtpReply, "text")],
        &[
            (FtpCompletionCode, "227"),
            (FtpReply, "Entering Passive Mode (192,0,2,1,0,21)"),
            (FtpMode, "passive"),
            (FtpDynamicPort, "\\x00\\x15"),
        ],
        &[(FtpCompletionCode, "229"), (FtpReply, "=")],
        &[(FtpCompletionCode, "150")],
        &[(FtpReply, "2000 bytes")],
    ]);
    for step in (1..100).chain([usize::MAX]) {
        assert_eq!(commands, told(&[(Server, COMMANDS)], step), "segments of {step}");
        assert_eq!(replies, told(&[(Client, REPLIES)], step), "segments of {step}");
    }
}

#[test]
fn nothing_is_read_once_tls_was_agreed_on() {
    let names = |turns: &[(Toward, &[u8])]| {
        let told = told(turns, 1);
        told.into_iter().map(|message| message[0].1.clone()).collect::<Vec<_>>()
    };
    let hello = &b"\x16\x03\x01\r\nUSER a\r\n"[..];
    let agreed: &[(Toward, &[u8])] = &[
        (Server, b"NOOP\r\nAUTH TLS\r\n"),
        (Client, b"200 ok\r\n234 go\r\n"),
        (Server, hello),
        (Client, b"230 in\r\n"),
    ];
    assert_eq!(["NOOP", "AUTH", "200", "234"], *names(agreed));
    let refused: &[(Toward, &[u8])] = &[(Server, b"AUTH TLS\r\n"), (Client, b"500 no\r\n"), (Server, hello)];
    assert_eq!(["AUTH", "500", "\\x16\\x03\\x01", "USER"], *names(refused));
    let in_the_clear: &[(Toward, &[u8])] = &[
        (Server, b"AUTH TLS\r\n"),
        (Client, b"234 go\r\n"),
        (Server, b"USER a\r\n\x16USER b\r\n"),
    ];
    assert_eq!(["AUTH", "234", "USER", "\\x16USER"], *names(in_the_clear));
}

#[test]
fn line_that_is_too_long_is_cut_and_counted() {
    for (length, count) in [(MAX_LINE, 0), (MAX_LINE + 1, 1), (3 * MAX_LINE, 1)] {
        let line = [b"RETR ", &vec![b'x'; length - 5][..], b"\r\nNOOP\r\n"].concat();
        for step in [1, 7, 5_000] {
            let (mut store, mut ftp, mut told) = (store(), Ftp::default(), Vec::new());
            for part in line.chunks(step) {
                ftp.bytes(&mut store, Server, part, &hosts(), &mut |slot: Slot<'_>, piece| {
                    if piece == MessageEvent::End {
                        told.push(slot.buffer(Buffer::FtpCommandData).bytes.len());
                    }
                });
            }
            assert_eq!(vec![length.min(MAX_LINE) - 5, 0], told);
            assert_eq!(count, store.anomalies.of(Anomaly::TooLong), "{length}");
        }
    }
}

#[test]
fn packet_of_many_lines_costs_no_more_than_it_may() {
    let (mut store, mut ftp, mut told) = (store(), Ftp::default(), 0);
    let lines = b"A\n".repeat(700);
    let credit = store.work.start(WorkTokens::default(), lines.len());
    ftp.bytes(&mut store, Server, &lines, &hosts(), &mut |_: Slot<'_>, piece| {
        told += u32::from(piece == MessageEvent::End);
    });
    assert!(store.work.is_exhausted());
    assert!((1..=PACKET_BUDGET / 192).contains(&told), "{told}");
    // The packets of a command and its reply add at least the units to the budget that the two lines cost, even if the
    // lines are short.
    let mut credit = store.work.end(credit);
    let before = credit;
    for _ in 0..10_000 {
        for (toward, line) in [(Server, &b"NOOP\r\n"[..]), (Client, b"200 OK.\r\n\r\n")] {
            let begun = store.work.start(credit, line.len());
            ftp.bytes(&mut store, toward, line, &hosts(), &mut |_: Slot<'_>, _| {});
            assert!(!store.work.is_exhausted());
            credit = store.work.end(begun);
        }
    }
    assert!(credit.units() >= before.units());
}

#[test]
fn any_bytes_are_parsed_alike_however_they_are_cut() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..3_000 {
        let (toward, text) = [(Server, COMMANDS), (Client, REPLIES)][round % 2];
        let mut changed = text.to_vec();
        for _ in 0..4 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = state as usize % changed.len();
            changed[at] = b"\r\n-2(,| A\x16\x80"[(state >> 32) as usize % 11];
        }
        let whole = told(&[(toward, &changed)], usize::MAX);
        assert_eq!(whole, told(&[(toward, &changed)], 1 + (state >> 40) as usize % 40));
    }
}

/// An FTP session, and rules. The rules with a `sid` below 50 fire.
const SESSION: &[(Toward, &[u8])] = &[
    (Client, b"220 a FTP server\r\n"),
    (Server, b"user anonymous\r\nSYST\r\n"),
    (Client, b"331 Please specify the password.\r\n215 UNIX\r\n"),
    (Server, b"PASS guest\r\n"),
    (Client, b"230-Welcome\r\n Terms apply.\r\n230 Login successful.\r\n"),
    (Server, b"PASV\r\n"),
    (Client, b"227 Entering Passive Mode (198,51,100,7,16,1)\r\n"),
    (Server, b"PORT 192,168,0,2,0,80\r\n"),
    (Client, b"200 ok\r\n"),
];

#[test]
fn rules_about_commands_and_replies_fire() {
    let rules = r#"
        alert ftp any any -> any any (msg:"m"; ftp.command; content:"USER"; bsize:4; sid:1;)
        alert ftp any any -> any any (msg:"m"; ftp.command; content:"USER"; ftp.command_data; content:"anonymous"; endswith; sid:2;)
        alert ftp any any -> any any (msg:"m"; ftp.command_data; content:"guest"; startswith; ftp.command; content:"PASS"; sid:3;)
        alert ftp any any -> any any (msg:"m"; ftp.reply; content:"Please specify the password."; startswith; sid:4;)
        alert ftp any any -> any any (msg:"m"; ftp.completion_code; content:"230"; ftp.reply; content:"Login"; sid:5;)
        alert ftp any any -> any any (msg:"m"; ftp.completion_code; content:"230"; ftp.reply; content:"Terms"; sid:6;)
        alert ftp any any -> any any (msg:"m"; ftp.command; content:"PASV"; ftp.command_data; bsize:0; sid:7;)
        alert ftp any any -> any any (msg:"m"; ftp.command; content:"SYST"; content:"anonymous"; pkt_data; content:"user"; sid:57;)
        alert ftp any any -> any any (msg:"m"; ftp.command; content:"SYST"; pkt_data; content:"user"; sid:8;)
        alert ftp any any -> any any (msg:"m"; ftp.mode:passive; ftp.dynamic_port:4097; sid:9;)
        alert ftp any any -> any any (msg:"m"; ftp.mode:active; ftp.dynamic_port:<1024; flow:to_server; sid:10;)
        alert ftp any any -> any any (msg:"m"; ftp.dynamic_port:!80; sid:11;)
        alert ftp any any -> any any (msg:"m"; ftp.completion_code; pcre:"/^[0-9]{3}$/"; ftp.reply; content:!"o"; content:"UNIX"; sid:12;)
        alert ftp any any -> any any (msg:"m"; ftp.command; pcre:"/^[A-Z]{4}$/"; sid:13;)
        alert ftp any any -> any any (msg:"m"; ftp.command; content:!"USER"; sid:14;)
        alert ftp any any -> any any (msg:"m"; ftp.command; content:"user"; sid:51;)
        alert ftp any any -> any any (msg:"m"; ftp.command; content:"PASS"; ftp.command_data; content:"anonymous"; sid:52;)
        alert ftp any any -> any any (msg:"m"; ftp.completion_code; content:"230"; ftp.reply; content:"UNIX"; sid:53;)
        alert ftp any any -> any any (msg:"m"; ftp.reply; content:"230"; sid:54;)
        alert ftp any any -> any any (msg:"m"; ftp.mode:active; ftp.dynamic_port:4097; sid:55;)
        alert ftp any any -> any any (msg:"m"; ftp.dynamic_port:80<>4097; sid:56;)
        alert ftp any any -> any any (msg:"m"; ftp.command; content:"PASS"; flow:to_client; sid:58;)
        alert smtp any any -> any any (msg:"m"; ftp.command; content:"PASS"; sid:60;)
        alert ftp any any -> any any (msg:"m"; ftp.command; content:"SYST"; ftp.reply; content:"UNIX"; sid:61;)
        alert ftp any any -> any any (msg:"m"; ftp.mode:active; ftp.completion_code; content:!"x"; sid:62;)"#;
    for step in (1..24).chain([1_460]) {
        let mut lab = Lab::new(Suricata, rules);
        play(
            &mut lab,
            &Wire {
                ports: [40_000, 2_121],
                ..Wire::default()
            },
            &in_parts(SESSION, step),
        );
        lab.fired.sort_unstable();
        lab.fired.dedup();
        assert_eq!((1..=14).collect::<Vec<_>>(), lab.fired, "segments of {step}");
    }
}

#[test]
fn packet_that_ends_the_line_is_dropped() {
    let rule = r#"drop ftp any any -> any any (msg:"m"; ftp.command; content:"STOR"; ftp.command_data; content:".exe"; sid:1;)"#;
    let mut lab = Lab::new(Suricata, rule);
    let mut connection = Connection::open(&mut lab, 21);
    connection.server(0, b"220 a FTP server\r\n");
    for (place, part) in [(0, &b"STOR a.txt\r\n"[..]), (12, b"STOR a."), (19, b"exe")] {
        assert_eq!(Verdict::Pass, connection.client(place, part));
    }
    assert_eq!(Verdict::Drop(Reason::Signature), connection.client(22, b"\r\n"));
}

#[test]
fn values_that_can_not_be_are_refused() {
    for (option, why) in [
        ("ftp.mode:extended", "\"extended\" of this option is not supported"),
        ("ftp.mode", "the option needs a value"),
        ("ftp.dynamic_port:65536", "\"65536\" is out of range"),
        (
            "ftp.dynamic_port:!5<>9",
            "\"!5<>9\" excludes values within a range, which is not supported",
        ),
        ("ftp.command:USER", "\"USER\" of this option is not supported"),
        ("ftp.reply_received:yes", "this option is not supported"),
    ] {
        let rule = format!("alert ftp any any -> any any (msg:\"m\"; {option}; sid:1;)");
        let file = read(rule.as_bytes(), Suricata, &Variables::default(), &Classes::default());
        assert_eq!(why, file.refused[0].why.to_string(), "{option}");
    }
}

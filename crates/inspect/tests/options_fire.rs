//! Tests options in each dialect that has the option. A rule with the option fires on a flow that satisfies the rule,
//! and not on a similar flow that does not.

use crate::flows::play::{Message, Wire, play};
use crate::lab::Lab;
use sluice_inspect::evaluate::IcmpFields;
use sluice_inspect::signature::Toward;
use sluice_inspect::signatures::Dialect::{self, Snort2, Snort3, Suricata};

const EVERY: &[Dialect] = &[Suricata, Snort2, Snort3];
const CLASSIC: &[Dialect] = &[Suricata, Snort2];

/// A flow, and the number of times that it is played.
#[derive(Clone, Debug)]
struct Said(Wire, Vec<Message>, u32);

impl Said {
    fn with(mut self, change: impl FnOnce(&mut Wire)) -> Self {
        change(&mut self.0);
        self
    }

    fn and(mut self, toward: Toward, bytes: &[u8]) -> Self {
        let bytes = bytes.to_vec();
        self.1.push(Message { toward, bytes });
        self
    }

    /// Number of times that rule 1 fires on this flow.
    fn fires(&self, dialect: Dialect, rules: &str) -> usize {
        let mut lab = Lab::new(dialect, rules);
        for _ in 0..self.2 {
            play(&mut lab, &self.0, &self.1);
        }
        lab.fired.iter().filter(|number| **number == 1).count()
    }
}

/// Creates a flow in which the client sends this data.
fn say(bytes: impl AsRef<[u8]>) -> Said {
    Said(Wire::default(), Vec::new(), 1).and(Toward::Server, bytes.as_ref())
}

fn datagram(protocol: u8, bytes: impl AsRef<[u8]>) -> Said {
    say(bytes).with(|wire| wire.ip.protocol = protocol)
}

fn icmp(kind: u8, code: u8, identifier: u16, sequence: u16) -> Said {
    let icmp = IcmpFields {
        kind,
        code,
        identifier,
        sequence,
    };
    datagram(1, "ping").with(|wire| wire.icmp = Some(icmp))
}

fn flags(flags: u8) -> Said {
    say("").with(|wire| wire.flags = Some(flags))
}

/// Options in the syntax of a dialect. In Snort 3, the modifiers are in the list of the content.
fn worded(dialect: Dialect, options: &str) -> String {
    const QUALIFIERS: &[&str] = &["nocase", "offset", "depth", "distance", "within", "fast_pattern"];
    if dialect != Snort3 {
        return options.into();
    }
    let mut worded = String::new();
    for option in options.split_inclusive(';') {
        let name = option.trim().split([':', ';']).next().unwrap_or_default();
        match QUALIFIERS.contains(&name) {
            true => {
                worded.pop();
                worded.push(',');
                worded.push_str(&option.trim().replace(':', " "));
            }
            false => worded.push_str(option),
        }
    }
    worded
}

fn fires_and_not(dialects: &[Dialect], header: &str, options: &str, yes: &Said, no: &Said) {
    for &dialect in dialects {
        let rule = format!("alert {header} (msg:\"m\"; {} sid:1;)", worded(dialect, options));
        assert!(yes.fires(dialect, &rule) > 0, "{dialect:?} {rule} does not fire");
        assert_eq!(0, no.fires(dialect, &rule), "{dialect:?} {rule} fires at its neighbour");
    }
}

type Rows<'r> = &'r [(&'r [Dialect], &'r str, &'r [u8], &'r [u8])];

/// Tests rules for TCP data of the client.
fn said_by_client(rows: Rows) {
    for (dialects, options, yes, no) in rows {
        fires_and_not(dialects, "tcp any any -> any any", options, &say(yes), &say(no));
    }
}

#[test]
fn contents_fire() {
    said_by_client(&[
        (EVERY, r#"content:"abc";"#, b"-abc-", b"-abd-"),
        (EVERY, r#"content:"a|00 3B|c";"#, b"-a\0;c-", b"-a\x01;c-"),
        (EVERY, r#"content:"aBc"; nocase;"#, b"-AbC-", b"-AbD-"),
        (EVERY, r#"content:"abc"; content:!"no";"#, b"abc-mo", b"abc-no"),
        (EVERY, r#"content:"abc"; offset:2;"#, b"--abc", b"-abc-"),
        (EVERY, r#"content:"abc"; depth:4;"#, b"-abc-", b"--abc"),
        (EVERY, r#"content:"abc"; offset:1; depth:4;"#, b"--abc", b"---abc"),
        (
            EVERY,
            r#"content:"abc"; content:"def"; distance:1;"#,
            b"abc-def",
            b"abcdef-",
        ),
        (
            EVERY,
            r#"content:"abc"; content:"def"; distance:-6;"#,
            b"-defabc",
            b"-def-abc",
        ),
        (
            EVERY,
            r#"content:"abc"; content:"def"; within:4;"#,
            b"abc-def",
            b"abc--def",
        ),
        (
            EVERY,
            r#"content:"abc"; content:"def"; distance:1; within:3;"#,
            b"abc-def",
            b"abc--def",
        ),
        (
            EVERY,
            r#"content:"abc"; content:!"def"; within:4;"#,
            b"abc--def",
            b"abc-def",
        ),
        (
            EVERY,
            r#"content:"abc"; fast_pattern; content:"d";"#,
            b"-d-abc",
            b"-e-abc",
        ),
        (&[Suricata], r#"content:"abc"; startswith;"#, b"abc-", b"-abc"),
        (&[Suricata], r#"content:"abc"; endswith; dsize:4;"#, b"-abc", b"abc-"),
        (
            &[Snort2],
            r#"content:"abc"; fast_pattern:only; content:"d"; depth:1;"#,
            b"d-abc",
            b"d-abd",
        ),
        (CLASSIC, r#"content:"xabc"; fast_pattern:1,3;"#, b"xabc", b"yabc"),
    ]);
}

#[test]
fn expressions_fire() {
    said_by_client(&[
        (EVERY, r#"content:"a"; pcre:"/a[0-9]{3}z/";"#, b"-a123z", b"-a12z"),
        (EVERY, r#"content:"a"; pcre:!"/b\d/";"#, b"a-bx", b"a-b1"),
        (EVERY, r#"content:"a"; pcre:"/^b/R";"#, b"-ab", b"-a-b"),
        (EVERY, r#"content:"a"; pcre:"/XyZ/i";"#, b"a-xYz", b"a-xYy"),
        (EVERY, r#"content:"a"; pcre:"/b.c/s";"#, b"ab\nc", b"ab\n-c"),
        (EVERY, r#"content:"a"; pcre:"/b.c/";"#, b"ab-c", b"ab\nc"),
        (EVERY, r#"content:"a"; pcre:"/^b/m";"#, b"a\nb", b"a-b"),
        (EVERY, r#"content:"a"; pcre:"/b c/x";"#, b"abc", b"ab c"),
        (EVERY, r#"content:"a"; pcre:"/b/A";"#, b"ba", b"-ba"),
        (EVERY, r#"content:"a"; pcre:"/b$/E";"#, b"ab", b"ab\n"),
        (
            EVERY,
            r#"content:"a"; pcre:"/b.+c/G"; content:"d"; within:1;"#,
            b"ab-cd-c",
            b"ab-c-d-c",
        ),
    ]);
}

#[test]
fn numbers_fire() {
    let rows: Rows = &[
        (EVERY, "byte_test:1,<,5,1;", b"a\x04", b"a\x05"),
        (EVERY, "byte_test:1,<=,5,1;", b"a\x05", b"a\x06"),
        (EVERY, "byte_test:1,=,5,1;", b"a\x05", b"a\x04"),
        (EVERY, "byte_test:1,>=,5,1;", b"a\x05", b"a\x04"),
        (EVERY, "byte_test:1,>,5,1;", b"a\x06", b"a\x05"),
        (EVERY, "byte_test:1,&,6,1;", b"a\x04", b"a\x08"),
        (EVERY, "byte_test:1,^,6,1;", b"a\x04", b"a\x06"),
        (EVERY, "byte_test:1,!&,6,1;", b"a\x08", b"a\x04"),
        (EVERY, "byte_test:1,!=,6,1;", b"a\x08", b"a\x06"),
        (EVERY, "byte_test:2,=,258,0,relative;", b"-a\x01\x02", b"-a\x01\x03"),
        (
            EVERY,
            "byte_test:2,=,258,0,relative,little;",
            b"-a\x02\x01",
            b"-a\x01\x02",
        ),
        (EVERY, "byte_test:3,=,123,0,relative,string,dec;", b"-a123", b"-a124"),
        (EVERY, "byte_test:2,=,255,0,relative,string,hex;", b"-aff", b"-afe"),
        (EVERY, "byte_test:2,=,8,0,relative,string,oct;", b"-a10", b"-a11"),
        (EVERY, "byte_test:1,=,3,1,bitmask 0x30;", b"a\x31", b"a\x21"),
        (
            EVERY,
            r#"byte_jump:1,0,relative; content:"b"; within:1;"#,
            b"a\x02--b",
            b"a\x02-b-",
        ),
        (
            EVERY,
            r#"byte_jump:1,1; content:"b"; within:1;"#,
            b"a\x01-b",
            b"a\x01--b",
        ),
        (
            EVERY,
            r#"byte_jump:1,1,from_beginning; content:"b"; within:1;"#,
            b"a\x03-b",
            b"a\x03b-",
        ),
        (
            EVERY,
            r#"byte_jump:1,1,multiplier 2; content:"b"; within:1;"#,
            b"a\x01--b",
            b"a\x01-b-",
        ),
        (
            EVERY,
            r#"byte_jump:1,1,align; content:"b"; within:1;"#,
            b"a\x01----b",
            b"a\x01-b---",
        ),
        (
            EVERY,
            r#"byte_jump:1,1,post_offset 1; content:"b"; within:1;"#,
            b"a\x01--b",
            b"a\x01-b-",
        ),
        (
            EVERY,
            r#"byte_extract:1,1,n; content:"b"; offset:n; depth:1;"#,
            b"a\x03-b-",
            b"a\x03--b",
        ),
        (
            EVERY,
            r#"byte_extract:1,0,n,relative; byte_test:1,=,n,0,relative;"#,
            b"a\x03\x03",
            b"a\x03\x04",
        ),
        (EVERY, "isdataat:4;", b"a----", b"a---"),
        (&[Suricata], "isdataat:1,relative;", b"-a-", b"-a"),
        (&[Snort2, Snort3], "isdataat:1,relative;", b"-a--", b"-a-"),
        (&[Suricata], "isdataat:!1,relative;", b"-a", b"-a-"),
        (&[Snort2, Snort3], "isdataat:!1,relative;", b"-a-", b"-a--"),
        (
            EVERY,
            r#"base64_decode:relative; base64_data; content:"hello";"#,
            b"aaGVsbG8=",
            b"aaGVsbGg=",
        ),
        (
            &[Snort2, Snort3],
            r#"byte_jump:1,1,from_end,post_offset -2; content:"b"; within:1;"#,
            b"a\x00--b-",
            b"a\x00-b--",
        ),
    ];
    for (dialects, options, yes, no) in rows {
        let options = format!(r#"content:"a"; {options}"#);
        fires_and_not(dialects, "tcp any any -> any any", &options, &say(yes), &say(no));
    }
}

#[test]
fn headers_fire() {
    let ip = || datagram(17, "x");
    let rows: Vec<(&str, &str, Said, Said)> = vec![
        ("tcp", "dsize:3;", say("abc"), say("abcd")),
        ("tcp", "dsize:>3;", say("abcd"), say("abc")),
        ("tcp", "dsize:2<>5;", say("abc"), say("abcdef")),
        ("tcp", "flags:S;", flags(2), flags(3)),
        ("tcp", "flags:S+;", flags(3), flags(1)),
        ("tcp", "flags:SF*;", flags(1), flags(8)),
        ("tcp", "flags:!S;", flags(1), flags(2)),
        ("tcp", "flags:S,12;", flags(0xc2), flags(0xc3)),
        (
            "tcp",
            "seq:77;",
            flags(2).with(|wire| wire.initial[0] = 77),
            flags(2).with(|wire| wire.initial[0] = 78),
        ),
        (
            "tcp",
            "ack:77;",
            say("x").with(|wire| wire.initial[1] = 76),
            say("x").with(|wire| wire.initial[1] = 77),
        ),
        (
            "tcp",
            "window:555;",
            say("x").with(|wire| wire.window = 555),
            say("x").with(|wire| wire.window = 556),
        ),
        (
            "tcp",
            "window:!555;",
            say("x").with(|wire| wire.window = 556),
            say("x").with(|wire| wire.window = 555),
        ),
        ("icmp", "itype:8;", icmp(8, 0, 0, 0), icmp(9, 0, 0, 0)),
        ("icmp", "itype:>8;", icmp(9, 0, 0, 0), icmp(8, 0, 0, 0)),
        ("icmp", "icode:3;", icmp(3, 3, 0, 0), icmp(3, 4, 0, 0)),
        ("icmp", "icmp_id:667;", icmp(8, 0, 667, 0), icmp(8, 0, 668, 0)),
        ("icmp", "icmp_seq:9;", icmp(8, 0, 0, 9), icmp(8, 0, 0, 8)),
        (
            "ip",
            "ttl:3;",
            ip().with(|wire| wire.ip.ttl = 3),
            ip().with(|wire| wire.ip.ttl = 4),
        ),
        (
            "ip",
            "ttl:<3;",
            ip().with(|wire| wire.ip.ttl = 2),
            ip().with(|wire| wire.ip.ttl = 3),
        ),
        ("ip", "tos:4;", ip().with(|wire| wire.ip.type_of_service = 4), ip()),
        ("ip", "tos:!4;", ip(), ip().with(|wire| wire.ip.type_of_service = 4)),
        (
            "ip",
            "id:9;",
            ip().with(|wire| wire.ip.identification = Some(9)),
            ip().with(|wire| wire.ip.identification = Some(8)),
        ),
        ("ip", "ip_proto:47;", datagram(47, "x"), datagram(50, "x")),
        ("ip", "ip_proto:!47;", datagram(50, "x"), datagram(47, "x")),
        (
            "ip",
            "fragbits:D;",
            ip().with(|wire| wire.ip.fragment_bits = 2),
            ip().with(|wire| wire.ip.fragment_bits = 3),
        ),
        (
            "ip",
            "fragbits:M+;",
            ip().with(|wire| wire.ip.fragment_bits = 3),
            ip().with(|wire| wire.ip.fragment_bits = 2),
        ),
        (
            "ip",
            "fragbits:MD*;",
            ip().with(|wire| wire.ip.fragment_bits = 1),
            ip().with(|wire| wire.ip.fragment_bits = 4),
        ),
        (
            "ip",
            "fragbits:!D;",
            ip().with(|wire| wire.ip.fragment_bits = 1),
            ip().with(|wire| wire.ip.fragment_bits = 2),
        ),
        (
            "ip",
            "fragoffset:0;",
            ip(),
            ip().with(|wire| wire.ip.fragment_offset = 1),
        ),
        ("ip", "sameip;", ip().with(|wire| wire.ip.same_address = true), ip()),
        (
            "tcp",
            r#"content:"b"; stream_size:client,>,4;"#,
            say("a--b"),
            say("a-b"),
        ),
        (
            "tcp",
            r#"content:"b"; stream_size:server,>,4;"#,
            say("b").and(Toward::Client, b"--b-"),
            say("b").and(Toward::Client, b"-b-"),
        ),
        (
            "tcp",
            r#"content:"b"; stream_size:either,=,4;"#,
            say("a-b"),
            say("a--b"),
        ),
        ("tcp", r#"content:"b"; stream_size:both,<,4;"#, say("ab"), say("aab")),
    ];
    for (protocol, options, yes, no) in rows {
        // Snort 3 has a different syntax for `stream_size`.
        let dialects = if options.contains("stream_size") {
            CLASSIC
        } else {
            EVERY
        };
        fires_and_not(dialects, &format!("{protocol} any any -> any any"), options, &yes, &no);
    }
    fires_and_not(
        &[Snort3],
        "tcp any any -> any any",
        r#"content:"b"; stream_size:>4,to_server;"#,
        &say("a--b"),
        &say("a-b"),
    );
}

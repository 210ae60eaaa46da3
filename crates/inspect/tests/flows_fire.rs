//! Tests buffers, directions, flow variables and rates of rules. Each rule fires on a flow that satisfies it, and not
//! on a similar flow that does not.

use crate::flows::play::{Message, Wire, play};
use crate::flows::wire::{hello, question};
use crate::lab::Lab;
use sluice_inspect::signature::Toward::{self, Client, Server};
use sluice_inspect::signatures::Dialect::{self, Snort2, Snort3, Suricata};

const EVERY: [Dialect; 3] = [Suricata, Snort2, Snort3];
const CLASSIC: [Dialect; 2] = [Suricata, Snort2];

fn said(messages: &[(Toward, &[u8])]) -> Vec<Message> {
    let message = |(toward, bytes): &(Toward, &[u8])| Message {
        toward: *toward,
        bytes: bytes.to_vec(),
    };
    messages.iter().map(message).collect()
}

fn asked(bytes: impl AsRef<[u8]>) -> Vec<Message> {
    said(&[(Server, bytes.as_ref())])
}

fn answered(bytes: impl AsRef<[u8]>) -> Vec<Message> {
    said(&[(Server, b"GET / HTTP/1.1\r\n\r\n"), (Client, bytes.as_ref())])
}

/// Returns the rules that fire, once for each match, on a flow that is played `times` times.
fn fired(dialect: Dialect, rules: &str, wire: &Wire, messages: &[Message], times: usize) -> Vec<u32> {
    let mut lab = Lab::new(dialect, rules);
    for _ in 0..times {
        play(&mut lab, wire, messages);
    }
    lab.fired
}

fn to_port(port: u16) -> Wire {
    Wire {
        ports: [40_000, port],
        ..Wire::default()
    }
}

fn over(protocol: u8, port: u16) -> Wire {
    let mut wire = to_port(port);
    wire.ip.protocol = protocol;
    wire
}

/// Names of a buffer in Suricata, Snort 2 (as modifier after a content) and Snort 3. The name is empty if the dialect
/// does not have the buffer.
type Names<'n> = [&'n str; 3];

fn looks_in(dialect: Dialect, names: Names, content: &str) -> Option<String> {
    let [suricata, snort2, snort3] = names;
    let options = match dialect {
        Suricata => format!("{suricata}; content:\"{content}\";"),
        // In Snort 2, too, `file_data` precedes its contents.
        Snort2 if snort2 == "file_data" => format!("file_data; content:\"{content}\";"),
        Snort2 => format!("content:\"{content}\"; {snort2};"),
        Snort3 => format!("{snort3}; content:\"{content}\";"),
    };
    let named = !names[EVERY.iter().position(|each| *each == dialect)?].is_empty();
    named.then(|| format!("alert tcp any any -> any any (msg:\"m\"; {options} sid:1;)"))
}

#[test]
fn buffers_fire() {
    let request = |line: &str, fields: &str, body: &str| {
        let length = body.len();
        asked(format!(
            "{line} HTTP/1.1\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
        ))
    };
    let response = |status: &str, fields: &str, body: &str| {
        answered(format!(
            "HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    };
    let get = |uri: &str| request(&format!("GET {uri}"), "", "");
    let field = |field: &str| request("GET /", &format!("{field}\r\n"), "");
    let rows: Vec<(Names, &str, Vec<Message>, Vec<Message>)> = vec![
        (
            ["http.uri", "http_uri", "http_uri"],
            "/a/b c",
            get("/a/./b%20c"),
            get("/a/./b%21c"),
        ),
        (
            ["http.uri.raw", "http_raw_uri", "http_raw_uri"],
            "b%20c",
            get("/b%20c"),
            get("/b c"),
        ),
        (
            ["http.method", "http_method", "http_method"],
            "PUT",
            request("PUT /", "", ""),
            request("POST /PUT", "", ""),
        ),
        (
            ["http.header", "http_header", "http_header"],
            "X: abc",
            field("X:   abc"),
            field("X: abd"),
        ),
        (
            ["http.header.raw", "http_raw_header", "http_raw_header"],
            "X:  abc",
            field("X:  abc"),
            field("X: abc"),
        ),
        (
            ["http.host", "", ""],
            "example.org",
            field("Host: EXAMPLE.org:80"),
            field("Host: example.com"),
        ),
        (
            ["http.host.raw", "", "http_header:field host"],
            "EXAMPLE.org:80",
            field("Host: EXAMPLE.org:80"),
            field("Host: example.org:80"),
        ),
        (
            ["http.cookie", "http_cookie", "http_cookie"],
            "id=7",
            field("Cookie: id=7"),
            field("X: id=7"),
        ),
        (
            ["http.user_agent", "", "http_header:field user-agent"],
            "curl",
            field("User-Agent: curl/8"),
            field("X: curl/8"),
        ),
        (
            ["http.request_body", "http_client_body", "http_client_body"],
            "abc",
            request("POST /", "", "-abc"),
            request("POST /abc", "", "-abd"),
        ),
        (
            ["http.stat_code", "http_stat_code", "http_stat_code"],
            "404",
            response("404 No", "", ""),
            response("403 404", "", ""),
        ),
        (
            ["http.stat_msg", "http_stat_msg", "http_stat_msg"],
            "Gone",
            response("410 Gone", "", ""),
            response("410 Done", "", "Gone"),
        ),
        (
            ["file.data", "file_data", "file_data"],
            "abc",
            response("200 OK", "", "-abc"),
            response("200 abc", "", "-abd"),
        ),
        (
            ["http.cookie", "http_cookie", "http_cookie"],
            "id=8",
            response("200 OK", "Set-Cookie: id=8\r\n", ""),
            response("200 OK", "X: id=8\r\n", ""),
        ),
        (
            ["tls.sni", "", ""],
            "evil.example",
            asked(hello(b"www.evil.example")),
            asked(hello(b"www.evil.examplf")),
        ),
        (
            ["pkt_data", "pkt_data", "pkt_data"],
            "abc",
            asked("-abc"),
            asked("-abd"),
        ),
    ];
    for (names, content, yes, no) in rows {
        for dialect in EVERY {
            let Some(rule) = looks_in(dialect, names, content) else {
                continue;
            };
            let rule = match names[1] {
                "pkt_data" => rule.replace("content:\"abc\"; pkt_data;", "pkt_data; content:\"abc\";"),
                _ => rule,
            };
            assert_eq!(
                vec![1],
                fired(dialect, &rule, &Wire::default(), &yes, 1),
                "{dialect:?} {rule}"
            );
            assert_eq!(
                0,
                fired(dialect, &rule, &Wire::default(), &no, 1).len(),
                "{dialect:?} {rule}"
            );
        }
    }
}

#[test]
fn question_and_fingerprint_fire() {
    let rule = r#"alert dns any any -> any any (msg:"m"; dns.query; content:"evil.example"; nocase; sid:1;)"#;
    let ask = |name: &[u8]| fired(Suricata, rule, &over(17, 53), &asked(question(name)), 1);
    assert_eq!((1, 0), (ask(b"www.EVIL.example").len(), ask(b"www.evil.examplf").len()));
    let rule = |hash: &str| format!(r#"alert tls any any -> any any (msg:"m"; ja3.hash; content:"{hash}"; sid:1;)"#);
    let hash = |hash: &str| fired(Suricata, &rule(hash), &to_port(443), &asked(hello(b"a.example")), 1).len();
    assert_eq!((1, 0), (hash(JA3), hash(&JA3.replace(&JA3[..1], "x"))));
}

/// Output of `printf 771,4865,0,, | md5sum`.
const JA3: &str = "1e7c622032b0cb79401b0f7be3793a1a";

#[test]
fn lengths_fire() {
    let get = |uri: &str| asked(format!("GET {uri} HTTP/1.1\r\n\r\n"));
    for (dialects, options, yes, no) in [
        (&[Suricata, Snort2][..], "urilen:4;", "/abc", "/abcd"),
        (&[Suricata, Snort2], "urilen:>4;", "/abcd", "/abc"),
        (&[Suricata, Snort2], "urilen:<4;", "/ab", "/abc"),
        (&[Suricata], "http.uri; bsize:4;", "/abc", "/abcd"),
        (&[Snort3], "http_uri; bufferlen:4;", "/abc", "/abcd"),
        (&[Snort3], "http_uri; bufferlen:3<=>5;", "/abcd", "/abcde"),
    ] {
        for &dialect in dialects {
            let rule = format!("alert tcp any any -> any any (msg:\"m\"; {options} sid:1;)");
            for (uri, expected) in [(yes, 1), (no, 0)] {
                assert_eq!(
                    expected,
                    fired(dialect, &rule, &Wire::default(), &get(uri), 1).len(),
                    "{dialect:?} {options} {uri}"
                );
            }
        }
    }
}

#[test]
fn sides_and_states_fire() {
    let by_client = || said(&[(Server, b"-abc"), (Client, b"-")]);
    let by_server = || said(&[(Server, b"-"), (Client, b"-abc")]);
    let http = || asked("GET /abc HTTP/1.1\r\n\r\n");
    let from = |port| Wire {
        ports: [port, 7],
        ..Wire::default()
    };
    for (dialects, header, options, yes, no) in [
        (
            &EVERY[..],
            "tcp any any -> any any",
            "flow:to_server;",
            (to_port(7), by_client()),
            (to_port(7), by_server()),
        ),
        (
            &EVERY,
            "tcp any any -> any any",
            "flow:to_client;",
            (to_port(7), by_server()),
            (to_port(7), by_client()),
        ),
        (
            &EVERY,
            "tcp any any -> any any",
            "flow:from_client;",
            (to_port(7), by_client()),
            (to_port(7), by_server()),
        ),
        (
            &EVERY,
            "tcp any any -> any any",
            "flow:from_server;",
            (to_port(7), by_server()),
            (to_port(7), by_client()),
        ),
        (
            &EVERY,
            "udp any any -> any any",
            "flow:established;",
            (over(17, 7), by_client()),
            (
                Wire {
                    established: false,
                    ..over(17, 7)
                },
                by_client(),
            ),
        ),
        (
            &EVERY,
            "udp any any -> any any",
            "flow:not_established;",
            (
                Wire {
                    established: false,
                    ..over(17, 7)
                },
                by_client(),
            ),
            (over(17, 7), by_client()),
        ),
        (
            &EVERY,
            "tcp any any -> any 8000:8010",
            "",
            (to_port(8010), by_client()),
            (to_port(8011), by_client()),
        ),
        (
            &EVERY,
            "tcp any !99 -> any any",
            "",
            (from(98), by_client()),
            (from(99), by_client()),
        ),
        (
            &EVERY,
            "tcp any 7 -> any any",
            "",
            (to_port(7), by_server()),
            (to_port(7), by_client()),
        ),
        (
            &EVERY,
            "tcp 192.168.0.2/31 any -> !10.0.0.0/8 any",
            "",
            (to_port(7), by_client()),
            (
                Wire {
                    addresses: [[192, 168, 0, 1].into(), [1, 1, 1, 1].into()],
                    ..Wire::default()
                },
                by_client(),
            ),
        ),
        (
            &EVERY,
            "tcp 198.51.100.7 7 <> any any",
            "",
            (to_port(7), by_client()),
            (to_port(8), by_client()),
        ),
        (
            &EVERY,
            "udp any any -> any any",
            "",
            (over(17, 7), by_client()),
            (over(6, 7), by_client()),
        ),
        (
            &EVERY,
            "ip any any -> any any",
            "content:\"a\";",
            (over(50, 7), by_client()),
            (over(50, 7), asked("-abd")),
        ),
        (
            &[Suricata],
            "http any any -> any any",
            "",
            (to_port(7), http()),
            (to_port(80), by_client()),
        ),
        (
            &[Suricata],
            "tcp any any -> any any",
            "app-layer-protocol:http;",
            (to_port(7), http()),
            (to_port(443), asked(hello(b"abc.example"))),
        ),
        (
            &[Snort2],
            "tcp any any -> any 80",
            "metadata:service http;",
            (to_port(7), http()),
            (to_port(7), by_client()),
        ),
        (
            &[Snort3],
            "tcp any any -> any 80",
            "service:http;",
            (to_port(7), http()),
            (to_port(7), by_client()),
        ),
    ] {
        for &dialect in dialects {
            let rule = format!("alert {header} (msg:\"m\"; {options} content:\"abc\"; sid:1;)");
            assert_eq!(vec![1], fired(dialect, &rule, &yes.0, &yes.1, 1), "{dialect:?} {rule}");
            assert_eq!(0, fired(dialect, &rule, &no.0, &no.1, 1).len(), "{dialect:?} {rule}");
        }
    }
}

#[test]
fn notes_fire() {
    let noted = said(&[(Server, b"set"), (Client, b"-"), (Server, b"then")]);
    let unset = said(&[
        (Server, b"set"),
        (Client, b"-"),
        (Server, b"unset"),
        (Client, b"-"),
        (Server, b"then"),
    ]);
    let not = said(&[(Server, b"sat"), (Client, b"-"), (Server, b"then")]);
    for (first, second, yes, no) in [
        ("set,a", "isset,a", &noted, &not),
        ("toggle,a", "isset,a", &noted, &not),
        ("set,a", "isset,a|b", &noted, &not),
        ("set,a", "isset,a", &noted, &unset),
        ("set,a", "isnotset,a", &not, &noted),
        ("set,a", "isnotset,a", &unset, &noted),
    ] {
        for dialect in EVERY {
            let rule = |content: &str, bits: &str, silent: &str, number: u32| {
                format!(
                    "alert tcp any any -> any any (msg:\"m\"; content:\"{content}\"; flowbits:{bits}; {silent} sid:{number};)\n"
                )
            };
            let depth = |content: &str| {
                if dialect == Snort3 {
                    format!("{content}\",depth {}; content:\"e", content.len())
                } else {
                    format!("{content}\"; depth:{}; content:\"e", content.len())
                }
            };
            let rules = rule(&depth("set"), first, "flowbits:noalert;", 2)
                + &rule("unset", "unset,a", "flowbits:noalert;", 3)
                + &rule("then", second, "", 1);
            assert_eq!(
                vec![1],
                fired(dialect, &rules, &Wire::default(), yes, 1),
                "{dialect:?} {first} {second}"
            );
            assert_eq!(
                0,
                fired(dialect, &rules, &Wire::default(), no, 1).len(),
                "{dialect:?} {first} {second}"
            );
        }
    }
}

#[test]
fn rates_fire() {
    for (dialects, options, expected) in [
        (
            &EVERY[..],
            "detection_filter:track by_src, count 3, seconds 60;",
            [0, 0, 0, 1, 2, 3, 4],
        ),
        (
            &EVERY,
            "detection_filter:track by_dst, count 3, seconds 60;",
            [0, 0, 0, 1, 2, 3, 4],
        ),
        (
            &CLASSIC,
            "threshold:type limit, track by_src, count 2, seconds 60;",
            [1, 2, 2, 2, 2, 2, 2],
        ),
        (
            &CLASSIC,
            "threshold:type threshold, track by_src, count 3, seconds 60;",
            [0, 0, 1, 1, 1, 2, 2],
        ),
        (
            &CLASSIC,
            "threshold:type both, track by_src, count 3, seconds 60;",
            [0, 0, 1, 1, 1, 1, 1],
        ),
        (
            &[Suricata],
            "threshold:type limit, track by_both, count 1, seconds 60;",
            [1; 7],
        ),
        (
            &[Suricata],
            "threshold:type limit, track by_rule, count 1, seconds 60;",
            [1; 7],
        ),
    ] {
        for &dialect in dialects {
            let rule = format!("alert tcp any any -> any any (msg:\"m\"; content:\"abc\"; {options} sid:1;)");
            for (times, expected) in (1..).zip(expected) {
                let count = fired(dialect, &rule, &Wire::default(), &asked("abc"), times).len();
                assert_eq!(expected, count, "{dialect:?} {options} at flow {times}");
            }
        }
    }
}

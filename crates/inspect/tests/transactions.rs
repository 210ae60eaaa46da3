//! Tests that every transaction is logged completely and exactly once, for any segmentation of the streams.

mod lab;

use allocation_counter::measure;
use lab::{Connection, Lab, datagram};
use sluice_inspect::inspector::{InspectorCapacity, Settings};
use sluice_inspect::protocols::ParserCapacity;
use sluice_inspect::signature::{Service, Toward};
use sluice_inspect::signatures::Dialect::Suricata;
use sluice_inspect::stream;
use sluice_inspect::transactions::{LoggedProtocols, Part, Transaction};
use sluice_wire::Direction::{Forward, Reverse};

const RULE: &str = r#"alert tcp any any -> any 9999 (msg:"m"; content:"unlikely"; sid:1;)"#;
const ALL: LoggedProtocols = LoggedProtocols {
    http: true,
    dns: true,
    tls: true,
};

fn lab(wanted: LoggedProtocols) -> Lab {
    let mut lab = Lab::new(Suricata, RULE);
    lab.settings = Settings {
        logged: wanted,
        ..Settings::default()
    };
    lab
}

/// Returns the transactions of a connection with alternating data of client and server, in segments of `step` bytes.
fn talk(lab: &mut Lab, turns: &[(bool, &[u8])], step: usize) -> Vec<Transaction> {
    lab.said.clear();
    let mut connection = Connection::open(lab, 80);
    let mut places = [0; 2];
    for (client, bytes) in turns {
        for part in bytes.chunks(step) {
            let place = &mut places[usize::from(!client)];
            connection.send_at(if *client { Forward } else { Reverse }, *place, part);
            *place += part.len();
        }
    }
    close(connection);
    std::mem::take(&mut lab.said)
}

fn close(connection: Connection<'_>) {
    let handle = connection.handle;
    let Lab { inspector, said, .. } = connection.lab;
    inspector.log_unfinished(handle, &mut |_, transaction| said.push(*transaction));
    inspector.remove_flow(handle);
}

fn text(transaction: &Transaction, part: Part) -> String {
    String::from_utf8(transaction.text(part).to_vec()).unwrap()
}

/// Each line contains method, host, URL, status, and length of the response body.
fn lines(said: &[Transaction]) -> Vec<String> {
    let line = |t: &Transaction| {
        let [method, host, url] = [Part::Method, Part::Host, Part::Url].map(|part| text(t, part));
        format!("{} {method} {host} {url} {} {}", t.number, t.status, t.length)
    };
    said.iter().map(line).collect()
}

#[test]
fn requests_are_told_with_their_responses_however_they_are_cut() {
    let mut lab = lab(ALL);
    let requests =
        b"GET /one?a=%20 HTTP/1.1\r\nHost: WWW.example.test:8080\r\nUser-Agent: made\r\nReferer: http://a/\r\n\r\n\
        POST /two HTTP/1.0\r\nHost: b.test\r\nContent-Length: 3\r\n\r\nabcHEAD /three HTTP/1.1\r\n\r\n";
    let responses = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello\
        HTTP/1.1 100 Continue\r\n\r\n\
        HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n\
        HTTP/1.1 204 Nothing\r\n\r\n";
    for step in (1..80).chain([1460]) {
        let said = talk(&mut lab, &[(true, requests), (false, responses)], step);
        let expected = [
            "0 GET www.example.test /one?a=%20 200 5",
            "1 POST b.test /two 404 7",
            "2 HEAD  /three 204 0",
        ];
        assert_eq!(expected.to_vec(), lines(&said), "every {step}");
        assert_eq!([0x0101, 0x0100, 0x0101], [0, 1, 2].map(|n| said[n].version));
        let more = [Part::Agent, Part::Referrer, Part::ContentType].map(|part| text(&said[0], part));
        assert_eq!(["made", "http://a/", "text/plain"], more.each_ref().map(String::as_str));
    }
}

#[test]
fn request_that_is_not_answered_is_told_when_its_flow_ends() {
    let mut lab = lab(ALL);
    let said = talk(&mut lab, &[(true, b"GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n")], 100);
    assert_eq!(vec!["0 GET a.test /x 0 0"], lines(&said));
    // A body without a length ends when its flow ends.
    let response = b"HTTP/1.1 200 OK\r\n\r\nmore and more";
    let said = talk(&mut lab, &[(true, b"GET /y HTTP/1.1\r\n\r\n"), (false, response)], 100);
    assert_eq!(vec!["0 GET  /y 200 13"], lines(&said));
}

#[test]
fn what_does_not_fit_is_cut_and_marked() {
    let mut lab = lab(ALL);
    let request = format!("GET /{} HTTP/1.1\r\nHost: a.test\r\n\r\n", "x".repeat(3000));
    let said = talk(&mut lab, &[(true, request.as_bytes())], 1460);
    assert_eq!((512, true), (said[0].text(Part::Url).len(), said[0].is_cut(Part::Url)));
    assert_eq!(
        ("a.test".into(), false),
        (text(&said[0], Part::Host), said[0].is_cut(Part::Host))
    );
}

#[test]
fn what_is_no_http_says_nothing() {
    let mut lab = lab(ALL);
    for bytes in [
        &b"SSH-2.0-OpenSSH\r\n"[..],
        b"GET",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"",
    ] {
        assert!(
            talk(&mut lab, &[(true, bytes)], 100).is_empty(),
            "{}",
            bytes.escape_ascii()
        );
    }
}

#[test]
fn transactions_that_find_no_place_are_counted_and_the_places_come_back() {
    let mut lab = lab(ALL);
    let request = b"GET / HTTP/1.1\r\n\r\n";
    // The pool has four entries.
    let said = talk(&mut lab, &[(true, &request.repeat(6))], 1460);
    assert_eq!((4, 2), (said.len(), lab.inspector.counters.unlogged));
    let said = talk(&mut lab, &[(true, &request.repeat(4))], 1460);
    assert_eq!((4, 2), (said.len(), lab.inspector.counters.unlogged));
}

#[test]
fn flows_of_which_nothing_is_wanted_say_nothing() {
    let mut lab = lab(LoggedProtocols::default());
    let request = b"GET / HTTP/1.1\r\n\r\n";
    assert!(talk(&mut lab, &[(true, request), (false, b"HTTP/1.1 204 No\r\n\r\n")], 100).is_empty());
    datagram(&mut lab, 53, &QUERY[2..]);
    assert!(lab.said.is_empty());
    assert_eq!(0, lab.inspector.counters.unlogged);
}

const QUERY: &[u8] = b"\x00\x1d\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03org\x00\x00\x01\x00\x01";

#[test]
fn names_are_told_as_sent_over_both_transports() {
    let mut lab = lab(ALL);
    datagram(&mut lab, 53, &QUERY[2..]);
    datagram(&mut lab, 54, &QUERY[2..]);
    datagram(&mut lab, 54, b"no message");
    let said = std::mem::take(&mut lab.said);
    assert_eq!(2, said.len());
    assert_eq!(
        (Service::Dns, Toward::Server, 29),
        (said[0].service, said[0].toward, said[0].length)
    );
    assert_eq!(&QUERY[2..], said[0].text(Part::Message));
    let long = [&[5, 2, 0x12, 0x34, 0x81, 0x80][..], &QUERY[6..], &[7; 1253]].concat();
    for step in (1..40).chain([1460]) {
        let said = talk(
            &mut lab,
            &[(true, &QUERY.repeat(2)), (false, &[QUERY, &long].concat())],
            step,
        );
        let expected = [
            (Toward::Server, 29),
            (Toward::Server, 29),
            (Toward::Client, 29),
            (Toward::Client, 1282),
        ];
        let lengths: Vec<_> = said.iter().map(|said| (said.toward, said.length)).collect();
        assert_eq!(expected.to_vec(), lengths, "every {step}");
        assert_eq!(&QUERY[2..], said[0].text(Part::Message));
        assert_eq!(
            (&long[2..1026], true),
            (said[3].text(Part::Message), said[3].is_cut(Part::Message))
        );
    }
    assert_eq!(0, lab.inspector.counters.unlogged);
}

#[test]
fn hellos_are_told_with_the_version_that_the_server_chose() {
    let mut lab = lab(ALL);
    let (client, server) = (client_hello(b"www.example.test"), server_hello());
    for step in (1..60).chain([1460]) {
        let said = talk(&mut lab, &[(true, &client), (false, &server)], step);
        assert_eq!(1, said.len(), "every {step}");
        assert_eq!((Service::Tls, 0x0304), (said[0].service, said[0].version));
        assert_eq!("www.example.test", text(&said[0], Part::ServerName));
        assert_eq!(32, said[0].text(Part::Ja3).len());
    }
    // The server does not reply.
    let said = talk(&mut lab, &[(true, &client)], 1460);
    assert_eq!((1, 0), (said.len(), said[0].version));
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes(), bytes].concat()
}

fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[22, 3, 1][..], &sized(&[&[kind, 0][..], &sized(body)].concat())].concat()
}

fn client_hello(name: &[u8]) -> Vec<u8> {
    let names = sized(&[&[0][..], &sized(name)].concat());
    let extensions = [&[0, 0][..], &sized(&names)].concat();
    let body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0], &sized(&extensions)].concat();
    record(1, &body)
}

fn server_hello() -> Vec<u8> {
    let extensions = [0, 43, 0, 2, 3, 4];
    record(
        2,
        &[&[3, 3][..], &[7; 32], &[0, 0x13, 1, 0], &sized(&extensions)].concat(),
    )
}

#[test]
fn stories_say_which_flow_and_by_what_rule_it_was_ended() {
    let rules = r#"
        alert tcp any any -> any any (msg:"a"; content:"odd"; sid:1;)
        drop tcp any any -> any any (msg:"d"; content:"evil"; sid:2;)"#;
    let mut lab = Lab::new(Suricata, rules);
    let mut connection = Connection::open(&mut lab, 80);
    let handle = connection.handle;
    let story = |connection: &mut Connection<'_>| connection.lab.inspector.summary(handle).unwrap();
    assert_eq!(
        (false, None),
        (story(&mut connection).alerted, story(&mut connection).ended_by)
    );
    connection.client(0, b"odd");
    assert_eq!(
        (true, None),
        (story(&mut connection).alerted, story(&mut connection).ended_by)
    );
    connection.client(3, b"evil");
    let rule = story(&mut connection).ended_by.expect("a rule");
    assert_eq!(
        2,
        connection.lab.rules.rule(rule.number).unwrap().signature.id.signature
    );
    assert_eq!(1_000_000_000, story(&mut connection).seen[1]);
    close(connection);
    assert!(lab.inspector.summary(handle).is_none());
}

#[test]
fn transactions_allocate_nothing() {
    let mut lab = lab(ALL);
    let mut connection = Connection::open(&mut lab, 80);
    let handle = connection.handle;
    connection.client(0, b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let inspector = &mut connection.lab.inspector;
    let mut told = 0;
    let allocations = measure(|| {
        inspector.log_unfinished(handle, &mut |_, _| told += 1);
        inspector.remove_flow(handle);
    });
    assert_eq!((1, 0), (told, allocations.count_total));
}

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// Encodes fields as literals without indexing.
fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let literal = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let field = |(name, value): &(&str, &str)| [&[0][..], &literal(name), &literal(value)].concat();
    fields.iter().flat_map(field).collect()
}

fn asks(stream: u32, path: &str) -> Vec<u8> {
    let block = fields(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "a.test"),
    ]);
    frame(1, 5, stream, &block)
}

fn answers(stream: u32, status: &str, body: &[u8]) -> Vec<u8> {
    let head = frame(
        1,
        4,
        stream,
        &fields(&[(":status", status), ("content-type", "text/plain")]),
    );
    [head, frame(0, 1, stream, body)].concat()
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

#[test]
fn requests_of_http_2_are_told_with_the_responses_of_their_streams() {
    let mut lab = lab(ALL);
    let requests = [
        PREFACE,
        &asks(1, "/one"),
        &asks(3, "/two"),
        &asks(5, "/never"),
        &asks(7, "/three"),
    ]
    .concat();
    let responses = [
        SETTINGS,
        &answers(7, "200", b"three"),
        &answers(1, "404", b""),
        &answers(3, "200", b"the second"),
    ]
    .concat();
    for step in (1..40).chain([1460]) {
        let said = talk(&mut lab, &[(true, &requests), (false, &responses)], step);
        let expected = [
            "3 GET a.test /three 200 5",
            "0 GET a.test /one 404 0",
            "1 GET a.test /two 200 10",
            "2 GET a.test /never 0 0",
        ];
        assert_eq!(expected.to_vec(), lines(&said), "every {step}");
        let of = said
            .iter()
            .map(|said| (said.stream, said.version, text(said, Part::ContentType)));
        let plain = |stream| (stream, 0x0200, "text/plain".to_string());
        let expected = vec![plain(7), plain(1), plain(3), (5, 0x0200, String::new())];
        assert_eq!(expected, of.collect::<Vec<_>>(), "every {step}");
    }
    assert_eq!(0, lab.inspector.counters.unlogged);
}

#[test]
fn answer_to_a_request_that_asked_for_http_2_is_told_by_itself() {
    let mut lab = lab(ALL);
    let first = b"GET /one HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    let switches = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    let answered = [&switches[..], SETTINGS, &answers(1, "200", b"one")].concat();
    let second = [PREFACE, &asks(3, "/two")].concat();
    let turns: [(bool, &[u8]); 4] = [
        (true, first),
        (false, &answered),
        (true, &second),
        (false, &answers(3, "204", b"")),
    ];
    for step in [1, 50, 1460] {
        let said = talk(&mut lab, &turns, step);
        let expected = ["0 GET a.test /one 101 0", "1    200 3", "2 GET a.test /two 204 0"];
        assert_eq!(expected.to_vec(), lines(&said), "every {step}");
    }
}

#[test]
fn requests_of_streams_that_are_never_answered_hold_few_places() {
    let plan = InspectorCapacity {
        flows: 16,
        streams: stream::StreamCapacity::of(16),
        protocols: ParserCapacity {
            transactions: 100,
            ..ParserCapacity::default()
        },
    };
    let mut lab = Lab::sized(lab::rules(Suricata, RULE), plan);
    lab.settings.logged = ALL;
    let requests: Vec<u8> = (0..200).flat_map(|number| asks(2 * number + 1, "/")).collect();
    let said = talk(&mut lab, &[(true, PREFACE), (true, &requests)], 1460);
    assert_eq!((200, 0), (said.len(), lab.inspector.counters.unlogged));
}

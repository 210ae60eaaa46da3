//! Tests HTTP/2. Messages fill the HTTP buffers for any segmentation and interleaving of the streams. Parsing stops if
//! its work budget is exceeded.

use std::collections::BTreeMap;

use crate::flows::play::{Message, Wire, play};
use crate::lab::{Connection, Lab};
use sluice_inspect::protocols::probe::PREFACE;
use sluice_inspect::protocols::{Anomaly, Http2, MessageEvent, ParserCapacity, ParserPools, Slot};
use sluice_inspect::signature::Buffer;
use sluice_inspect::signature::Toward::{self, Client, Server};
use sluice_inspect::signatures::Dialect::Suricata;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// Encodes fields as literals without indexing.
fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            match text.len() {
                0..127 => block.push(text.len() as u8),
                length => block.extend([127, ((length - 127) & 0x7f) as u8 | 0x80, ((length - 127) >> 7) as u8]),
            }
            block.extend(text.as_bytes());
        }
    }
    block
}

fn request(path: &str) -> Vec<(&'static str, String)> {
    vec![
        (":method", "GET".into()),
        (":scheme", "http".into()),
        (":path", path.into()),
        (":authority", "Example.org:8080".into()),
        ("user-agent", "agent/1".into()),
        ("cookie", "a=b".into()),
        ("x-one", "two".into()),
    ]
}

fn block(of: &[(&'static str, String)]) -> Vec<u8> {
    fields(
        &of.iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect::<Vec<_>>(),
    )
}

/// Reported results: complete buffers for each message (bodies joined), and counted anomalies.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    messages: Vec<BTreeMap<Buffer, String>>,
    anomalies: Vec<Anomaly>,
}

fn told(turns: &[(Toward, Vec<u8>)], step: usize) -> Told {
    let mut store = ParserPools::new(&ParserCapacity {
        messages: 16,
        names: 1,
        inflaters: 1,
        ..ParserCapacity::default()
    });
    let (mut http, mut told) = (Http2::default(), Told::default());
    for (toward, bytes) in turns {
        for part in bytes.chunks(step) {
            http.bytes(&mut store, *toward, part, &mut |slot: Slot<'_>, piece| match piece {
                MessageEvent::End => {
                    let buffers = [
                        Buffer::HttpMethod,
                        Buffer::HttpUri,
                        Buffer::HttpRawUri,
                        Buffer::HttpHost,
                        Buffer::HttpHeader,
                        Buffer::HttpCookie,
                        Buffer::HttpUserAgent,
                        Buffer::HttpStatusCode,
                        Buffer::FileData,
                    ];
                    told.messages.push(
                        buffers
                            .iter()
                            .map(|&buffer| (buffer, slot.buffer(buffer).bytes.escape_ascii().to_string()))
                            .filter(|(_, value)| !value.is_empty())
                            .collect(),
                    );
                }
                // A GET request whose stream stays open may still get a body, which is counted as an anomaly.
                MessageEvent::Anomaly(Anomaly::RequestBody) => {}
                MessageEvent::Anomaly(anomaly) => told.anomalies.push(anomaly),
                MessageEvent::Grew { .. } => {}
            });
        }
    }
    http.release(&mut store);
    assert_eq!((16, 1), (store.messages.available(), store.connections.available()));
    told
}

fn client(frames: &[Vec<u8>]) -> (Toward, Vec<u8>) {
    (Server, [PREFACE, &frame(4, 0, 0, b""), &frames.concat()].concat())
}

fn server(frames: &[Vec<u8>]) -> (Toward, Vec<u8>) {
    (
        Client,
        [frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]), frames.concat()].concat(),
    )
}

#[test]
fn messages_fill_the_buffers_of_http_however_they_are_cut() {
    let path = request("/a/../b?c=%20d");
    let whole = block(&path);
    let mut post = request("/form");
    post[0].1 = "POST".into();
    post.push(("content-length", "3".into()));
    let padded = [&[2][..], b"the body", &[0, 0]].concat();
    let priority = [&[0x80, 0, 0, 0, 16][..], &whole].concat();
    let turns = [
        client(&[
            // A header block with its continuation.
            frame(HEADERS, 1, 1, &whole[..20]),
            frame(CONTINUATION, 0, 1, b""),
            frame(CONTINUATION, 4, 1, &whole[20..]),
            frame(HEADERS, 4, 3, &block(&post)),
            frame(0, 8, 3, &padded),
            frame(6, 0, 0, &[0; 8]),
            frame(0, 1, 3, b" of it"),
            frame(HEADERS, 4 | 1 | 0x20, 5, &priority),
        ]),
        server(&[
            // The responses are interleaved, and their order differs from the order of the requests.
            frame(HEADERS, 4, 3, &fields(&[(":status", "404"), ("server", "x")])),
            frame(HEADERS, 4, 1, &fields(&[(":status", "103")])),
            frame(
                HEADERS,
                4,
                1,
                &fields(&[(":status", "200"), ("set-cookie", "s=1"), ("content-length", "1")]),
            ),
            frame(0, 0, 3, b"not "),
            frame(0, 0, 1, b"one "),
            frame(0, 1, 3, b"found"),
            frame(0, 0, 1, b"body"),
            frame(HEADERS, 5, 1, &fields(&[("trailer", "x")])),
        ]),
    ];
    let said = told(&turns, usize::MAX);
    let messages = &said.messages;
    let get = |place: usize, buffer| messages[place].get(&buffer).map(String::as_str).unwrap_or_default();
    assert_eq!(6, messages.len(), "{said:#?}");
    assert_eq!(
        ["GET", "/b?c= d", "/a/../b?c=%20d", "example.org", "agent/1", "a=b"],
        [
            Buffer::HttpMethod,
            Buffer::HttpUri,
            Buffer::HttpRawUri,
            Buffer::HttpHost,
            Buffer::HttpUserAgent,
            Buffer::HttpCookie
        ]
        .map(|buffer| get(0, buffer))
    );
    assert_eq!(
        "Host: Example.org:8080\\r\\nuser-agent: agent/1\\r\\nx-one: two\\r\\n\\r\\n",
        get(0, Buffer::HttpHeader)
    );
    assert_eq!(
        ["POST", "the body of it"],
        [get(1, Buffer::HttpMethod), get(1, Buffer::FileData)]
    );
    assert_eq!("GET", get(2, Buffer::HttpMethod));
    assert_eq!(["103", ""], [get(3, Buffer::HttpStatusCode), get(3, Buffer::FileData)]);
    assert_eq!(
        ["404", "not found"],
        [get(4, Buffer::HttpStatusCode), get(4, Buffer::FileData)]
    );
    assert_eq!(
        ["200", "one body", "s=1"],
        [Buffer::HttpStatusCode, Buffer::FileData, Buffer::HttpCookie].map(|buffer| get(5, buffer))
    );
    assert_eq!(Vec::<Anomaly>::new(), said.anomalies);
    for step in (1..60).chain([100, 1460]) {
        assert_eq!(said, told(&turns, step), "segments of {step}");
    }
}

#[test]
fn fields_can_not_forge_lines_of_http_1() {
    let forged = fields(&[
        (":method", "GET /x HTTP/1.1\r\nA"),
        (":path", "/a b\r\nHost: x"),
        (":authority", "h\r\nx: y"),
        ("a:b\r\nc", "d\r\n\r\nGET /smuggled HTTP/1.1"),
        ("transfer-encoding", "chunked"),
    ]);
    let said = told(&[client(&[frame(HEADERS, 5, 1, &forged)])], usize::MAX);
    assert_eq!(1, said.messages.len(), "{said:?}");
    assert_eq!("/a%20b%0d%0aHost:%20x", said.messages[0][&Buffer::HttpRawUri]);
    assert_eq!(
        "Host: h  x: y\\r\\na_b__c: d    GET /smuggled HTTP/1.1\\r\\n\\r\\n",
        said.messages[0][&Buffer::HttpHeader]
    );
    assert!(said.anomalies.contains(&Anomaly::BadField));
}

#[test]
fn what_costs_too_much_is_given_up_and_counted() {
    let whole = block(&request("/"));
    let flood = |count: usize| {
        let mut frames = vec![frame(HEADERS, 0, 1, &whole)];
        frames.extend((0..count).map(|_| frame(CONTINUATION, 0, 1, &fields(&[("x", &"y".repeat(100))]))));
        frames.push(frame(CONTINUATION, 4, 1, b""));
        frames
    };
    assert_eq!(Vec::<Anomaly>::new(), told(&[client(&flood(50))], 1460).anomalies);
    assert_eq!(vec![Anomaly::HeaderFlood], told(&[client(&flood(100))], 1460).anomalies);
    // An entry of 3,500 bytes, to which the block refers repeatedly.
    let value = "v".repeat(3_500);
    let mut entry = fields(&[("x", &value)]);
    entry[0] = 0x40;
    let bomb = |names: usize| {
        vec![
            frame(HEADERS, 5, 1, &[&whole[..], &entry].concat()),
            frame(HEADERS, 5, 3, &[&whole[..], &vec![0xbe; names]].concat()),
        ]
    };
    assert_eq!(vec![Anomaly::TooLong], told(&[client(&bomb(8))], 1460).anomalies[..1]);
    let said = told(&[client(&bomb(4_000))], 1460);
    assert!(said.anomalies.contains(&Anomaly::HeaderFlood), "{:?}", said.anomalies);
    for (frames, anomaly) in [
        (
            vec![frame(HEADERS, 4, 1, b"\xff\xff\xff\xff\xff\xff")],
            Anomaly::BadHeaderBlock,
        ),
        (vec![frame(HEADERS, 4, 1, b"\xbe")], Anomaly::BadHeaderBlock),
        (
            vec![frame(HEADERS, 0, 1, &whole), frame(0, 0, 1, b"x")],
            Anomaly::BadFrame,
        ),
        (
            vec![frame(HEADERS, 0, 1, &whole), frame(CONTINUATION, 4, 3, b"")],
            Anomaly::BadFrame,
        ),
        (vec![frame(CONTINUATION, 4, 1, &whole)], Anomaly::BadFrame),
        (vec![frame(0, 8, 1, &[9, 1])], Anomaly::BadFrame),
        (vec![frame(HEADERS, 5, 1, b"\x3f\xe1\xff\x03")], Anomaly::LargeTable),
    ] {
        assert_eq!(vec![anomaly], told(&[client(&frames)], usize::MAX).anomalies);
    }
    // More streams than the parser tracks.
    let many: Vec<_> = (0..34)
        .map(|stream| frame(HEADERS, 4, 2 * stream + 1, &whole))
        .collect();
    let said = told(&[client(&many)], 1460);
    assert_eq!(
        2,
        said.anomalies
            .iter()
            .filter(|anomaly| **anomaly == Anomaly::ManyStreams)
            .count()
    );
}

#[test]
fn any_bytes_are_parsed_alike_however_they_are_cut() {
    let whole = block(&request("/a"));
    let turns = [
        client(&[
            frame(HEADERS, 4, 1, &whole),
            frame(0, 8, 1, &[1, b'x', 0]),
            frame(
                HEADERS,
                5,
                3,
                b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
            ),
            frame(HEADERS, 5, 5, b"\x82\x86\x84\xbe"),
        ]),
        server(&[frame(HEADERS, 4, 1, b"\x88"), frame(0, 1, 1, b"body")]),
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..3_000 {
        let mut changed = turns.clone();
        for (_, bytes) in &mut changed {
            for _ in 0..2 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let at = state as usize % bytes.len();
                bytes[at] = (state >> 32) as u8;
            }
        }
        assert_eq!(
            told(&changed, usize::MAX),
            told(&changed, 1 + (state >> 40) as usize % 30)
        );
    }
}

#[test]
fn rules_about_http_fire_at_http_2() {
    let rules = r#"alert http any any -> any any (msg:"m"; http.uri; content:"/evil"; sid:1;)
        alert http2 any any -> any any (msg:"m"; flow:to_client; http.stat_code; content:"404"; sid:2;)
        alert http any any -> any any (msg:"m"; flow:to_client; file.data; content:"the body"; sid:3;)
        alert http1 any any -> any any (msg:"m"; http.uri; content:"/evil"; sid:4;)
        alert http any any -> any any (msg:"m"; http.user_agent; content:"agent/2"; sid:5;)"#;
    for step in [1, 13, 2000] {
        let mut lab = Lab::new(Suricata, rules);
        let turns = [
            client(&[frame(HEADERS, 5, 1, &block(&request("/evil")))]),
            server(&[
                frame(HEADERS, 4, 1, &fields(&[(":status", "404")])),
                frame(0, 0, 1, b"here is the"),
                frame(0, 1, 1, b" body"),
            ]),
        ];
        let messages: Vec<Message> = turns
            .iter()
            .flat_map(|(toward, bytes)| {
                bytes.chunks(step).map(|part| Message {
                    toward: *toward,
                    bytes: part.to_vec(),
                })
            })
            .collect();
        play(&mut lab, &Wire::default(), &messages);
        lab.fired.sort_unstable();
        assert_eq!(vec![1, 2, 3], lab.fired, "segments of {step}");
    }
}

#[test]
fn connection_that_is_upgraded_from_http_1_is_followed_in_whatever_order_its_sides_go_on() {
    let rule = r#"alert http any any -> any any (msg:"m"; flow:to_client; http.stat_code; content:"200"; file.data; content:"evil"; sid:1;)
alert http any any -> any any (msg:"m"; flow:to_server; http.uri; content:"/second"; sid:2;)"#;
    let asks = b"GET /first HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n";
    let switches = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    let (_, settings) = server(&[]);
    let answer = [
        frame(
            HEADERS,
            4,
            1,
            &fields(&[(":status", "200"), ("server", &"s".repeat(80))]),
        ),
        frame(0, 1, 1, b"all that is evil"),
    ]
    .concat();
    let (_, second) = client(&[frame(HEADERS, 5, 3, &block(&request("/second")))]);
    // The server may send immediately or wait for the client's preface. The packets of client and server may be split
    // anywhere.
    for at_once in [true, false] {
        for step in [1, 9, 30, 100, 1_460] {
            let mut lab = Lab::new(Suricata, rule);
            let mut connection = Connection::open(&mut lab, 80);
            connection.client(0, asks);
            let said = [&switches[..], &settings, &answer].concat();
            let first = if at_once { said.len() } else { switches.len() };
            let mut at = 0;
            let mut send = |connection: &mut Connection<'_>, bytes: &[u8]| {
                for part in bytes.chunks(step) {
                    connection.server(at, part);
                    at += part.len();
                }
            };
            send(&mut connection, &said[..first]);
            connection.client(asks.len(), &second);
            send(&mut connection, &said[first..]);
            lab.fired.sort_unstable();
            assert_eq!(vec![1, 2], lab.fired, "at once: {at_once}, segments of {step}");
        }
    }
}

#[test]
fn contents_far_apart_must_lie_in_one_stream() {
    let rule = r#"alert http any any -> any any (msg:"m"; flow:to_client; file.data; content:"one"; content:"two"; within:60000; sid:1;)"#;
    let asks = [1, 3].map(|stream| frame(HEADERS, 5, stream, &block(&request("/"))));
    let (_, client) = client(&asks);
    let answers = [1, 3].map(|stream| frame(HEADERS, 4, stream, &fields(&[(":status", "200")])));
    let (_, start) = server(&answers);
    let data = |stream: u32, bytes: &[u8]| frame(0, 0, stream, bytes);
    let dots = [b'.'; 6_000];
    let mut lab = Lab::new(Suricata, rule);
    let mut connection = Connection::open(&mut lab, 80);
    connection.client(0, &client);
    let mut at = 0;
    let mut say = |connection: &mut Connection<'_>, bytes: &[u8]| {
        for part in bytes.chunks(1_400) {
            connection.server(at, part);
            at += part.len();
        }
    };
    say(&mut connection, &start);
    say(&mut connection, &data(1, &[&b"one"[..], &dots].concat()));
    say(&mut connection, &data(3, &[&dots[..], &dots, b"two"].concat()));
    assert_eq!(Vec::<u32>::new(), connection.lab.fired, "in two streams");
    say(&mut connection, &data(1, &[&dots[..], b"two"].concat()));
    assert_eq!(vec![1], connection.lab.fired, "in one, with another between");
}

#[test]
fn bodies_are_decoded_as_in_http_1() {
    use std::io::Write;
    let rule = r#"alert http any any -> any any (msg:"m"; flow:to_client; file.data; content:"all that is evil"; sid:1;)
alert http any any -> any any (msg:"m"; flow:to_server; http.request_body; content:"all that is evil"; sid:2;)"#;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&b"all that is evil ".repeat(40)).unwrap();
    let encoded = encoder.finish().unwrap();
    let mut post = request("/form");
    post[0].1 = "POST".into();
    post.push(("content-encoding", "gzip".into()));
    let (_, asks) = client(&[frame(HEADERS, 4, 1, &block(&post)), frame(0, 1, 1, &encoded)]);
    let head = fields(&[(":status", "200"), ("content-encoding", "gzip")]);
    let (_, answer) = server(&[frame(HEADERS, 4, 1, &head), frame(0, 1, 1, &encoded)]);
    for step in [1, 50, 1_460] {
        let mut lab = Lab::new(Suricata, rule);
        let mut connection = Connection::open(&mut lab, 80);
        for (number, part) in asks.chunks(step).enumerate() {
            connection.client(number * step, part);
        }
        for (number, part) in answer.chunks(step).enumerate() {
            connection.server(number * step, part);
        }
        lab.fired.sort_unstable();
        assert_eq!(vec![1, 2], lab.fired, "segments of {step}");
    }
}

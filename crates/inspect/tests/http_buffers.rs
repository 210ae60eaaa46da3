//! Contents of the buffers of HTTP messages.

use std::io::Write;

use crate::gathered::{Message, converse, small, whole};
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use sluice_inspect::protocols::Anomaly;
use sluice_inspect::signature::Buffer::*;
use sluice_inspect::signature::Toward::{Client, Server};

fn request(bytes: &[u8]) -> Message {
    let outcome = whole(&[(Server, bytes)]);
    outcome.requests.into_iter().next().expect("a request")
}

fn response_to(request: &[u8], bytes: &[u8]) -> Message {
    let outcome = whole(&[(Server, request), (Client, bytes)]);
    outcome.responses.into_iter().next().expect("a response")
}

#[test]
fn request_fills_its_buffers() {
    let message = request(
        b"\r\nPOST /a/../b%2e%70hp?q=%41+b HTTP/1.1\r\nHost: WWW.Example.org:8080\r\nUser-Agent:  probe/1  \r\n\
          Cookie: a=1\r\nX-Folded: one\r\n  two\r\ncookie: b=2\r\nContent-Length: 5\r\n\r\nhello",
    );
    let expected = [
        (HttpMethod, "POST"),
        (HttpRawUri, "/a/../b%2e%70hp?q=%41+b"),
        (HttpUri, "/b.php?q=A+b"),
        (HttpRawHost, "WWW.Example.org:8080"),
        (HttpHost, "www.example.org"),
        (HttpUserAgent, "probe/1"),
        (HttpCookie, "a=1, b=2"),
        (
            HttpHeader,
            r"Host: WWW.Example.org:8080\r\nUser-Agent: probe/1\r\nX-Folded: one two\r\nContent-Length: 5\r\n\r\n",
        ),
        (
            HttpRawHeader,
            "Host: WWW.Example.org:8080\\r\\nUser-Agent:  probe/1  \\r\\nCookie: a=1\\r\\nX-Folded: one\\r\\n  two\\r\\n\
             cookie: b=2\\r\\nContent-Length: 5\\r\\n\\r\\n",
        ),
        (HttpClientBody, "hello"),
        (FileData, "hello"),
    ];
    for (buffer, text) in expected {
        assert_eq!(text, message.text(buffer), "{buffer:?}");
        assert!(message.complete.contains(&buffer), "{buffer:?}");
    }
    assert_eq!([Anomaly::FoldedHeader], message.anomalies.as_slice());
}

#[test]
fn response_fills_its_buffers() {
    let message = response_to(
        b"GET / HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 404 Not  Found \r\nSet-Cookie: a=1\r\nServer: x\r\nTransfer-Encoding: chunked\r\n\r\n\
          3;name=value\r\nabc\r\n0A \r\n0123456789\r\n0\r\nTrailer: yes\r\n\r\n",
    );
    let expected = [
        (HttpStatusCode, "404"),
        (HttpStatusMessage, "Not  Found"),
        (HttpCookie, "a=1"),
        (HttpHeader, r"Server: x\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (FileData, "abc0123456789"),
        (HttpClientBody, ""),
    ];
    for (buffer, text) in expected {
        assert_eq!(text, message.text(buffer), "{buffer:?}");
    }
    assert!(message.ended && message.anomalies.is_empty(), "{:?}", message.anomalies);
}

#[test]
fn target_is_normalised_as_rules_expect() {
    let cases = [
        ("/a%2fb//c/./d/../e", "/a/b/c/e"),
        ("/%2e%2e/%2E./etc/passwd", "/etc/passwd"),
        (r"/a\..\b", "/b"),
        ("/a?b=/../%2e&c=\\\\//", r"/a?b=/../.&c=\\\\//"),
        ("/%u0041%uff0e%u2215", "/A.?"),
        ("/%4g%zz%", "/%4g%zz%"),
        ("/%2541", "/%41"),
        ("http://Host.example:80/p?q", "/p?q"),
        ("http://host.example", "/"),
        ("http://host.example?q", "/?q"),
        ("httpx", "httpx"),
        ("http:/x", "http:/x"),
        ("*", "*"),
        ("/a b  c", "/a b  c"),
        ("/a HTTP/x", "/a HTTP/x"),
        ("/a HTTP/1.1", "/a HTTP/1.1"),
        ("/a HTTP/1.1 \t b", r"/a HTTP/1.1 \t b"),
        ("/%00x", r"/\x00x"),
    ];
    for (target, expected) in cases {
        let message = request(format!("GET {target} HTTP/1.1\r\n\r\n").as_bytes());
        assert_eq!(expected, message.text(HttpUri), "{target}");
    }
    let message = request(b"GET http://Host.example:80/p HTTP/1.1\r\nHost: other\r\n\r\n");
    assert_eq!("host.example", message.text(HttpHost));
    assert_eq!("Host.example:80", message.text(HttpRawHost));
}

#[test]
fn request_without_version_is_one_line_and_its_response_a_body() {
    let outcome = whole(&[(Server, b"GET /old\r\n"), (Client, b"<html>")]);
    assert_eq!("/old", outcome.requests[0].text(HttpUri));
    assert_eq!([Anomaly::NoVersion], outcome.requests[0].anomalies.as_slice());
    assert_eq!("<html>", outcome.responses[0].text(FileData));
    assert!(outcome.responses[0].anomalies.is_empty());
}

#[test]
fn request_with_an_odd_version_is_read_as_any() {
    for version in ["HTTP/1.1x", "HTTP/", "http/1.01  ", "HTTP/0.7.1"] {
        let message = request(format!("GET /a {version}\r\nHost: h\r\n\r\n").as_bytes());
        assert_eq!(
            ("/a", "h"),
            (&*message.text(HttpUri), &*message.text(HttpHost)),
            "{version}"
        );
        assert_eq!([Anomaly::BadVersion], message.anomalies.as_slice(), "{version}");
    }
}

#[test]
fn pipelined_requests_find_their_responses() {
    let outcome = whole(&[
        (
            Server,
            b"HEAD /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\n\nGET /4 HTTP/1.1\r\n\r\n",
        ),
        (
            Client,
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
        ),
        (
            Client,
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        ),
        (Client, b"HTTP/1.0 200 OK\r\n\r\nto the end\r\n\r\nHTTP/1.1"),
    ]);
    let uris: Vec<_> = outcome.requests.iter().map(|message| message.text(HttpUri)).collect();
    assert_eq!(["/1", "/2", "/3", "/4"], uris.as_slice());
    let bodies: Vec<_> = outcome.responses.iter().map(|message| message.text(FileData)).collect();
    assert_eq!(["", "", "", "hi", r"to the end\r\n\r\nHTTP/1.1"], bodies.as_slice());
    assert!(outcome.responses.iter().all(|message| message.anomalies.is_empty()));
}

#[test]
fn tunnel_is_opaque_where_it_is_accepted_before_anything_came_behind_it() {
    let connect = b"CONNECT example.org:443 HTTP/1.1\r\n\r\n";
    let outcome = whole(&[
        (Server, connect),
        (Client, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n\x16\x03"),
        (Server, b"\x16\x03\x01"),
    ]);
    assert_eq!((true, true), outcome.opaque);
    assert_eq!("example.org", outcome.requests[0].text(HttpHost));
    assert_eq!(connect.len(), outcome.parsed.0);
    let upgrade = b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\n\x81\x00";
    let outcome = whole(&[
        (Server, b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n"),
        (Client, upgrade),
    ]);
    assert_eq!((true, true), outcome.opaque);
    assert_eq!(upgrade.len() - 2, outcome.parsed.1);
}

#[test]
fn requests_behind_connect_are_parsed_whatever_is_answered_and_when() {
    const CONNECT: &str = "CONNECT example.org:80 HTTP/1.1\r\n\r\n";
    const NEXT: &str = "GET /behind HTTP/1.1\r\n\r\n";
    const REFUSED: &str = "HTTP/1.1 405 No\r\nContent-Length: 2\r\n\r\nno";
    const ACCEPTED: &str = "HTTP/1.1 200 OK\r\n\r\n";
    const PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage";
    let both = [CONNECT, NEXT].concat();
    let cases: [&[(_, &str)]; 6] = [
        &[(Server, &both)],
        &[(Server, CONNECT), (Server, NEXT)],
        &[(Server, &both), (Client, REFUSED), (Client, PAGE)],
        &[(Server, CONNECT), (Client, REFUSED), (Server, NEXT), (Client, PAGE)],
        &[(Server, CONNECT), (Server, NEXT), (Client, ACCEPTED), (Client, PAGE)],
        &[
            (Server, CONNECT),
            (Server, &NEXT[..3]),
            (Client, ACCEPTED),
            (Server, &NEXT[3..]),
            (Client, PAGE),
        ],
    ];
    for parts in cases {
        let bytes: Vec<_> = parts.iter().map(|(toward, text)| (*toward, text.as_bytes())).collect();
        let outcome = whole(&bytes);
        let uris: Vec<_> = outcome.requests.iter().map(|message| message.text(HttpUri)).collect();
        assert_eq!(["/behind"], uris[1..], "{parts:?}");
        if let [_, page] = &outcome.responses[..] {
            assert_eq!("page", page.text(FileData), "{parts:?}");
        }
        assert_eq!(
            parts.iter().filter(|(toward, _)| *toward == Client).count(),
            outcome.responses.len()
        );
        assert_eq!((false, false), outcome.opaque, "{parts:?}");
    }
}

#[test]
fn change_of_protocol_that_was_not_asked_for_begins_a_body() {
    let outcome = whole(&[
        (Server, b"GET / HTTP/1.1\r\n\r\n"),
        (Client, b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n\r\nevil"),
    ]);
    assert_eq!("evil", outcome.responses[0].text(FileData));
    assert_eq!([Anomaly::UnaskedUpgrade], outcome.responses[0].anomalies.as_slice());
}

#[test]
fn smuggling_is_told() {
    use Anomaly::*;
    let cases: [(&str, &[Anomaly]); 12] = [
        ("Content-Length: 5\r\nContent-Length: 6", &[ConflictingContentLength]),
        ("Content-Length: 5\r\nContent-Length: 5", &[RepeatedContentLength]),
        ("Content-Length: 5, 6", &[ConflictingContentLength]),
        ("Content-Length: +5", &[BadContentLength]),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", &[LengthAndChunked]),
        ("Transfer-Encoding: xchunked", &[OddTransferEncoding]),
        ("Transfer-Encoding: chunked, identity", &[OddTransferEncoding]),
        (
            "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
            &[OddTransferEncoding],
        ),
        ("Transfer-Encoding : chunked", &[SpaceBeforeColon]),
        ("Transfer-Encoding:\r\n chunked", &[FoldedHeader]),
        (" Transfer-Encoding: chunked", &[SpaceBeforeHeader]),
        ("X: a\rTransfer-Encoding: chunked", &[BareCarriageReturn]),
    ];
    for (lines, expected) in cases {
        let message = request(format!("POST / HTTP/1.1\r\n{lines}\r\n\r\n0\r\n\r\n").as_bytes());
        assert_eq!(expected, message.anomalies.as_slice(), "{lines:?}");
    }
    let outcome = whole(&[(
        Server,
        b"POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n5c\r\nGPOST",
    )]);
    assert_eq!("GPOST", outcome.requests[0].text(FileData), "the chunks are followed");
}

#[test]
fn chunk_without_size_makes_the_rest_a_body() {
    for chunks in [
        "xyz\r\nabc",
        "\r\nabc",
        "1\r\nab",
        "ffffffffffffffffff\r\nabc",
        "-1\r\nabc",
    ] {
        let message = request(format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}").as_bytes());
        assert!(
            message.anomalies.contains(&Anomaly::BadChunk),
            "{chunks:?} {:?}",
            message.anomalies
        );
        assert!(
            message.text(HttpClientBody).ends_with('b') || message.text(HttpClientBody).ends_with("abc"),
            "{chunks:?}"
        );
    }
}

#[test]
fn what_is_not_http_is_not_parsed() {
    for bytes in [
        &b"SSH-2.0-x\r\n"[..],
        b"\x00\x01",
        b"PRI * HTTP/2.0\r\n\r\nSM",
        b" GET / HTTP/1.1\r\n",
        b"GET\r\n\r\n",
    ] {
        let outcome = whole(&[(Server, bytes)]);
        assert_eq!(
            (true, 1),
            (outcome.opaque.0, outcome.requests.len()),
            "{}",
            bytes.escape_ascii()
        );
        assert!(outcome.requests[0].anomalies.contains(&Anomaly::NotHttp));
    }
    let outcome = whole(&[(Client, b"HTTQ/1.1 200")]);
    assert_eq!("HTTQ/1.1 200", outcome.responses[0].text(FileData));
    assert_eq!([Anomaly::ResponseNotHttp], outcome.responses[0].anomalies.as_slice());
}

#[test]
fn what_does_not_fit_is_truncated_and_the_message_goes_on() {
    let long = "x".repeat(1000);
    let text = format!(
        "GET /{long} HTTP/1.1\r\nHost: {long}\r\nCookie: {long}\r\nContent-Length: 300\r\n\r\n{}",
        &long[..300]
    );
    let outcome = converse(
        &small(),
        &[(Server, text.as_bytes()), (Server, b"GET / HTTP/1.1\r\n\r\n")],
        |_| Vec::new(),
    );
    let first = &outcome.requests[0];
    for (buffer, bytes) in [
        (HttpUri, 64),
        (HttpRawUri, 64),
        (HttpHeader, 256),
        (HttpRawHost, 32),
        (HttpCookie, 32),
    ] {
        assert_eq!(
            (bytes, true),
            (first.buffers[&buffer].len(), first.truncated.contains(&buffer)),
            "{buffer:?}"
        );
    }
    assert_eq!(
        (300, false),
        (first.buffers[&FileData].len(), first.truncated.contains(&FileData))
    );
    assert_eq!([Anomaly::TooLong, Anomaly::RequestBody], first.anomalies.as_slice());
    assert_eq!("/", outcome.requests[1].text(HttpUri));
}

#[test]
fn message_without_a_free_slot_is_followed() {
    let capacity = sluice_inspect::protocols::ParserCapacity { messages: 0, ..small() };
    let outcome = converse(
        &capacity,
        &[(
            Server,
            b"POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nxGET / HTTP/1.1\r\n\r\n",
        )],
        |_| vec![],
    );
    assert_eq!(2, outcome.requests.len());
    assert!(
        outcome
            .requests
            .iter()
            .all(|message| message.anomalies == [Anomaly::NoSlot])
    );
}

fn encoded(format: &str, content: &[u8]) -> Vec<u8> {
    let level = Compression::default();
    let all = |mut writer: Box<dyn Write + '_>| writer.write_all(content).unwrap();
    let mut out = Vec::new();
    match format {
        "gzip" => all(Box::new(GzEncoder::new(&mut out, level))),
        "zlib" => all(Box::new(ZlibEncoder::new(&mut out, level))),
        "br" => all(Box::new(brotli::CompressorWriter::new(&mut out, 4096, 5, 22))),
        _ => all(Box::new(DeflateEncoder::new(&mut out, level))),
    }
    out
}

fn encoded_response(encoding: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

#[test]
fn encoded_bodies_are_decoded_however_they_are_cut() {
    let content: Vec<u8> = (0..20000u32)
        .flat_map(|n| format!("{} ", n * n % 977).into_bytes())
        .collect();
    for (encoding, format) in [
        ("gzip", "gzip"),
        ("deflate", "zlib"),
        ("deflate", "deflate"),
        ("br", "br"),
    ] {
        let bytes = encoded_response(encoding, &encoded(format, &content));
        for step in [1, 7, 100, 1460, usize::MAX] {
            let cuts = |length| (1..length).step_by(step.min(length)).collect();
            let outcome = converse(&small(), &[(Client, &bytes)], cuts);
            assert!(
                content == outcome.responses[0].buffers[&FileData],
                "{format} every {step}"
            );
            assert!(
                outcome.responses[0].anomalies.is_empty(),
                "{format} {:?}",
                outcome.responses[0].anomalies
            );
        }
    }
    let behind = [encoded("br", b"content"), b"rest".to_vec()].concat();
    assert_eq!(
        "contentrest",
        whole(&[(Client, &encoded_response("br", &behind))]).responses[0].text(FileData)
    );
    let two = [encoded("gzip", b"one"), encoded("gzip", b"two"), b"rest".to_vec()].concat();
    assert_eq!(
        "onetworest",
        whole(&[(Client, &encoded_response("gzip", &two))]).responses[0].text(FileData)
    );
}

#[test]
fn bodies_that_are_not_decoded_are_searched_as_sent() {
    for (encoding, body, anomaly) in [
        ("zstd", "zstandard", Some(Anomaly::UnknownEncoding)),
        ("br, zstd", "zstandard", Some(Anomaly::UnknownEncoding)),
        ("gzip", "plain", Some(Anomaly::BadEncoding)),
        ("identity", "plain", None),
    ] {
        let outcome = whole(&[(Client, &encoded_response(encoding, body.as_bytes()))]);
        assert_eq!(body, outcome.responses[0].text(FileData));
        assert_eq!(anomaly.as_slice(), outcome.responses[0].anomalies.as_slice());
    }
    let capacity = sluice_inspect::protocols::ParserCapacity {
        inflaters: 0,
        ..small()
    };
    for encoding in ["gzip", "br"] {
        let body = encoded(encoding, b"content");
        let outcome = converse(&capacity, &[(Client, &encoded_response(encoding, &body))], |_| {
            Vec::new()
        });
        assert_eq!(body, outcome.responses[0].buffers[&FileData]);
        assert_eq!([Anomaly::NoInflater], outcome.responses[0].anomalies.as_slice());
    }
}

#[test]
fn brotli_that_is_none_is_searched_as_sent_behind_what_may_have_been_read_ahead() {
    let body = [&[0xff; 256][..], b"as sent"].concat();
    let outcome = whole(&[(Client, &encoded_response("br", &body))]);
    assert_eq!("as sent", outcome.responses[0].text(FileData));
    assert_eq!([Anomaly::BadEncoding], outcome.responses[0].anomalies.as_slice());
}

#[test]
fn bomb_is_left_as_sent_where_it_exceeds_the_limit_however_it_is_cut() {
    for (encoding, size) in [("gzip", 8 << 20), ("br", 100 << 20)] {
        let bytes = encoded_response(encoding, &encoded(encoding, &vec![0; size]));
        let uncut = converse(&small(), &[(Client, &bytes)], |_| Vec::new());
        assert_eq!([Anomaly::BodyBomb], uncut.responses[0].anomalies.as_slice());
        let length = uncut.responses[0].buffers[&FileData].len();
        assert!((64 << 10..512 << 10).contains(&length), "{length}");
        for step in [1, 255, 1000] {
            let cut = converse(&small(), &[(Client, &bytes)], |length| {
                (1..length).step_by(step).collect()
            });
            assert!(uncut == cut, "{encoding} every {step}");
        }
    }
}

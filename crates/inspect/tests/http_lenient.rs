//! Tests the buffers and the anomalies of malformed messages, which are interpreted as clients and servers interpret
//! them.

use std::io::Write;

use crate::gathered::{Gathered, Message, converse, small, whole};
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use sluice_inspect::protocols::{Anomaly, Anomaly::*, Http, ParserCapacity, ParserPools, Slot};
use sluice_inspect::signature::Buffer::*;
use sluice_inspect::signature::Toward::{Client, Server};

const TEXT: &[u8] = b"what a client reads";

fn all<W: Write>(mut writer: W, content: &[u8]) -> W {
    writer.write_all(content).unwrap();
    writer
}

fn br(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    brotli::CompressorWriter::new(&mut out, 4096, 9, 22)
        .write_all(content)
        .unwrap();
    out
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let writer = GzEncoder::new(Vec::new(), Compression::default());
    all(writer, content).finish().unwrap()
}

fn zlib(content: &[u8]) -> Vec<u8> {
    let writer = ZlibEncoder::new(Vec::new(), Compression::default());
    all(writer, content).finish().unwrap()
}

fn bare(content: &[u8]) -> Vec<u8> {
    let writer = DeflateEncoder::new(Vec::new(), Compression::default());
    all(writer, content).finish().unwrap()
}

/// The parsed response to a GET. The response is parsed as a whole, and split at every byte.
fn answer(bytes: &[u8]) -> Message {
    let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let capacity = ParserCapacity {
        messages: 4,
        names: 4,
        inflaters: 8,
        ..ParserCapacity::default()
    };
    let parts = [(Server, &request[..]), (Client, bytes)];
    let outcome = converse(&capacity, &parts, |_| Vec::new());
    assert_eq!(
        outcome,
        converse(&capacity, &parts, |length| (1..length).collect()),
        "{}",
        bytes.escape_ascii()
    );
    outcome.responses.into_iter().next().expect("a response")
}

/// Header fields, the body as sent, the body that a client reads, and the anomalies.
type Encoded<'e> = (&'e str, Vec<u8>, &'e [u8], &'e [Anomaly]);

#[test]
fn encodings_are_undone_as_clients_do() {
    let (once, twice) = (gzip(TEXT), gzip(&gzip(TEXT)));
    let mut six = TEXT.to_vec();
    (0..6).for_each(|_| six = gzip(&six));
    let five = {
        let mut five = TEXT.to_vec();
        (0..5).for_each(|_| five = gzip(&five));
        five
    };
    let garbage = [&once[..], b"garbage"].concat();
    let read_with_garbage = [TEXT, b"garbage"].concat();
    let members = [gzip(&TEXT[..5]), gzip(&TEXT[5..])].concat();
    let cases: [Encoded<'_>; 38] = [
        ("Content-Encoding: gzip", once.clone(), TEXT, &[]),
        ("Content-Encoding: GZip", once.clone(), TEXT, &[]),
        ("Content-Encoding: x-gzip", once.clone(), TEXT, &[]),
        ("Content-Encoding:\t gzip \t", once.clone(), TEXT, &[]),
        ("Content-Encoding: , gzip,", once.clone(), TEXT, &[]),
        ("Content-Encoding: identity, gzip", once.clone(), TEXT, &[]),
        (
            "Content-Encoding: gzip\r\nContent-Encoding: identity",
            once.clone(),
            TEXT,
            &[],
        ),
        ("Content-Encoding:\r\n gzip", once.clone(), TEXT, &[FoldedHeader]),
        ("Content-Encoding : gzip", once.clone(), TEXT, &[SpaceBeforeColon]),
        ("Content-Encoding: deflate", zlib(TEXT), TEXT, &[]),
        ("Content-Encoding: deflate", bare(TEXT), TEXT, &[]),
        ("Content-Encoding: gzip, gzip", twice.clone(), TEXT, &[SeveralEncodings]),
        (
            "Content-Encoding: gzip\r\nContent-Encoding: gzip",
            twice.clone(),
            TEXT,
            &[SeveralEncodings],
        ),
        (
            "Content-Encoding: deflate, gzip",
            gzip(&zlib(TEXT)),
            TEXT,
            &[SeveralEncodings],
        ),
        (
            "Content-Encoding: deflate, gzip",
            gzip(&bare(TEXT)),
            TEXT,
            &[SeveralEncodings],
        ),
        (
            "Content-Encoding: gzip, deflate",
            zlib(&gzip(TEXT)),
            TEXT,
            &[SeveralEncodings],
        ),
        (
            "Content-Encoding: gzip, gzip, gzip,gzip,gzip",
            five,
            TEXT,
            &[SeveralEncodings],
        ),
        (
            "Content-Encoding: gzip,gzip,gzip,gzip,gzip,gzip",
            six.clone(),
            &six,
            &[TooManyEncodings],
        ),
        // The body is encoded once, but the header names two encodings.
        (
            "Content-Encoding: gzip, gzip",
            once.clone(),
            TEXT,
            &[SeveralEncodings, BadEncoding],
        ),
        ("Content-Encoding: zstd, gzip", once.clone(), TEXT, &[UnknownEncoding]),
        ("Content-Encoding: gzip, zstd", once.clone(), &once, &[UnknownEncoding]),
        ("Content-Encoding: br", br(TEXT), TEXT, &[]),
        ("Content-Encoding: BR", br(TEXT), TEXT, &[]),
        ("Content-Encoding: br, gzip", gzip(&br(TEXT)), TEXT, &[SeveralEncodings]),
        ("Content-Encoding: gzip, br", br(&once), TEXT, &[SeveralEncodings]),
        (
            "Content-Encoding: br, br, br, br, br",
            {
                let mut five = TEXT.to_vec();
                (0..5).for_each(|_| five = br(&five));
                five
            },
            TEXT,
            &[SeveralEncodings],
        ),
        (
            "Content-Encoding: br",
            br(TEXT)[..5].to_vec(),
            b"",
            &[TruncatedEncoding],
        ),
        ("Content-Encoding: br", b"".to_vec(), b"", &[]),
        ("Content-Encoding: gzip", garbage, &read_with_garbage, &[]),
        ("Content-Encoding: gzip", members, TEXT, &[]),
        ("Content-Encoding: gzip", zlib(TEXT), TEXT, &[MislabelledEncoding]),
        ("Content-Encoding: deflate", once.clone(), TEXT, &[MislabelledEncoding]),
        ("Content-Encoding: gzip", TEXT.to_vec(), TEXT, &[BadEncoding]),
        ("Content-Encoding: gzip", once[..once.len() - 8].to_vec(), TEXT, &[]),
        ("Content-Encoding: gzip", once[..once.len() - 3].to_vec(), TEXT, &[]),
        ("Content-Encoding: gzip", once[..5].to_vec(), b"", &[TruncatedEncoding]),
        (
            "Transfer-Encoding: gzip",
            once.clone(),
            TEXT,
            &[OddTransferEncoding, EncodedTransfer],
        ),
        (
            "Content-Encoding: deflate\r\nTransfer-Encoding: gzip",
            gzip(&zlib(TEXT)),
            TEXT,
            &[OddTransferEncoding, SeveralEncodings, EncodedTransfer],
        ),
    ];
    for (field, body, read, anomalies) in cases {
        let message = answer(&[format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n").as_bytes(), &body].concat());
        assert_eq!(read.escape_ascii().to_string(), message.text(FileData), "{field:?}");
        let mut anomalies = anomalies.to_vec();
        anomalies.sort();
        assert_eq!(anomalies, message.anomalies, "{field:?}");
    }
}

#[test]
fn compressed_transfer_in_chunks_is_undone() {
    let body = gzip(TEXT);
    let head = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n{:x}\r\n",
        body.len()
    );
    let message = answer(&[head.as_bytes(), &body, b"\r\n0\r\n\r\n"].concat());
    assert_eq!(TEXT.escape_ascii().to_string(), message.text(FileData));
    assert_eq!([OddTransferEncoding, EncodedTransfer], message.anomalies.as_slice());
}

#[test]
fn encoding_that_is_cut_within_its_data_is_told() {
    let long: Vec<u8> = (0..2000u32)
        .flat_map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes())
        .collect();
    let body = gzip(&long);
    let part = &body[..body.len() / 2];
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        part.len()
    );
    let message = answer(&[head.as_bytes(), part].concat());
    assert_eq!([TruncatedEncoding], message.anomalies.as_slice());
    assert!(long.starts_with(&message.buffers[&FileData]) && message.buffers[&FileData].len() > 3000);
}

#[test]
fn chunks_are_read_as_clients_do() {
    let cases: [(&str, &str, &[Anomaly]); 17] = [
        ("5\r\nhello\r\n0\r\n\r\n", "hello", &[]),
        ("0005\r\nhello\r\n000\r\n\r\n", "hello", &[]),
        (
            "5;name=\"value\"\r\nhello\r\n0;last\r\nTrailer: x\r\n\r\n",
            "hello",
            &[],
        ),
        ("5 \t\r\nhello\r\n0\r\n\r\n", "hello", &[]),
        ("A\r\n0123456789\r\n0\r\n\r\n", "0123456789", &[]),
        ("5\nhello\n0\n\n", "hello", &[BareLineFeed]),
        (" 5\r\nhello\r\n0\r\n\r\n", "hello", &[OddChunkSize]),
        ("+5\r\nhello\r\n0\r\n\r\n", "hello", &[OddChunkSize]),
        ("0x5\r\nhello\r\n0\r\n\r\n", "hello", &[OddChunkSize]),
        ("0_5\r\nhello\r\n0\r\n\r\n", "hello", &[OddChunkSize]),
        ("5zz\r\nhello\r\n0\r\n\r\n", "hello", &[OddChunkSize]),
        ("5\r\nhello\r\n-1\r\nmore", "hello-1\\r\\nmore", &[BadChunk]),
        (
            "5\r\nhello5\r\nworld\r\n0\r\n\r\n",
            "hello5\\r\\nworld\\r\\n0\\r\\n\\r\\n",
            &[BadChunk],
        ),
        ("plain", "plain", &[BadChunk]),
        // The last chunk, or the data after it, is missing.
        ("5\r\nhello\r\n", "hello", &[CutShort]),
        ("5\r\nhello\r\n0\r\n", "hello", &[CutShort]),
        ("9\r\nhello", "hello", &[CutShort]),
    ];
    for (chunks, read, anomalies) in cases {
        let message = answer(format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}").as_bytes());
        assert_eq!(read, message.text(FileData), "{chunks:?}");
        assert_eq!(anomalies, message.anomalies.as_slice(), "{chunks:?}");
    }
    let old = answer(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
    assert_eq!(
        ("hello".to_owned(), vec![OldChunked]),
        (old.text(FileData), old.anomalies)
    );
}

#[test]
fn heads_that_are_broken_are_read_as_clients_do() {
    let cases: [(&str, &str, &[Anomaly]); 16] = [
        ("HTTP/1.1 200 OK\nContent-Length: 4\n\npage", "page", &[BareLineFeed]),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 4\n\r\npage",
            "page",
            &[BareLineFeed],
        ),
        ("HTTP/1.1 200\r\nContent-Length: 4\r\n\r\npage", "page", &[]),
        ("http/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage", "page", &[]),
        (
            "HTTP/1.1 200 OK\r\nContent-Length : 4\r\n\r\npage",
            "page",
            &[SpaceBeforeColon],
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length:\r\n 4\r\n\r\npage",
            "page",
            &[FoldedHeader],
        ),
        (
            "HTTP/1.1 200 OK\r\nno colon\r\nContent-Length: 4\r\n\r\npage",
            "page",
            &[HeaderWithoutColon],
        ),
        (
            "HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 4\r\n\r\npage",
            "page",
            &[Nul],
        ),
        ("\r\n\r\nHTTP/1.1 200 OK\r\n\r\npage", "page", &[]),
        (
            "abcdHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage",
            "page",
            &[JunkBeforeStatus],
        ),
        (
            "HHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage",
            "page",
            &[JunkBeforeStatus],
        ),
        (
            "abcdeHTTP/1.1 200 OK\r\n\r\n",
            "abcdeHTTP/1.1 200 OK\\r\\n\\r\\n",
            &[ResponseNotHttp],
        ),
        ("ab", "ab", &[ResponseNotHttp]),
        ("<html>", "<html>", &[ResponseNotHttp]),
        ("HTTP/1.1 2x0 OK\r\n\r\npage", "page", &[BadStatus]),
        ("HTTP/1.1 200 OK\r\nContent-Length: 4", "", &[CutShort]),
    ];
    for (bytes, read, anomalies) in cases {
        let message = answer(bytes.as_bytes());
        assert_eq!(read, message.text(FileData), "{bytes:?}");
        assert_eq!(anomalies, message.anomalies.as_slice(), "{bytes:?}");
    }
}

#[test]
fn lengths_are_read_as_clients_do() {
    let cases: [(&str, &str, &[Anomaly]); 8] = [
        (
            "Content-Length: 4\r\nContent-Length: 4",
            "page",
            &[RepeatedContentLength],
        ),
        ("Content-Length: 4, 4", "page", &[RepeatedContentLength]),
        (
            "Content-Length: 4\r\nContent-Length: 6",
            "page",
            &[ConflictingContentLength],
        ),
        ("Content-Length: 4;", "page", &[BadContentLength]),
        ("Content-Length: four", "page and more", &[BadContentLength]),
        ("Content-Length: -4", "page and more", &[BadContentLength]),
        ("Content-Length:", "page and more", &[BadContentLength]),
        ("X: y", "page and more", &[]),
    ];
    for (field, read, anomalies) in cases {
        let message = answer(format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\npage and more").as_bytes());
        assert_eq!(read, message.text(FileData), "{field:?}");
        assert_eq!(anomalies, message.anomalies.as_slice(), "{field:?}");
    }
    let both = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npage\r\n0\r\n\r\n";
    let message = answer(both.as_bytes());
    assert_eq!(
        ("page".to_owned(), vec![LengthAndChunked]),
        (message.text(FileData), message.anomalies)
    );
}

#[test]
fn bodies_where_none_belong_are_searched_all_the_same() {
    let cases: [(&str, &str, &[&str], &[Anomaly]); 7] = [
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", &[""], &[]),
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage",
            &["", "page"],
            &[],
        ),
        (
            "GET",
            "HTTP/1.1 204 No\r\nContent-Length: 4\r\n\r\npage",
            &["", "page"],
            &[UnexpectedBody],
        ),
        (
            "GET",
            "HTTP/1.1 204 No\r\nTransfer-Encoding: chunked\r\n\r\npage",
            &["", "page"],
            &[UnexpectedBody],
        ),
        (
            "GET",
            "HTTP/1.1 304 Old\r\nContent-Length: 4\r\n\r\npage",
            &["", "page"],
            &[],
        ),
        (
            "GET",
            "HTTP/1.1 103 Hints\r\nContent-Length: 4\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage",
            &["", "page"],
            &[UnexpectedBody],
        ),
        (
            "GET",
            "HTTP/1.1 100 \r\n\r\nHTTP/1.1 100 \r\n\r\nHTTP/1.1 200 OK\r\n\r\npage",
            &["", "", "page"],
            &[],
        ),
    ];
    for (method, bytes, read, anomalies) in cases {
        let request = format!("{method} / HTTP/1.1\r\n\r\n");
        let outcome = whole(&[(Server, request.as_bytes()), (Client, bytes.as_bytes())]);
        let bodies: Vec<_> = outcome.responses.iter().map(|message| message.text(FileData)).collect();
        assert_eq!(read, bodies.as_slice(), "{method} {bytes:?}");
        assert_eq!(
            anomalies,
            outcome.responses[0].anomalies.as_slice(),
            "{method} {bytes:?}"
        );
    }
    let body = "GET / HTTP/1.1\r\nContent-Length: 4\r\n\r\nbodyGET /next HTTP/1.1\r\n\r\n";
    let outcome = whole(&[(Server, body.as_bytes())]);
    assert_eq!(("body".to_owned(), vec![RequestBody]), {
        let first = &outcome.requests[0];
        (first.text(HttpClientBody), first.anomalies.clone())
    });
    assert_eq!("/next", outcome.requests[1].text(HttpUri));
}

#[test]
fn targets_that_servers_read_in_two_ways_are_told() {
    let cases: [(&str, &str, &[Anomaly]); 8] = [
        ("/%2541", "/%41", &[DoubleEscape]),
        ("/%25%34%31", "/%41", &[DoubleEscape]),
        ("/a?b=%252e", "/a?b=%2e", &[DoubleEscape]),
        ("/100%25", "/100%", &[]),
        ("/100%25/41", "/100%/41", &[]),
        ("/%u0041", "/A", &[WideEscape]),
        ("/%zz", "/%zz", &[BadEscape]),
        ("/a b", "/a b", &[SpaceInUri]),
    ];
    for (target, read, anomalies) in cases {
        let outcome = whole(&[(Server, format!("GET {target} HTTP/1.1\r\n\r\n").as_bytes())]);
        assert_eq!(read, outcome.requests[0].text(HttpUri), "{target}");
        assert_eq!(anomalies, outcome.requests[0].anomalies.as_slice(), "{target}");
    }
}

#[test]
fn layers_without_as_many_decoders_are_left_as_sent() {
    let body = gzip(&gzip(TEXT));
    let bytes = [&b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\n\r\n"[..], &body].concat();
    let outcome = converse(
        &ParserCapacity {
            inflaters: 1,
            ..small()
        },
        &[(Client, &bytes)],
        |_| Vec::new(),
    );
    assert_eq!(body, outcome.responses[0].buffers[&FileData]);
    assert_eq!(
        [SeveralEncodings, NoInflater],
        outcome.responses[0].anomalies.as_slice()
    );
}

#[test]
fn repetition_of_what_was_not_made_is_no_encoding_and_shows_nothing_of_other_flows() {
    let capacity = ParserCapacity {
        messages: 1,
        inflaters: 1,
        ..ParserCapacity::default()
    };
    let mut store = ParserPools::new(&capacity);
    let head = b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\n\r\n";
    let mut read = |body: &[u8]| {
        let (mut http, mut gathered) = (Http::default(), Gathered::default());
        let bytes = [&head[..], body].concat();
        http.response(&mut store, &bytes, &mut |slot: Slot<'_>, piece| {
            gathered.hear(slot, piece)
        });
        http.close_response(&mut store, &mut |slot: Slot<'_>, piece| gathered.hear(slot, piece));
        http.release(&mut store);
        gathered.messages.remove(0)
    };
    let secret: Vec<u8> = b"secret ".iter().cycle().take(32768).copied().collect();
    assert_eq!(Vec::<Anomaly>::new(), read(&bare(&secret)).anomalies);
    // A block with fixed codes contains `a`, a copy of three bytes at distance 32,768, and the end of the block.
    let bits = "1 10 10010001 0000001 11101 1111111111111 0000000";
    let mut body = vec![0u8; 6];
    for (at, bit) in bits.bytes().filter(|byte| *byte != b' ').enumerate() {
        body[at / 8] |= (bit - b'0') << (at % 8);
    }
    let message = read(&body);
    assert_eq!(
        ("a".to_owned(), vec![BadEncoding]),
        (message.text(FileData), message.anomalies)
    );
}

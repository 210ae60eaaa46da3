//! Tests that bodies are decoded completely for all chunks, encodings and segmentations of the stream.

use std::io::Write;

use crate::gathered::{Message, converse, small};
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use proptest::prelude::*;
use sluice_inspect::protocols::{Anomaly, ParserCapacity};
use sluice_inspect::signature::Buffer::FileData;
use sluice_inspect::signature::Toward::Client;

fn encoded(format: usize, level: u32, content: &[u8]) -> Vec<u8> {
    fn all<W: Write>(mut writer: W, content: &[u8]) -> W {
        writer.write_all(content).unwrap();
        writer
    }
    let deflate = Compression::new(level);
    match format {
        0 => all(GzEncoder::new(Vec::new(), deflate), content).finish().unwrap(),
        1 => all(ZlibEncoder::new(Vec::new(), deflate), content).finish().unwrap(),
        3 => {
            let mut out = Vec::new();
            all(
                brotli::CompressorWriter::new(&mut out, 4096, level, 10 + level),
                content,
            );
            out
        }
        _ => all(DeflateEncoder::new(Vec::new(), deflate), content).finish().unwrap(),
    }
}

fn chunked(mut body: &[u8], sizes: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sizes = sizes.iter().cycle();
    while !body.is_empty() {
        let (chunk, rest) = body.split_at(body.len().min(*sizes.next().unwrap()));
        out.extend(format!("{:X} ;a=\"b\"\r\n", chunk.len()).bytes());
        out.extend(chunk);
        out.extend(b"\r\n");
        body = rest;
    }
    out.extend(b"000\r\nA: b\r\n\r\n");
    out
}

fn response(
    encoding: &str,
    body: &[u8],
    sizes: &[usize],
    capacity: &ParserCapacity,
    cuts: &[prop::sample::Index],
) -> Message {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nTransfer-Encoding: Chunked\r\n\r\n");
    let bytes = [head.as_bytes(), &chunked(body, sizes)].concat();
    let cut = |length| cuts.iter().map(|cut| cut.index(length + 1)).collect();
    let mut outcome = converse(capacity, &[(Client, &bytes)], cut);
    assert_eq!(1, outcome.responses.len());
    outcome.responses.remove(0)
}

/// Content that exercises encoders.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just(b"the same again ".to_vec()),
        prop::collection::vec(any::<u8>(), 0..50),
        (any::<u8>(), 0..3000usize).prop_map(|(byte, count)| vec![byte; count]),
    ];
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

fn cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..60)
}

const ENCODINGS: [&str; 4] = ["gzip", "deflate", "deflate", "br"];

proptest! {
    #[test]
    fn content_comes_out_of_chunks_and_encodings(
        content in content(), format in 0..5usize, level in 0..10u32,
        sizes in prop::collection::vec(1..400usize, 1..5), cuts in cuts(),
    ) {
        let capacity = ParserCapacity { decoded_bytes: u64::MAX, decoded_ratio: u32::MAX, ..small() };
        let (encoding, body) = match ENCODINGS.get(format) {
            Some(encoding) => (*encoding, encoded(format, level, &content)),
            None => ("identity", content.clone()),
        };
        let message = response(encoding, &body, &sizes, &capacity, &cuts);
        prop_assert_eq!(&message.anomalies, &Vec::<Anomaly>::new());
        prop_assert!(message.ended);
        prop_assert!(content == message.buffers[&FileData]);
    }

    #[test]
    fn damaged_and_limited_content_is_the_same_however_it_is_cut(
        content in content(), format in 0..4usize, level in 0..10u32,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        sizes in prop::collection::vec(1..400usize, 1..5), cuts in cuts(), ratio in 1..20u32, limit in 0..100_000u64,
    ) {
        let mut body = encoded(format, level, &content);
        for (at, byte) in damage {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let capacity = ParserCapacity { decoded_bytes: limit, decoded_ratio: ratio, ..small() };
        let whole = response(ENCODINGS[format], &body, &sizes, &capacity, &[]);
        prop_assert_eq!(&whole, &response(ENCODINGS[format], &body, &[1], &capacity, &[]), "chunks of a byte");
        prop_assert_eq!(&whole, &response(ENCODINGS[format], &body, &sizes, &capacity, &cuts), "cut");
        prop_assert!(whole.buffers[&FileData].len() as u64 <= limit + 256 * 1032 + body.len() as u64);
    }
}

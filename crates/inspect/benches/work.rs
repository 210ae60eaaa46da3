//! Measures the cost of a unit of work, in nanoseconds of decoding per charged unit, for bodies that are expensive to
//! decode.
//!
//! `cargo bench -p sluice-inspect --bench work`

use std::io::Write;
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use sluice_inspect::protocols::{Http, MessageEvent, ParserCapacity, ParserPools, Slot};
use sluice_inspect::work_budget::{PACKET_BUDGET, WorkTokens};

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}

fn brotli(content: &[u8], quality: i32) -> Vec<u8> {
    let parameters = brotli::enc::BrotliEncoderParams {
        quality,
        ..Default::default()
    };
    let mut out = Vec::new();
    brotli::BrotliCompress(&mut &*content, &mut out, &parameters).expect("memory takes all");
    out
}

/// Packs bits into bytes, the first bit into the lowest bit of its byte.
fn packed(bits: &[bool]) -> Vec<u8> {
    let bytes = bits.chunks(8);
    bytes
        .map(|bits| bits.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit)))
        .collect()
}

/// A Brotli stream of 16 MiB with commands that consume no input bits. Each command outputs five literals and a copy of
/// two bytes.
fn commands() -> Vec<u8> {
    let mut bits: Vec<bool> = Vec::new();
    let mut put = |value: u32, length: u32| bits.extend((0..length).map(|bit| value >> bit & 1 == 1));
    put(0b1111, 4);
    put(0, 1);
    put(2, 2);
    put(0xff_ffff, 24);
    put(0, 1);
    put(0, 3 + 6 + 2 + 2);
    for (symbol, length) in [(u32::from(b'x'), 8), (5 << 3, 10), (0, 6)] {
        put(1, 4);
        put(symbol, length);
    }
    [packed(&bits), vec![0; 16 * 1460]].concat()
}

/// Brotli meta-blocks of 1.2 KB, with 256 prefix codes of each category and a single literal.
fn codes() -> Vec<u8> {
    let mut bits: Vec<bool> = Vec::new();
    let mut put = |value: u32, length: u32| bits.extend((0..length).map(|bit| value >> bit & 1 == 1));
    put(0b1111, 4);
    for _ in 0..16 {
        put(0, 3);
        put(0, 16);
        put(0, 1);
        for _ in 0..3 {
            put(1 | 7 << 1 | 127 << 4, 11);
            put(1, 4 + 9);
            put(1 | 25 << 4, 4 + 5);
            put(0, 24);
        }
        put(0, 6);
        (0..256).for_each(|_| put(0, 2));
        for _ in 0..2 {
            put(1 | 7 << 1 | 127 << 4, 11);
            put(0, 1);
            put(1 | 255 << 4, 4 + 8);
            put(1, 1);
        }
        (0..256).for_each(|_| put(1, 4 + 8));
        (0..256).for_each(|_| put(1 | 8 << 4, 4 + 10));
        (0..256).for_each(|_| put(1, 4 + 6));
    }
    packed(&bits)
}

/// Deflate blocks of 14 bytes, with their own tables and without content.
fn empty_blocks(count: usize) -> Vec<u8> {
    let mut bits: Vec<bool> = Vec::new();
    let mut put = |value: u32, length: u32| bits.extend((0..length).map(|bit| value >> bit & 1 == 1));
    for _ in 0..count {
        put(0, 1);
        put(2, 2);
        put(29, 5); // HLIT: 286 codes of literals and lengths.
        put(0, 5); // HDIST: one code of distances.
        put(14, 4); // HCLEN: 18 lengths of the code of code lengths.
        // The 18 lengths are written in the order of their symbols: 16 17 18 0 8 7 9 6 10 5 11 4 12 3 13 2 14 1. Only
        // symbols 18 and 1 have a code, of one bit each.
        for place in 0..18 {
            put(u32::from(place == 2 || place == 17), 3);
        }
        // Symbol 1 has code `0`, and symbol 18 has code `1`. 255 symbols have length 0, so that symbol 255 and the end
        // of block have codes of one bit.
        put(1, 1);
        put(127, 7); // 138 zeros,
        put(1, 1);
        put(117 - 11, 7); // 117 zeros,
        put(0, 1); // 255,
        put(0, 1); // the end of the block,
        put(1, 1);
        put(29 - 11, 7); // 29 zeros,
        put(0, 1); // and a distance.
        put(1, 1); // The end.
    }
    packed(&bits)
}

fn main() {
    let text: Vec<u8> = (0..400_000u32)
        .flat_map(|n| format!("{} ", n.wrapping_mul(2_654_435_761) % 9973).into_bytes())
        .collect();
    let random: Vec<u8> = (0..60_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let header = gzip(b"")[..10].to_vec();
    let kinds = [
        ("gzip", "zeros", gzip(&vec![0; 8 << 20])),
        ("gzip", "text", gzip(&text)),
        ("gzip", "random", gzip(&random)),
        ("gzip", "empty blocks", [header, empty_blocks(4000)].concat()),
        ("gzip", "members", gzip(b"").repeat(2000)),
        ("br", "zeros", brotli(&vec![0; 8 << 20], 11)),
        ("br", "text", brotli(&text, 5)),
        ("br", "dense text", brotli(&text, 11)),
        ("br", "random", brotli(&random, 5)),
        ("br", "commands", commands()),
        ("br", "codes", codes()),
    ];
    println!(
        "{:>8} {:>14} {:>10} {:>10} {:>10} {:>8}",
        "encoding", "body", "ns/packet", "units", "made", "ns/unit"
    );
    for (encoding, name, body) in kinds {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let (mut best, mut units, mut made) = (f64::MAX, 0, 0);
        for _ in 0..9 {
            let mut store = ParserPools::new(&ParserCapacity {
                messages: 4,
                ..ParserCapacity::default()
            });
            let work = store.work.clone();
            let mut http = Http::default();
            let (mut packets, mut all) = (0, 0);
            (units, made) = (0, 0);
            http.response(&mut store, head.as_bytes(), &mut |_: Slot<'_>, _| {});
            let began = Instant::now();
            for packet in body.chunks(1460).take(16) {
                work.start(WorkTokens::default(), packet.len());
                http.response(&mut store, packet, &mut |slot: Slot<'_>, piece| {
                    if let MessageEvent::Grew { fresh, .. } = piece {
                        made += fresh.len();
                        all += slot.length();
                    }
                });
                units += u64::from(PACKET_BUDGET - work.remaining());
                packets += 1;
            }
            let took = began.elapsed().as_nanos() as f64;
            std::hint::black_box(all);
            best = best.min(took / f64::from(packets));
            units /= u64::from(packets as u32);
            made /= packets as usize;
            http.release(&mut store);
        }
        println!(
            "{encoding:>8} {name:>14} {best:>10.0} {units:>10} {made:>10} {:>8.2}",
            best / units as f64
        );
    }
}

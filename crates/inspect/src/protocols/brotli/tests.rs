use brotli::enc::BrotliEncoderParams;
use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use proptest::prelude::*;

use super::*;

/// Number of pages of a test's decoder.
const TEST_PAGES: u32 = 64;

fn encoded(content: &[u8], quality: i32, window: i32) -> Vec<u8> {
    let parameters = BrotliEncoderParams {
        quality,
        lgwin: window,
        ..BrotliEncoderParams::default()
    };
    let mut out = Vec::new();
    brotli::BrotliCompress(&mut &*content, &mut out, &parameters).unwrap();
    out
}

/// How decoding ended, the output, and the number of unread input bytes.
type Outcome = (Stop, Vec<u8>, usize);

/// Decodes segments of `piece` bytes into buffers of `capacity` bytes. Checks that no decoding step exceeds its work limit.
fn decoded(bytes: &[u8], piece: usize, capacity: usize) -> Outcome {
    let (mut pages, mut brotli) = (Pages::new(TEST_PAGES), Box::new(Brotli::new()));
    brotli.reset(&mut pages);
    let outcome = through(&mut brotli, &mut pages, bytes, piece, capacity);
    brotli.reset(&mut pages);
    assert_eq!(TEST_PAGES as usize, pages.places.available(), "all pages came back");
    outcome
}

fn through(brotli: &mut Brotli, pages: &mut Pages, bytes: &[u8], piece: usize, capacity: usize) -> Outcome {
    let (mut all, mut out, mut remaining) = (Vec::new(), vec![0; capacity], bytes.len());
    for piece in bytes.chunks(piece) {
        let mut used = 0;
        loop {
            let step = brotli.step(pages, &piece[used..], &mut out);
            used += step.taken;
            remaining -= step.taken;
            all.extend_from_slice(&out[..step.made]);
            // A step may exceed its limit by the work for one prefix code.
            assert!(step.work < STEP + 2048, "{step:?}");
            match step.stop {
                Stop::Step => assert!(step.made == capacity || step.work >= STEP),
                Stop::Input => break,
                stop => return (stop, all, remaining),
            }
        }
        assert_eq!(piece.len(), used, "a piece is taken");
    }
    (Stop::Input, all, remaining)
}

/// Output of the reference decoder.
fn expected(bytes: &[u8]) -> Outcome {
    let alloc = StandardAlloc::default;
    let mut state = BrotliState::new_strict(alloc(), alloc(), alloc());
    let (mut remaining, mut at, mut all, mut out) = (bytes.len(), 0, Vec::new(), vec![0; 1 << 16]);
    loop {
        let (mut capacity, mut made, mut total) = (out.len(), 0, 0);
        let result = BrotliDecompressStream(
            &mut remaining,
            &mut at,
            bytes,
            &mut capacity,
            &mut made,
            &mut out,
            &mut total,
            &mut state,
        );
        all.extend_from_slice(&out[..made]);
        let stop = match result {
            BrotliResult::NeedsMoreOutput => continue,
            // The stream is invalid, because a command produces more bytes than the declared length of the meta-block.
            // The reference decoder reports the error only when it reads the excess bytes.
            BrotliResult::NeedsMoreInput if state.meta_block_remaining_len < 0 => Stop::Broken,
            BrotliResult::NeedsMoreInput => Stop::Input,
            BrotliResult::ResultSuccess => Stop::Done,
            BrotliResult::ResultFailure => Stop::Broken,
        };
        return (stop, all, remaining);
    }
}

fn agrees(bytes: &[u8], piece: usize, capacity: usize) -> Result<(), TestCaseError> {
    let (stop, made, remaining) = decoded(bytes, piece, capacity);
    let (expected, content, behind) = expected(bytes);
    prop_assert_eq!(expected, stop);
    match stop {
        Stop::Done => {
            prop_assert!(content == made);
            prop_assert_eq!(behind, remaining);
        }
        // For an invalid stream the lengths of the outputs may differ, because the reference decoder outputs up to a
        // whole window at a time.
        _ => prop_assert!(content.starts_with(&made) || made.starts_with(&content)),
    }
    Ok(())
}

/// Content that exercises an encoder: words of the dictionary, near and far repetitions, noise, and runs.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just(b" International, government; <div class=\"the\"> Because of which ".to_vec()),
        Just("\u{43d}\u{430} \u{e9}t\u{e9} ".as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..300),
        prop::collection::vec(b'a'..b'e', 0..300),
        (any::<u8>(), 0..9000usize).prop_map(|(byte, count)| vec![byte; count]),
    ];
    prop::collection::vec((word, 1..5usize), 0..40)
        .prop_map(|words| words.iter().flat_map(|(word, count)| word.repeat(*count)).collect())
}

proptest! {
    #[test]
    fn content_comes_back_however_it_is_cut(
        content in content(), quality in 0..12, window in 10..25, piece in 1..600usize, capacity in 1..5000usize,
    ) {
        let bytes = encoded(&content, quality, window);
        let (stop, made, remaining) = decoded(&bytes, piece, capacity);
        prop_assert_eq!((Stop::Done, 0), (stop, remaining));
        prop_assert!(content == made);
    }

    #[test]
    fn damaged_streams_are_read_as_another_decoder_reads_them_and_alike_however_they_are_cut(
        content in content(), quality in 0..12, window in 10..25, piece in 1..600usize, capacity in 1..5000usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encoded(&content, quality, window);
        for (at, byte) in damage {
            let at = at.index(bytes.len().min(400));
            bytes[at] ^= byte;
        }
        bytes.extend(b"behind it");
        bytes.truncate(end.index(2 * bytes.len()));
        agrees(&bytes, piece, capacity)?;
        let [(stop, whole, _), (cut, pieces, _)] = [decoded(&bytes, usize::MAX, 4096), decoded(&bytes, piece, capacity)];
        prop_assert_eq!(stop, cut);
        prop_assert!(whole == pieces);
    }

    #[test]
    fn any_bytes_are_read_as_another_decoder_reads_them(
        bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1..300usize, capacity in 1..5000usize,
    ) {
        agrees(&bytes, piece, capacity)?;
    }
}

/// Writes bits into bytes, the first bit into the lowest bit of a byte.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    count: usize,
}

impl Bits {
    fn put(mut self, value: u32, bits: u32) -> Self {
        for bit in 0..bits {
            if self.count.is_multiple_of(8) {
                self.bytes.push(0);
            }
            self.bytes[self.count / 8] |= ((value >> bit & 1) as u8) << (self.count % 8);
            self.count += 1;
        }
        self
    }

    /// A code with a single symbol, which takes no bits.
    fn only(self, symbol: u32, bits: u32) -> Self {
        self.put(1, 2).put(0, 2).put(symbol, bits)
    }

    /// A window of 16 MiB.
    fn largest_window() -> Self {
        Self::default().put(0b1111, 4)
    }

    /// The start of a meta-block of 16 MiB that is not the last meta-block.
    fn longest(self) -> Self {
        self.put(0, 1).put(2, 2).put(0xff_ffff, 24).put(0, 1)
    }

    /// One block type and one tree for each category. `direct` is the number of direct distance codes, from symbol 16
    /// on.
    fn plain(self, direct: u32) -> Self {
        self.put(0, 3).put(direct << 2, 6).put(0, 2).put(0, 2)
    }
}

fn started(pages: u32) -> (Pages, Box<Brotli>) {
    let (mut pages, mut brotli) = (Pages::new(pages), Box::new(Brotli::new()));
    brotli.reset(&mut pages);
    (pages, brotli)
}

#[test]
fn few_bits_that_stand_for_16_mib_make_no_more_at_a_time_than_there_is_room_for() {
    let start = || Bits::largest_window().longest();
    let cases = [
        // Each command outputs five literals and a copy of two bytes.
        start().plain(0).only(u32::from(b'x'), 8).only(5 << 3, 10).only(0, 6),
        // Each command outputs a literal and a copy of the two preceding bytes.
        start()
            .plain(1)
            .only(u32::from(b'x'), 8)
            .only(128 + (1 << 3), 10)
            .only(16, 7),
        // One copy command produces all of the content.
        start()
            .plain(1)
            .only(u32::from(b'x'), 8)
            .only(384 + (1 << 3) + 7, 10)
            .only(16, 7)
            .put(0xff_0000, 24),
    ];
    for bits in cases {
        let bytes = bits.put(0, 7).bytes;
        assert!(bytes.len() < 20, "{bytes:?}");
        let (mut pages, mut brotli) = started(TEST_PAGES);
        let (mut out, mut made, mut used) = ([0; 4096], 0, 0);
        for _ in 0..100 {
            let step = brotli.step(&mut pages, &bytes[used..], &mut out);
            assert_eq!(Stop::Step, step.stop);
            assert!(out[..step.made].iter().all(|&byte| byte == b'x'));
            assert!(step.work < STEP + 2048, "{step:?}");
            (made, used) = (made + step.made, used + step.taken);
        }
        assert!(made > 100_000, "{made}");
    }
}

/// A meta-block with 256 block types and 256 trees of each category.
fn max_codes(content: &[u8]) -> Vec<u8> {
    let count = |bits: Bits| bits.put(1, 1).put(7, 3).put(127, 7);
    let mut bits = Bits::largest_window()
        .put(1, 1)
        .put(0, 1)
        .put(0, 2)
        .put(content.len() as u32 - 1, 16);
    for _ in 0..3 {
        // A block type and a count, both with codes that take no bits. The count selects blocks of maximum length.
        bits = count(bits).only(0, 9).only(25, 5).put(0, 24);
    }
    bits = bits.put(0, 6);
    for _ in 0..256 {
        bits = bits.put(0, 2);
    }
    for _ in 0..2 {
        // Each entry selects the least recently used tree.
        bits = count(bits).put(0, 1).only(255, 8).put(1, 1);
    }
    for _ in 0..256 {
        bits = bits.put(1, 2).put(1, 2).put(u32::from(b'a'), 8).put(u32::from(b'b'), 8);
    }
    for _ in 0..256 {
        bits = bits.only((4 << 3) + 128, 10);
    }
    for _ in 0..256 {
        bits = bits.only(0, 6);
    }
    for &byte in content {
        bits = bits.put(u32::from(byte == b'b'), 1);
    }
    bits.bytes
}

#[test]
fn codes_and_context_maps_are_paid_for_as_they_are_made() {
    let bytes = max_codes(b"abba");
    assert!(bytes.len() < 2000, "{}", bytes.len());
    let (mut pages, mut brotli) = started(TEST_PAGES);
    let (mut out, mut used, mut work) = ([0; 4096], 0, 0);
    let stop = loop {
        let step = brotli.step(&mut pages, &bytes[used..], &mut out);
        assert!(step.work < STEP + 2048, "{step:?}");
        (used, work) = (used + step.taken, work + step.work);
        if step.stop != Stop::Step {
            break step.stop;
        }
    };
    assert_eq!(Stop::Done, stop);
    // The work includes 768 tables, and the entries of context maps with their move-to-front transform.
    assert!(work > 768 * 128 + 9 * (256 << 6), "{work}");
    assert_eq!((Stop::Done, b"abba".to_vec(), 0), decoded(&bytes, 1, 1));
    agrees(&bytes, 1, 1).unwrap();
}

#[test]
fn window_of_more_than_16_mib_is_none() {
    let bits = |size| Bits::default().put(1, 1).put(0, 3).put(size, 3).put(0b11, 2).bytes;
    assert_eq!(Stop::Broken, decoded(&bits(1), 9, 9).0);
    for size in [0, 2, 3, 4, 5, 6, 7] {
        assert_eq!((Stop::Done, vec![], 0), decoded(&bits(size), 9, 9), "{size}");
    }
}

#[test]
fn metadata_and_empty_blocks_make_nothing() {
    let empty = |bits: Bits| bits.put(0, 1).put(3, 2).put(0, 1).put(0, 2);
    let mut bits = empty(Bits::default().put(0, 1));
    let aligned = |mut bits: Bits| {
        bits.count = bits.count.next_multiple_of(8);
        bits
    };
    bits = aligned(bits).put(0, 1).put(3, 2).put(0, 1).put(1, 2).put(4, 8);
    bits = aligned(bits);
    for byte in *b"12345" {
        bits = bits.put(byte.into(), 8);
    }
    // An uncompressed meta-block is followed by the last meta-block.
    bits = aligned(bits.put(0, 1).put(0, 2).put(3, 16).put(1, 1));
    for byte in *b"data" {
        bits = bits.put(byte.into(), 8);
    }
    let bytes = bits.put(0b11, 2).bytes;
    for piece in [1, 2, 100] {
        assert_eq!((Stop::Done, b"data".to_vec(), 0), decoded(&bytes, piece, 3));
        agrees(&bytes, piece, 3).unwrap();
    }
    // The first case sets a bit before the byte boundary; the second case has a length with a superfluous byte.
    for (at, bit) in [(0, 7), (2, 7)] {
        let mut bytes = bytes.clone();
        bytes[at] |= 1 << bit;
        assert_eq!(Stop::Broken, decoded(&bytes, 100, 100).0);
        agrees(&bytes, 100, 100).unwrap();
    }
}

#[test]
fn window_takes_pages_as_the_stream_grows_and_no_more_than_it_has() {
    let noise = |count: u32| {
        (0..count)
            .flat_map(|n| n.wrapping_mul(0x9e37_79b1).to_be_bytes())
            .collect::<Vec<u8>>()
    };
    for (length, window, expected) in [(100, 24, 1), (50_000, 24, 4), (100_000, 16, 1), (200_000, 18, 4)] {
        let content = noise(length);
        let bytes = encoded(&content, 5, window);
        let (mut pages, mut brotli) = started(TEST_PAGES);
        let (stop, made, _) = through(&mut brotli, &mut pages, &bytes, usize::MAX, 4096);
        assert_eq!(Stop::Done, stop);
        assert!(content == made);
        assert_eq!(
            expected,
            brotli.pages.len(),
            "{length} words in a window of {window} bits"
        );
    }
    let content = noise(50_000);
    let bytes = encoded(&content, 5, 24);
    for piece in [1, 1000, usize::MAX] {
        let (mut pages, mut brotli) = started(3);
        let (stop, made, _) = through(&mut brotli, &mut pages, &bytes, piece, 4096);
        assert_eq!((Stop::Memory, 3 * PAGE), (stop, made.len()));
        brotli.reset(&mut pages);
        assert_eq!(3, pages.places.available());
    }
}

#[test]
fn decoder_that_was_used_before_is_as_a_new_one() {
    let (mut pages, mut brotli) = started(TEST_PAGES);
    for content in [&b"a first one, ".repeat(500)[..], b"another", b""] {
        let bytes = encoded(content, 9, 22);
        // The test decodes a part of the stream, then the whole stream.
        for bytes in [&bytes[..bytes.len() / 2], &bytes] {
            let outcome = through(&mut brotli, &mut pages, bytes, 7, 100);
            assert_eq!(decoded(bytes, 7, 100), outcome);
            brotli.reset(&mut pages);
        }
    }
}

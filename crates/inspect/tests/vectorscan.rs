//! Tests the safe interface of Vectorscan: matches for any segmentation of the data.

use std::process::Command;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use sluice_inspect::bindings::vectorscan::{
    Block, Database, Error, MatchAction, Mode, Pattern, Replay, ScanEnd, ScanStreams, Scratch, Streaming, version,
};

fn pattern(bytes: &[u8], id: u32) -> Pattern<'_> {
    Pattern {
        bytes,
        caseless: false,
        id,
    }
}

fn scratch_for<M: Mode>(database: &Database<M>) -> Scratch {
    let mut scratch = Scratch::new();
    scratch.serve(database).unwrap();
    scratch
}

fn block(patterns: &[Pattern], data: &[u8]) -> Vec<(u32, u64)> {
    let database = Database::<Block>::compile(patterns).unwrap();
    let mut found = Vec::new();
    let ended = database.scan(data, &mut scratch_for(&database), |id, end| {
        found.push((id, end));
        MatchAction::Continue
    });
    assert_eq!(ScanEnd::Complete, ended);
    found.sort_unstable();
    found
}

fn streams(patterns: &[Pattern], count: u32) -> (ScanStreams, Scratch) {
    let database = Arc::new(Database::<Streaming>::compile(patterns).unwrap());
    let scratch = scratch_for(&database);
    (ScanStreams::new(database, count).unwrap(), scratch)
}

/// Matches in a stream whose data is scanned in consecutive segments.
fn pieces(streams: &mut ScanStreams, scratch: &mut Scratch, pieces: &[&[u8]]) -> Vec<(u32, u64)> {
    let stream = streams.open().unwrap();
    let mut found = Vec::new();
    for piece in pieces {
        streams.scan(stream, piece, scratch, |id, end| {
            found.push((id, end));
            MatchAction::Continue
        });
    }
    streams.finish(stream, scratch, |id, end| {
        found.push((id, end));
        MatchAction::Continue
    });
    streams.close(stream);
    found.sort_unstable();
    found
}

/// Reference search for literals.
fn searched(patterns: &[Pattern], data: &[u8]) -> Vec<(u32, u64)> {
    let mut found: Vec<_> = patterns
        .iter()
        .flat_map(|pattern| {
            data.windows(pattern.bytes.len())
                .enumerate()
                .filter(|(_, window)| {
                    *window == pattern.bytes || pattern.caseless && window.eq_ignore_ascii_case(pattern.bytes)
                })
                .map(|(at, window)| (pattern.id, (at + window.len()) as u64))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

const NESTED: [(&[u8], bool); 9] = [
    (b"a", false),
    (b"aba", false),
    (b"ababa", false),
    (b"bab", false),
    (b"x-Header: ", true),
    (b"Header", false),
    (b"\xff\x00\xff", false),
    (b"\xff", false),
    (
        b"the quick brown fox jumps over the lazy dog and never looks back at it",
        true,
    ),
];

const DATA: &[u8] = b"ababababa X-HEADER: Header\x00\xff\x00\xff\x00 The Quick Brown Fox Jumps Over The Lazy Dog And \
    Never Looks Back At It, aba";

fn nested() -> Vec<Pattern<'static>> {
    let mut patterns = Vec::new();
    for (id, &(bytes, caseless)) in NESTED.iter().enumerate() {
        patterns.push(Pattern {
            bytes,
            caseless,
            id: id as u32,
        });
    }
    patterns
}

#[test]
fn library_says_its_version() {
    assert!(version().starts_with("5."), "{}", version());
}

#[test]
fn nested_overlapping_and_caseless_literals_are_all_found_at_their_ends() {
    assert_eq!(searched(&nested(), DATA), block(&nested(), DATA));
}

#[test]
fn stream_cut_anywhere_in_two_finds_what_a_block_finds() {
    let expected = searched(&nested(), DATA);
    let (mut streams, mut scratch) = streams(&nested(), 1);
    for cut in 0..=DATA.len() {
        let (first, second) = DATA.split_at(cut);
        assert_eq!(
            expected,
            pieces(&mut streams, &mut scratch, &[first, second]),
            "cut at {cut}"
        );
    }
}

#[test]
fn stream_cut_anywhere_in_three_finds_what_a_block_finds() {
    let expected = searched(&nested(), DATA);
    let (mut streams, mut scratch) = streams(&nested(), 1);
    for cut in 0..=DATA.len() {
        for next in cut..=DATA.len() {
            let parts = [&DATA[..cut], &DATA[cut..next], &DATA[next..]];
            assert_eq!(
                expected,
                pieces(&mut streams, &mut scratch, &parts),
                "cut at {cut} and {next}"
            );
        }
    }
}

#[test]
fn many_streams_interleaved_do_not_disturb_one_another() {
    let patterns = nested();
    let (mut streams, mut scratch) = streams(&patterns, 200);
    let open: Vec<u32> = std::iter::from_fn(|| streams.open()).collect();
    assert_eq!((200, 0), (open.len(), streams.available()));
    let mut found = vec![Vec::new(); open.len()];
    // Stream n has n additional bytes at its start, so that no two streams are split at the same position.
    let data: Vec<Vec<u8>> = (0..open.len()).map(|n| [&vec![b'.'; n][..], DATA].concat()).collect();
    for at in (0..DATA.len() + open.len()).step_by(7) {
        for (&stream, data) in open.iter().zip(&data) {
            let piece = &data[at.min(data.len())..(at + 7).min(data.len())];
            streams.scan(stream, piece, &mut scratch, |id, end| {
                found[stream as usize].push((id, end));
                MatchAction::Continue
            });
        }
    }
    for (&stream, data) in open.iter().zip(&data) {
        found[stream as usize].sort_unstable();
        assert_eq!(searched(&patterns, data), found[stream as usize], "stream {stream}");
    }
}

#[test]
fn stream_used_again_remembers_nothing() {
    let (mut streams, mut scratch) = streams(&[pattern(b"secret", 1)], 1);
    let first = streams.open().unwrap();
    streams.scan(first, b"sec", &mut scratch, |_, _| MatchAction::Continue);
    streams.close(first);
    streams.close(first);
    assert_eq!(1, streams.available());
    assert!(pieces(&mut streams, &mut scratch, &[b"ret"]).is_empty());
    assert_eq!(vec![(1, 6)], pieces(&mut streams, &mut scratch, &[b"sec", b"ret"]));
}

#[test]
fn stop_ends_the_scan_and_the_stream_until_it_is_reset() {
    let database = Database::<Block>::compile(&[pattern(b"a", 1)]).unwrap();
    let mut calls = 0;
    let stop = |_: u32, _: u64| {
        calls += 1;
        MatchAction::Stop
    };
    assert_eq!(
        ScanEnd::Stopped,
        database.scan(b"aaaa", &mut scratch_for(&database), stop)
    );
    assert_eq!(1, calls);

    let (mut streams, mut scratch) = streams(&[pattern(b"a", 1)], 1);
    let stream = streams.open().unwrap();
    assert_eq!(
        ScanEnd::Stopped,
        streams.scan(stream, b"aaaa", &mut scratch, |_, _| MatchAction::Stop)
    );
    let unexpected = |_: u32, _: u64| -> MatchAction { unreachable!("the stream was stopped") };
    assert_eq!(
        ScanEnd::Stopped,
        streams.scan(stream, b"aaaa", &mut scratch, unexpected)
    );
    streams.reset(stream);
    assert_eq!(
        ScanEnd::Stopped,
        streams.scan(stream, b"a", &mut scratch, |_, _| MatchAction::Stop)
    );
}

#[test]
fn one_scratch_serves_several_databases_and_so_does_its_clone() {
    let small = Database::<Block>::compile(&[pattern(b"one", 1)]).unwrap();
    let large = Database::<Block>::compile(&nested()).unwrap();
    let mut scratch = Scratch::new();
    scratch.serve(&small).unwrap();
    scratch.serve(&large).unwrap();
    assert!(scratch.size() > 0);
    for mut scratch in [scratch.try_clone().unwrap(), scratch] {
        let mut found = 0;
        small.scan(b"one", &mut scratch, |_, _| {
            found += 1;
            MatchAction::Continue
        });
        large.scan(b"\xff", &mut scratch, |_, _| {
            found += 1;
            MatchAction::Continue
        });
        assert_eq!(2, found);
    }
}

#[test]
#[should_panic(expected = "the scratch was grown for this database")]
fn scratch_of_another_database_is_refused() {
    let one = Database::<Block>::compile(&[pattern(b"one", 1)]).unwrap();
    let other = Database::<Block>::compile(&[pattern(b"other", 1)]).unwrap();
    one.scan(b"one", &mut scratch_for(&other), |_, _| MatchAction::Continue);
}

#[test]
fn pattern_that_begins_with_zero_is_refused_and_so_are_none() {
    let refused = Database::<Block>::compile(&[pattern(b"a", 1), pattern(b"\0a", 2)]);
    assert!(
        matches!(refused, Err(Error::Refused { id: Some(2), .. })),
        "{refused:?}"
    );
    assert_eq!(Err(Error::Count), Database::<Block>::compile(&[]).map(|_| ()));
}

/// A panic of the sink aborts the process. The test executes itself with a sink that panics, and checks the exit status.
#[test]
fn sink_that_panics_aborts_the_process() {
    const PANICS: &str = "SLUICE_TEST_SINK_PANICS";
    if std::env::var_os(PANICS).is_some() {
        let database = Database::<Block>::compile(&[pattern(b"a", 1)]).unwrap();
        let caught = std::panic::catch_unwind(|| {
            database.scan(b"a", &mut scratch_for(&database), |_, _| panic!("a sink panics"));
        });
        unreachable!("the panic came through C: {caught:?}");
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "vectorscan::sink_that_panics_aborts_the_process",
            "--nocapture",
        ])
        .env(PANICS, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(Some(6), child.status.signal(), "{said}");
    assert!(said.contains("a sink panics"), "{said}");
}

#[test]
fn databases_and_pools_go_to_other_threads() {
    fn sent<T: Send>() {}
    fn shared<T: Sync>() {}
    sent::<ScanStreams>();
    sent::<Scratch>();
    sent::<Database<Block>>();
    shared::<Database<Streaming>>();
}

/// A literal of a small alphabet.
fn literal() -> impl Strategy<Value = Vec<u8>> {
    let first = prop::sample::select(&b"aAb"[..]);
    (first, vec(prop::sample::select(&b"aAb\x00"[..]), 0..11)).prop_map(|(first, rest)| [vec![first], rest].concat())
}

/// Regression test: the library's builds for AVX2 and AVX-512 missed matches at the end of the data, after many bytes that
/// occur in no pattern.
#[test]
fn match_at_the_end_of_data_is_found() {
    let sets: [&[&[u8]]; 6] = [
        &[b"xa"],
        &[b"aa", b"xax"],
        &[b"ba", b"bab", b"a"],
        &[b"xB", b"longer than it"],
        &[b"aAbx", b"b"],
        &[b"GET", b"POST", b"HEAD", b"/x", b"OPTIONS"],
    ];
    for set in sets {
        for caseless in [false, true] {
            let patterns: Vec<Pattern> = (0..)
                .zip(set)
                .map(|(id, bytes)| Pattern { bytes, caseless, id })
                .collect();
            let database = Database::<Block>::compile(&patterns).unwrap();
            let mut block_scratch = scratch_for(&database);
            let (mut streams, mut scratch) = streams(&patterns, 1);
            for (length, bytes) in (0..200).flat_map(|length| set.iter().map(move |bytes| (length, bytes))) {
                let data = [&vec![b'z'; length][..], bytes].concat();
                let expected = searched(&patterns, &data);
                let mut found = Vec::new();
                database.scan(&data, &mut block_scratch, |id, end| {
                    found.push((id, end));
                    MatchAction::Continue
                });
                found.sort_unstable();
                assert_eq!(expected, found, "{} in a block", data.escape_ascii());
                let parts = [&data[..length / 2], &data[length / 2..]];
                let found = pieces(&mut streams, &mut scratch, &parts);
                assert_eq!(expected, found, "{} in a stream", data.escape_ascii());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A small alphabet, so that literals nest, overlap and cross segment boundaries.
    #[test]
    fn random_literals_are_found_in_blocks_and_in_streams_cut_anywhere(
        literals in vec((literal(), any::<bool>()), 1..40),
        data in vec(vec(prop::sample::select(&b"aAb\x00"[..]), 0..60), 0..6),
        last in any::<prop::sample::Index>(),
    ) {
        let patterns: Vec<Pattern> = literals
            .iter()
            .enumerate()
            .map(|(id, (bytes, caseless))| Pattern { bytes, caseless: *caseless, id: id as u32 })
            .collect();
        // Adds a match at the end of the data, which random data rarely contains.
        let parts: Vec<&[u8]> = data.iter().map(Vec::as_slice).chain([last.get(&patterns).bytes]).collect();
        let whole = parts.concat();
        let expected = searched(&patterns, &whole);
        prop_assert_eq!(&expected, &block(&patterns, &whole));
        let (mut streams, mut scratch) = streams(&patterns, 1);
        prop_assert_eq!(&expected, &pieces(&mut streams, &mut scratch, &parts));
    }
}

#[test]
fn scans_written_down_and_done_again_find_as_much() {
    let whole = Database::<Block>::compile(&[pattern(b"ab", 1)]).unwrap();
    let (mut streams, mut scratch) = streams(&[pattern(b"abc", 2)], 2);
    scratch.serve(&whole).unwrap();
    let opened = [streams.open().unwrap(), streams.open().unwrap()];
    let mut found = 0;
    let mut sink = |_, _| {
        found += 1;
        MatchAction::Continue
    };
    streams.record(0);
    scratch.record();
    // A stream discards its earlier data only when it is reset.
    for (stream, data, begins) in [
        (0, "xxab", true),
        (1, "c", true),
        (0, "c ab", false),
        (0, "cab", true),
        (0, "c", false),
    ] {
        if begins {
            streams.reset(opened[stream]);
        }
        streams.scan(opened[stream], data.as_bytes(), &mut scratch, &mut sink);
        whole.scan(data.as_bytes(), &mut scratch, &mut sink);
    }
    let calls = scratch.take_log().unwrap();
    assert_eq!((10, 2 * 13), (calls.count(), calls.bytes()));
    assert_eq!(5, found);
    let mut replay = Replay::new(vec![&whole], &[streams.database().clone()], 2).unwrap();
    assert_eq!([5, 5], [replay.run(&calls), replay.run(&calls)]);
    assert!(scratch.take_log().is_none());
}

//! Stream reassembly, case by case: segments, the result for each segment, and the inspected bytes.

use crate::rig::cases::{CLIENT, Is::*, OPEN, SERVER, case, check, opened, run};
use crate::rig::{BLOCK, Rig, data, plan, segment, summed};
use sluice_inspect::source_quota::Source;
use sluice_inspect::stream::{CapacityError, Exception::*, SegmentKind, State, StreamCapacity, StreamHandle, Streams};
use sluice_table::hash::Hasher;
use sluice_table::memory::Line;
use sluice_wire::key::Direction::{Forward, Reverse};
use sluice_wire::tcp::{self, flag};

#[test]
fn data_in_order_is_fresh_to_the_end_of_both_streams() {
    let rows = [
        ("cA", 1, 1, "GET /", Fresh),
        ("cA", 6, 1, "index", Fresh),
        ("sA", 1, 11, "200 OK", Fresh),
        ("cFA", 11, 7, "bye", Fresh),
        ("sFA", 7, 15, "", Fresh),
        ("cA", 15, 8, "", Repeat),
    ];
    let mut rig = opened(&rows, "GET /indexbye", "200 OK");
    assert!(rig.streams.ended(rig.handle));
    assert_eq!(State::Finished, rig.streams.state(rig.handle, Forward));
    rig.close();
}

#[test]
fn message_begins_where_its_side_sends_after_the_other() {
    let rows = [
        ("cA", 1, 1, "one", Fresh),
        ("cA", 4, 1, "two", Fresh),
        ("sA", 1, 7, "answer", Fresh),
        ("cA", 7, 7, "three", Fresh),
    ];
    let rig = opened(&rows, "onetwothree", "answer");
    let view = rig.streams.view(rig.handle, Forward);
    assert_eq!((&b"onetwothree"[..], 0, 6), (view.bytes, view.offset, view.message));
    assert_eq!(0, rig.streams.view(rig.handle, Reverse).message);
}

#[test]
fn copy_that_differs_is_rewritten_whatever_it_overlaps() {
    let rows = [
        ("cA", 1, 1, "abcdef", Fresh),
        ("cA", 1, 1, "abXdeY", Right(2)),
        ("cA", 2, 1, "XYZ", Right(3)),
        ("cA", 4, 1, "XefgH", Mended(1)),
        ("cA", 1, 1, "abcdefgHi", Fresh),
        ("cA", 1, 1, "abcdefghi", Right(1)),
    ];
    let rig = opened(&rows, "abcdefgHi", "");
    let passed: Vec<_> = rig.passed[3..].iter().map(|(_, segment)| data(segment)).collect();
    assert_eq!(
        [&b"abcdef"[..], b"abcdef", b"bcd", b"defgH", b"abcdefgHi", b"abcdefgHi"],
        *passed
    );
}

#[test]
fn segments_ahead_pass_and_are_inspected_with_the_one_that_fills_their_gap() {
    let rows = [
        ("cFA", 13, 1, "end", Ahead),
        ("cA", 5, 1, "efgh", Ahead),
        ("cA", 5, 1, "efgh", Ahead),
        ("cA", 6, 1, "f", Ahead),
        ("cA", 7, 1, "GHijkl", AheadRight(2)),
        ("cA", 1, 1, "abXX", Fresh),
    ];
    let mut rig = opened(&rows, "abXXefghijklend", "");
    assert_eq!((11, 6), (rig.kept, rig.passed.len() - OPEN.len()));
    assert_eq!(State::Finished, rig.streams.state(rig.handle, Forward));
    run(
        &mut rig,
        &[("cA", 1, 1, "abcd", Right(2)), ("cA", 16, 1, "x", Not(BeyondEnd))],
    );
    rig.close();
}

#[test]
fn segment_that_fills_a_gap_and_overlaps_what_came_ahead_is_put_right() {
    let rows = [
        ("cA", 4, 1, "def", Ahead),
        ("cA", 9, 1, "ijk", Ahead),
        ("cA", 1, 1, "abcDEFghI", Mended(4)),
    ];
    let rig = opened(&rows, "abcdefghijk", "");
    assert_eq!(b"abcdefghi"[..], *data(&rig.passed.last().unwrap().1));
}

#[test]
fn end_ahead_of_a_gap_is_where_data_stood_first() {
    let rows = [
        ("cA", 5, 1, "efgh", Ahead),
        // Data was already received at the position of the FIN.
        ("cFA", 5, 1, "ef", AheadRight(1)),
        ("cFA", 3, 1, "", AheadRight(1)),
        ("cFA", 12, 1, "lm", Ahead),
        ("cFA", 10, 1, "j", AheadRight(1)),
        ("cA", 14, 1, "n", Not(BeyondEnd)),
        ("cFA", 13, 1, "mn", Not(BeyondEnd)),
        // The first segment with a FIN is in order; the FIN of the second segment is before the next byte.
        ("cFA", 1, 1, "ab", Mended(1)),
        ("cFA", 3, 1, "", Right(1)),
        ("cA", 3, 1, "cdefghijklmn", Not(BeyondEnd)),
        ("cA", 3, 1, "cd", Fresh),
        ("cA", 9, 1, "ijk", Fresh),
        ("cFA", 14, 1, "", Repeat),
    ];
    let rig = opened(&rows, "abcdefghijklm", "");
    assert_eq!(State::Finished, rig.streams.state(rig.handle, Forward));
}

#[test]
fn end_alone_ahead_of_a_gap_finishes_the_stream_once_that_is_filled() {
    let mut rig = opened(&[("cFA", 4, 1, "", Ahead), ("cFA", 4, 1, "", Ahead)], "", "");
    assert_eq!(State::Open, rig.streams.state(rig.handle, Forward));
    run(&mut rig, &[("cA", 1, 1, "abc", Fresh)]);
    assert_eq!(State::Finished, rig.streams.state(rig.handle, Forward));
    rig.close();
}

/// Generates `count` letters.
fn letters(count: usize) -> &'static str {
    String::leak("abcdefghijklmnopqrstuvwxyz".repeat(count / 26 + 1))
        .split_at(count)
        .0
}

#[test]
fn bytes_ahead_of_a_gap_are_bounded_by_share_and_pool_and_leave_room_to_fill_it() {
    let long = letters(BLOCK);
    let rows = [
        ("cA", 9000, 1, long, Ahead),
        ("cA", 20_000, 1, "short", Ahead),
        // The connection's share is five blocks, two of which are reserved for bytes that fill the gap.
        ("cA", 30_000, 1, "short", Not(GapFull)),
        ("cA", 20_005, 1, "fits", Ahead),
        ("sA", 5, 9, "a", Not(GapFull)),
        ("cA", 1, 1, "first", Fresh),
    ];
    let mut rig = opened(&rows, "first", "");
    assert_eq!((1, 1, 4), rig.streams.used());
    let counters = *rig.streams.counters();
    assert_eq!((3, 2), (counters.ahead, counters.count_of(GapFull)));
    // A connection of another source gets the remaining blocks, except the blocks reserved for gaps.
    let other = rig.streams.open().unwrap();
    rig.streams.set_source(other, Source(2));
    for (sequence, expected) in [
        (1000, SegmentKind::OutOfOrder { rewritten: 0 }),
        (9000, SegmentKind::Exception(GapFull)),
    ] {
        rig.streams
            .segment(other, Forward, true, &mut segment(0, 0, flag::SYN, b""));
        let step = rig
            .streams
            .segment(other, Forward, true, &mut segment(sequence, 0, flag::ACK, b"x"));
        assert_eq!(expected, step);
    }
    rig.streams.close(other);
    rig.close();
}

#[test]
fn gap_that_is_given_up_by_policy_is_gone_on_behind() {
    let rows = [
        ("cA", 9, 1, "ijk", Ahead),
        ("cA", 13, 1, "mno", Ahead),
        ("cFA", 20, 1, "", Ahead),
    ];
    let mut rig = opened(&rows, "", "");
    for expected in ["ijk", "ijkmno", "ijkmno"] {
        assert!(rig.streams.skip_gap(rig.handle, Forward));
        rig.take_kept(Forward);
        check(&rig, expected, "");
    }
    assert!(!rig.streams.skip_gap(rig.handle, Forward));
    assert_eq!(13, rig.streams.counters().skipped);
    assert_eq!(State::Finished, rig.streams.state(rig.handle, Forward));
    let mut rig = opened(&rows[..2], "", "");
    for _ in 0..2 {
        assert!(rig.streams.skip_gap(rig.handle, Forward));
        rig.take_kept(Forward);
    }
    // Later data for the gap can no longer be compared.
    run(
        &mut rig,
        &[("cA", 1, 1, "abcdefgh", Not(BeyondWindow)), ("cA", 16, 1, "pq", Fresh)],
    );
    rig.close();
}

#[test]
fn data_sent_again_is_compared_however_it_is_cut_until_it_is_acknowledged() {
    let all = letters(300);
    let at = |place: usize, length: usize| &all[place - 1..][..length];
    let mut rows: Vec<_> = (0..15)
        .map(|k| ("cA", 1 + 20 * k, 1, at(1 + 20 * k as usize, 20), Fresh))
        .collect();
    rows.extend([
        ("cA", 1, 1, at(1, 20), Repeat),
        ("cA", 7, 1, at(7, 290), Repeat),
        ("cA", 1, 1, "aXcdefghiY", Right(2)),
        ("cA", 31, 1, "\0", Right(1)),
        // The receiver ignores later copies of acknowledged bytes.
        ("sA", 1, 11, "", Repeat),
        ("cA", 1, 1, "XXXXXXXXXX", Repeat),
        ("cA", 1, 1, "XXXXXXXXXXXX", Right(2)),
        // An acknowledgement of bytes that were not released is ignored.
        ("sA", 1, 500, "", Repeat),
        ("cA", 21, 1, "XXXX", Right(4)),
    ]);
    opened(&rows, all, "").close();
}

#[test]
fn acknowledgment_counts_from_the_receivers_side_and_in_its_window() {
    let all = letters(2 * BLOCK);
    let rows = [
        ("cA", 1, 1, &all[..BLOCK], Fresh),
        ("cA", 1 + BLOCK as i64, 1, &all[BLOCK..], Fresh),
        // The segment has the server's address, but arrived on the client's side.
        ("SA", 1, 4001, "", Repeat),
        ("cA", 1, 1, "XXXX", Right(4)),
        // The sequence number of the acknowledgement is not acceptable to the client.
        ("sA", 200_001, 4001, "", Not(OutOfWindow)),
        ("sA", 90_001, 4001, "", Repeat),
        ("sA", -90_001, 4001, "", Repeat),
        ("cA", 1, 1, "XXXX", Right(4)),
        ("SRA", 1, 4001, "", Repeat),
    ];
    let mut rig = opened(&rows, all, "");
    assert_eq!(State::Open, rig.streams.state(rig.handle, Reverse));
    run(&mut rig, &[("sA", 1, 4001, "", Repeat), ("cA", 1, 1, "XXXX", Repeat)]);
    rig.close();
}

#[test]
fn data_beyond_the_share_waits_for_acknowledgments_and_no_comparison_is_lost() {
    let share = plan().share;
    let all = letters(3 * share);
    let mut rig = opened(&[], "", "");
    let (mut sent, mut acknowledged, mut refused) = (0, 0, 0);
    while sent < all.len() {
        let length = 500.min(all.len() - sent);
        let fresh = segment(
            CLIENT.wrapping_add(1 + sent as u32),
            SERVER + 1,
            flag::ACK,
            &all.as_bytes()[sent..][..length],
        );
        match rig.send(Forward, fresh) {
            SegmentKind::InOrder { .. } => sent += length,
            SegmentKind::Exception(NoMemory) => {
                refused += 1;
                assert!(sent - acknowledged > share - 2 * BLOCK);
                // All unacknowledged bytes are retained.
                let mut other = vec![b'X'; 400];
                let at = CLIENT.wrapping_add(1 + acknowledged as u32);
                rig.send(Forward, segment(at, SERVER + 1, flag::ACK, &other));
                other.copy_from_slice(&all.as_bytes()[acknowledged..][..400]);
                assert_eq!(other, data(&rig.passed.last().unwrap().1));
                acknowledged += 1000;
                let at = CLIENT.wrapping_add(1 + acknowledged as u32);
                rig.send(Reverse, segment(SERVER + 1, at, flag::ACK, b""));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(refused > 5);
    check(&rig, all, "");
    rig.close();
}

#[test]
fn stream_whose_receiver_is_never_seen_goes_on_and_forgets_the_oldest() {
    let all = letters(6 * plan().share);
    let mut rig = Rig::new(&plan());
    run(&mut rig, &[("cS", 0, 0, "", Repeat)]);
    let at = |place: usize, length: usize| {
        let number = CLIENT.wrapping_add(1 + place as u32);
        segment(number, SERVER + 1, flag::ACK, &all.as_bytes()[place..][..length])
    };
    // Some segments arrive before their predecessors.
    for place in (0..all.len()).step_by(1000) {
        let length = 1000.min(all.len() - place);
        if place % 7000 == 3000 {
            assert_eq!(Ahead, rig.send(Forward, at(place + 500, length - 500)).into());
        }
        assert_eq!(Fresh, rig.send(Forward, at(place, length)).into(), "at {place}");
    }
    assert_eq!(Not(BeyondWindow), rig.send(Forward, at(0, 30)).into());
    assert_eq!(Repeat, rig.send(Forward, at(all.len() - 900, 900)).into());
    check(&rig, all, "");
    rig.close();
}

#[test]
fn receivers_window_bounds_what_passes_ahead_of_a_gap() {
    let window = |rig: &mut Rig, acknowledgment: u32, window: u16, flags: u8, options: [u8; 4]| {
        let mut bytes = segment(
            if flags & flag::SYN == 0 { SERVER + 1 } else { SERVER },
            CLIENT.wrapping_add(acknowledgment),
            flags | flag::ACK,
            b"",
        );
        tcp::WINDOW.write(&mut bytes, window);
        bytes[tcp::LENGTH..][..4].copy_from_slice(&options);
        rig.send(Reverse, summed(bytes));
    };
    for (scale, edge) in [
        ([1, 3, 3, 2], 1 + (1000 << 2)),
        ([1, 1, 1, 1], 1001),
        ([1, 3, 3, 200], 99_990),
    ] {
        let mut rig = Rig::new(&plan());
        run(&mut rig, &[("cS", 0, 0, "", Repeat)]);
        window(&mut rig, 1, 1000, flag::SYN, scale);
        // The window field of a SYN is never scaled.
        run(
            &mut rig,
            &[
                ("cA", 1001, 1, "at", Ahead),
                ("cA", 1002, 1, "beyond", Not(OutOfWindow)),
            ],
        );
        window(&mut rig, 1, 1000, 0, [1; 4]);
        run(&mut rig, &[("cA", edge, 1, "a", Ahead)]);
        if edge < 99_990 {
            run(&mut rig, &[("cA", edge + 1, 1, "beyond", Not(OutOfWindow))]);
        }
        // A shrinking window does not move its right edge back. A probe of a closed window is in order.
        window(&mut rig, 1, 0, 0, [1; 4]);
        run(
            &mut rig,
            &[
                ("cA", edge - 1, 1, "c", Ahead),
                ("cA", 1, 1, "p", Fresh),
                ("cA", 1, 1, "p", Repeat),
            ],
        );
        rig.close();
    }
}

#[test]
fn segment_longer_than_window_and_buffer_is_fresh_whole() {
    let long: &'static str = String::leak("0123456789".repeat(20));
    let rows = [
        ("cA", 1, 1, "first", Fresh),
        ("cA", 6, 1, &long[..50], Fresh),
        ("cA", 56, 1, long, Fresh),
        ("cA", 56, 1, long, Repeat),
        ("cA", 246, 1, "01234X6789a", Mended(1)),
    ];
    let inspected = format!("first{}{long}a", &long[..50]);
    let rig = opened(&rows, &inspected, "");
    assert!(rig.streams.view(rig.handle, Forward).bytes.len() >= plan().window);
}

#[test]
fn keep_alive_and_window_probe_are_repeats_and_fresh() {
    let rows = [
        ("cA", 1, 1, "abc", Fresh),
        ("cA", 3, 1, "", Repeat),
        ("cA", 3, 1, "\0", Right(1)),
        ("cA", 4, 1, "d", Fresh),
        ("cA", 4, 1, "def", Fresh),
        ("sA", 0, 7, "\0", Repeat),
    ];
    opened(&rows, "abcdef", "");
}

#[test]
fn data_below_the_beginning_passes_because_no_receiver_takes_it() {
    let rows = [
        ("cA", -3, 1, "XXXX", Repeat),
        ("cA", -3, 1, "XXXXab", Fresh),
        ("cA", 1, 1, "aXc", Mended(1)),
    ];
    opened(&rows, "abc", "");
    let far = [
        ("cA", -0x4000_0001, 1, "X", Not(OutOfWindow)),
        ("cA", -0x4000_0001, 1, "", Not(OutOfWindow)),
    ];
    opened(&far, "", "");
}

#[test]
fn nothing_passes_behind_the_end_and_no_end_within_what_was_released() {
    let rows = [
        ("cFA", 1, 1, "abc", Fresh),
        ("cFA", 1, 1, "aXc", Right(1)),
        ("cFA", 1, 1, "a", Right(1)),
        ("cFA", 1, 1, "X", Right(2)),
        ("cA", 4, 1, "d", Not(BeyondEnd)),
        ("cA", 1, 1, "abcd", Not(BeyondEnd)),
        ("cA", 5, 1, "e", Not(BeyondEnd)),
        ("cFA", 5, 1, "", Not(BeyondEnd)),
        ("cA", 4, 1, "", Repeat),
        ("cA", 5, 1, "", Repeat),
        ("sA", 1, 5, "", Repeat),
        ("cA", 4, 1, "\0", Repeat),
        ("cFA", 4, 1, "\0", Not(BeyondEnd)),
        ("cFA", 1, 1, "abc", Repeat),
    ];
    let mut rig = opened(&rows, "abc", "");
    assert_eq!(5, rig.streams.counters().count_of(BeyondEnd));
    let cleared = rig.passed.iter().filter(|(_, segment)| data(segment) == b"a");
    assert!(
        cleared
            .into_iter()
            .all(|(_, segment)| tcp::FLAGS.read(segment) == flag::ACK)
    );
    rig.close();
}

#[test]
fn urgent_pointer_passes_as_it_came_unless_it_is_cleared() {
    let rows = [
        ("cUA", 1, 1, "urgent", Fresh),
        ("cUA", 9, 1, "ahead", Ahead),
        ("cUA", 1, 1, "XXgent", Right(2)),
    ];
    let mut rig = opened(&rows, "urgent", "");
    for (_, passed) in &mut rig.passed[OPEN.len()..] {
        assert_eq!(
            (flag::ACK | flag::URG, 7),
            (tcp::FLAGS.read(passed), tcp::URGENT.read(passed))
        );
        rig.streams.clear_urgent(passed);
        assert_eq!((flag::ACK, 0), (tcp::FLAGS.read(passed), tcp::URGENT.read(passed)));
        assert_eq!(*passed, summed(passed.clone()));
        rig.streams.clear_urgent(passed);
    }
    assert_eq!(3, rig.streams.counters().urgent);
}

#[test]
fn pools_that_are_full_refuse_the_new_and_keep_the_old() {
    let small = StreamCapacity {
        connections: 2,
        windows: 1,
        ..plan()
    };
    let rows = [
        ("cA", 1, 1, "one", Fresh),
        ("sA", 1, 4, "two", Not(NoMemory)),
        ("cA", 4, 1, "more", Fresh),
    ];
    let mut rig = case(&small, &[&OPEN[..], &rows].concat(), "onemore", "");
    let second = rig.streams.open().unwrap();
    assert_eq!(
        (None, 2),
        (rig.streams.open(), rig.streams.counters().count_of(NoMemory))
    );
    rig.streams.close(second);
    // The entry is reused, so its earlier handle is invalid.
    let third = rig.streams.open().unwrap();
    assert_ne!(second, third);
    let mut late = segment(1, 1, flag::SYN, b"");
    for stale in [second, StreamHandle::NONE] {
        let step = rig.streams.segment(stale, Forward, true, &mut late);
        assert_eq!(SegmentKind::Exception(Closed), step);
        rig.streams.close(stale);
    }
    assert_eq!(2, rig.streams.used().0);
    rig.streams.close(third);
    rig.close();
}

#[test]
fn plan_that_can_not_be_is_refused() {
    let refused = |plan: StreamCapacity, lines: usize| {
        let mut memory = vec![Line::ZERO; lines];
        Streams::new(&mut memory, &plan, Hasher::new([1, 2])).err()
    };
    let needed = plan().lines();
    let provided = needed - 1;
    assert_eq!(
        Some(CapacityError::Memory { needed, provided }),
        refused(plan(), provided)
    );
    assert_eq!(None, refused(plan(), needed + 1));
    let none = StreamCapacity {
        connections: 0,
        ..plan()
    };
    assert_eq!(Some(CapacityError::Connections(0)), refused(none, needed));
    let large = StreamCapacity {
        window: usize::MAX,
        ..plan()
    };
    assert_eq!(Some(CapacityError::Window(usize::MAX)), refused(large, needed));
}

#[test]
fn header_that_does_not_fit_is_malformed() {
    let mut rig = Rig::new(&plan());
    let whole = segment(1, 1, flag::ACK, b"");
    let mut step = |mut bytes: Vec<u8>| rig.streams.segment(rig.handle, Forward, true, &mut bytes);
    for length in 0..whole.len() {
        assert_eq!(SegmentKind::Exception(Malformed), step(whole[..length].to_vec()));
    }
    let mut short = whole.clone();
    tcp::DATA_OFFSET.write(&mut short, 4 << 4);
    assert_eq!(SegmentKind::Exception(Malformed), step(short));
    assert_eq!(
        SegmentKind::Exception(Malformed),
        step(segment(1, 1, flag::ACK, &[0; 65_536]))
    );
}

#[test]
fn stream_of_more_than_four_gibibytes_keeps_its_offset() {
    let large = StreamCapacity {
        window: 1 << 16,
        ..plan()
    };
    let mut rig = case(&large, &OPEN, "", "");
    let mut sequence = CLIENT.wrapping_add(1);
    let mut bytes = segment(0, 1, flag::ACK, &[7; 65_000]);
    let mut total = 0u64;
    while total < 7 << 30 {
        tcp::SEQUENCE.write(&mut bytes, sequence);
        let step = rig.streams.segment(rig.handle, Forward, true, &mut bytes);
        assert!(matches!(step, SegmentKind::InOrder { offset, rewritten: 0, .. } if offset == total));
        (sequence, total) = (sequence.wrapping_add(65_000), total + 65_000);
        let mut empty = segment(SERVER + 1, sequence, flag::ACK, b"");
        rig.streams.segment(rig.handle, Reverse, true, &mut empty);
    }
    assert_eq!(0, rig.streams.used().2);
}

//! Tests the start and the end of streams: SYNs, earlier connections, and resets.

use crate::rig::cases::{CLIENT, Is::*, OPEN, SERVER, case, check, opened, run};
use crate::rig::{BLOCK, Rig, plan, segment, summed};
use sluice_inspect::source_quota::Source;
use sluice_inspect::stream::{Exception::*, SegmentKind, State, StreamCapacity, StreamHandle};
use sluice_wire::key::Direction::{Forward, Reverse};
use sluice_wire::tcp::{self, flag};

#[test]
fn syn_with_data_is_inspected_and_compared_with_what_follows() {
    let rows = [
        ("cS", 0, 0, "hello", Fresh),
        ("cS", 0, 0, "", Repeat),
        ("cS", 0, 0, "jello", Right(1)),
        ("sSA", 0, 1, "", Repeat),
        ("cA", 1, 1, "jelly, world", Mended(2)),
    ];
    case(&plan(), &rows, "hello, world", "");
    let other = [("cS", 0, 0, "hello", Fresh), ("cS", 70, 0, "hello", Not(Handshake))];
    case(&plan(), &other, "hello", "");
}

#[test]
fn syn_with_another_number_waits_for_the_answer_that_says_which_counts() {
    for (number, expected) in [(0, "first"), (70, "second")] {
        let mut rig = case(
            &plan(),
            &[
                ("cS", 0, 0, "", Repeat),
                ("cS", 70, 0, "", Repeat),
                ("cA", number + 1, 1, expected, Not(Handshake)),
                ("sSA", 0, number + 1, "", Repeat),
            ],
            "",
            "",
        );
        run(&mut rig, &[("cA", number + 1, 1, expected, Fresh)]);
        check(&rig, expected, "");
    }
}

#[test]
fn syn_before_the_last_two_begins_its_stream_where_the_answer_takes_it() {
    let rows = [
        ("cS", 0, 0, "", Repeat),
        ("cS", 70, 0, "", Repeat),
        ("cS", 140, 0, "", Repeat),
        ("sA", 0, 71, "", Repeat),
        ("cA", 71, 1, "second", Not(Handshake)),
        ("sSA", 0, 71, "", Repeat),
        ("cA", 71, 1, "second", Fresh),
    ];
    case(&plan(), &rows, "second", "");
}

#[test]
fn answers_with_two_numbers_wait_for_the_acknowledgment_that_says_which_counts() {
    let rows = [
        ("cS", 0, 0, "", Repeat),
        ("sSA", 0, 1, "", Repeat),
        ("sSA", -9, 1, "", Repeat),
        ("sA", -8, 1, "decoy", Not(Handshake)),
        ("cA", 1, 1, "", Repeat),
        ("sA", -8, 1, "decoy", Repeat),
        ("sA", 1, 1, "true", Fresh),
    ];
    case(&plan(), &rows, "", "true");
}

#[test]
fn simultaneous_opening_begins_both_streams() {
    let rows = [
        ("cS", 0, 0, "", Repeat),
        ("sS", 0, 0, "", Repeat),
        ("cSA", 0, 1, "", Repeat),
        ("sSA", 0, 1, "", Repeat),
        ("cA", 1, 1, "one", Fresh),
        ("sA", 1, 1, "two", Fresh),
    ];
    case(&plan(), &rows, "one", "two");
}

#[test]
fn ports_used_again_begin_anew_once_the_answer_acknowledges_the_new_number() {
    let rows = [
        ("cA", 1, 1, "old", Fresh),
        ("sA", 1, 4, "answer", Fresh),
        ("cS", 5000, 0, "", Repeat),
        // The state does not change until the other host answers with a SYN-ACK.
        ("sA", 7, 5001, "", Repeat),
        ("cA", 4, 1, "er", Fresh),
        ("sA", 7, 6, "", Repeat),
        ("sSA", 900, 5001, "", Repeat),
        ("cA", 5001, 901, "new", Fresh),
        ("sA", 901, 5004, "anew", Fresh),
    ];
    opened(&rows, "new", "anew");
}

#[test]
fn answer_within_the_stream_sent_does_not_begin_it_anew() {
    let rows = [
        ("cS", 0, 0, "attackers", Fresh),
        ("cS", 5, 0, "", Repeat),
        ("sSA", 0, 6, "", Repeat),
        ("cA", 6, 1, "XXXXmore", Mended(4)),
    ];
    case(&plan(), &rows, "attackersmore", "");
}

#[test]
fn answer_alone_tells_where_the_other_stream_begins() {
    let rows = [
        ("sSA", 0, 1, "", Repeat),
        ("cA", 4, 1, "def", Ahead),
        ("cA", 1, 1, "abc", Fresh),
        ("sA", 1, 7, "ok", Fresh),
    ];
    case(&plan(), &rows, "abcdef", "ok");
}

#[test]
fn midstream_data_is_an_exception_and_picked_up_by_policy() {
    let mut rig = case(
        &plan(),
        &[
            ("cA", 500, 900, "", Repeat),
            ("cA", 500, 900, "get", Not(Midstream)),
            ("cFA", 500, 900, "", Not(Midstream)),
        ],
        "",
        "",
    );
    let first = segment(CLIENT.wrapping_add(500), 0, flag::ACK, b"get");
    rig.streams.pick_up(rig.handle, Forward, &first);
    let rows = [
        ("cA", 500, 900, "get", Fresh),
        ("cA", 490, 900, "before", Repeat),
        ("cA", 499, 900, "XXeX on", Mended(2)),
        ("sA", 900, 503, "data", Not(Midstream)),
    ];
    run(&mut rig, &rows);
    check(&rig, "get on", "");
    assert_eq!(3, rig.streams.counters().count_of(Midstream));
}

#[test]
fn picking_up_an_open_stream_goes_on_behind_what_is_missing() {
    let mut rig = opened(&[("cA", 1, 1, "abc", Fresh)], "abc", "");
    let next = segment(CLIENT.wrapping_add(10), 0, flag::ACK, b"jkl");
    rig.streams.pick_up(rig.handle, Forward, &next);
    run(&mut rig, &[("cA", 10, 1, "jkl", Fresh), ("cA", 13, 1, "m", Fresh)]);
    let view = rig.streams.view(rig.handle, Forward);
    assert_eq!(
        (&b"jklm"[..], 9, 6),
        (view.bytes, view.offset, rig.streams.counters().skipped)
    );
}

#[test]
fn reset_marks_the_stream_where_its_receiver_takes_it_and_ends_no_inspection() {
    let rows = [
        ("cA", 1, 1, "abcdef", Fresh),
        ("sA", 1, 3, "", Repeat),
        ("cR", 2, 0, "", Repeat),
        ("cR", 8, 0, "", Repeat),
        ("cR", 200_000, 0, "", Not(OutOfWindow)),
    ];
    let mut rig = opened(&rows, "abcdef", "");
    assert!(!rig.streams.ended(rig.handle));
    run(&mut rig, &[("cR", 7, 0, "ignored", Repeat)]);
    assert!(rig.streams.ended(rig.handle));
    run(&mut rig, &[("cA", 7, 1, "more", Fresh), ("cA", 7, 1, "moXe", Right(1))]);
    check(&rig, "abcdefmore", "");
    // The reset has the sequence number of data that did not reach the receiver.
    let mut rig = opened(&rows, "abcdef", "");
    run(&mut rig, &[("cR", 3, 0, "", Repeat)]);
    assert!(rig.streams.ended(rig.handle));
}

/// Sends unacknowledged data: one kilobyte at each of these positions, which are given in kilobytes.
fn unacknowledged(rig: &mut Rig, handle: StreamHandle, places: impl IntoIterator<Item = u32>) -> Vec<SegmentKind> {
    rig.handle = handle;
    let send = |place: u32| rig.send(Forward, kilobyte(place));
    places.into_iter().map(send).collect()
}

fn kilobyte(place: u32) -> Vec<u8> {
    let at = CLIENT.wrapping_add(1 + place * 1024);
    segment(at, SERVER + 1, flag::ACK, &[place as u8; 1024])
}

/// Capacity for one connection with half a megabyte of data, and for a second connection of another source.
fn roomy() -> StreamCapacity {
    StreamCapacity {
        reassembly: 512 * BLOCK,
        share: 256 * BLOCK,
        reach: 1 << 20,
        ..plan()
    }
}

#[test]
fn connection_that_was_reset_leaves_what_nobody_acknowledges_to_others_of_its_source() {
    let whole = |rig: &mut Rig, handle: StreamHandle| {
        rig.handle = handle;
        run(rig, &OPEN);
        rig.streams.set_source(handle, Source(7));
        unacknowledged(rig, handle, 0..440)
    };
    let is_fresh = |step: &SegmentKind| matches!(step, SegmentKind::InOrder { .. });
    let mut rig = Rig::new(&roomy());
    let first = rig.handle;
    assert!(whole(&mut rig, first).iter().all(is_fresh));
    let used = rig.streams.used().2;
    // The sequence number is in the window, but differs from the expected number, so the connection may continue (RFC
    // 5961, 3.2).
    run(&mut rig, &[("cR", 5000, 0, "", Repeat)]);
    assert_eq!(used, rig.streams.used().2);
    // The server has closed its socket and answers with a reset.
    run(&mut rig, &[("sR", 1, 0, "", Repeat)]);
    assert!(rig.streams.used().2 <= 34, "{:?}", rig.streams.used());
    // The client did not receive the reset and retransmits data that the server expects. Only the first copy of that
    // data passes.
    let mut other = kilobyte(0);
    let data = other.len() - 1024;
    other[data..].fill(b'X');
    assert_eq!(Right(1024), rig.send(Forward, summed(other)).into());
    assert_eq!(Repeat, rig.send(Forward, kilobyte(63)).into());
    assert_eq!(Repeat, rig.send(Forward, kilobyte(439)).into());
    // Data that can't be compared does not pass.
    assert_eq!(Not(BeyondWindow), rig.send(Forward, kilobyte(200)).into());
    // Another connection has the same amount of space as the first connection had.
    let second = rig.streams.open().expect("a place");
    assert!(whole(&mut rig, second).iter().all(is_fresh));
    rig.streams.close(first);
    rig.close();
}

#[test]
fn connection_that_was_reset_takes_nothing_behind_what_it_keeps_of_what_came_ahead() {
    let mut rig = Rig::new(&roomy());
    for (direction, from, acknowledged, flags) in [
        (Forward, CLIENT, 0, flag::SYN),
        (Reverse, SERVER, CLIENT.wrapping_add(1), flag::SYN | flag::ACK),
        (Forward, CLIENT.wrapping_add(1), SERVER + 1, flag::ACK),
    ] {
        let mut opening = segment(from, acknowledged, flags, b"");
        if flags & flag::SYN != 0 {
            opening[tcp::LENGTH..].copy_from_slice(&[tcp::option::WINDOW_SCALE, 3, 4, 1]);
        }
        assert_eq!(Repeat, rig.send(direction, summed(opening)).into());
    }
    let wide = segment(SERVER + 1, CLIENT.wrapping_add(1), flag::ACK, b"");
    assert_eq!(Repeat, rig.send(Reverse, wide).into());
    let handle = rig.handle;
    let steps = unacknowledged(&mut rig, handle, 1..240);
    assert!(
        steps.iter().all(|step| matches!(step, SegmentKind::OutOfOrder { .. })),
        "{steps:?}"
    );
    run(&mut rig, &[("cR", 1, 0, "", Repeat)]);
    assert!(rig.streams.used().2 <= 34, "{:?}", rig.streams.used());
    // Retransmitted data that was forwarded beyond the gap is compared; other data is beyond the end of the stream.
    let other = |place: u32| {
        let mut other = kilobyte(place);
        let data = other.len() - 1024;
        other[data..].fill(b'X');
        summed(other)
    };
    assert_eq!(AheadRight(1024), rig.send(Forward, other(40)).into());
    assert_eq!(Not(BeyondEnd), rig.send(Forward, other(150)).into());
    assert_eq!(Not(BeyondEnd), rig.send(Forward, other(300)).into());
    // When the gap is filled, the retained data after it is inspected.
    assert_eq!(Fresh, rig.send(Forward, kilobyte(0)).into());
    assert!((64 << 10..66 << 10).contains(&rig.inspected[0].len()));
    assert_eq!(Not(BeyondEnd), rig.send(Forward, other(150)).into());
    rig.close();
}

#[test]
fn refusal_of_a_syn_is_a_reset_where_it_acknowledges_it() {
    let mut rig = case(&plan(), &[("cS", 0, 0, "", Repeat), ("sRA", 0, 9, "", Repeat)], "", "");
    assert_eq!(State::Unknown, rig.streams.state(rig.handle, Reverse));
    run(&mut rig, &[("sRA", -5000, 1, "", Repeat)]);
    assert_eq!(State::Reset, rig.streams.state(rig.handle, Reverse));
}

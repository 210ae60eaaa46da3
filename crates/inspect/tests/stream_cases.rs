//! Streams, case by case: segments, what each is, and what was inspected in the end.

mod rig;

use rig::cases::{CLIENT, Is::*, OPEN, case, check, opened, run};
use rig::{Rig, data, plan, segment};
use sluice_inspect::stream::{Exception::*, Handle, Misfit, Plan, State, Step, Streams};
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
fn segments_ahead_are_held_and_released_in_order_of_their_numbers() {
    let rows = [
        ("cFA", 13, 1, "end", Hold),
        ("cA", 5, 1, "efgh", Hold),
        ("cA", 5, 1, "efgh", Covered),
        ("cA", 6, 1, "f", Covered),
        ("cA", 7, 1, "GHijkl", Hold),
        ("cA", 1, 1, "abcd", Fresh),
    ];
    let mut rig = opened(&rows, "abcdefghijklend", "");
    assert_eq!((3, 3), (rig.tickets, rig.returned));
    // The one that begins first is released first; of the next, the two bytes that differed were put right.
    assert_eq!(1, rig.streams.counters().rewritten);
    rig.close();
}

#[test]
fn held_segments_have_bounds_of_segments_bytes_and_all() {
    let long = "0123456789012345678901234567890123456789012345678901234567890123456789";
    let rows = [
        ("cA", 100, 1, long, Hold),
        ("cA", 200, 1, long, Hold),
        ("cA", 300, 1, long, Not(GapFull)),
        ("cA", 300, 1, "short", Hold),
        ("cA", 400, 1, "short", Hold),
        ("cA", 500, 1, "short", Hold),
        ("cA", 600, 1, "short", Hold),
        ("cA", 700, 1, "short", Not(GapFull)),
        ("sA", 100, 1, "short", Hold),
        ("sA", 200, 1, "short", Hold),
        ("sA", 300, 1, "short", Not(GapFull)),
        ("cA", 99_997, 1, "far", Not(GapFull)),
        ("cA", 99_999, 1, "far", Not(OutOfWindow)),
    ];
    let mut rig = opened(&rows, "", "");
    assert_eq!((1, 0, 8, 170), rig.streams.used());
    assert_eq!(4, rig.streams.counters().of(GapFull));
    rig.close();
}

#[test]
fn bytes_of_all_held_segments_are_bounded() {
    let plan = Plan {
        held_bytes_of_all: 6,
        ..plan()
    };
    let rows = [
        ("cA", 9, 1, "abc", Hold),
        ("sA", 9, 1, "abc", Hold),
        ("cA", 20, 1, "a", Not(GapFull)),
    ];
    case(&plan, &[&OPEN[..], &rows].concat(), "", "").close();
}

#[test]
fn gap_overdue_gives_its_segments_back_under_the_policy() {
    let rows = [("cA", 9, 1, "ijk", Hold), ("cA", 13, 1, "mno", Hold)];
    // Dropped: the tickets come back, and the stream waits for its next byte.
    let mut rig = opened(&rows, "", "");
    assert_eq!(None, rig.streams.overdue(99));
    assert_eq!(Some((rig.handle, Forward)), rig.streams.overdue(100));
    while let Some(ticket) = rig.streams.take_held(rig.handle, Forward) {
        rig.give_back(ticket);
    }
    assert_eq!(
        (None, 1),
        (rig.streams.overdue(100), rig.streams.counters().of(GapOverdue))
    );
    run(&mut rig, &[("cA", 1, 1, "abcdefghijklmno", Fresh)]);
    rig.close();
    // Passed: it goes on behind the gap, and behind the next; what fills one later can't be compared.
    let mut rig = opened(&rows, "", "");
    for expected in ["ijk", "ijkmno"] {
        assert_eq!(Some((rig.handle, Forward)), rig.streams.overdue(100));
        assert!(rig.streams.skip(rig.handle, Forward));
        rig.drain(Forward);
        check(&rig, expected, "");
    }
    assert_eq!(
        (false, None),
        (rig.streams.skip(rig.handle, Forward), rig.streams.overdue(u64::MAX))
    );
    assert_eq!(9, rig.streams.counters().skipped);
    let view = rig.streams.view(rig.handle, Forward);
    assert_eq!((&b"mno"[..], 12), (view.bytes, view.offset));
    run(
        &mut rig,
        &[("cA", 1, 1, "abcdefgh", Not(BeyondWindow)), ("cA", 16, 1, "pq", Fresh)],
    );
    rig.close();
}

#[test]
fn closing_gives_back_every_ticket_of_both_directions() {
    let rows = [
        ("cA", 9, 1, "x", Hold),
        ("cA", 5, 1, "x", Hold),
        ("sFA", 9, 1, "", Hold),
        ("sA", 5, 1, "x", Hold),
    ];
    let mut rig = opened(&rows, "", "");
    rig.close();
    assert_eq!(4, rig.returned);
}

#[test]
fn data_sent_again_beyond_the_window_compares_by_digest_where_its_borders_are_the_same() {
    let twenty = [
        "aaaaaaaaaabbbbbbbbbb",
        "ccccccccccdddddddddd",
        "eeeeeeeeeeffffffffff",
        "gggggggggghhhhhhhhhh",
    ];
    let both = "aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd";
    let all = "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggghhhhhhhhhhi";
    let rows = [
        ("cA", 1, 1, twenty[0], Fresh),
        ("cA", 21, 1, twenty[1], Fresh),
        ("cA", 41, 1, twenty[2], Fresh),
        ("cA", 61, 1, twenty[3], Fresh),
        ("cA", 1, 1, twenty[0], Repeat),
        ("cA", 1, 1, both, Repeat),
        ("cA", 1, 1, "aaaaaaaaaabbbbbbbbbX", Not(BeyondWindow)),
        ("cA", 1, 1, "aaaaaaaaaa", Not(BeyondWindow)),
        ("cA", 11, 1, "bbbbbbbbbb", Not(BeyondWindow)),
        ("cA", 1, 1, &all[..81], Fresh),
        // What the receiver has acknowledged it does not take again.
        ("sA", 1, 11, "", Repeat),
        ("cA", 1, 1, "XXXXXXXXXX", Repeat),
        ("cA", 1, 1, twenty[0], Not(BeyondWindow)),
        ("sA", 1, 21, "", Repeat),
        ("cA", 1, 1, "aaaaaaaaaaXXXXXXXXXX", Repeat),
        ("cA", 11, 1, "XXXXXXXXXXccccccccccdddddddddd", Repeat),
        ("cA", 21, 1, "XXXXXXXXXXdddddddddd", Not(BeyondWindow)),
        // An acknowledgment of what was not released counts for nothing.
        ("sA", 1, 500, "", Repeat),
        ("cA", 21, 1, "XXXXXXXXXXdddddddddd", Not(BeyondWindow)),
    ];
    opened(&rows, all, "").close();
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
        ("cA", 20, 1, "held", Hold),
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
    assert_eq!(6, rig.streams.counters().of(BeyondEnd));
    let cleared = rig.passed.iter().filter(|(_, segment)| data(segment) == b"a");
    assert!(
        cleared
            .into_iter()
            .all(|(_, segment)| tcp::FLAGS.read(segment) == flag::ACK)
    );
    rig.close();
}

#[test]
fn urgent_pointer_is_taken_away_unless_it_is_kept() {
    let rows = [("cUA", 1, 1, "urgent", Fresh), ("cUA", 1, 1, "XXgent", Right(2))];
    let seen = |rig: Rig| {
        let (_, segment) = rig.passed.last().unwrap().clone();
        (tcp::FLAGS.read(&segment), tcp::URGENT.read(&segment))
    };
    assert_eq!((flag::ACK, 0), seen(opened(&rows, "urgent", "")));
    let keep = Plan {
        keep_urgent: true,
        ..plan()
    };
    let rig = case(&keep, &[&OPEN[..], &rows].concat(), "urgent", "");
    assert_eq!((flag::ACK | flag::URG, 7), seen(rig));
}

#[test]
fn pools_that_are_full_refuse_the_new_and_keep_the_old() {
    let small = Plan {
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
    assert_eq!((None, 2), (rig.streams.open(), rig.streams.counters().of(NoMemory)));
    rig.streams.close(second, |_| {});
    // The place is used again, and the handle of its last use answers no more.
    let third = rig.streams.open().unwrap();
    assert_ne!(second, third);
    let mut late = segment(1, 1, flag::SYN, b"");
    for stale in [second, Handle::NONE] {
        let step = rig.streams.segment(stale, Forward, &mut late);
        assert_eq!(Step::Exception(Closed), step);
        rig.streams.close(stale, |_| {});
    }
    assert_eq!(2, rig.streams.used().0);
    rig.streams.close(third, |_| {});
    rig.close();
}

#[test]
fn plan_that_can_not_be_is_refused() {
    let refused = |plan: Plan, lines: usize| {
        let mut memory = vec![Line::ZERO; lines];
        Streams::new(&mut memory, &plan, Hasher::new([1, 2])).err()
    };
    let needed = plan().lines();
    let given = needed - 1;
    assert_eq!(Some(Misfit::Memory { needed, given }), refused(plan(), given));
    assert_eq!(None, refused(plan(), needed + 1));
    let none = Plan {
        connections: 0,
        ..plan()
    };
    assert_eq!(Some(Misfit::Connections(0)), refused(none, needed));
    let large = Plan {
        window: usize::MAX,
        ..plan()
    };
    assert_eq!(Some(Misfit::Window(usize::MAX)), refused(large, needed));
}

#[test]
fn header_that_does_not_fit_is_malformed() {
    let mut rig = Rig::new(&plan());
    let whole = segment(1, 1, flag::ACK, b"");
    let mut step = |mut bytes: Vec<u8>| rig.streams.segment(rig.handle, Forward, &mut bytes);
    for length in 0..whole.len() {
        assert_eq!(Step::Exception(Malformed), step(whole[..length].to_vec()));
    }
    let mut short = whole.clone();
    tcp::DATA_OFFSET.write(&mut short, 4 << 4);
    assert_eq!(Step::Exception(Malformed), step(short));
    assert_eq!(Step::Exception(Malformed), step(segment(1, 1, flag::ACK, &[0; 65_536])));
}

#[test]
fn stream_of_more_than_four_gibibytes_keeps_its_offset() {
    let large = Plan {
        window: 1 << 16,
        digests: 0,
        ..plan()
    };
    let mut rig = case(&large, &OPEN, "", "");
    // Nothing is ever acknowledged: what is the largest of windows back counts as if it were.
    let mut sequence = CLIENT.wrapping_add(1);
    let mut bytes = segment(0, 1, flag::ACK, &[7; 65_000]);
    let mut total = 0u64;
    while total < 7 << 30 {
        tcp::SEQUENCE.write(&mut bytes, sequence);
        let step = rig.streams.segment(rig.handle, Forward, &mut bytes);
        assert!(matches!(step, Step::Fresh { offset, rewritten: 0, .. } if offset == total));
        (sequence, total) = (sequence.wrapping_add(65_000), total + 65_000);
    }
    // Seven gibibytes on, the only acknowledgment seen would look as if it were ahead.
    tcp::SEQUENCE.write(&mut bytes, sequence.wrapping_sub(200_000));
    let step = rig.streams.segment(rig.handle, Forward, &mut bytes);
    assert_eq!(Step::Exception(BeyondWindow), step);
}

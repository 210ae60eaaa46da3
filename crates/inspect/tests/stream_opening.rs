//! Where streams begin and are cut off, case by case: SYNs, what was begun before, resets.

mod rig;

use rig::cases::{CLIENT, Is::*, case, check, opened, run};
use rig::{plan, segment};
use sluice_inspect::stream::{Exception::*, State};
use sluice_wire::key::Direction::{Forward, Reverse};
use sluice_wire::tcp::flag;

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
        // Nothing has changed until the other side answers with a SYN of its own.
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
    assert_eq!(3, rig.streams.counters().of(Midstream));
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
    // Behind what was lost before its receiver.
    let mut rig = opened(&rows, "abcdef", "");
    run(&mut rig, &[("cR", 3, 0, "", Repeat)]);
    assert!(rig.streams.ended(rig.handle));
}

#[test]
fn refusal_of_a_syn_is_a_reset_where_it_acknowledges_it() {
    let mut rig = case(&plan(), &[("cS", 0, 0, "", Repeat), ("sRA", 0, 9, "", Repeat)], "", "");
    assert_eq!(State::Unseen, rig.streams.state(rig.handle, Reverse));
    run(&mut rig, &[("sRA", -5000, 1, "", Repeat)]);
    assert_eq!(State::Reset, rig.streams.state(rig.handle, Reverse));
}

//! Tests contents with a distance greater than the length of the retained data.

use crate::lab::{Connection, Lab};
use sluice_inspect::inspector::Verdict;
use sluice_inspect::reason::{Limit, Reason};
use sluice_inspect::signatures::Dialect::Suricata;

/// Returns the rules that fire on a stream or a file with two words at this distance.
fn fired(rules: &str, head: &str, apart: usize, step: usize) -> Vec<u32> {
    let body = [b"it begins: one", &vec![b'.'; apart][..], b"two and more"].concat();
    let said = [head.as_bytes(), &body].concat();
    let mut lab = Lab::new(Suricata, rules);
    let mut connection = Connection::open(&mut lab, 80);
    if !head.is_empty() {
        connection.client(0, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for (number, part) in said.chunks(step).enumerate() {
        connection.server(number * step, part);
    }
    lab.fired.sort_unstable();
    std::mem::take(&mut lab.fired)
}

#[test]
fn contents_are_found_behind_others_that_are_no_longer_kept() {
    for (buffer, is_file) in [("", false), ("file.data; ", true)] {
        let rule = |sid: u32, first: &str, conditions: &str| {
            let options = format!("{buffer}content:\"{first}\"; {conditions}");
            format!("alert tcp any any -> any any (msg:\"m\"; flow:to_client; {options} sid:{sid};)\n")
        };
        let rules = [
            // Without an explicit distance, the searched content must be the first content.
            rule(1, "begins: one", "content:\"two\"; distance:0;"),
            rule(2, "one", "content:\"two\"; distance:0; within:20003;"),
            rule(
                3,
                "one",
                "content:\"two\"; within:65000; content:\"and\"; distance:1; within:3;",
            ),
            rule(4, "begins: one", "pcre:\"/t[vw]o/R\";"),
            rule(5, "one", "content:\"two\"; distance:20000;"),
            rule(6, "begins: one", "content:\"never\"; distance:0;"),
            rule(7, "one", "content:!\"and\"; within:50000;"),
        ]
        .concat();
        for (apart, expected) in [
            (100, &[1, 2, 3, 4][..]),
            (3_000, &[1, 2, 3, 4]),
            (20_000, &[1, 2, 3, 4, 5]),
            (20_001, &[1, 3, 4, 5]),
            (60_000, &[1, 3, 4, 5, 7]),
        ] {
            let length = 14 + apart + 12;
            let head = match is_file {
                true => format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"),
                false => String::new(),
            };
            for step in [700, 1_460, 4_000] {
                let found = fired(&rules, &head, apart, step);
                assert_eq!(expected, found, "{buffer}{apart} bytes apart, segments of {step}");
            }
        }
    }
}

#[test]
fn packet_that_completes_a_match_is_dropped_however_far_back_it_began() {
    let rule = r#"drop tcp any any -> any any (msg:"m"; content:"one"; content:"two"; within:65535; sid:1;)"#;
    let mut lab = Lab::new(Suricata, rule);
    let mut connection = Connection::open(&mut lab, 7);
    connection.client(0, b"one");
    let mut at = 3;
    while at < 60_000 {
        assert_eq!(Verdict::Pass, connection.client(at, &[b'.'; 1_400]));
        at += 1_400;
    }
    assert_eq!(Verdict::Drop(Reason::Signature), connection.client(at, b"two"));
}

#[test]
fn rule_waits_for_64_kib_and_no_longer() {
    let rule = r#"alert tcp any any -> any any (msg:"m"; content:"one thing"; content:"two"; distance:0; sid:1;)"#;
    let mut lab = Lab::new(Suricata, rule);
    let mut connection = Connection::open(&mut lab, 7);
    connection.client(0, b"one thing");
    let (mut at, mut settled) = (9, 0);
    for _ in 0..100 {
        connection.client(at, &[b'.'; 1_000]);
        at += 1_000;
        let handle = connection.handle;
        settled += usize::from(connection.lab.inspector.cleared_bytes(handle).is_some());
    }
    assert!((30..36).contains(&settled), "{settled}");
    connection.client(at, b"two");
    assert_eq!(Vec::<u32>::new(), lab.fired);
}

#[test]
fn rules_that_too_many_parts_were_found_of_are_forgotten_and_counted() {
    let rule = |sid: u32| {
        format!(
            "alert tcp any any -> any any (msg:\"m\"; content:\"one{sid:02}\"; content:\"two\"; distance:0; sid:{sid};)\n"
        )
    };
    let rules: String = (10..50).map(rule).collect();
    let mut lab = Lab::new(Suricata, &rules);
    let mut connection = Connection::open(&mut lab, 7);
    let said: String = (10..50).map(|sid| format!("one{sid:02} ")).collect();
    connection.client(0, said.as_bytes());
    let mut at = said.len();
    for _ in 0..10 {
        connection.client(at, &[b'.'; 1_400]);
        at += 1_400;
    }
    connection.client(at, b"two");
    lab.fired.sort_unstable();
    // Only the latest partial matches are retained.
    assert_eq!((18..50).collect::<Vec<_>>(), lab.fired);
    assert!(lab.inspector.limits.count(Limit::PartialMatchesEvicted as usize) >= 8);
}

//! Tests the interaction of rules: pass before drop, flow variables within a packet, rates, negated contents, and ends
//! of data. No rule prevents the evaluation of another rule.

use crate::flows::play::{Message, Wire, play};
use crate::lab::{Connection, Lab, datagram};
use sluice_inspect::signature::Toward::{self, Client, Server};
use sluice_inspect::signatures::Dialect::{Snort2, Snort3, Suricata};
use sluice_inspect::stream::Exception;
use sluice_inspect::{Reason, Skipped, Verdict};
use sluice_wire::Direction;

const DROPPED: Verdict = Verdict::Drop(Reason::Signature);

fn said(messages: &[(Toward, &str)]) -> Vec<Message> {
    let message = |(toward, text): &(Toward, &str)| Message {
        toward: *toward,
        bytes: text.as_bytes().to_vec(),
    };
    messages.iter().map(message).collect()
}

fn fired(rules: &str, messages: &[(Toward, &str)]) -> Vec<u32> {
    let mut lab = Lab::new(Suricata, rules);
    play(&mut lab, &Wire::default(), &said(messages));
    lab.fired
}

#[test]
fn pass_on_a_later_buffer_of_a_packet_comes_before_a_drop_on_an_earlier_one() {
    let rules = r#"
        drop http any any -> any any (msg:"d"; http.uri; content:"/admin"; sid:1;)
        alert http any any -> any any (msg:"a"; http.method; content:"GET"; sid:2;)
        pass tcp any any -> any any (msg:"p"; content:"X-Trusted"; sid:3;)"#;
    let mut lab = Lab::new(Suricata, rules);
    let mut connection = Connection::open(&mut lab, 80);
    let request = b"GET /admin HTTP/1.1\r\nX-Trusted: yes\r\n\r\n";
    assert_eq!(Verdict::Pass, connection.client(0, request));
    assert_eq!(
        Verdict::Skip(Skipped::Rule),
        connection.client(request.len(), b"GET /admin")
    );
    assert_eq!(Vec::<u32>::new(), lab.fired);
    // If the pass rule matches only in a later packet, the drop rule takes effect.
    let mut connection = Connection::open(&mut lab, 80);
    assert_eq!(DROPPED, connection.client(0, b"GET /admin HTTP/1.1\r\n"));
    assert_eq!(vec![1, 2], lab.fired);
}

#[test]
fn pass_on_what_filled_a_gap_comes_before_a_drop_on_what_had_come_ahead() {
    let rules = r#"
        drop tcp any any -> any any (msg:"d"; content:"first"; sid:1;)
        pass tcp any any -> any any (msg:"p"; content:"second"; sid:2;)"#;
    let mut lab = Lab::new(Suricata, rules);
    let mut connection = Connection::open(&mut lab, 80);
    assert_eq!(Verdict::Pass, connection.client(5, b"second"));
    assert_eq!(Verdict::Pass, connection.client(0, b"first"));
    assert_eq!(Verdict::Skip(Skipped::Rule), connection.client(11, b"first"));
}

#[test]
fn drop_comes_before_reject_and_both_before_alerts() {
    let rules = r#"
        alert tcp any any -> any any (msg:"a"; content:"one"; sid:1;)
        reject tcp any any -> any any (msg:"r"; content:"two"; sid:2;)
        drop tcp any any -> any any (msg:"d"; content:"three"; sid:3;)"#;
    let mut lab = Lab::new(Suricata, rules);
    assert_eq!(DROPPED, Connection::open(&mut lab, 80).client(0, b"one two three"));
    assert_eq!(vec![3, 2, 1], lab.fired);
    let rejected = Verdict::Reject(Reason::Signature);
    assert_eq!(rejected, Connection::open(&mut lab, 80).client(0, b"one two"));
}

#[test]
fn note_that_is_taken_with_a_packet_is_there_for_every_rule_of_it() {
    // The rule that tests the flow variable precedes the rule that sets the variable: in the file, by its action, or by
    // its buffer.
    for (sets, asks) in [
        (r#"content:"HTTP/1.1""#, r#"http.uri; content:"/evil""#),
        (r#"http.uri; content:"/evil""#, r#"content:"HTTP/1.1""#),
        (r#"http.method; content:"GET""#, r#"http.uri; content:"/evil""#),
    ] {
        let rules = format!(
            r#"drop tcp any any -> any any (msg:"asks"; flowbits:isset,a; {asks}; sid:1;)
               alert tcp any any -> any any (msg:"sets"; {sets}; flowbits:set,a; flowbits:noalert; sid:2;)"#
        );
        let mut lab = Lab::new(Suricata, &rules);
        let request = b"GET /evil HTTP/1.1\r\n\r\n";
        assert_eq!(DROPPED, Connection::open(&mut lab, 80).client(0, request), "{rules}");
        assert_eq!(vec![1], lab.fired);
        assert_eq!(Verdict::Pass, Connection::open(&mut lab, 80).client(0, b"GET /good "));
    }
}

#[test]
fn note_that_is_taken_with_a_later_packet_is_too_late() {
    let rules = r#"
        alert tcp any any -> any any (msg:"asks"; flowbits:isset,a; content:"asks"; sid:1;)
        alert tcp any any -> any any (msg:"sets"; content:"sets"; flowbits:set,a; sid:2;)"#;
    assert_eq!(
        vec![2],
        fired(rules, &[(Server, "asks"), (Client, "-"), (Server, "sets")])
    );
    assert_eq!(
        vec![2, 1],
        fired(rules, &[(Server, "sets"), (Client, "-"), (Server, "asks")])
    );
    let mut both = fired(rules, &[(Server, "asks sets")]);
    both.sort_unstable();
    assert_eq!(vec![1, 2], both);
}

#[test]
fn rule_that_takes_a_note_comes_before_one_that_asks_for_none() {
    let rules = r#"
        alert tcp any any -> any any (msg:"asks"; content:"x"; flowbits:isnotset,a; sid:1;)
        alert tcp any any -> any any (msg:"sets"; content:"x"; flowbits:set,a; sid:2;)"#;
    assert_eq!(vec![2], fired(rules, &[(Server, "x")]));
}

#[test]
fn content_that_must_not_be_there_asks_for_its_buffer() {
    let of_uri = r#"alert tcp any any -> any any (msg:"m"; http.uri; content:!"x"; sid:1;)"#;
    let of_cookie = r#"alert tcp any any -> any any (msg:"m"; http.cookie; content:!"x"; sid:1;)"#;
    let expression = r#"alert tcp any any -> any any (msg:"m"; http.cookie; pcre:!"/x/"; sid:1;)"#;
    let answer = (Client, "HTTP/1.1 204 OK\r\n\r\n");
    for (rules, request, times) in [
        (of_uri, "no protocol at all", 0),
        (of_uri, "GET /a HTTP/1.1\r\n\r\n", 1),
        (of_uri, "GET /x HTTP/1.1\r\n\r\n", 0),
        (of_cookie, "GET /a HTTP/1.1\r\n\r\n", 0),
        (of_cookie, "GET /a HTTP/1.1\r\nCookie: a\r\n\r\n", 1),
        (of_cookie, "GET /a HTTP/1.1\r\nCookie: x\r\n\r\n", 0),
        (expression, "GET /a HTTP/1.1\r\n\r\n", 0),
        (expression, "GET /a HTTP/1.1\r\nCookie: a\r\n\r\n", 1),
    ] {
        assert_eq!(
            vec![1; times],
            fired(rules, &[(Server, request), answer]),
            "{rules} {request}"
        );
    }
    let mut lab = Lab::new(Suricata, &of_uri.replace("tcp", "ip"));
    datagram(&mut lab, 999, b"no protocol");
    assert_eq!(Vec::<u32>::new(), lab.fired);
}

#[test]
fn end_of_a_stream_is_the_end_of_its_packet() {
    for (options, ends, goes_on) in [
        (r#"content:"ab"; endswith;"#, "ab", "abc"),
        (r#"content:"ab"; isdataat:!1,relative;"#, "ab", "abc"),
        (r#"content:"ab"; isdataat:!5;"#, "abcd", "abcdef"),
        (r#"content:"ab"; pcre:"/b$/";"#, "ab", "abc"),
        (r#"content:"a"; content:!"b"; endswith;"#, "ac", "ab"),
    ] {
        let rules = format!(r#"drop tcp any any -> any any (msg:"m"; {options} sid:1;)"#);
        let mut lab = Lab::new(Suricata, &rules);
        // The matching packet itself is dropped, not only later packets.
        assert_eq!(
            DROPPED,
            Connection::open(&mut lab, 80).client(0, ends.as_bytes()),
            "{options}"
        );
        let mut connection = Connection::open(&mut lab, 80);
        assert_eq!(Verdict::Pass, connection.client(0, goes_on.as_bytes()), "{options}");
    }
}

#[test]
fn rule_about_packets_does_not_join_them() {
    for (header, options) in [
        ("tcp-pkt", ""),
        ("tcp", "flow:no_stream; "),
        ("tcp", "dsize:<10; "),
        ("tcp", "window:60000; "),
    ] {
        let rules = format!(r#"alert {header} any any -> any any (msg:"m"; {options}content:"abcd"; sid:1;)"#);
        let halves = [(Server, "ab"), (Server, "cd")];
        assert_eq!(Vec::<u32>::new(), fired(&rules, &halves), "{rules}");
        assert_eq!(vec![1], fired(&rules, &[(Server, "abcd")]), "{rules}");
    }
    let stream = r#"alert tcp any any -> any any (msg:"m"; content:"abcd"; sid:1;)"#;
    assert_eq!(vec![1], fired(stream, &[(Server, "ab"), (Server, "cd")]));
}

#[test]
fn action_is_due_as_its_rate_says() {
    let verdicts = |rate: &str| {
        let rules = format!(r#"drop tcp any any -> any any (msg:"m"; content:"x"; {rate} sid:1;)"#);
        let mut lab = Lab::new(Suricata, &rules);
        let dropped = (0..4)
            .map(|_| Connection::open(&mut lab, 80).client(0, b"x") == DROPPED)
            .collect::<Vec<_>>();
        (dropped, lab.fired.len())
    };
    let of = |kind: &str| verdicts(&format!("threshold:type {kind}, track by_src, count 2, seconds 60;"));
    assert_eq!((vec![true, true, true, true], 2), of("limit"));
    assert_eq!((vec![false, true, false, true], 2), of("threshold"));
    assert_eq!((vec![false, true, true, true], 1), of("both"));
    let after = verdicts("detection_filter:track by_src, count 2, seconds 60;");
    assert_eq!((vec![false, false, true, true], 2), after);
}

#[test]
fn detection_filter_counts_what_all_other_conditions_hold_of() {
    let rules = r#"alert tcp any any -> any any (msg:"m"; content:"x"; content:"y"; detection_filter:track by_src, count 2, seconds 60; sid:1;)"#;
    let mut lab = Lab::new(Snort2, rules);
    for text in ["x", "x", "x", "xy", "xy"] {
        play(&mut lab, &Wire::default(), &said(&[(Server, text)]));
        assert_eq!(Vec::<u32>::new(), lab.fired, "{text}");
    }
    play(&mut lab, &Wire::default(), &said(&[(Server, "xy")]));
    assert_eq!(vec![1], lab.fired);
}

#[test]
fn every_rule_that_one_search_finds_is_asked() {
    let mut rules = String::new();
    for number in 1..=1_000 {
        rules += &format!(
            "drop tcp any any -> any any (msg:\"m\"; content:\"User-Agent\"; pcre:\"/zz{number:04}/\"; sid:{number};)\n"
        );
    }
    let mut lab = Lab::new(Suricata, &rules);
    for number in [1, 256, 257, 1_000] {
        let said = format!("User-Agent zz{number:04} yy");
        assert_eq!(DROPPED, Connection::open(&mut lab, 80).client(0, said.as_bytes()));
    }
    assert_eq!(vec![1, 256, 257, 1_000], lab.fired);
}

#[test]
fn every_rule_that_waits_is_asked_again() {
    let mut rules = String::new();
    for number in 1..=200 {
        rules += &format!(
            "alert tcp any any -> any any (msg:\"m\"; content:\"User-Agent\"; fast_pattern; content:\"z{number:04}\"; distance:0; sid:{number};)\n"
        );
    }
    let mut lab = Lab::new(
        Snort3,
        &rules
            .replace("; distance:0;", ",distance 0;")
            .replace("; fast_pattern;", ",fast_pattern;"),
    );
    let mut connection = Connection::open(&mut lab, 80);
    connection.client(0, b"User-Agent ");
    connection.client(11, b"z0001 z0016 z0017 z0200");
    connection.client(34, b"z0001 z0100");
    assert_eq!(vec![1, 16, 17, 200, 100], lab.fired);
    assert_eq!(
        0,
        lab.inspector.streams().counters().count_of(Exception::PendingRulesFull)
    );
}

#[test]
fn flow_whose_rules_find_no_place_to_wait_ends_and_is_counted() {
    let mut rules = String::new();
    for number in 1..=20 {
        rules += &format!(
            "alert tcp any any -> any any (msg:\"m\"; content:\"User-Agent\"; fast_pattern; content:\"z{number:04}\"; distance:0; sid:{number};)\n"
        );
    }
    let mut lab = Lab::new(Suricata, &rules);
    // The pool has eight lists, of which one source may use seven.
    let (mut verdicts, mut open) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        let mut connection = Connection::open(&mut lab, 80);
        verdicts.push(connection.client(0, b"User-Agent "));
        open.push(connection.handle);
    }
    let mut expected = vec![Verdict::Pass; 7];
    expected.push(Verdict::Drop(Reason::PendingRulesFull));
    assert_eq!(expected, verdicts);
    assert_eq!(
        1,
        lab.inspector.streams().counters().count_of(Exception::PendingRulesFull)
    );
    open.into_iter().for_each(|handle| lab.inspector.remove_flow(handle));
    let mut connection = Connection::open(&mut lab, 80);
    assert_eq!(Verdict::Pass, connection.client(0, b"User-Agent "));
    assert_eq!(Verdict::Pass, connection.finish(Direction::Forward, 11));
}

#[test]
fn content_that_is_cut_while_the_other_side_speaks_is_found() {
    let rules = r#"
        drop tcp any any -> any any (msg:"m"; flow:to_server; content:"evil"; sid:1;)
        drop tcp any any -> any any (msg:"m"; flow:to_server; content:"first"; content:"second"; distance:0; sid:2;)
        drop tcp any any -> any any (msg:"m"; flow:to_server; content:"begin"; offset:0; depth:5; sid:3;)
        drop tcp any any -> any any (msg:"m"; flow:to_server; content:"key="; pcre:"/^[a-z]{4}!/R"; sid:4;)
    "#;
    for (said, dropped) in [
        (&["ev", "il"][..], Some(1)),
        (&["e", "v", "i", "l"], Some(1)),
        (&["a first one", "and a second"], Some(2)),
        (&["a fir", "st one and", "more", "a sec", "ond"], Some(2)),
        (&["key=ab", "cd!"], Some(4)),
        // Positions are relative to the start of a message.
        (&["be", "gin"], None),
        (&["x", "begin"], Some(3)),
        (&["second", "first"], None),
        (&["evi", "vil"], None),
    ] {
        let mut lab = Lab::new(Suricata, rules);
        let mut connection = Connection::open(&mut lab, 80);
        let (mut place, mut answered, mut last) = (0, 0, Verdict::Pass);
        for part in said {
            assert_eq!(Verdict::Pass, last, "{said:?}");
            last = connection.client(place, part.as_bytes());
            place += part.len();
            connection.server(answered, b"go on\r\n");
            answered += 7;
        }
        let expected = dropped.map_or(Verdict::Pass, |_| DROPPED);
        assert_eq!(expected, last, "{said:?}");
        assert_eq!(dropped.into_iter().collect::<Vec<_>>(), lab.fired, "{said:?}");
    }
}

#[test]
fn content_of_which_a_part_is_searched_for_is_found_wherever_it_is_cut() {
    let long = format!("content:\"{}\";", "0123456789".repeat(20));
    let rules = format!(
        r#"
        alert tcp any any -> any any (msg:"begin"; content:"one two three"; fast_pattern:0,3; sid:1;)
        alert tcp any any -> any any (msg:"middle"; content:"one two three"; fast_pattern:4,3; sid:2;)
        alert tcp any any -> any any (msg:"zeros"; content:"|00 00|abc"; sid:3;)
        alert tcp any any -> any any (msg:"only zeros"; content:"|00 00|"; sid:4;)
        alert tcp any any -> any any (msg:"long"; {long} sid:5;)
        alert tcp any any -> any any (msg:"expression"; pcre:"/o[n]e [a-z]+ three/"; sid:6;)
        alert tcp any any -> any any (msg:"digits"; pcre:"/[0-9]{{180}}[a-z]/"; sid:7;)"#
    );
    let data = format!("..one two three\0\0abc{}z", "0123456789".repeat(20));
    let data = data.as_bytes();
    for cut in 1..data.len() {
        let mut lab = Lab::new(Suricata, &rules);
        let mut connection = Connection::open(&mut lab, 80);
        connection.client(0, &data[..cut]);
        connection.client(cut, &data[cut..]);
        lab.fired.sort_unstable();
        assert_eq!(vec![1, 2, 3, 4, 5, 6, 7], lab.fired, "cut at {cut}");
    }
}

#[test]
fn expression_of_which_nothing_can_be_searched_for_is_asked_of_each_buffer_as_it_grows() {
    let rules = r#"alert http any any -> any any (msg:"e"; http.request_body; pcre:"/[0-9]{9}/"; sid:1;)"#;
    let mut lab = Lab::new(Suricata, rules);
    let mut connection = Connection::open(&mut lab, 80);
    let head = b"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\nthe number 1234";
    connection.client(0, head);
    let pass = connection.client(head.len(), b"56789 and");
    // The rule fires long before the body ends.
    assert_eq!((Verdict::Pass, vec![1]), (pass, lab.fired));
}

//! Tests typical rules of operators, each with a flow that fires the rule and a similar flow that does not.

use crate::lab::{self, Connection, Lab, datagram};
use sluice_inspect::inspector::{Settings, Verdict};
use sluice_inspect::reason::{Reason, Skipped};
use sluice_inspect::signatures::Dialect::{Snort2, Snort3, Suricata};
use sluice_inspect::stream::{self, Exception, Policies, Policy};
use sluice_wire::Direction;

const DROPPED: Verdict = Verdict::Drop(Reason::Signature);

fn contains(hay: &[u8], needle: &[u8]) -> bool {
    hay.windows(needle.len()).any(|window| window == needle)
}

#[test]
fn content_is_found_however_its_stream_is_cut() {
    let rule = r#"drop tcp any any -> any 7777 (msg:"m"; flow:to_server,established; content:"evil|00|thing"; sid:1;)"#;
    let mut lab = Lab::new(Suricata, rule);
    let stream = b"some harmless bytes evil\0thing and more of them";
    for first in 0..stream.len() {
        for second in first..stream.len() {
            lab.fired.clear();
            let mut connection = Connection::open(&mut lab, 7777);
            let pieces = [(0, first), (first, second), (second, stream.len())];
            for (from, to) in pieces.into_iter().filter(|(from, to)| from < to) {
                connection.client(from, &stream[from..to]);
            }
            assert!(
                !contains(&connection.delivered[0], b"evil\0thing"),
                "cut at {first} and {second}"
            );
            assert_eq!(
                Verdict::Drop(Reason::FlowDropped),
                connection.client(stream.len(), b"x")
            );
            let handle = connection.handle;
            lab.inspector.remove_flow(handle);
            assert_eq!(vec![1], lab.fired, "cut at {first} and {second}");
        }
    }
}

#[test]
fn content_is_found_in_every_order_of_segments() {
    let rule = r#"drop tcp any any -> any any (msg:"m"; content:"abcdefgh"; sid:1;)"#;
    let mut lab = Lab::new(Suricata, rule);
    let stream = b"__abcdefgh__";
    let pieces = [(0, 4), (4, 6), (6, 9), (9, 12)];
    let mut orders = vec![vec![]];
    for _ in 0..pieces.len() {
        let longer = orders.iter().flat_map(|order: &Vec<usize>| {
            (0..pieces.len())
                .filter(|next| !order.contains(next))
                .map(|next| [&order[..], &[next]].concat())
        });
        orders = longer.collect();
    }
    assert_eq!(24, orders.len());
    for order in orders {
        lab.fired.clear();
        let mut connection = Connection::open(&mut lab, 80);
        for &place in &order {
            let (from, to) = pieces[place];
            connection.client(from, &stream[from..to]);
        }
        assert!(!contains(&connection.delivered[0], b"abcdefgh"), "{order:?}");
        let handle = connection.handle;
        lab.inspector.remove_flow(handle);
        assert_eq!(vec![1], lab.fired, "{order:?}");
    }
}

#[test]
fn neighbour_one_byte_away_does_not_fire() {
    let rule = r#"drop tcp any any -> any any (msg:"m"; content:"abc"; content:"def"; distance:1; within:3; sid:1;)"#;
    let mut lab = Lab::new(Suricata, rule);
    for (stream, expected) in [
        (b"abc_def", DROPPED),
        (b"abcdef_", Verdict::Pass),
        (b"abd_def", Verdict::Pass),
    ] {
        let mut connection = Connection::open(&mut lab, 80);
        assert_eq!(
            expected,
            connection.client(0, stream),
            "{}",
            String::from_utf8_lossy(stream)
        );
    }
}

#[test]
fn rule_looks_at_its_side_and_port_alone() {
    let rule = r#"alert tcp any any -> any 25 (msg:"m"; flow:to_server; content:"HELO"; sid:1;)"#;
    let mut lab = Lab::new(Suricata, rule);
    Connection::open(&mut lab, 25).server(0, b"HELO");
    Connection::open(&mut lab, 26).client(0, b"HELO");
    assert_eq!(0, lab.fired.len());
    Connection::open(&mut lab, 25).client(0, b"HELO");
    assert_eq!(vec![1], lab.fired);
}

#[test]
fn rule_with_nothing_but_a_short_content_is_asked_on_its_ports_however_the_stream_is_cut() {
    let rules = r#"
        drop tcp any any -> any 79 (msg:"m"; flow:to_server; content:"@"; content:"|0A|"; distance:0; sid:1;)
        drop tcp any 79 -> any any (msg:"m"; flow:to_client; content:"~"; depth:1; sid:2;)
        drop tcp any any -> any 79 (msg:"m"; content:"!"; dsize:3; sid:3;)
        drop udp any any -> any 69 (msg:"m"; content:"|00 01|"; sid:4;)"#;
    let mut lab = Lab::new(Suricata, rules);
    let asked = b"who@is\n";
    for cut in 1..asked.len() {
        for (port, expected) in [(79, vec![1]), (80, vec![])] {
            lab.fired.clear();
            let mut connection = Connection::open(&mut lab, port);
            connection.client(0, &asked[..cut]);
            connection.client(cut, &asked[cut..]);
            assert_eq!(
                expected.is_empty(),
                contains(&connection.delivered[0], asked),
                "cut at {cut}"
            );
            let handle = connection.handle;
            lab.inspector.remove_flow(handle);
            assert_eq!(expected, lab.fired, "cut at {cut}, port {port}");
        }
    }
    let fired = |lab: &mut Lab, port, from_client: &[u8], from_server: &[u8]| {
        lab.fired.clear();
        let mut connection = Connection::open(lab, port);
        connection.client(0, from_client);
        connection.server(0, from_server);
        let handle = connection.handle;
        lab.inspector.remove_flow(handle);
        std::mem::take(&mut lab.fired)
    };
    assert_eq!(vec![2], fired(&mut lab, 79, b"x", b"~home"));
    assert_eq!(Vec::<u32>::new(), fired(&mut lab, 79, b"~home", b"x~"));
    assert_eq!(vec![3], fired(&mut lab, 79, b"a!b", b"x"));
    assert_eq!(Vec::<u32>::new(), fired(&mut lab, 79, b"a!bc", b"x"));
    assert_eq!(Vec::<u32>::new(), fired(&mut lab, 80, b"a!b", b"~home"));
    assert_eq!(
        (DROPPED, Verdict::Pass),
        (datagram(&mut lab, 69, b"\0\x01x"), datagram(&mut lab, 70, b"\0\x01x"))
    );
}

#[test]
fn uri_is_normalised_and_found_before_it_is_delivered() {
    let rule = r#"drop http any any -> any any (msg:"m"; http.method; content:"GET"; http.uri; content:"/etc/passwd"; sid:7;)"#;
    let mut lab = Lab::new(Suricata, rule);
    let request = b"GET /a/../etc/p%61sswd HTTP/1.1\r\nHost: example.org\r\n\r\n";
    for cut in 1..request.len() {
        lab.fired.clear();
        let mut connection = Connection::open(&mut lab, 8080);
        connection.client(0, &request[..cut]);
        connection.client(cut, &request[cut..]);
        // The path is complete only when its line ends, because `..` or blanks may follow.
        assert!(
            !contains(&connection.delivered[0], b"/etc/p%61sswd HTTP/1.1\r\n"),
            "cut at {cut}"
        );
        let handle = connection.handle;
        lab.inspector.remove_flow(handle);
        assert_eq!(vec![7], lab.fired, "cut at {cut}");
    }
    lab.fired.clear();
    let mut connection = Connection::open(&mut lab, 8080);
    connection.client(0, b"POST /etc/passwd HTTP/1.1\r\nHost: example.org\r\n\r\n");
    assert_eq!(Verdict::Pass, connection.last);
}

#[test]
fn rule_that_only_measures_a_buffer_is_asked_of_each_message() {
    let rule = r#"drop tcp any any -> any any (msg:"m"; flow:to_server; urilen:>8; sid:1;)"#;
    let mut lab = Lab::new(Suricata, rule);
    for (uri, expected) in [
        ("/", Verdict::Pass),
        ("/a/b/c/d", Verdict::Pass),
        ("/a/b/c/de", DROPPED),
    ] {
        let request = format!("GET {uri} HTTP/1.1\r\n\r\n");
        let mut connection = Connection::open(&mut lab, 80);
        assert_eq!(expected, connection.client(0, request.as_bytes()), "{uri}");
    }
    assert_eq!(vec![1], lab.fired);
}

#[test]
fn pipelined_requests_are_looked_at_each() {
    let rule =
        r#"alert http any any -> any any (msg:"m"; http.uri; content:"/b"; http.user_agent; content:"curl"; sid:1;)"#;
    let mut lab = Lab::new(Suricata, rule);
    let one = |uri: &str, agent: &str| format!("GET {uri} HTTP/1.1\r\nHost: x\r\nUser-Agent: {agent}\r\n\r\n");
    let mut connection = Connection::open(&mut lab, 80);
    connection.client(0, (one("/a", "curl/8") + &one("/b", "wget")).as_bytes());
    assert_eq!(0, connection.lab.fired.len());
    let mut connection = Connection::open(&mut lab, 80);
    connection.client(0, (one("/a", "wget") + &one("/b", "curl/8")).as_bytes());
    assert_eq!(vec![1], lab.fired);
}

#[test]
fn file_in_a_response_is_found_across_its_chunks() {
    let rule = r#"drop tcp any any -> any any (msg:"m"; flow:to_client,established; file_data; content:"EICAR-STANDARD"; sid:1;)"#;
    let mut lab = Lab::new(Snort3, rule);
    let mut connection = Connection::open(&mut lab, 80);
    connection.client(0, b"GET /file HTTP/1.1\r\nHost: x\r\n\r\n");
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n..EICAR-\r\n";
    assert_eq!(Verdict::Pass, connection.server(0, head));
    assert_eq!(DROPPED, connection.server(head.len(), b"a\r\nSTANDARD..\r\n0\r\n\r\n"));
}

#[test]
fn rule_that_passes_comes_before_one_that_drops() {
    let rules = r#"
drop tcp any any -> any any (msg:"m"; content:"secret"; sid:1;)
pass tcp any any -> any 8443 (msg:"m"; content:"secret"; sid:2;)
"#;
    let mut lab = Lab::new(Suricata, rules);
    assert_eq!(Verdict::Pass, Connection::open(&mut lab, 8443).client(0, b"a secret"));
    assert_eq!(DROPPED, Connection::open(&mut lab, 443).client(0, b"a secret"));
}

#[test]
fn question_of_a_datagram_is_found() {
    let rule = r#"drop dns any any -> any any (msg:"m"; dns.query; content:"evil.example"; nocase; sid:1;)"#;
    let mut lab = Lab::new(Suricata, rule);
    let ask = |name: &str| {
        let mut message = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            message.push(label.len() as u8);
            message.extend_from_slice(label.as_bytes());
        }
        message.extend_from_slice(&[0, 0, 1, 0, 1]);
        message
    };
    assert_eq!(DROPPED, datagram(&mut lab, 53, &ask("www.EVIL.example")));
    assert_eq!(Verdict::Pass, datagram(&mut lab, 53, &ask("www.good.example")));
}

#[test]
fn datagrams_are_searched_by_themselves() {
    let rule = r#"alert udp any any -> any 69 (msg:"m"; content:"|00 01|"; depth:2; content:"passwd"; sid:1;)"#;
    let mut lab = Lab::new(Snort2, rule);
    datagram(&mut lab, 69, b"\x00\x01/etc/");
    datagram(&mut lab, 69, b"passwd\0octet\0");
    assert_eq!(0, lab.fired.len());
    datagram(&mut lab, 69, b"\x00\x01/etc/passwd\0octet\0");
    assert_eq!(vec![1], lab.fired);
}

#[test]
fn flags_are_asked_of_every_segment() {
    let rule = r#"alert tcp any any -> any 22 (msg:"m"; flags:S,12; sid:1;)"#;
    let mut lab = Lab::new(Snort2, rule);
    Connection::open(&mut lab, 22);
    Connection::open(&mut lab, 23);
    assert_eq!(vec![1], lab.fired);
}

#[test]
fn notes_of_one_message_are_asked_in_another() {
    let rules = r#"
alert tcp any any -> any 21 (msg:"m"; flow:to_server; content:"USER root"; flowbits:set,root; flowbits:noalert; sid:1;)
drop tcp any 21 -> any any (msg:"m"; flow:to_client; flowbits:isset,root; content:"230"; depth:3; sid:2;)
"#;
    let mut lab = Lab::new(Suricata, rules);
    let mut connection = Connection::open(&mut lab, 21);
    connection.server(0, b"220 hello\r\n");
    connection.client(0, b"USER root\r\n");
    assert_eq!(DROPPED, connection.server(11, b"230 welcome\r\n"));
    let mut connection = Connection::open(&mut lab, 21);
    connection.client(0, b"USER guest\r\n");
    assert_eq!(Verdict::Pass, connection.server(0, b"230 welcome\r\n"));
    assert_eq!(vec![2], lab.fired);
}

#[test]
fn depth_counts_from_the_message_and_not_from_the_segment() {
    let rule = r#"alert tcp any any -> any 80 (msg:"m"; flow:to_server; content:"GET"; depth:3; sid:1;)"#;
    let mut lab = Lab::new(Suricata, rule);
    let mut connection = Connection::open(&mut lab, 80);
    connection.client(0, b"xx");
    connection.client(2, b"GET");
    assert_eq!(0, connection.lab.fired.len());
    connection.server(0, b"ok");
    connection.client(5, b"GE");
    connection.client(7, b"T ");
    assert_eq!(vec![1], lab.fired);
}

#[test]
fn what_waits_for_the_end_of_a_message_is_asked_when_the_other_side_answers_or_it_ends() {
    let rule = r#"alert tcp any any -> any 79 (msg:"m"; flow:to_server; content:"a"; content:!"c"; within:5; sid:1;)"#;
    let mut lab = Lab::new(Suricata, rule);
    let mut connection = Connection::open(&mut lab, 79);
    connection.client(0, b"ba");
    assert_eq!(0, connection.lab.fired.len());
    connection.server(0, b"?");
    assert_eq!(vec![1], connection.lab.fired);
    connection.lab.fired.clear();
    let mut connection = Connection::open(&mut lab, 79);
    connection.client(0, b"ba");
    connection.finish(Direction::Forward, 2);
    assert_eq!(vec![1], lab.fired);
}

#[test]
fn passive_inspection_reports_and_drops_nothing() {
    let mut lab = Lab::new(
        Suricata,
        r#"drop tcp any any -> any any (msg:"m"; content:"evil"; sid:1;)"#,
    );
    lab.settings.passive = true;
    let mut connection = Connection::open(&mut lab, 80);
    assert_eq!(Verdict::Pass, connection.client(0, b"evil"));
    assert_eq!(Verdict::Pass, connection.client(4, b"more"));
    assert_eq!(vec![1], lab.fired);
}

#[test]
fn flow_found_clean_for_so_long_is_left() {
    let mut lab = Lab::new(
        Suricata,
        r#"drop tcp any any -> any any (msg:"m"; content:"evil"; sid:1;)"#,
    );
    lab.settings.depth = 8;
    let mut connection = Connection::open(&mut lab, 80);
    assert_eq!(Verdict::Pass, connection.client(0, b"1234567"));
    assert_eq!(Verdict::Leave(None), connection.client(7, b"8"));
}

#[test]
fn data_that_no_window_is_left_for_leave_inspection_where_they_may_go_on() {
    let said = [
        (Policy::DropPacket, Verdict::Drop(Reason::NoMemory)),
        (Policy::DropFlow, Verdict::Drop(Reason::NoMemory)),
        (Policy::Pass, Verdict::Leave(Some(Skipped::NoMemory))),
        (Policy::Bypass, Verdict::Leave(Some(Skipped::NoMemory))),
    ];
    for (policy, verdict) in said {
        let mut lab = Lab::new(
            Suricata,
            r#"drop tcp any any -> any any (msg:"m"; content:"evil"; sid:1;)"#,
        );
        let settings = Settings {
            policies: Policies::default().with(Exception::NoMemory, policy),
            ..Settings::default()
        };
        let handle = lab.inspector.create_flow(true).unwrap();
        assert_eq!(
            verdict,
            lab.inspector.apply_policy(handle, Exception::NoMemory, &settings)
        );
        let decided = (policy == Policy::DropFlow).then_some(Verdict::Drop(Reason::FlowDropped));
        assert_eq!(decided, lab.inspector.decided_verdict(handle, 1));
    }
}

#[test]
fn flow_is_settled_by_what_was_searched_unless_a_rule_waits_for_more() {
    let mut lab = Lab::new(
        Suricata,
        r#"drop tcp any any -> any any (msg:"m"; content:"evil"; content:!"good"; within:100; sid:1;)"#,
    );
    let mut connection = Connection::open(&mut lab, 80);
    assert_eq!(Some(0), connection.lab.inspector.cleared_bytes(connection.handle));
    connection.client(0, b"harmless");
    assert_eq!(Some(8), connection.lab.inspector.cleared_bytes(connection.handle));
    connection.client(8, b"evil, so far");
    assert_eq!(None, connection.lab.inspector.cleared_bytes(connection.handle));
}

#[test]
fn flow_that_a_rule_lets_pass_is_skipped_for_that_reason() {
    let mut lab = Lab::new(
        Suricata,
        r#"pass tcp any any -> any any (msg:"m"; content:"friend"; sid:1;)
drop tcp any any -> any any (msg:"m"; content:"evil"; sid:2;)"#,
    );
    let mut connection = Connection::open(&mut lab, 80);
    assert_eq!(Verdict::Pass, connection.client(0, b"friend"));
    assert_eq!(Verdict::Skip(Skipped::Rule), connection.client(6, b"evil"));
}

#[test]
fn content_across_thousands_of_segments_in_any_order_is_found_when_the_last_gap_is_filled() {
    let rules = lab::rules(
        Suricata,
        r#"drop tcp any any -> any any (msg:"m"; content:"MATCHME!"; sid:1;)"#,
    );
    for planted in [true, false] {
        let streams = stream::StreamCapacity {
            reassembly: 24 << 20,
            share: 12 << 20,
            ..stream::StreamCapacity::of(16)
        };
        let mut lab = Lab::with(rules.clone(), streams);
        let (count, length) = (4001, 1000);
        let mut bytes: Vec<u8> = (0..count * length).map(|place| b'a' + (place % 23) as u8).collect();
        if planted {
            // The pattern crosses a segment boundary.
            bytes[2_999_996..3_000_004].copy_from_slice(b"MATCHME!");
        }
        let mut connection = Connection::open(&mut lab, 80);
        // This segment advertises the server's window.
        connection.server(0, b"");
        // The first segment is sent last, and the other segments are sent in an order with large jumps.
        for number in (1..count).map(|number| number * 1237 % count) {
            let place = number * length;
            assert_eq!(Verdict::Pass, connection.client(place, &bytes[place..place + length]));
        }
        assert_eq!(0, connection.lab.inspector.counters.searched);
        let last = connection.client(0, &bytes[..length]);
        assert_eq!(planted, last == DROPPED, "{last:?}");
        if !planted {
            assert_eq!(bytes.len() as u64, connection.lab.inspector.counters.searched);
            assert!(bytes == connection.delivered[0]);
        }
    }
}

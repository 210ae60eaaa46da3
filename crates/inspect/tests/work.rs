//! Tests the work limits of bodies. Decoding stops when the work budget of the packet is exhausted, even in the middle
//! of the packet.

use std::io::Write;

use crate::lab::{CLIENT, Connection, Lab};
use flate2::Compression;
use flate2::write::GzEncoder;
use sluice_inspect::inspector::Verdict;
use sluice_inspect::protocols::{Anomaly, Http, MessageEvent, ParserCapacity, ParserPools, Slot};
use sluice_inspect::reason::{Reason, Skipped};
use sluice_inspect::signature::Buffer;
use sluice_inspect::signatures::Dialect::Suricata;
use sluice_inspect::stream::{Exception, Policy};
use sluice_inspect::work_budget::{MAX_TOKENS, PACKET_BUDGET, TOKENS_PER_BYTE, TOKENS_PER_PACKET, WorkTokens};

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn br(content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = brotli::CompressorWriter::new(&mut out, 4096, 5, 22);
    encoder.write_all(content).unwrap();
    drop(encoder);
    out
}

fn response(body: &[u8]) -> Vec<u8> {
    encoded_response("gzip", body)
}

fn encoded_response(encoding: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// An encoder with its name.
type Encoder = (&'static str, fn(&[u8]) -> Vec<u8>);

const ENCODERS: [Encoder; 2] = [("gzip", gzip), ("br", br)];

/// Number of body bytes that were passed to the search, for each packet.
fn brought(store: &mut ParserPools, packets: &[&[u8]]) -> Vec<usize> {
    let (mut http, mut credit) = (Http::default(), WorkTokens::default());
    let each = packets.iter().map(|packet| {
        let mut bytes = 0;
        let begun = store.work.start(credit, packet.len());
        http.response(store, packet, &mut |_: Slot<'_>, piece| {
            if let MessageEvent::Grew {
                buffer: Buffer::FileData,
                fresh,
                ..
            } = piece
            {
                bytes += fresh.len();
            }
        });
        credit = store.work.end(begun);
        bytes
    });
    let each = each.collect();
    http.release(store);
    each
}

fn store() -> ParserPools {
    ParserPools::new(&ParserCapacity {
        messages: 4,
        ..ParserCapacity::default()
    })
}

/// A decoder step may exceed the remaining budget by up to this number of bytes.
const STEP: usize = 4096;

#[test]
fn many_small_bombs_in_one_packet_bring_no_more_than_a_packet_may() {
    for (encoding, encode) in ENCODERS {
        let response = |content: &[u8]| encoded_response(encoding, &encode(content));
        let bomb = response(&[b'e'; 60_000]);
        let packet = bomb.repeat(1460 / bomb.len());
        let mut store = store();
        let brought = brought(&mut store, &[&packet, &response(b"as ever")]);
        assert!(
            brought[0] <= PACKET_BUDGET as usize + STEP + packet.len(),
            "{brought:?}"
        );
        assert_eq!(7, brought[1], "the next packet has its own");
        assert!(store.anomalies.of(Anomaly::WorkExceeded) >= 1);
    }
}

#[test]
fn one_bomb_below_the_stride_brings_no_more_than_a_packet_may() {
    for (encoding, encode) in ENCODERS {
        let bomb = encode(&[0; 200_000]);
        assert!(bomb.len() < 256, "{}", bomb.len());
        let mut store = store();
        let brought = brought(&mut store, &[&encoded_response(encoding, &bomb)]);
        assert!(brought[0] <= PACKET_BUDGET as usize + STEP, "{brought:?}");
        assert_eq!(1, store.anomalies.of(Anomaly::WorkExceeded));
    }
}

#[test]
fn tables_of_brotli_are_paid_for() {
    // Prefix codes with the longest description that fits in a block of few bytes, from the corpus of the fuzz target.
    let corpus = include_bytes!("../../../fuzz/corpus/http/brotli-codes");
    let mut pieces = Vec::new();
    let mut rest = &corpus[..];
    while let Some((&start, all)) = rest.split_first() {
        let (piece, behind) = all.split_at(usize::from(start & 0x7f));
        rest = behind;
        if start & 0x80 != 0 {
            pieces.extend_from_slice(piece);
        }
    }
    let mut store = store();
    assert!(
        brought(&mut store, &[&pieces])[0] < pieces.len(),
        "what is lost is not searched"
    );
    assert_eq!(1, store.anomalies.of(Anomaly::WorkExceeded));
}

#[test]
fn blocks_and_members_with_nothing_in_them_are_not_decoded_without_end() {
    let member = gzip(b"");
    let body = [member.repeat(1400 / member.len()), gzip(b"behind them")].concat();
    let mut store = store();
    brought(&mut store, &[&response(&body)]);
    assert_eq!(1, store.anomalies.of(Anomaly::WorkExceeded));
}

#[test]
fn flow_brings_no_more_than_its_bytes_earn() {
    let bombs = response(&gzip(&vec![b'e'; 60_000]));
    let packets = vec![&bombs[..]; 1000];
    let mut store = store();
    let brought: usize = brought(&mut store, &packets).iter().sum();
    let each = TOKENS_PER_PACKET as usize + bombs.len() * TOKENS_PER_BYTE as usize + STEP + 256;
    let earned = MAX_TOKENS as usize + packets.len() * each;
    assert!(brought <= earned, "{brought} of {earned}");
    assert!(brought > MAX_TOKENS as usize, "{brought}");
}

#[test]
fn text_that_is_compressed_well_is_decoded_whole() {
    let text: Vec<u8> = (0..600_000u32)
        .flat_map(|n| format!("<tr><td>{}</td></tr>\n", n % 211).into_bytes())
        .take(4 << 20)
        .collect();
    // 4 MiB of text that compresses to a tenth. Repeated text compresses better, so incompressible bytes are added.
    let (mut content, mut random) = (Vec::new(), 1u32);
    for part in text.chunks(4096) {
        content.extend(part);
        content.extend((0..300).map(|_| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 24) as u8
        }));
    }
    for (encoding, encode) in ENCODERS {
        let body = encoded_response(encoding, &encode(&content));
        assert!(
            (8..15).contains(&(content.len() / body.len())),
            "{}",
            content.len() / body.len()
        );
        let packets: Vec<&[u8]> = body.chunks(1460).collect();
        let mut store = store();
        assert_eq!(content.len(), brought(&mut store, &packets).iter().sum::<usize>());
        assert_eq!(0, store.anomalies.of(Anomaly::WorkExceeded));
    }
}

#[test]
fn flow_whose_packet_causes_too_much_work_goes_as_its_policy_says() {
    let bomb = response(&gzip(&vec![b'e'; 100_000]));
    let rule = r#"drop http any any -> any any (msg:"m"; flow:to_client; file.data; content:"behind"; sid:1;)"#;
    let ended = (Verdict::Drop(Reason::Work), Verdict::Drop(Reason::FlowDropped));
    let found = (Verdict::Pass, Verdict::Drop(Reason::Signature));
    for (policy, passive, (first, second)) in [
        (None, false, ended),
        (Some(Policy::DropFlow), false, ended),
        (Some(Policy::DropPacket), false, ended),
        (Some(Policy::Pass), false, found),
        (Some(Policy::DropFlow), true, (Verdict::Pass, Verdict::Pass)),
        (
            Some(Policy::Bypass),
            false,
            (Verdict::Leave(Some(Skipped::Work)), Verdict::Drop(Reason::Signature)),
        ),
    ] {
        let mut lab = Lab::new(Suricata, rule);
        lab.settings.passive = passive;
        if let Some(policy) = policy {
            lab.settings.policies = lab.settings.policies.with(Exception::Work, policy);
        }
        let mut connection = Connection::open(&mut lab, 80);
        connection.client(0, b"GET / HTTP/1.1\r\n\r\n");
        assert_eq!(first, connection.server(0, &bomb), "{policy:?}");
        let next = response(&gzip(b"what is behind it"));
        assert_eq!(second, connection.server(bomb.len(), &next), "{policy:?}");
        let counters = *connection.lab.inspector.streams().counters();
        assert_eq!(1, counters.count_of(Exception::Work), "{policy:?}");
        let finds = passive || second == Verdict::Drop(Reason::Signature);
        assert_eq!(vec![1; usize::from(finds)], connection.lab.fired, "{policy:?}");
    }
}

#[test]
fn rules_that_a_sender_makes_expensive_spend_the_work_of_a_packet() {
    // The prefilter reports each rule because of the rule's content. The rule's expression takes the maximum number of
    // steps.
    let rules: String = (0..300)
        .map(|number| {
            format!(
                "alert tcp any any -> any any (msg:\"m\"; content:\"User-Agent\"; pcre:\"/(a|aa)+[0-9]{{{}}}/\"; sid:{};)\n",
                number % 9 + 1,
                number + 1
            )
        })
        .collect();
    let mut lab = Lab::new(Suricata, &rules);
    let mut connection = Connection::open(&mut lab, 80);
    let expensive = [&b"User-Agent: "[..], &[b'a'; 400], b"b"].concat();
    let usual = b"User-Agent: curl";
    assert_eq!(Verdict::Pass, connection.client(0, usual));
    assert_eq!(Verdict::Drop(Reason::Work), connection.client(usual.len(), &expensive));
    assert_eq!(
        1,
        connection.lab.inspector.streams().counters().count_of(Exception::Work)
    );
}

#[test]
fn rules_that_are_asked_about_every_packet_spend_nothing_where_they_take_few_steps() {
    let rules: String = (1..=200)
        .map(|number| {
            format!("alert tcp any any -> any any (msg:\"m\"; pcre:\"/^[0-9]{{{number}}}x/\"; sid:{number};)\n")
        })
        .collect();
    let mut lab = Lab::new(Suricata, &rules);
    let mut connection = Connection::open(&mut lab, 80);
    assert_eq!(Verdict::Pass, connection.client(0, &[b'7'; 1400]));
    assert_eq!(
        0,
        connection.lab.inspector.streams().counters().count_of(Exception::Work)
    );
}

/// Repeats a rule with `sid`s 1 to `count`.
fn many(count: usize, rule: &str) -> String {
    (1..=count)
        .map(|number| rule.replace("SID", &number.to_string()) + "\n")
        .collect()
}

/// Whether the last packet of a connection, and no earlier packet, is dropped because of its work budget.
fn last_is_too_much(rules: &str, port: u16, said: &[(bool, &[u8])]) -> bool {
    let mut lab = Lab::new(Suricata, rules);
    let mut connection = Connection::open(&mut lab, port);
    let mut places = [0; 2];
    let mut verdicts = Vec::new();
    for (client, bytes) in said {
        let place = &mut places[usize::from(*client)];
        verdicts.push(match client {
            true => connection.client(*place, bytes),
            false => connection.server(*place, bytes),
        });
        *place += bytes.len();
    }
    let (last, before) = verdicts.split_last().expect("a packet");
    assert!(before.iter().all(|verdict| *verdict == Verdict::Pass), "{verdicts:?}");
    *last == Verdict::Drop(Reason::Work)
}

const URI: &str =
    r#"alert http any any -> any any (msg:"m"; http.uri; content:"/aaa"; content:"zz"; distance:0; sid:SID;)"#;

#[test]
fn requests_behind_one_another_in_a_packet_spend_its_work() {
    let request = b"GET /aaa HTTP/1.1\r\nHost: a\r\n\r\n";
    for (requests, is_too_much) in [(4, false), (1460 / request.len(), true)] {
        let said = request.repeat(requests);
        assert_eq!(
            is_too_much,
            last_is_too_much(&many(20, URI), 80, &[(true, &said)]),
            "{requests}"
        );
    }
}

#[test]
fn rules_that_wait_are_asked_again_where_what_they_look_in_grows() {
    let rule =
        r#"alert http any any -> any any (msg:"m"; http.header; content:"x-a"; content:"zz"; distance:0; sid:SID;)"#;
    let rules = many(40, rule);
    let mut said: Vec<(bool, &[u8])> = vec![(true, b"GET / HTTP/1.1\r\nx-a: b\r\n")];
    said.extend([(true, &b"c: d\r\n"[..]); 50]);
    said.push((true, b"x: zz\r\n\r\n"));
    assert!(!last_is_too_much(&rules, 80, &said));
    let mut lab = Lab::new(Suricata, &rules);
    let mut connection = Connection::open(&mut lab, 80);
    let mut at = 0;
    for (_, bytes) in &said {
        connection.client(at, bytes);
        at += bytes.len();
    }
    assert_eq!((1..=40).collect::<Vec<_>>(), connection.lab.fired);
    // Pending rules for the same buffer are charged like other rules that are evaluated.
    let mut connection = Connection::of(&mut lab, CLIENT, [40_001, 80]);
    connection.client(0, said[0].1);
    let before = connection.lab.inspector.counters.work_units;
    connection.client(said[0].1.len(), said[1].1);
    let again = connection.lab.inspector.counters.work_units - before;
    assert!(again > 40 * 40, "{again} units for 40 rules that wait");
}

#[test]
fn protocols_that_a_hello_offers_spend_work() {
    let rule = r#"alert tls any any -> any any (msg:"m"; tls.alpn; content:"zz"; sid:SID;)"#;
    let names = b"\x01a".repeat(600);
    let list = [&(names.len() as u16).to_be_bytes()[..], &names].concat();
    let extension = [&[0, 16][..], &(list.len() as u16).to_be_bytes(), &list].concat();
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0, 0, 2, 0x13, 1, 1, 0],
        &(extension.len() as u16).to_be_bytes(),
        &extension,
    ]
    .concat();
    let hello = [&[1, 0][..], &(body.len() as u16).to_be_bytes(), &body].concat();
    let record = [&[22, 3, 1][..], &(hello.len() as u16).to_be_bytes(), &hello].concat();
    assert!(last_is_too_much(&many(1, rule), 443, &[(true, &record)]));
}

#[test]
fn fields_of_http2_that_a_table_makes_long_spend_work() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let frame = |id: u8, block: &[u8]| {
        let [_, high, middle, low] = (block.len() as u32).to_be_bytes();
        [&[high, middle, low, 1, 5, 0, 0, 0, id], block].concat()
    };
    let long = [&b"\x82\x84\x86\x40\x01a\x7f\x81\x07"[..], &[b'v'; 1024]].concat();
    let again = [&b"\x82\x84\x86"[..], &[0xbe; 600]].concat();
    let said = [&preface[..], &frame(1, &long)].concat();
    let rules = many(1, URI);
    assert!(last_is_too_much(
        &rules,
        80,
        &[(true, &said), (true, &frame(3, &again))]
    ));
    let few = [&b"\x82\x84\x86"[..], &[0xbe; 10]].concat();
    assert!(!last_is_too_much(&rules, 80, &[(true, &said), (true, &frame(3, &few))]));
}

#[test]
fn what_a_rule_excludes_is_looked_for_at_as_many_places_as_the_packet_may_cost() {
    let rule = r#"alert tcp any any -> any any (msg:"m"; content:"begin"; content:!"ab"; endswith; sid:SID;)"#;
    let said = [&b"begin"[..], &b"ab".repeat(700), b"."].concat();
    assert!(last_is_too_much(&many(10, rule), 7, &[(true, &said)]));
    assert!(!last_is_too_much(&many(10, rule), 7, &[(true, &said[..40])]));
}

#[test]
fn base64_and_changed_buffers_spend_work() {
    let base64 = r#"alert tcp any any -> any any (msg:"m"; content:"begin"; base64_decode:bytes 1024, offset 0, relative; base64_data; content:"zz"; sid:SID;)"#;
    let said = [&b"begin"[..], &[b'A'; 1400]].concat();
    assert!(last_is_too_much(&many(100, base64), 7, &[(true, &said)]));
    assert!(!last_is_too_much(&many(100, base64), 7, &[(true, &said[..20])]));
    let digest = r#"alert http any any -> any any (msg:"m"; http.uri; to_sha256; content:"|00 01 02|"; sid:SID;)"#;
    let said = [&b"GET /"[..], &[b'A'; 1000], b" HTTP/1.1\r\n\r\n"].concat();
    assert!(last_is_too_much(&many(60, digest), 80, &[(true, &said)]));
    assert!(!last_is_too_much(
        &many(60, digest),
        80,
        &[(true, b"GET / HTTP/1.1\r\n\r\n")]
    ));
}

#[test]
fn transfers_of_ftp_that_no_connection_is_agreed_on_for_spend_work() {
    let rule = r#"alert tcp any any -> any any (msg:"m"; content:"zz"; sid:SID;)"#;
    let hello: [(bool, &[u8]); 2] = [(false, b"220 a\r\n"), (true, b"USER a\r\n")];
    for (count, is_too_much) in [(10, false), (230, true)] {
        let said = b"RETR\r\n".repeat(count);
        let said = [&hello[..], &[(true, &said)]].concat();
        assert_eq!(is_too_much, last_is_too_much(&many(1, rule), 21, &said), "{count}");
    }
}

#[test]
fn usual_requests_and_answers_cause_a_small_part_of_what_they_may() {
    let words = [
        "html",
        "Mozilla",
        "example",
        "script",
        "User-Agent",
        "gzip",
        "index",
        "document",
    ];
    let rules: String = (0..200)
        .map(|number| {
            let (buffer, word) = (["http.header", "file.data", "http.uri"][number % 3], words[number % words.len()]);
            let sid = number + 1;
            format!("alert http any any -> any any (msg:\"m\"; {buffer}; content:\"{word}\"; content:\"never {number}\"; distance:0; sid:{sid};)\n")
        })
        .collect();
    let request = b"GET /index.php?id=42 HTTP/1.1\r\nHost: www.example.org\r\nUser-Agent: Mozilla/5.0\r\nAccept-Encoding: gzip\r\n\r\n";
    let page = b"<html><script>document.write('example')</script></html>".repeat(20);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", page.len());
    let response = [head.as_bytes(), &page].concat();
    let mut lab = Lab::new(Suricata, &rules);
    let mut connection = Connection::open(&mut lab, 80);
    for number in 0..1_000 {
        assert_eq!(Verdict::Pass, connection.client(number * request.len(), request));
        assert_eq!(Verdict::Pass, connection.server(number * response.len(), &response));
    }
    let worked = connection.lab.inspector.counters.work_units / 2_000;
    assert!(
        (100..u64::from(PACKET_BUDGET) / 4).contains(&worked),
        "{worked} units for each packet"
    );
}

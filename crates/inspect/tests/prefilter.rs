//! Tests the selection of patterns, and that the prefilter never misses a matching rule.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use crate::made::{self, content, expression, found, payload, rule};
use proptest::collection::vec;
use proptest::prelude::*;
use sluice_inspect::Signature;
use sluice_inspect::prefilter::{PatternClass, PatternSet, Prefilter};
use sluice_inspect::signature::{
    Bits, Buffer, Condition, Content, Expression, FastPattern, Flags, FlowState, Ports, Protocol, Service, Toward,
};

fn compiled(rules: &[Signature]) -> Prefilter {
    Prefilter::compile(rules, &mut |_, _| {}).unwrap()
}

fn rules_in(prefilter: &Prefilter, class: PatternClass, data: &[u8]) -> Vec<u32> {
    found(prefilter, class, data).into_iter().collect()
}

const TO_SERVER: PatternClass = PatternClass::Stream(Toward::Server);
const TO_CLIENT: PatternClass = PatternClass::Stream(Toward::Client);

#[test]
fn longest_content_is_searched_for_unless_the_rule_chooses() {
    let chosen = Content {
        fast: FastPattern::Chosen,
        ..content(Buffer::Payload, b"abc")
    };
    let part = Content {
        fast: FastPattern::Part(2, 3),
        ..content(Buffer::Payload, b"__xyz__")
    };
    let prefilter = compiled(&[
        rule(1, Protocol::Udp, vec![payload(b"abc"), payload(b"longer than abc")]),
        rule(
            2,
            Protocol::Udp,
            vec![Condition::Content(chosen), payload(b"longer than all")],
        ),
        rule(
            3,
            Protocol::Udp,
            vec![Condition::Content(part), payload(b"longer than it")],
        ),
    ]);
    assert_eq!(vec![1], rules_in(&prefilter, PatternClass::Datagram, b"abc"));
    assert_eq!(
        vec![0, 1],
        rules_in(&prefilter, PatternClass::Datagram, b"longer than abc")
    );
    assert_eq!(vec![2], rules_in(&prefilter, PatternClass::Datagram, b"xyz"));
    let group = prefilter.group(PatternClass::Datagram).unwrap();
    assert_eq!((3, 15, 14), (group.shortest(), group.longest(), group.overlap()));
}

#[test]
fn rare_bytes_win_over_many_common_ones_and_a_small_buffer_over_the_payload() {
    let uri = Condition::Content(content(Buffer::HttpUri, b"/cgi-bin/x"));
    let method = Condition::Content(content(Buffer::HttpMethod, b"OPTIONS"));
    let prefilter = compiled(&[
        rule(1, Protocol::Udp, vec![payload(&[0; 14]), payload(b"\x90\x91\x92\x93")]),
        rule(2, Protocol::Tcp, vec![payload(b"\r\nUser-Agent: "), payload(b"evil")]),
        rule(3, Protocol::Tcp, vec![payload(b"/cgi-bin/xyz"), uri, method]),
    ]);
    assert_eq!(
        vec![0],
        rules_in(&prefilter, PatternClass::Datagram, b"\x90\x91\x92\x93")
    );
    assert_eq!(vec![1], rules_in(&prefilter, TO_CLIENT, b"evil"));
    assert_eq!(
        vec![2],
        rules_in(&prefilter, PatternClass::Buffer(Buffer::HttpUri), b"/cgi-bin/x")
    );
    assert!(prefilter.group(PatternClass::Buffer(Buffer::HttpMethod)).is_none());
}

#[test]
fn rules_are_searched_for_in_the_data_that_they_are_about() {
    let mut toward_server = rule(2, Protocol::Tcp, vec![payload(b"text")]);
    toward_server.flow.direction = Some(Toward::Server);
    let mut unordered = rule(3, Protocol::Tcp, vec![payload(b"text")]);
    unordered.flow = FlowState {
        stream: Some(false),
        ..FlowState::default()
    };
    let sized = Condition::PayloadSize(0..=10);
    let flags = Condition::Flags(Flags {
        mode: Bits::All,
        flags: 8,
        ignored: 0,
    });
    let prefilter = compiled(&[
        rule(1, Protocol::Tcp, vec![payload(b"text")]),
        toward_server,
        unordered,
        rule(4, Protocol::Tcp, vec![payload(b"text"), sized]),
        rule(5, Protocol::Tcp, vec![payload(b"text"), flags]),
        rule(6, Protocol::Ip, vec![payload(b"text")]),
        rule(7, Protocol::Icmp, vec![payload(b"text")]),
        rule(8, Protocol::Application, vec![payload(b"text")]),
        rule(9, Protocol::Icmp, vec![Condition::IcmpType(8..=8)]),
    ]);
    assert_eq!(vec![0, 1, 5, 7], rules_in(&prefilter, TO_SERVER, b"a text"));
    assert_eq!(vec![0, 5, 7], rules_in(&prefilter, TO_CLIENT, b"a text"));
    assert_eq!(vec![2, 3, 4], rules_in(&prefilter, PatternClass::Packet, b"a text"));
    assert_eq!(vec![5, 6, 7], rules_in(&prefilter, PatternClass::Datagram, b"a text"));
    assert_eq!([8], *prefilter.unconditional(Protocol::Icmp));
    assert!(prefilter.unconditional(Protocol::Tcp).is_empty());
    // All rules of this test have the same pattern, which is stored once.
    assert!(prefilter.groups().all(|group| group.patterns() == 1));
}

#[test]
fn rule_with_nothing_but_an_expression_is_searched_for_by_what_all_its_matches_hold() {
    let nested = expression("(a+)(?=b)\\1?b[0-9]{2}$");
    let anchored = Expression {
        relative: true,
        ..expression("^from there")
    };
    let prefilter = compiled(&[
        rule(1, Protocol::Tcp, vec![Condition::Expression(nested)]),
        rule(2, Protocol::Tcp, vec![payload(b"literal")]),
        rule(3, Protocol::Tcp, vec![Condition::Expression(anchored)]),
        rule(4, Protocol::Tcp, vec![Condition::Expression(expression("[0-9]{9}"))]),
        rule(5, Protocol::Tcp, vec![payload(b"\0\0\0")]),
    ]);
    assert_eq!([3, 4], *prefilter.without_pattern(TO_SERVER));
    assert_eq!(3, prefilter.group(TO_SERVER).unwrap().patterns());
    assert_eq!(vec![0], rules_in(&prefilter, TO_SERVER, b"...aaab12"));
    assert_eq!(vec![1], rules_in(&prefilter, TO_SERVER, b"a literal"));
    assert_eq!(
        vec![2],
        rules_in(&prefilter, TO_SERVER, b"not its own place: from there")
    );
    assert_eq!([0; 0], *prefilter.unconditional(Protocol::Tcp));
}

#[test]
fn content_of_a_byte_or_two_is_not_searched_for_where_few_ports_rule_most_packets_out() {
    let on = |line, ranges: &[RangeInclusive<u16>], bytes: &[u8]| {
        let mut rule = rule(line, Protocol::Tcp, vec![payload(bytes)]);
        rule.flow.direction = Some(Toward::Server);
        rule.header.destination.ports = Ports(ranges.into());
        rule
    };
    let (mut http, mut bidirectional) = (on(5, &[80..=80], b"~"), on(6, &[79..=79], b"~"));
    http.header.services = [Service::Http].into();
    bidirectional.header.bidirectional = true;
    let mut news = on(7, &[119..=119], b"${");
    // This service can't be identified, so only ports select the rule.
    news.header.services = [Service::Other("nntp")].into();
    let rules = [
        on(1, &[79..=79], b"~"),
        on(2, &[79..=79], b"~~~"),
        on(3, &[], b"~"),
        on(4, &[1024..=65535], b"~"),
        http,
        bidirectional,
        news,
    ];
    let prefilter = compiled(&rules);
    assert_eq!([0, 6], *prefilter.without_pattern(TO_SERVER));
    assert!(
        prefilter.without_pattern(TO_CLIENT).is_empty() && prefilter.without_pattern(PatternClass::Packet).is_empty()
    );
    assert_eq!(vec![1, 2, 3, 4, 5], rules_in(&prefilter, TO_SERVER, b"~~~"));
}

#[test]
fn what_must_be_absent_or_is_decoded_later_is_not_searched_for() {
    let negated = Content {
        negated: true,
        fast: FastPattern::Chosen,
        ..content(Buffer::Payload, b"a long negated content")
    };
    let decoded = content(Buffer::Base64, b"a long decoded content");
    let absent = Expression {
        negated: true,
        ..expression("a long negated expression")
    };
    let encoded = Expression {
        buffer: Buffer::Base64,
        ..expression("a long decoded expression")
    };
    let others = [
        Condition::Content(negated),
        Condition::Content(decoded),
        Condition::Expression(absent),
        Condition::Expression(encoded),
    ];
    let mut rules: Vec<Signature> = (1..)
        .zip(&others)
        .map(|(line, other)| rule(line, Protocol::Udp, vec![other.clone()]))
        .collect();
    rules.push(rule(5, Protocol::Udp, [&others[..], &[payload(b"abc")]].concat()));
    let prefilter = compiled(&rules);
    assert_eq!([0, 1, 2, 3], *prefilter.unconditional(Protocol::Udp));
    assert_eq!(1, prefilter.groups().count());
    assert_eq!(vec![4], rules_in(&prefilter, PatternClass::Datagram, b"abc"));
}

#[test]
fn progress_ends_with_all_patterns_done() {
    let rules = made::drawn(50);
    let mut seen = Vec::new();
    Prefilter::compile(&rules, &mut |done, total| seen.push((done, total))).unwrap();
    let (done, total) = *seen.last().unwrap();
    assert_eq!(done, total);
    assert!(total >= 50, "{total}");
    assert!(seen.is_sorted());
}

#[test]
fn fingerprint_tells_what_is_searched_for_and_nothing_else() {
    let one = PatternSet::of(&[rule(1, Protocol::Tcp, vec![payload(b"abc")])]).fingerprint();
    let mut same = rule(1, Protocol::Tcp, vec![payload(b"abc")]);
    same.message = "other words".into();
    assert_eq!(one, PatternSet::of(&[same]).fingerprint());
    let others = [
        rule(1, Protocol::Tcp, vec![payload(b"abd")]),
        rule(1, Protocol::Udp, vec![payload(b"abc")]),
        rule(1, Protocol::Tcp, vec![]),
        rule(1, Protocol::Tcp, vec![Condition::Expression(expression("a[bc]c"))]),
    ];
    for other in others {
        assert_ne!(one, PatternSet::of(&[other]).fingerprint());
    }
}

#[test]
fn every_content_of_real_rules_is_found() {
    let rules = made::real();
    if rules.is_empty() {
        return;
    }
    let prefilter = compiled(&rules);
    let group = prefilter.group(TO_SERVER).unwrap();
    println!(
        "{} rules, {} patterns of {} to {:?} bytes, database {}, stream {} bytes",
        rules.len(),
        group.patterns(),
        group.shortest(),
        group.longest(),
        group.size(),
        group.stream().unwrap().stream_size(),
    );
    // All contents of all rules, concatenated.
    let mut data = Vec::new();
    for condition in rules.iter().flat_map(|rule| &rule.conditions) {
        if let Condition::Content(content) = condition {
            data.extend_from_slice(&content.bytes);
            data.push(b'\n');
        }
    }
    let expected: BTreeSet<u32> = (0..rules.len() as u32).collect();
    let mut asked = found(&prefilter, TO_SERVER, &data);
    asked.extend(prefilter.without_pattern(TO_SERVER));
    assert_eq!(expected, asked);
}

const SOME_BUFFERS: [Buffer; 5] = [
    Buffer::Payload,
    Buffer::HttpUri,
    Buffer::HttpMethod,
    Buffer::FileData,
    Buffer::Base64,
];

fn any_content() -> impl Strategy<Value = Content> {
    let bytes = vec(prop::sample::select(&b"abAB\x00"[..]), 1..5);
    let fast = prop_oneof![
        4 => Just(FastPattern::Unspecified),
        1 => Just(FastPattern::Chosen),
        1 => Just(FastPattern::Only),
        1 => (0u16..4, 0u16..4).prop_map(|(first, count)| FastPattern::Part(first, count)),
    ];
    let buffer = prop::sample::select(&SOME_BUFFERS[..]);
    (buffer, bytes, any::<bool>(), prop::bool::weighted(0.2), fast).prop_map(
        |(buffer, bytes, nocase, negated, fast)| Content {
            nocase,
            negated,
            fast,
            ..content(buffer, &bytes)
        },
    )
}

fn any_rule() -> impl Strategy<Value = Signature> {
    let protocol = prop::sample::select(
        &[
            Protocol::Tcp,
            Protocol::Udp,
            Protocol::Icmp,
            Protocol::Ip,
            Protocol::Application,
            Protocol::Number(6),
            Protocol::Number(47),
        ][..],
    );
    let direction = prop_oneof![Just(None), Just(Some(Toward::Server)), Just(Some(Toward::Client))];
    let expressions = vec(
        prop::sample::select(&["a+b", "^A", "b$", "(?i)ab|ba", "B\\x00"][..]),
        0..2,
    );
    (
        protocol,
        direction,
        vec(any_content(), 0..4),
        expressions,
        any::<bool>(),
    )
        .prop_map(|(protocol, direction, contents, expressions, sized)| {
            let mut conditions: Vec<Condition> = contents.into_iter().map(Condition::Content).collect();
            conditions.extend(
                expressions
                    .into_iter()
                    .map(|text| Condition::Expression(expression(text))),
            );
            if sized {
                conditions.push(Condition::PayloadSize(0..=2000));
            }
            let mut rule = rule(1, protocol, conditions);
            rule.flow.direction = direction;
            rule
        })
}

/// Classes in which a rule's payload is searched, derived from the rule independently of the prefilter.
fn payload_classes(rule: &Signature) -> Vec<PatternClass> {
    let tcp = !matches!(
        rule.header.protocol,
        Protocol::Udp | Protocol::Icmp | Protocol::Number(47)
    );
    let other = !matches!(rule.header.protocol, Protocol::Tcp | Protocol::Number(6));
    let sized = rule
        .conditions
        .iter()
        .any(|condition| matches!(condition, Condition::PayloadSize(_)));
    let mut classes = Vec::new();
    for toward in [Toward::Server, Toward::Client] {
        if tcp && !sized && rule.flow.direction.is_none_or(|direction| direction == toward) {
            classes.push(PatternClass::Stream(toward));
        }
    }
    if tcp && sized {
        classes.push(PatternClass::Packet);
    }
    if other {
        classes.push(PatternClass::Datagram);
    }
    classes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// A rule is a candidate in each of its classes if the data contains all of its contents and expressions.
    #[test]
    fn rule_whose_contents_are_all_there_is_a_candidate(
        rules in vec(any_rule(), 1..25),
        data in vec(vec(prop::sample::select(&b"abAB\x00"[..]), 0..40), SOME_BUFFERS.len()),
    ) {
        let prefilter = compiled(&rules);
        let of = |buffer: Buffer| &data[SOME_BUFFERS.iter().position(|&some| some == buffer).unwrap()];
        let occurs = |content: &Content| {
            of(content.buffer).windows(content.bytes.len()).any(|part| match content.nocase {
                true => part.eq_ignore_ascii_case(&content.bytes),
                false => *part == *content.bytes,
            })
        };
        // Reference search for the generated expressions, without a library.
        let matches = |pattern: &str| {
            let payload = of(Buffer::Payload);
            let holds = |text: &[u8]| payload.windows(text.len()).any(|part| part == text);
            match pattern {
                "a+b" => holds(b"ab"),
                "^A" => payload.starts_with(b"A"),
                "b$" => payload.ends_with(b"b"),
                "(?i)ab|ba" => holds(&b"ab"[..]) || payload.windows(2).any(|part| {
                    part.eq_ignore_ascii_case(b"ab") || part.eq_ignore_ascii_case(b"ba")
                }),
                _ => holds(b"B\x00"),
            }
        };
        // Decoded buffers exist only during the evaluation of a rule.
        let buffers: BTreeSet<u32> = SOME_BUFFERS[1..SOME_BUFFERS.len() - 1]
            .iter()
            .flat_map(|&buffer| {
                let mut found = found(&prefilter, PatternClass::Buffer(buffer), of(buffer));
                found.extend(prefilter.without_pattern(PatternClass::Buffer(buffer)));
                found
            })
            .collect();
        let payload = [TO_SERVER, TO_CLIENT, PatternClass::Packet, PatternClass::Datagram]
            .map(|class| (class, found(&prefilter, class, of(Buffer::Payload))));
        for (number, rule) in (0..).zip(&rules) {
            let holds = rule.conditions.iter().all(|condition| match condition {
                Condition::Content(content) => content.negated || occurs(content),
                Condition::Expression(expression) => matches(&expression.pattern),
                _ => true,
            });
            if !holds || prefilter.unconditional(rule.header.protocol).contains(&number) {
                continue;
            }
            for class in payload_classes(rule) {
                let found = payload.iter().any(|(of, found)| *of == class && found.contains(&number));
                let in_payload = found || prefilter.without_pattern(class).contains(&number);
                prop_assert!(in_payload || buffers.contains(&number), "{class:?}: {rule:?}");
            }
        }
        // Empty data yields no candidates.
        for class in [TO_SERVER, TO_CLIENT, PatternClass::Packet, PatternClass::Datagram] {
            prop_assert_eq!(BTreeSet::new(), found(&prefilter, class, b""));
        }
    }
}

//! Tests of conditions on complete and on incomplete data.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::rule::FlowVarNames;
use crate::signature::*;

/// A buffer source that has only a payload.
struct Payload<'a>(&'a [u8], bool);

impl BufferSource for Payload<'_> {
    fn view(&self, buffer: Buffer) -> Option<BufferView<'_>> {
        let view = BufferView {
            bytes: self.0,
            base: 0,
            complete: self.1,
            is_final: false,
        };
        (buffer == Buffer::Payload).then_some(view)
    }
}

fn signature(conditions: Vec<Condition>) -> Signature {
    Signature {
        id: Id {
            generator: 1,
            signature: 1,
            revision: 1,
        },
        line: 1,
        message: "test".into(),
        class: None,
        priority: 3,
        references: Box::default(),
        action: Action::Alert,
        header: Header {
            protocol: Protocol::Tcp,
            source: Side::default(),
            destination: Side::default(),
            bidirectional: false,
            services: Box::default(),
        },
        flow: FlowState::default(),
        conditions: conditions.into(),
        transformed: Box::default(),
        rate: None,
        noalert: false,
    }
}

/// A rule that is evaluated without the prefilter, so that it remains pending for all of its contents.
fn rule(conditions: Vec<Condition>) -> Rule {
    let mut rule = Rule::new(Arc::new(signature(conditions)), &mut FlowVarNames::default()).unwrap();
    for step in &mut rule.steps {
        if let Step::Content { searched, .. } = step {
            *searched = false;
        }
    }
    rule
}

fn content(bytes: &str) -> Content {
    Content {
        buffer: Buffer::Payload,
        bytes: bytes.as_bytes().into(),
        nocase: false,
        negated: false,
        offset: None,
        depth: None,
        distance: None,
        within: None,
        ends: false,
        fast: FastPattern::Unspecified,
    }
}

fn number(count: u8, offset: i64, relative: bool, form: NumberFormat) -> NumberField {
    NumberField {
        buffer: Buffer::Payload,
        count,
        offset: Value::Constant(offset),
        relative,
        form,
        mask: None,
    }
}

fn expression(pattern: &str) -> Condition {
    Condition::Expression(Expression {
        buffer: Buffer::Payload,
        pattern: pattern.into(),
        ..Expression::default()
    })
}

fn evaluate(rule: &Rule, data: &[u8], complete: bool) -> RuleResult {
    Evaluator::default().evaluate(rule, &PacketFields::default(), &Payload(data, complete), &mut [])
}

const fn constant(value: i64) -> Option<Value> {
    Some(Value::Constant(value))
}

use RuleResult::{Blocked, Incomplete, Match, NoMatch};

#[test]
fn content_is_found_between_offset_and_depth() {
    let rule = rule(vec![Condition::Content(Content {
        offset: constant(2),
        depth: constant(3),
        ..content("ab")
    })]);
    assert_eq!(Match, evaluate(&rule, b"xxxab", true));
    assert_eq!(NoMatch, evaluate(&rule, b"xxxxab", true));
    assert_eq!(NoMatch, evaluate(&rule, b"abxxxx", true));
    assert_eq!(Incomplete, evaluate(&rule, b"xxxa", false));
    assert_eq!(NoMatch, evaluate(&rule, b"xxxax", false));
}

#[test]
fn content_that_is_searched_for_is_not_waited_for() {
    let conditions = vec![
        Condition::Content(content("longest")),
        Condition::Content(content("ab")),
    ];
    let rule = Rule::new(Arc::new(signature(conditions)), &mut FlowVarNames::default()).unwrap();
    assert_eq!(NoMatch, evaluate(&rule, b"ab longes", false));
    assert_eq!(Incomplete, evaluate(&rule, b"longest a", false));
    assert_eq!(Match, evaluate(&rule, b"longest ab", false));
}

#[test]
fn relative_content_tries_every_place_of_the_one_before() {
    let conditions = vec![
        Condition::Content(content("a")),
        Condition::Content(Content {
            distance: constant(0),
            within: constant(1),
            ..content("b")
        }),
    ];
    let rule = rule(conditions);
    assert_eq!(Match, evaluate(&rule, b"a-a-ab", true));
    assert_eq!(NoMatch, evaluate(&rule, b"a-a-a-b", true));
    assert_eq!(Incomplete, evaluate(&rule, b"a-a-a", false));
}

#[test]
fn distance_may_be_negative() {
    let conditions = vec![
        Condition::Content(content("abc")),
        Condition::Content(Content {
            distance: constant(-2),
            within: constant(2),
            ..content("bc")
        }),
    ];
    assert_eq!(Match, evaluate(&rule(conditions), b"xabc", true));
}

#[test]
fn absent_content_in_a_bounded_place_waits_for_it() {
    let conditions = vec![
        Condition::Content(content("USER")),
        Condition::Content(Content {
            negated: true,
            within: constant(10),
            ..content("\n")
        }),
    ];
    let rule = rule(conditions);
    assert_eq!(Incomplete, evaluate(&rule, b"USER anon", false));
    // The result is not final, because another line may arrive.
    assert_eq!(Incomplete, evaluate(&rule, b"USER anon\n", false));
    assert_eq!(NoMatch, evaluate(&rule, b"USER anon\n", true));
    assert_eq!(Match, evaluate(&rule, b"USER anonymous-and-long", false));
    assert_eq!(Match, evaluate(&rule, b"USER anon", true));
}

#[test]
fn absent_content_anywhere_does_not_wait_for_a_stream_to_end() {
    let conditions = vec![
        Condition::Content(content("GET")),
        Condition::Content(Content {
            negated: true,
            ..content("Host")
        }),
    ];
    assert_eq!(Match, evaluate(&rule(conditions), b"GET /", false));
}

#[test]
fn number_jumps_to_what_follows() {
    let jump = ByteJump {
        number: number(2, 0, true, NumberFormat::Big),
        multiplier: 1,
        align: false,
        from: JumpFrom::Number,
        post_offset: Value::Constant(0),
    };
    let conditions = vec![
        Condition::Content(content("L")),
        Condition::ByteJump(jump),
        Condition::Content(Content {
            distance: constant(0),
            within: constant(3),
            ..content("end")
        }),
    ];
    let rule = rule(conditions);
    assert_eq!(Match, evaluate(&rule, b"L\x00\x04abcdend", true));
    assert_eq!(NoMatch, evaluate(&rule, b"L\x00\x05abcdend", true));
    assert_eq!(Incomplete, evaluate(&rule, b"L\x00\x04ab", false));
    assert_eq!(NoMatch, evaluate(&rule, b"L\x00\x04ab", true));
}

#[test]
fn extracted_number_bounds_a_content() {
    let extract = ByteExtract {
        number: number(1, 0, false, NumberFormat::Big),
        multiplier: 1,
        align: 1,
        into: 0,
    };
    let conditions = vec![
        Condition::ByteExtract(extract),
        Condition::Content(Content {
            offset: Some(Value::Extracted(0)),
            depth: constant(1),
            ..content("!")
        }),
    ];
    let rule = rule(conditions);
    assert_eq!(Match, evaluate(&rule, b"\x03..!", true));
    assert_eq!(NoMatch, evaluate(&rule, b"\x02..!", true));
}

#[test]
fn number_as_text_compares() {
    let test = ByteTest {
        number: number(5, 1, true, NumberFormat::Text(10)),
        comparison: Comparison::Greater,
        value: Value::Constant(999),
        negated: false,
    };
    let rule = rule(vec![Condition::Content(content("Length:")), Condition::ByteTest(test)]);
    assert_eq!(Match, evaluate(&rule, b"Length: 1000 ", true));
    assert_eq!(NoMatch, evaluate(&rule, b"Length: 999 xx", true));
    assert_eq!(Incomplete, evaluate(&rule, b"Length: 10", false));
}

#[test]
fn data_is_there_or_is_not() {
    let at = |negated| IsDataAt {
        buffer: Buffer::Payload,
        at: Value::Constant(3),
        relative: true,
        negated,
    };
    let there = rule(vec![Condition::Content(content("a")), Condition::IsDataAt(at(false))]);
    assert_eq!(
        [Match, NoMatch, Incomplete],
        [
            evaluate(&there, b"a0123", true),
            evaluate(&there, b"a012", true),
            evaluate(&there, b"a012", false)
        ]
    );
    let ends = rule(vec![Condition::Content(content("a")), Condition::IsDataAt(at(true))]);
    assert_eq!(
        [NoMatch, Match, Incomplete],
        [
            evaluate(&ends, b"a0123", true),
            evaluate(&ends, b"a012", true),
            evaluate(&ends, b"a012", false)
        ]
    );
}

#[test]
fn expression_matches_once_its_end_is_there() {
    let rule = rule(vec![Condition::Content(content("cmd")), expression("cmd=[0-9]+$")]);
    assert_eq!(Incomplete, evaluate(&rule, b"cmd=12", false));
    assert_eq!(Match, evaluate(&rule, b"cmd=12", true));
    assert_eq!(NoMatch, evaluate(&rule, b"cmd=x", true));
}

#[test]
fn base64_is_decoded_and_searched() {
    let decode = Base64Decode {
        buffer: Buffer::Payload,
        bytes: None,
        offset: 1,
        relative: true,
    };
    let conditions = vec![
        Condition::Content(content("Basic")),
        Condition::Base64Decode(decode),
        Condition::Content(Content {
            buffer: Buffer::Base64,
            ..content("admin:")
        }),
    ];
    let rule = rule(conditions);
    assert_eq!(Match, evaluate(&rule, b"Basic YWRtaW46YWRtaW4=", true));
    assert_eq!(NoMatch, evaluate(&rule, b"Basic Z3Vlc3Q6YWRtaW4=", true));
}

#[test]
fn content_that_ends_the_data_waits_for_its_end() {
    let rule = rule(vec![Condition::Content(Content {
        ends: true,
        ..content("ab")
    })]);
    assert_eq!(
        [Match, NoMatch, Incomplete],
        [
            evaluate(&rule, b"abab", true),
            evaluate(&rule, b"abx", true),
            evaluate(&rule, b"ab", false)
        ]
    );
}

#[test]
fn notes_are_taken_by_one_rule_and_asked_by_another() {
    let note = |command| {
        Condition::FlowBits(FlowBits {
            command,
            names: Box::new(["seen".into()]),
            any: false,
        })
    };
    let mut names = FlowVarNames::default();
    let mut of = |conditions| Rule::new(Arc::new(signature(conditions)), &mut names).unwrap();
    let sets = of(vec![Condition::Content(content("a")), note(FlowBit::Set)]);
    let requires = of(vec![note(FlowBit::IsSet), Condition::Content(content("b"))]);
    let (mut bits, mut evaluator) = ([0u64; 1], Evaluator::default());
    let mut evaluate =
        |rule: &Rule, data: &[u8]| evaluator.evaluate(rule, &PacketFields::default(), &Payload(data, true), &mut bits);
    assert_eq!(
        [Blocked, NoMatch, Match, Match],
        [
            evaluate(&requires, b"b"),
            evaluate(&sets, b"b"),
            evaluate(&sets, b"a"),
            evaluate(&requires, b"b")
        ]
    );
}

#[test]
fn question_that_explodes_is_given_up() {
    let again = || {
        Condition::Content(Content {
            distance: constant(0),
            ..content("a")
        })
    };
    let mut conditions = vec![Condition::Content(content("a"))];
    conditions.extend((0..20).map(|_| again()));
    conditions.push(Condition::Content(Content {
        distance: constant(0),
        ..content("b")
    }));
    let rule = rule(conditions);
    let mut evaluator = Evaluator::default();
    let answer = evaluator.evaluate(&rule, &PacketFields::default(), &Payload(&[b'a'; 200], true), &mut []);
    assert_eq!((NoMatch, 1), (answer, evaluator.exhausted));
}

/// Reference for [`Evaluator`]: tries all positions of all contents.
fn oracle(contents: &[Content], data: &[u8], last: i64) -> bool {
    let Some((content, rest)) = contents.split_first() else {
        return true;
    };
    let of = |value: Option<Value>| {
        value.map(|value| match value {
            Value::Constant(value) => value,
            Value::Extracted(_) => unreachable!(),
        })
    };
    let relative = content.distance.is_some() || content.within.is_some();
    (0..=data.len().saturating_sub(content.bytes.len())).any(|place| {
        let end = place + content.bytes.len();
        let (first, behind) = (place as i64, end as i64);
        let begin = if relative {
            last + of(content.distance).unwrap_or(0)
        } else {
            of(content.offset).unwrap_or(0)
        };
        let bound = of(content.within)
            .or(of(content.depth))
            .map_or(i64::MAX, |bytes| begin + bytes);
        data.get(place..end) == Some(&*content.bytes) && first >= begin && behind <= bound && oracle(rest, data, behind)
    })
}

fn contents() -> impl Strategy<Value = Vec<Content>> {
    let one = ("[ab]{1,3}", 0..4u8, -2..4i64, 1..6i64).prop_map(|(bytes, kind, first, max)| {
        let length = bytes.len() as i64;
        let content = content(&bytes);
        match kind {
            0 => content,
            1 => Content {
                offset: constant(first.max(0)),
                depth: constant(length + max),
                ..content
            },
            2 => Content {
                distance: constant(first),
                ..content
            },
            _ => Content {
                distance: constant(first),
                within: constant(length + max),
                ..content
            },
        }
    });
    proptest::collection::vec(one, 1..4)
}

proptest! {
    #[test]
    fn contents_are_placed_wherever_they_fit(contents in contents(), data in "[ab-]{0,14}") {
        let rule = rule(contents.iter().cloned().map(Condition::Content).collect());
        // A content that is not relative does not depend on earlier contents.
        let expected = oracle(&contents, data.as_bytes(), 0);
        prop_assert_eq!(expected, evaluate(&rule, data.as_bytes(), true) == Match);
    }

    #[test]
    fn match_is_seen_with_the_byte_that_completes_it(contents in contents(), data in "[ab-]{0,14}") {
        let rule = rule(contents.iter().cloned().map(Condition::Content).collect());
        let data = data.as_bytes();
        for end in 0..=data.len() {
            let expected = oracle(&contents, &data[..end], 0);
            let answer = evaluate(&rule, &data[..end], false);
            prop_assert_eq!(expected, answer == Match, "after {} bytes: {:?}", end, answer);
            if answer == NoMatch {
                // No further data can make the rule match.
                prop_assert!((end..=data.len()).all(|end| !oracle(&contents, &data[..end], 0)));
            }
        }
    }
}

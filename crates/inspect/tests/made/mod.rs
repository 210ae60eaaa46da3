//! Rules built for tests.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::collections::BTreeSet;
use std::path::PathBuf;

use sluice_inspect::Signature;
use sluice_inspect::bindings::vectorscan::{MatchAction, ScanStreams};
use sluice_inspect::prefilter::{PatternClass, Prefilter};
use sluice_inspect::signature::{
    Action, Buffer, Condition, Content, Expression, FastPattern, FlowState, Header, Id, Protocol, Side,
};

pub fn rule(line: u32, protocol: Protocol, conditions: Vec<Condition>) -> Signature {
    Signature {
        id: Id {
            generator: 1,
            signature: 1_000_000 + line,
            revision: 1,
        },
        line,
        message: "a rule".into(),
        class: None,
        priority: 3,
        references: Box::default(),
        action: Action::Alert,
        header: Header {
            protocol,
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

pub fn content(buffer: Buffer, bytes: &[u8]) -> Content {
    Content {
        buffer,
        bytes: bytes.into(),
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

pub fn payload(bytes: &[u8]) -> Condition {
    Condition::Content(content(Buffer::Payload, bytes))
}

pub fn expression(pattern: &str) -> Expression {
    Expression {
        pattern: pattern.into(),
        ..Expression::default()
    }
}

/// Candidate rules of the prefilter for data of a class.
pub fn found(prefilter: &Prefilter, class: PatternClass, data: &[u8]) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let Some(group) = prefilter.group(class) else {
        return found;
    };
    let mut scratch = prefilter.scratch().unwrap();
    let sink = |id: u32, _: u64| {
        found.extend(group.rules(id));
        MatchAction::Continue
    };
    match (group.block(), group.stream()) {
        (Some(database), None) => {
            database.scan(data, &mut scratch, sink);
        }
        (None, Some(database)) => {
            let mut sink = sink;
            let mut streams = ScanStreams::new(database.clone(), 1).unwrap();
            let stream = streams.open().unwrap();
            for piece in data.chunks(3) {
                streams.scan(stream, piece, &mut scratch, &mut sink);
            }
            streams.finish(stream, &mut scratch, &mut sink);
        }
        _ => unreachable!("a group has one database"),
    }
    found
}

/// Reproducible pseudo-random numbers.
pub struct Drawn(pub u64);

impl Drawn {
    pub fn below(&mut self, count: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * count as u128) >> 64) as usize
    }
}

/// Rules with one random content each.
pub fn drawn(count: u32) -> Vec<Signature> {
    let mut drawn = Drawn(7);
    let mut one = |line| {
        let bytes: Vec<u8> = (0..5 + drawn.below(20)).map(|_| drawn.below(256) as u8).collect();
        let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Ip][drawn.below(3)];
        rule(line, protocol, vec![payload(&bytes)])
    };
    (1..=count).map(&mut one).collect()
}

/// The contents of real rules. Each rule is converted to a TCP payload rule. The list is empty if the rule file is not
/// present. Only the necessary part of the grammar is parsed.
pub fn real() -> Vec<Signature> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/signatures/snort3-community.rules");
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: there is no {}", path.display());
        return Vec::new();
    };
    let lines = (1..).zip(text.lines().filter(|line| !line.starts_with('#')));
    let contents = |line: &str| -> Vec<Condition> {
        let options = line.split(" content:").skip(1).filter(|option| option.starts_with('"'));
        options
            .map(|option| {
                let (quoted, after) = option[1..].split_once('"').unwrap();
                let options = after.split(';').next().unwrap();
                Condition::Content(Content {
                    nocase: options.contains("nocase"),
                    ..content(Buffer::Payload, &bytes(quoted))
                })
            })
            .filter(|condition| !matches!(condition, Condition::Content(content) if content.bytes.is_empty()))
            .collect()
    };
    let rules = lines.map(|(line, text)| rule(line, Protocol::Tcp, contents(text)));
    rules.filter(|rule| !rule.conditions.is_empty()).collect()
}

/// The bytes of a content, given as the text between its quotes.
fn bytes(quoted: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (part, text) in quoted.split('|').enumerate() {
        match part % 2 {
            0 => bytes.extend(text.replace('\\', "").bytes()),
            _ => bytes.extend(
                text.split_whitespace()
                    .map(|byte| u8::from_str_radix(byte, 16).unwrap()),
            ),
        }
    }
    bytes
}

//! Tests that community rules fire on flows that are generated from the rules.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::flows::play::play;
use crate::flows::{Flow, Place, flows};
use crate::lab::Lab;
use sluice_inspect::Signature;
use sluice_inspect::ruleset::{OrderedRules, Ruleset};
use sluice_inspect::signature::{Condition, Content};
use sluice_inspect::signatures::{Classes, Dialect, Variables, read};

/// Number of rules selected from each file.
const DRAWN: usize = 200;

fn community(name: &str, dialect: Dialect) -> Option<Vec<Signature>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/signatures")
        .join(name);
    let Ok(text) = std::fs::read(&path) else {
        println!("{name} is not at hand");
        return None;
    };
    let mut signatures = read(&text, dialect, &Variables::default(), &Classes::default()).signatures;
    // Rules with `noalert` must be reported in this test.
    signatures.iter_mut().for_each(|signature| signature.noalert = false);
    Some(signatures)
}

fn compiled(signatures: Vec<Signature>) -> Arc<Ruleset> {
    let ordered = OrderedRules::new(signatures);
    let prefilter = ordered.pattern_set().compile(&mut |_, _| {}).expect("it compiles");
    Arc::new(ordered.with_prefilter(prefilter))
}

/// Returns the rules that fire on a flow.
fn fired(lab: &mut Lab, flow: &Flow) -> Vec<u32> {
    lab.fired.clear();
    for _ in 0..flow.times {
        play(lab, &flow.wire, &flow.messages());
    }
    let mut fired = lab.fired.clone();
    fired.sort_unstable();
    fired.dedup();
    fired
}

/// Flows that fire rules, each with the index of its rule.
type Served = Vec<(usize, Flow)>;
/// Rules for which no flow was generated, by reason.
type Skipped = BTreeMap<&'static str, Vec<u32>>;

fn served(signatures: &[Signature], lab: &mut Lab) -> (Served, Skipped) {
    let (mut served, mut skipped) = (Served::new(), Skipped::new());
    for (place, signature) in signatures.iter().enumerate() {
        let number = signature.id.signature;
        let why = match flows(signature, signatures) {
            Err(why) => why,
            Ok(tried) => match tried.into_iter().find(|flow| fired(lab, flow).contains(&number)) {
                Some(flow) => {
                    served.push((place, flow));
                    continue;
                }
                None => "no flow fires it",
            },
        };
        skipped.entry(why).or_default().push(number);
    }
    (served, skipped)
}

/// Reproducible pseudo-random numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Creates a lab with a single rule, without its conditions on flow variables and without its rate.
fn alone(signature: &Signature) -> Lab {
    let mut signature = signature.clone();
    signature.rate = None;
    let conditions = signature.conditions.into_vec();
    let is_note = |condition: &Condition| matches!(condition, Condition::FlowBits(_));
    signature.conditions = conditions.into_iter().filter(|condition| !is_note(condition)).collect();
    Lab::of(compiled(vec![signature]))
}

/// First position of a content.
fn place_of(bytes: &[u8], content: &Content) -> Option<usize> {
    bytes
        .windows(content.bytes.len())
        .position(|window| match content.nocase {
            true => window.eq_ignore_ascii_case(&content.bytes),
            false => *window == *content.bytes,
        })
}

/// Result for a variant of a flow.
#[derive(Debug, PartialEq, Eq)]
enum Neighbour {
    /// The variant does not fire the rule. The number is the offset of the byte that was changed.
    Silent(usize),
    /// The variant fires the rule in spite of the change.
    Fires,
}

/// Changes one byte of a content in the flow. If the content occurs several times, one byte of each occurrence is
/// changed.
fn neighbour(lab: &mut Lab, number: u32, flow: &Flow, place: &Place, content: &Content) -> Neighbour {
    let letter = |byte: &u8| byte.is_ascii_alphanumeric();
    let within = content.bytes.iter().position(letter).unwrap_or(0);
    let instead = match content.bytes[within] {
        byte if byte.eq_ignore_ascii_case(&flow.filler) => b'#',
        _ => flow.filler,
    };
    let mut near = flow.with(place.buffer, place.at + within, instead);
    for changed in 1..=20 {
        if !fired(lab, &near).contains(&number) {
            return Neighbour::Silent(changed);
        }
        // The content also occurs elsewhere in the flow.
        let messages = near.messages();
        let mut there = messages.iter().enumerate();
        let Some((message, at)) = there.find_map(|(message, said)| Some((message, place_of(&said.bytes, content)?)))
        else {
            break;
        };
        near = near.changed(message, at + within, instead);
    }
    Neighbour::Fires
}

fn community_fires(name: &str, dialect: Dialect) {
    let Some(signatures) = community(name, dialect) else {
        return;
    };
    let mut lab = Lab::of(compiled(signatures.clone()));
    let (mut served, skipped) = served(&signatures, &mut lab);
    println!("{name}: flows fire {} of {} rules", served.len(), signatures.len());
    for (why, rules) in &skipped {
        println!("  {:4} {why}: {:?}…", rules.len(), &rules[..rules.len().min(100)]);
    }
    assert!(served.len() * 100 >= signatures.len() * 85, "{}", served.len());
    let mut draw = Draw(0x5eed_0000 + signatures.len() as u64);
    let (mut changes, mut loud, mut unjust) = (BTreeMap::<usize, usize>::new(), Vec::new(), Vec::new());
    let mut others: BTreeMap<u32, Lab> = BTreeMap::new();
    for _ in 0..DRAWN {
        let (place, flow) = served.swap_remove(draw.below(served.len()));
        let signature = &signatures[place];
        let number = signature.id.signature;
        for other in fired(&mut lab, &flow) {
            let by_number = |signature: &&Signature| signature.id.signature == other;
            let other_rule = signatures.iter().find(by_number).expect("it is one of them");
            let alone = others.entry(other).or_insert_with(|| alone(other_rule));
            if !fired(alone, &flow).contains(&other) {
                unjust.push((number, other));
            }
        }
        for place in &flow.places {
            let Condition::Content(content) = &signature.conditions[place.condition] else {
                continue;
            };
            match neighbour(&mut lab, number, &flow, place, content) {
                Neighbour::Silent(bytes) => *changes.entry(bytes).or_default() += 1,
                Neighbour::Fires => loud.push((number, content.bytes.escape_ascii().to_string(), place.buffer)),
            }
        }
    }
    println!("  neighbours that do not fire, by bytes changed: {changes:?}");
    assert!(unjust.is_empty(), "rules that do not fire alone: {unjust:?}");
    assert!(loud.is_empty(), "neighbours that fire: {loud:#?}");
}

#[test]
fn community_rules_of_snort_3_fire_alone() {
    community_fires("snort3-community.rules", Dialect::Snort3);
}

#[test]
fn community_rules_of_snort_2_fire_alone() {
    community_fires("snort2-community.rules", Dialect::Snort2);
}

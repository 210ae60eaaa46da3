//! Rules of the community fire at flows that are made from what they say.

mod flows;
mod lab;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use flows::play::play;
use flows::{Flow, flows};
use lab::Lab;
use sluice_inspect::Signature;
use sluice_inspect::ruleset::{Ordered, Ruleset};
use sluice_inspect::signatures::{Classes, Dialect, Variables, read};

fn community(name: &str, dialect: Dialect) -> Option<Vec<Signature>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/signatures")
        .join(name);
    let Ok(text) = std::fs::read(&path) else {
        println!("{name} is not at hand");
        return None;
    };
    let mut signatures = read(&text, dialect, &Variables::default(), &Classes::default()).signatures;
    // What fires in silence is to be heard of here.
    signatures.iter_mut().for_each(|signature| signature.silent = false);
    Some(signatures)
}

fn compiled(signatures: Vec<Signature>) -> Arc<Ruleset> {
    let ordered = Ordered::new(signatures);
    let prefilter = ordered.plan().compile(&mut |_, _| {}).expect("it compiles");
    Arc::new(ordered.with(prefilter))
}

/// The rules that a flow fires.
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

/// Flows that fire rules, by the place of the rule; and how many rules there are none for, by reason.
fn served(signatures: &[Signature], lab: &mut Lab) -> (Vec<(usize, Flow)>, BTreeMap<&'static str, Vec<u32>>) {
    let (mut served, mut skipped) = (Vec::new(), BTreeMap::<_, Vec<u32>>::new());
    for (place, signature) in signatures.iter().enumerate() {
        let mut tried = flows(signature, signatures);
        let found = tried.as_mut().ok().and_then(|tried| {
            tried
                .drain(..)
                .find(|flow| fired(lab, flow).contains(&signature.id.signature))
        });
        match (found, tried) {
            (Some(flow), _) => served.push((place, flow)),
            (None, Err(why)) => skipped.entry(why).or_default().push(signature.id.signature),
            (None, Ok(_)) => skipped
                .entry("no flow fires it")
                .or_default()
                .push(signature.id.signature),
        }
    }
    (served, skipped)
}

fn community_fires(name: &str, dialect: Dialect) {
    let Some(signatures) = community(name, dialect) else {
        return;
    };
    let mut lab = Lab::of(compiled(signatures.clone()));
    let (served, skipped) = served(&signatures, &mut lab);
    println!("{name}: flows fire {} of {} rules", served.len(), signatures.len());
    for (why, rules) in &skipped {
        println!("  {:4} {why}: {:?}…", rules.len(), &rules[..rules.len().min(100)]);
    }
    assert!(served.len() * 100 >= signatures.len() * 85, "{}", served.len());
}

#[test]
fn community_rules_of_snort_3_fire_alone() {
    community_fires("snort3-community.rules", Dialect::Snort3);
}

#[test]
fn community_rules_of_snort_2_fire_alone() {
    community_fires("snort2-community.rules", Dialect::Snort2);
}

//! The community rules of Snort, where they are at hand: at least nine in ten load, and none with an option ignored.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use sluice_inspect::Signature;
use sluice_inspect::signature::{Condition, Fast, Id};
use sluice_inspect::signatures::{Classes, Dialect, File, Variables, read};

fn community(name: &str, dialect: Dialect, change: fn(&str) -> String) -> Option<File> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data/signatures")
        .join(name);
    let Ok(text) = std::fs::read(&path) else {
        println!("{name} is not at hand");
        return None;
    };
    let text = change(&String::from_utf8_lossy(&text));
    Some(read(
        text.as_bytes(),
        dialect,
        &Variables::default(),
        &Classes::default(),
    ))
}

fn loaded(name: &str, dialect: Dialect, change: fn(&str) -> String) -> Option<f64> {
    let file = community(name, dialect, change)?;
    let mut options: BTreeMap<String, usize> = BTreeMap::new();
    for refusal in &file.refused {
        *options
            .entry(format!("{}: {}", refusal.option, refusal.why))
            .or_default() += 1;
    }
    let (loaded, refused) = (file.signatures.len(), file.refused.len());
    let share = loaded as f64 / (loaded + refused) as f64;
    println!(
        "{name}: {loaded} loaded, {refused} refused ({:.2} %), {} commented",
        share * 100.0,
        file.commented
    );
    for (option, count) in options {
        println!("  {count:4} {option}");
    }
    Some(share)
}

fn as_it_is(text: &str) -> String {
    text.to_owned()
}

/// Every rule that is commented out, put in force.
fn in_force(text: &str) -> String {
    text.replace("# alert", "alert")
}

#[test]
fn community_rules_of_snort_3_load() {
    assert!(loaded("snort3-community.rules", Dialect::Snort3, as_it_is).is_none_or(|share| share >= 0.97));
}

#[test]
fn community_rules_of_snort_2_load() {
    assert!(loaded("snort2-community.rules", Dialect::Snort2, as_it_is).is_none_or(|share| share >= 0.97));
}

#[test]
fn community_rules_of_snort_2_that_are_commented_out_load() {
    assert!(loaded("snort2-community.rules", Dialect::Snort2, in_force).is_none_or(|share| share >= 0.97));
}

/// What two dialects may say differently of one rule: how its candidates are found, the order of names.
fn conditions(signature: &Signature) -> Vec<Condition> {
    let mut conditions = signature.conditions.to_vec();
    for condition in &mut conditions {
        match condition {
            Condition::Content(content) => content.fast = Fast::Unsaid,
            Condition::FlowBits(bits) => bits.names.sort(),
            _ => {}
        }
    }
    conditions
}

/// The two files are translations of each other, by the authors of both dialects.
#[test]
fn same_rule_in_two_dialects_is_the_same_signature() {
    let two = community("snort2-community.rules", Dialect::Snort2, in_force);
    let three = community("snort3-community.rules", Dialect::Snort3, as_it_is);
    let (Some(two), Some(three)) = (two, three) else { return };
    let three: HashMap<Id, Signature> = three
        .signatures
        .into_iter()
        .map(|signature| (signature.id, signature))
        .collect();
    let (mut both, mut differ) = (0, Vec::new());
    for two in &two.signatures {
        let Some(three) = three.get(&two.id) else { continue };
        both += 1;
        let same = conditions(two) == conditions(three)
            && (two.flow, two.rate, two.silent, two.action) == (three.flow, three.rate, three.silent, three.action);
        if !same {
            differ.push(two.id.signature);
        }
    }
    println!("{both} rules in both dialects, {} differ: {differ:?}", differ.len());
    assert!(both > 3_500 && differ.len() * 100 < both);
}

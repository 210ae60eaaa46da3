//! Patterns of signatures, and their compilation into databases.

mod serialised;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::choice::{PatternChoice, choice, classes};
use super::{Error, PatternClass, PatternGroup, Prefilter, Search};
use crate::bindings::vectorscan::{self, Database, Pattern};
use crate::signature::{Protocol, Signature};

/// Bytes to search for, in lower case if the search ignores case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Literal {
    bytes: Box<[u8]>,
    caseless: bool,
}

/// Patterns with the indices of their rules.
type Literals = BTreeMap<Literal, Vec<u32>>;

/// SHA-256 of all input from which a prefilter is compiled. Two rulesets with the same patterns have the same
/// fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

/// Patterns and the rules to which they belong.
#[derive(Debug)]
pub struct PatternSet {
    literals: [Literals; PatternClass::COUNT],
    unconditional: Vec<(Protocol, Vec<u32>)>,
    /// Rules without a usable pattern, indexed by class.
    without_pattern: [Vec<u32>; PatternClass::COUNT],
    /// Number of rules.
    rules: u32,
}

impl PatternSet {
    /// Chooses a pattern for each signature. The choice takes milliseconds for thousands of signatures.
    pub fn of<'s>(signatures: impl IntoIterator<Item = &'s Signature>) -> PatternSet {
        let mut plan = PatternSet {
            literals: std::array::from_fn(|_| BTreeMap::new()),
            unconditional: Vec::new(),
            without_pattern: std::array::from_fn(|_| Vec::new()),
            rules: 0,
        };
        for (rule, signature) in (0..).zip(signatures) {
            plan.rules = rule + 1;
            match choice(signature) {
                PatternChoice::Literal(buffer, mut bytes, caseless) => {
                    if caseless {
                        bytes.make_ascii_lowercase();
                    }
                    let literal = Literal { bytes, caseless };
                    for class in classes(signature, buffer) {
                        plan.literals[class.index()]
                            .entry(literal.clone())
                            .or_default()
                            .push(rule);
                    }
                }
                PatternChoice::All(buffer) => {
                    for class in classes(signature, buffer) {
                        plan.without_pattern[class.index()].push(rule);
                    }
                }
                PatternChoice::Event => {}
                PatternChoice::Nothing => {
                    let protocol = signature.header.protocol;
                    match plan.unconditional.iter_mut().find(|(of, _)| *of == protocol) {
                        Some((_, rules)) => rules.push(rule),
                        None => plan.unconditional.push((protocol, vec![rule])),
                    }
                }
            }
        }
        plan
    }

    /// Compiles the databases. `progress` receives the number of compiled patterns and the total.
    pub fn compile(self, progress: &mut dyn FnMut(usize, usize)) -> Result<Prefilter, Error> {
        let fingerprint = self.fingerprint();
        let total = self.literals.iter().map(BTreeMap::len).sum::<usize>();
        let mut done = 0;
        let mut groups = [const { None }; PatternClass::COUNT];
        for (index, literals) in self.literals.into_iter().enumerate() {
            let class = PatternClass::from_index(index).expect("every class has its place");
            if !literals.is_empty() {
                let search = search(class, &literals).map_err(|source| Error::Class { class, source })?;
                groups[index] = Some(group(class, search, &literals));
            }
            done += literals.len();
            progress(done, total);
        }
        Ok(Prefilter {
            groups,
            unconditional: self
                .unconditional
                .into_iter()
                .map(|(protocol, rules)| (protocol, rules.into()))
                .collect(),
            without_pattern: self.without_pattern.map(Vec::into_boxed_slice),
            fingerprint,
        })
    }
}

impl Prefilter {
    /// Chooses patterns as [`PatternSet::of`] does, and compiles them as [`PatternSet::compile`] does.
    pub fn compile(signatures: &[Signature], progress: &mut dyn FnMut(usize, usize)) -> Result<Prefilter, Error> {
        PatternSet::of(signatures).compile(progress)
    }
}

fn search(class: PatternClass, literals: &Literals) -> Result<Search, vectorscan::Error> {
    let numbered = (0..).zip(literals.keys());
    let patterns: Vec<Pattern> = numbered
        .map(|(id, Literal { bytes, caseless })| Pattern {
            bytes,
            caseless: *caseless,
            id,
        })
        .collect();
    Ok(match class {
        PatternClass::Stream(_) => Search::Stream(Arc::new(Database::compile(&patterns)?)),
        _ => Search::Block(Database::compile(&patterns)?),
    })
}

fn group(class: PatternClass, search: Search, literals: &Literals) -> PatternGroup {
    let lengths = literals.keys().map(|literal| literal.bytes.len() as u32);
    let mut starts = vec![0];
    for rules in literals.values() {
        starts.push(starts[starts.len() - 1] + rules.len() as u32);
    }
    PatternGroup {
        class,
        search,
        rules: literals.values().flatten().copied().collect(),
        starts: starts.into(),
        shortest: lengths.clone().min().unwrap_or(0),
        longest: lengths.max().unwrap_or(0),
    }
}

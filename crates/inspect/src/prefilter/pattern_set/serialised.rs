//! Serialises a pattern set for its fingerprint, and for another process that compiles the pattern set.

use sha2::{Digest, Sha256};

use super::super::PatternClass;
use super::super::bytes::{Reader, Truncated, Writer};
use super::{Fingerprint, Literal, Literals, PatternSet};

impl PatternSet {
    /// Fingerprint of the pattern set.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint(Sha256::digest(self.bytes()).into())
    }

    /// Serialises the pattern set. Different pattern sets have different bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        for literals in &self.literals {
            out.number(literals.len() as u32);
            for (Literal { bytes, caseless }, rules) in literals {
                out.0.push((*caseless).into());
                out.bytes(bytes);
                out.list(rules);
            }
        }
        out.number(self.unconditional.len() as u32);
        for (protocol, rules) in &self.unconditional {
            out.protocol(*protocol);
            out.list(rules);
        }
        self.without_pattern.iter().for_each(|rules| out.list(rules));
        out.number(self.rules);
        out.0
    }

    /// Parses the output of [`PatternSet::bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<PatternSet, Truncated> {
        let mut from = Reader(bytes);
        let mut literals: [Literals; PatternClass::COUNT] = std::array::from_fn(|_| Literals::default());
        for literals in &mut literals {
            for _ in 0..from.number()? {
                let [caseless] = from.array()?.map(|flag: u8| flag != 0);
                let bytes = from.bytes()?.into();
                literals.insert(Literal { bytes, caseless }, from.list()?.into());
            }
        }
        let mut unconditional = Vec::new();
        for _ in 0..from.number()? {
            unconditional.push((from.protocol()?, from.list()?.into()));
        }
        let mut without_pattern: [Vec<u32>; PatternClass::COUNT] = std::array::from_fn(|_| Vec::new());
        for rules in &mut without_pattern {
            *rules = from.list()?.into();
        }
        let plan = PatternSet {
            literals,
            unconditional,
            without_pattern,
            rules: from.number()?,
        };
        match from.0.is_empty() && plan.rule_numbers().all(|rule| rule < plan.rules) {
            true => Ok(plan),
            false => Err(Truncated),
        }
    }

    /// All rule numbers that occur in the pattern set.
    fn rule_numbers(&self) -> impl Iterator<Item = u32> {
        let literals = self.literals.iter().flat_map(|literals| literals.values().flatten());
        let unconditional = self.unconditional.iter().flat_map(|(_, rules)| rules);
        literals
            .chain(unconditional)
            .chain(self.without_pattern.iter().flatten())
            .copied()
    }
}

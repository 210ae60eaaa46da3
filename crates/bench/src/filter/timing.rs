//! Timing of lookups, and comparison with linear search.

use std::hint::black_box;
use std::ops::Range;

use sluice_dpdk::tsc;
use sluice_filter::{Header, Matcher, Rule, RuleNumber};

use super::Failure;
use super::sets::Set;
use super::traces::Traffic;
use crate::rows::Row;

/// Duration of one run in seconds.
pub const SECONDS: f64 = 0.1;
/// Number of headers that are also looked up by linear search.
const SAMPLE: usize = 256;
/// Number of headers per batch.
pub const BATCH: usize = 64;

/// Cost of lookups for each run.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    /// Lookups per second.
    pub rates: Vec<f64>,
    cycles: Vec<f64>,
}

impl Costs {
    /// Adds a run: calls `look` with consecutive batches of the `count` headers, which are used cyclically, and
    /// measures the time.
    pub fn run(&mut self, count: usize, mut look: impl FnMut(Range<usize>)) {
        let most = (SECONDS * tsc::frequency() as f64) as u64;
        let (begin, mut lookups) = (tsc::now(), 0);
        let ticks = 'time: loop {
            for first in (0..count).step_by(BATCH) {
                let batch = first..count.min(first + BATCH);
                lookups += batch.len() as u64;
                look(batch);
                let ticks = tsc::now() - begin;
                if ticks >= most {
                    break 'time ticks;
                }
            }
        };
        self.add(lookups, ticks);
    }

    /// Adds a run from its number of lookups and of cycles.
    pub fn add(&mut self, lookups: u64, ticks: u64) {
        let cycles = ticks as f64 / lookups.max(1) as f64;
        self.cycles.push(cycles);
        self.rates.push(tsc::frequency() as f64 / cycles);
    }

    /// Add the costs to a row.
    pub fn onto(&self, row: Row) -> Row {
        row.figure("lookups_per_s", &self.rates)
            .figure("cycles_per_lookup", &self.cycles)
    }

    /// Lookups per second divided by those of `other`, for each run.
    pub fn over(&self, other: &Self) -> Vec<f64> {
        self.rates
            .iter()
            .zip(&other.rates)
            .map(|(own, other)| own / other)
            .collect()
    }
}

pub fn costs<M: Matcher<u32>>(matcher: &M, traffic: &Traffic, runs: usize) -> Costs {
    let (mut costs, mut core) = (Costs::default(), matcher.cache());
    for _ in 0..runs {
        one_more(&mut costs, matcher, &mut core, traffic);
    }
    costs
}

pub fn one_more<M: Matcher<u32>>(costs: &mut Costs, matcher: &M, core: &mut M::Cache, traffic: &Traffic) {
    let mut found = [None; BATCH];
    costs.run(traffic.headers.len(), |batch| {
        matcher.first_of_batch(core, &traffic.headers[batch], &mut found);
        black_box(&found);
    });
}

/// Returns an error if a matcher's result differs from that of linear search for any header of the sample.
pub fn check<M: Matcher<u32>>(matcher: &M, set: &Set, traffic: &Traffic) -> Result<(), Failure> {
    let sample = sample(traffic);
    let mut found = vec![None; sample.len()];
    matcher.first_of_batch(&mut matcher.cache(), &sample, &mut found);
    check_sample(&set.rules, &sample, &found)
}

/// The headers that are also looked up by linear search.
pub fn sample(traffic: &Traffic) -> Vec<Header<u32>> {
    let step = (traffic.headers.len() / SAMPLE).max(1);
    traffic.headers.iter().step_by(step).copied().collect()
}

/// Returns an error if the results for a sample differ from those of linear search.
pub fn check_sample(rules: &[Rule<u32>], sample: &[Header<u32>], found: &[Option<RuleNumber>]) -> Result<(), Failure> {
    for (header, found) in sample.iter().zip(found) {
        let expected = rules.iter().position(|rule| rule.matches(header));
        let expected = expected.map(|number| number as RuleNumber);
        if expected != *found {
            return Err(format!("{header:?} is for rule {expected:?}, and {found:?} was found").into());
        }
    }
    Ok(())
}

/// Add a matcher's memory size to a row.
pub fn sized(row: Row, bytes: usize, rules: usize) -> Row {
    row.figure("memory_kb", &[bytes as f64 / 1e3])
        .figure("bytes_per_rule", &[bytes as f64 / rules as f64])
}

//! Chains: the steps that a router's packets take before their session is looked up, or before they are routed without one.
//!
//! Chains are written by name, and compiled into one array in which every step leads to later ones alone: a batch of packets
//! goes through it once, from front to back.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_filter::{Address, CutTree, Header, Matcher, Rule, RuleNumber};
use sluice_table::token_bucket::{SharedTokenBucket, TokenRate};

use crate::packet::counters::Counter;
use crate::packet::io::WorkerIndex;

mod compile;

pub use compile::{Action, ChainError, ChainText, ClassText};

/// The chain that packets begin at.
pub const ENTRY: &str = "input";

/// Most steps of all chains of a router.
pub const MAX_STEPS: usize = 256;

/// A step's number in a router's array.
pub type StepIndex = u16;

/// A tally's number among a router's.
pub type TallyIndex = u16;

/// What a step does with packets.
#[derive(Debug)]
pub enum Step {
    /// Counts them.
    Count(TallyIndex),
    /// Sends those elsewhere that one of its classes matches, the first of them.
    Classify(Box<Classify>),
    /// Takes out what is above a rate.
    Police {
        /// The rate.
        policer: u16,
        /// What was above it.
        tally: TallyIndex,
        /// Where that goes on; dropped where nowhere.
        exceed: Option<StepIndex>,
    },
    /// Sends copies.
    Mirror {
        /// The interface that these leave by.
        interface: u16,
        /// Packets of which a copy was taken.
        tally: TallyIndex,
    },
    /// Goes on elsewhere.
    Jump(StepIndex),
    /// Drops them.
    Drop(TallyIndex),
    /// On to the sessions, where the interface has them, and to be routed where it has none.
    Sessions(TallyIndex),
    /// On to be routed without a session.
    Forward(TallyIndex),
}

/// Classes that stand in a row: one look for all of them.
#[derive(Debug)]
pub struct Classify {
    /// For IPv4.
    pub four: Finder<u32>,
    /// For IPv6.
    pub six: Finder<u128>,
    /// By class: where it leads, and what it has counted.
    pub targets: Vec<(StepIndex, TallyIndex)>,
}

/// Finds the first class that matches.
#[derive(Debug)]
pub enum Finder<A: Address> {
    /// One after the other.
    Few(Vec<(RuleNumber, Rule<A>)>),
    /// By the packet filter's matcher.
    Many(Box<CutTree<A>>),
}

/// Boxes that are compared one after the other.
const FEW: usize = 8;

impl<A: Address> Finder<A> {
    /// Of boxes with the numbers of their classes, in order.
    fn new(boxes: Vec<(RuleNumber, Rule<A>)>) -> Self {
        match boxes.len() {
            0..=FEW => Self::Few(boxes),
            _ => Self::Many(Box::new(CutTree::numbered(boxes.into_iter()))),
        }
    }

    /// The class of each packet.
    pub fn find(&self, headers: &[Header<A>], found: &mut [Option<RuleNumber>]) {
        match self {
            Self::Few(boxes) => {
                for (header, found) in headers.iter().zip(found) {
                    *found = boxes
                        .iter()
                        .find(|(_, rule)| rule.matches(header))
                        .map(|&(number, _)| number);
                }
            }
            Self::Many(best) => best.first_of_batch(&mut (), headers, found),
        }
    }
}

/// What one worker has counted at a step.
#[derive(Debug, Default)]
#[repr(align(64))]
struct WorkerTally {
    packets: Counter,
    bytes: Counter,
}

/// What was counted at a step: packets, and their bytes as frames. Each worker writes its own share.
#[derive(Debug)]
pub struct Tally(Box<[WorkerTally]>);

impl Tally {
    fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| WorkerTally::default()).collect())
    }

    /// Count, by the worker `own`.
    #[inline]
    pub fn add(&self, own: WorkerIndex, packets: u64, bytes: u64) {
        if let Some(share) = self.0.get(usize::from(own)) {
            share.packets.add(packets);
            share.bytes.add(bytes);
        }
    }

    /// Packets and bytes of all workers.
    pub fn total(&self) -> (u64, u64) {
        let sum = |of: fn(&WorkerTally) -> u64| self.0.iter().map(of).fold(0, u64::wrapping_add);
        (sum(|share| share.packets.get()), sum(|share| share.bytes.get()))
    }
}

/// What a rate is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicerRate {
    /// Packets a second, and at once.
    Packets(u64, u64),
    /// Bits a second, and bytes at once.
    Bits(u64, u64),
}

/// A rate that all workers together keep to.
#[derive(Debug)]
pub struct Policer {
    rate: PolicerRate,
    /// Of packets, or of bits.
    bucket: SharedTokenBucket,
}

impl Policer {
    /// With as much saved up as may be.
    pub fn new(rate: PolicerRate) -> Self {
        let bucket = match rate {
            PolicerRate::Packets(rate, burst) => TokenRate::new(rate.max(1), burst),
            PolicerRate::Bits(rate, burst) => TokenRate::for_sizes(rate.max(1), burst.saturating_mul(8)),
        };
        Self {
            rate,
            bucket: SharedTokenBucket::new(bucket),
        }
    }

    /// Whether a packet of so many bytes is within the rate now, in nanoseconds.
    #[inline]
    pub fn admits(&self, bytes: u64, now: u64) -> bool {
        match self.rate {
            PolicerRate::Packets(..) => self.bucket.take(now),
            PolicerRate::Bits(..) => self.bucket.take_many(bytes.saturating_mul(8), now),
        }
    }
}

/// A step as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedStep {
    /// Its chain.
    pub chain: String,
    /// As it was written.
    pub text: String,
    /// The chain that some of its packets, or all, go on at.
    pub to: Option<String>,
    /// What it has counted.
    pub tally: Option<TallyIndex>,
}

/// What a policer is called over commits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PolicerName {
    /// By its place and text: it is one step's own.
    Text(String),
    /// By the name that steps of any router share it by.
    Name(String),
}

/// Policers that steps of several routers share, by name.
#[derive(Debug, Default)]
pub struct NamedPolicers(HashMap<String, Arc<Policer>>);

/// The chains of a router.
#[derive(Debug, Default)]
pub struct Chains {
    steps: Vec<Step>,
    /// By what each is called over commits.
    tallies: Vec<(String, Arc<Tally>)>,
    policers: Vec<(PolicerName, Arc<Policer>)>,
    listed: Vec<ListedStep>,
}

impl Chains {
    /// The steps; packets begin at the first one.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// A tally.
    #[inline]
    pub fn tally(&self, index: TallyIndex) -> Option<&Tally> {
        self.tallies.get(usize::from(index)).map(|(_, tally)| &**tally)
    }

    /// A policer.
    #[inline]
    pub fn policer(&self, index: u16) -> Option<&Policer> {
        self.policers.get(usize::from(index)).map(|(_, policer)| &**policer)
    }

    /// The steps as they were written, chain by chain.
    pub fn listed(&self) -> &[ListedStep] {
        &self.listed
    }

    /// What was counted with a name or text goes on counting, and policers with what is left in them.
    pub fn adopt(&mut self, before: &Self) {
        let tallies: HashMap<_, _> = before.tallies.iter().map(|(key, tally)| (key, tally)).collect();
        for (key, tally) in &mut self.tallies {
            if let Some(old) = tallies.get(key).filter(|old| old.0.len() == tally.0.len()) {
                *tally = (*old).clone();
            }
        }
        let policers: HashMap<_, _> = before.policers.iter().map(|(key, policer)| (key, policer)).collect();
        for (key, policer) in &mut self.policers {
            if let Some(old) = policers.get(key).filter(|old| old.rate == policer.rate) {
                *policer = (*old).clone();
            }
        }
    }

    /// Note the policers with names.
    pub fn note_named(&self, named: &mut NamedPolicers) {
        for (called, policer) in &self.policers {
            if let PolicerName::Name(name) = called {
                named.0.insert(name.clone(), policer.clone());
            }
        }
    }

    /// Take the policers with names that are known, and make those known that are not, or have another rate now.
    pub fn share_named(&mut self, named: &mut NamedPolicers) {
        for (called, policer) in &mut self.policers {
            let PolicerName::Name(name) = called else { continue };
            match named.0.get(name).filter(|known| known.rate == policer.rate) {
                Some(known) => *policer = known.clone(),
                None => drop(named.0.insert(name.clone(), policer.clone())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn policer_of_packets_admits_its_burst_then_its_rate() {
        // A clock that wraps around within the bucket's word.
        for start in [0, 1_000, u64::MAX / 32 - SECOND / 2, 1_700_000_000 * SECOND] {
            let policer = Policer::new(PolicerRate::Packets(1_000, 20));
            let admitted = |from: u64, count: u64, step: u64| {
                (0..count)
                    .filter(|k| policer.admits(64, start + from + k * step))
                    .count()
            };
            assert_eq!(20, admitted(0, 100, 0), "{start}");
            // Ten times the rate for a second: one in ten.
            assert_eq!(1_000, admitted(SECOND / 10_000, 10_000, SECOND / 10_000), "{start}");
            // What is saved up is no more than the burst.
            assert_eq!(20, admitted(9 * SECOND, 100, 0), "{start}");
        }
    }

    #[test]
    fn policer_of_bits_counts_bytes() {
        let policer = Policer::new(PolicerRate::Bits(8_000_000, 3_000));
        let admitted = |at: u64, bytes: u64| (0..100).filter(|_| policer.admits(bytes, at)).count();
        assert_eq!(2, admitted(SECOND, 1_500));
        // 1 ms at 8 Mbit/s are 1,000 bytes.
        assert_eq!(0, admitted(SECOND + 1_000_000, 1_001));
        assert_eq!(10, admitted(SECOND + 1_000_000, 100));
    }

    #[test]
    fn policer_extreme_rates_admit_without_overflow() {
        for rate in [
            PolicerRate::Packets(1, u64::MAX),
            PolicerRate::Bits(1, u64::MAX),
            PolicerRate::Bits(u64::MAX, 1),
        ] {
            let policer = Policer::new(rate);
            assert!(policer.admits(1, u64::MAX), "{rate:?}");
        }
    }
}

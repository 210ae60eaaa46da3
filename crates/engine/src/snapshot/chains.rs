//! Chains: steps that a router's packets pass before session lookup, or before they are routed without a session.
//!
//! Chains are configured by name and compiled into one array in which steps only jump forwards: a batch of packets passes it
//! once, from front to back.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_filter::{Address, CutTree, Header, Matcher, Rule, RuleNumber};
use sluice_table::token_bucket::{SharedTokenBucket, TokenRate};

use crate::packet::counters::Counter;
use crate::packet::io::WorkerIndex;

mod compile;

pub use compile::{Action, ChainError, ChainText, ClassText};

/// The chain at which packets begin.
pub const ENTRY: &str = "input";

/// Maximum number of steps of all chains of a router.
pub const MAX_STEPS: usize = 256;

/// Index of a step in a router's array.
pub type StepIndex = u16;

/// Index of a tally of a router.
pub type TallyIndex = u16;

/// A step of a chain.
#[derive(Debug)]
pub enum Step {
    /// Count packets.
    Count(TallyIndex),
    /// Jump to the target of the first matching class.
    Classify(Box<Classify>),
    /// Police packets.
    Police {
        /// Index of the policer.
        policer: u16,
        /// Counts packets above the rate.
        tally: TallyIndex,
        /// Where packets above the rate continue; `None`: they are dropped.
        exceed: Option<StepIndex>,
    },
    /// Send copies.
    Mirror {
        /// The interface that copies are sent by.
        interface: u16,
        /// Counts packets that were copied.
        tally: TallyIndex,
    },
    /// Continue at another step.
    Jump(StepIndex),
    /// Drop packets.
    Drop(TallyIndex),
    /// Continue to session lookup if the interface has sessions, otherwise to routing.
    Sessions(TallyIndex),
    /// Route packets without a session.
    Forward(TallyIndex),
}

/// Consecutive classes, which are matched together.
#[derive(Debug)]
pub struct Classify {
    /// Matcher for IPv4.
    pub four: Finder<u32>,
    /// Matcher for IPv6.
    pub six: Finder<u128>,
    /// By class: its target, and its tally.
    pub targets: Vec<(StepIndex, TallyIndex)>,
}

/// Finds the first class that matches.
#[derive(Debug)]
pub enum Finder<A: Address> {
    /// Linear search.
    Few(Vec<(RuleNumber, Rule<A>)>),
    /// The matcher of the packet filter.
    Many(Box<CutTree<A>>),
}

/// Maximum number of hyperrectangles for a linear search.
const FEW: usize = 8;

impl<A: Address> Finder<A> {
    /// A matcher for hyperrectangles with the numbers of their classes, in order.
    fn new(boxes: Vec<(RuleNumber, Rule<A>)>) -> Self {
        match boxes.len() {
            0..=FEW => Self::Few(boxes),
            _ => Self::Many(Box::new(CutTree::numbered(boxes.into_iter()))),
        }
    }

    /// Find the class of each packet.
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

/// Counters of one worker for a tally.
#[derive(Debug, Default)]
#[repr(align(64))]
struct WorkerTally {
    packets: Counter,
    bytes: Counter,
}

/// Counter of a step: packets, and bytes of their frames. Each worker writes its own part.
#[derive(Debug)]
pub struct Tally(Box<[WorkerTally]>);

impl Tally {
    fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| WorkerTally::default()).collect())
    }

    /// Add to the part of the worker `own`.
    #[inline]
    pub fn add(&self, own: WorkerIndex, packets: u64, bytes: u64) {
        if let Some(share) = self.0.get(usize::from(own)) {
            share.packets.add(packets);
            share.bytes.add(bytes);
        }
    }

    /// Packets and bytes counted by all workers.
    pub fn total(&self) -> (u64, u64) {
        let sum = |of: fn(&WorkerTally) -> u64| self.0.iter().map(of).fold(0, u64::wrapping_add);
        (sum(|share| share.packets.get()), sum(|share| share.bytes.get()))
    }
}

/// Unit of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicerRate {
    /// Packets a second, and burst size in packets.
    Packets(u64, u64),
    /// Bits a second, and burst size in bytes.
    Bits(u64, u64),
}

/// A policer that all workers share: one word, which holds the time at which the bucket is full again.
#[derive(Debug)]
pub struct Policer {
    rate: PolicerRate,
    /// Of packets, or of bits.
    bucket: SharedTokenBucket,
}

impl Policer {
    /// A policer with a full bucket.
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

    /// Whether a packet of this many bytes conforms to the rate, at a time in nanoseconds.
    #[inline]
    pub fn admits(&self, bytes: u64, now: u64) -> bool {
        match self.rate {
            PolicerRate::Packets(..) => self.bucket.take(now),
            PolicerRate::Bits(..) => self.bucket.take_many(bytes.saturating_mul(8), now),
        }
    }
}

/// A step as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedStep {
    /// Name of the step's chain.
    pub chain: String,
    /// Text of the step in the configuration.
    pub text: String,
    /// The chain where all or some of its packets continue.
    pub to: Option<String>,
    /// Tally of the step.
    pub tally: Option<TallyIndex>,
}

/// Identity of a policer over commits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PolicerName {
    /// Place and text: the policer belongs to one step.
    Text(String),
    /// A name, by which steps of any router share it.
    Name(String),
}

/// Policers that steps of several routers share, by name.
#[derive(Debug, Default)]
pub struct NamedPolicers(HashMap<String, Arc<Policer>>);

/// The chains of a router.
#[derive(Debug, Default)]
pub struct Chains {
    steps: Vec<Step>,
    /// Tallies, with their identities over commits.
    tallies: Vec<(String, Arc<Tally>)>,
    policers: Vec<(PolicerName, Arc<Policer>)>,
    listed: Vec<ListedStep>,
}

impl Chains {
    /// The steps; packets begin at the first one.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The tally with this index.
    #[inline]
    pub fn tally(&self, index: TallyIndex) -> Option<&Tally> {
        self.tallies.get(usize::from(index)).map(|(_, tally)| &**tally)
    }

    /// The policer with this index.
    #[inline]
    pub fn policer(&self, index: u16) -> Option<&Policer> {
        self.policers.get(usize::from(index)).map(|(_, policer)| &**policer)
    }

    /// The steps in the order of the configuration, chain by chain.
    pub fn listed(&self) -> &[ListedStep] {
        &self.listed
    }

    /// Keep the counts of tallies and the state of policers that were in the previous chains.
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

    /// Add the named policers to the map.
    pub fn note_named(&self, named: &mut NamedPolicers) {
        for (called, policer) in &self.policers {
            if let PolicerName::Name(name) = called {
                named.0.insert(name.clone(), policer.clone());
            }
        }
    }

    /// Use the named policers of the map. Add those that are missing or have a new rate.
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
        // Including times at which the policer's own clock wraps around.
        for start in [0, 1_000, u64::MAX / 32 - SECOND / 2, 1_700_000_000 * SECOND] {
            let policer = Policer::new(PolicerRate::Packets(1_000, 20));
            let admitted = |from: u64, count: u64, step: u64| {
                (0..count)
                    .filter(|k| policer.admits(64, start + from + k * step))
                    .count()
            };
            assert_eq!(20, admitted(0, 100, 0), "{start}");
            // Ten times the rate for a second: one packet of ten conforms.
            assert_eq!(1_000, admitted(SECOND / 10_000, 10_000, SECOND / 10_000), "{start}");
            // The bucket holds no more than the burst.
            assert_eq!(20, admitted(9 * SECOND, 100, 0), "{start}");
        }
    }

    #[test]
    fn policer_of_bits_counts_bytes() {
        let policer = Policer::new(PolicerRate::Bits(8_000_000, 3_000));
        let admitted = |at: u64, bytes: u64| (0..100).filter(|_| policer.admits(bytes, at)).count();
        assert_eq!(2, admitted(SECOND, 1_500));
        // 1 ms at 8 Mbit/s is 1,000 bytes.
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

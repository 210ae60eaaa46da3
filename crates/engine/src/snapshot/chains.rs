//! Chains: steps that a router's packets go through before session lookup, or before they are routed without a session.
//!
//! Chains are configured by name. All chains of a router are compiled into one array in which steps only jump forward, so that
//! a batch of packets goes through the array once, from front to back.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_filter::{Address, CutTree, Header, Matcher, Rule, RuleNumber};
use sluice_table::token_bucket::{SharedTokenBucket, TokenRate};

use crate::packet::counters::Counter;
use crate::packet::io::WorkerIndex;
use crate::session::family::{Family, PerFamily};

mod columns;
mod compile;

pub use columns::{Column, Conditions, Constant};
pub use compile::{Action, ChainError, ChainText, ClassText};

/// Name of the chain that all packets enter first.
pub const ENTRY: &str = "input";

/// Maximum number of steps in all chains of a router.
pub const MAX_STEPS: usize = 256;

/// Index of a step in a router's array of steps.
pub type StepIndex = u16;

/// Index of a tally of a router.
pub type TallyIndex = u16;

/// A step of a chain.
#[derive(Debug)]
pub enum Step {
    /// Count packets.
    Count(TallyIndex),
    /// Continue at the target of the first matching class.
    Classify(Box<Classify>),
    /// Police packets.
    Police {
        /// Index of the policer.
        policer: u16,
        /// Tally of the packets that exceed the rate limit.
        tally: TallyIndex,
        /// Step at which packets continue if they exceed the rate limit. `None` means that such packets are dropped.
        exceed: Option<StepIndex>,
    },
    /// Send copies of packets.
    Mirror {
        /// The interface through which copies are sent.
        interface: u16,
        /// Tally of the packets that were copied.
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
    pub v4: Finder<u32>,
    /// Matcher for IPv6.
    pub v6: Finder<u128>,
    /// For each class: its target and its tally.
    pub targets: Vec<(StepIndex, TallyIndex)>,
}

/// The matchers of all address families.
#[derive(Debug)]
pub struct AllFinders;

impl PerFamily for AllFinders {
    type Of<F: Family> = Finder<F::Number>;
}

/// Finds the first class that matches a packet.
#[derive(Debug)]
pub enum Finder<A: Address> {
    /// Linear search over a few hyperrectangles.
    Linear(ShortList<A>),
    /// The matcher of the packet filter, for many hyperrectangles.
    Tree(Box<CutTree<A>>),
}

/// A few hyperrectangles, each with the number of its class.
#[derive(Debug)]
pub struct ShortList<A: Address> {
    rules: Vec<(RuleNumber, Rule<A>)>,
    /// The conditions of the hyperrectangles; `None` if they can't be checked for a whole burst at once.
    conditions: Option<Vec<(RuleNumber, Conditions<A>)>>,
}

/// Maximum number of hyperrectangles for a linear search.
const FEW: usize = 8;

impl<A: Address> Finder<A> {
    /// Creates a matcher for sorted hyperrectangles, each with the number of its class.
    fn new(hyperrectangles: Vec<(RuleNumber, Rule<A>)>) -> Self {
        match hyperrectangles.len() {
            0..=FEW => Self::Linear(ShortList {
                conditions: hyperrectangles
                    .iter()
                    .map(|(number, rule)| Some((*number, Conditions::of(rule)?)))
                    .collect(),
                rules: hyperrectangles,
            }),
            _ => Self::Tree(Box::new(CutTree::numbered(hyperrectangles.into_iter()))),
        }
    }

    /// Finds the class of each packet.
    pub fn find(&self, headers: &[Header<A>], found: &mut [Option<RuleNumber>]) {
        match self {
            Self::Linear(linear) => {
                for (header, found) in headers.iter().zip(found) {
                    *found = linear
                        .rules
                        .iter()
                        .find(|(_, rule)| rule.matches(header))
                        .map(|&(number, _)| number);
                }
            }
            Self::Tree(best) => best.first_of_batch(&mut (), headers, found),
        }
    }

    /// The conditions of the hyperrectangles in their order, each with the number of its class. `None` if they can't be checked for a
    /// whole burst at once.
    pub fn conditions(&self) -> Option<&[(RuleNumber, Conditions<A>)]> {
        match self {
            Self::Linear(linear) => linear.conditions.as_deref(),
            Self::Tree(_) => None,
        }
    }
}

/// The part of a tally that one worker writes.
#[derive(Debug, Default)]
#[repr(align(64))]
struct WorkerTally {
    packets: Counter,
    bytes: Counter,
}

/// Tally: counts the packets of a step, and the bytes in the frames of these packets. Each worker writes a separate
/// part of the tally.
#[derive(Debug)]
pub struct Tally(Box<[WorkerTally]>);

impl Tally {
    fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| WorkerTally::default()).collect())
    }

    /// Adds to the part that worker `own` writes.
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
    /// Packets per second, and burst size in packets.
    Packets(u64, u64),
    /// Bits per second, and burst size in bytes.
    Bits(u64, u64),
}

/// A policer that all workers share. The state of a policer is one word: the time at which its token bucket will be
/// full.
#[derive(Debug)]
pub struct Policer {
    rate: PolicerRate,
    /// Token bucket that counts packets or bits.
    bucket: SharedTokenBucket,
}

impl Policer {
    /// Creates a policer with a full bucket.
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

    /// Whether the rate permits a packet of this many bytes at the time `now`, in nanoseconds.
    #[inline]
    pub fn admits(&self, bytes: u64, now: u64) -> bool {
        self.admits_all(1, bytes, now)
    }

    /// Whether the rate permits a number of packets, which have this many bytes in total. The result `false` has no effect: some of
    /// the packets may be permitted.
    #[inline]
    pub fn admits_all(&self, packets: u64, bytes: u64, now: u64) -> bool {
        match self.rate {
            PolicerRate::Packets(..) => self.bucket.take_one_by_one(packets, now),
            PolicerRate::Bits(..) => self.bucket.take_many(bytes.saturating_mul(8), now),
        }
    }
}

/// A step, as shown in lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedStep {
    /// Name of the step's chain.
    pub chain: String,
    /// Text of the step in the configuration.
    pub text: String,
    /// The chain, if any, at which all or some packets of the step continue.
    pub to: Option<String>,
    /// Tally of the step, if it has one.
    pub tally: Option<TallyIndex>,
}

/// Identity of a policer. A commit keeps the state of policers with unchanged identities.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PolicerName {
    /// Position and text of the only step that uses the policer.
    Text(String),
    /// Name of the policer. All steps with this name share the policer, in all routers.
    Name(String),
}

/// Policers with names, which steps of several routers share.
#[derive(Debug, Default)]
pub struct NamedPolicers(HashMap<String, Arc<Policer>>);

/// The chains of a router.
#[derive(Debug, Default)]
pub struct Chains {
    steps: Vec<Step>,
    /// Tallies with their identities. A commit keeps the counts of tallies with unchanged identities.
    tallies: Vec<(String, Arc<Tally>)>,
    policers: Vec<(PolicerName, Arc<Policer>)>,
    listed: Vec<ListedStep>,
}

impl Chains {
    /// Whether the steps can be executed for a whole burst at once: none of them copies packets, and all conditions can be checked
    /// so.
    pub fn is_express(&self) -> bool {
        self.steps.iter().all(|step| match step {
            Step::Mirror { .. } => false,
            Step::Classify(classify) => classify.v4.conditions().is_some() && classify.v6.conditions().is_some(),
            _ => true,
        })
    }

    /// Whether packets may be routed without a session although their interface has sessions.
    pub fn bypasses_sessions(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Forward(_)))
    }

    /// The steps. Packets start at the first step.
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

    /// Takes over the counts and the state of those tallies and policers that the previous chains also contain.
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

    /// Adds the named policers of these chains to the map.
    pub fn note_named(&self, named: &mut NamedPolicers) {
        for (called, policer) in &self.policers {
            if let PolicerName::Name(name) = called {
                named.0.insert(name.clone(), policer.clone());
            }
        }
    }

    /// Replaces each named policer by the policer in the map that has the same name and rate. If the map has no such
    /// policer, adds the policer to the map.
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
        // The start times include times at which the policer's clock wraps around.
        for start in [0, 1_000, u64::MAX / 32 - SECOND / 2, 1_700_000_000 * SECOND] {
            let policer = Policer::new(PolicerRate::Packets(1_000, 20));
            let admitted = |from: u64, count: u64, step: u64| {
                (0..count)
                    .filter(|k| policer.admits(64, start + from + k * step))
                    .count()
            };
            assert_eq!(20, admitted(0, 100, 0), "{start}");
            // Packets arrive for a second at ten times the rate: one of ten packets is admitted.
            assert_eq!(1_000, admitted(SECOND / 10_000, 10_000, SECOND / 10_000), "{start}");
            // The bucket holds at most the burst size.
            assert_eq!(20, admitted(9 * SECOND, 100, 0), "{start}");
        }
    }

    #[test]
    fn policer_of_bits_counts_bytes() {
        let policer = Policer::new(PolicerRate::Bits(8_000_000, 3_000));
        let admitted = |at: u64, bytes: u64| (0..100).filter(|_| policer.admits(bytes, at)).count();
        assert_eq!(2, admitted(SECOND, 1_500));
        // In 1 ms, 8 Mbit/s permit 1,000 bytes.
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

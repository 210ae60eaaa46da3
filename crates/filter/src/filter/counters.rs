//! Counters and log records of rules.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::{Action, DecidedBy, LOGGED, RulePosition, endpoints, spare_rules};
use sluice_table::arena::Arena;
use sluice_table::token_bucket::TokenRate;

use crate::{Address, Field, Header};

/// Maximum rate of log records for each rule.
const LOG_RATE: TokenRate = TokenRate::new(LOGGED as u64, LOGGED as u64);

/// Maximum number of queued log records.
const LOG_CAPACITY: usize = 256;

/// Counter of a rule.
#[derive(Debug, Default)]
pub struct Counter {
    packets: AtomicU64,
    bytes: AtomicU64,
    /// Time of the last counted packet in nanoseconds of the workers' clock; 0 if no packet was counted.
    last: AtomicU64,
    /// Time until which the packets admitted so far use up the rate. This is the theoretical arrival time of the GCRA,
    /// which limits the rate.
    full_at: AtomicU64,
}

impl Counter {
    /// Number of packets.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Number of bytes, counted from the IP header.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Time of the last packet in nanoseconds of the workers' clock; `None` if no packet has matched.
    pub fn last(&self) -> Option<u64> {
        Some(self.last.load(Ordering::Relaxed)).filter(|last| *last != 0)
    }

    fn count(&self, bytes: u32, now: u64) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes.into(), Ordering::Relaxed);
        self.last.store(now.max(1), Ordering::Relaxed);
    }

    /// Whether a further packet conforms to a rate, and is therefore admitted.
    fn admits(&self, rate: TokenRate, now: u64) -> bool {
        rate.take_shared(&self.full_at, now)
    }
}

/// Log record of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Position of the rule.
    pub place: RulePosition,
    /// Source and destination address, each with its port or [`crate::NONE`].
    pub endpoints: [(IpAddr, u32); 2],
    /// IP protocol number.
    pub protocol: u8,
    /// Numbers of the input and the output interface.
    pub interfaces: [u32; 2],
    /// Length of the IP packet in bytes.
    pub length: u32,
}

/// Counters of all rules.
#[derive(Debug)]
pub struct Counters {
    of_rules: Arena<Arc<Counter>>,
    default: Arc<Counter>,
    log: Arc<Mutex<VecDeque<LogRecord>>>,
    lost: Arc<AtomicU64>,
}

impl Counters {
    /// Creates counters for `rules` rules, all at 0.
    pub fn new(rules: usize) -> Self {
        Self {
            of_rules: Self::arena((0..rules).map(|_| Arc::default())),
            default: Arc::default(),
            log: Arc::new(Mutex::new(VecDeque::with_capacity(LOG_CAPACITY))),
            lost: Arc::default(),
        }
    }

    /// Creates an arena of counters with capacity for rules that are added later.
    fn arena(counters: impl Iterator<Item = Arc<Counter>>) -> Arena<Arc<Counter>> {
        let counters: Vec<_> = counters.collect();
        let capacity = spare_rules(counters.len());
        Arena::new(counters, 0, capacity)
    }

    /// Creates counters for a new list of rules. A rule that has a position in the old list keeps its counter.
    pub fn following(before: &Self, places: impl Iterator<Item = Option<RulePosition>>) -> Self {
        let counter = |place: Option<RulePosition>| place.and_then(|place| before.shared(place)).unwrap_or_default();
        Self {
            of_rules: Self::arena(places.map(counter)),
            default: before.default.clone(),
            log: before.log.clone(),
            lost: before.lost.clone(),
        }
    }

    /// The counter of a rule as a shared reference, so that a rebuilt filter can keep it.
    pub(super) fn shared(&self, place: RulePosition) -> Option<Arc<Counter>> {
        self.of_rules.get(place as usize).cloned()
    }

    /// Adds the counter of a new rule; false if the capacity is exhausted.
    pub(super) fn add(&self, counter: Arc<Counter>) -> bool {
        self.of_rules.append(counter).is_ok()
    }

    /// The counter of a rule.
    pub fn of(&self, place: RulePosition) -> Option<&Counter> {
        self.of_rules.get(place as usize).map(Arc::as_ref)
    }

    /// The counter of packets for which no rule determined the verdict.
    pub fn of_default(&self) -> &Counter {
        &self.default
    }

    /// Number of log records that were lost because the queue was full or locked.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Removes all log records from the queue and returns them.
    pub fn take_log(&self) -> Vec<LogRecord> {
        self.log
            .lock()
            .map(|mut log| log.drain(..).collect())
            .unwrap_or_default()
    }

    /// Counts a match of a rule that does not decide. Returns whether later rules are evaluated for the packet.
    pub(super) fn count_match<A: Address>(
        &self,
        place: RulePosition,
        action: Action,
        header: &Header<A>,
        now: u64,
    ) -> bool {
        let Some(counter) = self.of(place) else { return true };
        counter.count(header.get(Field::Length), now);
        match action {
            Action::Limit(rate) => counter.admits(rate, now),
            Action::Log if counter.admits(LOG_RATE, now) => {
                self.put(place, header);
                true
            }
            _ => true,
        }
    }

    /// Counts the result of a packet. A packet that exceeded the rate of a rule is not counted again, because that rule
    /// has already counted it.
    #[inline]
    pub(super) fn count_result<A: Address>(&self, by: DecidedBy, header: &Header<A>, now: u64) {
        match by {
            DecidedBy::Rule(place) | DecidedBy::Application(place) => {
                if let Some(counter) = self.of(place) {
                    counter.count(header.get(Field::Length), now);
                }
            }
            DecidedBy::Default => self.default.count(header.get(Field::Length), now),
            DecidedBy::Limit(_) => {}
        }
    }

    /// Queues a log record without waiting; if the queue is full or locked, the record is counted as lost.
    fn put<A: Address>(&self, place: RulePosition, header: &Header<A>) {
        let record = LogRecord {
            place,
            endpoints: endpoints(header),
            protocol: header.get(Field::Protocol) as u8,
            interfaces: [header.get(Field::Incoming), header.get(Field::Outgoing)],
            length: header.get(Field::Length),
        };
        match self.log.try_lock() {
            Ok(mut log) if log.len() < LOG_CAPACITY => log.push_back(record),
            _ => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_admits_its_burst_and_then_its_rate() {
        let counter = Counter::default();
        let second = 1_000_000_000;
        let admitted = |from: u64, packets: u64, step: u64| {
            (0..packets)
                .filter(|packet| counter.admits(TokenRate::new(100, 20), from + packet * step))
                .count()
        };
        assert_eq!(20, admitted(5 * second, 1_000, 0));
        // The rate of 100 packets per second adds one token in 10 ms.
        assert_eq!(100, admitted(5 * second + 10_000_000, 1_000, 1_000_000));
        assert_eq!(20, admitted(50 * second, 1_000, 0));
    }

    #[test]
    fn log_that_nobody_takes_is_bounded_and_counted() {
        let counters = Counters::new(1);
        let header = Header::<u32>::new(1, 2).with(Field::Length, 40);
        for second in 1..=60 {
            for _ in 0..20 {
                assert!(counters.count_match(0, Action::Log, &header, second * 1_000_000_000));
            }
        }
        assert_eq!(1_200, counters.of(0).map_or(0, Counter::packets));
        assert_eq!((256, 600 - 256), (counters.take_log().len(), counters.lost()));
        assert_eq!(0, counters.take_log().len());
    }
}

//! Host state shared by all cores: rates of rule matches (`detection_filter` and `threshold`) and xbits.
//!
//! The tables have a fixed size, and the cores update them by compare-and-swap, so that the flows of one source are
//! counted together even if they belong to several shards. The key of an entry is a hash of an address and either a
//! rule (for rates) or a name (for xbits). If the window of an entry has expired, the next match starts a new window.
//! If all slots of a hash are occupied by other keys, a match is not suppressed, and an xbit is not set; both cases are
//! counted.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use sluice_table::hash::Hasher;

use crate::scope::Endpoints;
use crate::signature::{FlowBit, Id, Rate, RateKind, Track, XBits};

/// Effect of a rate on a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdResult {
    /// Too few matches so far: the rule does not fire.
    Below,
    /// The rule's action applies. The limit of reports is reached, so the match is not reported.
    Fires,
    /// The rule's action applies, and the match is reported.
    Reported,
}

/// Maximum number of slots probed for a key.
const MAX_PROBES: usize = 8;

/// Key, window and count of a rate: 16 bytes.
#[derive(Debug, Default)]
struct Entry {
    /// 0 marks a free slot.
    key: AtomicU64,
    /// Start of the window in seconds (upper half), and number of matches in the window (lower half).
    state: AtomicU64,
}

/// Match rates by rule and address, and xbits.
#[derive(Debug)]
pub struct HostTable {
    entries: Box<[Entry]>,
    hasher: Hasher,
    /// Length of the longest window in seconds.
    longest: AtomicU32,
    /// Matches that were not counted because no slot was free.
    pub full: AtomicU64,
    /// Xbits. The state of an entry is the second in which the xbit expires.
    xbits: Box<[Entry]>,
    /// Xbits that were not set because no slot was free.
    pub xbits_full: AtomicU64,
}

impl HostTable {
    /// Creates a table with at least `entries` slots. `secret` must be random, because attackers choose the addresses.
    pub fn new(entries: usize, secret: [u64; 2]) -> Self {
        let count = entries.max(MAX_PROBES).next_power_of_two();
        Self {
            entries: (0..count).map(|_| Entry::default()).collect(),
            hasher: Hasher::new(secret),
            longest: AtomicU32::new(3_600),
            full: AtomicU64::new(0),
            xbits: (0..count).map(|_| Entry::default()).collect(),
            xbits_full: AtomicU64::new(0),
        }
    }

    /// Whether an xbit satisfies the condition of a rule; `name` is the hash of its name.
    pub fn xbits_match(&self, bits: &XBits, name: u64, ends: &Endpoints, second: u32) -> bool {
        let key = self.host_key(name, bits.track, ends);
        let is_set = self.find_xbits(key).is_some_and(|entry| is_in_force(entry, second));
        match bits.command {
            FlowBit::IsSet => is_set,
            FlowBit::IsNotSet => !is_set,
            FlowBit::Set | FlowBit::Unset | FlowBit::Toggle => true,
        }
    }

    /// Changes an xbit as a rule demands.
    pub fn update_xbits(&self, bits: &XBits, name: u64, ends: &Endpoints, second: u32) {
        let key = self.host_key(name, bits.track, ends);
        let until = u64::from(second) + u64::from(bits.expire);
        let known = self.find_xbits(key);
        let is_set = known.is_some_and(|entry| is_in_force(entry, second));
        let sets = match bits.command {
            FlowBit::Set => true,
            FlowBit::Unset => false,
            FlowBit::Toggle => !is_set,
            FlowBit::IsSet | FlowBit::IsNotSet => return,
        };
        match (sets, known) {
            (false, None) => {}
            (false, Some(entry)) => entry.state.store(0, Relaxed),
            (true, Some(entry)) => entry.state.store(until, Relaxed),
            (true, None) => match self.create_xbits(key, second) {
                Some(entry) => entry.state.store(until, Relaxed),
                None => _ = self.xbits_full.fetch_add(1, Relaxed),
            },
        }
    }

    fn find_xbits(&self, key: u64) -> Option<&Entry> {
        places(&self.xbits, key).find(|entry| entry.key.load(Relaxed) == key)
    }

    fn create_xbits(&self, key: u64, second: u32) -> Option<&Entry> {
        places(&self.xbits, key).find(|entry| {
            let found = entry.key.load(Relaxed);
            (found == 0 || !is_in_force(entry, second))
                && match entry.key.compare_exchange(found, key, Relaxed, Relaxed) {
                    Ok(_) => true,
                    Err(now) => now == key,
                }
        })
    }

    /// Counts a match of a rule and returns its effect. `second` is the time in seconds since the start. The rule is
    /// identified by its number, so that counting continues after the ruleset is replaced.
    pub fn count_match(&self, rule: Id, rate: &Rate, ends: &Endpoints, second: u32) -> ThresholdResult {
        let max = rate.count.max(1);
        let Some(count) = self.count(self.key(rule, rate.track, ends), rate.seconds, second) else {
            return ThresholdResult::Reported;
        };
        match rate.kind {
            RateKind::After if count <= rate.count => ThresholdResult::Below,
            RateKind::After => ThresholdResult::Reported,
            RateKind::Limit if count > rate.count => ThresholdResult::Fires,
            RateKind::Limit => ThresholdResult::Reported,
            RateKind::Every if count % max != 0 => ThresholdResult::Below,
            RateKind::Every => ThresholdResult::Reported,
            RateKind::Once => match count.cmp(&max) {
                std::cmp::Ordering::Less => ThresholdResult::Below,
                std::cmp::Ordering::Equal => ThresholdResult::Reported,
                std::cmp::Ordering::Greater => ThresholdResult::Fires,
            },
        }
    }

    /// Key of a rate; never 0.
    fn key(&self, rule: Id, track: Track, ends: &Endpoints) -> u64 {
        let parts = match track {
            Track::Source => [bits(ends.source), 1],
            Track::Destination => [bits(ends.destination), 2],
            Track::Both => [bits(ends.source), bits(ends.destination)],
            Track::Rule => [0, 0],
        };
        self.hash(u64::from(rule.generator) << 32 | u64::from(rule.signature), parts)
    }

    /// Key of an xbit; never 0. A host has the same key as source and as destination, and a pair of hosts has the same
    /// key in both directions.
    fn host_key(&self, name: u64, track: Track, ends: &Endpoints) -> u64 {
        let [source, destination] = [bits(ends.source), bits(ends.destination)];
        let parts = match track {
            Track::Source => [source, 0],
            Track::Destination => [destination, 0],
            Track::Both => [source.min(destination), source.max(destination)],
            Track::Rule => [0, 0],
        };
        self.hash(name, parts)
    }

    fn hash(&self, mut hash: u64, parts: [u128; 2]) -> u64 {
        for part in parts {
            hash = self.hasher.block([part as u64 ^ hash, (part >> 64) as u64]);
        }
        hash.max(1)
    }

    /// Counts a match and returns its ordinal number within its window.
    fn count(&self, key: u64, seconds: u32, second: u32) -> Option<u32> {
        let is_over = |state: u64| state == 0 || second.wrapping_sub((state >> 32) as u32) >= seconds.max(1);
        if seconds > self.longest.load(Relaxed) {
            self.longest.fetch_max(seconds, Relaxed);
        }
        let Some(entry) = self.find(key).or_else(|| self.claim(key, second)) else {
            self.full.fetch_add(1, Relaxed);
            return None;
        };
        let next = |state: u64| match is_over(state) {
            true => u64::from(second) << 32 | 1,
            false => state & !0xffff_ffff | (state.wrapping_add(1) & 0xffff_ffff),
        };
        let before = entry.state.fetch_update(Relaxed, Relaxed, |state| Some(next(state)));
        before.ok().map(|state| next(state) as u32)
    }

    /// Finds the entry of a key.
    fn find(&self, key: u64) -> Option<&Entry> {
        places(&self.entries, key).find(|entry| entry.key.load(Relaxed) == key)
    }

    /// Claims an entry for a key that is not in the table.
    fn claim(&self, key: u64, second: u32) -> Option<&Entry> {
        places(&self.entries, key).find(|entry| {
            let found = entry.key.load(Relaxed);
            if found != 0 && !self.is_stale(entry, second) {
                return false;
            }
            match entry.key.compare_exchange(found, key, Relaxed, Relaxed) {
                Ok(_) => {
                    entry.state.store(0, Relaxed);
                    true
                }
                Err(now) => now == key,
            }
        })
    }

    /// Whether the entry's last match is older than the longest window of all rules.
    fn is_stale(&self, entry: &Entry, second: u32) -> bool {
        let started = (entry.state.load(Relaxed) >> 32) as u32;
        second.wrapping_sub(started) > self.longest.load(Relaxed)
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Slots that a key may use.
fn places(entries: &[Entry], key: u64) -> impl Iterator<Item = &Entry> {
    let mask = entries.len() - 1;
    (0..MAX_PROBES).filter_map(move |place| entries.get((key as usize).wrapping_add(place) & mask))
}

fn is_in_force(entry: &Entry, second: u32) -> bool {
    entry.state.load(Relaxed) > u64::from(second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::Toward;

    fn from(last: u8) -> Endpoints {
        Endpoints {
            source: [10, 0, 0, last].into(),
            destination: [192, 0, 2, 1].into(),
            ports: [1, 2],
            protocol: 6,
            toward: Toward::Server,
            established: true,
            service: None,
        }
    }

    fn rule(signature: u32) -> Id {
        Id {
            generator: 1,
            signature,
            revision: 1,
        }
    }

    fn matched_rules(kind: RateKind, matches: &[(u8, u32)]) -> Vec<bool> {
        let rates = HostTable::new(64, [1, 2]);
        let rate = Rate {
            kind,
            track: Track::Source,
            count: 2,
            seconds: 10,
        };
        matches
            .iter()
            .map(|&(source, second)| {
                rates.count_match(rule(7), &rate, &from(source), second) == ThresholdResult::Reported
            })
            .collect()
    }

    #[test]
    fn kinds_differ_in_which_matches_fire() {
        let five = [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4)];
        assert_eq!(
            vec![false, false, true, true, true],
            matched_rules(RateKind::After, &five)
        );
        assert_eq!(
            vec![true, true, false, false, false],
            matched_rules(RateKind::Limit, &five)
        );
        assert_eq!(
            vec![false, true, false, true, false],
            matched_rules(RateKind::Every, &five)
        );
        assert_eq!(
            vec![false, true, false, false, false],
            matched_rules(RateKind::Once, &five)
        );
    }

    #[test]
    fn action_is_due_beyond_what_is_reported_and_not_before() {
        use ThresholdResult::{Below, Fires, Reported};
        let counted = |kind| {
            let rates = HostTable::new(64, [1, 2]);
            let rate = Rate {
                kind,
                track: Track::Source,
                count: 2,
                seconds: 10,
            };
            [0, 1, 2, 3].map(|second| rates.count_match(rule(7), &rate, &from(1), second))
        };
        assert_eq!([Below, Below, Reported, Reported], counted(RateKind::After));
        assert_eq!([Reported, Reported, Fires, Fires], counted(RateKind::Limit));
        assert_eq!([Below, Reported, Below, Reported], counted(RateKind::Every));
        assert_eq!([Below, Reported, Fires, Fires], counted(RateKind::Once));
    }

    #[test]
    fn key_keeps_its_entry_when_one_before_it_is_stale() {
        let rates = HostTable::new(8, [1, 2]);
        let (first, second) = (8, 16);
        assert_eq!(Some(1), rates.count(first, 10, 0));
        assert_eq!(Some(1), rates.count(second, 2_000, 3_000));
        // The first slot of the two keys is stale; counting continues in the second slot.
        assert_eq!(Some(2), rates.count(second, 2_000, 4_000));
        // A key that takes over the stale slot counts from 1.
        assert_eq!(Some(1), rates.count(24, 2_000, 4_000));
    }

    #[test]
    fn sources_are_counted_apart_and_windows_end() {
        assert_eq!(
            vec![false, false, false, true],
            matched_rules(RateKind::After, &[(1, 0), (2, 0), (1, 1), (1, 2)])
        );
        assert_eq!(
            vec![false, false, false],
            matched_rules(RateKind::After, &[(1, 0), (1, 5), (1, 10)])
        );
    }

    fn note(command: FlowBit, track: Track) -> XBits {
        XBits {
            command,
            name: "a".into(),
            track,
            expire: 10,
        }
    }

    #[test]
    fn notes_of_hosts_are_taken_and_forgotten() {
        let rates = HostTable::new(64, [1, 2]);
        let holds = |track, ends: &Endpoints, second| rates.xbits_match(&note(FlowBit::IsSet, track), 7, ends, second);
        rates.update_xbits(&note(FlowBit::Set, Track::Source), 7, &from(1), 5);
        assert!(holds(Track::Source, &from(1), 14) && !holds(Track::Source, &from(1), 15));
        assert!(!holds(Track::Source, &from(2), 5) && !holds(Track::Destination, &from(1), 5));
        // The destination of the reply is the host that has the bit.
        assert!(holds(Track::Destination, &from(1).reversed(), 5));
        rates.update_xbits(&note(FlowBit::Unset, Track::Source), 7, &from(1), 6);
        assert!(!holds(Track::Source, &from(1), 6));
        rates.update_xbits(&note(FlowBit::Toggle, Track::Both), 7, &from(1).reversed(), 6);
        assert!(holds(Track::Both, &from(1), 6) && !holds(Track::Both, &from(2), 6));
        rates.update_xbits(&note(FlowBit::Toggle, Track::Both), 7, &from(1), 6);
        assert!(!holds(Track::Both, &from(1), 6));
    }

    #[test]
    fn full_table_of_notes_keeps_those_in_force_and_says_so() {
        let rates = HostTable::new(8, [1, 2]);
        (0..=255).for_each(|source| rates.update_xbits(&note(FlowBit::Set, Track::Source), 7, &from(source), 0));
        assert_eq!(248, rates.xbits_full.load(Relaxed));
        let kept = |second| {
            let holds =
                |source: &u8| rates.xbits_match(&note(FlowBit::IsSet, Track::Source), 7, &from(*source), second);
            (0..=255).filter(holds).count()
        };
        assert_eq!((8, 0), (kept(0), kept(10)));
        rates.update_xbits(&note(FlowBit::Set, Track::Source), 7, &from(255), 10);
        assert_eq!(1, kept(10));
    }

    #[test]
    fn full_table_holds_nothing_back_and_says_so() {
        let rates = HostTable::new(8, [1, 2]);
        let rate = Rate {
            kind: RateKind::After,
            track: Track::Source,
            count: 9,
            seconds: 10,
        };
        let matched_rules = (0..=255)
            .filter(|&source| rates.count_match(rule(1), &rate, &from(source), 0) == ThresholdResult::Reported)
            .count();
        assert_eq!(248, matched_rules);
        assert_eq!(248, rates.full.load(Relaxed));
    }
}

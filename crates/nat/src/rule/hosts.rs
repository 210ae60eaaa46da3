//! Load balancing of destination rules over the hosts of a set that are up, by weight.
//!
//! The host is selected by weighted rendezvous hashing (Thaler and Ravishankar 1998; Schindelhauer and Schomaker 2005):
//! each host has a score that depends on the flow's hash and the host's address, and the host with the highest score is
//! selected. If a host goes down, only its own flows move to other hosts.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use crate::Address;

/// Index of a host set in the rules.
pub type HostSetIndex = u16;

/// Property of a flow that determines its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Balance {
    /// The hash of the flow: each flow is balanced individually.
    #[default]
    Random,
    /// The hash of the source address: all flows of a client use one host.
    Source,
}

/// State of a host. The health checker, all workers, and all snapshots that contain the host share its state.
#[derive(Debug, Default)]
pub struct HostState {
    down: AtomicBool,
    flows: AtomicU64,
}

impl HostState {
    /// Whether new flows may be sent to the host.
    #[inline]
    pub fn is_up(&self) -> bool {
        !self.down.load(Ordering::Relaxed)
    }

    /// Marks the host as up or down.
    pub fn set_up(&self, up: bool) {
        self.down.store(!up, Ordering::Relaxed);
    }

    /// Number of flows that were sent to the host.
    pub fn flows(&self) -> u64 {
        self.flows.load(Ordering::Relaxed)
    }
}

/// A host of a set.
#[derive(Clone, Debug)]
pub struct SetHost<A> {
    /// Address of the host.
    pub address: A,
    /// Weight: number of flows relative to other hosts.
    pub weight: u16,
    /// Health state and flow counter of the host.
    pub state: Arc<HostState>,
}

/// A set of hosts for load balancing.
#[derive(Clone, Debug)]
pub struct HostSet<A> {
    /// Hash of the health check settings.
    pub check: u64,
    /// Property of a flow that determines its host.
    pub balance: Balance,
    /// Distinct hosts of the set.
    pub hosts: Vec<SetHost<A>>,
}

/// Takes over the states of hosts from those earlier sets that have the same health check settings.
pub fn adopt_states<A: Address>(sets: &mut [HostSet<A>], before: &[HostSet<A>]) {
    let old = before
        .iter()
        .flat_map(|set| set.hosts.iter().map(move |host| (set.check, host)));
    let mut old: Vec<_> = old.map(Some).collect();
    for set in sets {
        for host in &mut set.hosts {
            let is_same = |(check, other): (u64, &SetHost<A>)| check == set.check && other.address == host.address;
            let place = old.iter().position(|old| old.is_some_and(is_same));
            if let Some((_, same)) = place.and_then(|place| old.get_mut(place)?.take()) {
                host.state = same.state.clone();
            }
        }
    }
}

impl<A: Address> HostSet<A> {
    /// Host for a flow, selected by the flow's keyed hash; `None` if no host is up.
    pub fn choose(&self, hash: u64) -> Option<&SetHost<A>> {
        let up = self.hosts.iter().filter(|host| host.state.is_up() && host.weight > 0);
        let scored = up.map(|host| (score(hash, host), host));
        let best = scored.reduce(|best, other| if other.0 > best.0 { other } else { best });
        best.map(|(_, host)| host)
    }

    /// The host in the set that has this address, whether the host is up or down.
    pub fn host(&self, address: A) -> Option<&SetHost<A>> {
        self.hosts.iter().find(|host| host.address == address)
    }

    /// Counts a flow that was sent to the host with this address.
    pub fn count(&self, address: A) {
        if let Some(host) = self.host(address) {
            host.state.flows.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Score of a host for a flow. The host with the highest score is selected.
fn score<A: Address>(hash: u64, host: &SetHost<A>) -> f64 {
    let [high, low] = host.address.words();
    let mixed = mixed(mixed(hash ^ high) ^ low);
    // The value is uniformly distributed, greater than 0 and less than 1.
    let drawn = ((mixed >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
    -f64::from(host.weight) / drawn.ln()
}

/// The finaliser of SplitMix64.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(weights: &[u16]) -> HostSet<u32> {
        let hosts = (1u32..).zip(weights).map(|(number, &weight)| SetHost {
            address: 0x0a00_0000 + number,
            weight,
            state: Arc::default(),
        });
        HostSet {
            check: 0,
            balance: Balance::Random,
            hosts: hosts.collect(),
        }
    }

    fn shares(set: &HostSet<u32>, flows: u64) -> Vec<f64> {
        let mut counts = vec![0.0; set.hosts.len()];
        for flow in 0..flows {
            let address = set.choose(mixed(flow)).unwrap().address;
            counts[(address & 0xff) as usize - 1] += 1.0 / flows as f64;
        }
        counts
    }

    #[test]
    fn shares_are_as_the_weights() {
        for (weights, expected) in [
            (vec![1, 1], vec![0.5, 0.5]),
            (vec![3, 1], vec![0.75, 0.25]),
            (vec![10, 20, 30, 40], vec![0.1, 0.2, 0.3, 0.4]),
            (vec![5, 0], vec![1.0, 0.0]),
        ] {
            for (expected, share) in expected.iter().zip(shares(&set(&weights), 40_000)) {
                assert!((expected - share).abs() < 0.01, "{weights:?}: {share}");
            }
        }
    }

    #[test]
    fn hosts_that_are_checked_as_before_go_on_one_for_one() {
        let before = [set(&[1, 1]), set(&[1])];
        let mut after = [set(&[2, 1, 1]), set(&[1]), HostSet { check: 1, ..set(&[1]) }];
        adopt_states(&mut after, &before);
        let is_same_state = |one: &SetHost<u32>, other: &SetHost<u32>| Arc::ptr_eq(&one.state, &other.state);
        assert!(is_same_state(&after[0].hosts[0], &before[0].hosts[0]));
        assert!(is_same_state(&after[0].hosts[1], &before[0].hosts[1]));
        assert!(is_same_state(&after[1].hosts[0], &before[1].hosts[0]));
        let new = [&after[0].hosts[2], &after[2].hosts[0]];
        assert!(new.iter().all(|host| Arc::strong_count(&host.state) == 1));
    }

    #[test]
    fn nobody_is_chosen_where_none_is_up() {
        let set = set(&[1, 2]);
        set.hosts.iter().for_each(|host| host.state.set_up(false));
        assert!(set.choose(7).is_none());
        set.hosts[1].state.set_up(true);
        assert_eq!(0x0a00_0002, set.choose(7).unwrap().address);
        assert!(self::set(&[]).choose(7).is_none());
    }

    proptest! {
        #[test]
        fn host_that_goes_down_moves_its_own_flows_alone(
            weights in prop::collection::vec(1u16..1000, 2..16), down in any::<prop::sample::Index>(), hash in any::<u64>(),
        ) {
            let set = set(&weights);
            let before = set.choose(hash).unwrap().address;
            let removed = &set.hosts[down.index(weights.len())];
            removed.state.set_up(false);
            let after = set.choose(hash).unwrap().address;
            prop_assert_ne!(removed.address, after);
            prop_assert!(before == after || before == removed.address);
            removed.state.set_up(true);
            prop_assert_eq!(before, set.choose(hash).unwrap().address);
        }
    }
}

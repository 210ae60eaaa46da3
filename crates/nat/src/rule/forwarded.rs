//! Pre-filter for packets from outside. It finds packets that no destination rule translates. The pre-filter is
//! evaluated for each packet, and the rule table once for each flow.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::collections::HashMap;

use super::Prefix;
use crate::Address;

/// Number of port bits, and number of hashed address regions. Several prefixes may share a region.
const PORTS: usize = 1 << 16;
const REGIONS: usize = 1 << 16;

/// Each region has two bits: for rules with ports, and for rules without ports.
const NAMED: u64 = 1;
const ALL: u64 = 2;

/// Bitmap of the forwarded ports, and bitmap of the address regions that have forwarding rules. Only one thread writes
/// the bitmaps.
#[derive(Debug)]
pub struct Forwarded {
    ports: Box<[AtomicU64; PORTS / 64]>,
    regions: Box<[AtomicU64; REGIONS / 32]>,
    /// Two bits for rules that apply to every region: rules with ports, and rules without ports.
    everywhere: AtomicU32,
}

fn zeros<const N: usize>() -> Box<[AtomicU64; N]> {
    Box::new([const { AtomicU64::new(0) }; N])
}

impl Default for Forwarded {
    fn default() -> Self {
        Self {
            ports: zeros(),
            regions: zeros(),
            everywhere: AtomicU32::new(0),
        }
    }
}

/// Prefix length of a region: /24 in IPv4 and /64 in IPv6.
fn region_length<A: Address>() -> u8 {
    if A::BITS == 32 { 24 } else { 64 }
}

/// Index of an address's region. The index is a hash that spreads adjacent prefixes.
#[inline(always)]
fn region<A: Address>(address: A) -> usize {
    let [high, low] = address.words();
    let bits = if A::BITS == 32 { low >> 8 } else { high ^ high >> 32 };
    (bits ^ bits >> 16) as usize % REGIONS
}

impl Forwarded {
    /// Whether a destination rule may forward a port of an address. False is exact; true may be a false positive.
    #[inline(always)]
    pub fn may_forward<A: Address>(&self, address: A, port: u16) -> bool {
        let region = region(address);
        let word = self.regions[region / 32].load(Ordering::Relaxed);
        let kinds = word >> (region % 32 * 2) | u64::from(self.everywhere.load(Ordering::Relaxed));
        let named = || self.ports[usize::from(port) / 64].load(Ordering::Relaxed) >> (port % 64) & 1 != 0;
        kinds & ALL != 0 || kinds & NAMED != 0 && named()
    }
}

/// Number of rules for each bit.
#[derive(Debug, Default)]
pub struct Account {
    ports: HashMap<u16, u32>,
    regions: HashMap<(usize, u64), u32>,
    everywhere: HashMap<u64, u32>,
}

/// Increments a count. Returns whether it was zero before.
fn more<K: core::hash::Hash + Eq>(counts: &mut HashMap<K, u32>, key: K) -> bool {
    let count = counts.entry(key).or_default();
    *count += 1;
    *count == 1
}

/// Decrements a count. Returns whether it is zero now.
fn less<K: core::hash::Hash + Eq>(counts: &mut HashMap<K, u32>, key: K) -> bool {
    let Some(count) = counts.get_mut(&key) else {
        return false;
    };
    *count -= 1;
    let last = *count == 0;
    if last {
        counts.remove(&key);
    }
    last
}

impl Account {
    /// Adds a rule that forwards these ports of a prefix; `None` means all ports. Must be called before the rule takes
    /// effect.
    pub fn add<A: Address>(&mut self, forwarded: &Forwarded, external: Prefix<A>, ports: Option<(u16, u16)>) {
        let kind = if ports.is_some() { NAMED } else { ALL };
        for port in ports.into_iter().flat_map(|(first, last)| first..=last) {
            if more(&mut self.ports, port) {
                forwarded.ports[usize::from(port) / 64].fetch_or(1 << (port % 64), Ordering::Relaxed);
            }
        }
        match regions(external) {
            None if more(&mut self.everywhere, kind) => {
                forwarded.everywhere.fetch_or(kind as u32, Ordering::Relaxed);
            }
            Some(regions) => {
                for region in regions {
                    if more(&mut self.regions, (region, kind)) {
                        forwarded.regions[region / 32].fetch_or(kind << (region % 32 * 2), Ordering::Relaxed);
                    }
                }
            }
            None => {}
        }
    }

    /// Removes a rule.
    pub fn remove<A: Address>(&mut self, forwarded: &Forwarded, external: Prefix<A>, ports: Option<(u16, u16)>) {
        let kind = if ports.is_some() { NAMED } else { ALL };
        for port in ports.into_iter().flat_map(|(first, last)| first..=last) {
            if less(&mut self.ports, port) {
                forwarded.ports[usize::from(port) / 64].fetch_and(!(1 << (port % 64)), Ordering::Relaxed);
            }
        }
        match regions(external) {
            None if less(&mut self.everywhere, kind) => {
                forwarded.everywhere.fetch_and(!(kind as u32), Ordering::Relaxed);
            }
            Some(regions) => {
                for region in regions {
                    if less(&mut self.regions, (region, kind)) {
                        forwarded.regions[region / 32].fetch_and(!(kind << (region % 32 * 2)), Ordering::Relaxed);
                    }
                }
            }
            None => {}
        }
    }
}

/// Regions of a prefix; `None` if a short prefix counts as all regions.
fn regions<A: Address>(external: Prefix<A>) -> Option<impl Iterator<Item = usize>> {
    let length = region_length::<A>();
    let count = 1u128 << length.saturating_sub(external.length).min(64);
    let step = 1u128 << (A::BITS - length);
    let first = external.address.number();
    (count <= 256).then(|| (0..count).map(move |number| region(A::from_number(first + number * step))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str, length: u8) -> Prefix<u32> {
        let address: core::net::Ipv4Addr = text.parse().unwrap();
        Prefix {
            address: address.to_bits(),
            length,
        }
    }

    fn may(forwarded: &Forwarded, text: &str, port: u16) -> bool {
        forwarded.may_forward(prefix(text, 32).address, port)
    }

    #[test]
    fn packets_of_no_rule_are_denied_and_those_of_a_rule_are_not() {
        let (forwarded, mut account) = (Forwarded::default(), Account::default());
        assert!(!may(&forwarded, "203.0.113.1", 80));
        account.add(&forwarded, prefix("203.0.113.1", 32), Some((80, 81)));
        assert!(may(&forwarded, "203.0.113.1", 80));
        assert!(may(&forwarded, "203.0.113.1", 81));
        assert!(!may(&forwarded, "203.0.113.1", 82));
        assert!(!may(&forwarded, "203.0.114.1", 80));
        account.add(&forwarded, prefix("198.51.96.0", 20), None);
        assert!(may(&forwarded, "198.51.111.255", 9));
        assert!(!may(&forwarded, "198.51.112.0", 9));
        account.add(&forwarded, prefix("10.0.0.0", 8), Some((7, 7)));
        assert!(may(&forwarded, "192.0.2.1", 7));
        assert!(!may(&forwarded, "192.0.2.1", 9));
    }

    #[test]
    fn bits_go_with_the_last_rule_that_set_them() {
        let (forwarded, mut account) = (Forwarded::default(), Account::default());
        let rules = [
            (prefix("203.0.113.1", 32), Some((80, 80))),
            (prefix("203.0.113.2", 32), Some((80, 80))),
            (prefix("203.0.113.2", 32), None),
            (prefix("0.0.0.0", 0), None),
        ];
        for (external, ports) in rules {
            account.add(&forwarded, external, ports);
        }
        account.remove(&forwarded, rules[3].0, rules[3].1);
        assert!(!may(&forwarded, "192.0.2.1", 80));
        account.remove(&forwarded, rules[2].0, rules[2].1);
        assert!(!may(&forwarded, "203.0.113.2", 81));
        account.remove(&forwarded, rules[0].0, rules[0].1);
        assert!(may(&forwarded, "203.0.113.2", 80));
        account.remove(&forwarded, rules[1].0, rules[1].1);
        assert!(!may(&forwarded, "203.0.113.2", 80));
        assert_eq!(
            0,
            forwarded
                .regions
                .iter()
                .map(|word| word.load(Ordering::Relaxed))
                .sum::<u64>()
        );
    }

    #[test]
    fn six_is_told_apart_by_64_bits() {
        let (forwarded, mut account) = (Forwarded::default(), Account::default());
        let at = |high: u64| [0x2001_0db8_0000_0000 | high, 1];
        let length = 128;
        account.add(&forwarded, Prefix { address: at(1), length }, None);
        assert!(forwarded.may_forward(at(1), 1));
        assert!(!forwarded.may_forward(at(2), 1));
    }
}

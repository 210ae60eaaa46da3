//! Rules as in P4's table, and queries.

use std::collections::HashSet;

use sluice_table::qns::{Key, QnsReader, Query};
use sluice_wire::ipv4::protocol::{TCP, UDP};

use crate::rig::frames::Random;

/// Number of rules by prefix length: half of the rules are /24, a tenth are /32, and the others are evenly distributed
/// over /8 to /31. At most half of all possible prefixes of a length are used, so that some queries match no rule.
pub fn lengths(rules: usize) -> Vec<(u8, usize)> {
    let mut counts = [0usize; 33];
    counts[24] = rules / 2;
    counts[32] = rules / 10;
    let mut left = rules - counts[24] - counts[32];
    for length in 8..=31u8 {
        let share = left / usize::from(32 - length);
        let most = (PREFIXES << (length - 8)) / 2;
        let count = share.min(most);
        counts[usize::from(length)] += count;
        left -= count;
    }
    (0..).zip(counts).filter(|&(_, count)| count > 0).collect()
}

/// Number of 8-bit prefixes from which rules are drawn: all those below the multicast addresses.
const PREFIXES: usize = 224;

/// Returns an address of the prefix with random bits after the first `length` bits.
fn address(prefix: u32, length: u8, random: &mut Random) -> u32 {
    let host = u32::MAX.checked_shr(length.into()).unwrap_or(0);
    prefix & !host | random.below(1 << 32) & host
}

fn unicast(random: &mut Random) -> u32 {
    random.below((PREFIXES as u64) << 24)
}

fn transport(random: &mut Random) -> u8 {
    if random.below(2) == 0 { TCP } else { UDP }
}

/// Generates rules: a quarter of them have a port; half of the others apply to any protocol.
pub fn rules(count: usize, random: &mut Random) -> Vec<Key<u32>> {
    let mut keys = Vec::with_capacity(count);
    let mut seen = HashSet::with_capacity(count);
    for (length, count) in lengths(count) {
        for _ in 0..count {
            let key = loop {
                let key = rule(length, random);
                if seen.insert(key) {
                    break key;
                }
            };
            keys.push(key);
        }
    }
    keys
}

fn rule(length: u8, random: &mut Random) -> Key<u32> {
    let host = u32::MAX.checked_shr(length.into()).unwrap_or(0);
    let (port, protocol) = match random.below(8) {
        0 | 1 => (Some(1 + random.below(65_535) as u16), Some(transport(random))),
        2..=4 => (None, Some(transport(random))),
        _ => (None, None),
    };
    Key {
        context: 0,
        prefix: unicast(random) & !host,
        length,
        port,
        protocol,
        interface: None,
    }
}

/// Generates queries: nine of ten match a uniformly drawn rule or a more specific rule; one of ten matches no rule.
pub fn queries(count: usize, rules: &[Key<u32>], table: &QnsReader<u32>, random: &mut Random) -> Vec<Query<u32>> {
    let mut queries = Vec::with_capacity(count);
    while queries.len() < count {
        let query = if random.below(10) == 0 {
            miss(table, random)
        } else {
            hit(&rules[random.below(rules.len() as u64) as usize], random)
        };
        queries.push(query);
    }
    queries
}

fn hit(rule: &Key<u32>, random: &mut Random) -> Query<u32> {
    Query {
        context: 0,
        address: address(rule.prefix, rule.length, random),
        port: Some(rule.port.unwrap_or(1 + random.below(65_535) as u16)),
        protocol: rule.protocol.unwrap_or_else(|| transport(random)),
        interface: 0,
    }
}

fn miss(table: &QnsReader<u32>, random: &mut Random) -> Query<u32> {
    loop {
        let query = Query {
            context: 0,
            address: unicast(random),
            port: Some(1 + random.below(65_535) as u16),
            protocol: transport(random),
            interface: 0,
        };
        if table.lookup(&query).is_none() {
            return query;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_as_p4_table_is_asked_for_as_far_as_prefixes_exist() {
        let of = |rules| lengths(rules).into_iter().collect::<std::collections::BTreeMap<_, _>>();
        for rules in [100, 1_000, 10_000, 1_000_000] {
            assert_eq!(rules, of(rules).values().sum::<usize>());
            assert_eq!(Some(&(rules / 10)), of(rules).get(&32));
        }
        // /8 has half of the 224 possible prefixes; the other rules of its share are distributed over the other
        // lengths.
        let few = of(10_000);
        assert_eq!((112, 169, 170), (few[&8], few[&9], few[&31]));
        assert_eq!(5_000 + 169, few[&24]);
        let million = of(1_000_000);
        assert_eq!((112, 224, 7_168), (million[&8], million[&9], million[&14]));
    }
}

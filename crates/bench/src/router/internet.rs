//! Routes with a distribution of prefix lengths similar to that of the Internet's routing tables.

use std::collections::HashSet;

use sluice_route::{Address, Prefix};

use crate::rig::frames::Random;

/// Number of routes of each prefix length per thousand IPv4 routes: three in five are /24, and almost none are shorter
/// than /16 or longer than /24.
const LENGTHS4: [(u8, u32); 13] = [
    (8, 1),
    (12, 1),
    (14, 1),
    (16, 14),
    (17, 8),
    (18, 14),
    (19, 25),
    (20, 45),
    (21, 52),
    (22, 110),
    (23, 98),
    (24, 621),
    (29, 10),
];

/// Number of routes of each prefix length per thousand IPv6 routes: about half are /48, followed by providers'
/// allocations (/29 and /32).
const LENGTHS6: [(u8, u32); 8] = [
    (29, 25),
    (32, 120),
    (36, 45),
    (40, 110),
    (44, 140),
    (46, 40),
    (48, 500),
    (56, 20),
];

/// First 16 bits of the address blocks that registries allocate for IPv6; each is repeated in proportion to its share
/// of routes.
const BLOCKS6: [u128; 8] = [0x2001, 0x2400, 0x2401, 0x2600, 0x2606, 0x2804, 0x2a00, 0x2a02];

fn length(lengths: &[(u8, u32)], random: &mut Random) -> u8 {
    let all = lengths.iter().map(|(_, share)| share).sum::<u32>();
    let mut draw = random.below(all.into());
    for &(length, share) in lengths {
        if draw < share {
            return length;
        }
        draw -= share;
    }
    lengths[0].0
}

/// Generates `count` distinct routes of a family. IPv4 routes are within 1.0.0.0 to 223.255.255.255, without the
/// benchmarks' links, 127.0.0.0/8 and 169.254.0.0/16. IPv6 routes are within [`BLOCKS6`].
pub fn routes(six: bool, count: usize, random: &mut Random) -> Vec<Prefix> {
    let mut seen = HashSet::with_capacity(count);
    let mut routes = Vec::with_capacity(count);
    while routes.len() < count {
        let prefix = if six {
            let block = BLOCKS6[random.below(BLOCKS6.len() as u64) as usize];
            // Several routes are within the same provider's /32.
            let (provider, rest) = (random.below(1 << 13), random.below(1 << 32));
            let bits = block << 112 | u128::from(provider) << 96 | u128::from(rest) << 64;
            Prefix::new(Address::V6(bits), length(&LENGTHS6, random))
        } else {
            let bits = (1 + random.below(223)) << 24 | random.below(1 << 24);
            if matches!(bits >> 16, 0x7f00..=0x7fff | 0xa9fe | 0xc000 | 0xc0a8) {
                continue;
            }
            Prefix::new(Address::V4(bits), length(&LENGTHS4, random))
        };
        if seen.insert(prefix) {
            routes.push(prefix);
        }
    }
    routes
}

/// A random address within a route.
#[inline]
pub fn address_of(prefix: Prefix, random: &mut Random) -> Address {
    let host = u128::from(random.below(1 << 32)) << 64
        | u128::from(random.below(1 << 32)) << 32
        | u128::from(random.below(1 << 32));
    match prefix.address() {
        Address::V4(bits) => {
            Address::V4(bits | host as u32 & u32::MAX.checked_shr(prefix.length().into()).unwrap_or(0))
        }
        Address::V6(bits) => Address::V6(bits | host & u128::MAX.checked_shr(prefix.length().into()).unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_different_and_mostly_as_long_as_the_internets() {
        for (six, usual) in [(false, 24), (true, 48)] {
            let mut random = Random(7);
            let routes = routes(six, 10_000, &mut random);
            let different: HashSet<_> = routes.iter().collect();
            assert_eq!(10_000, different.len());
            let share = routes.iter().filter(|prefix| prefix.length() == usual).count();
            assert!((4_500..7_000).contains(&share), "{share} of 10,000 are /{usual}");
            let inside = |prefix: &Prefix| prefix.contains(address_of(*prefix, &mut Random(3)));
            assert!(routes.iter().all(inside));
        }
    }
}

//! Stores closed connections, to distinguish their late packets from packets of connections that started before
//! inspection.
//!
//! A reset may be forged, and the verdict of a rule must outlive the session to which it applied. Therefore a reset,
//! closed or dropped connection is remembered after its session, until a new connection starts between the same ports.
//! The table is set-associative and indexed by a keyed hash; a full set evicts its oldest entry.

use std::net::IpAddr;

use sluice_table::hash::Hasher;

use crate::scope::Endpoints;

/// Number of entries in a set.
const ASSOCIATIVITY: usize = 4;

/// Time for which a connection is remembered, in seconds.
const LIFETIME: u32 = 3_600;

/// A closed connection: its tag within the set, and the second in which it was closed.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// 0 marks a free entry.
    tag: u32,
    second: u32,
}

/// The closed connections of a shard.
#[derive(Debug)]
pub(super) struct ClosedConnections {
    sets: Box<[[Entry; ASSOCIATIVITY]]>,
    hasher: Hasher,
}

impl ClosedConnections {
    /// Creates a table for at least `count` connections.
    pub fn new(count: usize, hasher: Hasher) -> Self {
        let sets = count.div_ceil(ASSOCIATIVITY).next_power_of_two();
        Self {
            sets: vec![[Entry::default(); ASSOCIATIVITY]; sets].into(),
            hasher,
        }
    }

    /// Set and tag of a connection. Both directions of a connection have the same set and tag.
    fn find(&self, ends: &Endpoints) -> (usize, u32) {
        let end = |address: IpAddr, port: u16| {
            let bits = match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
                IpAddr::V6(v6) => v6.to_bits(),
            };
            self.hasher
                .block([bits as u64 ^ u64::from(port).rotate_left(48), (bits >> 64) as u64])
        };
        let ends = [end(ends.source, ends.ports[0]), end(ends.destination, ends.ports[1])];
        let hash = self.hasher.block([ends[0].min(ends[1]), ends[0].max(ends[1])]);
        (hash as usize & (self.sets.len() - 1), (hash >> 32) as u32 | 1)
    }

    /// Adds a closed connection.
    pub fn add(&mut self, ends: &Endpoints, now: u64) {
        let ((set, tag), second) = (self.find(ends), second(now));
        let places = &mut self.sets[set];
        let place = match places.iter().position(|place| place.tag == tag) {
            Some(place) => place,
            None => {
                let age = |place: &Entry| match place.tag {
                    0 => u32::MAX,
                    _ => second.wrapping_sub(place.second),
                };
                let oldest = (0..ASSOCIATIVITY).max_by_key(|&place| age(&places[place]));
                oldest.unwrap_or(0)
            }
        };
        places[place] = Entry { tag, second };
    }

    /// Removes a connection because a new connection starts between the same ports.
    pub fn remove(&mut self, ends: &Endpoints) {
        let (set, tag) = self.find(ends);
        if let Some(place) = self.sets[set].iter_mut().find(|place| place.tag == tag) {
            place.tag = 0;
        }
    }

    /// Whether a connection is in the table.
    pub fn has(&self, ends: &Endpoints, now: u64) -> bool {
        let (set, tag) = self.find(ends);
        let is_match = |place: &Entry| place.tag == tag && second(now).wrapping_sub(place.second) <= LIFETIME;
        self.sets[set].iter().any(is_match)
    }
}

fn second(now: u64) -> u32 {
    (now / 1_000_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::Toward;

    fn ends(port: u16) -> Endpoints {
        Endpoints {
            source: [10, 0, 0, 1].into(),
            destination: [192, 0, 2, 1].into(),
            ports: [port, 80],
            protocol: 6,
            toward: Toward::Server,
            established: true,
            service: None,
        }
    }

    #[test]
    fn connection_is_remembered_by_both_directions_until_another_begins_or_an_hour_later() {
        let mut tombstones = ClosedConnections::new(64, Hasher::new([1, 2]));
        tombstones.add(&ends(1), 0);
        assert!(tombstones.has(&ends(1), 0) && tombstones.has(&ends(1).reversed(), 3_600_000_000_000));
        assert!(!tombstones.has(&ends(2), 0) && !tombstones.has(&ends(1), 3_601_000_000_000));
        tombstones.remove(&ends(1).reversed());
        assert!(!tombstones.has(&ends(1), 0));
    }

    #[test]
    fn oldest_gives_way() {
        let mut tombstones = ClosedConnections::new(ASSOCIATIVITY, Hasher::new([1, 2]));
        for port in 0..=ASSOCIATIVITY as u16 {
            tombstones.add(&ends(port), u64::from(port) * 1_000_000_000);
        }
        let there: Vec<_> = (0..=ASSOCIATIVITY as u16)
            .filter(|&port| tombstones.has(&ends(port), 9_000_000_000))
            .collect();
        assert_eq!(vec![1, 2, 3, 4], there);
    }
}

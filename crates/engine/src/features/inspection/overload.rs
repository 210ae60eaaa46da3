//! Overload policy: what a worker that can't keep up does with packets, by traffic class, before it spends work on them.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use sluice_inspect::scope::Endpoints;

use crate::packet::counters::WorkerCounters;

/// Policy for packets of a class under overload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shed {
    /// Inspect the packet in full.
    #[default]
    Inspect,
    /// Inspect until this number of bytes of the flow have been inspected.
    Less(u64),
    /// Forward without inspection. A TCP connection is not inspected again, because its stream can't be continued after a gap.
    Bypass,
    /// Drop the packet.
    Drop,
}

/// A traffic class. An empty field matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// IP protocol.
    pub protocol: Option<u8>,
    /// Ports of either endpoint.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Networks of either endpoint as inside hosts see it: address and prefix length.
    pub networks: Vec<(IpAddr, u8)>,
    /// Policy for packets of the class.
    pub shed: Shed,
}

impl Class {
    /// Whether a packet between two endpoints belongs to this class.
    pub fn has(&self, ends: &Endpoints) -> bool {
        let is_port = |port| self.ports.iter().any(|ports| ports.contains(port));
        let is_in = |address| {
            let mut networks = self.networks.iter();
            networks.any(|network| contains(network, address))
        };
        self.protocol.is_none_or(|protocol| protocol == ends.protocol)
            && (self.ports.is_empty() || ends.ports.iter().any(is_port))
            && (self.networks.is_empty() || is_in(ends.source) || is_in(ends.destination))
    }
}

fn contains(network: &(IpAddr, u8), address: IpAddr) -> bool {
    let (width, network, length, address) = match (network, address) {
        (&(IpAddr::V4(network), length), IpAddr::V4(address)) => {
            (32, network.to_bits().into(), length, address.to_bits().into())
        }
        (&(IpAddr::V6(network), length), IpAddr::V6(address)) => (128, network.to_bits(), length, address.to_bits()),
        _ => return false,
    };
    let differ: u128 = network ^ address;
    differ.checked_shr(width - u32::from(length)).unwrap_or(0) == 0
}

/// Overload settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overload {
    /// Number of waiting packets from which a worker is overloaded; 0: never.
    pub begins: u64,
    /// Number of waiting packets at which the overload ends.
    pub ends: u64,
    /// The first class that matches a packet determines its policy. A packet that matches none is inspected.
    pub classes: Vec<Class>,
}

impl Overload {
    /// The policy for a packet between two endpoints.
    pub fn shed(&self, ends: &Endpoints) -> Shed {
        let mut classes = self.classes.iter();
        classes
            .find(|class| class.has(ends))
            .map_or(Shed::Inspect, |class| class.shed)
    }
}

/// Whether a worker is overloaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load(bool);

impl Load {
    /// Update the state from the number of waiting packets.
    pub fn observe(&mut self, waiting: u64, overload: &Overload, counters: &WorkerCounters) {
        let is_on = overload.begins > 0
            && match self.0 {
                true => waiting > overload.ends,
                false => waiting >= overload.begins,
            };
        if is_on != self.0 {
            self.0 = is_on;
            counters.overloads.add(u64::from(is_on));
            counters.overloaded.set(u64::from(is_on));
        }
    }

    /// Whether the worker is overloaded.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_contains_the_addresses_with_its_first_bits() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for (network, length, inside, outside) in [
            ("10.1.0.0", 16, "10.1.255.1", "10.2.0.0"),
            ("10.1.2.3", 32, "10.1.2.3", "10.1.2.2"),
            ("2001:db8::", 32, "2001:db8:1::1", "2001:db9::"),
            ("0.0.0.0", 0, "255.1.1.1", "::1"),
        ] {
            assert!(contains(&(address(network), length), address(inside)), "{network}");
            assert!(!contains(&(address(network), length), address(outside)), "{network}");
        }
    }

    #[test]
    fn overload_begins_at_one_mark_and_ends_at_another() {
        let overload = Overload {
            begins: 10,
            ends: 4,
            classes: Vec::new(),
        };
        let (mut load, counters) = (Load::default(), WorkerCounters::default());
        let seen = [9, 10, 5, 11, 4, 9, 10].map(|waiting| {
            load.observe(waiting, &overload, &counters);
            load.is_on()
        });
        assert_eq!([false, true, true, true, false, false, true], seen);
        assert_eq!((2, 1), (counters.overloads.get(), counters.overloaded.get()));
    }
}

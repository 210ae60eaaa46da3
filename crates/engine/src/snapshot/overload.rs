//! Actions while a worker is overloaded. The action depends on the traffic class of a packet, and is applied before any
//! other work for the packet.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use sluice_inspect::scope::Endpoints;

/// Action for a packet of a class under overload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shed {
    /// Inspect the packet.
    #[default]
    Inspect,
    /// Inspect the packet if fewer than this number of bytes of its flow were already inspected.
    Less(u64),
    /// Forward the packet without inspection. The stream of a TCP connection is incomplete after that, so the
    /// connection is never inspected again.
    Bypass,
    /// Drop the packet.
    Drop,
}

/// A class of traffic. Empty conditions match all packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// IP protocol number.
    pub protocol: Option<u8>,
    /// Port ranges. The port of one endpoint must be in one of the ranges.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Networks (address and prefix length). The untranslated address of one endpoint must be in one of the networks.
    pub networks: Vec<(IpAddr, u8)>,
    /// Action for packets of the class.
    pub shed: Shed,
}

impl Class {
    /// Whether a packet between these endpoints belongs to the class.
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

/// Configuration of overload handling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overload {
    /// Number of waiting packets at which a worker becomes overloaded; 0 disables overload handling.
    pub begins: u64,
    /// Number of waiting packets below which a worker is no longer overloaded.
    pub ends: u64,
    /// Classes of traffic. The first class that matches a packet determines the action; packets that match no class are
    /// inspected.
    pub classes: Vec<Class>,
}

impl Overload {
    /// The action for a packet between these endpoints.
    pub fn shed(&self, ends: &Endpoints) -> Shed {
        let mut classes = self.classes.iter();
        classes
            .find(|class| class.has(ends))
            .map_or(Shed::Inspect, |class| class.shed)
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
}

//! What is done while a worker has more to do than it can: by class of traffic, before work is spent on it.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use sluice_inspect::scope::Endpoints;

/// What is done about a packet of a class under overload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shed {
    /// It is inspected.
    #[default]
    Inspect,
    /// It is inspected, unless so many bytes of its flow have been.
    Less(u64),
    /// It goes on uninspected; a TCP connection for good, for what it lacks can't be put in order later.
    Bypass,
    /// It is dropped.
    Drop,
}

/// A class of traffic. What is left empty says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Class {
    /// Protocol over IP.
    pub protocol: Option<u8>,
    /// Ports that either end has.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Networks that either end is in, as the inside sees it: address and length.
    pub networks: Vec<(IpAddr, u8)>,
    /// What is done about it.
    pub shed: Shed,
}

impl Class {
    /// Whether a packet between two ends is of this class.
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

/// What is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overload {
    /// A worker is overloaded from so many waiting packets on; 0: it never is.
    pub begins: u64,
    /// Until so few wait.
    pub ends: u64,
    /// The first that a packet is of says what is done about it. What is of none is inspected.
    pub classes: Vec<Class>,
}

impl Overload {
    /// What is done about a packet.
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

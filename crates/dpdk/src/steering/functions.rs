//! Hash functions of DPDK, and the packet fields that these functions hash.

use std::fmt;
use std::ops::BitOr;

use super::Steering;
use crate::sys;

/// Set of hash functions: packet types for which a device computes a hash, and fields that the hash omits.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Functions(u32);

impl Functions {
    /// IPv4 packets of any protocol: addresses.
    pub const IPV4: Self = Self(sys::SLUICE_HASH_IPV4);
    /// IPv4 fragments: addresses.
    pub const IPV4_FRAGMENT: Self = Self(sys::SLUICE_HASH_IPV4_FRAGMENT);
    /// TCP over IPv4: addresses and ports.
    pub const IPV4_TCP: Self = Self(sys::SLUICE_HASH_IPV4_TCP);
    /// UDP over IPv4: addresses and ports.
    pub const IPV4_UDP: Self = Self(sys::SLUICE_HASH_IPV4_UDP);
    /// IPv4 with other protocols: addresses.
    pub const IPV4_OTHER: Self = Self(sys::SLUICE_HASH_IPV4_OTHER);
    /// IPv6 packets of any protocol: addresses.
    pub const IPV6: Self = Self(sys::SLUICE_HASH_IPV6);
    /// IPv6 fragments: addresses.
    pub const IPV6_FRAGMENT: Self = Self(sys::SLUICE_HASH_IPV6_FRAGMENT);
    /// TCP over IPv6: addresses and ports.
    pub const IPV6_TCP: Self = Self(sys::SLUICE_HASH_IPV6_TCP);
    /// UDP over IPv6: addresses and ports.
    pub const IPV6_UDP: Self = Self(sys::SLUICE_HASH_IPV6_UDP);
    /// IPv6 with other protocols: addresses.
    pub const IPV6_OTHER: Self = Self(sys::SLUICE_HASH_IPV6_OTHER);
    /// Restriction: of the addresses, hash only the source address.
    pub const L3_SOURCE_ONLY: Self = Self(sys::SLUICE_HASH_L3_SOURCE_ONLY);
    /// Restriction: of the addresses, hash only the destination address.
    pub const L3_DESTINATION_ONLY: Self = Self(sys::SLUICE_HASH_L3_DESTINATION_ONLY);
    /// Restriction: of the ports, hash only the source port.
    pub const L4_SOURCE_ONLY: Self = Self(sys::SLUICE_HASH_L4_SOURCE_ONLY);
    /// Restriction: of the ports, hash only the destination port.
    pub const L4_DESTINATION_ONLY: Self = Self(sys::SLUICE_HASH_L4_DESTINATION_ONLY);
    /// Functions for which this type has no constant. A device may report these functions, but they are never
    /// requested.
    pub const BEYOND: Self = Self(sys::SLUICE_HASH_BEYOND);

    const ADDRESSES: [Self; 2] = [
        Self(Self::IPV4.0 | Self::IPV4_FRAGMENT.0 | Self::IPV4_OTHER.0),
        Self(Self::IPV6.0 | Self::IPV6_FRAGMENT.0 | Self::IPV6_OTHER.0),
    ];
    const PORTS: [Self; 2] = [
        Self(Self::IPV4_TCP.0 | Self::IPV4_UDP.0),
        Self(Self::IPV6_TCP.0 | Self::IPV6_UDP.0),
    ];
    const ANY: [Self; 2] = [Self::IPV4, Self::IPV6];

    /// Create a set from the shim's bits.
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Bits for the shim.
    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set contains all of `others`.
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    const fn and(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// Functions of the device to request for the wanted steering. The result includes each address family in which the
    /// device can steer in this way. `None` if the device can do so in neither IPv4 nor IPv6.
    ///
    /// For [`Steering::Source`], TCP and UDP packets are hashed like other IP packets. Drivers differ in "source
    /// address only" for TCP and UDP: some drivers also hash the ports.
    pub(super) fn to_steer(self, steering: Steering) -> Option<Self> {
        let subset = match steering {
            Steering::FiveTuple => Self::default(),
            Steering::Source => Self::L3_SOURCE_ONLY,
            Steering::Destination => Self::L3_DESTINATION_ONLY | Self::L4_DESTINATION_ONLY,
        };
        let mut requested = Self::default();
        for family in 0..2 {
            let (needed, wanted) = match steering {
                Steering::Source => (Self::ANY[family], Self::ADDRESSES[family]),
                _ => (Self::PORTS[family], Self::ADDRESSES[family] | Self::PORTS[family]),
            };
            if self.contains(needed) {
                requested = requested | self.and(wanted);
            }
        }
        (!requested.is_empty() && self.contains(subset)).then_some(requested | subset)
    }

    /// Functions to request if the steering is impossible: all functions that distribute at least some packets.
    pub(super) fn to_spread(self) -> Self {
        let all = Self::ADDRESSES[0] | Self::ADDRESSES[1] | Self::PORTS[0] | Self::PORTS[1];
        self.and(all)
    }

    /// Packet fields that determine the queue for packets of a type.
    pub fn fields(self, flow: Flow) -> Fields {
        let (any, own) = match flow {
            Flow::Tcp4 => (Self::IPV4, Self::IPV4_TCP),
            Flow::Udp4 => (Self::IPV4, Self::IPV4_UDP),
            Flow::Other4 => (Self::IPV4, Self::IPV4_OTHER),
            Flow::Tcp6 => (Self::IPV6, Self::IPV6_TCP),
            Flow::Udp6 => (Self::IPV6, Self::IPV6_UDP),
            Flow::Other6 => (Self::IPV6, Self::IPV6_OTHER),
        };
        let ports = self.contains(own) && !matches!(flow, Flow::Other4 | Flow::Other6);
        if !self.contains(any) && !self.contains(own) {
            return Fields::default();
        }
        let chosen = |source_only, destination_only| match (self.contains(source_only), self.contains(destination_only))
        {
            (true, false) => (true, false),
            (false, true) => (false, true),
            // In DPDK, two opposite restrictions have the effect of no restriction.
            _ => (true, true),
        };
        let (source_address, destination_address) = chosen(Self::L3_SOURCE_ONLY, Self::L3_DESTINATION_ONLY);
        let (source_port, destination_port) = chosen(Self::L4_SOURCE_ONLY, Self::L4_DESTINATION_ONLY);
        Fields {
            source_address,
            destination_address,
            source_port: ports && source_port,
            destination_port: ports && destination_port,
        }
    }

    /// Steering that results from these functions. `None` if TCP and UDP, or IPv4 and IPv6, are steered differently. A
    /// family without a hash is ignored.
    pub fn steering(self) -> Option<Steering> {
        let families: Vec<_> = Flow::FAMILIES
            .iter()
            .filter(|family| self.hashes(family))
            .map(|family| {
                let [tcp, udp, other] = family.map(|flow| self.fields(flow));
                match (tcp == udp).then_some(tcp)? {
                    Fields::SOURCE if other == Fields::SOURCE => Some(Steering::Source),
                    Fields::DESTINATION => Some(Steering::Destination),
                    Fields::FIVE_TUPLE => Some(Steering::FiveTuple),
                    _ => None,
                }
            })
            .collect();
        let first = *families.first()?;
        first.filter(|_| families.iter().all(|family| *family == first))
    }

    /// Whether packets of any protocol of this family are hashed.
    pub(super) fn hashes(self, family: &[Flow; 3]) -> bool {
        family.iter().any(|&flow| self.fields(flow) != Fields::default())
    }
}

impl BitOr for Functions {
    type Output = Self;

    fn bitor(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Functions({:#x}: {self})", self.0)
    }
}

impl fmt::Display for Functions {
    /// Write the fields for operators. Fields common to all packet types are written only once.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(steering) = self.steering() {
            return write!(f, "{steering}");
        }
        let mut groups: Vec<(Fields, Vec<Flow>)> = Vec::new();
        for flow in Flow::FAMILIES.into_iter().flatten() {
            let fields = self.fields(flow);
            match groups.iter_mut().find(|(known, _)| *known == fields) {
                Some((_, flows)) => flows.push(flow),
                None => groups.push((fields, vec![flow])),
            }
        }
        if let [(fields, _)] = groups[..] {
            return write!(f, "{fields}");
        }
        for (place, (fields, flows)) in groups.iter().enumerate() {
            let flows: Vec<_> = flows.iter().map(Flow::to_string).collect();
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{fields} of {}", flows.join(" and "))?;
        }
        Ok(())
    }
}

/// Packet types that devices distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// TCP over IPv4.
    Tcp4,
    /// UDP over IPv4.
    Udp4,
    /// Another protocol over IPv4.
    Other4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv6.
    Udp6,
    /// Another protocol over IPv6.
    Other6,
}

impl Flow {
    /// Packet types of IPv4, and packet types of IPv6.
    pub const FAMILIES: [[Self; 3]; 2] = [
        [Flow::Tcp4, Flow::Udp4, Flow::Other4],
        [Flow::Tcp6, Flow::Udp6, Flow::Other6],
    ];
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flow::Tcp4 => "TCP over IPv4",
            Flow::Udp4 => "UDP over IPv4",
            Flow::Other4 => "other IPv4",
            Flow::Tcp6 => "TCP over IPv6",
            Flow::Udp6 => "UDP over IPv6",
            Flow::Other6 => "other IPv6",
        })
    }
}

/// Packet fields that are hashed, in the order of the hash input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// Source address.
    pub source_address: bool,
    /// Destination address.
    pub destination_address: bool,
    /// Source port.
    pub source_port: bool,
    /// Destination port.
    pub destination_port: bool,
}

impl Fields {
    const fn new(source_address: bool, destination_address: bool, source_port: bool, destination_port: bool) -> Self {
        Self {
            source_address,
            destination_address,
            source_port,
            destination_port,
        }
    }

    const SOURCE: Self = Self::new(true, false, false, false);
    const DESTINATION: Self = Self::new(false, true, false, true);
    const FIVE_TUPLE: Self = Self::new(true, true, true, true);
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (addresses, ports) = (
            (self.source_address, self.destination_address),
            (self.source_port, self.destination_port),
        );
        f.write_str(match (addresses, ports) {
            ((true, false), (false, false)) => "only the source address",
            ((false, true), (false, true)) => "destination address and port",
            ((true, true), (true, true)) => "addresses and ports",
            ((true, true), (false, false)) => "addresses without ports",
            ((false, true), (false, false)) => "only the destination address",
            ((false, false), (false, false)) => "nothing",
            _ => {
                let names = [
                    (self.source_address, "source address"),
                    (self.destination_address, "destination address"),
                    (self.source_port, "source port"),
                    (self.destination_port, "destination port"),
                ];
                let names: Vec<_> = names
                    .iter()
                    .filter(|(hashed, _)| *hashed)
                    .map(|(_, name)| *name)
                    .collect();
                return f.write_str(&names.join(", "));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hash functions for the addresses of both families.
    const ADDRESSES: Functions = Functions(Functions::ADDRESSES[0].0 | Functions::ADDRESSES[1].0);
    const FLOWS: Functions = Functions(ADDRESSES.0 | Functions::PORTS[0].0 | Functions::PORTS[1].0);
    const ALL: Functions = Functions(
        FLOWS.0
            | Functions::L3_SOURCE_ONLY.0
            | Functions::L3_DESTINATION_ONLY.0
            | Functions::L4_SOURCE_ONLY.0
            | Functions::L4_DESTINATION_ONLY.0,
    );

    #[test]
    fn functions_asked_for_steer_as_wished() {
        for steering in [Steering::FiveTuple, Steering::Source, Steering::Destination] {
            let functions = ALL.to_steer(steering).expect("all is offered");
            assert_eq!(Some(steering), functions.steering(), "{functions:?}");
        }
    }

    #[test]
    fn functions_of_one_family_steer_it_and_leave_the_other() {
        let offered = Functions::IPV4_TCP | Functions::IPV4_UDP | Functions::IPV6_TCP;
        assert_eq!(
            Some(Functions::IPV4_TCP | Functions::IPV4_UDP),
            offered.to_steer(Steering::FiveTuple)
        );
        assert_eq!(None, offered.steering(), "UDP over IPv6 goes another way than TCP");
        let functions = Functions::IPV4 | Functions::L3_SOURCE_ONLY;
        assert_eq!(Some(Steering::Source), functions.steering());
        assert!(!functions.hashes(&Flow::FAMILIES[1]));
    }

    #[test]
    fn functions_for_the_source_of_tcp_alone_are_not_enough() {
        let offered = Functions::IPV4_TCP | Functions::IPV4_UDP | Functions::IPV4_OTHER | Functions::L3_SOURCE_ONLY;
        assert_eq!(None, offered.to_steer(Steering::Source));
    }

    #[test]
    fn functions_read_as_an_operator_would_say() {
        for (expected, functions) in [
            ("addresses and ports", FLOWS),
            ("only the source address", ADDRESSES | Functions::L3_SOURCE_ONLY),
            (
                "destination address and port",
                FLOWS | Functions::L3_DESTINATION_ONLY | Functions::L4_DESTINATION_ONLY,
            ),
            ("addresses without ports", ADDRESSES),
            ("nothing", Functions::default()),
            (
                "addresses and ports of TCP over IPv4, addresses without ports of UDP over IPv4 and other IPv4, \
                 nothing of TCP over IPv6 and UDP over IPv6 and other IPv6",
                Functions::IPV4 | Functions::IPV4_TCP,
            ),
            (
                "addresses and ports",
                FLOWS | Functions::L3_SOURCE_ONLY | Functions::L3_DESTINATION_ONLY,
            ),
            (
                "source address, source port, destination port of TCP over IPv4, only the source address of \
                 UDP over IPv4 and other IPv4, nothing of TCP over IPv6 and UDP over IPv6 and other IPv6",
                Functions::IPV4 | Functions::IPV4_TCP | Functions::L3_SOURCE_ONLY,
            ),
        ] {
            assert_eq!(expected, functions.to_string());
        }
    }
}

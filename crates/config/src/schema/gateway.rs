//! `[gateway]`, `[neighbours]`, `[fragments]`: settings of the gateway as a host and router on its links.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

use crate::value::{Mac, Period};

/// A rate limit with a burst, for packets or sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rate {
    /// Number per second, summed over all workers.
    pub rate: u32,
    /// Burst that is available after a pause.
    pub burst: u32,
}

/// `[gateway]`: limits on packets that the gateway itself answers and originates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Gateway {
    /// Limit on ICMP errors for packets that are received on an interface (RFC 1812, section 4.3.2.8; RFC 4443, section
    /// 2.4 f). A single destination gets at most a tenth of the rate. All interfaces of a router together get at most
    /// eight times the rate.
    pub icmp_errors: Rate,
    /// Limits on packets to the gateway, for each class and interface, so that a flood of one class does not affect
    /// other classes. All interfaces of a router together get at most eight times the rate.
    pub policing: Policing,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            icmp_errors: Rate {
                rate: 1_000,
                burst: 100,
            },
            policing: Policing::default(),
        }
    }
}

/// `[gateway.policing]`: limits on packets to the gateway, by class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Policing {
    /// ARP and neighbour discovery.
    pub neighbours: Rate,
    /// Echo requests and replies.
    pub echo: Rate,
    /// All other packets, including ICMP errors caused by packets of the gateway.
    pub other: Rate,
}

impl Default for Policing {
    fn default() -> Self {
        Self {
            neighbours: Rate {
                rate: 5_000,
                burst: 1_000,
            },
            echo: Rate {
                rate: 1_000,
                burst: 200,
            },
            other: Rate {
                rate: 1_000,
                burst: 200,
            },
        }
    }
}

/// `[neighbours]`: the tables for ARP and neighbour discovery, and the packets that wait for address resolution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Neighbours {
    /// Maximum number of IPv4 neighbours.
    pub ipv4: u32,
    /// Maximum number of IPv6 neighbours.
    pub ipv6: u32,
    /// Time for which a neighbour counts as reachable after a reply (RFC 4861, REACHABLE_TIME).
    pub reachable: Period,
    /// Interval between requests (RFC 4861, RETRANS_TIMER).
    pub retransmit: Period,
    /// Number of unanswered requests after which a neighbour counts as unreachable.
    pub requests: u8,
    /// Maximum number of packets that wait for a single neighbour.
    pub parked_each: u16,
    /// Maximum number of packets that wait for all neighbours together.
    pub parked: u32,
    /// Static neighbours.
    #[serde(rename = "static", skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<StaticNeighbour>,
}

impl Default for Neighbours {
    fn default() -> Self {
        Self {
            ipv4: 8_192,
            ipv6: 8_192,
            reachable: Period::seconds(30),
            retransmit: Period::seconds(1),
            requests: 3,
            parked_each: 8,
            parked: 1_024,
            fixed: Vec::new(),
        }
    }
}

/// `[[neighbours.static]]`: a neighbour with a configured MAC address, which is not resolved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StaticNeighbour {
    /// IP address.
    pub address: IpAddr,
    /// Ethernet address.
    pub mac: Mac,
    /// Interface of the neighbour. Required for link-local addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// `[fragments]`: fragments that wait for the first fragment of their packet (RFC 4787, REQ-14).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Fragments {
    /// Maximum number of fragmented packets that are tracked.
    pub packets: u32,
    /// Maximum number of waiting fragments, over all packets.
    pub parked: u32,
    /// Time for which a fragmented packet is tracked, from its first received fragment (RFC 6146, FRAGMENT_MIN).
    pub timeout: Period,
}

impl Default for Fragments {
    fn default() -> Self {
        Self {
            packets: 4_096,
            parked: 1_024,
            timeout: Period::seconds(2),
        }
    }
}

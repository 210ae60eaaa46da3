//! `[gateway]`, `[neighbours]`, `[fragments]`: the gateway as a host and router of its links.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

use crate::value::{Mac, Period};

/// A limit: so many packets, or sessions, a second, and so many at once after a silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rate {
    /// A second, on all workers together.
    pub rate: u32,
    /// At once.
    pub burst: u32,
}

/// `[gateway]`: what the gateway itself answers and sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Gateway {
    /// ICMP errors that it makes (RFC 1812, 4.3.2.8; RFC 4443, 2.4 f), about what comes in by an interface; a tenth of it to one
    /// destination. All interfaces of a router together: eight times as much.
    pub icmp_errors: Rate,
    /// Limits on what is addressed to the gateway, by class and interface, so that no flood of one locks out the others. All
    /// interfaces of a router together: eight times as much.
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

/// `[gateway.policing]`: limits on what is addressed to the gateway, by class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Policing {
    /// ARP and neighbour discovery.
    pub neighbours: Rate,
    /// Echo requests and replies.
    pub echo: Rate,
    /// Everything else, ICMP errors about the gateway's own packets with it.
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

/// `[neighbours]`: the tables of ARP and neighbour discovery, and the packets that wait for an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Neighbours {
    /// Most IPv4 neighbours.
    pub ipv4: u32,
    /// Most IPv6 neighbours.
    pub ipv6: u32,
    /// How long an answer counts before it is asked for again (RFC 4861, REACHABLE_TIME).
    pub reachable: Period,
    /// Time between two requests (RFC 4861, RETRANS_TIMER).
    pub retransmit: Period,
    /// Requests without an answer before a neighbour counts as unreachable.
    pub requests: u8,
    /// Packets that may wait for one neighbour.
    pub parked_each: u16,
    /// Packets that may wait for all neighbours together.
    pub parked: u32,
    /// Neighbours that are never asked.
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

/// `[[neighbours.static]]`: a neighbour that is never asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct StaticNeighbour {
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The interface; needed where the address is link-local.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// `[fragments]`: fragments that wait for the first of their packet (RFC 4787, REQ-14).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Fragments {
    /// Fragmented packets known at once.
    pub packets: u32,
    /// Fragments that may wait, all together.
    pub parked: u32,
    /// How long the fragments of a packet are kept together, from the first that comes (RFC 6146, FRAGMENT_MIN).
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

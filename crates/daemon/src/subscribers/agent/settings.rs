//! Settings of the agent.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use sluice_nat::Secret;
use sluice_wire::Mac;

use super::Nanoseconds;

/// Client identifier of sites (option 61).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identifier {
    /// No identifier. The server identifies the client by its hardware address.
    None,
    /// Type 1 and the site's MAC (RFC 2132, section 9.14).
    Mac,
    /// Node-specific identifier (RFC 4361): type 255, an IAID and a DUID-LL. The IAID and the DUID are derived from the
    /// site's MAC.
    Node,
}

impl Identifier {
    /// Value of the option.
    pub(super) fn bytes(self, mac: Mac) -> Option<Vec<u8>> {
        let [_, _, iaid @ ..] = mac;
        match self {
            Self::None => None,
            Self::Mac => Some([&[1], &mac[..]].concat()),
            // DUID-LL is type 3, and Ethernet is hardware type 1 (RFC 8415, section 11.4).
            Self::Node => Some([&[255], &iaid[..], &[0, 3, 0, 1], &mac[..]].concat()),
        }
    }
}

/// Settings of the agent. The default durations and rates follow RFC 2131 where the RFC specifies a value.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// Secret of transaction IDs and jitter.
    pub secret: Secret,
    /// Client identifier (option 61).
    pub identifier: Identifier,
    /// Host name (option 12): this text, a hyphen and the digits of the site's MAC. At most 200 bytes are used.
    pub host_name: Option<String>,
    /// Whether servers must broadcast replies to a site without an address.
    pub broadcast: bool,
    /// Servers whose replies are accepted. If the list is empty, all servers are accepted.
    pub servers: Vec<Ipv4Addr>,
    /// Networks to which public addresses must belong. If the list is empty, any address is accepted.
    pub prefixes: Vec<Ipv4Net>,
    /// Time for which offers are collected before the best offer is selected. If zero, the first offer is selected.
    pub window: Duration,
    /// Time to wait for the first reply. Each further wait is twice as long, up to 16 times this value. The jitter is a
    /// quarter of this value in either direction.
    pub retransmission: Duration,
    /// Minimum interval between two attempts to renew. If a quarter of the remaining time is shorter, this quarter is
    /// used instead.
    pub renewal_wait: Duration,
    /// Minimum wait after a declined address.
    pub decline_wait: Duration,
    /// Time for which the lease of a released site is kept, in case the site needs an address again.
    pub hold: Duration,
    /// Maximum number of messages per second, over all sites; at least 1.
    pub rate: u32,
    /// Maximum number of sites that send per second while no server responds or all requests are rejected; at least 1.
    pub probes: u32,
    /// Minimum lease time accepted, in seconds; at least 1.
    pub shortest_lease: u32,
    /// Whether public addresses in 240.0.0.0/4 are rejected.
    pub refuses_reserved: bool,
    /// Whether leases from before a restart may be used before the server has confirmed them.
    pub use_while_confirming: bool,
}

impl AgentSettings {
    /// Default settings with this secret.
    pub fn new(secret: Secret) -> Self {
        Self {
            secret,
            identifier: Identifier::Mac,
            host_name: None,
            broadcast: false,
            servers: Vec::new(),
            prefixes: Vec::new(),
            window: Duration::ZERO,
            retransmission: Duration::from_secs(4),
            renewal_wait: Duration::from_secs(60),
            decline_wait: Duration::from_secs(10),
            hold: Duration::from_secs(300),
            rate: 1_000,
            probes: 10,
            shortest_lease: 60,
            refuses_reserved: true,
            use_while_confirming: true,
        }
    }

    /// Whether a public address is acceptable.
    pub(super) fn allows(&self, address: Ipv4Addr) -> bool {
        self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| prefix.contains(&address))
    }

    /// Whether replies of a server are accepted.
    pub(super) fn trusts(&self, server: Ipv4Addr) -> bool {
        self.servers.is_empty() || self.servers.contains(&server)
    }

    /// Time to wait for a reply after this number of attempts, without jitter. The second value is the maximum jitter
    /// in either direction.
    pub(super) fn patience(&self, tries: u8) -> (Nanoseconds, Nanoseconds) {
        let base = nanoseconds(self.retransmission).max(4);
        (base << tries.saturating_sub(1).min(4), base / 4)
    }
}

/// A duration in nanoseconds, limited to a few years so that it can be doubled safely.
pub(super) fn nanoseconds(duration: Duration) -> Nanoseconds {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(1 << 57)
}

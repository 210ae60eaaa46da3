//! How the agent behaves.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;
use sluice_nat::Secret;
use sluice_wire::Mac;

use super::Nanoseconds;

/// What a site calls itself (option 61).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identifier {
    /// Nothing: the hardware address alone counts.
    None,
    /// Type 1 and the site's MAC (RFC 2132, 9.14).
    Mac,
    /// A node of its own (RFC 4361): type 255, an IAID and a DUID-LL, both from the site's MAC.
    Node,
}

impl Identifier {
    /// The option's bytes.
    pub(super) fn bytes(self, mac: Mac) -> Option<Vec<u8>> {
        let [_, _, iaid @ ..] = mac;
        match self {
            Self::None => None,
            Self::Mac => Some([&[1], &mac[..]].concat()),
            // DUID-LL is type 3, and Ethernet hardware type 1 (RFC 8415, 11.4).
            Self::Node => Some([&[255], &iaid[..], &[0, 3, 0, 1], &mac[..]].concat()),
        }
    }
}

/// How the agent behaves. Durations and rates are those that RFC 2131 gives, where it gives any.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What transaction numbers and jitter follow from.
    pub secret: Secret,
    /// Option 61.
    pub identifier: Identifier,
    /// Option 12: this, a hyphen and the digits of the site's MAC. At most 200 bytes count.
    pub host_name: Option<String>,
    /// Servers are to broadcast what they answer to a site without an address.
    pub broadcast: bool,
    /// Servers that are listened to; all where there is none.
    pub servers: Vec<Ipv4Addr>,
    /// Where public addresses are from; anywhere where there is none.
    pub prefixes: Vec<Ipv4Net>,
    /// How long offers are compared before the best is taken; zero: the first is.
    pub window: Duration,
    /// First wait for an answer; each further one is twice as long, up to 16 times this, give or take a quarter of this.
    pub retransmission: Duration,
    /// Shortest wait between two tries to renew, unless a quarter of the time that there is for them is shorter.
    pub renewal_wait: Duration,
    /// Shortest wait after an address was declined.
    pub decline_wait: Duration,
    /// How long a released lease is kept for a site that comes back.
    pub hold: Duration,
    /// Messages per second, of all sites; at least 1.
    pub rate: u32,
    /// Sites tried per second while no server answers, or every request is refused; at least 1.
    pub probes: u32,
    /// Shortest lease that is taken, in seconds; at least 1.
    pub shortest_lease: u32,
    /// No public address of 240.0.0.0/4 is taken.
    pub refuses_reserved: bool,
    /// Use leases of before a restart while the server is asked whether they hold.
    pub use_while_confirming: bool,
}

impl Settings {
    /// The usual, keyed by `secret`.
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

    /// Whether a public address may be this one.
    pub(super) fn allows(&self, address: Ipv4Addr) -> bool {
        self.prefixes.is_empty() || self.prefixes.iter().any(|prefix| prefix.contains(&address))
    }

    /// Whether a server is listened to.
    pub(super) fn trusts(&self, server: Ipv4Addr) -> bool {
        self.servers.is_empty() || self.servers.contains(&server)
    }

    /// The wait after so many tries, before jitter; and the jitter to either side.
    pub(super) fn patience(&self, tries: u8) -> (Nanoseconds, Nanoseconds) {
        let base = nanoseconds(self.retransmission).max(4);
        (base << tries.saturating_sub(1).min(4), base / 4)
    }
}

/// A duration as the agent counts: some years at most, which leaves room to double it.
pub(super) fn nanoseconds(duration: Duration) -> Nanoseconds {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).min(1 << 57)
}

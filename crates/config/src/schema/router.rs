//! `[routers.NAME]`: virtual routers in addition to the default router, which the top level configures.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::nat::{DestinationRule, ExemptRule, SourceRule, StaticRule};
use super::pool::{SessionLimits, is_default};
use super::{ChainStep, Filter, Rate, Route};
use crate::value::{BitRate, Period};

/// `[routers.NAME]`: a virtual router. The key `router` of an interface assigns the interface to a virtual router. A
/// virtual router has its own routes, neighbours, translation, packet filter and sessions, and its addresses may
/// overlap those of other routers. The top level configures the router `default`, which always exists;
/// `[routers.default]` contains only settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Router {
    /// Whether the router has a network namespace `sluice-NAME` for routing daemons and services. The namespace has an
    /// interface for each interface of the router. Packets to the router's addresses that Sluice does not answer itself
    /// are punted to the namespace.
    pub daemon: bool,
    /// Limits on packets to this namespace.
    #[serde(skip_serializing_if = "is_default")]
    pub host: RouterHost,
    /// FPM server for a routing daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fpm: Option<Fpm>,
    /// Whether routes of the namespace's routing table are used, such as those of BIRD or `ip route`. Default: true if
    /// the router has a namespace and no FPM server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_routes: Option<bool>,
    /// Static routes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Address translation.
    #[serde(skip_serializing_if = "is_default")]
    pub nat: RouterNat,
    /// The packet filter. If omitted, all packets pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// Chains by name. Chains process packets before session lookup and routing. Packets received on an interface of
    /// the router enter the chain `input`. If omitted, packets are passed directly to session lookup and routing.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub chains: IndexMap<String, Vec<ChainStep>>,
    /// Share of the workers' capacity, relative to other routers.
    #[serde(skip_serializing_if = "is_default")]
    pub share: RouterShare,
    /// Limits of the router.
    #[serde(skip_serializing_if = "is_default")]
    pub limits: RouterLimits,
}

/// `[routers.NAME.host]`: limits on packets to the namespace of a router's daemons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RouterHost {
    /// Packets per second and burst of each class, summed over all workers.
    #[serde(skip_serializing_if = "is_default")]
    pub limits: HostLimits,
    /// Multicast groups whose packets are punted.
    #[serde(skip_serializing_if = "is_default")]
    pub multicast: HostMulticast,
}

/// `limits = { … }` of a router's host stack. Omitted classes have their default limit. A rate of 0 blocks a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct HostLimits {
    /// Routing protocols. Default: rate 20,000, burst 4,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<Rate>,
    /// Bidirectional forwarding detection (RFC 5880). Default: rate 10,000, burst 1,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bfd: Option<Rate>,
    /// DHCP of both address families. Default: rate 1,000, burst 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<Rate>,
    /// All other packets. Default: rate 5,000, burst 1,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<Rate>,
}

impl HostLimits {
    /// The configured limits, each with the name of its class.
    pub fn configured(&self) -> impl Iterator<Item = (&'static str, Rate)> {
        let all = [
            ("routing", self.routing),
            ("bfd", self.bfd),
            ("dhcp", self.dhcp),
            ("other", self.other),
        ];
        all.into_iter().filter_map(|(name, rate)| Some((name, rate?)))
    }
}

/// Multicast groups whose packets are punted to a router's host stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostMulticast {
    /// The link-local groups 224.0.0.0/24 and ff02::/16, which switches do not filter (RFC 4541), and broadcast DHCP.
    #[default]
    LinkLocal,
    /// All groups, and broadcast DHCP.
    All,
    /// No groups. Without groups, routing protocols work only with configured neighbours.
    None,
}

/// `[routers.NAME.share]`: share of a router while a worker is overloaded. Shares are enforced only if at least one
/// router has a weight. The weight of all other routers is then 10.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RouterShare {
    /// Weight relative to other routers, 1 to 255.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u8>,
}

/// `[routers.NAME.limits]`: limits of a router. The session limits of the router `default` are in `[nat.limits]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RouterLimits {
    /// Maximum number of sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// New sessions per second, and burst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_sessions: Option<Rate>,
    /// Maximum traffic received on the router's interfaces, summed over all workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<TrafficRate>,
    /// Maximum number of routes learned from daemons and the kernel. Default: 2,000,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routes: Option<u32>,
    /// Maximum number of neighbours, including unresolved ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<u32>,
    /// Maximum number of buffered packets for each worker, such as packets queued for address resolution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffers: Option<u32>,
}

impl RouterLimits {
    /// The session limits.
    pub fn of_sessions(&self) -> SessionLimits {
        SessionLimits {
            sessions: self.sessions,
            new_sessions: self.new_sessions,
        }
    }

    /// These limits, but with the given session limits.
    pub fn with_sessions(self, limits: SessionLimits) -> Self {
        Self {
            sessions: limits.sessions,
            new_sessions: limits.new_sessions,
            ..self
        }
    }
}

/// `rate = { … }` of a router's limits: packets, bits or both. The length of a frame includes its Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TrafficRate {
    /// Packets per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u32>,
    /// Bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits: Option<BitRate>,
    /// Time for which unused capacity accumulates.
    pub burst: Period,
}

impl Default for TrafficRate {
    fn default() -> Self {
        Self {
            packets: None,
            bits: None,
            burst: Period::milliseconds(50),
        }
    }
}

/// `[routers.NAME.fpm]`: FPM server for a routing daemon, such as FRR with the module `dplane_fpm_nl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Fpm {
    /// TCP address and port on which the server listens, in the router's namespace if the router has one, otherwise on
    /// this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Addresses of peers that may connect and change the router's routes. Other connections are rejected.
    #[serde(default = "loopback")]
    pub peers: Vec<IpAddr>,
    /// Files with the TCP-MD5 keys of peers (RFC 2385), by peer address. The kernel drops unsigned segments of peers
    /// with keys. A file contains one line of 1 to 80 bytes, and only its owner may have access.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub md5_key_files: IndexMap<IpAddr, String>,
    /// Path of a Unix socket, for daemons that support FPM over a Unix socket. FRR 8 does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Names or IDs of users that may connect to the Unix socket, in addition to root and the user that runs Sluice.
    #[serde(default = "frr")]
    pub users: Vec<String>,
    /// Time for which stale routes are kept after the daemon has disconnected, or if a reconnected daemon does not send
    /// the routes again.
    #[serde(default = "grace")]
    pub grace: Period,
}

fn loopback() -> Vec<IpAddr> {
    vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
}

fn frr() -> Vec<String> {
    vec!["frr".into()]
}

fn grace() -> Period {
    Period::seconds(120)
}

/// `[routers.NAME.nat]`: translation rules as in `[nat]`. The pools of these rules are in `[nat.pools]`, and other
/// routers can't use these pools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RouterNat {
    /// Source rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source: Vec<SourceRule>,
    /// Destination rules (port forwarding).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destination: Vec<DestinationRule>,
    /// Networks that are translated one to one.
    #[serde(rename = "static", skip_serializing_if = "Vec::is_empty")]
    pub one_to_one: Vec<StaticRule>,
    /// Exemptions from translation (RFC 6888, REQ-6).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exempt: Vec<ExemptRule>,
}

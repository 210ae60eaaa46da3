//! `[routers.NAME]`: virtual routers beside the one that the top level is about.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::nat::{DestinationRule, ExemptRule, SourceRule, StaticRule};
use super::pool::{SessionLimits, is_default};
use super::{ChainStep, Filter, Rate, Route};
use crate::value::{BitRate, Period};

/// `[routers.NAME]`: a virtual router. Interfaces are in it by their key `router`; it has routes, neighbours, translation, a
/// packet filter and sessions of its own, and its addresses may be those of others too. What stands at the top level is
/// about the router `default`, which there always is; `[routers.default]` has settings alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Router {
    /// It has a network namespace, `sluice-NAME`, with an interface for each of its own, in which routing daemons and services
    /// run: what is addressed to it, and is not answered by itself, comes there.
    pub daemon: bool,
    /// What comes to that namespace, and how much of it.
    #[serde(skip_serializing_if = "is_default")]
    pub host: RouterHost,
    /// A routing daemon tells its routes by FPM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fpm: Option<Fpm>,
    /// Routes of the namespace's own table are the router's: those of BIRD, or of `ip route`. Where it is not given, they are
    /// where there is a namespace, and no daemon tells its routes by FPM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_routes: Option<bool>,
    /// Static routes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Address translation.
    #[serde(skip_serializing_if = "is_default")]
    pub nat: RouterNat,
    /// The packet filter; where it is not given, all packets pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// What its packets do before sessions and routes, by the names of chains; packets that have come in by one of its
    /// interfaces begin at `input`. Where it is not given, they go on to sessions and routes.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub chains: IndexMap<String, Vec<ChainStep>>,
    /// Its part of the workers, beside those of other routers.
    #[serde(skip_serializing_if = "is_default")]
    pub share: RouterShare,
    /// What it may have at most.
    #[serde(skip_serializing_if = "is_default")]
    pub limits: RouterLimits,
}

/// `[routers.NAME.host]`: what comes to the namespace of a router's daemons, and how much of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RouterHost {
    /// Packets a second and at once, by class, of all workers together.
    #[serde(skip_serializing_if = "is_default")]
    pub limits: HostLimits,
    /// Which groups' packets come to it.
    #[serde(skip_serializing_if = "is_default")]
    pub multicast: HostMulticast,
}

/// `limits = { … }` of a router's host. What is not given is as ever; at a rate of 0 nothing of the class comes to the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct HostLimits {
    /// Routing protocols: 20,000 and 4,000 where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<Rate>,
    /// Bidirectional forwarding detection (RFC 5880): 10,000 and 1,000 where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bfd: Option<Rate>,
    /// DHCP of both families: 1,000 and 200 where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp: Option<Rate>,
    /// All else: 5,000 and 1,000 where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<Rate>,
}

impl HostLimits {
    /// Those that are given, by the names of their classes.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, Rate)> {
        let all = [
            ("routing", self.routing),
            ("bfd", self.bfd),
            ("dhcp", self.dhcp),
            ("other", self.other),
        ];
        all.into_iter().filter_map(|(name, rate)| Some((name, rate?)))
    }
}

/// Which groups' packets come to a router's host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostMulticast {
    /// Those of a link: 224.0.0.0/24 and ff02::/16, which no switch keeps back either (RFC 4541), and DHCP to everybody.
    #[default]
    LinkLocal,
    /// All groups', and DHCP to everybody.
    All,
    /// None: routing protocols between configured neighbours alone.
    None,
}

/// `[routers.NAME.share]`: what a router gets while a worker has more to do than it can. Nothing is shared out until one router
/// is given a weight; those that are not have 10.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RouterShare {
    /// Its part, beside the weights of others, 1 to 255.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u8>,
}

/// `[routers.NAME.limits]`: what a router may have at most. Of the router `default`, `[nat.limits]` has those of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RouterLimits {
    /// Sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// New sessions a second, and at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_sessions: Option<Rate>,
    /// What comes in by its interfaces, on all workers together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<TrafficRate>,
    /// Routes that it learns from daemons and the kernel: 2,000,000 where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routes: Option<u32>,
    /// Neighbours, those that are asked for included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<u32>,
    /// Packets that wait for something, at each worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffers: Option<u32>,
}

impl RouterLimits {
    /// Those of sessions.
    pub fn of_sessions(&self) -> SessionLimits {
        SessionLimits {
            sessions: self.sessions,
            new_sessions: self.new_sessions,
        }
    }

    /// The same with other limits of sessions.
    pub fn with_sessions(self, limits: SessionLimits) -> Self {
        Self {
            sessions: limits.sessions,
            new_sessions: limits.new_sessions,
            ..self
        }
    }
}

/// `rate = { … }` of a router's limits: packets, bits or both. Frames count from their Ethernet header on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TrafficRate {
    /// Packets a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u32>,
    /// Bits a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits: Option<BitRate>,
    /// For how long what is not used is saved up.
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

/// `[routers.NAME.fpm]`: where a routing daemon tells the router its routes, as FRR does with the module `dplane_fpm_nl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Fpm {
    /// Address and port to listen at by TCP: in the router's namespace where it has one, otherwise of this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Addresses that are heard there, and can change the router's routes. Others are refused.
    #[serde(default = "loopback")]
    pub peers: Vec<IpAddr>,
    /// Files with keys by which peers sign what they send (TCP-MD5, RFC 2385), by their addresses: without the signature the
    /// kernel drops it. A file is one line of 1 to 80 bytes, which only its owner may read.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub md5_key_files: IndexMap<IpAddr, String>,
    /// A Unix socket to listen at, for daemons that can speak FPM by one; FRR 8 can't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// Users by name or number that are heard there, beside root and the one that runs Sluice.
    #[serde(default = "frr")]
    pub users: Vec<String>,
    /// How long the routes stay of a daemon that is gone, or does not tell them again.
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

/// `[routers.NAME.nat]`: rules, as in `[nat]`. The pools that they name are in `[nat.pools]`, and are this router's alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RouterNat {
    /// Source rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source: Vec<SourceRule>,
    /// Destination rules (port forwarding).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destination: Vec<DestinationRule>,
    /// Networks whose addresses are translated one to one.
    #[serde(rename = "static", skip_serializing_if = "Vec::is_empty")]
    pub one_to_one: Vec<StaticRule>,
    /// What is not translated (RFC 6888, REQ-6).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exempt: Vec<ExemptRule>,
}

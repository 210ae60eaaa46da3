//! The configuration as it is written: one structure per table, every key with its meaning and default.
//!
//! Keys are written in kebab-case. A key that is not listed is refused.

mod applications;
mod bridge;
mod chain;
mod eve;
mod filter;
mod gateway;
mod inspection;
mod interface;
mod nat;
mod pool;
mod router;
mod rule;
mod subscribers;
mod system;
mod tunnel;
mod uplink;

pub use crate::value::SetType;
pub use applications::Applications;
pub use bridge::{Bridge, Fail, Invalid};
pub use chain::{ChainStep, ChainTable, ChainWord, Police, PoliceBy};
pub use eve::{Eve, EveType};
pub use filter::{Action, Filter, ListSearch, Matcher, Name, NamedSet, Part, RejectWith, Verdict};
pub use gateway::{Fragments, Gateway, Neighbours, Policing, Rate, StaticNeighbour};
pub use inspection::{
    BypassClass, EXCEPTIONS, Encrypted, ExceptionPolicy, Inspection, InspectionMode, Overload, OverloadAction,
    OverloadClass, SignatureDialect, Signatures, UrgentPointer,
};
pub use interface::{
    Bond, BondMode, InUse, Interface, LeftToOffload, LinkShare, RouterAdvertisements, SourceValidation,
};
pub use nat::{
    Balance, DestinationRule, ExemptRule, Health, HealthProtocol, Nat, SourceRule, StaticRule, UnsolicitedSyn,
    UntranslatedInbound,
};
pub use pool::{
    Algorithm, Block, Deterministic, Filtering, Mapping, Pairing, Pool, PortSelection, SessionLimits, SubscriberLimits,
};
pub use router::{
    Fpm, HostLimits, HostMulticast, Router, RouterHost, RouterLimits, RouterNat, RouterShare, TrafficRate,
};
pub use rule::{Class, FilterRule, HeaderField};
pub use subscribers::{ClientIdentifier, LeaseFormat, LeaseServer, PublicClient, SiteGroup, Subscribers};
pub use system::{
    Control, Hugepages, Idle, LogLevel, Model, Rebalance, Roles, Sessions, Stage, Steering, System, Timeouts, Transmit,
    Watchdog,
};
pub use tunnel::{Tunnel, TunnelType};
pub use uplink::{RouteBalance, Uplink, UplinkHealth};

use self::pool::is_default;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::value::{Prefix, ScopedAddress};

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Document {
    /// The process: cores and memory.
    pub system: System,
    /// The session table.
    pub sessions: Sessions,
    /// Interfaces by name, in the order of the file.
    pub interfaces: IndexMap<String, Interface>,
    /// Pairs of interfaces that pass each other everything, by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub bridges: IndexMap<String, Bridge>,
    /// Virtual routers beside the one that the top level is about, by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub routers: IndexMap<String, Router>,
    /// Rates that chains of several routers share, by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub policers: IndexMap<String, Police>,
    /// Static routes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Uplinks that routes name, by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub uplinks: IndexMap<String, Uplink>,
    /// The tables of neighbours (ARP and neighbour discovery).
    pub neighbours: Neighbours,
    /// Address translation.
    pub nat: Nat,
    /// The packet filter; where it is not given, all packets pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// What flows carry, compared with signatures; where it is not given, nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inspection: Option<Inspection>,
    /// Which application a session is of; where it is not given, nobody looks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applications: Option<Applications>,
    /// Sites of subscribers and their addresses; where it is not given, there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscribers: Option<Subscribers>,
    /// What the gateway itself answers and sends.
    pub gateway: Gateway,
    /// Fragments that wait for their first one.
    pub fragments: Fragments,
    /// The control socket, traces and captures, the log.
    pub control: Control,
}

impl Document {
    /// The document as TOML, every default written out.
    pub fn print(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

/// A static route: by way of a gateway, onto a link, or to nowhere. Those to one network, at one distance, are ways of one
/// route, of which each flow takes one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Route {
    /// Destination network; `0.0.0.0/0` and `::/0` are the default routes. No default route leads to 169.254.0.0/16
    /// (RFC 3927, 2.7): a route of its own does.
    pub to: Prefix,
    /// Packets that this is about, by the network of their source as their host sends it; all where not given. Such routes come
    /// before those of other packets, whatever these lead to: those of the longest `from` first. The networks of interfaces stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Prefix>,
    /// Address of the next gateway, on the link of one of the interfaces: in one of its networks, or in a network that a
    /// route leads onto that link. IPv4 routes may have gateways of IPv6 (RFC 8950). A link-local one has its interface behind
    /// it, as in `fe80::1%wan` (RFC 4007), or in `interface`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<ScopedAddress>,
    /// The gateway need not be on a link: the router's other routes lead to it, all but the default route, and the route
    /// follows them as they change.
    #[serde(default, skip_serializing_if = "is_default")]
    pub recursive: bool,
    /// The gateway is on the link of `interface`, whatever networks that has.
    #[serde(default, skip_serializing_if = "is_default")]
    pub onlink: bool,
    /// The interface to leave by. Needed for a gateway with a link-local address that does not have it behind it, and for a
    /// route onto a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Instead of a gateway: the uplinks that share the packets, each by its `weight`, as long as it is up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uplinks: Vec<String>,
    /// What stays on one of the uplinks: all that a host sends, or each flow by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<RouteBalance>,
    /// Instead of a gateway: what to do with the packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<RouteAction>,
    /// Its part beside other ways to the same network, 1 to 255; 1 where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u8>,
    /// Administrative distance, 1 to 255; 1 where not given. Of several routes to a network, learned ones too, those at the
    /// lowest one that lead anywhere are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distance: Option<u8>,
}

/// A route that leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteAction {
    /// Drop and say nothing.
    Blackhole,
    /// Drop and answer that the host is unreachable.
    Unreachable,
    /// Drop and answer that communication is prohibited.
    Prohibit,
}

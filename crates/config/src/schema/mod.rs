//! The configuration as written: one structure for each table. Every key has a description. Optional keys have a
//! default.
//!
//! Keys are in kebab-case. Unknown keys are rejected.

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
pub use eve::{Eve, EveField, EveType};
pub use filter::{Action, Filter, ListSearch, Matcher, Name, NamedSet, Part, RejectWith, Verdict};
pub use gateway::{Fragments, Gateway, Neighbours, Policing, Rate, StaticNeighbour};
pub use inspection::{
    BypassClass, EXCEPTIONS, Encrypted, ExceptionPolicy, Inspection, InspectionMode, Overload, OverloadAction,
    OverloadClass, SignatureDialect, Signatures, UrgentPointer,
};
pub use interface::{
    Bond, BondMode, InUse, Interface, LinkShare, PartialChecksums, RouterAdvertisements, SourceValidation,
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

/// The complete file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Document {
    /// The process: cores and memory.
    pub system: System,
    /// The session table.
    pub sessions: Sessions,
    /// Interfaces by name, in the order of the file.
    pub interfaces: IndexMap<String, Interface>,
    /// Bridges by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub bridges: IndexMap<String, Bridge>,
    /// Virtual routers by name, in addition to the default router, which the top level configures.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub routers: IndexMap<String, Router>,
    /// Policers that chains of several routers share, by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub policers: IndexMap<String, Police>,
    /// Static routes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Uplinks by name. Routes refer to uplinks by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub uplinks: IndexMap<String, Uplink>,
    /// Neighbour tables (ARP and neighbour discovery).
    pub neighbours: Neighbours,
    /// Address translation.
    pub nat: Nat,
    /// The packet filter. If omitted, all packets pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// Inspection of flows by signatures. If omitted, flows are not inspected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inspection: Option<Inspection>,
    /// Identification of the applications of sessions. If omitted, applications are not identified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applications: Option<Applications>,
    /// Subscribers' sites and their addresses. If omitted, the subscriber service is disabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscribers: Option<Subscribers>,
    /// Limits on packets that the gateway itself answers and originates.
    pub gateway: Gateway,
    /// Fragments that wait for their first fragment.
    pub fragments: Fragments,
    /// The control socket, traces and captures, and the log.
    pub control: Control,
}

impl Document {
    /// The document as TOML, including all defaults.
    pub fn print(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }
}

/// A static route through a gateway, onto a link, or without forwarding. Routes to the same network with the same
/// distance form one multipath route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Route {
    /// Destination network. `0.0.0.0/0` and `::/0` are default routes. Default routes do not apply to 169.254.0.0/16
    /// (RFC 3927, section 2.7), which requires a separate route.
    pub to: Prefix,
    /// Source network, before translation, of the packets to which the route applies. If omitted, the route applies to
    /// all sources. Routes with `from` take precedence over all routes without `from`, except connected networks. Among
    /// routes with `from`, the longest `from` takes precedence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Prefix>,
    /// Address of the gateway. The gateway must be on the link of an interface: in a network of the interface, or in a
    /// network with a route onto that link. IPv4 routes may have IPv6 gateways (RFC 8950). The interface of a
    /// link-local address is appended, as in `fe80::1%wan` (RFC 4007), or specified with `interface`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub via: Option<ScopedAddress>,
    /// Whether the gateway is resolved recursively with the router's other routes, except the default route. If the
    /// other routes change, the gateway is resolved again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub recursive: bool,
    /// Whether the gateway is on the link of `interface` although it is in none of the interface's networks.
    #[serde(default, skip_serializing_if = "is_default")]
    pub onlink: bool,
    /// Output interface. Required for a link-local gateway without a zone, and for a route onto a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Uplinks, instead of a gateway. Packets are balanced by `weight` over the uplinks that are up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uplinks: Vec<String>,
    /// Whether source addresses or flows are balanced over uplinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<RouteBalance>,
    /// Action for the packets, instead of a gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<RouteAction>,
    /// Weight relative to other next hops for the same network, 1 to 255. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u8>,
    /// Administrative distance, 1 to 255. Default: 1. Among static and learned routes to a network, the usable routes
    /// with the lowest distance are selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distance: Option<u8>,
}

/// Action of a route that does not forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteAction {
    /// Drop the packet without a reply.
    Blackhole,
    /// Drop the packet, and reply with ICMP host unreachable.
    Unreachable,
    /// Drop the packet, and reply with ICMP communication administratively prohibited.
    Prohibit,
}

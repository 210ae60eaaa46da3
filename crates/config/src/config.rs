//! The configuration as the daemon uses it: references are resolved, defaults are filled in, and all values are
//! validated.

mod interface;
mod nat;

use std::net::IpAddr;
use std::ops::Deref;
use std::path::PathBuf;

pub use self::interface::{Bridged, Interface, Link, Tunnel};
pub use self::nat::{DestinationAction, DestinationRule, HostCheck, HostSet, Pool, SourceAction, SourceRule, Timeouts};
use crate::chain::RouterChains;
use crate::filter::{FilterRule, FilterSet};
use crate::memory::Table;
use crate::numbering::Numbering;
use crate::schema;
pub use crate::subscribers::{LeaseServer, PublicClient, SiteFrames, SiteGroup, SiteRow, SitesOutside, Subscribers};
use crate::value::{Mac, Prefix};

/// A validated value. Only [`crate::check`] creates validated values.
#[derive(Clone, Debug, PartialEq)]
pub struct Valid<T>(T);

impl<T> Valid<T> {
    pub(crate) fn checked(value: T) -> Self {
        Self(value)
    }

    /// Returns the value so that it can be changed. The returned value no longer counts as validated.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Valid<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Index of an interface in [`Config::interfaces`].
pub type InterfaceIndex = u16;

/// Number of a virtual router: its index in [`Config::routers`].
pub type RouterIndex = u16;

/// The router that the top level of the file configures.
pub const DEFAULT_ROUTER: RouterIndex = 0;

/// Index of a pool in [`Config::pools`].
pub type PoolIndex = u16;

/// A complete configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The file's content with all defaults. The document is used for values that need no resolution, and for
    /// [`crate::difference()`].
    pub document: schema::Document,
    /// Cores of the workers, in order and without duplicates.
    pub cores: Vec<u16>,
    /// Workers of each stage (receive, parse, session, transmit), as indexes in `cores`. Empty if all workers perform
    /// the stage.
    pub stages: [Vec<u16>; 4],
    /// Tables of fixed capacity.
    pub tables: Vec<Table>,
    /// Timeouts of sessions that do not use a pool.
    pub timeouts: Timeouts,
    /// Numbering of interfaces, routers and ports.
    pub numbering: Numbering,
    /// Interfaces by number. At the start of the process, the numbers follow the order of the file.
    pub interfaces: Vec<Interface>,
    /// Virtual routers by number.
    pub routers: Vec<Router>,
    /// Static routes. Connected routes are derived from the addresses and not listed.
    pub routes: Vec<Route>,
    /// Uplinks in the order of the file.
    pub uplinks: Vec<Uplink>,
    /// Static neighbours.
    pub neighbours: Vec<Neighbour>,
    /// Pools in the order of the file.
    pub pools: Vec<Pool>,
    /// Source rules in the order of the file. If several rules match, the most specific rule applies.
    pub source: Vec<SourceRule>,
    /// Destination rules in the order of the file. If several rules match, the most specific rule applies.
    pub destination: Vec<DestinationRule>,
    /// Sets of hosts over which destination rules balance flows.
    pub host_sets: Vec<HostSet>,
    /// Rules of the packet filters: first the rules of the default router, then the rules of the other routers, each in
    /// the order of the file. The filters' settings are in `document`.
    pub filter: Vec<FilterRule>,
    /// Element sets to which filter rules refer.
    pub filter_sets: Vec<FilterSet>,
    /// Chains of all routers that have chains.
    pub chains: Vec<RouterChains>,
    /// Inspection, if configured. The settings of inspection are in `document`.
    pub inspection: Option<Inspection>,
    /// Application identification, if configured. The settings of application identification are in `document`.
    pub applications: Option<Applications>,
    /// Subscribers' sites, if configured.
    pub subscribers: Option<Subscribers>,
}

/// Scope of application identification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applications {
    /// For each interface, whether the applications of sessions through it are identified.
    pub interfaces: Vec<bool>,
}

/// Scope and files of inspection.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// For each interface, whether flows through it are inspected.
    pub interfaces: Vec<bool>,
    /// Rule files.
    pub signatures: Vec<SignatureFile>,
    /// Path of a `classification.config`.
    pub classes: Option<PathBuf>,
    /// Directory in which compiled rules are cached.
    pub cache: Option<PathBuf>,
    /// Target of records.
    pub eve: Option<EveTarget>,
}

/// Target of records in EVE JSON format, one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EveTarget {
    /// Append to a file.
    File(PathBuf),
    /// Unix stream socket.
    Stream(PathBuf),
    /// Unix datagram socket, one record per datagram.
    Datagram(PathBuf),
}

/// A rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureFile {
    /// Whether the other rules of the file stay active if a pass rule in it is rejected.
    pub partial: bool,
    /// Path of the file.
    pub path: PathBuf,
    /// Language of the rules.
    pub dialect: schema::SignatureDialect,
}

impl Config {
    /// Settings that apply to the packet filters of all routers, with the default verdict of the default router. `None`
    /// if no router has a filter.
    pub fn filter_settings(&self) -> Option<schema::Filter> {
        let mut written = self
            .document
            .routers
            .values()
            .filter_map(|router| router.filter.as_ref());
        match (&self.document.filter, written.next()) {
            (Some(settings), _) => Some(settings.clone()),
            (None, Some(settings)) => Some(schema::Filter {
                default: schema::Verdict::Accept,
                ..settings.clone()
            }),
            (None, None) => None,
        }
    }

    /// Rules of [`Config::filter`] as written, in the same order.
    pub fn filter_texts(&self) -> Vec<schema::FilterRule> {
        let rules = self.document.filter.iter().flat_map(|filter| &filter.rules);
        let mut texts: Vec<_> = rules.cloned().collect();
        for router in self.document.routers.values() {
            let Some(filter) = &router.filter else { continue };
            texts.extend(filter.rules.iter().cloned());
            texts.push(schema::FilterRule::of(filter.default.into()));
        }
        texts
    }

    /// The interface with this name.
    pub fn interface(&self, name: &str) -> Option<(InterfaceIndex, &Interface)> {
        let index = self.interfaces.iter().position(|interface| interface.name == name)?;
        Some((index as InterfaceIndex, self.interfaces.get(index)?))
    }
}

/// A virtual router.
#[derive(Clone, Debug, PartialEq)]
pub struct Router {
    /// Name in the configuration; empty if the number is quarantined.
    pub name: String,
    /// Limits of the router.
    pub limits: schema::RouterLimits,
    /// Weight relative to other routers, if configured.
    pub weight: Option<u8>,
    /// Whether the router has a packet filter.
    pub filters: bool,
    /// Whether the router has a network namespace for routing daemons and services.
    pub daemon: bool,
    /// Limits on packets to the network namespace.
    pub host: schema::RouterHost,
    /// Whether the router uses routes of the namespace's routing table.
    pub kernel_routes: bool,
    /// FPM server for a routing daemon.
    pub fpm: Option<schema::Fpm>,
}

/// A next hop of a static route. All next hops to the same network with the same distance form one route.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Virtual router of the route.
    pub router: RouterIndex,
    /// Destination network.
    pub to: Prefix,
    /// Source network to which the route applies. `None` for all sources.
    pub from: Option<Prefix>,
    /// Next hop.
    pub next_hop: RouteNextHop,
    /// Weight relative to other next hops, at least 1.
    pub weight: u8,
    /// Administrative distance, at least 1.
    pub distance: u8,
    /// Balancing over several uplinks. `None` if the next hops are not uplinks.
    pub balance: Option<schema::RouteBalance>,
}

/// An uplink.
#[derive(Clone, Debug, PartialEq)]
pub struct Uplink {
    /// Name of the uplink.
    pub name: String,
    /// Output interface.
    pub interface: InterfaceIndex,
    /// Gateways on the uplink's interface, at most one per address family.
    pub gateways: Vec<IpAddr>,
    /// Weight relative to other uplinks, at least 1.
    pub weight: u8,
    /// Health checks.
    pub health: Option<schema::UplinkHealth>,
}

/// Next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RouteNextHop {
    /// A gateway on the link of an interface.
    Gateway(IpAddr, InterfaceIndex),
    /// A recursive gateway, which is resolved with the router's routes.
    Recursive(IpAddr),
    /// The destination is directly on the link of an interface.
    Link(InterfaceIndex),
    /// The packet is not forwarded. The value is the action of the route.
    Discard(schema::RouteAction),
}

/// A static neighbour.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    /// IP address.
    pub address: IpAddr,
    /// Ethernet address.
    pub mac: Mac,
    /// Interface of the neighbour.
    pub interface: InterfaceIndex,
}

//! The configuration as the daemon uses it: references resolved, defaults filled in, nothing left to check.

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

/// Something that was checked. Only [`crate::check`] makes one.
#[derive(Clone, Debug, PartialEq)]
pub struct Valid<T>(T);

impl<T> Valid<T> {
    pub(crate) fn checked(value: T) -> Self {
        Self(value)
    }

    /// What was checked, to be changed: it is not valid any more.
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

/// Place of an interface in [`Config::interfaces`].
pub type InterfaceIndex = u16;

/// Number of a virtual router: its place in [`Config::routers`].
pub type RouterIndex = u16;

/// The router that the top level is about.
pub const DEFAULT_ROUTER: RouterIndex = 0;

/// Place of a pool in [`Config::pools`].
pub type PoolIndex = u16;

/// A whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// As it was written, with every default: for what needs no resolving, and for [`crate::difference()`].
    pub document: schema::Document,
    /// The cores of the workers, in order; each once.
    pub cores: Vec<u16>,
    /// By part of a packet's way (receive, parse, session, transmit), the workers that do it, by their place in `cores`: none
    /// where all do.
    pub stages: [Vec<u16>; 4],
    /// Tables of fixed capacity.
    pub tables: Vec<Table>,
    /// Timeouts of sessions that no pool takes part in.
    pub timeouts: Timeouts,
    /// Which number is whose.
    pub numbering: Numbering,
    /// Interfaces by number: in the order of the file, where the process has just begun.
    pub interfaces: Vec<Interface>,
    /// Virtual routers by number.
    pub routers: Vec<Router>,
    /// Static routes; those of the links follow from the addresses and are not listed.
    pub routes: Vec<Route>,
    /// Uplinks in the order of the file.
    pub uplinks: Vec<Uplink>,
    /// Neighbours that are never asked.
    pub neighbours: Vec<Neighbour>,
    /// Pools in the order of the file.
    pub pools: Vec<Pool>,
    /// Source rules in the order of the file; the most specific decides.
    pub source: Vec<SourceRule>,
    /// Destination rules in the order of the file; the most specific decides.
    pub destination: Vec<DestinationRule>,
    /// Hosts that destination rules deal flows among.
    pub host_sets: Vec<HostSet>,
    /// Rules of the packet filters, those of the default router first, each router's in the order of the file; their settings
    /// are in `document`.
    pub filter: Vec<FilterRule>,
    /// Sets of addresses that they name.
    pub filter_sets: Vec<FilterSet>,
    /// Chains of the routers that have any.
    pub chains: Vec<RouterChains>,
    /// What flows are inspected for, where any are; its settings are in `document`.
    pub inspection: Option<Inspection>,
    /// Whose applications are looked for, where any are; its settings are in `document`.
    pub applications: Option<Applications>,
    /// Sites of subscribers, where there are any.
    pub subscribers: Option<Subscribers>,
}

/// Whose applications are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applications {
    /// By interface: those of sessions that come or go by it are.
    pub interfaces: Vec<bool>,
}

/// What flows are inspected for.
#[derive(Clone, Debug, PartialEq)]
pub struct Inspection {
    /// By interface: flows that come or go by it are inspected.
    pub interfaces: Vec<bool>,
    /// Files of rules.
    pub signatures: Vec<SignatureFile>,
    /// A `classification.config`.
    pub classes: Option<PathBuf>,
    /// Folder for compiled rules.
    pub cache: Option<PathBuf>,
    /// Where records are written.
    pub eve: Option<EveTarget>,
}

/// Where records are written, as lines of EVE JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EveTarget {
    /// To the end of a file.
    File(PathBuf),
    /// To a Unix socket, one after the other.
    Stream(PathBuf),
    /// To a Unix socket, a datagram each.
    Datagram(PathBuf),
}

/// A file of rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureFile {
    /// Its other rules are in force even where one that lets pass is refused.
    pub partial: bool,
    /// Its path.
    pub path: PathBuf,
    /// The language of its rules.
    pub dialect: schema::SignatureDialect,
}

impl Config {
    /// What holds for the packet filters of all routers, and what becomes of the default router's packets that none of its
    /// rules decides about; none where no router has a filter.
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

    /// The texts of [`Config::filter`], in its order.
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
    /// Its name in the configuration; empty where the number rests.
    pub name: String,
    /// What it may have at most.
    pub limits: schema::RouterLimits,
    /// Its weight beside others, where it is given one.
    pub weight: Option<u8>,
    /// It has a packet filter.
    pub filters: bool,
    /// It has a network namespace for routing daemons and services.
    pub daemon: bool,
    /// What comes to that.
    pub host: schema::RouterHost,
    /// Routes of the namespace's own table are its routes.
    pub kernel_routes: bool,
    /// Where a routing daemon tells its routes.
    pub fpm: Option<schema::Fpm>,
}

/// A way of a static route: those to one network at one distance are one route.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The virtual router that has it.
    pub router: RouterIndex,
    /// Destination network.
    pub to: Prefix,
    /// Network of the sources that it is for; all where there is none.
    pub from: Option<Prefix>,
    /// Where it leads.
    pub way: Way,
    /// Its part beside other ways, at least 1.
    pub weight: u8,
    /// Administrative distance, at least 1.
    pub distance: u8,
    /// What stays on one of several uplinks; none where the ways are no uplinks.
    pub balance: Option<schema::RouteBalance>,
}

/// An uplink.
#[derive(Clone, Debug, PartialEq)]
pub struct Uplink {
    /// Its name.
    pub name: String,
    /// The interface that it leaves by.
    pub interface: InterfaceIndex,
    /// Its gateways there, one of each family at most.
    pub gateways: Vec<IpAddr>,
    /// Its part beside other uplinks, at least 1.
    pub weight: u8,
    /// When it is up.
    pub health: Option<schema::UplinkHealth>,
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Way {
    /// To a gateway on the link of an interface.
    Gateway(IpAddr, InterfaceIndex),
    /// To a gateway that the router's routes lead to.
    Recursive(IpAddr),
    /// Onto the link of an interface.
    Link(InterfaceIndex),
    /// Nowhere.
    Nowhere(schema::RouteAction),
}

/// A neighbour that is never asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address.
    pub mac: Mac,
    /// The interface whose link it is on.
    pub interface: InterfaceIndex,
}

//! `[uplinks.NAME]`: the gateways of a provider, and how it is known whether they lead anywhere.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::value::{Period, Prefix, ScopedAddress};

/// `[uplinks.NAME]`: a way to the world, by an interface. Routes share flows among several of them. While one is down, no route
/// leads by its gateways, static or learned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Uplink {
    /// The interface to leave by.
    pub interface: String,
    /// The gateway on its link: one of each address family at most.
    pub via: Vec<ScopedAddress>,
    /// Its part of new flows beside other uplinks of a route, 1 to 255.
    #[serde(default = "one")]
    pub weight: u8,
    /// When it is up. Where it is not given, as long as its interface has a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<UplinkHealth>,
}

fn one() -> u8 {
    1
}

/// `health = { … }` of an uplink. With both `ping` and `route` it is up while both say so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct UplinkHealth {
    /// Hosts beyond the uplink that are sent echo requests by its gateway; any answer will do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ping: Vec<IpAddr>,
    /// A network that a routing daemon has a route to by this uplink as long as that is up: its BGP withdraws it, at once where
    /// BFD finds the neighbour gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<Prefix>,
    /// Time between two checks, 100 ms to an hour.
    pub interval: Period,
    /// How long an answer may take: as long as `interval` at most.
    pub timeout: Period,
    /// Checks in a row that fail before it is down, 1 to 100.
    pub failures: u8,
    /// Checks in a row that succeed before it is up again, 1 to 100.
    pub successes: u8,
}

impl Default for UplinkHealth {
    fn default() -> Self {
        Self {
            ping: Vec::new(),
            route: None,
            interval: Period::seconds(1),
            timeout: Period::seconds(1),
            failures: 3,
            successes: 3,
        }
    }
}

/// What stays on one uplink of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteBalance {
    /// All that one source address sends: sites that bind a login to an address see one.
    #[default]
    Host,
    /// Each flow by itself.
    Flow,
}

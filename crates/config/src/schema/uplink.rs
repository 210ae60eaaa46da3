//! `[uplinks.NAME]`: the gateways of a provider, with their health checks.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::value::{Period, Prefix, ScopedAddress};

/// `[uplinks.NAME]`: an Internet connection through an interface. Routes balance flows over several uplinks. While an
/// uplink is down, neither static nor learned routes use its gateways.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Uplink {
    /// Output interface.
    pub interface: String,
    /// Gateways on the interface's link, at most one per address family.
    pub via: Vec<ScopedAddress>,
    /// Weight for new flows relative to other uplinks of a route, 1 to 255.
    #[serde(default = "one")]
    pub weight: u8,
    /// Health checks. If omitted, the uplink is up as long as the link of its interface is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<UplinkHealth>,
}

fn one() -> u8 {
    1
}

/// `health = { … }` of an uplink. With both `ping` and `route`, both checks must succeed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct UplinkHealth {
    /// Hosts that are probed with echo requests through the gateway of the uplink. A check succeeds if at least one
    /// host replies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ping: Vec<IpAddr>,
    /// Network to which a routing daemon must have a route through this uplink. BGP withdraws the route after a
    /// failure. If BFD detects the failure, BGP withdraws the route immediately.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<Prefix>,
    /// Interval between checks, 100 ms to one hour.
    pub interval: Period,
    /// Time to wait for a reply. The timeout is at most `interval`.
    pub timeout: Period,
    /// Number of consecutive failed checks after which the uplink is down, 1 to 100.
    pub failures: u8,
    /// Number of consecutive successful checks after which the uplink is up again, 1 to 100.
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

/// Whether source addresses or flows are balanced over several uplinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteBalance {
    /// Source addresses: all flows of an address use the same uplink, because some web sites bind a login to the
    /// address.
    #[default]
    Host,
    /// Flows: each flow is balanced individually.
    Flow,
}

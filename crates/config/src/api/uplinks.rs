//! Uplinks, as the API lists them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// An uplink.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Uplink {
    /// Its name.
    pub name: String,
    /// The router of its interface.
    #[serde(default)]
    pub router: String,
    /// The interface that it leaves by.
    pub interface: String,
    /// Its gateways.
    pub via: Vec<IpAddr>,
    /// Its part of new flows beside other uplinks.
    pub weight: u8,
    /// Whether routes lead by it.
    pub up: bool,
    /// Why none does: `link-down`, `no-answer`, `no-route`, or `recovering` until enough checks have succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Seconds since it went up or down.
    pub age: u64,
    /// How often it did.
    pub changes: u64,
    /// Checks in a row that speak for a change.
    pub contrary: u8,
    /// The network that a routing daemon must have a route to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// Hosts that are asked.
    #[serde(default)]
    pub targets: Vec<UplinkTarget>,
}

/// A host that is asked by an uplink.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct UplinkTarget {
    /// Its address.
    pub address: IpAddr,
    /// Echo requests that were sent.
    pub sent: u64,
    /// Those that were answered in time.
    pub answered: u64,
    /// Microseconds that the last answer took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<u64>,
}

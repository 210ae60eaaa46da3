//! `/v1/routers`: virtual routers.

use serde::{Deserialize, Serialize};

use super::Counter;
use crate::schema::RouterLimits;

/// Of which router; of all where none is named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct RouterFilter {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
}

/// A virtual router.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Router {
    /// Its name.
    pub name: String,
    /// Its interfaces.
    pub interfaces: Vec<String>,
    /// Routes of IPv4 and IPv6, those to its links included.
    pub routes: [u64; 2],
    /// Neighbours that are known, or asked for.
    pub neighbours: u64,
    /// Pools that its rules name.
    pub pools: Vec<String>,
    /// Rules of translation.
    pub nat_rules: u64,
    /// Whether a packet filter is asked about its packets.
    pub filter: bool,
    /// What it may have at most.
    pub limits: RouterLimits,
    /// Its weight while a worker has more to do than it can; none where routers have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u8>,
    /// Sessions that count against the limits; none are counted where there are none.
    pub limited_sessions: u64,
    /// Packets that came in, left, and were dropped, at its interfaces.
    pub received: u64,
    /// Packets that left.
    pub sent: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Of these, by reason; reasons without drops are left out.
    #[serde(default)]
    pub drops: Vec<Counter>,
    /// Of the packets that came in by any router's interfaces and went on past shares and rates, how many came in by this
    /// one's: a number from 0 to 1.
    #[serde(default)]
    pub share: f64,
    /// Packets that wait for something.
    #[serde(default)]
    pub waiting: u64,
    /// Learned routes that were refused because of the quota.
    #[serde(default)]
    pub refused_routes: u64,
    /// Its host, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<RouterHost>,
}

/// The host of a router: where its daemons live.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RouterHost {
    /// Its network namespace.
    pub namespace: String,
    /// Packets that workers have given it, by class; ARP is counted and answered in its place.
    pub punted: Vec<Counter>,
    /// Of these, packets that its kernel has taken.
    pub delivered: u64,
    /// And those that it has not.
    pub undelivered: u64,
    /// Packets that it has sent.
    pub sent: u64,
    /// Packets that it has sent and that were lost, because more came than the worker took.
    pub lost: u64,
}

//! Uplinks, as the API lists them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::column::{Column, Row, age, grouped};

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
    pub consecutive: u8,
    /// The network that a routing daemon must have a route to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// Hosts that are asked.
    #[serde(default)]
    pub targets: Vec<UplinkTarget>,
}

impl Uplink {
    /// What its checks say: by host how many of its requests were answered, and how fast.
    fn checks(&self) -> String {
        let host = |target: &UplinkTarget| {
            let UplinkTarget {
                address,
                sent,
                answered,
                round_trip,
            } = target;
            let took = round_trip.map_or(String::new(), |took| format!(" in {:.1} ms", took as f64 / 1_000.0));
            format!("{address} {} of {}{took}", grouped(*answered), grouped(*sent))
        };
        let route = self.route.iter().map(|route| format!("route {route}"));
        let all: Vec<_> = self.targets.iter().map(host).chain(route).collect();
        if all.is_empty() { "link".into() } else { all.join(", ") }
    }
}

impl Row for Uplink {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("UPLINK", |row| row.name.clone()),
        Column::text("ROUTER", |row| row.router.clone()),
        Column::text("INTERFACE", |row| row.interface.clone()),
        Column::text("VIA", |row| {
            row.via.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ")
        }),
        Column::number("WEIGHT", |row| row.weight.to_string()),
        Column::text("STATE", |row| {
            row.cause
                .as_ref()
                .map_or_else(|| "up".into(), |cause| format!("down: {cause}"))
        }),
        Column::number("SINCE", |row| age(row.age)),
        Column::number("CHANGES", |row| grouped(row.changes)),
        Column::text("CHECKS", Self::checks),
    ];
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

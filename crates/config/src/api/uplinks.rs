//! Uplinks in the API.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::column::{Column, Row, age, grouped};

/// An uplink with its status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Uplink {
    /// Name of the uplink.
    pub name: String,
    /// Virtual router of the interface.
    #[serde(default)]
    pub router: String,
    /// Output interface.
    pub interface: String,
    /// Gateways.
    pub via: Vec<IpAddr>,
    /// Weight for new flows relative to other uplinks.
    pub weight: u8,
    /// Whether routes use the uplink.
    pub up: bool,
    /// Why the uplink is down: `link-down`, `no-answer`, `no-route`, or `recovering` until enough checks have
    /// succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Seconds since the uplink last went up or down.
    pub age: u64,
    /// Number of times that the uplink went up or down.
    pub changes: u64,
    /// Number of consecutive checks whose result contradicts the current state of the uplink.
    pub consecutive: u8,
    /// Network to which a routing daemon must have a route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// Hosts that are probed.
    #[serde(default)]
    pub targets: Vec<UplinkTarget>,
}

impl Uplink {
    /// Text with the results of the checks: for each host, the number of replies and the round-trip time.
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

/// A host that is probed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct UplinkTarget {
    /// Address of the host.
    pub address: IpAddr,
    /// Echo requests sent.
    pub sent: u64,
    /// Echo requests answered in time.
    pub answered: u64,
    /// Round-trip time of the last reply in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip: Option<u64>,
}

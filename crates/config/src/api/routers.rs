//! `/v1/routers`: virtual routers.

use std::net::IpAddr;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::Counter;
use super::column::{Column, Row, age, grouped, or_dash};
use crate::schema::RouterLimits;

/// Selection of a virtual router. If no router is named, all routers are selected.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct RouterFilter {
    /// Virtual router [default: all].
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
}

/// Selection of routes.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct RouteFilter {
    /// Virtual router.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
    /// Include inactive routes, with the reason.
    #[arg(long)]
    pub all: bool,
    /// Show the route to this address.
    #[arg(value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Source address, for routes that match a source.
    #[arg(long, value_name = "ADDRESS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<IpAddr>,
}

/// A virtual router with its counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Router {
    /// Name of the router.
    pub name: String,
    /// Names of the router's interfaces.
    pub interfaces: Vec<String>,
    /// Number of IPv4 and IPv6 routes, including connected routes.
    pub routes: [u64; 2],
    /// Number of neighbours, including unresolved neighbours.
    pub neighbours: u64,
    /// Pools that the router's rules use.
    pub pools: Vec<String>,
    /// Number of translation rules.
    pub nat_rules: u64,
    /// Whether the router's packets are filtered.
    pub filter: bool,
    /// Limits of the router.
    pub limits: RouterLimits,
    /// Weight that applies while a worker is overloaded. Absent if no router has a weight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u8>,
    /// Number of sessions that count towards the limits. Zero if the router has no limits.
    pub limited_sessions: u64,
    /// Packets received on the router's interfaces.
    pub received: u64,
    /// Packets sent on the router's interfaces.
    pub sent: u64,
    /// Dropped packets that were received on the router's interfaces.
    pub dropped: u64,
    /// Dropped packets for each reason. Reasons with a zero count are omitted.
    #[serde(default)]
    pub drops: Vec<Counter>,
    /// Fraction of all accepted packets that were received on this router's interfaces, 0 to 1. Accepted packets are
    /// the packets within shares and rates.
    #[serde(default)]
    pub share: f64,
    /// Number of buffered packets, for example packets queued for address resolution.
    #[serde(default)]
    pub waiting: u64,
    /// Routes of each origin. Origins without routes are omitted.
    #[serde(default)]
    pub origins: Vec<RouteOrigin>,
    /// Number of recursive gateways.
    #[serde(default)]
    pub gateways: u64,
    /// Number of recursive gateways that can't be resolved.
    #[serde(default)]
    pub unreachable_gateways: u64,
    /// Learned routes that were rejected because of the router's route limit.
    #[serde(default)]
    pub refused_routes: u64,
    /// Routes that were rejected, because a route had too many next hops or because the router had too many hop sets.
    #[serde(default)]
    pub refused_next_hops: u64,
    /// Status of the FPM feed, if one is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fpm: Option<RouteFeedStatus>,
    /// Status of the kernel feed, if the namespace's routes are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<RouteFeedStatus>,
    /// Host stack of the router, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<RouterHost>,
}

impl Row for Router {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("ROUTER", |row| row.name.clone()),
        Column::number("ROUTES", |row| grouped(row.routes.iter().sum())),
        Column::number("NEIGHBOURS", |row| grouped(row.neighbours)),
        Column::number("NAT RULES", |row| grouped(row.nat_rules)),
        Column::text("FILTER", |row| if row.filter { "yes" } else { "no" }.into()),
        Column::number("RECEIVED", |row| grouped(row.received)),
        Column::number("SENT", |row| grouped(row.sent)),
        Column::number("DROPPED", |row| grouped(row.dropped)),
        Column::number("WEIGHT", |row| or_dash(row.weight)),
        Column::number("SHARE", |row| format!("{:.1} %", row.share * 100.0)),
        Column::number("KEPT OUT", |row| grouped(row.rejected())),
        Column::text("HOST", |row| or_dash(row.host.as_ref().map(|host| &host.namespace))),
        Column::text("ROUTES FROM", Self::routes_from),
        Column::text("INTERFACES", |row| row.interfaces.join(" ")),
    ];
}

impl Router {
    /// Number of packets that were rejected because of the router's share or rate.
    fn rejected(&self) -> u64 {
        let rejected = ["over-share", "rate-limited"];
        let drops = self.drops.iter().filter(|drops| rejected.contains(&&*drops.name));
        drops.map(|drops| drops.count).sum()
    }

    /// Text with the origins of the router's routes and the status of its feeds.
    fn routes_from(&self) -> String {
        let counts = self.origins.iter().map(|origin| {
            let count = format!("{} {}", grouped(origin.routes), origin.name);
            match origin.stale {
                0 => count,
                stale => format!("{count} ({} stale)", grouped(stale)),
            }
        });
        let counts = counts.collect::<Vec<_>>().join(", ");
        let status = |name: &str, feed: &Option<RouteFeedStatus>| feed.as_ref().map(|feed| feed.summary(name));
        let feeds = [status("fpm", &self.fpm), status("kernel", &self.kernel)];
        let parts = [counts].into_iter().chain(feeds.into_iter().flatten());
        parts.collect::<Vec<_>>().join("; ")
    }
}

/// Routes of one origin, including unused routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RouteOrigin {
    /// Name of the origin: `connected`, `static`, `fpm` or `kernel`.
    pub name: String,
    /// Number of routes.
    pub routes: u64,
    /// Number of stale routes. The daemon has not sent stale routes again since it disconnected.
    pub stale: u64,
}

/// Status of a route feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RouteFeedStatus {
    /// State of the feed: `absent`, `replaying`, `settled` or `removed`.
    pub state: String,
    /// Seconds since the peer connected. In state `removed`, seconds since the peer disconnected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// Listening address. Absent until the socket is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listens: Option<String>,
    /// Connected peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Seconds until routes that the daemon has not sent again are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_for: Option<u64>,
    /// Connections accepted.
    pub connections: u64,
    /// Connections rejected.
    pub refused: u64,
    /// Rejected connections for each reason: not in `peers` or `users`, no data, too many connections, not FPM. Reasons
    /// with a zero count are omitted.
    #[serde(default)]
    pub refused_by: Vec<Counter>,
    /// Connections that were closed because of invalid data, and incomplete dumps of the kernel.
    pub errors: u64,
    /// Routes that were removed because the daemon did not send them again.
    pub aged_out: u64,
    /// Number of received routes, including repeated routes.
    pub offered: u64,
    /// Routes withdrawn.
    pub withdrawn: u64,
    /// Messages or next hops that were ignored, for each reason. Reasons with a zero count are omitted.
    pub not_followed: Vec<Counter>,
}

impl RouteFeedStatus {
    /// The status of the feed as text.
    fn summary(&self, name: &str) -> String {
        let since = self.since.map_or(String::new(), |since| format!(" {}", age(since)));
        let peer = self.peer.as_ref().map_or(String::new(), |peer| format!(" {peer}"));
        let refused = match self.refused {
            0 => String::new(),
            refused => {
                let by = self
                    .refused_by
                    .iter()
                    .map(|why| format!("{} {}", grouped(why.count), why.name));
                format!(", {} refused ({})", grouped(refused), by.collect::<Vec<_>>().join(", "))
            }
        };
        match (&*self.state, &self.listens, self.stale_for) {
            ("absent", Some(listens), _) => format!("{name} listens at {listens}{refused}"),
            ("gone", _, Some(left)) => format!(
                "{name} disconnected{since}, its routes are removed in {}{refused}",
                age(left)
            ),
            (state, ..) => format!("{name}{peer} {state}{since}{refused}"),
        }
    }
}

/// Host stack of a router, on which the router's daemons run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RouterHost {
    /// Name of the host stack's network namespace.
    pub namespace: String,
    /// Packets punted to the host stack, for each class. ARP packets are counted, although Sluice answers them itself.
    pub punted: Vec<Counter>,
    /// Punted packets that the host stack's kernel accepted.
    pub delivered: u64,
    /// Punted packets that the host stack's kernel rejected.
    pub undelivered: u64,
    /// Packets that the host stack has sent.
    pub sent: u64,
    /// Packets from the host stack that were lost because the worker's queue was full.
    pub lost: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feed_is_described_by_what_an_operator_asks_of_its_state() {
        let feed = |state: &str| RouteFeedStatus {
            state: state.into(),
            since: Some(75),
            listens: Some("127.0.0.1:2620".into()),
            peer: None,
            stale_for: None,
            connections: 1,
            refused: 0,
            refused_by: Vec::new(),
            errors: 0,
            aged_out: 0,
            offered: 9,
            withdrawn: 0,
            not_followed: Vec::new(),
        };
        let absent = RouteFeedStatus {
            since: None,
            ..feed("absent")
        };
        let settled = RouteFeedStatus {
            peer: Some("192.0.2.7:40000".into()),
            ..feed("settled")
        };
        let removed = RouteFeedStatus {
            stale_for: Some(45),
            refused: 3,
            refused_by: vec![
                Counter {
                    name: "not-named".into(),
                    count: 2,
                },
                Counter {
                    name: "silent".into(),
                    count: 1,
                },
            ],
            ..feed("gone")
        };
        let texts = [
            ("fpm listens at 127.0.0.1:2620", absent),
            ("fpm 192.0.2.7:40000 settled 1m 15s", settled),
            (
                "fpm disconnected 1m 15s, its routes are removed in 45s, 3 refused (2 not-named, 1 silent)",
                removed,
            ),
        ];
        for (expected, feed) in texts {
            assert_eq!(expected, feed.summary("fpm"));
        }
    }
}

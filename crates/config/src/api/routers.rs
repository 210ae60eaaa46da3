//! `/v1/routers`: virtual routers.

use std::net::IpAddr;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::Counter;
use super::column::{Column, Row, age, grouped, or_dash};
use crate::schema::RouterLimits;

/// Of which router; of all where none is named.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct RouterFilter {
    /// Virtual router [default: all].
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
}

/// Which routes.
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
    /// What its routes are made of, by who offers them; origins that offer none are left out.
    #[serde(default)]
    pub origins: Vec<RouteOrigin>,
    /// Gateways that are found by its routes.
    #[serde(default)]
    pub gateways: u64,
    /// Those of them that lead nowhere.
    #[serde(default)]
    pub unreachable_gateways: u64,
    /// Learned routes that were refused because of the quota.
    #[serde(default)]
    pub refused_routes: u64,
    /// Routes that were refused because of their next hops: too many, or too many different sets of them.
    #[serde(default)]
    pub refused_next_hops: u64,
    /// Who tells its routes by FPM, where somebody may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fpm: Option<RouteTeller>,
    /// The listener to the kernel's table of its namespace, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<RouteTeller>,
    /// Its host, where it has one.
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
        Column::number("KEPT OUT", |row| grouped(row.kept_out())),
        Column::text("HOST", |row| or_dash(row.host.as_ref().map(|host| &host.namespace))),
        Column::text("ROUTES FROM", Self::routes_from),
        Column::text("INTERFACES", |row| row.interfaces.join(" ")),
    ];
}

impl Router {
    /// Packets that its share or its rate kept out.
    fn kept_out(&self) -> u64 {
        let kept_out = ["over-share", "rate-limited"];
        let drops = self.drops.iter().filter(|drops| kept_out.contains(&&*drops.name));
        drops.map(|drops| drops.count).sum()
    }

    /// What its routes are made of, and how it stands with who tells them.
    fn routes_from(&self) -> String {
        let counts = self.origins.iter().map(|origin| {
            let count = format!("{} {}", grouped(origin.routes), origin.name);
            match origin.stale {
                0 => count,
                stale => format!("{count} ({} stale)", grouped(stale)),
            }
        });
        let counts = counts.collect::<Vec<_>>().join(", ");
        let told = |name: &str, teller: &Option<RouteTeller>| teller.as_ref().map(|teller| teller.standing(name));
        let tellers = [told("fpm", &self.fpm), told("kernel", &self.kernel)];
        let parts = [counts].into_iter().chain(tellers.into_iter().flatten());
        parts.collect::<Vec<_>>().join("; ")
    }
}

/// Routes that one origin offers a router, used or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RouteOrigin {
    /// `connected`, `static`, `fpm` or `kernel`.
    pub name: String,
    /// Its routes.
    pub routes: u64,
    /// Those of them that were not told again since the daemon came back, or was gone.
    pub stale: u64,
}

/// How it stands with who tells a router its routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RouteTeller {
    /// `absent`, `replaying`, `settled` or `gone`.
    pub state: String,
    /// For how many seconds it has been there, or gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// Where it is listened for; nowhere as long as that can't be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listens: Option<String>,
    /// Who is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Seconds until routes go that are not told again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_for: Option<u64>,
    /// Connections that were taken.
    pub connections: u64,
    /// Connections that were refused.
    pub refused: u64,
    /// Why they were, what has happened alone: not named in `peers` or `users`, silent, crowded out, no FPM.
    #[serde(default)]
    pub refused_by: Vec<Counter>,
    /// Connections that could not be understood, and listings that were missed in part.
    pub errors: u64,
    /// Routes that were taken back because they were not told again.
    pub aged_out: u64,
    /// Routes that were told, those told before too.
    pub offered: u64,
    /// Routes that were taken back.
    pub withdrawn: u64,
    /// Messages, or next hops of one, that were not followed, by reason; reasons that never came up are left out.
    pub not_followed: Vec<Counter>,
}

impl RouteTeller {
    /// How it stands, for a person.
    fn standing(&self, name: &str) -> String {
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
            ("gone", _, Some(left)) => format!("{name} gone{since}, its routes go in {}{refused}", age(left)),
            (state, ..) => format!("{name}{peer} {state}{since}{refused}"),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feed_is_described_by_what_an_operator_asks_of_its_state() {
        let teller = |state: &str| RouteTeller {
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
        let absent = RouteTeller {
            since: None,
            ..teller("absent")
        };
        let settled = RouteTeller {
            peer: Some("192.0.2.7:40000".into()),
            ..teller("settled")
        };
        let gone = RouteTeller {
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
            ..teller("gone")
        };
        let texts = [
            ("fpm listens at 127.0.0.1:2620", absent),
            ("fpm 192.0.2.7:40000 settled 1m 15s", settled),
            (
                "fpm gone 1m 15s, its routes go in 45s, 3 refused (2 not-named, 1 silent)",
                gone,
            ),
        ];
        for (expected, teller) in texts {
            assert_eq!(expected, teller.standing("fpm"));
        }
    }
}

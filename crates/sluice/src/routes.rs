//! `sluice show routes` and `sluice show routers`: who has which routes, and from whom.

use std::io::Write;
use std::net::IpAddr;

use sluice_daemon::config::api::{Route, RouteFilter, RouteTeller, Router, RouterFilter, Uplink, UplinkTarget, path};

use crate::client::Client;
use crate::columns::{Align, Columns, grouped};
use crate::exit::CommandError;
use crate::show::table;

use Align::{Left, Right};

/// Routes by router and network, what is used first.
pub(crate) fn routes(client: &mut Client, wanted: &RouteFilter, output: &mut dyn Write) -> Result<(), CommandError> {
    let mut rows: Vec<Route> = Vec::new();
    client.list(path::ROUTES, wanted, |items: Vec<Route>| {
        rows.extend(items);
        Ok::<_, CommandError>(true)
    })?;
    rows.sort_by_cached_key(|row| {
        let (network, length) = network(&row.to);
        (
            row.router.clone(),
            row.from.clone(),
            network,
            length,
            !row.used,
            row.distance,
            row.metric,
            row.via,
        )
    });
    let mut titles = vec![
        ("ROUTER", Left),
        ("TO", Left),
        ("VIA", Left),
        ("INTERFACE", Left),
        ("KIND", Left),
        ("DISTANCE", Right),
        ("METRIC", Right),
        ("WEIGHT", Right),
        ("AGE", Right),
    ];
    if wanted.all {
        titles.push(("USED", Left));
    }
    let by_source = rows.iter().any(|row| row.from.is_some());
    if by_source {
        titles.insert(1, ("FROM", Left));
    }
    let mut columns = Columns::new(&titles);
    for row in rows {
        let stale = if row.stale { " (stale)" } else { "" };
        let from = by_source.then(|| row.from.unwrap_or("-".into()));
        let cells = [
            row.to,
            row.via.map(|via| via.to_string()).or(row.action).unwrap_or("-".into()),
            row.interface.unwrap_or("-".into()),
            row.kind + stale,
            row.distance.to_string(),
            row.metric.to_string(),
            row.weight.to_string(),
            age(row.age),
            row.unused.map_or("yes".into(), |why| format!("no: {why}")),
        ];
        columns.row([row.router].into_iter().chain(from).chain(cells));
    }
    Ok(columns.flush(output)?)
}

/// Uplinks, and what their checks say.
pub(crate) fn uplinks(client: &mut Client, output: &mut dyn Write) -> Result<(), CommandError> {
    let titles = [
        ("UPLINK", Left),
        ("ROUTER", Left),
        ("INTERFACE", Left),
        ("VIA", Left),
        ("WEIGHT", Right),
        ("STATE", Left),
        ("SINCE", Right),
        ("CHANGES", Right),
        ("CHECKS", Left),
    ];
    table(client, path::UPLINKS, &(), &titles, output, |row: Uplink| {
        let via: Vec<_> = row.via.iter().map(IpAddr::to_string).collect();
        Some([
            row.name.clone(),
            row.router.clone(),
            row.interface.clone(),
            via.join(" "),
            row.weight.to_string(),
            row.cause.clone().map_or("up".into(), |cause| format!("down: {cause}")),
            age(row.age),
            grouped(row.changes),
            checks(&row),
        ])
    })
}

/// What the checks of an uplink say: by host how many of its requests were answered, and how fast.
fn checks(row: &Uplink) -> String {
    let host = |target: &UplinkTarget| {
        let took = target
            .round_trip
            .map_or(String::new(), |took| format!(" in {:.1} ms", took as f64 / 1_000.0));
        format!(
            "{} {} of {}{took}",
            target.address,
            grouped(target.answered),
            grouped(target.sent)
        )
    };
    let route = row.route.iter().map(|route| format!("route {route}"));
    let all: Vec<_> = row.targets.iter().map(host).chain(route).collect();
    if all.is_empty() { "link".into() } else { all.join(", ") }
}

/// A network as it sorts.
fn network(text: &str) -> (Option<IpAddr>, Option<u8>) {
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    (address.parse().ok(), length.parse().ok())
}

/// Seconds in the two units that say most.
pub(crate) fn age(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let largest = UNITS.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(3);
    let (unit, name) = UNITS[largest];
    let next = UNITS.get(largest + 1).map(|(next, name)| (seconds % unit / next, name));
    match next {
        Some((rest, next)) if rest > 0 => format!("{}{name} {rest}{next}", seconds / unit),
        _ => format!("{}{name}", seconds / unit),
    }
}

/// What a router's routes are made of, and how it stands with who tells them.
fn origins(row: &Router) -> String {
    let each = row.origins.iter().map(|origin| {
        let count = format!("{} {}", grouped(origin.routes), origin.name);
        match origin.stale {
            0 => count,
            stale => format!("{count} ({} stale)", grouped(stale)),
        }
    });
    let told = |name: &str, teller: &Option<RouteTeller>| teller.as_ref().map(|teller| standing(name, teller));
    let tellers = [told("fpm", &row.fpm), told("kernel", &row.kernel)];
    let counts = each.collect::<Vec<_>>().join(", ");
    [counts]
        .into_iter()
        .chain(tellers.into_iter().flatten())
        .collect::<Vec<_>>()
        .join("; ")
}

fn standing(name: &str, teller: &RouteTeller) -> String {
    let since = teller.since.map_or(String::new(), |since| format!(" {}", age(since)));
    let peer = teller.peer.as_ref().map_or(String::new(), |peer| format!(" {peer}"));
    let refused = match teller.refused {
        0 => String::new(),
        refused => {
            let by = teller
                .refused_by
                .iter()
                .map(|why| format!("{} {}", grouped(why.count), why.name));
            format!(", {} refused ({})", grouped(refused), by.collect::<Vec<_>>().join(", "))
        }
    };
    match (&*teller.state, &teller.listens, teller.stale_for) {
        ("absent", Some(listens), _) => format!("{name} listens at {listens}{refused}"),
        ("gone", _, Some(left)) => format!("{name} gone{since}, its routes go in {}{refused}", age(left)),
        (state, ..) => format!("{name}{peer} {state}{since}{refused}"),
    }
}

/// Virtual routers.
pub(crate) fn routers(client: &mut Client, wanted: &RouterFilter, output: &mut dyn Write) -> Result<(), CommandError> {
    let titles = [
        ("ROUTER", Left),
        ("ROUTES", Right),
        ("NEIGHBOURS", Right),
        ("NAT RULES", Right),
        ("FILTER", Left),
        ("RECEIVED", Right),
        ("SENT", Right),
        ("DROPPED", Right),
        ("WEIGHT", Right),
        ("SHARE", Right),
        ("KEPT OUT", Right),
        ("HOST", Left),
        ("ROUTES FROM", Left),
        ("INTERFACES", Left),
    ];
    table(client, path::ROUTERS, wanted, &titles, output, |row: Router| {
        let [four, six] = row.routes;
        let kept_out = row
            .drops
            .iter()
            .filter(|drops| ["over-share", "rate-limited"].contains(&&*drops.name));
        let kept_out = kept_out.map(|drops| drops.count).sum();
        let origins = origins(&row);
        Some([
            row.name,
            grouped(four + six),
            grouped(row.neighbours),
            grouped(row.nat_rules),
            if row.filter { "yes" } else { "no" }.into(),
            grouped(row.received),
            grouped(row.sent),
            grouped(row.dropped),
            row.weight.map_or("-".into(), |weight| weight.to_string()),
            format!("{:.1} %", row.share * 100.0),
            grouped(kept_out),
            row.host.map_or("-".into(), |host| host.namespace),
            origins,
            row.interfaces.join(" "),
        ])
    })
}

#[cfg(test)]
mod tests {
    use sluice_daemon::config::api::Counter;

    use super::*;

    #[test]
    fn age_is_told_in_two_units() {
        assert_eq!(
            ["0s", "59s", "1m", "1m 1s", "2h 5m", "3d", "3d 1h"],
            [0, 59, 60, 61, 7_500, 259_200, 262_900].map(age).each_ref()
        );
    }

    #[test]
    fn teller_is_told_by_what_an_operator_wants_to_know_of_its_state() {
        let teller = |state: &str| RouteTeller {
            state: state.into(),
            since: Some(75),
            listens: Some("127.0.0.1:2620".into()),
            peer: None,
            stale_for: None,
            connections: 1,
            refused: 0,
            refused_by: Vec::new(),
            broken: 0,
            swept: 0,
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
            assert_eq!(expected, standing("fpm", &teller));
        }
    }

    #[test]
    fn networks_sort_by_number_and_family() {
        let mut all = ["2001:db8::/32", "10.0.0.0/24", "9.0.0.0/8", "10.0.0.0/8", "::/0"];
        all.sort_by_key(|text| network(text));
        assert_eq!(["9.0.0.0/8", "10.0.0.0/8", "10.0.0.0/24", "::/0", "2001:db8::/32"], all);
    }
}

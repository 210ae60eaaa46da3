//! Tests that the routes of generated valid configurations work: the next hop of each route is a host on a link, and
//! the router can resolve the address of this host. An independent interpretation of the configuration determines that
//! host.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

use ipnet::IpNet;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sluice_config::memory::EntryBytes;
use sluice_config::{Machine, check};
use sluice_daemon::lowering::{interfaces, routes};
use sluice_engine::snapshot::Snapshot;
use sluice_route::rib::Rib;
use sluice_route::rib::{ResolvedSet, Sink};
use sluice_route::{DropKind, NextHop, Prefix};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Possible addresses of each interface, for each family.
const V4: [[&[&str]; 2]; 4] = [
    [&["10.0.0.1/24"], &[]],
    [&["192.0.2.0/31"], &["203.0.113.6/32"]],
    [&["203.0.113.5/32"], &[]],
    [&["198.18.0.1/15", "203.0.113.7/32"], &[]],
];
const V6: [[&[&str]; 2]; 4] = [
    [&["2001:db8:1::1/64"], &[]],
    [&[], &[]],
    [&["2001:db8:5::5/128"], &[]],
    [&["2001:db8:3::1/127"], &[]],
];

/// Selected addresses of an interface, for each family.
type Choice = (usize, usize);

fn addresses(index: usize, (four, six): Choice) -> impl Iterator<Item = &'static str> {
    V4[index][four].iter().chain(V6[index][six]).copied()
}

const DESTINATIONS: [&str; 10] = [
    "0.0.0.0/0",
    "10.1.0.0/16",
    "10.0.0.0/8",
    "10.0.0.0/24",
    "198.51.100.1/32",
    "198.51.100.0/24",
    "::/0",
    "2001:db8:9::/48",
    "2001:db8::/32",
    "2001:db8:7::1/128",
];

const GATEWAYS: [&str; 13] = [
    "10.0.0.2",
    "10.0.0.1",
    "10.0.0.255",
    "192.0.2.1",
    "198.51.100.1",
    "198.51.100.9",
    "10.1.0.1",
    "2001:db8:1::2",
    "2001:db8:7::1",
    "2001:db8:9::1",
    "2001:db8:5::5",
    "fe80::1",
    "198.19.255.255",
];

#[derive(Clone, Debug)]
struct Written {
    to: &'static str,
    via: Option<&'static str>,
    interface: Option<usize>,
    recursive: bool,
    onlink: bool,
    action: bool,
    distance: u8,
}

fn written() -> impl Strategy<Value = Written> {
    let gateway = prop::sample::select(&GATEWAYS[..]);
    let shape = prop_oneof![
        // The kinds of routes: by gateway, by interface, by both, by an on-link gateway, by a recursive gateway, and
        // unreachable.
        4 => Just((true, false, false, false, false)),
        4 => Just((false, true, false, false, false)),
        3 => Just((true, true, false, false, false)),
        3 => Just((true, true, false, true, false)),
        6 => Just((true, false, true, false, false)),
        1 => Just((false, false, false, false, true)),
        1 => any::<(bool, bool, bool, bool, bool)>(),
    ];
    let to = prop::sample::select(&DESTINATIONS[..]);
    (to, gateway, 0..NAMES.len(), shape, 1..3_u8).prop_map(|(to, gateway, interface, shape, distance)| {
        let (has_gateway, has_interface, recursive, onlink, action) = shape;
        Written {
            to,
            via: has_gateway.then_some(gateway),
            interface: has_interface.then_some(interface),
            recursive,
            onlink,
            action,
            distance,
        }
    })
}

fn text(links: &[Choice], routes: &[Written]) -> String {
    let mut text = String::new();
    for (index, (name, choice)) in NAMES.iter().zip(links).enumerate() {
        let addresses: Vec<_> = addresses(index, *choice).collect();
        writeln!(
            text,
            "[interfaces.{name}]\ndevice = \"null:\"\naddresses = {addresses:?}"
        )
        .unwrap();
    }
    for route in routes {
        writeln!(text, "[[routes]]\nto = \"{}\"\ndistance = {}", route.to, route.distance).unwrap();
        route
            .via
            .iter()
            .for_each(|via| writeln!(text, "via = \"{via}\"").unwrap());
        let named = route.interface.map(|index| NAMES[index]);
        named
            .iter()
            .for_each(|name| writeln!(text, "interface = \"{name}\"").unwrap());
        for (is_set, line) in [
            (route.recursive, "recursive = true"),
            (route.onlink, "onlink = true"),
            (route.action, "action = \"unreachable\""),
        ] {
            if is_set {
                writeln!(text, "{line}").unwrap();
            }
        }
    }
    text
}

/// An independent interpretation of the configuration, used as the reference.
struct Oracle<'t> {
    links: &'t [Choice],
    routes: &'t [Written],
}

impl Oracle<'_> {
    fn addresses(&self, index: usize) -> impl Iterator<Item = IpNet> {
        addresses(index, self.links[index]).map(|text| text.parse().unwrap())
    }

    fn own(&self) -> impl Iterator<Item = IpNet> {
        (0..self.links.len()).flat_map(|index| self.addresses(index))
    }

    /// Whether an address can belong to a host on an interface's link, so that the router can resolve it.
    fn may_answer(&self, index: usize, address: IpAddr) -> bool {
        let is_broadcast = |net: IpNet| match net {
            IpNet::V4(net) if net.prefix_len() < 31 => {
                [net.network(), net.broadcast()].map(IpAddr::V4).contains(&address)
            }
            _ => false,
        };
        let is_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let attached = self.addresses(index).any(|net| net.contains(&address));
        let onto = self.routes.iter().any(|route| {
            let net: IpNet = route.to.parse().unwrap();
            let is_onto = route.via.is_none() && !route.action && net.contains(&address);
            let is_onlink = route.onlink && route.via.is_some_and(|via| via.parse() == Ok(address));
            route.interface == Some(index) && (is_onto || is_onlink)
        });
        let can_ask = address.is_ipv6() || self.own().any(|own| own.addr().is_ipv4());
        let taken = self.own().any(|own| own.addr() == address) || self.addresses(index).any(is_broadcast);
        can_ask && !taken && (is_link_local || attached || onto)
    }
}

#[derive(Default)]
struct Table(BTreeMap<Prefix, Vec<NextHop>>);

impl Sink for Table {
    fn set(&mut self, prefix: Prefix, set: &ResolvedSet) {
        self.0
            .insert(prefix, set.members().iter().map(|(hop, _)| *hop).collect());
    }

    fn remove(&mut self, prefix: Prefix) {
        self.0.remove(&prefix);
    }
}

impl Table {
    fn find(&self, address: IpAddr) -> Option<&[NextHop]> {
        let covering = self.0.iter().filter(|(prefix, _)| prefix.contains(address.into()));
        let longest = covering.max_by_key(|(prefix, _)| prefix.length());
        longest.map(|(_, hops)| hops.as_slice())
    }
}

/// Number of routes of each kind in the valid configurations.
#[derive(Default)]
struct Seen(BTreeMap<&'static str, usize>);

impl Seen {
    fn count(&mut self, kind: &'static str, holds: bool) {
        *self.0.entry(kind).or_default() += usize::from(holds);
    }
}

fn holds(links: &[Choice], written: &[Written], seen: &mut Seen) -> Result<(), TestCaseError> {
    let machine = Machine {
        cores: vec![0, 1],
        memory: 1 << 40,
        entry: EntryBytes::default(),
    };
    let text = text(links, written);
    let config = match check("test", &text, &machine) {
        Ok(checked) => checked.config.into_inner(),
        Err(diagnosis) => {
            // The diagnosis of a rejected configuration has a place and a hint.
            let rendered = diagnosis.to_string();
            prop_assert!(
                rendered
                    .lines()
                    .all(|line| line.starts_with("test:") && line.ends_with(')')),
                "{rendered}"
            );
            seen.count("refused", true);
            return Ok(());
        }
    };
    seen.count("accepted", !written.is_empty());
    let macs = [0, 1, 2, 3].map(|last| [2, 0, 0, 0, 0, last]);
    let policy = Snapshot::new(NAMES.len(), interfaces(&config, &macs));
    let sets = routes(&config, &policy.interfaces);
    prop_assert!(sets.is_ok(), "{:?}\n{text}", sets.err());
    let (mut rib, mut table) = (Rib::new(Default::default(), [1, 2]), Table::default());
    for (prefix, offer) in sets.unwrap()[0].iter() {
        prop_assert!(rib.offer(prefix, &offer, 0).is_ok());
    }
    rib.publish(&mut table);
    let oracle = Oracle { links, routes: written };
    for route in written {
        let net: IpNet = route.to.parse().unwrap();
        let destination = net.hosts().nth(6).or(net.hosts().next()).unwrap();
        let hops = table.find(destination);
        prop_assert!(
            hops.is_some_and(|hops| !hops.is_empty()),
            "nothing leads to {destination}\n{text}"
        );
        for hop in hops.unwrap() {
            let (index, asked) = match *hop {
                NextHop::Gateway { interface, address } => (interface, IpAddr::from(address)),
                NextHop::Attached(interface) => (interface, destination),
                NextHop::Local(_) => {
                    prop_assert!(
                        oracle.own().any(|own| own.addr() == destination),
                        "{destination}\n{text}"
                    );
                    continue;
                }
                NextHop::Drop(refusal) => {
                    let is_written = written.iter().any(|route| route.action);
                    prop_assert!(
                        is_written && refusal == DropKind::Unreachable,
                        "{destination}: {refusal:?}\n{text}"
                    );
                    continue;
                }
            };
            prop_assert!(
                oracle.may_answer(index.into(), asked),
                "{destination}: who answers for {asked}?\n{text}"
            );
            if let IpAddr::V4(asked) = asked {
                let source = policy.source4(&policy.interfaces[usize::from(index)], asked.to_bits());
                prop_assert!(
                    source.is_some(),
                    "{destination}: nothing to ask for {asked} with\n{text}"
                );
            }
        }
        seen.count("onlink", route.onlink);
        seen.count("recursive", route.recursive);
        seen.count("onto a link", route.via.is_none() && !route.action);
        seen.count(
            "IPv4 by IPv6",
            route.to.contains('.') && route.via.is_some_and(|via| via.contains(':')),
        );
    }
    Ok(())
}

#[test]
fn every_route_of_a_valid_configuration_leads_to_somebody_who_can_be_asked_for() {
    let cases = Config {
        cases: 4_000,
        ..Config::default()
    };
    let links = prop::collection::vec((0..2_usize, 0..2_usize), NAMES.len());
    let strategy = (links, prop::collection::vec(written(), 1..4));
    let seen = std::cell::RefCell::new(Seen::default());
    let result = TestRunner::new(cases).run(&strategy, |(links, written)| {
        holds(&links, &written, &mut seen.borrow_mut())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    let seen = seen.into_inner().0;
    for kind in [
        "accepted",
        "refused",
        "onlink",
        "recursive",
        "onto a link",
        "IPv4 by IPv6",
    ] {
        assert!(seen.get(kind).is_some_and(|count| *count >= 100), "{kind}: {seen:?}");
    }
}

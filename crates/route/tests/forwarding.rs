//! Tests of routes from addresses and configuration, of the FIB, and of forwarding decisions.

use std::sync::Arc;

use proptest::prelude::*;
use sluice_route::fib::FibError;
use sluice_route::neighbour::{NeighbourMessage, NeighbourWriter, Neighbours, Timing};
use sluice_route::{
    Address, DropKind, Fib, HopSet, Interface, NextHop, NextHopWriter, Prefix, Reason, Ribs, Route, RouteError,
    RouteSet, SourceValidation, Via, validate_source,
};
use sluice_table::prefix::Quiescence;

fn address(text: &str) -> Address {
    Address::from(text.parse::<std::net::IpAddr>().unwrap())
}

fn prefix(text: &str) -> Prefix {
    let (bits, length) = text.split_once('/').unwrap();
    Prefix::new(address(bits), length.parse().unwrap())
}

fn interface(index: u16, addresses: &[&str]) -> Interface {
    let addresses = addresses.iter().map(|text| {
        let (bits, length) = text.split_once('/').unwrap();
        (address(bits), length.parse().unwrap())
    });
    Interface {
        index,
        addresses: addresses.collect(),
    }
}

fn by(to: &str, gateway: &str) -> Route {
    let via = Via::Gateway {
        address: address(gateway),
        interface: None,
    };
    Route::new(prefix(to), via)
}

fn two() -> Vec<Interface> {
    vec![
        interface(0, &["10.0.0.1/24", "2001:db8:1::1/64", "fe80::1/64"]),
        interface(1, &["192.0.2.2/30", "2001:db8:2::1/64"]),
    ]
}

struct Router {
    ribs: Ribs,
    fib: Fib,
    writer: NextHopWriter,
    neighbours: Arc<Neighbours>,
    quiescence: Arc<Quiescence>,
}

impl Router {
    fn new(routes: &RouteSet) -> Self {
        let mut router = Self::with(64, 1);
        router.apply(std::slice::from_ref(routes)).unwrap();
        router
    }

    fn with(next_hops: usize, readers: usize) -> Self {
        let quiescence = Arc::new(Quiescence::new(readers));
        let neighbours = Arc::new(Neighbours::new(16, [3, 4]));
        let writer = NextHopWriter::new(next_hops, neighbours.clone(), quiescence.clone());
        Self {
            ribs: Ribs::new(Default::default(), [1, 2]),
            fib: Fib::new(quiescence.clone()),
            writer,
            neighbours,
            quiescence,
        }
    }

    /// Applies the configured routes of all routers.
    fn apply(&mut self, wanted: &[RouteSet]) -> Result<(), FibError> {
        self.ribs
            .apply_all(wanted, |_| false, &mut self.fib, &mut self.writer, 0)
    }

    fn to(&self, destination: &str) -> NextHop {
        let found = self.fib.reader().find(0, address(destination));
        self.writer.table().get(found.map_or(u32::MAX, |found| found.value))
    }
}

#[test]
fn interface_addresses_become_local_attached_and_broadcast_routes() {
    let router = Router::new(&RouteSet::new(&two(), &[by("0.0.0.0/0", "192.0.2.1")]).unwrap());
    assert_eq!(NextHop::Local(0), router.to("10.0.0.1"));
    assert_eq!(NextHop::Attached(0), router.to("10.0.0.77"));
    assert_eq!(NextHop::Drop(DropKind::DirectedBroadcast), router.to("10.0.0.255"));
    assert_eq!(NextHop::Drop(DropKind::DirectedBroadcast), router.to("10.0.0.0"));
    assert_eq!(
        NextHop::Gateway {
            interface: 1,
            address: address("192.0.2.1")
        },
        router.to("198.51.100.9")
    );
    assert_eq!(NextHop::Local(1), router.to("2001:db8:2::1"));
    assert_eq!(NextHop::Attached(1), router.to("2001:db8:2::ffff"));
    assert_eq!(NextHop::Drop(DropKind::NoRoute), router.to("2001:db8:3::1"));
}

#[test]
fn rfc3927_s2_7_no_default_route_leads_to_link_local_addresses_but_one_of_their_own_does() {
    let default = by("0.0.0.0/0", "192.0.2.1");
    let router = Router::new(&RouteSet::new(&two(), &[default]).unwrap());
    assert_eq!(NextHop::Drop(DropKind::LinkLocal), router.to("169.254.7.7"));
    assert_eq!(
        Some(NextHop::Gateway {
            interface: 1,
            address: address("192.0.2.1")
        }),
        Some(router.to("169.253.7.7"))
    );
    let table = router.writer.table();
    let validated = |mode| validate_source(mode, 0, address("169.254.7.7"), 0, &router.fib.reader(), &table);
    assert_eq!(Err(Reason::LinkLocal), validated(SourceValidation::Loose));
    assert_eq!(Err(Reason::LinkLocal), validated(SourceValidation::Strict));
    assert_eq!(Ok(()), validated(SourceValidation::Off));

    let routed = Router::new(&RouteSet::new(&two(), &[by("169.254.0.0/16", "192.0.2.1")]).unwrap());
    assert!(matches!(
        routed.to("169.254.7.7"),
        NextHop::Gateway { interface: 1, .. }
    ));
    let tunnel = [interface(0, &["169.254.9.1/30"])];
    let attached = Router::new(&RouteSet::new(&tunnel, &[]).unwrap());
    assert_eq!(NextHop::Attached(0), attached.to("169.254.9.2"));
    assert_eq!(NextHop::Drop(DropKind::LinkLocal), attached.to("169.254.9.5"));
}

#[test]
fn refused_routes_are_named() {
    let gateway = |interface| Via::Gateway {
        address: address("fe80::9"),
        interface,
    };
    let route = |to, via| Route::new(prefix(to), via);
    let cases = [
        (by("198.51.100.0/24", "10.0.1.9"), "is not in an attached network"),
        (
            by("198.51.100.0/24", "10.0.0.1"),
            "is an address of this virtual router itself",
        ),
        (by("198.51.100.0/24", "10.0.0.255"), "is not in an attached network"),
        (by("2001:db8:9::/48", "10.0.0.9"), "is an IPv4 address"),
        (by("10.0.0.0/24", "192.0.2.1"), "is configured twice"),
        (
            route("2001:db8:9::/48", gateway(None)),
            "so the route needs an interface",
        ),
        (route("2001:db8:9::/48", gateway(Some(7))), "does not belong"),
        (route("2001:db8:9::/48", Via::Attached(7)), "does not belong"),
    ];
    for (route, expected) in cases {
        let error = RouteSet::new(&two(), &[route]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let linked = RouteSet::new(&two(), &[route("2001:db8:9::/48", gateway(Some(1)))]).unwrap();
    assert_eq!(
        NextHop::Gateway {
            interface: 1,
            address: address("fe80::9")
        },
        Router::new(&linked).to("2001:db8:9::1")
    );
}

#[test]
fn refused_addresses_are_named() {
    let refused = |interfaces: &[Interface]| RouteSet::new(interfaces, &[]).unwrap_err();
    assert_eq!(
        RouteError::NotAHost(address("224.0.0.1")),
        refused(&[interface(0, &["224.0.0.1/24"])])
    );
    assert_eq!(
        RouteError::IsBroadcast(address("10.0.0.0")),
        refused(&[interface(0, &["10.0.0.0/24"])])
    );
    assert_eq!(
        RouteError::AddressTwice(address("10.0.0.1")),
        refused(&[interface(0, &["10.0.0.1/24"]), interface(1, &["10.0.0.1/25"])])
    );
    assert_eq!(
        RouteError::NetworkTwice(prefix("10.0.0.0/24")),
        refused(&[interface(0, &["10.0.0.1/24"]), interface(1, &["10.0.0.2/24"])])
    );
    // A /31 network has two host addresses (RFC 3021).
    assert!(RouteSet::new(&[interface(0, &["10.0.0.0/31"])], &[]).is_ok());
}

#[test]
fn applied_difference_touches_only_what_differs() {
    let first = [
        by("198.51.100.0/24", "10.0.0.9"),
        by("203.0.113.0/24", "10.0.0.9"),
        by("0.0.0.0/0", "192.0.2.1"),
    ];
    let blackhole = Route::new(prefix("203.0.113.0/24"), Via::Refused(DropKind::Blackhole));
    let second = [
        by("198.51.100.0/24", "10.0.0.9"),
        blackhole,
        by("198.18.0.0/15", "10.0.0.9"),
    ];
    let mut router = Router::new(&RouteSet::new(&two(), &first).unwrap());
    router.fib.take_changed();
    let second = [RouteSet::new(&two(), &second).unwrap()];
    router.apply(&second).unwrap();
    assert_eq!(NextHop::Drop(DropKind::Blackhole), router.to("203.0.113.1"));
    assert_eq!(NextHop::Drop(DropKind::NoRoute), router.to("8.8.8.8"));
    // The removal of the default route marks every destination of its family as changed, including destinations with
    // unchanged routes.
    let changed = router.fib.take_changed();
    assert!(
        ["203.0.113.1", "198.51.100.1", "8.8.8.8"]
            .map(address)
            .iter()
            .all(|to| changed.may_affect(0, *to))
    );
    assert!(!changed.may_affect(0, address("2001:db8::1")));
    router.apply(&second).unwrap();
    assert!(!router.fib.has_changed());
}

#[test]
fn exhausted_next_hops_refuse_the_change_whole() {
    let mut router = Router::with(8, 0);
    router.apply(&[RouteSet::new(&two(), &[]).unwrap()]).unwrap();
    let before = (router.fib.len(0), router.writer.len());
    let many: Vec<_> = (10..30)
        .map(|n| by(&format!("198.51.{n}.0/24"), &format!("10.0.0.{n}")))
        .collect();
    let many = RouteSet::new(&two(), &many).unwrap();
    assert!(router.apply(std::slice::from_ref(&many)).is_err());
    assert!(router.apply(&[RouteSet::default(), many]).is_err());
    assert_eq!(before, (router.fib.len(0), router.writer.len()));
    // Next hops of a multipath route and recursive gateways on a link count as next hops.
    let ways: Vec<_> = (10..30)
        .map(|n| by("198.51.100.0/24", &format!("10.0.0.{n}")))
        .collect();
    let found: Vec<_> = (10..30)
        .map(|n| {
            let gateway = address(&format!("10.0.0.{n}"));
            Route::new(prefix(&format!("198.51.{n}.0/24")), Via::Recursive(gateway))
        })
        .collect();
    for many in [ways, found] {
        assert!(router.apply(&[RouteSet::new(&two(), &many).unwrap()]).is_err());
        assert_eq!(before, (router.fib.len(0), router.writer.len()));
    }
}

#[test]
fn routers_have_routes_of_their_own() {
    let mut router = Router::new(&RouteSet::default());
    let sets = ["10.0.0.9", "192.0.2.1"].map(|via| RouteSet::new(&two(), &[by("198.51.100.0/24", via)]).unwrap());
    router.apply(&sets).unwrap();
    assert_eq!([sets[0].len(); 2], [0, 1].map(|number| router.fib.len(number)));
    let reader = router.fib.reader();
    let to = |number| {
        let found = reader.find(number, address("198.51.100.7")).map(|found| found.value);
        router.writer.table().get(found.unwrap_or(u32::MAX)).interface()
    };
    assert_eq!([Some(0), Some(1), None], [to(0), to(1), to(2)]);
    // The removal of the second router does not affect the first.
    router.fib.take_changed();
    router.apply(&sets[..1]).unwrap();
    assert_eq!(sets[0].len(), router.fib.len(0));
    let changed = router.fib.take_changed();
    assert_eq!(
        [false, true],
        [0, 1].map(|router| changed.may_affect(router, address("198.51.100.7")))
    );
    assert!(router.fib.is_empty(1));
}

#[test]
fn next_hop_slot_waits_for_readers_and_gives_its_neighbour_back() {
    let set = RouteSet::new(&two(), &[by("0.0.0.0/0", "192.0.2.1")]).unwrap();
    let mut router = Router::new(&set);
    let mut writer = NeighbourWriter::new(router.neighbours.clone(), Timing::default(), 0);
    let (gateway, mac) = (address("192.0.2.1"), [2, 0, 0, 0, 0, 1]);
    writer.receive(
        1,
        gateway,
        Some(mac),
        NeighbourMessage::Solicitation,
        true,
        0,
        &mut |_| {},
    );
    let neighbour = router.neighbours.find(1, gateway).unwrap();
    let table = router.writer.table();
    let index = router.fib.get(0, prefix("0.0.0.0/0")).unwrap();
    assert_eq!(None, table.adjacency(index));
    assert!(table.bind(index, neighbour, &router.neighbours));
    assert!(!table.bind(index, neighbour, &router.neighbours));
    assert_eq!(Some((1, neighbour)), table.adjacency(index));
    assert_eq!(1, router.neighbours.uses(neighbour));
    router.quiescence.online(0);
    router.apply(&[RouteSet::new(&two(), &[]).unwrap()]).unwrap();
    router.writer.reclaim();
    assert_eq!(1, router.neighbours.uses(neighbour));
    router.quiescence.pass(0);
    router.writer.reclaim();
    assert_eq!(0, router.neighbours.uses(neighbour));
}

#[test]
fn source_validation_by_mode_accepts_and_refuses() {
    let routes = [by("0.0.0.0/0", "192.0.2.1"), by("198.51.100.0/24", "10.0.0.9")];
    let router = Router::new(&RouteSet::new(&two(), &routes).unwrap());
    let (reader, table) = (router.fib.reader(), router.writer.table());
    let valid = |mode, source, arrival| validate_source(mode, 0, address(source), arrival, &reader, &table).is_ok();
    use SourceValidation::{Loose, Off, Strict};
    let cases = [
        // Columns: source, arrival interface, valid in strict mode, valid in loose mode.
        ("10.0.0.7", 0, true, true),
        ("10.0.0.7", 1, false, true),
        ("198.51.100.7", 0, true, true),
        ("198.51.100.7", 1, false, true),
        ("8.8.8.8", 1, true, true),
        ("8.8.8.8", 0, false, true),
        ("10.0.0.1", 0, false, false),
        ("10.0.0.255", 0, false, false),
        ("2001:db8:3::1", 0, false, false),
        ("fe80::77", 1, true, true),
    ];
    for (source, arrival, strict, loose) in cases {
        assert_eq!(strict, valid(Strict, source, arrival), "strict {source} by {arrival}");
        assert_eq!(loose, valid(Loose, source, arrival), "loose {source} by {arrival}");
        assert!(valid(Off, source, arrival));
    }
}

#[test]
fn source_address_towards_a_neighbour_is_of_its_network() {
    let interface = interface(0, &["10.0.0.1/24", "10.0.1.1/24", "fe80::1/64", "2001:db8::1/64"]);
    let towards = |to: &str| interface.source_for(address(to)).unwrap();
    assert_eq!(address("10.0.1.1"), towards("10.0.1.9"));
    assert_eq!(address("10.0.0.1"), towards("8.8.8.8"));
    assert_eq!(address("2001:db8::1"), towards("2001:db8:9::1"));
    assert_eq!(address("fe80::1"), towards("fe80::9"));
}

#[test]
fn reason_names_are_distinct_and_explained() {
    let names: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(Reason::ALL.len(), names.len());
    assert!(Reason::ALL.iter().all(|reason| reason.help().ends_with('.')));
}

proptest! {
    #[test]
    fn applied_random_sets_leave_exactly_the_wanted_routes(
        sets in proptest::collection::vec(proptest::collection::btree_map((0u8..4, 8u8..=32), 2u8..9, 0..20), 1..6)
    ) {
        let mut router = Router::new(&RouteSet::default());
        for set in sets {
            let routes: std::collections::BTreeMap<_, _> = set
                .into_iter()
                .map(|((high, length), host)| {
                    (Prefix::new(Address::V4(0x2000_0000 | (high as u32) << 14), length), Address::V4(0x0a00_0000 + host as u32))
                })
                .collect();
            let configured: Vec<_> = routes
                .iter()
                .map(|(prefix, gateway)| Route::new(*prefix, Via::Gateway { address: *gateway, interface: None }))
                .collect();
            let wanted = RouteSet::new(&two(), &configured).unwrap();
            router.apply(std::slice::from_ref(&wanted)).unwrap();
            let table = router.writer.table();
            let live: Vec<_> = router.fib.iter(0).map(|(prefix, index)| (prefix, table.get(index))).collect();
            let expected = wanted.iter().map(|(prefix, _)| prefix).zip(wanted.next_hops());
            let expected: Vec<_> = expected.map(|(prefix, set)| (prefix, set.members()[0].0)).collect();
            prop_assert_eq!(expected, live);
        }
        router.apply(&[RouteSet::default()]).unwrap();
        prop_assert!(router.fib.is_empty(0));
        prop_assert!(router.writer.is_empty());
    }
}

/// A set of gateways on the inside link. Each member consists of the last byte of a gateway's address and a weight.
fn set(members: &[(u8, u8)]) -> HopSet {
    let gateway = |host: u8| NextHop::Gateway {
        interface: 0,
        address: Address::V4(0x0a00_0000 | u32::from(host)),
    };
    let members: Vec<_> = members.iter().map(|&(host, weight)| (gateway(host), weight)).collect();
    HopSet::new(&members).unwrap()
}

/// Hashes of 10,000 flows.
fn flows() -> impl Iterator<Item = u64> {
    let hasher = sluice_table::hash::Hasher::new([7, 9]);
    (0..10_000u32).map(move |flow| {
        let tuple = sluice_wire::Tuple4 {
            source: 0x0a00_0000 | flow,
            destination: 0xc633_6401,
            source_port: 1024 + (flow % 50_000) as u16,
            destination_port: 443,
            context: 0,
        };
        hasher.one4(&sluice_wire::FlowKey4::new(tuple, 6))
    })
}

#[test]
fn flows_are_spread_over_a_set_by_its_weights() {
    let mut router = Router::new(&RouteSet::default());
    for weights in [vec![1; 2], vec![1, 2, 5], vec![1; 10], vec![3, 1, 1, 1, 1, 1]] {
        let members: Vec<_> = (10..).zip(&weights).map(|(host, weight)| (host, *weight)).collect();
        let index = router.writer.acquire_set(&set(&members)).unwrap();
        let table = router.writer.table();
        let mut flows_of = std::collections::HashMap::new();
        for hash in flows() {
            *flows_of.entry(table.get(table.choose(index, |_| hash))).or_insert(0u32) += 1;
        }
        let all: u32 = weights.iter().map(|weight| u32::from(*weight)).sum();
        for (next_hop, weight) in set(&members).members() {
            let (expected, found) = (10_000 * u32::from(*weight) / all, flows_of[next_hop]);
            assert!(
                expected.abs_diff(found) <= expected / 10,
                "{weights:?}: {found} for {expected}"
            );
        }
    }
}

#[test]
fn member_that_goes_or_comes_moves_no_more_flows_than_it_has() {
    let mut router = Router::new(&RouteSet::default());
    let to = prefix("198.51.100.0/24");
    let (four, three) = (
        set(&[(10, 1), (11, 1), (12, 1), (13, 1)]),
        set(&[(10, 1), (11, 1), (13, 1)]),
    );
    let taken = |router: &Router| -> Vec<NextHop> {
        let (table, index) = (router.writer.table(), router.fib.get(0, to).unwrap());
        flows().map(|hash| table.get(table.choose(index, |_| hash))).collect()
    };
    let gone = four.members()[2].0;
    router.fib.insert_set(0, to, &four, &mut router.writer).unwrap();
    let before = taken(&router);
    assert_eq!(before, taken(&router));
    router.fib.insert_set(0, to, &three, &mut router.writer).unwrap();
    let without = taken(&router);
    for (old, new) in before.iter().zip(&without) {
        assert!(old == new || *old == gone, "{old:?} was moved to {new:?}");
        assert_ne!(gone, *new);
    }
    router.fib.insert_set(0, to, &four, &mut router.writer).unwrap();
    for (old, new) in without.iter().zip(&taken(&router)) {
        assert!(old == new || *new == gone, "{old:?} was moved to {new:?}");
    }
    router.fib.remove(0, to, &mut router.writer).unwrap();
    router.writer.reclaim();
    router.writer.reclaim();
    assert!(router.writer.is_empty());
}

#[test]
fn source_behind_a_set_is_valid_by_any_of_its_interfaces() {
    let mut router = Router::new(&RouteSet::default());
    let gateway = |interface, text| NextHop::Gateway {
        interface,
        address: address(text),
    };
    let both = HopSet::new(&[(gateway(0, "10.0.0.9"), 1), (gateway(1, "192.0.2.1"), 200)]).unwrap();
    router
        .fib
        .insert_set(0, prefix("198.51.100.0/24"), &both, &mut router.writer)
        .unwrap();
    let (reader, table) = (router.fib.reader(), router.writer.table());
    let by = |mode, arrival| validate_source(mode, 0, address("198.51.100.7"), arrival, &reader, &table).is_ok();
    assert_eq!(
        [true, true, false],
        [0, 1, 2].map(|arrival| by(SourceValidation::Strict, arrival))
    );
    assert!(by(SourceValidation::Loose, 2));
}

#[test]
fn sets_that_are_none_are_refused() {
    let gateway = |host: u32| NextHop::Gateway {
        interface: 0,
        address: Address::V4(0x0a00_0000 | host),
    };
    let many: Vec<_> = (0..65).map(|host| (gateway(host), 1)).collect();
    assert!(HopSet::new(&[]).is_err());
    assert!(HopSet::new(&many).is_err());
    assert!(HopSet::new(&many[..64]).is_ok());
    assert!(HopSet::new(&[(gateway(1), 0)]).is_err());
    // A set of equal members is stored as one next hop instead of a set.
    let twice = HopSet::new(&[(gateway(1), 200), (gateway(1), 100)]).unwrap();
    assert_eq!(&[(gateway(1), 255)], twice.members());
}

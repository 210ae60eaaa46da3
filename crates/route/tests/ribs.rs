//! Tests of the FIB with routes of several routers and origins.

use std::sync::Arc;

use sluice_route::neighbour::Neighbours;
use sluice_route::rib::{Offer, OfferedNextHop, Origin, Target, WeightedNextHop};
use sluice_route::{
    Address, DropKind, Fib, Interface, NextHop, NextHopWriter, Prefix, Ribs, Route, RouteError, RouteSet, RouterIndex,
    Via,
};
use sluice_table::prefix::Quiescence;

fn address(text: &str) -> Address {
    Address::from(text.parse::<std::net::IpAddr>().unwrap())
}

fn prefix(text: &str) -> Prefix {
    let (bits, length) = text.split_once('/').unwrap();
    Prefix::new(address(bits), length.parse().unwrap())
}

fn to(gateway: &str) -> NextHop {
    let address = address(gateway);
    NextHop::Gateway { interface: 0, address }
}

/// Routes of a router with 10.0.0.1/24 on interface 0 and these static routes.
fn routes(configured: &[(&str, &str)]) -> RouteSet {
    let interface = Interface {
        index: 0,
        addresses: vec![(address("10.0.0.1"), 24)],
    };
    let route = |&(to, gateway): &(&str, &str)| {
        let via = Via::Gateway {
            address: address(gateway),
            interface: None,
        };
        Route::new(prefix(to), via)
    };
    let configured: Vec<Route> = configured.iter().map(route).collect();
    RouteSet::new(&[interface], &configured).unwrap()
}

struct World {
    ribs: Ribs,
    fib: Fib,
    writer: NextHopWriter,
}

impl World {
    fn new(next_hops: usize) -> Self {
        let quiescence = Arc::new(Quiescence::new(1));
        let neighbours = Arc::new(Neighbours::new(16, [3, 4]));
        Self {
            ribs: Ribs::new(Default::default(), [1, 2]),
            fib: Fib::new(quiescence.clone()),
            writer: NextHopWriter::new(next_hops, neighbours, quiescence),
        }
    }

    fn apply(&mut self, wanted: &[RouteSet]) -> bool {
        let applied = self
            .ribs
            .apply_all(wanted, |_| false, &mut self.fib, &mut self.writer, 0);
        applied.is_ok()
    }

    fn learn(&mut self, router: RouterIndex, to: &str, gateways: &[(&str, u8)]) -> bool {
        let hop = |&(gateway, weight): &(&str, u8)| WeightedNextHop {
            weight,
            ..WeightedNextHop::new(OfferedNextHop::Via(address(gateway)))
        };
        let hops: Vec<WeightedNextHop> = gateways.iter().map(hop).collect();
        let offer = Offer {
            origin: Origin::Fpm,
            protocol: 186,
            distance: 20,
            metric: 0,
            target: Target::Hops(&hops),
        };
        let learn = |rib: &mut sluice_route::rib::Rib| rib.offer(prefix(to), &offer, 0).unwrap();
        self.ribs.change(router, &mut self.fib, &mut self.writer, learn)
    }

    fn to(&self, router: RouterIndex, to: &str) -> Option<NextHop> {
        let index = self.fib.get(router, prefix(to))?;
        Some(self.writer.table().get(index))
    }
}

#[test]
fn learned_routes_stay_when_another_configuration_is_applied() {
    let mut world = World::new(64);
    assert!(world.apply(&[routes(&[("10.7.0.0/16", "10.0.0.7")]), routes(&[])]));
    assert!(world.learn(0, "10.9.0.0/16", &[("10.0.0.9", 1)]));
    assert!(world.learn(0, "10.7.0.0/16", &[("10.0.0.9", 1)]));
    assert_eq!(Some(to("10.0.0.9")), world.to(0, "10.9.0.0/16"));
    assert_eq!(Some(to("10.0.0.7")), world.to(0, "10.7.0.0/16"));
    assert_eq!(None, world.to(1, "10.9.0.0/16"));
    assert!(world.apply(&[routes(&[("10.8.0.0/16", "10.0.0.8")]), routes(&[])]));
    assert_eq!(Some(to("10.0.0.9")), world.to(0, "10.9.0.0/16"));
    assert_eq!(Some(to("10.0.0.8")), world.to(0, "10.8.0.0/16"));
    // After the removal of the configured route, the learned route is used.
    assert_eq!(Some(to("10.0.0.9")), world.to(0, "10.7.0.0/16"));
    assert_eq!(Some(NextHop::Local(0)), world.to(0, "10.0.0.1/32"));
    assert_eq!(Some(NextHop::Attached(0)), world.to(0, "10.0.0.0/24"));
}

#[test]
fn router_that_is_gone_has_no_routes_left() {
    let mut world = World::new(64);
    assert!(world.apply(&[routes(&[]), routes(&[])]));
    world.learn(1, "10.9.0.0/16", &[("10.0.0.9", 1)]);
    assert!(world.apply(&[routes(&[])]));
    assert_eq!(0, world.fib.len(1));
    assert!(!world.learn(1, "10.9.0.0/16", &[("10.0.0.9", 1)]));
    assert!(world.apply(&[routes(&[]), routes(&[])]));
    assert_eq!(None, world.to(1, "10.9.0.0/16"));
}

#[test]
fn router_that_has_the_number_of_another_has_none_of_its_learned_routes() {
    let mut world = World::new(64);
    let wanted = [routes(&[]), routes(&[("10.7.0.0/16", "10.0.0.7")])];
    assert!(world.apply(&wanted));
    world.learn(0, "10.9.0.0/16", &[("10.0.0.9", 1)]);
    world.learn(1, "10.9.0.0/16", &[("10.0.0.9", 1)]);
    let applied = world
        .ribs
        .apply_all(&wanted, |router| router == 1, &mut world.fib, &mut world.writer, 0);
    assert_eq!(Ok(()), applied);
    assert_eq!(Some(to("10.0.0.9")), world.to(0, "10.9.0.0/16"));
    assert_eq!(None, world.to(1, "10.9.0.0/16"));
    assert_eq!(Some(to("10.0.0.7")), world.to(1, "10.7.0.0/16"));
}

#[test]
fn configuration_that_needs_more_next_hops_than_there_are_changes_nothing() {
    let mut world = World::new(6);
    assert!(world.apply(&[routes(&[("10.7.0.0/16", "10.0.0.7")])]));
    let before = world.fib.len(0);
    let many = [
        ("10.8.0.0/16", "10.0.0.8"),
        ("10.9.0.0/16", "10.0.0.9"),
        ("10.6.0.0/16", "10.0.0.6"),
    ];
    assert!(!world.apply(&[routes(&many)]));
    assert_eq!(
        (before, Some(to("10.0.0.7"))),
        (world.fib.len(0), world.to(0, "10.7.0.0/16"))
    );
    // The daemon's routes count against the quota.
    world.learn(0, "10.9.0.0/16", &[("10.0.0.9", 1)]);
    world.learn(0, "10.5.0.0/16", &[("10.0.0.5", 1)]);
    assert_eq!((1, None), (world.ribs.fib_full(), world.to(0, "10.5.0.0/16")));
}

#[test]
fn interface_that_goes_down_takes_its_routes_along() {
    let mut world = World::new(64);
    assert!(world.apply(&[routes(&[("10.7.0.0/16", "10.0.0.7")])]));
    world.ribs.set_link((0, 0, false), &mut world.fib, &mut world.writer);
    assert_eq!(None, world.to(0, "10.7.0.0/16"));
    assert_eq!(Some(NextHop::Local(0)), world.to(0, "10.0.0.1/32"));
    // The link remains down when the configuration changes.
    assert!(world.apply(&[routes(&[("10.8.0.0/16", "10.0.0.8")])]));
    assert_eq!(None, world.to(0, "10.8.0.0/16"));
    world.ribs.set_link((0, 0, true), &mut world.fib, &mut world.writer);
    assert_eq!(Some(to("10.0.0.8")), world.to(0, "10.8.0.0/16"));
    assert_eq!(None, world.to(0, "10.7.0.0/16"));
}

/// Routes of a router with 10.0.0.1/24 on interface 0, 10.1.0.1/24 on interface 1, and these configured routes.
fn ways(ways: &[Route]) -> Result<RouteSet, RouteError> {
    let link = |(index, own): (u16, &str)| Interface {
        index,
        addresses: vec![(address(own), 24)],
    };
    RouteSet::new(&[(0, "10.0.0.1"), (1, "10.1.0.1")].map(link), ways)
}

fn by(destinations: &str, gateway: &str) -> Route {
    let via = Via::Gateway {
        address: address(gateway),
        interface: None,
    };
    Route::new(prefix(destinations), via)
}

fn recursive(destinations: &str, gateway: &str) -> Route {
    Route::new(prefix(destinations), Via::Recursive(address(gateway)))
}

impl World {
    fn apply_ways(&mut self, routes: &[Route]) {
        assert!(self.apply(&[ways(routes).unwrap()]));
    }

    /// Next hops of a route, each with its number of hash buckets.
    fn shares(&self, to: &str) -> Vec<(NextHop, usize)> {
        let Some(index) = self.fib.get(0, prefix(to)) else {
            return Vec::new();
        };
        let table = self.writer.table();
        let mut shares = std::collections::BTreeMap::new();
        for bucket in 0..1024_u64 {
            let taken = table.get(table.choose(index, |_| bucket << 32));
            *shares.entry(taken).or_default() += 1;
        }
        shares.into_iter().collect()
    }
}

fn on(interface: u16, gateway: &str) -> NextHop {
    let address = address(gateway);
    NextHop::Gateway { interface, address }
}

#[test]
fn ways_of_one_route_have_flows_by_weight_and_those_that_go_leave_theirs_to_the_others() {
    let mut world = World::new(64);
    let heavy = Route {
        weight: 3,
        ..by("10.9.0.0/16", "10.1.0.9")
    };
    world.apply_ways(&[by("10.9.0.0/16", "10.0.0.9"), heavy]);
    let both = vec![(on(0, "10.0.0.9"), 256), (on(1, "10.1.0.9"), 768)];
    assert_eq!(both, world.shares("10.9.0.0/16"));
    // The order of next hops in the configuration is irrelevant.
    let index = world.fib.get(0, prefix("10.9.0.0/16"));
    world.apply_ways(&[heavy, by("10.9.0.0/16", "10.0.0.9")]);
    assert_eq!(index, world.fib.get(0, prefix("10.9.0.0/16")));
    world.ribs.set_link((0, 1, false), &mut world.fib, &mut world.writer);
    assert_eq!(vec![(on(0, "10.0.0.9"), 1024)], world.shares("10.9.0.0/16"));
    world.ribs.set_link((0, 1, true), &mut world.fib, &mut world.writer);
    assert_eq!(both, world.shares("10.9.0.0/16"));
    world.apply_ways(&[heavy]);
    assert_eq!(vec![(on(1, "10.1.0.9"), 1024)], world.shares("10.9.0.0/16"));
}

#[test]
fn floating_route_is_used_while_the_one_before_it_leads_nowhere() {
    let mut world = World::new(64);
    let floating = Route {
        distance: 250,
        ..by("10.9.0.0/16", "10.1.0.9")
    };
    let refused = Route {
        distance: 251,
        ..Route::new(prefix("10.9.0.0/16"), Via::Refused(DropKind::Blackhole))
    };
    world.apply_ways(&[refused, floating, by("10.9.0.0/16", "10.0.0.9")]);
    assert_eq!(Some(on(0, "10.0.0.9")), world.to(0, "10.9.0.0/16"));
    world.ribs.set_link((0, 0, false), &mut world.fib, &mut world.writer);
    assert_eq!(Some(on(1, "10.1.0.9")), world.to(0, "10.9.0.0/16"));
    world.ribs.set_link((0, 1, false), &mut world.fib, &mut world.writer);
    assert_eq!(Some(NextHop::Drop(DropKind::Blackhole)), world.to(0, "10.9.0.0/16"));
    world.ribs.set_link((0, 1, true), &mut world.fib, &mut world.writer);
    // The daemon's route has a distance between the distances of the two configured routes.
    assert!(world.learn(0, "10.9.0.0/16", &[("10.1.0.7", 1)]));
    assert_eq!(Some(on(1, "10.1.0.7")), world.to(0, "10.9.0.0/16"));
}

#[test]
fn rfc3927_s2_7_route_to_link_local_addresses_leaves_them_to_no_default_route_while_its_link_is_down() {
    let mut world = World::new(64);
    world.apply_ways(&[by("0.0.0.0/0", "10.1.0.9"), by("169.254.0.0/16", "10.0.0.9")]);
    assert_eq!(Some(on(0, "10.0.0.9")), world.to(0, "169.254.0.0/16"));
    world.ribs.set_link((0, 0, false), &mut world.fib, &mut world.writer);
    assert_eq!(Some(NextHop::Drop(DropKind::LinkLocal)), world.to(0, "169.254.0.0/16"));
}

#[test]
fn attached_network_has_another_way_while_its_link_is_down() {
    let mut world = World::new(64);
    let backup = Route {
        distance: 2,
        ..by("10.0.0.0/24", "10.1.0.9")
    };
    world.apply_ways(&[backup]);
    assert_eq!(Some(NextHop::Attached(0)), world.to(0, "10.0.0.0/24"));
    world.ribs.set_link((0, 0, false), &mut world.fib, &mut world.writer);
    assert_eq!(Some(on(1, "10.1.0.9")), world.to(0, "10.0.0.0/24"));
    assert_eq!(Some(NextHop::Local(0)), world.to(0, "10.0.0.1/32"));
}

#[test]
fn recursive_route_follows_the_routes_to_its_gateway_and_never_the_default_route_or_itself() {
    let mut world = World::new(64);
    let routes = |gateway| {
        [
            by("0.0.0.0/0", "10.0.0.254"),
            recursive("10.9.0.0/16", "172.16.0.1"),
            recursive("10.8.0.0/16", "10.8.0.1"),
            recursive("10.7.0.0/16", "10.0.0.7"),
            by("172.16.0.0/24", gateway),
        ]
    };
    world.apply_ways(&routes("10.0.0.9"));
    assert_eq!(Some(on(0, "10.0.0.9")), world.to(0, "10.9.0.0/16"));
    assert_eq!(Some(on(0, "10.0.0.7")), world.to(0, "10.7.0.0/16"));
    assert_eq!(None, world.to(0, "10.8.0.0/16"));
    world.apply_ways(&routes("10.1.0.9"));
    assert_eq!(Some(on(1, "10.1.0.9")), world.to(0, "10.9.0.0/16"));
    world.ribs.set_link((0, 1, false), &mut world.fib, &mut world.writer);
    assert_eq!(None, world.to(0, "10.9.0.0/16"));
    // A learned route to the gateway also makes the gateway reachable.
    assert!(world.learn(0, "172.16.0.1/32", &[("10.0.0.7", 1)]));
    assert_eq!(Some(on(0, "10.0.0.7")), world.to(0, "10.9.0.0/16"));
}

#[test]
fn ways_that_contradict_each_other_are_refused() {
    let nowhere = Route::new(prefix("10.9.0.0/16"), Via::Refused(DropKind::Prohibit));
    let next_hop = by("10.9.0.0/16", "10.0.0.9");
    let heavy = Route { weight: 9, ..next_hop };
    let twice = Err(RouteError::RouteTwice(prefix("10.9.0.0/16")));
    for refused in [
        [next_hop, heavy],
        [next_hop, nowhere],
        [nowhere, next_hop],
        [nowhere, nowhere],
    ] {
        assert_eq!(twice, ways(&refused));
    }
    let gateways = (2..67).map(|last| by("10.9.0.0/16", &format!("10.0.0.{last}")));
    let gateways: Vec<Route> = gateways.collect();
    assert_eq!(Err(RouteError::TooManyNextHops(prefix("10.9.0.0/16"))), ways(&gateways));
    assert!(ways(&gateways[..64]).is_ok());
    let own = recursive("10.9.0.0/16", "10.1.0.1");
    assert!(matches!(ways(&[own]), Err(RouteError::GatewayIsLocal { .. })));
}

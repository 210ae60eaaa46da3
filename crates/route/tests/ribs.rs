//! Routes of several routers and origins in the forwarding table.

use std::sync::Arc;

use sluice_route::neighbour::Neighbours;
use sluice_route::rib::{Hop, Offer, Origin, Target, Way};
use sluice_route::{Address, Fib, Interface, NextHop, NextHopKeeper, Prefix, Ribs, Route, RouteSet, RouterIndex, Via};
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

/// 10.0.0.1/24 on interface 0, and static routes.
fn routes(configured: &[(&str, &str)]) -> RouteSet {
    let interface = Interface {
        index: 0,
        addresses: vec![(address("10.0.0.1"), 24)],
    };
    let route = |&(to, gateway): &(&str, &str)| Route {
        prefix: prefix(to),
        via: Via::Gateway {
            address: address(gateway),
            interface: None,
        },
    };
    let configured: Vec<Route> = configured.iter().map(route).collect();
    RouteSet::new(&[interface], &configured).unwrap()
}

struct World {
    ribs: Ribs,
    fib: Fib,
    keeper: NextHopKeeper,
}

impl World {
    fn new(next_hops: usize) -> Self {
        let quiescence = Arc::new(Quiescence::new(1));
        let neighbours = Arc::new(Neighbours::new(16, [3, 4]));
        Self {
            ribs: Ribs::new(Default::default(), [1, 2]),
            fib: Fib::new(quiescence.clone()),
            keeper: NextHopKeeper::new(next_hops, neighbours, quiescence),
        }
    }

    fn apply(&mut self, wanted: &[RouteSet]) -> bool {
        let applied = self
            .ribs
            .apply_all(wanted, |_| false, &mut self.fib, &mut self.keeper, 0);
        applied.is_ok()
    }

    fn learn(&mut self, router: RouterIndex, to: &str, gateways: &[(&str, u8)]) -> bool {
        let hop = |&(gateway, weight): &(&str, u8)| Hop {
            way: Way::Via(address(gateway)),
            weight,
        };
        let hops: Vec<Hop> = gateways.iter().map(hop).collect();
        let offer = Offer {
            origin: Origin::Fpm,
            protocol: 186,
            distance: 20,
            metric: 0,
            target: Target::Hops(&hops),
        };
        let learn = |rib: &mut sluice_route::rib::Rib| rib.offer(prefix(to), &offer, 0).unwrap();
        self.ribs.change(router, &mut self.fib, &mut self.keeper, learn)
    }

    fn to(&self, router: RouterIndex, to: &str) -> Option<NextHop> {
        let index = self.fib.get(router, prefix(to))?;
        Some(self.keeper.table().get(index))
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
    // What was configured is gone, and what was learned takes its place.
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
        .apply_all(&wanted, |router| router == 1, &mut world.fib, &mut world.keeper, 0);
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
    // A daemon's are counted.
    world.learn(0, "10.9.0.0/16", &[("10.0.0.9", 1)]);
    world.learn(0, "10.5.0.0/16", &[("10.0.0.5", 1)]);
    assert_eq!((1, None), (world.ribs.unable(), world.to(0, "10.5.0.0/16")));
}

#[test]
fn interface_that_goes_down_takes_its_routes_along() {
    let mut world = World::new(64);
    assert!(world.apply(&[routes(&[("10.7.0.0/16", "10.0.0.7")])]));
    world.ribs.set_link((0, 0, false), &mut world.fib, &mut world.keeper);
    assert_eq!(None, world.to(0, "10.7.0.0/16"));
    assert_eq!(Some(NextHop::Local(0)), world.to(0, "10.0.0.1/32"));
    // It stays down whatever is configured meanwhile.
    assert!(world.apply(&[routes(&[("10.8.0.0/16", "10.0.0.8")])]));
    assert_eq!(None, world.to(0, "10.8.0.0/16"));
    world.ribs.set_link((0, 0, true), &mut world.fib, &mut world.keeper);
    assert_eq!(Some(to("10.0.0.8")), world.to(0, "10.8.0.0/16"));
    assert_eq!(None, world.to(0, "10.7.0.0/16"));
}

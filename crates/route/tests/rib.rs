//! Tests of offers from several origins, of route selection, and of recursive gateways.

use std::collections::BTreeMap;

use sluice_route::rib::{
    Group, Offer, OfferedNextHop, Origin, ResolvedSet, Rib, RibError, Settings, Sink, Target, WeightedNextHop,
};
use sluice_route::{Address, DropKind, NextHop, Prefix, SECOND};

fn address(text: &str) -> Address {
    Address::from(text.parse::<std::net::IpAddr>().unwrap())
}

fn prefix(text: &str) -> Prefix {
    let (bits, length) = text.split_once('/').unwrap();
    Prefix::new(address(bits), length.parse().unwrap())
}

fn via(gateway: &str) -> WeightedNextHop {
    WeightedNextHop::new(OfferedNextHop::Via(address(gateway)))
}

fn on(interface: u16, gateway: &str) -> WeightedNextHop {
    let address = address(gateway);
    WeightedNextHop::new(OfferedNextHop::Gateway { interface, address })
}

fn to(interface: u16, gateway: &str) -> NextHop {
    let address = address(gateway);
    NextHop::Gateway { interface, address }
}

/// Sink that stores the published routes and counts changes.
#[derive(Default)]
struct Table {
    routes: BTreeMap<Prefix, Vec<(NextHop, u8)>>,
    told: Vec<String>,
}

impl Sink for Table {
    fn set(&mut self, prefix: Prefix, set: &ResolvedSet) {
        self.told.push(format!("set {prefix}"));
        self.routes.insert(prefix, set.members().to_vec());
    }

    fn remove(&mut self, prefix: Prefix) {
        self.told.push(format!("remove {prefix}"));
        assert!(self.routes.remove(&prefix).is_some(), "{prefix} was not there");
    }
}

struct World {
    rib: Rib,
    table: Table,
}

impl World {
    /// Creates a router with 10.0.0.1/24 on interface 0, and 192.0.2.1/24 on interface 1.
    fn new(settings: Settings) -> Self {
        let mut world = Self {
            rib: Rib::new(settings, [1, 2]),
            table: Table::default(),
        };
        for (interface, own, network) in [(0, "10.0.0.1", "10.0.0.0/24"), (1, "192.0.2.1", "192.0.2.0/24")] {
            let own = format!("{own}/32");
            world
                .offer(
                    &own,
                    Origin::Connected,
                    0,
                    &[WeightedNextHop::new(OfferedNextHop::Local(interface))],
                )
                .unwrap();
            world
                .offer(
                    network,
                    Origin::Connected,
                    0,
                    &[WeightedNextHop::new(OfferedNextHop::Attached(interface))],
                )
                .unwrap();
        }
        world.publish();
        world
    }

    fn offer(&mut self, to: &str, origin: Origin, distance: u8, hops: &[WeightedNextHop]) -> Result<(), RibError> {
        self.target(to, origin, (distance, 0), Target::Hops(hops))
    }

    fn target(&mut self, to: &str, origin: Origin, rank: (u8, u32), target: Target<'_>) -> Result<(), RibError> {
        let offer = Offer {
            origin,
            protocol: 0,
            distance: rank.0,
            metric: rank.1,
            target,
        };
        self.rib.offer(prefix(to), &offer, 7 * SECOND)
    }

    fn publish(&mut self) -> Vec<String> {
        self.rib.publish(&mut self.table);
        std::mem::take(&mut self.table.told)
    }

    fn to(&mut self, to: &str) -> Option<Vec<(NextHop, u8)>> {
        self.publish();
        self.table.routes.get(&prefix(to)).cloned()
    }
}

fn world() -> World {
    World::new(Settings::default())
}

#[test]
fn static_routes_of_several_distances_stand_behind_each_other() {
    let mut world = world();
    let hops = |interface: u16| [on(interface, "10.0.0.2")];
    for (distance, interface) in [(200, 2), (1, 0), (20, 1)] {
        world
            .offer("10.9.0.0/16", Origin::Static, distance, &hops(interface))
            .unwrap();
    }
    world.offer("10.9.0.0/16", Origin::Fpm, 110, &hops(3)).unwrap();
    let mut next = |interface: u16| {
        assert_eq!(Some(vec![(to(interface, "10.0.0.2"), 1)]), world.to("10.9.0.0/16"));
        world.rib.set_link(interface, false);
    };
    [0, 1, 3, 2].into_iter().for_each(&mut next);
    assert_eq!(None, world.to("10.9.0.0/16"));
    world.rib.set_link(1, true);
    assert_eq!(Some(vec![(to(1, "10.0.0.2"), 1)]), world.to("10.9.0.0/16"));
    // A repeated offer replaces only the earlier offer with the same distance.
    world.offer("10.9.0.0/16", Origin::Static, 20, &hops(4)).unwrap();
    assert_eq!(Some(vec![(to(4, "10.0.0.2"), 1)]), world.to("10.9.0.0/16"));
    assert_eq!(4, world.rib.get(prefix("10.9.0.0/16")).len());
    assert!(world.rib.withdraw(prefix("10.9.0.0/16"), Origin::Static, 20));
    assert!(!world.rib.withdraw(prefix("10.9.0.0/16"), Origin::Static, 20));
    assert_eq!(None, world.to("10.9.0.0/16"));
}

#[test]
fn lowest_distance_then_metric_is_used_and_the_next_one_when_it_goes() {
    let mut world = world();
    let hops = |last: u8| [on(0, &format!("10.0.0.{last}"))];
    world.offer("10.9.0.0/16", Origin::Fpm, 110, &hops(2)).unwrap();
    world.offer("10.9.0.0/16", Origin::Static, 1, &hops(3)).unwrap();
    world
        .target("10.9.0.0/16", Origin::Kernel, (110, 20), Target::Hops(&hops(4)))
        .unwrap();
    world
        .target("10.9.0.0/16", Origin::Kernel, (110, 10), Target::Hops(&hops(5)))
        .unwrap();
    assert_eq!(Some(vec![(to(0, "10.0.0.3"), 1)]), world.to("10.9.0.0/16"));
    let shown = world.rib.get(prefix("10.9.0.0/16"));
    assert_eq!(4, shown.len());
    assert_eq!(
        (Origin::Static, true, 7 * SECOND),
        (shown[0].origin, shown[0].selected, shown[0].since)
    );
    assert!(shown[1..].iter().all(|shown| !shown.selected));

    assert!(world.rib.withdraw(prefix("10.9.0.0/16"), Origin::Static, 1));
    assert_eq!(Some(vec![(to(0, "10.0.0.2"), 1)]), world.to("10.9.0.0/16"));
    assert!(world.rib.withdraw(prefix("10.9.0.0/16"), Origin::Fpm, 0));
    assert_eq!(Some(vec![(to(0, "10.0.0.5"), 1)]), world.to("10.9.0.0/16"));
    assert!(world.rib.withdraw(prefix("10.9.0.0/16"), Origin::Kernel, 10));
    assert!(!world.rib.withdraw(prefix("10.9.0.0/16"), Origin::Kernel, 10));
    assert!(world.rib.withdraw(prefix("10.9.0.0/16"), Origin::Kernel, 20));
    assert_eq!(vec!["remove 10.9.0.0/16"], world.publish());
}

#[test]
fn route_withdrawn_and_offered_again_is_one_change_and_offered_as_it_is_none() {
    let mut world = world();
    world
        .offer("10.9.0.0/16", Origin::Fpm, 20, &[on(0, "10.0.0.2")])
        .unwrap();
    assert_eq!(vec!["set 10.9.0.0/16"], world.publish());
    world.rib.withdraw(prefix("10.9.0.0/16"), Origin::Fpm, 0);
    world
        .offer("10.9.0.0/16", Origin::Fpm, 20, &[on(0, "10.0.0.3")])
        .unwrap();
    assert_eq!(vec!["set 10.9.0.0/16"], world.publish());
    world
        .offer("10.9.0.0/16", Origin::Fpm, 20, &[on(0, "10.0.0.3")])
        .unwrap();
    assert_eq!(Vec::<String>::new(), world.publish());
    world
        .offer("10.8.0.0/16", Origin::Fpm, 20, &[on(0, "10.0.0.3")])
        .unwrap();
    world.rib.withdraw(prefix("10.8.0.0/16"), Origin::Fpm, 0);
    assert_eq!(Vec::<String>::new(), world.publish());
}

#[test]
fn what_leads_nowhere_any_more_is_removed_after_what_takes_its_place() {
    let mut world = world();
    world
        .offer("10.9.0.0/16", Origin::Fpm, 20, &[on(0, "10.0.0.2")])
        .unwrap();
    world.publish();
    world.rib.withdraw(prefix("10.9.0.0/16"), Origin::Fpm, 0);
    world
        .offer("10.9.0.0/17", Origin::Fpm, 20, &[on(0, "10.0.0.2")])
        .unwrap();
    world
        .offer("10.9.128.0/17", Origin::Fpm, 20, &[on(0, "10.0.0.2")])
        .unwrap();
    assert_eq!(
        vec!["set 10.9.0.0/17", "set 10.9.128.0/17", "remove 10.9.0.0/16"],
        world.publish()
    );
}

#[test]
fn gateway_behind_other_routes_is_found_and_followed() {
    let mut world = world();
    world
        .offer("203.0.113.0/24", Origin::Fpm, 200, &[via("172.16.0.1")])
        .unwrap();
    assert_eq!(None, world.to("203.0.113.0/24"));
    assert_eq!(1, world.rib.counts().unreachable);
    world
        .offer("172.16.0.0/16", Origin::Static, 1, &[via("172.17.0.1")])
        .unwrap();
    world
        .offer("172.17.0.0/16", Origin::Static, 1, &[via("10.0.0.2")])
        .unwrap();
    assert_eq!(Some(vec![(to(0, "10.0.0.2"), 1)]), world.to("203.0.113.0/24"));
    // Add a more specific route to the gateway of the tested route.
    world
        .offer("172.17.0.1/32", Origin::Fpm, 110, &[on(1, "192.0.2.9")])
        .unwrap();
    assert_eq!(Some(vec![(to(1, "192.0.2.9"), 1)]), world.to("203.0.113.0/24"));
    world.rib.withdraw(prefix("172.17.0.1/32"), Origin::Fpm, 0);
    assert_eq!(Some(vec![(to(0, "10.0.0.2"), 1)]), world.to("203.0.113.0/24"));
    world.rib.withdraw(prefix("172.17.0.0/16"), Origin::Static, 1);
    assert_eq!(None, world.to("203.0.113.0/24"));
    assert_eq!(None, world.to("172.16.0.0/16"));
}

#[test]
fn gateway_is_not_found_by_the_default_route_unless_that_is_allowed() {
    for by_default_route in [false, true] {
        let mut world = World::new(Settings {
            by_default_route,
            ..Settings::default()
        });
        world.offer("0.0.0.0/0", Origin::Static, 1, &[via("10.0.0.2")]).unwrap();
        world
            .offer("203.0.113.0/24", Origin::Fpm, 200, &[via("172.16.0.1")])
            .unwrap();
        let expected = by_default_route.then(|| vec![(to(0, "10.0.0.2"), 1)]);
        assert_eq!(expected, world.to("203.0.113.0/24"));
    }
}

#[test]
fn routes_through_each_other_and_ways_that_are_too_long_lead_nowhere() {
    let mut world = world();
    world
        .offer("172.16.0.0/16", Origin::Static, 1, &[via("10.0.0.2")])
        .unwrap();
    world
        .offer("172.17.0.0/16", Origin::Static, 1, &[via("172.16.0.1")])
        .unwrap();
    assert_eq!(Some(vec![(to(0, "10.0.0.2"), 1)]), world.to("172.17.0.0/16"));
    world
        .offer("172.16.0.0/16", Origin::Static, 1, &[via("172.17.0.1")])
        .unwrap();
    assert_eq!(None, world.to("172.17.0.0/16"));
    assert_eq!(None, world.to("172.16.0.0/16"));
    assert_eq!(2, world.rib.counts().loops);
    world
        .offer("172.16.0.0/16", Origin::Static, 1, &[via("10.0.0.2")])
        .unwrap();
    assert_eq!(Some(vec![(to(0, "10.0.0.2"), 1)]), world.to("172.17.0.0/16"));
    assert_eq!(0, world.rib.counts().loops);

    for step in 20..30 {
        let (to, by) = (format!("172.{step}.0.0/16"), format!("172.{}.0.1", step - 1));
        let by = if step == 20 { "10.0.0.2" } else { &by };
        world.offer(&to, Origin::Static, 1, &[via(by)]).unwrap();
    }
    assert_eq!(Some(vec![(to(0, "10.0.0.2"), 1)]), world.to("172.27.0.0/16"));
    assert_eq!(None, world.to("172.28.0.0/16"));
}

#[test]
fn route_to_nowhere_takes_what_goes_through_it_along() {
    let mut world = world();
    let hole = [WeightedNextHop::new(OfferedNextHop::Drop(DropKind::Blackhole))];
    world.offer("192.0.2.66/32", Origin::Static, 1, &hole).unwrap();
    world.offer("172.16.66.66/32", Origin::Static, 1, &hole).unwrap();
    world
        .offer("203.0.113.7/32", Origin::Fpm, 200, &[via("172.16.66.66")])
        .unwrap();
    let nowhere = Some(vec![(NextHop::Drop(DropKind::Blackhole), 1)]);
    assert_eq!(nowhere, world.to("203.0.113.7/32"));
}

#[test]
fn interface_that_goes_down_withdraws_routes_over_it_until_it_is_up() {
    let mut world = world();
    world
        .offer("10.9.0.0/16", Origin::Static, 1, &[via("10.0.0.2")])
        .unwrap();
    world
        .offer("10.9.0.0/16", Origin::Fpm, 110, &[on(1, "192.0.2.2")])
        .unwrap();
    world
        .offer(
            "10.8.0.0/16",
            Origin::Fpm,
            110,
            &[on(0, "10.0.0.2"), on(1, "192.0.2.2")],
        )
        .unwrap();
    assert_eq!(Some(vec![(to(0, "10.0.0.2"), 1)]), world.to("10.9.0.0/16"));
    world.rib.set_link(0, false);
    assert_eq!(Some(vec![(to(1, "192.0.2.2"), 1)]), world.to("10.9.0.0/16"));
    assert_eq!(Some(vec![(to(1, "192.0.2.2"), 1)]), world.to("10.8.0.0/16"));
    assert_eq!(None, world.to("10.0.0.0/24"));
    world.rib.set_link(0, true);
    assert_eq!(Some(vec![(to(0, "10.0.0.2"), 1)]), world.to("10.9.0.0/16"));
    assert_eq!(
        Some(vec![(to(0, "10.0.0.2"), 1), (to(1, "192.0.2.2"), 1)]),
        world.to("10.8.0.0/16")
    );
    assert_eq!(Some(vec![(NextHop::Attached(0), 1)]), world.to("10.0.0.0/24"));
}

#[test]
fn own_and_broadcast_addresses_are_no_gateways() {
    let mut world = world();
    let broadcast = [WeightedNextHop::new(OfferedNextHop::Drop(DropKind::DirectedBroadcast))];
    world.offer("10.0.0.255/32", Origin::Connected, 0, &broadcast).unwrap();
    for gateway in ["10.0.0.1", "10.0.0.255"] {
        world.offer("10.9.0.0/16", Origin::Fpm, 20, &[via(gateway)]).unwrap();
        assert_eq!(None, world.to("10.9.0.0/16"), "{gateway}");
    }
}

#[test]
fn shares_of_a_next_hop_are_divided_where_it_leads_on_to_several() {
    let mut world = world();
    world
        .offer(
            "172.16.0.0/16",
            Origin::Static,
            1,
            &[on(0, "10.0.0.2"), on(0, "10.0.0.3")],
        )
        .unwrap();
    let mut hops = [via("172.16.0.1"), on(1, "192.0.2.9")];
    hops[0].weight = 3;
    world.offer("203.0.113.0/24", Origin::Fpm, 200, &hops).unwrap();
    let expected = vec![(to(0, "10.0.0.2"), 3), (to(0, "10.0.0.3"), 3), (to(1, "192.0.2.9"), 2)];
    assert_eq!(Some(expected), world.to("203.0.113.0/24"));
}

#[test]
fn group_that_changes_takes_its_routes_along_and_stays_as_long_as_they_use_it() {
    let mut world = world();
    let group: Group = world.rib.add_group(&[on(0, "10.0.0.2")]).unwrap();
    world
        .target("10.9.0.0/16", Origin::Fpm, (20, 0), Target::Group(group))
        .unwrap();
    world
        .target("10.8.0.0/16", Origin::Fpm, (20, 0), Target::Group(group))
        .unwrap();
    world.publish();
    world.rib.change_group(group, &[on(1, "192.0.2.2")]).unwrap();
    let mut told = world.publish();
    told.sort();
    assert_eq!(vec!["set 10.8.0.0/16", "set 10.9.0.0/16"], told);
    assert_eq!(Some(vec![(to(1, "192.0.2.2"), 1)]), world.to("10.9.0.0/16"));
    world.rib.drop_group(group);
    assert_eq!(Some(vec![(to(1, "192.0.2.2"), 1)]), world.to("10.9.0.0/16"));
    let sets = world.rib.counts().sets;
    world.rib.withdraw(prefix("10.9.0.0/16"), Origin::Fpm, 0);
    world.rib.withdraw(prefix("10.8.0.0/16"), Origin::Fpm, 0);
    world.publish();
    assert_eq!(sets - 1, world.rib.counts().sets);
    let gone = world.target("10.8.0.0/16", Origin::Fpm, (20, 0), Target::Group(group));
    assert_eq!(Err(RibError::Group), gone);
}

#[test]
fn replay_keeps_what_is_offered_again_and_takes_the_rest_back_when_it_ends() {
    let mut world = world();
    let hops = [on(0, "10.0.0.2")];
    let all: Vec<String> = (0..10).map(|number| format!("10.{number}.7.0/24")).collect();
    for to in &all {
        world.offer(to, Origin::Fpm, 20, &hops).unwrap();
    }
    world.offer(&all[9], Origin::Static, 1, &hops).unwrap();
    world.publish();
    world.rib.start_replay(Origin::Fpm);
    for to in &all[..4] {
        world.offer(to, Origin::Fpm, 20, &hops).unwrap();
    }
    // The daemon reconnects. Routes that the daemon has not announced again remain stale.
    world.rib.start_replay(Origin::Fpm);
    for to in &all[..3] {
        world.offer(to, Origin::Fpm, 20, &hops).unwrap();
    }
    assert_eq!(Vec::<String>::new(), world.publish());
    assert_eq!(7, world.rib.stale(Origin::Fpm));
    assert_eq!(4, world.rib.end_replay(Origin::Fpm, 4));
    assert_eq!(3, world.rib.end_replay(Origin::Fpm, 4));
    let mut told = world.publish();
    told.sort();
    let gone: Vec<String> = (3..9).map(|number| format!("remove 10.{number}.7.0/24")).collect();
    assert_eq!([&gone[..], &["set 10.9.7.0/24".into()]].concat(), told);
    assert_eq!((3, 0), (world.rib.counts().offers[2], world.rib.stale(Origin::Fpm)));
}

#[test]
fn routes_beyond_the_quota_are_refused_and_counted_those_there_still_change() {
    let mut world = World::new(Settings {
        quota: 2,
        ..Settings::default()
    });
    let (first, second) = ([on(0, "10.0.0.2")], [on(0, "10.0.0.3")]);
    world.offer("10.7.0.0/16", Origin::Fpm, 20, &first).unwrap();
    world.offer("10.8.0.0/16", Origin::Kernel, 20, &first).unwrap();
    assert_eq!(
        Err(RibError::Quota(2)),
        world.offer("10.9.0.0/16", Origin::Fpm, 20, &first)
    );
    assert_eq!(Ok(()), world.offer("10.7.0.0/16", Origin::Fpm, 20, &second));
    assert_eq!(Ok(()), world.offer("10.9.0.0/16", Origin::Static, 1, &first));
    assert_eq!(Some(vec![(to(0, "10.0.0.3"), 1)]), world.to("10.7.0.0/16"));
    assert_eq!(1, world.rib.counts().refused_quota);
    let many = vec![on(0, "10.0.0.2"); 65];
    assert_eq!(
        Err(RibError::Hops(65)),
        world.offer("10.7.0.0/16", Origin::Fpm, 20, &many)
    );
    assert_eq!(Err(RibError::Hops(0)), world.offer("10.7.0.0/16", Origin::Fpm, 20, &[]));
    assert_eq!(2, world.rib.counts().refused_hops);
}

#[test]
fn listing_goes_on_from_a_place_while_routes_come() {
    let mut world = world();
    let hops = [on(0, "10.0.0.2")];
    world.offer("2001:db8::/32", Origin::Fpm, 20, &hops).unwrap();
    world.publish();
    let all = world.rib.iter().count();
    let (place, _) = world.rib.page(0).nth(1).unwrap();
    world.offer("10.9.0.0/16", Origin::Fpm, 20, &hops).unwrap();
    world.publish();
    assert_eq!(all + 1 - 2, world.rib.page(place).count());
    let (last, shown) = world.rib.page(place).last().unwrap();
    assert_eq!(prefix("2001:db8::/32"), shown.prefix);
    assert_eq!(0, world.rib.page(last).count());
}

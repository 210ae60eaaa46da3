//! Tests of static routes with several next hops, and of recursive routes. The tests check the next hops of sessions
//! when routes change.

use std::net::SocketAddrV4;

use crate::rig::{HOST_MAC, INSIDE, OUTSIDE, Plan, Rig, plain, route, snapshot};
use sluice_route::rib::{Offer, OfferedNextHop, Origin, Target, WeightedNextHop};
use sluice_route::{Address, DropKind, InterfaceIndex, Prefix, Route, Via};
use sluice_testkit::packet::{self, Frame};

/// Gateways on the outside link. Each number is the last byte of the gateway's IP and MAC addresses.
const GATEWAYS: [u8; 3] = [11, 12, 13];

const FLOWS: u16 = 600;

const REMOTE: &str = "198.51.100.7:53";

fn by(gateway: u8, weight: u8) -> Route {
    let via = Via::Gateway {
        address: plain(&format!("203.0.113.{gateway}")),
        interface: None,
    };
    Route {
        weight,
        ..route("0.0.0.0", 0, via)
    }
}

fn rig(routes: Vec<Route>) -> Rig {
    let mut rig = Rig::new(Plan {
        routes,
        ..Plan::default()
    });
    for gateway in GATEWAYS {
        let address = plain(&format!("203.0.113.{gateway}"));
        rig.know(OUTSIDE, address, [2, 0, 0, 0, 0, gateway]);
    }
    rig
}

fn commit(rig: &mut Rig, routes: Vec<Route>) {
    let (snapshot, routes) = snapshot(&Plan {
        routes,
        ..Plan::default()
    });
    rig.plane.commit(snapshot, &[routes]).unwrap();
}

/// The gateways that the first flows use.
fn gateways(rig: &mut Rig) -> Vec<u8> {
    flows(rig, 0..FLOWS)
}

/// The gateway of each flow; 0 if the flow's packet does not leave through the outside interface.
fn flows(rig: &mut Rig, numbers: std::ops::Range<u16>) -> Vec<u8> {
    let flow = |number: u16| packet::udp4(&*format!("192.168.1.10:{}", 1024 + number), "198.51.100.7:53");
    let gateway = |number| match &rig.host_sends(&flow(number).payload(&[0; 26]))[..] {
        [sent] if sent.port == OUTSIDE => sent.frame[5],
        _ => 0,
    };
    numbers.map(gateway).collect()
}

fn count(gateways: &[u8], wanted: u8) -> usize {
    gateways.iter().filter(|&&gateway| gateway == wanted).count()
}

#[test]
fn sessions_are_spread_by_weight_and_stay_there() {
    let mut rig = rig(vec![by(11, 1), by(12, 3)]);
    let first = gateways(&mut rig);
    assert!((100..=200).contains(&count(&first, 11)), "{}", count(&first, 11));
    assert_eq!(usize::from(FLOWS), count(&first, 11) + count(&first, 12));
    assert_eq!(first, gateways(&mut rig));
}

#[test]
fn way_that_is_removed_moves_its_own_sessions_and_no_others() {
    let all = || GATEWAYS.map(|gateway| by(gateway, 1)).to_vec();
    let mut rig = rig(all());
    let before = gateways(&mut rig);
    let live = rig.live();
    commit(&mut rig, vec![by(11, 1), by(13, 1)]);
    let after = gateways(&mut rig);
    for (old, new) in before.iter().zip(&after) {
        assert!(old == new || *old == 12, "{old} became {new}");
        assert_ne!(12, *new);
    }
    // New flows use a next hop that is available again. Sessions keep their next hop while the route has this next hop.
    commit(&mut rig, all());
    assert_eq!(after, gateways(&mut rig));
    // The number of sessions has not changed.
    assert_eq!(live, rig.live());
    let new = flows(&mut rig, FLOWS..2 * FLOWS);
    assert!(count(&new, 12) > 100, "{}", count(&new, 12));
}

#[test]
fn recursive_route_leads_sessions_after_the_route_to_its_gateway() {
    let routes = |gateway| {
        let to_gateway = Route {
            prefix: Prefix::new(plain("172.16.0.0"), 24),
            ..by(gateway, 1)
        };
        vec![
            route("198.51.100.0", 24, Via::Recursive(plain("172.16.0.1"))),
            to_gateway,
        ]
    };
    let mut rig = rig(routes(11));
    assert_eq!(usize::from(FLOWS), count(&gateways(&mut rig), 11));
    commit(&mut rig, routes(12));
    assert_eq!(usize::from(FLOWS), count(&gateways(&mut rig), 12));
}

#[test]
fn link_that_is_down_leaves_its_flows_to_other_ways_and_own_addresses_answer() {
    let floating = Route {
        distance: 250,
        ..route(
            "0.0.0.0",
            0,
            Via::Gateway {
                address: plain("192.168.1.99"),
                interface: None,
            },
        )
    };
    let mut rig = Rig::new(Plan {
        translate: false,
        routes: vec![by(11, 1), floating],
        ..Plan::default()
    });
    rig.know(OUTSIDE, plain("203.0.113.11"), [2, 0, 0, 0, 0, 11]);
    rig.know(INSIDE, plain("192.168.1.99"), [2, 0, 0, 0, 0, 99]);
    let frame = packet::udp4("192.168.1.10:5000", "198.51.100.7:53").payload(&[0; 26]);
    assert_eq!(OUTSIDE, rig.host_sends(&frame)[0].port);
    assert!(rig.plane.set_link(OUTSIDE, false));
    assert!(!rig.plane.set_link(OUTSIDE, false));
    let sent = rig.host_sends(&frame);
    assert_eq!([INSIDE, 99], [sent[0].port, sent[0].frame[5].into()]);
    let ping = packet::icmp4_echo("192.168.1.10", "203.0.113.1", 7, 1);
    assert_eq!(INSIDE, rig.host_sends(&ping)[0].port);
    assert!(rig.plane.set_link(OUTSIDE, true));
    let back = rig.host_sends(&frame);
    assert_eq!([OUTSIDE, 11], [back[0].port, back[0].frame[5].into()]);
}

#[test]
fn sessions_opened_while_a_link_is_down_and_those_of_before_follow_it_when_it_comes_back() {
    let mut rig = Rig::new(Plan::default());
    rig.know(INSIDE, plain("192.168.1.10"), HOST_MAC);
    let question = |port: u16| packet::udp4(&*format!("192.168.1.10:{port}"), "198.51.100.7:53").payload(&[0; 26]);
    let public = [1000, 1001].map(|port| {
        let before = rig.plane.set_link(INSIDE, port != 1001);
        assert_eq!(port == 1001, before);
        rig.public(&question(port))
    });
    let answers = |rig: &mut Rig| {
        public.map(|public| {
            let answer = packet::udp4("198.51.100.7:53".parse::<SocketAddrV4>().unwrap(), public).payload(&[0; 26]);
            let sent = rig.router_sends(&answer);
            assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
            sent[0].port
        })
    };
    // The session that was created before the link failure uses the link again as well.
    rig.seconds(1);
    assert!(rig.plane.publish_changes(rig.now).is_some());
    assert_eq!([OUTSIDE; 2], answers(&mut rig));
    assert!(rig.plane.set_link(INSIDE, true));
    rig.seconds(1);
    assert!(rig.plane.publish_changes(rig.now).is_some());
    assert_eq!([INSIDE; 2], answers(&mut rig));
    assert!(rig.plane.publish_changes(rig.now).is_none());
    assert_eq!(2, rig.live());
}

/// A route learned from a daemon: a network behind a gateway on the outside link. The last byte of its address selects
/// the gateway.
fn learned(rig: &mut Rig, network: &str, length: u8, gateway: Option<u8>) {
    let gateway = gateway.map(|gateway| (OUTSIDE, plain(&format!("203.0.113.{gateway}"))));
    learned_by(rig, Prefix::new(plain(network), length), gateway);
}

fn learned_by(rig: &mut Rig, prefix: Prefix, gateway: Option<(InterfaceIndex, Address)>) {
    let changed = rig.plane.change_routes(0, |rib| match gateway {
        Some((interface, address)) => {
            let hops = [WeightedNextHop::new(OfferedNextHop::Gateway { interface, address })];
            let offer = Offer {
                origin: Origin::Fpm,
                protocol: 186,
                distance: 20,
                metric: 0,
                target: Target::Hops(&hops),
            };
            rib.offer(prefix, &offer, 0).unwrap();
        }
        None => assert!(rib.withdraw(prefix, Origin::Fpm, 0)),
    });
    assert!(changed);
}

/// Destinations without another route are unreachable.
fn nowhere_else() -> Vec<Route> {
    vec![route("0.0.0.0", 0, Via::Refused(DropKind::Unreachable))]
}

/// Opens a session whose only route is a learned one. Returns its first packet, its public address, and an answer.
fn opened() -> (Rig, Frame, SocketAddrV4, Frame) {
    let mut rig = rig(nowhere_else());
    learned(&mut rig, "198.51.100.0", 24, Some(11));
    let question = packet::udp4("192.168.1.10:5000", REMOTE).payload(&[0; 26]);
    let public = rig.public(&question);
    let remote = REMOTE.parse::<SocketAddrV4>().unwrap();
    let answer = packet::udp4(remote, public).payload(&[0; 26]);
    (rig, question, public, answer)
}

/// Number of revalidated sessions.
fn revised(rig: &Rig) -> u64 {
    rig.plane.counters()[0].sessions_revalidated.get()
}

fn follow(rig: &mut Rig) {
    rig.seconds(1);
    assert!(rig.plane.publish_changes(rig.now).is_some());
}

#[test]
fn sessions_follow_learned_routes_and_only_those_concerned_are_decided_again() {
    let mut rig = rig(vec![by(11, 1)]);
    let sent = |rig: &mut Rig, to: &str| {
        let sent = rig.host_sends(&packet::udp4("192.168.1.10:5000", to).payload(&[0; 26]));
        assert_eq!((1, OUTSIDE), (sent.len(), sent[0].port), "{:?}", rig.all_drops());
        sent[0].frame[5]
    };
    let (near, far) = ("198.51.100.7:53", "8.8.8.8:53");
    assert_eq!([11; 2], [near, far].map(|to| sent(&mut rig, to)));
    for (gateway, now) in [(Some(12), 12), (Some(13), 13), (None, 11)] {
        learned(&mut rig, "198.51.100.0", 24, gateway);
        follow(&mut rig);
        let before = revised(&rig);
        assert_eq!([now, 11], [near, far].map(|to| sent(&mut rig, to)));
        assert_eq!(1, revised(&rig) - before);
        assert_eq!([now, 11], [near, far].map(|to| sent(&mut rig, to)));
        assert_eq!(1, revised(&rig) - before);
    }
    // Changes are recorded only for a limited time. If a session had no packets for longer than this time, it is
    // revalidated, but the result is unchanged.
    learned(&mut rig, "198.51.100.0", 24, Some(12));
    for gateway in (0..40).map(|round| 12 + round % 2) {
        learned(&mut rig, "192.0.2.0", 24, Some(gateway));
        follow(&mut rig);
    }
    assert_eq!([12, 11], [near, far].map(|to| sent(&mut rig, to)));
    assert!(rig.plane.publish_changes(rig.now).is_none());
    assert_eq!(2, rig.live());
}

#[test]
fn answers_follow_the_route_to_their_inside_host() {
    let mut rig = rig(vec![by(11, 1)]);
    let (question, remote) = (
        packet::udp4("192.168.7.10:5000", "198.51.100.7:53").payload(&[0; 26]),
        "198.51.100.7:53".parse::<SocketAddrV4>().unwrap(),
    );
    let inside = |rig: &mut Rig, last: u8| {
        let address = plain(&format!("192.168.1.{last}"));
        rig.know(INSIDE, address, [2, 0, 0, 0, 0, last]);
        learned_by(rig, Prefix::new(plain("192.168.7.0"), 24), Some((INSIDE, address)));
    };
    inside(&mut rig, 20);
    let public = rig.public(&question);
    for last in [20, 21, 22] {
        inside(&mut rig, last);
        follow(&mut rig);
        let sent = rig.router_sends(&packet::udp4(remote, public).payload(&[0; 26]));
        assert_eq!((INSIDE, last), (sent[0].port, sent[0].frame[5]));
    }
    assert_eq!(1, rig.live());
}

#[test]
fn session_without_a_route_for_the_moment_keeps_its_translation() {
    let (mut rig, question, public, answer) = opened();
    learned(&mut rig, "198.51.100.0", 24, None);
    follow(&mut rig);
    let before = revised(&rig);
    for round in 1..3 {
        // The sender gets an ICMP error, and answers still pass.
        let sent = rig.host_sends(&question);
        assert_eq!(
            (1, INSIDE, [1, 3]),
            (sent.len(), sent[0].port, [sent[0].frame[23], sent[0].frame[34]])
        );
        assert_eq!(round, rig.drops("unreachable"));
        assert_eq!(INSIDE, rig.router_sends(&answer)[0].port);
        assert_eq!((1, 1), (rig.live(), revised(&rig) - before));
    }
    // An ICMP error for a packet of the session has no route either, and is dropped once.
    let remote = REMOTE.parse::<SocketAddrV4>().unwrap();
    let seen = packet::udp4(remote, "192.168.1.10:5000").payload(&[0; 26]).build();
    let error = packet::icmp4_error("192.168.1.10", "198.51.100.7", 3, 3, &seen, 48);
    assert!(rig.host_sends(&error).is_empty());
    learned(&mut rig, "198.51.100.0", 24, Some(12));
    assert_eq!(public, rig.public(&question));
    assert_eq!(12, rig.host_sends(&question)[0].frame[5]);
    assert_eq!(1, rig.live());
}

#[test]
fn session_whose_new_gateway_is_not_known_yet_waits_for_it() {
    let mut rig = rig(vec![by(11, 1)]);
    let question = packet::udp4("192.168.1.10:5000", "198.51.100.7:53").payload(&[0; 26]);
    let public = rig.public(&question);
    learned(&mut rig, "198.51.100.0", 24, Some(77));
    follow(&mut rig);
    // The gateway is being resolved, so the packet is parked.
    let sent = rig.host_sends(&question);
    assert_eq!([0x08, 0x06], sent[0].frame[12..14]);
    assert_eq!(1, sent.len());
    rig.know(OUTSIDE, plain("203.0.113.77"), [2, 0, 0, 0, 0, 77]);
    rig.seconds(0);
    let sent = rig.host_sends(&question);
    assert!(
        !sent.is_empty() && sent.iter().all(|sent| sent.frame[5] == 77),
        "{:?}",
        rig.all_drops()
    );
    assert_eq!(public, rig.public(&question));
    assert_eq!(1, rig.live());
}

#[test]
fn answers_without_a_route_for_the_moment_are_dropped_by_name_and_find_their_host_again() {
    let (mut rig, question, public, answer) = opened();
    assert!(rig.plane.set_link(INSIDE, false));
    follow(&mut rig);
    for round in 1..3 {
        // The remote host may get an ICMP error, but the source of the error must not be an inside address.
        for sent in rig.router_sends(&answer) {
            assert_eq!((OUTSIDE, 1), (sent.port, sent.frame[23]));
        }
        assert_eq!(round, rig.drops("unreachable"));
    }
    assert!(rig.plane.set_link(INSIDE, true));
    assert_eq!(INSIDE, rig.router_sends(&answer)[0].port);
    assert_eq!(public, rig.public(&question));
    assert_eq!(1, rig.live());
}

#[test]
fn destination_behind_a_link_that_is_down_is_unreachable_where_no_other_route_leads_there() {
    let mut rig = Rig::new(Plan {
        translate: false,
        ..Plan::default()
    });
    rig.plane.set_link(OUTSIDE, false);
    let frame = packet::udp4("192.168.1.10:5000", "203.0.113.254:53").payload(&[0; 26]);
    let sent = rig.host_sends(&frame);
    assert_eq!(INSIDE, sent[0].port);
    // The answer is an ICMP destination-unreachable error.
    assert_eq!([1, 3], [sent[0].frame[23], sent[0].frame[34]]);
    assert_eq!(1, rig.drops("no-route"));
}

//! A gateway with two uplinks: which one traffic takes.

mod rig;

use std::net::Ipv4Addr;

use rig::{HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, flow, plain, policy, route, v4};
use sluice_engine::policy::{Interface, Nat, Policy};
use sluice_nat::rule::{Rules, SourceAction, SourceRule};
use sluice_nat::{Behaviour, Pool, Pools};
use sluice_route::{Prefix, Route, RouteSet, SourceTables, SourceValidation, Via};
use sluice_testkit::packet::{self, Frame};
use sluice_wire::vlan::Tag;

/// A second inside network, and a second uplink, behind tags.
const OFFICE: u16 = 2;
const SECOND: u16 = 3;

const SECOND_MAC: [u8; 6] = [2, 0, 0, 0, 9, 254];
const REMOTE: &str = "198.51.100.7:53";

/// By uplink, the outside address that sources are translated to.
const POOLS: [&str; 2] = ["203.0.113.10", "192.0.2.10"];

fn another(like: &Interface, index: u16, vlan: u16, addresses: [&str; 2]) -> Interface {
    let mut made = like.clone();
    made.name = format!("vlan{vlan}");
    made.tags = vec![Tag {
        protocol: 0x8100,
        control: vlan,
    }];
    made.link.index = index;
    made.link.addresses = vec![(plain(addresses[0]), 24), (plain(addresses[1]), 64)];
    made
}

fn interfaces(interfaces: &mut Vec<Interface>) {
    interfaces.push(another(&interfaces[0], OFFICE, 20, ["192.168.2.1", "2001:db8:3::1"]));
    interfaces.push(another(&interfaces[1], SECOND, 30, ["192.0.2.1", "2001:db8:4::1"]));
    for interface in interfaces {
        interface.validation = SourceValidation::Loose;
    }
}

/// Sources are translated by the uplink that they leave by.
fn translate(policy: &mut Policy) {
    let pool = |address: &str| Pool {
        addresses: vec![(v4(address), v4(address))],
        ports: 1024..=65_535,
        behaviour: [Behaviour::default(); 3],
        ..Pool::new(1, 1)
    };
    let pools = Pools::new(&POOLS.map(pool)).unwrap();
    let inside = sluice_nat::rule::Prefix {
        address: v4("192.168.0.0"),
        length: 16,
    };
    let rule = |(outside, pool)| SourceRule {
        outside: Some(outside),
        ..SourceRule::of(inside, SourceAction::Pool(pool))
    };
    let rules = Rules::new(&[(OUTSIDE, 0), (SECOND, 1)].map(rule), &[], &pools).unwrap();
    policy.nat4 = Nat {
        rules,
        pools,
        ..Nat::default()
    };
}

fn by(gateway: &str, network: &str, length: u8) -> Route {
    let via = Via::Gateway {
        address: plain(gateway),
        interface: None,
    };
    route(network, length, via)
}

fn from(network: &str, length: u8) -> Prefix {
    Prefix::new(plain(network), length)
}

/// Routes for packets from a network.
type BySource = (Prefix, Vec<Route>);

fn commit(rig: &mut Rig, plan: &Plan, tables: &[BySource]) {
    let (mut policy, own) = policy(plan);
    let networks = tables.iter().map(|(network, _)| (0, *network));
    policy.sources = SourceTables::new(1, networks).into();
    let links: Vec<_> = policy.interfaces.iter().map(|one| one.link.clone()).collect();
    let of = |network| {
        tables
            .iter()
            .find(|(other, _)| *other == network)
            .map(|(_, routes)| routes)
    };
    let by_source = policy.sources.iter();
    let by_source = by_source.map(|(_, network, _)| RouteSet::new(&links, of(network).unwrap()).unwrap());
    let routes: Vec<_> = [own].into_iter().chain(by_source).collect();
    rig.plane.commit(policy, &routes).unwrap();
}

fn translating() -> Plan {
    Plan {
        interfaces,
        policy: translate,
        ..Plan::default()
    }
}

fn routing() -> Plan {
    Plan {
        interfaces,
        translate: false,
        ..Plan::default()
    }
}

fn rig(plan: Plan, tables: &[BySource]) -> Rig {
    let mut rig = Rig::new(Plan {
        interfaces: plan.interfaces,
        policy: plan.policy,
        translate: plan.translate,
        ..Plan::default()
    });
    rig.know(SECOND, plain("192.0.2.254"), SECOND_MAC);
    rig.know(SECOND, plain("2001:db8:4::fe"), SECOND_MAC);
    for host in 2..=100 {
        rig.know(INSIDE, plain(&format!("192.168.1.{host}")), HOST_MAC);
        rig.know(OFFICE, plain(&format!("192.168.2.{host}")), HOST_MAC);
    }
    commit(&mut rig, &plan, tables);
    rig
}

/// What leaves when a host sends a frame; by which interface, and the frame.
fn sends(rig: &mut Rig, interface: u16, frame: &Frame) -> Option<(u16, Vec<u8>)> {
    let frame = frame.clone().macs(HOST_MAC, INSIDE_MAC);
    let frame = if interface == OFFICE {
        frame.tag(0x8100, 20)
    } else {
        frame
    };
    let mut sent = rig.send(interface % 2, &frame.build());
    assert!(sent.len() < 2);
    let sent = sent.pop()?;
    let tagged = sent.frame[12..14] == [0x81, 0];
    let mac = if tagged { SECOND_MAC } else { ROUTER_MAC };
    if sent.port == OUTSIDE {
        assert_eq!(mac, sent.frame[..6]);
    }
    Some((sent.port + if tagged { 2 } else { 0 }, sent.frame))
}

fn question(host: &str) -> Frame {
    packet::udp4(&*format!("{host}:5000"), REMOTE).payload(&[0; 26])
}

/// The uplink that a host's flow leaves by, and the address that it has there.
#[track_caller]
fn leaves(rig: &mut Rig, interface: u16, host: &str) -> (u16, Ipv4Addr) {
    let (uplink, frame) = sends(rig, interface, &question(host)).expect("the packet leaves");
    (uplink, *flow(&frame).0.ip())
}

fn pool(place: usize) -> Ipv4Addr {
    POOLS[place].parse().unwrap()
}

fn office() -> [BySource; 1] {
    [(from("192.168.2.0", 24), vec![by("192.0.2.254", "0.0.0.0", 0)])]
}

#[test]
fn source_decides_by_which_uplink_a_host_leaves_and_that_by_which_address() {
    let mut rig = rig(translating(), &office());
    assert_eq!((OUTSIDE, pool(0)), leaves(&mut rig, INSIDE, "192.168.1.10"));
    assert_eq!((SECOND, pool(1)), leaves(&mut rig, OFFICE, "192.168.2.10"));
    // The networks of interfaces come first.
    let inside = packet::udp4("192.168.2.10:5000", "192.168.1.10:53").payload(&[0; 26]);
    assert_eq!(Some(INSIDE), sends(&mut rig, OFFICE, &inside).map(|(by, _)| by));
    // Answers to the outside address come to the host.
    let public = rig.public(&question("192.168.1.10"));
    assert_eq!(pool(0), *public.ip());
    assert_eq!(0, rig.all_drops().len(), "{:?}", rig.all_drops());
}

#[test]
fn destination_without_route_by_source_has_that_of_the_next_shorter_source_and_of_the_router() {
    let tables = [
        (from("192.168.2.0", 24), vec![by("192.0.2.254", "198.51.0.0", 16)]),
        (from("192.168.2.64", 26), vec![by("203.0.113.254", "198.51.100.0", 24)]),
    ];
    let mut rig = rig(translating(), &tables);
    let mut to = |host: &str, remote: &str| {
        let frame = packet::udp4(&*format!("{host}:5000"), remote).payload(&[0; 26]);
        sends(&mut rig, OFFICE, &frame).map(|(by, _)| by)
    };
    assert_eq!(Some(SECOND), to("192.168.2.10", "198.51.100.7:53"));
    assert_eq!(Some(OUTSIDE), to("192.168.2.70", "198.51.100.7:53"));
    assert_eq!(Some(SECOND), to("192.168.2.70", "198.51.101.7:53"));
    assert_eq!(Some(OUTSIDE), to("192.168.2.10", "198.52.0.1:53"));
}

#[test]
fn packets_without_sessions_go_by_source_too() {
    let six = (from("2001:db8:3::", 64), vec![by("2001:db8:4::fe", "::", 0)]);
    let [four] = office();
    let mut rig = rig(routing(), &[four, six]);
    assert_eq!(OUTSIDE, leaves(&mut rig, INSIDE, "192.168.1.10").0);
    assert_eq!(SECOND, leaves(&mut rig, OFFICE, "192.168.2.10").0);
    let six = |host: &str| packet::udp6(&*format!("[{host}]:5000"), "[2001:db8:ffff::1]:53").payload(&[0; 6]);
    let by = |(by, _)| by;
    assert_eq!(Some(OUTSIDE), sends(&mut rig, INSIDE, &six("2001:db8:1::10")).map(by));
    assert_eq!(Some(SECOND), sends(&mut rig, OFFICE, &six("2001:db8:3::10")).map(by));
    assert_eq!(0, rig.live());
}

#[test]
fn session_follows_routes_by_source() {
    let mut rig = rig(translating(), &[]);
    assert_eq!((OUTSIDE, pool(0)), leaves(&mut rig, OFFICE, "192.168.2.10"));
    assert_eq!((OUTSIDE, pool(0)), leaves(&mut rig, INSIDE, "192.168.1.10"));
    commit(&mut rig, &translating(), &office());
    assert_eq!((SECOND, pool(1)), leaves(&mut rig, OFFICE, "192.168.2.10"));
    assert_eq!((OUTSIDE, pool(0)), leaves(&mut rig, INSIDE, "192.168.1.10"));
    // Where the uplink has no link, the router's own routes lead on.
    assert!(rig.plane.set_link(SECOND, false));
    rig.pass(1_000);
    assert!(rig.plane.follow_changes(rig.now).is_some());
    assert_eq!((OUTSIDE, pool(0)), leaves(&mut rig, OFFICE, "192.168.2.10"));
    assert!(rig.plane.set_link(SECOND, true));
    rig.pass(1_000);
    assert!(rig.plane.follow_changes(rig.now).is_some());
    assert_eq!((SECOND, pool(1)), leaves(&mut rig, OFFICE, "192.168.2.10"));
    assert_eq!(2, rig.live());
}

#[test]
fn own_packets_of_the_gateway_go_by_their_source() {
    let tables = [(from("192.0.2.1", 32), vec![by("192.0.2.254", "0.0.0.0", 0)])];
    let mut rig = rig(routing(), &tables);
    for (address, mac, tagged) in [("192.0.2.1", SECOND_MAC, true), ("203.0.113.1", ROUTER_MAC, false)] {
        let request = packet::icmp4_echo("198.51.100.7", address, 7, 1).macs(ROUTER_MAC, OUTSIDE_MAC);
        let request = if tagged { request.tag(0x8100, 30) } else { request };
        let sent = rig.send(OUTSIDE, &request.build());
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        assert_eq!(mac, sent[0].frame[..6]);
    }
}

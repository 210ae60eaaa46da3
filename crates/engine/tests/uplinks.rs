//! Tests of a gateway with two uplinks, and of the selection of the uplink.

use std::net::Ipv4Addr;
use std::sync::Arc;

use crate::rig::{
    self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, flow, plain, route, snapshot, v4,
};
use sluice_engine::snapshot::probes::Probe;
use sluice_engine::snapshot::{Interface, Nat, Snapshot};
use sluice_engine::worker::request::{Reply, Request};
use sluice_filter::{CompiledRule, Counters, Filters, MatcherKind, Settings, Verdict};
use sluice_nat::rule::{Rules, SourceAction, SourceRule};
use sluice_nat::{Behaviour, Pool, Pools};
use sluice_route::{Balance, Prefix, Route, RouteSet, SourceTables, SourceValidation, Via};
use sluice_testkit::packet::{self, Frame};
use sluice_wire::echo::Echo;
use sluice_wire::vlan::Tag;

/// A second inside network and a second uplink. Both interfaces are VLANs.
const OFFICE: u16 = 2;
const SECOND: u16 = 3;

const SECOND_MAC: [u8; 6] = [2, 0, 0, 0, 9, 254];
const REMOTE: &str = "198.51.100.7:53";

/// For each uplink: the outside address for source translation.
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

/// Translates sources to an address that depends on the uplink through which the packets leave.
fn translate(snapshot: &mut Snapshot) {
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
    snapshot.nat4 = Nat {
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
    let (mut snapshot, own) = snapshot(plan);
    let networks = tables.iter().map(|(network, _)| (0, *network));
    snapshot.sources = SourceTables::new(1, networks).into();
    let links: Vec<_> = snapshot.interfaces.iter().map(|one| one.link.clone()).collect();
    let of = |network| {
        tables
            .iter()
            .find(|(other, _)| *other == network)
            .map(|(_, routes)| routes)
    };
    let by_source = snapshot.sources.iter();
    let by_source = by_source.map(|(_, network, _)| RouteSet::new(&links, of(network).unwrap()).unwrap());
    let routes: Vec<_> = [own].into_iter().chain(by_source).collect();
    rig.plane.commit(snapshot, &routes).unwrap();
}

fn translating() -> Plan {
    Plan {
        interfaces,
        snapshot: translate,
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
        snapshot: plan.snapshot,
        translate: plan.translate,
        routes: plan.routes.clone(),
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

/// Sends a frame of a host. Returns the frame that leaves, and its interface.
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

/// The uplink and the outside address of a host's flow.
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
    // Connected networks take precedence.
    let inside = packet::udp4("192.168.2.10:5000", "192.168.1.10:53").payload(&[0; 26]);
    assert_eq!(Some(INSIDE), sends(&mut rig, OFFICE, &inside).map(|(by, _)| by));
    // Answers to the outside address reach the host.
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
    let v6 = (from("2001:db8:3::", 64), vec![by("2001:db8:4::fe", "::", 0)]);
    let [v4] = office();
    let mut rig = rig(routing(), &[v4, v6]);
    assert_eq!(OUTSIDE, leaves(&mut rig, INSIDE, "192.168.1.10").0);
    assert_eq!(SECOND, leaves(&mut rig, OFFICE, "192.168.2.10").0);
    let v6 = |host: &str| packet::udp6(&*format!("[{host}]:5000"), "[2001:db8:ffff::1]:53").payload(&[0; 6]);
    let by = |(by, _)| by;
    assert_eq!(Some(OUTSIDE), sends(&mut rig, INSIDE, &v6("2001:db8:1::10")).map(by));
    assert_eq!(Some(SECOND), sends(&mut rig, OFFICE, &v6("2001:db8:3::10")).map(by));
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
    // If the link of the uplink is down, the routes of the router are used.
    assert!(rig.plane.set_link(SECOND, false));
    rig.pass(1_000);
    assert!(rig.plane.publish_changes(rig.now).is_some());
    assert_eq!((OUTSIDE, pool(0)), leaves(&mut rig, OFFICE, "192.168.2.10"));
    assert!(rig.plane.set_link(SECOND, true));
    rig.pass(1_000);
    assert!(rig.plane.publish_changes(rig.now).is_some());
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

/// A default route over both uplinks, with weights.
fn shared(weights: [u8; 2], balance: Balance) -> Vec<Route> {
    let adjacencies = ["203.0.113.254", "192.0.2.254"].into_iter().zip(weights);
    adjacencies
        .map(|(gateway, weight)| Route {
            weight,
            balance,
            ..by(gateway, "0.0.0.0", 0)
        })
        .collect()
}

fn sharing(weights: [u8; 2], balance: Balance) -> Plan {
    Plan {
        routes: shared(weights, balance),
        ..translating()
    }
}

/// The uplink of each host's flow from a port. Asserts that the outside address of each flow belongs to the flow's
/// uplink.
fn uplinks(rig: &mut Rig, port: u16) -> Vec<u16> {
    let mut uplink = |host: u8| {
        let frame = packet::udp4(&*format!("192.168.1.{host}:{port}"), REMOTE).payload(&[0; 26]);
        let (uplink, frame) = sends(rig, INSIDE, &frame).expect("the packet leaves");
        assert_eq!(pool(usize::from(uplink / 2)), *flow(&frame).0.ip());
        uplink
    };
    (2..=100).map(&mut uplink).collect()
}

fn by_second(uplinks: &[u16]) -> usize {
    uplinks.iter().filter(|&&uplink| uplink == SECOND).count()
}

/// Sets the link state of the second uplink, and revalidates the sessions.
fn set_second(rig: &mut Rig, up: bool) {
    let gateway = (SECOND, plain("192.0.2.254"));
    assert!(rig.plane.set_gateway(gateway, up));
    assert!(!rig.plane.set_gateway(gateway, up));
    rig.pass(1_000);
    assert!(rig.plane.publish_changes(rig.now).is_some());
}

#[test]
fn hosts_are_shared_among_uplinks_by_weight_and_each_has_one_address() {
    for (weights, expected) in [([1, 1], 30..70), ([1, 3], 60..90), ([3, 1], 10..40)] {
        let mut rig = rig(sharing(weights, Balance::Host), &[]);
        let first = uplinks(&mut rig, 5000);
        assert!(
            expected.contains(&by_second(&first)),
            "{weights:?}: {}",
            by_second(&first)
        );
        for port in [5001, 6000, 40_000] {
            assert_eq!(first, uplinks(&mut rig, port));
        }
        // The selection of uplinks is the same after a restart.
        let mut again = self::rig(sharing(weights, Balance::Host), &[]);
        assert_eq!(first, uplinks(&mut again, 7000));
    }
}

#[test]
fn flows_of_a_host_are_shared_where_each_goes_by_itself() {
    let mut rig = rig(sharing([1, 1], Balance::Flow), &[]);
    let first = uplinks(&mut rig, 5000);
    let second = uplinks(&mut rig, 5001);
    let moved = first.iter().zip(&second).filter(|(one, other)| one != other).count();
    assert!((20..80).contains(&moved), "{moved}");
}

#[test]
fn packets_without_sessions_keep_their_hosts_uplink() {
    let plan = Plan {
        routes: shared([1, 1], Balance::Host),
        ..routing()
    };
    let mut rig = rig(plan, &[]);
    let mut by = |host: u8, port: u16| {
        let frame = packet::udp4(&*format!("192.168.1.{host}:{port}"), REMOTE).payload(&[0; 26]);
        sends(&mut rig, INSIDE, &frame).expect("the packet leaves").0
    };
    let first: Vec<_> = (2..=100).map(|host| by(host, 5000)).collect();
    let again: Vec<_> = (2..=100).map(|host| by(host, 5001)).collect();
    assert_eq!(first, again);
    assert!((30..70).contains(&by_second(&first)));
}

#[test]
fn flows_of_a_lost_uplink_move_and_no_others() {
    let mut rig = rig(sharing([1, 1], Balance::Host), &[]);
    let before = uplinks(&mut rig, 5000);
    let lost = by_second(&before) as u64;
    let (live, made) = (rig.live(), rig.plane.counters()[0].sessions_created.get());
    set_second(&mut rig, false);
    // Flows of the other uplink keep their sessions. Flows of the lost uplink get new sessions with new addresses.
    assert_eq!(vec![OUTSIDE; 99], uplinks(&mut rig, 5000));
    assert_eq!(made + lost, rig.plane.counters()[0].sessions_created.get());
    assert_eq!(live, rig.live());
    // New flows use the uplink that is up.
    assert_eq!(vec![OUTSIDE; 99], uplinks(&mut rig, 5001));
    // When the uplink is up again, sessions keep their uplink, and new flows are distributed as before.
    let made = rig.plane.counters()[0].sessions_created.get();
    set_second(&mut rig, true);
    assert_eq!(vec![OUTSIDE; 99], uplinks(&mut rig, 5000));
    assert_eq!(vec![OUTSIDE; 99], uplinks(&mut rig, 5001));
    assert_eq!(made, rig.plane.counters()[0].sessions_created.get());
    assert_eq!(before, uplinks(&mut rig, 5002));
}

#[test]
fn route_by_source_leads_by_the_router_s_own_while_its_uplink_is_down() {
    let mut rig = rig(translating(), &office());
    assert_eq!((SECOND, pool(1)), leaves(&mut rig, OFFICE, "192.168.2.10"));
    set_second(&mut rig, false);
    assert_eq!((OUTSIDE, pool(0)), leaves(&mut rig, OFFICE, "192.168.2.10"));
    set_second(&mut rig, true);
    assert_eq!((SECOND, pool(1)), leaves(&mut rig, OFFICE, "192.168.2.10"));
}

#[test]
fn untranslated_session_of_a_lost_uplink_goes_on_by_another() {
    fn filter(snapshot: &mut Snapshot) {
        let settings = Settings {
            kind: MatcherKind::Best,
            default: Verdict::Accept,
            sessions: true,
            workers: 1,
        };
        let filters = Filters::new(&[] as &[CompiledRule], &settings, Counters::new(0)).unwrap();
        snapshot.filter_by(Arc::new(filters));
    }
    let plan = Plan {
        snapshot: filter,
        routes: shared([1, 1], Balance::Host),
        ..routing()
    };
    let mut rig = rig(plan, &[]);
    let host = |rig: &mut Rig, wanted: u16| {
        let mut hosts = (2..=100).map(|host| format!("192.168.1.{host}"));
        hosts
            .find(|host| sends(rig, INSIDE, &question(host)).is_some_and(|(by, _)| by == wanted))
            .unwrap()
    };
    let (kept, moved) = (host(&mut rig, OUTSIDE), host(&mut rig, SECOND));
    let made = rig.plane.counters()[0].sessions_created.get();
    set_second(&mut rig, false);
    for host in [&kept, &moved] {
        assert_eq!(OUTSIDE, leaves(&mut rig, INSIDE, host).0);
    }
    assert_eq!(made, rig.plane.counters()[0].sessions_created.get());
    assert_eq!(0, rig.plane.counters()[0].sessions_ended.get());
}

fn probe(number: usize, gateway: &str, target: &str) -> Probe {
    Probe {
        number,
        interface: SECOND,
        gateway: plain(gateway),
        target: plain(target),
        echo: Echo {
            identifier: 77,
            sequence: 1,
            data: 0x0102_0304_0506_0708,
        },
    }
}

/// The echo request that is sent for a probe of the control plane.
fn asks(rig: &mut Rig, probe: Probe) -> Option<Vec<u8>> {
    rig.plane.snapshot().probes.expect(&probe);
    let reply = rig.ask(rig.owner, Request::Probe(probe));
    rig.round();
    let frame = rig.sent().pop().map(|sent| sent.frame);
    assert_eq!(
        matches!(reply, Reply::Done),
        frame.as_ref().is_some_and(|frame| frame[16..18] != [8, 6])
    );
    frame
}

#[test]
fn probe_leaves_by_its_uplink_whatever_routes_say_and_its_answer_is_noted() {
    // The outside address for translation is the interface's own address.
    fn own(all: &mut Vec<Interface>) {
        interfaces(all);
        all[usize::from(SECOND)].link.addresses[0].0 = plain(POOLS[1]);
    }
    let plan = Plan {
        interfaces: own,
        ..translating()
    };
    let mut rig = rig(plan, &[]);
    assert!(rig.plane.set_gateway((SECOND, plain("192.0.2.254")), false));
    let frame = asks(&mut rig, probe(4, "192.0.2.254", "198.51.100.9")).expect("the request leaves");
    assert_eq!((&SECOND_MAC[..], &[0x81, 0, 0, 30][..]), (&frame[..6], &frame[12..16]));
    assert!(rig::is_valid(&frame));
    assert_eq!("192.0.2.10", rig::flow(&frame).0.ip().to_string());
    let answer = |data: [u8; 8]| {
        let reply = packet::icmp4_echo_reply("198.51.100.9", POOLS[1], 77, 1).payload(&data);
        reply.macs(SECOND_MAC, OUTSIDE_MAC).tag(0x8100, 30).build()
    };
    rig.now = sluice_engine::packet::time::Now::at(rig.now.nanoseconds + 5_000_000);
    // The random number in the answer is wrong.
    assert!(rig.send(OUTSIDE, &answer([0; 8])).is_empty());
    assert_eq!(None, rig.plane.snapshot().probes.answer(4));
    assert!(rig.send(OUTSIDE, &answer([1, 2, 3, 4, 5, 6, 7, 8])).is_empty());
    assert_eq!(Some(5_000_000), rig.plane.snapshot().probes.answer(4));
    // An answer without a pending request counts as unsolicited.
    assert!(rig.send(OUTSIDE, &answer([1, 2, 3, 4, 5, 6, 7, 8])).is_empty());
    assert_eq!(1, rig.drops("unsolicited"), "{:?}", rig.all_drops());
    // A commit keeps the pending requests.
    let queried = probe(5, "192.0.2.254", "198.51.100.9");
    asks(&mut rig, queried).expect("the request leaves");
    let plan = Plan {
        interfaces: own,
        ..translating()
    };
    commit(&mut rig, &plan, &[]);
    rig.send(OUTSIDE, &answer([1, 2, 3, 4, 5, 6, 7, 8]));
    assert!(rig.plane.snapshot().probes.answer(5).is_some());
}

#[test]
fn probe_of_ipv6_leaves_by_its_uplink() {
    let mut rig = rig(routing(), &[]);
    let frame = asks(&mut rig, probe(0, "2001:db8:4::fe", "2001:db8:ffff::9")).expect("the request leaves");
    assert!(rig::is_valid(&frame));
    assert_eq!(SECOND_MAC, frame[..6]);
}

#[test]
fn probe_waits_for_the_neighbour_of_its_gateway() {
    let mut rig = rig(translating(), &[]);
    let arp = asks(&mut rig, probe(0, "192.0.2.253", "198.51.100.9")).expect("a question");
    assert_eq!([8, 6], arp[16..18]);
    let mac = [2, 0, 0, 0, 9, 253];
    rig.know(SECOND, plain("192.0.2.253"), mac);
    let frame = asks(&mut rig, probe(0, "192.0.2.253", "198.51.100.9")).expect("the request leaves");
    assert_eq!(mac, frame[..6]);
}

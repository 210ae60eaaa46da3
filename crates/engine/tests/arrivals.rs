//! Tests of source validation for every packet of a session, and of the binding of sessions to interfaces.

use std::net::SocketAddrV4;
use std::sync::Arc;

use crate::rig::{
    self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, plain, route, snapshot,
};
use sluice_engine::snapshot::{Interface, Snapshot};
use sluice_engine::worker::request::{Cursor, Filter, Reply, Request};
use sluice_filter::{CompiledRule, Counters, Filters, MatcherKind, Settings, Verdict};
use sluice_nat::rule::{DestinationAction, DestinationRule};
use sluice_route::{Route, SourceValidation, Via};
use sluice_testkit::packet::{self, Frame, flag};
use sluice_wire::vlan::Tag;

/// A second inside network and a second uplink. Both interfaces are VLANs.
const OFFICE: u16 = 2;
const UPLINK: u16 = 3;

const HOST: &str = "192.168.1.10:5000";
const REMOTE: &str = "198.51.100.7:53";

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

fn validate(interfaces: &mut Vec<Interface>, validation: SourceValidation) {
    interfaces.push(another(&interfaces[0], OFFICE, 20, ["192.168.2.1", "2001:db8:3::1"]));
    interfaces.push(another(&interfaces[1], UPLINK, 30, ["192.0.2.1", "2001:db8:4::1"]));
    for interface in interfaces {
        interface.validation = validation;
    }
}

fn strict(interfaces: &mut Vec<Interface>) {
    validate(interfaces, SourceValidation::Strict);
}

fn loose(interfaces: &mut Vec<Interface>) {
    validate(interfaces, SourceValidation::Loose);
}

fn off(interfaces: &mut Vec<Interface>) {
    validate(interfaces, SourceValidation::Off);
}

fn rig(interfaces: fn(&mut Vec<Interface>)) -> Rig {
    Rig::new(Plan {
        interfaces,
        ..Plan::default()
    })
}

/// A gateway without translation. A stateful filter that accepts all packets makes the gateway create sessions.
fn filtering(interfaces: fn(&mut Vec<Interface>)) -> Rig {
    fn filter(snapshot: &mut Snapshot) {
        let settings = Settings {
            kind: MatcherKind::Best,
            default: Verdict::Accept,
            sessions: true,
            workers: 1,
        };
        snapshot.filter_by(Arc::new(
            Filters::new(&[] as &[CompiledRule], &settings, Counters::new(0)).unwrap(),
        ));
    }
    Rig::new(Plan {
        translate: false,
        snapshot: filter,
        interfaces,
        ..Plan::default()
    })
}

/// Number of frames that leave after a frame has arrived on an interface.
fn arrives(rig: &mut Rig, interface: u16, frame: &Frame) -> usize {
    let frame = match interface {
        INSIDE => frame.clone().macs(HOST_MAC, INSIDE_MAC),
        OFFICE => frame.clone().macs(HOST_MAC, INSIDE_MAC).tag(0x8100, 20),
        OUTSIDE => frame.clone().macs(ROUTER_MAC, OUTSIDE_MAC),
        _ => frame.clone().macs(ROUTER_MAC, OUTSIDE_MAC).tag(0x8100, 30),
    };
    rig.send(interface % 2, &frame.build()).len()
}

fn rebound(rig: &Rig) -> u64 {
    rig.plane.counters()[0].sessions_rebound.get()
}

fn question() -> Frame {
    packet::udp4(HOST, REMOTE).payload(b"question")
}

fn answer(public: SocketAddrV4) -> Frame {
    packet::udp4(REMOTE, public).payload(b"answer")
}

#[test]
fn strict_validation_drops_packets_of_a_session_by_another_interface() {
    let mut rig = rig(strict);
    let public = rig.public(&question());
    for interface in [OFFICE, OUTSIDE, UPLINK] {
        assert_eq!(0, arrives(&mut rig, interface, &question()), "{interface}");
    }
    assert_eq!(1, arrives(&mut rig, OUTSIDE, &answer(public)));
    for interface in [INSIDE, OFFICE, UPLINK] {
        assert_eq!(0, arrives(&mut rig, interface, &answer(public)), "{interface}");
    }
    assert_eq!(6, rig.drops("source-validation"), "{:?}", rig.all_drops());
    assert_eq!(0, rebound(&rig));
    assert_eq!(1, arrives(&mut rig, INSIDE, &question()));
    assert_eq!(1, arrives(&mut rig, OUTSIDE, &answer(public)));
}

#[test]
fn ipv6_session_of_the_filter_is_validated_as_well() {
    let (host, remote) = ("[2001:db8:1::10]:5000", "[2001:db8:9::7]:53");
    let mut rig = filtering(strict);
    assert_eq!(1, arrives(&mut rig, INSIDE, &packet::udp6(host, remote)));
    assert_eq!(1, arrives(&mut rig, OUTSIDE, &packet::udp6(remote, host)));
    for interface in [OFFICE, OUTSIDE, UPLINK] {
        assert_eq!(
            0,
            arrives(&mut rig, interface, &packet::udp6(host, remote)),
            "{interface}"
        );
    }
    for interface in [INSIDE, OFFICE, UPLINK] {
        assert_eq!(
            0,
            arrives(&mut rig, interface, &packet::udp6(remote, host)),
            "{interface}"
        );
    }
    assert_eq!(6, rig.drops("source-validation"), "{:?}", rig.all_drops());
    assert_eq!(1, rig.live());
}

#[test]
fn loose_validation_binds_a_session_to_the_interface_that_it_goes_on_by() {
    let mut rig = rig(loose);
    let public = rig.public(&question());
    for _ in 0..3 {
        assert_eq!(1, arrives(&mut rig, OFFICE, &question()), "{:?}", rig.all_drops());
    }
    assert_eq!(1, rebound(&rig));
    for _ in 0..3 {
        assert_eq!(1, arrives(&mut rig, UPLINK, &answer(public)), "{:?}", rig.all_drops());
    }
    assert_eq!(2, rebound(&rig));
    assert_eq!(OFFICE, rig.sessions(Default::default())[0].interface);
    // A direction is not bound to the interface of the other direction.
    assert_eq!(1, arrives(&mut rig, UPLINK, &question()));
    assert_eq!(OFFICE, rig.sessions(Default::default())[0].interface);
}

#[test]
fn without_validation_packets_pass_by_any_interface_and_bind_nothing() {
    let mut rig = rig(off);
    let public = rig.public(&question());
    assert_eq!(1, arrives(&mut rig, OFFICE, &question()));
    assert_eq!(1, arrives(&mut rig, UPLINK, &answer(public)));
    assert_eq!(INSIDE, rig.sessions(Default::default())[0].interface);
    assert_eq!(0, rebound(&rig));
}

#[test]
fn answer_of_an_outside_address_that_did_not_turn_is_forged() {
    let mut rig = rig(off);
    let own = rig.public(&packet::udp4("192.168.1.10:5999", REMOTE));
    // The address must differ from the remote address, because a packet from an address to itself is dropped.
    let called = (11..30)
        .find_map(|host| {
            rig.know(INSIDE, plain(&format!("192.168.1.{host}")), [2, 0, 0, 0, 1, host]);
            let public = rig.public(&packet::udp4(&*format!("192.168.1.{host}:7000"), REMOTE));
            (public.ip() != own.ip()).then_some(public)
        })
        .unwrap();
    let sent = rig.host_sends(&packet::udp4("192.168.1.10:6000", called));
    let (caller, _) = rig::flow(&sent[0].frame);
    for interface in [OUTSIDE, UPLINK] {
        assert_eq!(0, arrives(&mut rig, interface, &packet::udp4(called, caller)));
    }
    assert_eq!(2, rig.drops("forged-source"), "{:?}", rig.all_drops());
}

#[test]
fn icmp_error_about_a_session_has_a_valid_source() {
    let mut rig = rig(strict);
    let sent = rig.host_sends(&question());
    let (public, _) = rig::flow(&sent[0].frame);
    let error = packet::icmp4_error("198.51.100.77", *public.ip(), 3, 1, &sent[0].frame, 28);
    assert_eq!(1, arrives(&mut rig, OUTSIDE, &error), "{:?}", rig.all_drops());
    for interface in [OFFICE, UPLINK] {
        assert_eq!(0, arrives(&mut rig, interface, &error), "{interface}");
    }
    assert_eq!(2, rig.drops("source-validation"), "{:?}", rig.all_drops());
}

fn by(gateway: &str) -> Route {
    let via = Via::Gateway {
        address: plain(gateway),
        interface: None,
    };
    route("0.0.0.0", 0, via)
}

fn commit(rig: &mut Rig, routes: Vec<Route>) {
    let (snapshot, routes) = snapshot(&Plan {
        routes,
        interfaces: strict,
        ..Plan::default()
    });
    rig.plane.commit(snapshot, &[routes]).unwrap();
}

#[test]
fn answers_may_come_by_each_way_that_a_route_has_and_no_longer_by_one_that_it_had() {
    let both = || vec![by("203.0.113.254"), by("192.0.2.254")];
    let mut rig = Rig::new(Plan {
        routes: both(),
        interfaces: strict,
        ..Plan::default()
    });
    rig.know(UPLINK, plain("192.0.2.254"), ROUTER_MAC);
    // A flow that leaves through the first uplink is translated.
    let (question, public) = (5000..5100)
        .find_map(|port| {
            let question = packet::udp4(&*format!("192.168.1.10:{port}"), REMOTE);
            let sent = rig.host_sends(&question);
            let (source, _) = rig::flow(&sent[0].frame);
            (*source.ip() != "192.168.1.10".parse::<std::net::Ipv4Addr>().unwrap()).then_some((question, source))
        })
        .unwrap();
    assert_eq!(1, arrives(&mut rig, OUTSIDE, &answer(public)));
    assert_eq!(1, arrives(&mut rig, UPLINK, &answer(public)));
    assert_eq!(1, rebound(&rig));
    assert_eq!(1, arrives(&mut rig, OUTSIDE, &answer(public)));
    assert_eq!(2, rebound(&rig));
    assert_eq!(1, arrives(&mut rig, UPLINK, &answer(public)));
    commit(&mut rig, vec![by("203.0.113.254")]);
    assert_eq!(1, arrives(&mut rig, INSIDE, &question));
    assert_eq!(0, arrives(&mut rig, UPLINK, &answer(public)));
    assert_eq!(1, arrives(&mut rig, OUTSIDE, &answer(public)));
    assert_eq!(1, rig.drops("source-validation"), "{:?}", rig.all_drops());
}

#[test]
fn hosts_that_talk_by_their_outside_addresses_stay_valid() {
    let mut rig = rig(strict);
    rig.know(INSIDE, plain("192.168.1.11"), [2, 0, 0, 0, 1, 11]);
    let public = rig.public(&packet::udp4("192.168.1.11:7000", REMOTE));
    let caller = packet::udp4("192.168.1.10:6000", public);
    let sent = rig.host_sends(&caller);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let (seen, _) = rig::flow(&sent[0].frame);
    for _ in 0..3 {
        let back = packet::udp4("192.168.1.11:7000", seen).macs([2, 0, 0, 0, 1, 11], INSIDE_MAC);
        assert_eq!(1, rig.send(INSIDE, &back.build()).len(), "{:?}", rig.all_drops());
        assert_eq!(1, rig.host_sends(&caller).len(), "{:?}", rig.all_drops());
    }
    assert_eq!(0, rig.all_drops().len(), "{:?}", rig.all_drops());
}

/// A gateway with two uplinks. The active route uses only the first uplink.
fn uplinks() -> Plan {
    fn snapshot(snapshot: &mut Snapshot) {
        snapshot.uplinks = vec![[None; 2]; 4];
        snapshot.uplinks[usize::from(OUTSIDE)][0] = Some(plain("203.0.113.254"));
        snapshot.uplinks[usize::from(UPLINK)][0] = Some(plain("192.0.2.254"));
    }
    let forward = |external: &str| DestinationRule {
        protocol: Some(6),
        ports: Some((8443, 8443)),
        ..DestinationRule::of(
            sluice_nat::rule::Prefix::host(rig::v4(external)),
            DestinationAction::Host(rig::v4(rig::HOST), Some(443)),
        )
    };
    Plan {
        interfaces: loose,
        snapshot,
        forwards: vec![forward("192.0.2.1"), forward("203.0.113.1")],
        ..Plan::default()
    }
}

#[test]
fn answers_leave_by_the_uplink_that_their_connection_came_in_by() {
    let mut rig = Rig::new(uplinks());
    let gateway = [2, 0, 0, 0, 9, 254];
    rig.know(UPLINK, plain("192.0.2.254"), gateway);
    let answer = packet::tcp4("192.168.1.10:443", REMOTE).flags(flag::SYN | flag::ACK);
    for (uplink, address, mac, tagged) in [
        (UPLINK, "192.0.2.1:8443", gateway, true),
        (OUTSIDE, "203.0.113.1:8443", ROUTER_MAC, false),
    ] {
        let syn = packet::tcp4(REMOTE, address).flags(flag::SYN);
        assert_eq!(1, arrives(&mut rig, uplink, &syn), "{:?}", rig.all_drops());
        let leaves = |rig: &mut Rig| {
            let sent = rig.host_sends(&answer);
            assert_eq!((1, OUTSIDE), (sent.len(), sent[0].port), "{:?}", rig.all_drops());
            assert_eq!(mac, sent[0].frame[..6]);
            assert_eq!(tagged, sent[0].frame[12..14] == [0x81, 0]);
            assert_eq!(address, rig::flow(&sent[0].frame).0.to_string());
        };
        leaves(&mut rig);
        // If a commit changes neither rules nor routes, the session keeps its uplink.
        let before = rig.live();
        for _ in 0..2 {
            let (snapshot, routes) = snapshot(&uplinks());
            rig.plane.commit(snapshot, &[routes]).unwrap();
            leaves(&mut rig);
        }
        assert_eq!(before, rig.live());
        // A client can have only one session per inside port.
        let clear = Request::Clear {
            cursor: Cursor::default(),
            filter: Filter::default(),
            ended: 0,
        };
        assert!(matches!(rig.ask(0, clear), Reply::Cleared(1)));
    }
}

#[test]
fn answer_waits_for_the_gateway_of_its_uplink() {
    let mut rig = Rig::new(uplinks());
    let syn = packet::tcp4(REMOTE, "192.0.2.1:8443").flags(flag::SYN);
    // The next hop of the reverse direction is resolved before the packet is forwarded.
    rig.send(
        UPLINK % 2,
        &syn.clone().macs(ROUTER_MAC, OUTSIDE_MAC).tag(0x8100, 30).build(),
    );
    let reply = packet::arp_reply([2, 0, 0, 0, 9, 254], "192.0.2.254", OUTSIDE_MAC, "192.0.2.1");
    let mut tagged = reply[..12].to_vec();
    tagged.extend([0x81, 0, 0, 30]);
    tagged.extend(&reply[12..]);
    let sent = rig.send(OUTSIDE, &tagged);
    assert_eq!((1, INSIDE), (sent.len(), sent[0].port), "{:?}", rig.all_drops());
}

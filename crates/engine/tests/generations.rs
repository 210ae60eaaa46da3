//! Tests of commits with existing sessions: a session is revalidated at its next packet, at a limited rate, and keeps
//! its translation if the new snapshot permits it.

use std::net::SocketAddrV4;

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, Plan, Rig, flow, plain, route, v4};
use sluice_nat::Pools;
use sluice_nat::rule::{DestinationAction, DestinationRule, Prefix, Rules};
use sluice_route::Via;
use sluice_testkit::packet::{self, Frame};
use sluice_wire::Checksums;

fn remote() -> SocketAddrV4 {
    "198.51.100.7:53".parse().unwrap()
}

fn question(port: u16) -> Frame {
    packet::udp4(SocketAddrV4::new("192.168.1.10".parse().unwrap(), port), remote()).macs(HOST_MAC, INSIDE_MAC)
}

fn commit(rig: &mut Rig, plan: &Plan) {
    let (snapshot, routes) = rig::snapshot(plan);
    rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
    rig.plane.collect();
}

fn revised(rig: &Rig) -> u64 {
    rig.plane.counters()[0].sessions_revalidated.get()
}

/// Sends one packet of each session in one burst.
fn burst(rig: &mut Rig, sessions: u16) -> usize {
    for port in 0..sessions {
        rig.wires[0].inject(INSIDE, &question(1000 + port).build(), Checksums::Unverified);
    }
    rig.round();
    rig.sent().len()
}

#[test]
fn commit_that_changes_nothing_keeps_translations_four_sessions_a_burst() {
    let mut rig = Rig::new(Plan::default());
    let publics: Vec<_> = (0..32).map(|port| rig.public(&question(1000 + port))).collect();
    commit(&mut rig, &Plan::default());
    for done in 1..=8 {
        assert_eq!(32, burst(&mut rig, 32));
        assert_eq!(4 * done, revised(&rig));
    }
    burst(&mut rig, 32);
    assert_eq!(32, revised(&rig));
    for (port, public) in publics.iter().enumerate() {
        assert_eq!(*public, rig.public(&question(1000 + port as u16)));
    }
    assert_eq!(32, rig.live());
}

#[test]
fn commit_out_of_date_for_half_a_second_decides_every_session_that_sends() {
    let mut rig = Rig::new(Plan::default());
    assert_eq!(32, (0..32).map(|port| rig.public(&question(1000 + port))).count());
    commit(&mut rig, &Plan::default());
    burst(&mut rig, 1);
    rig.pass(600);
    burst(&mut rig, 32);
    assert_eq!(32, revised(&rig));
}

#[test]
fn commit_without_the_rule_ends_sessions_at_their_next_packet() {
    let mut rig = Rig::new(Plan::default());
    let before = rig.uses(INSIDE, rig::HOST);
    let public = rig.public(&question(1000));
    rig.public(&question(1001));
    let plan = Plan {
        snapshot: |snapshot| snapshot.nat4.rules = Rules::default(),
        ..Plan::default()
    };
    commit(&mut rig, &plan);
    assert!(rig.router_sends(&packet::udp4(remote(), public)).is_empty());
    assert_eq!(vec![("unsolicited", 1)], rig.all_drops());
    assert_eq!(1, rig.live());
    // Packets from inside are forwarded according to the new rules.
    let sent = rig.host_sends(&question(1001));
    assert_eq!("192.168.1.10:1001".parse(), Ok(flow(&sent[0].frame).0));
    assert_eq!((0, before), (rig.live(), rig.uses(INSIDE, rig::HOST)));
}

#[test]
fn packets_of_one_burst_after_their_session_ended_are_decided_like_the_first() {
    let mut rig = Rig::new(Plan::default());
    rig.public(&question(1000));
    let plan = Plan {
        snapshot: |snapshot| snapshot.nat4.rules = Rules::default(),
        ..Plan::default()
    };
    commit(&mut rig, &plan);
    for _ in 0..4 {
        rig.wires[0].inject(INSIDE, &question(1000).build(), Checksums::Unverified);
    }
    rig.round();
    assert_eq!(4, rig.sent().len(), "{:?}", rig.all_drops());
    assert_eq!(0, rig.live());
}

#[test]
fn burst_of_one_flow_keeps_its_order_while_its_session_is_decided_again() {
    let mut rig = Rig::new(Plan::default());
    rig.public(&question(1000));
    commit(&mut rig, &Plan::default());
    for number in 0..20 {
        rig.wires[0].inject(
            INSIDE,
            &question(1000).payload(&[number]).build(),
            Checksums::Unverified,
        );
    }
    rig.round();
    let numbers: Vec<_> = rig.sent().iter().map(|sent| sent.frame[42]).collect();
    assert_eq!((0..20).collect::<Vec<_>>(), numbers);
}

#[test]
fn commit_that_moves_a_forwarded_port_ends_the_old_session_and_opens_the_new() {
    let forward = |target: &str| Plan {
        forwards: vec![DestinationRule {
            context: 0,
            protocol: Some(17),
            external: Prefix::host(v4("203.0.113.20")),
            ports: Some((53, 53)),
            inbound: None,
            action: DestinationAction::Host(v4(target), None),
        }],
        ..Plan::default()
    };
    let mut rig = Rig::new(forward(rig::HOST));
    rig.know(INSIDE, plain("192.168.1.99"), [2, 0, 0, 0, 1, 99]);
    let external: SocketAddrV4 = "203.0.113.20:53".parse().unwrap();
    let queried = packet::udp4(remote(), external);
    assert_eq!(rig::HOST, flow(&rig.router_sends(&queried)[0].frame).1.ip().to_string());
    commit(&mut rig, &forward("192.168.1.99"));
    assert_eq!(
        "192.168.1.99",
        flow(&rig.router_sends(&queried)[0].frame).1.ip().to_string()
    );
    // Answers of the old host no longer leave with the forwarded address as their source.
    let stale = packet::udp4("192.168.1.10:53".parse::<SocketAddrV4>().unwrap(), remote());
    let sent = rig.host_sends(&stale);
    assert!(sent.iter().all(|sent| flow(&sent.frame).0 != external));
    rig.seconds(310);
    assert_eq!(0, rig.live());
}

#[test]
fn commit_of_a_route_moves_sessions_to_its_gateway_with_their_translation() {
    let mut rig = Rig::new(Plan::default());
    let other = [2, 0, 0, 0, 2, 253];
    rig.know(OUTSIDE, plain("203.0.113.253"), other);
    let public = rig.public(&question(1000));
    let old = rig.uses(OUTSIDE, "203.0.113.254");
    let via = Via::Gateway {
        address: plain("203.0.113.253"),
        interface: None,
    };
    let plan = Plan {
        routes: vec![route("198.51.100.0", 24, via)],
        ..Plan::default()
    };
    commit(&mut rig, &plan);
    let sent = rig.host_sends(&question(1000));
    assert_eq!(other, sent[0].frame[..6]);
    assert_eq!(public, flow(&sent[0].frame).0);
    assert_eq!(old - 1, rig.uses(OUTSIDE, "203.0.113.254"));
    assert_eq!(1, rig.live());
}

#[test]
fn commit_without_pools_ends_translated_sessions_and_the_first_ones_can_come_back() {
    let mut rig = Rig::new(Plan::default());
    let public = rig.public(&question(1000));
    let without = Plan {
        snapshot: |snapshot| (snapshot.nat4.rules, snapshot.nat4.pools) = (Rules::default(), Pools::default()),
        ..Plan::default()
    };
    commit(&mut rig, &without);
    rig.host_sends(&question(1000));
    assert_eq!(0, rig.live());
    while !rig.plane.is_migrated() {
        rig.round();
    }
    commit(&mut rig, &Plan::default());
    assert_eq!(public, rig.public(&question(1000)));
}

#[test]
fn commit_of_an_interface_more_is_refused() {
    let mut rig = Rig::new(Plan::default());
    let (mut snapshot, routes) = rig::snapshot(&Plan::default());
    let mut third = snapshot.interfaces[1].clone();
    third.tags = vec![sluice_wire::vlan::Tag::vlan(7)];
    snapshot.interfaces.push(third);
    assert!(rig.plane.commit(snapshot, std::slice::from_ref(&routes)).is_err());
}

//! Tests of filter rules that match MAC addresses, DSCP and ECN, or marks.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, Plan, Rig};
use sluice_engine::snapshot::Snapshot;
use sluice_engine::worker::request::Filter;
use sluice_filter::{
    Action, CompiledRule, Conditions, Counters, Field, Filters, MacCondition, MatcherKind, Rule, Settings, Verdict,
};
use sluice_filter::{Mark, MarkCondition};
use sluice_testkit::packet::{self, Frame};
use sluice_wire::checksum;

const ACCEPT: Action = Action::Decide(Verdict::Accept);
const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 9, 9];

fn filters(sessions: bool, rules: &[CompiledRule]) -> Arc<Filters> {
    let settings = Settings {
        kind: MatcherKind::Best,
        default: Verdict::Drop,
        sessions,
        workers: 2,
    };
    Arc::new(Filters::new(rules, &settings, Counters::new(rules.len())).unwrap())
}

fn rule(action: Action, conditions: Conditions) -> CompiledRule {
    CompiledRule {
        action,
        v4: vec![Rule::any()],
        v6: vec![Rule::any()],
        applications: Vec::new(),
        conditions,
    }
}

fn macs(not: bool, source: [u8; 6]) -> Conditions {
    let source = MacCondition { not, of: vec![source] };
    Conditions {
        macs: [source, MacCondition::default()],
        ..Conditions::default()
    }
}

fn host(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(192, 168, 1, 10), port)
}

fn server() -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 7), 53)
}

fn only_the_host(snapshot: &mut Snapshot) {
    snapshot.filter_by(filters(true, &[rule(ACCEPT, macs(false, HOST_MAC))]));
}

fn commit(rig: &mut Rig, translate: bool, filter: fn(&mut Snapshot)) {
    let plan = Plan {
        translate,
        snapshot: filter,
        ..Plan::default()
    };
    let (snapshot, routes) = rig::snapshot(&plan);
    rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
}

/// Number of frames that leave after the host with this source MAC has sent a frame.
fn sends(rig: &mut Rig, source: [u8; 6], frame: &Frame) -> usize {
    let frame = frame.clone().macs(source, INSIDE_MAC).build();
    rig.send(INSIDE, &frame).len()
}

#[test]
fn filter_by_mac_address_opens_sessions_of_that_station_alone() {
    for translate in [false, true] {
        let mut rig = Rig::new(Plan {
            translate,
            snapshot: only_the_host,
            ..Plan::default()
        });
        let flow = |port| packet::udp4(host(port), server());
        assert_eq!(1, sends(&mut rig, HOST_MAC, &flow(4_000)), "{:?}", rig.all_drops());
        assert_eq!(0, sends(&mut rig, OTHER_MAC, &flow(4_001)));
        // The filter checks the MAC address only for the first packet of a session.
        assert_eq!(1, sends(&mut rig, OTHER_MAC, &flow(4_000)));
        assert_eq!((1, 1), (rig.live(), rig.drops("filter-default")));
    }
}

#[test]
fn filter_by_mac_address_is_asked_again_by_the_neighbour_that_answers_go_to() {
    for translate in [false, true] {
        let mut rig = Rig::new(Plan {
            translate,
            snapshot: only_the_host,
            ..Plan::default()
        });
        let frame = packet::udp4(host(4_000), server());
        assert_eq!(1, sends(&mut rig, HOST_MAC, &frame));
        commit(&mut rig, translate, only_the_host);
        assert_eq!(1, sends(&mut rig, HOST_MAC, &frame), "{:?}", rig.all_drops());
        assert_eq!(1, rig.live());
        commit(&mut rig, translate, |snapshot| {
            snapshot.filter_by(filters(true, &[rule(ACCEPT, macs(true, HOST_MAC))]));
        });
        assert_eq!(0, sends(&mut rig, HOST_MAC, &frame));
        assert_eq!(0, rig.live(), "{:?}", rig.all_drops());
    }
}

/// Replaces the second byte (DSCP and ECN) of a frame's IPv4 header.
fn with_service(frame: &Frame, service: u8) -> Vec<u8> {
    let mut frame = frame.clone().macs(HOST_MAC, INSIDE_MAC).build();
    frame[15] = service;
    frame[24..26].fill(0);
    let sum = checksum::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn filter_tells_code_points_of_service_and_of_congestion_apart() {
    fn marked(snapshot: &mut Snapshot) {
        let marked = Rule::any()
            .with(Field::Ecn, 3, 3)
            .and_then(|rule| rule.with(Field::Dscp, 46, 46))
            .unwrap();
        let written = CompiledRule {
            v4: vec![marked],
            ..rule(ACCEPT, Conditions::default())
        };
        snapshot.filter_by(filters(false, &[written]));
    }
    let mut rig = Rig::new(Plan {
        translate: false,
        snapshot: marked,
        ..Plan::default()
    });
    let frame = packet::udp4(host(4_000), server());
    let passes = [46 << 2 | 3, 46 << 2 | 2, 45 << 2 | 3, 3].map(|service| {
        let frame = with_service(&frame, service);
        rig.send(INSIDE, &frame).len()
    });
    assert_eq!([1, 0, 0, 0], passes);
}

#[test]
fn filter_sees_the_ttl_that_a_packet_came_in_with() {
    fn near(snapshot: &mut Snapshot) {
        let near = CompiledRule {
            v4: vec![Rule::any().with(Field::Ttl, 9, 64).unwrap()],
            v6: vec![Rule::any().with(Field::Ttl, 9, 64).unwrap()],
            ..rule(ACCEPT, Conditions::default())
        };
        snapshot.filter_by(filters(false, &[near]));
    }
    let mut rig = Rig::new(Plan {
        translate: false,
        snapshot: near,
        ..Plan::default()
    });
    let address = |text: &str, port| std::net::SocketAddrV6::new(text.parse().unwrap(), port, 0, 0);
    let v6 = packet::udp6(address("2001:db8:1::10", 4_000), address("2001:db8:9::1", 53));
    for (ttl, passes) in [(8, 0), (9, 1), (64, 1), (65, 0), (255, 0)] {
        let mut frame = packet::udp4(host(4_000), server()).macs(HOST_MAC, INSIDE_MAC).build();
        frame[22] = ttl;
        frame[24..26].fill(0);
        let sum = checksum::checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(passes, rig.send(INSIDE, &frame).len(), "IPv4, {ttl}");
        let mut frame = v6.clone().macs(HOST_MAC, INSIDE_MAC).build();
        frame[21] = ttl;
        assert_eq!(passes, rig.send(INSIDE, &frame).len(), "IPv6, {ttl}");
    }
}

fn sets(value: u32, mask: u32) -> Action {
    Action::SetMark(Mark { value, mask })
}

fn is_marked(value: u32, mask: u32) -> Conditions {
    let mark = Mark { value, mask };
    Conditions {
        mark: Some(MarkCondition { not: false, mark }),
        ..Conditions::default()
    }
}

/// Rules that mark packets with DSCP 46 (expedited forwarding), and accept marked packets.
fn marks(snapshot: &mut Snapshot) {
    let expedited = CompiledRule {
        v4: vec![Rule::any().with(Field::Dscp, 46, 46).unwrap()],
        ..rule(sets(0x10, 0xf0), Conditions::default())
    };
    let one = rule(sets(0x1, 0x1), is_marked(0x10, 0xf0));
    snapshot.filter_by(filters(true, &[expedited, one, rule(ACCEPT, is_marked(0x11, 0xff))]));
}

#[test]
fn filter_marks_sessions_and_later_rules_match_the_mark() {
    for translate in [false, true] {
        let mut rig = Rig::new(Plan {
            translate,
            snapshot: marks,
            ..Plan::default()
        });
        let frame = |port| packet::udp4(host(port), server());
        assert_eq!(1, rig.send(INSIDE, &with_service(&frame(4_000), 46 << 2)).len());
        assert_eq!(0, rig.send(INSIDE, &with_service(&frame(4_001), 45 << 2)).len());
        assert_eq!([0x11], *shown(&mut rig));
        // Later packets of the session are not filtered.
        assert_eq!(1, sends(&mut rig, HOST_MAC, &frame(4_000)));
        // When the session is filtered again, its mark still matches, even if its packets now have a different DSCP.
        commit(&mut rig, translate, marks);
        assert_eq!(1, sends(&mut rig, HOST_MAC, &frame(4_000)), "{:?}", rig.all_drops());
        assert_eq!([0x11], *shown(&mut rig));
        commit(&mut rig, translate, |snapshot| {
            snapshot.filter_by(filters(true, &[rule(ACCEPT, is_marked(0x12, 0xff))]));
        });
        assert_eq!(0, sends(&mut rig, HOST_MAC, &frame(4_000)));
        assert_eq!(0, rig.live());
    }
}

fn shown(rig: &mut Rig) -> Vec<u32> {
    let sessions = rig.sessions(Filter::default());
    sessions.iter().map(|session| session.mark).collect()
}

#[test]
fn filter_gives_no_mark_to_the_session_that_comes_behind_one_with_a_mark() {
    fn one_port(snapshot: &mut Snapshot) {
        let marked = CompiledRule {
            v4: vec![Rule::any().with(Field::SourcePort, 4_000, 4_000).unwrap()],
            ..rule(sets(7, u32::MAX), Conditions::default())
        };
        snapshot.filter_by(filters(true, &[marked, rule(ACCEPT, Conditions::default())]));
    }
    let mut rig = Rig::new(Plan {
        translate: false,
        snapshot: one_port,
        ..Plan::default()
    });
    assert_eq!(1, sends(&mut rig, HOST_MAC, &packet::udp4(host(4_000), server())));
    assert_eq!([7], *shown(&mut rig));
    rig.seconds(1_000);
    assert_eq!(0, rig.live());
    assert_eq!(1, sends(&mut rig, HOST_MAC, &packet::udp4(host(4_001), server())));
    assert_eq!([0], *shown(&mut rig));
}

fn remarks(sessions: bool) -> fn(&mut Snapshot) {
    fn by(snapshot: &mut Snapshot, sessions: bool) {
        let rules = [
            rule(Action::SetDscp(10), Conditions::default()),
            CompiledRule {
                v4: vec![Rule::any().with(Field::Protocol, 17, 17).unwrap()],
                v6: vec![Rule::any().with(Field::Protocol, 17, 17).unwrap()],
                ..rule(Action::SetDscp(46), Conditions::default())
            },
            rule(ACCEPT, Conditions::default()),
        ];
        snapshot.filter_by(filters(sessions, &rules));
    }
    match sessions {
        true => |snapshot| by(snapshot, true),
        false => |snapshot| by(snapshot, false),
    }
}

/// The second byte (DSCP and ECN) of the IPv4 header of the sent frame, which must be valid.
fn service(sent: &[sluice_engine::packet::io::memory::Sent]) -> u8 {
    assert_eq!(1, sent.len());
    assert!(rig::is_valid(&sent[0].frame), "{:?}", sent[0].frame);
    sent[0].frame[15]
}

#[test]
fn filter_sets_the_code_point_of_all_packets_of_a_session_in_its_direction() {
    for translate in [false, true] {
        let mut rig = Rig::new(Plan {
            translate,
            snapshot: remarks(true),
            ..Plan::default()
        });
        let frame = packet::udp4(host(4_000), server());
        let public = rig.public(&frame);
        for was in [3, 12 << 2 | 2, 46 << 2] {
            // The ECN bits of the packet are not changed.
            let sent = rig.send(INSIDE, &with_service(&frame, was));
            assert_eq!(46 << 2 | was & 3, service(&sent));
        }
        let answers = rig.router_sends(&packet::udp4(server(), public));
        assert_eq!(0, service(&answers));
        // Existing sessions keep their DSCP after a commit. New sessions get no DSCP if the rules no longer set one.
        commit(&mut rig, translate, |snapshot| {
            snapshot.filter_by(filters(true, &[rule(ACCEPT, Conditions::default())]));
        });
        assert_eq!(46 << 2, service(&rig.send(INSIDE, &with_service(&frame, 0))));
        let other = with_service(&packet::udp4(host(4_001), server()), 12 << 2);
        assert_eq!(12 << 2, service(&rig.send(INSIDE, &other)));
        rig.seconds(1_000);
        assert_eq!(0, rig.live());
        assert_eq!(0, service(&rig.send(INSIDE, &with_service(&frame, 0))));
    }
}

#[test]
fn filter_sets_the_code_point_packet_by_packet() {
    let mut rig = Rig::new(Plan {
        translate: false,
        snapshot: remarks(false),
        ..Plan::default()
    });
    let frame = packet::udp4(host(4_000), server());
    assert_eq!(46 << 2 | 1, service(&rig.send(INSIDE, &with_service(&frame, 1))));
    let echo = packet::icmp4_echo(*host(0).ip(), *server().ip(), 7, 1);
    assert_eq!(10 << 2, service(&rig.send(INSIDE, &with_service(&echo, 46 << 2))));
    assert_eq!(
        46 << 2,
        service(&rig.router_sends(&packet::udp4(server(), host(4_000))))
    );
    assert_eq!(0, rig.live());
}

#[test]
fn filter_sets_the_code_point_of_ipv6() {
    let mut rig = Rig::new(Plan {
        translate: false,
        snapshot: remarks(true),
        ..Plan::default()
    });
    let address = |text: &str, port| std::net::SocketAddrV6::new(text.parse().unwrap(), port, 0, 0);
    let frame = packet::udp6(address("2001:db8:1::10", 4_000), address("2001:db8:9::1", 53));
    let mut frame = frame.macs(HOST_MAC, INSIDE_MAC).build();
    frame[14..16].copy_from_slice(&[0x60 | 0x0f, 0xf5]);
    for _ in 0..2 {
        let sent = rig.send(INSIDE, &frame);
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        // The traffic class with DSCP 46 and ECN 3 lies between the version and the flow label.
        assert_eq!([0x6b, 0xb5], sent[0].frame[14..16]);
    }
}

#[test]
fn filter_sets_congestion_and_leaves_the_code_point_of_service() {
    fn clears(snapshot: &mut Snapshot, sessions: bool) {
        let rules = [
            rule(Action::SetEcn(0), Conditions::default()),
            CompiledRule {
                v4: vec![Rule::any().with(Field::Dscp, 12, 12).unwrap()],
                ..rule(Action::SetDscp(46), Conditions::default())
            },
            rule(ACCEPT, Conditions::default()),
        ];
        snapshot.filter_by(filters(sessions, &rules));
    }
    let by_session: fn(&mut Snapshot) = |snapshot| clears(snapshot, true);
    let by_packet: fn(&mut Snapshot) = |snapshot| clears(snapshot, false);
    for (translate, snapshot) in [(false, by_session), (true, by_session), (false, by_packet)] {
        let mut rig = Rig::new(Plan {
            translate,
            snapshot,
            ..Plan::default()
        });
        let frame = packet::udp4(host(4_000), server());
        for ecn in 0..4 {
            let sent = rig.send(INSIDE, &with_service(&frame, 10 << 2 | ecn));
            assert_eq!(10 << 2, service(&sent), "{ecn}");
        }
        let other = packet::udp4(host(4_001), server());
        assert_eq!(46 << 2, service(&rig.send(INSIDE, &with_service(&other, 12 << 2 | 3))));
    }
}

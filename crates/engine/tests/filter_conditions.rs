//! Rules of the packet filter about what stands beside addresses and ports: MAC addresses, congestion.

mod rig;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use rig::{HOST_MAC, INSIDE, INSIDE_MAC, Plan, Rig};
use sluice_engine::policy::Policy;
use sluice_filter::{Action, Conditions, Counters, Field, Filters, Kind, Macs, Rule, Settings, Verdict, Written};
use sluice_testkit::packet::{self, Frame};
use sluice_wire::checksum;

const ACCEPT: Action = Action::Decide(Verdict::Accept);
const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 9, 9];

fn filters(sessions: bool, rules: &[Written]) -> Arc<Filters> {
    let settings = Settings {
        kind: Kind::Best,
        default: Verdict::Drop,
        sessions,
        workers: 2,
    };
    Arc::new(Filters::new(rules, &settings, Counters::new(rules.len())).unwrap())
}

fn rule(action: Action, conditions: Conditions) -> Written {
    Written {
        action,
        four: vec![Rule::any()],
        six: vec![Rule::any()],
        applications: Vec::new(),
        conditions,
    }
}

fn macs(not: bool, source: [u8; 6]) -> Conditions {
    let source = Macs { not, of: vec![source] };
    Conditions {
        macs: [source, Macs::default()],
    }
}

fn host(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(192, 168, 1, 10), port)
}

fn server() -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 7), 53)
}

fn only_the_host(policy: &mut Policy) {
    policy.filter_by(filters(true, &[rule(ACCEPT, macs(false, HOST_MAC))]));
}

fn commit(rig: &mut Rig, translate: bool, filter: fn(&mut Policy)) {
    let plan = Plan {
        translate,
        policy: filter,
        ..Plan::default()
    };
    let (policy, routes) = rig::policy(&plan);
    rig.plane.commit(policy, std::slice::from_ref(&routes)).unwrap();
}

/// What a station sends.
fn sends(rig: &mut Rig, source: [u8; 6], frame: &Frame) -> usize {
    let frame = frame.clone().macs(source, INSIDE_MAC).build();
    rig.send(INSIDE, &frame).len()
}

#[test]
fn filter_by_mac_address_opens_sessions_of_that_station_alone() {
    for translate in [false, true] {
        let mut rig = Rig::new(Plan {
            translate,
            policy: only_the_host,
            ..Plan::default()
        });
        let flow = |port| packet::udp4(host(port), server());
        assert_eq!(1, sends(&mut rig, HOST_MAC, &flow(4_000)), "{:?}", rig.all_drops());
        assert_eq!(0, sends(&mut rig, OTHER_MAC, &flow(4_001)));
        // The session is the flow's, whoever sends it on.
        assert_eq!(1, sends(&mut rig, OTHER_MAC, &flow(4_000)));
        assert_eq!((1, 1), (rig.live(), rig.drops("filter-default") as u64));
    }
}

#[test]
fn filter_by_mac_address_is_asked_again_by_the_neighbour_that_answers_go_to() {
    for translate in [false, true] {
        let mut rig = Rig::new(Plan {
            translate,
            policy: only_the_host,
            ..Plan::default()
        });
        let frame = packet::udp4(host(4_000), server());
        assert_eq!(1, sends(&mut rig, HOST_MAC, &frame));
        commit(&mut rig, translate, only_the_host);
        assert_eq!(1, sends(&mut rig, HOST_MAC, &frame), "{:?}", rig.all_drops());
        assert_eq!(1, rig.live());
        commit(&mut rig, translate, |policy| {
            policy.filter_by(filters(true, &[rule(ACCEPT, macs(true, HOST_MAC))]));
        });
        assert_eq!(0, sends(&mut rig, HOST_MAC, &frame));
        assert_eq!(0, rig.live(), "{:?}", rig.all_drops());
    }
}

/// A frame with another second byte of its IPv4 header.
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
    fn marked(policy: &mut Policy) {
        let marked = Rule::any()
            .with(Field::Ecn, 3, 3)
            .and_then(|rule| rule.with(Field::Dscp, 46, 46))
            .unwrap();
        let written = Written {
            four: vec![marked],
            ..rule(ACCEPT, Conditions::default())
        };
        policy.filter_by(filters(false, &[written]));
    }
    let mut rig = Rig::new(Plan {
        translate: false,
        policy: marked,
        ..Plan::default()
    });
    let frame = packet::udp4(host(4_000), server());
    let passes = [46 << 2 | 3, 46 << 2 | 2, 45 << 2 | 3, 3].map(|service| {
        let frame = with_service(&frame, service);
        rig.send(INSIDE, &frame).len()
    });
    assert_eq!([1, 0, 0, 0], passes);
}

//! Tests of unsolicited SYNs from outside (RFC 5382, REQ-4). A SYN gets no answer for six seconds. It is then rejected,
//! unless the inside host has opened the same connection.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::rig::{self, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig};
use sluice_engine::worker::request::Filter;
use sluice_nat::{Behaviour, Filtering};
use sluice_testkit::packet::{self, Frame, flag};
use sluice_wire::Checksums;

const GATEWAY: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

fn remote() -> SocketAddrV4 {
    "198.51.100.7:80".parse().unwrap()
}

fn inside() -> SocketAddrV4 {
    "192.168.1.10:40000".parse().unwrap()
}

fn plan() -> Plan {
    Plan {
        unsolicited_syns: 64,
        ..Plan::default()
    }
}

/// A SYN to an outside port that is not allocated.
fn syn(port: u16) -> Frame {
    packet::tcp4(remote(), SocketAddrV4::new(rig::POOL, port)).flags(flag::SYN)
}

fn parked(rig: &mut Rig) -> usize {
    rig.workers.iter_mut().map(|worker| worker.io_mut().parked()).sum()
}

/// Checks that a port-unreachable error for a SYN was sent, and nothing else.
#[track_caller]
fn assert_refused(rig: &Rig, sent: &[rig::Sent], cause: &Frame) {
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(OUTSIDE, sent[0].port);
    let frame = &sent[0].frame;
    assert!(rig::is_valid(frame));
    assert_eq!([ROUTER_MAC, OUTSIDE_MAC].concat(), frame[..12]);
    assert_eq!([3, 3], frame[34..36]);
    assert_eq!([GATEWAY.octets(), remote().ip().octets()].concat(), frame[26..34]);
    assert_eq!(cause.build()[14..], frame[42..]);
}

#[test]
fn rfc5382_req4_unsolicited_syn_is_refused_after_six_seconds_and_not_before() {
    for workers in [1, 4] {
        let mut rig = Rig::new(Plan { workers, ..plan() });
        let frame = syn(5000);
        assert!(rig.router_sends(&frame).is_empty());
        rig.pass(5_900);
        assert!(rig.sent().is_empty());
        assert!(rig.all_drops().is_empty());
        assert_eq!(1, parked(&mut rig));
        rig.pass(200);
        let sent = rig.sent();
        assert_refused(&rig, &sent, &frame);
        assert_eq!(vec![("unsolicited", 1)], rig.all_drops());
        assert_eq!(0, parked(&mut rig));
    }
}

#[test]
fn rfc5382_req4_syn_is_dropped_silently_once_its_connection_is_opened_from_inside() {
    let dependent = || Plan {
        behaviour: Behaviour::ADDRESS_AND_PORT_DEPENDENT,
        ..plan()
    };
    let ours = packet::tcp4(inside(), remote()).flags(flag::SYN).numbers(100, 0);
    // The allocated port is a function of the flow, so a second gateway with the same configuration predicts the port.
    let public = Rig::new(dependent()).public(&ours);
    let mut rig = Rig::new(dependent());
    let theirs = packet::tcp4(remote(), public).flags(flag::SYN).numbers(200, 0);
    assert!(rig.router_sends(&theirs).is_empty());
    rig.pass(2_000);
    assert_eq!(public, rig.public(&ours));
    rig.pass(5_000);
    assert!(rig.sent().is_empty());
    assert_eq!(vec![("unsolicited-syn-overtaken", 1)], rig.all_drops());
    assert_eq!(0, parked(&mut rig));
}

#[test]
fn rfc5382_req2a_simultaneous_open_whose_first_syn_came_too_early_is_established() {
    let dependent = || Plan {
        behaviour: Behaviour::ADDRESS_AND_PORT_DEPENDENT,
        ..plan()
    };
    let ours = packet::tcp4(inside(), remote()).numbers(100, 0);
    let public = Rig::new(dependent()).public(&ours.clone().flags(flag::SYN));
    let mut rig = Rig::new(dependent());
    let theirs = packet::tcp4(remote(), public).flags(flag::SYN).numbers(200, 0);
    assert!(rig.router_sends(&theirs).is_empty());
    assert_eq!(public, rig.public(&ours.clone().flags(flag::SYN)));
    // The retransmitted SYN is answered like any other SYN.
    assert_eq!(1, rig.router_sends(&theirs).len());
    let answer = ours.numbers(100, 201).flags(flag::SYN | flag::ACK);
    assert_eq!(1, rig.host_sends(&answer).len());
    let answer = theirs.numbers(200, 101).flags(flag::SYN | flag::ACK);
    assert_eq!(1, rig.router_sends(&answer).len());
    assert_eq!(Some("ESTABLISHED"), rig.sessions(Filter::default())[0].state);
    rig.pass(7_000);
    assert!(rig.sent().is_empty());
}

#[test]
fn rfc5382_req4_filtered_syn_waits_and_is_refused_too() {
    let mut rig = Rig::new(Plan {
        behaviour: Behaviour {
            filtering: Filtering::AddressDependent,
            ..Behaviour::default()
        },
        ..plan()
    });
    let elsewhere: SocketAddrV4 = "198.51.100.99:80".parse().unwrap();
    let public = rig.public(&packet::tcp4(inside(), elsewhere).flags(flag::SYN));
    let frame = packet::tcp4(remote(), public).flags(flag::SYN);
    assert!(rig.router_sends(&frame).is_empty());
    rig.pass(6_100);
    let sent = rig.sent();
    assert_refused(&rig, &sent, &frame);
    assert_eq!(vec![("filtered", 1)], rig.all_drops());
}

#[test]
fn syn_sent_again_while_it_waits_is_dropped_and_answered_once() {
    let mut rig = Rig::new(plan());
    for wait in [1_000, 2_000, 1_000] {
        assert!(rig.router_sends(&syn(5000)).is_empty());
        rig.pass(wait);
    }
    assert_eq!(1, parked(&mut rig));
    assert_eq!(vec![("unsolicited", 2)], rig.all_drops());
    rig.pass(2_100);
    let sent = rig.sent();
    assert_refused(&rig, &sent, &syn(5000));
    // The next SYN is parked again.
    assert!(rig.router_sends(&syn(5000)).is_empty());
    assert_eq!(1, parked(&mut rig));
}

#[test]
fn syns_beyond_those_that_may_wait_are_dropped_silently_by_name() {
    for workers in [1, 4] {
        let mut rig = Rig::new(Plan { workers, ..plan() });
        for port in 2000..3000 {
            let frame = syn(port).macs(ROUTER_MAC, OUTSIDE_MAC).build();
            rig.wires[usize::from(port) % workers].inject(OUTSIDE, &frame, Checksums::Unverified);
            if port % 32 == 0 {
                rig.round();
            }
        }
        rig.round();
        assert!(rig.sent().is_empty());
        assert_eq!(64, parked(&mut rig));
        assert_eq!(vec![("unsolicited-syns-full", 936)], rig.all_drops());
        rig.pass(6_100);
        assert_eq!(64, rig.sent().len());
        assert_eq!(0, parked(&mut rig));
        assert!(rig.router_sends(&syn(4000)).is_empty());
        assert_eq!(1, parked(&mut rig));
        assert_eq!(936, rig.drops("unsolicited-syns-full"));
    }
}

#[test]
fn syns_that_wait_are_answered_no_faster_than_icmp_errors_may_be_sent() {
    let mut rig = Rig::new(Plan {
        unsolicited_syns: 4096,
        ..plan()
    });
    for port in 2000..2500 {
        assert!(rig.router_sends(&syn(port)).is_empty());
    }
    assert_eq!(500, parked(&mut rig));
    rig.pass(6_000);
    let errors = rig.sent().len();
    assert!((100..200).contains(&errors), "{errors}");
    assert_eq!(vec![("unsolicited", 500)], rig.all_drops());
}

#[test]
fn rfc5382_req4a_syn_is_dropped_at_once_where_unsolicited_ones_are_not_answered() {
    let silent = Plan {
        snapshot: |snapshot| snapshot.answers_syns = false,
        ..plan()
    };
    let none = Plan {
        unsolicited_syns: 0,
        ..plan()
    };
    for plan in [silent, none] {
        let mut rig = Rig::new(plan);
        assert!(rig.router_sends(&syn(5000)).is_empty());
        assert_eq!(vec![("unsolicited", 1)], rig.all_drops());
        rig.pass(7_000);
        assert!(rig.sent().is_empty());
    }
}

#[test]
fn segments_other_than_a_syn_alone_and_other_protocols_do_not_wait() {
    let mut rig = Rig::new(plan());
    let public = SocketAddrV4::new(rig::POOL, 5000);
    for flags in [flag::ACK, flag::SYN | flag::ACK, flag::RST, flag::FIN | flag::ACK] {
        assert!(
            rig.router_sends(&packet::tcp4(remote(), public).flags(flags))
                .is_empty()
        );
    }
    assert!(rig.router_sends(&packet::udp4(remote(), public)).is_empty());
    assert_eq!(vec![("unsolicited", 5)], rig.all_drops());
    assert_eq!(0, parked(&mut rig));
}

#[test]
fn rfc5382_req4_wait_is_as_long_as_the_pool_says() {
    let mut rig = Rig::new(Plan {
        change_pool: |pool| pool.timeouts.tcp_incoming_syn = 10,
        ..plan()
    });
    assert!(rig.router_sends(&syn(5000)).is_empty());
    rig.pass(9_900);
    assert!(rig.sent().is_empty());
    rig.pass(200);
    let sent = rig.sent();
    assert_refused(&rig, &sent, &syn(5000));
}

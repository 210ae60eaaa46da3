//! Tests of filter rules that accept packets without tracking, combined with stateful rules.

use std::net::{Ipv4Addr, SocketAddrV4, SocketAddrV6};
use std::sync::Arc;

use crate::rig::{self, INSIDE, OUTSIDE, Plan, Rig, is_valid};
use sluice_engine::snapshot::Snapshot;
use sluice_filter::{Action, CompiledRule, Counters, Field, Filters, MatcherKind, Rule, Settings, Verdict};
use sluice_testkit::packet::{self, Frame};
use sluice_wire::tcp::flag::{ACK, SYN};

const ACCEPT: Action = Action::Decide(Verdict::Accept);
const UNTRACKED: Action = Action::Decide(Verdict::AcceptUntracked);

/// A rule for both families that matches a source or destination port.
fn port(action: Action, field: Field, port: u32) -> CompiledRule {
    CompiledRule {
        action,
        v4: vec![Rule::any().with(field, port, port).unwrap()],
        v6: vec![Rule::any().with(field, port, port).unwrap()],
        applications: Vec::new(),
        conditions: Default::default(),
    }
}

fn filter(snapshot: &mut Snapshot, rules: &[CompiledRule]) {
    let settings = Settings {
        kind: MatcherKind::Best,
        default: Verdict::Drop,
        sessions: true,
        workers: 2,
    };
    let filters = Filters::new(rules, &settings, Counters::new(rules.len())).unwrap();
    snapshot.filter_by(Arc::new(filters));
}

/// Rules that accept three ports. Queries to port 53 are accepted untracked, but not their answers; port 80 is accepted
/// with sessions; port 123 is accepted untracked in both directions.
fn mixed(snapshot: &mut Snapshot) {
    filter(
        snapshot,
        &[
            port(UNTRACKED, Field::DestinationPort, 53),
            port(ACCEPT, Field::DestinationPort, 80),
            port(UNTRACKED, Field::DestinationPort, 123),
            port(UNTRACKED, Field::SourcePort, 123),
        ],
    );
}

fn by_session(snapshot: &mut Snapshot) {
    filter(snapshot, &[port(ACCEPT, Field::DestinationPort, 53)]);
}

fn rig(translate: bool, snapshot: fn(&mut Snapshot)) -> Rig {
    Rig::new(Plan {
        translate,
        snapshot,
        ..Plan::default()
    })
}

fn commit(rig: &mut Rig, snapshot: fn(&mut Snapshot)) {
    let plan = Plan {
        translate: false,
        snapshot,
        ..Plan::default()
    };
    let (snapshot, routes) = rig::snapshot(&plan);
    rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
}

fn packets(rig: &Rig, place: u32) -> u64 {
    let filters = rig.plane.snapshot().filter.as_ref().unwrap();
    filters.counters.of(place).unwrap().packets()
}

fn host() -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(192, 168, 1, 10), 4_000)
}

fn server(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 7), port)
}

#[test]
fn untracked_rule_is_asked_about_every_packet_and_makes_no_session() {
    let mut rig = rig(false, mixed);
    let question = packet::udp4(host(), server(53));
    for _ in 0..3 {
        let sent = rig.host_sends(&question);
        assert_eq!(OUTSIDE, sent[0].port);
        assert!(is_valid(&sent[0].frame));
    }
    assert_eq!((3, 0), (packets(&rig, 0), rig.live()));
    // The answer is filtered like any packet without a session, and no rule accepts it.
    assert!(rig.router_sends(&packet::udp4(server(53), host())).is_empty());
    assert_eq!(1, rig.drops("filter-default"));
    // A rule accepts the answers from port 123 without a session.
    assert_eq!(1, rig.host_sends(&packet::udp4(host(), server(123))).len());
    let sent = rig.router_sends(&packet::udp4(server(123), host()));
    assert_eq!(INSIDE, sent[0].port);
    assert_eq!((1, 1, 0), (packets(&rig, 2), packets(&rig, 3), rig.live()));
}

#[test]
fn untracked_rule_leaves_sessions_to_the_others_of_its_list() {
    let mut rig = rig(false, mixed);
    let tcp = |port| packet::tcp4(host(), server(port));
    assert_eq!(1, rig.host_sends(&tcp(80).flags(SYN)).len());
    let answer = packet::tcp4(server(80), host()).flags(SYN | ACK);
    assert_eq!(INSIDE, rig.router_sends(&answer)[0].port);
    assert_eq!((1, 1), (packets(&rig, 1), rig.live()));
    // An untracked rule accepts a midstream packet, but a stateful rule does not.
    assert_eq!(1, rig.host_sends(&tcp(53).flags(ACK)).len());
    let other = packet::tcp4(SocketAddrV4::new(*host().ip(), 4_001), server(80)).flags(ACK);
    assert!(rig.host_sends(&other).is_empty());
    assert_eq!(1, rig.live());
}

#[test]
fn untracked_rule_lets_errors_pass_by_their_own_rules() {
    let mut rig = rig(false, |snapshot| {
        let errors = CompiledRule {
            v4: vec![Rule::any().with(Field::Message, 0x300, 0x3ff).unwrap()],
            v6: Vec::new(),
            ..port(ACCEPT, Field::DestinationPort, 0)
        };
        filter(snapshot, &[port(UNTRACKED, Field::DestinationPort, 53), errors]);
    });
    let sent = rig.host_sends(&packet::udp4(host(), server(53)));
    let error = |kind| packet::icmp4_error(*server(0).ip(), *host().ip(), kind, 0, &sent[0].frame, 28);
    assert_eq!(INSIDE, rig.router_sends(&error(3))[0].port);
    assert!(rig.router_sends(&error(11)).is_empty());
    assert_eq!((1, 0), (packets(&rig, 1), rig.live()));
}

#[test]
fn untracked_rule_gives_way_to_translation() {
    let mut rig = rig(true, mixed);
    let question = packet::udp4(host(), server(53));
    let public = rig.public(&question);
    assert_ne!(host(), public);
    assert_eq!(1, rig.live());
    let answers = rig.router_sends(&packet::udp4(server(53), public));
    assert_eq!(INSIDE, answers[0].port);
    // Packets of the session pass without an evaluation of the filter.
    assert_eq!(1, rig.host_sends(&question).len());
    assert_eq!(1, packets(&rig, 0));
}

#[test]
fn untracked_rule_ends_the_sessions_that_a_commit_takes_to_it() {
    let mut rig = rig(false, by_session);
    let question = packet::udp4(host(), server(53));
    assert_eq!(1, rig.host_sends(&question).len());
    assert_eq!(1, rig.live());
    commit(&mut rig, mixed);
    (0..2).for_each(|_| assert_eq!(1, rig.host_sends(&question).len()));
    assert_eq!((2, 0), (packets(&rig, 0), rig.live()));
    // After the stateful rules were committed, the flow has a session again.
    commit(&mut rig, by_session);
    (0..2).for_each(|_| assert_eq!(1, rig.host_sends(&question).len()));
    assert_eq!((1, 1), (packets(&rig, 0), rig.live()));
}

#[test]
fn untracked_rule_is_asked_about_later_fragments_with_the_ports_of_their_first() {
    let address = |text: &str, port| SocketAddrV6::new(text.parse().unwrap(), port, 0, 0);
    let v6 = packet::udp6(address("2001:db8:1::10", 4_000), address("2001:db8:9::1", 53));
    let mut rig = rig(false, mixed);
    let sends = |rig: &mut Rig, frame: &Frame, number| {
        let first = frame.clone().payload(&[1; 72]).fragment(0, true, number);
        let later = frame.clone().payload(&[1; 64]).fragment(10, false, number);
        [first, later].map(|frame| rig.host_sends(&frame).len())
    };
    assert_eq!([1, 1], sends(&mut rig, &packet::udp4(host(), server(53)), 7));
    assert_eq!([1, 1], sends(&mut rig, &v6, 8), "{:?}", rig.all_drops());
    assert_eq!((4, 0), (packets(&rig, 0), rig.live()));
    // With stateful rules, later fragments get the result of their first fragment.
    assert_eq!([0, 0], sends(&mut rig, &packet::udp4(host(), server(9)), 9));
    assert_eq!(1, rig.drops("filter-fragment"), "{:?}", rig.all_drops());
    commit(&mut rig, |snapshot| {
        let mut first = port(UNTRACKED, Field::DestinationPort, 53);
        first.v4[0] = first.v4[0].clone().with(Field::Fragment, 1, 1).unwrap();
        filter(snapshot, &[first]);
    });
    assert_eq!([1, 0], sends(&mut rig, &packet::udp4(host(), server(53)), 10));
    assert_eq!(2, rig.drops("filter-fragment"), "{:?}", rig.all_drops());
}

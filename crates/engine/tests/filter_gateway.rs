//! Tests of filter rules for packets to the gateway itself and to its routers' hosts.

use std::net::{Ipv4Addr, SocketAddrV4, SocketAddrV6};
use std::sync::Arc;

use crate::rig::{self, HOST, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, v4};
use sluice_engine::snapshot::Snapshot;
use sluice_filter::{
    Action, CompiledRule, Counters, Field, Filters, MatcherKind, NONE, RejectKind, Rule, Settings, Verdict,
};
use sluice_nat::rule::{DestinationAction, DestinationRule, Prefix};
use sluice_testkit::packet::{self, Frame, IpNumber, Transport};
use sluice_wire::ethernet::multicast4;
use sluice_wire::tcp::flag::{ACK, RST, SYN};

const ACCEPT: Action = Action::Decide(Verdict::Accept);
const DROP: Action = Action::Decide(Verdict::Drop);
/// The inside address of the gateway.
const OWN: &str = "192.168.1.1";

/// A rule for both families that matches packets to the gateway with these field values.
fn gateway(action: Action, fields: &[(Field, u32)]) -> CompiledRule {
    let mut rules = (Rule::<u32>::any(), Rule::<u128>::any());
    for &(field, value) in fields.iter().chain(&[(Field::Outgoing, NONE)]) {
        rules.0 = rules.0.with(field, value, value).unwrap();
        rules.1 = rules.1.with(field, value, value).unwrap();
    }
    CompiledRule {
        action,
        v4: vec![rules.0],
        v6: vec![rules.1],
        applications: Vec::new(),
        conditions: Default::default(),
    }
}

fn to_port(action: Action, protocol: u32, port: u32) -> CompiledRule {
    gateway(action, &[(Field::Protocol, protocol), (Field::DestinationPort, port)])
}

/// A filter that accepts forwarded packets.
fn filter(snapshot: &mut Snapshot, sessions: bool, rules: &[CompiledRule]) {
    let settings = Settings {
        kind: MatcherKind::Best,
        default: Verdict::Accept,
        sessions,
        workers: 2,
    };
    let filters = Filters::new(rules, &settings, Counters::new(rules.len())).unwrap();
    snapshot.filter_by(Arc::new(filters));
}

/// Rules that accept only SSH over TCP and DNS over UDP.
fn guarded(snapshot: &mut Snapshot) {
    let rules = [to_port(ACCEPT, 6, 22), to_port(ACCEPT, 17, 53), gateway(DROP, &[])];
    filter(snapshot, true, &rules);
}

fn plan(snapshot: fn(&mut Snapshot)) -> Plan {
    Plan {
        snapshot,
        interfaces: |interfaces| interfaces.iter_mut().for_each(|interface| interface.host = true),
        ..Plan::default()
    }
}

/// Number of packets counted by each rule.
fn counted<const N: usize>(rig: &Rig) -> [u64; N] {
    let filters = rig.plane.snapshot().filter.as_ref().unwrap();
    std::array::from_fn(|place| filters.counters.of(place as u32).unwrap().packets())
}

/// Number of frames that hosts have received since the last call.
fn punted(rig: &mut Rig) -> usize {
    let mut count = 0;
    for requests in &mut rig.desks {
        let taker = requests.to_hosts.as_mut().unwrap();
        while let Some((_, length)) = taker.head() {
            taker.pop(&mut vec![0; length]);
            count += 1;
        }
    }
    count
}

/// Whether the gateway's host receives a frame that arrives on an interface.
#[track_caller]
fn comes_in(rig: &mut Rig, interface: u16, frame: &Frame) -> bool {
    let macs = match interface {
        INSIDE => [HOST_MAC, INSIDE_MAC],
        _ => [ROUTER_MAC, OUTSIDE_MAC],
    };
    assert_eq!(
        0,
        rig.send(interface, &frame.clone().macs(macs[0], macs[1]).build()).len()
    );
    punted(rig) == 1
}

/// Sends a frame from the gateway's host, and checks that the frame leaves.
#[track_caller]
fn goes_out(rig: &mut Rig, interface: u16, frame: &Frame) {
    let queue = rig.desks[rig.owner].from_hosts.as_mut().unwrap();
    assert!(queue.push(interface, [&frame.build(), &[]]));
    rig.round();
    assert_eq!(1, rig.sent().len(), "{:?}", rig.all_drops());
}

fn socket(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

fn socket6(text: &str) -> SocketAddrV6 {
    text.parse().unwrap()
}

/// A message of a routing protocol to a multicast group of the link.
fn hello(protocol: u8) -> Vec<u8> {
    let (source, group) = (Ipv4Addr::new(192, 168, 1, 10), Ipv4Addr::new(224, 0, 0, 5));
    let hello = packet::frame4(source, group, Transport::Raw(IpNumber(protocol)));
    let hello = hello.macs(HOST_MAC, multicast4(group.to_bits()));
    hello.payload(b"hello").build()
}

#[test]
fn connection_that_a_rule_lets_in_passes_both_ways_and_another_is_dropped() {
    for translate in [false, true] {
        let mut rig = Rig::new(Plan {
            translate,
            ..plan(guarded)
        });
        let (client, ssh, other) = (
            socket("192.168.1.10:40000"),
            socket("192.168.1.1:22"),
            socket("192.168.1.1:23"),
        );
        assert!(
            comes_in(&mut rig, INSIDE, &packet::tcp4(client, ssh).flags(SYN)),
            "{:?}",
            rig.all_drops()
        );
        goes_out(&mut rig, INSIDE, &packet::tcp4(ssh, client).flags(SYN | ACK));
        assert!(comes_in(
            &mut rig,
            INSIDE,
            &packet::tcp4(client, ssh).flags(ACK).payload(b"login")
        ));
        assert_eq!([1, 0, 0], counted(&rig));
        assert!(!comes_in(&mut rig, INSIDE, &packet::tcp4(client, other).flags(SYN)));
        assert!(!comes_in(&mut rig, INSIDE, &packet::tcp4(client, other).flags(ACK)));
        assert_eq!([1, 0, 2], counted(&rig));
        assert_eq!(vec![("filter-drop", 2)], rig.all_drops());
        // Rules for packets to the gateway don't apply to forwarded packets.
        assert_eq!(
            1,
            rig.host_sends(&packet::tcp4(client, "198.51.100.7:23").flags(SYN))
                .len()
        );
        assert_eq!([1, 0, 2], counted(&rig));
    }
}

#[test]
fn connection_that_the_host_has_begun_needs_no_rule_and_one_to_it_does() {
    let mut rig = Rig::new(plan(guarded));
    let (own, peer) = (socket("203.0.113.1:40179"), socket("198.51.100.7:179"));
    let answer = packet::tcp4(peer, own).flags(SYN | ACK);
    assert!(!comes_in(&mut rig, OUTSIDE, &answer));
    goes_out(&mut rig, OUTSIDE, &packet::tcp4(own, peer).flags(SYN));
    assert!(comes_in(&mut rig, OUTSIDE, &answer), "{:?}", rig.all_drops());
    assert!(comes_in(
        &mut rig,
        OUTSIDE,
        &packet::tcp4(peer, own).flags(ACK).payload(b"open")
    ));
    // Packets from another port of the peer don't pass. A connection that the peer opens doesn't pass either.
    assert!(!comes_in(
        &mut rig,
        OUTSIDE,
        &packet::tcp4(socket("198.51.100.7:180"), own).flags(ACK)
    ));
    assert!(!comes_in(&mut rig, OUTSIDE, &packet::tcp4(peer, own).flags(SYN)));
    let (own, names) = (socket("203.0.113.1:5353"), socket("198.51.100.8:53"));
    assert!(!comes_in(&mut rig, OUTSIDE, &packet::udp4(names, own)));
    goes_out(&mut rig, OUTSIDE, &packet::udp4(own, names));
    assert!(
        comes_in(&mut rig, OUTSIDE, &packet::udp4(names, own)),
        "{:?}",
        rig.all_drops()
    );
    let (own, names) = (socket6("[2001:db8:1::1]:5353"), socket6("[2001:db8:1::10]:53"));
    assert!(!comes_in(&mut rig, INSIDE, &packet::udp6(names, own)));
    goes_out(&mut rig, INSIDE, &packet::udp6(own, names));
    assert!(
        comes_in(&mut rig, INSIDE, &packet::udp6(names, own)),
        "{:?}",
        rig.all_drops()
    );
}

#[test]
fn connection_that_was_there_before_the_first_rule_goes_on_at_the_next_packet_of_the_host() {
    let mut rig = Rig::new(plan(guarded));
    let (own, peer) = (socket("203.0.113.1:40179"), socket("198.51.100.7:179"));
    let more = packet::tcp4(peer, own).flags(ACK).payload(b"keepalive");
    assert!(!comes_in(&mut rig, OUTSIDE, &more));
    // A reset or SYN-ACK does not start a flow.
    goes_out(&mut rig, OUTSIDE, &packet::tcp4(own, peer).flags(RST | ACK));
    goes_out(&mut rig, OUTSIDE, &packet::tcp4(own, peer).flags(SYN | ACK));
    assert!(!comes_in(&mut rig, OUTSIDE, &more));
    goes_out(&mut rig, OUTSIDE, &packet::tcp4(own, peer).flags(ACK));
    assert!(comes_in(&mut rig, OUTSIDE, &more), "{:?}", rig.all_drops());
}

#[test]
fn error_about_a_flow_of_the_host_passes_and_one_about_another_is_asked_about() {
    let mut rig = Rig::new(plan(guarded));
    let (own, names) = (socket("203.0.113.1:5353"), socket("198.51.100.8:53"));
    let query = packet::udp4(own, names).macs(OUTSIDE_MAC, ROUTER_MAC).build();
    let error = packet::icmp4_error("203.0.113.254", "203.0.113.1", 3, 3, &query, 28);
    assert!(!comes_in(&mut rig, OUTSIDE, &error));
    goes_out(&mut rig, OUTSIDE, &packet::udp4(own, names));
    assert!(comes_in(&mut rig, OUTSIDE, &error), "{:?}", rig.all_drops());
}

#[test]
fn echo_request_is_answered_where_a_rule_lets_it_in_and_answers_to_the_hosts_pass() {
    fn inside_alone(snapshot: &mut Snapshot) {
        let echo = |family: u32| [(Field::Message, family << 8), (Field::Incoming, INSIDE.into())];
        filter(
            snapshot,
            true,
            &[
                gateway(ACCEPT, &echo(8)),
                gateway(ACCEPT, &echo(128)),
                gateway(DROP, &[]),
            ],
        );
    }
    for hosted in [true, false] {
        let mut rig = Rig::new(match hosted {
            true => plan(inside_alone),
            false => Plan {
                snapshot: inside_alone,
                ..Plan::default()
            },
        });
        let ping = packet::icmp4_echo(HOST, OWN, 7, 1);
        assert_eq!(1, rig.host_sends(&ping).len(), "{:?}", rig.all_drops());
        assert_eq!(1, rig.host_sends(&ping).len());
        assert_eq!(
            1,
            rig.host_sends(&packet::icmp6_echo("2001:db8:1::10", "2001:db8:1::1", 7, 1))
                .len()
        );
        assert_eq!([1, 1, 0], counted(&rig));
        assert_eq!(
            0,
            rig.router_sends(&packet::icmp4_echo("203.0.113.254", "203.0.113.1", 7, 1))
                .len()
        );
        assert_eq!([1, 1, 1], counted(&rig));
        assert_eq!(vec![("filter-drop", 1)], rig.all_drops());
        if !hosted {
            continue;
        }
        let answer = packet::icmp4_echo_reply("203.0.113.254", "203.0.113.1", 9, 1);
        assert!(!comes_in(&mut rig, OUTSIDE, &answer));
        goes_out(
            &mut rig,
            OUTSIDE,
            &packet::icmp4_echo("203.0.113.1", "203.0.113.254", 9, 1),
        );
        assert!(comes_in(&mut rig, OUTSIDE, &answer), "{:?}", rig.all_drops());
        // The answer to a query does not permit queries that have the same identifier but the other direction.
        assert_eq!(
            0,
            rig.router_sends(&packet::icmp4_echo("203.0.113.254", "203.0.113.1", 9, 1))
                .len()
        );
    }
}

#[test]
fn fragments_to_the_host_share_what_became_of_the_first_one() {
    for sessions in [true, false] {
        let mut rig = Rig::new(Plan {
            translate: false,
            ..plan(match sessions {
                true => guarded,
                false => |snapshot| filter(snapshot, false, &[to_port(ACCEPT, 17, 53), gateway(DROP, &[])]),
            })
        });
        for (port, identification, passes) in [(53, 5, true), (54, 6, false)] {
            let datagram = packet::udp4("192.168.1.10:40000", SocketAddrV4::new(OWN.parse().unwrap(), port));
            let first = datagram.clone().payload(&[1; 72]).fragment(0, true, identification);
            let later = datagram.clone().payload(&[1; 64]).fragment(10, false, identification);
            assert_eq!(passes, comes_in(&mut rig, INSIDE, &first), "{:?}", rig.all_drops());
            assert_eq!(passes, comes_in(&mut rig, INSIDE, &later), "{:?}", rig.all_drops());
            // A later fragment that arrives before the first fragment is parked until the first fragment arrives.
            let later = datagram
                .clone()
                .payload(&[1; 64])
                .fragment(10, false, identification + 10);
            assert!(!comes_in(&mut rig, INSIDE, &later));
            let first = datagram.payload(&[1; 72]).fragment(0, true, identification + 10);
            rig.host_sends(&first);
            rig.round();
            assert_eq!(if passes { 2 } else { 0 }, punted(&mut rig), "{:?}", rig.all_drops());
        }
        assert_eq!(
            vec![("filter-drop", 2), ("filter-fragment", 2)],
            rig.all_drops(),
            "{sessions}"
        );
    }
}

#[test]
fn flows_to_the_gateway_are_known_where_what_is_forwarded_is_asked_about_packet_by_packet() {
    let mut rig = Rig::new(plan(|snapshot| {
        filter(snapshot, false, &[to_port(ACCEPT, 6, 22), gateway(DROP, &[])])
    }));
    let (client, ssh) = (socket("192.168.1.10:40000"), socket("192.168.1.1:22"));
    for flags in [SYN, ACK, ACK] {
        assert!(comes_in(&mut rig, INSIDE, &packet::tcp4(client, ssh).flags(flags)));
    }
    let (own, peer) = (socket("203.0.113.1:40179"), socket("198.51.100.7:179"));
    let answer = packet::tcp4(peer, own).flags(SYN | ACK);
    assert!(!comes_in(&mut rig, OUTSIDE, &answer));
    goes_out(&mut rig, OUTSIDE, &packet::tcp4(own, peer).flags(SYN));
    assert!(comes_in(&mut rig, OUTSIDE, &answer), "{:?}", rig.all_drops());
    assert_eq!([1, 1], counted(&rig));
}

#[test]
fn commit_that_denies_ends_what_was_let_in_and_leaves_what_the_host_has_begun() {
    let mut rig = Rig::new(plan(guarded));
    let (client, ssh) = (socket("192.168.1.10:40000"), socket("192.168.1.1:22"));
    let (own, peer) = (socket("203.0.113.1:40179"), socket("198.51.100.7:179"));
    assert!(comes_in(&mut rig, INSIDE, &packet::tcp4(client, ssh).flags(SYN)));
    goes_out(&mut rig, OUTSIDE, &packet::tcp4(own, peer).flags(SYN));
    let (more, answer) = (
        packet::tcp4(client, ssh).flags(ACK),
        packet::tcp4(peer, own).flags(SYN | ACK),
    );
    let commit = |rig: &mut Rig, rules: &[CompiledRule]| {
        let (mut snapshot, routes) = rig::snapshot(&plan(guarded));
        filter(&mut snapshot, true, rules);
        rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
    };
    commit(&mut rig, &[to_port(ACCEPT, 6, 22), gateway(DROP, &[])]);
    assert!(comes_in(&mut rig, INSIDE, &more));
    assert_eq!([0, 0], counted(&rig));
    commit(&mut rig, &[gateway(DROP, &[])]);
    assert!(!comes_in(&mut rig, INSIDE, &more));
    // After later packets of the host, the client still counts as the endpoint that started the connection.
    goes_out(&mut rig, INSIDE, &packet::tcp4(ssh, client).flags(ACK).payload(b"data"));
    assert!(!comes_in(&mut rig, INSIDE, &more));
    assert!(comes_in(&mut rig, OUTSIDE, &answer), "{:?}", rig.all_drops());
    assert_eq!([2], counted(&rig));
}

#[test]
fn who_is_rejected_is_told() {
    fn rejecting(snapshot: &mut Snapshot) {
        filter(
            snapshot,
            true,
            &[gateway(Action::Decide(Verdict::Reject(RejectKind::Reset)), &[])],
        );
    }
    let mut rig = Rig::new(plan(rejecting));
    let sent = rig.host_sends(&packet::tcp4("192.168.1.10:40000", "192.168.1.1:22").flags(SYN));
    assert_eq!((1, INSIDE), (sent.len(), sent[0].port));
    assert_eq!((6, RST | ACK), (sent[0].frame[23], sent[0].frame[47]));
    let sent = rig.host_sends(&packet::udp4("192.168.1.10:40000", "192.168.1.1:53"));
    assert_eq!((1, [3, 3]), (sent.len(), [sent[0].frame[34], sent[0].frame[35]]));
    assert_eq!(vec![("filter-reject", 2)], rig.all_drops());
}

#[test]
fn groups_of_the_link_are_asked_about_where_a_host_hears_them() {
    fn no_routing(snapshot: &mut Snapshot) {
        filter(snapshot, true, &[gateway(DROP, &[(Field::Protocol, 89)])]);
    }
    let mut rig = Rig::new(plan(no_routing));
    for (protocol, expected) in [(89, 0), (112, 1)] {
        rig.send(INSIDE, &hello(protocol));
        assert_eq!(expected, punted(&mut rig), "{:?}", rig.all_drops());
    }
    assert_eq!(vec![("filter-drop", 1)], rig.all_drops());
}

#[test]
fn fragments_to_a_group_share_what_became_of_the_first_one_and_nobody_is_told() {
    fn one_port(snapshot: &mut Snapshot) {
        let reject = Action::Decide(Verdict::Reject(RejectKind::PortUnreachable));
        filter(snapshot, true, &[to_port(ACCEPT, 17, 520), gateway(reject, &[])]);
    }
    for (port, expected) in [(520, 2), (521, 0)] {
        let mut rig = Rig::new(plan(one_port));
        let group = Ipv4Addr::new(224, 0, 0, 9);
        let datagram = packet::udp4("192.168.1.10:520", SocketAddrV4::new(group, port));
        let datagram = datagram.macs(HOST_MAC, multicast4(group.to_bits()));
        let first = datagram.clone().payload(&[1; 72]).fragment(0, true, 5);
        let later = datagram.payload(&[1; 64]).fragment(10, false, 5);
        assert_eq!(0, rig.send(INSIDE, &first.build()).len());
        assert_eq!(0, rig.send(INSIDE, &later.build()).len());
        assert_eq!(expected, punted(&mut rig), "{:?}", rig.all_drops());
    }
}

#[test]
fn flow_that_a_destination_rule_leads_to_the_host_is_asked_about_by_its_translated_destination() {
    let to_host = |port| DestinationRule {
        context: 0,
        protocol: Some(6),
        inbound: Some(OUTSIDE),
        external: Prefix {
            address: v4("203.0.113.1"),
            length: 32,
        },
        ports: Some((port, port)),
        action: DestinationAction::Host(v4("203.0.113.1"), Some(port - 2000)),
    };
    let mut rig = Rig::new(Plan {
        forwards: vec![to_host(2022), to_host(2023)],
        ..plan(guarded)
    });
    let client = socket("198.51.100.7:40000");
    assert!(
        comes_in(&mut rig, OUTSIDE, &packet::tcp4(client, "203.0.113.1:2022").flags(SYN)),
        "{:?}",
        rig.all_drops()
    );
    assert!(comes_in(
        &mut rig,
        OUTSIDE,
        &packet::tcp4(client, "203.0.113.1:2022").flags(ACK)
    ));
    assert!(!comes_in(
        &mut rig,
        OUTSIDE,
        &packet::tcp4(client, "203.0.113.1:2023").flags(SYN)
    ));
    assert_eq!([1, 0, 1], counted(&rig));
    let (mut snapshot, routes) = rig::snapshot(&Plan {
        forwards: vec![to_host(2022), to_host(2023)],
        ..plan(guarded)
    });
    filter(&mut snapshot, true, &[gateway(DROP, &[])]);
    rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
    assert!(!comes_in(
        &mut rig,
        OUTSIDE,
        &packet::tcp4(client, "203.0.113.1:2022").flags(ACK)
    ));
    assert_eq!(0, rig.live());
}

#[test]
fn rules_of_a_router_are_about_its_own_host_alone() {
    fn of_the_second(snapshot: &mut Snapshot) {
        snapshot.routers = vec![Default::default(); 2];
        snapshot.routers.iter_mut().for_each(|router| router.filters = true);
        snapshot.hosts = vec![Arc::default(), Arc::default()];
        filter(snapshot, true, &[gateway(DROP, &[(Field::Context, 1)])]);
    }
    let mut rig = Rig::new(Plan {
        translate: false,
        interfaces: |interfaces| {
            interfaces.iter_mut().for_each(|interface| interface.host = true);
            (interfaces[1].router, interfaces[1].context) = (1, 1);
        },
        ..plan(of_the_second)
    });
    for (interface, expected) in [(INSIDE, 1), (OUTSIDE, 0)] {
        rig.send(interface, &hello(89));
        assert_eq!(expected, punted(&mut rig), "{:?}", rig.all_drops());
    }
    assert_eq!(vec![("filter-drop", 1)], rig.all_drops());
    assert_eq!([1], counted(&rig));
}

#[test]
fn flow_of_the_host_is_known_to_every_worker() {
    let mut rig = Rig::new(Plan {
        workers: 3,
        senders: vec![1],
        ..plan(guarded)
    });
    let (own, peer) = (socket("203.0.113.1:40179"), socket("198.51.100.7:179"));
    goes_out(&mut rig, OUTSIDE, &packet::tcp4(own, peer).flags(SYN));
    let answer = packet::tcp4(peer, own)
        .flags(SYN | ACK)
        .macs(ROUTER_MAC, OUTSIDE_MAC)
        .build();
    for worker in 0..3 {
        rig.send_at(worker, OUTSIDE, &answer);
        (0..4).for_each(|_| rig.round());
        assert_eq!(1, punted(&mut rig), "{:?}", rig.all_drops());
    }
}

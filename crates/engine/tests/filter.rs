//! Tests of the packet filter, stateful and stateless, with and without translation.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::sync::Arc;

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, Plan, Rig, flow, is_valid};
use sluice_engine::packet::io::memory::Sent;
use sluice_engine::snapshot::Snapshot;
use sluice_filter::{
    Action, CompiledRule, Counters, Field, Filters, FlagsMask, MatcherKind, Range, RejectKind, Rule, Settings, Verdict,
};
use sluice_table::token_bucket::TokenRate;
use sluice_testkit::packet::{self, Frame};
use sluice_wire::Checksums;
use sluice_wire::tcp::flag::{ACK, FIN, RST, SYN};

const ACCEPT: Action = Action::Decide(Verdict::Accept);
const DROP: Action = Action::Decide(Verdict::Drop);

fn all<T: Copy>(first: T, last: T) -> Range<T> {
    Range { first, last }
}

/// A rule for both families that matches a protocol and a destination port.
fn to_port(action: Action, protocol: u32, port: u32) -> CompiledRule {
    let with = |rule: Result<Rule<u32>, _>| {
        rule.and_then(|rule| rule.with(Field::DestinationPort, port, port))
            .unwrap()
    };
    let v4 = with(Rule::any().with(Field::Protocol, protocol, protocol));
    let v6 = Rule::<u128>::any()
        .with(Field::Protocol, protocol, protocol)
        .and_then(|rule| rule.with(Field::DestinationPort, port, port))
        .unwrap();
    CompiledRule {
        action,
        v4: vec![v4],
        v6: vec![v6],
        applications: Vec::new(),
        conditions: Default::default(),
    }
}

fn of4(action: Action, rule: Rule<u32>) -> CompiledRule {
    CompiledRule {
        action,
        v4: vec![rule],
        v6: Vec::new(),
        applications: Vec::new(),
        conditions: Default::default(),
    }
}

fn settings(sessions: bool) -> Settings {
    Settings {
        kind: MatcherKind::Best,
        default: Verdict::Drop,
        sessions,
        workers: 2,
    }
}

fn filter(snapshot: &mut Snapshot, sessions: bool, rules: &[CompiledRule]) {
    let counters = Counters::new(rules.len());
    let filters = Filters::new(rules, &settings(sessions), counters).unwrap();
    snapshot.filter_by(Arc::new(filters));
}

fn packets(rig: &Rig, place: u32) -> u64 {
    let filters = rig.plane.snapshot().filter.as_ref().unwrap();
    filters.counters.of(place).unwrap().packets()
}

fn by_default(rig: &Rig) -> u64 {
    rig.plane
        .snapshot()
        .filter
        .as_ref()
        .unwrap()
        .counters
        .of_default()
        .packets()
}

fn web(snapshot: &mut Snapshot) {
    filter(snapshot, true, &[to_port(ACCEPT, 6, 80), to_port(ACCEPT, 17, 53)]);
}

fn host() -> SocketAddrV4 {
    "192.168.1.10:4000".parse().unwrap()
}

fn server(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 7), port)
}

fn syn(port: u16) -> Frame {
    packet::tcp4(host(), server(port)).flags(SYN)
}

#[test]
fn filter_by_session_lets_replies_and_errors_of_accepted_flows_pass() {
    let mut rig = Rig::new(Plan {
        translate: false,
        snapshot: web,
        ..Plan::default()
    });
    assert_eq!(1, rig.host_sends(&syn(80)).len());
    let answer = packet::tcp4(server(80), host()).flags(SYN | ACK);
    assert_eq!(INSIDE, rig.router_sends(&answer)[0].port);
    let more = packet::tcp4(host(), server(80)).flags(ACK);
    (0..5).for_each(|_| assert_eq!(1, rig.host_sends(&more).len()));
    let question = packet::udp4(host(), server(53));
    let sent = rig.host_sends(&question);
    let error = packet::icmp4_error(
        Ipv4Addr::new(203, 0, 113, 254),
        Ipv4Addr::new(192, 168, 1, 10),
        3,
        3,
        &sent[0].frame,
        28,
    );
    assert_eq!(INSIDE, rig.router_sends(&error)[0].port);
    // A packet without a session does not pass.
    assert!(
        rig.router_sends(&packet::udp4(
            server(53),
            "192.168.1.10:4001".parse::<SocketAddrV4>().unwrap()
        ))
        .is_empty()
    );
    assert!(rig.host_sends(&syn(81)).is_empty());
    assert_eq!((1, 1, 2), (packets(&rig, 0), packets(&rig, 1), by_default(&rig)));
    assert_eq!(2, rig.drops("filter-default"));
    assert_eq!(2, rig.live());
}

/// Opens a connection in which all data is acknowledged. Returns the next sequence numbers of both endpoints.
fn open(rig: &mut Rig) -> [u32; 2] {
    assert_eq!(1, rig.host_sends(&syn(80).numbers(1_000, 0)).len());
    let answer = packet::tcp4(server(80), host()).flags(SYN | ACK).numbers(9_000, 1_001);
    assert_eq!(1, rig.router_sends(&answer).len());
    let ack = packet::tcp4(host(), server(80)).flags(ACK).numbers(1_001, 9_001);
    assert_eq!(1, rig.host_sends(&ack).len());
    [1_001, 9_001]
}

#[test]
fn filter_is_asked_who_may_open_the_next_connection_on_the_ports_of_one_that_has_ended() {
    fn outward(snapshot: &mut Snapshot) {
        let inside = u32::from(INSIDE);
        let rule = Rule::any().with(Field::Incoming, inside, inside).unwrap();
        filter(snapshot, true, &[of4(ACCEPT, rule)]);
    }
    type Close = fn(&mut Rig, [u32; 2]);
    let closes: [Close; 3] = [
        |rig, [client, server_next]| {
            rig.host_sends(
                &packet::tcp4(host(), server(80))
                    .flags(FIN | ACK)
                    .numbers(client, server_next),
            );
            let fin = packet::tcp4(server(80), host()).flags(FIN | ACK);
            rig.router_sends(&fin.numbers(server_next, client + 1));
        },
        |rig, [client, server_next]| {
            rig.host_sends(&packet::tcp4(host(), server(80)).flags(RST).numbers(client, server_next));
        },
        |rig, [client, server_next]| {
            rig.router_sends(&packet::tcp4(server(80), host()).flags(RST).numbers(server_next, client));
        },
    ];
    for close in closes {
        let mut rig = Rig::new(Plan {
            translate: false,
            snapshot: outward,
            ..Plan::default()
        });
        let next = open(&mut rig);
        close(&mut rig, next);
        rig.seconds(5);
        let asks = packet::tcp4(server(80), host()).flags(SYN).numbers(900_000, 0);
        for tried in 1..3 {
            assert!(rig.router_sends(&asks).is_empty());
            assert_eq!(tried, rig.drops("filter-default"));
        }
        // If the rules permit it, a host can open a new connection, which is counted.
        assert_eq!(1, packets(&rig, 0));
        assert_eq!(1, rig.host_sends(&syn(80).numbers(700_000, 0)).len());
        assert_eq!(2, packets(&rig, 0));
        let answer = packet::tcp4(server(80), host())
            .flags(SYN | ACK)
            .numbers(800_000, 700_001);
        assert_eq!(1, rig.router_sends(&answer).len());
        assert_eq!(1, rig.live());
        rig.seconds(1_000);
        assert_eq!(1, rig.live());
    }
}

/// A reset in response to a SYN does not permit the sender of the reset to open a connection.
#[test]
fn who_refused_a_connection_may_not_open_it_itself() {
    let mut rig = Rig::new(Plan {
        translate: false,
        snapshot: web,
        ..Plan::default()
    });
    assert_eq!(1, rig.host_sends(&syn(80).numbers(1_000, 0)).len());
    let refusal = packet::tcp4(server(80), host()).flags(RST | ACK).numbers(0, 1_001);
    assert_eq!(1, rig.router_sends(&refusal).len());
    let asks = packet::tcp4(server(80), host()).flags(SYN).numbers(900_000, 0);
    assert!(rig.router_sends(&asks).is_empty());
    assert_eq!(1, rig.drops("filter-default"));
}

#[test]
fn filter_by_session_finds_both_directions_on_any_worker() {
    // Both hosts are behind inside interfaces, so the shard depends only on their addresses.
    for workers in [1, 2] {
        let mut rig = Rig::new(Plan {
            translate: false,
            workers,
            shards: 8,
            snapshot: web,
            ..Plan::default()
        });
        for last in 1..60u8 {
            let other = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, last), 53);
            assert_eq!(
                1,
                rig.host_sends(&packet::udp4(host(), other)).len(),
                "{:?}",
                rig.all_drops()
            );
            assert_eq!(
                1,
                rig.router_sends(&packet::udp4(other, host())).len(),
                "{other} {:?}",
                rig.all_drops()
            );
        }
        assert_eq!(59, packets(&rig, 1));
    }
}

#[test]
fn filter_sees_translated_destinations_and_flows_stay_translated() {
    fn only_the_host(snapshot: &mut Snapshot) {
        let to = u32::from(Ipv4Addr::new(198, 51, 100, 7));
        let rule = Rule::any().between(all(0, u32::MAX), all(to, to)).unwrap();
        filter(snapshot, true, &[of4(ACCEPT, rule)]);
    }
    let mut rig = Rig::new(Plan {
        snapshot: only_the_host,
        ..Plan::default()
    });
    let public = rig.public(&syn(80));
    assert_eq!(
        1,
        rig.router_sends(&packet::tcp4(server(80), public).flags(SYN | ACK))
            .len()
    );
    let other: SocketAddrV4 = "198.51.100.8:80".parse().unwrap();
    assert!(rig.host_sends(&packet::tcp4(host(), other).flags(SYN)).is_empty());
    assert_eq!(1, rig.drops("filter-default"));
    assert_eq!(1, rig.live());
}

#[test]
fn filter_without_sessions_asks_about_every_packet() {
    fn one_way(snapshot: &mut Snapshot) {
        filter(snapshot, false, &[to_port(ACCEPT, 17, 53)]);
    }
    let mut rig = Rig::new(Plan {
        translate: false,
        snapshot: one_way,
        ..Plan::default()
    });
    for _ in 0..3 {
        assert_eq!(1, rig.host_sends(&packet::udp4(host(), server(53))).len());
        assert!(rig.router_sends(&packet::udp4(server(53), host())).is_empty());
    }
    assert_eq!((3, 3), (packets(&rig, 0), by_default(&rig)));
    assert_eq!(0, rig.live());
    // Later fragments have no ports, so rules with ports don't match them.
    let later = packet::udp4(host(), server(53)).payload(&[1; 64]).fragment(2, false, 7);
    assert!(rig.host_sends(&later).is_empty());
}

#[test]
fn filter_rejects_tcp_by_a_reset_and_others_by_an_error() {
    fn reject(snapshot: &mut Snapshot) {
        let reject = Action::Decide(Verdict::Reject(RejectKind::Reset));
        let prohibited = Action::Decide(Verdict::Reject(RejectKind::Prohibited));
        filter(
            snapshot,
            true,
            &[
                to_port(prohibited, 17, 99),
                to_port(reject, 6, 80),
                to_port(reject, 17, 53),
            ],
        );
    }
    let mut rig = Rig::new(Plan {
        translate: false,
        snapshot: reject,
        ..Plan::default()
    });
    let sent = rig.host_sends(&syn(80).numbers(1_000, 0).payload(b"data"));
    assert_eq!((1, INSIDE), (sent.len(), sent[0].port));
    assert!(is_valid(&sent[0].frame));
    assert_eq!((server(80), host()), flow(&sent[0].frame));
    let tcp = etherparse::TcpSlice::from_slice(&sent[0].frame[34..]).unwrap();
    assert!(tcp.rst() && tcp.ack() && !tcp.syn());
    assert_eq!((0, 1_005), (tcp.sequence_number(), tcp.acknowledgment_number()));
    // The filter never answers a reset with a reset or an ICMP error.
    assert!(rig.host_sends(&packet::tcp4(host(), server(80)).flags(RST)).is_empty());
    let sent = rig.host_sends(&packet::udp4(host(), server(53)));
    assert_eq!([3, 3], sent[0].frame[34..36]);
    let sent = rig.host_sends(&packet::udp4(host(), server(99)));
    assert_eq!([3, 13], sent[0].frame[34..36]);
    assert_eq!(4, rig.drops("filter-reject"));
}

#[test]
fn filter_commit_that_denies_ends_the_session_and_one_that_does_not_keeps_it() {
    fn nothing(snapshot: &mut Snapshot) {
        filter(snapshot, true, &[to_port(DROP, 6, 80), to_port(ACCEPT, 17, 53)]);
    }
    let before = Plan {
        translate: false,
        snapshot: web,
        ..Plan::default()
    };
    let mut rig = Rig::new(before);
    rig.host_sends(&syn(80));
    rig.host_sends(&packet::udp4(host(), server(53)));
    assert_eq!(2, rig.live());
    let after = Plan {
        translate: false,
        snapshot: nothing,
        ..Plan::default()
    };
    let (snapshot, routes) = rig::snapshot(&after);
    rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
    assert!(rig.host_sends(&packet::tcp4(host(), server(80)).flags(ACK)).is_empty());
    assert_eq!(1, rig.router_sends(&packet::udp4(server(53), host())).len());
    assert_eq!(1, rig.live());
    // The rules do not count a repeated evaluation.
    assert_eq!(0, packets(&rig, 1));
}

#[test]
fn filter_limits_counts_and_logs_before_it_decides() {
    fn limited(snapshot: &mut Snapshot) {
        let rules = [
            to_port(Action::Count, 17, 53),
            to_port(Action::Log, 17, 53),
            to_port(Action::Limit(TokenRate::new(1, 3)), 17, 53),
            to_port(ACCEPT, 17, 53),
            to_port(Action::Count, 17, 53),
        ];
        filter(snapshot, false, &rules);
    }
    let mut rig = Rig::new(Plan {
        translate: false,
        snapshot: limited,
        ..Plan::default()
    });
    let passed: usize = (0..10)
        .map(|_| rig.host_sends(&packet::udp4(host(), server(53))).len())
        .sum();
    assert_eq!(3, passed);
    assert_eq!([10, 10, 10, 3, 0], [0, 1, 2, 3, 4].map(|place| packets(&rig, place)));
    assert_eq!(7, rig.drops("filter-rate"));
    let logged = rig.plane.snapshot().filter.as_ref().unwrap().counters.take_log();
    assert_eq!(10, logged.len());
    assert_eq!([4000, 53], logged[0].endpoints.map(|(_, port)| port));
    assert_eq!([u32::from(INSIDE), u32::from(OUTSIDE)], logged[0].interfaces);
}

#[test]
fn filter_looks_at_every_field_of_a_packet() {
    fn fields(snapshot: &mut Snapshot) {
        let one = |field, value: u32| Rule::<u32>::any().with(field, value, value).unwrap();
        let rules = [
            of4(
                ACCEPT,
                Rule::any()
                    .with_flags(FlagsMask {
                        set: SYN,
                        of: SYN | ACK,
                    })
                    .unwrap(),
            ),
            of4(ACCEPT, one(Field::Message, 13 << 8)),
            of4(ACCEPT, one(Field::Fragment, 2)),
            of4(ACCEPT, one(Field::Length, 128)),
            of4(ACCEPT, one(Field::Incoming, u32::from(OUTSIDE))),
        ];
        filter(snapshot, false, &rules);
    }
    let mut rig = Rig::new(Plan {
        translate: false,
        snapshot: fields,
        ..Plan::default()
    });
    let hits = |rig: &Rig| [0, 1, 2, 3, 4].map(|place| packets(rig, place));
    rig.host_sends(&syn(80));
    rig.host_sends(&packet::tcp4(host(), server(80)).flags(SYN | ACK));
    assert_eq!([1, 0, 0, 0, 0], hits(&rig));
    rig.host_sends(&packet::icmp4_echo(
        Ipv4Addr::new(192, 168, 1, 10),
        Ipv4Addr::new(198, 51, 100, 7),
        1,
        1,
    ));
    assert_eq!([1, 0, 0, 0, 0], hits(&rig));
    rig.host_sends(&packet::udp4(host(), server(53)).payload(&[0; 64]).fragment(2, false, 7));
    assert_eq!([1, 0, 1, 0, 0], hits(&rig));
    rig.host_sends(&packet::udp4(host(), server(53)).payload(&[0; 100]));
    assert_eq!([1, 0, 1, 1, 0], hits(&rig));
    rig.router_sends(&packet::udp4(server(53), host()));
    assert_eq!([1, 0, 1, 1, 1], hits(&rig));
    assert_eq!(2, by_default(&rig));
}

#[test]
fn filter_of_ipv6_has_sessions_and_resets_too() {
    fn v6(snapshot: &mut Snapshot) {
        filter(
            snapshot,
            true,
            &[
                to_port(ACCEPT, 6, 80),
                to_port(Action::Decide(Verdict::Reject(RejectKind::Reset)), 6, 81),
            ],
        );
    }
    let mut rig = Rig::new(Plan {
        translate: false,
        shards: 8,
        snapshot: v6,
        ..Plan::default()
    });
    let host = "[2001:db8:1::10]:4000".parse::<std::net::SocketAddrV6>().unwrap();
    for last in 1..30 {
        let server = format!("[2001:db8:9::{last:x}]:80")
            .parse::<std::net::SocketAddrV6>()
            .unwrap();
        assert_eq!(
            1,
            rig.host_sends(&packet::tcp6(host, server).flags(SYN)).len(),
            "{:?}",
            rig.all_drops()
        );
        assert_eq!(
            1,
            rig.router_sends(&packet::tcp6(server, host).flags(SYN | ACK)).len(),
            "{:?}",
            rig.all_drops()
        );
    }
    let refused = "[2001:db8:9::1]:81".parse::<std::net::SocketAddrV6>().unwrap();
    let sent = rig.host_sends(&packet::tcp6(host, refused).flags(SYN).numbers(7, 0));
    assert!(is_valid(&sent[0].frame));
    let tcp = etherparse::TcpSlice::from_slice(&sent[0].frame[54..]).unwrap();
    assert_eq!(
        (true, 81, 4000, 8),
        (
            tcp.rst(),
            tcp.source_port(),
            tcp.destination_port(),
            tcp.acknowledgment_number()
        )
    );
}

#[test]
fn filter_by_session_lets_fragments_of_accepted_datagrams_pass_in_both_families() {
    let mut rig = Rig::new(Plan {
        translate: false,
        snapshot: web,
        ..Plan::default()
    });
    let first = packet::udp4(host(), server(53)).payload(&[1; 72]).fragment(0, true, 7);
    let later = packet::udp4(host(), server(53))
        .payload(&[1; 64])
        .fragment(10, false, 7);
    assert_eq!(1, rig.host_sends(&first).len(), "{:?}", rig.all_drops());
    assert_eq!(1, rig.host_sends(&later).len(), "{:?}", rig.all_drops());
    let host = "[2001:db8:1::10]:4000".parse::<std::net::SocketAddrV6>().unwrap();
    let server = "[2001:db8:9::1]:53".parse::<std::net::SocketAddrV6>().unwrap();
    let first = packet::udp6(host, server).payload(&[1; 72]).fragment(0, true, 9);
    let later = packet::udp6(host, server).payload(&[1; 64]).fragment(10, false, 9);
    assert_eq!(1, rig.host_sends(&first).len(), "{:?}", rig.all_drops());
    assert_eq!(1, rig.host_sends(&later).len(), "{:?}", rig.all_drops());
    // No fragment of a denied datagram passes.
    let denied = packet::udp4("192.168.1.10:4000".parse::<SocketAddrV4>().unwrap(), self::server(54));
    assert!(
        rig.host_sends(&denied.clone().payload(&[1; 72]).fragment(0, true, 8))
            .is_empty()
    );
    assert!(
        rig.host_sends(&denied.payload(&[1; 64]).fragment(10, false, 8))
            .is_empty()
    );
}

#[test]
fn filter_by_session_leaves_link_local_addresses_to_the_link() {
    let mut rig = Rig::new(Plan {
        translate: false,
        snapshot: web,
        interfaces: |interfaces| {
            let own = sluice_wire::ndp::link_local(rig::INSIDE_MAC);
            interfaces[0].link.addresses.push((sluice_route::Address::V6(own), 64));
        },
        ..Plan::default()
    });
    let own = Ipv6Addr::from_bits(sluice_wire::ndp::link_local(rig::INSIDE_MAC));
    let host: Ipv6Addr = "fe80::10".parse().unwrap();
    rig.know(INSIDE, rig::plain("fe80::10"), rig::HOST_MAC);
    assert_eq!(
        1,
        rig.host_sends(&packet::icmp6_echo(host, own, 1, 1)).len(),
        "{:?}",
        rig.all_drops()
    );
    let far = SocketAddrV6::new("2001:db8:9::1".parse().unwrap(), 53, 0, 0);
    assert!(
        rig.host_sends(&packet::udp6(SocketAddrV6::new(host, 4000, 0, 0), far))
            .is_empty()
    );
    assert_eq!(1, rig.drops("link-local"), "{:?}", rig.all_drops());
}

#[test]
fn filter_is_not_passed_by_later_fragments_of_what_it_denies() {
    fn no_echo(snapshot: &mut Snapshot) {
        let echo = Rule::any().with(Field::Message, 8 << 8, 8 << 8 | 0xff).unwrap();
        let first = Rule::any()
            .with(Field::Protocol, 17, 17)
            .and_then(|rule| rule.with(Field::Fragment, 1, 1))
            .unwrap();
        let all = CompiledRule {
            action: ACCEPT,
            v4: vec![Rule::any()],
            v6: vec![Rule::any()],
            applications: Vec::new(),
            conditions: Default::default(),
        };
        filter(snapshot, true, &[of4(DROP, echo), of4(DROP, first), all]);
    }
    for translate in [false, true] {
        let mut rig = Rig::new(Plan {
            translate,
            snapshot: no_echo,
            ..Plan::default()
        });
        let echo = |seq| packet::icmp4_echo(Ipv4Addr::new(192, 168, 1, 10), Ipv4Addr::new(198, 51, 100, 7), 7, seq);
        let whole = echo(1).payload(&[1; 120]);
        assert!(rig.host_sends(&whole).is_empty());
        assert!(
            rig.host_sends(&whole.clone().payload(&[1; 56]).fragment(0, true, 5))
                .is_empty()
        );
        let later = echo(1).payload(&[1; 64]).fragment(8, false, 5);
        assert!(rig.host_sends(&later).is_empty(), "{:?}", rig.all_drops());
        assert!(rig.host_sends(&echo(2)).is_empty());
        let datagram = packet::udp4(host(), server(53));
        assert!(
            rig.host_sends(&datagram.clone().payload(&[1; 72]).fragment(0, true, 6))
                .is_empty()
        );
        assert!(
            rig.host_sends(&datagram.clone().payload(&[1; 64]).fragment(10, false, 6))
                .is_empty()
        );
        assert_eq!(0, rig.live(), "{:?}", rig.all_drops());
        assert_eq!(2, rig.drops("filter-fragment"), "{:?}", rig.all_drops());
    }
}

/// The frames that leave after the inside host has sent frames in one burst.
fn burst(rig: &mut Rig, frames: &[&Frame]) -> Vec<Sent> {
    for frame in frames {
        let frame = (*frame).clone().macs(HOST_MAC, INSIDE_MAC).build();
        rig.wires[0].inject(INSIDE, &frame, Checksums::Unverified);
    }
    rig.round();
    rig.sent()
}

#[test]
fn filter_by_session_passes_later_fragments_that_come_with_the_first() {
    fn web(snapshot: &mut Snapshot) {
        filter(snapshot, true, &[to_port(ACCEPT, 17, 53)]);
    }
    for translate in [false, true] {
        let mut rig = Rig::new(Plan {
            translate,
            snapshot: web,
            ..Plan::default()
        });
        for (port, passed) in [(53, 3), (54, 0)] {
            let datagram = packet::udp4(host(), server(port));
            let identification = u32::from(port);
            let first = datagram.clone().payload(&[1; 72]).fragment(0, true, identification);
            let middle = datagram.clone().payload(&[2; 64]).fragment(10, true, identification);
            let last = datagram.payload(&[3; 64]).fragment(18, false, identification);
            let sent = burst(&mut rig, &[&first, &middle, &last]);
            assert_eq!(passed, sent.len(), "{:?}", rig.all_drops());
        }
        assert_eq!(1, rig.live());
        assert_eq!(2, rig.drops("filter-fragment"), "{:?}", rig.all_drops());
    }
}

#[test]
fn filter_by_session_leaves_icmp_without_identifier_as_it_is() {
    fn all(snapshot: &mut Snapshot) {
        let any = CompiledRule {
            action: ACCEPT,
            v4: vec![Rule::any()],
            v6: vec![Rule::any()],
            applications: Vec::new(),
            conditions: Default::default(),
        };
        filter(snapshot, true, &[any]);
    }
    let mut rig = Rig::new(Plan {
        translate: false,
        snapshot: all,
        ..Plan::default()
    });
    // An information request (RFC 792). The identifier of the request is not translated.
    let (from, to) = (Ipv4Addr::new(192, 168, 1, 10), Ipv4Addr::new(198, 51, 100, 7));
    let frame = packet::icmp4_error(from, to, 15, 0, &[0; 64], 20);
    let mut sent = frame.clone().macs(rig::HOST_MAC, rig::INSIDE_MAC).build();
    sent[38..42].copy_from_slice(&[4, 0, 0, 2]);
    let sum = u16::from_be_bytes([sent[36], sent[37]]);
    let changed = u32::from(!sum) + 0x0400 + 2;
    let changed = !((changed & 0xffff) + (changed >> 16)) as u16;
    sent[36..38].copy_from_slice(&changed.to_be_bytes());
    let came = rig.send(INSIDE, &sent);
    assert_eq!(1, came.len(), "{:?}", rig.all_drops());
    assert_eq!(sent[34..], came[0].frame[34..]);
    assert!(is_valid(&came[0].frame));
}

//! Tests of ICMP through translation, requirement by requirement (RFC 5508 and its update by RFC 7857): queries, and the
//! properties and effects of errors. `errors.rs` tests the translation of errors.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::rig::{self, HOST, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, flow};
use sluice_engine::worker::request::Filter;
use sluice_nat::rule::{DestinationAction, DestinationRule, Prefix, SourceAction, SourceRule};
use sluice_testkit::packet::{self, Frame, Icmpv4Type};

const REMOTE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const MIDDLE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

fn host() -> Ipv4Addr {
    HOST.parse().unwrap()
}

fn inside() -> SocketAddrV4 {
    SocketAddrV4::new(host(), 5000)
}

fn remote() -> SocketAddrV4 {
    SocketAddrV4::new(REMOTE, 53)
}

/// An ICMP message of any type, with its second word and the bytes after it.
fn message(source: Ipv4Addr, destination: Ipv4Addr, kind: u8, second: [u8; 4], rest: &[u8]) -> Frame {
    let kind = Icmpv4Type::Unknown {
        type_u8: kind,
        code_u8: 0,
        bytes5to8: second,
    };
    packet::frame4(source, destination, packet::Transport::Icmp4(kind)).payload(rest)
}

/// An ICMP query or its answer, with an identifier.
fn query(source: Ipv4Addr, destination: Ipv4Addr, kind: u8, identifier: u16) -> Frame {
    let [high, low] = identifier.to_be_bytes();
    message(source, destination, kind, [high, low, 0, 1], &[7; 12])
}

#[test]
fn rfc5508_req1_queries_from_inside_and_their_answers_pass() {
    // The ICMP types of echo, timestamp and address mask messages.
    for (asks, answers) in [(8, 0), (13, 14), (17, 18)] {
        let mut rig = Rig::new(Plan::default());
        let sent = rig.host_sends(&query(host(), REMOTE, asks, 77));
        assert_eq!(1, sent.len(), "{asks}: {:?}", rig.all_drops());
        let public = flow(&sent[0].frame).0;
        let expected = query(*public.ip(), REMOTE, asks, public.port()).ttl(63);
        assert_eq!(expected.macs(OUTSIDE_MAC, ROUTER_MAC).build(), sent[0].frame);
        assert_eq!(OUTSIDE, sent[0].port);
        let sent = rig.router_sends(&query(REMOTE, *public.ip(), answers, public.port()));
        assert_eq!(1, sent.len(), "{answers}: {:?}", rig.all_drops());
        let expected = query(REMOTE, host(), answers, 77).ttl(63);
        assert_eq!(expected.macs(INSIDE_MAC, HOST_MAC).build(), sent[0].frame);
        assert_eq!(INSIDE, sent[0].port);
    }
}

#[test]
fn rfc5508_req1a_identifier_is_the_same_towards_every_remote() {
    let mut rig = Rig::new(Plan::default());
    let to = |rig: &mut Rig, remote: &str| rig.public(&packet::icmp4_echo(HOST, remote, 77, 1));
    let public = to(&mut rig, "198.51.100.7");
    assert_eq!(public, to(&mut rig, "198.51.100.8"));
    assert_eq!(public, to(&mut rig, "192.0.2.1"));
    assert_eq!(3, rig.live());
}

#[test]
fn rfc5508_req2a_timer_of_queries_is_configurable() {
    let mut rig = Rig::new(Plan {
        change_pool: |pool| pool.timeouts.icmp = 90,
        ..Plan::default()
    });
    rig.public(&packet::icmp4_echo(HOST, REMOTE, 77, 1));
    rig.seconds(89);
    assert_eq!(1, rig.live());
    rig.seconds(2);
    assert_eq!(0, rig.live());
}

#[test]
fn rfc5508_req3_error_with_a_wrong_checksum_is_dropped_silently() {
    let mut rig = Rig::new(Plan::default());
    let public = rig.public(&packet::udp4(inside(), remote()));
    let quoted = packet::udp4(public, remote()).build();
    let error = packet::icmp4_error(MIDDLE, *public.ip(), 3, 1, &quoted, 548);
    let mut damaged = error.clone().macs(ROUTER_MAC, OUTSIDE_MAC).build();
    damaged[36] ^= 1;
    assert!(rig.send(OUTSIDE, &damaged).is_empty());
    assert_eq!(vec![("bad-transport-checksum", 1)], rig.all_drops());
    assert_eq!(1, rig.router_sends(&error).len());
}

#[test]
fn rfc5508_req3c_transport_checksum_of_the_quoted_packet_is_not_asked_for() {
    let mut rig = Rig::new(Plan::default());
    let public = rig.public(&packet::udp4(inside(), remote()).payload(b"question"));
    let damaged = |source| {
        let mut quoted = packet::udp4(source, remote()).payload(b"question").build();
        quoted[40] ^= 0x55;
        quoted
    };
    let error = packet::icmp4_error(MIDDLE, *public.ip(), 3, 1, &damaged(public), 548);
    let sent = rig.router_sends(&error);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert!(rig::is_valid(&sent[0].frame));
    assert_eq!(damaged(inside())[14..38], sent[0].frame[42..66]);
}

#[test]
fn rfc5508_req3d_extensions_behind_the_quote_pass_untouched() {
    // According to RFC 4884, the quote is padded with zeros to 128 bytes, and its length is given in words. A version,
    // a checksum and an object follow.
    let extensions = [&[0x20, 0, 0, 0, 0, 8, 1, 1][..], &[0x12, 0x34, 0x56, 0x78]].concat();
    let extended = |sent_by: SocketAddrV4, to: Ipv4Addr| {
        let mut rest = packet::udp4(sent_by, remote()).payload(b"question").ttl(1).build()[14..].to_vec();
        rest.resize(128, 0);
        rest.extend_from_slice(&extensions);
        message(MIDDLE, to, 11, [0, 32, 0, 0], &rest)
    };
    let mut rig = Rig::new(Plan::default());
    let public = rig.public(&packet::udp4(inside(), remote()).payload(b"question"));
    let sent = rig.router_sends(&extended(public, *public.ip()));
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let expected = extended(inside(), host()).ttl(63);
    assert_eq!(expected.macs(INSIDE_MAC, HOST_MAC).build(), sent[0].frame);
}

#[test]
fn rfc5508_req4b_req5b_type_and_code_of_errors_stay() {
    let kinds = (0..=15)
        .map(|code| (3, code))
        .chain([(11, 0), (11, 1), (12, 0), (12, 1)]);
    for (kind, code) in kinds {
        let mut rig = Rig::new(Plan::default());
        let public = rig.public(&packet::udp4(inside(), remote()));
        let quoted = packet::udp4(public, remote()).build();
        let sent = rig.router_sends(&packet::icmp4_error(MIDDLE, *public.ip(), kind, code, &quoted, 548));
        assert_eq!(1, sent.len(), "{kind} {code}: {:?}", rig.all_drops());
        assert_eq!([kind, code], sent[0].frame[34..36]);
        let quoted = packet::udp4(remote(), inside()).build();
        let sent = rig.host_sends(&packet::icmp4_error(host(), REMOTE, kind, code, &quoted, 548));
        assert_eq!(1, sent.len(), "{kind} {code}: {:?}", rig.all_drops());
        assert_eq!([kind, code], sent[0].frame[34..36]);
    }
}

#[test]
fn rfc5508_req6_error_about_a_query_neither_refreshes_nor_ends_its_session() {
    let mut rig = Rig::new(Plan::default());
    let ping = |source, identifier| packet::icmp4_echo(source, REMOTE, identifier, 1);
    let public = rig.public(&ping(host(), 77));
    rig.seconds(40);
    let quoted = ping(*public.ip(), public.port()).build();
    let error = packet::icmp4_error(MIDDLE, *public.ip(), 3, 1, &quoted, 548);
    assert_eq!(1, rig.router_sends(&error).len(), "{:?}", rig.all_drops());
    assert_eq!(20, rig.sessions(Filter::default())[0].seconds_left);
    let answer = packet::icmp4_echo_reply(REMOTE, *public.ip(), public.port(), 1);
    assert_eq!(1, rig.router_sends(&answer).len());
    // The inside host sends an ICMP error for an answer.
    rig.seconds(40);
    let quoted = packet::icmp4_echo_reply(REMOTE, host(), 77, 1).build();
    let error = packet::icmp4_error(host(), REMOTE, 3, 3, &quoted, 548);
    assert_eq!(1, rig.host_sends(&error).len(), "{:?}", rig.all_drops());
    assert_eq!(20, rig.sessions(Filter::default())[0].seconds_left);
    rig.seconds(21);
    assert_eq!(0, rig.live());
}

#[test]
fn rfc5508_req7_rfc7857_section12_queries_to_one_to_one_hosts_are_hairpinned() {
    let network = |text| Prefix {
        address: rig::v4(text),
        length: 28,
    };
    let mut rig = Rig::new(Plan {
        sources: vec![SourceRule::of(
            network("192.168.1.64"),
            SourceAction::Static(rig::v4("203.0.113.64")),
        )],
        forwards: vec![DestinationRule::of(
            network("203.0.113.64"),
            DestinationAction::Static(rig::v4("192.168.1.64")),
        )],
        ..Plan::default()
    });
    for last in [66, 67] {
        rig.know(INSIDE, rig::plain(&format!("192.168.1.{last}")), HOST_MAC);
    }
    // One caller uses a pool, the second caller uses a static one-to-one translation.
    for caller in [HOST, "192.168.1.67"] {
        let sent = rig.host_sends(&packet::icmp4_echo(caller, "203.0.113.66", 77, 1));
        assert_eq!(1, sent.len(), "{caller}: {:?}", rig.all_drops());
        let (seen, called) = flow(&sent[0].frame);
        assert_eq!((INSIDE, Ipv4Addr::new(192, 168, 1, 66)), (sent[0].port, *called.ip()));
        assert_eq!([203, 0, 113], seen.ip().octets()[..3], "by its outside address");
        let answer = packet::icmp4_echo_reply(*called.ip(), *seen.ip(), seen.port(), 1);
        let sent = rig.host_sends(&answer);
        assert_eq!(1, sent.len(), "{caller}: {:?}", rig.all_drops());
        let expected = packet::icmp4_echo_reply("203.0.113.66", caller, 77, 1).ttl(63);
        assert_eq!(expected.macs(INSIDE_MAC, HOST_MAC).build(), sent[0].frame);
    }
}

#[test]
fn rfc5508_req10a_ttl_that_runs_out_between_inside_hosts_is_reported_to_the_sender() {
    let mut rig = Rig::new(Plan::default());
    rig.know(INSIDE, rig::plain("192.168.1.11"), HOST_MAC);
    let callee = rig.public(&packet::udp4("192.168.1.11:7000", "198.51.100.7:53"));
    let sent = rig.host_sends(&packet::udp4(inside(), callee).ttl(1));
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let frame = &sent[0].frame;
    assert_eq!(([11, 0], INSIDE), ([frame[34], frame[35]], sent[0].port));
    assert_eq!(host().octets(), frame[30..34]);
    assert_eq!(
        packet::udp4(inside(), callee).ttl(1).build()[14..],
        frame[42..],
        "quotes what it sent"
    );
    assert!(rig::is_valid(frame));
}

#[test]
fn rfc5508_req10c_no_source_quench_is_sent_however_full_the_tables_are() {
    let mut rig = Rig::new(Plan {
        shards: 1,
        sessions: 4,
        ..Plan::default()
    });
    for port in 1..50 {
        for sent in rig.host_sends(&packet::udp4(SocketAddrV4::new(host(), port), remote())) {
            assert!(sent.port == OUTSIDE || sent.frame[34..36] == [3, 1]);
        }
    }
    assert_eq!(45, rig.drops("sessions-full"));
}

#[test]
fn rfc5508_req10c_information_requests_to_the_gateway_are_not_answered() {
    let mut rig = Rig::new(Plan::default());
    let gateway = Ipv4Addr::new(192, 168, 1, 1);
    // An ICMP message of an unknown type gets no answer (RFC 1122, 3.2.2).
    for kind in [15, 200] {
        assert!(rig.host_sends(&query(host(), gateway, kind, 77)).is_empty());
    }
    assert_eq!(2, rig.drops("no-local-service"));
    assert_eq!(1, rig.host_sends(&query(host(), gateway, 8, 77)).len(), "an echo is");
}

#[test]
fn rfc5508_req10c_source_quench_and_information_requests_of_others_are_not_translated() {
    let mut rig = Rig::new(Plan::default());
    let public = rig.public(&packet::udp4(inside(), remote()));
    let quoted = packet::udp4(public, remote()).build();
    let quench = packet::icmp4_error(MIDDLE, *public.ip(), 4, 0, &quoted, 548);
    assert!(rig.router_sends(&quench).is_empty());
    let quoted = packet::udp4(remote(), inside()).build();
    let quench = packet::icmp4_error(host(), REMOTE, 4, 0, &quoted, 548);
    assert!(rig.host_sends(&quench).is_empty());
    assert_eq!(2, rig.drops("source-quench"));
    for kind in [15, 16] {
        assert!(rig.host_sends(&query(host(), REMOTE, kind, 77)).is_empty());
    }
    assert_eq!((2, 1), (rig.drops("unsupported-protocol"), rig.live()));
}

#[test]
fn rfc5508_req10d_errors_are_of_the_class_internetwork_control() {
    let mut rig = Rig::new(Plan::default());
    let sent = rig.host_sends(&packet::udp4(inside(), remote()).ttl(1));
    assert_eq!(
        ([11, 0], 0xc0),
        ([sent[0].frame[34], sent[0].frame[35]], sent[0].frame[15])
    );
}

#[test]
fn rfc7857_section11_mapping_of_a_query_goes_with_its_last_session() {
    let mut rig = Rig::new(Plan {
        shards: 1,
        pool: vec![(rig::POOL.to_bits(), rig::POOL.to_bits())],
        pool_ports: (2000, 2000),
        change_pool: |pool| pool.hold.seconds = 0,
        ..Plan::default()
    });
    let ping = |remote, identifier| packet::icmp4_echo(HOST, remote, identifier, 1);
    rig.public(&ping("198.51.100.7", 77));
    rig.seconds(50);
    rig.public(&ping("198.51.100.8", 77));
    rig.seconds(50);
    // The first session has ended, but the identifier is still in use.
    assert_eq!(1, rig.live());
    assert_eq!(INSIDE, rig.host_sends(&ping("198.51.100.7", 78))[0].port);
    rig.seconds(11);
    assert_eq!(0, rig.live());
    assert_eq!(2000, rig.public(&ping("198.51.100.7", 78)).port());
}

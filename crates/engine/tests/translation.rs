//! Tests of the translation of each protocol in both directions, of forwarded ports, and of unsolicited packets.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::rig::{self, HOST, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, flow, v4};
use sluice_engine::worker::request::{Filter, Reply, Request};
use sluice_nat::rule::{DestinationAction, DestinationRule, Prefix};
use sluice_testkit::packet::{self, Frame, Icmpv4Type, flag};

const REMOTE: &str = "198.51.100.7:53";

fn remote() -> SocketAddrV4 {
    REMOTE.parse().unwrap()
}

fn inside(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(HOST.parse().unwrap(), port)
}

fn forward(external: &str, ports: (u16, u16), target: &str, target_port: Option<u16>) -> DestinationRule<u32> {
    DestinationRule {
        context: 0,
        protocol: Some(6),
        external: Prefix::host(v4(external)),
        ports: Some(ports),
        inbound: None,
        action: DestinationAction::Host(v4(target), target_port),
    }
}

#[test]
fn udp_both_directions_only_addresses_ports_ttl_and_checksums_change() {
    let mut rig = Rig::new(Plan::default());
    for payload in [&b""[..], b"odd", b"a question of even length."] {
        let question = packet::udp4(inside(5000), remote()).payload(payload).ttl(9);
        let sent = rig.host_sends(&question);
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        let public = flow(&sent[0].frame).0;
        let expected = packet::udp4(public, remote()).payload(payload).ttl(8);
        assert_eq!(expected.macs(OUTSIDE_MAC, ROUTER_MAC).build(), sent[0].frame);

        let answer = packet::udp4(remote(), public).payload(payload).ttl(3);
        let sent = rig.router_sends(&answer);
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        let expected = packet::udp4(remote(), inside(5000)).payload(payload).ttl(2);
        assert_eq!(expected.macs(INSIDE_MAC, HOST_MAC).build(), sent[0].frame);
    }
    assert_eq!(1, rig.live());
}

#[test]
fn udp_without_checksum_stays_without() {
    let mut rig = Rig::new(Plan::default());
    let mut question = packet::udp4(inside(5000), remote())
        .payload(b"abc")
        .macs(HOST_MAC, INSIDE_MAC)
        .build();
    question[40..42].fill(0);
    let sent = rig.send(INSIDE, &question);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!([0, 0], sent[0].frame[40..42]);
}

#[test]
fn frame_padded_to_the_minimum_is_translated_with_its_padding() {
    let mut rig = Rig::new(Plan::default());
    let sent = rig.host_sends(&packet::udp4(inside(5000), remote()).padded(60));
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let public = flow(&sent[0].frame).0;
    let expected = packet::udp4(public, remote()).padded(60).ttl(63);
    assert_eq!(expected.macs(OUTSIDE_MAC, ROUTER_MAC).build(), sent[0].frame);
}

#[test]
fn flows_of_one_host_share_its_public_address_and_never_a_port() {
    let mut rig = Rig::new(Plan::default());
    let publics: Vec<_> = (0..500)
        .map(|port| rig.public(&packet::udp4(inside(20_000 + port), remote())))
        .collect();
    let mut ports: Vec<_> = publics.iter().map(|public| public.port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(500, ports.len());
    assert!(publics.iter().all(|public| public.ip() == publics[0].ip()));
    assert!(ports[0] >= 1024);
}

#[test]
fn answer_of_another_remote_or_port_is_unsolicited() {
    let mut rig = Rig::new(Plan {
        behaviour: sluice_nat::Behaviour::ADDRESS_AND_PORT_DEPENDENT,
        ..Plan::default()
    });
    let public = rig.public(&packet::udp4(inside(5000), remote()));
    for other in ["198.51.100.7:54", "198.51.100.8:53"] {
        let other: SocketAddrV4 = other.parse().unwrap();
        assert!(rig.router_sends(&packet::udp4(other, public)).is_empty());
    }
    let syn = packet::tcp4(remote(), public).flags(flag::SYN);
    assert!(rig.router_sends(&syn).is_empty());
    assert_eq!(vec![("unsolicited", 3)], rig.all_drops());
}

#[test]
fn tcp_segment_that_opens_nothing_is_dropped_by_name() {
    let mut rig = Rig::new(Plan::default());
    for flags in [flag::ACK, flag::SYN | flag::ACK, flag::RST, flag::FIN | flag::ACK] {
        assert!(
            rig.host_sends(&packet::tcp4(inside(1), remote()).flags(flags))
                .is_empty()
        );
    }
    assert_eq!(vec![("tcp-not-opening", 4)], rig.all_drops());
    assert_eq!(0, rig.live());
}

#[test]
fn echo_request_against_a_session_is_no_answer() {
    let mut rig = Rig::new(Plan::default());
    let public = rig.public(&packet::icmp4_echo(HOST, "198.51.100.7", 7, 1));
    let remote = *remote().ip();
    let probe = packet::icmp4_echo(remote, *public.ip(), public.port(), 1);
    assert!(rig.router_sends(&probe).is_empty());
    let other = packet::icmp4_echo_reply(remote, *public.ip(), public.port().wrapping_add(1), 1);
    assert!(rig.router_sends(&other).is_empty());
    assert_eq!(vec![("unsolicited", 2)], rig.all_drops());
}

#[test]
fn rfc5508_req11_icmp_that_is_neither_query_nor_error_opens_no_session() {
    let mut rig = Rig::new(Plan::default());
    let kind = Icmpv4Type::Unknown {
        type_u8: 42,
        code_u8: 0,
        bytes5to8: [0; 4],
    };
    let source: Ipv4Addr = HOST.parse().unwrap();
    let strange = packet::frame4(source, *remote().ip(), packet::Transport::Icmp4(kind));
    assert!(rig.host_sends(&strange).is_empty());
    assert_eq!(vec![("unsupported-protocol", 1)], rig.all_drops());
    assert_eq!(0, rig.live());
}

#[test]
fn protocol_without_ports_is_refused_where_a_pool_would_be_shared() {
    let mut rig = Rig::new(Plan::default());
    let source: Ipv4Addr = HOST.parse().unwrap();
    let tunnel = packet::frame4(source, *remote().ip(), packet::Transport::Raw(packet::IpNumber(47)));
    assert!(rig.host_sends(&tunnel.payload(&[0; 8])).is_empty());
    assert_eq!(vec![("unsupported-protocol", 1)], rig.all_drops());
}

#[test]
fn forwarded_port_both_directions_reach_the_host_at_its_own_port() {
    let mut rig = Rig::new(Plan {
        forwards: vec![forward("203.0.113.20", (8080, 8089), HOST, Some(80))],
        ..Plan::default()
    });
    let client: SocketAddrV4 = "198.51.100.9:40000".parse().unwrap();
    let external: SocketAddrV4 = "203.0.113.20:8083".parse().unwrap();
    let syn = packet::tcp4(client, external).flags(flag::SYN);
    let sent = rig.router_sends(&syn);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let expected = packet::tcp4(client, inside(83)).flags(flag::SYN).ttl(63);
    assert_eq!(expected.macs(INSIDE_MAC, HOST_MAC).build(), sent[0].frame);
    assert_eq!(INSIDE, sent[0].port);

    let answer = packet::tcp4(inside(83), client).flags(flag::SYN | flag::ACK);
    let sent = rig.host_sends(&answer);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let expected = packet::tcp4(external, client).flags(flag::SYN | flag::ACK).ttl(63);
    assert_eq!(expected.macs(OUTSIDE_MAC, ROUTER_MAC).build(), sent[0].frame);
    assert_eq!(OUTSIDE, sent[0].port);
    assert_eq!(1, rig.live());
}

#[test]
fn forwarded_port_on_the_gateways_own_address_is_forwarded_and_its_neighbour_port_is_not() {
    let mut rig = Rig::new(Plan {
        forwards: vec![forward("203.0.113.1", (2222, 2222), HOST, Some(22))],
        ..Plan::default()
    });
    let client: SocketAddrV4 = "198.51.100.9:40000".parse().unwrap();
    let own = |port| SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 1), port);
    let sent = rig.router_sends(&packet::tcp4(client, own(2222)).flags(flag::SYN));
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!((client, inside(22)), flow(&sent[0].frame));
    let sent = rig.router_sends(&packet::tcp4(client, own(2223)).flags(flag::SYN));
    assert_eq!(1, sent.len());
    assert_eq!(OUTSIDE, sent[0].port, "an error");
    assert_eq!(vec![("no-local-service", 1)], rig.all_drops());
}

#[test]
fn forwarded_port_range_asked_with_udp_is_unsolicited() {
    let mut rig = Rig::new(Plan {
        forwards: vec![forward("203.0.113.10", (80, 80), HOST, None)],
        ..Plan::default()
    });
    let external: SocketAddrV4 = "203.0.113.10:80".parse().unwrap();
    assert!(rig.router_sends(&packet::udp4(remote(), external)).is_empty());
    assert_eq!(vec![("unsolicited", 1)], rig.all_drops());
}

#[test]
fn session_listed_shows_both_directions_and_what_went_through() {
    let mut rig = Rig::new(Plan::default());
    let public = rig.public(&packet::udp4(inside(5000), remote()).payload(&[1; 100]));
    rig.router_sends(&packet::udp4(remote(), public).payload(&[2; 50]));
    rig.router_sends(&packet::udp4(remote(), public).payload(&[3; 50]));
    let sessions = rig.sessions(Filter::default());
    assert_eq!(1, sessions.len());
    let shown = &sessions[0];
    assert_eq!(
        (HOST.parse().unwrap(), 5000),
        (shown.forward.source, shown.forward.source_port)
    );
    let back = (shown.reverse.destination, shown.reverse.destination_port);
    assert_eq!(((*public.ip()).into(), public.port()), back);
    assert_eq!([1, 2], shown.packets);
    assert_eq!([128, 2 * 78], shown.bytes);
    assert!(shown.answered);
    assert_eq!(300, shown.seconds_left);
    assert_eq!((17, None, INSIDE), (shown.protocol, shown.state, shown.interface));
}

#[test]
fn session_cleared_gives_its_port_and_neighbours_back() {
    let mut rig = Rig::new(Plan::default());
    // A route also holds a reference to its gateway after a packet has used the route.
    let (host, router) = (rig.uses(INSIDE, HOST), 1);
    for port in 0..100 {
        rig.public(&packet::udp4(inside(5000 + port), remote()));
    }
    assert_eq!(
        (host + 100, router + 100),
        (rig.uses(INSIDE, HOST), rig.uses(OUTSIDE, "203.0.113.254"))
    );
    let filter = Filter {
        source_port: Some(5007),
        ..Filter::default()
    };
    let clear = |filter| Request::Clear {
        cursor: Default::default(),
        filter,
        ended: 0,
    };
    assert!(matches!(rig.ask(0, clear(filter)), Reply::Cleared(1)));
    assert!(matches!(rig.ask(0, clear(Filter::default())), Reply::Cleared(99)));
    assert_eq!(0, rig.live());
    assert_eq!(
        (host, router),
        (rig.uses(INSIDE, HOST), rig.uses(OUTSIDE, "203.0.113.254"))
    );
}

/// If an outside host connects to an inside host's own address, the source of the answers is not translated.
#[test]
fn connection_from_outside_to_an_inside_host_s_own_address_keeps_it() {
    let mut rig = Rig::new(Plan::default());
    let (host, remote) = ("192.168.1.10:22", "198.51.100.7:4000");
    let syn = packet::tcp4(remote, host).flags(flag::SYN).numbers(100, 0);
    assert_eq!(1, rig.router_sends(&syn).len(), "{:?}", rig.all_drops());
    let answer = packet::tcp4(host, remote)
        .flags(flag::SYN | flag::ACK)
        .numbers(500, 101);
    let sent = rig.host_sends(&answer);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(
        answer.clone().ttl(63).macs(rig::OUTSIDE_MAC, rig::ROUTER_MAC).build(),
        sent[0].frame
    );
    // ICMP errors for the connection pass in both directions.
    let quoted = syn.clone().ttl(63).macs(rig::INSIDE_MAC, rig::HOST_MAC).build();
    let error = packet::icmp4_error("192.168.1.10", "198.51.100.7", 3, 3, &quoted, 28);
    assert_eq!(1, rig.host_sends(&error).len(), "{:?}", rig.all_drops());
    let error = packet::icmp4_error("198.51.100.77", "192.168.1.10", 3, 1, &sent[0].frame, 28);
    assert_eq!(1, rig.router_sends(&error).len(), "{:?}", rig.all_drops());

    let question = packet::udp4("198.51.100.7:5000", "192.168.1.10:53");
    assert_eq!(1, rig.router_sends(&question).len());
    let sent = rig.host_sends(&packet::udp4("192.168.1.10:53", "198.51.100.7:5000"));
    assert_eq!("192.168.1.10:53", rig::flow(&sent[0].frame).0.to_string());

    let ping = packet::icmp4_echo("198.51.100.7", "192.168.1.10", 7, 1);
    assert_eq!(1, rig.router_sends(&ping).len());
    let sent = rig.host_sends(&packet::icmp4_echo_reply("192.168.1.10", "198.51.100.7", 7, 1));
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!("192.168.1.10", rig::flow(&sent[0].frame).0.ip().to_string());
    assert_eq!(3, rig.live());

    // Flows that the host starts are translated as usual.
    assert_eq!(
        rig::POOL.octets()[..3],
        rig.public(&packet::udp4("192.168.1.10:53", "198.51.100.8:5000"))
            .ip()
            .octets()[..3]
    );
    // If rules don't change, no session ends.
    let (snapshot, routes) = rig::snapshot(&Plan::default());
    rig.plane.commit(snapshot, &[routes]).unwrap();
    assert_eq!(1, rig.host_sends(&answer).len());
    assert_eq!(4, rig.live());
}

/// Both directions of a flow belong to one shard, for any addresses.
#[test]
fn answers_find_what_began_outside_whatever_the_addresses() {
    for (workers, shards) in [(1, 1), (1, 16), (4, 16)] {
        let mut rig = Rig::new(Plan {
            workers,
            shards,
            ..Plan::default()
        });
        for number in 0..48u8 {
            let (host, remote) = (
                Ipv4Addr::new(192, 168, 1, 20 + number),
                Ipv4Addr::new(198, 51, number, number.wrapping_mul(7)),
            );
            let port = 1000 + 97 * u16::from(number);
            rig.know(INSIDE, rig::plain(&host.to_string()), HOST_MAC);
            let (inside, outside) = (format!("{host}:{port}"), format!("{remote}:4000"));
            let syn = packet::tcp4(outside.as_str(), inside.as_str())
                .flags(flag::SYN)
                .numbers(100, 0);
            let answer = packet::tcp4(inside.as_str(), outside.as_str())
                .flags(flag::SYN | flag::ACK)
                .numbers(500, 101);
            let datagram = packet::udp4(outside.as_str(), inside.as_str());
            let back = packet::udp4(inside.as_str(), outside.as_str());
            for (asks, answers) in [(syn, answer), (datagram, back)] {
                assert_eq!(1, rig.router_sends(&asks).len(), "{number}: {:?}", rig.all_drops());
                let sent = rig.host_sends(&answers);
                assert_eq!(1, sent.len(), "{number} of {shards}: {:?}", rig.all_drops());
                assert_eq!(host.octets(), sent[0].frame[26..30], "{number} of {shards}");
            }
        }
    }
}

#[test]
fn packets_from_outside_to_own_addresses_of_inside_hosts_are_dropped_where_none_may_pass() {
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| snapshot.passes_untranslated = false,
        ..Plan::default()
    });
    for flags in [flag::SYN, flag::ACK] {
        let segment = packet::tcp4("198.51.100.7:4000", "192.168.1.10:22").flags(flags);
        assert!(rig.router_sends(&segment).is_empty());
    }
    assert!(
        rig.router_sends(&packet::udp4("198.51.100.7:53", "192.168.1.10:53"))
            .is_empty()
    );
    assert!(
        rig.router_sends(&packet::icmp4_echo_reply("198.51.100.7", "192.168.1.10", 7, 1))
            .is_empty()
    );
    assert_eq!(4, rig.drops("untranslated-inbound"), "{:?}", rig.all_drops());
    // Answers of sessions are not affected by the rule.
    let public = rig.public(&packet::udp4("192.168.1.10:53", "198.51.100.7:53"));
    assert_eq!(1, rig.router_sends(&packet::udp4("198.51.100.7:53", public)).len());
}

/// A UDP-Lite packet whose checksum covers this number of bytes (0 for all bytes). The checksum is computed word by
/// word, according to RFC 3828, section 3.1.
fn udp_lite(source: SocketAddrV4, destination: SocketAddrV4, coverage: u16, payload: &[u8]) -> Frame {
    let words = [source.port(), destination.port(), coverage, 0].map(u16::to_be_bytes);
    let mut bytes = [&words.concat()[..], payload].concat();
    let covered = if coverage == 0 {
        bytes.len()
    } else {
        usize::from(coverage).min(bytes.len())
    };
    let length = (bytes.len() as u16).to_be_bytes();
    let pseudo = [
        &source.ip().octets()[..],
        &destination.ip().octets(),
        &[0, 136],
        &length,
    ]
    .concat();
    let words = pseudo.chunks(2).chain(bytes[..covered].chunks(2));
    let sum: u64 = words
        .map(|word| u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0)))
        .sum();
    let checksum = match 0xffff - (sum % 0xffff) as u16 {
        0 => 0xffff,
        checksum => checksum,
    };
    bytes[6..8].copy_from_slice(&checksum.to_be_bytes());
    let transport = packet::Transport::Raw(packet::IpNumber(136));
    packet::frame4(*source.ip(), *destination.ip(), transport).payload(&bytes)
}

#[test]
fn udp_lite_is_translated_by_its_ports_whatever_its_checksum_covers() {
    let mut rig = Rig::new(Plan::default());
    rig.know(INSIDE, rig::plain("192.168.1.11"), HOST_MAC);
    let mut publics = Vec::new();
    for (last, coverage) in [(10, 0), (10, 8), (10, 11), (11, 16)] {
        let host = SocketAddrV4::new(std::net::Ipv4Addr::new(192, 168, 1, last), 5000 + coverage);
        let sent = rig.host_sends(&udp_lite(host, remote(), coverage, b"question"));
        assert_eq!(1, sent.len(), "{coverage} {:?}", rig.all_drops());
        let public = flow(&sent[0].frame).0;
        let expected = udp_lite(public, remote(), coverage, b"question")
            .ttl(63)
            .macs(OUTSIDE_MAC, ROUTER_MAC);
        assert_eq!(expected.build(), sent[0].frame);
        publics.push((host, public));
    }
    publics.dedup_by_key(|(_, public)| *public);
    assert_eq!(4, publics.len());
    let (host, public) = publics[1];
    let sent = rig.router_sends(&udp_lite(remote(), public, 8, b"answer"));
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let expected = udp_lite(remote(), host, 8, b"answer")
        .ttl(63)
        .macs(INSIDE_MAC, HOST_MAC);
    assert_eq!(expected.build(), sent[0].frame);
}

#[test]
fn udp_lite_whose_checksum_covers_too_little_or_too_much_or_is_wrong_is_dropped_by_name() {
    let mut rig = Rig::new(Plan::default());
    for coverage in [1, 7, 17, 0xffff] {
        assert!(
            rig.host_sends(&udp_lite(inside(5000), remote(), coverage, b"question"))
                .is_empty()
        );
    }
    for changed in [6, 15] {
        let mut frame = udp_lite(inside(5000), remote(), 16, b"question");
        frame.payload[changed] ^= 0x55;
        assert!(rig.host_sends(&frame).is_empty());
    }
    let mut none = udp_lite(inside(5000), remote(), 0, b"question");
    none.payload[6..8].fill(0);
    assert!(rig.host_sends(&none).is_empty());
    assert_eq!(
        vec![("bad-udp-length", 4), ("bad-transport-checksum", 3)],
        rig.all_drops()
    );
    // Bytes that the checksum does not cover may be damaged.
    let mut frame = udp_lite(inside(5000), remote(), 12, b"question");
    frame.payload[15] ^= 0x55;
    assert_eq!(1, rig.host_sends(&frame).len());
}

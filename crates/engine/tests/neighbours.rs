//! Tests of neighbours: resolution, parking, ageing, and answers to requests.

use std::net::Ipv6Addr;

use crate::rig::{
    self, HOST, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, Sent, plain, route,
};
use sluice_engine::snapshot::Advertise;
use sluice_engine::worker::request::{Reply, Request};
use sluice_route::Via;
use sluice_testkit::packet::{self, Frame};

const ROUTER: &str = "203.0.113.254";
const HOST6: &str = "2001:db8:1::10";
const GATEWAY6: &str = "2001:db8:1::1";

fn plan() -> Plan {
    Plan {
        translate: false,
        known_neighbours: false,
        ..Plan::default()
    }
}

fn datagram(port: u16) -> Frame {
    let source = std::net::SocketAddrV4::new(HOST.parse().unwrap(), port);
    packet::udp4(source, "198.51.100.7:53".parse::<std::net::SocketAddrV4>().unwrap())
}

fn reply() -> Vec<u8> {
    packet::arp_reply(ROUTER_MAC, ROUTER, OUTSIDE_MAC, "203.0.113.1")
}

fn request() -> Vec<u8> {
    packet::arp_request(OUTSIDE_MAC, "203.0.113.1", ROUTER)
}

fn ports(sent: &[Sent]) -> Vec<u16> {
    sent.iter().map(|sent| rig::flow(&sent.frame).0.port()).collect()
}

#[test]
fn packets_that_wait_are_sent_in_order_once_the_neighbour_answers() {
    let mut rig = Rig::new(plan());
    assert_eq!(request(), rig.host_sends(&datagram(1))[0].frame);
    for port in 2..=4 {
        assert!(rig.host_sends(&datagram(port)).is_empty());
    }
    let sent = rig.send(OUTSIDE, &reply());
    assert_eq!(vec![1, 2, 3, 4], ports(&sent));
    assert!(sent.iter().all(|sent| sent.frame[..6] == ROUTER_MAC));
    assert_eq!(vec![5], ports(&rig.host_sends(&datagram(5))));
}

#[test]
fn packets_that_wait_are_counted_for_their_neighbour() {
    let mut rig = Rig::new(plan());
    let waiting = |rig: &Rig| {
        let neighbour = rig.plane.neighbours().find(OUTSIDE, plain(ROUTER)).unwrap();
        rig.plane.waiting().of(neighbour)
    };
    for port in 1..=3 {
        rig.host_sends(&datagram(port));
        assert_eq!(u32::from(port), waiting(&rig));
    }
    rig.send(OUTSIDE, &reply());
    assert_eq!(0, waiting(&rig));
    rig.host_sends(&datagram(4));
    assert_eq!(0, waiting(&rig));
}

#[test]
fn packets_beyond_the_bound_replace_the_oldest() {
    let mut rig = Rig::new(plan());
    for port in 1..=10 {
        rig.host_sends(&datagram(port));
    }
    assert_eq!(vec![("parked-replaced", 6)], rig.all_drops());
    assert_eq!(vec![7, 8, 9, 10], ports(&rig.send(OUTSIDE, &reply())));
}

#[test]
fn packets_beyond_the_bound_in_all_are_dropped_by_name() {
    let mut plan = plan();
    plan.limits.parked_in_all = 3;
    let mut rig = Rig::new(plan);
    for host in 1..=5 {
        let to = std::net::SocketAddrV4::new([203, 0, 113, 100 + host].into(), 9);
        rig.host_sends(&packet::udp4(
            "192.168.1.10:1".parse::<std::net::SocketAddrV4>().unwrap(),
            to,
        ));
    }
    assert_eq!(vec![("parked-too-many", 2)], rig.all_drops());
    assert_eq!(3, rig.workers[0].io_mut().parked());
}

#[test]
fn neighbour_that_never_answers_fails_after_three_requests_and_the_sender_is_told() {
    let mut rig = Rig::new(plan());
    rig.know(INSIDE, plain(HOST), HOST_MAC);
    let cause = datagram(1);
    let mut sent = rig.host_sends(&cause);
    rig.pass(5000);
    sent.extend(rig.sent());
    let queried = sent.iter().filter(|sent| sent.frame == request()).count();
    assert_eq!(3, queried);
    let errors: Vec<_> = sent.iter().filter(|sent| sent.port == INSIDE).collect();
    assert_eq!(1, errors.len());
    assert_eq!([3, 1], errors[0].frame[34..36]);
    assert_eq!(vec![("neighbour-unresolved", 1)], rig.all_drops());
    assert_eq!(0, rig.workers[0].io_mut().parked());
    // While the entry is in the failed state, packets are not parked.
    rig.pass(10);
    let _ = rig.host_sends(&datagram(2));
    assert_eq!(0, rig.workers[0].io_mut().parked());
}

#[test]
fn neighbour_that_ages_is_probed_and_asked_again_when_it_is_gone() {
    let mut rig = Rig::new(plan());
    rig.host_sends(&datagram(1));
    rig.send(OUTSIDE, &reply());
    // The gateway probes the neighbour after half a minute, even with continuous traffic.
    let mut probes = 0;
    for _ in 0..60 {
        rig.pass(1000);
        let sent = rig.host_sends(&datagram(1));
        for sent in sent.iter().filter(|sent| sent.frame[12..14] == [0x08, 0x06]) {
            assert_eq!(ROUTER_MAC, sent.frame[..6]);
            probes += 1;
            rig.wires[0].inject(OUTSIDE, &reply(), sluice_wire::Checksums::Unverified);
        }
    }
    assert!((1..=3).contains(&probes), "{probes}");
    assert!(rig.all_drops().is_empty(), "{:?}", rig.all_drops());
    // The neighbour no longer answers. After three probes, packets to it are refused.
    for _ in 0..80 {
        rig.pass(1000);
        rig.host_sends(&datagram(1));
    }
    assert!(rig.drops("neighbour-unresolved") > 0);
}

#[test]
fn neighbour_that_moves_is_followed_by_gratuitous_arp() {
    for reply in [false, true] {
        let mut rig = Rig::new(plan());
        rig.host_sends(&datagram(1));
        rig.send(OUTSIDE, &self::reply());
        let moved = [2, 9, 9, 9, 9, 9];
        let gratuitous = if reply {
            packet::arp_reply(moved, ROUTER, [0xff; 6], ROUTER)
        } else {
            packet::arp_request(moved, ROUTER, ROUTER)
        };
        assert!(rig.send(OUTSIDE, &gratuitous).is_empty());
        assert_eq!(moved, rig.host_sends(&datagram(1))[0].frame[..6]);
    }
}

/// Another host claims an address of the gateway, or the address of a neighbour.
#[test]
fn claims_to_addresses_of_others_are_told_of() {
    let mut rig = Rig::new(Plan {
        translate: false,
        ..Plan::default()
    });
    let conflicts = rig.plane.conflicts().clone();
    let claim = |address: &str| packet::arp_reply([2, 0, 0, 0, 6, 6], address, [0xff; 6], address);
    rig.send(OUTSIDE, &claim("203.0.113.1"));
    rig.send(OUTSIDE, &claim(ROUTER));
    let told: Vec<_> = std::iter::from_fn(|| conflicts.take())
        .map(|conflict| (conflict.interface, conflict.address, conflict.of))
        .collect();
    let expected = vec![
        (OUTSIDE, plain("203.0.113.1"), None),
        (OUTSIDE, plain(ROUTER), Some(ROUTER_MAC)),
    ];
    assert_eq!(expected, told);
    // An announcement of the gateway itself is not a conflict. An announcement of an address of another link is not a
    // conflict either.
    rig.send(
        OUTSIDE,
        &packet::arp_reply(OUTSIDE_MAC, "203.0.113.1", [0xff; 6], "203.0.113.1"),
    );
    rig.send(INSIDE, &claim("203.0.113.77"));
    assert_eq!(None, conflicts.take());
}

#[test]
fn arp_about_strangers_teaches_nothing() {
    let mut rig = Rig::new(plan());
    let before = rig.plane.neighbours().find(INSIDE, plain("10.1.1.1"));
    rig.send(INSIDE, &packet::arp_request([2, 7, 7, 7, 7, 7], "10.1.1.1", "10.1.1.2"));
    rig.send(
        INSIDE,
        &packet::arp_request([2, 7, 7, 7, 7, 7], "192.168.1.77", "192.168.1.78"),
    );
    // The gateway does not learn its own address, nor an address with a multicast MAC.
    rig.send(
        INSIDE,
        &packet::arp_request([2, 7, 7, 7, 7, 7], "192.168.1.1", "192.168.1.1"),
    );
    rig.send(
        INSIDE,
        &packet::arp_request([3, 7, 7, 7, 7, 7], "192.168.1.79", "192.168.1.1"),
    );
    assert_eq!(None, before);
    for address in ["10.1.1.1", "192.168.1.77", "192.168.1.1", "192.168.1.79"] {
        assert_eq!(None, rig.plane.neighbours().find(INSIDE, plain(address)), "{address}");
    }
}

#[test]
fn arp_request_for_the_gateway_is_answered_and_its_sender_learned() {
    let mut rig = Rig::new(plan());
    let sent = rig.send(INSIDE, &packet::arp_request(HOST_MAC, HOST, "192.168.1.1"));
    assert_eq!(1, sent.len());
    assert_eq!(
        packet::arp_reply(INSIDE_MAC, "192.168.1.1", HOST_MAC, HOST),
        sent[0].frame
    );
    // Requests for the address of another interface are not answered on this interface.
    assert!(
        rig.send(INSIDE, &packet::arp_request(HOST_MAC, HOST, "203.0.113.1"))
            .is_empty()
    );
    let inbound = packet::udp4("198.51.100.7:53", "192.168.1.10:5000");
    assert_eq!(HOST_MAC, rig.router_sends(&inbound)[0].frame[..6]);
    // The request is an ARP probe (RFC 5227).
    let sent = rig.send(INSIDE, &packet::arp_request(HOST_MAC, "0.0.0.0", "192.168.1.1"));
    assert_eq!(1, sent.len());
    assert_eq!(HOST_MAC, sent[0].frame[..6]);
}

fn solicited_node(target: &str) -> Ipv6Addr {
    let o = target.parse::<Ipv6Addr>().unwrap().octets();
    [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, o[13], o[14], o[15]].into()
}

fn group_mac(group: Ipv6Addr) -> [u8; 6] {
    let o = group.octets();
    [0x33, 0x33, o[12], o[13], o[14], o[15]]
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn link_option(kind: u8, mac: [u8; 6]) -> Vec<u8> {
    [&[kind, 1][..], &mac].concat()
}

#[test]
fn solicitation_for_the_gateway_is_answered() {
    let mut rig = Rig::new(plan());
    let group = solicited_node(GATEWAY6);
    let question = packet::neighbour(v6(HOST6), group, 135, 0, v6(GATEWAY6), &link_option(1, HOST_MAC));
    let sent = rig.send(INSIDE, &question.macs(HOST_MAC, group_mac(group)).build());
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    // The router, solicited and override flags are set.
    let answer = packet::neighbour(
        v6(GATEWAY6),
        v6(HOST6),
        136,
        0xe000_0000,
        v6(GATEWAY6),
        &link_option(2, INSIDE_MAC),
    );
    assert_eq!(answer.macs(INSIDE_MAC, HOST_MAC).build(), sent[0].frame);
    let inbound = packet::udp6("[2001:db8:9::7]:53", "[2001:db8:1::10]:5000");
    assert_eq!(HOST_MAC, rig.router_sends(&inbound)[0].frame[..6]);
}

#[test]
fn duplicate_address_detection_of_a_gateways_address_is_answered_to_all() {
    let mut rig = Rig::new(plan());
    let group = solicited_node(GATEWAY6);
    let question = packet::neighbour(Ipv6Addr::UNSPECIFIED, group, 135, 0, v6(GATEWAY6), &[]);
    let sent = rig.send(INSIDE, &question.macs(HOST_MAC, group_mac(group)).build());
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let all = v6("ff02::1");
    let answer = packet::neighbour(
        v6(GATEWAY6),
        all,
        136,
        0xa000_0000,
        v6(GATEWAY6),
        &link_option(2, INSIDE_MAC),
    );
    assert_eq!(answer.macs(INSIDE_MAC, group_mac(all)).build(), sent[0].frame);
}

#[test]
fn solicitation_from_beyond_the_link_is_dropped() {
    let mut rig = Rig::new(plan());
    let question = packet::neighbour(v6(HOST6), v6(GATEWAY6), 135, 0, v6(GATEWAY6), &[]).ttl(254);
    assert!(rig.host_sends(&question).is_empty());
    assert_eq!(vec![("bad-neighbour-message", 1)], rig.all_drops());
}

#[test]
fn ipv6_neighbour_is_solicited_and_what_waits_is_sent() {
    let mut rig = Rig::new(plan());
    let inbound = packet::udp6("[2001:db8:9::7]:53", "[2001:db8:1::10]:5000");
    let sent = rig.router_sends(&inbound);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let group = solicited_node(HOST6);
    let question = packet::neighbour(v6(GATEWAY6), group, 135, 0, v6(HOST6), &link_option(1, INSIDE_MAC));
    assert_eq!(question.macs(INSIDE_MAC, group_mac(group)).build(), sent[0].frame);
    let answer = packet::neighbour(
        v6(HOST6),
        v6(GATEWAY6),
        136,
        0x6000_0000,
        v6(HOST6),
        &link_option(2, HOST_MAC),
    );
    let sent = rig.host_sends(&answer);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(inbound.ttl(63).macs(INSIDE_MAC, HOST_MAC).build(), sent[0].frame);
}

/// A route for 198.51.100.0/24 through a gateway on the outside link. The gateway need not be in a network of the link.
fn by(gateway: &str) -> Plan {
    let via = Via::OnLink {
        address: plain(gateway),
        interface: OUTSIDE,
    };
    Plan {
        routes: vec![route("198.51.100.0", 24, via)],
        ..plan()
    }
}

#[test]
fn gateway_beyond_the_networks_of_the_link_is_asked_for_and_its_answer_taken() {
    let mut rig = Rig::new(by("192.0.2.77"));
    let question = packet::arp_request(OUTSIDE_MAC, "203.0.113.1", "192.0.2.77");
    assert_eq!(question, rig.host_sends(&datagram(1))[0].frame);
    let sent = rig.send(
        OUTSIDE,
        &packet::arp_reply(ROUTER_MAC, "192.0.2.77", OUTSIDE_MAC, "203.0.113.1"),
    );
    assert_eq!(vec![1], ports(&sent));
    assert_eq!(ROUTER_MAC, sent[0].frame[..6]);
    // The gateway does not learn other hosts outside of the link's networks.
    rig.send(
        OUTSIDE,
        &packet::arp_reply(ROUTER_MAC, "192.0.2.78", OUTSIDE_MAC, "203.0.113.1"),
    );
    rig.send(OUTSIDE, &packet::arp_request(ROUTER_MAC, "192.0.2.78", "203.0.113.1"));
    assert_eq!(None, rig.plane.neighbours().find(OUTSIDE, plain("192.0.2.78")));
}

#[test]
fn gateway_on_a_link_without_ipv4_addresses_is_asked_for_from_another_address_of_the_router() {
    let via = Via::OnLink {
        address: plain("192.0.2.77"),
        interface: INSIDE,
    };
    let mut rig = Rig::new(Plan {
        interfaces: |interfaces| {
            interfaces[usize::from(INSIDE)]
                .link
                .addresses
                .retain(|(own, _)| own.bits() == 128)
        },
        routes: vec![route("10.9.9.0", 24, via)],
        ..plan()
    });
    let inbound = packet::udp4("198.51.100.7:53", "10.9.9.9:5000");
    let question = packet::arp_request(INSIDE_MAC, "203.0.113.1", "192.0.2.77");
    assert_eq!(question, rig.router_sends(&inbound)[0].frame);
    let sent = rig.send(
        INSIDE,
        &packet::arp_reply(HOST_MAC, "192.0.2.77", INSIDE_MAC, "203.0.113.1"),
    );
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(HOST_MAC, sent[0].frame[..6]);
}

/// The IPv4 packet is sent unchanged to the MAC that neighbour discovery has determined (RFC 8950).
#[test]
fn ipv4_packet_takes_the_mac_of_a_gateway_of_ipv6() {
    let mut rig = Rig::new(by("2001:db8:2::9"));
    let group = solicited_node("2001:db8:2::9");
    let source = v6("2001:db8:2::1");
    let question = packet::neighbour(source, group, 135, 0, v6("2001:db8:2::9"), &link_option(1, OUTSIDE_MAC));
    let sent = rig.host_sends(&datagram(1));
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(question.macs(OUTSIDE_MAC, group_mac(group)).build(), sent[0].frame);
    let answer = packet::neighbour(
        v6("2001:db8:2::9"),
        source,
        136,
        0x6000_0000,
        v6("2001:db8:2::9"),
        &link_option(2, ROUTER_MAC),
    );
    let sent = rig.router_sends(&answer);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(datagram(1).ttl(63).macs(OUTSIDE_MAC, ROUTER_MAC).build(), sent[0].frame);
    let sent = rig.host_sends(&datagram(2));
    assert_eq!(datagram(2).ttl(63).macs(OUTSIDE_MAC, ROUTER_MAC).build(), sent[0].frame);
}

#[test]
fn sender_is_told_by_icmp_of_ipv4_when_a_gateway_of_ipv6_does_not_answer() {
    let mut rig = Rig::new(by("fe80::9"));
    rig.know(INSIDE, plain(HOST), HOST_MAC);
    let mut sent = rig.host_sends(&datagram(1));
    rig.pass(5000);
    sent.extend(rig.sent());
    let errors: Vec<_> = sent.iter().filter(|sent| sent.port == INSIDE).collect();
    assert_eq!(1, errors.len());
    assert_eq!([3, 1], errors[0].frame[34..36]);
    assert_eq!(vec![("neighbour-unresolved", 1)], rig.all_drops());
}

#[test]
fn translated_sessions_go_by_a_gateway_of_ipv6() {
    let mut rig = Rig::new(Plan {
        translate: true,
        ..by("fe80::9")
    });
    rig.know(INSIDE, plain(HOST), HOST_MAC);
    rig.know(OUTSIDE, plain("fe80::9"), ROUTER_MAC);
    let public = rig.public(&datagram(1));
    let answer = packet::udp4("198.51.100.7:53".parse::<std::net::SocketAddrV4>().unwrap(), public);
    let sent = rig.router_sends(&answer);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(HOST_MAC, sent[0].frame[..6]);
    assert_eq!(1, rig.uses(OUTSIDE, "fe80::9").min(1));
}

fn advertising() -> Plan {
    Plan {
        interfaces: |interfaces| {
            interfaces[0].advertise = Some(Advertise {
                interval: 600,
                lifetime: 1800,
                valid: 86_400,
                preferred: 14_400,
                autonomous: true,
                managed: false,
                other: false,
            });
        },
        ..plan()
    }
}

fn is_advertisement(sent: &Sent) -> bool {
    sent.frame[12..14] == [0x86, 0xdd] && sent.frame[54] == 134
}

fn soliciting() -> Frame {
    let kind = packet::Icmpv6Type::Unknown {
        type_u8: 133,
        code_u8: 0,
        bytes5to8: [0; 4],
    };
    let all_routers = v6("ff02::2");
    packet::frame6(v6("fe80::10"), all_routers, packet::Transport::Icmp6(kind))
        .ttl(255)
        .macs(HOST_MAC, group_mac(all_routers))
}

#[test]
fn router_is_advertised_by_its_timer() {
    let mut rig = Rig::new(advertising());
    rig.round();
    let sent = rig.sent();
    assert_eq!(1, sent.len());
    let frame = &sent[0].frame;
    assert!(is_advertisement(&sent[0]) && rig::is_valid(frame) && sent[0].port == INSIDE);
    // The frame contains the router lifetime, and the prefix with its two lifetimes.
    assert_eq!(1800u16.to_be_bytes(), frame[60..62]);
    let prefix = v6("2001:db8:1::").octets();
    assert!(frame.windows(16).any(|bytes| bytes == prefix));
    rig.seconds(1201);
    assert_eq!(2, rig.sent().iter().filter(|sent| is_advertisement(sent)).count());
}

#[test]
fn router_advertises_what_dhcpv6_is_for_and_whether_hosts_make_addresses() {
    // Byte 59 contains router flags (RFC 4861, 4.2). Byte 3 of the prefix option contains the flags on-link and autonomous (4.6.2).
    let flags = |plan: Plan| {
        let mut rig = Rig::new(plan);
        rig.round();
        let frame = rig.sent()[0].frame.clone();
        let prefix = v6("2001:db8:1::").octets();
        let place = frame.windows(16).position(|bytes| bytes == prefix).unwrap();
        (frame[59], frame[place - 13])
    };
    assert_eq!((0, 0xc0), flags(advertising()));
    let managed = Plan {
        interfaces: |interfaces| {
            (advertising().interfaces)(interfaces);
            if let Some(advertise) = &mut interfaces[0].advertise {
                (advertise.autonomous, advertise.managed, advertise.other) = (false, true, true);
            }
        },
        ..plan()
    };
    assert_eq!((0xc0, 0x80), flags(managed));
}

#[test]
fn router_solicited_answers_at_most_every_three_seconds() {
    let mut rig = Rig::new(advertising());
    rig.round();
    rig.seconds(10);
    rig.sent();
    let mut answers = Vec::new();
    for _ in 0..100 {
        answers.extend(rig.send(INSIDE, &soliciting().build()));
        rig.pass(100);
        answers.extend(rig.sent());
    }
    let count = answers.iter().filter(|sent| is_advertisement(sent)).count();
    assert!((3..=5).contains(&count), "{count}");
}

#[test]
fn flood_of_one_class_leaves_the_others_answered() {
    let mut rig = Rig::new(Plan {
        known_neighbours: true,
        ..plan()
    });
    let arp = packet::arp_request(HOST_MAC, HOST, "192.168.1.1");
    let answered: usize = (0..1000).map(|_| rig.send(INSIDE, &arp).len()).sum();
    assert_eq!((500, 500), (answered, rig.drops("policed-neighbour")));
    let other = packet::udp4("192.168.1.10:5000", "192.168.1.1:53");
    (0..1000).for_each(|_| drop(rig.host_sends(&other)));
    assert_eq!(900, rig.drops("policed-other"));
    let ping = packet::icmp4_echo(HOST, "192.168.1.1", 7, 1);
    let answered: usize = (0..300).map(|_| rig.host_sends(&ping).len()).sum();
    assert_eq!((200, 100), (answered, rig.drops("policed-echo")));
    // The flood does not affect forwarding.
    assert_eq!(1, rig.host_sends(&datagram(1)).len());
}

#[test]
fn neighbours_cleared_are_asked_for_again_and_configured_ones_stay() {
    let mut rig = Rig::new(plan());
    rig.know(INSIDE, plain(HOST), HOST_MAC);
    rig.host_sends(&datagram(1));
    rig.send(OUTSIDE, &reply());
    let clear = Request::ClearNeighbours {
        interface: None,
        address: None,
        permanent: false,
    };
    assert!(matches!(rig.ask(0, clear), Reply::Cleared(1)));
    rig.sent();
    rig.pass(3500);
    let mut sent = rig.host_sends(&datagram(1));
    rig.pass(3500);
    sent.extend(rig.sent());
    assert!(sent.iter().any(|sent| sent.frame == request()), "{sent:?}");
    assert!(rig.plane.neighbours().find(INSIDE, plain(HOST)).is_some());
}

//! Tests of forwarding without sessions: requirements for routers (RFC 1812, RFC 4443, RFC 8200).

use std::net::Ipv4Addr;

use crate::rig::{self, HOST, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, plain, route};
use sluice_route::rib::{Offer, OfferedNextHop, Origin, Target, WeightedNextHop};
use sluice_route::{DropKind, Prefix, SourceValidation, Via};
use sluice_testkit::packet::{self, Frame, flag};
use sluice_wire::Checksums;

const HOST6: &str = "2001:db8:1::10";

fn plan() -> Plan {
    Plan {
        translate: false,
        ..Plan::default()
    }
}

fn datagram4() -> Frame {
    packet::udp4("192.168.1.10:5000", "198.51.100.7:53").payload(b"question")
}

/// Clears the Don't Fragment flag, which the packet library sets by default.
fn may_be_cut(mut frame: Frame) -> Frame {
    if let packet::Network::V4(header) = &mut frame.network {
        header.dont_fragment = false;
    }
    frame
}

fn datagram6() -> Frame {
    packet::udp6("[2001:db8:1::10]:5000", "[2001:db8:9::7]:53").payload(b"question")
}

/// Checks that the host received an ICMP error of this type and code, which quotes the frame as the host sent it.
#[track_caller]
fn assert_error(rig: &Rig, sent: &[rig::Sent], kind: u8, code: u8, cause: &Frame) {
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let frame = &sent[0].frame;
    assert!(rig::is_valid(frame));
    assert_eq!(INSIDE, sent[0].port);
    assert_eq!([HOST_MAC, INSIDE_MAC].concat(), frame[..12]);
    let cause = cause.build();
    let v6 = frame[12..14] == [0x86, 0xdd];
    let (header, addresses, source) = if v6 { (40, 22..54, 22..38) } else { (20, 26..34, 26..30) };
    assert_eq!([kind, code], frame[14 + header..16 + header]);
    let own = match plain(if v6 { "2001:db8:1::1" } else { "192.168.1.1" }) {
        sluice_route::Address::V4(own) => own.to_be_bytes().to_vec(),
        sluice_route::Address::V6(own) => own.to_be_bytes().to_vec(),
    };
    assert_eq!(own, frame[addresses][..own.len()]);
    let quote = &frame[22 + header..];
    assert_eq!(cause[14..][..quote.len()], *quote);
    assert_eq!(cause[source], frame[if v6 { 38..54 } else { 30..34 }]);
}

#[test]
fn datagram_is_forwarded_with_only_macs_and_ttl_changed() {
    let mut rig = Rig::new(plan());
    for frame in [
        datagram4(),
        datagram6(),
        packet::tcp4("192.168.1.10:1", "198.51.100.7:2").options(&[1, 1, 1, 0]),
    ] {
        let sent = rig.host_sends(&frame);
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        assert_eq!(OUTSIDE, sent[0].port);
        assert_eq!(frame.ttl(63).macs(OUTSIDE_MAC, ROUTER_MAC).build(), sent[0].frame);
    }
    assert_eq!(0, rig.live());
}

#[test]
fn checksum_that_was_left_to_a_card_is_completed_and_not_left_to_the_next_one() {
    let mut rig = Rig::new(plan());
    for frame in [datagram4(), datagram6()] {
        let mut remaining = frame.clone().macs(HOST_MAC, INSIDE_MAC).build();
        let checksum = remaining.len() - b"question".len() - 2;
        remaining[checksum..checksum + 2].fill(0);
        rig.wires[0].inject(INSIDE, &remaining, Checksums::PartialChecksum);
        rig.round();
        let sent = rig.sent();
        assert_eq!(frame.ttl(63).macs(OUTSIDE_MAC, ROUTER_MAC).build(), sent[0].frame);
        assert_eq!(Checksums::Vouched, sent[0].checksums);
    }
}

#[test]
fn ttl_that_runs_out_is_reported_from_the_interface_it_came_in_by() {
    let mut rig = Rig::new(plan());
    for ttl in [0, 1] {
        let frame = datagram4().ttl(ttl);
        let sent = rig.host_sends(&frame);
        assert_error(&rig, &sent, 11, 0, &frame);
        let frame = datagram6().ttl(ttl);
        let sent = rig.host_sends(&frame);
        assert_error(&rig, &sent, 3, 0, &frame);
    }
    assert_eq!(vec![("ttl-exceeded", 4)], rig.all_drops());
}

#[test]
fn ttl_errors_are_limited_in_rate_and_come_again_with_time() {
    let mut rig = Rig::new(plan());
    let frame = datagram4().ttl(1);
    let errors: usize = (0..1000).map(|_| rig.host_sends(&frame).len()).sum();
    // A single destination gets half of the interface's burst size, and a tenth of the interface's rate.
    assert_eq!(100, errors);
    rig.pass(100);
    let errors: usize = (0..1000).map(|_| rig.host_sends(&frame).len()).sum();
    assert_eq!(10, errors);
    assert_eq!(2000, rig.drops("ttl-exceeded"));
}

#[test]
fn rfc5508_req10e_no_error_answers_an_error_a_later_fragment_or_a_group() {
    let mut rig = Rig::new(plan());
    let host: Ipv4Addr = HOST.parse().unwrap();
    let error = packet::icmp4_error(
        host,
        "198.51.100.7".parse::<Ipv4Addr>().unwrap(),
        3,
        3,
        &datagram4().build(),
        60,
    );
    let fragment = packet::frame4(
        host,
        "198.51.100.7".parse().unwrap(),
        packet::Transport::Raw(packet::IpNumber(17)),
    );
    for frame in [error.ttl(1), fragment.payload(&[0; 8]).fragment(7, false, 1).ttl(1)] {
        assert!(rig.host_sends(&frame).is_empty());
    }
    assert_eq!(vec![("ttl-exceeded", 2)], rig.all_drops());
}

#[test]
fn rfc4443_2_4e_later_fragments_of_ipv6_are_reported() {
    let mut rig = Rig::new(plan());
    // The payload starts with the bytes of an ICMPv6 redirect.
    for protocol in [6, 17, 58] {
        let later = packet::frame6(
            "2001:db8:1::10".parse().unwrap(),
            "2001:db8:9::7".parse().unwrap(),
            packet::Transport::Raw(packet::IpNumber(protocol)),
        );
        let later = later.payload(&[137; 32]).fragment(7, false, 1).ttl(1);
        let sent = rig.host_sends(&later);
        assert_error(&rig, &sent, 3, 0, &later);
    }
    assert_eq!(vec![("ttl-exceeded", 3)], rig.all_drops());
}

#[test]
fn datagram_too_long_that_must_not_be_cut_is_reported_with_the_mtu() {
    let mut rig = Rig::new(Plan {
        outside_mtu: 1300,
        ..plan()
    });
    let frame = datagram4().payload(&[1; 1273]).dont_fragment();
    let sent = rig.host_sends(&frame);
    assert_error(&rig, &sent, 3, 4, &frame);
    assert_eq!([0, 0, 5, 20], sent[0].frame[38..42]);
    let frame = datagram6().payload(&[1; 1253]);
    let sent = rig.host_sends(&frame);
    assert_error(&rig, &sent, 2, 0, &frame);
    assert_eq!([0, 0, 5, 20], sent[0].frame[58..62]);
    assert_eq!(vec![("too-big", 2)], rig.all_drops());
    let fits = datagram6().payload(&[1; 1252]);
    assert_eq!(OUTSIDE, rig.host_sends(&fits)[0].port);
}

#[test]
fn datagram_too_long_is_cut_and_another_library_puts_it_together() {
    for translate in [false, true] {
        for length in [1200, 1201, 1400, 1472] {
            let mut rig = Rig::new(Plan {
                outside_mtu: 620,
                translate,
                ..Plan::default()
            });
            let payload: Vec<u8> = (0..length).map(|k| k as u8).collect();
            let sent = rig.host_sends(&may_be_cut(datagram4().payload(&payload)));
            let mut pool = etherparse_pool();
            let mut whole = None;
            assert!(sent.len() > 1, "{:?}", rig.all_drops());
            for fragment in &sent {
                assert!(fragment.frame.len() <= 634 && fragment.port == OUTSIDE);
                assert!(
                    sluice_wire::ipv4::Ipv4::new(&fragment.frame[14..])
                        .unwrap()
                        .has_valid_checksum()
                );
                assert_eq!(63, fragment.frame[22]);
                whole = pool.add(&fragment.frame).or(whole);
            }
            let source = rig::flow(&sent[0].frame).0;
            assert_eq!(translate, source.ip().octets()[0] == 203);
            let remote: std::net::SocketAddrV4 = "198.51.100.7:53".parse().unwrap();
            let expected = packet::udp4(source, remote).payload(&payload).build();
            assert_eq!(Some(expected[34..].to_vec()), whole);
        }
    }
}

/// Reassembly with `etherparse`, as a reference.
struct Reassembly(etherparse::defrag::IpDefragPool<(), ()>);

fn etherparse_pool() -> Reassembly {
    Reassembly(etherparse::defrag::IpDefragPool::new())
}

impl Reassembly {
    fn add(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let sliced = etherparse::SlicedPacket::from_ethernet(frame).unwrap();
        let done = self.0.process_sliced_packet(&sliced, (), ()).unwrap();
        done.map(|payload| payload.payload)
    }
}

#[test]
fn datagram_to_be_cut_waits_for_its_neighbour_like_any_other() {
    let mut rig = Rig::new(Plan {
        outside_mtu: 620,
        known_neighbours: false,
        ..plan()
    });
    let long = may_be_cut(datagram4().payload(&[1; 1200]));
    // The first packet starts the resolution; the second packet finds the unresolved entry.
    assert_eq!(1, rig.host_sends(&long).len());
    assert!(rig.host_sends(&long).is_empty());
    assert!(rig.all_drops().is_empty(), "{:?}", rig.all_drops());
    let reply = packet::arp_reply(ROUTER_MAC, "203.0.113.254", OUTSIDE_MAC, "203.0.113.1");
    assert_eq!(6, rig.send(OUTSIDE, &reply).len(), "{:?}", rig.all_drops());
}

#[test]
fn burst_of_datagrams_to_be_cut_is_cut_or_counted() {
    let mut rig = Rig::new(Plan {
        outside_mtu: 620,
        ..plan()
    });
    let long = may_be_cut(datagram4().payload(&[1; 1200]))
        .macs(HOST_MAC, INSIDE_MAC)
        .build();
    for _ in 0..64 {
        rig.wires[0].inject(INSIDE, &long, sluice_wire::Checksums::Unverified);
    }
    rig.round();
    let sent = rig.sent().len() as u64;
    assert_eq!(64, sent / 3 + rig.drops("no-buffer"));
    assert!(sent / 3 >= 20);
}

#[test]
fn refused_routes_are_reported_as_they_say() {
    let refused = |prefix, refusal| route(prefix, 24, Via::Refused(refusal));
    let mut rig = Rig::new(Plan {
        routes: vec![
            refused("198.51.1.0", DropKind::Unreachable),
            refused("198.51.2.0", DropKind::Prohibit),
            refused("198.51.3.0", DropKind::Blackhole),
            refused("198.51.4.0", DropKind::NoRoute),
            route("2001:db8:33::", 48, Via::Refused(DropKind::NoRoute)),
        ],
        ..plan()
    });
    for (destination, code, reason) in [
        ("198.51.1.1:53", 1, "unreachable"),
        ("198.51.2.1:53", 13, "prohibited"),
        ("198.51.4.1:53", 0, "no-route"),
    ] {
        let frame = packet::udp4("192.168.1.10:5000", destination);
        let sent = rig.host_sends(&frame);
        assert_error(&rig, &sent, 3, code, &frame);
        assert_eq!(1, rig.drops(reason));
    }
    let frame = packet::udp6("[2001:db8:1::10]:5000", "[2001:db8:33::7]:53");
    let sent = rig.host_sends(&frame);
    assert_error(&rig, &sent, 1, 0, &frame);
    let silent = packet::udp4("192.168.1.10:5000", "198.51.3.1:53");
    assert!(rig.host_sends(&silent).is_empty());
    assert_eq!(1, rig.drops("blackhole"));
}

#[test]
fn directed_broadcast_is_dropped_in_silence() {
    let mut rig = Rig::new(plan());
    for destination in ["203.0.113.255:53", "203.0.113.0:53", "192.168.1.255:53"] {
        assert!(
            rig.host_sends(&packet::udp4("192.168.1.10:5000", destination))
                .is_empty()
        );
    }
    assert_eq!(vec![("directed-broadcast", 3)], rig.all_drops());
}

#[test]
fn groups_are_not_forwarded_whatever_the_mac_address() {
    let group4 = packet::udp4("192.168.1.10:5000", "224.0.0.5:53");
    let group6 = packet::udp6("[2001:db8:1::10]:5000", "[ff0e::5]:53");
    let limited = packet::udp4("192.168.1.10:5000", "255.255.255.255:53");
    for translate in [false, true] {
        for frame in [&group4, &group6, &limited] {
            for mac in [[1, 0, 0x5e, 0, 0, 5], [0xff; 6], INSIDE_MAC] {
                let mut rig = Rig::new(Plan {
                    translate,
                    ..Plan::default()
                });
                let frame = frame.clone().macs(HOST_MAC, mac).build();
                assert!(rig.send(INSIDE, &frame).is_empty(), "{mac:?}");
                assert_eq!(vec![("multicast", 1)], rig.all_drops(), "{mac:?}");
            }
        }
    }
}

#[test]
fn link_local_is_not_forwarded() {
    let mut rig = Rig::new(plan());
    for frame in [
        packet::udp6("[fe80::10]:5000", "[2001:db8:9::7]:53"),
        packet::udp6("[2001:db8:1::10]:5000", "[fe80::99]:53"),
    ] {
        let sent = rig.host_sends(&frame);
        assert!(sent.iter().all(|sent| sent.port == INSIDE));
    }
    assert_eq!(vec![("link-local", 2)], rig.all_drops());
}

#[test]
fn link_local_of_ipv4_is_not_forwarded_with_or_without_translation() {
    for translate in [false, true] {
        let mut rig = Rig::new(Plan {
            translate,
            snapshot: |snapshot| snapshot.interfaces[0].validation = SourceValidation::Loose,
            ..Plan::default()
        });
        for frame in [
            packet::udp4("169.254.1.10:5000", "198.51.100.7:53"),
            packet::udp4("192.168.1.10:5000", "169.254.1.99:53"),
        ] {
            assert!(rig.host_sends(&frame).is_empty());
        }
        assert_eq!(vec![("link-local", 2)], rig.all_drops(), "{translate}");
    }
}

#[test]
fn frame_for_another_mac_address_is_dropped() {
    let mut rig = Rig::new(plan());
    let frame = datagram4().macs(HOST_MAC, OUTSIDE_MAC).build();
    assert!(rig.send(INSIDE, &frame).is_empty());
    assert_eq!(vec![("not-our-mac", 1)], rig.all_drops());
}

#[test]
fn source_validation_strict_wants_the_interface_of_the_route_back() {
    for translate in [false, true] {
        let mut rig = Rig::new(Plan {
            translate,
            snapshot: |snapshot| {
                for interface in &mut snapshot.interfaces {
                    interface.validation = SourceValidation::Strict;
                }
            },
            ..Plan::default()
        });
        let strange = packet::udp4("10.9.9.9:5000", "198.51.100.7:53");
        assert!(rig.host_sends(&strange).is_empty());
        let spoofed = packet::udp4("192.168.1.10:5000", "203.0.113.7:53");
        assert!(rig.router_sends(&spoofed).is_empty());
        let own = packet::udp4("203.0.113.1:5000", "198.51.100.7:53");
        assert!(rig.host_sends(&own).is_empty());
        let v6 = packet::udp6("[2001:db8:77::1]:5000", "[2001:db8:9::7]:53");
        assert!(rig.host_sends(&v6).is_empty());
        assert_eq!(vec![("source-validation", 4)], rig.all_drops(), "{translate}");
        assert_eq!(OUTSIDE, rig.host_sends(&datagram4())[0].port);
        assert_eq!(OUTSIDE, rig.host_sends(&datagram6())[0].port);
    }
}

#[test]
fn source_validation_loose_wants_any_route() {
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| snapshot.interfaces[0].validation = SourceValidation::Loose,
        ..plan()
    });
    // A default route is sufficient (RFC 3704, section 2.4).
    for source in ["10.9.9.9:5000", "203.0.113.77:5000"] {
        assert_eq!(1, rig.host_sends(&packet::udp4(source, "198.51.100.7:53")).len());
    }
    let own = packet::udp4("192.168.1.1:5000", "198.51.100.7:53");
    assert!(rig.host_sends(&own).is_empty());
    assert_eq!(vec![("source-validation", 1)], rig.all_drops());
}

#[test]
fn gateway_answers_for_itself_and_refuses_what_nothing_listens_to() {
    let mut rig = Rig::new(plan());
    let ping = packet::icmp6_echo(HOST6, "2001:db8:1::1", 9, 1).payload(b"abc");
    let sent = rig.host_sends(&ping);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert!(rig::is_valid(&sent[0].frame));
    assert_eq!(129, sent[0].frame[54]);
    // Echo requests to the gateway's address on another interface are answered as well.
    let ping = packet::icmp4_echo(HOST, "203.0.113.1", 9, 1);
    assert_eq!(1, rig.host_sends(&ping).len());
    let frame = packet::udp4("192.168.1.10:5000", "192.168.1.1:53");
    let sent = rig.host_sends(&frame);
    assert_error(&rig, &sent, 3, 3, &frame);
    let frame = packet::tcp6("[2001:db8:1::10]:5000", "[2001:db8:1::1]:22").flags(flag::SYN);
    let sent = rig.host_sends(&frame);
    assert_error(&rig, &sent, 1, 4, &frame);
    assert_eq!(vec![("no-local-service", 2)], rig.all_drops());
}

#[test]
fn rfc6936_5_udp_over_ipv6_without_checksum_is_forwarded_without() {
    let mut rig = Rig::new(Plan {
        translate: false,
        ..Plan::default()
    });
    let mut frame = datagram6().macs(HOST_MAC, INSIDE_MAC).build();
    frame[60..62].fill(0);
    let sent = rig.send(INSIDE, &frame);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    frame[21] -= 1;
    assert_eq!(frame[14..], sent[0].frame[14..]);
}

/// A gateway whose default route has two next hops, and the MAC addresses of these next hops.
fn two_ways() -> (Rig, [[u8; 6]; 2]) {
    let mut rig = Rig::new(plan());
    let macs = [[2, 0, 0, 0, 7, 1], [2, 0, 0, 0, 7, 2]];
    let gateways = ["203.0.113.21", "203.0.113.22"].map(plain);
    let hops = gateways.map(|address| {
        let interface = OUTSIDE;
        WeightedNextHop::new(OfferedNextHop::Gateway { interface, address })
    });
    for (gateway, mac) in gateways.into_iter().zip(macs) {
        rig.know(OUTSIDE, gateway, mac);
    }
    // The learned route is preferred over the configured route.
    let offer = Offer {
        origin: Origin::Fpm,
        protocol: 0,
        distance: 0,
        metric: 0,
        target: Target::Hops(&hops),
    };
    let default = Prefix::new(plain("0.0.0.0"), 0);
    assert!(rig.plane.change_routes(0, |rib| rib.offer(default, &offer, 0).unwrap()));
    (rig, macs)
}

#[test]
fn flows_by_a_route_of_two_ways_take_both_and_each_stays_on_its_own() {
    let (mut rig, macs) = two_ways();
    let mut taken = [0; 2];
    for port in 5000..5100 {
        let frame = packet::udp4(format!("192.168.1.10:{port}").as_str(), "198.51.100.7:53").payload(b"question");
        let adjacencies: Vec<_> = (0..3)
            .map(|_| {
                let sent = rig.host_sends(&frame);
                assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
                macs.iter().position(|mac| *mac == sent[0].frame[..6])
            })
            .collect();
        assert!(adjacencies.iter().all(|way| *way == adjacencies[0]), "{adjacencies:?}");
        taken[adjacencies[0].unwrap()] += 1;
    }
    assert!(taken.iter().all(|&flows| flows > 25), "{taken:?}");
}

#[test]
fn addresses_of_the_reserved_ranges_are_hosts_where_these_are_allowed_and_martians_elsewhere() {
    let allowed = Plan {
        translate: false,
        interfaces: |interfaces| {
            interfaces
                .iter_mut()
                .for_each(|interface| interface.validity.reserved = false);
            interfaces[0].link.addresses.push((plain("240.0.0.1"), 24));
        },
        ..Plan::default()
    };
    let mut rig = Rig::new(allowed);
    rig.know(INSIDE, plain("240.0.0.10"), HOST_MAC);
    let (host, remote) = ("240.0.0.10:5000", "250.1.2.3:53");
    let sent = rig.host_sends(&packet::udp4(host, remote));
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let expected = packet::udp4(host, remote).ttl(63).macs(OUTSIDE_MAC, ROUTER_MAC);
    assert_eq!(expected.build(), sent[0].frame);
    let sent = rig.router_sends(&packet::udp4(remote, host));
    let expected = packet::udp4(remote, host).ttl(63).macs(INSIDE_MAC, HOST_MAC);
    assert_eq!(expected.build(), sent[0].frame);
    // The sender gets ICMP errors for its packets.
    let sent = rig.host_sends(&packet::udp4(host, remote).ttl(1));
    assert_eq!([11, 0], sent[0].frame[34..36]);
    for (source, destination) in [
        ("255.255.255.255:1", remote),
        ("224.0.0.1:1", remote),
        ("0.0.0.1:1", remote),
    ] {
        assert!(rig.host_sends(&packet::udp4(source, destination)).is_empty());
    }
    assert_eq!(vec![("martian-source", 3), ("ttl-exceeded", 1)], rig.all_drops());

    let mut rig = Rig::new(Plan {
        translate: false,
        ..Plan::default()
    });
    assert!(rig.host_sends(&packet::udp4(host, remote)).is_empty());
    assert!(rig.host_sends(&packet::udp4("192.168.1.10:1", remote)).is_empty());
    assert_eq!(vec![("martian-source", 1), ("martian-destination", 1)], rig.all_drops());
}

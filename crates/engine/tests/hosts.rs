//! Tests of routers' hosts: which packets they receive, which packets they don't receive, and which packets they send.

use std::sync::Arc;

use crate::rig::{self, HOST, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, is_valid};
use sluice_engine::packet::punt::{Host, LIMITS, Multicast, PuntClass};
use sluice_engine::snapshot::Snapshot;
use sluice_testkit::packet::{self, Frame, IpNumber, Transport, flag};
use sluice_wire::ethernet::{BROADCAST, multicast4, multicast6};
use sluice_wire::vlan::Tag;

fn hosted(interfaces: &mut [sluice_engine::snapshot::Interface]) {
    interfaces.iter_mut().for_each(|interface| interface.host = true);
}

fn plan(translate: bool) -> Plan {
    Plan {
        translate,
        interfaces: |interfaces| hosted(interfaces),
        ..Plan::default()
    }
}

/// Frames that hosts have received since the last call: worker, interface and frame.
fn punted(rig: &mut Rig) -> Vec<(usize, u16, Vec<u8>)> {
    let mut all = Vec::new();
    for (worker, requests) in rig.desks.iter_mut().enumerate() {
        let taker = requests.to_hosts.as_mut().unwrap();
        while let Some((interface, length)) = taker.head() {
            let mut frame = vec![0; length];
            taker.pop(&mut frame);
            all.push((worker, interface, frame));
        }
    }
    all
}

/// Sends a frame from a host through an interface. Returns the frames that leave.
fn host_of(rig: &mut Rig, interface: u16, frame: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let owner = rig.owner;
    let queue = rig.desks[owner].from_hosts.as_mut().unwrap();
    assert!(queue.push(interface, [frame, &[]]));
    rig.round();
    rig.sent().into_iter().map(|sent| (sent.port, sent.frame)).collect()
}

fn group(protocol: u8, source: &str, group: &str) -> Frame {
    let (source, group): (std::net::Ipv4Addr, std::net::Ipv4Addr) = (source.parse().unwrap(), group.parse().unwrap());
    packet::frame4(source, group, Transport::Raw(IpNumber(protocol)))
        .macs(HOST_MAC, multicast4(group.to_bits()))
        .payload(b"a message of some protocol")
}

fn group6(protocol: u8, group: &str) -> Frame {
    let group: std::net::Ipv6Addr = group.parse().unwrap();
    packet::frame6("fe80::10".parse().unwrap(), group, Transport::Raw(IpNumber(protocol)))
        .macs(HOST_MAC, multicast6(group.to_bits()))
        .payload(b"a message of some protocol")
}

#[test]
fn connection_to_an_own_address_comes_to_the_host_as_it_was_sent() {
    for translate in [false, true] {
        let mut rig = Rig::new(plan(translate));
        // One target is the router's address on the link, the second target is its address on another link.
        for target in ["192.168.1.1:179", "203.0.113.1:22"] {
            let syn = packet::tcp4("192.168.1.10:40000", target).flags(flag::SYN);
            let syn = syn.macs(HOST_MAC, INSIDE_MAC).ttl(1);
            assert_eq!(0, rig.send(INSIDE, &syn.clone().padded(60).build()).len());
            assert_eq!(
                vec![(0, INSIDE, syn.build())],
                punted(&mut rig),
                "{:?}",
                rig.all_drops()
            );
        }
        let v6 = packet::tcp6("[2001:db8:1::10]:40000", "[2001:db8:1::1]:179").macs(HOST_MAC, INSIDE_MAC);
        rig.send(INSIDE, &v6.build());
        assert_eq!(vec![(0, INSIDE, v6.build())], punted(&mut rig), "{:?}", rig.all_drops());
        assert_eq!(Vec::<(&str, u64)>::new(), rig.all_drops());
        let counters = &rig.plane.counters()[0];
        assert_eq!((3, 3), (counters.punted.get(), counters.interfaces[0].to_host.get()));
    }
}

#[test]
fn echo_request_is_answered_for_the_host_and_the_answer_to_its_own_is_given_to_it() {
    let mut rig = Rig::new(plan(true));
    let ping = packet::icmp4_echo(HOST, "192.168.1.1", 7, 1);
    assert_eq!(1, rig.host_sends(&ping).len());
    let ping = packet::icmp6_echo("2001:db8:1::10", "2001:db8:1::1", 7, 1);
    assert_eq!(1, rig.host_sends(&ping).len());
    assert_eq!(0, punted(&mut rig).len());
    let answer = packet::icmp4_echo_reply(HOST, "192.168.1.1", 7, 1).macs(HOST_MAC, INSIDE_MAC);
    assert_eq!(0, rig.host_sends(&answer).len());
    assert_eq!(
        vec![(0, INSIDE, answer.build())],
        punted(&mut rig),
        "{:?}",
        rig.all_drops()
    );
}

#[test]
fn groups_of_the_link_reach_the_host_and_others_do_not() {
    let mut rig = Rig::new(plan(true));
    let heard = [
        group(89, HOST, "224.0.0.5").ttl(1),
        group(112, HOST, "224.0.0.18").ttl(255),
        packet::udp4("192.168.1.10:520", "224.0.0.9:520").macs(HOST_MAC, multicast4(0xe000_0009)),
        packet::udp4("0.0.0.0:68", "255.255.255.255:67").macs(HOST_MAC, BROADCAST),
        group6(89, "ff02::5").ttl(1),
    ];
    for frame in &heard {
        assert_eq!(0, rig.send(INSIDE, &frame.build()).len());
        assert_eq!(
            vec![(0, INSIDE, frame.build())],
            punted(&mut rig),
            "{:?}",
            rig.all_drops()
        );
    }
    let others = [
        group(89, HOST, "239.1.1.1"),
        packet::udp4("192.168.1.10:5000", "255.255.255.255:5000").macs(HOST_MAC, BROADCAST),
        packet::icmp4_echo(HOST, "224.0.0.1", 1, 1).macs(HOST_MAC, multicast4(0xe000_0001)),
        // The packet is addressed to the router itself, but in a broadcast frame.
        packet::udp4("192.168.1.10:5000", "192.168.1.1:5000").macs(HOST_MAC, BROADCAST),
        group6(89, "ff05::5"),
    ];
    for frame in &others {
        rig.send(INSIDE, &frame.build());
        assert_eq!(0, punted(&mut rig).len(), "{frame:?}");
    }
    assert_eq!(vec![("multicast", others.len() as u64)], rig.all_drops());
}

/// A router discovery message (RFC 4861, 4.1 and 4.2).
fn router_discovery(kind: u8, group: &str) -> Frame {
    let group: std::net::Ipv6Addr = group.parse().unwrap();
    let kind = packet::Icmpv6Type::Unknown {
        type_u8: kind,
        code_u8: 0,
        bytes5to8: [64, 0, 7, 8],
    };
    packet::frame6("fe80::10".parse().unwrap(), group, Transport::Icmp6(kind))
        .ttl(255)
        .macs(HOST_MAC, multicast6(group.to_bits()))
        .payload(&[0; 8])
}

#[test]
fn router_discovery_of_others_reaches_the_host() {
    let mut rig = Rig::new(plan(true));
    let advertisement = router_discovery(134, "ff02::1").build();
    let solicitation = router_discovery(133, "ff02::2").payload(&[]).build();
    for frame in [advertisement, solicitation] {
        assert_eq!(0, rig.send(INSIDE, &frame).len());
        assert_eq!(vec![(0, INSIDE, frame)], punted(&mut rig), "{:?}", rig.all_drops());
    }
    // The sender of the first message is not on the link. The second message is a neighbour solicitation, which the
    // owner worker processes without the host.
    rig.send(INSIDE, &router_discovery(134, "ff02::1").ttl(254).build());
    let queried = packet::neighbour("fe80::10", "2001:db8:1::1", 135, 0, "2001:db8:1::1", &[]);
    assert_eq!(1, rig.send(INSIDE, &queried.macs(HOST_MAC, INSIDE_MAC).build()).len());
    assert_eq!(0, punted(&mut rig).len());
    assert_eq!(vec![("bad-neighbour-message", 1)], rig.all_drops());
}

#[test]
fn host_that_wants_no_groups_gets_none() {
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| snapshot.hosts = vec![Arc::new(Host::new(LIMITS, Multicast::None, 2))],
        ..plan(false)
    });
    rig.send(INSIDE, &group(89, HOST, "224.0.0.5").build());
    assert_eq!(0, punted(&mut rig).len());
    assert_eq!(vec![("multicast", 1)], rig.all_drops());
}

#[test]
fn host_that_wants_all_groups_gets_those_beyond_the_link_too_and_no_other_frames() {
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| snapshot.hosts = vec![Arc::new(Host::new(LIMITS, Multicast::All, 2))],
        ..plan(false)
    });
    for frame in [
        group(89, HOST, "224.0.0.5"),
        group(89, HOST, "239.1.1.1"),
        group6(89, "ff05::5"),
    ] {
        rig.send(INSIDE, &frame.build());
        assert_eq!(
            vec![(0, INSIDE, frame.build())],
            punted(&mut rig),
            "{:?}",
            rig.all_drops()
        );
    }
    let to_all = packet::udp4("192.168.1.10:5000", "192.168.1.1:5000").macs(HOST_MAC, BROADCAST);
    rig.send(INSIDE, &to_all.build());
    assert_eq!((0, vec![("multicast", 1)]), (punted(&mut rig).len(), rig.all_drops()));
}

#[test]
fn class_without_a_rate_is_let_through_to_no_host() {
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| {
            let mut limits = LIMITS;
            limits[PuntClass::Other as usize] = (0, 1_000);
            snapshot.hosts = vec![Arc::new(Host::new(limits, Multicast::LinkLocal, 2))];
        },
        ..plan(false)
    });
    rig.host_sends(&packet::udp4("192.168.1.10:5000", "192.168.1.1:5000"));
    rig.host_sends(&packet::tcp4("192.168.1.10:40000", "192.168.1.1:179"));
    assert_eq!(1, punted(&mut rig).len());
    assert_eq!(vec![("punt-policed-other", 1)], rig.all_drops());
}

#[test]
fn router_without_a_host_takes_part_in_nothing() {
    let mut rig = Rig::new(Plan {
        translate: false,
        ..Plan::default()
    });
    rig.send(INSIDE, &group(89, HOST, "224.0.0.5").build());
    let syn = packet::tcp4("192.168.1.10:40000", "192.168.1.1:179").flags(flag::SYN);
    rig.host_sends(&syn);
    assert_eq!(0, punted(&mut rig).len());
    assert_eq!(vec![("multicast", 1), ("no-local-service", 1)], rig.all_drops());
}

#[test]
fn flood_of_a_class_leaves_the_others_alone() {
    fn small(snapshot: &mut Snapshot) {
        snapshot.hosts = vec![Arc::new(Host::new(
            [(10, 4); PuntClass::ALL.len()],
            Multicast::LinkLocal,
            2,
        ))];
    }
    let mut rig = Rig::new(Plan {
        snapshot: small,
        ..plan(true)
    });
    let udp = |port: u16| {
        let target = std::net::SocketAddrV4::new("192.168.1.1".parse().unwrap(), port);
        packet::udp4("192.168.1.10:50000", target)
    };
    let classes = [
        ("punt-policed-other", udp(5000)),
        ("punt-policed-dhcp", udp(67)),
        ("punt-policed-bfd", udp(3784)),
        (
            "punt-policed-routing",
            packet::tcp4("192.168.1.10:40000", "192.168.1.1:179"),
        ),
    ];
    for (_, frame) in &classes {
        (0..20).for_each(|_| assert_eq!(0, rig.host_sends(frame).len()));
        assert_eq!(4, punted(&mut rig).len());
    }
    let mut expected: Vec<_> = classes.iter().map(|(name, _)| (*name, 16)).collect();
    expected.sort();
    let mut drops = rig.all_drops();
    drops.sort();
    assert_eq!(expected, drops);
    // After 100 ms, packets of each class pass again.
    rig.pass(100);
    rig.host_sends(&classes[3].1);
    assert_eq!(1, punted(&mut rig).len());
    let host = &rig.plane.snapshot().hosts[0];
    assert_eq!((5, 4), (host.passed(PuntClass::Routing), host.passed(PuntClass::Other)));
}

/// A flood on one interface does not affect packets on another interface.
#[test]
fn flood_by_an_interface_leaves_those_by_others_alone() {
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| {
            snapshot.hosts = vec![Arc::new(Host::new(
                [(10, 4); PuntClass::ALL.len()],
                Multicast::LinkLocal,
                2,
            ))];
        },
        ..plan(false)
    });
    let inside = packet::udp4("192.168.1.10:50000", "192.168.1.1:5000");
    let outside = packet::udp4("198.51.100.7:50000", "203.0.113.1:5000");
    (0..100).for_each(|_| assert_eq!(0, rig.router_sends(&outside).len()));
    assert_eq!(4, punted(&mut rig).len());
    (0..4).for_each(|_| assert_eq!(0, rig.host_sends(&inside).len()));
    assert_eq!(4, punted(&mut rig).len());
    assert_eq!(vec![("punt-policed-other", 96)], rig.all_drops());
}

#[test]
fn queue_that_nobody_empties_drops_what_comes_next() {
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| {
            let limits = [(1_000_000, 1_000_000); PuntClass::ALL.len()];
            snapshot.hosts = vec![Arc::new(Host::new(limits, Multicast::LinkLocal, 2))];
        },
        ..plan(false)
    });
    let frame = packet::udp4("192.168.1.10:5000", "192.168.1.1:5000").payload(&[0; 1400]);
    (0..1000).for_each(|_| assert_eq!(0, rig.host_sends(&frame).len()));
    let refused = rig.drops("punt-queue-full");
    assert!(refused > 0);
    assert_eq!(1000 - refused, punted(&mut rig).len() as u64);
    rig.host_sends(&frame);
    assert_eq!(1, punted(&mut rig).len());
}

/// A pool that contains the outside interface's own address.
fn masquerading() -> Plan {
    Plan {
        pool: vec![(rig::v4("203.0.113.1"), rig::v4("203.0.113.1"))],
        unsolicited_syns: 8,
        ..plan(true)
    }
}

#[test]
fn own_address_of_a_pool_is_the_hosts_but_for_what_sessions_expect() {
    let mut rig = Rig::new(masquerading());
    let question = packet::udp4("192.168.1.10:5000", "198.51.100.7:53");
    let public = rig.public(&question);
    let answer = packet::udp4("198.51.100.7:53".parse::<std::net::SocketAddrV4>().unwrap(), public);
    assert_eq!(1, rig.router_sends(&answer).len());
    assert_eq!(0, punted(&mut rig).len());
    let syn = packet::tcp4("198.51.100.7:40000", "203.0.113.1:179").flags(flag::SYN);
    let syn = syn.macs(ROUTER_MAC, OUTSIDE_MAC);
    assert_eq!(0, rig.send(OUTSIDE, &syn.build()).len());
    assert_eq!(
        vec![(0, OUTSIDE, syn.build())],
        punted(&mut rig),
        "{:?}",
        rig.all_drops()
    );
    // Build an ICMP error for a packet that the host has sent.
    let sent = packet::udp4("203.0.113.1:5000", "198.51.100.9:9");
    let error = packet::icmp4_error("198.51.100.9", "203.0.113.1", 3, 3, &sent.build(), 28);
    rig.router_sends(&error);
    assert_eq!(1, punted(&mut rig).len(), "{:?}", rig.all_drops());
    // If an address belongs only to the pool, the host does not receive packets to this address.
    assert_eq!(Vec::<(&str, u64)>::new(), rig.all_drops());
}

#[test]
fn frame_of_a_tagged_interface_loses_its_tags_and_what_the_host_sends_gets_them() {
    let mut rig = Rig::new(Plan {
        interfaces: |interfaces| {
            hosted(interfaces);
            interfaces[0].tags = vec![Tag::service(300), Tag::vlan(30)];
        },
        ..plan(false)
    });
    let syn = packet::tcp4("192.168.1.10:40000", "192.168.1.1:179").macs(HOST_MAC, INSIDE_MAC);
    let tagged = syn.clone().tag(0x88a8, 300).tag(0x8100, 30);
    rig.send(INSIDE, &tagged.build());
    assert_eq!(
        vec![(0, INSIDE, syn.build())],
        punted(&mut rig),
        "{:?}",
        rig.all_drops()
    );
    let answer = packet::tcp4("192.168.1.1:179", "192.168.1.10:40000").ttl(1);
    let expected = answer
        .clone()
        .tag(0x88a8, 300)
        .tag(0x8100, 30)
        .macs(INSIDE_MAC, HOST_MAC);
    // The host addresses the frame to the interface's own MAC, like the kernel on a link without ARP.
    let sent = host_of(&mut rig, INSIDE, &answer.macs(INSIDE_MAC, INSIDE_MAC).build());
    assert_eq!(vec![(INSIDE, expected.build())], sent, "{:?}", rig.all_drops());
    let hello = group(89, "192.168.1.1", "224.0.0.5")
        .ttl(1)
        .macs(INSIDE_MAC, multicast4(0xe000_0005));
    let expected = hello.clone().tag(0x88a8, 300).tag(0x8100, 30);
    assert_eq!(
        vec![(INSIDE, expected.build())],
        host_of(&mut rig, INSIDE, &hello.build())
    );
    assert_eq!(2, rig.plane.counters()[0].interfaces[0].originated.get());
}

#[test]
fn groups_and_everybody_have_their_own_mac_addresses_and_keep_their_time_to_live() {
    let mut rig = Rig::new(plan(true));
    for (target, mac) in [
        ("224.0.0.5", multicast4(0xe000_0005)),
        ("239.129.1.2", [1, 0, 0x5e, 1, 1, 2]),
        ("255.255.255.255", BROADCAST),
        ("203.0.113.255", BROADCAST),
    ] {
        let target: std::net::Ipv4Addr = target.parse().unwrap();
        let source = "203.0.113.1".parse().unwrap();
        let frame = packet::frame4(source, target, Transport::Udp(520, 520)).ttl(1);
        let expected = frame.clone().macs(OUTSIDE_MAC, mac).build();
        let sent = host_of(&mut rig, OUTSIDE, &frame.macs(OUTSIDE_MAC, OUTSIDE_MAC).build());
        assert_eq!(vec![(OUTSIDE, expected)], sent, "{target}");
    }
    let hello = group6(89, "ff02::5").ttl(1);
    let expected = hello.clone().macs(INSIDE_MAC, multicast6(0xff02 << 112 | 5)).build();
    assert_eq!(vec![(INSIDE, expected)], host_of(&mut rig, INSIDE, &hello.build()));
}

#[test]
fn what_a_host_sends_far_away_is_routed_untranslated() {
    let mut rig = Rig::new(plan(true));
    // The host may send through any interface, because routing selects the egress interface.
    for interface in [INSIDE, OUTSIDE] {
        let syn = packet::tcp4("203.0.113.1:40000", "198.51.100.7:80")
            .flags(flag::SYN)
            .ttl(1);
        let expected = syn.clone().macs(OUTSIDE_MAC, ROUTER_MAC).build();
        assert_eq!(
            vec![(OUTSIDE, expected)],
            host_of(&mut rig, interface, &syn.build()),
            "{:?}",
            rig.all_drops()
        );
        let syn = packet::tcp6("[2001:db8:2::1]:40000", "[2001:db8:9::7]:80").flags(flag::SYN);
        let expected = syn.clone().macs(OUTSIDE_MAC, ROUTER_MAC).build();
        assert_eq!(vec![(OUTSIDE, expected)], host_of(&mut rig, interface, &syn.build()));
    }
    assert_eq!(0, rig.live());
}

#[test]
fn neighbour_of_a_host_is_asked_for_and_its_packet_waits() {
    let mut rig = Rig::new(Plan {
        known_neighbours: false,
        ..plan(true)
    });
    let syn = packet::tcp4("192.168.1.1:179", "192.168.1.10:40000").ttl(1);
    let sent = host_of(&mut rig, INSIDE, &syn.build());
    let question = packet::arp_request(INSIDE_MAC, "192.168.1.1", HOST);
    assert_eq!(vec![(INSIDE, question)], sent, "{:?}", rig.all_drops());
    let sent = rig.send(INSIDE, &packet::arp_reply(HOST_MAC, HOST, INSIDE_MAC, "192.168.1.1"));
    let sent: Vec<_> = sent.into_iter().map(|sent| sent.frame).collect();
    assert_eq!(
        vec![syn.macs(INSIDE_MAC, HOST_MAC).build()],
        sent,
        "{:?}",
        rig.all_drops()
    );
    assert_eq!(1, rig.plane.snapshot().hosts[0].passed(PuntClass::Arp));
    // The neighbour is reachable only on the link.
    let v6 = packet::udp6("[fe80::1]:521", "[fe80::10]:521");
    let sent = host_of(&mut rig, INSIDE, &v6.build());
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!([0x33, 0x33], sent[0].1[..2]);
    let option = [&[2, 1][..], &HOST_MAC].concat();
    let flags = 0x6000_0000;
    let advertised = packet::neighbour("fe80::10", "2001:db8:1::1", 136, flags, "fe80::10", &option);
    let sent = rig.send(INSIDE, &advertised.macs(HOST_MAC, INSIDE_MAC).build());
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(v6.macs(INSIDE_MAC, HOST_MAC).build(), sent[0].frame);
}

#[test]
fn what_is_no_packet_of_a_host_is_dropped_and_counted() {
    let mut rig = Rig::new(Plan {
        interfaces: |interfaces| interfaces[0].host = true,
        ..plan(true)
    });
    let frame = packet::udp4("192.168.1.1:5000", "192.168.1.10:5000");
    let arp = packet::arp_request(INSIDE_MAC, "192.168.1.1", HOST);
    let short = frame.build()[..20].to_vec();
    for (interface, bytes) in [
        (INSIDE, arp),
        (INSIDE, short),
        (INSIDE, frame.clone().tag(0x8100, 5).build()),
        (INSIDE, vec![0; 60_000]),
        (OUTSIDE, frame.build()),
        (99, frame.build()),
    ] {
        assert_eq!(0, host_of(&mut rig, interface, &bytes).len());
    }
    let dropped: u64 = rig.all_drops().iter().map(|(_, count)| count).sum();
    assert_eq!(5, dropped, "{:?}", rig.all_drops());
    assert_eq!((1, 2), (rig.drops("interface-gone"), rig.drops("unknown-ethertype")));
    // The next frame is delivered unchanged, so the queue is intact.
    let expected = frame.clone().macs(INSIDE_MAC, HOST_MAC).build();
    assert_eq!(vec![(INSIDE, expected)], host_of(&mut rig, INSIDE, &frame.build()));
}

#[test]
fn frame_longer_than_the_link_takes_is_cut() {
    let mut rig = Rig::new(Plan {
        interfaces: |interfaces| {
            hosted(interfaces);
            interfaces[0].mtu = 600;
        },
        ..plan(false)
    });
    let mut frame = packet::udp4("192.168.1.1:5000", "192.168.1.10:5000").payload(&[7; 1000]);
    if let packet::Network::V4(header) = &mut frame.network {
        header.dont_fragment = false;
    }
    let sent = host_of(&mut rig, INSIDE, &frame.build());
    assert_eq!(2, sent.len(), "{:?}", rig.all_drops());
    assert!(sent.iter().all(|(_, frame)| is_valid(frame) && frame[..6] == HOST_MAC));
}

#[test]
fn each_worker_punts_what_it_receives_and_the_owner_sends() {
    let mut rig = Rig::new(Plan {
        workers: 3,
        senders: vec![1],
        ..plan(false)
    });
    let syn = packet::tcp4("192.168.1.10:40000", "192.168.1.1:179").macs(HOST_MAC, INSIDE_MAC);
    for worker in 0..3 {
        rig.send_at(worker, INSIDE, &syn.build());
        assert_eq!(vec![(worker, INSIDE, syn.build())], punted(&mut rig));
    }
    let with_queue = rig
        .desks
        .iter()
        .filter(|requests| requests.from_hosts.is_some())
        .count();
    assert_eq!(1, with_queue);
    let answer = packet::tcp4("192.168.1.1:179", "192.168.1.10:40000");
    let expected = answer.clone().macs(INSIDE_MAC, HOST_MAC).build();
    assert_eq!(vec![(INSIDE, expected)], host_of(&mut rig, INSIDE, &answer.build()));
}

#[test]
fn routers_are_policed_apart() {
    let mut rig = Rig::new(Plan {
        interfaces: |interfaces| {
            hosted(interfaces);
            interfaces[1].router = 1;
        },
        snapshot: |snapshot| {
            snapshot.routers = vec![Default::default(); 2];
            let few = Host::new([(1, 2); PuntClass::ALL.len()], Multicast::LinkLocal, 2);
            snapshot.hosts = vec![Arc::new(few), Arc::default()];
        },
        ..plan(false)
    });
    let hello = group(89, HOST, "224.0.0.5").build();
    (0..10).for_each(|_| assert_eq!(0, rig.send(INSIDE, &hello).len()));
    (0..10).for_each(|_| assert_eq!(0, rig.send(OUTSIDE, &hello).len()));
    let interfaces: Vec<_> = punted(&mut rig)
        .into_iter()
        .map(|(_, interface, _)| interface)
        .collect();
    assert_eq!([[INSIDE; 2].to_vec(), [OUTSIDE; 10].to_vec()].concat(), interfaces);
    assert_eq!(vec![("punt-policed-routing", 8)], rig.all_drops());
}

#[test]
fn host_stays_over_a_commit_that_does_not_change_it_and_counts_on_over_any() {
    let mut rig = Rig::new(plan(false));
    let (_, routes) = rig::snapshot(&plan(false));
    rig.send(INSIDE, &group(89, HOST, "224.0.0.5").build());
    for (limits, expected) in [(LIMITS, false), (LIMITS, true), ([(7, 7); PuntClass::ALL.len()], false)] {
        let mut snapshot = rig.plane.snapshot().clone();
        let before = snapshot.hosts[0].clone();
        snapshot.hosts = vec![Arc::new(Host::new(limits, Multicast::LinkLocal, 2))];
        rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
        let host = &rig.plane.snapshot().hosts[0];
        assert_eq!(expected, Arc::ptr_eq(&before, host));
        assert_eq!(1, host.passed(PuntClass::Routing));
    }
    let bgp = packet::tcp4("192.168.1.10:40000", "192.168.1.1:179");
    (0..20).for_each(|_| assert_eq!(0, rig.host_sends(&bgp).len()));
    assert_eq!(
        (1 + 7, 8),
        (
            rig.plane.snapshot().hosts[0].passed(PuntClass::Routing),
            punted(&mut rig).len()
        )
    );
}

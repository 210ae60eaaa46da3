//! Tests with full tables and pools. New flows are refused with an ICMP error, and existing flows still work.

use std::net::SocketAddrV4;

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, flow};
use sluice_engine::control::plane::NeighbourLimits;
use sluice_engine::snapshot::Interface;
use sluice_engine::worker::request::Filter;
use sluice_testkit::packet::{self, Frame};
use sluice_wire::vlan::Tag;

fn remote() -> SocketAddrV4 {
    "198.51.100.7:53".parse().unwrap()
}

fn inside(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new("192.168.1.10".parse().unwrap(), port)
}

/// Creates flows from port 1 on. Returns the successful flows. Asserts that the sender of every refused flow got a
/// host-unreachable error.
fn open(rig: &mut Rig, count: u16, reason: &str) -> Vec<(u16, SocketAddrV4)> {
    let mut through = Vec::new();
    for port in 1..=count {
        rig.pass(10);
        let sent = rig.host_sends(&packet::udp4(inside(port), remote()));
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        if sent[0].port == OUTSIDE {
            through.push((port, flow(&sent[0].frame).0));
        } else {
            assert_eq!(&[3, 1], &sent[0].frame[34..36]);
            assert!(rig::is_valid(&sent[0].frame));
        }
    }
    assert_eq!(u64::from(count) - through.len() as u64, rig.drops(reason));
    through
}

#[track_caller]
fn all_still_answered(rig: &mut Rig, through: &[(u16, SocketAddrV4)]) {
    for &(port, public) in through {
        let sent = rig.router_sends(&packet::udp4(remote(), public));
        assert_eq!(1, sent.len());
        assert_eq!((remote(), inside(port)), flow(&sent[0].frame));
    }
}

#[test]
fn rfc6888_req11_session_table_full_refuses_the_new_and_keeps_the_old() {
    let mut rig = Rig::new(Plan {
        shards: 1,
        sessions: 10,
        ..Plan::default()
    });
    let through = open(&mut rig, 30, "sessions-full");
    assert_eq!(10, through.len());
    all_still_answered(&mut rig, &through);
    assert_eq!(10, rig.live());
    // A refused flow occupies no port. When sessions have ended, the same number of flows succeeds again.
    rig.seconds(310);
    assert_eq!(0, rig.live());
    let sent = rig.host_sends(&packet::udp4(inside(1), remote()));
    assert_eq!(OUTSIDE, sent[0].port);
}

#[test]
fn rfc6888_req11_pool_exhausted_refuses_the_new_and_keeps_the_old() {
    let mut rig = Rig::new(Plan {
        shards: 1,
        pool: vec![(rig::POOL.to_bits(), rig::POOL.to_bits())],
        pool_ports: (2000, 2019),
        ..Plan::default()
    });
    let through = open(&mut rig, 50, "ports-exhausted");
    assert_eq!(20, through.len());
    assert!(through.iter().all(|(_, public)| (2000..=2019).contains(&public.port())));
    all_still_answered(&mut rig, &through);
    assert_eq!(20, rig.sessions(Filter::default()).len());
    // Each protocol can use all ports of the pool.
    let ping = packet::icmp4_echo("192.168.1.10", "198.51.100.7", 7, 1);
    assert_eq!(OUTSIDE, rig.host_sends(&ping)[0].port);
    // The sessions end, and their ports stay in quarantine (RFC 6888, REQ-8).
    rig.seconds(310);
    assert_eq!(rig::INSIDE, rig.host_sends(&packet::udp4(inside(60), remote()))[0].port);
    rig.seconds(130);
    assert_eq!(OUTSIDE, rig.host_sends(&packet::udp4(inside(60), remote()))[0].port);
}

#[test]
fn rfc5508_req10f_errors_about_a_flood_are_limited_and_every_packet_is_counted() {
    let mut rig = Rig::new(Plan {
        shards: 1,
        sessions: 1,
        ..Plan::default()
    });
    rig.public(&packet::udp4(inside(1), remote()));
    let mut errors = 0;
    for port in 2..1002 {
        errors += rig.host_sends(&packet::udp4(inside(port), remote())).len();
    }
    assert_eq!(100, errors, "half of the burst of the class for one destination");
    assert_eq!(vec![("sessions-full", 1000)], rig.all_drops());
}

/// A second inside network, which is a VLAN.
fn two_networks(interfaces: &mut Vec<Interface>) {
    let mut other = interfaces[0].clone();
    other.name = "office".into();
    other.tags = vec![Tag {
        protocol: 0x8100,
        control: 20,
    }];
    other.link.index = OFFICE;
    other.link.addresses = vec![(rig::plain("192.168.2.1"), 24), (rig::plain("2001:db8:3::1"), 64)];
    interfaces.push(other);
}

const OFFICE: u16 = 2;

/// The gateway itself answers several classes of packets. For each class, a flood on one interface does not affect
/// another interface.
#[test]
fn flood_of_each_class_by_one_interface_leaves_the_others_what_they_have() {
    type Asks = fn(u8, [u8; 6]) -> Frame;
    let echo: Asks = |network, mac| {
        let (host, gateway) = (format!("192.168.{network}.10"), format!("192.168.{network}.1"));
        packet::icmp4_echo(&*host, &*gateway, 5, 1).macs(mac, INSIDE_MAC)
    };
    let echo6: Asks = |network, mac| {
        let network = if network == 1 { "2001:db8:1" } else { "2001:db8:3" };
        packet::icmp6_echo(&*format!("{network}::10"), &*format!("{network}::1"), 5, 1).macs(mac, INSIDE_MAC)
    };
    let other: Asks = |network, mac| {
        let (host, gateway) = (format!("192.168.{network}.10:5"), format!("192.168.{network}.1:9"));
        packet::udp4(&*host, &*gateway).macs(mac, INSIDE_MAC)
    };
    let error: Asks = |network, mac| {
        let host = format!("192.168.{network}.10:5");
        packet::udp4(&*host, "198.51.100.7:9").ttl(1).macs(mac, INSIDE_MAC)
    };
    for (name, asks) in [("echo", echo), ("echo6", echo6), ("other", other), ("error", error)] {
        let mut rig = Rig::new(Plan {
            translate: false,
            interfaces: two_networks,
            ..Plan::default()
        });
        let office = [2, 0, 0, 0, 2, 10];
        rig.know(OFFICE, rig::plain("192.168.2.10"), office);
        rig.know(OFFICE, rig::plain("2001:db8:3::10"), office);
        let flood = asks(1, HOST_MAC).build();
        let answered: usize = (0..3_000).map(|_| rig.send(INSIDE, &flood).len()).sum();
        assert!((20..2_000).contains(&answered), "{name}: {answered}");
        let queried = asks(2, office).tag(0x8100, 20).build();
        let answered = (0..20).filter(|_| rig.send(INSIDE, &queried).len() == 1).count();
        assert_eq!(20, answered, "{name}: {:?}", rig.all_drops());
    }
}

#[test]
fn flood_of_arp_leaves_other_interfaces_and_answers_to_the_gateway_what_they_need() {
    let mut rig = Rig::new(Plan {
        translate: false,
        known_neighbours: false,
        interfaces: two_networks,
        ..Plan::default()
    });
    // The gateway resolves its router, and the answer arrives during the flood.
    let sent = rig.host_sends(&packet::udp4(inside(1), remote()));
    assert_eq!(1, sent.len());
    let flood = packet::arp_request(ROUTER_MAC, "203.0.113.77", "203.0.113.78");
    while rig.drops("policed-neighbour") < 100 {
        rig.send(OUTSIDE, &flood);
    }
    let answer = packet::arp_reply(ROUTER_MAC, "203.0.113.254", OUTSIDE_MAC, "203.0.113.1");
    let sent = rig.send(OUTSIDE, &answer);
    assert_eq!((1, OUTSIDE), (sent.len(), sent[0].port), "{:?}", rig.all_drops());
    // The second answer is policed, because no request is pending.
    let before = rig.drops("policed-neighbour");
    rig.send(OUTSIDE, &answer);
    assert_eq!(before + 1, rig.drops("policed-neighbour"));
    let asks = packet::arp_request(HOST_MAC, "192.168.1.10", "192.168.1.1");
    for _ in 0..20 {
        assert_eq!(1, rig.send(INSIDE, &asks).len(), "{:?}", rig.all_drops());
    }
}

/// Unconfirmed neighbours, which any host can announce, are evicted in favour of neighbours that the gateway has
/// requested.
#[test]
fn neighbours_that_nobody_has_confirmed_give_way() {
    let mut rig = Rig::new(Plan {
        translate: false,
        limits: NeighbourLimits {
            capacity: 32,
            ..NeighbourLimits::default()
        },
        ..Plan::default()
    });
    for host in 20..120 {
        let mac = [2, 0, 0, 9, 9, host];
        rig.send(
            INSIDE,
            &packet::arp_request(mac, &*format!("192.168.1.{host}"), "192.168.1.1"),
        );
        rig.pass(100);
    }
    assert!(
        rig.plane
            .neighbours()
            .find(INSIDE, rig::plain("192.168.1.119"))
            .is_some()
    );
    assert!(
        rig.plane
            .neighbours()
            .find(INSIDE, rig::plain("192.168.1.20"))
            .is_none()
    );
    // Requested neighbours get an entry, and configured neighbours remain.
    for host in 200..220 {
        let to = format!("192.168.1.{host}:53");
        assert_eq!(
            1,
            rig.router_sends(&packet::udp4("198.51.100.7:53", &*to)).len(),
            "{:?}",
            rig.all_drops()
        );
        let mac = [2, 0, 0, 8, 8, host];
        let sent = rig.send(
            INSIDE,
            &packet::arp_reply(mac, &*format!("192.168.1.{host}"), INSIDE_MAC, "192.168.1.1"),
        );
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    }
    for host in 20..120 {
        rig.send(
            INSIDE,
            &packet::arp_request([2, 0, 0, 9, 9, host], &*format!("192.168.1.{host}"), "192.168.1.1"),
        );
        rig.pass(100);
    }
    for host in 200..220 {
        assert!(
            rig.plane
                .neighbours()
                .find(INSIDE, rig::plain(&format!("192.168.1.{host}")))
                .is_some(),
            "{host}"
        );
    }
    assert_eq!(1, rig.host_sends(&packet::udp4(inside(1), remote())).len());
}

#[test]
fn device_that_takes_no_frames_is_counted_and_nothing_counts_as_sent() {
    let mut rig = Rig::new(Plan::default());
    rig.public(&packet::udp4(inside(1), remote()));
    let sent = |rig: &Rig| {
        let counters = &rig.plane.counters()[0].interfaces[OUTSIDE as usize];
        (counters.sent.get(), counters.sent_bytes.get())
    };
    let before = sent(&rig);
    rig.wires[0].limit_transmit(0);
    assert!(rig.host_sends(&packet::udp4(inside(1), remote())).is_empty());
    assert_eq!(vec![("transmit-full", 1)], rig.all_drops());
    assert_eq!(before, sent(&rig));
}

#[test]
fn pool_of_buffers_exhausted_the_question_for_a_neighbour_is_asked_later() {
    let mut rig = Rig::new(Plan {
        known_neighbours: false,
        ..Plan::default()
    });
    rig.wires[0].limit_allocate(0);
    assert!(rig.host_sends(&packet::udp4(inside(1), remote())).is_empty());
    rig.wires[0].limit_allocate(usize::MAX);
    rig.pass(1200);
    let sent = rig.sent();
    assert_eq!(1, sent.len());
    assert_eq!([0x08, 0x06], sent[0].frame[12..14]);
    assert_eq!(OUTSIDE, sent[0].port);
}

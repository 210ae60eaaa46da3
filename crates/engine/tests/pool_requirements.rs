//! Tests of mappings and ports, requirement by requirement (RFC 4787, 6888 and 7857). The files `mappings.rs`,
//! `timeouts.rs` and `fragments.rs` test other requirements.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::rig::{self, HOST_MAC, INSIDE, OUTSIDE, Plan, Rig, flow, plain};
use sluice_engine::snapshot::EventSettings;
use sluice_engine::worker::request::Filter;
use sluice_nat::behaviour::{Behaviour, Blocks, Filtering};
use sluice_nat::deterministic::{Algorithm, Deterministic};
use sluice_nat::event::{Event, EventKind, EventKinds};
use sluice_nat::{Pool, PortClass};
use sluice_route::Via;
use sluice_testkit::packet::{self, Frame, flag};

fn remote() -> SocketAddrV4 {
    "198.51.100.7:53".parse().unwrap()
}

fn inside(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new("192.168.1.10".parse().unwrap(), port)
}

fn other(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new("192.168.1.11".parse().unwrap(), port)
}

/// A gateway with one shard and one outside address with the ports 2000 to 2003.
fn four_ports(change_pool: fn(&mut Pool<u32>)) -> Plan {
    Plan {
        shards: 1,
        pool: vec![(rig::POOL.to_bits(), rig::POOL.to_bits())],
        pool_ports: (2000, 2003),
        change_pool,
        ..Plan::default()
    }
}

fn rig(plan: Plan) -> Rig {
    let mut rig = Rig::new(plan);
    rig.know(INSIDE, plain("192.168.1.11"), HOST_MAC);
    rig
}

/// Number of flows in `flows` that are translated.
fn through(rig: &mut Rig, flows: impl IntoIterator<Item = Frame>) -> usize {
    let out = |frame: Frame| rig.host_sends(&frame).iter().any(|sent| sent.port == OUTSIDE);
    flows.into_iter().map(out).filter(|&out| out).count()
}

fn datagrams(from: fn(u16) -> SocketAddrV4) -> impl Iterator<Item = Frame> {
    (0..8).map(move |port| packet::udp4(from(6000 + port), remote()))
}

#[test]
fn rfc4787_req5b_timer_is_configurable_down_to_two_minutes() {
    let mut rig = rig(Plan {
        change_pool: |pool| pool.timeouts.udp = 120,
        ..Plan::default()
    });
    rig.public(&packet::udp4(inside(6000), remote()));
    rig.seconds(119);
    assert_eq!(1, rig.live());
    rig.seconds(2);
    assert_eq!(0, rig.live());
}

#[test]
fn rfc4787_req12_no_icmp_message_ends_a_mapping() {
    let mut rig = rig(Plan::default());
    let public = rig.public(&packet::udp4(inside(6000), remote()));
    let quoted = packet::udp4(public, remote()).build();
    for kind in [3, 4, 5, 11, 12] {
        for code in 0..=15 {
            rig.router_sends(&packet::icmp4_error(
                *remote().ip(),
                *public.ip(),
                kind,
                code,
                &quoted,
                548,
            ));
        }
    }
    assert_eq!(1, rig.live());
    let stranger: SocketAddrV4 = "192.0.2.99:9".parse().unwrap();
    let sent = rig.router_sends(&packet::udp4(stranger, public));
    assert_eq!((stranger, inside(6000)), flow(&sent[0].frame));
}

#[test]
fn rfc4787_req12a_errors_are_not_filtered_by_their_source() {
    let mut rig = rig(Plan {
        behaviour: Behaviour {
            filtering: Filtering::AddressAndPortDependent,
            ..Behaviour::default()
        },
        ..Plan::default()
    });
    let public = rig.public(&packet::udp4(inside(6000), remote()));
    let quoted = packet::udp4(public, remote()).build();
    for source in ["198.51.100.1", "192.0.2.1", "10.9.8.7"] {
        let error = packet::icmp4_error(source, *public.ip(), 3, 1, &quoted, 548);
        let sent = rig.router_sends(&error);
        assert_eq!(1, sent.len(), "{source}: {:?}", rig.all_drops());
        assert_eq!(source.parse::<Ipv4Addr>().unwrap().octets(), sent[0].frame[26..30]);
    }
}

#[test]
fn rfc4787_req13a_datagram_too_long_is_cut_in_order() {
    let mut rig = rig(Plan {
        outside_mtu: 600,
        ..Plan::default()
    });
    let mut long = packet::udp4(inside(6000), remote()).payload(&[7; 1400]);
    if let packet::Network::V4(header) = &mut long.network {
        header.dont_fragment = false;
    }
    let sent = rig.host_sends(&long);
    let place = |sent: &rig::Sent| u16::from_be_bytes([sent.frame[20], sent.frame[21]]);
    let places: Vec<_> = sent.iter().map(place).collect();
    // The expected values are offsets in units of 8 bytes, with the more-fragments flag.
    assert_eq!(vec![0x2000, 0x2000 | 72, 144], places, "{:?}", rig.all_drops());
    assert!(
        sent.iter()
            .all(|sent| sent.port == OUTSIDE && rig::is_valid(&sent.frame))
    );
}

#[test]
fn rfc6888_req4b_ports_are_limited_by_protocol() {
    let mut rig = rig(Plan {
        change_pool: |pool| pool.subscriber.ports = [Some(1), Some(2), Some(3)],
        ..Plan::default()
    });
    let tcp = (0..8).map(|port| packet::tcp4(inside(6000 + port), remote()).flags(flag::SYN));
    let pings = (0..8).map(|number| packet::icmp4_echo(*inside(0).ip(), *remote().ip(), number, 1));
    assert_eq!(1, through(&mut rig, tcp));
    assert_eq!(2, through(&mut rig, datagrams(inside)));
    assert_eq!(3, through(&mut rig, pings));
    assert_eq!(7 + 6 + 5, rig.drops("subscriber-ports"));
}

#[test]
fn rfc6888_req6_what_leaves_by_an_interface_of_no_rule_is_not_translated() {
    let behind = Via::Gateway {
        address: plain("192.168.1.11"),
        interface: None,
    };
    let mut rig = rig(Plan {
        routes: vec![rig::route("192.0.2.0", 24, behind)],
        ..Plan::default()
    });
    let sent = rig.host_sends(&packet::udp4(inside(6000), "192.0.2.1:53"));
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(
        (inside(6000), INSIDE, 0),
        (flow(&sent[0].frame).0, sent[0].port, rig.live())
    );
}

#[test]
fn rfc6888_req8_port_waits_before_it_is_lent_again() {
    let mut rig = rig(four_ports(|_| {}));
    assert_eq!(4, through(&mut rig, datagrams(inside)));
    rig.seconds(301);
    assert_eq!(0, rig.live());
    assert_eq!(0, through(&mut rig, datagrams(other)));
    rig.seconds(118);
    assert_eq!(0, through(&mut rig, datagrams(other)));
    rig.seconds(3);
    assert_eq!(4, through(&mut rig, datagrams(other)));
}

#[test]
fn rfc6888_req8_time_and_number_of_ports_that_wait_are_configurable() {
    let mut rig = rig(four_ports(|pool| {
        pool.hold.seconds = 30;
        pool.hold.max = 3;
    }));
    assert_eq!(4, through(&mut rig, datagrams(inside)));
    rig.seconds(301);
    assert_eq!(1, through(&mut rig, datagrams(other)), "the fourth does not wait");
    rig.seconds(31);
    assert_eq!(4, through(&mut rig, datagrams(other)));
}

#[test]
fn rfc6888_req8_block_waits_before_another_subscriber_gets_it() {
    let mut rig = rig(Plan {
        pool_ports: (2048, 2111),
        ..four_ports(|pool| {
            pool.blocks = Some(Blocks {
                size: 64,
                max: 1,
                spare: false,
            });
        })
    });
    assert_eq!(8, through(&mut rig, datagrams(inside)));
    rig.seconds(301);
    assert_eq!(0, rig.live());
    assert_eq!(0, through(&mut rig, datagrams(other)));
    rig.seconds(118);
    assert_eq!(0, through(&mut rig, datagrams(other)));
    rig.seconds(3);
    assert_eq!(8, through(&mut rig, datagrams(other)));
}

#[test]
fn rfc6888_req8a_tcp_port_is_lent_again_at_once() {
    let mut rig = rig(four_ports(|_| {}));
    let opening = |from: SocketAddrV4| packet::tcp4(from, remote()).flags(flag::SYN);
    assert_eq!(4, through(&mut rig, (0..4).map(|port| opening(inside(6000 + port)))));
    rig.seconds(241);
    assert_eq!(0, rig.live());
    assert_eq!(4, through(&mut rig, (0..4).map(|port| opening(other(6000 + port)))));
}

#[test]
fn rfc6888_req8b_port_that_is_computed_is_lent_again_at_once() {
    let mut rig = rig(four_ports(|pool| {
        pool.deterministic = Some(Deterministic {
            inside: (inside(0).ip().to_bits(), inside(0).ip().to_bits()),
            compression: 1,
            dynamic: 0,
            max: None,
            algorithm: Algorithm::Sequential,
        });
    }));
    assert_eq!(4, through(&mut rig, datagrams(inside)));
    rig.seconds(301);
    assert_eq!(0, rig.live());
    assert_eq!(4, through(&mut rig, datagrams(inside)));
}

#[test]
fn rfc6888_req8c_port_of_a_filtered_mapping_is_lent_again_at_once() {
    let filterings = [Filtering::AddressDependent, Filtering::AddressAndPortDependent];
    for filtering in filterings {
        let mut rig = rig(Plan {
            behaviour: Behaviour {
                filtering,
                ..Behaviour::default()
            },
            ..four_ports(|_| {})
        });
        assert_eq!(4, through(&mut rig, datagrams(inside)));
        rig.seconds(301);
        assert_eq!(4, through(&mut rig, datagrams(other)), "{filtering:?}");
    }
}

#[test]
fn rfc6888_req12_events_of_a_mapping_are_one_for_all_destinations() {
    let mut rig = rig(Plan {
        events: EventSettings {
            wanted: EventKinds::ALL,
            max: 64,
        },
        ..Plan::default()
    });
    let public = rig.public(&packet::udp4(inside(6000), remote()));
    for host in 1..20 {
        rig.public(&packet::udp4(
            inside(6000),
            SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, host), 9),
        ));
    }
    let events: Vec<Event> = std::iter::from_fn(|| rig.desks[0].events.as_mut()?.pop().ok()).collect();
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    assert_eq!(vec![EventKind::AddressBindingCreate, EventKind::BibCreate], kinds);
    assert_eq!(
        (6000, (public.port(), public.port())),
        (events[1].inside_port, events[1].ports)
    );
    assert_eq!(Some(PortClass::Udp), events[1].class);
}

#[test]
fn rfc6888_req14_a_subscribers_mappings_are_one_event_where_ports_come_in_blocks() {
    let mut rig = rig(Plan {
        shards: 1,
        change_pool: |pool| {
            pool.blocks = Some(Blocks {
                size: 64,
                ..Blocks::default()
            });
        },
        events: EventSettings {
            wanted: EventKinds::NONE
                .with(EventKind::PortBlockAllocation)
                .with(EventKind::PortBlockDeallocation),
            max: 64,
        },
        ..Plan::default()
    });
    for port in 0..60 {
        rig.public(&packet::udp4(inside(6000 + port), remote()));
    }
    let events: Vec<Event> = std::iter::from_fn(|| rig.desks[0].events.as_mut()?.pop().ok()).collect();
    assert_eq!(1, events.len(), "of {} mappings", rig.sessions(Filter::default()).len());
}

#[test]
fn rfc6888_req15_rfc7857_section9_a_port_tells_nothing_of_the_next() {
    let mut rig = rig(Plan {
        pool: vec![(rig::POOL.to_bits(), rig::POOL.to_bits())],
        ..Plan::default()
    });
    let ports: Vec<u16> = (0..1000)
        .map(|port| rig.public(&packet::udp4(inside(6000 + port), remote())).port())
        .collect();
    let near = ports.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 64).count();
    let ascending = ports.windows(2).filter(|pair| pair[0] < pair[1]).count();
    let kibiports: HashSet<_> = ports.iter().map(|port| port >> 10).collect();
    assert!(near < 20, "{near} of 999 steps are short");
    assert!((400..600).contains(&ascending), "{ascending} of 999 steps go up");
    assert_eq!(63, kibiports.len(), "in every 1,024 of the pool");
}

#[test]
fn rfc7857_section8_parity_is_left_alone_unless_asked_for() {
    let mut rig = rig(Plan::default());
    let kept = (0..200).filter(|port| rig.public(&packet::udp4(inside(6000 + port), remote())).port() % 2 == port % 2);
    let kept = kept.count();
    assert!((60..140).contains(&kept), "{kept} of 200");
}

#[test]
fn rfc7857_section4_full_paired_address_refuses_tcp_and_udp_unless_soft() {
    let two_addresses = |change_pool: fn(&mut Pool<u32>)| Plan {
        pool: vec![(rig::POOL.to_bits(), rig::POOL.to_bits() + 1)],
        ..four_ports(change_pool)
    };
    let tcp = || (0..8).map(|port| packet::tcp4(inside(6000 + port), remote()).flags(flag::SYN));
    let mut hard = rig(two_addresses(|_| {}));
    assert_eq!(
        (4, 4),
        (through(&mut hard, datagrams(inside)), through(&mut hard, tcp()))
    );
    assert_eq!(8, hard.drops("ports-exhausted"));
    let mut soft = rig(two_addresses(|pool| pool.pairing = sluice_nat::pool::Pairing::Soft));
    assert_eq!(
        (8, 8),
        (through(&mut soft, datagrams(inside)), through(&mut soft, tcp()))
    );
}

//! Tests of mapping, filtering, pairing, port blocks, limits and hairpinning with packets, as required by RFC 4787,
//! 5382, 5508, 6888 and 7857.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::rig::{self, HOST, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, Plan, Rig, Sent, flow, plain};
use sluice_engine::snapshot::EventSettings;
use sluice_nat::behaviour::{Behaviour, Blocks, Filtering, PortSelection, SubscriberLimits};
use sluice_nat::deterministic::{Algorithm, Deterministic};
use sluice_nat::event::{Event, EventField, EventKind, EventKinds};
use sluice_nat::rule::{DestinationAction, DestinationRule, Prefix};
use sluice_table::token_bucket::TokenRate;
use sluice_testkit::packet::{self, Frame, flag};

/// A second inside host, and remote endpoints.
const OTHER: &str = "192.168.1.11";
const REMOTES: [&str; 3] = ["198.51.100.7:53", "198.51.100.7:54", "198.51.100.8:53"];

fn socket(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

fn inside(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(HOST.parse().unwrap(), port)
}

fn other(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(OTHER.parse().unwrap(), port)
}

fn rig(plan: Plan) -> Rig {
    let mut rig = Rig::new(plan);
    rig.know(INSIDE, plain(OTHER), HOST_MAC);
    rig
}

fn filtering(filtering: Filtering) -> Plan {
    Plan {
        behaviour: Behaviour {
            filtering,
            ..Behaviour::default()
        },
        ..Plan::default()
    }
}

/// Functions that build packets of both protocols with ports.
fn transports() -> [fn(SocketAddrV4, SocketAddrV4) -> Frame; 2] {
    [
        |from, to| packet::udp4(from, to),
        |from, to| packet::tcp4(from, to).flags(flag::SYN).numbers(1000, 0),
    ]
}

fn came_to(sent: &[Sent], to: SocketAddrV4) -> bool {
    matches!(sent, [one] if one.port == INSIDE && flow(&one.frame).1 == to)
}

#[test]
fn rfc4787_req1_rfc5382_req1_mapping_is_endpoint_independent() {
    for workers in [1, 2, 4] {
        let mut rig = rig(Plan {
            workers,
            ..Plan::default()
        });
        for make in transports() {
            let publics: HashSet<_> = REMOTES
                .iter()
                .map(|remote| rig.public(&make(inside(5000), socket(remote))))
                .collect();
            assert_eq!(1, publics.len(), "{publics:?}");
            assert!(!publics.contains(&rig.public(&make(inside(5001), socket(REMOTES[0])))));
        }
        assert_eq!(8, rig.live());
    }
}

#[test]
fn address_and_port_dependent_mapping_differs_by_destination() {
    let mut rig = rig(Plan {
        behaviour: Behaviour::ADDRESS_AND_PORT_DEPENDENT,
        ..Plan::default()
    });
    let publics: HashSet<_> = REMOTES
        .iter()
        .map(|remote| rig.public(&packet::udp4(inside(5000), socket(remote))))
        .collect();
    assert_eq!(3, publics.len(), "{publics:?}");
    // According to RFC 4787, REQ-2, all mappings of a host have one address.
    assert_eq!(
        1,
        publics.iter().map(|public| *public.ip()).collect::<HashSet<_>>().len()
    );
}

#[test]
fn rfc7857_section5_mappings_of_protocols_are_apart() {
    let mut rig = rig(Plan::default());
    let udp = rig.public(&packet::udp4(inside(5000), socket(REMOTES[0])));
    let stranger = packet::tcp4(socket(REMOTES[2]), udp).flags(flag::SYN);
    assert!(rig.router_sends(&stranger).is_empty());
    assert_eq!(vec![("unsolicited", 1)], rig.all_drops());
}

#[test]
fn rfc4787_req8_rfc5382_req3_rfc6888_req7_endpoint_independent_filtering_lets_any_remote_in() {
    let mut rig = rig(filtering(Filtering::EndpointIndependent));
    for make in transports() {
        let public = rig.public(&make(inside(5000), socket(REMOTES[0])));
        for remote in &REMOTES[1..] {
            let sent = rig.router_sends(&make(socket(remote), public));
            assert!(came_to(&sent, inside(5000)), "{:?}", rig.all_drops());
            assert_eq!(socket(remote), flow(&sent[0].frame).0);
        }
    }
    assert_eq!(6, rig.live());
}

#[test]
fn rfc4787_req8_address_dependent_filtering_lets_known_addresses_in() {
    let mut rig = rig(filtering(Filtering::AddressDependent));
    for make in transports() {
        let public = rig.public(&make(inside(5000), socket(REMOTES[0])));
        let sent = rig.router_sends(&make(socket(REMOTES[1]), public));
        assert!(came_to(&sent, inside(5000)), "{:?}", rig.all_drops());
        assert!(rig.router_sends(&make(socket(REMOTES[2]), public)).is_empty());
        // When the host has sent a packet to a remote address, this address may answer from any port.
        rig.public(&make(inside(5000), socket("198.51.100.8:99")));
        let sent = rig.router_sends(&make(socket(REMOTES[2]), public));
        assert!(came_to(&sent, inside(5000)), "{:?}", rig.all_drops());
    }
    assert_eq!(2, rig.drops("filtered"));
}

#[test]
fn rfc4787_req8_address_and_port_dependent_filtering_lets_answers_in_alone() {
    let mut rig = rig(filtering(Filtering::AddressAndPortDependent));
    for make in transports() {
        let public = rig.public(&make(inside(5000), socket(REMOTES[0])));
        for remote in &REMOTES[1..] {
            assert!(rig.router_sends(&make(socket(remote), public)).is_empty());
        }
        assert_eq!(public, rig.public(&make(inside(5000), socket(REMOTES[1]))));
    }
    assert_eq!(4, rig.drops("filtered"));
}

#[test]
fn rfc7857_section7_filtered_packets_do_not_refresh_the_mapping() {
    let mut rig = rig(filtering(Filtering::AddressAndPortDependent));
    let public = rig.public(&packet::udp4(inside(5000), socket(REMOTES[0])));
    for _ in 0..31 {
        rig.seconds(10);
        rig.router_sends(&packet::udp4(socket(REMOTES[2]), public));
    }
    assert_eq!(0, rig.live());
}

#[test]
fn rfc4787_req11_behaviour_is_the_same_at_all_times() {
    let mut rig = rig(Plan::default());
    let public = rig.public(&packet::udp4(inside(5000), socket(REMOTES[0])));
    for port in 6000..6400 {
        rig.public(&packet::udp4(inside(port), socket(REMOTES[0])));
    }
    rig.seconds(200);
    assert_eq!(public, rig.public(&packet::udp4(inside(5000), socket(REMOTES[2]))));
    let sent = rig.router_sends(&packet::udp4(socket(REMOTES[1]), public));
    assert!(came_to(&sent, inside(5000)));
}

/// Two inside hosts send to each other's outside addresses. Checks the packet that the callee receives, and the answer
/// that the caller receives.
fn hairpin(rig: &mut Rig, make: fn(SocketAddrV4, SocketAddrV4) -> Frame) {
    let callee = rig.public(&make(other(7000), socket(REMOTES[0])));
    let caller = rig.public(&make(inside(5000), socket(REMOTES[0])));
    let sent = rig.host_sends(&make(inside(5000), callee).ttl(9));
    assert!(came_to(&sent, other(7000)), "{:?}", rig.all_drops());
    // RFC 4787, REQ-9a: the callee sees the external address and port of the caller. The TTL is decremented once.
    let expected = make(caller, other(7000)).ttl(8).macs(INSIDE_MAC, HOST_MAC);
    assert_eq!(expected.build(), sent[0].frame);
    let sent = rig.host_sends(&packet_back(make(other(7000), caller)));
    assert!(came_to(&sent, inside(5000)), "{:?}", rig.all_drops());
    assert_eq!(callee, flow(&sent[0].frame).0);
    assert!(rig::is_valid(&sent[0].frame));
}

fn packet_back(frame: Frame) -> Frame {
    match frame.protocol() {
        6 => frame.flags(flag::SYN | flag::ACK).numbers(77, 1001),
        _ => frame.payload(b"answer"),
    }
}

#[test]
fn rfc4787_req9a_rfc5382_req8a_hairpinning_presents_the_external_source() {
    for workers in [1, 2, 4] {
        for make in transports() {
            let mut rig = rig(Plan {
                workers,
                ..Plan::default()
            });
            hairpin(&mut rig, make);
        }
    }
}

#[test]
fn hairpinning_obeys_filtering() {
    let mut rig = rig(filtering(Filtering::AddressAndPortDependent));
    let callee = rig.public(&packet::udp4(other(7000), socket(REMOTES[0])));
    assert!(rig.host_sends(&packet::udp4(inside(5000), callee)).is_empty());
    assert_eq!(1, rig.drops("filtered"));
    // After both hosts have sent to each other, both receive the packets of the other host.
    let caller = rig.public(&packet::udp4(inside(5000), socket(REMOTES[0])));
    rig.host_sends(&packet::udp4(other(7000), caller));
    assert!(came_to(
        &rig.host_sends(&packet::udp4(inside(5000), callee)),
        other(7000)
    ));
}

#[test]
fn hairpinning_in_fragments_is_translated_like_its_datagram() {
    let mut rig = rig(Plan::default());
    let callee = rig.public(&packet::udp4(other(7000), socket(REMOTES[0])));
    let whole = packet::udp4(inside(5000), callee).payload(&[7; 1600]);
    let datagram = &whole.build()[34..];
    let fragment = |offset: usize, length: usize, more: bool| {
        // Only the first fragment has a UDP header.
        let header = if offset == 0 { 8 } else { 0 };
        let mut frame = packet::udp4(inside(5000), callee)
            .payload(&vec![0; length - header])
            .fragment(offset as u16 / 8, more, 77)
            .macs(HOST_MAC, INSIDE_MAC)
            .build();
        frame[34..34 + length].copy_from_slice(&datagram[offset..offset + length]);
        frame
    };
    let mut sent = rig.send(INSIDE, &fragment(0, 800, true));
    sent.extend(rig.send(INSIDE, &fragment(800, 808, false)));
    assert_eq!(2, sent.len(), "{:?}", rig.all_drops());
    for one in sent {
        assert_eq!(INSIDE, one.port);
        assert_eq!(Ipv4Addr::new(192, 168, 1, 11).octets(), one.frame[30..34]);
    }
}

#[test]
fn rfc5508_req7_hairpinned_icmp_errors_are_translated() {
    let mut rig = rig(Plan::default());
    let callee = rig.public(&packet::udp4(other(7000), socket(REMOTES[0])));
    let sent = rig.host_sends(&packet::udp4(inside(5000), callee).payload(b"hello"));
    assert!(came_to(&sent, other(7000)));
    // The callee sends an ICMP error for the caller's packet. The caller receives the error from the callee's outside
    // address.
    let caller = *flow(&sent[0].frame).0.ip();
    let error = packet::icmp4_error(*other(0).ip(), caller, 3, 3, &sent[0].frame, 28);
    let back = rig.host_sends(&error);
    assert_eq!(1, back.len(), "{:?}", rig.all_drops());
    assert_eq!(INSIDE, back[0].port);
    let frame = &back[0].frame;
    assert_eq!(callee.ip().octets(), frame[26..30]);
    assert_eq!(HOST.parse::<Ipv4Addr>().unwrap().octets(), frame[30..34]);
    let quoted = &frame[42..];
    assert_eq!(HOST.parse::<Ipv4Addr>().unwrap().octets(), quoted[12..16]);
    assert_eq!(callee.ip().octets(), quoted[16..20]);
    assert_eq!(
        [5000u16.to_be_bytes(), callee.port().to_be_bytes()].concat(),
        quoted[20..24]
    );
    assert!(rig::is_valid(frame));
}

#[test]
fn packet_too_long_for_the_other_inside_host_is_reported_to_the_caller() {
    let mut rig = rig(Plan {
        interfaces: |interfaces| interfaces[0].mtu = 1000,
        ..Plan::default()
    });
    let callee = rig.public(&packet::udp4(other(7000), socket(REMOTES[0])));
    let sent = rig.host_sends(&packet::udp4(inside(5000), callee).payload(&[1; 1200]).dont_fragment());
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let frame = &sent[0].frame;
    assert_eq!(([3, 4], INSIDE), ([frame[34], frame[35]], sent[0].port));
    assert_eq!(HOST.parse::<Ipv4Addr>().unwrap().octets(), frame[30..34]);
    assert_eq!(
        HOST.parse::<Ipv4Addr>().unwrap().octets(),
        frame[54..58],
        "quotes what it sent"
    );
    assert!(rig::is_valid(frame));
}

#[test]
fn destination_rule_works_from_inside_too() {
    let mut rig = rig(Plan {
        forwards: vec![DestinationRule {
            context: 0,
            protocol: Some(6),
            external: Prefix::host(Ipv4Addr::new(203, 0, 113, 77).to_bits()),
            ports: Some((80, 80)),
            inbound: None,
            action: DestinationAction::Host(other(0).ip().to_bits(), Some(8080)),
        }],
        ..Plan::default()
    });
    let server = socket("203.0.113.77:80");
    let opening = |from| packet::tcp4(from, server).flags(flag::SYN).numbers(5, 0);
    let sent = rig.router_sends(&opening(socket(REMOTES[0])));
    assert!(came_to(&sent, other(8080)), "{:?}", rig.all_drops());
    let sent = rig.host_sends(&opening(inside(5000)));
    assert!(came_to(&sent, other(8080)), "{:?}", rig.all_drops());
    let seen = flow(&sent[0].frame).0;
    assert_ne!(inside(5000), seen, "the answer would not come back this way");
    let answer = packet::tcp4(other(8080), seen)
        .flags(flag::SYN | flag::ACK)
        .numbers(9, 6);
    let sent = rig.host_sends(&answer);
    assert!(came_to(&sent, inside(5000)), "{:?}", rig.all_drops());
    assert_eq!(server, flow(&sent[0].frame).0);
}

#[test]
fn source_that_only_hairpinned_packets_have_is_refused_from_outside() {
    let mut rig = rig(Plan::default());
    let callee = rig.public(&packet::udp4(other(7000), socket(REMOTES[0])));
    let pool = [rig::POOL.to_bits(), rig::POOL.to_bits() + 1].map(Ipv4Addr::from_bits);
    let forged = pool.into_iter().find(|address| address != callee.ip()).unwrap();
    let forged = SocketAddrV4::new(forged, 5000);
    assert!(rig.router_sends(&packet::udp4(forged, callee)).is_empty());
    assert_eq!(vec![("forged-source", 1)], rig.all_drops());
}

#[test]
fn rfc6888_req2_one_address_for_all_sessions_of_a_subscriber() {
    let mut rig = rig(Plan {
        pool: vec![(rig::POOL.to_bits(), rig::POOL.to_bits() + 7)],
        ..Plan::default()
    });
    let addresses: HashSet<_> = (5000..5100)
        .map(|port| *rig.public(&packet::udp4(inside(port), socket(REMOTES[0]))).ip())
        .collect();
    assert_eq!(1, addresses.len());
}

#[test]
fn rfc6888_req4_and_req11_ports_beyond_the_limit_are_refused_and_the_old_stay() {
    let mut rig = rig(Plan {
        change_pool: |pool| pool.subscriber.ports = [None, Some(10), None],
        ..Plan::default()
    });
    let publics: Vec<_> = (0..10)
        .map(|port| rig.public(&packet::udp4(inside(6000 + port), socket(REMOTES[0]))))
        .collect();
    let refused = rig.host_sends(&packet::udp4(inside(6010), socket(REMOTES[0])));
    assert_eq!(INSIDE, refused[0].port);
    assert_eq!([3, 1], refused[0].frame[34..36], "RFC 6888, REQ-11: host unreachable");
    assert_eq!(1, rig.drops("subscriber-ports"));
    // A flow to another destination needs no further port. TCP and other hosts have separate limits.
    rig.public(&packet::udp4(inside(6000), socket(REMOTES[2])));
    rig.public(&packet::tcp4(inside(6011), socket(REMOTES[0])).flags(flag::SYN));
    assert_eq!(
        OUTSIDE,
        rig.host_sends(&packet::udp4(other(6010), socket(REMOTES[0])))[0].port
    );
    for (port, public) in publics.iter().enumerate() {
        let sent = rig.router_sends(&packet::udp4(socket(REMOTES[0]), *public));
        assert!(came_to(&sent, inside(6000 + port as u16)));
    }
}

#[test]
fn rfc6888_req5_sessions_beyond_the_limit_are_refused() {
    let mut rig = rig(Plan {
        change_pool: |pool| pool.subscriber.sessions = Some(3),
        ..Plan::default()
    });
    let public = rig.public(&packet::udp4(inside(6000), socket(REMOTES[0])));
    rig.public(&packet::udp4(inside(6000), socket(REMOTES[1])));
    rig.public(&packet::udp4(inside(6000), socket(REMOTES[2])));
    assert_eq!(
        INSIDE,
        rig.host_sends(&packet::udp4(inside(6000), socket("192.0.2.9:9")))[0].port
    );
    // A session from outside is refused as well, but without an ICMP error.
    assert!(
        rig.router_sends(&packet::udp4(socket("192.0.2.9:9"), public))
            .is_empty()
    );
    assert_eq!(2, rig.drops("subscriber-sessions"));
    assert_eq!(3, rig.live());
}

#[test]
fn rfc6888_req4c_rate_of_new_sessions_is_limited() {
    let mut rig = rig(Plan {
        change_pool: |pool| {
            pool.subscriber.rate = Some(TokenRate::new(10, 20));
        },
        ..Plan::default()
    });
    let open = |rig: &mut Rig, count: u16, from: u16| {
        let through = |port: u16| {
            let sent = rig.host_sends(&packet::udp4(inside(from + port), socket(REMOTES[0])));
            u16::from(sent.first().is_some_and(|sent| sent.port == OUTSIDE))
        };
        (0..count).map(through).sum::<u16>()
    };
    assert_eq!(20, open(&mut rig, 50, 6000));
    assert_eq!(30, rig.drops("subscriber-rate"));
    rig.seconds(1);
    assert_eq!(10, open(&mut rig, 50, 7000));
}

#[test]
fn port_blocks_belong_to_one_subscriber_and_are_bounded() {
    for workers in [1, 4] {
        let mut rig = rig(Plan {
            workers,
            change_pool: |pool| {
                pool.blocks = Some(Blocks {
                    size: 64,
                    max: 2,
                    spare: false,
                });
            },
            ..Plan::default()
        });
        let mut blocks = [HashSet::new(), HashSet::new()];
        for port in 0..200u16 {
            for (place, from) in [inside(6000 + port), other(6000 + port)].into_iter().enumerate() {
                let sent = rig.host_sends(&packet::udp4(from, socket(REMOTES[0])));
                if sent[0].port == OUTSIDE {
                    let public = flow(&sent[0].frame).0;
                    blocks[place].insert((*public.ip(), public.port() / 64));
                }
            }
        }
        assert!(blocks.iter().all(|blocks| blocks.len() == 2), "{blocks:?}");
        assert!(blocks[0].is_disjoint(&blocks[1]));
        assert_eq!(2 * (200 - 128), rig.drops("subscriber-ports"));
        assert_eq!(256, rig.live());
    }
}

#[test]
fn preserved_port_changes_only_on_collision() {
    let mut rig = rig(Plan {
        shards: 1,
        pool: vec![(rig::POOL.to_bits(), rig::POOL.to_bits())],
        change_pool: |pool| pool.selection = PortSelection::Preserve,
        ..Plan::default()
    });
    for make in transports() {
        assert_eq!(5000, rig.public(&make(inside(5000), socket(REMOTES[0]))).port());
        assert_eq!(5001, rig.public(&make(other(5001), socket(REMOTES[0]))).port());
        let collides = rig.public(&make(other(5000), socket(REMOTES[0])));
        assert_ne!(5000, collides.port());
        let answer = match make(inside(1), other(1)).protocol() {
            6 => packet::tcp4(socket(REMOTES[0]), collides)
                .flags(flag::SYN | flag::ACK)
                .numbers(1, 1001),
            _ => packet::udp4(socket(REMOTES[0]), collides),
        };
        assert!(came_to(&rig.router_sends(&answer), other(5000)));
    }
}

#[test]
fn rfc4787_req4_rfc7857_section8_parity_is_kept_where_asked_for() {
    let mut rig = rig(Plan {
        change_pool: |pool| pool.parity = true,
        ..Plan::default()
    });
    for port in 5000..5100 {
        let public = rig.public(&packet::udp4(inside(port), socket(REMOTES[0])));
        assert_eq!(port % 2, public.port() % 2);
    }
}

#[test]
fn rfc7857_section3_ports_overlap_where_destinations_differ() {
    let mut rig = rig(Plan {
        shards: 1,
        pool: vec![(rig::POOL.to_bits(), rig::POOL.to_bits())],
        pool_ports: (2000, 2009),
        behaviour: Behaviour::ADDRESS_AND_PORT_DEPENDENT,
        change_pool: |pool| pool.overlap = true,
        ..Plan::default()
    });
    let mut seen = HashSet::new();
    for remote in 0..20u16 {
        let remote = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 7), 1000 + remote);
        let mut through = 0;
        for port in 0..12 {
            let sent = rig.host_sends(&packet::udp4(inside(6000 + port), remote));
            if sent[0].port != OUTSIDE {
                continue;
            }
            through += 1;
            let public = flow(&sent[0].frame).0;
            assert!(seen.insert((public, remote)), "two flows that can't be told apart");
            let back = rig.router_sends(&packet::udp4(remote, public));
            assert!(came_to(&back, inside(6000 + port)));
        }
        assert_eq!(10, through, "all ports of every destination");
    }
    assert_eq!(40, rig.drops("ports-exhausted"));
}

#[test]
fn rfc7422_ports_are_those_computed_and_then_of_blocks() {
    let first = Ipv4Addr::new(192, 168, 1, 0).to_bits();
    for workers in [1, 4] {
        let mut rig = rig(Plan {
            workers,
            pool: vec![(rig::POOL.to_bits(), rig::POOL.to_bits() + 1)],
            pool_ports: (1024, 65_535),
            change_pool: |pool| {
                pool.deterministic = Some(Deterministic {
                    inside: (
                        Ipv4Addr::new(192, 168, 1, 0).to_bits(),
                        Ipv4Addr::new(192, 168, 1, 255).to_bits(),
                    ),
                    compression: 240,
                    dynamic: 240,
                    max: None,
                    algorithm: Algorithm::Sequential,
                });
                pool.blocks = Some(Blocks {
                    size: 64,
                    max: 1,
                    spare: true,
                });
            },
            ..Plan::default()
        });
        // 64,512 ports in 480 shares give 134 computed ports to each host, which can also get a block of 64 ports.
        let host = Ipv4Addr::new(192, 168, 1, 10).to_bits() - first;
        let (from, to) = (1024 + host * 134, 1024 + (host + 1) * 134);
        let mut ports = HashSet::new();
        for port in 0..250u16 {
            let sent = rig.host_sends(&packet::udp4(inside(6000 + port), socket(REMOTES[0])));
            if sent[0].port != OUTSIDE {
                continue;
            }
            let public = flow(&sent[0].frame).0;
            assert_eq!(rig::POOL, *public.ip());
            assert!(ports.insert(public.port()));
            assert!(came_to(
                &rig.router_sends(&packet::udp4(socket(REMOTES[0]), public)),
                inside(6000 + port)
            ));
        }
        let computed = ports
            .iter()
            .filter(|&&port| (from..to).contains(&u32::from(port)))
            .count();
        let dynamic = ports
            .iter()
            .filter(|&&port| u32::from(port) >= 1024 + 240 * 134)
            .count();
        assert_eq!((ports.len(), 64), (computed + dynamic, dynamic));
        // The search for a free port makes a limited number of attempts, so it may miss a few free ports.
        assert!((128..=134).contains(&computed), "{computed}");
        assert_eq!(250 - ports.len() as u64, rig.drops("subscriber-ports"));
    }
}

#[test]
fn limits_of_one_subscriber_leave_others_alone_with_a_prefix_as_subscriber() {
    let mut rig = rig(Plan {
        change_pool: |pool| {
            pool.subscriber = SubscriberLimits {
                sessions: Some(4),
                ..SubscriberLimits::default()
            };
        },
        subscriber_prefix: 24,
        ..Plan::default()
    });
    for port in 0..2 {
        rig.public(&packet::udp4(inside(6000 + port), socket(REMOTES[0])));
        rig.public(&packet::udp4(other(6000 + port), socket(REMOTES[0])));
    }
    // Both hosts are in 192.168.1.0/24.
    assert_eq!(
        INSIDE,
        rig.host_sends(&packet::udp4(other(7000), socket(REMOTES[0])))[0].port
    );
    assert_eq!(1, rig.drops("subscriber-sessions"));
}

#[test]
fn pool_and_router_limits_refuse_the_new_and_count_what_ends() {
    for workers in [1, 4] {
        let mut rig = rig(Plan {
            workers,
            change_pool: |pool| pool.limits.sessions = Some(5),
            snapshot: |snapshot| snapshot.routers[0].limits.sessions = Some(4),
            ..Plan::default()
        });
        let open = |rig: &mut Rig, port: u16| rig.host_sends(&packet::udp4(inside(port), socket(REMOTES[0])))[0].port;
        let through = (6000..6010).filter(|&port| open(&mut rig, port) == OUTSIDE).count();
        assert_eq!((4, 6), (through, rig.drops("router-sessions")));
        rig.seconds(310);
        assert_eq!(0, rig.live());
        assert_eq!(4, (7000..7010).filter(|&port| open(&mut rig, port) == OUTSIDE).count());
        let meters = &rig.plane.start_parameters().meters;
        assert_eq!(
            (4, 4),
            (meters.router(0).unwrap().sessions(), meters.pool(0).unwrap().sessions())
        );
        rig.seconds(310);
        let meters = &rig.plane.start_parameters().meters;
        assert_eq!(
            (0, 0),
            (meters.router(0).unwrap().sessions(), meters.pool(0).unwrap().sessions())
        );
    }
}

#[test]
fn pool_rate_limits_new_sessions_of_all_subscribers() {
    let mut rig = rig(Plan {
        change_pool: |pool| {
            pool.limits.rate = Some(TokenRate::new(5, 5));
        },
        ..Plan::default()
    });
    let open = |rig: &mut Rig, from: SocketAddrV4| rig.host_sends(&packet::udp4(from, socket(REMOTES[0])))[0].port;
    let through = (0..10u16)
        .filter(|&port| {
            open(
                &mut rig,
                if port % 2 == 0 {
                    inside(6000 + port)
                } else {
                    other(6000 + port)
                },
            ) == OUTSIDE
        })
        .count();
    assert_eq!((5, 5), (through, rig.drops("pool-rate")));
}

#[test]
fn pool_that_maps_in_another_way_ends_its_sessions_and_lends_again() {
    let plan = || Plan {
        workers: 2,
        ..Plan::default()
    };
    let mut rig = rig(plan());
    let behaviours = [
        Behaviour::ADDRESS_AND_PORT_DEPENDENT,
        Behaviour::default(),
        Behaviour::ADDRESS_AND_PORT_DEPENDENT,
    ];
    for (turn, behaviour) in behaviours.into_iter().enumerate() {
        for port in 0..50 {
            rig.public(&packet::udp4(inside(6000 + port), socket(REMOTES[0])));
            rig.public(&packet::tcp4(other(6000 + port), socket(REMOTES[1])).flags(flag::SYN));
        }
        let blocks = (turn == 1).then(Blocks::default);
        let (mut snapshot, routes) = rig::snapshot(&Plan { behaviour, ..plan() });
        if blocks.is_some() {
            snapshot = rig::snapshot(&Plan {
                behaviour,
                change_pool: |pool| pool.blocks = Some(Blocks::default()),
                ..plan()
            })
            .0;
        }
        rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
        while !rig.plane.is_migrated() {
            rig.round();
        }
        assert_eq!(0, rig.live(), "turn {turn}");
    }
    // A change that does not affect the allocation scheme ends no session.
    let public = rig.public(&packet::udp4(inside(6000), socket(REMOTES[0])));
    let (snapshot, routes) = rig::snapshot(&Plan {
        behaviour: behaviours[2],
        pool: vec![(rig::POOL.to_bits(), rig::POOL.to_bits() + 2)],
        ..plan()
    });
    rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
    while !rig.plane.is_migrated() {
        rig.round();
    }
    assert_eq!(public, rig.public(&packet::udp4(inside(6000), socket(REMOTES[0]))));
}

#[test]
fn events_of_blocks_say_who_had_which_ports_and_a_full_queue_makes_nobody_wait() {
    let plan = |max| Plan {
        shards: 1,
        change_pool: |pool| {
            pool.hold.seconds = 0;
            pool.blocks = Some(Blocks {
                size: 64,
                max: 2,
                spare: false,
            });
        },
        events: EventSettings {
            wanted: EventKinds::ALL,
            max,
        },
        ..Plan::default()
    };
    let mut rig = rig(plan(4096));
    let public = rig.public(&packet::udp4(inside(6000), socket(REMOTES[0])));
    for port in 1..129 {
        rig.host_sends(&packet::udp4(inside(6000 + port), socket(REMOTES[0])));
    }
    rig.seconds(310);
    let events: Vec<Event> = std::iter::from_fn(|| rig.desks[0].events.as_mut()?.pop().ok()).collect();
    let count = |kind| events.iter().filter(|event| event.kind == kind).count();
    for event in &events {
        let fields = event.kind.fields();
        let declared =
            [EventField::Outside, EventField::InsidePort, EventField::Class].map(|field| fields.contains(&field));
        let raised = [event.outside != [0; 2], event.inside_port != 0, event.class.is_some()];
        assert_eq!(declared, raised, "{event:?}");
    }
    use EventKind::{
        AddressBindingCreate, AddressBindingDelete, BibCreate, BibDelete, PortBlockAllocation, PortBlockDeallocation,
        QuotaExceeded,
    };
    assert_eq!([1, 1], [AddressBindingCreate, AddressBindingDelete].map(count));
    assert_eq!([2, 2], [PortBlockAllocation, PortBlockDeallocation].map(count));
    assert_eq!([128, 128, 1], [BibCreate, BibDelete, QuotaExceeded].map(count));
    let block = events.iter().find(|event| event.kind == PortBlockAllocation).unwrap();
    assert_eq!(u64::from(inside(0).ip().to_bits()), block.inside[1]);
    assert_eq!(u64::from(public.ip().to_bits()), block.outside[1]);
    assert!((block.ports.0..=block.ports.1).contains(&public.port()));
    assert_eq!(63, block.ports.1 - block.ports.0);

    // If the queue is full, sessions are still created, and the lost events are counted.
    let mut rig = self::rig(plan(8));
    for port in 0..50 {
        rig.public(&packet::udp4(inside(6000 + port), socket(REMOTES[0])));
    }
    let counters = &rig.plane.counters()[0];
    assert_eq!((8, 44), (counters.events.get(), counters.events_lost.get()));
    assert_eq!(50, rig.live());
}

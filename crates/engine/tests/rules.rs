//! Tests of rules other than pools and forwarded ports: one-to-one translation, exemptions, translation of both
//! endpoints, and rules that change individually.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::rig::{self, HOST, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, Plan, ROUTER_MAC, Rig, Sent, flow, plain, v4};
use etherparse::IpNumber;
use sluice_engine::session::family::V4;
use sluice_engine::snapshot::steering::{Affinity, HashFields};
use sluice_nat::behaviour::{Behaviour, MappingBehaviour};
use sluice_nat::rule::{DestinationAction, DestinationRule, Prefix, SourceAction, SourceRule};
use sluice_testkit::packet::{self, Transport, flag};
use sluice_wire::Checksums;

const REMOTE: &str = "198.51.100.7:53";
/// A host, and its separate outside address.
const SERVER: &str = "192.168.1.66";
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 1, 66];
const SERVER_OUTSIDE: &str = "203.0.113.66";

fn socket(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

fn at(address: &str, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(address.parse().unwrap(), port)
}

fn network(text: &str, length: u8) -> Prefix<u32> {
    Prefix {
        address: v4(text),
        length,
    }
}

fn one_to_one() -> Plan {
    Plan {
        sources: vec![SourceRule {
            outside: Some(OUTSIDE),
            ..SourceRule::of(network("192.168.1.64", 28), SourceAction::Static(v4("203.0.113.64")))
        }],
        forwards: vec![DestinationRule::of(
            network("203.0.113.64", 28),
            DestinationAction::Static(v4("192.168.1.64")),
        )],
        ..Plan::default()
    }
}

fn rig(plan: Plan) -> Rig {
    let mut rig = Rig::new(plan);
    rig.know(INSIDE, plain(SERVER), SERVER_MAC);
    rig
}

fn server_sends(rig: &mut Rig, frame: &packet::Frame) -> Vec<Sent> {
    rig.send(INSIDE, &frame.clone().macs(SERVER_MAC, INSIDE_MAC).build())
}

fn only(sent: &[Sent], rig: &Rig) -> (SocketAddrV4, SocketAddrV4) {
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert!(rig::is_valid(&sent[0].frame));
    flow(&sent[0].frame)
}

#[test]
fn one_to_one_host_keeps_its_ports_in_both_directions() {
    let mut rig = rig(one_to_one());
    let (inside, outside, remote) = (at(SERVER, 5000), at(SERVER_OUTSIDE, 5000), socket(REMOTE));
    let sent = server_sends(&mut rig, &packet::udp4(inside, remote).payload(b"question"));
    assert_eq!((outside, remote), only(&sent, &rig));
    let sent = rig.router_sends(&packet::udp4(remote, outside).payload(b"answer"));
    assert_eq!((remote, inside), only(&sent, &rig));
    assert_eq!(1, rig.live());
    // Outside hosts may also start flows.
    let (inside, outside) = (at(SERVER, 443), at(SERVER_OUTSIDE, 443));
    let sent = rig.router_sends(&packet::tcp4(remote, outside).flags(flag::SYN).numbers(1, 0));
    assert_eq!((remote, inside), only(&sent, &rig));
    let answer = packet::tcp4(inside, remote).flags(flag::SYN | flag::ACK).numbers(7, 2);
    let sent = server_sends(&mut rig, &answer);
    assert_eq!((outside, remote), only(&sent, &rig));
    assert_eq!(2, rig.live());
}

#[test]
fn one_to_one_host_is_pinged_and_pings_with_its_identifier() {
    let mut rig = rig(one_to_one());
    let sent = rig.router_sends(&packet::icmp4_echo("198.51.100.7", SERVER_OUTSIDE, 77, 1));
    assert_eq!(at(SERVER, 77), only(&sent, &rig).1);
    let sent = server_sends(&mut rig, &packet::icmp4_echo_reply(SERVER, "198.51.100.7", 77, 1));
    assert_eq!(at(SERVER_OUTSIDE, 77), only(&sent, &rig).0);
    let sent = server_sends(&mut rig, &packet::icmp4_echo(SERVER, "198.51.100.8", 5, 1));
    assert_eq!(at(SERVER_OUTSIDE, 5), only(&sent, &rig).0);
}

/// Two flows that have the same identifier are distinguished by the direction of their requests, even if this
/// identifier equals the ICMP type of a request.
#[test]
fn hosts_ping_each_other_with_one_identifier() {
    const REMOTE: &str = "198.51.100.7";
    for id in [77, 8, 0, u16::MAX] {
        let mut rig = rig(one_to_one());
        for _ in 0..2 {
            let sent = server_sends(&mut rig, &packet::icmp4_echo(SERVER, REMOTE, id, 1));
            assert_eq!(at(SERVER_OUTSIDE, id), only(&sent, &rig).0);
            let sent = rig.router_sends(&packet::icmp4_echo(REMOTE, SERVER_OUTSIDE, id, 1));
            assert_eq!(at(SERVER, id), only(&sent, &rig).1);
            let sent = rig.router_sends(&packet::icmp4_echo_reply(REMOTE, SERVER_OUTSIDE, id, 1));
            assert_eq!(at(SERVER, id), only(&sent, &rig).1);
            let sent = server_sends(&mut rig, &packet::icmp4_echo_reply(SERVER, REMOTE, id, 1));
            assert_eq!(at(SERVER_OUTSIDE, id), only(&sent, &rig).0);
        }
        assert_eq!(2, rig.live());
    }
}

/// Two inside hosts send echo requests with one identifier to each other's outside addresses.
#[test]
fn inside_hosts_ping_each_other_by_their_outside_addresses_with_one_identifier() {
    let mut rig = rig(one_to_one());
    let (other, other_outside, other_mac) = ("192.168.1.67", "203.0.113.67", [2, 0, 0, 0, 1, 67]);
    assert_ne!(SERVER, other);
    rig.know(INSIDE, plain(other), other_mac);
    let other_sends =
        |rig: &mut Rig, frame: packet::Frame| rig.send(INSIDE, &frame.macs(other_mac, INSIDE_MAC).build());
    for _ in 0..2 {
        let sent = server_sends(&mut rig, &packet::icmp4_echo(SERVER, other_outside, 9, 1));
        assert_eq!((at(SERVER_OUTSIDE, 9), at(other, 9)), only(&sent, &rig));
        let sent = other_sends(&mut rig, packet::icmp4_echo(other, SERVER_OUTSIDE, 9, 1));
        assert_eq!((at(other_outside, 9), at(SERVER, 9)), only(&sent, &rig));
        let sent = other_sends(&mut rig, packet::icmp4_echo_reply(other, SERVER_OUTSIDE, 9, 1));
        assert_eq!((at(other_outside, 9), at(SERVER, 9)), only(&sent, &rig));
        let sent = server_sends(&mut rig, &packet::icmp4_echo_reply(SERVER, other_outside, 9, 1));
        assert_eq!((at(SERVER_OUTSIDE, 9), at(other, 9)), only(&sent, &rig));
    }
    assert_eq!(4, rig.live());
}

/// A client reaches one port of an inside host by two outside ports, from the same source port.
#[test]
fn connections_that_could_not_be_told_apart_get_other_source_ports() {
    for (hashed, together) in [
        (HashFields::Subset, Affinity::Hosts),
        (HashFields::FiveTuple, Affinity::Flows),
    ] {
        let behaviour = Behaviour {
            mapping: MappingBehaviour::AddressAndPortDependent,
            ..Behaviour::default()
        };
        let to_server = |port| DestinationRule {
            protocol: Some(17),
            ports: Some((port, port)),
            ..DestinationRule::of(
                network("203.0.113.20", 32),
                DestinationAction::Host(v4(SERVER), Some(53)),
            )
        };
        let mut rig = rig(Plan {
            behaviour,
            hashed,
            together,
            forwards: (1000..1040).map(to_server).collect(),
            ..Plan::default()
        });
        let mut clients = std::collections::HashSet::new();
        for port in 1000..1040 {
            let outside = at("203.0.113.20", port);
            let sent = rig.router_sends(&packet::udp4(socket(REMOTE), outside));
            let (client, server) = only(&sent, &rig);
            assert_eq!((at(SERVER, 53), *socket(REMOTE).ip()), (server, *client.ip()));
            assert!(clients.insert(client), "{client} twice");
            let sent = server_sends(&mut rig, &packet::udp4(server, client));
            assert_eq!((outside, socket(REMOTE)), only(&sent, &rig));
        }
        assert!(clients.contains(&socket(REMOTE)));
        assert_eq!((40, 0), (rig.live(), rig.drops("session-clash")));
        // The sessions are unchanged after a commit that keeps their rules.
        let (snapshot, routes) = rig::snapshot(&Plan {
            behaviour,
            hashed,
            together,
            forwards: (1000..1040).map(to_server).collect(),
            ..Plan::default()
        });
        rig.plane.commit(snapshot, &[routes]).unwrap();
        for client in clients {
            let sent = server_sends(&mut rig, &packet::udp4(at(SERVER, 53), client));
            assert_eq!(socket(REMOTE), only(&sent, &rig).1);
        }
        assert_eq!(40, rig.live());
    }
}

#[test]
fn one_to_one_host_uses_protocols_without_ports() {
    let mut rig = rig(one_to_one());
    for protocol in [47, 50, 132] {
        let remote: Ipv4Addr = "198.51.100.7".parse().unwrap();
        let raw = |from: &str, to: Ipv4Addr| {
            let from: Ipv4Addr = from.parse().unwrap();
            packet::frame4(from, to, Transport::Raw(IpNumber(protocol))).payload(b"0123456789abcdef0123456789")
        };
        let sent = server_sends(&mut rig, &raw(SERVER, remote));
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        let expected = raw(SERVER_OUTSIDE, remote).ttl(63);
        assert_eq!(expected.macs(rig::OUTSIDE_MAC, ROUTER_MAC).build(), sent[0].frame);
        let answer = packet::frame4(
            remote,
            SERVER_OUTSIDE.parse().unwrap(),
            Transport::Raw(IpNumber(protocol)),
        );
        let sent = rig.router_sends(&answer.payload(b"0123456789"));
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        assert_eq!(SERVER.parse::<Ipv4Addr>().unwrap().octets(), sent[0].frame[30..34]);
    }
    assert_eq!(3, rig.live());
}

#[test]
fn one_to_one_host_and_one_of_a_pool_reach_each_other_by_outside_addresses() {
    let mut rig = rig(one_to_one());
    let (client, service) = (at(HOST, 5000), at(SERVER_OUTSIDE, 80));
    let sent = rig.host_sends(&packet::udp4(client, service));
    let (seen, to) = only(&sent, &rig);
    assert_eq!(at(SERVER, 80), to);
    assert!((rig::POOL.to_bits()..rig::POOL.to_bits() + 2).contains(&seen.ip().to_bits()));
    let sent = server_sends(&mut rig, &packet::udp4(to, seen));
    assert_eq!((service, client), only(&sent, &rig));
    // In the other direction, the source of the host is its own outside address.
    let public = rig.public(&packet::udp4(at(HOST, 7000), socket(REMOTE)));
    let sent = server_sends(&mut rig, &packet::udp4(at(SERVER, 9), public));
    assert_eq!((at(SERVER_OUTSIDE, 9), at(HOST, 7000)), only(&sent, &rig));
    let sent = rig.host_sends(&packet::udp4(at(HOST, 7000), at(SERVER_OUTSIDE, 9)));
    assert_eq!((public, at(SERVER, 9)), only(&sent, &rig));
}

#[test]
fn source_that_only_a_host_one_to_one_has_outside_is_refused_from_there() {
    let mut rig = rig(one_to_one());
    let public = rig.public(&packet::udp4(at(HOST, 7000), socket(REMOTE)));
    for forged in [SERVER_OUTSIDE, "203.0.113.79"] {
        assert!(rig.router_sends(&packet::udp4(at(forged, 5000), public)).is_empty());
    }
    assert_eq!(vec![("forged-source", 2)], rig.all_drops());
    let sent = rig.router_sends(&packet::udp4(at("198.51.100.80", 5000), public));
    assert_eq!(at(HOST, 7000), only(&sent, &rig).1);
}

#[test]
fn gateway_answers_arp_for_addresses_one_to_one() {
    let mut rig = rig(one_to_one());
    let ask = |address: &'static str| packet::arp_request(ROUTER_MAC, "203.0.113.254", address);
    assert_eq!(1, rig.send(OUTSIDE, &ask(SERVER_OUTSIDE)).len());
    assert_eq!(1, rig.send(OUTSIDE, &ask("203.0.113.79")).len());
    assert!(rig.send(OUTSIDE, &ask("203.0.113.80")).is_empty());
}

#[test]
fn rfc6888_req6_traffic_to_chosen_destinations_leaves_as_it_came() {
    let exempt = |rule: DestinationRule<u32>| DestinationRule {
        inbound: None,
        action: DestinationAction::Exempt,
        ..rule
    };
    let any = DestinationRule::of(network("198.51.100.0", 25), DestinationAction::Exempt);
    let mut rig = rig(Plan {
        forwards: vec![
            exempt(any),
            exempt(DestinationRule {
                protocol: Some(17),
                ports: Some((5060, 5061)),
                ..DestinationRule::of(network("0.0.0.0", 0), DestinationAction::Exempt)
            }),
        ],
        ..Plan::default()
    });
    let host = at(HOST, 5000);
    for to in ["198.51.100.7:53", "192.0.2.9:5061"] {
        let to = socket(to);
        let sent = rig.host_sends(&packet::udp4(host, to));
        assert_eq!((host, to), only(&sent, &rig));
        let sent = rig.router_sends(&packet::udp4(to, host));
        assert_eq!((to, host), only(&sent, &rig));
    }
    for to in ["198.51.100.129:53", "192.0.2.9:5062"] {
        assert_ne!(host, rig.public(&packet::udp4(host, socket(to))));
    }
    let tcp = packet::tcp4(host, socket("192.0.2.9:5061")).flags(flag::SYN);
    assert_ne!(host, rig.public(&tcp));
    assert_eq!(3, rig.live());
}

#[test]
fn sources_that_are_exempt_leave_as_they_came() {
    let mut rig = rig(Plan {
        sources: vec![SourceRule {
            outside: Some(OUTSIDE),
            ..SourceRule::of(network("192.168.1.64", 28), SourceAction::Exempt)
        }],
        ..Plan::default()
    });
    let sent = server_sends(&mut rig, &packet::udp4(at(SERVER, 1), socket(REMOTE)));
    assert_eq!(at(SERVER, 1), only(&sent, &rig).0);
    assert_ne!(at(HOST, 1), rig.public(&packet::udp4(at(HOST, 1), socket(REMOTE))));
    assert_eq!(1, rig.live());
}

#[test]
fn twice_nat_from_inside_translates_both_ends_in_one_session() {
    // The network of a partner is translated to a different prefix: 10.99.0.0/16 represents 198.51.0.0/16.
    let mut rig = rig(Plan {
        forwards: vec![DestinationRule::of(
            network("10.99.0.0", 16),
            DestinationAction::Static(v4("198.51.0.0")),
        )],
        ..Plan::default()
    });
    let (client, known_as) = (at(HOST, 5000), at("10.99.100.7", 53));
    let sent = rig.host_sends(&packet::udp4(client, known_as).payload(b"question"));
    let (seen, to) = only(&sent, &rig);
    assert_eq!(socket(REMOTE), to);
    assert_ne!(client.ip(), seen.ip());
    let sent = rig.router_sends(&packet::udp4(to, seen).payload(b"answer"));
    assert_eq!((known_as, client), only(&sent, &rig));
    assert_eq!(1, rig.live());
}

#[test]
fn twice_nat_from_outside_gives_the_inside_host_an_inside_source() {
    let mut rig = rig(Plan {
        pool: vec![(v4("192.168.1.200"), v4("192.168.1.203"))],
        sources: vec![SourceRule {
            outside: Some(INSIDE),
            ..SourceRule::of(network("0.0.0.0", 0), SourceAction::Pool(0))
        }],
        forwards: vec![DestinationRule {
            protocol: Some(6),
            ports: Some((80, 80)),
            ..DestinationRule::of(
                Prefix::host(v4("203.0.113.77")),
                DestinationAction::Host(v4(HOST), Some(8080)),
            )
        }],
        snapshot: |snapshot| {
            snapshot.interfaces[0].outside = true;
        },
        ..Plan::default()
    });
    let (client, service) = (socket("198.51.100.7:4000"), at("203.0.113.77", 80));
    let sent = rig.router_sends(&packet::tcp4(client, service).flags(flag::SYN).numbers(1, 0));
    let (seen, to) = only(&sent, &rig);
    assert_eq!(at(HOST, 8080), to);
    assert!((200..204).contains(&seen.ip().octets()[3]), "{seen}");
    let answer = packet::tcp4(to, seen).flags(flag::SYN | flag::ACK).numbers(9, 2);
    let sent = rig.host_sends(&answer);
    assert_eq!((service, client), only(&sent, &rig));
}

#[test]
fn rules_count_the_flows_that_they_decided() {
    let mut plan = one_to_one();
    let chosen = network("198.51.100.128", 25);
    plan.forwards
        .push(DestinationRule::of(chosen, DestinationAction::Exempt));
    let mut rig = rig(plan);
    for port in 0..70 {
        let frame = packet::udp4(at(HOST, 1000 + port), socket(REMOTE)).macs(HOST_MAC, INSIDE_MAC);
        rig.wires[0].inject(INSIDE, &frame.build(), Checksums::Unverified);
        rig.wires[0].inject(INSIDE, &frame.build(), Checksums::Unverified);
    }
    rig.round();
    assert_eq!(140, rig.sent().len());
    rig.router_sends(&packet::udp4(socket(REMOTE), at(SERVER_OUTSIDE, 7)));
    rig.host_sends(&packet::udp4(at(HOST, 1), socket("198.51.100.200:1")));
    let rules = &rig.plane.snapshot().nat4.rules;
    let sources: Vec<_> = rules.sources(9).iter().map(|(.., hits)| *hits).collect();
    let destinations: Vec<_> = rules.destinations(9).iter().map(|(.., hits)| *hits).collect();
    // A burst may contain two packets of one flow. Each of them may then cause a decision.
    assert!((70..=140).contains(&sources[0]), "{sources:?}");
    assert_eq!((0, vec![1, 1]), (sources[1], destinations));
}

#[test]
fn single_rule_reaches_new_flows_at_once_and_sessions_soon() {
    let mut rig = rig(Plan::default());
    let public = rig.public(&packet::udp4(at(HOST, 1), socket(REMOTE)));
    let exempt = SourceRule::of(Prefix::host(v4(HOST)), SourceAction::Exempt);
    let added = rig
        .plane
        .edit_rules::<V4, _>(|nat| nat.rules.add_source(&exempt, &nat.pools));
    let added = added.unwrap();
    let sent = rig.host_sends(&packet::udp4(at(HOST, 2), socket(REMOTE)));
    assert_eq!(at(HOST, 2), only(&sent, &rig).0);
    assert_eq!(public, rig.public(&packet::udp4(at(HOST, 1), socket(REMOTE))));
    rig.pass(500);
    assert!(rig.plane.publish_changes(rig.now).is_some());
    assert!(rig.plane.publish_changes(rig.now).is_none());
    let sent = rig.host_sends(&packet::udp4(at(HOST, 1), socket(REMOTE)));
    assert_eq!(at(HOST, 1), only(&sent, &rig).0);
    assert_eq!(0, rig.live());
    rig.plane
        .edit_rules::<V4, _>(|nat| nat.rules.remove_source(added))
        .unwrap();
    assert_ne!(at(HOST, 3), rig.public(&packet::udp4(at(HOST, 3), socket(REMOTE))));
}

#[test]
fn session_that_no_edit_concerns_is_confirmed_and_keeps_everything() {
    let mut plan = one_to_one();
    plan.forwards.push(DestinationRule {
        protocol: Some(17),
        ports: Some((5353, 5353)),
        ..DestinationRule::of(
            Prefix::host(v4("203.0.113.20")),
            DestinationAction::Host(v4(SERVER), Some(53)),
        )
    });
    let mut rig = rig(plan);
    let public = rig.public(&packet::udp4(at(HOST, 1), socket(REMOTE)));
    server_sends(&mut rig, &packet::udp4(at(SERVER, 1), socket(REMOTE)));
    rig.router_sends(&packet::udp4(socket(REMOTE), at(SERVER_OUTSIDE, 7)));
    rig.router_sends(&packet::udp4(socket(REMOTE), socket("203.0.113.20:5353")));
    // These sessions were created by packets from outside to a mapping.
    let stranger = socket("198.51.100.9:9");
    rig.router_sends(&packet::udp4(stranger, public));
    rig.host_sends(&packet::udp4(at(HOST, 1), public));
    let (live, own) = (rig.live(), network("192.168.1.0", 24));
    let revised = |rig: &Rig| rig.plane.counters()[0].sessions_revalidated.get();
    // A rule for other hosts causes no check of sessions. A rule for an adjacent address causes a check, which confirms
    // the sessions.
    let unused = |inside| SourceRule {
        port: Some(60_000),
        ..SourceRule::of(inside, SourceAction::Exempt)
    };
    let far = DestinationRule::of(Prefix::host(v4("198.51.100.8")), DestinationAction::Exempt);
    for (step, expected) in [0, 2, 2].into_iter().enumerate() {
        rig.plane.edit_rules::<V4, _>(|nat| match step {
            0 => nat
                .rules
                .add_source(&unused(network("172.16.0.0", 20)), &nat.pools)
                .unwrap(),
            1 => nat.rules.add_source(&unused(own), &nat.pools).unwrap(),
            _ => nat.rules.add_destination(&far, &nat.pools).unwrap(),
        });
        rig.pass(500);
        rig.plane.publish_changes(rig.now).unwrap();
        let before = revised(&rig);
        assert_eq!(public, rig.public(&packet::udp4(at(HOST, 1), socket(REMOTE))));
        let sent = server_sends(&mut rig, &packet::udp4(at(SERVER, 1), socket(REMOTE)));
        assert_eq!(at(SERVER_OUTSIDE, 1), only(&sent, &rig).0);
        let sent = rig.router_sends(&packet::udp4(socket(REMOTE), at(SERVER_OUTSIDE, 7)));
        assert_eq!(at(SERVER, 7), only(&sent, &rig).1);
        let sent = rig.router_sends(&packet::udp4(socket(REMOTE), socket("203.0.113.20:5353")));
        assert_eq!(at(SERVER, 53), only(&sent, &rig).1);
        let sent = rig.router_sends(&packet::udp4(stranger, public));
        assert_eq!(at(HOST, 1), only(&sent, &rig).1);
        // All sessions send again, and no session needs a new decision.
        let done = revised(&rig) - before;
        rig.public(&packet::udp4(at(HOST, 1), socket(REMOTE)));
        assert_eq!((live, done), (rig.live(), revised(&rig) - before));
        assert_eq!(expected, done, "{step}");
    }
}

#[test]
fn what_is_denied_ends_within_a_second_however_often_rules_change() {
    let mut rig = rig(Plan::default());
    for port in 0..64 {
        rig.public(&packet::udp4(at(HOST, 1000 + port), socket(REMOTE)));
    }
    let exempt = SourceRule::of(Prefix::host(v4(HOST)), SourceAction::Exempt);
    rig.plane
        .edit_rules::<V4, _>(|nat| nat.rules.add_source(&exempt, &nat.pools))
        .unwrap();
    for step in 0..10u32 {
        let rule = SourceRule::of(Prefix::host(step), SourceAction::Exempt);
        rig.plane
            .edit_rules::<V4, _>(|nat| nat.rules.add_source(&rule, &nat.pools))
            .unwrap();
        rig.plane.publish_changes(rig.now);
        rig.host_sends(&packet::udp4(at(HOST, 1), socket(REMOTE)));
        rig.pass(100);
        // If all sessions were revalidated, at four sessions per burst, more bursts would be needed.
        if step == 9 {
            for port in 0..64 {
                let frame = packet::udp4(at(HOST, 1000 + port), socket(REMOTE)).macs(HOST_MAC, INSIDE_MAC);
                rig.wires[0].inject(INSIDE, &frame.build(), Checksums::Unverified);
            }
            rig.round();
            assert!(
                rig.sent()
                    .iter()
                    .all(|sent| *flow(&sent.frame).0.ip() == HOST.parse::<Ipv4Addr>().unwrap())
            );
        }
    }
    assert_eq!(0, rig.live());
}

const GRE: u8 = 47;

fn gre(from: &str, to: &str) -> packet::Frame {
    let (from, to): (Ipv4Addr, Ipv4Addr) = (from.parse().unwrap(), to.parse().unwrap());
    packet::frame4(from, to, Transport::Raw(IpNumber(GRE))).payload(b"\0\0\x08\0 a packet in a packet")
}

/// Source and destination of the only frame that left.
fn ends(sent: &[Sent], rig: &Rig) -> [Ipv4Addr; 2] {
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert!(rig::is_valid(&sent[0].frame));
    [26, 30].map(|at| Ipv4Addr::from(*sent[0].frame[at..].first_chunk::<4>().unwrap()))
}

#[test]
fn protocol_without_ports_is_dropped_by_name_where_its_pool_does_not_say_so() {
    let mut rig = Rig::new(Plan::default());
    assert!(rig.host_sends(&gre(HOST, "198.51.100.7")).is_empty());
    assert_eq!(vec![("unsupported-protocol", 1)], rig.all_drops());
}

#[test]
fn protocol_without_ports_is_translated_by_address_whatever_the_worker() {
    let mut rig = Rig::new(Plan {
        workers: 2,
        shards: 16,
        pool: vec![(rig::POOL.to_bits(), rig::POOL.to_bits() + 7)],
        change_pool: |pool| pool.protocols = vec![GRE],
        ..Plan::default()
    });
    for last in 1..100 {
        let remote = format!("198.51.100.{last}");
        let sent = rig.host_sends(&gre(HOST, &remote));
        let [outside, to] = ends(&sent, &rig);
        assert_eq!(remote, to.to_string());
        assert!((rig::POOL.to_bits()..=rig::POOL.to_bits() + 7).contains(&outside.to_bits()));
        let answer = gre(&remote, &outside.to_string()).macs(ROUTER_MAC, rig::OUTSIDE_MAC);
        let sent = rig.send_at(usize::from(last % 2 == 0), OUTSIDE, &answer.build());
        assert_eq!([remote, HOST.to_owned()], ends(&sent, &rig).map(|end| end.to_string()));
    }
    assert_eq!(99, rig.live());
    // A flow from outside can't be started.
    let stranger = gre("192.0.2.1", &rig::POOL.to_string());
    assert!(rig.router_sends(&stranger).is_empty());
    assert_eq!(vec![("unsolicited", 1)], rig.all_drops());
}

#[test]
fn protocol_without_ports_to_one_remote_is_one_hosts_behind_an_address() {
    let mut rig = rig(Plan {
        pool: vec![(rig::POOL.to_bits(), rig::POOL.to_bits())],
        change_pool: |pool| pool.protocols = vec![GRE],
        ..Plan::default()
    });
    let sent = rig.host_sends(&gre(HOST, "198.51.100.7"));
    let [outside, _] = ends(&sent, &rig);
    let refused = server_sends(&mut rig, &gre(SERVER, "198.51.100.7"));
    assert_eq!(vec![("protocol-address-taken", 1)], rig.all_drops());
    // If no address is free, the host gets an ICMP error (RFC 6888, REQ-11).
    assert_eq!(
        (1, [3, 1]),
        (refused.len(), [refused[0].frame[34], refused[0].frame[35]])
    );
    let sent = server_sends(&mut rig, &gre(SERVER, "198.51.100.8"));
    assert_eq!(outside, ends(&sent, &rig)[0]);
    // The first session is not affected, and its address is released when it expires.
    let answer = rig.router_sends(&gre("198.51.100.7", &outside.to_string()));
    assert_eq!(HOST, ends(&answer, &rig)[1].to_string());
    rig.seconds(302);
    assert_eq!(0, rig.live());
    let sent = server_sends(&mut rig, &gre(SERVER, "198.51.100.7"));
    assert_eq!(outside, ends(&sent, &rig)[0]);
}

#[test]
fn protocol_without_ports_between_inside_hosts_by_an_outside_address_comes_back() {
    let mut rig = rig(Plan {
        change_pool: |pool| pool.protocols = vec![GRE],
        ..one_to_one()
    });
    let sent = rig.host_sends(&gre(HOST, SERVER_OUTSIDE));
    let [seen, to] = ends(&sent, &rig);
    assert_eq!(SERVER, to.to_string());
    assert_ne!(HOST, seen.to_string());
    let sent = server_sends(&mut rig, &gre(SERVER, &seen.to_string()));
    assert_eq!(
        [SERVER_OUTSIDE, HOST],
        ends(&sent, &rig)
            .map(|end| end.to_string())
            .each_ref()
            .map(|end| end.as_str())
    );
}

#[test]
fn protocol_without_ports_survives_a_commit_that_changes_nothing() {
    let plan = || Plan {
        change_pool: |pool| pool.protocols = vec![GRE],
        ..Plan::default()
    };
    let mut rig = Rig::new(plan());
    let sent = rig.host_sends(&gre(HOST, "198.51.100.7"));
    let before = ends(&sent, &rig);
    let (snapshot, routes) = rig::snapshot(&plan());
    rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
    let sent = rig.host_sends(&gre(HOST, "198.51.100.7"));
    assert_eq!((before, 1), (ends(&sent, &rig), rig.live()));
    let (snapshot, routes) = rig::snapshot(&Plan::default());
    rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
    assert!(rig.host_sends(&gre(HOST, "198.51.100.7")).is_empty());
    rig.pass(300);
    assert_eq!(0, rig.live());
}

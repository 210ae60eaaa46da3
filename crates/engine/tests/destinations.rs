//! Tests of three kinds of destination rules: rules of an inbound interface for any address, rules that translate to
//! the router's own host, and rules that distribute flows to several hosts.

use std::net::SocketAddrV4;
use std::sync::Arc;

use crate::rig::{
    self, HOST, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, Plan, ROUTER_MAC, Rig, Sent, flow, is_valid, plain, v4,
};
use sluice_engine::control::plane::ControlPlaneError;
use sluice_engine::snapshot::Snapshot;
use sluice_engine::snapshot::steering::{Affinity, HashFields};
use sluice_filter::{CompiledRule, Counters, Filters, MatcherKind, Settings, Verdict};
use sluice_nat::behaviour::{Behaviour, MappingBehaviour};
use sluice_nat::rule::{
    Balance, DestinationAction, DestinationRule, FROM_HOST as OWN_RULES, HostSet, Prefix, SetHost, SourceAction,
    SourceRule,
};
use sluice_testkit::packet::{self, Frame, IpNumber, Transport, flag};

const ANY: Prefix<u32> = Prefix { address: 0, length: 0 };
const OWN: &str = "192.168.1.1";

fn socket(text: &str) -> SocketAddrV4 {
    text.parse().unwrap()
}

fn rule(interface: u16, protocol: u8, port: u16, action: DestinationAction<u32>) -> DestinationRule<u32> {
    DestinationRule {
        protocol: Some(protocol),
        ports: Some((port, port)),
        inbound: Some(interface),
        ..DestinationRule::of(ANY, action)
    }
}

/// The gateway has several workers, so a flow that is assigned to a wrong shard doesn't find its session.
fn plan(forwards: Vec<DestinationRule<u32>>) -> Plan {
    Plan {
        workers: 3,
        shards: 16,
        sessions: 1 << 16,
        forwards,
        interfaces: |interfaces| interfaces.iter_mut().for_each(|interface| interface.host = true),
        ..Plan::default()
    }
}

#[track_caller]
fn only(rig: &Rig, sent: &[Sent]) -> (u16, SocketAddrV4, SocketAddrV4) {
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert!(is_valid(&sent[0].frame));
    let (source, destination) = flow(&sent[0].frame);
    (sent[0].port, source, destination)
}

fn host_answers(rig: &mut Rig, frame: &Frame) -> Vec<Sent> {
    rig.host_sends(frame)
}

/// Packets that routers' hosts have received since the last call, as interface, source and destination.
fn punted(rig: &mut Rig) -> Vec<(u16, SocketAddrV4, SocketAddrV4)> {
    let mut all = Vec::new();
    for requests in &mut rig.desks {
        let taker = requests.to_hosts.as_mut().unwrap();
        while let Some((interface, length)) = taker.head() {
            let mut frame = vec![0; length];
            taker.pop(&mut frame);
            assert!(is_valid(&frame));
            let (source, destination) = flow(&frame);
            all.push((interface, source, destination));
        }
    }
    all
}

/// Sends a frame from the router's host through an interface. Returns the frames that leave.
fn own_sends(rig: &mut Rig, interface: u16, frame: &Frame) -> Vec<Sent> {
    let frame = frame.clone().macs(INSIDE_MAC, INSIDE_MAC).build();
    let queue = rig.desks[rig.owner].from_hosts.as_mut().unwrap();
    assert!(queue.push(interface, [&frame, &[]]));
    rig.round();
    rig.sent()
}

/// Enables sessions for untranslated flows.
fn filtered_by_session(snapshot: &mut Snapshot) {
    let settings = Settings {
        kind: MatcherKind::Best,
        default: Verdict::Accept,
        sessions: true,
        workers: 3,
    };
    let filters = Filters::new(&[] as &[CompiledRule], &settings, Counters::new(0));
    snapshot.filter_by(Arc::new(filters.unwrap()));
}

#[test]
fn any_destination_by_the_interface_of_a_rule_leads_to_its_host_and_back() {
    let to_host = DestinationAction::Host(v4(HOST), Some(80));
    for worker in 0..3 {
        let mut rig = Rig::new(plan(vec![rule(OUTSIDE, 6, 808, to_host)]));
        for (number, addressed) in ["203.0.113.1", "198.18.7.7", "192.0.2.200", "203.0.113.77"]
            .iter()
            .enumerate()
        {
            let remote = SocketAddrV4::new([198, 51, 100, number as u8].into(), 4000);
            let addressed = SocketAddrV4::new(addressed.parse().unwrap(), 808);
            let syn = packet::tcp4(remote, addressed).flags(flag::SYN).numbers(1, 0);
            let frame = syn.macs(ROUTER_MAC, rig::OUTSIDE_MAC).build();
            let sent = rig.send_at(worker, OUTSIDE, &frame);
            assert_eq!((INSIDE, remote, socket("192.168.1.10:80")), only(&rig, &sent));
            let answer = packet::tcp4("192.168.1.10:80", remote)
                .flags(flag::SYN | flag::ACK)
                .numbers(9, 2);
            let sent = host_answers(&mut rig, &answer);
            assert_eq!((OUTSIDE, addressed, remote), only(&rig, &sent));
        }
        assert_eq!(4, rig.live());
        assert_eq!(4, rig.plane.snapshot().nat4.rules.destinations(1)[0].2);
    }
}

#[test]
fn other_interfaces_and_rules_of_an_address_are_not_the_rules_of_any() {
    let forwards = vec![
        rule(OUTSIDE, 17, 808, DestinationAction::Host(v4(HOST), Some(80))),
        DestinationRule {
            inbound: None,
            ..DestinationRule {
                external: Prefix::host(v4("203.0.113.77")),
                ..rule(OUTSIDE, 17, 808, DestinationAction::Host(v4(HOST), Some(99)))
            }
        },
    ];
    let mut rig = Rig::new(plan(forwards));
    let remote = socket("198.51.100.7:4000");
    let sent = rig.router_sends(&packet::udp4(remote, "203.0.113.77:808"));
    assert_eq!((INSIDE, remote, socket("192.168.1.10:99")), only(&rig, &sent));
    let sent = rig.router_sends(&packet::udp4(remote, "203.0.113.78:808"));
    assert_eq!((INSIDE, remote, socket("192.168.1.10:80")), only(&rig, &sent));
    // If a packet from inside is addressed to this port of another host, the rule does not redirect it.
    let sent = rig.host_sends(&packet::udp4("192.168.1.10:5000", "198.51.100.7:808"));
    let (port, source, destination) = only(&rig, &sent);
    assert_eq!((OUTSIDE, socket("198.51.100.7:808")), (port, destination));
    assert_ne!(v4(HOST), source.ip().to_bits());
}

/// The rule redirects DNS queries of hosts to the operator's resolver. The resolver is outside in one case, and inside
/// in the other case. For an outside resolver, the source of queries is translated.
#[test]
fn rule_of_an_inside_interface_leads_hosts_elsewhere_and_their_answers_back() {
    let (server, server_mac) = ("192.168.1.53", [2, 0, 0, 0, 1, 53]);
    for (resolver, filtered) in [
        (server, false),
        ("198.51.100.53", false),
        (server, true),
        ("198.51.100.53", true),
    ] {
        let mut rig = Rig::new(Plan {
            snapshot: match filtered {
                false => |_| {},
                true => filtered_by_session,
            },
            ..plan(vec![rule(
                INSIDE,
                17,
                53,
                DestinationAction::Host(v4(resolver), Some(5353)),
            )])
        });
        rig.know(INSIDE, plain(server), server_mac);
        let resolver = SocketAddrV4::new(resolver.parse().unwrap(), 5353);
        for number in 0..20u8 {
            let client = SocketAddrV4::new([192, 168, 1, 100 + number].into(), 4000);
            let mac = [2, 0, 0, 0, 1, 100 + number];
            rig.know(INSIDE, plain(&client.ip().to_string()), mac);
            let queried = SocketAddrV4::new([8, 8, 8, number].into(), 53);
            let frame = packet::udp4(client, queried).macs(mac, INSIDE_MAC).build();
            let sent = rig.send_at(usize::from(number) % 3, INSIDE, &frame);
            let (port, source, destination) = only(&rig, &sent);
            assert_eq!(resolver, destination);
            let is_inside = port == INSIDE;
            assert_eq!(
                (
                    *resolver.ip() == server.parse::<std::net::Ipv4Addr>().unwrap(),
                    is_inside
                ),
                (is_inside, source == client)
            );
            let answer = packet::udp4(resolver, source);
            let answer = match is_inside {
                true => answer.macs(server_mac, INSIDE_MAC),
                false => answer.macs(ROUTER_MAC, rig::OUTSIDE_MAC),
            };
            let sent = rig.send_at(usize::from(number + 1) % 3, port, &answer.build());
            assert_eq!((INSIDE, queried, client), only(&rig, &sent));
        }
        assert_eq!(20, rig.live());
    }
}

#[test]
fn flow_to_an_own_address_by_a_rule_comes_to_the_host_and_its_answers_are_translated_back() {
    let mut rig = Rig::new(plan(vec![
        rule(INSIDE, 6, 80, DestinationAction::Host(v4(OWN), Some(3128))),
        rule(OUTSIDE, 17, 53, DestinationAction::Host(v4("203.0.113.1"), None)),
    ]));
    for number in 0..20u8 {
        let client = SocketAddrV4::new([192, 168, 1, 100 + number].into(), 4000);
        let mac = [2, 0, 0, 0, 1, 100 + number];
        rig.know(INSIDE, plain(&client.ip().to_string()), mac);
        let queried = SocketAddrV4::new([198, 18, 0, number].into(), 80);
        let own = socket("192.168.1.1:3128");
        let syn = packet::tcp4(client, queried).flags(flag::SYN).numbers(1, 0).ttl(1);
        assert_eq!(
            0,
            rig.send_at(usize::from(number) % 3, INSIDE, &syn.macs(mac, INSIDE_MAC).build())
                .len()
        );
        assert_eq!(vec![(INSIDE, client, own)], punted(&mut rig), "{:?}", rig.all_drops());
        let answer = packet::tcp4(own, client)
            .flags(flag::SYN | flag::ACK)
            .numbers(9, 2)
            .ttl(64);
        let sent = own_sends(&mut rig, INSIDE, &answer);
        assert_eq!((INSIDE, queried, client), only(&rig, &sent));
        // The TTL equals the TTL of an untranslated answer of the host.
        assert_eq!(64, sent[0].frame[14 + 8]);
    }
    // The rule also applies to outside clients.
    let (remote, queried) = (socket("198.51.100.9:5000"), socket("192.0.2.99:53"));
    assert_eq!(0, rig.router_sends(&packet::udp4(remote, queried)).len());
    assert_eq!(
        vec![(OUTSIDE, remote, socket("203.0.113.1:53"))],
        punted(&mut rig),
        "{:?}",
        rig.all_drops()
    );
    let sent = own_sends(&mut rig, OUTSIDE, &packet::udp4("203.0.113.1:53", remote));
    assert_eq!((OUTSIDE, queried, remote), only(&rig, &sent));
    assert_eq!(21, rig.live());
    assert_eq!(Vec::<(&str, u64)>::new(), rig.all_drops());
}

#[test]
fn rules_that_keep_the_flows_of_a_client_together_are_refused_where_they_lie_apart() {
    let (mut snapshot, routes) = rig::snapshot(&plan(vec![rule(
        INSIDE,
        6,
        80,
        DestinationAction::Host(v4(HOST), None),
    )]));
    let mut rig = Rig::new(Plan {
        together: Affinity::Flows,
        hashed: HashFields::FiveTuple,
        behaviour: Behaviour {
            mapping: MappingBehaviour::AddressAndPortDependent,
            ..Behaviour::default()
        },
        ..plan(Vec::new())
    });
    snapshot.nat4.pools = rig.plane.snapshot().nat4.pools.clone();
    let refused = rig.plane.commit(snapshot, &[routes]);
    assert!(
        matches!(refused, Err(ControlPlaneError::SteeringConflict)),
        "{refused:?}"
    );
}

#[test]
fn what_the_host_sends_itself_stays_as_it_is_where_rules_lead_flows_to_it() {
    let mut rig = Rig::new(plan(vec![rule(INSIDE, 17, 53, DestinationAction::Host(v4(OWN), None))]));
    for (own, interface, to) in [
        ("192.168.1.1:53", INSIDE, "192.168.1.10:4000"),
        ("192.168.1.1:4000", INSIDE, "192.168.1.10:53"),
        ("203.0.113.1:53", OUTSIDE, "198.51.100.9:53"),
    ] {
        let sent = own_sends(&mut rig, interface, &packet::udp4(own, to));
        assert_eq!((interface, socket(own), socket(to)), only(&rig, &sent));
    }
    assert_eq!(0, rig.live());
}

#[test]
fn error_of_the_host_about_a_flow_that_was_led_to_it_tells_the_client_of_its_own_packet() {
    let mut rig = Rig::new(plan(vec![rule(INSIDE, 17, 53, DestinationAction::Host(v4(OWN), None))]));
    let (client, queried) = (socket("192.168.1.10:4000"), socket("8.8.8.8:53"));
    let question = packet::udp4(client, queried).payload(b"question");
    assert_eq!(0, rig.host_sends(&question).len());
    assert_eq!(vec![(INSIDE, client, socket("192.168.1.1:53"))], punted(&mut rig));
    let as_received = packet::udp4(client, "192.168.1.1:53").payload(b"question").build();
    let error = packet::icmp4_error(OWN, HOST, 3, 3, &as_received, 64);
    let sent = own_sends(&mut rig, INSIDE, &error);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert!(is_valid(&sent[0].frame));
    assert_eq!(v4(HOST), u32::from_be_bytes(sent[0].frame[30..34].try_into().unwrap()));
    // The ICMP error quotes the datagram of the client.
    assert_eq!(
        v4("8.8.8.8"),
        u32::from_be_bytes(sent[0].frame[14 + 28 + 16..][..4].try_into().unwrap())
    );
}

#[test]
fn fragments_of_an_answer_of_the_host_are_translated() {
    let mut rig = Rig::new(plan(vec![rule(INSIDE, 17, 53, DestinationAction::Host(v4(OWN), None))]));
    let (client, queried) = (socket("192.168.1.10:4000"), socket("8.8.8.8:53"));
    rig.host_sends(&packet::udp4(client, queried));
    assert_eq!(1, punted(&mut rig).len());
    let answer = packet::udp4("192.168.1.1:53", client).payload(&[7; 800]).build();
    let mut sent = Vec::new();
    for (offset, more) in [(0, true), (400, false)] {
        // The UDP header is in the first fragment.
        let payload = &answer[34 + offset..][..if more { 400 } else { 408 }];
        let piece = packet::frame4(v4(OWN).into(), v4(HOST).into(), Transport::Raw(IpNumber(17)));
        let piece = piece.payload(payload).fragment(offset as u16, more, 77);
        sent.extend(own_sends(&mut rig, INSIDE, &piece));
    }
    assert_eq!(2, sent.len(), "{:?}", rig.all_drops());
    for piece in sent {
        assert_eq!(
            v4("8.8.8.8"),
            u32::from_be_bytes(piece.frame[26..30].try_into().unwrap())
        );
    }
}

const SERVERS: [&str; 3] = ["192.168.1.81", "192.168.1.82", "192.168.1.83"];

fn servers(balance: Balance) -> Vec<HostSet<u32>> {
    let host = |server: &&str| SetHost {
        address: v4(server),
        weight: 1,
        state: Default::default(),
    };
    vec![HostSet {
        check: 0,
        balance,
        hosts: SERVERS.iter().map(host).collect(),
    }]
}

fn balanced(balance: Balance) -> Rig {
    let mut rig = Rig::new(Plan {
        snapshot: match balance {
            Balance::Random => {
                |snapshot| snapshot.nat4.rules = snapshot.nat4.rules.clone().with_sets(servers(Balance::Random))
            }
            Balance::Source => {
                |snapshot| snapshot.nat4.rules = snapshot.nat4.rules.clone().with_sets(servers(Balance::Source))
            }
        },
        ..plan(vec![DestinationRule {
            inbound: None,
            external: Prefix::host(v4("203.0.113.80")),
            ..rule(OUTSIDE, 6, 80, DestinationAction::Hosts(0, Some(8080)))
        }])
    });
    for (number, server) in SERVERS.iter().enumerate() {
        rig.know(INSIDE, plain(server), [2, 0, 0, 0, 1, 81 + number as u8]);
    }
    rig
}

/// A client opens a connection. Returns the server to which the rule translates the connection, if the client gets an
/// answer.
fn opened(rig: &mut Rig, client: u16, port: u16) -> Option<SocketAddrV4> {
    let client = SocketAddrV4::new([198, 51, (client >> 8) as u8, client as u8].into(), port);
    let queried = socket("203.0.113.80:80");
    let syn = packet::tcp4(client, queried).flags(flag::SYN).numbers(1, 0);
    let frame = syn.macs(ROUTER_MAC, rig::OUTSIDE_MAC).build();
    let sent = rig.send_at(usize::from(port) % 3, OUTSIDE, &frame);
    if sent.is_empty() {
        return None;
    }
    let (_, source, server) = only(rig, &sent);
    assert_eq!((client, 8080), (source, server.port()));
    let answer = packet::tcp4(server, client).flags(flag::SYN | flag::ACK).numbers(9, 2);
    let answer = answer.macs(HOST_MAC, INSIDE_MAC).build();
    let sent = rig.send_at(usize::from(port + 1) % 3, INSIDE, &answer);
    assert_eq!((OUTSIDE, queried, client), only(rig, &sent));
    Some(server)
}

fn state(rig: &Rig, number: usize) -> Arc<sluice_nat::rule::HostState> {
    rig.plane.snapshot().nat4.rules.sets()[0].hosts[number].state.clone()
}

#[test]
fn flows_are_dealt_among_the_hosts_that_are_up() {
    let mut rig = balanced(Balance::Random);
    for port in 1000..1300 {
        opened(&mut rig, 7, port).unwrap();
    }
    let flows: Vec<_> = (0..3).map(|number| state(&rig, number).flows()).collect();
    assert_eq!(300, flows.iter().sum::<u64>());
    assert!(flows.iter().all(|&flows| flows > 60), "{flows:?}");
    state(&rig, 1).set_up(false);
    for port in 2000..2100 {
        assert_ne!(v4(SERVERS[1]), opened(&mut rig, 7, port).unwrap().ip().to_bits());
    }
    assert_eq!(flows[1], state(&rig, 1).flows());
    state(&rig, 0).set_up(false);
    state(&rig, 2).set_up(false);
    assert_eq!(None, opened(&mut rig, 7, 3000));
    assert_eq!(vec![("no-host-up", 1)], rig.all_drops());
}

#[test]
fn session_stays_with_a_host_that_goes_down_and_through_commits() {
    let mut rig = balanced(Balance::Random);
    let server = opened(&mut rig, 7, 1000).unwrap();
    let number = SERVERS
        .iter()
        .position(|address| v4(address) == server.ip().to_bits())
        .unwrap();
    state(&rig, number).set_up(false);
    let client = socket("198.51.0.7:1000");
    for commit in [false, true] {
        if commit {
            let snapshot = Snapshot::clone(rig.plane.snapshot());
            let (_, routes) = rig::snapshot(&Plan::default());
            rig.plane.commit(snapshot, &[routes]).unwrap();
        }
        let more = packet::tcp4(client, "203.0.113.80:80").flags(flag::ACK).numbers(2, 10);
        let sent = rig.router_sends(&more);
        assert_eq!((INSIDE, client, server), only(&rig, &sent));
        let answer = packet::tcp4(server, client).flags(flag::ACK).numbers(10, 2);
        let sent = rig.send(INSIDE, &answer.macs(HOST_MAC, INSIDE_MAC).build());
        assert_eq!((OUTSIDE, socket("203.0.113.80:80"), client), only(&rig, &sent));
    }
    assert_eq!(1, rig.live());
}

#[test]
fn one_client_keeps_its_host_and_that_of_another_going_down_moves_nobody_else() {
    let mut rig = balanced(Balance::Source);
    let first: Vec<_> = (0..100).map(|client| opened(&mut rig, client, 1000).unwrap()).collect();
    for (client, server) in (0..).zip(&first) {
        assert_eq!(Some(*server), opened(&mut rig, client, 2000));
    }
    state(&rig, 0).set_up(false);
    for (client, server) in (0..).zip(&first) {
        let now = opened(&mut rig, client, 3000).unwrap();
        let was_there = server.ip().to_bits() == v4(SERVERS[0]);
        assert_eq!(was_there, now != *server);
    }
    let there = first
        .iter()
        .filter(|server| server.ip().to_bits() == v4(SERVERS[0]))
        .count();
    assert!((15..50).contains(&there), "{there}");
}

/// The router's host starts a flow. If a rule matches, the source of the flow is translated to an address of the pool, and
/// answers are translated back.
#[test]
fn flow_that_the_host_begins_is_translated_where_a_rule_of_its_own_says_so() {
    let wan = "203.0.113.1";
    let source = SourceRule {
        context: OWN_RULES,
        outside: Some(OUTSIDE),
        ..SourceRule::of(Prefix::host(v4(wan)), SourceAction::Pool(0))
    };
    let resolver = DestinationRule {
        context: OWN_RULES,
        inbound: None,
        ..rule(OUTSIDE, 17, 53, DestinationAction::Host(v4(HOST), Some(5353)))
    };
    let mut rig = Rig::new(Plan {
        sources: vec![source],
        ..plan(vec![resolver])
    });
    for port in 5000..5010 {
        let (own, remote) = (SocketAddrV4::new(wan.parse().unwrap(), port), socket("198.51.100.9:80"));
        let syn = packet::tcp4(own, remote).flags(flag::SYN).numbers(1, 0).ttl(1);
        let sent = own_sends(&mut rig, OUTSIDE, &syn);
        let (out, outside, to) = only(&rig, &sent);
        assert_eq!((OUTSIDE, remote), (out, to));
        assert!((rig::POOL.to_bits()..=rig::POOL.to_bits() + 1).contains(&outside.ip().to_bits()));
        assert_eq!(1, sent[0].frame[14 + 8]);
        let answer = packet::tcp4(remote, outside).flags(flag::SYN | flag::ACK).numbers(9, 2);
        let frame = answer.macs(ROUTER_MAC, rig::OUTSIDE_MAC).build();
        assert_eq!(0, rig.send_at(usize::from(port) % 3, OUTSIDE, &frame).len());
        assert_eq!(vec![(OUTSIDE, remote, own)], punted(&mut rig), "{:?}", rig.all_drops());
        let more = packet::tcp4(own, remote).flags(flag::ACK).numbers(2, 10);
        let sent = own_sends(&mut rig, OUTSIDE, &more);
        assert_eq!((OUTSIDE, outside, remote), only(&rig, &sent));
        // DNS queries are redirected to the inside resolver, whichever interface the host uses to send them.
        let (own, queried) = (SocketAddrV4::new(OWN.parse().unwrap(), port), socket("8.8.8.8:53"));
        let sent = own_sends(&mut rig, OUTSIDE, &packet::udp4(own, queried));
        assert_eq!((INSIDE, own, socket("192.168.1.10:5353")), only(&rig, &sent));
        let answer = packet::udp4("192.168.1.10:5353", own)
            .macs(HOST_MAC, INSIDE_MAC)
            .build();
        assert_eq!(0, rig.send_at(usize::from(port) % 3, INSIDE, &answer).len());
        assert_eq!(vec![(INSIDE, queried, own)], punted(&mut rig), "{:?}", rig.all_drops());
    }
    assert_eq!(20, rig.live());
    // Rules for the router's host don't apply to other hosts. Flows of the host that match no rule are not changed.
    let sent = rig.host_sends(&packet::udp4("192.168.1.10:4000", "8.8.8.8:53"));
    assert_eq!(socket("8.8.8.8:53"), only(&rig, &sent).2);
    let sent = own_sends(&mut rig, INSIDE, &packet::udp4("192.168.1.1:4000", "192.168.1.10:80"));
    assert_eq!(
        (INSIDE, socket("192.168.1.1:4000"), socket("192.168.1.10:80")),
        only(&rig, &sent)
    );
    // A commit does not change these sessions.
    let snapshot = Snapshot::clone(rig.plane.snapshot());
    rig.plane
        .commit(snapshot, &[rig::snapshot(&Plan::default()).1])
        .unwrap();
    let more = packet::tcp4("203.0.113.1:5000", "198.51.100.9:80")
        .flags(flag::ACK)
        .numbers(2, 10);
    let sent = own_sends(&mut rig, OUTSIDE, &more);
    let (_, outside, _) = only(&rig, &sent);
    assert_ne!(v4(wan), outside.ip().to_bits());
    assert_eq!(Vec::<(&str, u64)>::new(), rig.all_drops());
}

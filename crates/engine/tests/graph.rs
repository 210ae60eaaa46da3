//! Compares the table of the graph with traces of many kinds of packets in gateways with different features.

use crate::inspected;
use crate::tunnelled;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::rig::{
    self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, POOL, Plan, ROUTER_MAC, Rig, plain, route, v4,
};
use sluice_engine::control::graph::{edges, live, node};
use sluice_engine::nodes::declaration::Node;
use sluice_engine::nodes::{HAS_LIST, NODES};
use sluice_engine::packet::io::NO_PORT;
use sluice_engine::packet::lists::Leave;
use sluice_engine::packet::punt::ROUTED;
use sluice_engine::packet::reason::Reason;
use sluice_engine::snapshot::chains::{Action, ChainText, Chains, ClassText};
use sluice_engine::snapshot::sites::{SiteKey, SiteSettings};
use sluice_engine::snapshot::stages::Stages;
use sluice_engine::snapshot::tunnels::TunnelKind;
use sluice_engine::snapshot::{Bridge, Snapshot, bridge_context};
use sluice_engine::worker::request::{Filter, Reply, Request};
use sluice_engine::worker::trace::Tracer;
use sluice_filter::{Field, Rule};
use sluice_nat::rule::{DestinationAction, DestinationRule, Prefix};
use sluice_nat::sites::context;
use sluice_route::{Address, DropKind, Via};
use sluice_testkit::packet::{self, Frame, flag};
use sluice_wire::Checksums;
use sluice_wire::ethernet::{BROADCAST, multicast4, multicast6};
use sluice_wire::vlan::Tag;

type Hop = (&'static str, &'static str);

/// Whether a node is an inline part of another node.
fn is_inner(from: &str, node: &Node) -> bool {
    // The node `bridge` uses its own list only for frames whose tags change.
    let place = NODES.iter().position(|one| one.name == node.name).unwrap();
    !HAS_LIST[place] && node.name != "parse"
        || node.name == "bridge"
        || matches!(from, "inter-router-link" | "decapsulate") && node.name == "parse"
}

/// Whether the table has a path from a node to the location that a tracer recorded, through inline nodes only. The edges of the
/// path are added to `seen`.
fn is_known(from: &'static Node, exit: &str, seen: &mut BTreeSet<Hop>) -> bool {
    let (mut stack, mut known) = (vec![(from, Vec::new())], false);
    while let Some((at, path)) = stack.pop() {
        let leaves = |leave: Leave| match leave {
            Leave::Drop => Reason::all().any(|reason| reason.name() == exit),
            other => other.name() == exit,
        };
        if at.leaves.iter().any(|&leave| leaves(leave)) {
            seen.extend(path.iter().copied());
            known = true;
        }
        for edge in edges().filter(|edge| edge.from == at.name) {
            let next = node(edge.to).unwrap();
            let path: Vec<Hop> = path.iter().copied().chain([(edge.from, edge.to)]).collect();
            if next.name == exit {
                seen.extend(path);
                known = true;
            } else if path.len() < 4 && is_inner(from.name, next) {
                stack.push((next, path));
            }
        }
    }
    known
}

fn udp(source: &str, destination: &str) -> Frame {
    packet::udp4(source, destination).payload(b"something to say")
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|k| k as u8).collect()
}

/// Packets that may arrive on an interface. Their source is a host on that interface; their destination is a host on
/// the other interface, the gateway, or an unused address.
fn mix(interface: u16) -> Vec<Vec<u8>> {
    let (mac, own) = [(HOST_MAC, INSIDE_MAC), (ROUTER_MAC, OUTSIDE_MAC)][usize::from(interface)];
    let (source, source6) =
        [("192.168.1.10", "2001:db8:1::10"), ("203.0.113.254", "2001:db8:2::fe")][usize::from(interface)];
    let pool = POOL.to_string();
    let targets = [
        "198.51.100.7",
        "192.168.1.10",
        "192.168.1.77",
        "203.0.113.254",
        "203.0.113.99",
        "192.168.1.1",
        "203.0.113.1",
        &pool,
        "10.99.0.1",
        "10.8.0.1",
        "10.7.0.1",
    ];
    let mut frames = Vec::new();
    for (k, target) in targets.iter().enumerate() {
        let from = format!("{source}:{}", 4000 + k);
        for port in [80, 5060, 9] {
            let to = format!("{target}:{port}");
            frames.push(udp(&from, &to));
            frames.push(udp(&from, &to).ttl(1));
            frames.push(packet::tcp4(from.as_str(), to.as_str()).flags(flag::SYN));
            frames.push(packet::tcp4(from.as_str(), to.as_str()).flags(flag::ACK));
            frames.push(udp(&from, &to).payload(&bytes(1400)));
            frames.push(udp(&from, &to).payload(&bytes(1400)).dont_fragment());
            frames.push(udp(&from, &to).payload(&bytes(64)).fragment(0, true, 7 + k as u32));
            frames.push(udp(&from, &to).payload(&bytes(16)).fragment(64, false, 700 + k as u32));
        }
        let (source, target): (std::net::Ipv4Addr, std::net::Ipv4Addr) =
            (source.parse().unwrap(), target.parse().unwrap());
        frames.push(packet::icmp4_echo(source, target, 5, 1));
        frames.push(packet::icmp4_echo(source, target, 5, 1).ttl(1));
        let later = packet::frame4(source, target, packet::Transport::Raw(packet::IpNumber(17)));
        frames.push(later.payload(&bytes(16)).fragment(64, false, 7 + k as u32));
        frames.push(packet::frame4(source, target, packet::Transport::Raw(packet::IpNumber(47))).payload(b"gre"));
    }
    for target in [
        "2001:db8:99::7",
        "2001:db8:1::10",
        "2001:db8:1::1",
        "2001:db8:1::77",
        "fe80::7",
    ] {
        frames.push(packet::udp6(
            format!("[{source6}]:4000").as_str(),
            format!("[{target}]:80").as_str(),
        ));
        frames.push(packet::udp6(format!("[{source6}]:4000").as_str(), format!("[{target}]:80").as_str()).ttl(1));
    }
    let mut frames: Vec<_> = frames.into_iter().map(|frame| frame.macs(mac, own).build()).collect();
    let ospf: std::net::Ipv4Addr = "224.0.0.5".parse().unwrap();
    let hello = packet::frame4(
        source.parse().unwrap(),
        ospf,
        packet::Transport::Raw(packet::IpNumber(89)),
    );
    frames.push(hello.payload(b"hello").macs(mac, multicast4(ospf.to_bits())).build());
    let advertisement = packet::Icmpv6Type::Unknown {
        type_u8: 134,
        code_u8: 0,
        bytes5to8: [64, 0, 7, 8],
    };
    let (router, nodes) = (
        "fe80::10".parse().unwrap(),
        "ff02::1".parse::<std::net::Ipv6Addr>().unwrap(),
    );
    let advertisement = packet::frame6(router, nodes, packet::Transport::Icmp6(advertisement)).ttl(255);
    frames.push(
        advertisement
            .payload(&[0; 8])
            .macs(mac, multicast6(nodes.to_bits()))
            .build(),
    );
    frames.push(
        udp(&format!("{source}:68"), "255.255.255.255:67")
            .macs(mac, BROADCAST)
            .build(),
    );
    frames.push(udp(&format!("{source}:1"), "198.51.100.7:1").macs(mac, [6; 6]).build());
    frames.push(packet::arp_request(
        mac,
        source,
        ["192.168.1.1", "203.0.113.1"][usize::from(interface)],
    ));
    frames.push(packet::arp_request(mac, source, "198.51.100.200"));
    frames.push(vec![0; 60]);
    frames
}

/// Runs a gateway with a tracer in each worker, and checks the traces against the table.
#[track_caller]
fn watch(name: &str, plan: Plan, seen: &mut BTreeSet<Hop>) -> Rig {
    watch_with(name, plan, seen, |_| {})
}

/// Runs a gateway with a tracer in each worker, calls `also` in each round, and checks the traces against the table.
#[track_caller]
fn watch_with(name: &str, plan: Plan, seen: &mut BTreeSet<Hop>, also: fn(&mut Rig)) -> Rig {
    let mut rig = Rig::new(plan);
    let tracer = || Request::Trace(Box::new(Tracer::new(Filter::default(), 20_000)));
    for worker in 0..rig.workers.len() {
        rig.ask(worker, tracer());
    }
    for round in 0..3 {
        also(&mut rig);
        for interface in [INSIDE, OUTSIDE] {
            for (k, frame) in mix(interface).iter().enumerate() {
                rig.wires[0].inject(interface, frame, Checksums::Unverified);
                if k % 8 == 7 {
                    rig.round();
                }
            }
            rig.round();
        }
        if round == 1 {
            // Parked packets are forwarded after their neighbour is resolved, or answered with an error if the
            // neighbour is not resolved.
            let answer = packet::arp_reply(HOST_MAC, "192.168.1.10", INSIDE_MAC, "192.168.1.1");
            rig.send(INSIDE, &answer);
            let answer = packet::arp_reply(ROUTER_MAC, "203.0.113.254", OUTSIDE_MAC, "203.0.113.1");
            rig.send(OUTSIDE, &answer);
            rig.seconds(8);
        }
        // Answer the packets that were sent through the outside interface.
        for sent in rig
            .sent()
            .into_iter()
            .filter(|sent| sent.port == OUTSIDE && sent.frame[12..14] == [8, 0])
        {
            if sent.frame[23] == 17 && sent.frame.len() > 42 && sent.frame[20..22] == [0, 0] {
                let (source, destination) = rig::flow(&sent.frame);
                rig.router_sends(&packet::udp4(destination, source).payload(b"answer"));
            }
        }
    }
    let mut watched = 0;
    for worker in 0..rig.workers.len() {
        let Reply::Traced(Some(tracer)) = rig.ask(worker, Request::EndTrace) else {
            panic!("no trace")
        };
        for way in tracer.traces() {
            let mut before = None;
            for step in &way.steps {
                let is_known = match node(step.node) {
                    // Unparked packets and packets from other workers may start at any node.
                    None => step.node == "arrive" && before.is_none(),
                    Some(node) => is_known(node, step.exit, seen),
                };
                assert!(
                    is_known,
                    "{name}: {} -> {} is not in the table: {way:?}",
                    step.node, step.exit
                );
                let follows = before.is_none_or(|before| before == step.node);
                assert!(follows, "{name}: {way:?}");
                before = Some(step.exit);
            }
        }
        watched += tracer.traces().len();
    }
    assert!(watched > 300, "{name}");
    rig
}

fn chained(snapshot: &mut Snapshot) {
    let step = |action: Action| ClassText {
        text: format!("{action:?}"),
        action,
    };
    let voice = Rule::any().with(Field::DestinationPort, 5060, 5060).unwrap();
    let refused = Rule::any().with(Field::DestinationPort, 9, 9).unwrap();
    let class = |rule, to: &str| Action::Classify {
        v4: vec![rule],
        v6: Vec::new(),
        to: to.into(),
    };
    let chain = |name: &str, actions: Vec<Action>| ChainText {
        name: name.into(),
        steps: actions.into_iter().map(step).collect(),
    };
    let written = [
        chain(
            "input",
            vec![class(voice, "voice"), class(refused, "none"), Action::Sessions],
        ),
        chain("voice", vec![Action::Forward]),
        chain("none", vec![Action::Drop]),
    ];
    snapshot.chains = vec![Some(Arc::new(Chains::new(&written, 4).unwrap()))];
}

fn linked(interfaces: &mut Vec<sluice_engine::snapshot::Interface>) {
    for (own, peer) in [(2u16, 3u16), (3, 2)] {
        let mut end = interfaces[0].clone();
        (end.port, end.peer) = (NO_PORT, Some(peer));
        end.mac = [2, 0, 0, 0, 9, own as u8];
        end.link = sluice_route::Interface {
            index: own,
            addresses: match own {
                2 => vec![(Address::V4(v4("10.9.0.2")), 24)],
                _ => Vec::new(),
            },
        };
        interfaces.push(end);
    }
}

fn bridged(interfaces: &mut [sluice_engine::snapshot::Interface]) {
    for (interface, peer) in interfaces.iter_mut().zip([OUTSIDE, INSIDE]) {
        interface.bridge = Some(Bridge {
            peer,
            drops_invalid: true,
            fails_open: false,
        });
        interface.context = bridge_context(0);
    }
}

fn one_site() -> SiteSettings {
    SiteSettings {
        access_interfaces: vec![(INSIDE, SiteKey::One(context(0, 0, false)))],
        publics: vec![OUTSIDE],
        relays: vec![(0, v4("203.0.113.1"))],
    }
}

/// Edges that tracers don't record. These are edges before the first observed node and after the last one, edges from a
/// node to itself, and edges for applications, for errors between inside hosts, and for neighbours that are resolved
/// within one burst.
const UNSEEN: &[Hop] = &[
    ("receive", "parse"),
    ("receive", "express"),
    ("receive", "admit"),
    ("receive", "hand-off"),
    ("admit", "parse"),
    ("express", "transmit"),
    ("express", "parse"),
    ("chain", "transmit"),
    ("session-lookup", "identify"),
    ("session-lookup", "session-lookup"),
    ("identify", "session-lookup"),
    ("subscriber", "transmit"),
    ("subscriber", "forward"),
    ("neighbour-resolution", "session-lookup"),
    ("neighbour-resolution", "virtual-reassembly"),
    ("icmp-error", "session-lookup"),
];

#[test]
fn table_of_the_graph_has_every_way_that_packets_took() {
    let mut seen = BTreeSet::new();
    let blackhole = || {
        vec![route(
            "10.99.0.0",
            16,
            Via::Refused(sluice_route::DropKind::Unreachable),
        )]
    };
    let over = Via::Gateway {
        address: plain("10.9.0.3"),
        interface: Some(2),
    };
    let plan = |translate: bool| Plan {
        translate,
        outside_mtu: 1300,
        unsolicited_syns: 16,
        routes: blackhole(),
        ..Plan::default()
    };
    let translating = watch_with("translation", plan(true), &mut seen, |rig| {
        // A session is used after commits. It has first no route, then an unresolved gateway, and then its former
        // route.
        let question = udp("192.168.1.10:4444", "198.51.100.7:4444");
        let public = rig.public(&question);
        let nobody = Via::Gateway {
            address: plain("203.0.113.77"),
            interface: None,
        };
        for via in [None, Some(Via::Refused(DropKind::Unreachable)), Some(nobody), None] {
            let routes = via.into_iter().map(|via| route("198.51.100.0", 24, via)).collect();
            let (snapshot, routes) = rig::snapshot(&Plan {
                routes,
                ..Plan::default()
            });
            rig.plane.commit(snapshot, &[routes]).unwrap();
            match via {
                Some(_) => drop(rig.host_sends(&question)),
                None => assert_eq!(public, rig.public(&question)),
            }
        }
    });
    watch_with("none", plan(false), &mut seen, |rig| {
        let ping = packet::icmp4_echo("192.168.1.10", "192.168.1.1", 5, 1).payload(&[1; 64]);
        rig.host_sends(&ping.fragment(0, true, 9));
    });
    let unknown = Plan {
        known_neighbours: false,
        ..plan(true)
    };
    watch("neighbours unknown", unknown, &mut seen);
    let unknown = Plan {
        known_neighbours: false,
        ..plan(false)
    };
    watch("neighbours unknown, no sessions", unknown, &mut seen);
    let several = Plan {
        workers: 3,
        snapshot: chained,
        ..plan(true)
    };
    watch("several workers and chains", several, &mut seen);
    let pipeline = Plan {
        workers: 3,
        stages: [vec![0], vec![0, 1], vec![2], vec![2]],
        ..plan(true)
    };
    watch("pipeline", pipeline, &mut seen);
    let hosts = Plan {
        interfaces: |interfaces| interfaces.iter_mut().for_each(|interface| interface.host = true),
        ..plan(true)
    };
    watch_with("hosts", hosts, &mut seen, |rig| {
        let owner = rig.owner;
        let frame = |to: &str| udp("192.168.1.1:1", to).macs(INSIDE_MAC, HOST_MAC).build();
        for to in ["192.168.1.10:5", "192.168.1.78:5", "198.51.100.7:5", "224.0.0.5:5"] {
            let queue = rig.desks[owner].from_hosts.as_mut().unwrap();
            assert!(queue.push(INSIDE, [&frame(to), &[]]));
        }
        rig.round();
    });
    let links = Plan {
        interfaces: linked,
        routes: vec![route("10.8.0.0", 16, over)],
        snapshot: chained,
        ..plan(true)
    };
    let own = DestinationRule {
        protocol: Some(17),
        ports: Some((53, 53)),
        inbound: Some(INSIDE),
        ..DestinationRule::of(
            Prefix { address: 0, length: 0 },
            DestinationAction::Host(v4("192.168.1.1"), None),
        )
    };
    let led = Plan {
        forwards: vec![own],
        interfaces: |interfaces| interfaces.iter_mut().for_each(|interface| interface.host = true),
        ..plan(true)
    };
    watch_with("what is led to a host", led, &mut seen, |rig| {
        rig.host_sends(&udp("192.168.1.10:4000", "8.8.8.8:53"));
        let owner = rig.owner;
        let answer = udp("192.168.1.1:53", "192.168.1.10:4000");
        for frame in [
            answer.clone(),
            answer.fragment(0, true, 9),
            udp("192.168.1.1:9", "192.168.1.10:9"),
        ] {
            let queue = rig.desks[owner].from_hosts.as_mut().unwrap();
            assert!(queue.push(INSIDE, [&frame.build(), &[]]));
            rig.round();
        }
    });
    watch_with("links", links, &mut seen, |rig| {
        rig.know(2, plain("10.9.0.3"), [2, 0, 0, 0, 9, 3]);
        rig.host_sends(&udp("192.168.1.10:4000", "10.8.0.1:5060"));
    });
    let gre = tunnelled::tunnel(TunnelKind::Gre, None, false);
    watch_with("tunnels", tunnelled::plan(gre), &mut seen, |rig| {
        let gre = tunnelled::tunnel(TunnelKind::Gre, None, false);
        rig.host_sends(&udp("192.168.1.10:4000", "10.77.0.5:53"));
        let answer = udp("10.77.0.5:53", "192.168.1.10:4000");
        rig.send(OUTSIDE, &tunnelled::arriving(&gre, &answer).build());
    });
    let sites = Plan {
        sites: Some((one_site, 1, 4)),
        site_networks: vec![(0, v4("203.0.113.192"), v4("203.0.113.255"))],
        ..plan(false)
    };
    watch_with("sites", sites, &mut seen, |rig| {
        let writer = rig.writer.as_mut().unwrap();
        writer.set_site(0, Some([6, 0, 0, 0, 0, 1]), None).unwrap();
        writer.set_public(0, 0, Some(v4("203.0.113.201"))).unwrap();
        rig.host_sends(&packet::icmp4_echo("192.168.1.10", "192.168.1.1", 5, 1));
        rig.host_sends(&udp("192.168.1.10:68", "192.168.1.1:67"));
        rig.host_sends(&udp("192.168.1.10:4000", "192.168.1.1:9"));
        rig.router_sends(&udp("203.0.113.254:67", "203.0.113.1:67"));
        let claim = packet::arp_reply(ROUTER_MAC, "203.0.113.201", OUTSIDE_MAC, "203.0.113.1");
        rig.send(OUTSIDE, &claim);
        let owner = rig.owner;
        for interface in [INSIDE, OUTSIDE | ROUTED] {
            let queue = rig.desks[owner].from_subscribers.as_mut().unwrap();
            assert!(queue.push(interface, [&udp("203.0.113.1:67", "198.51.100.7:67").build(), &[]]));
        }
        rig.round();
    });
    let bridge = Plan {
        interfaces: |interfaces| bridged(interfaces),
        ..plan(false)
    };
    let bridging = watch("bridge", bridge, &mut seen);
    watch_with("inspection", inspected::plan(), &mut seen, |rig| {
        let name = udp("192.168.1.10:5353", "198.51.100.7:53")
            .payload(b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x04evil\0\0\x01\0\x01");
        rig.host_sends(&name);
    });
    let looked = Plan {
        interfaces: |interfaces| bridged(interfaces),
        snapshot: inspected::inspected,
        ..inspected::plan()
    };
    watch("inspection on a bridge", looked, &mut seen);
    let switch = Plan {
        interfaces: |interfaces| {
            bridged(interfaces);
            interfaces[1].tags = vec![Tag::service(100), Tag::vlan(7)];
        },
        ..plan(false)
    };
    watch("bridge of a VLAN", switch, &mut seen);
    let unseen: Vec<Hop> = edges()
        .map(|edge| (edge.from, edge.to))
        .filter(|edge| !seen.contains(edge))
        .collect();
    assert_eq!(UNSEEN, unseen);
    let names = |rig: &Rig| -> BTreeSet<&str> {
        let edges = live(rig.plane.snapshot(), &Stages::default(), None);
        edges.iter().flat_map(|edge| [edge.from, edge.to]).collect()
    };
    assert!(names(&translating).contains("session-lookup") && !names(&translating).contains("inspect"));
    assert_eq!(
        BTreeSet::from(["receive", "parse", "bridge", "transmit"]),
        names(&bridging)
    );
}

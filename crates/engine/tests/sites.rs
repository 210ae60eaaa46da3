//! Tests of subscribers' sites. A site is identified by its tags and has a public address and a virtual MAC.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::rig::{INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, flow, is_valid, plain, v4};
use sluice_engine::packet::io::memory::Sent;
use sluice_engine::packet::punt::ROUTED;
use sluice_engine::snapshot::sites::{SINGLE, SiteKey, SiteSettings, TagRange};
use sluice_engine::worker::request::Filter;
use sluice_nat::sites::{Terminal, context};
use sluice_nat::{Behaviour, Blocks, Filtering, MappingBehaviour};
use sluice_testkit::packet::{self, Frame};
use sluice_wire::layers;
use sluice_wire::vlan::Tag;

/// MAC addresses of terminals. The first two terminals belong to one site, the third to another site. Each site has a
/// terminal with the address 10.0.0.5.
pub const ONE: [u8; 6] = [2, 0, 0, 0, 5, 1];
pub const TWO: [u8; 6] = [2, 0, 0, 0, 5, 2];
pub const OTHER: [u8; 6] = [2, 0, 0, 0, 5, 3];
pub const VIRTUAL: [[u8; 6]; 2] = [[6, 0, 0, 0, 0, 1], [6, 0, 0, 0, 0, 2]];
pub const PUBLIC: [&str; 2] = ["203.0.113.201", "203.0.113.202"];
const REMOTE: &str = "198.51.100.7:80";

fn settings() -> SiteSettings {
    let row = |outer, first, count, site| TagRange {
        outer,
        first,
        count,
        context: context(site, 0, false),
    };
    SiteSettings {
        access_interfaces: vec![(INSIDE, SiteKey::Tags(vec![row(100, 1, 5, 0), row(SINGLE, 7, 1, 6)]))],
        publics: vec![OUTSIDE],
        relays: vec![(0, v4("10.0.0.1"))],
    }
}

fn pooled() -> SiteSettings {
    let row = TagRange {
        outer: 100,
        first: 1,
        count: 5,
        context: context(0, 0, true),
    };
    SiteSettings {
        access_interfaces: vec![(INSIDE, SiteKey::Tags(vec![row]))],
        publics: Vec::new(),
        relays: Vec::new(),
    }
}

pub fn plan() -> Plan {
    Plan {
        translate: false,
        interfaces: |interfaces| interfaces[0].link.addresses = vec![(plain("10.0.0.1"), 24)],
        sites: Some((settings, 7, 16)),
        site_networks: vec![(0, v4("203.0.113.192"), v4("203.0.113.255"))],
        ..Plan::default()
    }
}

pub fn terminal(site: u32, address: &str, mac: [u8; 6], pooled: bool) -> Terminal {
    Terminal {
        context: context(site, 0, pooled),
        address: v4(address),
        mac,
        interface: INSIDE,
        tags: [Some(Tag::service(100)), Some(Tag::vlan(1 + site as u16))],
    }
}

/// A gateway with two sites, which have private and public leases.
pub fn served(plan: Plan) -> Rig {
    let mut rig = Rig::new(plan);
    let writer = rig.writer.as_mut().unwrap();
    for site in 0..2 {
        writer.set_site(site, Some(VIRTUAL[site as usize]), None).unwrap();
        writer.set_public(site, 0, Some(v4(PUBLIC[site as usize]))).unwrap();
    }
    writer.add_terminal(&terminal(0, "10.0.0.5", ONE, false)).unwrap();
    writer.add_terminal(&terminal(0, "10.0.0.6", TWO, false)).unwrap();
    writer.add_terminal(&terminal(1, "10.0.0.5", OTHER, false)).unwrap();
    rig
}

/// A frame with the tags of a site.
pub fn of_site(frame: &Frame, site: u16) -> Frame {
    frame.clone().tag(0x88a8, 100).tag(0x8100, 1 + site)
}

/// Adds the tags of a site to an untagged frame, which is given as bytes.
fn in_tags(frame: &[u8], site: u16) -> Vec<u8> {
    let [high, low] = (1 + site).to_be_bytes();
    [&frame[..12], &[0x88, 0xa8, 0, 100, 0x81, 0, high, low], &frame[12..]].concat()
}

fn terminal_sends(rig: &mut Rig, site: u16, mac: [u8; 6], frame: &Frame) -> Vec<Sent> {
    let frame = of_site(frame, site).macs(mac, INSIDE_MAC).build();
    rig.send(INSIDE, &frame)
}

fn answer_to(rig: &mut Rig, mac: [u8; 6], frame: &Frame) -> Vec<Sent> {
    let frame = frame.clone().macs(ROUTER_MAC, mac).build();
    rig.send(OUTSIDE, &frame)
}

pub fn at(address: &str, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(address.parse::<Ipv4Addr>().unwrap(), port)
}

fn question(from: &str) -> Frame {
    packet::udp4(from, REMOTE).payload(b"question")
}

#[test]
fn terminals_of_sites_with_one_address_leave_by_their_sites_address_and_mac_and_answers_find_them() {
    let mut rig = served(plan());
    for (site, mac) in [(0, ONE), (1, OTHER)] {
        let sent = terminal_sends(&mut rig, site, mac, &question("10.0.0.5:5000"));
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        let public = PUBLIC[usize::from(site)];
        let expected = packet::udp4(at(public, 5000), REMOTE).payload(b"question").ttl(63);
        let expected = expected.macs(VIRTUAL[usize::from(site)], ROUTER_MAC).build();
        assert_eq!((OUTSIDE, expected), (sent[0].port, sent[0].frame.clone()));
    }
    for (site, mac) in [(0, ONE), (1, OTHER)] {
        let answer = packet::udp4(REMOTE, at(PUBLIC[usize::from(site)], 5000)).payload(b"answer");
        let sent = answer_to(&mut rig, VIRTUAL[usize::from(site)], &answer);
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        let expected = packet::udp4(REMOTE, "10.0.0.5:5000").payload(b"answer").ttl(63);
        let expected = of_site(&expected, site).macs(INSIDE_MAC, mac).build();
        assert_eq!((INSIDE, expected), (sent[0].port, sent[0].frame.clone()));
    }
    assert_eq!(2, rig.live());
}

#[test]
fn flows_of_many_sites_to_one_remote_by_one_port_spread_over_shards() {
    let mut rig = Rig::new(Plan {
        shards: 8,
        sessions: 16,
        ..plan()
    });
    let writer = rig.writer.as_mut().unwrap();
    for site in 0..5 {
        writer.set_public(site, 0, Some(v4("203.0.113.200") + site)).unwrap();
        writer.add_terminal(&terminal(site, "10.0.0.5", ONE, false)).unwrap();
    }
    for site in 0..5 {
        // SIP telephones register with equal source and destination ports.
        let frame = packet::udp4("10.0.0.5:5060", "198.51.100.7:5060").payload(b"REGISTER");
        let sent = terminal_sends(&mut rig, site, ONE, &frame);
        assert_eq!(1, sent.len(), "{site}: {:?}", rig.all_drops());
    }
    assert_eq!(5, rig.live());
}

#[test]
fn ports_change_only_when_two_terminals_of_a_site_collide() {
    let mut rig = served(plan());
    let mut ports = Vec::new();
    for (mac, from) in [(ONE, "10.0.0.5:5000"), (TWO, "10.0.0.6:5000")] {
        let sent = terminal_sends(&mut rig, 0, mac, &question(from));
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        assert!(is_valid(&sent[0].frame));
        ports.push(flow(&sent[0].frame).0);
    }
    assert_eq!(at(PUBLIC[0], 5000), ports[0]);
    assert!(ports[1].ip() == ports[0].ip() && ports[1].port() >= 1024 && ports[1] != ports[0]);
    for (port, mac, to) in [(ports[0], ONE, "10.0.0.5:5000"), (ports[1], TWO, "10.0.0.6:5000")] {
        let sent = answer_to(&mut rig, VIRTUAL[0], &packet::udp4(REMOTE, port).payload(b"answer"));
        let expected = packet::udp4(REMOTE, to).payload(b"answer").ttl(63);
        assert_eq!(of_site(&expected, 0).macs(INSIDE_MAC, mac).build(), sent[0].frame);
    }
    // Another remote endpoint can use this port.
    let elsewhere = packet::udp4("10.0.0.6:5000", "198.51.100.8:80");
    let sent = terminal_sends(&mut rig, 0, TWO, &elsewhere);
    assert_eq!(at(PUBLIC[0], 5000), flow(&sent[0].frame).0);
}

#[test]
fn many_collisions_are_all_told_apart_on_any_number_of_shards_and_workers() {
    let whole = || <[Vec<u16>; 4]>::default();
    let cut = || [vec![0], vec![0, 1], vec![2], vec![2]];
    let mut outcomes = Vec::new();
    for (shards, workers, stages) in [(1, 1, whole()), (64, 1, whole()), (64, 3, whole()), (64, 3, cut())] {
        let plan = Plan {
            shards,
            // All flows of a site belong to one shard.
            sessions: 128 * shards,
            workers,
            stages,
            ..plan()
        };
        let mut rig = served(plan);
        let writer = rig.writer.as_mut().unwrap();
        for last in 10..20 {
            writer
                .add_terminal(&terminal(0, &format!("10.0.0.{last}"), ONE, false))
                .unwrap_or(());
        }
        let mut seen = std::collections::HashSet::new();
        let mut count = 0;
        for last in 10..20 {
            for port in 5000..5008 {
                let sent = terminal_sends(&mut rig, 0, ONE, &question(&format!("10.0.0.{last}:{port}")));
                let [Sent { frame, .. }] = &sent[..] else { continue };
                let public = flow(frame).0;
                assert!(seen.insert(public), "{public} twice");
                count += 1;
                let sent = answer_to(&mut rig, VIRTUAL[0], &packet::udp4(REMOTE, public));
                assert_eq!(at(&format!("10.0.0.{last}"), port), flow(&sent[0].frame).1);
            }
        }
        assert_eq!(80, count, "{:?}", rig.all_drops());
        outcomes.push((shards, seen));
    }
    // The ports depend on the number of shards, but not on the stages of the workers.
    for (_, ports) in &outcomes[2..] {
        assert_eq!(outcomes[1].1, *ports);
    }
}

#[test]
fn connection_and_echo_of_a_terminal_go_out_and_come_back() {
    let mut rig = served(plan());
    let syn = packet::tcp4("10.0.0.5:6000", "198.51.100.7:80").flags(0x02);
    let sent = terminal_sends(&mut rig, 0, ONE, &syn);
    assert_eq!(at(PUBLIC[0], 6000), flow(&sent[0].frame).0, "{:?}", rig.all_drops());
    let answer = packet::tcp4("198.51.100.7:80", at(PUBLIC[0], 6000)).flags(0x12);
    let sent = answer_to(&mut rig, VIRTUAL[0], &answer);
    assert_eq!(at("10.0.0.5", 6000), flow(&sent[0].frame).1);
    let echo = packet::icmp4_echo("10.0.0.5", "198.51.100.7", 77, 1);
    let sent = terminal_sends(&mut rig, 0, ONE, &echo);
    assert_eq!(
        (1, true),
        (sent.len(), is_valid(&sent[0].frame)),
        "{:?}",
        rig.all_drops()
    );
}

#[test]
fn frames_of_unknown_tags_terminals_and_families_are_dropped_by_name() {
    let mut rig = served(plan());
    let cases: [(&str, Vec<u8>); 6] = [
        (
            "unknown-vlan",
            of_site(&question("10.0.0.5:5000"), 9).macs(ONE, INSIDE_MAC).build(),
        ),
        ("site-unknown", question("10.0.0.5:5000").macs(ONE, INSIDE_MAC).build()),
        (
            "terminal-unknown",
            of_site(&question("10.0.0.9:5000"), 0).macs(ONE, INSIDE_MAC).build(),
        ),
        (
            "terminal-forged",
            of_site(&question("10.0.0.5:5000"), 0).macs(TWO, INSIDE_MAC).build(),
        ),
        (
            "terminal-unknown",
            of_site(&question("10.0.0.6:5000"), 1).macs(TWO, INSIDE_MAC).build(),
        ),
        (
            "site-family",
            of_site(&packet::udp6("[2001:db8:1::10]:1", "[2001:db8:9::1]:2"), 0)
                .macs(ONE, INSIDE_MAC)
                .build(),
        ),
    ];
    for (reason, frame) in cases {
        let before = rig.drops(reason);
        assert_eq!(0, rig.send(INSIDE, &frame).len(), "{reason}");
        assert_eq!(before + 1, rig.drops(reason), "{:?}", rig.all_drops());
    }
    assert_eq!(0, rig.live());
}

#[test]
fn site_without_an_address_is_dropped_by_name_and_served_as_soon_as_it_has_one() {
    let mut rig = served(plan());
    let writer = rig.writer.as_mut().unwrap();
    writer.set_public(0, 0, None).unwrap();
    assert_eq!(0, terminal_sends(&mut rig, 0, ONE, &question("10.0.0.5:5000")).len());
    assert_eq!(1, rig.drops("site-address-missing"));
    let writer = rig.writer.as_mut().unwrap();
    writer.set_public(0, 0, Some(v4("203.0.113.210"))).unwrap();
    let sent = terminal_sends(&mut rig, 0, ONE, &question("10.0.0.5:5000"));
    assert_eq!(at("203.0.113.210", 5000), flow(&sent[0].frame).0);
}

#[test]
fn lost_public_lease_ends_the_sessions_of_its_site_and_of_no_other() {
    let mut rig = served(plan());
    for (site, mac) in [(0, ONE), (1, OTHER)] {
        assert_eq!(1, terminal_sends(&mut rig, site, mac, &question("10.0.0.5:5000")).len());
    }
    let lost = |rig: &Rig| {
        rig.plane
            .counters()
            .iter()
            .map(|c| c.sessions_lost_lease.get())
            .sum::<u64>()
    };
    rig.writer.as_mut().unwrap().set_public(0, 0, None).unwrap();
    let answer = |site: usize| packet::udp4(REMOTE, at(PUBLIC[site], 5000));
    assert_eq!(0, answer_to(&mut rig, VIRTUAL[0], &answer(0)).len());
    assert_eq!((1, 1, 1), (rig.drops("site-address-lost"), lost(&rig), rig.live()));
    assert_eq!(
        1,
        answer_to(&mut rig, VIRTUAL[1], &answer(1)).len(),
        "the other site goes on"
    );
    // The site gets a new public address. A packet from the terminal creates a new session with this address.
    let writer = rig.writer.as_mut().unwrap();
    writer.set_public(1, 0, Some(v4("203.0.113.220"))).unwrap();
    let sent = terminal_sends(&mut rig, 1, OTHER, &question("10.0.0.5:5000"));
    assert_eq!(at("203.0.113.220", 5000), flow(&sent[0].frame).0);
    assert_eq!((2, 1), (lost(&rig), rig.live()));
}

#[test]
fn lost_private_lease_ends_the_sessions_of_its_terminal_and_a_new_one_gets_none_of_its_packets() {
    let mut rig = served(plan());
    assert_eq!(1, terminal_sends(&mut rig, 0, ONE, &question("10.0.0.5:5000")).len());
    assert_eq!(1, terminal_sends(&mut rig, 0, TWO, &question("10.0.0.6:5001")).len());
    // The address is assigned to another terminal.
    let writer = rig.writer.as_mut().unwrap();
    writer.add_terminal(&terminal(0, "10.0.0.5", OTHER, false)).unwrap();
    let answer = packet::udp4(REMOTE, at(PUBLIC[0], 5000));
    assert_eq!(0, answer_to(&mut rig, VIRTUAL[0], &answer).len());
    assert_eq!((1, 1), (rig.drops("site-address-lost"), rig.live()));
    let answer = packet::udp4(REMOTE, at(PUBLIC[0], 5001));
    assert_eq!(1, answer_to(&mut rig, VIRTUAL[0], &answer).len());
    assert_eq!(0, terminal_sends(&mut rig, 0, ONE, &question("10.0.0.5:5000")).len());
    assert_eq!(1, rig.drops("terminal-forged"));
}

#[test]
fn nobody_from_outside_reaches_a_site_that_did_not_ask() {
    let mut rig = served(plan());
    assert_eq!(1, terminal_sends(&mut rig, 0, ONE, &question("10.0.0.5:5000")).len());
    let stranger = packet::udp4("198.51.100.9:80", at(PUBLIC[0], 5000));
    assert_eq!(0, answer_to(&mut rig, VIRTUAL[0], &stranger).len());
    assert_eq!(1, rig.drops("unsolicited"), "{:?}", rig.all_drops());
    // The frame is addressed to another site's virtual MAC, or to a virtual MAC that doesn't exist.
    let answer = packet::udp4(REMOTE, at(PUBLIC[0], 5000));
    assert_eq!(0, answer_to(&mut rig, VIRTUAL[1], &answer).len());
    assert_eq!(0, answer_to(&mut rig, [6, 9, 9, 9, 9, 9], &answer).len());
    assert_eq!(2, rig.drops("not-our-mac"), "{:?}", rig.all_drops());
    assert_eq!(1, answer_to(&mut rig, VIRTUAL[0], &answer).len());
}

#[test]
fn arp_for_the_gateway_is_answered_in_the_site_and_nothing_is_learned() {
    let mut rig = served(plan());
    let frame = in_tags(&packet::arp_request(ONE, "10.0.0.5", "10.0.0.1"), 3);
    let sent = rig.send(INSIDE, &frame);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let expected = in_tags(&packet::arp_reply(INSIDE_MAC, "10.0.0.1", ONE, "10.0.0.5"), 3);
    assert_eq!(expected, sent[0].frame[..expected.len()]);
    assert!(rig.plane.neighbours().find(INSIDE, plain("10.0.0.5")).is_none());
    // The request is for another terminal, which answers the request itself.
    let frame = in_tags(&packet::arp_request(ONE, "10.0.0.5", "10.0.0.6"), 3);
    assert_eq!(0, rig.send(INSIDE, &frame).len());
}

#[test]
fn arp_for_a_sites_address_is_answered_with_its_virtual_mac_as_long_as_it_has_it() {
    let mut rig = served(plan());
    let ask = |address| packet::arp_request(ROUTER_MAC, "203.0.113.254", address);
    let sent = rig.send(OUTSIDE, &ask(PUBLIC[1]));
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(
        (&VIRTUAL[1][..], &VIRTUAL[1][..]),
        (&sent[0].frame[6..12], &sent[0].frame[22..28])
    );
    let sent = rig.send(OUTSIDE, &ask("203.0.113.1"));
    assert_eq!(&OUTSIDE_MAC[..], &sent[0].frame[6..12]);
    rig.writer.as_mut().unwrap().set_public(1, 0, None).unwrap();
    assert_eq!(0, rig.send(OUTSIDE, &ask(PUBLIC[1])).len());
}

#[test]
fn echo_to_the_gateway_and_errors_are_answered_in_the_site() {
    let mut rig = served(plan());
    let sent = terminal_sends(&mut rig, 0, ONE, &packet::icmp4_echo("10.0.0.5", "10.0.0.1", 9, 1));
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let layers = layers::parse(&sent[0].frame).unwrap();
    assert_eq!((INSIDE, 2, &ONE[..]), (sent[0].port, layers.tags, &sent[0].frame[..6]));
    assert_eq!(Some(Tag::vlan(1)), layers.tag(&sent[0].frame, 1));
    assert!(is_valid(&sent[0].frame));
    // The TTL of the packet expires at the gateway.
    let sent = terminal_sends(&mut rig, 1, OTHER, &question("10.0.0.5:5000").ttl(1));
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let layers = layers::parse(&sent[0].frame).unwrap();
    assert_eq!(
        (INSIDE, 2, &OTHER[..]),
        (sent[0].port, layers.tags, &sent[0].frame[..6])
    );
    assert_eq!(Some(Tag::vlan(2)), layers.tag(&sent[0].frame, 1));
    assert!(is_valid(&sent[0].frame));
}

#[test]
fn error_from_outside_finds_the_terminal_whose_packet_it_is_about() {
    let mut rig = served(plan());
    let sent = terminal_sends(&mut rig, 1, OTHER, &question("10.0.0.5:5000"));
    let error = packet::icmp4_error("198.51.100.99", PUBLIC[1], 3, 1, &sent[0].frame, 64);
    let sent = answer_to(&mut rig, VIRTUAL[1], &error);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!((&OTHER[..], INSIDE), (&sent[0].frame[..6], sent[0].port));
    assert!(is_valid(&sent[0].frame));
}

/// Frames that the subscriber service has received.
pub fn told(rig: &mut Rig) -> Vec<(u16, Vec<u8>)> {
    let mut all = Vec::new();
    for requests in &mut rig.desks {
        let queue = requests.to_subscribers.as_mut().unwrap();
        while let Some((interface, length)) = queue.head() {
            let mut frame = vec![0; length];
            queue.pop(&mut frame);
            all.push((interface, frame));
        }
    }
    all
}

#[test]
fn dhcp_goes_to_control_as_it_came_and_a_flood_of_one_site_is_policed() {
    let mut rig = served(plan());
    let discover = packet::udp4("0.0.0.0:68", "255.255.255.255:67").payload(&[1; 300]);
    let from_site = |site| of_site(&discover, site).macs(ONE, [0xff; 6]).build();
    let renew = of_site(&packet::udp4("10.0.0.5:68", "192.0.2.10:67").payload(&[1; 300]), 0)
        .macs(ONE, INSIDE_MAC)
        .build();
    let offer = packet::udp4("203.0.113.254:67", "203.0.113.201:68").payload(&[2; 300]);
    let offer = offer.macs(ROUTER_MAC, VIRTUAL[0]).build();
    let relayed = packet::udp4("192.0.2.10:67", "10.0.0.1:67").payload(&[2; 300]);
    let relayed = relayed.macs(ROUTER_MAC, OUTSIDE_MAC).build();
    let expected = [
        (INSIDE, from_site(3)),
        (INSIDE, renew),
        (OUTSIDE, offer),
        (OUTSIDE, relayed),
    ];
    for (interface, frame) in &expected {
        assert_eq!(0, rig.send(*interface, frame).len());
        assert_eq!(
            vec![(*interface, frame.clone())],
            told(&mut rig),
            "{:?}",
            rig.all_drops()
        );
    }
    for _ in 0..300 {
        rig.send(INSIDE, &from_site(0));
    }
    // One packet was sent before this loop.
    assert_eq!((199, 101), (told(&mut rig).len(), rig.drops("site-policed-dhcp")));
    rig.send(INSIDE, &from_site(1));
    assert_eq!(1, told(&mut rig).len());
    assert_eq!(0, rig.live());
}

#[test]
fn arp_that_claims_a_sites_address_goes_to_control() {
    let mut rig = served(plan());
    let frame = packet::arp_reply([2, 7, 7, 7, 7, 7], PUBLIC[0], VIRTUAL[0], "0.0.0.0");
    assert_eq!(0, rig.send(OUTSIDE, &frame).len());
    assert_eq!(vec![(OUTSIDE, frame)], told(&mut rig), "{:?}", rig.all_drops());
}

#[test]
fn frames_of_control_leave_as_they_are_and_packets_by_routes() {
    let mut rig = served(plan());
    let ack = of_site(&packet::udp4("10.0.0.1:67", "10.0.0.5:68").payload(&[2; 300]), 0)
        .macs(INSIDE_MAC, ONE)
        .build();
    let relayed = packet::udp4("10.0.0.1:67", "192.0.2.10:67").payload(&[1; 300]);
    let owner = rig.owner;
    let give = |rig: &mut Rig, interface, frame: &[u8]| {
        let queue = rig.desks[owner].from_subscribers.as_mut().unwrap();
        assert!(queue.push(interface, [frame, &[]]));
        rig.round();
        rig.sent()
    };
    let sent = give(&mut rig, INSIDE, &ack);
    assert_eq!((INSIDE, &ack), (sent[0].port, &sent[0].frame));
    let sent = give(&mut rig, INSIDE | ROUTED, &relayed.clone().build());
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(
        (OUTSIDE, relayed.macs(OUTSIDE_MAC, ROUTER_MAC).build()),
        (sent[0].port, sent[0].frame.clone())
    );
}

#[test]
fn sites_on_a_pool_have_port_blocks_that_their_terminals_share() {
    let plan = Plan {
        translate: true,
        change_pool: |pool| {
            pool.blocks = Some(Blocks {
                size: 64,
                max: 4,
                spare: false,
            });
            pool.behaviour = [Behaviour {
                mapping: MappingBehaviour::EndpointIndependent,
                filtering: Filtering::EndpointIndependent,
            }; 3];
        },
        ports_together: 64,
        sites: Some((pooled, 7, 16)),
        ..plan()
    };
    let mut rig = Rig::new(plan);
    let writer = rig.writer.as_mut().unwrap();
    for site in 0..2 {
        writer.set_site(site, None, Some(0)).unwrap();
    }
    writer.add_terminal(&terminal(0, "10.0.0.5", ONE, true)).unwrap();
    writer.add_terminal(&terminal(0, "10.0.0.6", TWO, true)).unwrap();
    writer.add_terminal(&terminal(1, "10.0.0.5", OTHER, true)).unwrap();
    let mut public = Vec::new();
    for (site, mac, from) in [
        (0, ONE, "10.0.0.5:5000"),
        (0, TWO, "10.0.0.6:5000"),
        (1, OTHER, "10.0.0.5:5000"),
    ] {
        let sent = terminal_sends(&mut rig, site, mac, &question(from));
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        assert_eq!(&OUTSIDE_MAC[..], &sent[0].frame[6..12]);
        public.push(flow(&sent[0].frame).0);
    }
    let block = |at: SocketAddrV4| (*at.ip(), at.port() / 64);
    assert_eq!(block(public[0]), block(public[1]), "one site, one block");
    assert_ne!(block(public[0]), block(public[2]));
    // Any remote host may answer. The packet of a second remote host reaches the terminal in its site.
    let stranger = packet::udp4("198.51.100.9:99", public[1]).payload(b"hello");
    let sent = answer_to(&mut rig, OUTSIDE_MAC, &stranger);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let expected = packet::udp4("198.51.100.9:99", "10.0.0.6:5000")
        .payload(b"hello")
        .ttl(63);
    assert_eq!(of_site(&expected, 0).macs(INSIDE_MAC, TWO).build(), sent[0].frame);
    let sent = terminal_sends(&mut rig, 0, TWO, &packet::udp4("10.0.0.6:5000", "198.51.100.9:99"));
    assert_eq!(public[1], flow(&sent[0].frame).0);
    rig.seconds(700);
    assert_eq!((0, 0), (rig.live(), rig.workers[0].allocated_ports(0)));
}

#[test]
fn sessions_of_a_site_are_listed_by_its_context_and_by_its_router() {
    let mut rig = served(plan());
    for (site, mac) in [(0, ONE), (1, OTHER)] {
        terminal_sends(&mut rig, site, mac, &question("10.0.0.5:5000"));
    }
    let of = |context| Filter {
        context: Some(context),
        ..Filter::default()
    };
    let counts = [context(0, 0, false), context(1, 0, false), 0, 1].map(|context| rig.sessions(of(context)).len());
    assert_eq!([1, 1, 2, 0], counts);
}

#[test]
fn datagram_that_is_too_long_for_a_site_arrives_in_pieces_with_its_tags() {
    let plan = Plan {
        interfaces: |interfaces| {
            interfaces[0].link.addresses = vec![(plain("10.0.0.1"), 24)];
            interfaces[0].mtu = 576;
        },
        ..plan()
    };
    let mut rig = served(plan);
    assert_eq!(1, terminal_sends(&mut rig, 0, ONE, &question("10.0.0.5:5000")).len());
    let long = packet::udp4(REMOTE, at(PUBLIC[0], 5000)).payload(&[7; 1200]);
    let mut long = long.macs(ROUTER_MAC, VIRTUAL[0]);
    // Clears the Don't Fragment flag, which the packet library sets by default.
    if let packet::Network::V4(header) = &mut long.network {
        header.dont_fragment = false;
    }
    let sent = rig.send(OUTSIDE, &long.build());
    assert_eq!(3, sent.len(), "{:?}", rig.all_drops());
    for piece in &sent {
        let layers = layers::parse(&piece.frame).unwrap();
        assert_eq!((INSIDE, 2, &ONE[..]), (piece.port, layers.tags, &piece.frame[..6]));
        assert_eq!(Some(Tag::service(100)), layers.tag(&piece.frame, 0));
    }
}

#[test]
fn terminal_of_one_site_and_of_another_meet_at_their_public_addresses_when_both_speak() {
    let mut rig = served(plan());
    let to = |site: usize, port| at(PUBLIC[site], port);
    let first = packet::udp4("10.0.0.5:7000", to(1, 7001)).payload(b"a");
    assert_eq!(0, terminal_sends(&mut rig, 0, ONE, &first).len());
    let second = packet::udp4("10.0.0.5:7001", to(0, 7000)).payload(b"b");
    let sent = terminal_sends(&mut rig, 1, OTHER, &second);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    let expected = packet::udp4(to(1, 7001), "10.0.0.5:7000").payload(b"b").ttl(63);
    assert_eq!(of_site(&expected, 0).macs(INSIDE_MAC, ONE).build(), sent[0].frame);
    assert_eq!(1, terminal_sends(&mut rig, 0, ONE, &first).len());
}

#[test]
fn priority_tags_around_those_of_a_site_say_nothing_of_the_site() {
    let mut rig = served(plan());
    let writer = rig.writer.as_mut().unwrap();
    writer.set_site(6, Some([6, 0, 0, 0, 0, 7]), None).unwrap();
    writer.set_public(6, 0, Some(v4("203.0.113.207"))).unwrap();
    let single = Terminal {
        context: context(6, 0, false),
        tags: [Some(Tag::vlan(7)), None],
        ..terminal(6, "10.0.0.7", TWO, false)
    };
    writer.add_terminal(&single).unwrap();
    const PRIORITY: &[u8] = &[0x81, 0, 0xa0, 0];
    const SINGLE_TAG: &[u8] = &[0x81, 0, 0, 7];
    const SERVICE: &[u8] = &[0x88, 0xa8, 0, 100];
    const CUSTOMER: &[u8] = &[0x81, 0, 0, 1];
    let question = |address: &str, mac| packet::udp4(address, REMOTE).macs(mac, INSIDE_MAC).build();
    let single = question("10.0.0.7:5000", TWO);
    let double = question("10.0.0.5:5000", ONE);
    for (frame, public, tags) in [
        (&single, "203.0.113.207", &[SINGLE_TAG, PRIORITY][..]),
        (&single, "203.0.113.207", &[PRIORITY, SINGLE_TAG, PRIORITY]),
        (&single, "203.0.113.207", &[PRIORITY, PRIORITY, SINGLE_TAG]),
        (&double, PUBLIC[0], &[SERVICE, PRIORITY, CUSTOMER]),
        (&double, PUBLIC[0], &[SERVICE, CUSTOMER]),
    ] {
        let sent = rig.send(INSIDE, &[&frame[..12], &tags.concat(), &frame[12..]].concat());
        assert_eq!(1, sent.len(), "{tags:x?} {:?}", rig.all_drops());
        assert_eq!(public.parse::<Ipv4Addr>().unwrap(), *flow(&sent[0].frame).0.ip());
    }
    // Frames to the terminal have only the tags of its site.
    let answer = packet::udp4(REMOTE, at("203.0.113.207", 5000)).payload(b"answer");
    let sent = answer_to(&mut rig, [6, 0, 0, 0, 0, 7], &answer);
    assert_eq!([SINGLE_TAG, &[8, 0]].concat(), sent[0].frame[12..18]);
}

#[test]
fn terminal_behind_a_priority_tag_is_of_the_site_of_its_other_tags() {
    let mut rig = served(plan());
    let question = packet::udp4("10.0.0.5:5000", REMOTE)
        .payload(b"question")
        .macs(ONE, INSIDE_MAC);
    let frame = of_site(&question, 0).build();
    let frame = [&frame[..12], &[0x81, 0, 0xa0, 0], &frame[12..]].concat();
    let sent = rig.send(INSIDE, &frame);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(PUBLIC[0].parse::<Ipv4Addr>().unwrap(), *flow(&sent[0].frame).0.ip());
    assert_eq!([&ROUTER_MAC[..], &VIRTUAL[0], &[8, 0]].concat(), sent[0].frame[..14]);
}

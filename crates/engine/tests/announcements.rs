//! Tests of unsolicited announcements of the gateway's addresses, and of proxy answers for other hosts.

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, Rig, Sent, plain, route};
use sluice_engine::snapshot::Interface;
use sluice_route::Via;
use sluice_testkit::packet;
use sluice_wire::vlan::Tag;

#[expect(clippy::ptr_arg, reason = "what a plan has a pointer to")]
fn announces(interfaces: &mut Vec<Interface>) {
    interfaces[1].neighbours.announces = true;
}

/// The frames that leave through the outside interface within this number of milliseconds.
fn told(rig: &mut Rig, milliseconds: u64) -> Vec<Vec<u8>> {
    rig.pass(milliseconds);
    let sent: Vec<Sent> = rig.sent();
    assert!(sent.iter().all(|sent| sent.port == OUTSIDE), "{sent:?}");
    sent.into_iter().map(|sent| sent.frame).collect()
}

fn announced(address: &str) -> Vec<u8> {
    packet::arp_request(OUTSIDE_MAC, address, address)
}

/// The unsolicited neighbour advertisement of an address to all hosts of a link, with the router flag and the override
/// flag.
fn advertised(address: &str) -> Vec<u8> {
    let option = [&[2, 1][..], &OUTSIDE_MAC].concat();
    let frame = packet::neighbour(address, "ff02::1", 136, 0xa000_0000, address, &option);
    frame.macs(OUTSIDE_MAC, [0x33, 0x33, 0, 0, 0, 1]).build()
}

#[test]
fn addresses_of_an_interface_are_announced_twice_two_seconds_apart() {
    let mut rig = Rig::new(Plan {
        translate: false,
        known_neighbours: false,
        interfaces: announces,
        ..Plan::default()
    });
    let all = vec![announced("203.0.113.1"), advertised("2001:db8:2::1")];
    assert_eq!(all, told(&mut rig, 1_900));
    assert_eq!(all, told(&mut rig, 300));
    assert!(told(&mut rig, 10_000).is_empty());
    assert_eq!(4, rig.plane.counters()[0].announcements.get());
}

#[test]
fn addresses_of_translation_on_the_link_are_announced_too() {
    let mut rig = Rig::new(Plan {
        known_neighbours: false,
        interfaces: announces,
        ..Plan::default()
    });
    let all = vec![
        announced("203.0.113.1"),
        announced("203.0.113.10"),
        announced("203.0.113.11"),
        advertised("2001:db8:2::1"),
    ];
    assert_eq!(all, told(&mut rig, 1_900));
}

#[test]
fn addresses_are_announced_when_the_link_comes_up_and_nowhere_else() {
    let mut rig = Rig::new(Plan {
        translate: false,
        known_neighbours: false,
        interfaces: announces,
        ..Plan::default()
    });
    assert_eq!(4, told(&mut rig, 5_000).len());
    assert!(rig.plane.set_link(OUTSIDE, false));
    assert!(told(&mut rig, 5_000).is_empty());
    assert!(rig.plane.set_link(OUTSIDE, true));
    assert_eq!(4, told(&mut rig, 5_000).len());
}

#[test]
fn addresses_are_announced_again_where_they_or_the_mac_address_change_and_not_by_other_commits() {
    let plan = || Plan {
        translate: false,
        known_neighbours: false,
        interfaces: announces,
        ..Plan::default()
    };
    let mut rig = Rig::new(plan());
    assert_eq!(4, told(&mut rig, 5_000).len());
    let mut commit = |change: &dyn Fn(&mut Interface)| {
        let (mut snapshot, routes) = rig::snapshot(&plan());
        change(&mut snapshot.interfaces[usize::from(OUTSIDE)]);
        rig.plane.commit(snapshot, &[routes]).unwrap();
        told(&mut rig, 5_000)
    };
    assert!(commit(&|_| {}).is_empty());
    let mac = [2, 0, 0, 0, 2, 99];
    let sent = commit(&|interface| interface.mac = mac);
    assert_eq!(packet::arp_request(mac, "203.0.113.1", "203.0.113.1"), sent[0]);
    assert_eq!(4, sent.len());
    let sent = commit(&|interface| interface.mac = mac);
    assert!(sent.is_empty());
    let sent = commit(&|interface| {
        interface.mac = mac;
        interface.link.addresses.push((plain("203.0.113.2"), 24));
    });
    assert_eq!(6, sent.len());
}

/// A router that answers as a proxy on its inside link, for destinations on the outside link.
fn proxy() -> Plan {
    Plan {
        translate: false,
        interfaces: |interfaces| interfaces[0].neighbours.proxy = [true; 2],
        routes: vec![
            route("172.16.0.0", 12, Via::Attached(INSIDE)),
            route("10.9.0.0", 16, Via::Refused(sluice_route::DropKind::Blackhole)),
        ],
        ..Plan::default()
    }
}

#[test]
fn arp_is_answered_for_what_is_reached_by_another_interface_and_nothing_else() {
    let mut rig = Rig::new(proxy());
    let sent = rig.send(INSIDE, &packet::arp_request(HOST_MAC, "192.168.1.10", "198.51.100.7"));
    let expected = packet::arp_reply(INSIDE_MAC, "198.51.100.7", HOST_MAC, "192.168.1.10");
    assert_eq!(expected, sent[0].frame);
    assert_eq!(1, rig.plane.counters()[0].answered_as_proxy.get());
    // The gateway sends no answer if the target is on the link itself, has a rejecting route or no route, is the
    // unspecified address, or is a multicast group. It doesn't answer ARP probes either.
    for (sender, target) in [
        ("192.168.1.10", "192.168.1.77"),
        ("192.168.1.10", "172.16.3.4"),
        ("192.168.1.10", "10.9.1.1"),
        ("192.168.1.10", "0.0.0.0"),
        ("192.168.1.10", "224.0.0.9"),
        ("0.0.0.0", "198.51.100.7"),
    ] {
        let sent = rig.send(INSIDE, &packet::arp_request(HOST_MAC, sender, target));
        assert!(sent.is_empty(), "{sender} {target}");
    }
    // The outside interface is not a proxy.
    let sent = rig.send(OUTSIDE, &packet::arp_request(HOST_MAC, "203.0.113.254", "192.168.1.10"));
    assert!(sent.is_empty());
    assert_eq!(1, rig.plane.counters()[0].answered_as_proxy.get());
}

#[test]
fn neighbour_solicitation_is_answered_for_what_is_reached_by_another_interface() {
    let mut rig = Rig::new(proxy());
    let option = [&[1, 1][..], &HOST_MAC].concat();
    let ask = |source: &'static str, target: &'static str| {
        let frame = packet::neighbour(
            source,
            "ff02::1:ff00:7",
            135,
            0,
            target,
            if source == "::" { &[] } else { &option },
        );
        frame.macs(HOST_MAC, [0x33, 0x33, 0xff, 0, 0, 7]).build()
    };
    let sent = rig.send(INSIDE, &ask("2001:db8:1::10", "2001:db8:9::7"));
    let option = [&[2, 1][..], &INSIDE_MAC].concat();
    // The flags router and solicited are set, and override is not.
    let flags = 0xc000_0000;
    let expected = packet::neighbour("2001:db8:9::7", "2001:db8:1::10", 136, flags, "2001:db8:9::7", &option);
    assert_eq!(expected.macs(INSIDE_MAC, HOST_MAC).build(), sent[0].frame);
    for (source, target) in [("2001:db8:1::10", "2001:db8:1::77"), ("::", "2001:db8:9::7")] {
        assert!(rig.send(INSIDE, &ask(source, target)).is_empty(), "{source} {target}");
    }
    assert_eq!(1, rig.plane.counters()[0].answered_as_proxy.get());
}

#[test]
fn announcements_and_answers_of_a_vlan_have_its_tags() {
    let mut rig = Rig::new(Plan {
        translate: false,
        known_neighbours: false,
        interfaces: |interfaces| {
            announces(interfaces);
            interfaces[1].tags = vec![Tag::vlan(7)];
        },
        ..Plan::default()
    });
    let sent = told(&mut rig, 100);
    assert_eq!([0x81, 0, 0, 7, 8, 6], sent[0][12..18]);
}

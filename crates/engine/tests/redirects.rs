//! Tests of redirects. Hosts learn better next hops on their link, and the gateway still forwards the packet.

use crate::rig::{HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, Plan, Rig, is_valid, plain, route};
use sluice_engine::snapshot::Interface;
use sluice_route::Via;
use sluice_testkit::packet::{self, Frame};

const NEXT_MAC: [u8; 6] = [2, 0, 0, 0, 1, 77];

#[expect(clippy::ptr_arg, reason = "what a plan has a pointer to")]
fn addressed(interfaces: &mut Vec<Interface>) {
    interfaces[0].link.addresses.push((plain("fe80::1"), 64));
    interfaces[0].link.addresses.push((plain("192.168.2.1"), 24));
}

/// A router with routes to 10.20.0.0/16 and 2001:db8:20::/48 that lead back to the inside link.
fn plan(redirects: bool) -> Plan {
    let via = |address| Via::Gateway {
        address: plain(address),
        interface: Some(INSIDE),
    };
    Plan {
        translate: false,
        interfaces: match redirects {
            true => |interfaces| {
                addressed(interfaces);
                interfaces[0].neighbours.redirects = true;
            },
            false => addressed,
        },
        routes: vec![
            route("10.20.0.0", 16, via("192.168.1.77")),
            route("10.30.0.0", 16, via("192.168.2.77")),
            route("2001:db8:20::", 48, via("fe80::77")),
            route("2001:db8:30::", 48, via("2001:db8:1::77")),
        ],
        ..Plan::default()
    }
}

fn started(redirects: bool) -> Rig {
    let mut rig = Rig::new(plan(redirects));
    for address in ["192.168.1.77", "192.168.2.77", "fe80::77", "2001:db8:1::77"] {
        rig.know(INSIDE, plain(address), NEXT_MAC);
    }
    rig
}

fn question4(remote: &'static str) -> Frame {
    packet::udp4("192.168.1.10:5000", remote).payload(b"question")
}

fn question6(remote: &'static str) -> Frame {
    packet::udp6("[2001:db8:1::10]:5000", remote).payload(b"question")
}

/// Checks that the packet is forwarded. Returns the redirect, if one is sent.
#[track_caller]
fn forwarded_and_told(rig: &mut Rig, question: &Frame) -> Option<Vec<u8>> {
    let mut sent = rig.host_sends(question);
    assert!(
        sent.iter().all(|sent| sent.port == INSIDE && is_valid(&sent.frame)),
        "{sent:?}"
    );
    let expected = question.clone().ttl(63).macs(INSIDE_MAC, NEXT_MAC).build();
    let place = sent.iter().position(|sent| sent.frame == expected).expect("it goes on");
    sent.remove(place);
    assert!(sent.len() <= 1, "{sent:?}");
    sent.pop().map(|sent| sent.frame)
}

#[test]
fn host_is_told_of_the_gateway_in_its_network_as_another_library_says_it() {
    let mut rig = started(true);
    let question = question4("10.20.0.5:53");
    let told = forwarded_and_told(&mut rig, &question).expect("a redirect");
    // The redirect contains type, code, gateway, and the packet as it was received.
    let datagram = &question.build()[14..];
    assert_eq!([&HOST_MAC[..], &INSIDE_MAC, &[8, 0, 0x45]].concat(), told[..15]);
    assert_eq!([192, 168, 1, 1, 192, 168, 1, 10], told[26..34]);
    assert_eq!([5, 1], told[34..36]);
    assert_eq!([&[192, 168, 1, 77], datagram].concat(), told[38..]);
    assert_eq!(1, rig.plane.counters()[0].redirects.get());
    assert!(rig.all_drops().is_empty());
}

#[test]
fn host_is_told_of_the_router_by_its_link_local_address() {
    let mut rig = started(true);
    let question = question6("[2001:db8:20::5]:53");
    let told = forwarded_and_told(&mut rig, &question).expect("a redirect");
    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
    let datagram = &question.build()[14..];
    assert_eq!([&HOST_MAC[..], &INSIDE_MAC, &[0x86, 0xdd]].concat(), told[..14]);
    assert_eq!([58, 255], told[20..22]);
    assert_eq!([address("fe80::1"), address("2001:db8:1::10")].concat(), told[22..54]);
    assert_eq!([137, 0], told[54..56]);
    let quoted = (datagram.len() & !7) as u8;
    let expected = [
        &[0; 4][..],
        &address("fe80::77"),
        &address("2001:db8:20::5"),
        &[2, 1],
        &NEXT_MAC,
        &[4, 1 + quoted / 8, 0, 0, 0, 0, 0, 0],
        &datagram[..usize::from(quoted)],
    ];
    assert_eq!(expected.concat(), told[58..]);
    assert_eq!(1, rig.plane.counters()[0].redirects.get());
}

#[test]
fn host_on_the_link_is_a_target_itself() {
    let mut rig = started(true);
    let told = forwarded_and_told(&mut rig, &question6("[2001:db8:1::77]:53")).expect("a redirect");
    assert_eq!(told[62..78], told[78..94]);
    let told = forwarded_and_told(&mut rig, &question4("192.168.1.77:53")).expect("a redirect");
    assert_eq!([192, 168, 1, 77], told[38..42]);
}

#[test]
fn nobody_is_told_where_it_would_not_help_or_is_off() {
    // No redirect is sent if the next hop is in another network of the link or is not link-local, if the source is not
    // in a network of the link or is the next hop itself, or if the packet has options.
    let mut rig = started(true);
    assert_eq!(None, forwarded_and_told(&mut rig, &question4("10.30.0.5:53")));
    assert_eq!(None, forwarded_and_told(&mut rig, &question6("[2001:db8:30::5]:53")));
    let stranger = packet::udp4("172.16.0.1:5000", "10.20.0.5:53").payload(b"question");
    assert_eq!(None, forwarded_and_told(&mut rig, &stranger));
    let itself = packet::udp4("192.168.1.77:5000", "10.20.0.5:53").payload(b"question");
    assert_eq!(None, forwarded_and_told(&mut rig, &itself));
    assert_eq!(
        None,
        forwarded_and_told(&mut rig, &question4("10.20.0.5:53").options(&[1, 1, 1, 1]))
    );
    // The packet leaves through a different interface, so no redirect is sent.
    let sent = rig.host_sends(&question4("198.51.100.7:53"));
    assert_eq!(vec![OUTSIDE], sent.iter().map(|sent| sent.port).collect::<Vec<_>>());
    assert_eq!(0, rig.plane.counters()[0].redirects.get());
    let mut rig = started(false);
    assert_eq!(None, forwarded_and_told(&mut rig, &question4("10.20.0.5:53")));
    assert_eq!(0, rig.plane.counters()[0].redirects.get());
}

#[test]
fn redirects_keep_to_a_rate() {
    let mut rig = started(true);
    let mut told = |count: usize| {
        let all = (0..count).map(|_| rig.host_sends(&question4("10.20.0.5:53")).len() - 1);
        let told = all.sum::<usize>();
        rig.pass(1_000);
        told
    };
    assert_eq!([10, 10], [told(30), told(30)]);
}

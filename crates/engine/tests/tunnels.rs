//! Tests of tunnels: encapsulated packets, decapsulated packets, and drops by name.

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, ROUTER_MAC, Rig, is_valid, plain};
use crate::tunnelled::{self, FAR_MAC, MAC, TUNNEL, all, arriving, inside, outer, service, tunnel};
use sluice_engine::snapshot::tunnels::{Tunnel, TunnelKind};
use sluice_engine::worker::capture::{CaptureFilter, CapturePoint, Tap};
use sluice_engine::worker::request::{Filter, Reply, Request};
use sluice_engine::worker::trace::Tracer;
use sluice_nat::rule::{DestinationAction, DestinationRule, Prefix};
use sluice_testkit::packet::{self, Frame, Network, Transport};

/// Frames of the inside host to a host behind the tunnel, over IPv4 and IPv6.
fn questions() -> [Frame; 2] {
    [
        packet::udp4("192.168.1.10:5000", "10.77.0.5:53").payload(b"question"),
        packet::udp6("[2001:db8:1::10]:5000", "[2001:db8:77::5]:53").payload(b"question"),
    ]
}

/// Frames of a host behind the tunnel to the inside host.
fn answers() -> [Frame; 2] {
    [
        packet::udp4("10.77.0.5:53", "192.168.1.10:5000").payload(b"answer"),
        packet::udp6("[2001:db8:77::5]:53", "[2001:db8:1::10]:5000").payload(b"answer"),
    ]
}

/// Counters of an interface: packets received, sent, made by the gateway, and delivered to the host.
fn counted(rig: &Rig, interface: u16) -> [u64; 4] {
    let counters = &rig.plane.counters()[0].interfaces[usize::from(interface)];
    [
        &counters.received,
        &counters.sent,
        &counters.originated,
        &counters.to_host,
    ]
    .map(|counter| counter.get())
}

/// The bytes of an outer packet, with zeros in the fields that depend on the flow: source port and checksum of VXLAN,
/// and IPv6 flow label.
fn without_flow(tunnel: &Tunnel, mut frame: Vec<u8>) -> Vec<u8> {
    let network = if frame[14] >> 4 == 4 { 20 } else { 40 };
    if network == 40 {
        frame[15] &= 0xf0;
        frame[16..18].fill(0);
    }
    if tunnel.carries_frames() {
        frame[14 + network..][..2].fill(0);
        frame[14 + network + 6..][..2].fill(0);
    }
    frame
}

#[test]
fn packet_into_every_tunnel_is_inside_of_an_outer_packet_as_another_library_makes_it() {
    for tunnel in all() {
        for question in questions() {
            let v6 = matches!(question.network, Network::V6(..));
            let mut rig = tunnelled::rig(tunnel);
            let sent = rig.host_sends(&service(question.clone(), 0xb8 | 2));
            assert_eq!(1, sent.len(), "{tunnel:?} {:?}", rig.all_drops());
            let carried = service(question, 0xb8 | 2).ttl(63).macs(MAC, FAR_MAC);
            let payload = inside(&tunnel, &carried);
            let mut expected = outer(&tunnel, [tunnel.local, tunnel.remote], v6, 1, &payload);
            if matches!(expected.network, Network::V4(_)) {
                expected = expected.dont_fragment();
            }
            let expected = service(expected, 0xb8 | 2).macs(OUTSIDE_MAC, ROUTER_MAC).build();
            assert_eq!(
                without_flow(&tunnel, expected),
                without_flow(&tunnel, sent[0].frame.clone()),
                "{tunnel:?}"
            );
            assert!(is_valid(&sent[0].frame), "{tunnel:?}");
            assert_eq!(OUTSIDE, sent[0].port);
            assert_eq!([0, 1, 0, 0], counted(&rig, TUNNEL));
            assert_eq!([0, 1, 1, 0], counted(&rig, OUTSIDE));
        }
    }
}

#[test]
fn packet_out_of_every_tunnel_goes_on_as_one_of_its_interface() {
    for tunnel in all() {
        for answer in answers() {
            let mut rig = tunnelled::rig(tunnel);
            let sent = rig.send(OUTSIDE, &arriving(&tunnel, &answer).build());
            assert_eq!(1, sent.len(), "{tunnel:?} {:?}", rig.all_drops());
            assert_eq!(
                answer.ttl(63).macs(INSIDE_MAC, HOST_MAC).build(),
                sent[0].frame,
                "{tunnel:?}"
            );
            assert_eq!(INSIDE, sent[0].port);
            assert_eq!([1, 0, 0, 0], counted(&rig, TUNNEL));
            assert_eq!([1, 0, 0, 1], counted(&rig, OUTSIDE));
        }
    }
}

#[test]
fn gateway_answers_a_ping_through_every_tunnel() {
    for tunnel in all() {
        let mut rig = tunnelled::rig(tunnel);
        let pings = [
            packet::icmp4_echo("10.99.0.2", "10.99.0.1", 7, 1),
            packet::icmp6_echo("2001:db8:99::2", "2001:db8:99::1", 7, 1),
        ];
        for ping in pings {
            let sent = rig.send(OUTSIDE, &arriving(&tunnel, &ping).build());
            assert_eq!(1, sent.len(), "{tunnel:?} {:?}", rig.all_drops());
            assert_eq!(OUTSIDE, sent[0].port);
            assert!(is_valid(&sent[0].frame), "{tunnel:?}");
        }
    }
}

#[test]
fn vxlan_resolves_its_neighbours_and_answers_who_asks() {
    let tunnel = tunnel(TunnelKind::Vxlan(4789), Some(42), false);
    let mut rig = Rig::new(tunnelled::plan(tunnel));
    let [question, _] = questions();
    let queried = rig.host_sends(&question);
    let request = packet::arp_request(MAC, "10.99.0.1", "10.99.0.2");
    let expected = [tunnelled::shim(&tunnel, false), request].concat();
    assert_eq!(1, queried.len(), "{:?}", rig.all_drops());
    assert_eq!(expected, queried[0].frame[42..]);
    let reply = packet::arp_reply(FAR_MAC, "10.99.0.2", MAC, "10.99.0.1");
    let wrapped = |frame: &[u8]| {
        let payload = [&tunnelled::shim(&tunnel, false), frame].concat();
        outer(&tunnel, [tunnel.remote, tunnel.local], false, 50_000, &payload)
            .macs(ROUTER_MAC, OUTSIDE_MAC)
            .build()
    };
    let sent = rig.send(OUTSIDE, &wrapped(&reply));
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(question.ttl(63).macs(MAC, FAR_MAC).build(), sent[0].frame[50..]);
    let sent = rig.send(
        OUTSIDE,
        &wrapped(&packet::arp_request(FAR_MAC, "10.99.0.2", "10.99.0.1")),
    );
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(
        packet::arp_reply(MAC, "10.99.0.1", FAR_MAC, "10.99.0.2"),
        sent[0].frame[50..]
    );
}

#[test]
fn tunnel_without_ethernet_has_one_neighbour_for_all_destinations() {
    let mut rig = tunnelled::rig(tunnel(TunnelKind::Gre, None, false));
    for host in 2..200 {
        let question = packet::udp4("192.168.1.10:5000", format!("10.99.0.{host}:53").as_str());
        assert_eq!(1, rig.host_sends(&question).len(), "{:?}", rig.all_drops());
    }
    let neighbours = rig.plane.neighbours();
    let places = (0..neighbours.capacity() as u32).map(sluice_route::neighbour::NeighbourIndex);
    let known = places.filter_map(|place| neighbours.snapshot(place));
    assert_eq!(1, known.filter(|neighbour| neighbour.interface == TUNNEL).count());
}

#[test]
fn flows_are_told_apart_by_the_source_port_of_vxlan_and_the_label_of_ipv6() {
    for v6 in [false, true] {
        let mut rig = tunnelled::rig(tunnel(TunnelKind::Vxlan(4789), Some(42), v6));
        let mut seen = std::collections::HashSet::new();
        for port in 5000..5016u16 {
            let question = packet::udp4(format!("192.168.1.10:{port}").as_str(), "10.77.0.5:53");
            let mut of_flow = || {
                let frame = rig.host_sends(&question).remove(0).frame;
                let udp = if v6 { 54 } else { 34 };
                let label = if v6 { frame[16..18].to_vec() } else { Vec::new() };
                (u16::from_be_bytes([frame[udp], frame[udp + 1]]), label)
            };
            let first = of_flow();
            assert_eq!(first, of_flow());
            assert!(first.0 >= 49_152);
            seen.insert(first);
        }
        assert!(seen.len() > 12, "{seen:?}");
    }
}

#[test]
fn packet_of_no_tunnel_is_dropped_as_such_and_what_is_for_other_services_is_not() {
    for tunnel in all() {
        let [answer, _] = answers();
        let mut rig = tunnelled::rig(tunnel);
        let mut stranger = tunnel;
        stranger.remote = match tunnel.local {
            sluice_route::Address::V4(_) => plain("198.51.100.10"),
            sluice_route::Address::V6(_) => plain("2001:db8:9::10"),
        };
        assert!(rig.send(OUTSIDE, &arriving(&stranger, &answer).build()).is_empty());
        assert_eq!(1, rig.drops("unknown-tunnel"), "{:?}", rig.all_drops());
        if tunnel.kind != TunnelKind::Ipip {
            let mut other = tunnel;
            other.id = Some(tunnel.id.unwrap_or(0) ^ 1);
            assert!(rig.send(OUTSIDE, &arriving(&other, &answer).build()).is_empty());
            assert_eq!(2, rig.drops("unknown-tunnel"), "{:?}", rig.all_drops());
        }
        assert_eq!([0; 4], counted(&rig, TUNNEL));
    }
    let mut rig = tunnelled::rig(tunnel(TunnelKind::Vxlan(4789), Some(42), false));
    rig.router_sends(&packet::udp4("198.51.100.9:5000", "203.0.113.1:4790"));
    rig.send(
        OUTSIDE,
        &arriving(&tunnel(TunnelKind::Gre, None, false), &answers()[0]).build(),
    );
    assert_eq!(vec![("no-local-service", 2)], rig.all_drops());
}

#[test]
fn malformed_headers_of_tunnels_are_dropped_as_such() {
    let [answer, _] = answers();
    let drop = |tunnel: Tunnel, change: &dyn Fn(&mut Vec<u8>)| {
        let mut rig = tunnelled::rig(tunnel);
        let mut frame = arriving(&tunnel, &answer);
        change(&mut frame.payload);
        let sent = rig.send(OUTSIDE, &frame.build());
        assert!(sent.is_empty());
        rig.all_drops()
    };
    let malformed = vec![("tunnel-header", 1)];
    let vxlan = tunnel(TunnelKind::Vxlan(4789), Some(42), false);
    assert_eq!(malformed, drop(vxlan, &|payload| payload[0] = 0));
    for length in [0, 7, 8, 21] {
        assert_eq!(malformed, drop(vxlan, &|payload| payload.truncate(length)), "{length}");
    }
    let gre = tunnel(TunnelKind::Gre, Some(7), false);
    for flags in [0x10u8, 0x40, 0x08, 0x01] {
        assert_eq!(malformed, drop(gre, &|payload| payload[0] |= flags), "{flags:x}");
    }
    assert_eq!(malformed, drop(gre, &|payload| payload[1] = 1));
    // The payload is an Ethernet frame. GRE can carry Ethernet frames, but this tunnel does not.
    assert_eq!(
        malformed,
        drop(gre, &|payload| payload[2..4].copy_from_slice(&[0x65, 0x58]))
    );
    for length in 0..8 {
        assert_eq!(malformed, drop(gre, &|payload| payload.truncate(length)), "{length}");
    }
    // The inner packet is validated like a packet from a device.
    let ipip = tunnel(TunnelKind::Ipip, None, false);
    assert_eq!(
        vec![("bad-total-length", 1)],
        drop(ipip, &|payload| payload.truncate(12))
    );
    assert_eq!(
        vec![("bad-header-checksum", 1)],
        drop(ipip, &|payload| payload[11] ^= 1)
    );
    assert_eq!(vec![("bad-version", 1)], drop(ipip, &|payload| payload[0] = 0x65));
    assert_eq!(vec![("not-our-mac", 1)], drop(vxlan, &|payload| payload[13] ^= 1));
    assert_eq!(
        vec![("unknown-vlan", 1)],
        drop(vxlan, &|payload| {
            payload.splice(20..20, [0x81, 0, 0, 7]);
        })
    );
}

#[test]
fn vxlan_whose_udp_length_reaches_into_the_frames_padding_is_dropped() {
    let vxlan = tunnel(TunnelKind::Vxlan(4789), Some(42), false);
    let [answer, _] = answers();
    let mut rig = tunnelled::rig(vxlan);
    let mut frame = arriving(&vxlan, &answer).build();
    frame.extend([0; 8]);
    let length = u16::from_be_bytes([frame[38], frame[39]]) + 8;
    frame[38..40].copy_from_slice(&length.to_be_bytes());
    // The checksum is removed, because it would be wrong after the change.
    frame[40..42].fill(0);
    assert!(rig.send(OUTSIDE, &frame).is_empty());
    assert_eq!(vec![("tunnel-header", 1)], rig.all_drops());
}

#[test]
fn fragments_of_outer_packets_are_dropped_as_such() {
    let [answer, _] = answers();
    for tunnel in all() {
        let mut rig = tunnelled::rig(tunnel);
        let mut first = arriving(&tunnel, &answer);
        let length = first.payload.len() & !7;
        first.payload.truncate(length);
        let kind = match &first.transport {
            Transport::Raw(number) => *number,
            _ => packet::IpNumber(17),
        };
        let mut first = first.fragment(0, true, 9);
        if let Network::V6(_, extensions) = &mut first.network {
            extensions.fragment.as_mut().unwrap().next_header = kind;
        }
        assert!(rig.send(OUTSIDE, &first.build()).is_empty());
        assert_eq!(vec![("tunnel-fragment", 1)], rig.all_drops(), "{tunnel:?}");
    }
}

#[test]
fn congestion_met_in_a_tunnel_is_told_to_who_understands_and_nobody_else_gets_through() {
    for tunnel in all() {
        for answer in answers() {
            let mut rig = tunnelled::rig(tunnel);
            let mut through = |outside: u8, within: u8| {
                let frame = service(arriving(&tunnel, &service(answer.clone(), within)), outside);
                rig.send(OUTSIDE, &frame.build()).pop().map(|sent| sent.frame)
            };
            let marked = |marks| {
                Some(
                    service(answer.clone(), marks)
                        .ttl(63)
                        .macs(INSIDE_MAC, HOST_MAC)
                        .build(),
                )
            };
            assert_eq!(marked(0x48 | 3), through(3, 0x48 | 2));
            assert_eq!(marked(0x48 | 3), through(0x48 | 3, 0x48 | 1));
            assert_eq!(marked(1), through(1, 2));
            assert_eq!(marked(0), through(1, 0));
            assert_eq!(marked(0x48), through(0xb8, 0x48));
            assert_eq!(None, through(3, 0));
            assert_eq!(vec![("tunnel-congestion", 1)], rig.all_drops(), "{tunnel:?}");
        }
    }
}

#[test]
fn route_to_the_other_end_that_leads_into_the_tunnel_itself_ends_after_as_many_passes_as_there_may_be() {
    for tunnel in all() {
        let mut plan = tunnelled::plan(tunnel);
        let v6 = matches!(tunnel.local, sluice_route::Address::V6(_));
        let (prefix, length, by) = match v6 {
            false => ("198.51.100.9", 32, "10.99.0.2"),
            true => ("2001:db8:9::9", 128, "2001:db8:99::2"),
        };
        let via = sluice_route::Via::Gateway {
            address: plain(by),
            interface: Some(TUNNEL),
        };
        plan.routes.push(rig::route(prefix, length, via));
        let mut rig = tunnelled::started(plan);
        assert!(rig.host_sends(&questions()[0]).is_empty());
        let drops = rig.all_drops();
        // The packet may run out of headroom before it reaches the maximum number of passes.
        let ends = ["too-many-passes", "tunnel-headroom"];
        assert!(
            drops.len() == 1 && drops[0].1 == 1 && ends.contains(&drops[0].0),
            "{drops:?}"
        );
    }
}

#[test]
fn outer_packet_around_one_of_the_same_tunnel_is_opened_as_often_as_passes_allow() {
    let tunnel = tunnel(TunnelKind::Ipip, None, false);
    let mut rig = tunnelled::rig(tunnel);
    let nested = |depth: usize| {
        let mut frame = answers()[0].clone();
        for _ in 0..depth {
            frame = arriving(&tunnel, &frame);
        }
        frame.build()
    };
    assert_eq!(1, rig.send(OUTSIDE, &nested(3)).len(), "{:?}", rig.all_drops());
    assert!(rig.send(OUTSIDE, &nested(4)).is_empty());
    assert_eq!(vec![("too-many-passes", 1)], rig.all_drops());
}

#[test]
fn translation_of_the_address_of_an_end_leaves_the_tunnels_packets_alone() {
    let external = Prefix {
        address: rig::v4("203.0.113.1"),
        length: 32,
    };
    let host = DestinationAction::Host(rig::v4(rig::HOST), None);
    for (tunnel, forwarded) in all().into_iter().flat_map(|tunnel| [(tunnel, false), (tunnel, true)]) {
        let mut plan = tunnelled::plan(tunnel);
        plan.translate = true;
        match forwarded {
            true => plan.forwards = vec![DestinationRule::of(external, host)],
            false => plan.pool = vec![(rig::v4("203.0.113.1"), rig::v4("203.0.113.10"))],
        }
        let mut rig = tunnelled::started(plan);
        let ping = packet::icmp4_echo("10.99.0.2", "10.99.0.1", 7, 1);
        let sent = rig.send(OUTSIDE, &arriving(&tunnel, &ping).build());
        assert_eq!(1, sent.len(), "{tunnel:?} {:?}", rig.all_drops());
        assert_eq!(OUTSIDE, sent[0].port);
        assert_eq!([1, 1, 1, 1], counted(&rig, OUTSIDE));
        assert_eq!(0, rig.live());
    }
}

#[test]
fn unresolved_next_hop_of_outer_packets_lets_them_wait() {
    let tunnel = tunnel(TunnelKind::Gre, None, false);
    let mut plan = tunnelled::plan(tunnel);
    plan.known_neighbours = false;
    let mut rig = Rig::new(plan);
    rig.know(INSIDE, plain(rig::HOST), HOST_MAC);
    let queried = rig.host_sends(&questions()[0]);
    assert_eq!(
        packet::arp_request(OUTSIDE_MAC, "203.0.113.1", "203.0.113.254"),
        queried[0].frame
    );
    let sent = rig.send(
        OUTSIDE,
        &packet::arp_reply(ROUTER_MAC, "203.0.113.254", OUTSIDE_MAC, "203.0.113.1"),
    );
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(47, sent[0].frame[23]);
}

#[test]
fn capture_of_a_tunnel_has_what_goes_in_and_what_comes_out_and_a_trace_names_the_nodes() {
    let tunnel = tunnel(TunnelKind::Gre, Some(7), false);
    let mut rig = tunnelled::rig(tunnel);
    let [question, _] = questions();
    let [answer, _] = answers();
    // The first packet resolves the neighbour.
    rig.host_sends(&question);
    rig.ask(
        0,
        Request::Capture(Box::new(Tap::new(CaptureFilter::Interface(TUNNEL), 10, 200))),
    );
    rig.ask(0, Request::Trace(Box::new(Tracer::new(Filter::default(), 2))));
    rig.host_sends(&question);
    rig.send(OUTSIDE, &arriving(&tunnel, &answer).build());
    let Reply::Captured(Some(tap)) = rig.ask(0, Request::EndCapture) else {
        panic!("no capture")
    };
    let seen: Vec<_> = tap
        .frames()
        .map(|(copied, bytes)| (copied.seen, bytes[14..].to_vec()))
        .collect();
    let datagram = |frame: &Frame| frame.build()[14..].to_vec();
    let expected = [
        (CapturePoint::Sent, datagram(&question.ttl(63))),
        (CapturePoint::Received, datagram(&answer)),
    ];
    assert_eq!(expected.to_vec(), seen);
    let Reply::Traced(Some(tracer)) = rig.ask(0, Request::EndTrace) else {
        panic!("no trace")
    };
    let adjacencies: Vec<Vec<_>> = tracer
        .traces()
        .iter()
        .map(|way| way.steps.iter().map(|step| step.node).collect())
        .collect();
    assert_eq!(
        vec!["parse", "forward", "inter-router-link", "encapsulate", "forward"],
        adjacencies[0]
    );
    assert_eq!(
        vec!["parse", "ip4-fast-forward", "decapsulate", "forward"],
        adjacencies[1]
    );
}

#[test]
fn frame_in_a_vxlan_behind_a_priority_tag_is_one_without() {
    let vxlan = tunnel(TunnelKind::Vxlan(4789), Some(42), false);
    let [answer, _] = answers();
    let mut rig = tunnelled::rig(vxlan);
    let mut outer = arriving(&vxlan, &answer);
    outer.payload.splice(8 + 12..8 + 12, [0x81, 0, 0xa0, 0]);
    let sent = rig.send(OUTSIDE, &outer.macs(ROUTER_MAC, OUTSIDE_MAC).build());
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(answer.ttl(63).macs(INSIDE_MAC, HOST_MAC).build(), sent[0].frame);
}

/// A keepalive that the remote endpoint of a GRE tunnel sends. The inner packet of the keepalive is a GRE packet of
/// protocol type 0 from the local to the remote endpoint.
fn keepalive(tunnel: &Tunnel, [from, to]: [sluice_route::Address; 2], key: Option<u32>) -> Frame {
    let mut inner = tunnelled::outer(tunnel, [from, to], false, 0, &shim(key, 0)).ttl(255);
    if let Network::V4(header) = &mut inner.network {
        header.dont_fragment = false;
    }
    let kind = if matches!(tunnel.local, sluice_route::Address::V6(_)) {
        0x86dd
    } else {
        0x0800
    };
    let payload = [shim(tunnel.id, kind), inner.build()[14..].to_vec()].concat();
    tunnelled::outer(tunnel, [tunnel.remote, tunnel.local], false, 0, &payload).macs(ROUTER_MAC, OUTSIDE_MAC)
}

/// A GRE header with a key, for a payload of this type.
fn shim(key: Option<u32>, kind: u16) -> Vec<u8> {
    let flags: [u8; 2] = if key.is_some() { [0x20, 0] } else { [0, 0] };
    let key = key.map(u32::to_be_bytes);
    [
        &flags[..],
        &kind.to_be_bytes(),
        key.as_ref().map_or(&[], |key| &key[..]),
    ]
    .concat()
}

#[test]
fn keepalive_of_the_other_end_goes_back_as_it_is_and_is_counted() {
    for tunnel in all().into_iter().filter(|tunnel| tunnel.kind == TunnelKind::Gre) {
        let mut rig = tunnelled::rig(tunnel);
        let ends = [tunnel.local, tunnel.remote];
        let frame = keepalive(&tunnel, ends, tunnel.id).build();
        let sent = rig.send(OUTSIDE, &frame);
        assert_eq!(1, sent.len(), "{tunnel:?} {:?}", rig.all_drops());
        let mut expected = tunnelled::outer(&tunnel, ends, false, 0, &shim(tunnel.id, 0)).ttl(255);
        if let Network::V4(header) = &mut expected.network {
            header.dont_fragment = false;
        }
        assert_eq!(expected.macs(OUTSIDE_MAC, ROUTER_MAC).build(), sent[0].frame);
        assert_eq!(1, rig.plane.counters()[0].gre_keepalives_answered.get());
        assert_eq!([1, 1, 1, 1], counted(&rig, OUTSIDE));
        assert_eq!([0, 0, 0, 0], counted(&rig, TUNNEL));
    }
}

#[test]
fn keepalives_of_others_or_to_others_are_not_answered() {
    let tunnel = tunnel(TunnelKind::Gre, Some(7), false);
    let (local, remote, other) = (tunnel.local, tunnel.remote, plain("198.51.100.77"));
    for (ends, key) in [
        ([local, other], Some(7)),
        ([other, remote], Some(7)),
        ([local, remote], None),
    ] {
        let mut rig = tunnelled::rig(tunnel);
        rig.send(OUTSIDE, &keepalive(&tunnel, ends, key).build());
        assert_eq!(0, rig.plane.counters()[0].gre_keepalives_answered.get(), "{ends:?}");
    }
    let mut rig = tunnelled::rig(tunnel);
    let stranger = Tunnel {
        remote: other,
        ..tunnel
    };
    assert!(
        rig.send(OUTSIDE, &keepalive(&stranger, [local, other], Some(7)).build())
            .is_empty()
    );
    assert_eq!(vec![("unknown-tunnel", 1)], rig.all_drops());
}

#[test]
fn keepalives_above_their_rate_are_dropped_by_name() {
    let tunnel = tunnel(TunnelKind::Gre, None, false);
    let mut rig = tunnelled::rig(tunnel);
    let frame = keepalive(&tunnel, [tunnel.local, tunnel.remote], None).build();
    let answered: usize = (0..30).map(|_| rig.send(OUTSIDE, &frame).len()).sum();
    assert_eq!((10, vec![("policed-keepalive", 20)]), (answered, rig.all_drops()));
    rig.pass(1_000);
    let answered: usize = (0..30).map(|_| rig.send(OUTSIDE, &frame).len()).sum();
    assert_eq!(10, answered);
}

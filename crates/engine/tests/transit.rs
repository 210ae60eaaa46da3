//! Tests that the fast path for plain packets gives the same output as the general path, in a router without stateful
//! services.

use std::net::Ipv6Addr;

use crate::rig::{HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, plain, route};
use proptest::collection::vec;
use proptest::prelude::*;
use sluice_engine::packet::lists::NodeIndex;
use sluice_engine::snapshot::{Interface, Snapshot};
use sluice_engine::worker::request::{Filter, Reply, Request};
use sluice_engine::worker::trace::Tracer;
use sluice_route::{DropKind, Prefix, SourceValidation, Via};
use sluice_testkit::packet::{self, Frame, Network};
use sluice_testkit::strategy;
use sluice_wire::Checksums;
use sluice_wire::vlan::Tag;

/// Tags of an interface: TPID and VLAN.
type Tags = &'static [(u16, u16)];

const NONE: Tags = &[];
const ONE: Tags = &[(0x8100, 100)];
const SERVICE: Tags = &[(0x88a8, 200)];
const TWO: Tags = &[(0x88a8, 300), (0x8100, 30)];

/// Tags of a router's inside interface and of its outside interface, for each kind of link.
pub const LINKS: [[Tags; 2]; 6] = [
    [NONE, NONE],
    [ONE, NONE],
    [NONE, TWO],
    [ONE, ONE],
    [TWO, SERVICE],
    [TWO, TWO],
];

#[expect(clippy::ptr_arg, reason = "what a plan has a pointer to")]
fn give<const LINK: usize>(interfaces: &mut Vec<Interface>) {
    for (interface, tags) in interfaces.iter_mut().zip(LINKS[LINK]) {
        let tags = tags.iter().map(|&(protocol, control)| Tag { protocol, control });
        interface.tags = tags.collect();
    }
}

/// Gives the interfaces of a plan the tags of a kind of link.
pub fn give_tags(link: usize) -> fn(&mut Vec<Interface>) {
    [give::<0>, give::<1>, give::<2>, give::<3>, give::<4>, give::<5>][link]
}

fn validate<const LOOSE: bool>(snapshot: &mut Snapshot) {
    let mode = if LOOSE {
        SourceValidation::Loose
    } else {
        SourceValidation::Strict
    };
    snapshot
        .interfaces
        .iter_mut()
        .for_each(|interface| interface.validation = mode);
}

/// A router with this source validation and the tags of `LINKS`. If `long` is set, plain packets take the general path,
/// otherwise the fast path.
fn router_on(link: usize, validation: SourceValidation, long: bool) -> Rig {
    let via = |address| Via::Gateway {
        address: plain(address),
        interface: None,
    };
    Rig::new(Plan {
        translate: false,
        interfaces: give_tags(link),
        // MSS clamping forces the general path, because the fast path doesn't support it. The clamping does not change
        // the packets of this test.
        snapshot: match (validation, long) {
            (SourceValidation::Off, false) => |_| {},
            (SourceValidation::Off, true) => |snapshot| snapshot.limits_segments = true,
            (SourceValidation::Loose, false) => validate::<true>,
            (SourceValidation::Loose, true) => |snapshot| {
                validate::<true>(snapshot);
                snapshot.limits_segments = true;
            },
            (SourceValidation::Strict, false) => validate::<false>,
            (SourceValidation::Strict, true) => |snapshot| {
                validate::<false>(snapshot);
                snapshot.limits_segments = true;
            },
        },
        routes: vec![
            route("10.0.0.0", 8, via("192.168.1.10")),
            route("10.9.0.0", 16, via("203.0.113.254")),
            route("172.16.0.0", 12, Via::Refused(DropKind::Blackhole)),
        ],
        ..Plan::default()
    })
}

/// A router without tags.
fn router(validation: SourceValidation, long: bool) -> Rig {
    router_on(0, validation, long)
}

/// The nodes through which a frame passes, each with the next node.
fn way(rig: &mut Rig, frame: &Frame) -> Vec<(&'static str, &'static str)> {
    rig.ask(0, Request::Trace(Box::new(Tracer::new(Filter::default(), 1))));
    rig.host_sends(frame);
    let Reply::Traced(Some(tracer)) = rig.ask(0, Request::EndTrace) else {
        panic!("no trace");
    };
    tracer.traces()[0]
        .steps
        .iter()
        .map(|step| (step.node, step.exit))
        .collect()
}

/// Number of packets that the express lane has taken.
pub fn in_lane(rig: &Rig) -> u64 {
    rig.plane.counters()[0].nodes[NodeIndex::express as usize].packets.get()
}

/// Sends a burst of four packets to a router: the second one has expired, and the lane must take the others.
fn check_burst(rig: &mut Rig, frame: &Frame) {
    let expired = frame.clone().ttl(1);
    // The first packet resolves the adjacency of the gateway.
    rig.host_sends(frame);
    let before = in_lane(rig);
    for frame in [frame, &expired, frame, frame] {
        let bytes = frame.clone().macs(HOST_MAC, INSIDE_MAC).build();
        rig.wires[0].inject(INSIDE, &bytes, Checksums::Vouched);
    }
    rig.round();
    assert_eq!(4, rig.sent().len(), "an ICMP error answers the expired packet");
    assert_eq!(3, in_lane(rig) - before);
}

#[test]
fn lane_routes_plain_packets_of_a_burst_and_leaves_the_others() {
    for validation in [SourceValidation::Off, SourceValidation::Loose, SourceValidation::Strict] {
        let v4 = packet::udp4("192.168.1.10:5000", "198.51.100.7:53").payload(&[0; 26]);
        check_burst(&mut router(validation, false), &v4);
        let v6 = packet::udp6("[2001:db8:1::10]:5000", "[2001:db8:9::7]:53").payload(&[0; 26]);
        check_burst(&mut router(validation, false), &v6);
    }
}

#[test]
fn packets_of_a_flow_keep_their_order_if_another_worker_sends_them() {
    let mut rig = Rig::new(Plan {
        translate: false,
        workers: 2,
        stages: [vec![0], vec![0], vec![0], vec![1]],
        senders: vec![1],
        ..Plan::default()
    });
    let frame = |length| packet::udp4("192.168.1.10:5000", "198.51.100.7:53").payload(&vec![0; length]);
    // The first packet resolves the adjacency of the gateway.
    rig.host_sends(&frame(60));
    let before = in_lane(&rig);
    // The lane leaves datagrams that may be too short for their transport header.
    let lengths = [60, 8, 200, 9, 100];
    for length in lengths {
        let bytes = frame(length).macs(HOST_MAC, INSIDE_MAC).build();
        rig.wires[0].inject(INSIDE, &bytes, Checksums::Vouched);
    }
    rig.round();
    // The headers take 42 bytes.
    let sent: Vec<_> = rig.sent().iter().map(|sent| sent.frame.len() - 42).collect();
    assert_eq!(lengths.to_vec(), sent);
    assert_eq!(3, in_lane(&rig) - before);
}

#[test]
fn lane_routes_ipv6_of_a_gateway_that_translates_ipv4() {
    let frame = packet::udp6("[2001:db8:1::10]:5000", "[2001:db8:9::7]:53").payload(&[0; 26]);
    check_burst(&mut Rig::new(Plan::default()), &frame);
}

#[test]
fn plain_packet_takes_the_shorter_way_whatever_the_validation_of_sources() {
    for validation in [SourceValidation::Off, SourceValidation::Loose, SourceValidation::Strict] {
        let mut rig = router(validation, false);
        let frame = packet::udp4("192.168.1.10:5000", "198.51.100.7:53").payload(&[0; 26]);
        // The first packet resolves the adjacency of the gateway, which is cached for later packets.
        rig.host_sends(&frame);
        assert_eq!(
            vec![("parse", "ip4-fast-forward"), ("ip4-fast-forward", "transmit")],
            way(&mut rig, &frame)
        );
    }
}

#[test]
fn packet_behind_tags_takes_the_shorter_way_too() {
    for (link, [inside, _]) in LINKS.iter().enumerate() {
        let mut rig = router_on(link, SourceValidation::Loose, false);
        let frame = packet::udp4("192.168.1.10:5000", "198.51.100.7:53").payload(&[0; 26]);
        let frame = inside
            .iter()
            .fold(frame, |frame, &(protocol, vlan)| frame.tag(protocol, vlan));
        rig.host_sends(&frame);
        assert_eq!(
            vec![("parse", "ip4-fast-forward"), ("ip4-fast-forward", "transmit")],
            way(&mut rig, &frame),
            "{inside:?}"
        );
        // The priority of the tag does not change the path.
        if let Some((protocol, vlan)) = inside.first() {
            let mut frame = frame.macs(HOST_MAC, INSIDE_MAC).build();
            assert_eq!([protocol.to_be_bytes(), vlan.to_be_bytes()].concat(), frame[12..16]);
            frame[14] |= 0xe0;
            assert_eq!(1, rig.send(INSIDE, &frame).len());
            frame[15] ^= 1;
            assert_eq!(0, rig.send(INSIDE, &frame).len());
            assert_eq!(vec![("unknown-vlan", 1)], rig.all_drops());
        }
    }
}

#[test]
fn trace_by_address_and_port_finds_packets_on_the_shorter_way() {
    let mut rig = router(SourceValidation::Off, false);
    let filter = Filter {
        port: Some(53),
        address: Some(Prefix::new(plain("198.51.100.7"), 32)),
        ..Filter::default()
    };
    rig.ask(0, Request::Trace(Box::new(Tracer::new(filter, 9))));
    rig.host_sends(&packet::udp4("192.168.1.10:5000", "198.51.100.7:54").payload(&[0; 26]));
    rig.host_sends(&packet::udp4("192.168.1.10:5000", "198.51.100.7:53").payload(&[0; 26]));
    let Reply::Traced(Some(tracer)) = rig.ask(0, Request::EndTrace) else {
        panic!("no trace");
    };
    assert_eq!(1, tracer.traces().len());
}

#[test]
fn packet_that_takes_more_than_a_route_goes_on_at_forward() {
    let mut rig = router(SourceValidation::Loose, false);
    rig.host_sends(&packet::udp4("192.168.1.10:5000", "198.51.100.7:53").payload(&[0; 26]));
    let through = [("parse", "ip4-fast-forward"), ("ip4-fast-forward", "forward")];
    // The cases are: a source without a route, a destination without a route, and an address of the gateway itself.
    for (source, destination) in [
        ("172.16.0.1:5000", "198.51.100.7:53"),
        ("192.168.1.10:5000", "172.16.0.1:53"),
        ("192.168.1.10:5000", "192.168.1.1:53"),
    ] {
        let frame = packet::udp4(source, destination).payload(&[0; 26]);
        assert_eq!(through, way(&mut rig, &frame)[..2], "{source} {destination}");
    }
}

#[test]
fn router_without_services_does_not_judge_what_is_behind_the_ip_header_but_for_itself() {
    let sent = |rig: &mut Rig, from: &str, to: &str| rig.host_sends(&packet::tcp4(from, to).flags(0)).len();
    for long in [false, true] {
        let mut rig = router(SourceValidation::Off, long);
        rig.host_sends(&packet::udp4("192.168.1.10:5000", "198.51.100.7:53").payload(&[0; 26]));
        assert_eq!(1, sent(&mut rig, "192.168.1.10:5000", "198.51.100.7:53"));
        assert_eq!(0, sent(&mut rig, "192.168.1.10:5000", "192.168.1.1:22"));
        assert_eq!(vec![("no-flags", 1)], rig.all_drops());
    }
}

#[test]
fn router_without_services_drops_wrong_checksums_that_no_device_has_verified() {
    let mut rig = router(SourceValidation::Off, false);
    let mut frame = packet::udp4("192.168.1.10:5000", "198.51.100.7:53")
        .macs(HOST_MAC, INSIDE_MAC)
        .payload(&[0; 26])
        .build();
    frame[50] ^= 1;
    assert_eq!(0, rig.send(INSIDE, &frame).len());
    assert_eq!(vec![("bad-transport-checksum", 1)], rig.all_drops());
}

/// Random frames of a host or of the outside router, between addresses that match the routes.
pub fn frames(link: usize) -> impl Strategy<Value = Vec<(u16, Vec<u8>)>> {
    let whole = prop_oneof![
        4 => strategy::frame(),
        1 => strategy::fragment().prop_map(|(_, frame)| frame),
    ];
    let edits = vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    let frame = (
        whole,
        0..2u16,
        any::<u16>(),
        prop_oneof![3 => Just(Vec::new()), 1 => edits],
    );
    let frame = frame.prop_map(move |(mut frame, interface, choice, edits)| {
        let (source, destination) = match interface {
            INSIDE => (HOST_MAC, INSIDE_MAC),
            _ => (ROUTER_MAC, OUTSIDE_MAC),
        };
        if choice & 3 != 0 {
            frame.tags.clear();
            // The tags belong to this interface, or to another router's interface.
            let tags = LINKS[if choice & 0x100 == 0 {
                link
            } else {
                usize::from(choice >> 9) % LINKS.len()
            }];
            for &(protocol, vlan) in tags[usize::from(interface)] {
                frame = frame.tag(protocol, vlan | choice & 0xe000);
            }
        }
        if let Network::V4(header) = &mut frame.network {
            let near = [[192, 168, 1, 10], [10, 1, 1, 1], [10, 9, 1, 1], [172, 16, 1, 1]];
            let far = [[198, 51, 100, 7], [10, 1, 2, 3], [10, 9, 2, 3], [224, 0, 0, 5]];
            header.source = near[usize::from(choice >> 2 & 3)];
            header.destination = far[usize::from(choice >> 4 & 3)];
            header.time_to_live = [0, 1, 2, 64][usize::from(choice >> 6 & 3)];
        }
        if let Network::V6(header, _) = &mut frame.network {
            let near = ["2001:db8:1::10", "2001:db8:5::1", "fe80::1", "2001:db8:a::9"];
            let far = ["2001:db8:a::7", "2001:db8:1::10", "fd00::1", "ff02::1"];
            let address = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
            header.source = address(near[usize::from(choice >> 2 & 3)]);
            header.destination = address(far[usize::from(choice >> 4 & 3)]);
            header.hop_limit = [0, 1, 2, 64][usize::from(choice >> 6 & 3)];
        }
        let mut bytes = frame.macs(source, destination).build();
        for (place, byte) in edits {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        // Short frames are padded, as on Ethernet.
        bytes.resize(bytes.len().max(60), 0);
        (interface, bytes)
    });
    vec(frame, 1..40)
}

/// A router receives a burst. Returns the sent frames in a defined order: that of ICMP errors among the packets of a burst is not.
pub fn exchange(rig: &mut Rig, frames: &[(u16, Vec<u8>)], checksums: Checksums) -> Vec<(u16, Vec<u8>)> {
    for (interface, frame) in frames {
        rig.wires[0].inject(*interface, frame, checksums);
    }
    rig.round();
    let sent = rig.sent().into_iter();
    let mut sent = sent.map(|sent| (sent.port, sent.frame)).collect::<Vec<_>>();
    sent.sort_unstable();
    sent
}

/// Packets and bytes that were received and sent on an interface.
pub fn moved(rig: &Rig, interface: u16) -> [u64; 4] {
    let of = &rig.plane.counters()[0].interfaces[usize::from(interface)];
    [&of.received, &of.received_bytes, &of.sent, &of.sent_bytes].map(|count| count.get())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    #[test]
    fn both_ways_send_the_same_and_drop_for_the_same_reasons(
        (link, frames) in (0..LINKS.len()).prop_flat_map(|link| (Just(link), frames(link))),
        validation in prop::sample::select(vec![
            SourceValidation::Off,
            SourceValidation::Loose,
            SourceValidation::Strict,
        ]),
        checksums in prop::sample::select(vec![Checksums::Unverified, Checksums::Vouched]),
        burst in prop::sample::select(vec![1, 2, 5, 40]),
    ) {
        let (mut short, mut long) = (router_on(link, validation, false), router_on(link, validation, true));
        for frames in frames.chunks(burst) {
            prop_assert_eq!(exchange(&mut long, frames, checksums), exchange(&mut short, frames, checksums));
        }
        prop_assert_eq!(long.all_drops(), short.all_drops());
        for interface in [INSIDE, OUTSIDE] {
            prop_assert_eq!(moved(&long, interface), moved(&short, interface));
        }
        short.check();
    }
}

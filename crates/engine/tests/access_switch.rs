//! Tests of bridges between an untagged interface and a VLAN, as in an access switch. Frames that leave through the
//! trunk are tagged. Tagged frames that arrive on the trunk leave the access port without tags.

use std::net::Ipv4Addr;

use crate::rig::{self, HOST_MAC, INSIDE, OUTSIDE, Plan, ROUTER_MAC, Rig};
use proptest::prelude::*;
use sluice_engine::snapshot::shares::RouterShare;
use sluice_engine::snapshot::{Bridge, Interface, bridge_context};
use sluice_engine::worker::capture::{CaptureFilter, CapturePoint, Tap};
use sluice_engine::worker::request::{Reply, Request};
use sluice_testkit::packet::{self, Frame};
use sluice_testkit::strategy;
use sluice_wire::Checksums;
use sluice_wire::vlan::Tag;

/// The two interfaces on the trunk. One is bridged with the untagged port; the other belongs to a router.
const SITE: u16 = 2;
const ROUTED: u16 = 3;

fn vlan(number: u16, port: u16, tags: Vec<Tag>) -> Interface {
    let (snapshot, _) = rig::snapshot(&Plan::default());
    let like = snapshot.interfaces[usize::from(OUTSIDE)].clone();
    Interface {
        name: format!("vlan{number}"),
        port,
        tags,
        link: sluice_route::Interface {
            index: number,
            addresses: Vec::new(),
        },
        stateful: [false; 2],
        outside: false,
        ..like
    }
}

fn join(interfaces: &mut [Interface], one: u16, other: u16) {
    for (own, peer) in [(one, other), (other, one)] {
        let interface = &mut interfaces[usize::from(own)];
        interface.bridge = Some(Bridge {
            peer,
            drops_invalid: false,
            fails_open: false,
        });
        interface.context = bridge_context(usize::from(one));
        interface.mtu = 9000;
    }
}

/// An access port and a trunk. On the trunk, frames of the access port's site have the tags `tags`.
fn switch(interfaces: &mut Vec<Interface>, tags: Vec<Tag>) {
    interfaces.push(vlan(SITE, OUTSIDE, tags));
    join(interfaces, INSIDE, SITE);
}

fn single() -> Plan {
    Plan {
        translate: false,
        known_neighbours: false,
        interfaces: |interfaces| switch(interfaces, vec![Tag::vlan(7)]),
        ..Plan::default()
    }
}

fn double() -> Plan {
    Plan {
        interfaces: |interfaces| switch(interfaces, vec![Tag::service(100), Tag::vlan(7)]),
        ..single()
    }
}

fn udp() -> Frame {
    packet::udp4("10.0.0.1:5000", "10.0.0.2:5001")
        .macs(HOST_MAC, ROUTER_MAC)
        .payload(b"data")
}

/// A frame with these tags (TPID and identifier) in front of its own tags.
fn behind(tags: &[(u16, u16)], frame: &[u8]) -> Vec<u8> {
    let tags = tags
        .iter()
        .flat_map(|(protocol, id)| [protocol.to_be_bytes(), id.to_be_bytes()]);
    [&frame[..12], &tags.flatten().collect::<Vec<u8>>(), &frame[12..]].concat()
}

/// One frame of each kind that a site may send.
fn kinds() -> Vec<(&'static str, Vec<u8>)> {
    let address = Ipv4Addr::new(10, 0, 0, 1);
    let mut broken = udp().build();
    *broken.last_mut().unwrap() ^= 1;
    let mut of_no_protocol = udp().build();
    of_no_protocol[12..14].copy_from_slice(&0x8863u16.to_be_bytes());
    vec![
        ("plain", udp().build()),
        ("a request of ARP", packet::arp_request(HOST_MAC, address, address)),
        ("PPPoE", of_no_protocol),
        ("with a tag of the customer", udp().tag(0x8100, 9).build()),
        ("with two", udp().tag(0x88a8, 7).tag(0x8100, 9).build()),
        ("about to expire", udp().ttl(1).build()),
        ("with a wrong checksum", broken),
        ("full", udp().payload(&[7; 1472]).build()),
        ("padded", udp().padded(60).build()),
        ("of no more than a header", udp().build()[..14].to_vec()),
    ]
}

/// The sum of the pseudo-header. With checksum offload, a sender writes this sum to the checksum field of a UDP
/// datagram.
fn pseudo_header_sum(frame: &[u8]) -> u16 {
    let words = frame[26..34]
        .chunks(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum = words.sum::<u32>() + 17 + u32::from(u16::from_be_bytes([frame[38], frame[39]]));
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[track_caller]
fn across(rig: &mut Rig, from: u16, frame: &[u8]) -> Vec<Vec<u8>> {
    let sent = rig.send(from, frame);
    assert!(sent.iter().all(|sent| sent.port == 1 - from), "{sent:?}");
    sent.into_iter().map(|sent| sent.frame).collect()
}

/// Counters of an interface: received, sent and dropped frames.
fn counts(rig: &Rig, interface: u16) -> [u64; 3] {
    let all = rig
        .plane
        .counters()
        .iter()
        .map(|worker| &worker.interfaces[usize::from(interface)]);
    all.fold([0; 3], |[received, sent, dropped], one| {
        [
            received + one.received.get(),
            sent + one.sent.get(),
            dropped + one.all_drops(),
        ]
    })
}

#[test]
fn frames_of_every_kind_have_the_tags_on_the_trunk_and_not_on_the_port() {
    type Switch = (fn() -> Plan, &'static [(u16, u16)]);
    let tags: [Switch; 2] = [(single, &[(0x8100, 7)]), (double, &[(0x88a8, 100), (0x8100, 7)])];
    for (plan, tags) in tags {
        for workers in [1, 3] {
            let mut rig = Rig::new(Plan { workers, ..plan() });
            for (name, frame) in kinds() {
                let tagged = behind(tags, &frame);
                assert_eq!(vec![tagged.clone()], across(&mut rig, INSIDE, &frame), "{name}");
                assert_eq!(vec![frame.clone()], across(&mut rig, OUTSIDE, &tagged), "{name}");
            }
            let count = kinds().len() as u64;
            assert_eq!([count, count, 0], counts(&rig, INSIDE));
            assert_eq!([count, count, 0], counts(&rig, SITE));
            assert_eq!([0, 0, 0], counts(&rig, OUTSIDE));
            assert_eq!(0, rig.live());
            rig.check();
        }
    }
}

#[test]
fn priority_of_a_tag_does_not_matter_and_is_left_behind() {
    let mut rig = Rig::new(double());
    let frame = udp().build();
    let tagged = behind(&[(0x88a8, 0xe000 | 100), (0x8100, 0x1000 | 7)], &frame);
    assert_eq!(vec![frame], across(&mut rig, OUTSIDE, &tagged));
}

#[test]
fn priority_tag_is_taken_off_and_its_priority_goes_into_the_tags_of_the_trunk() {
    let frame = udp().build();
    for (plan, tags) in [
        (single(), vec![(0x8100, 7)]),
        (double(), vec![(0x88a8, 100), (0x8100, 7)]),
    ] {
        let mut rig = Rig::new(plan);
        for control in [0, 0xa000] {
            let priority = behind(&[(0x8100, control)], &frame);
            let with: Vec<_> = tags.iter().map(|(protocol, id)| (*protocol, id | control)).collect();
            assert_eq!(vec![behind(&with, &frame)], across(&mut rig, INSIDE, &priority));
            let tagged = behind(&[(0x8100, control)], &behind(&tags, &frame));
            assert_eq!(vec![frame.clone()], across(&mut rig, OUTSIDE, &tagged));
        }
    }
}

#[test]
fn frames_of_other_tags_or_none_do_not_come_to_the_site() {
    let mut rig = Rig::new(double());
    let frame = udp().build();
    let others: [&[(u16, u16)]; 5] = [
        &[(0x88a8, 100)],
        &[(0x8100, 100), (0x8100, 7)],
        &[(0x88a8, 100), (0x8100, 8)],
        &[(0x88a8, 100), (0x88a8, 7)],
        &[(0x8100, 7)],
    ];
    for tags in others {
        assert_eq!(0, across(&mut rig, OUTSIDE, &behind(tags, &frame)).len(), "{tags:?}");
    }
    assert_eq!(5, rig.drops("unknown-vlan"));
    assert_eq!(0, across(&mut rig, OUTSIDE, &frame).len());
    assert_eq!(1, rig.drops("not-our-mac"));
    assert_eq!([0, 0, 0], counts(&rig, SITE));
    assert_eq!([6, 0, 6], counts(&rig, OUTSIDE));
    // Every frame that arrives on the access port belongs to the site, independent of its tags.
    let mut own = udp().tag(0x88a8, 100).tag(0x8100, 8).build();
    assert_eq!(
        vec![behind(&[(0x88a8, 100), (0x8100, 7)], &own)],
        across(&mut rig, INSIDE, &own)
    );
    own.truncate(14);
    assert_eq!(
        1,
        across(&mut rig, INSIDE, &own[..14]).len() + rig.drops("short-frame") as usize
    );
    rig.check();
}

#[test]
fn frame_that_ends_within_its_header_is_dropped() {
    let mut rig = Rig::new(double());
    let frame = udp().build();
    assert_eq!(0, across(&mut rig, INSIDE, &frame[..13]).len());
    assert_eq!(
        0,
        across(&mut rig, OUTSIDE, &behind(&[(0x88a8, 100), (0x8100, 7)], &frame)[..21]).len()
    );
    assert_eq!(2, rig.drops("short-frame"));
    assert_eq!(([1, 0, 1], [1, 0, 1]), (counts(&rig, INSIDE), counts(&rig, SITE)));
    rig.check();
}

#[test]
fn frame_without_room_for_tags_is_dropped() {
    let mut rig = Rig::new(double());
    let frame = udp().build();
    for (headroom, expected) in [(7, 0), (8, 1)] {
        rig.wires[0].set_headroom(headroom);
        assert_eq!(expected, across(&mut rig, INSIDE, &frame).len(), "{headroom}");
    }
    assert_eq!(1, rig.drops("no-buffer"));
    assert_eq!(([2, 0, 1], [0, 1, 0]), (counts(&rig, INSIDE), counts(&rig, SITE)));
}

#[test]
fn invalid_frames_are_counted_or_dropped_as_the_bridge_says() {
    let dropping = Plan {
        interfaces: |interfaces| {
            switch(interfaces, vec![Tag::service(100), Tag::vlan(7)]);
            for interface in interfaces {
                interface
                    .bridge
                    .iter_mut()
                    .for_each(|bridge| bridge.drops_invalid = true);
            }
        },
        ..double()
    };
    let mut broken = udp().build();
    *broken.last_mut().unwrap() ^= 1;
    let tagged = behind(&[(0x88a8, 100), (0x8100, 7)], &broken);
    for (plan, passes) in [(double(), 1), (dropping, 0)] {
        let mut rig = Rig::new(plan);
        assert_eq!(passes, across(&mut rig, INSIDE, &broken).len());
        assert_eq!(passes, across(&mut rig, OUTSIDE, &tagged).len());
        assert_eq!(2 - 2 * passes as u64, rig.drops("bad-transport-checksum"));
    }
}

#[test]
fn checksum_that_was_left_to_a_card_is_completed_behind_the_tags() {
    let mut rig = Rig::new(double());
    let whole = udp().build();
    let mut remaining = whole.clone();
    remaining[40..42].copy_from_slice(&pseudo_header_sum(&whole).to_be_bytes());
    rig.wires[0].inject(INSIDE, &remaining, Checksums::PartialChecksum);
    rig.round();
    let sent: Vec<_> = rig
        .sent()
        .into_iter()
        .map(|sent| (sent.frame, sent.checksums))
        .collect();
    let expected = behind(&[(0x88a8, 100), (0x8100, 7)], &whole);
    assert_eq!(vec![(expected, Checksums::Vouched)], sent);
}

#[test]
fn two_vlans_of_one_trunk_reach_each_other() {
    let mut rig = Rig::new(Plan {
        interfaces: |interfaces| {
            interfaces.push(vlan(SITE, OUTSIDE, vec![Tag::vlan(7)]));
            interfaces.push(vlan(SITE + 1, OUTSIDE, vec![Tag::service(100), Tag::vlan(8)]));
            join(interfaces, SITE, SITE + 1);
        },
        ..single()
    });
    let frame = udp().build();
    let (one, two) = (
        behind(&[(0x8100, 7)], &frame),
        behind(&[(0x88a8, 100), (0x8100, 8)], &frame),
    );
    for (from, to) in [(&one, &two), (&two, &one)] {
        let sent = rig.send(OUTSIDE, from);
        assert_eq!(
            vec![(OUTSIDE, to)],
            sent.iter().map(|sent| (sent.port, &sent.frame)).collect::<Vec<_>>()
        );
    }
    assert_eq!(([1, 1, 0], [1, 1, 0]), (counts(&rig, SITE), counts(&rig, SITE + 1)));
}

/// A trunk that also has a VLAN of a router.
fn mixed(interfaces: &mut Vec<Interface>) {
    switch(interfaces, vec![Tag::vlan(7)]);
    let mut routed = vlan(ROUTED, OUTSIDE, vec![Tag::vlan(8)]);
    let address = sluice_route::Address::V4(rig::v4("198.51.100.1"));
    routed.link.addresses.push((address, 24));
    interfaces.push(routed);
}

#[test]
fn router_on_another_vlan_of_the_trunk_answers_and_the_site_goes_by() {
    let asks = packet::arp_request(HOST_MAC, Ipv4Addr::new(198, 51, 100, 9), Ipv4Addr::new(198, 51, 100, 1));
    let shares = Plan {
        snapshot: |snapshot| {
            let weight = |weight| RouterShare {
                weight: Some(weight),
                ..RouterShare::default()
            };
            snapshot.share_by(vec![weight(1)], Vec::new());
        },
        interfaces: mixed,
        ..single()
    };
    let plain = Plan {
        interfaces: mixed,
        ..single()
    };
    for plan in [plain, shares] {
        let mut rig = Rig::new(plan);
        let (site, routed) = (behind(&[(0x8100, 7)], &asks), behind(&[(0x8100, 8)], &asks));
        for frame in [&site, &routed] {
            rig.wires[0].inject(OUTSIDE, frame, Checksums::Unverified);
        }
        rig.round();
        let sent = rig.sent();
        let by = |port| {
            sent.iter()
                .filter(|sent| sent.port == port)
                .map(|sent| &sent.frame)
                .collect::<Vec<_>>()
        };
        assert_eq!(vec![&asks], by(INSIDE), "{:?}", rig.all_drops());
        assert_eq!(1, by(OUTSIDE).len());
        assert_eq!(HOST_MAC, by(OUTSIDE)[0][..6]);
        assert_eq!(([1, 0, 0], [1, 1, 0]), (counts(&rig, SITE), counts(&rig, ROUTED)));
        rig.check();
    }
}

#[test]
fn switch_is_cut_into_stages_like_everything_else() {
    let cuts: [[Vec<u16>; 4]; 3] = [
        [vec![0], vec![0], vec![1], vec![0]],
        [vec![0], vec![1], vec![2], vec![2]],
        [vec![0], vec![0], vec![1, 2], vec![0]],
    ];
    for stages in cuts {
        let mut rig = Rig::new(Plan {
            workers: 3,
            senders: stages[3].clone(),
            stages,
            ..double()
        });
        let frame = udp().build();
        let tagged = behind(&[(0x88a8, 100), (0x8100, 7)], &frame);
        assert_eq!(vec![tagged.clone()], across(&mut rig, INSIDE, &frame));
        assert_eq!(vec![frame], across(&mut rig, OUTSIDE, &tagged));
        rig.check();
    }
}

#[test]
fn capture_of_a_vlan_has_the_frames_as_they_are_on_the_trunk() {
    let mut rig = Rig::new(double());
    rig.ask(
        0,
        Request::Capture(Box::new(Tap::new(CaptureFilter::Interface(SITE), 8, 2000))),
    );
    let frame = udp().build();
    let tagged = behind(&[(0x88a8, 100), (0x8100, 7)], &frame);
    across(&mut rig, INSIDE, &frame);
    across(&mut rig, OUTSIDE, &tagged);
    let Reply::Captured(Some(tap)) = rig.ask(0, Request::EndCapture) else {
        panic!("no capture")
    };
    let seen: Vec<_> = tap.frames().map(|(copied, bytes)| (copied.seen, bytes)).collect();
    assert_eq!(
        vec![(CapturePoint::Sent, &tagged[..]), (CapturePoint::Received, &tagged[..])],
        seen
    );
}

/// Whether the first header after the MAC addresses is a tag of VLAN 0.
fn is_priority_tagged(frame: &[u8]) -> bool {
    match frame.get(12..16) {
        Some([0x81, 0x00, control, vlan] | [0x88, 0xa8, control, vlan]) => control & 0x0f == 0 && *vlan == 0,
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_frame_goes_there_and_comes_back_as_it_was(
        frames in proptest::collection::vec((strategy::frame(), any::<prop::sample::Index>(), any::<u8>()), 1..20),
        workers in 1..3usize,
    ) {
        let mut rig = Rig::new(Plan { workers, ..double() });
        for (frame, place, bits) in frames {
            let mut bytes = frame.build();
            let at = place.index(bytes.len());
            bytes[at] ^= bits;
            if is_priority_tagged(&bytes) {
                // The tag is removed; see the test
                // priority_tag_is_taken_off_and_its_priority_goes_into_the_tags_of_the_trunk.
                continue;
            }
            let sent = rig.send(INSIDE, &bytes);
            prop_assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
            prop_assert_eq!(OUTSIDE, sent[0].port);
            prop_assert_eq!(&behind(&[(0x88a8, 100), (0x8100, 7)], &bytes), &sent[0].frame);
            let back = rig.send(OUTSIDE, &sent[0].frame);
            prop_assert_eq!(vec![(INSIDE, &bytes)], back.iter().map(|sent| (sent.port, &sent.frame)).collect::<Vec<_>>());
            rig.check();
        }
    }

    #[test]
    fn nothing_is_lost_of_any_frame_on_a_trunk(
        frames in proptest::collection::vec((strategy::frame(), any::<prop::sample::Index>(), any::<u8>(), 0..4usize), 1..40),
    ) {
        let mut rig = Rig::new(Plan { interfaces: mixed, ..single() });
        let tags: [&[(u16, u16)]; 4] = [&[], &[(0x8100, 7)], &[(0x8100, 8)], &[(0x88a8, 7), (0x8100, 8)]];
        for (frame, place, bits, kind) in frames {
            let mut bytes = behind(tags[kind], &frame.build());
            let at = place.index(bytes.len());
            bytes[at] ^= bits.saturating_sub(128);
            rig.wires[0].inject(OUTSIDE, &bytes, Checksums::Unverified);
            rig.round();
            rig.check();
        }
    }
}

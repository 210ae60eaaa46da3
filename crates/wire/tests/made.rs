//! Tests of packets that a router creates. `etherparse` parses these packets, and the validity check accepts them.

use etherparse::{Ipv4Slice, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use sluice_testkit::packet::{self, *};
use sluice_testkit::strategy;
use sluice_wire::echo::Echo;
use sluice_wire::ethernet::{Link, multicast6};
use sluice_wire::fragments::Fragments;
use sluice_wire::{Checksums, Packet, Policy, Validity, Window, arp, icmp, icmpv6, ndp, parse, quoted, validate, vlan};

const LINK: Link = Link {
    source: [2, 0, 0, 0, 0, 7],
    destination: [2, 0, 0, 0, 0, 8],
};

/// Returns the frame that `make` writes, after a validity check.
fn made(make: impl FnOnce(&mut Packet<'_>) -> bool) -> Vec<u8> {
    // Fill the buffer with old contents, which must not appear in the packet.
    let mut room = [0xa5; 2048];
    let mut window = Window {
        start: 128,
        length: 0,
        checksums: Checksums::Unverified,
        changed: false,
    };
    let mut packet = Packet::new(&mut room, &mut window);
    assert!(make(&mut packet));
    let bytes = packet.bytes().to_vec();
    let layers = parse(&bytes).unwrap();
    assert_eq!(
        Ok(Validity::Valid),
        validate(&bytes, Checksums::Unverified, &layers, &Policy::default())
    );
    bytes
}

/// ICMP or ICMPv6 type, code, second word and body.
fn message(bytes: &[u8]) -> (u8, u8, [u8; 4], Vec<u8>) {
    match SlicedPacket::from_ethernet(bytes).unwrap().transport.unwrap() {
        TransportSlice::Icmpv4(icmp) => (
            icmp.type_u8(),
            icmp.code_u8(),
            icmp.bytes5to8(),
            icmp.payload().to_vec(),
        ),
        TransportSlice::Icmpv6(icmp) => (
            icmp.type_u8(),
            icmp.code_u8(),
            icmp.bytes5to8(),
            icmp.payload().to_vec(),
        ),
        other => panic!("{other:?}"),
    }
}

#[test]
fn arp_messages_equal_those_of_another_builder() {
    let (own, asked) = (0x0a00_0001, 0x0a00_0002);
    let request = made(|packet| arp::emit_request(packet, LINK.source, own, asked));
    assert_eq!(arp_request(LINK.source, "10.0.0.1", "10.0.0.2"), request);
    let reply = made(|packet| arp::emit_reply(packet, LINK, own, asked));
    assert_eq!(arp_reply(LINK.source, "10.0.0.1", LINK.destination, "10.0.0.2"), reply);
}

#[test]
fn errors_quote_what_576_and_1280_bytes_hold() {
    let sent = udp4("10.0.0.1:1", "192.0.2.1:2").payload(&[7; 1400]).build();
    let datagram = parse(&sent).unwrap().datagram(&sent);
    let error = icmp::Error::fragmentation_needed(1280);
    let bytes = made(|packet| icmp::emit_error(packet, LINK, 0xc000_0209, 0x0a00_0001, error, datagram));
    assert_eq!(14 + 576, bytes.len());
    assert_eq!((3, 4, [0, 0, 5, 0], datagram[..548].to_vec()), message(&bytes));
    let layers = parse(&bytes).unwrap();
    assert_eq!(
        parse(&sent).unwrap().key4(&sent, 1),
        quoted(&bytes, &layers).unwrap().key4(&bytes, 1)
    );
    assert!(!icmp::may_send_error(&bytes, &layers));

    let sent = udp6("[2001:db8::1]:1", "[2001:db8:1::1]:2").payload(&[7; 1400]).build();
    let datagram = parse(&sent).unwrap().datagram(&sent);
    let error = icmpv6::packet_too_big(1300);
    let (from, to) = (0x2001_0db8_u128 << 96 | 9, 0x2001_0db8_u128 << 96 | 1);
    let bytes = made(|packet| icmpv6::emit_error(packet, LINK, from, to, error, datagram));
    assert_eq!(14 + 1280, bytes.len());
    assert_eq!(
        (2, 0, 1300u32.to_be_bytes(), datagram[..1232].to_vec()),
        message(&bytes)
    );
    assert!(!icmpv6::may_send_error(&bytes, &parse(&bytes).unwrap(), true));
}

#[test]
fn errors_may_be_sent_about_packets_of_single_hosts_only() {
    let may = |frame: Frame| {
        let bytes = frame.build();
        icmp::may_send_error(&bytes, &parse(&bytes).unwrap())
    };
    assert!(may(udp4("10.0.0.1:1", "192.0.2.1:2")));
    assert!(may(icmp4_echo("10.0.0.1", "192.0.2.1", 1, 1)));
    assert!(!may(udp4("10.0.0.1:1", "224.0.0.5:2")));
    assert!(!may(udp4("10.0.0.1:1", "255.255.255.255:2")));
    assert!(!may(udp4("0.0.0.0:1", "192.0.2.1:2")));
    assert!(!may(udp4("10.0.0.1:1", "192.0.2.1:2").macs([2; 6], [0xff; 6])));
    assert!(!may(udp4("10.0.0.1:1", "192.0.2.1:2")
        .payload(&[0; 8])
        .fragment(3, false, 1)));
    let group = udp6("[2001:db8::1]:1", "[ff05::1]:2").build();
    let layers = parse(&group).unwrap();
    assert_eq!(
        (false, true),
        (
            icmpv6::may_send_error(&group, &layers, false),
            icmpv6::may_send_error(&group, &layers, true)
        )
    );
}

#[test]
fn echo_requests_are_answered_in_place() {
    let mut bytes = icmp4_echo("10.0.0.1", "192.0.2.1", 77, 5)
        .tag(0x8100, 3)
        .payload(b"abc")
        .ttl(3)
        .build();
    let layers = parse(&bytes).unwrap();
    assert!(icmp::answer_echo(&mut bytes, &layers, 0xc000_0201));
    assert_eq!(
        icmp4_echo_reply("192.0.2.1", "10.0.0.1", 77, 5)
            .tag(0x8100, 3)
            .payload(b"abc")
            .build(),
        bytes
    );
    assert!(!icmp::answer_echo(&mut bytes, &layers, 0xc000_0201));

    let mut bytes = icmp6_echo("2001:db8::1", "ff02::1", 77, 5).payload(b"abc").build();
    let layers = parse(&bytes).unwrap();
    assert!(icmpv6::answer_echo(&mut bytes, &layers, 0x2001_0db8_u128 << 96 | 2));
    let mut expected = icmp6_echo("2001:db8::2", "2001:db8::1", 77, 5).payload(b"abc");
    expected.transport = Transport::Icmp6(Icmpv6Type::EchoReply(IcmpEchoHeader { id: 77, seq: 5 }));
    assert_eq!(expected.build(), bytes);
}

#[test]
fn echo_requests_that_are_made_read_as_such_and_their_replies_are_told() {
    let echo = Echo {
        identifier: 0x1234,
        sequence: 0x5678,
        data: 0x0102_0304_0506_0708,
    };
    let data = vec![1, 2, 3, 4, 5, 6, 7, 8];
    let second = [0x12, 0x34, 0x56, 0x78];
    let (own, asked) = (0xc000_0201, 0xc633_6409);
    let four = made(|packet| echo.emit4(packet, LINK, own, asked));
    assert_eq!((8, 0, second, data.clone()), message(&four));
    let (own6, asked6) = (0x2001_0db8 << 96 | 1, 0x2001_0db8 << 96 | 9);
    let six = made(|packet| echo.emit6(packet, LINK, own6, asked6));
    assert_eq!((128, 0, second, data.clone()), message(&six));
    let replied = |frame: &[u8]| Echo::replied(frame, &parse(frame).unwrap());
    assert_eq!([None, None], [replied(&four), replied(&six)]);
    // A host's reply to the echo request.
    let mut reply = six.clone();
    let layers = parse(&reply).unwrap();
    assert!(icmpv6::answer_echo(&mut reply, &layers, asked6));
    assert_eq!(Some(echo), replied(&reply));
    let reply = icmp4_echo_reply("198.51.100.9", "192.0.2.1", 0x1234, 0x5678);
    assert_eq!(Some(echo), replied(&reply.clone().payload(&data).build()));
    // A reply with less data is rejected, and a fragmented reply is rejected.
    assert_eq!(None, replied(&reply.clone().payload(&data[..7]).build()));
    assert_eq!(None, replied(&reply.payload(&data).fragment(0, true, 7).build()));
}

#[test]
fn neighbour_messages_equal_those_of_another_builder() {
    let (own, asked) = (ndp::link_local(LINK.source), 0xfe80_u128 << 112 | 0x1234_5678);
    assert_eq!("fe80::ff:fe00:7".parse::<std::net::Ipv6Addr>().unwrap().to_bits(), own);
    let group = ndp::solicited_node(asked);
    let link = Link {
        source: LINK.source,
        destination: multicast6(group),
    };
    let solicitation = made(|packet| ndp::emit_solicitation(packet, link, own, group, asked));
    let option = |kind| [kind, 1, 2, 0, 0, 0, 0, 7];
    let expected = neighbour(
        "fe80::ff:fe00:7",
        "ff02::1:ff34:5678",
        135,
        0,
        "fe80::1234:5678",
        &option(1),
    );
    assert_eq!(
        expected.macs(LINK.source, [0x33, 0x33, 0xff, 0x34, 0x56, 0x78]).build(),
        solicitation
    );

    let detection = made(|packet| ndp::emit_solicitation(packet, link, 0, group, asked));
    let found = ndp::read(&detection, &parse(&detection).unwrap());
    assert_eq!(
        Ok(Some(ndp::Message::NeighbourSolicitation {
            target: asked,
            source_link: None
        })),
        found
    );

    let flags = ndp::Advertised {
        router: true,
        solicited: true,
        overriding: true,
    };
    let advertisement = made(|packet| ndp::emit_advertisement(packet, LINK, (own, asked), own, flags));
    let expected = neighbour(
        "fe80::ff:fe00:7",
        "fe80::1234:5678",
        136,
        0xe000_0000,
        "fe80::ff:fe00:7",
        &option(2),
    );
    assert_eq!(expected.macs(LINK.source, LINK.destination).build(), advertisement);
}

#[test]
fn router_advertisement_says_prefixes_and_mtu() {
    let prefix = ndp::Prefix {
        address: 0x2001_0db8_u128 << 96,
        length: 64,
        on_link: true,
        autonomous: true,
        valid: 86_400,
        preferred: 14_400,
    };
    let router = ndp::Router {
        hop_limit: 64,
        managed: false,
        other: true,
        lifetime: 1800,
        mtu: Some(1500),
        prefixes: &[
            prefix,
            ndp::Prefix {
                length: 48,
                autonomous: false,
                ..prefix
            },
        ],
    };
    let own = ndp::link_local(LINK.source);
    let bytes = made(|packet| ndp::emit_router(packet, LINK, (own, ndp::ALL_NODES), &router));
    let expected = ndp::Message::RouterAdvertisement {
        lifetime: 1800,
        source_link: Some(LINK.source),
    };
    assert_eq!(Ok(Some(expected)), ndp::read(&bytes, &parse(&bytes).unwrap()));
    let (kind, code, word, body) = message(&bytes);
    assert_eq!((134, 0, [64, 0x40, 7, 8]), (kind, code, word));
    assert_eq!([1, 1, 2, 0, 0, 0, 0, 7, 5, 1, 0, 0, 0, 0, 5, 220], body[8..24]);
    assert_eq!(
        [
            3, 4, 64, 0xc0, 0, 1, 0x51, 0x80, 0, 0, 0x38, 0x40, 0, 0, 0, 0, 0x20, 1, 0x0d, 0xb8
        ],
        body[24..44]
    );
    assert_eq!([3, 4, 48, 0x80], body[56..60]);
    assert_eq!(88, body.len());
}

#[test]
fn makers_without_room_do_nothing() {
    let mut room = [0xa5; 64];
    let mut window = Window {
        start: 32,
        length: 4,
        checksums: Checksums::Unverified,
        changed: false,
    };
    let mut packet = Packet::new(&mut room, &mut window);
    assert!(!arp::emit_request(&mut packet, LINK.source, 1, 2));
    assert!(!icmp::emit_error(
        &mut packet,
        LINK,
        1,
        2,
        icmp::Error::TIME_EXCEEDED,
        &[0; 28]
    ));
    assert!(!ndp::emit_solicitation(&mut packet, LINK, 1, 2, 2));
    assert_eq!([0xa5; 4], packet.bytes());
}

#[test]
fn tags_pushed_and_popped_leave_the_frame() {
    let plain = udp4("10.0.0.1:1", "192.0.2.1:2").payload(b"abc");
    let (mut room, mut window) = packet::room(&plain.build());
    let mut lent = Packet::new(&mut room, &mut window);
    assert!(vlan::push(&mut lent, vlan::Tag::vlan(6)) && vlan::push(&mut lent, vlan::Tag::service(5)));
    assert_eq!(plain.clone().tag(0x88a8, 5).tag(0x8100, 6).build(), lent.bytes());
    assert_eq!(Some(vlan::Tag::service(5)), vlan::pop(&mut lent));
    assert_eq!(Some(vlan::Tag::vlan(6)), vlan::pop(&mut lent));
    assert_eq!(None, vlan::pop(&mut lent));
    assert_eq!(plain.build(), lent.bytes());
}

/// Reassembles the payload of a datagram from fragments, and validates each fragment.
fn reassembled(frames: &[Vec<u8>], l3: usize, mtu: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    for (k, bytes) in frames.iter().enumerate() {
        let ip = Ipv4Slice::from_slice(&bytes[l3..]).unwrap();
        let header = ip.header().to_header();
        assert_eq!(header.calc_header_checksum(), header.header_checksum);
        assert_eq!(payload.len(), header.fragment_offset.value() as usize * 8);
        assert_eq!(k + 1 < frames.len(), header.more_fragments);
        assert!(header.total_len as usize <= mtu);
        payload.extend_from_slice(ip.payload().payload);
    }
    payload
}

proptest! {
    #[test]
    fn fragments_put_together_are_the_datagram(frame in strategy::frame(), mtu in 68u16..1500) {
        let bytes = frame.build();
        let layers = parse(&bytes).unwrap();
        let Network::V4(header) = &frame.network else {
            prop_assert!(Fragments::new(&bytes, &layers, mtu).is_none());
            return Ok(());
        };
        let cut = Fragments::new(&bytes, &layers, mtu).unwrap();
        let mut room = [0xa5; 2048];
        let frames: Vec<Vec<u8>> = (0..cut.len())
            .map(|k| {
                let mut window = Window { start: 128, length: 0, checksums: Checksums::Unverified, changed: false };
                let mut packet = Packet::new(&mut room, &mut window);
                assert!(cut.emit(k, &mut packet));
                packet.bytes().to_vec()
            })
            .collect();
        prop_assert_eq!(layers.payload(&bytes), &reassembled(&frames, layers.l3 as usize, mtu as usize)[..]);
        // Later fragments contain only options with the copy flag (RFC 791). Record route and timestamp options lack
        // the copy flag.
        let copied = header.options.first().is_some_and(|kind| kind & 0x80 != 0);
        for later in frames.iter().skip(1) {
            let options = if copied { &header.options[..] } else { &[] };
            prop_assert_eq!(20 + options.len(), (later[layers.l3 as usize] & 15) as usize * 4);
        }
    }
}

//! Tests of the validity check: a frame for every fault, and frames without fault.

use sluice_testkit::packet::*;
use sluice_wire::{Checksums, Fault, Policy, Validity, complete_checksum, ndp, parse, quoted, validate};

fn verdict(bytes: &[u8], checksums: Checksums) -> Result<Validity, Fault> {
    parse(bytes).and_then(|layers| validate(bytes, checksums, &layers, &Policy::default()))
}

/// A frame with some bytes overwritten.
fn with(frame: Frame, changes: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = frame.build();
    changes.iter().for_each(|(at, value)| bytes[*at] = *value);
    bytes
}

fn tcp() -> Frame {
    tcp4("10.0.0.1:4000", "192.0.2.1:80").payload(b"GET / HTTP")
}

fn udp() -> Frame {
    udp4("10.0.0.1:4000", "192.0.2.1:53").payload(b"who is where")
}

fn udp_over_6() -> Frame {
    udp6("[2001:db8::1]:4000", "[2001:db8:1::1]:53").payload(b"who is where")
}

/// An IPv6 frame with raw bytes of this protocol after the IPv6 header.
fn raw6(protocol: u8, payload: &[u8]) -> Frame {
    let transport = Transport::Raw(IpNumber(protocol));
    frame6(
        "2001:db8::1".parse().unwrap(),
        "2001:db8:1::1".parse().unwrap(),
        transport,
    )
    .payload(payload)
}

/// Faulty frames whose checksums the device has not verified.
fn faulty() -> Vec<(Fault, Vec<u8>)> {
    let segment = [0, 80, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0];
    let raw4 = |payload: &[u8], protocol: u8| {
        let transport = Transport::Raw(IpNumber(protocol));
        frame4("10.0.0.1".parse().unwrap(), "192.0.2.1".parse().unwrap(), transport).payload(payload)
    };
    let mut offset60 = segment;
    offset60[12] = 0xf0;
    vec![
        (Fault::ShortFrame, tcp().build()[..13].to_vec()),
        (Fault::ShortFrame, tcp().tag(0x8100, 1).build()[..16].to_vec()),
        (Fault::LongFrame, vec![0; 65_536]),
        (
            Fault::TooManyTags,
            tcp().tag(0x8100, 1).tag(0x8100, 2).tag(0x8100, 3).build(),
        ),
        (
            Fault::BadArp,
            arp_request(SOURCE_MAC, "10.0.0.1", "10.0.0.2")[..41].to_vec(),
        ),
        (Fault::BadVersion, with(tcp(), &[(14, 0x65)])),
        (Fault::BadVersion, with(udp_over_6(), &[(14, 0x40)])),
        (Fault::BadHeaderLength, with(tcp(), &[(14, 0x44)])),
        (
            Fault::BadHeaderLength,
            with(udp4("1.1.1.1:1", "2.2.2.2:2"), &[(14, 0x4f)]),
        ),
        (Fault::BadTotalLength, with(tcp(), &[(17, 19)])),
        (Fault::BadTotalLength, with(tcp(), &[(16, 1)])),
        (Fault::BadTotalLength, with(udp_over_6(), &[(18, 1)])),
        (
            Fault::BadOptions,
            tcp()
                .options(&[7, 7, 4, 0, 0, 0, 0, 2])
                .options(&[7, 9, 4, 0, 0, 0, 0, 2])
                .build(),
        ),
        (Fault::BadOptions, raw6(60, &[17, 1, 0, 0, 0, 0, 0, 0]).build()),
        (Fault::SourceRoute, tcp().options(&[131, 7, 4, 192, 0, 2, 9, 0]).build()),
        (Fault::SourceRoute, raw6(43, &[17, 0, 0, 1, 0, 0, 0, 0]).build()),
        (
            Fault::BadOptions,
            raw6(60, &[60, 0, 1, 4, 0, 0, 0, 0].repeat(9)).build(),
        ),
        (
            Fault::MisplacedExtension,
            raw6(60, &[0, 0, 1, 4, 0, 0, 0, 0].repeat(3)).build(),
        ),
        (
            Fault::MisplacedExtension,
            raw6(44, &[44, 0, 0, 0, 0, 0, 0, 0].repeat(3)).build(),
        ),
        (Fault::ShortTransport, raw4(&segment[..19], 6).padded(60).build()),
        (Fault::ShortTransport, raw4(&segment[..7], 17).padded(60).build()),
        (Fault::ShortTransport, raw6(58, &[128, 0, 0, 0]).build()),
        (Fault::BadUdpLength, with(udp(), &[(39, 7)])),
        (Fault::BadUdpLength, with(udp(), &[(39, 21)])),
        (Fault::BadTcpOffset, with(tcp(), &[(46, 0x40)])),
        (Fault::BadTcpOffset, with(tcp(), &[(46, 0x80)])),
        (Fault::BadHeaderChecksum, with(tcp(), &[(22, 63)])),
        (Fault::BadTransportChecksum, with(tcp(), &[(60, b'!')])),
        (Fault::BadTransportChecksum, with(udp(), &[(50, b'!')])),
        (
            Fault::BadTransportChecksum,
            with(icmp4_echo("10.0.0.1", "192.0.2.1", 1, 1), &[(39, 2)]),
        ),
        (
            Fault::BadTransportChecksum,
            with(icmp6_echo("2001:db8::1", "2001:db8::2", 1, 1), &[(59, 2)]),
        ),
        (Fault::MartianSource, tcp4("127.0.0.1:1", "192.0.2.1:80").build()),
        (Fault::MartianSource, tcp4("0.1.2.3:1", "192.0.2.1:80").build()),
        (Fault::MartianSource, tcp4("224.0.0.1:1", "192.0.2.1:80").build()),
        (Fault::MartianSource, udp4("255.255.255.255:1", "192.0.2.1:80").build()),
        (Fault::MartianSource, udp4("0.0.0.0:68", "192.0.2.1:67").build()),
        (Fault::MartianSource, udp6("[::]:1", "[2001:db8::1]:2").build()),
        (Fault::MartianSource, udp6("[::1]:1", "[2001:db8::1]:2").build()),
        (Fault::MartianSource, udp6("[ff02::1]:1", "[2001:db8::1]:2").build()),
        (
            Fault::MartianSource,
            udp6("[::ffff:10.0.0.1]:1", "[2001:db8::1]:2").build(),
        ),
        (Fault::MartianDestination, tcp4("10.0.0.1:1", "127.0.0.1:80").build()),
        (Fault::MartianDestination, tcp4("10.0.0.1:1", "0.0.0.0:80").build()),
        (Fault::MartianDestination, tcp4("10.0.0.1:1", "250.0.0.1:80").build()),
        (Fault::MartianDestination, udp6("[2001:db8::1]:2", "[::]:1").build()),
        (Fault::MartianDestination, udp6("[2001:db8::1]:2", "[::1]:1").build()),
        (
            Fault::MartianDestination,
            udp6("[2001:db8::1]:2", "[ff01::1]:1").build(),
        ),
        (Fault::Land, tcp4("10.0.0.1:1", "10.0.0.1:1").build()),
        (Fault::Land, udp6("[2001:db8::1]:2", "[2001:db8::1]:1").build()),
        (
            Fault::TinyFragment,
            raw4(&segment[..16], 6).fragment(0, true, 1).build(),
        ),
        (
            Fault::TinyFragment,
            raw4(&[&offset60[..], &[0; 4]].concat(), 6).fragment(0, true, 1).build(),
        ),
        (
            Fault::TinyFragment,
            raw6(44, &[60, 0, 0, 1, 0, 0, 0, 1, 17, 2, 0, 0, 0, 0, 0, 0]).build(),
        ),
        (
            Fault::HeaderOverlap,
            raw4(&segment[..16], 6).fragment(1, true, 1).build(),
        ),
        (
            Fault::HeaderOverlap,
            raw6(44, &[6, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]).build(),
        ),
        (
            Fault::FragmentTooLong,
            raw4(&[0; 32], 17).fragment(8188, false, 1).build(),
        ),
        (
            Fault::FragmentTooLong,
            raw6(44, &[&[17, 0, 0xff, 0xf8, 0, 0, 0, 1][..], &[0; 8]].concat()).build(),
        ),
        (
            Fault::BadFragmentLength,
            raw4(&[0; 30], 17).fragment(5, true, 1).build(),
        ),
        (Fault::BadFragmentLength, raw4(&[], 17).fragment(5, true, 1).build()),
        (
            Fault::BadFragmentLength,
            raw6(44, &[17, 0, 0, 0x11, 0, 0, 0, 1, 0, 0]).build(),
        ),
        (Fault::SynFin, tcp().flags(flag::SYN | flag::FIN).build()),
        (Fault::SynReset, tcp().flags(flag::SYN | flag::RST | flag::ACK).build()),
        (Fault::NoFlags, tcp().flags(0).build()),
    ]
}

#[test]
fn validity_of_faulty_frames_names_the_fault() {
    // Header bytes were changed after the header checksum was computed, so it is computed again, except in tests of bad
    // header checksums.
    for (fault, bytes) in faulty() {
        let capture = sluice_testkit::capture::on_failure("validity-of-faulty-frames", [&bytes]);
        let mut bytes = bytes;
        if let Ok(layers) = parse(&bytes)
            && layers.class == sluice_wire::Class::Ipv4
            && fault != Fault::BadHeaderChecksum
        {
            sluice_wire::ipv4::Ipv4::new(layers.datagram_mut(&mut bytes))
                .unwrap()
                .fill_checksum();
        }
        assert_eq!(Err(fault), verdict(&bytes, Checksums::Unverified), "{bytes:x?}");
        let of_checksums = [Fault::BadHeaderChecksum, Fault::BadTransportChecksum];
        let vouched = if of_checksums.contains(&fault) {
            Ok(Validity::Valid)
        } else {
            Err(fault)
        };
        assert_eq!(vouched, verdict(&bytes, Checksums::Vouched), "{bytes:x?}");
        drop(capture);
    }
}

#[test]
fn validity_of_udp_without_checksum_is_valid_in_both_families() {
    for bytes in [
        with(udp(), &[(40, 0), (41, 0)]),
        with(udp_over_6(), &[(60, 0), (61, 0)]),
    ] {
        for checksums in [Checksums::Unverified, Checksums::Vouched, Checksums::BadL4] {
            assert_eq!(Ok(Validity::Valid), verdict(&bytes, checksums), "{checksums:?}");
        }
    }
}

#[test]
fn validity_of_faults_by_device_names_them() {
    let bytes = tcp().build();
    assert_eq!(Err(Fault::BadHeaderChecksum), verdict(&bytes, Checksums::BadL3));
    assert_eq!(Err(Fault::BadTransportChecksum), verdict(&bytes, Checksums::BadL4));
    assert_eq!(
        Ok(Validity::PartialChecksum),
        verdict(&bytes, Checksums::PartialChecksum)
    );
    let fragment = udp().fragment(0, true, 1).payload(&[0; 16]).build();
    assert_eq!(
        Err(Fault::OffloadOnFragment),
        verdict(&fragment, Checksums::PartialChecksum)
    );
}

#[test]
fn faults_all_have_a_frame_that_shows_them() {
    let elsewhere = [
        Fault::OffloadOnFragment,
        Fault::BadNeighbourMessage,
        Fault::NotAnError,
        Fault::ShortQuote,
        Fault::QuotedFragment,
        Fault::QuotedError,
        Fault::QuotedChecksum,
    ];
    let shown: Vec<Fault> = faulty().into_iter().map(|(fault, _)| fault).chain(elsewhere).collect();
    for fault in Fault::ALL {
        assert!(shown.contains(fault), "no frame shows {}", fault.name());
    }
}

#[test]
fn validity_of_unusual_frames_is_valid() {
    let redirected = raw6(43, &[17, 0, 2, 1, 0, 0, 0, 0, 0, 7, 0, 7, 0, 8, 0xbe, 0xef]);
    let frames = [
        (
            "a client without address",
            udp4("0.0.0.0:68", "255.255.255.255:67").build(),
        ),
        ("multicast", udp4("10.0.0.1:1", "224.0.0.251:5353").build()),
        ("no UDP checksum", with(udp(), &[(40, 0), (41, 0)])),
        (
            "UDP shorter than its datagram",
            with(
                udp4("10.0.0.1:1", "10.0.0.2:2").payload(&[0; 8]),
                &[(39, 8), (41, 0), (40, 0)],
            ),
        ),
        (
            "duplicate address detection",
            neighbour("::", "ff02::1:ff00:2", 135, 0, "fe80::2", &[]).build(),
        ),
        (
            "don't fragment and more fragments",
            udp().dont_fragment().payload(&[0; 16]).fragment(0, true, 1).build(),
        ),
        ("a checksum for the last of several destinations", redirected.build()),
        ("an atomic fragment", udp_over_6().fragment(0, false, 1).build()),
        ("ARP", arp_request(SOURCE_MAC, "10.0.0.1", "10.0.0.2")),
        ("another protocol", vec![0; 60]),
    ];
    for (name, bytes) in frames {
        assert_eq!(Ok(Validity::Valid), verdict(&bytes, Checksums::Unverified), "{name}");
    }
}

#[test]
fn policy_without_martians_and_source_routes_lets_them_pass() {
    let policy = Policy {
        martians: false,
        reserved: false,
        source_routes: false,
        headers: true,
    };
    for bytes in [
        tcp4("127.0.0.1:1", "127.0.0.1:80").build(),
        udp6("[::1]:2", "[::1]:1").build(),
        tcp().options(&[131, 7, 4, 192, 0, 2, 9, 0]).build(),
    ] {
        let layers = parse(&bytes).unwrap();
        assert_eq!(
            Ok(Validity::Valid),
            validate(&bytes, Checksums::Unverified, &layers, &policy)
        );
    }
}

#[test]
fn checksum_left_to_offload_is_told_and_completed() {
    let frames = [
        tcp().build(),
        udp().build(),
        udp_over_6().build(),
        tcp6("[2001:db8::1]:1", "[2001:db8::2]:2")
            .tag(0x8100, 3)
            .payload(b"x")
            .build(),
    ];
    for right in frames {
        let layers = parse(&right).unwrap();
        let payload = layers.payload(&right);
        let key = layers.key4(&right, 0).tuple();
        let length = payload.len() as u16;
        let pseudo = match layers.class {
            sluice_wire::Class::Ipv4 => {
                sluice_wire::checksum::pseudo4(key.source, key.destination, layers.protocol, length)
            }
            _ => sluice_wire::checksum::pseudo6(
                sluice_wire::ipv6::SOURCE.read(layers.datagram(&right)),
                sluice_wire::ipv6::DESTINATION.read(layers.datagram(&right)),
                layers.protocol,
                length,
            ),
        };
        let at = layers.l4 as usize + if layers.protocol == 6 { 16 } else { 6 };
        let mut left = right.clone();
        left[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
        assert_eq!(Ok(Validity::PartialChecksum), verdict(&left, Checksums::Unverified));
        complete_checksum(&mut left, &layers);
        assert_eq!(right, left);
    }
}

#[test]
fn quote_of_an_error_is_found_with_8_bytes_of_transport() {
    let sent = tcp4("10.0.0.1:4000", "192.0.2.1:80").options(&[148, 4, 0, 0]).build();
    let bytes = icmp4_error("192.0.2.9", "10.0.0.1", 11, 0, &sent, 32)
        .tag(0x8100, 4)
        .build();
    let layers = parse(&bytes).unwrap();
    let quote = quoted(&bytes, &layers).unwrap();
    assert_eq!((46, 70, 78), (quote.layers.l3, quote.layers.l4, quote.layers.end));
    assert_eq!(parse(&sent).unwrap().key4(&sent, 3), quote.key4(&bytes, 3));

    let sent = udp_over_6().build();
    let bytes = icmp6_error("2001:db8:9::9", "2001:db8::1", 2, 0, &sent, 1000).build();
    let quote = quoted(&bytes, &parse(&bytes).unwrap()).unwrap();
    assert_eq!(parse(&sent).unwrap().key6(&sent, 3), quote.key6(&bytes, 3));
    assert_eq!(bytes.len(), quote.layers.end as usize);

    let sent = icmp4_echo("10.0.0.1", "192.0.2.1", 77, 1).build();
    let bytes = icmp4_error("192.0.2.9", "10.0.0.1", 3, 1, &sent, 28).build();
    let quote = quoted(&bytes, &parse(&bytes).unwrap()).unwrap();
    assert_eq!((77, 77 + 8), (quote.layers.source_port, quote.layers.destination_port));
}

#[test]
fn quote_of_no_use_names_the_fault() {
    let quote_of = |sent: &[u8], quote: usize| {
        let bytes = icmp4_error("192.0.2.9", "10.0.0.1", 11, 0, sent, quote).build();
        quoted(&bytes, &parse(&bytes).unwrap())
    };
    let sent = tcp().build();
    assert_eq!(Err(Fault::ShortQuote), quote_of(&sent, 27));
    assert_eq!(Err(Fault::ShortQuote), quote_of(&sent, 19));
    assert_eq!(Err(Fault::QuotedChecksum), quote_of(&with(tcp(), &[(22, 9)]), 28));
    assert_eq!(
        Err(Fault::QuotedFragment),
        quote_of(&udp().fragment(3, false, 1).build(), 28)
    );
    let error = icmp4_error("192.0.2.9", "10.0.0.1", 11, 0, &sent, 28).build();
    assert_eq!(Err(Fault::QuotedError), quote_of(&error, 28));
    assert_eq!(Err(Fault::NotAnError), quoted(&sent, &parse(&sent).unwrap()));
}

#[test]
fn neighbour_messages_are_read_and_bad_ones_refused() {
    let read = |frame: Frame| {
        let bytes = frame.build();
        ndp::read(&bytes, &parse(&bytes).unwrap())
    };
    let link = [1, 1, 2, 0, 0, 0, 0, 1];
    let mac = [2, 0, 0, 0, 0, 1];
    let target = 0xfe80_u128 << 112 | 2;
    let solicitation = |source: &'static str| neighbour(source, "ff02::1:ff00:2", 135, 0, "fe80::2", &link);
    let expected = ndp::Message::NeighbourSolicitation {
        target,
        source_link: Some(mac),
    };
    assert_eq!(Ok(Some(expected)), read(solicitation("fe80::1")));
    let flags = ndp::Advertised {
        router: true,
        solicited: true,
        overriding: false,
    };
    let expected = ndp::Message::NeighbourAdvertisement {
        target,
        flags,
        target_link: Some(mac),
    };
    let option = [2, 1, 2, 0, 0, 0, 0, 1];
    assert_eq!(
        Ok(Some(expected)),
        read(neighbour("fe80::2", "fe80::1", 136, 0xc000_0000, "fe80::2", &option))
    );

    assert_eq!(Ok(None), read(icmp6_echo("fe80::1", "fe80::2", 1, 1)));
    for bad in [
        solicitation("fe80::1").ttl(254),
        solicitation("::"),
        neighbour("fe80::1", "ff02::1:ff00:2", 135, 0, "ff02::2", &link),
        neighbour(
            "fe80::1",
            "ff02::1:ff00:2",
            135,
            0,
            "fe80::2",
            &[1, 0, 2, 0, 0, 0, 0, 1],
        ),
        neighbour(
            "fe80::1",
            "ff02::1:ff00:2",
            135,
            0,
            "fe80::2",
            &[1, 2, 2, 0, 0, 0, 0, 1],
        ),
        neighbour("fe80::2", "ff02::1", 136, 0x4000_0000, "fe80::2", &[]),
    ] {
        assert_eq!(Err(Fault::BadNeighbourMessage), read(bad));
    }
}

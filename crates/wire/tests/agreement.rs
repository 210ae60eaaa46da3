//! Tests of layers and keys against packets that `etherparse` builds, and against the parser of `etherparse`.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::prelude::*;
use sluice_testkit::packet::{Frame, Network, Transport};
use sluice_testkit::strategy;
use sluice_wire::{Checksums, Class, Flags, Fragment, Layers, Policy, Validity, parse, validate};

/// Source and destination address in the description of a generated frame, as numbers.
fn addresses(frame: &Frame) -> (u128, u128) {
    match &frame.network {
        Network::V4(header) => (
            u32::from_be_bytes(header.source).into(),
            u32::from_be_bytes(header.destination).into(),
        ),
        Network::V6(header, _) => (
            u128::from_be_bytes(header.source),
            u128::from_be_bytes(header.destination),
        ),
    }
}

/// Ports in the description of a generated frame. For an echo message, these are the values that serve as its ports in
/// a flow key.
fn ports(frame: &Frame) -> (u16, u16) {
    use etherparse::{Icmpv4Type as V4, Icmpv6Type as V6};
    match &frame.transport {
        Transport::Tcp(header) => (header.source_port, header.destination_port),
        Transport::Udp(source, destination) => (*source, *destination),
        Transport::Icmp4(V4::EchoRequest(echo)) => (echo.id, echo.id.wrapping_add(8)),
        Transport::Icmp4(V4::EchoReply(echo)) => (echo.id.wrapping_add(8), echo.id),
        Transport::Icmp6(V6::EchoRequest(echo)) => (echo.id, echo.id.wrapping_add(128)),
        Transport::Icmp6(V6::EchoReply(echo)) => (echo.id.wrapping_add(128), echo.id),
        _ => (0, 0),
    }
}

/// Addresses and ports of the flow key, derived from the layers.
fn key_of(layers: &Layers, bytes: &[u8]) -> (u128, u128, u16, u16, u8) {
    let join = |[high, low]: [u64; 2]| (high as u128) << 64 | low as u128;
    match layers.class {
        Class::Ipv4 => {
            let key = layers.key4(bytes, 5);
            let (t, protocol) = (key.tuple(), key.protocol());
            assert_eq!(5, t.context);
            (
                t.source.into(),
                t.destination.into(),
                t.source_port,
                t.destination_port,
                protocol,
            )
        }
        _ => {
            let key = layers.key6(bytes, 5);
            let (t, protocol) = (key.tuple(), key.protocol());
            assert_eq!(5, t.context);
            (
                join(t.source),
                join(t.destination),
                t.source_port,
                t.destination_port,
                protocol,
            )
        }
    }
}

proptest! {
    #[test]
    fn layers_of_built_frames_are_what_was_built(frame in strategy::frame()) {
        let bytes = frame.build();
        let layers = parse(&bytes).unwrap();
        let (source, destination) = addresses(&frame);
        let (source_port, destination_port) = ports(&frame);
        prop_assert_eq!((source, destination, source_port, destination_port, frame.protocol()), key_of(&layers, &bytes));
        let (class, ip_length, options, ttl) = match &frame.network {
            Network::V4(header) => (Class::Ipv4, header.header_len(), !header.options.is_empty(), header.time_to_live),
            Network::V6(header, extensions) => {
                (Class::Ipv6, 40 + extensions.header_len(), !extensions.is_empty(), header.hop_limit)
            }
        };
        prop_assert_eq!((class, options, ttl), (layers.class, layers.flags.has(Flags::OPTIONS), layers.ttl));
        prop_assert_eq!(Fragment::Whole, layers.fragment);
        prop_assert_eq!(14 + 4 * frame.tags.len(), layers.l3 as usize);
        prop_assert_eq!(layers.l3 as usize + ip_length, layers.l4 as usize);
        prop_assert!(layers.payload(&bytes).ends_with(&frame.payload));
        for (k, (protocol, control)) in frame.tags.iter().enumerate() {
            let tag = layers.tag(&bytes, k).unwrap();
            prop_assert_eq!((*protocol, *control, control & 0xfff), (tag.protocol, tag.control, tag.id()));
        }
        prop_assert_eq!(None, layers.tag(&bytes, frame.tags.len()));
    }

    #[test]
    fn validity_of_built_frames_is_valid_and_of_flipped_bits_is_a_fault(frame in strategy::frame(), at: prop::sample::Index) {
        let mut bytes = frame.build();
        let layers = parse(&bytes).unwrap();
        let policy = Policy::default();
        for checksums in [Checksums::Unverified, Checksums::Vouched] {
            prop_assert_eq!(Ok(Validity::Valid), validate(&bytes, checksums, &layers, &policy));
        }
        let covered = match frame.transport {
            Transport::Raw(_) => return Ok(()),
            Transport::Udp(..) => layers.l4 as usize + 8..layers.end as usize,
            _ => layers.l4 as usize + 4..layers.end as usize,
        };
        if !covered.is_empty() {
            let at = covered.start + at.index(covered.len());
            bytes[at] ^= 0x10;
            // By chance, the checksum field of one in 65,536 packets looks like that of a packet that requires checksum
            // offload.
            prop_assert_ne!(Ok(Validity::Valid), validate(&bytes, Checksums::Unverified, &layers, &policy));
        }
    }

    #[test]
    fn layers_of_damaged_frames_agree_with_an_independent_parser(bytes in strategy::damaged()) {
        let Ok(layers) = parse(&bytes) else { return Ok(()) };
        if !matches!(layers.class, Class::Ipv4 | Class::Ipv6) || layers.tags > 2 {
            return Ok(());
        }
        // Compare only packets that pass the validity check. Other packets may be rejected by only one of the two
        // parsers.
        if validate(&bytes, Checksums::Vouched, &layers, &Policy { martians: false, reserved: false, source_routes: false, headers: true }).is_err() {
            return Ok(());
        }
        let Ok(other) = SlicedPacket::from_ethernet(&bytes) else { return Ok(()) };
        let Some(net) = &other.net else { return Ok(()) };
        let (source, destination, protocol) = match net {
            NetSlice::Ipv4(ip) => {
                let header = ip.header();
                prop_assert_eq!(header.slice().as_ptr(), layers.datagram(&bytes).as_ptr());
                (u32::from_be_bytes(header.source()) as u128, u32::from_be_bytes(header.destination()) as u128, header.protocol().0)
            }
            NetSlice::Ipv6(ip) => {
                let header = ip.header();
                prop_assert_eq!(header.slice().as_ptr(), layers.datagram(&bytes).as_ptr());
                (u128::from_be_bytes(header.source()), u128::from_be_bytes(header.destination()), ip.payload().ip_number.0)
            }
            NetSlice::Arp(_) => return Ok(()),
        };
        let found = key_of(&layers, &bytes);
        prop_assert_eq!((source, destination), (found.0, found.1));
        // In a later fragment, `etherparse` wrongly parses the payload after the fragment header as further headers.
        if layers.fragment != Fragment::Later {
            prop_assert_eq!(protocol, found.4);
        }
        match &other.transport {
            Some(TransportSlice::Tcp(tcp)) => {
                prop_assert_eq!((tcp.source_port(), tcp.destination_port()), (found.2, found.3));
                prop_assert_eq!(tcp.slice().as_ptr(), layers.payload(&bytes).as_ptr());
                prop_assert_eq!(tcp.syn(), layers.tcp_flags & 2 != 0);
            }
            Some(TransportSlice::Udp(udp)) => {
                prop_assert_eq!((udp.source_port(), udp.destination_port()), (found.2, found.3));
                prop_assert_eq!(udp.slice().as_ptr(), layers.payload(&bytes).as_ptr());
            }
            _ => {}
        }
    }

    #[test]
    fn fragments_of_built_frames_are_told_apart((first, frame) in strategy::fragment()) {
        let bytes = frame.build();
        let layers = parse(&bytes).unwrap();
        prop_assert_eq!(if first { Fragment::First } else { Fragment::Later }, layers.fragment);
        prop_assert_eq!(frame.protocol(), layers.protocol);
        let expected = if first { ports(&frame) } else { (0, 0) };
        prop_assert_eq!(expected, (layers.source_port, layers.destination_port));
        prop_assert_eq!(Ok(Validity::Valid), validate(&bytes, Checksums::Unverified, &layers, &Policy::default()));
    }
}

#[test]
fn layers_of_minimal_frames_take_ports_and_flags() {
    use sluice_testkit::packet::{flag, tcp4, udp4};
    let bytes = tcp4("10.0.0.1:4000", "192.0.2.1:80")
        .flags(flag::SYN | flag::ACK)
        .ttl(9)
        .build();
    assert_eq!(54, bytes.len());
    let expected = Layers {
        l3: 14,
        l4: 34,
        end: 54,
        source_port: 4000,
        destination_port: 80,
        protocol: 6,
        ttl: 9,
        tcp_flags: 0x12,
        class: Class::Ipv4,
        fragment: Fragment::Whole,
        tags: 0,
        flags: Flags::PLAIN,
    };
    assert_eq!(Ok(expected), parse(&bytes));

    let bytes = udp4("10.0.0.1:4000", "192.0.2.1:53").macs([2; 6], [0xff; 6]).build();
    let layers = parse(&bytes).unwrap();
    assert_eq!((42, 42, 0), (bytes.len(), layers.end, layers.tcp_flags));
    assert_eq!(Flags::PLAIN.with(Flags::MULTICAST).with(Flags::BROADCAST), layers.flags);
}

#[test]
fn layers_of_other_frames_name_the_class() {
    let bytes = sluice_testkit::packet::arp_request([2; 6], "10.0.0.1", "10.0.0.2");
    let layers = parse(&bytes).unwrap();
    assert_eq!((Class::Arp, 14, 42), (layers.class, layers.l3, layers.end));
    let layers = parse(&[[1, 0x80, 0xc2, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 38], [0; 14]].concat()).unwrap();
    assert_eq!((Class::Other, 14, 28), (layers.class, layers.l3, layers.end));
    assert!(layers.flags.has(Flags::MULTICAST) && !layers.flags.has(Flags::BROADCAST));
}

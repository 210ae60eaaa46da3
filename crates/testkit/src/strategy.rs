//! Strategies for valid and damaged frames.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::packet::{
    Frame, IcmpEchoHeader, Icmpv4Type, Icmpv6Type, IpNumber, Ipv6Extensions, Network, TcpHeader, Transport, frame4,
    frame6,
};
use etherparse::{IpAuthHeader, Ipv6RawExtHeader, Ipv6RoutingExtensions};

/// A unicast IPv4 address.
pub fn address4() -> impl Strategy<Value = std::net::Ipv4Addr> {
    (1..=223u8, any::<[u8; 3]>())
        .prop_filter("loopback", |(a, _)| *a != 127)
        .prop_map(|(a, [b, c, d])| [a, b, c, d].into())
}

/// A global unicast IPv6 address.
pub fn address6() -> impl Strategy<Value = std::net::Ipv6Addr> {
    any::<[u16; 7]>().prop_map(|[b, c, d, e, f, g, h]| [0x2001, b, c, d, e, f, g, h].into())
}

fn tcp() -> impl Strategy<Value = Transport> {
    let flags = prop::sample::select(vec![0x02u8, 0x10, 0x12, 0x18, 0x11, 0x14, 0x04, 0x38]);
    let options = prop::sample::select(vec![
        &[][..],
        &[2, 4, 5, 180],
        &[1, 1, 1, 0],
        &[1, 2, 4, 5, 180, 0, 0, 0],
    ]);
    (any::<(u16, u16, u32, u32, u16)>(), flags, options).prop_map(
        |((source, destination, seq, ack, window), f, options)| {
            let mut header = TcpHeader::new(source, destination, seq, window);
            header.acknowledgment_number = ack;
            (header.fin, header.syn, header.rst) = (f & 1 != 0, f & 2 != 0, f & 4 != 0);
            (header.psh, header.ack, header.urg) = (f & 8 != 0, f & 16 != 0, f & 32 != 0);
            header.set_options_raw(options).expect("options that fit");
            Transport::Tcp(header)
        },
    )
}

fn transport4() -> impl Strategy<Value = Transport> {
    let echo = any::<(bool, u16, u16)>().prop_map(|(reply, id, seq)| {
        let echo = IcmpEchoHeader { id, seq };
        Transport::Icmp4(if reply {
            Icmpv4Type::EchoReply(echo)
        } else {
            Icmpv4Type::EchoRequest(echo)
        })
    });
    let raw = prop::sample::select(vec![47u8, 50, 89, 132]).prop_map(|number| Transport::Raw(IpNumber(number)));
    prop_oneof![4 => tcp(), 4 => any::<(u16, u16)>().prop_map(|(s, d)| Transport::Udp(s, d)), 2 => echo, 1 => raw]
}

fn transport6() -> impl Strategy<Value = Transport> {
    let echo = any::<(bool, u16, u16)>().prop_map(|(reply, id, seq)| {
        let echo = IcmpEchoHeader { id, seq };
        Transport::Icmp6(if reply {
            Icmpv6Type::EchoReply(echo)
        } else {
            Icmpv6Type::EchoRequest(echo)
        })
    });
    let raw = prop::sample::select(vec![47u8, 50, 59, 132]).prop_map(|number| Transport::Raw(IpNumber(number)));
    prop_oneof![4 => tcp(), 4 => any::<(u16, u16)>().prop_map(|(s, d)| Transport::Udp(s, d)), 2 => echo, 1 => raw]
}

fn extensions() -> impl Strategy<Value = Ipv6Extensions> {
    let raw = || {
        prop::option::of(prop::sample::select(vec![6usize, 14, 22])).prop_map(|length| {
            // A single padding option fills the whole space for options.
            length.map(|length| {
                let mut options = vec![0; length];
                (options[0], options[1]) = (1, length as u8 - 2);
                Ipv6RawExtHeader::new_raw(IpNumber(59), &options).expect("a length that fits")
            })
        })
    };
    let auth = prop::option::of(any::<(u32, u32, [u8; 12])>()).prop_map(|auth| {
        auth.map(|(spi, seq, icv)| IpAuthHeader::new(IpNumber(59), spi, seq, &icv).expect("a length that fits"))
    });
    // No segments are left, so the destination address is the final address.
    let routing = prop::option::of(Just(())).prop_map(|present| {
        present.map(|()| Ipv6RawExtHeader::new_raw(IpNumber(59), &[2, 0, 0, 0, 0, 0]).expect("a length that fits"))
    });
    (raw(), raw(), routing, auth).prop_map(
        |(hop_by_hop_options, destination_options, routing, auth)| Ipv6Extensions {
            hop_by_hop_options,
            destination_options,
            routing: routing.map(|routing| Ipv6RoutingExtensions {
                routing,
                final_destination_options: None,
            }),
            fragment: None,
            auth,
        },
    )
}

/// IPv4 options that contain no source route.
fn options4() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        vec![],
        vec![],
        vec![],
        vec![148, 4, 0, 0],
        vec![1, 1, 1, 0],
        vec![7, 7, 4, 0, 0, 0, 0, 1],
        [vec![68, 36, 5, 0], vec![0; 32], vec![1, 1, 0, 0]].concat(),
    ])
}

fn tags() -> impl Strategy<Value = Vec<(u16, u16)>> {
    vec((prop::sample::select(vec![0x8100, 0x88a8]), any::<u16>()), 0..=2)
}

/// A valid, unfragmented packet over IPv4 or IPv6. It may have up to two tags, options or extension headers, and
/// padding.
pub fn frame() -> impl Strategy<Value = Frame> {
    let v4 = (
        address4(),
        address4(),
        options4(),
        any::<(u8, u16, bool)>(),
        transport4(),
    )
        .prop_map(
            |(source, destination, options, (ttl, identification, dont_fragment), transport)| {
                let mut frame = frame4(source, destination, transport).options(&options).ttl(ttl);
                if let Network::V4(header) = &mut frame.network {
                    (header.identification, header.dont_fragment) = (identification, dont_fragment);
                }
                frame
            },
        );
    let extensions = prop_oneof![Just(Box::default()), extensions().prop_map(Box::new)];
    let v6 = (address6(), address6(), extensions, any::<u8>(), transport6()).prop_map(
        |(source, destination, extensions, ttl, transport)| {
            let mut frame = frame6(source, destination, transport).ttl(ttl);
            if let Network::V6(_, theirs) = &mut frame.network {
                *theirs = extensions;
            }
            frame
        },
    );
    let payload = prop_oneof![4 => vec(any::<u8>(), 0..80), 1 => vec(any::<u8>(), 1000..1400)];
    (
        prop_oneof![v4, v6],
        tags(),
        payload,
        prop::sample::select(vec![0, 60, 64]),
    )
        .prop_filter("source and destination are the same", |(frame, ..)| {
            match &frame.network {
                Network::V4(header) => header.source != header.destination,
                Network::V6(header, _) => header.source != header.destination,
            }
        })
        .prop_map(|(mut frame, tags, payload, pad)| {
            (frame.tags, frame.payload, frame.pad) = (tags, payload, pad);
            frame
        })
}

/// A valid fragment. The flag is `true` for a first fragment, and `false` for a later fragment.
pub fn fragment() -> impl Strategy<Value = (bool, Frame)> {
    (frame(), any::<bool>(), any::<bool>(), 3..1000u16, any::<u32>()).prop_map(
        |(mut frame, first, more, offset, id)| {
            if let (Network::V6(_, extensions), false) = (&mut frame.network, first) {
                // The authentication header follows the fragment header, so only the first fragment contains it.
                extensions.auth = None;
            }
            // The lengths of transport headers are multiples of 4. The payload consists of whole words, chosen so that the
            // total is a multiple of 8.
            let header = match (&frame.transport, first) {
                (_, false) | (Transport::Raw(_), _) => 0,
                (Transport::Tcp(header), _) => header.header_len(),
                _ => 8,
            };
            let length = (header + frame.payload.len() + 1).next_multiple_of(8) - header;
            frame.payload.resize(length, 7);
            (
                first,
                if first {
                    frame.fragment(0, true, id)
                } else {
                    frame.fragment(offset, more, id)
                },
            )
        },
    )
}

/// The bytes of a damaged frame, in which bytes were overwritten, removed, or added.
pub fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let whole = prop_oneof![3 => frame(), 1 => fragment().prop_map(|(_, frame)| frame)];
    let edits = vec((any::<Index>(), any::<u8>()), 0..6);
    // Most of the damage is in the headers.
    let early = vec((0..64usize, any::<u8>()), 0..4);
    (
        whole,
        edits,
        early,
        prop::option::of(any::<Index>()),
        vec(any::<u8>(), 0..8),
    )
        .prop_map(|(frame, edits, early, cut, tail)| {
            let mut bytes = frame.build();
            for (at, value) in edits {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            for (at, value) in early {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            bytes.extend_from_slice(&tail);
            bytes
        })
}

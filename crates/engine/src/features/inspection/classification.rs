//! Packet fields that inspection rules match, other than the payload.

use std::net::IpAddr;

use sluice_inspect::evaluate::{self, IcmpFields, IpFields, PacketFields};
use sluice_inspect::scope::Endpoints;
use sluice_inspect::signature::Toward;
use sluice_nat::Tuple;
use sluice_wire::Direction;
use sluice_wire::ipv4::{Ipv4, protocol};
use sluice_wire::layers::{Class, Layers};
use sluice_wire::tcp::Tcp;

use crate::session::family::{Family, Session};

/// The endpoints of a session's packet, with the addresses that inside hosts see.
pub fn ends<F: Family>(session: &F::Session, direction: Direction) -> Endpoints {
    let tuple = &session.forward();
    let address = |address: F::Address| -> IpAddr { F::ip(address) };
    let [client, server] = [address(tuple.source()), address(tuple.destination())];
    let ports = match protocol::is_icmp(session.protocol()) {
        true => [tuple.source_port(); 2],
        false => [tuple.source_port(), tuple.destination_port()],
    };
    let track = session.track();
    let established = match session.protocol() {
        protocol::TCP => track.tracking.was_established(),
        _ => track.packets().iter().all(|&packets| packets > 0),
    };
    let to_server = Endpoints {
        source: client,
        destination: server,
        ports,
        protocol: session.protocol(),
        toward: Toward::Server,
        established,
        service: None,
    };
    match direction {
        Direction::Forward => to_server,
        Direction::Reverse => to_server.reversed(),
    }
}

/// The header fields that rules match. The IP fields are taken from `datagram`, and the transport fields from
/// `transport`, which may be reassembled.
pub fn facts(layers: &Layers, datagram: &[u8], transport: &[u8]) -> PacketFields {
    let ip = IpFields {
        ttl: layers.ttl,
        protocol: layers.protocol,
        ..IpFields::default()
    };
    let ip = match layers.class {
        Class::Ipv4 => Ipv4::new(datagram).map_or(ip, |header| IpFields {
            type_of_service: header.service(),
            identification: Some(header.identification()),
            // A reassembled datagram has no fragment fields.
            fragment_bits: (header.fragment() >> 13) as u8 & !1,
            fragment_offset: 0,
            same_address: header.source() == header.destination(),
            ..ip
        }),
        _ => IpFields {
            type_of_service: datagram
                .first_chunk()
                .map_or(0, |&[first, second]| first << 4 | second >> 4),
            same_address: datagram
                .get(8..24)
                .is_some_and(|source| datagram.get(24..40) == Some(source)),
            ..ip
        },
    };
    let tcp = Tcp::new(transport)
        .filter(|_| layers.protocol == protocol::TCP)
        .map(|header| evaluate::TcpFields {
            flags: header.flags(),
            sequence: header.sequence(),
            acknowledgement: header.acknowledgment(),
            window: header.window(),
        });
    let icmp = matches!(layers.protocol, protocol::ICMP | protocol::ICMPV6);
    let icmp = icmp.then(|| transport.first_chunk::<8>()).flatten().map(|head| {
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        IcmpFields {
            kind: head[0],
            code: head[1],
            identifier: word(4),
            sequence: word(6),
        }
    });
    PacketFields {
        ip,
        tcp,
        icmp,
        ..PacketFields::default()
    }
}

/// Offset of the payload in a transport segment.
pub fn payload(protocol: u8, segment: &[u8]) -> usize {
    let length = match protocol {
        protocol::TCP => usize::from(segment.get(12).copied().unwrap_or(0) >> 4) * 4,
        protocol::UDP => 8,
        protocol::ICMP | protocol::ICMPV6 => 8,
        _ => 0,
    };
    length.min(segment.len())
}

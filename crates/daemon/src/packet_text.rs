//! Describes a packet in one line, for operators.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_config::api::Endpoint;
use sluice_config::value::Protocol;
use sluice_wire::layers::{Class, Flags, Layers, parse};

/// Addresses, ports, protocol and length of a frame; `bytes` contains the captured bytes of the frame, and `length` is
/// the length of the whole frame.
pub fn describe(bytes: &[u8], length: u16) -> String {
    let mut whole = bytes.to_vec();
    // The frame may be truncated, so it is padded with zeros until its length fields match.
    whole.resize(usize::from(length).max(bytes.len()), 0);
    let Ok(layers) = parse(&whole) else {
        return format!("malformed, {length} bytes");
    };
    let (source, destination) = match layers.class {
        Class::Arp => return format!("ARP, {length} bytes"),
        Class::Other => return format!("neither IP nor ARP, {length} bytes"),
        Class::Ipv4 => {
            let key = layers.key4(&whole, 0).tuple();
            (
                IpAddr::from(Ipv4Addr::from_bits(key.source)),
                IpAddr::from(Ipv4Addr::from_bits(key.destination)),
            )
        }
        Class::Ipv6 => {
            let key = layers.key6(&whole, 0).tuple();
            let address = |[high, low]: [u64; 2]| Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low)).into();
            (address(key.source), address(key.destination))
        }
    };
    let protocol = Protocol(layers.protocol);
    let (from, to) = if has_ports(&layers) {
        let text = |address, port| Endpoint { address, port }.to_string();
        (
            text(source, layers.source_port),
            text(destination, layers.destination_port),
        )
    } else {
        (source.to_string(), destination.to_string())
    };
    format!("{from} > {to} {protocol}, {length} bytes")
}

fn has_ports(layers: &Layers) -> bool {
    let icmp = layers.flags.has(Flags::ICMP_QUERY) || layers.flags.has(Flags::ICMP_ERROR);
    !icmp && (layers.source_port, layers.destination_port) != (0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_in_a_line_names_its_ends_and_protocol() {
        let builder = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 2], [192, 0, 2, 1], 64);
        let mut frame = Vec::new();
        builder.udp(5000, 53).write(&mut frame, &[0; 200]).unwrap();
        let length = frame.len() as u16;
        assert_eq!(
            "10.0.0.2:5000 > 192.0.2.1:53 udp, 242 bytes",
            describe(&frame[..60], length)
        );
        assert_eq!("malformed, 5 bytes", describe(&frame[..5], 5));
        assert_eq!("malformed, 0 bytes", describe(&[], 0));
    }
}

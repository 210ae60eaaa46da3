//! Builds frames of the generated traffic (carrier mix).

use std::net::Ipv4Addr;

use sluice_wire::checksum;
use sluice_wire::vlan::Tag;

/// Total length of the Ethernet, IPv4 and TCP headers in bytes.
pub const HEADERS: u16 = 14 + 20 + 20;

/// Address and port.
pub type End = (Ipv4Addr, u16);

/// Parameters of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Written<'t> {
    /// Source address and port.
    pub source: End,
    /// Destination address and port.
    pub destination: End,
    /// TCP control flags; `None` for UDP.
    pub tcp: Option<u8>,
    /// TCP sequence and acknowledgment number.
    pub numbers: (u32, u32),
    /// Ethernet addresses: destination, then source.
    pub macs: [[u8; 6]; 2],
    /// VLAN tags.
    pub tags: &'t [Tag],
    /// Length of the frame in bytes, without tags and check sequence.
    pub length: u16,
}

/// Build the frame, with correct checksums.
pub fn write(packet: &Written<'_>) -> Vec<u8> {
    let mut frame = packet.macs.concat();
    for tag in packet.tags {
        frame.extend([tag.protocol, tag.control].map(u16::to_be_bytes).concat());
    }
    frame.extend([0x08, 0x00]);
    let total = packet.length.max(HEADERS) - 14;
    let protocol = if packet.tcp.is_some() { 6 } else { 17 };
    let mut header = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[12..16].copy_from_slice(&packet.source.0.octets());
    header[16..20].copy_from_slice(&packet.destination.0.octets());
    let sum = checksum::checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend(transport(packet, total - 20, protocol));
    frame.resize(frame.len().max(60), 0);
    frame
}

fn transport(packet: &Written<'_>, length: u16, protocol: u8) -> Vec<u8> {
    let mut bytes = [packet.source.1, packet.destination.1].map(u16::to_be_bytes).concat();
    let at = match packet.tcp {
        Some(flags) => {
            bytes.extend([packet.numbers.0, packet.numbers.1].map(u32::to_be_bytes).concat());
            bytes.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
            16
        }
        None => {
            bytes.extend(length.to_be_bytes());
            bytes.extend([0, 0]);
            6
        }
    };
    bytes.resize(usize::from(length), 0x5a);
    let pseudo = checksum::pseudo4(packet.source.0.into(), packet.destination.0.into(), protocol, length);
    let sum = match !checksum::add(checksum::sum(&bytes), pseudo) {
        0 if packet.tcp.is_none() => 0xffff,
        sum => sum,
    };
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use sluice_testkit::packet;

    use super::*;

    #[test]
    fn frames_are_those_of_an_independent_builder() {
        let (source, destination) = ((Ipv4Addr::new(10, 0, 0, 2), 5000), (Ipv4Addr::new(8, 8, 1, 9), 443));
        let [to, from] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 9, 9]];
        let mut written = Written {
            source,
            destination,
            tcp: None,
            numbers: (2, 3),
            macs: [to, from],
            tags: &[],
            length: 100,
        };
        let udp = packet::udp4("10.0.0.2:5000", "8.8.1.9:443").payload(&[0x5a; 58]);
        assert_eq!(ip(&udp.macs(from, to).dont_fragment().build()), ip(&write(&written)));
        written.tcp = Some(0x10);
        let tcp = packet::tcp4("10.0.0.2:5000", "8.8.1.9:443").payload(&[0x5a; 46]);
        let tcp = tcp.flags(0x10).numbers(2, 3).macs(from, to).dont_fragment();
        let (expected, found) = (tcp.build(), write(&written));
        assert_eq!(expected.len(), found.len());
        assert_eq!(ip(&expected)[..12], ip(&found)[..12]);
    }

    fn ip(frame: &[u8]) -> &[u8] {
        &frame[14..]
    }
}

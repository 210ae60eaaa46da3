//! Link types of captures, and the conversion of their packets to Ethernet frames.
//!
//! The link type registry (draft-ietf-opsawg-pcaplinktype) defines the numbers and headers.

use sluice_wire::ethernet::ethertype::{IPV4, IPV6};

/// Destination MAC of a frame without a captured link-layer header. The receiving interface replaces this MAC by its
/// own address.
pub const NO_ADDRESS: [u8; 6] = [0; 6];
/// Source MAC, locally administered, of a frame without a captured link-layer header.
const SOURCE: [u8; 6] = [2, 0x53, 0x6c, 0, 2, 0];
/// Length of an Ethernet header in bytes.
const ETHERNET: usize = 14;
/// Lowest EtherType. Smaller values are IEEE 802.3 lengths.
const FIRST_TYPE: u16 = 0x0600;
/// EtherType for packets without a known type: local experimental (IEEE 802).
const OTHER: u16 = 0x88b5;

/// Names of the supported link types for an error message.
pub const READ: &str = "Ethernet, raw IP, Linux cooked (SLL and SLL2), null and loopback captures are read";

/// A supported link type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Ethernet (1).
    Ethernet,
    /// Raw IP (101, 228 and 229): an IP packet without a link-layer header.
    Ip,
    /// BSD null (0): an address family in the byte order of the capturing machine.
    Null,
    /// BSD loopback (108): an address family in network byte order.
    Loop,
    /// Linux cooked (113), as captured on the pseudo-interface `any`.
    Cooked,
    /// Linux cooked, version 2 (276).
    Cooked2,
}

impl Link {
    /// The link type with a number. `None` if the link type is not supported.
    pub fn of(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Null,
            1 => Self::Ethernet,
            // Some BSD systems use 12 and 14 for raw IP.
            12 | 14 | 101 | 228 | 229 => Self::Ip,
            108 => Self::Loop,
            113 => Self::Cooked,
            276 => Self::Cooked2,
            _ => return None,
        })
    }

    /// Length of the link-layer header.
    fn header(self) -> usize {
        match self {
            Self::Ethernet | Self::Ip => 0,
            Self::Null | Self::Loop => 4,
            Self::Cooked => 16,
            Self::Cooked2 => 20,
        }
    }

    /// Converts a packet to an Ethernet frame. `length` is the packet's length on the wire. Returns the frame and the
    /// frame's length on the wire. If the link-layer header is truncated, the frame consists only of an Ethernet
    /// header.
    pub fn framed(self, bytes: Vec<u8>, length: u32) -> (Vec<u8>, u32) {
        if self == Self::Ethernet {
            return (bytes, length);
        }
        let header = self.header();
        let payload = bytes.get(header..).unwrap_or_default();
        let ethertype = self.ethertype(&bytes, payload);
        let mut frame = Vec::with_capacity(ETHERNET + payload.len());
        frame.extend_from_slice(&NO_ADDRESS);
        frame.extend_from_slice(&SOURCE);
        frame.extend_from_slice(&ethertype.to_be_bytes());
        frame.extend_from_slice(payload);
        let length = length.saturating_sub(header as u32).saturating_add(ETHERNET as u32);
        (frame, length)
    }

    fn ethertype(self, bytes: &[u8], payload: &[u8]) -> u16 {
        let half = |at: usize| {
            let two = bytes.get(at..at + 2).and_then(|two| two.first_chunk());
            two.map_or(OTHER, |two| u16::from_be_bytes(*two))
        };
        let written = match self {
            Self::Ethernet => half(12),
            Self::Cooked => half(14),
            Self::Cooked2 => half(0),
            // The IP version field determines the EtherType, because the numbers of address families differ between
            // systems.
            Self::Ip | Self::Null | Self::Loop if self == Self::Ip || self.is_ip(bytes) => match payload.first() {
                Some(first) if first >> 4 == 4 => IPV4,
                Some(first) if first >> 4 == 6 => IPV6,
                _ => OTHER,
            },
            Self::Ip | Self::Null | Self::Loop => OTHER,
        };
        if written < FIRST_TYPE { OTHER } else { written }
    }

    /// Whether the address family of a null or loopback header is IP. AF_INET is 2 on all systems; AF_INET6 differs
    /// between systems.
    fn is_ip(self, bytes: &[u8]) -> bool {
        let Some(&family) = bytes.first_chunk::<4>() else {
            return false;
        };
        let [big, little] = [u32::from_be_bytes(family), u32::from_le_bytes(family)];
        let family = if self == Self::Loop { big } else { big.min(little) };
        matches!(family, 2 | 10 | 24 | 28 | 30)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IP: [u8; 20] = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];

    #[test]
    fn packet_of_each_link_is_the_same_frame() {
        let v6 = [[0x60].as_slice(), &[0; 39]].concat();
        let cooked = |protocol: [u8; 2]| [[0; 14].as_slice(), &protocol].concat();
        let cooked2 = |protocol: [u8; 2]| [protocol.as_slice(), &[0; 18]].concat();
        for (number, header, payload, ethertype) in [
            (101, vec![], IP.to_vec(), IPV4),
            (228, vec![], IP.to_vec(), IPV4),
            (229, vec![], v6.clone(), IPV6),
            (12, vec![], v6.clone(), IPV6),
            (0, vec![2, 0, 0, 0], IP.to_vec(), IPV4),
            (0, vec![0, 0, 0, 2], IP.to_vec(), IPV4),
            (0, vec![30, 0, 0, 0], v6.clone(), IPV6),
            (108, vec![0, 0, 0, 24], v6.clone(), IPV6),
            (113, cooked([8, 0]), IP.to_vec(), IPV4),
            (113, cooked([0x86, 0xdd]), v6.clone(), IPV6),
            (276, cooked2([8, 0]), IP.to_vec(), IPV4),
            (276, cooked2([0x86, 0xdd]), v6.clone(), IPV6),
        ] {
            let bytes = [header.as_slice(), &payload].concat();
            let link = Link::of(number).unwrap();
            let total_length = bytes.len() as u32;
            let (frame, length) = link.framed(bytes, total_length + 7);
            assert_eq!([0; 6], frame[..6]);
            assert_eq!(ethertype.to_be_bytes(), frame[12..14], "{number}");
            assert_eq!(payload, frame[14..]);
            assert_eq!(frame.len() as u32 + 7, length);
        }
    }

    #[test]
    fn packet_that_is_not_ip_or_ends_within_its_header_has_no_ip_type() {
        for (number, bytes) in [
            (0, vec![7, 0, 0, 0, 0x45]),
            (108, vec![2, 0, 0, 0, 0x45]),
            (113, [0; 17].to_vec()),
            (276, vec![8]),
            (101, vec![]),
            (0, vec![2]),
        ] {
            let length = bytes.len() as u32;
            let (frame, _) = Link::of(number).unwrap().framed(bytes, length);
            assert_eq!(OTHER.to_be_bytes(), frame[12..14], "{number}");
        }
        assert_eq!(None, Link::of(105));
    }
}

//! Tunnel headers: VXLAN (RFC 7348), GRE (RFC 2784, with keys of RFC 2890), and ECN in tunnels (RFC 6040).

use crate::checksum;
use crate::ethernet::ethertype;
use crate::ipv4::{self, Ipv4};
use crate::ipv6;

/// VXLAN headers.
pub mod vxlan {
    use crate::field::header;

    header! {
        /// A VXLAN header and the frame after it.
        Vxlan 8
        "Flags (8 bits), of which one says that there is an identifier, and reserved bits (24)." flags: u32 = FLAGS @ 0, set_flags;
        "VXLAN network identifier (24 bits) and reserved bits (8)." network: u32 = NETWORK @ 4, set_network;
    }

    /// Flag: the network identifier (VNI) is valid.
    pub const HAS_NETWORK: u32 = 0x0800_0000;
    /// Number of bits of a network identifier (VNI).
    pub const BITS: u32 = 24;
    /// The port assigned by IANA.
    pub const PORT: u16 = 4789;

    /// Network identifier (VNI) of a VXLAN header; `None` if the header has no valid VNI. Reserved bits are ignored.
    #[inline]
    pub fn read(header: &[u8]) -> Option<u32> {
        let header = Vxlan::new(header)?;
        (header.flags() & HAS_NETWORK != 0).then(|| header.network() >> 8)
    }

    /// Writes a VXLAN header with this network identifier (VNI).
    #[inline]
    pub fn write(header: &mut [u8], identifier: u32) {
        FLAGS.write(header, HAS_NETWORK);
        NETWORK.write(header, identifier << 8);
    }
}

/// GRE headers.
pub mod gre {
    use crate::checksum;
    use crate::field::{Field, header};
    use crate::ipv4::protocol;
    use crate::layers::{Fragment, Layers};

    header! {
        /// A GRE header: its fixed part and the data after it.
        Gre 4
        "Flags (13 bits) and version (3)." flags: u16 = FLAGS @ 0, set_flags;
        "EtherType of what is inside." inside: u16 = INSIDE @ 2, set_inside;
    }

    /// Flag: a checksum and a reserved word follow.
    pub const HAS_CHECKSUM: u16 = 0x8000;
    /// Flag: a key follows.
    pub const HAS_KEY: u16 = 0x2000;
    /// Length in bytes of a GRE header with a key.
    pub const LENGTH_WITH_KEY: usize = LENGTH + 4;

    /// Fields of a parsed GRE header.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Read {
        /// EtherType of the payload.
        pub inside: u16,
        /// Key, if present.
        pub key: Option<u32>,
        /// Length of the header in bytes, which is also the offset of the payload.
        pub length: usize,
    }

    /// Parses the GRE header at the start of `payload`, the payload of the outer packet. `None` if the header is
    /// truncated, or if its checksum is incorrect. Also `None` if the header is not supported, because it has a
    /// sequence number, a source route, a different version, or reserved bits that are set.
    #[inline]
    pub fn read(payload: &[u8]) -> Option<Read> {
        let header = Gre::new(payload)?;
        let flags = header.flags();
        if flags & !(HAS_CHECKSUM | HAS_KEY) != 0 {
            return None;
        }
        let mut length = LENGTH;
        if flags & HAS_CHECKSUM != 0 {
            length += 4;
            if checksum::sum(payload) != 0xffff {
                return None;
            }
        }
        let key = (flags & HAS_KEY != 0).then(|| Field::<u32>::at(length).read(payload));
        length += 4 * usize::from(key.is_some());
        (length <= payload.len()).then(|| Read {
            inside: header.inside(),
            key,
            length,
        })
    }

    /// Whether the datagram of a frame is a GRE keepalive: a GRE packet with protocol type 0 and this key. A keepalive
    /// is addressed to its own sender. The sender encapsulates the keepalive in a tunnel packet, and the peer returns
    /// it by normal forwarding.
    pub fn is_keepalive(frame: &[u8], layers: &Layers, key: Option<u32>) -> bool {
        layers.protocol == protocol::GRE
            && layers.fragment == Fragment::Whole
            && read(layers.payload(frame)).is_some_and(|header| header.inside == KEEPALIVE && header.key == key)
    }

    /// Protocol type of a keepalive, which has no payload.
    pub const KEEPALIVE: u16 = 0;

    /// Writes a GRE header. `header` must have space for the key, if `key` is set.
    #[inline]
    pub fn write(header: &mut [u8], inside: u16, key: Option<u32>) {
        FLAGS.write(header, if key.is_some() { HAS_KEY } else { 0 });
        INSIDE.write(header, inside);
        if let Some(key) = key {
            Field::<u32>::at(LENGTH).write(header, key);
        }
    }
}

/// Mask of the ECN bits in the type of service or traffic class (RFC 3168).
pub const CONGESTION: u8 = 3;

/// ECN value: congestion experienced.
pub const EXPERIENCED: u8 = 3;

/// ECN value of the inner packet after decapsulation (RFC 6040, section 4.2). `None` if the packet must be dropped: the
/// outer header has a congestion mark, but the inner packet does not support ECN.
#[inline]
pub fn combine(outer: u8, inner: u8) -> Option<u8> {
    match (outer & CONGESTION, inner & CONGESTION) {
        (EXPERIENCED, 0) => None,
        (EXPERIENCED, _) => Some(EXPERIENCED),
        // ECT(1) takes precedence over ECT(0).
        (1, 2) => Some(1),
        (_, inner) => Some(inner),
    }
}

/// Type of service or traffic class of a datagram with the EtherType `kind`; 0 for a datagram that is not IP.
#[inline]
pub fn service(kind: u16, datagram: &[u8]) -> u8 {
    match kind {
        ethertype::IPV4 => ipv4::SERVICE.read(datagram),
        ethertype::IPV6 => (ipv6::VERSION_CLASS_FLOW.read(datagram) >> 20) as u8,
        _ => 0,
    }
}

/// Sets the ECN value of a decapsulated datagram with the EtherType `kind`. `outer` is the type of service of the outer
/// header. Returns false if the datagram must be dropped.
#[inline]
pub fn copy_ecn(kind: u16, datagram: &mut [u8], outer: u8) -> bool {
    let inner = service(kind, datagram);
    let is_ip = matches!(kind, ethertype::IPV4 | ethertype::IPV6);
    let Some(marks) = combine(outer, inner).filter(|_| is_ip) else {
        return !is_ip;
    };
    if marks == inner & CONGESTION {
        return true;
    }
    let service = inner & !CONGESTION | marks;
    if kind == ethertype::IPV6 {
        let word = ipv6::VERSION_CLASS_FLOW.read(datagram) & !(0xff << 20);
        ipv6::VERSION_CLASS_FLOW.write(datagram, word | u32::from(service) << 20);
    } else if let Some(mut header) = Ipv4::new(datagram) {
        let word = |service| u16::from_be_bytes([header.version_length(), service]);
        let delta = checksum::Delta::default().word(word(inner), word(service));
        let field = delta.apply(header.checksum());
        header.set_service(service);
        header.set_checksum(field);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_combine_as_rfc_6040_says() {
        // RFC 6040, figure 4: one row for each inner ECN value. The columns are the outer values Not-ECT, ECT(0), ECT(1) and CE.
        let columns = [0, 2, 1, 3];
        let rows = [
            (0, [Some(0), Some(0), Some(0), None]),
            (2, [Some(2), Some(2), Some(1), Some(3)]),
            (1, [Some(1), Some(1), Some(1), Some(3)]),
            (3, [Some(3), Some(3), Some(3), Some(3)]),
        ];
        for (inner, expected) in rows {
            assert_eq!(expected, columns.map(|outer| combine(outer, inner)), "{inner}");
        }
    }

    #[test]
    fn gre_header_with_key_and_checksum_is_read_and_others_are_refused() {
        let mut bytes = vec![0x20, 0, 8, 0, 0, 0, 0, 42, 0x45];
        let expected = gre::Read {
            inside: 0x0800,
            key: Some(42),
            length: 8,
        };
        assert_eq!(Some(expected), gre::read(&bytes));
        for cut in 0..8 {
            assert_eq!(None, gre::read(&bytes[..cut]));
        }
        // The unsupported flags: routing, sequence number, strict source route, recursion, reserved flags, version.
        for flags in [0x4000_u16, 0x1000, 0x0800, 0x0100, 0x0080, 0x0001] {
            bytes[..2].copy_from_slice(&flags.to_be_bytes());
            assert_eq!(None, gre::read(&bytes), "{flags:x}");
        }
        let mut summed = vec![0x80, 0, 8, 0, 0, 0, 0, 0, 0x45, 7];
        assert_eq!(None, gre::read(&summed));
        let sum = checksum::checksum(&summed);
        summed[4..6].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(Some((None, 8)), gre::read(&summed).map(|read| (read.key, read.length)));
    }

    #[test]
    fn vxlan_header_without_its_flag_is_refused_and_reserved_bits_are_not_looked_at() {
        let mut bytes = [0; 8];
        vxlan::write(&mut bytes, 0x00ab_cdef);
        assert_eq!([8, 0, 0, 0, 0xab, 0xcd, 0xef, 0], bytes);
        assert_eq!(Some(0x00ab_cdef), vxlan::read(&bytes));
        (bytes[1], bytes[7]) = (0xff, 0xff);
        assert_eq!(Some(0x00ab_cdef), vxlan::read(&bytes));
        bytes[0] = 0xf7;
        assert_eq!(None, vxlan::read(&bytes));
        assert_eq!(None, vxlan::read(&[8, 0, 0, 0, 0, 0, 1]));
    }

    #[test]
    fn marks_of_a_datagram_change_with_its_checksum() {
        let mut v4 = vec![0; 20];
        (v4[0], v4[1], v4[8]) = (0x45, 0xb8 | 2, 64);
        Ipv4::new(&mut v4).unwrap().fill_checksum();
        assert!(copy_ecn(ethertype::IPV4, &mut v4, 3));
        assert_eq!(0xb8 | 3, v4[1]);
        assert!(Ipv4::new(&v4).unwrap().has_valid_checksum());
        let mut v6 = vec![0; 40];
        ipv6::VERSION_CLASS_FLOW.write(&mut v6, 0x6b82_1234 | 2 << 20);
        assert!(copy_ecn(ethertype::IPV6, &mut v6, 1));
        assert_eq!(0x6b92_1234, ipv6::VERSION_CLASS_FLOW.read(&v6));
        assert!(!copy_ecn(ethertype::IPV4, &mut [0; 20], 3));
        assert!(copy_ecn(ethertype::ARP, &mut [0; 28], 3));
    }
}

//! IPv4 (RFC 791).

use crate::checksum;
use crate::fault::Fault;
use crate::field::header;

header! {
    /// An IPv4 header and the data after it.
    Ipv4 20
    "Version (4 bits) and header length in words (4)." version_length: u8 = VERSION_LENGTH @ 0, set_version_length;
    "Type of service: DSCP (6 bits) and ECN (2)." service: u8 = SERVICE @ 1, set_service;
    "Length of header and payload in bytes." total_length: u16 = TOTAL_LENGTH @ 2, set_total_length;
    "Identification of the datagram's fragments." identification: u16 = IDENTIFICATION @ 4, set_identification;
    "Flags (3 bits) and fragment offset in units of 8 bytes (13)." fragment: u16 = FRAGMENT @ 6, set_fragment;
    "Time to live in hops." ttl: u8 = TTL @ 8, set_ttl;
    "Protocol of the payload." protocol: u8 = PROTOCOL @ 9, set_protocol;
    "Header checksum." checksum: u16 = CHECKSUM @ 10, set_checksum;
    "Source address." source: u32 = SOURCE @ 12, set_source;
    "Destination address." destination: u32 = DESTINATION @ 16, set_destination;
}

/// Flag of the fragment field: more fragments follow.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// Flag of the fragment field: don't fragment.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// Mask of the fragment offset in the fragment field, in units of 8 bytes.
pub const FRAGMENT_OFFSET: u16 = 0x1fff;

/// IP protocol numbers.
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// IPv4 in IP (RFC 2003).
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// UDP-Lite (RFC 3828).
    pub const UDP_LITE: u8 = 136;
    /// IPv6 in IP (RFC 2473, 4213).
    pub const IPV6: u8 = 41;
    /// Generic routing encapsulation (RFC 2784).
    pub const GRE: u8 = 47;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;

    /// Whether a protocol is ICMP or ICMPv6.
    #[inline(always)]
    pub const fn is_icmp(protocol: u8) -> bool {
        matches!(protocol, ICMP | ICMPV6)
    }
}

/// Types of IPv4 options.
pub mod option {
    /// End of the option list.
    pub const END: u8 = 0;
    /// No operation: padding of one byte.
    pub const NO_OPERATION: u8 = 1;
    /// Loose source route.
    pub const LOOSE_SOURCE_ROUTE: u8 = 131;
    /// Strict source route.
    pub const STRICT_SOURCE_ROUTE: u8 = 137;
}

impl<B: AsRef<[u8]>> Ipv4<B> {
    /// Header length in bytes from the IHL field: 0 to 60.
    #[inline(always)]
    pub fn header_length(&self) -> usize {
        ((self.version_length() & 0x0f) as usize) << 2
    }

    /// Whether the don't-fragment flag is set.
    #[inline(always)]
    pub fn dont_fragment(&self) -> bool {
        self.fragment() & DONT_FRAGMENT != 0
    }

    /// Whether the datagram is atomic: not a fragment, with the don't-fragment flag. The IP ID of an atomic datagram
    /// has no meaning (RFC 6864, section 4).
    #[inline(always)]
    pub fn is_atomic(&self) -> bool {
        self.fragment() & (DONT_FRAGMENT | MORE_FRAGMENTS | FRAGMENT_OFFSET) == DONT_FRAGMENT
    }

    /// Offset of the fragment's payload in the original datagram's payload, in bytes.
    #[inline(always)]
    pub fn fragment_offset(&self) -> usize {
        ((self.fragment() & FRAGMENT_OFFSET) as usize) << 3
    }

    /// The options; empty if the header length is invalid.
    pub fn options(&self) -> &[u8] {
        self.bytes().get(LENGTH..self.header_length()).unwrap_or_default()
    }

    /// Whether the header checksum is correct.
    #[inline]
    pub fn has_valid_checksum(&self) -> bool {
        self.bytes()
            .get(..self.header_length())
            .is_some_and(|header| checksum::sum(header) == 0xffff)
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Ipv4<B> {
    /// Computes and writes the header checksum.
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let length = self.header_length();
        let value = self.bytes().get(..length).map(checksum::checksum);
        self.set_checksum(value.unwrap_or_default());
    }

    /// Sets the IP ID and updates the header checksum. An incorrect checksum stays incorrect.
    pub fn set_identification_checked(&mut self, identification: u16) {
        let delta = checksum::Delta::default().word(self.identification(), identification);
        let field = delta.apply(self.checksum());
        self.set_identification(identification);
        self.set_checksum(field);
    }

    /// Decrements the TTL and updates the header checksum. A TTL of 0 is not changed.
    #[inline(always)]
    pub fn decrement_ttl(&mut self) {
        let ttl = self.ttl();
        if ttl == 0 {
            return;
        }
        let word = u16::from_be_bytes([ttl, self.protocol()]);
        let field = checksum::Delta::default()
            .word(word, word - 0x0100)
            .apply(self.checksum());
        self.set_ttl(ttl - 1);
        self.set_checksum(field);
    }
}

/// Decrements the TTL of a header and updates the checksum (RFC 1624). The TTL must not be 0.
#[inline(always)]
pub fn decrement_header_ttl(header: &mut [u8; LENGTH]) {
    header[8] = header[8].wrapping_sub(1);
    // A decrement subtracts 256 from the 16-bit word that contains TTL and protocol, and thus adds 256 to the checksum.
    // Bytes are added in memory order, because one's-complement sums are independent of byte order.
    let field = u32::from(u16::from_ne_bytes([header[10], header[11]])) + u32::from(0x0100u16.to_be());
    let field = (field + u32::from(field >= 0xffff)) as u16;
    [header[10], header[11]] = field.to_ne_bytes();
}

/// Checks that every option lies within the option list. Also checks that no option is a source route, if
/// `refuse_source_routes` is set.
pub fn check_options(options: &[u8], refuse_source_routes: bool) -> Result<(), Fault> {
    let mut rest = options;
    while let Some((&kind, tail)) = rest.split_first() {
        match kind {
            option::END => break,
            option::NO_OPERATION => rest = tail,
            _ => {
                let length = tail.first().copied().unwrap_or(0) as usize;
                if length < 2 {
                    return Err(Fault::BadOptions);
                }
                rest = rest.get(length..).ok_or(Fault::BadOptions)?;
                let source_route = matches!(kind, option::LOOSE_SOURCE_ROUTE | option::STRICT_SOURCE_ROUTE);
                if source_route && refuse_source_routes {
                    return Err(Fault::SourceRoute);
                }
            }
        }
    }
    Ok(())
}

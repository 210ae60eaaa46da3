//! UDP (RFC 768), and UDP-Lite (RFC 3828).

use crate::field::header;

header! {
    /// A UDP header and the data after it.
    Udp 8
    "Source port." source_port: u16 = SOURCE_PORT @ 0, set_source_port;
    "Destination port." destination_port: u16 = DESTINATION_PORT @ 2, set_destination_port;
    "Length of header and data in bytes." length: u16 = DATAGRAM_LENGTH @ 4, set_length;
    "Checksum over pseudo-header, header and data; over IPv4, 0 where the sender made none." checksum: u16 = CHECKSUM @ 6, set_checksum;
}

/// Number of bytes covered by the checksum of a UDP-Lite packet. The coverage field replaces the length field of UDP. A
/// coverage of 0 means the whole packet. `None` if the coverage is less than the length of the header, or greater than
/// the length of the packet (RFC 3828, section 3.1).
#[inline]
pub fn coverage(packet: &[u8]) -> Option<usize> {
    let covered = match DATAGRAM_LENGTH.read(packet) {
        0 => packet.len(),
        covered => covered.into(),
    };
    (LENGTH..=packet.len()).contains(&covered).then_some(covered)
}

//! UDP (RFC 768).

use crate::field::header;

header! {
    /// A UDP header and what follows it.
    Udp 8
    "Source port." source_port: u16 = SOURCE_PORT @ 0, set_source_port;
    "Destination port." destination_port: u16 = DESTINATION_PORT @ 2, set_destination_port;
    "Length of header and data in bytes." length: u16 = DATAGRAM_LENGTH @ 4, set_length;
    "Checksum over pseudo-header, header and data; over IPv4, 0 where the sender made none." checksum: u16 = CHECKSUM @ 6, set_checksum;
}

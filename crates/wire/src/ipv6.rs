//! IPv6 (RFC 8200) and its extension headers.

use crate::fault::Fault;
use crate::field::header;

header! {
    /// An IPv6 header and the data after it.
    Ipv6 40
    "Version (4 bits), traffic class (8), flow label (20)." version_class_flow: u32 = VERSION_CLASS_FLOW @ 0, set_version_class_flow;
    "Length of what follows the header, in bytes." payload_length: u16 = PAYLOAD_LENGTH @ 4, set_payload_length;
    "Protocol of the next header." next_header: u8 = NEXT_HEADER @ 6, set_next_header;
    "Hops left." hop_limit: u8 = HOP_LIMIT @ 7, set_hop_limit;
    "Source address." source: u128 = SOURCE @ 8, set_source;
    "Destination address." destination: u128 = DESTINATION @ 24, set_destination;
}

impl<B: AsRef<[u8]>> Ipv6<B> {
    /// Traffic class: 6 bits of DSCP and 2 bits of ECN.
    pub fn traffic_class(&self) -> u8 {
        (self.version_class_flow() >> 20) as u8
    }

    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        self.version_class_flow() & 0x000f_ffff
    }
}

/// The fragment header (RFC 8200, 4.5).
pub mod fragment {
    use crate::field::header;

    header! {
        /// A fragment header.
        Fragment 8
        "Protocol of the next header." next_header: u8 = NEXT_HEADER @ 0, set_next_header;
        "Offset in units of 8 bytes (13 bits), reserved (2), more fragments (1)." offset_more: u16 = OFFSET_MORE @ 2, set_offset_more;
        "Identification of the datagram's fragments." identification: u32 = IDENTIFICATION @ 4, set_identification;
    }

    /// Flag of the offset field: more fragments follow.
    pub const MORE_FRAGMENTS: u16 = 1;

    impl<B: AsRef<[u8]>> Fragment<B> {
        /// Offset of the fragment's payload in the original packet's fragmentable part, in bytes.
        pub fn offset(&self) -> usize {
            (self.offset_more() & !7) as usize
        }

        /// Whether more fragments follow.
        pub fn more(&self) -> bool {
            self.offset_more() & MORE_FRAGMENTS != 0
        }
    }
}

/// Protocol numbers of the extension headers that are parsed.
pub mod extension {
    /// Hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// Routing header.
    pub const ROUTING: u8 = 43;
    /// Fragment header.
    pub const FRAGMENT: u8 = 44;
    /// Authentication header (RFC 4302).
    pub const AUTHENTICATION: u8 = 51;
    /// Destination options.
    pub const DESTINATION: u8 = 60;
}

/// The chain of extension headers of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Protocol after the extension headers.
    pub protocol: u8,
    /// Offset of the first byte after the extension headers, relative to the IPv6 header.
    pub end: usize,
    /// Number of extension headers.
    pub count: usize,
    /// Offset of the next-header byte that contains the protocol after the extension headers.
    pub names_protocol: usize,
    /// Offset of the fragment header, if present.
    pub fragment: Option<usize>,
    /// Value of the field "segments left" in a routing header. If it is above 0, the destination address is not the
    /// final destination.
    pub segments_left: u8,
}

/// Parses the extension headers of a datagram that starts with its IPv6 header. In a later fragment, parsing ends after
/// the fragment header. The number of headers is unlimited, because hosts accept any number (RFC 8200, section 4).
/// Parsing takes at most one step per 8 bytes of the datagram, because each header has at least 8 bytes.
pub fn walk(datagram: &[u8]) -> Result<Chain, Fault> {
    let mut chain = Chain {
        protocol: NEXT_HEADER.read(datagram),
        end: LENGTH,
        count: 0,
        names_protocol: NEXT_HEADER.offset,
        fragment: None,
        segments_left: 0,
    };
    let mut first_of_many = false;
    loop {
        let kind = chain.protocol;
        if !matches!(
            kind,
            extension::HOP_BY_HOP
                | extension::ROUTING
                | extension::FRAGMENT
                | extension::AUTHENTICATION
                | extension::DESTINATION
        ) {
            return Ok(chain);
        }
        let short = if first_of_many {
            Fault::TinyFragment
        } else {
            Fault::BadOptions
        };
        let header = datagram.get(chain.end..).unwrap_or_default();
        let Some(&[next, units, routing_type, segments_left, ..]) = header.first_chunk::<8>() else {
            return Err(short);
        };
        let length = match kind {
            extension::FRAGMENT => fragment::LENGTH,
            extension::AUTHENTICATION => (units as usize + 2) * 4,
            _ => (units as usize + 1) * 8,
        };
        if length > header.len() {
            return Err(short);
        }
        let mut later = false;
        match kind {
            extension::HOP_BY_HOP if chain.count > 0 => return Err(Fault::MisplacedExtension),
            extension::ROUTING => {
                if routing_type == 0 && segments_left > 0 {
                    return Err(Fault::SourceRoute);
                }
                chain.segments_left = segments_left;
            }
            extension::FRAGMENT => {
                if chain.fragment.is_some() {
                    return Err(Fault::MisplacedExtension);
                }
                chain.fragment = Some(chain.end);
                let field = fragment::OFFSET_MORE.read(header);
                later = field & !7 != 0;
                first_of_many = !later && field & fragment::MORE_FRAGMENTS != 0;
            }
            _ => {}
        }
        chain.protocol = next;
        chain.names_protocol = chain.end;
        chain.end += length;
        chain.count += 1;
        if later {
            return Ok(chain);
        }
    }
}

/// Decrements the hop limit of a header. The hop limit must not be 0.
#[inline(always)]
pub fn decrement_header_hop_limit(header: &mut [u8; LENGTH]) {
    header[HOP_LIMIT.offset] = header[HOP_LIMIT.offset].wrapping_sub(1);
}

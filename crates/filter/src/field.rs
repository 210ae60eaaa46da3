//! The header fields other than the addresses. The table below declares each field once.

/// Value of a field that the packet lacks, such as the ports of a later fragment or the VLAN identifier of an untagged
/// frame. A rule with a port condition does not match this value; a rule without a port condition matches it.
pub const NONE: u32 = 1 << 16;

/// The first 20 bytes of an IP header, the minimum length of an IPv4 header (RFC 791).
pub type IpHeader = [u8; 20];

/// Expands to the first expression if present, otherwise to the default.
macro_rules! or {
    (, $default:expr) => {
        $default
    };
    ($given:expr, $default:expr) => {
        $given
    };
}

/// Declares fields. Each field has these attributes:
///
/// - `last`: the largest value that a packet may have, including [`NONE`];
/// - `named`: the largest value that a rule may contain, if different from `last`;
/// - `word`, `bits`: the word and the bits of a [`Header`](crate::Header) that store it; default: all bits of the word;
/// - `plain`: the value if only the flow of a packet is known; default: [`NONE`] if possible, otherwise 0;
/// - `ip`: computes the value from the IP version and [`IpHeader`]; otherwise the creator of a header sets the field.
macro_rules! fields {
    ($(
        $(#[doc = $help:tt])+
        $name:ident {
            last: $last:expr,
            $(named: $named:expr,)?
            word: $word:literal,
            $(bits: $bits:expr,)?
            $(plain: $plain:expr,)?
            $(ip: $ip:expr,)?
        }
    )+) => {
        /// Numeric header fields other than the addresses.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Field {
            $($(#[doc = $help])+ $name,)+
        }

        impl Field {
            /// All fields in the order of their numbers.
            pub const ALL: [Self; [$(Self::$name),+].len()] = [$(Self::$name),+];

            /// The largest value that a packet may have, including [`NONE`].
            #[inline(always)]
            pub const fn last(self) -> u32 {
                match self {
                    $(Self::$name => $last,)+
                }
            }

            /// The largest value that a rule may contain.
            pub const fn last_named(self) -> u32 {
                match self {
                    $(Self::$name => or!($($named)?, $last),)+
                }
            }

            /// The value that is assumed if only the flow of a packet is known.
            #[inline(always)]
            pub(crate) const fn plain(self) -> u32 {
                match self {
                    $(Self::$name => or!($($plain)?, if $last == NONE { NONE } else { 0 }),)+
                }
            }

            /// Index of the header word that stores the field, the field's first bit in the word, and its mask. Fields
            /// may share a word.
            #[inline(always)]
            pub(crate) const fn place(self) -> (usize, u32, u32) {
                match self {
                    $(Self::$name => {
                        let bits = or!($($bits)?, 0..u32::BITS);
                        ($word, bits.start, u32::MAX >> (u32::BITS - (bits.end - bits.start)))
                    })+
                }
            }
        }

        impl<A: crate::Address> crate::Header<A> {
            /// Returns the header with the fields that can be read from the packet's IP header.
            #[inline(always)]
            pub fn with_ip(self, is_v6: bool, ip: &IpHeader) -> Self {
                let header = self;
                $($(
                    let read: fn(bool, &IpHeader) -> u32 = $ip;
                    let header = header.with(Field::$name, read(is_v6, ip));
                )?)+
                header
            }
        }
    };
}

fields! {
    /// Source port, or [`NONE`].
    SourcePort { last: NONE, named: 65_535, word: 0, }
    /// Destination port, or [`NONE`].
    DestinationPort { last: NONE, named: 65_535, word: 1, }
    /// IP protocol.
    Protocol { last: 255, word: 2, }
    /// ICMP type in the high byte and ICMP code in the low byte, or [`NONE`].
    Message { last: NONE, named: 65_535, word: 3, }
    /// TCP flags, or [`NONE`].
    Flags { last: NONE, named: 255, word: 4, }
    /// Fragment state: 0 for a whole packet, 1 for a first fragment, 2 for a later fragment.
    Fragment { last: 2, word: 5, }
    /// Differentiated services code point.
    Dscp { last: 63, word: 6, bits: 0..8, ip: |is_v6, ip| traffic_class(is_v6, ip) >> 2, }
    /// Length of the datagram in bytes.
    Length { last: 65_535, word: 7, }
    /// VLAN identifier, or [`NONE`].
    Vlan { last: NONE, named: 4095, word: 8, }
    /// Number of the input interface.
    Incoming { last: 65_535, word: 9, }
    /// Number of the output interface, or [`NONE`] for packets to the gateway itself.
    Outgoing { last: NONE, word: 10, }
    /// Context: virtual router or site.
    Context { last: u32::MAX, word: 11, }
    /// Source MAC address as an index into the addresses that rules contain; 0 if the packet has no Ethernet header.
    SourceMac { last: 65_535, word: 12, bits: 0..16, }
    /// Destination MAC address, encoded like the source MAC address.
    DestinationMac { last: 65_535, word: 12, bits: 16..32, }
    /// Explicit congestion notification (RFC 3168).
    Ecn { last: 3, word: 6, bits: 8..16, ip: |is_v6, ip| traffic_class(is_v6, ip) & 3, }
    /// Received IPv4 TTL or IPv6 hop limit. The default value is 64, the initial TTL of most hosts.
    Ttl { last: 255, word: 6, bits: 16..24, plain: 64, ip: |is_v6, ip| ip[if is_v6 { 7 } else { 8 }].into(), }
}

/// Index of the header word that stores the mark. The word of the mark follows the words of the fields.
pub(crate) const MARK: usize = 13;

/// IPv4 type of service or IPv6 traffic class.
#[inline(always)]
fn traffic_class(is_v6: bool, ip: &IpHeader) -> u32 {
    match is_v6 {
        true => u32::from(u16::from_be_bytes([ip[0], ip[1]]) >> 4 & 0xff),
        false => ip[1].into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, Header};

    fn keep_to_their_bits<A: Address>(any: A) {
        for field in Field::ALL {
            let bare = Header::new(any, any).with_mark(7);
            for value in [0, 1, field.last_named(), field.last()] {
                let with = bare.with(field, value);
                for other in Field::ALL {
                    let expected = if other == field { value } else { bare.get(other) };
                    assert_eq!(expected, with.get(other), "{other:?} where {field:?} is {value}");
                }
                assert_eq!((any, any, 7), (with.source(), with.destination(), with.mark()));
            }
        }
    }

    #[test]
    fn fields_keep_to_their_bits() {
        keep_to_their_bits(0xc000_0201_u32);
        keep_to_their_bits(u128::MAX / 3);
    }

    #[test]
    fn fields_of_an_ip_header_are_read_in_both_families() {
        let mut v4 = [0; 20];
        (v4[0], v4[1], v4[8]) = (0x45, 46 << 2 | 3, 17);
        let mut v6 = [0; 20];
        (v6[0], v6[1], v6[7]) = (0x6b, 0xbf, 17);
        for header in [(false, v4), (true, v6)].map(|(is_v6, ip)| Header::new(1_u32, 2).with_ip(is_v6, &ip)) {
            assert_eq!(
                [46, 3, 17],
                [Field::Dscp, Field::Ecn, Field::Ttl].map(|field| header.get(field))
            );
        }
    }
}

//! The fields of a header beside its addresses. Each is declared once, in the table below.

/// Value of a field that a packet has not: ports of a fragment, a tag of an untagged frame. A rule that names ports does
/// not match it, a rule that names none does.
pub const NONE: u32 = 1 << 16;

/// The start of an IP header, as long as the shortest one (RFC 791) is.
pub type IpHeader = [u8; 20];

/// A value that is given, or else its default.
macro_rules! or {
    (, $default:expr) => {
        $default
    };
    ($given:expr, $default:expr) => {
        $given
    };
}

/// Declares fields, each with:
///
/// - `last`: the largest value that a packet may have, [`NONE`] included;
/// - `named`: the largest value that a rule may name, where that is another;
/// - `word`, `bits`: where a [`Header`](crate::Header) has it; all bits of the word where not given;
/// - `plain`: the value in a packet of which nothing is known but its flow, where that is neither 0 nor [`NONE`];
/// - `ip`: the value in a packet, by its family (whether it is IPv6) and [`IpHeader`]; where not given, whoever makes a header sets it.
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
        /// Fields beside the addresses, each a number.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Field {
            $($(#[doc = $help])+ $name,)+
        }

        impl Field {
            /// All, in order of their numbers.
            pub const ALL: [Self; [$(Self::$name),+].len()] = [$(Self::$name),+];

            /// The largest value that a packet may have, [`NONE`] included.
            #[inline(always)]
            pub const fn last(self) -> u32 {
                match self {
                    $(Self::$name => $last,)+
                }
            }

            /// The largest value that a rule may name.
            pub const fn last_named(self) -> u32 {
                match self {
                    $(Self::$name => or!($($named)?, $last),)+
                }
            }

            /// The value in a packet of which nothing is known but its flow.
            #[inline(always)]
            pub(crate) const fn plain(self) -> u32 {
                match self {
                    $(Self::$name => or!($($plain)?, if $last == NONE { NONE } else { 0 }),)+
                }
            }

            /// Which word of a header it is in, from which bit on, and its bits: some share one.
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
            /// The same with the fields that a packet's IP header has.
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
    /// ICMP type in the high byte and code in the low one, or [`NONE`].
    Message { last: NONE, named: 65_535, word: 3, }
    /// TCP flags, or [`NONE`].
    Flags { last: NONE, named: 255, word: 4, }
    /// 0: whole, 1: first fragment, 2: later fragment.
    Fragment { last: 2, word: 5, }
    /// Differentiated services code point.
    Dscp { last: 63, word: 6, bits: 0..8, ip: |is_v6, ip| traffic_class(is_v6, ip) >> 2, }
    /// Length of the datagram in bytes.
    Length { last: 65_535, word: 7, }
    /// VLAN identifier, or [`NONE`].
    Vlan { last: NONE, named: 4095, word: 8, }
    /// Number of the interface that the packet came in by.
    Incoming { last: 65_535, word: 9, }
    /// Number of the interface that it leaves by, or [`NONE`] for the gateway itself.
    Outgoing { last: NONE, word: 10, }
    /// Context: virtual router or site.
    Context { last: u32::MAX, word: 11, }
    /// Source MAC address, as a number of those that rules name; 0 where no Ethernet frame brought the packet.
    SourceMac { last: 65_535, word: 12, bits: 0..16, }
    /// Destination MAC address.
    DestinationMac { last: 65_535, word: 12, bits: 16..32, }
    /// Explicit congestion notification (RFC 3168).
    Ecn { last: 3, word: 6, bits: 8..16, ip: |is_v6, ip| traffic_class(is_v6, ip) & 3, }
    /// IPv4's time to live, IPv6's hop limit, with which the packet came in. Most hosts begin with 64.
    Ttl { last: 255, word: 6, bits: 16..24, plain: 64, ip: |is_v6, ip| ip[if is_v6 { 7 } else { 8 }].into(), }
}

/// Behind the fields: the word of the mark.
pub(crate) const MARK: usize = 13;

/// IPv4's type of service, IPv6's traffic class.
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

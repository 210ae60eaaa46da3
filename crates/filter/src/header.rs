//! Header fields of a packet that rules match.

use core::fmt::Debug;
use core::hash::Hash;

use crate::cut_tree::words::{WordAddress, Words};

/// An address as a number.
pub trait Address: WordAddress + Copy + Ord + Hash + Debug + Default + Send + Sync + 'static {
    /// The last address.
    const LAST: Self;
    /// The next address; `None` after the last.
    fn next(self) -> Option<Self>;
    /// The preceding address; `None` before the first.
    fn before(self) -> Option<Self>;
    /// Distance from `first` to this address; wraps around if it precedes `first`.
    fn distance(self, first: Self) -> Self;
    /// The address shifted right by this number of bits.
    fn shifted(self, bits: u32) -> Self;
    /// The address as [`std::net::IpAddr`].
    fn ip(self) -> std::net::IpAddr;
}

macro_rules! address {
    ($number:ty, $ip:ty) => {
        impl Address for $number {
            const LAST: Self = <$number>::MAX;
            #[inline(always)]
            fn next(self) -> Option<Self> {
                self.checked_add(1)
            }
            #[inline(always)]
            fn before(self) -> Option<Self> {
                self.checked_sub(1)
            }
            #[inline(always)]
            fn distance(self, first: Self) -> Self {
                self.wrapping_sub(first)
            }
            #[inline(always)]
            fn shifted(self, bits: u32) -> Self {
                self >> bits
            }
            fn ip(self) -> std::net::IpAddr {
                <$ip>::from_bits(self).into()
            }
        }
    };
}

address!(u32, std::net::Ipv4Addr);
address!(u128, std::net::Ipv6Addr);

/// Value of a field that a packet does not have: ports of a fragment, the tag of an untagged frame. A rule with a
/// condition on ports does not match it, a rule without one does.
pub const NONE: u32 = 1 << 16;

/// Index of the word for the mark, after the fields.
const MARK: usize = 13;

/// Fields beside the addresses, each a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Field {
    /// Source port, or [`NONE`].
    SourcePort,
    /// Destination port, or [`NONE`].
    DestinationPort,
    /// IP protocol.
    Protocol,
    /// ICMP type in the high byte and code in the low one, or [`NONE`].
    Message,
    /// TCP flags, or [`NONE`].
    Flags,
    /// 0: not fragmented, 1: first fragment, 2: later fragment.
    Fragment,
    /// Differentiated services code point.
    Dscp,
    /// Length of the datagram in bytes.
    Length,
    /// VLAN identifier, or [`NONE`].
    Vlan,
    /// Number of the input interface.
    Incoming,
    /// Number of the output interface, or [`NONE`] for packets to the gateway itself.
    Outgoing,
    /// Context: virtual router or site.
    Context,
    /// Source MAC address, by its number among the addresses that rules name; 0 for a packet without an Ethernet
    /// header.
    SourceMac,
    /// Destination MAC address, numbered as the source MAC address.
    DestinationMac,
    /// Explicit congestion notification (RFC 3168).
    Ecn,
}

impl Field {
    /// All fields, in order of their numbers.
    pub const ALL: [Self; 15] = [
        Self::SourcePort,
        Self::DestinationPort,
        Self::Protocol,
        Self::Message,
        Self::Flags,
        Self::Fragment,
        Self::Dscp,
        Self::Length,
        Self::Vlan,
        Self::Incoming,
        Self::Outgoing,
        Self::Context,
        Self::SourceMac,
        Self::DestinationMac,
        Self::Ecn,
    ];

    /// The largest value that a packet may have, including [`NONE`].
    #[inline(always)]
    pub const fn last(self) -> u32 {
        match self {
            Self::Protocol => 255,
            Self::Fragment => 2,
            Self::Dscp => 63,
            Self::Ecn => 3,
            Self::Length | Self::Incoming | Self::SourceMac | Self::DestinationMac => u16::MAX as u32,
            Self::Context => u32::MAX,
            Self::DestinationPort | Self::SourcePort | Self::Message | Self::Flags | Self::Vlan | Self::Outgoing => {
                NONE
            }
        }
    }

    /// The largest value that a rule may name.
    pub const fn last_named(self) -> u32 {
        match self {
            Self::DestinationPort | Self::SourcePort | Self::Message => u16::MAX as u32,
            Self::Flags => 255,
            Self::Vlan => 4095,
            other => other.last(),
        }
    }

    /// Word of the field, its first bit in the word, and its mask: some fields share a word.
    #[inline(always)]
    const fn place(self) -> (usize, u32, u32) {
        match self {
            Self::Dscp => (Self::Dscp as usize, 0, 0xff),
            Self::Ecn => (Self::Dscp as usize, 8, 0xff),
            Self::SourceMac => (12, 0, 0xffff),
            Self::DestinationMac => (12, 16, 0xffff),
            other => (other as usize, 0, u32::MAX),
        }
    }
}

/// The dimension of a level of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dimension {
    Source,
    Destination,
    Field(Field),
}

/// Header fields of one packet that rules match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C, align(64))]
pub struct Header<A: WordAddress> {
    pub(crate) words: Words,
    more: A::More,
}

impl<A: Address> Header<A> {
    /// Creates a header of a packet between two addresses; all other fields are 0, or [`NONE`] if the field may have
    /// it.
    pub fn new(source: A, destination: A) -> Self {
        let mut header = Self {
            words: [0; 16],
            more: A::More::default(),
        };
        for at in 0..A::WORDS {
            header.words[at] = source.word(at);
            header.words[A::WORDS + at] = destination.word(at);
        }
        for field in Field::ALL {
            if field.last() == NONE {
                header = header.with(field, NONE);
            }
        }
        header
    }

    /// Source address.
    #[inline(always)]
    pub fn source(&self) -> A {
        A::from_words(&self.words)
    }

    /// Destination address, after destination translation.
    #[inline(always)]
    pub fn destination(&self) -> A {
        A::from_words(&self.words[A::WORDS..])
    }

    /// Sets a field; a value that is too large becomes the largest one.
    #[inline(always)]
    pub fn with(mut self, field: Field, value: u32) -> Self {
        let (at, shift, bits) = field.place();
        let value = value.min(field.last());
        let word = self.at(at);
        *word = *word & !(bits << shift) | value << shift;
        self
    }

    /// The value of a field.
    #[inline(always)]
    pub fn get(&self, field: Field) -> u32 {
        let (at, shift, bits) = field.place();
        let word = match at < A::FIT {
            true => self.words[A::FIELDS + at],
            false => self.more.as_ref()[at - A::FIT],
        };
        word >> shift & bits
    }

    /// The mark of the session, including the changes of preceding rules.
    #[inline(always)]
    pub fn mark(&self) -> u32 {
        match MARK < A::FIT {
            true => self.words[A::FIELDS + MARK],
            false => self.more.as_ref()[MARK - A::FIT],
        }
    }

    /// Sets the mark.
    #[inline(always)]
    pub fn with_mark(mut self, mark: u32) -> Self {
        *self.at(MARK) = mark;
        self
    }

    #[inline(always)]
    fn at(&mut self, at: usize) -> &mut u32 {
        if at < A::FIT {
            &mut self.words[A::FIELDS + at]
        } else {
            &mut self.more.as_mut()[at - A::FIT]
        }
    }
}

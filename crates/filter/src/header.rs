//! Header fields of a packet that rules match.

use core::fmt::Debug;
use core::hash::Hash;

use crate::cut_tree::words::{WordAddress, Words};
use crate::field::{Field, MARK};

/// An IPv4 or IPv6 address as a number.
pub trait Address: WordAddress + Copy + Ord + Hash + Debug + Default + Send + Sync + 'static {
    /// The largest address.
    const LAST: Self;
    /// The next address; `None` after the largest address.
    fn next(self) -> Option<Self>;
    /// The preceding address; `None` before the smallest address.
    fn before(self) -> Option<Self>;
    /// Distance from `first` to this address; wraps around if this address precedes `first`.
    fn distance(self, first: Self) -> Self;
    /// The address shifted right by `bits` bits.
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

/// Part of the header that one level of a search compares.
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
    /// Creates a header of a packet between two addresses. All fields other than the addresses are [`NONE`](crate::NONE) if they
    /// permit this value, otherwise 0.
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
            if field.plain() != 0 {
                header = header.with(field, field.plain());
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

    /// Sets a field. A value that exceeds the field's range is replaced by the largest value.
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
        let word = match at < A::MAX_FIELDS {
            true => self.words[A::FIELDS + at],
            false => self.more.as_ref()[at - A::MAX_FIELDS],
        };
        word >> shift & bits
    }

    /// The session mark, including changes by preceding rules.
    #[inline(always)]
    pub fn mark(&self) -> u32 {
        match MARK < A::MAX_FIELDS {
            true => self.words[A::FIELDS + MARK],
            false => self.more.as_ref()[MARK - A::MAX_FIELDS],
        }
    }

    /// Sets the session mark.
    #[inline(always)]
    pub fn with_mark(mut self, mark: u32) -> Self {
        *self.at(MARK) = mark;
        self
    }

    #[inline(always)]
    fn at(&mut self, at: usize) -> &mut u32 {
        if at < A::MAX_FIELDS {
            &mut self.words[A::FIELDS + at]
        } else {
            &mut self.more.as_mut()[at - A::MAX_FIELDS]
        }
    }
}

//! Conditions of a rule: a hyperrectangle in the space of headers.

use thiserror::Error;

use crate::field::{Field, NONE};
use crate::header::{Address, Header};

/// A range of numbers, including both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Range<T> {
    /// First number.
    pub first: T,
    /// Last number, included.
    pub last: T,
}

impl<T: Copy + Ord> Range<T> {
    /// Whether the range contains a number.
    #[inline(always)]
    pub fn contains(&self, number: T) -> bool {
        self.first <= number && number <= self.last
    }

    /// Intersection of two ranges.
    pub(crate) fn intersection(&self, other: &Self) -> Option<Self> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (first <= last).then_some(Self { first, last })
    }

    /// Whether the range contains all of another range.
    pub fn covers(&self, other: &Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

/// Condition on TCP flags: the values of the flags under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlagsMask {
    /// Flags that must be set.
    pub set: u8,
    /// Mask of the flags that are compared.
    pub of: u8,
}

impl FlagsMask {
    /// A condition without compared flags, which every packet satisfies.
    pub const ANY: Self = Self { set: 0, of: 0 };

    /// Whether flags, in the format of [`Field::Flags`], satisfy the condition. A packet without TCP flags satisfies
    /// the condition only if no flag is compared.
    #[inline(always)]
    pub fn matches(&self, flags: u32) -> bool {
        self.of == 0 || flags & !0xff == 0 && flags as u8 & self.of == self.set
    }
}

/// Conditions of a rule. A packet must satisfy all conditions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule<A> {
    /// Source addresses.
    pub source: Range<A>,
    /// Destination addresses.
    pub destination: Range<A>,
    fields: [Range<u32>; Field::ALL.len()],
    flags: FlagsMask,
}

/// Why a condition is invalid: no packet could satisfy it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RuleError {
    /// The last value of a range is less than its first value.
    #[error("the range {first} to {last} of {field:?} ends before it begins")]
    Reversed {
        /// The field.
        field: Field,
        /// First value.
        first: u32,
        /// Last value.
        last: u32,
    },
    /// A value exceeds the largest value of the field.
    #[error("the maximum of {field:?} is {max}, not {last}")]
    TooLarge {
        /// The field.
        field: Field,
        /// Last value of the condition.
        last: u32,
        /// Largest value of the field.
        max: u32,
    },
    /// A flag must be set but is not among the compared flags.
    #[error("the flags {set:#04x} must be set, but the mask {of:#04x} does not include them")]
    Flags {
        /// Flags that must be set.
        set: u8,
        /// Flags that are compared.
        of: u8,
    },
    /// The last address of a range is less than its first address.
    #[error("a range of addresses ends before it begins")]
    Addresses,
}

impl<A: Address> Rule<A> {
    /// A rule that matches every packet.
    pub fn any() -> Self {
        let all = Range {
            first: A::default(),
            last: A::LAST,
        };
        Self {
            source: all,
            destination: all,
            fields: Field::ALL.map(|field| Range {
                first: 0,
                last: field.last(),
            }),
            flags: FlagsMask::ANY,
        }
    }

    /// Creates a rule with conditions only on the fields that the default matcher compares in leaves: addresses, ports
    /// and protocol.
    pub(crate) fn compared(source: Range<A>, destination: Range<A>, fields: [Range<u32>; 3]) -> Self {
        let mut rule = Self {
            source,
            destination,
            ..Self::any()
        };
        for (field, range) in [Field::SourcePort, Field::DestinationPort, Field::Protocol]
            .into_iter()
            .zip(fields)
        {
            rule.fields[field as usize] = range;
        }
        rule
    }

    /// Adds a condition on source and destination addresses.
    pub fn between(mut self, source: Range<A>, destination: Range<A>) -> Result<Self, RuleError> {
        if source.first > source.last || destination.first > destination.last {
            return Err(RuleError::Addresses);
        }
        (self.source, self.destination) = (source, destination);
        Ok(self)
    }

    /// Adds a condition on a field: its value is at least `first` and at most `last`.
    pub fn with(mut self, field: Field, first: u32, last: u32) -> Result<Self, RuleError> {
        let max = field.last_named();
        if first > last {
            return Err(RuleError::Reversed { field, first, last });
        }
        if last > max {
            return Err(RuleError::TooLarge { field, last, max });
        }
        self.fields[field as usize] = Range { first, last };
        Ok(self)
    }

    /// Adds a condition on TCP flags.
    pub fn with_flags(mut self, flags: FlagsMask) -> Result<Self, RuleError> {
        let FlagsMask { set, of } = flags;
        if set & !of != 0 {
            return Err(RuleError::Flags { set, of });
        }
        self.flags = flags;
        Ok(self)
    }

    /// The range of values that the rule matches in a field.
    #[inline(always)]
    pub fn get(&self, field: Field) -> Range<u32> {
        self.fields[field as usize]
    }

    /// The condition on TCP flags.
    pub fn flags(&self) -> FlagsMask {
        self.flags
    }

    /// Whether the rule has no condition on a field.
    pub fn is_any(&self, field: Field) -> bool {
        let Range { first, last } = self.get(field);
        (first, last) == (0, field.last()) && (field != Field::Flags || self.flags.of == 0)
    }

    /// Whether the rule matches only packets to the gateway itself.
    pub fn is_to_gateway(&self) -> bool {
        self.get(Field::Outgoing).first == NONE
    }

    /// Whether a value of a field satisfies the rule's condition.
    #[inline(always)]
    pub fn admits(&self, field: Field, value: u32) -> bool {
        self.get(field).contains(value) && (field != Field::Flags || self.flags.matches(value))
    }

    /// Whether the rule matches a packet.
    #[inline]
    pub fn matches(&self, header: &Header<A>) -> bool {
        self.source.contains(header.source())
            && self.destination.contains(header.destination())
            && Field::ALL.iter().all(|&field| self.admits(field, header.get(field)))
    }
}

//! Types of the configuration keys that match header fields.

use super::{Dscp, Ecn, Numbers, OneOrMore};

/// The value of a configuration key that matches a header field. The key accepts some values of the field, or any
/// value.
pub trait FieldValues: Sized {
    /// The values as ranges. Empty if any value matches.
    fn ranges(&self) -> Vec<(u32, u32)>;

    /// Whether any value matches.
    fn is_any(&self) -> bool {
        self.ranges().is_empty()
    }

    /// Keys that together match the given ranges. Several keys are necessary if a key can have only one range.
    fn of(ranges: &[(u128, u128)]) -> Vec<Self>;
}

impl<T: Copy + From<u8> + Into<u32>> FieldValues for OneOrMore<T> {
    fn ranges(&self) -> Vec<(u32, u32)> {
        self.0.iter().map(|&one| (one.into(), one.into())).collect()
    }

    fn of(ranges: &[(u128, u128)]) -> Vec<Self> {
        let each = ranges.iter().flat_map(|&(first, last)| first..=last);
        vec![Self(each.map(|number| T::from(number as u8)).collect())]
    }
}

impl FieldValues for Option<Numbers> {
    fn ranges(&self) -> Vec<(u32, u32)> {
        let range = |numbers: &Numbers| (numbers.first.into(), numbers.last.into());
        self.iter().map(range).collect()
    }

    fn of(ranges: &[(u128, u128)]) -> Vec<Self> {
        let numbers = |&(first, last): &(u128, u128)| {
            let (first, last) = (first as u16, last as u16);
            Some(Numbers { first, last })
        };
        ranges.iter().map(numbers).collect()
    }
}

/// Implements the trait for code points, which have fewer than 256 values.
macro_rules! code_point {
    ($type:ident, $last:literal) => {
        impl From<u8> for $type {
            fn from(number: u8) -> Self {
                Self(number & $last)
            }
        }

        impl From<$type> for u32 {
            fn from($type(number): $type) -> Self {
                number.into()
            }
        }
    };
}

code_point!(Dscp, 0x3f);
code_point!(Ecn, 3);

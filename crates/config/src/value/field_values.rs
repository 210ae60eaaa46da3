//! What the key of a header field says.

use super::{Dscp, Ecn, Numbers, OneOrMore};

/// What the key of a header field says: some values of it, or any.
pub trait FieldValues: Sized {
    /// The values as ranges; none where any will do.
    fn ranges(&self) -> Vec<(u32, u32)>;

    /// Whether any value will do.
    fn is_any(&self) -> bool {
        self.ranges().is_empty()
    }

    /// What says the same as some ranges, where one rule has one of them.
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

/// Code points, of which there are fewer than bytes.
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

//! Sets of numbers, stored as sorted ranges.

/// Inclusive ranges in ascending order. The ranges neither overlap nor are adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(u128, u128)>);

impl Ranges {
    /// A range from the first to the last number. Empty if `last` is less than `first`.
    pub fn of(first: u128, last: u128) -> Self {
        Self(if first <= last { vec![(first, last)] } else { Vec::new() })
    }

    /// Union of ranges.
    pub fn union(ranges: impl IntoIterator<Item = (u128, u128)>) -> Self {
        let mut sorted: Vec<_> = ranges.into_iter().filter(|(first, last)| first <= last).collect();
        sorted.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(sorted.len());
        for (first, last) in sorted {
            match merged.last_mut() {
                Some(before) if before.1 == u128::MAX || first <= before.1 + 1 => before.1 = before.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    /// The ranges.
    pub fn list(&self) -> &[(u128, u128)] {
        &self.0
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the set contains a number.
    pub fn holds(&self, number: u128) -> bool {
        self.0.iter().any(|&(first, last)| first <= number && number <= last)
    }

    /// The largest number.
    pub fn last(&self) -> Option<u128> {
        self.0.last().map(|range| range.1)
    }

    /// Intersection with another set.
    pub fn and(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = Vec::new();
        while let (Some(one), Some(two)) = (left.peek(), right.peek()) {
            let (first, last) = (one.0.max(two.0), one.1.min(two.1));
            if first <= last {
                both.push((first, last));
            }
            if one.1 < two.1 {
                left.next();
            } else {
                right.next();
            }
        }
        Self(both)
    }

    /// Complement within 0 to `max`.
    pub fn not(&self, max: u128) -> Self {
        let mut from = Some(0);
        let mut others = Vec::new();
        for &(first, last) in &self.0 {
            if let Some(from) = from.filter(|&from| from < first) {
                others.push((from, (first - 1).min(max)));
            }
            from = last.checked_add(1);
        }
        others.extend(from.filter(|&from| from <= max).map(|from| (from, max)));
        Self(others)
    }

    /// The numbers that are not in another set.
    pub fn without(&self, other: &Self) -> Self {
        self.and(&other.not(u128::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_small_numbers_are_sets() {
        let set = |bits: u32| Ranges::union((0..8).filter(|bit| bits >> bit & 1 == 1).map(|bit| (bit, bit)));
        for one in 0..256 {
            assert_eq!(set(!one & 255), set(one).not(7), "{one}");
            for two in 0..256 {
                assert_eq!(set(one & two), set(one).and(&set(two)), "{one} {two}");
                assert_eq!(set(one & !two), set(one).without(&set(two)), "{one} {two}");
            }
        }
    }

    #[test]
    fn ranges_at_the_end_do_not_overflow() {
        let all = Ranges::of(0, u128::MAX);
        assert!(all.not(u128::MAX).is_empty());
        assert_eq!(all, Ranges::union([(5, u128::MAX), (0, 9)]));
        assert_eq!(
            Ranges::of(u128::MAX, u128::MAX),
            all.without(&Ranges::of(0, u128::MAX - 1))
        );
    }
}

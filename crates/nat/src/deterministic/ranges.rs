//! Ascending ranges of addresses or ports, with consecutive numbers for the elements of all ranges.

use crate::Address;

/// Ranges, each with its first element, its last element, and the number of elements in the preceding ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ranges<A> {
    spans: Box<[(A, A, u32)]>,
    count: u32,
}

impl<A: Address> Ranges<A> {
    /// Creates the numbering from disjoint ranges, which can be in any order. Elements whose number exceeds 32 bits are
    /// ignored.
    pub fn new(mut ranges: Vec<(A, A)>) -> Self {
        ranges.retain(|range| range.0 <= range.1);
        ranges.sort_unstable();
        let mut spans = Vec::with_capacity(ranges.len());
        let mut count = 0u32;
        for (first, last) in ranges {
            let capacity = u32::MAX - count;
            let length = (last.number() - first.number()).saturating_add(1).min(capacity.into()) as u32;
            if length > 0 {
                spans.push((first, A::from_number(first.number() + u128::from(length - 1)), count));
            }
            count += length;
        }
        Self {
            spans: spans.into(),
            count,
        }
    }

    /// Creates the numbering of the elements of one range, without the elements in `holes`.
    pub fn without(whole: (A, A), holes: impl Iterator<Item = (A, A)>) -> Self {
        let mut holes: Vec<_> = holes.collect();
        holes.sort_unstable();
        let mut ranges = Vec::with_capacity(holes.len() + 1);
        let (mut from, last) = (whole.0.number(), whole.1.number());
        for (first, end) in holes {
            if from < first.number() && from <= last {
                ranges.push((from, (first.number() - 1).min(last)));
            }
            from = from.max(end.number() + 1);
        }
        if from <= last {
            ranges.push((from, last));
        }
        let typed = |(first, last)| (A::from_number(first), A::from_number(last));
        Self::new(ranges.into_iter().map(typed).collect())
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// First and last element of each range.
    pub fn ranges(&self) -> impl Iterator<Item = (A, A)> {
        self.spans.iter().map(|&(first, last, _)| (first, last))
    }

    /// The element with number `index`, or the last element if `index` is too large.
    #[inline(always)]
    pub fn at(&self, index: u32) -> A {
        let index = index.min(self.count - 1);
        let mut at = 0;
        if self.spans.len() > 1 {
            at = self.spans.partition_point(|span| span.2 <= index) - 1;
        }
        let (first, _, before) = self.spans[at];
        A::from_number(first.number() + u128::from(index - before))
    }

    #[inline(always)]
    pub fn index_of(&self, one: A) -> Option<u32> {
        let at = match self.spans.len() {
            1 => 0,
            _ => self.spans.partition_point(|span| span.0 <= one).checked_sub(1)?,
        };
        let (first, last, before) = *self.spans.get(at)?;
        (first <= one && one <= last).then(|| before + (one.number() - first.number()) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_without_holes_count_what_remains() {
        let spans = Ranges::without(
            (1024u32, 2000),
            [(5000, 6000), (1, 1030), (1500, 1500), (1990, 2010)].into_iter(),
        );
        let expected = vec![(1031, 1499), (1501, 1989)];
        assert_eq!(expected, spans.ranges().collect::<Vec<_>>());
        assert_eq!(469 + 489, spans.count());
        let all: Vec<u32> = (1031..=1499).chain(1501..=1989).collect();
        for (index, &port) in all.iter().enumerate() {
            assert_eq!(port, spans.at(index as u32));
            assert_eq!(Some(index as u32), spans.index_of(port));
        }
        for hole in [0, 1030, 1500, 1990, 2000, 70_000] {
            assert_eq!(None, spans.index_of(hole));
        }
    }

    #[test]
    fn spans_all_reserved_are_empty() {
        assert!(Ranges::without((10u32, 20), [(1, 15), (16, 20)].into_iter()).is_empty());
        assert_eq!(None, Ranges::<u32>::new(Vec::new()).index_of(1));
    }
}

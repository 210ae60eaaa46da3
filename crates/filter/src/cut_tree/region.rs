//! Region of the header space that a node or leaf covers.

use super::FIELDS;
use super::leaf::Entry;
use crate::{Address, Range, Rule};

/// Ranges of one header word that rules match within a region.
pub struct WordRanges {
    pub within: Range<u32>,
    pub of_rules: Vec<Range<u32>>,
    /// The first value of each range and the value that follows its last value, for all ranges in ascending order. The
    /// largest value is omitted, because it marks unused cuts.
    pub edges: Vec<u32>,
}

/// One range for each dimension that nodes may cut: source, destination, and `FIELDS`, in this order.
#[derive(Clone, Copy, Debug)]
pub struct Region<A> {
    source: Range<A>,
    destination: Range<A>,
    fields: [Range<u32>; FIELDS.len()],
}

impl<A: Address> Region<A> {
    /// The region of all headers.
    pub fn whole() -> Self {
        let all = Rule::<A>::any();
        Self {
            source: all.source,
            destination: all.destination,
            fields: FIELDS.map(|field| all.get(field)),
        }
    }

    /// Whether a rule matches all headers of the region.
    pub fn is_within(&self, entry: &Entry<A>) -> bool {
        let fields = FIELDS.iter().zip(&self.fields);
        entry.rule.source.covers(&self.source)
            && entry.rule.destination.covers(&self.destination)
            && fields
                .into_iter()
                .all(|(&field, part)| entry.rule.get(field).covers(part))
            && !entry.further
    }

    /// The intersection of a rule's compared fields and the region; `None` if it is empty.
    pub fn clipped(&self, rule: &Rule<A>) -> Option<Rule<A>> {
        let fields = [0, 1, 2].map(|at| rule.get(FIELDS[at]).intersection(&self.fields[at]));
        let [Some(from), Some(to), Some(protocol)] = fields else {
            return None;
        };
        let source = rule.source.intersection(&self.source)?;
        let destination = rule.destination.intersection(&self.destination)?;
        Some(Rule::compared(source, destination, [from, to, protocol]))
    }

    /// Index of the header word that is cut in a dimension, and the range of this word in the region. For an address,
    /// this is the most significant word that has several values in the region.
    pub fn word(&self, dimension: usize) -> (usize, Range<u32>) {
        let of = |range: Range<A>| {
            let at = (0..A::WORDS - 1).find(|&at| range.first.word(at) != range.last.word(at));
            let at = at.unwrap_or(A::WORDS - 1);
            let (first, last) = (range.first.word(at), range.last.word(at));
            (at, Range { first, last })
        };
        match dimension {
            0 => of(self.source),
            1 => {
                let (at, range) = of(self.destination);
                (A::WORDS + at, range)
            }
            _ => (A::FIELDS + FIELDS[dimension - 2] as usize, self.fields[dimension - 2]),
        }
    }

    /// The dimension of a header word.
    pub fn dimension(word: usize) -> usize {
        match word.checked_sub(A::FIELDS) {
            None => usize::from(word >= A::WORDS),
            Some(number) => {
                let at = FIELDS.iter().position(|&field| field as usize == number);
                2 + at.unwrap_or_default()
            }
        }
    }

    /// The range that a rule matches in the word of a dimension.
    pub fn of_rule(&self, dimension: usize, rule: &Rule<A>) -> Range<u32> {
        let (at, _) = self.word(dimension);
        let of = |range: Range<A>, part: Range<A>, at: usize| Range {
            first: range.first.max(part.first).word(at),
            last: range.last.min(part.last).word(at),
        };
        match dimension {
            0 => of(rule.source, self.source, at),
            1 => of(rule.destination, self.destination, at - A::WORDS),
            _ => rule.get(FIELDS[dimension - 2]),
        }
    }

    /// Ranges that rules match in each dimension.
    pub fn queried(&self, entries: &[&Entry<A>]) -> [WordRanges; 2 + FIELDS.len()] {
        core::array::from_fn(|dimension| {
            let (_, within) = self.word(dimension);
            let ranges = entries.iter().map(|entry| self.of_rule(dimension, &entry.rule));
            let of_rules: Vec<_> = ranges.collect();
            let mut edges = Vec::new();
            for range in &of_rules {
                if range.first > within.first && range.first < u32::MAX {
                    edges.push(range.first);
                }
                if range.last < within.last && range.last + 1 < u32::MAX {
                    edges.push(range.last + 1);
                }
            }
            edges.sort_unstable();
            WordRanges {
                within,
                of_rules,
                edges,
            }
        })
    }

    /// The region with the word of a dimension restricted to a range.
    pub fn narrowed(mut self, dimension: usize, to: Range<u32>) -> Self {
        let (at, _) = self.word(dimension);
        let narrow = |range: Range<A>, at: usize| Range {
            first: range.first.max(range.first.with_word(at, to.first, A::default())),
            last: range.last.min(range.last.with_word(at, to.last, A::LAST)),
        };
        match dimension {
            0 => self.source = narrow(self.source, at),
            1 => self.destination = narrow(self.destination, at - A::WORDS),
            _ => self.fields[dimension - 2] = to,
        }
        self
    }
}

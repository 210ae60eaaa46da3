//! Histogram with buckets of constant relative width: linear within each power of two.

/// Binary logarithm of the number of buckets per power of two: with 2^7 buckets, each bucket is at most 0.8 % wide.
const BITS: u32 = 7;

/// Counts by bucket.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    most: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        let buckets = bucket(u64::MAX) + 1;
        Self {
            counts: vec![0; buckets].into(),
            total: 0,
            most: 0,
        }
    }
}

/// Bucket of a value.
#[inline(always)]
fn bucket(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(BITS + 1);
    ((u64::from(shift) << BITS) + (value >> shift)) as usize
}

/// Largest value of a bucket.
fn largest(bucket: usize) -> u64 {
    let shift = ((bucket as u64) >> BITS).saturating_sub(1);
    let first = bucket as u64 - (shift << BITS);
    (first << shift) + ((1 << shift) - 1)
}

impl Histogram {
    /// Record a value.
    #[inline(always)]
    pub fn record(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.total += 1;
        self.most = self.most.max(value);
    }

    /// Add the counts of another histogram.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
        self.most = self.most.max(other.most);
    }

    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.total, self.most) = (0, 0);
    }

    /// Number of recorded values.
    #[cfg(test)]
    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn most(&self) -> u64 {
        self.most
    }

    /// Returns a percentile: the largest value of the first bucket for which the given share of all values lies in the
    /// bucket or below it.
    pub fn percentile(&self, share: f64) -> u64 {
        let wanted = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut sum = 0;
        for (place, count) in self.counts.iter().enumerate() {
            sum += count;
            if sum >= wanted {
                return largest(place).min(self.most);
            }
        }
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::frames::Random;

    #[test]
    fn bucket_holds_the_values_up_to_its_largest() {
        let mut last = 0;
        for value in (0..100_000)
            .chain((17..64).map(|power| 1u64 << power))
            .chain([u64::MAX])
        {
            let place = bucket(value);
            assert!(place >= last, "{value}");
            assert!(
                largest(place) >= value && (place == 0 || largest(place - 1) < value),
                "{value}"
            );
            last = place;
        }
    }

    #[test]
    fn percentiles_are_those_of_sorted_values() {
        let mut random = Random(88_172_645_463_325_252);
        for most in [100u64, 10_000, 1 << 32] {
            let mut values: Vec<u64> = (0..50_000)
                .map(|_| (u64::from(random.below(1 << 31)) * most) >> random.below(31))
                .collect();
            let mut histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.record(value));
            values.sort_unstable();
            for share in [0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0] {
                let exact = values[(values.len() as f64 * share).ceil() as usize - 1];
                let told = histogram.percentile(share);
                assert!(
                    told >= exact && told as f64 <= exact as f64 * (1.0 + 1.0 / 128.0),
                    "{share} of {most}: {told} in place of {exact}"
                );
            }
            assert_eq!(values.last(), Some(&histogram.most()));
        }
    }

    #[test]
    fn percentile_of_nothing_is_zero() {
        assert_eq!(0, Histogram::default().percentile(0.99));
    }
}

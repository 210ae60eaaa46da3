//! Record of the address regions that have changed in each of the last generations. For most decisions of earlier
//! generations, a quick test of this record shows that they need no revalidation.

use std::sync::Arc;

/// Number of generations for which changes are kept.
const GENERATIONS: usize = 8;

/// Number of bits in the set. Adjacent regions have different bits.
const REGION_COUNT: usize = 1 << BITS;
const BITS: u32 = 18;

/// Set of changed regions of the address space. Several regions may share one bit.
#[derive(Clone, Debug)]
pub struct ChangedRegions {
    bits: Box<[u64; REGION_COUNT / 64]>,
    /// Whether any region is in the set.
    any: bool,
    everywhere: bool,
}

impl Default for ChangedRegions {
    fn default() -> Self {
        Self {
            bits: Box::new([0; REGION_COUNT / 64]),
            any: false,
            everywhere: false,
        }
    }
}

#[inline(always)]
fn place(region: u64) -> usize {
    let bits = region ^ region >> (2 * BITS);
    (bits ^ bits >> BITS) as usize % REGION_COUNT
}

impl ChangedRegions {
    /// Adds all regions whose numbers equal `region` in all bits but the last `free` bits.
    pub fn mark(&mut self, region: u64, free: u32) {
        self.any = true;
        if free >= BITS {
            self.everywhere = true;
            return;
        }
        // Regions whose numbers differ only in the last six bits share one word of the set.
        let within = 1u64 << free.min(6);
        let some = u64::MAX >> (64 - within);
        for step in (0..1u64 << free).step_by(64) {
            let place = place(region ^ step);
            self.bits[place / 64] |= some << ((place as u64 % 64) & !(within - 1));
        }
    }

    /// Whether a region may have changed. False is exact; true may be caused by another region.
    #[inline(always)]
    pub fn contains(&self, region: u64) -> bool {
        let place = place(region);
        self.everywhere || self.any && self.bits[place / 64] >> (place % 64) & 1 != 0
    }
}

/// A set of changes that can be merged with another set.
pub trait Accumulate: Clone + Default {
    /// Merges the changes of `other` into this set.
    fn add(&mut self, other: &Self);
    /// Whether there are no changes.
    fn is_empty(&self) -> bool;
}

impl Accumulate for ChangedRegions {
    fn add(&mut self, other: &Self) {
        self.everywhere |= other.everywhere;
        self.any |= other.any;
        if other.any {
            let both = self.bits.iter_mut().zip(&*other.bits);
            both.for_each(|(bits, more)| *bits |= more);
        }
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        !self.any
    }
}

/// For each of the last generations: the changes that were made since then, merged into one set.
#[derive(Clone, Debug)]
pub struct Changes<T>(Arc<[Arc<T>]>);

impl<T> Default for Changes<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Accumulate> Changes<T> {
    /// Returns this record with one more generation, in which `changed` has changed.
    pub fn with_changes(&self, changed: T) -> Self {
        let older = self.0.iter().take(GENERATIONS - 1).map(|since| {
            let mut since = since.clone();
            if !changed.is_empty() {
                Arc::make_mut(&mut since).add(&changed);
            }
            since
        });
        let older: Vec<_> = older.collect();
        Self(std::iter::once(Arc::new(changed)).chain(older).collect())
    }

    /// Changes in the last `generations` generations (at least one); `None` if these changes are no longer kept.
    #[inline(always)]
    pub fn since(&self, generations: u32) -> Option<&T> {
        self.0.get((generations as usize).wrapping_sub(1)).map(|since| &**since)
    }
}

/// Whether an unaffected decision that is this many generations old should be marked as revalidated, because the record
/// will soon discard changes that were made since the decision. To mark decisions earlier would only cause more writes
/// of cache lines.
#[inline(always)]
pub fn is_outdated(generations: u32) -> bool {
    generations as usize >= GENERATIONS / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_that_differ_in_free_bits_are_marked_and_none_beside_them() {
        for (region, free) in [
            (0x12_3456u64, 0),
            (0x12_3456, 3),
            (0x3f_0040, 6),
            (0x3f_f000, 9),
            (0xffff_0000_0000, 12),
        ] {
            let mut regions = ChangedRegions::default();
            assert!(regions.is_empty());
            regions.mark(region, free);
            let first = region >> free << free;
            let count = 1u64 << free;
            assert!(
                (first..first + count).all(|region| regions.contains(region)),
                "{region:x}/{free}"
            );
            assert!(
                !regions.contains(first + count) && !regions.contains(first.wrapping_sub(1)),
                "{region:x}/{free}"
            );
            let set: u32 = regions.bits.iter().map(|word| word.count_ones()).sum();
            assert_eq!(count, u64::from(set));
        }
        let mut regions = ChangedRegions::default();
        regions.mark(7, BITS);
        assert!(regions.contains(u64::MAX));
    }

    #[test]
    fn what_has_changed_is_known_since_each_of_the_last_generations_alone() {
        let changed = |region| {
            let mut regions = ChangedRegions::default();
            regions.mark(region, 0);
            regions
        };
        let changes = Changes::default();
        assert!(changes.since(1).is_none());
        let changes = changes.with_changes(changed(5));
        let changes = changes.with_changes(ChangedRegions::default()).with_changes(changed(9));
        let since = |generations| {
            changes
                .since(generations)
                .map(|since| [5, 9].map(|region| since.contains(region)))
        };
        assert_eq!(
            [None, Some([false, true]), Some([false, true]), Some([true, true]), None],
            [0, 1, 2, 3, 4].map(since)
        );
        let changes = (0..GENERATIONS).fold(changes, |changes, _| changes.with_changes(ChangedRegions::default()));
        assert!(changes.since(GENERATIONS as u32).is_some_and(Accumulate::is_empty));
        assert!(changes.since(GENERATIONS as u32 + 1).is_none());
    }
}

//! Bitmaps of the sub-tables that may contain a match: one bitmap for all addresses, and one bitmap for each region. A
//! region consists of the addresses with equal leading bits.
//!
//! A region has 16 leading bits, or 20 leading bits if there are many rules. With many rules, smaller regions exclude
//! more sub-tables. Short prefixes, which span many regions, have separate bitmaps by 12 leading bits.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::key::{Address, Candidate, Key, Query};
use super::sync::{AtomicU32, AtomicU64, Ordering, halves, words};
use crate::prefetch::prefetch_read_at;

/// Number of leading bits that select a coarse bitmap. Coarse bitmaps represent prefixes of up to this length.
const COARSE: u32 = 12;
/// Number of leading bits that select a bitmap for longer prefixes.
const FINE: u32 = 16;
/// Number of leading bits that select a bitmap for longer prefixes if there are many rules.
const FINEST: u32 = 20;

/// Number of counts that one modification processes to fill the finest bitmaps.
const STEP: usize = 64;

/// Number of words in the largest candidate set of an address family.
const WORDS: usize = 4;

/// Region number of an address. The number is a hash of context and leading address bits, so that regions of different
/// contexts differ.
#[inline(always)]
fn place<A: Address>(context: u32, address: A) -> u32 {
    address.first_bits() ^ context.wrapping_mul(0x9e37_79b9)
}

/// Remaining candidates of a query, most specific first, without the candidates of prefix length 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Candidates<A: Address>(pub A::Candidates);

impl<A: Address> Candidates<A> {
    /// Whether any candidate remains.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.0.as_ref().iter().fold(0, |all, word| all | word) != 0
    }

    /// Removes and returns the most specific candidate. The result is arbitrary if no candidate remains.
    #[inline(always)]
    pub fn next(&mut self) -> Candidate {
        let words = self.0.as_mut();
        let last = words.iter().rposition(|word| *word != 0).unwrap_or(0);
        let bit = (words[last] | 1).ilog2();
        words[last] &= !(1 << bit);
        Candidate(64 * last as u32 + bit + 2)
    }

    /// If the query has no port, removes the candidates for keys that contain a port.
    #[inline(always)]
    fn with_port(mut self, port: bool) -> Self {
        let keep = if port { u64::MAX } else { u64::MAX / 3 };
        self.0.as_mut().iter_mut().for_each(|word| *word &= keep);
        self
    }
}

/// The bitmaps, for readers.
#[derive(Debug)]
pub struct Filter {
    /// Bitmap of the sub-tables that have entries, by candidate number minus 2.
    held: [AtomicU64; WORDS],
    /// Bitmap of the two candidates of prefix length 0.
    zero: AtomicU32,
    /// Bitmaps of candidate numbers minus 2, for prefixes of 1 to 12 bits. Indexed by the first 12 bits of the address.
    coarse: OnceLock<Box<[AtomicU32]>>,
    /// Bitmaps for longer prefixes, indexed by the first 16 bits of the address. Set after `coarse`.
    fine: OnceLock<Box<[AtomicU64]>>,
    /// Bitmaps for longer prefixes, indexed by the first 20 bits of the address.
    finest: OnceLock<Box<[AtomicU64]>>,
}

/// References to the bitmaps of regions for the duration of a batch.
#[derive(Clone, Copy)]
pub struct Regions<'f> {
    coarse: &'f [AtomicU32],
    fine: &'f [AtomicU64],
    /// Right shift that reduces the 32-bit region number of an address to the size of the bitmaps.
    shift: u32,
}

impl Regions<'_> {
    /// Prefetches the bitmaps that [`Filter::candidates`] reads, if they are too large for the first cache levels.
    #[inline(always)]
    pub fn prefetch<A: Address>(&self, query: &Query<A>) {
        prefetch_read_at(self.fine, (place(query.context, query.address) >> self.shift) as usize);
    }

    /// Whether the bitmaps are too large for the first cache levels.
    #[inline(always)]
    pub fn are_large(&self) -> bool {
        self.shift == 32 - FINEST
    }

    #[inline(always)]
    fn word<A: Address>(&self, query: &Query<A>) -> u64 {
        let place = place(query.context, query.address);
        let fine = self.fine.get((place >> self.shift) as usize);
        let coarse = self.coarse.get((place >> (32 - COARSE)) as usize);
        fine.map_or(0, |word| word.load(Ordering::Acquire))
            | coarse.map_or(0, |word| u64::from(word.load(Ordering::Acquire)))
    }
}

impl Filter {
    pub fn new() -> Self {
        Self {
            held: std::array::from_fn(|_| AtomicU64::new(0)),
            zero: AtomicU32::new(0),
            coarse: OnceLock::new(),
            fine: OnceLock::new(),
            finest: OnceLock::new(),
        }
    }

    /// Bitmaps of regions; `None` if not enabled.
    #[inline(always)]
    pub fn regions<A: Address>(&self) -> Option<Regions<'_>> {
        if !A::REGIONS {
            return None;
        }
        let (fine, bits) = match self.finest.get() {
            Some(finest) => (finest, FINEST),
            None => (self.fine.get()?, FINE),
        };
        Some(Regions {
            coarse: self.coarse.get()?,
            fine,
            shift: 32 - bits,
        })
    }

    /// Sub-tables that may contain a match, without the sub-tables of prefix length 0.
    #[inline(always)]
    pub fn candidates<A: Address>(&self, regions: &Option<Regions<'_>>, query: &Query<A>) -> Candidates<A> {
        let mut candidates = A::Candidates::default();
        let words = candidates.as_mut();
        if let Some(regions) = regions {
            words[0] = regions.word(query);
        } else {
            for (word, held) in words.iter_mut().zip(&self.held) {
                *word = held.load(Ordering::Acquire);
            }
        }
        Candidates(candidates).with_port(query.port.is_some())
    }

    /// Two bits: the sub-table of prefix length 0 has keys without a port, and has keys with a port.
    #[inline(always)]
    pub fn zero(&self) -> u32 {
        self.zero.load(Ordering::Acquire)
    }

    /// Whether all sub-tables are empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.zero() == 0 && self.held.iter().all(|held| held.load(Ordering::Acquire) == 0)
    }

    /// Size of the bitmaps in bytes.
    pub fn bytes(&self) -> usize {
        let coarse = self.coarse.get().map_or(0, |words| size_of_val(&**words));
        let fine = [&self.fine, &self.finest]
            .into_iter()
            .filter_map(OnceLock::get)
            .map(|words| size_of_val(&**words));
        size_of::<Self>() + coarse + fine.sum::<usize>()
    }

    fn set_held(&self, candidate: Candidate, on: bool) {
        match candidate.0.checked_sub(2) {
            Some(bit) => set_64(&self.held[bit as usize / 64], bit % 64, on),
            None => set_32(&self.zero, candidate.0, on),
        }
    }
}

fn set_64(cell: &AtomicU64, bit: u32, on: bool) {
    let word = cell.load(Ordering::Relaxed) & !(1 << bit) | u64::from(on) << bit;
    cell.store(word, Ordering::Release);
}

fn set_32(cell: &AtomicU32, bit: u32, on: bool) {
    let word = cell.load(Ordering::Relaxed) & !(1 << bit) | u32::from(on) << bit;
    cell.store(word, Ordering::Release);
}

/// An item of the finest bitmaps: one bit, or the bits of all regions that a prefix covers. The writer counts the rules
/// of each item. Values are sorted by the first 16 bits of the region, so values of one region are consecutive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RegionBits {
    /// First 16 bits of the region.
    fine: u16,
    /// Candidate number minus 2.
    bit: u8,
    /// Next 4 bits of the region.
    rest: u8,
}

impl RegionBits {
    fn of<A: Address>(key: &Key<A>) -> Option<Self> {
        if !A::REGIONS {
            return None;
        }
        let bit = Candidate::of(key).0.checked_sub(2)?;
        let reached = u32::from(key.length).min(FINEST);
        let place = place(key.context, key.prefix) & !(u32::MAX >> reached);
        Some(Self {
            fine: (place >> (32 - FINE)) as u16,
            bit: bit as u8,
            rest: (place >> (32 - FINEST)) as u8 & 0xf,
        })
    }

    fn length(self) -> u32 {
        u32::from(self.bit / 2) + 1
    }

    /// First covered region and number of covered regions, for regions of `bits` bits.
    fn regions(self, bits: u32) -> (usize, usize) {
        let finest = usize::from(self.fine) << (FINEST - FINE) | usize::from(self.rest);
        (finest >> (FINEST - bits), 1 << bits.saturating_sub(self.length()))
    }

    fn set_64(self, words: &[AtomicU64], bits: u32, on: bool) {
        let (first, count) = self.regions(bits);
        let cells = words.iter().skip(first).take(count);
        cells.for_each(|cell| set_64(cell, self.bit.into(), on));
    }

    fn set_32(self, words: &[AtomicU32], bits: u32, on: bool) {
        let (first, count) = self.regions(bits);
        let cells = words.iter().skip(first).take(count);
        cells.for_each(|cell| set_32(cell, self.bit.into(), on));
    }
}

/// The writer's counts of rules for each bit of the bitmaps.
#[derive(Debug, Default)]
pub struct RegionCounts {
    /// Number of rules by candidate.
    held: BTreeMap<u32, u32>,
    regions: BTreeMap<RegionBits, u32>,
    /// The finest bitmaps during their construction, and the last processed item.
    filling: Option<(Box<[AtomicU64]>, Option<RegionBits>)>,
}

impl RegionCounts {
    /// Counts an added rule.
    pub fn add<A: Address>(&mut self, filter: &Filter, key: &Key<A>) {
        let candidate = Candidate::of(key);
        if increment(&mut self.held, candidate.0) {
            filter.set_held(candidate, true);
        }
        if let Some(region) = RegionBits::of(key)
            && increment(&mut self.regions, region)
        {
            self.set(filter, region, true);
        }
    }

    /// Counts a removed rule.
    pub fn remove<A: Address>(&mut self, filter: &Filter, key: &Key<A>) {
        let candidate = Candidate::of(key);
        if lower(&mut self.held, candidate.0) {
            filter.set_held(candidate, false);
        }
        if let Some(region) = RegionBits::of(key)
            && lower(&mut self.regions, region)
        {
            self.set(filter, region, false);
        }
    }

    /// Sets the bits of an item, or, if `on` is false, clears those of its bits that no other item needs.
    fn set(&self, filter: &Filter, region: RegionBits, on: bool) {
        if region.length() <= COARSE {
            if let Some(coarse) = filter.coarse.get() {
                region.set_32(coarse, COARSE, on);
            }
            return;
        }
        let filling = self.filling.as_ref().map(|(words, _)| words);
        if let Some(finest) = filter.finest.get().or(filling) {
            region.set_64(finest, FINEST, on);
        }
        let others = RegionBits { rest: 0, ..region }..=RegionBits { rest: 0xf, ..region };
        if let Some(fine) = filter.fine.get()
            && (on || self.regions.range(others).next().is_none())
        {
            region.set_64(fine, FINE, on);
        }
    }

    /// Enables the bitmaps by region.
    pub fn enable_regions<A: Address>(&self, filter: &Filter) {
        if !A::REGIONS || filter.fine.get().is_some() {
            return;
        }
        let (coarse, fine) = (halves(1 << COARSE), words(1 << FINE));
        for region in self.regions.keys() {
            if region.length() <= COARSE {
                region.set_32(&coarse, COARSE, true);
            } else {
                region.set_64(&fine, FINE, true);
            }
        }
        // Readers can access the bitmaps only after this call, when the bitmaps are complete. Only the writer sets
        // them.
        let _ = filter.coarse.set(coarse);
        let _ = filter.fine.set(fine);
    }

    /// Starts or continues the construction of the finest bitmaps, with a few counts per call. Readers use the bitmaps
    /// after all counts are processed.
    pub fn enable_fine_regions<A: Address>(&mut self, filter: &Filter) {
        if !A::REGIONS || filter.finest.get().is_some() {
            return;
        }
        let (words, done) = self.filling.get_or_insert_with(|| (words(1 << FINEST), None));
        let from = match *done {
            None => std::ops::Bound::Unbounded,
            Some(region) => std::ops::Bound::Excluded(region),
        };
        let mut last = None;
        for region in self.regions.range((from, std::ops::Bound::Unbounded)).take(STEP) {
            if region.0.length() > COARSE {
                region.0.set_64(words, FINEST, true);
            }
            last = Some(*region.0);
        }
        match last {
            Some(last) => *done = Some(last),
            None => {
                if let Some((words, _)) = self.filling.take() {
                    let _ = filter.finest.set(words);
                }
            }
        }
    }
}

/// Increments a count. Returns whether it was zero before.
fn increment<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) -> bool {
    let count = counts.entry(key).or_insert(0);
    *count += 1;
    *count == 1
}

/// Decrements a count. Returns whether it is zero now.
fn lower<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K) -> bool {
    let Some(count) = counts.get_mut(&key) else {
        return false;
    };
    *count -= 1;
    let last = *count == 0;
    if last {
        counts.remove(&key);
    }
    last
}

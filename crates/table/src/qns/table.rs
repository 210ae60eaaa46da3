//! Modification of QNS tables by the control thread.

use std::sync::Arc;

use super::filter::{Filter, RegionCounts};
use super::key::{Address, Key, block_of};
use super::line::{self, Rest, SLOTS, clear, fill, free_slot, set_rest, sieve, tag_of};
use super::reader::{CHAIN, QnsReader, Shared, bucket};
use super::segments::Lines;
use super::sync::{AtomicU64, Ordering};
use crate::hash::Hasher;

/// Initial number of buckets.
const BUCKETS: u32 = 256;
/// Maximum number of buckets.
const MAX_BUCKETS: u32 = 1 << 30;
/// Minimum numbers of rules for the bitmaps by region (512 KiB) and for the finest bitmaps (8 MiB).
const REGIONS_FROM: [usize; 2] = [64, 50_000];

/// Why a rule is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QnsError {
    /// The prefix is longer than an address.
    #[error("prefix length {0} is longer than the address")]
    Length(u8),
    /// Bits beyond the prefix length are not 0.
    #[error("bits beyond the prefix length are set")]
    HostBits,
    /// Too many rules have the same prefix and port, and differ only in protocol or interface.
    #[error("too many rules have the same prefix and port")]
    Crowded,
}

/// Position of an entry: line and slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    line: Line,
    slot: usize,
}

/// A line: the first line of a bucket, or an overflow line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Bucket(u32),
    Overflow(u32),
}

/// A table of rules by prefix, port and protocol. One thread owns and modifies the table. Other threads look up rules
/// with [`QnsTable::reader`].
#[derive(Debug)]
pub struct QnsTable<A: Address> {
    shared: Arc<Shared<A>>,
    account: RegionCounts,
    entries: usize,
    /// Numbers of free overflow lines.
    free: Vec<u32>,
    overflow: u32,
    regions_from: [usize; 2],
}

impl<A: Address> QnsTable<A> {
    /// Creates an empty table. The hash of the table is keyed with 128 random bits.
    pub fn new(seed: [u64; 2]) -> Self {
        Self::with_thresholds(seed, REGIONS_FROM, BUCKETS)
    }

    /// Creates an empty table like [`QnsTable::new`]. `regions_from` contains the minimum numbers of rules for the
    /// bitmaps by region and for the finest bitmaps. `buckets` is the initial number of buckets, at least 1.
    pub fn with_thresholds(seed: [u64; 2], regions_from: [usize; 2], buckets: u32) -> Self {
        let buckets = buckets.clamp(1, MAX_BUCKETS);
        let shared = Shared {
            state: AtomicU64::new(buckets.into()),
            filter: Filter::new(),
            buckets: Lines::new(),
            overflow: Lines::new(),
            hasher: Hasher::new(seed),
        };
        (0..buckets).for_each(|bucket| {
            shared.buckets.make(bucket);
        });
        Self {
            shared: Arc::new(shared),
            account: RegionCounts::default(),
            entries: 0,
            free: Vec::new(),
            overflow: 0,
            regions_from,
        }
    }

    /// Creates a reader for lookups on any thread.
    pub fn reader(&self) -> QnsReader<A> {
        QnsReader {
            shared: self.shared.clone(),
        }
    }

    /// Adds a rule or changes its value. Returns the previous value.
    pub fn insert(&mut self, key: &Key<A>, value: A::Value) -> Result<Option<A::Value>, QnsError> {
        checked(key)?;
        let hash = self.hash(key);
        let entry = A::entry(key, value);
        let home = Line::Bucket(bucket(hash, self.state()));
        let old = self.find(home, hash, &entry);
        self.put(home, hash, &entry)?;
        if let Some(old) = old {
            let before = line::entry::<A>(self.words(old.line), old.slot);
            // The old and the new entry coexist briefly. A reader that found neither entry searches again.
            self.moved(0);
            clear(self.words(old.line), old.slot);
            self.compact(home);
            return Ok(Some(A::value(&before)));
        }
        self.entries += 1;
        self.account.add(&self.shared.filter, key);
        let [regions, finer] = self.regions_from;
        if self.entries >= regions {
            self.account.enable_regions::<A>(&self.shared.filter);
        }
        if self.entries >= finer {
            self.account.enable_fine_regions::<A>(&self.shared.filter);
        }
        if self.entries > self.state() as u32 as usize {
            self.split();
        }
        Ok(None)
    }

    /// Removes a rule. Returns its value.
    pub fn remove(&mut self, key: &Key<A>) -> Option<A::Value> {
        let (place, entry) = self.place_of(key)?;
        clear(self.words(place.line), place.slot);
        self.entries -= 1;
        self.account.remove(&self.shared.filter, key);
        self.compact(Line::Bucket(bucket(self.hash(key), self.state())));
        Some(A::value(&entry))
    }

    /// Value of the rule with exactly this key.
    pub fn get(&self, key: &Key<A>) -> Option<A::Value> {
        let (_, entry) = self.place_of(key)?;
        Some(A::value(&entry))
    }

    /// All rules, in unspecified order.
    pub fn iter(&self) -> impl Iterator<Item = (Key<A>, A::Value)> + '_ {
        entries_of(&self.shared).map(|entry| A::open(&entry))
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Number of buckets.
    pub fn buckets(&self) -> u32 {
        self.state() as u32
    }

    /// Number of bytes allocated for lookups: buckets, overflow lines and bitmaps.
    pub fn bytes(&self) -> usize {
        self.shared.buckets.bytes() + self.shared.overflow.bytes() + self.shared.filter.bytes()
    }

    fn hash(&self, key: &Key<A>) -> u64 {
        A::hash_one(&self.shared.hasher, &block_of(key))
    }

    fn state(&self) -> u64 {
        self.shared.state.load(Ordering::Relaxed)
    }

    /// Records that the writer has copied entries. Readers without a match search again, so the writer may remove the
    /// originals after this call. Adds `buckets` to the number of buckets.
    fn moved(&self, buckets: u32) {
        let state = self.state().wrapping_add(1 << 32) + u64::from(buckets);
        self.shared.state.store(state, Ordering::Release);
    }

    /// The words of an existing line.
    fn words(&self, line: Line) -> &[AtomicU64] {
        words(&self.shared, line)
    }

    fn place_of(&self, key: &Key<A>) -> Option<(Place, A::Entry)> {
        checked(key).ok()?;
        let hash = self.hash(key);
        let home = Line::Bucket(bucket(hash, self.state()));
        let place = self.find(home, hash, &A::entry(key, A::Value::default()))?;
        Some((place, line::entry::<A>(self.words(place.line), place.slot)))
    }

    /// Position of the entry with the key of `entry`.
    fn find(&self, home: Line, hash: u64, entry: &A::Entry) -> Option<Place> {
        let mut places = places(&self.shared, home);
        places.find(|place| {
            let words = self.words(place.line);
            let same = || A::same_key(&line::entry::<A>(words, place.slot), entry);
            line::header(words).tag(place.slot) == tag_of(hash) && same()
        })
    }

    /// Stores an entry in the first free slot of a bucket.
    fn put(&mut self, home: Line, hash: u64, entry: &A::Entry) -> Result<(), QnsError> {
        let tag = tag_of(hash);
        let (mut last, mut count) = (home, 0);
        for line in lines(&self.shared, home) {
            if let Some(slot) = free_slot(self.words(line)) {
                fill::<A>(self.words(line), slot, tag, entry);
                self.add_to_sieves(home, line, tag);
                return Ok(());
            }
            last = line;
            count += 1;
        }
        if count >= CHAIN {
            return Err(QnsError::Crowded);
        }
        let free = self.free.pop().unwrap_or(self.overflow);
        let words = self.shared.overflow.make(free).ok_or(QnsError::Crowded)?.as_ref();
        self.overflow = self.overflow.max(free + 1);
        set_rest(words, Rest::NONE);
        fill::<A>(words, 0, tag, entry);
        let before = line::rest(self.words(last));
        set_rest(self.words(last), Rest::new(free, before.sieve()));
        self.add_to_sieves(home, Line::Overflow(free), tag);
        Ok(())
    }

    /// Adds a tag to the sieves of the lines before `until`, from the last line to the first.
    fn add_to_sieves(&self, home: Line, until: Line, tag: u16) {
        let before: Vec<Line> = lines(&self.shared, home).take_while(|line| *line != until).collect();
        for line in before.into_iter().rev() {
            let rest = line::rest(self.words(line));
            if let Some(next) = rest.next() {
                set_rest(self.words(line), Rest::new(next, rest.sieve() | sieve(tag)));
            }
        }
    }

    /// Recomputes the sieves, so that readers read no unnecessary lines.
    fn narrow(&self, home: Line) {
        let lines: Vec<Line> = lines(&self.shared, home).collect();
        let mut behind = 0;
        for line in lines.into_iter().rev() {
            let words = self.words(line);
            if let Some(next) = line::rest(words).next() {
                set_rest(words, Rest::new(next, behind));
            }
            let header = line::header(words);
            let tags = (0..SLOTS).map(|slot| header.tag(slot)).filter(|tag| *tag != 0);
            behind = tags.fold(behind, |all, tag| all | sieve(tag));
        }
    }

    /// Splits the next bucket: moves entries with a set additional hash bit to a new bucket.
    fn split(&mut self) {
        let buckets = self.state() as u32;
        if buckets >= MAX_BUCKETS || self.shared.buckets.make(buckets).is_none() {
            return;
        }
        let level = 1 << buckets.ilog2();
        let (old, new) = (Line::Bucket(buckets - level), Line::Bucket(buckets));
        let mut moving = Vec::new();
        for place in places(&self.shared, old) {
            let words = self.words(place.line);
            if line::header(words).tag(place.slot) != 0 {
                let entry = line::entry::<A>(words, place.slot);
                let hash = self.hash(&A::open(&entry).0);
                if hash as u32 & level != 0 {
                    moving.push((place, hash, entry));
                }
            }
        }
        for (_, hash, entry) in &moving {
            // The insertion succeeds, because the entries need no more lines than they had in the old bucket.
            let put = self.put(new, *hash, entry);
            debug_assert!(put.is_ok());
        }
        self.moved(1);
        for (place, ..) in moving {
            clear(self.words(place.line), place.slot);
        }
        self.compact(old);
    }

    /// Compacts a bucket: fills free slots with entries of the last line, and frees empty lines.
    fn compact(&mut self, home: Line) {
        while let Some((before, last, number)) = self.last_line(home) {
            let words = self.words(last);
            let header = line::header(words);
            let Some(slot) = (0..SLOTS).find(|&slot| header.tag(slot) != 0) else {
                set_rest(self.words(before), Rest::NONE);
                // The freed line may be reused. Readers that are just reading it must therefore search again.
                self.moved(0);
                self.free.push(number);
                continue;
            };
            let free = lines(&self.shared, home).find_map(|line| Some((line, free_slot(self.words(line))?)));
            let Some((line, hole)) = free.filter(|(line, _)| *line != last) else {
                break;
            };
            let entry = line::entry::<A>(words, slot);
            fill::<A>(self.words(line), hole, header.tag(slot), &entry);
            self.moved(0);
            clear(words, slot);
        }
        self.narrow(home);
    }

    /// Last overflow line of a bucket, its number, and its preceding line.
    fn last_line(&self, home: Line) -> Option<(Line, Line, u32)> {
        let pairs = lines(&self.shared, home).zip(lines(&self.shared, home).skip(1));
        match pairs.last()? {
            (before, last @ Line::Overflow(number)) => Some((before, last, number)),
            _ => None,
        }
    }
}

/// Words of a line in use.
fn words<A: Address>(shared: &Shared<A>, line: Line) -> &[AtomicU64] {
    let found = match line {
        Line::Bucket(number) => shared.buckets.get(number),
        Line::Overflow(number) => shared.overflow.get(number),
    };
    found.map(AsRef::as_ref).unwrap_or_default()
}

/// Lines of a bucket.
fn lines<A: Address>(shared: &Shared<A>, home: Line) -> impl Iterator<Item = Line> + '_ {
    std::iter::successors(Some(home), |line| {
        line::rest(words(shared, *line)).next().map(Line::Overflow)
    })
}

/// Slots of a bucket.
fn places<A: Address>(shared: &Shared<A>, home: Line) -> impl Iterator<Item = Place> + '_ {
    lines(shared, home).flat_map(|line| (0..SLOTS).map(move |slot| Place { line, slot }))
}

/// All entries of the table.
fn entries_of<A: Address>(shared: &Shared<A>) -> impl Iterator<Item = A::Entry> + '_ {
    let buckets = shared.state.load(Ordering::Relaxed) as u32;
    let places = (0..buckets).flat_map(|bucket| places(shared, Line::Bucket(bucket)));
    places.filter_map(|place| {
        let words = words(shared, place.line);
        (line::header(words).tag(place.slot) != 0).then(|| line::entry::<A>(words, place.slot))
    })
}

fn checked<A: Address>(key: &Key<A>) -> Result<(), QnsError> {
    if key.length > A::BITS {
        return Err(QnsError::Length(key.length));
    }
    if key.prefix.masked(key.length) != key.prefix {
        return Err(QnsError::HostBits);
    }
    Ok(())
}

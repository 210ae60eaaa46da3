//! Routes of one address family: the offers for each prefix.

use hashbrown::HashTable;
use sluice_table::prefix;

use super::offer::Origin;
use super::sets::Sets;
use super::slab::{NONE, Slab};
use crate::neighbour::{HashKey, keyed_hash};
use crate::{Address, Prefix};

/// An address family.
pub trait Family: prefix::Address + Default {
    /// Index of the family in arrays.
    const INDEX: usize;
    /// Converts the address to an [`Address`], the type for both families.
    fn wrap(self) -> Address;
    /// Last address of the prefix that begins at this address.
    fn last(self, length: u8) -> Self;
}

macro_rules! family {
    ($number:ty, $index:literal, $variant:ident) => {
        impl Family for $number {
            const INDEX: usize = $index;

            #[inline]
            fn wrap(self) -> Address {
                Address::$variant(self)
            }

            #[inline]
            fn last(self, length: u8) -> Self {
                self | <$number>::MAX.checked_shr(length.into()).unwrap_or(0)
            }
        }
    };
}

family!(u32, 0, V4);
family!(u128, 1, V6);

const ORIGIN: u8 = 0b11;
/// Flag: the origin has not announced the offer again since the start of the replay.
const STALE: u8 = 1 << 2;
/// Flag: the prefix is published to the sink.
const PUBLISHED: u8 = 1 << 3;
/// Flag: the entry is in the list of entries that the next publication examines.
const DIRTY: u8 = 1 << 4;
/// Flags of the entry, in contrast to flags of its offer.
const OF_ENTRY: u8 = PUBLISHED | DIRTY;

/// A stored offer.
#[derive(Clone, Copy, Debug)]
pub struct RouteRecord {
    /// Index of the offer's next-hop set.
    pub set: u32,
    /// Metric of the offer.
    pub metric: u32,
    /// Time of the offer in seconds.
    pub since: u32,
    /// Administrative distance.
    pub distance: u8,
    /// Routing protocol (RTPROT).
    pub protocol: u8,
    marks: u8,
}

impl RouteRecord {
    /// Creates an offer of an origin. The offer is not stale.
    pub fn new(origin: Origin, set: u32, protocol: u8, (distance, metric): (u8, u32), since: u32) -> Self {
        Self {
            set,
            metric,
            since,
            distance,
            protocol,
            marks: origin as u8,
        }
    }

    /// Origin of the offer.
    #[inline]
    pub fn origin(&self) -> Origin {
        Origin::of(self.marks & ORIGIN)
    }

    /// Whether the offer is stale.
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.marks & STALE != 0
    }

    /// Sets whether the offer is stale.
    pub fn set_stale(&mut self, stale: bool) {
        self.marks = if stale { self.marks | STALE } else { self.marks & !STALE };
    }

    /// Rank of the offer. The offer with the lowest rank is preferred.
    #[inline]
    pub fn rank(&self) -> (u8, u32, u8) {
        (self.distance, self.metric, self.marks & ORIGIN)
    }

    /// Origin and value that distinguish the offer from the other offers for its prefix.
    #[inline]
    pub fn which(&self) -> (Origin, u32) {
        let origin = self.origin();
        (origin, origin.which(self.distance, self.metric))
    }

    /// Whether this offer and `other` are equal except for age and staleness.
    #[inline]
    pub fn equals(&self, other: &RouteRecord) -> bool {
        (self.set, self.metric, self.distance, self.protocol)
            == (other.set, other.metric, other.distance, other.protocol)
    }
}

/// A prefix with its selected offer. If a prefix has no offer, [`Entry::set`] is [`NONE`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry<A> {
    /// First address of the prefix.
    pub address: A,
    set: u32,
    metric: u32,
    since: u32,
    distance: u8,
    protocol: u8,
    marks: u8,
    /// Length of the prefix in bits.
    pub length: u8,
    /// Previous entry in the list of entries that use this set.
    previous: u32,
    next: u32,
    /// Index of the first unselected offer.
    pub first_unselected: u32,
}

impl<A: Family> Entry<A> {
    /// Prefix of the entry.
    pub fn prefix(&self) -> Prefix {
        Prefix::new(self.address.wrap(), self.length)
    }

    /// The selected offer of the entry.
    #[inline]
    pub fn record(&self) -> Option<RouteRecord> {
        (self.set != NONE).then_some(RouteRecord {
            set: self.set,
            metric: self.metric,
            since: self.since,
            distance: self.distance,
            protocol: self.protocol,
            marks: self.marks & !OF_ENTRY,
        })
    }

    fn put(&mut self, fact: Option<RouteRecord>) {
        let Some(fact) = fact else {
            (self.set, self.marks) = (NONE, self.marks & OF_ENTRY);
            return;
        };
        self.set = fact.set;
        self.metric = fact.metric;
        self.since = fact.since;
        self.distance = fact.distance;
        self.protocol = fact.protocol;
        self.marks = self.marks & OF_ENTRY | fact.marks;
    }

    /// Whether the prefix is published to the sink.
    pub fn is_published(&self) -> bool {
        self.marks & PUBLISHED != 0
    }

    /// Records that the publication has examined the entry, and whether the prefix is published now.
    pub fn record_examined(&mut self, published: bool) {
        self.marks = self.marks & !OF_ENTRY | if published { PUBLISHED } else { 0 };
    }

    /// Marks the entry for the next publication. Returns false if the entry is already marked.
    pub fn mark(&mut self) -> bool {
        let fresh = self.marks & DIRTY == 0;
        self.marks |= DIRTY;
        fresh
    }

    /// Sets whether the selected offer is stale.
    pub fn set_stale(&mut self, stale: bool) {
        self.marks = if stale { self.marks | STALE } else { self.marks & !STALE };
    }
}

/// An unselected offer of an entry with several offers.
#[derive(Clone, Copy, Debug)]
pub struct UnselectedOffer {
    /// The offer; `None` if the slot is free.
    pub fact: Option<RouteRecord>,
    /// Index of the entry to which the offer belongs.
    pub entry: u32,
    /// Index of the next unselected offer of the entry.
    pub next: u32,
}

/// Entries of one family, with an index by prefix.
#[derive(Debug)]
pub struct Table<A> {
    /// Entries by number. An entry is a prefix with its selected offer.
    pub entries: Slab<Entry<A>>,
    /// Unselected offers.
    pub unselected: Slab<UnselectedOffer>,
    index: HashTable<u32>,
    key: HashKey,
    /// Number of entries of each prefix length.
    lengths: Box<[u32]>,
}

fn hash<A: Family>(key: HashKey, address: A, length: u8) -> u64 {
    keyed_hash(key, u32::from(A::BITS) << 8 | u32::from(length), address.wrap())
}

impl<A: Family> Table<A> {
    /// Creates a table without routes.
    pub fn new(key: HashKey) -> Self {
        Self {
            entries: Slab::default(),
            unselected: Slab::default(),
            index: HashTable::new(),
            key,
            lengths: vec![0; usize::from(A::BITS) + 1].into(),
        }
    }

    /// Number of prefixes with an entry.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Number of heap bytes that the table uses.
    pub fn bytes(&self) -> usize {
        self.entries.bytes() + self.unselected.bytes() + self.index.allocation_size() + self.lengths.len() * 4
    }

    /// Entry of a prefix.
    #[inline]
    pub fn find(&self, address: A, length: u8) -> Option<u32> {
        let same = |&place: &u32| {
            let entry = &self.entries[place];
            (entry.address, entry.length) == (address, length)
        };
        self.index.find(hash(self.key, address, length), same).copied()
    }

    /// Entries whose prefix contains an address, longest prefix first.
    pub fn covering(&self, address: A) -> impl Iterator<Item = u32> + '_ {
        let lengths = (0..=A::BITS)
            .rev()
            .filter(|&length| self.lengths[usize::from(length)] > 0);
        lengths.filter_map(move |length| self.find(address.masked(length), length))
    }

    /// Adds an entry without an offer. The prefix must not have an entry.
    pub fn add(&mut self, address: A, length: u8) -> u32 {
        let place = self.entries.add(Entry {
            address,
            length,
            set: NONE,
            previous: NONE,
            next: NONE,
            first_unselected: NONE,
            ..Entry::default()
        });
        let (entries, key) = (&self.entries, self.key);
        let rehash = |&place: &u32| hash(key, entries[place].address, entries[place].length);
        self.index.insert_unique(hash(key, address, length), place, rehash);
        self.lengths[usize::from(length)] += 1;
        place
    }

    /// Removes an entry, which must have no offers.
    pub fn remove(&mut self, place: u32) {
        let (address, length) = (self.entries[place].address, self.entries[place].length);
        let found = self
            .index
            .find_entry(hash(self.key, address, length), |&other| other == place);
        if let Ok(found) = found {
            found.remove();
            self.lengths[usize::from(length)] -= 1;
            self.entries[place].set = NONE;
            self.entries.free(place);
        }
    }

    /// All offers of an entry. The selected offer comes first.
    pub fn offers(&self, place: u32) -> impl Iterator<Item = RouteRecord> + '_ {
        let mut first_unselected = self.entries[place].first_unselected;
        let others = std::iter::from_fn(move || {
            let found = (first_unselected != NONE).then(|| &self.unselected[first_unselected])?;
            first_unselected = found.next;
            found.fact
        });
        self.entries[place].record().into_iter().chain(others)
    }

    /// Sets the selected offer of an entry, and moves the entry to the list of the offer's set.
    pub fn use_offer(&mut self, place: u32, fact: Option<RouteRecord>, sets: &mut Sets) {
        let old = self.entries[place];
        if old.set != NONE && fact.is_some_and(|fact| fact.set == old.set) {
            self.entries[place].put(fact);
            return;
        }
        if old.set != NONE {
            match old.previous {
                NONE => *sets.head(old.set, A::INDEX) = old.next,
                previous => self.entries[previous].next = old.next,
            }
            if old.next != NONE {
                self.entries[old.next].previous = old.previous;
            }
        }
        self.entries[place].put(fact);
        let Some(fact) = fact else { return };
        let head = sets.head(fact.set, A::INDEX);
        let next = std::mem::replace(head, place);
        if next != NONE {
            self.entries[next].previous = place;
        }
        (self.entries[place].previous, self.entries[place].next) = (NONE, next);
    }

    /// Entries whose selected offer uses a set. `head` is the first entry of the set's list.
    pub fn users(&self, head: u32) -> impl Iterator<Item = u32> + '_ {
        let step = |place: u32| (place != NONE).then_some(place);
        std::iter::successors(step(head), move |&place| step(self.entries[place].next))
    }

    /// Adds an unselected offer.
    pub fn add_unselected(&mut self, entry: u32, fact: RouteRecord) {
        let next = self.entries[entry].first_unselected;
        let fact = Some(fact);
        self.entries[entry].first_unselected = self.unselected.add(UnselectedOffer { fact, entry, next });
    }

    /// Index of an unselected offer.
    pub fn find_unselected(&self, entry: u32, wanted: impl Fn(&RouteRecord) -> bool) -> Option<u32> {
        let mut place = self.entries[entry].first_unselected;
        while place != NONE {
            let first_unselected = &self.unselected[place];
            if first_unselected.fact.as_ref().is_some_and(&wanted) {
                return Some(place);
            }
            place = first_unselected.next;
        }
        None
    }

    /// Removes an unselected offer.
    pub fn remove_unselected(&mut self, place: u32) -> Option<RouteRecord> {
        let UnselectedOffer { fact, entry, next } = self.unselected[place];
        if self.entries[entry].first_unselected == place {
            self.entries[entry].first_unselected = next;
        } else {
            let mut before = self.entries[entry].first_unselected;
            while self.unselected[before].next != place {
                before = self.unselected[before].next;
            }
            self.unselected[before].next = next;
        }
        self.unselected[place].fact = None;
        self.unselected.free(place);
        fact
    }
}

//! The neighbour table, with one writer and lock-free readers.
//!
//! The MAC, state and generation of an entry are in one word, so that a reader sees a consistent combination. A reader
//! loads the key between two loads of this word. The two loads differ if the slot was reused for another address in the
//! meantime. A held entry keeps its slot and its key.

use std::sync::Arc;

use super::address::{Address, InterfaceIndex};
use super::hash::{Key, hash};
use super::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// A MAC address.
pub type Mac = [u8; 6];

/// Index of a neighbour in the table. The index refers to one neighbour while a worker holds the entry
/// ([`Neighbours::hold`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NeighbourIndex(pub u32);

/// State of an entry (RFC 4861, section 7.3.2). There is no separate DELAY state: a used stale entry stays stale until
/// its probe delay has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// The slot has no entry.
    Free,
    /// Resolution is in progress.
    Incomplete,
    /// Reachability was confirmed recently.
    Reachable,
    /// The MAC is usable, but the confirmation of reachability has expired.
    Stale,
    /// Probes check the reachability of the neighbour.
    Probe,
    /// The neighbour did not answer the requests.
    Failed,
    /// The entry is configured and never expires.
    Permanent,
}

impl State {
    const ALL: [State; 7] = [
        State::Free,
        State::Incomplete,
        State::Reachable,
        State::Stale,
        State::Probe,
        State::Failed,
        State::Permanent,
    ];

    /// Name of the state in lower case.
    pub fn name(self) -> &'static str {
        match self {
            State::Free => "free",
            State::Incomplete => "incomplete",
            State::Reachable => "reachable",
            State::Stale => "stale",
            State::Probe => "probe",
            State::Failed => "failed",
            State::Permanent => "permanent",
        }
    }

    /// Whether packets can be sent to the MAC.
    pub fn has_mac(self) -> bool {
        matches!(self, State::Reachable | State::Stale | State::Probe | State::Permanent)
    }
}

/// Packed word of an entry: MAC in the low 48 bits, state in the next 4 bits, generation in the high 12 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word(u64);

impl Word {
    fn new(generation: u64, state: State, mac: Mac) -> Self {
        let [a, b, c, d, e, f] = mac;
        Self(generation << 52 | (state as u64) << 48 | u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    fn generation(self) -> u64 {
        self.0 >> 52
    }

    fn state(self) -> State {
        State::ALL
            .get((self.0 >> 48 & 0xf) as usize)
            .copied()
            .unwrap_or(State::Free)
    }

    #[inline(always)]
    fn mac(self) -> Mac {
        let [_, _, a, b, c, d, e, f] = self.0.to_be_bytes();
        [a, b, c, d, e, f]
    }

    #[inline(always)]
    fn usable_mac(self) -> Option<Mac> {
        const USABLE: u64 = 1 << State::Reachable as u64
            | 1 << State::Stale as u64
            | 1 << State::Probe as u64
            | 1 << State::Permanent as u64;
        (USABLE >> (self.0 >> 48 & 0xf) & 1 != 0).then(|| self.mac())
    }
}

/// Snapshot of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Index in the table.
    pub index: NeighbourIndex,
    /// Interface on the neighbour's link.
    pub interface: InterfaceIndex,
    /// Address of the neighbour.
    pub address: Address,
    /// State of the entry.
    pub state: State,
    /// MAC of the neighbour; undefined in a state without a MAC.
    pub mac: Mac,
}

/// Flag in `uses`: the slot is free or is being filled, so workers can't hold the entry.
const CLOSED: u32 = 1 << 31;

#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    word: AtomicU64,
    address: [AtomicU64; 2],
    /// Number of the interface. Bit 16 is set for IPv6.
    link: AtomicU32,
    /// Number of sessions and next hops that hold the entry.
    uses: AtomicU32,
    /// Set by a worker that sends to an entry without confirmed reachability. Cleared by the writer.
    used: AtomicU32,
}

/// Number of index slots in a bucket. An entry is in one of two buckets, so a lookup examines at most 16 slots.
const BUCKET: usize = 8;

/// Number of interfaces that can be point-to-point links.
const PAIRS: usize = 1 << 11;

/// Key of the only neighbour on a point-to-point link. This key replaces every destination address on the link, because
/// the neighbour has no address.
pub const OTHER_END: Address = Address::V4(0);

/// The neighbour table. All memory is allocated at start.
#[derive(Debug)]
pub struct Neighbours {
    slots: Box<[Slot]>,
    /// Index slots: number of an entry plus 1; 0 if empty.
    places: Box<[AtomicU32]>,
    /// Bitmap of point-to-point interfaces. The bit of an interface is set before the first packet of the interface, so
    /// the model check omits the bitmap.
    pairs: Box<[std::sync::atomic::AtomicU32]>,
    key: Key,
}

fn link(interface: InterfaceIndex, address: Address) -> u32 {
    interface as u32 | (matches!(address, Address::V6(_)) as u32) << 16
}

impl Neighbours {
    /// Creates a table for `capacity` neighbours. `key` is the secret key of the table's hash.
    pub fn new(capacity: usize, key: Key) -> Self {
        let slot = || Slot {
            word: AtomicU64::new(0),
            address: [AtomicU64::new(0), AtomicU64::new(0)],
            link: AtomicU32::new(0),
            uses: AtomicU32::new(CLOSED),
            used: AtomicU32::new(0),
        };
        // The index is at most half full, which makes two full buckets rare. The table rejects a neighbour if both of
        // its buckets are full.
        let places = (2 * capacity).next_power_of_two().max(2 * BUCKET);
        Self {
            slots: (0..capacity).map(|_| slot()).collect(),
            places: (0..places).map(|_| AtomicU32::new(0)).collect(),
            pairs: (0..PAIRS / 32).map(|_| Default::default()).collect(),
            key,
        }
    }

    /// The entries in the two buckets of an address.
    pub(super) fn bucket_entries(
        &self,
        interface: InterfaceIndex,
        address: Address,
    ) -> [Option<NeighbourIndex>; 2 * BUCKET] {
        let mut entries = [None; 2 * BUCKET];
        for (entry, place) in entries.iter_mut().zip(self.places_of(interface, address)) {
            *entry = place.load(Ordering::Relaxed).checked_sub(1).map(NeighbourIndex);
        }
        entries
    }

    /// Sets whether an interface is a point-to-point link, such as a tunnel without Ethernet. All packets on the link
    /// are sent to the neighbour [`OTHER_END`], which is always resolved. Only one thread may call this.
    pub fn set_pair(&self, interface: InterfaceIndex, is_pair: bool) {
        if let Some(word) = self.pairs.get(interface as usize / 32) {
            let bit = 1 << (interface % 32);
            let others = word.load(Ordering::Relaxed) & !bit;
            word.store(others | if is_pair { bit } else { 0 }, Ordering::Release);
        }
    }

    /// Whether an interface is a point-to-point link.
    #[inline]
    pub fn is_pair(&self, interface: InterfaceIndex) -> bool {
        let word = self.pairs.get(interface as usize / 32);
        word.is_some_and(|word| word.load(Ordering::Acquire) >> (interface % 32) & 1 != 0)
    }

    /// Address of a neighbour as stored in the table.
    #[inline]
    fn listed(&self, interface: InterfaceIndex, address: Address) -> Address {
        if self.is_pair(interface) { OTHER_END } else { address }
    }

    /// Maximum number of neighbours.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Memory size of the table in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.slots) + size_of_val(&*self.places)
    }

    /// MAC of a neighbour; `None` if the state of the entry has no MAC. The caller must hold the entry. A caller
    /// without a hold must use [`Neighbours::resolve`], because only that MAC certainly belongs to the requested
    /// address.
    #[inline(always)]
    pub fn mac(&self, index: NeighbourIndex) -> Option<Mac> {
        Word(self.slots.get(index.0 as usize)?.word.load(Ordering::Acquire)).usable_mac()
    }

    /// State of an entry.
    #[inline(always)]
    pub fn state(&self, index: NeighbourIndex) -> State {
        self.slots
            .get(index.0 as usize)
            .map_or(State::Free, |slot| Word(slot.word.load(Ordering::Acquire)).state())
    }

    /// Returns the MAC of a neighbour like [`Neighbours::mac`]. If the entry's reachability is not confirmed, also
    /// marks the entry as used, so that the writer probes the neighbour.
    #[inline(always)]
    pub fn mac_for_sending(&self, index: NeighbourIndex) -> Option<Mac> {
        let slot = self.slots.get(index.0 as usize)?;
        let word = Word(slot.word.load(Ordering::Acquire));
        if !matches!(word.state(), State::Reachable | State::Permanent) && slot.used.load(Ordering::Relaxed) == 0 {
            slot.used.store(1, Ordering::Relaxed);
        }
        word.usable_mac()
    }

    /// Index of a neighbour in any state.
    #[inline]
    pub fn find(&self, interface: InterfaceIndex, address: Address) -> Option<NeighbourIndex> {
        self.resolve(interface, address).map(|neighbour| neighbour.index)
    }

    /// Snapshot of the neighbour with this address. The MAC and state in the snapshot belong to this address.
    #[inline]
    pub fn resolve(&self, interface: InterfaceIndex, address: Address) -> Option<Neighbour> {
        let address = self.listed(interface, address);
        let hash = hash(self.key, link(interface, address), address);
        for bucket in [self.bucket(hash), self.bucket(hash >> 32)] {
            for place in bucket {
                let Some(slot) = place.load(Ordering::Acquire).checked_sub(1) else {
                    continue;
                };
                match self.snapshot(NeighbourIndex(slot)) {
                    Some(found) if found.address == address && found.interface == interface => return Some(found),
                    _ => {}
                }
            }
        }
        None
    }

    /// Snapshot of an entry for listings; `None` if the slot is free or is being reused.
    #[inline]
    pub fn snapshot(&self, index: NeighbourIndex) -> Option<Neighbour> {
        let slot = self.slots.get(index.0 as usize)?;
        let before = Word(slot.word.load(Ordering::Acquire));
        let link = slot.link.load(Ordering::Relaxed);
        let high = slot.address[0].load(Ordering::Relaxed);
        let low = slot.address[1].load(Ordering::Relaxed);
        // Pairs with the fence in `fill`: after a read of a new key's word, the following load returns the new
        // generation.
        fence(Ordering::Acquire);
        let word = Word(slot.word.load(Ordering::Relaxed));
        if word.generation() != before.generation() || before.state() == State::Free || word.state() == State::Free {
            return None;
        }
        let address = match link >> 16 {
            0 => Address::V4(low as u32),
            _ => Address::V6((high as u128) << 64 | low as u128),
        };
        let interface = link as InterfaceIndex;
        Some(Neighbour {
            index,
            interface,
            address,
            state: word.state(),
            mac: word.mac(),
        })
    }

    /// Holds an entry, so that the entry keeps its slot. Returns false if the entry no longer belongs to this
    /// neighbour.
    pub fn hold(&self, index: NeighbourIndex, interface: InterfaceIndex, address: Address) -> bool {
        let Some(slot) = self.slots.get(index.0 as usize) else {
            return false;
        };
        if slot.uses.fetch_add(1, Ordering::Acquire) & CLOSED == 0 {
            // From here on, the hold keeps the key from changing. The comparison detects an earlier change of the key.
            let address = self.listed(interface, address);
            let number = address.number();
            let same = slot.link.load(Ordering::Relaxed) == link(interface, address)
                && slot.address[0].load(Ordering::Relaxed) == (number >> 64) as u64
                && slot.address[1].load(Ordering::Relaxed) == number as u64;
            if same {
                return true;
            }
        }
        slot.uses.fetch_sub(1, Ordering::Release);
        false
    }

    /// Adds `count` holds to an entry that the caller already holds.
    #[inline(always)]
    pub fn add_holds(&self, index: NeighbourIndex, count: u32) {
        if let Some(slot) = self.slots.get(index.0 as usize) {
            slot.uses.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Releases a hold.
    #[inline(always)]
    pub fn release(&self, index: NeighbourIndex) {
        self.release_many(index, 1);
    }

    /// Releases `count` holds.
    #[inline(always)]
    pub fn release_many(&self, index: NeighbourIndex, count: u32) {
        if let Some(slot) = self.slots.get(index.0 as usize) {
            slot.uses.fetch_sub(count, Ordering::Release);
        }
    }

    /// Number of holds of an entry.
    pub fn uses(&self, index: NeighbourIndex) -> u32 {
        self.slots
            .get(index.0 as usize)
            .map_or(0, |slot| slot.uses.load(Ordering::Relaxed) & !CLOSED)
    }

    /// The index slots that may contain a neighbour.
    fn places_of(&self, interface: InterfaceIndex, address: Address) -> impl Iterator<Item = &AtomicU32> {
        let hash = hash(self.key, link(interface, address), address);
        self.bucket(hash).iter().chain(self.bucket(hash >> 32))
    }

    #[inline(always)]
    fn bucket(&self, hash: u64) -> &[AtomicU32] {
        let first = (hash as u32 as usize * BUCKET) & (self.places.len() - 1);
        self.places.get(first..first + BUCKET).unwrap_or_default()
    }
}

/// The single writer of the table. The writer has copies of all written words and never reads the table.
#[derive(Debug)]
pub struct NeighbourTableWriter {
    table: Arc<Neighbours>,
    words: Box<[Word]>,
}

impl NeighbourTableWriter {
    /// Creates the writer of an empty table. A table may have only one writer.
    pub fn new(table: Arc<Neighbours>) -> Self {
        let words = vec![Word(0); table.capacity()].into();
        Self { table, words }
    }

    fn store(&mut self, index: NeighbourIndex, word: Word, order: Ordering) {
        let (slot, own) = (
            self.table.slots.get(index.0 as usize),
            self.words.get_mut(index.0 as usize),
        );
        if let (Some(slot), Some(own)) = (slot, own) {
            *own = word;
            slot.word.store(word.0, order);
        }
    }

    fn generation(&self, index: NeighbourIndex) -> u64 {
        self.words.get(index.0 as usize).map_or(0, |word| word.generation())
    }

    /// Fills a free slot and adds it to the index. Returns false if both buckets are full.
    pub fn fill(
        &mut self,
        index: NeighbourIndex,
        interface: InterfaceIndex,
        address: Address,
        state: State,
        mac: Mac,
    ) -> bool {
        let table = self.table.clone();
        let Some(slot) = table.slots.get(index.0 as usize) else {
            return false;
        };
        let mut places = table.places_of(interface, address);
        let Some(place) = places.find(|place| place.load(Ordering::Relaxed) == 0) else {
            return false;
        };
        let generation = self.generation(index).wrapping_add(1) & 0xfff;
        self.store(index, Word::new(generation, State::Free, [0; 6]), Ordering::Relaxed);
        fence(Ordering::Release);
        let number = address.number();
        slot.address[0].store((number >> 64) as u64, Ordering::Relaxed);
        slot.address[1].store(number as u64, Ordering::Relaxed);
        slot.link.store(link(interface, address), Ordering::Relaxed);
        slot.used.store(0, Ordering::Relaxed);
        slot.uses.fetch_and(!CLOSED, Ordering::Release);
        self.store(index, Word::new(generation, state, mac), Ordering::Release);
        place.store(index.0 + 1, Ordering::Release);
        true
    }

    /// Sets state and MAC of an entry.
    pub fn set(&mut self, index: NeighbourIndex, state: State, mac: Mac) {
        self.store(index, Word::new(self.generation(index), state, mac), Ordering::Release);
    }

    /// Frees the entry of this neighbour. Returns false, without effect, if the entry is held.
    pub fn clear(&mut self, index: NeighbourIndex, interface: InterfaceIndex, address: Address) -> bool {
        let table = self.table.clone();
        let Some(slot) = table.slots.get(index.0 as usize) else {
            return false;
        };
        if slot
            .uses
            .compare_exchange(0, CLOSED, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            return false;
        }
        let mut places = table.places_of(interface, address);
        if let Some(place) = places.find(|place| place.load(Ordering::Relaxed) == index.0 + 1) {
            place.store(0, Ordering::Release);
        }
        self.set(index, State::Free, [0; 6]);
        true
    }

    /// Whether a worker has used the entry since the last call.
    pub fn clear_used(&self, index: NeighbourIndex) -> bool {
        self.table
            .slots
            .get(index.0 as usize)
            .is_some_and(|slot| slot.used.swap(0, Ordering::Relaxed) != 0)
    }
}

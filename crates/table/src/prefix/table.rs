//! Changing a table: the control thread's side.

use std::collections::{BTreeMap, VecDeque};
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use super::memory::{Account, Position, Segments};
use super::node::{
    EMPTY, HEADER, SLOTS, VALUE, branch, entry, entry_index, header, header_of, is_branch, leaf, position,
    rank_of_length, runs, spread, step, store_block, store_entries,
};
use super::reader::{Match, PrefixReader, Shared};
use super::sync::{AtomicU32, Ordering};
use super::{Address, Quiescence};

/// Largest value that a route may have.
pub const MAX_VALUE: u32 = VALUE;

/// Routes from which on the array over the first 16 bits (256 KiB) pays.
const DIRECT_FROM: usize = 1000;

/// Why a route is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// The prefix is longer than an address.
    #[error("prefix length {0} is longer than the address")]
    Length(u8),
    /// Bits beyond the prefix length are set.
    #[error("bits beyond the prefix length are set")]
    HostBits,
    /// The value is above [`MAX_VALUE`].
    #[error("value {0} does not fit a route entry")]
    Value(u32),
    /// The table's address space is used up.
    #[error("the prefix table is full")]
    Full,
}

/// One change of the trie: within a prefix, leaves that `replaces` says become `to`.
struct Change<A> {
    prefix: A,
    length: u8,
    to: u32,
    /// Whether leaves of shorter routes change too (insertion), or only those of this length (removal).
    inserts: bool,
}

impl<A> Change<A> {
    fn applied(&self, old: u32) -> u32 {
        let (old_rank, rank) = (rank_of_length(old), self.length as u32 + 1);
        if old_rank == rank || self.inserts && old_rank < rank {
            self.to
        } else {
            old
        }
    }
}

/// A longest-prefix table and its routes. One thread owns it and changes it; others look up through
/// [`PrefixTable::reader`].
#[derive(Debug)]
pub struct PrefixTable<A> {
    shared: Arc<Shared>,
    quiescence: Arc<Quiescence>,
    routes: BTreeMap<(A, u8), u32>,
    /// Routes of each length, so that a removal probes only for those that exist.
    lengths: [u32; 129],
    account: Account,
    /// Blocks unpublished in the change under way.
    unpublished: Vec<(Position, u32)>,
    /// Blocks waiting for the readers, with the epoch that frees them.
    retired: VecDeque<(u64, Position, u32)>,
    direct_from: usize,
}

impl<A: Address> PrefixTable<A> {
    /// An empty table whose readers are those of `quiescence`.
    pub fn new(quiescence: Arc<Quiescence>) -> Self {
        Self::with_direct_from(quiescence, DIRECT_FROM)
    }

    /// As [`PrefixTable::new`], with the array over the first 16 bits from `routes` routes on.
    pub fn with_direct_from(quiescence: Arc<Quiescence>, routes: usize) -> Self {
        let shared = Shared {
            root: AtomicU32::new(EMPTY),
            default: AtomicU32::new(EMPTY),
            direct: OnceLock::new(),
            segments: Segments::new(),
        };
        Self {
            shared: Arc::new(shared),
            quiescence,
            routes: BTreeMap::new(),
            lengths: [0; 129],
            account: Account::default(),
            unpublished: Vec::new(),
            retired: VecDeque::new(),
            direct_from: routes,
        }
    }

    /// A view for lookups on any thread.
    pub fn reader(&self) -> PrefixReader<A> {
        PrefixReader {
            shared: self.shared.clone(),
            family: PhantomData,
        }
    }

    /// Add a route, or change the value of one; returns the value that it had.
    pub fn insert(&mut self, prefix: A, length: u8, value: u32) -> Result<Option<u32>, PrefixError> {
        checked(prefix, length)?;
        if value > MAX_VALUE {
            return Err(PrefixError::Value(value));
        }
        self.reclaim();
        if !self.account.has_room() {
            return Err(PrefixError::Full);
        }
        let old = self.routes.insert((prefix, length), value);
        if old.is_none() {
            self.lengths[length as usize] += 1;
        }
        if old != Some(value) {
            self.commit(Change {
                prefix,
                length,
                to: leaf(length, value),
                inserts: true,
            });
        }
        if self.shared.direct.get().is_none() && self.routes.len() >= self.direct_from {
            let entries = (0..=u16::MAX).map(|high| AtomicU32::new(self.at_16(high))).collect();
            // Only this thread sets it.
            let _ = self.shared.direct.set(entries);
        }
        Ok(old)
    }

    /// Remove a route; returns its value.
    pub fn remove(&mut self, prefix: A, length: u8) -> Result<Option<u32>, PrefixError> {
        checked(prefix, length)?;
        self.reclaim();
        if !self.account.has_room() {
            return Err(PrefixError::Full);
        }
        let old = self.routes.remove(&(prefix, length));
        if old.is_some() {
            self.lengths[length as usize] -= 1;
            let to = self
                .covering(prefix, length)
                .map_or(EMPTY, |route| leaf(route.length, route.value));
            self.commit(Change {
                prefix,
                length,
                to,
                inserts: false,
            });
        }
        Ok(old)
    }

    /// The value of exactly this route.
    pub fn get(&self, prefix: A, length: u8) -> Option<u32> {
        self.routes.get(&(prefix, length)).copied()
    }

    /// The value of the longest route that matches.
    pub fn lookup(&self, address: A) -> Option<u32> {
        self.reader().lookup(address)
    }

    /// All routes as (prefix, length, value), by prefix, shorter ones first.
    pub fn iter(&self) -> impl Iterator<Item = (A, u8, u32)> + '_ {
        self.routes
            .iter()
            .map(|(&(prefix, length), &value)| (prefix, length, value))
    }

    /// Number of routes.
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there is no route.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Bytes allocated for lookups: blocks and the array over the first 16 bits.
    pub fn bytes(&self) -> usize {
        let direct = self
            .shared
            .direct
            .get()
            .map_or(0, |direct| direct.len() * size_of::<u32>());
        self.account.bytes() + direct + size_of::<Shared>()
    }

    /// Bytes of the route list that only the control thread reads, estimated from its entries.
    pub fn list_bytes(&self) -> usize {
        self.routes.len() * size_of::<((A, u8), u32)>() * 3 / 2
    }

    /// Use the blocks again that no reader can hold. Every change does it; call it when changes stop.
    pub fn reclaim(&mut self) {
        if self.retired.is_empty() {
            return;
        }
        let settled = self.quiescence.settled();
        while let Some(&(epoch, position, words)) = self.retired.front()
            && epoch <= settled
        {
            self.retired.pop_front();
            self.account.give(position, words);
        }
    }

    /// Blocks that wait for readers.
    pub fn retired(&self) -> usize {
        self.retired.len()
    }

    /// The longest route shorter than `length`, other than the default route, that covers `prefix`.
    fn covering(&self, prefix: A, length: u8) -> Option<Match> {
        let shorter = (1..length).rev().filter(|&shorter| self.lengths[shorter as usize] > 0);
        shorter.into_iter().find_map(|length| {
            let value = *self.routes.get(&(prefix.masked(length), length))?;
            Some(Match { value, length })
        })
    }

    /// Carry out a change, publish it and retire what it replaced.
    fn commit(&mut self, change: Change<A>) {
        if change.length == 0 {
            self.shared.default.store(change.to, Ordering::Release);
            return;
        }
        let old = self.shared.root.load(Ordering::Relaxed);
        let new = self.apply(old, 0, &change);
        if new != old {
            self.shared.root.store(new, Ordering::Release);
        }
        if let Some(direct) = self.shared.direct.get() {
            let first = change.prefix.high();
            let last = first + (1 << 16u8.saturating_sub(change.length));
            for (high, word) in direct.iter().enumerate().take(last).skip(first) {
                let now = self.at_16(high as u16);
                if word.load(Ordering::Relaxed) != now {
                    word.store(now, Ordering::Release);
                }
            }
        }
        if !self.unpublished.is_empty() {
            let epoch = self.quiescence.advance();
            self.retired.extend(
                self.unpublished
                    .drain(..)
                    .map(|(position, words)| (epoch, position, words)),
            );
        }
    }

    /// The trie's entry for addresses that begin with `high`.
    fn at_16(&self, high: u16) -> u32 {
        let address = A::from_high(high);
        let mut at = self.shared.root.load(Ordering::Relaxed);
        for level in 0..2 {
            if is_branch(at) {
                at = step(&self.shared.segments, at, address.byte(level));
            }
        }
        at
    }

    /// Apply a change to the subtree of `old` at `level`; returns the entry that must stand in its place.
    fn apply(&mut self, old: u32, level: u32, change: &Change<A>) -> u32 {
        let beyond = change.length as i32 - 8 * level as i32;
        if beyond <= 0 {
            return self.push(old, change);
        }
        let slot = change.prefix.byte(level);
        if beyond > 8 && is_branch(old) {
            // One slot; where it leads to another block before and after, one store is all.
            let shared = self.shared.clone();
            let block = shared.segments.at(position(old));
            let index = entry_index(header(block, slot), slot);
            let below = entry(block, index);
            if is_branch(below) {
                let new = self.apply(below, level + 1, change);
                if is_branch(new) {
                    if new != below {
                        block[index].store(new, Ordering::Release);
                    }
                    return old;
                }
                let mut slots = spread(block);
                slots[slot] = new;
                return self.replace(old, &slots);
            }
        }
        let shared = self.shared.clone();
        let mut slots = if is_branch(old) {
            spread(shared.segments.at(position(old)))
        } else {
            [old; SLOTS]
        };
        let count = if beyond >= 8 { 1 } else { 1 << (8 - beyond) };
        let before = slots;
        for place in slots.iter_mut().skip(slot).take(count) {
            *place = self.apply(*place, level + 1, change);
        }
        if slots == before {
            old
        } else {
            self.replace(old, &slots)
        }
    }

    /// A change that covers a whole subtree: its runs stay, their leaves change in place.
    fn push(&mut self, old: u32, change: &Change<A>) -> u32 {
        if !is_branch(old) {
            return change.applied(old);
        }
        let shared = self.shared.clone();
        let block = shared.segments.at(position(old));
        for word in block.iter().skip(HEADER).take(runs(block)) {
            let below = word.load(Ordering::Relaxed);
            let new = self.push(below, change);
            if new != below {
                word.store(new, Ordering::Release);
            }
        }
        old
    }

    /// The entry for `slots` in place of `old`: the same block where its runs are the same, a leaf where all slots
    /// are one, a new block otherwise.
    fn replace(&mut self, old: u32, slots: &[u32; SLOTS]) -> u32 {
        let shared = self.shared.clone();
        let (words, count) = header_of(slots);
        if is_branch(old) {
            let block = shared.segments.at(position(old));
            if block
                .iter()
                .zip(&words)
                .all(|(word, new)| word.load(Ordering::Relaxed) == *new)
            {
                store_entries(block, slots);
                return old;
            }
            self.unpublished.push((position(old), (HEADER + runs(block)) as u32));
        }
        if count == 1 && !is_branch(slots[0]) {
            return slots[0];
        }
        let place = self.account.take((HEADER + count) as u32, &shared.segments);
        let place = place.expect("room was checked before the change");
        store_block(shared.segments.at(place), &words, slots);
        branch(place)
    }
}

fn checked<A: Address>(prefix: A, length: u8) -> Result<(), PrefixError> {
    if length > A::BITS {
        return Err(PrefixError::Length(length));
    }
    if prefix.masked(length) != prefix {
        return Err(PrefixError::HostBits);
    }
    Ok(())
}

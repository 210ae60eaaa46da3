//! Changing a table: the control thread's side.

use std::collections::{BTreeMap, VecDeque};
use std::marker::PhantomData;
use std::sync::Arc;

use super::memory::{Account, Position, Segments};
use super::node::{
    EMPTY, HEADER, SLOTS, VALUE, branch, entry, entry_index, header, header_of, is_branch, leaf, position,
    rank_of_length, runs, spread, step, store_block, store_entries,
};
use super::reader::{MAX_ROUTERS, Match, PrefixReader, Root, RouterIndex, Shared};
use super::sync::Ordering;
use super::{Address, Quiescence};

/// Largest value that a route may have.
pub const MAX_VALUE: u32 = VALUE;

/// Routes of a router from which on the array over the first 16 bits (256 KiB) pays.
const DIRECT_FROM: usize = 1000;

/// Words of that array.
const DIRECT: u32 = 1 << 16;

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
    /// The table is made for fewer routers.
    #[error("the prefix table has no place for router {0}")]
    Router(RouterIndex),
}

/// One change of the trie: within a prefix, leaves that `replaces` says become `to`.
struct Change<A> {
    router: RouterIndex,
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

/// The routes of one router, as only the writer needs them.
#[derive(Debug)]
struct Routes<A> {
    list: BTreeMap<(A, u8), u32>,
    /// Routes of each length, so that a removal probes only for those that exist.
    lengths: [u32; 129],
}

impl<A: Address> Routes<A> {
    fn new() -> Self {
        Self {
            list: BTreeMap::new(),
            lengths: [0; 129],
        }
    }

    /// The longest route shorter than `length`, other than the default route, that covers `prefix`.
    fn covering(&self, prefix: A, length: u8) -> Option<Match> {
        let shorter = (1..length).rev().filter(|&shorter| self.lengths[shorter as usize] > 0);
        shorter.into_iter().find_map(|length| {
            let value = *self.list.get(&(prefix.masked(length), length))?;
            Some(Match { value, length })
        })
    }
}

/// The longest-prefix tables of many routers, with their routes. One thread owns them and changes them; others look up
/// through [`PrefixTable::reader`].
#[derive(Debug)]
pub struct PrefixTable<A> {
    shared: Arc<Shared>,
    quiescence: Arc<Quiescence>,
    /// By router; none of those that have had no route.
    routes: Vec<Option<Box<Routes<A>>>>,
    account: Account,
    /// Blocks unpublished in the change under way.
    unpublished: Vec<(Position, u32)>,
    /// Blocks waiting for the readers, with the epoch that frees them.
    retired: VecDeque<(u64, Position, u32)>,
    direct_from: usize,
}

impl<A: Address> PrefixTable<A> {
    /// Empty tables of [`MAX_ROUTERS`] routers whose readers are those of `quiescence`.
    pub fn new(quiescence: Arc<Quiescence>) -> Self {
        Self::with(quiescence, MAX_ROUTERS, DIRECT_FROM)
    }

    /// As [`PrefixTable::new`], for so many routers, with the array over the first 16 bits from `direct_from` routes of
    /// a router on.
    pub fn with(quiescence: Arc<Quiescence>, routers: usize, direct_from: usize) -> Self {
        let shared = Shared::new(routers);
        Self {
            routes: shared.roots.iter().map(|_| None).collect(),
            shared: Arc::new(shared),
            quiescence,
            account: Account::default(),
            unpublished: Vec::new(),
            retired: VecDeque::new(),
            direct_from,
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
    pub fn insert(
        &mut self,
        router: RouterIndex,
        prefix: A,
        length: u8,
        value: u32,
    ) -> Result<Option<u32>, PrefixError> {
        checked(prefix, length)?;
        if value > MAX_VALUE {
            return Err(PrefixError::Value(value));
        }
        self.reclaim();
        if !self.account.has_room() {
            return Err(PrefixError::Full);
        }
        let routes = self
            .routes
            .get_mut(router as usize)
            .ok_or(PrefixError::Router(router))?;
        let routes = routes.get_or_insert_with(|| Box::new(Routes::new()));
        let old = routes.list.insert((prefix, length), value);
        if old.is_none() {
            routes.lengths[length as usize] += 1;
        }
        let many = routes.list.len() >= self.direct_from;
        if old != Some(value) {
            self.commit(Change {
                router,
                prefix,
                length,
                to: leaf(length, value),
                inserts: true,
            });
        }
        if many {
            self.put_in_front(router);
        }
        Ok(old)
    }

    /// Put the array over the first 16 bits in front of a router's trie.
    fn put_in_front(&mut self, router: RouterIndex) {
        let shared = self.shared.clone();
        let root = self.root(router, &shared);
        if shared.direct(root).is_some() {
            return;
        }
        let place = self.account.take(DIRECT, &shared.segments);
        let place = place.expect("room was checked before the change");
        for (high, word) in (0..=u16::MAX).zip(shared.segments.at(place)) {
            word.store(self.at_16(root, high), Ordering::Relaxed);
        }
        root.direct.store(place + 1, Ordering::Release);
    }

    /// Remove a route; returns its value.
    pub fn remove(&mut self, router: RouterIndex, prefix: A, length: u8) -> Result<Option<u32>, PrefixError> {
        checked(prefix, length)?;
        self.reclaim();
        if !self.account.has_room() {
            return Err(PrefixError::Full);
        }
        let routes = self
            .routes
            .get_mut(router as usize)
            .ok_or(PrefixError::Router(router))?;
        let Some(routes) = routes else { return Ok(None) };
        let old = routes.list.remove(&(prefix, length));
        if old.is_some() {
            routes.lengths[length as usize] -= 1;
            let to = routes
                .covering(prefix, length)
                .map_or(EMPTY, |route| leaf(route.length, route.value));
            self.commit(Change {
                router,
                prefix,
                length,
                to,
                inserts: false,
            });
        }
        Ok(old)
    }

    /// Remove all routes of a router, and hand each value to `gone`.
    pub fn clear(&mut self, router: RouterIndex, mut gone: impl FnMut(u32)) {
        let Some(routes) = self.routes.get_mut(router as usize).and_then(Option::take) else {
            return;
        };
        let shared = self.shared.clone();
        let root = self.root(router, &shared);
        let direct = root.direct.swap(0, Ordering::AcqRel);
        let old = root.entry.swap(EMPTY, Ordering::AcqRel);
        root.default.store(EMPTY, Ordering::Release);
        if let Some(place) = direct.checked_sub(1) {
            self.unpublished.push((place, DIRECT));
        }
        self.unpublish(old, &shared.segments);
        self.retire();
        routes.list.values().for_each(|value| gone(*value));
    }

    /// Note all blocks below an entry.
    fn unpublish(&mut self, at: u32, segments: &Segments) {
        if !is_branch(at) {
            return;
        }
        let block = segments.at(position(at));
        let runs = runs(block);
        for word in block.iter().skip(HEADER).take(runs) {
            self.unpublish(word.load(Ordering::Relaxed), segments);
        }
        self.unpublished.push((position(at), (HEADER + runs) as u32));
    }

    fn root<'s>(&self, router: RouterIndex, shared: &'s Shared) -> &'s Root {
        &shared.roots[router as usize]
    }

    fn list(&self, router: RouterIndex) -> Option<&BTreeMap<(A, u8), u32>> {
        let routes = self.routes.get(router as usize)?.as_ref()?;
        Some(&routes.list)
    }

    /// The value of exactly this route.
    pub fn get(&self, router: RouterIndex, prefix: A, length: u8) -> Option<u32> {
        self.list(router)?.get(&(prefix, length)).copied()
    }

    /// The value of the longest route that matches.
    pub fn lookup(&self, router: RouterIndex, address: A) -> Option<u32> {
        self.reader().lookup(router, address)
    }

    /// All routes of a router as (prefix, length, value), by prefix, shorter ones first.
    pub fn iter(&self, router: RouterIndex) -> impl Iterator<Item = (A, u8, u32)> + '_ {
        self.list(router)
            .into_iter()
            .flatten()
            .map(|(&(prefix, length), &value)| (prefix, length, value))
    }

    /// Number of routes of a router.
    pub fn len(&self, router: RouterIndex) -> usize {
        self.list(router).map_or(0, BTreeMap::len)
    }

    /// Whether a router has no route.
    pub fn is_empty(&self, router: RouterIndex) -> bool {
        self.len(router) == 0
    }

    /// Bytes allocated for lookups: blocks, arrays over the first 16 bits, and roots.
    pub fn bytes(&self) -> usize {
        self.account.bytes() + self.shared.roots.len() * size_of::<Root>() + size_of::<Shared>()
    }

    /// Bytes of the lists of routes that only the control thread reads, estimated from their entries.
    pub fn list_bytes(&self) -> usize {
        let lists = self.routes.iter().flatten();
        lists
            .map(|routes| routes.list.len() * size_of::<((A, u8), u32)>() * 3 / 2 + size_of::<Routes<A>>())
            .sum()
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

    /// Carry out a change, publish it and retire what it replaced.
    fn commit(&mut self, change: Change<A>) {
        let shared = self.shared.clone();
        let root = self.root(change.router, &shared);
        if change.length == 0 {
            root.default.store(change.to, Ordering::Release);
            return;
        }
        let old = root.entry.load(Ordering::Relaxed);
        let new = self.apply(old, 0, &change);
        if new != old {
            root.entry.store(new, Ordering::Release);
        }
        if let Some(direct) = shared.direct(root) {
            let first = change.prefix.high();
            let last = first + (1 << 16u8.saturating_sub(change.length));
            for (high, word) in direct.iter().enumerate().take(last).skip(first) {
                let now = self.at_16(root, high as u16);
                if word.load(Ordering::Relaxed) != now {
                    word.store(now, Ordering::Release);
                }
            }
        }
        self.retire();
    }

    /// Let what is unpublished wait for the readers.
    fn retire(&mut self) {
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
    fn at_16(&self, root: &Root, high: u16) -> u32 {
        let address = A::from_high(high);
        let mut at = root.entry.load(Ordering::Relaxed);
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

//! Changes of a table, made by the control thread.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::Arc;

use super::list::Routes;
use super::memory::{BlockAllocator, Position, Segments};
use super::node::{EMPTY, HEADER, Runs, SLOTS, VALUE, branch, entry, entry_index, header, is_branch, leaf, position};
use super::node::{rank_of_length, runs};
use super::reader::{Front, MAX_ROUTERS, PrefixReader, Root, RouterIndex, Shared};
use super::sync::{AtomicU32, Ordering};
use super::{Address, Quiescence};

/// Largest value of a route.
pub const MAX_VALUE: u32 = VALUE;

/// Number of routes of a router from which on an array over the first 16 bits (256 KiB) is worthwhile.
const FRONT_FROM: usize = 1000;

/// Number of routers that get this array at that number of routes; others get it at [`LARGE`] times as many. Otherwise
/// the arrays of a thousand small routers would use more memory than their routes.
const FRONTS: usize = 64;

/// Multiple of that number of routes for further routers.
const LARGE: usize = 16;

/// Multiple of that number of IPv4 routes of a router from which on the array covers 24 bits (64 MiB).
const DEEP_FROM: usize = 128;

/// Number of blocks that are unpublished before a new epoch begins, because each epoch costs readers a cache miss.
const RETIRE_BATCH: usize = 64;

/// Why a route is rejected.
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
    /// The table's address space is exhausted.
    #[error("the prefix table is full")]
    Full,
    /// The router number exceeds the table's number of routers.
    #[error("the prefix table has no place for router {0}")]
    Router(RouterIndex),
}

/// A change of the trie: within a prefix, leaves are replaced by `to` according to `applied`.
struct Change<A> {
    router: RouterIndex,
    prefix: A,
    length: u8,
    to: u32,
    /// Whether leaves of shorter routes are replaced too (insertion), or only those of this length (removal).
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

/// Longest-prefix tables of many routers, with their routes. One thread owns and changes them; other threads look up
/// through [`PrefixTable::reader`].
#[derive(Debug)]
pub struct PrefixTable<A> {
    shared: Arc<Shared>,
    quiescence: Arc<Quiescence>,
    /// By router; `None` for routers that never had a route.
    routes: Vec<Option<Box<Routes<A>>>>,
    account: BlockAllocator,
    /// Blocks unpublished since the last epoch began.
    unpublished: Vec<(Position, u32)>,
    /// Blocks that wait for readers, with the epoch that frees them.
    retired: VecDeque<(u64, Position, u32)>,
    front_from: usize,
    /// Number of routers with an array over more than the first byte.
    fronts: usize,
}

impl<A: Address> PrefixTable<A> {
    /// Create empty tables of [`MAX_ROUTERS`] routers, whose readers are those of `quiescence`.
    pub fn new(quiescence: Arc<Quiescence>) -> Self {
        Self::with(quiescence, MAX_ROUTERS, FRONT_FROM)
    }

    /// Like [`PrefixTable::new`], for `routers` routers. A router with at least `front_from` routes gets an array over
    /// the first 16 bits instead of 8.
    pub fn with(quiescence: Arc<Quiescence>, routers: usize, front_from: usize) -> Self {
        let shared = Shared::new(routers);
        Self {
            routes: shared.roots.iter().map(|_| None).collect(),
            shared: Arc::new(shared),
            quiescence,
            account: BlockAllocator::default(),
            unpublished: Vec::new(),
            retired: VecDeque::new(),
            front_from,
            fronts: 0,
        }
    }

    /// Create a view for lookups on any thread.
    pub fn reader(&self) -> PrefixReader<A> {
        PrefixReader {
            shared: self.shared.clone(),
            family: PhantomData,
        }
    }

    /// Add a route or change its value; returns the previous value.
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
        let routes = self.routes.get_mut(router as usize);
        let routes = routes.ok_or(PrefixError::Router(router))?;
        if !self.account.has_capacity() {
            return Err(PrefixError::Full);
        }
        let routes = routes.get_or_insert_with(|| Box::new(Routes::new()));
        let old = routes.insert(prefix, length, value);
        let count = routes.len();
        if old != Some(value) {
            self.commit(Change {
                router,
                prefix,
                length,
                to: leaf(length, value),
                inserts: true,
            });
        }
        if old.is_none() && count >= self.front_from {
            let deep = A::BITS == u32::BITS as u8 && count / DEEP_FROM >= self.front_from;
            if self.fronts < FRONTS || count / LARGE >= self.front_from {
                self.put_in_front(router, if deep { 3 } else { 2 });
            }
        }
        Ok(old)
    }

    /// Remove a route; returns its value.
    pub fn remove(&mut self, router: RouterIndex, prefix: A, length: u8) -> Result<Option<u32>, PrefixError> {
        checked(prefix, length)?;
        let routes = self.routes.get_mut(router as usize);
        let routes = routes.ok_or(PrefixError::Router(router))?;
        if !self.account.has_capacity() {
            return Err(PrefixError::Full);
        }
        let Some(routes) = routes else { return Ok(None) };
        let old = routes.remove(prefix, length);
        if old.is_some() {
            let covering = routes.covering(prefix, length);
            self.commit(Change {
                router,
                prefix,
                length,
                to: covering.map_or(EMPTY, |route| leaf(route.length, route.value)),
                inserts: false,
            });
        }
        Ok(old)
    }

    /// Remove all routes of a router, and pass each value to `gone`.
    pub fn clear(&mut self, router: RouterIndex, gone: impl FnMut(u32)) {
        let Some(routes) = self.routes.get_mut(router as usize).and_then(Option::take) else {
            return;
        };
        let shared = self.shared.clone();
        let root = root(router, &shared);
        let (front, word) = (shared.front(root), root.front.load(Ordering::Relaxed));
        root.front.store(0, Ordering::Release);
        root.default.store(EMPTY, Ordering::Release);
        if let (Some(front), Some(place)) = (front, Front::place(word)) {
            for word in front.entries {
                self.unpublish(word.load(Ordering::Relaxed), &shared.segments);
            }
            self.unpublished.push((place, Front::words(front.levels)));
            self.fronts -= usize::from(front.levels > 1);
        }
        self.retire_unpublished();
        routes.values().for_each(gone);
    }

    /// Record all blocks below an entry as unpublished.
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

    /// Replace the first levels of a router's trie by an array, unless it already has this one.
    fn put_in_front(&mut self, router: RouterIndex, levels: u8) {
        let shared = self.shared.clone();
        let root = root(router, &shared);
        let before = shared.front(root);
        if before.is_some_and(|front| front.levels >= levels) {
            return;
        }
        let old = Front::place(root.front.load(Ordering::Relaxed));
        let place = self.account.allocate(Front::words(levels), &shared.segments);
        let place = place.expect("room was checked before the change");
        let entries = &shared.segments.at(place)[..Front::words(levels) as usize];
        if let (Some(front), Some(old)) = (before, old) {
            let parts = entries.chunks(entries.len() / front.entries.len());
            for (part, word) in parts.zip(front.entries) {
                self.spread(
                    word.load(Ordering::Relaxed),
                    levels - front.levels,
                    part,
                    &shared.segments,
                );
            }
            self.unpublished.push((old, Front::words(front.levels)));
        } else {
            entries.iter().for_each(|word| word.store(EMPTY, Ordering::Relaxed));
        }
        self.fronts += usize::from(levels > 1 && before.is_none_or(|front| front.levels == 1));
        root.front.store(Front::word(place, levels), Ordering::Release);
        self.retire_unpublished();
    }

    /// Write the entries that are `levels` levels below `at` to `words`, and record the blocks in between as
    /// unpublished.
    fn spread(&mut self, at: u32, levels: u8, words: &[AtomicU32], segments: &Segments) {
        if levels == 0 || !is_branch(at) {
            words.iter().for_each(|word| word.store(at, Ordering::Relaxed));
            return;
        }
        let block = segments.at(position(at));
        for (slot, part) in words.chunks(words.len() / SLOTS).enumerate() {
            let below = entry(block, entry_index(header(block, slot), slot));
            self.spread(below, levels - 1, part, segments);
        }
        self.unpublished.push((position(at), (HEADER + runs(block)) as u32));
    }

    fn list(&self, router: RouterIndex) -> Option<&Routes<A>> {
        self.routes.get(router as usize)?.as_deref()
    }

    /// Value of exactly this route.
    pub fn get(&self, router: RouterIndex, prefix: A, length: u8) -> Option<u32> {
        checked(prefix, length).ok()?;
        self.list(router)?.get(prefix, length)
    }

    /// Value of the longest matching route.
    pub fn lookup(&self, router: RouterIndex, address: A) -> Option<u32> {
        self.reader().lookup(router, address)
    }

    /// All routes of a router as (prefix, length, value), sorted by prefix, shorter ones first. Each call sorts them.
    pub fn iter(&self, router: RouterIndex) -> impl Iterator<Item = (A, u8, u32)> + use<A> {
        let sorted = self.list(router).map(Routes::sorted);
        sorted.unwrap_or_default().into_iter()
    }

    /// Number of routes of a router.
    pub fn len(&self, router: RouterIndex) -> usize {
        self.list(router).map_or(0, Routes::len)
    }

    /// Whether a router has no route.
    pub fn is_empty(&self, router: RouterIndex) -> bool {
        self.len(router) == 0
    }

    /// Bytes allocated for lookups: blocks, arrays and roots.
    pub fn bytes(&self) -> usize {
        self.account.bytes() + self.shared.roots.len() * size_of::<Root>() + size_of::<Shared>()
    }

    /// Estimated bytes of the route lists that only the control thread reads.
    pub fn list_bytes(&self) -> usize {
        let lists = self.routes.iter().flatten();
        lists.map(|routes| routes.bytes()).sum()
    }

    /// Reclaim blocks that no reader can hold. Changes do this from time to time; call it when changes stop.
    pub fn reclaim(&mut self) {
        self.retire_unpublished();
        if self.retired.is_empty() {
            return;
        }
        let settled = self.quiescence.settled();
        while let Some(&(epoch, position, words)) = self.retired.front()
            && epoch <= settled
        {
            self.retired.pop_front();
            self.account.release(position, words);
        }
    }

    /// Number of blocks that wait for readers.
    pub fn retired(&self) -> usize {
        self.retired.len() + self.unpublished.len()
    }

    /// Retire the unpublished blocks.
    fn retire_unpublished(&mut self) {
        if !self.unpublished.is_empty() {
            let epoch = self.quiescence.advance();
            let unpublished = self.unpublished.drain(..);
            self.retired
                .extend(unpublished.map(|(position, words)| (epoch, position, words)));
        }
    }

    /// Apply a change, publish it, and retire the replaced blocks.
    fn commit(&mut self, change: Change<A>) {
        let shared = self.shared.clone();
        let root = root(change.router, &shared);
        if change.length == 0 {
            root.default.store(change.to, Ordering::Release);
            return;
        }
        self.put_in_front(change.router, 1);
        let front = shared.front(root).expect("it has been put there");
        let first = change.prefix.high(front.levels);
        let count = 1 << (8 * front.levels).saturating_sub(change.length);
        for word in &front.entries[first..first + count] {
            let old = word.load(Ordering::Relaxed);
            let new = self.apply(old, front.levels.into(), &change, &shared.segments);
            if new != old {
                word.store(new, Ordering::Release);
            }
        }
        if self.unpublished.len() >= RETIRE_BATCH {
            self.reclaim();
        }
    }

    /// Apply a change to the subtree of `old` at `level`; returns the entry to store in its place.
    fn apply(&mut self, old: u32, level: u32, change: &Change<A>, segments: &Segments) -> u32 {
        let beyond = change.length as i32 - 8 * level as i32;
        if beyond <= 0 {
            return push(old, change, segments);
        }
        let slot = change.prefix.byte(level);
        if beyond > 8 && is_branch(old) {
            // A change of one slot. If the slot is a branch before and after, a single store suffices.
            let block = segments.at(position(old));
            let index = entry_index(header(block, slot), slot);
            let below = entry(block, index);
            if is_branch(below) {
                let new = self.apply(below, level + 1, change, segments);
                if is_branch(new) {
                    if new != below {
                        block[index].store(new, Ordering::Release);
                    }
                    return old;
                }
                let runs = Runs::read(block);
                let changed = runs.changed(slot..slot + 1, |_| new);
                return self.replace(old, &runs, &changed, segments);
            }
        }
        let runs = if is_branch(old) {
            Runs::read(segments.at(position(old)))
        } else {
            Runs::of(old)
        };
        let count = if beyond >= 8 { 1 } else { 1 << (8 - beyond) };
        let changed = runs.changed(slot..slot + count, |below| {
            self.apply(below, level + 1, change, segments)
        });
        self.replace(old, &runs, &changed, segments)
    }

    /// The entry for the runs `now` in place of `old`, whose runs are `before`: the same block if the runs have the
    /// same starts, a leaf if all slots are equal, otherwise a new block.
    fn replace(&mut self, old: u32, before: &Runs, now: &Runs, segments: &Segments) -> u32 {
        if is_branch(old) {
            if now.is_shaped_as(before) {
                now.store_entries(segments.at(position(old)));
                return old;
            }
            self.unpublished.push((position(old), before.words()));
        }
        if let Some(entry) = now.only().filter(|entry| !is_branch(*entry)) {
            return entry;
        }
        let place = self.account.allocate(now.words(), segments);
        let place = place.expect("room was checked before the change");
        now.store(segments.at(place));
        branch(place)
    }
}

/// Apply a change that covers a whole subtree: its runs stay, and their leaves change in place.
fn push<A>(old: u32, change: &Change<A>, segments: &Segments) -> u32 {
    if !is_branch(old) {
        return change.applied(old);
    }
    let block = segments.at(position(old));
    for word in block.iter().skip(HEADER).take(runs(block)) {
        let below = word.load(Ordering::Relaxed);
        let new = push(below, change, segments);
        if new != below {
            word.store(new, Ordering::Release);
        }
    }
    old
}

fn root(router: RouterIndex, shared: &Shared) -> &Root {
    &shared.roots[router as usize]
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

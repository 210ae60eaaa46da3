//! Modification of prefix tables by the control thread.

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

/// Minimum number of routes for which a router gets an array over the first 16 address bits (256 KiB).
const FRONT_FROM: usize = 1000;

/// Number of routers that get the array as soon as they have [`FRONT_FROM`] routes. Further routers get it only with
/// [`LARGE`] times [`FRONT_FROM`] routes. Otherwise the arrays of a thousand small routers would use more memory than
/// their routes.
const FRONTS: usize = 64;

/// Factor of [`FRONT_FROM`] that applies to all routers beyond the first [`FRONTS`].
const LARGE: usize = 16;

/// The array of a router covers 24 address bits (64 MiB) if the router has at least this number times [`FRONT_FROM`]
/// IPv4 routes.
const DEEP_FROM: usize = 128;

/// A new epoch starts when this number of blocks has been unpublished. Epochs should be rare, because each new epoch
/// causes a cache miss in every reader.
const RETIRE_BATCH: usize = 64;

/// Why a route is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// The prefix is longer than an address.
    #[error("prefix length {0} is longer than the address")]
    Length(u8),
    /// Bits beyond the prefix length are not 0.
    #[error("bits beyond the prefix length are set")]
    HostBits,
    /// The value exceeds [`MAX_VALUE`].
    #[error("value {0} does not fit a route entry")]
    Value(u32),
    /// The table has allocated its maximum number of segments.
    #[error("the prefix table is full")]
    Full,
    /// The router number exceeds the table's number of routers.
    #[error("the prefix table has no space for router {0}")]
    Router(RouterIndex),
}

/// A modification of the trie: replaces leaves within a prefix by `to`. `applied` determines whether a leaf is
/// replaced.
struct Change<A> {
    router: RouterIndex,
    prefix: A,
    length: u8,
    to: u32,
    /// True for an insertion, which also replaces leaves of shorter routes. False for a removal, which replaces only
    /// leaves of this length.
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

/// Longest-prefix-match tables of many routers, with their routes. One thread owns and modifies the tables; other
/// threads look up addresses with [`PrefixTable::reader`].
#[derive(Debug)]
pub struct PrefixTable<A> {
    shared: Arc<Shared>,
    quiescence: Arc<Quiescence>,
    /// Routes by router number; `None` for routers that never had a route.
    routes: Vec<Option<Box<Routes<A>>>>,
    account: BlockAllocator,
    /// Blocks that were removed from the published table after the last epoch began.
    unpublished: Vec<(Position, u32)>,
    /// Retired blocks, each with the epoch after which it may be freed.
    retired: VecDeque<(u64, Position, u32)>,
    front_from: usize,
    /// Number of routers with an array over more than the first byte.
    fronts: usize,
}

impl<A: Address> PrefixTable<A> {
    /// Creates empty tables for [`MAX_ROUTERS`] routers. `quiescence` contains the epochs of the readers.
    pub fn new(quiescence: Arc<Quiescence>) -> Self {
        Self::with(quiescence, MAX_ROUTERS, FRONT_FROM)
    }

    /// Creates empty tables like [`PrefixTable::new`], for `routers` routers. The array of a router covers the first 16
    /// address bits if the router has at least `front_from` routes, otherwise the first 8 bits.
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

    /// Creates a reader for lookups on any thread.
    pub fn reader(&self) -> PrefixReader<A> {
        PrefixReader {
            shared: self.shared.clone(),
            family: PhantomData,
        }
    }

    /// Adds a route or changes its value. Returns the previous value.
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

    /// Removes a route. Returns its value.
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

    /// Removes all routes of a router, and passes each value to `removed`.
    pub fn clear(&mut self, router: RouterIndex, removed: impl FnMut(u32)) {
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
        routes.values().for_each(removed);
    }

    /// Records all blocks below an entry as unpublished.
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

    /// Replaces the first levels of a router's trie by an array, if the router has no array of this size.
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

    /// Writes the entries at `levels` levels below `at` to `words`, and records the intermediate blocks as unpublished.
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

    /// Value of the route with exactly this prefix and length.
    pub fn get(&self, router: RouterIndex, prefix: A, length: u8) -> Option<u32> {
        checked(prefix, length).ok()?;
        self.list(router)?.get(prefix, length)
    }

    /// Value of the longest route that matches an address.
    pub fn lookup(&self, router: RouterIndex, address: A) -> Option<u32> {
        self.reader().lookup(router, address)
    }

    /// All routes of a router as (prefix, length, value), sorted by prefix. For equal prefixes, shorter lengths come
    /// first. Each call sorts the routes.
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

    /// Number of bytes allocated for lookups: blocks, arrays and roots.
    pub fn bytes(&self) -> usize {
        self.account.bytes() + self.shared.roots.len() * size_of::<Root>() + size_of::<Shared>()
    }

    /// Estimated number of bytes in the route lists, which only the control thread reads.
    pub fn list_bytes(&self) -> usize {
        let lists = self.routes.iter().flatten();
        lists.map(|routes| routes.bytes()).sum()
    }

    /// Frees retired blocks that readers can no longer hold. Modifications also free such blocks, so this call is
    /// needed only after the last modification.
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

    /// Number of retired blocks that are not yet free.
    pub fn retired(&self) -> usize {
        self.retired.len() + self.unpublished.len()
    }

    /// Retires the unpublished blocks.
    fn retire_unpublished(&mut self) {
        if !self.unpublished.is_empty() {
            let epoch = self.quiescence.advance();
            let unpublished = self.unpublished.drain(..);
            self.retired
                .extend(unpublished.map(|(position, words)| (epoch, position, words)));
        }
    }

    /// Applies a modification, publishes it, and retires the replaced blocks.
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

    /// Applies a modification to the subtree of `old` at `level`. Returns the entry that replaces `old`.
    fn apply(&mut self, old: u32, level: u32, change: &Change<A>, segments: &Segments) -> u32 {
        let beyond = change.length as i32 - 8 * level as i32;
        if beyond <= 0 {
            return push(old, change, segments);
        }
        let slot = change.prefix.byte(level);
        if beyond > 8 && is_branch(old) {
            // The modification changes only one slot. If both the old and the new entry are branches, a single store
            // suffices.
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

    /// The entry for the runs `now`, which replaces the entry `old` with the runs `before`. The result is a leaf if all
    /// slots are equal, the unchanged block `old` if its runs start at equal slots, and otherwise a new block.
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

/// Applies a modification that covers a whole subtree. Leaves are modified in place, and runs don't change.
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

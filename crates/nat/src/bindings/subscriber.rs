//! Subscribers: inside addresses or prefixes, each with its paired outside address, port blocks and limits.

use bytemuck::{Pod, Zeroable};
use sluice_table::compact::CompactIndex;
use sluice_table::memory::Line;
use sluice_table::slab::{Linked, Slab};
use sluice_table::token_bucket::TokenRate;
use sluice_wire::Context;

use crate::ports::{Block, PortClass};
use crate::{Address, PoolIndex};

/// A subscriber's state.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, packed)]
pub struct Subscriber<A> {
    /// Time in nanoseconds at which the rate limiter's token bucket will be full.
    rate_full_at: u64,
    address: A,
    paired: A,
    context: Context,
    /// Number of sessions.
    pub(super) sessions: u32,
    /// Number of outside ports in use, for each class.
    pub(super) ports: [u32; 3],
    /// Record number of the subscriber's first block, plus one. In a free record: number of the next free record, plus
    /// one.
    pub(super) blocks: u32,
    /// Number of blocks.
    pub(super) block_count: u16,
    /// Number of blocks without a port in use.
    pub(super) empty: u16,
    pool: PoolIndex,
    /// First port of the newest port block. The prefetch of the block assumes that the block belongs to the paired
    /// address.
    pub(super) newest: u16,
    /// Pads the record to a whole cache line for IPv4.
    spare: [u8; 12],
}

/// A free record must satisfy `is_idle`, so the link of the free list is stored in a field that `is_idle` does not
/// read.
impl<A: Address> Linked for Subscriber<A> {
    fn link(&self) -> u32 {
        self.blocks
    }
    fn set_link(&mut self, link: u32) {
        self.blocks = link;
    }
}

impl<A: Address> Subscriber<A> {
    /// Inside address of the subscriber, or first address of its inside prefix.
    pub fn address(&self) -> A {
        self.address
    }

    /// Outside address with which the subscriber is paired (RFC 4787, REQ-2).
    pub fn paired(&self) -> A {
        self.paired
    }

    /// Context of the inside keys.
    pub fn context(&self) -> Context {
        self.context
    }

    /// Pool that the subscriber uses.
    pub fn pool(&self) -> PoolIndex {
        self.pool
    }

    /// Number of sessions.
    pub fn sessions(&self) -> u32 {
        self.sessions
    }

    /// Number of outside ports in use, for each class.
    pub fn ports(&self) -> [u32; 3] {
        self.ports
    }

    /// Number of port blocks.
    pub fn blocks(&self) -> u16 {
        self.block_count
    }

    /// Whether the subscriber has no sessions, ports or blocks.
    pub(super) fn is_idle(&self) -> bool {
        let ports = self.ports;
        self.sessions == 0 && ports == [0; 3]
    }

    pub(super) fn pair(&mut self, address: A) {
        self.paired = address;
    }

    /// Whether the rate limit permits another session at `now` (nanoseconds).
    pub(super) fn admits(&self, rate: TokenRate, now: u64) -> bool {
        rate.take(self.rate_full_at, now).is_some()
    }

    /// Takes a token for a new session from the rate limiter.
    pub(super) fn charge(&mut self, rate: TokenRate, now: u64) {
        self.rate_full_at = rate.charge(self.rate_full_at, 1, now);
    }
}

/// A port block that is allocated to a subscriber.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, packed)]
pub struct SubscriberBlock<A> {
    address: A,
    /// Record number of the subscriber's next block, plus one. In a free record: number of the next free record, plus
    /// one.
    pub(super) next: u32,
    first: u16,
    /// Number of ports in use, for each class.
    pub(super) used: [u16; 3],
}

impl<A: Address> Linked for SubscriberBlock<A> {
    fn link(&self) -> u32 {
        self.next
    }
    fn set_link(&mut self, link: u32) {
        self.next = link;
    }
}

impl<A: Address> SubscriberBlock<A> {
    pub(super) fn new(block: Block<A>, next: u32) -> Self {
        Self {
            address: block.address,
            next,
            first: block.first,
            used: [0; 3],
        }
    }

    /// Address and ports of the block.
    pub fn block(&self) -> Block<A> {
        Block {
            address: self.address,
            first: self.first,
        }
    }

    /// Number of ports in use, for each class.
    pub fn used(&self) -> [u16; 3] {
        self.used
    }

    pub(super) fn count(&mut self, class: PortClass, by: i16) {
        let used = self.used[class as usize];
        self.used[class as usize] = used.wrapping_add_signed(by);
    }
}

/// The subscribers of a shard, with their blocks.
#[derive(Debug)]
pub struct Subscribers<'m, A: Address> {
    index: CompactIndex<'m>,
    pub(super) records: Slab<'m, Subscriber<A>>,
    pub(super) blocks: Slab<'m, SubscriberBlock<A>>,
}

/// Number of memory lines that a table of these capacities needs.
pub const fn lines_for<A: Address>(subscribers: usize, blocks: usize) -> usize {
    CompactIndex::lines_for(subscribers)
        + Slab::<Subscriber<A>>::lines_for(subscribers)
        + Slab::<SubscriberBlock<A>>::lines_for(blocks)
}

impl<'m, A: Address> Subscribers<'m, A> {
    /// Creates an empty table in `memory` with these capacities.
    pub fn new(memory: &'m mut [Line], subscribers: usize, blocks: usize) -> Self {
        let (index, rest) = memory.split_at_mut(CompactIndex::lines_for(subscribers).min(memory.len()));
        let lines = Slab::<Subscriber<A>>::lines_for(subscribers);
        let (records, owned) = rest.split_at_mut(lines.min(rest.len()));
        Self {
            index: CompactIndex::new(index, subscribers as u32),
            records: Slab::new(records, subscribers),
            blocks: Slab::new(owned, blocks),
        }
    }

    /// Number of subscribers.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Record with this number.
    pub fn get(&self, number: u32) -> Option<&Subscriber<A>> {
        self.records.get(number)
    }

    /// First pass of [`Subscribers::find`]: prefetches the index.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Second pass of [`Subscribers::find`]: prefetches the record to which the index probably refers. Returns the
    /// number of the record.
    #[inline(always)]
    pub fn prefetch_record(&self, hash: u64) -> Option<u32> {
        let number = self.index.candidate(hash)?;
        self.records.prefetch(number);
        Some(number)
    }

    /// Finds the subscriber that has this context and address in a pool. `hash` is a keyed hash of context, address and
    /// pool.
    #[inline(always)]
    pub fn find(&self, hash: u64, context: Context, address: A, pool: PoolIndex) -> Option<u32> {
        self.index.find(hash, |number| self.is(number, context, address, pool))
    }

    /// Whether the record with this number is the subscriber of this context, address and pool.
    #[inline(always)]
    pub fn is(&self, number: u32, context: Context, address: A, pool: PoolIndex) -> bool {
        let record = self.records.get(number);
        record.is_some_and(|record| (record.context, record.address, record.pool) == (context, address, pool))
    }

    /// Creates a subscriber that is paired with an outside address; `None` if the table is full.
    pub fn make(&mut self, hash: u64, context: Context, address: A, pool: PoolIndex, paired: A) -> Option<u32> {
        let number = self.records.allocate(Subscriber {
            address,
            paired,
            context,
            pool,
            ..Subscriber::zeroed()
        })?;
        if self.index.insert(hash, number).is_err() {
            self.records.release(number);
            return None;
        }
        Some(number)
    }

    /// Removes a subscriber.
    pub fn remove(&mut self, hash: u64, number: u32) {
        if self.index.remove(hash, number) {
            self.records.release(number);
        }
    }

    /// Blocks of a subscriber with their record numbers, newest first.
    pub fn blocks_of(&self, number: u32) -> impl Iterator<Item = (u32, &SubscriberBlock<A>)> {
        let mut next = self.records.get(number).map_or(0, |record| record.blocks);
        core::iter::from_fn(move || {
            let number = next.checked_sub(1)?;
            let owned = self.blocks.get(number)?;
            next = owned.next;
            Some((number, owned))
        })
    }
}

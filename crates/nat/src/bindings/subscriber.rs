//! Subscribers: an inside address or prefix with its paired outside address, its port blocks, and what it may have.

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
    /// Nanosecond at which the rate of new sessions is used up by none.
    rate_full_at: u64,
    address: A,
    paired: A,
    context: Context,
    /// Sessions.
    pub(super) sessions: u32,
    /// Outside ports by class.
    pub(super) ports: [u32; 3],
    /// The first of its blocks, or the next free record: its number, plus one.
    pub(super) blocks: u32,
    /// How many blocks it has.
    pub(super) block_count: u16,
    /// How many of them have no port in use.
    pub(super) empty: u16,
    pool: PoolIndex,
    /// First port of its newest block, which is of the paired address as a rule: to be asked for early.
    pub(super) newest: u16,
    /// Fills a line for IPv4.
    spare: [u8; 12],
}

/// A free record must look idle: the link is in none of what says whether it is.
impl<A: Address> Linked for Subscriber<A> {
    fn link(&self) -> u32 {
        self.blocks
    }
    fn set_link(&mut self, link: u32) {
        self.blocks = link;
    }
}

impl<A: Address> Subscriber<A> {
    /// The inside address, or the first of the prefix.
    pub fn address(&self) -> A {
        self.address
    }

    /// The outside address that it is paired with (RFC 4787, REQ-2).
    pub fn paired(&self) -> A {
        self.paired
    }

    /// Context of the inside keys.
    pub fn context(&self) -> Context {
        self.context
    }

    /// The pool.
    pub fn pool(&self) -> PoolIndex {
        self.pool
    }

    /// Sessions.
    pub fn sessions(&self) -> u32 {
        self.sessions
    }

    /// Outside ports in use, by class.
    pub fn ports(&self) -> [u32; 3] {
        self.ports
    }

    /// Port blocks.
    pub fn blocks(&self) -> u16 {
        self.block_count
    }

    /// Whether it has nothing any more.
    pub(super) fn is_idle(&self) -> bool {
        let ports = self.ports;
        self.sessions == 0 && ports == [0; 3]
    }

    pub(super) fn pair(&mut self, address: A) {
        self.paired = address;
    }

    /// Whether one more session is within a rate, at a moment in nanoseconds.
    pub(super) fn admits(&self, rate: TokenRate, now: u64) -> bool {
        rate.take(self.rate_full_at, now).is_some()
    }

    /// Count a session against a rate.
    pub(super) fn charge(&mut self, rate: TokenRate, now: u64) {
        self.rate_full_at = rate.charge(self.rate_full_at, 1, now);
    }
}

/// A block that a subscriber has.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, packed)]
pub struct SubscriberBlock<A> {
    address: A,
    /// The next block of the subscriber, or the next free record: its number, plus one.
    pub(super) next: u32,
    first: u16,
    /// Ports in use by class.
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

    /// Which ports.
    pub fn block(&self) -> Block<A> {
        Block {
            address: self.address,
            first: self.first,
        }
    }

    /// Ports in use by class.
    pub fn used(&self) -> [u16; 3] {
        self.used
    }

    pub(super) fn count(&mut self, class: PortClass, by: i16) {
        let used = self.used[class as usize];
        self.used[class as usize] = used.wrapping_add_signed(by);
    }
}

/// The subscribers of a shard, and their blocks.
#[derive(Debug)]
pub struct Subscribers<'m, A: Address> {
    index: CompactIndex<'m>,
    pub(super) records: Slab<'m, Subscriber<A>>,
    pub(super) blocks: Slab<'m, SubscriberBlock<A>>,
}

/// Lines of memory for so many subscribers and blocks.
pub const fn lines_for<A: Address>(subscribers: usize, blocks: usize) -> usize {
    CompactIndex::lines_for(subscribers)
        + Slab::<Subscriber<A>>::lines_for(subscribers)
        + Slab::<SubscriberBlock<A>>::lines_for(blocks)
}

impl<'m, A: Address> Subscribers<'m, A> {
    /// No subscriber yet; room for so many in `memory`.
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

    /// How many.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// The record of a number.
    pub fn get(&self, number: u32) -> Option<&Subscriber<A>> {
        self.records.get(number)
    }

    /// First pass of [`Subscribers::find`].
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.index.prefetch(hash);
    }

    /// Second pass: prefetches the record that it probably is, and says which.
    #[inline(always)]
    pub fn prefetch_record(&self, hash: u64) -> Option<u32> {
        let number = self.index.candidate(hash)?;
        self.records.prefetch(number);
        Some(number)
    }

    /// The subscriber of a pool with an address; `hash` is a keyed function of all that.
    #[inline(always)]
    pub fn find(&self, hash: u64, context: Context, address: A, pool: PoolIndex) -> Option<u32> {
        self.index.find(hash, |number| self.is(number, context, address, pool))
    }

    /// Is a number that subscriber's?
    #[inline(always)]
    pub fn is(&self, number: u32, context: Context, address: A, pool: PoolIndex) -> bool {
        let record = self.records.get(number);
        record.is_some_and(|record| (record.context, record.address, record.pool) == (context, address, pool))
    }

    /// A new subscriber, paired with an outside address; none where there is no room.
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

    /// A subscriber goes.
    pub fn remove(&mut self, hash: u64, number: u32) {
        if self.index.remove(hash, number) {
            self.records.release(number);
        }
    }

    /// A subscriber's blocks, the newest first: number of the record and record.
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

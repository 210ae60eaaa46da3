//! The bits of one pool's ports: a bit is set while its port is free.
//!
//! Per class: one bit per address that has a free port; then per address a summary, one bit per word that has a
//! free port, and the words of 64 ports, which are the blocks that the shard owns in ascending order.

use super::{CLASSES, PortClass};
use crate::Address;
use crate::keyed::spread;
use crate::pool::ValidPool;
use crate::shard::{BLOCK, Shards};

/// Blocks of the ports below 1024.
const LOW_BLOCKS: u32 = 1024 / BLOCK;

/// Which ports suit a session (RFC 4787, REQ-3a).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Range {
    /// Below 1024 rather than others.
    Low,
    /// From 1024 on, where the pool has such.
    High,
    /// All the same.
    Any,
}

/// One pool's place in the memory.
#[derive(Debug)]
pub(super) struct Region<A> {
    pub(super) pool: ValidPool<A>,
    pub(super) geometry: Geometry,
    /// Ports lent, by class.
    pub(super) used: [u32; CLASSES],
    /// First word.
    start: usize,
}

/// How a pool's words lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    /// First block of the pool's ports.
    pub(super) first_block: u32,
    pub(super) addresses: usize,
    /// Words of 64 ports per address.
    pub(super) words: usize,
    /// Words of the summary of an address.
    summary: usize,
    /// Words of the addresses that have a free port, per class.
    available: usize,
}

impl Geometry {
    /// Words per address and class.
    #[inline(always)]
    fn stride(&self) -> usize {
        self.summary + self.words
    }

    /// Words per class.
    #[inline(always)]
    fn class(&self) -> usize {
        self.available + self.addresses * self.stride()
    }
}

impl<A: Address> Region<A> {
    pub(super) fn new(pool: &ValidPool<A>, shards: Shards, start: usize) -> Self {
        let (first, last) = pool.ports();
        let (first_block, last_block) = (u32::from(first) / BLOCK, u32::from(last) / BLOCK);
        let words = (last_block - first_block + 1).div_ceil(shards.count()) as usize;
        let addresses = pool.addresses() as usize;
        let (summary, available) = (words.div_ceil(64), addresses.div_ceil(64));
        let geometry = Geometry {
            first_block,
            addresses,
            words,
            summary,
            available,
        };
        Self {
            pool: pool.clone(),
            geometry,
            used: [0; CLASSES],
            start,
        }
    }

    /// Words that it takes.
    pub(super) fn length(&self) -> usize {
        CLASSES * self.geometry.class()
    }

    /// Place in the memory of an address's first word of ports.
    #[inline(always)]
    pub(super) fn word(&self, class: PortClass, address: usize) -> usize {
        let geometry = &self.geometry;
        let addresses = self.start + class as usize * geometry.class() + geometry.available;
        addresses + address * geometry.stride() + geometry.summary
    }

    /// The bits of one address and class.
    #[inline(always)]
    pub(super) fn bits<'a>(&self, memory: &'a mut [u64], class: PortClass, address: usize) -> Bits<'a> {
        let geometry = &self.geometry;
        let class = &mut memory[self.start + class as usize * geometry.class()..];
        let (available, addresses) = class.split_at_mut(geometry.available);
        let one = &mut addresses[address * geometry.stride()..][..geometry.stride()];
        let (summary, words) = one.split_at_mut(geometry.summary);
        Bits {
            available,
            address,
            summary,
            words,
        }
    }

    /// The first block that a shard owns of an address, the range of words to search first, and the one after.
    #[inline(always)]
    pub(super) fn ranges(
        &self,
        shards: Shards,
        shard: u32,
        address: u32,
        range: Range,
    ) -> (u32, (usize, usize), (usize, usize)) {
        let block = shards.first_block(self.pool.address(address), self.geometry.first_block, shard);
        let words = self.geometry.words;
        let low = (LOW_BLOCKS.saturating_sub(block) + shards.count() - 1) >> shards.shift();
        let low = (low as usize).min(words);
        match range {
            Range::Low if low > 0 => (block, (0, low), (low, words)),
            Range::High if low < words => (block, (low, words), (0, 0)),
            _ => (block, (0, words), (0, 0)),
        }
    }

    /// Set the bits of all ports that the shard owns, and no others.
    pub(super) fn free_all(&self, memory: &mut [u64], shards: Shards, shard: u32) {
        let (first, last) = self.pool.ports();
        memory[self.start..][..self.length()].fill(0);
        for class in PortClass::ALL {
            for address in 0..self.geometry.addresses {
                let outside = self.pool.address(address as u32);
                let block = shards.first_block(outside, self.geometry.first_block, shard);
                let mut bits = self.bits(memory, class, address);
                for at in 0..self.geometry.words {
                    let from = (block + at as u32 * shards.count()) * BLOCK;
                    let own = from.max(u32::from(first))..(from + BLOCK).min(u32::from(last) + 1);
                    own.for_each(|port| bits.put(at, port % BLOCK));
                }
            }
        }
    }
}

/// The bits of one address and class.
pub(super) struct Bits<'a> {
    /// One bit per address of the class.
    pub(super) available: &'a mut [u64],
    address: usize,
    summary: &'a mut [u64],
    words: &'a mut [u64],
}

impl Bits<'_> {
    /// A free port's word and bit among the words of a range, from a starting point on.
    #[inline(always)]
    pub(super) fn find(&self, (from, to): (usize, usize), flow: u64) -> Option<(usize, u32)> {
        if from >= to {
            return None;
        }
        let mut at = from + start(flow, from, to);
        let mut word = *self.words.get(at)?;
        if word == 0 {
            at = next(self.summary, at + 1, to).or_else(|| next(self.summary, from, at))?;
            word = *self.words.get(at)?;
        }
        Some((at, pick(word, flow)))
    }

    /// Is the port free?
    #[inline(always)]
    pub(super) fn is_free(&self, at: usize, bit: u32) -> bool {
        self.words[at] >> bit & 1 != 0
    }

    /// Lend a free port.
    #[inline(always)]
    pub(super) fn take(&mut self, at: usize, bit: u32) {
        self.words[at] &= !(1 << bit);
        if self.words[at] != 0 {
            return;
        }
        self.summary[at / 64] &= !(1 << (at % 64));
        if self.summary.iter().all(|&words| words == 0) {
            self.available[self.address / 64] &= !(1 << (self.address % 64));
        }
    }

    /// Make a port free.
    #[inline(always)]
    pub(super) fn put(&mut self, at: usize, bit: u32) {
        if self.words[at] == 0 {
            self.summary[at / 64] |= 1 << (at % 64);
            self.available[self.address / 64] |= 1 << (self.address % 64);
        }
        self.words[at] |= 1 << bit;
    }
}

/// Where a flow's search begins, counted from the first word of a range.
#[inline(always)]
pub(super) fn start(flow: u64, from: usize, to: usize) -> usize {
    spread((flow >> 32) as u32, to.saturating_sub(from) as u32) as usize
}

/// The set bit of a word that a flow takes.
#[inline(always)]
pub(super) fn pick(word: u64, flow: u64) -> u32 {
    let from = flow as u32 & 63;
    (word.rotate_right(from).trailing_zeros() + from) & 63
}

/// The first set bit among the bits `from..to`.
#[inline]
pub(super) fn next(bits: &[u64], from: usize, to: usize) -> Option<usize> {
    let mut at = from;
    while at < to {
        let rest = bits.get(at / 64)? >> (at % 64);
        if rest != 0 {
            let found = at + rest.trailing_zeros() as usize;
            return (found < to).then_some(found);
        }
        at = (at / 64 + 1) * 64;
    }
    None
}

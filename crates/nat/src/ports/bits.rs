//! Port bits of one address and class. A set bit represents a free port.

use crate::keyed::reduce;

/// Port bits of one address and class.
pub(super) struct Bits<'a> {
    /// Bitmap of the addresses that have a free port of the class.
    pub(super) available: &'a mut [u64],
    pub(super) address: usize,
    pub(super) summary: &'a mut [u64],
    pub(super) words: &'a mut [u64],
    /// Bitmap of the claimed shared words that have a free port.
    pub(super) claimed: &'a mut [u64],
}

impl Bits<'_> {
    /// Word and bit of a free port in a range of words. The search starts at a word that the hash of the flow selects.
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

    /// Word and bit of a free preferred port. `preference` returns the preferred ports of a word.
    pub(super) fn find_preferred(
        &self,
        (from, to): (usize, usize),
        flow: u64,
        preference: impl Fn(usize) -> u64,
    ) -> Option<(usize, u32)> {
        if from >= to {
            return None;
        }
        let first = from + start(flow, from, to);
        let places = (first..to).chain(from..first);
        let free = places
            .filter_map(|at| Some((at, *self.words.get(at)?)))
            .filter(|&(_, free)| free != 0);
        let mut words = free.map(|(at, free)| (at, free & preference(at)));
        let (at, word) = words.find(|&(_, word)| word != 0)?;
        Some((at, pick(word, flow)))
    }

    /// Whether the port is free.
    #[inline(always)]
    pub(super) fn is_free(&self, at: usize, bit: u32) -> bool {
        self.words[at] >> bit & 1 != 0
    }

    /// Allocates a free port.
    #[inline(always)]
    pub(super) fn take(&mut self, at: usize, bit: u32) {
        self.take_all(at, 1 << bit);
    }

    /// Allocates free ports of a word.
    #[inline(always)]
    pub(super) fn take_all(&mut self, at: usize, ports: u64) {
        self.words[at] &= !ports;
        if self.words[at] != 0 {
            return;
        }
        self.summary[at / 64] &= !(1 << (at % 64));
        if self.summary.iter().all(|&words| words == 0) {
            self.available[self.address / 64] &= !(1 << (self.address % 64));
        }
    }

    /// Frees a port.
    #[inline(always)]
    pub(super) fn put(&mut self, at: usize, bit: u32) {
        self.release_ports(at, 1 << bit);
    }

    /// Frees ports of a word. `ports` must not be 0.
    #[inline(always)]
    pub(super) fn release_ports(&mut self, at: usize, ports: u64) {
        if self.words[at] == 0 {
            self.summary[at / 64] |= 1 << (at % 64);
            self.available[self.address / 64] |= 1 << (self.address % 64);
        }
        self.words[at] |= ports;
    }
}

/// Word at which the search of a flow starts, relative to the first word of the range.
#[inline(always)]
pub(super) fn start(flow: u64, from: usize, to: usize) -> usize {
    reduce((flow >> 32) as u32, to.saturating_sub(from) as u32) as usize
}

/// The set bit of a word that the hash of a flow selects.
#[inline(always)]
pub(super) fn pick(word: u64, flow: u64) -> u32 {
    let from = flow as u32 & 63;
    (word.rotate_right(from).trailing_zeros() + from) & 63
}

/// Position of the first set bit among the bits `from..to`.
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

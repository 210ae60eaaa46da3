//! Bitmap of the values of one header word that a group's rules match. Each bit represents 65,536 values.
//!
//! The rules of a group are narrow in one address. For most packets, the map therefore shows that the group need not be
//! searched. A bit that is set although no rule needs it causes an unnecessary lookup, but never a wrong result. The
//! removal of a rule therefore does not clear the bits of the rule.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{Address, Header, Range};

/// Number of leading bits of the word that index the map.
const BITS: u32 = 16;

type Bits = [AtomicU64; (1 << BITS) / 64];

#[derive(Debug)]
pub struct Reach {
    /// Index of the header word.
    word: usize,
    bits: Box<Bits>,
}

impl Reach {
    /// Creates the bitmap for ranges of an address that begins at word `address` of a header. The bitmap represents the
    /// most selective word of the address.
    pub fn of<A: Address>(address: usize, ranges: impl Iterator<Item = Range<A>> + Clone) -> Self {
        let of = |at: usize| {
            let reach = Self {
                word: address + at,
                bits: Box::new([const { AtomicU64::new(0) }; (1 << BITS) / 64]),
            };
            ranges.clone().for_each(|range| reach.add(range));
            reach
        };
        let set = |reach: &Self| -> u32 {
            let ones = |bits: &AtomicU64| bits.load(Ordering::Relaxed).count_ones();
            reach.bits.iter().map(ones).sum()
        };
        let first = of(0);
        let better = |best: Self, at: usize| {
            core::iter::once(of(at))
                .find(|other| set(other) < set(&best))
                .unwrap_or(best)
        };
        (1..A::WORDS).fold(first, better)
    }

    /// Whether a rule may match a header.
    #[inline(always)]
    pub fn has<A: Address>(&self, header: &Header<A>) -> bool {
        let value = (header.words[self.word % 16] >> (u32::BITS - BITS)) as usize;
        self.bits[value / 64 % self.bits.len()].load(Ordering::Relaxed) >> (value % 64) & 1 != 0
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&*self.bits)
    }

    /// Adds a range of addresses. If the range spans several values of a more significant word, all bits of the
    /// represented word are set.
    pub fn add<A: Address>(&self, Range { first, last }: Range<A>) {
        let at = self.word % A::WORDS;
        let same = (0..at).all(|above| first.word(above) == last.word(above));
        let [first, last] = match same {
            true => [first, last].map(|end| end.word(at)),
            false => [0, u32::MAX],
        };
        for value in first >> (u32::BITS - BITS)..=last >> (u32::BITS - BITS) {
            self.bits[value as usize / 64].fetch_or(1 << (value % 64), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reach_has_every_address_of_its_ranges_and_not_those_far_from_them() {
        let ranges = [(0x0a00_0000, 0x0a01_ffff), (0xffff_fff0, 0xffff_ffff)];
        let ranges = ranges.map(|(first, last)| Range { first, last });
        let reach = Reach::of::<u32>(0, ranges.into_iter());
        let has = |source: u32| reach.has(&Header::new(source, 0));
        let in_it = [0x0a00_0000, 0x0a01_0000, 0x0a01_ffff, 0xffff_fff0, 0xffff_ffff];
        assert!(in_it.into_iter().all(has));
        assert!(![0, 0x09ff_ffff, 0x0a02_0000, 0xfffe_ffff].into_iter().any(has));
        reach.add(Range {
            first: 0x0a02_0001_u32,
            last: 0x0a02_0001,
        });
        assert!(has(0x0a02_0000) && !has(0x0a03_0000));
    }

    #[test]
    fn reach_of_long_addresses_tells_by_the_word_they_differ_in() {
        let network = 0x2001_0db8_u128 << 96;
        let range = Range {
            first: network,
            last: network | 0xffff << 48,
        };
        let reach = Reach::of::<u128>(4, [range].into_iter());
        let has = |destination: u128| reach.has(&Header::new(0, destination));
        assert_eq!(
            [true, true, false],
            [network, network | 0xffff << 48, 0xfe80 << 112].map(has)
        );
    }
}

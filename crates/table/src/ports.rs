//! Leases of the ports of a range, one bit per port.

use crate::memory::{LINE, Line};

/// Ports that one line holds.
const PER_LINE: usize = LINE * 8;

/// Why there is no bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// The memory is not as large as [`PortBitmap::lines_for`] says.
    #[error("a bitmap of {ports} ports needs more than {given} lines of memory")]
    Memory {
        /// Ports of the range.
        ports: u32,
        /// Lines it got.
        given: usize,
    },
    /// The last port comes before the first.
    #[error("the range of ports is empty: {first} to {last}")]
    Range {
        /// First port.
        first: u16,
        /// Last port.
        last: u16,
    },
}

/// Which ports of a range are leased.
#[derive(Debug)]
pub struct PortBitmap<'m> {
    /// Bit per port, from the first on: leased. Bits beyond the last port are set.
    words: &'m mut [u64],
    first: u16,
    last: u16,
    leased: u32,
}

impl<'m> PortBitmap<'m> {
    /// Lines of memory for a range of `ports` ports.
    pub const fn lines_for(ports: u32) -> usize {
        (ports as usize).div_ceil(PER_LINE)
    }

    /// All ports from `first` to `last` (both inclusive), free. What the memory held is lost.
    pub fn new(memory: &'m mut [Line], first: u16, last: u16) -> Result<Self, Misfit> {
        let Some(span) = last.checked_sub(first) else {
            return Err(Misfit::Range { first, last });
        };
        let (ports, given) = (u32::from(span) + 1, memory.len());
        let Some(memory) = memory.get_mut(..Self::lines_for(ports)) else {
            return Err(Misfit::Memory { ports, given });
        };
        let words: &mut [u64] = bytemuck::cast_slice_mut(memory);
        for (word, start) in words.iter_mut().zip((0u32..).step_by(64)) {
            *word = match ports.saturating_sub(start) {
                0 => u64::MAX,
                rest @ 1..64 => u64::MAX << rest,
                _ => 0,
            };
        }
        Ok(PortBitmap {
            words,
            first,
            last,
            leased: 0,
        })
    }

    /// Ports of the range.
    pub fn ports(&self) -> u32 {
        u32::from(self.last - self.first) + 1
    }

    /// Ports leased now.
    pub fn leased(&self) -> u32 {
        self.leased
    }

    /// Where a port's bit is.
    #[inline]
    fn bit(&self, port: u16) -> Option<(usize, u32)> {
        if port > self.last {
            return None;
        }
        let number = port.checked_sub(self.first)?;
        Some((usize::from(number) / 64, u32::from(number) % 64))
    }

    /// Lease the first free port at or after `start`, going on at the first port after the last. A start outside
    /// the range is the first port. `None` where all are leased.
    pub fn lease_from(&mut self, start: u16) -> Option<u16> {
        if self.leased == self.ports() {
            return None;
        }
        let (at, bit) = self.bit(start).unwrap_or((0, 0));
        let count = self.words.len();
        // The word of the start comes twice: its upper part first, its lower part last.
        for step in 0..=count {
            let number = (at + step) % count;
            let word = self.words.get_mut(number)?;
            let before_start = if step == 0 { (1 << bit) - 1 } else { 0 };
            let free = !(*word | before_start);
            if free != 0 {
                let bit = free.trailing_zeros();
                *word |= 1 << bit;
                self.leased += 1;
                return Some(self.first + (number as u32 * 64 + bit) as u16);
            }
        }
        None
    }

    /// Lease this port. False where it is leased or outside the range.
    pub fn lease(&mut self, port: u16) -> bool {
        let Some((at, bit)) = self.bit(port) else { return false };
        let Some(word) = self.words.get_mut(at) else {
            return false;
        };
        let free = *word >> bit & 1 == 0;
        *word |= 1 << bit;
        self.leased += u32::from(free);
        free
    }

    /// Give a port back. False where it was not leased.
    pub fn release(&mut self, port: u16) -> bool {
        let Some((at, bit)) = self.bit(port) else { return false };
        let Some(word) = self.words.get_mut(at) else {
            return false;
        };
        let leased = *word >> bit & 1 != 0;
        *word &= !(1 << bit);
        self.leased -= u32::from(leased);
        leased
    }

    /// Whether a port is leased.
    pub fn is_leased(&self, port: u16) -> bool {
        self.bit(port)
            .and_then(|(at, bit)| self.words.get(at).map(|word| word >> bit & 1 != 0))
            .unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn bitmap_in_too_little_memory_or_of_no_range_is_refused() {
        let mut memory = [Line::ZERO; 127];
        assert_eq!(128, PortBitmap::lines_for(65_536));
        let refused = PortBitmap::new(&mut memory, 0, 65_535).err();
        assert_eq!(
            Some(Misfit::Memory {
                ports: 65_536,
                given: 127
            }),
            refused
        );
        assert_eq!(
            Some(Misfit::Range { first: 2, last: 1 }),
            PortBitmap::new(&mut memory, 2, 1).err()
        );
    }

    #[test]
    fn lease_of_every_port_ends_when_all_are_leased() {
        let (first, last) = if cfg!(miri) { (65_000, 65_535) } else { (0, 65_535) };
        let mut memory = [Line::ZERO; 128];
        let mut bitmap = PortBitmap::new(&mut memory, first, last).unwrap();
        let leased: BTreeSet<u16> = (first..=last)
            .map(|port| bitmap.lease_from(port ^ 0x155).unwrap())
            .collect();
        assert_eq!(bitmap.ports() as usize, leased.len());
        assert_eq!(None, bitmap.lease_from(first));
        assert!(bitmap.release(65_100) && !bitmap.release(65_100));
        assert_eq!(Some(65_100), bitmap.lease_from(65_101));
    }

    #[derive(Clone, Debug)]
    enum Step {
        From(u16),
        Lease(u16),
        Release(u16),
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn bitmap_under_any_steps_is_a_set(
            first in prop_oneof![0u16..200, 65_200u16..=65_535],
            span in 0u16..200,
            steps in prop::collection::vec((0u8..3, 0u16..260), 0..500),
        ) {
            let last = first.saturating_add(span);
            let mut memory = [Line([u64::MAX; 8]); 1];
            let mut bitmap = PortBitmap::new(&mut memory, first, last).unwrap();
            let mut oracle = BTreeSet::new();
            for (action, offset) in steps {
                let port = first.wrapping_add(offset).wrapping_sub(20);
                let step = [Step::From(port), Step::Lease(port), Step::Release(port)][usize::from(action)].clone();
                match step {
                    Step::From(start) => {
                        let start = if (first..=last).contains(&start) { start } else { first };
                        let expected = (start..=last).chain(first..start).find(|port| !oracle.contains(port));
                        prop_assert_eq!(expected, bitmap.lease_from(port));
                        oracle.extend(expected);
                    }
                    Step::Lease(port) => {
                        let expected = (first..=last).contains(&port) && oracle.insert(port);
                        prop_assert_eq!(expected, bitmap.lease(port));
                    }
                    Step::Release(port) => prop_assert_eq!(oracle.remove(&port), bitmap.release(port)),
                }
                prop_assert_eq!(oracle.len(), bitmap.leased() as usize);
                prop_assert_eq!(oracle.contains(&port), bitmap.is_leased(port));
            }
        }
    }
}

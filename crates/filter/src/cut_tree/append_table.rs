//! A table from rule numbers to values. One thread can add entries while other threads look entries up.

use core::sync::atomic::{AtomicU32, Ordering};

use sluice_table::arena::Arena;

use crate::RuleNumber;

/// A table from rule numbers to values. Entries can be added but not removed.
#[derive(Debug)]
pub struct AppendTable<T> {
    values: Arena<(RuleNumber, T)>,
    /// Hash slots: 0 if free, otherwise the index of a value plus one. The hash of the rule number selects the first
    /// slot, and linear probing selects the next slots. At least half of the slots are free.
    slots: Box<[AtomicU32]>,
}

impl<T> AppendTable<T> {
    /// Creates a table for at most `capacity` values.
    pub fn new(capacity: usize) -> Self {
        let slots = (capacity * 2).next_power_of_two();
        Self {
            values: Arena::new(Vec::new(), 0, capacity),
            slots: (0..slots).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// The slots at which a rule number may be stored, in probing order.
    fn slots(&self, number: RuleNumber) -> impl Iterator<Item = &AtomicU32> {
        let first = number.wrapping_mul(0x9e37_79b1) >> 12;
        let mask = self.slots.len() - 1;
        (0..self.slots.len()).map(move |step| &self.slots[(first as usize + step) & mask])
    }

    /// Adds a value, and returns its index, counted from 0. Only one thread may add at a time. Returns the value if the
    /// table is full.
    pub fn add(&self, number: RuleNumber, value: T) -> Result<usize, T> {
        let place = self.values.append((number, value)).map_err(|(_, value)| value)?;
        let free = self.slots(number).find(|slot| slot.load(Ordering::Relaxed) == 0);
        if let Some(slot) = free {
            slot.store(place as u32 + 1, Ordering::Release);
        }
        Ok(place)
    }

    /// The value of a rule number, and the value's index.
    pub fn get(&self, number: RuleNumber) -> Option<(usize, &T)> {
        for slot in self.slots(number) {
            let place = (slot.load(Ordering::Acquire) as usize).checked_sub(1)?;
            match self.values.get(place) {
                Some((of, value)) if *of == number => return Some((place, value)),
                _ => {}
            }
        }
        None
    }

    /// The rule number and the value at an index.
    pub fn at(&self, place: usize) -> Option<&(RuleNumber, T)> {
        self.values.get(place)
    }

    /// Number of values that can still be added.
    pub fn capacity_left(&self) -> usize {
        self.values.capacity_left()
    }

    /// Size in bytes, including free capacity.
    pub fn bytes(&self) -> usize {
        self.values.bytes() + size_of_val(&*self.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_number_until_there_is_no_room() {
        let added = AppendTable::new(100);
        // Rule numbers at the distances of initial rules, and adjacent rule numbers.
        let numbers: Vec<u32> = (0..50).map(|at| at << 16).chain((1..51).map(|at| 77 - at)).collect();
        for (place, &number) in numbers.iter().enumerate() {
            assert_eq!(None, added.get(number).filter(|_| number != 0));
            assert_eq!(Ok(place), added.add(number, number ^ 5));
        }
        assert_eq!((0, Err(9)), (added.capacity_left(), added.add(1 << 30, 9)));
        for (place, &number) in numbers.iter().enumerate() {
            assert_eq!(Some((place, &(number ^ 5))), added.get(number));
            assert_eq!(Some(&(number, number ^ 5)), added.at(place));
        }
        assert_eq!(None, added.get(3 << 20 | 1));
    }
}

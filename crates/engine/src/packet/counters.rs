//! Counters. Each counter is written by one worker, and any thread may read it.

use std::sync::atomic::{AtomicU64, Ordering};

pub mod declaration;
mod inspection;
mod interface;
mod worker;

pub use declaration::{CounterKind, Label, NamedCounter, Unit};
pub use inspection::{
    IdentificationCounters, IdentificationNames, IdentificationOutcome, InspectionCounters, InspectionNames,
};
pub use interface::{InterfaceCounters, InterfaceNames};
pub use worker::{CycleStage, HandOffCause, NodeCounters, NodeNames, WorkerCounters, WorkerNames};

use crate::packet::reason::Reason;

/// A counter with one writer. An addition is one load and one store. Reading never blocks.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter. Only the writing thread may call this.
    #[inline(always)]
    pub fn add(&self, count: u64) {
        self.0
            .store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Sets the counter. Only the writing thread may call this.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    /// Subtracts from the counter. Only the writing thread may call this.
    pub fn remove(&self, count: u64) {
        self.add(count.wrapping_neg());
    }

    /// Value of the counter.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters by number.
#[derive(Debug)]
pub struct CounterArray<const N: usize>([Counter; N]);

impl<const N: usize> Default for CounterArray<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl<const N: usize> std::ops::Index<usize> for CounterArray<N> {
    type Output = Counter;

    fn index(&self, number: usize) -> &Counter {
        &self.0[number]
    }
}

impl<const N: usize> CounterArray<N> {
    /// Adds to the counter with this number. Only the writing thread may call this.
    #[inline(always)]
    pub fn add(&self, number: usize, count: u64) {
        if let Some(counter) = self.0.get(number) {
            counter.add(count);
        }
    }

    /// Sets the counter with this number. Only the writing thread may call this.
    pub fn set(&self, number: usize, value: u64) {
        if let Some(counter) = self.0.get(number) {
            counter.set(value);
        }
    }

    /// Value of the counter with this number.
    pub fn get(&self, number: usize) -> u64 {
        self.0.get(number).map_or(0, Counter::get)
    }

    /// Values of the counters in the order of their numbers.
    pub fn values(&self) -> [u64; N] {
        self.0.each_ref().map(Counter::get)
    }

    /// The counters in the order of their numbers.
    pub fn iter(&self) -> std::slice::Iter<'_, Counter> {
        self.0.iter()
    }
}

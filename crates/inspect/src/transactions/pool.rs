//! A fixed pool of incomplete transactions, with a queue for each flow.

use super::Transaction;
use crate::signature::Service;

#[derive(Debug)]
struct Place {
    transaction: Transaction,
    next: Option<u32>,
}

/// The incomplete transactions of a shard.
#[derive(Debug)]
pub struct TransactionPool {
    places: Box<[Place]>,
    free: Vec<u32>,
    /// Buffer for a transaction that is complete immediately.
    pub(super) passing: Box<Transaction>,
    /// Transactions that were not recorded because the pool was exhausted.
    pub lost: u64,
}

/// A queue of transactions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TransactionQueue {
    first: Option<u32>,
    last: Option<u32>,
    /// Number of transactions in the queue.
    pub length: u32,
}

impl TransactionPool {
    /// Creates a pool of `count` transactions.
    pub fn new(count: u32) -> Self {
        let empty = || Transaction::new(Service::Http, 0);
        Self {
            places: (0..count)
                .map(|_| Place {
                    transaction: empty(),
                    next: None,
                })
                .collect(),
            free: (0..count).rev().collect(),
            passing: Box::new(empty()),
            lost: 0,
        }
    }

    /// Number of free entries.
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Allocates a transaction. If the pool is exhausted, returns `None` and counts the loss.
    pub(super) fn allocate(&mut self, service: Service, number: u32) -> Option<u32> {
        let Some(place) = self.free.pop() else {
            self.lost += 1;
            return None;
        };
        let taken = self.places.get_mut(place as usize)?;
        taken.next = None;
        taken.transaction.start(service, number);
        Some(place)
    }

    pub(super) fn at(&mut self, place: u32) -> Option<&mut Transaction> {
        self.places.get_mut(place as usize).map(|place| &mut place.transaction)
    }

    pub(super) fn release(&mut self, place: u32) {
        self.free.push(place);
    }

    pub(super) fn append(&mut self, row: &mut TransactionQueue, place: u32) {
        let last = row.last.and_then(|last| self.places.get_mut(last as usize));
        match last {
            Some(last) => last.next = Some(place),
            None => row.first = Some(place),
        }
        row.last = Some(place);
        row.length += 1;
    }

    /// The first transaction of a queue.
    pub(super) fn first(&mut self, row: &TransactionQueue) -> Option<&mut Transaction> {
        self.at(row.first?)
    }

    /// Removes the first transaction of a queue; the caller releases it.
    pub(super) fn pop(&mut self, row: &mut TransactionQueue) -> Option<u32> {
        let place = row.first?;
        row.first = self.places.get(place as usize).and_then(|place| place.next);
        if row.first.is_none() {
            row.last = None;
        }
        row.length = row.length.saturating_sub(1);
        Some(place)
    }

    /// The first transaction of an HTTP/2 stream in a queue.
    pub(super) fn of_stream(&self, row: &TransactionQueue, stream: u32) -> Option<u32> {
        let at = |place: u32| self.places.get(place as usize);
        let row = std::iter::successors(row.first, |&place| at(place)?.next);
        row.take(self.places.len())
            .find(|&place| at(place).is_some_and(|place| place.transaction.stream == stream))
    }

    /// Removes a transaction from a queue; the caller releases it.
    pub(super) fn remove(&mut self, row: &mut TransactionQueue, place: u32) {
        if row.first == Some(place) {
            self.pop(row);
            return;
        }
        let next = self.places.get(place as usize).and_then(|place| place.next);
        let mut at = row.first;
        while let Some(before) = at.and_then(|at| self.places.get_mut(at as usize)) {
            if before.next == Some(place) {
                before.next = next;
                if row.last == Some(place) {
                    row.last = at;
                }
                row.length = row.length.saturating_sub(1);
                return;
            }
            at = before.next;
        }
    }
}

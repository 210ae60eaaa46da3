//! Events of translation, from a worker to whoever logs them: a bounded queue that never makes the worker wait.

use std::cell::RefCell;

use sluice_nat::event::{Event, Outbox};

use crate::packet::counters::WorkerCounters;

/// The worker's end of its queue.
#[derive(Debug, Default)]
pub struct EventQueue(Option<RefCell<rtrb::Producer<Event>>>);

/// The other end.
pub type Taken = rtrb::Consumer<Event>;

impl EventQueue {
    /// A queue for so many events, with its other end; none where it holds nothing.
    pub fn new(most: usize) -> (Self, Option<Taken>) {
        if most == 0 {
            return (Self(None), None);
        }
        let (producer, consumer) = rtrb::RingBuffer::new(most);
        (Self(Some(RefCell::new(producer))), Some(consumer))
    }

    /// Take what waits in a shard. What does not fit is counted and lost.
    #[inline(always)]
    pub fn collect(&self, outbox: &mut Outbox, counters: &WorkerCounters) {
        if !outbox.is_empty() {
            self.take(outbox, counters);
        }
    }

    #[inline(never)]
    fn take(&self, outbox: &mut Outbox, counters: &WorkerCounters) {
        let (mut put, mut lost) = (0, 0);
        let mut producer = self.0.as_ref().map(RefCell::borrow_mut);
        lost += outbox.drain(|event| match producer.as_mut().map(|producer| producer.push(event)) {
            Some(Ok(())) => put += 1,
            _ => lost += 1,
        });
        counters.events.add(put);
        counters.events_lost.add(lost);
    }
}

//! Translation events. A bounded queue passes events from a worker to the logger and never blocks the worker.

use std::cell::RefCell;

use sluice_nat::event::{Event, Outbox};

use crate::packet::counters::WorkerCounters;

/// The worker's producer of the event queue.
#[derive(Debug, Default)]
pub struct EventQueue(Option<RefCell<rtrb::Producer<Event>>>);

/// The logger's consumer of the event queue.
pub type EventReceiver = rtrb::Consumer<Event>;

impl EventQueue {
    /// Creates a queue for `max` events, and its consumer. If `max` is 0, there is no queue.
    pub fn new(max: usize) -> (Self, Option<EventReceiver>) {
        if max == 0 {
            return (Self(None), None);
        }
        let (producer, consumer) = rtrb::RingBuffer::new(max);
        (Self(Some(RefCell::new(producer))), Some(consumer))
    }

    /// Moves the events of a shard to the queue. If the queue is full, events are counted as lost.
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

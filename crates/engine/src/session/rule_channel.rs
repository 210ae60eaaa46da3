//! The way of other rules from the control thread to a shard or worker, and of those that are over back to it.

/// Nanoseconds for which flows that are under way go by the rules that they began with.
pub const GRACE_PERIOD: u64 = 10_000_000_000;

/// Changes that may wait for a worker that sleeps.
const MAX_PENDING: usize = 4;

/// The control thread's end.
pub struct RuleSender<T> {
    fresh: rtrb::Producer<(u32, Box<T>)>,
    spent: rtrb::Consumer<Box<T>>,
}

/// The end of a shard or worker.
pub struct RuleReceiver<T> {
    fresh: rtrb::Consumer<(u32, Box<T>)>,
    spent: rtrb::Producer<Box<T>>,
}

/// Both ends.
pub fn channel<T>() -> (RuleSender<T>, RuleReceiver<T>) {
    let (give, fresh) = rtrb::RingBuffer::new(MAX_PENDING);
    // With those that are in use, and those that are over.
    let (spent, back) = rtrb::RingBuffer::new(MAX_PENDING + 2);
    (
        RuleSender {
            fresh: give,
            spent: back,
        },
        RuleReceiver { fresh, spent },
    )
}

impl<T> RuleSender<T> {
    /// Whether another change can wait.
    pub fn has_room(&self) -> bool {
        self.fresh.slots() > 0
    }

    /// Give the receiver what is of a generation; without room, it is dropped.
    pub fn send(&mut self, generation: u32, fresh: Box<T>) {
        let _ = self.fresh.push((generation, fresh));
    }

    /// Free what came back.
    pub fn collect(&mut self) {
        while self.spent.pop().is_ok() {}
    }
}

impl<T> RuleReceiver<T> {
    /// The next that was given, of a generation and those before: what is for later ones goes with what those are told.
    pub fn take(&mut self, generation: u32) -> Option<Box<T>> {
        let &(next, _) = self.fresh.peek().ok()?;
        let is_due = generation.wrapping_sub(next).cast_signed() >= 0;
        let (_, taken) = is_due.then(|| self.fresh.pop().ok()).flatten()?;
        Some(taken)
    }

    /// It is no longer used. There is room for all that were ever given and not freed.
    pub fn retire(&mut self, spent: Box<T>) {
        let _ = self.spent.push(spent);
    }
}

//! The channel that carries new inspection rules from the control thread to a shard or worker, and returns retired
//! rules.

/// Nanoseconds for which existing flows continue to use the rules with which they started.
pub const GRACE_PERIOD: u64 = 10_000_000_000;

/// Maximum number of changes that can wait for a sleeping worker.
const MAX_PENDING: usize = 4;

/// The control thread's sender of the channel.
pub struct RuleSender<T> {
    fresh: rtrb::Producer<(u32, Box<T>)>,
    spent: rtrb::Consumer<Box<T>>,
}

/// The receiver of the channel, in a shard or worker.
pub struct RuleReceiver<T> {
    fresh: rtrb::Consumer<(u32, Box<T>)>,
    spent: rtrb::Producer<Box<T>>,
}

/// Creates the sender and the receiver of a channel.
pub fn channel<T>() -> (RuleSender<T>, RuleReceiver<T>) {
    let (give, fresh) = rtrb::RingBuffer::new(MAX_PENDING);
    // Besides the pending rule sets, the receiver may have one rule set that is in use and one that is being retired.
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
    /// Whether another change can be sent.
    pub fn has_capacity(&self) -> bool {
        self.fresh.slots() > 0
    }

    /// Sends the rules of a generation to the receiver. If the channel is full, the rules are dropped.
    pub fn send(&mut self, generation: u32, fresh: Box<T>) {
        let _ = self.fresh.push((generation, fresh));
    }

    /// Frees the rules that the receiver has retired.
    pub fn collect(&mut self) {
        while self.spent.pop().is_ok() {}
    }
}

impl<T> RuleReceiver<T> {
    /// The next sent rules, if their generation is at most `generation`. Rules of later generations stay in the
    /// channel.
    pub fn take(&mut self, generation: u32) -> Option<Box<T>> {
        let &(next, _) = self.fresh.peek().ok()?;
        let is_due = generation.wrapping_sub(next).cast_signed() >= 0;
        let (_, taken) = is_due.then(|| self.fresh.pop().ok()).flatten()?;
        Some(taken)
    }

    /// Returns unused rules to the control thread. The channel has space for all rules that were sent and not freed.
    pub fn retire(&mut self, spent: Box<T>) {
        let _ = self.spent.push(spent);
    }
}

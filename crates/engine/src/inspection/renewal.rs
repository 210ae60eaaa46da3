//! Rules that change while packets flow: what they are searched with is made by the control thread, and freed by it.
//!
//! First every worker is given tools that serve the old rules and the new, then every shard its book, then the policy
//! says that there are other rules. So whoever has seen that finds both.

use std::sync::Arc;

use sluice_inspect::bindings::vectorscan;
use sluice_inspect::inspector::{Book, Plan, Tools};

use super::Inspection;

/// Nanoseconds for which flows that are under way go by the rules that they began with.
pub const FINISH: u64 = 10_000_000_000;

/// Changes that may wait for a worker that sleeps.
const MOST: usize = 4;

/// Why rules can't give way to others.
#[derive(Debug, thiserror::Error)]
pub enum RenewalError {
    /// There is no memory to search with.
    #[error("no memory to search for other rules: {0}")]
    Memory(#[from] vectorscan::Error),
    /// They change faster than workers follow.
    #[error("a worker has not taken over the last changes of the rules of inspection: apply it again in a few seconds")]
    Unfollowed,
}

/// The control thread's end.
pub struct Giver<T> {
    fresh: rtrb::Producer<(u32, Box<T>)>,
    spent: rtrb::Consumer<Box<T>>,
}

/// The end of a shard or worker.
pub struct Taker<T> {
    fresh: rtrb::Consumer<(u32, Box<T>)>,
    spent: rtrb::Producer<Box<T>>,
}

/// Both ends.
pub fn relay<T>() -> (Giver<T>, Taker<T>) {
    let (give, fresh) = rtrb::RingBuffer::new(MOST);
    // With those that are in use, and those that are over.
    let (spent, back) = rtrb::RingBuffer::new(MOST + 2);
    (
        Giver {
            fresh: give,
            spent: back,
        },
        Taker { fresh, spent },
    )
}

impl<T> Giver<T> {
    /// Free what came back.
    fn collect(&mut self) {
        while self.spent.pop().is_ok() {}
    }
}

impl<T> Taker<T> {
    /// The next that was given, of a generation and those before: what is for later ones goes with what those are told.
    pub fn take(&mut self, generation: u32) -> Option<Box<T>> {
        let &(next, _) = self.fresh.peek().ok()?;
        let is_due = generation.wrapping_sub(next).cast_signed() >= 0;
        let (_, taken) = is_due.then(|| self.fresh.pop().ok()).flatten()?;
        Some(taken)
    }

    /// It is no longer used. There is room for all that were ever given and not freed.
    pub fn give_back(&mut self, spent: Box<T>) {
        let _ = self.spent.push(spent);
    }
}

/// The control thread's ends of all shards and workers.
#[derive(Default)]
pub struct Renewals {
    pub(crate) shards: Vec<Giver<Book>>,
    pub(crate) workers: Vec<Giver<Tools>>,
}

/// What all of them get.
pub struct Fresh {
    generation: u32,
    books: Vec<Book>,
    tools: Vec<Tools>,
}

impl Renewals {
    /// Free what came back.
    pub fn collect(&mut self) {
        self.shards.iter_mut().for_each(Giver::collect);
        self.workers.iter_mut().for_each(Giver::collect);
    }

    fn have_room(&self) -> bool {
        let of_shards = self.shards.iter().all(|giver| giver.fresh.slots() > 0);
        of_shards && self.workers.iter().all(|giver| giver.fresh.slots() > 0)
    }

    /// What it takes that rules give way to those of another commit, which are of a generation; none where they are the
    /// same, or nothing is inspected.
    pub fn make(
        &mut self,
        plan: Option<&Plan>,
        commits: (Option<&Inspection>, Option<&Inspection>),
        generation: u32,
    ) -> Result<Option<Fresh>, RenewalError> {
        let (Some(plan), (Some(before), Some(after))) = (plan, commits) else {
            return Ok(None);
        };
        if Arc::ptr_eq(&before.rules, &after.rules) {
            return Ok(None);
        }
        self.collect();
        if !self.have_room() {
            return Err(RenewalError::Unfollowed);
        }
        let book = |_| Book::new(plan, after.rules.clone(), generation);
        let tools = |_| Tools::serving([&before.rules, &after.rules]);
        Ok(Some(Fresh {
            generation,
            books: self.shards.iter().map(book).collect::<Result<_, _>>()?,
            tools: self.workers.iter().map(tools).collect::<Result<_, _>>()?,
        }))
    }

    /// Give it to all of them. To be called before the policy says so.
    pub fn give(&mut self, fresh: Fresh) {
        for (giver, tools) in self.workers.iter_mut().zip(fresh.tools) {
            let _ = giver.fresh.push((fresh.generation, Box::new(tools)));
        }
        for (giver, book) in self.shards.iter_mut().zip(fresh.books) {
            let _ = giver.fresh.push((fresh.generation, Box::new(book)));
        }
    }
}

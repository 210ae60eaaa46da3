//! Rules that change while packets flow: what they are searched with is made by the control thread, and freed by it.
//!
//! First every worker is given tools that serve the old rules and the new, then every shard its book, then the snapshot
//! says that there are other rules. So whoever has seen that finds both.

use std::sync::Arc;

use sluice_inspect::bindings::vectorscan;
use sluice_inspect::inspector::{DetectionContext, InspectorCapacity, RulesetState};

use super::InspectionPolicy;
use crate::session::rule_channel::RuleSender;

/// Why rules can't give way to others.
#[derive(Debug, thiserror::Error)]
pub enum RuleUpdateError {
    /// There is no memory to search with.
    #[error("no memory to search for other rules: {0}")]
    Memory(#[from] vectorscan::Error),
    /// They change faster than workers follow.
    #[error("a worker has not taken over the last changes of the rules of inspection: apply it again in a few seconds")]
    Unfollowed,
}

/// The control thread's ends of all shards and workers.
#[derive(Default)]
pub struct RuleUpdates {
    pub(crate) shards: Vec<RuleSender<RulesetState>>,
    pub(crate) workers: Vec<RuleSender<DetectionContext>>,
}

/// What all of them get.
pub struct NewRules {
    generation: u32,
    books: Vec<RulesetState>,
    tools: Vec<DetectionContext>,
}

impl RuleUpdates {
    /// Free what came back.
    pub fn collect(&mut self) {
        self.shards.iter_mut().for_each(RuleSender::collect);
        self.workers.iter_mut().for_each(RuleSender::collect);
    }

    fn have_capacity(&self) -> bool {
        let of_shards = self.shards.iter().all(|giver| giver.has_room());
        of_shards && self.workers.iter().all(|giver| giver.has_room())
    }

    /// What it takes that rules give way to those of another commit, which are of a generation; none where they are the
    /// same, or nothing is inspected.
    pub fn make(
        &mut self,
        plan: Option<&InspectorCapacity>,
        commits: (Option<&InspectionPolicy>, Option<&InspectionPolicy>),
        generation: u32,
    ) -> Result<Option<NewRules>, RuleUpdateError> {
        let (Some(plan), (Some(before), Some(after))) = (plan, commits) else {
            return Ok(None);
        };
        if Arc::ptr_eq(&before.rules, &after.rules) {
            return Ok(None);
        }
        self.collect();
        if !self.have_capacity() {
            return Err(RuleUpdateError::Unfollowed);
        }
        let book = |_| RulesetState::new(plan, after.rules.clone(), generation);
        let tools = |_| DetectionContext::for_rulesets([&before.rules, &after.rules]);
        Ok(Some(NewRules {
            generation,
            books: self.shards.iter().map(book).collect::<Result<_, _>>()?,
            tools: self.workers.iter().map(tools).collect::<Result<_, _>>()?,
        }))
    }

    /// Give it to all of them. To be called before the snapshot says so.
    pub fn send(&mut self, fresh: NewRules) {
        for (giver, tools) in self.workers.iter_mut().zip(fresh.tools) {
            giver.send(fresh.generation, Box::new(tools));
        }
        for (giver, book) in self.shards.iter_mut().zip(fresh.books) {
            giver.send(fresh.generation, Box::new(book));
        }
    }
}

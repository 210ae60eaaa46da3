//! Replacement of inspection rules at run time. The control thread creates the state for pattern matching, and frees it later.
//!
//! First each worker gets a detection context for the old and the new rules, then each shard gets the state of the new
//! rule set, and then the new snapshot is published. A worker that uses the new snapshot therefore already has the
//! context and the state.

use std::sync::Arc;

use sluice_inspect::bindings::vectorscan;
use sluice_inspect::inspector::{DetectionContext, InspectorCapacity, RulesetState};

use super::InspectionPolicy;
use crate::session::rule_channel::RuleSender;

/// Reason for which rules can't be replaced.
#[derive(Debug, thiserror::Error)]
pub enum RuleUpdateError {
    /// Out of memory for pattern matching.
    #[error("no memory for the search database of the new rules: {0}")]
    Memory(#[from] vectorscan::Error),
    /// The rules are replaced faster than the workers load them.
    #[error(
        "a worker has not yet loaded the previous inspection rules: apply the configuration again in a few \
         seconds"
    )]
    WorkersBehind,
}

/// The control thread's producers of the channels to all shards and workers.
#[derive(Default)]
pub struct RuleUpdates {
    pub(crate) shards: Vec<RuleSender<RulesetState>>,
    pub(crate) workers: Vec<RuleSender<DetectionContext>>,
}

/// The states of new rules for all shards and workers.
pub struct NewRules {
    generation: u32,
    rulesets: Vec<RulesetState>,
    tools: Vec<DetectionContext>,
}

impl RuleUpdates {
    /// Frees the retired states.
    pub fn collect(&mut self) {
        self.shards.iter_mut().for_each(RuleSender::collect);
        self.workers.iter_mut().for_each(RuleSender::collect);
    }

    fn have_capacity(&self) -> bool {
        let of_shards = self.shards.iter().all(|rule_sender| rule_sender.has_capacity());
        of_shards && self.workers.iter().all(|rule_sender| rule_sender.has_capacity())
    }

    /// Creates the states with which shards and workers change from the rules of one commit to the rules of another
    /// commit, whose generation is given. `None` if the rules are equal, or if inspection is disabled.
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
            return Err(RuleUpdateError::WorkersBehind);
        }
        let ruleset = |_| RulesetState::new(plan, after.rules.clone(), generation);
        let tools = |_| DetectionContext::for_rulesets([&before.rules, &after.rules]);
        Ok(Some(NewRules {
            generation,
            rulesets: self.shards.iter().map(ruleset).collect::<Result<_, _>>()?,
            tools: self.workers.iter().map(tools).collect::<Result<_, _>>()?,
        }))
    }

    /// Sends the states to all shards and workers. The control thread must call this before it publishes the snapshot.
    pub fn send(&mut self, fresh: NewRules) {
        for (rule_sender, tools) in self.workers.iter_mut().zip(fresh.tools) {
            rule_sender.send(fresh.generation, Box::new(tools));
        }
        for (rule_sender, ruleset) in self.shards.iter_mut().zip(fresh.rulesets) {
            rule_sender.send(fresh.generation, Box::new(ruleset));
        }
    }
}

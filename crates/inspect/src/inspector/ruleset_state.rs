//! Rulesets of the flows of a shard, and their replacement. After a replacement, existing flows keep the previous
//! ruleset for a limited time.

use std::sync::Arc;

use super::flow::{FlowState, ScanStates};
use super::pending::{PendingLists, PendingRules};
use super::{Inspector, InspectorCapacity};
use crate::bindings::vectorscan;
use crate::ruleset::Ruleset;
use crate::scope::Endpoints;

/// Ruleset of one generation with its per-flow state: search states and flow variables.
pub struct RulesetState {
    generation: u32,
    rules: Arc<Ruleset>,
    pub(super) scans: ScanStates,
    flow_vars: FlowVars,
    lists: PendingLists,
    /// Number of open flows that use the ruleset.
    flows: u32,
}

/// Flow variables, by index of the flow.
struct FlowVars {
    bits: Box<[u64]>,
    words: usize,
}

impl FlowVars {
    /// The variables of one flow.
    fn of(&mut self, place: usize) -> &mut [u64] {
        let from = place * self.words;
        self.bits.get_mut(from..from + self.words).unwrap_or_default()
    }
}

impl RulesetState {
    /// Allocates the state that a shard of this capacity needs for a ruleset.
    pub fn new(plan: &InspectorCapacity, rules: Arc<Ruleset>, generation: u32) -> Result<Self, vectorscan::Error> {
        let windows = u32::try_from(plan.streams.windows).unwrap_or(u32::MAX);
        let words = rules.flow_var_words();
        Ok(Self {
            generation,
            scans: ScanStates::new(rules.prefilter(), windows)?,
            flow_vars: FlowVars {
                bits: vec![0; plan.max_flows() as usize * words].into(),
                words,
            },
            lists: PendingLists::new(plan.max_pending_lists(), rules.rules().len()),
            rules,
            flows: 0,
        })
    }

    /// The parts of the state that belong to the flow at this index.
    pub(super) fn parts(&mut self, place: usize) -> (&Ruleset, &mut ScanStates, &mut [u64], &mut PendingLists) {
        (&self.rules, &mut self.scans, self.flow_vars.of(place), &mut self.lists)
    }

    /// Selects the rules by the ports of a flow, if its endpoints are known.
    fn select_rules(&self, flow: &mut FlowState) {
        let rules = &self.rules;
        flow.port_rules = flow.summary.ends.map_or_else(Default::default, |ends| {
            let single = &rules.packet_rules(ends.protocol).by_port;
            [ends, ends.reversed()].map(|Endpoints { toward, ports, .. }| {
                let streamed = rules.select_by_ports(rules.stream_rules(toward), ports);
                (streamed, rules.select_by_ports(single, ports))
            })
        });
    }

    fn attach(&mut self, flow: &mut FlowState, place: usize) {
        flow.generation = self.generation;
        self.flows += 1;
        self.flow_vars.of(place).fill(0);
    }
}

/// Rulesets of a shard.
pub(super) struct RulesetStates {
    current: Box<RulesetState>,
    /// The previous ruleset, and the time (in nanoseconds) until which existing flows use it.
    previous: Option<(Box<RulesetState>, u64)>,
    /// Number of flows that switched to a newer ruleset.
    pub switches: u64,
}

impl RulesetStates {
    pub fn new(ruleset: RulesetState) -> Self {
        Self {
            current: Box::new(ruleset),
            previous: None,
            switches: 0,
        }
    }

    /// The ruleset that new flows use.
    pub fn current(&mut self) -> &mut RulesetState {
        &mut self.current
    }

    pub fn generation(&self) -> u32 {
        self.current.generation
    }

    /// Attaches a new flow to the current ruleset.
    pub fn start_flow(&mut self, flow: &mut FlowState, place: usize) {
        self.current.attach(flow, place);
    }

    /// Selects the rules of a new flow when its endpoints become known.
    pub fn set_endpoints(&self, flow: &mut FlowState) {
        self.current.select_rules(flow);
    }

    /// Prefetches the search state of a direction.
    #[inline(always)]
    pub fn prefetch(&self, flow: &FlowState, direction: usize) {
        // Few flows use an older ruleset, so their search state is not prefetched.
        if flow.generation == self.current.generation {
            self.current.scans.prefetch(&flow.scans, direction);
        }
    }

    /// Returns the ruleset that a flow uses at time `now` (in nanoseconds): the ruleset with which the flow started, or
    /// the current ruleset after the former has expired.
    #[inline(always)]
    pub fn of(&mut self, flow: &mut FlowState, place: usize, now: u64) -> &mut RulesetState {
        match flow.generation == self.current.generation {
            true => &mut self.current,
            false => self.of_older(flow, place, now),
        }
    }

    #[cold]
    fn of_older(&mut self, flow: &mut FlowState, place: usize, now: u64) -> &mut RulesetState {
        let before = self.previous.as_ref();
        let keeps = before.is_some_and(|(ruleset, until)| ruleset.generation == flow.generation && now < *until);
        if !keeps {
            self.end_flow(flow);
            // Streams and parsers keep their state. Matched, partially matched and pending rules are forgotten, because
            // they belong to the old ruleset.
            flow.pending.iter_mut().for_each(PendingRules::forget);
            self.current.attach(flow, place);
            self.current.select_rules(flow);
            self.switches += 1;
        }
        match &mut self.previous {
            Some((ruleset, _)) if keeps => ruleset,
            _ => &mut self.current,
        }
    }

    /// Detaches a flow from its ruleset.
    pub fn end_flow(&mut self, flow: &mut FlowState) {
        let before = self.previous.as_mut().map(|(ruleset, _)| ruleset);
        let mut rulesets = before.into_iter().chain([&mut self.current]);
        match rulesets.find(|ruleset| ruleset.generation == flow.generation) {
            Some(ruleset) => {
                ruleset.scans.close(&mut flow.scans);
                let lists = &mut ruleset.lists;
                flow.pending.iter_mut().for_each(|waiting| waiting.start(lists));
                ruleset.flows = ruleset.flows.saturating_sub(1);
            }
            // The flow's search states were freed together with their pool.
            None => flow.scans = [None; 2],
        }
    }

    /// Pending lists of a generation's ruleset, or of the current ruleset if that generation has expired.
    pub fn lists(&self, generation: u32) -> &PendingLists {
        match &self.previous {
            Some((ruleset, _)) if ruleset.generation == generation => &ruleset.lists,
            _ => &self.current.lists,
        }
    }

    /// Replaces the current ruleset for new flows; existing flows keep their ruleset until time `until` (in
    /// nanoseconds). Returns the predecessor of the replaced ruleset, which expires now.
    pub fn replace(&mut self, ruleset: Box<RulesetState>, until: u64) -> Option<Box<RulesetState>> {
        let current = std::mem::replace(&mut self.current, ruleset);
        let before = self.previous.replace((current, until));
        before.map(|(ruleset, _)| ruleset)
    }

    /// Returns the previous ruleset once no flow uses it or its time has expired.
    pub fn retire_rules(&mut self, now: u64) -> Option<Box<RulesetState>> {
        let over = |(ruleset, until): &mut (Box<RulesetState>, u64)| ruleset.flows == 0 || now >= *until;
        self.previous.take_if(over).map(|(ruleset, _)| ruleset)
    }
}

impl Inspector<'_> {
    /// Sets the generation of the current ruleset.
    pub fn of_generation(mut self, generation: u32) -> Self {
        self.rulesets.current().generation = generation;
        self
    }

    /// Generation of the current ruleset.
    pub fn generation(&self) -> u32 {
        self.rulesets.generation()
    }

    /// Replaces the current ruleset for new flows; existing flows keep their ruleset until time `until` (in
    /// nanoseconds). Returns an expired ruleset, which must be freed where a long operation is allowed.
    pub fn replace_rules(&mut self, ruleset: Box<RulesetState>, until: u64) -> Option<Box<RulesetState>> {
        self.rulesets.replace(ruleset, until)
    }

    /// Returns the previous ruleset once no flow uses it or its time has expired. The function must be called
    /// periodically.
    pub fn retire_previous(&mut self, now: u64) -> Option<Box<RulesetState>> {
        self.rulesets.retire_rules(now)
    }
}

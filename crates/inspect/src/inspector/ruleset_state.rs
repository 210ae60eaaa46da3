//! Rules that the flows of a shard go by, and how they give way to others: flows that are under way keep those that they
//! began with for a while.

use std::sync::Arc;

use super::flow::{FlowState, ScanStates};
use super::pending::{PendingLists, PendingRules};
use super::{Inspector, InspectorCapacity};
use crate::bindings::vectorscan;
use crate::ruleset::Ruleset;
use crate::scope::Endpoints;

/// Rules of one generation, with what flows keep for them: states of the search, and notes.
pub struct RulesetState {
    generation: u32,
    rules: Arc<Ruleset>,
    pub(super) scans: ScanStates,
    flow_vars: FlowVars,
    lists: PendingLists,
    /// Open flows that go by it.
    flows: u32,
}

/// What rules have noted of flows, by the flow's place.
struct FlowVars {
    bits: Box<[u64]>,
    words: usize,
}

impl FlowVars {
    /// Those of a flow.
    fn of(&mut self, place: usize) -> &mut [u64] {
        let from = place * self.words;
        self.bits.get_mut(from..from + self.words).unwrap_or_default()
    }
}

impl RulesetState {
    /// What a shard of this plan needs for rules. It allocates.
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

    /// All of it, as it is for the flow at a place.
    pub(super) fn parts(&mut self, place: usize) -> (&Ruleset, &mut ScanStates, &mut [u64], &mut PendingLists) {
        (&self.rules, &mut self.scans, self.flow_vars.of(place), &mut self.lists)
    }

    /// Which rules a flow's ports leave, where it is known between whom it is.
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

/// The rules of a shard.
pub(super) struct RulesetStates {
    current: Box<RulesetState>,
    /// Those before, and until when flows that began with them go by them.
    previous: Option<(Box<RulesetState>, u64)>,
    /// Flows that went over to other rules than they began with.
    pub switches: u64,
}

impl RulesetStates {
    pub fn new(book: RulesetState) -> Self {
        Self {
            current: Box::new(book),
            previous: None,
            switches: 0,
        }
    }

    /// The rules that flows begin with now.
    pub fn current(&mut self) -> &mut RulesetState {
        &mut self.current
    }

    pub fn generation(&self) -> u32 {
        self.current.generation
    }

    /// A flow begins.
    pub fn begin_flow(&mut self, flow: &mut FlowState, place: usize) {
        self.current.attach(flow, place);
    }

    /// It is known between whom a flow is that has begun.
    pub fn set_endpoints(&self, flow: &mut FlowState) {
        self.current.select_rules(flow);
    }

    /// Ask for the state that a direction of a flow is searched with.
    #[inline(always)]
    pub fn prefetch(&self, flow: &FlowState, direction: usize) {
        // The few flows that go by other rules wait for theirs.
        if flow.generation == self.current.generation {
            self.current.scans.prefetch(&flow.scans, direction);
        }
    }

    /// The rules that a flow goes by at a nanosecond: its own, or those of now once its own are over.
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
        let keeps = before.is_some_and(|(book, until)| book.generation == flow.generation && now < *until);
        if !keeps {
            self.end_flow(flow);
            // Where its streams and parsers are stays; what was found of a message, and what waited, was of other rules.
            flow.pending.iter_mut().for_each(PendingRules::forget);
            self.current.attach(flow, place);
            self.current.select_rules(flow);
            self.switches += 1;
        }
        match &mut self.previous {
            Some((book, _)) if keeps => book,
            _ => &mut self.current,
        }
    }

    /// A flow goes by no rules any more.
    pub fn end_flow(&mut self, flow: &mut FlowState) {
        let before = self.previous.as_mut().map(|(book, _)| book);
        let mut books = before.into_iter().chain([&mut self.current]);
        match books.find(|book| book.generation == flow.generation) {
            Some(book) => {
                book.scans.close(&mut flow.scans);
                let lists = &mut book.lists;
                flow.pending.iter_mut().for_each(|waiting| waiting.begin(lists));
                book.flows = book.flows.saturating_sub(1);
            }
            // Its states went with their pool.
            None => flow.scans = [None; 2],
        }
    }

    /// The lists of the rules of a generation; those of now where they are gone.
    pub fn lists(&self, generation: u32) -> &PendingLists {
        match &self.previous {
            Some((book, _)) if book.generation == generation => &book.lists,
            _ => &self.current.lists,
        }
    }

    /// Flows begin with other rules from now on; those under way go by theirs until a nanosecond. The rules before those
    /// of now are over, and go back.
    pub fn replace(&mut self, book: Box<RulesetState>, until: u64) -> Option<Box<RulesetState>> {
        let current = std::mem::replace(&mut self.current, book);
        let before = self.previous.replace((current, until));
        before.map(|(book, _)| book)
    }

    /// The rules before those of now, once no flow goes by them or their time is over.
    pub fn retire_rules(&mut self, now: u64) -> Option<Box<RulesetState>> {
        let over = |(book, until): &mut (Box<RulesetState>, u64)| book.flows == 0 || now >= *until;
        self.previous.take_if(over).map(|(book, _)| book)
    }
}

impl Inspector<'_> {
    /// The same, with its rules as those of a generation.
    pub fn of_generation(mut self, generation: u32) -> Self {
        self.rulesets.current().generation = generation;
        self
    }

    /// Of the rules that flows begin with.
    pub fn generation(&self) -> u32 {
        self.rulesets.generation()
    }

    /// Flows begin with other rules from now on; those under way go by theirs until a nanosecond. Rules that are over go
    /// back, to be freed where that may take long.
    pub fn replace_rules(&mut self, book: Box<RulesetState>, until: u64) -> Option<Box<RulesetState>> {
        self.rulesets.replace(book, until)
    }

    /// The rules before those of now, once no flow goes by them or their time is over. To be asked now and then.
    pub fn retire_previous(&mut self, now: u64) -> Option<Box<RulesetState>> {
        self.rulesets.retire_rules(now)
    }
}

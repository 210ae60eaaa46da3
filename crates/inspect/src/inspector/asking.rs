//! Rules that were found are asked, and what they say is done.

use arrayvec::ArrayVec;

use super::story::Story;
use crate::bindings::vectorscan::{self, Calls, Next, Scratch};
use crate::evaluate::{Answer, Buffers, Evaluator, Facts};
use crate::prefilter::Group;
use crate::rates::Rates;
use crate::reason::Skipped;
use crate::ruleset::{OfPorts, Ruleset};
use crate::scope::{Ends, Outline};
use crate::signature::{Action, RateKind, Service};

/// Rules that wait for more of a message at most.
pub const WAITING: usize = 16;
/// Candidates of one piece of data at most.
const CANDIDATES: usize = 256;

/// What a worker asks with.
pub struct Tools {
    pub(super) evaluator: Evaluator,
    /// Serves the databases of the rules.
    pub(super) scratch: Scratch,
    found: Found,
}

impl Tools {
    /// Of a worker, for these rules.
    pub fn new(scratch: Scratch, rules: &Ruleset) -> Self {
        Self {
            evaluator: Evaluator::default(),
            scratch,
            found: Found::for_rules(rules.rules().len()),
        }
    }

    /// Of a worker, for rules and those that give way to them.
    ///
    /// # Errors
    /// There is no memory.
    pub fn serving(rules: [&Ruleset; 2]) -> Result<Self, vectorscan::Error> {
        let mut scratch = Scratch::new();
        for rules in rules {
            rules.prefilter().serve(&mut scratch)?;
        }
        let most = rules.iter().map(|rules| rules.rules().len()).max();
        Ok(Self {
            evaluator: Evaluator::default(),
            scratch,
            found: Found::for_rules(most.unwrap_or(0)),
        })
    }

    /// What was searched since [`super::Inspector::record`].
    pub fn take_calls(&mut self) -> Option<Box<Calls>> {
        self.scratch.take_calls()
    }

    /// Rules that took too many steps to ask.
    pub fn exhausted(&self) -> u64 {
        self.evaluator.exhausted
    }

    /// Candidates that were too many at once.
    pub fn overflown(&self) -> u64 {
        self.found.overflown
    }
}

/// Rules found by one search, each once.
struct Found {
    rules: Vec<u32>,
    is_there: Box<[u64]>,
    overflown: u64,
}

impl Found {
    fn for_rules(count: usize) -> Self {
        Self {
            rules: Vec::with_capacity(CANDIDATES),
            is_there: vec![0; count.div_ceil(64)].into(),
            overflown: 0,
        }
    }

    fn add(&mut self, rule: u32) {
        let Some(word) = self.is_there.get_mut(rule as usize / 64) else {
            return;
        };
        let bit = 1 << (rule % 64);
        if *word & bit != 0 {
            return;
        }
        if self.rules.len() < CANDIDATES {
            self.rules.push(rule);
            *word |= bit;
        } else {
            self.overflown += 1;
        }
    }

    /// Those found, in the order in which they are asked; none is left. They come back by [`Found::put_back`].
    fn take(&mut self) -> Vec<u32> {
        let mut rules = std::mem::take(&mut self.rules);
        for rule in &rules {
            if let Some(word) = self.is_there.get_mut(*rule as usize / 64) {
                *word = 0;
            }
        }
        rules.sort_unstable();
        rules
    }

    /// The list is used again.
    fn put_back(&mut self, mut rules: Vec<u32>) {
        rules.clear();
        self.rules = rules;
    }
}

/// Rules of one direction that wait for more, and those that have spoken about this message.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct Waiting {
    /// There may be any: of most flows, all that is read.
    any: bool,
    rules: ArrayVec<u32, WAITING>,
    spoken: ArrayVec<u32, WAITING>,
}

impl Waiting {
    /// Another message begins.
    #[inline(always)]
    pub(super) fn begin(&mut self) {
        if std::mem::take(&mut self.any) {
            self.rules.clear();
            self.spoken.clear();
        }
    }

    /// Whether no rule waits.
    #[inline(always)]
    pub(super) fn is_over(&self) -> bool {
        !self.any || self.rules.is_empty()
    }
}

/// What is to become of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// It goes on, and so does inspection.
    #[default]
    Open,
    /// A rule passes it: it goes on uninspected.
    Passed(Skipped),
    /// A rule or exception has ended it.
    Dropped,
    /// The same, and both ends are to be told.
    Rejected,
}

/// A rule: its number in the rules of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleNumber {
    /// Which rules.
    pub generation: u32,
    /// Its place among them.
    pub number: u32,
}

/// A rule that matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Number of the flow.
    pub flow: u64,
    /// Its application, where it is known.
    pub service: Option<Service>,
    /// Which.
    pub rule: RuleNumber,
    /// What was done about it.
    pub action: Action,
}

/// Rules that match go here.
pub type Report<'r> = &'r mut dyn FnMut(Match);

/// Asking about one packet of one flow.
pub(super) struct Asking<'a> {
    pub generation: u32,
    pub rules: &'a Ruleset,
    pub rates: &'a Rates,
    pub second: u32,
    pub ends: &'a Ends,
    pub facts: &'a Facts,
    pub tools: &'a mut Tools,
    pub notes: &'a mut [u64],
    pub waiting: &'a mut Waiting,
    pub fate: &'a mut Fate,
    pub story: &'a mut Story,
    /// The application may still become known.
    pub unknown: bool,
    pub lost: &'a mut u64,
    pub report: Report<'a>,
}

impl Asking<'_> {
    /// Search a block of data, of which the first `old` bytes were searched before, and ask the rules that are found.
    pub fn block(&mut self, group: &Group, data: &[u8], buffers: &impl Buffers) {
        let Some(database) = group.block() else { return };
        let Tools { scratch, found, .. } = &mut *self.tools;
        database.scan(data, scratch, |id, _| {
            group.rules(id).iter().for_each(|&rule| found.add(rule));
            Next::Continue
        });
        self.ask_found(buffers);
    }

    /// A search found a pattern.
    pub fn found<'f>(
        found: &'f mut Tools,
        group: &'f Group,
    ) -> (&'f mut Scratch, impl FnMut(u32, u64) -> Next + use<'f>) {
        let Tools { scratch, found, .. } = found;
        (scratch, move |id, _| {
            group.rules(id).iter().for_each(|&rule| found.add(rule));
            Next::Continue
        })
    }

    /// Ask what was found.
    pub fn ask_found(&mut self, buffers: &impl Buffers) {
        if self.tools.found.rules.is_empty() {
            return;
        }
        let found = self.tools.found.take();
        for &rule in &found {
            if *self.fate != Fate::Open {
                break;
            }
            if self.rules.may_be_about(rule, self.ends, self.facts) && !self.waiting.rules.contains(&rule) {
                self.ask(rule, buffers);
            }
        }
        self.tools.found.put_back(found);
    }

    /// Ask the rules that wait for more.
    pub fn ask_waiting(&mut self, buffers: &impl Buffers) {
        if self.waiting.is_over() {
            return;
        }
        for rule in std::mem::take(&mut self.waiting.rules) {
            if *self.fate != Fate::Open {
                return;
            }
            self.ask(rule, buffers);
        }
    }

    /// Ask rules that need nothing found.
    pub fn ask_all(&mut self, rules: &[u32], buffers: &impl Buffers) {
        for &rule in rules {
            if *self.fate != Fate::Open {
                return;
            }
            if self.rules.may_be_about(rule, self.ends, self.facts) {
                self.ask(rule, buffers);
            }
        }
    }

    /// The same of those that the flow's ports leave.
    pub fn ask_of_ports(&mut self, rules: &[(Outline, u32)], left: &OfPorts, buffers: &impl Buffers) {
        match left {
            OfPorts::All => self.ask_listed(rules, buffers),
            OfPorts::Some(places) => {
                let left = places.iter().filter_map(|&place| rules.get(usize::from(place)));
                self.ask_listed(left, buffers);
            }
        }
    }

    /// The same, where what most are ruled out by stands beside each.
    pub fn ask_listed<'r>(&mut self, rules: impl IntoIterator<Item = &'r (Outline, u32)>, buffers: &impl Buffers) {
        for (outline, rule) in rules {
            if !outline.may_hold(self.ends, self.facts) {
                continue;
            }
            if *self.fate != Fate::Open {
                return;
            }
            if !self.waiting.rules.contains(rule) {
                self.ask(*rule, buffers);
            }
        }
    }

    fn ask(&mut self, number: u32, buffers: &impl Buffers) {
        let Some(rule) = self.rules.rule(number) else { return };
        let signature = &rule.signature;
        if self.waiting.spoken.contains(&number) || !signature.flow.is_about(self.ends) {
            return;
        }
        if !signature.header.is_about(self.ends) {
            if self.unknown && signature.header.is_about_application() {
                self.wait(number);
            }
            return;
        }
        match self.tools.evaluator.ask(rule, self.facts, buffers, self.notes) {
            Answer::No => {}
            Answer::Later => self.wait(number),
            Answer::Match => self.matched(number),
        }
    }

    fn wait(&mut self, number: u32) {
        if self.waiting.rules.is_full() {
            self.waiting.rules.remove(0);
            *self.lost += 1;
        }
        self.waiting.any = true;
        let _ = self.waiting.rules.try_push(number);
    }

    fn matched(&mut self, number: u32) {
        let Some(rule) = self.rules.rule(number) else { return };
        let signature = &rule.signature;
        let fires = signature
            .rate
            .is_none_or(|rate| self.rates.fires(signature.id, &rate, self.ends, self.second));
        if !fires && signature.rate.is_some_and(|rate| rate.kind == RateKind::After) {
            return;
        }
        self.waiting.any = true;
        let _ = self.waiting.spoken.try_push(number);
        let generation = self.generation;
        let rule_number = RuleNumber { generation, number };
        if matches!(signature.action, Action::Drop | Action::Reject) {
            self.story.ended_by = Some(rule_number);
        }
        match signature.action {
            Action::Pass => *self.fate = Fate::Passed(Skipped::Rule),
            Action::Drop => *self.fate = Fate::Dropped,
            Action::Reject => *self.fate = Fate::Rejected,
            Action::Alert => {}
        }
        if fires && !signature.silent && signature.action != Action::Pass {
            self.story.alerted = true;
            (self.report)(Match {
                flow: self.story.number,
                service: self.ends.service,
                rule: rule_number,
                action: signature.action,
            });
        }
    }
}

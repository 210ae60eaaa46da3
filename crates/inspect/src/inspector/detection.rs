//! Rules that were found are asked, and what they say is done.

use super::buffers::WithPayload;
use super::fired::{FiredRules, RuleSet};
use super::pending::{PendingLists, PendingRules};
use crate::bindings::vectorscan::{self, MatchAction, ScanLog, Scratch};
use crate::evaluate::{
    BufferSource, BufferView, Evaluator, PacketFields, PartialMatch, RETAINED_BYTES, RuleResult, apply_dataset,
};
use crate::host_table::{HostTable, ThresholdResult};
use crate::prefilter::PatternGroup;
use crate::reason::Skipped;
use crate::rule::{HostCondition, Rule};
use crate::ruleset::{PortSelection, Ruleset};
use crate::scope::{Endpoints, HeaderPrecheck};
use crate::signature::{Action, Buffer, DatasetCommand, RateKind, Service, Toward, Track};

/// Units of work for a rule that a search has found at a place, or that is looked up for a piece of a message.
const LOOKUP_COST: u32 = 2;
/// Bytes of a stream or a file from a place that is remembered: what is nearer is kept, and what is further away is given up, so
/// that a rule that asks for what follows anywhere does not wait for ever.
const PARTIAL_DISTANCE: std::ops::Range<i64> = RETAINED_BYTES..RETAINED_BYTES + 65_536;
/// Units of work for a rule that is asked because of what a sender has sent: one that was found, or waits.
const CANDIDATE_COST: u32 = 32;

/// What a worker asks with.
pub struct DetectionContext {
    pub(super) evaluator: Evaluator,
    /// Serves the databases of the rules.
    pub(super) scratch: Scratch,
    /// Rules that one search found.
    candidates: RuleSet,
    /// Rules that matched with the packet that is looked at.
    pub(super) fired: FiredRules,
    /// Rules for which only notes were missing, with this packet.
    pub(super) blocked: RuleSet,
    /// Notes have changed since those were asked.
    vars_changed: bool,
    /// A rule had no place to wait in, with this packet.
    pub(super) no_place: bool,
    /// Rules that were found in part and had to be forgotten, with this packet.
    pub(super) forgotten: u32,
}

impl DetectionContext {
    /// Of a worker, for these rules.
    pub fn new(scratch: Scratch, rules: &Ruleset) -> Self {
        Self::with(scratch, rules.rules().len())
    }

    /// Of a worker, for rules and those that give way to them.
    ///
    /// # Errors
    /// There is no memory.
    pub fn for_rulesets(rules: [&Ruleset; 2]) -> Result<Self, vectorscan::Error> {
        let mut scratch = Scratch::new();
        for rules in rules {
            rules.prefilter().serve(&mut scratch)?;
        }
        let most = rules.iter().map(|rules| rules.rules().len()).max();
        Ok(Self::with(scratch, most.unwrap_or(0)))
    }

    fn with(scratch: Scratch, rules: usize) -> Self {
        Self {
            evaluator: Evaluator::default(),
            scratch,
            candidates: RuleSet::with_capacity(rules),
            fired: FiredRules::with_capacity(rules),
            blocked: RuleSet::with_capacity(rules),
            vars_changed: false,
            no_place: false,
            forgotten: 0,
        }
    }

    /// What was searched since [`super::Inspector::record`].
    pub fn take_scan_log(&mut self) -> Option<Box<ScanLog>> {
        self.scratch.take_log()
    }

    /// Rules that took too many steps to ask.
    pub fn exhausted(&self) -> u64 {
        self.evaluator.exhausted
    }
}

/// What is to become of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowAction {
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
pub struct RuleMatch {
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
pub type MatchSink<'r> = &'r mut dyn FnMut(RuleMatch);

/// Asking about one packet of one flow.
pub(super) struct PacketDetection<'a> {
    pub rules: &'a Ruleset,
    pub hosts: &'a HostTable,
    pub second: u32,
    pub ends: &'a Endpoints,
    pub fields: &'a PacketFields,
    pub context: &'a mut DetectionContext,
    pub flow_vars: &'a mut [u64],
    pub pending: &'a mut PendingRules,
    pub lists: &'a mut PendingLists,
    pub action: &'a mut FlowAction,
    /// What the sender sent before its message, with that: for rules to which its begin makes no difference.
    pub stream: Option<BufferView<'a>>,
    /// The application may still become known.
    pub unknown: bool,
    /// What is asked about is a packet by itself, of which a rule says something each time.
    pub by_packet: bool,
}

impl PacketDetection<'_> {
    /// Search a block of data, of which the first `old` bytes were searched before, and ask the rules that are found.
    pub fn block(&mut self, group: &PatternGroup, data: &[u8], buffers: &impl BufferSource) {
        let Some(database) = group.block() else { return };
        let (scratch, found) = Self::add_candidate(self.context, group);
        database.scan(data, scratch, found);
        self.evaluate_candidates(buffers);
    }

    /// A search found a pattern.
    pub fn add_candidate<'f>(
        found: &'f mut DetectionContext,
        group: &'f PatternGroup,
    ) -> (&'f mut Scratch, impl FnMut(u32, u64) -> MatchAction + use<'f>) {
        let DetectionContext {
            scratch,
            candidates: found,
            evaluator,
            ..
        } = found;
        let work = &evaluator.work;
        (scratch, move |id, _| {
            let rules = group.rules(id);
            // A search that has begun goes on, for streams keep its state; what it finds is no longer of use.
            if work.charge(LOOKUP_COST * (1 + rules.len() as u32)) {
                rules.iter().for_each(|&rule| found.add(rule));
            }
            MatchAction::Continue
        })
    }

    /// Ask what was found.
    pub fn evaluate_candidates(&mut self, buffers: &impl BufferSource) {
        if self.context.candidates.rules.is_empty() {
            return;
        }
        let found = self.context.candidates.take();
        self.context.evaluator.is_usual = false;
        for &rule in &found {
            if !self.may_continue() {
                break;
            }
            if self.rules.may_match(rule, self.ends, self.fields)
                && !self.pending.is_pending(rule, self.lists)
                && self.context.evaluator.work.charge(CANDIDATE_COST)
            {
                self.evaluate(rule, buffers);
            }
        }
        self.context.candidates.put_back(found);
    }

    /// Ask the rules that wait for more: those that look in the buffer that has grown, or all.
    pub fn evaluate_pending(&mut self, grown: Option<Buffer>, buffers: &impl BufferSource) {
        if self.pending.is_empty(self.lists) {
            return;
        }
        self.context.evaluator.is_usual = false;
        for rule in self.pending.take_inline() {
            self.reevaluate(rule, grown, buffers);
        }
        let mut from = 0;
        while self.may_continue()
            && let Some(rule) = self.pending.take_listed(from, self.lists)
        {
            self.reevaluate(rule, grown, buffers);
            from = rule + 1;
        }
    }

    /// Ask a rule that waited. It waits on where that can make no difference, or there is no work left for it.
    fn reevaluate(&mut self, number: u32, grown: Option<Buffer>, buffers: &impl BufferSource) {
        let work = &self.context.evaluator.work;
        let looks = |buffer| self.rules.rule(number).is_some_and(|rule| rule.looks_in(buffer));
        if *self.action == FlowAction::Open && grown.is_none_or(looks) && work.charge(CANDIDATE_COST) {
            return self.evaluate(number, buffers);
        }
        work.charge(LOOKUP_COST);
        self.add_pending(number);
    }

    /// Nothing is decided about the flow, and the packet may cause more work.
    fn may_continue(&self) -> bool {
        *self.action == FlowAction::Open && !self.context.evaluator.work.is_exhausted()
    }

    /// A piece of a message is about to be looked at, for which so many rules are asked. False where the packet may cause no
    /// more work.
    pub fn begin_piece(&self, units: u32, rules: usize) -> bool {
        let rules = LOOKUP_COST.saturating_mul(rules as u32);
        *self.action == FlowAction::Open && self.context.evaluator.work.charge(units.saturating_add(rules))
    }

    /// Ask again the rules for which only notes were missing, as long as others take some: the order of rules and buffers
    /// within a packet makes no difference.
    pub fn evaluate_blocked(&mut self, buffers: &impl BufferSource) {
        self.context.evaluator.is_usual = false;
        while std::mem::take(&mut self.context.vars_changed) && !self.context.blocked.rules.is_empty() {
            let blocked = self.context.blocked.take();
            for &rule in &blocked {
                if *self.action == FlowAction::Open && self.context.evaluator.work.charge(CANDIDATE_COST) {
                    self.evaluate(rule, buffers);
                }
            }
            self.context.blocked.put_back(blocked);
        }
    }

    /// Ask rules that need nothing found.
    pub fn evaluate_all(&mut self, rules: &[u32], buffers: &impl BufferSource) {
        self.context.evaluator.is_usual = true;
        for &rule in rules {
            if !self.may_continue() {
                return;
            }
            if self.rules.may_match(rule, self.ends, self.fields)
                && !self.pending.is_pending(rule, self.lists)
                && self.context.evaluator.work.charge(CANDIDATE_COST)
            {
                self.evaluate(rule, buffers);
            }
        }
    }

    /// The same of those that the flow's ports leave.
    pub fn evaluate_of_ports(
        &mut self,
        rules: &[(HeaderPrecheck, u32)],
        left: &PortSelection,
        buffers: &impl BufferSource,
    ) {
        match left {
            PortSelection::All => self.evaluate_prechecked(rules, buffers),
            PortSelection::Some(places) => {
                let left = places.iter().filter_map(|&place| rules.get(usize::from(place)));
                self.evaluate_prechecked(left, buffers);
            }
        }
    }

    /// The same, where what most are ruled out by stands beside each.
    pub fn evaluate_prechecked<'r>(
        &mut self,
        rules: impl IntoIterator<Item = &'r (HeaderPrecheck, u32)>,
        buffers: &impl BufferSource,
    ) {
        self.context.evaluator.is_usual = true;
        for (outline, rule) in rules {
            if !outline.may_match(self.ends, self.fields) {
                continue;
            }
            if *self.action != FlowAction::Open {
                return;
            }
            if !self.pending.is_pending(*rule, self.lists) {
                self.evaluate(*rule, buffers);
            }
        }
    }

    /// Ask rules about something odd that was met in a message.
    pub fn evaluate_anomaly(&mut self, rules: &[(u32, Option<Toward>)], buffers: &impl BufferSource) {
        self.context.evaluator.is_usual = true;
        for &(rule, toward) in rules {
            let is_about = toward.is_none_or(|toward| toward == self.ends.toward);
            if *self.action == FlowAction::Open && is_about && self.context.evaluator.work.charge(CANDIDATE_COST) {
                self.evaluate(rule, buffers);
            }
        }
    }

    fn evaluate(&mut self, number: u32, buffers: &impl BufferSource) {
        let Some(rule) = self.rules.rule(number) else { return };
        let signature = &rule.signature;
        let again = self.may_match_again(rule);
        if !again && self.pending.has_matched(number, self.lists) || !signature.flow.matches(self.ends) {
            return;
        }
        if !signature.header.matches(self.ends) {
            if self.unknown && signature.header.is_application_only() {
                self.add_pending(number);
            }
            return;
        }
        if !rule.gates.iter().all(|gate| self.host_condition_holds(gate)) {
            return self.context.blocked.add(number);
        }
        let mut answer = self
            .context
            .evaluator
            .evaluate(rule, self.fields, buffers, self.flow_vars);
        if rule.resumes && matches!(answer, RuleResult::NoMatch | RuleResult::Incomplete) {
            answer = self.resume_partial(number, rule, answer, buffers);
        }
        // What is cut by something that the other side says is one for its receiver.
        if let (Some(payload), RuleResult::NoMatch | RuleResult::Incomplete, true) = (self.stream, answer, rule.floats)
        {
            let whole = WithPayload { buffers, payload };
            match self
                .context
                .evaluator
                .evaluate(rule, self.fields, &whole, self.flow_vars)
            {
                RuleResult::NoMatch => {}
                of_stream => answer = of_stream,
            }
        }
        match answer {
            RuleResult::NoMatch => {}
            RuleResult::Blocked => self.context.blocked.add(number),
            RuleResult::Incomplete => self.add_pending(number),
            RuleResult::Match => self.record_match(number),
        }
    }

    /// What a rule says that may have been found in part, where that is no longer kept.
    fn resume_partial(
        &mut self,
        number: u32,
        rule: &Rule,
        mut answer: RuleResult,
        buffers: &impl BufferSource,
    ) -> RuleResult {
        let distance = |partial: &PartialMatch| {
            let view = buffers.view(partial.buffer)?;
            Some(view.base as i64 + view.bytes.len() as i64 - partial.end)
        };
        let partial = self.context.evaluator.partial.take();
        let known = self.pending.partial(number, self.lists);
        if known.is_some_and(|known| known.message != buffers.message(known.buffer)) {
            // The other message may go on: streams of HTTP/2 have theirs at the same time.
            return RuleResult::Incomplete;
        }
        if let Some(known) = known
            && self.context.evaluator.work.charge(CANDIDATE_COST)
        {
            let evaluator = &mut self.context.evaluator;
            let is_over = distance(&known).is_none_or(|distance| distance >= PARTIAL_DISTANCE.end);
            match evaluator.resume(Some(known), rule, self.fields, buffers, self.flow_vars) {
                RuleResult::Incomplete if is_over => self.pending.forget_partial(number, self.lists),
                RuleResult::NoMatch => self.pending.forget_partial(number, self.lists),
                said => answer = said,
            }
        }
        let is_far =
            |partial: &PartialMatch| distance(partial).is_some_and(|distance| PARTIAL_DISTANCE.contains(&distance));
        if answer == RuleResult::Incomplete
            && let Some(partial) = partial.filter(is_far)
        {
            let fits = self.pending.add_partial(number, partial, self.lists);
            self.context.forgotten += u32::from(!fits);
        }
        answer
    }

    /// Whether a rule is about what happens, each time: a packet by itself, or something odd.
    fn may_match_again(&self, rule: &Rule) -> bool {
        rule.is_of_event || self.by_packet && rule.has_packet_conditions()
    }

    /// Whether hosts are as a rule asks.
    fn host_condition_holds(&self, gate: &HostCondition) -> bool {
        match gate {
            HostCondition::Bits(bits, name) => self.hosts.xbits_match(bits, *name, self.ends, self.second),
            // A list is changed once everything else holds.
            HostCondition::Address(_, DatasetCommand::Set | DatasetCommand::Unset, _) => true,
            HostCondition::Address(track, command, set) => self.with_address(*track, |address| {
                set.accepts(address) && apply_dataset(set, *command, address)
            }),
        }
    }

    /// Change what a rule changes of hosts. False where the rule does not match for it: an address was in its list already.
    fn update_hosts(&self, gate: &HostCondition) -> bool {
        match gate {
            HostCondition::Bits(bits, name) => {
                self.hosts.update_xbits(bits, *name, self.ends, self.second);
                true
            }
            HostCondition::Address(track, command @ (DatasetCommand::Set | DatasetCommand::Unset), set) => self
                .with_address(*track, |address| {
                    set.accepts(address) && apply_dataset(set, *command, address)
                }),
            HostCondition::Address(..) => true,
        }
    }

    fn with_address<T>(&self, track: Track, look: impl FnOnce(&[u8]) -> T) -> T {
        let address = match track {
            Track::Destination => self.ends.destination,
            _ => self.ends.source,
        };
        match address {
            std::net::IpAddr::V4(address) => look(&address.octets()),
            std::net::IpAddr::V6(address) => look(&address.octets()),
        }
    }

    fn add_pending(&mut self, number: u32) {
        self.context.no_place |= !self.pending.add_pending(number, self.lists);
    }

    fn record_match(&mut self, number: u32) {
        let Some(rule) = self.rules.rule(number) else { return };
        let signature = &rule.signature;
        if !rule.gates.iter().all(|gate| self.update_hosts(gate)) {
            return;
        }
        self.context.vars_changed |= rule.sets_flow_vars();
        let counted = signature.rate.map_or(ThresholdResult::Reported, |rate| {
            self.hosts.count_match(signature.id, &rate, self.ends, self.second)
        });
        // It may match again in this message, which counts.
        let is_after = signature.rate.is_some_and(|rate| rate.kind == RateKind::After);
        if !(is_after && counted == ThresholdResult::Below || self.may_match_again(rule)) {
            self.context.no_place |= !self.pending.add_matched(number, self.lists);
        }
        match (counted, signature.action) {
            (ThresholdResult::Below, _) => {}
            // Nothing comes before it: what else matched with this packet is void.
            (_, Action::Pass) => *self.action = FlowAction::Passed(Skipped::Rule),
            (counted, _) => {
                let is_reported = counted == ThresholdResult::Reported && !signature.noalert;
                self.context.fired.add(number, is_reported);
            }
        }
    }
}

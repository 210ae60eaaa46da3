//! Evaluates candidate rules and records their matches.

use super::buffers::WithPayload;
use super::matched_rules::{FiredRules, RuleSet};
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

/// Work units charged for each candidate rule: one that the prefilter reports at a position, or one that is re-evaluated
/// because a message has new data.
const LOOKUP_COST: u32 = 2;
/// Range of distances at which a partial match is recorded, measured from its end to the end of the data. At smaller
/// distances the bytes are still retained. At larger distances the partial match is discarded, so that a rule with an
/// unbounded distance does not stay pending for ever.
const PARTIAL_DISTANCE: std::ops::Range<i64> = RETAINED_BYTES..RETAINED_BYTES + 65_536;
/// Work units charged for evaluating a rule because of received data: a candidate or a pending rule.
const CANDIDATE_COST: u32 = 32;

/// Scratch state that a worker needs for detection.
pub struct DetectionContext {
    pub(super) evaluator: Evaluator,
    /// Vectorscan scratch, large enough for the databases of the rules.
    pub(super) scratch: Scratch,
    /// Candidate rules that one search found.
    candidates: RuleSet,
    /// Rules that matched with the current packet.
    pub(super) matched_rules: FiredRules,
    /// Rules that would match the current packet if other rules had set a flow variable.
    pub(super) blocked: RuleSet,
    /// Whether flow variables have changed since the blocked rules were evaluated.
    vars_changed: bool,
    /// Set if no space was left to record a pending or matched rule of the current packet.
    pub(super) list_full: bool,
    /// Number of partial matches that were discarded during the current packet.
    pub(super) discarded_partials: u32,
}

impl DetectionContext {
    /// Creates the detection context of a worker for these rules.
    pub fn new(scratch: Scratch, rules: &Ruleset) -> Self {
        Self::with(scratch, rules.rules().len())
    }

    /// Creates the detection context of a worker for a ruleset and its predecessor.
    ///
    /// # Errors Returns an error if no memory is left.
    pub fn for_rulesets(rules: [&Ruleset; 2]) -> Result<Self, vectorscan::Error> {
        let mut scratch = Scratch::new();
        for rules in rules {
            rules.prefilter().serve(&mut scratch)?;
        }
        let max = rules.iter().map(|rules| rules.rules().len()).max();
        Ok(Self::with(scratch, max.unwrap_or(0)))
    }

    fn with(scratch: Scratch, rules: usize) -> Self {
        Self {
            evaluator: Evaluator::default(),
            scratch,
            candidates: RuleSet::with_capacity(rules),
            matched_rules: FiredRules::with_capacity(rules),
            blocked: RuleSet::with_capacity(rules),
            vars_changed: false,
            list_full: false,
            discarded_partials: 0,
        }
    }

    /// Returns the scans recorded since [`Inspector::record_scans`](super::Inspector::record_scans).
    pub fn take_scan_log(&mut self) -> Option<Box<ScanLog>> {
        self.scratch.take_log()
    }

    /// Number of rule evaluations that were given up because they took too many steps.
    pub fn exhausted(&self) -> u64 {
        self.evaluator.exhausted
    }
}

/// Action for the remaining packets of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowAction {
    /// Forward and inspect the remaining packets.
    #[default]
    Open,
    /// Forward the remaining packets without inspection, because of a pass rule.
    Passed(Skipped),
    /// Drop the remaining packets, because of a rule or an exception.
    Dropped,
    /// Drop the remaining packets, and notify both ends.
    Rejected,
}

/// Identifies a rule in the ruleset of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleNumber {
    /// Generation of the ruleset.
    pub generation: u32,
    /// Index of the rule in the ruleset.
    pub number: u32,
}

/// A match of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleMatch {
    /// Number of the flow.
    pub flow: u64,
    /// Application of the flow, if identified.
    pub service: Option<Service>,
    /// The rule that matched.
    pub rule: RuleNumber,
    /// Action of the rule.
    pub action: Action,
}

/// Sink of rule matches.
pub type MatchSink<'r> = &'r mut dyn FnMut(RuleMatch);

/// Detection in one packet of one flow.
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
    /// The current message and the preceding data of its sender, for rules that do not depend on message boundaries.
    pub stream: Option<BufferView<'a>>,
    /// Whether the application of the flow may still be identified.
    pub unknown: bool,
    /// Whether packets are evaluated individually, so that a rule can match in each packet.
    pub by_packet: bool,
}

impl PacketDetection<'_> {
    /// Searches a block of data and evaluates the candidate rules. The first `old` bytes of the block were searched
    /// before.
    pub fn block(&mut self, group: &PatternGroup, data: &[u8], buffers: &impl BufferSource) {
        let Some(database) = group.block() else { return };
        let (scratch, found) = Self::add_candidate(self.context, group);
        database.scan(data, scratch, found);
        self.evaluate_candidates(buffers);
    }

    /// Adds the rules of a found pattern to the candidates.
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
            // The search continues even without budget, because the stream state must be updated. Further matches are
            // ignored.
            if work.charge(LOOKUP_COST * (1 + rules.len() as u32)) {
                rules.iter().for_each(|&rule| found.add(rule));
            }
            MatchAction::Continue
        })
    }

    /// Evaluates the candidate rules.
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

    /// Evaluates all pending rules, or only the pending rules that inspect the grown buffer.
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

    /// Evaluates a pending rule. The rule stays pending if the new data can't change its result, or if no work budget
    /// is left.
    fn reevaluate(&mut self, number: u32, grown: Option<Buffer>, buffers: &impl BufferSource) {
        let work = &self.context.evaluator.work;
        let looks = |buffer| self.rules.rule(number).is_some_and(|rule| rule.inspects(buffer));
        if *self.action == FlowAction::Open && grown.is_none_or(looks) && work.charge(CANDIDATE_COST) {
            return self.evaluate(number, buffers);
        }
        work.charge(LOOKUP_COST);
        self.add_pending(number);
    }

    /// Whether the flow has no final action yet and work budget is left.
    fn may_continue(&self) -> bool {
        *self.action == FlowAction::Open && !self.context.evaluator.work.is_exhausted()
    }

    /// Starts the evaluation of `rules` rules for new data of a message, and charges the work. Returns false if no work
    /// budget is left.
    pub fn start_evaluation(&self, units: u32, rules: usize) -> bool {
        let rules = LOOKUP_COST.saturating_mul(rules as u32);
        *self.action == FlowAction::Open && self.context.evaluator.work.charge(units.saturating_add(rules))
    }

    /// Evaluates blocked rules again as long as other rules set flow variables, so that the result does not depend on the
    /// order of rules and buffers within a packet.
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

    /// Evaluates rules that need no pattern match.
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

    /// Evaluates the rules without pattern match that the ports of the flow select.
    pub fn evaluate_of_ports(
        &mut self,
        rules: &[(HeaderPrecheck, u32)],
        remaining: &PortSelection,
        buffers: &impl BufferSource,
    ) {
        match remaining {
            PortSelection::All => self.evaluate_prechecked(rules, buffers),
            PortSelection::Some(places) => {
                let remaining = places.iter().filter_map(|&place| rules.get(usize::from(place)));
                self.evaluate_prechecked(remaining, buffers);
            }
        }
    }

    /// Evaluates rules that need no pattern match, each stored with its precheck.
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

    /// Evaluates the rules for an anomaly in a message.
    pub fn evaluate_anomaly(&mut self, rules: &[(u32, Option<Toward>)], buffers: &impl BufferSource) {
        self.context.evaluator.is_usual = true;
        for &(rule, toward) in rules {
            let is_concerned = toward.is_none_or(|toward| toward == self.ends.toward);
            if *self.action == FlowAction::Open && is_concerned && self.context.evaluator.work.charge(CANDIDATE_COST) {
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
        // If data of the other direction splits a host's data into two messages, the receiver still reads contiguous
        // data.
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

    /// Resumes a rule from its recorded partial match, if the matched bytes are no longer retained.
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
            // The message of the partial match may continue, because several HTTP/2 streams can have open messages
            // simultaneously.
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
            self.context.discarded_partials += u32::from(!fits);
        }
        answer
    }

    /// Whether a rule can match repeatedly in one message: a packet rule, or a rule for an event.
    fn may_match_again(&self, rule: &Rule) -> bool {
        rule.is_of_event || self.by_packet && rule.has_packet_conditions()
    }

    /// Whether a rule's conditions on hosts hold.
    fn host_condition_holds(&self, gate: &HostCondition) -> bool {
        match gate {
            HostCondition::Bits(bits, name) => self.hosts.xbits_match(bits, *name, self.ends, self.second),
            // A dataset is changed only after all other conditions hold.
            HostCondition::Address(_, DatasetCommand::Set | DatasetCommand::Unset, _) => true,
            HostCondition::Address(track, command, set) => self.with_address(*track, |address| {
                set.accepts(address) && apply_dataset(set, *command, address)
            }),
        }
    }

    /// Applies a rule's changes to xbits and address lists. Returns false if a change had no effect, for example
    /// because the address was in the list already: the rule then does not match.
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
        self.context.list_full |= !self.pending.add_pending(number, self.lists);
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
        // A rule below its rate may match again in this message, and each match counts.
        let is_after = signature.rate.is_some_and(|rate| rate.kind == RateKind::After);
        if !(is_after && counted == ThresholdResult::Below || self.may_match_again(rule)) {
            self.context.list_full |= !self.pending.add_matched(number, self.lists);
        }
        match (counted, signature.action) {
            (ThresholdResult::Below, _) => {}
            // A pass rule has the highest precedence, so all other matches in this packet are void.
            (_, Action::Pass) => *self.action = FlowAction::Passed(Skipped::Rule),
            (counted, _) => {
                let is_reported = counted == ThresholdResult::Reported && !signature.noalert;
                self.context.matched_rules.add(number, is_reported);
            }
        }
    }
}

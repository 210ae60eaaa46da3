//! Rules that were found are asked, and what they say is done.

use super::fired::{Fired, Set};
use super::known::WithPayload;
use super::waiting::{Lists, Waiting};
use crate::bindings::vectorscan::{self, Calls, Next, Scratch};
use crate::evaluate::{Answer, Buffers, Evaluator, Facts, KEPT, Partial, View, is_listed};
use crate::prefilter::Group;
use crate::rates::{Counted, Rates};
use crate::reason::Skipped;
use crate::rule::{Gate, Rule};
use crate::ruleset::{OfPorts, Ruleset};
use crate::scope::{Ends, Outline};
use crate::signature::{Action, Buffer, DatasetCommand, RateKind, Service, Toward, Track};

/// Units of work for a rule that a search has found at a place, or that is looked up for a piece of a message.
const FOUND: u32 = 2;
/// Bytes of a stream or a file from a place that is remembered: what is nearer is kept, and what is further away is given up, so
/// that a rule that asks for what follows anywhere does not wait for ever.
const FAR: std::ops::Range<i64> = KEPT..KEPT + 65_536;
/// Units of work for a rule that is asked because of what a sender has sent: one that was found, or waits.
const CANDIDATE: u32 = 32;

/// What a worker asks with.
pub struct Tools {
    pub(super) evaluator: Evaluator,
    /// Serves the databases of the rules.
    pub(super) scratch: Scratch,
    /// Rules that one search found.
    found: Set,
    /// Rules that matched with the packet that is looked at.
    pub(super) fired: Fired,
    /// Rules for which only notes were missing, with this packet.
    pub(super) blocked: Set,
    /// Notes have changed since those were asked.
    noted: bool,
    /// A rule had no place to wait in, with this packet.
    pub(super) no_place: bool,
    /// Rules that were found in part and had to be forgotten, with this packet.
    pub(super) forgotten: u32,
}

impl Tools {
    /// Of a worker, for these rules.
    pub fn new(scratch: Scratch, rules: &Ruleset) -> Self {
        Self::with(scratch, rules.rules().len())
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
        Ok(Self::with(scratch, most.unwrap_or(0)))
    }

    fn with(scratch: Scratch, rules: usize) -> Self {
        Self {
            evaluator: Evaluator::default(),
            scratch,
            found: Set::of(rules),
            fired: Fired::of(rules),
            blocked: Set::of(rules),
            noted: false,
            no_place: false,
            forgotten: 0,
        }
    }

    /// What was searched since [`super::Inspector::record`].
    pub fn take_calls(&mut self) -> Option<Box<Calls>> {
        self.scratch.take_calls()
    }

    /// Rules that took too many steps to ask.
    pub fn exhausted(&self) -> u64 {
        self.evaluator.exhausted
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
    pub rules: &'a Ruleset,
    pub rates: &'a Rates,
    pub second: u32,
    pub ends: &'a Ends,
    pub facts: &'a Facts,
    pub tools: &'a mut Tools,
    pub notes: &'a mut [u64],
    pub waiting: &'a mut Waiting,
    pub lists: &'a mut Lists,
    pub fate: &'a mut Fate,
    /// What the sender sent before its message, with that: for rules to which its begin makes no difference.
    pub stream: Option<View<'a>>,
    /// The application may still become known.
    pub unknown: bool,
    /// What is asked about is a packet by itself, of which a rule says something each time.
    pub by_packet: bool,
}

impl Asking<'_> {
    /// Search a block of data, of which the first `old` bytes were searched before, and ask the rules that are found.
    pub fn block(&mut self, group: &Group, data: &[u8], buffers: &impl Buffers) {
        let Some(database) = group.block() else { return };
        let (scratch, found) = Self::found(self.tools, group);
        database.scan(data, scratch, found);
        self.ask_found(buffers);
    }

    /// A search found a pattern.
    pub fn found<'f>(
        found: &'f mut Tools,
        group: &'f Group,
    ) -> (&'f mut Scratch, impl FnMut(u32, u64) -> Next + use<'f>) {
        let Tools {
            scratch,
            found,
            evaluator,
            ..
        } = found;
        let work = &evaluator.work;
        (scratch, move |id, _| {
            let rules = group.rules(id);
            // A search that has begun goes on, for streams keep its state; what it finds is no longer of use.
            if work.charge(FOUND * (1 + rules.len() as u32)) {
                rules.iter().for_each(|&rule| found.add(rule));
            }
            Next::Continue
        })
    }

    /// Ask what was found.
    pub fn ask_found(&mut self, buffers: &impl Buffers) {
        if self.tools.found.rules.is_empty() {
            return;
        }
        let found = self.tools.found.take();
        self.tools.evaluator.is_usual = false;
        for &rule in &found {
            if !self.goes_on() {
                break;
            }
            if self.rules.may_be_about(rule, self.ends, self.facts)
                && !self.waiting.waits(rule, self.lists)
                && self.tools.evaluator.work.charge(CANDIDATE)
            {
                self.ask(rule, buffers);
            }
        }
        self.tools.found.put_back(found);
    }

    /// Ask the rules that wait for more: those that look in the buffer that has grown, or all.
    pub fn ask_waiting(&mut self, grown: Option<Buffer>, buffers: &impl Buffers) {
        if self.waiting.is_over(self.lists) {
            return;
        }
        self.tools.evaluator.is_usual = false;
        for rule in self.waiting.take_inline() {
            self.ask_again(rule, grown, buffers);
        }
        let mut from = 0;
        while self.goes_on()
            && let Some(rule) = self.waiting.take_listed(from, self.lists)
        {
            self.ask_again(rule, grown, buffers);
            from = rule + 1;
        }
    }

    /// Ask a rule that waited. It waits on where that can make no difference, or there is no work left for it.
    fn ask_again(&mut self, number: u32, grown: Option<Buffer>, buffers: &impl Buffers) {
        let work = &self.tools.evaluator.work;
        let looks = |buffer| self.rules.rule(number).is_some_and(|rule| rule.looks_in(buffer));
        if *self.fate == Fate::Open && grown.is_none_or(looks) && work.charge(CANDIDATE) {
            return self.ask(number, buffers);
        }
        work.charge(FOUND);
        self.wait(number);
    }

    /// Nothing is decided about the flow, and the packet may cause more work.
    fn goes_on(&self) -> bool {
        *self.fate == Fate::Open && !self.tools.evaluator.work.is_spent()
    }

    /// A piece of a message is about to be looked at, for which so many rules are asked. False where the packet may cause no
    /// more work.
    pub fn begin_piece(&self, units: u32, rules: usize) -> bool {
        let rules = FOUND.saturating_mul(rules as u32);
        *self.fate == Fate::Open && self.tools.evaluator.work.charge(units.saturating_add(rules))
    }

    /// Ask again the rules for which only notes were missing, as long as others take some: the order of rules and buffers
    /// within a packet makes no difference.
    pub fn ask_blocked(&mut self, buffers: &impl Buffers) {
        self.tools.evaluator.is_usual = false;
        while std::mem::take(&mut self.tools.noted) && !self.tools.blocked.rules.is_empty() {
            let blocked = self.tools.blocked.take();
            for &rule in &blocked {
                if *self.fate == Fate::Open && self.tools.evaluator.work.charge(CANDIDATE) {
                    self.ask(rule, buffers);
                }
            }
            self.tools.blocked.put_back(blocked);
        }
    }

    /// Ask rules that need nothing found.
    pub fn ask_all(&mut self, rules: &[u32], buffers: &impl Buffers) {
        self.tools.evaluator.is_usual = true;
        for &rule in rules {
            if !self.goes_on() {
                return;
            }
            if self.rules.may_be_about(rule, self.ends, self.facts)
                && !self.waiting.waits(rule, self.lists)
                && self.tools.evaluator.work.charge(CANDIDATE)
            {
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
        self.tools.evaluator.is_usual = true;
        for (outline, rule) in rules {
            if !outline.may_hold(self.ends, self.facts) {
                continue;
            }
            if *self.fate != Fate::Open {
                return;
            }
            if !self.waiting.waits(*rule, self.lists) {
                self.ask(*rule, buffers);
            }
        }
    }

    /// Ask rules about something odd that was met in a message.
    pub fn ask_of_anomaly(&mut self, rules: &[(u32, Option<Toward>)], buffers: &impl Buffers) {
        self.tools.evaluator.is_usual = true;
        for &(rule, toward) in rules {
            let is_about = toward.is_none_or(|toward| toward == self.ends.toward);
            if *self.fate == Fate::Open && is_about && self.tools.evaluator.work.charge(CANDIDATE) {
                self.ask(rule, buffers);
            }
        }
    }

    fn ask(&mut self, number: u32, buffers: &impl Buffers) {
        let Some(rule) = self.rules.rule(number) else { return };
        let signature = &rule.signature;
        let again = self.may_match_again(rule);
        if !again && self.waiting.has_spoken(number, self.lists) || !signature.flow.is_about(self.ends) {
            return;
        }
        if !signature.header.is_about(self.ends) {
            if self.unknown && signature.header.is_about_application() {
                self.wait(number);
            }
            return;
        }
        if !rule.gates.iter().all(|gate| self.is_open(gate)) {
            return self.tools.blocked.add(number);
        }
        let mut answer = self.tools.evaluator.ask(rule, self.facts, buffers, self.notes);
        if rule.resumes && matches!(answer, Answer::No | Answer::Later) {
            answer = self.go_on(number, rule, answer, buffers);
        }
        // What is cut by something that the other side says is one for its receiver.
        if let (Some(payload), Answer::No | Answer::Later, true) = (self.stream, answer, rule.floats) {
            let whole = WithPayload { buffers, payload };
            match self.tools.evaluator.ask(rule, self.facts, &whole, self.notes) {
                Answer::No => {}
                of_stream => answer = of_stream,
            }
        }
        match answer {
            Answer::No => {}
            Answer::Blocked => self.tools.blocked.add(number),
            Answer::Later => self.wait(number),
            Answer::Match => self.matched(number),
        }
    }

    /// What a rule says that may have been found in part, where that is no longer kept.
    fn go_on(&mut self, number: u32, rule: &Rule, mut answer: Answer, buffers: &impl Buffers) -> Answer {
        let distance = |partial: &Partial| {
            let view = buffers.view(partial.buffer)?;
            Some(view.base as i64 + view.bytes.len() as i64 - partial.end)
        };
        let partial = self.tools.evaluator.partial.take();
        let known = self.waiting.partial(number, self.lists);
        if known.is_some_and(|known| known.message != buffers.message(known.buffer)) {
            // The other message may go on: streams of HTTP/2 have theirs at the same time.
            return Answer::Later;
        }
        if let Some(known) = known
            && self.tools.evaluator.work.charge(CANDIDATE)
        {
            let evaluator = &mut self.tools.evaluator;
            let is_over = distance(&known).is_none_or(|distance| distance >= FAR.end);
            match evaluator.ask_from(Some(known), rule, self.facts, buffers, self.notes) {
                Answer::Later if is_over => self.waiting.forget_partial(number, self.lists),
                Answer::No => self.waiting.forget_partial(number, self.lists),
                said => answer = said,
            }
        }
        let is_far = |partial: &Partial| distance(partial).is_some_and(|distance| FAR.contains(&distance));
        if answer == Answer::Later
            && let Some(partial) = partial.filter(is_far)
        {
            let fits = self.waiting.remember(number, partial, self.lists);
            self.tools.forgotten += u32::from(!fits);
        }
        answer
    }

    /// Whether a rule is about what happens, each time: a packet by itself, or something odd.
    fn may_match_again(&self, rule: &Rule) -> bool {
        rule.is_of_event || self.by_packet && rule.says_something()
    }

    /// Whether hosts are as a rule asks.
    fn is_open(&self, gate: &Gate) -> bool {
        match gate {
            Gate::Bits(bits, name) => self.rates.noted(bits, *name, self.ends, self.second),
            // A list is changed once everything else holds.
            Gate::Address(_, DatasetCommand::Set | DatasetCommand::Unset, _) => true,
            Gate::Address(track, command, set) => self.with_address(*track, |address| {
                set.is_for(address) && is_listed(set, *command, address)
            }),
        }
    }

    /// Change what a rule changes of hosts. False where the rule does not match for it: an address was in its list already.
    fn pass_gate(&self, gate: &Gate) -> bool {
        match gate {
            Gate::Bits(bits, name) => {
                self.rates.take_note(bits, *name, self.ends, self.second);
                true
            }
            Gate::Address(track, command @ (DatasetCommand::Set | DatasetCommand::Unset), set) => self
                .with_address(*track, |address| {
                    set.is_for(address) && is_listed(set, *command, address)
                }),
            Gate::Address(..) => true,
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

    fn wait(&mut self, number: u32) {
        self.tools.no_place |= !self.waiting.wait(number, self.lists);
    }

    fn matched(&mut self, number: u32) {
        let Some(rule) = self.rules.rule(number) else { return };
        let signature = &rule.signature;
        if !rule.gates.iter().all(|gate| self.pass_gate(gate)) {
            return;
        }
        self.tools.noted |= rule.takes_notes();
        let counted = signature.rate.map_or(Counted::Reported, |rate| {
            self.rates.counted(signature.id, &rate, self.ends, self.second)
        });
        // It may match again in this message, which counts.
        let is_after = signature.rate.is_some_and(|rate| rate.kind == RateKind::After);
        if !(is_after && counted == Counted::Below || self.may_match_again(rule)) {
            self.tools.no_place |= !self.waiting.speak(number, self.lists);
        }
        match (counted, signature.action) {
            (Counted::Below, _) => {}
            // Nothing comes before it: what else matched with this packet is void.
            (_, Action::Pass) => *self.fate = Fate::Passed(Skipped::Rule),
            (counted, _) => {
                let is_reported = counted == Counted::Reported && !signature.silent;
                self.tools.fired.add(number, is_reported);
            }
        }
    }
}

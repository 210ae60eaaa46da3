//! A list of rules with what they do, compiled into a snapshot that only single rules change in: what a packet's fate is.
//!
//! Rules that decide go into the matcher. Those after which others are asked, and those about applications, few as they are,
//! are asked one by one, as far as they come before the one that decides.

mod address_set;
mod application;
mod counters;
mod kind;
mod list;
mod mac_table;
mod marks;
mod numbers;
mod port_set;
mod sets;

pub use application::{ApplicationMatch, SessionApplication};
pub use counters::{Counter, Counters, LogRecord};
pub use kind::MatcherKind;
pub use list::{ChangeResult, Rebuild, RuleList, Sets};
pub use mac_table::{MacCondition, MacTable};
pub use marks::{Mark, MarkCondition, SessionMarking, TrafficClass};
pub use sets::{AddressSet, Element, ElementKind, ElementSet, Membership, PortSet, SetFull, SharedSet};

use std::borrow::Borrow;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thiserror::Error;

use self::kind::AnyMatcher;
use self::numbers::Decisions;
use sluice_table::token_bucket::TokenRate;

use crate::{Address, Field, Header, Rule, RuleNumber, TrieTooLarge};

/// Headers that are asked about together at most.
const BATCH: usize = 64;

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passes.
    Accept,
    /// It passes, and its flow has no session for that.
    AcceptUntracked,
    /// It is dropped.
    Drop,
    /// It is dropped, and its sender is told.
    Reject(RejectKind),
}

impl Verdict {
    /// Whether the packet passes.
    #[inline(always)]
    pub const fn passes(self) -> bool {
        matches!(self, Self::Accept | Self::AcceptUntracked)
    }
}

/// What senders are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectKind {
    /// A reset over TCP, else that the port is unreachable.
    Reset,
    /// That the port is unreachable.
    PortUnreachable,
    /// That communication is prohibited.
    Prohibited,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It decides.
    Decide(Verdict),
    /// It counts, and later rules are asked.
    Count,
    /// It logs, at most [`LOGGED`] packets a second, and later rules are asked.
    Log,
    /// What exceeds a rate of packets is dropped; later rules are asked about the rest.
    Limit(TokenRate),
    /// The session gets a mark, and later rules are asked.
    SetMark(Mark),
    /// The packet, and those behind it in its session, leave with a differentiated services code point; later rules are asked.
    SetDscp(u8),
    /// They leave with a code point of congestion; later rules are asked.
    SetEcn(u8),
}

/// Packets that a rule logs a second, and at once.
pub const LOGGED: u32 = 10;

/// Place of a rule in the list that an operator wrote, counted from 0. Rules that come one by one later have places behind all
/// others, wherever they are in the list.
pub type RulePosition = u32;

/// Rules that may come one by one until all is built anew, for so many that are there.
fn spare_rules(rules: usize) -> usize {
    rules / 8 + 64
}

/// A rule as its operator wrote it: one or more boxes of either family, and what they do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledRule {
    /// What it does.
    pub action: Action,
    /// IPv4.
    pub v4: Vec<Rule<u32>>,
    /// IPv6.
    pub v6: Vec<Rule<u128>>,
    /// Applications, of which the session's is one: then it is asked about sessions whose application is known, and no others.
    /// Any where none is named.
    pub applications: Vec<ApplicationMatch>,
    /// What else it asks for.
    pub conditions: Conditions,
}

/// What a rule asks for that no box says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// MAC addresses of the source and of the destination.
    pub macs: [MacCondition; 2],
    /// The mark that the session has by then.
    pub mark: Option<MarkCondition>,
    /// Sets that the source and the destination are in.
    pub sets: [Option<Membership>; 2],
    /// Sets that their ports are in.
    pub port_sets: [Option<Membership>; 2],
    /// The set that the source is added to where the rule matches.
    pub adds_to: Option<SharedSet>,
}

impl Conditions {
    /// Whether the rule is asked beside the matcher for them.
    fn need_slow_match(&self) -> bool {
        self.mark.is_some() || self.sets.iter().chain(&self.port_sets).any(Option::is_some)
    }

    /// Whether the sets that a rule names have the addresses and ports of a packet.
    fn matches<A: Address>(&self, header: &Header<A>) -> bool {
        let is_in = |set: &Option<Membership>, address: A| set.as_ref().is_none_or(|set| set.matches(address.ip()));
        let has_port =
            |set: &Option<Membership>, port| set.as_ref().is_none_or(|set| set.matches_port(header.get(port)));
        is_in(&self.sets[0], header.source())
            && is_in(&self.sets[1], header.destination())
            && has_port(&self.port_sets[0], Field::SourcePort)
            && has_port(&self.port_sets[1], Field::DestinationPort)
    }

    /// Whether it names MAC addresses.
    fn names_macs(&self) -> bool {
        self.macs.iter().any(|macs| !macs.of.is_empty())
    }
}

impl CompiledRule {
    /// Whether it is about packets to the gateway itself, also beside others.
    fn concerns_gateway(&self) -> bool {
        self.v4.iter().any(Rule::is_to_gateway) || self.v6.iter().any(Rule::is_to_gateway)
    }

    /// Whether it is asked beside the matcher.
    fn needs_slow_match(&self) -> bool {
        !matches!(self.action, Action::Decide(_)) || !self.applications.is_empty() || self.conditions.need_slow_match()
    }
}

/// Why a packet is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// A rule decided.
    Rule(RulePosition),
    /// A rule about the session's application decided.
    Application(RulePosition),
    /// A rule's rate was exceeded.
    Limit(RulePosition),
    /// No rule decided.
    Default,
}

/// A packet's fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterResult {
    /// What happens to it.
    pub verdict: Verdict,
    /// Why.
    pub by: DecidedBy,
}

/// Why there is no filter of these rules.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FilterError {
    /// The matcher would be too large.
    #[error(transparent)]
    TooLarge(#[from] TrieTooLarge),
    /// More boxes than there are numbers.
    #[error("{0} combinations of fields are more than a filter takes")]
    TooMany(usize),
    /// More MAC addresses than there are numbers.
    #[error("{0} MAC addresses are more than a filter takes")]
    TooManyMacs(usize),
}

impl FilterResult {
    /// It passes, and no rule says so.
    pub const PASS: Self = Self {
        verdict: Verdict::Accept,
        by: DecidedBy::Default,
    };
}

/// What does not depend on rules.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Which matcher.
    pub kind: MatcherKind,
    /// What happens to packets that no rule decides about.
    pub default: Verdict,
    /// The first packet of a flow is asked about, and those that follow pass.
    pub sessions: bool,
    /// Who may ask at the same time.
    pub workers: usize,
}

/// A box whose rule is asked beside the matcher.
#[derive(Clone, Debug)]
struct SlowRule<A> {
    number: RuleNumber,
    place: RulePosition,
    action: Action,
    rule: Rule<A>,
    applications: Arc<[ApplicationMatch]>,
    conditions: Arc<Conditions>,
}

impl<A: Address> SlowRule<A> {
    /// A packet has matched; whether later rules are asked.
    fn count_match(&self, header: &Header<A>, counters: &Counters, now: u64) -> bool {
        if let Some(SharedSet(set)) = &self.conditions.adds_to {
            set.add_by_packet(header.source().ip(), now);
        }
        counters.count_match(self.place, self.action, header, now)
    }
}

/// Rules of one family.
#[derive(Debug)]
pub struct Filter<A: Address> {
    matcher: AnyMatcher<A>,
    decisions: Arc<Decisions>,
    boxes: AtomicUsize,
    slow_rules: Box<[SlowRule<A>]>,
    /// None where packets that no rule decides about pass, and are not counted.
    default: Option<Verdict>,
}

impl<A: Address> Filter<A> {
    /// Of boxes in order, each with the place of its rule and what that does.
    fn new<'r>(
        boxes: impl Iterator<Item = (RulePosition, &'r CompiledRule, Rule<A>)>,
        settings: &Settings,
        default: Option<Verdict>,
        decisions: Arc<Decisions>,
    ) -> Result<Self, FilterError> {
        let (mut rules, mut aside) = (Vec::new(), Vec::new());
        for (place, written, rule) in boxes {
            let number = decisions.number(place).unwrap_or_default();
            match written.needs_slow_match() {
                false => rules.push((number, rule)),
                true => aside.push(SlowRule {
                    number,
                    place,
                    action: written.action,
                    rule,
                    applications: written.applications.as_slice().into(),
                    conditions: written.conditions.clone().into(),
                }),
            }
        }
        if rules.len() >= 1 << 30 {
            return Err(FilterError::TooMany(rules.len()));
        }
        Ok(Self {
            boxes: AtomicUsize::new(rules.len()),
            matcher: AnyMatcher::new(rules, settings.kind, settings.workers)?,
            decisions,
            slow_rules: aside.into(),
            default,
        })
    }

    /// The numbers of the first boxes that hold headers, as the matcher finds them: nothing is counted.
    pub fn first_of_batch(&self, headers: &[Header<A>], found: &mut [Option<RuleNumber>]) {
        self.matcher.first_of_each(headers, found, usize::MAX);
    }

    /// The fate of packets, asked by a worker at a time in nanoseconds: rules that matched have counted them, as far as they
    /// were asked.
    pub fn decide(
        &self,
        headers: &[Header<A>],
        fates: &mut [FilterResult],
        counters: &Counters,
        worker: usize,
        now: u64,
    ) {
        self.decide_marking(headers, fates, counters, (worker, now), |_, _| {});
    }

    /// The same; `marked` is told for which packets rules set anything.
    pub fn decide_marking(
        &self,
        headers: &[Header<A>],
        fates: &mut [FilterResult],
        counters: &Counters,
        (worker, now): (usize, u64),
        mut marked: impl FnMut(usize, SessionMarking),
    ) {
        let batches = headers.chunks(BATCH).zip(fates.chunks_mut(BATCH));
        for (first, (headers, fates)) in (0..).step_by(BATCH).zip(batches) {
            let mut found = [None; BATCH];
            self.matcher.first_of_each(headers, &mut found[..headers.len()], worker);
            for (place, ((header, found), fate)) in (first..).zip(headers.iter().zip(found).zip(fates)) {
                let marking;
                (*fate, marking) = self.result(header, None, found, |aside| aside.count_match(header, counters, now));
                if fate.by != DecidedBy::Default || self.default.is_some() {
                    counters.count_result(fate.by, header, now);
                }
                if marking.mark != header.mark() || !marking.class.is_any() {
                    marked(place, marking);
                }
            }
        }
    }

    /// The fate of a packet if it came; nothing is counted, and no rate is exceeded.
    pub fn evaluate(&self, header: &Header<A>) -> FilterResult {
        self.evaluate_as(header, None)
    }

    /// The same where its session's application is known.
    pub fn evaluate_as(&self, header: &Header<A>, known: Option<SessionApplication>) -> FilterResult {
        self.result(header, known, self.first(header), |_| true).0
    }

    /// The fate of a session whose application is known now, by its first packet's header: rules about applications that match
    /// have counted it; the others did when it began. And what they set.
    pub fn decide_as(
        &self,
        header: &Header<A>,
        known: SessionApplication,
        counters: &Counters,
        now: u64,
    ) -> (FilterResult, SessionMarking) {
        let (fate, marking) = self.result(header, Some(known), self.first(header), |aside| {
            aside.applications.is_empty() || aside.count_match(header, counters, now)
        });
        if let DecidedBy::Application(_) = fate.by {
            counters.count_result(fate.by, header, now);
        }
        (fate, marking)
    }

    fn first(&self, header: &Header<A>) -> Option<RuleNumber> {
        let mut found = [None];
        self.matcher
            .first_of_each(core::slice::from_ref(header), &mut found, usize::MAX);
        found[0]
    }

    /// The same, and the rules that match before the one that decides.
    pub fn explain(&self, header: &Header<A>) -> (Vec<RulePosition>, FilterResult) {
        let mut before = Vec::new();
        let (fate, _) = self.result(header, None, self.first(header), |aside| {
            before.push(aside.place);
            true
        });
        (before, fate)
    }

    /// The fate of a packet, and what rules set. `note` is told of each rule that matches before the one that decides, and says whether
    /// the packet may go on.
    #[inline(always)]
    fn result(
        &self,
        header: &Header<A>,
        known: Option<SessionApplication>,
        found: Option<RuleNumber>,
        mut note: impl FnMut(&SlowRule<A>) -> bool,
    ) -> (FilterResult, SessionMarking) {
        let mut marking = SessionMarking {
            mark: header.mark(),
            class: TrafficClass::ANY,
        };
        // Boxes of a rule follow one another, and may overlap: what several of them have, the rule matches once.
        let mut noted = None;
        // A rule about applications that does not accept by now may do so when more is known.
        let mut is_open = false;
        for aside in &self.slow_rules {
            if found.is_some_and(|found| found < aside.number) {
                break;
            }
            if noted == Some(aside.place) || !aside.rule.matches(header) {
                continue;
            }
            let conditions = &aside.conditions;
            if conditions.mark.is_some_and(|marked| !marked.matches(marking.mark)) || !conditions.matches(header) {
                continue;
            }
            if !application::any_matches(&aside.applications, known) {
                is_open |= known.is_some_and(|known| !known.is_all)
                    && matches!(aside.action, Action::Decide(verdict) if verdict.passes());
                continue;
            }
            noted = Some(aside.place);
            match aside.action {
                Action::Decide(verdict) if aside.applications.is_empty() => {
                    let by = DecidedBy::Rule(aside.place);
                    return (FilterResult { verdict, by }, marking);
                }
                Action::Decide(verdict) if is_open && !verdict.passes() => break,
                Action::Decide(verdict) => {
                    let by = DecidedBy::Application(aside.place);
                    return (FilterResult { verdict, by }, marking);
                }
                Action::SetMark(set) => marking.mark = set.set(marking.mark),
                Action::SetDscp(dscp) => marking.class = marking.class.with_dscp(dscp),
                Action::SetEcn(ecn) => marking.class = marking.class.with_ecn(ecn),
                Action::Count | Action::Log | Action::Limit(_) => {}
            }
            if !note(aside) {
                let by = DecidedBy::Limit(aside.place);
                let verdict = Verdict::Drop;
                return (FilterResult { verdict, by }, marking);
            }
        }
        let fate = match found.and_then(|found| self.decisions.of(found)) {
            Some((place, verdict)) => FilterResult {
                verdict,
                by: DecidedBy::Rule(place),
            },
            None => FilterResult {
                verdict: self.default.unwrap_or(Verdict::Accept),
                by: DecidedBy::Default,
            },
        };
        (fate, marking)
    }

    /// Boxes that decide.
    pub fn len(&self) -> usize {
        self.boxes.load(Ordering::Relaxed)
    }

    /// Whether there are no boxes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.slow_rules.is_empty()
    }

    /// Bytes that the matcher takes.
    pub fn bytes(&self) -> usize {
        self.matcher.bytes()
    }
}

/// Rules of both families.
#[derive(Debug)]
pub struct Filters {
    /// IPv4.
    pub v4: Filter<u32>,
    /// IPv6.
    pub v6: Filter<u128>,
    /// What rules have counted.
    pub counters: Counters,
    /// The first packet of a flow is asked about, and those that follow pass.
    pub sessions: bool,
    /// There are rules about applications.
    pub applications: bool,
    /// MAC addresses that rules name.
    pub stations: MacTable,
    /// There are rules that set marks.
    pub marks: bool,
    /// There are rules that set code points, of service or of congestion.
    pub code_points: bool,
    /// Rules about packets to the gateway itself, where there are any.
    pub gateway: Option<GatewayFilters>,
    decisions: Arc<Decisions>,
}

/// Rules about packets to the gateway itself. What none decides about passes.
#[derive(Debug)]
pub struct GatewayFilters {
    /// IPv4.
    pub v4: Filter<u32>,
    /// IPv6.
    pub v6: Filter<u128>,
}

impl Filters {
    /// Of rules in order. A rule that was there before goes on counting where it was.
    pub fn new(
        written: &[impl Borrow<CompiledRule>],
        settings: &Settings,
        counters: Counters,
    ) -> Result<Self, FilterError> {
        let decides = |rule: &CompiledRule| match rule.action {
            Action::Decide(verdict) => Some(verdict),
            Action::Count
            | Action::Log
            | Action::Limit(_)
            | Action::SetMark(_)
            | Action::SetDscp(_)
            | Action::SetEcn(_) => None,
        };
        let verdicts = written.iter().map(|rule| decides(rule.borrow())).collect();
        let decisions = Arc::new(Decisions::new(verdicts, spare_rules(written.len())));
        let boxes = || (0..).zip(written.iter().map(Borrow::borrow));
        let stations = MacTable::new(boxes().flat_map(|(_, rule)| &rule.conditions.macs))?;
        let four = |to_gateway: bool| {
            let all = boxes().flat_map(|(place, rule)| {
                let of = stations.boxes(&rule.v4, &rule.conditions.macs).into_owned();
                of.into_iter().map(move |one| (place, rule, one))
            });
            all.filter(move |(_, _, one)| one.is_to_gateway() == to_gateway)
        };
        let six = |to_gateway: bool| {
            let all = boxes().flat_map(|(place, rule)| {
                let of = stations.boxes(&rule.v6, &rule.conditions.macs).into_owned();
                of.into_iter().map(move |one| (place, rule, one))
            });
            all.filter(move |(_, _, one)| one.is_to_gateway() == to_gateway)
        };
        let default = Some(settings.default);
        let gateway = match boxes().any(|(_, rule)| rule.concerns_gateway()) {
            true => Some(GatewayFilters {
                v4: Filter::new(four(true), settings, None, decisions.clone())?,
                v6: Filter::new(six(true), settings, None, decisions.clone())?,
            }),
            false => None,
        };
        Ok(Self {
            gateway,
            v4: Filter::new(four(false), settings, default, decisions.clone())?,
            v6: Filter::new(six(false), settings, default, decisions.clone())?,
            counters,
            sessions: settings.sessions,
            applications: written.iter().any(|rule| !rule.borrow().applications.is_empty()),
            stations,
            code_points: written
                .iter()
                .any(|rule| matches!(rule.borrow().action, Action::SetDscp(_) | Action::SetEcn(_))),
            marks: written
                .iter()
                .any(|rule| matches!(rule.borrow().action, Action::SetMark(_))),
            decisions,
        })
    }

    /// Bytes that the matchers take.
    pub fn bytes(&self) -> usize {
        let gateway = self.gateway.as_ref();
        let gateway = gateway.map_or(0, |gateway| gateway.v4.bytes() + gateway.v6.bytes());
        self.v4.bytes() + self.v6.bytes() + gateway
    }
}

/// Of a header what a log says.
fn endpoints<A: Address>(header: &Header<A>) -> [(IpAddr, u32); 2] {
    [
        (header.source().ip(), header.get(Field::SourcePort)),
        (header.destination().ip(), header.get(Field::DestinationPort)),
    ]
}

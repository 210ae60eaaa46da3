//! A filter: a list of rules with actions, which determines the result for each packet. The rules are compiled into a
//! snapshot. Single rules of a snapshot can be inserted and removed.
//!
//! The matcher contains the rules that decide about packets. Rules that don't decide and rules with conditions on
//! applications are usually few. They are evaluated one by one, up to the deciding rule.

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

/// Maximum number of headers that are matched together.
const BATCH: usize = 64;

/// Verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accept the packet.
    Accept,
    /// Accept the packet without creating a session for its flow.
    AcceptUntracked,
    /// Drop the packet.
    Drop,
    /// Drop the packet, and send an error to its sender.
    Reject(RejectKind),
}

impl Verdict {
    /// Whether the packet is accepted.
    #[inline(always)]
    pub const fn passes(self) -> bool {
        matches!(self, Self::Accept | Self::AcceptUntracked)
    }
}

/// Type of the error that is sent for a rejected packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectKind {
    /// A TCP reset for TCP packets, otherwise ICMP port unreachable.
    Reset,
    /// ICMP port unreachable.
    PortUnreachable,
    /// ICMP communication administratively prohibited.
    Prohibited,
}

/// Action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Stop the evaluation with this verdict.
    Decide(Verdict),
    /// Count the packet, and continue with the next rule.
    Count,
    /// Log the packet, at most [`LOGGED`] packets per second, and continue with the next rule.
    Log,
    /// Drop packets that exceed a rate. For other packets continue with the next rule.
    Limit(TokenRate),
    /// Set bits of the session mark, and continue with the next rule.
    SetMark(Mark),
    /// Set the DSCP of this packet and of the later packets of its session, and continue with the next rule.
    SetDscp(u8),
    /// Set the ECN code point of this packet and of the later packets of its session, and continue with the next rule.
    SetEcn(u8),
}

/// Maximum number of logged packets per second for each rule. The maximum burst equals this number.
pub const LOGGED: u32 = 10;

/// Position of a rule in the operator's list, counted from 0. A rule that is inserted singly gets a position after all
/// existing positions, even if other rules follow it in the list.
pub type RulePosition = u32;

/// Number of rules that can be inserted singly before a rebuild, if the filter has `rules` rules.
fn spare_rules(rules: usize) -> usize {
    rules / 8 + 64
}

/// A compiled rule of the operator: one or more hyperrectangles for each address family, and an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledRule {
    /// Action of the rule.
    pub action: Action,
    /// IPv4 hyperrectangles.
    pub v4: Vec<Rule<u32>>,
    /// IPv6 hyperrectangles.
    pub v6: Vec<Rule<u128>>,
    /// Applications that the rule matches. If the list is not empty, the rule is evaluated only for sessions with an
    /// identified application. If the list is empty, the rule is evaluated for all packets.
    pub applications: Vec<ApplicationMatch>,
    /// Conditions that hyperrectangles can't express.
    pub conditions: Conditions,
}

/// Conditions of a rule that hyperrectangles can't express.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Conditions on the source and the destination MAC address.
    pub macs: [MacCondition; 2],
    /// Condition on the session mark at the time of the rule's evaluation.
    pub mark: Option<MarkCondition>,
    /// Conditions on sets for the source and the destination address.
    pub sets: [Option<Membership>; 2],
    /// Conditions on sets for the source and the destination port.
    pub port_sets: [Option<Membership>; 2],
    /// Set to which the source address is added when the rule matches.
    pub adds_to: Option<SharedSet>,
}

impl Conditions {
    /// Whether the conditions must be evaluated outside of the matcher.
    fn need_slow_match(&self) -> bool {
        self.mark.is_some() || self.sets.iter().chain(&self.port_sets).any(Option::is_some)
    }

    /// Whether the addresses and ports of a packet satisfy the conditions on sets.
    fn matches<A: Address>(&self, header: &Header<A>) -> bool {
        let is_in = |set: &Option<Membership>, address: A| set.as_ref().is_none_or(|set| set.matches(address.ip()));
        let has_port =
            |set: &Option<Membership>, port| set.as_ref().is_none_or(|set| set.matches_port(header.get(port)));
        is_in(&self.sets[0], header.source())
            && is_in(&self.sets[1], header.destination())
            && has_port(&self.port_sets[0], Field::SourcePort)
            && has_port(&self.port_sets[1], Field::DestinationPort)
    }

    /// Whether a condition contains MAC addresses.
    fn names_macs(&self) -> bool {
        self.macs.iter().any(|macs| !macs.of.is_empty())
    }
}

impl CompiledRule {
    /// Whether the rule can match packets to the gateway itself.
    fn concerns_gateway(&self) -> bool {
        self.v4.iter().any(Rule::is_to_gateway) || self.v6.iter().any(Rule::is_to_gateway)
    }

    /// Whether the rule is evaluated outside of the matcher.
    fn needs_slow_match(&self) -> bool {
        !matches!(self.action, Action::Decide(_)) || !self.applications.is_empty() || self.conditions.need_slow_match()
    }
}

/// What determined the verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// The rule at this position.
    Rule(RulePosition),
    /// The rule at this position, because of its condition on the application.
    Application(RulePosition),
    /// The rate limit of the rule at this position, which the packet exceeded.
    Limit(RulePosition),
    /// The default verdict, because no rule determined a verdict.
    Default,
}

/// Result of the filter for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterResult {
    /// Verdict on the packet.
    pub verdict: Verdict,
    /// What determined the verdict.
    pub by: DecidedBy,
}

/// Why a filter can't be built.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FilterError {
    /// The matcher would be too large.
    #[error(transparent)]
    TooLarge(#[from] TrieTooLarge),
    /// The rules have more hyperrectangles than there are rule numbers.
    #[error("{0} combinations of fields exceed the maximum of a filter")]
    TooMany(usize),
    /// The rules contain more MAC addresses than there are MAC numbers.
    #[error("{0} MAC addresses exceed the maximum of a filter")]
    TooManyMacs(usize),
}

impl FilterResult {
    /// The packet is accepted by default.
    pub const PASS: Self = Self {
        verdict: Verdict::Accept,
        by: DecidedBy::Default,
    };
}

/// Filter settings that don't depend on rules.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Type of the matcher.
    pub kind: MatcherKind,
    /// Default verdict, for packets that no rule decides.
    pub default: Verdict,
    /// Whether only the first packet of a flow is filtered, and later packets pass.
    pub sessions: bool,
    /// Number of workers that may use the filter concurrently.
    pub workers: usize,
}

/// A hyperrectangle whose rule is evaluated outside of the matcher.
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
    /// Counts a matching packet. Returns whether later rules are evaluated.
    fn count_match(&self, header: &Header<A>, counters: &Counters, now: u64) -> bool {
        if let Some(SharedSet(set)) = &self.conditions.adds_to {
            set.add_by_packet(header.source().ip(), now);
        }
        counters.count_match(self.place, self.action, header, now)
    }
}

/// Rules of one address family.
#[derive(Debug)]
pub struct Filter<A: Address> {
    matcher: AnyMatcher<A>,
    decisions: Arc<Decisions>,
    hyperrectangles: AtomicUsize,
    slow_rules: Box<[SlowRule<A>]>,
    /// Default verdict. If `None`, packets that no rule decides pass and are not counted.
    default: Option<Verdict>,
}

impl<A: Address> Filter<A> {
    /// Creates a filter of sorted hyperrectangles. Each has the position of its rule and a reference to the rule.
    fn new<'r>(
        hyperrectangles: impl Iterator<Item = (RulePosition, &'r CompiledRule, Rule<A>)>,
        settings: &Settings,
        default: Option<Verdict>,
        decisions: Arc<Decisions>,
    ) -> Result<Self, FilterError> {
        let (mut rules, mut slow) = (Vec::new(), Vec::new());
        for (place, written, rule) in hyperrectangles {
            let number = decisions.number(place).unwrap_or_default();
            match written.needs_slow_match() {
                false => rules.push((number, rule)),
                true => slow.push(SlowRule {
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
            hyperrectangles: AtomicUsize::new(rules.len()),
            matcher: AnyMatcher::new(rules, settings.kind, settings.workers)?,
            decisions,
            slow_rules: slow.into(),
            default,
        })
    }

    /// Number of the first matching hyperrectangle for each header, according to the matcher. Counters don't change.
    pub fn first_of_batch(&self, headers: &[Header<A>], found: &mut [Option<RuleNumber>]) {
        self.matcher.first_of_each(headers, found, usize::MAX);
    }

    /// Determines the results for packets of a worker; `now` is the time in nanoseconds. Counters of the evaluated
    /// rules that match are incremented.
    pub fn decide(
        &self,
        headers: &[Header<A>],
        results: &mut [FilterResult],
        counters: &Counters,
        worker: usize,
        now: u64,
    ) {
        self.decide_marking(headers, results, counters, (worker, now), |_, _| {});
    }

    /// Determines the results for packets like [`Filter::decide`]. Calls `marked` for each packet for which rules set
    /// the mark or the traffic class.
    pub fn decide_marking(
        &self,
        headers: &[Header<A>],
        results: &mut [FilterResult],
        counters: &Counters,
        (worker, now): (usize, u64),
        mut marked: impl FnMut(usize, SessionMarking),
    ) {
        let batches = headers.chunks(BATCH).zip(results.chunks_mut(BATCH));
        for (first, (headers, results)) in (0..).step_by(BATCH).zip(batches) {
            let mut found = [None; BATCH];
            self.matcher.first_of_each(headers, &mut found[..headers.len()], worker);
            for (place, ((header, found), result)) in (first..).zip(headers.iter().zip(found).zip(results)) {
                let marking;
                (*result, marking) = self.result(header, None, found, |slow| slow.count_match(header, counters, now));
                if result.by != DecidedBy::Default || self.default.is_some() {
                    counters.count_result(result.by, header, now);
                }
                if marking.mark != header.mark() || !marking.class.is_any() {
                    marked(place, marking);
                }
            }
        }
    }

    /// The result for a hypothetical packet. Counters don't change, and rate limits are ignored.
    pub fn evaluate(&self, header: &Header<A>) -> FilterResult {
        self.evaluate_as(header, None)
    }

    /// The result for a hypothetical packet of a session with application `known`. Counters don't change, and rate
    /// limits are ignored.
    pub fn evaluate_as(&self, header: &Header<A>, known: Option<SessionApplication>) -> FilterResult {
        self.result(header, known, self.first(header), |_| true).0
    }

    /// The result for a session with an identified application, and the marking that rules set. `header` is the header
    /// of the session's first packet. Counts only rules with conditions on applications, because other rules were
    /// counted when the session was created.
    pub fn decide_as(
        &self,
        header: &Header<A>,
        known: SessionApplication,
        counters: &Counters,
        now: u64,
    ) -> (FilterResult, SessionMarking) {
        let (result, marking) = self.result(header, Some(known), self.first(header), |slow| {
            slow.applications.is_empty() || slow.count_match(header, counters, now)
        });
        if let DecidedBy::Application(_) = result.by {
            counters.count_result(result.by, header, now);
        }
        (result, marking)
    }

    fn first(&self, header: &Header<A>) -> Option<RuleNumber> {
        let mut found = [None];
        self.matcher
            .first_of_each(core::slice::from_ref(header), &mut found, usize::MAX);
        found[0]
    }

    /// The result for a hypothetical packet, and the positions of the matching rules before the deciding rule.
    pub fn explain(&self, header: &Header<A>) -> (Vec<RulePosition>, FilterResult) {
        let mut before = Vec::new();
        let (result, _) = self.result(header, None, self.first(header), |slow| {
            before.push(slow.place);
            true
        });
        (before, result)
    }

    /// The result for a packet, and the marking that rules set. `note` is called for each matching rule before the
    /// deciding rule, and returns false if the packet exceeds the rule's rate.
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
        // A packet may match several hyperrectangles of one rule, which are adjacent in the list. The rule is evaluated
        // only once for the packet.
        let mut noted = None;
        // Set if an accepting rule may match later, when more of the application is identified.
        let mut is_open = false;
        for slow in &self.slow_rules {
            if found.is_some_and(|found| found < slow.number) {
                break;
            }
            if noted == Some(slow.place) || !slow.rule.matches(header) {
                continue;
            }
            let conditions = &slow.conditions;
            if conditions.mark.is_some_and(|marked| !marked.matches(marking.mark)) || !conditions.matches(header) {
                continue;
            }
            if !application::any_matches(&slow.applications, known) {
                is_open |= known.is_some_and(|known| !known.is_all)
                    && matches!(slow.action, Action::Decide(verdict) if verdict.passes());
                continue;
            }
            noted = Some(slow.place);
            match slow.action {
                Action::Decide(verdict) if slow.applications.is_empty() => {
                    let by = DecidedBy::Rule(slow.place);
                    return (FilterResult { verdict, by }, marking);
                }
                Action::Decide(verdict) if is_open && !verdict.passes() => break,
                Action::Decide(verdict) => {
                    let by = DecidedBy::Application(slow.place);
                    return (FilterResult { verdict, by }, marking);
                }
                Action::SetMark(set) => marking.mark = set.set(marking.mark),
                Action::SetDscp(dscp) => marking.class = marking.class.with_dscp(dscp),
                Action::SetEcn(ecn) => marking.class = marking.class.with_ecn(ecn),
                Action::Count | Action::Log | Action::Limit(_) => {}
            }
            if !note(slow) {
                let by = DecidedBy::Limit(slow.place);
                let verdict = Verdict::Drop;
                return (FilterResult { verdict, by }, marking);
            }
        }
        let result = match found.and_then(|found| self.decisions.of(found)) {
            Some((place, verdict)) => FilterResult {
                verdict,
                by: DecidedBy::Rule(place),
            },
            None => FilterResult {
                verdict: self.default.unwrap_or(Verdict::Accept),
                by: DecidedBy::Default,
            },
        };
        (result, marking)
    }

    /// Number of hyperrectangles in the matcher.
    pub fn len(&self) -> usize {
        self.hyperrectangles.load(Ordering::Relaxed)
    }

    /// Whether the filter has no hyperrectangles.
    pub fn is_empty(&self) -> bool {
        self.len() == 0 && self.slow_rules.is_empty()
    }

    /// Size of the matcher in bytes.
    pub fn bytes(&self) -> usize {
        self.matcher.bytes()
    }
}

/// Compiled filters of both address families.
#[derive(Debug)]
pub struct Filters {
    /// IPv4 rules.
    pub v4: Filter<u32>,
    /// IPv6 rules.
    pub v6: Filter<u128>,
    /// Counters of the rules.
    pub counters: Counters,
    /// Whether only the first packet of a flow is filtered, and later packets pass.
    pub sessions: bool,
    /// Whether any rule has a condition on the application.
    pub applications: bool,
    /// MAC addresses in the rules.
    pub stations: MacTable,
    /// Whether any rule sets session marks.
    pub marks: bool,
    /// Whether any rule sets DSCP or ECN code points.
    pub code_points: bool,
    /// Rules for packets to the gateway itself, if any.
    pub gateway: Option<GatewayFilters>,
    decisions: Arc<Decisions>,
}

/// Rules for packets to the gateway itself. Packets that no rule decides pass.
#[derive(Debug)]
pub struct GatewayFilters {
    /// IPv4 rules.
    pub v4: Filter<u32>,
    /// IPv6 rules.
    pub v6: Filter<u128>,
}

impl Filters {
    /// Compiles sorted rules. A rule that existed in the previous filters keeps its counter.
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
        let hyperrectangles = || (0..).zip(written.iter().map(Borrow::borrow));
        let stations = MacTable::new(hyperrectangles().flat_map(|(_, rule)| &rule.conditions.macs))?;
        let v4 = |to_gateway: bool| {
            let all = hyperrectangles().flat_map(|(place, rule)| {
                let of = stations.hyperrectangles(&rule.v4, &rule.conditions.macs).into_owned();
                of.into_iter().map(move |one| (place, rule, one))
            });
            all.filter(move |(_, _, one)| one.is_to_gateway() == to_gateway)
        };
        let v6 = |to_gateway: bool| {
            let all = hyperrectangles().flat_map(|(place, rule)| {
                let of = stations.hyperrectangles(&rule.v6, &rule.conditions.macs).into_owned();
                of.into_iter().map(move |one| (place, rule, one))
            });
            all.filter(move |(_, _, one)| one.is_to_gateway() == to_gateway)
        };
        let default = Some(settings.default);
        let gateway = match hyperrectangles().any(|(_, rule)| rule.concerns_gateway()) {
            true => Some(GatewayFilters {
                v4: Filter::new(v4(true), settings, None, decisions.clone())?,
                v6: Filter::new(v6(true), settings, None, decisions.clone())?,
            }),
            false => None,
        };
        Ok(Self {
            gateway,
            v4: Filter::new(v4(false), settings, default, decisions.clone())?,
            v6: Filter::new(v6(false), settings, default, decisions.clone())?,
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

    /// Size of the matchers in bytes.
    pub fn bytes(&self) -> usize {
        let gateway = self.gateway.as_ref();
        let gateway = gateway.map_or(0, |gateway| gateway.v4.bytes() + gateway.v6.bytes());
        self.v4.bytes() + self.v6.bytes() + gateway
    }
}

/// Source and destination of a header, for a log record.
fn endpoints<A: Address>(header: &Header<A>) -> [(IpAddr, u32); 2] {
    [
        (header.source().ip(), header.get(Field::SourcePort)),
        (header.destination().ip(), header.get(Field::DestinationPort)),
    ]
}

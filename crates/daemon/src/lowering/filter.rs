//! Converts packet filter rules to the form that the matchers use.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use sluice_config::Config;
use sluice_config::config::RouterIndex;
use sluice_config::filter::{FilterRule, FilterSet, MacSelection, Selection, runs};
use sluice_config::schema::{self, SetType};
use sluice_config::value::{self, OrNot, SetElement};
use sluice_filter::{
    Action, Address, AddressSet, CompiledRule, Conditions, Counters, Element, ElementKind, ElementSet, Field,
    FlagsMask, ListSearch, MacCondition, Mark, MarkCondition, MatcherKind, Membership, NONE, Range, RejectKind, Rule,
    RuleList, RulePosition, Sets, Settings, SharedSet, Verdict,
};
use sluice_table::token_bucket::TokenRate;

use super::applications::{UnknownApplication, named};
use super::{LoweringError, VALIDATED};

/// A rule with its text in the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Text of the rule.
    pub text: schema::FilterRule,
    /// Conditions and action of the rule.
    pub rule: FilterRule,
    /// Whether the rule was inserted at run time.
    pub inserted: bool,
}

/// Ordered rules of the filter. Single rules can be inserted and removed.
pub type Rules = RuleList<Listed>;

/// Filter of a configuration. `None` if the configuration has no filter. Rules that already existed in `before` keep
/// their counters.
///
/// # Errors
/// The matcher would exceed its memory limit, or the application identification library can't be used or lacks an
/// application that a rule names.
pub fn filters(config: &Config, before: Option<&Rules>) -> Result<Option<Rules>, LoweringError> {
    let Some(settings) = &config.filter_settings() else {
        return Ok(None);
    };
    let sets = Arc::new(sets(config, before.map(Rules::sets)));
    let listed = |(place, (rule, text)): (usize, (&FilterRule, schema::FilterRule))| {
        let listed = Listed {
            text,
            rule: rule.clone(),
            inserted: false,
        };
        let written = written(rule, &sets).map_err(|error| match error {
            LoweringError::UnknownApplication(unknown) => UnknownApplication { rule: place, ..unknown }.into(),
            error => error,
        })?;
        Ok((written, listed))
    };
    let rules = config.filter.iter().zip(config.filter_texts()).enumerate().map(listed);
    let rules = rules.collect::<Result<Vec<_>, LoweringError>>()?;
    let counters = match before {
        Some(before) => Counters::following(&before.filters().counters, places(before, &config.filter)),
        None => Counters::new(rules.len()),
    };
    let settings = Settings {
        kind: kind(settings),
        default: verdict(settings.default, RejectKind::Reset),
        sessions: settings.sessions,
        workers: config.cores.len().max(1),
    };
    let rules = RuleList::new(rules.into_iter(), settings, counters)?;
    Ok(Some(rules.with_sets(sets)))
}

/// Sets of a configuration. An existing set is reused unless its size or type differs.
fn sets(config: &Config, before: Option<&Sets>) -> Sets {
    let set = |set: &FilterSet| {
        let (old, size) = (before.and_then(|sets| sets.get(&set.name)), set.settings.size as usize);
        let is_unchanged = |old: &&Arc<ElementSet>| old.size() == size && old.kind() == kind_of(set.settings.kind);
        if let Some(same) = old.filter(is_unchanged) {
            return (set.name.clone(), same.clone());
        }
        let new = ElementSet::new(kind_of(set.settings.kind), size);
        // The elements of the configuration are added before the elements of the old set, because the new set may be
        // too small for all.
        update(&new, &set.settings);
        old.into_iter().for_each(|old| new.copy(old));
        (set.name.clone(), Arc::new(new))
    };
    config.filter_sets.iter().map(set).collect()
}

/// After a commit, apply the configuration to the sets that were reused.
pub fn update_sets(config: &Config, rules: &Rules) {
    for set in &config.filter_sets {
        if let Some(running) = rules.sets().get(&set.name) {
            update(running, &set.settings);
        }
    }
}

/// Type of a set's elements.
fn kind_of(kind: SetType) -> ElementKind {
    match kind {
        SetType::Addresses => ElementKind::Addresses,
        SetType::Networks => ElementKind::Networks,
        SetType::Ports => ElementKind::Ports,
    }
}

/// Elements of a set for one configured element: a range of addresses is split into prefixes.
pub fn elements(element: &SetElement) -> Vec<Element> {
    match *element {
        SetElement::Ports(first, last) => vec![Element::Ports(first, last)],
        SetElement::Addresses(..) => {
            let networks = element.networks().into_iter();
            networks
                .map(|net| Element::Network(net.network(), net.prefix_len()))
                .collect()
        }
    }
}

fn update(set: &ElementSet, settings: &schema::NamedSet) {
    set.set_timeout(settings.timeout.map(value::Period::duration));
    for element in &settings.elements {
        if elements(element).into_iter().any(|one| set.add(one, None, 0).is_err()) {
            tracing::warn!("filter: a set of {} is full: {element} is not added", set.size());
        }
    }
}

/// For each rule, its position in the previous filter. Two rules are the same if their conditions and actions are
/// equal; names and positions don't matter.
fn places<'c>(old: &'c Rules, new: &'c [FilterRule]) -> impl Iterator<Item = Option<RulePosition>> + 'c {
    let text = |rule: &FilterRule| {
        let FilterRule {
            action,
            with,
            track,
            rate,
            new_mark,
            new_dscp,
            new_ecn,
            adds_to,
            ..
        } = rule;
        format!(
            "{:?}",
            (
                rule.router,
                rule.is_default,
                action,
                with,
                track,
                rate,
                (new_mark, new_dscp, new_ecn),
                adds_to,
                &rule.selection
            )
        )
    };
    let mut known: HashMap<String, VecDeque<RulePosition>> = HashMap::new();
    for (place, listed) in old.iter() {
        known.entry(text(&listed.rule)).or_default().push_back(place);
    }
    new.iter()
        .map(move |rule| known.get_mut(&text(rule)).and_then(VecDeque::pop_front))
}

fn kind(settings: &schema::Filter) -> MatcherKind {
    let max = settings.trie_memory as usize * (1 << 20);
    match settings.matcher {
        schema::Matcher::Best => MatcherKind::Best,
        schema::Matcher::Linear => MatcherKind::Linear,
        schema::Matcher::Trie => MatcherKind::Trie { max },
        schema::Matcher::CachedTrie => MatcherKind::CachedTrie {
            max,
            entries: settings.list_size,
            probe: match settings.list_search {
                schema::ListSearch::InOrder => ListSearch::InOrder,
                schema::ListSearch::Bisection => ListSearch::Bisection,
            },
        },
    }
}

fn verdict(verdict: schema::Verdict, with: RejectKind) -> Verdict {
    match verdict {
        schema::Verdict::Accept => Verdict::Accept,
        schema::Verdict::Drop => Verdict::Drop,
        schema::Verdict::Reject => Verdict::Reject(with),
    }
}

/// Compile a rule for the filter.
///
/// # Errors
/// The application identification library can't be used, or lacks an application that the rule names.
pub fn written(rule: &FilterRule, sets: &Sets) -> Result<CompiledRule, LoweringError> {
    let with = match rule.with {
        schema::RejectWith::Reset => RejectKind::Reset,
        schema::RejectWith::PortUnreachable => RejectKind::PortUnreachable,
        schema::RejectWith::Prohibited => RejectKind::Prohibited,
    };
    let (rate, burst) = rule.rate;
    let action = match rule.action {
        schema::Action::Accept if !rule.track => Action::Decide(Verdict::AcceptUntracked),
        schema::Action::Accept => Action::Decide(Verdict::Accept),
        schema::Action::Drop => Action::Decide(Verdict::Drop),
        schema::Action::Reject => Action::Decide(Verdict::Reject(with)),
        schema::Action::Count | schema::Action::AddToSet => Action::Count,
        schema::Action::Log => Action::Log,
        schema::Action::RateLimit => Action::Limit(TokenRate::new(rate.max(1).into(), burst.max(1).into())),
        schema::Action::SetDscp => Action::SetDscp(rule.new_dscp.unwrap_or(0)),
        schema::Action::SetEcn => Action::SetEcn(rule.new_ecn.unwrap_or(0)),
        schema::Action::SetMark => Action::SetMark(mark(rule.new_mark.unwrap_or(value::Mark { value: 0, mask: 0 }))),
    };
    let none = || {
        debug_assert!(false, "validation has rejected names of unknown sets");
        Arc::new(AddressSet::new(1, None).into())
    };
    let set = |name: &String| SharedSet(sets.get(name).cloned().unwrap_or_else(none));
    let membership = |of: &Option<OrNot<String>>| {
        let OrNot { not, value } = of.as_ref()?;
        let (not, set) = (*not, set(value));
        Some(Membership { not, set })
    };
    Ok(CompiledRule {
        action,
        v4: hyperrectangles4(&rule.selection, rule.router),
        v6: hyperrectangles6(&rule.selection, rule.router),
        applications: named(&rule.selection.applications)?,
        conditions: Conditions {
            macs: rule.selection.macs.each_ref().map(macs),
            sets: rule.selection.sets.each_ref().map(membership),
            port_sets: rule.selection.port_sets.each_ref().map(membership),
            adds_to: rule.adds_to.as_ref().map(set),
            mark: rule.selection.mark.as_ref().map(|marked| MarkCondition {
                not: marked.not,
                mark: mark(marked.value),
            }),
        },
    })
}

fn mark(mark: value::Mark) -> Mark {
    let value::Mark { value, mask } = mark;
    Mark { value, mask }
}

fn macs(selection: &MacSelection) -> MacCondition {
    MacCondition {
        not: selection.not,
        of: selection.of.iter().map(|mac| mac.bytes()).collect(),
    }
}

/// Hyperrectangles of a rule's conditions for IPv4 packets of one router, or of all routers.
pub(super) fn hyperrectangles4(selection: &Selection, router: Option<RouterIndex>) -> Vec<Rule<u32>> {
    hyperrectangles(selection, router, false, |address| match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(_) => 0,
    })
}

/// Hyperrectangles of a rule's conditions for IPv6 packets of one router, or of all routers.
pub(super) fn hyperrectangles6(selection: &Selection, router: Option<RouterIndex>) -> Vec<Rule<u128>> {
    hyperrectangles(selection, router, true, |address| match address {
        IpAddr::V6(address) => address.to_bits(),
        IpAddr::V4(_) => 0,
    })
}

/// Value ranges of a selection for all fields except addresses. A field without a condition has no range.
fn fields(selection: &Selection, router: Option<RouterIndex>, v6: bool) -> Vec<(Field, Vec<(u32, u32)>)> {
    let routers: Vec<_> = router.iter().map(|&router| (router.into(), router.into())).collect();
    let wide = |list: &[(u16, u16)]| list.iter().map(|&(first, last)| (first.into(), last.into())).collect();
    let protocols = runs(&selection.protocols_of(v6));
    let protocols = protocols
        .into_iter()
        .map(|(first, last)| (first.into(), last.into()))
        .collect();
    let mut outgoing: Vec<_> = wide(&selection.outgoing);
    outgoing.extend(selection.gateway.then_some((NONE, NONE)));
    let own = [
        (Field::Context, routers),
        (Field::Protocol, protocols),
        (Field::SourcePort, wide(&selection.source_ports)),
        (Field::DestinationPort, wide(&selection.destination_ports)),
        (Field::Message, wide(&selection.messages[usize::from(v6)])),
        (Field::Incoming, wide(&selection.incoming)),
        (Field::Outgoing, outgoing),
    ];
    own.into_iter().chain(selection.fields.iter().cloned()).collect()
}

fn hyperrectangles<A: Address>(
    selection: &Selection,
    router: Option<RouterIndex>,
    v6: bool,
    number: impl Fn(IpAddr) -> A + Copy,
) -> Vec<Rule<A>> {
    let (Some(sources), Some(destinations), true) = (
        Selection::addresses(&selection.sources, v6),
        Selection::addresses(&selection.destinations, v6),
        selection.concerns(v6),
    ) else {
        return Vec::new();
    };
    let all = Rule::<A>::any();
    let ranges = |list: &[(IpAddr, IpAddr)], any: Range<A>| match list {
        [] => vec![any],
        list => {
            let range = |&(first, last): &(IpAddr, IpAddr)| Range {
                first: number(first),
                last: number(last),
            };
            list.iter().map(range).collect()
        }
    };
    let mut rules = Vec::new();
    let destinations = ranges(&destinations, all.destination);
    for source in ranges(&sources, all.source) {
        for &destination in &destinations {
            rules.push(all.clone().between(source, destination).expect(VALIDATED));
        }
    }
    let fields = fields(selection, router, v6);
    for (field, values) in fields.into_iter().filter(|(_, values)| !values.is_empty()) {
        let mut more = Vec::with_capacity(rules.len() * values.len());
        for rule in &rules {
            for &(first, last) in &values {
                more.push(rule.clone().with(field, first, last).expect(VALIDATED));
            }
        }
        rules = more;
    }
    if let Some(flags) = selection.flags {
        let mask = FlagsMask {
            set: flags.set,
            of: flags.of,
        };
        rules = rules
            .into_iter()
            .map(|rule| rule.with_flags(mask).expect(VALIDATED))
            .collect();
    }
    rules
}

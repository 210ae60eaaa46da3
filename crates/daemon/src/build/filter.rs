//! The packet filter's rules as its matchers take them.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use sluice_config::Config;
use sluice_config::filter::{FilterRule, Selection};
use sluice_config::schema;
use sluice_config::value::Numbers;
use sluice_filter::{
    Action, Address, Counters, Field, Filters, Impossible, Kind, Mask, Place, Probe, Range, Rule, Verdict, With,
    Written,
};

use super::BuildError;

/// The filter of a configuration; none where it has none. Rules that were there before, in the configuration `before`, go on
/// counting.
///
/// # Errors
/// The matcher would take too much memory.
pub fn filters(config: &Config, before: Option<(&Config, &Filters)>) -> Result<Option<Arc<Filters>>, BuildError> {
    let Some(settings) = &config.document.filter else {
        return Ok(None);
    };
    let written: Vec<_> = config.filter.iter().map(written).collect::<Result<_, _>>()?;
    let counters = match before {
        Some((old, filters)) => Counters::following(&filters.counters, places(&old.filter, &config.filter)),
        None => Counters::new(written.len()),
    };
    let workers = config.cores.len().max(1);
    let default = verdict(settings.default, With::Reset);
    let filters = Filters::new(&written, kind(settings), default, settings.sessions, workers, counters)?;
    Ok(Some(Arc::new(filters)))
}

/// Where each rule was before. Rules are the same where they do and match the same, whatever their names and places are.
fn places<'c>(old: &'c [FilterRule], new: &'c [FilterRule]) -> impl Iterator<Item = Option<Place>> + 'c {
    let text = |rule: &FilterRule| format!("{:?}", (rule.action, rule.with, rule.rate, &rule.selection));
    let mut known: HashMap<String, VecDeque<Place>> = HashMap::new();
    for (place, rule) in (0..).zip(old) {
        known.entry(text(rule)).or_default().push_back(place);
    }
    new.iter()
        .map(move |rule| known.get_mut(&text(rule)).and_then(VecDeque::pop_front))
}

fn kind(settings: &schema::Filter) -> Kind {
    let most = settings.trie_memory as usize * (1 << 20);
    match settings.matcher {
        schema::Matcher::Best => Kind::Best,
        schema::Matcher::Linear => Kind::Linear,
        schema::Matcher::Trie => Kind::Trie { most },
        schema::Matcher::CachedTrie => Kind::CachedTrie {
            most,
            entries: settings.list_size,
            probe: match settings.list_search {
                schema::ListSearch::InOrder => Probe::InOrder,
                schema::ListSearch::Bisection => Probe::Bisection,
            },
        },
    }
}

fn verdict(verdict: schema::Verdict, with: With) -> Verdict {
    match verdict {
        schema::Verdict::Accept => Verdict::Accept,
        schema::Verdict::Drop => Verdict::Drop,
        schema::Verdict::Reject => Verdict::Reject(with),
    }
}

fn written(rule: &FilterRule) -> Result<Written, BuildError> {
    let with = match rule.with {
        schema::RejectWith::Reset => With::Reset,
        schema::RejectWith::PortUnreachable => With::PortUnreachable,
        schema::RejectWith::Prohibited => With::Prohibited,
    };
    let (rate, burst) = rule.rate;
    let action = match rule.action {
        schema::Action::Accept => Action::Decide(Verdict::Accept),
        schema::Action::Drop => Action::Decide(Verdict::Drop),
        schema::Action::Reject => Action::Decide(Verdict::Reject(with)),
        schema::Action::Count => Action::Count,
        schema::Action::Log => Action::Log,
        schema::Action::RateLimit => Action::Limit { rate, burst },
    };
    Ok(Written {
        action,
        four: boxes(&rule.selection, false, |address| match address {
            IpAddr::V4(address) => address.to_bits(),
            IpAddr::V6(_) => 0,
        })?,
        six: boxes(&rule.selection, true, |address| match address {
            IpAddr::V6(address) => address.to_bits(),
            IpAddr::V4(_) => 0,
        })?,
    })
}

/// Every combination of what a rule names.
fn boxes<A: Address>(
    selection: &Selection,
    six: bool,
    number: impl Fn(IpAddr) -> A + Copy,
) -> Result<Vec<Rule<A>>, Impossible> {
    let (Some(sources), Some(destinations), true) = (
        Selection::addresses(&selection.sources, six),
        Selection::addresses(&selection.destinations, six),
        selection.concerns(six),
    ) else {
        return Ok(Vec::new());
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
            rules.push(all.clone().between(source, destination)?);
        }
    }
    let wide = |list: &[(u16, u16)]| list.iter().map(|&(first, last)| (first.into(), last.into())).collect();
    let bytes = |list: &[u8]| list.iter().map(|&number| (number.into(), number.into())).collect();
    let numbers = |numbers: Option<Numbers>| {
        numbers
            .iter()
            .map(|numbers| (numbers.first.into(), numbers.last.into()))
            .collect()
    };
    let interfaces = |list: &[u16]| list.iter().map(|&number| (number.into(), number.into())).collect();
    let fields: [(Field, Vec<(u32, u32)>); 10] = [
        (Field::Protocol, bytes(&selection.protocols)),
        (Field::SourcePort, wide(&selection.source_ports)),
        (Field::DestinationPort, wide(&selection.destination_ports)),
        (Field::Message, wide(&selection.messages[usize::from(six)])),
        (Field::Fragment, bytes(selection.fragment.as_slice())),
        (Field::Dscp, bytes(&selection.dscp)),
        (Field::Length, numbers(selection.length)),
        (Field::Vlan, numbers(selection.vlan)),
        (Field::Incoming, interfaces(&selection.incoming)),
        (Field::Outgoing, interfaces(&selection.outgoing)),
    ];
    for (field, values) in fields.into_iter().filter(|(_, values)| !values.is_empty()) {
        let mut more = Vec::with_capacity(rules.len() * values.len());
        for rule in &rules {
            for &(first, last) in &values {
                more.push(rule.clone().with(field, first, last)?);
            }
        }
        rules = more;
    }
    if let Some(flags) = selection.flags {
        let mask = Mask {
            set: flags.set,
            of: flags.of,
        };
        rules = rules
            .into_iter()
            .map(|rule| rule.with_flags(mask))
            .collect::<Result<_, _>>()?;
    }
    Ok(rules)
}

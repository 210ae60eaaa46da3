//! The packet filter: groups resolved, keys that contradict each other, rules that never decide.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use indexmap::IndexMap;

use super::routers::Scope;
use super::{Check, Machine};
use crate::config::{Config, DEFAULT_ROUTER, InterfaceIndex};
use crate::diagnosis::Diagnosis;
use crate::filter::{FilterRule, FilterSet, ICMP, ICMPV6, MacSelection, Selection};
use crate::memory::EntryBytes;
use crate::problem::{FilterProblem, RouterProblem};
use crate::read::{Step, place, read};
use crate::schema::{self, Action, Document, Filter, RejectWith, SetType};
use crate::value::{Addresses, GATEWAY, IpProtocol, Mac, Message, OneOrMore, OrNot, Ports};

/// Combinations of one rule, and of all.
const MOST: [u64; 2] = [1 << 16, 1 << 20];
/// Rules after which others are asked.
const MOST_GOING_ON: usize = 256;
/// Rules that are compared each with each: beyond them that takes too long.
const COMPARED: usize = 20_000;
/// Groups that name one another, one within the other.
const DEPTH: usize = 16;
/// Ports of a set.
const MOST_PORTS: u32 = 65_536;
/// Addresses or networks of a set.
const MOST_ADDRESSES: u32 = 262_144;
/// Entries of a list.
const MOST_ENTRIES: u16 = 255;

const TCP: u8 = 6;
const UDP: u8 = 17;

const ADDRESSES: &str = "addresses";
const PORTS: &str = "ports";

/// Ranges of groups by name.
type Resolved<V> = HashMap<String, Vec<(V, V)>>;

/// Groups, resolved.
pub(super) struct Groups {
    addresses: Resolved<IpAddr>,
    ports: Resolved<u16>,
    /// Names of sets of addresses and networks, and of those of ports.
    sets: [Vec<String>; 2],
}

impl Groups {
    /// The same without sets, for what asks once and not by address.
    pub(super) fn without_sets(self) -> Self {
        Self {
            sets: Default::default(),
            ..self
        }
    }

    /// The set that a list names, with its sign, if it names one.
    fn set_of<M: Member>(&self, what: &str, list: &OneOrMore<OrNot<M>>) -> Option<OrNot<String>> {
        let sets = &self.sets[usize::from(what == PORTS)];
        let name = |one: &OrNot<M>| {
            let name = one.value.group().filter(|&name| sets.iter().any(|set| set == name))?;
            Some(OrNot {
                not: one.not,
                value: name.to_owned(),
            })
        };
        list.0.iter().find_map(name)
    }
}

/// A member of a list: a range, or a group.
trait Member: Clone {
    type Value: Copy;
    fn group(&self) -> Option<&str>;
    fn range(&self) -> Option<(Self::Value, Self::Value)>;
    /// What is in none of some ranges: addresses of the families that these are of.
    fn others(ranges: Vec<(Self::Value, Self::Value)>) -> Vec<(Self::Value, Self::Value)>;
}

/// What is in none of some ranges, from a first to a last value; `next` is the one after a value, or before it.
fn others<T: Copy + Ord>(
    mut ranges: Vec<(T, T)>,
    first: T,
    last: T,
    next: impl Fn(T, bool) -> Option<T>,
) -> Vec<(T, T)> {
    ranges.sort_unstable();
    let (mut from, mut found) = (Some(first), Vec::new());
    for (begin, end) in ranges {
        let Some(free) = from else { break };
        if let Some(before) = next(begin, false).filter(|before| free <= *before) {
            found.push((free, before));
        }
        from = next(end, true).map(|behind| behind.max(free));
    }
    found.extend(from.filter(|from| *from <= last).map(|from| (from, last)));
    found
}

/// Addresses of one family that are in none of some ranges.
fn other_addresses(ranges: &[(IpAddr, IpAddr)], six: bool) -> Vec<(IpAddr, IpAddr)> {
    let Some(named) = Selection::addresses(ranges, six) else {
        return Vec::new();
    };
    let (first, last) = match six {
        true => (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from_bits(u128::MAX).into()),
        false => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into()),
    };
    let step = |up: bool| {
        move |number: u128| {
            if up {
                number.checked_add(1)
            } else {
                number.checked_sub(1)
            }
        }
    };
    others(named, first, last, |address: IpAddr, up| match address {
        IpAddr::V4(address) => {
            let number = step(up)(address.to_bits().into())?;
            Some(Ipv4Addr::from_bits(u32::try_from(number).ok()?).into())
        }
        IpAddr::V6(address) => Some(Ipv6Addr::from_bits(step(up)(address.to_bits())?).into()),
    })
}

/// Ports, or interfaces.
fn other_numbers(ranges: Vec<(u16, u16)>) -> Vec<(u16, u16)> {
    others(ranges, u16::MIN, u16::MAX, |port, up| {
        if up { port.checked_add(1) } else { port.checked_sub(1) }
    })
}

macro_rules! member {
    ($member:ident, $value:ty, $others:expr) => {
        impl Member for $member {
            type Value = $value;
            fn group(&self) -> Option<&str> {
                match self {
                    Self::Group(name) => Some(name),
                    Self::Range(..) => None,
                }
            }
            fn range(&self) -> Option<($value, $value)> {
                match self {
                    Self::Group(_) => None,
                    Self::Range(first, last) => Some((*first, *last)),
                }
            }
            fn others(ranges: Vec<($value, $value)>) -> Vec<($value, $value)> {
                $others(ranges)
            }
        }
    };
}

member!(Addresses, IpAddr, |ranges: Vec<_>| {
    [false, true]
        .into_iter()
        .flat_map(|six| other_addresses(&ranges, six))
        .collect()
});
member!(Ports, u16, other_numbers);

/// A rule that is to be inserted.
#[derive(Clone, Debug, PartialEq)]
pub struct Inserted {
    /// As it was written.
    pub text: schema::FilterRule,
    /// What it asks and does.
    pub rule: FilterRule,
}

/// Check rules that are to be inserted into the filter of a configuration, of its default router where none is named: `text`
/// has `[[filter.rules]]` alone, each with a name.
///
/// # Errors
/// Everything that is wrong with it, as far as one reading can tell.
pub fn check_rules(name: &str, text: &str, router: Option<&str>, running: &Config) -> Result<Vec<Inserted>, Diagnosis> {
    let (mut document, places) = read(text).map_err(|found| Diagnosis::new(name, text, found))?;
    let rules = document
        .filter
        .as_mut()
        .map_or(Vec::new(), |filter| std::mem::take(&mut filter.rules));
    let empty = Document {
        filter: Some(Filter::default()),
        ..Document::default()
    };
    let alone = document == empty && !rules.is_empty();
    let nameless: Vec<usize> = (0..rules.len()).filter(|&k| rules[k].name.is_none()).collect();
    document.interfaces = running.document.interfaces.clone();
    document.routers = running.document.routers.clone();
    document.applications = running.document.applications.clone();
    let runs = match router {
        Some(router) => running
            .document
            .routers
            .get(router)
            .and_then(|router| router.filter.as_ref()),
        None => running.document.filter.as_ref(),
    };
    if let (Some(filter), Some(runs)) = (&mut document.filter, runs) {
        (filter.addresses, filter.ports) = (runs.addresses.clone(), runs.ports.clone());
        filter.sets = runs.sets.clone();
        filter.sessions = runs.sessions;
        filter.rules = rules;
    }
    let machine = Machine {
        cores: Vec::new(),
        memory: 0,
        entry: EntryBytes::default(),
    };
    let mut check = Check {
        name: "",
        document: &document,
        places,
        machine: &machine,
        found: Vec::new(),
        scope: Scope::top(&document),
        numbering: running.numbering.clone(),
        site_pools: HashMap::new(),
    };
    if !alone {
        check.refuse(&[], FilterProblem::NotRules);
    }
    for k in nameless {
        check.refuse(place!["filter", "rules", k], FilterProblem::NoName);
    }
    // The text says nothing of a router: places in it are those of the top level.
    check.scope.router = router
        .and_then(|name| check.router_number(name))
        .unwrap_or(DEFAULT_ROUTER);
    let mut rules = check.filter();
    let several = running.filter.iter().any(|rule| rule.router.is_some());
    for rule in &mut rules {
        rule.router = several.then_some(check.scope.router);
        if let Some(router) = router {
            rule.name = format!("{router}/{}", rule.name);
        }
    }
    let found = std::mem::take(&mut check.found);
    if found.iter().any(|located| !located.advice) {
        return Err(Diagnosis::new(name, text, found));
    }
    let texts = document.filter.map_or(Vec::new(), |filter| filter.rules);
    let inserted = texts.into_iter().zip(rules).map(|(text, rule)| Inserted { text, rule });
    Ok(inserted.collect())
}

/// What rules take of what a filter may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Rules that go on, or are about applications.
    going_on: usize,
    combinations: u64,
}

impl Weight {
    /// That of a rule.
    pub fn of(rule: &FilterRule) -> Self {
        Self {
            going_on: usize::from(goes_on(rule.action) || rule.selection.is_asked_alone()),
            combinations: rule.selection.combinations(),
        }
    }

    /// That of both.
    pub fn with(self, other: Self) -> Self {
        Self {
            going_on: self.going_on + other.going_on,
            combinations: self.combinations.saturating_add(other.combinations),
        }
    }

    /// That of the others, without one of them.
    pub fn without(self, one: Self) -> Self {
        Self {
            going_on: self.going_on.saturating_sub(one.going_on),
            combinations: self.combinations.saturating_sub(one.combinations),
        }
    }

    /// Whether a filter may have so much.
    ///
    /// # Errors
    /// There are too many rules that go on, or too many combinations.
    pub fn check(self) -> Result<(), FilterProblem> {
        if self.going_on > MOST_GOING_ON {
            return Err(FilterProblem::TooManyGoingOn(self.going_on));
        }
        let (combinations, most) = (self.combinations, MOST[1]);
        match combinations > most {
            true => Err(FilterProblem::TooLarge { combinations, most }),
            false => Ok(()),
        }
    }
}

impl Check<'_> {
    /// The rules of all routers' filters.
    pub(super) fn filters(&mut self) -> Vec<FilterRule> {
        let scopes = self.scopes();
        let mut filters = scopes.iter().filter(|scope| scope.filter.is_some());
        // Most have one filter, and no need to ask whose packets they are.
        let alone = filters.next().is_none_or(|first| first.router == DEFAULT_ROUTER) && filters.next().is_none();
        let mut all = Vec::new();
        for scope in scopes {
            self.scope = scope;
            self.shares_settings();
            let mut rules = self.filter();
            for rule in rules.iter_mut().filter(|_| !alone) {
                rule.router = Some(scope.router);
            }
            all.extend(rules);
        }
        self.scope = Scope::top(self.document);
        let weight = all.iter().map(Weight::of).fold(Weight::default(), Weight::with);
        if let Err(problem) = weight.check() {
            self.refuse(place!["filter", "rules"], problem);
        }
        all
    }

    /// One matcher finds the rules of all routers.
    fn shares_settings(&mut self) {
        let scopes = self.scopes();
        let first = scopes.iter().find_map(|scope| scope.filter);
        let (Some(first), Some(own)) = (first, self.scope.filter) else {
            return;
        };
        for (key, differs) in [
            ("sessions", own.sessions != first.sessions),
            ("matcher", own.matcher != first.matcher),
            ("list-size", own.list_size != first.list_size),
            ("list-search", own.list_search != first.list_search),
            ("trie-memory", own.trie_memory != first.trie_memory),
        ] {
            if differs {
                self.report(place!["filter", key], RouterProblem::FiltersDiffer(key).into());
            }
        }
    }

    fn filter(&mut self) -> Vec<FilterRule> {
        let Some(filter) = self.scope.filter else {
            return Vec::new();
        };
        let groups = self.groups_of(filter);
        self.in_range(
            place!["filter", "trie-memory"],
            "a number of MiB",
            filter.trie_memory,
            1..=65_536,
        );
        if filter.list_size > MOST_ENTRIES {
            self.refuse(place!["filter", "list-size"], FilterProblem::ListSize(filter.list_size));
        }
        let mut rules: Vec<FilterRule> = Vec::new();
        let mut names = HashMap::new();
        for (k, written) in filter.rules.iter().enumerate() {
            let at = place!["filter", "rules", k];
            if let Some(name) = &written.name {
                self.name(&[at, place!["name"]].concat(), name);
                if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
                    self.refuse(&[at, place!["name"]].concat(), FilterProblem::Number(name.clone()));
                }
                if let Some(other) = names.insert(name, k + 1) {
                    self.refuse(&[at, place!["name"]].concat(), FilterProblem::DuplicateName(other));
                }
            }
            let selection = self.selected(at, written, &groups);
            let rate = self.action(at, written);
            let adds_to = self.added_to(at, written, filter);
            rules.push(FilterRule {
                name: self.in_router(written.name.clone().unwrap_or_else(|| (k + 1).to_string())),
                router: None,
                is_default: false,
                action: written.action,
                with: written.with,
                rate,
                new_mark: written.new_mark,
                new_dscp: written.new_dscp.map(|dscp| dscp.0),
                new_ecn: written.new_ecn.map(|ecn| ecn.0),
                track: written.track,
                adds_to,
                selection,
            });
        }
        self.never_decide(&rules);
        if self.scope.table.is_some() {
            rules.push(FilterRule {
                name: self.in_router("default".into()),
                router: None,
                is_default: true,
                action: filter.default.into(),
                with: RejectWith::default(),
                rate: (0, 0),
                new_mark: None,
                new_dscp: None,
                new_ecn: None,
                track: true,
                adds_to: None,
                selection: Selection::default(),
            });
        }
        rules
    }

    /// The sets of all routers' filters.
    pub(super) fn filter_sets(&mut self) -> Vec<FilterSet> {
        let mut found = Vec::new();
        for scope in self.scopes() {
            self.scope = scope;
            let Some(filter) = self.scope.filter else { continue };
            for (name, set) in &filter.sets {
                let at = place!["filter", "sets", name];
                self.name(at, name);
                if filter.addresses.contains_key(name) || filter.ports.contains_key(name) {
                    self.refuse(at, FilterProblem::SetAndGroup(name.clone()));
                }
                let most = if set.kind == SetType::Ports {
                    MOST_PORTS
                } else {
                    MOST_ADDRESSES
                };
                self.in_range(&[at, place!["size"]].concat(), "a size", set.size, 1..=most);
                let at_elements = [at, place!["elements"]].concat();
                let mut count = 0;
                for element in &set.elements {
                    match element.count(set.kind) {
                        Some(of) => count += of,
                        None => {
                            let (element, kind) = (element.to_string(), set.kind);
                            self.refuse(&at_elements, FilterProblem::NotOfSet { element, kind });
                        }
                    }
                }
                if count > set.size as usize {
                    let size = set.size;
                    self.refuse(&at_elements, FilterProblem::SetTooSmall { count, size, most });
                }
                found.push(FilterSet {
                    name: self.in_router(name.clone()),
                    settings: set.clone(),
                });
            }
        }
        self.scope = Scope::top(self.document);
        found
    }

    /// The set that a rule adds to.
    fn added_to(&mut self, at: &[Step<'_>], written: &schema::FilterRule, filter: &Filter) -> Option<String> {
        let of = |key: &'static str| [at, place![key]].concat();
        match (written.action == Action::AddToSet, &written.set) {
            (true, None) => self.refuse(&of("action"), FilterProblem::NoSet),
            (false, Some(_)) => {
                let (key, action) = ("set", "add-to-set");
                self.refuse(&of(key), FilterProblem::NotOfAction { key, action });
            }
            (true, Some(name)) if filter.sets.get(name).is_some_and(|set| set.kind == SetType::Ports) => {
                self.refuse(&of("set"), FilterProblem::AddsToPorts(name.clone()));
            }
            (true, Some(name)) if !filter.sets.contains_key(name) => {
                let known = filter.sets.keys().cloned().collect();
                let name = name.clone();
                self.refuse(&of("set"), FilterProblem::UnknownSet { name, known });
            }
            _ => {}
        }
        written.set.clone().map(|name| self.in_router(name))
    }

    /// The groups of a filter.
    pub(super) fn groups_of(&mut self, filter: &Filter) -> Groups {
        Groups {
            addresses: self.groups(ADDRESSES, &filter.addresses),
            ports: self.groups(PORTS, &filter.ports),
            sets: [false, true].map(|ports| {
                let of = filter
                    .sets
                    .iter()
                    .filter(|(_, set)| (set.kind == SetType::Ports) == ports);
                of.map(|(name, _)| name.clone()).collect()
            }),
        }
    }

    /// A name as it is known to all routers.
    fn in_router(&self, name: String) -> String {
        match self.scope.table {
            Some(router) => format!("{router}/{name}"),
            None => name,
        }
    }

    fn refuse(&mut self, at: &[Step<'_>], problem: FilterProblem) {
        self.report(at, problem.into());
    }

    /// Groups by name, each resolved once.
    fn groups<M: Member>(&mut self, what: &'static str, groups: &IndexMap<String, OneOrMore<M>>) -> Resolved<M::Value> {
        let mut resolved = HashMap::new();
        for name in groups.keys() {
            self.group(what, name, groups, &mut resolved, &mut Vec::new());
        }
        resolved
    }

    /// Resolve a group and those that it names. `within` are the groups that led here.
    fn group<'g, M: Member>(
        &mut self,
        what: &'static str,
        name: &'g str,
        groups: &'g IndexMap<String, OneOrMore<M>>,
        resolved: &mut Resolved<M::Value>,
        within: &mut Vec<&'g str>,
    ) {
        let (Some(members), false) = (groups.get(name), resolved.contains_key(name)) else {
            return;
        };
        let at = place!["filter", what, name];
        self.name(at, name);
        if members.is_empty() {
            self.refuse(at, FilterProblem::EmptyGroup(name.to_owned()));
        }
        self.in_range(at, "a depth of groups", within.len(), 0..=DEPTH);
        if within.len() > DEPTH {
            return;
        }
        // While it is under way it exists, and is empty.
        resolved.insert(name.to_owned(), Vec::new());
        within.push(name);
        for inner in members.0.iter().filter_map(Member::group) {
            match within.contains(&inner) {
                true => self.refuse(at, FilterProblem::GroupOfItself(inner.to_owned())),
                false => self.group(what, inner, groups, resolved, within),
            }
        }
        within.pop();
        let found = self.resolve(at, what, members, resolved);
        resolved.insert(name.to_owned(), found);
    }

    /// All ranges of a list, those of its groups included.
    fn resolve<M: Member>(
        &mut self,
        at: &[Step<'_>],
        what: &'static str,
        list: &OneOrMore<M>,
        groups: &Resolved<M::Value>,
    ) -> Vec<(M::Value, M::Value)> {
        let mut found = Vec::new();
        for member in &list.0 {
            match (member.range(), member.group().and_then(|name| groups.get(name))) {
                (Some(range), _) => found.push(range),
                (None, Some(group)) => found.extend(group),
                (None, None) => {
                    let known = groups.keys().cloned().collect();
                    let name = member.group().unwrap_or_default().to_owned();
                    self.refuse(at, FilterProblem::UnknownGroup { name, what, known });
                }
            }
            // Groups of groups multiply.
            if found.len() as u64 > MOST[0] {
                break;
            }
        }
        found
    }

    /// What a rule matches.
    pub(super) fn selected(&mut self, at: &[Step<'_>], written: &schema::FilterRule, groups: &Groups) -> Selection {
        let of = |key: &'static str| [at, place![key]].concat();
        let protocols = self.protocols(at, written);
        let sets = [("from", &written.from), ("to", &written.to)]
            .map(|(key, list)| self.set_alone(&of(key), ADDRESSES, list, groups));
        let port_sets = [("from-port", &written.from_port), ("to-port", &written.to_port)]
            .map(|(key, list)| self.set_alone(&of(key), PORTS, list, groups));
        let (nothing, no_ports) = (OneOrMore::default(), OneOrMore::default());
        let (gateway, out) = self.ways_out(at, written);
        let from = if sets[0].is_some() { &nothing } else { &written.from };
        let to = if sets[1].is_some() { &nothing } else { &written.to };
        let from_port = if port_sets[0].is_some() {
            &no_ports
        } else {
            &written.from_port
        };
        let to_port = if port_sets[1].is_some() {
            &no_ports
        } else {
            &written.to_port
        };
        let selection = Selection {
            sources: self.selected_of(&of("from"), ADDRESSES, from, &groups.addresses),
            destinations: self.selected_of(&of("to"), ADDRESSES, to, &groups.addresses),
            sets,
            port_sets,
            source_ports: self.selected_of(&of("from-port"), PORTS, from_port, &groups.ports),
            destination_ports: self.selected_of(&of("to-port"), PORTS, to_port, &groups.ports),
            messages: self.messages(&of("icmp"), &written.icmp, &protocols),
            protocols,
            flags: written.flags,
            fragment: written.fragment.map(|part| part as u8),
            dscp: written.dscp.0.iter().map(|dscp| dscp.0).collect(),
            ecn: written.ecn.0.iter().map(|ecn| ecn.0).collect(),
            macs: [
                self.macs(&of("from-mac"), &written.from_mac),
                self.macs(&of("to-mac"), &written.to_mac),
            ],
            length: written.length,
            vlan: written.vlan,
            incoming: self.leads(&of("in"), &written.incoming),
            outgoing: self.leads(&of("out"), &out),
            gateway,
            mark: written.mark.clone(),
            applications: self.named_applications(&of("application"), &written.application),
        };
        if !selection.concerns(false) && !selection.concerns(true) && !selection.sources.is_empty() {
            self.refuse(&of("to"), FilterProblem::MixedFamilies);
        }
        let combinations = selection.combinations();
        if combinations > MOST[0] {
            let most = MOST[0];
            self.refuse(at, FilterProblem::TooLarge { combinations, most });
        }
        if let Some(vlan) = written.vlan {
            self.in_range(&of("vlan"), "a VLAN", vlan.last, 0..=4095);
        }
        selection
    }

    /// The set that a list names, which then stands alone in it.
    fn set_alone<M: Member>(
        &mut self,
        at: &[Step<'_>],
        what: &str,
        list: &OneOrMore<OrNot<M>>,
        groups: &Groups,
    ) -> Option<OrNot<String>> {
        let set = groups.set_of(what, list)?;
        if list.0.len() > 1 {
            self.refuse(at, FilterProblem::SetAmongOthers(set.value.clone()));
        }
        Some(OrNot {
            value: self.in_router(set.value),
            ..set
        })
    }

    /// The rule's protocols: those that it names, or those that its keys are of.
    fn protocols(&mut self, at: &[Step<'_>], written: &schema::FilterRule) -> Vec<u8> {
        let ports = !written.from_port.is_empty() || !written.to_port.is_empty();
        let port = if written.to_port.is_empty() {
            "from-port"
        } else {
            "to-port"
        };
        let at_protocol = [at, place!["protocol"]].concat();
        let (not, named) = self.sign(&at_protocol, &written.protocol);
        let mut named: Vec<u8> = named.into_iter().map(|IpProtocol(number)| number).collect();
        if not {
            named = (0..=u8::MAX).filter(|number| !named.contains(number)).collect();
            if named.is_empty() {
                self.refuse(&at_protocol, FilterProblem::NothingLeft);
            }
        }
        let of: [(bool, &'static str, &[u8], &'static str); 3] = [
            (ports, port, &[TCP, UDP], "tcp and udp"),
            (!written.icmp.is_empty(), "icmp", &[ICMP, ICMPV6], "icmp and icmpv6"),
            (written.flags.is_some(), "flags", &[TCP], "tcp"),
        ];
        let mut found = named.clone();
        for (_, key, has, of) in of.into_iter().filter(|(asked, ..)| *asked) {
            if found.is_empty() {
                found = has.to_vec();
            }
            if named.is_empty() {
                found.retain(|protocol| has.contains(protocol));
            }
            if found.is_empty() || !found.iter().all(|protocol| has.contains(protocol)) {
                let protocol = written
                    .protocol
                    .0
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(", ");
                let protocol = if protocol.is_empty() {
                    "keys of others".into()
                } else {
                    protocol
                };
                self.refuse(
                    &[at, place![key]].concat(),
                    FilterProblem::NotOfProtocol { key, of, protocol },
                );
            }
        }
        found
    }

    fn messages(&mut self, at: &[Step<'_>], list: &OneOrMore<Message>, protocols: &[u8]) -> [Vec<(u16, u16)>; 2] {
        let mut found = [Vec::new(), Vec::new()];
        for message in &list.0 {
            let mut any = false;
            for (six, protocol) in [(false, ICMP), (true, ICMPV6)] {
                let Some(kind) = message.kind(six).filter(|_| protocols.contains(&protocol)) else {
                    continue;
                };
                let kind = u16::from(kind) << 8;
                let code = message.code.map(u16::from);
                found[usize::from(six)].push((kind | code.unwrap_or(0), kind | code.unwrap_or(0xff)));
                any = true;
            }
            if !any {
                self.refuse(at, FilterProblem::NotAMessage(message.to_string()));
            }
        }
        found
    }

    /// Whether packets to the gateway itself are meant, and the interfaces among the values of `out`. An interface of that name
    /// goes before.
    fn ways_out(&mut self, at: &[Step<'_>], written: &schema::FilterRule) -> (bool, OneOrMore<OrNot<schema::Name>>) {
        let is_gateway = |one: &OrNot<schema::Name>| one.value.0 == GATEWAY;
        let named = !self.document.interfaces.contains_key(GATEWAY) && written.out.0.iter().any(is_gateway);
        if !named {
            return (false, written.out.clone());
        }
        let of = |key: &'static str| [at, place![key]].concat();
        let (not, _) = self.sign(&of("out"), &written.out);
        if not {
            self.refuse(&of("out"), FilterProblem::NotGateway);
        }
        if !written.application.is_empty() {
            self.refuse(&of("application"), FilterProblem::NotOfGateway("application"));
        }
        match written.action {
            Action::SetDscp => self.refuse(&of("action"), FilterProblem::NotOfGateway("set-dscp")),
            Action::SetEcn => self.refuse(&of("action"), FilterProblem::NotOfGateway("set-ecn")),
            _ => {}
        }
        if !written.track {
            self.refuse(&of("track"), FilterProblem::NotOfGateway("track"));
        }
        let others = written.out.0.iter().filter(|one| !is_gateway(one)).cloned();
        (!not, OneOrMore(others.collect()))
    }

    fn leads(
        &mut self,
        at: &[Step<'_>],
        names: &OneOrMore<OrNot<schema::Name>>,
    ) -> Vec<(InterfaceIndex, InterfaceIndex)> {
        let (not, names) = self.sign(at, names);
        let named = names.iter().filter_map(|name| self.own_interface(at, &name.0));
        let named: Vec<_> = named.map(|number| (number, number)).collect();
        match not {
            true => other_numbers(named),
            false => named,
        }
    }

    fn macs(&mut self, at: &[Step<'_>], list: &OneOrMore<OrNot<Mac>>) -> MacSelection {
        let (not, mut of) = self.sign(at, list);
        of.sort_unstable();
        of.dedup();
        MacSelection { not, of }
    }

    /// The values of a list, and whether it is all but these that are meant.
    fn sign<T: Clone>(&mut self, at: &[Step<'_>], list: &OneOrMore<OrNot<T>>) -> (bool, Vec<T>) {
        let not = list.0.first().is_some_and(|first| first.not);
        if list.0.iter().any(|one| one.not != not) {
            self.refuse(at, FilterProblem::MixedSigns);
        }
        (not, list.0.iter().map(|one| one.value.clone()).collect())
    }

    /// The ranges of a list, or all others.
    fn selected_of<M: Member>(
        &mut self,
        at: &[Step<'_>],
        what: &'static str,
        list: &OneOrMore<OrNot<M>>,
        groups: &Resolved<M::Value>,
    ) -> Vec<(M::Value, M::Value)> {
        let (not, values) = self.sign(at, list);
        let named = self.resolve(at, what, &OneOrMore(values), groups);
        if !not || named.is_empty() {
            return named;
        }
        let others = M::others(named);
        if others.is_empty() {
            self.refuse(at, FilterProblem::NothingLeft);
        }
        others
    }

    /// Applications by name. Which names there are is known to whoever finds them out.
    fn named_applications(&mut self, at: &[Step<'_>], names: &OneOrMore<schema::Name>) -> Vec<String> {
        if names.is_empty() {
            return Vec::new();
        }
        if self.document.applications.is_none() {
            self.refuse(at, FilterProblem::NobodySeeks);
        }
        if self.scope.filter.is_some_and(|filter| !filter.sessions) {
            self.refuse(at, FilterProblem::NoSessions);
        }
        let icmp = ["ICMP", "ICMPV6"];
        if let Some(name) = names
            .0
            .iter()
            .find(|name| icmp.iter().any(|icmp| icmp.eq_ignore_ascii_case(&name.0)))
        {
            self.refuse(at, FilterProblem::OfProtocol(name.0.clone()));
        }
        names.0.iter().map(|name| name.0.clone()).collect()
    }

    /// What the action needs and what belongs to others; rate and burst.
    fn action(&mut self, at: &[Step<'_>], written: &schema::FilterRule) -> (u32, u32) {
        let of = |key: &'static str| [at, place![key]].concat();
        if written.action != Action::Reject && written.with != RejectWith::default() {
            let (key, action) = ("with", "reject");
            self.refuse(&of(key), FilterProblem::NotOfAction { key, action });
        }
        let limits = written.action == Action::RateLimit;
        for (key, number) in [("rate", written.rate), ("burst", written.burst)] {
            if number.is_some() && !limits {
                let action = "rate-limit";
                self.refuse(&of(key), FilterProblem::NotOfAction { key, action });
            }
            if let Some(number) = number {
                self.in_range(&of(key), "a number of packets", number, 1..=1_000_000_000);
            }
        }
        if limits && written.rate.is_none() {
            self.refuse(&of("action"), FilterProblem::NoRate);
        }
        match (written.action == Action::SetMark, written.new_mark) {
            (true, None) => self.refuse(&of("action"), FilterProblem::NoMark),
            (false, Some(_)) => {
                let (key, action) = ("new-mark", "set-mark");
                self.refuse(&of(key), FilterProblem::NotOfAction { key, action });
            }
            _ => {}
        }
        match (written.action == Action::SetDscp, written.new_dscp) {
            (true, None) => self.refuse(&of("action"), FilterProblem::NoDscp),
            (false, Some(_)) => {
                let (key, action) = ("new-dscp", "set-dscp");
                self.refuse(&of(key), FilterProblem::NotOfAction { key, action });
            }
            _ => {}
        }
        match (written.action == Action::SetEcn, written.new_ecn) {
            (true, None) => self.refuse(&of("action"), FilterProblem::NoEcn),
            (false, Some(_)) => {
                let (key, action) = ("new-ecn", "set-ecn");
                self.refuse(&of(key), FilterProblem::NotOfAction { key, action });
            }
            _ => {}
        }
        if !written.track {
            self.untracked(&of("track"), written);
        }
        let rate = written.rate.unwrap_or(0);
        (rate, written.burst.unwrap_or(rate))
    }

    /// A rule that accepts without a session: what needs one can't be asked of it.
    fn untracked(&mut self, at: &[Step<'_>], written: &schema::FilterRule) {
        if written.action != Action::Accept {
            let (key, action) = ("track", "accept");
            self.refuse(at, FilterProblem::NotOfAction { key, action });
        }
        if !written.application.is_empty() {
            self.refuse(at, FilterProblem::UntrackedApplication);
        }
        if self.scope.filter.is_some_and(|filter| !filter.sessions) {
            self.refuse(at, FilterProblem::NothingTracked);
        }
    }

    /// Rules of which others before them decide everything.
    fn never_decide(&mut self, rules: &[FilterRule]) {
        for (k, rule) in rules.iter().enumerate().take(COMPARED) {
            let decide = rules[..k].iter().filter(|before| !goes_on(before.action));
            let Some(by) = decide
                .into_iter()
                .find(|before| before.selection.covers(&rule.selection))
            else {
                continue;
            };
            let same = !goes_on(rule.action) && (by.action, by.with, by.track) == (rule.action, rule.with, rule.track);
            let (rule, by) = (rule.name.clone(), by.name.clone());
            let problem = match same {
                true => FilterProblem::Redundant { rule, by },
                false => FilterProblem::Shadowed { rule, by },
            };
            self.advise(place!["filter", "rules", k], problem.into());
        }
    }
}

/// Whether later rules are asked after it.
fn goes_on(action: Action) -> bool {
    matches!(
        action,
        Action::Count
            | Action::Log
            | Action::RateLimit
            | Action::SetMark
            | Action::SetDscp
            | Action::SetEcn
            | Action::AddToSet
    )
}

//! The rules as workers ask them and as the control thread changes them, one by one, while they are asked.

use core::hash::BuildHasher;
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluice_table::qns::{BATCH, Key, Match, QnsError, QnsReader, QnsTable, Query};
use sluice_wire::Context;

use super::changes::Changed;
use super::check::{self, ENTRIES, RuleError, ports};
use super::entry::{Said, Stored};
use super::forwarded::{Account, Forwarded};
use super::hits::Hits;
use super::{Destination, DestinationAction, DestinationRule, Prefix, RuleId, SourceAction, SourceRule, Target};
use crate::{Address, Pools, Tuple};

/// What a rule decided, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided<D> {
    /// The rule.
    pub rule: RuleId,
    /// What it says of the flow.
    pub what: D,
}

type Number<A> = <A as Stored>::Number;
type Found<A> = Option<Match<<A as Stored>::Value>>;

/// The rules of a family. A clone asks the same ones.
#[derive(Debug)]
pub struct Rules<A: Address> {
    source: QnsReader<Number<A>>,
    destination: QnsReader<Number<A>>,
    external: QnsReader<Number<A>>,
    shared: Arc<Shared<A>>,
}

#[derive(Debug)]
struct Shared<A: Address> {
    forwarded: Forwarded,
    source_hits: Hits,
    destination_hits: Hits,
    /// The control thread's: no worker asks for it.
    editor: Mutex<Editor<A>>,
}

impl<A: Address> Clone for Rules<A> {
    fn clone(&self) -> Self {
        Self {
            source: self.source.clone(),
            destination: self.destination.clone(),
            external: self.external.clone(),
            shared: self.shared.clone(),
        }
    }
}

impl<A: Address> Default for Rules<A> {
    fn default() -> Self {
        let random = RandomState::new();
        let seed = |which: u64| [random.hash_one(which), random.hash_one(!which)];
        let editor = Editor {
            source: QnsTable::new(seed(0)),
            destination: QnsTable::new(seed(1)),
            external: QnsTable::new(seed(2)),
            externals: HashMap::new(),
            sources: Vec::new(),
            destinations: Vec::new(),
            free_sources: Vec::new(),
            free_destinations: Vec::new(),
            wide: HashMap::new(),
            account: Account::default(),
            changed: Changed::default(),
        };
        Self {
            source: editor.source.reader(),
            destination: editor.destination.reader(),
            external: editor.external.reader(),
            shared: Arc::new(Shared {
                forwarded: Forwarded::default(),
                source_hits: Hits::default(),
                destination_hits: Hits::default(),
                editor: Mutex::new(editor),
            }),
        }
    }
}

impl<A: Address> Rules<A> {
    /// Check the rules, each alone, against each other, and against the pools. They are numbered in this order.
    pub fn new(
        source: &[SourceRule<A>],
        destination: &[DestinationRule<A>],
        pools: &Pools<A>,
    ) -> Result<Self, RuleError> {
        let rules = Self::default();
        for rule in source {
            rules.add_source(rule, pools)?;
        }
        for rule in destination {
            rules.add_destination(rule, pools)?;
        }
        rules.take_changed();
        Ok(rules)
    }

    fn editor(&self) -> MutexGuard<'_, Editor<A>> {
        self.shared.editor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Add a source rule; new flows follow it at once.
    pub fn add_source(&self, rule: &SourceRule<A>, pools: &Pools<A>) -> Result<RuleId, RuleError> {
        self.editor().add_source(rule, pools, &self.shared.source_hits)
    }

    /// Take a source rule away; returns what it was.
    pub fn remove_source(&self, rule: RuleId) -> Option<SourceRule<A>> {
        self.editor().remove_source(rule)
    }

    /// Add a destination rule; new flows follow it at once.
    pub fn add_destination(&self, rule: &DestinationRule<A>, pools: &Pools<A>) -> Result<RuleId, RuleError> {
        self.editor().add_destination(rule, pools, &self.shared)
    }

    /// Take a destination rule away; returns what it was.
    pub fn remove_destination(&self, rule: RuleId) -> Option<DestinationRule<A>> {
        self.editor().remove_destination(rule, &self.shared)
    }

    /// Where rules have changed since this was asked the last time.
    pub fn take_changed(&self) -> Changed {
        std::mem::take(&mut self.editor().changed)
    }

    /// How many rules there are, of both kinds.
    pub fn len(&self) -> usize {
        let editor = self.editor();
        let (sources, destinations) = (editor.sources.len(), editor.destinations.len());
        sources + destinations - editor.free_sources.len() - editor.free_destinations.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `most` source rules by their numbers, and how often each decided.
    pub fn sources(&self, most: usize) -> Vec<(RuleId, SourceRule<A>, u64)> {
        listed(&self.editor().sources, &self.shared.source_hits, most)
    }

    /// The first `most` destination rules by their numbers, and how often each decided.
    pub fn destinations(&self, most: usize) -> Vec<(RuleId, DestinationRule<A>, u64)> {
        listed(&self.editor().destinations, &self.shared.destination_hits, most)
    }

    /// Go on counting where the same rules of a policy before left off.
    pub fn adopt_hits(&self, before: &Self) {
        let old: HashMap<_, _> = before
            .sources(usize::MAX)
            .into_iter()
            .map(|(_, rule, hits)| (rule, hits))
            .collect();
        for (id, rule, _) in self.sources(usize::MAX) {
            old.get(&rule)
                .into_iter()
                .for_each(|&hits| self.shared.source_hits.begin(id, hits));
        }
        let old = before
            .destinations(usize::MAX)
            .into_iter()
            .map(|(_, rule, hits)| (rule, hits));
        let old: HashMap<_, _> = old.collect();
        for (id, rule, _) in self.destinations(usize::MAX) {
            old.get(&rule)
                .into_iter()
                .for_each(|&hits| self.shared.destination_hits.begin(id, hits));
        }
    }

    /// A source rule decided so many flows.
    #[inline(always)]
    pub fn count_source(&self, rule: RuleId, flows: u64) {
        self.shared.source_hits.add(rule, flows);
    }

    /// A destination rule decided so many flows.
    #[inline(always)]
    pub fn count_destination(&self, rule: RuleId, flows: u64) {
        self.shared.destination_hits.add(rule, flows);
    }

    /// May a destination rule send a packet to this address and port elsewhere? A cheap no for most packets.
    #[inline(always)]
    pub fn maybe_forwarded(&self, address: A, port: u16) -> bool {
        self.shared.forwarded.may_have(address, port)
    }

    /// Whether an address is one that the gateway has in the place of inside hosts: of a destination rule for one address,
    /// or one to one. A link's hosts are answered for it.
    pub fn stands_in_for(&self, context: Context, address: A) -> bool {
        let query = Query {
            context,
            address: address.stored(),
            ..Query::default()
        };
        self.external.lookup(&query).is_some()
    }

    /// What the most specific destination rule says of a flow.
    #[inline]
    pub fn decide_destination<T: Tuple<Address = A>>(&self, key: &T, protocol: u8) -> Option<Decided<Destination<A>>> {
        let query = destination_query(key, protocol);
        destination_of(key, self.destination.lookup(&query))
    }

    /// The same of many keys with their protocols, as far as both reach.
    #[inline]
    pub fn decide_destinations<T: Tuple<Address = A>>(
        &self,
        flows: &[(T, u8)],
        decided: &mut [Option<Decided<Destination<A>>>],
    ) {
        for (flows, decided) in flows.chunks(BATCH).zip(decided.chunks_mut(BATCH)) {
            let (mut queries, mut found) = ([Query::default(); BATCH], [None; BATCH]);
            for (query, (key, protocol)) in queries.iter_mut().zip(flows) {
                *query = destination_query(key, *protocol);
            }
            self.destination.lookup_batch(&queries[..flows.len()], &mut found);
            for ((decided, (key, _)), found) in decided.iter_mut().zip(flows).zip(found) {
                *decided = destination_of(key, found);
            }
        }
    }

    /// What the most specific source rule says of a flow. Asked with the key as destination rules left it, and the
    /// interface that the packet leaves through.
    #[inline]
    pub fn decide_source<T: Tuple<Address = A>>(
        &self,
        key: &T,
        protocol: u8,
        interface: u16,
    ) -> Option<Decided<SourceAction<A>>> {
        let query = source_query(key, protocol, interface);
        source_of(key, self.source.lookup(&query))
    }

    /// The same of many keys with their protocols and interfaces, as far as both reach.
    #[inline]
    pub fn decide_sources<T: Tuple<Address = A>>(
        &self,
        flows: &[(T, u8, u16)],
        decided: &mut [Option<Decided<SourceAction<A>>>],
    ) {
        for (flows, decided) in flows.chunks(BATCH).zip(decided.chunks_mut(BATCH)) {
            let (mut queries, mut found) = ([Query::default(); BATCH], [None; BATCH]);
            for (query, (key, protocol, interface)) in queries.iter_mut().zip(flows) {
                *query = source_query(key, *protocol, *interface);
            }
            self.source.lookup_batch(&queries[..flows.len()], &mut found);
            for ((decided, (key, ..)), found) in decided.iter_mut().zip(flows).zip(found) {
                *decided = source_of(key, found);
            }
        }
    }
}

/// A port of a protocol that rules may name ports of.
#[inline(always)]
fn port(protocol: u8, port: u16) -> Option<u16> {
    matches!(protocol, 6 | 17).then_some(port)
}

#[inline(always)]
fn destination_query<T: Tuple>(key: &T, protocol: u8) -> Query<Number<T::Address>> {
    Query {
        context: key.context(),
        address: key.destination().stored(),
        port: port(protocol, key.destination_port()),
        protocol,
        interface: 0,
    }
}

#[inline(always)]
fn source_query<T: Tuple>(key: &T, protocol: u8, interface: u16) -> Query<Number<T::Address>> {
    Query {
        context: key.context(),
        address: key.source().stored(),
        port: port(protocol, key.source_port()),
        protocol,
        interface,
    }
}

#[inline(always)]
fn destination_of<T: Tuple>(key: &T, found: Found<T::Address>) -> Option<Decided<Destination<T::Address>>> {
    let Match { value, length, .. } = found?;
    let said = T::Address::unpack(value);
    let to = |address, port| Destination::To(Target { address, port });
    let what = match said.destination() {
        DestinationAction::Exempt => Destination::Exempt,
        DestinationAction::Host(address, port) => to(address, port.unwrap_or(key.destination_port())),
        DestinationAction::Static(address) => {
            let inside = Prefix { address, length };
            to(inside.same_place(key.destination()), key.destination_port())
        }
    };
    let rule = said.rule();
    Some(Decided { rule, what })
}

#[inline(always)]
fn source_of<T: Tuple>(key: &T, found: Found<T::Address>) -> Option<Decided<SourceAction<T::Address>>> {
    let Match { value, length, .. } = found?;
    let said = T::Address::unpack(value);
    let what = match said.source() {
        SourceAction::Static(address) => {
            let outside = Prefix { address, length };
            SourceAction::Static(outside.same_place(key.source()))
        }
        action => action,
    };
    let rule = said.rule();
    Some(Decided { rule, what })
}

/// Destination rules whose ports are compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Group<A> {
    context: Context,
    external: Prefix<A>,
    protocol: Option<u8>,
}

impl<A: Address> Group<A> {
    fn of(rule: &DestinationRule<A>) -> Self {
        Self {
            context: rule.context,
            external: rule.external,
            protocol: rule.protocol,
        }
    }

    fn key(&self, port: Option<u16>) -> Key<Number<A>> {
        Key {
            context: self.context,
            prefix: self.external.address.stored(),
            length: self.external.length,
            port,
            protocol: self.protocol,
            interface: None,
        }
    }
}

fn source_key<A: Address>(rule: &SourceRule<A>) -> Key<Number<A>> {
    Key {
        context: rule.context,
        prefix: rule.inside.address.stored(),
        length: rule.inside.length,
        port: rule.port,
        protocol: rule.protocol,
        interface: rule.outside,
    }
}

/// The addresses of a rule that the gateway stands in for. Those of a rule that sends a whole network to one host have
/// owners of their own.
fn external_key<A: Address>(rule: &DestinationRule<A>) -> Option<Key<Number<A>>> {
    let one = rule.external.length == A::BITS || matches!(rule.action, DestinationAction::Static(_));
    let group = Group {
        protocol: None,
        ..Group::of(rule)
    };
    one.then(|| group.key(None))
}

/// The control thread's part.
#[derive(Debug)]
struct Editor<A: Address> {
    source: QnsTable<Number<A>>,
    destination: QnsTable<Number<A>>,
    /// Addresses that the gateway stands in for, and how many rules say so.
    external: QnsTable<Number<A>>,
    externals: HashMap<(Context, Prefix<A>), u32>,
    /// Rules by their numbers.
    sources: Vec<Option<SourceRule<A>>>,
    destinations: Vec<Option<DestinationRule<A>>>,
    free_sources: Vec<RuleId>,
    free_destinations: Vec<RuleId>,
    /// Destination rules of more than one port: what they share a port with is within them, or they within that.
    wide: HashMap<Group<A>, Vec<RuleId>>,
    account: Account,
    /// What has changed since somebody asked.
    changed: Changed,
}

fn listed<R: Copy>(rules: &[Option<R>], hits: &Hits, most: usize) -> Vec<(RuleId, R, u64)> {
    let rules = (0..).map(RuleId).zip(rules);
    let rules = rules.filter_map(|(id, rule)| Some((id, (*rule)?, hits.get(id))));
    rules.take(most).collect()
}

/// The number that a new rule gets.
fn next<R>(rules: &[R], free: &[RuleId]) -> RuleId {
    free.last().copied().unwrap_or(RuleId(rules.len() as u32))
}

/// Put a rule at its number.
fn put<R>(rules: &mut Vec<Option<R>>, free: &mut Vec<RuleId>, rule: R) {
    match free.pop().and_then(|RuleId(id)| rules.get_mut(id as usize)) {
        Some(place) => *place = Some(rule),
        None => rules.push(Some(rule)),
    }
}

fn take<R>(rules: &mut [Option<R>], free: &mut Vec<RuleId>, id: RuleId) -> Option<R> {
    let rule = rules.get_mut(id.0 as usize)?.take()?;
    free.push(id);
    Some(rule)
}

/// What a rule says of one of its ports.
fn said_of_port<A: Address>(rule: &DestinationRule<A>, id: RuleId, port: u16) -> Said<A> {
    let action = match rule.action {
        DestinationAction::Host(target, Some(first)) => {
            DestinationAction::Host(target, Some(first + (port - ports(rule).0)))
        }
        action => action,
    };
    Said::of_destination(action, id)
}

impl<A: Address> Editor<A> {
    fn add_source(&mut self, rule: &SourceRule<A>, pools: &Pools<A>, hits: &Hits) -> Result<RuleId, RuleError> {
        let id = next(&self.sources, &self.free_sources);
        check::source(id, rule, pools)?;
        let key = source_key(rule);
        if let Some(other) = self.source.get(&key) {
            let other = A::unpack(other).rule();
            return Err(RuleError::SameSource { rule: other, other: id });
        }
        if id.0 >= RuleId::MOST {
            return Err(RuleError::TooMany { rule: id });
        }
        hits.begin(id, 0);
        let inserted = self.source.insert(&key, A::pack(Said::of_source(rule.action, id)));
        inserted.map_err(|wrong| refused(wrong, id))?;
        put(&mut self.sources, &mut self.free_sources, *rule);
        self.changed.source(rule.inside);
        Ok(id)
    }

    fn remove_source(&mut self, id: RuleId) -> Option<SourceRule<A>> {
        let rule = take(&mut self.sources, &mut self.free_sources, id)?;
        self.source.remove(&source_key(&rule));
        self.changed.source(rule.inside);
        Some(rule)
    }

    fn add_destination(
        &mut self,
        rule: &DestinationRule<A>,
        pools: &Pools<A>,
        shared: &Shared<A>,
    ) -> Result<RuleId, RuleError> {
        let id = next(&self.destinations, &self.free_destinations);
        check::destination(id, rule, pools)?;
        self.check_beside(id, rule)?;
        let entries = rule.ports.map_or(1, |(first, last)| usize::from(last - first) + 1);
        if id.0 >= RuleId::MOST || self.destination.len() + entries > ENTRIES {
            return Err(RuleError::TooMany { rule: id });
        }
        shared.destination_hits.begin(id, 0);
        self.announce(rule, shared);
        if let Err(wrong) = self.enter(id, rule) {
            self.withdraw(id, rule);
            self.renounce(rule, shared);
            return Err(refused(wrong, id));
        }
        if entries > 1 {
            self.wide.entry(Group::of(rule)).or_default().push(id);
        }
        put(&mut self.destinations, &mut self.free_destinations, *rule);
        self.changed.destination(rule.external);
        Ok(id)
    }

    fn remove_destination(&mut self, id: RuleId, shared: &Shared<A>) -> Option<DestinationRule<A>> {
        let rule = take(&mut self.destinations, &mut self.free_destinations, id)?;
        let group = Group::of(&rule);
        if let Some(wide) = self.wide.get_mut(&group) {
            wide.retain(|&other| other != id);
            if wide.is_empty() {
                self.wide.remove(&group);
            }
        }
        self.withdraw(id, &rule);
        self.renounce(&rule, shared);
        self.changed.destination(rule.external);
        Some(rule)
    }

    /// Let it be known where a rule may send packets elsewhere.
    fn announce(&mut self, rule: &DestinationRule<A>, shared: &Shared<A>) {
        if rule.action == DestinationAction::Exempt {
            return;
        }
        self.account.add(&shared.forwarded, rule.external, rule.ports);
        if let Some(key) = external_key(rule) {
            let rules = self.externals.entry((rule.context, rule.external)).or_default();
            *rules += 1;
            if *rules == 1 {
                // With no room the gateway's neighbours have to be told by hand.
                let _ = self.external.insert(&key, Default::default());
            }
        }
    }

    /// A rule is gone.
    fn renounce(&mut self, rule: &DestinationRule<A>, shared: &Shared<A>) {
        if rule.action == DestinationAction::Exempt {
            return;
        }
        self.account.remove(&shared.forwarded, rule.external, rule.ports);
        let place = (rule.context, rule.external);
        if let Some(key) = external_key(rule)
            && let Some(rules) = self.externals.get_mut(&place)
        {
            *rules -= 1;
            if *rules == 0 {
                self.externals.remove(&place);
                self.external.remove(&key);
            }
        }
    }

    /// Of two rules for one group, one is within the other, or they share no port.
    fn check_beside(&self, id: RuleId, rule: &DestinationRule<A>) -> Result<(), RuleError> {
        let group = Group::of(rule);
        let same = |other: RuleId| RuleError::SameDestination { rule: other, other: id };
        let Some((first, last)) = rule.ports else {
            let other = self.destination.get(&group.key(None));
            return other.map_or(Ok(()), |other| Err(same(A::unpack(other).rule())));
        };
        if first == last
            && let Some(other) = self.destination.get(&group.key(Some(first)))
            && let other = A::unpack(other).rule()
            && self.width(other) == 1
        {
            return Err(same(other));
        }
        for &other in self.wide.get(&group).into_iter().flatten() {
            let Some((from, to)) = self.rule(other).and_then(|other| other.ports) else {
                continue;
            };
            let apart = last < from || to < first;
            let within = (from <= first && last <= to) != (first <= from && to <= last);
            if !apart && !within {
                return Err(same(other));
            }
        }
        Ok(())
    }

    fn rule(&self, RuleId(id): RuleId) -> Option<&DestinationRule<A>> {
        self.destinations.get(id as usize)?.as_ref()
    }

    /// How many ports a rule names.
    fn width(&self, id: RuleId) -> u32 {
        let ports = self.rule(id).and_then(|rule| rule.ports);
        ports.map_or(0, |(first, last)| u32::from(last - first) + 1)
    }

    /// Put a rule's entries into the table: not those of ports that a narrower rule has.
    fn enter(&mut self, id: RuleId, rule: &DestinationRule<A>) -> Result<(), QnsError> {
        let group = Group::of(rule);
        let Some((first, last)) = rule.ports else {
            let said = A::pack(Said::of_destination(rule.action, id));
            return self.destination.insert(&group.key(None), said).map(|_| ());
        };
        let width = u32::from(last - first) + 1;
        for port in first..=last {
            let key = group.key(Some(port));
            let narrower = self.destination.get(&key).is_some_and(|other| {
                let other = A::unpack(other).rule();
                other != id && self.width(other) < width
            });
            if !narrower {
                self.destination.insert(&key, A::pack(said_of_port(rule, id, port)))?;
            }
        }
        Ok(())
    }

    /// Take a rule's entries out of the table: the next wider rule has their ports then.
    fn withdraw(&mut self, id: RuleId, rule: &DestinationRule<A>) {
        let group = Group::of(rule);
        let Some((first, last)) = rule.ports else {
            self.destination.remove(&group.key(None));
            return;
        };
        for port in first..=last {
            let key = group.key(Some(port));
            if self
                .destination
                .get(&key)
                .is_none_or(|other| A::unpack(other).rule() != id)
            {
                continue;
            }
            let wider = self.wide.get(&group).into_iter().flatten();
            let wider = wider.filter_map(|&other| Some((other, *self.rule(other)?)));
            let covering = wider.filter(|(other, rule)| {
                let (from, to) = ports(rule);
                *other != id && (from..=to).contains(&port)
            });
            let next = covering.min_by_key(|(_, rule)| ports(rule).1 - ports(rule).0);
            // An entry that is there takes no room: what it says changes.
            let changed = next.map(|(other, rule)| A::pack(said_of_port(&rule, other, port)));
            if changed.is_none_or(|value| self.destination.insert(&key, value).is_err()) {
                self.destination.remove(&key);
            }
        }
    }
}

fn refused(wrong: QnsError, rule: RuleId) -> RuleError {
    match wrong {
        QnsError::Crowded => RuleError::Crowded { rule },
        // Both have been looked at before.
        QnsError::Length(length) => RuleError::TooLong { rule, length },
        QnsError::HostBits => RuleError::Crowded { rule },
    }
}

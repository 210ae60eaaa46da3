//! Rule tables that workers look up while the control thread modifies individual rules.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sluice_table::qns::{BATCH, Match, QnsReader, Query};
use sluice_wire::Context;

use super::changes::Changed;
use super::check::RuleError;
use super::editor::Editor;
use super::entry::Stored;
use super::forwarded::Forwarded;
use super::hits::Hits;
use super::hosts::adopt_states;
use super::{
    Destination, DestinationAction, DestinationRule, FROM_HOST, HostSet, HostSetIndex, Prefix, RuleId, SourceAction,
    SourceRule, Target,
};
use crate::{Address, Pools, Tuple};

/// A matching rule and its action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleMatch<D> {
    /// Rule number.
    pub rule: RuleId,
    /// Action for the flow.
    pub action: D,
    /// Whether the rule specifies the interface through which the packet arrived.
    pub inbound: bool,
}

pub(super) type Number<A> = <A as Stored>::Number;
type Found<A> = Option<Match<<A as Stored>::Value>>;

/// Rules of an address family. Clones share the tables.
#[derive(Debug)]
pub struct Rules<A: Address> {
    source: QnsReader<Number<A>>,
    destination: QnsReader<Number<A>>,
    external: QnsReader<Number<A>>,
    shared: Arc<Shared<A>>,
    sets: Arc<[HostSet<A>]>,
}

#[derive(Debug)]
pub(super) struct Shared<A: Address> {
    pub forwarded: Forwarded,
    pub source_hits: Hits,
    pub destination_hits: Hits,
    /// State that only the control thread uses.
    editor: Mutex<Editor<A>>,
}

impl<A: Address> Clone for Rules<A> {
    fn clone(&self) -> Self {
        Self {
            source: self.source.clone(),
            destination: self.destination.clone(),
            external: self.external.clone(),
            shared: self.shared.clone(),
            sets: self.sets.clone(),
        }
    }
}

impl<A: Address> Default for Rules<A> {
    fn default() -> Self {
        let editor = Editor::new();
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
            sets: Arc::default(),
        }
    }
}

impl<A: Address> Rules<A> {
    /// Validates the rules individually, against each other, and against the pools. Rules are numbered in the order of
    /// the arguments.
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

    /// Sets the host sets over which destination rules balance flows.
    pub fn with_sets(self, sets: Vec<HostSet<A>>) -> Self {
        Self {
            sets: sets.into(),
            ..self
        }
    }

    /// Takes over the states of hosts from the rules of an earlier snapshot.
    pub fn adopt_states(&mut self, before: &Self) {
        let mut sets = self.sets.to_vec();
        adopt_states(&mut sets, &before.sets);
        self.sets = sets.into();
    }

    /// Host sets by index.
    #[inline]
    pub fn sets(&self) -> &[HostSet<A>] {
        &self.sets
    }

    /// Host set with this index.
    #[inline]
    pub fn set(&self, set: HostSetIndex) -> Option<&HostSet<A>> {
        self.sets.get(usize::from(set))
    }

    fn editor(&self) -> MutexGuard<'_, Editor<A>> {
        self.shared.editor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a source rule. The rule applies to new flows immediately.
    pub fn add_source(&self, rule: &SourceRule<A>, pools: &Pools<A>) -> Result<RuleId, RuleError> {
        self.editor().add_source(rule, pools, &self.shared.source_hits)
    }

    /// Removes a source rule and returns it.
    pub fn remove_source(&self, rule: RuleId) -> Option<SourceRule<A>> {
        self.editor().remove_source(rule)
    }

    /// Adds a destination rule. The rule applies to new flows immediately.
    pub fn add_destination(&self, rule: &DestinationRule<A>, pools: &Pools<A>) -> Result<RuleId, RuleError> {
        self.editor().add_destination(rule, pools, &self.shared)
    }

    /// Removes a destination rule and returns it.
    pub fn remove_destination(&self, rule: RuleId) -> Option<DestinationRule<A>> {
        self.editor().remove_destination(rule, &self.shared)
    }

    /// The regions in which rules have changed since the last call.
    pub fn take_changed(&self) -> Changed {
        std::mem::take(&mut self.editor().changed)
    }

    /// Number of source rules and destination rules.
    pub fn len(&self) -> usize {
        let editor = self.editor();
        let (sources, destinations) = (editor.sources.len(), editor.destinations.len());
        sources + destinations - editor.free_sources.len() - editor.free_destinations.len()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `max` source rules in order of their numbers, with their hit counts.
    pub fn sources(&self, max: usize) -> Vec<(RuleId, SourceRule<A>, u64)> {
        listed(&self.editor().sources, &self.shared.source_hits, max)
    }

    /// The first `max` destination rules in order of their numbers, with their hit counts.
    pub fn destinations(&self, max: usize) -> Vec<(RuleId, DestinationRule<A>, u64)> {
        listed(&self.editor().destinations, &self.shared.destination_hits, max)
    }

    /// Takes over the hit counts of equal rules from an earlier snapshot.
    pub fn adopt_hits(&self, before: &Self) {
        let old: HashMap<_, _> = before
            .sources(usize::MAX)
            .into_iter()
            .map(|(_, rule, hits)| (rule, hits))
            .collect();
        for (id, rule, _) in self.sources(usize::MAX) {
            old.get(&rule)
                .into_iter()
                .for_each(|&hits| self.shared.source_hits.start(id, hits));
        }
        let old = before
            .destinations(usize::MAX)
            .into_iter()
            .map(|(_, rule, hits)| (rule, hits));
        let old: HashMap<_, _> = old.collect();
        for (id, rule, _) in self.destinations(usize::MAX) {
            old.get(&rule)
                .into_iter()
                .for_each(|&hits| self.shared.destination_hits.start(id, hits));
        }
    }

    /// Adds `flows` to the hit count of a source rule.
    #[inline(always)]
    pub fn count_source(&self, rule: RuleId, flows: u64) {
        self.shared.source_hits.add(rule, flows);
    }

    /// Adds `flows` to the hit count of a destination rule.
    #[inline(always)]
    pub fn count_destination(&self, rule: RuleId, flows: u64) {
        self.shared.destination_hits.add(rule, flows);
    }

    /// Whether a destination rule may translate a packet to this address and port. False for most packets, which then
    /// need no rule lookup.
    #[inline(always)]
    pub fn maybe_forwarded(&self, address: A, port: u16) -> bool {
        self.shared.forwarded.may_forward(address, port)
    }

    /// Whether the gateway answers ARP and neighbour discovery for an address. The gateway answers if the address
    /// belongs to a destination rule for a single address, or to a one-to-one rule.
    pub fn proxies_for(&self, context: Context, address: A) -> bool {
        let query = Query {
            context,
            address: address.stored(),
            ..Query::default()
        };
        self.external.lookup(&query).is_some()
    }

    /// The most specific destination rule for a flow that arrives through an interface.
    #[inline]
    pub fn match_destination<T: Tuple<Address = A>>(
        &self,
        key: &T,
        protocol: u8,
        interface: u16,
    ) -> Option<RuleMatch<Destination<A>>> {
        let query = destination_query(key, protocol, interface);
        destination_of(key, self.destination.lookup(&query))
    }

    /// Like [`Rules::match_destination`], for several keys with their protocols and interfaces. If the slices differ in
    /// length, only as many keys are matched as the shortest slice has elements.
    #[inline]
    pub fn match_destinations<T: Tuple<Address = A>>(
        &self,
        flows: &[(T, u8, u16)],
        decided: &mut [Option<RuleMatch<Destination<A>>>],
    ) {
        if self.destination.is_empty() {
            return decided.fill(None);
        }
        for (flows, decided) in flows.chunks(BATCH).zip(decided.chunks_mut(BATCH)) {
            let (mut queries, mut found) = ([Query::default(); BATCH], [None; BATCH]);
            for (query, (key, protocol, interface)) in queries.iter_mut().zip(flows) {
                *query = destination_query(key, *protocol, *interface);
            }
            self.destination.lookup_batch(&queries[..flows.len()], &mut found);
            for ((decided, (key, ..)), found) in decided.iter_mut().zip(flows).zip(found) {
                *decided = destination_of(key, found);
            }
        }
    }

    /// The most specific source rule for a flow. The key must be the key after destination translation, and the
    /// interface must be the output interface.
    #[inline]
    pub fn match_source<T: Tuple<Address = A>>(
        &self,
        key: &T,
        protocol: u8,
        interface: u16,
    ) -> Option<RuleMatch<SourceAction<A>>> {
        let query = source_query(key, protocol, interface);
        source_of(key, self.source.lookup(&query))
    }

    /// The most specific source rule for a flow that the router's host stack sends.
    pub fn match_host_source<T: Tuple<Address = A>>(
        &self,
        key: &T,
        protocol: u8,
        interface: u16,
    ) -> Option<RuleMatch<SourceAction<A>>> {
        let mut query = source_query(key, protocol, interface);
        query.context |= FROM_HOST;
        source_of(key, self.source.lookup(&query))
    }

    /// The most specific destination rule for a flow that the router's host stack sends.
    pub fn match_host_destination<T: Tuple<Address = A>>(
        &self,
        key: &T,
        protocol: u8,
    ) -> Option<RuleMatch<Destination<A>>> {
        let mut query = destination_query(key, protocol, 0);
        query.context |= FROM_HOST;
        destination_of(key, self.destination.lookup(&query))
    }

    /// Like [`Rules::match_source`], for several keys with their protocols and interfaces. If the slices differ in
    /// length, only as many keys are matched as the shortest slice has elements.
    #[inline]
    pub fn match_sources<T: Tuple<Address = A>>(
        &self,
        flows: &[(T, u8, u16)],
        decided: &mut [Option<RuleMatch<SourceAction<A>>>],
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

/// The port, if rules can match ports of this protocol.
#[inline(always)]
fn port(protocol: u8, port: u16) -> Option<u16> {
    matches!(protocol, 6 | 17).then_some(port)
}

#[inline(always)]
fn destination_query<T: Tuple>(key: &T, protocol: u8, interface: u16) -> Query<Number<T::Address>> {
    Query {
        context: key.context(),
        address: key.destination().stored(),
        port: port(protocol, key.destination_port()),
        protocol,
        interface,
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
fn destination_of<T: Tuple>(key: &T, found: Found<T::Address>) -> Option<RuleMatch<Destination<T::Address>>> {
    let Match { value, length, .. } = found?;
    let entry = T::Address::unpack(value);
    let to = |address, port| Destination::To(Target { address, port });
    let translated = match entry.destination() {
        DestinationAction::Exempt => Destination::Exempt,
        DestinationAction::Host(address, port) => to(address, port.unwrap_or(key.destination_port())),
        DestinationAction::Hosts(set, port) => Destination::Among(set, port.unwrap_or(key.destination_port())),
        DestinationAction::Static(address) => {
            let inside = Prefix { address, length };
            to(inside.with_host_bits_of(key.destination()), key.destination_port())
        }
    };
    Some(RuleMatch {
        rule: entry.rule(),
        action: translated,
        inbound: entry.is_inbound(),
    })
}

#[inline(always)]
fn source_of<T: Tuple>(key: &T, found: Found<T::Address>) -> Option<RuleMatch<SourceAction<T::Address>>> {
    let Match { value, length, .. } = found?;
    let entry = T::Address::unpack(value);
    let translated = match entry.source() {
        SourceAction::Static(address) => {
            let outside = Prefix { address, length };
            SourceAction::Static(outside.with_host_bits_of(key.source()))
        }
        action => action,
    };
    Some(RuleMatch {
        rule: entry.rule(),
        action: translated,
        inbound: false,
    })
}

fn listed<R: Copy>(rules: &[Option<R>], hits: &Hits, max: usize) -> Vec<(RuleId, R, u64)> {
    let rules = (0..).map(RuleId).zip(rules);
    let rules = rules.filter_map(|(id, rule)| Some((id, (*rule)?, hits.get(id))));
    rules.take(max).collect()
}

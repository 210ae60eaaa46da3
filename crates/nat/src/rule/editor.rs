//! Modification of rules by the control thread.

use core::hash::BuildHasher;
use std::collections::HashMap;
use std::hash::RandomState;

use sluice_table::qns::{Key, QnsError, QnsTable};
use sluice_wire::Context;

use super::changes::Changed;
use super::check::{self, ENTRIES, RuleError, ports};
use super::entry::RuleEntry;
use super::forwarded::Account;
use super::hits::Hits;
use super::rules::{Number, Shared};
use super::{DestinationAction, DestinationRule, FROM_HOST, Prefix, RuleId, SourceRule};
use crate::{Address, Pools};

/// Key of a group of destination rules whose match conditions are equal except for the ports. The ports of the rules in
/// a group must be compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Group<A> {
    context: Context,
    external: Prefix<A>,
    protocol: Option<u8>,
    inbound: Option<u16>,
}

impl<A: Address> Group<A> {
    fn of(rule: &DestinationRule<A>) -> Self {
        Self {
            context: rule.context,
            external: rule.external,
            protocol: rule.protocol,
            inbound: rule.inbound,
        }
    }

    fn key(&self, port: Option<u16>) -> Key<Number<A>> {
        Key {
            context: self.context,
            prefix: self.external.address.stored(),
            length: self.external.length,
            port,
            protocol: self.protocol,
            interface: self.inbound,
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

/// Key of a rule's external address for which the gateway answers ARP and neighbour discovery. `None` for a rule with
/// an inbound interface. `None` also for a rule that maps a whole network to one host, because hosts of that network
/// answer for their addresses.
fn external_key<A: Address>(rule: &DestinationRule<A>) -> Option<Key<Number<A>>> {
    if rule.context & FROM_HOST != 0 {
        return None;
    }
    let one = rule.external.length == A::BITS || matches!(rule.action, DestinationAction::Static(_));
    let group = Group {
        protocol: None,
        inbound: None,
        ..Group::of(rule)
    };
    one.then(|| group.key(None))
}

/// State of the rules that only the control thread accesses.
#[derive(Debug)]
pub struct Editor<A: Address> {
    pub source: QnsTable<Number<A>>,
    pub destination: QnsTable<Number<A>>,
    /// Addresses for which the gateway answers ARP and neighbour discovery, each with its number of rules.
    pub external: QnsTable<Number<A>>,
    externals: HashMap<(Context, Prefix<A>), u32>,
    /// Source rules by number.
    pub sources: Vec<Option<SourceRule<A>>>,
    pub destinations: Vec<Option<DestinationRule<A>>>,
    pub free_sources: Vec<RuleId>,
    pub free_destinations: Vec<RuleId>,
    /// Destination rules with more than one port. If two rules of a group have a common port, the port range of one
    /// rule contains the port range of the other.
    wide: HashMap<Group<A>, Vec<RuleId>>,
    account: Account,
    /// Rule changes since the last call of [`super::Rules::take_changed`].
    pub changed: Changed,
}

/// Number of the next new rule.
fn next<R>(rules: &[R], free: &[RuleId]) -> RuleId {
    free.last().copied().unwrap_or(RuleId(rules.len() as u32))
}

/// Stores a rule at its number.
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

/// Table entry for one port of a rule.
fn entry_of_port<A: Address>(rule: &DestinationRule<A>, id: RuleId, port: u16) -> RuleEntry<A> {
    let action = match rule.action {
        DestinationAction::Host(target, Some(first)) => {
            DestinationAction::Host(target, Some(first + (port - ports(rule).0)))
        }
        DestinationAction::Hosts(set, Some(first)) => {
            DestinationAction::Hosts(set, Some(first + (port - ports(rule).0)))
        }
        action => action,
    };
    RuleEntry::of_destination(action, id, rule.inbound.is_some())
}

impl<A: Address> Editor<A> {
    /// Creates an editor without rules.
    pub fn new() -> Self {
        let random = RandomState::new();
        let seed = |which: u64| [random.hash_one(which), random.hash_one(!which)];
        Self {
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
        }
    }

    pub fn add_source(&mut self, rule: &SourceRule<A>, pools: &Pools<A>, hits: &Hits) -> Result<RuleId, RuleError> {
        let id = next(&self.sources, &self.free_sources);
        check::source(id, rule, pools)?;
        let key = source_key(rule);
        if let Some(other) = self.source.get(&key) {
            let other = A::unpack(other).rule();
            return Err(RuleError::SameSource { rule: other, other: id });
        }
        if id.0 >= RuleId::MAX {
            return Err(RuleError::TooMany { rule: id });
        }
        hits.start(id, 0);
        let inserted = self.source.insert(&key, A::pack(RuleEntry::of_source(rule.action, id)));
        inserted.map_err(|wrong| refused(wrong, id))?;
        put(&mut self.sources, &mut self.free_sources, *rule);
        self.changed.source(rule.inside);
        Ok(id)
    }

    pub fn remove_source(&mut self, id: RuleId) -> Option<SourceRule<A>> {
        let rule = take(&mut self.sources, &mut self.free_sources, id)?;
        self.source.remove(&source_key(&rule));
        self.changed.source(rule.inside);
        Some(rule)
    }

    pub fn add_destination(
        &mut self,
        rule: &DestinationRule<A>,
        pools: &Pools<A>,
        shared: &Shared<A>,
    ) -> Result<RuleId, RuleError> {
        let id = next(&self.destinations, &self.free_destinations);
        check::destination(id, rule, pools)?;
        self.check_overlaps(id, rule)?;
        let entries = rule.ports.map_or(1, |(first, last)| usize::from(last - first) + 1);
        if id.0 >= RuleId::MAX || self.destination.len() + entries > ENTRIES {
            return Err(RuleError::TooMany { rule: id });
        }
        shared.destination_hits.start(id, 0);
        self.announce(rule, shared);
        if let Err(wrong) = self.enter(id, rule) {
            self.withdraw(id, rule);
            self.unregister(rule, shared);
            return Err(refused(wrong, id));
        }
        if entries > 1 {
            self.wide.entry(Group::of(rule)).or_default().push(id);
        }
        put(&mut self.destinations, &mut self.free_destinations, *rule);
        self.changed.destination(rule.external);
        Ok(id)
    }

    pub fn remove_destination(&mut self, id: RuleId, shared: &Shared<A>) -> Option<DestinationRule<A>> {
        let rule = take(&mut self.destinations, &mut self.free_destinations, id)?;
        let group = Group::of(&rule);
        if let Some(wide) = self.wide.get_mut(&group) {
            wide.retain(|&other| other != id);
            if wide.is_empty() {
                self.wide.remove(&group);
            }
        }
        self.withdraw(id, &rule);
        self.unregister(&rule, shared);
        self.changed.destination(rule.external);
        Some(rule)
    }

    /// Adds a new destination rule to the pre-filter and to the external addresses.
    fn announce(&mut self, rule: &DestinationRule<A>, shared: &Shared<A>) {
        if rule.action == DestinationAction::Exempt {
            return;
        }
        self.account.add(&shared.forwarded, rule.external, rule.ports);
        if let Some(key) = external_key(rule) {
            let rules = self.externals.entry((rule.context, rule.external)).or_default();
            *rules += 1;
            if *rules == 1 {
                // If the table is full, the gateway does not answer ARP for this address. Neighbours then need a static
                // ARP entry.
                let _ = self.external.insert(&key, Default::default());
            }
        }
    }

    /// Removes a destination rule from the pre-filter and from the external addresses.
    fn unregister(&mut self, rule: &DestinationRule<A>, shared: &Shared<A>) {
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

    /// Checks that the port ranges of a group's rules are nested or disjoint.
    fn check_overlaps(&self, id: RuleId, rule: &DestinationRule<A>) -> Result<(), RuleError> {
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

    /// Number of ports of a rule.
    fn width(&self, id: RuleId) -> u32 {
        let ports = self.rule(id).and_then(|rule| rule.ports);
        ports.map_or(0, |(first, last)| u32::from(last - first) + 1)
    }

    /// Adds an entry to the table for each port of a rule, except for ports that a narrower rule contains.
    fn enter(&mut self, id: RuleId, rule: &DestinationRule<A>) -> Result<(), QnsError> {
        let group = Group::of(rule);
        let Some((first, last)) = rule.ports else {
            let entry = A::pack(RuleEntry::of_destination(rule.action, id, rule.inbound.is_some()));
            return self.destination.insert(&group.key(None), entry).map(|_| ());
        };
        let width = u32::from(last - first) + 1;
        for port in first..=last {
            let key = group.key(Some(port));
            let narrower = self.destination.get(&key).is_some_and(|other| {
                let other = A::unpack(other).rule();
                other != id && self.width(other) < width
            });
            if !narrower {
                self.destination.insert(&key, A::pack(entry_of_port(rule, id, port)))?;
            }
        }
        Ok(())
    }

    /// Removes the entries of a rule from the table. If a wider rule contains a port of the removed rule, the port gets
    /// an entry of the narrowest such rule.
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
            // Replacing an existing value succeeds, because it needs no space in the table.
            let changed = next.map(|(other, rule)| A::pack(entry_of_port(&rule, other, port)));
            if changed.is_none_or(|value| self.destination.insert(&key, value).is_err()) {
                self.destination.remove(&key);
            }
        }
    }
}

fn refused(wrong: QnsError, rule: RuleId) -> RuleError {
    match wrong {
        QnsError::Crowded => RuleError::Crowded { rule },
        // The prefix length and the host bits were validated before.
        QnsError::Length(length) => RuleError::TooLong { rule, length },
        QnsError::HostBits => RuleError::Crowded { rule },
    }
}

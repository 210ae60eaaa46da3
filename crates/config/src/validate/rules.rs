//! Validation of translation rules in relation to each other and to pools.

use ipnet::Ipv4Net;
use std::collections::{HashMap, HashSet};

use super::Check;
use super::routers::Scope;
use crate::config::{
    DestinationAction, DestinationRule, HostSet, Interface, InterfaceIndex, PoolIndex, SourceAction, SourceRule,
};
use crate::problem::Problem;
use crate::read::{Step, place};
use crate::schema;
use crate::value::{AddressRange, PortRange, Prefix, Transport};

/// Conditions of a rule except its ports: network, whether the rule applies to the host stack, protocol, and interface.
pub(super) type Part = (Ipv4Net, bool, Option<Transport>, Option<InterfaceIndex>);

/// Rules that were validated so far.
#[derive(Default)]
pub(super) struct Rules {
    pub source: Vec<SourceRule>,
    pub destination: Vec<DestinationRule>,
    /// Conditions of the source rules.
    sources: HashSet<Part>,
    /// Ports of the destination rules, by the other conditions of the rules.
    ports: HashMap<Part, Vec<Option<PortRange>>>,
    /// Sets of hosts over which destination rules balance flows.
    pub host_sets: Vec<HostSet>,
}

impl Check<'_> {
    /// Rules of all routers.
    pub(super) fn rules(&mut self, interfaces: &[Interface]) -> Rules {
        let mut all = Rules::default();
        for scope in self.scopes() {
            self.scope = scope;
            // Sets of hosts are numbered consecutively over all routers.
            let host_sets = std::mem::take(&mut all.host_sets);
            let rules = self.rules_of(scope, interfaces, host_sets);
            all.host_sets = rules.host_sets;
            self.equal_rules(&rules.sources, &rules.ports);
            all.source.extend(rules.source);
            all.destination.extend(rules.destination);
        }
        self.scope = Scope::top(self.document);
        self.rule_numbers(&all);
        all
    }

    fn rules_of(&mut self, scope: Scope<'_>, interfaces: &[Interface], host_sets: Vec<HostSet>) -> Rules {
        let mut rules = Rules {
            host_sets,
            ..Rules::default()
        };
        for (k, written) in scope.source.iter().enumerate() {
            self.source_rule(place!["nat", "source", k], written, &mut rules);
        }
        for (k, written) in scope.destination.iter().enumerate() {
            self.destination_rule(k, written, interfaces, &mut rules);
        }
        for (k, written) in scope.one_to_one.iter().enumerate() {
            self.static_rule(k, written, &mut rules);
        }
        for (k, written) in scope.exempt.iter().enumerate() {
            self.exempt_rule(k, written, &mut rules);
        }
        rules
    }

    fn source_rule(&mut self, at: &[Step<'_>], written: &schema::SourceRule, rules: &mut Rules) {
        let from = self.network(&[at, place!["from"]].concat(), written.from);
        let out = self.leaves_by(&[at, place!["out"]].concat(), written.out.as_ref());
        let pools = &self.document.nat.pools;
        let pool = pools
            .get_index_of(&written.pool)
            .and_then(|pool| PoolIndex::try_from(pool).ok());
        let Some(pool) = pool else {
            let known = pools.keys().cloned().collect();
            let name = written.pool.clone();
            return self.report(&[at, place!["pool"]].concat(), Problem::UnknownPool { name, known });
        };
        if written.local {
            self.own_source(at, written);
        }
        let part = (from, written.local, written.protocol, out);
        self.add_source(&[at, place!["from"]].concat(), part, SourceAction::Pool(pool), rules);
    }

    /// Rules for a static mapping: one for connections from the hosts, and one for connections to the hosts.
    fn static_rule(&mut self, k: usize, written: &schema::StaticRule, rules: &mut Rules) {
        let inside = self.network(place!["nat", "static", k, "inside"], written.inside);
        let outside = self.network(place!["nat", "static", k, "outside"], written.outside);
        let out = self.leaves_by(place!["nat", "static", k, "out"], written.out.as_ref());
        let (Some(inside), Some(outside)) = (inside, outside) else {
            return;
        };
        let at = place!["nat", "static", k, "outside"];
        if inside.prefix_len() != outside.prefix_len() {
            let (inside, outside) = (written.inside, written.outside);
            return self.report(at, Problem::StaticSizes { inside, outside });
        }
        let earlier = self.scope.one_to_one.iter().take(k);
        let mut earlier = earlier.filter_map(|other| other.outside.ipv4());
        if earlier.any(|other| other != outside && (other.contains(&outside) || outside.contains(&other))) {
            self.report(at, Problem::StaticsOverlap(written.outside));
        }
        let range = AddressRange::new(outside.network(), outside.broadcast());
        let pools = self.own_pools();
        let mut held = pools
            .into_iter()
            .chain(self.unused_pools())
            .flat_map(|(name, pool)| pool.addresses.iter().map(move |range| (name, range)));
        let held = held.find_map(|(name, other)| Some((name.clone(), range?.overlap(other)?)));
        if let Some((pool, overlap)) = held {
            let outside = written.outside;
            self.report(at, Problem::StaticInPool { outside, overlap, pool });
        }
        let from = place!["nat", "static", k, "inside"];
        self.add_source(
            from,
            (Some(inside), false, None, out),
            SourceAction::Static(outside),
            rules,
        );
        let rule = DestinationRule {
            router: self.scope.router,
            own: false,
            protocol: None,
            address: outside,
            incoming: None,
            ports: None,
            action: DestinationAction::Static(inside),
        };
        self.add_destination(at, rule, rules);
    }

    fn exempt_rule(&mut self, k: usize, written: &schema::ExemptRule, rules: &mut Rules) {
        match (written.to, written.from) {
            (Some(to), None) => {
                if written.out.is_some() {
                    self.report(place!["nat", "exempt", k, "out"], Problem::ExemptKey("out", "to"));
                }
                let at = place!["nat", "exempt", k, "to"];
                if let Some(address) = self.network(at, to) {
                    let rule = DestinationRule {
                        router: self.scope.router,
                        own: false,
                        protocol: written.protocol,
                        address,
                        incoming: None,
                        ports: written.port,
                        action: DestinationAction::Exempt,
                    };
                    self.add_destination(at, rule, rules);
                }
            }
            (None, Some(from)) => {
                if written.port.is_some() {
                    self.report(place!["nat", "exempt", k, "port"], Problem::ExemptKey("port", "from"));
                }
                let out = self.leaves_by(place!["nat", "exempt", k, "out"], written.out.as_ref());
                let at = place!["nat", "exempt", k, "from"];
                let from = self.network(at, from);
                self.add_source(at, (from, false, written.protocol, out), SourceAction::Exempt, rules);
            }
            _ => self.report(place!["nat", "exempt", k], Problem::ExemptEnds),
        }
    }

    /// Convert a network to IPv4. An IPv6 network is reported.
    fn network(&mut self, at: &[Step<'_>], written: Prefix) -> Option<Ipv4Net> {
        let net = written.ipv4();
        if net.is_none() {
            self.report(at, Problem::NotIpv4(written.to_string()));
        }
        net
    }

    /// Output interface of a rule. `None` if the rule specifies no interface.
    fn leaves_by(&mut self, at: &[Step<'_>], out: Option<&String>) -> Option<InterfaceIndex> {
        out.and_then(|out| self.own_interface(at, out))
    }

    fn add_source(
        &mut self,
        at: &[Step<'_>],
        (from, own, protocol, out): (Option<Ipv4Net>, bool, Option<Transport>, Option<InterfaceIndex>),
        action: SourceAction,
        rules: &mut Rules,
    ) {
        let Some(from) = from else { return };
        if !rules.sources.insert((from, own, protocol, out)) {
            return self.report(at, Problem::DuplicateSource(Prefix::of(from.into())));
        }
        rules.source.push(SourceRule {
            router: self.scope.router,
            own,
            from,
            protocol,
            out,
            action,
        });
    }

    /// Add a destination rule. If two rules differ only in their ports, the ports must be disjoint, or one rule must
    /// contain all ports of the other.
    pub(super) fn add_destination(&mut self, at: &[Step<'_>], rule: DestinationRule, rules: &mut Rules) {
        let others = rules
            .ports
            .entry((rule.address, rule.own, rule.protocol, rule.incoming))
            .or_default();
        let protocol = rule.protocol.map_or(String::new(), |protocol| format!("`{protocol}` "));
        let description = others.iter().find_map(|other| match (other, rule.ports) {
            (None, None) => Some(format!("all {protocol}packets to ports without a rule of their own")),
            (Some(other), Some(ports)) => {
                let both = other.overlap(&ports)?;
                let within = *other != ports && (both == *other || both == ports);
                (!within).then(|| format!("{protocol}port {both}"))
            }
            _ => None,
        });
        others.push(rule.ports);
        if let Some(description) = description {
            let address = rule.address;
            return self.report(at, Problem::DestinationsOverlap { address, description });
        }
        rules.destination.push(rule);
    }
}

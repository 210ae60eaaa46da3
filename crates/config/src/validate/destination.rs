//! Validation of destination rules.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;

use super::Check;
use super::routers::DEFAULT;
use super::rules::Rules;
use crate::config::{DestinationAction, DestinationRule, HostCheck, HostSet, Interface, InterfaceIndex};
use crate::problem::{DestinationProblem, MAX_HOSTS, Problem};
use crate::read::{Step, place};
use crate::schema;
use crate::value::{PortRange, Target, TargetHost, Transport};

/// Input interfaces of a rule without the key `in`.
const ANY_INTERFACE: &[Option<InterfaceIndex>] = &[None];

impl Check<'_> {
    pub(super) fn destination_rule(
        &mut self,
        k: usize,
        written: &schema::DestinationRule,
        interfaces: &[Interface],
        rules: &mut Rules,
    ) {
        let at = place!["nat", "destination", k];
        if let Some(address) = written.address {
            self.host(&[at, place!["address"]].concat(), IpAddr::V4(address));
        }
        let incoming = self.incoming(at, written);
        if written.local {
            self.own_destination(at, written);
        }
        if written.address.is_none() && written.incoming.is_empty() && !written.local {
            return self.report(at, DestinationProblem::Anywhere.into());
        }
        if !written.local {
            self.forwards_pool_port(k, written, &incoming, interfaces);
        }
        let first = written.to_port.map(|port| port.number());
        let moved = match (written.port, first) {
            (None, Some(_)) => Err(Problem::TargetPortAlone),
            (Some(ports), Some(first)) if ports.moved_to(first).is_none() => {
                let count = ports.count();
                Err(Problem::PortsOverflow { first, count })
            }
            _ => Ok(()),
        };
        if let Err(problem) = moved {
            return self.report(&[at, place!["to-port"]].concat(), problem);
        }
        if !matches!(written.to, Target::Hosts(_)) {
            let keys = [
                ("balance", written.balance != schema::Balance::default()),
                ("health", written.health.is_some()),
            ];
            for (key, _) in keys.into_iter().filter(|(_, is_written)| *is_written) {
                self.report(&[at, place![key]].concat(), DestinationProblem::OneHost(key).into());
            }
        }
        let to = &[at, place!["to"]].concat()[..];
        let by_each = |action| {
            let rules = incoming.iter().map(|&index| (index, written.protocol, action));
            rules.collect()
        };
        let made = match &written.to {
            Target::Host(host) => {
                self.host(to, IpAddr::V4(*host));
                by_each(DestinationAction::Host(*host, first))
            }
            Target::Gateway => self.rules_to_gateway(to, written, &incoming, interfaces),
            Target::Hosts(hosts) => by_each(DestinationAction::Hosts(
                self.host_set(at, written, hosts, rules),
                first,
            )),
        };
        let key = match (written.port, written.address) {
            (Some(_), _) => "port",
            (None, Some(_)) => "address",
            (None, None) if written.local => "local",
            (None, None) => "in",
        };
        for (incoming, protocol, action) in made {
            let rule = DestinationRule {
                router: self.scope.router,
                own: written.local,
                protocol,
                address: written.address.map_or_else(Ipv4Net::default, Ipv4Net::from),
                incoming,
                ports: written.port,
                action,
            };
            self.add_destination(&[at, place![key]].concat(), rule, rules);
        }
    }

    /// Check a rule for packets that the router's host stack sends. These packets have no input interface, and must not
    /// be translated to the host stack itself.
    fn own_destination(&mut self, at: &[Step<'_>], written: &schema::DestinationRule) {
        let own = &[at, place!["local"]].concat()[..];
        if !self.has_host() {
            self.report(own, DestinationProblem::LocalWithoutHost.into());
        }
        if !written.incoming.is_empty() {
            self.report(&[at, place!["in"]].concat(), DestinationProblem::LocalWithInput.into());
        }
        if written.to == Target::Gateway {
            self.report(&[at, place!["to"]].concat(), DestinationProblem::LocalToLocal.into());
        }
    }

    /// Check a source rule for packets that the router's host stack sends.
    pub(super) fn own_source(&mut self, at: &[Step<'_>], written: &schema::SourceRule) {
        let own = &[at, place!["local"]].concat()[..];
        if !self.has_host() {
            self.report(own, DestinationProblem::LocalWithoutHost.into());
        }
        if written.out.is_none() {
            self.report(own, DestinationProblem::LocalWithoutOutput.into());
        }
    }

    /// Input interfaces of a rule.
    fn incoming(&mut self, at: &[Step<'_>], written: &schema::DestinationRule) -> Vec<Option<InterfaceIndex>> {
        if written.incoming.is_empty() {
            return ANY_INTERFACE.to_vec();
        }
        let single = written.incoming.0.len() == 1;
        let mut found = Vec::new();
        for (n, name) in written.incoming.0.iter().enumerate() {
            let path = match single {
                true => [at, place!["in"]].concat(),
                false => [at, place!["in", n]].concat(),
            };
            found.extend(self.own_interface(&path, &name.0).map(Some));
        }
        found
    }

    /// Rules that translate to the gateway itself. Rules to the gateway are only for TCP and UDP, since the gateway
    /// answers echo requests itself.
    fn rules_to_gateway(
        &mut self,
        to: &[Step<'_>],
        written: &schema::DestinationRule,
        incoming: &[Option<InterfaceIndex>],
        interfaces: &[Interface],
    ) -> Vec<(Option<InterfaceIndex>, Option<Transport>, DestinationAction)> {
        if !self.has_host() {
            self.report(to, DestinationProblem::NoHost.into());
        }
        let first = written.to_port.map(|port| port.number());
        let own = |index: InterfaceIndex| {
            let addresses = &interfaces.get(usize::from(index))?.addresses;
            addresses.iter().find_map(|own| match own.address() {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            })
        };
        let is_own = |interface: &&Interface| interface.router == self.scope.router && interface.bridge.is_none();
        let all = (0..).zip(interfaces).filter(|(_, interface)| is_own(interface));
        let with_address = all.map(|(index, _)| index).filter(|&index| own(index).is_some());
        let named: Vec<_> = match incoming {
            [None] => with_address.collect(),
            named => named.iter().flatten().copied().collect(),
        };
        let mut made = Vec::new();
        for index in named {
            let Some(address) = own(index) else {
                let name = interfaces
                    .get(usize::from(index))
                    .map(|interface| interface.name.clone());
                self.report(to, DestinationProblem::NoOwnAddress(name.unwrap_or_default()).into());
                continue;
            };
            let protocols = match written.protocol {
                Some(protocol) => vec![protocol],
                None => vec![Transport::Tcp, Transport::Udp],
            };
            let action = DestinationAction::Host(address, first);
            made.extend(
                protocols
                    .into_iter()
                    .map(|protocol| (Some(index), Some(protocol), action)),
            );
        }
        made
    }

    /// Whether the router that is being checked has a host stack.
    fn has_host(&self) -> bool {
        let router = self.document.routers.get(self.scope.table.unwrap_or(DEFAULT));
        router.is_some_and(|router| router.daemon)
    }

    fn host_set(
        &mut self,
        at: &[Step<'_>],
        written: &schema::DestinationRule,
        hosts: &[TargetHost],
        rules: &mut Rules,
    ) -> u16 {
        if hosts.is_empty() || hosts.len() > MAX_HOSTS {
            self.report(
                &[at, place!["to"]].concat(),
                DestinationProblem::Hosts(hosts.len()).into(),
            );
        }
        for (n, one) in hosts.iter().enumerate() {
            let to = &[at, place!["to", n]].concat()[..];
            self.host(to, IpAddr::V4(one.host));
            self.in_range(to, "a weight", one.weight, 1..=1_000);
            if hosts.iter().take(n).any(|other| other.host == one.host) {
                self.report(to, DestinationProblem::HostTwice(one.host).into());
            }
        }
        let health = written.health.as_ref().and_then(|health| {
            let at = &[at, place!["health"]].concat()[..];
            self.host_health(at, health, written)
        });
        rules.host_sets.push(HostSet {
            router: self.scope.router,
            balance: written.balance,
            hosts: hosts.iter().map(|one| (one.host, one.weight)).collect(),
            health,
        });
        u16::try_from(rules.host_sets.len() - 1).unwrap_or_default()
    }

    fn host_health(
        &mut self,
        at: &[Step<'_>],
        health: &schema::Health,
        written: &schema::DestinationRule,
    ) -> Option<HostCheck> {
        if !self.has_host() {
            self.report(at, DestinationProblem::HealthWithoutHost.into());
        }
        let (interval, timeout) = (health.interval.duration(), health.timeout.duration());
        for (key, period) in [("interval", interval), ("timeout", timeout)] {
            let milliseconds = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
            self.in_range(
                &[at, place![key]].concat(),
                "a time in milliseconds",
                milliseconds,
                100..=3_600_000,
            );
        }
        if timeout > interval {
            self.report(
                &[at, place!["timeout"]].concat(),
                DestinationProblem::TimeoutBeyondInterval.into(),
            );
        }
        for (key, count) in [("failures", health.failures), ("successes", health.successes)] {
            self.in_range(&[at, place![key]].concat(), "a number of checks", count, 1..=1_000);
        }
        let led_to = written.to_port.map(|port| port.number());
        let led_to = led_to.or(written.port.map(|ports| ports.first()));
        let port = match (health.protocol, health.port) {
            (schema::HealthProtocol::Icmp, None) => None,
            (schema::HealthProtocol::Icmp, Some(_)) => {
                self.report(&[at, place!["port"]].concat(), DestinationProblem::CheckPort.into());
                return None;
            }
            (schema::HealthProtocol::Tcp, port) => match port.map(|port| port.number()).or(led_to) {
                Some(port) => Some(port),
                None => {
                    self.report(at, DestinationProblem::CheckWithoutPort.into());
                    return None;
                }
            },
        };
        Some(HostCheck {
            port,
            interval,
            timeout,
            failures: health.failures,
            successes: health.successes,
        })
    }

    /// Check that no pool allocates the rule's ports. A port of the rule could otherwise belong to a session of an
    /// inside host.
    fn forwards_pool_port(
        &mut self,
        k: usize,
        written: &schema::DestinationRule,
        incoming: &[Option<InterfaceIndex>],
        interfaces: &[Interface],
    ) {
        // Packets to a pool arrive only on interfaces that are output interfaces of source rules.
        let meets_pools = |index: InterfaceIndex| {
            let name = interfaces.get(usize::from(index)).map(|interface| &interface.name);
            let mut out = self.scope.source.iter().map(|rule| rule.out.as_ref());
            out.any(|out| out.is_none() || out == name)
        };
        if !incoming.iter().any(|index| index.is_none_or(meets_pools)) {
            return;
        }
        let all = PortRange::new(1, u16::MAX);
        let Some(wanted) = written.port.or(all) else { return };
        let allocated = |pool: &schema::Pool| -> Option<(Ipv4Addr, PortRange)> {
            let range = pool.addresses.iter().find(|range| match written.address {
                Some(address) => range.contains(address),
                None => true,
            })?;
            let free = pool.ports.without(&pool.reserved_ports);
            let ports = free.iter().find_map(|free| free.overlap(&wanted))?;
            Some((written.address.unwrap_or(range.first()), ports))
        };
        let mut pools = self.own_pools();
        // No interface receives packets to an unused pool. Therefore only a rule without an input interface conflicts
        // with an unused pool.
        if incoming == ANY_INTERFACE && written.to != Target::Gateway {
            pools.extend(self.unused_pools());
        }
        let found = pools
            .into_iter()
            .find_map(|(name, pool)| Some((name.clone(), allocated(pool)?)));
        if let Some((pool, (address, ports))) = found {
            let problem = Problem::ForwardsPoolPort { address, ports, pool };
            let key = match (written.port, written.address) {
                (Some(_), _) => "port",
                (None, Some(_)) => "address",
                (None, None) => "in",
            };
            self.report(place!["nat", "destination", k, key], problem);
        }
    }
}

//! Validation of the conditions of a rule.

use sluice_filter::Field;

use super::MAX_RULE_COMBINATIONS;
use super::groups::{ADDRESSES, Groups, PORTS, other_numbers};
use crate::config::InterfaceIndex;
use crate::filter::{ICMP, ICMPV6, MacSelection, Selection};
use crate::problem::FilterProblem;
use crate::read::{Step, place};
use crate::schema::{self, Action, HeaderField};
use crate::validate::Check;
use crate::value::{GATEWAY, IpProtocol, Mac, Message, OneOrMore, OrNot};

const TCP: u8 = 6;
const UDP: u8 = 17;

impl Check<'_> {
    /// Conditions of a rule.
    pub(in crate::validate) fn selected(
        &mut self,
        at: &[Step<'_>],
        written: &schema::FilterRule,
        groups: &Groups,
    ) -> Selection {
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
            fields: self.header_fields(at, written),
            macs: [
                self.macs(&of("from-mac"), &written.from_mac),
                self.macs(&of("to-mac"), &written.to_mac),
            ],
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
        if combinations > MAX_RULE_COMBINATIONS {
            let max = MAX_RULE_COMBINATIONS;
            self.refuse(at, FilterProblem::TooLarge { combinations, max });
        }
        selection
    }

    /// Header fields on which the rule has conditions, with their values.
    fn header_fields(&mut self, at: &[Step<'_>], written: &schema::FilterRule) -> Vec<(Field, Vec<(u32, u32)>)> {
        let mut found = Vec::new();
        for HeaderField {
            key,
            field,
            value,
            ranges,
        } in written.header_fields()
        {
            if let Some(&(_, last)) = ranges.iter().max_by_key(|(_, last)| last) {
                self.in_range(&[at, place![key]].concat(), value, last, 0..=field.last_named());
                found.push((field, ranges));
            }
        }
        found
    }

    /// Protocols of the rule: the specified protocols, or the protocols for which the rule's keys are valid.
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
        for (_, key, has, of) in of.into_iter().filter(|(present, ..)| *present) {
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
                    "determined by keys of other protocols".into()
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
            for (v6, protocol) in [(false, ICMP), (true, ICMPV6)] {
                let Some(kind) = message.kind(v6).filter(|_| protocols.contains(&protocol)) else {
                    continue;
                };
                let kind = u16::from(kind) << 8;
                let code = message.code.map(u16::from);
                found[usize::from(v6)].push((kind | code.unwrap_or(0), kind | code.unwrap_or(0xff)));
                any = true;
            }
            if !any {
                self.refuse(at, FilterProblem::NotAMessage(message.to_string()));
            }
        }
        found
    }

    /// Whether the rule applies to packets to the gateway itself, and the interfaces in `out`. An interface with the
    /// name `gateway` takes precedence over the gateway itself.
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

    /// Names of applications. The daemon checks whether the names exist, because it has nDPI's list of names.
    fn named_applications(&mut self, at: &[Step<'_>], names: &OneOrMore<schema::Name>) -> Vec<String> {
        if names.is_empty() {
            return Vec::new();
        }
        if self.document.applications.is_none() {
            self.refuse(at, FilterProblem::IdentificationNotEnabled);
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
}

//! Rules of the packet filter with groups resolved.

use std::net::IpAddr;

use sluice_filter::Field;

use crate::config::{InterfaceIndex, RouterIndex};
use crate::schema::{Action, NamedSet, RejectWith};
use crate::value::{Mac, Mark, OrNot, TcpFlags};

/// Protocol number of ICMP.
pub(crate) const ICMP: u8 = 1;
/// Protocol number of ICMPv6.
pub(crate) const ICMPV6: u8 = 58;

/// A filter rule. An empty list matches everything.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterRule {
    /// Name of the rule, or its number counted from 1. For routers other than the default router, the router's name and
    /// a slash precede the name.
    pub name: String,
    /// Router of the packets to which the rule applies. `None` for all packets, if only the default router has a
    /// filter.
    pub router: Option<RouterIndex>,
    /// Whether this is the default rule, which applies to packets for which no other rule of the router has a verdict.
    pub is_default: bool,
    /// Action of the rule.
    pub action: Action,
    /// Reply to the sender of a rejected packet.
    pub with: RejectWith,
    /// Packets per second and burst, for action `rate-limit`.
    pub rate: (u32, u32),
    /// Whether accepted packets create a session.
    pub track: bool,
    /// The mark, for action `set-mark`.
    pub new_mark: Option<Mark>,
    /// The DSCP, for action `set-dscp`.
    pub new_dscp: Option<u8>,
    /// The ECN code point, for action `set-ecn`.
    pub new_ecn: Option<u8>,
    /// Name of the set, for action `add-to-set`.
    pub adds_to: Option<String>,
    /// Conditions of the rule.
    pub selection: Selection,
}

/// An element set. The set can change at run time while rules refer to it.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterSet {
    /// Name of the set. For routers other than the default router, the router's name and a slash precede the name.
    pub name: String,
    /// Type, maximum size, timeout and initial elements of the set.
    pub settings: NamedSet,
}

/// Conditions of a rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Source addresses.
    pub sources: Vec<(IpAddr, IpAddr)>,
    /// Destination addresses.
    pub destinations: Vec<(IpAddr, IpAddr)>,
    /// Protocols.
    pub protocols: Vec<u8>,
    /// Source ports.
    pub source_ports: Vec<(u16, u16)>,
    /// Destination ports.
    pub destination_ports: Vec<(u16, u16)>,
    /// ICMP types and codes, for IPv4 and for IPv6.
    pub messages: [Vec<(u16, u16)>; 2],
    /// TCP flags.
    pub flags: Option<TcpFlags>,
    /// Header fields that `header_fields!` declares, with the accepted values. A field that is not listed may have any
    /// value.
    pub fields: Vec<(Field, Vec<(u32, u32)>)>,
    /// MAC addresses of the source and of the destination.
    pub macs: [MacSelection; 2],
    /// Input interfaces, as ranges from a first to a last index.
    pub incoming: Vec<(InterfaceIndex, InterfaceIndex)>,
    /// Output interfaces, as ranges from a first to a last index.
    pub outgoing: Vec<(InterfaceIndex, InterfaceIndex)>,
    /// Whether the rule applies to packets to the gateway itself. A rule with `gateway` and an empty `outgoing` does
    /// not apply to forwarded packets.
    pub gateway: bool,
    /// Mark of the session, which earlier rules may have set.
    pub mark: Option<OrNot<Mark>>,
    /// Names of the sets in which the source and the destination must be, or must not be.
    pub sets: [Option<OrNot<String>>; 2],
    /// Names of the sets in which the source port and the destination port must be, or must not be.
    pub port_sets: [Option<OrNot<String>>; 2],
    /// Names of applications, as in the file.
    pub applications: Vec<String>,
}

/// MAC addresses. An empty list matches any address.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MacSelection {
    /// Whether the condition is inverted.
    pub not: bool,
    /// The addresses.
    pub of: Vec<Mac>,
}

impl MacSelection {
    fn combinations(&self) -> usize {
        self.of.len() + usize::from(self.not)
    }

    fn covers(&self, other: &Self) -> bool {
        match (self.not, other.not) {
            _ if self.of.is_empty() => true,
            _ if other.of.is_empty() => false,
            (false, true) => false,
            (true, true) => self.of.iter().all(|mac| other.of.contains(mac)),
            (false, false) => other.of.iter().all(|mac| self.of.contains(mac)),
            (true, false) => !other.of.iter().any(|mac| self.of.contains(mac)),
        }
    }
}

impl Selection {
    /// Address ranges of one family. `None` if no packet of that family can match. An empty list if any address
    /// matches.
    pub fn addresses(ranges: &[(IpAddr, IpAddr)], v6: bool) -> Option<Vec<(IpAddr, IpAddr)>> {
        if ranges.is_empty() {
            return Some(Vec::new());
        }
        let of: Vec<_> = ranges
            .iter()
            .filter(|(first, _)| first.is_ipv6() == v6)
            .copied()
            .collect();
        (!of.is_empty()).then_some(of)
    }

    /// Whether packets of an address family may match.
    pub fn concerns(&self, v6: bool) -> bool {
        Self::addresses(&self.sources, v6).is_some()
            && Self::addresses(&self.destinations, v6).is_some()
            && (!self.names_messages() || !self.messages[usize::from(v6)].is_empty())
    }

    fn names_messages(&self) -> bool {
        !self.messages.iter().all(Vec::is_empty)
    }

    /// Protocols that packets of a family may have. Protocol numbers are the same for both families, except that a
    /// condition on ICMP messages selects the ICMP version of the family.
    pub fn protocols_of(&self, v6: bool) -> Vec<u8> {
        match (self.names_messages(), v6) {
            (false, _) => self.protocols.clone(),
            (true, false) => vec![ICMP],
            (true, true) => vec![ICMPV6],
        }
    }

    /// The accepted values of a header field that `header_fields!` declares. Empty if any value is accepted.
    pub fn values(&self, field: Field) -> &[(u32, u32)] {
        let named = self.fields.iter().find(|(named, _)| *named == field);
        named.map_or(&[], |(_, values)| values)
    }

    /// Number of hyperrectangles of the selection, in both address families.
    pub fn combinations(&self) -> u64 {
        let of = |v6: bool| {
            let (Some(sources), Some(destinations)) = (
                Self::addresses(&self.sources, v6),
                Self::addresses(&self.destinations, v6),
            ) else {
                return 0;
            };
            let lists = [
                sources.len(),
                destinations.len(),
                runs(&self.protocols_of(v6)).len(),
                self.source_ports.len(),
                self.destination_ports.len(),
                self.messages[usize::from(v6)].len(),
                self.macs[0].combinations(),
                self.macs[1].combinations(),
                self.incoming.len(),
                self.outgoing.len() + usize::from(self.gateway),
            ];
            let fields = self.fields.iter().map(|(_, values)| values.len());
            lists
                .into_iter()
                .chain(fields)
                .fold(1u64, |all, count| all.saturating_mul(count.max(1) as u64))
        };
        [false, true]
            .into_iter()
            .filter(|&v6| self.concerns(v6))
            .map(of)
            .fold(0, u64::saturating_add)
    }

    /// Whether the rule is evaluated individually, because it has conditions that no matcher supports.
    pub fn is_evaluated_individually(&self) -> bool {
        !self.applications.is_empty()
            || self.mark.is_some()
            || self.sets.iter().chain(&self.port_sets).any(Option::is_some)
    }

    /// Whether the rule applies to forwarded packets.
    fn is_about_forwarded(&self) -> bool {
        !self.gateway || !self.outgoing.is_empty()
    }

    fn covers_ways_out(&self, other: &Self) -> bool {
        let forwarded = self.is_about_forwarded() && covers(&self.outgoing, &other.outgoing);
        (self.gateway || !other.gateway) && (forwarded || !other.is_about_forwarded())
    }

    /// Whether this selection matches every packet that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        let flags = match (self.flags, other.flags) {
            (None, _) => true,
            (Some(flags), Some(other)) => flags.of & !other.of == 0 && other.set & flags.of == flags.set,
            (Some(_), None) => false,
        };
        let one = |list: &[u8]| list.iter().map(|&number| (number, number)).collect::<Vec<_>>();
        flags
            && self
                .fields
                .iter()
                .all(|(field, values)| covers(values, other.values(*field)))
            && covers(&self.sources, &other.sources)
            && covers(&self.destinations, &other.destinations)
            && covers(&one(&self.protocols), &one(&other.protocols))
            && covers(&self.source_ports, &other.source_ports)
            && covers(&self.destination_ports, &other.destination_ports)
            && [0, 1].into_iter().all(|v6| {
                !self.names_messages()
                    || !other.concerns(v6 == 1)
                    || !self.messages[v6].is_empty() && covers(&self.messages[v6], &other.messages[v6])
            })
            && self.macs.iter().zip(&other.macs).all(|(own, other)| own.covers(other))
            && covers(&self.incoming, &other.incoming)
            && self.covers_ways_out(other)
            && self
                .sets
                .iter()
                .chain(&self.port_sets)
                .zip(other.sets.iter().chain(&other.port_sets))
                .all(|(own, other)| own.is_none() || own == other)
            && (self.mark.is_none() || self.mark == other.mark)
            && (self.applications.is_empty() || covers_names(&self.applications, &other.applications))
    }
}

/// Converts numbers to ranges of consecutive numbers.
pub fn runs(numbers: &[u8]) -> Vec<(u8, u8)> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let mut found: Vec<(u8, u8)> = Vec::new();
    for number in sorted {
        match found.last_mut() {
            Some((_, last)) if number - *last <= 1 => *last = number,
            _ => found.push((number, number)),
        }
    }
    found
}

/// Whether `own` contains all names of `other`, which must not be empty.
fn covers_names(own: &[String], other: &[String]) -> bool {
    let has = |name: &String| own.iter().any(|own| own.eq_ignore_ascii_case(name));
    !other.is_empty() && other.iter().all(has)
}

/// Whether each range of `other` is within a range of `own`.
fn covers<T: PartialOrd>(own: &[(T, T)], other: &[(T, T)]) -> bool {
    own.is_empty()
        || !other.is_empty()
            && other
                .iter()
                .all(|(first, last)| own.iter().any(|(from, to)| from <= first && last <= to))
}

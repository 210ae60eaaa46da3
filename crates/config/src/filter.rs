//! Rules of the packet filter, groups resolved.

use std::net::IpAddr;

use sluice_filter::Field;

use crate::config::{InterfaceIndex, RouterIndex};
use crate::schema::{Action, NamedSet, RejectWith};
use crate::value::{Mac, Mark, OrNot, TcpFlags};

/// ICMP's protocol number.
pub(crate) const ICMP: u8 = 1;
/// ICMPv6's.
pub(crate) const ICMPV6: u8 = 58;

/// A rule. Lists without an element stand for everything.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterRule {
    /// Its name, or its number counted from 1; behind the name of its router and a slash where that is not the default one.
    pub name: String,
    /// The router whose packets it is asked about; all where only one has a filter, and that is the default one.
    pub router: Option<RouterIndex>,
    /// It is what becomes of packets that no rule of its router decides about.
    pub is_default: bool,
    /// What it does.
    pub action: Action,
    /// What senders are told.
    pub with: RejectWith,
    /// Packets a second and at once, with `rate-limit`.
    pub rate: (u32, u32),
    /// Whether what it accepts has a session.
    pub track: bool,
    /// The mark, with `set-mark`.
    pub new_mark: Option<Mark>,
    /// The code point, with `set-dscp`.
    pub new_dscp: Option<u8>,
    /// The code point of congestion, with `set-ecn`.
    pub new_ecn: Option<u8>,
    /// The set, with `add-to-set`.
    pub adds_to: Option<String>,
    /// What it matches.
    pub selection: Selection,
}

/// A set that changes while rules name it.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterSet {
    /// Its name; behind the name of its router and a slash where that is not the default one.
    pub name: String,
    /// What its elements are, how many it may have, how long they stay, and which it has from the start.
    pub settings: NamedSet,
}

/// What a rule matches.
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
    /// ICMP type and code, of IPv4 and of IPv6.
    pub messages: [Vec<(u16, u16)>; 2],
    /// TCP flags.
    pub flags: Option<TcpFlags>,
    /// Header fields that have keys of their own, with their values; any of those that are not here.
    pub fields: Vec<(Field, Vec<(u32, u32)>)>,
    /// MAC addresses of the source and of the destination.
    pub macs: [MacSelection; 2],
    /// Interfaces that packets come in by, from a first to a last one.
    pub incoming: Vec<(InterfaceIndex, InterfaceIndex)>,
    /// Interfaces that they leave by.
    pub outgoing: Vec<(InterfaceIndex, InterfaceIndex)>,
    /// Packets to the gateway itself are meant: these alone, where no interface is in `outgoing`.
    pub gateway: bool,
    /// The mark of the session by then.
    pub mark: Option<OrNot<Mark>>,
    /// Sets that source and destination are in, by name, or are not.
    pub sets: [Option<OrNot<String>>; 2],
    /// Sets that their ports are in, or are not.
    pub port_sets: [Option<OrNot<String>>; 2],
    /// Applications, by name as written.
    pub applications: Vec<String>,
}

/// MAC addresses; any where there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MacSelection {
    /// All others are meant.
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
    /// Addresses of a family; none where it can't be that family, and an empty list where any will do.
    pub fn addresses(ranges: &[(IpAddr, IpAddr)], six: bool) -> Option<Vec<(IpAddr, IpAddr)>> {
        if ranges.is_empty() {
            return Some(Vec::new());
        }
        let of: Vec<_> = ranges
            .iter()
            .filter(|(first, _)| first.is_ipv6() == six)
            .copied()
            .collect();
        (!of.is_empty()).then_some(of)
    }

    /// Whether packets of a family may match.
    pub fn concerns(&self, six: bool) -> bool {
        Self::addresses(&self.sources, six).is_some()
            && Self::addresses(&self.destinations, six).is_some()
            && (!self.names_messages() || !self.messages[usize::from(six)].is_empty())
    }

    fn names_messages(&self) -> bool {
        !self.messages.iter().all(Vec::is_empty)
    }

    /// The protocols that packets of a family may be of. They are numbers, the same in both families, except where messages
    /// are named: those belong to the ICMP of their family.
    pub fn protocols_of(&self, six: bool) -> Vec<u8> {
        match (self.names_messages(), six) {
            (false, _) => self.protocols.clone(),
            (true, false) => vec![ICMP],
            (true, true) => vec![ICMPV6],
        }
    }

    /// The values of a header field that has a key of its own; none where any will do.
    pub fn values(&self, field: Field) -> &[(u32, u32)] {
        let named = self.fields.iter().find(|(named, _)| *named == field);
        named.map_or(&[], |(_, values)| values)
    }

    /// Of how many boxes it is made, in both families.
    pub fn combinations(&self) -> u64 {
        let of = |six: bool| {
            let (Some(sources), Some(destinations)) = (
                Self::addresses(&self.sources, six),
                Self::addresses(&self.destinations, six),
            ) else {
                return 0;
            };
            let lists = [
                sources.len(),
                destinations.len(),
                runs(&self.protocols_of(six)).len(),
                self.source_ports.len(),
                self.destination_ports.len(),
                self.messages[usize::from(six)].len(),
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
            .filter(|&six| self.concerns(six))
            .map(of)
            .fold(0, u64::saturating_add)
    }

    /// Whether the rule is asked one by one, as no matcher knows all that it asks for.
    pub fn is_asked_alone(&self) -> bool {
        !self.applications.is_empty()
            || self.mark.is_some()
            || self.sets.iter().chain(&self.port_sets).any(Option::is_some)
    }

    /// Whether packets that leave by an interface are meant.
    fn is_about_forwarded(&self) -> bool {
        !self.gateway || !self.outgoing.is_empty()
    }

    fn covers_ways_out(&self, other: &Self) -> bool {
        let forwarded = self.is_about_forwarded() && covers(&self.outgoing, &other.outgoing);
        (self.gateway || !other.gateway) && (forwarded || !other.is_about_forwarded())
    }

    /// Whether all that the other matches is matched.
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
            && [0, 1].into_iter().all(|six| {
                !self.names_messages()
                    || !other.concerns(six == 1)
                    || !self.messages[six].is_empty() && covers(&self.messages[six], &other.messages[six])
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

/// Numbers side by side, as ranges.
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

/// Whether each name of the other is one of these, and there is one.
fn covers_names(own: &[String], other: &[String]) -> bool {
    let has = |name: &String| own.iter().any(|own| own.eq_ignore_ascii_case(name));
    !other.is_empty() && other.iter().all(has)
}

/// Whether each range of the other is within one of these.
fn covers<T: PartialOrd>(own: &[(T, T)], other: &[(T, T)]) -> bool {
    own.is_empty()
        || !other.is_empty()
            && other
                .iter()
                .all(|(first, last)| own.iter().any(|(from, to)| from <= first && last <= to))
}

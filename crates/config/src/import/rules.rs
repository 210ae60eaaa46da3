//! Converts decisions to filter rules.

use std::collections::HashSet;

use super::fields;
use super::interfaces::is_open;
use super::listing::{Action, Decision, Listing};
use super::packets::{End, Field, LAST_MAC, OF_THE_FIRST, Packets};
use super::ranges::Ranges;
use super::{ConversionReport, values};
use crate::schema::{self, FilterRule, Name, RejectWith};
use crate::value::{Addresses, GATEWAY, IpProtocol, Mac, Message, OneOrMore, OrNot, Ports, TcpFlags};

/// Maximum number of combinations of one rule, and of all rules of a filter.
const MAX_COMBINATIONS: [u64; 2] = [1 << 16, 1 << 20];
const MAX_CONTINUING: usize = 256;

pub const TCP: u128 = 6;
pub const UDP: u128 = 17;

/// Equivalent packets of both families, or packets of a single family.
type Twins = [Option<Packets>; 2];

/// Converts all decisions on forwarded packets and on packets to the gateway itself. Lines that can't be converted are
/// reported.
pub fn rules(listing: &Listing, decisions: [&[Decision]; 2], report: &mut ConversionReport) -> Vec<FilterRule> {
    let mut rules = Vec::new();
    let mut names = HashSet::new();
    let (mut combined, mut continuing) = (0u64, 0);
    let [forwarded, input] = decisions.map(|of| of.chunk_by(together));
    let groups = forwarded
        .map(|group| (group, false))
        .chain(input.map(|group| (group, true)));
    let mut added = HashSet::new();
    for (group, to_gateway) in groups {
        let first = &group[0];
        let written = twins(group)
            .iter()
            .map(|twins| written(twins, &first.action, listing))
            .collect();
        let written: Result<Vec<_>, String> = written;
        let written = match written {
            Ok(written) => written.into_iter().flatten().collect::<Vec<_>>(),
            Err(why) => {
                report.leave(first.line, why);
                continue;
            }
        };
        let combinations = written
            .iter()
            .map(|rule: &FilterRule| combinations(rule))
            .fold(0, u64::saturating_add);
        let is_after_addition = group.iter().any(|decision| {
            let mut members = decision.packets.members();
            members.any(|(_, set, is_in)| !is_in && added.contains(set))
        });
        if is_after_addition {
            report.leave(
                first.line,
                "the line matches only packets outside a set, but an earlier line may add their source to this set",
            );
            continue;
        }
        if let Action::AddToSet(name) = &first.action {
            added.insert(name.clone());
        }
        let names_sets = group.iter().any(|decision| decision.packets.members().next().is_some());
        let on = if first.decides() && !names_sets {
            0
        } else {
            written.len()
        };
        if combinations > MAX_COMBINATIONS[0]
            || combined + combinations > MAX_COMBINATIONS[1]
            || continuing + on > MAX_CONTINUING
        {
            report.leave(
                first.line,
                "the filter would exceed the maximum number of rules or of combinations of values",
            );
            continue;
        }
        (combined, continuing) = (combined + combinations, continuing + on);
        let name = first.name.as_deref().map(plain).filter(|name| !name.is_empty());
        for mut rule in written {
            rule.name = name.as_deref().map(|name| unlike(name, &mut names));
            rules.push(if to_gateway { of_gateway(rule) } else { rule });
        }
    }
    rules
}

/// A rule for all packets of a family.
pub fn everything(v6: bool, action: Action) -> FilterRule {
    let mut rule = bare(&action);
    let all = Packets::all(v6);
    rule.from = OneOrMore(addresses(v6, &all.values(Field::Source)));
    rule
}

/// The rule for packets to the gateway itself.
pub fn of_gateway(rule: FilterRule) -> FilterRule {
    let value = Name(GATEWAY.into());
    FilterRule {
        out: OneOrMore(vec![OrNot { not: false, value }]),
        ..rule
    }
}

/// Replaces the characters of a text that are not valid in names.
fn plain(text: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '.') {
            c
        } else {
            '-'
        }
    };
    let mut name: String = text.trim().chars().map(plain).collect();
    while name.contains("--") {
        name = name.replace("--", "-");
    }
    let name: String = name.trim_matches(['-', '.']).chars().take(26).collect();
    name.trim_end_matches(['-', '.']).to_owned()
}

fn unlike(name: &str, names: &mut HashSet<String>) -> String {
    let numbered = (2..=99_999).map(|number| format!("{name}-{number}"));
    let mut free = std::iter::once(name.to_owned()).chain(numbered);
    let name = free.find(|name| !names.contains(name)).unwrap_or_default();
    names.insert(name.clone());
    name
}

/// Pairs of hyperrectangles that differ only in the family of their addresses.
fn twins(group: &[Decision]) -> Vec<Twins> {
    let mut found: Vec<Twins> = Vec::new();
    for decision in group {
        let packets = &decision.packets;
        let same = |other: &Packets| {
            let apart = |packets: &Packets| packets.with_any(Field::Source).with_any(Field::Destination);
            if !other.members().eq(packets.members()) {
                return false;
            }
            let mut other = apart(other);
            other.v6 = packets.v6;
            other == apart(packets)
        };
        let free = found
            .iter_mut()
            .find(|[v4, v6]| packets.v6 && v6.is_none() && v4.as_ref().is_some_and(same));
        match free {
            Some(twins) => twins[1] = Some(packets.clone()),
            None if packets.v6 => found.push([None, Some(packets.clone())]),
            None => found.push([Some(packets.clone()), None]),
        }
    }
    found
}

/// A rule without conditions, which applies to all packets.
pub fn bare(action: &Action) -> FilterRule {
    let track = *action != Action::AcceptUntracked;
    let added = match action {
        Action::AddToSet(name) => Some(name.clone()),
        _ => None,
    };
    let (action, with) = match action {
        Action::Accept | Action::AcceptUntracked => (schema::Action::Accept, None),
        Action::Reject(with) => (schema::Action::Reject, Some(*with)),
        Action::Count => (schema::Action::Count, None),
        Action::Log => (schema::Action::Log, None),
        Action::AddToSet(_) => (schema::Action::AddToSet, None),
        // Other actions do not occur, because NAT tables are converted separately and have no chains for forwarded
        // packets.
        _ => (schema::Action::Drop, None),
    };
    FilterRule {
        with: with.unwrap_or_default(),
        track,
        set: added,
        ..FilterRule::of(action)
    }
}

fn written(twins: &Twins, action: &Action, listing: &Listing) -> Result<Vec<FilterRule>, String> {
    let Some(packets) = twins[0].as_ref().or(twins[1].as_ref()) else {
        return Ok(Vec::new());
    };
    understood(packets, action)?;
    let mut rule = bare(action);
    of_addresses(&mut rule, twins);
    let list = |field| packets.get(field).map(Ranges::list).unwrap_or_default();
    let one_by_one = |field| list(field).iter().flat_map(|&(first, last)| first..=last);
    let ports = |field| {
        list(field)
            .iter()
            .map(|&(first, last)| Ports::Range(first as u16, last as u16).into())
            .collect()
    };
    rule.protocol = OneOrMore(
        one_by_one(Field::Protocol)
            .map(|number| IpProtocol(number as u8).into())
            .collect(),
    );
    rule.from_port = OneOrMore(ports(Field::SourcePort));
    rule.to_port = OneOrMore(ports(Field::DestinationPort));
    rule.icmp = OneOrMore(messages(list(Field::Message)));
    rule.from_mac = macs(packets, Field::SourceMac)?;
    rule.to_mac = macs(packets, Field::DestinationMac)?;
    let known = listing.interfaces.len();
    let names = |field| {
        let not = is_open(packets, field, known);
        let held = packets.get(field);
        let numbers = (0..known).filter(|&number| held.is_some_and(|held| held.holds(number as u128) != not));
        let names = numbers.filter_map(|number| listing.interfaces.get_index(number));
        let named = |name: &String| OrNot {
            not,
            value: Name(name.clone()),
        };
        OneOrMore(names.map(named).collect())
    };
    rule.incoming = names(Field::In);
    rule.out = names(Field::Out);
    of_sets(&mut rule, packets, twins)?;
    Ok(each(rule, packets))
}

/// Add conditions on sets. A rule can refer to one set for each address or port, and then can't have another condition
/// on this address or port.
fn of_sets(rule: &mut FilterRule, packets: &Packets, twins: &Twins) -> Result<(), String> {
    let mut says_family = packets.members().next().is_none() || twins.iter().all(Option::is_some);
    let mut held: Vec<End> = Vec::new();
    for (end, set, is_in) in packets.members() {
        if held.contains(&end) || packets.get(end.field()).is_some() {
            return Err(
                "a rule can match one set for the source and one for the destination, without other values \
                 beside the set"
                    .into(),
            );
        }
        held.push(end);
        // All elements of a set belong to the same family.
        says_family |= is_in && matches!(end, End::Source | End::Destination);
        let (not, name) = (!is_in, set.to_owned());
        let addresses = OneOrMore(vec![OrNot {
            not,
            value: Addresses::Group(name.clone()),
        }]);
        let ports = OneOrMore(vec![OrNot {
            not,
            value: Ports::Group(name),
        }]);
        match end {
            End::Source => rule.from = addresses,
            End::Destination => rule.to = addresses,
            End::SourcePort => rule.from_port = ports,
            End::DestinationPort => rule.to_port = ports,
        }
    }
    let names_family = [(End::Source, &rule.from), (End::Destination, &rule.to)]
        .into_iter()
        .any(|(end, list)| !held.contains(&end) && !list.is_empty());
    let said_by_messages = packets.get(Field::Message).is_some();
    if says_family || names_family || said_by_messages {
        return Ok(());
    }
    let all = OneOrMore(addresses(packets.v6, &packets.values(Field::Destination)));
    match held.contains(&End::Destination) {
        false => rule.to = all,
        true if !held.contains(&End::Source) => rule.from = all,
        true => return Err("neither the source nor the destination of the rule determines the address family".into()),
    }
    Ok(())
}

/// Converts MAC addresses: a list of single addresses, or all addresses except some.
fn macs(packets: &Packets, field: Field) -> Result<OneOrMore<OrNot<Mac>>, String> {
    let Some(ranges) = packets.get(field) else {
        return Ok(OneOrMore::default());
    };
    let not = ranges.last() == Some(LAST_MAC);
    let named = if not { ranges.not(LAST_MAC) } else { ranges.clone() };
    let mut found = Vec::new();
    for &(first, last) in named.list() {
        for number in first..=last {
            if found.len() as u64 >= MAX_COMBINATIONS[0] {
                return Err("too many MAC addresses: a rule must list each address".into());
            }
            let [_, _, bytes @ ..] = (number as u64).to_be_bytes();
            let value = Mac::of(bytes).ok_or("only unicast MAC addresses can be matched")?;
            found.push(OrNot { not, value });
        }
    }
    Ok(OneOrMore(found))
}

/// Check that a rule can express the conditions and the action.
fn understood(packets: &Packets, action: &Action) -> Result<(), String> {
    let protocols = packets.values(Field::Protocol);
    let only = |others: &[u128]| {
        protocols
            .list()
            .iter()
            .flat_map(|&(first, last)| first..=last)
            .all(|one| others.contains(&one))
    };
    let named = |field| packets.get(field).is_some();
    let has_ports = |end: End| matches!(end, End::SourcePort | End::DestinationPort);
    let by_set = packets.members().any(|(end, ..)| has_ports(end));
    if (by_set || named(Field::SourcePort) || named(Field::DestinationPort)) && !only(&[TCP, UDP]) {
        return Err("ports can be matched only for tcp and udp".into());
    }
    if named(Field::Message) && !only(&[if packets.v6 { 58 } else { 1 }]) {
        return Err("ICMP types can be matched only for icmp in IPv4 and for icmpv6 in IPv6".into());
    }
    if named(Field::Flags) && !only(&[TCP]) {
        return Err("flags can be matched only for tcp".into());
    }
    if *action == Action::Reject(RejectWith::Reset) && !only(&[TCP]) {
        return Err("a reset can be sent only for tcp".into());
    }
    Ok(())
}

/// Add address conditions of both families, or of a single family. For a single family, a condition must determine the
/// family.
fn of_addresses(rule: &mut FilterRule, twins: &Twins) {
    let families = [false, true].into_iter().zip(twins);
    let families: Vec<_> = families
        .filter_map(|(v6, packets)| Some((v6, packets.as_ref()?)))
        .collect();
    let all = |field| {
        families
            .iter()
            .flat_map(|(v6, packets)| addresses(*v6, &packets.values(field)))
            .collect()
    };
    let named = |field| families.iter().any(|(_, packets)| packets.get(field).is_some());
    // ICMP messages determine the family; protocols alone do not.
    let said_by_messages = |packets: &Packets| packets.get(Field::Message).is_some();
    let unsaid = matches!(families.as_slice(), [(_, packets)] if !said_by_messages(packets));
    if named(Field::Destination) {
        rule.to = OneOrMore(all(Field::Destination));
    }
    if named(Field::Source) || unsaid && !named(Field::Destination) {
        rule.from = OneOrMore(all(Field::Source));
    }
}

fn addresses(v6: bool, ranges: &Ranges) -> Vec<OrNot<Addresses>> {
    let range =
        |&(first, last): &(u128, u128)| Addresses::Range(values::address(v6, first), values::address(v6, last)).into();
    ranges.list().iter().map(range).collect()
}

/// ICMP types. The codes of a type are listed only if not all codes match.
fn messages(ranges: &[(u128, u128)]) -> Vec<Message> {
    let mut found = Vec::new();
    for &(first, last) in ranges {
        let mut at = first;
        while at <= last {
            let (kind, whole) = (at >> 8, at & 0xff == 0 && at + 0xff <= last);
            let text = if whole {
                kind.to_string()
            } else {
                format!("{kind}/{}", at & 0xff)
            };
            found.extend(text.parse::<Message>().ok());
            at += if whole { 0x100 } else { 1 };
        }
    }
    found
}

/// Creates one rule for each fragment kind, length range and combination of flags, since a rule can have only one value
/// of each of these conditions.
fn each(rule: FilterRule, packets: &Packets) -> Vec<FilterRule> {
    let mut flags: Vec<Option<TcpFlags>> = vec![None];
    if let Some(ranges) = packets.get(Field::Flags) {
        let holds: Vec<bool> = (0..256).map(|flags| ranges.holds(flags)).collect();
        let mut found = Vec::new();
        cubes(&holds, TcpFlags { set: 0, of: 0 }, &mut found);
        flags = found.into_iter().map(Some).collect();
    }
    let rules = fields::written(rule, &without_implied_part(packets)).into_iter();
    let with = |rule: FilterRule| flags.iter().map(move |&flags| FilterRule { flags, ..rule.clone() });
    rules.flat_map(with).collect()
}

/// Conditions on ports or ICMP messages never match later fragments, so the condition on the fragment kind is
/// redundant.
fn without_implied_part(packets: &Packets) -> Packets {
    let implied = OF_THE_FIRST.iter().any(|&field| packets.get(field).is_some())
        || packets.members().any(|(end, ..)| OF_THE_FIRST.contains(&end.field()));
    match implied && packets.values(Field::Fragment) == Ranges::of(0, 1) {
        true => packets.with_any(Field::Fragment),
        false => packets.clone(),
    }
}

/// Converts a set of flag bytes to disjoint pairs of compared bits and set bits.
fn cubes(holds: &[bool], within: TcpFlags, found: &mut Vec<TcpFlags>) {
    let of = |flags: u8| flags & within.of == within.set;
    let members: Vec<u8> = (0..=255u8).filter(|&flags| of(flags)).collect();
    let count = members.iter().filter(|&&flags| holds[usize::from(flags)]).count();
    if count == members.len() {
        found.push(within);
    } else if count > 0 {
        // Distinguish only bits that affect the result.
        let matters = |bit: &u8| {
            members
                .iter()
                .any(|flags| holds[usize::from(*flags)] != holds[usize::from(flags ^ bit)])
        };
        let free = (0..8).map(|bit| 1u8 << bit).filter(|bit| within.of & bit == 0);
        if let Some(bit) = free.into_iter().find(matters) {
            let of = within.of | bit;
            cubes(
                holds,
                TcpFlags {
                    set: within.set | bit,
                    of,
                },
                found,
            );
            cubes(holds, TcpFlags { set: within.set, of }, found);
        }
    }
}

fn combinations(rule: &FilterRule) -> u64 {
    let lists = [
        rule.from.0.len(),
        rule.to.0.len(),
        rule.protocol.0.len(),
        rule.from_port.0.len(),
        rule.to_port.0.len(),
        rule.icmp.0.len(),
        rule.from_mac.0.len() + 1,
        rule.to_mac.0.len() + 1,
        rule.incoming.0.len(),
        rule.out.0.len(),
    ];
    let both = if rule.from.is_empty() && rule.to.is_empty() {
        2
    } else {
        1
    };
    let fields = rule.header_fields().map(|field| field.ranges.len());
    lists
        .into_iter()
        .chain(fields)
        .fold(both, |all, count| all.saturating_mul(count.max(1) as u64))
}

/// Whether two decisions result from the same part of the same line.
fn together(one: &Decision, next: &Decision) -> bool {
    (one.line, one.step, &one.action, &one.name) == (next.line, next.step, &next.action, &next.name)
}

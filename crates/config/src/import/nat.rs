//! Converts NAT chains to `[nat]`.

mod destination;
mod source;

use std::collections::HashSet;
use std::net::Ipv4Addr;

use indexmap::IndexMap;
use ipnet::{Ipv4Net, Ipv4Subnets};

use super::chains::Flat;
use super::listing::{Action, Decision, Hook, LineIndex, Listing};
use super::packets::{Field, Packets, state};
use super::{ConversionReport, OwnAddress};
use crate::schema::{ExemptRule, Nat};
use crate::value::{Prefix, Transport};

/// Maximum number of prefixes to which one line may expand.
const MAX_PREFIXES: usize = 256;
/// Maximum number of rules that are compared in pairs. The maximum limits the run time.
const MAX_RULES: usize = 10_000;
const TOO_MANY: &str = "the listing has too many translation rules to compare them with each other";

/// State of the conversion.
struct Translation<'l> {
    listing: &'l Listing,
    addresses: &'l IndexMap<String, OwnAddress>,
    /// Decisions at the hooks before and after routing, in order.
    prerouting: Vec<Decision>,
    postrouting: Vec<Decision>,
    /// Prerouting lines that translate the inbound direction of one-to-one rules.
    reverses: HashSet<LineIndex>,
    sources: Vec<source::Source>,
    destinations: Vec<destination::Destination>,
    nat: Nat,
}

/// Converts all translation rules. `addresses` contains the addresses of interfaces.
pub fn nat(listing: &Listing, addresses: &IndexMap<String, OwnAddress>, report: &mut ConversionReport) -> Nat {
    let mut translation = Translation {
        listing,
        addresses,
        prerouting: decisions(listing, Hook::Prerouting, report),
        postrouting: decisions(listing, Hook::Postrouting, report),
        reverses: HashSet::new(),
        sources: Vec::new(),
        destinations: Vec::new(),
        nat: Nat::default(),
    };
    for decision in translation.postrouting.clone() {
        if let Err(why) = translation.source(&decision, report) {
            report.leave(decision.line, why);
        }
    }
    for decision in translation.prerouting.clone() {
        if let Err(why) = translation.destination(&decision, report) {
            report.leave(decision.line, why);
        }
    }
    if !translation.nat.pools.is_empty() {
        report.remarks.push(
            "Pools allocate random ports for TCP, UDP and ICMP. Packets of other protocols are dropped unless \
             `nat.pools.NAME.protocols` lists the protocol."
                .into(),
        );
    }
    translation.nat
}

/// Decisions of a hook's chains on IPv4 packets that open flows.
fn decisions(listing: &Listing, hook: Hook, report: &mut ConversionReport) -> Vec<Decision> {
    let chains = listing
        .tables
        .iter()
        .flat_map(|table| table.chains.values().map(move |chain| (table, chain)));
    let mut bases: Vec<_> = chains.filter(|(_, chain)| chain.hook == Some(hook)).collect();
    bases.sort_by_key(|(_, chain)| chain.priority);
    let (mut all, mut v6) = (Vec::new(), Vec::new());
    for (at, (table, chain)) in bases.iter().enumerate() {
        let mut flat = Flat::default();
        flat.base(table, chain, &Action::Accept);
        report.reached.extend(&flat.reached);
        for (line, why) in flat.leftovers {
            report.leave(line, why);
        }
        if chain.policy != crate::schema::Verdict::Accept {
            report.leave(chain.line, "in Sluice, translation rules can't drop packets");
        }
        let other = bases[at + 1..].iter().any(|(_, later)| !later.rules.is_empty());
        for decision in flat.decisions {
            match fit(&decision, other) {
                Ok(packets) => all.push(Decision { packets, ..decision }),
                Err(Some(why)) => report.leave(decision.line, why),
                Err(None) => {
                    report.note(decision.line, "converted only for IPv4: IPv6 is not translated");
                    v6.push(decision.line);
                }
            }
        }
    }
    let v4_lines: HashSet<LineIndex> = all.iter().map(|decision| decision.line).collect();
    for line in v6.into_iter().filter(|line| !v4_lines.contains(line)) {
        report.leave(line, "IPv6 is not translated");
    }
    all
}

/// Those packets of a decision that open flows. The error states why none of the packets opens a flow.
fn fit(decision: &Decision, other: bool) -> Result<Packets, Option<&'static str>> {
    let packets = &decision.packets;
    if packets.v6 {
        return Err(None);
    }
    match decision.action {
        Action::Accept if other => {
            return Err(Some("after this line, another translation chain evaluates the packets"));
        }
        Action::Drop | Action::Reject(_) => return Err(Some("in Sluice, translation rules can't drop packets")),
        Action::Count | Action::Log | Action::AddToSet(_) | Action::Notrack => {
            return Err(Some("translation rules have their own counters and no other actions"));
        }
        _ => {}
    }
    match packets.values(Field::State).holds(state::NEW) {
        true => Ok(packets.with_any(Field::State)),
        false => Err(Some(
            "translation rules apply only to the first packet of a flow, which this line does not \
             match",
        )),
    }
}

/// Check that packets are selected only by the given fields.
fn matches_only(packets: &Packets, fields: &[Field], rule_kind: &str) -> Result<(), String> {
    let all = [
        (Field::Source, "source addresses"),
        (Field::Destination, "destination addresses"),
        (Field::Protocol, "protocols"),
        (Field::SourcePort, "source ports"),
        (Field::DestinationPort, "destination ports"),
        (Field::Message, "ICMP types"),
        (Field::Flags, "flags"),
        (Field::SourceMac, "MAC addresses"),
        (Field::DestinationMac, "MAC addresses"),
        (Field::In, "the input interface"),
        (Field::Out, "the output interface"),
    ];
    let other = all
        .iter()
        .chain(Field::REFUSED)
        .find(|(field, _)| packets.get(*field).is_some() && !fields.contains(field));
    if packets.members().next().is_some() {
        return Err(format!("{rule_kind} can't match sets"));
    }
    match other {
        Some((_, name)) => Err(format!("{rule_kind} can't match {name}")),
        None => Ok(()),
    }
}

/// Prefixes in a field.
fn prefixes(packets: &Packets, field: Field) -> Result<Vec<Ipv4Net>, String> {
    let mut found = Vec::new();
    for &(first, last) in packets.values(field).list() {
        found.extend(Ipv4Subnets::new(v4(first), v4(last), 0));
        if found.len() > MAX_PREFIXES {
            return Err(format!(
                "the addresses of this line consist of more than {MAX_PREFIXES} prefixes"
            ));
        }
    }
    Ok(found)
}

fn v4(number: u128) -> Ipv4Addr {
    Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// Transport protocols of the packets: TCP, UDP, both TCP and UDP, or any protocol.
fn transports(packets: &Packets) -> Result<Vec<Option<Transport>>, String> {
    let Some(protocols) = packets.get(Field::Protocol) else {
        return Ok(vec![None]);
    };
    let numbers = protocols.list().iter().flat_map(|&(first, last)| first..=last);
    let transport = |number| match number {
        6 => Ok(Some(Transport::Tcp)),
        17 => Ok(Some(Transport::Udp)),
        _ => Err("translation rules can match only tcp, udp or all protocols".to_owned()),
    };
    numbers.map(transport).collect()
}

impl Translation<'_> {
    /// Interfaces in a field. `None` represents any interface.
    fn interfaces(&self, packets: &Packets, field: Field) -> Result<Vec<Option<String>>, String> {
        let Some(numbers) = packets.get(field) else {
            return Ok(vec![None]);
        };
        if super::interfaces::is_open(packets, field, self.listing.interfaces.len()) {
            return Err(
                "a translation rule must name its interface: \"all interfaces but one\" is not possible".into(),
            );
        }
        let numbers = numbers.list().iter().flat_map(|&(first, last)| first..=last);
        let names = numbers.filter_map(|number| self.listing.interfaces.get_index(number as usize));
        Ok(names.map(|name| Some(name.clone())).collect())
    }

    /// Describes a line for messages.
    fn place(&self, line: LineIndex) -> String {
        let line = &self.listing.lines[line];
        line.place
            .clone()
            .unwrap_or_else(|| format!("line {}", line.line.unwrap_or(0)))
    }

    fn exempt_destination(&mut self, to: Ipv4Net, protocol: Option<Transport>, port: Option<crate::value::PortRange>) {
        self.nat.exempt.push(ExemptRule {
            to: Some(Prefix::of(to.into())),
            from: None,
            protocol,
            port,
            out: None,
        });
    }
}

/// Whether a decision translates packets.
fn translates(decision: &Decision) -> bool {
    matches!(
        decision.action,
        Action::Snat(_) | Action::Masquerade(_) | Action::Dnat(_) | Action::Redirect(_) | Action::Netmap(..)
    )
}

/// Why an address is not valid for a host. `None` if the address is valid.
fn unusable(address: Ipv4Addr) -> Option<&'static str> {
    crate::validate::unusable(address.into())
}

//! Converts destination NAT to destination rules.

use std::net::Ipv4Addr;

use super::{ConversionReport, Translation, matches_only, prefixes, translates, transports, unusable, v4};
use crate::import::listing::{Action, Decision, LineIndex};
use crate::import::packets::{Field, Packets};
use crate::import::ranges::Ranges;
use crate::schema::{Balance, DestinationRule, Name, Pool};
use crate::value::{OneOrMore, Port, PortRange, Transport};

/// Maximum number of addresses per line. Each address becomes a rule.
const MAX_ADDRESSES: u128 = 16;

/// A destination rule, with the line from which it results.
pub struct Destination {
    line: LineIndex,
    rule: DestinationRule,
}

/// Destination ports in the conditions of a line.
pub fn ports(packets: &Packets) -> Result<Vec<Option<PortRange>>, String> {
    let Some(ports) = packets.get(Field::DestinationPort) else {
        return Ok(vec![None]);
    };
    let range = |&(first, last): &(u128, u128)| {
        // Port 0 is not valid, so the range begins at 1.
        PortRange::new((first as u16).max(1), last as u16).map(Some)
    };
    let found: Option<Vec<_>> = ports.list().iter().map(range).collect();
    found.ok_or_else(|| "port 0 is not a valid port".into())
}

impl DestinationRule {
    fn overlaps(&self, other: &Self) -> bool {
        let protocol = self.protocol.is_none() || other.protocol.is_none() || self.protocol == other.protocol;
        let port = match (self.port, other.port) {
            (Some(own), Some(other)) => own.overlap(&other).is_some(),
            _ => true,
        };
        self.meets(other) && protocol && port
    }

    /// Whether any packet matches the address and interface of both rules.
    fn meets(&self, other: &Self) -> bool {
        let address = self.address.is_none() || other.address.is_none() || self.address == other.address;
        let incoming = self.incoming.is_empty() || other.incoming.is_empty();
        address && (incoming || self.incoming.0.iter().any(|name| other.incoming.0.contains(name)))
    }

    /// Whether the address and interface of this rule match all packets of another rule.
    fn holds(&self, other: &Self) -> bool {
        let within = |name| self.incoming.0.contains(name);
        (self.address.is_none() || self.address == other.address)
            && (self.incoming.is_empty() || !other.incoming.is_empty() && other.incoming.0.iter().all(within))
    }

    fn covers(&self, other: &Self) -> bool {
        let port = match (self.port, other.port) {
            (Some(own), Some(other)) => own.overlap(&other) == Some(other),
            (own, _) => own.is_none(),
        };
        self.holds(other) && self.protocol.is_none_or(|own| other.protocol == Some(own)) && port
    }

    /// Precedence. If two rules match, the rule with the larger value applies.
    fn rank(&self) -> (bool, bool, bool, bool, u16) {
        let fewest = self.port.map_or(0, |port| u16::MAX - port.count());
        (
            self.address.is_some(),
            self.port.is_some(),
            self.protocol.is_some(),
            !self.incoming.is_empty(),
            fewest,
        )
    }
}

impl Translation<'_> {
    /// Convert a decision on inbound packets.
    pub(super) fn destination(&mut self, decision: &Decision, report: &mut ConversionReport) -> Result<(), String> {
        if self.reverses.contains(&decision.line) {
            return Ok(());
        }
        match &decision.action {
            Action::Accept => self.as_it_is(decision, report),
            Action::Dnat(target) => {
                if target.addresses.0 != target.addresses.1 {
                    return Err("a destination rule can forward only to a single host".into());
                }
                let to = crate::value::Target::Host(Ipv4Addr::from(target.addresses.0));
                let packets = self.at_own_address(decision, report)?;
                self.add_forwarding((decision.line, &packets), to, target.ports, report)
            }
            Action::Redirect(ports) => {
                for incoming in self.interfaces(&decision.packets, Field::In)? {
                    let Some(incoming) = incoming else {
                        return Err("a rule that forwards to the gateway must name its input interfaces".into());
                    };
                    let own = self.addresses.get(&incoming);
                    if own.is_none_or(|own| own.on_link.is_none()) {
                        return Err(format!(
                            "the listing does not contain the address of {incoming}: add --address \
                             {incoming}=ADDRESS/LENGTH"
                        ));
                    }
                }
                let gateway = crate::value::Target::Gateway;
                self.add_forwarding((decision.line, &decision.packets), gateway, *ports, report)?;
                report.note(
                    decision.line,
                    "the packets are delivered to a server in the namespace `sluice-default`, the router's host",
                );
                Ok(())
            }
            Action::Netmap(..) => Err(
                "`nat.static` translates both directions, but no line after routing translates the opposite \
                     direction"
                    .into(),
            ),
            _ => Err("the action of this line has no counterpart before routing".into()),
        }
    }

    /// Convert an exemption. The exemption applies to both the destination and the source.
    fn as_it_is(&mut self, decision: &Decision, report: &mut ConversionReport) -> Result<(), String> {
        let packets = &decision.packets;
        let at = self.prerouting.iter().position(|other| other.line == decision.line);
        let behind = &self.prerouting[at.unwrap_or(0)..];
        if !behind
            .iter()
            .any(|other| translates(other) && other.packets.and(packets).is_some())
        {
            report.note(decision.line, "not needed: no later line translates these packets");
            return Ok(());
        }
        if self.postrouting.iter().any(translates) {
            return Err(
                "an exemption would also apply to source addresses, which lines after routing translate".into(),
            );
        }
        let fields = [Field::Destination, Field::Protocol, Field::DestinationPort];
        matches_only(packets, &fields, "exemptions")?;
        let same = behind.iter().filter(|other| translates(other));
        let more_specific = same
            .into_iter()
            .any(|other| other.packets.and(packets).is_some() && !packets.within(&other.packets));
        if more_specific {
            return Err("a later line is more specific, and in Sluice the most specific rule applies".into());
        }
        for net in prefixes(packets, Field::Destination)? {
            for protocol in transports(packets)? {
                for port in ports(packets)? {
                    self.exempt_destination(net, protocol, port);
                }
            }
        }
        Ok(())
    }

    fn add_forwarding(
        &mut self,
        (line, packets): (LineIndex, &Packets),
        to: crate::value::Target,
        to_ports: Option<PortRange>,
        report: &mut ConversionReport,
    ) -> Result<(), String> {
        let fields = [Field::Destination, Field::Protocol, Field::DestinationPort, Field::In];
        matches_only(packets, &fields, "destination rules")?;
        let incoming = self.interfaces(packets, Field::In)?;
        let incoming = OneOrMore(incoming.into_iter().flatten().map(Name).collect());
        let mut found = Vec::new();
        for address in outside_addresses(packets, &incoming)? {
            for protocol in transports(packets)? {
                for port in ports(packets)? {
                    let incoming = incoming.clone();
                    found.push(DestinationRule {
                        incoming,
                        ..rule(address, protocol, port, (&to, to_ports))?
                    });
                }
            }
        }
        if self.destinations.len() + found.len() > super::MAX_RULES {
            return Err(super::TOO_MANY.into());
        }
        found.retain(|rule| !self.destinations.iter().any(|before| before.rule.covers(rule)));
        for rule in &found {
            self.fits(rule)?;
        }
        if found.is_empty() {
            report.note(
                line,
                "not needed: an earlier line matches all packets that this line matches",
            );
        }
        for rule in found {
            self.reserve(&rule);
            self.nat.destination.push(rule.clone());
            self.destinations.push(Destination { line, rule });
        }
        Ok(())
    }

    /// Removes the condition on the input interface, if the destination is known to be the address of this interface.
    fn at_own_address(&self, decision: &Decision, report: &mut ConversionReport) -> Result<Packets, String> {
        let packets = &decision.packets;
        if packets.get(Field::In).is_none() {
            return Ok(packets.clone());
        }
        let incoming = self.interfaces(packets, Field::In)?;
        // Packets to an interface's address are also accepted from inside interfaces.
        let own = match incoming.as_slice() {
            [Some(incoming)] => self.addresses.get(incoming).map(|own| (incoming, own)),
            _ => None,
        };
        let Some((incoming, own)) = own else {
            return Ok(packets.clone());
        };
        let own = u128::from(u32::from(own.address));
        let packets = packets.and(&Packets::all(false).with(Field::Destination, &Ranges::of(own, own)));
        let packets = packets.ok_or_else(|| {
            format!(
                "the destination address of this line is not the address of \
             {incoming}"
            )
        })?;
        report.note(
            decision.line,
            format!("converted for the address of {incoming}, for packets from any interface"),
        );
        Ok(packets.with_any(Field::In))
    }

    /// Check that a rule is compatible with the previous rules and with the pools.
    fn fits(&self, rule: &DestinationRule) -> Result<(), String> {
        for before in self.destinations.iter().filter(|before| before.rule.overlaps(rule)) {
            let line = self.place(before.line);
            let crossing = before.rule.port.zip(rule.port).is_some_and(|(one, two)| {
                let both = one.overlap(&two);
                both != Some(one) && both != Some(two)
            });
            if before.rule.rank() < rule.rank() || crossing {
                return Err(format!(
                    "{line} matches some of these packets first; in Sluice the most specific rule applies, whatever \
                     the order"
                ));
            }
        }
        if rule.port.is_none() && self.nat.pools.values().any(|pool| covers(pool, rule)) {
            return Err(
                "a pool allocates ports of this address, so that not all ports can be forwarded to one \
                 host"
                    .into(),
            );
        }
        Ok(())
    }

    /// Reserve the rule's ports in the pool, so that the pool does not allocate them.
    fn reserve(&mut self, rule: &DestinationRule) {
        let Some(port) = rule.port else { return };
        for pool in self.nat.pools.values_mut() {
            let free = pool.ports.without(&pool.reserved_ports);
            if covers(pool, rule) && free.iter().any(|free| free.overlap(&port).is_some()) {
                pool.reserved_ports.0.push(port);
            }
        }
    }
}

/// Whether a pool contains an address of a rule.
fn covers(pool: &Pool, rule: &DestinationRule) -> bool {
    let mut ranges = pool.addresses.iter();
    ranges.any(|range| rule.address.is_none_or(|address| range.contains(address)))
}

/// Outside addresses in the conditions of a line. `None` represents all addresses.
fn outside_addresses(packets: &Packets, incoming: &OneOrMore<Name>) -> Result<Vec<Option<Ipv4Addr>>, String> {
    let Some(destinations) = packets.get(Field::Destination) else {
        return match incoming.is_empty() {
            true => Err("a destination rule needs either an outside address or an input interface".into()),
            false => Ok(vec![None]),
        };
    };
    let ranges = || destinations.list().iter();
    let count = ranges().map(|(first, last)| last - first + 1).sum::<u128>();
    match count > MAX_ADDRESSES {
        true => Err("a destination rule can have only one outside address".into()),
        false => Ok(ranges()
            .flat_map(|&(first, last)| first..=last)
            .map(|address| Some(v4(address)))
            .collect()),
    }
}

fn rule(
    address: Option<Ipv4Addr>,
    protocol: Option<Transport>,
    port: Option<PortRange>,
    (to, ports): (&crate::value::Target, Option<PortRange>),
) -> Result<DestinationRule, String> {
    let host = match to {
        crate::value::Target::Host(host) => Some(*host),
        _ => None,
    };
    if let Some(reason) = host.and_then(unusable).or_else(|| address.and_then(unusable)) {
        return Err(format!("the address is {reason}"));
    }
    let to_port = match (port, ports) {
        (_, None) => None,
        (Some(port), Some(to)) if port == to => None,
        (Some(port), Some(to)) if port.count() == 1 && to.count() == 1 => to.first().to_string().parse::<Port>().ok(),
        (None, Some(_)) => {
            return Err(
                "the line translates all ports to one port, but a destination rule keeps ports distinct".into(),
            );
        }
        _ => {
            return Err(
                "the line does not determine how its ports are mapped; a destination rule maps port ranges in \
                 order"
                    .into(),
            );
        }
    };
    Ok(DestinationRule {
        protocol,
        address,
        incoming: OneOrMore::default(),
        local: false,
        port,
        to: to.clone(),
        to_port,
        balance: Balance::default(),
        health: None,
    })
}

//! What comes in: destination rules.

use std::net::Ipv4Addr;

use super::{Said, Translation, asks_only, four, prefixes, translates, transports, unusable};
use crate::import::listing::{Action, Decision, LineIndex, Target};
use crate::import::packets::{Field, Packets};
use crate::import::ranges::Ranges;
use crate::schema::DestinationRule;
use crate::value::{Port, PortRange, Transport};

/// Addresses that one line becomes rules of.
const MOST_ADDRESSES: u128 = 16;

/// A rule and its line.
pub struct Destination {
    line: LineIndex,
    rule: DestinationRule,
}

/// What destination ports a line names.
pub fn ports(packets: &Packets) -> Result<Vec<Option<PortRange>>, String> {
    let Some(ports) = packets.get(Field::DestinationPort) else {
        return Ok(vec![None]);
    };
    let range = |&(first, last): &(u128, u128)| {
        // No packet has port 0.
        PortRange::new((first as u16).max(1), last as u16).map(Some)
    };
    let found: Option<Vec<_>> = ports.list().iter().map(range).collect();
    found.ok_or_else(|| "port 0 is no port".into())
}

impl DestinationRule {
    fn overlaps(&self, other: &Self) -> bool {
        let protocol = self.protocol.is_none() || other.protocol.is_none() || self.protocol == other.protocol;
        let port = match (self.port, other.port) {
            (Some(own), Some(other)) => own.overlap(&other).is_some(),
            _ => true,
        };
        self.address == other.address && protocol && port
    }

    fn covers(&self, other: &Self) -> bool {
        let port = match (self.port, other.port) {
            (Some(own), Some(other)) => own.overlap(&other) == Some(other),
            (own, _) => own.is_none(),
        };
        self.address == other.address && self.protocol.is_none_or(|own| other.protocol == Some(own)) && port
    }

    /// The larger one decides.
    fn rank(&self) -> (bool, bool, u16) {
        let fewest = self.port.map_or(0, |port| u16::MAX - port.count());
        (self.port.is_some(), self.protocol.is_some(), fewest)
    }
}

impl Translation<'_> {
    /// Carry over what a line does with packets that come in.
    pub(super) fn destination(&mut self, decision: &Decision, said: &mut Said) -> Result<(), String> {
        if self.halves.contains(&decision.line) {
            return Ok(());
        }
        match &decision.action {
            Action::Accept => self.as_it_is(decision, said),
            Action::Dnat(target) => self.led(decision, target, said),
            Action::Netmap(..) => {
                Err("`nat.static` translates both ways, and no line behind routing leads back".into())
            }
            _ => Err("it has no counterpart before routing".into()),
        }
    }

    /// An exemption is one from all translation, of sources as well.
    fn as_it_is(&mut self, decision: &Decision, said: &mut Said) -> Result<(), String> {
        let packets = &decision.packets;
        let at = self.prerouting.iter().position(|other| other.line == decision.line);
        let behind = &self.prerouting[at.unwrap_or(0)..];
        if !behind
            .iter()
            .any(|other| translates(other) && other.packets.and(packets).is_some())
        {
            said.note(decision.line, "nothing behind it translates these packets");
            return Ok(());
        }
        if self.postrouting.iter().any(translates) {
            return Err("an exemption goes for sources as well, and lines behind routing translate those".into());
        }
        let fields = [Field::Destination, Field::Protocol, Field::DestinationPort];
        asks_only(packets, &fields, "exemptions")?;
        let same = behind.iter().filter(|other| translates(other));
        let more_specific = same
            .into_iter()
            .any(|other| other.packets.and(packets).is_some() && !packets.within(&other.packets));
        if more_specific {
            return Err("a line behind it is more specific, and the most specific rule decides here".into());
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

    fn led(&mut self, decision: &Decision, target: &Target, said: &mut Said) -> Result<(), String> {
        let packets = self.at_own_address(decision, said)?;
        let fields = [Field::Destination, Field::Protocol, Field::DestinationPort];
        asks_only(&packets, &fields, "destination rules")?;
        if target.addresses.0 != target.addresses.1 {
            return Err("a destination rule leads to one host".into());
        }
        let destinations = packets.values(Field::Destination);
        let count = destinations
            .list()
            .iter()
            .map(|(first, last)| last - first + 1)
            .sum::<u128>();
        if count > MOST_ADDRESSES {
            return Err("a destination rule is for one outside address".into());
        }
        let addresses = destinations.list().iter().flat_map(|&(first, last)| first..=last);
        let mut found = Vec::new();
        for address in addresses.map(four) {
            for protocol in transports(&packets)? {
                for port in ports(&packets)? {
                    found.push(rule(address, protocol, port, target)?);
                }
            }
        }
        if self.destinations.len() + found.len() > super::MOST_RULES {
            return Err(super::TOO_MANY.into());
        }
        found.retain(|rule| !self.destinations.iter().any(|before| before.rule.covers(rule)));
        for rule in &found {
            self.fits(rule)?;
        }
        if found.is_empty() {
            said.note(decision.line, "a line before it decides about all that it matches");
        }
        for rule in found {
            self.reserve(&rule);
            self.nat.destination.push(rule.clone());
            let line = decision.line;
            self.destinations.push(Destination { line, rule });
        }
        Ok(())
    }

    /// The packets, without the interface that they come in by where its address is known to be theirs.
    fn at_own_address(&self, decision: &Decision, said: &mut Said) -> Result<Packets, String> {
        let packets = &decision.packets;
        if packets.get(Field::In).is_none() {
            return Ok(packets.clone());
        }
        let incoming = self.interfaces(packets, Field::In)?;
        let [Some(incoming)] = incoming.as_slice() else {
            return Err("destination rules do not ask for the interface that packets come in by".into());
        };
        let own = self.addresses.get(incoming).ok_or_else(|| {
            format!(
                "destination rules are for an address, whatever the interface: \
                 where it is that of {incoming}, give --address {incoming}=ADDRESS"
            )
        })?;
        let own = u128::from(u32::from(own.address));
        let packets = packets.and(&Packets::all(false).with(Field::Destination, &Ranges::of(own, own)));
        let packets = packets.ok_or_else(|| format!("its address is not that of {incoming}"))?;
        said.note(
            decision.line,
            format!("for the address of {incoming}, by whatever interface packets come in"),
        );
        Ok(packets.with_any(Field::In))
    }

    /// Whether a rule can stand beside those before it and the pools.
    fn fits(&self, rule: &DestinationRule) -> Result<(), String> {
        for before in self.destinations.iter().filter(|before| before.rule.overlaps(rule)) {
            let line = self.place(before.line);
            let crossing = before.rule.port.zip(rule.port).is_some_and(|(one, two)| {
                let both = one.overlap(&two);
                both != Some(one) && both != Some(two)
            });
            if before.rule.rank() < rule.rank() || crossing {
                return Err(format!(
                    "{line} hides some of it; here the most specific rule decides, whatever the order"
                ));
            }
        }
        let lends = |pool: &crate::schema::Pool| pool.addresses.iter().any(|range| range.contains(rule.address));
        if rule.port.is_none() && self.nat.pools.values().any(lends) {
            return Err("a pool lends ports of this address, so that not all can lead to one host".into());
        }
        Ok(())
    }

    /// Take its ports from the pool that lends them.
    fn reserve(&mut self, rule: &DestinationRule) {
        let Some(port) = rule.port else { return };
        for pool in self.nat.pools.values_mut() {
            let lends = pool.addresses.iter().any(|range| range.contains(rule.address));
            let free = pool.ports.without(&pool.reserved_ports);
            if lends && free.iter().any(|free| free.overlap(&port).is_some()) {
                pool.reserved_ports.0.push(port);
            }
        }
    }
}

fn rule(
    address: Ipv4Addr,
    protocol: Option<Transport>,
    port: Option<PortRange>,
    target: &Target,
) -> Result<DestinationRule, String> {
    let to = Ipv4Addr::from(target.addresses.0);
    if let Some(reason) = unusable(to).or_else(|| unusable(address)) {
        return Err(format!("the address is {reason}"));
    }
    let to_port = match (port, target.ports) {
        (_, None) => None,
        (Some(port), Some(to)) if port == to => None,
        (Some(port), Some(to)) if port.count() == 1 && to.count() == 1 => to.first().to_string().parse::<Port>().ok(),
        (None, Some(_)) => {
            return Err("without a port before, all ports become one; a destination rule keeps them apart".into());
        }
        _ => {
            return Err(
                "several ports become others, and which is left open; a destination rule moves them one by one".into(),
            );
        }
    };
    Ok(DestinationRule {
        protocol,
        address,
        port,
        to,
        to_port,
    })
}

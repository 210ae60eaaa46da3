//! Converts source NAT to source rules, one-to-one rules and exemptions.

use ipnet::Ipv4Net;

use super::{ConversionReport, Translation, matches_only, prefixes, translates, transports, v4};
use crate::import::listing::{Action, Decision, LineIndex, Target};
use crate::import::packets::{Field, Packets};
use crate::schema::{ExemptRule, Pool, SourceRule, StaticRule};
use crate::value::{AddressRange, PortRange, Prefix, Transport};

/// A source rule with its precedence.
pub struct Source {
    line: LineIndex,
    from: Ipv4Net,
    protocol: Option<Transport>,
    out: Option<String>,
    translation: SourceTranslation,
}

#[derive(Clone, PartialEq)]
enum SourceTranslation {
    Pool(String),
    Static(Ipv4Net),
    Exempt,
}

impl Source {
    /// Precedence. If two rules match, the rule with the larger value applies.
    fn rank(&self) -> (u8, bool, bool) {
        (self.from.prefix_len(), self.protocol.is_some(), self.out.is_some())
    }

    fn overlaps(&self, other: &Self) -> bool {
        let from = self.from.contains(&other.from) || other.from.contains(&self.from);
        let protocol = self.protocol.is_none() || other.protocol.is_none() || self.protocol == other.protocol;
        let out = self.out.is_none() || other.out.is_none() || self.out == other.out;
        from && protocol && out
    }

    fn covers(&self, other: &Self) -> bool {
        self.from.contains(&other.from)
            && self.protocol.is_none_or(|protocol| other.protocol == Some(protocol))
            && self.out.as_ref().is_none_or(|out| other.out.as_ref() == Some(out))
    }
}

impl Translation<'_> {
    /// Convert a decision on outbound packets.
    pub(super) fn source(&mut self, decision: &Decision, report: &mut ConversionReport) -> Result<(), String> {
        let packets = &decision.packets;
        let mut allocated = None;
        let translation = match &decision.action {
            Action::Accept if packets.get(Field::Destination).is_some() => return self.exempt(decision, report),
            Action::Accept => SourceTranslation::Exempt,
            Action::Snat(target) => match self.one_to_one(decision, target.addresses, target.ports.is_some()) {
                Some(outside) => SourceTranslation::Static(outside),
                None => SourceTranslation::Pool(allocated.insert(self.pool(target)?).0.clone()),
            },
            Action::Netmap(first, last) => {
                let pair = self.one_to_one(decision, (*first, *last), false);
                SourceTranslation::Static(pair.ok_or(ONE_WAY)?)
            }
            Action::Masquerade(ports) => {
                let target = self.masquerade(packets, *ports)?;
                SourceTranslation::Pool(allocated.insert(self.pool(&target)?).0.clone())
            }
            _ => return Err("the action of this line has no counterpart after routing".into()),
        };
        matches_only(packets, &[Field::Source, Field::Protocol, Field::Out], "source rules")?;
        let mut found = Vec::new();
        for from in prefixes(packets, Field::Source)? {
            for protocol in transports(packets)? {
                for out in self.interfaces(packets, Field::Out)? {
                    found.push(Source {
                        line: decision.line,
                        from,
                        protocol,
                        out,
                        translation: translation.clone(),
                    });
                }
            }
        }
        if self.sources.len() + found.len() > super::MAX_RULES {
            return Err(super::TOO_MANY.into());
        }
        found.retain(|source| !self.sources.iter().any(|before| before.covers(source)));
        for source in &found {
            let before = self.sources.iter().find(|before| {
                before.overlaps(source) && before.rank() < source.rank() && before.translation != source.translation
            });
            if let Some(before) = before {
                let before = self.place(before.line);
                return Err(format!(
                    "{before} matches some of these packets first; in Sluice the most specific rule applies, whatever \
                     the order"
                ));
            }
        }
        match allocated {
            _ if found.is_empty() => report.note(
                decision.line,
                "not needed: an earlier line matches all packets that \
                 this line matches",
            ),
            Some((name, pool)) => drop(self.nat.pools.insert(name, pool)),
            None => {}
        }
        for source in found {
            self.add(source);
        }
        Ok(())
    }

    fn add(&mut self, source: Source) {
        let (from, protocol, out) = (Prefix::of(source.from.into()), source.protocol, source.out.clone());
        match &source.translation {
            SourceTranslation::Pool(pool) => self.nat.source.push(SourceRule {
                from,
                protocol,
                out,
                local: false,
                pool: pool.clone(),
            }),
            SourceTranslation::Static(outside) => self.nat.one_to_one.push(StaticRule {
                inside: from,
                outside: Prefix::of((*outside).into()),
                out,
            }),
            SourceTranslation::Exempt => self.nat.exempt.push(ExemptRule {
                to: None,
                from: Some(from),
                protocol,
                port: None,
                out,
            }),
        }
        self.sources.push(source);
    }

    /// Outside network of a one-to-one mapping. `None` if no prerouting line translates the outside addresses back to
    /// the inside addresses.
    fn one_to_one(&mut self, decision: &Decision, (first, last): (u32, u32), with_ports: bool) -> Option<Ipv4Net> {
        let packets = &decision.packets;
        let sources = packets.get(Field::Source)?;
        let &[(from, to)] = sources.list() else { return None };
        let outside = (u128::from(first), u128::from(last));
        let whole = matches_only(packets, &[Field::Source, Field::Out], "").is_ok() && !with_ports;
        if !whole || to - from != outside.1 - outside.0 {
            return None;
        }
        let reverse = self.prerouting.iter().find(|reverse| {
            let inside = match &reverse.action {
                Action::Dnat(target) if target.ports.is_none() => target.addresses,
                Action::Netmap(first, last) => (*first, *last),
                _ => return false,
            };
            let single = from == to
                || matches!(
                    (&reverse.action, &decision.action),
                    (Action::Netmap(..), Action::Netmap(..))
                );
            let same_interface = reverse
                .packets
                .get(Field::In)
                .is_none_or(|by| Some(by) == packets.get(Field::Out));
            let destinations = reverse.packets.get(Field::Destination).map(|to| to.list());
            single
                && same_interface
                && matches_only(&reverse.packets, &[Field::Destination, Field::In], "").is_ok()
                && (u128::from(inside.0), u128::from(inside.1)) == (from, to)
                && destinations == Some(&[outside])
        })?;
        let length = 32 - (to - from + 1).checked_ilog2()?;
        let net = Ipv4Net::new(v4(outside.0), length as u8).ok()?;
        let range = AddressRange::new(net.network(), net.broadcast())?;
        let allocated = self.nat.pools.values().flat_map(|pool| &pool.addresses);
        if net.addr() != net.network() || allocated.into_iter().any(|other| other.overlap(&range).is_some()) {
            return None;
        }
        self.reverses.insert(reverse.line);
        Some(net)
    }

    fn masquerade(&self, packets: &Packets, ports: Option<PortRange>) -> Result<Target, String> {
        let out = self.interfaces(packets, Field::Out)?;
        let [Some(out)] = out.as_slice() else {
            return Err(
                "the line uses the address of its output interface, but names no single interface: write the \
                 addresses in `nat.pools`"
                    .into(),
            );
        };
        let own = self.addresses.get(out);
        let own = own.ok_or_else(|| {
            format!(
                "the listing does not contain the address of {out}: add --address \
                 {out}=ADDRESS"
            )
        })?;
        let address = u32::from(own.address);
        let addresses = (address, address);
        Ok(Target { addresses, ports })
    }

    /// Pool for a target. Equal targets use the same pool.
    fn pool(&self, target: &Target) -> Result<(String, Pool), String> {
        let (first, last) = target.addresses;
        let range = AddressRange::new(first.into(), last.into()).ok_or(
            "the first address of the range is above the \
             last address",
        )?;
        if let Some(reason) = super::unusable(range.first()).or_else(|| super::unusable(range.last())) {
            return Err(format!("the address is {reason}"));
        }
        let mut pool = Pool::of(vec![range]);
        if let Some(ports) = target.ports {
            if ports.count() < 64 {
                return Err("the target has too few ports to divide them among shards".into());
            }
            pool.ports = ports.into();
        }
        let same = self.nat.pools.iter().find(|(_, other)| **other == pool);
        if let Some((name, pool)) = same {
            return Ok((name.clone(), pool.clone()));
        }
        let mut pools = self.nat.pools.iter();
        if let Some((name, _)) =
            pools.find(|(_, pool)| pool.addresses.iter().any(|other| other.overlap(&range).is_some()))
        {
            return Err(format!(
                "pool {name} already contains some of these addresses, and an address can be in only one pool"
            ));
        }
        let mut taken = self.nat.one_to_one.iter().filter_map(|rule| rule.outside.ipv4());
        if taken.any(|net| {
            AddressRange::new(net.network(), net.broadcast()).is_some_and(|net| net.overlap(&range).is_some())
        }) {
            return Err("one of these addresses is already translated one-to-one to a host".into());
        }
        Ok((range.to_string(), pool))
    }

    /// Convert a line that exempts destinations from translation. An exemption applies to all sources and interfaces.
    /// Therefore earlier lines must not translate any packets to these destinations, and later lines must not translate
    /// packets that the line does not match.
    fn exempt(&mut self, decision: &Decision, report: &mut ConversionReport) -> Result<(), String> {
        let (packets, line) = (&decision.packets, decision.line);
        let at = self
            .postrouting
            .iter()
            .position(|other| other.line == line)
            .unwrap_or(0);
        let (before, behind) = self.postrouting.split_at(at);
        let behind: Vec<_> = behind.iter().filter(|other| translates(other)).collect();
        if behind.iter().all(|other| other.packets.and(packets).is_none()) {
            report.note(line, "not needed: no later line translates these packets");
            return Ok(());
        }
        let fields = [
            Field::Source,
            Field::Out,
            Field::Destination,
            Field::Protocol,
            Field::DestinationPort,
        ];
        matches_only(packets, &fields, "exemptions")?;
        let kept = Packets::all(false)
            .with(Field::Source, &packets.values(Field::Source))
            .with(Field::Out, &packets.values(Field::Out));
        if behind.iter().any(|other| !other.packets.within(&kept)) {
            return Err(
                "an exemption can match either destinations or sources, but later lines also translate packets from \
                 other sources"
                    .into(),
            );
        }
        let meets = |other: &&Decision| translates(other) && other.packets.and(packets).is_some();
        if let Some(other) = before.iter().find(meets) {
            return Err(format!("{} translates some of these packets", self.place(other.line)));
        }
        let to = Packets::all(false).with(Field::Destination, &packets.values(Field::Destination));
        let reached = |target: (u32, u32)| target_packets(target).and(&to).is_some();
        let led = self.prerouting.iter().find(|other| match &other.action {
            Action::Dnat(target) => {
                reached(target.addresses)
                    || other.packets.and(&to).is_some() && other.packets.get(Field::Destination).is_some()
            }
            Action::Netmap(first, last) => reached((*first, *last)) || other.packets.and(&to).is_some(),
            _ => false,
        });
        if let Some(other) = led.filter(|other| !self.reverses.contains(&other.line)) {
            return Err(format!(
                "{} changes the destination of some of these packets",
                self.place(other.line)
            ));
        }
        let ports = super::destination::ports(packets)?;
        for net in prefixes(packets, Field::Destination)? {
            for protocol in transports(packets)? {
                for &port in &ports {
                    self.exempt_destination(net, protocol, port);
                }
            }
        }
        Ok(())
    }
}

const ONE_WAY: &str = "`nat.static` translates both directions, but no line before routing translates the opposite \
     direction";

fn target_packets((first, last): (u32, u32)) -> Packets {
    let range = crate::import::ranges::Ranges::of(first.into(), last.into());
    Packets::all(false).with(Field::Destination, &range)
}

//! Validation of port allocation: settings of a pool in relation to each other, to its ports and to the shards.

use std::net::IpAddr;

use super::Check;
use crate::config::{DEFAULT_ROUTER, Pool, Timeouts};
use crate::host_share::within_reach;
use crate::problem::{PoolProblem, Problem};
use crate::read::{Step, place};
use crate::schema::{
    self, Algorithm, Block, Deterministic, Filtering, Mapping, Pairing, PortSelection, SessionLimits, SubscriberLimits,
};
use crate::value::{AddressRange, ByProtocol, PortRange, PortRanges};

/// Maximum number of sessions or ports in a limit. The session tables have the same limit.
const MAX_LIMIT: u32 = 1 << 30;

/// In a pool without blocks, number of consecutive ports that belong to one shard.
const UNIT: u16 = 64;

/// Maximum number of addresses from which a subscriber may get ports.
const ADDRESSES: u64 = 8;

impl Check<'_> {
    /// The validated pool. `None` only if a problem was reported.
    pub(super) fn pool(&mut self, name: &str, written: &schema::Pool, inherited: &Timeouts) -> Option<Pool> {
        let at = place!["nat", "pools", name];
        let free = written.ports.without(&written.reserved_ports);
        let ports = PortRanges(free.clone()).hull();
        if ports.is_none() {
            self.report(&[at, place!["ports"]].concat(), PoolProblem::NoPortLeft.into());
        }
        let behaviour = self.behaviour(at, written);
        self.overlap(at, written, &behaviour);
        self.selection(at, written, &behaviour);
        if let Some(ports) = ports {
            self.block(at, written, ports);
            self.divided(at, written, ports);
            self.deterministic(name, written, &free);
        }
        if !written.quarantine.duration().is_zero() {
            self.whole_seconds(&[at, place!["quarantine"]].concat(), "a time", written.quarantine);
        }
        for (k, &protocol) in written.protocols.iter().enumerate() {
            if matches!(protocol.0, 1 | 6 | 17 | 58) {
                let at = [at, place!["protocols", k]].concat();
                self.report(&at, PoolProblem::HasPorts(protocol).into());
            }
        }
        self.subscriber_limits(&[at, place!["subscriber"]].concat(), &written.subscriber);
        self.session_limits(&[at, place!["limits"]].concat(), &written.limits);
        let timeouts = self.timeouts(&[at, place!["timeouts"]].concat(), &written.timeouts, Some(inherited));
        let ports = ports?;
        Some(Pool {
            name: name.to_owned(),
            router: DEFAULT_ROUTER,
            addresses: written.addresses.clone(),
            ports,
            reserved: PortRanges::from(ports).without(&PortRanges(free)),
            pairing: written.pairing,
            behaviour,
            overlap: written.overlap,
            selection: written.port_selection,
            parity: written.parity,
            block: written.block,
            hold: written.quarantine.duration(),
            deterministic: written.deterministic,
            rewrite_ip_id: written.rewrite_ip_id,
            protocols: written.protocols.iter().map(|protocol| protocol.0).collect(),
            subscriber: written.subscriber,
            limits: written.limits,
            timeouts,
        })
    }

    /// Mapping and filtering behaviour of TCP, UDP and ICMP queries. A configured filtering behaviour must also be the
    /// effective filtering behaviour.
    fn behaviour(&mut self, at: &[Step<'_>], written: &schema::Pool) -> [(Mapping, Filtering); 3] {
        let filtering = written.filtering.each();
        let mapping = written.mapping.each().map(Option::unwrap_or_default);
        let mut behaviour = [(Mapping::default(), Filtering::default()); 3];
        for (class, protocol) in ByProtocol::<Filtering>::NAMES.into_iter().enumerate() {
            let dependent = mapping[class] == Mapping::AddressAndPortDependent;
            let standard = match dependent {
                true => Filtering::AddressAndPortDependent,
                false => Filtering::default(),
            };
            behaviour[class] = (mapping[class], filtering[class].unwrap_or(standard));
            if dependent && behaviour[class].1 != standard {
                let filtering = match behaviour[class].1 {
                    Filtering::AddressDependent => "address-dependent",
                    _ => "endpoint-independent",
                };
                let problem = PoolProblem::FilteringIgnored { protocol, filtering };
                self.report(&[at, place!["filtering", protocol]].concat(), problem.into());
                // A value that is configured for all protocols is reported only once.
                if written.filtering.is_one() {
                    break;
                }
            }
        }
        behaviour
    }

    fn overlap(&mut self, at: &[Step<'_>], written: &schema::Pool, behaviour: &[(Mapping, Filtering); 3]) {
        if !written.overlap {
            return;
        }
        let at = [at, place!["overlap"]].concat();
        if behaviour.iter().all(|one| one.0 == Mapping::EndpointIndependent) {
            self.report(&at, PoolProblem::NothingOverlaps.into());
        }
        if written.block.is_some() {
            let why = "remove one of the two keys: `block` assigns a port to one subscriber, but `overlap` assigns it \
                 to several";
            self.contradiction(&at, "overlap", "block", why);
        }
    }

    fn selection(&mut self, at: &[Step<'_>], written: &schema::Pool, behaviour: &[(Mapping, Filtering); 3]) {
        if written.port_selection != PortSelection::Preserve {
            return;
        }
        let at = [at, place!["port-selection"]].concat();
        let preserve = "port-selection = \"preserve\"";
        if written.block.is_some() {
            let why = "remove one of the two keys: the inside port, which would be preserved, is rarely in the block";
            self.contradiction(&at, preserve, "block", why);
        }
        if written.deterministic.is_some() {
            let why = "remove one of the two keys: deterministic ports are computed and can't be preserved";
            self.contradiction(&at, preserve, "deterministic", why);
        }
        let dependent = behaviour.iter().any(|one| one.0 == Mapping::AddressAndPortDependent);
        if dependent && !written.overlap {
            let why = "add `overlap = true`: without overlap, each flow needs a different port, and only one flow can \
                 preserve the inside port";
            self.contradiction(&at, preserve, "mapping = \"address-and-port-dependent\"", why);
        }
        let (addresses, shards) = (addresses(written), self.document.system.shards());
        if addresses < u64::from(shards) && addresses > 0 {
            self.report(&at, PoolProblem::FewerAddressesThanShards { addresses, shards }.into());
        }
    }

    fn block(&mut self, at: &[Step<'_>], written: &schema::Pool, ports: PortRange) {
        let Some(Block { size, maximum, .. }) = written.block else {
            return;
        };
        let at = [at, place!["block"]].concat();
        if !size.is_power_of_two() || size < 64 {
            self.report(&[&at, place!["size"]].concat(), PoolProblem::BlockSize(size).into());
            return;
        }
        let (first, last) = (ports.first() / size, ports.last() / size);
        let max = u32::from(last - first) + 1;
        self.in_range(
            &[&at, place!["maximum"]].concat(),
            "a number of blocks",
            maximum,
            1..=1023,
        );
        let (addresses, shards) = (addresses(written), self.document.system.shards());
        let blocks = addresses * u64::from(max);
        if blocks < u64::from(shards) && addresses > 0 && written.deterministic.is_some() {
            let problem = PoolProblem::FewerBlocksThanShards { blocks, size, shards };
            self.report(&[&at, place!["size"]].concat(), problem.into());
        }
        let whole = whole_blocks(size, ports);
        if let Some(whole) = whole.filter(|whole| *whole != ports && written.deterministic.is_none()) {
            self.advise(
                &[&at, place!["size"]].concat(),
                PoolProblem::BlocksCut { size, ports, whole }.into(),
            );
        }
    }

    /// Check the division of ports among shards. A subscriber gets ports from its shard's part of its address, and from
    /// the ports that shards share. If ports are preserved, each shard has whole addresses. Computed ports do not
    /// depend on shards.
    fn divided(&mut self, at: &[Step<'_>], written: &schema::Pool, ports: PortRange) {
        let size = written.block.map_or(UNIT, |block| block.size);
        let whole = written.port_selection == PortSelection::Preserve || written.deterministic.is_some();
        if whole || !size.is_power_of_two() || size < UNIT {
            return;
        }
        let shards = self.document.system.shards().max(1);
        let parts = ports.last() / size - ports.first() / size + 1;
        let tried = match written.pairing {
            Pairing::Hard => 1,
            Pairing::Soft => addresses(written).min(ADDRESSES),
        };
        if tried > 0 && tried * u64::from(parts) < u64::from(shards) {
            let problem = PoolProblem::FewerPortsThanShards {
                ports,
                parts,
                size,
                shards,
            };
            let key = if written.block.is_some() {
                place!["block", "size"]
            } else {
                place!["ports"]
            };
            self.report(&[at, key].concat(), problem.into());
        } else if let (Some(Block { maximum, .. }), Pairing::Hard) = (written.block, written.pairing)
            && u64::from(maximum)
                > within_reach(ports, size.into(), shards.into(), |_| 1).unwrap_or(parts.div_ceil(shards).into())
        {
            let problem = PoolProblem::BlocksOutOfReach {
                maximum,
                blocks: parts,
                shards,
            };
            self.advise(&[at, place!["block", "maximum"]].concat(), problem.into());
        }
    }

    fn deterministic(&mut self, name: &str, written: &schema::Pool, free: &[PortRange]) {
        let Some(deterministic) = &written.deterministic else {
            return;
        };
        let at = place!["nat", "pools", name, "deterministic"];
        let Deterministic {
            inside,
            compression,
            dynamic,
            maximum_ports,
            ..
        } = *deterministic;
        for end in [inside.first(), inside.last()].map(IpAddr::V4) {
            if let Some(reason) = self.unusable(end) {
                let problem = Problem::UnusableAddress { address: end, reason };
                self.report(&[at, place!["inside"]].concat(), problem);
                break;
            }
        }
        self.deterministic_conflicts(at, written, deterministic);
        self.in_range(
            &[at, place!["compression"]].concat(),
            "a compression",
            compression,
            1..=u16::MAX,
        );
        let (outside, compression_at) = (addresses(written), [at, place!["compression"]].concat());
        let places = outside * u64::from(compression);
        if inside.count() > places && compression > 0 && outside > 0 {
            let problem = PoolProblem::TooManyInside {
                inside,
                count: inside.count(),
                outside,
                compression,
                places,
            };
            self.report(&[at, place!["inside"]].concat(), problem.into());
        }
        let ports: u32 = free.iter().map(|range| u32::from(range.count())).sum();
        let shares = u32::from(compression) + u32::from(dynamic);
        let share = ports / shares.max(1);
        if share == 0 {
            self.report(&compression_at, PoolProblem::NoPortsEach { ports, shares }.into());
            return;
        }
        if let Some(maximum) = maximum_ports.filter(|&maximum| maximum < share) {
            let problem = PoolProblem::BelowShare { maximum, share };
            self.report(&[at, place!["maximum-ports"]].concat(), problem.into());
        }
        self.dynamic_shares(at, written, dynamic, behind(free, share * u32::from(compression)));
        self.inside_is_translated(name, inside);
    }

    /// Report settings that contradict deterministic NAT.
    fn deterministic_conflicts(&mut self, at: &[Step<'_>], written: &schema::Pool, deterministic: &Deterministic) {
        let dependent = written.mapping.each().contains(&Some(Mapping::AddressAndPortDependent));
        if dependent && !written.overlap {
            let why = "add `overlap = true`: without overlap, each flow needs a different port, and the ports of an \
                 inside address are soon exhausted";
            self.contradiction(at, "deterministic", "mapping = \"address-and-port-dependent\"", why);
        }
        let prefix = self.document.nat.subscriber_prefix;
        if prefix != 32 {
            self.report(at, PoolProblem::SubscriberPrefix(prefix).into());
        }
        let spread = match deterministic.algorithm {
            Algorithm::RoundRobin => Some("algorithm = \"round-robin\""),
            Algorithm::Interlaced => Some("algorithm = \"interlaced\""),
            _ => None,
        };
        if let Some(algorithm) = spread.filter(|_| written.pairing == Pairing::Hard) {
            let why = "add `pairing = \"soft\"`, because this algorithm gives an inside host ports of many addresses; \
                 or choose the algorithm `sequential`, `staggered` or `random`";
            self.contradiction(
                &[at, place!["algorithm"]].concat(),
                algorithm,
                "pairing = \"hard\"",
                why,
            );
        }
        match (deterministic.algorithm, deterministic.key) {
            (Algorithm::Random, None) => self.report(at, PoolProblem::KeyMissing.into()),
            (Algorithm::Random, Some(_)) | (_, None) => {}
            (_, Some(_)) => self.report(&[at, place!["key"]].concat(), PoolProblem::KeyUnused.into()),
        }
    }

    /// Check the port blocks that use the ports outside of the computed shares.
    fn dynamic_shares(&mut self, at: &[Step<'_>], written: &schema::Pool, dynamic: u16, kept: Option<PortRange>) {
        match (written.block, dynamic) {
            (None, 1..) => self.report(
                &[at, place!["dynamic"]].concat(),
                PoolProblem::DynamicWithoutBlock.into(),
            ),
            (Some(_), 0) => self.report(at, PoolProblem::BlockWithoutDynamic.into()),
            (Some(Block { size, .. }), _) if size.is_power_of_two() => {
                if let Some(ports) = kept.filter(|&ports| whole_blocks(size, ports).is_none()) {
                    let problem = PoolProblem::NoBlockKept { size, ports };
                    self.report(&[at, place!["dynamic"]].concat(), problem.into());
                }
            }
            _ => {}
        }
    }

    /// Check that all inside addresses with computed ports match rules that use the pool.
    fn inside_is_translated(&mut self, name: &str, inside: AddressRange) {
        let mut from: Vec<_> = self
            .document
            .nat
            .source
            .iter()
            .filter(|rule| rule.pool == name)
            .filter_map(|rule| rule.from.ipv4())
            .map(|net| (u32::from(net.network()), u32::from(net.broadcast())))
            .collect();
        from.sort_unstable();
        let mut next = u64::from(u32::from(inside.first()));
        for (first, last) in from {
            if u64::from(first) <= next {
                next = next.max(u64::from(last) + 1);
            }
        }
        if next <= u64::from(u32::from(inside.last())) {
            let pool = name.to_owned();
            self.advise(
                place!["nat", "pools", name, "deterministic", "inside"],
                PoolProblem::InsideNotTranslated { inside, pool }.into(),
            );
        }
    }

    fn subscriber_limits(&mut self, at: &[Step<'_>], limits: &SubscriberLimits) {
        for (protocol, ports) in ByProtocol::<u32>::NAMES.into_iter().zip(limits.ports.each()) {
            if let Some(ports) = ports {
                let at = [at, place!["ports", protocol]].concat();
                self.in_range(&at, "a number of ports", ports, 1..=65_535);
                if limits.ports.is_one() {
                    break;
                }
            }
        }
        let sessions = SessionLimits {
            sessions: limits.sessions,
            new_sessions: limits.new_sessions,
        };
        self.session_limits(at, &sessions);
    }

    pub(super) fn session_limits(&mut self, at: &[Step<'_>], limits: &SessionLimits) {
        if let Some(sessions) = limits.sessions {
            self.in_range(
                &[at, place!["sessions"]].concat(),
                "a number of sessions",
                sessions,
                1..=MAX_LIMIT,
            );
        }
        if let Some(schema::Rate { rate, burst }) = limits.new_sessions {
            let at = [at, place!["new-sessions"]].concat();
            self.in_range(&[&at, place!["rate"]].concat(), "a rate", rate, 1..=MAX_LIMIT);
            self.in_range(&[&at, place!["burst"]].concat(), "a burst", burst, 1..=MAX_LIMIT);
        }
    }

    fn contradiction(&mut self, at: &[Step<'_>], one: &str, other: &str, why: &'static str) {
        let (one, other) = (one.to_owned(), other.to_owned());
        self.report(at, PoolProblem::Contradiction { one, other, why }.into());
    }
}

/// Number of addresses in a pool.
fn addresses(written: &schema::Pool) -> u64 {
    written.addresses.iter().map(AddressRange::count).sum()
}

/// The whole blocks in a port range.
fn whole_blocks(size: u16, ports: PortRange) -> Option<PortRange> {
    let size = u32::from(size);
    let first = u32::from(ports.first()).div_ceil(size) * size;
    let end = (u32::from(ports.last()) + 1) / size * size;
    (first < end).then(|| PortRange::new(first.max(1) as u16, (end - 1) as u16))?
}

/// The ports of `free` without its first `count` ports, as a range from the lowest to the highest port.
fn behind(free: &[PortRange], mut count: u32) -> Option<PortRange> {
    let last = free.last()?.last();
    for range in free {
        let here = u32::from(range.count());
        if count < here {
            return PortRange::new(range.first() + count as u16, last);
        }
        count -= here;
    }
    None
}

//! Assignment of packets to shards by the Toeplitz hash with which cards select queues (RSS). If the card supports it, a packet
//! is already in the queue of the right worker. Otherwise the worker that received it computes the same hash and hands the
//! packet off.

use std::sync::Arc;

use sluice_nat::pool::{Home, Source, ValidPool};
use sluice_nat::shard::{BLOCK, Shards};
use sluice_nat::sites::{is_site, site};
use sluice_nat::{Address, PortClass, PortSelection, RssPorts, Tuple};
use sluice_table::toeplitz::{self, ByteTables, Key, ParityRows};
use sluice_wire::Context;

use crate::session::family::Family;
use crate::snapshot::Nat;
use crate::snapshot::translation_targets::TranslationTargets;

/// What a shard keeps together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// All flows of an inside host, for cards that hash the source address on inside interfaces, and the destination address
    /// and port on outside ones.
    #[default]
    Hosts,
    /// The two directions of a flow, for cards that only hash all addresses and ports: outside ports are chosen so that answers
    /// arrive at their flow's shard. Pools can't have mappings, subscribers or computed ports then.
    Flows,
}

/// The fields that cards hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashFields {
    /// The source address on inside interfaces, destination address and port on outside ones.
    #[default]
    Subset,
    /// Cards hash all addresses and ports.
    FiveTuple,
}

/// Settings of steering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteeringSettings {
    /// The fields that cards hash.
    pub hashed: HashFields,
    /// What a shard keeps together.
    pub together: Affinity,
    /// Length of the inside prefix that forms one subscriber, in IPv4 and IPv6.
    pub prefix: [u8; 2],
    /// Number of outside ports that stay together: those of a pool's port blocks, or all if ports are preserved.
    pub ports: u32,
}

impl Default for SteeringSettings {
    fn default() -> Self {
        Self {
            hashed: HashFields::Subset,
            together: Affinity::Hosts,
            prefix: [32, 128],
            ports: BLOCK,
        }
    }
}

/// The steering function, equal for all workers for the lifetime of the process.
#[derive(Clone, Debug)]
pub struct Steering {
    shards: Shards,
    hashed: HashFields,
    together: Affinity,
    inside: Key,
    outside: Key,
    flows: Key,
    hosts4: ByteTables,
    hosts6: ParityRows<2>,
    /// Tables for outside IPv4 addresses, and for the number of a port unit of an address.
    outside4: ByteTables,
    units: Box<[u16]>,
    flows4: ParityRows<2>,
    flows6: ParityRows<5>,
    fitting: Option<Arc<RssPorts>>,
}

/// Whether a pool allows the flows of a host to be in different shards: it has no mappings, subscribers, computed or preserved
/// ports, which require all of them in one shard.
pub fn spreads<A: Address>(pool: &ValidPool<A>) -> bool {
    let of_sessions = |class: &PortClass| !pool.has_subscribers(*class) && pool.source(*class) != Source::Mapping;
    let classes = [PortClass::Tcp, PortClass::Udp];
    classes.iter().all(of_sessions) && pool.plan().is_none() && pool.selection() == PortSelection::Random
}

impl Steering {
    /// Draw random keys for a number of shards. `None` unless that is a power of two from 1 to 1,024.
    pub fn draw(shards: u32, wanted: &SteeringSettings, mut random: impl FnMut() -> u64) -> Option<Self> {
        let bits = Shards::new(shards)?.bits();
        let hosts = toeplitz::Hosts {
            bits,
            prefix: wanted.prefix,
        };
        let blocks = toeplitz::Blocks {
            bits,
            together: wanted.ports.clamp(BLOCK, 1 << 16).ilog2(),
        };
        let hosts = toeplitz::draw_for_hosts(hosts, &mut random);
        let blocks = toeplitz::draw_for_blocks(blocks, &mut random);
        let flows = toeplitz::draw_for_flows(bits, &mut random);
        let [inside, outside] = match wanted.hashed {
            HashFields::Subset => [hosts, blocks],
            HashFields::FiveTuple => [flows, flows],
        };
        Some(Self {
            shards: Shards::keyed(shards, &blocks)?,
            hashed: wanted.hashed,
            together: wanted.together,
            inside,
            outside,
            flows,
            hosts4: ByteTables::new(&hosts, bits),
            outside4: ByteTables::new(&blocks, bits),
            units: (0..shards).map(|unit| toeplitz::unit_part(unit, bits) as u16).collect(),
            hosts6: ParityRows::new(&hosts, bits),
            flows4: ParityRows::new(&flows, bits),
            flows6: ParityRows::new(&flows, bits),
            fitting: (wanted.together == Affinity::Flows).then(|| Arc::new(RssPorts::new(&flows, bits))),
        })
    }

    /// Derive keys from a seed, for tests and other deterministic uses.
    pub fn seeded(shards: u32, wanted: &SteeringSettings, mut seed: u64) -> Option<Self> {
        // The generator is SplitMix64.
        Self::draw(shards, wanted, || {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        })
    }

    /// The shards, and their assignment of outside addresses and ports.
    #[inline(always)]
    pub fn shards(&self) -> Shards {
        self.shards
    }

    /// The fields that cards must hash.
    pub fn hash_fields(&self) -> HashFields {
        self.hashed
    }

    /// What a shard keeps together.
    pub fn affinity(&self) -> Affinity {
        self.together
    }

    /// The RSS key of inside or outside interfaces.
    pub fn key(&self, outside: bool) -> &Key {
        if outside { &self.outside } else { &self.inside }
    }

    /// The RSS key of cards that can only hash all addresses and ports.
    pub fn fallback_key(&self) -> &Key {
        &self.flows
    }

    /// The outside ports whose answers arrive at their flow's shard, if ports are chosen for that.
    pub fn fitting(&self) -> Option<&Arc<RssPorts>> {
        self.fitting.as_ref()
    }

    /// Whether the ports of every pool can be used in any shard, and no rule requires the flows of a client to be together.
    pub(crate) fn admits<F: Family>(&self, nat: &Nat<F>) -> bool {
        self.together == Affinity::Hosts || nat.spread.is_none() && nat.pools.iter().all(|(_, pool)| spreads(pool))
    }

    /// The shard of an inside host, by its subscriber prefix: the key ignores the bits after the prefix.
    #[inline(always)]
    pub fn of_host<F: Family>(&self, host: F::Address) -> u16 {
        let [high, low] = F::words(host);
        if F::IS_V6 {
            self.hosts6.of([high, low]) as u16
        } else {
            self.hosts4.of(low as u32)
        }
    }

    /// The shard of a port unit of an outside address. Equal to [`Shards::shard_of_unit`], but computed by precomputed tables.
    #[inline(always)]
    fn of_unit<F: Family>(&self, address: F::Address, unit: u32) -> u16 {
        if F::IS_V6 {
            return self.shards.shard_of_unit(address, unit) as u16;
        }
        let [_, low] = F::words(address);
        let part = self.units.get(unit as usize & (self.units.len() - 1)).copied();
        self.outside4.of(low as u32) ^ part.unwrap_or_default()
    }

    /// The shard of a flow, by the addresses and ports of packets from inside.
    #[inline(always)]
    pub fn of_flow<F: Family>(&self, source: (F::Address, u16), destination: (F::Address, u16)) -> u16 {
        let ports = u64::from(source.1) << 48 | u64::from(destination.1) << 32;
        let ([s0, s1], [d0, d1]) = (F::words(source.0), F::words(destination.0));
        if F::IS_V6 {
            self.flows6.of([s0, s1, d0, d1, ports]) as u16
        } else {
            self.flows4.of([s1 << 32 | d1, ports]) as u16
        }
    }

    /// The shard of a bridged flow, equal for both directions.
    #[inline]
    pub fn of_bridged<F: Family>(&self, key: &F::Key) -> u16 {
        let tuple = F::tuple(key);
        let ports = PortClass::of(F::protocol(key), <F::Address as sluice_nat::Address>::BITS).is_some();
        let port = |port| if ports { port } else { 0 };
        let one = (tuple.source(), port(tuple.source_port()));
        let other = (tuple.destination(), port(tuple.destination_port()));
        match one <= other {
            true => self.of_flow::<F>(one, other),
            false => self.of_flow::<F>(other, one),
        }
    }

    /// Whether answers arrive at the shard of their flow. `None` if ports are not chosen for that.
    #[inline]
    pub fn fits<F: Family>(&self, shard: u16, answer: &F::Tuple, class: Option<PortClass>) -> Option<bool> {
        let hashed = self.together == Affinity::Flows && matches!(class, Some(PortClass::Tcp | PortClass::Udp));
        hashed.then(|| {
            let (remote, outside) = (answer.source(), answer.destination());
            shard == self.of_flow::<F>((remote, answer.source_port()), (outside, answer.destination_port()))
        })
    }

    /// The shard of the session of a packet that arrived on an interface. Packets of inside hosts are assigned by their address
    /// or subscriber prefix; packets to public addresses by the port block; forwarded ports by the target host, or by the
    /// client if there are several targets; protocols without ports by the remote address, which is not translated. If
    /// untranslated flows have sessions, their direction makes no difference. Both directions of a session give the same shard.
    #[inline(always)]
    pub fn shard_of<F: Family>(&self, nat: &Nat<F>, key: &F::Key, interface: u16, outside: bool) -> u16 {
        self.shard_by::<F>(nat, nat.spread.as_ref(), key, interface, outside)
    }

    /// [`Steering::shard_of`] with the [`TranslationTargets`] of the rules as an argument, so that a caller that knows that
    /// there are none needn't load them.
    #[inline(always)]
    pub fn shard_by<F: Family>(
        &self,
        nat: &Nat<F>,
        spread: Option<&TranslationTargets<F::Address>>,
        key: &F::Key,
        interface: u16,
        outside: bool,
    ) -> u16 {
        let tuple = F::tuple(key);
        let class = PortClass::of(F::protocol(key), <F::Address as sluice_nat::Address>::BITS);
        let Some(class) = class else {
            return self.of_host::<F>(remote::<F>(nat, key, interface, outside));
        };
        let (source, destination) = (
            (tuple.source(), tuple.source_port()),
            (tuple.destination(), tuple.destination_port()),
        );
        // The flow as seen in packets from the host.
        let ends = |host, other| match &nat.hosts {
            Some(hosts) => hosts.ends(tuple.context(), host, other),
            None => (host, other),
        };
        let (mut host, mut other) = ends(source, destination);
        if outside {
            match nat
                .pools
                .home_of_allocated(self.shards, tuple.context(), destination.0, destination.1)
            {
                Some(Home::Unit(unit)) => return self.of_unit::<F>(destination.0, unit),
                Some(Home::Shard(shard)) => return shard as u16,
                Some(Home::Inside(inside)) => (host, other) = ends((inside, destination.1), source),
                // A port that a pool allocates is never forwarded by a rule.
                None => match forwarded::<F>(nat, key, interface) {
                    Some(ForwardTarget::Host(target)) => (host, other) = ends(target, source),
                    Some(ForwardTarget::Among) => return self.of_host::<F>(source.0),
                    // A flow from outside to an inside host's own address is assigned by that host.
                    None if nat.begins_outside(tuple.context(), source.0, destination.0) => {
                        (host, other) = (destination, source);
                    }
                    None => {}
                },
            }
        }
        if let Some(spread) = spread {
            // The flow is assigned by its client, because its destination is still untranslated here and differs from the
            // source of the answers.
            if !outside && nat.hosts.is_some() && forwarded::<F>(nat, key, interface).is_some() {
                return self.of_host::<F>(source.0);
            }
            if let Some(client) = spread.client(tuple.context(), host, other) {
                return self.of_host::<F>(client);
            }
        }
        if self.together == Affinity::Flows && class != PortClass::Query {
            return self.of_flow::<F>(host, other);
        }
        self.of_host::<F>(host.0)
    }
}

impl Steering {
    /// The shard of the session of a packet that the router's host sends: by its client for a flow that a rule translates to
    /// the host, otherwise by the host's own address.
    #[cold]
    pub fn of_host_flow<F: Family>(&self, nat: &Nat<F>, key: &F::Key) -> u16 {
        let tuple = F::tuple(key);
        let (own, other) = (
            (tuple.source(), tuple.source_port()),
            (tuple.destination(), tuple.destination_port()),
        );
        let spread = nat.spread.as_ref();
        let client = spread.and_then(|spread| spread.client(tuple.context(), own, other));
        self.of_host::<F>(client.unwrap_or(own.0))
    }

    /// [`Steering::shard_of`] if there are subscribers' sites.
    #[inline(always)]
    pub fn shard_among_sites<F: Family>(&self, nat: &Nat<F>, key: &F::Key, interface: u16, outside: bool) -> u16 {
        let tuple = F::tuple(key);
        if is_site(tuple.context()) {
            return self.of_site(site(tuple.context()));
        }
        let sites = nat.sites.as_deref().filter(|_| outside && !F::IS_V6);
        let address = F::words(tuple.destination())[1] as u32;
        match sites.and_then(|sites| sites.recipient(tuple.context(), address)) {
            Some(recipient) => self.of_site(recipient),
            None => self.shard_of::<F>(nat, key, interface, outside),
        }
    }

    /// The shard of all flows of a site. Sites have consecutive numbers, which subscribers can't choose.
    #[inline(always)]
    fn of_site(&self, site: u32) -> u16 {
        (site & (self.shards.count() - 1)) as u16
    }
}

/// The remote address of a flow without ports. Interfaces used by both inside and outside hosts count as outside.
#[cold]
fn remote<F: Family>(nat: &Nat<F>, key: &F::Key, interface: u16, outside: bool) -> F::Address {
    let tuple = F::tuple(key);
    let (source, destination) = (tuple.source(), tuple.destination());
    let other = |host, other| match &nat.hosts {
        Some(hosts) => hosts.ends(tuple.context(), (host, ()), (other, ())).1.0,
        None => other,
    };
    match forwarded::<F>(nat, key, interface).filter(|_| outside) {
        Some(ForwardTarget::Host((target, _))) => other(target, source),
        Some(ForwardTarget::Among) => source,
        None if outside && is_public(nat, tuple.context(), destination) => source,
        None if outside && nat.begins_outside(tuple.context(), source, destination) => source,
        None => other(source, destination),
    }
}

/// Whether an address is translated to other addresses.
#[inline(always)]
fn is_public<F: Family>(nat: &Nat<F>, context: Context, address: F::Address) -> bool {
    nat.pools.owner(context, address).is_some() || nat.rules.stands_in_for(context, address)
}

/// Target of a destination rule.
enum ForwardTarget<A> {
    /// The target is an inside host and port.
    Host((A, u16)),
    /// One of several hosts, which only the session knows.
    Among,
}

/// The target of a destination rule for a packet that arrived on an interface.
#[inline(always)]
fn forwarded<F: Family>(nat: &Nat<F>, key: &F::Key, interface: u16) -> Option<ForwardTarget<F::Address>> {
    let tuple = F::tuple(key);
    if !nat.rules.maybe_forwarded(tuple.destination(), tuple.destination_port()) {
        return None;
    }
    match nat.rules.match_destination(tuple, F::protocol(key), interface)?.action {
        sluice_nat::rule::Destination::To(target) => Some(ForwardTarget::Host((target.address, target.port))),
        sluice_nat::rule::Destination::Among(..) => Some(ForwardTarget::Among),
        sluice_nat::rule::Destination::Exempt => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::family::{V4, V6};

    #[test]
    fn unit_of_an_outside_address_is_in_the_shard_that_lends_its_ports() {
        for (count, ports) in [(1, 64), (16, 64), (64, 256), (1024, 64), (8, 1 << 16)] {
            let wanted = SteeringSettings {
                ports,
                ..SteeringSettings::default()
            };
            let steering = Steering::seeded(count, &wanted, 7).unwrap();
            for number in 0..4096u32 {
                let (four, unit) = (number.wrapping_mul(0x9e37_79b9), number * 7 % 1024);
                let includes = steering.shards().shard_of_unit(four, unit);
                assert_eq!(includes, steering.of_unit::<V4>(four, unit).into());
                let six = [number.into(), u64::from(four) << 9];
                let includes = steering.shards().shard_of_unit(six, unit);
                assert_eq!(includes, steering.of_unit::<V6>(six, unit).into());
            }
        }
    }
}

//! Assignment of packets to shards, with the Toeplitz hash by which NICs select queues (RSS). If the NIC supports this
//! hash, a packet arrives in the queue of the worker that owns the packet's shard. If the NIC doesn't support the hash,
//! the receiving worker computes the hash and hands the packet off.

use std::sync::Arc;

use sluice_nat::pool::{Home, Source, ValidPool, Window};
use sluice_nat::shard::{BLOCK, Shards};
use sluice_nat::sites::{is_site, site};
use sluice_nat::{Address, PortClass, PortSelection, RssPorts, Tuple};
use sluice_table::toeplitz::{self, ByteTables, Key, ParityRows};
use sluice_wire::Context;

use crate::session::family::Family;
use crate::snapshot::Nat;
use crate::snapshot::translation_targets::TranslationTargets;

/// Which flows belong to one shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Affinity {
    /// All flows of an inside host. NICs hash the source address on inside interfaces, and the destination address and port on
    /// outside interfaces.
    #[default]
    Hosts,
    /// The two directions of a flow, for NICs that can only hash all addresses and ports. Outside ports are selected so
    /// that the NIC delivers answers to the shard of their flow. Therefore pools can't have mappings, subscribers or
    /// computed ports.
    Flows,
}

/// The fields that NICs hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashFields {
    /// The source address on inside interfaces, and the destination address and port on outside interfaces.
    #[default]
    Subset,
    /// All addresses and ports.
    FiveTuple,
}

/// Settings of steering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteeringSettings {
    /// The fields that NICs hash.
    pub hashed: HashFields,
    /// Which flows belong to one shard.
    pub together: Affinity,
    /// Length of the inside prefix that counts as one subscriber, for IPv4 and for IPv6.
    pub prefix: [u8; 2],
    /// Number of consecutive outside ports that belong to one shard: the ports of a port block, or all ports if pools
    /// preserve ports.
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

/// The function that assigns packets to shards. All workers use one function for the lifetime of the process.
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
    /// Lookup tables of the hash for outside IPv4 addresses, and for the numbers of port units (groups of consecutive
    /// ports).
    outside4: ByteTables,
    units: Box<[u16]>,
    outside6: ParityRows<2>,
    flows4: ParityRows<2>,
    flows6: ParityRows<5>,
    rss_ports: Option<Arc<RssPorts>>,
}

/// Whether the flows of one inside host, if the pool translates them, may belong to different shards. The flows must
/// belong to one shard if the pool has mappings, subscribers, computed ports or preserved ports.
pub fn spreads<A: Address>(pool: &ValidPool<A>) -> bool {
    let of_sessions = |class: &PortClass| !pool.has_subscribers(*class) && pool.source(*class) != Source::Mapping;
    let classes = [PortClass::Tcp, PortClass::Udp];
    classes.iter().all(of_sessions) && pool.plan().is_none() && pool.selection() == PortSelection::Random
}

impl Steering {
    /// Generates random keys for a number of shards. `None` if the number is not a power of two from 1 to 1,024.
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
            outside6: ParityRows::new(&blocks, bits),
            units: (0..shards).map(|unit| toeplitz::unit_part(unit, bits) as u16).collect(),
            hosts6: ParityRows::new(&hosts, bits),
            flows4: ParityRows::new(&flows, bits),
            flows6: ParityRows::new(&flows, bits),
            rss_ports: (wanted.together == Affinity::Flows).then(|| Arc::new(RssPorts::new(&flows, bits))),
        })
    }

    /// Derives keys from a seed, for tests and other deterministic uses.
    pub fn seeded(shards: u32, wanted: &SteeringSettings, mut seed: u64) -> Option<Self> {
        // The generator is SplitMix64.
        Self::draw(shards, wanted, || {
            seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        })
    }

    /// The assignment of outside addresses and ports to shards.
    #[inline(always)]
    pub fn shards(&self) -> Shards {
        self.shards
    }

    /// The fields that NICs must hash.
    pub fn hash_fields(&self) -> HashFields {
        self.hashed
    }

    /// Which flows belong to one shard.
    pub fn affinity(&self) -> Affinity {
        self.together
    }

    /// The RSS key of inside interfaces, or of outside interfaces.
    pub fn key(&self, outside: bool) -> &Key {
        if outside { &self.outside } else { &self.inside }
    }

    /// The RSS key of NICs that can hash only all addresses and ports.
    pub fn fallback_key(&self) -> &Key {
        &self.flows
    }

    /// The outside ports with which answers arrive at the shard of their flow; `None` if ports are not selected by RSS
    /// hash.
    pub fn rss_ports(&self) -> Option<&Arc<RssPorts>> {
        self.rss_ports.as_ref()
    }

    /// Whether the ports of every pool can be used in any shard, and no rule requires that all flows of a client belong to one
    /// shard.
    pub(crate) fn admits<F: Family>(&self, nat: &Nat<F>) -> bool {
        self.together == Affinity::Hosts || nat.spread.is_none() && nat.pools.iter().all(|(_, pool)| spreads(pool))
    }

    /// The shard of an inside host. All hosts of a subscriber prefix have one shard, because the key ignores the bits
    /// after the prefix.
    #[inline(always)]
    pub fn of_host<F: Family>(&self, host: F::Address) -> u16 {
        let [high, low] = F::words(host);
        if F::IS_V6 {
            self.hosts6.of([high, low]) as u16
        } else {
            self.hosts4.of(low as u32)
        }
    }

    /// The shard of a port unit (consecutive ports) of an outside address. The result equals [`Shards::shard_of_unit`]
    /// but is computed with tables.
    #[inline(always)]
    fn of_unit<F: Family>(&self, address: F::Address, unit: u32) -> u16 {
        let [high, low] = F::words(address);
        let of_address = match F::IS_V6 {
            true => self.outside6.of([high, low]) as u16,
            false => self.outside4.of(low as u32),
        };
        let of_unit = self.units.get(unit as usize & (self.units.len() - 1)).copied();
        of_address ^ of_unit.unwrap_or_default()
    }

    /// The shard of a flow, from the addresses and ports of its packets from inside.
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

    /// The shard of a bridged flow. Both directions of the flow have one shard.
    #[inline]
    pub fn of_bridged<F: Family>(&self, key: &F::Key) -> u16 {
        let tuple = &F::tuple(key);
        let ports = PortClass::of(F::protocol(key), <F::Address as sluice_nat::Address>::BITS).is_some();
        let port = |port| if ports { port } else { 0 };
        let one = (tuple.source(), port(tuple.source_port()));
        let other = (tuple.destination(), port(tuple.destination_port()));
        match one <= other {
            true => self.of_flow::<F>(one, other),
            false => self.of_flow::<F>(other, one),
        }
    }

    /// Whether answers arrive at the shard of their flow; `None` if ports are not selected by RSS hash.
    #[inline]
    pub fn fits<F: Family>(&self, shard: u16, answer: &F::Tuple, class: Option<PortClass>) -> Option<bool> {
        let hashed = self.together == Affinity::Flows && matches!(class, Some(PortClass::Tcp | PortClass::Udp));
        hashed.then(|| {
            let (remote, outside) = (answer.source(), answer.destination());
            shard == self.of_flow::<F>((remote, answer.source_port()), (outside, answer.destination_port()))
        })
    }

    /// The shard to which the session of a packet belongs. `interface` is the interface on which the packet arrived.
    /// Flows of inside hosts are assigned by the address or subscriber prefix of the host. Packets to public addresses
    /// are assigned by the port block. Flows to forwarded ports are assigned by the target host, or by the client if
    /// there are several targets. Flows of protocols without ports are assigned by the untranslated remote address.
    /// Both directions of a session have one shard, including sessions of untranslated flows.
    #[inline(always)]
    pub fn shard_of<F: Family>(&self, nat: &Nat<F>, key: &F::Key, interface: u16, outside: bool) -> u16 {
        self.shard_by::<F>(nat, nat.spread.as_ref(), key, interface, outside)
    }

    /// Like [`Steering::shard_of`], with the [`TranslationTargets`] of the rules as an argument. If a caller has
    /// already checked that no targets exist, it does not have to load the targets.
    #[inline(always)]
    pub fn shard_by<F: Family>(
        &self,
        nat: &Nat<F>,
        spread: Option<&TranslationTargets<F::Address>>,
        key: &F::Key,
        interface: u16,
        outside: bool,
    ) -> u16 {
        let tuple = &F::tuple(key);
        let class = PortClass::of(F::protocol(key), <F::Address as sluice_nat::Address>::BITS);
        let Some(class) = class else {
            return self.of_host::<F>(remote::<F>(nat, key, interface, outside));
        };
        let (source, destination) = (
            (tuple.source(), tuple.source_port()),
            (tuple.destination(), tuple.destination_port()),
        );
        // The endpoints of the flow as source and destination of packets that the inside host sends.
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
                // Rules never forward a port that a pool allocates.
                None => match forwarded::<F>(nat, key, interface) {
                    Some(ForwardTarget::Host(target)) => (host, other) = ends(target, source),
                    Some(ForwardTarget::Among) => return self.of_host::<F>(source.0),
                    // A flow from outside to an inside host's own address belongs to the shard of the host.
                    None if nat.starts_outside(tuple.context(), source.0, destination.0) => {
                        (host, other) = (destination, source);
                    }
                    None => {}
                },
            }
        }
        if let Some(spread) = spread {
            // The flow belongs to the shard of its client. The destination of this packet is still untranslated, and
            // differs from the source of the answers.
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

/// How the shards of most TCP and UDP packets of an interface follow from their addresses and ports alone.
#[derive(Clone, Copy, Debug)]
pub enum Shortcut<A> {
    /// From the source address.
    Source,
    /// From the destination address and port, if they are within a range of outside ports.
    Units(Window<A>),
    /// There is no such rule.
    None,
}

impl Steering {
    /// The shortcut for packets of an interface. `context` is the context of its packets.
    #[inline]
    pub fn shortcut<F: Family>(&self, nat: &Nat<F>, context: Context, outside: bool) -> Shortcut<F::Address> {
        match outside {
            true => nat
                .pools
                .window(self.shards, context)
                .map_or(Shortcut::None, Shortcut::Units),
            false if self.together == Affinity::Hosts && nat.hosts.is_none() => Shortcut::Source,
            false => Shortcut::None,
        }
    }

    /// The shard of a packet that belongs to the shard of its source address.
    #[inline(always)]
    pub fn of_source<F: Family>(&self, key: &F::Key) -> u16 {
        self.of_host::<F>(F::tuple(key).source())
    }

    /// The shard of a TCP or UDP packet to an outside port of the window; `None` for other packets.
    #[inline(always)]
    pub fn of_window<F: Family>(&self, window: &Window<F::Address>, key: &F::Key) -> Option<u16> {
        let tuple = F::tuple(key);
        let unit = window.unit_of(tuple.destination(), tuple.destination_port())?;
        Some(self.of_unit::<F>(tuple.destination(), unit))
    }
}

impl Steering {
    /// The session shard of a packet from the router's host. If a rule translates the flow to the host, the client's
    /// address determines the shard; otherwise the host's own address does.
    #[cold]
    pub fn of_host_flow<F: Family>(&self, nat: &Nat<F>, key: &F::Key) -> u16 {
        let tuple = &F::tuple(key);
        let (own, other) = (
            (tuple.source(), tuple.source_port()),
            (tuple.destination(), tuple.destination_port()),
        );
        let spread = nat.spread.as_ref();
        let client = spread.and_then(|spread| spread.client(tuple.context(), own, other));
        self.of_host::<F>(client.unwrap_or(own.0))
    }

    /// Like [`Steering::shard_of`], for configurations with subscribers' sites.
    #[inline(always)]
    pub fn shard_among_sites<F: Family>(&self, nat: &Nat<F>, key: &F::Key, interface: u16, outside: bool) -> u16 {
        let tuple = &F::tuple(key);
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

    /// The shard of all flows of a site. Site numbers are consecutive, and subscribers can't choose them.
    #[inline(always)]
    fn of_site(&self, site: u32) -> u16 {
        (site & (self.shards.count() - 1)) as u16
    }
}

/// The remote address of a flow whose protocol has no ports. An interface that has both inside and outside hosts counts
/// as outside.
#[cold]
fn remote<F: Family>(nat: &Nat<F>, key: &F::Key, interface: u16, outside: bool) -> F::Address {
    let tuple = &F::tuple(key);
    let (source, destination) = (tuple.source(), tuple.destination());
    let other = |host, other| match &nat.hosts {
        Some(hosts) => hosts.ends(tuple.context(), (host, ()), (other, ())).1.0,
        None => other,
    };
    match forwarded::<F>(nat, key, interface).filter(|_| outside) {
        Some(ForwardTarget::Host((target, _))) => other(target, source),
        Some(ForwardTarget::Among) => source,
        None if outside && is_public(nat, tuple.context(), destination) => source,
        None if outside && nat.starts_outside(tuple.context(), source, destination) => source,
        None => other(source, destination),
    }
}

/// Whether an address is an outside address of NAT, to which other addresses are translated.
#[inline(always)]
fn is_public<F: Family>(nat: &Nat<F>, context: Context, address: F::Address) -> bool {
    nat.pools.owner(context, address).is_some() || nat.rules.proxies_for(context, address)
}

/// Target of a destination rule.
enum ForwardTarget<A> {
    /// An inside host and port.
    Host((A, u16)),
    /// One of several hosts. The selected host is stored only in the session record.
    Among,
}

/// The target of the destination rule for a packet that arrived on an interface.
#[inline(always)]
fn forwarded<F: Family>(nat: &Nat<F>, key: &F::Key, interface: u16) -> Option<ForwardTarget<F::Address>> {
    let tuple = &F::tuple(key);
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
                let (v4, unit) = (number.wrapping_mul(0x9e37_79b9), number * 7 % 1024);
                let includes = steering.shards().shard_of_unit(v4, unit);
                assert_eq!(includes, steering.of_unit::<V4>(v4, unit).into());
                let v6 = [number.into(), u64::from(v4) << 9];
                let includes = steering.shards().shard_of_unit(v6, unit);
                assert_eq!(includes, steering.of_unit::<V6>(v6, unit).into());
            }
        }
    }
}

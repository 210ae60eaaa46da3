//! Fair division of capacity: a worker's capacity is divided among virtual routers, and a link's rate among the
//! interfaces of the link.
//!
//! A router has a weight, which applies while a worker is overloaded, and may have a rate limit, which always applies.
//! An interface has a weight on its link, and may have a rate limit and a guaranteed rate on its link.

pub mod burst_limit;
pub mod deficit;
pub mod demand_history;
pub mod senders;

use std::sync::Arc;

use sluice_route::RouterIndex;
use sluice_table::token_bucket::{SharedTokenBucket, TokenRate};

use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::io::{NO_PORT, PortIndex};
use crate::snapshot::Interface;
use burst_limit::BurstLimit;
use deficit::Deficits;
use demand_history::DemandHistory;

/// Default weight of routers and interfaces.
pub const WEIGHT: u8 = 10;

/// Entry number that marks an interface without an entry.
const NONE: u16 = u16::MAX;

/// Rate limits in packets and bits, for all workers together. Frames are counted from their Ethernet header to the end
/// of their payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Maximum number of packets per second.
    pub packets: Option<u64>,
    /// Maximum number of bits per second.
    pub bits: Option<u64>,
    /// Burst size, expressed as the time in nanoseconds in which the token bucket fills up at this rate.
    pub burst: u64,
}

/// Weight and rate of a router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterShare {
    /// Weight relative to other routers; `None` means [`WEIGHT`].
    pub weight: Option<u8>,
    /// Rate limit of packets that arrive on the router's interfaces.
    pub rate: Option<Rate>,
}

/// Weight and rates of an interface on its link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkShare {
    /// Weight relative to other interfaces of the link; `None` means [`WEIGHT`].
    pub weight: Option<u8>,
    /// Guaranteed rate in bits per second, which the interface can always use.
    pub guarantee: Option<u64>,
    /// Rate limit in bits per second. Depending on the interface, the limit applies to a link with all its VLANs, to a
    /// single VLAN, or to an inter-router link.
    pub rate: Option<u64>,
}

/// Token buckets of a router. All workers share the buckets for all ports of the router.
#[derive(Debug)]
struct RouterBuckets {
    given: Rate,
    packets: Option<SharedTokenBucket>,
    bits: Option<SharedTokenBucket>,
}

/// A router on a port.
#[derive(Clone, Copy, Debug)]
pub struct RouterEntry {
    /// Number of the router.
    pub router: RouterIndex,
    /// Weight of the router.
    pub weight: u64,
}

/// Division of a port's receive capacity.
#[derive(Clone, Debug, Default)]
pub struct PortShares {
    /// Whether several routers receive on this port, and weights are configured.
    pub shared: bool,
    /// Whether any router has a rate limit.
    pub limited: bool,
    /// The router, if only one router receives on the port.
    pub own: Option<RouterIndex>,
    /// Sum of the weights of the port's routers.
    pub weight: u64,
}

/// Weight and rates of an interface for transmission.
#[derive(Clone, Debug, Default)]
struct EgressShare {
    weight: u64,
    guarantee: Option<Arc<SharedTokenBucket>>,
    rate: Option<Arc<SharedTokenBucket>>,
}

/// Division of a link's transmit capacity.
#[derive(Clone, Debug, Default)]
struct Link {
    /// Whether any interface of the link has a weight, a guarantee or a rate limit.
    is_shared: bool,
    rate: Option<Arc<SharedTokenBucket>>,
}

/// Weights and rates of all routers and interfaces.
#[derive(Clone, Debug)]
pub struct Shares {
    given: (Vec<RouterShare>, Vec<LinkShare>),
    /// Whether any router has a configured weight.
    pub weighted: bool,
    routers: Vec<Option<Arc<RouterBuckets>>>,
    ports: Vec<PortShares>,
    entries: Vec<RouterEntry>,
    /// For each interface: the entry of its router on its port.
    entry_of: Vec<u16>,
    leaving: Vec<EgressShare>,
    links: Vec<Link>,
}

/// Burst size of a link's rate, in nanoseconds. For most link rates, the transmit queue of a NIC holds no more than
/// this burst.
const LINK_BURST: u64 = 10_000_000;

/// Minimum burst size of a token bucket that counts bits: two frames of the maximum length.
const MIN_BURST_BITS: u64 = 2 * 8 * 9_234;

/// Creates a full bucket. The burst of the bucket is the number of tokens in `burst` nanoseconds, at least `min`.
fn bucket(rate: u64, burst: u64, min: u64) -> SharedTokenBucket {
    SharedTokenBucket::new(TokenRate::with_burst_time(rate.max(1), burst, min))
}

fn bits(rate: u64, burst: u64) -> Arc<SharedTokenBucket> {
    Arc::new(bucket(rate, burst, MIN_BURST_BITS))
}

impl Shares {
    /// Creates the division for routers and interfaces, by number, on a number of ports. `None` if nothing is
    /// configured. Routers and interfaces with numbers beyond the ends of the lists have no configuration.
    pub fn new(
        routers: Vec<RouterShare>,
        links: Vec<LinkShare>,
        interfaces: &[Interface],
        ports: usize,
    ) -> Option<Self> {
        let weighted = routers.iter().any(|router| router.weight.is_some());
        let nothing = routers.iter().all(|router| *router == RouterShare::default())
            && links.iter().all(|link| *link == LinkShare::default());
        if nothing {
            return None;
        }
        let buckets = |router: &RouterShare| {
            router.rate.map(|given| {
                Arc::new(RouterBuckets {
                    given,
                    packets: given.packets.map(|rate| bucket(rate, given.burst, 1)),
                    bits: given.bits.map(|rate| bucket(rate, given.burst, MIN_BURST_BITS)),
                })
            })
        };
        let mut shares = Self {
            weighted,
            routers: routers.iter().map(buckets).collect(),
            ports: vec![PortShares::default(); ports],
            entries: Vec::new(),
            entry_of: vec![NONE; interfaces.len()],
            leaving: vec![EgressShare::default(); interfaces.len()],
            links: vec![Link::default(); ports],
            given: (routers, links),
        };
        for port in 0..ports {
            shares.receive(port, interfaces);
        }
        for (number, interface) in interfaces.iter().enumerate() {
            shares.leave(number, interface);
        }
        Some(shares)
    }

    /// Creates the entries of a port's routers.
    fn receive(&mut self, port: usize, interfaces: &[Interface]) {
        let is_here = |interface: &Interface| usize::from(interface.port) == port;
        // All frames of a bridged port belong to the bridge, tagged or not. If only VLANs of the port are bridged, only
        // frames of these VLANs belong to the bridge.
        let bridged = |one: &Interface| is_here(one) && one.bridge.is_some() && one.tags.is_empty();
        if interfaces.iter().any(bridged) {
            return;
        }
        let first = self.entries.len();
        let all = interfaces.iter().enumerate();
        let routed = all.filter(|(_, one)| is_here(one) && one.bridge.is_none());
        for (number, interface) in routed {
            let mut known = self.entries[first..].iter();
            let place = first
                + known
                    .position(|entry| entry.router == interface.router)
                    .unwrap_or_else(|| {
                        let given = self.given.0.get(usize::from(interface.router));
                        let weight = given.and_then(|given| given.weight).unwrap_or(WEIGHT);
                        self.entries.push(RouterEntry {
                            router: interface.router,
                            weight: weight.max(1).into(),
                        });
                        self.entries.len() - 1 - first
                    });
            self.entry_of[number] = place as u16;
        }
        let here = &self.entries[first..];
        self.ports[port] = PortShares {
            shared: self.weighted && here.len() > 1,
            limited: here.iter().any(|entry| self.buckets(entry.router).is_some()),
            own: (here.len() == 1).then(|| here[0].router),
            weight: here.iter().map(|entry| entry.weight).sum(),
        };
    }

    /// Creates the entry of an interface on the interface's link.
    fn leave(&mut self, number: usize, interface: &Interface) {
        let given = self.given.1.get(number).copied().unwrap_or_default();
        let is_link = interface.port != NO_PORT && interface.tags.is_empty();
        self.leaving[number] = EgressShare {
            weight: given.weight.unwrap_or(WEIGHT).max(1).into(),
            guarantee: given.guarantee.map(|rate| bits(rate, LINK_BURST)),
            rate: given.rate.filter(|_| !is_link).map(|rate| bits(rate, LINK_BURST)),
        };
        if given != LinkShare::default()
            && let Some(link) = self.links.get_mut(usize::from(interface.port))
        {
            link.is_shared = true;
            if is_link {
                link.rate = given.rate.map(|rate| bits(rate, LINK_BURST));
            }
        }
    }

    /// Takes over those token buckets of the previous snapshot whose configuration is unchanged. Routers and interfaces
    /// keep their numbers as long as they exist.
    pub fn adopt(&mut self, before: &Self) {
        for (own, old) in self.routers.iter_mut().zip(&before.routers) {
            if let (Some(one), Some(other)) = (&own, old)
                && one.given == other.given
            {
                *own = Some(other.clone());
            }
        }
        let adopt = |own: &mut Option<Arc<SharedTokenBucket>>, old: &Option<Arc<SharedTokenBucket>>| {
            if let (Some(one), Some(other)) = (&own, old)
                && one.rate() == other.rate()
            {
                *own = Some(other.clone());
            }
        };
        for (own, old) in self.leaving.iter_mut().zip(&before.leaving) {
            adopt(&mut own.guarantee, &old.guarantee);
            adopt(&mut own.rate, &old.rate);
        }
        for (own, old) in self.links.iter_mut().zip(&before.links) {
            adopt(&mut own.rate, &old.rate);
        }
    }

    /// Division of a port's receive capacity.
    #[inline(always)]
    pub fn port(&self, port: PortIndex) -> Option<&PortShares> {
        self.ports.get(usize::from(port))
    }

    /// The entry of an interface, and its number.
    #[inline(always)]
    pub fn entry_of(&self, interface: u16) -> Option<(u16, RouterEntry)> {
        let number = *self.entry_of.get(usize::from(interface))?;
        self.entries.get(usize::from(number)).map(|entry| (number, *entry))
    }

    fn buckets(&self, router: RouterIndex) -> Option<&RouterBuckets> {
        self.routers.get(usize::from(router))?.as_deref()
    }

    /// Numbers of packets and bits that a router may receive now; `None` if it has no rate limit.
    #[inline(always)]
    pub fn remaining(&self, router: RouterIndex, now: u64) -> Option<[u64; 2]> {
        let buckets = self.buckets(router)?;
        let remaining =
            |bucket: &Option<SharedTokenBucket>| bucket.as_ref().map_or(u64::MAX, |bucket| bucket.tokens(now));
        Some([remaining(&buckets.packets), remaining(&buckets.bits)])
    }

    /// Takes tokens for these packets and bits from the token buckets of a router.
    #[inline(always)]
    pub fn charge(&self, router: RouterIndex, [packets, bits]: [u64; 2], now: u64) {
        let Some(buckets) = self.buckets(router) else { return };
        for (bucket, count) in [(&buckets.packets, packets), (&buckets.bits, bits)] {
            if let Some(bucket) = bucket {
                bucket.charge(count, now);
            }
        }
    }

    /// Whether the rate limits permit a frame of this many bytes to cross an inter-router link from interface `from` to
    /// the router of the peer interface. If the frame is permitted, tokens for it are taken from the token buckets.
    pub fn may_cross(&self, from: u16, router: RouterIndex, bytes: u64, now: u64) -> bool {
        let link = self
            .leaving
            .get(usize::from(from))
            .and_then(|leaving| leaving.rate.as_deref());
        let remaining = self.remaining(router, now).unwrap_or([u64::MAX; 2]);
        let fits = link.is_none_or(|link| link.tokens(now) >= bytes * 8);
        let passes = fits && remaining[0] > 0 && remaining[1] >= bytes * 8;
        if passes {
            link.into_iter().for_each(|link| link.charge(bytes * 8, now));
            self.charge(router, [1, bytes * 8], now);
        }
        passes
    }

    /// Whether the transmit capacity of a port is divided or limited.
    #[inline(always)]
    pub fn is_link_shared(&self, port: usize) -> bool {
        self.links.get(port).is_some_and(|link| link.is_shared)
    }

    /// The token bucket of a link; `None` if it has no rate limit.
    pub fn link(&self, port: usize) -> Option<&SharedTokenBucket> {
        self.links.get(port)?.rate.as_deref()
    }

    /// Weight of an interface on its link, token bucket of its guarantee, and token bucket of its rate limit.
    pub fn leaving(&self, interface: u16) -> (u64, Option<&SharedTokenBucket>, Option<&SharedTokenBucket>) {
        match self.leaving.get(usize::from(interface)) {
            Some(leaving) => (leaving.weight, leaving.guarantee.as_deref(), leaving.rate.as_deref()),
            None => (WEIGHT.into(), None, None),
        }
    }
}

/// State of the fair division of capacity, for one direction (receive or transmit) of a worker's ports.
#[derive(Debug)]
pub struct SideState {
    /// For each port: the burst limit.
    pub gates: Box<[BurstLimit]>,
    /// For each port: recent demands.
    pub recent: Box<[DemandHistory]>,
    /// Credits of the routers' entries, or of the interfaces, by number.
    pub deficits: Deficits,
}

impl SideState {
    /// Creates the state for a number of ports.
    pub fn new(ports: usize) -> Self {
        Self {
            gates: vec![BurstLimit::default(); ports].into(),
            recent: vec![DemandHistory::default(); ports].into(),
            deficits: Deficits::new(AdjacencyIndex::MAX_INTERFACES + 1),
        }
    }

    /// Records that no packet was received from a port.
    #[inline(always)]
    pub fn idle(&mut self, port: PortIndex) {
        if let Some(gate) = self.gates.get_mut(usize::from(port)) {
            gate.idle();
        }
    }
}

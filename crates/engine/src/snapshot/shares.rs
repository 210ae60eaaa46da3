//! What virtual routers may have of the workers, and interfaces of the links that they leave by.
//!
//! A router has a weight, which counts while a worker has more to do than it can, and it may have a rate, which always
//! counts. An interface has the same about the link that it leaves by, and may have a guarantee there.

pub mod burst_limit;
pub mod deficit;
pub mod recent_demands;
pub mod senders;

use std::sync::Arc;

use sluice_route::RouterIndex;
use sluice_table::token_bucket::{SharedTokenBucket, TokenRate};

use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::io::{NO_PORT, PortIndex};
use crate::snapshot::Interface;
use burst_limit::BurstLimit;
use deficit::Deficits;
use recent_demands::RecentDemands;

/// The weight of who is not given one.
pub const WEIGHT: u8 = 10;

/// No entry.
const NONE: u16 = u16::MAX;

/// Rates of packets and bits, of all workers together. Frames count from their Ethernet header to the end of their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Packets a second.
    pub packets: Option<u64>,
    /// Bits a second.
    pub bits: Option<u64>,
    /// Nanoseconds for which a rate that is not used is saved up.
    pub burst: u64,
}

/// What a router is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterShare {
    /// Its part of a worker, beside those of others; [`WEIGHT`] where none is given.
    pub weight: Option<u8>,
    /// What comes in by its interfaces.
    pub rate: Option<Rate>,
}

/// What an interface is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkShare {
    /// Its part of the link, beside those of others; [`WEIGHT`] where none is given.
    pub weight: Option<u8>,
    /// Bits a second that it may send whatever others do.
    pub guarantee: Option<u64>,
    /// Bits a second that leave by the link, all VLANs together; of a VLAN or a virtual link, that leave by it.
    pub rate: Option<u64>,
}

/// A router's buckets. Its interfaces on all ports, and all workers, take from the same.
#[derive(Debug)]
struct RouterBuckets {
    given: Rate,
    packets: Option<SharedTokenBucket>,
    bits: Option<SharedTokenBucket>,
}

/// A router on a port.
#[derive(Clone, Copy, Debug)]
pub struct RouterEntry {
    /// Who it is.
    pub router: RouterIndex,
    /// Its weight.
    pub weight: u64,
}

/// What is to be known of a port's receive queues.
#[derive(Clone, Debug, Default)]
pub struct PortShares {
    /// Several routers' packets come in here, and weights count.
    pub shared: bool,
    /// Some router has a rate.
    pub limited: bool,
    /// The router, where it is one alone; a shared port is nobody's.
    pub own: Option<RouterIndex>,
    /// Weights of its routers.
    pub weight: u64,
}

/// An interface on its way out.
#[derive(Clone, Debug, Default)]
struct EgressShare {
    weight: u64,
    guarantee: Option<Arc<SharedTokenBucket>>,
    rate: Option<Arc<SharedTokenBucket>>,
}

/// What is to be known of a port's transmit queues.
#[derive(Clone, Debug, Default)]
struct Link {
    /// Some interface has a share of it, or a rate.
    is_shared: bool,
    rate: Option<Arc<SharedTokenBucket>>,
}

/// Shares of routers and interfaces.
#[derive(Clone, Debug)]
pub struct Shares {
    given: (Vec<RouterShare>, Vec<LinkShare>),
    /// Routers have weights: some was given one.
    pub weighted: bool,
    routers: Vec<Option<Arc<RouterBuckets>>>,
    ports: Vec<PortShares>,
    entries: Vec<RouterEntry>,
    /// By interface: the entry of its router on its port.
    entry_of: Vec<u16>,
    leaving: Vec<EgressShare>,
    links: Vec<Link>,
}

/// How long a link's rate may be saved up, in nanoseconds: more than a queue of a card holds at most rates is of no use.
const LINK_BURST: u64 = 10_000_000;

/// Bits that every bucket holds at least: one of the longest frames, twice.
const LEAST_BITS: u64 = 2 * 8 * 9_234;

/// A full bucket that holds what comes in `burst` nanoseconds, and `min` tokens at least.
fn bucket(rate: u64, burst: u64, min: u64) -> SharedTokenBucket {
    SharedTokenBucket::new(TokenRate::with_burst_time(rate.max(1), burst, min))
}

fn bits(rate: u64, burst: u64) -> Arc<SharedTokenBucket> {
    Arc::new(bucket(rate, burst, LEAST_BITS))
}

impl Shares {
    /// Of routers and interfaces by number, on so many ports; none where nobody is given anything. Who is beyond the ends
    /// of the lists is given nothing.
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
                    bits: given.bits.map(|rate| bucket(rate, given.burst, LEAST_BITS)),
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

    /// The routers of a port.
    fn receive(&mut self, port: usize, interfaces: &[Interface]) {
        let is_here = |interface: &Interface| usize::from(interface.port) == port;
        // What comes in by a bridge's port is the bridge's, tags or not; of a port with bridged VLANs, those.
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

    /// An interface and the link that it leaves by.
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

    /// Who was there before and is given the same goes on with what is left of it: routers and interfaces keep their numbers
    /// as long as they are there.
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

    /// What is to be known of a port's receive queues.
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

    /// Packets and bits that a router may have now; none where nothing limits it.
    #[inline(always)]
    pub fn left(&self, router: RouterIndex, now: u64) -> Option<[u64; 2]> {
        let buckets = self.buckets(router)?;
        let left = |bucket: &Option<SharedTokenBucket>| bucket.as_ref().map_or(u64::MAX, |bucket| bucket.tokens(now));
        Some([left(&buckets.packets), left(&buckets.bits)])
    }

    /// A router has had so many packets and bits.
    #[inline(always)]
    pub fn charge(&self, router: RouterIndex, [packets, bits]: [u64; 2], now: u64) {
        let Some(buckets) = self.buckets(router) else { return };
        for (bucket, count) in [(&buckets.packets, packets), (&buckets.bits, bits)] {
            if let Some(bucket) = bucket {
                bucket.charge(count, now);
            }
        }
    }

    /// Whether a frame of so many bytes may go over a virtual link from one end to the other, which is in a router.
    pub fn may_cross(&self, from: u16, router: RouterIndex, bytes: u64, now: u64) -> bool {
        let link = self
            .leaving
            .get(usize::from(from))
            .and_then(|leaving| leaving.rate.as_deref());
        let left = self.left(router, now).unwrap_or([u64::MAX; 2]);
        let fits = link.is_none_or(|link| link.tokens(now) >= bytes * 8);
        let passes = fits && left[0] > 0 && left[1] >= bytes * 8;
        if passes {
            link.into_iter().for_each(|link| link.charge(bytes * 8, now));
            self.charge(router, [1, bytes * 8], now);
        }
        passes
    }

    /// Whether frames that leave by a port are looked at.
    #[inline(always)]
    pub fn is_link_shared(&self, port: usize) -> bool {
        self.links.get(port).is_some_and(|link| link.is_shared)
    }

    /// The bucket of a link, where it has a rate.
    pub fn link(&self, port: usize) -> Option<&SharedTokenBucket> {
        self.links.get(port)?.rate.as_deref()
    }

    /// Weight of an interface on its link, its guarantee and its own rate.
    pub fn leaving(&self, interface: u16) -> (u64, Option<&SharedTokenBucket>, Option<&SharedTokenBucket>) {
        match self.leaving.get(usize::from(interface)) {
            Some(leaving) => (leaving.weight, leaving.guarantee.as_deref(), leaving.rate.as_deref()),
            None => (WEIGHT.into(), None, None),
        }
    }
}

/// Who may have how much at one side of a worker's ports.
#[derive(Debug)]
pub struct SideState {
    /// Of each port.
    pub gates: Box<[BurstLimit]>,
    /// Of each port, who wanted something lately.
    pub recent: Box<[RecentDemands]>,
    /// By number of entry, or interface.
    pub credits: Deficits,
}

impl SideState {
    /// Of so many ports.
    pub fn new(ports: usize) -> Self {
        Self {
            gates: vec![BurstLimit::default(); ports].into(),
            recent: vec![RecentDemands::default(); ports].into(),
            credits: Deficits::new(AdjacencyIndex::MAX_INTERFACES + 1),
        }
    }

    /// Nothing is there to be received from a port.
    #[inline(always)]
    pub fn idle(&mut self, port: PortIndex) {
        if let Some(gate) = self.gates.get_mut(usize::from(port)) {
            gate.idle();
        }
    }
}

//! Adjacencies, and the cache of the adjacencies that a node uses.

use crate::features::context::OutputContext;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::io::{NO_PORT, PortIndex, WorkerIndex};
use crate::snapshot::HEAD;

mod relabel;

pub(super) use relabel::write;

/// The data that `output` needs to send to a next hop. The data is computed once per node run and cached.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Adjacency {
    pub(super) hop: AdjacencyIndex,
    /// Index of the next hop, if the adjacency was looked up by next-hop index.
    route: u32,
    /// The header before the EtherType: destination MAC, source MAC, and tags.
    pub(super) head: [u8; HEAD],
    /// Number of tags in the header.
    pub(super) tags: u8,
    /// Mask of the priority bits that a tagged frame keeps.
    keeps: u8,
    /// Maximum length in bytes of an L3 datagram.
    pub mtu: u16,
    pub(super) port: PortIndex,
    by: Egress,
    /// Whether the interface has no tags, and this worker has a queue of its port.
    plain: bool,
    /// Maximum L3 length that this worker can send without tags through its own queue; 0 if it can't send such datagrams.
    direct: u16,
    /// Maximum length of an L3 datagram that this worker can send, with or without tags, through its own queue; 0 if
    /// this worker has no queue of the port.
    open: u16,
    /// The worker that has a queue of the port, if this worker has none.
    pub(super) sender: Option<WorkerIndex>,
    frames: u32,
    bytes: u64,
}

/// The port and the interface on which a packet leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress(pub u32);

impl Egress {
    fn new(port: PortIndex, interface: u16) -> Self {
        Self(u32::from(port) << 16 | u32::from(interface))
    }

    /// The port.
    #[inline(always)]
    pub fn port(self) -> PortIndex {
        (self.0 >> 16) as PortIndex
    }

    /// Number of the interface.
    #[inline(always)]
    pub fn interface(self) -> u16 {
        self.0 as u16
    }
}

impl Adjacency {
    const NONE: Adjacency = Adjacency {
        hop: AdjacencyIndex::NONE,
        route: NO_NEXT_HOP,
        head: [0; HEAD],
        tags: 0,
        keeps: 0,
        mtu: 0,
        port: 0,
        by: Egress(0),
        plain: false,
        direct: 0,
        open: 0,
        sender: None,
        frames: 0,
        bytes: 0,
    };
}

/// Cache of the adjacencies that a node uses. If a burst has more next hops than the cache has entries, entries are replaced.
#[derive(Debug)]
pub struct AdjacencyCache([Adjacency; CACHE_SIZE]);

/// Number of entries in an adjacency cache.
pub const CACHE_SIZE: usize = 4;

/// Marks an adjacency without a next-hop index. The value is neither a valid index nor the index for "no route".
const NO_NEXT_HOP: u32 = u32::MAX - 1;

impl Default for AdjacencyCache {
    fn default() -> Self {
        Self([Adjacency::NONE; CACHE_SIZE])
    }
}

impl AdjacencyCache {
    /// The adjacency with this index; `None` if its neighbour is not resolved, or its interface was removed.
    #[inline(always)]
    pub fn of(&mut self, hop: AdjacencyIndex, exit: &OutputContext<'_>) -> Option<&mut Adjacency> {
        let adjacency = &mut self.0[(hop.interface() ^ hop.neighbour() as usize) % CACHE_SIZE];
        if adjacency.hop != hop && !gather(adjacency, hop, exit) {
            return None;
        }
        Some(adjacency)
    }

    /// The adjacency of a next hop; `None` if the next hop is not a resolved gateway.
    #[inline(always)]
    pub fn find(&mut self, route: u32, exit: &OutputContext<'_>) -> Option<&mut Adjacency> {
        let is_found = self.at(route).1 || self.bind(route, exit);
        is_found.then(|| self.at(route).0)
    }

    /// The cache entry for a next hop, and whether the entry already contains the adjacency of the next hop.
    #[inline(always)]
    pub fn at(&mut self, route: u32) -> (&mut Adjacency, bool) {
        let adjacency = &mut self.0[route as usize % CACHE_SIZE];
        let is_match = adjacency.route == route;
        (adjacency, is_match)
    }

    /// Fills the cache entry of a next hop. Returns whether the next hop is a resolved gateway.
    #[inline(never)]
    pub fn bind(&mut self, route: u32, exit: &OutputContext<'_>) -> bool {
        let adjacency = &mut self.0[route as usize % CACHE_SIZE];
        let hop = exit.forwarding.resolved_gateway(route);
        let found = hop.is_some_and(|hop| gather(adjacency, hop, exit));
        if found {
            adjacency.route = route;
        }
        found
    }

    /// Adds the sent frames to the interface counters and clears the cache. Each node must call this at its end.
    pub fn flush(&mut self, exit: &OutputContext<'_>) {
        for adjacency in &mut self.0 {
            count(adjacency, exit);
            (adjacency.hop, adjacency.route) = (AdjacencyIndex::NONE, NO_NEXT_HOP);
        }
    }
}

/// Adds the frames sent to an adjacency to the interface counters.
fn count(adjacency: &mut Adjacency, exit: &OutputContext<'_>) {
    if adjacency.frames > 0
        && let Some(counters) = exit.counters.interfaces.get(adjacency.hop.interface())
    {
        counters.sent.add(adjacency.frames.into());
        counters.sent_bytes.add(adjacency.bytes);
    }
    (adjacency.frames, adjacency.bytes) = (0, 0);
}

#[inline(never)]
fn gather(adjacency: &mut Adjacency, hop: AdjacencyIndex, exit: &OutputContext<'_>) -> bool {
    count(adjacency, exit);
    (adjacency.hop, adjacency.route) = (AdjacencyIndex::NONE, NO_NEXT_HOP);
    let mac = match hop.is_bridge() && exit.snapshot.is_access(hop.interface() as u16) {
        false => exit.forwarding.mac(hop),
        // Each terminal of a site has its own MAC, which is written separately for each packet.
        true => Some([0; 6]),
    };
    let (Some(link), Some(mac)) = (exit.snapshot.links.get(hop.interface()), mac) else {
        return false;
    };
    let sender = match link.queued {
        true => None,
        false => exit.snapshot.sender(link.port, exit.own),
    };
    let untagged = link.tags == 0;
    let mtu = match link.tunnel {
        true => exit.snapshot.mtu(hop.interface() as u16, exit.now),
        false => link.mtu,
    };
    let open = if sender.is_none() && link.port != NO_PORT && link.is_shallow() {
        mtu
    } else {
        0
    };
    *adjacency = Adjacency {
        hop,
        route: NO_NEXT_HOP,
        head: link.head(mac),
        tags: link.tags,
        keeps: link.keeps,
        mtu,
        port: link.port,
        by: Egress::new(link.port, hop.interface() as u16),
        plain: untagged && sender.is_none(),
        direct: if untagged { open } else { 0 },
        open,
        sender,
        frames: 0,
        bytes: 0,
    };
    true
}

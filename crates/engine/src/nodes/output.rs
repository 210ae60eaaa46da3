//! output: writes the link header for the next hop and selects the port.

use std::cmp::Ordering;

use sluice_nat::sites::View;
use sluice_wire::layers::{Class, Layers};
use sluice_wire::{Packet, ethernet};

use crate::features::context::OutputContext;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::leave;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::Meta;
use crate::packet::io::{BufferIndex, NO_PORT, PortIndex, WorkerIndex};
use crate::packet::lists::{Leave, Lists};
use crate::packet::reason::Own;
use crate::snapshot::{HEAD, Interface};

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "output",
    help: "writes the link header of the next hop",
    stage: None,
    leaves: &[Leave::HandOver, Leave::Drop],
    exits: &[
        Exit::new("neighbour-resolution", "neighbour unknown", needs::ROUTED),
        Exit::new("transmit", "", needs::ROUTED),
        Exit::new("inter-router-link", "over an inter-router link", needs::LINKED),
    ],
};

/// Exit of a finished packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputResult {
    /// This worker transmits the packet on this port.
    Transmit(PortIndex),
    /// Another worker has a queue of the interface's port and gets the packet.
    HandOver(WorkerIndex, u16),
    /// The packet can't be sent and is dropped.
    Drop(Own),
}

/// The data that `output` needs to send to a next hop. The data is computed once per node run and cached.
#[derive(Clone, Copy, Debug)]
pub struct Adjacency {
    hop: AdjacencyIndex,
    /// Index of the next hop, if the adjacency was looked up by next-hop index.
    route: u32,
    /// The header before the EtherType: destination MAC, source MAC, and tags.
    head: [u8; HEAD],
    /// Number of tags in the header.
    tags: u8,
    /// Mask of the priority bits that a tagged frame keeps.
    keeps: u8,
    /// Maximum length in bytes of an L3 datagram.
    pub mtu: u16,
    port: PortIndex,
    /// Whether the interface has no tags, and this worker has a queue of its port.
    plain: bool,
    /// Maximum L3 length that this worker can send without tags through its own queue; 0 if it can't send such datagrams.
    direct: u16,
    /// Maximum length of an L3 datagram that this worker can send, with or without tags, through its own queue; 0 if
    /// this worker has no queue of the port.
    open: u16,
    /// The worker that has a queue of the port, if this worker has none.
    sender: Option<WorkerIndex>,
    frames: u32,
    bytes: u64,
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
        plain: false,
        direct: 0,
        open: 0,
        sender: None,
        frames: 0,
        bytes: 0,
    };
}

/// Mask of a MAC in a word. The lowest byte of the word is the first byte of the MAC.
const MAC: u64 = (1 << 48) - 1;

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
        let way = &mut self.0[(hop.interface() ^ hop.neighbour() as usize) % CACHE_SIZE];
        if way.hop != hop && !gather(way, hop, exit) {
            return None;
        }
        Some(way)
    }

    /// The cache entry for a next hop, and whether the entry already contains the adjacency of the next hop.
    #[inline(always)]
    pub fn at(&mut self, route: u32) -> (&mut Adjacency, bool) {
        let way = &mut self.0[route as usize % CACHE_SIZE];
        let is_it = way.route == route;
        (way, is_it)
    }

    /// Fills the cache entry of a next hop. Returns whether the next hop is a resolved gateway.
    #[inline(never)]
    pub fn bind(&mut self, route: u32, exit: &OutputContext<'_>) -> bool {
        let way = &mut self.0[route as usize % CACHE_SIZE];
        let hop = exit.forwarding.resolved_gateway(route);
        let found = hop.is_some_and(|hop| gather(way, hop, exit));
        if found {
            way.route = route;
        }
        found
    }

    /// Adds the sent frames to the interface counters and clears the cache. Each node must call this at its end.
    pub fn flush(&mut self, exit: &OutputContext<'_>) {
        for way in &mut self.0 {
            count(way, exit);
            (way.hop, way.route) = (AdjacencyIndex::NONE, NO_NEXT_HOP);
        }
    }
}

/// Adds the frames sent to an adjacency to the interface counters.
fn count(way: &mut Adjacency, exit: &OutputContext<'_>) {
    if way.frames > 0
        && let Some(counters) = exit.counters.interfaces.get(way.hop.interface())
    {
        counters.sent.add(way.frames.into());
        counters.sent_bytes.add(way.bytes);
    }
    (way.frames, way.bytes) = (0, 0);
}

#[inline(never)]
fn gather(way: &mut Adjacency, hop: AdjacencyIndex, exit: &OutputContext<'_>) -> bool {
    count(way, exit);
    (way.hop, way.route) = (AdjacencyIndex::NONE, NO_NEXT_HOP);
    let mac = match hop.is_bridge() && exit.snapshot.is_access(hop.interface() as u16) {
        false => exit.forwarding.mac(hop),
        // Each terminal of a site has its own MAC, which is written for each packet.
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
    *way = Adjacency {
        hop,
        route: NO_NEXT_HOP,
        head: link.head(mac),
        tags: link.tags,
        keeps: link.keeps,
        mtu,
        port: link.port,
        plain: untagged && sender.is_none(),
        direct: if untagged { open } else { 0 },
        open,
        sender,
        frames: 0,
        bytes: 0,
    };
    true
}

impl Adjacency {
    /// Whether a packet arrived without tags and can be sent without tags through this worker's own queue.
    #[inline(always)]
    pub fn takes(&self, layers: &Layers) -> bool {
        self.plain && layers.tags == 0
    }

    /// Writes the link header `link` of a frame of `length` bytes that arrived without tags, and sends the frame. If
    /// the frame needs tags or the queue of another worker, returns `false` without an effect.
    #[inline(always)]
    pub fn take(
        &mut self,
        link: &mut [u8],
        length: usize,
        slot: BufferIndex,
        meta: &mut Meta,
        lists: &mut Lists,
    ) -> bool {
        if self.takes(&meta.layers)
            && let Some(head) = link.first_chunk_mut()
        {
            self.rewrite_link(head, length);
            meta.egress = self.egress();
            lists.send(self.port, slot);
            return true;
        }
        false
    }

    /// Whether this worker's own queue can send, without tags, a packet that arrived without tags and has this L3 length.
    #[inline(always)]
    pub fn is_direct_for(&self, length: u16) -> bool {
        length <= self.direct
    }

    /// Number of the egress interface.
    #[inline(always)]
    pub fn egress(&self) -> u16 {
        self.hop.interface() as u16
    }

    /// Number of tags of sent frames.
    #[inline(always)]
    pub fn tags(&self) -> u8 {
        self.tags
    }

    /// The port on which frames are sent.
    #[inline(always)]
    pub fn port(&self) -> PortIndex {
        self.port
    }

    /// Writes the MAC addresses of a frame of `length` bytes without tags, and counts the frame as sent.
    #[inline(always)]
    pub fn rewrite_link(&mut self, head: &mut [u8; 12], length: usize) {
        // The sent frame keeps the EtherType of the received frame.
        if let Some(addresses) = self.head.first_chunk() {
            *head = *addresses;
        }
        self.frames += 1;
        self.bytes += length as u64;
    }

    /// Whether a packet with an L3 datagram of this length can be sent through this worker's own queue, with or without tags.
    #[inline(always)]
    pub fn is_open_for(&self, length: u16) -> bool {
        length <= self.open
    }

    /// Writes the MAC addresses and tags of a frame that arrived with this number of tags, and counts the frame as
    /// sent. If the headroom is too small for the tags, returns `false` without an effect.
    #[inline(always)]
    pub fn relabel(&mut self, packet: &mut Packet<'_>, tags: u8) -> bool {
        let kept = self.priority_of(packet, tags);
        // The sent frame keeps the EtherType of the received frame at its position.
        let fits = match self.tags.cmp(&tags) {
            Ordering::Equal => true,
            Ordering::Greater => packet.grow_front(4 * usize::from(self.tags - tags)),
            Ordering::Less => packet.trim_front(4 * usize::from(tags - self.tags)),
        };
        if !fits {
            return false;
        }
        let length = packet.len();
        let frame = packet.bytes_mut();
        match self.tags {
            0 => write(frame, self.head.first_chunk::<12>()),
            1 => {
                write(frame, self.head.first_chunk::<16>());
                keep(frame, 14, kept);
            }
            _ => {
                write(frame, Some(&self.head));
                keep(frame, 14, kept);
                keep(frame, 18, kept);
            }
        }
        self.frames += 1;
        self.bytes += length as u64;
        true
    }

    /// The bits of the received priority that the sent frame keeps. `tags` is the number of received tags.
    #[inline(always)]
    fn priority_of(&self, packet: &Packet<'_>, tags: u8) -> u8 {
        match packet.bytes().get(14) {
            Some(priority) if tags > 0 => priority & self.keeps,
            _ => 0,
        }
    }
}

impl Adjacency {
    /// Writes the MAC addresses and tags of a frame in a site's session. The frame arrived with this number of tags. It
    /// is sent to its terminal, or, if `upstream` is set, from the site's virtual MAC. The frame is counted as sent
    /// unless it must still be fragmented. If the headroom is too small for the tags, returns `false` without an effect.
    #[inline(always)]
    pub fn relabel_as(&mut self, packet: &mut Packet<'_>, tags: u8, view: &View, upstream: bool, cut: bool) -> bool {
        // The header is built in registers, in little-endian words: if the header were in memory, store forwarding would delay its loads.
        let word = |at: usize| {
            let bytes = self.head.get(at..at + 8).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let interface = word(6) & MAC;
        // The priority is written to both tags.
        let kept = u64::from(self.priority_of(packet, tags)) * 0x0001_0000_0001_0000;
        let (to, from, labels, own) = match upstream {
            true if view.virtual_mac != 0 => (word(0) & MAC, view.virtual_mac, word(12), self.tags),
            true => (word(0) & MAC, interface, word(12), self.tags),
            false => (view.mac, interface, view.tags, view.tag_count),
        };
        let fits = match own.cmp(&tags) {
            Ordering::Equal => true,
            Ordering::Greater => packet.grow_front(4 * usize::from(own - tags)),
            Ordering::Less => packet.trim_front(4 * usize::from(tags - own)),
        };
        if !fits {
            return false;
        }
        let length = packet.len();
        let frame = packet.bytes_mut();
        let labels = labels | kept;
        let words = [to | from << 48, from >> 16 | labels << 32, labels >> 32].map(u64::to_le_bytes);
        match own {
            0 => write_words::<12>(frame, &words),
            1 => write_words::<16>(frame, &words),
            _ => write_words::<20>(frame, &words),
        }
        if !cut && self.sender.is_none() {
            self.frames += 1;
            self.bytes += length as u64;
        }
        true
    }

    /// Exit of a frame with a finished link header.
    #[inline(always)]
    pub fn out(&self) -> OutputResult {
        match self.sender {
            None => OutputResult::Transmit(self.port),
            Some(sender) => OutputResult::HandOver(sender, self.hop.interface() as u16),
        }
    }

    /// The index of this adjacency.
    pub fn hop(&self) -> AdjacencyIndex {
        self.hop
    }
}

/// Writes the header before the EtherType.
#[inline(always)]
fn write<const LENGTH: usize>(frame: &mut [u8], head: Option<&[u8; LENGTH]>) {
    if let (Some(place), Some(head)) = (frame.first_chunk_mut(), head) {
        *place = *head;
    }
}

/// Sets the kept priority in a tag.
#[inline(always)]
fn keep(frame: &mut [u8], at: usize, kept: u8) {
    if let Some(control) = frame.get_mut(at) {
        *control |= kept;
    }
}

/// Writes the header before the EtherType from words.
#[inline(always)]
fn write_words<const LENGTH: usize>(frame: &mut [u8], words: &[[u8; 8]; 3]) {
    if let Some(place) = frame.first_chunk_mut::<LENGTH>() {
        for (place, word) in place.chunks_mut(8).zip(words) {
            place.copy_from_slice(&word[..place.len()]);
        }
    }
}

/// Writes the link header of a packet. Puts the packet on the list of its port, or of the worker that has a queue of the port.
#[inline(always)]
pub fn send(
    way: &mut Adjacency,
    slot: BufferIndex,
    packet: &mut Packet<'_>,
    meta: &mut Meta,
    lists: &mut Lists,
    exit: &OutputContext<'_>,
) {
    let length = packet.len();
    if !way.take(packet.bytes_mut(), length, slot, meta, lists) {
        send_by_parts(way, slot, packet, meta, lists, exit);
    }
}

/// Sends a frame with tags, or through the queue of another worker.
#[inline(never)]
pub fn send_by_parts(
    way: &mut Adjacency,
    slot: BufferIndex,
    packet: &mut Packet<'_>,
    meta: &mut Meta,
    lists: &mut Lists,
    exit: &OutputContext<'_>,
) {
    let layers = &meta.layers;
    if way.is_open_for(layers.end.saturating_sub(layers.l3)) && way.relabel(packet, layers.tags) {
        meta.egress = way.egress();
        return lists.send(way.port, slot);
    }
    if let Some(sender) = way.sender.filter(|_| meta.layers.tags == 0 && way.tags == 0)
        && let Some(addresses) = way.head.first_chunk::<12>()
    {
        write(packet.bytes_mut(), Some(addresses));
        return leave(
            slot,
            OutputResult::HandOver(sender, way.hop.interface() as u16),
            meta,
            way.hop,
            lists,
        );
    }
    let [a, b, c, d, e, f, ..] = way.head;
    let out = output(packet, &meta.layers, way.hop, [a, b, c, d, e, f], exit);
    leave(slot, out, meta, way.hop, lists);
}

/// Writes the link header for a neighbour with this MAC.
pub fn output(
    packet: &mut Packet<'_>,
    layers: &Layers,
    hop: AdjacencyIndex,
    mac: [u8; 6],
    exit: &OutputContext<'_>,
) -> OutputResult {
    let Some(interface) = exit.snapshot.interfaces.get(hop.interface()) else {
        return OutputResult::Drop(Own::InterfaceGone);
    };
    if !link_header(packet, layers, interface, mac) {
        return OutputResult::Drop(Own::NoBuffer);
    }
    as_it_is(packet, hop, exit)
}

/// Exit of a frame with a finished link header, through the hop's interface. Counts the frame if this worker transmits it.
pub fn as_it_is(packet: &Packet<'_>, hop: AdjacencyIndex, exit: &OutputContext<'_>) -> OutputResult {
    let Some(interface) = exit.snapshot.interfaces.get(hop.interface()) else {
        return OutputResult::Drop(Own::InterfaceGone);
    };
    match exit.snapshot.sender(interface.port, exit.own) {
        Some(sender) => OutputResult::HandOver(sender, hop.interface() as u16),
        None => {
            if let Some(counters) = exit.counters.interfaces.get(hop.interface()) {
                counters.sent_bytes.add(packet.len() as u64);
                counters.sent.add(1);
            }
            OutputResult::Transmit(interface.port)
        }
    }
}

/// Writes MAC addresses, tags and EtherType. Returns `false` if the headroom is too small.
#[inline(always)]
pub fn link_header(packet: &mut Packet<'_>, layers: &Layers, interface: &Interface, mac: [u8; 6]) -> bool {
    if layers.tags != 0 || !interface.tags.is_empty() {
        return tagged_header(packet, layers, interface, mac);
    }
    // The sent frame keeps the EtherType of the received frame.
    let Some(head) = packet.bytes_mut().first_chunk_mut::<12>() else {
        return false;
    };
    head[..6].copy_from_slice(&mac);
    head[6..].copy_from_slice(&interface.mac);
    true
}

#[cold]
fn tagged_header(packet: &mut Packet<'_>, layers: &Layers, interface: &Interface, mac: [u8; 6]) -> bool {
    let length = ethernet::LENGTH + 4 * interface.tags.len();
    let old = layers.l3 as usize;
    let kept = layers
        .tag(packet.bytes(), 0)
        .map_or(0, |tag| tag.control & u16::from(interface.priority.kept()) << 8);
    let fits = if length > old {
        packet.grow_front(length - old)
    } else {
        packet.trim_front(old - length)
    };
    let Some(head) = packet.bytes_mut().get_mut(..length).filter(|_| fits) else {
        return false;
    };
    let ethertype = match layers.class {
        Class::Ipv6 => ethernet::ethertype::IPV6,
        Class::Arp => ethernet::ethertype::ARP,
        _ => ethernet::ethertype::IPV4,
    };
    head[..6].copy_from_slice(&mac);
    head[6..12].copy_from_slice(&interface.mac);
    for (place, tag) in interface.tags.iter().enumerate() {
        head[12 + 4 * place..14 + 4 * place].copy_from_slice(&tag.protocol.to_be_bytes());
        let control = interface.priority.of(*tag).control | kept;
        head[14 + 4 * place..16 + 4 * place].copy_from_slice(&control.to_be_bytes());
    }
    head[length - 2..].copy_from_slice(&ethertype.to_be_bytes());
    true
}

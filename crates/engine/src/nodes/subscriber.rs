//! subscriber: what of subscribers' sites is for control: DHCP of terminals and of the sites' own addresses, and ARP by which
//! somebody else claims one of these.

use sluice_nat::Tuple;
use sluice_nat::rule::SourceAction;
use sluice_nat::sites::{RequestKind, Sites, View, is_pooled, is_site, site, word_of};
use sluice_route::RouterIndex;
use sluice_table::flow::RecordIndex;
use sluice_wire::layers::{self, Class};
use sluice_wire::vlan::{self, Tag};
use sluice_wire::{Context, Direction, Packet};

use crate::features::context::{NodeContext, OutputContext};
use crate::features::punt::ROUTED;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::leave;
use crate::nodes::output::{Adjacency, as_it_is};
use crate::nodes::slow_path::FlowDecision;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, Meta, Origin, put};
use crate::packet::counters::CycleStage;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::Leave;
use crate::packet::lists::Lists;
use crate::packet::reason::Own;
use crate::session::family::{Family, Session};
use crate::session::shard::end;
use crate::snapshot::Snapshot;

/// The node.
pub const NODE: Node = Node {
    name: "subscriber",
    help: "relays DHCP and ARP of subscribers' sites to the control plane",
    stage: Some(CycleStage::Forward),
    leaves: &[Leave::TakenIn, Leave::Drop],
    exits: &[
        Exit::new("transmit", "from the control plane", needs::SITES),
        Exit::new("forward", "DHCP to servers", needs::SITES),
    ],
};

/// Give control what is for it: whole frames, with their tags.
#[inline(never)]
pub fn subscriber(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    _tools: &mut NodeTools<'_>,
) {
    for slot in std::mem::take(&mut lists.subscriber) {
        let meta = *batch.meta(slot);
        let frame = batch.packets[slot as usize].bytes();
        let Some(sites) = ctx.snapshot.sites.as_deref() else {
            lists.drop_packet(slot, Own::NoLocalService);
            continue;
        };
        if sites.is_access(meta.interface) {
            let Some(context) = sites.dhcp_client(meta.interface, &meta.layers, frame) else {
                lists.drop_packet(slot, Own::SiteUnknown);
                continue;
            };
            if !sites
                .table
                .admits(site(context), RequestKind::Dhcp, ctx.now.nanoseconds)
            {
                lists.drop_packet(slot, Own::SitePolicedDhcp);
                continue;
            }
        }
        // What fills a short frame up says nothing.
        let end = match meta.layers.class {
            Class::Ipv4 => usize::from(meta.layers.end),
            _ => frame.len(),
        };
        let whole = frame.get(..end).unwrap_or(frame);
        match ctx.subscribers.push(meta.interface, [whole, &[]], ctx.counters) {
            true => put(&mut lists.taken, slot),
            false => lists.drop_packet(slot, Own::SubscribersQueueFull),
        }
    }
}

/// Send what control has made: frames as they are, and packets of the gateway's own that are to be routed.
#[inline(never)]
pub fn sent(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>, count: usize) {
    for slot in 0..count.min(batch.packets.len()) {
        let (packet, meta) = (&batch.packets[slot], &mut batch.meta[slot]);
        let place = slot as BufferIndex;
        let routed = meta.interface & ROUTED != 0;
        meta.interface &= !ROUTED;
        let Some(counters) = ctx.counters.interfaces.get(usize::from(meta.interface)) else {
            put(&mut lists.used, place);
            continue;
        };
        counters.made.add(1);
        match layers::parse(packet.bytes()) {
            _ if packet.bytes().is_empty() => lists.drop_packet(place, Own::NoBuffer),
            Err(fault) => lists.drop_packet(place, fault),
            Ok(layers) if routed && layers.class == Class::Ipv4 => {
                meta.layers = layers;
                put(&mut lists.forward.v4, place);
            }
            Ok(_) if routed => lists.drop_packet(place, Own::UnknownEthertype),
            Ok(layers) => {
                meta.layers = layers;
                finish(place, packet, meta, lists, ctx);
            }
        }
    }
}

/// Whether a packet that the gateway answers came from a terminal of a site.
#[inline(always)]
pub fn came_from(snapshot: &Snapshot, meta: &Meta) -> bool {
    meta.origin == Origin::Received && snapshot.is_access(meta.interface)
}

/// Send an answer back to the terminal of a site whose question it was made of: to `mac`, with these tags in front of an
/// untagged frame, or with those that the question had where it is still behind them.
pub fn answer(
    slot: BufferIndex,
    mac: [u8; 6],
    tags: Option<[Option<Tag>; 2]>,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let (packet, meta) = (
        &mut batch.packets[slot as usize],
        &mut batch.meta[slot as usize % BURST_BUFFERS],
    );
    let Some(interface) = ctx.snapshot.interface(meta.interface) else {
        return lists.drop_packet(slot, Own::InterfaceGone);
    };
    if let Some(head) = packet.bytes_mut().first_chunk_mut::<12>() {
        head[..6].copy_from_slice(&mac);
        head[6..].copy_from_slice(&interface.mac);
    }
    let tags = tags.unwrap_or_default();
    if !tags.into_iter().rev().flatten().all(|tag| vlan::push(packet, tag)) {
        return lists.drop_packet(slot, Own::NoBuffer);
    }
    match layers::parse(packet.bytes()) {
        Ok(layers) => meta.layers = layers,
        Err(fault) => return lists.drop_packet(slot, fault),
    }
    finish(slot, packet, meta, lists, ctx);
}

/// Send a finished frame by the interface of its meta.
fn finish(slot: BufferIndex, packet: &Packet<'_>, meta: &mut Meta, lists: &mut Lists, ctx: &NodeContext<'_, '_>) {
    let hop = AdjacencyIndex::bridge(meta.interface);
    leave(slot, as_it_is(packet, hop, &ctx.exit()), meta, hop, lists);
}

/// An IPv4 address as the table of sites has it.
#[inline(always)]
fn to_v4<F: Family>(address: F::Address) -> u32 {
    F::words(address)[1] as u32
}

/// Whether an address is a site's own, in a virtual router.
#[inline(always)]
pub fn is_own<F: Family>(snapshot: &Snapshot, router: Context, address: F::Address) -> bool {
    let sites = snapshot.sites.as_deref().filter(|_| !F::IS_V6);
    sites.is_some_and(|sites| {
        let address = to_v4::<F>(address);
        sites.is_own(router, address) && sites.table.owner(router as RouterIndex, address).is_some()
    })
}

/// The hop to a terminal of a site; none where nobody there has the address.
#[inline]
pub fn hop<F: Family>(snapshot: &Snapshot, context: Context, address: F::Address) -> Option<AdjacencyIndex> {
    let sites = snapshot.sites.as_deref().filter(|_| !F::IS_V6)?;
    let address = to_v4::<F>(address);
    let terminal = sites.table.find(context, address)?;
    let view = sites.table.view(terminal, context, address)?;
    Some(AdjacencyIndex::terminal(view.interface, terminal))
}

/// What sources of a site are translated to; none where its address is not there.
#[inline]
pub fn source<F: Family>(snapshot: &Snapshot, context: Context) -> Option<SourceAction<F::Address>> {
    let table = &snapshot.sites.as_deref().filter(|_| !F::IS_V6)?.table;
    match is_pooled(context) {
        true => table.pool(site(context)).map(SourceAction::Pool),
        false => table
            .public(site(context))
            .map(|address| SourceAction::Static(sluice_nat::Address::from_number(address.into()))),
    }
}

/// Why a packet is dropped that came in by an interface of sites and is of none of these.
#[inline(always)]
pub fn unknown_site<F: Family>(snapshot: &Snapshot, meta: &Meta, key: &F::Key) -> Option<Own> {
    let is_nobodys = came_from(snapshot, meta) && !is_site(F::tuple(key).context());
    is_nobodys.then_some(match meta.layers.tags {
        0 => Own::SiteUnknown,
        _ => Own::UnknownVlan,
    })
}

/// A session's plan, but where a terminal opens it from another's address.
#[inline(always)]
pub fn unless_forged<F: Family>(
    snapshot: &Snapshot,
    meta: &Meta,
    frame: &[u8],
    key: &F::Key,
    plan: FlowDecision<F>,
) -> FlowDecision<F> {
    let tuple = F::tuple(key);
    if !is_site(tuple.context()) || meta.origin != Origin::Received {
        return plan;
    }
    let mac = frame.get(6..12);
    match view::<F>(snapshot, &plan, tuple) {
        Some(view) if mac.and_then(|mac| mac.try_into().ok()).map(word_of) != Some(view.mac) => {
            FlowDecision::Drop(Own::TerminalForged.into())
        }
        _ => plan,
    }
}

fn view<F: Family>(snapshot: &Snapshot, plan: &FlowDecision<F>, tuple: &F::Tuple) -> Option<View> {
    let FlowDecision::Session(translation) = plan else {
        return None;
    };
    let terminal = translation.hops[1].as_terminal()?;
    let table = &snapshot.sites.as_deref()?.table;
    table.view(terminal, tuple.context(), to_v4::<F>(tuple.source()))
}

/// Whose terminal's a session is.
#[derive(Clone, Copy, Debug)]
pub enum SiteOwner {
    /// No site's.
    Nobodys,
    /// A site's: the terminal as it is now, and whether the packet comes from it. No terminal where its lease has gone, or the site
    /// has another public address than the session was given.
    Sites(Option<View>, bool),
}

/// Whose terminal's a session is, by the key of a packet of a direction.
#[inline(always)]
pub fn site_owner<F: Family>(table: &Sites, session: &F::Session, direction: Direction, key: &F::Tuple) -> SiteOwner {
    let other = match direction {
        Direction::Forward => session.reverse(),
        Direction::Reverse => session.forward(),
    };
    // Packets to the terminal go the way of what comes from outside.
    let (upstream, own, answer, hop) = if is_site(key.context()) {
        (true, key, other, session.adjacency(direction.opposite()))
    } else if is_site(other.context()) {
        (false, other, key, session.adjacency(direction))
    } else {
        return SiteOwner::Nobodys;
    };
    let view = hop
        .terminal_bits()
        .and_then(|terminal| table.view(terminal, own.context(), to_v4::<F>(own.source())))
        .filter(|view| is_pooled(own.context()) || view.public == to_v4::<F>(answer.destination()));
    SiteOwner::Sites(view, upstream)
}

/// A session's lease has gone: the private one of its terminal, or the public one of its site. It ends; what comes from the
/// terminal may open another, what comes for it is dropped.
#[cold]
pub fn lease_lost<F: Family>(
    slot: BufferIndex,
    index: RecordIndex,
    upstream: bool,
    lists: &mut Lists,
    meta: &Meta,
    ctx: &mut NodeContext<'_, '_>,
) {
    let tools = ctx.tools();
    if let Some(shard) = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_mut) {
        end::<F>(shard, index, &tools);
        ctx.counters.sessions_lost_lease.add(1);
    }
    match upstream {
        true => put(lists.session_lookup.of::<F>(), slot),
        false => lists.drop_packet(slot, Own::SiteAddressLost),
    }
}

/// Whether a frame that came for a site's session is for the site: by its virtual MAC, or for the interface.
#[inline(always)]
pub fn is_for(view: &View, frame: &[u8], meta: &Meta, exit: &OutputContext<'_>) -> bool {
    let destination = frame.first_chunk::<6>();
    let word = frame.first_chunk().map(|head| u64::from_le_bytes(*head));
    match word {
        Some(word) if (word ^ view.virtual_mac) << 16 == 0 => true,
        // Who knows the address by an earlier answer of ARP, and packets that turn back at it.
        _ => {
            let own = exit.snapshot.interface(meta.interface).map(|interface| &interface.mac);
            destination == own || meta.origin != Origin::Received
        }
    }
}

/// Send a translated packet of a site's session, or have it cut.
#[inline(always)]
pub fn send(
    way: &mut Adjacency,
    (view, upstream): (&View, bool),
    cut: bool,
    slot: BufferIndex,
    packet: &mut Packet<'_>,
    meta: &mut Meta,
    lists: &mut Lists,
) {
    if !way.relabel_as(packet, meta.layers.tags, view, upstream, cut) {
        lists.drop_packet(slot, Own::NoBuffer);
    } else if cut {
        fragment_site(slot, way.hop(), packet, meta, lists);
    } else {
        leave(slot, way.out(), meta, way.hop(), lists);
    }
}

/// Have a packet cut whose link header is written: its pieces leave with that as they are.
#[cold]
fn fragment_site(slot: BufferIndex, hop: AdjacencyIndex, packet: &Packet<'_>, meta: &mut Meta, lists: &mut Lists) {
    match layers::parse(packet.bytes()) {
        Ok(layers) => {
            meta.layers = layers;
            lists.fragment(slot, AdjacencyIndex::bridge(hop.interface() as u16));
        }
        Err(fault) => lists.drop_packet(slot, fault),
    }
}

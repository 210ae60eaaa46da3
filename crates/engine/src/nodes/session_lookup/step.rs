//! Translates, tracks and sends a packet.

use core::hint::select_unpredictable;

use sluice_nat::TimeoutClass;
use sluice_table::flow::RecordIndex;
use sluice_wire::layers::{Flags, Layers};
use sluice_wire::{Direction, Packet};

use crate::features::context::{NodeContext, OutputContext};
use crate::features::hairpinning::hairpin;
use crate::features::mss;
use crate::features::sites;
use crate::features::translation::{self, reschedule, shares_address, track_further, validated};
use crate::nodes::dont_fragment;
use crate::nodes::output::{Adjacency, AdjacencyCache, send_by_parts};
use crate::nodes::{bridge, host, punt, subscriber};
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::Lists;
use crate::packet::reason::EngineReason;
use crate::packet::reason::Reason;
use crate::session::family::{Family, Session, Tracked};

use super::lookups::Lookups;
use super::usable::usable_session;

/// Processes one packet. Returns whether the packet belongs to a session.
#[inline(always)]
pub(super) fn step<F: Family, const SITES: bool, const SPREAD: bool>(
    place: usize,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    exit: &OutputContext<'_>,
    work: &Lookups<F>,
    adjacencies: &mut AdjacencyCache,
) -> bool {
    let slot = work.slots[place];
    let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
    let layers = &meta.layers;
    let packet = &mut batch.packets[slot as usize];
    let Some(shard) = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_mut) else {
        lists.drop_packet(slot, EngineReason::Forgotten);
        return false;
    };
    let parsed = (slot, &mut *packet, &*meta);
    let Some(found) = usable_session::<F, SPREAD>(shard, parsed, (place, work), lists, exit, &mut ctx.revisions) else {
        return false;
    };
    let (session, index, direction) = (found.session, found.index, found.direction);
    if found.own {
        host::answer::<F>(slot, (index, direction), batch, lists, ctx, adjacencies);
        return true;
    }
    let hop = session.adjacency(direction);
    let mut terminal = None;
    if SITES {
        let (key, arrival) = (&work.keys[place], (meta.interface, meta.origin));
        terminal = match sites::terminal::<F>(session, direction, key, arrival, packet.bytes(), exit) {
            Ok(terminal) => terminal,
            Err(fault) => {
                let meta = *meta;
                sites::refuse::<F>(fault, slot, index, &meta, lists, ctx);
                return true;
            }
        };
    }
    // These checks are made before the packet is changed, because a packet that fails a check is answered or parked as
    // it was received.
    let next = if SITES { hop.without_terminal() } else { hop };
    let Some(adjacency) = adjacencies.of(next, exit) else {
        return send_otherwise::<F>(slot, (index, direction), hop, batch, lists, ctx);
    };
    let length = layers.end.saturating_sub(layers.l3);
    let cut = length > adjacency.mtu;
    if let Some((error, reason)) = unforwardable::<F>(packet, layers, cut.then_some(adjacency.mtu)) {
        lists.icmp_error(slot, error, reason);
        return true;
    }
    let is_ready = !cut && terminal.is_none();
    let known = (&mut *session, direction, &work.keys[place]);
    let translated = match translate::<F>((slot, packet, meta), known, (adjacency, is_ready), lists, exit) {
        Ok(translated) => translated,
        Err(reason) => {
            lists.drop_packet(slot, reason);
            return true;
        }
    };
    if let Some(rest) = track::<F>(&translated, (packet, meta), (session, direction), (hop, length), exit) {
        if rest.numbers {
            let datagram = meta.layers.datagram_mut(packet.bytes_mut());
            shard.numbers.number(datagram, meta.identification, ctx.hasher, ctx.now);
        }
        if let Some(class) = rest.class {
            reschedule::<F>(shard, index, class, ctx.snapshot, ctx.now);
        }
    }
    if let Some((view, upstream)) = terminal {
        subscriber::send(adjacency, (&view, upstream), cut, slot, packet, meta, lists);
    } else if cut {
        lists.fragment(slot, hop);
    } else if !translated.is_sent {
        send_by_parts(adjacency, slot, packet, meta, lists, exit);
    }
    true
}

/// Sends a packet whose adjacency is not a resolved next hop. Returns whether the packet used its session.
#[inline(always)]
fn send_otherwise<F: Family>(
    slot: BufferIndex,
    (index, direction): (RecordIndex, Direction),
    hop: AdjacencyIndex,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
) -> bool {
    if hop.is_bridge() {
        bridge::forward_session::<F>(slot, (index, direction), batch, lists, ctx);
    } else if hop == AdjacencyIndex::HAIRPIN {
        hairpin::<F>(slot, index, direction, batch, lists, ctx);
    } else if hop == AdjacencyIndex::LOCAL {
        punt::deliver::<F>(slot, index, direction, batch, lists, ctx);
    } else if hop == AdjacencyIndex::UNRESOLVED && !batch.meta(slot).layers.flags.has(Flags::ICMP_ERROR) {
        put(lists.revalidate.of::<F>(), slot);
        return false;
    } else {
        lists.wait_for_neighbour(slot, ctx.forwarding.unresolved(hop));
    }
    true
}

/// The ICMP error for a packet that can't be forwarded, and the reason. `exceeded` is the MTU of the next hop if the packet is
/// longer.
#[inline(always)]
fn unforwardable<F: Family>(
    packet: &Packet<'_>,
    layers: &Layers,
    exceeded: Option<u16>,
) -> Option<(IcmpError, sluice_route::Reason)> {
    if layers.ttl <= 1 {
        return Some((IcmpError::TimeExceeded, sluice_route::Reason::TtlExceeded));
    }
    let mtu = exceeded.filter(|_| F::IS_V6 || dont_fragment(packet.bytes(), layers))?;
    Some((IcmpError::TooBig(mtu), sluice_route::Reason::TooBig))
}

/// A translated packet.
struct Translated {
    tracked: Tracked,
    /// Whether the packet is already on the list of its port.
    is_sent: bool,
}

/// Translates a packet. If the packet is ready, and its adjacency needs no more than a link header, the packet is also sent.
#[inline(always)]
fn translate<F: Family>(
    (slot, packet, meta): (BufferIndex, &mut Packet<'_>, &mut Meta),
    (session, direction, key): (&mut F::Session, Direction, &F::Key),
    (adjacency, is_ready): (&mut Adjacency, bool),
    lists: &mut Lists,
    exit: &OutputContext<'_>,
) -> Result<Translated, Reason> {
    let bytes = packet.len();
    let (tracked, link) = match F::plain(packet.bytes_mut(), &meta.layers, session, direction) {
        Some((tracked, link)) => (tracked, link),
        None => {
            validated::<F>(exit, meta, packet.bytes(), key)?;
            let tracked = translation::translate::<F>(packet.bytes_mut(), &meta.layers, session, direction, 1)?;
            (tracked, packet.bytes_mut())
        }
    };
    Ok(Translated {
        tracked,
        is_sent: is_ready && adjacency.take(link, bytes, slot, meta, lists),
    })
}

/// The changes of a shard that a packet requires.
struct ShardChanges {
    /// The packet needs an IP ID of the shard.
    numbers: bool,
    /// The new timeout of the session.
    class: Option<TimeoutClass>,
}

/// Counts a packet, and updates the session's state.
#[inline(always)]
fn track<F: Family>(
    translated: &Translated,
    (packet, meta): (&mut Packet<'_>, &Meta),
    (session, direction): (&mut F::Session, Direction),
    (hop, length): (AdjacencyIndex, u16),
    exit: &OutputContext<'_>,
) -> Option<ShardChanges> {
    let refreshes = session.refreshes(direction);
    let track = session.track_mut();
    track.count(direction, length);
    if matches!(translated.tracked, Tracked::Known) {
        track.last_seen = select_unpredictable(refreshes, exit.now.stamp(), track.last_seen);
        return None;
    }
    if mss::has_mss(&meta.layers) {
        let interfaces = [meta.interface, hop.interface() as u16];
        mss::clamp::<F>(packet, &meta.layers, interfaces, exit.snapshot);
    }
    Some(ShardChanges {
        numbers: !F::IS_V6 && shares_address::<F>(session, direction, exit.snapshot),
        class: track_further::<F>(translated.tracked, session, direction, exit.now),
    })
}

//! Hairpinning of packets of existing sessions: from one inside host to the outside address of another inside host (RFC
//! 4787, REQ-9).

use sluice_nat::Tuple;
use sluice_table::flow::{Record, RecordIndex};
use sluice_wire::Direction;
use sluice_wire::layers;

use crate::features::context::NodeContext;
use crate::features::translation::{reschedule, shares_address, track_further, translate, validated};
use crate::packet::batch::{Batch, Origin, put};
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::Lists;
use crate::packet::reason::EngineReason;
use crate::session::family::{Family, Session, Tracked};

/// Hairpins a packet from one inside host to the outside address of another inside host (RFC 4787, REQ-9). Translates
/// the packet's source, and then processes the packet like one received from outside. The TTL of the packet is
/// decremented only when the packet leaves.
#[cold]
pub fn hairpin<F: Family>(
    slot: BufferIndex,
    index: RecordIndex,
    direction: Direction,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
) {
    let meta = &mut batch.meta[slot as usize % BURST_BUFFERS];
    let packet = &mut batch.packets[slot as usize];
    let layers = meta.layers;
    if meta.origin == Origin::Hairpinned {
        return lists.drop_packet(slot, EngineReason::Loop);
    }
    if layers.ttl <= 1 {
        return lists.icmp_error(slot, IcmpError::TimeExceeded, sluice_route::Reason::TtlExceeded);
    }
    let exit = ctx.exit();
    let shard = ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_mut);
    let Some((shard, session)) = shard.and_then(|shard| {
        let session = *F::table_ref(shard).get(index)?;
        Some((shard, session))
    }) else {
        return lists.drop_packet(slot, EngineReason::Forgotten);
    };
    if let Err(reason) = validated::<F>(&exit, meta, packet.bytes(), &session.key(direction)) {
        return lists.drop_packet(slot, reason);
    }
    let tracked = match translate::<F>(packet.bytes_mut(), &layers, &session, direction, 0) {
        Ok(tracked) => tracked,
        Err(reason) => return lists.drop_packet(slot, reason),
    };
    let refreshes = session.refreshes(direction);
    let Some(session) = F::table(shard).get_mut(index) else {
        return;
    };
    let track = session.track_mut();
    track.count(direction, layers.end.saturating_sub(layers.l3));
    if !matches!(tracked, Tracked::Nothing) && refreshes {
        track.last_seen = ctx.now.stamp();
    }
    let as_sent = match direction {
        Direction::Forward => session.reverse(),
        Direction::Reverse => session.forward(),
    };
    let shares = !F::IS_V6 && shares_address::<F>(session, direction, ctx.snapshot);
    if let Some(class) = track_further::<F>(tracked, session, direction, ctx.now) {
        reschedule::<F>(shard, index, class, ctx.snapshot, ctx.now);
    }
    if shares {
        let datagram = layers.datagram_mut(packet.bytes_mut());
        shard.numbers.number(datagram, meta.identification, ctx.hasher, ctx.now);
    }
    let Ok(mut layers) = layers::parse(packet.bytes()) else {
        return lists.drop_packet(slot, EngineReason::Forgotten);
    };
    // A later fragment contains no ports, so it gets the ports of the datagram's first fragment.
    (layers.source_port, layers.destination_port) = (as_sent.destination_port(), as_sent.source_port());
    meta.layers = layers;
    meta.origin = Origin::Hairpinned;
    // The packet now belongs to another session, so it may have to be identified again.
    lists.identified &= !(1 << (slot as usize % BURST_BUFFERS));
    put(lists.session_lookup.of::<F>(), slot);
}

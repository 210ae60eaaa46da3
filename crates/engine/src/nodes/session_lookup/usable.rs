//! Whether a packet may use the session that was found for it.

use sluice_nat::Resources;
use sluice_table::flow::RecordIndex;
use sluice_wire::layers::Flags;
use sluice_wire::{Direction, Packet};

use crate::features::context::{OutputContext, Revalidations};
use crate::features::creation::is_first_segment;
use crate::features::inspection::divert;
use crate::features::revalidation::{is_carried_over, is_confirmed};
use crate::features::source_validation;
use crate::packet::batch::{Meta, put};
use crate::packet::io::BufferIndex;
use crate::packet::lists::Lists;
use crate::session::family::{Family, Session};
use crate::session::shard::Shard;

use super::lookups::Lookups;

/// The session of a packet.
pub(super) struct Found<'s, F: Family> {
    pub(super) session: &'s mut F::Session,
    pub(super) index: RecordIndex,
    pub(super) direction: Direction,
    /// Whether the packet is a reply from the host stack of the gateway.
    pub(super) own: bool,
}

/// The session of a packet. The result is `Some` only if the packet may use the session without a new decision and no
/// other node must process the packet first. Otherwise the packet is put on the list of another node, or dropped.
#[inline(always)]
pub(super) fn usable_session<'s, F: Family, const SPREAD: bool>(
    shard: &'s mut Shard<'_>,
    (slot, packet, meta): (BufferIndex, &mut Packet<'_>, &Meta),
    (place, work): (usize, &Lookups<F>),
    lists: &mut Lists,
    exit: &OutputContext<'_>,
    revisions: &mut Revalidations,
) -> Option<Found<'s, F>> {
    let layers = &meta.layers;
    let key = &work.keys[place];
    let Some((index, direction)) = F::table_ref(shard).confirm(work.hashes[place], work.candidates[place], key) else {
        put(lists.slow_path.of::<F>(), slot);
        return None;
    };
    let session = F::table(shard).get_mut(index)?;
    let mut own = false;
    if session.bound_interface(direction) != meta.interface {
        if let Err(reason) = source_validation::rebind::<F>(exit, meta, &F::tuple(key), session, direction) {
            lists.drop_packet(slot, reason);
            return None;
        }
        own = SPREAD && meta.is_from_gateway();
    }
    let is_stale = session.generation() != exit.snapshot.generation;
    if is_stale
        && !layers.flags.has(Flags::ICMP_ERROR)
        && !is_current::<F>(session, (meta.shard, index), exit, revisions)
    {
        put(lists.revalidate.of::<F>(), slot);
        return None;
    }
    if is_first_segment(layers) && session.track().tracking.has_ended() && !may_reopen::<F>(session, direction) {
        // The packet takes the slow path as the first packet of a flow, and its new session replaces this session. The
        // packet waits until all nodes of this burst have processed the packets of the replaced session.
        let waits = session.diverts() && needs_session_pass::<F>(lists, index);
        put(
            if waits {
                lists.session_lookup.of::<F>()
            } else {
                lists.slow_path.of::<F>()
            },
            slot,
        );
        return None;
    }
    if session.diverts()
        && divert::<F>(
            slot,
            layers,
            (index, direction),
            session,
            lists,
            (exit.now, exit.counters),
            (packet, exit.snapshot.code_points.as_deref(), meta.shard),
        )
    {
        return None;
    }
    Some(Found {
        session,
        index,
        direction,
        own,
    })
}

/// Whether a session of an older snapshot may be used without a new decision.
#[inline(always)]
fn is_current<F: Family>(
    session: &mut F::Session,
    (shard, index): (u16, RecordIndex),
    exit: &OutputContext<'_>,
    revisions: &mut Revalidations,
) -> bool {
    let generation = session.generation();
    if is_carried_over::<F>(session, exit.snapshot) {
        return true;
    }
    if revisions.admit(shard, index, generation) {
        if !is_confirmed::<F>(session, exit.snapshot, exit.forwarding) {
            return false;
        }
        session.set_generation(exit.snapshot.generation);
        exit.counters.sessions_revalidated.add(1);
    }
    true
}

/// Whether the remote endpoint may reopen a closed connection. It may if the session has its own port, because no other
/// remote endpoint or session uses that port.
fn may_reopen<F: Family>(session: &F::Session, direction: Direction) -> bool {
    direction == Direction::Reverse && session.nat().resources().has(Resources::PORT)
}

/// Whether packets of a session wait for inspection or identification in this burst. The result may be a false positive
/// if such packets belong to a session that has the same index in another shard.
fn needs_session_pass<F: Family>(lists: &mut Lists, index: RecordIndex) -> bool {
    let is_of = |(_, of, _): &(BufferIndex, RecordIndex, Direction)| *of == index;
    lists.inspect.of::<F>().iter().any(is_of) || lists.identify.of::<F>().iter().any(is_of)
}

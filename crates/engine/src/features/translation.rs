//! Translation of packets of known sessions, and update of the sessions' state.

use sluice_nat::tracking::Segment;
use sluice_nat::{TimeoutClass, Tuple};
use sluice_table::flow::RecordIndex;
use sluice_wire::Direction;
use sluice_wire::ipv4::protocol::TCP;
use sluice_wire::layers::{Flags, Fragment, Layers};

use crate::features::context::OutputContext;
use crate::features::session_end::schedule_of;
use crate::features::source_validation;
use crate::packet::batch::Meta;
use crate::packet::reason::Reason;
use crate::packet::time::Now;
use crate::session::family::{Family, Session, Tracked};
use crate::session::shard::Shard;
use crate::snapshot::Snapshot;

/// Validates the source of an ICMP error. Any router on the path may be the source.
#[inline(always)]
pub fn validated<F: Family>(exit: &OutputContext<'_>, meta: &Meta, frame: &[u8], key: &F::Key) -> Result<(), Reason> {
    match meta.layers.flags.has(Flags::ICMP_ERROR) {
        true => {
            source_validation::validate::<F>(exit, meta, F::addresses(&meta.layers, frame).0, F::tuple(key).context())
        }
        false => Ok(()),
    }
}

/// Translates a packet that the fast path for unfragmented TCP and UDP can't translate.
#[inline(never)]
pub fn translate<F: Family>(
    frame: &mut [u8],
    layers: &Layers,
    session: &F::Session,
    direction: Direction,
    hops: u8,
) -> Result<Tracked, Reason> {
    if layers.flags.has(Flags(Flags::ICMP_ERROR.0 | Flags::ICMP_QUERY.0)) {
        translate_icmp::<F>(frame, layers, session, direction, hops)?;
    } else if !F::rewrite(frame, layers, session, direction, hops) {
        return Err(sluice_nat::Reason::Truncated.into());
    }
    Ok(read_segment(frame, layers, session.protocol()))
}

/// Reads the fields that tracking needs, for packets that the fast path for unfragmented TCP and UDP can't process.
pub fn read_segment(frame: &[u8], layers: &Layers, protocol: u8) -> Tracked {
    // An ICMP error neither refreshes nor ends a session (RFC 5508, REQ-6; RFC 7857, section 7.1).
    if layers.flags.has(Flags::ICMP_ERROR) || layers.fragment == Fragment::Later {
        return Tracked::Nothing;
    }
    if protocol != TCP {
        return Tracked::Datagram;
    }
    Segment::read(layers.payload(frame)).map_or(Tracked::Nothing, Tracked::Segment)
}

/// Updates the state of a session from a packet that is not translated.
pub fn track<F: Family>(
    tracked: Tracked,
    shard: &mut Shard<'_>,
    index: RecordIndex,
    direction: Direction,
    snapshot: &Snapshot,
    now: Now,
) {
    let Some(session) = F::table(shard).get_mut(index) else {
        return;
    };
    if !matches!(tracked, Tracked::Nothing) && session.refreshes(direction) {
        session.track_mut().last_seen = now.stamp();
    }
    if let Some(class) = track_further::<F>(tracked, session, direction, now) {
        reschedule::<F>(shard, index, class, snapshot, now);
    }
}

/// Updates a session's state and timer class. Returns the class if the timeout changes.
#[inline(never)]
pub fn track_further<F: Family>(
    tracked: Tracked,
    session: &mut F::Session,
    direction: Direction,
    now: Now,
) -> Option<TimeoutClass> {
    let refreshes = session.refreshes(direction);
    let track = session.track_mut();
    let class = match tracked {
        Tracked::Known | Tracked::Nothing => return None,
        Tracked::Datagram => track.tracking.track_datagram(direction),
        Tracked::Segment(segment) => track.tracking.track(direction, &segment),
    };
    if class == TimeoutClass::UNCHANGED {
        return None;
    }
    if refreshes {
        track.last_seen = now.stamp();
    }
    (class != track.tracking.timer()).then_some(class)
}

/// Whether packets of a direction leave with a source address that several hosts share. The IP IDs of such packets must
/// not collide. The outside address of a static one-to-one translation is not shared.
pub fn shares_address<F: Family>(session: &F::Session, direction: Direction, snapshot: &Snapshot) -> bool {
    let nat = session.nat();
    let pool = nat.pool().and_then(|pool| snapshot.nat::<F>().pools.get(pool));
    nat.translates() && nat.outbound(direction) && pool.map_or(!nat.translates_source(), |pool| pool.renumbers())
}

/// Restarts the timer of a session whose timeout has changed.
#[cold]
pub fn reschedule<F: Family>(
    shard: &mut Shard<'_>,
    index: RecordIndex,
    class: TimeoutClass,
    snapshot: &Snapshot,
    now: Now,
) {
    let (wheel, table) = F::wheel(shard);
    let Some(session) = table.get_mut(index) else { return };
    session.track_mut().last_seen = now.stamp();
    session.track_mut().tracking.set_timer(class);
    let seconds = schedule_of::<F>(snapshot, session).seconds(class);
    wheel.schedule(table, index, now.due(seconds));
}

/// Translates ICMP: queries by their identifier, errors together with the packet that they quote.
#[cold]
fn translate_icmp<F: Family>(
    frame: &mut [u8],
    layers: &Layers,
    session: &F::Session,
    direction: Direction,
    hops: u8,
) -> Result<(), Reason> {
    if layers.flags.has(Flags::ICMP_ERROR) {
        return F::rewrite_error(frame, layers, session, direction, hops);
    }
    match F::rewrite(frame, layers, session, direction, hops) {
        true => Ok(()),
        false => Err(sluice_nat::Reason::Truncated.into()),
    }
}

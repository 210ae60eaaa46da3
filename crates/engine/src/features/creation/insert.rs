//! The fifth step of session creation: writes the records of new sessions and starts their timers.

use arrayvec::ArrayVec;
use sluice_filter::{SessionMarking, TrafficClass};
use sluice_nat::bindings::PortRequest;
use sluice_nat::{PortClass, TimeoutClass, Tracking, Tuple, decision};
use sluice_table::flow::{InsertError, RecordIndex};
use sluice_table::hash::Hasher;
use sluice_wire::Direction;
use sluice_wire::ipv4::protocol::{TCP, is_icmp};

use super::allocate::is_inspected;
use super::other_port::{fits, insert_with_other_outside_port, insert_with_other_source_port};
use super::{CreationState, FlowDecision, FlowTranslation, NewFlows, Refusal, is_first_segment, replace, shard_of};
use crate::features::context::NodeContext;
use crate::features::inspection::InspectState;
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::BURST_BUFFERS;
use crate::packet::reason::{EngineReason, Reason};
use crate::session::application::Application;
use crate::session::arrival::Arrival;
use crate::session::family::{Family, Session, SessionParts};
use crate::session::shard::Shard;
use crate::snapshot::StartParameters;
use crate::snapshot::forwarding::NeighbourReferences;
use crate::snapshot::marks::of_class;

/// Prefetch distance: the memory of a session is prefetched this number of sessions before the session is processed.
const PREFETCH_DISTANCE: usize = 16;

/// Drop reason if another session already has the reverse key of a new session.
pub(super) const CLASH: Reason = Reason::Engine(EngineReason::SessionClash);

/// Hashes of the keys of new flows.
pub struct KeyHashes {
    /// Hashes of the forward keys, by position of the flow.
    pub(super) forward: [u64; BURST_BUFFERS],
    /// Hashes of the reverse keys of the successfully allocated flows, in order.
    pub(super) reverse: [u64; BURST_BUFFERS],
}

impl Default for KeyHashes {
    fn default() -> Self {
        Self {
            forward: [0; BURST_BUFFERS],
            reverse: [0; BURST_BUFFERS],
        }
    }
}

impl<F: Family> NewFlows<F> {
    /// Writes the records and starts the timers. The index entries of reverse keys are prefetched a few sessions ahead.
    pub fn insert(&mut self, batch: &Batch<'_, '_>, ctx: &mut NodeContext<'_, '_>, hashes: &KeyHashes) {
        let (forward, reverse) = (&hashes.forward, &hashes.reverse);
        let mut places = ArrayVec::<u8, BURST_BUFFERS>::new();
        for (place, flow) in self.flows.iter().enumerate() {
            if matches!(flow.state, CreationState::Made(..)) {
                put(&mut places, place as u8);
            }
        }
        let ask = |ctx: &mut NodeContext<'_, '_>, slot, hash| {
            if let Some(shard) = shard_of(ctx, batch.meta(slot)) {
                F::table_ref(shard).prefetch(hash);
                F::table_ref(shard).prefetch_insert();
            }
        };
        for (&place, &hash) in places.iter().zip(reverse).take(PREFETCH_DISTANCE) {
            ask(ctx, self.flows[place as usize].slot, hash);
        }
        self.publish(batch, ctx);
        let mut holds = NeighbourReferences::default();
        let mut created = 0;
        for (number, (&place, &reverse_hash)) in places.iter().zip(reverse).enumerate() {
            if let (Some(&later), Some(&hash)) = (
                places.get(number + PREFETCH_DISTANCE),
                reverse.get(number + PREFETCH_DISTANCE),
            ) {
                ask(ctx, self.flows[later as usize].slot, hash);
            }
            let (key, hash) = (&self.keys[place as usize], forward[place as usize]);
            let flow = &mut self.flows[place as usize];
            let (CreationState::Made(decided, overlaps), FlowDecision::Session(translation)) =
                (flow.state, &flow.decision)
            else {
                continue;
            };
            let meta = batch.meta(flow.slot);
            if !holds.take(ctx.forwarding, translation.hops) {
                release::<F>(ctx, meta, key, &decided);
                flow.state = CreationState::Stale;
                continue;
            }
            if flow.replaces {
                replace::<F>(ctx, meta, key, hash);
            }
            let (session, seconds) = session::<F>(ctx, meta, key, translation, &decided);
            let due = ctx.now.due(seconds);
            let (hasher, start) = (ctx.hasher, ctx.start);
            let Some(shard) = shard_of(ctx, meta) else { continue };
            let port = (translation, flow.request.as_ref(), overlaps);
            let place = (hash, reverse_hash, due);
            match insert_with_any_port::<F>(shard, session, port, place, meta, (start, hasher)) {
                Ok(index) => {
                    created += 1;
                    if ctx.snapshot.marks.is_some() || ctx.snapshot.code_points.is_some() {
                        let mut own = self.markings.iter().filter(|(slot, _)| *slot == flow.slot);
                        mark::<F>(ctx, meta.shard, index, own.next().map(|(_, marking)| *marking));
                    }
                    if flow.request.is_some() {
                        count_rss_match::<F>(ctx, meta, index);
                    }
                }
                Err(refusal) => {
                    // Both endpoints may send a first packet within one burst, and the other endpoint has already created this session.
                    let known = F::table_ref(shard).find(hash, key).is_some();
                    release::<F>(ctx, meta, key, &decided);
                    holds.release(ctx.forwarding, &translation.hops);
                    flow.state = if known {
                        CreationState::Known
                    } else {
                        CreationState::Refused(refusal)
                    };
                }
            }
        }
        holds.flush(ctx.forwarding);
        ctx.counters.sessions_created.add(created);
        if F::IS_V6 {
            ctx.counters.sessions_v6.add(created);
        }
    }

    /// Adds new mappings to the index, so that packets from outside find the mappings. Queues the translation events of
    /// the batch.
    fn publish(&self, batch: &Batch<'_, '_>, ctx: &mut NodeContext<'_, '_>) {
        let (events, counters) = (ctx.events, ctx.counters);
        let mut last = None;
        for flow in &self.flows {
            let meta = batch.meta(flow.slot);
            if last.replace(meta.shard) != Some(meta.shard)
                && let Some(shard) = shard_of(ctx, meta)
            {
                F::bindings(shard).publish();
                events.collect(&mut F::bindings(shard).events, counters);
            }
        }
    }
}

/// Inserts a session. If another session already has the reverse key, tries other ports, as far as the translation
/// permits it. `overlaps` is true if another session may have the same outside port.
#[inline(always)]
fn insert_with_any_port<F: Family>(
    shard: &mut Shard<'_>,
    session: F::Session,
    (translation, request, overlaps): (&FlowTranslation<F>, Option<&PortRequest<F::Address>>, bool),
    (hash, reverse_hash, due): (u64, u64, u64),
    meta: &Meta,
    (start, hasher): (&StartParameters, &Hasher),
) -> Result<RecordIndex, Refusal> {
    let mut inserted = insert::<F>(shard, session, (hash, reverse_hash), due);
    if let (Err((_, CLASH)), Some(_), None) = (&inserted, translation.pool, request) {
        let taken = sluice_nat::Reason::AddressTaken.into();
        inserted = Err((Some(IcmpError::NoResources), taken));
    }
    if let (Err((_, CLASH)), None) = (&inserted, request) {
        let place = (hash, hasher, due);
        let fits = |answer: &F::Tuple| fits::<F>(start, meta, answer);
        inserted = insert_with_other_source_port::<F>(shard, session, translation, fits, place);
    }
    if let (Err((_, CLASH)), true, Some(request)) = (&inserted, overlaps, request) {
        inserted = insert_with_other_outside_port::<F>(shard, session, translation, request, hash, hasher, due);
    }
    inserted
}

/// Releases the resources of a session that could not be created.
#[cold]
fn release<F: Family>(
    ctx: &mut NodeContext<'_, '_>,
    meta: &Meta,
    key: &F::Key,
    made: &decision::Translation<F::Tuple>,
) {
    let now = ctx.now.nanoseconds;
    ctx.tools().leave(made.decision, F::tuple(key).context());
    if let Some(shard) = shard_of(ctx, meta) {
        F::bindings(shard).release_one(made.decision, F::protocol(key), &F::tuple(key), &made.reverse, now);
    }
}

/// If outside ports are selected so that RSS delivers replies to the session's shard, counts whether this succeeded for
/// a session.
#[inline(always)]
fn count_rss_match<F: Family>(ctx: &mut NodeContext<'_, '_>, meta: &Meta, index: RecordIndex) {
    if ctx.start.steering.rss_ports().is_none() {
        return;
    }
    let shard = shard_of(ctx, meta);
    let Some(answer) = shard.and_then(|shard| Some(F::table_ref(shard).get(index)?.reverse())) else {
        return;
    };
    let class = PortClass::of_layers(&meta.layers);
    if let Some(fits) = ctx.start.steering.fits::<F>(meta.shard, &answer, class) {
        ctx.counters.ports_steered.add(1);
        ctx.counters.missteered_ports.add(u64::from(!fits));
    }
}

/// The record of a new session, and its initial timeout in seconds.
#[inline(always)]
fn session<F: Family>(
    ctx: &NodeContext<'_, '_>,
    meta: &Meta,
    key: &F::Key,
    translation: &FlowTranslation<F>,
    made: &decision::Translation<F::Tuple>,
) -> (F::Session, u32) {
    let protocol = F::protocol(key);
    let pool = made
        .decision
        .pool()
        .and_then(|pool| ctx.snapshot.nat::<F>().pools.get(pool));
    let schedule = pool.map_or(&ctx.snapshot.timeouts, |pool| pool.timeouts());
    let mut session = F::Session::made(SessionParts {
        forward: F::tuple(key),
        reverse: made.reverse,
        nat: made.decision,
        hops: translation.hops,
        generation: ctx.snapshot.generation,
        protocol,
        inbound_refresh: translation.hops[0].is_bridge() || schedule.refreshes(false),
        // Packets that the router's host sends have no input interface.
        interface: if meta.is_from_gateway() {
            Arrival::NONE
        } else {
            meta.interface
        },
    });
    let (mut tracking, mut timer) = (Tracking::default(), TimeoutClass::TCP_TRANSITORY_OPEN);
    if protocol != TCP {
        tracking = Tracking::of_datagrams(protocol, meta.layers.destination_port, schedule);
        timer = tracking.track_datagram(Direction::Forward);
    } else if !is_first_segment(&meta.layers) {
        tracking = Tracking::midstream();
    }
    // Session lookup tracks the first packet, and sets the timer only if a different timeout applies.
    tracking.set_timer(timer);
    if let Some(inspection) = &ctx.snapshot.inspection
        && is_inspected::<F>(inspection, meta, translation)
    {
        session.set_inspect(InspectState::Enabled);
    }
    if ctx
        .snapshot
        .identifies([meta.interface, translation.hops[0].interface() as u16])
        && !is_icmp(protocol)
    {
        session.set_application(Application::Enabled);
        if session.inspect() == InspectState::Nothing {
            session.set_inspect(InspectState::Pending);
        }
    }
    session.track_mut().tracking = tracking;
    session.track_mut().last_seen = ctx.now.stamp();
    (session, schedule.seconds(timer))
}

/// Sets the mark and class that filter rules determined for a new session. Otherwise clears the values of the record's
/// former session.
#[cold]
fn mark<F: Family>(ctx: &mut NodeContext<'_, '_>, shard: u16, index: RecordIndex, marking: Option<SessionMarking>) {
    let (mark, class) = marking.map_or((0, TrafficClass::ANY), |marking| (marking.mark, marking.class));
    if let Some(marks) = &ctx.snapshot.marks {
        marks.set::<F>(shard, index, mark);
    }
    if let Some(code_points) = &ctx.snapshot.code_points {
        code_points.set::<F>(shard, index, of_class(class));
    }
    let shard = ctx.shards.get_mut(usize::from(shard)).and_then(Option::as_deref_mut);
    if !class.is_any()
        && let Some(session) = shard.and_then(|shard| F::table(shard).get_mut(index))
    {
        session.remark();
    }
}

/// Inserts a session into the table of its shard, and starts its timer.
#[inline(always)]
pub(super) fn insert<F: Family>(
    shard: &mut Shard<'_>,
    session: F::Session,
    (forward, reverse): (u64, u64),
    due: u64,
) -> Result<RecordIndex, Refusal> {
    let inserted = F::table(shard).insert(forward, reverse, session);
    let index = inserted.map_err(|refused| match refused {
        InsertError::Full | InsertError::Crowded => (Some(IcmpError::NoResources), EngineReason::SessionsFull.into()),
        InsertError::Duplicate { .. } | InsertError::Mirrored => (None, CLASH),
    })?;
    let (wheel, table) = F::wheel(shard);
    wheel.schedule(table, index, due);
    Ok(index)
}

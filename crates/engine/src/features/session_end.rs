//! The end of sessions: releases the resources that their features have allocated.

use arrayvec::ArrayVec;
use sluice_inspect::Inspector;
use sluice_inspect::inspector::FlowHandle;
use sluice_nat::meter::Meters;
use sluice_nat::sites::outer;
use sluice_nat::timeout::Schedule;
use sluice_nat::{Decision, Resources, Tuple};
use sluice_table::flow::{Record, RecordIndex};
use sluice_table::hash::Hasher;
use sluice_table::wheel::TimerAction;
use sluice_wire::{Context, Direction};

use crate::packet::batch::put;
use crate::packet::counters::WorkerCounters;
use crate::packet::time::{Now, TICKS_PER_SECOND};
use crate::session::application::Application;
use crate::session::events::EventQueue;
use crate::session::family::{Family, Session, V4, V6};
use crate::session::identification::Identification;
use crate::session::inspect_state::InspectState;
use crate::session::records::{EndReason, RecordKind, RecordQueue, RecordSubject};
use crate::session::shard::Shard;
use crate::snapshot::Snapshot;
use crate::snapshot::forwarding::{ForwardingState, NeighbourReleases};

/// Maximum number of sessions that one call of [`Shard::expire`] ends.
const EXPIRIES: usize = 128;
/// Prefetch distance: the memory of a session is prefetched this number of sessions before the session is processed.
const PREFETCH_DISTANCE: usize = 12;

impl Shard<'_> {
    /// Runs the timers: ends at most [`EXPIRIES`] sessions of each family. Returns true if more sessions may be due.
    pub fn expire(&mut self, now: Now, snapshot: &Snapshot, tools: &SessionTools<'_>) -> bool {
        self.bindings4.expire(now.nanoseconds, EXPIRIES);
        self.bindings6.expire(now.nanoseconds, EXPIRIES);
        let v4 = expire::<V4>(self, now, snapshot, tools);
        let v6 = expire::<V6>(self, now, snapshot, tools);
        v4 || v6
    }
}

/// The data that is needed to end a session.
#[derive(Clone, Copy)]
pub struct SessionTools<'c> {
    /// Time of the burst.
    pub now: Now,
    /// Hash function for session keys.
    pub hasher: &'c Hasher,
    /// Forwarding state, for releasing the session's references to neighbours.
    pub forwarding: &'c ForwardingState,
    /// Counters of the worker.
    pub counters: &'c WorkerCounters,
    /// Session counts of the pools and virtual routers that have session limits.
    pub meters: &'c Meters,
    /// Queue of translation events.
    pub events: &'c EventQueue,
    /// Queue of records of inspected flows.
    pub records: &'c RecordQueue,
    /// State of application identification.
    pub recognition: &'c Identification,
}

impl SessionTools<'_> {
    /// Removes a session from the session count of its pool.
    pub fn leave_pool(&self, nat: Decision) {
        if let Some(meter) = nat.pool().and_then(|pool| self.meters.pool(pool)) {
            meter.release();
        }
    }

    /// Removes a session from all counts that include it.
    #[inline(always)]
    pub fn leave(&self, nat: Decision, router: Context) {
        let parked_packets = nat.resources();
        if parked_packets.has(Resources::POOL) {
            self.leave_pool(nat);
        }
        if parked_packets.has(Resources::ROUTER)
            && let Some(meter) = self.meters.router(outer(router))
        {
            meter.release();
        }
    }
}

fn expire<F: Family>(shard: &mut Shard<'_>, now: Now, snapshot: &Snapshot, tools: &SessionTools<'_>) -> bool {
    let mut silent = ArrayVec::<RecordIndex, EXPIRIES>::new();
    let (wheel, table) = F::wheel(shard);
    let progress = wheel.advance(table, now.tick, EXPIRIES as u32, |index, session| {
        let timeout = timeout::<F>(session, snapshot);
        let remaining = timeout.saturating_sub(now.since(session.track().last_seen));
        if remaining > 0 {
            return TimerAction::Rearm(now.due_in(remaining.into(), timeout.into()));
        }
        put(&mut silent, index);
        TimerAction::Expire
    });
    if !silent.is_empty() {
        end_all::<F>(shard, &silent, tools);
    }
    !progress.caught_up
}

/// Ends sessions that the timer wheel has expired. The memory of each session is prefetched a few sessions ahead.
fn end_all<F: Family>(shard: &mut Shard<'_>, silent: &[RecordIndex], tools: &SessionTools<'_>) {
    let mut keys = ArrayVec::<F::Key, { 2 * EXPIRIES }>::new();
    let mut hashes = [0; 2 * EXPIRIES];
    let (table, bindings) = (F::table_ref(shard), F::bindings_ref(shard));
    let mut endings = ArrayVec::<_, EXPIRIES>::new();
    for &index in silent {
        let Some(session) = table.get(index) else { continue };
        put(&mut keys, session.key(Direction::Forward));
        put(&mut keys, session.key(Direction::Reverse));
        let (forward, reverse) = (&session.forward(), &session.reverse());
        put(
            &mut endings,
            bindings.release_request(session.nat(), session.protocol(), forward, reverse),
        );
    }
    for ending in endings.iter_mut().flatten() {
        bindings.prefetch_release(ending);
    }
    for ending in endings.iter_mut().flatten() {
        bindings.prefetch_release_subscriber(ending);
    }
    let hashes = &mut hashes[..keys.len()];
    F::hash(tools.hasher, &keys, hashes);
    let (first, later) = hashes.split_at((2 * PREFETCH_DISTANCE).min(hashes.len()));
    for &hash in first {
        F::table_ref(shard).prefetch(hash);
    }
    let mut later = later.chunks_exact(2);
    let mut returns = NeighbourReleases::default();
    let mut ended = 0;
    for ((&index, hashes), ending) in silent.iter().zip(hashes.chunks_exact(2)).zip(&endings) {
        for &hash in later.next().unwrap_or_default() {
            F::table_ref(shard).prefetch(hash);
        }
        if let Some(session) = F::table(shard).remove(index, hashes[0], hashes[1]) {
            uninspect::<F>(shard, &session, EndReason::Timeout, tools);
            tools.leave(session.nat(), session.forward().context());
            if let Some(ending) = ending {
                F::bindings(shard).release(ending, tools.now.nanoseconds);
            }
            returns.release(
                tools.forwarding,
                [Direction::Forward, Direction::Reverse].map(|d| session.adjacency(d)),
            );
            ended += 1;
        }
    }
    returns.flush(tools.forwarding);
    tools.events.collect(&mut F::bindings(shard).events, tools.counters);
    tools.counters.sessions_ended.add(ended);
    if F::IS_V6 {
        tools.counters.sessions_v6.remove(ended);
    }
}

/// Ends the inspection and the identification of a session that ends, as far as the session is inspected or identified.
#[inline(always)]
pub fn uninspect<F: Family>(shard: &mut Shard<'_>, session: &F::Session, reason: EndReason, tools: &SessionTools<'_>) {
    if session.inspect() != InspectState::Nothing {
        stop_inspection::<F>(shard, session, reason, tools);
    }
}

#[inline(never)]
fn stop_inspection<F: Family>(
    shard: &mut Shard<'_>,
    session: &F::Session,
    reason: EndReason,
    tools: &SessionTools<'_>,
) {
    let mut session = *session;
    if let Application::Pending(place) = session.application() {
        session.set_application(Application::Known(tools.recognition.give_up(place, tools.counters)));
    }
    if let InspectState::Flow(handle) = session.inspect() {
        close::<F>(shard, FlowHandle(handle), &session, reason, tools);
    }
}

fn close<F: Family>(
    shard: &mut Shard<'_>,
    handle: FlowHandle,
    session: &F::Session,
    reason: EndReason,
    tools: &SessionTools<'_>,
) {
    let Some(inspector) = &mut shard.inspector else { return };
    log_end::<F>(inspector, (shard.number, handle), session, reason, tools);
    inspector.remove_flow(handle);
}

/// Logs the unfinished transactions of a flow, and then its end.
pub fn log_end<F: Family>(
    inspector: &mut Inspector<'_>,
    (shard, handle): (u16, FlowHandle),
    session: &F::Session,
    reason: EndReason,
    tools: &SessionTools<'_>,
) {
    let Some(summary) = inspector.summary(handle) else {
        return;
    };
    let SessionTools {
        records,
        counters,
        recognition,
        ..
    } = *tools;
    let about = RecordSubject::flow(tools.now.nanoseconds, shard, &summary, Direction::Forward);
    inspector.log_unfinished(handle, &mut |_, transaction| {
        if let Some(about) = about {
            records.push(about, RecordKind::Transaction(*transaction), counters);
        }
    });
    let application = recognition.known(session.application());
    let ended = (session.protocol(), session.track(), application);
    records.push_end(about, &summary, ended, reason, counters);
}

/// Releases the resources of a session, including its port and mapping.
#[inline(always)]
fn release<F: Family>(shard: &mut Shard<'_>, session: &F::Session, tools: &SessionTools<'_>) {
    uninspect::<F>(shard, session, EndReason::Forced, tools);
    let (forward, reverse, now) = (&session.forward(), &session.reverse(), tools.now.nanoseconds);
    tools.leave(session.nat(), forward.context());
    F::bindings(shard).release_one(session.nat(), session.protocol(), forward, reverse, now);
}

/// Number of ticks until a session ends if no more packets arrive.
pub fn remaining<F: Family>(session: &F::Session, now: Now, snapshot: &Snapshot) -> u32 {
    timeout::<F>(session, snapshot).saturating_sub(now.since(session.track().last_seen))
}

/// A session ends after this number of ticks without packets.
#[inline(always)]
fn timeout<F: Family>(session: &F::Session, snapshot: &Snapshot) -> u32 {
    let seconds = schedule_of::<F>(snapshot, session).seconds(session.track().tracking.timer());
    seconds.saturating_mul(TICKS_PER_SECOND as u32)
}

/// Ends a session: removes it from the timer wheel and the table, and releases its resources.
pub fn end<F: Family>(shard: &mut Shard<'_>, index: RecordIndex, tools: &SessionTools<'_>) -> Option<F::Session> {
    let (wheel, table) = F::wheel(shard);
    let session = table.get(index)?;
    let hash = |direction| F::hash_one(tools.hasher, &session.key(direction));
    let (forward, reverse) = (hash(Direction::Forward), hash(Direction::Reverse));
    let session = wheel.remove(table, index, forward, reverse)?;
    release::<F>(shard, &session, tools);
    tools.events.collect(&mut F::bindings(shard).events, tools.counters);
    for direction in [Direction::Forward, Direction::Reverse] {
        tools.forwarding.release(session.adjacency(direction));
    }
    tools.counters.sessions_ended.add(1);
    if F::IS_V6 {
        tools.counters.sessions_v6.remove(1);
    }
    Some(session)
}

/// The timeouts of a session: the timeouts of its pool, or the default timeouts if it has no pool.
pub fn schedule_of<'p, F: Family>(snapshot: &'p Snapshot, session: &F::Session) -> &'p Schedule {
    let pool = session
        .nat()
        .pool()
        .and_then(|pool| snapshot.nat::<F>().pools.get(pool));
    pool.map_or(&snapshot.timeouts, |pool| pool.timeouts())
}

//! A shard: the sessions, timers and port allocations that one worker at a time writes.

use std::sync::Arc;

use arrayvec::ArrayVec;
use sluice_inspect::Inspector;
use sluice_inspect::inspector::{FlowHandle, RulesetState};
use sluice_nat::meter::Meters;
use sluice_nat::ports::TooSmall;
use sluice_nat::sites::outer;
use sluice_nat::timeout::Schedule;
use sluice_nat::{Bindings, Decision, Resources, Secret, Tuple};
use sluice_table::flow::{FlowTable, Record, RecordIndex, TableSizeError};
use sluice_table::hash::Hasher;
use sluice_table::memory::Line;
use sluice_table::wheel::{TimerAction, Wheel};
use sluice_wire::{Context, Direction};

use crate::features::applications::Identification;
use crate::features::inspection::rule_updates::{GRACE_PERIOD, RuleReceiver};
use crate::packet::batch::put;
use crate::packet::counters::WorkerCounters;
use crate::packet::time::{Now, TICKS_PER_SECOND};
use crate::session::application::Application;
use crate::session::events::EventQueue;
use crate::session::family::{Family, Session, V4, V6};
use crate::session::inspect_state::InspectState;
use crate::session::ip_id::{IpIdCounters, IpIds};
use crate::session::record::{Session4, Session6};
use crate::session::records::{About, EndReason, RecordKind, RecordQueue};
use crate::snapshot::forwarding::{ForwardingState, NeighbourReleases};
use crate::snapshot::{Snapshot, StartParameters};

/// Maximum number of sessions of each family that end in one run of a shard's timers.
const EXPIRIES: usize = 128;
/// Number of sessions ahead at which the memory of an expiring session is prefetched.
const AHEAD: usize = 12;

/// A shard of the session table.
pub struct Shard<'m> {
    /// Number of the shard.
    pub number: u16,
    /// IPv4 sessions.
    pub sessions4: FlowTable<'m, Session4>,
    /// IPv6 sessions.
    pub sessions6: FlowTable<'m, Session6>,
    /// Timers of IPv4 sessions.
    pub wheel4: Wheel,
    /// Timers of IPv6 sessions.
    pub wheel6: Wheel,
    /// Port allocations and mappings of IPv4 pools.
    pub bindings4: Bindings<'m, u32>,
    /// Port allocations and mappings of IPv6 pools.
    pub bindings6: Bindings<'m, [u64; 2]>,
    /// IP IDs of outbound IPv4 datagrams.
    pub numbers: IpIds,
    /// Inspection, if configured.
    pub inspector: Option<Box<Inspector<'m>>>,
    /// Receives new inspection rule sets.
    pub renewals: Option<RuleReceiver<RulesetState>>,
}

/// Why a shard can't be created.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// The shard's memory does not fit its tables.
    #[error(transparent)]
    Table(#[from] TableSizeError),
    /// The shard's memory does not fit its pools.
    #[error(transparent)]
    Ports(#[from] TooSmall),
    /// Out of memory for inspection.
    #[error(transparent)]
    Inspection(#[from] sluice_inspect::inspector::Error),
    /// Out of memory for pattern matching.
    #[error(transparent)]
    Search(#[from] sluice_inspect::bindings::vectorscan::Error),
}

/// Memory of one shard, in lines of 64 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardMemory {
    /// Memory of IPv4 sessions.
    pub sessions4: usize,
    /// Memory of IPv6 sessions.
    pub sessions6: usize,
    /// Memory of allocations of IPv4 pools.
    pub bindings4: usize,
    /// Memory of allocations of IPv6 pools.
    pub bindings6: usize,
    /// Memory of inspected streams.
    pub streams: usize,
}

impl ShardMemory {
    /// The memory that one shard of `start` takes. IPv4 allocations include room for spare addresses.
    pub fn of(start: &StartParameters, snapshot: &Snapshot) -> Self {
        let [four, six] = start.sessions_per_shard();
        Self {
            sessions4: FlowTable::<Session4>::lines_for(four),
            sessions6: FlowTable::<Session6>::lines_for(six),
            bindings4: Bindings::lines(
                &snapshot.leases.four,
                start.spare_addresses,
                &start.capacity::<V4>(snapshot),
            ),
            bindings6: Bindings::lines(&snapshot.leases.six, 0, &start.capacity::<V6>(snapshot)),
            streams: start.inspection.as_ref().map_or(0, |plan| plan.streams.lines()),
        }
    }

    /// Total memory of the shard, in lines.
    pub fn total(&self) -> usize {
        self.sessions4 + self.sessions6 + self.bindings4 + self.bindings6 + self.streams
    }
}

impl<'m> Shard<'m> {
    /// An empty shard in `memory` of [`ShardMemory::total`] lines.
    pub fn new(
        number: u16,
        start: &StartParameters,
        snapshot: &Snapshot,
        now: Now,
        drawn: Arc<IpIdCounters>,
        memory: &'m mut [Line],
    ) -> Result<Self, ShardError> {
        let [four, six] = start.sessions_per_shard();
        let lines = ShardMemory::of(start, snapshot);
        let total = memory.len();
        let (sessions4, rest) = memory.split_at_mut(lines.sessions4.min(total));
        let (sessions6, rest) = rest.split_at_mut(lines.sessions6.min(rest.len()));
        let (bindings4, rest) = rest.split_at_mut(lines.bindings4.min(rest.len()));
        let (bindings6, streams) = rest.split_at_mut(lines.bindings6.min(rest.len()));
        let secret = Secret(start.secret);
        let number32 = u32::from(number);
        let mut shard = Self {
            number,
            sessions4: FlowTable::new(sessions4, four)?,
            sessions6: FlowTable::new(sessions6, six)?,
            wheel4: Wheel::new(now.tick),
            wheel6: Wheel::new(now.tick),
            bindings4: Bindings::new(
                &snapshot.leases.four,
                number32,
                secret,
                &start.capacity::<V4>(snapshot),
                bindings4,
            )?,
            bindings6: Bindings::new(
                &snapshot.leases.six,
                number32,
                secret,
                &start.capacity::<V6>(snapshot),
                bindings6,
            )?,
            numbers: IpIds::new(drawn),
            inspector: None,
            renewals: None,
        };
        if let (Some(plan), Some(inspection)) = (&start.inspection, &snapshot.inspection) {
            let hasher = Hasher::new([start.secret[1], start.secret[0]]);
            let inspector = Inspector::new(plan, inspection.rules.clone(), streams, hasher)?;
            shard.inspector = Some(Box::new(inspector.of_generation(snapshot.inspected)));
        }
        if let Some(fitting) = start.steering.fitting() {
            shard.bindings4.prefer_rss_ports(fitting.clone());
            shard.bindings6.prefer_rss_ports(fitting.clone());
        }
        Ok(shard)
    }

    /// Inspect new flows by the rules of a generation.
    #[inline(always)]
    pub fn follow_rules(&mut self, generation: u32, now: Now) {
        if let Some(inspector) = &mut self.inspector
            && inspector.generation() != generation
        {
            self.renew_rules(generation, now);
        }
    }

    #[cold]
    fn renew_rules(&mut self, generation: u32, now: Now) {
        let (Some(inspector), Some(renewals)) = (&mut self.inspector, &mut self.renewals) else {
            return;
        };
        while let Some(book) = renewals.take(generation) {
            if let Some(over) = inspector.replace_rules(book, now.nanoseconds.saturating_add(GRACE_PERIOD)) {
                renewals.retire(over);
            }
        }
    }

    /// Release earlier rules once no flow uses them, or their grace period is over.
    pub fn retire_rules(&mut self, now: Now) {
        let (Some(inspector), Some(renewals)) = (&mut self.inspector, &mut self.renewals) else {
            return;
        };
        if let Some(over) = inspector.retire_previous(now.nanoseconds) {
            renewals.retire(over);
        }
    }

    /// Number of IPv4 and of IPv6 sessions.
    pub fn sessions(&self) -> [u64; 2] {
        [self.sessions4.len() as u64, self.sessions6.len() as u64]
    }

    /// Run the timers: end at most [`EXPIRIES`] sessions of each family. Returns whether more may have expired.
    pub fn expire(&mut self, now: Now, snapshot: &Snapshot, tools: &SessionTools<'_>) -> bool {
        self.bindings4.expire(now.nanoseconds, EXPIRIES);
        self.bindings6.expire(now.nanoseconds, EXPIRIES);
        let four = expire::<V4>(self, now, snapshot, tools);
        let six = expire::<V6>(self, now, snapshot, tools);
        four || six
    }
}

/// What ending a session requires.
#[derive(Clone, Copy)]
pub struct SessionTools<'c> {
    /// The present time.
    pub now: Now,
    /// Hash function of session keys.
    pub hasher: &'c Hasher,
    /// Forwarding state, in which sessions hold references to neighbours.
    pub paths: &'c ForwardingState,
    /// Counters of the worker.
    pub counters: &'c WorkerCounters,
    /// Session limits of pools and routers.
    pub meters: &'c Meters,
    /// Queue of translation events.
    pub events: &'c EventQueue,
    /// Queue of records of inspected flows.
    pub records: &'c RecordQueue,
    /// Application identification.
    pub recognition: &'c Identification,
}

impl SessionTools<'_> {
    /// Remove a session from the session count of its pool.
    pub fn leave_pool(&self, nat: Decision) {
        if let Some(meter) = nat.pool().and_then(|pool| self.meters.pool(pool)) {
            meter.release();
        }
    }

    /// Remove a session from the session counts of its pool and router.
    #[inline(always)]
    pub fn leave(&self, nat: Decision, router: Context) {
        let holding = nat.resources();
        if holding.has(Resources::POOL) {
            self.leave_pool(nat);
        }
        if holding.has(Resources::ROUTER)
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
        let left = timeout.saturating_sub(now.since(session.track().last_seen));
        if left > 0 {
            return TimerAction::Rearm(now.due_in(left.into(), timeout.into()));
        }
        put(&mut silent, index);
        TimerAction::Expire
    });
    if !silent.is_empty() {
        end_all::<F>(shard, &silent, tools);
    }
    !progress.caught_up
}

/// End sessions that have been removed from the timer wheel. The memory that each end touches is prefetched a few sessions
/// ahead.
fn end_all<F: Family>(shard: &mut Shard<'_>, silent: &[RecordIndex], tools: &SessionTools<'_>) {
    let mut keys = ArrayVec::<F::Key, { 2 * EXPIRIES }>::new();
    let mut hashes = [0; 2 * EXPIRIES];
    let (table, bindings) = (F::table_ref(shard), F::bindings_ref(shard));
    let mut endings = ArrayVec::<_, EXPIRIES>::new();
    for &index in silent {
        let Some(session) = table.get(index) else { continue };
        put(&mut keys, session.key(Direction::Forward));
        put(&mut keys, session.key(Direction::Reverse));
        let (forward, reverse) = (session.forward(), session.reverse());
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
    let (first, later) = hashes.split_at((2 * AHEAD).min(hashes.len()));
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
                tools.paths,
                [Direction::Forward, Direction::Reverse].map(|d| session.adjacency(d)),
            );
            ended += 1;
        }
    }
    returns.flush(tools.paths);
    tools.events.collect(&mut F::bindings(shard).events, tools.counters);
    tools.counters.sessions_ended.add(ended);
    if F::IS_V6 {
        tools.counters.sessions_six.remove(ended);
    }
}

/// End the inspection and identification of a session that ends.
#[inline(always)]
pub fn uninspect<F: Family>(shard: &mut Shard<'_>, session: &F::Session, why: EndReason, tools: &SessionTools<'_>) {
    if session.inspect() != InspectState::Nothing {
        stop_inspection::<F>(shard, session, why, tools);
    }
}

#[inline(never)]
fn stop_inspection<F: Family>(shard: &mut Shard<'_>, session: &F::Session, why: EndReason, tools: &SessionTools<'_>) {
    let mut session = *session;
    if let Application::Sought(place) = session.application() {
        session.set_application(Application::Known(tools.recognition.give_up(place, tools.counters)));
    }
    if let InspectState::Flow(handle) = session.inspect() {
        close::<F>(shard, FlowHandle(handle), &session, why, tools);
    }
}

fn close<F: Family>(
    shard: &mut Shard<'_>,
    handle: FlowHandle,
    session: &F::Session,
    why: EndReason,
    tools: &SessionTools<'_>,
) {
    let Some(inspector) = &mut shard.inspector else { return };
    log_end::<F>(inspector, (shard.number, handle), session, why, tools);
    inspector.remove_flow(handle);
}

/// Log the unfinished transactions of a flow, and then its end.
pub fn log_end<F: Family>(
    inspector: &mut Inspector<'_>,
    (shard, handle): (u16, FlowHandle),
    session: &F::Session,
    why: EndReason,
    tools: &SessionTools<'_>,
) {
    let Some(story) = inspector.summary(handle) else { return };
    let SessionTools {
        records,
        counters,
        recognition,
        ..
    } = *tools;
    let about = About::flow(tools.now.nanoseconds, shard, &story, Direction::Forward);
    inspector.log_unfinished(handle, &mut |_, transaction| {
        if let Some(about) = about {
            records.push(about, RecordKind::Transaction(*transaction), counters);
        }
    });
    let application = recognition.known(session.application());
    let ended = (session.protocol(), session.track(), application);
    records.push_end(about, &story, ended, why, counters);
}

/// Release what a session holds of its pool.
#[inline(always)]
fn release<F: Family>(shard: &mut Shard<'_>, session: &F::Session, tools: &SessionTools<'_>) {
    uninspect::<F>(shard, session, EndReason::Forced, tools);
    let (forward, reverse, now) = (session.forward(), session.reverse(), tools.now.nanoseconds);
    tools.leave(session.nat(), forward.context());
    F::bindings(shard).release_one(session.nat(), session.protocol(), forward, reverse, now);
}

/// Ticks until a session expires if no packet arrives.
pub fn remaining<F: Family>(session: &F::Session, now: Now, snapshot: &Snapshot) -> u32 {
    timeout::<F>(session, snapshot).saturating_sub(now.since(session.track().last_seen))
}

/// Ticks without a packet after which a session expires.
#[inline(always)]
fn timeout<F: Family>(session: &F::Session, snapshot: &Snapshot) -> u32 {
    let seconds = schedule_of::<F>(snapshot, session).seconds(session.track().tracking.timer());
    seconds.saturating_mul(TICKS_PER_SECOND as u32)
}

/// End a session: remove it from the timer wheel and the table, and release everything that it holds.
pub fn end<F: Family>(shard: &mut Shard<'_>, index: RecordIndex, tools: &SessionTools<'_>) -> Option<F::Session> {
    let (wheel, table) = F::wheel(shard);
    let session = table.get(index)?;
    let hash = |direction| F::hash_one(tools.hasher, &session.key(direction));
    let (forward, reverse) = (hash(Direction::Forward), hash(Direction::Reverse));
    let session = wheel.remove(table, index, forward, reverse)?;
    release::<F>(shard, &session, tools);
    tools.events.collect(&mut F::bindings(shard).events, tools.counters);
    for direction in [Direction::Forward, Direction::Reverse] {
        tools.paths.release(session.adjacency(direction));
    }
    tools.counters.sessions_ended.add(1);
    if F::IS_V6 {
        tools.counters.sessions_six.remove(1);
    }
    Some(session)
}

/// The timeouts of a session, which are those of its pool.
pub fn schedule_of<'p, F: Family>(snapshot: &'p Snapshot, session: &F::Session) -> &'p Schedule {
    let pool = session
        .nat()
        .pool()
        .and_then(|pool| snapshot.nat::<F>().pools.get(pool));
    pool.map_or(&snapshot.timeouts, |pool| pool.timeouts())
}

//! The steps of a burst.

use crate::features::context::{NodeContext, Revalidations};
use crate::features::inspection::Inspector;
use crate::nodes::dispatch::{NodeTools, Observer};
use crate::nodes::express::{Buffers, Burst, Lane};
use crate::nodes::session_lookup::LookupScratch;
use crate::nodes::{admit, chain, hand_off, inter_router_link, parse, run_nodes, subscriber};
use crate::packet::batch::{Batch, put};
use crate::packet::counters::{CycleStage, WorkerCounters};
use crate::packet::io::{BURST_SIZE, Packets};
use crate::packet::lists::{Lists, NodeIndex};
use crate::packet::reason::EngineReason;
use crate::packet::time::Now;

use crate::snapshot::shares::{Shares, SideState};
use crate::worker::burst_observer::BurstObserver;
use crate::worker::capture::Tap;

use super::arrivals::Runs;
use super::state::BurstState;
use super::{Carried, Resumed, Source, Worker, arrivals, dispose, host};

/// Maximum number of passes through the nodes in one burst. A packet that creates a session needs two passes.
/// Inspection, identification and an ICMP error each need one additional pass. A hairpinned packet creates two sessions.
const ROUNDS: usize = 8 * inter_router_link::MAX_PASSES as usize;

impl Worker<'_> {
    /// Processes one burst. Returns its number of packets.
    pub(super) fn burst(&mut self, source: Source, now: Now) -> usize {
        let start = (self.cycles)();
        let count = self.take(source);
        if count == 0 && source != Source::Nothing {
            if let Source::Port(port) = source {
                self.receiving.idle(port);
            }
            self.took = 0;
            return 0;
        }
        let receive = match source {
            Source::Workers => CycleStage::TakeOver,
            _ => CycleStage::Receive,
        };
        let received = self.count(receive, start);
        let shed = match source {
            Source::Port(_) => self.observe_next_stage(count),
            _ => 0,
        };
        self.process(source, (count, shed), received, now);
        let end = (self.cycles)();
        if self.parts.has_actions() || self.parts.lists.has_tasks() {
            self.run_tasks(now);
        }
        if !self.parts.lists.hold.is_empty() {
            self.hold(source);
        }
        if !self.parts.lists.queue.is_empty() {
            self.enqueue();
        }
        let over = self.dispose(now);
        self.parts.counters.bursts.add(1);
        self.parts.counters.packets.add(count as u64);
        // The cycles for handing packets to other workers are not included here, because they are counted separately.
        self.took = self
            .count(CycleStage::Transmit, end.wrapping_add(over))
            .wrapping_sub(start);
        count
    }

    /// Takes the packets of a burst from their source. Returns their number.
    fn take(&mut self, source: Source) -> usize {
        match source {
            Source::Port(port) => self.io.receive(port),
            Source::Workers => {
                self.carried.clear();
                let count = self.io.take_over(&mut self.carried);
                self.parts.counters.taken_over.add(count as u64);
                count
            }
            Source::Parking => self.unpark(),
            Source::Held => self.resume_held(),
            Source::Queue => self.unqueue(),
            Source::Hosts => self.take_from_hosts(),
            Source::Service => self.take_from_service(),
            Source::Nothing => 0,
        }
    }

    /// Runs the nodes for `count` received packets. The next stage has no space for the last `shed` of them. `received`
    /// is the value of the cycle counter after receiving.
    fn process(&mut self, source: Source, (count, mut shed): (usize, usize), received: u64, now: Now) {
        let snapshot = self.snapshot.load();
        let mut max = BURST_SIZE;
        if shed > 0 && self.parts.role.parsers.is_empty() && is_shared(snapshot.shares.as_deref(), source) {
            // If the next stage lacks capacity, drop packets of routers that exceed their share, instead of arbitrary
            // packets.
            max = count - std::mem::take(&mut shed);
        }
        self.generations.observe(snapshot.generation, now.nanoseconds);
        let overdue = self.generations.overdue(now.nanoseconds);
        let state = &mut self.parts;
        state.migrating.follow(&mut state.shards, snapshot);
        let BurstState {
            mut ctx,
            lists,
            meta,
            lookups,
            lane,
            inspector,
        } = state.for_burst(snapshot, now);
        ctx.revisions = Revalidations::new(overdue);
        ctx.defers = self.assisting.is_some() && matches!(source, Source::Port(_) | Source::Workers);
        if let (Source::Port(_), Some(work)) = (source, self.assisting.as_deref_mut()) {
            ctx.seen = &mut work.controller.seen;
        }
        let is_observed = self.tracer.is_some() || self.tap.is_some();
        let mut lane = lane.filter(|_| ctx.role.sessions.is_empty() && !ctx.defers && !is_observed);
        self.runs.clear();
        let (mut mark, mut taken) = (received, 0);
        let is_plain = shed == 0 && ctx.role.parsers.is_empty();
        let direct = match (source, &mut lane) {
            (Source::Port(port), Some(lane)) if is_plain => {
                // The express lane comes before the packets are borrowed, because it needs only their heads.
                put(&mut self.runs, (port, 0..count));
                let (buffers, meta) = (Buffers::Io(&mut *self.io), &mut *meta);
                let burst = Burst { buffers, meta, lists };
                (taken, mark) = take_express(lane, burst, &mut ctx, &self.runs, (mark, self.cycles));
                true
            }
            _ => false,
        };
        if taken != 0 && taken == arrivals::slots_of(&self.runs) && lists.is_done() {
            return;
        }
        let mut packets = Packets::new();
        self.io.packets(&mut packets);
        let packets = &mut packets;
        if !direct {
            let queues = (&self.carried, &mut self.resumed, &mut self.free_entries[..]);
            let batch = &mut Batch { packets, meta };
            arrive(source, (count, shed), batch, lists, &mut ctx, (&mut self.runs, queues));
            mark = taken_over(source, received, ctx.counters, self.cycles);
            if let (Source::Workers | Source::Held | Source::Queue, Some(lane)) = (source, lane) {
                let (buffers, meta) = (Buffers::Packets(packets), &mut *meta);
                let burst = Burst { buffers, meta, lists };
                (taken, mark) = take_express(lane, burst, &mut ctx, &self.runs, (mark, self.cycles));
            }
        }
        let mut batch = Batch { packets, meta };
        let (limit, observers) = (
            (&mut self.receiving, max),
            (self.tracer.is_some(), self.tap.as_deref_mut()),
        );
        admit_and_parse(&mut batch, lists, &mut ctx, &self.runs, limit, observers, taken);
        chain::divert_received(&batch, lists, &ctx, arrivals::slots_of(&self.runs) & !taken);
        if !ctx.role.sessions.is_empty() {
            hand_off::both(&batch, lists, &ctx);
        }
        let parsed = (self.cycles)();
        ctx.counters.cycles[CycleStage::Parse as usize].add(parsed.wrapping_sub(mark));
        // Unparked packets and packets from other workers were parsed in an earlier burst or by another worker.
        let begin = if self.runs.is_empty() { "arrive" } else { "parse" };
        let observer = BurstObserver::new(self.tracer.as_deref_mut(), self.tap.as_deref_mut());
        let tools = (lookups, inspector, &mut self.resumed, (parsed, self.cycles));
        run_observed(&mut batch, lists, &mut ctx, tools, (observer, begin));
        lists.sort_sent(taken);
    }
}

/// What the nodes use besides packets: temporary memory of session lookup, inspection, the resumed packets, and the value of the
/// cycle counter with the function that reads it.
type Tools<'t> = (
    &'t mut LookupScratch,
    Option<&'t mut Inspector>,
    &'t mut Resumed,
    (u64, fn() -> u64),
);

/// Translates and sends packets that need nothing unusual in the express lane. `mark` is the value of the cycle counter.
/// Returns the slots of these packets, and the new value of the cycle counter.
#[inline]
fn take_express(
    lane: &mut Lane,
    mut burst: Burst<'_, '_>,
    ctx: &mut NodeContext<'_, '_>,
    runs: &Runs,
    (mut mark, clock): (u64, fn() -> u64),
) -> (u128, u64) {
    let mut all = 0;
    for (port, slots) in runs {
        let taken = lane.run(&mut burst, ctx, *port, slots.clone());
        mark = count_express(lane, taken, ctx, (mark, clock()));
        all |= taken;
    }
    if !burst.lists.is_done() {
        let taken = lane.run_parsed(&mut burst, ctx);
        mark = count_express(lane, taken, ctx, (mark, clock()));
        all |= taken;
    }
    (all, mark)
}

/// Counts the cycles since `mark`, and the packets that the lane has taken. Returns `now`.
#[inline(always)]
fn count_express(lane: &Lane, taken: u128, ctx: &mut NodeContext<'_, '_>, (mark, now): (u64, u64)) -> u64 {
    let cycles = now.wrapping_sub(mark);
    ctx.counters.cycles[lane.stage() as usize].add(cycles);
    if taken != 0
        && let Some(counters) = ctx.counters.nodes.get(NodeIndex::express as usize)
    {
        counters.runs.add(1);
        counters.packets.add(taken.count_ones().into());
        counters.cycles.add(cycles);
    }
    now
}

/// Counts the cycles in which packets from other workers were put on lists. `mark` is the value of the cycle counter before.
/// Returns its new value.
#[inline(always)]
fn taken_over(source: Source, mark: u64, counters: &WorkerCounters, clock: fn() -> u64) -> u64 {
    if !matches!(source, Source::Workers | Source::Held | Source::Queue) {
        return mark;
    }
    let now = clock();
    counters.cycles[CycleStage::TakeOver as usize].add(now.wrapping_sub(mark));
    now
}

/// Whether routers share the capacity of the port from which a burst comes.
fn is_shared(shares: Option<&Shares>, source: Source) -> bool {
    let Source::Port(port) = source else { return false };
    shares
        .and_then(|shares| shares.port(port))
        .is_some_and(|port| port.shared)
}

/// Puts the packets of a burst on lists, according to their source. Packets that are not parsed yet are added to `runs`.
#[inline]
fn arrive(
    source: Source,
    (count, shed): (usize, usize),
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    (runs, (carried, resumed, free_entries)): (&mut Runs, (&Carried, &mut Resumed, &mut [usize])),
) {
    match source {
        Source::Port(port) if ctx.role.parsers.is_empty() => put(runs, (port, shed..count)),
        Source::Port(port) => hand_off::received(batch, lists, ctx, port, shed, free_entries),
        Source::Workers | Source::Held | Source::Queue => arrivals::from_workers(batch, lists, ctx, carried, runs),
        Source::Parking => arrivals::from_parking(batch, lists, ctx, resumed),
        Source::Hosts => host::sent(batch, lists, ctx, count),
        Source::Service => subscriber::sent(batch, lists, ctx, count),
        Source::Nothing => {}
    }
    if let Source::Port(port) = source
        && shed > 0
    {
        hand_off::shed(batch, lists, ctx, port, shed);
    }
}

/// Admits at most `max` packets of each run, and parses them, except those that the express lane has taken. `is_traced` is true if a trace runs, and `tap` is present
/// if a capture runs.
#[inline]
fn admit_and_parse(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    runs: &Runs,
    (receiving, max): (&mut SideState, usize),
    (is_traced, mut tap): (bool, Option<&mut Tap>),
    taken: u128,
) {
    let shares = ctx.snapshot.shares.as_deref();
    for (port, slots) in runs {
        let refused = shares.map_or(0, |shares| {
            let direction = (*port, slots.clone(), max);
            let is_observed = is_traced || tap.is_some();
            admit::admit(batch, lists, ctx, shares, receiving, direction, is_observed)
        });
        match refused | taken {
            0 => parse::parse(batch, lists, ctx, *port, slots.clone()),
            others => parse::parse_admitted(batch, lists, ctx, (*port, slots.clone()), others),
        }
        if let Some(tap) = &mut tap {
            tap.received(batch, slots.clone(), ctx.now);
        }
    }
}

/// Runs the nodes until every packet has left the graph. If there is an observer, it sees all packets first at node `begin`.
#[inline(always)]
fn run_observed<'t>(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    (lookups, inspector, resumed, (mark, cycles)): Tools<'t>,
    (mut observer, begin): (Option<BurstObserver<'t>>, &'static str),
) {
    if let Some(observer) = &mut observer {
        observer.begin(begin, batch, lists, ctx.now);
    }
    let mut tools = NodeTools {
        lookups,
        inspector,
        ready: &mut |waiting| dispose::ready(resumed, waiting),
        observer: observer.as_mut().map(|observer| observer as &mut dyn Observer),
        cycles,
        mark,
    };
    for _ in 0..ROUNDS {
        if lists.is_done() {
            break;
        }
        run_nodes(batch, lists, ctx, &mut tools);
    }
    lists.drop_remaining(EngineReason::Loop);
    if let Some(observer) = &mut observer {
        observer.end(batch, lists, ctx.now);
    }
}

//! The steps of a burst.

use crate::features::context::{NodeContext, Revalidations};
use crate::nodes::dispatch::{NodeTools, Observer};
use crate::nodes::express::Lane;
use crate::nodes::{admit, chain, hand_off, inter_router_link, parse, run_nodes, subscriber};
use crate::packet::batch::{Batch, put};
use crate::packet::counters::CycleStage;
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
        let shares = snapshot.shares.as_deref();
        let mut max = BURST_SIZE;
        if shed > 0 && self.parts.role.parsers.is_empty() && is_shared(shares, source) {
            // If the next stage lacks capacity, drop packets of routers that exceed their share, instead of arbitrary
            // packets.
            max = count - std::mem::take(&mut shed);
        }
        self.generations.observe(snapshot.generation, now.nanoseconds);
        let overdue = self.generations.overdue(now.nanoseconds);
        let state = &mut self.parts;
        state.migrating.follow(&mut state.shards, snapshot);
        let mut allocated = Packets::new();
        self.io.packets(&mut allocated);
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
        let mut batch = Batch {
            packets: &mut allocated,
            meta,
        };
        self.runs.clear();
        let queues = (&self.carried, &mut self.resumed, &mut self.free_entries[..]);
        let into = (&mut self.runs, queues);
        arrive(source, (count, shed), &mut batch, lists, &mut ctx, into);
        let mut mark = received;
        if matches!(source, Source::Workers | Source::Held | Source::Queue) {
            mark = (self.cycles)();
            ctx.counters.cycles[CycleStage::TakeOver as usize].add(mark.wrapping_sub(received));
        }
        let lane = lane.filter(|_| self.tracer.is_none() && self.tap.is_none());
        let (taken, mark) = take_express(lane, &mut batch, lists, &mut ctx, &self.runs, (mark, self.cycles));
        if taken != 0 && taken == arrivals::slots_of(&self.runs) && lists.is_done() {
            return;
        }
        let limit = (&mut self.receiving, max);
        let drop_observed = (self.tracer.is_some(), self.tap.as_deref_mut());
        admit_and_parse(&mut batch, lists, &mut ctx, &self.runs, limit, drop_observed, taken);
        chain::divert_received(&batch, lists, &ctx, arrivals::slots_of(&self.runs) & !taken);
        if !ctx.role.sessions.is_empty() {
            hand_off::both(&batch, lists, &ctx);
        }
        let parsed = (self.cycles)();
        ctx.counters.cycles[CycleStage::Parse as usize].add(parsed.wrapping_sub(mark));
        let mut burst_observer = BurstObserver::new(self.tracer.as_deref_mut(), self.tap.as_deref_mut());
        if let Some(burst_observer) = &mut burst_observer {
            // Unparked packets and packets from other workers were parsed in an earlier burst or by another worker.
            let begin = if self.runs.is_empty() { "arrive" } else { "parse" };
            burst_observer.begin(begin, &batch, lists, now);
        }
        let mut tools = NodeTools {
            lookups,
            inspector,
            ready: &mut |waiting| dispose::ready(&mut self.resumed, waiting),
            observer: burst_observer
                .as_mut()
                .map(|burst_observer| burst_observer as &mut dyn Observer),
            cycles: self.cycles,
            mark: parsed,
        };
        run_rounds(&mut batch, lists, &mut ctx, &mut tools);
        lists.sort_sent(taken);
        if let Some(burst_observer) = &mut burst_observer {
            burst_observer.end(&batch, lists, now);
        }
    }
}

/// Translates and sends packets that need nothing unusual in the express lane, if this worker has one and does all of
/// the work on them itself. `mark` is the value of the cycle counter. Returns the slots of these packets, and the new value of the cycle counter.
#[inline(always)]
fn take_express(
    lane: Option<&mut Lane>,
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    runs: &Runs,
    (mark, clock): (u64, fn() -> u64),
) -> (u128, u64) {
    let is_whole = ctx.role.sessions.is_empty() && ctx.role.senders.is_empty() && !ctx.defers;
    let Some(lane) = lane.filter(|_| is_whole) else {
        return (0, mark);
    };
    let mut taken = 0;
    for (port, slots) in runs {
        taken |= lane.run(batch, lists, ctx, *port, slots.clone());
    }
    let now = clock();
    let cycles = now.wrapping_sub(mark);
    ctx.counters.cycles[CycleStage::Session as usize].add(cycles);
    if taken != 0
        && let Some(counters) = ctx.counters.nodes.get(NodeIndex::express as usize)
    {
        counters.runs.add(1);
        counters.packets.add(taken.count_ones().into());
        counters.cycles.add(cycles);
    }
    (taken, now)
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

/// Runs the nodes until every packet has left the graph.
#[inline(always)]
fn run_rounds(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut NodeContext<'_, '_>, tools: &mut NodeTools<'_>) {
    for _ in 0..ROUNDS {
        if lists.is_done() {
            break;
        }
        run_nodes(batch, lists, ctx, tools);
    }
    lists.drop_remaining(EngineReason::Loop);
}

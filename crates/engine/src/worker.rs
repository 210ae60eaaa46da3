//! A worker: receives bursts, lets the nodes decide, and moves every buffer where its slot was sent.

use std::sync::Arc;

use arrayvec::ArrayVec;
use sluice_nat::{PoolIndex, PortClass};
use sluice_table::hash::Hasher;
use sluice_table::prefix::Quiescence;
use sluice_table::publish::Reader;

use crate::applications::Recognition;
use crate::batch::{Batch, Lists, Meta, put};
use crate::capture::Tap;
use crate::context::{Ctx, Generations, Owner, Revisions, Waiting};
use crate::counters::{Stage, WorkerCounters};
use crate::datagrams::Ready;
use crate::events::EventQueue;
use crate::family::{V4, V6};
use crate::inspection::{Inspecting, Told};
use crate::io::{BATCH, Carried, HAND, Handover, Lent, PortIndex, WorkerIndex};
use crate::leases::Settling;
use crate::nodes::established::{Lookups, established};
use crate::nodes::{
    admit, bridge, complain, cross, decide, forward, fragments, gateway, inspect, neighbour, parse, pass, recognise,
    revise, subscriber, transit,
};
use crate::nodes::{host as sending, punt};
use crate::paths::Paths;
use crate::policy::{Policy, Setup};
use crate::punt::{PuntQueue, Taker};
use crate::reason::{Own, Reason};
use crate::records::RecordQueue;
use crate::request::Desk;
use crate::shard::Shard;
use crate::shares::Side;
use crate::stages::Role;
use crate::time::Now;
use crate::trace::Tracer;
use crate::unsolicited::Syns;

use arrive::Runs;
use assisting::Assisting;
use moving::Moving;
use turns::Turns;

mod ahead;
mod arrive;
mod assisting;
mod bring;
mod chained;
mod dispose;
mod held;
mod host;
mod housekeep;
mod links;
mod make;
mod moving;
mod recognising;
mod scans;
mod sharing;
mod turns;

pub use moving::HELD;

/// Rounds of the nodes in one burst: a packet that opens a session takes two, what looks at it one each, an error another. One
/// that comes back opens two sessions.
const ROUNDS: usize = 8 * cross::MOST_PASSES as usize;

/// Everything that a worker is made of.
pub struct Parts<'m> {
    /// This worker.
    pub own: WorkerIndex,
    /// What is fixed.
    pub setup: Arc<Setup>,
    /// What it leaves to others.
    pub role: Role,
    /// The commits.
    pub policy: Reader<Policy>,
    /// Routes and neighbours.
    pub paths: Paths,
    /// Where this worker marks that it keeps nothing that it read: its number is `own`.
    pub quiescence: Arc<Quiescence>,
    /// The shards that this worker is in charge of.
    pub shards: Vec<Shard<'m>>,
    /// Counters.
    pub counters: Arc<WorkerCounters>,
    /// Its devices.
    pub io: Box<dyn Handover + 'm>,
    /// The ports that it receives from.
    pub receives: Vec<PortIndex>,
    /// What the owner has, if this worker is the owner.
    pub owner: Option<Owner>,
    /// A clock of cycles, for the counters by stage.
    pub cycles: fn() -> u64,
    /// Requests from the control thread.
    pub desk: Desk,
    /// Where events of translation go.
    pub events: EventQueue,
    /// Where records of inspected flows go.
    pub records: RecordQueue,
    /// Where packets for routers' hosts go.
    pub punts: PuntQueue,
    /// What these hosts send, where this worker is the owner.
    pub host: Option<Taker>,
    /// Where what is for who serves subscribers' sites goes.
    pub subscribers: PuntQueue,
    /// What they send, where this worker is the owner.
    pub service: Option<Taker>,
    /// What it finds applications out with.
    pub recognition: Recognition,
    /// What it inspects with, where anything is inspected.
    pub inspecting: Option<Box<Inspecting>>,
}

/// A worker.
pub struct Worker<'m> {
    parts: State<'m>,
    io: Box<dyn Handover + 'm>,
    receives: Vec<PortIndex>,
    quiescence: Arc<Quiescence>,
    policy: Reader<Policy>,
    cycles: fn() -> u64,
    desk: Desk,
    generations: Generations,
    online: bool,
    next_shard: usize,
    /// More sessions of a shard are due than a round ends.
    is_behind: bool,
    /// The last round's shard has this round, too.
    stayed: bool,
    tracer: Option<Box<Tracer>>,
    tap: Option<Box<Tap>>,
    carried: ArrayVec<Carried, BATCH>,
    /// Packets in the hand that nobody has parsed yet.
    runs: Runs,
    /// Room of the rings to the next stage.
    rooms: Vec<usize>,
    resumed: ArrayVec<(Waiting, Resume), HAND>,
    syns: Syns,
    host: Option<Taker>,
    service: Option<Taker>,
    /// Hosts may send something by this worker.
    serves_hosts: bool,
    moving: Moving<'m>,
    /// What it takes over shards from others with, where it has none of its own.
    assisting: Option<Box<Assisting>>,
    /// Packets in the bursts that came full from devices, one after the other: as many at least have waited there.
    behind: u64,
    /// What routers may have of what is received.
    receiving: Side,
    /// What interfaces may have of what is sent.
    sending: Side,
    /// Whose packets are received next.
    turns: Turns,
    /// Cycles that the last burst took; 0 where there was none.
    took: u64,
    /// Held segments that are to be dropped.
    gone: Vec<(Waiting, sluice_inspect::Reason)>,
}

/// What the nodes work with, beside the policy.
struct State<'m> {
    own: WorkerIndex,
    setup: Arc<Setup>,
    role: Role,
    paths: Paths,
    hasher: Hasher,
    shards: Box<[Option<Box<Shard<'m>>>]>,
    counters: Arc<WorkerCounters>,
    owner: Option<Box<Owner>>,
    lists: Box<Lists>,
    meta: Box<[Meta; HAND]>,
    settling: Settling,
    events: EventQueue,
    records: RecordQueue,
    punts: PuntQueue,
    subscribers: PuntQueue,
    look4: Box<Lookups<V4>>,
    look6: Box<Lookups<V6>>,
    recognition: Recognition,
    inspecting: Option<Box<Inspecting>>,
}

/// Why a parked packet comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resume {
    /// What it waited for is there.
    Ready,
    /// It is a fragment that inspection let wait: what it was told of its datagram, and whether that was inspected.
    Fragment(Told, bool),
    /// It came over a virtual link.
    Crossed,
    /// It leaves by a tunnel.
    Tunnelled,
    /// Its neighbour does not answer.
    Failed,
    /// It is a SYN that nobody expected when it came, for this reason.
    Unsolicited(Reason),
}

/// Where the packets of a burst come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Port(PortIndex),
    Workers,
    Parking,
    /// What was held until its shard had come.
    Held,
    /// What waited for its turn.
    Queue,
    /// What hosts send.
    Hosts,
    /// What who serves subscribers' sites sends.
    Service,
    Nothing,
}

impl<'m> Worker<'m> {
    /// A worker of its parts.
    pub fn new(parts: Parts<'m>) -> Self {
        let count = parts.setup.steering.shards().count() as usize;
        let rooms = parts.role.beyond.len();
        let held = parts.inspecting.as_ref().map_or(0, |work| work.holding.most());
        let syns = Syns::new(count, parts.setup.unsolicited_syns as usize);
        let ports = parts.setup.ports;
        let mut shards: Vec<Option<Box<Shard<'m>>>> = Vec::new();
        shards.resize_with(count, || None);
        for shard in parts.shards {
            let place = shard.number as usize;
            shards[place] = Some(Box::new(shard));
        }
        let assisting = Assisting::of(&parts.setup, parts.own);
        let mut receives = parts.receives;
        receives.reserve(ports);
        Self {
            assisting,
            parts: State {
                own: parts.own,
                hasher: Hasher::new(parts.setup.secret),
                lists: Box::new(Lists::new(parts.setup.ports)),
                setup: parts.setup,
                role: parts.role,
                paths: parts.paths,
                shards: shards.into(),
                counters: parts.counters,
                owner: parts.owner.map(Box::new),
                meta: Box::new([Meta::default(); HAND]),
                settling: Settling::default(),
                events: parts.events,
                records: parts.records,
                punts: parts.punts,
                subscribers: parts.subscribers,
                look4: Box::default(),
                look6: Box::default(),
                recognition: parts.recognition,
                inspecting: parts.inspecting,
            },
            io: parts.io,
            receiving: Side::new(ports),
            sending: Side::new(ports),
            turns: Turns::new(ports),
            took: 0,
            receives,
            quiescence: parts.quiescence,
            policy: parts.policy,
            cycles: parts.cycles,
            desk: parts.desk,
            generations: Generations::default(),
            online: false,
            next_shard: 0,
            is_behind: false,
            stayed: false,
            tracer: None,
            tap: None,
            carried: ArrayVec::new(),
            runs: Runs::new(),
            rooms: Vec::with_capacity(rooms),
            resumed: ArrayVec::new(),
            syns,
            host: parts.host,
            service: parts.service,
            serves_hosts: false,
            moving: Moving::default(),
            behind: 0,
            gone: Vec::with_capacity(held),
        }
    }

    /// One round: a burst from each port, as many of what other workers handed over, what has waited, timers, requests.
    /// Returns how many packets there were.
    pub fn round(&mut self, now: Now) -> usize {
        self.wake();
        self.parts.counters.heartbeat.add(1);
        if let Some(assist) = &self.parts.setup.assist {
            assist.begin_round(self.parts.own);
        }
        let mut packets = 0;
        for left in (0..self.receives_at_most()).rev() {
            let (count, is_full) = self.bring(now);
            packets += count;
            if left == 0 || !is_full || !self.has_room_beyond() {
                break;
            }
        }
        if self.assisting.is_some() {
            packets += self.assist(now);
        }
        let start = (self.cycles)();
        self.housekeep(packets, now);
        self.count(Stage::Housekeeping, start);
        packets += self.resume_all(now);
        if self.hosts_sent() {
            packets += self.burst(Source::Hosts, now);
        }
        if self.service_sent() {
            packets += self.burst(Source::Service, now);
        }
        if self.is_moving() {
            packets += self.move_on(now);
        }
        self.deal(now);
        if self.parts.has_actions() || !self.parts.lists.tasks.is_empty() {
            self.burst(Source::Nothing, now);
        }
        self.count_held();
        self.quiescence.pass(self.parts.own as usize);
        if packets == 0 {
            self.parts.counters.idle_rounds.add(1);
        }
        packets
    }

    /// Before sleep: keep nothing that others may want to free.
    pub fn sleep(&mut self) {
        self.policy.offline();
        self.quiescence.offline(self.parts.own as usize);
        self.online = false;
    }

    fn wake(&mut self) {
        if !self.online {
            self.quiescence.online(self.parts.own as usize);
            self.online = true;
        }
    }

    /// Whether something is under way that rounds without packets bring forward: what the control thread asked for, or timers
    /// of more sessions than one round ends.
    pub fn is_answering(&self) -> bool {
        let is_assisting = self.assisting.as_ref().is_some_and(|work| work.is_answering());
        let is_moving = is_assisting || self.is_moving();
        self.desk.is_answering() || self.parts.settling.is_under_way() || is_moving || self.is_behind
    }

    /// Receive nothing more: further rounds let out what is under way, a shard too that nobody will say of that it may go.
    pub fn stop_receiving(&mut self) {
        self.receives.clear();
        self.give_soon();
    }

    /// Ports of an IPv4 pool that are lent, for tests.
    pub fn lent(&self, pool: PoolIndex) -> u32 {
        let shards = self.parts.shards.iter().flatten();
        let used = |shard: &Shard<'_>| PortClass::ALL.map(|class| shard.bindings4.ports().used(pool, class));
        shards.flat_map(|shard| used(shard)).sum()
    }

    /// The devices, to be fed and read by tests and `replay`.
    pub fn io_mut(&mut self) -> &mut (dyn Handover + 'm) {
        &mut *self.io
    }

    fn count(&self, stage: Stage, start: u64) -> u64 {
        let now = (self.cycles)();
        self.parts.counters.cycles[stage as usize].add(now.wrapping_sub(start));
        now
    }

    /// One burst. Returns how many packets it had.
    fn burst(&mut self, source: Source, now: Now) -> usize {
        let start = (self.cycles)();
        let count = match source {
            Source::Port(port) => self.io.receive(port),
            Source::Workers => {
                self.carried.clear();
                let count = self.io.take_over(&mut self.carried);
                self.parts.counters.taken_over.add(count as u64);
                count
            }
            Source::Parking => self.unpark(),
            Source::Held => self.unhold(),
            Source::Queue => self.unqueue(),
            Source::Hosts => self.take_from_hosts(),
            Source::Service => self.take_from_service(),
            Source::Nothing => 0,
        };
        if count == 0 && source != Source::Nothing {
            if let Source::Port(port) = source {
                self.receiving.idle(port);
            }
            self.took = 0;
            return 0;
        }
        let receive = match source {
            Source::Workers => Stage::TakeOver,
            _ => Stage::Receive,
        };
        let received = self.count(receive, start);
        let mut shed = match source {
            Source::Port(_) => self.look_beyond(count),
            _ => 0,
        };
        let policy = self.policy.load();
        let shares = policy.shares.as_deref();
        let mut most = BATCH;
        if let Source::Port(port) = source
            && shed > 0
            && self.parts.role.parsers.is_empty()
            && shares
                .and_then(|shares| shares.port(port))
                .is_some_and(|port| port.shared)
        {
            // What there is no room for is not what comes first, but what is above its share.
            most = count - std::mem::take(&mut shed);
        }
        self.generations.see(policy.generation, now.nanoseconds);
        let overdue = self.generations.overdue(now.nanoseconds);
        let state = &mut self.parts;
        state.settling.follow(&mut state.shards, policy);
        {
            let mut lent = Lent::new();
            self.io.lend(&mut lent);
            let mut batch = Batch {
                packets: &mut lent,
                meta: &mut state.meta,
            };
            let mut ctx = Ctx {
                now,
                own: state.own,
                setup: &state.setup,
                role: &state.role,
                policy,
                paths: &state.paths,
                hasher: &state.hasher,
                shards: &mut state.shards,
                counters: &state.counters,
                events: &state.events,
                records: &state.records,
                punts: &state.punts,
                subscribers: &state.subscribers,
                recognition: &state.recognition,
                owner: state.owner.as_deref_mut(),
                revisions: Revisions::new(overdue),
                defers: self.assisting.is_some() && matches!(source, Source::Port(_) | Source::Workers),
                seen: match (source, self.assisting.as_deref_mut()) {
                    (Source::Port(_), Some(work)) => &mut work.judge.seen,
                    _ => &mut [],
                },
            };
            let lists = &mut *state.lists;
            self.runs.clear();
            let mut mark = received;
            match source {
                Source::Port(port) if ctx.role.parsers.is_empty() => put(&mut self.runs, (port, shed..count)),
                Source::Port(port) => pass::received(&mut batch, lists, &ctx, port, shed, &mut self.rooms),
                Source::Workers | Source::Held | Source::Queue => {
                    arrive::from_workers(&mut batch, lists, &mut ctx, &self.carried, &mut self.runs);
                    mark = (self.cycles)();
                    state.counters.cycles[Stage::TakeOver as usize].add(mark.wrapping_sub(received));
                }
                Source::Parking => arrive::from_parking(&mut batch, lists, &mut ctx, &mut self.resumed),
                Source::Hosts => host::sent(&mut batch, lists, &ctx, count),
                Source::Service => subscriber::sent(&mut batch, lists, &ctx, count),
                Source::Nothing => {}
            }
            if let Source::Port(port) = source
                && shed > 0
            {
                pass::shed(&mut batch, lists, &ctx, port, shed);
            }
            for (port, slots) in &self.runs {
                let refused = shares.map_or(0, |shares| {
                    let what = (*port, slots.clone(), most);
                    let is_watched = self.tracer.is_some() || self.tap.is_some();
                    admit::admit(&mut batch, lists, &ctx, shares, &mut self.receiving, what, is_watched)
                });
                match refused {
                    0 => parse::parse(&mut batch, lists, &mut ctx, *port, slots.clone()),
                    _ => parse::parse_admitted(&mut batch, lists, &mut ctx, (*port, slots.clone()), refused),
                }
                if let Some(tap) = &mut self.tap {
                    tap.received(&batch, slots.clone(), now);
                }
            }
            chained::divert(&batch, lists, &ctx, &self.runs);
            if !ctx.role.sessions.is_empty() {
                pass::both(&batch, lists, &ctx);
            }
            let mut tracer = self.tracer.as_deref_mut();
            if let Some(tracer) = &mut tracer {
                // What waited, or another worker handed over, was parsed before.
                let begin = if self.runs.is_empty() { "arrive" } else { "parse" };
                tracer.begin(begin, &batch, lists, now);
            }
            chained::walk(&mut batch, lists, &mut ctx, &mut tracer);
            let parsed = (self.cycles)();
            state.counters.cycles[Stage::Parse as usize].add(parsed.wrapping_sub(mark));
            let mut mark = parsed;
            for _ in 0..ROUNDS {
                if lists.is_settled() {
                    break;
                }
                let mut ready = |waiting| dispose::ready(&mut self.resumed, waiting);
                mark = nodes(
                    &mut batch,
                    lists,
                    &mut ctx,
                    &mut state.look4,
                    &mut state.look6,
                    state.inspecting.as_deref_mut(),
                    &mut ready,
                    self.cycles,
                    mark,
                    &mut tracer,
                );
                links::links(&mut batch, lists, &mut ctx, &mut self.tap, &mut tracer, now);
            }
            lists.abandon(Own::Loop);
            if let Some(tracer) = tracer {
                tracer.end(&batch, lists);
            }
            if let Some(tap) = &mut self.tap {
                tap.leaving(&batch, lists, 0, now);
            }
        }
        let end = (self.cycles)();
        if self.parts.has_actions() || self.parts.lists.makes() {
            self.make(now);
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
        // What was given away on the way has its own account.
        self.took = self.count(Stage::Transmit, end.wrapping_add(over)).wrapping_sub(start);
        count
    }
}

/// Every node with work, once. Returns the cycle at its end.
#[inline(always)]
#[expect(
    clippy::too_many_arguments,
    reason = "the burst's whole state, split for the borrow checker"
)]
fn nodes(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut Ctx<'_, '_>,
    look4: &mut Lookups<V4>,
    look6: &mut Lookups<V6>,
    inspecting: Option<&mut Inspecting>,
    ready: &mut Ready<'_>,
    cycles: fn() -> u64,
    start: u64,
    tracer: &mut Option<&mut Tracer>,
) -> u64 {
    let mut after = |node, lists: &Lists| {
        if let Some(tracer) = tracer {
            tracer.after(node, lists);
        }
    };
    let policy = ctx.policy;
    let mut mark = start;
    if !lists.bridge.is_empty() {
        bridge::relabel(batch, lists, ctx);
        after("bridge", lists);
    }
    if !lists.fragments.is_empty() {
        fragments::fragments(batch, lists, ctx, ready);
        after("fragments", lists);
    }
    if !lists.lookup4.is_empty() {
        established(batch, lists, ctx, &policy.nat4, look4);
        after("established", lists);
    }
    if !lists.lookup6.is_empty() {
        established(batch, lists, ctx, &policy.nat6, look6);
        after("established", lists);
    }
    if !lists.revise4.is_empty() {
        revise::revise::<V4>(batch, lists, ctx);
        after("revise", lists);
    }
    if !lists.revise6.is_empty() {
        revise::revise::<V6>(batch, lists, ctx);
        after("revise", lists);
    }
    if !lists.decide4.is_empty() {
        decide::decide::<V4>(batch, lists, ctx);
        after("decide", lists);
    }
    if !lists.decide6.is_empty() {
        decide::decide::<V6>(batch, lists, ctx);
        after("decide", lists);
    }
    let mut now = cycles();
    // Who has no sessions, or leaves them for later, only finds out who has.
    let finds = !ctx.role.sessions.is_empty() && (ctx.defers || ctx.setup.assist.is_none());
    let stage = if finds { Stage::Parse } else { Stage::Session };
    ctx.counters.cycles[stage as usize].add(now.wrapping_sub(mark));
    if !lists.inspect4.is_empty() || !lists.inspect6.is_empty() {
        if let Some(work) = inspecting {
            inspect::inspect::<V4>(batch, lists, ctx, work);
            inspect::inspect::<V6>(batch, lists, ctx, work);
            after("inspect", lists);
        }
        let end = cycles();
        ctx.counters.cycles[Stage::Inspect as usize].add(end.wrapping_sub(now));
        now = end;
    }
    if !lists.recognise4.is_empty() || !lists.recognise6.is_empty() {
        recognise::recognise::<V4>(batch, lists, ctx);
        recognise::recognise::<V6>(batch, lists, ctx);
        after("recognise", lists);
        let end = cycles();
        ctx.counters.cycles[Stage::Inspect as usize].add(end.wrapping_sub(now));
        now = end;
    }
    mark = now;
    if !lists.transit.is_empty() {
        transit::transit(batch, lists, ctx);
        after("transit", lists);
    }
    if !lists.forward4.is_empty() {
        forward::forward::<V4>(batch, lists, ctx);
        after("forward", lists);
    }
    if !lists.forward6.is_empty() {
        forward::forward::<V6>(batch, lists, ctx);
        after("forward", lists);
    }
    if !lists.gateway.is_empty() {
        gateway::gateway(batch, lists, ctx);
        after("gateway", lists);
    }
    if !lists.host.is_empty() {
        sending::host(batch, lists, ctx);
        after("host", lists);
    }
    if !lists.punt.is_empty() {
        punt::punt(batch, lists, ctx);
        after("punt", lists);
    }
    if !lists.neighbour.is_empty() {
        neighbour::discover(batch, lists, ctx);
        after("discover", lists);
    }
    if !lists.subscriber.is_empty() {
        subscriber::subscriber(batch, lists, ctx);
        after("subscriber", lists);
    }
    if !lists.unresolved.is_empty() {
        neighbour::wait(batch, lists, ctx);
        after("wait", lists);
    }
    if !lists.complain.is_empty() {
        complain::complain(batch, lists, ctx);
        after("complain", lists);
    }
    let now = cycles();
    ctx.counters.cycles[Stage::Forward as usize].add(now.wrapping_sub(mark));
    now
}

impl State<'_> {
    fn has_actions(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| !owner.actions.is_empty())
    }
}

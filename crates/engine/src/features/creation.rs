//! Sessions that the packets of one batch open, opened together: each pass asks memory for what the next one reads.
//!
//! The outcome is that of opening one after the other in the order of the packets: of several packets of one flow the
//! first opens the session, and ports are lent in that order, so that how packets fall into batches does not show.

use arrayvec::ArrayVec;
use sluice_filter::{Marking, TrafficClass};
use sluice_nat::bindings::PortRequest;
use sluice_nat::decision::NewSource;
use sluice_nat::meter::Exceeded;
use sluice_nat::sites::{is_site, outer};
use sluice_nat::{Address, Decision, Limits, PoolIndex, PortClass, Resources, TimeoutClass, Tracking, Tuple, decision};
use sluice_table::flow::{Record, RecordIndex, Refused};
use sluice_wire::ipv4::protocol::{TCP, is_icmp};
use sluice_wire::layers::{Flags, Layers};
use sluice_wire::tcp::flag::{ACK, FIN, RST, SYN};
use sluice_wire::{Context, Direction};

use crate::features::applications::Application;
use crate::features::context::NodeContext;
use crate::features::inspection::{InspectState, InspectionPolicy};
use crate::nodes::bridge;
use crate::nodes::slow_path::FlowTranslation;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::Lists;
use crate::packet::reason::{Own, Reason};
use crate::session::bound_interfaces::BoundInterfaces;
use crate::session::family::{Family, Session, SessionParts};
use crate::session::shard::{Shard, end};
use crate::snapshot::forwarding::NeighbourReferences;
use crate::snapshot::marks::of_class;
use crate::snapshot::{Snapshot, StartParameters};

/// How many sessions ahead of the one that is written memory is asked for.
const AHEAD: usize = 16;

/// Why no session is opened, and what the sender is told.
type Refusal = (Option<IcmpError>, Reason);

/// How far a packet's session has come.
#[derive(Clone, Copy)]
enum State<F: Family> {
    /// It may have one.
    Asked,
    /// It has one already.
    Known,
    /// It belongs to the flow of an earlier packet of the batch, and shares what becomes of that.
    Follows(u8),
    /// It may have none.
    Refused(Refusal),
    /// Everything but the record is there; whether another session may have the same outside port.
    Made(decision::Translation<F::Tuple>, bool),
    /// The neighbour that it leads to went away meanwhile: to be decided again.
    Stale,
}

#[derive(Clone, Copy)]
struct NewSession<F: Family> {
    slot: BufferIndex,
    translation: FlowTranslation<F>,
    /// Where its outside port shall come from, if it needs one.
    aim: Option<PortRequest<F::Address>>,
    state: State<F>,
    /// It takes the place of a session whose connection has ended.
    replaces: bool,
}

/// The packets of a batch that ask for a session, in order.
pub struct NewSessions<F: Family> {
    openings: ArrayVec<NewSession<F>, BURST_BUFFERS>,
    /// Their keys, by the same place.
    keys: ArrayVec<F::Key, BURST_BUFFERS>,
    /// What rules of the filter have set.
    markings: ArrayVec<(BufferIndex, Marking), BURST_BUFFERS>,
}

impl<F: Family> Default for NewSessions<F> {
    fn default() -> Self {
        Self {
            openings: ArrayVec::new(),
            keys: ArrayVec::new(),
            markings: ArrayVec::new(),
        }
    }
}

impl<F: Family> NewSessions<F> {
    /// A packet asks for a session.
    #[inline(always)]
    pub fn push(&mut self, slot: BufferIndex, key: F::Key, translation: FlowTranslation<F>) {
        put(
            &mut self.openings,
            NewSession {
                slot,
                translation,
                aim: None,
                state: State::Asked,
                replaces: false,
            },
        );
        put(&mut self.keys, key);
    }

    /// The session that a packet opens has what rules of the filter have set.
    #[cold]
    pub fn mark(&mut self, slot: BufferIndex, marking: Marking) {
        put(&mut self.markings, (slot, marking));
    }

    /// Open sessions for all that asked: they are looked up again, or refused.
    pub fn create(&mut self, batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut NodeContext<'_, '_>) {
        let count = self.keys.len();
        let (mut forward, mut reverse) = ([0; BURST_BUFFERS], [0; BURST_BUFFERS]);
        F::hash(ctx.hasher, &self.keys, &mut forward[..count]);
        self.request_ports(batch, ctx);
        let reverses = self.allocate_ports(batch, ctx, &forward);
        F::hash(ctx.hasher, &reverses, &mut reverse[..reverses.len()]);
        self.insert(batch, ctx, &forward, &reverse[..reverses.len()]);
        self.forward(batch, lists, ctx);
    }

    /// Refuse what may open no session, and choose where the ports of the others shall come from.
    fn request_ports(&mut self, batch: &Batch<'_, '_>, ctx: &mut NodeContext<'_, '_>) {
        let snapshot = ctx.snapshot;
        for (opening, key) in self.openings.iter_mut().zip(&self.keys) {
            let meta = batch.meta(opening.slot);
            // A bridge has asked already, and counts no hops.
            let admitted = match opening.translation.hops[0].is_bridge() {
                true => Ok(()),
                // Nor does a router's own host.
                false if opening.translation.hops.contains(&AdjacencyIndex::LOCAL) => admit::<F>(
                    &Layers {
                        ttl: u8::MAX,
                        ..meta.layers
                    },
                    key,
                    false,
                ),
                false => admit::<F>(
                    &meta.layers,
                    key,
                    accepts_midstream::<F>(snapshot, meta, &opening.translation),
                ),
            };
            opening.state = match (admitted, shard_of(ctx, meta)) {
                (Err(refusal), _) => State::Refused(refusal),
                (_, None) => State::Refused((None, Own::Forgotten.into())),
                (Ok(()), Some(shard)) => match (opening.translation.pool, PortClass::of_layers(&meta.layers)) {
                    (None, _) => State::Asked,
                    (Some(pool), None) => {
                        opening.translation.outside = outside_address::<F>(snapshot, shard, pool, key);
                        match opening.translation.outside {
                            Some(_) => State::Asked,
                            None => State::Refused((None, sluice_nat::Reason::UnsupportedProtocol.into())),
                        }
                    }
                    (Some(pool), Some(class)) => {
                        opening.aim = Some(F::bindings(shard).request(pool, class, F::tuple(key)));
                        State::Asked
                    }
                },
            };
        }
        for opening in &mut self.openings {
            if let (Some(aim), Some(shard)) = (&mut opening.aim, shard_of(ctx, batch.meta(opening.slot))) {
                F::bindings_ref(shard).prefetch_records(aim);
            }
        }
        for (opening, key) in self.openings.iter_mut().zip(&self.keys) {
            if let (Some(aim), Some(shard)) = (&mut opening.aim, shard_of(ctx, batch.meta(opening.slot))) {
                F::bindings_ref(shard).prefetch_block(aim, F::tuple(key));
            }
        }
    }

    /// Lend the ports, in the order of the packets, to flows that are new. Returns the keys of the answers, of those
    /// openings alone that are made.
    fn allocate_ports(
        &mut self,
        batch: &Batch<'_, '_>,
        ctx: &mut NodeContext<'_, '_>,
        forward: &[u64; BURST_BUFFERS],
    ) -> ArrayVec<F::Key, BURST_BUFFERS> {
        let mut reverses = ArrayVec::new();
        let mut seen = HashSieve::default();
        for place in 0..self.openings.len() {
            let (opening, key, hash) = (&self.openings[place], &self.keys[place], forward[place]);
            let Some(shard) = shard_of(ctx, batch.meta(opening.slot)) else {
                continue;
            };
            let mut old = None;
            if F::table_ref(shard).find(hash, key).is_some() {
                old = reusable_session::<F>(shard, hash, key, &batch.meta(opening.slot).layers);
                self.openings[place].replaces = old.is_some();
                if old.is_none() {
                    self.openings[place].state = State::Known;
                    continue;
                }
            }
            let leader = |&earlier: &usize| {
                let made = matches!(self.openings[earlier].state, State::Made(..));
                made && forward[earlier] == hash && self.keys[earlier] == *key
            };
            if seen.maybe(hash)
                && let Some(leader) = (0..place).find(leader)
            {
                self.openings[place].state = State::Follows(leader as u8);
                continue;
            }
            let State::Asked = self.openings[place].state else {
                continue;
            };
            let made = self.allocate_port(batch, ctx, place, reverses.len());
            // What the session before it holds may be what it lacks.
            let made = match made {
                Err(_) if old.is_some() => {
                    replace::<F>(ctx, batch.meta(self.openings[place].slot), key, hash);
                    self.allocate_port(batch, ctx, place, reverses.len())
                }
                made => made,
            };
            self.openings[place].state = match made {
                Ok((made, overlaps)) => {
                    seen.mark(hash);
                    put(&mut reverses, F::make_key(made.reverse, F::protocol(&self.keys[place])));
                    State::Made(made, overlaps)
                }
                Err(refusal) => State::Refused(refusal),
            };
        }
        reverses
    }

    /// New mappings are found from outside, and what has happened is passed on.
    fn publish(&self, batch: &Batch<'_, '_>, ctx: &mut NodeContext<'_, '_>) {
        let (events, counters) = (ctx.events, ctx.counters);
        let mut last = None;
        for opening in &self.openings {
            let meta = batch.meta(opening.slot);
            if last.replace(meta.shard) != Some(meta.shard)
                && let Some(shard) = shard_of(ctx, meta)
            {
                F::bindings(shard).publish();
                events.collect(&mut F::bindings(shard).events, counters);
            }
        }
    }

    /// Lend what one new session needs, after so many of the batch.
    #[inline(always)]
    fn allocate_port(
        &self,
        batch: &Batch<'_, '_>,
        ctx: &mut NodeContext<'_, '_>,
        place: usize,
        before: usize,
    ) -> Result<(decision::Translation<F::Tuple>, bool), Refusal> {
        let (opening, key) = (&self.openings[place], &self.keys[place]);
        let meta = batch.meta(opening.slot);
        let now = ctx.now.nanoseconds;
        let forgotten = || (None, Own::Forgotten.into());
        let table = F::table_ref(shard_of(ctx, meta).ok_or_else(forgotten)?);
        let full = !table.has_room_for(before + 1) && !table.has_room_for(self.created_in(batch, meta.shard) + 1);
        let counted = admit_all::<F>(ctx, &opening.translation, F::tuple(key).context(), full)?;
        let shard = shard_of(ctx, meta).ok_or_else(forgotten)?;
        match translate::<F>(shard, key, opening, full, now) {
            Ok((mut made, overlaps)) => {
                made.decision = made.decision.counted(counted);
                Ok((made, overlaps))
            }
            Err(refusal) => {
                if counted != Resources::NOTHING {
                    let counted = counted_by::<F>(&opening.translation, counted);
                    ctx.tools().leave(counted, F::tuple(key).context());
                }
                Err(refusal)
            }
        }
    }

    /// Sessions made so far that a shard has to take.
    #[cold]
    fn created_in(&self, batch: &Batch<'_, '_>, shard: u16) -> usize {
        let made = self
            .openings
            .iter()
            .filter(|opening| matches!(opening.state, State::Made(..)));
        made.filter(|opening| batch.meta(opening.slot).shard == shard).count()
    }

    /// Write the records, and set their timers. What an answer's key is put into is asked for a few sessions ahead.
    fn insert(
        &mut self,
        batch: &Batch<'_, '_>,
        ctx: &mut NodeContext<'_, '_>,
        forward: &[u64; BURST_BUFFERS],
        reverse: &[u64],
    ) {
        let mut places = ArrayVec::<u8, BURST_BUFFERS>::new();
        for (place, opening) in self.openings.iter().enumerate() {
            if matches!(opening.state, State::Made(..)) {
                put(&mut places, place as u8);
            }
        }
        let ask = |ctx: &mut NodeContext<'_, '_>, slot, hash| {
            if let Some(shard) = shard_of(ctx, batch.meta(slot)) {
                F::table_ref(shard).prefetch(hash);
                F::table_ref(shard).prefetch_insert();
            }
        };
        for (&place, &hash) in places.iter().zip(reverse).take(AHEAD) {
            ask(ctx, self.openings[place as usize].slot, hash);
        }
        self.publish(batch, ctx);
        let mut holds = NeighbourReferences::default();
        let mut created = 0;
        for (number, (&place, &reverse_hash)) in places.iter().zip(reverse).enumerate() {
            if let (Some(&later), Some(&hash)) = (places.get(number + AHEAD), reverse.get(number + AHEAD)) {
                ask(ctx, self.openings[later as usize].slot, hash);
            }
            let (key, hash) = (&self.keys[place as usize], forward[place as usize]);
            let opening = &mut self.openings[place as usize];
            let State::Made(decided, overlaps) = opening.state else {
                continue;
            };
            let meta = batch.meta(opening.slot);
            if !holds.take(ctx.paths, opening.translation.hops) {
                release::<F>(ctx, meta, key, &decided);
                opening.state = State::Stale;
                continue;
            }
            if opening.replaces {
                replace::<F>(ctx, meta, key, hash);
            }
            let (session, seconds) = session::<F>(ctx, meta, key, &opening.translation, &decided);
            let due = ctx.now.due(seconds);
            let (hasher, start) = (ctx.hasher, ctx.start);
            let Some(shard) = shard_of(ctx, meta) else { continue };
            let mut inserted = insert::<F>(shard, session, (hash, reverse_hash), due);
            if let (Err((_, CLASH)), Some(_), None) = (&inserted, opening.translation.pool, &opening.aim) {
                let taken = sluice_nat::Reason::AddressTaken.into();
                inserted = Err((Some(IcmpError::NoResources), taken));
            }
            if let (Err((_, CLASH)), None) = (&inserted, &opening.aim) {
                let place = (hash, hasher, due);
                let fits = |answer: &F::Tuple| fits::<F>(start, meta, answer);
                inserted = insert_with_other_source_port::<F>(shard, session, &opening.translation, fits, place);
            }
            if let (Err((_, CLASH)), true, Some(aim)) = (&inserted, overlaps, &opening.aim) {
                inserted =
                    insert_with_other_outside_port::<F>(shard, session, &opening.translation, aim, hash, hasher, due);
            }
            match inserted {
                Ok(index) => {
                    created += 1;
                    if ctx.snapshot.marks.is_some() || ctx.snapshot.code_points.is_some() {
                        let mut own = self.markings.iter().filter(|(slot, _)| *slot == opening.slot);
                        mark::<F>(ctx, meta.shard, index, own.next().map(|(_, marking)| *marking));
                    }
                    if opening.aim.is_some() {
                        count_fit::<F>(ctx, meta, index);
                    }
                }
                Err(refusal) => {
                    // Both ends may speak first, in one burst: the other's packet has opened what this one asks for.
                    let known = F::table_ref(shard).find(hash, key).is_some();
                    release::<F>(ctx, meta, key, &decided);
                    holds.release(ctx.paths, &opening.translation.hops);
                    opening.state = if known { State::Known } else { State::Refused(refusal) };
                }
            }
        }
        holds.flush(ctx.paths);
        ctx.counters.sessions_created.add(created);
        if F::IS_V6 {
            ctx.counters.sessions_six.add(created);
        }
    }

    /// Where the packets go on.
    fn forward(&self, batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>) {
        for opening in &self.openings {
            let state = match opening.state {
                State::Follows(leader) => self.openings[leader as usize].state,
                state => state,
            };
            match state {
                State::Refused((_, reason)) if opening.translation.hops[0].is_bridge() => {
                    bridge::fail(opening.slot, reason, batch, lists, ctx);
                }
                State::Refused(refusal) => lists.reject(opening.slot, refusal),
                State::Stale => put(lists.slow_path.of::<F>(), opening.slot),
                _ => put(lists.session_lookup.of::<F>(), opening.slot),
            }
        }
    }
}

/// A sieve of hashes: without a false no.
#[derive(Default)]
struct HashSieve([u64; 16]);

impl HashSieve {
    #[inline(always)]
    fn maybe(&self, hash: u64) -> bool {
        self.0[hash as usize / 64 % 16] >> (hash % 64) & 1 != 0
    }
    #[inline(always)]
    fn mark(&mut self, hash: u64) {
        self.0[hash as usize / 64 % 16] |= 1 << (hash % 64);
    }
}

#[inline(always)]
fn shard_of<'s, 'm>(ctx: &'s mut NodeContext<'_, 'm>, meta: &Meta) -> Option<&'s mut Shard<'m>> {
    ctx.shards.get_mut(meta.shard as usize).and_then(Option::as_deref_mut)
}

/// Whether a TCP segment is the first of its connection.
#[inline(always)]
pub fn is_first_segment(layers: &Layers) -> bool {
    layers.tcp_flags & (SYN | ACK | RST | FIN) == SYN
}

/// End the session whose place another one takes.
#[cold]
fn replace<F: Family>(ctx: &mut NodeContext<'_, '_>, meta: &Meta, key: &F::Key, hash: u64) {
    let tools = ctx.tools();
    if let Some(shard) = shard_of(ctx, meta)
        && let Some(old) = reusable_session::<F>(shard, hash, key, &meta.layers)
    {
        end::<F>(shard, old, &tools);
    }
}

/// The session of a connection that has ended between the ends of a packet that begins another one, which takes its place. Its key
/// may be of either direction.
pub fn reusable_session<F: Family>(shard: &Shard<'_>, hash: u64, key: &F::Key, layers: &Layers) -> Option<RecordIndex> {
    let (index, _) = F::table_ref(shard).find(hash, key)?;
    let session = F::table_ref(shard).get(index)?;
    (is_first_segment(layers) && session.track().tracking.has_ended()).then_some(index)
}

/// Whether a connection whose beginning was not seen may have a session from here on: nothing is translated, so that it
/// is what it was before, and inspection says that it goes on.
fn accepts_midstream<F: Family>(snapshot: &Snapshot, meta: &Meta, translation: &FlowTranslation<F>) -> bool {
    let Some(inspection) = snapshot.inspection.as_deref() else {
        return false;
    };
    let keeps = translation.pool.is_none() && translation.target.is_none() && translation.outside.is_none();
    keeps && is_inspected::<F>(inspection, meta, translation) && inspection.accepts_midstream(&meta.layers)
}

fn is_inspected<F: Family>(inspection: &InspectionPolicy, meta: &Meta, translation: &FlowTranslation<F>) -> bool {
    inspection.is_on(meta.interface) || inspection.is_on(translation.hops[0].interface() as u16)
}

/// Whether a packet may open a session at all.
#[inline(always)]
fn admit<F: Family>(layers: &Layers, key: &F::Key, picks_up: bool) -> Result<(), Refusal> {
    if layers.ttl <= 1 {
        return Err((Some(IcmpError::TimeExceeded), sluice_route::Reason::TtlExceeded.into()));
    }
    if F::protocol(key) == TCP && !is_first_segment(layers) && !picks_up {
        return Err((None, sluice_nat::Reason::NotOpening.into()));
    }
    if layers.flags.has(Flags::ICMP_REPLY) {
        return Err((None, sluice_nat::Reason::Unsolicited.into()));
    }
    Ok(())
}

/// Whether pool and virtual router take one more session, and who counts it.
#[inline(always)]
fn admit_all<F: Family>(
    ctx: &NodeContext<'_, '_>,
    translation: &FlowTranslation<F>,
    context: Context,
    full: bool,
) -> Result<Resources, Refusal> {
    let nat = ctx.snapshot.nat::<F>();
    let pool = translation.pool.or(translation.mapped);
    let limited = pool
        .and_then(|pool| nat.pools.get(pool))
        .filter(|pool| pool.is_limited());
    let router = ctx
        .snapshot
        .router(context)
        .map_or(Limits::default(), |router| router.limits);
    let context = outer(context);
    if full || limited.is_none() && router == Limits::default() {
        return Ok(Resources::NOTHING);
    }
    let limits = limited.map(|pool| *pool.limits()).unwrap_or_default();
    admit_limited(ctx, (pool, limits), (context, router)).map_err(|reason| {
        let inside = translation.mapped.is_none();
        (inside.then_some(IcmpError::NoResources), reason.into())
    })
}

#[cold]
fn admit_limited(
    ctx: &NodeContext<'_, '_>,
    (pool, limits): (Option<PoolIndex>, Limits),
    (context, router): (Context, Limits),
) -> Result<Resources, sluice_nat::Reason> {
    let (meters, now) = (&ctx.start.meters, ctx.now.nanoseconds);
    let mut counted = Resources::NOTHING;
    if let Some(meter) = pool
        .and_then(|pool| meters.pool(pool))
        .filter(|_| limits != Limits::default())
    {
        meter.admit(&limits, now).map_err(|exceeded| match exceeded {
            Exceeded::Sessions => sluice_nat::Reason::PoolSessions,
            Exceeded::Rate => sluice_nat::Reason::PoolRate,
        })?;
        counted = counted | Resources::POOL;
    }
    if router != Limits::default()
        && let Some(meter) = meters.router(context)
    {
        let admitted = meter.admit(&router, now);
        admitted.map_err(|exceeded| {
            if let Some(meter) = pool
                .and_then(|pool| meters.pool(pool))
                .filter(|_| counted.has(Resources::POOL))
            {
                meter.release();
            }
            match exceeded {
                Exceeded::Sessions => sluice_nat::Reason::RouterSessions,
                Exceeded::Rate => sluice_nat::Reason::RouterRate,
            }
        })?;
        counted = counted | Resources::ROUTER;
    }
    Ok(counted)
}

/// A decision that holds nothing but what counts it.
fn counted_by<F: Family>(translation: &FlowTranslation<F>, counted: Resources) -> Decision {
    let pool = translation.pool.or(translation.mapped).unwrap_or_default();
    Decision::NONE.with_resources(pool, counted)
}

/// What a session held goes back that is not opened after all.
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
        F::bindings(shard).release_one(made.decision, F::protocol(key), F::tuple(key), &made.reverse, now);
    }
}

/// Lend the port and compose the translation; whether another session may have the same port.
#[inline(always)]
fn translate<F: Family>(
    shard: &mut Shard<'_>,
    key: &F::Key,
    opening: &NewSession<F>,
    full: bool,
    now: u64,
) -> Result<(decision::Translation<F::Tuple>, bool), Refusal> {
    let (tuple, protocol, translation) = (F::tuple(key), F::protocol(key), &opening.translation);
    // Who can't be served is told so; strangers are not (RFC 6888, REQ-11).
    if full {
        let inside = translation.mapped.is_none();
        return Err((inside.then_some(IcmpError::NoResources), Own::SessionsFull.into()));
    }
    if let (Some(pool), Some(aim)) = (translation.pool, &opening.aim) {
        let remote = translation.target.map_or(tuple.destination(), |target| target.address);
        let granted = F::bindings(shard).allocate(aim, tuple, remote, now);
        let granted = granted.map_err(|reason| (Some(IcmpError::NoResources), reason.into()))?;
        let source = NewSource::Lent(pool, granted.lease);
        let mut made = decision::translate(
            tuple,
            protocol,
            translation.answers(tuple.context()),
            translation.target,
            source,
        );
        made.decision = made.decision.with_resources(pool, granted.holding);
        return Ok((made, granted.overlaps));
    }
    let source = translation.outside.map_or(NewSource::Kept, NewSource::Static);
    let mut made = decision::translate(
        tuple,
        protocol,
        translation.answers(tuple.context()),
        translation.target,
        source,
    );
    if let Some(pool) = translation.pool {
        made.decision = made.decision.with_resources(pool, Resources::NOTHING);
    }
    if let (Some(pool), Some(class)) = (
        translation.mapped,
        PortClass::of(protocol, <F::Address as Address>::BITS),
    ) {
        let holding = F::bindings(shard).accept(tuple, class, now);
        let holding = holding.map_err(|reason| (None, reason.into()))?;
        made.decision = made.decision.with_resources(pool, holding);
    }
    Ok((made, false))
}

/// A session has got a port of a pool: whether answers come to its shard, where ports are chosen for that.
#[inline(always)]
fn count_fit<F: Family>(ctx: &mut NodeContext<'_, '_>, meta: &Meta, index: RecordIndex) {
    if ctx.start.steering.fitting().is_none() {
        return;
    }
    let shard = shard_of(ctx, meta);
    let Some(answer) = shard.and_then(|shard| Some(*F::table_ref(shard).get(index)?.reverse())) else {
        return;
    };
    let class = PortClass::of_layers(&meta.layers);
    if let Some(fits) = ctx.start.steering.fits::<F>(meta.shard, &answer, class) {
        ctx.counters.ports_steered.add(1);
        ctx.counters.misfits.add(u64::from(!fits));
    }
}

/// The outside address of a flow without ports, where its pool translates the protocol.
#[cold]
fn outside_address<F: Family>(
    snapshot: &Snapshot,
    shard: &Shard<'_>,
    pool: PoolIndex,
    key: &F::Key,
) -> Option<F::Address> {
    let protocol = F::protocol(key);
    let has_ports = PortClass::of(protocol, <F::Address as Address>::BITS).is_some();
    let translates = snapshot.nat::<F>().pools.get(pool)?.translates(protocol) && !has_ports;
    translates
        .then(|| F::bindings_ref(shard).address_of(F::tuple(key), pool))
        .flatten()
}

/// Put a session whose answers can't be told apart from another's under the next outside port that may do.
#[cold]
fn insert_with_other_outside_port<F: Family>(
    shard: &mut Shard<'_>,
    mut session: F::Session,
    translation: &FlowTranslation<F>,
    aim: &PortRequest<F::Address>,
    hash: u64,
    hasher: &sluice_table::hash::Hasher,
    due: u64,
) -> Result<RecordIndex, Refusal> {
    let (forward, protocol) = (*session.forward(), session.protocol());
    let exhausted = (
        Some(IcmpError::NoResources),
        Reason::from(sluice_nat::Reason::PortsExhausted),
    );
    for attempt in 1..sluice_nat::bindings::TRIES {
        let Some(pool) = translation.pool else { break };
        let Some(lease) = F::bindings(shard).another(aim, &forward, attempt) else {
            continue;
        };
        let made = decision::translate(
            &forward,
            protocol,
            translation.answers(forward.context()),
            translation.target,
            NewSource::Lent(pool, lease),
        );
        let decision = made.decision.with_resources(pool, session.nat().resources());
        session.translate_as(made.reverse, decision);
        let reverse = F::hash_one(hasher, &session.key(Direction::Reverse));
        match insert::<F>(shard, session, (hash, reverse), due) {
            Err((_, CLASH)) => {}
            other => return other,
        }
    }
    Err(exhausted)
}

/// How many ports are tried for a session whose own another one has to the same remote.
const PORT_ATTEMPTS: u64 = 1024;

/// Whether answers come to the shard of a packet, where flows are dealt by all of their addresses and ports.
fn fits<F: Family>(start: &StartParameters, meta: &Meta, answer: &F::Tuple) -> bool {
    let class = PortClass::of_layers(&meta.layers);
    start.steering.fits::<F>(meta.shard, answer, class) != Some(false)
}

/// Put a session under another source port: its answers could not be told from those of another session. Of a site another
/// terminal has the same port to the same remote (P0: then, and only then, the source port changes); a client comes by two outside
/// addresses or ports to one inside host.
#[cold]
fn insert_with_other_source_port<F: Family>(
    shard: &mut Shard<'_>,
    mut session: F::Session,
    translation: &FlowTranslation<F>,
    fits: impl Fn(&F::Tuple) -> bool,
    (hash, hasher, due): (u64, &sluice_table::hash::Hasher, u64),
) -> Result<RecordIndex, Refusal> {
    let (forward, protocol, old) = (*session.forward(), session.protocol(), session.nat());
    // What is not translated is not to be; and another packet may have opened the very session just now.
    let is_open = F::table_ref(shard)
        .find(hash, &session.key(Direction::Forward))
        .is_some();
    if is_open || translation.outside.is_none() && translation.target.is_none() {
        return Err((None, CLASH));
    }
    if PortClass::of(protocol, <F::Address as Address>::BITS).is_none() {
        return Err((Some(IcmpError::NoResources), sluice_nat::Reason::AddressTaken.into()));
    }
    let is_site = is_site(forward.context());
    // The hash of the flow is keyed: who sees one port does not know the next.
    let mut random = hash | 1;
    for _ in 0..PORT_ATTEMPTS {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let port = 1024 + (random >> 32) as u16 % (u16::MAX - 1023);
        let source = match translation.outside {
            Some(address) => NewSource::At(sluice_nat::Lease { address, port }),
            None => NewSource::Port(port),
        };
        let made = decision::translate(
            &forward,
            protocol,
            translation.answers(forward.context()),
            translation.target,
            source,
        );
        if !is_site && !fits(&made.reverse) {
            continue;
        }
        let decision = match old.pool() {
            Some(pool) => made.decision.with_resources(pool, old.resources()),
            None => made.decision,
        };
        session.translate_as(made.reverse, decision);
        let reverse = F::hash_one(hasher, &session.key(Direction::Reverse));
        match insert::<F>(shard, session, (hash, reverse), due) {
            Err((_, CLASH)) => {}
            other => return other,
        }
    }
    Err((Some(IcmpError::NoResources), sluice_nat::Reason::PortsExhausted.into()))
}

/// Two sessions of which answers could be either's.
const CLASH: Reason = Reason::Own(Own::SessionClash);

/// The record of a new session, and its first timeout in seconds.
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
        forward: *F::tuple(key),
        reverse: made.reverse,
        nat: made.decision,
        hops: translation.hops,
        generation: ctx.snapshot.generation,
        protocol,
        inbound_refresh: translation.hops[0].is_bridge() || schedule.refreshes(false),
        // What the router's host sends comes in by none.
        interface: if meta.is_from_gateway() {
            BoundInterfaces::NONE
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
    // The first packet goes on to `established`, which sets the timer only where it is another.
    tracking.set_timer(timer);
    if let Some(inspection) = &ctx.snapshot.inspection
        && is_inspected::<F>(inspection, meta, translation)
    {
        session.set_inspect(InspectState::Wanted);
    }
    if ctx
        .snapshot
        .identifies([meta.interface, translation.hops[0].interface() as u16])
        && !is_icmp(protocol)
    {
        session.set_application(Application::Wanted);
        if session.inspect() == InspectState::Nothing {
            session.set_inspect(InspectState::Sought);
        }
    }
    session.track_mut().tracking = tracking;
    session.track_mut().last_seen = ctx.now.stamp();
    (session, schedule.seconds(timer))
}

/// A new session has what rules of the filter have set, or nothing: its record may have been that of another.
#[cold]
fn mark<F: Family>(ctx: &mut NodeContext<'_, '_>, shard: u16, index: RecordIndex, marking: Option<Marking>) {
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

/// Put a session into its shard's table, and on its wheel.
#[inline(always)]
fn insert<F: Family>(
    shard: &mut Shard<'_>,
    session: F::Session,
    (forward, reverse): (u64, u64),
    due: u64,
) -> Result<RecordIndex, Refusal> {
    let inserted = F::table(shard).insert(forward, reverse, session);
    let index = inserted.map_err(|refused| match refused {
        Refused::Full | Refused::Crowded => (Some(IcmpError::NoResources), Own::SessionsFull.into()),
        Refused::Duplicate { .. } | Refused::Mirrored => (None, CLASH),
    })?;
    let (wheel, table) = F::wheel(shard);
    wheel.schedule(table, index, due);
    Ok(index)
}

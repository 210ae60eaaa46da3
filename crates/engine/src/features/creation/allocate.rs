//! The fourth step of session creation: allocates ports for new flows, in the order of their packets.

use arrayvec::ArrayVec;
use sluice_nat::bindings::PortRequest;
use sluice_nat::decision::NewSource;
use sluice_nat::meter::Exceeded;
use sluice_nat::sites::outer;
use sluice_nat::{Address, Decision, Limits, PoolIndex, PortClass, Resources, Tuple, decision};
use sluice_wire::Context;
use sluice_wire::ipv4::protocol::TCP;
use sluice_wire::layers::{Flags, Layers};

use super::{
    CreationState, FlowDecision, FlowTranslation, KeyHashes, NewFlows, Refusal, is_first_segment, replace,
    reusable_session, shard_of,
};
use crate::features::context::NodeContext;
use crate::features::inspection::InspectionPolicy;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::{Batch, Meta, put};
use crate::packet::icmp_error::IcmpError;
use crate::packet::io::BURST_BUFFERS;
use crate::packet::reason::EngineReason;
use crate::session::family::Family;
use crate::session::shard::Shard;
use crate::snapshot::Snapshot;

impl<F: Family> NewFlows<F> {
    /// Allocates ports for the flows for which sessions may be created. Returns the hashes of their keys.
    pub fn allocate(&mut self, batch: &Batch<'_, '_>, ctx: &mut NodeContext<'_, '_>) -> KeyHashes {
        let mut hashes = KeyHashes::default();
        F::hash(ctx.hasher, &self.keys, &mut hashes.forward[..self.keys.len()]);
        self.request_ports(batch, ctx);
        let reverses = self.allocate_ports(batch, ctx, &hashes.forward);
        F::hash(ctx.hasher, &reverses, &mut hashes.reverse[..reverses.len()]);
        hashes
    }

    /// Refuses flows that may not create a session, and determines the pools of the remaining flows.
    fn request_ports(&mut self, batch: &Batch<'_, '_>, ctx: &mut NodeContext<'_, '_>) {
        let snapshot = ctx.snapshot;
        for (flow, key) in self.flows.iter_mut().zip(&self.keys) {
            let (FlowDecision::Session(translation), CreationState::Queried) = (&mut flow.decision, flow.state) else {
                continue;
            };
            let meta = batch.meta(flow.slot);
            // The bridge has already checked the packet, and it does not decrement the TTL.
            let admitted = match translation.hops[0].is_bridge() {
                true => Ok(()),
                // The TTL of packets to or from the router's own host is not decremented.
                false if translation.hops.contains(&AdjacencyIndex::LOCAL) => admit::<F>(
                    &Layers {
                        ttl: u8::MAX,
                        ..meta.layers
                    },
                    key,
                    false,
                ),
                false => admit::<F>(&meta.layers, key, accepts_midstream::<F>(snapshot, meta, translation)),
            };
            flow.state = match (admitted, shard_of(ctx, meta)) {
                (Err(refusal), _) => CreationState::Refused(refusal),
                (_, None) => CreationState::Refused((None, EngineReason::Forgotten.into())),
                (Ok(()), Some(shard)) => match (translation.pool, PortClass::of_layers(&meta.layers)) {
                    (None, _) => CreationState::Queried,
                    (Some(pool), None) => {
                        translation.outside = outside_address::<F>(snapshot, shard, pool, key);
                        match translation.outside {
                            Some(_) => CreationState::Queried,
                            None => CreationState::Refused((None, sluice_nat::Reason::UnsupportedProtocol.into())),
                        }
                    }
                    (Some(pool), Some(class)) => {
                        flow.request = Some(F::bindings(shard).request(pool, class, &F::tuple(key)));
                        CreationState::Queried
                    }
                },
            };
        }
        for flow in &mut self.flows {
            if let (Some(request), Some(shard)) = (&mut flow.request, shard_of(ctx, batch.meta(flow.slot))) {
                F::bindings_ref(shard).prefetch_records(request);
            }
        }
        for (flow, key) in self.flows.iter_mut().zip(&self.keys) {
            if let (Some(request), Some(shard)) = (&mut flow.request, shard_of(ctx, batch.meta(flow.slot))) {
                F::bindings_ref(shard).prefetch_block(request, &F::tuple(key));
            }
        }
    }

    /// Allocates the ports of new flows in packet order. Returns the reverse keys of the successful flows.
    fn allocate_ports(
        &mut self,
        batch: &Batch<'_, '_>,
        ctx: &mut NodeContext<'_, '_>,
        forward: &[u64; BURST_BUFFERS],
    ) -> ArrayVec<F::Key, BURST_BUFFERS> {
        let mut reverses = ArrayVec::new();
        let mut seen = HashSieve::default();
        for place in 0..self.flows.len() {
            let (flow, key, hash) = (&self.flows[place], &self.keys[place], forward[place]);
            if matches!(flow.state, CreationState::Decided) {
                continue;
            }
            let Some(shard) = shard_of(ctx, batch.meta(flow.slot)) else {
                continue;
            };
            let mut old = None;
            if F::table_ref(shard).find(hash, key).is_some() {
                old = reusable_session::<F>(shard, hash, key, &batch.meta(flow.slot).layers);
                self.flows[place].replaces = old.is_some();
                if old.is_none() {
                    self.flows[place].state = CreationState::Known;
                    continue;
                }
            }
            let leader = |&earlier: &usize| {
                let made = matches!(self.flows[earlier].state, CreationState::Made(..));
                made && forward[earlier] == hash && self.keys[earlier] == *key
            };
            if seen.may_contain(hash)
                && let Some(leader) = (0..place).find(leader)
            {
                self.flows[place].state = CreationState::SameFlow(leader as u8);
                continue;
            }
            let CreationState::Queried = self.flows[place].state else {
                continue;
            };
            let made = self.allocate_port(batch, ctx, place, reverses.len());
            // The missing resource may belong to the session that will be replaced, so end that session and retry.
            let made = match made {
                Err(_) if old.is_some() => {
                    replace::<F>(ctx, batch.meta(self.flows[place].slot), key, hash);
                    self.allocate_port(batch, ctx, place, reverses.len())
                }
                made => made,
            };
            self.flows[place].state = match made {
                Ok((made, overlaps)) => {
                    seen.mark(hash);
                    put(&mut reverses, F::make_key(made.reverse, F::protocol(&self.keys[place])));
                    CreationState::Made(made, overlaps)
                }
                Err(refusal) => CreationState::Refused(refusal),
            };
        }
        reverses
    }

    /// Allocates the resources of one new session. `before` is the number of sessions that earlier packets of the batch create.
    #[inline(always)]
    fn allocate_port(
        &self,
        batch: &Batch<'_, '_>,
        ctx: &mut NodeContext<'_, '_>,
        place: usize,
        before: usize,
    ) -> Result<(decision::Translation<F::Tuple>, bool), Refusal> {
        let (flow, key) = (&self.flows[place], &self.keys[place]);
        let meta = batch.meta(flow.slot);
        let now = ctx.now.nanoseconds;
        let forgotten = || (None, EngineReason::Forgotten.into());
        let FlowDecision::Session(translation) = &flow.decision else {
            return Err(forgotten());
        };
        let table = F::table_ref(shard_of(ctx, meta).ok_or_else(forgotten)?);
        let full =
            !table.has_capacity_for(before + 1) && !table.has_capacity_for(self.created_in(batch, meta.shard) + 1);
        let counted = admit_all::<F>(ctx, translation, F::tuple(key).context(), full)?;
        let shard = shard_of(ctx, meta).ok_or_else(forgotten)?;
        match translate::<F>(shard, key, (translation, &flow.request), full, now) {
            Ok((mut made, overlaps)) => {
                made.decision = made.decision.counted(counted);
                Ok((made, overlaps))
            }
            Err(refusal) => {
                if counted != Resources::NONE {
                    let counted = counted_by::<F>(translation, counted);
                    ctx.tools().leave(counted, F::tuple(key).context());
                }
                Err(refusal)
            }
        }
    }

    /// Number of sessions that this batch has added to a shard.
    #[cold]
    fn created_in(&self, batch: &Batch<'_, '_>, shard: u16) -> usize {
        let made = self
            .flows
            .iter()
            .filter(|flow| matches!(flow.state, CreationState::Made(..)));
        made.filter(|flow| batch.meta(flow.slot).shard == shard).count()
    }
}

/// A bit set of hashes. The set can report false positives, but no false negatives.
#[derive(Default)]
struct HashSieve([u64; 16]);

impl HashSieve {
    #[inline(always)]
    fn may_contain(&self, hash: u64) -> bool {
        self.0[hash as usize / 64 % 16] >> (hash % 64) & 1 != 0
    }
    #[inline(always)]
    fn mark(&mut self, hash: u64) {
        self.0[hash as usize / 64 % 16] |= 1 << (hash % 64);
    }
}

/// Whether a session may be created for a connection that is already established. The connection must not be
/// translated, because a new translation would change its addresses, and the midstream policy of inspection must permit
/// the session.
fn accepts_midstream<F: Family>(snapshot: &Snapshot, meta: &Meta, translation: &FlowTranslation<F>) -> bool {
    let Some(inspection) = snapshot.inspection.as_deref() else {
        return false;
    };
    let keeps = translation.pool.is_none() && translation.target.is_none() && translation.outside.is_none();
    keeps && is_inspected::<F>(inspection, meta, translation) && inspection.accepts_midstream(&meta.layers)
}

pub(super) fn is_inspected<F: Family>(
    inspection: &InspectionPolicy,
    meta: &Meta,
    translation: &FlowTranslation<F>,
) -> bool {
    inspection.is_on(meta.interface) || inspection.is_on(translation.hops[0].interface() as u16)
}

/// Whether a packet may create a session.
#[inline(always)]
fn admit<F: Family>(layers: &Layers, key: &F::Key, accepts_midstream: bool) -> Result<(), Refusal> {
    if layers.ttl <= 1 {
        return Err((Some(IcmpError::TimeExceeded), sluice_route::Reason::TtlExceeded.into()));
    }
    if F::protocol(key) == TCP && !is_first_segment(layers) && !accepts_midstream {
        return Err((None, sluice_nat::Reason::NotOpening.into()));
    }
    if layers.flags.has(Flags::ICMP_REPLY) {
        return Err((None, sluice_nat::Reason::Unsolicited.into()));
    }
    Ok(())
}

/// Checks the session limits of the pool and of the virtual router. The result tells whether the pool and the router
/// have counted the session.
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
        return Ok(Resources::NONE);
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
    let mut counted = Resources::NONE;
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

/// A decision without translation. It records only whether the pool and the router have counted the session.
fn counted_by<F: Family>(translation: &FlowTranslation<F>, counted: Resources) -> Decision {
    let pool = translation.pool.or(translation.mapped).unwrap_or_default();
    Decision::NONE.with_resources(pool, counted)
}

/// Allocates the port and creates the translation. The flag is true if another session may have the same port.
#[inline(always)]
fn translate<F: Family>(
    shard: &mut Shard<'_>,
    key: &F::Key,
    (translation, request): (&FlowTranslation<F>, &Option<PortRequest<F::Address>>),
    full: bool,
    now: u64,
) -> Result<(decision::Translation<F::Tuple>, bool), Refusal> {
    let (tuple, protocol) = (&F::tuple(key), F::protocol(key));
    // If no port is available, an inside host gets an ICMP error, but an outside host does not (RFC 6888, REQ-11).
    if full {
        let inside = translation.mapped.is_none();
        return Err((
            inside.then_some(IcmpError::NoResources),
            EngineReason::SessionsFull.into(),
        ));
    }
    if let (Some(pool), Some(request)) = (translation.pool, request) {
        let remote = translation.target.map_or(tuple.destination(), |target| target.address);
        let allocation = F::bindings(shard).allocate(request, tuple, remote, now);
        let allocation = allocation.map_err(|reason| (Some(IcmpError::NoResources), reason.into()))?;
        let source = NewSource::Allocated(pool, allocation.lease);
        let mut made = decision::translate(
            tuple,
            protocol,
            translation.answers(tuple.context()),
            translation.target,
            source,
        );
        made.decision = made.decision.with_resources(pool, allocation.resources);
        return Ok((made, allocation.overlaps));
    }
    let source = translation.outside.map_or(NewSource::Original, NewSource::Static);
    let mut made = decision::translate(
        tuple,
        protocol,
        translation.answers(tuple.context()),
        translation.target,
        source,
    );
    if let Some(pool) = translation.pool {
        made.decision = made.decision.with_resources(pool, Resources::NONE);
    }
    if let (Some(pool), Some(class)) = (
        translation.mapped,
        PortClass::of(protocol, <F::Address as Address>::BITS),
    ) {
        let parked_packets = F::bindings(shard).accept(tuple, class, now);
        let parked_packets = parked_packets.map_err(|reason| (None, reason.into()))?;
        made.decision = made.decision.with_resources(pool, parked_packets);
    }
    Ok((made, false))
}

/// The outside address of a flow whose protocol has no ports. `None` if the protocol has ports, or if the pool does not
/// translate it.
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
        .then(|| F::bindings_ref(shard).address_of(&F::tuple(key), pool))
        .flatten()
}

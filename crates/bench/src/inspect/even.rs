//! `even`: the baseline of P3 in the best implementation possible here. Each core receives from one interface, inspects
//! the packets, and sends them through the other interface. All cores share the flow table, which has a lock per
//! bucket.
//!
//! Parsing, validation, rules and search are the engine's code. The baseline has no timers and no counters per session,
//! so it does less work per packet than the engine.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use arrayvec::ArrayVec;
use sluice_dpdk::{DpdkIo, tsc};
use sluice_engine::features::inspection::classification::{facts, payload};
use sluice_engine::packet::io::{BURST_BUFFERS, BufferIndex, PacketIo, Packets, PortIndex};
use sluice_engine::packet::time::Now;
use sluice_inspect::evaluate::PacketFields;
use sluice_inspect::host_table::HostTable;
use sluice_inspect::inspector::{
    BurstContext, DetectionContext, FlowHandle, FlowPacket, Inspector, InspectorCapacity, Settings, Verdict,
};
use sluice_inspect::protocols::ParserCapacity;
use sluice_inspect::ruleset::Ruleset;
use sluice_inspect::scope::Endpoints;
use sluice_inspect::signature::Toward;
use sluice_inspect::stream;
use sluice_table::hash::Hasher;
use sluice_table::memory::Line;
use sluice_table::prefetch::prefetch_all_far_at;
use sluice_wire::ipv4::protocol;
use sluice_wire::layers::{self, Class, Layers};
use sluice_wire::validity::{self, Validity};
use sluice_wire::{Direction, FlowKey4, Packet};

use super::moving::Moving;
use super::traffic::FLOWS;
use crate::rows::Failure;

/// Number of buckets in the flow table. With this number, two cores rarely access the same bucket except for packets of
/// the same flow.
const BUCKETS: usize = 1_024;
/// Maximum number of flows per bucket, and maximum number of TCP connections among them.
const EACH: usize = 12;
const CONNECTIONS: usize = 8;
/// Maximum number of pauses between two attempts to take a lock.
const PAUSES: u32 = 64;

/// Flows of a bucket, with their inspection state.
struct Bucket<'m> {
    flows: ArrayVec<(FlowKey4, FlowHandle), EACH>,
    inspector: Inspector<'m>,
}

/// A value alone in its cache lines.
#[repr(align(128))]
struct Apart<T>(T);

/// State shared by all cores.
pub struct Shared<'m> {
    buckets: Vec<Apart<Mutex<Bucket<'m>>>>,
    rates: HostTable,
    settings: Settings,
    hasher: Hasher,
}

fn plan() -> InspectorCapacity {
    InspectorCapacity {
        flows: EACH as u32,
        streams: stream::StreamCapacity::of(CONNECTIONS),
        // The traffic uses no application protocol that the engine parses.
        protocols: ParserCapacity {
            messages: 1,
            names: 1,
            inflaters: 0,
            ..ParserCapacity::default()
        },
    }
}

/// Number of memory lines for the streams of all buckets; 0 if streams are not used.
pub fn lines(used: bool) -> usize {
    if used { plan().streams.lines() * BUCKETS } else { 0 }
}

impl<'m> Shared<'m> {
    /// Creates the state for these rules, in memory of [`lines`] lines; without streams if they are not used.
    pub fn new(rules: &Arc<Ruleset>, memory: &'m mut [Line], used: bool) -> Result<Self, Failure> {
        const { assert!(BUCKETS * EACH >= 4 * FLOWS as usize) };
        let (plan, hasher) = (plan(), Hasher::new([3, 4]));
        let mut memory = memory.chunks_exact_mut(plan.streams.lines());
        let mut buckets = Vec::with_capacity(BUCKETS);
        for _ in 0..if used { BUCKETS } else { 0 } {
            let memory = memory.next().ok_or("memory is short")?;
            let inspector = Inspector::new(&plan, rules.clone(), memory, Hasher::new([1, 2]))?;
            buckets.push(Apart(Mutex::new(Bucket {
                flows: ArrayVec::new(),
                inspector,
            })));
        }
        Ok(Self {
            buckets,
            rates: HostTable::new(64, [5, 6]),
            settings: Settings::default(),
            hasher,
        })
    }

    /// Locks the bucket of a flow; `None` if another core holds the lock.
    #[inline(always)]
    fn try_bucket(&self, hash: u64) -> Option<MutexGuard<'_, Bucket<'m>>> {
        let Apart(bucket) = &self.buckets[hash as usize % BUCKETS];
        match bucket.try_lock() {
            Ok(bucket) => Some(bucket),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(bucket)) => Some(bucket.into_inner()),
        }
    }

    /// Locks the bucket of a flow. Waits for the lock without sleeping, with increasing pauses, and adds the waiting
    /// time to `waited`.
    #[inline(always)]
    fn bucket(&self, hash: u64, waited: &mut u64) -> MutexGuard<'_, Bucket<'m>> {
        match self.try_bucket(hash) {
            Some(bucket) => bucket,
            None => self.wait(hash, waited),
        }
    }

    #[cold]
    fn wait(&self, hash: u64, waited: &mut u64) -> MutexGuard<'_, Bucket<'m>> {
        let (start, mut pauses) = (tsc::now(), 1);
        loop {
            (0..pauses).for_each(|_| std::hint::spin_loop());
            pauses = PAUSES.min(2 * pauses);
            if let Some(bucket) = self.try_bucket(hash) {
                *waited += tsc::now() - start;
                return bucket;
            }
        }
    }
}

/// State of one core of the baseline.
pub struct Even<'s, 'm> {
    shared: &'s Shared<'m>,
    pub io: DpdkIo,
    /// Detection context; `None` without inspection.
    pub tools: Option<DetectionContext>,
    receives: Vec<PortIndex>,
    pub passed: u64,
    pub dropped: u64,
    /// Cycles spent waiting for locks.
    pub waited: u64,
    /// Current assignment of interfaces to cores and the index of this core, if interfaces are moved between cores.
    moving: Option<(Arc<Moving>, usize)>,
}

impl<'s, 'm> Even<'s, 'm> {
    /// Creates the state of a core that receives from these interfaces.
    pub fn new(shared: &'s Shared<'m>, io: DpdkIo, tools: Option<DetectionContext>, receives: Vec<PortIndex>) -> Self {
        Self {
            shared,
            io,
            tools,
            receives,
            passed: 0,
            dropped: 0,
            waited: 0,
            moving: None,
        }
    }

    /// Makes this core receive only from the interfaces that `moving` assigns to it.
    pub fn move_by(&mut self, moving: Arc<Moving>, own: usize) {
        self.moving = Some((moving, own));
    }

    /// Processes a burst from each interface of this core; returns the number of packets.
    pub fn round(&mut self, now: Now) -> usize {
        let mut all = 0;
        for place in 0..self.receives.len() {
            let (port, start) = (self.receives[place], tsc::now());
            let count = self.burst(port, now);
            all += count;
            if let Some((moving, own)) = self.moving.as_ref().filter(|_| count > 0) {
                moving.worked(*own, port, tsc::now() - start);
            }
        }
        if let Some((moving, 0)) = &self.moving {
            moving.look(tsc::now());
        }
        all
    }

    fn burst(&mut self, port: PortIndex, now: Now) -> usize {
        let count = self.io.receive(port);
        if count == 0 {
            return 0;
        }
        let (mut pass, mut drop) = (
            ArrayVec::<BufferIndex, BURST_BUFFERS>::new(),
            ArrayVec::<BufferIndex, BURST_BUFFERS>::new(),
        );
        {
            let mut lent = Packets::new();
            self.io.packets(&mut lent);
            // Prefetch the bucket of each packet before the first packet is processed.
            let inspects = self.tools.is_some();
            let known: ArrayVec<Option<Flow>, BURST_BUFFERS> = lent
                .iter()
                .map(|packet| flow(self.shared, packet, port, inspects))
                .collect();
            for ((slot, packet), known) in (0..).zip(lent.iter_mut()).zip(&known) {
                let passes = known.as_ref().is_some_and(|flow| match self.tools.as_mut() {
                    Some(tools) if flow.layers.class == Class::Ipv4 => {
                        inspect(self.shared, tools, packet, flow, now, &mut self.waited)
                    }
                    _ => true,
                });
                match passes {
                    true => pass.push(slot),
                    false => drop.push(slot),
                }
            }
        }
        let sent = self.io.transmit(1 - port, &pass);
        self.passed += sent as u64;
        self.dropped += (drop.len() + pass.len() - sent) as u64;
        drop.extend(pass.into_iter().skip(sent));
        self.io.free(&drop);
        self.io.end();
        count
    }
}

/// Flow of a packet.
struct Flow {
    layers: Layers,
    direction: Direction,
    /// Flow key in the client's direction: packets of both directions share one record.
    key: FlowKey4,
    hash: u64,
}

/// Returns the flow of a valid packet; prefetches its bucket if packets are inspected.
#[inline(always)]
fn flow(shared: &Shared<'_>, packet: &Packet<'_>, port: PortIndex, inspects: bool) -> Option<Flow> {
    let layers = layers::parse(packet.bytes()).ok()?;
    let policy = validity::Policy::default();
    let valid = validity::validate(packet.bytes(), packet.checksums(), &layers, &policy);
    let Ok(Validity::Valid) = valid else { return None };
    let mut key = layers.key4(packet.bytes(), 0);
    let direction = match port {
        0 => Direction::Forward,
        _ => Direction::Reverse,
    };
    if direction == Direction::Reverse {
        key = key.reversed();
    }
    let mut hash = [0];
    if inspects {
        shared.hasher.hash4(&[key], &mut hash);
        prefetch_all_far_at(&shared.buckets, hash[0] as usize % BUCKETS);
    }
    Some(Flow {
        layers,
        direction,
        key,
        hash: hash[0],
    })
}

fn inspect(
    shared: &Shared<'_>,
    tools: &mut DetectionContext,
    packet: &mut Packet<'_>,
    flow: &Flow,
    now: Now,
    waited: &mut u64,
) -> bool {
    let Flow {
        layers,
        direction,
        key,
        hash,
    } = flow;
    let ends = ends(layers, packet.bytes(), *direction, true);
    let mut round = BurstContext {
        settings: &shared.settings,
        hosts: &shared.rates,
        context: tools,
        now: now.nanoseconds,
        matches: &mut |_| {},
        log: &mut |_, _| {},
    };
    let mut bucket = shared.bucket(*hash, waited);
    let bucket = &mut *bucket;
    let known = bucket.flows.iter().find(|(of, _)| of == key).map(|&(_, handle)| handle);
    let handle = known.or_else(|| {
        let handle = bucket.inspector.create_flow(layers.protocol == protocol::TCP)?;
        let client = match direction {
            Direction::Forward => ends,
            Direction::Reverse => ends.reversed(),
        };
        bucket.inspector.start_flow(handle, client, 0, now.nanoseconds);
        bucket.flows.try_push((*key, handle)).ok()?;
        Some(handle)
    });
    let Some(handle) = handle else { return false };
    let seen = seen(packet.bytes_mut(), layers, ends, *direction);
    bucket.inspector.inspect(handle, seen, &mut round) == Verdict::Pass
}

/// Endpoints of an IPv4 packet of a flow.
pub fn ends(layers: &Layers, frame: &[u8], direction: Direction, established: bool) -> Endpoints {
    let key = layers.key4(frame, 0).tuple();
    Endpoints {
        source: Ipv4Addr::from(key.source).into(),
        destination: Ipv4Addr::from(key.destination).into(),
        ports: [layers.source_port, layers.destination_port],
        protocol: layers.protocol,
        toward: match direction {
            Direction::Forward => Toward::Server,
            Direction::Reverse => Toward::Client,
        },
        established,
        service: None,
    }
}

/// An IPv4 packet as the engine passes it to inspection.
pub fn seen<'p>(frame: &'p mut [u8], layers: &Layers, ends: Endpoints, direction: Direction) -> FlowPacket<'p> {
    let facts = facts(layers, layers.datagram(frame), layers.payload(frame));
    let segment = &mut frame[usize::from(layers.l4)..usize::from(layers.end)];
    let payload = payload(layers.protocol, segment);
    FlowPacket {
        ends,
        fields: PacketFields {
            payload: (segment.len() - payload) as u32,
            ..facts
        },
        direction,
        segment,
        payload,
        own_side: true,
    }
}

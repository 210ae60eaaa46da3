//! Inspected flows: a fixed pool, addressed by handles of index and generation.

use sluice_table::prefetch::{prefetch_read_at, prefetch_write};
use sluice_wire::Direction;

use super::FlowAction;
use super::parser::FlowParser;
use super::pending::PendingRules;
use super::summary::FlowSummary;
use crate::bindings::vectorscan::{self, MatchAction, ScanStreams, Scratch};
use crate::prefilter::{PatternClass, Prefilter};
use crate::ruleset::PortSelection;
use crate::signature::{Service, Toward};
use crate::source_quota::{Source, SourceQuota};
use crate::stream;
use crate::transactions::PendingTransactions;
use crate::work_budget::WorkTokens;

/// Index and generation of a flow in its shard's pool; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowHandle(pub u32);

/// Binary logarithm of the lowest handle. The engine uses the lower numbers for other purposes.
const RESERVED_BITS: u32 = 4;

/// Whether the address of a flow's client is verified. The states are named as in conntrack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ReplyStatus {
    /// The client's address may be spoofed. The flow can be evicted.
    #[default]
    Unreplied,
    /// The server has replied, but the client's address may still be spoofed. The flow can be evicted.
    Replied,
    /// The client has answered the server: the flow is not evicted, and counts towards the quota of its source.
    Assured,
}

/// State of a flow; fields that every packet needs come first.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct FlowState {
    serial: u32,
    is_open: bool,
    pub reply_status: ReplyStatus,
    /// Source whose quota the flow uses after the flow has become assured.
    pub source: Source,
    /// Generation of the flow's ruleset.
    pub generation: u32,
    /// Direction of the last packet.
    pub last_sender: Option<Direction>,
    pub action: FlowAction,
    pub stream: stream::StreamHandle,
    /// Search states, by direction.
    pub scans: [Option<u32>; 2],
    /// Searched bytes.
    pub searched: u64,
    /// Whether bytes were not inspected, by direction.
    pub has_missed: [bool; 2],
    pub tokens: WorkTokens,
    pub service: Option<Service>,
    /// Rules selected by the flow's ports for the stream and for single packets, by direction.
    pub port_rules: [(PortSelection, PortSelection); 2],
    pub summary: FlowSummary,
    pub parser: FlowParser,
    /// Pending rules, by direction.
    pub pending: [PendingRules; 2],
    /// Transactions of the flow that are not logged yet.
    pub transactions: PendingTransactions,
}

/// The flows of a shard.
pub(super) struct FlowTable {
    flows: Box<[FlowState]>,
    free: Vec<u32>,
    bits: u32,
    /// Flows that are not assured, the oldest first.
    queue: Queue,
    /// Assured flows, by source.
    quota: SourceQuota,
    assured: usize,
}

/// A source may own at most this multiple of the number of free flows.
const QUOTA_MULTIPLE: usize = 4;

/// A linked list of pool indices in order of insertion, with removal of any element.
struct Queue {
    /// Previous and next index of each element; the last pair contains the last and the first element.
    links: Box<[[u32; 2]]>,
}

impl Queue {
    fn new(count: u32) -> Self {
        Self {
            links: (0..=count).map(|place| [place; 2]).collect(),
        }
    }

    /// Index of the sentinel, which is before the first and after the last element.
    fn end(&self) -> u32 {
        self.links.len() as u32 - 1
    }

    fn push(&mut self, place: u32) {
        let end = self.end();
        let last = self.links[end as usize][0];
        self.links[place as usize] = [last, end];
        self.links[last as usize][1] = place;
        self.links[end as usize][0] = place;
    }

    fn remove(&mut self, place: u32) {
        let [before, after] = std::mem::replace(&mut self.links[place as usize], [place; 2]);
        self.links[before as usize][1] = after;
        self.links[after as usize][0] = before;
    }

    fn first(&self) -> Option<u32> {
        let end = self.end();
        let first = self.links[end as usize][1];
        (first != end).then_some(first)
    }
}

impl FlowTable {
    pub fn new(count: u32) -> Self {
        let flow = |_| FlowState {
            serial: 0,
            is_open: false,
            reply_status: ReplyStatus::Unreplied,
            source: Source::UNVERIFIED,
            generation: 0,
            stream: stream::StreamHandle::NONE,
            scans: [None; 2],
            parser: FlowParser::default(),
            pending: Default::default(),
            action: FlowAction::Open,
            service: None,
            searched: 0,
            has_missed: [false; 2],
            tokens: WorkTokens::default(),
            last_sender: None,
            port_rules: Default::default(),
            summary: FlowSummary::default(),
            transactions: PendingTransactions::default(),
        };
        Self {
            flows: (0..count).map(flow).collect(),
            free: (0..count).rev().collect(),
            // Index bits of a handle. No handle may be one of the numbers that the engine reserves.
            bits: (32 - count.leading_zeros()).max(RESERVED_BITS),
            queue: Queue::new(count),
            quota: SourceQuota::new(QUOTA_MULTIPLE),
            assured: 0,
        }
    }

    /// Flow to evict if the pool is full: the oldest one that is not assured.
    pub fn eviction_candidate(&self) -> Option<FlowHandle> {
        if !self.free.is_empty() {
            return None;
        }
        let place = self.queue.first()?;
        let serial = self.flows.get(place as usize)?.serial;
        Some(FlowHandle(serial << self.bits | place))
    }

    /// Marks a flow as assured and accounts it to its source. Returns false, without effect, if the source has reached
    /// its quota.
    #[cold]
    pub fn mark_assured(&mut self, handle: FlowHandle) -> bool {
        let remaining = self.flows.len() - self.assured;
        let Some((flow, place)) = self.get(handle) else {
            return false;
        };
        let source = flow.source;
        if !self.quota.permits(source, 1, remaining) {
            return false;
        }
        self.flows[place].reply_status = ReplyStatus::Assured;
        self.quota.charge(source, 1);
        self.queue.remove(place as u32);
        self.assured += 1;
        true
    }

    /// Whether the flow of a handle still exists.
    #[inline(always)]
    pub fn contains(&self, handle: FlowHandle) -> bool {
        let place = (handle.0 & ((1 << self.bits) - 1)) as usize;
        self.flows
            .get(place)
            .is_some_and(|flow| flow.is_open && flow.serial == handle.0 >> self.bits)
    }

    pub fn allocate(&mut self, stream: stream::StreamHandle) -> Option<FlowHandle> {
        let place = self.free.pop()?;
        let flow = self.flows.get_mut(place as usize)?;
        let serials = 1 << (32 - self.bits);
        // Generation 0 is never used, so that no handle is 0. The last generation is not used either, because the
        // engine reserves it.
        flow.serial = match flow.serial + 1 {
            serial if serial + 1 >= serials => 1,
            serial => serial,
        };
        flow.is_open = true;
        (flow.reply_status, flow.source) = Default::default();
        flow.stream = stream;
        (flow.scans, flow.action, flow.service, flow.searched, flow.last_sender) =
            ([None; 2], FlowAction::Open, None, 0, None);
        (
            flow.parser,
            flow.summary,
            flow.transactions,
            flow.port_rules,
            flow.tokens,
        ) = Default::default();
        flow.has_missed = [false; 2];
        flow.pending.iter_mut().for_each(PendingRules::forget);
        let handle = FlowHandle(flow.serial << self.bits | place);
        self.queue.push(place);
        Some(handle)
    }

    /// The flow of a handle, and its index.
    pub fn get(&mut self, handle: FlowHandle) -> Option<(&mut FlowState, usize)> {
        let place = (handle.0 & ((1 << self.bits) - 1)) as usize;
        let flow = self.flows.get_mut(place)?;
        let is_match = flow.is_open && flow.serial == handle.0 >> self.bits;
        is_match.then_some((flow, place))
    }

    /// Prefetches the first cache line of a flow before its packet is processed.
    #[inline(always)]
    pub fn prefetch(&self, handle: FlowHandle) {
        prefetch_read_at(&self.flows, (handle.0 & ((1 << self.bits) - 1)) as usize);
    }

    /// Prefetches the other cache lines of a flow that most packets use.
    #[inline(always)]
    pub fn prefetch_more(&self, handle: FlowHandle) -> Option<&FlowState> {
        let flow = self.flows.get((handle.0 & ((1 << self.bits) - 1)) as usize)?;
        prefetch_write(&flow.port_rules);
        prefetch_write(&flow.summary);
        prefetch_write(&flow.parser);
        flow.pending.iter().for_each(prefetch_write);
        Some(flow)
    }

    pub fn release(&mut self, handle: FlowHandle) {
        let Some((flow, place)) = self.get(handle) else {
            return;
        };
        flow.is_open = false;
        let (status, source) = (flow.reply_status, flow.source);
        match status {
            ReplyStatus::Assured => {
                self.quota.release(source, 1);
                self.assured -= 1;
            }
            ReplyStatus::Unreplied | ReplyStatus::Replied => self.queue.remove(place as u32),
        }
        self.free.push(place as u32);
    }
}

/// Search states of streams, by direction of the connection.
pub(super) struct ScanStates([Option<ScanStreams>; 2]);

impl ScanStates {
    pub fn new(prefilter: &Prefilter, count: u32) -> Result<Self, vectorscan::Error> {
        let pool = |toward| {
            let database = prefilter
                .group(PatternClass::Stream(toward))
                .and_then(|group| group.stream());
            database
                .map(|database| ScanStreams::new(database.clone(), count))
                .transpose()
        };
        Ok(Self([pool(Toward::Server)?, pool(Toward::Client)?]))
    }

    /// Searches the next bytes of a direction. If no part of the message was searched with these rules before, the
    /// retained part of the message is searched, too. Returns false if no search state is free.
    pub fn scan(
        &mut self,
        states: &mut [Option<u32>; 2],
        direction: usize,
        (mut bytes, message): (&[u8], &[u8]),
        scratch: &mut Scratch,
        sink: impl FnMut(u32, u64) -> MatchAction,
    ) -> bool {
        let Some(Some(pool)) = self.0.get_mut(direction) else {
            return true;
        };
        let state = &mut states[direction];
        if state.is_none() {
            *state = pool.open();
            if message.len() > bytes.len() {
                bytes = message;
            }
        }
        let Some(state) = *state else { return false };
        pool.scan(state, bytes, scratch, sink);
        true
    }

    /// Prefetches the search state of a direction.
    #[inline(always)]
    pub fn prefetch(&self, states: &[Option<u32>; 2], direction: usize) {
        if let (Some(Some(pool)), Some(state)) = (self.0.get(direction), states[direction]) {
            pool.prefetch(state);
        }
    }

    /// Records scans from now on; streams are numbered from `first` on.
    pub fn record(&mut self, first: u32) {
        let pools = self.0.iter_mut().flatten();
        pools.for_each(|pool| pool.record(first));
    }

    /// Resets the search state because a new message begins.
    pub fn start(&mut self, states: &mut [Option<u32>; 2], direction: usize) {
        if let (Some(Some(pool)), Some(state)) = (self.0.get_mut(direction), states[direction]) {
            pool.reset(state);
        }
    }

    pub fn close(&mut self, states: &mut [Option<u32>; 2]) {
        for (pool, state) in self.0.iter_mut().zip(states) {
            if let (Some(pool), Some(state)) = (pool, state.take()) {
                pool.close(state);
            }
        }
    }
}

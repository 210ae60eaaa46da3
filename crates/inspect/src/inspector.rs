//! Inspects the flows of one shard: reassembles streams, searches them, parses protocols, and evaluates rules.
//!
//! The engine passes each packet of a session as it arrived and receives a [`Verdict`]. A packet is searched and its rules
//! are evaluated before it is forwarded, so that a drop rule also drops the packet that completes its match. Rules see
//! inside addresses.

mod actions;
mod buffers;
mod closed_connections;
mod detection;
mod events;
mod exceptions;
mod flow;
mod matched_rules;
mod parser;
mod pending;
mod reply_status;
mod ruleset_state;
mod summary;

use std::sync::Arc;

use sluice_table::hash::Hasher;
use sluice_table::memory::Line;
use sluice_wire::Direction;

pub use detection::{DetectionContext, FlowAction, MatchSink, RuleMatch, RuleNumber};
pub use flow::FlowHandle;
pub use ruleset_state::RulesetState;
pub use summary::FlowSummary;

use crate::bindings::vectorscan;
use crate::evaluate::{BufferView, PacketFields};
use crate::host_table::HostTable;
use crate::prefilter::PatternClass;
use crate::protocols::ftp::ControlHosts;
use crate::protocols::{self, Anomaly, FileHashes, ParserCapacity, ParserPools};
use crate::reason::{Limit, Reason, Skipped, Tally};
use crate::ruleset::Ruleset;
use crate::scope::Endpoints;
use crate::signature::{Buffer, Toward};
use crate::stream::{self, Exception, Policies, Policy, SegmentKind, StreamEvent, Streams};
use crate::transactions::{LoggedProtocols, TransactionPool, TransactionRecorder, TransactionSink};
use crate::work_budget::WorkBudget;
use buffers::{PacketBuffers, evaluate_message, evaluate_packet_rules, message};
use closed_connections::ClosedConnections;
use detection::PacketDetection;
use exceptions::ExceptionSet;
use flow::{FlowState, FlowTable, ReplyStatus};
use parser::ParserEvent;
use ruleset_state::RulesetStates;

/// Verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Forward the packet.
    Pass,
    /// Forward the packet without inspection.
    Skip(Skipped),
    /// Forward the packet, and bypass inspection for later packets of its flow. The reason is present if the packet
    /// itself was not inspected.
    Leave(Option<Skipped>),
    /// Drop the packet.
    Drop(Reason),
    /// Drop the packet, and notify client and server that the flow is rejected. For later packets of a rejected flow,
    /// only the sender is notified.
    Reject(Reason),
}

/// A packet of a flow, as the engine passes it.
pub struct FlowPacket<'a> {
    /// Endpoints, with inside addresses.
    pub ends: Endpoints,
    /// Header fields.
    pub fields: PacketFields,
    /// Direction in the session; forward packets come from the client.
    pub direction: Direction,
    /// The datagram from its layer-4 header to its end.
    pub segment: &'a mut [u8],
    /// Offset of the payload in `segment`.
    pub payload: usize,
    /// Whether the packet arrived on an interface on its sender's side of the gateway. If not, its acknowledgement and
    /// its reset flag are ignored.
    pub own_side: bool,
}

/// Configuration of inspection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Exception policies.
    pub policies: Policies,
    /// Number of inspected bytes after which a flow without matches is bypassed; 0 disables the bypass.
    pub depth: u64,
    /// Whether to bypass a flow once client and server send only encrypted data.
    pub leave_encrypted: bool,
    /// Whether rules only alert, without dropping packets.
    pub passive: bool,
    /// Whether to clear the urgent pointers of TCP segments, so that a receiver reads all data in order.
    pub clear_urgent: bool,
    /// Protocols whose transactions are logged.
    pub logged: LoggedProtocols,
}

impl Settings {
    /// Action for an exception. In passive mode, packets pass even where the configured policy drops them.
    pub fn policy(&self, exception: Exception) -> Policy {
        match self.policies.of(exception) {
            Policy::DropPacket | Policy::DropFlow if self.passive => Policy::Pass,
            said => said,
        }
    }
}

/// Capacity of the inspection of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InspectorCapacity {
    /// Maximum number of flows of all protocols.
    pub flows: u32,
    /// Capacity of the stream reassembly.
    pub streams: stream::StreamCapacity,
    /// Capacity of the parsers.
    pub protocols: ParserCapacity,
}

impl InspectorCapacity {
    /// Maximum number of flows.
    fn max_flows(&self) -> u32 {
        self.flows.clamp(1, 1 << 24)
    }

    /// Maximum number of large lists of pending rules. A flow uses a large list if its pending rules exceed the
    /// capacity of a small list. Each list takes two bits per rule.
    fn max_pending_lists(&self) -> u32 {
        (self.max_flows() / 16).clamp(8, 4_096)
    }
}

/// Counters of inspection, excluding the counters of streams and parsers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InspectorCounters {
    /// Searched bytes.
    pub searched: u64,
    /// Units of work that packets have caused.
    pub work_units: u64,
    /// Connections that could not be searched because all stream states of the search were in use.
    pub without_pattern: u64,
    /// Transactions that were not logged because the pool of open transactions was exhausted.
    pub unlogged: u64,
    /// Flows that switched to a newer ruleset.
    pub rule_switches: u64,
}

/// Inspection of one shard.
pub struct Inspector<'m> {
    rulesets: RulesetStates,
    flows: FlowTable,
    streams: Streams<'m>,
    store: ParserPools,
    /// The work budget that the parsers share.
    work: WorkBudget,
    /// Exceptions that the content of the current packet has raised.
    exceptions: ExceptionSet,
    transactions: TransactionPool,
    closed_connections: ClosedConnections,
    hasher: Hasher,
    /// Number of the next flow.
    next_number: u64,
    /// Counters.
    pub counters: InspectorCounters,
    /// Limits that were reached.
    pub limits: Tally<{ Limit::ALL.len() }>,
}

/// State that is common to all packets of a burst.
pub struct BurstContext<'a> {
    /// Configuration.
    pub settings: &'a Settings,
    /// Match rates and xbits of hosts.
    pub hosts: &'a HostTable,
    /// Scratch memory of the worker for detection.
    pub context: &'a mut DetectionContext,
    /// Nanoseconds since the start.
    pub now: u64,
    /// Sink of rule matches.
    pub matches: MatchSink<'a>,
    /// Sink of complete transactions.
    pub log: TransactionSink<'a>,
}

/// Why inspection can't be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The memory of the streams does not fit.
    #[error(transparent)]
    Streams(#[from] stream::CapacityError),
    /// Vectorscan could not allocate memory.
    #[error("no memory for the states of the pattern search: {0}")]
    Search(#[from] vectorscan::Error),
}

impl<'m> Inspector<'m> {
    /// Creates the inspection of a shard. `memory` is the memory of the shard's streams and has
    /// [`StreamCapacity::lines`](stream::StreamCapacity::lines) lines.
    pub fn new(
        plan: &InspectorCapacity,
        rules: Arc<Ruleset>,
        memory: &'m mut [Line],
        hasher: Hasher,
    ) -> Result<Self, Error> {
        let store = ParserPools::new(&plan.protocols);
        Ok(Self {
            flows: FlowTable::new(plan.max_flows()),
            streams: Streams::new(memory, &plan.streams, hasher)?,
            closed_connections: ClosedConnections::new(plan.max_flows() as usize, hasher),
            hasher,
            work: store.work.clone(),
            exceptions: ExceptionSet::default(),
            store,
            transactions: TransactionPool::new(plan.protocols.transactions),
            next_number: 1,
            rulesets: RulesetStates::new(RulesetState::new(plan, rules, 0)?),
            counters: InspectorCounters::default(),
            limits: Tally::default(),
        })
    }

    /// Creates a flow. If the table is full, the oldest flow with an unverified client address is evicted, because such
    /// flows may be a flood with spoofed sources. Returns `None` if the table is full and no flow can be evicted.
    pub fn create_flow(&mut self, tcp: bool) -> Option<FlowHandle> {
        if let Some(oldest) = self.flows.eviction_candidate() {
            self.limits.add(Limit::FlowsEvicted as usize);
            self.end_flow(oldest, true);
        }
        let stream = match tcp {
            true => self.streams.open()?,
            false => stream::StreamHandle::NONE,
        };
        let opened = self.flows.allocate(stream);
        if let Some((flow, place)) = opened.and_then(|opened| self.flows.get(opened)) {
            self.rulesets.start_flow(flow, place);
        }
        if opened.is_none() && tcp {
            self.streams.close(stream);
        }
        opened
    }

    /// Whether the flow still exists; false if it was evicted.
    #[inline(always)]
    pub fn contains(&self, handle: FlowHandle) -> bool {
        self.flows.contains(handle)
    }

    /// Removes a flow.
    pub fn remove_flow(&mut self, handle: FlowHandle) {
        self.end_flow(handle, false);
    }

    /// Removes a flow. `early` is true if the flow's session continues.
    fn end_flow(&mut self, handle: FlowHandle, early: bool) {
        let Some((flow, _)) = self.flows.get(handle) else {
            return;
        };
        let is_dropped = matches!(flow.action, FlowAction::Dropped | FlowAction::Rejected);
        let is_over =
            is_dropped && (early || flow.stream != stream::StreamHandle::NONE) || self.streams.ended(flow.stream);
        if is_over && let Some(ends) = &flow.summary.ends {
            self.closed_connections.add(ends, flow.summary.seen[1]);
        }
        self.streams.close(flow.stream);
        self.rulesets.end_flow(flow);
        flow.parser.release(&mut self.store);
        flow.transactions.release(&mut self.transactions);
        self.flows.release(handle);
    }

    /// Access to the streams, for their counters.
    pub fn streams(&mut self) -> &mut Streams<'m> {
        &mut self.streams
    }

    /// Records scans from now on; [`DetectionContext::take_scan_log`] returns them. Streams are numbered from `first` on, so
    /// that the streams of several shards can be distinguished.
    pub fn record_scans(&mut self, tools: &mut DetectionContext, first: u32) {
        self.rulesets.current().scans.record(first);
        tools.scratch.record();
    }

    /// Reports the anomalies and limits counted since the last call. The callbacks receive the number of an anomaly or limit, and its count.
    #[inline(always)]
    pub fn report_counts(&mut self, anomaly: impl FnMut(usize, u64), limit: impl FnMut(usize, u64)) {
        self.store.anomalies.report(anomaly);
        self.limits.report(limit);
    }

    /// Counters of the parsers' anomalies.
    pub fn anomalies(&self) -> &protocols::AnomalyCounts {
        &self.store.anomalies
    }

    /// Prefetches the first cache line of a flow. The packet of the flow is processed after the next packet.
    #[inline(always)]
    pub fn prefetch(&self, handle: FlowHandle) {
        self.flows.prefetch(handle);
    }

    /// Prefetches the data that the first cache line of a flow refers to. The packet of the flow is processed after the next packet.
    #[inline(always)]
    pub fn prefetch_more(&self, handle: FlowHandle, direction: Direction) {
        if let Some(flow) = self.flows.prefetch_more(handle)
            && flow.stream != stream::StreamHandle::NONE
        {
            self.streams.prefetch(flow.stream);
            self.rulesets.prefetch(flow, direction as usize);
        }
    }

    /// Prefetches the memory into which the next packet's bytes are copied.
    #[inline(always)]
    pub fn prefetch_window(&mut self, handle: FlowHandle, direction: Direction) {
        if let Some((flow, _)) = self.flows.get(handle) {
            self.streams.prefetch_window(flow.stream, direction);
        }
    }

    /// Handles a packet of a flow without inspecting it if the flow's verdict is final already. `None` if the packet has to
    /// be inspected, or if the flow was evicted.
    pub fn decided_verdict(&mut self, handle: FlowHandle, now: u64) -> Option<Verdict> {
        let (flow, _) = self.flows.get(handle)?;
        flow.summary.seen[1] = now;
        match flow.action {
            FlowAction::Open => None,
            FlowAction::Passed(reason) => Some(Verdict::Skip(reason)),
            // Senders that continue after a reject are notified again.
            FlowAction::Rejected if flow.stream != stream::StreamHandle::NONE => {
                Some(Verdict::Reject(Reason::FlowDropped))
            }
            FlowAction::Dropped | FlowAction::Rejected => Some(Verdict::Drop(Reason::FlowDropped)),
        }
    }

    /// Number of searched bytes of a flow, if no rule is pending.
    pub fn cleared_bytes(&mut self, handle: FlowHandle) -> Option<u64> {
        let (flow, _) = self.flows.get(handle)?;
        let lists = self.rulesets.lists(flow.generation);
        let waits = flow.pending.iter().any(|waiting| !waiting.is_empty(lists));
        (!waits).then_some(flow.searched)
    }

    /// Inspects a packet of a flow.
    pub fn inspect(&mut self, handle: FlowHandle, seen: FlowPacket<'_>, round: &mut BurstContext<'_>) -> Verdict {
        if let Some(verdict) = self.decided_verdict(handle, round.now) {
            return verdict;
        }
        round.context.evaluator.set_budget(&self.work);
        let stream = self.flows.get(handle).map(|(flow, _)| flow.stream);
        let verdict = match stream.unwrap_or(stream::StreamHandle::NONE) {
            stream::StreamHandle::NONE => self.inspect_datagram(handle, seen, round),
            _ => self.inspect_segment(handle, seen, round),
        };
        let verdict = self.apply_actions(handle, verdict, round);
        if self.exceptions == ExceptionSet::default() {
            return verdict;
        }
        self.apply_content_policies(handle, verdict, round.settings)
    }

    fn inspect_segment(
        &mut self,
        handle: FlowHandle,
        mut seen: FlowPacket<'_>,
        round: &mut BurstContext<'_>,
    ) -> Verdict {
        let Some((flow, _)) = self.flows.get(handle) else {
            return Verdict::Drop(Reason::Closed);
        };
        let (stream, direction, status) = (flow.stream, seen.direction, flow.reply_status);
        if round.settings.clear_urgent {
            self.streams.clear_urgent(seen.segment);
        }
        if status != ReplyStatus::Assured
            && let Err(exception) = self.update_reply_status(handle, &seen)
        {
            self.streams.count(exception);
            return self.apply_policy(handle, exception, round.settings);
        }
        let mut step = self.streams.segment(stream, direction, seen.own_side, seen.segment);
        if step == SegmentKind::Exception(Exception::Midstream) && self.is_closed(handle) {
            step = SegmentKind::Exception(Exception::Closed);
            self.streams.count(Exception::Closed);
        }
        if let SegmentKind::Exception(exception) = step
            && round.settings.policy(exception) == Policy::Pass
        {
            if exception == Exception::GapFull {
                self.stream_event(handle, &seen, StreamEvent::Gap, round);
            }
            if matches!(
                exception,
                Exception::Midstream | Exception::Handshake | Exception::GapFull
            ) {
                self.skip_bytes(handle, exception, direction);
            }
            match exception {
                Exception::GapFull if self.streams.skip_gap(stream, direction) => {
                    let verdict = self.inspect_reassembled(handle, &mut seen, Verdict::Pass, round);
                    if verdict != Verdict::Pass {
                        return verdict;
                    }
                }
                Exception::Midstream | Exception::Handshake | Exception::GapFull => {
                    self.streams.pick_up(stream, direction, seen.segment);
                }
                _ => return self.apply_policy(handle, exception, round.settings),
            }
            step = self.streams.segment(stream, direction, seen.own_side, seen.segment);
        }
        self.step_events(handle, &seen, step, round);
        match step {
            SegmentKind::InOrder {
                from, to, offset, ends, ..
            } => {
                if offset == 0
                    && let Some((flow, place)) = self.flows.get(handle)
                {
                    let ruleset = self.rulesets.of(flow, place, round.now);
                    ruleset.scans.start(&mut flow.scans, direction as usize);
                }
                let verdict = self.inspect_in_order(handle, &mut seen, StreamData::Packet { from, to, ends }, round);
                self.inspect_reassembled(handle, &mut seen, verdict, round)
            }
            SegmentKind::OutOfOrder { .. } | SegmentKind::Retransmission { .. } => {
                self.inspect_in_order(handle, &mut seen, StreamData::NO_DATA, round)
            }
            SegmentKind::Exception(exception) => self.apply_policy(handle, exception, round.settings),
        }
    }

    /// Records that bytes of a direction were not inspected. If the start of the stream was missed, both directions are marked.
    #[cold]
    fn skip_bytes(&mut self, handle: FlowHandle, exception: Exception, direction: Direction) {
        if let Some((flow, _)) = self.flows.get(handle) {
            match exception {
                Exception::GapFull => flow.has_missed[direction as usize] = true,
                _ => flow.has_missed = [true; 2],
            }
        }
    }

    /// If this packet has filled a gap, inspects the bytes queued behind the gap before the packet is forwarded.
    #[inline(always)]
    fn inspect_reassembled(
        &mut self,
        handle: FlowHandle,
        seen: &mut FlowPacket<'_>,
        mut verdict: Verdict,
        round: &mut BurstContext<'_>,
    ) -> Verdict {
        while matches!(verdict, Verdict::Pass | Verdict::Leave(_))
            && let Some((flow, _)) = self.flows.get(handle)
            && let Some(stream::QueuedData { length, ends }) = self.streams.next_queued(flow.stream, seen.direction)
        {
            verdict = self.inspect_in_order(handle, seen, StreamData::Reassembled { length, ends }, round);
        }
        verdict
    }

    /// Inspects the next bytes of a stream. If the next bytes are part of the current packet, packet rules are evaluated, too.
    fn inspect_in_order(
        &mut self,
        handle: FlowHandle,
        seen: &mut FlowPacket<'_>,
        piece: StreamData,
        round: &mut BurstContext<'_>,
    ) -> Verdict {
        let Some((flow, place)) = self.flows.get(handle) else {
            return Verdict::Drop(Reason::Closed);
        };
        let ruleset = self.rulesets.of(flow, place, round.now);
        let (rules, scans, notes, lists) = ruleset.parts(place);
        let FlowState {
            stream,
            scans: states,
            parser,
            pending: waiting,
            action: flow_action,
            service,
            searched,
            last_sender,
            port_rules: of_ports,
            summary,
            transactions: pending,
            tokens,
            source,
            has_missed,
            ..
        } = flow;
        let (stream, direction) = (*stream, seen.direction);
        let place = direction as usize;
        let toward = toward(direction);
        seen.fields.sent = [Direction::Forward, Direction::Reverse].map(|of| {
            let view = self.streams.view(stream, of);
            view.offset + view.bytes.len() as u64
        });
        seen.ends.service = *service;
        let (bytes, ends_stream) = match piece {
            StreamData::Packet { from, to, ends } => (seen.segment.get(from..to).unwrap_or_default(), ends),
            StreamData::Reassembled { length, ends } => {
                let view = self.streams.view(stream, direction).bytes;
                (
                    view.get(view.len() - length.min(view.len())..).unwrap_or_default(),
                    ends,
                )
            }
        };
        let started = self.work.start(*tokens, bytes.len());
        self.store.set_source(*source);
        self.store.hash_files(match has_missed[place] {
            true => FileHashes::NONE,
            false => rules.file_hashes(),
        });
        lists.set_source(*source);
        let exceeded = self.store.anomalies.of(Anomaly::WorkExceeded);
        let [current, others] = match direction {
            Direction::Forward => {
                let [current, others] = waiting;
                [current, others]
            }
            Direction::Reverse => {
                let [others, current] = waiting;
                [current, others]
            }
        };
        let prefilter = rules.prefilter();
        let ends = &mut seen.ends;
        macro_rules! detection {
            ($waiting:expr, $ends:expr, $stream:expr, $unknown:expr) => {
                PacketDetection {
                    rules,
                    hosts: round.hosts,
                    second: (round.now / 1_000_000_000) as u32,
                    ends: $ends,
                    fields: &seen.fields,
                    context: round.context,
                    flow_vars: notes,
                    pending: $waiting,
                    lists: &mut *lists,
                    action: flow_action,
                    stream: $stream,
                    unknown: $unknown,
                    by_packet: false,
                }
            };
        }
        macro_rules! recorder {
            () => {
                TransactionRecorder {
                    logged: round.settings.logged,
                    pool: &mut self.transactions,
                    pending: &mut *pending,
                    flow: summary.number,
                    sink: &mut *round.log,
                }
            };
        }
        // The message of the other direction has ended, so rules that depend on its end are evaluated once more.
        if !bytes.is_empty() && *last_sender != Some(direction) {
            *last_sender = Some(direction);
            if !others.is_empty(lists) {
                let view = message(&self.streams, stream, direction.opposite(), true);
                let turned = ends.reversed();
                let sent = buffers::stream(&self.streams, stream, direction.opposite());
                let mut detection = detection!(others, &turned, Some(sent), false);
                let ended = PacketBuffers {
                    payload: view,
                    slot: parser.slot(turned.toward, &self.store),
                    unknown: false,
                    ended: true,
                };
                detection.evaluate_pending(None, &ended);
                others.next_message(lists);
            }
            current.next_message(lists);
        }
        let payload = message(&self.streams, stream, direction, ends_stream);
        // The preceding stream data, if the stream view extends beyond the message.
        let sent = buffers::stream(&self.streams, stream, direction);
        let before = (sent.bytes.len() > payload.bytes.len()).then_some(sent);
        if !bytes.is_empty() && *flow_action == FlowAction::Open {
            let (hosts, port) = hosts(ends, summary.number, round.now);
            let of = (toward, &hosts, port);
            parser.bytes(
                of,
                bytes,
                &mut self.store,
                service,
                &mut |said: ParserEvent<'_>, known| {
                    let (slot, piece) = match said {
                        ParserEvent::Bytes(toward, bytes) => return recorder!().bytes(toward, bytes, known),
                        ParserEvent::Piece(slot, piece) => (slot, piece),
                    };
                    recorder!().piece(slot, &piece, known);
                    if *flow_action == FlowAction::Open {
                        ends.service = known;
                        evaluate_message(&mut detection!(current, ends, before, false), payload, slot, &piece);
                    }
                },
            );
            ends.service = *service;
        }
        let unknown = parser.is_unknown();
        if ends_stream && *flow_action == FlowAction::Open {
            parser.close(toward, &mut self.store, &mut |said: ParserEvent<'_>, known| {
                let ParserEvent::Piece(slot, piece) = said else { return };
                recorder!().piece(slot, &piece, known);
                if *flow_action == FlowAction::Open {
                    evaluate_message(&mut detection!(current, ends, before, false), payload, slot, &piece);
                }
            });
        }
        if (!bytes.is_empty() || ends_stream) && *flow_action == FlowAction::Open {
            let known = PacketBuffers {
                payload,
                slot: parser.slot(toward, &self.store),
                unknown: unknown && !ends_stream,
                ended: false,
            };
            if let Some(group) = prefilter.group(PatternClass::Stream(toward))
                && !bytes.is_empty()
            {
                let (scratch, sink) = PacketDetection::add_candidate(round.context, group);
                if !scans.scan(states, place, (bytes, payload.bytes), scratch, sink) {
                    self.counters.without_pattern += 1;
                    self.exceptions.add_if(true, Exception::NoMemory);
                }
            }
            let mut detection = detection!(current, ends, before, unknown);
            // After the end of a stream no buffer grows further.
            detection.evaluate_pending((!ends_stream).then_some(Buffer::Payload), &known);
            detection.evaluate_candidates(&known);
            detection.evaluate_of_ports(rules.stream_rules(toward), &of_ports[place].0, &known);
            detection.evaluate_blocked(&known);
            self.counters.searched += bytes.len() as u64;
            *searched += bytes.len() as u64;
        }
        if *flow_action == FlowAction::Open && matches!(piece, StreamData::Packet { .. }) {
            let packet = BufferView {
                bytes: seen.segment.get(seen.payload..).unwrap_or_default(),
                base: 0,
                complete: true,
                is_final: true,
            };
            let known = PacketBuffers {
                payload: packet,
                slot: None,
                unknown: false,
                ended: false,
            };
            let mut detection = detection!(current, ends, None, false);
            evaluate_packet_rules(&mut detection, &known, PatternClass::Packet, &of_ports[place].1);
        }
        let deep = round.settings.depth > 0 && *searched >= round.settings.depth;
        let clean = deep && current.is_empty(lists) && others.is_empty(lists);
        self.counters.unlogged = self.transactions.lost;
        self.counters.rule_switches = self.rulesets.switches;
        *tokens = self.work.end(started);
        self.counters.work_units += u64::from(started.units() - tokens.units());
        // If a decoder exceeded the budget, the decoder has already counted the anomaly.
        if self.work.is_exhausted() && self.store.anomalies.of(Anomaly::WorkExceeded) == exceeded {
            self.store.anomalies.add(Anomaly::WorkExceeded);
        }
        self.exceptions.add_if(self.work.is_exhausted(), Exception::Work);
        if let Some(anomalies) = self.store.anomalies.take_recent() {
            self.exceptions.add_all(anomalies.filter_map(Anomaly::exception));
        }
        match *flow_action {
            FlowAction::Open if clean => Verdict::Leave(None),
            FlowAction::Open if round.settings.leave_encrypted && parser.is_encrypted() => {
                Verdict::Leave(Some(Skipped::Encrypted))
            }
            _ => Verdict::Pass,
        }
    }

    fn inspect_datagram(
        &mut self,
        handle: FlowHandle,
        mut seen: FlowPacket<'_>,
        round: &mut BurstContext<'_>,
    ) -> Verdict {
        let Some((flow, _)) = self.flows.get(handle) else {
            return Verdict::Drop(Reason::Closed);
        };
        if flow.reply_status != ReplyStatus::Assured
            && let Err(exception) = self.update_reply_status(handle, &seen)
        {
            self.streams.count(exception);
            return self.apply_policy(handle, exception, round.settings);
        }
        let Some((flow, place)) = self.flows.get(handle) else {
            return Verdict::Drop(Reason::Closed);
        };
        let ruleset = self.rulesets.of(flow, place, round.now);
        let (rules, _, notes, lists) = ruleset.parts(place);
        let FlowState {
            parser,
            pending: waiting,
            action: flow_action,
            service,
            searched,
            port_rules: of_ports,
            summary,
            transactions: pending,
            tokens,
            source,
            ..
        } = flow;
        let bytes = seen.segment.get(seen.payload..).unwrap_or_default();
        let started = self.work.start(*tokens, bytes.len());
        self.store.set_source(*source);
        lists.set_source(*source);
        let waiting = &mut waiting[seen.direction as usize];
        // Each datagram counts as a separate message.
        waiting.start(lists);
        seen.ends.service = *service;
        let payload = BufferView {
            bytes,
            base: 0,
            complete: true,
            is_final: true,
        };
        let ends = &mut seen.ends;
        macro_rules! detection {
            () => {
                PacketDetection {
                    rules,
                    hosts: round.hosts,
                    second: (round.now / 1_000_000_000) as u32,
                    ends,
                    fields: &seen.fields,
                    context: round.context,
                    flow_vars: notes,
                    pending: waiting,
                    lists: &mut *lists,
                    action: flow_action,
                    stream: None,
                    unknown: false,
                    by_packet: false,
                }
            };
        }
        macro_rules! recorder {
            () => {
                TransactionRecorder {
                    logged: round.settings.logged,
                    pool: &mut self.transactions,
                    pending: &mut *pending,
                    flow: summary.number,
                    sink: &mut *round.log,
                }
            };
        }
        parser.datagram(
            (ends.toward, ends.ports),
            bytes,
            &mut self.store,
            service,
            &mut |said: ParserEvent<'_>, known| {
                let ParserEvent::Piece(slot, piece) = said else { return };
                ends.service = known;
                let mut detection = detection!();
                evaluate_message(&mut detection, payload, slot, &piece);
            },
        );
        ends.service = *service;
        recorder!().datagram(ends.toward, bytes, *service);
        if *flow_action == FlowAction::Open {
            let known = PacketBuffers {
                payload,
                slot: None,
                unknown: false,
                ended: false,
            };
            let mut detection = detection!();
            evaluate_packet_rules(
                &mut detection,
                &known,
                PatternClass::Datagram,
                &of_ports[seen.direction as usize].1,
            );
        }
        self.counters.searched += bytes.len() as u64;
        *searched += bytes.len() as u64;
        self.counters.unlogged = self.transactions.lost;
        self.counters.rule_switches = self.rulesets.switches;
        *tokens = self.work.end(started);
        self.counters.work_units += u64::from(started.units() - tokens.units());
        if self.work.is_exhausted() {
            self.store.anomalies.add(Anomaly::WorkExceeded);
            self.exceptions.add_if(true, Exception::Work);
        }
        if let Some(anomalies) = self.store.anomalies.take_recent() {
            self.exceptions.add_all(anomalies.filter_map(Anomaly::exception));
        }
        match *flow_action {
            FlowAction::Open if round.settings.depth > 0 && *searched >= round.settings.depth => Verdict::Leave(None),
            _ => Verdict::Pass,
        }
    }
}

/// The next bytes of a stream.
#[derive(Clone, Copy, Debug)]
enum StreamData {
    /// Bytes of the packet, as offsets in its segment.
    Packet { from: usize, to: usize, ends: bool },
    /// The last bytes of the direction's view. They were queued behind a gap before the current packet arrived, or they
    /// are the remainder of the current packet.
    Reassembled { length: usize, ends: bool },
}

impl StreamData {
    /// A packet without new bytes in order.
    const NO_DATA: Self = Self::Packet {
        from: 0,
        to: 0,
        ends: false,
    };
}

/// Client and server of a flow, and the server port.
fn hosts(ends: &Endpoints, flow: u64, now: u64) -> (ControlHosts, u16) {
    let [from, to] = ends.ports;
    let (client, server, port) = match ends.toward {
        Toward::Server => (ends.source, ends.destination, to),
        Toward::Client => (ends.destination, ends.source, from),
    };
    let second = (now / 1_000_000_000) as u32;
    let hosts = ControlHosts {
        client,
        server,
        flow,
        second,
    };
    (hosts, port)
}

/// Receiver of the packets of a direction: the server for forward packets.
fn toward(direction: Direction) -> Toward {
    match direction {
        Direction::Forward => Toward::Server,
        Direction::Reverse => Toward::Client,
    }
}

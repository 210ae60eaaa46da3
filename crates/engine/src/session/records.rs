//! Log records of inspected flows: dropped packets, transactions, and ends of flows. A bounded queue passes records from a worker
//! to the logger and never blocks the worker.

use std::cell::RefCell;
use std::net::IpAddr;

use sluice_inspect::Reason;
use sluice_inspect::applications::ProtocolPair;
use sluice_inspect::inspector::{FlowSummary, RuleNumber};
use sluice_inspect::scope::Endpoints;
use sluice_inspect::signature::{Service, Toward};
use sluice_inspect::transactions::Transaction;
use sluice_nat::tracking::TcpState;
use sluice_wire::Direction;
use sluice_wire::ipv4::protocol;

use crate::packet::counters::WorkerCounters;
use crate::session::record::Track;

/// Kinds of log records to write, in addition to alerts and transactions. [`sluice_inspect::inspector::Settings`]
/// selects which transactions are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Whether to write a record for each packet that inspection drops.
    pub drops: bool,
    /// Whether to write a record for each flow that ends.
    pub flows: bool,
    /// Capacity of each worker's queue. Records beyond the capacity are counted as lost. With capacity 0, there is no
    /// queue.
    pub max: usize,
}

/// The packet or flow that a record describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSubject {
    /// Time in nanoseconds since the start.
    pub at: u64,
    /// Number of the flow. The number is unique, and all records of a flow contain it. It is 0 if the packet belongs to
    /// no flow.
    pub flow: u64,
    /// Source and destination address of the packet, or client and server address of the flow, as inside hosts see
    /// them.
    pub addresses: [IpAddr; 2],
    /// Source and destination port of the packet, or client and server port of the flow.
    pub ports: [u16; 2],
    /// IP protocol of the flow.
    pub protocol: u8,
    /// Whether the client sent the packet.
    pub to_server: bool,
    /// Interface on which the packet, or the first packet of the flow, arrived.
    pub interface: u16,
    /// The application protocol, if known.
    pub service: Option<Service>,
}

/// The number of a flow, unique among all shards.
pub fn flow_number(shard: u16, number: u64) -> u64 {
    u64::from(shard) << 48 | number
}

impl RecordSubject {
    /// The description of a packet between two endpoints.
    pub fn packet(at: u64, flow: u64, ends: &Endpoints, interface: u16) -> Self {
        Self {
            at,
            flow,
            addresses: [ends.source, ends.destination],
            ports: ends.ports,
            protocol: ends.protocol,
            to_server: ends.toward == Toward::Server,
            interface,
            service: ends.service,
        }
    }

    /// The description of a flow, or of a packet that belongs to the flow and has the given direction. `None` if the
    /// endpoints of the flow are not known.
    pub fn flow(at: u64, shard: u16, summary: &FlowSummary, direction: Direction) -> Option<Self> {
        let ends = summary.ends?;
        let ends = match direction {
            Direction::Forward => ends,
            Direction::Reverse => ends.reversed(),
        };
        let number = flow_number(shard, summary.number);
        Some(Self {
            service: summary.service,
            ..Self::packet(at, number, &ends, summary.interface)
        })
    }
}

/// How a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Time of the first and of the last inspected packet, in nanoseconds.
    pub seen: [u64; 2],
    /// Number of packets from the client, and number of packets from the server.
    pub packets: [u64; 2],
    /// Number of bytes from the client, and number of bytes from the server.
    pub bytes: [u64; 2],
    /// State of the flow at its end.
    pub state: FlowState,
    /// Reason for which the flow ended.
    pub reason: EndReason,
    /// Whether a rule has raised an alert.
    pub alerted: bool,
    /// The application of the flow according to nDPI; `None` if it was not identified.
    pub application: Option<ProtocolPair>,
}

/// State of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowState {
    /// One endpoint has sent packets.
    New,
    /// Both endpoints have sent packets.
    Established,
    /// Both endpoints have closed the connection, or one endpoint has reset it.
    Closed,
    /// The flow is no longer inspected.
    Bypassed,
}

/// Reason for which a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The session of the flow timed out.
    Timeout,
    /// An operator or a change of configuration ended the session of the flow.
    Forced,
    /// The flow continues without inspection, because inspection found it clean or because of a policy.
    Bypass,
}

impl Ended {
    /// Describes the end of a flow from the flow and its session.
    pub fn of(
        summary: &FlowSummary,
        protocol: u8,
        track: &Track,
        application: Option<ProtocolPair>,
        reason: EndReason,
    ) -> Self {
        let answered = track.packets().iter().all(|&packets| packets > 0);
        let state = match track.tracking.state() {
            _ if reason == EndReason::Bypass => FlowState::Bypassed,
            TcpState::BothFin | TcpState::Transitory if protocol == protocol::TCP => FlowState::Closed,
            TcpState::Closed | TcpState::Init if protocol == protocol::TCP => FlowState::New,
            _ if answered => FlowState::Established,
            _ => FlowState::New,
        };
        Self {
            seen: summary.seen,
            packets: track.packets(),
            bytes: track.bytes(),
            state,
            reason,
            alerted: summary.alerted,
            application,
        }
    }
}

/// Content of a log record.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a place of the queue has the size of the largest, and nothing is allocated"
)]
pub enum RecordKind {
    /// A packet was dropped.
    Drop {
        /// Reason of the drop.
        reason: Reason,
        /// Number of the rule that dropped the packet, if a rule did.
        rule: Option<RuleNumber>,
        /// Length of the packet's IP datagram in bytes; 0 if it is no longer known.
        length: u32,
    },
    /// A flow ended.
    Flow(Ended),
    /// A transaction of a flow.
    Transaction(Transaction),
}

/// A log record of an inspected flow.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// The packet or flow that the record describes.
    pub about: RecordSubject,
    /// Content of the record.
    pub said: RecordKind,
}

/// The logger's consumer of a record queue.
pub type RecordReceiver = rtrb::Consumer<Record>;

/// The worker's producer of its record queue.
#[derive(Debug, Default)]
pub struct RecordQueue {
    queue: Option<RefCell<rtrb::Producer<Record>>>,
    wanted: Records,
}

impl RecordQueue {
    /// Creates a queue and its consumer. If the capacity in `wanted` is 0, there is no queue.
    pub fn new(wanted: Records) -> (Self, Option<RecordReceiver>) {
        if wanted.max == 0 {
            return Default::default();
        }
        let (producer, consumer) = rtrb::RingBuffer::new(wanted.max);
        let queue = Some(RefCell::new(producer));
        (Self { queue, wanted }, Some(consumer))
    }

    /// Queues a record. If the queue is full, the record is counted as lost.
    pub fn push(&self, about: RecordSubject, said: RecordKind, counters: &WorkerCounters) {
        let Some(queue) = &self.queue else { return };
        match queue.borrow_mut().push(Record { about, said }) {
            Ok(()) => counters.inspection.records_queued.add(1),
            Err(_) => counters.inspection.records_lost.add(1),
        }
    }

    /// Queues a record of a dropped packet, if such records are enabled.
    pub fn push_drop(
        &self,
        about: impl FnOnce() -> Option<RecordSubject>,
        reason: Reason,
        rule: Option<RuleNumber>,
        length: u32,
        counters: &WorkerCounters,
    ) {
        if self.wanted.drops
            && let Some(about) = about()
        {
            self.push(about, RecordKind::Drop { reason, rule, length }, counters);
        }
    }

    /// Queues a record of the end of a flow, if such records are enabled.
    pub fn push_end(
        &self,
        about: Option<RecordSubject>,
        summary: &FlowSummary,
        (protocol, track, application): (u8, &Track, Option<ProtocolPair>),
        reason: EndReason,
        counters: &WorkerCounters,
    ) {
        if self.wanted.flows
            && let Some(about) = about
        {
            self.push(
                about,
                RecordKind::Flow(Ended::of(summary, protocol, track, application, reason)),
                counters,
            );
        }
    }
}

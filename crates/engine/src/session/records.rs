//! Records of inspected flows for a log: what was dropped of them, what they said, how they ended. From a worker to
//! whoever writes them, through a bounded queue that never makes the worker wait.

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

/// Which records are wanted, beside alerts, and beside what flows say, which [`sluice_inspect::inspector::Settings`] has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Of each packet that inspection drops.
    pub drops: bool,
    /// Of each flow that ends.
    pub flows: bool,
    /// Records that wait in each worker's queue at most; more are lost, and counted. 0: there is no queue.
    pub most: usize,
}

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Nanoseconds since the start.
    pub at: u64,
    /// The flow: every record of it has this number, and none of another. 0 where it has none.
    pub flow: u64,
    /// Who sent the packet and whom it was for, as the inside sees them; of a flow, its client and its server.
    pub addresses: [IpAddr; 2],
    /// Their ports.
    pub ports: [u16; 2],
    /// Protocol over IP.
    pub protocol: u8,
    /// The packet was the client's.
    pub to_server: bool,
    /// Interface that it came in by; of a flow, that its first packet did.
    pub interface: u16,
    /// The application, where it is known.
    pub service: Option<Service>,
}

/// The number of a flow among those of all shards.
pub fn flow_number(shard: u16, number: u64) -> u64 {
    u64::from(shard) << 48 | number
}

impl About {
    /// About a packet between two ends.
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

    /// About a flow, or its packet of a direction. None where nobody has said between whom it is.
    pub fn flow(at: u64, shard: u16, story: &FlowSummary, direction: Direction) -> Option<Self> {
        let ends = story.ends?;
        let ends = match direction {
            Direction::Forward => ends,
            Direction::Reverse => ends.reversed(),
        };
        let number = flow_number(shard, story.number);
        Some(Self {
            service: story.service,
            ..Self::packet(at, number, &ends, story.interface)
        })
    }
}

/// How a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// When its first packet was looked at, and its last, in nanoseconds.
    pub seen: [u64; 2],
    /// Packets, the client's first.
    pub packets: [u64; 2],
    /// Bytes, the client's first.
    pub bytes: [u64; 2],
    /// How far it had come.
    pub state: FlowState,
    /// Why.
    pub why: EndReason,
    /// A rule had reported.
    pub alerted: bool,
    /// Its application by nDPI, where that was looked for and is known.
    pub application: Option<ProtocolPair>,
}

/// How far a flow has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowState {
    /// One side has sent.
    New,
    /// Both have.
    Established,
    /// Both have said that they are done, or one has reset the connection.
    Closed,
    /// It is no longer inspected.
    Bypassed,
}

/// Why a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Nothing came for as long as its session may be silent.
    Timeout,
    /// Its session was ended: by an operator, or by what changed.
    Forced,
    /// It goes on, uninspected: found clean, or by policy.
    Bypass,
}

impl Ended {
    /// Of a flow and its session.
    pub fn of(
        story: &FlowSummary,
        protocol: u8,
        track: &Track,
        application: Option<ProtocolPair>,
        why: EndReason,
    ) -> Self {
        let answered = track.packets.iter().all(|&packets| packets > 0);
        let state = match track.tracking.state() {
            _ if why == EndReason::Bypass => FlowState::Bypassed,
            TcpState::BothFin | TcpState::Transitory if protocol == protocol::TCP => FlowState::Closed,
            TcpState::Closed | TcpState::Init if protocol == protocol::TCP => FlowState::New,
            _ if answered => FlowState::Established,
            _ => FlowState::New,
        };
        Self {
            seen: story.seen,
            packets: track.packets,
            bytes: track.bytes,
            state,
            why,
            alerted: story.alerted,
            application,
        }
    }
}

/// What a record says.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a place of the queue has the size of the largest, and nothing is allocated"
)]
pub enum RecordKind {
    /// A packet was dropped.
    Drop {
        /// Why.
        reason: Reason,
        /// The rule that did it.
        rule: Option<RuleNumber>,
        /// Bytes of its IP datagram; 0 where they are not known any more.
        length: u32,
    },
    /// A flow ended.
    Flow(Ended),
    /// A flow said something.
    Transaction(Transaction),
}

/// A record.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// What it is about.
    pub about: About,
    /// What it says.
    pub said: RecordKind,
}

/// The other end of a queue.
pub type Taken = rtrb::Consumer<Record>;

/// The worker's end of its queue.
#[derive(Debug, Default)]
pub struct RecordQueue {
    queue: Option<RefCell<rtrb::Producer<Record>>>,
    wanted: Records,
}

impl RecordQueue {
    /// A queue, with its other end; none where it holds nothing.
    pub fn new(wanted: Records) -> (Self, Option<Taken>) {
        if wanted.most == 0 {
            return Default::default();
        }
        let (producer, consumer) = rtrb::RingBuffer::new(wanted.most);
        let queue = Some(RefCell::new(producer));
        (Self { queue, wanted }, Some(consumer))
    }

    /// Tell of something. What does not fit is counted and lost.
    pub fn push(&self, about: About, said: RecordKind, counters: &WorkerCounters) {
        let Some(queue) = &self.queue else { return };
        match queue.borrow_mut().push(Record { about, said }) {
            Ok(()) => counters.records.add(1),
            Err(_) => counters.records_lost.add(1),
        }
    }

    /// Tell that a packet was dropped, where that is wanted.
    pub fn push_drop(
        &self,
        about: impl FnOnce() -> Option<About>,
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

    /// Tell how a flow ended, where that is wanted.
    pub fn push_end(
        &self,
        about: Option<About>,
        story: &FlowSummary,
        (protocol, track, application): (u8, &Track, Option<ProtocolPair>),
        why: EndReason,
        counters: &WorkerCounters,
    ) {
        if self.wanted.flows
            && let Some(about) = about
        {
            self.push(
                about,
                RecordKind::Flow(Ended::of(story, protocol, track, application, why)),
                counters,
            );
        }
    }
}

//! Counters. Each counter is written by one worker, and any thread may read it.

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_inspect::protocols::Anomaly;
use sluice_inspect::{Limit, Skipped};
use sluice_wire::named;

use crate::packet::lists::NodeIndex;
use crate::packet::reason::{EngineReason, Reason};

/// A counter with one writer. An addition is one load and one store. Reading never blocks.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter. Only the writing thread may call this.
    #[inline(always)]
    pub fn add(&self, count: u64) {
        self.0
            .store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Sets the counter. Only the writing thread may call this.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    /// Subtracts from the counter. Only the writing thread may call this.
    pub fn remove(&self, count: u64) {
        self.add(count.wrapping_neg());
    }

    /// Value of the counter.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters by number.
#[derive(Debug)]
pub struct CounterArray<const N: usize>([Counter; N]);

impl<const N: usize> Default for CounterArray<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl<const N: usize> CounterArray<N> {
    /// Adds to the counter with this number. Only the writing thread may call this.
    pub fn add(&self, number: usize, count: u64) {
        if let Some(counter) = self.0.get(number) {
            counter.add(count);
        }
    }

    /// Value of the counter with this number.
    pub fn get(&self, number: usize) -> u64 {
        self.0.get(number).map_or(0, Counter::get)
    }
}

/// Counters of one worker for one interface.
#[derive(Debug)]
struct ReasonCounters(Box<[Counter]>);

impl Default for ReasonCounters {
    fn default() -> Self {
        Self((0..Reason::COUNT).map(|_| Counter::default()).collect())
    }
}

impl InterfaceCounters {
    /// Counts a drop, on the interface on which the packet was received.
    #[inline(always)]
    pub fn drop(&self, reason: Reason) {
        if let Some(counter) = self.drops.0.get(reason.number()) {
            counter.add(1);
        }
    }

    /// Counts several drops for one reason.
    #[inline(always)]
    pub fn drop_many(&self, reason: Reason, count: u64) {
        if let Some(counter) = self.drops.0.get(reason.number()) {
            counter.add(count);
        }
    }

    /// Counts a packet that a bridge forwards in spite of a fault. The count belongs to the interface on which the
    /// packet was received.
    pub fn count_spared(&self, reason: Reason) {
        if let Some(counter) = self.spared.0.get(reason.number()) {
            counter.add(1);
        }
    }

    /// Number of packets that were forwarded in spite of this fault.
    pub fn spared(&self, reason: Reason) -> u64 {
        self.spared.0.get(reason.number()).map_or(0, Counter::get)
    }

    /// Number of drops for a reason.
    pub fn drops(&self, reason: Reason) -> u64 {
        self.drops.0.get(reason.number()).map_or(0, Counter::get)
    }

    /// Number of drops for all reasons.
    pub fn all_drops(&self) -> u64 {
        self.drops.0.iter().map(Counter::get).sum()
    }
}

/// Kind of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// A count since the process started.
    Total,
    /// A present value.
    Gauge,
}

impl CounterKind {
    /// Name of the kind in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Gauge => "gauge",
        }
    }
}

/// A counter of workers, as shown in lists and documents.
#[derive(Clone, Copy, Debug)]
pub struct NamedCounter<C> {
    /// Name of the counter.
    pub name: &'static str,
    /// Kind of the counter.
    pub kind: CounterKind,
    /// Description for an operator, in one line.
    pub help: &'static str,
    /// Function that reads the value of the counter.
    pub read: fn(&C) -> u64,
}

macro_rules! kind {
    (total) => {
        CounterKind::Total
    };
    (gauge) => {
        CounterKind::Gauge
    };
}

/// Declares a struct of counters. Counters in `fields` have a kind, a name and a help text; counters in `sums` are
/// computed from other counters. Lists show all counters in the order of declaration.
macro_rules! counters {
    (
        $(#[doc = $doc:literal])+
        $name:ident { $($(#[doc = $about:literal])+ $visibility:vis $other:ident: $type:ty,)+ }
        $(
            fields { $($of:ident $field:ident = $text:literal, $help:literal;)+ }
            sums { $($sum:ident $total:literal, $means:literal, $read:expr;)* }
        )+
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Default)]
        pub struct $name {
            $($(#[doc = $about])+ $visibility $other: $type,)+
            $($(#[doc = $help] pub $field: Counter,)+)+
        }

        impl $name {
            /// The named counters, in the order in which lists show them.
            pub const NAMED: &[NamedCounter<Self>] = &[$(
                $(NamedCounter {
                    name: $text,
                    kind: kind!($of),
                    help: $help,
                    read: |counters| counters.$field.get(),
                },)+
                $(NamedCounter { name: $total, kind: kind!($sum), help: $means, read: $read },)*
            )+];
        }
    };
}

counters! {
    /// Counters of one worker for one interface. Over all interfaces, `received + made + unparked = sent + dropped +
    /// to-host + parked`.
    InterfaceCounters {
        /// Packets dropped, by reason.
        drops: ReasonCounters,
        /// Packets that a bridge forwarded in spite of a fault, by reason.
        spared: ReasonCounters,
    }
    fields {
        total received = "received", "frames received from the device";
        total received_bytes = "received-bytes", "bytes of received frames, without check sequence";
        total sent = "sent", "frames sent to the device";
        total sent_bytes = "sent-bytes", "bytes of sent frames, without check sequence";
        total made = "originated", "packets created by the gateway, counted on the interface of the packet or event that caused them";
    }
    sums {
        total "dropped", "packets dropped, counted on their ingress interface", InterfaceCounters::all_drops;
    }
    fields {
        total taken_in = "to-host", "packets delivered to the gateway itself: neighbour discovery, echo requests, ICMP to its addresses";
        total parked = "parked", "packets parked, for example for address resolution or a first fragment";
        total unparked = "unparked", "parked packets that continued through the graph";
    }
    sums {
    }
}

counters! {
    /// Counters of one worker.
    WorkerCounters {
        /// Counters for each interface, in the order of the configuration.
        pub interfaces: Box<[InterfaceCounters]>,
        /// Packets by shard. All packets of a batch are counted for the shard of the first packet. The value of a
        /// single shard is therefore an estimate, but the sum over all shards is exact.
        pub shards: Box<[Counter]>,
        /// Packets in all bursts.
        pub packets: Counter,
        /// Packets queued for routers' hosts and for the subscriber service.
        pub punted: Counter,
        /// Packets handed off to other workers, by cause in the order of [`HandOffCause::ALL`].
        pub handed_over: [Counter; HandOffCause::ALL.len()],
        /// Frames that this worker received and another worker parses, minus frames that this worker parsed and another
        /// worker received. No interface has counted these frames yet.
        pub unparsed: Counter,
        /// Sessions that arrived with shards from other workers, minus sessions that left with shards to other workers.
        pub sessions_moved: Counter,
        /// Current number of IPv6 sessions.
        pub sessions_six: Counter,
        /// Sessions that ended because the public address of their site, or the private address of their terminal, was lost.
        /// Sessions with a lost lease are included in [`Self::sessions_ended`].
        pub sessions_lost_lease: Counter,
        /// Last generation for which this worker has completed pool migration.
        pub leases_settled: Counter,
        /// Translation events that the worker has queued.
        pub events: Counter,
        /// Translation events lost because the queue was full.
        pub events_lost: Counter,
        /// Packets for inspection: packets that were inspected, bypassed inspection, were dropped by inspection, or
        /// wait for inspection. A parked packet counts once.
        pub to_inspect: Counter,
        /// Packets that were inspected and passed.
        pub inspected: Counter,
        /// Packets that bypassed inspection, by cause in the order of [`Skipped::ALL`].
        pub bypassed: [Counter; Skipped::ALL.len()],
        /// Fragments that are parked until their datagram is complete and can be inspected (gauge).
        pub inspection_waiting: Counter,
        /// Number of times that inspection overloaded the worker.
        pub overloads: Counter,
        /// Whether inspection overloads the worker now: 1 or 0.
        pub overloaded: Counter,
        /// Bytes that inspection has searched.
        pub searched: Counter,
        /// TCP segments in which inspection cleared the urgent pointer.
        pub urgent_cleared: Counter,
        /// Sessions for which inspection ended early, because it found them clean or because of a policy.
        pub left: Counter,
        /// Results of application identification, in the order of [`OUTCOMES`].
        pub applications: [Counter; OUTCOMES.len()],
        /// Sessions that are being identified now (gauge).
        pub applications_sought: Counter,
        /// Sessions for which identification was aborted, because their shard moved to another worker.
        pub applications_moved: Counter,
        /// Sessions by the number of their application; 0 for unknown applications.
        pub recognised: Box<[Counter]>,
        /// Flows that switched to newer inspection rules than the rules with which they started.
        pub reopened: Counter,
        /// Anomalies of messages that inspection parsed, in the order of [`Anomaly::ALL`].
        pub anomalies: CounterArray<{ Anomaly::ALL.len() }>,
        /// Inspection limits reached, in the order of [`Limit::ALL`].
        pub limits: CounterArray<{ Limit::ALL.len() }>,
        /// Alerts that the worker has queued.
        pub alerts: Counter,
        /// Alerts lost because the queue was full.
        pub alerts_lost: Counter,
        /// Records of inspected flows that the worker has queued.
        pub records: Counter,
        /// Records lost because the queue was full, or because too many transactions were unfinished.
        pub records_lost: Counter,
        /// Copies for mirrors of chains that were not sent, because the copies of one burst exceeded the limit in
        /// number or length, or no buffer was available.
        pub copies_lost: Counter,
        /// Buffers that a burst has not disposed of. The value is 0 unless there is a bug.
        pub forgotten: Counter,
        /// Clock cycles by stage, in the order of [`CycleStage::ALL`].
        pub cycles: [Counter; CycleStage::ALL.len()],
        /// Counters of nodes, in the order of [`NodeIndex::ALL`].
        pub nodes: Box<[NodeCounters]>,
    }
    fields {
        total heartbeat = "rounds", "rounds of the worker's loop; does not increase while the worker is stuck";
        total idle_rounds = "idle-rounds", "rounds without a received packet";
        total bursts = "bursts", "bursts with at least one packet";
    }
    sums {
        total "handed-over", "packets handed to other workers, for any cause", WorkerCounters::all_handed_over;
    }
    fields {
        total taken_over = "taken-over", "packets received from other workers";
        gauge waiting = "waiting", "packets of other workers in the hand-off rings at the last poll";
    }
    sums {
        total "shed", "packets dropped because the ring to the next stage of the pipeline was full", |counters| counters.drops(EngineReason::Shed.into());
        total "handover-full", "packets dropped because the hand-off ring to the worker of the shard was full", |counters| counters.drops(EngineReason::HandoverFull.into());
    }
    fields {
        total ports_steered = "ports-steered", "outside ports chosen so that the card's RSS hash sends replies to the shard of the session";
        total missteered_ports = "missteered-ports", "outside ports with replies to another shard, because no \
             matching port was free; also counted in `ports-steered`";
        total sessions_created = "sessions-created", "sessions created";
        total sessions_ended = "sessions-ended", "sessions ended, for any reason";
        total session_packets = "session-packets", "packets of a session";
        total shards_taken = "shards-taken", "shards received from other workers";
        gauge shards_lent = "shards-assisted", "shards that this worker owns at present because it assists other \
             workers";
        total assists_begun = "assists-begun", "times the worker began to assist other workers";
        total assists_ended = "assists-ended", "times the worker stopped assisting other workers and returned the \
             last shard";
        total assisted = "assisted", "packets processed for other workers that this worker assists";
        gauge assist_waiting = "assist-waiting", "packets in the queue of the worker that this worker assists";
        total slices_ended = "slices-ended", "times the worker stopped assisting a queue that still had packets, \
             because its time slice ended";
        total sessions_revised = "sessions-revalidated", "sessions revalidated after a change of the snapshot";
        total sessions_rebound = "sessions-rebound", "times a session was bound to another interface, on which its \
             packets arrived";
        total sessions_withdrawn = "sessions-withdrawn", "sessions ended because no pool contains their outside \
             address and port any more; also counted in `sessions-ended`";
        total checksums_completed = "checksums-completed", "packets of local senders without a checksum (left to \
             offload), for which the worker computed the checksum";
        total path_mtus_lowered = "path-mtus-lowered", "times an ICMP error or a link lowered the path MTU of a tunnel";
        total announcements = "announcements", "announcements of the gateway's addresses (gratuitous ARP, unsolicited neighbour advertisements)";
        total proxied = "answered-as-proxy", "ARP requests and neighbour solicitations answered as proxy";
        total redirects = "redirects", "ICMP redirects sent";
        total keepalives_answered = "gre-keepalives-answered", "GRE keepalives answered";
    }
    sums {
    }
}

/// Counters of one node.
#[derive(Debug, Default)]
pub struct NodeCounters {
    /// Number of runs with at least one packet.
    pub runs: Counter,
    /// Number of processed packets. A packet that returns to the node is counted again.
    pub packets: Counter,
    /// Clock cycles that the node has used.
    pub cycles: Counter,
}

/// Results of application identification, in the order of [`OUTCOMES`].
fn outcomes(counters: &sluice_inspect::applications::ApplicationCounters) -> [u64; OUTCOMES.len()] {
    [
        counters.opened,
        counters.found,
        counters.guessed,
        counters.unknown,
        counters.refused,
        counters.out_of_memory,
    ]
}

/// Names and descriptions of the results of application identification.
pub const OUTCOMES: [(&str, &str); 6] = [
    ("opened", "sessions for which identification started"),
    ("found", "sessions with an application identified from their packets"),
    (
        "guessed",
        "sessions with an application guessed from addresses and ports",
    ),
    (
        "unknown",
        "sessions with an application that identification did not find",
    ),
    (
        "refused",
        "sessions without identification, because too many other sessions were being identified",
    ),
    (
        "short-of-memory",
        "sessions of which identification stopped, because the memory of nDPI was used up",
    ),
];

/// Number of applications that can be counted. nDPI has fewer.
const MAX_APPLICATIONS: usize = 512;

named! {
    /// Stages by which the cycles of a worker are counted.
    pub enum CycleStage {
        Receive "receive" "reception from devices";
        Parse "parse" "parsing and validation of headers";
        Session "session" "session lookup, slow path and rewrite";
        Inspect "inspect" "inspection";
        Forward "forward" "forwarding without a session, local delivery, neighbours";
        Transmit "transmit" "transmission, and release of buffers";
        Housekeeping "housekeeping" "timers and requests";
        HandOver "hand-over" "hand-off of packets to other workers";
        TakeOver "take-over" "packets from other workers, with their headers parsed again";
    }
}

named! {
    /// Cause of handing off a packet to another worker.
    pub enum HandOffCause {
        Session "session" "the shard of the session belongs to the other worker, because the device does not steer by the needed hash";
        KeptPort "kept-port" "the shard of the session belongs to the other worker, because port preservation prevented a choice by the RSS hash";
        IcmpError "icmp-error" "the shard of the session belongs to the other worker: cards hash the addresses of an ICMP error, not those of the quoted packet";
        Fragment "fragment" "the other worker collects the fragments of the datagram, or has their session";
        Gateway "gateway" "the other worker resolves neighbours and serves the gateway's addresses";
        SendIcmpError "send-icmp-error" "the other worker creates ICMP errors";
        Transmit "transmit" "the other worker has the transmit queue (devices with one queue, and pipelines)";
        Stage "stage" "the other worker has the next pipeline stage";
    }
}

impl WorkerCounters {
    /// Creates counters for `interfaces` interfaces and `shards` shards. All counters are 0.
    pub fn new(interfaces: usize, shards: usize) -> Self {
        Self {
            nodes: NodeIndex::ALL.iter().map(|_| NodeCounters::default()).collect(),
            shards: (0..shards).map(|_| Counter::default()).collect(),
            interfaces: (0..interfaces).map(|_| InterfaceCounters::default()).collect(),
            recognised: (0..MAX_APPLICATIONS).map(|_| Counter::default()).collect(),
            ..Self::default()
        }
    }

    /// Copies the counters of nDPI.
    pub fn count_applications(&self, counters: sluice_inspect::applications::ApplicationCounters) {
        for (counter, value) in self.applications.iter().zip(outcomes(&counters)) {
            counter.set(value);
        }
    }

    /// Counts a session by its application, or as a session of an unknown application.
    pub fn count_application(&self, number: u16) {
        let counter = self.recognised.get(usize::from(number)).or(self.recognised.first());
        counter.into_iter().for_each(|counter| counter.add(1));
    }

    /// Counts packets that bypass inspection.
    #[inline(always)]
    pub fn bypass(&self, reason: Skipped, count: u64) {
        if let Some(counter) = self.bypassed.get(reason as usize) {
            counter.add(count);
        }
    }

    /// Counts a packet that bypasses inspection before it reaches the node `inspect`.
    pub fn bypass_before(&self, reason: Skipped) {
        self.to_inspect.add(1);
        self.bypass(reason, 1);
    }

    /// Number of packets that bypassed inspection, for all causes.
    pub fn all_bypassed(&self) -> u64 {
        self.bypassed.iter().map(Counter::get).sum()
    }

    /// Number of packets that inspection dropped.
    pub fn all_dropped_by_inspection(&self) -> u64 {
        let reasons = || sluice_inspect::Reason::ALL.iter().map(|&reason| reason.into());
        let dropped = |i: &InterfaceCounters| -> u64 { reasons().map(|reason| i.drops(reason)).sum() };
        self.interfaces.iter().map(dropped).sum()
    }

    /// Number of drops for a reason, over all interfaces.
    pub fn drops(&self, reason: Reason) -> u64 {
        self.interfaces.iter().map(|interface| interface.drops(reason)).sum()
    }

    /// Number of packets handed off to other workers, for all causes.
    pub fn all_handed_over(&self) -> u64 {
        self.handed_over.iter().map(Counter::get).sum()
    }

    /// Number of packets that have entered the worker but have not left through a counted exit. The number is 0
    /// whenever the worker is between two bursts.
    ///
    /// The formula is: received + unparsed + made + unparked + taken over - (sent + drops + taken in + parked + handed over).
    pub fn imbalance(&self) -> i64 {
        let mut balance = self.taken_over.get() as i64 + self.unparsed.get() as i64 - self.all_handed_over() as i64;
        for i in &self.interfaces {
            balance += (i.received.get() + i.made.get() + i.unparked.get()) as i64;
            balance -= (i.sent.get() + i.all_drops() + i.taken_in.get() + i.parked.get()) as i64;
        }
        balance
    }
}

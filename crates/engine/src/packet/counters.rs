//! Counters: written by one worker, read by anybody.

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_inspect::protocols::Anomaly;
use sluice_inspect::{Limit, Skipped};
use sluice_wire::named;

use crate::packet::lists::NodeIndex;
use crate::packet::reason::{Own, Reason};

/// A counter with one writer: adding costs a load and a store, reading never waits.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Add, from the one thread that writes.
    #[inline(always)]
    pub fn add(&self, count: u64) {
        self.0
            .store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    /// Set, from the one thread that writes.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    /// Take away, from the one thread that writes.
    pub fn remove(&self, count: u64) {
        self.add(count.wrapping_neg());
    }

    /// The value.
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
    /// Add to that of a number, from the one thread that writes.
    pub fn add(&self, number: usize, count: u64) {
        if let Some(counter) = self.0.get(number) {
            counter.add(count);
        }
    }

    /// The value of a number.
    pub fn get(&self, number: usize) -> u64 {
        self.0.get(number).map_or(0, Counter::get)
    }
}

/// Counters by the number of a reason.
#[derive(Debug)]
struct ReasonCounters(Box<[Counter]>);

impl Default for ReasonCounters {
    fn default() -> Self {
        Self((0..Reason::COUNT).map(|_| Counter::default()).collect())
    }
}

impl InterfaceCounters {
    /// Count a drop on the interface that the packet came in by.
    #[inline(always)]
    pub fn drop(&self, reason: Reason) {
        if let Some(counter) = self.drops.0.get(reason.number()) {
            counter.add(1);
        }
    }

    /// Count several drops for one reason.
    #[inline(always)]
    pub fn drop_many(&self, reason: Reason, count: u64) {
        if let Some(counter) = self.drops.0.get(reason.number()) {
            counter.add(count);
        }
    }

    /// Count what passes a bridge although there is a reason against it, on the interface that it came in by.
    pub fn count_spared(&self, reason: Reason) {
        if let Some(counter) = self.spared.0.get(reason.number()) {
            counter.add(1);
        }
    }

    /// What passed in spite of a reason.
    pub fn spared(&self, reason: Reason) -> u64 {
        self.spared.0.get(reason.number()).map_or(0, Counter::get)
    }

    /// Drops for a reason.
    pub fn drops(&self, reason: Reason) -> u64 {
        self.drops.0.get(reason.number()).map_or(0, Counter::get)
    }

    /// Drops for all reasons.
    pub fn all_drops(&self) -> u64 {
        self.drops.0.iter().map(Counter::get).sum()
    }
}

/// What the value of a counter says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// It rises for as long as the process runs.
    Total,
    /// It is what there is now.
    Gauge,
}

impl CounterKind {
    /// The kind's name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Gauge => "gauge",
        }
    }
}

/// A counter among those of `C`, as lists and documents have it.
#[derive(Clone, Copy, Debug)]
pub struct NamedCounter<C> {
    /// Its name.
    pub name: &'static str,
    /// What its value says.
    pub kind: CounterKind,
    /// One line for an operator.
    pub help: &'static str,
    /// Its value.
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

/// A struct of counters. Those among `fields` are declared with kind, name and help; `sums` are named and computed. Lists have
/// both in this order.
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
            /// The counters that have names, in the order of lists.
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
    /// What one worker counts on one interface. Over all interfaces, `received + made + unparked = sent + dropped + to-host + parked`.
    InterfaceCounters {
        /// Packets dropped, by reason.
        drops: ReasonCounters,
        /// What passed a bridge in spite of a reason.
        spared: ReasonCounters,
    }
    fields {
        total received = "received", "frames taken from the device";
        total received_bytes = "received-bytes", "their bytes, without check sequence";
        total sent = "sent", "frames given to the device";
        total sent_bytes = "sent-bytes", "their bytes, without check sequence";
        total made = "made", "packets that the gateway made, by the interface of the packet or event that caused them";
    }
    sums {
        total "dropped", "packets dropped, by the interface that they came in by", InterfaceCounters::all_drops;
    }
    fields {
        total taken_in = "to-host", "packets that the gateway took in itself: neighbour discovery, echo requests, ICMP to its own addresses";
        total parked = "parked", "packets put aside to wait for something";
        total unparked = "unparked", "packets that came back from waiting";
    }
    sums {
    }
}

counters! {
    /// What one worker counts.
    WorkerCounters {
        /// One entry per interface, in the order of the configuration.
        pub interfaces: Box<[InterfaceCounters]>,
        /// Packets by shard, as the first of each batch tells: what is an estimate for one shard is right for all together.
        pub shards: Box<[Counter]>,
        /// Packets in those bursts.
        pub packets: Counter,
        /// Packets put into the worker's queues for routers' hosts and for who serves subscribers' sites.
        pub punted: Counter,
        /// Packets given to other workers, by why, in the order of [`HandOffCause::ALL`].
        pub handed_over: [Counter; HandOffCause::ALL.len()],
        /// Frames received for another worker to parse, less those parsed for another: they are no interface's yet.
        pub unparsed: Counter,
        /// Sessions that came with shards from other workers, less those that went.
        pub sessions_moved: Counter,
        /// IPv6 sessions that exist.
        pub sessions_six: Counter,
        /// Sessions ended because the public address of their site has gone, or the private one of their terminal; among
        /// [`Self::sessions_ended`].
        pub sessions_lost_lease: Counter,
        /// Generation of the change of pools that this worker has seen through.
        pub leases_settled: Counter,
        /// Events of translation put into the worker's queue.
        pub events: Counter,
        /// Events that were lost because it was full.
        pub events_lost: Counter,
        /// Packets that came to inspection, or would have: inspected, bypassed, dropped for its reasons, or still waiting.
        /// What waited and is looked at again counts once.
        pub to_inspect: Counter,
        /// Packets that went on inspected.
        pub inspected: Counter,
        /// Packets that went on uninspected, by why, in the order of [`Skipped::ALL`].
        pub bypassed: [Counter; Skipped::ALL.len()],
        /// Fragments that wait for the rest of their datagram to be inspected, a gauge.
        pub inspection_waiting: Counter,
        /// How often the worker had more to inspect than it could.
        pub overloads: Counter,
        /// Whether it has now: 1 or 0.
        pub overloaded: Counter,
        /// Bytes that inspection searched.
        pub searched: Counter,
        /// TCP segments whose urgent pointer inspection cleared.
        pub urgent_cleared: Counter,
        /// Sessions that are no longer inspected, found clean, or by policy.
        pub left: Counter,
        /// What became of sessions whose applications are looked for, in the order of [`OUTCOMES`].
        pub applications: [Counter; OUTCOMES.len()],
        /// Such sessions that are looked at, a gauge.
        pub applications_sought: Counter,
        /// Such sessions that were given up because their shard went to another worker.
        pub applications_moved: Counter,
        /// Sessions by the number of their application, 0 where it stayed unknown.
        pub recognised: Box<[Counter]>,
        /// Flows that went over to other rules than they began with.
        pub reopened: Counter,
        /// Anomalies of messages that inspection parsed, in the order of [`Anomaly::ALL`].
        pub anomalies: CounterArray<{ Anomaly::ALL.len() }>,
        /// Limits of inspection that were reached, in the order of [`Limit::ALL`].
        pub limits: CounterArray<{ Limit::ALL.len() }>,
        /// Rules that matched, put into the worker's queue of alerts.
        pub alerts: Counter,
        /// Alerts that were lost because it was full.
        pub alerts_lost: Counter,
        /// Records of inspected flows put into the worker's queue.
        pub records: Counter,
        /// Records that were lost because it was full, or because too much was said that was not over.
        pub records_lost: Counter,
        /// Copies that chains asked for and that were not sent: too many at once, too long, or no buffer left.
        pub copies_lost: Counter,
        /// Buffers that a burst forgot: a bug, always 0.
        pub forgotten: Counter,
        /// Clock cycles by stage, in the order of [`CycleStage::ALL`].
        pub cycles: [Counter; CycleStage::ALL.len()],
        /// What nodes have done, in the order of [`NodeIndex::ALL`].
        pub nodes: Box<[NodeCounters]>,
    }
    fields {
        total heartbeat = "rounds", "rounds of the worker's loop; stands still when the worker is stuck";
        total idle_rounds = "idle-rounds", "rounds in which nothing came";
        total bursts = "bursts", "bursts with at least one packet";
    }
    sums {
        total "handed-over", "packets given to other workers, for whatever cause", WorkerCounters::all_handed_over;
    }
    fields {
        total taken_over = "taken-over", "packets taken from other workers";
        gauge waiting = "waiting", "packets from other workers that waited in rings when the worker last looked";
    }
    sums {
        total "shed", "packets dropped because the ring to the next stage of the pipeline was full", |counters| counters.drops(Own::Shed.into());
        total "handover-full", "packets dropped because the ring to the worker in charge was full", |counters| counters.drops(Own::HandoverFull.into());
    }
    fields {
        total ports_steered = "ports-steered", "outside ports chosen where cards hash addresses and ports, so that answers hash to their shard";
        total misfits = "misfits", "of these, the ones with which answers come to another shard, because none was free that fits";
        total sessions_created = "sessions-created", "sessions made";
        total sessions_ended = "sessions-ended", "sessions ended, for whatever reason";
        total session_packets = "session-packets", "packets that used a session";
        total shards_taken = "shards-taken", "shards that came from other workers";
        gauge shards_lent = "shards-lent", "shards that this worker has because it assists, now";
        total assists_begun = "assists-begun", "times that it began to assist others: it took a shard over while it had none";
        total assists_ended = "assists-ended", "times that the last of these shards went back";
        total assisted = "assisted", "packets of such shards that it took from its queue";
        gauge assist_waiting = "assist-waiting", "packets that wait in that queue";
        total slices_ended = "slices-ended", "times that the clock ended the work on them, and some were left";
        total sessions_revised = "sessions-revised", "sessions decided again after a change of snapshot";
        total sessions_rebound = "sessions-rebound", "times that a session was bound to another interface, by which its packets came in from then on";
        total sessions_withdrawn = "sessions-withdrawn", "sessions ended because no pool has their public address and port any more; among `sessions-ended`";
        total checksums_completed = "checksums-completed", "unverified packets whose checksum a local sender had left to offload, completed here";
        total path_mtus_lowered = "path-mtus-lowered", "ICMP errors, and links of its own, by which the path of a tunnel was found to take less than before";
        total announcements = "announcements", "announcements of own addresses";
        total proxied = "answered-as-proxy", "requests of ARP and neighbour discovery answered in the place of somebody elsewhere";
        total redirects = "redirects", "redirects sent to hosts";
        total keepalives_answered = "gre-keepalives-answered", "keepalives of GRE tunnels that went back to their senders";
    }
    sums {
    }
}

/// What a node has done.
#[derive(Debug, Default)]
pub struct NodeCounters {
    /// Times that it had something to do.
    pub runs: Counter,
    /// Packets that it had; one that comes back counts again.
    pub packets: Counter,
    /// Clock cycles that it took.
    pub cycles: Counter,
}

/// What becomes of sessions whose applications are looked for, in the order of [`OUTCOMES`].
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

/// Names of what becomes of sessions whose applications are looked for, and what they mean.
pub const OUTCOMES: [(&str, &str); 6] = [
    ("opened", "sessions that were looked at"),
    ("found", "sessions whose application their packets told"),
    (
        "guessed",
        "sessions whose application was guessed by addresses and ports",
    ),
    ("unknown", "sessions whose application stayed unknown"),
    ("refused", "sessions that were not looked at, as too many others were"),
    ("short-of-memory", "sessions given up because nDPI's memory ran short"),
];

/// Applications that are counted: more than nDPI has numbers.
const MAX_APPLICATIONS: usize = 512;

named! {
    /// What a worker's cycles are spent on.
    pub enum CycleStage {
        Receive "receive" "receive from devices";
        Parse "parse" "parse and validity";
        Session "session" "from session lookup to rewrite, slow path included";
        Inspect "inspect" "inspection";
        Forward "forward" "forwarding without a session, the gateway's own traffic, neighbours";
        Transmit "transmit" "transmit, free";
        Housekeeping "housekeeping" "timers and requests";
        HandOver "hand-over" "give packets to other workers";
        TakeOver "take-over" "take packets from other workers, headers read again";
    }
}

named! {
    /// Why a packet is given to another worker.
    pub enum HandOffCause {
        Session "session" "the shard of its session is there: the device can't hash what is wanted, has one queue, or a misfit";
        KeptPort "kept-port" "the shard of its session is there, and its pool preserved the port: no choice of ports could steer it";
        IcmpError "icmp-error" "the shard of its session is there: cards hash the addresses of an ICMP error, not those of the packet that it quotes";
        Fragment "fragment" "fragments are collected there, or belong to a session there";
        Gateway "gateway" "neighbours are asked for there, neighbour discovery included, and the gateway's own addresses served";
        Complain "complain" "ICMP errors are made there";
        Transmit "transmit" "the queue that it leaves by is there: devices with one queue, pipelines";
        Stage "stage" "the next stage of the pipeline is there";
    }
}

impl WorkerCounters {
    /// Counters for `interfaces` interfaces and `shards` shards, all 0.
    pub fn new(interfaces: usize, shards: usize) -> Self {
        Self {
            nodes: NodeIndex::ALL.iter().map(|_| NodeCounters::default()).collect(),
            shards: (0..shards).map(|_| Counter::default()).collect(),
            interfaces: (0..interfaces).map(|_| InterfaceCounters::default()).collect(),
            recognised: (0..MAX_APPLICATIONS).map(|_| Counter::default()).collect(),
            ..Self::default()
        }
    }

    /// What nDPI has counted.
    pub fn count_applications(&self, counters: sluice_inspect::applications::ApplicationCounters) {
        for (counter, value) in self.applications.iter().zip(outcomes(&counters)) {
            counter.set(value);
        }
    }

    /// A session is of an application, or of none that is known.
    pub fn count_application(&self, number: u16) {
        let counter = self.recognised.get(usize::from(number)).or(self.recognised.first());
        counter.into_iter().for_each(|counter| counter.add(1));
    }

    /// So many packets go on uninspected.
    #[inline(always)]
    pub fn bypass(&self, why: Skipped, count: u64) {
        if let Some(counter) = self.bypassed.get(why as usize) {
            counter.add(count);
        }
    }

    /// A packet that would have been inspected goes on before it comes to that.
    pub fn bypass_before(&self, why: Skipped) {
        self.to_inspect.add(1);
        self.bypass(why, 1);
    }

    /// Packets that went on uninspected, for whatever reason.
    pub fn all_bypassed(&self) -> u64 {
        self.bypassed.iter().map(Counter::get).sum()
    }

    /// Packets that inspection dropped.
    pub fn all_dropped_by_inspection(&self) -> u64 {
        let reasons = || sluice_inspect::Reason::ALL.iter().map(|&reason| reason.into());
        let dropped = |i: &InterfaceCounters| -> u64 { reasons().map(|reason| i.drops(reason)).sum() };
        self.interfaces.iter().map(dropped).sum()
    }

    /// Drops for a reason, at all interfaces.
    pub fn drops(&self, reason: Reason) -> u64 {
        self.interfaces.iter().map(|interface| interface.drops(reason)).sum()
    }

    /// Packets given to other workers, for whatever cause.
    pub fn all_handed_over(&self) -> u64 {
        self.handed_over.iter().map(Counter::get).sum()
    }

    /// Packets that have not left by a counted exit: 0 whenever no burst is under way.
    ///
    /// received + unparsed + made + unparked + taken over - (sent + drops + taken in + parked + handed over).
    pub fn imbalance(&self) -> i64 {
        let mut balance = self.taken_over.get() as i64 + self.unparsed.get() as i64 - self.all_handed_over() as i64;
        for i in &self.interfaces {
            balance += (i.received.get() + i.made.get() + i.unparked.get()) as i64;
            balance -= (i.sent.get() + i.all_drops() + i.taken_in.get() + i.parked.get()) as i64;
        }
        balance
    }
}

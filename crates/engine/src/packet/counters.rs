//! Counters: written by one worker, read by anybody.

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_inspect::protocols::Anomaly;
use sluice_inspect::{Limit, Skipped};

use crate::packet::lists::NodeIndex;
use crate::packet::reason::Reason;

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

/// What one worker counts on one interface.
#[derive(Debug)]
pub struct InterfaceCounters {
    /// Frames received.
    pub received: Counter,
    /// Bytes received, frames without check sequence.
    pub received_bytes: Counter,
    /// Frames sent.
    pub sent: Counter,
    /// Bytes sent.
    pub sent_bytes: Counter,
    /// Packets that the gateway made, by the interface of the packet or event that caused them.
    pub made: Counter,
    /// Packets that the gateway took in itself: neighbour discovery, echo requests, ICMP to its own addresses.
    pub taken_in: Counter,
    /// Packets put aside to wait for something.
    pub parked: Counter,
    /// Packets that came back from waiting.
    pub unparked: Counter,
    drops: Box<[Counter]>,
    /// What passed a bridge in spite of a reason.
    spared: Box<[Counter]>,
}

impl Default for InterfaceCounters {
    fn default() -> Self {
        Self {
            received: Counter::default(),
            received_bytes: Counter::default(),
            sent: Counter::default(),
            sent_bytes: Counter::default(),
            made: Counter::default(),
            taken_in: Counter::default(),
            parked: Counter::default(),
            unparked: Counter::default(),
            drops: (0..Reason::COUNT).map(|_| Counter::default()).collect(),
            spared: (0..Reason::COUNT).map(|_| Counter::default()).collect(),
        }
    }
}

impl InterfaceCounters {
    /// Count a drop on the interface that the packet came in by.
    #[inline(always)]
    pub fn drop(&self, reason: Reason) {
        if let Some(counter) = self.drops.get(reason.number()) {
            counter.add(1);
        }
    }

    /// Count several drops for one reason.
    #[inline(always)]
    pub fn drop_many(&self, reason: Reason, count: u64) {
        if let Some(counter) = self.drops.get(reason.number()) {
            counter.add(count);
        }
    }

    /// Count what passes a bridge although there is a reason against it, on the interface that it came in by.
    pub fn count_spared(&self, reason: Reason) {
        if let Some(counter) = self.spared.get(reason.number()) {
            counter.add(1);
        }
    }

    /// What passed in spite of a reason.
    pub fn spared(&self, reason: Reason) -> u64 {
        self.spared.get(reason.number()).map_or(0, Counter::get)
    }

    /// Drops for a reason.
    pub fn drops(&self, reason: Reason) -> u64 {
        self.drops.get(reason.number()).map_or(0, Counter::get)
    }

    /// Drops for all reasons.
    pub fn all_drops(&self) -> u64 {
        self.drops.iter().map(Counter::get).sum()
    }
}

/// What one worker counts.
#[derive(Debug, Default)]
pub struct WorkerCounters {
    /// One entry per interface, in the order of the configuration.
    pub interfaces: Box<[InterfaceCounters]>,
    /// Packets by shard, as the first of each batch tells: what is an estimate for one shard is right for all together.
    pub shards: Box<[Counter]>,
    /// Rounds of the worker's loop; stands still when the worker is stuck.
    pub heartbeat: Counter,
    /// Rounds in which nothing came.
    pub idle_rounds: Counter,
    /// Bursts with at least one packet.
    pub bursts: Counter,
    /// Packets in those bursts.
    pub packets: Counter,
    /// Packets put into the worker's queues for routers' hosts and for who serves subscribers' sites.
    pub punted: Counter,
    /// Packets given to other workers, by why, in the order of [`HandOffCause::ALL`].
    pub handed_over: [Counter; HandOffCause::ALL.len()],
    /// Frames received for another worker to parse, less those parsed for another: they are no interface's yet.
    pub unparsed: Counter,
    /// Packets taken from other workers.
    pub taken_over: Counter,
    /// Packets from other workers that waited in rings when the worker last looked, a gauge.
    pub waiting: Counter,
    /// Outside ports chosen where cards hash addresses and ports, and of these the ones with which answers come to another
    /// shard than their flow's, because none was free that fits.
    pub ports_steered: Counter,
    /// See [`Self::ports_steered`].
    pub misfits: Counter,
    /// Sessions made.
    pub sessions_created: Counter,
    /// Sessions ended, for whatever reason.
    pub sessions_ended: Counter,
    /// Sessions that came with shards from other workers, less those that went.
    pub sessions_moved: Counter,
    /// Shards that came from other workers.
    pub shards_taken: Counter,
    /// Times that this worker began to assist others: it took a shard over while it had none.
    pub assists_begun: Counter,
    /// Times that the last of these shards went back.
    pub assists_ended: Counter,
    /// Shards that others have lent, a gauge.
    pub shards_lent: Counter,
    /// Packets of such shards that this worker took from its queue.
    pub assisted: Counter,
    /// Packets that wait in that queue, a gauge.
    pub assist_waiting: Counter,
    /// Times that the clock ended the work on them, and some were left.
    pub slices_ended: Counter,
    /// IPv6 sessions that exist.
    pub sessions_six: Counter,
    /// Packets that used a session.
    pub session_packets: Counter,
    /// Sessions decided again after a change of snapshot.
    pub sessions_revised: Counter,
    /// Times that a session was bound to another interface, by which its packets came in from then on.
    pub sessions_rebound: Counter,
    /// Sessions ended because no pool has their public address and port any more; among [`Self::sessions_ended`].
    pub sessions_withdrawn: Counter,
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
    /// Unverified packets whose checksum a local sender had left to offload, completed here.
    pub checksums_completed: Counter,
    /// ICMP errors, and links of its own, by which the path of a tunnel was found to take less than before.
    pub path_mtus_lowered: Counter,
    /// Keepalives of GRE tunnels that went back to their senders.
    pub keepalives_answered: Counter,
    /// Announcements of own addresses.
    pub announcements: Counter,
    /// Questions of ARP and neighbour discovery answered in the place of somebody elsewhere.
    pub proxied: Counter,
    /// Redirects sent to hosts.
    pub redirects: Counter,
    /// Clock cycles by stage, in the order of [`CycleStage::ALL`].
    pub cycles: [Counter; CycleStage::ALL.len()],
    /// What nodes have done, in the order of [`NodeIndex::ALL`].
    pub nodes: Box<[NodeCounters]>,
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
fn outcomes(counters: &sluice_inspect::applications::Counters) -> [u64; OUTCOMES.len()] {
    [
        counters.opened,
        counters.found,
        counters.guessed,
        counters.unknown,
        counters.refused,
        counters.short_of_memory,
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

/// What a worker's cycles are spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum CycleStage {
    /// Receive from devices.
    Receive,
    /// Parse and validity.
    Parse,
    /// From session lookup to rewrite, slow path included.
    Session,
    /// Inspection.
    Inspect,
    /// Forwarding without a session, the gateway's own traffic, neighbours.
    Forward,
    /// Transmit, free.
    Transmit,
    /// Timers and requests.
    Housekeeping,
    /// Give packets to other workers.
    HandOver,
    /// Take packets from other workers, headers read again.
    TakeOver,
}

impl CycleStage {
    /// All of them.
    pub const ALL: [CycleStage; 9] = [
        Self::Receive,
        Self::Parse,
        Self::Session,
        Self::Inspect,
        Self::Forward,
        Self::Transmit,
        Self::Housekeeping,
        Self::HandOver,
        Self::TakeOver,
    ];

    /// The stage's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Parse => "parse",
            Self::Session => "session",
            Self::Inspect => "inspect",
            Self::Forward => "forward",
            Self::Transmit => "transmit",
            Self::Housekeeping => "housekeeping",
            Self::HandOver => "hand-over",
            Self::TakeOver => "take-over",
        }
    }
}

/// Why a packet is given to another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HandOffCause {
    /// The shard of its session is there, and the device can't tell or hashes something else.
    Session,
    /// The same of a packet to a port that its pool preserved: no choice of ports could steer it.
    KeptPort,
    /// The same of an ICMP error: cards hash its own addresses, not those of the packet that it quotes.
    IcmpError,
    /// Fragments are collected there, or belong to a session there.
    Fragment,
    /// Neighbours are asked for there, neighbour discovery included, and the gateway's own addresses served.
    Gateway,
    /// Errors are made there.
    Complain,
    /// The queue that it leaves by is there.
    Transmit,
    /// The next stage of the pipeline is there.
    Stage,
}

impl HandOffCause {
    /// All of them.
    pub const ALL: [HandOffCause; 8] = [
        Self::Session,
        Self::KeptPort,
        Self::IcmpError,
        Self::Fragment,
        Self::Gateway,
        Self::Complain,
        Self::Transmit,
        Self::Stage,
    ];

    /// The cause's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::KeptPort => "kept-port",
            Self::IcmpError => "icmp-error",
            Self::Fragment => "fragment",
            Self::Gateway => "gateway",
            Self::Complain => "complain",
            Self::Transmit => "transmit",
            Self::Stage => "stage",
        }
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
    pub fn count_applications(&self, counters: sluice_inspect::applications::Counters) {
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

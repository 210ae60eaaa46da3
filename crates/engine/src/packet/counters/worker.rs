//! Counters of a worker.

use sluice_wire::named;

use super::declaration::{CounterKind, Label, LabelValues, NamedCounter, Unit, counters};
use super::{Counter, IdentificationCounters, InspectionCounters, InterfaceCounters, Reason};
use crate::packet::lists::NodeIndex;
use crate::packet::reason::EngineReason;

counters! {
    /// Counters of one worker.
    WorkerCounters of WorkerCounters labels ["worker"] names WorkerNames {
        /// Counters for each interface, in the order of the configuration.
        pub interfaces: Box<[InterfaceCounters]>,
        /// Number of packets for each shard. All packets of a batch are counted for the shard of the first packet. The
        /// value of a single shard is therefore an estimate, but the sum over all shards is exact.
        pub shards: Box<[Counter]>,
        /// Frames that this worker received and another worker parses, minus frames that this worker parsed and another
        /// worker received. No interface has counted these frames yet.
        pub unparsed: Counter,
        /// Sessions that arrived with shards from other workers, minus sessions that left with shards to other workers.
        pub sessions_moved: Counter,
        /// The newest generation for which this worker has completed pool migration.
        pub migrated_generation: Counter,
        /// Counters of inspection.
        pub inspection: InspectionCounters,
        /// Counters of application identification.
        pub identification: IdentificationCounters,
        /// Counters of nodes, in the order of [`NodeIndex::ALL`].
        pub nodes: Box<[NodeCounters]>,
    }

    Total Rounds rounds = "rounds", "rounds of the worker's loop; does not increase while the worker is stuck";
    Total Rounds idle_rounds = "idle-rounds", "rounds without a received packet";
    Total Bursts bursts = "bursts", "bursts with at least one packet";
    Total Packets packets = "packets", "packets in all bursts";
    Total Packets all_handed_off = "handed-over", "packets handed to other workers, for any cause", WorkerCounters::all_handed_off;
    Total Packets taken_over = "taken-over", "packets received from other workers";
    Gauge Packets waiting = "waiting", "packets of other workers in the hand-off rings at the last poll";
    Total Packets shed = "shed", "packets dropped because the ring to the next stage of the pipeline was full", |counters| counters.drops(EngineReason::Shed.into());
    Total Packets handover_full = "handover-full", "packets dropped because the hand-off ring to the worker of the shard was full", |counters| counters.drops(EngineReason::HandoverFull.into());
    Total Packets punted = "punted", "packets queued for routers' hosts and for the subscriber service";
    Total Buffers leaked = "leaked", "buffers that no node released: a bug, please report it";
    Total Ports ports_steered = "ports-steered", "outside ports chosen so that the card's RSS hash sends replies to the shard of the session";
    Total Ports missteered_ports = "missteered-ports", "outside ports with replies to another shard, because no \
         matching port was free; also counted in `ports-steered`";
    Total Sessions sessions_created = "sessions-created", "sessions created";
    Total Sessions sessions_ended = "sessions-ended", "sessions ended, for any reason";
    Gauge Sessions sessions_v6 = "sessions-v6", "IPv6 sessions";
    Total Sessions sessions_lost_lease = "sessions-lost-lease", "sessions ended because the public address of their site, or the private address of their terminal, was lost; also counted in `sessions-ended`";
    Total Packets session_packets = "session-packets", "packets of a session";
    Total Events events = "events", "translation events that the worker has queued";
    Total Events events_lost = "events-lost", "translation events lost because the queue was full";
    Total Shards shards_taken = "shards-taken", "shards received from other workers";
    Gauge Shards shards_assisted = "shards-assisted", "shards that this worker owns at present because it assists other \
         workers";
    Total Times assists_begun = "assists-begun", "times the worker began to assist other workers";
    Total Times assists_ended = "assists-ended", "times the worker stopped assisting other workers and returned the \
         last shard";
    Total Packets assisted = "assisted", "packets processed for other workers that this worker assists";
    Gauge Packets assist_waiting = "assist-waiting", "packets in the queue of the worker that this worker assists";
    Total Times slices_ended = "slices-ended", "times the worker stopped assisting a queue that still had packets, \
         because its time slice ended";
    Total Sessions sessions_revalidated = "sessions-revalidated", "sessions revalidated after a change of the snapshot";
    Total Times sessions_rebound = "sessions-rebound", "times a session was bound to another interface, on which its \
         packets arrived";
    Total Sessions sessions_withdrawn = "sessions-withdrawn", "sessions ended because no pool contains their outside \
         address and port any more; also counted in `sessions-ended`";
    Total Packets checksums_completed = "checksums-completed", "packets of local senders without a checksum (left to \
         offload), for which the worker computed the checksum";
    Total Times path_mtus_lowered = "path-mtus-lowered", "times an ICMP error or a link lowered the path MTU of a tunnel";
    Total Packets announcements = "announcements", "announcements of the gateway's addresses (gratuitous ARP, unsolicited neighbour advertisements)";
    Total Packets answered_as_proxy = "answered-as-proxy", "ARP requests and neighbour solicitations answered as proxy";
    Total Packets redirects = "redirects", "ICMP redirects sent";
    Total Packets gre_keepalives_answered = "gre-keepalives-answered", "GRE keepalives answered";
    Total Copies copies_lost = "copies-lost", "copies for mirrors of chains that were not sent, because the copies of one \
         burst exceeded the limit in number or length, or no buffer was available";
    Total Packets handed_off by cause: HandOffCause = "handed-over", "of `handed-over`";
    Total Cycles cycles by stage: CycleStage = "cycles", "clock cycles";
}

counters! {
    /// Counters of one node.
    NodeCounters of NodeCounters labels ["node", "worker"] names NodeNames {}

    Total Runs runs = "runs", "runs with at least one packet";
    Total Packets packets = "packets", "processed packets; a packet that returns to the node is counted again";
    Total Cycles cycles = "cycles", "clock cycles that the node has used";
}

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
            identification: IdentificationCounters::new(),
            ..Self::default()
        }
    }

    /// Number of drops for a reason, over all interfaces.
    pub fn drops(&self, reason: Reason) -> u64 {
        self.interfaces.iter().map(|interface| interface.drops(reason)).sum()
    }

    /// Number of packets handed off to other workers, for all causes.
    pub fn all_handed_off(&self) -> u64 {
        self.handed_off.iter().map(Counter::get).sum()
    }

    /// Number of packets that have entered the worker but have not left through a counted exit. The number is 0
    /// whenever the worker is between two bursts.
    ///
    /// The formula is: received + unparsed + originated + unparked + taken over - (sent + drops + to host + parked + handed off).
    pub fn imbalance(&self) -> i64 {
        let mut balance = self.taken_over.get() as i64 + self.unparsed.get() as i64 - self.all_handed_off() as i64;
        for i in &self.interfaces {
            balance += (i.received.get() + i.originated.get() + i.unparked.get()) as i64;
            balance -= (i.sent.get() + i.all_drops() + i.to_host.get() + i.parked.get()) as i64;
        }
        balance
    }
}

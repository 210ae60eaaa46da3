//! `[system]`, `[sessions]`, `[control]`: the process, its session table, its control socket.

use std::path::PathBuf;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::value::{Period, Port, Workers};

/// `[system]`: cores and memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct System {
    /// A name that operators see in `show` and in the log.
    pub name: String,
    /// How many workers, or on which cores: `2` or `[2, 3]`.
    pub workers: Workers,
    /// Who does which part of a packet's way.
    pub model: Model,
    /// The stages of a pipeline, in the order of a packet's way.
    pub stages: Vec<Stage>,
    /// Which cores move packets and which inspect, where cores are split by role.
    pub roles: Roles,
    /// Packets that the ring from one worker to another holds.
    pub ring: u32,
    /// Parts of the session table, each owned by one worker: a power of two, not below the number of workers. One where there is one
    /// worker and 16 where there are more, or as many as workers, where nothing is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<u16>,
    /// What the cards' hash is over, and with it what comes to one shard together.
    pub steering: Steering,
    /// Whether packet buffers lie in huge pages.
    pub hugepages: Hugepages,
    /// Poll without ever sleeping: lowest latency, and every worker's core always busy.
    pub busy_poll: bool,
    /// How workers wait that have nothing to do.
    pub idle: Idle,
    /// When shards move from busy workers to others.
    pub rebalance: Rebalance,
    /// The watch over the workers.
    pub watchdog: Watchdog,
    /// Addresses of 240.0.0.0/4 are hosts' as others are; otherwise packets from and to them are dropped, and none is configured.
    pub allow_reserved_ranges: bool,
}

impl Default for System {
    fn default() -> Self {
        Self {
            name: "sluice".into(),
            workers: Workers::Count(1),
            model: Model::RunToCompletion,
            stages: Vec::new(),
            roles: Roles::default(),
            ring: 1024,
            shards: None,
            steering: Steering::Subset,
            hugepages: Hugepages::Auto,
            busy_poll: false,
            idle: Idle::default(),
            rebalance: Rebalance::default(),
            watchdog: Watchdog::default(),
            allow_reserved_ranges: false,
        }
    }
}

/// Who does which part of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// Each worker does all of it for the packets of its shards.
    RunToCompletion,
    /// Workers do what `stages` says, and hand packets on.
    Pipeline,
    /// Some workers receive and parse, others have the sessions and inspect, as `roles` says. Those that receive assist when the
    /// others have too much to do.
    RoleSplit,
    /// What `sluice plan` chooses, at each start.
    Auto,
}

/// `[[system.stages]]`: a stage of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Stage {
    /// What it does: `receive`, `parse`, `session`, `transmit`, or several that follow one another.
    pub parts: Vec<String>,
    /// The cores that do it.
    pub cores: Vec<u16>,
}

/// `[system.roles]`: cores split by role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Roles {
    /// The cores that receive and parse.
    pub io: Vec<u16>,
    /// The cores that have the sessions, and inspect.
    pub inspect: Vec<u16>,
    /// Who sends what the cores of `inspect` have finished: they, or those of `io`.
    pub transmit: Transmit,
    /// Whether the cores of `io` take shards over when those of `inspect` have too much to do.
    pub assist: bool,
    /// Packets in the ring from a core of `io` to one of `inspect` above which it does: a quarter of `ring` where it is not
    /// given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assist_threshold: Option<u32>,
    /// How long a core of `io` works on such shards before it receives again.
    pub time_slice: Period,
}

impl Default for Roles {
    fn default() -> Self {
        Self {
            io: Vec::new(),
            inspect: Vec::new(),
            transmit: Transmit::Io,
            assist: true,
            assist_threshold: None,
            time_slice: Period::microseconds(20),
        }
    }
}

/// Shards of several workers, where nothing is written: some times as many as most machines have cores for.
const SHARDS: u16 = 16;

impl System {
    /// Parts of the session table.
    pub fn shards(&self) -> u16 {
        let workers = match (self.model, &self.workers) {
            (Model::RunToCompletion | Model::Auto, Workers::Count(count)) => usize::from(*count),
            (Model::RunToCompletion | Model::Auto, Workers::Cores(cores)) => cores.len(),
            (Model::RoleSplit, _) => self.roles.inspect.len() + self.roles.io.len(),
            (Model::Pipeline, _) => {
                let of_sessions = |stage: &&Stage| stage.parts.iter().any(|part| part == "session");
                self.stages
                    .iter()
                    .filter(of_sessions)
                    .map(|stage| stage.cores.len())
                    .sum()
            }
        };
        self.shards_among(workers)
    }

    /// The same for so many workers that have sessions. One needs no parts: each would have its part of the ports of an address.
    pub fn shards_among(&self, workers: usize) -> u16 {
        let workers = workers.min(1 << 15) as u16;
        let by_itself = match workers {
            0 | 1 => 1,
            workers => workers.next_power_of_two().max(SHARDS),
        };
        self.shards.unwrap_or(by_itself)
    }

    /// The same for a number of workers that may change: what is measured or replayed does not depend on it.
    pub fn shards_of_many(&self) -> u16 {
        self.shards.unwrap_or(SHARDS)
    }

    /// Whether cores that receive assist those that inspect, as it is written.
    pub fn assists(&self) -> bool {
        self.model == Model::RoleSplit && self.roles.assist
    }

    /// Packets in a ring above which cores assist.
    pub fn assist_threshold(&self) -> u32 {
        self.roles.assist_threshold.unwrap_or(self.ring / 4)
    }
}

/// Who sends where cores are split by role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transmit {
    /// The cores that receive.
    Io,
    /// The cores that inspect, each by a queue of its own.
    Inspect,
}

/// `[system.idle]`: how workers wait that have nothing to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Idle {
    /// Rounds without a packet that follow one another at once.
    pub spin: u32,
    /// Rounds after these with a pause of the processor between them.
    pub pause: u32,
    /// How long a worker then sleeps before it looks again. Devices keep what comes meanwhile: 1,024 frames in each queue.
    pub sleep: Period,
    /// Sleep until a device has frames, a millisecond at most or `sleep` where that is longer: where all devices can tell.
    pub interrupt: bool,
}

impl Default for Idle {
    fn default() -> Self {
        Self {
            spin: 64,
            pause: 256,
            sleep: Period::microseconds(50),
            interrupt: false,
        }
    }
}

/// `[system.rebalance]`: when shards move from busy workers to others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Rebalance {
    /// Whether they do.
    pub enabled: bool,
    /// How busy the busiest worker must be, in percent of its core.
    pub busy: u32,
    /// By how much it must be busier than the least busy one, in percent.
    pub difference: u32,
}

impl Default for Rebalance {
    fn default() -> Self {
        Self {
            enabled: true,
            busy: 60,
            difference: 20,
        }
    }
}

/// What the cards' hash is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steering {
    /// Inside the source address, outside destination address and port, where the card can: all flows of a host come to
    /// one shard.
    Subset,
    /// Addresses and ports, as every card can: the flows of a host spread, and outside ports are chosen so that answers come
    /// to their flow's shard, where no pool keeps the flows of a host together.
    FiveTuple,
}

/// Whether packet buffers lie in huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hugepages {
    /// Where the machine has enough of them.
    Auto,
    /// Never.
    Off,
    /// Always: start fails without them.
    Require,
}

/// `[system.watchdog]`: the watch over the workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Watchdog {
    /// How long a worker may go without completing a burst before it is reported as stuck.
    pub limit: Period,
}

impl Default for Watchdog {
    fn default() -> Self {
        Self {
            limit: Period::milliseconds(500),
        }
    }
}

/// `[sessions]`: the session table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Sessions {
    /// Most IPv4 sessions. Their memory is taken at start.
    pub ipv4: u32,
    /// Most IPv6 sessions. Their memory is taken at start.
    pub ipv6: u32,
    /// How long a silent session lives; pools may differ.
    pub timeouts: Timeouts,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            ipv4: 1_000_000,
            ipv6: 100_000,
            timeouts: Timeouts::default(),
        }
    }
}

/// How long a silent session lives, by protocol and port, in whole seconds. What is not given is inherited: a pool's
/// from `[sessions.timeouts]`, those from the standards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Timeouts {
    /// TCP, established: 2 h 4 min, and not less (RFC 5382, REQ-5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_established: Option<Period>,
    /// TCP, partially open: 4 min (RFC 7857, 2.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_transitory_open: Option<Period>,
    /// TCP, closing or reset: 4 min (RFC 7857, 2.1 and 2.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_transitory_close: Option<Period>,
    /// TCP, an inbound SYN that nobody has answered: 6 s, and not less (RFC 5382, REQ-4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_incoming_syn: Option<Period>,
    /// UDP: 5 min, and not less than 2 min (RFC 4787, REQ-5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<Period>,
    /// UDP to a server's port, in place of `udp`: `{ 53 = "10s" }`. Below 2 min for ports below 1024 alone
    /// (RFC 4787, REQ-5a). At most 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_ports: Option<IndexMap<Port, Period>>,
    /// ICMP queries: 60 s, and not less (RFC 5508, REQ-2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp: Option<Period>,
    /// Any other protocol: 5 min.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<Period>,
    /// Whether packets from outside keep a session alive too: yes (RFC 4787, REQ-6).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbound_refresh: Option<bool>,
}

/// `[control]`: the control socket, traces and captures, the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Control {
    /// Path of the UNIX socket; only its owner may connect.
    pub socket: PathBuf,
    /// How much the log says.
    pub log: LogLevel,
    /// Most packets that a trace records.
    pub trace_limit: u32,
    /// Most packets that a capture keeps before they are fetched.
    pub capture_limit: u32,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            socket: "/run/sluice/control".into(),
            log: LogLevel::Info,
            trace_limit: 1_000,
            capture_limit: 16_384,
        }
    }
}

/// How much the log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// What stops something.
    Error,
    /// And what should be looked at.
    Warn,
    /// And what happened.
    Info,
    /// And why.
    Debug,
    /// And every step.
    Trace,
}

//! `[system]`, `[sessions]`, `[control]`: the process, its session table, and its control socket.

use std::path::PathBuf;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::value::{Period, Port, Workers};

/// `[system]`: cores and memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct System {
    /// Name of the gateway in `show` and in the log.
    pub name: String,
    /// Number of workers, or a list of their cores: `2` or `[2, 3]`.
    pub workers: Workers,
    /// How the stages of packet processing are assigned to workers.
    pub model: Model,
    /// Stages of a pipeline, in the order of processing.
    pub stages: Vec<Stage>,
    /// Cores for I/O and cores for inspection. Only with `model = "role-split"`.
    pub roles: Roles,
    /// Capacity in packets of the ring from one worker to another.
    pub ring: u32,
    /// Number of shards of the session table. Each shard is owned by one worker. The number must be a power of two, and
    /// at least the number of workers. Default: 1 for a single worker, otherwise 16 or the number of workers, whichever
    /// is larger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<u16>,
    /// Fields over which the cards' hash is computed. The fields determine which packets are in the same shard.
    pub steering: Steering,
    /// Whether packet buffers are in huge pages.
    pub hugepages: Hugepages,
    /// Whether workers poll without sleeping. Polling gives the lowest latency, but the core of each worker is always
    /// busy.
    pub busy_poll: bool,
    /// How idle workers wait.
    pub idle: Idle,
    /// Conditions under which shards move from busy workers to other workers.
    pub rebalance: Rebalance,
    /// Watchdog of the workers.
    pub watchdog: Watchdog,
    /// Whether addresses in 240.0.0.0/4 are ordinary addresses. Otherwise packets from and to addresses in 240.0.0.0/4
    /// are dropped, and these addresses can't be configured.
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

/// How the stages of packet processing are assigned to workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// Each worker performs all stages for the packets of its shards.
    RunToCompletion,
    /// Workers perform the stages that `stages` assigns to them, and hand packets over to each other.
    Pipeline,
    /// Some workers receive and parse; others own the sessions and inspect. `roles` assigns the cores. Receiving
    /// workers assist when the other workers are overloaded.
    RoleSplit,
    /// The placement that `sluice plan` chooses at each start.
    Auto,
}

/// `[[system.stages]]`: a stage of a pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Stage {
    /// Parts of packet processing that the stage performs: `receive`, `parse`, `session`, `transmit`, or several
    /// consecutive parts.
    pub parts: Vec<String>,
    /// Cores of the stage.
    pub cores: Vec<u16>,
}

/// `[system.roles]`: cores of each role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Roles {
    /// Cores that receive and parse.
    pub io: Vec<u16>,
    /// Cores that own the sessions and inspect.
    pub inspect: Vec<u16>,
    /// Which cores transmit the packets of the `inspect` cores: the `inspect` cores themselves, or the `io` cores.
    pub transmit: Transmit,
    /// Whether the `io` cores take over shards when the `inspect` cores are overloaded.
    pub assist: bool,
    /// Number of packets in the ring from an `io` core to an `inspect` core above which the `io` core assists. Default:
    /// a quarter of `ring`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assist_threshold: Option<u32>,
    /// Time for which an `io` core processes shards that it has taken over, before it receives again.
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

/// Default number of shards for several workers. The number is a multiple of the number of workers on most machines.
const SHARDS: u16 = 16;

impl System {
    /// Number of shards of the session table.
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

    /// Number of shards if `workers` workers own sessions. A single worker uses one shard, because each further shard
    /// would only divide the ports of an address.
    pub fn shards_among(&self, workers: usize) -> u16 {
        let workers = workers.min(1 << 15) as u16;
        let by_itself = match workers {
            0 | 1 => 1,
            workers => workers.next_power_of_two().max(SHARDS),
        };
        self.shards.unwrap_or(by_itself)
    }

    /// Number of shards that does not depend on the number of workers. The value is used for measurements and replays.
    pub fn shards_of_many(&self) -> u16 {
        self.shards.unwrap_or(SHARDS)
    }

    /// Whether the configuration lets receiving cores assist inspecting cores.
    pub fn assists(&self) -> bool {
        self.model == Model::RoleSplit && self.roles.assist
    }

    /// Number of packets in a ring above which receiving cores assist.
    pub fn assist_threshold(&self) -> u32 {
        self.roles.assist_threshold.unwrap_or(self.ring / 4)
    }
}

/// Which cores transmit if roles are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transmit {
    /// The receiving cores.
    Io,
    /// The inspecting cores, each with its own queue.
    Inspect,
}

/// `[system.idle]`: how idle workers wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Idle {
    /// Number of polling rounds without a packet after which a worker begins to pause.
    pub spin: u32,
    /// Number of further polling rounds, with a processor pause between them, after which a worker sleeps.
    pub pause: u32,
    /// Duration of a sleep. During a sleep, devices queue up to 1,024 received frames per queue.
    pub sleep: Period,
    /// Whether workers sleep until a device raises an interrupt, but at most for a millisecond or for `sleep`,
    /// whichever is longer. The setting has an effect only if all devices support interrupts.
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

/// `[system.rebalance]`: conditions under which shards move from busy workers to other workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Rebalance {
    /// Whether shards move.
    pub enabled: bool,
    /// Load of the busiest worker, in percent of its core, below which no shard moves.
    pub busy: u32,
    /// Difference between the loads of the busiest and the least busy worker, in percent, below which no shard moves.
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

/// Fields over which the cards' hash is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steering {
    /// The inside source address, or the outside destination address and port, if the card supports this. All flows of
    /// a host are then in the same shard.
    Subset,
    /// Addresses and ports, which every card supports. The flows of a host are then in different shards, and outside
    /// ports are selected so that replies arrive at the shard of their flow. If a pool requires all flows of a host in
    /// one shard, workers hand packets of these flows over.
    FiveTuple,
}

/// Whether packet buffers are in huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hugepages {
    /// Use huge pages if the machine has enough huge pages.
    Auto,
    /// Do not use huge pages.
    Off,
    /// Use huge pages always. The start fails if the machine has too few huge pages.
    Require,
}

/// `[system.watchdog]`: watchdog of the workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Watchdog {
    /// A worker that completes no burst within this time is reported as stuck.
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
    /// Maximum number of IPv4 sessions. Memory is reserved at start.
    pub ipv4: u32,
    /// Maximum number of IPv6 sessions. Memory is reserved at start.
    pub ipv6: u32,
    /// Idle timeouts of sessions. Pools may override the timeouts of sessions.
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

/// Idle timeouts of sessions by protocol and port, in whole seconds. A pool without a value uses the value of
/// `[sessions.timeouts]`. If both values are omitted, the default of the standards applies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Timeouts {
    /// Timeout of an established TCP connection. Default and minimum: 2 h 4 min (RFC 5382, REQ-5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_established: Option<Period>,
    /// Timeout of a partially open TCP connection. Default: 4 min (RFC 7857, section 2.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_transitory_open: Option<Period>,
    /// Timeout of a closing or reset TCP connection. Default: 4 min (RFC 7857, sections 2.1 and 2.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_transitory_close: Option<Period>,
    /// Timeout of an inbound TCP SYN that is not answered. Default and minimum: 6 s (RFC 5382, REQ-4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_incoming_syn: Option<Period>,
    /// UDP timeout. Default: 5 min; minimum: 2 min (RFC 4787, REQ-5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<Period>,
    /// UDP timeouts for individual server ports, which replace `udp`: `{ 53 = "10s" }`. The table has at most 8 ports.
    /// Only ports below 1024 may have a timeout of less than 2 min (RFC 4787, REQ-5a).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp_ports: Option<IndexMap<Port, Period>>,
    /// Timeout of ICMP queries. Default and minimum: 60 s (RFC 5508, REQ-2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp: Option<Period>,
    /// Timeout of other protocols. Default: 5 min.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<Period>,
    /// Whether inbound packets also refresh a session. Default: true (RFC 4787, REQ-6).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbound_refresh: Option<bool>,
}

/// `[control]`: the control socket, traces and captures, and the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Control {
    /// Path of the Unix socket. Only the owner of the socket may connect.
    pub socket: PathBuf,
    /// Log level.
    pub log: LogLevel,
    /// Maximum number of packets in a trace.
    pub trace_limit: u32,
    /// Maximum number of captured packets that wait to be fetched.
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

/// Log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// Log errors that stop an operation.
    Error,
    /// In addition, log warnings.
    Warn,
    /// In addition, log events.
    Info,
    /// In addition, log the causes of events.
    Debug,
    /// In addition, log every step.
    Trace,
}

//! Formats a plan as text and as JSON.

use std::path::PathBuf;

use serde::Serialize;
use sluice_engine::placement::Core;

use super::live::Seen;

/// Origin of the traffic.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "from")]
pub enum TrafficOrigin {
    /// Generated from a profile.
    Profile,
    /// Captures.
    Captures {
        /// Paths of the files.
        files: Vec<PathBuf>,
    },
    /// Packets that the interfaces of the running daemon received.
    Daemon(Seen),
    /// Packets that kernel interfaces received.
    Kernel(Seen),
}

/// Cost of a part.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PartCost {
    /// Name of the part.
    pub part: &'static str,
    /// Total cycles per packet, if different workers may have the parts.
    pub cycles: f64,
    /// Total cycles per packet on a worker that parses, translates and transmits the packet.
    pub undivided: f64,
    /// Cycles that are assumed for the device driver. The remaining cycles are measured.
    pub assumed: f64,
}

/// Cost of a hand-over.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct HandOverCost {
    /// Distance between the cores.
    pub distance: &'static str,
    /// The measured pair of cores. `None` if the cost is assumed.
    pub measured: Option<[Core; 2]>,
    /// Cycles per packet on the sending core.
    pub out: f64,
    /// Cycles per packet on the receiving core.
    pub take: f64,
}

/// A placement with its predicted performance.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Candidate {
    /// Description of the placement.
    pub placement: String,
    /// Maximum rate in packets per second.
    pub packets_per_second: f64,
    /// Maximum rate in frame bits per second, for the measured traffic.
    pub bits_per_second: f64,
    /// Core that limits the rate.
    pub bottleneck: Core,
    /// Cycles of the bottleneck core for each packet that the gateway receives.
    pub cycles: f64,
    /// Part of packet processing that takes most of the bottleneck core's cycles.
    pub most: &'static str,
    /// Utilisation of the bottleneck core at the required rate. `None` if no rate is required.
    pub busy: Option<f64>,
}

/// Traffic with which the costs were measured.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TrafficSummary {
    /// Name of the traffic.
    pub name: String,
    /// Origin of the traffic.
    pub source: TrafficOrigin,
    /// Mean frame size in bytes, without check sequence.
    pub bytes: f64,
    /// Number of sessions.
    pub sessions: u64,
    /// Packets per session. `None` if sessions are long-lived.
    pub packets_per_session: Option<f64>,
    /// Cycles that the creation of a session takes.
    pub opening: f64,
    /// Fraction of the packets that were forwarded.
    pub forwarded: f64,
    /// The most frequent drop reason.
    pub dropped_for: Option<&'static str>,
    /// Fraction of the packets in the busiest shard.
    pub busiest_shard: f64,
}

/// Number of cores that a load needs.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CoreRequirement {
    /// The load as typed.
    pub load: String,
    /// Packets per second.
    pub packets_per_second: f64,
    /// New sessions per second. `None` if sessions are long-lived.
    pub sessions_per_second: Option<f64>,
    /// Required number of cores. `None` if no number is sufficient.
    pub cores: Option<usize>,
    /// Whether the load requires more cores than are available.
    pub beyond: bool,
    /// Placement of the parts on these cores.
    pub placement: Option<Candidate>,
    /// How to reduce the number of cores.
    pub hint: Option<String>,
}

/// A plan.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Plan {
    /// Cycles per second of a core.
    pub frequency: u64,
    /// Cores for which the plan was computed.
    pub cores: Vec<Core>,
    /// Queues of each device.
    pub queues: u16,
    /// Shards of the session table.
    pub shards: u16,
    /// The measured traffic.
    pub traffic: TrafficSummary,
    /// Cycles per packet, by part.
    pub parts: Vec<PartCost>,
    /// Cost of a hand-over in cycles per packet, for each distance between two cores.
    pub hand_overs: Vec<HandOverCost>,
    /// All placements, the fastest first.
    pub candidates: Vec<Candidate>,
    /// The chosen placement.
    pub choice: Candidate,
    /// Reasons for the choice, one sentence each.
    pub reasons: Vec<String>,
    /// Number of cores that the load in the request needs.
    pub answer: Option<CoreRequirement>,
}

//! A plan as it is printed, and as JSON.

use std::path::PathBuf;

use serde::Serialize;
use sluice_engine::placement::Core;

use super::live::Seen;

/// Where the traffic is from.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "from")]
pub enum Origin {
    /// Made up, after a profile.
    Profile,
    /// Captures.
    Captures {
        /// Their files.
        files: Vec<PathBuf>,
    },
    /// What the interfaces of the running daemon received.
    Daemon(Seen),
    /// What came to the interfaces of the kernel.
    Kernel(Seen),
}

/// What a part costs.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PartCost {
    /// The part.
    pub part: &'static str,
    /// Cycles per packet in all.
    pub cycles: f64,
    /// Of these, assumed for the driver of the devices; the rest is measured.
    pub assumed: f64,
}

/// What a hand-over costs.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct HandOverCost {
    /// How far the cores are from each other.
    pub distance: &'static str,
    /// The cores it was measured between; none where it is assumed.
    pub measured: Option<[Core; 2]>,
    /// Cycles per packet of who gives.
    pub out: f64,
    /// Cycles per packet of who takes.
    pub take: f64,
}

/// A placement and what to expect of it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Candidate {
    /// The placement in words.
    pub placement: String,
    /// Packets per second at most.
    pub packets_per_second: f64,
    /// Bits of frames per second, of the traffic measured.
    pub bits_per_second: f64,
    /// The core that limits it.
    pub bottleneck: Core,
    /// Its cycles for each packet that comes.
    pub cycles: f64,
    /// What takes most of them.
    pub most: &'static str,
    /// Share of that core's time at the rate that is to be carried; none without such a rate.
    pub busy: Option<f64>,
}

/// The traffic that was measured with.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TrafficSummary {
    /// What it is.
    pub name: String,
    /// Where it is from.
    pub source: Origin,
    /// Mean bytes of a frame, without check sequence.
    pub bytes: f64,
    /// Sessions that there were.
    pub sessions: u64,
    /// Packets of a session; none where sessions last.
    pub packets_per_session: Option<f64>,
    /// Cycles to open a session.
    pub opening: f64,
    /// Share of the packets that left again.
    pub forwarded: f64,
    /// What most of the others were dropped for.
    pub dropped_for: Option<&'static str>,
    /// Share of the busiest shard.
    pub busiest_shard: f64,
}

/// The answer to how many cores a load needs.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Answer {
    /// The load as it was typed.
    pub load: String,
    /// Packets per second.
    pub packets_per_second: f64,
    /// New sessions per second, where sessions end.
    pub sessions_per_second: Option<f64>,
    /// Cores that carry it; none where no number of them does.
    pub cores: Option<usize>,
    /// Whether that is more than the cores there are to use.
    pub beyond: bool,
    /// The placement.
    pub placement: Option<Candidate>,
    /// What would make fewer cores do.
    pub hint: Option<String>,
}

/// A plan.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Plan {
    /// Cycles per second.
    pub frequency: u64,
    /// The cores that were planned for.
    pub cores: Vec<Core>,
    /// Queues that each device has.
    pub queues: u16,
    /// Shards of the session table.
    pub shards: u16,
    /// The traffic.
    pub traffic: TrafficSummary,
    /// Cycles per packet by part.
    pub parts: Vec<PartCost>,
    /// Cycles per packet of hand-overs, for the distances that there are.
    pub hand_overs: Vec<HandOverCost>,
    /// All placements, the fastest first.
    pub candidates: Vec<Candidate>,
    /// The one chosen.
    pub choice: Candidate,
    /// Why, in sentences.
    pub reasons: Vec<String>,
    /// How many cores a load needs.
    pub answer: Option<Answer>,
}

//! `frames`: one core by the size of frames (P0, Fig. 7 and 8; P4, Fig. 6), beside receive and transmit alone, Linux, and what
//! wires carry; and what a frame waits by load.
//!
//! 1,000 rules and 8,000 established flows, half TCP data and half UDP. Packets are in memory, as those of `nat-path`, and
//! the source writes every byte of them, as a card would. With checksums vouched for nobody reads what is behind the
//! headers: what a larger frame costs more is what `l2fwd` pays too, as the source's writing pushes headers out of caches.
//! Beside it the payloads are left in the buffers, where they were written before: then nothing should grow.
//!
//! On one core the source's time is subtracted; where execution models are compared it is part of what runs (`source`).

mod filled;
pub mod histogram;
mod latency;
mod line;
mod linux;
mod models;
pub mod pace;
mod plain;
mod sites;
mod throughput;
mod traffic;

use crate::nat_path::Direction;
use crate::nat_path::rig;
use crate::nat_path::rules::Style;
use crate::rows::{Row, Run};

type Failure = Box<dyn std::error::Error>;

/// Sizes of frames, check sequence counted.
pub const SIZES: [usize; 8] = [64, 128, 256, 512, 800, 1024, 1280, 1518];
/// Of these, those of a quick run.
const QUICK: [usize; 4] = [64, 256, 800, 1518];

/// Established flows.
const FLOWS: u32 = 8_000;
/// How they are translated.
const STYLE: Style = Style {
    rules: 1_000,
    ..Style::SESSIONS
};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// What wires of 10, 25 and 100 Gb/s carry.
    Theory,
    /// Linux with iptables, on the wires of `kernel`.
    Iptables,
    /// Sluice and `l2fwd` on one core as fast as they can, without what the source takes.
    Throughput,
    /// Sluice by execution model and `l2fwd`, on one core and on several, source and sink included.
    Models,
    /// What tags and a virtual MAC of each subscriber's site add.
    Sites,
    /// Sluice and `l2fwd` at a share of what Sluice can.
    Latency,
}

/// How stages of the work are laid on cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Model {
    /// All of them on each core.
    RunToCompletion,
    /// Each on a core of its own, as far as there are cores.
    Pipeline,
}

impl Model {
    fn name(self) -> &'static str {
        match self {
            Self::RunToCompletion => "run-to-completion",
            Self::Pipeline => "pipeline",
        }
    }
}

/// What to measure: everything where nothing is said.
#[derive(Clone, Debug, clap::Args)]
pub struct FramesArguments {
    /// Only these parts.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    /// Sizes of frames in bytes, check sequence counted: even ones from 64 to 1518.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = size)]
    bytes: Vec<usize>,
    /// Only packets that go these ways.
    #[arg(long, value_name = "DIRECTION", value_delimiter = ',')]
    direction: Vec<Direction>,
    /// Only these ways to lay stages on cores; a pipeline is in `models` alone.
    #[arg(long, value_name = "MODEL", value_delimiter = ',')]
    model: Vec<Model>,
    /// Models on these cores, the first four of them; those that this process may use where none is named.
    #[arg(long, value_name = "CORE", value_delimiter = ',')]
    on: Vec<usize>,
    /// Milliseconds of each measurement of latency; 1000 where not given, 300 with --quick.
    #[arg(long, value_name = "MS")]
    milliseconds: Option<u64>,
    /// Source and sink of the latency share the engine's core, as they do where there is one only.
    #[arg(long)]
    same_core: bool,
}

fn size(text: &str) -> Result<usize, String> {
    let size: usize = text.parse().map_err(|_| "not a number".to_owned())?;
    match (64..=1518).contains(&size) && size.is_multiple_of(2) {
        true => Ok(size),
        false => Err("an even number from 64 to 1518".into()),
    }
}

impl FramesArguments {
    fn sizes(&self, quick: bool) -> Vec<usize> {
        match (self.bytes.is_empty(), quick) {
            (false, _) => self.bytes.clone(),
            (true, true) => QUICK.to_vec(),
            (true, false) => SIZES.to_vec(),
        }
    }

    /// Sizes of frames whose latency is measured: the smallest and the largest.
    fn latency_sizes(&self, quick: bool) -> Vec<usize> {
        match (self.bytes.is_empty(), quick) {
            (false, _) => self.bytes.clone(),
            (true, true) => vec![SIZES[0]],
            (true, false) => vec![SIZES[0], SIZES[SIZES.len() - 1]],
        }
    }

    fn directions(&self) -> Vec<Direction> {
        let all = [Direction::Up, Direction::Down, Direction::Both];
        let wanted = |direction: &Direction| self.direction.is_empty() || self.direction.contains(direction);
        all.into_iter().filter(wanted).collect()
    }

    fn models(&self) -> Vec<Model> {
        match self.model.is_empty() {
            true => vec![Model::RunToCompletion, Model::Pipeline],
            false => self.model.clone(),
        }
    }

    /// The cores that execution models are laid on.
    fn cores(&self) -> Vec<usize> {
        let mut on = match self.on.is_empty() {
            true => sluice_dpdk::eal::allowed_cores(),
            false => self.on.clone(),
        };
        on.truncate(models::CORES);
        on
    }
}

/// A row of a case, with the keys that all have.
fn row(case: &str, bytes: usize, direction: Direction) -> Row {
    Row::new(case)
        .key("bytes", bytes)
        .key("direction", direction.name())
        .key("site", "none")
}

/// Run it.
pub fn run(run: &mut Run<'_>, arguments: &FramesArguments) -> Result<(), Failure> {
    let wanted = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    if wanted(Part::Theory) {
        arguments
            .sizes(run.quick)
            .into_iter()
            .for_each(|bytes| theory(run, bytes));
    }
    // Before DPDK pins this process.
    if wanted(Part::Iptables)
        && let Err(error) = linux::iptables(run, arguments)
    {
        eprintln!("sluice-bench: no rows of iptables: {error}");
    }
    let completes = arguments.models().contains(&Model::RunToCompletion);
    // DPDK gets its memory once: the first part says for all.
    let rigs = if wanted(Part::Models) {
        2 + 2 * arguments.cores().len()
    } else {
        2
    };
    if wanted(Part::Throughput) && completes {
        throughput::run(run, rig::start(rigs)?, arguments)?;
    }
    if wanted(Part::Models) {
        models::run(run, rig::start(rigs)?, arguments)?;
    }
    if wanted(Part::Sites) && completes {
        sites::run(run, rig::start(rigs)?, arguments)?;
    }
    if wanted(Part::Latency) && completes {
        latency::run(run, rig::start(rigs)?, arguments)?;
    }
    Ok(())
}

/// What wires carry one way.
fn theory(run: &mut Run<'_>, bytes: usize) {
    for speed in line::SPEEDS {
        let rate = line::rate(speed, bytes);
        let row = row("theory", bytes, Direction::Up).key("line_gbps", speed);
        (run.row)(row.figure("mpps", &[rate]).figure("gbps", &[line::gbps(rate, bytes)]));
    }
}

//! `frames`: one core by the size of frames (P0, Fig. 7 and 8; P4, Fig. 6), beside receive and transmit alone, Linux, and what
//! wires carry; and what a frame waits by load.
//!
//! 1,000 rules and 8,000 established flows, half TCP data and half UDP. Packets are in memory, as those of `nat-path`, and
//! the source writes every byte of them, as a card would. With checksums vouched for nothing reads what is behind the
//! headers: what a larger frame costs more is what `l2fwd` pays too, as the source's writing pushes headers out of caches.
//! Beside it the payloads are left in the buffers, where they were written before: then nothing should grow.
//!
//! On one core the source's time is subtracted; where execution models are compared it is part of what runs (`source`).

pub mod histogram;
mod latency;
mod models;
pub mod pace;
mod throughput;

use crate::kernel::established::iptables;
use crate::rig;
use crate::rig::lanes;
use crate::rig::measure::Direction;
use crate::rig::policy::Style;
use crate::rows::{Failure, Named, Row, Run};

/// Sizes of frames, check sequence counted.
const SIZES: [usize; 8] = [64, 128, 256, 512, 800, 1024, 1280, 1518];
/// Of these, those of a quick run.
const QUICK: [usize; 4] = [64, 256, 800, 1518];

/// Established flows.
const FLOWS: u32 = 8_000;
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
    /// The sizes that are named, or others where none is.
    fn sizes(&self, others: &[usize]) -> Vec<usize> {
        if self.bytes.is_empty() { others } else { &self.bytes }.to_vec()
    }

    fn all_sizes(&self, quick: bool) -> Vec<usize> {
        self.sizes(if quick { &QUICK } else { &SIZES })
    }

    fn directions(&self) -> Vec<Direction> {
        let all = [Direction::Up, Direction::Down, Direction::Both];
        let wanted = |direction: &Direction| self.direction.is_empty() || self.direction.contains(direction);
        all.into_iter().filter(wanted).collect()
    }

    fn lays(&self, model: Model) -> bool {
        self.model.is_empty() || self.model.contains(&model)
    }

    /// The cores that execution models are laid on.
    fn cores(&self) -> Vec<usize> {
        lanes::cores(&self.on, models::MAX_CORES)
    }
}

/// A row of a case, with the keys that all have.
fn row(case: &str, bytes: usize, direction: Direction) -> Row {
    let row = Row::new(case).key("bytes", bytes).key("direction", direction.name());
    row.key("site", "none")
}

pub fn run(run: &mut Run<'_>, arguments: &FramesArguments) -> Result<(), Failure> {
    let wanted = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    let sizes = arguments.all_sizes(run.quick);
    if wanted(Part::Theory) {
        for (bytes, speed) in sizes.iter().flat_map(|&bytes| SPEEDS.map(|speed| (bytes, speed))) {
            let rate = line_rate(speed, bytes);
            let row = row("theory", bytes, Direction::Up).key("line_gbps", speed);
            (run.row)(row.figure("mpps", &[rate]).figure("gbps", &[gbps(rate, bytes)]));
        }
    }
    // Before DPDK pins this process.
    if wanted(Part::Iptables)
        && let Err(error) = linux(run, arguments)
    {
        eprintln!("sluice-bench: no rows of iptables: {error}");
    }
    let completes = arguments.lays(Model::RunToCompletion);
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
        throughput::sites(run, rig::start(rigs)?, arguments)?;
    }
    if wanted(Part::Latency) && completes {
        latency::run(run, rig::start(rigs)?, arguments)?;
    }
    Ok(())
}

/// Linux with iptables at these sizes, on the wires of `kernel`: 1,000 rules, as many flows, established.
fn linux(run: &mut Run<'_>, arguments: &FramesArguments) -> Result<(), Failure> {
    let sizes: Vec<_> = arguments.all_sizes(run.quick).iter().map(usize::to_string).collect();
    // The generator sends one way.
    let ways = arguments.directions().into_iter().filter(|&way| way != Direction::Both);
    let ways: Vec<_> = ways.map(|way| way.name()).collect();
    if ways.is_empty() {
        return Ok(());
    }
    let mut take = |of_kernel: Row| {
        let bytes = of_kernel.text_of("bytes").parse().unwrap_or(0);
        let direction = if of_kernel.text_of("direction") == "down" {
            Direction::Down
        } else {
            Direction::Up
        };
        // Connection tracking looks at checksums.
        let row = row(&of_kernel.text_of("case"), bytes, direction)
            .key("cores", 1)
            .key("checksums", "computed");
        let row = row.key("limited_by", of_kernel.text_of("limited_by"));
        let row = row.scaled(&of_kernel, "packets_per_s", "mpps", 1e-6);
        (run.row)(row.scaled(&of_kernel, "packets_per_s", "gbps", gbps(1e-6, bytes)));
    };
    let words = format!("--bytes {} --direction {}", sizes.join(","), ways.join(","));
    iptables(STYLE.rules, &words, run.quick, &mut take)
}

/// Speeds of wires in Gb/s.
const SPEEDS: [u32; 3] = [10, 25, 100];

/// Bytes that a wire needs for each frame beside it: preamble, start delimiter, gap.
const BESIDE: usize = 20;

/// Millions of frames of so many bytes, check sequence counted, that a wire of `speed` Gb/s carries each second.
fn line_rate(speed: u32, bytes: usize) -> f64 {
    f64::from(speed) * 1e3 / ((bytes + BESIDE) * 8) as f64
}

/// Gb/s of frame bytes, neither preamble nor gap counted.
fn gbps(mpps: f64, bytes: usize) -> f64 {
    mpps * (bytes * 8) as f64 / 1e3
}

/// A row with what its rates are on wires: the fastest that is filled in each direction, and the shares of some.
fn on_wires(row: Row, bytes: usize, direction: Direction, shares: &[(u32, &'static str)]) -> Row {
    let ways = if direction == Direction::Both { 2.0 } else { 1.0 };
    let median = row.median("mpps").unwrap_or(0.0);
    let filled = SPEEDS
        .into_iter()
        .rfind(|&speed| median >= line_rate(speed, bytes) * ways);
    let with = row
        .clone()
        .key("fills_line_gbps", filled.unwrap_or(0))
        .scaled(&row, "mpps", "gbps", gbps(1.0, bytes));
    let share =
        |row: Row, &(speed, name): &(u32, &'static str)| row.figure(name, &[median / (line_rate(speed, bytes) * ways)]);
    shares.iter().fold(with, share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_of_ten_gigabits_is_the_known_one() {
        assert_eq!("14.88", format!("{:.2}", line_rate(10, 64)));
        assert_eq!("0.81", format!("{:.2}", line_rate(10, 1518)));
        assert_eq!(
            "7.62",
            format!("{:.2}", gbps(line_rate(10, 64), 64)),
            "P0, Fig. 7 and 8"
        );
        let row = Row::new("x").figure("mpps", &[14.9]);
        let filled = |direction| on_wires(row.clone(), 64, direction, &[]).text_of("fills_line_gbps");
        assert_eq!(
            ["10", "0"],
            [Direction::Up, Direction::Both]
                .map(filled)
                .each_ref()
                .map(String::as_str)
        );
    }
}

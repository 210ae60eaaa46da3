//! `frames`: throughput of one core by frame size (P0, Fig. 7 and 8; P4, Fig. 6), compared with plain forwarding
//! (`l2fwd`), with Linux and with line rates; also latency by load.
//!
//! 1,000 rules and 8,000 established flows, half of them TCP and half UDP. Packets are in memory, as in `nat-path`, and
//! the source writes every byte of them, as a network card does. If the card verifies checksums, the engine reads only
//! headers. `l2fwd` too becomes slower with larger frames, because the source's writes evict headers from the caches.
//! In further rows the payloads remain unchanged in the buffers; then the cost should not depend on the frame size.
//!
//! With one core, the source's time is subtracted. When execution models are compared, the source's time is included
//! (`source`).

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

/// Frame sizes, including the frame check sequence.
const SIZES: [usize; 8] = [64, 128, 256, 512, 800, 1024, 1280, 1518];
/// Frame sizes of a quick run.
const QUICK: [usize; 4] = [64, 256, 800, 1518];

/// Number of established flows.
const FLOWS: u32 = 8_000;
const STYLE: Style = Style {
    rules: 1_000,
    ..Style::SESSIONS
};

/// Parts of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Line rates of 10, 25 and 100 Gb/s.
    Theory,
    /// Linux with iptables, over the links of `kernel`.
    Iptables,
    /// Sluice and `l2fwd` on one core at maximum rate, without the source's time.
    Throughput,
    /// Sluice by execution model, and `l2fwd`, on one and several cores, including source and sink.
    Models,
    /// Additional cost of VLAN tags and a virtual MAC per subscriber site.
    Sites,
    /// Sluice and `l2fwd` at a share of Sluice's maximum rate.
    Latency,
}

/// Execution model: the placement of processing stages on cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Model {
    /// All stages on each core.
    RunToCompletion,
    /// Each stage on a separate core; stages share cores if there are fewer cores than stages.
    Pipeline,
}

/// What to measure; everything by default.
#[derive(Clone, Debug, clap::Args)]
pub struct FramesArguments {
    /// Measures only these parts.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    /// Frame sizes in bytes, including the frame check sequence: even numbers from 64 to 1518.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = size)]
    bytes: Vec<usize>,
    /// Measures only packets in these directions.
    #[arg(long, value_name = "DIRECTION", value_delimiter = ',')]
    direction: Vec<Direction>,
    /// Measures only these execution models; pipelines are measured only in `models`.
    #[arg(long, value_name = "MODEL", value_delimiter = ',')]
    model: Vec<Model>,
    /// Cores for the execution models; the first four are used. By default, the cores that this process may use.
    #[arg(long, value_name = "CORE", value_delimiter = ',')]
    on: Vec<usize>,
    /// Duration of each latency measurement in milliseconds; by default 1000, or 300 with --quick.
    #[arg(long, value_name = "MS")]
    milliseconds: Option<u64>,
    /// Run source and sink of the latency measurement on the engine's core, as on a machine with a single core.
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
    /// The frame sizes given on the command line, or else `others`.
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

    /// Cores for the execution models.
    fn cores(&self) -> Vec<usize> {
        lanes::cores(&self.on, models::MAX_CORES)
    }
}

/// Creates a row with the keys that all cases have.
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
    // Linux must be measured before DPDK pins this process.
    if wanted(Part::Iptables)
        && let Err(error) = linux(run, arguments)
    {
        eprintln!("sluice-bench: no rows of iptables: {error}");
    }
    let completes = arguments.lays(Model::RunToCompletion);
    // DPDK allocates its memory only once, so the first part must request enough for all parts.
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

/// Measures Linux with iptables at these frame sizes, over the links of `kernel`, with 1,000 rules and the same number
/// of established flows.
fn linux(run: &mut Run<'_>, arguments: &FramesArguments) -> Result<(), Failure> {
    let sizes: Vec<_> = arguments.all_sizes(run.quick).iter().map(usize::to_string).collect();
    // The generator sends in only one direction.
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
        // Connection tracking of Linux verifies checksums.
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

/// Link speeds in Gb/s.
const SPEEDS: [u32; 3] = [10, 25, 100];

/// Bytes per frame on the link in addition to the frame itself: preamble, start delimiter and inter-frame gap.
const BESIDE: usize = 20;

/// Line rate in million frames per second at `speed` Gb/s, for frames of `bytes` bytes including the frame check
/// sequence.
fn line_rate(speed: u32, bytes: usize) -> f64 {
    f64::from(speed) * 1e3 / ((bytes + BESIDE) * 8) as f64
}

/// Gb/s of frame bytes, without preamble and gap.
fn gbps(mpps: f64, bytes: usize) -> f64 {
    mpps * (bytes * 8) as f64 / 1e3
}

/// Adds line-rate figures to a row: the fastest link that is saturated in every direction, and the throughput as a
/// share of the line rate of several links.
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

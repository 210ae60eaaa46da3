//! `loss`: TCP through a bridge, with and without inspection, over a link that drops and delays packets; the link is
//! either between client and bridge or between bridge and server.
//!
//! One gateway has two bridges and inspects the traffic of one of them. One relay process is on the same side of both
//! bridges. Connections through both bridges are measured in turn, and the relay drops packets with the same numbers. A
//! third path contains the relay but no gateway: it shows the capacity of hosts and relay.
//!
//! The gateway's worker has its own core; hosts, relay and the kernel's work for them share another core.

mod hosts;
mod inside;
pub mod relay;
mod stream;
pub mod transfers;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::inspect::Written;
use crate::rows::Failure;
pub use inside::run;

/// Side of the gateway on which packets are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Place {
    /// Between client and gateway.
    Before,
    /// Between gateway and server.
    Behind,
}

/// Parts of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Throughput of one TCP connection.
    Stream,
    /// Correctness and duration of file transfers.
    Transfers,
}

/// What to measure; everything by default.
#[derive(Args, Clone, Debug)]
pub struct LossArguments {
    /// Measures only these parts.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    /// Packet loss in percent, in each direction.
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "0,0.01,0.1,1")]
    #[arg(value_parser = percent)]
    loss: Vec<f64>,
    /// Additional round-trip delay in milliseconds.
    #[arg(long, value_name = "MS", value_delimiter = ',', default_value = "0,20")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1_000))]
    delay: Vec<u32>,
    /// Side of the gateway on which packets are lost and delayed.
    #[arg(long, value_name = "PLACE", value_delimiter = ',', default_value = "before,behind")]
    place: Vec<Place>,
    /// Runs per row; by default 5, or 1 with --quick.
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// Seconds of a run; by default 3, or 1 with --quick.
    #[arg(long, value_name = "S")]
    seconds: Option<u32>,
    /// Number of files transferred at each loss rate and location, half of them in each direction.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    transfers: u32,
    /// Number of concurrent transfers.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    at_once: u32,
    /// Seconds after which a transfer counts as stalled.
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    patience: u32,
    /// Inspection rules; by default a few built-in ones.
    #[arg(long, value_name = "FILE")]
    signatures: Option<PathBuf>,
    /// Dialect of the rules.
    #[arg(long, value_enum, default_value_t = Written::Snort3)]
    dialect: Written,
    /// Also measure the path without a gateway.
    #[arg(long)]
    direct: bool,
    /// TCP congestion control of the hosts: `cubic`, `bbr` or `reno`, if the kernel supports it; by default the
    /// machine's setting.
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Seed that determines the dropped packets.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The program `sluice`; by default the one in the same folder as `sluice-bench`.
    #[arg(long, value_name = "FILE")]
    sluice: Option<PathBuf>,
}

fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "no number".to_owned())?;
    match (0.0..=50.0).contains(&value) {
        true => Ok(value),
        false => Err("0 to 50 of a hundred packets".into()),
    }
}

impl LossArguments {
    fn runs(&self, quick: bool) -> usize {
        self.runs.unwrap_or(if quick { 1 } else { 5 }).max(1)
    }

    fn seconds(&self, quick: bool) -> u32 {
        self.seconds.unwrap_or(if quick { 1 } else { 3 }).max(1)
    }

    fn does(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

/// Estimated duration of all streams; that of the transfers depends on the loss.
pub fn estimate(arguments: &LossArguments, quick: bool) -> Duration {
    let points = arguments.loss.len() * arguments.delay.len() * arguments.place.len();
    let ways = if arguments.direct { 3 } else { 2 };
    let streams = if arguments.does(Part::Stream) { points * ways } else { 0 };
    let run = Duration::from_secs(u64::from(arguments.seconds(quick)) + 1);
    run * (streams * arguments.runs(quick)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsed;

    #[test]
    fn everything_is_measured_where_nothing_is_said() {
        let all: LossArguments = parsed(&[]);
        assert_eq!(
            (vec![0.0, 0.01, 0.1, 1.0], vec![0, 20]),
            (all.loss.clone(), all.delay.clone())
        );
        assert_eq!(vec![Place::Before, Place::Behind], all.place);
        assert!(all.does(Part::Stream) && all.does(Part::Transfers));
        assert_eq!((5, 1, 1_000), (all.runs(false), all.runs(true), all.transfers));
    }

    #[test]
    fn loss_is_a_share_of_a_hundred() {
        for wrong in ["-1", "51", "x"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}

//! `loss`: TCP through a bridge, inspected and not, over a link that loses and delays packets, before the bridge and behind it.
//!
//! One gateway has two bridges, and inspects one of them. A relay of this program stands on the same side of both. Runs through the
//! one and the other take turns, with the same packets lost by number. A third way has the relay and no gateway: what the hosts and
//! the relay can.
//!
//! The gateway's worker has a core to itself; hosts, relay and all that the kernel does for them share another.

mod hosts;
pub mod inside;
pub mod relay;
mod stream;
pub mod transfers;

use std::path::PathBuf;

use clap::Args;

use crate::inspect::Written;
use crate::kernel::outside;
use crate::rows::Run;

use crate::rows::Failure;
/// On which side of the gateway packets are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Place {
    /// Between client and gateway.
    Before,
    /// Between gateway and server.
    Behind,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// What one TCP connection carries.
    Stream,
    /// Whether files arrive whole and in time.
    Transfers,
}

/// What to measure: everything where nothing is said.
#[derive(Args, Clone, Debug)]
pub struct LossArguments {
    /// Only these parts.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    /// Of a hundred packets, so many are lost, each way.
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "0,0.01,0.1,1")]
    #[arg(value_parser = percent)]
    loss: Vec<f64>,
    /// Milliseconds that a packet and its answer take longer.
    #[arg(long, value_name = "MS", value_delimiter = ',', default_value = "0,20")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=1_000))]
    delay: Vec<u32>,
    /// Where packets are lost and delayed.
    #[arg(long, value_name = "PLACE", value_delimiter = ',', default_value = "before,behind")]
    place: Vec<Place>,
    /// Runs per row; 5 where not given, 1 with --quick.
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// Seconds of a run; 3 where not given, 1 with --quick.
    #[arg(long, value_name = "S")]
    seconds: Option<u32>,
    /// Files that are transferred at each loss and place, half of them each way.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    transfers: u32,
    /// Transfers at a time.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    at_once: u32,
    /// Seconds after which a transfer counts as stalled.
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    patience: u32,
    /// Signatures to inspect by; a few of its own where not given.
    #[arg(long, value_name = "FILE")]
    signatures: Option<PathBuf>,
    /// The language that they are written in.
    #[arg(long, value_enum, default_value_t = Written::Snort3)]
    dialect: Written,
    /// The way without a gateway is measured, too.
    #[arg(long)]
    direct: bool,
    /// How the hosts' TCP answers loss: `cubic`, `bbr`, `reno`, as far as the kernel has it; the machine's own where not given.
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Which packets are lost.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The program `sluice`; beside this one where not given.
    #[arg(long, value_name = "FILE")]
    sluice: Option<PathBuf>,
    /// Set in the process that runs inside the namespaces.
    #[arg(long, hide = true)]
    pub inside: bool,
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

pub fn run(arguments: &LossArguments, run: &mut Run<'_>) -> Result<(), Failure> {
    let points = arguments.loss.len() * arguments.delay.len() * arguments.place.len();
    let ways = if arguments.direct { 3 } else { 2 };
    if arguments.does(Part::Stream) {
        let seconds = points * arguments.runs(run.quick) * ways * (arguments.seconds(run.quick) as usize + 1);
        eprintln!(
            "sluice-bench: streams take about {} minutes; keep the machine quiet",
            seconds.div_ceil(60)
        );
    }
    outside::enter(run, std::env::args_os().skip(1).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: LossArguments,
    }

    #[test]
    fn everything_is_measured_where_nothing_is_said() {
        let all = Line::parse_from(["loss"]).arguments;
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
            assert!(
                Line::try_parse_from(["loss", &format!("--loss={wrong}")]).is_err(),
                "{wrong}"
            );
        }
    }
}

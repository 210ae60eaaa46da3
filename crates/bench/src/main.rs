//! `sluice-bench`: measures the performance figures that the documentation states.
#![forbid(unsafe_code)]

mod cores;
mod daemon;
mod filter;
mod frames;
mod inspect;
mod kernel;
mod loss;
mod nat_lookup;
mod nat_path;
mod netns;
mod paper;
mod placement;
mod process;
mod report;
mod result;
mod rig;
mod router;
mod rows;
mod subscribers;
#[cfg(test)]
mod turn;
mod vm;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use cores::CoresArguments;
use filter::FilterArguments;
use frames::FramesArguments;
use inspect::InspectArguments;
use kernel::KernelArguments;
use kernel::generator::GeneratorArguments;
use loss::LossArguments;
use loss::relay::RelayArguments;
use loss::transfers::TransfersArguments;
use nat_lookup::NatLookupArguments;
use nat_path::NatPathArguments;
use paper::PaperArguments;
use placement::PlacementArguments;
use report::ReportArguments;
use router::RouterArguments;
use rows::{Row, Run};
use subscribers::SubscribersArguments;
use vm::VmArguments;

/// Measure the data plane.
#[derive(Parser)]
#[command(name = "sluice-bench", version)]
struct Arguments {
    /// Measure fewer sizes with fewer runs.
    #[arg(long, global = true)]
    quick: bool,
    /// Write the rows as JSON to this file instead of target/bench/NAME.json.
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Translation and forwarding in memory by one core, compared with the theoretical limit.
    NatPath(NatPathArguments),
    /// Several cores: scaling compared with that of the theoretical limit, and the cost of wrong steering (P4, Fig. 5).
    Cores(CoresArguments),
    /// One core by frame size, and latency by load (P0, Fig. 7 and 8; P4, Fig. 6).
    Frames(FramesArguments),
    /// Throughput of each placement of processing parts on cores, compared with the prediction (P0, Fig. 9 and 10).
    Placement(PlacementArguments),
    /// An inspecting bridge, by assignment of roles to cores (P3).
    Inspect(InspectArguments),
    /// Cost of finding a translation rule, by the number of rules (P4, Table 1).
    NatLookup(NatLookupArguments),
    /// Cost of finding the first rule of a packet filter, by matcher (P1, Fig. 4 and 12 to 15).
    Filter(FilterArguments),
    /// Cost of the forwarding table: lookups, changes, packets.
    Router(RouterArguments),
    /// Memory of sites, and the time until they have public addresses (P0).
    Subscribers(SubscribersArguments),
    /// Run the benchmarks for a paper's figures, and compare with the paper's values.
    Paper(PaperArguments),
    /// Linux and Sluice over the same links with the same traffic.
    Kernel(KernelArguments),
    /// Linux and Sluice in turn in one guest, on the same emulated cards (P0's future work).
    Vm(VmArguments),
    /// TCP throughput through a bridge with and without inspection, over links that drop and delay packets.
    Loss(LossArguments),
    /// All measurements as one HTML page with plots.
    Report(ReportArguments),
    /// List the names of the benchmarks, for scripts/bench.
    #[command(hide = true)]
    List,
    /// Packet generator of `kernel`, controlled by lines on its input.
    #[command(hide = true)]
    Generate(GeneratorArguments),
    /// Lossy link of `loss`, controlled by lines on its input.
    #[command(hide = true)]
    Relay(RelayArguments),
    /// Server or client of the file transfers of `loss`.
    #[command(hide = true)]
    Transfers(TransfersArguments),
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.bench {
        Bench::Generate(generator) => kernel::generator::run(generator),
        // The process inside the namespaces sends its rows to the process outside.
        Bench::Kernel(kernel) if kernel.inside => kernel::inside::run(kernel, arguments.quick),
        Bench::Kernel(kernel) => measure(&arguments, "kernel", |run| kernel::run(kernel, run)),
        Bench::Relay(relay) => loss::relay::run(relay),
        Bench::Transfers(transfers) => loss::transfers::run(transfers),
        Bench::Loss(loss) if loss.inside => loss::inside::run(loss, arguments.quick),
        Bench::Loss(loss) => measure(&arguments, "loss", |run| loss::run(loss, run)),
        Bench::Vm(vm) if vm.inside => vm::inside::run(vm, arguments.quick),
        Bench::Vm(vm) => measure(&arguments, "vm", |run| vm::run(vm, run)),
        // The process of a single run sends its figures to the process that collects all runs.
        Bench::Subscribers(subscribers) if subscribers.inside.is_some() => subscribers::inside(subscribers),
        Bench::Subscribers(subscribers) => measure(&arguments, "subscribers", |run| subscribers::run(run, subscribers)),
        Bench::Report(report) => report::run(report),
        Bench::List => {
            benches().for_each(|name| println!("{name}"));
            Ok(())
        }
        Bench::NatLookup(lookup) => measure(&arguments, "nat-lookup", |run| nat_lookup::run(run, lookup)),
        Bench::Filter(filter) => measure(&arguments, "filter", |run| filter::run(run, filter)),
        Bench::Router(router) => measure(&arguments, "router", |run| router::run(run, router)),
        Bench::Paper(paper) => measure(&arguments, "paper", |run| paper::run(run, paper)),
        Bench::Cores(cores) => measure(&arguments, "cores", |run| cores::run(run, cores)),
        Bench::Frames(frames) => measure(&arguments, "frames", |run| frames::run(run, frames)),
        Bench::Inspect(inspect) => measure(&arguments, "inspect", |run| inspect::run(run, inspect)),
        Bench::Placement(placement) => measure(&arguments, "placement", |run| placement::run(run, placement)),
        Bench::NatPath(path) => measure(&arguments, "nat-path", |run| nat_path::run(run, path)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Names of the commands that run a benchmark.
fn benches() -> impl Iterator<Item = String> {
    let commands: Vec<_> = Arguments::command().get_subcommands().cloned().collect();
    let measures = |command: &clap::Command| !command.is_hide_set() && command.get_name() != "report";
    commands
        .into_iter()
        .filter(measures)
        .map(|command| command.get_name().to_owned())
}

/// Whether a command line is valid for this program.
#[cfg(test)]
fn understands<'w>(words: impl IntoIterator<Item = &'w str>) -> bool {
    Arguments::try_parse_from(words).is_ok()
}

/// Runs a benchmark: prints each row as soon as it is measured, then all rows as a table, and writes the rows to a JSON
/// file.
fn measure(arguments: &Arguments, name: &str, bench: impl FnOnce(&mut Run<'_>) -> Outcome) -> Outcome {
    let mut measured = result::Measured::begin(name);
    let mut take = |row: Row| {
        eprintln!("{}", row.text());
        measured.rows.push(row);
    };
    let outcome = bench(&mut Run {
        quick: arguments.quick,
        row: &mut take,
    });
    print!("{}", rows::table(&measured.rows));
    let file = arguments.json.clone().unwrap_or_else(|| result::default_file(name));
    measured.write(&file)?;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_runs_every_bench_and_makes_an_exception_of_no_other() {
        let script = include_str!("../../../scripts/bench");
        assert!(script.contains(r#"in $("$bench" list)"#));
        let names: Vec<_> = benches().collect();
        assert_eq!(13, names.len(), "{names:?}");
        let labels = script.lines().filter_map(|line| line.trim().strip_suffix(')'));
        let exceptions: Vec<_> = labels
            .filter(|label| !label.contains(['(', '"']))
            .flat_map(|label| label.split(" | "))
            .collect();
        assert_eq!(["inspect", "paper", "kernel", "loss", "subscribers", "vm"], *exceptions);
        assert!(
            exceptions.iter().all(|&name| names.iter().any(|bench| bench == name)),
            "{exceptions:?}"
        );
    }
}

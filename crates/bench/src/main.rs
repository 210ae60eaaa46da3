//! `sluice-bench`: measures the performance figures that the documentation states.
#![forbid(unsafe_code)]

mod cores;
mod daemon;
mod filter;
mod frames;
mod inside;
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
mod role;
mod router;
mod rows;
mod subscribers;
#[cfg(test)]
mod turn;
mod vm;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};
use cores::CoresArguments;
use filter::FilterArguments;
use frames::FramesArguments;
use inspect::InspectArguments;
use kernel::KernelArguments;
use loss::LossArguments;
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
    /// Set in the process that runs inside private namespaces.
    #[arg(long, global = true, hide = true)]
    inside: bool,
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
    /// Another process of `kernel`, `vm` or `loss`, controlled by lines on its input.
    #[command(hide = true)]
    Role,
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.bench {
        Bench::Role => role::run(),
        Bench::Kernel(kernel) => enclosed(&arguments, "kernel", kernel::estimate, kernel, kernel::run),
        Bench::Loss(loss) => enclosed(&arguments, "loss", loss::estimate, loss, loss::run),
        Bench::Vm(vm) => enclosed(&arguments, "vm", vm::estimate, vm, vm::run),
        Bench::Subscribers(subscribers) => {
            let inside = arguments.inside;
            measure(&arguments, "subscribers", |run| {
                subscribers::run(run, subscribers, inside)
            })
        }
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

/// Arguments of a benchmark with these options.
#[cfg(test)]
fn parsed<A: clap::Args>(words: &[&str]) -> A {
    let command = A::augment_args(clap::Command::new("bench").no_binary_name(true));
    let matches = command.try_get_matches_from(words).expect("valid options");
    A::from_arg_matches(&matches).expect("valid options")
}

/// Whether a command line is valid for this program.
#[cfg(test)]
fn understands<'w>(words: impl IntoIterator<Item = &'w str>) -> bool {
    Arguments::try_parse_from(words).is_ok()
}

/// Runs a benchmark inside private namespaces, after stating how long it takes. `kernel` also needs a large enough
/// connection tracking table.
fn enclosed<A>(
    arguments: &Arguments,
    name: &str,
    estimate: fn(&A, bool) -> Duration,
    own: &A,
    bench: fn(&A, &mut Run<'_>) -> Outcome,
) -> Outcome {
    if arguments.inside {
        inside::furnish()?;
        return measure(arguments, name, |run| bench(own, run));
    }
    if let minutes @ 1.. = estimate(own, arguments.quick).as_secs().div_ceil(60) {
        eprintln!("sluice-bench: this takes about {minutes} minutes; keep the machine quiet");
    }
    let _widened = match name {
        "kernel" => Some(kernel::prepare()?),
        _ => None,
    };
    measure(arguments, name, |run| {
        inside::enter(run, std::env::args_os().skip(1).collect())
    })
}

/// Runs a benchmark: prints each row as soon as it is measured, then all rows as a table, and writes the rows to a JSON
/// file. Inside private namespaces, passes the rows to the process outside.
fn measure(arguments: &Arguments, name: &str, bench: impl FnOnce(&mut Run<'_>) -> Outcome) -> Outcome {
    if arguments.inside {
        return bench(&mut Run {
            quick: arguments.quick,
            row: &mut |row| inside::row(&row),
        });
    }
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

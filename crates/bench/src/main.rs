//! `sluice-bench`: measures what the documentation claims.
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
    /// Fewer sizes and fewer runs.
    #[arg(long, global = true)]
    quick: bool,
    /// Write the rows as JSON to this file, in place of target/bench/NAME.json.
    #[arg(long, global = true, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// One core's packets through translation and forwarding, in memory, beside the limit.
    NatPath(NatPathArguments),
    /// Several cores: scaling beside the limit's, and what steering costs (P4, Fig. 5).
    Cores(CoresArguments),
    /// One core by the size of frames, and what a frame waits by load (P0, Fig. 7 and 8; P4, Fig. 6).
    Frames(FramesArguments),
    /// What each way to spread the parts of a packet's way over cores carries, and what is expected of it (P0, Fig. 9, 10).
    Placement(PlacementArguments),
    /// A bridge that inspects everything, by who does what (P3).
    Inspect(InspectArguments),
    /// What finding a translation rule costs, by the number of rules (P4, Table 1).
    NatLookup(NatLookupArguments),
    /// What finding the first rule of a packet filter costs, by matcher (P1, Fig. 4 and 12 to 15).
    Filter(FilterArguments),
    /// What the forwarding table costs: lookups, changes, packets.
    Router(RouterArguments),
    /// What sites take of memory, and how long their public addresses take (P0).
    Subscribers(SubscribersArguments),
    /// What a paper's figures need, and the paper's values beside ours.
    Paper(PaperArguments),
    /// The same wires and traffic through Linux and through Sluice.
    Kernel(KernelArguments),
    /// Linux and Sluice by turns in one guest, on the same emulated cards (P0's future work).
    Vm(VmArguments),
    /// TCP through an inspected bridge over links that lose and delay packets, beside one that is not inspected.
    Loss(LossArguments),
    /// Everything measured, as one HTML page with plots.
    Report(ReportArguments),
    /// The names of the benches, for scripts/bench.
    #[command(hide = true)]
    List,
    /// The packets of `kernel`, told what to send by lines on its input.
    #[command(hide = true)]
    Generate(GeneratorArguments),
    /// The link of `loss`, told what to lose by lines on its input.
    #[command(hide = true)]
    Relay(RelayArguments),
    /// The files of `loss`: their server, or who transfers them.
    #[command(hide = true)]
    Transfers(TransfersArguments),
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.bench {
        Bench::Generate(generator) => kernel::generator::run(generator),
        // Its rows go to the process outside of the namespaces.
        Bench::Kernel(kernel) if kernel.inside => kernel::inside::run(kernel, arguments.quick),
        Bench::Kernel(kernel) => measure(&arguments, "kernel", |run| kernel::run(kernel, run)),
        Bench::Relay(relay) => loss::relay::run(relay),
        Bench::Transfers(transfers) => loss::transfers::run(transfers),
        Bench::Loss(loss) if loss.inside => loss::inside::run(loss, arguments.quick),
        Bench::Loss(loss) => measure(&arguments, "loss", |run| loss::run(loss, run)),
        Bench::Vm(vm) if vm.inside => vm::inside::run(vm, arguments.quick),
        Bench::Vm(vm) => measure(&arguments, "vm", |run| vm::run(vm, run)),
        // Its figures go to the process of all runs.
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

/// Every bench: the commands that measure.
fn benches() -> impl Iterator<Item = String> {
    let commands: Vec<_> = Arguments::command().get_subcommands().cloned().collect();
    let measures = |command: &clap::Command| !command.is_hide_set() && command.get_name() != "report";
    commands
        .into_iter()
        .filter(measures)
        .map(|command| command.get_name().to_owned())
}

/// Whether a command line is one of this program.
#[cfg(test)]
fn understands<'w>(words: impl IntoIterator<Item = &'w str>) -> bool {
    Arguments::try_parse_from(words).is_ok()
}

/// Run a bench: each row as a line when it is measured, all as a table at the end, and as JSON in a file.
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

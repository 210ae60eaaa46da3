//! `subscribers`: control plane measurements of P0: memory per site, time from lease to mapping, and time until sites
//! have public addresses.
//!
//! Functions of the daemon are measured with the daemon (`by` = `daemon`), which serves terminals and an operator over
//! veth; its components are also measured separately (`parts`).
//!
//! Each run is a separate process, so that it does not inherit the state of the allocator, and so that DHCP servers
//! listen in a private network namespace.

mod capacity;
mod gateway;
pub mod kea;
mod lease_to_mapping;
mod operator;
pub mod public_leases;
pub mod site;
mod world;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use crate::inside;
use crate::kernel::machine::is_root;
use crate::rows::{Failure, Named, Row, Run, Runs};

/// Parts of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Memory of sites, of their terminals, and of both kinds of leases.
    Capacity,
    /// Time from a line in a lease file until a terminal's packets are translated.
    LeaseToMapping,
    /// Time until all sites have public addresses from a real Kea.
    PublicLeases,
}

/// Component under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum By {
    /// Components of the daemon, separately.
    Parts,
    /// The daemon as a whole.
    Daemon,
}

const ALL: [(Part, By); 5] = [
    (Part::Capacity, By::Parts),
    (Part::Capacity, By::Daemon),
    (Part::LeaseToMapping, By::Daemon),
    (Part::PublicLeases, By::Parts),
    (Part::PublicLeases, By::Daemon),
];

impl Part {
    /// Default number of sites.
    fn sites(self, quick: bool) -> u32 {
        match (self, quick) {
            (Self::Capacity, false) => 100_000,
            (Self::PublicLeases, false) | (Self::Capacity, true) => 10_000,
            (Self::LeaseToMapping, false) => 1_000,
            (Self::LeaseToMapping | Self::PublicLeases, true) => 500,
        }
    }
}

/// What to measure; everything by default.
#[derive(Clone, Debug, clap::Args)]
pub struct SubscribersArguments {
    /// Measures only these parts.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    /// Measures only these components.
    #[arg(long, value_name = "WHO", value_delimiter = ',')]
    by: Vec<By>,
    /// Number of sites: up to 1000, or a multiple of 1000 up to 131,000. By default 100,000 for capacity, 10,000 for
    /// public leases and 1,000 for mappings, and fewer with --quick.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=131_000))]
    sites: Option<u32>,
    /// Number of terminals per site, up to 8.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=8))]
    terminals: u32,
    /// Maximum number of DHCP messages per second to the operator's server, over all sites.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Runs per row; by default 5, or 1 with --quick.
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// The program `sluice`; by default the one in the same folder as `sluice-bench`.
    #[arg(long, value_name = "FILE")]
    sluice: Option<PathBuf>,
}

/// Numbers of sites and terminals, and message rate, of a run.
#[derive(Clone, Debug)]
pub struct Size {
    sites: u32,
    terminals: u32,
    /// Maximum number of DHCP messages per second to the operator's server.
    rate: u32,
    program: Option<PathBuf>,
}

pub type Figures = Vec<(&'static str, f64)>;

impl SubscribersArguments {
    fn size(&self, part: Part, quick: bool) -> Size {
        Size {
            sites: self.sites.unwrap_or(part.sites(quick)),
            terminals: self.terminals,
            rate: self.rate,
            program: self.sluice.clone(),
        }
    }

    fn runs(&self, quick: bool) -> usize {
        self.runs.unwrap_or(if quick { 1 } else { 5 }).max(1)
    }
}

/// Measures once.
fn measure((part, by): (Part, By), size: &Size) -> Result<Row, Failure> {
    let figures = match (part, by) {
        (Part::Capacity, By::Parts) => capacity::measure(size)?,
        (Part::Capacity, By::Daemon) => capacity::of_daemon(size)?,
        (Part::LeaseToMapping, _) => lease_to_mapping::measure(size)?,
        (Part::PublicLeases, By::Parts) => public_leases::measure(size)?,
        (Part::PublicLeases, By::Daemon) => public_leases::of_daemon(size)?,
    };
    let mut row = Row::new(part.name())
        .key("by", by.name())
        .key("sites", size.sites)
        .key("terminals", size.terminals);
    if part == Part::PublicLeases {
        row = row.key("messages_per_s", size.rate);
    }
    let mut runs = Runs::default();
    runs.extend(figures);
    Ok(row.runs(&runs))
}

/// Whether the measurement needs a private network namespace.
fn has_network((part, by): (Part, By)) -> bool {
    part != Part::Capacity || by == By::Daemon
}

/// Arguments of the process of a single run.
fn words((part, by): (Part, By), size: &Size) -> Vec<OsString> {
    let (sites, terminals, rate) = (size.sites, size.terminals, size.rate);
    let (part, by) = (part.name(), by.name());
    let line = format!("subscribers --only {part} --by {by} --sites {sites} --terminals {terminals} --rate {rate}");
    let program = size
        .program
        .iter()
        .flat_map(|program| ["--sluice".into(), program.clone().into()]);
    line.split(' ').map(OsString::from).chain(program).collect()
}

/// Measures in a process of its own, which has private namespaces if it needs a network.
fn once(what: (Part, By), size: &Size) -> Result<Row, Failure> {
    let (mut row, words) = (None, words(what, size));
    let mut run = Run {
        quick: false,
        row: &mut |measured| row = Some(measured),
    };
    match has_network(what) {
        true => inside::enter(&mut run, words)?,
        false => inside::start(&mut run, &mut Command::new(std::env::current_exe()?), words)?,
    }
    Ok(row.ok_or("a run has no result")?)
}

/// One row for several runs.
fn combined(runs: &[Row]) -> Row {
    let first = runs.first().cloned().unwrap_or_default();
    let mut keys = first.json();
    if let Some(keys) = keys.as_object_mut() {
        keys.retain(|_, value| !value.is_object());
    }
    let row = Row::from_json(&keys).unwrap_or_default();
    first.figures().fold(row, |row, (name, _)| {
        let values: Vec<f64> = runs.iter().filter_map(|run| run.median(name)).collect();
        row.figure(name.to_owned(), &values)
    })
}

/// Measures everything that the arguments select. The process of a single run (`inside`) measures once.
pub fn run(run: &mut Run<'_>, arguments: &SubscribersArguments, inside: bool) -> Result<(), Failure> {
    let wanted = |(part, by): &(Part, By)| {
        (arguments.only.is_empty() || arguments.only.contains(part))
            && (arguments.by.is_empty() || arguments.by.contains(by))
    };
    for what in ALL.into_iter().filter(wanted) {
        let size = arguments.size(what.0, run.quick);
        if inside {
            (run.row)(measure(what, &size)?);
            continue;
        }
        if has_network(what) && !is_root() {
            let (part, by) = (what.0.name(), what.1.name());
            eprintln!("sluice-bench: no rows of {part} by {by}: network namespaces need root here");
            continue;
        }
        let runs = (0..arguments.runs(run.quick)).map(|_| once(what, &size));
        (run.row)(combined(&runs.collect::<Result<Vec<_>, _>>()?));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsed;

    #[test]
    fn command_of_a_run_is_understood() {
        let size = parsed::<SubscribersArguments>(&["--sites", "7", "--sluice", "x"]).size(Part::Capacity, false);
        for what in ALL {
            let words = words(what, &size);
            let words: Vec<_> = words.iter().filter_map(|word| word.to_str()).collect();
            assert!(
                crate::understands(["sluice-bench"].into_iter().chain(words.iter().copied())),
                "{words:?}"
            );
        }
    }

    #[test]
    fn row_of_several_runs_has_the_figures_of_all() {
        let run = |seconds| Row::new("capacity").key("sites", 7).figure("seconds", &[seconds]);
        let row = combined(&[run(3.0), run(1.0), run(2.0)]);
        assert_eq!(
            Row::new("capacity")
                .key("sites", 7)
                .figure("seconds", &[1.0, 2.0, 3.0])
                .json(),
            row.json()
        );
    }
}

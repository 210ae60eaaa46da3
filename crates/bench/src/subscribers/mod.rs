//! `subscribers`: control plane measurements of P0: memory per site, time from lease to mapping, and time until sites
//! have public addresses.
//!
//! Functions of the daemon are measured with the daemon (`by` = `daemon`), which serves terminals and an operator over
//! veth; its components are also measured separately (`parts`).
//!
//! Each run is a separate process, so that it does not inherit the state of the allocator, and so that DHCP servers
//! listen in a private network namespace.

mod capacity;
mod ends;
mod gateway;
pub mod kea;
mod lease_to_mapping;
mod operator;
pub mod public_leases;
pub mod site;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::kernel::machine::is_root;
use crate::rows::{Named, Row, Run};

use crate::rows::Failure;
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
    /// Set in the process of a single run to the part that the run measures.
    #[arg(long, hide = true, value_name = "PART")]
    pub inside: Option<Part>,
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

/// Measures once, and sends the figures to the parent process as a line of JSON.
pub fn inside(arguments: &SubscribersArguments) -> Result<(), Failure> {
    let part = arguments.inside.ok_or("nothing is to be measured")?;
    let by = arguments.by.first().copied().unwrap_or(By::Parts);
    let size = &arguments.size(part, false);
    let figures = match (part, by) {
        (Part::Capacity, By::Parts) => capacity::measure(size)?,
        (Part::Capacity, By::Daemon) => capacity::of_daemon(size)?,
        (Part::LeaseToMapping, _) => lease_to_mapping::measure(size)?,
        (Part::PublicLeases, By::Parts) => public_leases::measure(size)?,
        (Part::PublicLeases, By::Daemon) => public_leases::of_daemon(size)?,
    };
    let figures: serde_json::Map<String, Value> = figures
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    println!("{}", Value::from(figures));
    Ok(())
}

/// Whether the measurement needs a private network namespace.
fn has_network((part, by): (Part, By)) -> bool {
    part != Part::Capacity || by == By::Daemon
}

fn command((part, by): (Part, By), size: &Size) -> Result<Command, Failure> {
    let program = std::env::current_exe()?;
    let mut command = match has_network((part, by)) {
        false => Command::new(program),
        true => {
            let mut command = Command::new("unshare");
            // The memory of processes is read from /proc by their numbers in this PID namespace.
            command.args(["--net", "--pid", "--mount-proc", "--fork", "--kill-child=KILL"]);
            command.arg(program);
            command
        }
    };
    command.args(["subscribers", "--inside", &part.name(), "--by", &by.name()]);
    for (name, value) in [
        ("--sites", size.sites),
        ("--terminals", size.terminals),
        ("--rate", size.rate),
    ] {
        command.args([name, &value.to_string()]);
    }
    if let Some(program) = &size.program {
        command.arg("--sluice").arg(program);
    }
    Ok(command)
}

fn once(what: (Part, By), size: &Size) -> Result<BTreeMap<String, f64>, Failure> {
    let mut command = command(what, size)?;
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{}: {}", what.0.name(), output.status).into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(serde_json::from_str(text.lines().last().unwrap_or_default())?)
}

fn row((part, by): (Part, By), size: &Size, runs: &[BTreeMap<String, f64>]) -> Row {
    let row = Row::new(part.name())
        .key("by", by.name())
        .key("sites", size.sites)
        .key("terminals", size.terminals);
    let row = match part {
        Part::PublicLeases => row.key("messages_per_s", size.rate),
        Part::Capacity | Part::LeaseToMapping => row,
    };
    let names = runs.iter().flat_map(BTreeMap::keys).collect::<BTreeSet<_>>();
    names.into_iter().fold(row, |row, name| {
        let values: Vec<f64> = runs.iter().filter_map(|run| run.get(name).copied()).collect();
        row.figure(name.clone(), &values)
    })
}

pub fn run(run: &mut Run<'_>, arguments: &SubscribersArguments) -> Result<(), Failure> {
    let wanted = |(part, by): &(Part, By)| {
        (arguments.only.is_empty() || arguments.only.contains(part))
            && (arguments.by.is_empty() || arguments.by.contains(by))
    };
    for what in ALL.into_iter().filter(wanted) {
        let (part, by) = what;
        if has_network(what) && !is_root() {
            let (part, by) = (part.name(), by.name());
            eprintln!("sluice-bench: no rows of {part} by {by}: network namespaces need root here");
            continue;
        }
        let size = arguments.size(part, run.quick);
        let runs = (0..arguments.runs(run.quick)).map(|_| once(what, &size));
        (run.row)(row(what, &size, &runs.collect::<Result<Vec<_>, _>>()?));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: SubscribersArguments,
    }

    fn parsed(words: &[&str]) -> SubscribersArguments {
        Line::parse_from([&["subscribers"], words].concat()).arguments
    }

    #[test]
    fn command_of_a_run_is_understood() {
        let size = parsed(&["--sites", "7", "--sluice", "x"]).size(Part::Capacity, false);
        for what in ALL {
            let command = command(what, &size).expect("the path of this program");
            let words: Vec<_> = command.get_args().filter_map(|word| word.to_str()).collect();
            let from = words.iter().position(|&word| word == "subscribers").expect("the bench");
            let line = ["sluice-bench"].into_iter().chain(words[from..].iter().copied());
            assert!(crate::understands(line), "{words:?}");
        }
    }
}

//! `subscribers`: P0's control plane: what a site takes of memory, and how long public leases take.
//!
//! Each run is in a process of its own: what one leaves to the allocator is not the next one's, and servers listen in a
//! network that is nobody else's.

mod capacity;
mod kea;
mod operator;
mod public_leases;
mod site;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::kernel::machine::is_root;
use crate::rows::{Row, Run};

type Failure = Box<dyn std::error::Error>;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Memory of sites, of their terminals, and of both kinds of leases.
    Capacity,
    /// How long it takes until all sites have public addresses of a real Kea.
    PublicLeases,
}

impl Part {
    const ALL: [Self; 2] = [Self::Capacity, Self::PublicLeases];

    /// Its name in rows.
    fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::PublicLeases => "public-leases",
        }
    }

    /// Sites where nothing is said.
    fn sites(self, quick: bool) -> u32 {
        match (self, quick) {
            (Self::Capacity, false) => 100_000,
            (Self::PublicLeases, false) => 10_000,
            (Self::Capacity, true) => 10_000,
            (Self::PublicLeases, true) => 500,
        }
    }

    /// Figures of its rows.
    fn figures(self) -> &'static [&'static str] {
        match self {
            Self::Capacity => &capacity::FIGURES,
            Self::PublicLeases => &public_leases::FIGURES,
        }
    }
}

/// What to measure: everything where nothing is said.
#[derive(Clone, Debug, clap::Args)]
pub struct SubscribersArguments {
    /// Only these parts.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
    /// Sites, up to 131072; 100,000 for capacity and 10,000 for public leases where not given, fewer with --quick.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=131_072))]
    sites: Option<u32>,
    /// Terminals of each site, up to 8.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=8))]
    terminals: u32,
    /// Messages a second that are sent to the operator's server, all sites together.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Runs per row; 5 where not given, 1 with --quick.
    #[arg(long, value_name = "N")]
    runs: Option<usize>,
    /// Set in the process of one run, with what that measures.
    #[arg(long, hide = true, value_name = "PART")]
    inside: Option<Part>,
}

/// What one run is of.
#[derive(Clone, Copy, Debug)]
struct Size {
    sites: u32,
    terminals: u32,
    rate: u32,
}

/// Figures of one run, by name.
type Figures = Vec<(&'static str, f64)>;

impl SubscribersArguments {
    /// Is this the process of one run?
    pub fn is_inside(&self) -> bool {
        self.inside.is_some()
    }

    fn size(&self, part: Part, quick: bool) -> Size {
        Size {
            sites: self.sites.unwrap_or(part.sites(quick)),
            terminals: self.terminals,
            rate: self.rate,
        }
    }

    fn runs(&self, quick: bool) -> usize {
        self.runs.unwrap_or(if quick { 1 } else { 5 }).max(1)
    }
}

/// One run, whose figures go to the process that started this one as a line of JSON.
pub fn inside(arguments: &SubscribersArguments) -> Result<(), Failure> {
    let part = arguments.inside.ok_or("nothing is to be measured")?;
    let size = arguments.size(part, false);
    let figures = match part {
        Part::Capacity => capacity::measure(size)?,
        Part::PublicLeases => public_leases::measure(size)?,
    };
    let figures: serde_json::Map<String, Value> = figures
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    println!("{}", Value::from(figures));
    Ok(())
}

/// The command of one run.
fn command(part: Part, size: Size) -> Result<Command, Failure> {
    let program = std::env::current_exe()?;
    let mut command = match part {
        Part::Capacity => Command::new(program),
        Part::PublicLeases => {
            let mut command = Command::new("unshare");
            command
                .args(["--net", "--pid", "--fork", "--kill-child=KILL"])
                .arg(program);
            command
        }
    };
    command.args(["subscribers", "--inside", part.name()]);
    for (name, value) in [
        ("--sites", size.sites),
        ("--terminals", size.terminals),
        ("--rate", size.rate),
    ] {
        command.args([name, &value.to_string()]);
    }
    Ok(command)
}

/// The figures of one run.
fn once(part: Part, size: Size) -> Result<BTreeMap<String, f64>, Failure> {
    let output = command(part, size)?
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("{}: {}", part.name(), output.status).into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(serde_json::from_str(text.lines().last().unwrap_or_default())?)
}

/// The row of some runs.
fn row(part: Part, size: Size, runs: &[BTreeMap<String, f64>]) -> Row {
    let row = Row::new(part.name())
        .key("sites", size.sites)
        .key("terminals", size.terminals);
    let row = match part {
        Part::Capacity => row,
        Part::PublicLeases => row.key("messages_per_s", size.rate),
    };
    part.figures().iter().fold(row, |row, &name| {
        let values: Vec<f64> = runs.iter().filter_map(|run| run.get(name).copied()).collect();
        row.figure(name, &values)
    })
}

/// Run it.
pub fn run(run: &mut Run<'_>, arguments: &SubscribersArguments) -> Result<(), Failure> {
    for part in Part::ALL {
        if !arguments.only.is_empty() && !arguments.only.contains(&part) {
            continue;
        }
        if part == Part::PublicLeases && !is_root() {
            eprintln!(
                "sluice-bench: no rows of {}: network namespaces need root here",
                part.name()
            );
            continue;
        }
        let size = arguments.size(part, run.quick);
        let runs = (0..arguments.runs(run.quick)).map(|_| once(part, size));
        (run.row)(row(part, size, &runs.collect::<Result<Vec<_>, _>>()?));
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
    fn sizes_are_those_of_the_aims_where_nothing_is_said() {
        let all = parsed(&[]);
        let of = |part, quick| all.size(part, quick);
        assert_eq!(
            (100_000, 4),
            (of(Part::Capacity, false).sites, of(Part::Capacity, false).terminals)
        );
        assert_eq!(10_000, of(Part::PublicLeases, false).sites);
        assert!(of(Part::PublicLeases, true).sites < 10_000);
        let some = parsed(&["--sites", "7", "--terminals", "2", "--runs", "3"]);
        assert_eq!((7, 3), (some.size(Part::Capacity, true).sites, some.runs(true)));
        assert!(Line::try_parse_from(["subscribers", "--sites", "200000"]).is_err());
    }

    #[test]
    fn command_of_a_run_is_understood() {
        let size = parsed(&["--sites", "7"]).size(Part::Capacity, false);
        for part in Part::ALL {
            let command = command(part, size).expect("the path of this program");
            let words: Vec<_> = command.get_args().filter_map(|word| word.to_str()).collect();
            let from = words.iter().position(|&word| word == "subscribers").expect("the bench");
            let line = ["sluice-bench"].iter().chain(&words[from..]);
            assert!(crate::understands(line), "{words:?}");
        }
    }

    #[test]
    fn row_has_the_keys_and_figures_of_its_part() {
        let size = parsed(&["--sites", "9"]).size(Part::Capacity, false);
        for part in Part::ALL {
            let run = |value: f64| part.figures().iter().map(|name| (name.to_string(), value)).collect();
            let row = row(part, size, &[run(1.0), run(3.0), run(2.0)]);
            assert_eq!((part.name(), "9", "4"), {
                let [case, sites, terminals] = ["case", "sites", "terminals"].map(|key| row.text_of(key));
                (
                    case.clone().leak() as &str,
                    sites.leak() as &str,
                    terminals.leak() as &str,
                )
            });
            for name in part.figures() {
                assert_eq!(Some(2.0), row.median(name), "{name}");
            }
        }
    }
}

//! `filter`: what it costs to find the first rule that matches, by matcher, rule set and traffic (P1, Fig. 4 and 12 to 15).
//!
//! Every matcher is asked about the same headers one after the other, and must say what the linear one says of a sample of
//! them before it is timed. Lookups do not depend on one another.

mod acl;
mod attack;
mod duel;
mod lists;
mod sets;
mod timing;
mod traces;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use sluice_filter::{Best, Linear, Matcher, Trie};

use crate::rows::{Row, Run};
use acl::RteAcl;
use attack::Attack;
use duel::Duel;
use lists::MOST;
use sets::Set;
use traces::{Trace, Traffic};

type Failure = Box<dyn std::error::Error>;

/// Rules of Fig. 4.
const RULES: [usize; 7] = [1, 10, 100, 1_000, 5_000, 10_000, 20_000];
/// Sizes of lists of Fig. 12 to 15.
const LISTS: [u16; 13] = [0, 1, 3, 5, 7, 9, 11, 13, 15, 21, 27, 35, 43];
/// Headers that are asked about in turn.
const HEADERS: usize = 1 << 16;

/// What to measure: P1's figures where no file is named.
#[derive(Clone, Debug, clap::Args)]
pub struct FilterArguments {
    /// A rule set as ClassBench writes it, also .gz, in place of P1's figures.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// How long to look for the headers of the trace `attack`, in place of 600 seconds, or 2 with --quick.
    #[arg(long, value_name = "N")]
    attack_seconds: Option<u64>,
    /// Seed of that search.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl FilterArguments {
    fn attack(&self, quick: bool) -> Attack {
        let seconds = self.attack_seconds.unwrap_or(if quick { 2 } else { 600 });
        Attack {
            time: Duration::from_secs(seconds),
            seed: self.seed,
        }
    }
}

/// Run it.
pub fn run(run: &mut Run<'_>, arguments: &FilterArguments) -> Result<(), Failure> {
    let runs = if run.quick { 3 } else { 7 };
    match &arguments.rules {
        Some(file) => {
            let set = Set::of_file(file)?;
            let traffic = traffic(&set, &[Trace::Uniform, Trace::Random]);
            let attack = Some(arguments.attack(run.quick));
            measure(run, &set, &traffic, &[0, 11], runs, attack)
        }
        None => {
            for rules in RULES {
                let set = Set::of_paper(rules);
                let traffic = traffic(&set, &[Trace::Local, Trace::NoneMatch]);
                measure(run, &set, &traffic, &[], runs, None)?;
            }
            let set = Set::of_paper(RULES[RULES.len() - 1]);
            let traffic = traffic(&set, &[Trace::Local, Trace::Uniform]);
            lists::lists(run, &set, &Trie::new(&set.rules, MOST)?, &traffic, &LISTS, runs)
        }
    }
}

fn traffic(set: &Set, traces: &[Trace]) -> Vec<Traffic> {
    traces.iter().map(|trace| trace.traffic(&set.rules, HEADERS)).collect()
}

/// All matchers on a set.
fn measure(
    run: &mut Run<'_>,
    set: &Set,
    traffic: &[Traffic],
    sizes: &[u16],
    runs: usize,
    attack: Option<Attack>,
) -> Result<(), Failure> {
    let linear = Linear::new(&set.rules);
    for traffic in traffic {
        let row = timing::costs(&linear, traffic, runs).onto(row(set, "linear", traffic));
        (run.row)(timing::sized(row, linear.bytes(), set.rules.len()));
    }
    contestants(set).run(run, set, traffic, attack, runs)?;
    let begin = Instant::now();
    match Trie::new(&set.rules, MOST) {
        Ok(trie) => {
            let build = begin.elapsed().as_secs_f64() * 1e3;
            lists::trie(run, set, (&trie, build), traffic, runs)?;
            lists::lists(run, set, &trie, traffic, sizes, runs)?;
        }
        Err(refused) => eprintln!("{}: {refused}", set.name),
    }
    Ok(())
}

/// The default matcher, and on sets of files rte_acl, which knows prefixes only.
fn contestants(set: &Set) -> Duel {
    let begin = Instant::now();
    let best = Best::new(&set.rules);
    let build = begin.elapsed().as_secs_f64() * 1e3;
    let acl = set.is_file.then(|| RteAcl::new(&set.rules));
    let acl = acl.and_then(|built| built.inspect_err(|refused| eprintln!("{}: {refused}", set.name)).ok());
    Duel {
        best: Some((best, build)),
        acl,
    }
}

fn row(set: &Set, matcher: &str, traffic: &Traffic) -> Row {
    Row::new("lookup")
        .key("set", set.name.as_str())
        .key("rules", set.rules.len())
        .key("family", 4)
        .key("matcher", matcher)
        .key("trace", traffic.name)
}

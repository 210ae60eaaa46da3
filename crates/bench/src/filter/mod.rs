//! `filter`: cost of finding the first matching rule, by matcher, rule set and trace (P1, Fig. 4 and 12 to 15).
//!
//! Every matcher looks up the same headers in the same order. Before a matcher is measured, its results for a sample
//! must equal those of linear search. Lookups do not depend on one another.

mod acl;
mod attack;
mod discard;
mod duel;
mod lists;
pub mod sets;
mod timing;
mod trace_file;
mod traces;
mod updates;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use sluice_filter::{CutTree, Linear, Matcher, Trie};

use crate::rows::{Row, Run};
use acl::RteAcl;
use attack::Attack;
use duel::Duel;
use lists::MOST;
use sets::Set;
use traces::{Trace, Traffic};

use crate::rows::Failure;
/// Numbers of rules in P1's Fig. 4.
const RULES: [usize; 7] = [1, 10, 100, 1_000, 5_000, 10_000, 20_000];
/// List lengths in P1's Fig. 12 to 15.
const LISTS: [u16; 13] = [0, 1, 3, 5, 7, 9, 11, 13, 15, 21, 27, 35, 43];
/// Number of distinct headers, which are looked up cyclically.
const HEADERS: usize = 1 << 16;

/// Available matchers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Name {
    Linear,
    Trie,
    CachedTrie,
    Best,
    #[value(name = "rte_acl")]
    RteAcl,
}

/// What to measure; P1's figures if no file is given.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct FilterArguments {
    /// A rule set in the format of ClassBench, also .gz, instead of P1's figures.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Packets in the format of ClassBench, or a capture, also .gz, instead of the generated traces.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Only this matcher; may be repeated. rte_acl is available only with --rules.
    #[arg(long = "matcher", value_name = "NAME")]
    matchers: Vec<Name>,
    /// Duration of the search for the headers of the trace `attack` in seconds; by default 600, or 2 with --quick.
    #[arg(long, value_name = "N")]
    attack_seconds: Option<u64>,
    /// Seed of the search for the trace `attack`.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Settings that are common to all rule sets.
struct Plan {
    matchers: Vec<Name>,
    /// Trace that replaces the generated traces, if given.
    trace: Option<Traffic>,
    attack: Option<Attack>,
    runs: usize,
}

impl Plan {
    fn new(arguments: &FilterArguments, quick: bool) -> Result<Self, Failure> {
        let trace = arguments.trace.as_deref().map(trace_file::read).transpose()?;
        let seconds = arguments.attack_seconds.unwrap_or(if quick { 2 } else { 600 });
        let attack = (arguments.rules.is_some() && trace.is_none()).then_some(Attack {
            time: Duration::from_secs(seconds),
            seed: arguments.seed,
        });
        Ok(Self {
            matchers: arguments.matchers.clone(),
            trace,
            attack,
            runs: if quick { 3 } else { 7 },
        })
    }

    fn asks(&self, name: Name) -> bool {
        self.matchers.is_empty() || self.matchers.contains(&name)
    }

    fn traffic(&self, set: &Set, traces: &[Trace]) -> Vec<Traffic> {
        match &self.trace {
            Some(trace) => vec![trace.clone()],
            None => traces.iter().map(|trace| trace.traffic(&set.rules, HEADERS)).collect(),
        }
    }
}

pub fn run(run: &mut Run<'_>, arguments: &FilterArguments) -> Result<(), Failure> {
    let plan = Plan::new(arguments, run.quick)?;
    match &arguments.rules {
        Some(file) => {
            let set = Set::of_file(file)?;
            let traffic = plan.traffic(&set, &[Trace::Uniform, Trace::Random]);
            measure(run, &plan, &set, &traffic, &[0, 11])
        }
        None => paper(run, &plan),
    }
}

/// Measure P1's figures.
fn paper(run: &mut Run<'_>, plan: &Plan) -> Result<(), Failure> {
    for rules in RULES {
        let set = Set::of_paper(rules);
        let traffic = plan.traffic(&set, &[Trace::Local, Trace::NoneMatch]);
        measure(run, plan, &set, &traffic, &[])?;
    }
    let set = Set::of_paper(RULES[RULES.len() - 1]);
    if plan.asks(Name::CachedTrie) {
        let traffic = plan.traffic(&set, &[Trace::Local, Trace::Uniform]);
        lists::lists(run, &set, &Trie::new(&set.rules, MOST)?, &traffic, &LISTS, plan.runs)?;
    }
    match plan.trace {
        // Skipped, because packets of a trace file cannot always be written as frames.
        Some(_) => Ok(()),
        None => discard::run(run, plan, &set, &Trace::Local.traffic(&set.rules, HEADERS)),
    }
}

/// Measure all matchers on a rule set.
fn measure(run: &mut Run<'_>, plan: &Plan, set: &Set, traffic: &[Traffic], sizes: &[u16]) -> Result<(), Failure> {
    if plan.asks(Name::Linear) {
        let linear = Linear::new(&set.rules);
        for traffic in traffic {
            let row = timing::costs(&linear, traffic, plan.runs).onto(row(set, "linear", traffic));
            (run.row)(timing::sized(row, linear.bytes(), set.rules.len()));
        }
    }
    contestants(plan, set).run(run, set, traffic, plan.attack, plan.runs)?;
    if plan.asks(Name::Best)
        && let Some(traffic) = traffic.iter().find(|traffic| traffic.name == Trace::Uniform.name())
    {
        updates::run(run, set, traffic, plan.runs)?;
    }
    if plan.asks(Name::Trie) || plan.asks(Name::CachedTrie) {
        tries(run, plan, set, traffic, sizes)?;
    }
    Ok(())
}

/// Measure P1's matchers, unless the trie is too large.
fn tries(run: &mut Run<'_>, plan: &Plan, set: &Set, traffic: &[Traffic], sizes: &[u16]) -> Result<(), Failure> {
    let begin = Instant::now();
    match Trie::new(&set.rules, MOST) {
        Ok(trie) => {
            let build = begin.elapsed().as_secs_f64() * 1e3;
            if plan.asks(Name::Trie) {
                lists::trie(run, set, (&trie, build), traffic, plan.runs)?;
            }
            if plan.asks(Name::CachedTrie) {
                lists::lists(run, set, &trie, traffic, sizes, plan.runs)?;
            }
        }
        Err(refused) => eprintln!("{}: {refused}", set.name),
    }
    Ok(())
}

/// Compiles the default matcher and, for rule sets from files, rte_acl, which supports only prefixes.
fn contestants(plan: &Plan, set: &Set) -> Duel {
    let best = || {
        let begin = Instant::now();
        let best = CutTree::new(&set.rules);
        (best, begin.elapsed().as_secs_f64() * 1e3)
    };
    let acl = || {
        let refused = |refused: &Failure| eprintln!("{}: {refused}", set.name);
        RteAcl::new(&set.rules).inspect_err(refused).ok()
    };
    Duel {
        best: plan.asks(Name::Best).then(best),
        acl: (set.is_file && plan.asks(Name::RteAcl)).then(acl).flatten(),
    }
}

fn row(set: &Set, matcher: &str, traffic: &Traffic) -> Row {
    row_of("lookup", set, matcher, traffic)
}

fn row_of(case: &str, set: &Set, matcher: &str, traffic: &Traffic) -> Row {
    Row::new(case)
        .key("set", set.name.as_str())
        .key("rules", set.rules.len())
        .key("family", 4)
        .key("matcher", matcher)
        .key("trace", traffic.name)
}

//! `filter`: what it costs to find the first rule that matches, by matcher, rule set and traffic (P1, Fig. 4 and 12 to 15).
//!
//! Every matcher is asked about the same headers one after the other, and must say what the linear one says of a sample of
//! them before it is timed. Lookups do not depend on one another.

mod sets;
mod traces;

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use sluice_dpdk::tsc;
use sluice_filter::{Best, CachedTrie, Header, Linear, Matcher, Probe, Rule, Trie};

use crate::rows::{Row, Run};
use sets::Set;
use traces::Trace;

type Failure = Box<dyn std::error::Error>;

/// Rules of Fig. 4.
const RULES: [usize; 7] = [1, 10, 100, 1_000, 5_000, 10_000, 20_000];
/// Sizes of lists of Fig. 12 to 15.
const LISTS: [u16; 13] = [0, 1, 3, 5, 7, 9, 11, 13, 15, 21, 27, 35, 43];
/// Most bytes of a trie.
const MOST: usize = 256 << 20;
/// Headers that are asked about in turn.
const HEADERS: usize = 1 << 16;
/// Seconds that one figure takes.
const SECONDS: f64 = 0.1;
/// Headers of which the linear matcher is asked too.
const SAMPLE: usize = 256;

/// What to measure: P1's figures where no file is named.
#[derive(Clone, Debug, clap::Args)]
pub struct FilterArguments {
    /// A rule set as ClassBench writes it, also .gz, in place of P1's figures.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
}

/// Run it.
pub fn run(run: &mut Run<'_>, arguments: &FilterArguments) -> Result<(), Failure> {
    let runs = if run.quick { 3 } else { 7 };
    match &arguments.rules {
        Some(file) => {
            let set = Set::of_file(file)?;
            let traces = [Trace::Uniform, Trace::Random];
            measure(run, &set, &traces, &[0, 11], runs)
        }
        None => {
            for rules in RULES {
                let set = Set::of_paper(rules);
                measure(run, &set, &[Trace::Local, Trace::NoneMatch], &[], runs)?;
            }
            let set = Set::of_paper(RULES[RULES.len() - 1]);
            lists(
                run,
                &set,
                &Trie::new(&set.rules, MOST)?,
                &[Trace::Local, Trace::Uniform],
                &LISTS,
                runs,
            )
        }
    }
}

/// All matchers on a set.
fn measure(run: &mut Run<'_>, set: &Set, traces: &[Trace], sizes: &[u16], runs: usize) -> Result<(), Failure> {
    let linear = Linear::new(&set.rules);
    for &trace in traces {
        let headers = trace.headers(&set.rules, HEADERS);
        let row = row(set, "linear", trace);
        (run.row)(timed(row, &linear, &set.rules, &headers, runs)?);
    }
    let begin = Instant::now();
    let best = Best::new(&set.rules);
    let build = begin.elapsed().as_secs_f64() * 1e3;
    for &trace in traces {
        let headers = trace.headers(&set.rules, HEADERS);
        let row = row(set, "best", trace).figure("build_ms", &[build]);
        (run.row)(timed(row, &best, &set.rules, &headers, runs)?);
    }
    let begin = Instant::now();
    match Trie::new(&set.rules, MOST) {
        Ok(trie) => {
            let build = begin.elapsed().as_secs_f64() * 1e3;
            for &trace in traces {
                let headers = trace.headers(&set.rules, HEADERS);
                let row = row(set, "trie", trace).figure("build_ms", &[build]);
                (run.row)(timed(row, &trie, &set.rules, &headers, runs)?);
            }
            lists(run, set, &trie, traces, sizes, runs)?;
        }
        Err(refused) => {
            eprintln!("{}: {refused}", set.name);
        }
    }
    Ok(())
}

/// Tries with lists of several sizes.
fn lists(
    run: &mut Run<'_>,
    set: &Set,
    trie: &Trie<u32>,
    traces: &[Trace],
    sizes: &[u16],
    runs: usize,
) -> Result<(), Failure> {
    for &trace in traces {
        let headers = trace.headers(&set.rules, HEADERS);
        for &size in sizes {
            for (probe, name) in [(Probe::InOrder, "in-order"), (Probe::Bisection, "bisection")] {
                let cached = CachedTrie::new(trie.clone(), size, probe);
                let row = row(set, "cached-trie", trace)
                    .key("list_size", size)
                    .key("list_search", name);
                let row = timed(row, &cached, &set.rules, &headers, runs)?;
                let mut core = cached.memory();
                let mut found = vec![None; headers.len()];
                cached.first_of_each(&mut core, &headers, &mut found);
                let share = |count: u64| [count as f64 / headers.len() as f64];
                (run.row)(
                    row.figure("searches_hit", &share(core.searches.hits))
                        .figure("searches_miss", &share(core.searches.misses))
                        .figure("searches_binary", &share(core.searches.binary)),
                );
            }
        }
    }
    Ok(())
}

fn row(set: &Set, matcher: &str, trace: Trace) -> Row {
    Row::new("lookup")
        .key("set", set.name.as_str())
        .key("rules", set.rules.len())
        .key("family", 4)
        .key("matcher", matcher)
        .key("trace", trace.name())
}

/// The row with what lookups cost; an error where the matcher is wrong.
fn timed<M: Matcher<u32>>(
    row: Row,
    matcher: &M,
    rules: &[Rule<u32>],
    headers: &[Header<u32>],
    runs: usize,
) -> Result<Row, Failure> {
    let linear = Linear::new(rules);
    let mut core = matcher.memory();
    for header in headers.iter().step_by(headers.len() / SAMPLE) {
        let (expected, found) = (linear.first(&mut (), header), matcher.first(&mut core, header));
        if expected != found {
            return Err(format!("{header:?} is for rule {expected:?}, and {found:?} was found").into());
        }
    }
    let (mut rates, mut cycles) = (Vec::new(), Vec::new());
    let mut found = vec![None; 64];
    for _ in 0..runs {
        let (begin, ticks, mut lookups) = (Instant::now(), tsc::now(), 0usize);
        'time: loop {
            for headers in headers.chunks(64) {
                matcher.first_of_each(&mut core, headers, &mut found);
                black_box(&found);
                lookups += headers.len();
                if begin.elapsed().as_secs_f64() >= SECONDS {
                    break 'time;
                }
            }
        }
        cycles.push((tsc::now() - ticks) as f64 / lookups as f64);
        rates.push(lookups as f64 / begin.elapsed().as_secs_f64());
    }
    let bytes = (matcher.bytes() + matcher.memory_bytes()) as f64;
    Ok(row
        .figure("lookups_per_s", &rates)
        .figure("cycles_per_lookup", &cycles)
        .figure("memory_kb", &[bytes / 1e3])
        .figure("bytes_per_rule", &[bytes / rules.len() as f64]))
}

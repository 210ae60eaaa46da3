//! `nat-lookup`: cost of finding the translation rule of a packet, by the number of rules (P4, Table 1).
//!
//! Each single lookup depends on the result of the previous one, so that its full latency is measured; the engine
//! itself looks up batches. For rows with changes, a second thread adds and removes rules meanwhile. `ns_scaled` is the
//! measured time, multiplied by the time of the `nat-path` probe on a quiet core and divided by its time during the
//! measurement; it never exceeds the measured time.

mod changes;
mod linear;
mod rules;
mod yardstick;

use std::hint::black_box;
use std::time::Instant;

use sluice_table::qns::{BATCH, Key, Match, QnsReader, QnsTable, Query, Value4};

use crate::rig::frames::Random;
use crate::rows::{Row, Run, Runs};
use changes::Changes;
use linear::Linear;
use yardstick::{Yardstick, scaled};

use crate::rows::Failure;
/// Numbers of rules: those of P4's table, and larger numbers.
const RULES: [usize; 7] = [100, 1_000, 3_000, 5_000, 10_000, 100_000, 1_000_000];
/// Maximum number of rules for linear search, as in P4.
const LINEAR: usize = 10_000;
/// Changes per second for rows with changes.
const CHANGES: u32 = 10_000;
/// Maximum number of distinct queries, which are used cyclically.
const QUESTIONS: usize = 1 << 20;
/// Duration of one measurement in seconds.
const SECONDS: f64 = 0.1;
/// Duration of a chunk of lookups in seconds: long enough for several changes per chunk.
const CHUNK: f64 = 500e-6;

/// What to measure; everything by default.
#[derive(Clone, Debug, clap::Args)]
pub struct NatLookupArguments {
    /// Measures only this number of rules.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    rules: Vec<usize>,
}

pub fn run(run: &mut Run<'_>, arguments: &NatLookupArguments) -> Result<(), Failure> {
    let runs = if run.quick { 5 } else { 9 };
    let sizes = match arguments.rules.as_slice() {
        [] => &RULES,
        some => some,
    };
    let mut memory = yardstick::memory()?;
    let mut yardstick = Yardstick::new(&mut memory);
    for &rules in sizes {
        measure(run, rules, runs, &mut yardstick)?;
    }
    Ok(())
}

fn measure(run: &mut Run<'_>, count: usize, runs: usize, yardstick: &mut Yardstick<'_>) -> Result<(), Failure> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let keys = rules::rules(count, &mut random);
    let mut table = QnsTable::new([random.below(u64::MAX >> 32).into(), 7]);
    for (number, key) in keys.iter().enumerate() {
        let word = number as u64;
        table.insert(key, Value4 { word, note: 0 })?;
    }
    let reader = table.reader();
    let questions = (4 * count).clamp(1 << 16, QUESTIONS).next_power_of_two();
    let queries = rules::queries(questions, &keys, &reader, &mut random);
    let lines = lines(&reader, &queries);
    let row = |case: &str, batch: usize, changes: u32| {
        Row::new(case)
            .key("rules", count)
            .key("batch", batch)
            .key("updates_per_s", changes)
    };
    let mut changes = Changes::new(table, &keys, &mut random);
    let mut probes = Vec::new();
    let batches = if run.quick { vec![1, BATCH] } else { vec![1, 32, BATCH] };
    for batch in batches {
        let (mut quiet, mut busy) = (Runs::default(), Runs::default());
        lookups(&reader, &queries, batch);
        for _ in 0..runs {
            // Measure in turn, so that disturbances affect all measurements.
            let cycles = yardstick.cycles();
            let calm = lookups(&reader, &queries, batch);
            let (slow, update) = changes.during(CHANGES, || lookups(&reader, &queries, batch));
            probes.push(cycles);
            quiet.extend([("ns_per_lookup", calm), ("ns_scaled", scaled(calm, cycles))]);
            busy.extend([("ns_per_lookup", slow), ("ns_scaled", scaled(slow, cycles))]);
            busy.extend([("update_us", update), ("loss_share", slow / calm - 1.0)]);
        }
        for (changes, runs) in [(0, quiet), (CHANGES, busy)] {
            (run.row)(row("qns", batch, changes).runs(&runs).figure("lines_touched", &[lines]));
        }
    }
    let bytes = changes.table().bytes();
    let missed: Vec<f64> = (0..runs).map(|_| chase(bytes, &mut random)).collect();
    (run.row)(row("miss", 1, 0).figure("ns_per_lookup", &missed).key("bytes", bytes));
    if count <= LINEAR {
        let linear = Linear::new(&keys);
        let figures: Vec<f64> = (0..runs).map(|_| listed(&linear, &queries)).collect();
        (run.row)(row("linear", 1, 0).figure("ns_per_lookup", &figures));
    }
    let row = Row::new("probe")
        .key("rules", count)
        .key("sessions", yardstick::SESSIONS);
    (run.row)(row.figure("cycles_per_packet", &probes));
    Ok(())
}

/// Average number of cache lines per lookup.
fn lines(reader: &QnsReader<u32>, queries: &[Query<u32>]) -> f64 {
    let sum: usize = queries.iter().map(|query| reader.lookup_counted(query).1).sum();
    sum as f64 / queries.len() as f64
}

/// Repeats `round` for some time in chunks; `round` returns its number of lookups. Returns the nanoseconds per lookup
/// at the tenth percentile of the chunks, which excludes disturbance by other processes.
fn timed(mut round: impl FnMut() -> usize) -> f64 {
    let mut figures = Vec::new();
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < SECONDS {
        let (mut lookups, begin) = (0, Instant::now());
        while begin.elapsed().as_secs_f64() < CHUNK {
            lookups += round();
        }
        figures.push(begin.elapsed().as_secs_f64() * 1e9 / lookups as f64);
    }
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 10]
}

/// Nanoseconds per lookup, with single lookups or in batches.
fn lookups(reader: &QnsReader<u32>, queries: &[Query<u32>], batch: usize) -> f64 {
    let mask = queries.len() - 1;
    let mut at = 0;
    if batch == 1 {
        return timed(|| {
            for _ in 0..1024 {
                // Makes the next lookup depend on this one: the highest bit is never set, but the compiler cannot know
                // that.
                let found = reader.lookup(&queries[at]).map_or(0, |found| found.value.word >> 63);
                at = (at + 1 + found as usize) & mask;
            }
            1024
        });
    }
    let mut matches: [Option<Match<Value4>>; BATCH] = [None; BATCH];
    timed(|| {
        for _ in 0..16 {
            reader.lookup_batch(&queries[at..at + batch], &mut matches);
            black_box(&matches);
            at = (at + batch) & mask;
        }
        16 * batch
    })
}

/// Nanoseconds per lookup by linear search.
fn listed(linear: &Linear, queries: &[Query<u32>]) -> f64 {
    let mask = queries.len() - 1;
    let mut at = 0;
    timed(|| {
        for _ in 0..8 {
            let found = linear.lookup(&queries[at]).map_or(0, |number| number >> 63);
            at = (at + 1 + found as usize) & mask;
        }
        8
    })
}

/// Nanoseconds per step of a pointer chase through `bytes` bytes of memory; each pass visits each cache line once.
fn chase(bytes: usize, random: &mut Random) -> f64 {
    const WORDS: usize = 8;
    let lines = bytes / 64;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    random.shuffle(&mut order);
    let mut words = vec![0u64; lines * WORDS];
    for (from, to) in order.iter().zip(order.iter().cycle().skip(1)) {
        words[*from as usize * WORDS] = u64::from(*to) * WORDS as u64;
    }
    let mut at = 0;
    let figure = timed(|| {
        for _ in 0..1024 {
            at = words[at as usize];
        }
        1024
    });
    black_box(at);
    figure
}

/// Rules that are never queried.
fn others(keys: &[Key<u32>], count: usize, random: &mut Random) -> Vec<Key<u32>> {
    let known: std::collections::HashSet<_> = keys.iter().collect();
    let mut others = rules::rules(count, random);
    others.retain(|key| !known.contains(key));
    others
}

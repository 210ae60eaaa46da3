//! What a router loses by its neighbour's flood: with queues of their own, on one queue, and on one link.

mod gateway;
mod lines;

use std::sync::PoisonError;

use sluice_dpdk::tsc;

use super::Failure;
use crate::rows::{Row, Run};
use gateway::{Gateway, Shape};
use lines::{Host, Lines, Tally, cycles};

/// The victim sends nine tenths of its fair share: all that it sends must fit at all times.
const VICTIM: f64 = 0.9;

/// What a run came to.
struct Outcome {
    tallies: Vec<Tally>,
    dropped: [u64; 2],
    cycles: u64,
}

/// Until the victim, or where it is silent its neighbour, has sent so many packets.
fn measure(shape: &Shape, each: [Option<f64>; 2], packets: u64) -> Result<Outcome, Failure> {
    let host = |router: usize| Host {
        port: shape.port(router),
        each: each[router],
        frames: gateway::frames(shape, router),
    };
    let (lines, tallies) = Lines::new(gateway::PORTS, vec![host(0), host(1)]);
    let mut gateway = Gateway::new(shape, lines)?;
    let lock = || tallies.lock().unwrap_or_else(PoisonError::into_inner);
    let measured = usize::from(each[0].is_none());
    // What happens before everything is warm, and the shares are found out, is not counted.
    let (warm, mut begin, mut before) = (packets / 10, 0, [0; 2]);
    loop {
        for _ in 0..16 {
            gateway.round();
        }
        let mut all = lock();
        if begin == 0 && all[measured].packets >= warm {
            all.iter_mut().for_each(|tally| *tally = Tally::default());
            (begin, before) = (cycles(), gateway.dropped());
        }
        if begin != 0 && all[measured].packets >= packets {
            let after = gateway.dropped();
            return Ok(Outcome {
                tallies: all.clone(),
                dropped: [after[0] - before[0], after[1] - before[1]],
                cycles: cycles() - begin,
            });
        }
    }
}

/// Cycles of a packet where both hosts send more than there is time for.
fn cost(shape: &Shape, packets: u64) -> Result<f64, Failure> {
    let plain = Shape {
        weighted: false,
        rate: None,
        ..*shape
    };
    let flooded = measure(&plain, [Some(20.0); 2], 4 * packets)?;
    let passed: u64 = flooded.tallies.iter().map(|tally| tally.passed).sum();
    Ok(flooded.cycles as f64 / passed as f64)
}

/// Rows of both queues, by what the neighbour sends, in workers' rates.
pub fn isolation(run: &mut Run<'_>, packets: u64, runs: usize) -> Result<(), Failure> {
    for one_queue in [false, true] {
        let shape = Shape {
            one_queue,
            one_link: false,
            weighted: true,
            rate: None,
        };
        for load in [0.0, 0.5, 2.0] {
            let mut rows = Vec::new();
            for _ in 0..runs {
                let cost = cost(&shape, packets.min(200_000))?;
                rows.push((cost, measure(&shape, sends(cost, load), packets)?));
            }
            let queue = if one_queue { "shared" } else { "own" };
            let row = Row::new("isolation").key("routers", 2).key("queue", queue);
            (run.row)(row_of(row, load, &rows));
        }
    }
    Ok(())
}

/// Rows of one link, by what the neighbour sends, in the link's rates.
pub fn link_isolation(run: &mut Run<'_>, packets: u64, runs: usize) -> Result<(), Failure> {
    for load in [0.0, 0.5, 2.0] {
        let shape = |rate| Shape {
            one_queue: false,
            one_link: true,
            weighted: false,
            rate,
        };
        let mut rows = Vec::new();
        for _ in 0..runs {
            // The link takes a quarter of what the worker does: 64 bytes with their tag.
            let each = 4.0 * cost(&shape(None), packets.min(200_000))?;
            let rate = tsc::frequency() as f64 / each * 64.0 * 8.0;
            rows.push((each, measure(&shape(Some(rate as u64)), sends(each, load), packets)?));
        }
        let row = Row::new("link-isolation").key("routers", 2).key("queue", "own");
        (run.row)(row_of(row, load, &rows));
    }
    Ok(())
}

/// Cycles between packets of victim and neighbour, where one takes so many.
fn sends(cost: f64, load: f64) -> [Option<f64>; 2] {
    // At its fair share the neighbour is as careful as the victim.
    let load = if load == 0.5 { VICTIM * load } else { load };
    [Some(2.0 * cost / VICTIM), (load > 0.0).then(|| cost / load)]
}

fn row_of(row: Row, load: f64, rows: &[(f64, Outcome)]) -> Row {
    let of = |value: fn(&Outcome) -> f64| rows.iter().map(|(_, outcome)| value(outcome)).collect::<Vec<_>>();
    let microseconds = |cycles: u64| cycles as f64 * 1e6 / tsc::frequency() as f64;
    let p99 = rows
        .iter()
        .map(|(_, outcome)| microseconds(outcome.tallies[0].latency.percentile(0.99)));
    let p99: Vec<_> = p99.collect();
    let excess = rows.iter().map(|(cost, outcome)| {
        let passed: u64 = outcome.tallies.iter().map(|tally| tally.passed).sum();
        let dropped: u64 = outcome.dropped.iter().sum();
        // What is left of the time when each packet that passed has had what it takes without shares.
        let rest = outcome.cycles as f64 - passed as f64 * cost;
        if dropped == 0 {
            0.0
        } else {
            (rest / dropped as f64).max(0.0)
        }
    });
    let row = row
        .key("neighbour_load", load)
        .key("victim_load", VICTIM / 2.0)
        .figure("packets", &of(|outcome| outcome.tallies[0].packets as f64))
        .figure(
            "lost",
            &of(|outcome| (outcome.tallies[0].missed + outcome.dropped[0]) as f64),
        )
        .figure("lost_in_queue", &of(|outcome| outcome.tallies[0].missed as f64))
        .figure("p99_us", &p99)
        .figure("neighbour_passed", &of(|outcome| outcome.tallies[1].passed as f64))
        .figure("neighbour_dropped", &of(|outcome| outcome.dropped[1] as f64))
        .figure(
            "cycles_per_packet",
            &rows.iter().map(|(cost, _)| *cost).collect::<Vec<_>>(),
        );
    row.figure("excess_cycles", &excess.collect::<Vec<_>>())
}

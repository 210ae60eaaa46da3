//! Packet loss of a router while its neighbour router is flooded: with separate receive queues, with a shared queue,
//! and on a shared link.

mod clock;
mod gateway;
mod lines;
mod reference;

use sluice_dpdk::tsc;

use super::Failure;
use crate::rows::{Row, Run};
use clock::{Stolen, cycles};
use gateway::{Gateway, PORTS, Shape};
use lines::{Host, Lines, Sends, Tally};
use reference::Reference;

/// The victim sends nine tenths of its fair share; all of these packets must get through.
const VICTIM: f64 = 0.9;

/// Cycles between two measurements of the cost of a packet. A queue can hold the packets that arrive in this time, even
/// if processing takes half as long again.
const SLICE: u64 = 120_000;

/// Equal weights of victim and neighbour.
const EVEN: [u8; 2] = [10, 10];

/// Weights for a control measurement: the victim's share is less than its traffic, so it must lose packets. Without
/// this control measurement, the absence of loss with equal weights would prove nothing.
const UNEVEN: [u8; 2] = [3, 10];

struct Outcome {
    tallies: Vec<Tally>,
    dropped: [u64; 2],
    /// Cycles of rounds that processed packets.
    busy: u64,
    /// Cycles that the forwarded packets would have taken in the reference.
    due: f64,
    /// Cycles per packet in the reference, for each measurement.
    costs: Vec<f64>,
    /// Preemption of the worker, and of an idle loop for comparison.
    stolen: [Stolen; 2],
}

enum Load {
    /// Loads relative to the worker's current maximum rate.
    OfWorker([f64; 2]),
    /// Fixed loads, in cycles between two packets.
    Fixed([Sends; 2]),
}

impl Load {
    fn at(&self, cost: f64) -> Vec<Sends> {
        let sends = |load: f64| match load > 0.0 {
            true => Sends::Every(cost / load),
            false => Sends::Nothing,
        };
        match self {
            Self::OfWorker(loads) => loads.map(sends).to_vec(),
            Self::Fixed(sends) => sends.to_vec(),
        }
    }
}

/// Measures until the victim has sent `packets` packets.
fn measure(shape: &Shape, load: &Load, packets: u64) -> Result<Outcome, Failure> {
    let mut reference = Reference::new(shape)?;
    let mut cost = reference.look();
    let sends = load.at(cost);
    let host = |router: usize| Host {
        port: shape.port(router),
        sends: sends[router],
        frames: gateway::frames(shape, router),
    };
    let (lines, far) = Lines::new(PORTS, vec![host(0), host(1)]);
    let mut gateway = Gateway::new(shape, lines)?;
    // Packets are not counted until caches are warm and shares are determined.
    let (warm, mut before, mut is_counted) = (packets / 10, [0; 2], false);
    let mut outcome = Outcome {
        tallies: Vec::new(),
        dropped: [0; 2],
        busy: 0,
        due: 0.0,
        costs: Vec::new(),
        stolen: [Stolen::default(); 2],
    };
    let mut passed_before = 0;
    loop {
        let (watch, begin) = (clock::watch(), cycles());
        let mut busy = 0;
        let mut now = begin;
        // Reference measurements from before a preemption are not valid after it.
        while now - begin < SLICE && watch().gaps == 0 {
            let count = gateway.round();
            let end = cycles();
            busy += if count > 0 { end - now } else { 0 };
            now = end;
        }
        let stolen = watch();
        let passed = |tallies: &[Tally]| tallies.iter().map(|tally| tally.passed).sum::<u64>();
        let pause = cycles();
        let next = reference.look();
        let mut far = far.get();
        let all = passed(&far.tallies);
        outcome.busy += busy;
        outcome.due += (all - passed_before) as f64 * (cost + next) / 2.0;
        outcome.stolen[0].add(stolen);
        passed_before = all;
        if !is_counted && far.tallies[0].packets >= warm {
            far.tallies.iter_mut().for_each(|tally| *tally = Tally::default());
            (is_counted, before, passed_before) = (true, gateway.dropped(), 0);
            (outcome.busy, outcome.due, outcome.stolen[0]) = (0, 0.0, Stolen::default());
            (reference.spun, reference.seen) = (Stolen::default(), Vec::new());
        }
        if is_counted && far.tallies[0].packets >= packets {
            let after = gateway.dropped();
            outcome.tallies = far.tallies.clone();
            outcome.dropped = [after[0] - before[0], after[1] - before[1]];
            outcome.stolen[1] = reference.spun;
            outcome.costs = reference.seen;
            return Ok(outcome);
        }
        cost = next;
        far.sends = load.at(cost);
        far.paused += cycles() - pause;
    }
}

/// Measures rows of separate and shared queues, by the neighbour's load relative to the worker's rate.
pub fn isolation(run: &mut Run<'_>, packets: u64, runs: usize) -> Result<(), Failure> {
    for (one_queue, weights, loads) in [
        (false, EVEN, &[0.0, 0.5, 2.0][..]),
        (false, UNEVEN, &[2.0][..]),
        (true, EVEN, &[0.0, 0.5, 2.0][..]),
    ] {
        let shape = Shape {
            one_queue,
            one_link: false,
            weights: Some(weights),
            rate: None,
        };
        let packets = if weights == EVEN {
            packets
        } else {
            packets.min(1_000_000)
        };
        for &load in loads {
            let measured = (0..runs).map(|_| measure(&shape, &Load::OfWorker(sends(load)), packets));
            let measured = measured.collect::<Result<Vec<_>, _>>()?;
            let queue = if one_queue { "shared" } else { "own" };
            let row = Row::new("isolation").key("routers", 2).key("queue", queue);
            (run.row)(row_of(row, load, weights, &measured));
        }
    }
    Ok(())
}

/// Measures rows of a shared link, by the neighbour's load relative to the link's rate.
pub fn link_isolation(run: &mut Run<'_>, packets: u64, runs: usize) -> Result<(), Failure> {
    for load in [0.0, 0.5, 2.0] {
        let shape = |rate| Shape {
            one_queue: false,
            one_link: true,
            weights: None,
            rate,
        };
        let mut measured = Vec::new();
        for _ in 0..runs {
            // The link's rate is a quarter of the worker's maximum rate, with tagged 64-byte frames.
            let each = 4.0 * Reference::new(&shape(None))?.look();
            let rate = tsc::frequency() as f64 / each * 64.0 * 8.0;
            let loads = Load::OfWorker(sends(load)).at(each);
            let load = Load::Fixed([loads[0], loads[1]]);
            measured.push(measure(&shape(Some(rate as u64)), &load, packets)?);
        }
        let row = Row::new("link-isolation").key("routers", 2).key("queue", "own");
        (run.row)(row_of(row, load, EVEN, &measured));
    }
    Ok(())
}

/// Loads of victim and neighbour relative to the rate of the shared resource.
fn sends(load: f64) -> [f64; 2] {
    // If the neighbour sends its fair share, it keeps the same distance to the limit as the victim.
    [VICTIM / 2.0, if load == 0.5 { VICTIM * load } else { load }]
}

fn per_packet(cycles: f64, packets: u64) -> f64 {
    if packets == 0 { 0.0 } else { cycles / packets as f64 }
}

fn row_of(row: Row, load: f64, weights: [u8; 2], measured: &[Outcome]) -> Row {
    let of = |value: &dyn Fn(&Outcome) -> f64| measured.iter().map(value).collect::<Vec<_>>();
    let microseconds = |cycles: u64| cycles as f64 * 1e6 / tsc::frequency() as f64;
    let latency = |part| move |outcome: &Outcome| microseconds(outcome.tallies[0].latency.percentile(part));
    // Share of the time in excess of the time that the forwarded packets take without sharing.
    let excess = |outcome: &Outcome| {
        let rest = outcome.busy as f64 - outcome.due;
        per_packet(rest.max(0.0), outcome.dropped.iter().sum())
    };
    let costs: Vec<f64> = measured.iter().flat_map(|outcome| outcome.costs.clone()).collect();
    let longest = |outcome: &Outcome| microseconds(outcome.stolen[0].longest);
    row.key("neighbour_load", load)
        .key("victim_load", VICTIM / 2.0)
        .key("weights", format!("{}:{}", weights[0], weights[1]))
        .figure("packets", &of(&|outcome| outcome.tallies[0].packets as f64))
        .figure(
            "lost",
            &of(&|outcome| (outcome.tallies[0].missed + outcome.dropped[0]) as f64),
        )
        .figure("lost_in_queue", &of(&|outcome| outcome.tallies[0].missed as f64))
        .figure("p50_us", &of(&latency(0.5)))
        .figure("p99_us", &of(&latency(0.99)))
        .figure("p999_us", &of(&latency(0.999)))
        .figure("most_us", &of(&latency(1.0)))
        .figure("neighbour_passed", &of(&|outcome| outcome.tallies[1].passed as f64))
        .figure("neighbour_dropped", &of(&|outcome| outcome.dropped[1] as f64))
        .figure("cycles_per_packet", &costs)
        .figure("excess_cycles", &of(&excess))
        .figure("reference_ratio", &of(&|outcome| outcome.busy as f64 / outcome.due))
        .figure("stolen_share", &of(&|outcome| outcome.stolen[0].share()))
        .figure("stolen_from_nothing", &of(&|outcome| outcome.stolen[1].share()))
        .figure("stolen_longest_us", &of(&longest))
}

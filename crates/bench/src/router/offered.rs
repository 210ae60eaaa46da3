//! Fig. 4 of P2: two inputs and one output with 64-byte frames; forwarded rate by offered load. Hosts send by a clock
//! that stops while frames are written. Packets that the worker does not receive in time are lost, as with a network
//! card.

use std::sync::Arc;

use sluice_dpdk::eal::Eal;
use sluice_dpdk::tsc;
use sluice_engine::packet::io::BURST_SIZE;
use sluice_engine::snapshot::Snapshot;
use sluice_engine::snapshot::chains::{Action, ChainText as Chain, Chains, ClassText};
use sluice_filter::{Field, Rule};
use sluice_route::{Address, RouteSet};
use sluice_wire::Checksums;

use super::forward::{packet, plane};
use crate::rig::frames::{Frame, INSIDE_MAC, OUTSIDE_MAC, ROUTER_MAC, Random, SEED};
use crate::rig::gateway::Gateway;
use crate::rig::join;
use crate::rig::policy::{Job, interface, memory, neighbours, route, route_set};
use crate::rows::{Failure, Named, Row, Run, Runs, median};

/// Capacity of an input's queue in frames. When both queues are full, more than 4,096 other frames are written between
/// two uses of a buffer.
const DEPTH: u32 = 2_048;
/// Port of the output; the inputs have lower port numbers.
const OUTPUT: u16 = 2;
/// Number of bits in a 64-byte frame, as in P2's figures.
const BITS: f64 = 512.0;
/// Offered loads relative to the maximum forwarded rate.
const LOADS: [f64; 9] = [0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0];
/// Minimum length of a round in cycles that counts as preempted; such rounds are excluded.
const STOLEN: u64 = 200_000;

/// Processing graph through which packets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Graph {
    /// Packets are only routed.
    Plain,
    /// A chain before the routing lookup: `{ count = "all" }`, `{ classify = { protocol = "udp", to-port = 53 }, to =
    /// "names" }`, `{ count = "rest" }`, `"forward"`; the chain `names` counts and forwards.
    Chain,
}

impl Graph {
    fn chains(self) -> Result<Vec<Option<Arc<Chains>>>, Failure> {
        if self == Self::Plain {
            return Ok(Vec::new());
        }
        fn names<A: sluice_filter::Address>() -> Result<Vec<Rule<A>>, Failure> {
            let rule = Rule::any().with(Field::Protocol, 17, 17)?;
            Ok(vec![rule.with(Field::DestinationPort, 53, 53)?])
        }
        let count = |name: &str| Action::Count(name.into());
        let classify = Action::Classify {
            v4: names()?,
            v6: names()?,
            to: "names".into(),
        };
        let chain = |name: &str, actions: Vec<Action>| Chain {
            name: name.into(),
            steps: actions
                .into_iter()
                .map(|action| ClassText {
                    text: format!("{action:?}"),
                    action,
                })
                .collect(),
        };
        let input = chain("input", vec![count("all"), classify, count("rest"), Action::Forward]);
        let names = chain("names", vec![count("names"), Action::Forward]);
        Ok(vec![Some(Chains::new(&[input, names], 1)?.into())])
    }
}

/// Source, sink and gateway, which share a clock.
struct Bench<'m> {
    gateway: Gateway<'m>,
    random: Random,
    clock: f64,
    /// Due time of the next frame, for each input.
    next: [f64; 2],
    sent: u64,
    missed: u64,
    came: u64,
}

/// Number of frames and cycles.
#[derive(Clone, Copy, Debug)]
struct Rates {
    offered: f64,
    forwarded: f64,
}

impl Bench<'_> {
    /// Sends the due frames of an input; frames that its queue does not accept count as missed.
    fn arrive(&mut self, input: usize, each: f64) {
        if self.clock < self.next[input] || !each.is_finite() {
            return;
        }
        let mut due = ((self.clock - self.next[input]) / each) as usize + 1;
        self.next[input] += due as f64 * each;
        self.sent += due as u64;
        while due > 0 {
            let batch = due.min(BURST_SIZE);
            due -= batch;
            let taken = self.send(input as u16, batch);
            if taken < batch {
                self.missed += (batch - taken + due) as u64;
                return;
            }
        }
    }

    /// Writes and sends frames of an input; returns the number of frames that its queue accepted.
    fn send(&mut self, input: u16, count: usize) -> usize {
        let random = &mut self.random;
        let (_, taken) = self.gateway.source.send(&[(input, count)], |_, buffer| {
            let frame = packet(random, None);
            buffer.set_len(frame.length());
            buffer.set_checksums(Checksums::Vouched);
            frame.write(buffer.bytes_mut());
            true
        });
        taken
    }

    fn round(&mut self, each: f64) {
        for input in 0..self.next.len() {
            self.arrive(input, each);
        }
        let begin = tsc::now();
        self.gateway.round();
        let took = tsc::now() - begin;
        if took < STOLEN {
            self.clock += took as f64;
        }
        while let came @ 1.. = self.gateway.source.discard(OUTPUT) {
            self.came += came as u64;
        }
    }

    /// Sends a frame on both inputs every `each` cycles, until `frames` frames have been sent.
    fn offer(&mut self, each: f64, frames: u64) -> Result<Rates, Failure> {
        self.next = [self.clock, self.clock + each / 2.0];
        let warm = self.sent + frames / 10;
        while self.sent < warm {
            self.round(each);
        }
        let (clock, sent, came) = (self.clock, self.sent, self.came);
        while self.sent < sent + frames {
            self.round(each);
        }
        let cycles = self.clock - clock;
        let rates = Rates {
            offered: (self.sent - sent) as f64 / cycles,
            forwarded: (self.came - came) as f64 / cycles,
        };
        // Drain all frames between two measurements, so that only frames of the measurement count as lost.
        for _ in 0..DEPTH {
            self.round(f64::INFINITY);
        }
        if self.sent != self.missed + self.came {
            let (sent, missed, came) = (self.sent, self.missed, self.came);
            return Err(format!("{sent} packets were sent, {missed} missed, and {came} came out").into());
        }
        Ok(rates)
    }
}

fn policy(graph: Graph) -> Result<(Snapshot, RouteSet), Failure> {
    let interfaces = [
        (0xc0a8_0101, INSIDE_MAC),
        (0xc0a8_0201, INSIDE_MAC),
        (0xc000_0201, OUTSIDE_MAC),
    ];
    let interfaces = (0..)
        .zip(interfaces)
        .map(|(port, (own, mac))| interface(port, mac, vec![(Address::V4(own), 24)]));
    let mut policy = Snapshot::new(3, interfaces.collect());
    let [_, (_, outside, _)] = neighbours(Job::Forward)?;
    let routes = route_set(&policy, &[route(Address::V4(0), 0, outside)])?;
    policy.chains = graph.chains()?;
    Ok((policy, routes))
}

/// Measures the rows of both graphs by offered load.
pub fn offered(
    run: &mut Run<'_>,
    eal: &'static Eal,
    next: &mut impl FnMut() -> u32,
    runs: usize,
) -> Result<(), Failure> {
    let frames = if run.quick { 100_000 } else { 1_000_000 };
    for graph in [Graph::Plain, Graph::Chain] {
        let (policy, routes) = policy(graph)?;
        let plane = plane(policy, &[routes])?;
        let mut memory = memory(&plane)?;
        let mut gateway = Gateway::over(join(eal, next(), 3, DEPTH)?, plane, vec![0, 1], &mut memory)?;
        let [_, (_, outside, _)] = neighbours(Job::Forward)?;
        gateway.know((OUTPUT, outside, ROUTER_MAC))?;
        let (random, clock, next) = (Random(SEED), 0.0, [0.0; 2]);
        let mut bench = Bench {
            gateway,
            random,
            clock,
            next,
            sent: 0,
            missed: 0,
            came: 0,
        };
        let mbps = |rate: f64| rate * tsc::frequency() as f64 * BITS / 1e6;
        // One frame every 10 cycles is more than any worker can process.
        let most = (0..runs).map(|_| Ok(bench.offer(10.0, frames)?.forwarded));
        let most = median(most.collect::<Result<Vec<_>, Failure>>()?);
        for load in LOADS {
            let mut all = Runs::default();
            for _ in 0..runs {
                let rates = bench.offer(2.0 / (most * load), frames)?;
                all.extend([
                    ("offered_mbps", mbps(rates.offered)),
                    ("forwarded_mbps", mbps(rates.forwarded)),
                    ("lost_share", 1.0 - rates.forwarded / rates.offered),
                ]);
            }
            let row = Row::new("forward").key("family", 4).key("inputs", 2).key("routes", 1);
            (run.row)(row.key("graph", graph.name()).key("load_share", load).runs(&all));
        }
        bench.gateway.close();
    }
    Ok(())
}

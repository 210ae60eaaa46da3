//! In-memory cost of packets with random destinations, by number of routes.

use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_engine::control::plane::ControlPlane;
use sluice_route::{Address, Prefix, RouteSet};
use sluice_wire::Checksums;

use super::internet::{address_of, routes};
use super::lookup::number4;
use crate::rig::frames::{Frame, Hosts, Random, SEED, Written, data};
use crate::rig::gateway::Gateway;
use crate::rig::join;
use crate::rig::measure::{Direction, run_gateway};
use crate::rig::policy::{Job, Layout, Style, memory, neighbours, policy, route, route_set};
use crate::rows::{Failure, Row, Run, Runs};

/// Number of distinct destinations from which packets are drawn.
pub const DESTINATIONS: usize = 1 << 20;

/// Control plane of a stateless gateway, with the given routes for each router.
pub fn plane(policy: sluice_engine::snapshot::Snapshot, routes: &[RouteSet]) -> Result<ControlPlane, Failure> {
    Layout::sessions(Job::Forward, 0, false).plane(policy, routes)
}

/// A gateway whose packets arrive at the first port and must all leave through the second port, and the cost of these
/// packets.
pub struct Forward<'m> {
    pub gateway: Gateway<'m>,
    pub random: Random,
    pub runs: Runs,
}

impl<'m> Forward<'m> {
    /// Creates a gateway without neighbour entries.
    pub fn new(
        eal: &'static Eal,
        number: u32,
        plane: ControlPlane,
        memory: &'m mut Option<Region>,
    ) -> Result<Self, Failure> {
        let memory = memory.insert(crate::rig::policy::memory(&plane)?);
        let gateway = Gateway::over(join(eal, number, 2, 8192)?, plane, vec![0, 1], memory)?;
        Ok(Self {
            gateway,
            random: Random(SEED),
            runs: Runs::default(),
        })
    }

    pub fn run<F: Frame>(&mut self, draw: impl Fn(&mut Random) -> F) -> Result<(), Failure> {
        let random = &mut self.random;
        let draw = |_| draw(random);
        run_gateway(
            &mut self.gateway,
            Direction::Up,
            Checksums::Vouched,
            draw,
            &mut self.runs,
        )
        .map(drop)
    }

    /// Ratio of the cycles per packet to those of `other` in the same rounds; the rounds of this component are the last
    /// rounds of `other`.
    pub fn over(&self, other: &Runs) -> Vec<f64> {
        let [own, others] = [&self.runs, other].map(|runs| runs.of("cycles_per_packet"));
        let from = others.len().saturating_sub(own.len());
        own.iter()
            .zip(&others[from..])
            .map(|(own, other)| own / other)
            .collect()
    }
}

/// A packet from a host to an address.
#[inline(always)]
pub fn packet(random: &mut Random, destination: Option<u32>) -> Written {
    let data = data(Hosts::Sixteen, random.below(8_000), None);
    let address = destination.unwrap_or(data.destination.0);
    Written {
        destination: (address, data.destination.1),
        ..data
    }
}

/// Random addresses within the given routes, each with the index of its route.
pub fn destinations(prefixes: &[Prefix], random: &mut Random) -> Vec<(u32, u32)> {
    let drawn = (0..DESTINATIONS).map(|_| {
        let number = random.below(prefixes.len() as u64);
        (number, number4(address_of(prefixes[number as usize], random)))
    });
    drawn.collect()
}

/// Measures a row. If there is only one route, it is the default route.
pub fn forward(run: &mut Run<'_>, eal: &'static Eal, number: u32, count: usize, runs: usize) -> Result<(), Failure> {
    let mut random = Random(SEED);
    let drawn = routes(false, count, &mut random);
    let destinations = destinations(&drawn, &mut random);
    let prefixes = if count == 1 {
        vec![Prefix::new(Address::V4(0), 0)]
    } else {
        drawn
    };
    let [_, (_, outside, _)] = neighbours(Job::Forward)?;
    let configured: Vec<_> = prefixes
        .iter()
        .map(|prefix| route(prefix.address(), prefix.length(), outside))
        .collect();
    let policy = policy(Job::Forward, Style::SESSIONS, 0)?;
    let routes = route_set(&policy, &configured)?;
    let plane = plane(policy, &[routes])?;
    let mut memory = memory(&plane)?;
    let gateway = Gateway::new(eal, number, Job::Forward, plane, &mut memory)?;
    let mut forward = Forward {
        gateway,
        random,
        runs: Runs::default(),
    };
    for _ in 0..runs {
        forward.run(|random| {
            let destination = random.of(&destinations).1;
            packet(random, Some(destination))
        })?;
    }
    let row = Row::new("forward")
        .key("fib", "ours")
        .key("family", 4)
        .key("routers", 1);
    (run.row)(row.key("routes", count).runs(&forward.runs));
    forward.gateway.close();
    Ok(())
}

//! Packets through the gateway by the number of its routes, destinations at random over them.

use sluice_dpdk::Devices;
use sluice_dpdk::eal::Eal;
use sluice_route::{Prefix, Route, Via};
use sluice_wire::Checksums;

use super::internet::{address_of, routes};
use super::lookup::number4;
use super::{Failure, SEED};
use crate::nat_path::flows::{Hosts, Random, Written, data};
use crate::nat_path::rig::{self, Gateway, Job, Source};
use crate::nat_path::rules::{self, Style};
use crate::nat_path::wire::Wire;
use crate::nat_path::{Direction, empty, full, rates};
use crate::rows::{Row, Run};

/// Destinations that packets are drawn of.
pub const DESTINATIONS: usize = 1 << 20;

/// Cycles of a packet in each run.
#[derive(Debug, Default)]
pub struct Costs {
    costs: Vec<f64>,
    loops: Vec<f64>,
    empties: Vec<f64>,
}

impl Costs {
    /// A run: cycles of a packet with the gateway, and of source and sink alone.
    pub fn add(&mut self, [looped, empty]: [f64; 2]) {
        self.costs.push(looped - empty);
        self.loops.push(looped);
        self.empties.push(empty);
    }

    /// Cycles of a packet in the runs.
    pub fn runs(&self) -> &[f64] {
        &self.costs
    }

    /// The row with its figures.
    pub fn row(&self, row: Row) -> Row {
        rates(row, &self.costs, &self.loops, &self.empties)
    }
}

/// What packets cost that come in by the first port and must all leave by the second: one run.
pub fn once<W: Wire>(
    source: &mut Source,
    gateway: &mut Gateway<'_>,
    mut draw: impl FnMut(u16) -> W,
) -> Result<[f64; 2], Failure> {
    let base = empty(source, Direction::Up, Checksums::Vouched, &mut draw);
    let looped = full(source, Direction::Up, Checksums::Vouched, &mut draw, || {
        let now = gateway.now();
        gateway.worker.round(now);
    });
    if looped.sent != looped.came {
        return Err(format!("{} packets went in and {} came out", looped.sent, looped.came).into());
    }
    Ok([looped.cycles, base])
}

/// The same for so many runs.
pub fn costs<W: Wire>(
    source: &mut Source,
    gateway: &mut Gateway<'_>,
    runs: usize,
    mut draw: impl FnMut(u16) -> W,
) -> Result<Costs, Failure> {
    let mut costs = Costs::default();
    for _ in 0..runs {
        costs.add(once(source, gateway, &mut draw)?);
    }
    Ok(costs)
}

/// A row. One route alone is the default route.
pub fn forward(run: &mut Run<'_>, eal: &'static Eal, number: u32, count: usize, runs: usize) -> Result<(), Failure> {
    let mut random = Random(SEED);
    let drawn = routes(false, count, &mut random);
    let destinations = (0..DESTINATIONS).map(|_| {
        let route = drawn[random.below(count as u64) as usize];
        number4(address_of(route, &mut random))
    });
    let destinations: Vec<_> = destinations.collect();
    let [_, outside] = rules::neighbours(Job::Forward)?;
    let via = Via::Gateway {
        address: outside,
        interface: None,
    };
    let prefixes = match count {
        1 => vec![Prefix::new(sluice_route::Address::V4(0), 0)],
        _ => drawn,
    };
    let configured: Vec<_> = prefixes.into_iter().map(|prefix| Route::new(prefix, via)).collect();
    let (mut source, devices, hand) = rig::join(eal, number)?;
    let plane = rig::plane_with(Job::Forward, Style::SESSIONS, 16, false, &configured)?;
    let mut memory = rig::memory(&plane)?;
    let mut gateway = Gateway::new(Job::Forward, plane, hand, &mut memory)?;
    let draw = |_| {
        let flow = random.below(8_000);
        let destination = destinations[random.below(DESTINATIONS as u64) as usize];
        let data = data(Hosts::Sixteen, flow, None);
        Written {
            destination: (destination, data.destination.1),
            ..data
        }
    };
    let costs = costs(&mut source, &mut gateway, runs, draw)?;
    let row = Row::new("forward")
        .key("fib", "ours")
        .key("family", 4)
        .key("routers", 1)
        .key("routes", count);
    (run.row)(costs.row(row));
    drop(gateway);
    source.close();
    drop(Devices::close(devices));
    Ok(())
}

//! Packets through the gateway by the number of its routes, destinations at random over them.

use sluice_dpdk::Devices;
use sluice_dpdk::eal::Eal;
use sluice_route::{Prefix, Route, Via};
use sluice_wire::Checksums;

use super::internet::{address_of, routes};
use super::lookup::number4;
use super::{Failure, SEED};
use crate::nat_path::flows::{Hosts, Random, Written, data};
use crate::nat_path::rig::{self, Gateway, Job};
use crate::nat_path::rules::{self, Style};
use crate::nat_path::{Direction, empty, full, rates};
use crate::rows::{Row, Run};

/// Destinations that packets are drawn of.
const DESTINATIONS: usize = 1 << 20;

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
    let (mut costs, mut empties, mut loops) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..runs {
        let mut draw = |_| {
            let flow = random.below(8_000);
            let destination = destinations[random.below(DESTINATIONS as u64) as usize];
            let data = data(Hosts::Sixteen, flow, None);
            Written {
                destination: (destination, data.destination.1),
                ..data
            }
        };
        let base = empty(&mut source, Direction::Up, Checksums::Vouched, &mut draw);
        let looped = full(&mut source, Direction::Up, Checksums::Vouched, &mut draw, || {
            let now = gateway.now();
            gateway.worker.round(now);
        });
        if looped.sent != looped.came {
            return Err(format!("{} packets went in and {} came out", looped.sent, looped.came).into());
        }
        costs.push(looped.cycles - base);
        empties.push(base);
        loops.push(looped.cycles);
    }
    let row = Row::new("forward")
        .key("fib", "ours")
        .key("family", 4)
        .key("routers", 1)
        .key("routes", count);
    (run.row)(rates(row, &costs, &loops, &empties));
    drop(gateway);
    source.close();
    drop(Devices::close(devices));
    Ok(())
}

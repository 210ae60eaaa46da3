//! `router`: what the forwarding table costs: a lookup, a change, a packet.

mod forward;
mod fpm;
mod internet;
mod isolation;
mod load;
mod lookup;
mod offered;
mod routers;
mod tunnels;
mod waiting;

use sluice_dpdk::{Eal, EalRequirements};

use crate::rig;
use crate::rows::Run;

use crate::rows::Failure;
/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// Lookups of one core, nothing else.
    Lookup,
    /// Changes of a full table, alone and while another core looks up.
    Load,
    /// Packets: `routes`, `routers`, `offered` and `tunnels`.
    Forward,
    /// Packets by the number of routes.
    Routes,
    /// Packets by the number of routers.
    Routers,
    /// What is forwarded of two inputs, by what they offer (P2, Fig. 4).
    Offered,
    /// Packets into tunnels, and out of them.
    Tunnels,
    /// What a router loses by its neighbour's flood, with queues of their own and on one.
    Isolation,
    /// The same on one link.
    LinkIsolation,
    /// Receiving alone, by the way of waiting.
    Receive,
    /// Sending alone, by the way of waiting.
    Transmit,
    /// A daemon's routes by FPM while packets are forwarded.
    Fpm,
}

/// What to measure: everything where nothing is said.
#[derive(Clone, Debug, clap::Args)]
pub struct RouterArguments {
    /// Only these cases.
    #[arg(long, value_name = "CASES", value_delimiter = ',')]
    only: Vec<Case>,
    /// Packets of the router whose loss is measured.
    #[arg(long, value_name = "NUMBER")]
    packets: Option<u64>,
}

pub fn run(run: &mut Run<'_>, arguments: &RouterArguments) -> Result<(), Failure> {
    let wanted = |case| arguments.only.is_empty() || arguments.only.contains(&case);
    let runs = if run.quick { 3 } else { 7 };
    // Names of rings are the process's: each rig has its own.
    let mut number = 1;
    let mut next = || {
        number += 1;
        number
    };
    let sizes: &[usize] = if run.quick {
        &[1, 1_000, 100_000]
    } else {
        &[1, 1_000, 1_000_000]
    };
    if wanted(Case::Lookup) {
        lookup::lookup(run, Eal::start(&needs())?, sizes, runs)?;
    }
    if wanted(Case::Load) {
        load::load(run, runs)?;
    }
    let packets = arguments
        .packets
        .unwrap_or(if run.quick { 100_000 } else { 10_000_000 });
    if wanted(Case::Isolation) {
        isolation::isolation(run, packets, runs.min(3))?;
    }
    if wanted(Case::LinkIsolation) {
        isolation::link_isolation(run, packets, runs.min(3))?;
    }
    let waits = waiting::Wanted {
        receive: wanted(Case::Receive),
        transmit: wanted(Case::Transmit),
    };
    if waits.receive || waits.transmit {
        waiting::waiting(run, start()?, waits, runs.min(5))?;
    }
    if wanted(Case::Fpm) {
        fpm::fpm(run, start()?, next(), sizes[2], runs.min(3))?;
    }
    let forwards = |case| wanted(case) || wanted(Case::Forward);
    if forwards(Case::Routes) {
        let eal = start()?;
        for &routes in sizes {
            forward::forward(run, eal, next(), routes, runs)?;
        }
    }
    if forwards(Case::Routers) {
        let eal = start()?;
        for &routes in &sizes[1..] {
            routers::tagged(run, eal, &mut next, routes, runs)?;
        }
        routers::ports(run, eal, &mut next, sizes[1], runs)?;
    }
    if forwards(Case::Offered) {
        offered::offered(run, start()?, &mut next, runs.min(5))?;
    }
    if forwards(Case::Tunnels) {
        tunnels::tunnels(run, start()?, &mut next, runs)?;
    }
    Ok(())
}

/// DPDK with memory for two rigs at one time.
fn start() -> Result<&'static Eal, Failure> {
    rig::start(2)
}

/// DPDK's memory for its own table of routes, and for the packets that come after it.
fn needs() -> EalRequirements {
    EalRequirements {
        bytes: 768 << 20,
        ..EalRequirements::default()
    }
}

/// Begin of all draws.
const SEED: u64 = 88_172_645_463_325_252;

//! `router`: cost of the forwarding table: lookups, changes, and packets.

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
/// Parts of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// Only lookups, on one core.
    Lookup,
    /// Changes of a full table, first alone, then while another core looks up addresses.
    Load,
    /// Packets: the cases `routes`, `routers`, `offered` and `tunnels`.
    Forward,
    /// Cost of packets by number of routes.
    Routes,
    /// Cost of packets by number of routers.
    Routers,
    /// Rate of forwarded packets from two inputs, by offered load (P2, Fig. 4).
    Offered,
    /// Cost of packets that enter or leave tunnels.
    Tunnels,
    /// Packet loss of a router while its neighbour router is flooded, with separate receive queues and with a shared
    /// one.
    Isolation,
    /// Packet loss of a router while its neighbour router is flooded, on a shared link.
    LinkIsolation,
    /// Only receive, by waiting mode.
    Receive,
    /// Only transmit, by waiting mode.
    Transmit,
    /// Routes from a routing daemon over FPM while packets are forwarded.
    Fpm,
}

/// What to measure; everything by default.
#[derive(Clone, Debug, clap::Args)]
pub struct RouterArguments {
    /// Measures only these cases.
    #[arg(long, value_name = "CASES", value_delimiter = ',')]
    only: Vec<Case>,
    /// Number of packets that are sent through the router whose loss is measured.
    #[arg(long, value_name = "NUMBER")]
    packets: Option<u64>,
}

pub fn run(run: &mut Run<'_>, arguments: &RouterArguments) -> Result<(), Failure> {
    let wanted = |case| arguments.only.is_empty() || arguments.only.contains(&case);
    let runs = if run.quick { 3 } else { 7 };
    // Ring names are global in the process, so each rig gets its own number.
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

/// Starts DPDK with memory for two simultaneous rigs.
fn start() -> Result<&'static Eal, Failure> {
    rig::start(2)
}

/// DPDK memory for rte_fib and for the packet measurements after it.
fn needs() -> EalRequirements {
    EalRequirements {
        bytes: 768 << 20,
        ..EalRequirements::default()
    }
}

/// Seed of all random draws.
const SEED: u64 = 88_172_645_463_325_252;

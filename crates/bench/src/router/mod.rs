//! `router`: what the forwarding table costs: a lookup, a change, a packet.

mod forward;
mod internet;
mod isolation;
mod load;
mod lookup;

use sluice_dpdk::{Eal, Needs};

use crate::nat_path::rig;
use crate::rows::Run;

type Failure = Box<dyn std::error::Error>;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// Lookups of one core, nothing else.
    Lookup,
    /// Changes of a full table, alone and while another core looks up.
    Load,
    /// Packets by the number of routes.
    Forward,
    /// What a router loses by its neighbour's flood, with queues of their own and on one.
    Isolation,
    /// The same on one link.
    LinkIsolation,
}

/// What to measure: everything where nothing is said.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct RouterArguments {
    /// Only this case.
    #[arg(long, value_name = "CASE")]
    only: Option<Case>,
    /// Packets of the router whose loss is measured.
    #[arg(long, value_name = "NUMBER")]
    packets: Option<u64>,
}

/// Run it.
pub fn run(run: &mut Run<'_>, arguments: &RouterArguments) -> Result<(), Failure> {
    let wanted = |case| arguments.only.is_none_or(|only| only == case);
    let runs = if run.quick { 3 } else { 7 };
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
    if wanted(Case::Forward) {
        let eal = rig::start(1)?;
        for (number, &routes) in (2..).zip(sizes) {
            forward::forward(run, eal, number, routes, runs)?;
        }
    }
    Ok(())
}

/// DPDK's memory for its own table of routes, and for the packets that come after it.
fn needs() -> Needs {
    Needs {
        bytes: 768 << 20,
        ..Needs::default()
    }
}

/// Begin of all draws.
const SEED: u64 = 88_172_645_463_325_252;

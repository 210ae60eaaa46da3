//! `kernel`: compares Linux and Sluice over the same links with the same traffic on two cores: generator and receiver
//! on the first, the gateway on the second; or, for Linux, all three on each of several cores.
//!
//! Linux receives on the gateway's core by receive packet steering (RPS). Packets received by XDP can't be steered:
//! veth runs its receive half on the sender's core, so the time of both cores is reported in addition to the gateway's.
//! Sluice's worker also moves every frame to the links by system calls, which count as its work; its polling does not.
//!
//! Forwarded packets are received either on the traffic's core, by RPS, or on the gateway's core, where veth receives
//! without steering. The first relieves the gateway's core, the second avoids the transfer between cores.
//!
//! Packets from outside belong to flows that were opened from inside: the server has learned where their packets come
//! from.
//!
//! Everything runs in private namespaces and disappears with them. A process outside of them does what is impossible
//! inside: it enlarges the connection tracking table of Linux for that time, and pins the kernel threads of the
//! gateway.

pub mod command;
pub mod established;
pub mod frame;
pub mod gateway;
pub mod generator;
pub mod inside;
pub mod machine;
pub mod outside;
pub mod pace;
pub mod peers;
pub mod topology;
pub mod traffic;
pub mod trial;
pub mod trials;

use std::path::PathBuf;

use clap::Args;

use crate::rig::lanes;
use crate::rows::{Failure, Run};

/// What to compare; everything by default.
#[derive(Args, Clone, Debug)]
pub struct KernelArguments {
    /// Cases, by their names in the rows.
    #[arg(long, value_delimiter = ',', value_name = "CASE")]
    cases: Vec<gateway::Case>,
    /// Numbers of source-NAT rules, up to 65536.
    #[arg(long, value_delimiter = ',', default_value = "1,1000,10000")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=frame::MOST_NETWORKS.into()))]
    rules: Vec<u32>,
    /// Rules that new flows match. Established flows match the last one, because rules are not searched for them.
    #[arg(long, value_delimiter = ',', default_value = "last,uniform")]
    hits: Vec<traffic::Hits>,
    /// Flows to send.
    #[arg(long, value_delimiter = ',', value_name = "FLOWS", default_value = "established,new")]
    #[arg(value_parser = ["established", "new"])]
    flows: Vec<String>,
    /// Direction of the measured packets; from outside only for established flows.
    #[arg(
        long = "direction",
        value_delimiter = ',',
        value_name = "DIRECTION",
        default_value = "up,down"
    )]
    directions: Vec<traffic::Direction>,
    /// Core on which forwarded packets are received: that of the traffic or the gateway's. Gateways are compared at the
    /// better one.
    #[arg(
        long = "receiver",
        value_delimiter = ',',
        value_name = "CORE",
        default_value = "traffic,gateway"
    )]
    receivers: Vec<traffic::Receiver>,
    /// Flows of hosts, or of terminals of subscriber sites, which only Sluice supports.
    #[arg(
        long = "site",
        value_delimiter = ',',
        value_name = "SITE",
        default_value = "none,tags-and-mac"
    )]
    sites: Vec<traffic::Site>,
    /// Frame sizes in bytes, including the frame check sequence but not VLAN tags.
    #[arg(long, value_delimiter = ',', default_value = "64")]
    bytes: Vec<usize>,
    /// Runs per row; by default 5, or 3 with --quick.
    #[arg(long)]
    runs: Option<usize>,
    /// Duration of a run in milliseconds; by default 1500, or 700 with --quick.
    #[arg(long, value_name = "MS")]
    window: Option<u64>,
    /// Offered packets per second; by default the maximum of the generator.
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    rate: u32,
    /// Cores to use; by default all that this process may use.
    #[arg(long, value_name = "CORE", value_delimiter = ',')]
    on: Vec<usize>,
    /// Numbers of cores that each run generator, gateway and receiver, for Linux; 0: generator and receiver share one
    /// core, and the gateway has another.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0")]
    together: Vec<usize>,
    /// The program `sluice`; by default the one in the folder of this program.
    #[arg(long, value_name = "FILE")]
    sluice: Option<PathBuf>,
    /// The generator sends by AF_XDP instead of AF_PACKET.
    #[arg(long)]
    xdp_generator: bool,
    /// The kernel part of AF_XDP receives for Sluice in a separate thread instead of the sender's interrupt.
    #[arg(long)]
    napi_thread: bool,
    /// Set in the process that runs inside the namespaces.
    #[arg(long, hide = true)]
    pub inside: bool,
}

/// Message if two cores are required.
pub const ONE_CORE: &str = "generator and gateway need a core each, and this process may use one only";

impl KernelArguments {
    /// Cores of a trial.
    fn cores(&self, together: usize) -> Result<machine::Cores, Failure> {
        let of = lanes::cores(&self.on, usize::MAX);
        match together {
            0 => machine::Cores::apart(&of).ok_or_else(|| ONE_CORE.into()),
            count => {
                machine::Cores::together(&of, count).ok_or_else(|| format!("there are {} cores only", of.len()).into())
            }
        }
    }

    fn runs(&self, quick: bool) -> usize {
        self.runs.unwrap_or(if quick { 3 } else { 5 }).max(1)
    }

    fn window(&self, quick: bool) -> std::time::Duration {
        std::time::Duration::from_millis(self.window.unwrap_or(if quick { 700 } else { 1_500 }).max(100))
    }
}

pub fn run(arguments: &KernelArguments, run: &mut Run<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let seconds = trials::estimate(arguments, run.quick).as_secs();
    eprintln!(
        "sluice-bench: this takes about {} minutes; keep the machine quiet",
        seconds.div_ceil(60)
    );
    outside::run(run, std::env::args_os().skip(1).collect())
}

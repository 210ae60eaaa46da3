//! `kernel`: the same wires and traffic through Linux and through Sluice, on two cores: generator and receiver on
//! the first, the gateway on the second; or, for Linux, all three on each of some cores.
//!
//! Linux receives on the gateway's core by packet steering. What comes in by XDP can't be steered: veth runs its
//! receive half where the sender runs, and the time of both cores is told beside that of the gateway's. Sluice's worker also
//! moves every frame to the wires by calls of the kernel, which count as its work; that it polls does not.
//!
//! What has passed is received on the traffic's core, by packet steering, or on the gateway's, where veth receives if nothing
//! steers. The first spares the gateway's core, the second the way from core to core.
//!
//! What comes from outside goes to flows that were opened from inside: the server's end has seen where their packets come
//! from.
//!
//! Everything lives in private namespaces and goes with them. A process outside of them does what can't be done
//! inside: it widens the connection tracking of Linux meanwhile, and pins the kernel threads of the gateway.

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

/// What is to be compared; everything where nothing is said.
#[derive(Args, Clone, Debug)]
pub struct KernelArguments {
    /// Cases, by the names that the rows have.
    #[arg(long, value_delimiter = ',', value_name = "CASE")]
    cases: Vec<gateway::Case>,
    /// Numbers of source-NAT rules, up to 65536.
    #[arg(long, value_delimiter = ',', default_value = "1,1000,10000")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=frame::MOST_NETWORKS.into()))]
    rules: Vec<u32>,
    /// Which rules new flows match. Established ones match the last: nobody looks at rules for them.
    #[arg(long, value_delimiter = ',', default_value = "last,uniform")]
    hits: Vec<traffic::Hits>,
    /// Whose packets.
    #[arg(long, value_delimiter = ',', value_name = "FLOWS", default_value = "established,new")]
    #[arg(value_parser = ["established", "new"])]
    flows: Vec<String>,
    /// Which way the packets go that are measured; from outside those of established flows alone.
    #[arg(
        long = "direction",
        value_delimiter = ',',
        value_name = "DIRECTION",
        default_value = "up,down"
    )]
    directions: Vec<traffic::Direction>,
    /// Where what has passed the gateway is received: on the core of the traffic or on the gateway's. A gateway is compared with
    /// others at its better one.
    #[arg(
        long = "receiver",
        value_delimiter = ',',
        value_name = "CORE",
        default_value = "traffic,gateway"
    )]
    receivers: Vec<traffic::Receiver>,
    /// Whose packets: of hosts, or of terminals of subscribers' sites, which Sluice alone knows.
    #[arg(
        long = "site",
        value_delimiter = ',',
        value_name = "SITE",
        default_value = "none,tags-and-mac"
    )]
    sites: Vec<traffic::Site>,
    /// Sizes of frames in bytes, check sequence counted; tags come on top.
    #[arg(long, value_delimiter = ',', default_value = "64")]
    bytes: Vec<usize>,
    /// Runs per row; 5 where not given, 3 with --quick.
    #[arg(long)]
    runs: Option<usize>,
    /// Length of a run in milliseconds; 1500 where not given, 700 with --quick.
    #[arg(long, value_name = "MS")]
    window: Option<u64>,
    /// Offered packets per second; as many as the generator can where not given.
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    rate: u32,
    /// On these cores; all that this process may use where none is named.
    #[arg(long, value_name = "CORE", value_delimiter = ',')]
    on: Vec<usize>,
    /// Numbers of cores that have generator, gateway and receiver each, for Linux; 0: generator and receiver have one
    /// core, the gateway another.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0")]
    together: Vec<usize>,
    /// The program `sluice`; beside this one where not given.
    #[arg(long, value_name = "FILE")]
    sluice: Option<PathBuf>,
    /// The generator sends by AF_XDP in place of AF_PACKET.
    #[arg(long)]
    xdp_generator: bool,
    /// The kernel's half of AF_XDP receives for Sluice in a thread of its own, in place of an interrupt of the sender's.
    #[arg(long)]
    napi_thread: bool,
    /// Set in the process that runs inside the namespaces.
    #[arg(long, hide = true)]
    pub inside: bool,
}

/// What two cores are needed for.
pub const ONE_CORE: &str = "generator and gateway need a core each, and this process may use one only";

impl KernelArguments {
    /// The cores of a trial.
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

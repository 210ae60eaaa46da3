//! `kernel`: compares Linux and Sluice over the same links with the same traffic on two cores: generator and receiver
//! on the first core, the gateway on the second. Linux can also be measured with generator, receiver and gateway on
//! each of several cores.
//!
//! Linux receives on the gateway's core by receive packet steering (RPS). RPS does not apply to packets received by
//! XDP, because veth processes received packets on the sender's core; so the CPU time of both cores is reported in
//! addition to that of the gateway's core. Sluice's worker moves every frame to and from the links by system calls,
//! which count as its work; empty polls do not count.
//!
//! Forwarded packets are received either on the traffic's core, by RPS, or on the gateway's core, where veth receives
//! packets without RPS. The first method takes load off the gateway's core; the second avoids a transfer between cores.
//!
//! Packets from outside belong to flows that were opened from inside. The server learns the translated addresses and
//! ports from the packets that it receives.
//!
//! All components run in private namespaces, which are removed at the end. A process outside the namespaces does what
//! is impossible inside: for the duration of the benchmark it enlarges the connection tracking table of Linux and pins
//! the kernel threads that serve the gateway.

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
    /// Rules that packets of new flows match. Packets of established flows always match the last rule, because Linux
    /// evaluates rules only for the first packet of a flow.
    #[arg(long, value_delimiter = ',', default_value = "last,uniform")]
    hits: Vec<traffic::Hits>,
    /// Flows to send.
    #[arg(long, value_delimiter = ',', value_name = "FLOWS", default_value = "established,new")]
    #[arg(value_parser = ["established", "new"])]
    flows: Vec<String>,
    /// Direction of the measured packets; packets from outside are measured only for established flows.
    #[arg(
        long = "direction",
        value_delimiter = ',',
        value_name = "DIRECTION",
        default_value = "up,down"
    )]
    directions: Vec<traffic::Direction>,
    /// Core on which forwarded packets are received: the traffic's core or the gateway's core. Gateways are compared
    /// with the receiver that gives the higher rate.
    #[arg(
        long = "receiver",
        value_delimiter = ',',
        value_name = "CORE",
        default_value = "traffic,gateway"
    )]
    receivers: Vec<traffic::Receiver>,
    /// Flows of hosts, or flows of terminals of subscriber sites, which only Sluice supports.
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
    /// Offered packets per second; by default the maximum that the generator can send.
    #[arg(long, default_value_t = 0, hide_default_value = true)]
    rate: u32,
    /// Cores to use; by default all that this process may use.
    #[arg(long, value_name = "CORE", value_delimiter = ',')]
    on: Vec<usize>,
    /// Number of cores that each run generator, gateway and receiver, for Linux only; 0: generator and receiver share
    /// one core, and the gateway has another.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0")]
    together: Vec<usize>,
    /// The program `sluice`; by default the one in the same folder as `sluice-bench`.
    #[arg(long, value_name = "FILE")]
    sluice: Option<PathBuf>,
    /// The generator sends by AF_XDP instead of AF_PACKET.
    #[arg(long)]
    xdp_generator: bool,
    /// The receive half of AF_XDP runs in a separate kernel thread instead of the sender's softirq.
    #[arg(long)]
    napi_thread: bool,
    /// Set in the process that runs inside the namespaces.
    #[arg(long, hide = true)]
    pub inside: bool,
}

/// Error message if the process may use fewer than two cores.
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

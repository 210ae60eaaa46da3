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

pub mod established;
pub mod frame;
pub mod gateway;
pub mod generator;
pub mod machine;
pub mod pace;
pub mod peers;
pub mod topology;
pub mod traffic;
pub mod trial;
mod trials;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gateway::Case;
use traffic::Flows;
use trial::Sample;
use trials::Trial;
pub use trials::estimate;

use crate::inside::{Widened, note};
use crate::rig::lanes;
use crate::rows::{Failure, Named, Row, Run, Runs};

/// What to compare; everything by default.
#[derive(Args, Clone, Debug)]
pub struct KernelArguments {
    /// Cases, by their names in the rows.
    #[arg(long, value_delimiter = ',', value_name = "CASE")]
    cases: Vec<Case>,
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
    flows: Vec<Flows>,
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

    fn window(&self, quick: bool) -> Duration {
        Duration::from_millis(self.window.unwrap_or(if quick { 700 } else { 1_500 }).max(100))
    }
}

/// Prepares the machine outside the namespaces.
pub fn prepare() -> Result<Widened, Failure> {
    Widened::conntrack(traffic::NEW_FLOWS)
}

/// Runs all trials that the arguments select, inside the namespaces.
pub fn run(arguments: &KernelArguments, run: &mut Run<'_>) -> Result<(), Failure> {
    for &together in &arguments.together {
        arguments.cores(together)?;
    }
    let mut bench = Bench {
        arguments,
        done: Vec::new(),
    };
    for trial in trials::trials(arguments) {
        match bench.samples(&trial, run.quick) {
            Ok(samples) => (run.row)(bench.row(trial, &samples)),
            Err(error) => note(&format!("{}{error}", trial.row().text())),
        }
    }
    Ok(())
}

struct Bench<'a> {
    arguments: &'a KernelArguments,
    /// Trials so far, with their figures.
    done: Vec<(Trial, Runs)>,
}

impl Bench<'_> {
    /// Established flows are measured in one topology, one window after another. New flows get a new topology for each
    /// window, because the session tables would otherwise fill up.
    fn samples(&self, trial: &Trial, quick: bool) -> Result<Vec<Sample>, Failure> {
        let (runs, window) = (self.arguments.runs(quick), self.arguments.window(quick));
        let (topologies, windows) = match trial.flows {
            Flows::Established => (1, runs),
            Flows::New => (runs, 1),
        };
        let samples = (0..topologies).map(|_| trial.run(self.arguments, windows, window));
        Ok(samples.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn row(&mut self, trial: Trial, samples: &[Sample]) -> Row {
        let mut limits: Vec<_> = samples.iter().map(|sample| sample.limit).collect();
        limits.sort();
        let mut row = trial.row().key("limited_by", limits[limits.len() / 2].name());
        if trial.together > 0 {
            row = row.key("together", trial.together);
        }
        let mut runs = Runs::default();
        samples
            .iter()
            .for_each(|sample| runs.extend(sample.figures.iter().copied()));
        if self.arguments.together != [0] && !trial.case.is_sluice() {
            for Sample { spread, .. } in samples {
                runs.extend([("least_core_share", spread.least), ("other_cores_share", spread.others)]);
            }
        }
        // For Linux, the translation time is the CPU time in addition to that of plain forwarding.
        let forward = |(other, _): &&(Trial, Runs)| {
            other.case == Case::LinuxForward && other.is_beside(&trial) && other.receiver == trial.receiver
        };
        if trial.case.translates()
            && !trial.case.is_sluice()
            && let Some((_, forward)) = self.done.iter().find(forward)
        {
            let forward = forward.median("cpu_ns_per_packet");
            scale(&mut runs, "cpu_ns_per_packet", "nat_ns_per_packet", |cpu| cpu - forward);
        }
        self.done.push((trial, runs.clone()));
        self.beside_linux(&trial, &mut runs);
        row.runs(&runs)
    }

    /// Adds the packet rate relative to that of Linux with the same traffic. For translation, also adds the translation
    /// time of iptables divided by that of the trial; this ratio is more meaningful if the links are the bottleneck.
    /// Both ratios use the receiver that gives Linux the higher rate.
    fn beside_linux(&self, trial: &Trial, runs: &mut Runs) {
        let (case, name) = match trial.case {
            Case::Generator => return,
            case if case.translates() => (Case::Iptables, "times_iptables"),
            _ => (Case::LinuxForward, "times_linux_forward"),
        };
        let of_case = self.done.iter().filter(|(other, _)| {
            other.case == case && other.is_beside(trial) && (other.rules, other.hits) == (trial.rules, trial.hits)
        });
        let rate = |runs: &Runs| runs.median("packets_per_s");
        let best = of_case.max_by(|one, other| rate(&one.1).total_cmp(&rate(&other.1)));
        let Some((_, linux)) = best else {
            return;
        };
        scale(runs, "packets_per_s", name, |ours| ours / rate(linux));
        let time = linux.median("nat_ns_per_packet");
        if time > 0.0 {
            scale(runs, "nat_ns_per_packet", "nat_times_iptables", |ours| time / ours);
        }
    }
}

/// Adds a figure that is computed from another figure in each run.
fn scale(runs: &mut Runs, from: &str, name: &'static str, of: impl Fn(f64) -> f64) {
    let values: Vec<f64> = runs.of(from).iter().map(|&value| of(value)).collect();
    runs.extend(values.into_iter().map(|value| (name, value)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::traffic::{Hits, Receiver};
    use crate::kernel::trial::{Limit, Spread};
    use crate::parsed;

    fn bench(arguments: &KernelArguments) -> Bench<'_> {
        let done = Vec::new();
        Bench { arguments, done }
    }

    fn sample(cpu_ns_per_packet: f64, nat_ns_per_packet: Option<f64>) -> Sample {
        let rates = [
            ("packets_per_s", 1e9 / cpu_ns_per_packet),
            ("cpu_ns_per_packet", cpu_ns_per_packet),
        ];
        let nat = nat_ns_per_packet.map(|nat| ("nat_ns_per_packet", nat));
        Sample {
            figures: rates.into_iter().chain(nat).collect(),
            limit: Limit::Gateway,
            spread: Spread::default(),
        }
    }

    #[test]
    fn sluice_is_compared_with_iptables_of_as_many_rules_and_the_same_hits() {
        let arguments = parsed(&["--rules", "9"]);
        let mut bench = bench(&arguments);
        let new = |case, hits| Trial {
            case,
            hits,
            rules: 9,
            flows: Flows::New,
            ..trials::trials(&arguments)[0]
        };
        bench.row(new(Case::LinuxForward, Hits::Last), &[sample(1_000.0, None)]);
        let iptables = bench.row(new(Case::Iptables, Hits::Uniform), &[sample(20_000.0, None)]);
        assert_eq!(Some(1.0), iptables.median("times_iptables"));
        let sluice = bench.row(new(Case::Sluice, Hits::Uniform), &[sample(2_000.0, Some(190.0))]);
        assert_eq!(Some(10.0), sluice.median("times_iptables"), "on the wires");
        assert_eq!(Some(100.0), sluice.median("nat_times_iptables"), "without them");
        let other = bench.row(new(Case::Sluice, Hits::Last), &[sample(2_000.0, Some(190.0))]);
        assert_eq!(None, other.median("times_iptables"));
    }

    #[test]
    fn gateways_are_compared_with_linux_at_its_better_receiver() {
        let arguments = parsed(&["--rules", "9"]);
        let mut bench = bench(&arguments);
        let trial = |case, receiver| Trial {
            case,
            receiver,
            rules: 9,
            ..trials::trials(&arguments)[0]
        };
        let mut times = |case, receiver, ns, name| {
            let row = bench.row(trial(case, receiver), &[sample(ns, None)]);
            let keys = ["direction", "receiver"].map(|key| row.text_of(key));
            assert_eq!(["up".to_owned(), receiver.name()], keys);
            row.median(name)
        };
        for (linux, sluice, name) in [
            (Case::LinuxForward, Case::SluiceForward, "times_linux_forward"),
            (Case::Iptables, Case::Sluice, "times_iptables"),
        ] {
            assert_eq!(Some(1.0), times(linux, Receiver::Traffic, 1_000.0, name));
            assert_eq!(Some(0.5), times(linux, Receiver::Gateway, 2_000.0, name));
            assert_eq!(Some(2.0), times(sluice, Receiver::Gateway, 500.0, name));
        }
    }

    #[test]
    fn translation_of_linux_is_what_it_takes_beyond_forwarding() {
        let arguments = parsed(&[]);
        let mut bench = bench(&arguments);
        let mut trial = trials::trials(&arguments)[0];
        trial.case = Case::LinuxForward;
        assert_eq!(
            None,
            bench.row(trial, &[sample(1_000.0, None)]).median("nat_ns_per_packet")
        );
        trial.case = Case::Iptables;
        let row = bench.row(trial, &[sample(1_500.0, None)]);
        assert_eq!(Some(500.0), row.median("nat_ns_per_packet"));
        trial.case = Case::Sluice;
        let row = bench.row(trial, &[sample(900.0, Some(33.0)), sample(900.0, None)]);
        assert_eq!(Some(33.0), row.median("nat_ns_per_packet"));
        assert_eq!("gateway", row.text_of("limited_by"));
    }
}

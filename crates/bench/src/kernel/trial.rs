//! One trial: a topology, a gateway, traffic, and measurements in several time windows.

use std::time::{Duration, Instant};

use super::KernelArguments;
use super::gateway::sluice::{Stages, Times};
use super::gateway::{self, Case};
use super::machine::{Cores, Packets, settle, taken, unused_time};
use super::topology::Topology;
use super::traffic::{Direction, Traffic};
use super::trials::Trial;
use crate::rows::Failure;

/// Time between the first packet and the first window.
const WARM_UP: Duration = Duration::from_millis(300);

/// Maximum time that a trial waits for the machine to become idle.
const QUIET: Duration = Duration::from_secs(3);

/// Packet rates for opening flows, tried in order until the packets get through.
const OPENING_RATES: [u64; 4] = [50_000, 20_000, 8_000, 4_000];

/// Utilisation of the gateway's core at or above which the gateway counts as the limit.
const BUSY: f64 = 0.95;

/// If at least this share of the offered packets arrives, the generator counts as the limit.
const WHOLE: f64 = 0.98;

/// Component that limits the packet rate in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Limit {
    /// All offered packets arrived, and the gateway's core was not saturated.
    Generator,
    /// Packets were lost although the gateway's core was not saturated.
    Veth,
    /// The gateway's core was saturated.
    Gateway,
    /// The cores shared by generators, receivers and gateway were saturated.
    Cores,
}

impl Limit {
    fn of(busy_share: f64, offered: f64, arrived: f64) -> Self {
        match () {
            () if busy_share >= BUSY => Self::Gateway,
            () if arrived < offered * WHOLE => Self::Veth,
            () => Self::Generator,
        }
    }
}

/// Distribution of packet processing over cores, from the kernel's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Smallest share of all packets that one of the gateway's cores received: 1 / n if n cores have equal shares.
    pub least: f64,
    /// Share of packets that were received on cores not used by the trial.
    pub others: f64,
}

impl Spread {
    fn of(before: &[(usize, u64)], after: &[(usize, u64)], cores: &Cores) -> Self {
        let grown = |&(core, now): &(usize, u64)| {
            let then = before.iter().find(|(other, _)| *other == core);
            (core, now.saturating_sub(then.map_or(0, |(_, then)| *then)))
        };
        let taken: Vec<(usize, u64)> = after.iter().map(grown).collect();
        let sum = |of: &[usize]| -> u64 {
            let of_these = taken.iter().filter(|(core, _)| of.contains(core));
            of_these.map(|(_, taken)| taken).sum()
        };
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let gateways = cores.gateways();
        let least = gateways.iter().map(|&core| sum(&[core])).min().unwrap_or(0);
        let whole = taken.iter().map(|(_, taken)| taken).sum();
        Self {
            least: share(least, sum(&gateways)),
            others: share(whole - sum(&cores.all()), whole),
        }
    }
}

/// Measured values of a window.
#[derive(Clone, Debug)]
pub struct Sample {
    /// These figures: packets per second at the sink; packets per second that the generator sent to the gateway's
    /// interface, whether accepted or not; utilisation of the gateway's core or cores, where empty polls of a worker
    /// count as idle. Further figures are times per packet that arrives at the sink: CPU time of the gateway's core;
    /// CPU time of all cores, which includes generator and receiver; time from session lookup to rewrite, if the
    /// gateway counts it.
    pub figures: Vec<(&'static str, f64)>,
    pub limit: Limit,
    pub spread: Spread,
}

/// All counters, read at one time.
struct Reading {
    at: Instant,
    unused: Duration,
    unused_of_all: Duration,
    taken: Vec<(usize, u64)>,
    sink: Packets,
    generator: Packets,
}

impl Reading {
    fn take(topology: &Topology, direction: Direction) -> Self {
        let [generator, sink] = topology.packets(direction);
        Self {
            at: Instant::now(),
            unused: topology.cores.gateways().into_iter().map(unused_time).sum(),
            unused_of_all: topology.cores.all().into_iter().map(unused_time).sum(),
            taken: taken(),
            sink,
            generator,
        }
    }

    fn since(&self, before: &Self, cores: &Cores, case: Case, own: Option<Times>) -> Sample {
        let seconds = (self.at - before.at).as_secs_f64();
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        let sent = rate(self.generator.sent, before.generator.sent);
        let offered_per_s = sent + rate(self.generator.send_drops, before.generator.send_drops);
        let packets_per_s = match case {
            Case::Generator => sent,
            _ => rate(self.sink.received, before.sink.received),
        };
        // CPU time that this number of cores has used in the interval.
        let busy = |cores: usize, now: Duration, then: Duration| {
            let unused = now.saturating_sub(then).as_secs_f64();
            (cores as f64 - unused / seconds).clamp(0.0, cores as f64)
        };
        let gateways = cores.gateways().len();
        let used = busy(gateways, self.unused, before.unused);
        // A Sluice worker polls, so the kernel reports its core as always busy; the worker's own counters are used
        // instead.
        let of_gateway = own.map_or(used, |own| own.work_ns * packets_per_s / 1e9);
        let of_all = busy(cores.all().len(), self.unused_of_all, before.unused_of_all) - used + of_gateway;
        let busy_share = of_gateway / gateways as f64;
        let limit = match Limit::of(busy_share, offered_per_s, packets_per_s) {
            Limit::Gateway if !cores.are_apart() => Limit::Cores,
            limit => limit,
        };
        let mut figures = vec![
            ("packets_per_s", packets_per_s),
            ("offered_per_s", offered_per_s),
            ("busy_share", busy_share),
            ("cpu_ns_per_packet", of_gateway * 1e9 / packets_per_s.max(1.0)),
            ("both_ns_per_packet", of_all * 1e9 / packets_per_s.max(1.0)),
        ];
        let nat = own.filter(|_| case.translates());
        figures.extend(nat.map(|own| ("nat_ns_per_packet", own.session_ns)));
        Sample {
            figures,
            limit,
            spread: Spread::of(&before.taken, &self.taken, cores),
        }
    }
}

impl Trial {
    /// Sets up topology, gateway and traffic, measures in `windows` windows, and then removes the setup.
    pub fn run(&self, arguments: &KernelArguments, windows: usize, window: Duration) -> Result<Vec<Sample>, Failure> {
        let cores = arguments.cores(self.together)?;
        settle(cores.gateway, QUIET);
        let topology = Topology::build(cores.clone(), self.receiver)?;
        let gateway = gateway::start(self, &topology, arguments)?;
        let frames = self.frames(arguments.xdp_generator);
        let mut traffic = Traffic::start(&topology, &frames, self.direction == Direction::Down)?;
        if self.case != Case::Generator {
            traffic.open(&topology, &OPENING_RATES, self.case.translates())?;
        }
        settle(cores.gateway, QUIET);
        let (mut samples, hz) = (Vec::new(), sluice_dpdk::tsc::frequency());
        topology.look(false)?;
        traffic.begin(self.flows, arguments.rate.into())?;
        std::thread::sleep(WARM_UP);
        for _ in 0..windows {
            let stages = Stages::read(gateway.as_ref());
            let before = Reading::take(&topology, self.direction);
            std::thread::sleep(window);
            let after = Reading::take(&topology, self.direction);
            let own = stages.and_then(|stages| Stages::read(gateway.as_ref())?.since(&stages, hz));
            samples.push(after.since(&before, &cores, self.case, own));
        }
        traffic.stop()?;
        if self.case != Case::Generator {
            self.check(&topology, &mut traffic, arguments.rate.into())?;
        }
        Ok(samples)
    }

    /// Continues the same traffic for a moment with inspection at both ends, to check that packets arrive correctly.
    fn check(&self, topology: &Topology, traffic: &mut Traffic, rate: u64) -> Result<(), Failure> {
        let read = || {
            // Packets still queued at an end are already counted by the interface, but not yet by the rules.
            settle(topology.cores.traffic, QUIET);
            let [_, Packets { received, .. }] = topology.packets(self.direction);
            let right = topology.arrived()?.right(self.direction, self.case.translates());
            Ok::<_, Failure>((received, right))
        };
        topology.look(true)?;
        let (received_before, right_before) = read()?;
        traffic.begin(self.flows, rate)?;
        std::thread::sleep(WARM_UP);
        traffic.stop()?;
        let (received, right) = read()?;
        let (received, right) = (received - received_before, right - right_before);
        match right > 0 && received - right.min(received) <= received / 100 {
            true => Ok(()),
            false => {
                Err(format!("{received} packets came in at the sink, and of these {right} as they should be").into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn limit_is_the_gateway_where_its_core_is_busy() {
        assert_eq!(Limit::Gateway, Limit::of(0.99, 900.0, 500.0));
        assert_eq!(Limit::Gateway, Limit::of(0.99, 500.0, 500.0));
    }

    #[test]
    fn limit_is_the_wire_where_packets_get_lost_and_the_generator_where_none_do() {
        assert_eq!(Limit::Veth, Limit::of(0.5, 900.0, 500.0));
        assert_eq!(Limit::Generator, Limit::of(0.5, 500.0, 499.0));
    }

    #[test]
    fn sample_is_what_changed_between_two_readings() {
        let start = Instant::now();
        let read = |milliseconds, unused, received, sent, send_drops| Reading {
            at: start + Duration::from_millis(milliseconds),
            unused: Duration::from_millis(unused),
            unused_of_all: Duration::from_millis(unused),
            taken: Vec::new(),
            sink: Packets {
                received,
                ..Packets::default()
            },
            generator: Packets {
                sent,
                send_drops,
                ..Packets::default()
            },
        };
        let before = read(0, 100, 1_000, 1_000, 0);
        let after = read(2_000, 1_100, 401_000, 501_000, 100_000);
        let cores = Cores::apart(&[0, 1]).expect("two cores");
        let since = |cores: &Cores, case, own| {
            let sample = after.since(&before, cores, case, own);
            (sample.limit, sample.figures.into_iter().collect::<BTreeMap<_, _>>())
        };
        let (limit, linux) = since(&cores, Case::Iptables, None);
        assert_eq!(Limit::Veth, limit);
        let expected = [
            ("packets_per_s", 200_000.0),
            ("offered_per_s", 300_000.0),
            ("busy_share", 0.5),
            ("cpu_ns_per_packet", 2_500.0),
            ("both_ns_per_packet", 7_500.0),
        ];
        assert_eq!(BTreeMap::from(expected), linux);
        assert_eq!(250_000.0, since(&cores, Case::Generator, None).1["packets_per_s"]);
        let own = Some(Times {
            session_ns: 300.0,
            work_ns: 1_000.0,
        });
        assert_eq!(None, since(&cores, Case::SluiceForward, own).1.get("nat_ns_per_packet"));
        let polling = since(&cores, Case::Sluice, own).1;
        assert_eq!(300.0, polling["nat_ns_per_packet"]);
        assert_eq!((0.2, 1_000.0), (polling["busy_share"], polling["cpu_ns_per_packet"]));
        assert_eq!(
            6_000.0, polling["both_ns_per_packet"],
            "the traffic's core, and the worker's work"
        );
        let cores = Cores::together(&[0, 1], 2).expect("two cores");
        assert_eq!(0.75, since(&cores, Case::Iptables, None).1["busy_share"]);
    }

    #[test]
    fn spread_is_the_least_share_of_the_gateways_cores_and_the_share_of_others() {
        let (before, after) = ([(0, 100), (1, 100), (2, 100)], [(0, 400), (1, 200), (2, 600)]);
        let of = |cores: Option<Cores>| Spread::of(&before, &after, &cores.expect("enough cores"));
        let spread = |least, others| Spread { least, others };
        assert_eq!(spread(0.25, 500.0 / 900.0), of(Cores::together(&[0, 1], 2)));
        assert_eq!(spread(1.0, 500.0 / 900.0), of(Cores::apart(&[0, 1])));
        assert_eq!(spread(100.0 / 900.0, 0.0), of(Cores::together(&[0, 1, 2], 3)));
    }
}

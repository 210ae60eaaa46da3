//! One trial: a topology, a gateway, traffic, and measurements in several time windows.

use std::path::Path;
use std::time::{Duration, Instant};

use super::gateway::{Case, Gateway, Times};
use super::inside::Outside;
use super::machine::{Cores, Packets, settle, taken, unused_time};
use super::topology::{Arrived, Topology};
use super::traffic::{Direction, Flows, Frames, Hits, OPENED, Receiver, Site, Traffic};
use crate::rows::Failure;

/// Time between the first packet and the first window.
const WARM_UP: Duration = Duration::from_millis(300);

/// Maximum time that a trial waits for the machine to become idle.
const QUIET: Duration = Duration::from_secs(3);

/// Packet rates for opening flows, tried in order until the packets get through.
const OPENING_RATES: [u32; 4] = [50_000, 20_000, 8_000, 4_000];

/// Utilisation of the gateway's core at or above which the gateway counts as the limit.
const BUSY: f64 = 0.95;

/// If at least this share of the offered packets arrives, the generator counts as the limit.
const WHOLE: f64 = 0.98;

/// Parameters of a trial.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    pub case: Case,
    pub rules: u32,
    /// Rules that the packets match.
    pub hits: Hits,
    pub flows: Flows,
    pub direction: Direction,
    /// Core on which forwarded packets are received.
    pub receiver: Receiver,
    pub site: Site,
    pub bytes: usize,
    /// Number of cores that each run generator, gateway and receiver; 0 if these have separate cores.
    pub together: usize,
    /// Offered packets per second; 0 for the maximum that the generator can send.
    pub rate: u32,
    pub windows: usize,
    pub window: Duration,
    /// Whether the generator sends by AF_XDP.
    pub xdp: bool,
    /// Whether the kernel's receive half of AF_XDP runs in a separate thread for Sluice.
    pub napi_thread: bool,
}

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
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Packets per second at the sink.
    pub packets_per_s: f64,
    /// Packets per second that the generator sent to the gateway's interface, whether accepted or not.
    pub offered_per_s: f64,
    /// Utilisation of the gateway's core or cores; empty polls of a worker count as idle.
    pub busy_share: f64,
    /// CPU time of the gateway's core per packet at the sink.
    pub cpu_ns_per_packet: f64,
    /// CPU time of all cores per packet at the sink, including generator and receiver.
    pub both_ns_per_packet: f64,
    /// Time from session lookup to rewrite per packet, according to the gateway's own counters.
    pub nat_ns_per_packet: Option<f64>,
    pub limit: Limit,
    /// Distribution of packet processing over cores.
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
        Sample {
            packets_per_s,
            offered_per_s,
            busy_share,
            cpu_ns_per_packet: of_gateway * 1e9 / packets_per_s.max(1.0),
            both_ns_per_packet: of_all * 1e9 / packets_per_s.max(1.0),
            nat_ns_per_packet: own.filter(|_| case.translates()).map(|own| own.session_ns),
            limit,
            spread: Spread::of(&before.taken, &self.taken, cores),
        }
    }
}

impl Trial {
    /// Sets up topology, gateway and traffic, measures, and removes them.
    pub fn run(&self, cores: &Cores, program: &Path, outside: &mut Outside<'_>) -> Result<Vec<Sample>, Failure> {
        settle(cores.gateway, QUIET);
        let topology = Topology::build(cores.clone(), self.receiver)?;
        let gateway = match self.site {
            Site::None => Gateway::start(self.case, self.rules, &topology, program, self.napi_thread, outside)?,
            Site::TagsAndMac => Gateway::of_sites(self.rules, self.site.terminals(), &topology, program)?,
        };
        let frames = Frames {
            bytes: self.bytes,
            hits: self.hits,
            rules: self.rules,
            direction: self.direction,
            site: self.site,
            xdp: self.xdp,
        };
        let mut traffic = Traffic::start(&topology, &frames)?;
        self.open(&topology, &mut traffic)?;
        settle(cores.gateway, QUIET);
        let (mut samples, hz) = (Vec::new(), sluice_dpdk::tsc::frequency());
        topology.look(false)?;
        traffic.begin(self.flows, self.rate)?;
        std::thread::sleep(WARM_UP);
        for _ in 0..self.windows {
            let stages = gateway.stages();
            let before = Reading::take(&topology, self.direction);
            std::thread::sleep(self.window);
            let after = Reading::take(&topology, self.direction);
            let own = stages.and_then(|stages| gateway.stages()?.since(&stages, hz));
            samples.push(after.since(&before, cores, self.case, own));
        }
        traffic.stop()?;
        self.check(&topology, &mut traffic)?;
        Ok(samples)
    }

    /// Sends a packet of every flow to be established, until nine of ten packets have arrived; if the machine is busy,
    /// packets are sent more slowly. The remaining flows are established during warm-up.
    fn open(&self, topology: &Topology, traffic: &mut Traffic) -> Result<(), Failure> {
        if self.case == Case::Generator {
            return Ok(());
        }
        let mut arrived = Arrived::default();
        for rate in OPENING_RATES {
            let before = topology.arrived()?;
            traffic.open(OPENED, rate)?;
            std::thread::sleep(Duration::from_millis(100));
            arrived = topology.arrived()?;
            let enough = u64::from(OPENED) * 9 / 10;
            let known = traffic.known()?;
            if self.right(&arrived, Direction::Up) - self.right(&before, Direction::Up) >= enough
                && known.is_none_or(|known| known >= enough)
            {
                return Ok(());
            }
        }
        Err(format!("of {OPENED} packets, each of another flow, {arrived:?} arrived").into())
    }

    fn right(&self, arrived: &Arrived, direction: Direction) -> u64 {
        arrived.right(direction, self.case.translates())
    }

    /// Continues the same traffic for a moment with inspection at both ends, to check that packets arrive correctly.
    fn check(&self, topology: &Topology, traffic: &mut Traffic) -> Result<(), Failure> {
        if self.case == Case::Generator {
            return Ok(());
        }
        let read = || {
            // Packets still queued at an end are already counted by the interface, but not yet by the rules.
            settle(topology.cores.traffic, QUIET);
            let [_, Packets { received, .. }] = topology.packets(self.direction);
            Ok::<_, Failure>((received, self.right(&topology.arrived()?, self.direction)))
        };
        topology.look(true)?;
        let (received_before, right_before) = read()?;
        traffic.begin(self.flows, self.rate)?;
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
        let reading = |milliseconds: u64, unused: u64, received: u64, sent: u64, send_drops: u64| {
            let sink = Packets {
                received,
                ..Packets::default()
            };
            let generator = Packets {
                sent,
                send_drops,
                ..Packets::default()
            };
            (milliseconds, Duration::from_millis(unused), sink, generator)
        };
        let start = Instant::now();
        let read = |(milliseconds, unused, sink, generator): (u64, Duration, Packets, Packets)| Reading {
            at: start + Duration::from_millis(milliseconds),
            unused,
            unused_of_all: unused,
            taken: Vec::new(),
            sink,
            generator,
        };
        let before = read(reading(0, 100, 1_000, 1_000, 0));
        let after = read(reading(2_000, 1_100, 401_000, 501_000, 100_000));
        let cores = Cores::apart(&[0, 1]).expect("two cores");
        let sample = after.since(&before, &cores, Case::Iptables, None);
        assert_eq!(200_000.0, sample.packets_per_s);
        assert_eq!(300_000.0, sample.offered_per_s);
        assert_eq!(0.5, sample.busy_share);
        assert_eq!(2_500.0, sample.cpu_ns_per_packet);
        assert_eq!(7_500.0, sample.both_ns_per_packet);
        assert_eq!(Limit::Veth, sample.limit);
        assert_eq!(
            250_000.0,
            after.since(&before, &cores, Case::Generator, None).packets_per_s
        );
        let own = Times {
            session_ns: 300.0,
            work_ns: 1_000.0,
        };
        let sluice = |case| after.since(&before, &cores, case, Some(own));
        let nat = |case| sluice(case).nat_ns_per_packet;
        assert_eq!((None, Some(300.0)), (nat(Case::SluiceForward), nat(Case::Sluice)));
        let polling = sluice(Case::Sluice);
        assert_eq!((0.2, 1_000.0), (polling.busy_share, polling.cpu_ns_per_packet));
        assert_eq!(
            6_000.0, polling.both_ns_per_packet,
            "the traffic's core, and the worker's work"
        );
        let cores = Cores::together(&[0, 1], 2).expect("two cores");
        assert_eq!(0.75, after.since(&before, &cores, Case::Iptables, None).busy_share);
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

//! A trial: packets are sent at a rate for some time, and counted at the opposite end.

use std::time::{Duration, Instant};

use super::clock::Span;
use super::gateway::Case;
use super::guest::{Guest, INSTRUCTION};
use super::rounds::Figures;
use super::search::Search;
use crate::kernel::generator::{Own, Task};
use crate::kernel::topology::{Arrived, Topology};
use crate::kernel::traffic::{Direction, Frames, Hits, OPENED, Site, Traffic};
use crate::process::Peer;
use crate::rows::Failure;

/// Packet rates for opening flows, tried in order until the packets get through.
const OPENING_RATES: [u64; 4] = [8_000, 4_000, 2_000, 1_000];

/// Maximum share of packets lost at a rate that still counts as without loss.
pub const LOSS: f64 = 0.001;

/// Maximum number of packets per burst at a controlled rate; smaller bursts contain the packets of half a millisecond.
const BURST: u32 = 32;

/// Direction of the measured packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Way {
    /// Packets from inside.
    Up,
    /// Packets from outside, to flows that were opened from inside.
    Down,
    /// Half of the packets in each direction.
    Both,
}

impl Way {
    fn directions(self) -> &'static [Direction] {
        match self {
            Self::Up => &[Direction::Up],
            Self::Down => &[Direction::Down],
            Self::Both => &[Direction::Up, Direction::Down],
        }
    }
}

/// Result of a trial.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed {
    pub sent: u64,
    /// Number of packets that arrived as expected.
    pub arrived: u64,
    pub seconds: f64,
    /// CPU time of the thread that emulates the guest's processor, and of all of QEMU.
    pub times: [Duration; 2],
}

impl Passed {
    pub fn offered(&self) -> f64 {
        self.sent as f64 / self.seconds.max(1e-9)
    }

    pub fn rate(&self) -> f64 {
        self.arrived as f64 / self.seconds.max(1e-9)
    }

    fn is_whole(&self) -> bool {
        self.arrived as f64 >= self.sent as f64 * (1.0 - LOSS)
    }

    /// Nanoseconds of CPU time per packet, of the thread that emulates the guest's processor and of all of QEMU.
    pub fn nanoseconds(&self) -> [f64; 2] {
        self.times
            .map(|time| time.as_secs_f64() * 1e9 / self.arrived.max(1) as f64)
    }
}

/// A guest, its links, and the generators at their ends.
#[derive(Debug)]
pub struct Rig {
    /// Dropped before the namespaces in which the generators run.
    traffic: Traffic,
    topology: Topology,
    pub guest: Guest,
}

impl Rig {
    /// Combines a guest with generators at the ends of its links; packets match the last of `rules` rules.
    pub fn new(guest: Guest, topology: Topology, rules: u32) -> Result<Self, Failure> {
        let frames = Frames {
            bytes: 64,
            hits: Hits::Last,
            rules,
            site: Site::None,
            xdp: false,
        };
        let traffic = Traffic::start(&topology, &frames, true)?;
        Ok(Self {
            traffic,
            topology,
            guest,
        })
    }

    /// Opens all flows, and checks that packets arrive as expected for this case.
    pub fn open(&mut self, case: Case) -> Result<(), Failure> {
        self.traffic.open(&self.topology, &OPENING_RATES, case.translates())
    }

    /// Generators that send in a direction.
    fn senders(&mut self, way: Way) -> impl Iterator<Item = &mut Peer> {
        let inside = self.traffic.inside.iter_mut().filter(move |_| way != Way::Down);
        inside.chain(self.traffic.outside.iter_mut().filter(move |_| way != Way::Up))
    }

    /// Sets the size of the frames to send.
    pub fn size(&mut self, bytes: u32) -> Result<(), Failure> {
        self.senders(Way::Both)
            .try_for_each(|sender| sender.tell(&Task::Bytes(bytes as usize)))
    }

    /// Stops the generators; returns the number of packets that they have sent since their start.
    fn sent(&mut self, way: Way) -> Result<u64, Failure> {
        self.senders(way).map(|sender| sender.ask::<u64>(&Task::Stop)).sum()
    }

    /// Sends packets at a rate, in bursts, for some time.
    fn pass(&mut self, case: Case, way: Way, load: Load, window: Duration) -> Result<Passed, Failure> {
        let directions = way.directions();
        let sum = |arrived: Arrived| -> u64 {
            let of = directions.iter().map(|&way| arrived.right(way, case.translates()));
            of.sum()
        };
        let task = Task::Established {
            own: Own::of(OPENED, 0, 1),
            rate: (load.rate / directions.len() as f64).round() as u64,
            burst: load.burst as usize,
        };
        let (before, sent) = (sum(self.topology.arrived()?), self.sent(way)?);
        let (began, times) = (Instant::now(), self.guest.times());
        self.senders(way).try_for_each(|sender| sender.tell(&task))?;
        std::thread::sleep(window);
        let sent = self.sent(way)?.saturating_sub(sent);
        let (seconds, now) = (began.elapsed().as_secs_f64(), self.guest.times());
        Ok(Passed {
            sent,
            arrived: sum(self.topology.drained()?).saturating_sub(before),
            seconds,
            times: [0, 1].map(|index| now[index].saturating_sub(times[index])),
        })
    }

    /// Finds the highest rate without loss, and its cost; then measures at twice this rate.
    pub fn search(&mut self, case: Case, way: Way, mut search: Search, window: Duration) -> Result<Figures, Failure> {
        let mut best = None;
        while let Some(rate) = search.next() {
            let passed = self.pass(case, way, Load::at(rate), window)?;
            if !passed.is_whole() {
                search.failed();
                continue;
            }
            best = Some(passed);
            search.passed();
            // The generator could not send at the requested rate, so the search ends.
            if passed.offered() < 0.9 * rate {
                break;
            }
        }
        let best: Passed = best.ok_or("packets get lost at every rate")?;
        let flooded = self.pass(case, way, Load::at(2.0 * best.rate()), window)?;
        let [cpu, machine] = best.nanoseconds();
        Ok(vec![
            ("packets_per_s", best.rate()),
            ("cpu_ns_per_packet", cpu),
            ("qemu_ns_per_packet", machine),
            ("flood_per_s", flooded.offered()),
            ("flooded_per_s", flooded.rate()),
            ("flooded_cpu_ns_per_packet", flooded.nanoseconds()[0]),
        ])
    }

    /// Counts instructions per packet in addition to those of an idle guest, in bursts without loss; `idle` is a
    /// measurement without packets.
    pub fn instructions(
        &mut self,
        case: Case,
        way: Way,
        load: Load,
        idle: &Span,
        window: Duration,
    ) -> Result<Figures, Failure> {
        let before = self.guest.reading()?;
        let passed = self.pass(case, way, load, window)?;
        let span = self.guest.reading()?.since(&before);
        let instructions = span.beyond(idle) / f64::from(1 << INSTRUCTION);
        Ok(vec![
            ("instructions_per_packet", instructions / passed.arrived.max(1) as f64),
            ("idle_work_share", idle.share()),
        ])
    }

    /// Measures a period without packets.
    pub fn idle(&mut self, window: Duration) -> Result<Span, Failure> {
        let before = self.guest.reading()?;
        std::thread::sleep(window);
        Ok(self.guest.reading()?.since(&before))
    }
}

/// How packets arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    pub burst: u32,
    rate: f64,
}

impl Load {
    /// A rate in packets per second, with the usual number of packets per burst.
    fn at(rate: f64) -> Self {
        let burst = ((rate / 2_000.0) as u32).clamp(1, BURST);
        Self { burst, rate }
    }
}

/// Loads at which instructions are counted: single packets, each sent after the previous one was processed; and bursts, as at a busy gateway.
pub const LOADS: [Load; 2] = [
    Load {
        burst: 1,
        rate: 1_000.0,
    },
    Load {
        burst: 32,
        rate: 4_000.0,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trial_is_whole_where_next_to_nothing_is_lost() {
        let passed = |sent, arrived| Passed {
            sent,
            arrived,
            seconds: 2.0,
            times: [Duration::from_micros(50), Duration::from_micros(75)],
        };
        assert!(passed(10_000, 9_990).is_whole());
        assert!(!passed(10_000, 9_989).is_whole());
        assert_eq!(5.0, passed(10, 10).rate());
        assert_eq!([5_000.0, 7_500.0], passed(10, 10).nanoseconds());
    }

    #[test]
    fn bursts_are_of_half_a_millisecond() {
        let bursts = [500.0, 20_000.0, 1e6].map(|rate| Load::at(rate).burst);
        assert_eq!([1, 10, 32], bursts);
    }
}

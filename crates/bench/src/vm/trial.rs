//! A trial: packets are sent at a rate for some time, and counted at the opposite end.

use std::time::{Duration, Instant};

use super::clock::Span;
use super::gateway::Case;
use super::guest::{Guest, INSTRUCTION};
use super::search::Search;
use crate::kernel::generator::Own;
use crate::kernel::topology::{Arrived, Topology};
use crate::kernel::traffic::{Direction, Frames, Generator, Hits, OPENED, Site};
use crate::rows::Failure;

/// Packet rates for opening flows, tried in order until the packets get through.
const OPENING_RATES: [u32; 4] = [8_000, 4_000, 2_000, 1_000];

/// Maximum share of packets lost at a rate that still counts as without loss.
pub const LOSS: f64 = 0.001;

/// Maximum number of packets per burst at a controlled rate; smaller bursts contain the packets of half a millisecond.
const BURST: u32 = 32;

/// Maximum time to wait for the last packets.
const DRAIN: Duration = Duration::from_secs(3);

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

/// Result of a search.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Result at the highest rate without loss.
    pub best: Passed,
    pub flooded: Passed,
}

/// Generators at both ends of the guest's links.
#[derive(Debug)]
pub struct Ends {
    inside: Generator,
    outside: Generator,
}

impl Ends {
    pub fn start(core: usize, rules: u32) -> Result<Self, Failure> {
        let start = |direction| {
            let frames = Frames {
                bytes: 64,
                hits: Hits::Last,
                rules,
                direction,
                site: Site::None,
                xdp: false,
            };
            Generator::start(core, &frames, direction)
        };
        Ok(Self {
            inside: start(Direction::Up)?,
            outside: start(Direction::Down)?,
        })
    }

    fn at(&mut self, direction: Direction) -> &mut Generator {
        match direction {
            Direction::Up => &mut self.inside,
            Direction::Down => &mut self.outside,
        }
    }
}

/// A guest, its links, and the generators at their ends.
#[derive(Debug)]
pub struct Rig {
    /// Dropped before the namespaces in which the generators run.
    ends: Ends,
    topology: Topology,
    pub guest: Guest,
}

impl Rig {
    /// Combines a guest with generators at the ends of its links; packets match the last of `rules` rules.
    pub fn new(guest: Guest, topology: Topology, rules: u32) -> Result<Self, Failure> {
        let ends = Ends::start(topology.cores.traffic, rules)?;
        Ok(Self { ends, topology, guest })
    }

    /// Sends a packet of every flow, and checks that nine of ten arrive as expected for this case.
    pub fn open(&mut self, case: Case) -> Result<(), Failure> {
        let (mut arrived, mut known) = (Arrived::default(), 0);
        let enough = u64::from(OPENED) * 9 / 10;
        for rate in OPENING_RATES {
            self.ends.outside.0.tell("learn")?;
            self.ends.outside.0.ask("known", "known")?;
            let before = self.topology.arrived()?;
            self.ends.inside.0.ask(&format!("open {OPENED} {rate}"), "opened")?;
            arrived = self.drained()?;
            known = self.ends.outside.0.ask("known", "known")?;
            if right(&arrived, case, Direction::Up) - right(&before, case, Direction::Up) >= enough && known >= enough {
                self.ends.outside.0.ask("stop", "sent")?;
                return Ok(());
            }
        }
        Err(
            format!("of {OPENED} packets, each of another flow, {arrived:?} arrived; the server's end knows {known}")
                .into(),
        )
    }

    /// Sets the size of the frames to send.
    pub fn size(&mut self, bytes: u32) -> Result<(), Failure> {
        self.ends.inside.0.tell(&format!("bytes {bytes}"))?;
        self.ends.outside.0.tell(&format!("bytes {bytes}"))
    }

    /// Sends packets at a rate, in bursts, for some time.
    fn pass(&mut self, case: Case, way: Way, rate: f64, burst: u32, window: Duration) -> Result<Passed, Failure> {
        let directions = way.directions();
        let sum = |arrived: &Arrived| -> u64 { directions.iter().map(|&way| right(arrived, case, way)).sum() };
        let rate = (rate / directions.len() as f64).round() as u64;
        let own = Own::of(OPENED, 0, 1);
        let line = format!("established {} {} {} {rate} {burst}", own.from, own.step, own.count);
        let (before, mut sent) = (sum(&self.topology.arrived()?), 0);
        for &direction in directions {
            sent -= self.ends.at(direction).0.ask("stop", "sent")? as i64;
        }
        let (began, times) = (Instant::now(), self.guest.times());
        for &direction in directions {
            self.ends.at(direction).0.tell(&line)?;
        }
        std::thread::sleep(window);
        for &direction in directions {
            sent += self.ends.at(direction).0.ask("stop", "sent")? as i64;
        }
        let (seconds, now) = (began.elapsed().as_secs_f64(), self.guest.times());
        Ok(Passed {
            sent: u64::try_from(sent).unwrap_or(0),
            arrived: sum(&self.drained()?).saturating_sub(before),
            seconds,
            times: [0, 1].map(|index| now[index].saturating_sub(times[index])),
        })
    }

    /// Number of packets that have arrived, read when no further packets arrive.
    fn drained(&self) -> Result<Arrived, Failure> {
        let began = Instant::now();
        let mut arrived = self.topology.arrived()?;
        while began.elapsed() < DRAIN {
            std::thread::sleep(Duration::from_millis(100));
            let now = self.topology.arrived()?;
            if now == arrived {
                break;
            }
            arrived = now;
        }
        Ok(arrived)
    }

    /// Find the highest rate without loss.
    pub fn search(&mut self, case: Case, way: Way, mut search: Search, window: Duration) -> Result<Found, Failure> {
        let mut best = None;
        while let Some(rate) = search.next() {
            let passed = self.pass(case, way, rate, burst(rate), window)?;
            // The generator could not send at the requested rate, so the search ends.
            let short = passed.offered() < 0.9 * rate;
            match passed.is_whole() {
                true => {
                    best = Some(passed);
                    search.passed();
                }
                false => search.failed(),
            }
            if short && passed.is_whole() {
                break;
            }
        }
        let best: Passed = best.ok_or("packets get lost at every rate")?;
        let flood = 2.0 * best.rate();
        let flooded = self.pass(case, way, flood, burst(flood), window)?;
        Ok(Found { best, flooded })
    }

    /// Instructions per packet in addition to those of an idle guest, in bursts without loss; `idle` is a measurement
    /// without packets.
    pub fn instructions(
        &mut self,
        case: Case,
        way: Way,
        load: Load,
        idle: &Span,
        window: Duration,
    ) -> Result<f64, Failure> {
        let before = self.guest.reading()?;
        let passed = self.pass(case, way, load.rate, load.burst, window)?;
        let span = self.guest.reading()?.since(&before);
        let packets = passed.arrived.max(1) as f64;
        Ok(span.beyond(idle) / f64::from(1 << INSTRUCTION) / packets)
    }

    /// Measures a period without packets.
    pub fn idle(&mut self, window: Duration) -> Result<Span, Failure> {
        let before = self.guest.reading()?;
        std::thread::sleep(window);
        Ok(self.guest.reading()?.since(&before))
    }
}

/// How packets arrive while instructions are counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    pub burst: u32,
    pub rate: f64,
}

/// Single packets, each sent after the previous one was processed; and bursts, as at a busy gateway.
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

/// Number of packets per burst at a rate.
fn burst(rate: f64) -> u32 {
    ((rate / 2_000.0) as u32).clamp(1, BURST)
}

fn right(arrived: &Arrived, case: Case, direction: Direction) -> u64 {
    arrived.right(direction, case.translates())
}

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
    fn packets_count_where_they_are_as_the_case_leaves_them() {
        let arrived = Arrived {
            translated: 1,
            plain: 2,
            returned: 3,
        };
        assert_eq!(1, right(&arrived, Case::Iptables, Direction::Up));
        assert_eq!(2, right(&arrived, Case::LinuxForward, Direction::Up));
        assert_eq!(3, right(&arrived, Case::Sluice, Direction::Down));
    }

    #[test]
    fn bursts_are_of_half_a_millisecond() {
        assert_eq!((1, 10, 32), (burst(500.0), burst(20_000.0), burst(1e6)));
    }
}

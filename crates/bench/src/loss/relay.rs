//! The relay: a process in its own network namespace that forwards frames between interfaces, drops some of them, and delays the others. The relay
//! reads commands from its input.
//!
//! | line | answer |
//! | --- | --- |
//! | `set PPM MICROSECONDS SEED` | `set`: from now on, PPM of a million frames are dropped in each direction, and the others are delayed by MICROSECONDS; waiting frames are dropped |
//! | `count` | `count PASSED LOST OVERFLOWED`, since the last `set` |

use std::collections::VecDeque;
use std::io::BufRead;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use clap::Args;
use sluice_dpdk::{DpdkIo, Driver, Plan, PortPlan};
use sluice_engine::packet::io::{BURST_BUFFERS, BufferIndex, PacketIo, Parked, PortIndex};

use super::Failure;
use crate::process::answer;
use crate::rig::Source;
use crate::rig::frames::Mixed;

/// Maximum number of frames that wait in the relay, over all paths.
const WAITING: usize = 32_768;
/// Number of empty rounds after which the relay sleeps, and duration of the sleep; the relay shares its core with the hosts.
const IDLE_ROUNDS: u32 = 32;
const IDLE: Duration = Duration::from_micros(20);

/// Interfaces of the relay.
#[derive(Args, Clone, Debug)]
pub struct RelayArguments {
    /// Pairs of interfaces.
    #[arg(long, value_delimiter = ',', required = true)]
    interfaces: Vec<String>,
    /// Core to run on.
    #[arg(long)]
    core: usize,
}

/// Loss and delay of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Faults {
    per_million: u32,
    delay: Duration,
    seed: u64,
}

/// A line of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Set(Faults),
    Count,
}

impl Line {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words.as_slice() {
            ["set", per_million, delay, seed] => Some(Self::Set(Faults {
                per_million: per_million.parse().ok()?,
                delay: Duration::from_micros(delay.parse().ok()?),
                seed: seed.parse().ok()?,
            })),
            ["count"] => Some(Self::Count),
            _ => None,
        }
    }
}

/// Selects the frames of one direction to be dropped by their numbers, so that the same seed always drops the same frames.
#[derive(Clone, Copy, Debug)]
struct Chance {
    state: Mixed,
    below: u64,
}

impl Chance {
    fn new(faults: &Faults, way: u64) -> Self {
        let share = u128::from(faults.per_million) << 64;
        Self {
            state: Mixed(faults.seed ^ (way + 1).wrapping_mul(0xd1b5_4a32_d192_ed03)),
            below: u64::try_from(share / 1_000_000).unwrap_or(u64::MAX),
        }
    }

    /// Whether to drop the next frame.
    #[inline(always)]
    fn loses(&mut self) -> bool {
        self.state.next() < self.below
    }
}

/// Frames that arrive at one interface and leave through the other interface of the pair.
struct Way {
    from: PortIndex,
    to: PortIndex,
    chance: Chance,
    waiting: VecDeque<(Instant, Parked)>,
}

/// Frame counters since the last `set` line.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    passed: u64,
    lost: u64,
    overflowed: u64,
}

struct Relay {
    io: DpdkIo,
    ways: Vec<Way>,
    faults: Faults,
    counts: Counts,
}

impl Relay {
    fn set(&mut self, faults: Faults) {
        (self.faults, self.counts) = (faults, Counts::default());
        for (number, way) in self.ways.iter_mut().enumerate() {
            way.chance = Chance::new(&faults, number as u64);
            way.waiting.drain(..).for_each(|(_, parked)| self.io.release(parked));
        }
    }

    /// Receives frames and sends those that are due; returns whether there were any.
    fn round(&mut self) -> bool {
        let mut any = false;
        for number in 0..self.ways.len() {
            any |= self.take(number);
            any |= self.give(number);
        }
        any
    }

    fn take(&mut self, number: usize) -> bool {
        let (io, way) = (&mut self.io, &mut self.ways[number]);
        let count = io.receive(way.from);
        if count == 0 {
            io.end();
            return false;
        }
        let mut lost = ArrayVec::<BufferIndex, BURST_BUFFERS>::new();
        let mut kept = ArrayVec::<BufferIndex, BURST_BUFFERS>::new();
        for slot in 0..count as BufferIndex {
            match way.chance.loses() {
                true => lost.push(slot),
                false => kept.push(slot),
            }
        }
        io.free(&lost);
        self.counts.lost += lost.len() as u64;
        let mut sent = 0;
        // Without a delay, frames are forwarded directly, unless earlier frames are still waiting.
        if self.faults.delay.is_zero() && way.waiting.is_empty() {
            sent = io.transmit(way.to, &kept);
            self.counts.passed += sent as u64;
        }
        let due = Instant::now() + self.faults.delay;
        for &slot in &kept[sent..] {
            match io.park(slot) {
                Some(parked) => way.waiting.push_back((due, parked)),
                None => {
                    io.free(&[slot]);
                    self.counts.overflowed += 1;
                }
            }
        }
        io.end();
        true
    }

    fn give(&mut self, number: usize) -> bool {
        let (io, way) = (&mut self.io, &mut self.ways[number]);
        if way.waiting.is_empty() {
            return false;
        }
        let now = Instant::now();
        let due = way
            .waiting
            .iter()
            .take(BURST_BUFFERS / 2)
            .take_while(|(due, _)| *due <= now)
            .count();
        if due == 0 {
            return false;
        }
        let mut slots = ArrayVec::<BufferIndex, BURST_BUFFERS>::new();
        for (_, parked) in way.waiting.drain(..due) {
            slots.extend(io.unpark(parked));
        }
        let sent = io.transmit(way.to, &slots);
        self.counts.passed += sent as u64;
        // Put unsent frames back to the front of the queue in their order.
        for &slot in slots[sent..].iter().rev() {
            match io.park(slot) {
                Some(parked) => way.waiting.push_front((now, parked)),
                None => io.free(&[slot]),
            }
        }
        io.end();
        true
    }

    fn run(&mut self, lines: &Receiver<Line>) {
        let mut idle = 0;
        loop {
            match lines.try_recv() {
                Ok(Line::Set(faults)) => {
                    self.set(faults);
                    answer("set");
                }
                Ok(Line::Count) => {
                    let Counts {
                        passed,
                        lost,
                        overflowed,
                    } = self.counts;
                    answer(format!("count {passed} {lost} {overflowed}"));
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    self.set(Faults::default());
                    return;
                }
            }
            idle = if self.round() { 0 } else { idle + 1 };
            if idle > IDLE_ROUNDS {
                std::thread::sleep(IDLE);
            }
        }
    }
}

/// Run the relay until its input ends.
pub fn run(arguments: &RelayArguments) -> Result<(), Failure> {
    sluice_dpdk::workers::pin(arguments.core)?;
    let port = |name: &String| {
        Ok(PortPlan {
            driver: Some(Driver::AfPacket),
            promiscuous: true,
            ..PortPlan::new(name, name.parse()?)
        })
    };
    let ports = arguments
        .interfaces
        .iter()
        .map(port)
        .collect::<Result<Vec<_>, Failure>>()?;
    let count = ports.len();
    if !count.is_multiple_of(2) {
        return Err("interfaces go two and two".into());
    }
    let mut plan = Plan::new(ports, 1);
    plan.parked = WAITING;
    plan.buffers = (2 * WAITING as u32 + plan.buffers).next_power_of_two() - 1;
    let (_, source) = Source::alone(&plan, arguments.core)?;
    let mut relay = Relay {
        io: source.io,
        ways: Vec::new(),
        faults: Faults::default(),
        counts: Counts::default(),
    };
    for from in 0..count as PortIndex {
        relay.ways.push(Way {
            from,
            to: from ^ 1,
            chance: Chance::new(&relay.faults, from.into()),
            waiting: VecDeque::with_capacity(WAITING),
        });
    }
    let (tell, lines) = channel();
    let reader = std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            match line.ok().as_deref().and_then(Line::parse) {
                Some(line) if tell.send(line).is_ok() => {}
                _ => return,
            }
        }
    });
    answer("ready");
    relay.run(&lines);
    let _ = reader.join();
    drop(relay);
    source.devices.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_read_or_refused() {
        let faults = Faults {
            per_million: 1_000,
            delay: Duration::from_millis(10),
            seed: 7,
        };
        assert_eq!(Some(Line::Set(faults)), Line::parse("set 1000 10000 7\n"));
        assert_eq!(Some(Line::Count), Line::parse("count"));
        for wrong in ["", "set 1 2", "set x 2 3", "dance"] {
            assert_eq!(None, Line::parse(wrong), "{wrong}");
        }
    }

    #[test]
    fn frames_are_lost_by_share_and_the_same_ones_by_the_same_seed() {
        let lost = |per_million, seed| {
            let faults = Faults {
                per_million,
                seed,
                ..Faults::default()
            };
            let mut chance = Chance::new(&faults, 0);
            (0..1_000_000).filter(|_| chance.loses()).collect::<Vec<u32>>()
        };
        assert_eq!(0, lost(0, 1).len());
        assert_eq!(1_000_000, lost(1_000_000, 1).len());
        let some = lost(1_000, 1);
        assert!((800..1_200).contains(&some.len()), "{}", some.len());
        assert_eq!(some, lost(1_000, 1));
        assert_ne!(some, lost(1_000, 2));
    }
}

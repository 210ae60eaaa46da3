//! The relay: a process in its own network namespace that forwards frames between interfaces, drops some of them, and
//! delays the others.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use serde::{Deserialize, Serialize};
use sluice_dpdk::{DpdkIo, Driver};
use sluice_engine::packet::io::{BURST_BUFFERS, BufferIndex, PacketIo, Parked, PortIndex};

use super::Failure;
use crate::netns;
use crate::process::{answer, messages};
use crate::rig::frames::Mixed;

/// Maximum number of frames that wait in the relay, over all paths.
const WAITING: usize = 32_768;
/// Number of empty rounds after which the relay sleeps, and duration of the sleep; the relay shares its core with the
/// hosts.
const IDLE_ROUNDS: u32 = 32;
const IDLE: Duration = Duration::from_micros(20);

/// Start parameters of the relay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Interfaces, two for each path.
    pub interfaces: Vec<String>,
    /// Core to run on.
    pub core: usize,
}

/// Loss and delay of frames.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Faults {
    /// Number of frames per million that are dropped in each direction.
    pub per_million: u32,
    /// Delay of the other frames.
    pub delay: Duration,
    pub seed: u64,
}

/// A message to the relay.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Task {
    /// Drop waiting frames, set loss and delay, and reply.
    Set(Faults),
    /// Reply with the [`Counts`].
    Count,
}

/// Frame counters since loss and delay were set.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Frames dropped on purpose.
    pub lost: u64,
    /// Frames dropped because too many were waiting.
    pub overflowed: u64,
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

    fn run(&mut self, tasks: &Receiver<Task>) {
        let mut idle = 0;
        loop {
            match tasks.try_recv() {
                Ok(Task::Set(faults)) => {
                    self.set(faults);
                    answer(&());
                }
                Ok(Task::Count) => answer(&self.counts),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return self.set(Faults::default()),
            }
            idle = if self.round() { 0 } else { idle + 1 };
            if idle > IDLE_ROUNDS {
                std::thread::sleep(IDLE);
            }
        }
    }
}

/// Run the relay until its input ends.
pub fn run(settings: &Settings) -> Result<(), Failure> {
    let source = netns::open(&settings.interfaces, Driver::AfPacket, settings.core, Some(WAITING))?;
    let way = |from: PortIndex| Way {
        from,
        to: from ^ 1,
        chance: Chance::new(&Faults::default(), from.into()),
        waiting: VecDeque::with_capacity(WAITING),
    };
    let mut relay = Relay {
        io: source.io,
        ways: (0..settings.interfaces.len() as PortIndex).map(way).collect(),
        faults: Faults::default(),
        counts: Counts::default(),
    };
    answer(&());
    relay.run(&messages());
    drop(relay);
    source.devices.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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

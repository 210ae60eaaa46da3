//! The generator: a separate process in its own network namespace, which sends packets as its [tasks](Task) demand.

use std::ops::Range;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sluice_dpdk::Driver;
use sluice_engine::packet::io::BURST_SIZE;

use super::frame::{End, Ends, Template};
use super::pace::Pace;
use super::peers::Peers;
use super::traffic::Direction;
use crate::netns;
use crate::process::{answer, messages};
use crate::rig::Source;
use crate::rows::Failure;

/// Start parameters of the generator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Interface to send through.
    pub interface: String,
    /// Core to run on.
    pub core: usize,
    /// Frame size in bytes, including the frame check sequence.
    pub bytes: usize,
    /// Direction of the packets. For packets from outside, the generator acts as the server: it sends packets of the
    /// flows from which it has received packets.
    pub direction: Direction,
    pub ends: Ends,
    /// Use AF_XDP instead of AF_PACKET.
    pub xdp: bool,
}

/// The flows that one of several generators sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    from: u32,
    /// Difference between the numbers of two consecutive flows.
    step: u32,
    /// Number of flows.
    count: u32,
}

impl Own {
    /// The subset of `flows` flows that generator `number` of `generators` sends.
    pub fn of(flows: u32, number: u32, generators: u32) -> Self {
        Self {
            from: number,
            step: generators,
            count: flows.saturating_sub(number).div_ceil(generators),
        }
    }

    pub fn draw(self, random: u32) -> u32 {
        self.from + random % self.count * self.step
    }
}

/// A message to the generator. Rates are packets per second; 0 means unlimited.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Task {
    /// Send one packet of each of the first flows, and reply when this is done.
    Open { flows: u32, rate: u64 },
    /// Send packets in bursts, each of a random one of the generator's own flows. A server sends to the sources of
    /// known flows, or to unused addresses if it knows none.
    Established { own: Own, rate: u64, burst: usize },
    /// Send one packet of each of these flows.
    New { flows: Range<u32>, rate: u64 },
    /// Send frames of this number of bytes from now on, including the frame check sequence.
    Bytes(usize),
    /// Forget known flows, and learn from received packets until the next task.
    Learn,
    /// Reply with the number of flows whose source is known.
    Known,
    /// Reply with the number of packets that the interface has accepted since the start.
    Stop,
}

impl Task {
    /// Sends packets of established flows in full bursts.
    pub fn established(own: Own, rate: u64) -> Self {
        let burst = BURST_SIZE;
        Self::Established { own, rate, burst }
    }
}

/// Run the generator until its input ends.
pub fn run(settings: Settings) -> Result<(), Failure> {
    let driver = if settings.xdp { Driver::AfXdp } else { Driver::AfPacket };
    let mut generator = Generator {
        source: netns::open(&[&settings.interface], driver, settings.core, None)?,
        template: Template::new(&settings.ends, settings.bytes, settings.direction),
        settings,
        peers: Peers::default(),
        sent: 0,
    };
    answer(&());
    generator.work(&messages());
    generator.source.close();
    Ok(())
}

struct Generator {
    source: Source,
    settings: Settings,
    template: Template,
    peers: Peers,
    sent: u64,
}

impl Generator {
    fn work(&mut self, tasks: &Receiver<Task>) {
        let mut task = Task::Stop;
        loop {
            let next = match task {
                Task::Stop => tasks.recv().map_err(|_| TryRecvError::Disconnected),
                _ => tasks.try_recv(),
            };
            task = match next {
                Ok(next) => self.begin(next, task),
                Err(TryRecvError::Empty) => task,
                Err(TryRecvError::Disconnected) => return,
            };
            task = self.round(task);
        }
    }

    /// Accepts a task; returns the task that the generator works on afterwards.
    fn begin(&mut self, next: Task, current: Task) -> Task {
        match next {
            Task::Open { .. } | Task::New { .. } => {}
            Task::Established { .. } if self.settings.direction == Direction::Down => self.peers.stop_learning(),
            Task::Established { .. } => {}
            Task::Bytes(bytes) => {
                self.template = Template::new(&self.settings.ends, bytes, self.settings.direction);
                return current;
            }
            Task::Learn => {
                // Packets in the queue belong to the time before this task.
                while self.learn() > 0 {}
                self.peers = Peers::default();
            }
            Task::Known => {
                // Packets that have arrived by now are counted.
                while self.learn() > 0 {}
                answer(&self.peers.known());
                return current;
            }
            Task::Stop => answer(&self.sent),
        }
        next
    }

    /// Processes a part of a task, at most several thousand packets; returns the remaining task.
    fn round(&mut self, task: Task) -> Task {
        match task {
            Task::Bytes(_) | Task::Known | Task::Stop => Task::Stop,
            Task::Learn => {
                // Sleep if nothing was received, because the server shares its core with the inside generator.
                if self.learn() == 0 {
                    std::thread::sleep(Duration::from_micros(50));
                }
                Task::Learn
            }
            Task::Open { flows, rate } => {
                let mut left = 0..flows;
                while !left.is_empty() {
                    left = self.once_each(left, rate);
                }
                answer(&());
                Task::Stop
            }
            Task::Established { own, rate, burst } => {
                let mut pace = Pace::new(rate);
                for _ in 0..64 {
                    pace.wait();
                    let drawn = self.sent as u32;
                    let count = self.send(burst.clamp(1, BURST_SIZE), |index, template, peers| {
                        peers.draw(own, scatter(drawn.wrapping_add(index)), template)
                    });
                    pace.sent(count);
                }
                task
            }
            Task::New { flows, rate } => match self.once_each(flows, rate) {
                left if left.is_empty() => Task::Stop,
                flows => Task::New { flows, rate },
            },
        }
    }

    /// Sends a packet of each of these flows, at most several thousand packets; returns the remaining flows.
    fn once_each(&mut self, mut flows: Range<u32>, rate: u64) -> Range<u32> {
        let mut pace = Pace::new(rate);
        for _ in 0..64 {
            if flows.is_empty() {
                break;
            }
            pace.wait();
            let from = flows.start;
            let sent = self.send(flows.len().min(BURST_SIZE), |index, template, _| {
                (from + index, template.source(from + index))
            });
            pace.sent(sent);
            flows.start += sent as u32;
        }
        flows
    }

    /// Processes received frames; returns the number of frames.
    fn learn(&mut self) -> usize {
        self.source.drain(0, |frame| self.peers.learn(frame))
    }

    /// Sends packets of flows; returns the number of packets that the interface accepted, counted from the first.
    fn send(&mut self, count: usize, flow: impl Fn(u32, &Template, &Peers) -> (u32, End)) -> usize {
        let (template, peers, mut index) = (&self.template, &self.peers, 0);
        let (_, taken) = self.source.send(&[(0, count)], |_, packet| {
            let is_long_enough = packet.set_len(template.len());
            if is_long_enough {
                let (flow, end) = flow(index, template, peers);
                template.write(flow, end, packet.bytes_mut());
                index += 1;
            }
            is_long_enough
        });
        self.sent += taken as u64;
        taken
    }
}

/// Maps consecutive numbers to numbers that are distributed over the whole range.
fn scatter(number: u32) -> u32 {
    let mixed = number.wrapping_mul(0x9e37_79b1);
    (mixed ^ (mixed >> 15)).wrapping_mul(0x85eb_ca77) >> 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_of_generators_are_all_flows_and_each_of_one() {
        let mut drawn = vec![0; 10];
        for number in 0..3 {
            let own = Own::of(10, number, 3);
            (0..own.count).for_each(|random| drawn[own.draw(random) as usize] += 1);
        }
        assert_eq!(vec![1; 10], drawn);
    }

    #[test]
    fn scatter_reaches_all_flows() {
        let mut hits = [0u32; 100];
        (0..10_000).for_each(|number| hits[scatter(number) as usize % 100] += 1);
        assert!(hits.iter().all(|&hits| (50..200).contains(&hits)), "{hits:?}");
    }
}

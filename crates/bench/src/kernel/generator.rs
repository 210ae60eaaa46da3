//! The generator: a separate process in its own network namespace, controlled by lines on its input.
//!
//! | line | answer |
//! | --- | --- |
//! | `open N RATE` | `opened N`, after sending one packet of each of the first N flows |
//! | `established FROM STEP COUNT RATE [BURST]` | none; sends at RATE packets per second (0: at maximum rate), each of a random one of COUNT flows FROM, FROM + STEP and so on; in bursts of BURST, by default 64 |
//! | `new FROM COUNT RATE` | none; sends one packet of each flow from FROM on |
//! | `bytes N` | none; sends frames of N bytes from now on, including the frame check sequence |
//! | `stop` | `sent N`: number of packets that the interface has accepted since the start |
//!
//! With `--answers`, the generator acts as the server: it sends packets of the flows from which it has received packets.
//!
//! | line | answer |
//! | --- | --- |
//! | `learn` | none; forgets known flows and learns from received packets, until the next line |
//! | `known` | `known N`: number of flows whose source is known |
//! | `established FROM STEP COUNT RATE` | none; sends as above to the sources of known flows, or to unused addresses if none is known |

use std::io::BufRead;
use std::net::Ipv4Addr;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use clap::Args;
use sluice_dpdk::workers::{Stop, Worker};
use sluice_dpdk::{Device, Driver, Plan, PortPlan};
use sluice_engine::packet::io::BURST_SIZE;

use super::frame::{End, Ends, Template};
use super::pace::Pace;
use super::peers::Peers;
use super::topology::{INSIDE_MAC, OUTSIDE_MAC};
use super::traffic::Direction;
use crate::process::answer;
use crate::rig::Source;

/// Start parameters of the generator.
#[derive(Args, Clone, Debug)]
pub struct GeneratorArguments {
    /// Interface to send through.
    #[arg(long)]
    interface: String,
    /// Core to run on.
    #[arg(long)]
    core: usize,
    /// Frame size in bytes, including the frame check sequence.
    #[arg(long)]
    bytes: usize,
    /// First network of the inside hosts.
    #[arg(long)]
    inside: Ipv4Addr,
    /// Number of networks of the inside hosts.
    #[arg(long, default_value_t = 1)]
    networks: u32,
    /// Address of the server.
    #[arg(long)]
    server: Ipv4Addr,
    /// Number of terminals per subscriber site, whose frames are tagged.
    #[arg(long, default_value_t = 0)]
    terminals: u32,
    /// Use AF_XDP instead of AF_PACKET.
    #[arg(long)]
    xdp: bool,
    /// Act as the server.
    #[arg(long)]
    answers: bool,
}

/// The flows that one of several generators sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    pub from: u32,
    /// Difference between the numbers of two consecutive flows.
    pub step: u32,
    /// Number of flows.
    pub count: u32,
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

/// A task of the generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Open { flows: u32, rate: u64 },
    Established { own: Own, rate: u64, burst: usize },
    New { from: u32, count: u32, rate: u64 },
    Bytes(usize),
    Learn,
    Known,
    Nothing,
}

impl Task {
    /// Parse a line; `None` if it is invalid.
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |index: usize| words.get(index)?.parse::<u32>().ok();
        Some(match *words.first()? {
            "open" => Self::Open {
                flows: number(1)?,
                rate: number(2)?.into(),
            },
            "established" => Self::Established {
                own: Own {
                    from: number(1)?,
                    step: number(2)?,
                    count: number(3).filter(|&count| count > 0)?,
                },
                rate: number(4)?.into(),
                burst: match words.get(5) {
                    Some(_) => number(5).filter(|&burst| burst > 0)? as usize,
                    None => BURST_SIZE,
                }
                .min(BURST_SIZE),
            },
            "bytes" => Self::Bytes(number(1)? as usize),
            "new" => Self::New {
                from: number(1)?,
                count: number(2)?,
                rate: number(3)?.into(),
            },
            "learn" => Self::Learn,
            "known" => Self::Known,
            "stop" => Self::Nothing,
            _ => return None,
        })
    }
}

/// Run the generator until its input ends.
pub fn run(arguments: &GeneratorArguments) -> Result<(), Box<dyn std::error::Error>> {
    let device: Device = arguments.interface.parse()?;
    let driver = if arguments.xdp { Driver::AfXdp } else { Driver::AfPacket };
    let port = PortPlan {
        driver: Some(driver),
        ..PortPlan::new("traffic", device)
    };
    let plan = Plan::new(vec![port], 1);
    let (eal, source) = Source::alone(&plan, arguments.core)?;
    let source_mac = source
        .devices
        .ports()
        .first()
        .map(|port| port.mac())
        .unwrap_or_default();
    let (direction, destination_mac) = match arguments.answers {
        true => (Direction::Down, OUTSIDE_MAC),
        false => (Direction::Up, INSIDE_MAC),
    };
    let ends = Ends {
        source_mac,
        destination_mac,
        inside: arguments.inside,
        networks: arguments.networks,
        server: arguments.server,
        terminals: arguments.terminals,
    };
    let template = Template::new(&ends, arguments.bytes, direction);
    let (tell, tasks) = channel();
    let worker = Worker::start(eal, "traffic", arguments.core, move |stop| {
        let mut generator = Generator {
            source,
            ends,
            template,
            direction,
            peers: Peers::of(direction),
            sent: 0,
        };
        generator.work(&tasks, &stop);
        generator.source
    })?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let task = Task::parse(&line?).ok_or("no such task")?;
        tell.send(task)?;
    }
    // Dropping the channel wakes the receiving thread, which waits for the next task and ends if no task can follow.
    drop(tell);
    worker.stop().map_err(|_| "the generator's worker panicked")?.close();
    Ok(())
}

struct Generator {
    source: Source,
    ends: Ends,
    template: Template,
    direction: Direction,
    peers: Peers,
    sent: u64,
}

impl Generator {
    fn work(&mut self, tasks: &Receiver<Task>, stop: &Stop) {
        let mut task = Task::Nothing;
        while !stop.is_asked() {
            let next = match task {
                Task::Nothing => tasks.recv().map_err(|_| TryRecvError::Disconnected),
                _ => tasks.try_recv(),
            };
            match next {
                Ok(Task::Nothing) => {
                    answer(format!("sent {}", self.sent));
                    task = Task::Nothing;
                }
                Ok(Task::Known) => {
                    // Packets that have arrived by now are counted.
                    while self.learn() > 0 {}
                    answer(format!("known {}", self.peers.known()));
                }
                Ok(Task::Bytes(bytes)) => self.template = Template::new(&self.ends, bytes, self.direction),
                Ok(other) => {
                    match other {
                        Task::Established { .. } => self.peers.stop_learning(),
                        Task::Learn => {
                            // Packets in the queue belong to the time before this task.
                            while self.learn() > 0 {}
                            self.peers.begin();
                        }
                        _ => {}
                    }
                    task = other;
                }
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {}
            }
            task = self.round(task);
        }
    }

    /// Processes a part of a task, at most several thousand packets; returns the remaining task.
    fn round(&mut self, task: Task) -> Task {
        match task {
            Task::Nothing | Task::Known | Task::Bytes(_) => Task::Nothing,
            Task::Learn => {
                // Sleep if nothing was received, because the server shares its core with the inside generator.
                if self.learn() == 0 {
                    std::thread::sleep(Duration::from_micros(50));
                }
                Task::Learn
            }
            Task::Open { flows, rate } => {
                let mut pace = Pace::new(rate);
                let mut flow = 0;
                while flow < flows {
                    pace.wait();
                    let count = self.send((flows - flow).min(BURST_SIZE as u32) as usize, |index, template, _| {
                        (flow + index, template.source(flow + index))
                    });
                    pace.sent(count);
                    flow += count as u32;
                }
                answer(format!("opened {flows}"));
                Task::Nothing
            }
            Task::Established { own, rate, burst } => {
                let mut pace = Pace::new(rate);
                for _ in 0..64 {
                    pace.wait();
                    let drawn = self.sent as u32;
                    let count = self.send(burst, |index, template, peers| {
                        peers.draw(own, scatter(drawn.wrapping_add(index)), template)
                    });
                    pace.sent(count);
                }
                task
            }
            Task::New { from, count, rate } => {
                let mut pace = Pace::new(rate);
                let (mut from, mut count) = (from, count);
                for _ in 0..64 {
                    pace.wait();
                    let sent = self.send(count.min(BURST_SIZE as u32) as usize, |index, template, _| {
                        (from + index, template.source(from + index))
                    }) as u32;
                    pace.sent(sent as usize);
                    (from, count) = (from + sent, count - sent);
                    if count == 0 {
                        return Task::Nothing;
                    }
                }
                Task::New { from, count, rate }
            }
        }
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

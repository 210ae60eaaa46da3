//! Control of the generators: processes that read commands from their input and reply.

use clap::ValueEnum;

use super::generator::Own;
use super::topology::{GENERATOR, GENERATOR_INTERFACE, SINK, SINK_INTERFACE, Topology};
use crate::netns;
use crate::process::Answering;
use crate::rows::Failure;

/// Flows to which the packets belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flows {
    /// Packets belong to this number of flows, which were opened before.
    Established(u32),
    /// Each packet opens a new flow.
    New,
}

impl Flows {
    pub fn name(self) -> &'static str {
        match self {
            Self::Established(_) => "established",
            Self::New => "new",
        }
    }
}

/// Direction of the measured packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Direction {
    /// Packets from inside.
    Up,
    /// Packets from outside, to flows that were opened from inside.
    Down,
}

/// Core on which forwarded packets are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Receiver {
    /// The traffic's core, selected by RPS.
    Traffic,
    /// The gateway's core: without RPS, veth receives packets on the sender's core.
    Gateway,
}

/// Whether flows belong to subscriber sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Site {
    /// Flows of hosts.
    None,
    /// Flows of terminals, whose frames are tagged inside and have the virtual MAC of their site outside.
    TagsAndMac,
}

impl Site {
    pub fn terminals(self) -> u32 {
        match self {
            Self::None => 0,
            Self::TagsAndMac => 4,
        }
    }
}

/// Rules that the packets match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Hits {
    /// Only the last rule; a linear search compares all rules.
    Last,
    /// All rules equally often; a linear search compares half of them on average.
    Uniform,
}

impl Hits {
    /// Index of the first rule that packets match, and number of such rules.
    pub fn of(self, rules: u32) -> (u32, u32) {
        match self {
            Self::Last => (rules.saturating_sub(1), 1),
            Self::Uniform => (0, rules.max(1)),
        }
    }
}

/// Maximum number of flows that one trial opens.
pub const NEW_FLOWS: u32 = 3_500_000;

/// Number of flows opened before any trial, to check that packets arrive.
pub const OPENED: u32 = 8_000;

/// One or more running generators.
#[derive(Debug)]
pub struct Traffic {
    /// Generators on the inside; empty after all flows are open if the measured packets come from outside.
    inside: Vec<Generator>,
    /// The server, if it sends packets.
    outside: Option<Generator>,
}

/// Parameters for starting generators.
#[derive(Clone, Copy, Debug)]
pub struct Frames {
    pub bytes: usize,
    pub hits: Hits,
    pub rules: u32,
    pub direction: Direction,
    pub site: Site,
    pub xdp: bool,
}

impl Traffic {
    pub fn start(topology: &Topology, frames: &Frames) -> Result<Self, Failure> {
        let start = |core| Generator::start(core, frames, Direction::Up);
        let inside = topology.cores.generators().into_iter().map(start);
        let mut traffic = Self {
            inside: inside.collect::<Result<_, _>>()?,
            outside: None,
        };
        if frames.direction == Direction::Down {
            let mut outside = Generator::start(topology.cores.traffic, frames, Direction::Down)?;
            outside.0.tell("learn")?;
            traffic.outside = Some(outside);
        }
        Ok(traffic)
    }

    /// Sends one packet of each of the first `flows` flows, at `rate` packets per second.
    pub fn open(&mut self, flows: u32, rate: u32) -> Result<(), Failure> {
        let Some(first) = self.inside.first_mut() else {
            return Ok(());
        };
        first.0.ask(&format!("open {flows} {rate}"), "opened").map(drop)
    }

    /// Number of flows whose source endpoint the server has learned; `None` if the server does not send packets.
    pub fn known(&mut self) -> Result<Option<u64>, Failure> {
        let Some(outside) = &mut self.outside else {
            return Ok(None);
        };
        outside.0.ask("known", "known").map(Some)
    }

    /// Starts to send at most `rate` packets per second in total; each generator sends packets of its own flows; 0
    /// means unlimited.
    pub fn begin(&mut self, flows: Flows, rate: u32) -> Result<(), Failure> {
        if self.outside.is_some() {
            // Stop the generators on the inside, because they would take CPU time from the receiver.
            self.inside.clear();
        }
        let senders = self.senders();
        let generators = senders.len() as u32;
        let rate = rate.div_ceil(generators);
        for (number, generator) in (0..).zip(senders) {
            match flows {
                Flows::Established(flows) => {
                    let Own { from, step, count } = Own::of(flows, number, generators);
                    generator.0.tell(&format!("established {from} {step} {count} {rate}"))?;
                }
                Flows::New => {
                    let count = NEW_FLOWS / generators;
                    let from = OPENED + number * count;
                    generator.0.tell(&format!("new {from} {count} {rate}"))?;
                }
            }
        }
        Ok(())
    }

    pub fn stop(&mut self) -> Result<(), Failure> {
        let mut senders = self.senders();
        senders.iter_mut().try_for_each(|generator| generator.0.tell("stop"))?;
        let sent = senders.iter_mut().map(|generator| generator.0.expect("sent"));
        sent.collect::<Result<Vec<_>, _>>().map(drop)
    }

    fn senders(&mut self) -> Vec<&mut Generator> {
        match &mut self.outside {
            Some(outside) => vec![outside],
            None => self.inside.iter_mut().collect(),
        }
    }
}

/// One generator process.
#[derive(Debug)]
pub struct Generator(pub Answering);

impl Generator {
    /// Starts a generator for a direction: in the generator's namespace for packets from inside, or as the server in
    /// the sink's namespace for packets from outside.
    pub fn start(core: usize, frames: &Frames, direction: Direction) -> Result<Self, Failure> {
        let (host, interface) = match direction {
            Direction::Up => (GENERATOR, GENERATOR_INTERFACE),
            Direction::Down => (SINK, SINK_INTERFACE),
        };
        let (first, networks) = frames.hits.of(frames.rules);
        let inside = super::topology::inside_network(first).to_string();
        let server = super::topology::SERVER.to_string();
        let (bytes, networks) = (frames.bytes.to_string(), networks.to_string());
        let terminals = match direction {
            Direction::Up => frames.site.terminals().to_string(),
            Direction::Down => "0".into(),
        };
        let mut command = netns::command(host, core);
        command.arg(std::env::current_exe()?).arg("generate");
        command.args(["--interface", interface, "--core", &core.to_string(), "--bytes", &bytes]);
        command.args(["--inside", &inside, "--networks", &networks, "--server", &server]);
        command.args(["--terminals", &terminals]);
        if frames.xdp {
            command.arg("--xdp");
        }
        if direction == Direction::Down {
            command.arg("--answers");
        }
        Ok(Self(Answering::start(&mut command)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_rule_is_hit_alone_and_uniform_hits_are_of_all() {
        assert_eq!((9_999, 1), Hits::Last.of(10_000));
        assert_eq!((0, 10_000), Hits::Uniform.of(10_000));
        assert_eq!(((0, 1), (0, 1)), (Hits::Last.of(0), Hits::Uniform.of(0)));
    }
}

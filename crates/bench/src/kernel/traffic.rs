//! Control of the generators, which are processes at both ends.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::frame::Ends;
use super::generator::{Own, Settings, Task};
use super::topology::{
    GENERATOR, GENERATOR_INTERFACE, GENERATOR_MAC, INSIDE_MAC, OUTSIDE_MAC, SERVER, SINK, SINK_INTERFACE, SINK_MAC,
    Topology, inside_network,
};
use crate::process::Peer;
use crate::role::Role;
use crate::rows::Failure;

/// Flows to which the packets belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Flows {
    /// Packets belong to flows that were opened before.
    Established,
    /// Each packet opens a new flow.
    New,
}

/// Direction of the measured packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Direction {
    /// Packets from inside.
    Up,
    /// Packets from outside, to flows that were opened from inside.
    Down,
}

/// Core on which forwarded packets are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Receiver {
    /// The traffic's core, selected by RPS.
    Traffic,
    /// The gateway's core: without RPS, veth receives packets on the sender's core.
    Gateway,
}

/// Whether flows belong to subscriber sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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

/// Number of established flows, which are opened before any trial to check that packets arrive.
pub const OPENED: u32 = 8_000;

/// Generators at both ends.
#[derive(Debug)]
pub struct Traffic {
    /// Generators on the inside, each with flows of its own.
    pub inside: Vec<Peer>,
    /// The server, if it sends packets.
    pub outside: Option<Peer>,
}

/// Parameters of the frames.
#[derive(Clone, Copy, Debug)]
pub struct Frames {
    pub bytes: usize,
    pub hits: Hits,
    pub rules: u32,
    pub site: Site,
    /// Whether generators send by AF_XDP.
    pub xdp: bool,
}

impl Traffic {
    /// Starts a generator on each of the topology's generator cores, and the server if it is to send packets.
    pub fn start(topology: &Topology, frames: &Frames, answers: bool) -> Result<Self, Failure> {
        let cores = topology.cores.generators().into_iter();
        let inside = cores.map(|core| generator(core, frames, Direction::Up));
        Ok(Self {
            inside: inside.collect::<Result<_, _>>()?,
            outside: match answers {
                true => Some(generator(topology.cores.traffic, frames, Direction::Down)?),
                false => None,
            },
        })
    }

    /// Sends a packet of every flow to be established, until nine of ten packets have arrived as expected; if the
    /// machine is busy, packets are sent more slowly, at the next of these rates.
    pub fn open(&mut self, topology: &Topology, rates: &[u64], translates: bool) -> Result<(), Failure> {
        let (mut arrived, mut known) = (topology.arrived()?, None);
        let enough = u64::from(OPENED) * 9 / 10;
        for &rate in rates {
            if let Some(server) = &mut self.outside {
                server.tell(&Task::Learn)?;
                server.ask::<u64>(&Task::Known)?;
            }
            let before = topology.arrived()?.right(Direction::Up, translates);
            if let Some(first) = self.inside.first_mut() {
                first.ask::<()>(&Task::Open { flows: OPENED, rate })?;
            }
            arrived = topology.drained()?;
            known = match &mut self.outside {
                Some(server) => Some(server.ask::<u64>(&Task::Known)?),
                None => None,
            };
            if arrived.right(Direction::Up, translates) - before >= enough && known.is_none_or(|known| known >= enough)
            {
                return match &mut self.outside {
                    Some(server) => server.ask::<u64>(&Task::Stop).map(drop),
                    None => Ok(()),
                };
            }
        }
        let known = known.map_or(String::new(), |known| format!("; the server's end knows {known}"));
        Err(format!("of {OPENED} packets, each of another flow, {arrived:?} arrived{known}").into())
    }

    /// Starts to send at most `rate` packets per second in total, from outside if the server sends packets; 0 means
    /// unlimited.
    pub fn begin(&mut self, flows: Flows, rate: u64) -> Result<(), Failure> {
        if self.outside.is_some() {
            // Stop the generators on the inside, because they would take CPU time from the receiver.
            self.inside.clear();
        }
        let senders = self.senders();
        let generators = senders.len() as u32;
        let rate = rate.div_ceil(generators.into());
        for (number, generator) in (0..).zip(senders) {
            generator.tell(&match flows {
                Flows::Established => Task::established(Own::of(OPENED, number, generators), rate),
                Flows::New => {
                    let count = NEW_FLOWS / generators;
                    let from = OPENED + number * count;
                    Task::New {
                        flows: from..from + count,
                        rate,
                    }
                }
            })?;
        }
        Ok(())
    }

    pub fn stop(&mut self) -> Result<(), Failure> {
        let mut senders = self.senders();
        senders
            .iter_mut()
            .try_for_each(|generator| generator.tell(&Task::Stop))?;
        senders
            .iter_mut()
            .try_for_each(|generator| generator.hear::<u64>().map(drop))
    }

    fn senders(&mut self) -> Vec<&mut Peer> {
        match &mut self.outside {
            Some(outside) => vec![outside],
            None => self.inside.iter_mut().collect(),
        }
    }
}

/// Starts a generator for a direction: in the generator's namespace for packets from inside, or as the server in the
/// sink's namespace for packets from outside.
fn generator(core: usize, frames: &Frames, direction: Direction) -> Result<Peer, Failure> {
    let (host, interface, [source_mac, destination_mac], terminals) = match direction {
        Direction::Up => {
            let terminals = frames.site.terminals();
            (GENERATOR, GENERATOR_INTERFACE, [GENERATOR_MAC, INSIDE_MAC], terminals)
        }
        Direction::Down => (SINK, SINK_INTERFACE, [SINK_MAC, OUTSIDE_MAC], 0),
    };
    let (first, networks) = frames.hits.of(frames.rules);
    let settings = Settings {
        interface: interface.into(),
        core,
        bytes: frames.bytes,
        direction,
        ends: Ends {
            source_mac,
            destination_mac,
            inside: inside_network(first),
            networks,
            server: SERVER,
            terminals,
        },
        xdp: frames.xdp,
    };
    Peer::start(host, core, &Role::Generate(settings))
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

//! Scenarios (traffic, devices and work) and the packets that a source sends. Each packet belongs to a randomly drawn
//! flow, with some flows drawn more often than others, or to a new flow.

use std::sync::Arc;

use arrayvec::ArrayVec;
use sluice_engine::placement::Load;
use sluice_filter::{Filters, MatcherKind};
use sluice_wire::tcp::flag;
use sluice_wire::{Checksums, Packet};

use super::frames::{CHECK_SEQUENCE, Filled, Filling, Frame, Hosts, Random, SEED, SHORTEST, Written, data};
use super::lanes::{Done, Traffic};
use super::measure::Direction;
use super::policy::{Job, SHARDS, Style, filter_rules};
use super::reference::{Publics, ports};
use super::sites::{Homes, dressed};
use super::slow::Pace;
use super::steering::Steering;
use super::{Samples, Source};
use crate::rows::Failure;

/// Number of workers whose rules are counted separately.
const WORKERS: usize = 4;
/// Number of flows.
pub const FLOWS: u32 = 8_000;
/// Number of additional flows, which are opened one after the other.
pub const FRESH: u32 = 65_536;

/// Distribution of packets over flows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Skew {
    Even,
    /// One flow has this share of all packets.
    Flow(f64),
    /// The flows of one shard have this share of all packets in total.
    Shard(f64),
}

/// Which packets open sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opens {
    None,
    /// One in this number of packets from inside opens a session.
    OneIn(u32),
    /// Every packet from outside opens a session: a new remote endpoint sends to a mapped port.
    FromOutside,
}

/// Frame sizes in bytes without the frame check sequence, each with its share of packets.
pub type Sizes = &'static [(usize, u32)];

const SHORT: Sizes = &[(SHORTEST, 1)];
/// Frame sizes of the customer traffic of a French carrier, by classes of up to 64, 128, 576 and 1,280 bytes, and
/// above.
pub const SFR: Sizes = &[(60, 20), (90, 28), (350, 16), (900, 9), (1514, 27)];
/// Number of packets from inside per session in the carrier's traffic.
const SFR_SESSION: u32 = 26;

/// Frame lengths, each repeated in proportion to its frequency.
pub fn lengths(sizes: Sizes) -> Vec<usize> {
    let each = sizes.iter().map(|&(length, count)| vec![length; count as usize]);
    each.collect::<Vec<_>>().concat()
}

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub job: Job,
    pub style: Style,
    pub direction: Direction,
    pub sizes: Sizes,
    pub checksums: Checksums,
    pub skew: Skew,
    pub opens: Opens,
    pub pace: Pace,
    /// Maximum number of queues per device.
    pub queues: u16,
    /// Number of filter rules that each packet is compared with by linear search.
    pub filter: usize,
    /// Subscriber sites of the flows, with one terminal per flow.
    pub homes: Option<Homes>,
    /// Steering by a network card; without it, each packet is delivered to the owner of its session. A source with
    /// steering sends without regard to earlier packets.
    pub steering: Option<Steering>,
    /// Whether workers have the express lane. Without it, the graph processes every packet.
    pub express: bool,
    /// Capacity of the session table, and number of subscribers.
    pub capacity: [u32; 2],
}

impl Scenario {
    /// A scenario of established flows with the shortest frames from both sides, and devices with a queue for every
    /// worker.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            job: Job::Translate,
            style: Style::SESSIONS,
            direction: Direction::Both,
            sizes: SHORT,
            checksums: Checksums::Vouched,
            skew: Skew::Even,
            opens: Opens::None,
            pace: Pace {
                receive: 0,
                transmit: 0,
            },
            queues: u16::MAX,
            filter: 0,
            homes: None,
            steering: None,
            express: true,
            capacity: [6 * FLOWS; 2],
        }
    }

    /// A scenario of established flows whose packets are steered by a network card.
    pub const fn steered(steering: Steering, style: Style) -> Self {
        Self {
            style,
            steering: Some(steering),
            capacity: [4 * FLOWS, FLOWS],
            ..Self::new("cores")
        }
    }

    /// A scenario of established flows with these frame sizes, in one direction or both, with or without sites.
    pub const fn of_frames(sizes: Sizes, direction: Direction, style: Style, homes: Option<Homes>) -> Self {
        Self {
            sizes,
            style,
            homes,
            ..Self::new("frames").from(direction)
        }
    }

    pub const fn from(self, direction: Direction) -> Self {
        Self { direction, ..self }
    }

    pub const fn one_queue(self) -> Self {
        Self { queues: 1, ..self }
    }

    pub const fn skewed(self, skew: Skew) -> Self {
        Self { skew, ..self }
    }

    pub const fn paced(self, receive: u64, transmit: u64) -> Self {
        let pace = Pace { receive, transmit };
        Self { pace, ..self }
    }

    pub const fn without_express(self) -> Self {
        Self { express: false, ..self }
    }

    pub const fn with_frames_of(self, other: &Self) -> Self {
        let (sizes, checksums) = (other.sizes, other.checksums);
        Self {
            sizes,
            checksums,
            ..self
        }
    }

    pub const fn opening(self, opens: Opens) -> Self {
        let style = if matches!(opens, Opens::FromOutside) {
            Style::MAPPINGS
        } else {
            self.style
        };
        Self { opens, style, ..self }
    }

    /// This scenario with stateless forwarding and this number of filter rules.
    pub const fn forwarding(self, filter: usize) -> Self {
        let job = Job::Forward;
        Self { job, filter, ..self }.from(Direction::Up)
    }

    pub const fn mixed(self) -> Self {
        Self { sizes: SFR, ..self }.opening(Opens::OneIn(SFR_SESSION))
    }

    pub const fn computed(self) -> Self {
        let checksums = Checksums::Unverified;
        Self {
            sizes: &[(1514, 1)],
            checksums,
            ..self
        }
    }

    pub fn hosts(&self) -> Hosts {
        self.homes.map_or(Hosts::Sixteen, Homes::hosts)
    }

    /// Translation style: timeouts are short if the scenario opens sessions.
    pub fn style(&self) -> Style {
        Style {
            short: self.opens != Opens::None,
            ..self.style
        }
    }

    /// The load of the scenario as input for the planner.
    pub fn load(&self) -> Load {
        let (even, queues) = (Load::even(SHARDS as u16), self.queues);
        match (self.job, self.skew) {
            // If packets have no session and there is one queue, each packet stays with the worker that receives it.
            (Job::Forward, _) if queues == 1 => Load {
                queues,
                ..Load::even(1)
            },
            (_, Skew::Even) => Load { queues, ..even },
            (_, Skew::Flow(busiest) | Skew::Shard(busiest)) => Load {
                queues,
                busiest,
                ..even
            },
        }
    }

    /// Name in rows, which states whether packets belong to established flows, open flows, or have no session.
    pub fn flows(&self) -> &'static str {
        match (self.job, self.opens) {
            (Job::Forward, _) => "none",
            (_, Opens::None) => "established",
            (_, Opens::OneIn(1) | Opens::FromOutside) => "new",
            (_, Opens::OneIn(_)) => "mix",
        }
    }

    /// The filter that is applied to every packet; none of its rules matches.
    pub fn filters(&self) -> Result<Option<Arc<Filters>>, Failure> {
        match self.filter {
            0 => Ok(None),
            rules => Ok(Some(
                filter_rules(rules, MatcherKind::Linear, false, WORKERS)?
                    .filters()
                    .clone(),
            )),
        }
    }
}

/// Random generator of one source's packets.
#[derive(Clone, Debug)]
pub struct Draw {
    direction: Direction,
    checksums: Checksums,
    opens: Opens,
    /// Flows by the side from which their packets come.
    pub flows: [Vec<u32>; 2],
    /// Flows that have more packets than others.
    pub hot: Vec<u32>,
    /// Share of packets that belong to the hot flows, in units of 2^-32.
    pub share: u64,
    /// Flows that this source opens one after the other.
    pub fresh: Vec<u32>,
    publics: Arc<Publics>,
    random: Random,
    /// Number of drawn packets that may open a session.
    drawn: u32,
    /// Contents of frames by length, each repeated in proportion to its frequency.
    fillings: Vec<Filling>,
    homes: Option<Homes>,
}

impl Draw {
    /// Creates a generator for a lane, without flows.
    pub fn new(scenario: &Scenario, own: usize, publics: Arc<Publics>) -> Self {
        let filling = |length: usize| Filling::new(length + CHECK_SEQUENCE);
        Self {
            direction: scenario.direction,
            checksums: scenario.checksums,
            opens: scenario.opens,
            flows: Default::default(),
            hot: Vec::new(),
            share: 0,
            fresh: Vec::new(),
            publics,
            random: Random(SEED ^ (own as u64) << 40),
            drawn: 0,
            fillings: lengths(scenario.sizes).into_iter().map(filling).collect(),
            homes: scenario.homes,
        }
    }

    /// Ports at which packets of this source arrive, each with its number of packets per burst.
    pub fn ports(&self) -> ArrayVec<(u16, usize), 2> {
        let comes = |port: u16| match self.opens {
            Opens::OneIn(1) => !self.fresh.is_empty(),
            _ => !self.flows[usize::from(port)].is_empty() || !self.hot.is_empty(),
        };
        let ports = ports(self.direction).iter().copied();
        ports.filter(|&(port, _)| comes(port)).collect()
    }

    /// Writes the next packet that arrives at a port.
    #[inline(always)]
    pub fn write(&mut self, port: u16, packet: &mut Packet<'_>) {
        let filling = match self.fillings.len() {
            1 => 0,
            count => self.random.below(count as u64) as usize,
        };
        let written = self.next(port);
        let frame = dressed(self.homes, written, port == 0, |written| {
            Filled::new(written, &self.fillings[filling])
        });
        packet.set_len(frame.length());
        packet.set_checksums(self.checksums);
        frame.write(packet.bytes_mut());
    }

    /// Returns the next packet that arrives at a port.
    #[inline(always)]
    fn next(&mut self, port: u16) -> Written {
        if let Opens::OneIn(many) = self.opens
            && port == 0
        {
            self.drawn = self.drawn.wrapping_add(1);
            if self.drawn.is_multiple_of(many) {
                let number = self.fresh[(self.drawn / many) as usize % self.fresh.len()];
                return data(Hosts::Sixteen, number, None).first();
            }
        }
        let flows = &self.flows[usize::from(port)];
        let is_hot = self.share > 0 && u64::from(self.random.below(1 << 32)) < self.share || flows.is_empty();
        let number = *self.random.of(if is_hot { &self.hot } else { flows });
        let public = (port == 1).then(|| self.publics[number as usize]);
        let mut written = data(self.homes.map_or(Hosts::Sixteen, Homes::hosts), number, public);
        if self.opens == Opens::FromOutside {
            // Use a remote endpoint to which no flow was opened.
            self.drawn = self.drawn.wrapping_add(1);
            let end = self.drawn % (FRESH * 4);
            written.source = (0x0909_0000 + (end >> 8), 1024 + (end & 0xff) as u16);
            written = written.with(flag::SYN, (1, 0));
        }
        written
    }
}

/// Source and sink of one core.
#[derive(Debug, Default)]
pub struct Sender {
    /// Generator of the packets sent to this core, if the core receives, and the ports at which they arrive.
    draw: Option<(Draw, ArrayVec<(u16, usize), 2>)>,
    pub samples: Samples,
}

impl Sender {
    /// Makes the source send packets of a generator, or none.
    pub fn draw(&mut self, draw: Option<Draw>) {
        self.draw = draw.map(|draw| {
            let ports = draw.ports();
            (draw, ports)
        });
    }
}

impl Traffic for Sender {
    #[inline(always)]
    fn send(&mut self, far: &mut Source, has_room: impl Fn() -> bool, _now: u64, _done: &mut Done) -> usize {
        match &mut self.draw {
            Some((draw, ports)) if has_room() => {
                let written = far.send(ports, |port, packet| {
                    draw.write(port, packet);
                    true
                });
                written.0
            }
            _ => 0,
        }
    }

    #[inline(always)]
    fn receive(&mut self, far: &mut Source, port: u16, _now: u64) -> usize {
        self.samples.drain(far, port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_without_sessions_are_not_spread_by_shard_behind_one_queue() {
        let load = Scenario::new("x").forwarding(1).one_queue().load();
        assert_eq!((vec![1.0, 0.0], 1), (load.shares(2), load.queues));
        assert_eq!(vec![0.5; 2], Scenario::new("x").forwarding(1).load().shares(2));
    }
}

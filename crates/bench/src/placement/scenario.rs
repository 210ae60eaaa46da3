//! What is asked about: traffic, devices and work.

use std::sync::Arc;

use sluice_engine::placement::Load;
use sluice_filter::{Action, Counters, Filters, Kind, RuleList, Settings, Verdict, Written};
use sluice_wire::Checksums;

use super::slow::Pace;
use super::traffic::{LONG, Opens, SFR, SFR_SESSION, SHORT, Sizes, Skew, Traffic};
use crate::filter::sets::Set;
use crate::homes::Homes;
use crate::nat_path::Direction;
use crate::nat_path::flows::Hosts;
use crate::nat_path::rig::{Job, SHARDS};
use crate::nat_path::rules::Style;

type Failure = Box<dyn std::error::Error>;

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name in rows.
    pub name: &'static str,
    /// What the gateway does.
    pub job: Job,
    /// How it translates.
    pub style: Style,
    /// What comes.
    pub traffic: Traffic,
    /// How fast devices are.
    pub pace: Pace,
    /// Queues of each device at most.
    pub queues: u16,
    /// Rules that each packet is compared with, one after the other.
    pub filter: usize,
    /// Subscribers' sites that the flows are of: as many terminals as flows.
    pub homes: Option<Homes>,
}

impl Scenario {
    /// Established flows of short frames from both sides, a queue for every worker.
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            job: Job::Translate,
            style: Style::SESSIONS,
            traffic: Traffic {
                direction: Direction::Both,
                sizes: SHORT,
                checksums: Checksums::Vouched,
                skew: Skew::Even,
                opens: Opens::None,
            },
            pace: Pace {
                receive: 0,
                transmit: 0,
            },
            queues: u16::MAX,
            filter: 0,
            homes: None,
        }
    }

    /// The inside ends of its flows.
    pub fn hosts(&self) -> Hosts {
        self.homes.map_or(Hosts::Sixteen, Homes::hosts)
    }

    /// Established flows of frames of so many bytes without check sequence, from one side or both, of sites or not.
    pub const fn of_frames(length: usize, direction: Direction, style: Style, homes: Option<Homes>) -> Self {
        let mut scenario = Self::new("frames").from(direction);
        scenario.traffic.sizes = Sizes::One(length);
        scenario.style = style;
        scenario.homes = homes;
        scenario
    }

    const fn from(mut self, direction: Direction) -> Self {
        self.traffic.direction = direction;
        self
    }

    const fn one_queue(mut self) -> Self {
        self.queues = 1;
        self
    }

    const fn skewed(mut self, skew: Skew) -> Self {
        self.traffic.skew = skew;
        self
    }

    /// With slower devices.
    pub const fn paced(mut self, receive: u64, transmit: u64) -> Self {
        self.pace = Pace { receive, transmit };
        self
    }

    /// With the frames of another.
    pub const fn with_frames_of(mut self, other: &Self) -> Self {
        self.traffic.sizes = other.traffic.sizes;
        self.traffic.checksums = other.traffic.checksums;
        self
    }

    const fn opening(mut self, opens: Opens) -> Self {
        self.traffic.opens = opens;
        if matches!(opens, Opens::FromOutside) {
            self.style = Style::MAPPINGS;
        }
        self
    }

    /// Each packet for itself, asked about by so many rules.
    const fn forwarding(mut self, rules: usize) -> Self {
        self.job = Job::Forward;
        self.filter = rules;
        self.from(Direction::Up)
    }

    const fn mixed(mut self) -> Self {
        self.traffic.sizes = SFR;
        self.opening(Opens::OneIn(SFR_SESSION))
    }

    const fn computed(mut self) -> Self {
        self.traffic.sizes = LONG;
        self.traffic.checksums = Checksums::Unverified;
        self
    }

    /// How the work can spread.
    pub fn load(&self) -> Load {
        let even = Load::even(SHARDS as u16);
        let load = Load {
            queues: self.queues,
            busiest: self.traffic.skew.busiest().unwrap_or(even.busiest),
            ..even
        };
        match self.job {
            // A packet without a session stays with whoever receives it.
            Job::Forward if self.queues == 1 => Load {
                queues: 1,
                ..Load::even(1)
            },
            _ => load,
        }
    }

    /// Whether packets are of established flows, open one, or have none.
    pub fn flows(&self) -> &'static str {
        match (self.job, self.traffic.opens) {
            (Job::Forward, _) => "none",
            (_, Opens::None) => "established",
            (_, Opens::OneIn(1) | Opens::FromOutside) => "new",
            (_, Opens::OneIn(_)) => "mix",
        }
    }

    /// The filter that is asked about every packet; none of its rules matches.
    pub fn filters(&self) -> Result<Option<Arc<Filters>>, Failure> {
        if self.filter == 0 {
            return Ok(None);
        }
        let settings = Settings {
            kind: Kind::Linear,
            default: Verdict::Accept,
            sessions: false,
            workers: super::WORKERS,
        };
        let set = Set::of_paper(self.filter).rules;
        let counters = Counters::new(set.len());
        let rules = set.into_iter().map(|rule| {
            let written = Written {
                action: Action::Decide(Verdict::Drop),
                four: vec![rule],
                six: Vec::new(),
                applications: Vec::new(),
                conditions: Default::default(),
            };
            (written, ())
        });
        let list: RuleList<()> = RuleList::new(rules, settings, counters)?;
        Ok(Some(list.filters().clone()))
    }
}

/// What hand-overs are measured with.
pub const HAND_OVER: Scenario = Scenario::new("hand-over");

/// The scenarios of established and new flows from either side, which P0's pairings are predicted from.
pub const PLAIN: [&str; 4] = ["established up", "established down", "new up", "new down"];

/// All of them.
pub const ALL: [Scenario; 20] = [
    Scenario::new("established up").from(Direction::Up),
    Scenario::new("established down").from(Direction::Down),
    Scenario::new("new up").from(Direction::Up).opening(Opens::OneIn(1)),
    Scenario::new("new down")
        .from(Direction::Down)
        .opening(Opens::FromOutside),
    Scenario::new("carrier mix").mixed(),
    Scenario::new("carrier mix, one queue").mixed().one_queue(),
    Scenario::new("one queue").one_queue(),
    Scenario::new("new up, one queue")
        .from(Direction::Up)
        .opening(Opens::OneIn(1))
        .one_queue(),
    Scenario::new("forwarding").forwarding(0),
    Scenario::new("forwarding, one queue").forwarding(0).one_queue(),
    Scenario::new("slow filter").forwarding(300),
    Scenario::new("slow filter, one queue").forwarding(50).one_queue(),
    Scenario::new("elephant of 90 %").skewed(Skew::Flow(0.9)),
    Scenario::new("elephant alone").skewed(Skew::Flow(1.0)),
    Scenario::new("skewed shards").skewed(Skew::Shard(0.4)),
    Scenario::new("slow transmit").paced(0, 200),
    Scenario::new("slow transmit, one queue").paced(0, 200).one_queue(),
    Scenario::new("slow receive, one queue").paced(200, 0).one_queue(),
    Scenario::new("checksums of 1518 bytes").computed(),
    Scenario::new("checksums of 1518 bytes, one queue")
        .computed()
        .one_queue(),
];

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

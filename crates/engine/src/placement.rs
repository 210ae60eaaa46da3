//! Placement of packet processing on workers, and prediction of the packet rate of a placement. Both cover
//! run-to-completion and pipelines.
//!
//! A packet passes through four [`Part`]s. A [`Placement`] lists the workers of each part. If adjacent parts have the
//! same workers, each worker runs both parts to completion; otherwise packets are handed over. [`predict`] computes the
//! rate of a placement from measured [`Costs`], [`candidates()`] lists the placements to compare, and [`choose`]
//! selects one.

mod candidates;
mod choice;
mod prediction;
mod topology;

pub use candidates::{assisted, candidates, order};
pub use choice::{RatedPlacement, choose, rank};
pub use prediction::{Item, Prediction, SIBLINGS, WorkerLoad, predict};
pub use topology::{DeviceSite, Distance, Site, Topology};

use std::fmt;

use crate::packet::io::WorkerIndex;

/// A worker, identified by the core that it is pinned to.
pub type Core = u16;

/// A part of packet processing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum Part {
    /// Receive frames from devices. The devices' queues distribute the frames.
    Receive,
    /// Parse and validate headers. Any worker with the parse part can parse any packet.
    Parse,
    /// All processing from session lookup to the finished packet, including timers. The session part is distributed by
    /// shard.
    Session,
    /// Transmit frames to devices. Any worker with a transmit queue can transmit.
    Transmit,
}

impl Part {
    /// All parts, in the order of processing.
    pub const ALL: [Part; 4] = [Self::Receive, Self::Parse, Self::Session, Self::Transmit];

    /// Name of the part in the configuration and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Parse => "parse",
            Self::Session => "session",
            Self::Transmit => "transmit",
        }
    }
}

/// Assignment of workers to parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    workers: [Vec<Core>; 4],
    assists: bool,
}

/// Adjacent parts that have the same workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreGroup<'p> {
    /// The parts of the group, in order.
    pub parts: Vec<Part>,
    /// The workers of the group, in order.
    pub workers: &'p [Core],
}

impl Placement {
    /// Creates a placement from the workers of each part, in the order of [`Part::ALL`]. `None` if a part has no worker.
    pub fn new(mut workers: [Vec<Core>; 4]) -> Option<Self> {
        for of_part in &mut workers {
            of_part.sort_unstable();
            of_part.dedup();
        }
        let complete = workers.iter().all(|of_part| !of_part.is_empty());
        complete.then_some(Self {
            workers,
            assists: false,
        })
    }

    /// Returns this placement with assistance: workers that receive and parse take over sessions from overloaded
    /// session workers. `None` if a worker both receives and processes sessions, or if workers other than these two
    /// kinds transmit.
    pub fn with_assist(&self) -> Option<Self> {
        let [receive, parse, session, transmit] = &self.workers;
        let are_split = receive == parse && session.iter().all(|core| !receive.contains(core));
        let splits = are_split && (transmit == receive || transmit == session);
        splits.then(|| Self {
            assists: true,
            ..self.clone()
        })
    }

    /// Whether workers that receive take over sessions from overloaded session workers.
    pub fn assists(&self) -> bool {
        self.assists
    }

    /// Creates the placement in which every worker has all parts. `None` if `workers` is empty.
    pub fn run_to_completion(workers: &[Core]) -> Option<Self> {
        Self::new([(); 4].map(|()| workers.to_vec()))
    }

    /// The workers of a part, in order.
    pub fn of(&self, part: Part) -> &[Core] {
        &self.workers[part as usize]
    }

    /// All workers of the placement, in order.
    pub fn workers(&self) -> Vec<Core> {
        let mut all = self.workers.concat();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The worker numbers of each part, in the order of [`Part::ALL`]. Worker `k` runs on `cores[k]`. `None` if a core
    /// of the placement has no worker.
    pub fn numbered(&self, cores: &[Core]) -> Option<[Vec<WorkerIndex>; 4]> {
        let number = |core: &Core| {
            cores
                .iter()
                .position(|other| other == core)
                .map(|place| place as WorkerIndex)
        };
        let mut numbers: [Vec<WorkerIndex>; 4] = Default::default();
        for (numbers, of_part) in numbers.iter_mut().zip(&self.workers) {
            *numbers = of_part.iter().map(number).collect::<Option<_>>()?;
            numbers.sort_unstable();
        }
        Some(numbers)
    }

    /// Whether packets are regularly handed from one worker to another.
    pub fn is_pipeline(&self) -> bool {
        self.workers.iter().any(|of_part| *of_part != self.workers[0])
    }

    /// The stages, which are adjacent parts with the same workers.
    pub fn stages(&self) -> Vec<CoreGroup<'_>> {
        let mut stages: Vec<CoreGroup<'_>> = Vec::new();
        for part in Part::ALL {
            match stages.last_mut() {
                Some(last) if last.workers == self.of(part) => last.parts.push(part),
                _ => stages.push(CoreGroup {
                    parts: vec![part],
                    workers: self.of(part),
                }),
            }
        }
        stages
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_pipeline() {
            return write!(f, "run-to-completion on {}", list(self.of(Part::Receive)));
        }
        for (number, stage) in self.stages().iter().enumerate() {
            let parts: Vec<_> = stage.parts.iter().map(|part| part.name()).collect();
            let between = if number == 0 { "" } else { " | " };
            write!(f, "{between}{} on {}", parts.join("+"), list(stage.workers))?;
        }
        if self.assists {
            write!(f, ", with assist")?;
        }
        Ok(())
    }
}

/// Formats sorted numbers. Three or more consecutive numbers are written as a range: `0-3,8`.
pub fn list(numbers: &[Core]) -> String {
    let mut runs: Vec<(Core, Core)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let text = runs.iter().map(|&(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    });
    text.collect::<Vec<_>>().join(",")
}

/// Cycles for handing a packet to another worker: for the sending worker, and for the receiving worker.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HandOver {
    /// Cycles of the worker that hands over the packet.
    pub out: f64,
    /// Cycles of the worker that takes the packet.
    pub take: f64,
}

/// Costs of packet processing, in cycles per packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// Cost of each part, in the order of [`Part::ALL`], if the graph processes every packet.
    pub parts: [f64; 4],
    /// Cost of each part for packets that one worker parses, translates and transmits. The express lane processes most of
    /// these packets. `None` if this cost equals [`parts`](Self::parts).
    pub undivided: Option<[f64; 4]>,
    /// Costs of a hand-over for each distance between the two workers, in the order of [`Distance::ALL`].
    pub hand_overs: [HandOver; 4],
    /// Additional costs of a hand-over, for each part with which the receiver continues, in the order of [`Part::ALL`].
    /// Before `parse`, the sender hashes the addresses. Before `session`, the sender determines the shard. The receiver
    /// may have to read the headers again.
    pub next: [HandOver; 4],
    /// Cost of receiving into a buffer that another worker used last, for each distance to that worker, in the order of
    /// [`Distance::ALL`].
    pub back: [f64; 4],
}

impl Costs {
    /// Cost of a part.
    pub fn of(&self, part: Part) -> f64 {
        self.parts[part as usize]
    }

    /// Cost of all parts for a packet that never changes the worker.
    pub fn total(&self) -> f64 {
        self.undivided.unwrap_or(self.parts).iter().sum()
    }

    /// Minimum cost of a packet, over all placements.
    pub fn min_total(&self) -> f64 {
        self.total().min(self.parts.iter().sum())
    }
}

/// Properties of traffic and devices that limit the distribution of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Number of shards of the session table.
    pub shards: u16,
    /// Fraction of the packets that belong to the busiest shard: 1/shards for evenly distributed traffic, near 1 for an elephant
    /// flow.
    pub busiest: f64,
    /// Maximum number of receive queues, and of transmit queues, of each device.
    pub queues: u16,
    /// Required packets per second, if known.
    pub offered: Option<f64>,
}

impl Load {
    /// Evenly distributed traffic, on devices with a queue for every worker.
    pub fn even(shards: u16) -> Self {
        Self {
            shards: shards.max(1),
            busiest: 1.0 / f64::from(shards.max(1)),
            queues: u16::MAX,
            offered: None,
        }
    }

    /// Fraction of the packets for each worker, if shards are assigned to workers round-robin. The first worker has the busiest
    /// shard.
    pub fn shares(&self, workers: usize) -> Vec<f64> {
        let (shards, workers) = (usize::from(self.shards.max(1)), workers.max(1));
        let busiest = self.busiest.clamp(1.0 / shards as f64, 1.0);
        let other = (1.0 - busiest) / (shards - 1).max(1) as f64;
        let share = |worker| {
            let owned = (worker..shards).step_by(workers).count() as f64;
            match worker {
                0 => busiest + (owned - 1.0) * other,
                _ => owned * other,
            }
        };
        (0..workers).map(share).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placement_as_text_names_stages_and_cores() {
        let all = Placement::run_to_completion(&[3, 1, 2]).unwrap();
        assert_eq!("run-to-completion on 1-3", all.to_string());
        let pipeline = Placement::new([vec![0], vec![0], vec![1, 2], vec![3]]).unwrap();
        assert_eq!(
            "receive+parse on 0 | session on 1,2 | transmit on 3",
            pipeline.to_string()
        );
        assert!(pipeline.is_pipeline() && !all.is_pipeline());
        assert_eq!(vec![0, 1, 2, 3], pipeline.workers());
    }

    #[test]
    fn placement_with_a_part_that_nobody_does_is_none() {
        assert_eq!(None, Placement::new([vec![0], vec![], vec![1], vec![1]]));
        assert_eq!(None, Placement::run_to_completion(&[]));
    }

    #[test]
    fn workers_numbered_are_places_among_the_cores() {
        let pipeline = Placement::new([vec![4], vec![4], vec![2, 7], vec![7]]).unwrap();
        let numbers = pipeline.numbered(&[7, 4, 2]).unwrap();
        assert_eq!([vec![1], vec![1], vec![0, 2], vec![0]], numbers);
        assert_eq!(None, pipeline.numbered(&[4, 2]));
    }

    #[test]
    fn list_of_numbers_has_ranges() {
        assert_eq!("", list(&[]));
        assert_eq!("0-3,5,6,9", list(&[0, 1, 2, 3, 5, 6, 9]));
    }

    #[test]
    fn shares_follow_owned_shards_and_add_up_to_one() {
        assert_eq!(vec![0.25; 4], Load::even(16).shares(4));
        assert_eq!(vec![6.0 / 16.0, 5.0 / 16.0, 5.0 / 16.0], Load::even(16).shares(3));
        let elephant = Load {
            busiest: 0.7,
            ..Load::even(4)
        };
        let shares = elephant.shares(2);
        assert!(
            (shares[0] - 0.8).abs() < 1e-9 && (shares[1] - 0.2).abs() < 1e-9,
            "{shares:?}"
        );
        assert_eq!(vec![1.0, 0.0], Load::even(1).shares(2));
    }
}

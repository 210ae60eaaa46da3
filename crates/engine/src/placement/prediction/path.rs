//! The cycles along the path of packets, added up for each worker.

use crate::placement::{Core, Costs, Part, Topology};

use super::WorkerLoad;

/// Factor by which the cycles for receiving and transmitting increase if core and device belong to different memory
/// nodes.
const REMOTE: f64 = 1.3;

/// Adds up the cycles of workers along the path of packets.
pub(super) struct PathCost<'a> {
    pub(super) costs: &'a Costs,
    pub(super) topology: &'a Topology,
    pub(super) loads: Vec<WorkerLoad>,
}

/// The packets that a worker processes: core of the worker, and fraction of all packets.
pub(super) type At = (Core, f64);

impl PathCost<'_> {
    fn load(&mut self, core: Core) -> Option<&mut WorkerLoad> {
        let place = self.loads.binary_search_by_key(&core, |load| load.core).ok()?;
        self.loads.get_mut(place)
    }

    /// Adds the cycles of a part to the load of each worker in `at`, weighted by the fraction of the packets that the
    /// worker processes.
    pub(super) fn work(&mut self, part: Part, at: &[At]) {
        for &at in at {
            self.add(part, self.costs.of(part), at);
        }
    }

    fn add(&mut self, part: Part, cycles: f64, (core, share): At) {
        let mut cycles = cycles * share;
        if matches!(part, Part::Receive | Part::Transmit) {
            cycles *= 1.0 + (REMOTE - 1.0) * self.topology.remote(core);
        }
        if let Some(load) = self.load(core) {
            load.parts[part as usize] += cycles;
        }
    }

    /// Corrects the load of workers for the fractions of the packets whose parts from parsing to transmission they have:
    /// the cost of `parts` is the undivided one.
    pub(super) fn keep(&mut self, parts: &[Part], at: impl Iterator<Item = At>) {
        let Some(undivided) = self.costs.undivided else { return };
        for at in at {
            for &part in parts {
                self.add(part, undivided[part as usize] - self.costs.of(part), at);
            }
        }
    }

    /// Adds the cycles for handing a fraction of the packets from one worker to another worker, which continues with `part`.
    pub(super) fn give(&mut self, from: Core, to: Core, part: Part, share: f64) {
        if from == to {
            return;
        }
        let cost = self.costs.hand_overs[self.topology.distance(from, to) as usize];
        let next = self.costs.next[part as usize];
        if let Some(load) = self.load(from) {
            load.given += (cost.out + next.out) * share;
        }
        if let Some(load) = self.load(to) {
            load.taken += (cost.take + next.take) * share;
        }
    }

    /// Adds the cycles for handing all packets to the workers of the next part. Each worker in `from` divides its
    /// packets among the workers in `to`, in proportion to their fractions.
    pub(super) fn spread(&mut self, from: &[At], to: &[At], part: Part) {
        for &(sender, given) in from {
            for &(rule_receiver, taken) in to {
                self.give(sender, rule_receiver, part, given * taken);
            }
        }
    }

    /// Adds the cycles for buffers that return from transmitting to receiving workers. The weight of a pair of workers
    /// is the product of their fractions.
    pub(super) fn back(&mut self, received: &[At], sent: &[At]) {
        for &(receiver, brought) in received {
            for &(sender, taken) in sent.iter().filter(|&&(sender, _)| sender != receiver) {
                let cost = self.costs.back[self.topology.distance(sender, receiver) as usize];
                if let Some(load) = self.load(receiver) {
                    load.returned += cost * brought * taken;
                }
            }
        }
    }
}

/// Equal fractions for some workers.
pub(super) fn evenly(cores: &[Core]) -> Vec<At> {
    cores.iter().map(|&core| (core, 1.0 / cores.len() as f64)).collect()
}

/// Distributes the fractions of the workers that have no queue over the workers that have one.
pub(super) fn to_queues(at: &[At], queues: usize) -> Vec<At> {
    let mut queued: Vec<At> = at.iter().take(queues).map(|&(core, _)| (core, 0.0)).collect();
    for (place, &(_, share)) in at.iter().enumerate() {
        queued[place % queues].1 += share;
    }
    queued
}

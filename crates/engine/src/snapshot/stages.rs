//! Stages: assigns the parts of packet processing to workers, and determines which packets a worker passes to other
//! workers.
//!
//! If all workers have all parts, packets run to completion. If workers have different parts, a packet is handed over
//! when its worker doesn't have the next part. Hand-offs for other reasons use the same rings. Each state has a single
//! writer: sessions belong to the owner of their shard, and a device's queue belongs to one worker.

use crate::packet::io::WorkerIndex;
use crate::placement::{Core, Part, Placement};

/// The workers of each part. An empty list means that all workers have the part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stages([Box<[WorkerIndex]>; 4]);

impl Stages {
    /// Creates stages from the workers of each part, in the order of [`Part::ALL`]. An empty list means that all
    /// workers have the part.
    pub fn new(workers: [Vec<WorkerIndex>; 4]) -> Self {
        Self(workers.map(Into::into))
    }

    /// The stages of a placement. Worker `k` runs on `cores[k]`.
    pub fn of(placement: &Placement, cores: &[Core]) -> Self {
        if !placement.is_pipeline() && placement.workers().len() == cores.len() {
            return Self::default();
        }
        let worker = |core: &Core| {
            cores
                .iter()
                .position(|other| other == core)
                .map(|place| place as WorkerIndex)
        };
        Self::new(Part::ALL.map(|part| placement.of(part).iter().filter_map(worker).collect()))
    }

    /// The workers that have a part; empty if all workers have the part.
    pub fn workers(&self, part: Part) -> &[WorkerIndex] {
        &self.0[part as usize]
    }

    /// Whether a worker has a part.
    pub fn has_part(&self, worker: WorkerIndex, part: Part) -> bool {
        let workers = self.workers(part);
        workers.is_empty() || workers.contains(&worker)
    }

    /// The workers that have a part. `workers` is the total number of workers.
    pub fn all(&self, part: Part, workers: usize) -> Vec<WorkerIndex> {
        match self.workers(part) {
            [] => (0..workers as WorkerIndex).collect(),
            some => some.to_vec(),
        }
    }

    /// The transmitting workers; `workers` is the total number of workers. The result includes the workers that have
    /// the transmit part. With assistance, it also includes the workers that borrow shards from session workers, if
    /// these session workers transmit.
    pub fn senders(&self, workers: usize, assists: bool) -> Vec<WorkerIndex> {
        let mut senders = self.all(Part::Transmit, workers);
        if assists {
            let receivers = self.all(Part::Receive, workers).into_iter();
            let more: Vec<_> = receivers.filter(|worker| !senders.contains(worker)).collect();
            senders.extend(more);
        }
        senders
    }

    /// The parts of a worker, in words.
    pub fn parts(&self, worker: WorkerIndex) -> String {
        let done = Part::ALL.into_iter().filter(|&part| self.has_part(worker, part));
        done.map(Part::name).collect::<Vec<_>>().join("+")
    }

    /// Whether packets run to completion.
    pub fn is_run_to_completion(&self) -> bool {
        Part::ALL.iter().all(|&part| self.workers(part).is_empty())
    }

    /// The role of a worker: which packets it passes to other workers.
    pub fn role(&self, own: WorkerIndex) -> Role {
        let other_workers = |part: Part| -> Box<[WorkerIndex]> {
            match self.has_part(own, part) {
                true => Box::default(),
                false => self.workers(part).into(),
            }
        };
        // Finds the first part, from `part` on, that the worker `own` doesn't have, and returns the workers of this
        // part.
        let after = |part: Part| {
            Part::ALL[part as usize..]
                .iter()
                .map(|&part| other_workers(part))
                .find(|workers| !workers.is_empty())
                .unwrap_or_default()
        };
        let taken = Part::ALL.into_iter().find(|&part| self.receives_part(own, part));
        let ahead = taken.map(after).unwrap_or_default();
        Role {
            parsers: other_workers(Part::Parse),
            sessions: other_workers(Part::Session),
            senders: other_workers(Part::Transmit),
            beyond: match self.has_part(own, Part::Receive) {
                true => after(Part::Parse),
                false => Box::default(),
            },
            ahead: if self.is_contiguous(own) { ahead } else { Box::default() },
        }
    }

    /// Whether a worker gets packets for a part from other workers: from workers that have the preceding part but not
    /// this part.
    fn receives_part(&self, own: WorkerIndex, part: Part) -> bool {
        let Some(&before) = Part::ALL[..part as usize].last() else {
            return false;
        };
        let others = self.workers(before);
        let is_partial = others.is_empty() || others.iter().any(|&other| !self.has_part(other, part));
        self.has_part(own, part) && !self.workers(part).is_empty() && is_partial
    }

    /// Whether the parts of a worker are consecutive. If they are not, packets return to the worker. The worker must
    /// then not wait for free capacity of other workers, because these may wait for it. A worker with consecutive parts
    /// waits only for workers whose last part is later than its own, so a deadlock is impossible.
    fn is_contiguous(&self, own: WorkerIndex) -> bool {
        let done = Part::ALL.map(|part| self.has_part(own, part));
        done.windows(2).filter(|pair| pair[0] != pair[1]).count() + usize::from(done[0]) + usize::from(done[3]) <= 2
    }
}

/// The role of a worker: which packets it passes to other workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// Workers that parse the packets received by this worker; empty if this worker parses them itself.
    pub parsers: Box<[WorkerIndex]>,
    /// Workers that process the sessions of packets parsed by this worker; empty if this worker processes them itself.
    pub sessions: Box<[WorkerIndex]>,
    /// Workers that transmit the packets of this worker; empty if this worker transmits them itself.
    pub senders: Box<[WorkerIndex]>,
    /// Next workers for packets that this worker receives. If the rings to these workers are full, received packets are
    /// dropped before any other work.
    pub beyond: Box<[WorkerIndex]>,
    /// Next workers for packets that this worker takes from other workers. While the rings to the next workers are
    /// full, this worker takes no packets from other workers.
    pub ahead: Box<[WorkerIndex]>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages(parts: [&[WorkerIndex]; 4]) -> Stages {
        Stages::new(parts.map(<[_]>::to_vec))
    }

    #[test]
    fn worker_that_runs_to_completion_leaves_nothing_to_others() {
        assert!(Stages::default().is_run_to_completion());
        assert_eq!(Role::default(), Stages::default().role(3));
    }

    #[test]
    fn each_worker_of_a_pipeline_waits_for_the_next_and_the_first_sheds() {
        let stages = stages([&[0], &[1], &[2, 3], &[4]]);
        let first = stages.role(0);
        assert_eq!([1], *first.parsers);
        assert_eq!([1], *first.beyond);
        assert!(first.ahead.is_empty());
        let second = stages.role(1);
        assert!(second.parsers.is_empty() && second.beyond.is_empty());
        assert_eq!([2, 3], *second.sessions);
        assert_eq!([2, 3], *second.ahead);
        assert_eq!([4], *stages.role(3).ahead);
        assert!(stages.role(4).ahead.is_empty());
    }

    #[test]
    fn workers_that_assist_send_behind_those_whose_part_it_is() {
        let stages = stages([&[0], &[0], &[1], &[1]]);
        assert_eq!(
            [vec![1], vec![1, 0]],
            [false, true].map(|assists| stages.senders(2, assists))
        );
        let stages = self::stages([&[0], &[0], &[1], &[0]]);
        assert_eq!(vec![0], stages.senders(2, true));
    }

    #[test]
    fn worker_at_both_ends_never_waits_for_itself() {
        // Worker 0 receives and transmits, and worker 1 has the sessions. If each worker waited for free capacity of
        // the other, both would wait forever.
        let stages = stages([&[0], &[0], &[1], &[0]]);
        assert_eq!([1], *stages.role(0).beyond);
        assert!(stages.role(0).ahead.is_empty());
        assert_eq!([0], *stages.role(1).ahead);
        // Worker 0 parses and transmits. Worker 0 gets packets for both parts through the same rings.
        let stages = self::stages([&[1], &[0], &[1], &[0]]);
        assert!(stages.role(0).ahead.is_empty());
        assert!(stages.role(1).ahead.is_empty());
    }

    #[test]
    fn worker_that_receives_and_takes_from_another_waits_for_the_next() {
        let stages = stages([&[0, 1], &[1], &[2], &[2]]);
        assert_eq!([2], *stages.role(1).ahead);
        assert_eq!([2], *stages.role(1).beyond);
    }

    #[test]
    fn placement_gives_workers_by_the_order_of_their_cores() {
        let placement = |parts: [&[Core]; 4]| Placement::new(parts.map(<[_]>::to_vec)).unwrap();
        let all = placement([&[4, 7]; 4]);
        assert!(Stages::of(&all, &[7, 4]).is_run_to_completion());
        // A core that is not in the placement has no part.
        assert_eq!(self::stages([&[1]; 4]), Stages::of(&placement([&[4]; 4]), &[7, 4]));
        let cut = placement([&[7], &[7], &[4], &[4]]);
        assert_eq!(self::stages([&[0], &[0], &[1], &[1]]), Stages::of(&cut, &[7, 4]));
    }

    #[test]
    fn last_part_alone_elsewhere_is_where_received_packets_shed() {
        let stages = stages([&[0, 1], &[0, 1], &[0, 1], &[2]]);
        assert_eq!([2], *stages.role(0).beyond);
        assert!(stages.role(0).ahead.is_empty());
    }
}

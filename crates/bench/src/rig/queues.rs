//! Assignment of queues to workers, and the DPDK setup for these queues.

use sluice_dpdk::Plan;
use sluice_dpdk::eal::Eal;
use sluice_dpdk::port::PortPlan;
use sluice_engine::packet::io::WorkerIndex;
use sluice_engine::placement::{Load, Part};
use sluice_engine::snapshot::stages::Stages;

use super::policy::SHARDS;
use super::progress::WITHIN;
use super::{BUFFERS, Source, ring};
use crate::rows::Failure;

/// Index that no worker has.
const NOBODY: WorkerIndex = WorkerIndex::MAX;

/// Workers of a rig and their queues.
pub struct Queues {
    workers: usize,
    pub count: u16,
    receivers: Vec<WorkerIndex>,
    senders: Vec<WorkerIndex>,
    /// Capacity of the rings between two workers: by default so large that they are never full.
    pub handover: u32,
    /// Number of frames that each worker can park, in addition to the default.
    pub parked: usize,
}

impl Queues {
    /// Creates the queues that the stages need, on devices with the load's number of queues; `assists` tells whether
    /// receiving workers take over shards from other workers.
    pub fn of(stages: &Stages, workers: usize, load: &Load, assists: bool) -> Self {
        let mut receivers = stages.all(Part::Receive, workers);
        let mut senders = stages.senders(workers, assists);
        let count = receivers.len().max(senders.len()).min(usize::from(load.queues));
        // Ring ports have as many transmit queues as receive queues.
        receivers.resize(count.max(receivers.len()), NOBODY);
        senders.resize(count.max(senders.len()), NOBODY);
        let count = count as u16;
        Self {
            workers,
            count,
            receivers,
            senders,
            handover: WITHIN as u32 * u32::from(count.max(1)),
            parked: 0,
        }
    }

    fn have(&self, of: &[WorkerIndex], worker: usize) -> bool {
        of.iter()
            .take(self.count.into())
            .any(|&other| usize::from(other) == worker)
    }

    pub fn receives(&self, worker: usize) -> bool {
        self.have(&self.receivers, worker)
    }

    pub fn sends(&self, worker: usize) -> bool {
        self.have(&self.senders, worker)
    }

    /// Workers with a receive queue.
    pub fn entrances(&self) -> Vec<usize> {
        (0..self.workers).filter(|&worker| self.receives(worker)).collect()
    }

    /// If some workers have no transmit queue: the workers that send the packets of all workers. Otherwise empty.
    pub fn senders(&self) -> Box<[WorkerIndex]> {
        if (0..self.workers).all(|worker| self.sends(worker)) {
            return Box::default();
        }
        let senders = self.senders.iter().take(self.count.into()).copied();
        senders.filter(|&sender| sender != NOBODY).collect()
    }

    /// DPDK plan of the gateway's ends of the ports, or of the opposite ends.
    pub fn plan(&self, number: u32, near: bool) -> Result<Plan, Failure> {
        let port = |name| {
            let device = ring(&format!("queue-{name}{number}"), if near { "b" } else { "a" }, 8192)?;
            Ok(PortPlan {
                queues: self.count,
                ..PortPlan::new("ring", device)
            })
        };
        let ports = ["inside", "outside"]
            .into_iter()
            .map(port)
            .collect::<Result<_, Failure>>()?;
        let mut plan = Plan::new(ports, self.workers as u16);
        let (receivers, senders) = (self.receivers.clone(), self.senders.clone());
        (plan.receivers, plan.senders) = if near {
            (receivers, senders)
        } else {
            (senders, receivers)
        };
        // Without a buffer cache, buffers are reused first in, first out.
        (plan.cache, plan.handover) = (0, self.handover);
        plan.parked += self.parked;
        if !near {
            plan.buffers = BUFFERS;
        }
        Ok(plan)
    }

    /// Source and sink at the opposite ends of a worker's queues; `None` if the worker has no queues.
    pub fn far(&self, eal: &'static Eal, number: u32, own: usize) -> Result<Option<Source>, Failure> {
        match self.receives(own) || self.sends(own) {
            true => Ok(Some(Source::of(eal, &self.plan(number, false)?, own)?)),
            false => Ok(None),
        }
    }
}

/// Starts DPDK for rigs with at most this number of workers, two of which may exist at a time.
pub fn start(workers: usize) -> Result<&'static Eal, Failure> {
    let all = Queues::of(&Stages::default(), workers, &Load::even(SHARDS as u16), false);
    let mut needs = all.plan(0, true)?.needs(&[], None);
    needs.bytes = 2 * (needs.bytes + workers * all.plan(0, false)?.needs(&[], None).bytes);
    Ok(Eal::start(&needs)?)
}

//! Assignment of queues to workers, and DPDK setup for them.

use sluice_dpdk::Plan;
use sluice_dpdk::eal::Eal;
use sluice_dpdk::port::PortPlan;
use sluice_engine::packet::io::WorkerIndex;
use sluice_engine::placement::{Load, Part};
use sluice_engine::snapshot::stages::Stages;

use crate::rig::lanes::WITHIN;
use crate::rig::policy::SHARDS;
use crate::rig::{BUFFERS, Source, ring};
use crate::rows::Failure;

/// Number of a nonexistent worker.
const NOBODY: WorkerIndex = WorkerIndex::MAX;

/// Workers of a rig that have queues.
pub struct Queues {
    workers: usize,
    pub count: u16,
    receivers: Vec<WorkerIndex>,
    senders: Vec<WorkerIndex>,
}

impl Queues {
    /// Create the queues that stages need, on devices with the load's number of queues; `assists` says whether
    /// receiving workers take over shards from others.
    pub fn of(stages: &Stages, workers: usize, load: &Load, assists: bool) -> Self {
        let mut receivers = stages.all(Part::Receive, workers);
        let mut senders = stages.senders(workers, assists);
        let count = receivers.len().max(senders.len()).min(usize::from(load.queues));
        // Ring ports have equal numbers of receive and transmit queues.
        receivers.resize(count.max(receivers.len()), NOBODY);
        senders.resize(count.max(senders.len()), NOBODY);
        let count = count as u16;
        Self {
            workers,
            count,
            receivers,
            senders,
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

    /// Workers that send for all, if some have no queue.
    pub fn senders(&self) -> Box<[WorkerIndex]> {
        if (0..self.workers).all(|worker| self.sends(worker)) {
            return Box::default();
        }
        let senders = self.senders.iter().take(self.count.into()).copied();
        senders.filter(|&sender| sender != NOBODY).collect()
    }

    /// Plan of the near or the far ends of the ports.
    pub fn plan(&self, number: u32, near: bool) -> Result<Plan, Failure> {
        let port = |name| {
            let device = ring(&format!("placement-{name}{number}"), if near { "b" } else { "a" }, 8192)?;
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
        // First in, first out; rings are large enough never to be full.
        (plan.cache, plan.handover) = (0, WITHIN as u32 * u32::from(self.count.max(1)));
        if !near {
            plan.buffers = BUFFERS;
        }
        Ok(plan)
    }

    /// The far end of a worker's queues, if it has any.
    pub fn far(&self, eal: &'static Eal, number: u32, own: usize) -> Result<Option<Source>, Failure> {
        match self.receives(own) || self.sends(own) {
            true => Ok(Some(Source::of(eal, &self.plan(number, false)?, own)?)),
            false => Ok(None),
        }
    }
}

/// Start DPDK for rigs with this number of workers.
pub fn start(workers: usize) -> Result<&'static Eal, Failure> {
    let all = Queues::of(&Stages::default(), workers, &Load::even(SHARDS as u16), false);
    let mut needs = all.plan(0, false)?.needs(&[], None);
    needs.bytes *= 2 * (workers + 1);
    Ok(Eal::start(&needs)?)
}

//! Which workers of a rig have queues, and the ring ports that have those.

use sluice_dpdk::Plan;
use sluice_dpdk::device::Device;
use sluice_dpdk::port::PortPlan;
use sluice_engine::packet::io::WorkerIndex;
use sluice_engine::placement::{Load, Part};
use sluice_engine::snapshot::stages::Stages;

use super::lane::WITHIN;
use crate::nat_path::rig::BUFFERS;

type Failure = Box<dyn std::error::Error>;

/// A worker that there is not.
const NOBODY: WorkerIndex = WorkerIndex::MAX;

/// Who has queues.
pub struct Queues {
    workers: usize,
    /// Queues of each port.
    pub count: u16,
    receivers: Vec<WorkerIndex>,
    senders: Vec<WorkerIndex>,
}

impl Queues {
    /// Those that stages want, of devices that have as many as a load says.
    pub fn of(stages: &Stages, workers: usize, load: &Load) -> Self {
        Self::with(stages, workers, load, false)
    }

    /// The same, where those that receive take shards over from others, or do not.
    pub fn with(stages: &Stages, workers: usize, load: &Load, assists: bool) -> Self {
        let mut receivers = stages.all(Part::Receive, workers);
        let mut senders = stages.senders(workers, assists);
        let count = receivers.len().max(senders.len()).min(usize::from(load.queues));
        // Ring ports have as many queues to receive as to send.
        receivers.resize(count.max(receivers.len()), NOBODY);
        senders.resize(count.max(senders.len()), NOBODY);
        Self {
            workers,
            count: count as u16,
            receivers,
            senders,
        }
    }

    fn has(of: &[WorkerIndex], count: u16, worker: usize) -> bool {
        of.iter().take(count.into()).any(|&other| usize::from(other) == worker)
    }

    /// Whether a worker has a queue to receive from.
    pub fn receives(&self, worker: usize) -> bool {
        Self::has(&self.receivers, self.count, worker)
    }

    /// Whether a worker has a queue to send by.
    pub fn sends(&self, worker: usize) -> bool {
        Self::has(&self.senders, self.count, worker)
    }

    /// The workers that send for all, where some have no queue.
    pub fn senders(&self) -> Box<[WorkerIndex]> {
        match (0..self.workers).all(|worker| self.sends(worker)) {
            true => Box::default(),
            false => {
                let senders = self.senders.iter().take(self.count.into()).copied();
                senders.filter(|&sender| sender != NOBODY).collect()
            }
        }
    }

    /// The near ends of the ports, or the far ones.
    ///
    /// # Errors
    /// There is no such device.
    pub fn plan(&self, number: u32, near: bool) -> Result<Plan, Failure> {
        let mut ports = Vec::new();
        for name in ["inside", "outside"] {
            let end = if near { "b" } else { "a" };
            let device: Device = format!("ring:placement-{name}{number},end={end},depth=8192").parse()?;
            let mut port = PortPlan::new("ring", device);
            port.queues = self.count;
            ports.push(port);
        }
        let mut plan = Plan::new(ports, self.workers as u16);
        (plan.receivers, plan.senders) = match near {
            true => (self.receivers.clone(), self.senders.clone()),
            false => (self.senders.clone(), self.receivers.clone()),
        };
        // First in, first out.
        plan.cache = 0;
        // Nothing finds a ring full.
        plan.handover = WITHIN as u32 * u32::from(self.count.max(1));
        if !near {
            plan.buffers = BUFFERS;
        }
        Ok(plan)
    }
}

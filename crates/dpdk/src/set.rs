//! A set of ports, pools and rings that are opened and closed together, and the packet I/O of the workers.

mod plan;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_engine::packet::io::PortIndex;

pub use self::plan::Plan;
use self::plan::data_room_for;
pub(crate) use self::plan::{AF_PACKET_ORDINARY_MTU, DESCRIPTORS};
use crate::burst_buffers::BurstBuffers;
use crate::coalescing::Coalescing;
use crate::driver::{AF_XDP_KEPT_RECEIVE, AF_XDP_KEPT_TRANSMIT, Driver, choose};
use crate::eal::Eal;
use crate::handover;
use crate::mbufs::{PortQueues, WorkerMbufs};
use crate::pool::{Pool, PoolBalance};
use crate::port::{Port, PortError, PortPlan};
use crate::ring::RingError;
use crate::workers::Queues;

/// Packet I/O of one worker through DPDK.
pub type DpdkIo = BurstBuffers<WorkerMbufs>;

/// Queue of a worker, equal to the worker's index in `workers`.
fn queue(workers: &[u16], worker: u16, queues: u16) -> Option<u16> {
    let place = workers.iter().position(|&other| other == worker)?;
    u16::try_from(place).ok().filter(|&queue| queue < queues)
}

/// Number of attempts to open an AF_XDP port. Opening is retried after pauses, because the kernel releases a queue only
/// some time after its XDP socket was closed.
const AF_XDP_ATTEMPTS: u32 = 5;
const AF_XDP_PAUSE: Duration = Duration::from_millis(50);

/// Why a set, or one of its ports, can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// A port failed to open.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A pool could not be created.
    #[error(transparent)]
    Pool(#[from] crate::pool::PoolError),
    /// A ring could not be created.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// All port indexes are in use.
    #[error("{port}: all {places} places for devices are in use: restart the process to have more places")]
    NoFreeIndex {
        /// Name of the port.
        port: String,
        /// Number of port indexes.
        places: usize,
    },
    /// The MTU is too large for the buffers in which workers create packets. The ports at startup have determined the
    /// size of these buffers.
    #[error(
        "{port}: an MTU of {mtu} needs larger buffers than allocated at start: restart the process, or lower the \
         MTU"
    )]
    Mtu {
        /// Name of the port.
        port: String,
        /// MTU of the port.
        mtu: u16,
    },
}

/// State that the burst buffers of all workers share. Ports are dropped before pools, because ports hold buffers of
/// pools.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Ports by index. `None` at an index that has no device.
    ports: Mutex<Vec<Option<Arc<Port>>>>,
    /// State of the ports for each worker.
    workers: Vec<WorkerPorts>,
    /// Pools of ports that do not use the common pool.
    pools: Mutex<Vec<Arc<Pool>>>,
    /// Receive pool of all other ports.
    common: Arc<Pool>,
    /// Pool from which workers allocate.
    made: Arc<Pool>,
}

/// A worker's queues of all ports.
#[derive(Debug)]
struct WorkerPorts {
    /// Queues by port index. A change takes effect when the worker next renews the port.
    assignments: Mutex<Vec<PortQueues>>,
    queues: Queues,
}

/// Lock a mutex. Poisoning is ignored, because holders leave no inconsistent state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    #[inline(always)]
    pub(crate) fn pool(&self) -> &Pool {
        &self.made
    }

    /// Current queues of a worker for a port.
    pub(crate) fn port_queues(&self, worker: u16, port: PortIndex) -> PortQueues {
        let assignments = self
            .workers
            .get(usize::from(worker))
            .map(|worker| lock(&worker.assignments));
        assignments
            .and_then(|assignments| assignments.get(usize::from(port)).copied())
            .unwrap_or(PortQueues::NONE)
    }

    /// The ring port at an index, if it is a loop.
    pub(crate) fn loop_port(&self, port: PortIndex) -> Option<Arc<Port>> {
        let port = lock(&self.ports).get(usize::from(port))?.clone()?;
        port.first_loop().is_some().then_some(port)
    }

    fn all_pools(&self) -> Vec<Arc<Pool>> {
        let mut pools = vec![self.made.clone()];
        if !Arc::ptr_eq(&self.made, &self.common) {
            pools.push(self.common.clone());
        }
        pools.extend(lock(&self.pools).iter().cloned());
        pools
    }
}

/// An open set of ports.
#[derive(Debug)]
pub struct Devices {
    eal: &'static Eal,
    shared: Arc<Shared>,
    plan: Plan,
    /// Receiving workers, in the order of their queues.
    receivers: Vec<u16>,
    /// Sending workers, in the order of their queues.
    senders: Vec<u16>,
    failures: Vec<(PortIndex, SetError)>,
}

/// Pools of a closed set.
#[derive(Debug)]
pub struct Closed {
    pools: Vec<Arc<Pool>>,
}

impl Closed {
    /// Balance of each pool.
    pub fn balances(&self) -> Vec<PoolBalance> {
        self.pools.iter().map(|pool| pool.balance()).collect()
    }
}

/// Error: the set can't be closed because workers still hold its burst buffers.
#[derive(Debug, thiserror::Error)]
#[error("workers still use the devices: stop and join the workers first")]
pub struct StillInUse(pub Box<Devices>);

impl Devices {
    /// Open a set: create the pools, configure and start the ports, and create the burst buffers of each worker.
    ///
    /// The queue number of a receiver is its index among the receivers, and the queue number of a sender its index
    /// among the senders. Workers beyond the number of a port's queues receive nothing from the port, and hand frames
    /// for the port over to workers with a queue.
    pub fn open(eal: &'static Eal, plan: &Plan) -> Result<(Devices, Vec<DpdkIo>), SetError> {
        let workers = plan.workers.max(1);
        let all: Vec<u16> = (0..workers).collect();
        let or_all = |some: &Vec<u16>| if some.is_empty() { all.clone() } else { some.clone() };
        let common = Pool::new(eal, "common", plan.common_pool())?;
        let made = match plan.made_pool() {
            Some(size) => Pool::new(eal, "made", size)?,
            None => common.clone(),
        };
        let places = plan.places.max(plan.ports.len());
        let of_worker = || WorkerPorts {
            assignments: Mutex::new(vec![PortQueues::NONE; places]),
            queues: Queues::default(),
        };
        let mut devices = Devices {
            failures: Vec::new(),
            eal,
            shared: Arc::new(Shared {
                ports: Mutex::new(vec![None; places]),
                workers: all.iter().map(|_| of_worker()).collect(),
                pools: Mutex::default(),
                common,
                made,
            }),
            receivers: or_all(&plan.receivers),
            senders: or_all(&plan.senders),
            plan: plan.clone(),
        };
        for (place, wanted) in (0..).zip(&plan.ports) {
            match devices.attach(place, wanted) {
                Err(error) if !wanted.required => devices.failures.push((place, error)),
                opened => drop(opened?),
            }
        }
        if devices.failures.len() == plan.ports.len()
            && let Some((_, error)) = devices.failures.pop()
        {
            return Err(error);
        }
        let rings = handover::rings(workers.into(), plan.handover);
        let hands = all.iter().zip(rings).map(|(&worker, handover)| {
            let source = WorkerMbufs {
                assignments: (0..places)
                    .map(|port| devices.shared.port_queues(worker, port as PortIndex))
                    .collect(),
                worker,
                handover,
                shared: devices.shared.clone(),
            };
            BurstBuffers::new(source, plan.parked)
        });
        let hands = hands.collect();
        Ok((devices, hands))
    }

    /// Open a port at a free index. Workers use the new port after they have renewed the port
    /// ([`PacketIo::replace_device`](sluice_engine::packet::io::PacketIo::replace_device)). No renewal is necessary
    /// during the opening of a set.
    pub fn attach(&self, place: PortIndex, wanted: &PortPlan) -> Result<Arc<Port>, SetError> {
        let shared = &self.shared;
        let places = lock(&shared.ports).len();
        if usize::from(place) >= places {
            let port = wanted.name.clone();
            return Err(SetError::NoFreeIndex { port, places });
        }
        if data_room_for(wanted.mtu) > shared.made.size().data_room {
            let (port, mtu) = (wanted.name.clone(), wanted.mtu);
            return Err(SetError::Mtu { port, mtu });
        }
        let choice = choose(&wanted.device, wanted.mtu, wanted.queues, wanted.driver);
        let open = || -> Result<Port, SetError> {
            let pool = self.pool_of(wanted)?;
            if choice.driver == Driver::AfXdp {
                // The driver may keep buffers even if the opening fails.
                pool.allow_retained(u32::from(choice.queues) * (AF_XDP_KEPT_RECEIVE + AF_XDP_KEPT_TRANSMIT));
            }
            Ok(Port::open(self.eal, wanted, (&self.receivers, &self.senders), &pool)?)
        };
        let mut opened = open();
        for _ in 0..AF_XDP_ATTEMPTS {
            match &opened {
                Err(SetError::Port(PortError::Refused { .. })) if choice.driver == Driver::AfXdp => {
                    std::thread::sleep(AF_XDP_PAUSE);
                    opened = open();
                }
                _ => break,
            }
        }
        let port = Arc::new(opened?);
        let pools = shared.all_pools();
        {
            let mut ports = lock(&shared.ports);
            ports[usize::from(place)] = Some(port.clone());
            for port in ports.iter().flatten() {
                pools.iter().for_each(|pool| port.outlive(pool));
            }
        }
        self.resume(place, &port);
        Ok(port)
    }

    /// Restore the workers' queues of the port at an index. The change takes effect after the workers have renewed the
    /// port.
    pub fn resume(&self, place: PortIndex, port: &Port) {
        for (worker, of_worker) in (0..).zip(&self.shared.workers) {
            let assigned = PortQueues {
                port: port.number(),
                receive: queue(&self.receivers, worker, port.queues()),
                transmit: queue(port.senders(), worker, port.transmit_queues()),
                offload: port.completes_checksums(),
                calls_for_transmit: port.driver() == Driver::Bond,
                coalescing: port.is_coalesced().then(Coalescing::new),
            };
            lock(&of_worker.assignments)[usize::from(place)] = assigned;
            if let Some(queue) = assigned.receive {
                of_worker.queues.add(assigned.port, queue);
            }
        }
    }

    /// Remove the workers' queues of the port at an index. The change takes effect after the workers have renewed the
    /// port.
    pub fn pause(&self, place: PortIndex, port: &Port) {
        for of_worker in &self.shared.workers {
            lock(&of_worker.assignments)[usize::from(place)] = PortQueues::NONE;
            of_worker.queues.remove(port.number());
        }
    }

    /// Receive pool of a port. The pool of an earlier device with this name is reused if no driver has kept buffers of
    /// the pool.
    fn pool_of(&self, wanted: &PortPlan) -> Result<Arc<Pool>, SetError> {
        let Some(size) = self.plan.own_pool(wanted) else {
            return Ok(self.shared.common.clone());
        };
        let mut pools = lock(&self.shared.pools);
        // A pool that only the list refers to belongs to a closed port.
        let is_idle = |pool: &Arc<Pool>| pool.name() == wanted.name && Arc::strong_count(pool) == 1;
        let known = pools.iter().position(is_idle);
        if let Some(known) = known {
            if pools[known].size() == size && pools[known].balance().retained_by_driver == 0 {
                return Ok(pools[known].clone());
            }
            pools.remove(known);
        }
        let pool = Pool::new(self.eal, &wanted.name, size)?;
        pools.push(pool.clone());
        Ok(pool)
    }

    /// Remove the port at an index from the set. Dropping the returned value closes the port. Before the drop, every
    /// worker must have renewed the port, because workers may use the port until then.
    pub fn detach(&self, place: PortIndex) -> Option<Arc<Port>> {
        let port = lock(&self.shared.ports).get_mut(usize::from(place))?.take()?;
        self.pause(place, &port);
        port.release_device();
        Some(port)
    }

    /// Whether a worker has a receive queue of the port at an index.
    pub fn receives(&self, worker: u16, place: PortIndex) -> bool {
        self.shared.port_queues(worker, place).receive.is_some()
    }

    /// Receive queues of a worker.
    pub fn queues(&self, worker: u16) -> Queues {
        let of_worker = self.shared.workers.get(usize::from(worker));
        of_worker.map(|of_worker| of_worker.queues.clone()).unwrap_or_default()
    }

    /// The port at an index.
    pub fn port(&self, place: PortIndex) -> Option<Arc<Port>> {
        lock(&self.shared.ports).get(usize::from(place))?.clone()
    }

    /// Ports in the order of their indexes.
    pub fn ports(&self) -> Vec<Arc<Port>> {
        lock(&self.shared.ports).iter().flatten().cloned().collect()
    }

    /// Index and error of each optional port that failed to open.
    pub fn failures(&self) -> &[(PortIndex, SetError)] {
        &self.failures
    }

    /// Current balance of each pool.
    pub fn balances(&self) -> Vec<PoolBalance> {
        self.shared.all_pools().iter().map(|pool| pool.balance()).collect()
    }

    /// Close the ports. The burst buffers of all workers must have been dropped. A pool with missing buffers is leaked
    /// if no driver keeps the missing buffers.
    pub fn close(self) -> Result<Closed, StillInUse> {
        if Arc::strong_count(&self.shared) > 1 {
            return Err(StillInUse(Box::new(self)));
        }
        let pools = self.shared.all_pools();
        drop(self);
        Ok(Closed { pools })
    }
}

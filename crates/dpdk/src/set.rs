//! A set of ports, pools and rings that open and close together, and the hands of its workers.

use std::sync::Arc;

use sluice_engine::io::PortIndex;

use crate::device::Device;
use crate::driver::{AF_XDP_KEPT_RECEIVE, AF_XDP_KEPT_TRANSMIT, Driver, choose};
use crate::eal::{Eal, Needs};
use crate::hand::Hand;
use crate::handover;
use crate::mbufs::{Mbufs, Way};
use crate::pool::{AF_XDP_ROOM, HEADROOM, JUMBO_ROOM, ORDINARY_ROOM, Pool, PoolBalance, PoolSize};
use crate::port::{Port, PortError, PortPlan};
use crate::ring::{Ring, RingError};
use crate::workers::Queues;

/// DPDK's packets in and out of one worker.
pub type DpdkIo = Hand<Mbufs>;

/// The queue of a worker among those that have one.
fn queue(workers: &[u16], worker: u16, queues: u16) -> Option<u16> {
    let place = workers.iter().position(|&other| other == worker)?;
    u16::try_from(place).ok().filter(|&queue| queue < queues)
}

/// What is to be opened.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The ports, in the order that gives them their index.
    pub ports: Vec<PortPlan>,
    /// Workers that poll them.
    pub workers: u16,
    /// The workers that receive, in the order of their queues: empty is all.
    pub receivers: Vec<u16>,
    /// The workers that send, in the order of their queues: empty is all.
    pub senders: Vec<u16>,
    /// Buffers of the common pool, from which ordinary ports receive and workers allocate.
    pub buffers: u32,
    /// Buffers cached per core; 0 makes the pools strictly first in, first out.
    pub cache: u32,
    /// Frames that each worker can park.
    pub parked: usize,
    /// Frames that the ring from one worker to another holds.
    pub handover: u32,
}

impl Plan {
    /// A plan with the usual sizes: buffers for every queue's descriptors, the hands, the parked, the rings.
    pub fn new(ports: Vec<PortPlan>, workers: u16) -> Self {
        let workers = workers.max(1);
        let per_worker = 2048 + 1024 + 1024;
        let queues: u32 = ports.iter().map(|port| u32::from(port.queues.max(1))).sum();
        let buffers = (queues * 2 * DESCRIPTORS + u32::from(workers) * per_worker + 1024).next_power_of_two() - 1;
        Self {
            ports,
            workers,
            receivers: Vec::new(),
            senders: Vec::new(),
            buffers,
            cache: 256,
            parked: 1024,
            handover: 1024,
        }
    }

    /// Size of the pool of a port that can't use the common one.
    fn own_pool(&self, port: &PortPlan) -> Option<PoolSize> {
        let choice = choose(&port.device, port.mtu, port.queues, port.driver);
        let room = room(choice.driver, &port.device, port.mtu);
        let per_queue = match choice.driver {
            Driver::AfXdp => 3 * AF_XDP_KEPT_RECEIVE,
            Driver::Memif => 3 * DESCRIPTORS,
            _ if room > ORDINARY_ROOM => 2 * DESCRIPTORS,
            _ => return None,
        };
        let count = u32::from(choice.queues) * per_queue + u32::from(self.workers) * 1024 + self.in_rings();
        Some(PoolSize {
            count: count.next_power_of_two() - 1,
            room,
            cache: self.cache,
            adjoining: choice.driver == Driver::AfXdp,
        })
    }

    /// Buffers that wait in rings at once, as far as is planned for: the rings to each worker from two others.
    fn in_rings(&self) -> u32 {
        let full = u32::from(self.workers.saturating_sub(1).min(2));
        u32::from(self.workers) * full * self.handover
    }

    fn common_pool(&self) -> PoolSize {
        PoolSize {
            count: self.buffers,
            room: ORDINARY_ROOM,
            cache: self.cache,
            adjoining: false,
        }
    }

    /// Size of the pool from which workers allocate, where the common one's room is too small for some port.
    fn made_pool(&self) -> Option<PoolSize> {
        let mtu = self.ports.iter().map(|port| port.mtu.min(9600)).max().unwrap_or(0);
        let room = room_of(mtu);
        let count = (u32::from(self.workers) * 1024).next_power_of_two() - 1;
        (room > ORDINARY_ROOM).then_some(PoolSize {
            count,
            room,
            cache: self.cache,
            adjoining: false,
        })
    }

    /// Bytes of DPDK memory that the plan takes.
    pub fn bytes(&self) -> usize {
        let pools: usize = self
            .ports
            .iter()
            .filter_map(|port| self.own_pool(port))
            .map(|size| size.bytes())
            .sum();
        let made = self.made_pool().map_or(0, |size| size.bytes());
        let rings: usize = self
            .ports
            .iter()
            .map(|port| match port.device {
                Device::Ring { depth, .. } => depth as usize * 32 * port.queues.max(1) as usize,
                _ => 2 << 20,
            })
            .sum();
        (24 << 20) + self.common_pool().bytes() + made + pools + rings
    }

    /// What the environment needs to know: `cores` are those of the workers.
    pub fn needs(&self, cores: &[usize], hugepages: Option<bool>) -> Needs {
        let pci = self.ports.iter().flat_map(|port| match &port.device {
            Device::Bond { members } => members.clone(),
            device => vec![device.clone()],
        });
        Needs {
            bytes: self.bytes(),
            cores: cores.to_vec(),
            pci: pci
                .filter_map(|device| {
                    if let Device::Pci(address) = device {
                        Some(address)
                    } else {
                        None
                    }
                })
                .collect(),
            hugepages,
        }
    }
}

/// Descriptors that a queue is asked to have; devices cut it to what they can.
pub(crate) const DESCRIPTORS: u32 = 1024;

/// Room for a frame of an MTU: Ethernet header, two tags, and what virtio counts beside.
fn room_of(mtu: u16) -> u16 {
    (HEADROOM + mtu.min(9600) + 64).next_multiple_of(64).max(ORDINARY_ROOM)
}

/// Room of the buffers that a driver needs for an MTU.
pub(crate) fn room(driver: Driver, device: &Device, mtu: u16) -> u16 {
    let frame = room_of(mtu);
    match driver {
        Driver::AfXdp => AF_XDP_ROOM,
        Driver::AfPacket if mtu > AF_PACKET_ORDINARY_MTU => JUMBO_ROOM,
        Driver::Bond => {
            let Device::Bond { members } = device else {
                return ORDINARY_ROOM;
            };
            let kernel = members.iter().any(|member| matches!(member, Device::Kernel { .. }));
            if kernel && mtu > AF_PACKET_ORDINARY_MTU {
                JUMBO_ROOM
            } else {
                frame.max(ORDINARY_ROOM)
            }
        }
        _ => frame,
    }
}

/// Largest MTU that AF_PACKET's frames of 2,048 bytes hold.
pub(crate) const AF_PACKET_ORDINARY_MTU: u16 = 1900;

/// Why a set does not open.
#[derive(Debug, thiserror::Error)]
pub enum SetError {
    /// A port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A pool.
    #[error(transparent)]
    Pool(#[from] crate::pool::PoolError),
    /// A ring.
    #[error(transparent)]
    Ring(#[from] RingError),
}

/// What the hands share. Fields go in this order: ports hold buffers of pools.
#[derive(Debug)]
pub(crate) struct Shared {
    ports: Vec<Port>,
    /// What workers allocate from is the first.
    pools: Vec<Arc<Pool>>,
}

impl Shared {
    #[inline(always)]
    pub(crate) fn pool(&self) -> &Pool {
        &self.pools[0]
    }

    /// The first ring of a ring port whose frames come back.
    pub(crate) fn loop_of(&self, port: PortIndex) -> Option<&Ring> {
        self.ports.get(port as usize)?.first_loop()
    }
}

/// An open set of ports.
#[derive(Debug)]
pub struct Devices {
    shared: Arc<Shared>,
    /// The workers that receive, in the order of their queues.
    receivers: Vec<u16>,
}

/// The pools of a closed set.
#[derive(Debug)]
pub struct Closed {
    pools: Vec<Arc<Pool>>,
}

impl Closed {
    /// What each pool should have and has.
    pub fn balances(&self) -> Vec<PoolBalance> {
        self.pools.iter().map(|pool| pool.balance()).collect()
    }
}

/// A set can't close: its hands are still out.
#[derive(Debug, thiserror::Error)]
#[error("the devices are still in the hands of workers: stop and join them first")]
pub struct StillInUse(pub Devices);

impl Devices {
    /// Open a set: pools, ports configured and started, and a hand for each worker.
    ///
    /// Each receiver polls the queue of its place among them, and each sender sends by its own. Where a port has fewer queues
    /// the others receive nothing from it and can send nothing by it: they hand over to those who can.
    pub fn open(eal: &'static Eal, plan: &Plan) -> Result<(Devices, Vec<DpdkIo>), SetError> {
        let workers = plan.workers.max(1);
        let all: Vec<u16> = (0..workers).collect();
        let or_all = |some: &Vec<u16>| if some.is_empty() { all.clone() } else { some.clone() };
        let (receivers, senders) = (or_all(&plan.receivers), or_all(&plan.senders));
        let common = Pool::new(eal, "common", plan.common_pool())?;
        let mut pools = vec![common.clone()];
        if let Some(size) = plan.made_pool() {
            pools.insert(0, Pool::new(eal, "made", size)?);
        }
        let mut shared = Shared {
            ports: Vec::new(),
            pools,
        };
        for wanted in &plan.ports {
            let pool = match plan.own_pool(wanted) {
                Some(size) => {
                    let pool = Pool::new(eal, &wanted.name, size)?;
                    shared.pools.push(pool.clone());
                    pool
                }
                None => common.clone(),
            };
            let port = Port::open(eal, wanted, (&receivers, &senders), &pool)?;
            if port.driver() == Driver::AfXdp {
                pool.allow_kept(u32::from(port.queues()) * (AF_XDP_KEPT_RECEIVE + AF_XDP_KEPT_TRANSMIT));
            }
            shared.ports.push(port);
        }
        for port in &shared.ports {
            shared.pools.iter().for_each(|pool| port.outlive(pool));
        }
        let shared = Arc::new(shared);
        let rings = handover::rings(workers.into(), plan.handover);
        let hands = (0..workers)
            .zip(rings)
            .map(|(worker, handover)| {
                let ways = shared.ports.iter().map(|port| Way {
                    port: port.number(),
                    receive: queue(&receivers, worker, port.queues()),
                    transmit: queue(port.senders(), worker, port.transmit_queues()),
                    offload: port.completes_checksums(),
                    calls_for_transmit: port.driver() == Driver::Bond,
                });
                let source = Mbufs {
                    ways: ways.collect(),
                    handover,
                    shared: shared.clone(),
                };
                Hand::new(source, plan.parked)
            })
            .collect();
        Ok((Devices { shared, receivers }, hands))
    }

    /// What a worker receives from.
    pub fn queues(&self, worker: u16) -> Queues {
        let of = |port: &Port| {
            let queue = queue(&self.receivers, worker, port.queues())?;
            Some((port.number(), queue))
        };
        Queues::new(self.shared.ports.iter().filter_map(of))
    }

    /// The ports, in the order of the plan.
    pub fn ports(&self) -> &[Port] {
        &self.shared.ports
    }

    /// What each pool has now.
    pub fn balances(&self) -> Vec<PoolBalance> {
        self.shared.pools.iter().map(|pool| pool.balance()).collect()
    }

    /// Close the ports; all hands must be gone. What the pools then lack is lost, unless a driver keeps it.
    pub fn close(self) -> Result<Closed, StillInUse> {
        let Devices { shared, receivers } = self;
        let shared = Arc::try_unwrap(shared).map_err(|shared| StillInUse(Devices { shared, receivers }))?;
        let Shared { ports, pools } = shared;
        drop(ports);
        Ok(Closed { pools })
    }
}

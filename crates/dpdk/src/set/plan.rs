//! Plan of the ports to open and of the sizes of shared resources.

use crate::device::Device;
use crate::driver::{AF_XDP_KEPT_RECEIVE, Driver, choose};
use crate::eal::EalRequirements;
use crate::pool::{AF_XDP_BUFFER, HEADROOM, JUMBO_BUFFER, ORDINARY_BUFFER, PoolSize};
use crate::port::PortPlan;

/// Requested number of descriptors per queue. A device with a lower maximum uses fewer descriptors.
pub(crate) const DESCRIPTORS: u32 = 1024;

/// Maximum MTU for which AF_PACKET uses frames of 2,048 bytes.
pub(crate) const AF_PACKET_ORDINARY_MTU: u16 = 1900;

/// Plan of ports and shared resources.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Ports, in the order of their indexes.
    pub ports: Vec<PortPlan>,
    /// Number of port indexes. Ports may later be attached at free indexes.
    pub places: usize,
    /// Number of workers that poll the ports.
    pub workers: u16,
    /// Receiving workers, in the order of their queues. An empty list means all workers.
    pub receivers: Vec<u16>,
    /// Sending workers, in the order of their queues. An empty list means all workers.
    pub senders: Vec<u16>,
    /// Number of buffers in the common pool. Ordinary ports receive into this pool, and workers allocate from it.
    pub buffers: u32,
    /// Number of cached buffers per core. 0 makes the pools strictly first-in, first-out.
    pub cache: u32,
    /// Number of frames that each worker can park.
    pub parked: usize,
    /// Capacity in frames of the ring from one worker to another.
    pub handover: u32,
}

impl Plan {
    /// Create a plan with default sizes. The number of buffers covers the descriptors of every queue, the bursts, the
    /// parked frames and the rings.
    pub fn new(ports: Vec<PortPlan>, workers: u16) -> Self {
        let workers = workers.max(1);
        let per_worker = 2048 + 1024 + 1024;
        let queues: u32 = ports.iter().map(|port| u32::from(port.queues.max(1))).sum();
        let buffers = (queues * 2 * DESCRIPTORS + u32::from(workers) * per_worker + 1024).next_power_of_two() - 1;
        Self {
            places: ports.len(),
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

    /// Size of the pool of a port that can't use the common pool.
    pub(super) fn own_pool(&self, port: &PortPlan) -> Option<PoolSize> {
        let choice = choose(&port.device, port.mtu, port.queues, port.driver);
        self.own_pool_of(
            choice.driver,
            choice.queues,
            data_room(choice.driver, &port.device, port.mtu),
        )
    }

    pub(super) fn own_pool_of(&self, driver: Driver, queues: u16, data_room: u16) -> Option<PoolSize> {
        let per_queue = match driver {
            Driver::AfXdp => 3 * AF_XDP_KEPT_RECEIVE,
            Driver::Memif => 3 * DESCRIPTORS,
            _ if data_room > ORDINARY_BUFFER => 2 * DESCRIPTORS,
            _ => return None,
        };
        let count = u32::from(queues) * per_queue + u32::from(self.workers) * 1024 + self.in_rings();
        Some(PoolSize {
            count: count.next_power_of_two() - 1,
            data_room,
            cache: self.cache,
            adjoining: driver == Driver::AfXdp,
        })
    }

    /// Number of buffers planned for the hand-over rings: the capacity of two rings for each worker.
    pub(super) fn in_rings(&self) -> u32 {
        let full = u32::from(self.workers.saturating_sub(1).min(2));
        u32::from(self.workers) * full * self.handover
    }

    pub(super) fn common_pool(&self) -> PoolSize {
        PoolSize {
            count: self.buffers,
            data_room: ORDINARY_BUFFER,
            cache: self.cache,
            adjoining: false,
        }
    }

    /// Size of the pool from which workers allocate. `None` if the buffers of the common pool are large enough for
    /// every port.
    pub(super) fn made_pool(&self) -> Option<PoolSize> {
        let mtu = self.ports.iter().map(|port| port.mtu.min(9600)).max().unwrap_or(0);
        let data_room = data_room_for(mtu);
        let count = (u32::from(self.workers) * 1024).next_power_of_two() - 1;
        (data_room > ORDINARY_BUFFER).then_some(PoolSize {
            count,
            data_room,
            cache: self.cache,
            adjoining: false,
        })
    }

    /// Bytes of DPDK memory that the plan needs.
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

    /// Bytes of memory for kernel interfaces that may later be attached at free port indexes.
    pub(super) fn spare_bytes(&self) -> usize {
        let places = self.places.saturating_sub(self.ports.len());
        let pool = self.own_pool_of(Driver::AfXdp, self.workers, AF_XDP_BUFFER);
        places * pool.map_or(0, |size| size.bytes())
    }

    /// Requirements for the EAL. `cores` are the cores of the workers.
    pub fn needs(&self, cores: &[usize], hugepages: Option<bool>) -> EalRequirements {
        let pci = self.ports.iter().flat_map(|port| match &port.device {
            Device::Bond { members } => members.clone(),
            device => vec![device.clone()],
        });
        EalRequirements {
            bytes: self.bytes(),
            spare_bytes: self.spare_bytes(),
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

/// Buffer size for frames of an MTU. The size includes the Ethernet header, two VLAN tags, and virtio's overhead.
pub(super) fn data_room_for(mtu: u16) -> u16 {
    (HEADROOM + mtu.min(9600) + 64)
        .next_multiple_of(64)
        .max(ORDINARY_BUFFER)
}

/// Buffer size that a driver needs for an MTU.
pub(crate) fn data_room(driver: Driver, device: &Device, mtu: u16) -> u16 {
    let frame = data_room_for(mtu);
    match driver {
        Driver::AfXdp => AF_XDP_BUFFER,
        Driver::AfPacket if mtu > AF_PACKET_ORDINARY_MTU => JUMBO_BUFFER,
        Driver::Bond => {
            let Device::Bond { members } = device else {
                return ORDINARY_BUFFER;
            };
            let kernel = members.iter().any(|member| matches!(member, Device::Kernel { .. }));
            if kernel && mtu > AF_PACKET_ORDINARY_MTU {
                JUMBO_BUFFER
            } else {
                frame.max(ORDINARY_BUFFER)
            }
        }
        _ => frame,
    }
}

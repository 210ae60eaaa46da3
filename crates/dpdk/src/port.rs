//! Ports. A port is a device with its driver and queues.

mod configure;
mod error;
mod members;
mod opening;
mod sockets;

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::{Device, RingEnd};
use crate::driver::{Driver, DriverChoice, choose};
use crate::eal::Eal;
use crate::interface::{AllMulticast, Interface};
use crate::moderation::Moderation;
use crate::pool::Pool;
use crate::presence::Origin;
use crate::ring::{Pair, Ring};
use crate::steering::{self, HashKey, PortHash, Steered, SteeringError};
use crate::sys;
use opening::{Opening, arguments};

use sockets::Sockets;

pub use crate::steering::Steering;
pub use error::PortError;
pub use members::Member;

/// Description of a port to open.
#[derive(Clone, Debug)]
pub struct PortPlan {
    /// Name of the port in messages.
    pub name: String,
    /// Device of the port.
    pub device: Device,
    /// MTU: maximum size of an IP packet in bytes.
    pub mtu: u16,
    /// Requested number of queues.
    pub queues: u16,
    /// AF_XDP or AF_PACKET; overrides the automatic choice of the driver.
    pub driver: Option<Driver>,
    /// Whether to also receive frames for other stations (promiscuous mode).
    pub promiscuous: bool,
    /// MAC address to set. `None` keeps the device's address.
    pub mac: Option<[u8; 6]>,
    /// Packet fields that select the receive queue.
    pub steering: Steering,
    /// RSS key of the hash that selects the receive queue. `None` keeps the key of the driver.
    pub hash_key: Option<HashKey>,
    /// RSS key for a device that can't steer by `steering`. `None` means `hash_key`.
    pub fallback_key: Option<HashKey>,
    /// Whether to use receive interrupts if the driver supports them.
    pub interrupts: bool,
    /// Whether the opening of the whole set fails if this port fails. If false, the index of a failed port stays free.
    pub required: bool,
    /// Queue of each entry in the device's redirection table. The queues are repeated until the table is full. An empty
    /// list assigns queues round-robin.
    pub table: Vec<u16>,
}

impl PortPlan {
    /// Create a plan for a port with an MTU of 1,500 and one queue.
    pub fn new(name: &str, device: Device) -> Self {
        Self {
            name: name.into(),
            device,
            mtu: 1500,
            queues: 1,
            driver: None,
            promiscuous: false,
            mac: None,
            steering: Steering::default(),
            hash_key: None,
            fallback_key: None,
            interrupts: false,
            required: true,
            table: Vec::new(),
        }
    }
}

/// Frame and byte counters of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Frames dropped because the worker did not poll the queue in time.
    pub missed: u64,
    /// Frames received with errors.
    pub receive_errors: u64,
    /// Frames that could not be sent.
    pub transmit_errors: u64,
    /// Frames dropped because no buffer was available.
    pub no_buffer: u64,
}

/// State of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Whether the link is up.
    pub up: bool,
    /// Speed in megabits per second. 0 if unknown.
    pub megabits: u32,
}

/// A started port. Dropping the port stops and closes it.
#[derive(Debug)]
pub struct Port {
    name: String,
    number: u16,
    choice: DriverChoice,
    /// Name of DPDK's driver for the device.
    model: String,
    mtu: u16,
    offload: bool,
    /// Whether the device is removed from DPDK when the port is closed.
    detach: AtomicBool,
    origin: Origin,
    /// Current receive steering, as last read from the device. A change of the steering holds the lock.
    steered: Mutex<Steered>,
    /// Members of a bond. Members are closed after the bond.
    members: Mutex<Vec<members::Place>>,
    /// Description with which the port was opened.
    plan: PortPlan,
    /// Rings of a ring port, and whether the port is end A. The rings are freed after the port.
    pair: Option<(Arc<Pair>, bool)>,
    /// Workers with a transmit queue, in the order of the queues.
    senders: Vec<u16>,
    /// XDP sockets of the port. Sockets that DPDK leaves open are closed after the port.
    sockets: Sockets,
    /// All-multicast mode of the kernel interface.
    multicasts: Option<AllMulticast>,
    /// Changed settings of the kernel interface. The previous settings are restored after the port is closed.
    moderation: Option<Moderation>,
    /// Pool of the port's receive buffers. The pool lives longer than the port.
    _pool: Arc<Pool>,
}

impl Port {
    /// Open, configure and start a port. Only workers in `receivers` get receive queues, and only workers in `senders`
    /// get transmit queues.
    pub(crate) fn open(
        eal: &Eal,
        plan: &PortPlan,
        (receivers, senders): (&[u16], &[u16]),
        pool: &Arc<Pool>,
    ) -> Result<Port, PortError> {
        let max = u16::try_from(receivers.len()).unwrap_or(u16::MAX);
        let choice = choose(&plan.device, plan.mtu, plan.queues.min(max), plan.driver);
        let opening = Opening { plan, choice };
        opening.check()?;
        let steering_request = opening.steering_request()?;
        // The members of a bond must be opened before the bond. The interface of a TAP device exists only after the
        // probe of the device.
        if !matches!(plan.device, Device::Tap { .. }) {
            opening.prepare()?;
        }
        let mut port = Port {
            name: plan.name.clone(),
            number: u16::MAX,
            choice: opening.choice.clone(),
            model: String::new(),
            mtu: plan.mtu,
            offload: false,
            detach: AtomicBool::new(true),
            origin: Origin::of(&plan.device),
            senders: Vec::new(),
            steered: Mutex::new(Steered::not(plan.steering, opening.choice.queues)),
            members: Mutex::default(),
            plan: plan.clone(),
            pair: None,
            sockets: Sockets::default(),
            multicasts: None,
            moderation: None,
            _pool: pool.clone(),
        };
        if let (Device::Kernel { interface }, Driver::AfXdp) = (&plan.device, port.choice.driver) {
            port.moderation = Moderation::set(interface);
        }
        match &plan.device {
            Device::Ring { name, end, depth } => port.attach_rings(eal, &opening, name, *end, *depth)?,
            Device::Bond { members } => port.attach_members(&opening, members)?,
            device => {
                let probed = opening.probe(device, opening.choice.driver)?;
                (port.number, port.detach, port.multicasts) = (probed.number, probed.detach.into(), probed.multicasts);
                if matches!(device, Device::Tap { .. }) {
                    opening.prepare()?;
                }
            }
        }
        port.senders = port.transmitting_workers(receivers, senders);
        let before = match port.choice.driver {
            Driver::AfXdp => Sockets::open_now(),
            _ => Sockets::default(),
        };
        let configured = port.configure(&opening, &steering_request, pool);
        if port.choice.driver == Driver::AfXdp {
            port.sockets = Sockets::opened_since(&before);
        }
        configured.map(|()| port)
    }

    /// Workers that get a transmit queue. Cards provide the requested number of transmit queues. Other drivers provide
    /// receive and transmit queues only in pairs.
    fn transmitting_workers(&self, receivers: &[u16], senders: &[u16]) -> Vec<u16> {
        match self.choice.driver {
            // LACP requires regular transmit calls of the receiving workers.
            Driver::Bond => {
                let more = receivers.iter().filter(|worker| !senders.contains(worker));
                senders.iter().chain(more).copied().collect()
            }
            Driver::Native => senders.to_vec(),
            _ => senders.iter().copied().take(self.choice.queues.into()).collect(),
        }
    }

    fn attach_rings(
        &mut self,
        eal: &Eal,
        opening: &Opening<'_>,
        name: &str,
        end: RingEnd,
        depth: u32,
    ) -> Result<(), PortError> {
        let queues = self.choice.queues;
        let pair = Pair::named(eal, name, end == RingEnd::Loop, depth, queues).map_err(|source| PortError::Ring {
            port: self.name.clone(),
            source,
        })?;
        let rings = |rings: &[Ring]| rings.iter().map(|ring| ring.raw()).collect::<Vec<_>>();
        let (mut receive, mut transmit) = match end {
            RingEnd::Loop => (rings(&pair.forward), rings(&pair.forward)),
            RingEnd::A => (rings(&pair.reverse), rings(&pair.forward)),
            RingEnd::B => (rings(&pair.forward), rings(&pair.reverse)),
        };
        let (unique, _) = arguments(&opening.plan.device, Driver::Ring, queues, self.mtu);
        let unique = CString::new(unique).unwrap_or_default();
        // SAFETY: the number of rings equals the number of queues. The port holds `pair`, which keeps the rings alive.
        let number = unsafe {
            sys::sluice_port_from_rings(unique.as_ptr(), receive.as_mut_ptr(), transmit.as_mut_ptr(), queues)
        };
        self.number = number.try_into().map_err(|_| opening.refused("open", number))?;
        self.pair = Some((pair, end != RingEnd::B));
        Ok(())
    }

    /// Name of the port in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Remove the device from DPDK when the port is closed, so that other programs can use the device.
    pub(crate) fn release_device(&self) {
        self.detach.store(true, Ordering::Relaxed);
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Driver of the port.
    pub fn driver(&self) -> Driver {
        self.choice.driver
    }

    /// The driver, the number of queues, and the reason for the choice.
    pub fn choice(&self) -> &DriverChoice {
        &self.choice
    }

    /// Name of a card's DPDK driver, and capabilities of the card. `None` for other devices.
    pub fn offer(&self) -> Option<String> {
        let capabilities = self.steering().capabilities;
        let capabilities = capabilities.filter(|_| self.choice.driver == Driver::Native)?;
        Some(format!("{}, offers {capabilities}", self.model))
    }

    /// Workers with a transmit queue.
    pub fn senders(&self) -> &[u16] {
        &self.senders
    }

    /// Number of transmit queues.
    pub fn transmit_queues(&self) -> u16 {
        u16::try_from(self.senders.len()).unwrap_or(u16::MAX)
    }

    /// Number of receive queues, equal to the number of workers that receive from the port.
    pub fn queues(&self) -> u16 {
        self.choice.queues
    }

    /// MTU: maximum size of an IP packet in bytes.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Current receive steering, as last read from the device.
    pub fn steering(&self) -> Steered {
        self.steered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Change the redirection table, even under traffic. Entry `k` of the device's table selects queue `table[k]`. For
    /// a longer device table, `table` is repeated. The device's actual table is read back into
    /// [`steering`](Self::steering), and a difference is an error. Frames in flight may still arrive at their previous
    /// queue, and some cards stop receiving for a short time.
    pub fn set_table(&self, table: &[u16]) -> Result<(), SteeringError> {
        let mut steered = self.steered.lock().unwrap_or_else(PoisonError::into_inner);
        steering::set_table(&PortHash(self.number), &mut steered, table)
    }

    /// Whether the queues of the port can wake a waiting thread.
    pub fn interrupts(&self) -> bool {
        // SAFETY: the port is open.
        unsafe { sys::sluice_interrupts(self.number) != 0 }
    }

    /// Whether workers coalesce the frames of this port, because the device has no interrupts.
    pub(crate) fn is_coalesced(&self) -> bool {
        self.choice.driver == Driver::AfXdp && self.moderation.is_none()
    }

    /// Whether the device supports checksum offload for L4 checksums.
    pub fn completes_checksums(&self) -> bool {
        self.offload
    }

    /// MAC address. All zeros if the device has no MAC address.
    pub fn mac(&self) -> [u8; 6] {
        let mut mac = [0; 6];
        // SAFETY: the call writes six bytes.
        unsafe { sys::sluice_port_mac(self.number, mac.as_mut_ptr()) };
        mac
    }

    /// Current state of the link. The link counts as up if the driver can't report it.
    pub fn link(&self) -> Link {
        let (mut up, mut megabits) = (0, 0);
        // SAFETY: the call writes `up` and `megabits`.
        let error = unsafe { sys::sluice_port_link(self.number, &mut up, &mut megabits) };
        // Query the kernel, because the AF_PACKET driver always reports that the link is up.
        let carrier = match (&self.plan.device, self.choice.driver) {
            (Device::Kernel { interface }, Driver::AfPacket) => {
                Interface::named(interface).is_ok_and(|interface| interface.runs())
            }
            _ => self.has_carrier(),
        };
        // DPDK does not update a bond's link state when a member is removed.
        let carrier = carrier && (self.choice.driver != Driver::Bond || self.active_members() > 0);
        let up = carrier && (up != 0 || error == -libc::ENOTSUP);
        Link { up, megabits }
    }

    /// Bring the link up or down, if the driver supports it.
    ///
    /// # Errors
    /// The driver does not support this operation, or the device rejects it.
    pub fn set_link(&self, up: bool) -> Result<(), std::io::Error> {
        // SAFETY: the port is open.
        match unsafe { sys::sluice_port_set_link(self.number, i32::from(up)) } {
            0 => Ok(()),
            error => Err(std::io::Error::from_raw_os_error(-error)),
        }
    }

    /// Counters of the device. All counters are 0 for a device without counters.
    pub fn statistics(&self) -> Statistics {
        let mut raw = std::mem::MaybeUninit::<sys::sluice_port_statistics>::zeroed();
        // SAFETY: the call writes the result or leaves it zero, which is also a valid value.
        let raw = unsafe {
            sys::sluice_port_statistics(self.number, raw.as_mut_ptr());
            raw.assume_init()
        };
        Statistics {
            received: raw.received,
            sent: raw.sent,
            received_bytes: raw.received_bytes,
            sent_bytes: raw.sent_bytes,
            missed: raw.missed,
            receive_errors: raw.receive_errors,
            transmit_errors: raw.transmit_errors,
            no_buffer: raw.no_buffer,
        }
    }

    /// Number of active LACP members of a bond; 0 for other ports.
    pub fn active_members(&self) -> usize {
        let mut members = [0; 16];
        if self.choice.driver != Driver::Bond {
            return 0;
        }
        // SAFETY: the array has room for the stated number of elements.
        let count = unsafe { sys::sluice_bond_active(self.number, members.as_mut_ptr(), members.len() as u16) };
        count.max(0) as usize
    }

    /// For a ring port: number of frames in the rings to this end, and number of frames in the rings to the other end.
    pub fn waiting(&self) -> (usize, usize) {
        match &self.pair {
            None => (0, 0),
            Some((pair, first)) => {
                let looped = pair.reverse.is_empty();
                (pair.waiting(looped || !first), pair.waiting(*first))
            }
        }
    }

    pub(crate) fn first_loop(&self) -> Option<&Ring> {
        let (pair, _) = self.pair.as_ref()?;
        pair.forward.first().filter(|_| pair.reverse.is_empty())
    }

    /// Keep a pool alive as long as the rings of a ring port, because the rings may contain buffers of the pool after
    /// the port is closed.
    pub(crate) fn outlive(&self, pool: &Arc<Pool>) {
        if let Some((pair, _)) = &self.pair {
            pair.keep(pool);
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if self.number != u16::MAX {
            // SAFETY: no queue is in use, because burst buffers hold the ports that they use. Errors are ignored.
            unsafe {
                sys::sluice_port_stop(self.number);
                sys::sluice_port_close(self.number, i32::from(*self.detach.get_mut()));
            }
        }
        self.sockets.close();
    }
}

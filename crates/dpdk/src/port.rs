//! Ports: a device, its driver, its queues.

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

/// A port to be opened.
#[derive(Clone, Debug)]
pub struct PortPlan {
    /// Name in messages.
    pub name: String,
    /// The device.
    pub device: Device,
    /// Bytes of the largest IP packet.
    pub mtu: u16,
    /// Queues wished for.
    pub queues: u16,
    /// AF_XDP or AF_PACKET, where the choice is not left to us.
    pub driver: Option<Driver>,
    /// Receive frames for other stations too.
    pub promiscuous: bool,
    /// Address to take; `None` keeps the device's.
    pub mac: Option<[u8; 6]>,
    /// Which fields choose the queue.
    pub steering: Steering,
    /// Key of the hash that chooses the queue; `None` leaves it to the driver.
    pub hash_key: Option<HashKey>,
    /// The key where the device steers otherwise than by `steering`; `None` is `hash_key` there, too.
    pub fallback_key: Option<HashKey>,
    /// Receive interrupts, where the driver has them.
    pub interrupts: bool,
    /// A set does not open without it. Otherwise its place stays free where it fails.
    pub required: bool,
    /// Queue of each entry of the device's table, begun again until that is full; empty gives each queue its turn.
    pub table: Vec<u16>,
}

impl PortPlan {
    /// A port with an MTU of 1,500 and one queue.
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

/// Frames and bytes as the device counts them.
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
    /// Frames lost because nobody fetched them in time.
    pub missed: u64,
    /// Frames received broken.
    pub receive_errors: u64,
    /// Frames not sent.
    pub transmit_errors: u64,
    /// Frames lost for want of a buffer.
    pub no_buffer: u64,
}

/// A link's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Up?
    pub up: bool,
    /// Megabits per second; 0 where unknown.
    pub megabits: u32,
}

/// A started port. It stops and closes when dropped.
#[derive(Debug)]
pub struct Port {
    name: String,
    number: u16,
    choice: DriverChoice,
    /// Name of the driver that DPDK has found for a card.
    model: String,
    mtu: u16,
    offload: bool,
    /// The device leaves DPDK when the port is closed.
    detach: AtomicBool,
    origin: Origin,
    /// How frames come to queues, as last read from the device; held while it is changed.
    steered: Mutex<Steered>,
    /// Members of a bond, closed after it.
    members: Mutex<Vec<members::Place>>,
    /// What it was opened by.
    plan: PortPlan,
    /// A ring port's rings, gone after it, and whether it is end A.
    pair: Option<(Arc<Pair>, bool)>,
    /// The workers that have a queue to send by, in the order of these.
    senders: Vec<u16>,
    /// XDP sockets that come with it, closed after it where DPDK leaves them.
    sockets: Sockets,
    /// The interface below takes multicasts.
    multicasts: Option<AllMulticast>,
    /// Settings of the interface below, put back after the port is closed.
    moderation: Option<Moderation>,
    /// What the port receives into; it outlives the port.
    _pool: Arc<Pool>,
}

impl Port {
    /// Open, configure and start a port with queues for these workers at most: those that receive, and those that send.
    pub(crate) fn open(
        eal: &Eal,
        plan: &PortPlan,
        (receivers, senders): (&[u16], &[u16]),
        pool: &Arc<Pool>,
    ) -> Result<Port, PortError> {
        let most = u16::try_from(receivers.len()).unwrap_or(u16::MAX);
        let choice = choose(&plan.device, plan.mtu, plan.queues.min(most), plan.driver);
        let opening = Opening { plan, choice };
        opening.check()?;
        let wish = opening.wish()?;
        // A bond's members are there before it, a TAP's interface after its probe.
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
        port.senders = port.served(receivers, senders);
        let before = match port.choice.driver {
            Driver::AfXdp => Sockets::open_now(),
            _ => Sockets::default(),
        };
        let configured = port.configure(&opening, &wish, pool);
        if port.choice.driver == Driver::AfXdp {
            port.sockets = Sockets::opened_since(&before);
        }
        configured.map(|()| port)
    }

    /// The workers that get a queue to send by. Cards have as many as are wished for; elsewhere queues come in pairs.
    fn served(&self, receivers: &[u16], senders: &[u16]) -> Vec<u16> {
        match self.choice.driver {
            // LACP wants its receivers to call for transmit now and then.
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
        // SAFETY: as many rings as queues, alive as long as `pair`, which the port keeps.
        let number = unsafe {
            sys::sluice_port_from_rings(unique.as_ptr(), receive.as_mut_ptr(), transmit.as_mut_ptr(), queues)
        };
        self.number = number.try_into().map_err(|_| opening.refused("open", number))?;
        self.pair = Some((pair, end != RingEnd::B));
        Ok(())
    }

    /// Name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device leaves DPDK with the port, so that others may have it.
    pub(crate) fn release_device(&self) {
        self.detach.store(true, Ordering::Relaxed);
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// What moves its frames.
    pub fn driver(&self) -> Driver {
        self.choice.driver
    }

    /// Driver, queues, and why.
    pub fn choice(&self) -> &DriverChoice {
        &self.choice
    }

    /// What DPDK's driver of a card is called, and what the card offers; none for other devices.
    pub fn offer(&self) -> Option<String> {
        let capabilities = self.steering().capabilities;
        let capabilities = capabilities.filter(|_| self.choice.driver == Driver::Native)?;
        Some(format!("{}, offers {capabilities}", self.model))
    }

    /// The workers that have a queue to send by.
    pub fn senders(&self) -> &[u16] {
        &self.senders
    }

    /// Queues to send by.
    pub fn transmit_queues(&self) -> u16 {
        u16::try_from(self.senders.len()).unwrap_or(u16::MAX)
    }

    /// Queues: as many workers receive from it.
    pub fn queues(&self) -> u16 {
        self.choice.queues
    }

    /// Bytes of the largest IP packet.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// How frames come to its queues, as last read from the device.
    pub fn steering(&self) -> Steered {
        self.steered.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Let hashes lead to other queues, also while frames come: entry `k` of the device's table leads to queue
    /// `table[k]`, begun again where the device's is longer. What the device then has is read back into
    /// [`steering`](Self::steering); where that is not `table`, it is an error. A frame on its way may still come to
    /// its former queue, and some cards stop for a moment.
    pub fn set_table(&self, table: &[u16]) -> Result<(), SteeringError> {
        let mut steered = self.steered.lock().unwrap_or_else(PoisonError::into_inner);
        steering::set_table(&PortHash(self.number), &mut steered, table)
    }

    /// Whether its queues can wake who waits for frames.
    pub fn interrupts(&self) -> bool {
        // SAFETY: the port is open.
        unsafe { sys::sluice_interrupts(self.number) != 0 }
    }

    /// The worker gathers its frames: it has no interrupts.
    pub(crate) fn is_coalesced(&self) -> bool {
        self.choice.driver == Driver::AfXdp && self.moderation.is_none()
    }

    /// The device computes L4 checksums that were left to it.
    pub fn completes_checksums(&self) -> bool {
        self.offload
    }

    /// Its MAC address; zeros where it has none.
    pub fn mac(&self) -> [u8; 6] {
        let mut mac = [0; 6];
        // SAFETY: six bytes are written.
        unsafe { sys::sluice_port_mac(self.number, mac.as_mut_ptr()) };
        mac
    }

    /// The state of its link now; up where its driver can't tell.
    pub fn link(&self) -> Link {
        let (mut up, mut megabits) = (0, 0);
        // SAFETY: both results are written.
        let error = unsafe { sys::sluice_port_link(self.number, &mut up, &mut megabits) };
        // AF_PACKET's driver says up whatever becomes of the interface.
        let carrier = match (&self.plan.device, self.choice.driver) {
            (Device::Kernel { interface }, Driver::AfPacket) => {
                Interface::named(interface).is_ok_and(|interface| interface.runs())
            }
            _ => self.has_carrier(),
        };
        // The state of a bond's link is not updated when a member is removed.
        let carrier = carrier && (self.choice.driver != Driver::Bond || self.active_members() > 0);
        let up = carrier && (up != 0 || error == -libc::ENOTSUP);
        Link { up, megabits }
    }

    /// Take its link up or down, as far as its driver can.
    ///
    /// # Errors
    /// The driver can't, or the device does not.
    pub fn set_link(&self, up: bool) -> Result<(), std::io::Error> {
        // SAFETY: the port is open.
        match unsafe { sys::sluice_port_set_link(self.number, i32::from(up)) } {
            0 => Ok(()),
            error => Err(std::io::Error::from_raw_os_error(-error)),
        }
    }

    /// What the device has counted; zeros where it can't tell.
    pub fn statistics(&self) -> Statistics {
        let mut raw = std::mem::MaybeUninit::<sys::sluice_port_statistics>::zeroed();
        // SAFETY: the result is written or stays zero, both are values of it.
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

    /// Members of a bond that LACP has made active; 0 for other ports.
    pub fn active_members(&self) -> usize {
        let mut members = [0; 16];
        if self.choice.driver != Driver::Bond {
            return 0;
        }
        // SAFETY: room for as many as said.
        let count = unsafe { sys::sluice_bond_active(self.number, members.as_mut_ptr(), members.len() as u16) };
        count.max(0) as usize
    }

    /// Frames that wait in a ring port to be received, and that it sent and the other end did not fetch yet.
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

    /// The rings of a ring port may hold this pool's buffers after the port is gone.
    pub(crate) fn outlive(&self, pool: &Arc<Pool>) {
        if let Some((pair, _)) = &self.pair {
            pair.keep(pool);
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if self.number != u16::MAX {
            // SAFETY: hands hold the port, so no queue is in use any more. Errors leave nothing to do.
            unsafe {
                sys::sluice_port_stop(self.number);
                sys::sluice_port_close(self.number, i32::from(*self.detach.get_mut()));
            }
        }
        self.sockets.close();
    }
}

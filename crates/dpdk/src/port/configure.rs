//! From a device that DPDK knows to a port that runs.

use std::sync::PoisonError;

use super::opening::Opening;
use super::{Port, PortError};
use crate::device::Device;
use crate::driver::Driver;
use crate::eal::error_text;
use crate::interface::Interface;
use crate::pool::Pool;
use crate::set::DESCRIPTORS;
use crate::steering::{self, Attempt, HashDevice, HashKey, PortHash, Refusal, Wish};
use crate::sys;

/// Why a device is not set up.
struct Failure {
    error: Box<PortError>,
    /// Text of the error number.
    reason: String,
    /// It may be that with another hash it would be.
    may_be_the_hash: bool,
}

impl Port {
    pub(super) fn configure(&mut self, opening: &Opening<'_>, wish: &Wish, pool: &Pool) -> Result<(), PortError> {
        let plan = opening.plan;
        let (device, driver) = (plan.device.to_string(), self.choice.driver);
        let info = self
            .info()
            .map_err(|error| opening.refused("tell what it can do", error))?;
        // Who gets none hands over to who does.
        self.senders.truncate(info.transmit_queues.max(1).into());
        let wanted = self.choice.queues;
        let available = info.receive_queues;
        if available < wanted {
            let port = plan.name.clone();
            return Err(PortError::Queues {
                port,
                device,
                driver,
                wanted,
                available,
            });
        }
        self.offload = info.transmit_checksums != 0;
        let hash = PortHash(self.number);
        let capabilities = hash
            .capabilities()
            .map_err(|Refusal(reason)| opening.refused_for("tell what it can hash", reason))?;
        let configured = steering::configure(
            wish,
            &capabilities,
            |attempt| self.set_up(opening, attempt, pool),
            |failure| failure.may_be_the_hash.then(|| failure.reason.clone()),
        );
        let configured = configured.map_err(|failure| *failure.error)?;
        if let Some(mac) = plan.mac {
            self.set_mac(opening, mac)?;
        }
        // SAFETY: a configured port.
        match unsafe { sys::sluice_port_start(self.number) } {
            0 => {}
            error => return Err(opening.refused("start", error)),
        }
        *self.steered.get_mut().unwrap_or_else(PoisonError::into_inner) =
            steering::steer(&hash, wish, &capabilities, configured);
        // A bond gives its members the MTU that it has in DPDK, 1,500 at most: the kernel's is set once more.
        if self.choice.driver == Driver::Bond {
            opening.prepare()?;
        }
        // Neighbour discovery and LACP come by multicast. Drivers without filters have neither call, and need none.
        // SAFETY: a started port.
        unsafe {
            sys::sluice_port_all_multicast(self.number, 1);
            sys::sluice_port_promiscuous(self.number, i32::from(plan.promiscuous));
        }
        Ok(())
    }

    /// Give the device an Ethernet address: a kernel interface by the kernel, another by its driver.
    fn set_mac(&self, opening: &Opening<'_>, mac: [u8; 6]) -> Result<(), PortError> {
        let step = "take its MAC address";
        if let Device::Kernel { interface } = &opening.plan.device {
            let set = Interface::named(interface).and_then(|interface| interface.set_mac(mac));
            return set.map_err(|error| opening.refused_for(step, error.to_string()));
        }
        // SAFETY: six bytes, read during the call.
        match unsafe { sys::sluice_port_set_mac(self.number, mac.as_ptr()) } {
            0 => Ok(()),
            error => Err(opening.refused(step, error)),
        }
    }

    /// Configure the device and its queues, with one way to hash.
    fn set_up(&self, opening: &Opening<'_>, attempt: &Attempt, pool: &Pool) -> Result<(), Failure> {
        let plan = opening.plan;
        let key = attempt.key.as_ref().map_or(&[][..], HashKey::bytes);
        let settings = sys::sluice_port_settings {
            receive_queues: self.choice.queues,
            transmit_queues: self.transmit_queues(),
            descriptors: DESCRIPTORS as u16,
            mtu: plan.mtu,
            set_mtu: i32::from(plan.has_mtu_in_dpdk()),
            hash_functions: attempt.functions.bits(),
            hash_key: if key.is_empty() { std::ptr::null() } else { key.as_ptr() },
            hash_key_bytes: key.len() as u8,
            interrupts: i32::from(plan.interrupts),
            pool: pool.raw(),
        };
        let mut step = 0;
        // SAFETY: the settings and what they point to live during the call; the pool outlives the port.
        let error = unsafe { sys::sluice_port_configure(self.number, &settings, &mut step) };
        if error == 0 {
            return Ok(());
        }
        let reason = error_text(error);
        let error = match step as u32 {
            sys::SLUICE_STEP_MTU => PortError::Mtu {
                port: plan.name.clone(),
                device: plan.device.to_string(),
                driver: self.choice.driver,
                mtu: plan.mtu,
                reason: reason.clone(),
            },
            sys::SLUICE_STEP_RECEIVE_QUEUE => opening.refused("set up a receive queue", error),
            sys::SLUICE_STEP_TRANSMIT_QUEUE => opening.refused("set up a transmit queue", error),
            _ => opening.refused("be configured", error),
        };
        Err(Failure {
            error: Box::new(error),
            reason,
            may_be_the_hash: step as u32 == sys::SLUICE_STEP_CONFIGURE,
        })
    }

    fn info(&self) -> Result<sys::sluice_port_info, i32> {
        let mut info = std::mem::MaybeUninit::zeroed();
        // SAFETY: the result is written; all zeros is a value of it anyhow.
        match unsafe { sys::sluice_port_info(self.number, info.as_mut_ptr()) } {
            // SAFETY: as above.
            0 => Ok(unsafe { info.assume_init() }),
            error => Err(error),
        }
    }
}

//! Configuration and start of a device that DPDK has probed.

use std::sync::PoisonError;

use super::opening::{Opening, TAKE_MAC};
use super::{Port, PortError};
use crate::device::Device;
use crate::driver::Driver;
use crate::eal::error_text;
use crate::pool::Pool;
use crate::set::DESCRIPTORS;
use crate::steering::{
    self, Attempt, Capabilities, Configured, HashDevice, HashKey, PortHash, Refusal, SteeringRequest,
};
use crate::sys;

/// Milliseconds between polls of the link states of a bond's members. Each poll may read a PHY.
const LINK_PERIOD: u32 = 100;

/// Why the setup of a device failed.
struct Failure {
    error: Box<PortError>,
    /// Text of the error number.
    reason: String,
    step: Step,
}

/// Step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Configuration of the device with its queues and hash.
    Configure,
    ReceiveQueue,
    TransmitQueue,
    Start,
    /// Any step that is independent of the number of queues.
    Other,
}

/// Requested numbers of queues, and whether interrupts are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    queues: u16,
    senders: usize,
    interrupts: bool,
}

impl Shape {
    /// The next request after a failed step. If interrupts are wanted, each number of queues is requested first with
    /// interrupts, then without. `None` if a smaller request would not help.
    fn less(self, failed: Step, interrupts: bool) -> Option<Self> {
        let (receive, send) = (self.queues > 1, self.senders > 1);
        match failed {
            Step::Other => None,
            _ if self.interrupts => Some(Self {
                interrupts: false,
                ..self
            }),
            _ if receive && !(send && failed == Step::TransmitQueue) => Some(Self {
                queues: self.queues / 2,
                interrupts,
                ..self
            }),
            _ if send => Some(Self {
                senders: self.senders / 2,
                interrupts,
                ..self
            }),
            _ => None,
        }
    }
}

impl Port {
    pub(super) fn configure(
        &mut self,
        opening: &Opening<'_>,
        steering_request: &SteeringRequest,
        pool: &Pool,
    ) -> Result<(), PortError> {
        let plan = opening.plan;
        let info = self
            .info()
            .map_err(|error| opening.refused("report its capabilities", error))?;
        // Workers without a transmit queue hand their frames over to workers that have one.
        self.senders.truncate(info.transmit_queues.max(1).into());
        let (wanted, available) = (self.choice.queues, info.receive_queues);
        if available < wanted && self.choice.driver != Driver::Native {
            return Err(PortError::Queues {
                port: plan.name.clone(),
                device: plan.device.to_string(),
                driver: self.choice.driver,
                wanted,
                available,
            });
        }
        if available < wanted {
            self.choice.queues = available.max(1);
            self.choice.reason = format!("the card has only {available} of the {wanted} configured queues");
        }
        self.model = model(&info);
        self.offload = info.transmit_checksums != 0;
        let hash = PortHash(self.number);
        let capabilities = hash
            .capabilities()
            .map_err(|Refusal(reason)| opening.refused_because("report its hash functions", reason))?;
        let (steering_request, configured) = self.start(opening, steering_request, &capabilities, pool)?;
        *self.steered.get_mut().unwrap_or_else(PoisonError::into_inner) =
            steering::steer(&hash, &steering_request, &capabilities, configured);
        // A bond sets the MTU of its members to DPDK's MTU of the bond, which is at most 1,500. Therefore set the
        // kernel's MTU again.
        if self.choice.driver == Driver::Bond {
            opening.prepare()?;
        }
        // Neighbour discovery uses multicast. Drivers without address filters do not support these calls and do not
        // need them. A bond is promiscuous for two reasons. With LACP, the partner sends to the bond's address through
        // every member, but in DPDK each member keeps its own address. The bond's own filter also drops broadcasts if
        // no member supports all-multicast, as with kernel interfaces. SAFETY: the port is started.
        unsafe {
            sys::sluice_port_all_multicast(self.number, 1);
            let promiscuous = plan.promiscuous || self.choice.driver == Driver::Bond;
            sys::sluice_port_promiscuous(self.number, i32::from(promiscuous));
        }
        Ok(())
    }

    /// Set the device's MAC address. The address of a kernel interface is set by [`Opening::prepare`].
    fn set_mac(&self, opening: &Opening<'_>, mac: [u8; 6]) -> Result<(), PortError> {
        if matches!(opening.plan.device, Device::Kernel { .. }) {
            return Ok(());
        }
        // SAFETY: the call reads six bytes.
        match unsafe { sys::sluice_port_set_mac(self.number, mac.as_ptr()) } {
            0 => Ok(()),
            error => Err(opening.refused(TAKE_MAC, error)),
        }
    }

    /// Start the device as requested. If a card rejects the request, make smaller requests, down to one queue without
    /// interrupts. Workers without a queue then hand packets over. If all requests fail, return the first error.
    fn start(
        &mut self,
        opening: &Opening<'_>,
        steering_request: &SteeringRequest,
        capabilities: &Capabilities,
        pool: &Pool,
    ) -> Result<(SteeringRequest, Configured), PortError> {
        let wanted = self.choice.queues;
        let interrupts = opening.interrupts();
        let mut shape = Shape {
            queues: wanted,
            senders: self.senders.len(),
            interrupts,
        };
        let mut first: Option<Failure> = None;
        loop {
            let steering_request = steering_request.with_queues(self.choice.queues);
            let failure = match self.try_start(opening, &steering_request, capabilities, shape.interrupts, pool) {
                Ok(configured) => {
                    if let Some(Failure { reason, .. }) = first.filter(|_| self.choice.queues < wanted) {
                        self.choice.reason = format!("the card refuses {wanted} queues: {reason}");
                    }
                    return Ok((steering_request, configured));
                }
                Err(failure) => failure,
            };
            let less = shape.less(failure.step, interrupts);
            let less = less.filter(|_| self.choice.driver == Driver::Native);
            let first = first.get_or_insert(failure);
            let Some(less) = less else {
                return Err((*first.error).clone());
            };
            shape = less;
            self.choice.queues = shape.queues;
            self.senders.truncate(shape.senders);
        }
    }

    fn try_start(
        &self,
        opening: &Opening<'_>,
        steering_request: &SteeringRequest,
        capabilities: &Capabilities,
        interrupts: bool,
        pool: &Pool,
    ) -> Result<Configured, Failure> {
        let configured = steering::configure(
            steering_request,
            capabilities,
            |attempt| self.set_up(opening, attempt, interrupts, pool),
            |failure| (failure.step == Step::Configure).then(|| failure.reason.clone()),
        )?;
        let failed = |what, step, error| Failure {
            error: Box::new(opening.refused(what, error)),
            reason: error_text(error),
            step,
        };
        if let Some(mac) = opening.plan.mac {
            self.set_mac(opening, mac).map_err(|error| Failure {
                reason: error.to_string(),
                error: Box::new(error),
                step: Step::Other,
            })?;
        }
        if self.choice.driver == Driver::Bond {
            // The MAC address must be set before LACP sends its first frame.
            self.share_mac();
            // SAFETY: the port is a configured bond. A bond that rejects the period keeps its default of 10 ms.
            unsafe { sys::sluice_bond_look_every(self.number, LINK_PERIOD) };
        }
        // SAFETY: the port is configured.
        match unsafe { sys::sluice_port_start(self.number) } {
            0 => Ok(configured),
            error => Err(failed("start", Step::Start, error)),
        }
    }

    /// Configure the device and its queues, with one setting of the hash.
    fn set_up(&self, opening: &Opening<'_>, attempt: &Attempt, interrupts: bool, pool: &Pool) -> Result<(), Failure> {
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
            interrupts: i32::from(interrupts),
            pool: pool.raw(),
        };
        let mut step = 0;
        // SAFETY: the settings and the data to which they point live during the call, and the pool lives longer than
        // the port.
        let error = unsafe { sys::sluice_port_configure(self.number, &settings, &mut step) };
        if error == 0 {
            return Ok(());
        }
        let reason = error_text(error);
        let (error, step) = match step as u32 {
            sys::SLUICE_STEP_MTU => {
                let mtu = PortError::Mtu {
                    port: plan.name.clone(),
                    device: plan.device.to_string(),
                    driver: self.choice.driver,
                    mtu: plan.mtu,
                    reason: reason.clone(),
                };
                (mtu, Step::Other)
            }
            sys::SLUICE_STEP_RECEIVE_QUEUE => (opening.refused("set up a receive queue", error), Step::ReceiveQueue),
            sys::SLUICE_STEP_TRANSMIT_QUEUE => (opening.refused("set up a transmit queue", error), Step::TransmitQueue),
            sys::SLUICE_STEP_CONFIGURE => (opening.refused("be configured", error), Step::Configure),
            _ => (opening.refused("be configured", error), Step::Other),
        };
        Err(Failure {
            error: Box::new(error),
            reason,
            step,
        })
    }

    fn info(&self) -> Result<sys::sluice_port_info, i32> {
        let mut info = std::mem::MaybeUninit::zeroed();
        // SAFETY: the call writes the result.
        match unsafe { sys::sluice_port_info(self.number, info.as_mut_ptr()) } {
            // SAFETY: the call has succeeded and written the result.
            0 => Ok(unsafe { info.assume_init() }),
            error => Err(error),
        }
    }
}

/// Name of DPDK's driver for a device.
fn model(info: &sys::sluice_port_info) -> String {
    let bytes: Vec<u8> = info
        .driver
        .iter()
        .map(|&byte| byte as u8)
        .take_while(|&byte| byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the sequence of requests to a card. `failing` returns the step at which the card fails a request, if the
    /// request exceeds its capabilities.
    fn requested(desired: Shape, failing: impl Fn(Shape) -> Option<Step>) -> Vec<(u16, usize, bool)> {
        let mut shapes = vec![desired];
        while let Some(step) = failing(shapes[shapes.len() - 1])
            && let Some(less) = shapes[shapes.len() - 1].less(step, desired.interrupts)
        {
            shapes.push(less);
        }
        let numbers = shapes
            .iter()
            .map(|shape| (shape.queues, shape.senders, shape.interrupts));
        numbers.collect()
    }

    const DESIRED: Shape = Shape {
        queues: 4,
        senders: 4,
        interrupts: false,
    };

    #[test]
    fn card_that_starts_with_one_queue_alone_is_asked_for_fewer_until_it_does() {
        let failing = |shape: Shape| (shape.queues > 1).then_some(Step::Start);
        assert_eq!(
            vec![(4, 4, false), (2, 4, false), (1, 4, false)],
            requested(DESIRED, failing)
        );
    }

    #[test]
    fn card_with_two_queues_to_send_by_keeps_those_to_receive_by() {
        let failing = |shape: Shape| (shape.senders > 2).then_some(Step::TransmitQueue);
        assert_eq!(vec![(4, 4, false), (4, 2, false)], requested(DESIRED, failing));
    }

    #[test]
    fn card_without_interrupts_is_asked_for_none_before_queues_are_given_up() {
        let desired = Shape {
            interrupts: true,
            ..DESIRED
        };
        let failing = |shape: Shape| shape.interrupts.then_some(Step::Configure);
        assert_eq!(vec![(4, 4, true), (4, 4, false)], requested(desired, failing));
    }

    #[test]
    fn card_that_always_fails_is_asked_a_few_times_and_for_an_mtu_once() {
        assert_eq!(5, requested(DESIRED, |_| Some(Step::Configure)).len());
        assert_eq!(1, requested(DESIRED, |_| Some(Step::Other)).len());
    }
}

//! Members of a bond: ports below it, which come and go while the others carry on.

use std::ffi::{CStr, CString};
use std::sync::PoisonError;

use super::opening::{Opening, arguments};
use super::{Port, PortError};
use crate::device::Device;
use crate::driver::{Driver, choose};
use crate::interface::{AllMulticast, Interface};
use crate::presence::Origin;
use crate::sys;

/// A member that is open. It stops and closes when dropped: the bond must have let go of it, or be closed.
#[derive(Debug)]
pub struct Member {
    number: u16,
    detach: bool,
    origin: Origin,
    #[expect(dead_code, reason = "held for what closing it does")]
    multicasts: Option<AllMulticast>,
}

impl Drop for Member {
    fn drop(&mut self) {
        // SAFETY: the bond that used it has let go of it, or is closed. Errors leave nothing to do.
        unsafe {
            sys::sluice_port_stop(self.number);
            sys::sluice_port_close(self.number, i32::from(self.detach));
        }
    }
}

/// A member's place in the bond.
#[derive(Debug)]
pub(super) struct Place {
    device: Device,
    member: Option<Member>,
    /// Its kernel interface, where DPDK's driver says that the link is up whatever becomes of it.
    interface: Option<Interface>,
}

impl Place {
    /// Whether its device was there and is gone, or asked for.
    fn is_gone(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.origin.is_gone())
    }

    fn has_carrier(&self) -> bool {
        self.interface.as_ref().is_none_or(Interface::runs)
    }

    /// Whether the bond has it, and frames may come and go.
    fn serves(&self) -> bool {
        self.member.is_some() && !self.is_gone() && self.has_carrier()
    }
}

impl Opening<'_> {
    /// The driver of a member.
    fn driver(&self, device: &Device) -> Driver {
        let wanted = self.plan.driver.unwrap_or(Driver::AfPacket);
        choose(device, self.plan.mtu, 1, Some(wanted)).driver
    }

    /// Make a member known to DPDK. Returns DPDK's name of it, too.
    fn member(&self, device: &Device) -> Result<(Member, CString), PortError> {
        let origin = Origin::of(device);
        let probed = self.probe(device, self.driver(device))?;
        let member = Member {
            number: probed.number,
            detach: probed.detach,
            origin,
            multicasts: probed.multicasts,
        };
        // SAFETY: the number of an open port that no bond has yet.
        match unsafe { sys::sluice_bond_poll_link(member.number) } {
            0 => {}
            error => return Err(self.refused("look at a member's link", error)),
        }
        Ok((member, probed.name))
    }
}

fn lost(places: &mut [Place]) -> impl Iterator<Item = &mut Place> {
    let others = places.iter().any(Place::serves);
    let is_lost =
        move |place: &&mut Place| place.is_gone() || (others && place.member.is_some() && !place.has_carrier());
    places.iter_mut().filter(is_lost)
}

impl Port {
    pub(super) fn attach_members(&mut self, opening: &Opening<'_>, members: &[Device]) -> Result<(), PortError> {
        let (name, mut text) = arguments(&opening.plan.device, Driver::Bond, 1, self.mtu);
        // SAFETY: returns a static string.
        let argument = unsafe { CStr::from_ptr(sys::sluice_bond_member_argument()) }.to_string_lossy();
        let places = self.members.get_mut().unwrap_or_else(PoisonError::into_inner);
        for device in members {
            let (member, name) = opening.member(device)?;
            text += &format!(",{argument}={}", name.to_string_lossy());
            places.push(Place {
                device: device.clone(),
                member: Some(member),
                interface: match (device, opening.driver(device)) {
                    (Device::Kernel { interface }, Driver::AfPacket) => Interface::named(interface).ok(),
                    _ => None,
                },
            });
        }
        let arguments = CString::new(format!("{name}{text}")).unwrap_or_default();
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: C strings; the number is written on success.
        let error = unsafe {
            match sys::sluice_device_probe(arguments.as_ptr()) {
                0 => sys::sluice_port_by_name(name.as_ptr(), &mut self.number),
                error => error,
            }
        };
        if error == 0 {
            Ok(())
        } else {
            Err(opening.refused("open", error))
        }
    }

    fn places(&self) -> std::sync::MutexGuard<'_, Vec<Place>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its device is gone, or asked for by the kernel: the port is then to be closed. A bond goes with its last member.
    pub fn is_gone(&self) -> bool {
        let places = self.places();
        let is_left = |place: &Place| place.member.is_some() && !place.is_gone();
        match places.is_empty() {
            true => self.origin.is_gone(),
            false => !places.iter().any(is_left),
        }
    }

    /// Whether a member has a carrier, as far as DPDK does not tell; true of other ports.
    pub(super) fn has_carrier(&self) -> bool {
        let places = self.places();
        places.is_empty() || places.iter().any(Place::serves)
    }

    /// Members that the bond still has, and whose devices are gone, asked for, or without a carrier, which DPDK does not see and
    /// would go on to send by. A member without a carrier stays where no other member has one.
    pub fn lost_members(&self) -> Vec<Device> {
        lost(&mut self.places()).map(|place| place.device.clone()).collect()
    }

    /// Members that the bond does without, and that may be back.
    pub fn absent_members(&self) -> Vec<Device> {
        let places = self.places();
        let absent = places
            .iter()
            .filter(|place| place.member.is_none() && place.has_carrier());
        absent.map(|place| place.device.clone()).collect()
    }

    /// The bond lets go of lost members. No worker may call the port meanwhile.
    pub fn part_members(&self) -> Vec<Member> {
        let mut places = self.places();
        lost(&mut places)
            .filter_map(|place| {
                let mut member = place.member.take()?;
                // SAFETY: numbers of open ports.
                unsafe { sys::sluice_bond_remove(self.number, member.number) };
                member.detach = true;
                Some(member)
            })
            .collect()
    }

    /// Give members the bond's Ethernet address. LACP takes that of one member for the system's identifier, which would change
    /// when that member goes; where both ends change theirs at once, each ignores the other's LACPDUs until they time out.
    pub(super) fn share_mac(&self) {
        let mut mac = [0; 6];
        // SAFETY: room for six bytes.
        if unsafe { sys::sluice_port_mac(self.number, mac.as_mut_ptr()) } != 0 {
            return;
        }
        for member in self.places().iter().filter_map(|place| place.member.as_ref()) {
            // SAFETY: six bytes, read during the call. A member that refuses, or can't, goes on with its own.
            unsafe { sys::sluice_port_set_mac(member.number, mac.as_ptr()) };
        }
    }

    fn opening(&self) -> Opening<'_> {
        Opening {
            plan: &self.plan,
            choice: self.choice.clone(),
        }
    }

    /// A member's device is back: open it for [`Port::join_member`].
    ///
    /// # Errors
    /// It does not open.
    pub fn open_member(&self, device: &Device) -> Result<Member, PortError> {
        self.opening().member(device).map(|(member, _)| member)
    }

    /// The bond takes a member. No worker may call the port meanwhile.
    ///
    /// # Errors
    /// It does not take it.
    pub fn join_member(&self, device: &Device, member: Member) -> Result<(), PortError> {
        let opening = self.opening();
        // SAFETY: numbers of open ports.
        let error = unsafe { sys::sluice_bond_add(self.number, member.number) };
        if error != 0 {
            return Err(opening.refused("take a member", error));
        }
        // As the others are: DPDK passes a bond's mode on only when that changes.
        // SAFETY: an open port.
        unsafe { sys::sluice_port_promiscuous(member.number, 1) };
        opening.prepare()?;
        if let Some(place) = self.places().iter_mut().find(|place| place.device == *device) {
            place.member = Some(member);
        }
        self.share_mac();
        Ok(())
    }
}

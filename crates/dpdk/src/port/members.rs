//! Members of a bond. A member is a port that can be removed and added while other members keep running.

use std::ffi::{CStr, CString};
use std::sync::PoisonError;

use super::opening::{Opening, arguments};
use super::{Port, PortError};
use crate::device::Device;
use crate::driver::{Driver, choose};
use crate::interface::{AllMulticast, Interface};
use crate::presence::Origin;
use crate::sys;

/// An open member. Dropping the member stops and closes it. Before the drop, the bond must have removed the member or
/// must be closed.
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
        // SAFETY: the bond has removed the member or is closed. Errors are ignored.
        unsafe {
            sys::sluice_port_stop(self.number);
            sys::sluice_port_close(self.number, i32::from(self.detach));
        }
    }
}

/// A configured member of the bond, present or absent.
#[derive(Debug)]
pub(super) struct Place {
    device: Device,
    member: Option<Member>,
    /// Kernel interface of the member. The link state is read from the interface, because DPDK's driver always reports
    /// that the link is up.
    interface: Option<Interface>,
}

impl Place {
    /// Whether the member's device has been removed, or its removal is requested.
    fn is_removed(&self) -> bool {
        self.member.as_ref().is_some_and(|member| member.origin.is_removed())
    }

    fn has_carrier(&self) -> bool {
        self.interface.as_ref().is_none_or(Interface::runs)
    }

    /// Whether the bond contains the member, and the member can receive and send.
    fn serves(&self) -> bool {
        self.member.is_some() && !self.is_removed() && self.has_carrier()
    }
}

impl Opening<'_> {
    /// Driver of a member.
    fn driver(&self, device: &Device) -> Driver {
        let wanted = self.plan.driver.unwrap_or(Driver::AfPacket);
        choose(device, self.plan.mtu, 1, Some(wanted)).driver
    }

    /// Probe a member in DPDK. Returns the member and its name in DPDK.
    fn member(&self, device: &Device) -> Result<(Member, CString), PortError> {
        let origin = Origin::of(device);
        let probed = self.probe(device, self.driver(device))?;
        let member = Member {
            number: probed.number,
            detach: probed.detach,
            origin,
            multicasts: probed.multicasts,
        };
        // SAFETY: the number belongs to an open port that is not yet in a bond.
        match unsafe { sys::sluice_bond_poll_link(member.number) } {
            0 => {}
            error => return Err(self.refused("read the link state of a member", error)),
        }
        Ok((member, probed.name))
    }
}

fn lost(places: &mut [Place]) -> impl Iterator<Item = &mut Place> {
    let others = places.iter().any(Place::serves);
    let is_lost =
        move |place: &&mut Place| place.is_removed() || (others && place.member.is_some() && !place.has_carrier());
    places.iter_mut().filter(is_lost)
}

impl Port {
    pub(super) fn attach_members(&mut self, opening: &Opening<'_>, members: &[Device]) -> Result<(), PortError> {
        let (name, mut text) = arguments(&opening.plan.device, Driver::Bond, 1, self.mtu);
        // SAFETY: the function returns a static string.
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
        // SAFETY: the arguments are C strings, and the number is written only on success.
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

    /// Whether the port must be closed, because its device has been removed, or the kernel requests the removal. A bond
    /// must be closed when all members are gone.
    pub fn is_removed(&self) -> bool {
        let places = self.places();
        let is_left = |place: &Place| place.member.is_some() && !place.is_removed();
        match places.is_empty() {
            true => self.origin.is_removed(),
            false => !places.iter().any(is_left),
        }
    }

    /// Whether any member has a carrier, which DPDK does not report. True for ports other than bonds.
    pub(super) fn has_carrier(&self) -> bool {
        let places = self.places();
        places.is_empty() || places.iter().any(Place::serves)
    }

    /// Lost members of the bond: devices that have been removed, must be removed, or have no carrier. DPDK does not
    /// detect these losses and would continue to send through lost members. If no member has a carrier, members without
    /// a carrier are kept.
    pub fn lost_members(&self) -> Vec<Device> {
        lost(&mut self.places()).map(|place| place.device.clone()).collect()
    }

    /// Absent members of the bond whose devices may be available again.
    pub fn absent_members(&self) -> Vec<Device> {
        let places = self.places();
        let absent = places
            .iter()
            .filter(|place| place.member.is_none() && place.has_carrier());
        absent.map(|place| place.device.clone()).collect()
    }

    /// Remove lost members from the bond. No worker may use the port during this call.
    pub fn part_members(&self) -> Vec<Member> {
        let mut places = self.places();
        lost(&mut places)
            .filter_map(|place| {
                let mut member = place.member.take()?;
                // SAFETY: both numbers belong to open ports.
                unsafe { sys::sluice_bond_remove(self.number, member.number) };
                member.detach = true;
                Some(member)
            })
            .collect()
    }

    /// Set the bond's MAC address on its members. LACP uses the address of one member as system identifier, so the
    /// removal of this member would change the identifier. If both ends changed their identifiers simultaneously, each
    /// end would ignore LACPDUs of the other end until a timeout.
    pub(super) fn share_mac(&self) {
        let mut mac = [0; 6];
        // SAFETY: the array has room for six bytes.
        if unsafe { sys::sluice_port_mac(self.number, mac.as_mut_ptr()) } != 0 {
            return;
        }
        for member in self.places().iter().filter_map(|place| place.member.as_ref()) {
            // SAFETY: the call reads six bytes. A member that rejects the address keeps its own address.
            unsafe { sys::sluice_port_set_mac(member.number, mac.as_ptr()) };
        }
    }

    fn opening(&self) -> Opening<'_> {
        Opening {
            plan: &self.plan,
            choice: self.choice.clone(),
        }
    }

    /// Open a member whose device is available again. The caller then passes the member to [`Port::join_member`].
    ///
    /// # Errors
    /// The member can't be opened.
    pub fn open_member(&self, device: &Device) -> Result<Member, PortError> {
        self.opening().member(device).map(|(member, _)| member)
    }

    /// Add a member to the bond. No worker may use the port during this call.
    ///
    /// # Errors
    /// The bond rejects the member.
    pub fn join_member(&self, device: &Device, member: Member) -> Result<(), PortError> {
        let opening = self.opening();
        // SAFETY: both numbers belong to open ports.
        let error = unsafe { sys::sluice_bond_add(self.number, member.number) };
        if error != 0 {
            return Err(opening.refused("take a member", error));
        }
        // Set promiscuous mode on the new member, because DPDK forwards a bond's promiscuous mode to its members only
        // when the mode changes. SAFETY: the number belongs to an open port.
        unsafe { sys::sluice_port_promiscuous(member.number, 1) };
        opening.prepare()?;
        if let Some(place) = self.places().iter_mut().find(|place| place.device == *device) {
            place.member = Some(member);
        }
        self.share_mac();
        Ok(())
    }
}

//! Whether the device of a port is still there.
//!
//! A card that VFIO drives stays until its user lets go of it: the kernel asks, and DPDK passes that on. One that UIO drives is
//! gone at once, as a kernel interface is; the system shows that.

use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::device::{Device, PciAddress};
use crate::sys;

/// Cards that the kernel asks for.
static WANTED_BACK: Mutex<Vec<PciAddress>> = Mutex::new(Vec::new());

extern "C" fn wanted_back(name: *const c_char) {
    // SAFETY: DPDK calls with the name of a device, a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    if let Ok(address) = name.parse() {
        WANTED_BACK.lock().unwrap_or_else(PoisonError::into_inner).push(address);
    }
}

/// Hear from DPDK which cards the kernel asks for, and survive accesses to cards that are gone. Where DPDK can't, such a card
/// stays until the process ends.
pub(crate) fn watch() {
    // SAFETY: `wanted_back` is a function for ever and takes any thread's call.
    unsafe { sys::sluice_watch_removal(Some(wanted_back)) };
}

/// What a port was opened on.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// A card.
    Card(PciAddress),
    /// A kernel interface, with its number: another one may get its name.
    Interface(String, u32),
    /// A bond, or something of this process, or that another process may leave and come back to.
    Own,
}

impl Origin {
    /// What is there now.
    pub(crate) fn of(device: &Device) -> Self {
        match device {
            Device::Pci(address) => {
                let mut wanted = WANTED_BACK.lock().unwrap_or_else(PoisonError::into_inner);
                wanted.retain(|other| other != address);
                Origin::Card(*address)
            }
            Device::Kernel { interface } => Origin::Interface(interface.clone(), index(interface)),
            _ => Origin::Own,
        }
    }

    /// Whether it is gone, or asked for.
    pub(crate) fn is_gone(&self) -> bool {
        match self {
            Origin::Card(address) => {
                let wanted = WANTED_BACK.lock().unwrap_or_else(PoisonError::into_inner);
                wanted.contains(address) || !Path::new("/sys/bus/pci/devices").join(address.to_string()).exists()
            }
            Origin::Interface(name, number) => index(name) != *number,
            Origin::Own => false,
        }
    }
}

/// Number of a kernel interface; 0 where there is none of that name.
fn index(interface: &str) -> u32 {
    let Ok(name) = CString::new(interface) else { return 0 };
    // SAFETY: a C string, read during the call.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_is_gone_where_another_has_its_name() {
        let lo = Origin::of(&"lo".parse().unwrap());
        assert!(!lo.is_gone());
        assert!(Origin::Interface("lo".into(), 77).is_gone());
        assert!(Origin::Interface("no-such".into(), 1).is_gone());
    }

    #[test]
    fn card_is_gone_when_the_kernel_asks_for_it() {
        let address: PciAddress = "ffff:ff:1f.7".parse().unwrap();
        assert!(Origin::of(&Device::Pci(address)).is_gone(), "no such card");
        wanted_back(c"ffff:ff:1f.7".as_ptr());
        assert!(WANTED_BACK.lock().unwrap().contains(&address));
        Origin::of(&Device::Pci(address));
        assert!(!WANTED_BACK.lock().unwrap().contains(&address), "opened again");
    }
}

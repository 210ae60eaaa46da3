//! Detects removed devices.
//!
//! A removed card with VFIO remains until the process releases the card. The kernel requests the release, and DPDK
//! forwards this request. A removed card with UIO and a removed kernel interface disappear immediately from /sys.

use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::device::{Device, PciAddress};
use crate::sys;

/// Cards whose release the kernel has requested.
static REMOVAL_REQUESTS: Mutex<Vec<PciAddress>> = Mutex::new(Vec::new());

extern "C" fn removal_requested(name: *const c_char) {
    // SAFETY: DPDK passes the name of a device as a C string.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    if let Ok(address) = name.parse() {
        REMOVAL_REQUESTS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(address);
    }
}

/// Register for the removal requests that DPDK forwards, and make accesses to removed cards harmless. Without support
/// in DPDK, a removed card remains until the process ends.
pub(crate) fn watch_removals() {
    // SAFETY: `removal_requested` is a static function that any thread may call.
    unsafe { sys::sluice_watch_removal(Some(removal_requested)) };
}

/// The device on which a port was opened.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// A PCI card.
    Card(PciAddress),
    /// A kernel interface with its index. The index distinguishes the interface from a later interface with this name.
    Interface(String, u32),
    /// A bond, an object of this process, or a device to which another process may reconnect.
    Own,
}

impl Origin {
    /// The device that exists now under this name or address.
    pub(crate) fn of(device: &Device) -> Self {
        match device {
            Device::Pci(address) => {
                let mut wanted = REMOVAL_REQUESTS.lock().unwrap_or_else(PoisonError::into_inner);
                wanted.retain(|other| other != address);
                Origin::Card(*address)
            }
            Device::Kernel { interface } => Origin::Interface(interface.clone(), index(interface)),
            _ => Origin::Own,
        }
    }

    /// Whether the device has been removed, or its removal is requested.
    pub(crate) fn is_removed(&self) -> bool {
        match self {
            Origin::Card(address) => {
                let wanted = REMOVAL_REQUESTS.lock().unwrap_or_else(PoisonError::into_inner);
                wanted.contains(address) || !Path::new("/sys/bus/pci/devices").join(address.to_string()).exists()
            }
            Origin::Interface(name, number) => index(name) != *number,
            Origin::Own => false,
        }
    }
}

/// Index of a kernel interface; 0 for a missing interface.
fn index(interface: &str) -> u32 {
    let Ok(name) = CString::new(interface) else { return 0 };
    // SAFETY: the argument is a C string that is read during the call.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_is_gone_where_another_has_its_name() {
        let lo = Origin::of(&"lo".parse().unwrap());
        assert!(!lo.is_removed());
        assert!(Origin::Interface("lo".into(), 77).is_removed());
        assert!(Origin::Interface("no-such".into(), 1).is_removed());
    }

    #[test]
    fn card_is_gone_when_the_kernel_asks_for_it() {
        let address: PciAddress = "ffff:ff:1f.7".parse().unwrap();
        assert!(Origin::of(&Device::Pci(address)).is_removed(), "no such card");
        removal_requested(c"ffff:ff:1f.7".as_ptr());
        assert!(REMOVAL_REQUESTS.lock().unwrap().contains(&address));
        Origin::of(&Device::Pci(address));
        assert!(!REMOVAL_REQUESTS.lock().unwrap().contains(&address), "opened again");
    }
}

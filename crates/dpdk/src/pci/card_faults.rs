//! Detection of faults that prevent a card from being opened.

use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::Path;

use super::{Card, Mode, Process, System, UIO, VFIO, text};
use crate::device::PciAddress;

/// Fault that prevents a card from being opened. The fault's text has the form "problem: remedy".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CardFault {
    /// No device has this address.
    #[error("there is no PCI device {0}: `sluice bind` lists the network cards of this machine")]
    Absent(PciAddress),
    /// The device at the address is not a network card.
    #[error(
        "{address} is not a network card (class {class:06x}): `sluice bind` lists the network cards of this \
         machine"
    )]
    OtherDevice {
        /// PCI address of the device.
        address: PciAddress,
        /// PCI class.
        class: u32,
    },
    /// A kernel driver uses the card.
    #[error(
        "{address} is bound to the kernel driver {driver}{}: run `sluice bind {address}` as root, which binds the \
         card to {to}{}",
        named(.interface), instead(.interface)
    )]
    KernelDriver {
        /// PCI address of the card.
        address: PciAddress,
        /// Kernel driver.
        driver: String,
        /// Kernel interface.
        interface: Option<String>,
        /// Driver to which the card should be bound.
        to: &'static str,
    },
    /// No driver is bound to the card.
    #[error("{address} has no driver: run `sluice bind {address}` as root, which binds the card to {to}")]
    Unbound {
        /// PCI address of the card.
        address: PciAddress,
        /// Driver to which the card should be bound.
        to: &'static str,
    },
    /// The card is bound to VFIO without an IOMMU, but the kernel does not permit VFIO without an IOMMU.
    #[error(
        "{address} is bound to {VFIO} and not behind an IOMMU: turn on VT-d or AMD-Vi in the firmware and write intel_iommu=on or amd_iommu=on on the kernel's command line; or run sluice bind {address} --driver {UIO} as root"
    )]
    NoIommu {
        /// PCI address of the card.
        address: PciAddress,
    },
    /// UIO uses physical addresses, but the IOMMU of the card translates addresses.
    #[error(
        "{address} is bound to UIO, but an IOMMU translates addresses and blocks the card's memory accesses: run \
         `sluice bind {address}` as root, which binds the card to {VFIO}; or write iommu=pt on the kernel's command \
              line"
    )]
    Translated {
        /// PCI address of the card.
        address: PciAddress,
    },
    /// VFIO's IOMMU module is not loaded.
    #[error(
        "{address} is bound to {VFIO}, but the module vfio_iommu_type1 is not loaded: run modprobe \
         vfio_iommu_type1"
    )]
    NoType1 {
        /// PCI address of the card.
        address: PciAddress,
    },
    /// VFIO assigns only whole groups, and a kernel driver uses another device of the card's group.
    #[error(
        "{other} is in the IOMMU group {group} of {address} and is bound to the kernel driver {driver}: run {} as root, or put the card into another slot",
        release(*.other, *.is_card)
    )]
    GroupShared {
        /// PCI address of the card.
        address: PciAddress,
        /// Group number.
        group: u32,
        /// PCI address of the other device.
        other: PciAddress,
        /// Driver of the other device.
        driver: String,
        /// Whether the other device is also a network card.
        is_card: bool,
    },
    /// Another process uses the card.
    #[error("{address} is in use by {}: stop that process, or let that process use another card", by(.process))]
    InUse {
        /// PCI address of the card.
        address: PciAddress,
        /// The other process, if visible in `/proc`.
        process: Option<Process>,
    },
    /// This process lacks a permission to access the card.
    #[error("no permission to use {address} ({what}): {advice}")]
    NoPermission {
        /// PCI address of the card.
        address: PciAddress,
        /// Operation that was attempted.
        what: String,
        /// Advice to the operator.
        advice: &'static str,
    },
}

fn named(interface: &Option<String>) -> String {
    let named = interface.as_ref().map(|name| format!(" (interface {name})"));
    named.unwrap_or_default()
}

fn instead(interface: &Option<String>) -> String {
    let named = interface.as_ref().map(|name| format!("; or write device = \"{name}\""));
    named.unwrap_or_default()
}

fn release(other: PciAddress, is_card: bool) -> String {
    match is_card {
        true => format!("sluice bind {other}"),
        false => format!("echo {other} > /sys/bus/pci/devices/{other}/driver/unbind"),
    }
}

fn by(process: &Option<Process>) -> String {
    let named = process.as_ref().map(ToString::to_string);
    named.unwrap_or("another process".into())
}

/// All detected faults that prevent the card from being opened.
pub fn card_faults(system: &System, address: PciAddress) -> Vec<CardFault> {
    let Some(card) = system.card(address) else {
        return vec![CardFault::Absent(address)];
    };
    if !card.is_network() {
        let class = card.class;
        return vec![CardFault::OtherDevice { address, class }];
    }
    let to = card.best_driver();
    match card.mode() {
        Mode::Bifurcated => Vec::new(),
        Mode::Unbound => vec![CardFault::Unbound { address, to }],
        Mode::Kernel => vec![CardFault::KernelDriver {
            address,
            driver: card.driver.unwrap_or_default(),
            interface: card.interfaces.into_iter().next(),
            to,
        }],
        Mode::Uio => uio(system, &card),
        Mode::VfioWithoutIommu if !system.allows_vfio_without_iommu() => vec![CardFault::NoIommu { address }],
        Mode::Vfio | Mode::VfioNarrow | Mode::VfioWithoutIommu => vfio(system, &card),
    }
}

fn uio(system: &System, card: &Card) -> Vec<CardFault> {
    let address = card.address;
    let path = card.file().unwrap_or_default();
    // Never open the UIO file for a check. When a process closes the file, uio_pci_generic disables bus mastering of
    // the card, even while another process uses the card.
    let mut faults = Vec::new();
    if card
        .group
        .as_ref()
        .is_some_and(|group| group.has_iommu && group.translates)
    {
        faults.push(CardFault::Translated { address });
    }
    if let Some(process) = system.user(card) {
        let process = Some(process);
        faults.push(CardFault::InUse { address, process });
    }
    if denied(&system.path(path.trim_start_matches('/'))) {
        faults.push(CardFault::NoPermission {
            address,
            what: path,
            advice: "run as root",
        });
    }
    faults.extend(unprivileged(system, address));
    faults
}

/// Fault of a card that needs physical addresses although the process lacks SYS_ADMIN. `/proc/self/pagemap` shows
/// physical addresses only with SYS_ADMIN.
fn unprivileged(system: &System, address: PciAddress) -> Option<CardFault> {
    const SYS_ADMIN: u32 = 21;
    let status = text(&system.path("proc/self/status")).unwrap_or_default();
    (!crate::eal::capability_in(&status, SYS_ADMIN)).then(|| CardFault::NoPermission {
        address,
        what: "reading physical addresses of memory".into(),
        advice: "run as root, or with the capability SYS_ADMIN",
    })
}

fn vfio(system: &System, card: &Card) -> Vec<CardFault> {
    let address = card.address;
    let mut faults = Vec::new();
    let group = card.group.iter().filter(|group| group.has_iommu);
    for (group, other) in group.flat_map(|group| group.others.iter().map(move |other| (group, other))) {
        if let Some(driver) = other.obstacle() {
            faults.push(CardFault::GroupShared {
                address,
                group: group.number,
                other: other.address,
                driver: driver.into(),
                is_card: system.card(other.address).is_some_and(|card| card.is_network()),
            });
        }
    }
    if card.has_iommu() && !has_type1(system) {
        faults.push(CardFault::NoType1 { address });
    }
    if card.mode().is_physical() {
        faults.extend(unprivileged(system, address));
    }
    let file = card.file().unwrap_or_default();
    for path in ["/dev/vfio/vfio", &file] {
        let what = match (system.open)(&system.path(path.trim_start_matches('/'))) {
            Ok(()) => continue,
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                // A file that is open in this process means that this process has opened the card.
                match system.holder(path) {
                    Some(None) => {}
                    process => faults.push(CardFault::InUse {
                        address,
                        process: process.flatten(),
                    }),
                }
                continue;
            }
            Err(error) => format!("{path}, {error}"),
        };
        faults.push(CardFault::NoPermission {
            address,
            what,
            advice: "run the program as root, or make its user the owner of this file (chown)",
        });
        break;
    }
    faults
}

/// Whether VFIO can use an IOMMU. This requires the module `vfio_iommu_type1`, which `/sys` lists if it is built in or
/// loaded, or a replacement of this module, which only an ioctl detects.
fn has_type1(system: &System) -> bool {
    /// `VFIO_CHECK_EXTENSION` and `VFIO_TYPE1_IOMMU` of linux/vfio.h.
    const CHECK_EXTENSION: libc::c_ulong = 0x3b65;
    const TYPE1: libc::c_ulong = 1;
    if system.path("sys/module/vfio_iommu_type1").exists() {
        return true;
    }
    std::fs::File::open(system.path("dev/vfio/vfio")).is_ok_and(|container| {
        // SAFETY: the request takes a number, and writes no memory.
        unsafe { libc::ioctl(container.as_raw_fd(), CHECK_EXTENSION, TYPE1) == 1 }
    })
}

/// Whether this process lacks permission to read and write a file. False for a missing file.
fn denied(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: the argument is a C string that is read during the call.
    let refused =
        unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::R_OK | libc::W_OK, libc::AT_EACCESS) != 0 };
    refused && std::io::Error::last_os_error().kind() == ErrorKind::PermissionDenied
}

//! Errors at opening a port, each with advice.

use crate::device::PciAddress;
use crate::driver::Driver;
use crate::pci::CardFault;
use crate::ring::RingError;
use crate::steering::SteeringError;

/// Why a port does not open, and what to do.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PortError {
    /// The interface does not exist.
    #[error("{port}: no interface {interface}: ip link lists what there is")]
    NoSuchInterface {
        /// The port.
        port: String,
        /// The interface.
        interface: String,
    },
    /// An interface to be created already exists.
    #[error("{port}: an interface {interface} exists already: choose another name, or ip link delete {interface}")]
    InterfaceExists {
        /// The port.
        port: String,
        /// The interface.
        interface: String,
    },
    /// A file or socket is missing or in use.
    #[error("{port}: {path} {what}")]
    Path {
        /// The port.
        port: String,
        /// The path.
        path: String,
        /// What it should be, and what to do.
        what: &'static str,
    },
    /// The card can't be opened.
    #[error("{port}: {fault}")]
    Card {
        /// The port.
        port: String,
        /// Fault of the card.
        fault: CardFault,
    },
    /// DPDK has no driver for the card, or did not find it.
    #[error(
        "{port}: DPDK has no driver for {address} ({id}): install its plug-in (Debian: apt-get install dpdk, or one of apt-cache search librte-net), or name the kernel's interface"
    )]
    NoDriver {
        /// The port.
        port: String,
        /// The card.
        address: PciAddress,
        /// Vendor and device ID.
        id: String,
    },
    /// The process lacks the permission to open the device.
    #[error("{port}: no permission for {driver} on {device}: run as root, or with {capabilities}")]
    NoPermission {
        /// The port.
        port: String,
        /// The device.
        device: String,
        /// The driver.
        driver: Driver,
        /// Missing capabilities.
        capabilities: &'static str,
    },
    /// The device does not support the MTU.
    #[error(
        "{port}: {device} by {driver} can't have an MTU of {mtu} ({reason}): lower it, or raise that of the device's peer first; an XDP program that a killed process left goes by ip link set DEVICE xdp off"
    )]
    Mtu {
        /// The port.
        port: String,
        /// The device.
        device: String,
        /// The driver.
        driver: Driver,
        /// The MTU.
        mtu: u16,
        /// DPDK's error text.
        reason: String,
    },
    /// The device does not have enough queues.
    #[error("{port}: {device} by {driver} has {available} queues, not {wanted}: lower queues in the configuration")]
    Queues {
        /// The port.
        port: String,
        /// The device.
        device: String,
        /// The driver.
        driver: Driver,
        /// Requested queues.
        wanted: u16,
        /// Available queues.
        available: u16,
    },
    /// The rings of a ring port can't be created.
    #[error("{port}: {source}")]
    Ring {
        /// The port.
        port: String,
        /// Reason.
        source: RingError,
    },
    /// The requested receive steering is invalid.
    #[error("{port}: {source}")]
    Steering {
        /// The port.
        port: String,
        /// Reason.
        source: SteeringError,
    },
    /// The driver failed for another reason.
    #[error("{port}: {device} by {driver} fails to {step} ({reason}): {last_words}")]
    Refused {
        /// The port.
        port: String,
        /// The device.
        device: String,
        /// The driver.
        driver: Driver,
        /// Step that failed.
        step: &'static str,
        /// Text of the error number.
        reason: String,
        /// End of DPDK's log, and its meaning.
        last_words: String,
    },
}

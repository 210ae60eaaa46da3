//! Errors of opening a port, each with a remedy.

use crate::device::PciAddress;
use crate::driver::Driver;
use crate::pci::CardFault;
use crate::ring::RingError;
use crate::steering::SteeringError;

/// Why a port can't be opened, with a remedy.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PortError {
    /// The interface does not exist.
    #[error("{port}: there is no interface {interface}: `ip link` lists the interfaces")]
    NoSuchInterface {
        /// Name of the port.
        port: String,
        /// Name of the interface.
        interface: String,
    },
    /// The interface to create already exists.
    #[error(
        "{port}: an interface {interface} already exists; choose another name, or run `ip link delete {interface}`"
    )]
    InterfaceExists {
        /// Name of the port.
        port: String,
        /// Name of the interface.
        interface: String,
    },
    /// A file or socket is missing or in use.
    #[error("{port}: {path} {what}")]
    Path {
        /// Name of the port.
        port: String,
        /// Path of the file or socket.
        path: String,
        /// Expected type of the path, and the remedy.
        what: &'static str,
    },
    /// The card can't be opened.
    #[error("{port}: {fault}")]
    Card {
        /// Name of the port.
        port: String,
        /// Fault of the card.
        fault: CardFault,
    },
    /// DPDK has no driver for the card, or the driver did not find the card.
    #[error(
        "{port}: DPDK has no driver for {address} ({id}): install the driver's plug-in (Debian: apt-get install dpdk, \
         or one of apt-cache search librte-net), or write the kernel interface of the card"
    )]
    NoDriver {
        /// Name of the port.
        port: String,
        /// PCI address of the card.
        address: PciAddress,
        /// Vendor and device ID.
        id: String,
    },
    /// The process lacks the permission to open the device.
    #[error("{port}: no permission to use {driver} on {device}: run the program as root, or with {capabilities}")]
    NoPermission {
        /// Name of the port.
        port: String,
        /// Name of the device.
        device: String,
        /// Driver of the device.
        driver: Driver,
        /// Missing capabilities.
        capabilities: &'static str,
    },
    /// The device does not support the MTU.
    #[error(
        "{port}: {device} with driver {driver} can't have an MTU of {mtu} ({reason}): lower this MTU, or raise the \
         MTU of the device's peer first; to remove the XDP program of a killed process, run ip link set DEVICE xdp off"
    )]
    Mtu {
        /// Name of the port.
        port: String,
        /// Name of the device.
        device: String,
        /// Driver of the device.
        driver: Driver,
        /// Requested MTU.
        mtu: u16,
        /// DPDK's error text.
        reason: String,
    },
    /// The device does not have enough queues.
    #[error(
        "{port}: {device} with driver {driver} has {available} queues, not {wanted}: lower queues in the \
         configuration"
    )]
    Queues {
        /// Name of the port.
        port: String,
        /// Name of the device.
        device: String,
        /// Driver of the device.
        driver: Driver,
        /// Requested queues.
        wanted: u16,
        /// Available queues.
        available: u16,
    },
    /// The rings of a ring port can't be created.
    #[error("{port}: {source}")]
    Ring {
        /// Name of the port.
        port: String,
        /// Reason of the failure.
        source: RingError,
    },
    /// The requested receive steering is invalid.
    #[error("{port}: {source}")]
    Steering {
        /// Name of the port.
        port: String,
        /// Reason of the failure.
        source: SteeringError,
    },
    /// The driver returned another error.
    #[error("{port}: {device} with driver {driver} fails to {step} ({reason}): {last_log_lines}")]
    Refused {
        /// Name of the port.
        port: String,
        /// Name of the device.
        device: String,
        /// Driver of the device.
        driver: Driver,
        /// Step that failed.
        step: &'static str,
        /// Text of the error number.
        reason: String,
        /// End of DPDK's log, with its meaning.
        last_log_lines: String,
    },
}

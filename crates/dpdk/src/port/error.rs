//! Why a port does not open, and what to do.

use crate::device::PciAddress;
use crate::driver::Driver;
use crate::pci::CardFault;
use crate::ring::RingError;
use crate::steering::SteeringError;

/// Why a port does not open, and what to do.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PortError {
    /// No such interface.
    #[error("{port}: no interface {interface}: ip link lists what there is")]
    NoSuchInterface {
        /// The port.
        port: String,
        /// The interface.
        interface: String,
    },
    /// An interface that should be made exists.
    #[error("{port}: an interface {interface} exists already: choose another name, or ip link delete {interface}")]
    InterfaceExists {
        /// The port.
        port: String,
        /// The interface.
        interface: String,
    },
    /// A file or socket is missing, or in use.
    #[error("{port}: {path} {what}")]
    Path {
        /// The port.
        port: String,
        /// The path.
        path: String,
        /// What it should be, and what to do.
        what: &'static str,
    },
    /// A card that can't be opened.
    #[error("{port}: {fault}")]
    Card {
        /// The port.
        port: String,
        /// Why.
        fault: CardFault,
    },
    /// DPDK has no driver for a card, or did not find it.
    #[error(
        "{port}: DPDK has no driver for {address} ({id}): install its plug-in (Debian: apt-get install dpdk, or one of apt-cache search librte-net), or name the kernel's interface"
    )]
    NoDriver {
        /// The port.
        port: String,
        /// The card.
        address: PciAddress,
        /// Maker and model.
        id: String,
    },
    /// The process may not open it.
    #[error("{port}: no permission for {driver} on {device}: run as root, or with {capabilities}")]
    NoPermission {
        /// The port.
        port: String,
        /// The device.
        device: String,
        /// The driver.
        driver: Driver,
        /// What is missing.
        capabilities: &'static str,
    },
    /// The device can't have this MTU.
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
        /// DPDK's text.
        reason: String,
    },
    /// The device has not as many queues.
    #[error("{port}: {device} by {driver} has {available} queues, not {wanted}: lower queues in the configuration")]
    Queues {
        /// The port.
        port: String,
        /// The device.
        device: String,
        /// The driver.
        driver: Driver,
        /// Queues wanted.
        wanted: u16,
        /// Queues that it has.
        available: u16,
    },
    /// A ring port's rings.
    #[error("{port}: {source}")]
    Ring {
        /// The port.
        port: String,
        /// Why.
        source: RingError,
    },
    /// The wish how frames come to queues can't be.
    #[error("{port}: {source}")]
    Steering {
        /// The port.
        port: String,
        /// Why.
        source: SteeringError,
    },
    /// The driver gave up for another reason.
    #[error("{port}: {device} by {driver} fails to {step} ({reason}): {last_words}")]
    Refused {
        /// The port.
        port: String,
        /// The device.
        device: String,
        /// The driver.
        driver: Driver,
        /// What failed.
        step: &'static str,
        /// Text of the error number.
        reason: String,
        /// The end of DPDK's log, and what it means.
        last_words: String,
    },
}

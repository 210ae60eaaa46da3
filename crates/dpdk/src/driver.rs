//! Chooses the driver for a device and determines the limits of the driver, without a running DPDK.

use std::fmt;
use std::path::Path;

use crate::device::Device;
use crate::eal::has_capability;
use crate::interface::{Interface, exists};
use crate::moderation;
use crate::pci::{CardFault, System, card_faults};

/// Largest MTU that TAP supports. DPDK's driver sends no frame longer than 1,522 bytes, even if the MTU of the
/// interface is larger.
pub const TAP_MTU: u16 = 1508;

/// Largest MTU that AF_XDP supports, because each of its buffers lies within a page of 4,096 bytes.
pub const AF_XDP_MTU: u16 = 3400;

/// Number of receive buffers per queue that the AF_XDP driver keeps after the port is closed. The driver may also keep
/// [`AF_XDP_KEPT_TRANSMIT`] transmit buffers.
pub const AF_XDP_KEPT_RECEIVE: u32 = 2048;

/// Maximum number of transmit buffers per queue that the AF_XDP driver keeps after the port is closed.
pub const AF_XDP_KEPT_TRANSMIT: u32 = 64;

/// Driver that receives and sends a device's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Driver {
    /// XDP sockets of the kernel.
    AfXdp,
    /// Packet sockets of the kernel.
    AfPacket,
    /// The card's DPDK driver.
    Native,
    /// Capture files.
    Pcap,
    /// TUN/TAP.
    Tap,
    /// Shared memory (memif).
    Memif,
    /// vhost-user.
    Vhost,
    /// virtio-user.
    Virtio,
    /// Rings in memory of this process.
    Ring,
    /// DPDK's null driver.
    Null,
    /// DPDK's bonding driver.
    Bond,
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Driver::AfXdp => "AF_XDP",
            Driver::AfPacket => "AF_PACKET",
            Driver::Native => "the card's own driver",
            Driver::Pcap => "capture file",
            Driver::Tap => "TAP",
            Driver::Memif => "memif",
            Driver::Vhost => "vhost-user",
            Driver::Virtio => "virtio-user",
            Driver::Ring => "ring",
            Driver::Null => "null",
            Driver::Bond => "bonding (802.3ad)",
        })
    }
}

/// A driver for a device, the number of queues, and the reason for the choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverChoice {
    /// Driver.
    pub driver: Driver,
    /// Number of queues to use.
    pub queues: u16,
    /// Why this driver was chosen, or why fewer queues are used than requested. Empty if the device has only one
    /// driver.
    pub reason: String,
}

/// Properties of a kernel interface that determine the choice of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct InterfaceFacts {
    /// Number of queue pairs.
    queues: u16,
    /// Whether this process may open XDP sockets.
    xdp_permitted: bool,
}

/// Numbers of NET_ADMIN, NET_RAW, IPC_LOCK, SYS_ADMIN and BPF in capability.h.
const XDP_CAPABILITIES: [u32; 5] = [12, 13, 14, 21, 39];

impl InterfaceFacts {
    /// Query the system for the properties of an interface.
    fn look(name: &str) -> Self {
        Self {
            queues: Interface::named(name).map_or(1, |interface| interface.queues()),
            xdp_permitted: XDP_CAPABILITIES.iter().all(|&number| has_capability(number)),
        }
    }
}

/// Choose the driver for a device, given the requested MTU and number of queues. `wanted` overrides the choice between
/// AF_XDP and AF_PACKET.
pub fn choose(device: &Device, mtu: u16, queues: u16, wanted: Option<Driver>) -> DriverChoice {
    match device {
        Device::Kernel { interface } => choose_kernel(InterfaceFacts::look(interface), mtu, queues, wanted),
        _ => {
            let driver = match device {
                Device::Kernel { .. } | Device::Pci(_) => Driver::Native,
                Device::Pcap { .. } => Driver::Pcap,
                Device::Tap { .. } => Driver::Tap,
                Device::Memif { .. } => Driver::Memif,
                Device::Vhost { .. } => Driver::Vhost,
                Device::Virtio { .. } => Driver::Virtio,
                Device::Ring { .. } => Driver::Ring,
                Device::Null => Driver::Null,
                Device::Bond { .. } => Driver::Bond,
            };
            let queues = match driver {
                Driver::Pcap | Driver::Bond | Driver::Memif => 1,
                Driver::Tap => queues.min(16),
                _ => queues,
            };
            DriverChoice {
                driver,
                queues: queues.max(1),
                reason: String::new(),
            }
        }
    }
}

fn choose_kernel(interface: InterfaceFacts, mtu: u16, queues: u16, wanted: Option<Driver>) -> DriverChoice {
    let queues = queues.max(1);
    let (driver, reason) = if wanted == Some(Driver::AfPacket) {
        (Driver::AfPacket, "so configured".into())
    } else if wanted == Some(Driver::AfXdp) {
        (Driver::AfXdp, "so configured".into())
    } else if mtu > AF_XDP_MTU {
        (
            Driver::AfPacket,
            format!("AF_XDP supports an MTU of at most {AF_XDP_MTU}, but {mtu} is configured"),
        )
    } else if !interface.xdp_permitted {
        let missing = "AF_XDP needs root or the capabilities NET_ADMIN, NET_RAW, BPF, IPC_LOCK and SYS_ADMIN";
        (Driver::AfPacket, missing.into())
    } else {
        (
            Driver::AfXdp,
            "the fastest driver for an interface that stays with the kernel".into(),
        )
    };
    let queues = if driver == Driver::AfXdp {
        queues.min(interface.queues)
    } else {
        queues
    };
    DriverChoice { driver, queues, reason }
}

/// A setting that a device can't support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverLimit {
    /// Whether the limit prevents the start of the port. If false, the port works with a limitation, which is reported
    /// to the operator.
    pub fatal: bool,
    /// Message for the operator, in the form "problem: remedy".
    pub text: String,
    /// Fault of the card that causes the limit, if any.
    pub card: Option<CardFault>,
}

impl DriverLimit {
    /// Create a non-fatal limit.
    pub fn note(text: String) -> Self {
        Self {
            fatal: false,
            text,
            card: None,
        }
    }

    fn fatal(text: String) -> Self {
        Self {
            fatal: true,
            ..Self::note(text)
        }
    }
}

impl From<CardFault> for DriverLimit {
    fn from(fault: CardFault) -> Self {
        Self {
            card: Some(fault.clone()),
            ..Self::fatal(fault.to_string())
        }
    }
}

impl fmt::Display for DriverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// List the settings that a device can't support. The check does not start DPDK or open devices.
pub fn limits(device: &Device, mtu: u16, queues: u16, wanted: Option<Driver>) -> Vec<DriverLimit> {
    let choice = choose(device, mtu, queues, wanted);
    let mut limits = Vec::new();
    match device {
        Device::Kernel { interface } if !exists(interface) => {
            limits.push(DriverLimit::fatal(format!(
                "there is no interface {interface}: `ip link` lists the interfaces"
            )));
        }
        Device::Pci(address) => limits.extend(
            card_faults(&System::this(), *address)
                .into_iter()
                .map(DriverLimit::from),
        ),
        Device::Pcap { input: Some(path), .. } if !Path::new(path).exists() => {
            limits.push(DriverLimit::fatal(format!("the capture file {path} does not exist")));
        }
        Device::Bond { members } => {
            for member in members {
                limits.extend(self::limits(member, mtu, 1, Some(wanted.unwrap_or(Driver::AfPacket))));
            }
        }
        _ => {}
    }
    match choice.driver {
        Driver::AfXdp if mtu > AF_XDP_MTU => limits.push(DriverLimit::fatal(format!(
            "AF_XDP supports an MTU of at most {AF_XDP_MTU}, not {mtu}: remove the key for the driver, or write \
             af_packet"
        ))),
        Driver::Tap if mtu > TAP_MTU => limits.push(DriverLimit::fatal(format!(
            "TAP supports an MTU of at most {TAP_MTU} with two VLAN tags, not {mtu}: lower the MTU, or use a veth \
             pair instead"
        ))),
        Driver::AfXdp if choice.queues < queues => limits.push(DriverLimit::note(format!(
            "{device} has {} queue{} for AF_XDP, not {queues}: one worker per queue receives the frames and hands \
             them to other workers (set the queues of a card with ethtool -L; a veth has one queue)",
            choice.queues,
            if choice.queues == 1 { "" } else { "s" }
        ))),
        Driver::AfXdp => {
            if let Device::Kernel { interface } = device
                && exists(interface)
                && moderation::refused(interface)
            {
                limits.push(DriverLimit::note(format!(
                    "/sys/class/net/{interface} can't be written, so frames may be received one by one, which costs \
                     more (to change this, write 2 to napi_defer_hard_irqs and 200000 to gro_flush_timeout in this \
                          folder)"
                )));
            }
        }
        Driver::AfPacket => limits.push(DriverLimit::note(
            "AF_PACKET delivers outer VLAN tags of type 0x88a8 as 0x8100: 802.1ad needs AF_XDP or a bound card".into(),
        )),
        Driver::Pcap | Driver::Bond | Driver::Memif if queues > 1 => limits.push(DriverLimit::note(format!(
            "{device} has one queue, not {queues}: one worker receives all frames and hands them to other workers"
        ))),
        _ => {}
    }
    if !(68..=9600).contains(&mtu) {
        limits.push(DriverLimit::fatal(format!("the MTU must be 68 to 9600, not {mtu}")));
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    const VETH: InterfaceFacts = InterfaceFacts {
        queues: 1,
        xdp_permitted: true,
    };

    #[test]
    fn kernel_interface_gets_af_xdp() {
        assert_eq!(Driver::AfXdp, choose_kernel(VETH, 1500, 1, None).driver);
    }

    #[test]
    fn kernel_interface_with_jumbo_gets_af_packet_and_says_why() {
        let choice = choose_kernel(VETH, 9000, 1, None);
        assert_eq!(Driver::AfPacket, choice.driver);
        assert_eq!(
            "AF_XDP supports an MTU of at most 3400, but 9000 is configured",
            choice.reason
        );
    }

    #[test]
    fn kernel_interface_without_permission_gets_af_packet() {
        let choice = choose_kernel(
            InterfaceFacts {
                xdp_permitted: false,
                ..VETH
            },
            1500,
            1,
            None,
        );
        assert_eq!(Driver::AfPacket, choice.driver);
        assert!(choice.reason.contains("SYS_ADMIN"));
    }

    #[test]
    fn kernel_interface_with_one_queue_is_not_asked_for_two() {
        assert_eq!(1, choose_kernel(VETH, 1500, 2, None).queues);
        assert_eq!(2, choose_kernel(VETH, 9000, 2, None).queues);
    }

    #[test]
    fn limits_name_what_the_driver_can_not_do() {
        let lo = Device::Kernel { interface: "lo".into() };
        let texts = |mtu, queues, wanted| {
            limits(&lo, mtu, queues, wanted)
                .iter()
                .map(DriverLimit::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        };
        assert!(texts(9000, 1, Some(Driver::AfXdp)).contains("at most 3400, not 9000"));
        assert!(texts(1500, 64, Some(Driver::AfXdp)).contains("not 64"));
        assert!(texts(9000, 1, None).contains("0x88a8"));
        let tap = |mtu| limits(&Device::Tap { interface: "t0".into() }, mtu, 1, None);
        assert!(tap(9000)[0].fatal && tap(9000)[0].text.contains("at most 1508 with two VLAN tags, not 9000"));
        assert!(tap(1508).is_empty());
        let none = limits(
            &Device::Kernel {
                interface: "no-such".into(),
            },
            1500,
            1,
            None,
        );
        assert!(none[0].fatal && none[0].text.contains("no interface no-such"));
    }
    #[test]
    fn limits_of_a_bond_are_those_of_each_card_in_it() {
        let members = ["lo", "ffff:ff:1f.6", "ffff:ff:1f.7"].map(|name| name.parse().expect("a device"));
        let bond = Device::Bond {
            members: members.to_vec(),
        };
        let fatal: Vec<_> = limits(&bond, 1500, 1, None)
            .into_iter()
            .filter(|limit| limit.fatal)
            .collect();
        let messages: Vec<_> = fatal.iter().map(DriverLimit::to_string).collect();
        assert_eq!(2, messages.len(), "{messages:?}");
        assert!(
            messages[0].starts_with("there is no PCI device ffff:ff:1f.6: ") && messages[1].contains("1f.7"),
            "{messages:?}"
        );
        assert!(matches!(fatal[0].card, Some(CardFault::Absent(_))));
    }
}

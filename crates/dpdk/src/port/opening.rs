//! Probe of a planned port's device in DPDK.

use std::ffi::CString;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{PortError, PortPlan};
use crate::device::Device;
use crate::driver::{AF_XDP_MTU, Driver, DriverChoice, TAP_MTU};
use crate::eal::{error_text, has_capability, last_log_lines};
use crate::interface::{AllMulticast, Interface, exists};
use crate::pci::{Mode, System, card_faults};
use crate::set::AF_PACKET_ORDINARY_MTU;
use crate::steering::SteeringRequest;
use crate::sys;

/// A port during its opening. A failed step releases all resources acquired so far.
pub(super) struct Opening<'a> {
    pub(super) plan: &'a PortPlan,
    pub(super) choice: DriverChoice,
}

/// The kind of file at a socket path.
enum Listener {
    NotFound,
    InUse,
    /// A file that is not a socket of this program.
    Foreign,
}

impl Listener {
    /// Check the path. Removes a socket that a killed process has left.
    fn at(path: &str) -> Self {
        match std::os::unix::net::UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Listener::NotFound,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                let socket = std::fs::metadata(path).is_ok_and(|file| file.file_type().is_socket());
                if socket && std::fs::remove_file(path).is_ok() {
                    Listener::NotFound
                } else {
                    Listener::Foreign
                }
            }
            // A process listens on the path, possibly with another socket type.
            _ => Listener::InUse,
        }
    }
}

impl PortPlan {
    /// Whether DPDK sets the MTU. For kernel interfaces, the kernel sets the MTU. memif needs no MTU, because its slots
    /// are sized for the frames.
    pub(super) fn has_mtu_in_dpdk(&self) -> bool {
        self.interfaces().is_empty() && !matches!(self.device, Device::Tap { .. } | Device::Memif { .. })
    }

    /// The device of the port, or the members of a bond.
    fn devices(&self) -> &[Device] {
        match &self.device {
            Device::Bond { members } => members,
            device => std::slice::from_ref(device),
        }
    }

    /// Names of the port's kernel interfaces that exist before the port is opened.
    fn interfaces(&self) -> Vec<&str> {
        self.devices()
            .iter()
            .filter_map(|device| {
                if let Device::Kernel { interface } = device {
                    Some(interface.as_str())
                } else {
                    None
                }
            })
            .collect()
    }
}

/// Name of the opening step that sets a device's MAC address.
pub(super) const TAKE_MAC: &str = "set its MAC address";

/// A device that DPDK has probed.
pub(super) struct Probed {
    pub(super) number: u16,
    pub(super) name: CString,
    /// Whether the probe has created the device. Such a device is removed when the port is closed.
    pub(super) detach: bool,
    /// All-multicast mode of a kernel interface while the port is open.
    pub(super) multicasts: Option<AllMulticast>,
}

impl Opening<'_> {
    /// Receive steering to request from the device.
    pub(super) fn steering_request(&self) -> Result<SteeringRequest, PortError> {
        let steering_request = SteeringRequest {
            steering: self.plan.steering,
            key: self.plan.hash_key.clone(),
            fallback_key: self.plan.fallback_key.clone(),
            table: self.plan.table.clone(),
            queues: self.choice.queues,
        };
        match steering_request.check() {
            Ok(()) => Ok(steering_request),
            Err(source) => Err(PortError::Steering {
                port: self.plan.name.clone(),
                source,
            }),
        }
    }

    /// Whether to request receive interrupts. False with UIO: a UIO card would raise its interrupt line endlessly, and
    /// the kernel would disable the line for all devices that share it.
    pub(super) fn interrupts(&self) -> bool {
        let by_uio = |device: &Device| match device {
            Device::Pci(address) => System::this()
                .card(*address)
                .is_some_and(|card| card.mode() == Mode::Uio),
            _ => false,
        };
        self.plan.interrupts && !self.plan.devices().iter().any(by_uio)
    }

    /// Error for a card that can't be opened because DPDK has no driver for it.
    fn without_driver(&self, device: &Device, error: i32) -> Option<PortError> {
        match device {
            Device::Pci(address) if error == -libc::ENOTSUP => Some(PortError::NoDriver {
                port: self.plan.name.clone(),
                address: *address,
                id: System::this().card(*address)?.id(),
            }),
            _ => None,
        }
    }

    pub(super) fn refused(&self, step: &'static str, error: i32) -> PortError {
        self.refused_because(step, error_text(error))
    }

    pub(super) fn refused_because(&self, step: &'static str, reason: String) -> PortError {
        PortError::Refused {
            port: self.plan.name.clone(),
            device: self.plan.device.to_string(),
            driver: self.choice.driver,
            step,
            reason,
            last_log_lines: last_log_lines(3),
        }
    }

    fn check_mtu(&self) -> Result<(), PortError> {
        let reason = match self.choice.driver {
            Driver::AfXdp if self.plan.mtu > AF_XDP_MTU => format!("at most {AF_XDP_MTU}; AF_PACKET supports more"),
            Driver::Tap if self.plan.mtu > TAP_MTU => {
                format!("at most {TAP_MTU}, and longer frames would be lost; a veth pair supports more")
            }
            _ => return Ok(()),
        };
        Err(PortError::Mtu {
            port: self.plan.name.clone(),
            device: self.plan.device.to_string(),
            driver: self.choice.driver,
            mtu: self.plan.mtu,
            reason,
        })
    }

    /// Check simple preconditions before the device is opened, because error codes of drivers are not specific.
    pub(super) fn check(&self) -> Result<(), PortError> {
        let port = || self.plan.name.clone();
        let path = |path: &str, what| PortError::Path {
            port: port(),
            path: path.into(),
            what,
        };
        let permission = |capabilities| PortError::NoPermission {
            port: port(),
            device: self.plan.device.to_string(),
            driver: self.choice.driver,
            capabilities,
        };
        let folder_exists = |socket: &str| {
            Path::new(socket)
                .parent()
                .is_none_or(|folder| folder.as_os_str().is_empty() || folder.is_dir())
        };
        let interfaces = self.plan.interfaces();
        if let Some(missing) = interfaces.iter().find(|interface| !exists(interface)) {
            return Err(PortError::NoSuchInterface {
                port: port(),
                interface: (*missing).into(),
            });
        }
        self.check_mtu()?;
        for device in self.plan.devices() {
            if let Device::Pci(address) = device
                && let Some(fault) = card_faults(&System::this(), *address).into_iter().next()
            {
                return Err(PortError::Card { port: port(), fault });
            }
        }
        if !interfaces.is_empty() && !has_capability(13) {
            return Err(permission("the capability NET_RAW"));
        }
        match &self.plan.device {
            Device::Pcap { input: Some(input), .. } if !Path::new(input).is_file() => {
                Err(path(input, "is not a readable capture file"))
            }
            Device::Tap { interface } if exists(interface) => Err(PortError::InterfaceExists {
                port: port(),
                interface: interface.clone(),
            }),
            Device::Tap { .. } if !has_capability(12) => Err(permission("the capability NET_ADMIN")),
            Device::Tap { .. } if !Path::new("/dev/net/tun").exists() => {
                Err(path("/dev/net/tun", "is missing: run modprobe tun"))
            }
            Device::Memif {
                socket, server: true, ..
            }
            | Device::Vhost { socket, client: false }
            | Device::Virtio { socket, server: true }
                if !folder_exists(socket) =>
            {
                Err(path(socket, "is in a folder that does not exist: create the folder"))
            }
            Device::Virtio { socket, server: false } if !Path::new(socket).exists() => Err(path(
                socket,
                "does not exist: first start the vhost end, which listens on this socket",
            )),
            Device::Memif {
                socket, server: true, ..
            }
            | Device::Vhost { socket, client: false }
            | Device::Virtio { socket, server: true } => match Listener::at(socket) {
                Listener::NotFound => Ok(()),
                // Several memif interfaces of one process may share a socket.
                Listener::InUse if matches!(self.plan.device, Device::Memif { .. }) => Ok(()),
                Listener::InUse => Err(path(
                    socket,
                    "is already used by a listening process: choose another path",
                )),
                Listener::Foreign => Err(path(socket, "exists but is not a socket: choose another path")),
            },
            _ => Ok(()),
        }
    }

    /// Set the MTU of kernel interfaces, and bring the interfaces up. DPDK's drivers do not bring kernel interfaces up.
    /// They also set no MTU, or support only an MTU of at most 1,500.
    pub(super) fn prepare(&self) -> Result<(), PortError> {
        // Set the MAC address before DPDK opens a kernel interface, because DPDK's drivers read the address only at
        // that time.
        if let (Device::Kernel { interface }, Some(mac)) = (&self.plan.device, self.plan.mac) {
            let set = Interface::named(interface).and_then(|interface| interface.set_mac(mac));
            set.map_err(|error| self.refused_because(TAKE_MAC, error.to_string()))?;
        }
        let made = if let Device::Tap { interface } = &self.plan.device {
            Some(interface.as_str())
        } else {
            None
        };
        for name in self.plan.interfaces().into_iter().chain(made) {
            let interface = Interface::named(name);
            if let Err(error) = interface
                .as_ref()
                .map_or(Ok(()), |interface| interface.set_mtu(self.plan.mtu))
            {
                return Err(PortError::Mtu {
                    port: self.plan.name.clone(),
                    device: name.into(),
                    driver: self.choice.driver,
                    mtu: self.plan.mtu,
                    reason: error.to_string(),
                });
            }
            if interface.is_ok_and(|interface| interface.set_up(true).is_err()) {
                return Err(PortError::NoPermission {
                    port: self.plan.name.clone(),
                    device: name.into(),
                    driver: self.choice.driver,
                    capabilities: "the capability NET_ADMIN, or bring the interface up beforehand (ip link set … up)",
                });
            }
        }
        Ok(())
    }

    fn take_multicasts(&self, device: &Device) -> Result<Option<AllMulticast>, PortError> {
        let Device::Kernel { interface } = device else {
            return Ok(None);
        };
        let taken = Interface::named(interface).and_then(|interface| interface.all_multicast());
        taken.map(Some).map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => PortError::NoPermission {
                port: self.plan.name.clone(),
                device: interface.clone(),
                driver: self.choice.driver,
                capabilities: "the capability NET_RAW",
            },
            _ => self.refused_because("take multicasts", error.to_string()),
        })
    }

    /// Probe the device in DPDK.
    pub(super) fn probe(&self, device: &Device, driver: Driver) -> Result<Probed, PortError> {
        let (name, arguments) = arguments(device, driver, self.choice.queues, self.plan.mtu);
        let name = CString::new(name).unwrap_or_default();
        let mut number = 0;
        // SAFETY: the name is a C string, and the number is written only on success.
        let find = |number: &mut u16| unsafe { sys::sluice_port_by_name(name.as_ptr(), number) };
        if matches!(device, Device::Pci(_)) && find(&mut number) == 0 {
            return Ok(Probed {
                number,
                name,
                detach: false,
                multicasts: None,
            });
        }
        // Enable all-multicast mode before DPDK creates the device, because a later failure would leave the device
        // behind.
        let multicasts = self.take_multicasts(device)?;
        let text = CString::new(format!("{}{arguments}", name.to_string_lossy())).unwrap_or_default();
        // SAFETY: the argument is a C string that DPDK copies.
        match unsafe { sys::sluice_device_probe(text.as_ptr()) } {
            0 => {}
            error => {
                return Err(self
                    .without_driver(device, error)
                    .unwrap_or(self.refused("open", error)));
            }
        }
        let found = find(&mut number);
        if found == 0 {
            Ok(Probed {
                number,
                name,
                detach: true,
                multicasts,
            })
        } else {
            Err(self.refused("appear", found))
        }
    }
}

/// DPDK's name for a device, which is unique in this process, and the device's arguments.
pub(super) fn arguments(device: &Device, driver: Driver, queues: u16, mtu: u16) -> (String, String) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = |kind: &str| format!("net_{kind}{number}");
    match (device, driver) {
        (Device::Kernel { interface }, Driver::AfXdp) => (
            name("af_xdp"),
            format!(",iface={interface},start_queue=0,queue_count={queues}"),
        ),
        (Device::Kernel { interface }, _) => {
            // The default frame size would truncate jumbo frames without an error.
            let frames = if mtu > AF_PACKET_ORDINARY_MTU {
                "blocksz=65536,framesz=16384,framecnt=512"
            } else {
                "blocksz=65536,framesz=2048,framecnt=4096"
            };
            (
                name("af_packet"),
                format!(",iface={interface},qpairs={queues},{frames}"),
            )
        }
        (Device::Pci(address), _) => (address.to_string(), String::new()),
        (Device::Pcap { input, output }, _) => {
            let input = input.iter().map(|path| format!(",rx_pcap={path}"));
            let output = output.iter().map(|path| format!(",tx_pcap={path}"));
            (name("pcap"), input.chain(output).collect())
        }
        (Device::Tap { interface }, _) => (name("tap"), format!(",iface={interface}")),
        (Device::Memif { socket, server, id }, _) => {
            let role = if *server { "server" } else { "client" };
            // Size slots for whole frames, so that no frame is split.
            let slot = (u32::from(mtu) + 64).next_power_of_two().max(2048);
            (
                name("memif"),
                format!(",socket={socket},socket-abstract=no,role={role},id={id},bsize={slot}"),
            )
        }
        (Device::Vhost { socket, client }, _) => (
            name("vhost"),
            format!(",iface={socket},queues={queues},client={}", u8::from(*client)),
        ),
        (Device::Virtio { socket, server }, _) => {
            let server = if *server { ",server=1" } else { "" };
            (
                name("virtio_user"),
                format!(",path={socket},queues={queues},queue_size=1024{server}"),
            )
        }
        (Device::Null, _) => (name("null"), String::new()),
        (Device::Ring { .. }, _) => (name("ring"), String::new()),
        (Device::Bond { .. }, _) => (name("bonding"), ",mode=4".into()),
    }
}

//! PCI cards as described by the kernel, before DPDK starts: driver, IOMMU group, interfaces, hugepages.

mod card_faults;
mod hugepages;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

pub use card_faults::{CardFault, card_faults};
pub use hugepages::{HugePages, reserve};

use crate::device::PciAddress;

/// Kernel drivers of bifurcated cards. A bifurcated card stays bound to its kernel driver while DPDK uses the card.
const BIFURCATED: [&str; 4] = ["mlx4_core", "mlx5_core", "mana", "nfp"];

/// VFIO's kernel module for PCI cards.
pub const VFIO: &str = "vfio-pci";

/// The kernel's own UIO module.
pub const UIO: &str = "uio_pci_generic";

/// Number of bits that DPDK assumes for virtual addresses of a process.
const VIRTUAL_BITS: u8 = 47;

/// Access to `/sys`, `/dev` and `/proc` of a machine.
#[derive(Clone, Debug)]
pub struct System {
    root: PathBuf,
    /// Opens and closes a file of `/dev/vfio`.
    open: fn(&Path) -> io::Result<()>,
}

impl System {
    /// Access to the machine on which the process runs.
    pub fn this() -> Self {
        Self::at(Path::new("/"))
    }

    /// Access to a directory with the layout of `/`.
    pub fn at(root: &Path) -> Self {
        Self {
            root: root.into(),
            open: |path| fs::OpenOptions::new().read(true).write(true).open(path).map(drop),
        }
    }

    /// A path relative to the root, such as `sys/bus/pci`.
    pub fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    /// The directory of a card in `/sys`.
    pub fn folder(&self, address: PciAddress) -> PathBuf {
        self.path(&format!("sys/bus/pci/devices/{address}"))
    }

    /// All network cards, sorted by address.
    pub fn cards(&self) -> Vec<Card> {
        let addresses = entries(&self.path("sys/bus/pci/devices")).into_iter();
        let mut cards: Vec<Card> = addresses
            .filter_map(|name| self.card(name.parse().ok()?))
            .filter(Card::is_network)
            .collect();
        cards.sort_by_key(|card| card.address);
        cards
    }

    /// The PCI device at an address. `None` if there is no device.
    pub fn card(&self, address: PciAddress) -> Option<Card> {
        let folder = self.folder(address);
        let number = |name: &str| u32::from_str_radix(text(&folder.join(name))?.trim_start_matches("0x"), 16).ok();
        let interfaces = |folder: &Path| entries(&folder.join("net"));
        let mut found = interfaces(&folder);
        // For virtio, the virtio device is between the PCI device and the interface.
        for child in entries(&folder).iter().filter(|name| name.starts_with("virtio")) {
            found.extend(interfaces(&folder.join(child)));
        }
        found.sort();
        Some(Card {
            address,
            class: number("class")?,
            vendor: number("vendor").unwrap_or(0) as u16,
            device: number("device").unwrap_or(0) as u16,
            driver: target(&folder.join("driver")),
            group: self.group(address),
            // The value is -1 on machines with a single node or without this information.
            node: text(&folder.join("numa_node")).and_then(|node| node.parse().ok()),
            uio: entries(&folder.join("uio")).into_iter().next(),
            // Bits 16 to 21 of VT-d's capabilities contain the address width of guests minus one.
            address_bits: number64(&folder.join("iommu/intel-iommu/cap")).map(|bits| (bits >> 16 & 0x3f) as u8 + 1),
            interfaces: found,
        })
    }

    fn group(&self, address: PciAddress) -> Option<Group> {
        let folder = self.folder(address).join("iommu_group");
        let number = target(&folder)?.parse().ok()?;
        let members = entries(&folder.join("devices")).into_iter();
        let others = members
            .filter_map(|name| name.parse().ok())
            .filter(|&member| member != address);
        Some(Group {
            number,
            has_iommu: text(&folder.join("name")).is_none_or(|name| name != "vfio-noiommu"),
            translates: text(&folder.join("type")).is_some_and(|kind| kind != "identity"),
            others: others
                .map(|address| {
                    let folder = self.folder(address);
                    GroupDevice {
                        address,
                        driver: target(&folder.join("driver")),
                        is_bridge: text(&folder.join("class")).is_some_and(|class| class.starts_with("0x0604")),
                    }
                })
                .collect(),
        })
    }

    /// Whether the kernel allows VFIO without an IOMMU.
    pub fn allows_vfio_without_iommu(&self) -> bool {
        let switch = self.path("sys/module/vfio/parameters/enable_unsafe_noiommu_mode");
        text(&switch).is_some_and(|value| value == "Y" || value == "1")
    }

    /// Another process that has a file of `/dev` open, if visible in `/proc`. `Some(None)` if this process has opened
    /// the file.
    fn holder(&self, device: &str) -> Option<Option<Process>> {
        let own = std::process::id();
        let mut by_self = None;
        for id in entries(&self.path("proc")).iter().filter_map(|name| name.parse().ok()) {
            let files = self.path(&format!("proc/{id}/fd"));
            let holds = |name: &String| fs::read_link(files.join(name)).is_ok_and(|file| file == Path::new(device));
            if !entries(&files).iter().any(holds) {
                continue;
            }
            if id != own {
                let name = text(&self.path(&format!("proc/{id}/comm"))).unwrap_or_default();
                return Some(Some(Process { id, name }));
            }
            by_self = Some(None);
        }
        by_self
    }

    /// Another process that uses a card through UIO or VFIO.
    pub fn user(&self, card: &Card) -> Option<Process> {
        self.holder(&card.file()?).flatten()
    }
}

/// A process with its number and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process ID.
    pub id: u32,
    /// Process name.
    pub name: String,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.id, self.name)
    }
}

/// A PCI device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// PCI address.
    pub address: PciAddress,
    /// Class, subclass and programming interface. `0x020000` is Ethernet.
    pub class: u32,
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Kernel driver to which the device is bound.
    pub driver: Option<String>,
    /// IOMMU group.
    pub group: Option<Group>,
    /// NUMA node, if the machine has several NUMA nodes.
    pub node: Option<u16>,
    /// UIO device file, such as `uio0`.
    pub uio: Option<String>,
    /// Address width in bits of the device's IOMMU, if reported.
    pub address_bits: Option<u8>,
    /// Kernel interfaces of the card.
    pub interfaces: Vec<String>,
}

/// An IOMMU group: devices that the IOMMU can't distinguish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Group number.
    pub number: u32,
    /// Whether an IOMMU backs the group. VFIO creates groups without an IOMMU.
    pub has_iommu: bool,
    /// Whether the IOMMU translates addresses even for drivers other than VFIO. The kernel option `iommu=pt` disables
    /// this translation.
    pub translates: bool,
    /// Other devices in the group.
    pub others: Vec<GroupDevice>,
}

/// Another device of an IOMMU group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDevice {
    /// PCI address.
    pub address: PciAddress,
    /// Kernel driver to which the device is bound.
    pub driver: Option<String>,
    /// Whether the device is a PCI bridge. VFIO tolerates drivers of bridges in a group.
    pub is_bridge: bool,
}

impl GroupDevice {
    /// Driver of this device if this driver prevents VFIO from using the whole group; otherwise `None`.
    pub fn obstacle(&self) -> Option<&str> {
        let tolerated = |driver: &str| self.is_bridge || driver.starts_with("vfio") || driver == "pci-stub";
        self.driver.as_deref().filter(|driver| !tolerated(driver))
    }
}

/// How a process can access a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Through VFIO, with an IOMMU.
    Vfio,
    /// Through VFIO, with an IOMMU that has too few address bits for virtual addresses.
    VfioNarrow,
    /// Through VFIO without an IOMMU, which leaves the card's memory accesses unchecked.
    VfioWithoutIommu,
    /// Through UIO.
    Uio,
    /// Together with the kernel's own driver of the card (bifurcated).
    Bifurcated,
    /// Not accessible, because a kernel driver uses the card.
    Kernel,
    /// Not accessible, because no driver is bound to the card.
    Unbound,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Vfio => "VFIO with IOMMU",
            Mode::VfioNarrow => "VFIO with an IOMMU of few address bits",
            Mode::VfioWithoutIommu => "VFIO without IOMMU",
            Mode::Uio => "UIO",
            Mode::Bifurcated => "shared with the kernel",
            Mode::Kernel => "kernel",
            Mode::Unbound => "no driver",
        })
    }
}

impl Mode {
    /// Whether the card uses physical addresses in this mode. Physical addresses require hugepages.
    pub fn is_physical(self) -> bool {
        matches!(self, Mode::Uio | Mode::VfioNarrow | Mode::VfioWithoutIommu)
    }
}

impl Card {
    /// Whether the device is a network card.
    pub fn is_network(&self) -> bool {
        self.class >> 16 == 2
    }

    /// How a process can access the card.
    pub fn mode(&self) -> Mode {
        match self.driver.as_deref() {
            None => Mode::Unbound,
            Some(VFIO) if self.has_iommu() => match self.address_bits {
                Some(bits) if bits < VIRTUAL_BITS => Mode::VfioNarrow,
                _ => Mode::Vfio,
            },
            Some(VFIO) => Mode::VfioWithoutIommu,
            Some(UIO | "igb_uio") => Mode::Uio,
            Some(driver) if BIFURCATED.contains(&driver) => Mode::Bifurcated,
            Some(_) => Mode::Kernel,
        }
    }

    /// Whether the card is behind an IOMMU.
    pub fn has_iommu(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.has_iommu)
    }

    /// Driver to which the card should be bound.
    pub fn best_driver(&self) -> &'static str {
        if self.has_iommu() { VFIO } else { UIO }
    }

    /// Vendor and device ID in the format of `lspci -n`.
    pub fn id(&self) -> String {
        format!("{:04x}:{:04x}", self.vendor, self.device)
    }

    /// Device file through which a process accesses the card.
    fn file(&self) -> Option<String> {
        match self.mode() {
            Mode::Vfio | Mode::VfioNarrow => Some(format!("/dev/vfio/{}", self.group.as_ref()?.number)),
            Mode::VfioWithoutIommu => Some(format!("/dev/vfio/noiommu-{}", self.group.as_ref()?.number)),
            Mode::Uio => Some(format!("/dev/{}", self.uio.as_ref()?)),
            _ => None,
        }
    }
}

/// Names in a directory. Empty if the directory does not exist.
fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number64(path: &Path) -> Option<u64> {
    u64::from_str_radix(text(path)?.trim_start_matches("0x"), 16).ok()
}

/// Last component of a symbolic link's target.
fn target(link: &Path) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_str()?.to_owned())
}

//! What the machine and the process offer, read before DPDK is asked: its own error codes say little.

use std::fs;
use std::path::Path;

use super::{EalError, Needs};

/// Kernel drivers that share a card with DPDK, or exist to hand it over.
const USABLE_DRIVERS: [&str; 7] = [
    "vfio-pci",
    "uio_pci_generic",
    "igb_uio",
    "mlx4_core",
    "mlx5_core",
    "mana",
    "nfp",
];

/// What the machine offers.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Bytes of free hugepages of the default size.
    pub free_hugepage_bytes: usize,
    /// Bytes of memory that can still be used.
    pub available_bytes: usize,
    /// Cores that this process may use.
    pub cores: Vec<usize>,
}

impl Host {
    /// Look at this machine.
    pub fn look() -> Self {
        Self {
            free_hugepage_bytes: free_hugepage_bytes(),
            available_bytes: available_bytes(),
            cores: allowed_cores(),
        }
    }
}

/// Bytes of free hugepages of the default size.
pub fn free_hugepage_bytes() -> usize {
    memory_line("HugePages_Free:") * memory_line("Hugepagesize:") * 1024
}

/// Bytes of memory that can still be used.
pub fn available_bytes() -> usize {
    memory_line("MemAvailable:") * 1024
}

fn memory_line(name: &str) -> usize {
    fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse().ok()
        })
        .unwrap_or(0)
}

/// Cores that this process may use, ascending.
pub fn allowed_cores() -> Vec<usize> {
    // The process's own line, not the calling thread's mask: that one may be pinned.
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = text
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap_or("0")
        .trim();
    parse_cores(list)
}

/// `0-2,5` to numbers.
fn parse_cores(list: &str) -> Vec<usize> {
    list.split(',')
        .filter_map(|range| {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            Some(from.trim().parse::<usize>().ok()?..=to.trim().parse().ok()?)
        })
        .flatten()
        .collect()
}

/// Does the process hold a capability, by its number in capability.h?
pub fn has_capability(number: u32) -> bool {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> number & 1 == 1)
}

/// Check what can be checked beforehand.
pub(super) fn check(needs: &Needs) -> Result<(), EalError> {
    let allowed = allowed_cores();
    if let Some(&core) = needs.cores.iter().find(|core| !allowed.contains(core)) {
        return Err(EalError::NoSuchCore { core, allowed });
    }
    for &address in &needs.pci {
        let device = Path::new("/sys/bus/pci/devices").join(address.to_string());
        if !device.exists() {
            return Err(EalError::NoSuchPciDevice(address));
        }
        let driver = fs::read_link(device.join("driver"))
            .ok()
            .and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned()));
        match driver {
            Some(driver) if !USABLE_DRIVERS.contains(&driver.as_str()) => {
                return Err(EalError::BoundToKernelDriver { address, driver });
            }
            Some(driver) if driver == "vfio-pci" && fs::File::open("/dev/vfio/vfio").is_err() => {
                return Err(EalError::NoPermission {
                    what: "/dev/vfio/vfio".into(),
                    advice: "run as root, or give the user the device's group under /dev/vfio",
                });
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::parse_cores;

    #[test]
    fn core_list_with_ranges_is_read() {
        assert_eq!(vec![0, 1, 2, 5], parse_cores("0-2,5"));
        assert_eq!(Vec::<usize>::new(), parse_cores("none"));
    }
}

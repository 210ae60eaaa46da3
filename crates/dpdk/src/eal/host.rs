//! Resources of the machine and the process. The resources are checked before DPDK starts, because DPDK's error codes
//! are not specific.

use std::fs;

use super::{EalError, EalRequirements};
use crate::device::PciAddress;
use crate::pci::{HugePages, Mode, System};

/// Resources of the machine.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Hugepages of each size, in ascending order of size.
    pub hugepages: Vec<HugePages>,
    /// A card that uses physical addresses, and the access mode because of which the card needs physical addresses.
    pub physical: Option<(PciAddress, Mode)>,
    /// Available memory in bytes.
    pub available_bytes: usize,
    /// Cores that this process may use.
    pub cores: Vec<usize>,
}

impl Host {
    /// Determine the resources of this machine, and the properties of the cards that DPDK will use.
    pub fn look(cards: &[PciAddress]) -> Self {
        let system = System::this();
        let mut modes = cards
            .iter()
            .filter_map(|&address| Some((address, system.card(address)?.mode())));
        Self {
            hugepages: system.hugepages(),
            physical: modes.find(|(_, mode)| mode.is_physical()),
            available_bytes: available_bytes(),
            cores: allowed_cores(),
        }
    }

    /// Total size of free hugepages in bytes.
    pub fn free_hugepage_bytes(&self) -> usize {
        self.hugepages.iter().map(|size| size.bytes * size.free).sum()
    }
}

/// Total size of free hugepages in bytes.
pub fn free_hugepage_bytes() -> usize {
    System::this().free_hugepage_bytes()
}

/// Available memory in bytes.
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

/// Cores that this process may use, in ascending order.
pub fn allowed_cores() -> Vec<usize> {
    // Read the status of the process instead of the calling thread's affinity mask, because the calling thread may be
    // pinned.
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = text
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap_or("0")
        .trim();
    parse_cores(list)
}

/// Parse a list such as `0-2,5`.
fn parse_cores(list: &str) -> Vec<usize> {
    list.split(',')
        .filter_map(|range| {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            Some(from.trim().parse::<usize>().ok()?..=to.trim().parse().ok()?)
        })
        .flatten()
        .collect()
}

/// Whether the process has the capability with this number in capability.h.
pub fn has_capability(number: u32) -> bool {
    capability_in(&fs::read_to_string("/proc/self/status").unwrap_or_default(), number)
}

/// Whether a text in the format of `/proc/self/status` contains a capability.
pub(crate) fn capability_in(status: &str, number: u32) -> bool {
    let mut lines = status.lines();
    lines
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> number & 1 == 1)
}

/// Check the requirements that can be checked before DPDK starts.
pub(super) fn check(needs: &EalRequirements) -> Result<(), EalError> {
    let allowed = allowed_cores();
    if let Some(&core) = needs.cores.iter().find(|core| !allowed.contains(core)) {
        return Err(EalError::NoSuchCore { core, allowed });
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

//! What the machine and the process offer, read before DPDK is asked: its own error codes say little.

use std::fs;

use super::{EalError, EalRequirements};
use crate::device::PciAddress;
use crate::pci::{HugePages, Mode, System};

/// What the machine offers.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Hugepages by size, smallest first.
    pub hugepages: Vec<HugePages>,
    /// A card that takes physical addresses, and why.
    pub physical: Option<(PciAddress, Mode)>,
    /// Bytes of memory that can still be used.
    pub available_bytes: usize,
    /// Cores that this process may use.
    pub cores: Vec<usize>,
}

impl Host {
    /// Look at this machine, and at the cards that are to be driven.
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

    /// Bytes of all free hugepages.
    pub fn free_hugepage_bytes(&self) -> usize {
        self.hugepages.iter().map(|size| size.bytes * size.free).sum()
    }
}

/// Bytes of all free hugepages.
pub fn free_hugepage_bytes() -> usize {
    System::this().free_hugepage_bytes()
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
    capability_in(&fs::read_to_string("/proc/self/status").unwrap_or_default(), number)
}

/// The same of a text like `/proc/self/status`.
pub(crate) fn capability_in(status: &str, number: u32) -> bool {
    let mut lines = status.lines();
    lines
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask >> number & 1 == 1)
}

/// Check what can be checked beforehand.
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

//! Hugepages of the machine, of all sizes that DPDK can use.

use std::fmt;

use super::{System, entries, text};

/// Hugepages of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HugePages {
    /// Page size in bytes.
    pub bytes: usize,
    /// Number of reserved pages.
    pub total: usize,
    /// Number of pages without a user and without a reservation.
    pub free: usize,
    /// Number of free pages on each NUMA node.
    pub nodes: Vec<(u16, usize)>,
}

impl fmt::Display for HugePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (size, unit) = match self.bytes >> 20 {
            0 => (self.bytes >> 10, "KiB"),
            size if size % 1024 == 0 => (size >> 10, "GiB"),
            size => (size, "MiB"),
        };
        write!(f, "{} of {} pages of {size} {unit}", self.free, self.total)
    }
}

impl System {
    /// Hugepages of each size, in ascending order of size.
    pub fn hugepages(&self) -> Vec<HugePages> {
        let folder = self.path("sys/kernel/mm/hugepages");
        let mut sizes: Vec<HugePages> = entries(&folder)
            .into_iter()
            .filter_map(|name| {
                let kilobytes: usize = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
                let count = |file| text(&folder.join(&name).join(file)).and_then(|count| count.parse::<usize>().ok());
                Some(HugePages {
                    bytes: kilobytes << 10,
                    total: count("nr_hugepages")?,
                    free: count("free_hugepages")?.saturating_sub(count("resv_hugepages").unwrap_or(0)),
                    nodes: self.of_nodes(&name),
                })
            })
            .collect();
        sizes.sort_by_key(|size| size.bytes);
        sizes
    }

    /// Number of free pages of a size on each NUMA node.
    fn of_nodes(&self, size: &str) -> Vec<(u16, usize)> {
        let folder = self.path("sys/devices/system/node");
        let node = |name: String| {
            let number = name.strip_prefix("node")?.parse().ok()?;
            let free = text(&folder.join(name).join("hugepages").join(size).join("free_hugepages"))?;
            Some((number, free.parse().ok()?))
        };
        let mut nodes: Vec<_> = entries(&folder).into_iter().filter_map(node).collect();
        nodes.sort_unstable();
        nodes
    }

    /// Total size of free hugepages in bytes.
    pub fn free_hugepage_bytes(&self) -> usize {
        self.hugepages().iter().map(|size| size.bytes * size.free).sum()
    }
}

/// Command for the operator to reserve the missing hugepages, so that `bytes` bytes are free. `None` if the kernel does
/// not support hugepages.
pub fn reserve(sizes: &[HugePages], bytes: usize) -> Option<String> {
    let free: usize = sizes.iter().map(|size| size.bytes * size.free).sum();
    let ordinary = sizes.iter().find(|size| size.bytes >= 2 << 20).or(sizes.first())?;
    let kilobytes = ordinary.bytes >> 10;
    let count = ordinary.total + bytes.saturating_sub(free).div_ceil(ordinary.bytes);
    Some(format!(
        "echo {count} > /sys/kernel/mm/hugepages/hugepages-{kilobytes}kB/nr_hugepages"
    ))
}

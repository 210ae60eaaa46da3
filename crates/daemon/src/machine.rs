//! The machine on which the process runs: its cores and its available memory.

use std::path::PathBuf;
use std::{fs, io};

use sluice_config::Machine;
use sluice_config::memory::EntryBytes;

/// Why the properties of the machine can't be read.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A file of the kernel can't be read.
    #[error("{}: {error}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the kernel.
        error: io::Error,
    },
    /// A file of the kernel has an unexpected format.
    #[error("{} has no valid line `{line}`", path.display())]
    Unexpected {
        /// Path of the file.
        path: PathBuf,
        /// Line that is missing.
        line: &'static str,
    },
}

/// Cores that this process may use, and available memory.
///
/// # Errors
/// The kernel's files can't be read, for example because `/proc` is not mounted.
pub fn machine(entry: EntryBytes) -> Result<Machine, MachineError> {
    let status = read("/proc/self/status")?;
    let cores = allowed_cores(&status).ok_or(MachineError::Unexpected {
        path: "/proc/self/status".into(),
        line: "Cpus_allowed_list",
    })?;
    let information = read("/proc/meminfo")?;
    let available = available(&information).ok_or(MachineError::Unexpected {
        path: "/proc/meminfo".into(),
        line: "MemAvailable",
    })?;
    let memory = available.saturating_add(sluice_dpdk::eal::free_hugepage_bytes() as u64);
    Ok(Machine { cores, memory, entry })
}

fn read(path: &str) -> Result<String, MachineError> {
    fs::read_to_string(path).map_err(|error| MachineError::Unreadable {
        path: path.into(),
        error,
    })
}

fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

/// Core list of the line `Cpus_allowed_list: 0-3,8` in `/proc/self/status`.
fn allowed_cores(status: &str) -> Option<Vec<u16>> {
    core_list(value(status, "Cpus_allowed_list")?)
}

/// Parse a core list such as `0-3,8`.
pub fn core_list(text: &str) -> Option<Vec<u16>> {
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cores.extend(first.parse::<u16>().ok()?..=last.parse().ok()?);
    }
    Some(cores)
}

/// `MemAvailable` of `/proc/meminfo`, in bytes. Hugepages are not included.
fn available(information: &str) -> Option<u64> {
    let kilobytes: u64 = value(information, "MemAvailable")?.strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_of_a_list_are_single_ones_and_ranges() {
        assert_eq!(
            Some(vec![0, 1, 2, 3, 8]),
            allowed_cores("Name:\tx\nCpus_allowed_list:\t0-3,8\n")
        );
        assert_eq!(None, allowed_cores("Cpus_allowed_list:\tx\n"));
        assert_eq!(None, allowed_cores(""));
    }

    #[test]
    fn memory_is_what_is_available() {
        assert_eq!(Some(1024), available("MemTotal: 9 kB\nMemAvailable: 1 kB\n"));
        assert_eq!(None, available("MemTotal: 1 kB\n"));
    }

    #[test]
    fn machine_of_this_test_has_cores_and_memory() {
        let machine = machine(EntryBytes::default()).unwrap();
        assert!(!machine.cores.is_empty());
        assert!(machine.memory > 1 << 20);
    }
}

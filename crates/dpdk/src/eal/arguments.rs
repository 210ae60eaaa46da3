//! Arguments of the EAL. The arguments are derived from the configuration.

use super::EalError;
use super::host::Host;
use crate::device::PciAddress;
use crate::pci::{HugePages, Mode, reserve};

/// Requirements that determine the EAL's arguments.
#[derive(Clone, Debug, Default)]
pub struct EalRequirements {
    /// Bytes of DPDK memory for pools, rings and drivers.
    pub bytes: usize,
    /// Bytes of DPDK memory for ports that are attached later. Without hugepages, this memory is reserved if available.
    /// Reserved pages occupy no physical memory until their first use.
    pub spare_bytes: usize,
    /// Cores to which workers are pinned.
    pub cores: Vec<usize>,
    /// Cards that DPDK uses.
    pub pci: Vec<PciAddress>,
    /// `Some(true)` requires hugepages, `Some(false)` disables them, and `None` uses them if enough are free.
    pub hugepages: Option<bool>,
}

/// Kind of DPDK's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Hugepages.
    Hugepages,
    /// Ordinary pages, with the reason.
    Ordinary {
        /// Why hugepages are not used.
        why: String,
    },
}

impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Memory::Hugepages => write!(f, "hugepages"),
            Memory::Ordinary { why } => write!(f, "ordinary pages ({why})"),
        }
    }
}

/// A PCI address at which no card exists.
const NO_CARD: &str = "ffff:ff:1f.7";

/// Why hugepages are required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugepageReason {
    /// The configuration requires hugepages.
    Configured,
    /// This card needs physical addresses with its current driver.
    Card(PciAddress, Mode),
}

/// Hugepages are required, but disabled or too few. The error text has the form "problem: remedy".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} and {}: {}",
    self.why(), self.shortage_text(), self.remedy()
)]
pub struct HugepageFault {
    /// Why hugepages are required.
    pub demand: HugepageReason,
    /// Whether the configuration disables hugepages.
    pub disabled: bool,
    /// MiB needed.
    pub needed: usize,
    /// MiB free.
    pub free: usize,
    /// Hugepages of the machine by size.
    pub sizes: Vec<HugePages>,
}

impl HugepageFault {
    fn why(&self) -> String {
        let Self { needed, .. } = self;
        match self.demand {
            HugepageReason::Configured => format!("{needed} MiB of hugepages are needed"),
            HugepageReason::Card(address, mode) => format!(
                "{address} uses {mode} and needs {needed} MiB of hugepages (a card can't use the physical addresses \
                 of ordinary pages),"
            ),
        }
    }

    fn shortage_text(&self) -> String {
        let sizes: Vec<_> = self.sizes.iter().map(ToString::to_string).collect();
        match self.disabled {
            true => "hugepages are disabled in the configuration".into(),
            false if sizes.is_empty() => "this kernel supports none".into(),
            false => format!("{} MiB are free ({})", self.free, sizes.join(", ")),
        }
    }

    fn remedy(&self) -> String {
        let missing = self.free < self.needed;
        let reserve = reserve(&self.sizes, self.needed << 20).filter(|_| missing);
        let reserve = reserve.map(|command| format!("run {command} as root"));
        let allow = match (self.disabled, self.demand) {
            (true, _) => Some("write hugepages = \"auto\" in [system]"),
            (false, HugepageReason::Configured) if missing => Some("or write hugepages = \"auto\" in [system]"),
            _ => None,
        };
        let steps: Vec<_> = reserve.into_iter().chain(allow.map(str::to_owned)).collect();
        match steps.is_empty() {
            true => "bind the card to vfio-pci on a machine with an IOMMU".into(),
            false => steps.join(", "),
        }
    }
}

/// Determine the kind of DPDK's memory.
pub fn memory(needs: &EalRequirements, host: &Host) -> Result<Memory, HugepageFault> {
    let needed = needs.bytes.div_ceil(1 << 20);
    let free = host.free_hugepage_bytes() >> 20;
    let fault = |demand| HugepageFault {
        demand,
        disabled: needs.hugepages == Some(false),
        needed,
        free,
        sizes: host.hugepages.clone(),
    };
    match (needs.hugepages, host.physical) {
        (Some(false), Some((card, mode))) => Err(fault(HugepageReason::Card(card, mode))),
        (_, Some((card, mode))) if free < needed => Err(fault(HugepageReason::Card(card, mode))),
        (Some(true), _) if free < needed => Err(fault(HugepageReason::Configured)),
        (Some(false), _) => Ok(Memory::Ordinary {
            why: "so configured".into(),
        }),
        (None, _) if free == 0 => Ok(Memory::Ordinary {
            why: "no hugepages are free".into(),
        }),
        (None, _) if free < needed => Ok(Memory::Ordinary {
            why: format!("only {free} MiB of hugepages are free, but {needed} MiB are needed"),
        }),
        _ => Ok(Memory::Hugepages),
    }
}

/// The EAL's arguments for the requirements on this host, and the kind of memory.
pub fn arguments(needs: &EalRequirements, host: &Host) -> Result<(Memory, Vec<String>), EalError> {
    let megabytes = needs.bytes.div_ceil(1 << 20);
    let memory = memory(needs, host)?;
    let mut arguments: Vec<String> = vec!["sluice".into(), "--no-telemetry".into(), "--log-level=notice".into()];
    // DPDK gets one logical core that may run on all allowed CPUs. Workers are registered threads that pin themselves.
    let cores: Vec<String> = host.cores.iter().map(usize::to_string).collect();
    arguments.push(format!("--lcores=0@({})", cores.join(",")));
    match memory {
        Memory::Hugepages => {
            arguments.push("--in-memory".into());
            // vhost shares memory by files. One file per page would exceed the limit on memory regions, without an
            // error message.
            arguments.push("--single-file-segments".into());
            let addresses = if host.physical.is_some() { "pa" } else { "va" };
            arguments.push(format!("--iova-mode={addresses}"));
        }
        Memory::Ordinary { .. } => {
            if megabytes > host.available_bytes >> 20 {
                return Err(EalError::NotEnoughMemory {
                    needed: megabytes,
                    available: host.available_bytes >> 20,
                });
            }
            let spare = (needs.spare_bytes >> 20).min(((host.available_bytes >> 20) - megabytes) / 2);
            arguments.extend([
                "--no-huge".into(),
                "--no-shconf".into(),
                "-m".into(),
                (megabytes + spare).max(64).to_string(),
            ]);
        }
    }
    // Probe no card at the start, because a failing card would prevent the start of DPDK. Each card is probed when its
    // port is opened. An empty allow list would make DPDK probe every card.
    arguments.extend(["-a".into(), NO_CARD.into()]);
    Ok((memory, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host with `hugepages` MiB of free hugepages and `hugepages` MiB of used hugepages.
    fn host(hugepages: usize) -> Host {
        let size = HugePages {
            bytes: 2 << 20,
            total: hugepages,
            free: hugepages / 2,
            nodes: Vec::new(),
        };
        Host {
            hugepages: vec![size],
            physical: None,
            available_bytes: 1 << 30,
            cores: vec![0, 1],
        }
    }

    fn text(needs: &EalRequirements, host: &Host) -> String {
        arguments(needs, host).expect("arguments").1.join(" ")
    }

    #[test]
    fn arguments_without_hugepages_state_the_memory() {
        let text = text(
            &EalRequirements {
                bytes: 100 << 20,
                ..EalRequirements::default()
            },
            &host(0),
        );
        assert!(
            text.contains("--no-huge --no-shconf -m 100") && text.contains(NO_CARD),
            "{text}"
        );
        assert!(!text.contains("--in-memory"), "the two exclude each other: {text}");
    }

    #[test]
    fn arguments_without_hugepages_have_memory_for_later_as_far_as_there_is() {
        let needs = |spare: usize| EalRequirements {
            bytes: 100 << 20,
            spare_bytes: spare << 20,
            ..EalRequirements::default()
        };
        assert!(text(&needs(50), &host(0)).contains("-m 150"));
        assert!(text(&needs(5000), &host(0)).contains("-m 562"));
    }

    #[test]
    fn arguments_with_hugepages_are_in_memory() {
        let text = text(
            &EalRequirements {
                bytes: 100 << 20,
                ..EalRequirements::default()
            },
            &host(200),
        );
        assert!(
            text.contains("--in-memory --single-file-segments --iova-mode=va"),
            "{text}"
        );
        assert!(!text.contains("--no-huge"), "{text}");
    }

    #[test]
    fn arguments_with_too_few_hugepages_say_why() {
        let needs = EalRequirements {
            bytes: 100 << 20,
            ..EalRequirements::default()
        };
        let (memory, _) = arguments(&needs, &host(50)).expect("arguments");
        assert_eq!(
            memory.to_string(),
            "ordinary pages (only 50 MiB of hugepages are free, but 100 MiB are needed)"
        );
        let demanded = arguments(
            &EalRequirements {
                hugepages: Some(true),
                ..needs
            },
            &host(50),
        );
        assert_eq!(
            "100 MiB of hugepages are needed and 50 MiB are free (25 of 50 pages of 2 MiB): run echo 75 > \
             /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages as root, or write hugepages = \"auto\" in [system]",
            demanded.expect_err("too few").to_string()
        );
    }

    #[test]
    fn card_with_physical_addresses_gets_hugepages_or_nothing() {
        let refused = |hugepages, free| {
            let host = Host {
                physical: Some(("0000:3b:00.0".parse().expect("an address"), Mode::Uio)),
                ..host(free)
            };
            let needs = EalRequirements {
                bytes: 100 << 20,
                hugepages,
                ..EalRequirements::default()
            };
            memory(&needs, &host).map_err(|fault| fault.to_string())
        };
        assert_eq!(Ok(Memory::Hugepages), refused(None, 100));
        let few = refused(None, 50).expect_err("too few");
        assert!(few.starts_with("0000:3b:00.0 uses UIO and needs 100 MiB"), "{few}");
        assert!(
            few.contains("and 50 MiB are free") && few.contains("run echo 75 >"),
            "{few}"
        );
        let disabled = refused(Some(false), 100).expect_err("forgone");
        assert!(
            disabled
                .ends_with("and hugepages are disabled in the configuration: write hugepages = \"auto\" in [system]"),
            "{disabled}"
        );
        let both = refused(Some(false), 0).expect_err("forgone and none");
        assert!(
            both.ends_with("nr_hugepages as root, write hugepages = \"auto\" in [system]"),
            "{both}"
        );
    }

    #[test]
    fn free_pages_of_all_sizes_count() {
        let mut host = host(50);
        host.hugepages.push(HugePages {
            bytes: 1 << 30,
            total: 1,
            free: 1,
            nodes: Vec::new(),
        });
        let needs = EalRequirements {
            bytes: 1000 << 20,
            ..EalRequirements::default()
        };
        assert_eq!(Ok(Memory::Hugepages), memory(&needs, &host));
    }

    #[test]
    fn arguments_beyond_the_memory_are_refused() {
        let refused = arguments(
            &EalRequirements {
                bytes: 2 << 30,
                ..EalRequirements::default()
            },
            &host(0),
        );
        assert!(matches!(
            refused,
            Err(EalError::NotEnoughMemory {
                needed: 2048,
                available: 1024
            })
        ));
    }

    #[test]
    fn arguments_take_no_card_at_the_start() {
        let address = "0000:3b:00.0".parse().expect("an address");
        let needs = EalRequirements {
            bytes: 1 << 20,
            pci: vec![address],
            ..EalRequirements::default()
        };
        let text = text(&needs, &host(0));
        assert!(text.contains(NO_CARD) && !text.contains("0000:3b:00.0"), "{text}");
    }
}

//! EAL's arguments: nobody types them.

use super::EalError;
use super::host::Host;
use crate::device::PciAddress;

/// What is to run, as far as the environment needs to know.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Bytes of DPDK memory: pools, rings and the drivers' own.
    pub bytes: usize,
    /// Bytes that may be needed later. Ordinary pages are taken for them as far as there is memory: they cost nothing until they
    /// are used.
    pub spare_bytes: usize,
    /// Cores that workers are to be pinned to.
    pub cores: Vec<usize>,
    /// Cards driven by DPDK itself.
    pub pci: Vec<PciAddress>,
    /// `Some(true)` demands hugepages, `Some(false)` forgoes them, `None` takes them where they suffice.
    pub hugepages: Option<bool>,
}

/// Where DPDK's memory comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Hugepages.
    Hugepages,
    /// Ordinary pages, with the reason.
    Ordinary {
        /// Why not hugepages.
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

/// An address that no card has.
const NO_CARD: &str = "ffff:ff:1f.7";

/// The arguments for what is to run on a host, and where memory comes from.
pub fn arguments(needs: &Needs, host: &Host) -> Result<(Memory, Vec<String>), EalError> {
    let megabytes = needs.bytes.div_ceil(1 << 20);
    let free = host.free_hugepage_bytes >> 20;
    let memory = match needs.hugepages {
        Some(false) => Memory::Ordinary {
            why: "so configured".into(),
        },
        Some(true) if free < megabytes => {
            return Err(EalError::NotEnoughHugepages {
                needed: megabytes,
                available: free,
            });
        }
        None if free == 0 => Memory::Ordinary {
            why: "no hugepages are free".into(),
        },
        None if free < megabytes => Memory::Ordinary {
            why: format!("{free} MiB of hugepages are free, {megabytes} MiB are needed"),
        },
        _ => Memory::Hugepages,
    };
    let mut arguments: Vec<String> = vec!["sluice".into(), "--no-telemetry".into(), "--log-level=notice".into()];
    // One logical core that floats over all that we may use; workers are registered threads with pins of their own.
    let cores: Vec<String> = host.cores.iter().map(usize::to_string).collect();
    arguments.push(format!("--lcores=0@({})", cores.join(",")));
    match memory {
        Memory::Hugepages => {
            arguments.push("--in-memory".into());
            // vhost shares memory by file: one file, or it meets the limit on regions in silence.
            arguments.push("--single-file-segments".into());
            if needs.pci.is_empty() {
                arguments.push("--iova-mode=va".into());
            }
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
    if needs.pci.is_empty() {
        // No card now, and some may come: with an empty list DPDK would take every card that it may.
        arguments.extend(["-a".into(), NO_CARD.into()]);
    }
    for address in &needs.pci {
        arguments.extend(["-a".into(), address.to_string()]);
    }
    Ok((memory, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(hugepages: usize) -> Host {
        Host {
            free_hugepage_bytes: hugepages << 20,
            available_bytes: 1 << 30,
            cores: vec![0, 1],
        }
    }

    fn text(needs: &Needs, host: &Host) -> String {
        arguments(needs, host).expect("arguments").1.join(" ")
    }

    #[test]
    fn arguments_without_hugepages_state_the_memory() {
        let text = text(
            &Needs {
                bytes: 100 << 20,
                ..Needs::default()
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
        let needs = |spare: usize| Needs {
            bytes: 100 << 20,
            spare_bytes: spare << 20,
            ..Needs::default()
        };
        assert!(text(&needs(50), &host(0)).contains("-m 150"));
        assert!(text(&needs(5000), &host(0)).contains("-m 562"));
    }

    #[test]
    fn arguments_with_hugepages_are_in_memory() {
        let text = text(
            &Needs {
                bytes: 100 << 20,
                ..Needs::default()
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
        let needs = Needs {
            bytes: 100 << 20,
            ..Needs::default()
        };
        let (memory, _) = arguments(&needs, &host(50)).expect("arguments");
        assert_eq!(
            memory.to_string(),
            "ordinary pages (50 MiB of hugepages are free, 100 MiB are needed)"
        );
        let demanded = arguments(
            &Needs {
                hugepages: Some(true),
                ..needs
            },
            &host(50),
        );
        assert!(matches!(
            demanded,
            Err(EalError::NotEnoughHugepages {
                needed: 100,
                available: 50
            })
        ));
    }

    #[test]
    fn arguments_beyond_the_memory_are_refused() {
        let refused = arguments(
            &Needs {
                bytes: 2 << 30,
                ..Needs::default()
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
    fn arguments_with_a_card_allow_only_that_card() {
        let address = "0000:3b:00.0".parse().expect("an address");
        let text = text(
            &Needs {
                bytes: 1 << 20,
                pci: vec![address],
                ..Needs::default()
            },
            &host(0),
        );
        assert!(text.contains("-a 0000:3b:00.0") && !text.contains(NO_CARD), "{text}");
    }
}

//! DPDK's environment abstraction layer (EAL). The EAL is started once per process. Its arguments are derived from the
//! configuration.

mod arguments;
mod diagnosis;
mod host;
mod log;

use std::ffi::{CStr, CString};
use std::sync::OnceLock;

pub use arguments::{EalRequirements, HugepageFault, HugepageReason, Memory, arguments, memory};
pub(crate) use diagnosis::last_log_lines;
pub use host::{Host, allowed_cores, free_hugepage_bytes, has_capability};
pub(crate) use host::{available_bytes, capability_in};
pub use log::recent_lines;

use crate::sys;

/// Why the EAL does not start, with a remedy.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EalError {
    /// The core does not exist, or this process may not use it.
    #[error(
        "core {core} is not among the cores that this process may use ({allowed:?}): write one of these cores, or \
         extend the CPU set of the process (taskset, CPUAffinity=, cpuset)"
    )]
    NoSuchCore {
        /// Number of the core.
        core: usize,
        /// Cores that this process may use.
        allowed: Vec<usize>,
    },
    /// There is not enough memory.
    #[error(
        "{needed} MiB of memory are needed, but only {available} MiB are available: lower sessions, queues or buffers \
         in the configuration, or add memory"
    )]
    NotEnoughMemory {
        /// MiB needed.
        needed: usize,
        /// MiB available.
        available: usize,
    },
    /// Hugepages are required, and too few are free.
    #[error(transparent)]
    Hugepages(#[from] HugepageFault),
    /// The process lacks a permission.
    #[error("no permission for {what}: {advice}")]
    NoPermission {
        /// Operation that was attempted.
        what: String,
        /// Advice to the operator.
        advice: &'static str,
    },
    /// The installed library is too old.
    #[error("{0} is too old: install 22.11 or newer (Debian: apt-get install dpdk)")]
    TooOld(String),
    /// DPDK returned another error. The end of DPDK's log is included.
    #[error("DPDK can't be started ({reason}): {last_log_lines}")]
    Refused {
        /// Text of DPDK's error code.
        reason: String,
        /// End of DPDK's log.
        last_log_lines: String,
    },
    /// The thread that starts the EAL could not be created.
    #[error("the thread that starts DPDK could not be created: {0}; raise the limit on threads (ulimit -u)")]
    NoThread(String),
}

/// The running EAL. The EAL exists until the process ends.
#[derive(Debug)]
pub struct Eal {
    memory: Memory,
    version: String,
}

static EAL: OnceLock<Result<Eal, EalError>> = OnceLock::new();

impl Eal {
    /// Start the EAL, or return the running EAL. After a failed start, further calls also fail, because DPDK can't be
    /// started twice.
    pub fn start(needs: &EalRequirements) -> Result<&'static Eal, EalError> {
        let eal = EAL.get_or_init(|| Self::initialise(needs));
        eal.as_ref().map_err(Clone::clone)
    }

    /// The EAL, if it is running.
    pub fn get() -> Option<&'static Eal> {
        EAL.get().and_then(|eal| eal.as_ref().ok())
    }

    fn initialise(needs: &EalRequirements) -> Result<Eal, EalError> {
        // SAFETY: the function returns a static string.
        let version = unsafe { CStr::from_ptr(sys::sluice_version()) }
            .to_string_lossy()
            .into_owned();
        if !is_supported(&version) {
            return Err(EalError::TooOld(version));
        }
        host::check(needs)?;
        let (memory, arguments) = arguments(needs, &host::Host::look(&needs.pci))?;
        log::open();
        let arguments: Vec<CString> = arguments
            .into_iter()
            .map(|argument| CString::new(argument).unwrap_or_default())
            .collect();
        // Start the EAL on a separate thread, because the EAL pins its starting thread, and child threads inherit the
        // affinity.
        let started = std::thread::Builder::new()
            .name("dpdk-start".into())
            .spawn(move || {
                let mut pointers: Vec<*mut std::ffi::c_char> =
                    arguments.iter().map(|argument| argument.as_ptr().cast_mut()).collect();
                // SAFETY: each element of `pointers` refers to a string, and the strings live during the call. The EAL
                // copies the strings, and at most reorders the array. `OnceLock` ensures a single start.
                unsafe { sys::sluice_eal_start(pointers.len() as i32, pointers.as_mut_ptr()) }
            })
            .map_err(|error| EalError::NoThread(error.to_string()))?
            .join()
            .unwrap_or(-libc::EFAULT);
        log::silence_libraries();
        if started == 0 {
            // The registers of legacy virtio with UIO are I/O ports. Only the thread that started the EAL had access to
            // them, and that thread has ended. An error is ignored, because it occurs only if DPDK has not loaded the
            // driver that needs I/O ports. SAFETY: the call only changes a permission of this thread.
            unsafe { sys::sluice_io_ports() };
        }
        match started {
            0 => {
                crate::presence::watch_removals();
                Ok(Eal { memory, version })
            }
            error => Err(refusal(-error, needs)),
        }
    }

    /// Kind of DPDK's memory, and reason for the choice.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Version string of DPDK.
    pub fn version(&self) -> &str {
        &self.version
    }
}

fn refusal(error: i32, needs: &EalRequirements) -> EalError {
    match error {
        libc::EACCES | libc::EPERM => EalError::NoPermission {
            what: "DPDK's start".into(),
            advice: "run the program as root, or with the capabilities that the operator's guide lists",
        },
        libc::ENOMEM => EalError::NotEnoughMemory {
            needed: needs.bytes >> 20,
            available: available_bytes() >> 20,
        },
        error => EalError::Refused {
            reason: error_text(error),
            last_log_lines: last_log_lines(4),
        },
    }
}

/// Text of an error number of DPDK or the system. The number may be positive or negative.
pub(crate) fn error_text(error: i32) -> String {
    // SAFETY: the function returns a static or thread-local string, which is copied immediately.
    unsafe { CStr::from_ptr(sys::sluice_error_text(error)) }
        .to_string_lossy()
        .into_owned()
}

/// Whether the version in a string such as `DPDK 22.11.11` is supported.
fn is_supported(version: &str) -> bool {
    let mut numbers = version
        .split(|character: char| !character.is_ascii_digit())
        .filter_map(|number| number.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (22, 11)
}

#[cfg(test)]
mod tests {
    use super::is_supported;

    #[test]
    fn version_below_the_floor_is_refused() {
        assert!(is_supported("DPDK 22.11.11"));
        assert!(is_supported("DPDK 24.03.0-rc1"));
        assert!(!is_supported("DPDK 22.07.0"));
        assert!(!is_supported("DPDK 21.11.9"));
        assert!(!is_supported(""));
    }
}

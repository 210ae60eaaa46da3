//! DPDK's environment: once per process, its arguments derived from what is to run.

mod arguments;
mod diagnosis;
mod host;
mod log;

use std::ffi::{CStr, CString};
use std::sync::OnceLock;

pub use arguments::{EalRequirements, HugepageFault, HugepageReason, Memory, arguments, memory};
pub(crate) use diagnosis::last_words;
pub use host::{Host, allowed_cores, free_hugepage_bytes, has_capability};
pub(crate) use host::{available_bytes, capability_in};
pub use log::recent_lines;

use crate::sys;

/// What keeps the environment from starting, and what to do.
#[derive(Debug, Clone, thiserror::Error)]
pub enum EalError {
    /// A core that this process may not use, or that does not exist.
    #[error(
        "core {core} is not among the cores that this process may use ({allowed:?}): name one of them, or widen its CPU set (taskset, CPUAffinity=, cpuset)"
    )]
    NoSuchCore {
        /// The core named.
        core: usize,
        /// Cores that may be used.
        allowed: Vec<usize>,
    },
    /// Memory does not suffice.
    #[error(
        "{needed} MiB of memory are needed and {available} MiB are available: lower sessions, queues or buffers in the configuration, or add memory"
    )]
    NotEnoughMemory {
        /// MiB needed.
        needed: usize,
        /// MiB available.
        available: usize,
    },
    /// Hugepages are needed and too few are free.
    #[error(transparent)]
    Hugepages(#[from] HugepageFault),
    /// The process may not do this.
    #[error("no permission for {what}: {advice}")]
    NoPermission {
        /// What was tried.
        what: String,
        /// What to do.
        advice: &'static str,
    },
    /// The library found at run time is too old.
    #[error("{0} is too old: install 22.11 or newer (Debian: apt-get install dpdk)")]
    TooOld(String),
    /// DPDK gave up for another reason; its own last words are kept.
    #[error("DPDK does not start ({reason}): {last_words}")]
    Refused {
        /// Text of DPDK's error code.
        reason: String,
        /// The end of its log.
        last_words: String,
    },
    /// No thread could be started.
    #[error("no thread for DPDK's start could be made: {0}; raise the limit on threads (ulimit -u)")]
    NoThread(String),
}

/// The running environment. It lasts as long as the process.
#[derive(Debug)]
pub struct Eal {
    memory: Memory,
    version: String,
}

static EAL: OnceLock<Result<Eal, EalError>> = OnceLock::new();

impl Eal {
    /// Start the environment, or find that it runs. A first start that failed stays failed: DPDK can't be started twice.
    pub fn start(needs: &EalRequirements) -> Result<&'static Eal, EalError> {
        let eal = EAL.get_or_init(|| Self::initialise(needs));
        eal.as_ref().map_err(Clone::clone)
    }

    /// The environment, where it runs.
    pub fn get() -> Option<&'static Eal> {
        EAL.get().and_then(|eal| eal.as_ref().ok())
    }

    fn initialise(needs: &EalRequirements) -> Result<Eal, EalError> {
        // SAFETY: returns a static string.
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
        // EAL pins the thread that starts it, and what that one spawns inherits it: so a thread of its own.
        let started = std::thread::Builder::new()
            .name("dpdk-start".into())
            .spawn(move || {
                let mut pointers: Vec<*mut std::ffi::c_char> =
                    arguments.iter().map(|argument| argument.as_ptr().cast_mut()).collect();
                // SAFETY: `pointers` are as many strings as said, alive during the call; EAL copies them and
                // at most reorders the array. `OnceLock` makes this the only start.
                unsafe { sys::sluice_eal_start(pointers.len() as i32, pointers.as_mut_ptr()) }
            })
            .map_err(|error| EalError::NoThread(error.to_string()))?
            .join()
            .unwrap_or(-libc::EFAULT);
        log::quiet_libraries();
        if started == 0 {
            // Legacy virtio by UIO has its registers at I/O ports. Only the thread that started EAL may use them so far, and it
            // has ended. Where this is refused, DPDK has left out the driver that needs it.
            // SAFETY: a right of this thread.
            unsafe { sys::sluice_io_ports() };
        }
        match started {
            0 => {
                crate::presence::watch();
                Ok(Eal { memory, version })
            }
            error => Err(refusal(-error, needs)),
        }
    }

    /// Where DPDK's memory comes from, and why.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// DPDK's version, as it names itself.
    pub fn version(&self) -> &str {
        &self.version
    }
}

fn refusal(error: i32, needs: &EalRequirements) -> EalError {
    match error {
        libc::EACCES | libc::EPERM => EalError::NoPermission {
            what: "DPDK's start".into(),
            advice: "run as root, or give the capabilities that the operator's guide names",
        },
        libc::ENOMEM => EalError::NotEnoughMemory {
            needed: needs.bytes >> 20,
            available: available_bytes() >> 20,
        },
        error => EalError::Refused {
            reason: error_text(error),
            last_words: last_words(4),
        },
    }
}

/// DPDK's or the system's text of an error number of either sign.
pub(crate) fn error_text(error: i32) -> String {
    // SAFETY: returns a string of static or thread-local storage, copied at once.
    unsafe { CStr::from_ptr(sys::sluice_error_text(error)) }
        .to_string_lossy()
        .into_owned()
}

/// Is `DPDK 22.11.11` new enough?
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

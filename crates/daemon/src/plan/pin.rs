//! A thread on a core of its own.

use rustix::thread::{CpuSet, sched_setaffinity};
use sluice_engine::placement::Core;

/// Keep this thread on a core.
///
/// # Errors
/// The kernel does not let it.
pub fn pin(core: Core) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    if usize::from(core) >= CpuSet::MAX_CPU {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    set.set(usize::from(core));
    Ok(sched_setaffinity(None, &set)?)
}

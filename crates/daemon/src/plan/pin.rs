//! Pinning of a thread to a core.

use rustix::thread::{CpuSet, sched_setaffinity};
use sluice_engine::placement::Core;

/// Pin the calling thread to a core.
///
/// # Errors
/// The kernel rejects the request.
pub fn pin(core: Core) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    if usize::from(core) >= CpuSet::MAX_CPU {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    set.set(usize::from(core));
    Ok(sched_setaffinity(None, &set)?)
}

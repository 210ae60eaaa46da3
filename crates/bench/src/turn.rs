//! Serialises tests that process packets.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use sluice_dpdk::eal::Eal;

/// DPDK can be started only once per process, and ring names are global. So only one test runs at a time, and it gets a
/// number for the names that it creates.
pub fn turn() -> (&'static Eal, MutexGuard<'static, u32>) {
    static EAL: OnceLock<&'static Eal> = OnceLock::new();
    static TURN: Mutex<u32> = Mutex::new(0);
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let eal = EAL.get_or_init(|| crate::rig::queues::start(2).expect("memory"));
    (eal, turn)
}

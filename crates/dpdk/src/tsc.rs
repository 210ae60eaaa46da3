//! The processor's time stamp counter.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Current counter value in cycles.
#[inline(always)]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has this instruction, which accesses no memory.
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        compile_error!("Sluice runs on x86-64 only");
    }
}

/// Cycles per second. The first call measures the frequency against the system clock, which takes 20 ms.
pub fn frequency() -> u64 {
    static FREQUENCY: OnceLock<u64> = OnceLock::new();
    *FREQUENCY.get_or_init(|| {
        let (started, from) = (Instant::now(), now());
        while started.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let (cycles, elapsed) = (now() - from, started.elapsed());
        (cycles as u128 * 1_000_000_000 / elapsed.as_nanos().max(1)) as u64
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn counter_goes_forward_at_a_plausible_rate() {
        let before = super::now();
        assert!((100_000_000..20_000_000_000).contains(&super::frequency()));
        assert!(super::now() > before);
    }
}

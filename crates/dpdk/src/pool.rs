//! Pools of buffers.

use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::eal::{Eal, error_text, free_hugepage_bytes};
use crate::sys;

/// Headroom of a buffer as a driver fills it.
pub const HEADROOM: u16 = 128;

/// Room of an ordinary buffer: headroom, and a frame of 2,048 bytes.
pub const ORDINARY_BUFFER: u16 = HEADROOM + 2048;

/// Room of a buffer of AF_XDP: with its header it stays below a page.
pub const AF_XDP_BUFFER: u16 = 3584;

/// Room that AF_PACKET's jumbo frames need.
pub const JUMBO_BUFFER: u16 = 16_512;

/// Why there is no pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// Memory does not suffice.
    #[error(
        "{count} buffers of {buffer_bytes} bytes need {megabytes} MiB and DPDK's memory has no such piece ({free} MiB of hugepages are free, others may have taken some since the start): lower queues or buffers in the configuration, or reserve more hugepages (vm.nr_hugepages)"
    )]
    NotEnoughMemory {
        /// Buffers.
        count: u32,
        /// Bytes of room each.
        buffer_bytes: u16,
        /// MiB in all.
        megabytes: usize,
        /// MiB of hugepages that are free now.
        free: usize,
    },
    /// The pool came in several pieces, and AF_XDP would be deaf beyond the first.
    #[error(
        "{count} buffers for AF_XDP came in {pieces} pieces of memory instead of one: reserve hugepages at boot (hugepages= on the kernel's command line), or lower queues or buffers"
    )]
    Scattered {
        /// Buffers.
        count: u32,
        /// Pieces.
        pieces: u32,
    },
    /// The part of DPDK that keeps free buffers is not installed.
    #[error("DPDK's plug-in librte_mempool_ring is missing: install the package librte-mempool-ring23 or dpdk")]
    NoMempoolDriver,
    /// DPDK refused for another reason.
    #[error("no pool of {count} buffers: {reason}")]
    Refused {
        /// Buffers.
        count: u32,
        /// DPDK's text.
        reason: String,
    },
}

/// How many buffers of what room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// Buffers; a power of two less one uses memory best.
    pub count: u32,
    /// Bytes of room each, headroom included.
    pub room: u16,
    /// Buffers cached per core; 0 makes the pool strictly first in, first out.
    pub cache: u32,
    /// No gap between buffers, as AF_XDP's memory must be. Elsewhere memory may come in pieces.
    pub adjoining: bool,
}

impl PoolSize {
    /// Bytes of memory that it takes, with its ring and what allocation rounds up.
    pub fn bytes(&self) -> usize {
        // Header of the pool's object, and of the buffer, rounding to a line, and DPDK's spread
        // over memory channels.
        let object = (64 + 128 + self.room as usize).next_multiple_of(64) + 64;
        let object = match self.adjoining {
            true => object.max(sys::SLUICE_ADJOINING_OBJECT as usize),
            false => object,
        };
        self.count as usize * (object + 16) + (4 << 20)
    }
}

/// A pool. It lives as long as anything that may hold its buffers.
#[derive(Debug)]
pub struct Pool {
    name: String,
    raw: *mut sys::rte_mempool,
    size: PoolSize,
    /// Most buffers that a driver keeps after close.
    keepable: AtomicU32,
}

// SAFETY: DPDK's pools are made for use by many threads at once.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

/// What a pool should have and has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolBalance {
    /// Name of what the pool serves.
    pub name: String,
    /// Buffers.
    pub size: u32,
    /// Buffers in the pool.
    pub available: u32,
    /// Most buffers that a driver of this pool keeps after its close.
    pub kept_by_driver: u32,
}

impl PoolBalance {
    /// Nothing is missing but what the driver may keep.
    pub fn is_even(&self) -> bool {
        self.available <= self.size && self.size - self.available <= self.kept_by_driver
    }
}

impl Pool {
    /// A pool for `name`, whose buffers carry the addresses that a card reads and writes by.
    pub fn new(_eal: &Eal, name: &str, size: PoolSize) -> Result<Arc<Pool>, PoolError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let unique = CString::new(format!("pool{}", NUMBER.fetch_add(1, Ordering::Relaxed))).unwrap_or_default();
        let (mut raw, mut pieces) = (std::ptr::null_mut(), 0);
        // SAFETY: EAL runs (witness), the name is a C string, both results are written on success only.
        let made = unsafe {
            sys::sluice_pool_create(
                unique.as_ptr(),
                size.count,
                size.cache,
                size.room,
                i32::from(size.adjoining),
                &mut raw,
                &mut pieces,
            )
        };
        match -made {
            0 => {}
            libc::ENOMEM => {
                return Err(PoolError::NotEnoughMemory {
                    count: size.count,
                    buffer_bytes: size.room,
                    megabytes: size.bytes() >> 20,
                    free: free_hugepage_bytes() >> 20,
                });
            }
            libc::ENOSYS => return Err(PoolError::NoMempoolDriver),
            error => {
                return Err(PoolError::Refused {
                    count: size.count,
                    reason: error_text(error),
                });
            }
        }
        let pool = Pool {
            name: name.into(),
            raw,
            size,
            keepable: AtomicU32::new(0),
        };
        if size.adjoining && pieces != 1 {
            return Err(PoolError::Scattered {
                count: size.count,
                pieces,
            });
        }
        Ok(Arc::new(pool))
    }

    /// Name of what it serves.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Buffers in the pool now.
    pub fn available(&self) -> u32 {
        // SAFETY: the pool is alive.
        unsafe { sys::sluice_pool_available(self.raw) }
    }

    /// How many buffers of what room.
    pub fn size(&self) -> PoolSize {
        self.size
    }

    /// How many buffers a card would not find at the address that they carry. It looks at each: for tests.
    pub fn misaddressed(&self) -> u32 {
        // SAFETY: the pool is alive; its list of objects does not change once it is made.
        unsafe { sys::sluice_pool_misaddressed(self.raw) }
    }

    /// What it should have and has.
    pub fn balance(&self) -> PoolBalance {
        PoolBalance {
            name: self.name.clone(),
            size: self.size.count,
            available: self.available(),
            kept_by_driver: self.keepable.load(Ordering::Relaxed),
        }
    }

    /// A driver of this pool may keep so many more after its close.
    pub(crate) fn allow_kept(&self, count: u32) {
        self.keepable.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn raw(&self) -> *mut sys::rte_mempool {
        self.raw
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Buffers that are still out somewhere make freeing unsound: their memory is then given up instead. What
        // a closed driver keeps, it never touches again.
        if self.balance().is_even() {
            // SAFETY: nobody owns one of its buffers, and `self` was the last name of it.
            unsafe { sys::sluice_pool_destroy(self.raw) };
        }
    }
}

//! Buffer pools.

use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::eal::{Eal, error_text, free_hugepage_bytes};
use crate::sys;

/// Headroom in bytes that drivers leave before a received frame.
pub const HEADROOM: u16 = 128;

/// Size in bytes of an ordinary buffer: the headroom and a frame of 2,048 bytes.
pub const ORDINARY_BUFFER: u16 = HEADROOM + 2048;

/// Size of a buffer for AF_XDP. A buffer and its header fit into a page.
pub const AF_XDP_BUFFER: u16 = 3584;

/// Size of a buffer for jumbo frames with AF_PACKET.
pub const JUMBO_BUFFER: u16 = 16_512;

/// Why a pool can't be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// There is not enough memory.
    #[error(
        "{count} buffers of {buffer_bytes} bytes need {megabytes} MiB of contiguous memory, which DPDK does not have \
         ({free} MiB of hugepages are free; other processes may have used hugepages since the start): lower queues or \
              buffers in the configuration, or reserve more hugepages (vm.nr_hugepages)"
    )]
    NotEnoughMemory {
        /// Number of buffers.
        count: u32,
        /// Size of each buffer in bytes.
        buffer_bytes: u16,
        /// Total size in MiB.
        megabytes: usize,
        /// Free hugepages in MiB.
        free: usize,
    },
    /// The memory of a pool for AF_XDP is not contiguous. AF_XDP could receive only into the first piece of memory.
    #[error(
        "{count} buffers for AF_XDP need one contiguous piece of memory, but DPDK has only {pieces} separate pieces: \
         reserve hugepages at boot (hugepages= on the kernel's command line), or lower queues or buffers"
    )]
    NotContiguous {
        /// Number of buffers.
        count: u32,
        /// Number of pieces.
        pieces: u32,
    },
    /// DPDK's mempool driver is not installed.
    #[error("DPDK's plug-in librte_mempool_ring is missing: install the package librte-mempool-ring23 or dpdk")]
    NoMempoolDriver,
    /// DPDK returned another error.
    #[error("a pool of {count} buffers can't be created: {reason}")]
    Refused {
        /// Number of buffers.
        count: u32,
        /// DPDK's error text.
        reason: String,
    },
}

/// Number and size of a pool's buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSize {
    /// Number of buffers. Powers of two minus one waste the least memory.
    pub count: u32,
    /// Size of each buffer in bytes, including headroom.
    pub data_room: u16,
    /// Number of cached buffers per core. 0 makes the pool strictly first-in, first-out.
    pub cache: u32,
    /// Whether the buffers must be in contiguous memory, as AF_XDP requires. If false, the memory may consist of
    /// several pieces.
    pub adjoining: bool,
}

impl PoolSize {
    /// Bytes of memory for the pool, including its ring and the allocator's rounding.
    pub fn bytes(&self) -> usize {
        // Headers of the mempool object and of the mbuf, rounding to a cache line, and DPDK's padding that spreads
        // objects over memory channels.
        let object = (64 + 128 + self.data_room as usize).next_multiple_of(64) + 64;
        let object = match self.adjoining {
            true => object.max(sys::SLUICE_ADJOINING_OBJECT as usize),
            false => object,
        };
        self.count as usize * (object + 16) + (4 << 20)
    }
}

/// A buffer pool, which lives longer than all owners of its buffers.
#[derive(Debug)]
pub struct Pool {
    name: String,
    raw: *mut sys::rte_mempool,
    size: PoolSize,
    /// Maximum number of buffers that drivers keep after their ports are closed.
    max_retained: AtomicU32,
}

// SAFETY: DPDK's pools support concurrent use by several threads.
unsafe impl Send for Pool {}
// SAFETY: the reason for `Send` applies.
unsafe impl Sync for Pool {}

/// Balance of a pool: its size, and the number of buffers that it currently contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolBalance {
    /// Name of the port that uses the pool, or purpose of the pool.
    pub name: String,
    /// Number of buffers.
    pub size: u32,
    /// Buffers currently in the pool.
    pub available: u32,
    /// Maximum number of buffers of this pool that drivers keep after their ports are closed.
    pub retained_by_driver: u32,
}

impl PoolBalance {
    /// Whether the pool contains all buffers except buffers that a driver may keep.
    pub fn is_even(&self) -> bool {
        self.available <= self.size && self.size - self.available <= self.retained_by_driver
    }
}

impl Pool {
    /// Create a pool with a name. Each buffer contains its DMA address for cards.
    pub fn new(_eal: &Eal, name: &str, size: PoolSize) -> Result<Arc<Pool>, PoolError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let unique = CString::new(format!("pool{}", NUMBER.fetch_add(1, Ordering::Relaxed))).unwrap_or_default();
        let (mut raw, mut pieces) = (std::ptr::null_mut(), 0);
        // SAFETY: the EAL is running (`_eal` proves it), the name is a C string, and the two results are written only
        // on success.
        let made = unsafe {
            sys::sluice_pool_create(
                unique.as_ptr(),
                size.count,
                size.cache,
                size.data_room,
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
                    buffer_bytes: size.data_room,
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
            max_retained: AtomicU32::new(0),
        };
        if size.adjoining && pieces != 1 {
            return Err(PoolError::NotContiguous {
                count: size.count,
                pieces,
            });
        }
        Ok(Arc::new(pool))
    }

    /// Name of the port that uses the pool, or purpose of the pool.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of buffers currently in the pool.
    pub fn available(&self) -> u32 {
        // SAFETY: the pool is alive.
        unsafe { sys::sluice_pool_available(self.raw) }
    }

    /// Number and size of the buffers.
    pub fn size(&self) -> PoolSize {
        self.size
    }

    /// Number of buffers with a wrong DMA address, for tests. The function checks every buffer.
    pub fn misaddressed(&self) -> u32 {
        // SAFETY: the pool is alive, and its list of objects does not change after creation.
        unsafe { sys::sluice_pool_misaddressed(self.raw) }
    }

    /// Size of the pool, and number of buffers in the pool.
    pub fn balance(&self) -> PoolBalance {
        PoolBalance {
            name: self.name.clone(),
            size: self.size.count,
            available: self.available(),
            retained_by_driver: self.max_retained.load(Ordering::Relaxed),
        }
    }

    /// Allow drivers to keep `count` more buffers of this pool after their ports are closed.
    pub(crate) fn allow_retained(&self, count: u32) {
        self.max_retained.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn raw(&self) -> *mut sys::rte_mempool {
        self.raw
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Leak the memory if buffers are still in use, because freeing it would be unsound. Buffers that a closed
        // driver keeps are never accessed.
        if self.balance().is_even() {
            // SAFETY: the buffers of the pool have no owner, and `self` was the last reference to the pool.
            unsafe { sys::sluice_pool_destroy(self.raw) };
        }
    }
}

//! DPDK's IPv4 routing table rte_fib with DIR-24-8, as a reference in benchmarks. The data plane does not use rte_fib.
//! Only programs that reference this module load the library of rte_fib.

use std::ffi::CString;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::eal::{Eal, error_text};
use crate::sys;

/// Value that [`Fib::lookup`] returns if no route matches.
pub const NO_ROUTE: u64 = (1 << 24) - 1;
/// Number of addresses passed to rte_fib per call.
const BATCH: usize = 64;

/// Why rte_fib rejects a table or a route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FibError {
    /// The creation of a table of this size failed.
    #[error(
        "rte_fib can't create a table of {routes} routes: {reason}; start DPDK with more memory, or reserve more \
         hugepages"
    )]
    Table {
        /// Number of routes.
        routes: u32,
        /// DPDK's error text.
        reason: String,
    },
    /// A route is rejected.
    #[error("rte_fib refuses a route to {address:#010x}/{length}: {reason}")]
    Route {
        /// First address of the prefix.
        address: u32,
        /// Length of the prefix in bits.
        length: u8,
        /// DPDK's error text.
        reason: String,
    },
}

/// IPv4 routes in rte_fib.
#[derive(Debug)]
pub struct Fib {
    raw: NonNull<sys::rte_fib>,
    before: usize,
}

impl Fib {
    /// Create an empty table with capacity for `routes` routes. Routes longer than /24 may belong to at most `groups`
    /// different /24 prefixes. Lookup uses the widest SIMD instructions of this machine.
    pub fn new(_eal: &Eal, routes: u32, groups: u32) -> Result<Self, FibError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = CString::new(format!("fib{}", NUMBER.fetch_add(1, Ordering::Relaxed))).unwrap_or_default();
        // SAFETY: the EAL is running (`_eal` proves it).
        let before = unsafe { sys::sluice_heap_bytes() };
        let mut raw = ptr::null_mut();
        // SAFETY: the EAL is running, the name is a C string, and the result is written only on success.
        let error = unsafe { sys::sluice_fib_create(name.as_ptr(), routes, groups, NO_ROUTE as u32, &mut raw) };
        let raw = NonNull::new(raw)
            .filter(|_| error == 0)
            .ok_or_else(|| FibError::Table {
                routes,
                reason: error_text(-error),
            })?;
        Ok(Self { raw, before })
    }

    /// Add a route, or change its value. The value must be less than [`NO_ROUTE`].
    pub fn insert(&mut self, address: u32, length: u8, value: u32) -> Result<(), FibError> {
        // SAFETY: the table lives as long as `self`, which is borrowed exclusively.
        let error = unsafe { sys::sluice_fib_add(self.raw.as_ptr(), address, length, value) };
        match error {
            0 => Ok(()),
            error => Err(FibError::Route {
                address,
                length,
                reason: error_text(-error),
            }),
        }
    }

    /// Look up the value of the longest matching route for each address, or [`NO_ROUTE`]. If the slices differ in
    /// length, the shortest length applies.
    pub fn lookup(&self, addresses: &[u32], values: &mut [u64]) {
        for (addresses, values) in addresses.chunks(BATCH).zip(values.chunks_mut(BATCH)) {
            let count = addresses.len().min(values.len());
            // SAFETY: the table lives as long as `self`. There are `count` addresses, which rte_fib only reads, and
            // `values` has room for `count` values.
            unsafe {
                let addresses = addresses.as_ptr().cast_mut();
                sys::sluice_fib_lookup(self.raw.as_ptr(), addresses, values.as_mut_ptr(), count as u32)
            };
        }
    }

    /// Bytes of DPDK memory allocated since the creation of the table. This is the size of the table if no other
    /// component allocates memory.
    pub fn bytes(&self) -> usize {
        // SAFETY: a table exists only if the EAL is running.
        unsafe { sys::sluice_heap_bytes() }.saturating_sub(self.before)
    }
}

impl Drop for Fib {
    fn drop(&mut self) {
        // SAFETY: `sluice_fib_create` created the table, and `self` holds the only pointer to it.
        unsafe { sys::sluice_fib_free(self.raw.as_ptr()) };
    }
}

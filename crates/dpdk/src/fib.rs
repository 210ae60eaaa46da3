//! DPDK's own table of IPv4 routes, rte_fib with DIR-24-8: what benchmarks hold ours against. The data plane does not use it,
//! and a program that does not name it does not load its library.

use std::ffi::CString;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::eal::{Eal, error_text};
use crate::sys;

/// What [`Fib::lookup`] writes where no route matches.
pub const NO_ROUTE: u64 = (1 << 24) - 1;
/// Addresses that are handed to rte_fib at a time.
const BATCH: usize = 64;

/// Why rte_fib does not take routes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FibError {
    /// No table of this size.
    #[error(
        "rte_fib makes no table of {routes} routes: {reason}; start DPDK with more memory, or reserve more hugepages"
    )]
    Table {
        /// How many routes.
        routes: u32,
        /// DPDK's text.
        reason: String,
    },
    /// A route is refused.
    #[error("rte_fib refuses a route to {address:#010x}/{length}: {reason}")]
    Route {
        /// First address.
        address: u32,
        /// Length of the prefix in bits.
        length: u8,
        /// DPDK's text.
        reason: String,
    },
}

/// IPv4 routes as rte_fib has them.
#[derive(Debug)]
pub struct Fib {
    raw: NonNull<sys::rte_fib>,
    before: usize,
}

impl Fib {
    /// No routes yet, with place for so many, and for `groups` /24 that longer routes lie in. It is searched by the widest
    /// instructions that this machine has.
    pub fn new(_eal: &Eal, routes: u32, groups: u32) -> Result<Self, FibError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = CString::new(format!("fib{}", NUMBER.fetch_add(1, Ordering::Relaxed))).unwrap_or_default();
        // SAFETY: EAL runs (witness).
        let before = unsafe { sys::sluice_heap_bytes() };
        let mut raw = ptr::null_mut();
        // SAFETY: EAL runs, the name is a C string, the result is written on success only.
        let error = unsafe { sys::sluice_fib_create(name.as_ptr(), routes, groups, NO_ROUTE as u32, &mut raw) };
        let raw = NonNull::new(raw)
            .filter(|_| error == 0)
            .ok_or_else(|| FibError::Table {
                routes,
                reason: error_text(-error),
            })?;
        Ok(Self { raw, before })
    }

    /// Add a route, or change its value, which must be less than [`NO_ROUTE`].
    pub fn insert(&mut self, address: u32, length: u8, value: u32) -> Result<(), FibError> {
        // SAFETY: the table lives as long as `self`, which is borrowed alone.
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

    /// The value of the longest route to each address, or [`NO_ROUTE`], as far as both reach.
    pub fn lookup(&self, addresses: &[u32], values: &mut [u64]) {
        for (addresses, values) in addresses.chunks(BATCH).zip(values.chunks_mut(BATCH)) {
            let count = addresses.len().min(values.len());
            // SAFETY: the table lives as long as `self`; there are `count` addresses, which rte_fib only reads, and place for
            // as many values.
            unsafe {
                let addresses = addresses.as_ptr().cast_mut();
                sys::sluice_fib_lookup(self.raw.as_ptr(), addresses, values.as_mut_ptr(), count as u32)
            };
        }
    }

    /// Bytes of DPDK's memory that were taken since it was made: all its own where nothing else takes any.
    pub fn bytes(&self) -> usize {
        // SAFETY: EAL runs, or there would be no table.
        unsafe { sys::sluice_heap_bytes() }.saturating_sub(self.before)
    }
}

impl Drop for Fib {
    fn drop(&mut self) {
        // SAFETY: it was made by `sluice_fib_create`, and `self` is its only name.
        unsafe { sys::sluice_fib_free(self.raw.as_ptr()) };
    }
}

//! DPDK's packet classifier rte_acl for IPv4 five-tuples, as a reference in benchmarks. The data plane does not use
//! rte_acl. Only programs that reference this module load the library of rte_acl.

use std::ffi::{CStr, CString};
use std::ops::RangeInclusive;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::eal::{Eal, error_text};
use crate::sys;

/// Maximum number of rules, equal to the number of priorities in rte_acl.
pub const MAX_RULES: usize = (1 << 29) - 1;
/// Number of keys passed to rte_acl per call.
const BATCH: usize = 64;

/// Why rte_acl can't use a set of rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AclError {
    /// An address range is not a prefix.
    #[error("the addresses {first:#010x} to {last:#010x} are not a prefix, as rte_acl requires")]
    NotAPrefix {
        /// First address of the range.
        first: u32,
        /// Last address of the range.
        last: u32,
    },
    /// A port range is empty.
    #[error("rule {rule} has a range of ports that ends before it begins")]
    Reversed {
        /// Index of the rule, starting at 0.
        rule: usize,
    },
    /// The number of rules is 0 or exceeds [`MAX_RULES`].
    #[error("{count} rules are not possible: rte_acl supports 1 to {MAX_RULES} rules")]
    Count {
        /// Number of rules.
        count: usize,
    },
    /// There is not enough memory.
    #[error("rte_acl is out of memory for {count} rules: start DPDK with more memory, or reserve more hugepages")]
    NotEnoughMemory {
        /// Number of rules.
        count: usize,
    },
    /// DPDK returned another error.
    #[error("rte_acl refuses {count} rules: {reason}")]
    Refused {
        /// Number of rules.
        count: usize,
        /// DPDK's error text.
        reason: String,
    },
}

/// An IPv4 prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    address: u32,
    length: u8,
}

impl Prefix {
    /// Convert an address range that is a prefix.
    pub fn of_range(first: u32, last: u32) -> Result<Self, AclError> {
        let length = (first ^ last).leading_zeros();
        let hosts = u32::MAX.checked_shr(length).unwrap_or(0);
        if first & hosts != 0 || last != first | hosts {
            return Err(AclError::NotAPrefix { first, last });
        }
        Ok(Self {
            address: first,
            length: length as u8,
        })
    }
}

/// Conditions of a rule. All conditions must match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclRule {
    /// Source addresses.
    pub source: Prefix,
    /// Destination addresses.
    pub destination: Prefix,
    /// Source ports.
    pub source_ports: RangeInclusive<u16>,
    /// Destination ports.
    pub destination_ports: RangeInclusive<u16>,
    /// Protocol value, compared under `protocol_mask`.
    pub protocol: u8,
    /// Mask of the protocol bits to compare.
    pub protocol_mask: u8,
}

impl AclRule {
    fn raw(&self, rule: usize) -> Result<sys::sluice_acl_rule, AclError> {
        if self.source_ports.is_empty() || self.destination_ports.is_empty() {
            return Err(AclError::Reversed { rule });
        }
        Ok(sys::sluice_acl_rule {
            source: self.source.address,
            destination: self.destination.address,
            source_first: *self.source_ports.start(),
            source_last: *self.source_ports.end(),
            destination_first: *self.destination_ports.start(),
            destination_last: *self.destination_ports.end(),
            source_length: self.source.length,
            destination_length: self.destination.length,
            protocol: self.protocol & self.protocol_mask,
            protocol_mask: self.protocol_mask,
        })
    }
}

/// Key of a packet to classify: 16 bytes in the layout of the shim's `sluice_acl_key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct AclKey([u8; 16]);

const _: () = {
    assert!(size_of::<AclKey>() == size_of::<sys::sluice_acl_key>());
    assert!(std::mem::offset_of!(sys::sluice_acl_key, source) == 4);
    assert!(std::mem::offset_of!(sys::sluice_acl_key, destination) == 8);
    assert!(std::mem::offset_of!(sys::sluice_acl_key, source_port) == 12);
    assert!(std::mem::offset_of!(sys::sluice_acl_key, destination_port) == 14);
};

impl AclKey {
    /// Key of a packet. `source` and `destination` consist of address and port.
    pub fn new(source: (u32, u16), destination: (u32, u16), protocol: u8) -> Self {
        let mut bytes = [0; 16];
        bytes[0] = protocol;
        bytes[4..8].copy_from_slice(&source.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&destination.0.to_be_bytes());
        bytes[12..14].copy_from_slice(&source.1.to_be_bytes());
        bytes[14..].copy_from_slice(&destination.1.to_be_bytes());
        Self(bytes)
    }
}

/// Rules compiled by rte_acl.
#[derive(Debug)]
pub struct Acl {
    raw: NonNull<sys::rte_acl_ctx>,
    algorithm: &'static str,
    bytes: usize,
}

impl Acl {
    /// Compile rules in order of priority: the first rule that matches a key applies. Classification uses the widest
    /// SIMD instructions of this machine.
    pub fn new(_eal: &Eal, rules: &[AclRule]) -> Result<Self, AclError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let count = rules.len();
        if !(1..=MAX_RULES).contains(&count) {
            return Err(AclError::Count { count });
        }
        let rules = rules.iter().enumerate().map(|(number, rule)| rule.raw(number));
        let rules: Vec<_> = rules.collect::<Result<_, _>>()?;
        let name = CString::new(format!("acl{}", NUMBER.fetch_add(1, Ordering::Relaxed))).unwrap_or_default();
        let (mut raw, mut algorithm, mut bytes) = (ptr::null_mut(), 0, 0);
        // SAFETY: the EAL is running (`_eal` proves it), the name is a C string, there are `count` rules, and the
        // results are written only on success.
        let built = unsafe {
            let rules = rules.as_ptr();
            sys::sluice_acl_build(name.as_ptr(), rules, count as u32, &mut raw, &mut algorithm, &mut bytes)
        };
        let refused = |error| match error {
            libc::ENOMEM => AclError::NotEnoughMemory { count },
            error => AclError::Refused {
                count,
                reason: error_text(error),
            },
        };
        let raw = NonNull::new(raw)
            .filter(|_| built == 0)
            .ok_or_else(|| refused(-built))?;
        // SAFETY: the function returns a static string.
        let name = unsafe { CStr::from_ptr(sys::sluice_acl_algorithm_name(algorithm)) };
        Ok(Self {
            raw,
            algorithm: name.to_str().unwrap_or_default(),
            bytes,
        })
    }

    /// Instruction set in use: `avx512x32`, `avx512x16`, `avx2`, `sse` or `scalar`.
    pub fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    /// Number of bytes of DPDK memory in use.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Find the first matching rule of each key. If the slices differ in length, the shortest length applies.
    pub fn classify(&self, keys: &[AclKey], found: &mut [Option<u32>]) {
        for (keys, found) in keys.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
            let (mut pointers, mut numbers) = ([ptr::null(); BATCH], [0; BATCH]);
            for (pointer, key) in pointers.iter_mut().zip(keys) {
                *pointer = key.0.as_ptr();
            }
            let count = keys.len().min(found.len());
            // SAFETY: the rules are compiled and live as long as `self`; the first `count` pointers refer to keys of
            // the expected layout, and `found` has room for `count` results.
            unsafe {
                sys::sluice_acl_classify(
                    self.raw.as_ptr(),
                    pointers.as_mut_ptr(),
                    numbers.as_mut_ptr(),
                    count as u32,
                )
            };
            for (found, number) in found.iter_mut().zip(numbers).take(count) {
                *found = number.checked_sub(1);
            }
        }
    }
}

impl Drop for Acl {
    fn drop(&mut self) {
        // SAFETY: `sluice_acl_build` created the rules, and `self` holds the only pointer to them.
        unsafe { sys::sluice_acl_free(self.raw.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_a_prefix_or_refused() {
        let prefix = |address, length| Ok(Prefix { address, length });
        assert_eq!(prefix(0, 0), Prefix::of_range(0, u32::MAX));
        assert_eq!(prefix(0x0a01_0000, 16), Prefix::of_range(0x0a01_0000, 0x0a01_ffff));
        assert_eq!(prefix(7, 32), Prefix::of_range(7, 7));
        for (first, last) in [
            (0, 2),
            (1, 2),
            (7, 8),
            (0x0a01_0001, 0x0a01_ffff),
            (9, 8),
            (u32::MAX, 0),
        ] {
            assert_eq!(Err(AclError::NotAPrefix { first, last }), Prefix::of_range(first, last));
        }
    }
}

//! Memory for large tables, backed by hugepages if available.

use std::fmt;
use std::ptr::NonNull;

use sluice_table::memory::{LINE, Line};

/// Kind of pages that back a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Reserved hugepages.
    Hugepages,
    /// Ordinary pages, which the kernel merges into transparent hugepages if possible.
    Transparent,
    /// Ordinary pages.
    Ordinary,
}

impl fmt::Display for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backing::Hugepages => "hugepages",
            Backing::Transparent => "transparent hugepages",
            Backing::Ordinary => "ordinary pages",
        })
    }
}

/// Memory of this size is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} MiB of memory for a table can't be allocated ({reason}): lower the capacity of the table in the \
     configuration, or add memory", bytes >> 20)]
pub struct MemoryError {
    /// Requested bytes.
    pub bytes: usize,
    /// Error text of the system.
    pub reason: String,
}

/// Zeroed, page-aligned memory with populated pages. Dropping the region unmaps the memory.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    length: usize,
    backing: Backing,
}

// SAFETY: the region owns its memory, and gives access to it only through borrows.
unsafe impl Send for Region {}
// SAFETY: the reason for `Send` applies.
unsafe impl Sync for Region {}

const HUGEPAGE: usize = 2 << 20;

impl Region {
    /// Allocate at least `bytes` of memory.
    pub fn new(bytes: usize) -> Result<Self, MemoryError> {
        let length = bytes.max(1).next_multiple_of(HUGEPAGE);
        let map = |length: usize, flags: i32| {
            // SAFETY: the call creates a new anonymous mapping at an address that the kernel chooses.
            let start = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    length,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                    -1,
                    0,
                )
            };
            if start == libc::MAP_FAILED {
                None
            } else {
                NonNull::new(start.cast::<u8>())
            }
        };
        // Without MAP_NORESERVE, the kernel reserves the hugepages in this call, so that no later page fault can fail.
        if let Some(start) = map(length, libc::MAP_HUGETLB) {
            let region = Self {
                start,
                length,
                backing: Backing::Hugepages,
            };
            region.populate();
            return Ok(region);
        }
        // Map additional memory to align the region to hugepages, and unmap the excess.
        let error = |bytes| MemoryError {
            bytes,
            reason: std::io::Error::last_os_error().to_string(),
        };
        let padded = length.checked_add(HUGEPAGE).ok_or_else(|| error(bytes))?;
        if padded > crate::eal::available_bytes() {
            return Err(MemoryError {
                bytes,
                reason: "less is available".into(),
            });
        }
        let whole = map(padded, 0).ok_or_else(|| error(bytes))?;
        let before = whole.as_ptr().align_offset(HUGEPAGE);
        // SAFETY: `before` is less than HUGEPAGE, so the region and the two unmapped ranges lie within the new mapping.
        let (start, advised) = unsafe {
            let start = whole.add(before);
            if before > 0 {
                libc::munmap(whole.as_ptr().cast(), before);
            }
            libc::munmap(start.add(length).as_ptr().cast(), HUGEPAGE - before);
            (
                start,
                libc::madvise(start.as_ptr().cast(), length, libc::MADV_HUGEPAGE) == 0,
            )
        };
        let backing = if advised && transparent() {
            Backing::Transparent
        } else {
            Backing::Ordinary
        };
        let region = Self { start, length, backing };
        region.populate();
        Ok(region)
    }

    /// Populate every page, so that no page faults occur under traffic.
    fn populate(&self) {
        // SAFETY: the region owns the mapping. A kernel that does not know this advice populates pages at their first
        // access.
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.length, libc::MADV_POPULATE_WRITE) };
    }

    /// Kind of pages that back the region.
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.length
    }

    /// The memory as cache lines.
    pub fn lines(&mut self) -> &mut [Line] {
        // SAFETY: the mapping has `length` initialised bytes, is page-aligned, and belongs to only this region. Every
        // bit pattern is a valid line.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), self.length / LINE) }
    }

    /// The memory as cache lines for the remaining lifetime of the process. The memory is never unmapped.
    pub fn leak(self) -> &'static mut [Line] {
        let region = std::mem::ManuallyDrop::new(self);
        // SAFETY: the reasons in `lines` apply. The mapping persists, because the destructor of the region never runs.
        unsafe { std::slice::from_raw_parts_mut(region.start.as_ptr().cast(), region.length / LINE) }
    }
}

fn transparent() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|text| text.contains("[always]") || text.contains("[madvise]"))
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the region owns the mapping, and every borrow of it has ended.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_is_zeroed_aligned_and_writable() {
        let mut region = Region::new(3 << 20).expect("memory");
        assert_eq!(4 << 20, region.bytes());
        let lines = region.lines();
        assert_eq!(0, lines.as_ptr().align_offset(HUGEPAGE));
        assert!(lines.iter().all(|&line| line == Line::ZERO));
        lines[lines.len() - 1] = Line([7; 8]);
        assert_eq!(lines.len() * LINE, region.bytes());
    }

    #[test]
    fn region_beyond_the_memory_is_refused() {
        let error = Region::new(1 << 50).expect_err("a petabyte").to_string();
        assert!(error.contains("lower the capacity"), "{error}");
    }
}

//! Huge pages for large tables, so that random accesses need fewer TLB entries.
#![allow(unsafe_code)]

/// Size of a huge page in bytes.
const HUGE: usize = 2 << 20;

/// Requests huge pages (`MADV_HUGEPAGE`) for all whole huge pages within `memory`. Must be called before the first
/// access to the memory.
pub fn prefer_huge<T>(memory: &[T]) {
    let range = memory.as_ptr_range();
    let start = (range.start as usize).next_multiple_of(HUGE);
    let end = range.end as usize / HUGE * HUGE;
    if start < end && !cfg!(miri) {
        // SAFETY: the range lies in borrowed memory, and the page size does not affect the contents of memory.
        let _ = unsafe {
            // Ignore errors, because a kernel without huge pages uses pages of normal size.
            rustix::mm::madvise(
                std::ptr::without_provenance_mut(start),
                end - start,
                rustix::mm::Advice::LinuxHugepage,
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_changes_nothing_whatever_the_length() {
        for length in [0, 1, HUGE - 1, 3 * HUGE + 5] {
            let mut memory = vec![7u8; length];
            prefer_huge(&memory);
            assert!(memory.iter().all(|&byte| byte == 7));
            memory.fill(9);
        }
    }
}

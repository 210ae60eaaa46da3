//! Pages: large tables on huge ones, so that a lookup anywhere in them finds its page's address at hand.
#![allow(unsafe_code)]

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// Ask the kernel to put memory that nobody has touched yet on huge pages (`MADV_HUGEPAGE`), as far as these fit into it. Where
/// it can't, they are ordinary ones.
pub fn prefer_huge<T>(memory: &[T]) {
    let range = memory.as_ptr_range();
    let start = (range.start as usize).next_multiple_of(HUGE);
    let end = range.end as usize / HUGE * HUGE;
    if start < end && !cfg!(miri) {
        // SAFETY: the range lies in memory that is borrowed; how the kernel backs it changes nothing of what is in it.
        let _ = unsafe {
            // A kernel without huge pages has none to give.
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

//! Prefetching of cache lines. A prefetch never faults for any address. On processors without a prefetch instruction,
//! these functions have no effect.
#![allow(unsafe_code)]

/// Prefetches the first line of `value` for reading.
#[inline(always)]
pub fn prefetch_read<T: ?Sized>(value: &T) {
    read(std::ptr::from_ref(value).cast());
}

/// Prefetches the first line of `value` for writing.
#[inline(always)]
pub fn prefetch_write<T: ?Sized>(value: &T) {
    write(std::ptr::from_ref(value).cast());
}

/// Prefetches the line of an address for reading. Invalid addresses are harmless.
#[inline(always)]
pub fn prefetch_read_address(address: *const u8) {
    read(address);
}

/// Prefetches the line of an address for writing. Invalid addresses are harmless.
#[inline(always)]
pub fn prefetch_write_address(address: *const u8) {
    write(address);
}

/// Prefetches the first line of `slice[index]` for reading. An index out of range is harmless.
#[inline(always)]
pub fn prefetch_read_at<T>(slice: &[T], index: usize) {
    read(slice.as_ptr().wrapping_add(index).cast());
}

/// Prefetches the first line of `slice[index]` into the second-level cache, for which a core supports far more
/// outstanding prefetches than for the first level. An index out of range is harmless.
#[inline(always)]
pub fn prefetch_far_at<T>(slice: &[T], index: usize) {
    far(slice.as_ptr().wrapping_add(index).cast());
}

/// Prefetches every line of `slice[index]` into the second-level cache.
#[inline(always)]
pub fn prefetch_all_far_at<T>(slice: &[T], index: usize) {
    lines(slice, index).for_each(far);
}

/// Prefetches every line of `slice[index]` for reading. An index out of range is harmless.
#[inline(always)]
pub fn prefetch_all_read_at<T>(slice: &[T], index: usize) {
    lines(slice, index).for_each(read);
}

/// Prefetches every line of `slice[index]` for writing. An index out of range is harmless.
#[inline(always)]
pub fn prefetch_all_at<T>(slice: &[T], index: usize) {
    lines(slice, index).for_each(write);
}

/// Start addresses of the cache lines of `slice[index]`.
#[inline(always)]
fn lines<T>(slice: &[T], index: usize) -> impl Iterator<Item = *const u8> {
    let first: *const u8 = slice.as_ptr().wrapping_add(index).cast();
    (0..size_of::<T>().div_ceil(crate::memory::LINE)).map(move |line| first.wrapping_add(line * crate::memory::LINE))
}

#[inline(always)]
fn far(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as in `read`.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

#[inline(always)]
fn read(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: SSE is part of x86-64, and a prefetch is a hint that never faults and changes no memory.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

#[inline(always)]
fn write(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as in `read`.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_ET0 }>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

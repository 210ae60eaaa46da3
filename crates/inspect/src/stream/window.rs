//! Most recently released contiguous bytes of a direction, for rules and for the comparison of retransmissions. Older
//! bytes that the receiver has not acknowledged are in blocks.
//!
//! A buffer has twice the size of the retained bytes. The buffer fills from its beginning; when it is full, the retained
//! bytes are moved to its beginning. The retained bytes are therefore always contiguous. Each byte is copied at most
//! twice, and a third time if it leaves the buffer unacknowledged.

use super::Exception;
use super::blocks::{Blocks, Comparison};
use super::free::FreeList;
use super::side::{Half, NONE, mark};

/// Buffers of one size, and the blocks for bytes that leave the buffers unacknowledged.
#[derive(Debug)]
pub(super) struct Windows<'m> {
    bytes: &'m mut [u8],
    free: FreeList<'m>,
    pub blocks: Blocks<'m>,
    /// Number of retained bytes.
    keep: usize,
    /// Size of a buffer in bytes.
    capacity: usize,
}

/// Size of a buffer that retains this number of bytes.
pub(super) const fn capacity_for(keep: usize) -> usize {
    (2 * keep).next_multiple_of(sluice_table::memory::LINE)
}

impl<'m> Windows<'m> {
    /// `bytes` contains a buffer for every index in `free`.
    pub(super) fn new(bytes: &'m mut [u8], free: FreeList<'m>, blocks: Blocks<'m>, keep: usize) -> Self {
        Self {
            bytes,
            free,
            blocks,
            keep,
            capacity: capacity_for(keep),
        }
    }

    /// Number of windows in use.
    pub(super) fn used(&self) -> usize {
        self.free.used()
    }

    /// Allocates a window for a direction without a window. Returns false if no window is free.
    #[inline(always)]
    pub(super) fn allocate(&mut self, side: &mut Half) -> bool {
        if side.window != NONE {
            return true;
        }
        let Some(window) = self.free.allocate() else {
            return false;
        };
        (side.window, side.filled) = (window, 0);
        true
    }

    /// Releases the window of a direction, if any, and thus its retained bytes.
    pub(super) fn release(&mut self, side: &mut Half) {
        self.forget(side);
        if side.window != NONE {
            self.free.release(side.window);
        }
        side.window = NONE;
    }

    /// Discards the retained bytes, because they belong to an earlier stream.
    pub(super) fn forget(&mut self, side: &mut Half) {
        self.blocks.clear(side);
        side.filled = 0;
    }

    /// Continues the stream after a gap. The bytes in the window no longer precede the next byte of the stream.
    pub(super) fn skip_gap(&mut self, side: &mut Half, others: u32) {
        // The result is ignored: if no block is free, later copies of the released bytes can't be compared.
        let _ = self.spill(side, others, 0);
        side.filled = 0;
    }

    /// The most recently released bytes. The last byte is the most recent byte.
    #[inline]
    pub(super) fn view(&self, side: &Half) -> &[u8] {
        let buffer = self.bytes.get(self.place(side.window)..).unwrap_or_default();
        buffer.get(..side.filled as usize).unwrap_or_default()
    }

    /// Prefetches the cache line into which the next byte is written.
    pub(super) fn prefetch(&self, side: &Half) {
        sluice_table::prefetch::prefetch_read_at(
            self.bytes,
            self.place(side.window).wrapping_add(side.filled as usize),
        );
    }

    /// Offset of a buffer; for [`NONE`], an offset beyond all buffers.
    #[inline(always)]
    fn place(&self, window: u32) -> usize {
        window as usize * self.capacity
    }

    /// Maximum number of bytes of one append. The same number of bytes before the appended bytes remains in the window.
    #[inline(always)]
    pub(super) fn max_append(&self) -> usize {
        self.keep
    }

    /// Makes space for an append of `coming` bytes. Unacknowledged bytes that leave the window are moved to blocks.
    /// Returns false, without effect, if no blocks are free for these bytes. `others`: number of blocks of the other
    /// direction.
    #[inline(always)]
    #[must_use = "without room bytes are lost that must be compared"]
    pub(super) fn reserve(&mut self, side: &mut Half, others: u32, coming: usize) -> bool {
        side.filled as usize + coming <= self.capacity || self.slide(side, others, coming)
    }

    #[cold]
    fn slide(&mut self, side: &mut Half, others: u32, coming: usize) -> bool {
        let filled = side.filled as usize;
        let keep = filled.min(self.keep).min(self.capacity.saturating_sub(coming));
        let unacknowledged = side.unacknowledged().min(filled);
        let leaving = unacknowledged.saturating_sub(keep);
        if leaving > 0 {
            let from = side.next.wrapping_sub(unacknowledged as u32);
            if !self.has_capacity(side, others, (from, leaving), false) {
                return false;
            }
            let at = self.place(side.window) + filled - unacknowledged;
            let bytes = self.bytes.get(at..at + leaving).unwrap_or_default();
            self.blocks.write(side, from, bytes);
        }
        let place = self.place(side.window);
        if let Some(buffer) = self.bytes.get_mut(place..place + filled) {
            buffer.copy_within(filled - keep.., 0);
            side.filled = keep as u32;
        }
        true
    }

    /// Whether blocks are available for bytes. `ahead`: the bytes are beyond a gap. If no packet of the receiver was
    /// observed, no acknowledgements free blocks. In this case bytes older than the window are discarded, and later
    /// copies of these bytes can't be compared.
    pub(super) fn has_capacity(
        &mut self,
        side: &mut Half,
        others: u32,
        (from, length): (u32, usize),
        ahead: bool,
    ) -> bool {
        let needed = self.blocks.needed(side, from, length);
        let mut has_capacity = self.blocks.has_capacity(side, others, needed, ahead);
        if !has_capacity && !side.has(mark::BOUNDED) {
            let window = side.unacknowledged().min(side.filled as usize);
            self.blocks.release_before(side, side.next.wrapping_sub(window as u32));
            has_capacity = self.blocks.has_capacity(side, others, needed, ahead);
        }
        has_capacity
    }

    /// Exception for a lack of blocks: [`Exception::SourceFull`] if other connections of the same source occupy the
    /// blocks.
    #[cold]
    pub(super) fn capacity_exception(&self, side: &Half, others: u32, otherwise: Exception) -> Exception {
        let has = side.blocks as usize + others as usize;
        match self
            .blocks
            .is_source_full(side, has, 1, otherwise == Exception::GapFull)
        {
            true => Exception::SourceFull,
            false => otherwise,
        }
    }

    /// Copies the unacknowledged bytes of the window to blocks, if there is space for them and `more` following bytes.
    #[must_use = "without room bytes are lost that must be compared"]
    pub(super) fn spill(&mut self, side: &mut Half, others: u32, more: usize) -> bool {
        let filled = side.filled as usize;
        let unacknowledged = side.unacknowledged().min(filled);
        let from = side.next.wrapping_sub(unacknowledged as u32);
        if !self.has_capacity(side, others, (from, unacknowledged + more), false) {
            return false;
        }
        let at = self.place(side.window).wrapping_add(filled - unacknowledged);
        let bytes = self.bytes.get(at..at.wrapping_add(unacknowledged)).unwrap_or_default();
        self.blocks.write(side, from, bytes);
        true
    }

    /// Appends the bytes after the direction's last released byte. The direction must have a window with
    /// [reserved](Self::reserve) space. The caller must then advance the direction.
    #[inline]
    pub(super) fn append(&mut self, side: &mut Half, fresh: &[u8]) {
        let place = self.place(side.window) + side.filled as usize;
        if let Some(to) = self.bytes.get_mut(place..place + fresh.len()) {
            to.copy_from_slice(fresh);
            side.filled += fresh.len() as u32;
        }
    }

    /// Appends queued bytes after the direction's last released byte, at most to the end of a block and a buffer.
    /// Returns the number of appended bytes.
    #[cold]
    pub(super) fn append_queued(&mut self, side: &mut Half, others: u32) -> usize {
        let length = self.blocks.run(side, side.next).len().min(self.keep);
        // Bytes that fill a gap are already in blocks, as are all unacknowledged bytes before them, so no additional
        // blocks are needed.
        if !self.reserve(side, others, length) {
            return 0;
        }
        let place = self.place(side.window) + side.filled as usize;
        let run = self.blocks.run(side, side.next);
        if let (Some(to), Some(run)) = (self.bytes.get_mut(place..place + length), run.get(..length)) {
            to.copy_from_slice(run);
            side.filled += length as u32;
        }
        length
    }

    /// Number of bytes from `sequence` on that precede the window, and the number of acknowledged bytes among them. The
    /// receiver ignores any later copy of acknowledged bytes.
    fn before(&self, side: &Half, sequence: u32, length: usize) -> (usize, usize) {
        let back = side.next.wrapping_sub(sequence) as usize;
        let before = back.saturating_sub(side.filled as usize).min(length);
        let acknowledged = (side.acked.wrapping_sub(sequence) as i32).max(0) as usize;
        (before, acknowledged.min(before))
    }

    /// Compares bytes with the released bytes. The compared bytes start at `sequence` and end before the direction's
    /// next byte.
    pub(super) fn compare(&self, side: &Half, sequence: u32, known: &[u8]) -> Comparison {
        let (before, from) = self.before(side, sequence, known.len());
        let first = sequence.wrapping_add(from as u32);
        if !self.blocks.has(side, first, before - from) {
            return Comparison::NotRetained;
        }
        let here = self.here(side, sequence.wrapping_add(before as u32), known.len() - before);
        if here != Some(&known[before..]) || self.blocks.differs(side, first, &known[from..before]) {
            return Comparison::Differ;
        }
        Comparison::Same
    }

    /// Bytes of a range that are in the window.
    fn here(&self, side: &Half, sequence: u32, length: usize) -> Option<&[u8]> {
        let back = side.next.wrapping_sub(sequence) as usize;
        let from = (side.filled as usize).saturating_sub(back);
        self.view(side).get(from..from + length)
    }

    /// Overwrites `bytes` with the released bytes. Returns the number of bytes that differed.
    pub(super) fn rewrite(&self, side: &Half, sequence: u32, bytes: &mut [u8]) -> usize {
        let (before, from) = self.before(side, sequence, bytes.len());
        let first = sequence.wrapping_add(from as u32);
        let (kept, known) = bytes[from..].split_at_mut(before - from);
        let mut differing = self.blocks.rewrite(side, first, kept);
        if let Some(right) = self.here(side, sequence.wrapping_add(before as u32), known.len()) {
            differing += known.iter().zip(right).filter(|(a, b)| a != b).count();
            known.copy_from_slice(right);
        }
        differing
    }
}

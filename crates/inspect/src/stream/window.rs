//! The bytes that a direction released last, in one piece, for rules to look at and to compare with what is sent again;
//! and behind them, in blocks, those that the receiver has not acknowledged.
//!
//! A buffer holds twice the bytes that are kept: it fills from its beginning, and when it is full the bytes to keep
//! move there. So they always lie in one piece, and each is copied twice at most; a third time where it leaves the
//! buffer unacknowledged.

use super::Exception;
use super::blocks::{Blocks, Comparison};
use super::free::FreeList;
use super::side::{Half, NONE, mark};

/// Buffers of one size, and the blocks for what they don't hold.
#[derive(Debug)]
pub(super) struct Windows<'m> {
    bytes: &'m mut [u8],
    free: FreeList<'m>,
    pub blocks: Blocks<'m>,
    /// Bytes that are kept.
    keep: usize,
    /// Bytes of a buffer.
    capacity: usize,
}

/// Bytes of the buffer where so many are kept.
pub(super) const fn capacity_for(keep: usize) -> usize {
    (2 * keep).next_multiple_of(sluice_table::memory::LINE)
}

impl<'m> Windows<'m> {
    /// `bytes` holds those of every number in `free`.
    pub(super) fn new(bytes: &'m mut [u8], free: FreeList<'m>, blocks: Blocks<'m>, keep: usize) -> Self {
        Self {
            bytes,
            free,
            blocks,
            keep,
            capacity: capacity_for(keep),
        }
    }

    /// How many are in use.
    pub(super) fn used(&self) -> usize {
        self.free.used()
    }

    /// Give a side a window, unless it has one; false where none is left.
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

    /// Take a side's window away, if it has one, and what is kept of it.
    pub(super) fn release(&mut self, side: &mut Half) {
        self.forget(side);
        if side.window != NONE {
            self.free.release(side.window);
        }
        side.window = NONE;
    }

    /// What was kept is of another stream.
    pub(super) fn forget(&mut self, side: &mut Half) {
        self.blocks.clear(side);
        side.filled = 0;
    }

    /// The stream goes on behind a gap: what is in the window no longer stands before its next byte.
    pub(super) fn skip_gap(&mut self, side: &mut Half, others: u32) {
        // Where there is no room, these bytes can't be compared any more.
        let _ = self.spill(side, others, 0);
        side.filled = 0;
    }

    /// The bytes released last, the newest last.
    #[inline]
    pub(super) fn view(&self, side: &Half) -> &[u8] {
        let buffer = self.bytes.get(self.place(side.window)..).unwrap_or_default();
        buffer.get(..side.filled as usize).unwrap_or_default()
    }

    /// The line that the next byte is written to.
    pub(super) fn prefetch(&self, side: &Half) {
        sluice_table::prefetch::prefetch_read_at(
            self.bytes,
            self.place(side.window).wrapping_add(side.filled as usize),
        );
    }

    /// Where a buffer begins; far beyond all of them for [`NONE`].
    #[inline(always)]
    fn place(&self, window: u32) -> usize {
        window as usize * self.capacity
    }

    /// Bytes that are appended at once, at most: so many that as many before them stay.
    #[inline(always)]
    pub(super) fn max_append(&self) -> usize {
        self.keep
    }

    /// Make room for `coming` bytes, which are to be appended. False, and nothing done, where there is none for bytes that
    /// the receiver may still take from another copy; `others`: the blocks of the other direction.
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

    /// Whether there are blocks for bytes, `ahead` of a gap or not. A receiver that was never heard makes no room by what
    /// it acknowledges: what is older than the window gives way, and can't be compared any more.
    pub(super) fn has_capacity(
        &mut self,
        side: &mut Half,
        others: u32,
        (from, length): (u32, usize),
        ahead: bool,
    ) -> bool {
        let needed = self.blocks.needed(side, from, length);
        let mut has_room = self.blocks.has_capacity(side, others, needed, ahead);
        if !has_room && !side.has(mark::BOUNDED) {
            let window = side.unacknowledged().min(side.filled as usize);
            self.blocks.release_before(side, side.next.wrapping_sub(window as u32));
            has_room = self.blocks.has_capacity(side, others, needed, ahead);
        }
        has_room
    }

    /// What it is called that there is no room: where other connections of its source keep it from a side, that.
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

    /// Keep in blocks what of the window the receiver has not acknowledged, if there is room for that and `more` bytes
    /// behind it.
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

    /// Keep `fresh`, the bytes from the side's next on, which the caller then moves. The side has a window, and room
    /// was [made](Self::make_room).
    #[inline]
    pub(super) fn append(&mut self, side: &mut Half, fresh: &[u8]) {
        let place = self.place(side.window) + side.filled as usize;
        if let Some(to) = self.bytes.get_mut(place..place + fresh.len()) {
            to.copy_from_slice(fresh);
            side.filled += fresh.len() as u32;
        }
    }

    /// Append what blocks have of the side's next bytes, as far as one block and a buffer hold it: how much.
    #[cold]
    pub(super) fn append_kept(&mut self, side: &mut Half, others: u32) -> usize {
        let length = self.blocks.run(side, side.next).len().min(self.keep);
        // What fills a gap is in blocks, with all before it that is not acknowledged: no more are needed.
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

    /// How far the bytes from `sequence` on begin before the first that is in the window, and of these how many the
    /// receiver has acknowledged, so that it takes them no more, whatever they are.
    fn before(&self, side: &Half, sequence: u32, length: usize) -> (usize, usize) {
        let back = side.next.wrapping_sub(sequence) as usize;
        let before = back.saturating_sub(side.filled as usize).min(length);
        let acknowledged = (side.acked.wrapping_sub(sequence) as i32).max(0) as usize;
        (before, acknowledged.min(before))
    }

    /// Compare bytes that begin at `sequence` and end before the side's next with those released.
    pub(super) fn compare(&self, side: &Half, sequence: u32, known: &[u8]) -> Comparison {
        let (before, from) = self.before(side, sequence, known.len());
        let first = sequence.wrapping_add(from as u32);
        if !self.blocks.has(side, first, before - from) {
            return Comparison::Gone;
        }
        let here = self.here(side, sequence.wrapping_add(before as u32), known.len() - before);
        if here != Some(&known[before..]) || self.blocks.differs(side, first, &known[from..before]) {
            return Comparison::Differ;
        }
        Comparison::Same
    }

    /// Bytes of the window.
    fn here(&self, side: &Half, sequence: u32, length: usize) -> Option<&[u8]> {
        let back = side.next.wrapping_sub(sequence) as usize;
        let from = (side.filled as usize).saturating_sub(back);
        self.view(side).get(from..from + length)
    }

    /// Write what was released over `bytes`; how many differed.
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

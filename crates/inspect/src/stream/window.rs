//! The bytes that a direction released last, to compare with what is sent again and to evaluate; and digests of the
//! segments that have left them.
//!
//! A buffer holds twice the bytes that are kept: it fills from its beginning, and when it is full the bytes to keep
//! move there. So they always lie in one piece, and each is copied twice at most.

use sluice_table::hash::Hasher;

use super::digest::{Digest, digest};
use super::free::Free;
use super::side::{NONE, Side};

/// What comparing bytes with those released says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// They are the same, as far as the receiver can still take them.
    Same,
    /// From `at` on they have a counterpart at `released` in the buffer, and are not all the same.
    Differ { at: usize, released: usize },
    /// Some can't be compared any more, or differ and the right ones are gone.
    Gone,
}

/// Buffers of one size and the digests that belong to each.
#[derive(Debug)]
pub(super) struct Windows<'m> {
    bytes: &'m mut [u8],
    digests: &'m mut [Digest],
    free: Free<'m>,
    hasher: Hasher,
    /// Bytes that are kept.
    keep: usize,
    /// Bytes of a buffer.
    room: usize,
    /// Digests of a buffer.
    ring: usize,
}

/// Bytes of the buffer where so many are kept.
pub(super) const fn room_for(keep: usize) -> usize {
    (2 * keep).next_multiple_of(sluice_table::memory::LINE)
}

impl<'m> Windows<'m> {
    /// `bytes` and `digests` hold those of every number in `free`.
    pub(super) fn new(
        (bytes, digests): (&'m mut [u8], &'m mut [Digest]),
        free: Free<'m>,
        (keep, ring): (usize, usize),
        hasher: Hasher,
    ) -> Self {
        Self {
            bytes,
            digests,
            free,
            hasher,
            keep,
            room: room_for(keep),
            ring,
        }
    }

    /// How many are in use.
    pub(super) fn taken(&self) -> usize {
        self.free.taken()
    }

    /// Give a side a window; false where none is left.
    pub(super) fn take(&mut self, side: &mut Side) -> bool {
        let Some(window) = self.free.take() else {
            return false;
        };
        side.window = window;
        self.forget(side);
        true
    }

    /// Take a side's window away, if it has one.
    pub(super) fn give_back(&mut self, side: &mut Side) {
        if side.window != NONE {
            self.free.give_back(side.window);
        }
        (side.window, side.filled) = (NONE, 0);
    }

    /// What was released is not what stands before the next byte.
    pub(super) fn forget(&mut self, side: &mut Side) {
        (side.filled, side.digest) = (0, 0);
        if let Some(digests) = ring_of(self.digests, self.ring, side.window) {
            digests.fill(Digest::NONE);
        }
    }

    /// The bytes released last, the newest last.
    #[inline]
    pub(super) fn view(&self, side: &Side) -> &[u8] {
        let buffer = self.bytes.get(self.place(side.window)..).unwrap_or_default();
        buffer.get(..side.filled as usize).unwrap_or_default()
    }

    /// The line that the next byte is written to, and that of the next digest.
    pub(super) fn prefetch(&self, side: &Side) {
        sluice_table::prefetch::prefetch_read_at(
            self.bytes,
            self.place(side.window).wrapping_add(side.filled as usize),
        );
        let digest = (side.window as usize).wrapping_mul(self.ring);
        sluice_table::prefetch::prefetch_read_at(self.digests, digest.wrapping_add(side.digest as usize));
    }

    /// Where a buffer begins; far beyond all of them for [`NONE`].
    #[inline(always)]
    fn place(&self, window: u32) -> usize {
        window as usize * self.room
    }

    /// Keep `fresh`, the bytes from the side's next on, which the caller then moves. The side has a window.
    #[inline]
    pub(super) fn append(&mut self, side: &mut Side, fresh: &[u8]) {
        if side.filled as usize + fresh.len() > self.room {
            self.slide(side, fresh.len());
        }
        let place = self.place(side.window) + side.filled as usize;
        let kept = &fresh[fresh.len().saturating_sub(self.room)..];
        if let Some(to) = self.bytes.get_mut(place..place + kept.len()) {
            to.copy_from_slice(kept);
            side.filled += kept.len() as u32;
        }
        if self.ring > 0 {
            self.note(side, fresh);
        }
    }

    /// Note where a released segment begins and ends; its digest is not needed while its bytes are here.
    #[inline]
    fn note(&mut self, side: &mut Side, fresh: &[u8]) {
        let entry = if fresh.len() <= self.room {
            Digest::later(side.next, fresh.len())
        } else {
            Digest::now(&self.hasher, side.next, fresh)
        };
        if let Some(place) =
            ring_of(self.digests, self.ring, side.window).and_then(|digests| digests.get_mut(side.digest as usize))
        {
            *place = entry;
        }
        side.digest += 1;
        if side.digest as usize >= self.ring {
            side.digest = 0;
        }
    }

    /// Make room for `coming` bytes. Of the segments that leave, those that the receiver may still take from another
    /// copy leave their digest.
    #[cold]
    fn slide(&mut self, side: &mut Side, coming: usize) {
        let (filled, place) = (side.filled as usize, self.place(side.window));
        let keep = filled.min(self.keep).min(self.room.saturating_sub(coming));
        let Some(buffer) = self.bytes.get_mut(place..place + self.room) else {
            return;
        };
        let digests = ring_of(self.digests, self.ring, side.window).unwrap_or_default();
        for entry in digests.iter_mut().filter(|entry| entry.is_later()) {
            let back = side.next.wrapping_sub(entry.sequence) as usize;
            if back <= keep {
                continue;
            }
            let bytes = filled
                .checked_sub(back)
                .and_then(|from| buffer.get(from..from + entry.length as usize));
            let open = side.acked.wrapping_sub(entry.end()) as i32;
            *entry = match bytes {
                Some(bytes) if open < 0 => Digest::now(&self.hasher, entry.sequence, bytes),
                _ => Digest::NONE,
            };
        }
        buffer.copy_within(filled - keep..filled, 0);
        side.filled = keep as u32;
    }

    /// Compare bytes that begin at `sequence` and end before the side's next with those released. What the receiver
    /// has acknowledged it no longer takes, whatever it is.
    pub(super) fn compare(&self, side: &Side, sequence: u32, known: &[u8]) -> Compared {
        let filled = side.filled as usize;
        // How far the segment begins before the first byte that is here.
        let back = side.next.wrapping_sub(sequence) as usize;
        let before = back.saturating_sub(filled).min(known.len());
        if before > 0 {
            let mut at = (side.acked.wrapping_sub(sequence) as i32).max(0) as usize;
            while at < before {
                match self.digested(side, sequence.wrapping_add(at as u32), &known[at..]) {
                    Some(length) => at += length,
                    None => return Compared::Gone,
                }
            }
        }
        let known = &known[before..];
        let released = filled.saturating_sub(back);
        if self.view(side).get(released..released + known.len()) == Some(known) {
            return Compared::Same;
        }
        Compared::Differ { at: before, released }
    }

    /// The length of the released segment that began here, where `bytes` begin with the same.
    fn digested(&self, side: &Side, sequence: u32, bytes: &[u8]) -> Option<usize> {
        let from = (side.window as usize).checked_mul(self.ring)?;
        let digests = self.digests.get(from..from + self.ring)?;
        let entry = digests.iter().find(|entry| entry.is_of(sequence))?;
        let bytes = bytes.get(..entry.length as usize)?;
        (digest(&self.hasher, sequence, bytes) == entry.value).then_some(bytes.len())
    }

    /// Write what was released over `bytes`; how many differed.
    pub(super) fn rewrite(&self, side: &Side, released: usize, bytes: &mut [u8]) -> usize {
        let Some(right) = self.view(side).get(released..released + bytes.len()) else {
            return 0;
        };
        let differing = bytes.iter().zip(right).filter(|(a, b)| a != b).count();
        bytes.copy_from_slice(right);
        differing
    }
}

/// The digests of a window.
#[inline(always)]
fn ring_of(digests: &mut [Digest], ring: usize, window: u32) -> Option<&mut [Digest]> {
    let from = (window as usize).checked_mul(ring)?;
    digests.get_mut(from..from + ring)
}

//! The borrowed packet: a window on a buffer's room.

use crate::ethernet;

/// What is known of a frame's checksums before anybody looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Checksums {
    /// Nothing has vouched for them: validity computes them.
    #[default]
    Unverified = 0,
    /// The device says that L3 and L4 checksums are right.
    Vouched = 1,
    /// The device says that the L3 header's checksum is wrong.
    BadL3 = 2,
    /// The device says that the L4 checksum is wrong.
    BadL4 = 3,
    /// A local sender left the L4 checksum to us: the field holds the folded pseudo-header sum.
    LeftToOffload = 4,
}

/// Where a frame lies in its room, and what the device said of it. Kept by the owner of the buffer, which
/// may be C: the layout is fixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Window {
    /// Offset of the frame's first byte in the room: the headroom.
    pub start: u16,
    /// Length of the frame in bytes, without frame check sequence.
    pub length: u16,
    /// What the device said of the checksums.
    pub checksums: Checksums,
}

/// A frame lent for the length of a burst: its bytes, and room before and after them to grow into.
#[derive(Debug)]
pub struct Packet<'a> {
    room: &'a mut [u8],
    window: &'a mut Window,
}

impl<'a> Packet<'a> {
    /// A packet on `room`; a window that reaches outside the room is cut to it.
    #[inline(always)]
    pub fn new(room: &'a mut [u8], window: &'a mut Window) -> Self {
        let limit = room.len().min(u16::MAX as usize) as u16;
        window.start = window.start.min(limit);
        window.length = window.length.min(limit - window.start);
        Self { room, window }
    }

    /// A packet on `room` by a window that lies in it, as the owner of the buffer knows. One that does not has no bytes.
    #[inline(always)]
    pub fn within(room: &'a mut [u8], window: &'a mut Window) -> Self {
        Self { room, window }
    }

    /// A packet of no bytes and no room: what stands in for a slot that is empty.
    #[inline(always)]
    pub fn empty(window: &'a mut Window) -> Self {
        *window = Window::default();
        Self { room: &mut [], window }
    }

    /// The frame.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        let start = self.window.start as usize;
        self.room
            .get(start..start + self.window.length as usize)
            .unwrap_or_default()
    }

    /// The frame, to be written.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.window.start as usize;
        self.room
            .get_mut(start..start + self.window.length as usize)
            .unwrap_or_default()
    }

    /// Length of the frame in bytes.
    #[inline(always)]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a frame is never empty in the sense of a collection"
    )]
    pub fn len(&self) -> usize {
        self.window.length as usize
    }

    /// What the device said of the checksums.
    #[inline(always)]
    pub fn checksums(&self) -> Checksums {
        self.window.checksums
    }

    /// Say what is known of the checksums from here on.
    #[inline(always)]
    pub fn set_checksums(&mut self, checksums: Checksums) {
        self.window.checksums = checksums;
    }

    /// Free bytes before the frame.
    #[inline(always)]
    pub fn headroom(&self) -> usize {
        self.window.start as usize
    }

    /// Free bytes after the frame.
    #[inline(always)]
    pub fn tailroom(&self) -> usize {
        let room = self.room.len().min(u16::MAX as usize);
        room.saturating_sub(self.window.start as usize + self.len())
    }

    /// Grow by `bytes` at the front; false, and nothing done, where the headroom is too small.
    #[inline(always)]
    pub fn grow_front(&mut self, bytes: usize) -> bool {
        if bytes > self.headroom() {
            return false;
        }
        self.window.start -= bytes as u16;
        self.window.length += bytes as u16;
        true
    }

    /// Cut `bytes` off the front; false, and nothing done, where the frame is shorter.
    #[inline(always)]
    pub fn trim_front(&mut self, bytes: usize) -> bool {
        if bytes > self.len() {
            return false;
        }
        self.window.start += bytes as u16;
        self.window.length -= bytes as u16;
        true
    }

    /// End the frame with its datagram, which ends at `end`: padding and trailers are one link's, and may be anything. A frame of
    /// the shortest length keeps that, padded with zero (RFC 894, RFC 1042).
    #[inline(never)]
    pub fn cut_trailer(&mut self, end: usize) {
        if end >= self.len() {
            return;
        }
        let length = end.max(self.len().min(ethernet::MIN_FRAME));
        self.window.length = length as u16;
        let frame = self.bytes_mut();
        // Most are TCP segments without data, whose padding is in the last word.
        if let Some(last) = frame.last_chunk_mut::<8>()
            && let kept = (end + 8).wrapping_sub(length)
            && kept < 8
        {
            *last = (u64::from_le_bytes(*last) & ((1 << (8 * kept)) - 1)).to_le_bytes();
        } else if let Some(padding) = frame.get_mut(end..) {
            padding.fill(0);
        }
    }

    /// Set the length by moving the end; false, and nothing done, where the room is too small.
    #[inline(always)]
    pub fn set_len(&mut self, length: usize) -> bool {
        if length > self.len() + self.tailroom() {
            return false;
        }
        self.window.length = length as u16;
        true
    }
}

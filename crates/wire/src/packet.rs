//! A borrowed packet: a frame within a larger buffer.

use crate::ethernet;

/// Checksum state of a frame as reported by the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Checksums {
    /// The device has not verified the checksums. The validity check must verify them.
    #[default]
    Unverified = 0,
    /// The device has verified the L3 and L4 checksums.
    Vouched = 1,
    /// The device reports an incorrect L3 header checksum.
    BadL3 = 2,
    /// The device reports an incorrect L4 checksum.
    BadL4 = 3,
    /// The packet comes from a local sender that relies on checksum offload: the L4 checksum field contains only the
    /// folded sum of the pseudo-header.
    PartialChecksum = 4,
}

/// Position of a frame in its buffer, and its checksum state. The layout is fixed, because the owner of the buffer,
/// which may be C code, stores the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct Window {
    /// Offset of the frame's first byte in the buffer, equal to the headroom.
    pub start: u16,
    /// Length of the frame in bytes, without the frame check sequence.
    pub length: u16,
    /// Checksum state reported by the device.
    pub checksums: Checksums,
    /// Whether the window differs from what the owner of the buffer knows. If it does not, the owner has nothing to update
    /// when the frame is sent.
    pub changed: bool,
}

/// A frame borrowed for the duration of a burst, with the free bytes before and after it.
#[derive(Debug)]
pub struct Packet<'a> {
    data_room: &'a mut [u8],
    window: &'a mut Window,
}

impl<'a> Packet<'a> {
    /// Creates a packet from a buffer and a window. A window that exceeds the buffer is reduced to the buffer.
    #[inline(always)]
    pub fn new(data_room: &'a mut [u8], window: &'a mut Window) -> Self {
        let limit = data_room.len().min(u16::MAX as usize) as u16;
        window.start = window.start.min(limit);
        window.length = window.length.min(limit - window.start);
        window.changed = true;
        Self { data_room, window }
    }

    /// Creates a packet from a buffer and a window. The packet is empty if the window exceeds the buffer, which the
    /// owner of the buffer should prevent.
    #[inline(always)]
    pub fn within(data_room: &'a mut [u8], window: &'a mut Window) -> Self {
        Self { data_room, window }
    }

    /// An empty packet without a buffer, used as a placeholder.
    #[inline(always)]
    pub fn empty(window: &'a mut Window) -> Self {
        *window = Window::default();
        Self {
            data_room: &mut [],
            window,
        }
    }

    /// Bytes of the frame.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        let start = self.window.start as usize;
        self.data_room
            .get(start..start + self.window.length as usize)
            .unwrap_or_default()
    }

    /// Bytes of the frame, mutable.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.window.start as usize;
        self.data_room
            .get_mut(start..start + self.window.length as usize)
            .unwrap_or_default()
    }

    /// The first `N` bytes of the buffer from the frame's first byte on. The frame may be shorter: the bytes behind it
    /// have no meaning. `None` if the buffer ends before.
    #[inline(always)]
    pub fn head<const N: usize>(&self) -> Option<&[u8; N]> {
        self.data_room.get(self.window.start as usize..)?.first_chunk()
    }

    /// Like [`head`](Self::head), mutable.
    #[inline(always)]
    pub fn head_mut<const N: usize>(&mut self) -> Option<&mut [u8; N]> {
        self.data_room.get_mut(self.window.start as usize..)?.first_chunk_mut()
    }

    /// Like [`head_mut`](Self::head_mut), for the lifetime of the buffer.
    #[inline(always)]
    pub fn into_head<const N: usize>(self) -> Option<&'a mut [u8; N]> {
        self.data_room.get_mut(self.window.start as usize..)?.first_chunk_mut()
    }

    /// Position of the frame in its buffer.
    #[inline(always)]
    pub fn window(&self) -> Window {
        *self.window
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

    /// Checksum state reported by the device.
    #[inline(always)]
    pub fn checksums(&self) -> Checksums {
        self.window.checksums
    }

    /// Sets the checksum state.
    #[inline(always)]
    pub fn set_checksums(&mut self, checksums: Checksums) {
        self.window.checksums = checksums;
        self.window.changed = true;
    }

    /// Free bytes before the frame.
    #[inline(always)]
    pub fn headroom(&self) -> usize {
        self.window.start as usize
    }

    /// Free bytes after the frame.
    #[inline(always)]
    pub fn tailroom(&self) -> usize {
        let data_room = self.data_room.len().min(u16::MAX as usize);
        data_room.saturating_sub(self.window.start as usize + self.len())
    }

    /// Extends the frame by `bytes` at the front. Returns false, without effect, if the headroom is too small.
    #[inline(always)]
    pub fn grow_front(&mut self, bytes: usize) -> bool {
        if bytes > self.headroom() {
            return false;
        }
        self.window.start -= bytes as u16;
        self.window.length += bytes as u16;
        self.window.changed = true;
        true
    }

    /// Removes `bytes` at the front of the frame. Returns false, without effect, if the frame is shorter.
    #[inline(always)]
    pub fn trim_front(&mut self, bytes: usize) -> bool {
        if bytes > self.len() {
            return false;
        }
        self.window.start += bytes as u16;
        self.window.length -= bytes as u16;
        self.window.changed = true;
        true
    }

    /// Truncates the frame at the end of its datagram (`end`). Padding and trailers are meaningful only on their link
    /// and must not leak to another link. A frame of minimum length keeps its length, and its padding is zeroed (RFC
    /// 894, RFC 1042).
    #[inline(never)]
    pub fn trim_trailer(&mut self, end: usize) {
        if end >= self.len() {
            return;
        }
        let length = end.max(self.len().min(ethernet::MIN_FRAME));
        self.window.length = length as u16;
        self.window.changed = true;
        let frame = self.bytes_mut();
        // Fast path for TCP segments without data. Most frames with padding are such segments, and their padding lies
        // in the last 8 bytes.
        if let Some(last) = frame.last_chunk_mut::<8>()
            && let stripped = (end + 8).wrapping_sub(length)
            && stripped < 8
        {
            *last = (u64::from_le_bytes(*last) & ((1 << (8 * stripped)) - 1)).to_le_bytes();
        } else if let Some(padding) = frame.get_mut(end..) {
            padding.fill(0);
        }
    }

    /// Sets the length by moving the end of the frame. Returns false, without effect, if the buffer is too small.
    #[inline(always)]
    pub fn set_len(&mut self, length: usize) -> bool {
        if length > self.len() + self.tailroom() {
            return false;
        }
        self.window.length = length as u16;
        self.window.changed = true;
        true
    }
}

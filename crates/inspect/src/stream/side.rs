//! State of one direction of a connection, which takes one cache line.

use bytemuck::{Pod, Zeroable};
use sluice_table::memory::LINE;
use sluice_wire::key::Direction;

/// Index value for "no window" and "no block".
pub(super) const NONE: u32 = u32::MAX;

/// Maximum size of a TCP window (RFC 7323, 2.3). A segment at a greater distance does not belong to this connection.
pub(super) const MAX_WINDOW: u32 = 1 << 30;

/// Bits of [`Half::flags`].
pub(super) mod mark {
    /// The start of the stream is known.
    pub const OPEN: u8 = 0x01;
    /// Bytes were released, so the start of the stream is final.
    pub const SETTLED: u8 = 0x02;
    /// A second SYN with a different initial sequence number was forwarded, and the receiver has not acknowledged
    /// either SYN yet.
    pub const SYN_CONFLICT: u8 = 0x04;
    /// The FIN was released; its sequence number is `next`.
    pub const FINISHED: u8 = 0x08;
    /// A reset that the receiver accepts was forwarded.
    pub const RESET: u8 = 0x10;
    /// The last data of the connection was sent in this direction.
    pub const SENT_LAST: u8 = 0x20;
    /// The FIN has arrived beyond a gap; its sequence number is `end`.
    pub const FIN_QUEUED: u8 = 0x40;
    /// The receiver has advertised a window.
    pub const BOUNDED: u8 = 0x80;
}

/// State of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The start of the stream is unknown.
    Unknown,
    /// The stream has begun; data may follow.
    Open,
    /// The FIN was released, so all bytes of the stream were received.
    Finished,
    /// The sender has reset the connection.
    Reset,
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Half {
    /// Sequence number of the next byte in order, or of the FIN after it was released.
    pub next: u32,
    /// Highest acknowledgement number of the receiver.
    pub acked: u32,
    /// Generation of this record. The two directions of a connection have the same generation.
    pub serial: u32,
    /// Source to which the blocks of this direction are accounted.
    pub source: u16,
    pub flags: u8,
    /// Window scale in the SYN of this direction (RFC 7323, 2.2), or a value of [`scale`].
    pub scale: u8,
    /// Index of the window.
    pub window: u32,
    /// Number of bytes in the window's buffer. The last byte in the window precedes `next`.
    pub filled: u32,
    /// Number of released bytes.
    pub released: u64,
    /// Offset in the released bytes at which the current message begins.
    pub message: u64,
    /// First block.
    pub head: u32,
    /// Number of blocks.
    pub blocks: u32,
    /// Initial sequence number.
    pub initial: u32,
    /// Initial sequence number of the second SYN, if [`mark::SYN_CONFLICT`] is set.
    pub new_initial: u32,
    /// End of all bytes that have arrived, in order or beyond a gap.
    pub end: u32,
    /// Highest right edge of the window that the receiver has advertised. The edge is valid if [`mark::BOUNDED`] is
    /// set.
    pub edge: u32,
}

/// Special values of the window scale.
pub(super) mod scale {
    /// The SYN was not seen.
    pub const UNKNOWN: u8 = 0xff;
    /// The SYN had no window scale option.
    pub const NONE: u8 = 0xfe;
    /// The largest window scale (RFC 7323, 2.3).
    pub const LARGEST: u8 = 14;
}

const _: () = assert!(size_of::<Half>() == LINE);
const _: () = assert!(size_of::<Connection>() == 2 * LINE);

impl Half {
    /// Creates a direction without observed segments, in a record of this generation.
    pub fn unseen(serial: u32) -> Self {
        Self {
            serial,
            window: NONE,
            head: NONE,
            scale: scale::UNKNOWN,
            ..Self::zeroed()
        }
    }

    #[inline(always)]
    pub fn has(&self, mark: u8) -> bool {
        self.flags & mark != 0
    }

    /// Acknowledgement number with which a receiver acknowledges all released bytes.
    #[inline(always)]
    pub fn top(&self) -> u32 {
        self.next.wrapping_add(u32::from(self.has(mark::FINISHED)))
    }

    /// Begins the stream after this initial sequence number.
    pub fn start(&mut self, initial: u32) {
        let start = initial.wrapping_add(1);
        (self.initial, self.next, self.acked, self.end) = (initial, start, start, start);
        (self.released, self.message, self.filled) = (0, 0, 0);
        self.flags = mark::OPEN;
    }

    /// Sets the acknowledgement number, if it is plausible.
    #[inline(always)]
    pub fn acknowledge(&mut self, sequence: u32) {
        if sequence.wrapping_sub(self.acked) <= self.top().wrapping_sub(self.acked) {
            self.acked = sequence;
        }
    }

    /// Number of released bytes that the receiver has not acknowledged yet.
    #[inline(always)]
    pub fn unacknowledged(&self) -> usize {
        (self.next.wrapping_sub(self.acked) as i32).max(0) as usize
    }

    /// Whether bytes are queued beyond a gap.
    #[inline(always)]
    pub fn has_queued(&self) -> bool {
        self.end != self.next
    }

    /// Extends the receiver's window to this edge. A receiver does not shrink its window (RFC 9293, 3.8.6).
    #[inline(always)]
    pub fn offer(&mut self, edge: u32) {
        if !self.has(mark::BOUNDED) || edge.wrapping_sub(self.edge) as i32 > 0 {
            self.edge = edge;
            self.flags |= mark::BOUNDED;
        }
    }

    /// Distance from `sequence` to the right edge of the receiver's window, or an upper bound if the window is unknown.
    pub fn reach(&self, sequence: u32) -> u32 {
        match self.has(mark::BOUNDED) {
            true => (self.edge.wrapping_sub(sequence) as i32).max(0) as u32,
            false => MAX_WINDOW,
        }
    }

    /// Advances the stream by bytes in order.
    #[inline(always)]
    pub fn advance(&mut self, length: usize) {
        self.flags |= mark::SETTLED | mark::SENT_LAST;
        self.next = self.next.wrapping_add(length as u32);
        self.released += length as u64;
        if self.end.wrapping_sub(self.next) as i32 <= 0 {
            self.end = self.next;
        }
        self.bound_acknowledged();
    }

    /// No window is larger than [`MAX_WINDOW`], so older bytes must have been acknowledged, even if the acknowledgement
    /// was not observed.
    #[inline(always)]
    pub fn bound_acknowledged(&mut self) {
        if self.next.wrapping_sub(self.acked) > MAX_WINDOW {
            self.acked = self.next.wrapping_sub(MAX_WINDOW);
        }
    }

    pub fn state(&self) -> State {
        match self.flags {
            marks if marks & mark::RESET != 0 => State::Reset,
            marks if marks & mark::FINISHED != 0 => State::Finished,
            marks if marks & mark::OPEN != 0 => State::Open,
            _ => State::Unknown,
        }
    }
}

/// Both directions of a connection.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Connection {
    pub sides: [Half; 2],
}

impl Connection {
    #[inline(always)]
    pub fn side(&mut self, direction: Direction) -> &mut Half {
        &mut self.sides[direction as usize]
    }
}

//! What is known of one direction of a connection: one line of memory.

use bytemuck::{Pod, Zeroable};
use sluice_table::memory::LINE;
use sluice_wire::key::Direction;

/// No window, no block.
pub(super) const NONE: u32 = u32::MAX;

/// Most bytes that a window of TCP can span (RFC 7323, 2.3): what lies further off is not of this connection.
pub(super) const MAX_WINDOW: u32 = 1 << 30;

/// Bits of [`Side::marks`].
pub(super) mod mark {
    /// Where the stream begins is known.
    pub const OPEN: u8 = 0x01;
    /// Something was released: where the stream begins is settled.
    pub const SETTLED: u8 = 0x02;
    /// A SYN with another number has passed since, and the receiver has not said which it took.
    pub const SYN_CONFLICT: u8 = 0x04;
    /// The FIN was released: it stands at `next`.
    pub const FINISHED: u8 = 0x08;
    /// A reset that the receiver takes has passed.
    pub const RESET: u8 = 0x10;
    /// This side sent data last.
    pub const SENT_LAST: u8 = 0x20;
    /// The FIN has come, ahead of a gap: it stands at `end`.
    pub const FIN_AHEAD: u8 = 0x40;
    /// The receiver has said how far its window reaches.
    pub const BOUNDED: u8 = 0x80;
}

/// How far a direction has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing says yet where it begins.
    Unseen,
    /// It begins; data may follow.
    Open,
    /// Its FIN was released: its bytes are complete.
    Finished,
    /// Its sender has reset the connection.
    Reset,
}

/// One direction.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
pub(super) struct Half {
    /// Sequence number of the next byte in order; that of the FIN once it was released.
    pub next: u32,
    /// What the receiver wants next, as far as it has said so.
    pub acked: u32,
    /// Which use of this record it is: the same in both sides.
    pub serial: u32,
    /// Whom the blocks of this side count for.
    pub source: u16,
    pub flags: u8,
    /// The window scale that this side's SYN offered (RFC 7323, 2.2), or one of [`scale`].
    pub scale: u8,
    /// Number of its window.
    pub window: u32,
    /// Bytes in the window's buffer, the last of them just before `next`.
    pub filled: u32,
    /// Bytes released.
    pub released: u64,
    /// Where the message begins that its sender sent last, in bytes released.
    pub message: u64,
    /// First of its blocks.
    pub head: u32,
    /// How many it has.
    pub blocks: u32,
    /// Initial sequence number.
    pub initial: u32,
    /// Initial sequence number of the SYN of [`mark::ASKED`].
    pub new_initial: u32,
    /// Behind the last byte that has come, in order or ahead of a gap.
    pub end: u32,
    /// The right edge of the receiver's window: the highest that it has said. Not before [`mark::BOUNDED`].
    pub edge: u32,
}

/// What a side has said of its window scale.
pub(super) mod scale {
    /// Its SYN was not seen.
    pub const UNKNOWN: u8 = 0xff;
    /// Its SYN had none.
    pub const NONE: u8 = 0xfe;
    /// The largest (RFC 7323, 2.3).
    pub const LARGEST: u8 = 14;
}

const _: () = assert!(size_of::<Half>() == LINE);
const _: () = assert!(size_of::<Connection>() == 2 * LINE);

impl Half {
    /// Nothing seen, in the record's use of this serial.
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

    /// What the receiver wants next once it has everything that was released.
    #[inline(always)]
    pub fn top(&self) -> u32 {
        self.next.wrapping_add(u32::from(self.has(mark::FINISHED)))
    }

    /// The stream begins behind this sequence number.
    pub fn begin(&mut self, initial: u32) {
        let start = initial.wrapping_add(1);
        (self.initial, self.next, self.acked, self.end) = (initial, start, start, start);
        (self.released, self.message, self.filled) = (0, 0, 0);
        self.flags = mark::OPEN;
    }

    /// The receiver wants `sequence` next, where that can be.
    #[inline(always)]
    pub fn acknowledge(&mut self, sequence: u32) {
        if sequence.wrapping_sub(self.acked) <= self.top().wrapping_sub(self.acked) {
            self.acked = sequence;
        }
    }

    /// Bytes released that the receiver has not acknowledged.
    #[inline(always)]
    pub fn unacknowledged(&self) -> usize {
        (self.next.wrapping_sub(self.acked) as i32).max(0) as usize
    }

    /// Whether something has come ahead of a gap.
    #[inline(always)]
    pub fn has_ahead(&self) -> bool {
        self.end != self.next
    }

    /// The receiver's window reaches so far; it does not take back what it has said (RFC 9293, 3.8.6).
    #[inline(always)]
    pub fn offer(&mut self, edge: u32) {
        if !self.has(mark::BOUNDED) || edge.wrapping_sub(self.edge) as i32 > 0 {
            self.edge = edge;
            self.flags |= mark::BOUNDED;
        }
    }

    /// How far from `sequence` on the receiver's window reaches, as far as is known.
    pub fn reach(&self, sequence: u32) -> u32 {
        match self.has(mark::BOUNDED) {
            true => (self.edge.wrapping_sub(sequence) as i32).max(0) as u32,
            false => MAX_WINDOW,
        }
    }

    /// So many bytes come in order.
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

    /// No window spans more than [`SPAN`]: what lies further back was acknowledged, seen or not.
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
            _ => State::Unseen,
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

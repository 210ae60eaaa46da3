//! What is known of one direction of a connection: one line of memory.

use bytemuck::{Pod, Zeroable};
use sluice_table::memory::LINE;
use sluice_wire::key::Direction;

/// No window, no held segment.
pub(super) const NONE: u32 = u32::MAX;

/// Most bytes that a window of TCP can span (RFC 7323, 2.3): what lies further off is not of this connection.
pub(super) const SPAN: u32 = 1 << 30;

/// Bits of [`Side::marks`].
pub(super) mod mark {
    /// Where the stream begins is known.
    pub const OPEN: u16 = 0x01;
    /// Something was released: where the stream begins is settled.
    pub const SETTLED: u16 = 0x02;
    /// A SYN with another number has passed since, and the receiver has not said which it took.
    pub const ASKED: u16 = 0x04;
    /// The FIN was released: it stands at `next`.
    pub const FINISHED: u16 = 0x08;
    /// A reset that the receiver takes has passed.
    pub const RESET: u16 = 0x10;
    /// This side sent data last.
    pub const TURN: u16 = 0x20;
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
pub(super) struct Side {
    /// Sequence number of the next byte in order; that of the FIN once it was released.
    pub next: u32,
    /// What the receiver wants next, as far as it has said so.
    pub acked: u32,
    /// Which use of this record it is: the same in both sides.
    pub serial: u32,
    pub marks: u16,
    /// How many segments are held.
    pub held: u16,
    /// Number of its window.
    pub window: u32,
    /// Bytes in the window's buffer, the last of them just before `next`.
    pub filled: u32,
    /// Bytes released.
    pub released: u64,
    /// Where the message begins that its sender sent last, in bytes released.
    pub message: u64,
    /// The first held segment.
    pub head: u32,
    /// Bytes of the held segments.
    pub held_bytes: u32,
    /// Initial sequence number.
    pub initial: u32,
    /// Initial sequence number of the SYN of [`mark::ASKED`].
    pub asked: u32,
    /// Which entry the next released segment gets.
    pub digest: u32,
    pub unused: u32,
}

const _: () = assert!(size_of::<Side>() == LINE);
const _: () = assert!(size_of::<Connection>() == 2 * LINE);

impl Side {
    /// Nothing seen, in the record's use of this serial.
    pub fn unseen(serial: u32) -> Self {
        Self {
            serial,
            window: NONE,
            head: NONE,
            ..Self::zeroed()
        }
    }

    #[inline(always)]
    pub fn has(&self, mark: u16) -> bool {
        self.marks & mark != 0
    }

    /// What the receiver wants next once it has everything that was released.
    #[inline(always)]
    pub fn top(&self) -> u32 {
        self.next.wrapping_add(u32::from(self.has(mark::FINISHED)))
    }

    /// The stream begins behind this sequence number.
    pub fn begin(&mut self, initial: u32) {
        let start = initial.wrapping_add(1);
        (self.initial, self.next, self.acked) = (initial, start, start);
        (self.released, self.message, self.filled) = (0, 0, 0);
        self.marks = mark::OPEN;
    }

    /// The receiver wants `sequence` next, where that can be.
    #[inline(always)]
    pub fn acknowledge(&mut self, sequence: u32) {
        if sequence.wrapping_sub(self.acked) <= self.top().wrapping_sub(self.acked) {
            self.acked = sequence;
        }
    }

    /// No window spans more than [`SPAN`]: what lies further back was acknowledged, seen or not.
    #[inline(always)]
    pub fn bound_acknowledged(&mut self) {
        if self.next.wrapping_sub(self.acked) > SPAN {
            self.acked = self.next.wrapping_sub(SPAN);
        }
    }

    pub fn state(&self) -> State {
        match self.marks {
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
    pub sides: [Side; 2],
}

impl Connection {
    #[inline(always)]
    pub fn side(&mut self, direction: Direction) -> &mut Side {
        &mut self.sides[direction as usize]
    }
}

//! Segments that are held ahead of a gap: of each direction a list in the order of their sequence numbers, and of all
//! a list in the order in which they came.

use bytemuck::{Pod, Zeroable};

use super::free::Free;
use super::side::{NONE, Side};

/// A segment that is to be held: what [`Streams::held`](super::Streams::held) needs to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    pub(super) sequence: u32,
    pub(super) length: u16,
    pub(super) fin: bool,
}

/// A held segment.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Hold {
    /// When its gap should have been filled.
    pub due: u64,
    /// What the caller knows its buffer by.
    pub ticket: u32,
    pub sequence: u32,
    /// Number of its connection, twice, and of its direction.
    pub owner: u32,
    /// Next of its direction.
    next: u32,
    older: u32,
    newer: u32,
    length: u16,
    fin: u16,
    unused: u32,
}

const _: () = assert!(size_of::<Hold>() == 40);

/// How many segments and bytes may be held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub segments: u16,
    pub bytes: u32,
    pub bytes_of_all: u64,
}

/// Places for held segments.
#[derive(Debug)]
pub(super) struct Holds<'m> {
    entries: &'m mut [Hold],
    free: Free<'m>,
    bounds: Bounds,
    oldest: u32,
    newest: u32,
    bytes: u64,
}

impl<'m> Holds<'m> {
    /// `entries` holds every number of `free`.
    pub(super) fn new(entries: &'m mut [Hold], free: Free<'m>, bounds: Bounds) -> Self {
        Self {
            entries,
            free,
            bounds,
            oldest: NONE,
            newest: NONE,
            bytes: 0,
        }
    }

    /// How many segments are held.
    pub(super) fn len(&self) -> usize {
        self.free.taken()
    }

    /// How many bytes they have.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn get(&self, number: u32) -> Option<&Hold> {
        self.entries.get(number as usize)
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Hold> {
        self.entries.get_mut(number as usize)
    }

    /// The one of all that came first.
    pub(super) fn oldest(&self) -> Option<&Hold> {
        self.get(self.oldest)
    }

    /// The first of a direction.
    #[inline]
    pub(super) fn first(&self, side: &Side) -> Option<&Hold> {
        self.get(side.head)
    }

    /// Whether a direction may hold one more of so many bytes.
    pub(super) fn has_room(&self, side: &Side, length: usize) -> bool {
        side.held < self.bounds.segments
            && u64::from(side.held_bytes) + length as u64 <= u64::from(self.bounds.bytes)
            && self.bytes + length as u64 <= self.bounds.bytes_of_all
            && self.free.left() > 0
    }

    /// Whether every byte of a segment, and its FIN, is in one that is held.
    pub(super) fn cover(&self, side: &Side, ahead: Ahead) -> bool {
        let mut at = side.head;
        while let Some(hold) = self.get(at) {
            let begin = ahead.sequence.wrapping_sub(hold.sequence);
            let end = begin.wrapping_add(u32::from(ahead.length));
            let length = u32::from(hold.length);
            if begin <= length && end <= length && (!ahead.fin || (hold.fin != 0 && end == length)) {
                return true;
            }
            at = hold.next;
        }
        false
    }

    /// Hold a segment behind those of its direction that begin no later; false where there is no room.
    pub(super) fn insert(&mut self, side: &mut Side, owner: u32, ahead: Ahead, ticket: u32, due: u64) -> bool {
        if !self.has_room(side, usize::from(ahead.length)) {
            return false;
        }
        let Some(number) = self.free.take() else {
            return false;
        };
        let distance = |sequence: u32| sequence.wrapping_sub(side.next) as i32;
        let (mut before, mut after) = (NONE, side.head);
        while let Some(hold) = self.get(after) {
            if distance(hold.sequence) > distance(ahead.sequence) {
                break;
            }
            (before, after) = (after, hold.next);
        }
        let older = self.newest;
        if let Some(place) = self.get_mut(number) {
            *place = Hold {
                due,
                ticket,
                sequence: ahead.sequence,
                owner,
                next: after,
                older,
                newer: NONE,
                length: ahead.length,
                fin: u16::from(ahead.fin),
                unused: 0,
            };
        }
        match self.get_mut(before) {
            Some(hold) => hold.next = number,
            None => side.head = number,
        }
        match self.get_mut(older) {
            Some(hold) => hold.newer = number,
            None => self.oldest = number,
        }
        self.newest = number;
        side.held += 1;
        side.held_bytes += u32::from(ahead.length);
        self.bytes += u64::from(ahead.length);
        true
    }

    /// Take the first of a direction out: its ticket.
    pub(super) fn pop(&mut self, side: &mut Side) -> Option<u32> {
        let number = side.head;
        let hold = *self.get(number)?;
        side.head = hold.next;
        match self.get_mut(hold.older) {
            Some(older) => older.newer = hold.newer,
            None => self.oldest = hold.newer,
        }
        match self.get_mut(hold.newer) {
            Some(newer) => newer.older = hold.older,
            None => self.newest = hold.older,
        }
        side.held -= 1;
        side.held_bytes -= u32::from(hold.length);
        self.bytes -= u64::from(hold.length);
        self.free.give_back(number);
        Some(hold.ticket)
    }
}

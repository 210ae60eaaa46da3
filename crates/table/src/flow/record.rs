//! What the flow table asks of a record.

use bytemuck::{Pod, Zeroable};
use sluice_wire::key::Direction;

/// Place of a record in its table. It stays with the record until the record is removed, and is then given anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct RecordIndex(pub u32);

/// A record of plain data that is found by two keys. Its size is a multiple of 64 bytes, its alignment at most 64.
pub trait Record: Pod {
    /// What it is found by.
    type Key: Copy;

    /// The key of the packets that go `direction`.
    fn key(&self, direction: Direction) -> Self::Key;

    /// Whether `key` is the one of `direction`: `self.key(direction) == *key`, as cheap as can be.
    fn matches(&self, key: &Self::Key, direction: Direction) -> bool;

    /// Eight bytes of the record that table and wheel keep for themselves.
    fn links(&self) -> &Links;

    /// The same, to write.
    fn links_mut(&mut self) -> &mut Links;
}

/// Neighbours in a list of the wheel, or in the list of free records. In memory of zeros every record is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Links {
    /// Index of the next record plus one; 0 ends the list.
    next: u32,
    /// [`FREE`], [`IDLE`], [`HEAD`] plus the number of a list, or [`BEHIND`] plus the index of a record.
    previous: u32,
}

const FREE: u32 = 0;
const IDLE: u32 = 1;
const HEAD: u32 = 2;
const BEHIND: u32 = 1 << 31;

/// What comes before a scheduled record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Previous {
    /// Nothing: it is first in the list of this number.
    List(u32),
    /// This record.
    Record(RecordIndex),
}

impl Links {
    /// Of a record in use that is in no list of the wheel.
    pub(crate) const IDLE: Links = Links {
        next: 0,
        previous: IDLE,
    };

    /// Of a free record before another.
    pub(crate) fn free(next: Option<RecordIndex>) -> Self {
        Links {
            next: Self::pack(next),
            previous: FREE,
        }
    }

    /// Of a scheduled record.
    pub(crate) fn scheduled(previous: Previous, next: Option<RecordIndex>) -> Self {
        let mut links = Links {
            next: Self::pack(next),
            previous: IDLE,
        };
        links.set_previous(previous);
        links
    }

    pub(crate) fn set_previous(&mut self, previous: Previous) {
        self.previous = match previous {
            Previous::List(number) => HEAD + number,
            Previous::Record(index) => BEHIND | index.0,
        };
    }

    pub(crate) fn set_next(&mut self, next: Option<RecordIndex>) {
        self.next = Self::pack(next);
    }

    pub(crate) fn pack(index: Option<RecordIndex>) -> u32 {
        index.map_or(0, |index| index.0 + 1)
    }

    pub(crate) fn unpack(number: u32) -> Option<RecordIndex> {
        number.checked_sub(1).map(RecordIndex)
    }

    pub(crate) fn next(&self) -> Option<RecordIndex> {
        Self::unpack(self.next)
    }

    /// What comes before, where the record is scheduled.
    pub(crate) fn previous(&self) -> Option<Previous> {
        match self.previous {
            FREE | IDLE => None,
            behind if behind & BEHIND != 0 => Some(Previous::Record(RecordIndex(behind & !BEHIND))),
            list => Some(Previous::List(list - HEAD)),
        }
    }

    /// Whether the record is in use.
    #[inline(always)]
    pub fn is_live(&self) -> bool {
        self.previous != FREE
    }

    /// Whether the record is in a list of the wheel.
    #[inline(always)]
    pub fn is_scheduled(&self) -> bool {
        self.previous > IDLE
    }
}

//! Requirements of the flow table for its records.

use bytemuck::{Pod, Zeroable};
use sluice_wire::key::Direction;

/// Index of a record in its table. The index is constant until the removal of the record. Afterwards, another record
/// may have the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub struct RecordIndex(pub u32);

/// A plain-data record with two keys. The size of a record must be a multiple of 64 bytes, and its alignment at most
/// 64.
pub trait Record: Pod {
    /// Type of the two keys of a record.
    type Key: Copy;

    /// Key of packets in this direction of the flow.
    fn key(&self, direction: Direction) -> Self::Key;

    /// Whether `key` equals the key of `direction`. Fast equivalent of `self.key(direction) == *key`.
    fn matches(&self, key: &Self::Key, direction: Direction) -> bool;

    /// Eight bytes of the record that are reserved for the flow table and the timer wheel.
    fn links(&self) -> &Links;

    /// The eight bytes that are reserved for the flow table and the timer wheel, mutable.
    fn links_mut(&mut self) -> &mut Links;
}

/// List links of a record. The list belongs to the timer wheel, or is the list of free records. Zeroed memory means a
/// free record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Links {
    /// Index of the next record plus one; 0 at the end of the list.
    next: u32,
    /// [`FREE`], [`IDLE`], [`HEAD`] plus the number of a list, or [`BEHIND`] plus the index of the previous record.
    previous: u32,
}

const FREE: u32 = 0;
const IDLE: u32 = 1;
const HEAD: u32 = 2;
const BEHIND: u32 = 1 << 31;

/// Predecessor of a scheduled record in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Previous {
    /// The head of the list with this number.
    List(u32),
    /// The record with this index.
    Record(RecordIndex),
}

impl Links {
    /// Links of a record in use that is not scheduled on the timer wheel.
    pub(crate) const IDLE: Links = Links {
        next: 0,
        previous: IDLE,
    };

    /// Links of a free record. `next` is the next free record.
    pub(crate) fn free(next: Option<RecordIndex>) -> Self {
        Links {
            next: Self::pack(next),
            previous: FREE,
        }
    }

    /// Links of a scheduled record.
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

    /// Predecessor in the list; `None` if the record is not scheduled.
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

    /// Whether the record is in a list of the timer wheel.
    #[inline(always)]
    pub fn is_scheduled(&self) -> bool {
        self.previous > IDLE
    }
}

//! Root of a tree. The root cuts one header word into up to 256 pieces, and replaces two levels of nodes.

use core::sync::atomic::{AtomicU32, Ordering};

use sluice_table::simd::lanes::Lanes;

use super::{Child, MAX_PIECES};

/// Maximum number of pieces into which a root cuts its word.
pub const ROOT_PIECES: usize = MAX_PIECES * MAX_PIECES;

/// The first value of each piece except the first piece, in ascending order and in rows of 16, and the children of all
/// pieces. Unused child entries repeat the last child. The last value of the last row is not used.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Root {
    /// Last value of each row.
    last_values: [u32; MAX_PIECES],
    rows: [[u32; MAX_PIECES]; MAX_PIECES],
    children: [AtomicU32; ROOT_PIECES],
    /// Index of the header word that is cut.
    pub word: usize,
}

impl Root {
    /// Creates a root that cuts the header word with index `word`. `children` contains a child for each piece.
    pub fn new(word: usize, cuts: &[u32], children: &[Child]) -> Self {
        let last = children.last().copied().unwrap_or(Child::EMPTY);
        let mut root = Self {
            last_values: [u32::MAX; MAX_PIECES],
            rows: [[u32::MAX; MAX_PIECES]; MAX_PIECES],
            children: core::array::from_fn(|piece| AtomicU32::new(children.get(piece).unwrap_or(&last).0)),
            word,
        };
        root.rows.as_flattened_mut()[..cuts.len()].copy_from_slice(cuts);
        root.last_values = root.rows.map(|row| row[MAX_PIECES - 1]);
        root
    }

    /// The cuts.
    pub fn cuts(&self) -> &[u32] {
        super::cuts(self.rows.as_flattened())
    }

    /// The children of the pieces.
    pub fn children(&self) -> &[AtomicU32] {
        &self.children
    }

    /// The child for a value of the word.
    #[inline(always)]
    pub fn child<L: Lanes>(&self, value: u32, lanes: L) -> Child {
        // The largest value selects a row after the unused entries, so the index is masked.
        let row = (lanes.not_below(&self.last_values, value) & 0x7fff).count_ones() as usize % MAX_PIECES;
        let within = (lanes.not_below(&self.rows[row], value) & 0x7fff).count_ones() as usize;
        Child(self.children[(row * MAX_PIECES + within) % ROOT_PIECES].load(Ordering::Relaxed))
    }
}

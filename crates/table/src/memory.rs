//! Memory that the caller provides. The memory consists of whole cache lines, and may come from huge pages or a mapped
//! file.

use bytemuck::{Pod, Zeroable};

/// Size of a cache line in bytes.
pub const LINE: usize = 64;

/// One cache line of plain memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Line(pub [u64; 8]);

impl Line {
    /// A zeroed line.
    pub const ZERO: Line = Line([0; 8]);
}

/// Number of cache lines for `bytes` bytes.
pub const fn lines_of(bytes: usize) -> usize {
    bytes.div_ceil(LINE)
}

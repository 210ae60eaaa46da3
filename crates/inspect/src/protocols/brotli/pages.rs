//! Memory that the decoders of a shard share for windows and tables. Its pages are allocated on demand.

use crate::source_quota::SlotPool;

/// Size in bytes of a page.
pub const PAGE: usize = 64 << 10;
/// Number of table entries in a page.
pub const WORDS: usize = PAGE / size_of::<u16>();

/// Pages and their owners.
#[derive(Debug)]
pub struct Pages {
    words: Box<[u16]>,
    pub places: SlotPool,
}

impl Pages {
    /// Creates a pool of `count` pages. The system provides the memory of each page at its first use.
    pub fn new(count: u32) -> Self {
        Self {
            words: vec![0; count as usize * WORDS].into(),
            places: SlotPool::new(count),
        }
    }

    /// All entries of all pages.
    #[inline]
    pub fn words(&self) -> &[u16] {
        &self.words
    }

    /// All entries of all pages, mutably.
    pub fn words_mut(&mut self) -> &mut [u16] {
        &mut self.words
    }

    /// The bytes of a page.
    #[inline]
    pub fn bytes(&self, page: u32) -> &[u8] {
        let start = page as usize * WORDS;
        bytemuck::cast_slice(&self.words[start..start + WORDS])
    }

    /// The bytes of a page, mutably.
    #[inline]
    pub fn bytes_mut(&mut self, page: u32) -> &mut [u8] {
        let start = page as usize * WORDS;
        bytemuck::cast_slice_mut(&mut self.words[start..start + WORDS])
    }
}

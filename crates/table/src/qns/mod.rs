//! QNS, quick NAT search (P4, section 2.2): finds rules by prefix, port and protocol, independent of their number. The
//! control thread changes individual rules while workers look up.
//!
//! There is one sub-table per prefix length (33 for IPv4, 129 for IPv6). In a sub-table, the key of a rule includes its
//! port, if it has one. A lookup searches the longest prefix first, with the port before without it, and ends at the
//! first match. Rules with the same such key but different protocols or interfaces share a bucket, where the most
//! specific one is selected. Bitmaps record which sub-tables have entries, for all addresses and, if there are enough
//! rules, by the leading address bits, so that lookups skip empty sub-tables.
//!
//! All sub-tables share one array of buckets, each one cache line for IPv4; the prefix length is part of the hash
//! input. The array grows bucket by bucket (linear hashing): an insertion splits at most one bucket, and the table is
//! never rebuilt. Hashes are keyed and not linear, because attackers can choose addresses and ports.
//!
//! Every word is an atomic. The header of a line contains a tag per slot and a version. An entry appears or disappears
//! by one store, and a reader checks the header again after reading an entry. Entries move only when a bucket is split
//! or compacted. Between publication of the copy and removal of the original, a counter is incremented; a reader that
//! found no match checks the counter again. So a lookup sees each rule before or after a change, never an intermediate
//! state; it takes no lock, never waits for the writer and never panics.

mod filter;
mod key;
mod line;
mod reader;
mod segments;
mod table;

/// Atomics of the module. The model test compiles the same sources with those of its checker.
mod sync {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// Number of lines in the first segment, a power of two.
    pub const FIRST: u32 = 64;

    /// Allocate zeroed 64-bit words, whose memory is populated at first access.
    pub fn words(count: usize) -> Box<[AtomicU64]> {
        bytemuck::zeroed_slice_box(count)
    }

    /// Allocate zeroed 32-bit words, whose memory is populated at first access.
    pub fn halves(count: usize) -> Box<[AtomicU32]> {
        bytemuck::zeroed_slice_box(count)
    }
}

pub use key::{Address, Key, Match, Query, Value4, Value6};
pub use reader::{BATCH, QnsReader};
pub use table::{QnsError, QnsTable};

#[cfg(test)]
mod tests {
    use super::segments::{Lines, first, segment};

    #[test]
    fn segment_of_every_line_is_the_one_that_begins_before_it() {
        for line in (0..5000).chain([i32::MAX as u32]) {
            let segment = segment(line);
            assert!((first(segment)..first(segment + 1)).contains(&line), "{line}");
        }
    }

    #[test]
    fn lines_begin_at_lines_of_the_cache_and_do_not_overlap() {
        let lines = Lines::<u32>::new();
        assert!(lines.get(0).is_none());
        for line in [0, 63, 64, 127, 128, 300] {
            let made: *const _ = lines.make(line).unwrap();
            assert_eq!(0, made.align_offset(64));
        }
        let at = |line| std::ptr::from_ref(lines.get(line).unwrap()).addr();
        assert_eq!(64, at(300) - at(299));
        assert!(lines.get(512).is_none());
    }
}

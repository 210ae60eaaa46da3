//! QNS, quick NAT search (P4, section 2.2): rules found by prefix, port and protocol, whatever their number, changed one
//! by one by the control thread while workers look up.
//!
//! There is a sub-table for each prefix length (33 for IPv4, 129 for IPv6). Within one, a rule with a port has a key
//! with the port, a rule without one a key without: a lookup asks the longest prefix first, with the port before without,
//! and the first match ends it. Rules of one such key for one protocol or any, for one interface or any, share a bucket,
//! where the more specific one wins. Bitmaps say which sub-tables hold anything, for all addresses and, once there are
//! some rules, for those that share their first bits: what holds nothing costs nothing.
//!
//! All sub-tables share one array of buckets, each one cache line for IPv4; the prefix length is part of what is hashed.
//! The array grows bucket by bucket (linear hashing): an insertion splits at most one bucket, and nothing is ever built
//! anew. Hashes are keyed and not linear, because addresses and ports come from attackers.
//!
//! Every word is an atomic. A line's header holds a tag for each of its slots and a version: an entry appears and
//! disappears by one store, and a reader that read an entry looks at the header again. Entries move only when a bucket is
//! split or tidied: that raises a count between the copy's appearance and the original's end, and a reader that found
//! nothing looks at the count again. So a lookup sees each rule before a change or after it, nothing between; it takes no
//! lock, never waits for the writer and never panics.

mod filter;
mod key;
mod line;
mod reader;
mod segments;
mod table;

/// The atomics that the module is built on; the model test builds the same sources on those of its checker.
mod sync {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// Lines of the first segment, a power of two.
    pub const FIRST: u32 = 64;

    /// Words of zeros, whose memory is touched when it is used.
    pub fn words(count: usize) -> Box<[AtomicU64]> {
        bytemuck::zeroed_slice_box(count)
    }

    /// The same, of half the size.
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

//! QNS, quick NAT search (P4, section 2.2). QNS finds rules by prefix, port and protocol, at a cost that is independent
//! of the number of rules. The control thread modifies individual rules while workers look up packets.
//!
//! The table has one sub-table for each prefix length (33 for IPv4, 129 for IPv6). The key of a rule in a sub-table
//! includes the port of the rule, if any. A lookup searches sub-tables in the order of decreasing prefix length. It
//! searches each sub-table for rules with a port, then for rules without a port, and stops at the first match. Rules
//! with equal prefix and port but different protocols or interfaces share a bucket, from which the most specific rule
//! is selected. Bitmaps record the sub-tables with entries, so that lookups skip empty sub-tables. If there are enough
//! rules, further bitmaps record the sub-tables by leading address bits.
//!
//! All sub-tables share one array of buckets. A bucket is one cache line for IPv4, and the prefix length is part of the
//! hash input. The array grows by single buckets (linear hashing): an insertion splits at most one bucket, and the
//! table is never rebuilt. The hash is keyed and not linear, because attackers can choose addresses and ports.
//!
//! All words are atomic. The header of a line contains a version, and a tag for each slot. One store of the header
//! publishes or removes an entry, and a reader checks the header again after it has read an entry. Entries are moved
//! only when a bucket is split or compacted. The writer publishes the copy, increments a counter, and removes the
//! original. A reader without a match searches again if the counter has changed. So a lookup finds each rule as it was
//! before a modification or as it is after it, never in an intermediate state. A lookup takes no lock, never waits for
//! the writer and never panics.

mod filter;
mod key;
mod line;
mod reader;
mod segments;
mod table;

/// Atomics of the module. The model test compiles this module with the atomics of the model checker.
mod sync {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// Number of lines in the first segment, a power of two.
    pub const FIRST: u32 = 64;

    /// Allocates zeroed 64-bit words. The kernel populates the memory at the first access.
    pub fn words(count: usize) -> Box<[AtomicU64]> {
        bytemuck::zeroed_slice_box(count)
    }

    /// Allocates zeroed 32-bit words. The kernel populates the memory at the first access.
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

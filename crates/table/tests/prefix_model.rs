//! Model test of the prefix table: compiles its sources with the atomics of a model checker, which explores every
//! interleaving of a writer and a reader up to a bound of preemptions.

#![allow(dead_code, missing_docs)]

mod sync {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    pub fn prefetch_read_at<T>(_: &[T], _: usize) {}

    pub fn zeros(count: usize) -> Box<[AtomicU32]> {
        (0..count).map(|_| AtomicU32::new(0)).collect()
    }
}
#[path = "../src/prefix/address.rs"]
mod address;
#[path = "../src/prefix/list.rs"]
mod list;
#[path = "../src/prefix/memory.rs"]
mod memory;
#[path = "../src/prefix/node.rs"]
mod node;
#[path = "../src/prefix/quiescence.rs"]
mod quiescence;
#[path = "../src/prefix/reader.rs"]
mod reader;
#[path = "../src/prefix/table.rs"]
mod table;

use std::sync::Arc;

use address::Address;
use loom::thread;
use quiescence::Quiescence;
use table::PrefixTable;

fn explored(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(model);
}

fn table(quiescence: &Arc<Quiescence>) -> PrefixTable<u32> {
    PrefixTable::with(quiescence.clone(), 1, usize::MAX)
}

#[test]
fn reader_during_insertion_sees_the_old_or_the_new_route() {
    explored(2, || {
        let quiescence = Arc::new(Quiescence::new(1));
        let mut table = table(&quiescence);
        table.insert(0, 0x0a00_0000, 8, 1).unwrap();
        let reader = table.reader();
        let looking = thread::spawn(move || {
            quiescence.online(0);
            let found = reader.lookup(0, 0x0a80_0000);
            assert!(matches!(found, Some(1 | 2)), "{found:?}");
            assert_eq!(Some(1), reader.lookup(0, 0x0a7f_ffff));
        });
        table.insert(0, 0x0a80_0000, 9, 2).unwrap();
        looking.join().unwrap();
    });
}

#[test]
fn reused_block_is_never_read_by_a_reader_of_its_former_life() {
    explored(2, || {
        let quiescence = Arc::new(Quiescence::new(1));
        let mut table = table(&quiescence);
        table.insert(0, 0x0a00_0000, 9, 1).unwrap();
        let reader = table.reader();
        let readers = quiescence.clone();
        let looking = thread::spawn(move || {
            readers.online(0);
            assert_eq!(Some(1), reader.lookup(0, 0x0a00_0000));
            readers.pass(0);
            assert_eq!(Some(1), reader.lookup(0, 0x0a00_0000));
            readers.offline(0);
        });
        // The first modification retires the root's block. The second modification reuses this memory for a smaller
        // block, if the reader has passed a quiescent point.
        table.insert(0, 0x1400_0000, 8, 2).unwrap();
        table.reclaim();
        table.insert(0, 0x1e80_0000, 9, 3).unwrap();
        looking.join().unwrap();
        table.reclaim();
        assert_eq!(0, table.retired());
    });
}

#[test]
fn sleeping_reader_that_wakes_sees_no_retired_block() {
    explored(2, || {
        let quiescence = Arc::new(Quiescence::new(1));
        // One word represents a published block, and another word represents the contents of the block.
        let published = Arc::new(sync::AtomicU32::new(1));
        let content = Arc::new(sync::AtomicU32::new(7));
        let (reads, old, reader) = (published.clone(), content.clone(), quiescence.clone());
        let waking = thread::spawn(move || {
            reader.online(0);
            if reads.load(sync::Ordering::Acquire) == 1 {
                assert_eq!(7, old.load(sync::Ordering::Relaxed));
            }
            reader.offline(0);
        });
        published.store(2, sync::Ordering::Release);
        let epoch = quiescence.advance();
        if quiescence.settled() >= epoch {
            content.store(9, sync::Ordering::Relaxed);
        }
        waking.join().unwrap();
    });
}

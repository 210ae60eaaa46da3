//! Model test of QNS: compiles its sources with the atomics of a model checker, which explores every interleaving of a
//! writer and a reader up to a bound of preemptions.

#![allow(dead_code, missing_docs)]

mod sync {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    pub const FIRST: u32 = 2;

    pub fn words(count: usize) -> Box<[AtomicU64]> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    pub fn halves(count: usize) -> Box<[AtomicU32]> {
        (0..count).map(|_| AtomicU32::new(0)).collect()
    }
}
mod hash {
    pub use sluice_table::hash::Hasher;
}
mod memory {
    pub use sluice_table::memory::LINE;
}
mod prefetch {
    pub use sluice_table::prefetch::*;
}
mod prefix {
    pub use sluice_table::prefix::Address;
}
#[path = "../src/qns/filter.rs"]
mod filter;
#[path = "../src/qns/key.rs"]
mod key;
#[path = "../src/qns/line.rs"]
mod line;
#[path = "../src/qns/reader.rs"]
mod reader;
#[path = "../src/qns/segments.rs"]
mod segments;
#[path = "../src/qns/table.rs"]
mod table;

use key::{Key, Query, Value4, Value6};
use loom::thread;
use table::QnsTable;

fn explored(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(model);
}

fn table<A: key::Address>(buckets: u32) -> QnsTable<A> {
    QnsTable::with_thresholds([1, 2], [usize::MAX; 2], buckets)
}

/// A prefix of 8 bits, chosen so that the hashes of rules with this prefix end in the two bits `ending`.
fn prefix(table: &QnsTable<u32>, ending: u64) -> u32 {
    let reader = table.reader();
    let hash = |prefix: &u32| reader.shared.hasher.block(key::block_of(&rule(*prefix, 8, None)));
    let prefixes = (1..=255).map(|first| first << 24);
    prefixes
        .into_iter()
        .find(|prefix| hash(prefix) & 3 == ending)
        .expect("one of many")
}

/// A rule. All rules of one prefix share a bucket.
fn rule<A>(prefix: A, length: u8, protocol: Option<u8>) -> Key<A> {
    Key {
        context: 0,
        prefix,
        length,
        port: None,
        protocol,
        interface: None,
    }
}

fn asked<A>(address: A, protocol: u8) -> Query<A> {
    Query {
        context: 0,
        address,
        port: None,
        protocol,
        interface: 0,
    }
}

fn says(word: u64) -> Value4 {
    Value4 { word, note: 0 }
}

#[test]
fn reader_during_insertion_sees_the_old_or_the_new_rule() {
    explored(3, || {
        let mut table = table::<u32>(1);
        table.insert(&rule(0x0a00_0000, 8, None), says(1)).unwrap();
        let reader = table.reader();
        let looking = thread::spawn(move || {
            let found = reader.lookup(&asked(0x0a80_0001, 6)).map(|found| found.value.word);
            assert!(matches!(found, Some(1 | 2)), "{found:?}");
            let other = reader.lookup(&asked(0x0a00_0001, 6)).map(|found| found.value.word);
            assert_eq!(Some(1), other);
        });
        // The insertion of the second rule splits the only bucket.
        table.insert(&rule(0x0a80_0000, 9, None), says(2)).unwrap();
        looking.join().unwrap();
    });
}

/// The second of three buckets is split next: rules whose hashes end in 3 are moved, and rules whose hashes end in 1
/// remain.
fn grown(ending: u64, look: fn(&reader::QnsReader<u32>, Query<u32>) -> Option<u64>) {
    explored(3, move || {
        let mut table = table::<u32>(3);
        let place = prefix(&table, ending);
        for protocol in 1..=3 {
            table
                .insert(&rule(place, 8, Some(protocol)), says(protocol.into()))
                .unwrap();
        }
        let reader = table.reader();
        let looking = thread::spawn(move || {
            assert_eq!(Some(3), look(&reader, asked(place | 1, 3)));
        });
        let other = prefix(&table, 0);
        table.insert(&rule(other, 8, None), says(9)).unwrap();
        assert_eq!(4, table.buckets());
        looking.join().unwrap();
    });
}

fn single(reader: &reader::QnsReader<u32>, query: Query<u32>) -> Option<u64> {
    reader.lookup(&query).map(|found| found.value.word)
}

fn batch(reader: &reader::QnsReader<u32>, query: Query<u32>) -> Option<u64> {
    let mut matches = [None];
    reader.lookup_batch(&[query], &mut matches);
    matches[0].map(|found| found.value.word)
}

#[test]
fn reader_during_growth_sees_the_rules_that_move() {
    grown(3, single);
}

#[test]
fn reader_during_growth_sees_the_rules_that_stay() {
    grown(1, single);
}

#[test]
fn batch_during_growth_sees_the_rules_that_move() {
    grown(3, batch);
}

/// Removes the first of three rules in a bucket. The table moves the third rule from an overflow line to the free slot.
fn removed(preemptions: usize, afterwards: fn(&mut QnsTable<u32>)) {
    explored(preemptions, move || {
        let mut table = table::<u32>(3);
        for protocol in 1..=3 {
            table
                .insert(&rule(0x0a00_0000, 8, Some(protocol)), says(protocol.into()))
                .unwrap();
        }
        let reader = table.reader();
        let looking = thread::spawn(move || {
            assert_eq!(Some(3), single(&reader, asked(0x0a00_0001, 3)));
        });
        assert_eq!(Some(says(1)), table.remove(&rule(0x0a00_0000, 8, Some(1))));
        afterwards(&mut table);
        looking.join().unwrap();
    });
}

#[test]
fn reader_during_removal_sees_the_rule_that_moves_into_the_gap() {
    removed(3, |_| {});
}

#[test]
fn reader_of_an_overflow_line_that_is_used_again_sees_the_rule_that_was_there() {
    removed(1, |table| {
        table.insert(&rule(0x0a00_0000, 8, Some(4)), says(4)).unwrap();
    });
}

#[test]
fn reader_of_a_slot_that_is_used_again_never_mixes_two_rules() {
    explored(3, || {
        let mut table = table::<u32>(1);
        table.insert(&rule(0x0a00_0000, 8, Some(6)), says(1)).unwrap();
        let reader = table.reader();
        let looking = thread::spawn(move || {
            let found = reader.lookup(&asked(0x0a00_0001, 6)).map(|found| found.value.word);
            assert!(matches!(found, None | Some(1)), "{found:?}");
            let found = reader.lookup(&asked(0x0a00_0001, 17)).map(|found| found.value.word);
            assert!(matches!(found, None | Some(2)), "{found:?}");
        });
        table.remove(&rule(0x0a00_0000, 8, Some(6)));
        table.insert(&rule(0x0a00_0000, 8, Some(17)), says(2)).unwrap();
        looking.join().unwrap();
    });
}

#[test]
fn reader_during_a_change_sees_all_of_the_old_or_all_of_the_new_value() {
    explored(3, || {
        let mut table = table::<u128>(1);
        let key = rule(0x2001 << 112, 16, None);
        table.insert(&key, Value6([1; 3])).unwrap();
        let reader = table.reader();
        let looking = thread::spawn(move || {
            let found = reader.lookup(&asked(0x2001 << 112 | 7, 6)).map(|found| found.value.0);
            assert!(matches!(found, Some([1, 1, 1] | [2, 2, 2])), "{found:?}");
        });
        assert_eq!(Ok(Some(Value6([1; 3]))), table.insert(&key, Value6([2; 3])));
        looking.join().unwrap();
    });
}

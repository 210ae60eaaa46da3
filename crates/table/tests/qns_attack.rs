//! Tests of lookups with rules that collide under linear hashes: a lookup reads no more lines than with other rules.

#![cfg(not(miri))]

use crate::collisions::colliding;
use sluice_table::qns::{Key, QnsTable, Query, Value4};

fn key(input: &[u8]) -> Key<u32> {
    let number = |at: usize| u32::from_be_bytes([input[at], input[at + 1], input[at + 2], input[at + 3]]);
    Key {
        context: number(4),
        prefix: number(0),
        length: 32,
        port: Some(number(8) as u16),
        protocol: Some(17),
        interface: None,
    }
}

fn asked(key: &Key<u32>, port: u16) -> Query<u32> {
    Query {
        context: key.context,
        address: key.prefix,
        port: Some(port),
        protocol: 17,
        interface: 0,
    }
}

#[test]
fn rules_that_collide_under_crc32_and_toeplitz_are_found_in_few_lines() {
    let mut keys: Vec<Key<u32>> = colliding(12, 65_536).iter().map(|input| key(input)).collect();
    keys.sort_unstable();
    keys.dedup();
    for seed in 0..4 {
        let mut table = QnsTable::new([seed, seed << 40]);
        for (word, key) in (0..).zip(&keys) {
            table.insert(key, Value4 { word, note: 0 }).unwrap();
        }
        let reader = table.reader();
        for (word, key) in (0..).zip(&keys) {
            let (found, lines) = reader.lookup_counted(&asked(key, key.port.unwrap()));
            assert_eq!(Some(word), found.map(|found| found.value.word));
            // The maximum is two lines of bitmaps plus five lines of a bucket with ten entries. The mean is one entry
            // per bucket.
            assert!(lines <= 2 + 5, "{lines} lines");
            let (_, lines) = reader.lookup_counted(&asked(key, 1));
            assert!(lines <= 2 + 5, "{lines} lines");
        }
    }
}

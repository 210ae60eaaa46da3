//! Model test of the neighbour table: compiles its source with the atomics of a model checker.

#![allow(dead_code, unused_imports, missing_docs)]

mod sync {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
#[path = "../src/address.rs"]
mod address;
#[path = "../src/neighbour/hash.rs"]
mod hash;
#[path = "../src/neighbour/table.rs"]
mod table;

use std::sync::Arc;

use address::Address;
use loom::thread;
use table::{NeighbourIndex, NeighbourTableWriter, Neighbours, State};

const OLD: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NEW: [u8; 6] = [2, 9, 9, 9, 9, 9];
const FIRST: Address = Address::V4(0x0a00_0001);
const SECOND: Address = Address::V6(1 << 64 | 0x0a00_0001);
const SLOT: NeighbourIndex = NeighbourIndex(0);

fn explored(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn changed_mac_is_read_whole_old_or_new() {
    explored(|| {
        let table = Arc::new(Neighbours::new(1, [1, 2]));
        let mut writer = NeighbourTableWriter::new(table.clone());
        assert!(writer.fill(SLOT, 3, FIRST, State::Reachable, OLD));
        let reader = table.clone();
        let reading = thread::spawn(move || {
            let mac = reader.mac(SLOT).expect("has one before and after");
            assert!(mac == OLD || mac == NEW);
            let found = reader.resolve(3, FIRST).expect("is there all the time");
            assert!((found.mac == OLD) == (found.state == State::Reachable));
        });
        writer.set(SLOT, State::Stale, NEW);
        reading.join().unwrap();
    });
}

#[test]
fn reused_slot_is_never_taken_for_another_address() {
    explored(|| {
        let table = Arc::new(Neighbours::new(1, [1, 2]));
        let mut writer = NeighbourTableWriter::new(table.clone());
        assert!(writer.fill(SLOT, 3, FIRST, State::Reachable, OLD));
        let reader = table.clone();
        let reading = thread::spawn(move || {
            if let Some(found) = reader.snapshot(SLOT) {
                let first = (found.interface, found.address, found.mac) == (3, FIRST, OLD);
                let second = (found.interface, found.address, found.mac) == (4, SECOND, NEW);
                assert!(first || second, "{found:?}");
            }
        });
        assert!(writer.clear(SLOT, 3, FIRST));
        assert!(writer.fill(SLOT, 4, SECOND, State::Reachable, NEW));
        reading.join().unwrap();
    });
}

#[test]
fn held_entry_keeps_its_slot() {
    explored(|| {
        let table = Arc::new(Neighbours::new(1, [1, 2]));
        let mut writer = NeighbourTableWriter::new(table.clone());
        assert!(writer.fill(SLOT, 3, FIRST, State::Reachable, OLD));
        let reader = table.clone();
        let reading = thread::spawn(move || {
            if reader.hold(SLOT, 3, FIRST) {
                assert_eq!(Some(OLD), reader.mac(SLOT));
                reader.release(SLOT);
            }
        });
        if writer.clear(SLOT, 3, FIRST) {
            assert!(writer.fill(SLOT, 4, SECOND, State::Reachable, NEW));
        }
        reading.join().unwrap();
        assert_eq!(0, table.uses(SLOT));
    });
}

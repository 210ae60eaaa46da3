use super::*;
use crate::hash::Hasher;
use bytemuck::{Pod, Zeroable};
use proptest::prelude::*;
use sluice_wire::key::{FlowKey4, KeyWords4, Tuple4};
use std::collections::HashMap;

/// A record with the layout of the engine's records: two cache lines, with both keys in the first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(64))]
struct Session {
    keys: [KeyWords4; 2],
    rest: u64,
    decisions: [u64; 3],
    counters: [u64; 7],
    links: Links,
}

impl Record for Session {
    type Key = FlowKey4;

    fn key(&self, direction: Direction) -> FlowKey4 {
        FlowKey4 {
            words: self.keys[direction as usize],
            high: 0,
        }
    }

    fn matches(&self, key: &FlowKey4, direction: Direction) -> bool {
        self.key(direction) == *key
    }

    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

fn key(number: u32) -> FlowKey4 {
    let tuple = Tuple4 {
        source: 0x0a00_0000 | (number >> 4),
        destination: 0xcb00_7100 | (number & 0xff),
        source_port: 1024 + (number & 15) as u16,
        destination_port: 443,
        context: 0,
    };
    FlowKey4::new(tuple, 6)
}

fn translated(number: u32) -> FlowKey4 {
    let reverse = key(number).reversed();
    let tuple = Tuple4 {
        destination: 0xc633_6400 | (number >> 16),
        destination_port: number as u16,
        ..reverse.tuple()
    };
    FlowKey4::new(tuple, 6)
}

fn session(forward: FlowKey4, reverse: FlowKey4) -> Session {
    Session {
        keys: [forward.words, reverse.words],
        ..Session::zeroed()
    }
}

fn hashes(hasher: &Hasher, record: &Session) -> (u64, u64) {
    (
        hasher.one4(&record.key(Direction::Forward)),
        hasher.one4(&record.key(Direction::Reverse)),
    )
}

fn memory(capacity: usize) -> Vec<Line> {
    vec![Line([u64::MAX; 8]); FlowTable::<Session>::lines_for(capacity)]
}

fn full<'m>(memory: &'m mut [Line], capacity: usize, hasher: &Hasher) -> FlowTable<'m, Session> {
    let mut table = FlowTable::new(memory, capacity).unwrap();
    for number in 0..capacity as u32 {
        let record = session(key(number), translated(number));
        let (forward, reverse) = hashes(hasher, &record);
        assert!(table.insert(forward, reverse, record).is_ok(), "{number} of {capacity}");
    }
    table
}

#[test]
fn insert_up_to_capacity_finds_both_directions_and_refuses_the_next() {
    let sizes: &[usize] = if cfg!(miri) {
        &[1, 7, 30]
    } else {
        &[1, 2, 3, 7, 8, 9, 100, 1000, 8192, 65_536, 300_001]
    };
    for &capacity in sizes {
        let hasher = Hasher::new([capacity as u64, 7]);
        let mut memory = memory(capacity);
        let mut table = full(&mut memory, capacity, &hasher);
        assert_eq!(capacity, table.len());
        let record = session(key(capacity as u32), translated(capacity as u32));
        let (forward, reverse) = hashes(&hasher, &record);
        assert_eq!(Err(InsertError::Full), table.insert(forward, reverse, record));
        for number in 0..capacity as u32 {
            let found = [key(number), translated(number)].map(|key| table.find(hasher.one4(&key), &key));
            let expected =
                [Direction::Forward, Direction::Reverse].map(|direction| Some((RecordIndex(number), direction)));
            assert_eq!(expected, found, "{number} of {capacity}");
        }
        let audit = table.home.index.audit();
        assert_eq!(2 * capacity, audit.entries);
        if capacity >= 1000 {
            assert_eq!(0, audit.stashed);
            assert!(audit.displaced * 40 < audit.entries, "{audit:?}");
        }
    }
}

#[test]
fn bytes_at_capacity_are_within_28_and_a_half_bytes_of_the_records() {
    for capacity in [8192, 65_536, 1_000_000, 16_000_000] {
        let bytes = FlowTable::<Session>::lines_for(capacity) * LINE + size_of::<FlowTable<Session>>();
        assert!(bytes * 2 <= capacity * (2 * 128 + 57), "{bytes} bytes for {capacity}");
    }
}

#[test]
fn insert_into_wrong_memory_is_refused_with_sizes() {
    let needed = FlowTable::<Session>::lines_for(10);
    let mut memory = vec![Line::ZERO; needed - 1];
    let refused = FlowTable::<Session>::new(&mut memory, 10).err();
    assert_eq!(
        Some(TableSizeError::Memory {
            needed,
            provided: needed - 1
        }),
        refused
    );
    assert_eq!(
        Some(TableSizeError::Capacity(0)),
        FlowTable::<Session>::new(&mut memory, 0).err()
    );
    let beyond = CAPACITY_LIMIT + 1;
    assert_eq!(
        Some(TableSizeError::Capacity(beyond)),
        FlowTable::<Session>::new(&mut memory, beyond).err()
    );
}

#[test]
fn insert_of_a_key_that_is_there_is_refused_and_changes_nothing() {
    let hasher = Hasher::new([1, 2]);
    let mut memory = memory(4);
    let mut table = FlowTable::new(&mut memory, 4).unwrap();
    let mut insert = |forward, reverse| {
        let record = session(forward, reverse);
        let (forward, reverse) = hashes(&hasher, &record);
        table.insert(forward, reverse, record)
    };
    let index = insert(key(1), translated(1)).unwrap();
    let duplicate = |which, direction| {
        Err(InsertError::Duplicate {
            which,
            index,
            direction,
        })
    };
    assert_eq!(
        duplicate(Direction::Forward, Direction::Forward),
        insert(key(1), translated(2))
    );
    assert_eq!(
        duplicate(Direction::Reverse, Direction::Reverse),
        insert(key(2), translated(1))
    );
    assert_eq!(
        duplicate(Direction::Forward, Direction::Reverse),
        insert(translated(1), key(9))
    );
    assert_eq!(
        duplicate(Direction::Reverse, Direction::Forward),
        insert(translated(9), key(1))
    );
    assert_eq!(Err(InsertError::Mirrored), insert(key(3), key(3)));
    assert_eq!(1, table.len());
    assert_eq!(2, table.home.index.audit().entries);
}

#[test]
fn insert_of_keys_with_one_hash_fills_both_buckets_and_the_stash_then_is_refused() {
    let mut memory = memory(100);
    let mut table = FlowTable::new(&mut memory, 100).unwrap();
    let mut inserted = Vec::new();
    let refused = loop {
        let number = inserted.len() as u32;
        match table.insert(
            42 << 48 | 0x1234_5678,
            42 << 48 | 0x1234_5678,
            session(key(number), translated(number)),
        ) {
            Ok(index) => inserted.push(index),
            Err(refused) => break refused,
        }
    };
    assert_eq!(InsertError::Crowded, refused);
    assert_eq!((2 * 8 + index::STASH) / 2, inserted.len());
    for (number, &index) in (0..).zip(&inserted) {
        let hash = 42 << 48 | 0x1234_5678;
        assert_eq!(Some((index, Direction::Forward)), table.find(hash, &key(number)));
        assert_eq!(Some((index, Direction::Reverse)), table.find(hash, &translated(number)));
    }
    assert_eq!(2 * inserted.len(), table.home.index.audit().entries);
    for index in inserted {
        assert!(
            table
                .remove(index, 42 << 48 | 0x1234_5678, 42 << 48 | 0x1234_5678)
                .is_some()
        );
        table.home.index.audit();
    }
    assert_eq!(0, table.home.index.audit().entries);
}

#[test]
fn churn_at_full_load_keeps_marks_true_and_few_entries_away() {
    let (capacity, rounds) = if cfg!(miri) { (40, 100) } else { (10_000, 400_000) };
    let hasher = Hasher::new([3, 4]);
    let mut memory = memory(capacity);
    let mut table = full(&mut memory, capacity, &hasher);
    let mut random = 88_172_645_463_325_252_u64;
    for round in 0..rounds {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let index = RecordIndex((((random >> 32) * capacity as u64) >> 32) as u32);
        let (forward, reverse) = hashes(&hasher, table.get(index).unwrap());
        assert!(table.remove(index, forward, reverse).is_some());
        let record = session(key(capacity as u32 + round), translated(capacity as u32 + round));
        let (forward, reverse) = hashes(&hasher, &record);
        assert_eq!(Ok(index), table.insert(forward, reverse, record), "round {round}");
    }
    let audit = table.home.index.audit();
    assert_eq!(2 * capacity, audit.entries);
    if !cfg!(miri) {
        assert!(audit.displaced * 40 < audit.entries && audit.stashed == 0, "{audit:?}");
    }
    for index in (0..capacity as u32).map(RecordIndex) {
        let record = *table.get(index).unwrap();
        for direction in [Direction::Forward, Direction::Reverse] {
            let key = record.key(direction);
            assert_eq!(Some((index, direction)), table.find(hasher.one4(&key), &key));
        }
    }
}

#[test]
fn remove_with_a_wrong_hash_or_twice_changes_nothing() {
    let hasher = Hasher::new([5, 6]);
    let mut memory = memory(2);
    let mut table = full(&mut memory, 2, &hasher);
    let record = *table.get(RecordIndex(0)).unwrap();
    let (forward, reverse) = hashes(&hasher, &record);
    assert!(table.remove(RecordIndex(0), forward ^ 1 << 50, reverse).is_none());
    assert!(table.remove(RecordIndex(0), forward, reverse ^ 1 << 50).is_none());
    assert!(table.remove(RecordIndex(2), forward, reverse).is_none());
    assert_eq!((2, 4), (table.len(), table.home.index.audit().entries));
    assert_eq!(
        Some(record.keys),
        table.remove(RecordIndex(0), forward, reverse).map(|record| record.keys)
    );
    assert!(table.remove(RecordIndex(0), forward, reverse).is_none());
    assert_eq!((1, 2), (table.len(), table.home.index.audit().entries));
}

#[test]
fn scan_in_pieces_visits_every_record_in_use_once() {
    let hasher = Hasher::new([7, 8]);
    let mut memory = memory(30);
    let mut table = full(&mut memory, 30, &hasher);
    for number in (0..30).step_by(3) {
        let (forward, reverse) = hashes(&hasher, table.get(RecordIndex(number)).unwrap());
        table.remove(RecordIndex(number), forward, reverse).unwrap();
    }
    let expected: Vec<u32> = (0..30).filter(|number| number % 3 != 0).collect();
    for piece in [1, 7, 30, u32::MAX] {
        let (mut seen, mut cursor) = (Vec::new(), Some(0));
        while let Some(from) = cursor {
            cursor = table.scan(from, piece, |index, record| {
                assert_eq!(record.key(Direction::Forward), key(index.0));
                seen.push(index.0);
            });
        }
        assert_eq!(expected, seen);
    }
}

/// A hash with only a few variable bits, so that many keys have equal buckets or equal tags.
fn poor_hash(key: &FlowKey4) -> u64 {
    let tuple = key.tuple();
    let sum = u64::from(tuple.source ^ tuple.destination) ^ u64::from(tuple.source_port) << 3;
    (sum & 3) << 48 | (sum >> 1 & 7) << 29
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn table_under_any_operations_is_a_map_from_both_keys(
        capacity in 1usize..80,
        poor in any::<bool>(),
        steps in prop::collection::vec((0u8..4, 0u32..60, 0u32..60), 0..if cfg!(miri) { 60 } else { 600 }),
    ) {
        let hasher = Hasher::new([9, 10]);
        let hash = |key: &FlowKey4| if poor { poor_hash(key) } else { hasher.one4(key) };
        let mut memory = memory(capacity);
        let mut table = FlowTable::new(&mut memory, capacity).unwrap();
        let mut oracle: HashMap<FlowKey4, Found> = HashMap::new();
        let mut crowded = 0;
        for (action, a, b) in steps {
            // Take forward and reverse keys from one set, so that they collide.
            let (forward, reverse) = (key(a), key(b + 30));
            if action < 3 {
                let result = table.insert(hash(&forward), hash(&reverse), session(forward, reverse));
                let held = |which, key| oracle.get(key).map(|&(index, direction)| InsertError::Duplicate { which, index, direction });
                let expected = if forward == reverse {
                    Some(InsertError::Mirrored)
                } else {
                    held(Direction::Forward, &forward).or(held(Direction::Reverse, &reverse))
                        .or((oracle.len() == 2 * capacity).then_some(InsertError::Full))
                };
                match (result, expected) {
                    (Err(InsertError::Crowded), None) if poor => crowded += 1,
                    (Err(refused), expected) => prop_assert_eq!(expected, Some(refused)),
                    (Ok(index), expected) => {
                        prop_assert_eq!(expected, None);
                        prop_assert!(oracle.insert(forward, (index, Direction::Forward)).is_none());
                        prop_assert!(oracle.insert(reverse, (index, Direction::Reverse)).is_none());
                    }
                }
            } else if let Some(&(index, _)) = oracle.get(&forward) {
                let record = *table.get(index).unwrap();
                let keys = [record.key(Direction::Forward), record.key(Direction::Reverse)];
                prop_assert!(table.remove(index, hash(&keys[0]), hash(&keys[1])).is_some());
                for key in keys {
                    oracle.remove(&key);
                }
            }
            prop_assert_eq!(oracle.len(), table.home.index.audit().entries);
            prop_assert_eq!(oracle.len(), 2 * table.len());
        }
        prop_assert!(poor || crowded == 0);
        let keys: Vec<FlowKey4> = (0..100).map(key).collect();
        let hashes: Vec<u64> = keys.iter().map(hash).collect();
        let mut found = vec![None; keys.len()];
        table.find_batch(&hashes, &keys, &mut found);
        let expected: Vec<Option<Found>> = keys.iter().map(|key| oracle.get(key).copied()).collect();
        prop_assert_eq!(expected, found);
    }

    /// Two tables share a reserve. Each part is in at most one table, lookups find exactly the existing records, and at
    /// the end all parts are back in the reserve.
    #[test]
    fn tables_that_share_a_reserve_are_maps_and_have_its_parts_between_them(
        home in 1usize..20,
        parts in 1usize..5,
        each in 1usize..20,
        steps in prop::collection::vec((0usize..2, 0u8..4, 0u32..90), 0..if cfg!(miri) { 60 } else { 600 }),
    ) {
        let hasher = Hasher::new([9, 10]);
        let hash = |key: &FlowKey4| hasher.one4(key);
        let mut homes = [memory(home), memory(home)];
        let mut rest: Vec<_> = (0..parts).map(|_| memory(each)).collect();
        let reserve = Reserve::new(rest.iter_mut().map(|memory| Part::new(memory, each).unwrap()).collect()).map(Arc::new).unwrap();
        let mut tables = homes.each_mut().map(|memory| {
            let mut table = FlowTable::new(memory, home).unwrap();
            table.share(reserve.clone());
            table
        });
        let mut oracles: [HashMap<u32, RecordIndex>; 2] = [HashMap::new(), HashMap::new()];
        for (which, action, number) in steps {
            let taken = |table: &FlowTable<'_, Session>| table.further.len();
            let (table, oracle) = (&mut tables[which], &mut oracles[which]);
            let record = session(key(number), translated(number));
            let (forward, reverse) = hashes(&hasher, &record);
            if action > 0 {
                let had_capacity = table.has_capacity_for(1);
                match table.insert(forward, reverse, record) {
                    Ok(index) => {
                        prop_assert!(had_capacity);
                        prop_assert!(oracle.insert(number, index).is_none());
                    }
                    Err(InsertError::Duplicate { index, .. }) => prop_assert_eq!(oracle.get(&number), Some(&index)),
                    Err(refused) => {
                        prop_assert_eq!((InsertError::Full, false), (refused, had_capacity));
                        prop_assert_eq!(home + each * taken(table), oracle.len());
                    }
                }
            } else if let Some(index) = oracle.remove(&number) {
                prop_assert_eq!(key(number), table.get(index).unwrap().key(Direction::Forward));
                prop_assert!(table.remove(index, forward, reverse).is_some());
            }
            prop_assert_eq!(parts, reserve.available() + tables.iter().map(taken).sum::<usize>());
            for (table, oracle) in tables.iter_mut().zip(&oracles) {
                prop_assert_eq!(oracle.len(), table.len());
                for number in 0..90 {
                    let expected = oracle.get(&number);
                    let found = [key(number), translated(number)].map(|key| table.find(hash(&key), &key));
                    let both = [Direction::Forward, Direction::Reverse].map(|direction| expected.map(|&index| (index, direction)));
                    prop_assert_eq!(both, found);
                    if let Some(&index) = expected {
                        table.get_mut(index).unwrap().counters[0] += 1;
                    }
                }
                let (mut seen, mut cursor) = (Vec::new(), Some(0));
                while let Some(from) = cursor {
                    cursor = table.scan(from, 7, |index, _| seen.push(index));
                }
                let mut expected: Vec<_> = oracle.values().copied().collect();
                expected.sort();
                prop_assert_eq!(expected, seen);
            }
        }
        for (table, oracle) in tables.iter_mut().zip(&oracles) {
            for (&number, &index) in oracle {
                let (forward, reverse) = hashes(&hasher, &session(key(number), translated(number)));
                prop_assert!(table.remove(index, forward, reverse).is_some());
            }
            prop_assert_eq!((0, 0), (table.len(), table.further.len()));
        }
        prop_assert_eq!(parts, reserve.available());
    }
}

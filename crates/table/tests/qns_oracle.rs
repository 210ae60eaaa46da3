//! Tests of QNS against a list with linear search.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sluice_table::prefix::Address as _;
use sluice_table::qns::{Address, Key, Match, QnsError, QnsReader, QnsTable, Query, Value4, Value6};

/// Creates values of an address family from numbers.
trait Family: Address {
    fn says(number: u16) -> Self::Value;
}

impl Family for u32 {
    fn says(number: u16) -> Value4 {
        Value4 {
            word: u64::from(number) << 40 | 7,
            note: number % Value4::NOTES,
        }
    }
}

impl Family for u128 {
    fn says(number: u16) -> Value6 {
        Value6([number.into(), u64::MAX, u64::from(number) << 48])
    }
}

/// The most specific of all matching rules, by linear search.
fn linear<A: Family>(rules: &BTreeMap<Key<A>, u16>, query: &Query<A>) -> Option<Match<A::Value>> {
    let matching = rules.iter().filter(|(key, _)| {
        key.context == query.context
            && query.address.masked(key.length) == key.prefix
            && key.port.is_none_or(|port| Some(port) == query.port)
            && key.protocol.is_none_or(|protocol| protocol == query.protocol)
            && key.interface.is_none_or(|interface| interface == query.interface)
    });
    let specific = |key: &Key<A>| {
        (
            key.length,
            key.port.is_some(),
            key.protocol.is_some(),
            key.interface.is_some(),
        )
    };
    matching
        .max_by_key(|(key, _)| specific(key))
        .map(|(key, number)| Match {
            value: A::says(*number),
            length: key.length,
            port: key.port.is_some(),
        })
}

/// A modification of a rule. `Some` adds the rule with the value that has this number, or changes the rule to this
/// value; `None` removes the rule.
type Edit<A> = (Key<A>, Option<u16>);

fn key<A: Family>(address: impl Strategy<Value = A>) -> impl Strategy<Value = Key<A>> {
    let length =
        prop_oneof![4 => 0..=A::BITS, 1 => Just(0), 2 => Just(A::BITS), 2 => Just(24), 1 => Just(12), 1 => Just(16)];
    let port = prop::option::of(prop_oneof![Just(80u16), Just(443), Just(0)]);
    let protocol = prop::option::of(prop_oneof![Just(6u8), Just(17), Just(1)]);
    let interface = prop::option::weighted(0.3, 0u16..3);
    (
        prop_oneof![3 => Just(0u32), 1 => Just(9)],
        address,
        length,
        port,
        protocol,
        interface,
    )
        .prop_map(|(context, address, length, port, protocol, interface)| Key {
            context,
            prefix: address.masked(length),
            length,
            port,
            protocol,
            interface,
        })
}

fn edits<A: Family>(address: impl Strategy<Value = A>) -> impl Strategy<Value = Vec<Edit<A>>> {
    prop::collection::vec((key(address), prop::option::weighted(0.7, 0u16..9000)), 1..200)
}

fn query<A: Family>(address: impl Strategy<Value = A>) -> impl Strategy<Value = Query<A>> {
    let port = prop::option::weighted(0.8, prop_oneof![Just(80u16), Just(443), Just(0), Just(5)]);
    let protocol = prop_oneof![Just(6u8), Just(17), Just(1), Just(47)];
    (
        prop_oneof![3 => Just(0u32), 1 => Just(9)],
        address,
        port,
        protocol,
        0u16..4,
    )
        .prop_map(|(context, address, port, protocol, interface)| Query {
            context,
            address,
            port,
            protocol,
            interface,
        })
}

/// Addresses with few different byte values, so that prefixes share bits.
fn address4() -> impl Strategy<Value = u32> {
    prop::array::uniform4(prop_oneof![Just(0u8), Just(10), Just(128), Just(255)]).prop_map(u32::from_be_bytes)
}

fn address6() -> impl Strategy<Value = u128> {
    prop::array::uniform16(prop_oneof![6 => Just(0u8), 2 => Just(0x20), 1 => Just(255)]).prop_map(u128::from_be_bytes)
}

fn agrees<A: Family>(
    edits: &[Edit<A>],
    mut queries: Vec<Query<A>>,
    regions_from: [usize; 2],
    buckets: u32,
) -> Result<(), TestCaseError> {
    let mut table = QnsTable::with_thresholds([1, 2], regions_from, buckets);
    let reader = table.reader();
    let mut rules = BTreeMap::new();
    for (key, number) in edits {
        let before = rules.get(key).map(|number| A::says(*number));
        prop_assert_eq!(before, table.get(key));
        match number {
            Some(number) => {
                rules.insert(*key, *number);
                prop_assert_eq!(Ok(before), table.insert(key, A::says(*number)));
            }
            None => {
                rules.remove(key);
                prop_assert_eq!(before, table.remove(key));
            }
        }
        prop_assert_eq!(rules.len(), table.len());
        let own = Query {
            context: key.context,
            address: key.prefix,
            port: key.port,
            protocol: key.protocol.unwrap_or(47),
            interface: key.interface.unwrap_or(9),
        };
        prop_assert_eq!(linear(&rules, &own), reader.lookup(&own));
        queries.push(own);
    }
    let mut matches = vec![None; queries.len()];
    reader.lookup_batch(&queries, &mut matches);
    for (query, found) in queries.iter().zip(matches) {
        let expected = linear(&rules, query);
        prop_assert_eq!(expected, found);
        prop_assert_eq!(expected, reader.lookup(query));
        prop_assert_eq!(expected, reader.lookup_counted(query).0);
    }
    let all: Vec<_> = table.iter().collect();
    prop_assert_eq!(rules.len(), all.len());
    for (key, value) in all {
        prop_assert_eq!(rules.get(&key).map(|number| A::says(*number)), Some(value));
    }
    // The table is empty again: no query matches, and no bit of a bitmap is set.
    for key in rules.keys() {
        prop_assert!(table.remove(key).is_some());
    }
    prop_assert!(table.is_empty());
    for query in &queries {
        let (found, lines) = reader.lookup_counted(query);
        prop_assert_eq!(None, found);
        prop_assert!(lines <= 2, "{lines} lines");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ipv4_random_edits_agree_with_linear_search(
        edits in edits(address4()),
        queries in prop::collection::vec(query(address4()), 1..150),
        regions_from in [prop_oneof![0usize..30, Just(usize::MAX)], prop_oneof![0usize..60, Just(usize::MAX)]],
        buckets in 1u32..9,
    ) {
        agrees(&edits, queries, regions_from, buckets)?;
    }

    #[test]
    fn ipv6_random_edits_agree_with_linear_search(
        edits in edits(address6()),
        queries in prop::collection::vec(query(address6()), 1..150),
        buckets in 1u32..9,
    ) {
        agrees(&edits, queries, [0, 0], buckets)?;
    }
}

fn rule(number: u32) -> Key<u32> {
    Key {
        context: 0,
        prefix: number << 8,
        length: 24,
        port: None,
        protocol: None,
        interface: None,
    }
}

#[test]
fn rules_of_impossible_prefixes_are_refused() {
    let mut table = QnsTable::<u32>::new([0, 0]);
    let value = Value4::default();
    let long = Key { length: 33, ..rule(0) };
    assert_eq!(Err(QnsError::Length(33)), table.insert(&long, value));
    let host = Key { prefix: 1, ..rule(0) };
    assert_eq!(Err(QnsError::HostBits), table.insert(&host, value));
    assert_eq!((None, None), (table.remove(&long), table.get(&host)));
    assert!(table.is_empty());
}

#[test]
fn rules_of_one_prefix_and_port_are_bounded_and_the_rest_goes_on() {
    let mut table = QnsTable::<u32>::new([0, 0]);
    let mut accepted = BTreeSet::new();
    for interface in 0..3000 {
        let key = Key {
            interface: Some(interface),
            ..rule(1)
        };
        match table.insert(&key, Value4::default()) {
            Ok(None) => accepted.insert(interface),
            other => {
                assert_eq!(Err(QnsError::Crowded), other);
                continue;
            }
        };
    }
    assert!((1018..=1024).contains(&accepted.len()), "{}", accepted.len());
    let reader = table.reader();
    for interface in 0..3000 {
        let query = Query {
            address: 0x1ff,
            interface,
            ..Query::default()
        };
        assert_eq!(accepted.contains(&interface), reader.lookup(&query).is_some());
    }
    assert_eq!(Ok(None), table.insert(&rule(2), Value4::default()));
}

#[test]
#[cfg(not(miri))]
fn lines_of_rules_that_went_are_used_again() {
    let mut table = QnsTable::<u32>::new([3, 4]);
    for number in 0..20_000 {
        table.insert(&rule(number), Value4::default()).unwrap();
    }
    let bytes = table.bytes();
    for round in 1..5 {
        for number in 0..20_000 {
            table.insert(&rule(round * 20_000 + number), Value4::default()).unwrap();
            assert!(table.remove(&rule((round - 1) * 20_000 + number)).is_some());
        }
    }
    assert_eq!(20_000, table.len());
    assert!(table.bytes() <= bytes + bytes / 2, "{} of {bytes}", table.bytes());
}

/// Value of a rule in these tests: its prefix.
fn says(key: &Key<u32>) -> Value4 {
    Value4 {
        word: u64::from(key.prefix) << 16 | u64::from(key.length),
        note: 0,
    }
}

fn asked(reader: &QnsReader<u32>, from: &mut u32, seen: &mut u64) {
    let mut queries = [Query::default(); 64];
    for query in &mut queries {
        *from = from.wrapping_mul(0x9e37_79b9).wrapping_add(0x7f4a_7c15);
        query.address = 0x0a00_0000 | *from >> 12;
    }
    let mut matches = [None; 64];
    reader.lookup_batch(&queries, &mut matches);
    for (query, found) in queries.iter().zip(matches) {
        // The rule for 10.0.0.0/8 always exists. The value of every rule is its prefix.
        for found in [found, reader.lookup(query)] {
            let found: Match<Value4> = found.unwrap();
            let expected = u64::from(query.address.masked(found.length)) << 16 | u64::from(found.length);
            assert_eq!(expected, found.value.word);
            *seen += u64::from(found.length > 8);
        }
    }
}

#[test]
#[cfg(not(miri))]
fn lookups_during_changes_and_growth_see_old_or_new_rules() {
    let mut table = QnsTable::<u32>::with_thresholds([5, 6], [40, 500], 1);
    let all = Key {
        prefix: 0x0a00_0000,
        length: 8,
        ..rule(0)
    };
    table.insert(&all, says(&all)).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for from in 0..2 {
            let (reader, done) = (table.reader(), &done);
            scope.spawn(move || {
                let (mut from, mut seen) = (from, 0);
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    asked(&reader, &mut from, &mut seen);
                }
            });
        }
        let mut draw = 1u32;
        for round in 0..60_000u32 {
            draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let length = 9 + (draw >> 27) as u8 % 24;
            let key = Key {
                prefix: (0x0a00_0000 | draw >> 12 & 0xf_ffff).masked(length),
                length,
                ..rule(0)
            };
            // After half of the iterations, more rules are removed than added.
            if draw >> 10 & 3 < if round < 30_000 { 3 } else { 1 } {
                table.insert(&key, says(&key)).unwrap();
            } else {
                table.remove(&key);
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

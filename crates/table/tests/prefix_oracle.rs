//! Tests of prefix tables against a list with linear search.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use sluice_table::prefix::{Address, LongestMatch, NO_ROUTE, PrefixTable, Quiescence};

/// Model of a table: all routes in a list with linear search.
struct Linear<A>(BTreeMap<(A, u8), u32>);

impl<A: Address> Linear<A> {
    fn find(&self, address: A) -> Option<LongestMatch> {
        let matching = self
            .0
            .iter()
            .filter(|((prefix, length), _)| address.masked(*length) == *prefix);
        matching
            .max_by_key(|((_, length), _)| *length)
            .map(|(&(_, length), &value)| LongestMatch { value, length })
    }
}

#[derive(Clone, Debug)]
struct Edit<A> {
    prefix: A,
    length: u8,
    /// New value; `None` removes the route.
    value: Option<u32>,
}

fn edits<A: Address>(address: impl Strategy<Value = A>) -> impl Strategy<Value = Vec<Edit<A>>> {
    // Generate few different values and clustered lengths, so that routes nest, merge and are removed again.
    let length = prop_oneof![0..=A::BITS, Just(0), Just(A::BITS), Just(8), Just(16), Just(24)];
    let value = prop_oneof![3 => (0u32..4).prop_map(Some), 1 => Just(Some(0x7f_ffff)), 2 => Just(None)];
    let edit = (address, length, value).prop_map(|(address, length, value)| Edit {
        prefix: address.masked(length),
        length,
        value,
    });
    proptest::collection::vec(edit, 1..120)
}

/// Addresses with few different byte values, so that prefixes share bits.
fn address4() -> impl Strategy<Value = u32> {
    prop_oneof![
        proptest::array::uniform4(prop_oneof![Just(0u8), Just(1), Just(10), Just(128), Just(255)])
            .prop_map(u32::from_be_bytes),
        any::<u32>()
    ]
}

fn address6() -> impl Strategy<Value = u128> {
    proptest::array::uniform16(prop_oneof![6 => Just(0u8), 2 => Just(0x20), 1 => Just(255)])
        .prop_map(u128::from_be_bytes)
}

fn agrees<A: Address>(edits: Vec<Edit<A>>, probes: Vec<A>, front_from: usize) -> Result<(), TestCaseError> {
    let quiescence = Arc::new(Quiescence::new(1));
    let mut table = PrefixTable::with(quiescence.clone(), 1, front_from);
    let reader = table.reader();
    let mut linear = Linear(BTreeMap::new());
    quiescence.online(0);
    for edit in &edits {
        let (expected, old) = match edit.value {
            Some(value) => (
                linear.0.insert((edit.prefix, edit.length), value),
                table.insert(0, edit.prefix, edit.length, value).unwrap(),
            ),
            None => (
                linear.0.remove(&(edit.prefix, edit.length)),
                table.remove(0, edit.prefix, edit.length).unwrap(),
            ),
        };
        prop_assert_eq!(expected, old);
        prop_assert_eq!(linear.find(edit.prefix), reader.find(0, edit.prefix));
        quiescence.pass(0);
    }
    let mut probes = probes;
    probes.extend(edits.iter().map(|edit| edit.prefix));
    let mut values = vec![0; probes.len()];
    reader.lookup_batch(&vec![0; probes.len()], &probes, &mut values);
    for (probe, value) in probes.iter().zip(values) {
        let expected = linear.find(*probe);
        prop_assert_eq!(expected, reader.find(0, *probe));
        prop_assert_eq!(expected.map(|found| found.value), reader.lookup(0, *probe));
        prop_assert_eq!(expected.map_or(NO_ROUTE, |found| found.value), value);
    }
    let expected: Vec<_> = linear
        .0
        .iter()
        .map(|(&(prefix, length), &value)| (prefix, length, value))
        .collect();
    prop_assert_eq!(expected.len(), table.len(0));
    prop_assert_eq!(expected, table.iter(0).collect::<Vec<_>>());
    // The table is empty again: no address matches, and all blocks are free.
    for edit in &edits {
        table.remove(0, edit.prefix, edit.length).unwrap();
    }
    table.reclaim();
    quiescence.pass(0);
    table.reclaim();
    prop_assert_eq!(0, table.retired());
    for probe in &probes {
        prop_assert_eq!(None, reader.find(0, *probe));
    }
    Ok(())
}

proptest! {
    #[test]
    fn ipv4_random_edits_agree_with_linear_search(
        edits in edits(address4()),
        probes in proptest::collection::vec(address4(), 1..150),
        front_from in prop_oneof![Just(usize::MAX), 0usize..20],
    ) {
        agrees(edits, probes, front_from)?;
    }

    #[test]
    fn ipv6_random_edits_agree_with_linear_search(
        edits in edits(address6()),
        probes in proptest::collection::vec(address6(), 1..150),
        front_from in prop_oneof![8 => Just(usize::MAX), 1 => 0usize..20],
    ) {
        agrees(edits, probes, front_from)?;
    }
}

#[test]
fn refused_prefixes_change_nothing() {
    use sluice_table::prefix::{MAX_VALUE, PrefixError};
    let mut table = PrefixTable::<u32>::new(Arc::new(Quiescence::new(0)));
    assert_eq!(Err(PrefixError::Length(33)), table.insert(0, 0, 33, 1));
    assert_eq!(Err(PrefixError::HostBits), table.insert(0, 1, 31, 1));
    assert_eq!(
        Err(PrefixError::Value(MAX_VALUE + 1)),
        table.insert(0, 0, 0, MAX_VALUE + 1)
    );
    assert_eq!(Err(PrefixError::Length(255)), table.remove(0, 0, 255));
    assert!(table.is_empty(0));
    assert_eq!(None, table.lookup(0, 0));
}

#[test]
fn memory_under_lasting_change_stays_bounded() {
    let quiescence = Arc::new(Quiescence::new(1));
    let mut table = PrefixTable::<u32>::new(quiescence.clone());
    quiescence.online(0);
    let mut bytes = 0;
    for round in 0..40u32 {
        for route in 0..500u32 {
            let length = 16 + (route % 17) as u8;
            table
                .insert(0, (route.wrapping_mul(0x9e37_79b9)).masked(length), length, round)
                .unwrap();
        }
        for route in 0..500u32 {
            let length = 16 + (route % 17) as u8;
            table
                .remove(0, (route.wrapping_mul(0x9e37_79b9)).masked(length), length)
                .unwrap();
            quiescence.pass(0);
        }
        if round == 5 {
            bytes = table.bytes();
        }
    }
    assert_eq!(bytes, table.bytes());
}

#[test]
fn blocks_wait_for_a_reader_that_does_not_pass() {
    let quiescence = Arc::new(Quiescence::new(2));
    let mut table = PrefixTable::<u32>::new(quiescence.clone());
    quiescence.online(0);
    table.insert(0, 0x0a000000, 24, 1).unwrap();
    table.insert(0, 0x0a000100, 24, 2).unwrap();
    table.reclaim();
    let waiting = table.retired();
    assert!(waiting > 0);
    quiescence.offline(0);
    table.reclaim();
    assert_eq!(0, table.retired());
}

#[test]
fn lookups_during_changes_see_old_or_new_routes() {
    let quiescence = Arc::new(Quiescence::new(2));
    let mut table = PrefixTable::<u32>::with(quiescence.clone(), 1, 40);
    table.insert(0, 0x0a00_0000, 8, 1).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (view, quiescence, done) = (table.reader(), &quiescence, &done);
            scope.spawn(move || {
                quiescence.online(reader);
                let mut address = 0u32;
                while !done.load(std::sync::atomic::Ordering::Relaxed) {
                    for _ in 0..64 {
                        address = address.wrapping_mul(0x9e37_79b9).wrapping_add(0x7f4a_7c15);
                        let inside = 0x0a00_0000 | address >> 8;
                        // The value of a route longer than the default route is the third byte of its prefix plus 2.
                        let found = view.lookup(0, inside);
                        let own = (inside >> 8 & 0xff) + 2;
                        assert!(found == Some(1) || found == Some(own), "{inside:x}: {found:?}");
                    }
                    quiescence.pass(reader);
                }
                quiescence.offline(reader);
            });
        }
        let mut draw = 1u32;
        for _ in 0..20_000 {
            draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let length = 24 + (draw >> 28) as u8 % 9;
            let prefix = (0x0a00_0000 | (draw >> 4 & 0x3_ffff)).masked(length);
            if draw >> 27 & 1 == 0 {
                table.insert(0, prefix, length, (prefix >> 8 & 0xff) + 2).unwrap();
            } else {
                table.remove(0, prefix, length).unwrap();
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    table.reclaim();
    assert_eq!(0, table.retired());
}

#[test]
fn routes_of_one_router_are_no_others() {
    let quiescence = Arc::new(Quiescence::new(0));
    let mut table = PrefixTable::<u32>::with(quiescence, 300, 8);
    // Router 7 gets an array over the first 16 bits, and its adjacent routers get no such array. Router 9 has only a
    // default route.
    for net in 0..20u32 {
        table.insert(7, 0x0a00_0000 | net << 8, 24, net).unwrap();
    }
    table.insert(8, 0x0a00_0000, 8, 100).unwrap();
    table.insert(9, 0, 0, 200).unwrap();
    let reader = table.reader();
    let routers: Vec<_> = (0..150).map(|lane| [7, 8, 9, 10, 4095][lane % 5]).collect();
    let addresses: Vec<_> = (0..150u32).map(|lane| 0x0a00_0001 | (lane / 5) << 8).collect();
    let expected: Vec<_> = (0..150u32)
        .map(|lane| match (lane % 5, lane / 5) {
            (0, net @ 0..20) => net,
            (1, _) => 100,
            (2, _) => 200,
            _ => NO_ROUTE,
        })
        .collect();
    let mut values = vec![0; 150];
    reader.lookup_batch(&routers, &addresses, &mut values);
    assert_eq!(expected, values);
    let singly = routers.iter().zip(&addresses);
    let singly = singly.map(|(router, address)| reader.lookup(*router, *address).unwrap_or(NO_ROUTE));
    assert_eq!(expected, singly.collect::<Vec<_>>());
    assert_eq!([20, 1, 1, 0], [7, 8, 9, 10].map(|router| table.len(router)));
    assert!(table.insert(300, 0, 0, 1).is_err());
}

#[test]
fn cleared_router_gives_all_its_blocks_back() {
    let quiescence = Arc::new(Quiescence::new(1));
    let mut table = PrefixTable::<u32>::with(quiescence.clone(), 4, 8);
    table.insert(2, 0x0a00_0000, 8, 5).unwrap();
    let mut bytes = 0;
    for round in 0..10 {
        for net in 0..100u32 {
            table.insert(1, 0x0a00_0000 | net << 10, 25, net).unwrap();
        }
        table.insert(1, 0, 0, 100).unwrap();
        let mut gone = Vec::new();
        quiescence.online(0);
        table.clear(1, |value| gone.push(value));
        gone.sort();
        assert_eq!((0..=100).collect::<Vec<_>>(), gone);
        assert!(table.is_empty(1));
        assert_eq!(None, table.lookup(1, 0x0a00_0001));
        assert_eq!(Some(5), table.lookup(2, 0x0a00_0001));
        assert!(table.retired() > 0);
        quiescence.offline(0);
        table.reclaim();
        assert_eq!(0, table.retired());
        if round == 1 {
            bytes = table.bytes();
        }
    }
    assert_eq!(bytes, table.bytes());
}

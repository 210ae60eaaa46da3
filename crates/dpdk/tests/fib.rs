//! Tests of rte_fib against a comparison with each route.

use crate::support::on_each_memory;
use sluice_dpdk::fib::{Fib, FibError, NO_ROUTE};

/// A deterministic generator of pseudo-random numbers.
fn numbers() -> impl FnMut() -> u32 {
    let mut state = 0x2545_f491u32;
    move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state
    }
}

#[test]
fn fib_finds_the_longest_route_as_linear_search_does() {
    on_each_memory("fib_finds_the_longest_route_as_linear_search_does", |scenario| {
        let eal = scenario.eal(256 << 20);
        let mut fib = Fib::new(eal, 1_000, 1_000).unwrap_or_else(|error| panic!("{error}"));
        let mut draw = numbers();
        // Generate addresses that differ in only a few leading bits, so that routes overlap.
        let address = |draw: &mut dyn FnMut() -> u32| draw() & 0x03ff_ffff;
        let mut routes = Vec::new();
        for value in 0..500 {
            let length = 6 + (draw() % 27) as u8;
            let prefix = address(&mut draw) & (u32::MAX << (32 - length));
            fib.insert(prefix, length, value)
                .unwrap_or_else(|error| panic!("{error}"));
            routes.retain(|&(other, bits, _)| (other, bits) != (prefix, length));
            routes.push((prefix, length, value));
        }
        let near: Vec<u32> = routes.iter().map(|route| route.0).collect();
        let far = (0..3_000).map(|_| draw());
        let addresses: Vec<u32> = near.into_iter().chain(far).collect();
        let mut values = vec![0; addresses.len()];
        fib.lookup(&addresses, &mut values);
        for (address, value) in addresses.iter().zip(&values) {
            let matching = routes
                .iter()
                .filter(|(prefix, length, _)| address >> (32 - length) == prefix >> (32 - length));
            let longest = matching.max_by_key(|(_, length, _)| *length);
            assert_eq!(
                longest.map_or(NO_ROUTE, |route| u64::from(route.2)),
                *value,
                "{address:#010x}"
            );
        }
        assert!(values.contains(&NO_ROUTE));
        assert!(fib.bytes() > 64 << 20, "{} bytes", fib.bytes());
    });
}

#[test]
fn fib_refuses_impossible_routes_by_name() {
    on_each_memory("fib_refuses_impossible_routes_by_name", |scenario| {
        let eal = scenario.eal(256 << 20);
        let mut fib = Fib::new(eal, 10, 1).unwrap_or_else(|error| panic!("{error}"));
        let refused = fib.insert(0, 33, 1).expect_err("refused");
        assert!(matches!(refused, FibError::Route { length: 33, .. }), "{refused}");
    });
}

//! Measures nanoseconds per lookup, memory and load time of prefix tables with 1, 1,000 and 1,000,000 routes. For
//! comparison, measures this trie without its array over the first 16 bits, and a plain array over the first 24 bits
//! (the first level of DIR-24-8).

use std::sync::Arc;
use std::time::Instant;

use sluice_table::prefix::{Address, PrefixTable, Quiescence};

/// Number of lookups per measurement.
const LOOKUPS: usize = 1 << 22;

fn main() {
    println!(
        "{:<20}{:>9}{:>10}{:>10}{:>11}{:>12}{:>11}",
        "table", "routes", "ns/batch", "ns/single", "us/insert", "bytes", "per route"
    );
    for routes in [1, 1_000, 1_000_000] {
        for (name, front_from) in [("IPv4", 1000), ("IPv4, no array", usize::MAX)] {
            measure(name, front_from, routes, route4);
        }
        measure("IPv6", 1000, routes, route6);
        array_over_24_bits(routes);
    }
}

/// A random IPv4 route. Prefix lengths are distributed as in the Internet's routing table: mostly /24, and some from
/// /12 to /23. One route is the default route.
fn route4(draw: u64, routes: usize) -> (u32, u8) {
    let length = if draw % 10 < 6 { 24 } else { 12 + (draw >> 8) as u8 % 12 };
    ((draw >> 32) as u32, if routes == 1 { 0 } else { length })
}

/// A random IPv6 route in 2000::/3. Prefix lengths are distributed like allocations of registries: few /16, many /32,
/// and /48 for half of the routes.
fn route6(draw: u64, routes: usize) -> (u128, u8) {
    let length = if draw % 10 < 5 { 48 } else { 29 + (draw >> 8) as u8 % 20 };
    let high = 0x2001 + (draw >> 62) as u128 * 0x100;
    let low = (draw >> 12) as u128 & 0xffff_ffff_ffff;
    ((high << 112) | (low << 64), if routes == 1 { 0 } else { length })
}

/// Random numbers from splitmix64 with a fixed seed.
fn draws() -> impl FnMut() -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn loaded<A: Address>(
    front_from: usize,
    routes: usize,
    route: fn(u64, usize) -> (A, u8),
) -> (PrefixTable<A>, Vec<A>, f64) {
    let mut table = PrefixTable::with(Arc::new(Quiescence::new(1)), 1, front_from);
    let mut draw = draws();
    let begin = Instant::now();
    while table.len(0) < routes {
        let (address, length) = route(draw(), routes);
        table
            .insert(0, address.masked(length), length, table.len(0) as u32)
            .expect("a valid route");
    }
    let insert = begin.elapsed().as_secs_f64() * 1e6 / routes as f64;
    let addresses = (0..LOOKUPS).map(|_| route(draw(), routes).0).collect();
    (table, addresses, insert)
}

fn measure<A: Address>(name: &str, front_from: usize, routes: usize, route: fn(u64, usize) -> (A, u8)) {
    let (table, addresses, insert) = loaded(front_from, routes, route);
    let reader = table.reader();
    let mut values = [0u32; 64];
    let mut sum = 0u64;
    let batch = tenth_percentile(&addresses, |addresses| {
        for addresses in addresses.chunks_exact(64) {
            reader.lookup_batch(&[0; 64], addresses, &mut values);
            sum += values[0] as u64;
        }
    });
    let single = tenth_percentile(&addresses, |addresses| {
        for address in addresses {
            sum += reader.lookup(0, *address).unwrap_or(0) as u64;
        }
    });
    std::hint::black_box(sum);
    let (bytes, each) = (table.bytes(), table.bytes() as f64 / routes as f64);
    println!("{name:<20}{routes:>9}{batch:>10.2}{single:>10.2}{insert:>11.2}{bytes:>12}{each:>11.1}");
}

fn array_over_24_bits(routes: usize) {
    let (table, addresses, _) = loaded(1000, routes, route4);
    let array: Vec<u32> = (0..1u32 << 24)
        .map(|high| table.lookup(0, high << 8).unwrap_or(u32::MAX))
        .collect();
    let mut sum = 0u64;
    let single = tenth_percentile(&addresses, |addresses| {
        for address in addresses {
            sum += array[(*address >> 8) as usize] as u64;
        }
    });
    std::hint::black_box(sum);
    let (bytes, each) = (array.len() * 4, array.len() as f64 * 4.0 / routes as f64);
    println!(
        "{:<20}{routes:>9}{:>10}{single:>10.2}{:>11}{bytes:>12}{each:>11.1}",
        "IPv4, 24-bit array", "", ""
    );
}

/// Nanoseconds per lookup, measured in runs of 4,096 lookups. The result is the tenth percentile of the runs, so that
/// runs which other load has disturbed don't count.
fn tenth_percentile<A>(addresses: &[A], mut lookups: impl FnMut(&[A])) -> f64 {
    let mut figures: Vec<f64> = addresses
        .chunks_exact(4096)
        .map(|addresses| {
            let begin = Instant::now();
            lookups(addresses);
            begin.elapsed().as_secs_f64() * 1e9 / addresses.len() as f64
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 10]
}

//! Cycles per lookup, memory and load time of prefix tables: 1, 1,000 and 1,000,000 routes.

use std::sync::Arc;
use std::time::Instant;

use sluice_table::prefix::{Address, PrefixTable, Quiescence};

/// Lookups per figure.
const LOOKUPS: usize = 1 << 22;

fn main() {
    println!(
        "{:<6}{:>9}{:>12}{:>12}{:>12}{:>12}{:>11}",
        "family", "routes", "ns/batch", "ns/single", "insert us", "bytes", "per route"
    );
    for routes in [1, 1_000, 1_000_000] {
        // Lengths about as in the Internet's table: most are /24, the rest spread over /12 to /23.
        measure::<u32>(4, routes, |draw| {
            let length = if routes == 1 {
                0
            } else if draw % 10 < 6 {
                24
            } else {
                12 + (draw >> 8) as u8 % 12
            };
            ((draw >> 32) as u32, length)
        });
        measure::<u128>(6, routes, |draw| {
            let length = if routes == 1 {
                0
            } else if draw % 10 < 5 {
                48
            } else {
                29 + (draw >> 8) as u8 % 20
            };
            // 2000::/3, as the registries allot it: few /16, many /32.
            (
                0x2001u128 + (draw >> 60) as u128 % 4 * 0x100 << 112 | ((draw >> 12) as u128 & 0xffff_ffff_ffff) << 64,
                length,
            )
        });
    }
}

fn measure<A: Address>(family: u8, routes: usize, mut route: impl FnMut(u64) -> (A, u8)) {
    let quiescence = Arc::new(Quiescence::new(1));
    let mut table = PrefixTable::<A>::new(quiescence);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut draw = move || {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    };
    let begin = Instant::now();
    let mut addresses = Vec::with_capacity(LOOKUPS);
    while table.len() < routes {
        let (address, length) = route(draw());
        table
            .insert(address.masked(length), length, table.len() as u32)
            .expect("a valid route");
    }
    let insert = begin.elapsed().as_secs_f64() * 1e6 / routes as f64;
    while addresses.len() < LOOKUPS {
        addresses.push(route(draw()).0);
    }
    let reader = table.reader();
    let mut values = [0u32; 64];
    let (mut batch, mut single, mut sum) = (f64::MAX, f64::MAX, 0u64);
    for _ in 0..5 {
        let begin = Instant::now();
        for addresses in addresses.chunks_exact(64) {
            reader.lookup_batch(addresses, &mut values);
            sum += values[0] as u64;
        }
        batch = batch.min(begin.elapsed().as_secs_f64() * 1e9 / LOOKUPS as f64);
        let begin = Instant::now();
        for address in &addresses {
            sum += reader.lookup(*address).unwrap_or(0) as u64;
        }
        single = single.min(begin.elapsed().as_secs_f64() * 1e9 / LOOKUPS as f64);
    }
    std::hint::black_box(sum);
    let bytes = table.bytes();
    println!(
        "{family:<6}{routes:>9}{batch:>12.2}{single:>12.2}{insert:>12.2}{bytes:>12}{:>11.1}",
        bytes as f64 / routes as f64
    );
}

//! Lookups by one core in batches of 64, with random addresses within the routes.

use std::collections::HashSet;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use sluice_dpdk::eal::Eal;
use sluice_dpdk::fib::Fib;
use sluice_route::Address;
use sluice_table::prefix::{self, PrefixReader, PrefixTable, Quiescence};

use super::internet::{address_of, routes};
use super::{Failure, SEED};
use crate::rig::frames::Random;
use crate::rows::{Row, Run};

/// Number of distinct addresses, which are looked up cyclically: so many that the table entries for all of them do not
/// fit into the caches.
const ADDRESSES: usize = 1 << 20;
/// Number of addresses per batch.
pub const BATCH: usize = 64;

/// A full table of an address family, and addresses within its routes. If there is only one route, it is the default
/// route.
pub struct Filled<A> {
    pub table: PrefixTable<A>,
    /// Quiescence state with one registered reader.
    pub quiescence: Arc<Quiescence>,
    pub routes: Vec<(A, u8)>,
    pub addresses: Vec<A>,
    /// Number of routes inserted per second.
    pub rate: f64,
}

/// Converts an address to the integer that the IPv4 table uses.
pub fn number4(address: Address) -> u32 {
    match address {
        Address::V4(bits) => bits,
        Address::V6(_) => 0,
    }
}

pub fn number6(address: Address) -> u128 {
    match address {
        Address::V4(_) => 0,
        Address::V6(bits) => bits,
    }
}

/// Creates a table with `count` routes of router 0; each route has one of 64 values.
pub fn filled<A: prefix::Address>(count: usize, number: fn(Address) -> A) -> Result<Filled<A>, Failure> {
    let mut random = Random(SEED);
    let drawn = routes(A::BITS == 128, count, &mut random);
    let addresses = (0..ADDRESSES).map(|_| {
        let route = drawn[random.below(count as u64) as usize];
        number(address_of(route, &mut random))
    });
    let addresses: Vec<_> = addresses.collect();
    let routes: Vec<_> = match count {
        1 => vec![(A::from_high(0), 0)],
        _ => drawn
            .iter()
            .map(|route| (number(route.address()), route.length()))
            .collect(),
    };
    let quiescence = Arc::new(Quiescence::new(1));
    let mut table = PrefixTable::new(quiescence.clone());
    let begin = Instant::now();
    for (place, &(prefix, length)) in routes.iter().enumerate() {
        table.insert(0, prefix, length, place as u32 % 64)?;
    }
    let rate = routes.len() as f64 / begin.elapsed().as_secs_f64();
    Ok(Filled {
        table,
        quiescence,
        routes,
        addresses,
        rate,
    })
}

/// Lookups per second, measured over all addresses.
pub fn lookups<A: prefix::Address>(reader: &PrefixReader<A>, addresses: &[A]) -> f64 {
    let mut values = [0; BATCH];
    let begin = Instant::now();
    for addresses in addresses.chunks_exact(BATCH) {
        reader.lookup_batch(&[0; BATCH], addresses, &mut values);
        black_box(&values);
    }
    addresses.len() as f64 / begin.elapsed().as_secs_f64()
}

/// Measures the rows of both address families, and of rte_fib with the same IPv4 routes.
pub fn lookup(run: &mut Run<'_>, eal: &'static Eal, sizes: &[usize], runs: usize) -> Result<(), Failure> {
    for &size in sizes {
        let ours = filled(size, number4)?;
        beside(run, eal, &ours, runs)?;
        row(run, ours, runs);
        row(run, filled(size, number6)?, runs);
    }
    Ok(())
}

/// Measures rte_fib with the same routes and addresses, and compares the results of both tables.
fn beside(run: &mut Run<'_>, eal: &'static Eal, ours: &Filled<u32>, runs: usize) -> Result<(), Failure> {
    let long: HashSet<u32> = ours
        .routes
        .iter()
        .filter(|route| route.1 > 24)
        .map(|route| route.0 >> 8)
        .collect();
    let mut fib = Fib::new(eal, ours.routes.len() as u32 + 1, long.len() as u32 + 1)?;
    let begin = Instant::now();
    for (place, &(prefix, length)) in ours.routes.iter().enumerate() {
        fib.insert(prefix, length, place as u32 % 64)?;
    }
    let rate = ours.routes.len() as f64 / begin.elapsed().as_secs_f64();
    let reader = ours.table.reader();
    let (mut values, mut theirs) = ([0; BATCH], [0; BATCH]);
    for addresses in ours.addresses.chunks_exact(BATCH) {
        reader.lookup_batch(&[0; BATCH], addresses, &mut values);
        fib.lookup(addresses, &mut theirs);
        if values
            .iter()
            .zip(&theirs)
            .any(|(&ours, &theirs)| u64::from(ours) != theirs)
        {
            return Err("rte_fib and the table find different routes".into());
        }
    }
    let rates = (0..runs).map(|_| {
        let begin = Instant::now();
        for addresses in ours.addresses.chunks_exact(BATCH) {
            fib.lookup(addresses, &mut theirs);
            black_box(&theirs);
        }
        ours.addresses.len() as f64 / begin.elapsed().as_secs_f64()
    });
    let rates: Vec<_> = rates.collect();
    let row = Row::new("lookup")
        .key("fib", "rte_fib")
        .key("family", 4)
        .key("routes", ours.routes.len())
        .figure("lookups_per_s", &rates)
        .figure("routes_per_s", &[rate])
        .figure("memory_kb", &[fib.bytes() as f64 / 1024.0]);
    (run.row)(row);
    Ok(())
}

fn row<A: prefix::Address>(run: &mut Run<'_>, filled: Filled<A>, runs: usize) {
    let reader = filled.table.reader();
    let rates: Vec<_> = (0..runs).map(|_| lookups(&reader, &filled.addresses)).collect();
    let row = Row::new("lookup")
        .key("fib", "ours")
        .key("family", if A::BITS == 32 { 4 } else { 6 })
        .key("routes", filled.routes.len())
        .figure("lookups_per_s", &rates)
        .figure("routes_per_s", &[filled.rate])
        .figure("memory_kb", &[filled.table.bytes() as f64 / 1024.0]);
    (run.row)(row);
}

//! Measures how long one change of a full routing table takes, first without readers, then while another core looks up
//! addresses. Also measures how much the changes slow down these lookups.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sluice_table::prefix::{Address, PrefixTable, Quiescence};

fn main() {
    measure::<u32>("IPv4", 1_000_000, |draw| {
        // The distribution of prefix lengths is similar to that of the Internet's routing table.
        let length = match draw % 1000 {
            0..600 => 24,
            600..700 => 23,
            700..810 => 22,
            810..860 => 21,
            860..905 => 20,
            905..930 => 19,
            930..945 => 18,
            945..953 => 17,
            953..967 => 16,
            967..970 => 8 + (draw >> 20) as u8 % 8,
            _ => 25 + (draw >> 20) as u8 % 8,
        };
        ((draw >> 32) as u32, length)
    });
    measure::<u128>("IPv6", 200_000, |draw| {
        let length = if draw % 10 < 5 { 48 } else { 29 + (draw >> 8) as u8 % 20 };
        let high = 0x2001 + (draw >> 62) as u128 * 0x100;
        ((high << 112) | ((draw >> 12) as u128 & 0xffff_ffff_ffff) << 64, length)
    });
}

fn draws() -> impl FnMut() -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn measure<A: Address>(name: &str, routes: usize, route: fn(u64) -> (A, u8)) {
    let quiescence = Arc::new(Quiescence::new(1));
    let mut table = PrefixTable::<A>::new(quiescence.clone());
    let mut draw = draws();
    let mut list = Vec::new();
    let begin = Instant::now();
    while table.len(0) < routes {
        let (address, length) = route(draw());
        list.push((address.masked(length), length));
        table
            .insert(0, address.masked(length), length, draw() as u32 % 64)
            .unwrap();
    }
    let load = begin.elapsed().as_nanos() as f64 / routes as f64;
    println!(
        "{name}: load {load:.0} ns, blocks {} KiB, lists {} KiB",
        table.bytes() >> 10,
        table.list_bytes() >> 10
    );
    let addresses: Vec<_> = (0..1 << 20).map(|_| route(draw()).0).collect();
    let mut changes = |table: &mut PrefixTable<A>, time: Duration| {
        let (begin, mut count) = (Instant::now(), 0);
        while begin.elapsed() < time {
            for _ in 0..256 {
                let number = draw();
                let (prefix, length) = list[(number >> 32) as usize % list.len()];
                match number % 3 {
                    0 => table.remove(0, prefix, length).unwrap(),
                    _ => table.insert(0, prefix, length, (number >> 8) as u32 % 64).unwrap(),
                };
            }
            count += 256;
        }
        count as f64 / begin.elapsed().as_secs_f64()
    };
    println!(
        "  alone: {:.2} M changes/s",
        changes(&mut table, Duration::from_secs(1)) / 1e6
    );
    let (done, lookups) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (reader, quiescence, done, lookups) = (table.reader(), &quiescence, &done, &lookups);
        let addresses = &addresses;
        scope.spawn(move || {
            quiescence.online(0);
            let mut values = [0; 64];
            while !done.load(Ordering::Relaxed) {
                for addresses in addresses.chunks_exact(64) {
                    reader.lookup_batch(&[0; 64], addresses, &mut values);
                    quiescence.pass(0);
                    lookups.fetch_add(64, Ordering::Relaxed);
                }
            }
            quiescence.offline(0);
        });
        let rate = |time: Duration, work: &mut dyn FnMut()| {
            let (begin, before) = (Instant::now(), lookups.load(Ordering::Relaxed));
            while begin.elapsed() < time {
                work();
            }
            (lookups.load(Ordering::Relaxed) - before) as f64 / begin.elapsed().as_secs_f64() / 1e6
        };
        for _ in 0..3 {
            let quiet = rate(Duration::from_millis(500), &mut || {
                std::thread::sleep(Duration::from_millis(10))
            });
            let mut changed = 0.0;
            let busy = rate(Duration::from_millis(500), &mut || {
                changed = changes(&mut table, Duration::from_millis(490))
            });
            println!(
                "  lookups {quiet:.1} M/s alone, {busy:.1} M/s beside {:.2} M changes/s",
                changed / 1e6
            );
        }
        done.store(true, Ordering::Relaxed);
    });
}

//! Changes of full routing tables by the control thread: random routes are inserted, replaced and removed, with equal
//! shares.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sluice_table::prefix::{self, PrefixTable, Quiescence, RouterIndex};

use super::lookup::{BATCH, Filled, filled, number4, number6};
use super::{Failure, SEED, internet};
use crate::rig::frames::Random;
use crate::rows::{Row, Run};

/// Duration of each measurement.
const TIME: Duration = Duration::from_millis(400);
/// Number of changes that are generated before the measurement, and then made in order.
const CHANGES: usize = 1 << 16;

/// A route and its new value; `None` removes it.
type Change<A> = (A, u8, Option<u32>);

/// Measures the rows of both address families, and of a thousand routers.
pub fn load(run: &mut Run<'_>, runs: usize) -> Result<(), Failure> {
    let [four, six] = if run.quick {
        [100_000, 20_000]
    } else {
        [1_000_000, 200_000]
    };
    row(run, filled(four, number4)?, runs)?;
    row(run, filled(six, number6)?, runs)?;
    routers(run)
}

fn changed<A: prefix::Address>(filled: &mut Filled<A>, random: &mut Random) -> Result<f64, Failure> {
    let drawn = (0..CHANGES).map(|_| {
        let (prefix, length) = filled.routes[random.below(filled.routes.len() as u64) as usize];
        let value = (random.below(3) > 0).then(|| random.below(64));
        (prefix, length, value)
    });
    let drawn: Vec<Change<A>> = drawn.collect();
    let (begin, mut count) = (Instant::now(), 0);
    // Each repetition of the list makes different changes: values differ, and odd repetitions insert the routes that
    // even repetitions remove.
    for round in 0u32.. {
        for part in drawn.chunks(256) {
            for &(prefix, length, value) in part {
                match value {
                    Some(value) => filled.table.insert(0, prefix, length, (value + round) % 64)?,
                    None if round % 2 == 0 => filled.table.remove(0, prefix, length)?,
                    None => filled.table.insert(0, prefix, length, round % 64)?,
                };
            }
            count += part.len();
            if begin.elapsed() >= TIME {
                return Ok(count as f64 / begin.elapsed().as_secs_f64());
            }
        }
    }
    Ok(0.0)
}

fn row<A: prefix::Address>(run: &mut Run<'_>, mut filled: Filled<A>, runs: usize) -> Result<(), Failure> {
    let mut random = Random(SEED);
    let kilobytes = (filled.table.bytes() + filled.table.list_bytes()) as f64 / 1024.0;
    let [mut alone, mut beside, mut quiet, mut busy] = [(); 4].map(|()| Vec::new());
    for _ in 0..runs {
        alone.push(changed(&mut filled, &mut random)?);
    }
    let (done, looked) = (AtomicBool::new(false), AtomicU64::new(0));
    let (reader, quiescence, addresses) = (
        filled.table.reader(),
        filled.quiescence.clone(),
        filled.addresses.clone(),
    );
    std::thread::scope(|scope| -> Result<(), Failure> {
        let (done, looked) = (&done, &looked);
        scope.spawn(move || {
            let mut values = [0; BATCH];
            quiescence.online(0);
            for addresses in addresses.chunks_exact(BATCH).cycle() {
                reader.lookup_batch(&[0; BATCH], addresses, &mut values);
                black_box(&values);
                quiescence.pass(0);
                looked.fetch_add(BATCH as u64, Ordering::Relaxed);
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
            quiescence.offline(0);
        });
        let mut measure = || -> Result<(), Failure> {
            for _ in 0..runs {
                let (begin, before) = (Instant::now(), looked.load(Ordering::Relaxed));
                std::thread::sleep(TIME);
                let rate = |begin: Instant, before| {
                    (looked.load(Ordering::Relaxed) - before) as f64 / begin.elapsed().as_secs_f64()
                };
                quiet.push(rate(begin, before));
                let (begin, before) = (Instant::now(), looked.load(Ordering::Relaxed));
                beside.push(changed(&mut filled, &mut random)?);
                busy.push(rate(begin, before));
            }
            Ok(())
        };
        let measured = measure();
        done.store(true, Ordering::Relaxed);
        measured
    })?;
    let row = |updates, changes: &[f64], lookups: &[f64]| {
        Row::new("load")
            .key("family", if A::BITS == 32 { 4 } else { 6 })
            .key("routers", 1)
            .key("routes", filled.routes.len())
            .key("cores", updates)
            .figure("routes_per_s", changes)
            .figure("lookups_per_s", lookups)
            .figure("lookups_per_s_without_changes", &quiet)
            .figure("loaded_per_s", &[filled.rate])
            .figure("memory_kb", &[kilobytes])
    };
    (run.row)(row(1, &alone, &[]));
    (run.row)(row(2, &beside, &busy));
    Ok(())
}

/// Measures the memory of many routers with a thousand routes each.
fn routers(run: &mut Run<'_>) -> Result<(), Failure> {
    let routers: RouterIndex = if run.quick { 100 } else { 1_000 };
    let mut table = PrefixTable::<u32>::new(Arc::new(Quiescence::new(0)));
    let mut random = Random(SEED);
    let mut spent = Duration::ZERO;
    for router in 0..routers {
        let routes = internet::routes(false, 1_000, &mut random);
        let begin = Instant::now();
        for (place, route) in routes.iter().enumerate() {
            table.insert(router, number4(route.address()), route.length(), place as u32 % 64)?;
        }
        spent += begin.elapsed();
    }
    let row = Row::new("load")
        .key("family", 4)
        .key("routers", routers)
        .key("routes", 1_000)
        .key("cores", 1)
        .figure("loaded_per_s", &[1_000.0 * f64::from(routers) / spent.as_secs_f64()])
        .figure("memory_kb", &[(table.bytes() + table.list_bytes()) as f64 / 1024.0]);
    (run.row)(row);
    Ok(())
}

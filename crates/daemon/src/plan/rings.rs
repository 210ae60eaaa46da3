//! Measures the cost of a hand-over between two cores: the transfer of bursts through a ring, and the cache misses on
//! the packets.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rtrb::{Consumer, Producer, RingBuffer};
use sluice_dpdk::tsc;
use sluice_engine::placement::{Core, HandOver};
use sluice_table::prefetch::{prefetch_read, prefetch_write};

use super::pin::pin;

/// Packets per burst.
const BURST: usize = 32;

/// Number of bursts. The result is the median over the bursts.
const BURSTS: usize = 2_000;

/// Capacity of the ring.
const PLACES: usize = 512;

/// Maximum duration of the measurement of one pair of cores.
const PATIENCE: Duration = Duration::from_millis(500);

/// Contents of a ring entry: buffer pointer, buffer capacity, data window and metadata.
type Entry = [u64; 6];

/// Cache lines of a packet that the receiving worker reads: the lines of the buffer and of the headers.
#[derive(Default)]
#[repr(align(128))]
struct Lines([AtomicU64; 16]);

/// Cycles per packet of a hand-over between two cores. `None` if the thread can't be pinned or the cores are busy.
pub fn measure(from: Core, to: Core) -> Option<HandOver> {
    let (producer, consumer) = RingBuffer::new(PLACES);
    let packets: Vec<Lines> = (0..2 * PLACES).map(|_| Lines::default()).collect();
    let over = AtomicBool::new(false);
    let (out, take) = std::thread::scope(|scope| {
        let consumer_thread = scope.spawn(|| pin(to).ok().map(|()| consumed(consumer, &packets, &over)));
        let producer_thread = scope.spawn(|| pin(from).ok().map(|()| produced(producer, &packets, &over)));
        let out = producer_thread.join().ok().flatten();
        over.store(true, Ordering::Relaxed);
        (out, consumer_thread.join().ok().flatten())
    });
    Some(HandOver {
        out: median(out?)?,
        take: median(take?)?,
    })
}

fn median(mut bursts: Vec<u64>) -> Option<f64> {
    bursts.sort_unstable();
    let enough = bursts.len() >= BURSTS / 20;
    enough.then(|| bursts[bursts.len() / 2] as f64 / BURST as f64)
}

/// Returns the cycles of each burst that is written to the ring.
fn produced(mut ring: Producer<Entry>, packets: &[Lines], over: &AtomicBool) -> Vec<u64> {
    let (mut bursts, mut next) = (Vec::with_capacity(BURSTS), 0);
    let started_at = Instant::now();
    while bursts.len() < BURSTS && started_at.elapsed() < PATIENCE && !over.load(Ordering::Relaxed) {
        if ring.slots() < BURST {
            std::thread::yield_now();
            continue;
        }
        // Write to the packets' cache lines, as a worker does before a hand-over.
        for place in 0..BURST {
            let lines = &packets[(next + place) % packets.len()].0;
            lines[0].store(next as u64, Ordering::Relaxed);
            lines[8].store(next as u64, Ordering::Relaxed);
        }
        let start = tsc::now();
        if let Ok(chunk) = ring.write_chunk_uninit(BURST) {
            chunk.fill_from_iter((next..next + BURST).map(|packet| [(packet % packets.len()) as u64; 6]));
        }
        bursts.push(tsc::now() - start);
        next += BURST;
    }
    bursts
}

/// Returns the cycles of each burst that is read from the ring.
fn consumed(mut ring: Consumer<Entry>, packets: &[Lines], over: &AtomicBool) -> Vec<u64> {
    let mut bursts = Vec::with_capacity(BURSTS);
    while !over.load(Ordering::Relaxed) {
        if ring.slots() < BURST {
            std::thread::yield_now();
            continue;
        }
        let start = tsc::now();
        let mut sum = 0;
        if let Ok(chunk) = ring.read_chunk(BURST) {
            let (first, second) = chunk.as_slices();
            for entry in first.iter().chain(second) {
                let lines = &packets[entry[0] as usize % packets.len()].0;
                prefetch_write(&lines[0]);
                prefetch_read(&lines[8]);
            }
            for entry in chunk {
                // Read the headers now. The cache line of the buffer is written later.
                let lines = &packets[entry[0] as usize % packets.len()].0;
                sum += lines[8].load(Ordering::Relaxed) + entry[5];
                lines[0].store(sum, Ordering::Relaxed);
            }
        }
        black_box(sum);
        bursts.push(tsc::now() - start);
    }
    bursts
}

//! The theoretical limit: find an established flow and rewrite its packet, without any other work.
//!
//! Hash function, buckets, batch size and rewrite are those of the stand-alone reference probe. The source writes
//! headers of randomly drawn flows; its cost is measured separately and subtracted.

use sluice_dpdk::memory::Region;
use sluice_dpdk::tsc;
use sluice_table::hash::Hasher;
use sluice_table::prefetch::{prefetch_read_at, prefetch_write};
use sluice_wire::Tuple4;

use crate::rig::BUFFERS;
use crate::rig::frames::{Hosts, Random, SEED, ends};
use crate::rows::Failure;

const BATCH: usize = 32;
const FRAME: usize = 2048;
/// Offset of the Ethernet header: the headroom of an mbuf.
const HEADER: usize = 128;

/// A bucket with eight entries: one cache line of tags and indexes.
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Bucket {
    tags: [u16; 8],
    sessions: [u32; 8],
    used: u32,
    spare: [u32; 3],
}

/// A session: one cache line with key, rewrite and counters.
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Session {
    key: [u32; 4],
    outside_address: u32,
    outside_port: u16,
    l3_delta: u16,
    l4_delta: u16,
    spare: u16,
    last_seen: u32,
    packets: u64,
    bytes: u64,
    more: [u64; 2],
}

/// Table and buffers of the probe, in the caller's memory.
pub struct Probe<'m> {
    buckets: &'m mut [Bucket],
    sessions: &'m mut [Session],
    frames: &'m mut [[u8; FRAME]],
    hasher: Hasher,
    random: Random,
    count: u32,
}

/// Number of buffers of a probe: as many as a source has, rounded down to whole batches.
const PROBE_BUFFERS: usize = BUFFERS as usize / BATCH * BATCH;

/// Allocates memory for a probe with `count` sessions.
pub fn memory(count: usize) -> Result<Region, Failure> {
    Ok(Region::new(
        (buckets(count) + count) * 64 + (PROBE_BUFFERS + BATCH) * FRAME,
    )?)
}

fn buckets(count: usize) -> usize {
    (count / 3).next_power_of_two().max(64)
}

/// The key of a flow, with its protocol in place of the context.
fn key(number: u32) -> Tuple4 {
    let e = ends(Hosts::Sixteen, number);
    Tuple4 {
        source: e.inside.0,
        destination: e.remote.0,
        source_port: e.inside.1,
        destination_port: e.remote.1,
        context: 6,
    }
}

/// The hash of a key.
fn hash(hasher: &Hasher, key: &Tuple4) -> u64 {
    let mut out = [0];
    hasher.blocks(&[bytemuck::cast(*key)], &mut out);
    out[0]
}

fn words_of(key: &Tuple4) -> [u32; 4] {
    bytemuck::cast(*key)
}

fn fold(x: u32) -> u16 {
    let x = (x & 0xffff) + (x >> 16);
    ((x & 0xffff) + (x >> 16)) as u16
}

impl<'m> Probe<'m> {
    /// Creates a probe whose table contains all sessions.
    pub fn new(memory: &'m mut Region, count: usize) -> Self {
        let memory: &mut [u64] = bytemuck::cast_slice_mut(memory.lines());
        let (table, rest) = memory.split_at_mut(buckets(count) * 8);
        let (sessions, frames) = rest.split_at_mut(count * 8);
        let frames = &mut frames[..(PROBE_BUFFERS + BATCH) * FRAME / 8];
        let probe = Self {
            buckets: bytemuck::cast_slice_mut(table),
            sessions: bytemuck::cast_slice_mut(sessions),
            frames: bytemuck::cast_slice_mut(frames),
            hasher: Hasher::new([0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344]),
            random: Random(SEED),
            count: count as u32,
        };
        probe.buckets.fill(Bucket::default());
        let mask = probe.buckets.len() - 1;
        for number in 0..count as u32 {
            let key = key(number);
            let hash = hash(&probe.hasher, &key);
            probe.sessions[number as usize] = Session {
                key: words_of(&key),
                outside_address: 0xcb00_7100 | number & 0xff,
                outside_port: (1024 + number % 60_000) as u16,
                ..Session::default()
            };
            let bucket = &mut probe.buckets[hash as usize & mask];
            if let Some(place) = bucket.sessions.get_mut(bucket.used as usize) {
                *place = number;
                bucket.tags[bucket.used as usize] = (hash >> 48) as u16 | 1;
                bucket.used += 1;
            }
        }
        probe
    }

    /// Cycles per packet over `batches` batches, separately for the source and for the rest of the loop.
    pub fn cost(&mut self, batches: usize) -> [f64; 2] {
        let start = tsc::now();
        self.run(batches, false);
        let alone = (tsc::now() - start) as f64;
        let start = tsc::now();
        let translated = self.run(batches, true);
        let both = (tsc::now() - start) as f64;
        [alone / (batches * BATCH) as f64, (both - alone) / translated as f64]
    }

    /// Generates `batches` batches. If `path` is set, each batch is translated after half of the buffers were written.
    /// Returns the number of translated packets.
    pub fn run(&mut self, batches: usize, path: bool) -> u64 {
        let buffers = (self.frames.len() - BATCH) / BATCH;
        let lag = buffers / 2;
        let mut translated = 0;
        for batch in 0..batches {
            self.draw(batch % buffers * BATCH);
            if path && batch >= lag {
                translated += self.translate((batch - lag) % buffers * BATCH, batch as u32);
            }
        }
        translated
    }

    #[inline(always)]
    fn draw(&mut self, first: usize) {
        for frame in &mut self.frames[first..first + BATCH] {
            let k = words_of(&key(self.random.below(self.count.into())));
            let Some(p) = frame[HEADER..].first_chunk_mut::<64>() else {
                continue;
            };
            p[14] = 0x45;
            p[23] = 6;
            p[26..30].copy_from_slice(&k[0].to_be_bytes());
            p[30..34].copy_from_slice(&k[1].to_be_bytes());
            p[34..36].copy_from_slice(&(k[2] as u16).to_be_bytes());
            p[36..38].copy_from_slice(&((k[2] >> 16) as u16).to_be_bytes());
        }
    }

    /// Three passes over the batch: parse, hash and prefetch; match tags and prefetch; compare and rewrite.
    #[inline(always)]
    fn translate(&mut self, first: usize, now: u32) -> u64 {
        let mask = self.buckets.len() - 1;
        let mut keys = [Tuple4::default(); BATCH];
        let mut hashes = [0u64; BATCH];
        let mut found = [u32::MAX; BATCH];
        for (i, (key, hash)) in keys.iter_mut().zip(&mut hashes).enumerate() {
            if let Some(ahead) = self.frames.get_mut(first + i + BATCH) {
                prefetch_write(&ahead[HEADER]);
            }
            let Some(p) = self.frames[first + i][HEADER..].first_chunk::<64>() else {
                continue;
            };
            if p[14] != 0x45 {
                continue;
            }
            *key = Tuple4 {
                source: u32::from_be_bytes([p[26], p[27], p[28], p[29]]),
                destination: u32::from_be_bytes([p[30], p[31], p[32], p[33]]),
                source_port: u16::from_be_bytes([p[34], p[35]]),
                destination_port: u16::from_be_bytes([p[36], p[37]]),
                context: p[23].into(),
            };
            *hash = self::hash(&self.hasher, key);
            prefetch_read_at(self.buckets, *hash as usize & mask);
        }
        for (hash, found) in hashes.iter().zip(&mut found) {
            let bucket = &self.buckets[*hash as usize & mask];
            let tag = (hash >> 48) as u16 | 1;
            let hits = sluice_table::simd::tags::equal(bucket.tags, tag);
            if !hits.is_empty() {
                *found = bucket.sessions[hits.first() & 7];
                prefetch_read_at(self.sessions, *found as usize);
            }
        }
        let mut translated = 0;
        for i in 0..BATCH {
            let Some(s) = self.sessions.get_mut(found[i] as usize) else {
                continue;
            };
            if s.key != words_of(&keys[i]) {
                continue;
            }
            let Some(p) = self.frames[first + i][HEADER..].first_chunk_mut::<64>() else {
                continue;
            };
            for (at, delta) in [(24, s.l3_delta), (50, s.l4_delta)] {
                let sum = u16::from_be_bytes([p[at], p[at + 1]]);
                let new = !fold(u32::from(!sum) + u32::from(delta));
                p[at..at + 2].copy_from_slice(&new.to_be_bytes());
            }
            p[26..30].copy_from_slice(&s.outside_address.to_be_bytes());
            p[34..36].copy_from_slice(&s.outside_port.to_be_bytes());
            p[..8].copy_from_slice(&0x1122_3344_5566_7788u64.to_le_bytes());
            p[8..12].copy_from_slice(&0x99aa_bbccu32.to_le_bytes());
            s.packets += 1;
            s.bytes += 64;
            s.last_seen = now;
            translated += 1;
        }
        translated
    }
}

//! Flows chosen so that linear hashes can't tell them apart: the flow table spreads them as any others.
//!
//! CRC32 and Toeplitz are linear: keys whose difference is in the kernel collide whatever the initial value, and one
//! set of them serves every installation. The kernel is found by elimination, for both hashes at once.

#![cfg(not(miri))]

use bytemuck::{Pod, Zeroable};
use sluice_table::flow::{FlowTable, Links, Record};
use sluice_table::hash::Hasher;
use sluice_table::memory::Line;
use sluice_wire::key::{Direction, FlowKey4, FlowKey6, Tuple4, Tuple6};
use std::collections::HashSet;

/// The key that Microsoft's RSS specification verifies with, long enough for 36 bytes of input.
const TOEPLITZ_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

fn toeplitz(bytes: &[u8]) -> u32 {
    let window = |bit: usize| {
        (0..32).fold(0, |word, k| {
            word << 1 | u32::from(TOEPLITZ_KEY[(bit + k) / 8] >> (7 - (bit + k) % 8) & 1)
        })
    };
    let set = (0..bytes.len() * 8).filter(|bit| bytes[bit / 8] >> (7 - bit % 8) & 1 != 0);
    set.fold(0, |hash, bit| hash ^ window(bit))
}

/// CRC-32C, as the instruction of x86-64 computes it.
fn crc32(bytes: &[u8], initial: u32) -> u32 {
    bytes.iter().fold(initial, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ (0x82f6_3b78 & (crc & 1).wrapping_neg())
        })
    })
}

/// Differences of `length` bytes that neither hash sees: a basis.
fn unseen_differences(length: usize) -> Vec<Vec<u8>> {
    let mut pivots: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut kernel = Vec::new();
    for bit in 0..length * 8 {
        let mut difference = vec![0; length];
        difference[bit / 8] = 1 << (bit % 8);
        let mut image = u64::from(crc32(&difference, 0)) << 32 | u64::from(toeplitz(&difference));
        for (pivot, of) in &pivots {
            if image ^ pivot < image {
                image ^= pivot;
                difference.iter_mut().zip(of).for_each(|(byte, other)| *byte ^= other);
            }
        }
        if image == 0 {
            kernel.push(difference);
        } else {
            pivots.push((image, difference));
            pivots.sort_by_key(|(image, _)| std::cmp::Reverse(*image));
        }
    }
    kernel
}

/// `count` inputs of `length` bytes with one CRC32 and one Toeplitz hash.
fn colliding(length: usize, count: usize) -> Vec<Vec<u8>> {
    let basis = unseen_differences(length);
    let base: Vec<u8> = (0..length as u8).map(|k| k.wrapping_mul(37).wrapping_add(10)).collect();
    let inputs: Vec<Vec<u8>> = (0..count)
        .map(|number| {
            let chosen = basis.iter().take(16).enumerate().filter(|(k, _)| number >> k & 1 != 0);
            chosen.fold(base.clone(), |mut input, (_, difference)| {
                input
                    .iter_mut()
                    .zip(difference)
                    .for_each(|(byte, other)| *byte ^= other);
                input
            })
        })
        .collect();
    let seen: HashSet<(u32, u32)> = inputs
        .iter()
        .map(|input| (crc32(input, 0x1234_5678), toeplitz(input)))
        .collect();
    assert_eq!(1, seen.len());
    assert_eq!(count, inputs.iter().collect::<HashSet<_>>().len());
    inputs
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().unwrap()
}

fn key4(input: &[u8]) -> FlowKey4 {
    let tuple = Tuple4 {
        source: u32::from_be_bytes(number(input, 0)),
        destination: u32::from_be_bytes(number(input, 4)),
        source_port: u16::from_be_bytes(number(input, 8)),
        destination_port: u16::from_be_bytes(number(input, 10)),
        context: 0,
    };
    FlowKey4 { tuple, protocol: 17 }
}

fn key6(input: &[u8]) -> FlowKey6 {
    let half = |at| u64::from_be_bytes(number(input, at));
    let tuple = Tuple6 {
        source: [half(0), half(8)],
        destination: [half(16), half(24)],
        source_port: u16::from_be_bytes(number(input, 32)),
        destination_port: u16::from_be_bytes(number(input, 34)),
        context: 0,
    };
    FlowKey6 { tuple, protocol: 17 }
}

/// 65,536 hashes are all different, and each 12 bits of them that choose a place are spread over 4,096 as by chance:
/// 16 on average; more than 48 somewhere is one chance in a million.
fn assert_spread(hashes: &[u64]) {
    assert_eq!(hashes.len(), hashes.iter().collect::<HashSet<_>>().len());
    for shift in [0, 10, 20, 32, 42, 52] {
        let mut counts = vec![0; 4096];
        hashes
            .iter()
            .for_each(|hash| counts[(hash >> shift) as usize & 0xfff] += 1);
        let most = counts.into_iter().max();
        assert!(most.is_some_and(|most| most <= 48), "{most:?} at bit {shift}");
    }
}

#[test]
fn hash4_of_keys_that_collide_under_crc32_and_toeplitz_spreads() {
    let keys: Vec<FlowKey4> = colliding(12, 65_536).iter().map(|input| key4(input)).collect();
    for seed in 0..4 {
        let mut hashes = vec![0; keys.len()];
        Hasher::new([seed, seed << 40]).hash4(&keys, &mut hashes);
        assert_spread(&hashes);
    }
}

#[test]
fn hash6_of_keys_that_collide_under_crc32_and_toeplitz_spreads() {
    let keys: Vec<FlowKey6> = colliding(36, 65_536).iter().map(|input| key6(input)).collect();
    for seed in 0..4 {
        let mut hashes = vec![0; keys.len()];
        Hasher::new([seed, seed << 40]).hash6(&keys, &mut hashes);
        assert_spread(&hashes);
    }
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Session {
    tuples: [Tuple4; 2],
    protocol: u64,
    links: Links,
    rest: [u64; 2],
}

impl Record for Session {
    type Key = FlowKey4;

    fn key(&self, direction: Direction) -> FlowKey4 {
        FlowKey4 {
            tuple: self.tuples[direction as usize],
            protocol: self.protocol as u8,
        }
    }

    fn matches(&self, key: &FlowKey4, direction: Direction) -> bool {
        self.key(direction) == *key
    }

    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

#[test]
fn table_of_keys_that_collide_under_crc32_and_toeplitz_fills_to_its_capacity() {
    let keys: Vec<FlowKey4> = colliding(12, 65_536).iter().map(|input| key4(input)).collect();
    let hasher = Hasher::new([11, 12]);
    let capacity = keys.len() / 2;
    let mut memory = vec![Line::ZERO; FlowTable::<Session>::lines_for(capacity)];
    let mut table = FlowTable::new(&mut memory, capacity).unwrap();
    for pair in keys.chunks(2) {
        let record = Session {
            tuples: [pair[0].tuple, pair[1].tuple],
            protocol: 17,
            ..Session::zeroed()
        };
        table
            .insert(hasher.one4(&pair[0]), hasher.one4(&pair[1]), record)
            .unwrap();
    }
    for key in &keys {
        let (index, direction) = table.find(hasher.one4(key), key).unwrap();
        assert_eq!(Some(*key), table.get(index).map(|record| record.key(direction)));
    }
}

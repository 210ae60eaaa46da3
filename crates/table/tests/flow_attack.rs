//! Tests of flows that collide under linear hashes: the flow table distributes these flows like other flows.

#![cfg(not(miri))]

use crate::collisions::colliding;
use bytemuck::{Pod, Zeroable};
use sluice_table::flow::{FlowTable, Links, Record};
use sluice_table::hash::Hasher;
use sluice_table::memory::Line;
use sluice_wire::key::{Direction, FlowKey4, FlowKey6, KeyWords4, Tuple4, Tuple6};
use std::collections::HashSet;

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
    FlowKey4::new(tuple, 17)
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
    FlowKey6::new(tuple, 17)
}

/// Checks that 65,536 hashes are distinct, and that each group of 12 hash bits that selects a position is randomly
/// distributed over its 4,096 values. The mean is 16 hashes per value. The probability of more than 48 hashes for any
/// value is one in a million.
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
    keys: [KeyWords4; 2],
    more: u64,
    links: Links,
    rest: [u64; 2],
}

impl Record for Session {
    type Key = FlowKey4;

    fn key(&self, direction: Direction) -> FlowKey4 {
        FlowKey4 {
            words: self.keys[direction as usize],
            high: 0,
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
            keys: [pair[0].words, pair[1].words],
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

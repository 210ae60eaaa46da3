//! Tests of outside ports for which RSS delivers replies to the flow's own shard. The test computes the hash bit by
//! bit, like a NIC.

use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;
use sluice_nat::pool::{Pool, Pools};
use sluice_nat::ports::{Layout, Lease, PortClass, Ports};
use sluice_nat::shard::Shards;
use sluice_nat::{Address, RssPorts, Secret, Tuple};
use sluice_table::memory::Line;
use sluice_table::toeplitz::{Key, draw_for_flows};
use sluice_wire::{Tuple4, Tuple6};

const BASE: u32 = 0xcb00_7100;

fn drawn(bits: u32, seed: u64) -> Key {
    let mut state = seed | 1;
    draw_for_flows(bits, move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    })
}

/// The bytes of a reply packet that a NIC hashes.
fn answer<T: Tuple>(key: &T, lease: Lease<T::Address>) -> Vec<u8> {
    let bytes = |address: T::Address| {
        let all = address.number().to_be_bytes();
        all[16 - usize::from(T::Address::BITS) / 8..].to_vec()
    };
    let ports = [key.destination_port().to_be_bytes(), lease.port.to_be_bytes()].concat();
    [bytes(key.destination()), bytes(lease.address), ports].concat()
}

fn flow(number: u32) -> Tuple4 {
    let mixed = number.wrapping_mul(0x9e37_79b9);
    Tuple4 {
        source: 0x0a00_0000 | number >> 8,
        destination: mixed,
        source_port: 1024 + (number % 60_000) as u16,
        destination_port: (mixed >> 7) as u16,
        context: 0,
    }
}

fn pools(ports: std::ops::RangeInclusive<u16>) -> Pools<u32> {
    let pool = Pool {
        ports,
        ..Pool::new(BASE, BASE)
    };
    Pools::new(&[pool]).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// While any free port matches the shard, the allocated port matches the shard.
    #[test]
    fn port_lent_fits_as_long_as_one_that_is_free_does(seed: u64, bits in 0u32..=7, first in 1024u16..2000, udp: bool) {
        let pools = pools(first..=first + 2047);
        let pool = pools.get(0).unwrap();
        let shards = Shards::new(1 << bits).unwrap();
        let own = (seed % (1 << bits)) as u32;
        let layout = Layout::new(&pools, shards);
        let mut memory = vec![Line([0; 8]); Ports::lines(&layout, 0)];
        let mut ports = Ports::new(&layout, own, Secret([seed, 7]), &mut memory).unwrap();
        let key = drawn(bits, seed);
        ports.prefer_rss_ports(Arc::new(RssPorts::new(&key, bits)));
        let class = if udp { PortClass::Udp } else { PortClass::Tcp };
        let shard_of = |key_of: &Tuple4, lease: Lease<u32>| key.hash(&answer(key_of, lease)) & ((1 << bits) - 1);
        let mut free: HashSet<u16> = (first..=first + 2047).filter(|&port| pool.shard_of(shards, BASE, port) == own).collect();
        for number in 0.. {
            let of = flow(seed as u32 ^ number);
            let Ok(lease) = ports.lease(0, class, &of) else {
                prop_assert!(free.is_empty());
                break;
            };
            let one_fits = free.iter().any(|&port| shard_of(&of, Lease { address: BASE, port }) == own);
            prop_assert_eq!(one_fits, shard_of(&of, lease) == own, "{} free", free.len());
            prop_assert!(free.remove(&lease.port));
        }
    }

    #[test]
    fn port_of_a_large_pool_fits_in_either_family(seed: u64, bits in 1u32..=6) {
        let shards = Shards::new(1 << bits).unwrap();
        let own = (seed % (1 << bits)) as u32;
        let key = drawn(bits, seed);
        let pools = Pools::new(&[Pool::new([0x2001_0db8_0000_0000, 7], [0x2001_0db8_0000_0000, 9])]).unwrap();
        let layout = Layout::new(&pools, shards);
        let mut memory = vec![Line([0; 8]); Ports::lines(&layout, 0)];
        let mut ports = Ports::new(&layout, own, Secret([seed, 7]), &mut memory).unwrap();
        let fitting = Arc::new(RssPorts::new(&key, bits));
        ports.prefer_rss_ports(fitting.clone());
        for number in 0..100u32 {
            let four = flow(number);
            let of = Tuple6 {
                source: [0x2001_0db8_0001_0000, u64::from(four.source)],
                destination: [seed, u64::from(four.destination)],
                source_port: four.source_port,
                destination_port: four.destination_port,
                context: 0,
            };
            let lease = ports.lease(0, PortClass::Tcp, &of).unwrap();
            prop_assert_eq!(own, key.hash(&answer(&of, lease)) & ((1 << bits) - 1));
            prop_assert_eq!(own, fitting.shard_of(lease.address, lease.port, &of));
        }
    }
}

/// With f random free ports and S shards, no free port matches with a probability of (1 - 1/S)^f.
#[test]
fn share_of_misfits_of_few_free_ports_is_what_chance_says() {
    let (bits, shards) = (4, Shards::new(16).unwrap());
    let pools = pools(1024..=u16::MAX);
    let layout = Layout::new(&pools, shards);
    let all: Vec<u16> = (1024..=u16::MAX)
        .filter(|&port| shards.shard_of(BASE, port) == 3)
        .collect();
    for free in [1usize, 4, 16, 32] {
        let draws = 400u64;
        let mut missteered_ports = 0;
        for draw in 1..=draws {
            let key = drawn(bits, draw);
            let mut memory = vec![Line([0; 8]); Ports::lines(&layout, 0)];
            let mut ports = Ports::new(&layout, 3, Secret([draw, 7]), &mut memory).unwrap();
            let fitting = Arc::new(RssPorts::new(&key, bits));
            ports.prefer_rss_ports(fitting.clone());
            let stays =
                |place: usize| (0..free).any(|n| (n as u64 * 2_654_435_761 + draw * 97) as usize % all.len() == place);
            for (_, &port) in all.iter().enumerate().filter(|&(place, _)| !stays(place)) {
                assert!(ports.claim(0, PortClass::Tcp, Lease { address: BASE, port }));
            }
            let of = flow(draw as u32);
            let lease = ports.lease(0, PortClass::Tcp, &of).unwrap();
            missteered_ports += u32::from(fitting.shard_of(lease.address, lease.port, &of) != 3);
        }
        let (measured, expected) = (
            f64::from(missteered_ports) / draws as f64,
            (1.0f64 - 1.0 / 16.0).powi(free as i32),
        );
        assert!(
            (measured - expected).abs() < 0.08,
            "{free} free: {measured} in place of {expected}"
        );
    }
}

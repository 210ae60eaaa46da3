use sluice_table::toeplitz;

use super::*;
use crate::shard::{BLOCK, Shards};

const BASE: u32 = 0xcb00_7100;

#[test]
fn rfc6888_req3_non_contiguous_ranges_count_and_index() {
    let mut pool = Pool::new(BASE + 100, BASE + 101);
    pool.addresses.push((BASE, BASE + 2));
    let pools = Pools::new(&[pool]).unwrap();
    let pool = pools.get(0).unwrap();
    let expected = [BASE, BASE + 1, BASE + 2, BASE + 100, BASE + 101];
    assert_eq!(5, pool.addresses());
    assert_eq!(5 * 64_512, pool.capacity());
    for (index, address) in expected.into_iter().enumerate() {
        assert_eq!(address, pool.address(index as u32));
        assert_eq!(Some(index as u32), pool.index_of(address));
    }
    assert_eq!(None, pool.index_of(BASE + 3));
    assert_eq!(None, pool.index_of(BASE - 1));
    assert_eq!(Some(0), pools.owner(0, BASE + 100));
    assert_eq!(None, pools.owner(0, BASE + 102));
}

#[test]
fn pools_overlapping_addresses_and_ports_are_refused() {
    let one = Pool::new(BASE, BASE + 9);
    let other = Pool::new(BASE + 9, BASE + 20);
    let expected = PoolError::Overlap {
        pool: 0,
        other: 1,
        address: (BASE + 9).display(),
    };
    assert_eq!(Err(expected), Pools::new(&[one.clone(), other.clone()]));
    let low = Pool {
        ports: 1..=1023,
        ..other
    };
    let pools = Pools::new(&[one, low]).unwrap();
    assert_eq!(Some(0), pools.includes(0, BASE + 9, 1024, 1024));
    assert_eq!(Some(1), pools.includes(0, BASE + 9, 80, 80));
    assert_eq!(Some(0), pools.owner(0, BASE + 8));
    assert_eq!(Some(1), pools.owner(0, BASE + 20));
}

#[test]
fn pools_do_not_lend_what_is_reserved() {
    let mut pool = Pool::new(BASE, BASE);
    pool.reserved = vec![8080..=8081, 8082..=8090, 65_000..=u16::MAX];
    let pools = Pools::new(&[pool]).unwrap();
    for (first, last, allocated) in [
        (8080, 8090, false),
        (8082, 8082, false),
        (8079, 8090, true),
        (8090, 8091, true),
        (65_000, u16::MAX, false),
        (1, 1023, false),
        (1, u16::MAX, true),
    ] {
        assert_eq!(
            allocated.then_some(0),
            pools.includes(0, BASE, first, last),
            "{first}-{last}"
        );
    }
}

#[test]
fn pools_range_overlapping_itself_is_refused() {
    let mut pool = Pool::new(BASE, BASE + 9);
    pool.addresses.push((BASE + 5, BASE + 6));
    let expected = PoolError::Overlap {
        pool: 0,
        other: 0,
        address: (BASE + 5).display(),
    };
    assert_eq!(Err(expected), Pools::new(&[pool]));
}

#[test]
fn pools_bad_ranges_are_refused_by_name() {
    let good = Pool::new(BASE, BASE);
    let empty = Pool {
        addresses: vec![],
        ..good.clone()
    };
    assert_eq!(Err(PoolError::Empty { pool: 1 }), Pools::new(&[good.clone(), empty]));
    let reversed = Pool::new(BASE + 1, BASE);
    assert!(matches!(
        Pools::new(&[reversed]),
        Err(PoolError::Reversed { pool: 0, .. })
    ));
    let zero = Pool {
        ports: 0..=100,
        ..good.clone()
    };
    assert_eq!(
        Err(PoolError::BadPorts {
            pool: 0,
            first: 0,
            last: 100
        }),
        Pools::new(&[zero])
    );
    let all = Pool::new([0u64, 0], [u64::MAX, u64::MAX]);
    assert_eq!(
        Err(PoolError::TooLarge {
            pool: 0,
            count: u128::MAX
        }),
        Pools::new(&[all])
    );
    let short_timeout = Pool {
        timeouts: Timeouts {
            udp: 1,
            ..Timeouts::default()
        },
        ..good
    };
    assert!(matches!(
        Pools::new(&[short_timeout]),
        Err(PoolError::Timeout { pool: 0, .. })
    ));
}

#[test]
fn unit_of_each_port_is_what_division_says() {
    for size in [None, Some(64), Some(512), Some(32_768)] {
        let pool = Pool {
            blocks: size.map(|size| Blocks {
                size,
                ..Blocks::default()
            }),
            ..Pool::new(0xcb00_7100u32, 0xcb00_7100)
        };
        let pools = Pools::new(&[pool]).unwrap();
        let valid = pools.get(0).unwrap();
        for port in 0..=u16::MAX {
            let expected = u32::from(port) / (BLOCK * valid.unit());
            assert_eq!(expected, valid.unit_of(port), "{size:?} {port}");
        }
    }
}

/// If the total number of port units equals the number of shards, all or almost all shards get ports.
#[test]
fn shards_of_a_narrow_pool_are_many_more_than_those_of_one_address() {
    for (count, last, addresses) in [(16, 1279, 4), (64, 2047, 8), (1024, 65_535, 8)] {
        let shards = Shards::new(count).unwrap();
        let pool = Pool {
            ports: 1024..=last,
            ..Pool::new(BASE, BASE + addresses - 1)
        };
        let pools = Pools::new(&[pool]).unwrap();
        let valid = pools.get(0).unwrap();
        let mut owned = vec![false; count as usize];
        for address in BASE..BASE + addresses {
            for port in 1024..=last {
                owned[valid.shard_of(shards, address, port) as usize] = true;
            }
        }
        let owned = owned.iter().filter(|&&owned| owned).count() as u32;
        assert!(owned * 4 >= count * 3, "{owned} of {count}");
    }
}

/// With port preservation, each further address belongs to a different shard until every shard has an address, for any
/// first address.
#[test]
fn addresses_whose_ports_are_kept_go_to_as_many_shards_as_there_are_addresses() {
    let pieces = [(0x40, 0x40), (0x53, 0x55), (0x61, 0x63), (0x80, 0x80), (0xc0, 0xc7)];
    let ranges = [
        (vec![(0x10, 0x1f)], true),
        (vec![(0x07, 0x27)], true),
        (vec![(0x17, 0x26)], false),
        (vec![(0x14, 0x17)], true),
        (vec![(0x15, 0x18)], false),
        (vec![(0x15, 0x19)], false),
        (pieces.to_vec(), false),
    ];
    for (ranges, as_cards) in ranges {
        for together in [6, 16] {
            let mut seed = 1u64;
            let random = || {
                seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1;
                seed ^ seed >> 29
            };
            let key = toeplitz::draw_for_blocks(toeplitz::Blocks { bits: 4, together }, random);
            let shards = Shards::keyed(16, &key).unwrap();
            let addresses: Vec<_> = ranges.iter().map(|&(from, to)| (BASE + from, BASE + to)).collect();
            let pool = Pool {
                addresses: addresses.clone(),
                selection: PortSelection::Preserve,
                ..Pool::new(0, 0)
            };
            let pools = Pools::new(&[pool]).unwrap();
            let valid = pools.get(0).unwrap();
            let all = addresses.iter().flat_map(|&(from, to)| from..=to);
            let owners: std::collections::HashSet<_> = all.map(|address| valid.shard_of(shards, address, 80)).collect();
            assert_eq!(valid.addresses().min(16), owners.len() as u32, "{ranges:x?} {together}");
            let home = valid.home(shards, addresses[0].0, 80);
            assert_eq!(as_cards, matches!(home, Home::Unit(0)), "{ranges:x?}");
        }
    }
}

//! Tests of port allocations against an oracle: a plain set of ports.

use std::collections::HashSet;

use proptest::prelude::*;
use sluice_nat::pool::{Home, Pairing, Pool, Pools};
use sluice_nat::ports::{Exhausted, Layout, Lease, PortClass, Ports};
use sluice_nat::shard::Shards;
use sluice_nat::{Behaviour, Secret};
use sluice_table::memory::Line;
use sluice_wire::{Tuple4, Tuple6};

const BASE: u32 = 0xcb00_7100;
const SECRET: Secret = Secret([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);

fn key(inside: u32, port: u16, remote: u32) -> Tuple4 {
    Tuple4 {
        source: 0x0a00_0000 | inside,
        destination: remote,
        source_port: port,
        destination_port: 443,
        context: 0,
    }
}

fn small(addresses: u32, ports: std::ops::RangeInclusive<u16>) -> Pool<u32> {
    Pool {
        ports,
        ..Pool::new(BASE, BASE + addresses - 1)
    }
}

fn memory(pools: &Pools<u32>, shards: Shards) -> Vec<Line> {
    vec![Line([u64::MAX; 8]); Ports::lines(&Layout::new(pools, shards), 0)]
}

/// Deterministic generator of test input.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 32) as usize * bound) >> 32
    }
}

#[test]
fn leases_millions_of_operations_leak_none_and_lend_none_twice() {
    let soft = Pool {
        pairing: Pairing::Soft,
        ..small(5, 700..=2100)
    };
    let hard = Pool {
        addresses: vec![(BASE + 100, BASE + 101), (BASE + 200, BASE + 200)],
        ..small(1, 1..=u16::MAX)
    };
    let pools = Pools::new(&[soft, hard]).unwrap();
    let shards = Shards::new(4).unwrap();
    let mut memory = memory(&pools, shards);
    let mut ports = Ports::new(&Layout::new(&pools, shards), 2, SECRET, &mut memory).unwrap();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut allocated: Vec<(u16, PortClass, Lease<u32>)> = Vec::new();
    let mut oracle = HashSet::new();
    let mut refused = 0;
    for step in 0..3_000_000usize {
        // Alternate between phases with more allocations and phases with more releases, so that pools fill and drain.
        let lending = if step / 300_000 % 2 == 0 { 60 } else { 40 };
        if random.below(100) < lending {
            let (pool, class) = (random.below(2) as u16, PortClass::ALL[random.below(3)]);
            let flow = key(
                random.below(1 << 16) as u32,
                random.below(1 << 16) as u16,
                random.below(1 << 20) as u32,
            );
            match ports.lease(pool, class, &flow) {
                Ok(lease) => {
                    assert!(oracle.insert((pool, class, lease)), "lent twice: {lease:?}");
                    assert_eq!(2, shards.shard_of(lease.address, lease.port));
                    let valid = pools.get(pool).unwrap();
                    assert!(valid.index_of(lease.address).is_some());
                    assert!((valid.ports().0..=valid.ports().1).contains(&lease.port));
                    allocated.push((pool, class, lease));
                }
                Err(Exhausted) => refused += 1,
            }
        } else if !allocated.is_empty() {
            let (pool, class, lease) = allocated.swap_remove(random.below(allocated.len()));
            assert!(oracle.remove(&(pool, class, lease)));
            assert!(ports.release(pool, class, lease));
            assert!(!ports.release(pool, class, lease));
        }
    }
    assert!(refused > 0, "the pools never ran full");
    for pool in [0, 1] {
        for class in PortClass::ALL {
            let expected = allocated
                .iter()
                .filter(|lease| (lease.0, lease.1) == (pool, class))
                .count();
            assert_eq!(expected as u32, ports.used(pool, class));
        }
    }
    for (pool, class, lease) in allocated {
        assert!(ports.release(pool, class, lease));
    }
    assert!((0..2).all(|pool| PortClass::ALL.iter().all(|&class| ports.used(pool, class) == 0)));
}

#[test]
fn rfc6888_req13_leases_soft_pairing_use_every_port_of_all_shards() {
    let pool = Pool {
        pairing: Pairing::Soft,
        ..small(3, 1000..=3333)
    };
    let pools = Pools::new(&[pool]).unwrap();
    for count in [1, 8, 64] {
        let shards = Shards::new(count).unwrap();
        let mut all = HashSet::new();
        for shard in 0..count {
            let mut memory = memory(&pools, shards);
            let mut ports = Ports::new(&Layout::new(&pools, shards), shard, SECRET, &mut memory).unwrap();
            let mut inside = 0;
            while let Ok(lease) = ports.lease(0, PortClass::Query, &key(inside, 7, 1)) {
                assert!(all.insert(lease));
                inside += 1;
            }
        }
        assert_eq!(pools.get(0).unwrap().capacity(), all.len() as u64, "{count} shards");
    }
}

#[test]
fn rfc4787_req2_sessions_of_a_host_share_an_outside_address() {
    let pools = Pools::new(&[small(50, 1024..=65_535)]).unwrap();
    let shards = Shards::new(4).unwrap();
    let mut addresses = HashSet::new();
    for inside in 0..200 {
        let mut of_host = HashSet::new();
        for shard in 0..4 {
            let mut memory = memory(&pools, shards);
            let mut ports = Ports::new(&Layout::new(&pools, shards), shard, SECRET, &mut memory).unwrap();
            for remote in 0..5 {
                of_host.insert(
                    ports
                        .lease(0, PortClass::Tcp, &key(inside, 5000, remote))
                        .unwrap()
                        .address,
                );
                of_host.insert(
                    ports
                        .lease(0, PortClass::Udp, &key(inside, 5000, remote))
                        .unwrap()
                        .address,
                );
            }
        }
        assert_eq!(1, of_host.len());
        addresses.extend(of_host);
        if inside % 100 == 99 {
            assert_eq!(50, addresses.len(), "hosts of {}", inside + 1);
        }
    }
}

/// For each address of a pool, the hosts that are assigned to it.
fn assigned(count: u32, hosts: impl IntoIterator<Item = (u32, u32)>) -> Vec<Vec<u32>> {
    let pools = Pools::new(&[small(count, 1024..=65_535)]).unwrap();
    let mut memory = memory(&pools, Shards::ONE);
    let mut ports = Ports::new(&Layout::new(&pools, Shards::ONE), 0, SECRET, &mut memory).unwrap();
    let mut users = vec![Vec::new(); count as usize];
    for (context, inside) in hosts {
        let key = Tuple4 {
            context,
            ..key(inside, 5000, 1)
        };
        let lease = ports.lease(0, PortClass::Udp, &key).unwrap();
        users[(lease.address - BASE) as usize].push(inside);
    }
    users
}

/// Variance of the number of hosts per address.
fn variance(users: &[Vec<u32>]) -> f64 {
    let all: usize = users.iter().map(Vec::len).sum();
    let mean = all as f64 / users.len() as f64;
    let squares = users.iter().map(|users| (users.len() as f64 - mean).powi(2));
    squares.sum::<f64>() / users.len() as f64
}

#[test]
fn hosts_in_a_row_are_dealt_addresses_evenly() {
    for first in [1u32, 256, 60_000, 65_500, 200_000] {
        for context in [0, 1, 0x4000_0007] {
            // Sites differ in their context.
            let hosts = (0..100).map(|number| match context >> 30 {
                1 => (context + number, 1),
                _ => (context, first + number),
            });
            let users = assigned(64, hosts);
            let variance = variance(&users);
            // The 100 hosts from 65,500 on belong to two groups of 65,536 consecutive subscribers.
            let limit = if first == 65_500 { 0.8 } else { 0.33 };
            assert!(variance < limit, "{variance} from {first} in {context:#x}");
        }
    }
    for count in [1, 2, 3, 50, 64, 254] {
        let users = assigned(count, (0..4_096).map(|number| (0, 0x1_0000 + number)));
        let sizes = users.iter().map(Vec::len);
        let (least, max) = (sizes.clone().min().unwrap(), sizes.max().unwrap());
        assert!(max - least <= 1, "{least} to {max} on {count} addresses");
    }
}

/// Consecutive hosts belong to consecutive shards. If all hosts of an address belonged to one shard, the ports of other
/// shards would stay unused.
#[test]
fn hosts_of_an_address_are_in_different_shards() {
    for count in [16, 48, 64, 128] {
        let users = assigned(count, (0..16 * count).map(|number| (0, number)));
        for users in users {
            let shards: HashSet<_> = users.iter().map(|inside| inside % 16).collect();
            assert!(shards.len() >= 12, "{} shards of {} users", shards.len(), users.len());
        }
    }
}

#[test]
fn rfc7857_section4_full_paired_address_refuses_unless_soft() {
    let lend = |pairing| {
        let pools = Pools::new(&[Pool {
            pairing,
            ..small(2, 2048..=2111)
        }])
        .unwrap();
        let shards = Shards::new(1).unwrap();
        let mut memory = memory(&pools, shards);
        let mut ports = Ports::new(&Layout::new(&pools, shards), 0, SECRET, &mut memory).unwrap();
        (0..1000)
            .filter(|&port| ports.lease(0, PortClass::Tcp, &key(1, 5000 + port, 1)).is_ok())
            .count()
    };
    assert_eq!(64, lend(Pairing::Hard));
    assert_eq!(128, lend(Pairing::Soft));
}

#[test]
fn rfc4787_req3_rfc5382_req7_a_lent_port_is_not_lent_again_per_protocol() {
    let pools = Pools::new(&[small(1, 5000..=5000)]).unwrap();
    let shards = Shards::new(1).unwrap();
    let mut memory = memory(&pools, shards);
    let mut ports = Ports::new(&Layout::new(&pools, shards), 0, SECRET, &mut memory).unwrap();
    for class in PortClass::ALL {
        assert_eq!(
            Ok(Lease {
                address: BASE,
                port: 5000
            }),
            ports.lease(0, class, &key(1, 1, 1))
        );
        assert_eq!(Err(Exhausted), ports.lease(0, class, &key(2, 2, 2)));
    }
}

#[test]
fn rfc4787_req3a_port_range_is_preserved() {
    let pools = Pools::new(&[small(1, 1..=65_535)]).unwrap();
    for count in [1, 4, 16] {
        let shards = Shards::new(count).unwrap();
        let mut memory = memory(&pools, shards);
        let mut ports = Ports::new(&Layout::new(&pools, shards), count - 1, SECRET, &mut memory).unwrap();
        let owned = (1..1024)
            .filter(|&port| shards.shard_of(BASE, port) == count - 1)
            .count() as u32;
        for n in 0..owned {
            assert!(ports.lease(0, PortClass::Udp, &key(n, 500, 1)).unwrap().port < 1024);
            assert!(ports.lease(0, PortClass::Udp, &key(n, 5000, 1)).unwrap().port >= 1024);
        }
        assert!(ports.lease(0, PortClass::Udp, &key(0, 500, 2)).unwrap().port >= 1024);
    }
}

/// If addresses have fewer port blocks than there are shards, a host is assigned to an address with ports of the host's
/// shard.
#[test]
fn rfc4787_req2_host_of_a_narrow_pool_is_paired_with_an_address_that_has_ports() {
    let pool = Pool {
        pairing: Pairing::Hard,
        ..small(32, 1024..=1279)
    };
    let pools = Pools::new(&[pool]).unwrap();
    let shards = Shards::new(16).unwrap();
    for shard in 0..16 {
        let mut memory = memory(&pools, shards);
        let mut ports = Ports::new(&Layout::new(&pools, shards), shard, SECRET, &mut memory).unwrap();
        for host in 0..16 {
            let leases = [2000, 2001].map(|port| ports.lease(0, PortClass::Udp, &key(host, port, 9)).unwrap());
            assert_eq!(leases[0].address, leases[1].address);
        }
    }
}

#[test]
fn lease_same_input_gives_same_ports_another_secret_others() {
    let pools = Pools::new(&[small(1, 1024..=65_535)]).unwrap();
    let shards = Shards::new(2).unwrap();
    let lend = |secret| {
        let mut memory = memory(&pools, shards);
        let mut ports = Ports::new(&Layout::new(&pools, shards), 0, secret, &mut memory).unwrap();
        (0..100)
            .map(|n| ports.lease(0, PortClass::Tcp, &key(n, 5000, 1)).unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(lend(SECRET), lend(SECRET));
    assert_ne!(lend(SECRET), lend(Secret([1, 2])));
}

#[test]
fn lease_aimed_in_batches_gives_the_same_ports() {
    let pools = Pools::new(&[Pool {
        pairing: Pairing::Soft,
        ..small(3, 1000..=1499)
    }])
    .unwrap();
    let shards = Shards::new(1).unwrap();
    let flows: Vec<_> = (0..2000).map(|n| key(n / 16, 900 + n as u16, n)).collect();
    let (mut one, mut other) = (memory(&pools, shards), memory(&pools, shards));
    let mut singly = Ports::new(&Layout::new(&pools, shards), 0, SECRET, &mut one).unwrap();
    let mut batched = Ports::new(&Layout::new(&pools, shards), 0, SECRET, &mut other).unwrap();
    for batch in flows.chunks(64) {
        let aims: Vec<_> = batch
            .iter()
            .map(|flow| batched.request(0, PortClass::Udp, flow))
            .collect();
        for (flow, request) in batch.iter().zip(aims) {
            assert_eq!(singly.lease(0, PortClass::Udp, flow), batched.allocate(request));
        }
    }
    assert_eq!(Err(Exhausted), singly.lease(1, PortClass::Udp, &flows[0]));
}

#[test]
fn lease_of_low_ports_from_a_pool_without_them_spreads() {
    let pools = Pools::new(&[small(1, 1024..=65_535)]).unwrap();
    let shards = Shards::new(1).unwrap();
    let mut memory = memory(&pools, shards);
    let mut ports = Ports::new(&Layout::new(&pools, shards), 0, SECRET, &mut memory).unwrap();
    let blocks: HashSet<_> = (0..500)
        .map(|n| ports.lease(0, PortClass::Udp, &key(n, 123, n)).unwrap().port / 64)
        .collect();
    assert!(blocks.len() > 300, "{} blocks", blocks.len());
}

#[test]
fn claim_port_of_a_surviving_session_is_not_lent() {
    let pools = Pools::new(&[small(1, 6000..=6063)]).unwrap();
    let shards = Shards::new(1).unwrap();
    let mut memory = memory(&pools, shards);
    let mut ports = Ports::new(&Layout::new(&pools, shards), 0, SECRET, &mut memory).unwrap();
    let survivor = Lease {
        address: BASE,
        port: 6007,
    };
    assert!(ports.claim(0, PortClass::Tcp, survivor));
    assert!(!ports.claim(0, PortClass::Tcp, survivor));
    assert!(!ports.claim(0, PortClass::Tcp, Lease { port: 5999, ..survivor }));
    assert!(!ports.claim(
        0,
        PortClass::Tcp,
        Lease {
            address: BASE + 1,
            ..survivor
        }
    ));
    while let Ok(lease) = ports.lease(0, PortClass::Tcp, &key(1, 1, 1)) {
        assert_ne!(survivor, lease);
    }
    assert_eq!(64, ports.used(0, PortClass::Tcp));
}

#[test]
fn ports_memory_too_small_is_refused() {
    let pools = Pools::new(&[small(1, 1024..=65_535)]).unwrap();
    let shards = Shards::new(1).unwrap();
    let needed = Ports::lines(&Layout::new(&pools, shards), 0);
    let refused = Ports::new(
        &Layout::new(&pools, shards),
        0,
        SECRET,
        &mut vec![Line::ZERO; needed - 1],
    )
    .unwrap_err();
    assert_eq!((needed, needed - 1), (refused.needed, refused.provided));
}

#[test]
fn give_back_of_each_class_returns_the_lease_once() {
    let pool = Pool {
        ports: 1024..=65_535,
        ..Pool::new([0x2001_0db8 << 32, 1], [0x2001_0db8 << 32, 16])
    };
    let pools = Pools::new(&[pool]).unwrap();
    let shards = Shards::new(8).unwrap();
    let mut memory = vec![Line::ZERO; Ports::lines(&Layout::new(&pools, shards), 0)];
    let mut ports = Ports::new(&Layout::new(&pools, shards), 5, SECRET, &mut memory).unwrap();
    let forward = Tuple6 {
        source: [0xfd00 << 48, 7],
        destination: [1, 2],
        source_port: 9,
        ..Tuple6::default()
    };
    for class in PortClass::ALL {
        let lease = ports.lease(0, class, &forward).unwrap();
        assert_eq!(1, ports.used(0, class));
        assert!(ports.release(0, class, lease));
        assert_eq!(0, ports.used(0, class));
        assert!(!ports.release(0, class, lease));
    }
}

proptest! {
    #[test]
    fn leases_any_pool_agree_with_the_oracle(
        first in 1u16..5000, length in 0u16..400, addresses in 1u32..70, shift in 0u32..6, soft: bool,
        operations in proptest::collection::vec((any::<u32>(), any::<u16>(), 0u8..3, any::<bool>()), 1..400),
    ) {
        let pairing = if soft { Pairing::Soft } else { Pairing::Hard };
        let pools = Pools::new(&[Pool { pairing, ..small(addresses, first..=first + length) }]).unwrap();
        let shards = Shards::new(1 << shift).unwrap();
        let mut memory = memory(&pools, shards);
        let mut ports = Ports::new(&Layout::new(&pools, shards), 0, SECRET, &mut memory).unwrap();
        let mut oracle = Vec::new();
        for (number, port, class, lend) in operations {
            let class = PortClass::ALL[class as usize];
            if lend {
                if let Ok(lease) = ports.lease(0, class, &key(number & 0xffff, port, number)) {
                    prop_assert!(!oracle.contains(&(class, lease)));
                    prop_assert!((first..=first + length).contains(&lease.port));
                    prop_assert_eq!(0, pools.get(0).unwrap().shard_of(shards, lease.address, lease.port));
                    oracle.push((class, lease));
                }
            } else {
                let any = Lease { address: BASE + number % addresses, port };
                let known = oracle.iter().position(|&held| held == (class, any));
                prop_assert_eq!(known.is_some(), ports.release(0, class, any));
                if let Some(at) = known {
                    oracle.swap_remove(at);
                } else if let Some((class, lease)) = oracle.pop() {
                    prop_assert!(ports.release(0, class, lease));
                }
            }
        }
        for class in PortClass::ALL {
            prop_assert_eq!(oracle.iter().filter(|held| held.0 == class).count() as u32, ports.used(0, class));
        }
    }
}

/// The pool from which a shard allocates a port.
fn lender(pools: &Pools<u32>, shards: Shards, shard: u32, lease: Lease<u32>) -> Option<u16> {
    let pool = pools.includes(0, lease.address, lease.port, lease.port)?;
    let of = pools.get(pool)?.shard_of(shards, lease.address, lease.port);
    (of == shard).then_some(pool)
}

/// A random distribution of sixteen addresses over up to three pools.
fn layouts() -> impl Strategy<Value = Vec<Option<Pool<u32>>>> {
    let pool = |addresses: (u32, u32), ports: (u16, u16), soft: bool| Pool {
        addresses: vec![(BASE + addresses.0, BASE + addresses.0 + addresses.1)],
        ports: ports.0..=ports.0 + ports.1,
        pairing: if soft { Pairing::Soft } else { Pairing::Hard },
        behaviour: [Behaviour::ADDRESS_AND_PORT_DEPENDENT; 3],
        ..Pool::new(0, 0)
    };
    let one = (0u32..12, 0u32..4, 1u16..300, 0u16..300, any::<bool>())
        .prop_map(move |(from, more, port, ports, soft)| pool((from, more), (port, ports), soft));
    let some = proptest::collection::vec(proptest::option::of(one), 0..4);
    some.prop_filter("pools that overlap", |pools| {
        Pools::placed(&pools.iter().map(Option::as_ref).collect::<Vec<_>>()).is_ok()
    })
}

proptest! {
    #[test]
    fn leases_across_changes_of_pools_agree_with_the_oracle(
        changes in proptest::collection::vec(
            (layouts(), proptest::collection::vec((any::<u32>(), 0u16..4, 0u8..3, 0u8..10), 0..60)), 1..8),
        shift in 0u32..5,
    ) {
        let shards = Shards::new(1 << shift).unwrap();
        let shard = shards.count() - 1;
        let lines = 2 * Layout::<u32>::lines_of_spare(16, shards) + Ports::lines(&Layout::<u32>::default(), 0);
        let mut memory = vec![Line([u64::MAX; 8]); 4 * lines];
        let mut ports = Ports::new(&Layout::default(), shard, SECRET, &mut memory).unwrap();
        let mut oracle: Vec<(u16, PortClass, Lease<u32>)> = Vec::new();
        for (pools, steps) in changes {
            let pools = Pools::placed(&pools.iter().map(Option::as_ref).collect::<Vec<_>>()).unwrap();
            ports.prepare_migration(&Layout::new(&pools, shards));
            for (number, pool, class, what) in steps {
                let class = PortClass::ALL[class as usize];
                if what < 6 {
                    if let Ok(lease) = ports.lease(pool, class, &key(number & 0xff, number as u16, number)) {
                        prop_assert!(oracle.iter().all(|held| (held.1, held.2) != (class, lease)));
                        prop_assert_eq!(Some(pool), lender(&pools, shards, shard, lease));
                        oracle.push((pool, class, lease));
                    }
                } else if !oracle.is_empty() {
                    // Release through the pool that allocated the port, even if the pool no longer contains the port.
                    let (pool, class, lease) = oracle.swap_remove(number as usize % oracle.len());
                    let known = ports.is_migration_due() || lender(&pools, shards, shard, lease).is_some();
                    prop_assert_eq!(known, ports.release(pool, class, lease));
                }
            }
            // Sessions that have lost their ports end before the pools change again.
            ports.migrate();
            oracle.retain(|&(pool, class, lease)| {
                let stays = lender(&pools, shards, shard, lease).is_some();
                stays || ports.release(pool, class, lease)
            });
            for (pool, _) in pools.iter() {
                for class in PortClass::ALL {
                    let allocated = oracle.iter().filter(|(_, other, lease)| {
                        *other == class && lender(&pools, shards, shard, *lease) == Some(pool)
                    });
                    prop_assert_eq!(allocated.count() as u32, ports.used(pool, class));
                }
            }
        }
        let left = oracle.len();
        let allocated = oracle.into_iter().filter(|&(pool, class, lease)| ports.release(pool, class, lease));
        prop_assert_eq!(left, allocated.count());
        prop_assert!((0..4).all(|pool| PortClass::ALL.iter().all(|&class| ports.used(pool, class) == 0)));
    }

    #[test]
    fn layout_after_all_leases_came_back_lends_every_port_again(pools in layouts(), others in layouts()) {
        let shards = Shards::new(2).unwrap();
        let made = |pools: &Vec<Option<Pool<u32>>>| {
            Pools::placed(&pools.iter().map(Option::as_ref).collect::<Vec<_>>()).unwrap()
        };
        let (first, second) = (made(&pools), made(&others));
        let mut memory = vec![Line::ZERO; 4 * Layout::<u32>::lines_of_spare(16, shards)];
        let mut ports = Ports::new(&Layout::new(&first, shards), 1, SECRET, &mut memory).unwrap();
        let leases: Vec<_> = (0..200)
            .filter_map(|n| Some((n as u16 % 3, ports.lease(n as u16 % 3, PortClass::Udp, &key(n, 5000, n)).ok()?)))
            .collect();
        ports.prepare_migration(&Layout::new(&second, shards));
        ports.migrate();
        for (pool, lease) in leases {
            ports.release(pool, PortClass::Udp, lease);
        }
        for (pool, valid) in second.iter() {
            for address in 0..valid.addresses() {
                for port in valid.ports().0..=valid.ports().1 {
                    let lease = Lease { address: valid.address(address), port };
                    let own = valid.shard_of(shards, lease.address, port) == 1;
                    prop_assert_eq!(own, ports.claim(pool, PortClass::Udp, lease));
                }
            }
        }
    }

    #[test]
    fn window_gives_a_port_the_unit_that_the_pools_give(
        mut pools in layouts(), reserved in proptest::option::of((0usize..4, 1u16..600)), bits in 0u32..4,
    ) {
        if let Some((pool, port)) = reserved
            && let Some(Some(pool)) = pools.get_mut(pool)
            && pool.ports.contains(&port)
        {
            pool.reserved.push(port..=port);
        }
        let pools = Pools::placed(&pools.iter().map(Option::as_ref).collect::<Vec<_>>());
        prop_assume!(pools.is_ok());
        let (pools, shards) = (pools.unwrap(), Shards::new(1 << bits).unwrap());
        prop_assert_eq!(None, pools.window(shards, 1));
        let Some(window) = pools.window(shards, 0) else {
            return Ok(());
        };
        for address in BASE - 1..BASE + 17 {
            for port in 0..=700 {
                if let Some(unit) = window.unit_of(address, port) {
                    prop_assert_eq!(Some(Home::Unit(unit)), pools.home_of_allocated(shards, 0, address, port));
                }
            }
        }
    }

    #[test]
    fn window_of_one_pool_contains_every_port_that_it_allocates(port in 1u16..2000, ports in 1000u16..2000) {
        let pool = Pool { ports: port..=port + ports, ..Pool::new(BASE, BASE + 3) };
        let (pools, shards) = (Pools::new(&[pool]).unwrap(), Shards::new(4).unwrap());
        let window = pools.window(shards, 0).unwrap();
        let allocated = |port| pools.home_of_allocated(shards, 0, BASE + 3, port).is_some();
        for port in 0..=4000 {
            prop_assert_eq!(allocated(port), window.unit_of(BASE + 3, port).is_some());
        }
    }
}

//! Tests of shards that share ports of their addresses, against an oracle that records all owners.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use sluice_nat::pool::{Home, Pairing, Pool, Pools};
use sluice_nat::ports::{Layout, Lease, PortClass, Ports};
use sluice_nat::shard::Shards;
use sluice_nat::{Behaviour, Secret};
use sluice_table::memory::Line;
use sluice_wire::Tuple4;

const BASE: u32 = 0xcb00_7100;
const SECRET: Secret = Secret([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);

fn key(inside: u32, port: u16) -> Tuple4 {
    Tuple4 {
        source: 0x0a00_0000 | inside,
        destination: 7,
        source_port: port,
        destination_port: 443,
        context: 0,
    }
}

fn plain(addresses: (u32, u32), ports: (u16, u16)) -> Pool<u32> {
    Pool {
        ports: ports.0..=ports.1,
        behaviour: [Behaviour::ADDRESS_AND_PORT_DEPENDENT; 3],
        ..Pool::new(BASE + addresses.0, BASE + addresses.1)
    }
}

fn pools(pools: &[Option<Pool<u32>>], before: Option<&Pools<u32>>, shards: Shards) -> Pools<u32> {
    let mut pools = Pools::placed(&pools.iter().map(Option::as_ref).collect::<Vec<_>>()).unwrap();
    pools.share(before, shards);
    pools
}

/// The ports of all shards, with memory for pools of up to `addresses` addresses.
fn all(pools: &Pools<u32>, shards: Shards, addresses: u32) -> Vec<Ports<'static, u32>> {
    let layout = Layout::shared(pools, shards);
    let lines = Ports::lines(&layout, 0).max(8 * Layout::<u32>::lines_of_spare(addresses, shards));
    let of = |shard| Ports::new(&layout, shard, SECRET, vec![Line([u64::MAX; 8]); lines].leak()).unwrap();
    (0..shards.count()).map(of).collect()
}

/// The shard to which a packet from outside is steered.
fn home(pools: &Pools<u32>, shards: Shards, lease: Lease<u32>) -> Option<u32> {
    Some(match pools.home_of_allocated(shards, 0, lease.address, lease.port)? {
        Home::Unit(unit) => shards.shard_of_unit(lease.address, unit),
        Home::Shard(shard) => shard,
        Home::Inside(_) => return None,
    })
}

/// Allocates ports of a class to a shard until no port is free.
fn fill(ports: &mut Ports<'_, u32>, class: PortClass, inside: u32) -> Vec<Lease<u32>> {
    let lend = |n: u32| ports.lease(0, class, &key(inside, 1024 + (n % 64_000) as u16)).ok();
    (0u32..).map_while(lend).collect()
}

#[test]
fn one_shard_has_half_of_an_address_and_each_other_its_half_of_the_rest() {
    for count in [4, 16, 64] {
        let shards = Shards::new(count).unwrap();
        for (first, last) in [(1024, u16::MAX), (1, u16::MAX), (1000, 40_000)] {
            // Source ports from 1024 on get only outside ports from 1024 on.
            let all_ports = usize::from(last - first.max(1024)) + 1;
            for greedy in [0, count / 2, count - 1] {
                let pools = pools(&[Some(plain((0, 0), (first, last)))], None, shards);
                let mut ports = all(&pools, shards, 1);
                let allocated = fill(&mut ports[greedy as usize], PortClass::Udp, 1);
                assert!(
                    2 * allocated.len() >= all_ports,
                    "{} of {all_ports} in {count}",
                    allocated.len()
                );
                assert!(
                    allocated
                        .iter()
                        .all(|&lease| home(&pools, shards, lease) == Some(greedy))
                );
                let mut known: HashSet<_> = allocated.iter().copied().collect();
                let others = (0..count).filter(|&other| other != greedy).collect::<Vec<_>>();
                for &other in &others {
                    let more = fill(&mut ports[other as usize], PortClass::Udp, 2);
                    let own = all_ports / 2 / count as usize;
                    assert!(more.len() + 128 >= own && more.len() >= 64, "{} of {own}", more.len());
                    assert!(more.iter().all(|&lease| home(&pools, shards, lease) == Some(other)));
                    assert!(more.iter().all(|&lease| known.insert(lease)));
                }
                assert_eq!(all_ports, known.len(), "ports that nobody can have");
                // After the first shard has released its ports, another shard can claim the remaining shared ports.
                assert!(
                    allocated
                        .iter()
                        .all(|&lease| ports[greedy as usize].release(0, PortClass::Udp, lease))
                );
                assert_eq!(0, pools.borrowed_blocks());
                let then = fill(&mut ports[others[0] as usize], PortClass::Udp, 3);
                assert!(then.len() >= all_ports / 4, "{} of {all_ports}", then.len());
            }
        }
    }
}

#[test]
fn rfc4787_req3a_shared_ports_below_1024_go_to_source_ports_below_1024() {
    let shards = Shards::new(8).unwrap();
    let pools = pools(&[Some(plain((0, 0), (1, u16::MAX)))], None, shards);
    let mut ports = all(&pools, shards, 1);
    for shard in &mut ports {
        let lease = shard.lease(0, PortClass::Udp, &key(9, 500)).unwrap();
        assert!(lease.port < 1024, "{lease:?}");
    }
    let of = &mut ports[3];
    for n in 0..20_000 {
        let lease = of.lease(0, PortClass::Tcp, &key(n, 5000)).unwrap();
        assert!(lease.port >= 1024, "{lease:?}");
    }
}

#[test]
fn pools_with_fewer_units_than_twice_the_shards_share_none() {
    let shards = Shards::new(16).unwrap();
    let pools = pools(&[Some(plain((0, 0), (1024, 1024 + 31 * 64 - 1)))], None, shards);
    let mut ports = all(&pools, shards, 1);
    for shard in &mut ports {
        let allocated = fill(shard, PortClass::Tcp, 1).len();
        assert!([64, 128].contains(&allocated), "{allocated}");
    }
    assert_eq!(0, pools.borrowed_blocks());
}

#[test]
fn soft_pairing_of_all_shards_lends_every_port_of_all_addresses() {
    let pool = Pool {
        pairing: Pairing::Soft,
        ..plain((0, 2), (1000, 9999))
    };
    let shards = Shards::new(8).unwrap();
    let pools = pools(&[Some(pool)], None, shards);
    let mut ports = all(&pools, shards, 3);
    let mut known = HashSet::new();
    for shard in (0..8).cycle().take(16) {
        for inside in 0..40_000 {
            match ports[shard].lease(0, PortClass::Query, &key(inside, 7)) {
                Ok(lease) => assert!(known.insert(lease)),
                Err(_) => break,
            }
        }
    }
    assert_eq!(27_000, known.len());
}

/// Addresses (first, last) and ports (first, last) of a pool; `None` if its index is unused.
type Place = Option<((u32, u32), (u16, u16))>;

#[test]
fn shared_ports_that_are_lent_stay_through_changes_that_leave_them_to_a_pool() {
    let shards = Shards::new(8).unwrap();
    let of = |places: &[Place]| -> Vec<_> {
        let pool = |place: &Place| place.map(|(addresses, ports)| plain(addresses, ports));
        places.iter().map(pool).collect()
    };
    let whole = (1024, u16::MAX);
    let cases = [
        // Cases: further addresses before and after; more ports; another pool; a change from fewer to more blocks than
        // shards.
        (of(&[Some(((2, 2), whole))]), of(&[Some(((0, 4), whole))])),
        (
            of(&[Some(((0, 0), (2048, 9999)))]),
            of(&[Some(((0, 0), (1, u16::MAX)))]),
        ),
        (of(&[Some(((0, 0), whole)), None]), of(&[None, Some(((0, 1), whole))])),
        (of(&[Some(((0, 0), (1024, 1791)))]), of(&[Some(((0, 0), whole))])),
    ];
    for (first, second) in cases {
        let first = pools(&first, None, shards);
        let mut ports = all(&first, shards, 8);
        let allocated = fill(&mut ports[3], PortClass::Udp, 1);
        let second = pools(&second, Some(&first), shards);
        ports
            .iter_mut()
            .for_each(|ports| ports.prepare_migration(&Layout::shared(&second, shards)));
        ports.iter_mut().for_each(Ports::migrate);
        assert!(allocated.len() >= 64);
        for &lease in &allocated {
            let pool = second.includes(0, lease.address, lease.port, lease.port).unwrap();
            assert!(second.get(pool).unwrap().keeps(shards, 3, lease.address, lease.port));
            assert_eq!(Some(3), home(&second, shards, lease), "{lease:?}");
        }
        let more: HashSet<_> = (0..8)
            .flat_map(|shard| fill(&mut ports[shard], PortClass::Udp, 9))
            .collect();
        assert!(allocated.iter().all(|lease| !more.contains(lease)));
        assert!(
            allocated
                .iter()
                .all(|&lease| ports[3].release(0, PortClass::Udp, lease))
        );
    }
}

/// A random distribution of six addresses over up to three pools.
fn layouts() -> impl Strategy<Value = Vec<Option<Pool<u32>>>> {
    let one = (0u32..4, 0u32..3, 1u16..6000, 0u16..6000, any::<bool>(), 0u8..4).prop_map(
        |(from, more, port, ports, soft, whole)| Pool {
            pairing: if soft { Pairing::Soft } else { Pairing::Hard },
            ..match whole {
                0 => plain((from, from + more), (port, port + ports)),
                _ => plain((from, from + more), (1024 * u16::from(whole), 8191)),
            }
        },
    );
    let some = proptest::collection::vec(proptest::option::of(one), 1..4);
    some.prop_filter("pools that overlap", |pools| {
        Pools::placed(&pools.iter().map(Option::as_ref).collect::<Vec<_>>()).is_ok()
    })
}

/// Model that records the owner of each port.
struct Oracle {
    shards: Shards,
    pools: Pools<u32>,
    allocated: HashMap<(PortClass, Lease<u32>), (u32, u16)>,
}

impl Oracle {
    /// The pool in which a session keeps its port; `None` if the session loses the port.
    fn stays(&self, shard: u32, lease: Lease<u32>) -> Option<u16> {
        let pool = self.pools.includes(0, lease.address, lease.port, lease.port)?;
        let is_of = self
            .pools
            .get(pool)?
            .is_of(self.shards, shard, lease.address, lease.port);
        is_of.then_some(pool)
    }

    fn allocated(&mut self, shard: u32, pool: u16, class: PortClass, lease: Lease<u32>) -> Result<(), TestCaseError> {
        if let Some(&(other, _)) = self.allocated.get(&(class, lease)) {
            prop_assert!(self.stays(other, lease).is_none(), "{lease:?} of {other} and {shard}");
        }
        prop_assert_eq!(Some(pool), self.stays(shard, lease));
        prop_assert_eq!(Some(shard), home(&self.pools, self.shards, lease));
        self.allocated.insert((class, lease), (shard, pool));
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Shards allocate and release ports at random while the pools change. Each shard migrates at a random time.
    #[test]
    fn shared_ports_are_never_lent_twice_and_come_home(
        changes in proptest::collection::vec((layouts(), any::<u64>(), 0usize..16), 1..6),
        shift in 2u32..5,
    ) {
        let shards = Shards::new(1 << shift).unwrap();
        let mut ports = all(&pools(&[None], None, shards), shards, 6);
        let mut oracle = Oracle { shards, pools: pools(&[None], None, shards), allocated: HashMap::new() };
        for (change, seed, greedy) in changes {
            oracle.pools = pools(&change, Some(&oracle.pools), shards);
            let next = Layout::shared(&oracle.pools, shards);
            ports.iter_mut().for_each(|ports| ports.prepare_migration(&next));
            let mut random = seed | 1;
            let mut below = |bound: usize| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                ((random >> 32) as usize * bound) >> 32
            };
            for step in 0..6000 {
                // One shard makes most allocations. Towards the end of the test, more ports are released than
                // allocated.
                let shard = if below(3) > 0 { greedy % ports.len() } else { below(ports.len()) };
                let class = PortClass::ALL[below(2)];
                if below(100) < if step < 4500 { 90 } else { 20 } {
                    let (pool, inside) = (below(3) as u16, below(6) as u32);
                    if let Ok(lease) = ports[shard].lease(pool, class, &key(inside, below(1 << 16) as u16)) {
                        oracle.allocated(shard as u32, pool, class, lease)?;
                    }
                } else if !ports.iter().any(Ports::is_migration_due) {
                    let place = below(oracle.allocated.len().max(1));
                    if let Some((&(class, lease), &(shard, pool))) = oracle.allocated.iter().nth(place) {
                        oracle.allocated.remove(&(class, lease));
                        let stays = oracle.stays(shard, lease).is_some();
                        prop_assert_eq!(stays, ports[shard as usize].release(pool, class, lease), "{:?}", lease);
                    }
                }
                if step == 2000 {
                    ports.iter_mut().for_each(Ports::migrate);
                    let lost: Vec<_> = oracle.allocated.iter().filter(|((_, lease), (shard, _))| {
                        oracle.stays(*shard, *lease).is_none()
                    }).map(|(&key, &value)| (key, value)).collect();
                    for ((class, lease), (shard, pool)) in lost {
                        oracle.allocated.remove(&(class, lease));
                        prop_assert!(!ports[shard as usize].release(pool, class, lease));
                    }
                }
            }
            for (shard, ports) in (0..).zip(&ports) {
                for (pool, _) in oracle.pools.iter() {
                    for class in PortClass::ALL {
                        let allocated = oracle.allocated.iter().filter(|((of, lease), (by, _))| {
                            (*of, *by) == (class, shard) && oracle.stays(shard, *lease) == Some(pool)
                        });
                        prop_assert_eq!(allocated.count() as u32, ports.used(pool, class));
                    }
                }
            }
        }
        for ((class, lease), (shard, pool)) in oracle.allocated {
            prop_assert!(ports[shard as usize].release(pool, class, lease));
        }
        prop_assert_eq!(0, oracle.pools.borrowed_blocks());
        // The shard to which the distribution assigns a port, or a shard that shares the port, can allocate the port.
        for (index, pool) in oracle.pools.iter().filter(|(_, pool)| pool.addresses() > 0) {
            for port in pool.ports().0..=pool.ports().1 {
                let lease = Lease { address: pool.address(0), port };
                let home = pool.shard_of(shards, lease.address, port);
                prop_assert!(ports[home as usize].claim(index, PortClass::Tcp, lease), "{lease:?}");
            }
        }
    }
}

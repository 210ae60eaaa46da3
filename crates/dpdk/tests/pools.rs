//! Tests of DMA addresses in the buffers of pools.

use crate::support::on_each_memory;
use sluice_dpdk::pool::{AF_XDP_BUFFER, JUMBO_BUFFER, ORDINARY_BUFFER, Pool, PoolSize};

#[test]
fn buffers_of_every_pool_carry_the_address_that_a_card_uses() {
    on_each_memory("buffers_of_every_pool_carry_the_address_that_a_card_uses", |scenario| {
        let sizes = [(ORDINARY_BUFFER, false), (JUMBO_BUFFER, false), (AF_XDP_BUFFER, true)];
        let sizes = sizes.map(|(data_room, adjoining)| PoolSize {
            count: 4095,
            data_room,
            cache: 0,
            adjoining,
        });
        let eal = scenario.eal(sizes.iter().map(PoolSize::bytes).sum::<usize>() + (32 << 20));
        for size in sizes {
            let pool = Pool::new(eal, "pool", size).unwrap_or_else(|error| panic!("{size:?}: {error}"));
            assert_eq!((0, size.count), (pool.misaddressed(), pool.available()), "{size:?}");
        }
    });
}

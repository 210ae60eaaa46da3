//! Tests of the selection of an uplink for a host's flows. The selection follows the weights and ignores uplinks that
//! are down. The loss of an uplink does not move flows of other uplinks.

use std::sync::Arc;

use proptest::prelude::*;
use sluice_route::neighbour::Neighbours;
use sluice_route::{
    Address, Balance, DropKind, Fib, Interface, NextHop, NextHopWriter, Prefix, Ribs, Route, RouteSet, SourceTables,
    Via,
};
use sluice_table::prefix::Quiescence;

fn gateway(uplink: usize) -> Address {
    Address::V4(0x0a00_0002 | (uplink as u32) << 8)
}

/// A router with one link for each uplink, and a default route over all uplinks.
struct Router {
    ribs: Ribs,
    fib: Fib,
    writer: NextHopWriter,
    sources: SourceTables,
}

impl Router {
    fn new(weights: &[u8], balance: Balance) -> Self {
        let quiescence = Arc::new(Quiescence::new(1));
        let neighbours = Arc::new(Neighbours::new(16, [3, 4]));
        let mut made = Self {
            ribs: Ribs::new(Default::default(), [1, 2]),
            fib: Fib::new(quiescence.clone()),
            writer: NextHopWriter::new(64, neighbours, quiescence),
            sources: SourceTables::default(),
        };
        let interface = |uplink: usize| Interface {
            index: uplink as u16,
            addresses: vec![(Address::V4(0x0a00_0001 | (uplink as u32) << 8), 24)],
        };
        let interfaces: Vec<_> = (0..weights.len()).map(interface).collect();
        let next_hop = |(uplink, &weight): (usize, &u8)| Route {
            weight,
            balance,
            ..Route::new(
                Prefix::ALL_V4,
                Via::Gateway {
                    address: gateway(uplink),
                    interface: None,
                },
            )
        };
        let routes: Vec<_> = weights.iter().enumerate().map(next_hop).collect();
        let set = RouteSet::new(&interfaces, &routes).unwrap();
        made.ribs
            .apply_all(&[set], |_| false, &mut made.fib, &mut made.writer, 0)
            .unwrap();
        made
    }

    fn set(&mut self, uplink: usize, up: bool) {
        let change = ((uplink as u16, gateway(uplink)), up);
        self.ribs.set_gateway(0, change, &mut self.fib, &mut self.writer);
    }

    /// The uplink that is selected for a flow of a host.
    fn uplink(&self, host: u32, flow: u64) -> Option<usize> {
        let lookup = self.sources.lookup(0, Address::V4(host));
        let index = self.fib.get(0, Prefix::ALL_V4)?;
        let table = self.writer.table();
        let taken = table.choose(index, |balance| match balance {
            Balance::Flow => flow,
            Balance::Host => lookup.host_hash(),
        });
        match table.get(taken) {
            NextHop::Gateway { interface, address } => {
                assert_eq!(gateway(interface.into()), address);
                Some(interface.into())
            }
            NextHop::Drop(DropKind::NoRoute) => None,
            other => panic!("{other:?}"),
        }
    }

    fn uplinks(&self, hosts: impl Iterator<Item = u32>) -> Vec<Option<usize>> {
        hosts.map(|host| self.uplink(host, 0)).collect()
    }
}

/// Number of hosts of a site.
const HOSTS: u32 = 4096;

fn hosts(first: u32) -> impl Iterator<Item = u32> {
    (0..HOSTS).map(move |number| first.wrapping_add(number))
}

proptest! {
    #[test]
    fn hosts_take_uplinks_by_weight_whatever_their_network(
        weights in prop::collection::vec(1_u8..=9, 1..6),
        first in any::<u32>(),
        flow in any::<u64>(),
    ) {
        let router = Router::new(&weights, Balance::Host);
        let taken = router.uplinks(hosts(first));
        let all: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
        for (uplink, &weight) in weights.iter().enumerate() {
            let share = taken.iter().filter(|&&one| one == Some(uplink)).count() as f64 / f64::from(HOSTS);
            let expected = f64::from(weight) / all;
            prop_assert!((share - expected).abs() < 0.05, "{share} of {expected}");
        }
        // The uplink does not depend on the flow.
        prop_assert_eq!(taken[0], router.uplink(first, flow));
    }

    #[test]
    fn uplink_that_is_lost_moves_its_own_hosts_and_no_others_and_gets_none(
        weights in prop::collection::vec(1_u8..=9, 2..6),
        changes in prop::collection::vec((0_usize..6, any::<bool>()), 1..20),
        first in any::<u32>(),
    ) {
        let mut router = Router::new(&weights, Balance::Host);
        let mut is_up = vec![true; weights.len()];
        let mut before = router.uplinks(hosts(first));
        for (uplink, up) in changes {
            let uplink = uplink % weights.len();
            let (was_up, had_any) = (is_up[uplink], is_up.contains(&true));
            is_up[uplink] = up;
            router.set(uplink, up);
            let after = router.uplinks(hosts(first));
            for (&old, &new) in before.iter().zip(&after) {
                prop_assert!(new.is_none_or(|new| is_up[new]));
                prop_assert_eq!(is_up.contains(&true), new.is_some());
                if was_up && !up && old != Some(uplink) {
                    prop_assert_eq!(old, new);
                }
                // An uplink that comes up again takes over hosts from other uplinks. No host moves from one of the
                // other uplinks to another.
                if !was_up && up && had_any && new != Some(uplink) {
                    prop_assert!(new == old, "{:?} became {:?}", old, new);
                }
            }
            before = after;
        }
    }
}

#[test]
fn flows_are_told_apart_where_they_are_shared_one_by_one() {
    let router = Router::new(&[1, 1], Balance::Flow);
    let taken: Vec<_> = (0..1024_u64).map(|flow| router.uplink(7, flow << 32)).collect();
    assert_eq!(512, taken.iter().filter(|&&uplink| uplink == Some(0)).count());
    let hosts = Router::new(&[1, 1], Balance::Host);
    let taken: Vec<_> = (0..1024_u64).map(|flow| hosts.uplink(7, flow << 32)).collect();
    assert!(taken.iter().all(|uplink| *uplink == taken[0]));
}

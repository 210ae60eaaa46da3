//! Measures the time in nanoseconds per packet to find the MAC for a destination. For a destination behind a gateway,
//! the neighbour is bound to the gateway; for an attached destination, the neighbour is looked up.

use std::sync::Arc;
use std::time::Instant;

use sluice_route::neighbour::{NeighbourMessage, NeighbourWriter, Neighbours, Timing};
use sluice_route::{Address, Fib, Interface, NextHop, NextHopWriter, Prefix, Ribs, Route, RouteSet, Via};
use sluice_table::prefix::Quiescence;

const HOSTS: u32 = 200;

fn main() {
    let quiescence = Arc::new(Quiescence::new(1));
    let neighbours = Arc::new(Neighbours::new(1024, [0x0123_4567, 0x89ab_cdef]));
    let mut writer = NeighbourWriter::new(neighbours.clone(), Timing::default(), 0);
    let mut next_hops = NextHopWriter::new(64, neighbours.clone(), quiescence.clone());
    let mut fib = Fib::new(quiescence);
    let network = 0x0a00_0000;
    let interface = Interface {
        index: 0,
        addresses: vec![(Address::V4(network + 250), 24)],
    };
    let gateway = Address::V4(network + 1);
    let via = Via::Gateway {
        address: gateway,
        interface: None,
    };
    let route = Route::new(Prefix::new(Address::V4(0), 0), via);
    let routes = RouteSet::new(&[interface], &[route]).expect("valid routes");
    let mut ribs = Ribs::new(Default::default(), [1, 2]);
    ribs.apply_all(&[routes], |_| false, &mut fib, &mut next_hops, 0)
        .expect("room for the routes");
    for host in 1..=HOSTS {
        let (address, mac) = (Address::V4(network + host), [2, 0, 0, 0, 0, host as u8]);
        writer.receive(
            0,
            address,
            Some(mac),
            NeighbourMessage::Solicitation,
            true,
            0,
            &mut |_| {},
        );
    }
    let (reader, table) = (fib.reader(), next_hops.table());
    let default = fib.get(0, route.prefix).expect("the default route");
    let neighbour = neighbours.find(0, gateway).expect("the gateway");
    assert!(table.bind(default, neighbour, &neighbours));
    let mut sum = 0u64;
    let mut cost = |name: &str, destination: fn(u32) -> u32| {
        let mut figures: Vec<f64> = (0..500u32)
            .map(|round| {
                let destinations: [u32; 4096] = std::array::from_fn(|lane| destination(round * 4096 + lane as u32));
                let begin = Instant::now();
                for destinations in destinations.chunks_exact(64) {
                    let mut values = [0; 64];
                    reader.v4.lookup_batch(&[0; 64], destinations, &mut values);
                    for (value, destination) in values.iter().zip(destinations) {
                        let mac = match table.adjacency(*value) {
                            Some((_, neighbour)) => neighbours.mac_for_sending(neighbour),
                            None => match table.get(*value) {
                                NextHop::Attached(interface) => neighbours
                                    .resolve(interface, Address::V4(*destination))
                                    .map(|found| found.mac),
                                _ => None,
                            },
                        };
                        sum += mac.map_or(0, |mac| mac[5] as u64);
                    }
                }
                begin.elapsed().as_secs_f64() * 1e9 / destinations.len() as f64
            })
            .collect();
        figures.sort_by(f64::total_cmp);
        println!("{name:<28}{:>8.2}", figures[figures.len() / 10]);
    };
    println!("{:<28}{:>8}", "way", "ns");
    cost("gateway, default route", |n| {
        0x4000_0000 | n.wrapping_mul(0x9e37_79b9) >> 3
    });
    cost("attached, 200 neighbours", |n| {
        0x0a00_0001 + n.wrapping_mul(0x9e37_79b9) % HOSTS
    });
    std::hint::black_box(sum);
}

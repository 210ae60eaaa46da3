//! Tests of quotas of virtual routers. Traffic above a quota is refused and counted, and other routers are not
//! affected.

use crate::sharing::Gateway;
use sluice_engine::snapshot::{Quotas, Snapshot};
use sluice_route::rib::{Offer, OfferedNextHop, Origin, Target, WeightedNextHop};
use sluice_route::{Address, Prefix};

const SECOND: u64 = 1_000_000_000;

/// A gateway with two routers on two ports. The first router has quotas.
fn gateway(quotas: Quotas) -> Gateway {
    let mut gateway = Gateway::with(
        &[1, 2],
        Default::default(),
        |_, _| {},
        move |snapshot: &mut Snapshot| snapshot.routers[0].quotas = quotas,
    );
    // The hosts' neighbours are resolved first, because ICMP errors are sent to the hosts.
    [0, 2]
        .iter()
        .for_each(|&interface| gateway.know(interface, "10.0.0.10"));
    gateway
}

/// A host of a router sends to this range of addresses on the outside link.
fn scans(gateway: &mut Gateway, router: usize, addresses: std::ops::Range<usize>) {
    for address in addresses {
        gateway.host_sends_to(router, &format!("192.0.2.{}:9", 2 + address % 250), 64);
    }
    for _ in 0..20 {
        gateway.round();
    }
}

fn neighbours(gateway: &Gateway, router: u16) -> usize {
    let table = gateway.plane.neighbours();
    let all = (0..table.capacity() as u32).map(sluice_route::neighbour::NeighbourIndex);
    let known = all.filter_map(|index| table.snapshot(index));
    let of = |known: &sluice_route::neighbour::Neighbour| {
        known.state != sluice_route::neighbour::State::Free && known.interface / 2 == router
    };
    known.filter(of).count()
}

#[test]
fn neighbours_above_the_quota_are_refused_and_those_of_others_asked_for() {
    let mut gateway = gateway(Quotas {
        neighbours: Some(40),
        ..Quotas::default()
    });
    scans(&mut gateway, 0, 0..200);
    // The configured neighbour counts against the quota.
    assert_eq!(
        (40, 162),
        (neighbours(&gateway, 0), gateway.drops(0, "neighbour-quota"))
    );
    scans(&mut gateway, 1, 0..200);
    assert_eq!((202, 0), (neighbours(&gateway, 1), gateway.drops(1, "neighbour-quota")));
    // Unresolved neighbours are removed after some seconds, which frees entries.
    for _ in 0..12 {
        gateway.pass(SECOND);
        (0..20).for_each(|_| gateway.round());
    }
    assert_eq!(2, neighbours(&gateway, 0));
    scans(&mut gateway, 0, 0..30);
    assert_eq!(
        (32, 162),
        (neighbours(&gateway, 0), gateway.drops(0, "neighbour-quota"))
    );
}

#[test]
fn neighbours_of_a_router_that_scans_leave_requests_and_room_to_others() {
    let mut gateway = Gateway::with(
        &[1, 2],
        sluice_engine::control::plane::NeighbourLimits {
            timing: sluice_route::neighbour::Timing {
                unresolved: 64,
                requests_per_second: 1_000,
                ..Default::default()
            },
            ..Default::default()
        },
        |_, _| {},
        |_| {},
    );
    scans(&mut gateway, 0, 0..200);
    // The entries are unresolved neighbours up to half of the limit, and the configured neighbour.
    assert_eq!(33, neighbours(&gateway, 0));
    gateway.wires.take_sent();
    gateway.host_sends_to(1, "192.0.2.77:9", 64);
    gateway.round();
    let queried = gateway.wires.take_sent();
    let asks = |sent: &sluice_engine::packet::io::memory::Sent| {
        sent.frame[16..18] == [8, 6] && sent.frame.ends_with(&[192, 0, 2, 77])
    };
    assert!(queried.iter().any(asks), "{queried:?}");
}

#[test]
fn packets_that_wait_above_the_quota_are_dropped_and_those_of_others_wait() {
    let mut gateway = gateway(Quotas {
        buffers: Some(5),
        ..Quotas::default()
    });
    scans(&mut gateway, 0, 0..20);
    scans(&mut gateway, 1, 0..20);
    assert_eq!([15, 0], [0, 1].map(|router| gateway.drops(router, "buffer-quota")));
    let counters = &gateway.plane.counters()[0].interfaces;
    assert_eq!([5, 20], [0, 2].map(|number: usize| counters[number].parked.get()));
}

#[test]
fn routes_above_the_quota_are_refused_and_counted_and_those_of_others_learned() {
    let mut gateway = gateway(Quotas {
        routes: Some(10),
        ..Quotas::default()
    });
    let learn = |gateway: &mut Gateway, router: u16, count: u32| {
        let via = "192.0.2.254".parse::<std::net::IpAddr>().unwrap().into();
        let hops = [WeightedNextHop::new(OfferedNextHop::Via(via))];
        let mut learned = 0;
        gateway.plane.change_routes(router, |rib| {
            for number in 0..count {
                let offer = Offer {
                    origin: Origin::Fpm,
                    protocol: 186,
                    distance: 20,
                    metric: 0,
                    target: Target::Hops(&hops),
                };
                let prefix = Prefix::new(Address::V4(0x2d00_0000 + (number << 8)), 24);
                learned += u32::from(rib.offer(prefix, &offer, 0).is_ok());
            }
        });
        let refused = gateway.plane.ribs().get(router).unwrap().counts().refused_quota;
        (learned, refused)
    };
    assert_eq!((10, 15), learn(&mut gateway, 0, 25));
    assert_eq!((25, 0), learn(&mut gateway, 1, 25));
    // Commits a higher quota.
    gateway.commit(|snapshot| snapshot.routers[0].quotas.routes = Some(20));
    assert_eq!((20, 20), learn(&mut gateway, 0, 25));
}

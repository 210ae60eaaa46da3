//! Tests of lists of mappings, subscribers and port blocks while there is traffic.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, Plan, Rig};
use sluice_engine::worker::request::{
    BindingFilter, BindingList, BindingUsage, BlockInfo, Cursor, Endpoint, Filter, MappingInfo, Reply, Request,
    SubscriberInfo,
};
use sluice_nat::PortClass;
use sluice_nat::behaviour::Blocks;
use sluice_route::Prefix;
use sluice_testkit::packet;
use sluice_wire::Checksums;

const BLOCKS: Blocks = Blocks {
    size: 128,
    max: 8,
    spare: true,
};

fn plan(workers: usize) -> Plan {
    Plan {
        workers,
        sessions: 65_536,
        pool: vec![(rig::v4("203.0.113.64"), rig::v4("203.0.113.95"))],
        change_pool: |pool| pool.blocks = Some(BLOCKS),
        ..Plan::default()
    }
}

fn host(number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(192, 168, 64 + high, low)
}

/// A gateway with sessions of `hosts` hosts. Each host has `flows` mappings, and each mapping has two sessions.
fn opened(hosts: u16, flows: u16, workers: usize) -> Rig {
    let mut rig = Rig::new(plan(workers));
    for number in 0..hosts {
        for port in 0..flows {
            for remote in ["198.51.100.7:53", "198.51.100.8:53"] {
                let from = SocketAddrV4::new(host(number), 5000 + port);
                let frame = packet::udp4(from, remote).macs(HOST_MAC, INSIDE_MAC);
                rig.wires[0].inject(INSIDE, &frame.build(), Checksums::Unverified);
            }
        }
        rig.round();
    }
    assert_eq!(
        u64::from(hosts) * u64::from(flows) * 2,
        rig.live(),
        "{:?}",
        rig.all_drops()
    );
    rig.sent();
    rig
}

/// Requests the list from every worker, and passes each part of it to `part`. The function `memory` allocates the
/// memory for each part.
fn list(rig: &mut Rig, filter: BindingFilter, memory: impl Fn() -> BindingList, mut part: impl FnMut(BindingList)) {
    for worker in 0..rig.workers.len() {
        let mut cursor = Some(Cursor::default());
        while let Some(from) = cursor {
            let request = Request::ListBindings {
                cursor: from,
                filter,
                into: memory(),
            };
            let Reply::ListedBindings { next, into } = rig.ask(worker, request) else {
                panic!("not a list")
            };
            part(into);
            cursor = next;
        }
    }
}

fn mappings(rig: &mut Rig, filter: BindingFilter, capacity: usize) -> Vec<MappingInfo> {
    let mut found = Vec::new();
    let memory = || BindingList::Mappings(Vec::with_capacity(capacity));
    list(rig, filter, memory, |part| {
        let BindingList::Mappings(part) = part else {
            panic!("others")
        };
        assert!(part.len() <= capacity);
        found.extend(part);
    });
    found
}

fn subscribers(rig: &mut Rig, filter: BindingFilter, capacity: usize) -> Vec<SubscriberInfo> {
    let mut found = Vec::new();
    let memory = || BindingList::Subscribers(Vec::with_capacity(capacity));
    list(rig, filter, memory, |part| {
        let BindingList::Subscribers(part) = part else {
            panic!("others")
        };
        assert!(part.len() <= capacity);
        found.extend(part);
    });
    found
}

fn blocks(rig: &mut Rig, filter: BindingFilter, capacity: usize) -> Vec<BlockInfo> {
    let mut found = Vec::new();
    let memory = || BindingList::Blocks(Vec::with_capacity(capacity));
    list(rig, filter, memory, |part| {
        let BindingList::Blocks(part) = part else {
            panic!("others")
        };
        assert!(part.len() <= capacity);
        found.extend(part);
    });
    found
}

fn of(inside: Option<&str>, outside: Option<Endpoint>) -> BindingFilter {
    let net = |text: &str| {
        let (address, length) = text.split_once('/').unwrap();
        Prefix::new(address.parse::<IpAddr>().unwrap().into(), length.parse().unwrap())
    };
    BindingFilter {
        inside: inside.map(|text| Endpoint {
            net: Some(net(text)),
            port: None,
        }),
        outside,
        ..BindingFilter::default()
    }
}

#[test]
fn mappings_are_listed_once_whatever_memory_is_given() {
    for (workers, capacities) in [(1, &[1, 7, 64, 5000][..]), (4, &[100])] {
        let mut rig = opened(40, 20, workers);
        for &capacity in capacities {
            let found = mappings(&mut rig, BindingFilter::default(), capacity);
            assert_eq!(800, found.len(), "{capacity}");
            let insides: BTreeSet<_> = found.iter().map(|mapping| mapping.inside).collect();
            let outsides: BTreeSet<_> = found.iter().map(|mapping| mapping.outside).collect();
            assert_eq!((800, 800), (insides.len(), outsides.len()));
            assert!(
                found
                    .iter()
                    .all(|mapping| mapping.sessions == 2 && mapping.class == PortClass::Udp)
            );
        }
    }
}

#[test]
fn mappings_of_a_filter_are_those_of_the_host_or_the_outside_port() {
    let mut rig = opened(10, 5, 2);
    let own = mappings(&mut rig, of(Some("192.168.64.3/32"), None), 64);
    assert_eq!(5, own.len());
    assert!(own.iter().all(|mapping| mapping.inside.0 == IpAddr::V4(host(3))));
    let (address, port) = own[2].outside;
    let outside = Endpoint {
        net: Some(Prefix::new(address.into(), 32)),
        port: Some(port),
    };
    assert_eq!(vec![own[2]], mappings(&mut rig, of(None, Some(outside)), 64));
    let tcp = BindingFilter {
        class: Some(PortClass::Tcp),
        ..BindingFilter::default()
    };
    assert_eq!(0, mappings(&mut rig, tcp, 64).len());
    let other = BindingFilter {
        pool: Some(1),
        ..BindingFilter::default()
    };
    assert_eq!(0, mappings(&mut rig, other, 64).len());
}

#[test]
fn subscribers_are_listed_with_what_they_use() {
    let mut rig = opened(50, 3, 2);
    for capacity in [1, 64] {
        let found = subscribers(&mut rig, BindingFilter::default(), capacity);
        let addresses: BTreeSet<_> = found.iter().map(|subscriber| subscriber.address).collect();
        assert_eq!((50, 50), (found.len(), addresses.len()));
        for subscriber in found {
            assert_eq!(
                (6, [0, 3, 0], 1),
                (subscriber.sessions, subscriber.ports, subscriber.blocks)
            );
        }
    }
    assert_eq!(16, subscribers(&mut rig, of(Some("192.168.64.16/28"), None), 64).len());
}

#[test]
fn blocks_are_listed_with_their_subscriber_and_hold_its_ports() {
    // The host has more mappings than a block has ports.
    let mut rig = opened(6, 300, 2);
    for capacity in [8, 10, 1000] {
        let found = blocks(&mut rig, BindingFilter::default(), capacity);
        assert_eq!(6 * 3, found.len(), "{capacity}");
        let places: BTreeSet<_> = found.iter().map(|block| (block.address, block.first)).collect();
        assert_eq!(6 * 3, places.len());
        assert!(
            found
                .iter()
                .all(|block| block.last - block.first == 127 && block.first % 128 == 0)
        );
        let used: u32 = found
            .iter()
            .map(|block| u32::from(block.used[PortClass::Udp as usize]))
            .sum();
        assert_eq!(6 * 300, used);
    }
    let own = mappings(&mut rig, of(Some("192.168.64.2/32"), None), 64);
    let (address, port) = own[0].outside;
    let outside = Endpoint {
        net: Some(Prefix::new(address.into(), 32)),
        port: Some(port),
    };
    let found = blocks(&mut rig, of(None, Some(outside)), 64);
    let [block] = &found[..] else { panic!("{found:?}") };
    assert_eq!(IpAddr::V4(host(2)), block.subscriber);
    assert!((block.first..=block.last).contains(&port));
}

#[test]
fn use_of_a_pool_is_the_sum_of_what_is_lent() {
    let mut rig = opened(6, 300, 2);
    let mut sum = BindingUsage::default();
    for worker in 0..2 {
        let pools = Box::new(BindingUsage {
            ports: vec![[0; 3]; 2],
            ..BindingUsage::default()
        });
        let Reply::Used(part) = rig.ask(worker, Request::Use(pools)) else {
            panic!("no sum")
        };
        assert_eq!([0; 3], part.ports[1]);
        sum.mappings[0] += part.mappings[0];
        sum.subscribers[0] += part.subscribers[0];
        sum.blocks[0] += part.blocks[0];
        sum.held += part.held;
        sum.ports.resize(1, [0; 3]);
        sum.ports[0][1] += part.ports[0][1];
    }
    assert_eq!(
        (1800, 6, 18, 0),
        (sum.mappings[0], sum.subscribers[0], sum.blocks[0], sum.held)
    );
    assert_eq!(1800, sum.ports[0][1]);
}

#[test]
fn sessions_cleared_by_host_or_pool_take_their_mappings_with_them() {
    let mut rig = opened(5, 4, 1);
    let clear = |filter| Request::Clear {
        cursor: Cursor::default(),
        filter,
        ended: 0,
    };
    let one = Filter {
        inside: of(Some("192.168.64.3/32"), None).inside,
        ..Filter::default()
    };
    assert!(matches!(rig.ask(0, clear(one)), Reply::Cleared(8)));
    assert_eq!(16, mappings(&mut rig, BindingFilter::default(), 64).len());
    assert_eq!(4, subscribers(&mut rig, BindingFilter::default(), 64).len());
    let pool = |pool| Filter {
        pool: Some(pool),
        translated: true,
        ..Filter::default()
    };
    let prefix = |text: &str| Filter {
        subscriber: of(Some(text), None).inside.unwrap().net,
        ..Filter::default()
    };
    assert!(matches!(
        rig.ask(0, clear(prefix("192.168.64.8/29"))),
        Reply::Cleared(0)
    ));
    assert!(matches!(
        rig.ask(0, clear(prefix("192.168.64.4/32"))),
        Reply::Cleared(8)
    ));
    assert!(matches!(rig.ask(0, clear(pool(1))), Reply::Cleared(0)));
    assert!(matches!(rig.ask(0, clear(pool(0))), Reply::Cleared(24)));
    assert_eq!(0, subscribers(&mut rig, BindingFilter::default(), 64).len());
    assert_eq!(0, blocks(&mut rig, BindingFilter::default(), 64).len());
    let frame = packet::udp4(SocketAddrV4::new(host(3), 5000), "198.51.100.7:53");
    rig.wires[0].inject(INSIDE, &frame.macs(HOST_MAC, INSIDE_MAC).build(), Checksums::Unverified);
    rig.round();
    assert_eq!(OUTSIDE, rig.sent()[0].port);
}

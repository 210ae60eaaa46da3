//! Tests of pool changes with existing sessions: a session is unchanged if its port stays in a pool, all other sessions
//! end, and no port leaks.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};

use crate::rig::{self, INSIDE, OUTSIDE, Plan, Rig, flow, plain};
use proptest::prelude::*;
use sluice_engine::session::family::V4;
use sluice_engine::snapshot::Nat;
use sluice_engine::worker::request::{Cursor, Filter, Reply, Request, SessionInfo};
use sluice_nat::behaviour::SubscriberLimits;
use sluice_nat::rule::{Prefix, Rules, SourceAction, SourceRule};
use sluice_nat::{Pool, Pools};
use sluice_testkit::packet::{self, Frame};

const PUBLIC: u32 = Ipv4Addr::new(203, 0, 113, 16).to_bits();
const HOSTS: u8 = 6;

/// A pool, or `None` if the pool does not exist. The fields are: offset of its first address, number of further
/// addresses, first port, number of further ports.
type Place = Option<(u32, u32, u16, u16)>;

fn pools(places: &[Place]) -> Option<Pools<u32>> {
    pools_of(places, SubscriberLimits::default())
}

fn pools_of(places: &[Place], subscriber: SubscriberLimits) -> Option<Pools<u32>> {
    let made: Vec<_> = places
        .iter()
        .map(|place| {
            place.map(|(from, more, port, ports)| Pool {
                addresses: vec![(PUBLIC + from, PUBLIC + from + more)],
                ports: port..=port + ports,
                behaviour: [sluice_nat::Behaviour::ADDRESS_AND_PORT_DEPENDENT; 3],
                subscriber,
                ..Pool::new(0, 0)
            })
        })
        .collect();
    Pools::placed(&made.iter().map(Option::as_ref).collect::<Vec<_>>()).ok()
}

/// The pool of a host: even hosts use the first pool, odd hosts use the last pool.
fn pool_of(places: &[Place], host: u8) -> Option<u16> {
    let mut present = (0u16..).zip(places).filter(|(_, place)| place.is_some());
    let found = if host.is_multiple_of(2) {
        present.next()
    } else {
        present.last()
    };
    found.map(|(place, _)| place)
}

fn inside(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 1, 10 + host)
}

fn nat(places: &[Place], pools: Pools<u32>) -> Nat<V4> {
    let rule = |host| {
        let inside = Prefix::host(inside(host).to_bits());
        Some(SourceRule {
            outside: Some(OUTSIDE),
            ..SourceRule::of(inside, SourceAction::Pool(pool_of(places, host)?))
        })
    };
    let source: Vec<_> = (0..HOSTS).filter_map(rule).collect();
    let rules = Rules::new(&source, &[], &pools).unwrap();
    Nat {
        rules,
        pools,
        ..Nat::default()
    }
}

fn commit(rig: &mut Rig, places: &[Place]) -> bool {
    commit_of(rig, places, pools(places).unwrap())
}

fn commit_of(rig: &mut Rig, places: &[Place], pools: Pools<u32>) -> bool {
    let (mut snapshot, routes) = rig::snapshot(&Plan::default());
    snapshot.nat4 = nat(places, pools);
    rig.plane.commit(snapshot, std::slice::from_ref(&routes)).is_ok()
}

fn settle(rig: &mut Rig) {
    while !rig.plane.is_migrated() {
        rig.round();
    }
}

fn rig(workers: usize, places: &[Place]) -> Rig {
    let mut rig = Rig::new(Plan {
        workers,
        spare_addresses: 64,
        ..Plan::default()
    });
    for host in 0..HOSTS {
        rig.know(INSIDE, plain(&inside(host).to_string()), rig::HOST_MAC);
    }
    assert!(commit(&mut rig, places));
    settle(&mut rig);
    rig
}

fn opening(host: u8, port: u16) -> Frame {
    let from = SocketAddrV4::new(inside(host), 2000 + port);
    let remote: SocketAddrV4 = "198.51.100.7:443".parse().unwrap();
    match port % 2 {
        0 => packet::udp4(from, remote),
        _ => packet::tcp4(from, remote).flags(sluice_wire::tcp::flag::SYN),
    }
}

/// The public source of a host's packet; `None` if the packet does not leave.
fn public(rig: &mut Rig, host: u8, port: u16) -> Option<SocketAddrV4> {
    let sent = rig.host_sends(&opening(host, port));
    let out = sent.iter().find(|sent| sent.port == OUTSIDE)?;
    Some(flow(&out.frame).0)
}

/// The shard that owns a port of a pool; `None` if no pool contains the port.
fn shard_of(rig: &Rig, pools: &Pools<u32>, address: u32, port: u16) -> Option<u32> {
    let pool = pools.get(pools.includes(0, address, port, port)?)?;
    Some(pool.shard_of(rig.plane.start_parameters().steering.shards(), address, port))
}

/// Whether a shard owns a port, according to the newest pools.
fn is_of(rig: &Rig, shard: u16, address: u32, port: u16) -> bool {
    let pools = &rig.plane.snapshot().nat4.pools;
    let pool = pools.includes(0, address, port, port).and_then(|pool| pools.get(pool));
    let shards = rig.plane.start_parameters().steering.shards();
    pool.is_some_and(|pool| pool.is_of(shards, shard.into(), address, port))
}

/// Checks that no port is allocated twice. If the migration is complete, also checks that the allocated ports belong to
/// sessions and are in the pools. A session with a port of another shard counts as ended.
fn check(rig: &mut Rig, places: &[Place], settled: bool) {
    let pools = pools(places).unwrap();
    let sessions = rig.sessions(Filter::default());
    let mut leases = HashSet::new();
    let mut held = HashMap::new();
    for session in sessions.iter().filter(|session| session.pool.is_some()) {
        let IpAddr::V4(address) = session.reverse.destination else {
            panic!("an IPv4 session")
        };
        let port = session.reverse.destination_port;
        let is_its = is_of(rig, session.shard, address.to_bits(), port);
        if !settled && !is_its {
            continue;
        }
        assert!(
            leases.insert((session.protocol, address, port)),
            "held twice: {session:?}"
        );
        if settled {
            assert!(is_its, "another shard has the port of {session:?}");
            assert_eq!(pools.includes(0, address.to_bits(), port, port), session.pool);
            *held.entry(session.pool.unwrap()).or_insert(0) += 1;
        }
    }
    for pool in (0..places.len() as u16).filter(|_| settled) {
        let allocated: u32 = rig.workers.iter().map(|worker| worker.allocated_ports(pool)).sum();
        assert_eq!(
            held.get(&pool).copied().unwrap_or(0),
            allocated,
            "leases of pool {pool}"
        );
    }
}

fn clear(rig: &mut Rig) {
    for worker in 0..rig.workers.len() {
        let request = Request::Clear {
            cursor: Cursor::default(),
            filter: Filter::default(),
            ended: 0,
        };
        assert!(matches!(rig.ask(worker, request), Reply::Cleared(_)));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send(u8, u16),
    Apply(Vec<Place>),
    Settle,
}

fn places() -> impl Strategy<Value = Vec<Place>> {
    let place = proptest::option::weighted(0.8, (0u32..6, 0u32..4, 1024u16..1200, 60u16..300));
    proptest::collection::vec(place, 3).prop_filter("pools that overlap", |places| pools(places).is_some())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..HOSTS, 0u16..8).prop_map(|(host, port)| Step::Send(host, port)),
        2 => places().prop_map(Step::Apply),
        1 => Just(Step::Settle),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn applies_at_random_leave_the_leases_of_the_sessions_and_no_others(
        first in places(), steps in proptest::collection::vec(step(), 1..80), workers in 1usize..3,
    ) {
        let mut rig = rig(workers, &first);
        let mut now = first;
        let mut known: HashMap<(u8, u16), SocketAddrV4> = HashMap::new();
        for step in steps {
            match step {
                Step::Send(host, port) => {
                    let includes = |public: &SocketAddrV4| {
                        let owner = pools(&now).unwrap().includes(0, public.ip().to_bits(), public.port(), public.port());
                        owner.is_some() && owner == pool_of(&now, host)
                    };
                    let expected = known.get(&(host, port)).copied().filter(includes);
                    let found = public(&mut rig, host, port);
                    match (expected, found) {
                        (Some(expected), found) => prop_assert_eq!(Some(expected), found, "a lease that stays"),
                        (None, Some(found)) if pool_of(&now, host).is_some() => prop_assert!(includes(&found)),
                        (None, Some(found)) => prop_assert_eq!(inside(host), *found.ip()),
                        (None, None) => {}
                    }
                    known.remove(&(host, port));
                    known.extend(found.map(|found| ((host, port), found)));
                }
                Step::Apply(places) => {
                    if commit(&mut rig, &places) {
                        let [before, after] = [&now, &places].map(|places| pools(places).unwrap());
                        known.retain(|_, public| {
                            let shard = |pools| shard_of(&rig, pools, public.ip().to_bits(), public.port());
                            shard(&after).is_some() && shard(&before) == shard(&after)
                        });
                        now = places;
                    }
                }
                Step::Settle => {
                    settle(&mut rig);
                    check(&mut rig, &now, true);
                }
            }
            check(&mut rig, &now, false);
        }
        settle(&mut rig);
        check(&mut rig, &now, true);
        clear(&mut rig);
        prop_assert_eq!(0, rig.live());
        let allocated = rig.workers.iter().flat_map(|worker| (0..3).map(|pool| worker.allocated_ports(pool)));
        prop_assert_eq!(0u32, allocated.sum::<u32>());
    }
}

#[test]
fn pool_that_loses_an_address_ends_its_silent_sessions_and_counts_them() {
    let (both, one) = ([Some((0, 1, 1024, 999))], [Some((0, 0, 1024, 999))]);
    let mut rig = rig(2, &both);
    let before: Vec<_> = (0..HOSTS).map(|host| public(&mut rig, host, 0).unwrap()).collect();
    let lost = before.iter().filter(|public| public.ip().to_bits() != PUBLIC).count() as u64;
    assert!((1..HOSTS.into()).contains(&lost), "{before:?}");
    assert!(commit(&mut rig, &one));
    settle(&mut rig);
    assert_eq!(u64::from(HOSTS) - lost, rig.live());
    let withdrawn = rig
        .plane
        .counters()
        .iter()
        .map(|worker| worker.sessions_withdrawn.get());
    assert_eq!(lost, withdrawn.sum::<u64>());
    check(&mut rig, &one, true);
    for (host, before) in (0..HOSTS).zip(before) {
        let now = public(&mut rig, host, 0).unwrap();
        assert_eq!(PUBLIC, now.ip().to_bits());
        assert!(before.ip() != now.ip() || before == now);
    }
}

#[test]
fn pool_that_gains_addresses_and_ports_keeps_every_session() {
    let mut rig = rig(1, &[Some((1, 0, 2000, 500))]);
    let before: Vec<_> = (0..HOSTS).map(|host| public(&mut rig, host, 1)).collect();
    let more = [Some((0, 3, 1024, 40_000))];
    assert!(commit(&mut rig, &more));
    let after: Vec<_> = (0..HOSTS).map(|host| public(&mut rig, host, 1)).collect();
    assert_eq!(before, after);
    settle(&mut rig);
    check(&mut rig, &more, true);
}

#[test]
fn address_that_goes_to_another_pool_takes_its_sessions_along() {
    let mut rig = rig(1, &[Some((0, 0, 2000, 500)), None, None]);
    let before = public(&mut rig, 3, 0);
    let moved = [None, None, Some((0, 2, 1500, 2000))];
    assert!(commit(&mut rig, &moved));
    settle(&mut rig);
    assert_eq!(Some(2), rig.sessions(Filter::default())[0].pool);
    assert_eq!(before, public(&mut rig, 3, 0));
    check(&mut rig, &moved, true);
}

#[test]
fn addresses_of_a_pool_with_limits_that_go_to_another_pool_come_back_whole() {
    let limits = SubscriberLimits {
        sessions: Some(1000),
        ..SubscriberLimits::default()
    };
    let (before, after) = ([Some((0, 0, 2000, 500)), None], [None, Some((0, 0, 2000, 500))]);
    let mut rig = rig(1, &[None, None]);
    assert!(commit_of(&mut rig, &before, pools_of(&before, limits).unwrap()));
    settle(&mut rig);
    for port in 0..20 {
        public(&mut rig, 3, port).unwrap();
    }
    // The counts of a subscriber can't move to another pool. The sessions therefore end, and the new pool can allocate
    // all of their ports.
    assert!(commit_of(&mut rig, &after, pools_of(&after, limits).unwrap()));
    settle(&mut rig);
    check(&mut rig, &after, true);
}

#[test]
fn pools_larger_than_the_memory_are_refused_and_nothing_changes() {
    let small = [Some((0, 0, 1024, 999))];
    let mut rig = rig(1, &small);
    let before = public(&mut rig, 0, 0);
    assert!(!commit(&mut rig, &[Some((0, 200, 1024, 60_000))]));
    assert_eq!(before, public(&mut rig, 0, 0));
    check(&mut rig, &small, true);
}

#[test]
fn pools_do_not_change_again_before_the_last_change_is_settled() {
    let (both, one) = ([Some((0, 1, 1024, 999))], [Some((0, 0, 1024, 999))]);
    let mut rig = rig(1, &both);
    assert!(commit(&mut rig, &one));
    assert!(!commit(&mut rig, &both));
    // All other changes of the configuration are permitted.
    assert!(commit(&mut rig, &one));
    settle(&mut rig);
    assert!(commit(&mut rig, &both));
}

#[test]
fn pool_whose_ports_come_to_other_shards_ends_sessions_of_ports_that_shards_do_not_share() {
    // At first, each address has fewer port blocks than there are shards. Then the pool gets so many blocks that every
    // second block is shared. Then the pool changes back.
    let (narrow, wide) = ([Some((0, 6, 1024, 127))], [Some((0, 6, 1024, 999))]);
    for (before, after) in [(&narrow, &wide), (&wide, &narrow)] {
        let mut rig = rig(2, before);
        let hosts = 0..HOSTS * 8;
        for host in hosts.clone() {
            public(&mut rig, host % HOSTS, host.into()).unwrap();
        }
        let (stays, live) = (pools(after).unwrap(), rig.live());
        let moved = |rig: &Rig, session: &SessionInfo| {
            let IpAddr::V4(address) = session.reverse.destination else {
                panic!("an IPv4 session")
            };
            shard_of(rig, &stays, address.to_bits(), session.reverse.destination_port) != Some(session.shard.into())
        };
        let sessions = rig.sessions(Filter::default());
        let moved: Vec<_> = sessions.iter().filter(|session| moved(&rig, session)).collect();
        assert!(!moved.is_empty(), "of {live}");
        // With the wide pool, the second block of each pair is shared, and stays with its shard.
        let is_shared = |session: &SessionInfo| after == &wide && session.reverse.destination_port / 64 % 2 == 1;
        let lost = moved.iter().filter(|session| !is_shared(session)).count() as u64;
        assert!(commit(&mut rig, after));
        settle(&mut rig);
        assert_eq!(live - lost, rig.live());
        check(&mut rig, after, true);
        for host in hosts {
            public(&mut rig, host % HOSTS, host.into()).unwrap();
        }
        check(&mut rig, after, true);
    }
}

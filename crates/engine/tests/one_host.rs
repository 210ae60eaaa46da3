//! Tests of the capacity that a single host can use: half of the table, independently of the number of workers.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, POOL, Plan, ROUTER_MAC, Rig, flow, plain};
use sluice_engine::worker::request::{Filter, Reply, Request};
use sluice_nat::{Behaviour, Blocks, Pool};
use sluice_testkit::packet;

const SESSIONS: u32 = 4_096;

/// The host with this number. Consecutive hosts belong to different shards.
fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 1, 10 + number)
}

fn rig(workers: usize, shards: u32, behaviour: Behaviour) -> Rig {
    let mut rig = Rig::new(Plan {
        workers,
        shards,
        sessions: SESSIONS,
        shares: true,
        behaviour,
        ..Plan::default()
    });
    for number in 0..16 {
        rig.know(INSIDE, plain(&host(number).to_string()), HOST_MAC);
    }
    rig
}

/// Creates sessions from consecutive ports of a host until a session is refused. Returns the outside endpoints of the
/// created sessions.
fn fill(rig: &mut Rig, number: u8) -> Vec<SocketAddrV4> {
    let mut publics = Vec::new();
    for port in 1024..u16::MAX {
        let frame = packet::udp4(SocketAddrV4::new(host(number), port), "198.51.100.7:53");
        let sent = rig.send(INSIDE, &frame.macs(HOST_MAC, INSIDE_MAC).build());
        match sent.iter().find(|sent| sent.port == OUTSIDE) {
            Some(sent) => publics.push(flow(&sent.frame).0),
            None => break,
        }
    }
    publics
}

/// Whether an answer reaches the host's port.
fn answers(rig: &mut Rig, number: u8, public: SocketAddrV4, port: u16) -> bool {
    let frame = packet::udp4("198.51.100.7:53", public).macs(ROUTER_MAC, OUTSIDE_MAC);
    let sent = rig.send(OUTSIDE, &frame.build());
    matches!(&sent[..], [one] if one.port == INSIDE && flow(&one.frame).1 == SocketAddrV4::new(host(number), port))
}

#[test]
fn one_host_has_half_of_the_table_and_every_answer_finds_it() {
    let of_sessions = Behaviour::ADDRESS_AND_PORT_DEPENDENT;
    for (workers, shards, behaviour) in [
        (1, 1, Behaviour::default()),
        (2, 2, Behaviour::default()),
        (2, 4, of_sessions),
        (2, 16, Behaviour::default()),
        (3, 16, of_sessions),
    ] {
        let mut rig = rig(workers, shards, behaviour);
        let publics = fill(&mut rig, 0);
        let least = if shards == 1 { SESSIONS } else { SESSIONS / 2 };
        assert!(publics.len() >= least as usize, "{} of {shards} shards", publics.len());
        assert_eq!(1, rig.drops("sessions-full"), "{:?}", rig.all_drops());
        assert_eq!(publics.len() as u64, rig.live());
        for (&public, port) in publics.iter().zip(1024..).step_by(7) {
            assert!(answers(&mut rig, 0, public, port), "{port} of {shards} shards");
        }
        assert_eq!(publics.len(), rig.sessions(Filter::default()).len());
    }
}

#[test]
fn others_keep_their_own_share_while_one_has_all_that_is_shared() {
    let mut rig = rig(2, 16, Behaviour::default());
    fill(&mut rig, 0);
    let steering = &rig.plane.start_parameters().steering;
    let shard = |number: u8| steering.key(false).hash(&host(number).octets()) & 15;
    let others: Vec<_> = (1..16).filter(|&number| shard(number) != shard(0)).collect();
    assert!(others.len() > 8);
    for number in others {
        assert_eq!(SESSIONS as usize / 16, fill(&mut rig, number).len(), "host {number}");
    }
}

#[test]
fn what_is_shared_comes_back_when_sessions_end() {
    let mut rig = rig(2, 16, Behaviour::default());
    for number in [0, 1, 2] {
        let publics = fill(&mut rig, number);
        assert!(
            publics.len() >= SESSIONS as usize / 2,
            "{} of host {number}",
            publics.len()
        );
        rig.seconds(400);
        assert_eq!(0, rig.live());
        assert!(!answers(&mut rig, number, publics[1], 1025));
    }
}

/// A gateway with four workers, sixteen shards and one outside address. The mapping table has one entry for each
/// port.
fn of_one_address(behaviour: Behaviour, change_pool: fn(&mut Pool<u32>), ports_together: u32) -> Rig {
    let mut rig = Rig::new(Plan {
        workers: 4,
        shards: 16,
        sessions: 80_000,
        shares: true,
        pool: vec![(POOL.to_bits(), POOL.to_bits())],
        behaviour,
        change_pool,
        ports_together,
        ..Plan::default()
    });
    for number in 0..32 {
        rig.know(INSIDE, plain(&host(number).to_string()), HOST_MAC);
    }
    rig
}

/// The worker to which a NIC delivers an answer, according to the RSS key.
fn card(rig: &Rig, public: SocketAddrV4) -> usize {
    let input = [&public.ip().octets()[..], &public.port().to_be_bytes()].concat();
    let start = rig.plane.start_parameters();
    let shard = start.steering.key(true).hash(&input) & 15;
    usize::from(start.owners.of(shard as u16).unwrap())
}

/// Whether an answer that arrives at the worker selected by a NIC reaches the host's port.
fn is_answered(rig: &mut Rig, number: u8, public: SocketAddrV4, port: u16) -> bool {
    let frame = packet::udp4("198.51.100.7:53", public).macs(ROUTER_MAC, OUTSIDE_MAC);
    let worker = card(rig, public);
    let sent = rig.send_at(worker, OUTSIDE, &frame.build());
    matches!(&sent[..], [one] if one.port == INSIDE && flow(&one.frame).1 == SocketAddrV4::new(host(number), port))
}

/// A host that belongs to a different shard than the first host.
fn other(rig: &Rig) -> u8 {
    let shard = |number: u8| {
        rig.plane
            .start_parameters()
            .steering
            .key(false)
            .hash(&host(number).octets())
            & 15
    };
    (1..32).find(|&number| shard(number) != shard(0)).unwrap()
}

/// Checks that answers to every `step`-th mapping of a host reach the host.
fn check_answers(rig: &mut Rig, number: u8, publics: &[SocketAddrV4], step: usize) {
    for (&public, port) in publics.iter().zip(1024..).step_by(step) {
        assert!(is_answered(rig, number, public, port), "{public} of port {port}");
    }
}

#[test]
fn one_host_has_half_of_an_address_and_every_answer_finds_it() {
    let mut rig = of_one_address(Behaviour::default(), |_| {}, 64);
    let borrowed = |rig: &Rig| rig.plane.snapshot().nat4.pools.borrowed_blocks();
    let publics = fill(&mut rig, 0);
    assert!(publics.len() > 64_512 / 2, "{} mappings", publics.len());
    assert_eq!(1, rig.drops("ports-exhausted"), "{:?}", rig.all_drops());
    // All shared blocks are borrowed, except the blocks that the distribution assigns to the shard anyway.
    assert!((504 - 32..=504 - 31).contains(&borrowed(&rig)));
    assert!(publics.iter().all(|public| *public.ip() == POOL));
    let distinct: std::collections::HashSet<_> = publics.iter().collect();
    assert_eq!(publics.len(), distinct.len());
    check_answers(&mut rig, 0, &publics, 7);
    // Other shards keep half of their blocks and can use them.
    let number = other(&rig);
    let others = fill(&mut rig, number);
    assert!((31 * 64..=32 * 64).contains(&others.len()), "{} mappings", others.len());
    assert!(others.iter().all(|public| !distinct.contains(public)));
    check_answers(&mut rig, number, &others, 7);
    // The first shard moves to another worker and keeps its borrowed blocks.
    let shard = rig.plane.start_parameters().steering.key(false).hash(&host(0).octets()) & 15;
    move_shard(&mut rig, shard as u16);
    check_answers(&mut rig, 0, &publics, 101);
    check_answers(&mut rig, number, &others, 101);
    // All shards can use released blocks.
    rig.seconds(600);
    assert_eq!((0, 0), (rig.live(), borrowed(&rig)));
    assert!(!is_answered(&mut rig, 0, publics[20_000], 21_024));
    let others = fill(&mut rig, number);
    assert!(others.len() > 64_512 / 2, "{} mappings", others.len());
    check_answers(&mut rig, number, &others, 101);
}

/// Moves a shard to the next worker.
fn move_shard(rig: &mut Rig, shard: u16) {
    let from = usize::from(rig.plane.start_parameters().owners.of(shard).unwrap());
    let to = (from + 1) % 4;
    assert!(matches!(rig.ask(to, Request::Expect { shard }), Reply::Done));
    let give = Request::StartRelease { shard, to: to as u16 };
    assert!(matches!(rig.ask(from, give), Reply::Done));
    (0..8).for_each(|_| rig.round());
    assert!(matches!(rig.ask(from, Request::Release), Reply::Done));
    (0..8).for_each(|_| rig.round());
    assert_eq!(Some(to as u16), rig.plane.start_parameters().owners.of(shard));
    assert_eq!(1, rig.plane.counters()[to].shards_taken.get());
}

#[test]
fn one_host_has_half_of_an_address_in_blocks() {
    let blocks: fn(&mut Pool<u32>) = |pool| {
        pool.blocks = Some(Blocks {
            size: 256,
            max: 1_000,
            ..Blocks::default()
        });
    };
    let mut rig = of_one_address(Behaviour::default(), blocks, 256);
    let publics = fill(&mut rig, 0);
    assert!(publics.len() >= 64_512 / 2, "{} mappings", publics.len());
    check_answers(&mut rig, 0, &publics, 13);
    let number = other(&rig);
    let others = fill(&mut rig, number);
    assert!(others.len() >= 256, "{} mappings", others.len());
    check_answers(&mut rig, number, &others, 13);
    rig.seconds(600);
    assert_eq!(0, rig.plane.snapshot().nat4.pools.borrowed_blocks());
    assert!(fill(&mut rig, number).len() >= 64_512 / 2);
}

#[test]
fn sessions_of_borrowed_ports_stay_through_commits_that_keep_their_address() {
    let mut rig = of_one_address(Behaviour::default(), |_| {}, 64);
    let publics = fill(&mut rig, 0);
    for more in [1, 3] {
        let plan = Plan {
            pool: vec![(POOL.to_bits(), POOL.to_bits() + more)],
            ..Plan::default()
        };
        let (snapshot, routes) = rig::snapshot(&plan);
        rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
        check_answers(&mut rig, 0, &publics, 211);
        while !rig.plane.is_migrated() {
            rig.round();
        }
        assert_eq!(publics.len() as u64, rig.live());
        check_answers(&mut rig, 0, &publics, 211);
    }
    // If an address is removed from the pool, its sessions end. If an address is added again, all of its ports can be
    // used.
    for pool in [POOL.to_bits() + 1, POOL.to_bits()] {
        let plan = Plan {
            pool: vec![(pool, pool)],
            ..Plan::default()
        };
        let (snapshot, routes) = rig::snapshot(&plan);
        rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
        while !rig.plane.is_migrated() {
            rig.round();
        }
        assert_eq!((0, 0), (rig.live(), rig.plane.snapshot().nat4.pools.borrowed_blocks()));
    }
    let publics = fill(&mut rig, 0);
    assert!(publics.len() > 64_512 / 2, "{} mappings", publics.len());
    check_answers(&mut rig, 0, &publics, 211);
}

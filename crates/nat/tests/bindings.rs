//! Tests of a shard's allocations against a simple model: no port is allocated twice, no port is leaked, and every
//! limit is enforced.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;
use sluice_nat::behaviour::{
    Behaviour, Blocks, Filtering, MappingBehaviour, PortSelection, Quarantine, SubscriberLimits,
};
use sluice_nat::bindings::{Bindings, Capacity, Inbound, ReleaseRequest, TRIES};
use sluice_nat::decision::NewSource;
use sluice_nat::pool::{Pairing, Pool, Pools};
use sluice_nat::ports::{Layout, Lease, PortClass};
use sluice_nat::shard::Shards;
use sluice_nat::{Decision, Reason, RssPorts, Secret, Target, decision};
use sluice_table::memory::Line;
use sluice_table::toeplitz;
use sluice_wire::Tuple4;

const BASE: u32 = 0xcb00_7100;
const INSIDE: u32 = 0x0a00_0000;
const REMOTE: u32 = 0xc633_6400;
const SECRET: Secret = Secret([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);
const SECOND: u64 = 1_000_000_000;

fn room(mappings: usize) -> Capacity {
    Capacity {
        mappings,
        subscribers: 64,
        blocks: 256,
        quarantine: 64,
        events: sluice_nat::event::EventKinds::ALL,
        subscriber: 32,
    }
}

fn key(host: u32, port: u16, remote: u32) -> Tuple4 {
    Tuple4 {
        source: INSIDE | host,
        destination: REMOTE | remote,
        source_port: port,
        destination_port: 443,
        context: 0,
    }
}

fn protocol(class: PortClass) -> u8 {
    [6, 17, 1][class as usize]
}

/// A session, in the form in which the engine stores it.
#[derive(Clone, Copy, Debug)]
struct Session {
    class: PortClass,
    forward: Tuple4,
    reverse: Tuple4,
    decision: Decision,
    lease: Lease<u32>,
}

struct Shard<'m> {
    bindings: Bindings<'m, u32>,
    now: u64,
}

impl Shard<'_> {
    fn open(&mut self, class: PortClass, key: Tuple4, taken: &HashSet<Tuple4>) -> Result<Session, Reason> {
        let mut request = self.bindings.request(0, class, &key);
        self.bindings.prefetch_records(&mut request);
        self.bindings.prefetch_block(&mut request, &key);
        let allocation = self.bindings.allocate(&request, &key, key.destination, self.now)?;
        self.bindings.publish();
        let mut lease = allocation.lease;
        let reverse = |lease| decision::translate(&key, protocol(class), 0, None, NewSource::Allocated(0, lease));
        let mut attempt = 1;
        while allocation.overlaps && taken.contains(&reverse(lease).reverse) {
            let Some(next) = self.bindings.another(&request, &key, attempt) else {
                let made = reverse(lease);
                let decision = made.decision.with_resources(0, allocation.resources);
                self.bindings
                    .release_one(decision, protocol(class), &key, &made.reverse, self.now);
                return Err(Reason::PortsExhausted);
            };
            lease = next;
            attempt += 1;
        }
        let made = reverse(lease);
        Ok(Session {
            class,
            forward: key,
            reverse: made.reverse,
            decision: made.decision.with_resources(0, allocation.resources),
            lease,
        })
    }

    fn close(&mut self, session: &Session) -> bool {
        self.close_all(&[*session])
    }

    /// Closes several sessions together, as a worker does for idle sessions.
    fn close_all(&mut self, sessions: &[Session]) -> bool {
        let bindings = &mut self.bindings;
        let ending = |session: &Session| {
            let (forward, reverse) = (&session.forward, &session.reverse);
            bindings.release_request(session.decision, protocol(session.class), forward, reverse)
        };
        let mut endings: Vec<_> = sessions.iter().map(ending).collect();
        endings
            .iter_mut()
            .flatten()
            .for_each(|ending| bindings.prefetch_release(ending));
        endings
            .iter_mut()
            .flatten()
            .for_each(|ending| bindings.prefetch_release_subscriber(ending));
        let back = |ending: &ReleaseRequest<u32>| bindings.release(ending, self.now);
        endings.iter().flatten().map(back).fold(true, |all, known| all & known)
    }

    fn used(&self) -> u32 {
        PortClass::ALL
            .iter()
            .map(|&class| self.bindings.ports().used(0, class))
            .sum()
    }
}

fn memory(pools: &Pools<u32>, shards: Shards, room: &Capacity) -> Vec<Line> {
    vec![Line([u64::MAX; 8]); Bindings::lines(&Layout::new(pools, shards), 0, room)]
}

fn shard<'m>(pools: &Pools<u32>, shards: Shards, room: &Capacity, memory: &'m mut [Line]) -> Shard<'m> {
    Shard {
        bindings: Bindings::new(&Layout::new(pools, shards), 0, SECRET, room, memory).unwrap(),
        now: 0,
    }
}

/// A random pool configuration.
fn pools() -> impl Strategy<Value = Pool<u32>> {
    let mapping = prop_oneof![
        Just(MappingBehaviour::EndpointIndependent),
        Just(MappingBehaviour::AddressAndPortDependent)
    ];
    let filtering = prop_oneof![
        Just(Filtering::EndpointIndependent),
        Just(Filtering::AddressDependent),
        Just(Filtering::AddressAndPortDependent)
    ];
    let blocks = proptest::option::of((0u32..3, 1u16..4, any::<bool>()));
    let numbers = (1u32..4, 0u16..400, 0u32..3, proptest::option::of(1u32..40));
    let switches = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (mapping, filtering, blocks, numbers, switches).prop_map(
        |(mapping, filtering, blocks, (addresses, ports, hold, max), (overlap, preserve, parity, soft))| {
            let blocks = blocks.map(|(size, max, spare)| Blocks {
                size: 64 << size,
                max,
                spare,
            });
            let maps = mapping == MappingBehaviour::EndpointIndependent;
            let overlap = overlap && !maps && blocks.is_none();
            let preserve = preserve && blocks.is_none() && (maps || overlap);
            Pool {
                addresses: vec![(BASE, BASE + addresses - 1)],
                ports: 1024..=1087 + ports,
                reserved: vec![1030..=1033],
                pairing: if soft { Pairing::Soft } else { Pairing::Hard },
                behaviour: [Behaviour { mapping, filtering }; 3],
                overlap,
                selection: if preserve {
                    PortSelection::Preserve
                } else {
                    PortSelection::Random
                },
                parity,
                blocks,
                hold: Quarantine {
                    seconds: hold * 60,
                    max: 40,
                },
                subscriber: SubscriberLimits {
                    ports: [max, None, max],
                    sessions: max.map(|max| 2 * max),
                    rate: None,
                },
                ..Pool::new(0, 0)
            }
        },
    )
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(u8, u32, u16, u32),
    Inbound(usize, u32),
    Close(usize),
    CloseAll(usize, usize),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let open =
        (0u8..3, 0u32..6, 1000u16..1060, 0u32..4).prop_map(|(class, host, port, to)| Step::Open(class, host, port, to));
    let inbound = (any::<usize>(), 0u32..6).prop_map(|(session, from)| Step::Inbound(session, from));
    let close = any::<usize>().prop_map(Step::Close);
    let close_all = (any::<usize>(), 0usize..20).prop_map(|(from, count)| Step::CloseAll(from, count));
    let wait = (1u64..90).prop_map(Step::Wait);
    proptest::collection::vec(
        prop_oneof![12 => open, 4 => inbound, 8 => close, 1 => close_all, 2 => wait],
        0..600,
    )
}

fn check(pool: &Pool<u32>, steps: &[Step], shards: Shards) -> Result<(), TestCaseError> {
    let pools = Pools::new(std::slice::from_ref(pool)).unwrap();
    let valid = pools.get(0).unwrap();
    let room = room(400);
    let mut memory = memory(&pools, shards, &room);
    let mut shard = shard(&pools, shards, &room, &mut memory);
    let mut live: Vec<Session> = Vec::new();
    let mut answers: HashSet<Tuple4> = HashSet::new();
    for &step in steps {
        match step {
            Step::Open(class, host, port, to) => {
                let class = PortClass::ALL[class as usize];
                let key = key(host, port, to);
                if live
                    .iter()
                    .any(|session| session.forward == key && session.class == class)
                {
                    continue;
                }
                let Ok(session) = shard.open(class, key, &answers) else {
                    continue;
                };
                let lease = session.lease;
                prop_assert!(valid.includes(lease.address, lease.port), "{lease:?}");
                prop_assert_eq!(0, valid.shard_of(shards, lease.address, lease.port));
                let same = |other: &&Session| other.lease == lease && other.class == class;
                for other in live.iter().filter(same) {
                    let shares = match valid.behaviour(class).mapping {
                        MappingBehaviour::EndpointIndependent => {
                            let inside =
                                |session: &Session| match session.decision.outbound(sluice_wire::Direction::Forward) {
                                    true => (session.forward.source, session.forward.source_port),
                                    false => (session.reverse.source, session.reverse.source_port),
                                };
                            inside(other) == (key.source, key.source_port)
                        }
                        MappingBehaviour::AddressAndPortDependent => pool.overlap && other.reverse != session.reverse,
                    };
                    prop_assert!(shares, "{other:?} and {session:?}");
                }
                // With endpoint-independent mapping, an inside address and port always has one outside address and
                // port.
                if valid.behaviour(class).mapping == MappingBehaviour::EndpointIndependent {
                    let inside = (key.source, key.source_port);
                    let mapped = live.iter().find(|other| {
                        other.class == class && (other.forward.source, other.forward.source_port) == inside
                    });
                    prop_assert!(mapped.is_none_or(|other| other.lease == lease));
                }
                answers.insert(session.reverse);
                live.push(session);
            }
            Step::Inbound(which, from) => {
                let Some(session) = live.get(which % live.len().max(1)).copied() else {
                    continue;
                };
                if session.class == PortClass::Query {
                    continue;
                }
                let inbound = Tuple4 {
                    source: REMOTE | from,
                    source_port: 5000,
                    destination: session.lease.address,
                    destination_port: session.lease.port,
                    context: 0,
                };
                let (mapping, filtering) = {
                    let behaviour = valid.behaviour(session.class);
                    (behaviour.mapping, behaviour.filtering)
                };
                let sent = live.iter().any(|other| {
                    other.class == session.class && other.lease == session.lease && {
                        let out = other.decision.outbound(sluice_wire::Direction::Forward);
                        (if out {
                            other.forward.destination
                        } else {
                            other.forward.source
                        }) == REMOTE | from
                    }
                });
                let found = shard.bindings.inbound(&inbound, session.class, || false);
                let admitted = mapping == MappingBehaviour::EndpointIndependent
                    && (filtering == Filtering::EndpointIndependent
                        || filtering == Filtering::AddressDependent && sent);
                prop_assert_eq!(admitted, matches!(found, Inbound::Inside { .. }), "{:?}", found);
                let Inbound::Inside {
                    address, port, pool, ..
                } = found
                else {
                    continue;
                };
                if live
                    .iter()
                    .any(|other| other.forward == inbound && other.class == session.class)
                {
                    continue;
                }
                let Ok(resources) = shard.bindings.accept(&inbound, session.class, shard.now) else {
                    continue;
                };
                let made = decision::translate(
                    &inbound,
                    protocol(session.class),
                    0,
                    Some(Target { address, port }),
                    NewSource::Original,
                );
                if !answers.insert(made.reverse) {
                    let decision = made.decision.with_resources(pool, resources);
                    prop_assert!(shard.bindings.release_one(
                        decision,
                        protocol(session.class),
                        &inbound,
                        &made.reverse,
                        shard.now
                    ));
                    continue;
                }
                live.push(Session {
                    class: session.class,
                    forward: inbound,
                    reverse: made.reverse,
                    decision: made.decision.with_resources(pool, resources),
                    lease: session.lease,
                });
            }
            Step::Close(which) if !live.is_empty() => {
                let session = live.swap_remove(which % live.len());
                answers.remove(&session.reverse);
                prop_assert!(shard.close(&session));
            }
            Step::Close(_) => {}
            Step::CloseAll(which, count) => {
                let from = which % live.len().max(1);
                let closed: Vec<_> = live.drain(from..(from + count).min(live.len())).collect();
                closed.iter().for_each(|session| {
                    answers.remove(&session.reverse);
                });
                prop_assert!(shard.close_all(&closed));
            }
            Step::Wait(seconds) => {
                shard.now += seconds * SECOND;
                shard.bindings.expire(shard.now, usize::MAX);
            }
        }
        // The counters of each subscriber equal its actual resources.
        let mut seen = HashMap::new();
        shard.bindings.scan_subscribers(0, u32::MAX, |subscriber, blocks| {
            let blocks: Vec<_> = blocks.map(|owned| owned.block()).collect();
            seen.insert(
                subscriber.address(),
                (subscriber.sessions(), subscriber.ports(), blocks),
            );
        });
        if valid.has_subscribers(PortClass::Udp) {
            for host in 0..6 {
                let inside = |session: &&Session| match session.decision.outbound(sluice_wire::Direction::Forward) {
                    true => session.forward.source == INSIDE | host,
                    false => session.reverse.source == INSIDE | host,
                };
                let sessions: Vec<_> = live.iter().filter(inside).collect();
                let (counted, ports, blocks) = seen.remove(&(INSIDE | host)).unwrap_or_default();
                let counts: Vec<_> = sessions.iter().filter(|s| valid.has_subscribers(s.class)).collect();
                prop_assert_eq!(counts.len(), counted as usize);
                if !pool.overlap {
                    let leases: HashSet<_> = counts.iter().map(|s| (s.class, s.lease)).collect();
                    prop_assert_eq!(leases.len(), ports.iter().sum::<u32>() as usize);
                }
                if let Some(limit) = pool.blocks {
                    prop_assert!(blocks.len() <= limit.max as usize);
                    for session in counts {
                        let own = |block: &sluice_nat::ports::Block<u32>| {
                            block.address == session.lease.address
                                && session.lease.port.wrapping_sub(block.first) < limit.size
                        };
                        prop_assert!(blocks.iter().any(own), "{session:?} {blocks:?}");
                    }
                }
            }
        }
    }
    for session in live.drain(..) {
        prop_assert!(shard.close(&session));
    }
    shard.now += 1000 * SECOND;
    shard.bindings.expire(shard.now, usize::MAX);
    prop_assert_eq!((0, 0), (shard.used(), shard.bindings.mappings().0));
    prop_assert_eq!((0, 0), (shard.bindings.subscribers().0, shard.bindings.quarantined().0));
    // All blocks are free again, so new subscribers can allocate every block.
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// For any pool configuration, all allocations are released eventually, and no port is allocated twice.
    #[test]
    fn bindings_any_pool_leaks_nothing_and_lends_nothing_twice(pool in pools(), steps in steps(), shards in 0u32..3) {
        check(&pool, &steps, Shards::new(1 << shards).unwrap())?;
    }
}

#[test]
fn subscribers_scanned_are_those_that_have_sessions() {
    let pools = Pools::new(&[Pool::new(BASE, BASE + 3)]).unwrap();
    let room = room(64);
    let mut memory = memory(&pools, Shards::ONE, &room);
    let mut shard = shard(&pools, Shards::ONE, &room, &mut memory);
    let none = HashSet::new();
    let sessions: Vec<_> = (0..6)
        .map(|host| shard.open(PortClass::Udp, key(host, 5000, 1), &none).unwrap())
        .collect();
    for closed in [1, 2, 4] {
        assert!(shard.close(&sessions[closed]));
    }
    let mut seen = Vec::new();
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        cursor = shard.bindings.scan_subscribers(from, 4, |subscriber, _| {
            seen.push((subscriber.address() & 0xff, subscriber.sessions(), subscriber.ports()));
        });
    }
    let expected = [0, 3, 5].map(|host| (host, 1, [0, 1, 0]));
    assert_eq!(expected.to_vec(), seen);
}

#[test]
fn blocks_that_have_changed_their_size_lend_no_port_beyond_themselves() {
    let of = |size| {
        let blocks = Some(Blocks {
            size,
            max: 4,
            spare: false,
        });
        Pools::new(&[Pool {
            ports: 1024..=1279,
            blocks,
            ..Pool::new(BASE, BASE)
        }])
        .unwrap()
    };
    let (small, large, room) = (of(64), of(128), room(512));
    let mut memory = memory(&small, Shards::ONE, &room);
    let mut shard = shard(&small, Shards::ONE, &room, &mut memory);
    let none = HashSet::new();
    let mut live: Vec<_> = (0..250)
        .map(|port| shard.open(PortClass::Udp, key(1, 5000 + port, 1), &none).unwrap())
        .collect();
    // Keep a few sessions in each block of 64 ports. Every second 64-port block starts inside a 128-port block.
    let kept = |session: &Session| session.lease.port.is_multiple_of(16);
    assert!(
        live.iter()
            .filter(|session| !kept(session))
            .all(|session| shard.close(session))
    );
    live.retain(kept);
    shard
        .bindings
        .ports_mut()
        .prepare_migration(&Layout::new(&large, Shards::ONE));
    shard.bindings.ports_mut().migrate();
    for port in 0..250 {
        let Ok(session) = shard.open(PortClass::Udp, key(1, 9000 + port, 1), &none) else {
            continue;
        };
        assert!((1024..=1279).contains(&session.lease.port), "{:?}", session.lease);
        live.push(session);
    }
    assert!(live.iter().all(|session| shard.close(session)));
    assert_eq!(0, shard.used());
}

#[test]
fn port_of_a_mapping_that_another_pool_has_got_stays_that_pools() {
    let first = Pool::new(BASE, BASE);
    let second = Pool {
        behaviour: [Behaviour::ADDRESS_AND_PORT_DEPENDENT; 3],
        ..Pool::new(BASE, BASE)
    };
    let (before, after) = (
        Pools::placed(&[Some(&first), None]).unwrap(),
        Pools::placed(&[None, Some(&second)]).unwrap(),
    );
    // Cases: a quarantined port; a session that ends later; and a TCP port, which is never quarantined.
    for (class, waits) in [(PortClass::Udp, true), (PortClass::Udp, false), (PortClass::Tcp, false)] {
        let room = room(64);
        let mut memory = memory(&before, Shards::ONE, &room);
        let mut shard = shard(&before, Shards::ONE, &room, &mut memory);
        let session = shard.open(class, key(1, 5000, 1), &HashSet::new()).unwrap();
        if waits {
            assert!(shard.close(&session));
            assert_eq!(1, shard.bindings.quarantined().0);
        }
        shard
            .bindings
            .ports_mut()
            .prepare_migration(&Layout::new(&after, Shards::ONE));
        shard.bindings.ports_mut().migrate();
        assert!(shard.bindings.ports_mut().claim(1, class, session.lease));
        if !waits {
            shard.close(&session);
        }
        shard.now += 200 * SECOND;
        shard.bindings.expire(shard.now, usize::MAX);
        let used = shard.bindings.ports().used(1, class);
        assert_eq!(
            (0, 1),
            (shard.bindings.quarantined().0, used),
            "{class:?} waits: {waits}"
        );
    }
}

/// If sessions may share a port and NICs hash ports, the candidates include every port of a word. Ports for which RSS
/// delivers replies to the shard come first, then ports of equal parity.
#[test]
fn tries_of_a_port_that_overlaps_are_each_port_of_a_word_once_and_suiting_ones_first() {
    let (bits, last) = (4, 1024 + 49);
    let pool = Pool {
        ports: 1024..=last,
        reserved: vec![1030..=1033],
        behaviour: [Behaviour::ADDRESS_AND_PORT_DEPENDENT; 3],
        overlap: true,
        parity: true,
        ..Pool::new(BASE, BASE)
    };
    let pools = Pools::new(&[pool]).unwrap();
    let mut seed = 1u64;
    let hash = toeplitz::draw_for_flows(bits, move || {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d) + 1;
        seed ^ seed >> 29
    });
    let (room, shards) = (room(64), Shards::new(1 << bits).unwrap());
    let own = pools.get(0).unwrap().shard_of(shards, BASE, 1024);
    let mut memory = memory(&pools, shards, &room);
    let layout = Layout::new(&pools, shards);
    let mut bindings = Bindings::new(&layout, own, SECRET, &room, &mut memory).unwrap();
    let fitting = Arc::new(RssPorts::new(&hash, bits));
    bindings.prefer_rss_ports(fitting.clone());
    for number in 0..200u16 {
        let key = key(7, 5000 + number, number.into());
        let request = bindings.request(0, PortClass::Udp, &key);
        let suits = |lease: &Lease<u32>| {
            let fits = fitting.shard_of(lease.address, lease.port, &key) == own;
            (!fits, lease.port % 2 != key.source_port % 2)
        };
        let tries: Vec<_> = (0..TRIES)
            .map(|attempt| bindings.another(&request, &key, attempt))
            .collect();
        let (words, all) = tries.split_at(TRIES as usize - 64);
        let all: Vec<_> = all.iter().flatten().copied().collect();
        assert!(all.iter().is_sorted_by_key(suits), "{number}");
        let ports: HashSet<_> = all.iter().map(|lease| lease.port).collect();
        assert_eq!(
            (1024..=last)
                .filter(|port| !(1030..=1033).contains(port))
                .collect::<HashSet<_>>(),
            ports
        );
        assert_eq!(ports.len(), all.len());
        // The attempts in random words yield only ports for which RSS delivers replies to the shard.
        assert!(words.iter().flatten().all(|lease| !suits(lease).0), "{number}");
    }
}

//! Tests of shards that move between workers during traffic: no packet is lost, and flows keep their order and their sessions.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::rig::{HOST_MAC, INSIDE, INSIDE_MAC, Plan, Rig, plain};
use sluice_engine::worker::MAX_HELD;
use sluice_engine::worker::request::{Reply, Request};
use sluice_testkit::packet::{self, flag};
use sluice_wire::Checksums;

const WORKERS: usize = 4;
const SHARDS: u16 = 8;
const HOSTS: u8 = 24;

fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 1, 10 + number)
}

fn frame(number: u8, sequence: u32) -> Vec<u8> {
    let source = SocketAddrV4::new(host(number), 1000);
    let flags = if sequence == 0 { flag::SYN } else { flag::ACK };
    let frame = packet::tcp4(source, "198.51.100.7:80")
        .flags(flags)
        .numbers(sequence, 0);
    frame.macs(HOST_MAC, INSIDE_MAC).build()
}

/// Distribution of packets to workers.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    /// Each packet arrives at the owner of its shard, as with the indirection tables of NICs.
    Steered,
    /// Packets arrive at any worker, independent of their shard.
    Unsteered,
    /// Packets arrive at the first stage of a pipeline. The second stage has the shards, and the third stage transmits.
    Pipeline,
}

fn rig(style: Style) -> Rig {
    let is_pipeline = style == Style::Pipeline;
    let mut rig = Rig::new(Plan {
        workers: WORKERS,
        shards: SHARDS.into(),
        stages: if is_pipeline {
            [vec![0], vec![0], vec![1, 2], vec![3]]
        } else {
            Default::default()
        },
        senders: if is_pipeline { vec![3] } else { Vec::new() },
        ..Plan::default()
    });
    for number in 0..HOSTS {
        rig.know(INSIDE, plain(&host(number).to_string()), HOST_MAC);
    }
    rig
}

/// The shard of a host, if NICs hash only some of the fields.
fn shard_of(rig: &Rig, number: u8) -> u16 {
    let steering = &rig.plane.start_parameters().steering;
    let hash = steering.key(false).hash(&host(number).octets());
    (hash & (steering.shards().count() - 1)) as u16
}

/// A pseudo-random generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

/// Traffic of all hosts. The workers run one at a time, in random order.
struct Traffic {
    rig: Rig,
    dice: Dice,
    /// For each shard: the worker that receives the shard's packets from its device.
    table: Vec<usize>,
    next: Vec<u32>,
    got: BTreeMap<Vec<u8>, Vec<u32>>,
}

impl Traffic {
    fn new(seed: u64, style: Style) -> Self {
        let rig = rig(style);
        let mut dice = Dice(seed);
        let owners = rig.plane.start_parameters().owners.iter().map(usize::from);
        let table = owners.map(|owner| match style {
            Style::Steered => owner,
            Style::Unsteered => dice.roll(WORKERS),
            Style::Pipeline => 0,
        });
        let table = table.collect();
        Self {
            rig,
            dice,
            table,
            next: vec![0; HOSTS.into()],
            got: BTreeMap::new(),
        }
    }

    /// Injects frames and runs workers for a while.
    fn step(&mut self) {
        for _ in 0..self.dice.roll(100) {
            let number = self.dice.roll(HOSTS.into()) as u8;
            let sequence = self.next[usize::from(number)];
            self.next[usize::from(number)] += 1;
            let worker = self.table[usize::from(shard_of(&self.rig, number))];
            self.rig.wires[worker].inject(INSIDE, &frame(number, sequence), Checksums::Unverified);
        }
        for _ in 0..self.dice.roll(12) {
            let worker = self.dice.roll(WORKERS);
            self.rig.workers[worker].round(self.rig.now);
        }
        self.collect();
    }

    fn collect(&mut self) {
        for sent in self.rig.sent() {
            let sequence = u32::from_be_bytes(sent.frame[38..42].try_into().unwrap());
            self.got.entry(sent.frame[26..38].to_vec()).or_default().push(sequence);
        }
    }

    /// Sends a request to a worker, and continues the traffic until the worker answers.
    fn ask(&mut self, worker: usize, request: Request) -> Reply {
        self.rig.desks[worker].requests.try_send(request).unwrap();
        loop {
            self.step();
            if let Ok(reply) = self.rig.desks[worker].replies.try_recv() {
                return reply;
            }
        }
    }

    fn move_shard(&mut self, shard: u16, to: usize, is_steered: bool) {
        let from = usize::from(self.rig.plane.start_parameters().owners.of(shard).unwrap());
        let before = self.rig.plane.counters()[to].shards_taken.get();
        assert!(matches!(self.ask(to, Request::Expect { shard }), Reply::Done));
        assert!(matches!(
            self.ask(from, Request::StartRelease { shard, to: to as u16 }),
            Reply::Done
        ));
        let beats = |rig: &Rig| rig.plane.counters().iter().map(|w| w.rounds.get()).collect::<Vec<_>>();
        let then = beats(&self.rig);
        while beats(&self.rig).iter().zip(&then).any(|(now, then)| now - then < 2) {
            self.step();
        }
        if is_steered {
            self.table[usize::from(shard)] = to;
        }
        assert!(matches!(self.ask(from, Request::Release), Reply::Done));
        while self.rig.plane.counters()[to].shards_taken.get() == before {
            self.step();
        }
    }
}

#[test]
fn shards_move_under_traffic_without_loss_or_disorder() {
    for seed in 0..60 {
        let style = [Style::Steered, Style::Unsteered, Style::Pipeline][seed as usize % 3];
        let mut traffic = Traffic::new(seed, style);
        for _ in 0..5 {
            traffic.step();
        }
        for _ in 0..6 {
            let shard = traffic.dice.roll(SHARDS.into()) as u16;
            let from = usize::from(traffic.rig.plane.start_parameters().owners.of(shard).unwrap());
            let to = match style {
                Style::Pipeline => 3 - from,
                _ => (from + 1 + traffic.dice.roll(WORKERS - 1)) % WORKERS,
            };
            traffic.move_shard(shard, to, style == Style::Steered);
            assert_eq!(Some(to as u16), traffic.rig.plane.start_parameters().owners.of(shard));
        }
        traffic.rig.round();
        traffic.collect();
        let drops: u64 = traffic.rig.all_drops().iter().map(|(_, count)| count).sum();
        assert_eq!(0, drops, "seed {seed}: {:?}", traffic.rig.all_drops());
        let sent: u32 = traffic.next.iter().sum();
        assert!(sent > 1500, "{sent}");
        let flows = traffic.next.iter().filter(|&&next| next > 0).count();
        // Each flow had only one public address and port, so no session was created a second time.
        assert_eq!(flows, traffic.got.len(), "seed {seed}");
        for sequences in traffic.got.values() {
            let count = sequences.len() as u32;
            assert_eq!((0..count).collect::<Vec<_>>(), *sequences, "seed {seed}");
        }
        assert_eq!(sent as usize, traffic.got.values().map(Vec::len).sum::<usize>());
        let counters = traffic.rig.plane.counters();
        let sum = |count: fn(&sluice_engine::packet::counters::WorkerCounters) -> u64| {
            counters
                .iter()
                .map(|worker| count(worker))
                .fold(0u64, u64::wrapping_add)
        };
        assert_eq!(flows as u64, sum(|worker| worker.sessions_created.get()));
        assert_eq!(0, sum(|worker| worker.sessions_moved.get()), "what goes comes");
        assert_eq!(6, sum(|worker| worker.shards_taken.get()));
    }
}

#[test]
fn moves_that_make_no_sense_are_refused() {
    let mut rig = rig(Style::Steered);
    let owner = usize::from(rig.plane.start_parameters().owners.of(3).unwrap());
    let other = (owner + 1) % WORKERS;
    assert!(matches!(rig.ask(owner, Request::Expect { shard: 3 }), Reply::Refused));
    assert!(matches!(rig.ask(owner, Request::Release), Reply::Refused));
    let to = other as u16;
    assert!(matches!(
        rig.ask(other, Request::StartRelease { shard: 3, to }),
        Reply::Refused
    ));
    assert!(matches!(
        rig.ask(owner, Request::StartRelease { shard: 99, to }),
        Reply::Refused
    ));
    let to = owner as u16;
    assert!(matches!(
        rig.ask(owner, Request::StartRelease { shard: 3, to }),
        Reply::Refused
    ));
    assert!(matches!(rig.ask(other, Request::Expect { shard: 3 }), Reply::Done));
    assert!(matches!(rig.ask(other, Request::Expect { shard: 5 }), Reply::Refused));
    // The move of the shard is cancelled.
    assert!(matches!(rig.ask(other, Request::Release), Reply::Done));
    assert!(matches!(rig.ask(other, Request::Expect { shard: 5 }), Reply::Done));
}

#[test]
fn shard_stays_until_others_have_taken_what_was_handed_on_of_it() {
    let mut traffic = Traffic::new(0, Style::Pipeline);
    let owners = traffic.rig.plane.start_parameters().owners.clone();
    let shard = shard_of(&traffic.rig, 0);
    let from = usize::from(owners.of(shard).unwrap());
    let to = 3 - from;
    let rounds = |traffic: &mut Traffic, workers: &[usize], count: usize| {
        for worker in workers.repeat(count) {
            traffic.rig.workers[worker].round(traffic.rig.now);
        }
    };
    let come = |traffic: &mut Traffic, sequences: std::ops::Range<u32>| {
        for sequence in sequences {
            traffic.rig.wires[0].inject(INSIDE, &frame(0, sequence), Checksums::Unverified);
        }
    };
    // The transmitting worker runs rarely, so the ring to it is nearly full.
    come(&mut traffic, 0..900);
    rounds(&mut traffic, &[0, from], 20);
    let ask = |traffic: &mut Traffic, worker: usize, request| {
        traffic.rig.desks[worker].requests.try_send(request).unwrap();
        rounds(traffic, &[worker], 1);
        let reply = traffic.rig.desks[worker].replies.try_recv();
        assert!(matches!(reply, Ok(Reply::Done)));
    };
    ask(&mut traffic, to, Request::Expect { shard });
    ask(&mut traffic, from, Request::StartRelease { shard, to: to as u16 });
    rounds(&mut traffic, &[0, 1, 2, 3], 2);
    come(&mut traffic, 900..910);
    ask(&mut traffic, from, Request::Release);
    rounds(&mut traffic, &[0, from, to], 50);
    rounds(&mut traffic, &[0, 1, 2, 3], 50);
    traffic.rig.check();
    traffic.collect();
    assert_eq!(1, traffic.rig.plane.counters()[to].shards_taken.get());
    let sequences: Vec<_> = traffic.got.into_values().collect();
    assert_eq!(vec![(0..910).collect::<Vec<u32>>()], sequences);
}

#[test]
fn other_shards_go_on_while_one_is_awaited_that_has_more_than_can_be_held() {
    let mut traffic = Traffic::new(0, Style::Steered);
    let owners = traffic.rig.plane.start_parameters().owners.clone();
    let shard = shard_of(&traffic.rig, 0);
    let from = usize::from(owners.of(shard).unwrap());
    let to = (from + 1) % WORKERS;
    let of_to = |&number: &u8| owners.of(shard_of(&traffic.rig, number)) == Some(to as u16);
    let other = (0..HOSTS).find(of_to).unwrap();
    assert!(matches!(traffic.rig.ask(to, Request::Expect { shard }), Reply::Done));
    let to_owner = to as u16;
    assert!(matches!(
        traffic.rig.ask(from, Request::StartRelease { shard, to: to_owner }),
        Reply::Done
    ));
    // The NIC is already steered to the new owner, but the control thread has not yet completed the move.
    let held = MAX_HELD as u32;
    for sequence in 0..held + 1000 {
        traffic.rig.wires[to].inject(INSIDE, &frame(0, sequence), Checksums::Unverified);
    }
    traffic.rig.wires[to].inject(INSIDE, &frame(other, 0), Checksums::Unverified);
    traffic.rig.round();
    assert_eq!(1, traffic.rig.sent().len());
    assert_eq!(1000, traffic.rig.drops("moving-full"));
    assert!(matches!(traffic.rig.ask(from, Request::Release), Reply::Done));
    while traffic.rig.plane.counters()[to].shards_taken.get() == 0 {
        traffic.rig.round();
    }
    traffic.collect();
    let sequences: Vec<_> = traffic.got.into_values().collect();
    assert_eq!(vec![(0..held).collect::<Vec<u32>>()], sequences);
}

#[test]
fn what_is_held_goes_out_where_all_ends_in_the_middle_of_a_move() {
    let mut traffic = Traffic::new(0, Style::Steered);
    let owners = traffic.rig.plane.start_parameters().owners.clone();
    let shard = shard_of(&traffic.rig, 0);
    let from = usize::from(owners.of(shard).unwrap());
    let to = (from + 1) % WORKERS;
    assert!(matches!(traffic.rig.ask(to, Request::Expect { shard }), Reply::Done));
    let to_owner = to as u16;
    assert!(matches!(
        traffic.rig.ask(from, Request::StartRelease { shard, to: to_owner }),
        Reply::Done
    ));
    for sequence in 0..100 {
        traffic.rig.wires[from].inject(INSIDE, &frame(0, sequence), Checksums::Unverified);
    }
    traffic.rig.round();
    // The control thread no longer exists.
    for worker in &mut traffic.rig.workers {
        worker.stop_receiving();
    }
    for _ in 0..20 {
        traffic.rig.round();
    }
    traffic.collect();
    let sequences: Vec<_> = traffic.got.into_values().collect();
    assert_eq!(vec![(0..100).collect::<Vec<u32>>()], sequences);
}

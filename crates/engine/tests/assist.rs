//! Tests of assistance in pipelines: I/O workers take over whole shards from overloaded session workers and return
//! them. The output equals the output of run-to-completion, no packet is lost, and flows keep their order.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::rig::{HOST_MAC, INSIDE, INSIDE_MAC, Plan, Rig, plain};
use sluice_engine::packet::counters::{Counter, WorkerCounters};
use sluice_engine::packet::time::Now;
use sluice_engine::snapshot::assist::Settings;
use sluice_engine::worker::request::{Reply, Request};
use sluice_testkit::packet::{self, flag};
use sluice_wire::Checksums;

const SHARDS: u16 = 16;
const HOSTS: u8 = 48;
const THRESHOLD: u32 = 64;

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

/// The number of I/O workers and of session workers.
#[derive(Clone, Copy, Debug)]
struct Roles {
    io: u16,
    inspect: u16,
    /// Whether the session workers also transmit.
    sends: bool,
}

impl Roles {
    fn plan(self) -> Plan {
        let io: Vec<u16> = (0..self.io).collect();
        let inspect: Vec<u16> = (self.io..self.io + self.inspect).collect();
        let senders = match self.sends {
            true => [io.clone(), inspect.clone()].concat(),
            false => io.clone(),
        };
        let last = if self.sends { &inspect } else { &io };
        Plan {
            workers: usize::from(self.io + self.inspect),
            shards: SHARDS.into(),
            stages: [io.clone(), io.clone(), inspect.clone(), last.clone()],
            senders,
            assist: Some(Settings {
                threshold: THRESHOLD,
                slice: u64::MAX,
            }),
            ..Plan::default()
        }
    }
}

const ROLES: [Roles; 6] = [
    Roles {
        io: 1,
        inspect: 1,
        sends: false,
    },
    Roles {
        io: 1,
        inspect: 1,
        sends: true,
    },
    Roles {
        io: 1,
        inspect: 2,
        sends: false,
    },
    Roles {
        io: 2,
        inspect: 1,
        sends: true,
    },
    Roles {
        io: 2,
        inspect: 2,
        sends: false,
    },
    Roles {
        io: 2,
        inspect: 3,
        sends: true,
    },
];

fn ready(plan: Plan) -> Rig {
    let mut rig = Rig::new(plan);
    for number in 0..HOSTS {
        rig.know(INSIDE, plain(&host(number).to_string()), HOST_MAC);
    }
    rig
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

/// Sent frames of each flow, in order.
type Output = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

/// Traffic of all hosts. The workers run one at a time, in random order.
struct Traffic {
    rig: Rig,
    roles: Roles,
    dice: Dice,
    next: Vec<u32>,
    /// Received frames in order.
    came: Vec<Vec<u8>>,
    got: Output,
    /// Number of sent frames.
    remaining: usize,
    /// Initial owners of the shards.
    homes: Vec<u16>,
}

impl Traffic {
    fn new(seed: u64, roles: Roles) -> Self {
        Self::of(seed, roles, roles.plan())
    }

    fn of(seed: u64, roles: Roles, plan: Plan) -> Self {
        let rig = ready(plan);
        Self {
            homes: rig.plane.start_parameters().owners.iter().collect(),
            rig,
            roles,
            dice: Dice(seed),
            next: vec![0; HOSTS.into()],
            came: Vec::new(),
            got: Output::new(),
            remaining: 0,
        }
    }

    fn inject(&mut self, number: u8) {
        let sequence = self.next[usize::from(number)];
        self.next[usize::from(number)] += 1;
        let frame = frame(number, sequence);
        // Like a NIC, put all packets of a flow into one queue.
        let worker = usize::from(number) % usize::from(self.roles.io);
        self.rig.wires[worker].inject(INSIDE, &frame, Checksums::Unverified);
        self.came.push(frame);
    }

    /// Injects frames, and runs workers in random order. An I/O worker runs `slow` times as often as a session worker.
    /// The clock advances by some microseconds at the end.
    fn step(&mut self, frames: usize, slow: usize) {
        for _ in 0..frames {
            let number = self.dice.roll(HOSTS.into()) as u8;
            self.inject(number);
        }
        for _ in 0..8 {
            let worker = self.dice.roll(self.rig.workers.len());
            if worker < self.roles.io.into() || self.dice.roll(slow) == 0 {
                self.turn(worker);
            }
        }
        self.pass(5_000);
    }

    fn turn(&mut self, worker: usize) {
        self.rig.workers[worker].round(self.rig.now);
        self.collect();
    }

    fn pass(&mut self, nanoseconds: u64) {
        self.rig.now = Now::at(self.rig.now.nanoseconds + nanoseconds);
    }

    fn collect(&mut self) {
        for sent in self.rig.sent() {
            self.remaining += 1;
            self.got
                .entry(sent.frame[26..38].to_vec())
                .or_default()
                .push(sent.frame);
        }
    }

    fn under_way(&self) -> usize {
        self.came.len() - self.remaining
    }

    fn sum(&self, of: fn(&WorkerCounters) -> &Counter) -> u64 {
        let counters = self.rig.plane.counters().iter();
        counters.map(|worker| of(worker).get()).fold(0, u64::wrapping_add)
    }

    /// Overloads the session workers until a number of shards is borrowed.
    fn rise(&mut self, allocated: u64) {
        for _ in 0..20_000 {
            if self.sum(|w| &w.shards_assisted) >= allocated {
                return;
            }
            // The number of packets is limited to the capacity of rings and queues.
            let frames = if self.under_way() < 700 { 40 } else { 0 };
            self.step(frames, 24);
        }
        let waiting: Vec<u64> = self.rig.plane.counters().iter().map(|w| w.waiting.get()).collect();
        let allocated = self.sum(|w| &w.shards_assisted);
        panic!(
            "{allocated} shards are lent, {} wait, in rings {waiting:?}: {:?}",
            self.under_way(),
            self.roles
        );
    }

    /// Sends light traffic until all shards have been returned.
    fn fall(&mut self) {
        for _ in 0..20_000 {
            if self.sum(|w| &w.shards_assisted) == 0
                && self.rig.plane.start_parameters().assist.as_ref().unwrap().is_quiet()
            {
                return;
            }
            self.step(1, 1);
        }
        panic!("{} shards are still lent", self.sum(|w| &w.shards_assisted));
    }

    /// Checks that all received packets have left, and that the output equals the output of a single worker.
    fn check(&mut self) {
        self.rig.round();
        self.collect();
        assert_eq!(Vec::<(&str, u64)>::new(), self.rig.all_drops());
        assert_eq!(self.came.len(), self.remaining);
        let mut alone = ready(Plan {
            shards: SHARDS.into(),
            ..Plan::default()
        });
        alone.now = self.rig.now;
        let mut expected = Output::new();
        for frames in self.came.chunks(64) {
            for frame in frames {
                alone.wires[0].inject(INSIDE, frame, Checksums::Unverified);
            }
            alone.round();
            for sent in alone.sent() {
                let name = sent.frame[26..38].to_vec();
                expected.entry(name).or_default().push(sent.frame);
            }
        }
        assert!(expected == self.got, "other bytes, or another order");
        let flows = self.next.iter().filter(|&&next| next > 0).count();
        assert_eq!(flows as u64, self.sum(|w| &w.sessions_created));
        assert_eq!(0, self.sum(|w| &w.sessions_moved), "what goes comes");
    }
}

#[test]
fn assist_comes_and_goes_with_the_load_and_nobody_can_tell_by_the_packets() {
    for seed in 0..24 {
        let mut traffic = Traffic::new(seed, ROLES[seed as usize % ROLES.len()]);
        for turn in 1..=3 {
            traffic.rise(1 + seed / 12);
            assert!(turn <= traffic.sum(|w| &w.assists_begun));
            traffic.fall();
            assert_eq!(traffic.sum(|w| &w.assists_begun), traffic.sum(|w| &w.assists_ended));
            let owners: Vec<u16> = traffic.rig.plane.start_parameters().owners.iter().collect();
            assert_eq!(traffic.homes, owners, "seed {seed}");
        }
        let assisted = traffic.sum(|w| &w.assisted);
        assert!(assisted > 0, "seed {seed}");
        // Each shard that was borrowed has been returned.
        assert!(traffic.sum(|w| &w.shards_taken).is_multiple_of(2));
        traffic.check();
    }
}

#[test]
fn workers_in_turn_assist_as_those_at_random() {
    for roles in ROLES {
        let mut traffic = Traffic::new(7, roles);
        for turn in 0..3000 {
            if traffic.under_way() < 700 {
                (0..40).for_each(|_| {
                    let number = traffic.dice.roll(HOSTS.into()) as u8;
                    traffic.inject(number);
                });
            }
            for worker in 0..traffic.rig.workers.len() {
                if worker < roles.io.into() || turn % 8 == 0 {
                    traffic.turn(worker);
                }
            }
            traffic.pass(5_000);
        }
        assert!(traffic.sum(|w| &w.assisted) > 100, "{roles:?}");
        traffic.fall();
        assert_eq!(traffic.sum(|w| &w.assists_begun), traffic.sum(|w| &w.assists_ended));
        traffic.check();
    }
}

#[test]
fn worker_that_stands_still_delays_what_is_its_and_loses_nothing() {
    for (seed, roles) in (0..).zip(ROLES) {
        let mut traffic = Traffic::new(seed, roles);
        let still = usize::from(roles.io);
        // There must be so much traffic that an I/O worker requests a shard from the worker that doesn't run.
        while traffic.under_way() < 600 {
            traffic.step(40, 24);
        }
        let others: Vec<usize> = (0..traffic.rig.workers.len())
            .filter(|&worker| worker != still)
            .collect();
        for _ in 0..500 {
            for &worker in &others {
                traffic.turn(worker);
            }
            traffic.pass(5_000);
        }
        assert!(traffic.under_way() > 0, "what is its waits");
        traffic.fall();
        traffic.check();
    }
}

#[test]
fn nothing_is_lent_during_a_pause() {
    let mut traffic = Traffic::new(1, ROLES[0]);
    let assist = traffic.rig.plane.start_parameters().assist.clone().unwrap();
    traffic.rise(2);
    assist.pause();
    while !assist.is_quiet() {
        traffic.step(10, 24);
    }
    let taken = traffic.sum(|w| &w.shards_taken);
    for _ in 0..2000 {
        let frames = if traffic.under_way() < 700 { 40 } else { 0 };
        traffic.step(frames, 24);
    }
    for _ in 0..2000 {
        traffic.step(1, 1);
    }
    assert_eq!(taken, traffic.sum(|w| &w.shards_taken));
    assist.resume();
    traffic.fall();
    traffic.check();
}

#[test]
fn moves_by_the_control_thread_and_lending_keep_out_of_each_others_way() {
    for seed in 0..8 {
        let mut traffic = Traffic::new(
            seed,
            Roles {
                io: 2,
                inspect: 3,
                sends: seed % 2 == 0,
            },
        );
        let mut moved = 0;
        while moved < 6 {
            let frames = if traffic.under_way() < 700 { 40 } else { 0 };
            traffic.step(frames, 24);
            let shard = traffic.dice.roll(SHARDS.into()) as u16;
            let to = 2 + traffic.dice.roll(3) as u16;
            moved += u32::from(by_control(&mut traffic, shard, to));
        }
        // Borrowed shards are returned to their session workers.
        traffic.fall();
        traffic.check();
        assert!(traffic.sum(|w| &w.assists_begun) > 0, "seed {seed}");
    }
}

/// Moves a shard with the requests of the control thread. Returns `false` if a worker refused a request.
fn by_control(traffic: &mut Traffic, shard: u16, to: u16) -> bool {
    let ask = |traffic: &mut Traffic, worker: u16, request| {
        let requests = usize::from(worker);
        traffic.rig.desks[requests].requests.try_send(request).unwrap();
        loop {
            let frames = if traffic.under_way() < 700 { 20 } else { 0 };
            traffic.step(frames, 24);
            if let Ok(reply) = traffic.rig.desks[requests].replies.try_recv() {
                return matches!(reply, Reply::Done);
            }
        }
    };
    let from = traffic.rig.plane.start_parameters().owners.of(shard).unwrap();
    if from < 2 || from == to || !ask(traffic, to, Request::Expect { shard }) {
        return false;
    }
    let beats = |traffic: &Traffic| -> Vec<u64> {
        let counters = traffic.rig.plane.counters().iter();
        counters.map(|worker| worker.rounds.get()).collect()
    };
    if !ask(traffic, from, Request::StartRelease { shard, to }) {
        assert!(ask(traffic, to, Request::Release));
        return false;
    }
    let before = traffic.rig.plane.counters()[usize::from(to)].shards_taken.get();
    let then = beats(traffic);
    while beats(traffic).iter().zip(&then).any(|(now, then)| now - then < 2) {
        traffic.step(0, 24);
    }
    assert!(ask(traffic, from, Request::Release));
    while traffic.rig.plane.counters()[usize::from(to)].shards_taken.get() == before {
        traffic.step(0, 24);
    }
    true
}

thread_local! {
    /// The cycle counter, which advances by a fixed amount with each reading.
    static CYCLES: Cell<u64> = const { Cell::new(0) };
}

fn cycles() -> u64 {
    CYCLES.set(CYCLES.get() + 10);
    CYCLES.get()
}

#[test]
fn slice_ends_the_work_on_lent_shards_and_the_worker_receives_again() {
    // Every burst reads the counter several times, and thus uses up a whole time slice with these settings.
    let settings = Settings {
        threshold: THRESHOLD,
        slice: 50,
    };
    let plan = Plan {
        assist: Some(settings),
        cycles,
        ..ROLES[0].plan()
    };
    let mut traffic = Traffic::of(3, ROLES[0], plan);
    traffic.rise(4);
    let ended = traffic.sum(|w| &w.slices_ended);
    let (mut max, mut waited) = (0, 0);
    for _ in 0..400 {
        if traffic.under_way() < 300 {
            for _ in 0..400 {
                let number = traffic.dice.roll(HOSTS.into()) as u8;
                traffic.inject(number);
            }
        }
        let assisted = traffic.sum(|w| &w.assisted);
        traffic.turn(0);
        max = max.max(traffic.sum(|w| &w.assisted) - assisted);
        waited = waited.max(traffic.sum(|w| &w.assist_waiting));
        traffic.turn(1);
    }
    assert!(traffic.sum(|w| &w.slices_ended) > ended);
    assert!((1..=64).contains(&max), "{max} packets in one round");
    assert!(waited > 64, "{waited} packets waited for the next");
    traffic.fall();
    traffic.check();
}

#[test]
fn without_assist_shards_stay_where_they_are() {
    let mut traffic = Traffic::of(
        1,
        ROLES[0],
        Plan {
            assist: Some(Settings {
                threshold: u32::MAX,
                slice: 1,
            }),
            ..ROLES[0].plan()
        },
    );
    for _ in 0..500 {
        let frames = if traffic.under_way() < 700 { 40 } else { 0 };
        traffic.step(frames, 24);
    }
    assert_eq!(0, traffic.sum(|w| &w.shards_taken));
    traffic.check();
}

#[test]
fn what_waits_goes_out_where_all_ends_while_shards_are_lent() {
    for (seed, roles) in (0..).zip(ROLES) {
        let mut traffic = Traffic::new(seed, roles);
        traffic.rise(1);
        for _ in 0..traffic.dice.roll(20) {
            traffic.step(20, 24);
        }
        // Receive all packets that wait in the devices.
        while !traffic.rig.wires.iter().all(|wires| wires.is_idle()) {
            (0..usize::from(roles.io)).for_each(|worker| traffic.turn(worker));
        }
        for worker in &mut traffic.rig.workers {
            worker.stop_receiving();
        }
        for _ in 0..40 {
            traffic.rig.round();
        }
        traffic.collect();
        assert_eq!(0, traffic.under_way(), "{roles:?}");
        assert_eq!(Vec::<(&str, u64)>::new(), traffic.rig.all_drops());
    }
}

#[test]
fn workers_on_threads_lend_and_keep_order() {
    // The order of sent frames can be checked only if a single worker transmits.
    for roles in [ROLES[0], ROLES[2]] {
        let mut traffic = Traffic::new(5, roles);
        let assist = traffic.rig.plane.start_parameters().assist.clone().unwrap();
        let began = Instant::now();
        let end = AtomicBool::new(false);
        let start = traffic.rig.now.nanoseconds;
        let now = || Now::at(start + began.elapsed().as_nanos() as u64);
        let mut workers = std::mem::take(&mut traffic.rig.workers);
        std::thread::scope(|scope| {
            for (number, worker) in workers.iter_mut().enumerate() {
                let (end, now) = (&end, &now);
                scope.spawn(move || {
                    while !end.load(Ordering::Relaxed) {
                        worker.round(now());
                        // Session workers run less often, so that they become overloaded.
                        let turns = if number < roles.io.into() { 1 } else { 20 };
                        (0..turns).for_each(|_| std::thread::yield_now());
                    }
                });
            }
            let wait = |traffic: &mut Traffic, load: usize, done: &dyn Fn(&Traffic) -> bool| {
                while !done(traffic) {
                    traffic.collect();
                    while traffic.under_way() < load {
                        let number = traffic.dice.roll(HOSTS.into()) as u8;
                        traffic.inject(number);
                    }
                    if began.elapsed() > Duration::from_secs(120) {
                        end.store(true, Ordering::Relaxed);
                        panic!("it does not come to that: {roles:?}");
                    }
                    std::thread::yield_now();
                }
            };
            for turn in 1..=5 {
                wait(&mut traffic, 800, &|traffic| turn <= traffic.sum(|w| &w.assists_begun));
                wait(&mut traffic, 0, &|traffic| {
                    traffic.sum(|w| &w.shards_assisted) == 0 && assist.is_quiet() && traffic.under_way() == 0
                });
            }
            end.store(true, Ordering::Relaxed);
        });
        traffic.rig.workers = workers;
        traffic.pass(began.elapsed().as_nanos() as u64);
        traffic.check();
        assert!(traffic.sum(|w| &w.assisted) > 0);
    }
}

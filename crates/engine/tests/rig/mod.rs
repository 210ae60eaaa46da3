//! A gateway in memory: an inside network, an outside network, a pool, and a router that answers outside.
#![allow(dead_code, reason = "each test file uses its part")]

use std::net::Ipv4Addr;

use sluice_engine::counters::WorkerCounters;
use sluice_engine::io::memory::{MemoryIo, Sent, Wires};
use sluice_engine::plane::{NeighbourLimits, Plane};
use sluice_engine::policy::{Interface, Nat, Policy, Port, Setup};
use sluice_engine::reason::Reason;
use sluice_engine::request::{Counter, Reply, Request};
use sluice_engine::time::Now;
use sluice_engine::worker::Worker;
use sluice_nat::rule::{DestinationRule, Prefix, Rules, SourceRule};
use sluice_nat::shard::Shards;
use sluice_nat::{Pool, Pools};
use sluice_route::{Address, Route, RouteSet, SourceValidation, Via};
use sluice_table::memory::Line;
use sluice_wire::{Checksums, validity};

pub const INSIDE: u16 = 0;
pub const OUTSIDE: u16 = 1;
pub const INSIDE_MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
pub const OUTSIDE_MAC: [u8; 6] = [2, 0, 0, 0, 2, 1];
pub const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 1, 10];
pub const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 2, 254];
pub const HOST: &str = "192.168.1.10";
pub const POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);

pub fn v4(text: &str) -> u32 {
    text.parse::<Ipv4Addr>().unwrap().to_bits()
}

/// What a test may change before the gateway is made.
pub struct Plan {
    pub workers: usize,
    pub shards: u32,
    pub sessions: u32,
    pub translate: bool,
    pub pool: Vec<(u32, u32)>,
    pub pool_ports: (u16, u16),
    pub forwards: Vec<DestinationRule<u32>>,
    pub known_neighbours: bool,
    pub outside_mtu: u16,
    pub limits: NeighbourLimits,
    pub policy: fn(&mut Policy),
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            workers: 1,
            shards: 4,
            sessions: 4096,
            translate: true,
            pool: vec![(POOL.to_bits(), POOL.to_bits() + 1)],
            pool_ports: (1024, 65_535),
            forwards: Vec::new(),
            known_neighbours: true,
            outside_mtu: 1500,
            limits: NeighbourLimits::default(),
            policy: |_| {},
        }
    }
}

pub struct Rig {
    pub plane: Plane,
    pub workers: Vec<Worker<'static>>,
    pub wires: Vec<Wires>,
    pub desks: Vec<Counter>,
    pub now: Now,
}

fn interface(index: u16, mac: [u8; 6], addresses: &[&str], mtu: u16, stateful: bool) -> Interface {
    let addresses = addresses.iter().map(|text| {
        let (address, length) = text.split_once('/').unwrap();
        let address = match address.parse().unwrap() {
            std::net::IpAddr::V4(a) => Address::V4(a.to_bits()),
            std::net::IpAddr::V6(a) => Address::V6(a.to_bits()),
        };
        (address, length.parse().unwrap())
    });
    Interface {
        name: ["inside", "outside"][index as usize].into(),
        port: index,
        tags: Vec::new(),
        mac,
        mtu,
        link: sluice_route::Interface {
            index,
            addresses: addresses.collect(),
        },
        context: 0,
        stateful: [stateful, false],
        outside: stateful && index == OUTSIDE,
        validation: SourceValidation::Off,
        validity: validity::Policy::default(),
        complete_checksums: true,
        advertise: None,
    }
}

/// The policy and routes of a plan.
pub fn policy(plan: &Plan) -> (Policy, RouteSet) {
    let interfaces = vec![
        interface(
            INSIDE,
            INSIDE_MAC,
            &["192.168.1.1/24", "2001:db8:1::1/64"],
            1500,
            plan.translate,
        ),
        interface(
            OUTSIDE,
            OUTSIDE_MAC,
            &["203.0.113.1/24", "2001:db8:2::1/64"],
            plan.outside_mtu,
            plan.translate,
        ),
    ];
    let links: Vec<_> = interfaces.iter().map(|i| i.link.clone()).collect();
    let mut policy = Policy::new(2, interfaces);
    if plan.translate {
        let pool = Pool {
            addresses: plan.pool.clone(),
            ports: plan.pool_ports.0..=plan.pool_ports.1,
            ..Pool::new(1, 1)
        };
        let pools = Pools::new(&[pool]).unwrap();
        let source = SourceRule {
            context: 0,
            inside: Prefix {
                address: v4("192.168.0.0"),
                length: 16,
            },
            outside: Some(OUTSIDE),
            pool: 0,
        };
        let rules = Rules::new(&[source], &plan.forwards, &pools).unwrap();
        policy.nat4 = Nat { rules, pools };
    }
    (plan.policy)(&mut policy);
    let default = |prefix: &str, via: &str| {
        let (prefix, via): (std::net::IpAddr, std::net::IpAddr) = (prefix.parse().unwrap(), via.parse().unwrap());
        let plain = |a| match a {
            std::net::IpAddr::V4(a) => Address::V4(a.to_bits()),
            std::net::IpAddr::V6(a) => Address::V6(a.to_bits()),
        };
        Route {
            prefix: sluice_route::Prefix::new(plain(prefix), 0),
            via: Via::Gateway {
                address: plain(via),
                interface: None,
            },
        }
    };
    let routes = [default("0.0.0.0", "203.0.113.254"), default("::", "2001:db8:2::fe")];
    (policy, RouteSet::new(&links, &routes).unwrap())
}

impl Rig {
    pub fn new(plan: Plan) -> Self {
        let (policy, routes) = policy(&plan);
        let shards = Shards::new(plan.shards).unwrap();
        let setup = Setup {
            shards,
            owners: Setup::owners(shards, plan.workers),
            sessions: [plan.sessions, plan.sessions],
            ports: ["inside", "outside"]
                .map(|name| Port {
                    name: name.into(),
                    sender: None,
                })
                .into(),
            secret: [1, 2],
            steering: [3, 4],
            fragments: 64,
        };
        let now = Now::at(1_000_000_000);
        let mut plane = Plane::new(setup, policy, &routes, plan.limits, plan.workers, now).unwrap();
        let lines = plane.lines().total();
        let (mut workers, mut wires, mut desks) = (Vec::new(), Vec::new(), Vec::new());
        for (own, io) in MemoryIo::workers(plan.workers, 2).into_iter().enumerate() {
            wires.push(io.wires());
            let memory = |_| &mut *vec![Line([0; 8]); lines].leak();
            let (worker, desk) = plane
                .worker(own as u16, Box::new(io), vec![0, 1], memory, || 0)
                .unwrap();
            workers.push(worker);
            desks.push(desk);
        }
        let mut rig = Self {
            plane,
            workers,
            wires,
            desks,
            now,
        };
        if plan.known_neighbours {
            rig.know(INSIDE, Address::V4(v4(HOST)), HOST_MAC);
            rig.know(OUTSIDE, Address::V4(v4("203.0.113.254")), ROUTER_MAC);
            rig.know(INSIDE, Address::V6(0x2001_0db8_0001_0000_0000_0000_0000_0010), HOST_MAC);
            rig.know(
                OUTSIDE,
                Address::V6(0x2001_0db8_0002_0000_0000_0000_0000_00fe),
                ROUTER_MAC,
            );
        }
        rig
    }

    /// Configure a neighbour.
    pub fn know(&mut self, interface: u16, address: Address, mac: [u8; 6]) {
        assert!(matches!(
            self.ask(
                0,
                Request::SetNeighbour {
                    interface,
                    address,
                    mac
                }
            ),
            Reply::Done
        ));
    }

    /// Ask a worker and let it answer.
    pub fn ask(&mut self, worker: usize, request: Request) -> Reply {
        self.desks[worker].requests.try_send(request).unwrap();
        for _ in 0..100_000 {
            self.round();
            if let Ok(reply) = self.desks[worker].replies.try_recv() {
                return reply;
            }
        }
        panic!("no answer")
    }

    /// Let every worker work until none has anything to do.
    pub fn round(&mut self) {
        loop {
            let busy: usize = self.workers.iter_mut().map(|worker| worker.round(self.now)).sum();
            if busy == 0 {
                break;
            }
        }
        self.check();
    }

    /// Nothing is lost: every packet has left by a counted exit.
    pub fn check(&self) {
        for counters in self.plane.counters() {
            assert_eq!(0, counters.imbalance(), "{counters:?}");
            assert_eq!(0, counters.forgotten.get());
        }
    }

    /// Send a frame into an interface of worker 0, whose checksums nothing vouches for; what comes out of all.
    pub fn send(&mut self, interface: u16, frame: &[u8]) -> Vec<Sent> {
        self.send_at(0, interface, frame)
    }

    /// The same at any worker.
    pub fn send_at(&mut self, worker: usize, interface: u16, frame: &[u8]) -> Vec<Sent> {
        self.wires[worker].inject(interface, frame, Checksums::Unverified);
        self.round();
        self.sent()
    }

    /// What was sent since the last call.
    pub fn sent(&mut self) -> Vec<Sent> {
        self.wires.iter().flat_map(|wires| wires.take_sent()).collect()
    }

    /// Let time pass, in steps of 100 ms.
    pub fn pass(&mut self, milliseconds: u64) {
        let end = self.now.nanoseconds + milliseconds * 1_000_000;
        while self.now.nanoseconds < end {
            self.now = Now::at(end.min(self.now.nanoseconds + 100_000_000));
            for _ in 0..8 {
                self.round();
            }
        }
    }

    /// Drops by name, of all workers and interfaces.
    pub fn drops(&self, name: &str) -> u64 {
        let reason = Reason::all()
            .find(|reason| reason.name() == name)
            .expect("a reason of this name");
        self.interfaces().map(|i| i.drops(reason)).sum()
    }

    /// Every drop that was counted, by name.
    pub fn all_drops(&self) -> Vec<(&'static str, u64)> {
        let count = |reason| self.interfaces().map(|i| i.drops(reason)).sum();
        Reason::all()
            .map(|r| (r.name(), count(r)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    fn interfaces(&self) -> impl Iterator<Item = &sluice_engine::counters::InterfaceCounters> {
        self.plane
            .counters()
            .iter()
            .flat_map(|counters: &std::sync::Arc<WorkerCounters>| counters.interfaces.iter())
    }
}

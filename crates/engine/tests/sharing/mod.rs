//! Virtual routers with overlapping addresses. Each router forwards the packets of a host from its inside interface to
//! its outside interface.
#![allow(dead_code, reason = "each test file uses its part")]

use std::cell::Cell;

use crate::rig::Memory;
use sluice_engine::control::plane::{ControlPlane, NeighbourLimits};
use sluice_engine::packet::io::memory::{MemoryIo, Wires};
use sluice_engine::packet::io::{NO_PORT, PortIndex};
use sluice_engine::packet::reason::Reason;
use sluice_engine::packet::time::Now;
use sluice_engine::snapshot::shard_owners::{ShardExchange, ShardOwners};
use sluice_engine::snapshot::shares::{LinkShare, RouterShare};
use sluice_engine::snapshot::steering::{Affinity, HashFields, Steering, SteeringSettings};
use sluice_engine::snapshot::{Interface, Router, Snapshot, StartParameters, SubscriberCapacity};
use sluice_engine::worker::Worker;
use sluice_engine::worker::request::{Reply, Request, WorkerHandle};
use sluice_route::{Address, Prefix, Route, RouteSet, SourceValidation, Via};
use sluice_testkit::packet;
use sluice_wire::vlan::Tag;
use sluice_wire::{Checksums, validity};

pub const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 1, 10];
pub const NEXT_MAC: [u8; 6] = [2, 0, 0, 0, 2, 254];
pub const MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
/// The port on which all packets leave.
pub const OUT: PortIndex = 0;

thread_local! { static CYCLES: Cell<u64> = const { Cell::new(0) }; }

/// A cycle counter that advances by a fixed amount with each reading, so that all bursts have equal costs.
pub fn cycles() -> u64 {
    CYCLES.with(|cycles| {
        cycles.set(cycles.get() + 1_000);
        cycles.get()
    })
}

pub struct Gateway {
    pub plane: ControlPlane,
    pub worker: Worker<'static>,
    pub wires: Wires,
    pub requests: WorkerHandle,
    pub now: Now,
    inside: Vec<PortIndex>,
    routes: Vec<RouteSet>,
    interfaces: Vec<Interface>,
    /// The last field, because it must be dropped after the other fields, which borrow from it.
    _memory: Memory,
}

fn address(text: &str) -> Address {
    text.parse::<std::net::IpAddr>().unwrap().into()
}

fn interface(number: u16, port: PortIndex, vlan: Option<u16>, router: u16, own: &str) -> Interface {
    Interface {
        name: format!("i{number}"),
        port,
        tags: vlan.map(Tag::vlan).into_iter().collect(),
        mac: MAC,
        mtu: 1500,
        link: sluice_route::Interface {
            index: number,
            addresses: vec![(address(own), 24)],
        },
        router,
        context: router.into(),
        stateful: [false; 2],
        outside: false,
        validation: SourceValidation::Off,
        validity: validity::Policy::default(),
        complete_checksums: true,
        priority: Default::default(),
        neighbours: Default::default(),
        advertise: None,
        segment_size: None,
        tunnel: None,
        peer: None,
        host: false,
        bridge: None,
    }
}

/// The VLAN of a router on a port that several routers share.
fn vlan(router: usize) -> u16 {
    10 + router as u16
}

impl Gateway {
    /// Creates one router for each entry of `inside`, which is a port. Interface `2 * router` is on that port, with a tag if
    /// several routers share the port. Interface `2 * router + 1` is on [`OUT`], with a tag.
    pub fn new(inside: &[PortIndex], routers: &[RouterShare], links: &[LinkShare]) -> Self {
        Self::with(
            inside,
            NeighbourLimits::default(),
            |_, _| {},
            |snapshot| {
                snapshot.share_by(routers.to_vec(), links.to_vec());
            },
        )
    }

    pub fn with(
        inside: &[PortIndex],
        limits: NeighbourLimits,
        change: impl Fn(&mut Vec<Interface>, &mut Vec<RouteSet>),
        share: impl Fn(&mut Snapshot),
    ) -> Self {
        let ports = usize::from(inside.iter().max().unwrap() + 1).max(2);
        let mut interfaces = Vec::new();
        for (router, &port) in inside.iter().enumerate() {
            let shared = inside.iter().filter(|other| **other == port).count() > 1;
            let number = 2 * router as u16;
            let tag = shared.then(|| vlan(router));
            interfaces.push(interface(number, port, tag, router as u16, "10.0.0.1"));
            interfaces.push(interface(
                number + 1,
                OUT,
                Some(vlan(router)),
                router as u16,
                "192.0.2.1",
            ));
        }
        let mut routes: Vec<RouteSet> = (0..inside.len())
            .map(|router| {
                let links = [&interfaces[2 * router], &interfaces[2 * router + 1]].map(|one| one.link.clone());
                let via = Via::Gateway {
                    address: address("192.0.2.254"),
                    interface: None,
                };
                let default = Route::new(Prefix::new(address("0.0.0.0"), 0), via);
                RouteSet::new(&links, &[default]).unwrap()
            })
            .collect();
        change(&mut interfaces, &mut routes);
        let snapshot = Self::snapshot(&interfaces, ports, inside.len(), &share);
        let steering = Steering::seeded(
            1,
            &SteeringSettings {
                hashed: HashFields::Subset,
                ports: 64,
                together: Affinity::Hosts,
                prefix: [32, 128],
            },
            3,
        )
        .unwrap();
        let start = StartParameters {
            owners: ShardOwners::distribute(steering.shards(), &[0]).into(),
            stages: Default::default(),
            assist: None,
            steering,
            sessions: [64, 64],
            ports,
            secret: [1, 2],
            fragments: Default::default(),
            unsolicited_syns: 0,
            spare_addresses: 0,
            meters: Default::default(),
            applications: None,
            inspection: None,
            events: Default::default(),
            interfaces: 64,
            subscribers: SubscriberCapacity::default(),
        };
        let now = Now::at(1_000_000_000);
        let mut plane = ControlPlane::new(start, snapshot, &routes, limits, 1, now).unwrap();
        let lines = plane.lines().total();
        let io = MemoryIo::new(ports);
        let wires = io.wires();
        let mut memory = Memory::default();
        let give = |_| memory.lines(lines);
        let receives = (0..ports as PortIndex).collect();
        let (mut worker, requests) = plane.worker(0, Box::new(io), receives, give, cycles).unwrap();
        worker.join(ShardExchange::new(1, 0, 64).into());
        let mut gateway = Self {
            plane,
            worker,
            wires,
            requests,
            now,
            inside: inside.to_vec(),
            routes,
            interfaces,
            _memory: memory,
        };
        for router in 0..inside.len() {
            gateway.know(2 * router as u16 + 1, "192.0.2.254");
        }
        gateway
    }

    fn snapshot(interfaces: &[Interface], ports: usize, routers: usize, share: impl Fn(&mut Snapshot)) -> Snapshot {
        let mut snapshot = Snapshot::new(ports, interfaces.to_vec());
        let router = |number| Router {
            name: format!("r{number}"),
            ..Router::default()
        };
        snapshot.routers = (0..routers).map(router).collect();
        snapshot.hosts = vec![Default::default(); routers];
        share(&mut snapshot);
        snapshot
    }

    /// Commits the configuration with changed weights and rates.
    pub fn commit(&mut self, share: impl Fn(&mut Snapshot)) {
        let ports = self.plane.start_parameters().ports;
        let snapshot = Self::snapshot(&self.interfaces, ports, self.inside.len(), share);
        self.plane.commit(snapshot, &self.routes).unwrap();
    }

    pub fn know(&mut self, interface: u16, neighbour: &str) {
        let request = Request::SetNeighbour {
            interface,
            address: address(neighbour),
            mac: NEXT_MAC,
        };
        self.ask(request);
    }

    /// Sends a request to the worker. Packets that wait in the device are not lost.
    pub fn ask(&mut self, request: Request) -> Reply {
        self.requests.requests.try_send(request).unwrap();
        loop {
            if let Ok(reply) = self.requests.replies.try_recv() {
                return reply;
            }
            self.round();
        }
    }

    /// Queues a packet of a router's host, so that the worker receives it.
    pub fn host_sends(&self, router: usize, length: usize) {
        self.host_sends_to(router, "198.51.100.7:53", length);
    }

    pub fn host_sends_to(&self, router: usize, to: &str, length: usize) {
        let frame = packet::udp4("10.0.0.10:5000", to).macs(HOST_MAC, MAC);
        let port = self.inside[router];
        let shared = self.inside.iter().filter(|other| **other == port).count() > 1;
        let frame = if shared { frame.tag(0x8100, vlan(router)) } else { frame };
        let head = frame.build().len();
        let frame = frame.payload(&vec![7; length.saturating_sub(head)]).build();
        self.wires.inject(port, &frame, Checksums::Unverified);
    }

    pub fn round(&mut self) {
        self.worker.round(self.now);
        let counters = &self.plane.counters()[0];
        assert_eq!(0, counters.imbalance());
        assert_eq!(0, counters.leaked.get());
    }

    /// Advances the clock by nanoseconds.
    pub fn pass(&mut self, nanoseconds: u64) {
        self.now = Now::at(self.now.nanoseconds + nanoseconds);
    }

    /// Number of packets of each router that were sent since the last call.
    pub fn sent(&mut self) -> Vec<u64> {
        let mut sent = vec![0; self.inside.len()];
        for frame in self.wires.take_sent() {
            let id = u16::from_be_bytes([frame.frame[14], frame.frame[15]]);
            let is_tagged = frame.port == OUT && frame.frame[12..14] == [0x81, 0] && frame.frame[16..18] == [8, 0];
            if let Some(router) = sent.get_mut(usize::from(id).wrapping_sub(10)).filter(|_| is_tagged) {
                *router += 1;
            }
        }
        sent
    }

    /// Number of drops of a router, by name of the reason.
    pub fn drops(&self, router: usize, name: &str) -> u64 {
        let reason = Reason::all().find(|reason| reason.name() == name).expect("a reason");
        let own = [2 * router, 2 * router + 1].map(|number| &self.plane.counters()[0].interfaces[number]);
        own.iter().map(|counters| counters.drops(reason)).sum()
    }
}

/// Creates an inter-router link between two interfaces of different routers.
pub fn link(interfaces: &mut [Interface], from: usize, to: usize) {
    for (one, other) in [(from, to), (to, from)] {
        interfaces[one].port = NO_PORT;
        interfaces[one].tags = Vec::new();
        interfaces[one].peer = Some(other as u16);
    }
}

pub fn weight(weight: u8) -> RouterShare {
    RouterShare {
        weight: Some(weight),
        ..RouterShare::default()
    }
}

/// Asserts that two numbers are equal within 2 %.
#[track_caller]
pub fn assert_about(expected: f64, found: f64) {
    assert!(
        (expected - found).abs() <= expected * 0.02,
        "{found} is not about {expected}"
    );
}

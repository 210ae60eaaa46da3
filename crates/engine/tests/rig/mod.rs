//! A gateway in memory, with an inside network, an outside network, a pool, and a router on the outside network.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod inspected;

use std::net::{Ipv4Addr, SocketAddrV4};

use bytemuck::allocation::zeroed_slice_box;
use sluice_engine::control::plane::{ControlPlane, NeighbourLimits};
use sluice_engine::packet::counters::WorkerCounters;
use sluice_engine::packet::io::Handover;
pub use sluice_engine::packet::io::memory::Sent;
use sluice_engine::packet::io::memory::{MemoryIo, Wires};
use sluice_engine::packet::reason::Reason;
use sluice_engine::packet::time::Now;
use sluice_engine::placement::Part;
use sluice_engine::snapshot::assist::Assist;
use sluice_engine::snapshot::fragment_limits::FragmentLimits;
use sluice_engine::snapshot::shard_owners::{ShardExchange, ShardOwners};
use sluice_engine::snapshot::sites;
use sluice_engine::snapshot::stages::Stages;
use sluice_engine::snapshot::steering::{Affinity, HashFields, Steering, SteeringSettings};
use sluice_engine::snapshot::{Interface, Nat, SiteClassifier, Snapshot, StartParameters, SubscriberCapacity};
use sluice_engine::worker::Worker;
use sluice_engine::worker::request::{Cursor, Filter, Reply, Request, SessionInfo, WorkerHandle};
use sluice_nat::Behaviour;
use sluice_nat::rule::{DestinationRule, Prefix, Rules, SourceAction, SourceRule};
use sluice_nat::sites::{Network, SiteWriter};
use sluice_nat::{Pool, Pools};
use sluice_route::{Address, Route, RouteSet, SourceValidation, Via};
use sluice_table::memory::Line;
use sluice_testkit::packet;
use sluice_wire::layers::Flags;
use sluice_wire::{Checksums, layers, validity};

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

/// Parses an address.
pub fn plain(text: &str) -> Address {
    text.parse::<std::net::IpAddr>().unwrap().into()
}

pub fn route(prefix: &str, length: u8, via: Via) -> Route {
    Route::new(sluice_route::Prefix::new(plain(prefix), length), via)
}

/// Source and destination of an IPv4 frame. For ICMP queries, both ports are the identifier.
pub fn flow(frame: &[u8]) -> (SocketAddrV4, SocketAddrV4) {
    let layers = layers::parse(frame).unwrap();
    let mut tuple = layers.key4(frame, 0).tuple();
    if layers.flags.has(Flags::ICMP_REPLY) {
        tuple.source_port = tuple.destination_port;
    } else if layers.flags.has(Flags::ICMP_QUERY) {
        tuple.destination_port = tuple.source_port;
    }
    let at = |address, port| SocketAddrV4::new(Ipv4Addr::from_bits(address), port);
    (
        at(tuple.source, tuple.source_port),
        at(tuple.destination, tuple.destination_port),
    )
}

/// Whether every checksum of a frame is correct according to the crate `wire`. (Other tests compare frames with an
/// independent library.)
pub fn is_valid(frame: &[u8]) -> bool {
    let lenient = validity::Policy {
        martians: false,
        reserved: false,
        source_routes: true,
        headers: true,
    };
    layers::parse(frame).is_ok_and(|layers| {
        validity::validate(frame, Checksums::Unverified, &layers, &lenient) == Ok(validity::Validity::Valid)
    })
}

/// Settings of sites, maximum number of sites, and maximum number of terminals.
pub type Sites = (fn() -> sites::SiteSettings, u32, u32);

/// Parameters of the gateway that tests can change.
pub struct Plan {
    pub workers: usize,
    pub shards: u32,
    pub sessions: u32,
    /// Whether shards may take shared capacity when their tables are full, as in the daemon.
    pub shares: bool,
    pub translate: bool,
    pub pool: Vec<(u32, u32)>,
    pub pool_ports: (u16, u16),
    pub behaviour: Behaviour,
    /// Function that changes the pool.
    pub change_pool: fn(&mut Pool<u32>),
    pub subscriber_prefix: u8,
    /// The fields that NICs hash, and the choice of flows that belong to one shard.
    pub hashed: HashFields,
    pub together: Affinity,
    /// Number of consecutive outside ports that belong to one shard.
    pub ports_together: u32,
    pub events: sluice_engine::snapshot::EventSettings,
    pub spare_addresses: u32,
    /// Source rules in addition to the source rule of the pool.
    pub sources: Vec<SourceRule<u32>>,
    pub forwards: Vec<DestinationRule<u32>>,
    pub known_neighbours: bool,
    pub outside_mtu: u16,
    pub limits: NeighbourLimits,
    /// The workers that have transmit queues of both ports; empty if all workers have transmit queues.
    pub senders: Vec<u16>,
    /// The workers of each part. An empty list means that all workers have the part.
    pub stages: [Vec<u16>; 4],
    /// Settings of assistance.
    pub assist: Option<sluice_engine::snapshot::assist::Settings>,
    /// Function that reads the cycle counter.
    pub cycles: fn() -> u64,
    /// Capacity of each ring to a worker.
    pub ring: usize,
    pub fragments: FragmentLimits,
    pub unsolicited_syns: u32,
    /// Capacity of each shard's inspection.
    pub inspection: Option<sluice_inspect::inspector::InspectorCapacity>,
    /// Capacity of each worker's application identification.
    pub applications: Option<sluice_inspect::applications::ApplicationCapacity>,
    /// Function that wraps the devices of a worker.
    pub device: fn(MemoryIo) -> Box<dyn Handover>,
    /// Function that changes the interfaces before routes are derived from them.
    pub interfaces: fn(&mut Vec<Interface>),
    pub routes: Vec<Route>,
    pub snapshot: fn(&mut Snapshot),
    /// Subscribers' sites.
    pub sites: Option<Sites>,
    /// Networks of the sites' own addresses.
    pub site_networks: Vec<Network>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            workers: 1,
            shards: 4,
            sessions: 4096,
            shares: false,
            translate: true,
            pool: vec![(POOL.to_bits(), POOL.to_bits() + 1)],
            pool_ports: (1024, 65_535),
            behaviour: Behaviour::default(),
            change_pool: |_| {},
            subscriber_prefix: 32,
            hashed: HashFields::Subset,
            together: Affinity::Hosts,
            ports_together: 64,
            events: Default::default(),
            spare_addresses: 8,
            sources: Vec::new(),
            forwards: Vec::new(),
            known_neighbours: true,
            outside_mtu: 1500,
            limits: NeighbourLimits::default(),
            senders: Vec::new(),
            stages: Default::default(),
            assist: None,
            cycles: || 0,
            ring: 1024,
            fragments: FragmentLimits {
                datagrams: 64,
                ..FragmentLimits::default()
            },
            unsolicited_syns: 0,
            inspection: None,
            applications: None,
            device: |io| Box::new(io),
            interfaces: |_| {},
            routes: Vec::new(),
            snapshot: |_| {},
            sites: None,
            site_networks: Vec::new(),
        }
    }
}

pub struct Rig {
    pub plane: ControlPlane,
    pub workers: Vec<Worker<'static>>,
    pub wires: Vec<Wires>,
    pub desks: Vec<WorkerHandle>,
    /// Number of the owner worker.
    pub owner: usize,
    pub now: Now,
    /// Writer of the site table, if there are sites.
    pub writer: Option<SiteWriter>,
    /// The last field, because it must be dropped after the other fields, which borrow from it.
    _memory: Memory,
}

/// Memory of the workers, which is freed on drop. One program runs all tests, and some tests create thousands of
/// gateways.
#[derive(Default)]
pub struct Memory(Vec<*mut [Line]>);

impl Memory {
    /// Allocates this number of lines. References to the lines must not outlive this value.
    pub fn lines(&mut self, lines: usize) -> &'static mut [Line] {
        let given = Box::leak(zeroed_slice_box(lines));
        self.0.push(given);
        given
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for given in self.0.drain(..) {
            // SAFETY: the pointer is from `Box::leak`, and its users have been dropped before, because gateways have
            // this value as their last field.
            drop(unsafe { Box::from_raw(given) });
        }
    }
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
        router: 0,
        context: 0,
        stateful: [stateful, false],
        outside: stateful && index == OUTSIDE,
        validation: SourceValidation::Off,
        validity: validity::Policy::default(),
        complete_checksums: true,
        priority: Default::default(),
        neighbours: Default::default(),
        advertise: None,
        segment_size: None,
        peer: None,
        tunnel: None,
        host: false,
        bridge: None,
    }
}

/// The snapshot and the routes of a plan.
pub fn snapshot(plan: &Plan) -> (Snapshot, RouteSet) {
    let mut interfaces = vec![
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
    (plan.interfaces)(&mut interfaces);
    let links: Vec<_> = interfaces.iter().map(|i| i.link.clone()).collect();
    let mut snapshot = Snapshot::new(2, interfaces);
    snapshot.senders = vec![plan.senders.clone().into(); 2];
    if plan.translate {
        let mut pool = Pool {
            addresses: plan.pool.clone(),
            ports: plan.pool_ports.0..=plan.pool_ports.1,
            behaviour: [plan.behaviour; 3],
            ..Pool::new(1, 1)
        };
        (plan.change_pool)(&mut pool);
        let pools = Pools::new(&[pool]).unwrap();
        let inside = Prefix {
            address: v4("192.168.0.0"),
            length: 16,
        };
        let source = SourceRule {
            outside: Some(OUTSIDE),
            ..SourceRule::of(inside, SourceAction::Pool(0))
        };
        let sources: Vec<_> = [source].into_iter().chain(plan.sources.iter().copied()).collect();
        let rules = Rules::new(&sources, &plan.forwards, &pools).unwrap();
        snapshot.nat4 = Nat {
            rules,
            pools,
            ..Nat::default()
        };
    }
    (plan.snapshot)(&mut snapshot);
    snapshot.spread_flows();
    let default = |any: &str, gateway: &str| {
        route(
            any,
            0,
            Via::Gateway {
                address: plain(gateway),
                interface: None,
            },
        )
    };
    let mut routes = vec![default("0.0.0.0", "203.0.113.254"), default("::", "2001:db8:2::fe")];
    // If a route of the plan has the prefix of a default route, it replaces the default route.
    routes.retain(|route| plan.routes.iter().all(|other| other.prefix != route.prefix));
    routes.extend(&plan.routes);
    (snapshot, RouteSet::new(&links, &routes).unwrap())
}

impl Rig {
    pub fn new(plan: Plan) -> Self {
        let (mut snapshot, routes) = snapshot(&plan);
        let writer = plan.sites.map(|(settings, sites, terminals)| {
            let (writer, table) = SiteWriter::new(sites, terminals, &plan.site_networks, [5, 6]);
            snapshot.serve_sites(SiteClassifier::new(table, settings()));
            writer
        });
        let stages = Stages::new(plan.stages.clone());
        let in_charge = match stages.workers(Part::Session) {
            [] => (0..plan.workers as u16).collect(),
            workers => workers.to_vec(),
        };
        let owner = usize::from(in_charge[0]);
        let wanted = SteeringSettings {
            hashed: plan.hashed,
            ports: plan.ports_together,
            together: plan.together,
            prefix: [plan.subscriber_prefix, 128],
        };
        let steering = Steering::seeded(plan.shards, &wanted, 3).unwrap();
        let start = StartParameters {
            owners: ShardOwners::distribute(steering.shards(), &in_charge).into(),
            stages: stages.clone(),
            assist: plan.assist.map(|settings| Assist::new(plan.workers, settings).into()),
            steering,
            sessions: [plan.sessions, plan.sessions],
            ports: 2,
            secret: [1, 2],
            fragments: plan.fragments,
            unsolicited_syns: plan.unsolicited_syns,
            spare_addresses: plan.spare_addresses,
            meters: Default::default(),
            applications: plan.applications,
            inspection: plan.inspection,
            events: plan.events,
            interfaces: 0,
            subscribers: SubscriberCapacity {
                prefix: [plan.subscriber_prefix, 128],
                ..SubscriberCapacity::default()
            },
        };
        let now = Now::at(1_000_000_000);
        let mut plane = ControlPlane::new(start, snapshot, &[routes], plan.limits, plan.workers, now).unwrap();
        let lines = plane.lines().total();
        let exchange = std::sync::Arc::new(ShardExchange::new(plan.shards as usize, plan.workers - 1, plan.ring));
        let mut memory = Memory::default();
        let (mut workers, mut wires, mut desks) = (Vec::<Worker<'static>>::new(), Vec::new(), Vec::new());
        for (own, mut io) in MemoryIo::workers(plan.workers, 2).into_iter().enumerate() {
            io.limit_ring(plan.ring);
            wires.push(io.wires());
            let receives = if stages.has_part(own as u16, Part::Receive) {
                vec![0, 1]
            } else {
                Vec::new()
            };
            let give = |_| memory.lines(lines);
            let (mut worker, requests) = plane
                .worker(own as u16, (plan.device)(io), receives, give, plan.cycles)
                .unwrap();
            worker.join(exchange.clone());
            workers.push(worker);
            desks.push(requests);
        }
        if plan.shares {
            let reserves = plane.reserves(memory.lines(plane.reserved())).unwrap();
            workers.iter_mut().for_each(|worker| worker.share(&reserves));
        }
        let mut rig = Self {
            plane,
            workers,
            wires,
            desks,
            owner,
            now,
            writer,
            _memory: memory,
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

    /// Configures a static neighbour.
    pub fn know(&mut self, interface: u16, address: Address, mac: [u8; 6]) {
        assert!(matches!(
            self.ask(
                self.owner,
                Request::SetNeighbour {
                    interface,
                    address,
                    mac
                }
            ),
            Reply::Done
        ));
    }

    /// Sends a request to a worker, and runs the worker until it answers.
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

    /// Runs all workers until they are idle.
    pub fn round(&mut self) {
        loop {
            let busy: usize = self.workers.iter_mut().map(|worker| worker.round(self.now)).sum();
            if busy == 0 {
                break;
            }
        }
        self.check();
    }

    /// Checks that every packet has left through a counted exit.
    pub fn check(&mut self) {
        for (worker, counters) in self.workers.iter_mut().zip(self.plane.counters()) {
            assert_eq!(0, counters.imbalance(), "{counters:?}");
            assert_eq!(0, counters.leaked.get());
            let io = worker.io_mut();
            assert_eq!(0, io.outstanding());
            let waiting: u64 = counters
                .interfaces
                .iter()
                .map(|i| i.parked.get().wrapping_sub(i.unparked.get()))
                .fold(0, u64::wrapping_add);
            assert_eq!(waiting, io.parked() as u64, "a parked buffer was lost");
        }
    }

    /// Number of existing sessions.
    pub fn live(&self) -> u64 {
        let (made, ended) = self.plane.counters().iter().fold((0, 0), |(made, ended), c| {
            (made + c.sessions_created.get(), ended + c.sessions_ended.get())
        });
        made - ended
    }

    /// All sessions, as listed by each worker.
    pub fn sessions(&mut self, filter: Filter) -> Vec<SessionInfo> {
        let mut all = Vec::new();
        for worker in 0..self.workers.len() {
            let mut cursor = Some(Cursor::default());
            while let Some(from) = cursor {
                let into = Vec::with_capacity(1024);
                let request = Request::List {
                    cursor: from,
                    filter,
                    into,
                };
                let Reply::Listed { next, sessions } = self.ask(worker, request) else {
                    panic!("not a list")
                };
                all.extend(sessions);
                cursor = next;
            }
        }
        all
    }

    /// Number of references from sessions to a neighbour.
    pub fn uses(&self, interface: u16, address: &str) -> u32 {
        let neighbours = self.plane.neighbours();
        neighbours.uses(neighbours.find(interface, plain(address)).unwrap())
    }

    /// Sends a frame of the inside host.
    pub fn host_sends(&mut self, frame: &packet::Frame) -> Vec<Sent> {
        self.send(INSIDE, &frame.clone().macs(HOST_MAC, INSIDE_MAC).build())
    }

    /// Sends a frame of the outside router.
    pub fn router_sends(&mut self, frame: &packet::Frame) -> Vec<Sent> {
        self.send(OUTSIDE, &frame.clone().macs(ROUTER_MAC, OUTSIDE_MAC).build())
    }

    /// Sends a frame of the inside host, which must be translated. Returns its public source.
    #[track_caller]
    pub fn public(&mut self, frame: &packet::Frame) -> SocketAddrV4 {
        let sent = self.host_sends(frame);
        assert_eq!(1, sent.len(), "{:?}", self.all_drops());
        assert_eq!(OUTSIDE, sent[0].port);
        flow(&sent[0].frame).0
    }

    /// Advances the clock by seconds, one by one.
    pub fn seconds(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now = Now::at(self.now.nanoseconds + 1_000_000_000);
            for _ in 0..8 {
                self.round();
            }
        }
    }

    /// Sends a frame with unverified checksums to an interface of worker 0. Returns the frames that leave from all workers.
    pub fn send(&mut self, interface: u16, frame: &[u8]) -> Vec<Sent> {
        self.send_at(0, interface, frame)
    }

    /// Sends a frame to an interface of worker `worker`. Returns the frames that leave from all workers.
    pub fn send_at(&mut self, worker: usize, interface: u16, frame: &[u8]) -> Vec<Sent> {
        self.wires[worker].inject(interface, frame, Checksums::Unverified);
        self.round();
        self.sent()
    }

    /// The frames that were sent since the last call.
    pub fn sent(&mut self) -> Vec<Sent> {
        self.wires.iter().flat_map(|wires| wires.take_sent()).collect()
    }

    /// Advances the clock in steps of 100 ms.
    pub fn pass(&mut self, milliseconds: u64) {
        let end = self.now.nanoseconds + milliseconds * 1_000_000;
        while self.now.nanoseconds < end {
            self.now = Now::at(end.min(self.now.nanoseconds + 100_000_000));
            for _ in 0..8 {
                self.round();
            }
        }
    }

    /// Number of drops with this name, over all workers and interfaces.
    pub fn drops(&self, name: &str) -> u64 {
        let reason = Reason::all()
            .find(|reason| reason.name() == name)
            .expect("a reason of this name");
        self.interfaces().map(|i| i.drops(reason)).sum()
    }

    /// All drops that were counted, by name.
    pub fn all_drops(&self) -> Vec<(&'static str, u64)> {
        let count = |reason| self.interfaces().map(|i| i.drops(reason)).sum();
        Reason::all()
            .map(|r| (r.name(), count(r)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    fn interfaces(&self) -> impl Iterator<Item = &sluice_engine::packet::counters::InterfaceCounters> {
        self.plane
            .counters()
            .iter()
            .flat_map(|counters: &std::sync::Arc<WorkerCounters>| counters.interfaces.iter())
    }
}

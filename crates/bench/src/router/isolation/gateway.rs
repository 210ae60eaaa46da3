//! Two virtual routers with the same addresses on one worker: a victim and its neighbour.

use sluice_engine::control::plane::{ControlPlane, NeighbourLimits};
use sluice_engine::packet::time::Now;
use sluice_engine::snapshot::shard_owners::{ShardExchange, ShardOwners};
use sluice_engine::snapshot::shares::{LinkShare, RouterShare};
use sluice_engine::snapshot::steering::{Steering, SteeringSettings};
use sluice_engine::snapshot::{Interface, Router, Snapshot, StartParameters, SubscriberCapacity};
use sluice_engine::worker::Worker;
use sluice_engine::worker::request::{Request, WorkerHandle};
use sluice_route::{Address, Prefix, Route, RouteSet, SourceValidation, Via};
use sluice_table::memory::Line;
use sluice_wire::validity;
use sluice_wire::vlan::Tag;

use super::clock::cycles;
use super::lines::Lines;
use crate::router::Failure;

/// Ports: two inside, two outside.
pub const PORTS: usize = 4;
const MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
const NEXT: u32 = 0xc000_02fe;
const NEXT_MAC: [u8; 6] = [2, 0, 0, 0, 2, 254];

/// What is measured with.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Both routers' packets come in by one port, tagged.
    pub one_queue: bool,
    /// Both leave by one port, tagged.
    pub one_link: bool,
    /// Weights of the routers.
    pub weights: Option<[u8; 2]>,
    /// Bits a second of the link that both leave by.
    pub rate: Option<u64>,
}

impl Shape {
    /// The port that a router's host sends to.
    pub fn port(&self, router: usize) -> usize {
        if self.one_queue { 0 } else { router }
    }
}

/// The gateway.
pub struct Gateway {
    pub plane: ControlPlane,
    worker: Worker<'static>,
    desk: WorkerHandle,
}

/// The moment by the clock of the worker.
pub fn now() -> Now {
    let nanoseconds = u128::from(cycles()) * 1_000_000_000 / u128::from(sluice_dpdk::tsc::frequency());
    Now::at(nanoseconds as u64)
}

fn interface(number: u16, port: usize, router: u16, tagged: bool) -> Interface {
    let own = if number.is_multiple_of(2) {
        0x0a00_0001
    } else {
        0xc000_0201
    };
    Interface {
        name: format!("i{number}"),
        port: port as u16,
        tags: tagged.then(|| Tag::vlan(10 + router)).into_iter().collect(),
        mac: MAC,
        mtu: 1500,
        link: sluice_route::Interface {
            index: number,
            addresses: vec![(Address::V4(own), 24)],
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

/// Frames of a router's host to addresses outside.
pub fn frames(shape: &Shape, router: usize) -> Vec<Vec<u8>> {
    let tag = [0x81, 0, 0, 10 + router as u8];
    let frame = |number: u8| {
        let mut header = [
            0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 10, 198, 51, 100, number,
        ];
        let words = header
            .chunks_exact(2)
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum: u32 = words.sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut frame = [MAC, [2, 0, 0, 0, 1, 10]].concat();
        frame.extend(shape.one_queue.then_some(tag).into_iter().flatten());
        frame.extend([8, 0]);
        frame.extend(header);
        frame.extend([0x13, 0x88, 0, 53, 0, 26, 0, 0]);
        frame.resize(frame.len() + 18, 7);
        frame
    };
    (1..=250).map(frame).collect()
}

impl Gateway {
    /// Over these ports.
    pub fn new(shape: &Shape, lines: Lines) -> Result<Self, Failure> {
        let (mut interfaces, mut routes) = (Vec::new(), Vec::new());
        for router in 0..2u16 {
            let out = if shape.one_link { 2 } else { 2 + usize::from(router) };
            let both = [
                interface(2 * router, shape.port(router.into()), router, shape.one_queue),
                interface(2 * router + 1, out, router, shape.one_link),
            ];
            let via = Via::Gateway {
                address: Address::V4(NEXT),
                interface: None,
            };
            let default = Route::new(Prefix::new(Address::V4(0), 0), via);
            routes.push(RouteSet::new(&both.each_ref().map(|one| one.link.clone()), &[default])?);
            interfaces.extend(both);
        }
        if shape.one_link {
            let mut link = interface(4, 2, 0, false);
            link.link.addresses.clear();
            interfaces.push(link);
        }
        let mut policy = Snapshot::new(PORTS, interfaces);
        policy.routers = vec![Router::default(); 2];
        policy.hosts = vec![Default::default(); 2];
        let share = |router: usize| RouterShare {
            weight: shape.weights.map(|weights| weights[router]),
            rate: None,
        };
        let link = LinkShare {
            rate: shape.rate,
            ..LinkShare::default()
        };
        policy.share_by(
            vec![share(0), share(1)],
            [LinkShare::default(); 4].into_iter().chain([link]).collect(),
        );
        let steering = Steering::seeded(1, &SteeringSettings::default(), 0x0f1e_2d3c_4b5a_6978).ok_or("shards")?;
        let setup = StartParameters {
            owners: ShardOwners::dealt(steering.shards(), &[0]).into(),
            stages: Default::default(),
            assist: None,
            steering,
            sessions: [64, 64],
            ports: PORTS,
            secret: [1, 2],
            fragments: Default::default(),
            unsolicited_syns: 0,
            spare_addresses: 0,
            meters: Default::default(),
            applications: None,
            inspection: None,
            events: Default::default(),
            interfaces: 0,
            subscribers: SubscriberCapacity::default(),
        };
        let mut plane = ControlPlane::new(setup, policy, &routes, NeighbourLimits::default(), 1, now())?;
        let lines_of_shard = plane.lines().total();
        // A shard of no sessions, once for each run.
        let memory = |_| &mut *vec![Line([0; 8]); lines_of_shard].leak();
        let (mut worker, desk) = plane.worker(0, Box::new(lines), vec![0, 1], memory, cycles)?;
        worker.join(ShardExchange::new(1, 0, 64).into());
        let mut gateway = Self { plane, worker, desk };
        for interface in [1, 3] {
            gateway.know(interface)?;
        }
        Ok(gateway)
    }

    fn know(&mut self, interface: u16) -> Result<(), Failure> {
        let request = Request::SetNeighbour {
            interface,
            address: Address::V4(NEXT),
            mac: NEXT_MAC,
        };
        let sent = self.desk.requests.try_send(request);
        sent.map_err(|_| "the worker takes no requests")?;
        while self.desk.replies.try_recv().is_err() {
            self.worker.round(now());
        }
        Ok(())
    }

    /// One round of the worker. Returns how many packets there were.
    #[inline(always)]
    pub fn round(&mut self) -> usize {
        self.worker.round(now())
    }

    /// Packets of both routers that were received and then dropped.
    pub fn dropped(&self) -> [u64; 2] {
        let counters = &self.plane.counters()[0].interfaces;
        [0, 2].map(|number: usize| counters[number].all_drops())
    }
}

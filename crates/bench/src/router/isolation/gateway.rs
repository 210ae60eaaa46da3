//! Two virtual routers with equal addresses on one worker: a victim and its neighbour.

use sluice_engine::control::plane::ControlPlane;
use sluice_engine::packet::time::Now;
use sluice_engine::snapshot::shard_owners::ShardExchange;
use sluice_engine::snapshot::shares::{LinkShare, RouterShare};
use sluice_engine::snapshot::{Interface, Router, Snapshot};
use sluice_engine::worker::Worker;
use sluice_route::{Address, RouteSet};
use sluice_table::memory::Line;
use sluice_wire::vlan::Tag;

use super::clock::cycles;
use super::lines::Lines;
use crate::rig::frames::{Frame, Tagged, Written};
use crate::rig::gateway::Desk;
use crate::rig::policy::{self, Job, Layout, route};
use crate::router::Failure;

/// Number of ports: two on the inside, two on the outside.
pub const PORTS: usize = 4;
const MAC: [u8; 6] = [2, 0, 0, 0, 1, 1];
const NEXT: u32 = 0xc000_02fe;
const NEXT_MAC: [u8; 6] = [2, 0, 0, 0, 2, 254];

/// Shared resources of the two routers in a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Whether packets of both routers arrive at one port, with VLAN tags.
    pub one_queue: bool,
    /// Whether packets of both routers leave through one port, with VLAN tags.
    pub one_link: bool,
    pub weights: Option<[u8; 2]>,
    /// Bit rate of the link that both routers share.
    pub rate: Option<u64>,
}

impl Shape {
    /// Port to which the host of a router sends.
    pub fn port(&self, router: usize) -> usize {
        if self.one_queue { 0 } else { router }
    }
}

pub struct Gateway {
    pub plane: ControlPlane,
    worker: Worker<'static>,
    _desk: Desk,
}

/// Current time of the worker's clock.
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
        port: port as u16,
        tags: tagged.then(|| Tag::vlan(10 + router)).into_iter().collect(),
        router,
        context: router.into(),
        ..policy::interface(number, MAC, vec![(Address::V4(own), 24)])
    }
}

/// Frames from the host of a router to outside addresses.
pub fn frames(shape: &Shape, router: usize) -> Vec<Vec<u8>> {
    let tags = shape.one_queue.then_some([0x81, 0, 0, 10 + router as u8]);
    let frame = |number: u32| {
        let frame = Written {
            source: (0x0a00_000a, 5_000),
            destination: (0xc633_6400 + number, 53),
            tcp: false,
            flags: 0,
            numbers: (0, 0),
            macs: (MAC, [2, 0, 0, 0, 1, 10]),
            mark: number,
        };
        let tagged = Tagged { frame, tags };
        let mut bytes = vec![0; tagged.length()];
        tagged.write(&mut bytes);
        bytes
    };
    (1..=250).map(frame).collect()
}

impl Gateway {
    /// Creates a gateway that uses these ports.
    pub fn new(shape: &Shape, lines: Lines) -> Result<Self, Failure> {
        let (mut interfaces, mut routes) = (Vec::new(), Vec::new());
        for router in 0..2u16 {
            let out = if shape.one_link { 2 } else { 2 + usize::from(router) };
            let both = [
                interface(2 * router, shape.port(router.into()), router, shape.one_queue),
                interface(2 * router + 1, out, router, shape.one_link),
            ];
            let default = route(Address::V4(0), 0, Address::V4(NEXT));
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
        let layout = Layout {
            shards: 1,
            now: now(),
            ..Layout::sessions(Job::Forward, 0, false)
        };
        let mut plane = layout.plane(policy, &routes)?;
        let lines_of_shard = plane.lines().total();
        // Memory of a shard without sessions, which is leaked once per run.
        let memory = |_| &mut *vec![Line([0; 8]); lines_of_shard].leak();
        let (mut worker, desk) = plane.worker(0, Box::new(lines), vec![0, 1], memory, cycles)?;
        worker.join(ShardExchange::new(1, 0, 64).into());
        let desk = Desk(desk);
        for interface in [1, 3] {
            desk.know((interface, Address::V4(NEXT), NEXT_MAC), || _ = worker.round(now()))?;
        }
        Ok(Self {
            plane,
            worker,
            _desk: desk,
        })
    }

    /// Runs one round of the worker. Returns the number of packets.
    #[inline(always)]
    pub fn round(&mut self) -> usize {
        self.worker.round(now())
    }

    /// Number of packets of each router that were received and then dropped.
    pub fn dropped(&self) -> [u64; 2] {
        let counters = &self.plane.counters()[0].interfaces;
        [0, 2].map(|number: usize| counters[number].all_drops())
    }
}

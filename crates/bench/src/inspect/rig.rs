//! A bridge that inspects, by one of the models, between ring ports with a source at every queue that receives and a sink at
//! every one that sends.

use std::path::Path;
use std::sync::Arc;

use sluice_dpdk::eal::Eal;
use sluice_dpdk::memory::Region;
use sluice_dpdk::workers::pin;
use sluice_dpdk::{Devices, tsc};
use sluice_engine::assist::{Assist, Settings};
use sluice_engine::datagrams::Limits;
use sluice_engine::family::V4;
use sluice_engine::inspection::Inspection;
use sluice_engine::owners::{Exchange, Owners};
use sluice_engine::placement::{Load, Placement};
use sluice_engine::plane::{NeighbourLimits, Plane};
use sluice_engine::policy::{Bridge, Interface, Policy, Port, Setup, Subscribers, bridge_context};
use sluice_engine::reason::Reason;
use sluice_engine::stages::Stages;
use sluice_engine::steering::{Steering, Wanted};
use sluice_engine::time::Now;
use sluice_engine::worker::HELD;
use sluice_inspect::inspector::{self, Plan, Tools};
use sluice_inspect::protocols::Capacity;
use sluice_inspect::rates::Rates;
use sluice_inspect::ruleset::{Ordered, Ruleset};
use sluice_inspect::signatures::{Classes, Dialect, Variables, read};
use sluice_inspect::stream;
use sluice_route::{RouteSet, SourceValidation};
use sluice_table::memory::Line;
use sluice_wire::{FlowKey4, Tuple4, validity};

use super::even::{Even, Shared};
use super::lane::{Done, Lane, Middle, Order};
use super::moving::Moving;
use super::traffic::{Draw, FLOWS, Kind, Pages, ends};
use crate::cores::lane::Together;
use crate::nat_path::flows::Random;
use crate::nat_path::rig::SHARDS;
use crate::placement::lane::{Progress, WITHIN};
use crate::placement::rig::{Queues, far};
use crate::placement::traffic::SFR;

type Failure = Box<dyn std::error::Error>;

/// Sessions that there is room for.
const CAPACITY: u32 = 4 * FLOWS;

/// Milliseconds between two looks of kirqd: many in a run.
const PERIOD: u64 = 5;

/// Who does what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Each core has an interface and inspects what comes from it; flows are shared, under locks.
    Even,
    /// The same, where interfaces move from the busiest core to the least busy (kirqd).
    EvenMoving,
    /// Run to completion: each core has flows of its own.
    Rss,
    /// One core receives and sends, the others inspect.
    RoleSplit,
    /// One core receives, the others inspect and send.
    RoleSplitSending,
}

impl Model {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::EvenMoving => "even-moving",
            Self::Rss => "rss",
            Self::RoleSplit => "role-split",
            Self::RoleSplitSending => "role-split, inspectors send",
        }
    }

    /// Whether flows are shared by all cores.
    fn shares(self) -> bool {
        matches!(self, Self::Even | Self::EvenMoving)
    }

    fn placement(self, cores: usize) -> Option<Placement> {
        let all: Vec<_> = (0..cores as u16).collect();
        let (first, rest) = all.split_first()?;
        let (io, inspect) = (vec![*first], rest.to_vec());
        match self {
            Self::Even | Self::EvenMoving | Self::Rss => Placement::run_to_completion(&all),
            Self::RoleSplit => Placement::new([io.clone(), io.clone(), inspect, io]),
            Self::RoleSplitSending => Placement::new([io.clone(), io, inspect.clone(), inspect]),
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Who does what.
    pub model: Model,
    /// On so many cores.
    pub cores: usize,
    /// Bytes of frames with check sequence; of the mix none.
    pub bytes: usize,
    /// What comes.
    pub kind: Kind,
    /// Whether it is inspected.
    pub inspects: bool,
    /// When the core that receives assists those that inspect; none where it never does.
    pub assist: Option<Assisting>,
}

/// When a core assists, and how long at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assisting {
    /// Packets in a ring above which it does.
    pub threshold: u32,
    /// Microseconds before it receives again.
    pub slice: u64,
}

impl Case {
    fn lengths(&self) -> Vec<usize> {
        match self.kind {
            Kind::Mix => SFR
                .iter()
                .flat_map(|&(length, count)| vec![length; count as usize])
                .collect(),
            _ => vec![self.bytes - 4],
        }
    }

    /// Bytes of a frame with check sequence, on average.
    pub fn mean(&self) -> f64 {
        let lengths = self.lengths();
        lengths.iter().sum::<usize>() as f64 / lengths.len() as f64 + 4.0
    }
}

/// Rules of a file.
pub fn rules(file: &Path, dialect: Dialect) -> Result<Arc<Ruleset>, Failure> {
    let text = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let read = read(&text, dialect, &Variables::default(), &Classes::default());
    let ordered = Ordered::new(read.signatures);
    let prefilter = ordered.plan().compile(&mut |_, _| {})?;
    Ok(Arc::new(ordered.with(prefilter)))
}

fn interface(index: u16) -> Interface {
    Interface {
        name: ["left", "right"][usize::from(index)].into(),
        port: index,
        tags: Vec::new(),
        mac: [2, 0, 0, 0, 9, index as u8],
        mtu: 1500,
        link: sluice_route::Interface {
            index,
            addresses: Vec::new(),
        },
        context: bridge_context(0),
        stateful: [false; 2],
        outside: false,
        validation: SourceValidation::Off,
        validity: validity::Policy::default(),
        complete_checksums: true,
        segment_size: None,
        bridge: Some(Bridge {
            peer: 1 - index,
            drops_invalid: false,
            fails_open: false,
        }),
        advertise: None,
    }
}

fn inspector_plan() -> Plan {
    let flows = 4 * FLOWS / SHARDS;
    Plan {
        flows,
        streams: stream::Plan::of(8),
        protocols: Capacity {
            messages: 64,
            names: 64,
            inflaters: 1,
            ..Capacity::default()
        },
    }
}

fn queues(case: &Case) -> Result<(Placement, Stages, Queues), Failure> {
    let placement = case.model.placement(case.cores).ok_or("too few cores for this model")?;
    let stages = Stages::of(&placement, &placement.workers());
    let queues = Queues::of(&stages, case.cores, &Load::even(SHARDS as u16));
    Ok((placement, stages, queues))
}

/// The control side of a case.
pub fn plane(case: &Case, rules: &Arc<Ruleset>) -> Result<Plane, Failure> {
    let (_, stages, queues) = queues(case)?;
    let mut policy = Policy::new(2, vec![interface(0), interface(1)]);
    if case.inspects {
        policy.inspect_by(Arc::new(Inspection {
            settings: inspector::Settings::default(),
            rates: Arc::new(Rates::new(64, [1, 2])),
            rules: rules.clone(),
            alerts: 64,
            records: Default::default(),
            interfaces: vec![true; 2],
            fragments: Default::default(),
            overload: Default::default(),
            bypass: Vec::new(),
        }));
    }
    let steering = Steering::seeded(SHARDS, &Wanted::default(), 0x0f1e_2d3c_4b5a_6978).ok_or("shards")?;
    let port = |name: &str| Port {
        name: name.into(),
        senders: queues.senders(),
    };
    let in_charge = stages.all(sluice_engine::placement::Part::Session, case.cores);
    let setup = Setup {
        owners: Owners::dealt(steering.shards(), &in_charge).into(),
        stages,
        assist: case.assist.map(|assisting| {
            let slice = tsc::frequency() / 1_000_000 * assisting.slice;
            let threshold = assisting.threshold;
            Assist::new(case.cores, Settings { threshold, slice }).into()
        }),
        steering,
        sessions: [CAPACITY, SHARDS],
        ports: vec![port("left"), port("right")],
        secret: [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210],
        fragments: Limits {
            datagrams: 64,
            ..Limits::default()
        },
        unsolicited_syns: 0,
        spare_addresses: 0,
        meters: Default::default(),
        inspection: case.inspects.then(inspector_plan),
        events: Default::default(),
        subscribers: Subscribers {
            most: 64,
            blocks: 64,
            ..Subscribers::default()
        },
    };
    let routes = RouteSet::new(&[], &[])?;
    Ok(Plane::new(
        setup,
        policy,
        &routes,
        NeighbourLimits::default(),
        case.cores,
        Now::at(0),
    )?)
}

/// Memory for all shards of a plane, and for the streams of the baseline.
pub fn memory(plane: &Plane) -> Result<Region, Failure> {
    let shards = plane.setup().owners.len();
    Ok(Region::new(plane.lines().total().next_multiple_of(2) * 64 * shards)?)
}

/// The lanes of a case.
pub struct Rig<'s, 'm> {
    lanes: Vec<Lane<'s, 'm>>,
    devices: Devices,
    plane: Plane,
    case: Case,
    /// The share of all packets that comes to each lane.
    shares: Vec<f64>,
}

impl<'s, 'm> Rig<'s, 'm> {
    /// A rig whose flows have all been seen. `shared` is the baseline's.
    #[expect(clippy::too_many_arguments, reason = "what a rig is made of, each of another owner")]
    pub fn new(
        eal: &'static Eal,
        number: u32,
        case: &Case,
        rules: &Arc<Ruleset>,
        pages: &Arc<Pages>,
        mut plane: Plane,
        memory: &'m mut Region,
        shared: &'s Shared<'m>,
    ) -> Result<Self, Failure> {
        let (placement, _, queues) = queues(case)?;
        let mut devices = queues.plan(number, true)?;
        if case.assist.is_some() {
            // What waits for a core that assists is parked.
            devices.parked += 4 * HELD;
            devices.buffers += 4 * HELD as u32;
        }
        let (devices, hands) = Devices::open(eal, &devices)?;
        let exchange = Arc::new(Exchange::new(SHARDS as usize, case.cores - 1, WITHIN as usize));
        let lines = plane.lines().total().next_multiple_of(2);
        let all: &'m mut [Line] = memory.lines();
        let mut rest = all.chunks_exact_mut(lines);
        let start = tsc::now();
        let sources = (0..case.cores).filter(|&own| queues.receives(own)).count();
        let progress = Arc::new(Progress::new(case.cores, sources as u64));
        let moves = case.model == Model::EvenMoving;
        let moving = moves.then(|| Arc::new(Moving::new(tsc::frequency() / 1000 * PERIOD)));
        let mut lanes = Vec::new();
        for (own, io) in hands.into_iter().enumerate() {
            let (receives, drains) = (queues.receives(own), queues.sends(own));
            let middle = match case.model {
                Model::Even | Model::EvenMoving => {
                    let mine = (0..2u16).filter(|&port| moving.is_some() || usize::from(port) % case.cores == own);
                    let tools = match case.inspects {
                        true => Some(Tools::new(rules.prefilter().scratch()?, rules)),
                        false => None,
                    };
                    let mut even = Even::new(shared, io, tools, mine.collect());
                    if let Some(moving) = &moving {
                        even.move_by(moving.clone(), own);
                    }
                    Middle::Even(Box::new(even))
                }
                _ => {
                    let ports = if receives { vec![0, 1] } else { Vec::new() };
                    let give = |_| rest.next().unwrap_or_default();
                    let (mut worker, _) = plane.worker(own as u16, Box::new(io), ports, give, tsc::now)?;
                    worker.join(exchange.clone());
                    Middle::Engine(Box::new(worker), plane.counters()[own].clone())
                }
            };
            lanes.push(Lane {
                own,
                middle,
                far: (receives || drains)
                    .then(|| far(eal, &queues, number, own))
                    .transpose()?,
                draw: None,
                pages: pages.clone(),
                drains,
                local: !placement.is_pipeline(),
                progress: progress.clone(),
                start,
                done: Done::default(),
                moving: moving.clone(),
                order: None,
            });
        }
        let mut rig = Self {
            lanes,
            devices,
            plane,
            case: *case,
            shares: Vec::new(),
        };
        rig.deal(sources);
        Ok(rig)
    }

    /// The lane that a flow's packets come to.
    fn entrance(&self, flow: u32, sources: usize) -> usize {
        if sources == 1 {
            return 0;
        }
        let [(source, source_port), (destination, destination_port)] = ends(flow);
        let key = FlowKey4 {
            tuple: Tuple4 {
                source,
                destination,
                source_port,
                destination_port,
                context: bridge_context(0),
            },
            protocol: 17,
        };
        let setup = self.plane.setup();
        let shard = setup.steering.of_bridged::<V4>(&key);
        setup.owners.of(shard).unwrap_or_default().into()
    }

    /// Give each source its flows.
    fn deal(&mut self, sources: usize) {
        let elephant = (self.case.kind == Kind::Elephant).then_some(7u32);
        let even = self.case.model.shares();
        let mut flows = vec![Vec::new(); self.lanes.len()];
        let mut hot = vec![None; self.lanes.len()];
        for flow in 0..FLOWS {
            let entrances = match even {
                true => 0..self.lanes.len(),
                false => {
                    let lane = self.entrance(flow, sources);
                    lane..lane + 1
                }
            };
            for lane in entrances {
                match elephant == Some(flow) {
                    true => hot[lane] = Some(flow),
                    false => flows[lane].push(flow),
                }
            }
        }
        let all: usize = flows.iter().map(Vec::len).sum();
        for (own, lane) in self.lanes.iter_mut().enumerate() {
            let base = flows[own].len() as f64 / all as f64;
            let share = match (elephant, even) {
                (None, _) | (_, true) => base,
                _ => base / 2.0 + if hot[own].is_some() { 0.5 } else { 0.0 },
            };
            self.shares.push(share);
            if flows[own].is_empty() {
                continue;
            }
            let of_hot = match hot[own] {
                Some(_) if even => 0.5,
                Some(_) => 0.5 / share,
                None => 0.0,
            };
            let sides = match even {
                true if self.case.model == Model::EvenMoving => vec![0, 1],
                true => (0..2u16)
                    .filter(|&port| usize::from(port) % self.case.cores == own)
                    .collect(),
                false => vec![0, 1],
            };
            lane.draw = Some(Draw {
                flows: std::mem::take(&mut flows[own]),
                hot: hot[own],
                share: (of_hot * 2f64.powi(32)) as u64,
                lengths: self.case.lengths(),
                sides,
                random: Random(88_172_645_463_325_252 ^ (own as u64) << 40),
                numbers: [(); 2].map(|()| vec![0; FLOWS as usize]),
            });
        }
    }

    /// All lanes for so many cycles: packets per second in millions, and what each lane did.
    pub fn run(&mut self, cores: &[usize], cycles: u64) -> Result<(f64, Vec<Done>), Failure> {
        let (together, count) = (&Together::default(), self.lanes.len());
        std::thread::scope(|scope| {
            let lanes = self.lanes.iter_mut().zip(cores);
            let threads: Vec<_> = lanes
                .map(|(lane, &core)| {
                    scope.spawn(move || {
                        pin(core)?;
                        lane.run(together, count, cycles);
                        Ok::<_, sluice_dpdk::workers::WorkerError>(())
                    })
                })
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| "a lane failed")?.map_err(Failure::from))
        })?;
        self.settle()?;
        let hertz = tsc::frequency() as f64 / 1e6;
        let done: Vec<_> = self.lanes.iter().map(|lane| lane.done).collect();
        let rates = done.iter().map(|done| done.came as f64 * hertz / done.cycles as f64);
        let independent = self.case.model != Model::EvenMoving && self.lanes.iter().all(|lane| lane.local);
        let rate = match independent {
            // Sources know nothing of one another: the slowest for its share tells how fast all can go.
            true => rates
                .zip(&self.shares)
                .filter(|(_, share)| **share > 0.0)
                .map(|(rate, share)| rate / share)
                .fold(f64::INFINITY, f64::min),
            false => rates.sum(),
        };
        Ok((rate, done))
    }

    /// Let out what is under way, and see that everything came out.
    fn settle(&mut self) -> Result<(), Failure> {
        let mut idle = 0;
        while idle < 8 {
            let moved: usize = self.lanes.iter_mut().map(Lane::round).sum();
            idle = if moved == 0 { idle + 1 } else { 0 };
        }
        let (sent, came) = self.lanes[0].progress.all();
        if sent == came {
            return Ok(());
        }
        let name = self.case.model.name();
        Err(format!("{name}: {sent} packets went in and {came} came out; {:?}", self.drops()).into())
    }

    /// Watch the order of flows from now on.
    pub fn watch(&mut self) {
        self.lanes
            .iter_mut()
            .for_each(|lane| lane.order = Some(Order::default()));
    }

    /// Frames that came out behind one that was sent after them.
    pub fn reordered(&self) -> u64 {
        let orders = self.lanes.iter().filter_map(|lane| lane.order.as_ref());
        orders.map(|order| order.reordered).sum()
    }

    /// Packets that were looked at by a core that assisted.
    pub fn assisted(&self) -> u64 {
        self.plane.counters().iter().map(|worker| worker.assisted.get()).sum()
    }

    fn drops(&self) -> Vec<(&'static str, u64)> {
        let counters = self.plane.counters();
        let of = |reason| {
            counters
                .iter()
                .flat_map(|worker| &worker.interfaces)
                .map(|i| i.drops(reason))
                .sum()
        };
        let all = Reason::all().map(|reason| (reason.name(), of(reason)));
        all.filter(|&(_, count)| count > 0).collect()
    }

    /// The baseline's cores, to write down what they search.
    pub fn evens(&mut self) -> impl Iterator<Item = &mut Even<'s, 'm>> {
        self.lanes.iter_mut().filter_map(|lane| match &mut lane.middle {
            Middle::Even(even) => Some(&mut **even),
            Middle::Engine(..) => None,
        })
    }

    /// Close the ports.
    pub fn close(self) {
        for lane in self.lanes {
            drop(lane.middle);
            if let Some(far) = lane.far {
                far.close();
            }
        }
        drop(self.devices.close());
    }
}

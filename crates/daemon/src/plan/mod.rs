//! `sluice plan`: measures the cost of each part of packet processing on this machine, with this configuration and
//! traffic, and computes the best assignment of the parts to cores.

mod device;
mod frames;
mod joined;
mod listen;
mod live;
mod measure;
mod mix;
mod path;
mod pin;
mod profile;
mod report;
mod returns;
mod rings;
mod words;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use sluice_config::Config;
use sluice_config::memory::EntryBytes;
use sluice_config::schema::System;
use sluice_dpdk::tsc;
use sluice_engine::placement::{
    Core, Costs, Distance, HandOver, Load, Part, Placement, RatedPlacement, Topology, assisted, candidates,
    choose as choose_from, order, rank,
};

use crate::lowering::LoweringError;
use crate::ports::outlook;
use crate::replay::captures::Input;
use crate::replay::{ReplayError, by_port};
use crate::topology::{SYS, devices, topology};
use crate::{MachineError, machine};
use measure::{Measured, Source, measure};

pub use listen::listen;
pub use live::{Capacity, Live, LiveError, LiveSource, MAX_BYTES, Pace, Seen, SeenInterface};
pub use measure::MAX_FRAMES;
pub use profile::{Demand, DemandError, Of, Profile};
pub use report::{Candidate, CoreRequirement, HandOverCost, PartCost, Plan, TrafficOrigin, TrafficSummary};
pub use sluice_engine::placement::list;

/// Maximum number of cores for which a load is planned.
const MAX_CORES: usize = 128;

/// Parameters of a plan.
#[derive(Debug, Default)]
pub struct PlanRequest {
    /// Captures for the measurement, by interface. Without captures and live traffic, the generated carrier mix is
    /// used.
    pub inputs: Vec<(String, PathBuf)>,
    /// Live traffic for the measurement.
    pub live: Option<Live>,
    /// Cores that replace the configured cores.
    pub cores: Option<Vec<Core>>,
    /// Required rate.
    pub demand: Option<Demand>,
}

/// Why no plan can be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// IPv4 packets can't be forwarded between any two interfaces.
    #[error(
        "the carrier mix needs an IPv4 route from an inside to an outside interface, which the configuration does not \
         have: give captures of your own traffic (--in INTERFACE=CAPTURE)"
    )]
    NoPath,
    /// The configuration drops all packets of the generated traffic (carrier mix).
    #[error(
        "this configuration drops all packets of the carrier mix: give captures of your own traffic (--in \
         INTERFACE=CAPTURE)"
    )]
    NothingPasses,
    /// The captures contain no frames.
    #[error("the captures contain no frame: give other captures with --in INTERFACE=CAPTURE")]
    NoFrames,
    /// Two options specify different traffic.
    #[error(
        "{option} and `{demand}` describe different traffic: write only the rate, which then applies to the \
         captured traffic"
    )]
    TwoTraffics {
        /// Option that supplies packets.
        option: &'static str,
        /// Required rate as typed, including the traffic that it names.
        demand: String,
    },
    /// Live traffic is not available.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// A core can't be used for the measurement.
    #[error(
        "core {core} is not among the cores that this process may use ({}): write other cores with --cores",
        list(allowed)
    )]
    NoSuchCore {
        /// The core.
        core: Core,
        /// Cores that this process may use.
        allowed: Vec<Core>,
    },
    /// Cores or memory of the machine can't be read.
    #[error(transparent)]
    Machine(#[from] MachineError),
    /// The captures can't be read, or the engine can't be started in memory.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// The measuring thread failed.
    #[error("the measuring thread failed: {0}")]
    Thread(String),
}

impl From<LoweringError> for PlanError {
    fn from(error: LoweringError) -> Self {
        Self::Replay(error.into())
    }
}

/// Placement for a configuration with `model = "auto"`, with its reasons.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The placement.
    pub placement: Placement,
    /// Reasons for the placement, one sentence each.
    pub reasons: Vec<String>,
}

/// Choose the placement for the cores of a configuration, with the generated carrier mix as traffic.
///
/// The measurement takes about a second and temporarily needs additional memory.
///
/// # Errors
/// See [`PlanError`].
pub fn choose(config: &Config) -> Result<Chosen, PlanError> {
    let request = PlanRequest {
        cores: Some(config.cores.clone()),
        ..PlanRequest::default()
    };
    let facts = facts(config, &request)?;
    let ranked = facts.ranked();
    let chosen = choose_from(&ranked, &facts.load).ok_or(PlanError::NoPath)?;
    Ok(Chosen {
        placement: chosen.placement.clone(),
        reasons: words::reasons(&facts, &ranked, chosen),
    })
}

/// Measure the traffic, predict the rate of each placement, choose one and explain it.
///
/// # Errors
/// See [`PlanError`].
pub fn plan(config: &Config, request: &PlanRequest) -> Result<Plan, PlanError> {
    let facts = facts(config, request)?;
    let ranked = facts.ranked();
    let chosen = choose_from(&ranked, &facts.load).ok_or(PlanError::NoPath)?;
    let demand = request.demand.as_ref();
    Ok(Plan {
        frequency: facts.frequency,
        queues: facts.load.queues,
        shards: facts.load.shards,
        traffic: facts.summary(),
        parts: facts.part_costs(),
        hand_overs: facts.hand_overs.clone(),
        candidates: ranked.iter().map(|planned| facts.candidate(planned)).collect(),
        choice: facts.candidate(chosen),
        reasons: words::reasons(&facts, &ranked, chosen),
        answer: demand.map(|demand| facts.answer(config, demand)),
        cores: facts.cores,
    })
}

/// Input of the predictions.
struct Facts {
    cores: Vec<Core>,
    topology: Topology,
    traffic: String,
    origin: TrafficOrigin,
    measured: Measured,
    assumed: [f64; 4],
    costs: Costs,
    hand_overs: Vec<HandOverCost>,
    load: Load,
    frequency: u64,
}

/// Cores of the plan: the requested cores, the individually configured cores, or all cores that this process may use.
fn cores(config: &Config, request: &PlanRequest) -> Result<Vec<Core>, PlanError> {
    let allowed = machine(EntryBytes::default())?.cores;
    let listed = |system: &System| matches!(system.workers, sluice_config::value::Workers::Cores(_));
    let cores = match &request.cores {
        Some(cores) => cores.clone(),
        None if listed(&config.document.system) => config.cores.clone(),
        None => allowed.clone(),
    };
    match cores.iter().find(|core| !allowed.contains(core)) {
        Some(&core) => Err(PlanError::NoSuchCore { core, allowed }),
        None => Ok(cores),
    }
}

fn facts(config: &Config, request: &PlanRequest) -> Result<Facts, PlanError> {
    let cores = cores(config, request)?;
    let topology = topology(Path::new(SYS), &devices(config))?;
    let (traffic, origin, source) = source(config, request)?;
    let first = order(&cores, &topology).first().copied().unwrap_or(0);
    let measured = std::thread::scope(|scope| {
        let measuring = scope.spawn(|| {
            // The result is ignored: without pinning, the measurement is only less precise.
            let _ = pin::pin(first);
            measure(config, source, device::checksums(config))
        });
        measuring
            .join()
            .unwrap_or_else(|_| Err(PlanError::Thread("it panicked".into())))
    })?;
    let frequency = tsc::frequency();
    let hand_overs = hand_overs(&cores, &topology);
    let assumed = device::cycles(config, frequency);
    let with_devices = |parts: [f64; 4]| [0, 1, 2, 3].map(|part| parts[part] + assumed[part]);
    let mut costs = Costs {
        parts: with_devices(measured.parts),
        undivided: Some(with_devices(measured.undivided)),
        hand_overs: device::HAND_OVERS,
        ..Costs::default()
    };
    for distance in Distance::ALL {
        if let Some(cost) = hand_overs.iter().find(|cost| cost.distance == distance.name()) {
            costs.hand_overs[distance as usize] = HandOver {
                out: cost.out,
                take: cost.take,
            };
        }
    }
    // Receiving a handed-over packet fetches two cache lines that another core has written. Receiving into a returned
    // buffer fetches one line that another core has written.
    costs.back = costs.hand_overs.map(|over| over.take / 2.0);
    let load = load(config, &measured, cores.len());
    Ok(Facts {
        cores,
        topology,
        traffic,
        origin,
        measured,
        assumed,
        costs,
        hand_overs,
        load,
        frequency,
    })
}

fn load(config: &Config, measured: &Measured, workers: usize) -> Load {
    let even = Load::even(config.document.system.shards_of_many());
    Load {
        busiest: measured.busiest.unwrap_or(even.busiest),
        queues: queues(config, workers),
        ..even
    }
}

/// Name and origin of the traffic, and the traffic itself.
fn source<'r>(config: &Config, request: &'r PlanRequest) -> Result<(String, TrafficOrigin, Source<'r>), PlanError> {
    let option = match &request.live {
        Some(_) => Some("--live"),
        None => (!request.inputs.is_empty()).then_some("--in"),
    };
    if let (Some(option), Some(demand)) = (option, &request.demand) {
        one_traffic(option, demand)?;
    }
    if let Some(live) = &request.live {
        return Ok((live.name(), live.origin(), Source::Live(live)));
    }
    if request.inputs.is_empty() {
        let named = request.demand.as_ref().and_then(Demand::profile);
        let profile = named.unwrap_or_else(Profile::sfr);
        return Ok((profile.name.clone(), TrafficOrigin::Profile, Source::Mix(profile)));
    }
    let mut inputs = Vec::new();
    for (port, path) in by_port(config, &request.inputs)? {
        inputs.push((port, Input::open(path).map_err(ReplayError::from)?));
    }
    let files = request.inputs.iter().map(|(_, path)| path.clone()).collect();
    Ok((
        "captures".into(),
        TrafficOrigin::Captures { files },
        Source::Captures(inputs),
    ))
}

/// If packets are supplied, check that the required rate does not specify different traffic.
///
/// # Errors
/// The rate specifies different traffic.
pub fn one_traffic(option: &'static str, demand: &Demand) -> Result<(), PlanError> {
    match demand.profile() {
        None => Ok(()),
        Some(_) => Err(PlanError::TwoTraffics {
            option,
            demand: demand.text.clone(),
        }),
    }
}

/// Number of queues that all devices support for this number of workers. Devices that can't be queried are assumed to
/// have enough queues.
fn queues(config: &Config, workers: usize) -> u16 {
    let mut config = config.clone();
    config.cores = (0..workers as Core).collect();
    let ports = outlook(&config).unwrap_or_default();
    ports.iter().map(|port| port.choice.queues).min().unwrap_or(u16::MAX)
}

/// Cost of hand-overs between these cores, for each distance that occurs between two of them.
fn hand_overs(cores: &[Core], topology: &Topology) -> Vec<HandOverCost> {
    let pairs = || {
        let from = cores.iter().enumerate();
        from.flat_map(|(place, &from)| cores[place + 1..].iter().map(move |&to| (from, to)))
    };
    let at = |distance| pairs().find(|&(from, to)| topology.distance(from, to) == distance);
    let there = Distance::ALL
        .into_iter()
        .filter_map(|distance| Some((distance, at(distance)?)));
    let costs = there.map(|(distance, (from, to))| {
        let measured = rings::measure(from, to);
        let cost = measured.unwrap_or(device::HAND_OVERS[distance as usize]);
        HandOverCost {
            distance: distance.name(),
            measured: measured.map(|_| [from, to]),
            out: cost.out,
            take: cost.take,
        }
    });
    costs.collect()
}

impl Facts {
    fn hz(&self) -> f64 {
        self.frequency as f64
    }

    fn ranked(&self) -> Vec<RatedPlacement> {
        self.ranked_on(&self.cores, &self.topology, &self.load)
    }

    fn ranked_on(&self, cores: &[Core], topology: &Topology, load: &Load) -> Vec<RatedPlacement> {
        let mut all = candidates(cores, topology, load);
        all.extend(assisted(&all));
        rank(all, &self.costs, topology, load, self.hz())
    }

    fn candidate(&self, planned: &RatedPlacement) -> Candidate {
        self.candidate_at(planned, None)
    }

    /// A candidate, with its load at the required rate.
    fn candidate_at(&self, planned: &RatedPlacement, rate: Option<f64>) -> Candidate {
        let prediction = &planned.prediction;
        let limit = prediction.bottleneck();
        Candidate {
            placement: planned.placement.to_string(),
            packets_per_second: planned.rate(),
            bits_per_second: planned.rate() * self.measured.bytes * 8.0,
            bottleneck: limit.map_or(0, |worker| worker.core),
            cycles: limit.map_or(0.0, |worker| worker.cycles()),
            most: limit.map_or("", |worker| worker.most().name()),
            busy: rate.map(|rate| rate / planned.rate()),
        }
    }

    fn part_costs(&self) -> Vec<PartCost> {
        let cost = |part: Part| PartCost {
            part: part.name(),
            cycles: self.costs.of(part),
            undivided: self.costs.undivided.unwrap_or(self.costs.parts)[part as usize],
            assumed: self.assumed[part as usize],
        };
        Part::ALL.map(cost).into()
    }

    fn summary(&self) -> TrafficSummary {
        TrafficSummary {
            name: self.traffic.clone(),
            source: self.origin.clone(),
            bytes: self.measured.bytes,
            sessions: self.measured.sessions,
            packets_per_session: self.measured.packets_per_session,
            opening: self.measured.opening,
            forwarded: self.measured.forwarded,
            dropped_for: self.measured.dropped_for,
            busiest_shard: self.load.busiest,
        }
    }

    /// Number of cores that a load needs. The given cores are used first, then additional cores of the same kind.
    fn answer(&self, config: &Config, demand: &Demand) -> CoreRequirement {
        let offered = demand.packets(self.measured.bytes);
        let sorted_cores = order(&self.cores, &self.topology);
        // Every placement needs at least the cycles of the cheapest way through all parts.
        let min = ((offered * self.costs.min_total() / self.hz()).ceil() as usize).max(1);
        let found = (min..=MAX_CORES).find_map(|count| {
            let more = count.saturating_sub(sorted_cores.len());
            let topology = self.topology.extended(more as u16);
            let new = topology
                .cores
                .iter()
                .skip(self.topology.cores.len())
                .map(|site| site.core);
            let cores: Vec<Core> = sorted_cores.iter().copied().chain(new).take(count).collect();
            let load = Load {
                offered: Some(offered),
                queues: queues(config, count),
                ..self.load
            };
            let ranked = self.ranked_on(&cores, &topology, &load);
            let chosen = choose_from(&ranked, &load).filter(|planned| planned.rate() >= offered)?;
            let candidate = self.candidate_at(chosen, Some(offered));
            Some((count, candidate, words::uneven(&load, chosen)))
        });
        CoreRequirement {
            load: demand.text.clone(),
            packets_per_second: offered,
            sessions_per_second: self.measured.packets_per_session.map(|packets| offered / packets),
            cores: found.as_ref().map(|(count, ..)| *count),
            beyond: found.as_ref().is_none_or(|(count, ..)| *count > self.cores.len()),
            hint: found.as_ref().and_then(|(.., hint)| hint.clone()),
            placement: found.map(|(_, candidate, _)| candidate),
        }
    }
}

//! `sluice replay`: the engine on capture files, on a clock that the captures drive.
//!
//! Frames enter one by one, in the order of their timestamps; before each, time passes in steps so that timers run.
//! Whatever is sent at a moment gets that moment as its timestamp. Nothing here asks a clock, a device or chance:
//! the same captures give the same bytes, whatever the machine and the number of workers.

pub(crate) mod captures;
mod cut;
mod eve;
mod inspect;
mod links;
mod pcap;
mod records;
mod summary;
pub(crate) mod world;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_config::Config;
use sluice_config::config::{EveTarget, Link};
use sluice_config::schema::{self, EveType};
use sluice_engine::packet::io::PortIndex;
use sluice_wire::Checksums;

use crate::Loaded;
use crate::compiling::Compiler;
use crate::lowering::{self, LoweringError, Secrets};
use captures::{Input, Output};
use eve::{Journal, Lines};
use world::World;

pub use captures::CaptureError;
pub use eve::EveError;
pub use inspect::{Found, Inspect, InspectSummary, Progress, Uninspected, inspect};
pub use summary::{EveSummary, InterfaceSummary, InventedNeighbour, Summary};

/// What to replay.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    /// What interfaces receive.
    pub inputs: Vec<(String, PathBuf)>,
    /// Where what interfaces send is written.
    pub outputs: Vec<(String, PathBuf)>,
    /// Workers, in place of those configured.
    pub workers: Option<u16>,
    /// File for the records of inspection, made anew, in place of what is configured.
    pub eve: Option<PathBuf>,
}

/// Why a replay fails.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// An interface that is not configured.
    #[error("no interface is called `{name}`: there are {}", known.join(", "))]
    UnknownInterface {
        /// As typed.
        name: String,
        /// Those configured.
        known: Vec<String>,
    },
    /// A capture for an end of a virtual link.
    #[error("interface {0} is an end of a virtual link: packets come in by devices")]
    Virtual(String),
    /// A VLAN, whose frames are those of its parent.
    #[error("`{vlan}` is a VLAN of `{parent}`: its tagged frames belong into the capture of `{parent}`")]
    Vlan {
        /// The VLAN.
        vlan: String,
        /// The interface that carries it.
        parent: String,
    },
    /// The same interface twice.
    #[error("interface `{0}` is given two captures for the same direction")]
    Twice(String),
    /// More workers than shards, or none.
    #[error("{workers} workers for {shards} shards: 1 to {shards} are possible")]
    Workers {
        /// As typed.
        workers: u16,
        /// Shards of the configuration.
        shards: u16,
    },
    /// Records of nothing.
    #[error("{}: nothing is recorded, because the configuration has no [inspection]: add one, or leave --eve away", .0.display())]
    NothingInspected(PathBuf),
    /// A file.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// Records.
    #[error(transparent)]
    Eve(#[from] EveError),
    /// What was found can't be printed.
    #[error("what was found can't be printed: {0}")]
    Output(std::io::Error),
    /// A configuration that is made here and wrong.
    #[error("{0}")]
    Configuration(sluice_config::Diagnosis),
    /// The machine could not be asked.
    #[error(transparent)]
    Machine(#[from] crate::MachineError),
    /// A configuration without parameters.
    #[error(transparent)]
    Lowering(#[from] LoweringError),
    /// No rules to inspect by.
    #[error(transparent)]
    Signatures(#[from] lowering::SignatureError),
    /// A data plane that can't be made.
    #[error(transparent)]
    Plane(#[from] sluice_engine::control::plane::ControlPlaneError),
}

/// Replay captures.
///
/// # Errors
/// A file that can't be read to its end, or a name that means nothing.
pub fn replay(loaded: &Loaded, request: &Replay) -> Result<Summary, ReplayError> {
    let mut config = Config::clone(&loaded.checked.config);
    if let Some(path) = &request.eve {
        record_to(&mut config, path)?;
    }
    let shards = config.document.system.shards_of_many();
    config.document.system.shards = Some(shards);
    let config = &config;
    let workers = request.workers.unwrap_or(config.cores.len() as u16);
    if workers == 0 || workers > shards {
        return Err(ReplayError::Workers { workers, shards });
    }
    let mut inputs = Vec::new();
    for (port, path) in by_port(config, &request.inputs)? {
        inputs.push((port, Input::open(path)?));
    }
    let mut outputs: Vec<Option<Output>> = lowering::ports(config).iter().map(|_| None).collect();
    for (port, path) in by_port(config, &request.outputs)? {
        if let Some(place) = outputs.get_mut(usize::from(port)) {
            *place = Some(Output::create(path)?);
        }
    }
    let lines = lines(config, request)?;
    let mut inspection =
        lowering::inspection(config, Secrets::FIXED, &Compiler::here())?.map(|(inspection, _)| inspection);
    if let (Some(inspection), Some(written), true) = (&mut inspection, &config.document.inspection, lines.is_some()) {
        records::enlarge(Arc::make_mut(inspection), written.messages as usize);
    }
    let mut memory = World::memory(config, workers)?.allocate();
    let mut world = World::with(config, workers, &mut memory, world::NO_CYCLES, inspection.as_ref())?;
    let start = inputs
        .iter()
        .filter_map(|(_, input)| input.next_time())
        .min()
        .unwrap_or_default();
    let mut journal = lines.map(|lines| Journal::new(Some(lines), &world, start));
    if journal.is_some() {
        world.record();
    }
    while let Some(place) = earliest(&inputs) {
        let Some((port, input)) = inputs.get_mut(place) else {
            break;
        };
        let Some(frame) = input.take()? else { continue };
        let at = frame.at.saturating_sub(start).as_nanos() as u64;
        world.advance(at, &mut |port, at, bytes| write(&mut outputs, start, port, at, bytes))?;
        world.receive(*port, &frame, Checksums::Unverified, &mut |port, at, bytes| {
            write(&mut outputs, start, port, at, bytes)
        })?;
        if let Some(journal) = &mut journal {
            journal.tell(&mut world, false)?;
        }
    }
    for output in outputs.into_iter().flatten() {
        output.finish()?;
    }
    let mut summary = world.summary();
    if let Some(journal) = journal {
        let written = journal.finish(&mut world)?;
        summary.eve = Some(EveSummary {
            written,
            lost: world.lost(),
        });
    }
    Ok(summary)
}

/// What is recorded where a file is named and the configuration says nothing of it.
const TYPES: [EveType; 6] = [
    EveType::Alert,
    EveType::Drop,
    EveType::Flow,
    EveType::Http,
    EveType::Dns,
    EveType::Tls,
];

/// Records go to a file, whatever is configured.
fn record_to(config: &mut Config, path: &Path) -> Result<(), ReplayError> {
    let (Some(inspection), Some(written)) = (&mut config.inspection, &mut config.document.inspection) else {
        return Err(ReplayError::NothingInspected(path.to_owned()));
    };
    inspection.eve = Some(EveTarget::File(path.to_owned()));
    written.eve.get_or_insert_with(|| schema::Eve {
        types: TYPES.into(),
        ..schema::Eve::default()
    });
    Ok(())
}

/// Where records go; none where none are wanted.
fn lines(config: &Config, request: &Replay) -> Result<Option<Lines>, EveError> {
    let target = config
        .inspection
        .as_ref()
        .and_then(|inspection| inspection.eve.as_ref());
    let written = config
        .document
        .inspection
        .as_ref()
        .and_then(|inspection| inspection.eve.as_ref());
    let (Some(target), Some(written)) = (target, written) else {
        return Ok(None);
    };
    match &request.eve {
        Some(path) => Lines::create(path, written).map(Some),
        None => Lines::configured(target, written).map(Some),
    }
}

/// The input with the earliest frame; of several, the one given first.
pub(crate) fn earliest(inputs: &[(PortIndex, Input)]) -> Option<usize> {
    let times = inputs.iter().enumerate();
    let times = times.filter_map(|(place, (_, input))| Some((input.next_time()?, place)));
    times.min().map(|(_, place)| place)
}

fn write(
    outputs: &mut [Option<Output>],
    start: std::time::Duration,
    port: PortIndex,
    at: u64,
    frame: &[u8],
) -> Result<(), CaptureError> {
    match outputs.get_mut(usize::from(port)) {
        Some(Some(output)) => output.write(start + std::time::Duration::from_nanos(at), frame),
        _ => Ok(()),
    }
}

/// The ports of interfaces named on the command line.
pub(crate) fn by_port<'a>(
    config: &Config,
    named: &'a [(String, PathBuf)],
) -> Result<Vec<(PortIndex, &'a PathBuf)>, ReplayError> {
    let mut found: Vec<(PortIndex, &PathBuf)> = Vec::new();
    for (name, path) in named {
        let (index, interface) = config.interface(name).ok_or_else(|| ReplayError::UnknownInterface {
            name: name.clone(),
            known: config
                .interfaces
                .iter()
                .map(|interface| interface.name.clone())
                .collect(),
        })?;
        if let Link::Vlan { parent, .. } = &interface.link {
            let parent = config.interfaces.get(usize::from(*parent));
            return Err(ReplayError::Vlan {
                vlan: name.clone(),
                parent: parent.map_or_else(String::new, |parent| parent.name.clone()),
            });
        }
        let Some(port) = lowering::port(config, index) else {
            return Err(ReplayError::Virtual(name.clone()));
        };
        if found.iter().any(|(other, _)| *other == port) {
            return Err(ReplayError::Twice(name.clone()));
        }
        found.push((port, path));
    }
    Ok(found)
}

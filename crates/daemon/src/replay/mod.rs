//! `sluice replay`: runs the engine on capture files, with a simulated clock.
//!
//! Frames enter one at a time, in the order of their timestamps. Before each frame, the clock advances in steps so that
//! timers run. The timestamp of a sent frame is the simulated time. A replay uses no real clock, device or randomness,
//! so the same captures produce the same output on any machine and with any number of workers.

pub(crate) mod captures;
mod cut;
mod eve;
mod flow;
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
pub use inspect::{Found, Inspect, InspectSummary, InspectionProgress, Uninspected, inspect};
pub use summary::{EveSummary, InterfaceSummary, InventedNeighbour, Summary};

/// Parameters of a replay.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    /// Captures that interfaces receive, by interface name.
    pub inputs: Vec<(String, PathBuf)>,
    /// Captures to which sent frames are written, by interface name.
    pub outputs: Vec<(String, PathBuf)>,
    /// Number of workers, instead of the configured number.
    pub workers: Option<u16>,
    /// File for inspection records, instead of the configured target. The file is truncated.
    pub eve: Option<PathBuf>,
}

/// Why a replay fails.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// An interface is not configured.
    #[error("there is no interface `{name}`: the interfaces are {}", known.join(", "))]
    UnknownInterface {
        /// Name as typed.
        name: String,
        /// Names of the configured interfaces.
        known: Vec<String>,
    },
    /// The interface belongs to an inter-router link and can't receive a capture.
    #[error(
        "interface {0} is an end of an inter-router link and can't receive a capture: write an interface with a device"
    )]
    Virtual(String),
    /// The interface is a VLAN. The capture of the parent interface contains the frames of the VLAN.
    #[error("`{vlan}` is a VLAN of `{parent}`: its tagged frames must be in the capture of `{parent}`")]
    Vlan {
        /// Name of the VLAN.
        vlan: String,
        /// Name of the parent interface.
        parent: String,
    },
    /// The same interface is specified twice.
    #[error("interface `{0}` has two captures for the same direction")]
    Twice(String),
    /// The number of workers is zero or exceeds the number of shards.
    #[error("{workers} workers are not possible with {shards} shards: write 1 to {shards} workers")]
    Workers {
        /// Number as typed.
        workers: u16,
        /// Number of shards in the configuration.
        shards: u16,
    },
    /// A file for records is specified, but inspection is not configured.
    #[error("{}: there are no inspection records, because the configuration has no [inspection]: add this table, or \
         remove --eve", .0.display())]
    NothingInspected(PathBuf),
    /// A capture can't be read or written.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// Records can't be written.
    #[error(transparent)]
    Eve(#[from] EveError),
    /// The results can't be printed.
    #[error("the result can't be printed: {0}")]
    Output(std::io::Error),
    /// A generated configuration is invalid.
    #[error("{0}")]
    Configuration(sluice_config::Diagnosis),
    /// Cores or memory of the machine can't be read.
    #[error(transparent)]
    Machine(#[from] crate::MachineError),
    /// The configuration can't be converted to engine parameters.
    #[error(transparent)]
    Lowering(#[from] LoweringError),
    /// Inspection rules can't be loaded.
    #[error(transparent)]
    Signatures(#[from] lowering::SignatureError),
    /// The data plane can't be created.
    #[error(transparent)]
    Plane(#[from] sluice_engine::control::plane::ControlPlaneError),
}

/// Replay captures.
///
/// # Errors
/// A file can't be read completely, or a name is unknown.
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
            journal.write_events(&mut world, false)?;
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

/// Record types that are written if the command line names a file and the configuration lists no types.
const TYPES: [EveType; 6] = [
    EveType::Alert,
    EveType::Drop,
    EveType::Flow,
    EveType::Http,
    EveType::Dns,
    EveType::Tls,
];

/// Write the records to a file instead of the configured target.
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

/// Writer of records. `None` if no records are written.
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

/// Index of the input with the earliest next frame. If the next frames of several inputs have the same time, returns
/// the first of these inputs.
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

/// Ports of the interfaces named on the command line.
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

//! Control plane of an inspecting bridge: roles of cores, traffic, and rules.

use std::path::Path;
use std::sync::Arc;

use sluice_dpdk::tsc;
use sluice_engine::control::plane::ControlPlane;
use sluice_engine::features::inspection::InspectionPolicy;
use sluice_engine::placement::{Load, Placement};
use sluice_engine::snapshot::assist::{self, Assist};
use sluice_engine::snapshot::stages::Stages;
use sluice_engine::snapshot::{Bridge, Interface, Snapshot, bridge_context};
use sluice_inspect::host_table::HostTable;
use sluice_inspect::inspector::{InspectorCapacity, Settings};
use sluice_inspect::protocols::ParserCapacity;
use sluice_inspect::ruleset::{OrderedRules, Ruleset};
use sluice_inspect::signatures::{Classes, Dialect, Variables, read};
use sluice_inspect::stream;
use sluice_route::RouteSet;

use super::traffic::{FLOWS, Kind, Transport};
use crate::rig::policy::{Job, Layout, interface};
use crate::rig::progress::WITHIN;
use crate::rig::queues::Queues;
use crate::rig::scenario::{SFR, lengths};
use crate::rows::Failure;

/// Capacity of the session table.
const CAPACITY: u32 = 4 * FLOWS;
/// Number of shards: higher than a gateway's default, as on a machine with many cores.
pub const SHARDS: u32 = 64;
/// Maximum number of flows per shard; also the maximum number of connections among them.
const FLOWS_OF_SHARD: u32 = 4 * FLOWS / SHARDS;
const CONNECTIONS: usize = 2 * (FLOWS / SHARDS) as usize;

/// Assignment of roles to cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Each core has an interface and inspects the packets that arrive there; the cores share the flow table, with
    /// locks.
    Even,
    /// Like `Even`, but interfaces are moved from the busiest core to the least busy one (kirqd).
    EvenMoving,
    /// Run to completion: each core has its own flows.
    Rss,
    /// One core receives and sends, the others inspect.
    RoleSplit,
    /// One core receives, the others inspect and send.
    RoleSplitSending,
}

impl Model {
    pub fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::EvenMoving => "even-moving",
            Self::Rss => "rss",
            Self::RoleSplit | Self::RoleSplitSending => "role-split",
        }
    }

    /// Name that rows use for the role that sends.
    pub fn senders(self) -> &'static str {
        match self {
            Self::RoleSplit => "io",
            Self::RoleSplitSending => "inspect",
            _ => "all",
        }
    }

    pub fn shares(self) -> bool {
        matches!(self, Self::Even | Self::EvenMoving)
    }

    pub fn splits(self) -> bool {
        matches!(self, Self::RoleSplit | Self::RoleSplitSending)
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

/// Condition under which the receiving core assists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Help {
    /// Number of packets waiting for an inspecting core above which the receiving core assists.
    pub threshold: u32,
    /// Duration in microseconds of an assist, after which the core receives again.
    pub slice: u64,
}

impl Help {
    /// The default of a gateway: a quarter of the ring's capacity.
    pub const USUAL: Self = Self {
        threshold: WITHIN as u32 / 4,
        slice: 20,
    };
}

/// Parameters of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    pub model: Model,
    /// Number of cores in use.
    pub cores: usize,
    /// Frame size in bytes including the frame check sequence; 0 for a mix of sizes.
    pub bytes: usize,
    pub kind: Kind,
    pub transport: Transport,
    pub inspects: bool,
    /// Settings of the assist by the receiving core, with split roles only.
    pub help: Option<Help>,
}

impl Case {
    /// Frame lengths without the frame check sequence; each length is repeated in proportion to its frequency.
    pub fn lengths(&self) -> Vec<usize> {
        match self.kind {
            Kind::Mix => lengths(SFR),
            _ => vec![self.bytes - 4],
        }
    }

    /// Mean frame size in bytes including the frame check sequence.
    pub fn mean(&self) -> f64 {
        let lengths = self.lengths();
        lengths.iter().sum::<usize>() as f64 / lengths.len() as f64 + 4.0
    }

    /// Number of receive queues per interface.
    pub fn queues(&self) -> usize {
        match self.model {
            Model::Rss => self.cores,
            _ => 1,
        }
    }
}

pub fn rules(file: &Path, dialect: Dialect) -> Result<Arc<Ruleset>, Failure> {
    let text = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let read = read(&text, dialect, &Variables::default(), &Classes::default());
    let ordered = OrderedRules::new(read.signatures);
    let prefilter = ordered.pattern_set().compile(&mut |_, _| {})?;
    Ok(Arc::new(ordered.with_prefilter(prefilter)))
}

fn side(index: u16) -> Interface {
    Interface {
        name: ["left", "right"][usize::from(index)].into(),
        context: bridge_context(0),
        bridge: Some(Bridge {
            peer: 1 - index,
            drops_invalid: false,
            fails_open: false,
        }),
        ..interface(index, [2, 0, 0, 0, 9, index as u8], Vec::new())
    }
}

/// Inspection capacity of a shard.
pub fn inspector_plan() -> InspectorCapacity {
    InspectorCapacity {
        flows: FLOWS_OF_SHARD,
        streams: stream::StreamCapacity::of(CONNECTIONS),
        protocols: ParserCapacity {
            messages: 64,
            names: 64,
            inflaters: 1,
            ..ParserCapacity::default()
        },
    }
}

/// Roles of the cores in a case, and their queues.
pub fn queues(case: &Case) -> Result<(Placement, Stages, Queues), Failure> {
    let placement = case.model.placement(case.cores).ok_or("too few cores for this model")?;
    let stages = Stages::of(&placement, &placement.workers());
    let queues = Queues::of(&stages, case.cores, &Load::even(SHARDS as u16), case.help.is_some());
    Ok((placement, stages, queues))
}

pub fn plane(case: &Case, rules: &Arc<Ruleset>) -> Result<ControlPlane, Failure> {
    let (_, stages, queues) = queues(case)?;
    let mut policy = Snapshot::new(2, vec![side(0), side(1)]);
    if case.inspects {
        policy.inspect_by(Arc::new(InspectionPolicy {
            settings: Settings::default(),
            rates: Arc::new(HostTable::new(64, [1, 2])),
            rules: rules.clone(),
            alerts: 64,
            records: Default::default(),
            interfaces: vec![true; 2],
            fragments: Default::default(),
            overload: Default::default(),
            bypass: Vec::new(),
        }));
    }
    policy.senders = vec![queues.senders(); 2];
    let assist = |help: Help| {
        let slice = tsc::frequency() / 1_000_000 * help.slice;
        let threshold = help.threshold;
        Arc::new(Assist::new(case.cores, assist::Settings { threshold, slice }))
    };
    let layout = Layout {
        shards: SHARDS,
        stages,
        workers: case.cores,
        sessions: [CAPACITY, SHARDS],
        subscribers: 64,
        assist: case.help.map(assist),
        inspection: case.inspects.then(inspector_plan),
        ..Layout::sessions(Job::Forward, 0, false)
    };
    layout.plane(policy, &[RouteSet::new(&[], &[])?])
}

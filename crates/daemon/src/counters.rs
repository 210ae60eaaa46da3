//! Counters of the API and of documents: those that workers count, and those of the control plane.

use std::sync::Arc;

use sluice_config::api::{CounterValue, CounterValues, InspectionReason, WorkerCounter};

pub use sluice_engine::packet::counters::{
    CounterKind, CycleStage, HandOffCause, IdentificationCounters, IdentificationOutcome, InspectionCounters,
    InterfaceCounters, NamedCounter, NodeCounters, Unit, WorkerCounters,
};

/// Counters of inspection that the control plane maintains.
#[derive(Clone, Copy, Debug, Default)]
pub struct InspectionServiceCounters {
    /// Matches that were not counted.
    pub uncounted: u64,
    /// Values that were not stored.
    pub unrecorded: u64,
    /// Records written.
    pub records: u64,
    /// Records that were lost because a write to the file failed.
    pub records_failed: u64,
}

impl InspectionServiceCounters {
    /// The named counters, in the order in which lists show them.
    pub const NAMED: &[NamedCounter<Self>] = &[
        NamedCounter {
            name: "uncounted",
            kind: CounterKind::Total,
            unit: Unit::Matches,
            help: "matches that `threshold` or `detection_filter` could not count because the table was full",
            label: None,
            read: |counters, _| counters.uncounted,
        },
        NamedCounter {
            name: "unrecorded",
            kind: CounterKind::Total,
            unit: Unit::Values,
            help: "values of `xbits` and `dataset` that could not be stored because the table was full",
            label: None,
            read: |counters, _| counters.unrecorded,
        },
        NamedCounter {
            name: "records",
            kind: CounterKind::Total,
            unit: Unit::Records,
            help: "EVE records written",
            label: None,
            read: |counters, _| counters.records,
        },
        NamedCounter {
            name: "records-failed",
            kind: CounterKind::Total,
            unit: Unit::Records,
            help: "lost records that could not be written to the file, usually because the disk is full",
            label: None,
            read: |counters, _| counters.records_failed,
        },
    ];
}

/// Counter of address conflicts. In a conflict, another host uses one of the gateway's addresses. The control plane
/// counts conflicts; the list shows the count in the row of the worker that owns the neighbour tables.
pub const NEIGHBOUR_CONFLICTS: NamedCounter<u64> = NamedCounter {
    name: "neighbour-conflicts",
    kind: CounterKind::Total,
    unit: Unit::Times,
    help: "times that another host was seen to use an address of the gateway",
    label: None,
    read: |conflicts, _| *conflicts,
};

/// The counters of one source as the list of workers shows them. A counter with a label is shown as one counter for
/// each value of the label; its name consists of the names of counter and value.
pub fn listed<C>(named: &[NamedCounter<C>], source: &C) -> Vec<WorkerCounter> {
    let mut listed = Vec::new();
    for counter in named {
        let mut push = |name: String, count| {
            listed.push(WorkerCounter {
                name,
                count,
                unit: counter.unit.name().into(),
                kind: counter.kind.name().into(),
            });
        };
        match counter.label {
            None => push(counter.name.into(), (counter.read)(source, 0)),
            Some(_) => counter
                .by_label(std::iter::once(source))
                .for_each(|(value, _, count)| push(format!("{}-{value}", counter.name), count)),
        }
    }
    listed
}

/// Counters as members of an answer, over all workers.
pub fn summed<'n>(
    named: impl IntoIterator<Item = &'n NamedCounter<WorkerCounters>>,
    workers: &[Arc<WorkerCounters>],
) -> CounterValues {
    let sources = || workers.iter().map(Arc::as_ref);
    let count = |counter: &NamedCounter<WorkerCounters>| match counter.label {
        None => CounterValue::Single(counter.value(sources(), 0)),
        Some(_) => CounterValue::ByLabel(nonzero(counter.by_label(sources()))),
    };
    let counts = named.into_iter().map(|counter| (counter.name.into(), count(counter)));
    CounterValues(counts.collect())
}

fn nonzero(values: impl Iterator<Item = (&'static str, &'static str, u64)>) -> Vec<InspectionReason> {
    let values = values.filter(|(.., count)| *count > 0);
    values
        .map(|(reason, help, packets)| InspectionReason {
            reason: reason.into(),
            help: help.into(),
            packets,
        })
        .collect()
}

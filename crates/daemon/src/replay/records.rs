//! The workers' alerts and records. The order of alerts and records, and their flow numbers, do not depend on the
//! number of workers and shards.

use std::collections::HashMap;

use sluice_engine::features::inspection::{Alert, InspectionPolicy};
use sluice_engine::session::records::{Record, RecordKind, RecordSubject};
use sluice_engine::worker::request::WorkerHandle;

use crate::alerts::AlertQueues;

/// An alert or another record.
#[derive(Debug)]
pub enum EveEvent {
    /// Match of a rule.
    Alert(Alert),
    /// Any other record.
    Record(Box<Record>),
}

impl EveEvent {
    /// Flow and time of the record.
    pub fn about(&self) -> &RecordSubject {
        match self {
            Self::Alert(alert) => &alert.about,
            Self::Record(record) => &record.about,
        }
    }

    fn about_mut(&mut self) -> &mut RecordSubject {
        match self {
            Self::Alert(alert) => &mut alert.about,
            Self::Record(record) => &mut record.about,
        }
    }

    /// Sort key: first the time, then the flow regardless of direction.
    fn order(&self) -> impl Ord + use<> {
        let RecordSubject {
            at,
            addresses: [first, second],
            ports: [one, other],
            protocol,
            flow,
            ..
        } = *self.about();
        let mut ends = [(first, one), (second, other)];
        ends.sort_unstable();
        (at, ends, protocol, flow)
    }
}

/// Enlarge the queues so that one round of a worker can't fill them. The queues are drained after each round. In a
/// round, a worker ends at most 256 flows and completes at most all transactions of its shards.
pub fn enlarge(inspection: &mut InspectionPolicy, messages: usize) {
    inspection.alerts = inspection.alerts.max(1 << 16);
    if inspection.records.max > 0 {
        inspection.records.max = inspection.records.max.max(2 * messages + 1024);
    }
}

/// Collects the workers' alerts and records.
#[derive(Default)]
pub struct Recorder {
    queues: Vec<AlertQueues>,
    recorded: Vec<EveEvent>,
    /// For each flow number of a shard, the flow number in the output. Output numbers are assigned in the order of
    /// first appearance.
    numbers: HashMap<u64, u64>,
    last: u64,
}

impl Recorder {
    /// Create a collector on the workers' queues.
    pub fn new(handles: &mut [WorkerHandle]) -> Self {
        let queues = handles.iter_mut().filter_map(|handle| {
            let (alerts, records) = (handle.alerts.take()?, handle.records.take());
            Some(AlertQueues { alerts, records })
        });
        Self {
            queues: queues.collect(),
            ..Self::default()
        }
    }

    /// Read the queues.
    pub fn collect(&mut self) {
        for AlertQueues { alerts, records } in &mut self.queues {
            // Alerts come first, so that an alert precedes a record of the same flow with the same time.
            while let Ok(alert) = alerts.pop() {
                self.recorded.push(EveEvent::Alert(alert));
            }
            while let Some(Ok(record)) = records.as_mut().map(rtrb::Consumer::pop) {
                self.recorded.push(EveEvent::Record(Box::new(record)));
            }
        }
    }

    /// Return the alerts and records collected since the last call.
    pub fn take(&mut self) -> Vec<EveEvent> {
        let mut recorded = std::mem::take(&mut self.recorded);
        recorded.sort_by_cached_key(EveEvent::order);
        for recorded in &mut recorded {
            let is_last = matches!(recorded, EveEvent::Record(record) if matches!(record.said, RecordKind::Flow(_)));
            let about = recorded.about_mut();
            if about.flow == 0 {
                continue;
            }
            let flow_number = about.flow;
            about.flow = *self.numbers.entry(flow_number).or_insert_with(|| {
                self.last += 1;
                self.last
            });
            if is_last {
                self.numbers.remove(&flow_number);
            }
        }
        recorded
    }
}

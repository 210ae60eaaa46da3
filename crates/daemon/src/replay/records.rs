//! The workers' alerts and records. The order of alerts and records, and their flow numbers, do not depend on the
//! number of workers and shards.

use std::collections::HashMap;

use sluice_engine::features::inspection::{Alert, InspectionPolicy};
use sluice_engine::session::records::{About, Record, RecordKind};
use sluice_engine::worker::request::WorkerHandle;

use crate::alerts::Queues;

/// An alert or another record.
#[derive(Debug)]
pub enum Told {
    /// Match of a rule.
    Alert(Alert),
    /// Any other record.
    Record(Box<Record>),
}

impl Told {
    /// Flow and time of the record.
    pub fn about(&self) -> &About {
        match self {
            Self::Alert(alert) => &alert.about,
            Self::Record(record) => &record.about,
        }
    }

    fn about_mut(&mut self) -> &mut About {
        match self {
            Self::Alert(alert) => &mut alert.about,
            Self::Record(record) => &mut record.about,
        }
    }

    /// Sort key: first the time, then the flow regardless of direction.
    fn order(&self) -> impl Ord + use<> {
        let About {
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
    if inspection.records.most > 0 {
        inspection.records.most = inspection.records.most.max(2 * messages + 1024);
    }
}

/// Collects the workers' alerts and records.
#[derive(Default)]
pub struct Recorder {
    queues: Vec<Queues>,
    told: Vec<Told>,
    /// For each flow number of a shard, the flow number in the output. Output numbers are assigned in the order of
    /// first appearance.
    numbers: HashMap<u64, u64>,
    last: u64,
}

impl Recorder {
    /// Create a collector on the workers' queues.
    pub fn new(desks: &mut [WorkerHandle]) -> Self {
        let queues = desks.iter_mut().filter_map(|desk| {
            let (alerts, records) = (desk.alerts.take()?, desk.records.take());
            Some(Queues { alerts, records })
        });
        Self {
            queues: queues.collect(),
            ..Self::default()
        }
    }

    /// Read the queues.
    pub fn collect(&mut self) {
        for Queues { alerts, records } in &mut self.queues {
            // Alerts come first, so that an alert precedes a record of the same flow with the same time.
            while let Ok(alert) = alerts.pop() {
                self.told.push(Told::Alert(alert));
            }
            while let Some(Ok(record)) = records.as_mut().map(rtrb::Consumer::pop) {
                self.told.push(Told::Record(Box::new(record)));
            }
        }
    }

    /// Return the alerts and records collected since the last call.
    pub fn take(&mut self) -> Vec<Told> {
        let mut told = std::mem::take(&mut self.told);
        told.sort_by_cached_key(Told::order);
        for told in &mut told {
            let is_last = matches!(told, Told::Record(record) if matches!(record.said, RecordKind::Flow(_)));
            let about = told.about_mut();
            if about.flow == 0 {
                continue;
            }
            let given = about.flow;
            about.flow = *self.numbers.entry(given).or_insert_with(|| {
                self.last += 1;
                self.last
            });
            if is_last {
                self.numbers.remove(&given);
            }
        }
        told
    }
}

//! What workers told of inspected flows, in an order and with numbers of flows that do not depend on how many workers and shards
//! there are.

use std::collections::HashMap;

use sluice_engine::features::inspection::{Alert, InspectionPolicy};
use sluice_engine::session::records::{About, Record, RecordKind};
use sluice_engine::worker::request::WorkerHandle;

use crate::alerts::Queues;

/// An alert or another record.
#[derive(Debug)]
pub enum Told {
    /// A rule matched.
    Alert(Alert),
    /// What [`Record`] has.
    Record(Box<Record>),
}

impl Told {
    /// What it is about.
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

    /// By time; at the same time by flow, both directions of which are one.
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

/// Queues so long that one round of a worker can't fill them: they are drained after each. A round ends at most 256 flows, and
/// tells at most what all transactions of its shards have to say.
pub fn enlarge(inspection: &mut InspectionPolicy, messages: usize) {
    inspection.alerts = inspection.alerts.max(1 << 16);
    if inspection.records.most > 0 {
        inspection.records.most = inspection.records.most.max(2 * messages + 1024);
    }
}

/// Takes what workers tell.
#[derive(Default)]
pub struct Recorder {
    queues: Vec<Queues>,
    told: Vec<Told>,
    /// Numbers of flows by those that shards gave them, in the order in which they are told of.
    numbers: HashMap<u64, u64>,
    last: u64,
}

impl Recorder {
    /// Of the queues of workers.
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

    /// Take what the queues have.
    pub fn collect(&mut self) {
        for Queues { alerts, records } in &mut self.queues {
            // Of the same moment, alerts come before what is said of a flow.
            while let Ok(alert) = alerts.pop() {
                self.told.push(Told::Alert(alert));
            }
            while let Some(Ok(record)) = records.as_mut().map(rtrb::Consumer::pop) {
                self.told.push(Told::Record(Box::new(record)));
            }
        }
    }

    /// What was told since the last call.
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

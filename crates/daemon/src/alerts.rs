//! Reads the alerts and records of inspection from the workers' queues and writes them as EVE JSON. The most recent
//! alerts are kept for the API.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_config::api;
use sluice_engine::features::inspection::{Alert, Alerts as Queue};
use sluice_engine::session::records::RecordReceiver;
use sluice_inspect::Ruleset;
use sluice_inspect::signature::Action;

use crate::eve::{self, Eve, Scene, Statistics};
use crate::known::KnownRules;

/// Number of alerts kept for the API.
const CAPACITY: usize = 1_000;

/// Maximum number of alerts and records that one call of [`Alerts::collect`] reads from one worker. Without a limit, a
/// flood of alerts would delay other tasks.
const MAX_BATCH: usize = 10_000;

/// Collector of the workers' alerts and records.
pub struct Alerts(Mutex<Inside>);

struct Inside {
    known: KnownRules,
    queues: Vec<AlertQueues>,
    last: VecDeque<api::Alert>,
    eve: Option<Eve>,
}

/// Queues through which one worker reports alerts and records.
pub struct AlertQueues {
    /// Queue of alerts.
    pub alerts: Queue,
    /// Queue of records that are not alerts. `None` if the configuration enables no such records.
    pub records: Option<RecordReceiver>,
}

impl Alerts {
    /// Create a collector that reads `queues` and writes to `eve`.
    pub fn new(queues: Vec<AlertQueues>, eve: Option<Eve>) -> Self {
        Self(Mutex::new(Inside {
            known: KnownRules::default(),
            queues,
            last: VecDeque::with_capacity(CAPACITY),
            eve,
        }))
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Register the rules of a generation. Alerts and records of this generation then state the names of the rules.
    pub fn learn(&self, generation: u32, rules: &Ruleset) {
        self.inside().known.learn(generation, rules);
    }

    /// Read the alerts and records that the workers have queued.
    pub fn collect(&self, scene: &Scene<'_>) {
        let Inside {
            known,
            queues,
            last,
            eve,
        } = &mut *self.inside();
        for AlertQueues { alerts, records } in queues {
            for _ in 0..MAX_BATCH {
                // Read the earlier of the next alert and the next record, so that the output is ordered by time.
                let record = records.as_mut().and_then(|records| records.peek().ok());
                let record = record.map(|record| record.about.at);
                let alert = alerts.peek().ok().map(|alert| alert.about.at);
                match (alert, record) {
                    (None, None) => break,
                    (Some(alert), record) if record.is_none_or(|record| alert <= record) => {
                        if let Ok(alert) = alerts.pop() {
                            take(&alert, known, scene, last, eve.as_ref());
                        }
                    }
                    _ => {
                        let record = records.as_mut().and_then(|records| records.pop().ok());
                        if let (Some(eve), Some(record)) = (&*eve, record) {
                            eve.record(scene, known, &record);
                        }
                    }
                }
            }
        }
    }

    /// Write the inspection statistics if the statistics interval has passed.
    pub fn write_statistics(&self, scene: &Scene<'_>, uptime: Duration, count: impl FnOnce([u64; 2]) -> Statistics) {
        if let Some(eve) = &mut self.inside().eve {
            let counts = eve.counts();
            eve.statistics(scene, uptime, || count(counts));
        }
    }

    /// Number of records written, and number of records lost before they were written.
    pub fn counts(&self) -> [u64; 2] {
        self.inside().eve.as_ref().map(Eve::counts).unwrap_or_default()
    }

    /// Number of records lost because a write to the file failed.
    pub fn failures(&self) -> u64 {
        self.inside().eve.as_ref().map(Eve::failures).unwrap_or_default()
    }

    /// Reopen the file of records.
    pub fn reopen(&self) {
        if let Some(eve) = &self.inside().eve {
            eve.reopen();
        }
    }

    /// Stop recording, and write the records that are still queued.
    pub fn finish(&self) {
        self.inside().eve = None;
    }

    /// Up to `limit` of the most recent alerts, oldest first.
    pub fn last(&self, limit: usize) -> Vec<api::Alert> {
        let inside = self.inside();
        let skip = inside.last.len().saturating_sub(limit);
        inside.last.iter().skip(skip).cloned().collect()
    }
}

/// Keep an alert for the API and write it to EVE.
fn take(alert: &Alert, known: &KnownRules, scene: &Scene<'_>, last: &mut VecDeque<api::Alert>, eve: Option<&Eve>) {
    let Some(shown) = shown(alert, known, scene) else {
        return;
    };
    if let Some(eve) = eve {
        eve.alert(scene, alert, &shown);
    }
    if last.len() == CAPACITY {
        last.pop_front();
    }
    last.push_back(shown);
}

/// An alert in the form of the API, with the message of its rule.
pub(crate) fn shown(alert: &Alert, known: &KnownRules, scene: &Scene<'_>) -> Option<api::Alert> {
    let rule = known.get(alert.rule)?;
    let about = &alert.about;
    let [source, destination] = about.addresses;
    let port = |port| matches!(about.protocol, 6 | 17).then_some(port);
    Some(api::Alert {
        time: scene.time(about.at),
        action: match alert.action {
            Action::Drop => "drop",
            Action::Reject => "reject",
            Action::Pass | Action::Alert => "alert",
        }
        .into(),
        generator: rule.id.generator,
        signature: rule.id.signature,
        revision: rule.id.revision,
        message: rule.message.to_string(),
        class: rule.class.to_string(),
        priority: rule.priority,
        interface: scene.interface(about.interface).into(),
        protocol: eve::protocol(about.protocol),
        source,
        source_port: port(about.ports[0]),
        destination,
        destination_port: port(about.ports[1]),
        to_server: about.to_server,
        packets: alert.packets,
        bytes: alert.bytes,
    })
}

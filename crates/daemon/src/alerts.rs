//! Alerts of inspection and its records: taken from the workers' queues, written as EVE JSON, the last alerts kept to be
//! shown.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_config::api;
use sluice_engine::features::inspection::{Alert, Alerts as Queue};
use sluice_engine::session::records::Taken;
use sluice_inspect::Ruleset;
use sluice_inspect::signature::Action;

use crate::eve::{self, Eve, Scene, Statistics};
use crate::known::KnownRules;

/// Alerts that are kept to be shown.
const KEPT: usize = 1_000;

/// Alerts and records that are taken from one worker at once, so that a flood of them holds nothing else up.
const AT_ONCE: usize = 10_000;

/// Alerts and records, from the workers to whoever reads them.
pub struct Alerts(Mutex<Inside>);

struct Inside {
    known: KnownRules,
    queues: Vec<Queues>,
    last: VecDeque<api::Alert>,
    eve: Option<Eve>,
}

/// What a worker tells.
pub struct Queues {
    /// Rules that matched.
    pub alerts: Queue,
    /// Everything else, where it is wanted.
    pub records: Option<Taken>,
}

impl Alerts {
    /// Those of these queues, and where they are written to.
    pub fn new(queues: Vec<Queues>, eve: Option<Eve>) -> Self {
        Self(Mutex::new(Inside {
            known: KnownRules::default(),
            queues,
            last: VecDeque::with_capacity(KEPT),
            eve,
        }))
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rules of a generation run: alerts and records name them.
    pub fn learn(&self, generation: u32, rules: &Ruleset) {
        self.inside().known.learn(generation, rules);
    }

    /// Take what the workers have told.
    pub fn collect(&self, scene: &Scene<'_>) {
        let Inside {
            known,
            queues,
            last,
            eve,
        } = &mut *self.inside();
        for Queues { alerts, records } in queues {
            for _ in 0..AT_ONCE {
                // In the order in which the worker told.
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

    /// Write how inspection goes, where it is time to.
    pub fn tell_statistics(&self, scene: &Scene<'_>, uptime: Duration, count: impl FnOnce([u64; 2]) -> Statistics) {
        if let Some(eve) = &mut self.inside().eve {
            let counts = eve.counts();
            eve.statistics(scene, uptime, || count(counts));
        }
    }

    /// Records that were written, and that were lost on their way out.
    pub fn counts(&self) -> [u64; 2] {
        self.inside().eve.as_ref().map(Eve::counts).unwrap_or_default()
    }

    /// Records among those that were lost because the file did not take them.
    pub fn failures(&self) -> u64 {
        self.inside().eve.as_ref().map(Eve::failures).unwrap_or_default()
    }

    /// Open the file of records anew.
    pub fn reopen(&self) {
        if let Some(eve) = &self.inside().eve {
            eve.reopen();
        }
    }

    /// Nothing more is written: what waits goes out.
    pub fn finish(&self) {
        self.inside().eve = None;
    }

    /// The last alerts, oldest first, at most so many.
    pub fn last(&self, most: usize) -> Vec<api::Alert> {
        let inside = self.inside();
        let skip = inside.last.len().saturating_sub(most);
        inside.last.iter().skip(skip).cloned().collect()
    }
}

/// An alert is kept, and written.
fn take(alert: &Alert, known: &KnownRules, scene: &Scene<'_>, last: &mut VecDeque<api::Alert>, eve: Option<&Eve>) {
    let Some(shown) = shown(alert, known, scene) else {
        return;
    };
    if let Some(eve) = eve {
        eve.alert(scene, alert, &shown);
    }
    if last.len() == KEPT {
        last.pop_front();
    }
    last.push_back(shown);
}

/// An alert with the words of its rule.
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

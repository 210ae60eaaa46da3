//! EVE JSON: what workers record, and how inspection goes, as lines to a file or a socket.

mod line;
mod transaction;
mod writer;

use std::time::{Duration, Instant};

use serde::Serialize;
use sluice_config::api;
use sluice_config::config::EveTarget;
use sluice_config::schema::{self, EveType};
use sluice_engine::features::inspection::Alert;
use sluice_engine::session::records::{Record, RecordKind};

use line::{AlertSaid, DropSaid};
pub use line::{Scene, protocol};
use writer::Writer;

use crate::DaemonError;
use crate::files::Rotation;
use crate::known::KnownRules;

/// Where records go, and which of them do.
#[derive(Debug)]
pub struct Eve {
    writer: Writer,
    types: Vec<EveType>,
    every: Duration,
    next: Instant,
}

/// How inspection goes. Names are Suricata's where it has one.
#[derive(Debug, Serialize)]
pub struct Statistics {
    /// Seconds since the start.
    pub uptime: u64,
    /// Packets.
    pub decoder: Decoder,
    /// Rules.
    pub detect: Detect,
    /// Packets that were let pass or not.
    pub ips: Ips,
    /// What is this program's own.
    pub inspection: Own,
}

/// What was looked at.
#[derive(Debug, Serialize)]
pub struct Decoder {
    /// Packets.
    pub pkts: u64,
    /// Bytes that were searched.
    pub bytes: u64,
}

/// What rules found.
#[derive(Debug, Serialize)]
pub struct Detect {
    /// Alerts.
    pub alert: u64,
    /// Alerts that were lost.
    pub alert_queue_overflow: u64,
}

/// What became of packets.
#[derive(Debug, Serialize)]
pub struct Ips {
    /// Packets that were dropped.
    pub blocked: u64,
    /// The same by reason, where there were any.
    pub drop_reason: std::collections::BTreeMap<&'static str, u64>,
}

/// What Suricata has no name for.
#[derive(Debug, Serialize)]
pub struct Own {
    /// Packets that went on uninspected.
    pub uninspected: u64,
    /// Flows that are no longer inspected.
    pub left: u64,
    /// Records that were written.
    pub records: u64,
    /// Records that were lost.
    pub records_lost: u64,
}

impl Eve {
    /// As configured.
    ///
    /// # Errors
    /// A file that can't be opened, a name that no socket can have.
    pub fn start(target: EveTarget, written: &schema::Eve) -> Result<Self, DaemonError> {
        let path = match &target {
            EveTarget::File(path) | EveTarget::Stream(path) | EveTarget::Datagram(path) => path.clone(),
        };
        let writer = Writer::start(target, rotation(written), written.records as usize);
        Ok(Self {
            writer: writer.map_err(|error| DaemonError::Eve { path, error })?,
            types: written.types.clone(),
            every: written.stats_interval.duration(),
            next: Instant::now(),
        })
    }

    fn writes(&self, kind: EveType) -> bool {
        self.types.contains(&kind)
    }

    /// A rule has matched.
    pub fn alert(&self, scene: &Scene<'_>, alert: &Alert, shown: &api::Alert) {
        if self.writes(EveType::Alert) {
            self.writer.write(alert_line(scene, alert, shown));
        }
    }

    /// A worker has recorded something: it does so only where that is wanted.
    pub fn record(&self, scene: &Scene<'_>, known: &KnownRules, record: &Record) {
        let line = record_line(scene, known, record);
        if let Some(line) = line {
            self.writer.write(line);
        }
    }

    /// Write how inspection goes, where it is time to.
    pub fn statistics(&mut self, scene: &Scene<'_>, uptime: Duration, count: impl FnOnce() -> Statistics) {
        let now = Instant::now();
        if self.writes(EveType::Stats) && now >= self.next {
            self.next = now + self.every;
            let line = scene.statistics(uptime.as_nanos() as u64, count());
            self.writer.write(line);
        }
    }

    /// Open the file anew, or connect again.
    pub fn reopen(&self) {
        self.writer.reopen();
    }

    /// Lines that were written, and lines that were lost.
    pub fn counts(&self) -> [u64; 2] {
        self.writer.counts()
    }

    /// Lines among those that were lost because the file did not take them.
    pub fn failures(&self) -> u64 {
        self.writer.failures()
    }
}

/// When a file of records gives way to another one.
pub fn rotation(written: &schema::Eve) -> Rotation {
    Rotation {
        bytes: written.rotate_bytes,
        kept: written.rotate_kept,
    }
}

/// The line of an alert.
pub fn alert_line(scene: &Scene<'_>, alert: &Alert, shown: &api::Alert) -> Vec<u8> {
    scene.line(&alert.about, EveType::Alert, AlertSaid::new(shown))
}

/// The line of another record; none where it can't be read.
pub fn record_line(scene: &Scene<'_>, known: &KnownRules, record: &Record) -> Option<Vec<u8>> {
    let about = &record.about;
    match &record.said {
        RecordKind::Drop { reason, rule, length } => {
            let rule = rule.and_then(|rule| known.get(rule));
            Some(scene.line(about, EveType::Drop, DropSaid::new(*length, reason.name(), rule)))
        }
        RecordKind::Flow(ended) => Some(scene.ended(about, ended)),
        RecordKind::Transaction(said) => scene.transaction(about, said),
    }
}

#[cfg(test)]
mod tests;

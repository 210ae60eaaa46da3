//! EVE JSON: the workers' records and the inspection statistics, written as lines to a file or a socket.

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

/// Writer of EVE JSON with the enabled record types.
#[derive(Debug)]
pub struct Eve {
    writer: Writer,
    types: Vec<EveType>,
    every: Duration,
    next: Instant,
}

/// Inspection statistics. Counters that Suricata also has use Suricata's names.
#[derive(Debug, Serialize)]
pub struct Statistics {
    /// Seconds since the start of the process.
    pub uptime: u64,
    /// Decoded packets.
    pub decoder: Decoder,
    /// Results of rules.
    pub detect: Detect,
    /// Verdicts on packets.
    pub ips: Ips,
    /// Counters that Suricata does not have.
    pub inspection: Own,
}

/// Inspected traffic.
#[derive(Debug, Serialize)]
pub struct Decoder {
    /// Packets.
    pub pkts: u64,
    /// Bytes searched.
    pub bytes: u64,
}

/// Results of rules.
#[derive(Debug, Serialize)]
pub struct Detect {
    /// Alerts.
    pub alert: u64,
    /// Alerts lost because a queue was full.
    pub alert_queue_overflow: u64,
}

/// Verdicts on packets.
#[derive(Debug, Serialize)]
pub struct Ips {
    /// Packets dropped.
    pub blocked: u64,
    /// Packets dropped by reason; reasons with a zero count are omitted.
    pub drop_reason: std::collections::BTreeMap<&'static str, u64>,
}

/// Counters that Suricata does not have.
#[derive(Debug, Serialize)]
pub struct Own {
    /// Packets forwarded without inspection.
    pub uninspected: u64,
    /// Number of flows for which inspection has ended.
    pub left: u64,
    /// Records written.
    pub records: u64,
    /// Records lost.
    pub records_lost: u64,
}

impl Eve {
    /// Start the writer according to the configuration.
    ///
    /// # Errors
    /// The file can't be opened, or the socket's name is invalid.
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

    /// Write an alert.
    pub fn alert(&self, scene: &Scene<'_>, alert: &Alert, shown: &api::Alert) {
        if self.writes(EveType::Alert) {
            self.writer.write(alert_line(scene, alert, shown));
        }
    }

    /// Write a record. Workers only create records of enabled types.
    pub fn record(&self, scene: &Scene<'_>, known: &KnownRules, record: &Record) {
        let line = record_line(scene, known, record);
        if let Some(line) = line {
            self.writer.write(line);
        }
    }

    /// Write the inspection statistics if their interval has passed.
    pub fn statistics(&mut self, scene: &Scene<'_>, uptime: Duration, count: impl FnOnce() -> Statistics) {
        let now = Instant::now();
        if self.writes(EveType::Stats) && now >= self.next {
            self.next = now + self.every;
            let line = scene.statistics(uptime.as_nanos() as u64, count());
            self.writer.write(line);
        }
    }

    /// Reopen the file, or reconnect the socket.
    pub fn reopen(&self) {
        self.writer.reopen();
    }

    /// Number of lines written, and number of lines lost.
    pub fn counts(&self) -> [u64; 2] {
        self.writer.counts()
    }

    /// Number of lines lost because a write to the file failed.
    pub fn failures(&self) -> u64 {
        self.writer.failures()
    }
}

/// Rotation parameters of the file of records.
pub fn rotation(written: &schema::Eve) -> Rotation {
    Rotation {
        bytes: written.rotate_bytes,
        kept: written.rotate_kept,
    }
}

/// Format an alert as a line of EVE JSON.
pub fn alert_line(scene: &Scene<'_>, alert: &Alert, shown: &api::Alert) -> Vec<u8> {
    scene.line(&alert.about, EveType::Alert, AlertSaid::new(shown))
}

/// Format a record as a line of EVE JSON. `None` if the record can't be decoded.
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

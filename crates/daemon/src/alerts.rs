//! Alerts of inspection: taken from the workers' queues, written as EVE JSON, the last ones kept to be shown.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use sluice_config::api;
use sluice_engine::inspection::{Alert, Alerts as Queue};
use sluice_inspect::Ruleset;
use sluice_inspect::signature::Action;

/// Alerts that are kept to be shown.
const KEPT: usize = 1_000;

/// Alerts that are taken from one worker at once, so that a flood of them holds nothing else up.
const AT_ONCE: usize = 10_000;

/// Alerts, from the workers to whoever reads them.
pub struct Alerts {
    inside: Mutex<Inside>,
    path: Option<PathBuf>,
    /// Alerts taken from the workers.
    pub taken: AtomicU64,
    /// Lines that could not be written.
    pub unwritten: AtomicU64,
}

struct Inside {
    queues: Vec<Queue>,
    last: VecDeque<api::Alert>,
    file: Option<BufWriter<File>>,
}

/// A line of EVE JSON, in the words of Suricata.
#[derive(Serialize)]
struct Line<'a> {
    timestamp: &'a str,
    event_type: &'static str,
    in_iface: &'a str,
    src_ip: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    src_port: Option<u16>,
    dest_ip: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    dest_port: Option<u16>,
    proto: &'a str,
    direction: &'static str,
    alert: Signature<'a>,
    flow: Flow,
}

#[derive(Serialize)]
struct Signature<'a> {
    action: &'static str,
    gid: u32,
    signature_id: u32,
    rev: u32,
    signature: &'a str,
    category: &'a str,
    severity: u8,
}

#[derive(Serialize)]
struct Flow {
    pkts_toserver: u64,
    pkts_toclient: u64,
    bytes_toserver: u64,
    bytes_toclient: u64,
}

impl Alerts {
    /// Alerts of these queues; a file that lines are appended to, made where there is none.
    ///
    /// # Errors
    /// The file can't be opened.
    pub fn new(queues: Vec<Queue>, path: Option<&Path>) -> std::io::Result<Self> {
        let file = path
            .map(|path| OpenOptions::new().create(true).append(true).open(path))
            .transpose()?;
        Ok(Self {
            inside: Mutex::new(Inside {
                queues,
                last: VecDeque::with_capacity(KEPT),
                file: file.map(BufWriter::new),
            }),
            path: path.map(Path::to_owned),
            taken: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
        })
    }

    /// Take what the workers have told. `started` is when the engine's clock began.
    pub fn collect(&self, rules: &Ruleset, interfaces: &[String], started: SystemTime) {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let Inside { queues, last, file } = &mut *inside;
        let mut failed = None;
        for queue in queues {
            for _ in 0..AT_ONCE {
                let Ok(alert) = queue.pop() else { break };
                self.taken.fetch_add(1, Ordering::Relaxed);
                let Some(shown) = shown(&alert, rules, interfaces, started) else {
                    continue;
                };
                if let Some(file) = file
                    && let Err(error) = write(file, &shown)
                {
                    self.unwritten.fetch_add(1, Ordering::Relaxed);
                    failed = Some(error);
                }
                if last.len() == KEPT {
                    last.pop_front();
                }
                last.push_back(shown);
            }
        }
        if let Some(Err(error)) = file.as_mut().map(Write::flush) {
            failed = Some(error);
        }
        if let (Some(error), Some(path)) = (failed, &self.path) {
            tracing::error!("alerts can't be written to {}: {error}", path.display());
        }
    }

    /// The last alerts, oldest first, at most so many.
    pub fn last(&self, most: usize) -> Vec<api::Alert> {
        let inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        let skip = inside.last.len().saturating_sub(most);
        inside.last.iter().skip(skip).cloned().collect()
    }
}

/// An alert with the words of its rule.
fn shown(alert: &Alert, rules: &Ruleset, interfaces: &[String], started: SystemTime) -> Option<api::Alert> {
    let signature = &rules.rule(alert.rule)?.signature;
    let at = started + Duration::from_nanos(alert.at);
    let [source, destination] = alert.addresses;
    let port = |port| matches!(alert.protocol, 6 | 17).then_some(port);
    Some(api::Alert {
        time: humantime::format_rfc3339_micros(at).to_string(),
        action: match alert.action {
            Action::Drop => "drop",
            Action::Reject => "reject",
            Action::Pass | Action::Alert => "alert",
        }
        .into(),
        generator: signature.id.generator,
        signature: signature.id.signature,
        revision: signature.id.revision,
        message: signature.message.to_string(),
        class: signature.class.as_deref().unwrap_or_default().into(),
        priority: signature.priority,
        interface: interfaces
            .get(usize::from(alert.interface))
            .cloned()
            .unwrap_or_default(),
        protocol: match alert.protocol {
            1 => "ICMP".into(),
            6 => "TCP".into(),
            17 => "UDP".into(),
            58 => "ICMPv6".into(),
            other => other.to_string(),
        },
        source,
        source_port: port(alert.ports[0]),
        destination,
        destination_port: port(alert.ports[1]),
        to_server: alert.to_server,
        packets: alert.packets,
        bytes: alert.bytes,
    })
}

fn write(file: &mut impl Write, alert: &api::Alert) -> std::io::Result<()> {
    let line = Line {
        timestamp: &alert.time,
        event_type: "alert",
        in_iface: &alert.interface,
        src_ip: alert.source.to_string(),
        src_port: alert.source_port,
        dest_ip: alert.destination.to_string(),
        dest_port: alert.destination_port,
        proto: &alert.protocol,
        direction: if alert.to_server { "to_server" } else { "to_client" },
        alert: Signature {
            action: if alert.action == "alert" { "allowed" } else { "blocked" },
            gid: alert.generator,
            signature_id: alert.signature,
            rev: alert.revision,
            signature: &alert.message,
            category: &alert.class,
            severity: alert.priority,
        },
        flow: Flow {
            pkts_toserver: alert.packets[0],
            pkts_toclient: alert.packets[1],
            bytes_toserver: alert.bytes[0],
            bytes_toclient: alert.bytes[1],
        },
    };
    serde_json::to_writer(&mut *file, &line)?;
    file.write_all(b"\n")
}

//! What inspection says of itself.

use std::net::{IpAddr, SocketAddr};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::column::{Column, Row};

/// Which alerts are wanted.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AlertRequest {
    /// Maximum number of alerts.
    #[arg(long, default_value_t = 50, value_name = "COUNT")]
    pub last: u32,
}

/// A rule that matched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Alert {
    /// When, by the clock on the wall.
    pub time: String,
    /// What the rule does: `alert`, `drop` or `reject`.
    pub action: String,
    /// Who gave the rule its number.
    pub generator: u32,
    /// Its number.
    pub signature: u32,
    /// Its revision.
    pub revision: u32,
    /// What it says.
    pub message: String,
    /// Its class.
    pub class: String,
    /// 1 is the most urgent.
    pub priority: u8,
    /// Interface that the packet came in by.
    pub interface: String,
    /// Protocol over IP.
    pub protocol: String,
    /// Who sent the packet, as the inside sees it.
    pub source: IpAddr,
    /// Port that it came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Whom it was for.
    pub destination: IpAddr,
    /// Port that it was for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// The client sent it.
    pub to_server: bool,
    /// Packets of the session until then, the client's first.
    pub packets: [u64; 2],
    /// Bytes of the session until then, the client's first.
    pub bytes: [u64; 2],
}

impl Row for Alert {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("TIME", |row| row.time.clone()),
        Column::text("ACTION", |row| row.action.clone()),
        Column::text("RULE", |row| {
            format!("{}:{}:{}", row.generator, row.signature, row.revision)
        }),
        Column::text("PROTOCOL", |row| row.protocol.clone()),
        Column::text("FROM", |row| end(row.source, row.source_port)),
        Column::text("TO", |row| end(row.destination, row.destination_port)),
        Column::text("MESSAGE", |row| row.message.clone()),
    ];
}

fn end(address: IpAddr, port: Option<u16>) -> String {
    port.map_or_else(
        || address.to_string(),
        |port| SocketAddr::new(address, port).to_string(),
    )
}

/// How inspection goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct InspectionStatus {
    /// Rules in force.
    pub signatures: u64,
    /// Rules that are not, each with the reason.
    pub refused: Vec<RefusedSignature>,
    /// Bytes of what they are searched with.
    pub search_bytes: u64,
    /// How that was made.
    pub search: SearchMade,
    /// Packets that came to inspection: those that were inspected, went on uninspected, were dropped, or still wait.
    pub received: u64,
    /// Packets that went on inspected.
    pub inspected: u64,
    /// Packets that went on uninspected.
    pub bypassed: u64,
    /// Why they did, what has happened alone.
    pub bypassed_by_reason: Vec<InspectionReason>,
    /// Packets that inspection dropped.
    pub dropped: u64,
    /// Why it did, what has happened alone.
    pub dropped_by_reason: Vec<InspectionReason>,
    /// Fragments that wait for the rest of their datagram.
    pub waiting: u64,
    /// Bytes that were searched.
    pub searched: u64,
    /// TCP segments whose urgent pointer was cleared.
    pub urgent_cleared: u64,
    /// Flows that are no longer inspected, found clean or by policy.
    pub bypassed_flows: u64,
    /// Flows that went over to other rules than they began with.
    pub reopened: u64,
    /// Anomalies of messages, what has happened alone: how often.
    pub anomalies: Vec<InspectionReason>,
    /// Limits that were reached, what has happened alone: how often.
    pub limits: Vec<InspectionReason>,
    /// Workers that have more to inspect than they can, now.
    pub overloaded: u64,
    /// How often workers had.
    pub overloads: u64,
    /// Matches that `threshold` or `detection_filter` could not count, for there was no place.
    pub uncounted: u64,
    /// Notes of hosts and values of lists (`xbits`, `dataset`) that were not taken, for there was no place.
    pub unrecorded: u64,
    /// Alerts.
    pub alerts: u64,
    /// Alerts that were lost because a queue was full.
    pub alerts_lost: u64,
    /// Records that were written.
    pub records: u64,
    /// Records that were lost because a queue was full, or could not be written.
    pub records_lost: u64,
    /// Those of them that the file did not take: a full disk, most likely.
    #[serde(default)]
    pub records_failed: u64,
}

/// Rules of inspection that give way to others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct AppliedRules {
    /// How many are in force, and how they came to be searched for.
    pub said: String,
    /// Those that are not in force, and were not refused before.
    pub refused: Vec<RefusedSignature>,
}

/// How rules came to be searched for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SearchMade {
    /// It was in the cache; otherwise it was compiled.
    pub loaded: bool,
    /// Why it was not in the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Milliseconds that it took.
    pub milliseconds: u64,
    /// What is compiled now for other rules: patterns that are done, and all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compiling: Option<[u64; 2]>,
}

/// How many packets a reason had, or how often something happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct InspectionReason {
    /// Its name.
    pub reason: String,
    /// What it means.
    pub help: String,
    /// Packets.
    pub packets: u64,
}

/// A rule that is not in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RefusedSignature {
    /// Its file.
    pub file: String,
    /// Its line.
    pub line: u32,
    /// Its number, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<u32>,
    /// What it needs that there is not.
    pub why: String,
}

//! Alerts and status of inspection.

use std::net::{IpAddr, SocketAddr};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::CounterValues;
use super::column::{Column, Row};

/// Selection of alerts.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AlertRequest {
    /// Maximum number of alerts.
    #[arg(long, default_value_t = 50, value_name = "COUNT")]
    pub last: u32,
}

/// An alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Alert {
    /// Wall-clock time of the alert.
    pub time: String,
    /// Action of the rule: `alert`, `drop` or `reject`.
    pub action: String,
    /// Generator ID of the rule.
    pub generator: u32,
    /// Signature ID of the rule.
    pub signature: u32,
    /// Revision of the rule.
    pub revision: u32,
    /// Message of the rule.
    pub message: String,
    /// Class type of the rule.
    pub class: String,
    /// Priority of the rule. 1 is the most urgent.
    pub priority: u8,
    /// Input interface of the packet.
    pub interface: String,
    /// IP protocol.
    pub protocol: String,
    /// Source address of the packet. For an inside host, the address before translation.
    pub source: IpAddr,
    /// Source port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_port: Option<u16>,
    /// Destination address of the packet. For an inside host, the address before translation.
    pub destination: IpAddr,
    /// Destination port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<u16>,
    /// Whether the client sent the packet.
    pub to_server: bool,
    /// Packets of the session up to this time, from the client and from the server.
    pub packets: [u64; 2],
    /// Bytes of the session up to this time, from the client and from the server.
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

/// Status of inspection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct InspectionStatus {
    /// Number of active rules.
    pub signatures: u64,
    /// Rejected rules, each with the reason.
    pub refused: Vec<RefusedSignature>,
    /// Size of the compiled search database in bytes.
    pub search_bytes: u64,
    /// How the search database was obtained.
    pub search: SearchMade,
    /// Counters of inspection over all workers: packets, anomalies, limits, alerts and records.
    #[serde(flatten)]
    pub counters: CounterValues,
}

/// Inspection rules that a commit has made active.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct AppliedRules {
    /// Text with the number of active rules and the origin of the search database.
    pub said: String,
    /// Rules that are rejected now and were not rejected before.
    pub refused: Vec<RefusedSignature>,
}

/// How the search database was obtained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SearchMade {
    /// Whether the database was loaded from the cache. Otherwise the database was compiled.
    pub loaded: bool,
    /// Why the cache did not contain the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Time for loading or compiling the database, in milliseconds.
    pub milliseconds: u64,
    /// Progress of a running compilation: the number of compiled patterns, and the number of all patterns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compiling: Option<[u64; 2]>,
}

/// Number of packets or events for a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct InspectionReason {
    /// Name of the reason.
    pub reason: String,
    /// Explanation of the reason.
    pub help: String,
    /// Number of packets or events.
    pub packets: u64,
}

/// A rule that is not active.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RefusedSignature {
    /// Path of the rule's file.
    pub file: String,
    /// Line number.
    pub line: u32,
    /// Signature ID, if the ID could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<u32>,
    /// Why the rule is rejected.
    pub why: String,
}

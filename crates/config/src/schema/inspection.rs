//! `[inspection]`: inspection of flows by signatures.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::Eve;
use crate::value::{IpProtocol, PortRanges, Prefix};

/// Names of the exceptions. The data plane uses the same names.
pub const EXCEPTIONS: [&str; 17] = [
    "midstream",
    "handshake",
    "gap-full",
    "beyond-window",
    "beyond-end",
    "out-of-window",
    "no-memory",
    "source-full",
    "bad-checksum",
    "malformed",
    "closed",
    "parser-full",
    "too-long",
    "budget",
    "decode-anomaly",
    "pending-rules-full",
    "unparsable",
];

/// `[inspection]`: flows through these interfaces are reassembled, searched for signatures, and dropped, rejected or
/// reported according to the rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Inspection {
    /// Interfaces whose flows are inspected, in both directions.
    pub interfaces: Vec<String>,
    /// Whether rules may drop and reject.
    pub mode: InspectionMode,
    /// Rule files. The rules of all files are active together.
    pub signatures: Vec<Signatures>,
    /// Path of a `classification.config`, which sets the priorities of rule classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<String>,
    /// Address variables of rules, without `$`, in the notation of rules: `HOME_NET = "[10.0.0.0/8]"`.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub addresses: IndexMap<String, String>,
    /// Port variables of rules: `HTTP_PORTS = "[80,8080]"`.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub ports: IndexMap<String, String>,
    /// Directory in which compiled rules are cached across restarts. The directory is created if it does not exist. A
    /// relative path is relative to the directory of the configuration. If the path is "", the rules are compiled at
    /// each start.
    pub cache: String,
    /// Maximum number of flows that are inspected at the same time.
    pub flows: u32,
    /// Number of bytes that are kept for each direction of a TCP connection. Rules can search the kept bytes again, and
    /// retransmissions are compared with the kept bytes.
    pub window: u32,
    /// Number of bytes of TCP streams that are kept in addition to the windows, over all connections: data beyond a
    /// gap, and forwarded data that is not acknowledged. Each shard gets an equal part, and a single connection may use
    /// half of its shard's part.
    pub reassembly_bytes: u32,
    /// What happens to the urgent pointer in TCP segments.
    pub urgent_pointer: UrgentPointer,
    /// Maximum number of HTTP messages that are parsed at the same time.
    pub messages: u32,
    /// Maximum number of HTTP bodies that are decoded at the same time (gzip, deflate, brotli).
    pub decoders: u16,
    /// Number of bytes after which a flow without matches is no longer inspected. 0 means no limit.
    pub depth: u64,
    /// What happens to connections that are encrypted in both directions.
    pub encrypted: Encrypted,
    /// Maximum number of alerts per worker that wait to be logged. Further alerts are counted as lost.
    pub alerts: u32,
    /// Maximum number of datagrams that each worker reassembles at the same time. Each datagram in reassembly takes 64
    /// KiB of memory. Fragments wait at most for `timeout` in `[fragments]`.
    pub fragments: u32,
    /// Maximum number of bytes of waiting fragments per worker.
    pub fragment_bytes: u32,
    /// What happens to traffic that can't be inspected, for each exception.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub exceptions: IndexMap<String, ExceptionPolicy>,
    /// Classes of flows that are not inspected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bypass: Vec<BypassClass>,
    /// What happens to traffic while a worker is overloaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overload: Option<Overload>,
    /// Target of records in the EVE JSON format: either the path of a file, to which only alerts are written, or a
    /// table with further settings.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "Eve::file_or_table")]
    pub eve: Option<Eve>,
}

impl Default for Inspection {
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            mode: InspectionMode::Prevent,
            signatures: Vec::new(),
            classes: None,
            addresses: IndexMap::new(),
            ports: IndexMap::new(),
            cache: "/var/cache/sluice".into(),
            flows: 65_536,
            window: 4096,
            reassembly_bytes: 128 << 20,
            urgent_pointer: UrgentPointer::Keep,
            messages: 4096,
            decoders: 64,
            depth: 0,
            encrypted: Encrypted::Bypass,
            alerts: 4096,
            fragments: 256,
            fragment_bytes: 1 << 20,
            bypass: Vec::new(),
            overload: None,
            exceptions: IndexMap::new(),
            eve: None,
        }
    }
}

/// Which actions rules may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InspectionMode {
    /// Rules drop, reject and report.
    Prevent,
    /// Rules only report.
    Detect,
}

/// What happens to the urgent pointer in TCP segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UrgentPointer {
    /// Forward the urgent pointer unchanged. The receiving host may then remove the urgent byte from a stream that was
    /// inspected with this byte (RFC 6093).
    Keep,
    /// Clear the urgent pointer and count the segment, so that the urgent byte is ordinary data.
    Clear,
}

/// What happens to a TLS connection once both sides send only encrypted data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encrypted {
    /// End the inspection. The hellos and certificates have been searched by then.
    Bypass,
    /// Continue the inspection.
    Inspect,
}

/// What happens to traffic while a worker is overloaded. Overload handling is applied before inspection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Overload {
    /// Number of queued packets from which a worker counts as overloaded.
    #[serde(default = "begins")]
    pub threshold: u32,
    /// Number of queued packets at which the overload ends.
    #[serde(default = "ends")]
    pub ends: u32,
    /// Traffic classes. The first class that matches applies. Packets without a class are inspected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<OverloadClass>,
}

fn begins() -> u32 {
    512
}

fn ends() -> u32 {
    128
}

/// A traffic class. Omitted conditions match everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OverloadClass {
    /// Name of the class.
    pub name: String,
    /// IP protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<IpProtocol>,
    /// Ports. The source or the destination port must be one of these ports.
    #[serde(default, skip_serializing_if = "PortRanges::is_empty")]
    pub ports: PortRanges,
    /// Networks. The source or the destination must be in one of the networks. For inside hosts, the address before
    /// translation counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Prefix>,
    /// Action under overload.
    pub action: OverloadAction,
    /// Only with `inspect-less`: number of bytes after which a flow without matches is no longer inspected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u64>,
}

/// `[[inspection.bypass]]`: a class of flows that are not inspected. Omitted conditions match everything; at least one
/// condition is required.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BypassClass {
    /// IP protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<IpProtocol>,
    /// Ports. The source or the destination port must be one of these ports.
    #[serde(default, skip_serializing_if = "PortRanges::is_empty")]
    pub ports: PortRanges,
    /// Networks. The source or the destination must be in one of the networks. For inside hosts, the address before
    /// translation counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Prefix>,
}

/// Action for a traffic class under overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverloadAction {
    /// Inspect as usual.
    Inspect,
    /// Inspect up to a smaller depth.
    InspectLess,
    /// Forward without inspection. A TCP connection remains uninspected afterwards.
    Bypass,
    /// Drop the packet.
    Drop,
}

/// A rule file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Signatures {
    /// Path of the file, relative to the directory of the configuration.
    pub file: String,
    /// Language of the rules.
    pub dialect: SignatureDialect,
    /// Whether the other rules of the file stay active if a pass rule in it is rejected.
    #[serde(default, skip_serializing_if = "is_false")]
    pub partial: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Language of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SignatureDialect {
    /// Suricata 7.
    Suricata,
    /// Snort 2.9.
    Snort2,
    /// Snort 3.
    Snort3,
}

/// What happens to a packet that can't be inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExceptionPolicy {
    /// Drop the packet and all further packets of its flow.
    DropFlow,
    /// Drop the packet.
    DropPacket,
    /// Forward the packet without inspection.
    Pass,
    /// Forward the flow without inspection, from this packet on.
    Bypass,
}

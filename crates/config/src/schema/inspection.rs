//! `[inspection]`: what flows carry, compared with signatures.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::Eve;
use crate::value::{IpProtocol, PortRanges, Prefix};

/// What can't be inspected, by name; the data plane has the same list.
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
    "work",
    "decode-anomaly",
    "pending-rules-full",
    "unparsable",
];

/// `[inspection]`: flows that come or go by some interfaces are put in order, searched for what signatures describe, and
/// dropped, rejected or reported as their rules say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Inspection {
    /// Interfaces whose flows are inspected, whether they come or go by them.
    pub interfaces: Vec<String>,
    /// What rules may do.
    pub mode: InspectionMode,
    /// Files of rules, all of which are in force together.
    pub signatures: Vec<Signatures>,
    /// A `classification.config`: what the priorities of rules' classes are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<String>,
    /// Variables of rules that stand for addresses, without `$`, in the words of rules: `HOME_NET = "[10.0.0.0/8]"`.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub addresses: IndexMap<String, String>,
    /// Variables of rules that stand for ports: `HTTP_PORTS = "[80,8080]"`.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub ports: IndexMap<String, String>,
    /// Folder in which compiled rules are kept from one start to the next, made where there is none; where it is relative,
    /// in the folder of the configuration. "": they are compiled at each start.
    pub cache: String,
    /// Flows that are inspected at a time.
    pub flows: u32,
    /// Bytes of each direction of a TCP connection that are kept for rules to look back at, and to be compared with what
    /// is sent again.
    pub window: u32,
    /// Bytes of TCP streams that are kept beside the windows, all connections together: what came ahead of a gap, and what
    /// was forwarded and is not acknowledged. Shards have them in equal parts, and one connection half of its shard's.
    pub reassembly_bytes: u32,
    /// What is done about the urgent pointer of a TCP segment.
    pub urgent_pointer: UrgentPointer,
    /// HTTP messages that are parsed at a time.
    pub messages: u32,
    /// Bodies of HTTP messages that are decoded at a time (gzip, deflate, brotli).
    pub decoders: u16,
    /// Bytes after which a flow that was found clean is no longer inspected; 0: it always is.
    pub depth: u64,
    /// What is done about connections that are encrypted both ways.
    pub encrypted: Encrypted,
    /// Alerts that wait for the log in each worker at most; more are lost, and counted.
    pub alerts: u32,
    /// Datagrams in fragments that each worker puts together at a time, in 64 KiB each. Their fragments wait meanwhile, as
    /// long as `timeout` in `[fragments]` says.
    pub fragments: u32,
    /// Bytes of fragments that wait to be put together in each worker.
    pub fragment_bytes: u32,
    /// What is done about what can't be inspected.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub exceptions: IndexMap<String, ExceptionPolicy>,
    /// Classes of flows that are not inspected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bypass: Vec<BypassClass>,
    /// What is done while a worker has more to do than it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overload: Option<Overload>,
    /// Where records are written to as lines of EVE JSON: a file, which gets alerts, or a table that says more.
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

/// What rules may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InspectionMode {
    /// What they say: drop, reject, report.
    Prevent,
    /// Report, whatever they say.
    Detect,
}

/// What is done about the urgent pointer of a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UrgentPointer {
    /// It passes as it came. A host may take the urgent byte out of the stream that was inspected (RFC 6093).
    Keep,
    /// It is cleared, and counted: the urgent byte is data like other.
    Clear,
}

/// What is done about a connection of TLS once both sides send encrypted data alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Encrypted {
    /// It leaves inspection. Its hellos and certificates have been searched.
    Bypass,
    /// It is searched like any other.
    Inspect,
}

/// What is done while a worker has more to do than it can, before work is spent on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Overload {
    /// Packets that wait for a worker from which on it is overloaded.
    #[serde(default = "begins")]
    pub threshold: u32,
    /// Packets that wait for it when it is no longer.
    #[serde(default = "ends")]
    pub ends: u32,
    /// Classes of traffic, in order: the first that a packet is of decides. What is of none is inspected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<OverloadClass>,
}

fn begins() -> u32 {
    512
}

fn ends() -> u32 {
    128
}

/// A class of traffic. What is not named makes no difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OverloadClass {
    /// Its name.
    pub name: String,
    /// Protocol over IP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<IpProtocol>,
    /// Ports that either end has.
    #[serde(default, skip_serializing_if = "PortRanges::is_empty")]
    pub ports: PortRanges,
    /// Networks that either end is in, as the inside sees it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Prefix>,
    /// What is done about it.
    pub action: OverloadAction,
    /// With `inspect-less`: bytes after which a flow that was found clean is no longer inspected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u64>,
}

/// `[[inspection.bypass]]`: a class of flows that is not inspected. What is not named makes no difference; something is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BypassClass {
    /// Protocol over IP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<IpProtocol>,
    /// Ports that either end has.
    #[serde(default, skip_serializing_if = "PortRanges::is_empty")]
    pub ports: PortRanges,
    /// Networks that either end is in, as the inside sees it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Prefix>,
}

/// What is done about a class of traffic under overload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverloadAction {
    /// It is inspected, as ever.
    Inspect,
    /// It is inspected to a smaller depth.
    InspectLess,
    /// It goes on uninspected; a TCP connection for good.
    Bypass,
    /// It is dropped.
    Drop,
}

/// A file of rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Signatures {
    /// Its path; where it is relative, from the folder of the configuration.
    pub file: String,
    /// The language of its rules.
    pub dialect: SignatureDialect,
    /// Its other rules are in force even where one that lets pass is refused.
    #[serde(default, skip_serializing_if = "is_false")]
    pub partial: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// The language of rules.
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

/// What is done about a packet that can't be inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExceptionPolicy {
    /// Its flow is dropped from here on.
    DropFlow,
    /// It is dropped.
    DropPacket,
    /// It goes on uninspected.
    Pass,
    /// Its flow goes on uninspected.
    Bypass,
}

//! `[applications]`: identification of the applications of sessions.

use serde::{Deserialize, Serialize};

/// `[applications]`: nDPI examines the first packets of sessions through these interfaces, until it has identified the
/// application of the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Applications {
    /// Interfaces whose sessions are examined, in both directions.
    pub interfaces: Vec<String>,
    /// Maximum number of sessions that each worker examines at a time.
    pub flows: u32,
    /// Memory of nDPI in bytes, for each worker. During identification, a TLS session needs 2 to 64 KiB, and most other
    /// sessions need some hundred bytes.
    pub memory: u32,
    /// Maximum number of packets examined per TCP connection.
    pub tcp_packets: u8,
    /// Maximum number of packets examined per session of a protocol other than TCP.
    pub other_packets: u8,
}

impl Default for Applications {
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            flows: 4096,
            memory: 16 << 20,
            tcp_packets: 80,
            other_packets: 24,
        }
    }
}

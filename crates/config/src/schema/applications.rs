//! `[applications]`: which application a session is of.

use serde::{Deserialize, Serialize};

/// `[applications]`: the first packets of sessions that come or go by some interfaces are looked at, until it is known which
/// application they are of, by nDPI's names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Applications {
    /// Interfaces whose sessions are looked at, whether they come or go by them.
    pub interfaces: Vec<String>,
    /// Sessions that each worker looks at, at a time.
    pub flows: u32,
    /// Bytes that nDPI has in each worker for what it keeps of them: a TLS session takes 2 to 64 KiB as long as it is looked
    /// at, most others some hundred.
    pub memory: u32,
    /// Packets of a TCP connection that are looked at.
    pub tcp_packets: u8,
    /// Packets of any other session that are.
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

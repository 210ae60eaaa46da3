//! `[inspection.eve]`: records of inspection in the EVE JSON format.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::value::Period;

/// `[inspection.eve]`: records in the EVE JSON format, written to a file or a socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Eve {
    /// Path of a file to which lines are appended. The file is created with mode 0640. SIGHUP reopens the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Path of a Unix stream socket. A closed connection to the socket is established again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// Path of a Unix datagram socket. Each line is sent as a datagram.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datagram: Option<String>,
    /// Types of records that are written.
    pub types: Vec<EveType>,
    /// Interval between `stats` records.
    pub stats_interval: Period,
    /// Maximum number of queued records per worker (alerts excluded), and maximum number of lines that wait to be
    /// written. Further lines are counted as lost.
    pub records: u32,
    /// Maximum size of the file in bytes. Before the file exceeds this size, the file is renamed to `FILE.1`, an
    /// existing `FILE.1` is renamed to `FILE.2`, and so on. If omitted, the file grows until another program moves the
    /// file and sends SIGHUP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotate_bytes: Option<u64>,
    /// Number of old files that are kept.
    pub rotate_kept: u32,
}

impl Default for Eve {
    fn default() -> Self {
        Self {
            file: None,
            stream: None,
            datagram: None,
            types: vec![EveType::Alert],
            stats_interval: Period::seconds(10),
            records: 4096,
            rotate_bytes: None,
            rotate_kept: 7,
        }
    }
}

impl Eve {
    /// Whether records of this type are written.
    pub fn writes(&self, wanted: EveType) -> bool {
        self.types.contains(&wanted)
    }

    /// Deserialise a table, or the name of a file.
    pub(super) fn file_or_table<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        struct Read;

        impl<'de> Visitor<'de> for Read {
            type Value = Eve;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a file, or a table with `file`, `stream` or `datagram`")
            }

            fn visit_str<E: Error>(self, file: &str) -> Result<Eve, E> {
                Ok(Eve {
                    file: Some(file.into()),
                    ..Eve::default()
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Eve, A::Error> {
                Eve::deserialize(MapAccessDeserializer::new(map))
            }
        }

        deserializer.deserialize_any(Read).map(Some)
    }
}

/// Type of records: a value of `types`, and the `event_type` in the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EveType {
    /// A rule matched.
    Alert,
    /// Inspection dropped a packet.
    Drop,
    /// A flow has ended, or is no longer inspected.
    Flow,
    /// Periodic inspection statistics.
    Stats,
    /// An HTTP request with its response.
    Http,
    /// A DNS message.
    Dns,
    /// A TLS hello.
    Tls,
}

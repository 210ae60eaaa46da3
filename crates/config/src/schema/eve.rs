//! `[inspection.eve]`: what inspection tells, as lines of EVE JSON.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::value::Period;

/// `[inspection.eve]`: records as lines of EVE JSON, to a file or a socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Eve {
    /// A file that lines are appended to, made with mode 0640. SIGHUP opens it anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// A Unix socket that lines are streamed to, connected to again where it is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// A Unix socket that each line is a datagram to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datagram: Option<String>,
    /// Which records are written.
    pub types: Vec<EveType>,
    /// How often `stats` are.
    pub stats_interval: Period,
    /// Records other than alerts that wait in each worker at most, and lines that wait to be written; more are lost, and
    /// counted.
    pub records: u32,
    /// Most bytes of the file: before it had more, it is renamed to `FILE.1`, an older one from `FILE.1` to `FILE.2` and so
    /// on. Where it is left out, the file grows until somebody else moves it away and sends SIGHUP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotate_bytes: Option<u64>,
    /// Old files that are kept.
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
    /// Whether a type is written.
    pub fn writes(&self, wanted: EveType) -> bool {
        self.types.contains(&wanted)
    }

    /// Of a table, or of the name of a file alone.
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

/// A type of records: a word of `types`, and the `event_type` of their lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EveType {
    /// A rule matched.
    Alert,
    /// Inspection dropped a packet.
    Drop,
    /// A flow ended, or is no longer inspected.
    Flow,
    /// How inspection goes, now and then.
    Stats,
    /// A request with its response.
    Http,
    /// A DNS message.
    Dns,
    /// A TLS hello.
    Tls,
}

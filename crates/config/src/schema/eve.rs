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

/// Field of a record, in addition to those of every record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EveField {
    /// Path of the field, with dots.
    pub path: &'static str,
    /// Values, or when the field is present.
    pub note: &'static str,
}

/// Declares the types of records. A row is the variant, its name, the event that it records, and its fields. A field may have a
/// note.
macro_rules! eve_types {
    (
        $(#[$meta:meta])* $types:ident {
            $($variant:ident $name:literal $help:literal [$($path:literal $(($note:literal))?),*];)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $types { $(#[doc = $help] #[serde(rename = $name)] $variant,)+ }

        impl $types {
            /// All types.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The value of `types` and of `event_type`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The event that is recorded.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)+ }
            }

            /// Fields of the record, in addition to those of every record.
            pub const fn fields(self) -> &'static [EveField] {
                match self {
                    $(Self::$variant => &[$(EveField { path: $path, note: concat!($($note)?) }),*],)+
                }
            }
        }
    };
}

eve_types! {
    /// Type of records: a value of `types`, and the `event_type` in the lines.
    EveType {
        Alert "alert" "a rule matched" [
            "direction" ("`to_server` or `to_client`"),
            "alert.action" ("`allowed`, `blocked`"),
            "alert.gid", "alert.signature_id", "alert.rev", "alert.signature", "alert.category", "alert.severity",
            "flow.pkts_toserver", "flow.pkts_toclient", "flow.bytes_toserver", "flow.bytes_toclient" ("up to that time")
        ];
        Drop "drop" "inspection dropped a packet" [
            "direction" ("`to_server` or `to_client`"),
            "drop.reason" ("a name of `show drops`"),
            "drop.len" ("if it is still known"),
            "alert.action" ("this and the next fields if a rule dropped the packet, or ended the flow before"),
            "alert.gid", "alert.signature_id", "alert.rev", "alert.signature", "alert.category", "alert.severity"
        ];
        Flow "flow" "the session of an inspected flow ended, or the flow is no longer inspected" [
            "flow.pkts_toserver", "flow.pkts_toclient", "flow.bytes_toserver", "flow.bytes_toclient", "flow.start",
            "flow.end", "flow.age",
            "flow.state" ("`new`, `established`, `closed`, `bypassed`"),
            "flow.reason" ("`timeout`, `forced`, `bypass`"),
            "flow.alerted",
            "ndpi.proto" ("if `[applications]` identified it")
        ];
        Stats "stats" "every `stats-interval`" [
            "stats.uptime", "stats.decoder", "stats.detect", "stats.ips.blocked", "stats.ips.drop_reason",
            "stats.inspection"
        ];
        Http "http" "a response was complete, or the flow ended before; also if 64 requests of an HTTP/2 connection in clear text wait for responses" [
            "tx_id", "http.hostname", "http.url", "http.http_user_agent", "http.http_content_type", "http.http_refer",
            "http.http_method", "http.protocol", "http.status", "http.length",
            "http.http2.stream_id" ("for HTTP/2"),
            "http.truncated" ("names of truncated fields")
        ];
        Dns "dns" "a message passed" [
            "dns.type" ("`query`, `answer`"),
            "dns.tx_id", "dns.id", "dns.rrname", "dns.rrtype", "dns.opcode",
            "dns.rcode" ("of an answer"), "dns.flags" ("of an answer"),
            "dns.answers" ("with `rrname`, `rrtype`, `ttl`, `rdata`"),
            "dns.truncated" ("if the message is truncated")
        ];
        Tls "tls" "the server's hello showed the version, or the flow ended before" [
            "tls.sni", "tls.version", "tls.ja3.hash",
            "tls.truncated" ("names of truncated fields")
        ];
    }
}

impl EveType {
    /// Row of the table of types in documents.
    pub fn document_row(self) -> String {
        let field = |field: &EveField| match field.note {
            "" => format!("`{}`", field.path),
            note => format!("`{}` ({note})", field.path),
        };
        let fields: Vec<_> = self.fields().iter().map(field).collect();
        format!("| `{}` | {} | {} |", self.name(), self.help(), fields.join(", "))
    }
}

//! `/v1/filter`: the packet filter, counters of its rules, the rule that determines the verdict on a packet, and
//! insertion and removal of single rules.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::column::{Column, Row, grouped, word};
use crate::diagnosis::Finding;
use crate::schema::{Action, Matcher, Verdict};
use crate::value::IpProtocol;

/// Status of the packet filter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PacketFilter {
    /// Verdict on packets for which no rule has a verdict.
    pub default: Verdict,
    /// Counters of packets for which no rule had a verdict.
    pub by_default: Hits,
    /// Whether only the first packet of a flow is filtered.
    pub sessions: bool,
    /// Algorithm of the matcher.
    pub matcher: Matcher,
    /// Memory of the matchers in bytes.
    pub bytes: u64,
    /// Total number of rules.
    pub rules_in_all: u64,
    /// Number of rule combinations that are stored with their verdict, for IPv4 and for IPv6.
    pub combinations: [u64; 2],
    /// Log entries lost because the queue was full.
    pub log_lost: u64,
    /// First rules in the order of evaluation.
    pub rules: Vec<FilterRule>,
    /// Verdict on the packet in the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}

/// Counters of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Hits {
    /// Packets.
    pub packets: u64,
    /// Bytes, from the IP header on.
    pub bytes: u64,
    /// Seconds since the last packet. Absent if the rule has matched no packet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<f64>,
}

/// A rule with its counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FilterRule {
    /// Number of the rule, counted from 1.
    pub number: u64,
    /// Name of the rule. For a rule without a name, its number.
    pub name: String,
    /// Action of the rule.
    pub action: Action,
    /// Conditions, each with its key. Empty if the rule matches everything.
    pub matches: Vec<(String, String)>,
    /// Whether the rule was inserted at run time. Inserted rules are not in the configuration file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inserted: bool,
    /// Counters of the rule.
    #[serde(flatten)]
    pub hits: Hits,
}

impl Hits {
    /// Time since the last packet, as text.
    pub fn ago(&self) -> String {
        match self.last {
            None => "-".into(),
            Some(seconds) if seconds < 1.0 => "now".into(),
            Some(seconds) => {
                let whole = Duration::from_secs(seconds as u64);
                format!("{} ago", humantime::format_duration(whole))
            }
        }
    }
}

impl FilterRule {
    /// Conditions of the rule, as text.
    pub fn conditions(&self) -> String {
        let keys: Vec<_> = self
            .matches
            .iter()
            .map(|(key, value)| format!("{key} {value}"))
            .collect();
        let keys = if keys.is_empty() {
            "everything".into()
        } else {
            keys.join(", ")
        };
        match self.inserted {
            true => format!("{keys} (inserted)"),
            false => keys,
        }
    }
}

impl Row for FilterRule {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::number("RULE", |row| row.number.to_string()),
        Column::text("NAME", |row| row.name.clone()),
        Column::text("ACTION", |row| word(&row.action)),
        Column::number("PACKETS", |row| grouped(row.hits.packets)),
        Column::number("BYTES", |row| grouped(row.hits.bytes)),
        Column::number("LAST", |row| row.hits.ago()),
        Column::text("MATCHES", Self::conditions),
    ];
}

/// Request to insert rules into the running filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct InsertRequest {
    /// Name of the text in messages.
    pub name: String,
    /// Rules as `[[filter.rules]]` tables, each with a name.
    pub text: String,
    /// Router of the filter to change. If absent, `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
    /// Position in the filter at which the rules are inserted. The inserted rules keep their order.
    #[serde(default)]
    pub place: InsertPlace,
}

/// Position at which rules are inserted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InsertPlace {
    /// Before all other rules.
    #[default]
    First,
    /// After all other rules.
    Last,
    /// Before the rule with this name.
    Before(String),
}

/// Rules to remove from the running filter.
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RemoveRequest {
    /// Names of the rules, as `sluice show filter` lists them.
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
}

/// Result of inserting or removing rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum EditAnswer {
    /// The change is active: immediately for new flows, within a second for existing sessions.
    #[serde(rename_all = "kebab-case")]
    Done {
        /// Number of rules inserted or removed.
        count: u64,
        /// Total number of rules after the change.
        rules_in_all: u64,
        /// Whether the whole matcher was rebuilt.
        built_anew: bool,
    },
    /// The rules are invalid, and the filter is unchanged.
    Refused {
        /// Problems of the rules.
        findings: Vec<Finding>,
    },
}

/// Verdict on a packet, with the matching rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Decision {
    /// Verdict on the packet.
    pub verdict: Verdict,
    /// Rule that determines the verdict. Absent if the default verdict applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<FilterRule>,
    /// Earlier matching rules without a verdict, after which the evaluation continues with the next rule.
    pub before: Vec<FilterRule>,
    /// Input and output interface of the packet. The output interface is `gateway` for packets to the gateway itself.
    pub interfaces: [Option<String>; 2],
}

/// A queried packet, such as `tcp 10.0.0.1:1234 > 192.0.2.1:80` or `icmp 10.0.0.1 > 192.0.2.1`. The destination is the
/// address after translation. A TCP packet is a SYN; an ICMP packet is an echo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Protocol.
    pub protocol: u8,
    /// Source address, and port if the protocol has ports.
    pub source: (IpAddr, Option<u16>),
    /// Destination address, and port if the protocol has ports.
    pub destination: (IpAddr, Option<u16>),
}

fn end(text: &str) -> Option<(IpAddr, Option<u16>)> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some((address, None));
    }
    let end: SocketAddr = text.parse().ok()?;
    Some((end.ip(), Some(end.port())))
}

impl FromStr for Packet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write a packet as `tcp 10.0.0.1:1234 > 192.0.2.1:80` or `icmp 10.0.0.1 > 192.0.2.1`";
        let words: Vec<_> = text.split_whitespace().collect();
        let [protocol, source, ">", destination] = words[..] else {
            return Err(format!("`{text}` is not a packet: {form}"));
        };
        let protocol: IpProtocol = protocol.parse().map_err(|error| format!("{error}: {form}"))?;
        let end = |text| end(text).ok_or_else(|| format!("`{text}` is not an address with or without a port: {form}"));
        let (source, destination) = (end(source)?, end(destination)?);
        if source.0.is_ipv4() != destination.0.is_ipv4() {
            return Err("source and destination belong to different address families".into());
        }
        let has_ports = matches!(protocol.0, 6 | 17);
        if [source, destination]
            .iter()
            .any(|(_, port)| port.is_some() != has_ports)
        {
            let which = if has_ports { "has ports" } else { "has no ports" };
            return Err(format!("{protocol} {which}: {form}"));
        }
        Ok(Self {
            protocol: protocol.0,
            source,
            destination,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_is_read_with_its_ports_or_without() {
        let packet: Packet = "tcp 10.0.0.1:1234 > 192.0.2.1:80".parse().unwrap();
        assert_eq!(
            (6, Some(1234), Some(80)),
            (packet.protocol, packet.source.1, packet.destination.1)
        );
        assert!("udp [2001:db8::1]:53 > [2001:db8::2]:53".parse::<Packet>().is_ok());
        assert!("icmp 10.0.0.1 > 10.0.0.2".parse::<Packet>().is_ok());
        for wrong in [
            "",
            "tcp 10.0.0.1 > 10.0.0.2",
            "icmp 10.0.0.1:1 > 10.0.0.2:2",
            "tcp 10.0.0.1:1 192.0.2.1:2",
            "gre 10.0.0.1 > ::1",
        ] {
            assert!(wrong.parse::<Packet>().unwrap_err().len() > 20, "{wrong}");
        }
    }
}

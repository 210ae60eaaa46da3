//! `/v1/filter`: the packet filter, what its rules have counted, and which rule decides about a packet; rules that come and go
//! one by one.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::column::{Column, Row, grouped, word};
use crate::diagnosis::Complaint;
use crate::schema::{Action, Matcher, Verdict};
use crate::value::IpProtocol;

/// The packet filter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PacketFilter {
    /// What happens to packets that no rule decides about.
    pub default: Verdict,
    /// Packets that no rule decided about.
    pub by_default: Hits,
    /// The first packet of a flow is asked about, and not those that follow.
    pub sessions: bool,
    /// How rules are found.
    pub matcher: Matcher,
    /// Memory of the matchers in bytes.
    pub bytes: u64,
    /// Rules in all.
    pub rules_in_all: u64,
    /// Combinations of what rules name that decide, in IPv4 and IPv6.
    pub combinations: [u64; 2],
    /// Packets that were to be logged, but too many waited.
    pub log_lost: u64,
    /// The first of the rules, in order.
    pub rules: Vec<FilterRule>,
    /// What decides about the packet that was asked about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}

/// What a rule has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Hits {
    /// Packets.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
    /// Seconds since the last one; none where none has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<f64>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FilterRule {
    /// Its number, counted from 1.
    pub number: u64,
    /// Its name, or its number.
    pub name: String,
    /// What it does.
    pub action: Action,
    /// What it matches, by key; nothing where it matches everything.
    pub matches: Vec<(String, String)>,
    /// It was inserted while the daemon ran, and is in no file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inserted: bool,
    /// What it has counted.
    #[serde(flatten)]
    pub hits: Hits,
}

impl Hits {
    /// When the last one came, for a person.
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
    /// What it matches, for a person.
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

/// Rules that are to be inserted into the filter that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct InsertRequest {
    /// What messages call the text.
    pub name: String,
    /// `[[filter.rules]]`, each with a name.
    pub text: String,
    /// The router whose filter takes them; `default` where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
    /// Where they come, in their order.
    #[serde(default)]
    pub place: InsertPlace,
}

/// Where rules are inserted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InsertPlace {
    /// Before all others.
    #[default]
    First,
    /// Behind all others.
    Last,
    /// Before the rule of this name.
    Before(String),
}

/// Rules that are to be removed from the filter that runs.
#[derive(Args, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RemoveRequest {
    /// Their names, as `sluice show filter` lists them.
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
}

/// What has become of rules that were to be inserted or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum EditAnswer {
    /// They are in force, or no more in force: for new flows at once, for sessions within a second.
    #[serde(rename_all = "kebab-case")]
    Done {
        /// How many rules.
        count: u64,
        /// Rules in all now.
        rules_in_all: u64,
        /// The whole matcher had to be built anew for them.
        built_anew: bool,
    },
    /// They are wrong, and nothing has changed.
    Refused {
        /// What is wrong.
        complaints: Vec<Complaint>,
    },
}

/// What decides about a packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Decision {
    /// What happens to it.
    pub verdict: Verdict,
    /// The rule that decides; none where the default does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<FilterRule>,
    /// Rules that match before it, and go on.
    pub before: Vec<FilterRule>,
    /// The interfaces that it would come in and leave by; `gateway` where it is for the gateway itself.
    pub interfaces: [Option<String>; 2],
}

/// A packet that is asked about: `tcp 10.0.0.1:1234 > 192.0.2.1:80`, `icmp 10.0.0.1 > 192.0.2.1`. Its destination is the one
/// after translation. Over TCP it is a SYN, over ICMP an echo request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Protocol.
    pub protocol: u8,
    /// Source, and its port where there is one.
    pub source: (IpAddr, Option<u16>),
    /// Destination, and its port where there is one.
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
        let form = "write it as `tcp 10.0.0.1:1234 > 192.0.2.1:80` or `icmp 10.0.0.1 > 192.0.2.1`";
        let words: Vec<_> = text.split_whitespace().collect();
        let [protocol, source, ">", destination] = words[..] else {
            return Err(format!("`{text}` is not a packet: {form}"));
        };
        let protocol: IpProtocol = protocol.parse().map_err(|error| format!("{error}: {form}"))?;
        let end = |text| end(text).ok_or_else(|| format!("`{text}` is not an address with or without a port: {form}"));
        let (source, destination) = (end(source)?, end(destination)?);
        if source.0.is_ipv4() != destination.0.is_ipv4() {
            return Err("source and destination are of different families".into());
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

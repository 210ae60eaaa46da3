//! Types of translation: which outside ports belong to whom.

use std::fmt;
use std::net::IpAddr;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::Subscriber;
use super::column::{Column, Row, grouped, or_dash};
use crate::value::Protocol;

/// A number of ports of each protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ByProtocol {
    /// TCP ports.
    pub tcp: u64,
    /// UDP ports.
    pub udp: u64,
    /// Identifiers of ICMP queries.
    pub icmp: u64,
}

impl ByProtocol {
    /// All together.
    pub fn sum(&self) -> u64 {
        self.tcp + self.udp + self.icmp
    }

    /// The most of any.
    pub fn largest(&self) -> u64 {
        self.tcp.max(self.udp).max(self.icmp)
    }
}

impl<N: Into<u64>> From<[N; 3]> for ByProtocol {
    fn from(numbers: [N; 3]) -> Self {
        let [tcp, udp, icmp] = numbers.map(Into::into);
        Self { tcp, udp, icmp }
    }
}

/// A pool and its use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub addresses: u64,
    /// Ports of all addresses, of each protocol.
    pub ports: u64,
    /// Ports in use.
    pub used: ByProtocol,
    /// Subscribers that have sessions.
    pub subscribers: u64,
    /// Sessions of these subscribers.
    pub sessions: u64,
    /// Its blocks, where it has such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<PoolBlocks>,
}

impl Row for Pool {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("POOL", |row| row.name.clone()),
        Column::number("ADDRESSES", |row| grouped(row.addresses)),
        Column::number("PORTS", |row| grouped(row.ports)),
        Column::number("TCP", |row| grouped(row.used.tcp)),
        Column::number("UDP", |row| grouped(row.used.udp)),
        Column::number("ICMP", |row| grouped(row.used.icmp)),
        Column::number("BLOCKS", |row| {
            or_dash(
                row.blocks
                    .as_ref()
                    .map(|blocks| format!("{} of {}", grouped(blocks.used), grouped(blocks.count))),
            )
        }),
        Column::number("FRAGMENTED", |row| {
            or_dash(
                row.blocks
                    .as_ref()
                    .map(|blocks| format!("{:.0} %", blocks.fragmentation * 100.0)),
            )
        }),
        Column::number("SUBSCRIBERS", |row| grouped(row.subscribers)),
        Column::number("SESSIONS", |row| grouped(row.sessions)),
    ];
}

/// The blocks of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PoolBlocks {
    /// Ports of a block.
    pub size: u16,
    /// Blocks of all addresses.
    pub count: u64,
    /// Blocks that subscribers have.
    pub used: u64,
    /// Share of the ports of these blocks that is not in use, of the protocol that uses most: 0 to 1. So much of what
    /// is taken nobody uses.
    pub fragmentation: f64,
}

/// Translation as a whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Nat {
    /// The pools.
    pub pools: Vec<Pool>,
    /// Those of the subscribers that use most outside ports, most first.
    pub subscribers: Vec<Subscriber>,
    /// The tables.
    pub tables: Vec<TableUse>,
    /// Ports and blocks that were given out again at once because too many waited (`quarantined-ports`).
    pub quarantine_overflows: u64,
    /// Blocks of 64 ports that shards have whose own are used up, and that cards bring to other shards.
    #[serde(default)]
    pub borrowed_blocks: u64,
    /// Hosts that destination rules deal flows among.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<RuleHost>,
    /// The rules in the order of the configuration, destination rules first, as they are asked: the first of them.
    pub rules: Vec<Rule>,
    /// How many rules there are.
    pub rules_in_all: u64,
}

/// A rule of translation, and how often it decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Rule {
    /// Which end of a flow it is about.
    pub kind: RuleKind,
    /// The addresses that it matches.
    pub network: String,
    /// The protocol; any where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// The ports, as `80` or `80-90`; all where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<String>,
    /// The interface that flows come in by; any where not given.
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub incoming: Option<String>,
    /// It is about what the gateway's own host sends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub local: bool,
    /// The interface that flows leave by; any where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
    /// What it does.
    pub action: RuleAction,
    /// The pool, network, or host and port that it leads to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Flows that it decided about. What is exempt has no sessions: each of its packets counts.
    pub flows: u64,
}

fn or_any<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "any".into(), |value| value.to_string())
}

impl Rule {
    /// What it does, and with what.
    fn deed(&self) -> String {
        let action = match self.action {
            RuleAction::Pool => "pool",
            RuleAction::Static => "static",
            RuleAction::Host => "to",
            RuleAction::Hosts => "to hosts",
            RuleAction::Exempt => "exempt",
        };
        [action]
            .into_iter()
            .chain(self.to.as_deref())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

impl Row for Rule {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("RULE", |row| {
            match row.kind {
                RuleKind::Destination => "destination",
                RuleKind::Source => "source",
            }
            .into()
        }),
        Column::text("NETWORK", |row| row.network.clone()),
        Column::text("PROTOCOL", |row| or_any(row.protocol)),
        Column::text("PORTS", |row| or_any(row.ports.as_ref())),
        Column::text("IN", |row| {
            if row.local {
                "local".into()
            } else {
                or_any(row.incoming.as_ref())
            }
        }),
        Column::text("OUT", |row| or_any(row.out.as_ref())),
        Column::text("ACTION", Self::deed),
        Column::number("FLOWS", |row| grouped(row.flows)),
    ];
}

/// A host of several that a destination rule deals flows among.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RuleHost {
    /// The number of the hosts that it is one of, as its rule names it.
    pub hosts: u64,
    /// Its address.
    pub address: std::net::Ipv4Addr,
    /// Its part of the flows, relative to the others'.
    pub weight: u16,
    /// Whether new flows go there.
    pub state: HostState,
    /// Flows that went there.
    pub flows: u64,
}

impl Row for RuleHost {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("HOSTS", |row| row.hosts.to_string()),
        Column::text("ADDRESS", |row| row.address.to_string()),
        Column::number("WEIGHT", |row| row.weight.to_string()),
        Column::text("STATE", |row| row.state.to_string()),
        Column::number("FLOWS", |row| grouped(row.flows)),
    ];
}

/// How a host stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// It answers.
    Up,
    /// It does not answer: it gets no new flows.
    Down,
    /// Nobody checks it: it counts as up.
    Unchecked,
}

impl std::fmt::Display for HostState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Unchecked => "unchecked",
        })
    }
}

/// Which end of a flow a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleKind {
    /// Where it is addressed to: asked first.
    Destination,
    /// Where it comes from.
    Source,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleAction {
    /// The source gets an address and port of a pool.
    Pool,
    /// Addresses are translated one to one.
    Static,
    /// The destination becomes a host.
    Host,
    /// The destination becomes one of the hosts of this number.
    Hosts,
    /// Nothing.
    Exempt,
}

/// How full a table is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TableUse {
    /// What it holds.
    pub name: String,
    /// Entries in use.
    pub used: u64,
    /// Most.
    pub capacity: u64,
}

impl Row for TableUse {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("TABLE", |row| row.name.clone()),
        Column::number("USED", |row| grouped(row.used)),
        Column::number("CAPACITY", |row| grouped(row.capacity)),
        Column::number("FULL", |row| {
            format!("{:.0} %", row.used as f64 / row.capacity.max(1) as f64 * 100.0)
        }),
    ];
}

/// What of translation to show.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct NatRequest {
    /// Number of subscribers to list, those with the most outside ports first.
    #[arg(long, default_value_t = 10, value_name = "NUMBER")]
    pub top: u32,
    /// Maximum number of rules to list.
    #[arg(long, default_value_t = 100, value_name = "NUMBER")]
    pub rules: u32,
}

impl Default for NatRequest {
    fn default() -> Self {
        Self { top: 10, rules: 100 }
    }
}

/// Ports of an outside address from a first to a last one, evenly spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Span {
    /// The outside address.
    pub address: IpAddr,
    /// The lowest port.
    pub first: u16,
    /// The highest port.
    pub last: u16,
    /// Distance from one port to the next: 1 where all between belong to it.
    pub step: u16,
}

impl Span {
    /// Ports of one address as spans. They are in ascending order.
    pub fn of(address: IpAddr, ports: &[u16]) -> Vec<Self> {
        let mut spans: Vec<Self> = Vec::new();
        for &port in ports {
            match spans.last_mut() {
                // Of two ports nobody knows yet how far the third is.
                Some(span) if span.first == span.last => (span.step, span.last) = (port - span.last, port),
                Some(span) if port - span.last == span.step => span.last = port,
                _ => spans.push(Self {
                    address,
                    first: port,
                    last: port,
                    step: 1,
                }),
            }
        }
        spans
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            address,
            first,
            last,
            step,
        } = self;
        match address {
            IpAddr::V4(address) => write!(f, "{address}:{first}")?,
            IpAddr::V6(address) => write!(f, "[{address}]:{first}")?,
        }
        match (first == last, step) {
            (true, _) => Ok(()),
            (false, 1) => write!(f, "-{last}"),
            (false, _) => write!(f, "-{last} by {step}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_ports_are_as_few_as_their_steps() {
        let text = |ports: &[u16]| {
            let spans = Span::of("192.0.2.1".parse().unwrap(), ports);
            spans.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!("", text(&[]));
        assert_eq!("192.0.2.1:7", text(&[7]));
        assert_eq!("192.0.2.1:7-9", text(&[7, 8, 9]));
        assert_eq!(
            "192.0.2.1:7-65527 by 14",
            text(&(7..=65535).step_by(14).collect::<Vec<_>>())
        );
        assert_eq!("192.0.2.1:1-3 192.0.2.1:5-6", text(&[1, 2, 3, 5, 6]));
        assert_eq!("192.0.2.1:1-9 by 4 192.0.2.1:10", text(&[1, 5, 9, 10]));
    }
}

//! Types of address translation: pools and rules, with their utilisation.

use std::fmt;
use std::net::IpAddr;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::Subscriber;
use super::column::{Column, Row, grouped, or_dash};
use crate::value::Protocol;

/// Number of ports for each protocol.
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
    /// Sum over all protocols.
    pub fn sum(&self) -> u64 {
        self.tcp + self.udp + self.icmp
    }

    /// Maximum over all protocols.
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

/// A pool with its utilisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Pool {
    /// Name of the pool.
    pub name: String,
    /// Number of addresses.
    pub addresses: u64,
    /// Number of ports for each protocol, summed over all addresses.
    pub ports: u64,
    /// Ports in use.
    pub used: ByProtocol,
    /// Number of subscribers with sessions.
    pub subscribers: u64,
    /// Number of sessions of the pool's subscribers.
    pub sessions: u64,
    /// Port blocks, if the pool has any.
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

/// Port blocks of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PoolBlocks {
    /// Number of ports per block.
    pub size: u16,
    /// Number of blocks on all addresses.
    pub count: u64,
    /// Number of blocks assigned to subscribers.
    pub used: u64,
    /// Fraction of unused ports in assigned blocks, 0 to 1, for the protocol with the most used ports.
    pub fragmentation: f64,
}

/// Status of translation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Nat {
    /// All pools.
    pub pools: Vec<Pool>,
    /// Subscribers with the most outside ports, in descending order.
    pub subscribers: Vec<Subscriber>,
    /// Utilisation of the translation tables.
    pub tables: Vec<TableUse>,
    /// Ports and port blocks that were released without quarantine because the quarantine was full
    /// (`quarantined-ports`).
    pub quarantine_overflows: u64,
    /// Number of 64-port blocks that shards have borrowed because their own blocks were used up. Cards steer packets
    /// for borrowed ports to the shards that own the blocks.
    #[serde(default)]
    pub borrowed_blocks: u64,
    /// Hosts over which destination rules balance flows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<RuleHost>,
    /// First rules in the order of evaluation: destination rules, then source rules.
    pub rules: Vec<Rule>,
    /// Total number of rules.
    pub rules_in_all: u64,
}

/// A translation rule with its counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Rule {
    /// Whether the rule translates the destination or the source.
    pub kind: RuleKind,
    /// Addresses that match.
    pub network: String,
    /// Protocol. If absent, any protocol matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Ports, such as `80` or `80-90`. If absent, all ports match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<String>,
    /// Input interface. If absent, any interface matches.
    #[serde(default, rename = "in", skip_serializing_if = "Option::is_none")]
    pub incoming: Option<String>,
    /// Whether the rule applies to packets of the gateway's own host stack.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub local: bool,
    /// Output interface. If absent, any interface matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
    /// Action of the rule.
    pub action: RuleAction,
    /// Target of the rule: pool, network, or host and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Number of flows that matched. An exempt flow has no session, so each of its packets is counted.
    pub flows: u64,
}

fn or_any<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "any".into(), |value| value.to_string())
}

impl Rule {
    /// Text with the action and its target.
    fn action_text(&self) -> String {
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
        Column::text("ACTION", Self::action_text),
        Column::number("FLOWS", |row| grouped(row.flows)),
    ];
}

/// One of several hosts over which a destination rule balances flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RuleHost {
    /// Number of the host set. The rule shows the same number.
    pub hosts: u64,
    /// Address of the host.
    pub address: std::net::Ipv4Addr,
    /// Weight relative to the other hosts.
    pub weight: u16,
    /// State of the host.
    pub state: HostState,
    /// Number of flows sent to the host.
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

/// State of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// The host replies to checks.
    Up,
    /// The host does not reply, and therefore gets no new flows.
    Down,
    /// The host is not checked, and counts as up.
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

/// Address that a rule translates: the destination or the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleKind {
    /// The destination. Destination rules are evaluated before source rules.
    Destination,
    /// The source.
    Source,
}

/// Action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleAction {
    /// Translate the source to an address and port of a pool.
    Pool,
    /// Translate addresses one to one.
    Static,
    /// Translate the destination to a host.
    Host,
    /// Translate the destination to one of the hosts in the set with this number.
    Hosts,
    /// Do not translate.
    Exempt,
}

/// Utilisation of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TableUse {
    /// Name of the table.
    pub name: String,
    /// Entries in use.
    pub used: u64,
    /// Capacity of the table.
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

/// Selection for the status of translation.
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

/// Evenly spaced ports of an outside address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Span {
    /// Outside address.
    pub address: IpAddr,
    /// Lowest port.
    pub first: u16,
    /// Highest port.
    pub last: u16,
    /// Distance between consecutive ports. 1 for a contiguous range.
    pub step: u16,
}

impl Span {
    /// Divides ascending ports of one address into spans.
    pub fn of(address: IpAddr, ports: &[u16]) -> Vec<Self> {
        let mut spans: Vec<Self> = Vec::new();
        for &port in ports {
            match spans.last_mut() {
                // The second port of a span determines its step.
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

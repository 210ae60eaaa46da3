//! Types for the assignment of outside ports: shares, blocks, mappings and subscribers.

use std::net::IpAddr;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::column::{Column, Row, grouped};
use super::{ByProtocol, Endpoint, EndpointFilter, NetFilter, Span};
use crate::value::Protocol;

/// Selection of mappings, blocks and shares that match all given conditions.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct MappingFilter {
    /// Inside address, network or port: 10.0.0.1, 10.0.0.0/8, 10.0.0.1:5000, :5000.
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<EndpointFilter>,
    /// Outside address, network or port.
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<EndpointFilter>,
    /// Protocol: tcp, udp, icmp, icmpv6 or a number.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Pool.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

impl MappingFilter {
    /// Whether the filter has no conditions, so that everything matches.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Outside ports that are assigned to an inside address of a deterministic pool (RFC 7422). Unused ports are included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Share {
    /// Name of the pool.
    pub pool: String,
    /// Inside address.
    pub inside: IpAddr,
    /// Number of ports for each protocol.
    pub ports: u32,
    /// The ports, as spans.
    pub spans: Vec<Span>,
}

/// Maximum number of spans that are shown in a table cell.
const SPANS: usize = 4;

impl Share {
    /// Text with the first spans and the number of omitted spans.
    fn some_spans(&self) -> String {
        let mut spans: Vec<_> = self.spans.iter().take(SPANS).map(ToString::to_string).collect();
        if self.spans.len() > SPANS {
            spans.push(format!("and {} more", self.spans.len() - SPANS));
        }
        spans.join(" ")
    }
}

impl Row for Share {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("POOL", |row| row.pool.clone()),
        Column::text("INSIDE", |row| row.inside.to_string()),
        Column::number("PORTS", |row| grouped(row.ports.into())),
        Column::text("OUTSIDE", Self::some_spans),
    ];
}

/// A mapping of an inside port to an outside port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Mapping {
    /// Protocol.
    pub protocol: Protocol,
    /// Inside address and port.
    pub inside: Endpoint,
    /// Outside address and port.
    pub outside: Endpoint,
    /// Name of the pool.
    pub pool: String,
    /// Number of sessions that use the mapping.
    pub sessions: u32,
    /// Shard of the mapping.
    pub shard: u16,
}

impl Row for Mapping {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("POOL", |row| row.pool.clone()),
        Column::text("PROTOCOL", |row| row.protocol.to_string()),
        Column::text("INSIDE", |row| row.inside.to_string()),
        Column::text("OUTSIDE", |row| row.outside.to_string()),
        Column::number("SESSIONS", |row| grouped(row.sessions.into())),
    ];
}

/// A port block of a subscriber.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PortBlock {
    /// Name of the pool.
    pub pool: String,
    /// Inside address of the subscriber, or the first address of its prefix.
    pub subscriber: IpAddr,
    /// Ports of the block.
    pub span: Span,
    /// Number of ports in use.
    pub used: ByProtocol,
    /// Shard of the block.
    pub shard: u16,
}

impl Row for PortBlock {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("POOL", |row| row.pool.clone()),
        Column::text("SUBSCRIBER", |row| row.subscriber.to_string()),
        Column::text("BLOCK", |row| row.span.to_string()),
        Column::number("TCP", |row| grouped(row.used.tcp)),
        Column::number("UDP", |row| grouped(row.used.udp)),
        Column::number("ICMP", |row| grouped(row.used.icmp)),
    ];
}

/// Selection of subscribers that match all given conditions.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct SubscriberFilter {
    /// Inside address or network.
    #[arg(long, value_name = "ADDRESS[/LENGTH]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<NetFilter>,
    /// Paired outside address, or a network of outside addresses.
    #[arg(long, value_name = "ADDRESS[/LENGTH]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<NetFilter>,
    /// Pool.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// A subscriber with sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Subscriber {
    /// Inside address of the subscriber, or the first address of its prefix.
    pub address: IpAddr,
    /// Paired outside address.
    pub paired: IpAddr,
    /// Name of the pool.
    pub pool: String,
    /// Number of sessions.
    pub sessions: u32,
    /// Number of outside ports in use.
    pub ports: ByProtocol,
    /// Number of port blocks.
    pub blocks: u16,
    /// Shard of the subscriber.
    pub shard: u16,
}

impl Row for Subscriber {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("SUBSCRIBER", |row| row.address.to_string()),
        Column::text("POOL", |row| row.pool.clone()),
        Column::text("PAIRED", |row| row.paired.to_string()),
        Column::number("TCP", |row| grouped(row.ports.tcp)),
        Column::number("UDP", |row| grouped(row.ports.udp)),
        Column::number("ICMP", |row| grouped(row.ports.icmp)),
        Column::number("BLOCKS", |row| grouped(row.blocks.into())),
        Column::number("SESSIONS", |row| grouped(row.sessions.into())),
    ];
}

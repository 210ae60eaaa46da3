//! Who has which outside ports: shares, blocks, mappings and subscribers.

use std::net::IpAddr;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::column::{Column, Row, grouped};
use super::{ByProtocol, Endpoint, EndpointFilter, NetFilter, Span};
use crate::value::Protocol;

/// Which mappings, blocks and shares: those that match all that is given.
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
    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The outside ports that an inside address of a deterministic pool has, used or not (RFC 7422).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Share {
    /// The pool.
    pub pool: String,
    /// The inside address.
    pub inside: IpAddr,
    /// How many ports, of each protocol.
    pub ports: u32,
    /// Which.
    pub spans: Vec<Span>,
}

/// Spans of a share that a table names.
const SPANS: usize = 4;

impl Share {
    /// The first of its spans, and how many more there are.
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

/// An outside port and the inside one behind it, and the sessions that use both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Mapping {
    /// The protocol.
    pub protocol: Protocol,
    /// The inside address and port.
    pub inside: Endpoint,
    /// The outside address and port.
    pub outside: Endpoint,
    /// The pool.
    pub pool: String,
    /// Sessions that use it.
    pub sessions: u32,
    /// The shard that it lives in.
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

/// A block of ports that a subscriber has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PortBlock {
    /// The pool.
    pub pool: String,
    /// The subscriber: its inside address, or the first of its prefix.
    pub subscriber: IpAddr,
    /// The ports.
    pub span: Span,
    /// How many of them are in use.
    pub used: ByProtocol,
    /// The shard that it lives in.
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

/// Which subscribers: those that match all that is given.
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

/// A subscriber that has sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Subscriber {
    /// Its inside address, or the first of its prefix.
    pub address: IpAddr,
    /// The outside address that it is paired with.
    pub paired: IpAddr,
    /// The pool.
    pub pool: String,
    /// Its sessions.
    pub sessions: u32,
    /// Outside ports that it uses.
    pub ports: ByProtocol,
    /// Its port blocks.
    pub blocks: u16,
    /// The shard that it lives in.
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

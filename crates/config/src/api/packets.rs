//! Traces and captures.

use clap::Args;
use serde::{Deserialize, Serialize};

use super::NetFilter;
use crate::value::Protocol;

/// Record every node's verdict on the next packets that match.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct TraceRequest {
    /// Source or destination address or network of the received packet.
    #[arg(long, value_name = "ADDRESS[/LENGTH]")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<NetFilter>,
    /// Source or destination port of the received packet.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Protocol: tcp, udp, icmp, icmpv6 or a number.
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Ingress interface.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Stop after this number of packets, at most `trace-limit` of `[control]`.
    #[arg(long, default_value_t = 10, value_name = "NUMBER")]
    pub count: u32,
    /// Stop after this number of seconds.
    #[arg(long, default_value_t = 60, value_name = "NUMBER")]
    pub seconds: u32,
}

/// A pcapng stream.
#[derive(Clone, Copy, Debug)]
pub enum Pcapng {}

/// A packet's way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TraceRecord {
    /// Nanoseconds of the engine's clock when it came in.
    pub time: u64,
    /// The worker that moved it.
    pub worker: u16,
    /// The interface that it came in by.
    pub interface: String,
    /// The packet in a line: addresses, ports, protocol, length.
    pub packet: String,
    /// Nodes in the order of its way.
    pub steps: Vec<TraceStep>,
}

/// A node's verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TraceStep {
    /// The node.
    pub node: String,
    /// Where it sent the packet, or why it dropped it.
    pub verdict: String,
}

/// Copy packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct CaptureRequest {
    /// Where from.
    pub source: CaptureSource,
    /// Packets.
    pub count: u32,
    /// Stop after this number of seconds.
    pub seconds: u32,
    /// Most bytes of each.
    pub bytes: u16,
}

/// Where captured packets come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "from")]
pub enum CaptureSource {
    /// Through an interface.
    #[serde(rename_all = "kebab-case")]
    Interface {
        /// Its name.
        name: String,
        /// Which way.
        direction: CaptureDirection,
    },
    /// Received by any interface.
    Received,
    /// Dropped, each with its reason as comment.
    #[serde(rename_all = "kebab-case")]
    Drops {
        /// This reason alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// Which way packets go through an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaptureDirection {
    /// In.
    In,
    /// Out.
    Out,
    /// Both.
    #[default]
    Both,
}

//! Types of traces and captures.

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

/// Marker type for a pcapng stream.
#[derive(Clone, Copy, Debug)]
pub enum Pcapng {}

/// Trace of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TraceRecord {
    /// Time of reception by the engine's clock, in nanoseconds.
    pub time: u64,
    /// Number of the worker.
    pub worker: u16,
    /// Input interface.
    pub interface: String,
    /// Description of the packet: addresses, ports, protocol, length.
    pub packet: String,
    /// Nodes that processed the packet, in order.
    pub steps: Vec<TraceStep>,
}

/// Verdict of a node on the traced packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TraceStep {
    /// Name of the node.
    pub node: String,
    /// Next node, or drop reason.
    pub verdict: String,
}

/// Request to capture packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct CaptureRequest {
    /// Selection of the packets to capture.
    pub source: CaptureSource,
    /// Stop after this number of packets.
    pub count: u32,
    /// Stop after this number of seconds.
    pub seconds: u32,
    /// Maximum number of bytes per packet.
    pub bytes: u16,
}

/// Packets to capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "from")]
pub enum CaptureSource {
    /// Packets through an interface.
    #[serde(rename_all = "kebab-case")]
    Interface {
        /// Name of the interface.
        name: String,
        /// Direction of the packets.
        direction: CaptureDirection,
    },
    /// Packets received by any interface.
    Received,
    /// Dropped packets, each with its reason as a comment.
    #[serde(rename_all = "kebab-case")]
    Drops {
        /// Only packets with this drop reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
}

/// Direction of packets through an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CaptureDirection {
    /// Received packets.
    In,
    /// Sent packets.
    Out,
    /// Received and sent packets.
    #[default]
    Both,
}

//! `tunnel = { … }` of an interface.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// `tunnel = { … }` of an interface: a point-to-point link over another network. Packets sent on the interface are
/// encapsulated, with `local` as source and `remote` as destination. Packets in the opposite direction are decapsulated
/// and received on the interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tunnel {
    /// Encapsulation.
    #[serde(rename = "type")]
    pub kind: TunnelType,
    /// Local address. The local address must be an address of an interface of the router `underlay`.
    pub local: IpAddr,
    /// Remote address. The address family is that of `local`.
    pub remote: IpAddr,
    /// VXLAN network identifier (mandatory), or GRE key (optional).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// UDP port of VXLAN. Default: 4789.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// TTL or hop limit of outer packets.
    #[serde(default = "ttl")]
    pub ttl: u8,
    /// Virtual router of outer packets. Default: `default`. The virtual router may differ from the interface's router.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub underlay: Option<String>,
}

/// Encapsulation of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TunnelType {
    /// VXLAN: Ethernet frames in UDP (RFC 7348).
    Vxlan,
    /// GRE: IPv4 and IPv6 packets after a GRE header (RFC 2784, RFC 2890).
    Gre,
    /// IP in IP: IPv4 and IPv6 packets directly after the outer header (RFC 2003, RFC 2473, RFC 4213).
    Ipip,
}

impl TunnelType {
    /// Name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vxlan => "vxlan",
            Self::Gre => "gre",
            Self::Ipip => "ipip",
        }
    }
}

fn ttl() -> u8 {
    64
}

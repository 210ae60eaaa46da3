//! `tunnel = { … }` of an interface.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// `tunnel = { … }` of an interface: its link leads over another network to one other end. What leaves by it is put into packets
/// from `local` to `remote`, and what is inside of such packets that come back comes in by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tunnel {
    /// What it is.
    #[serde(rename = "type")]
    pub kind: TunnelType,
    /// This end: an address of an interface of the router `underlay`.
    pub local: IpAddr,
    /// The other end, of the same family.
    pub remote: IpAddr,
    /// The network identifier of VXLAN, which must have one, or the key of GRE, which may have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// UDP port of VXLAN; 4789 where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Time to live, or hop limit, of outer packets.
    #[serde(default = "ttl")]
    pub ttl: u8,
    /// The virtual router that outer packets are routed in: `default` where not given. That of the interface may be another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub underlay: Option<String>,
}

/// What a tunnel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TunnelType {
    /// Ethernet frames in UDP (RFC 7348).
    Vxlan,
    /// IPv4 and IPv6 behind a GRE header (RFC 2784, RFC 2890).
    Gre,
    /// IPv4 and IPv6 right behind the outer header (RFC 2003, RFC 2473, RFC 4213).
    Ipip,
}

impl TunnelType {
    /// As it is written.
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

//! Interfaces and what is behind each.

use std::fmt;
use std::net::IpAddr;

use super::{DEFAULT_ROUTER, InterfaceIndex, RouterIndex};
use crate::schema;
use crate::value::{BitRate, Device, InterfaceAddress, Mac, MssClamp, TagProtocol, Tags, VlanPriority};

/// An interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// Its name in the configuration.
    pub name: String,
    /// What it is made of.
    pub link: Link,
    /// The virtual router that it is in.
    pub router: RouterIndex,
    /// Its addresses, each with the prefix length of the link.
    pub addresses: Vec<InterfaceAddress>,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Type of its outermost tag, of a VLAN.
    pub tag_protocol: TagProtocol,
    /// Priority of its tags, of a VLAN.
    pub vlan_priority: VlanPriority,
    /// Ethernet address in place of the device's own.
    pub mac: Option<Mac>,
    /// BCP 38.
    pub source_validation: schema::SourceValidation,
    /// ARP and neighbour discovery for addresses that are reached by other interfaces are answered.
    pub proxy: [bool; 2],
    /// Its addresses are announced.
    pub announce_addresses: bool,
    /// Hosts are told of better next hops.
    pub redirects: bool,
    /// What it announces to IPv6 hosts, where it does.
    pub advertisements: Option<schema::RouterAdvertisements>,
    /// What happens to TCP and UDP whose checksum a local sender left to the device.
    pub left_to_offload: schema::LeftToOffload,
    /// Largest TCP segment that passes here, where that is limited.
    pub mss_clamp: Option<MssClamp>,
    /// Its part of the link that it leaves by.
    pub share: Option<schema::LinkShare>,
    /// Bits a second that leave.
    pub rate: Option<BitRate>,
    /// The bridge that it is in.
    pub bridge: Option<Bridged>,
}

impl Interface {
    /// Nothing, at a number that rests.
    pub(crate) fn gone() -> Self {
        Self {
            name: String::new(),
            link: Link::Gone,
            router: DEFAULT_ROUTER,
            addresses: Vec::new(),
            mtu: 1_500,
            tag_protocol: TagProtocol::Vlan,
            vlan_priority: VlanPriority::Keep,
            mac: None,
            source_validation: schema::SourceValidation::Loose,
            proxy: [false; 2],
            announce_addresses: false,
            redirects: false,
            advertisements: None,
            left_to_offload: schema::LeftToOffload::Complete,
            mss_clamp: None,
            share: None,
            rate: None,
            bridge: None,
        }
    }

    /// Whether there is such an interface: a number may rest.
    pub fn exists(&self) -> bool {
        self.link != Link::Gone
    }
}

/// An interface's place in a bridge.
#[derive(Clone, Debug, PartialEq)]
pub struct Bridged {
    /// The bridge, by its place in the file.
    pub number: usize,
    /// The other interface.
    pub peer: InterfaceIndex,
    /// What is said of the bridge.
    pub settings: schema::Bridge,
}

/// A tunnel over another network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// What it is.
    pub kind: schema::TunnelType,
    /// This end.
    pub local: IpAddr,
    /// The other end, of the same family.
    pub remote: IpAddr,
    /// VXLAN's network identifier, or GRE's key where there is one.
    pub id: Option<u32>,
    /// UDP port of VXLAN.
    pub port: u16,
    /// Time to live, or hop limit, of outer packets.
    pub ttl: u8,
    /// The interface that has `local`.
    pub underlay: InterfaceIndex,
}

impl fmt::Display for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        if let Some(id) = self.id {
            write!(f, " {id}")?;
        }
        write!(f, " {} > {}", self.local, self.remote)?;
        match self.kind {
            schema::TunnelType::Vxlan => write!(f, " port {}", self.port),
            _ => Ok(()),
        }
    }
}

/// What an interface is made of.
#[derive(Clone, Debug, PartialEq)]
pub enum Link {
    /// A device.
    Device {
        /// The device.
        device: Device,
        /// Receive queues, at most as many as workers; as many as the device allows where not given.
        queues: Option<u16>,
    },
    /// Several devices as one link.
    Bond {
        /// The devices; at least one.
        members: Vec<Device>,
        /// How they share the traffic.
        mode: schema::BondMode,
        /// As for a device.
        queues: Option<u16>,
    },
    /// An end of a virtual link.
    Virtual {
        /// The other end.
        peer: InterfaceIndex,
    },
    /// A tunnel.
    Tunnel(Tunnel),
    /// Nothing: an interface that is no longer there, whose number rests.
    Gone,
    /// Tagged frames of another interface, which has a device or is a bond.
    Vlan {
        /// The interface that carries them.
        parent: InterfaceIndex,
        /// The tags.
        tags: Tags,
    },
}

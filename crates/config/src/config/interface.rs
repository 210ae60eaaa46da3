//! Interfaces and their links.

use std::fmt;
use std::net::IpAddr;

use super::{DEFAULT_ROUTER, InterfaceIndex, RouterIndex};
use crate::schema;
use crate::value::{BitRate, Device, InterfaceAddress, Mac, MssClamp, TagProtocol, Tags, VlanPriority};

/// An interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// Name in the configuration.
    pub name: String,
    /// Link of the interface.
    pub link: Link,
    /// Virtual router of the interface.
    pub router: RouterIndex,
    /// Addresses, each with the prefix length of the link.
    pub addresses: Vec<InterfaceAddress>,
    /// MTU: length of the largest IP packet in bytes.
    pub mtu: u16,
    /// Tag protocol of the outermost tag of a VLAN.
    pub tag_protocol: TagProtocol,
    /// Priority of the tags of a VLAN.
    pub vlan_priority: VlanPriority,
    /// Ethernet address that replaces the address of the device.
    pub mac: Option<Mac>,
    /// Source address validation (BCP 38).
    pub source_validation: schema::SourceValidation,
    /// Whether the interface performs proxy ARP, and whether it performs proxy neighbour discovery.
    pub proxy: [bool; 2],
    /// Whether the gateway announces the addresses.
    pub announce_addresses: bool,
    /// Whether the gateway sends ICMP redirects.
    pub redirects: bool,
    /// Router advertisements, if configured.
    pub advertisements: Option<schema::RouterAdvertisements>,
    /// Handling of TCP and UDP packets with a partial checksum, which a local sender has left for the device to
    /// complete.
    pub partial_checksums: schema::PartialChecksums,
    /// Maximum MSS in SYN segments, if the MSS is limited.
    pub mss_clamp: Option<MssClamp>,
    /// Share of the capacity of the output link.
    pub share: Option<schema::LinkShare>,
    /// Maximum output rate in bits per second.
    pub rate: Option<BitRate>,
    /// Bridge of the interface.
    pub bridge: Option<Bridged>,
}

impl Interface {
    /// Placeholder for an interface number in quarantine.
    pub(crate) fn removed() -> Self {
        Self {
            name: String::new(),
            link: Link::Removed,
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
            partial_checksums: schema::PartialChecksums::Complete,
            mss_clamp: None,
            share: None,
            rate: None,
            bridge: None,
        }
    }

    /// Whether the interface exists. A number in quarantine has no interface.
    pub fn exists(&self) -> bool {
        self.link != Link::Removed
    }
}

/// An interface's membership in a bridge.
#[derive(Clone, Debug, PartialEq)]
pub struct Bridged {
    /// Index of the bridge in the file.
    pub number: usize,
    /// The other interface of the bridge.
    pub peer: InterfaceIndex,
    /// Settings of the bridge.
    pub settings: schema::Bridge,
}

/// A tunnel over another network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// Encapsulation.
    pub kind: schema::TunnelType,
    /// Local address.
    pub local: IpAddr,
    /// Remote address. The address family is that of `local`.
    pub remote: IpAddr,
    /// VXLAN network identifier, or the GRE key if there is one.
    pub id: Option<u32>,
    /// UDP port of VXLAN.
    pub port: u16,
    /// TTL or hop limit of outer packets.
    pub ttl: u8,
    /// Interface with the address `local`.
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

/// Link of an interface.
#[derive(Clone, Debug, PartialEq)]
pub enum Link {
    /// A device.
    Device {
        /// The device.
        device: Device,
        /// Number of receive queues, at most the number of workers. `None` for the maximum that the device supports.
        queues: Option<u16>,
    },
    /// Several devices that form one link.
    Bond {
        /// Member devices, at least one.
        members: Vec<Device>,
        /// How traffic is distributed over the members.
        mode: schema::BondMode,
        /// Number of receive queues, as for a device.
        queues: Option<u16>,
    },
    /// An end of an inter-router link.
    Virtual {
        /// Interface at the other end of the link.
        peer: InterfaceIndex,
    },
    /// A tunnel.
    Tunnel(Tunnel),
    /// A removed interface. Its number is in quarantine.
    Removed,
    /// A VLAN of an interface that has a device or is a bond.
    Vlan {
        /// Parent interface.
        parent: InterfaceIndex,
        /// VLAN tags.
        tags: Tags,
    },
}

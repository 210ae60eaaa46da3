//! Interfaces: ports, VLANs on ports, interfaces of inter-router links, and tunnels.

use sluice_route::{Address, RouterIndex, SourceValidation};
use sluice_wire::vlan::{self, Tag};
use sluice_wire::{Context, Packet, validity};

use crate::packet::io::PortIndex;
use crate::snapshot::tunnels::Tunnel;

/// An interface: a port, a VLAN on a port, one interface of an inter-router link, or a tunnel.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Name of the interface in the configuration.
    pub name: String,
    /// Port of the interface. The port is [`crate::packet::io::NO_PORT`] for an inter-router link and for a tunnel.
    pub port: PortIndex,
    /// Tags of the interface, outermost first; empty if untagged.
    pub tags: Vec<Tag>,
    /// Priority in the tags of sent frames.
    pub priority: Priority,
    /// MAC address of the interface.
    pub mac: [u8; 6],
    /// Maximum length of an L3 datagram in bytes.
    pub mtu: u16,
    /// Addresses and networks of the interface.
    pub link: sluice_route::Interface,
    /// Virtual router to which the interface belongs.
    pub router: RouterIndex,
    /// Context of the interface's flows, which separates them from the flows of other routers.
    pub context: Context,
    /// Whether packets that arrive on the interface may need sessions, for IPv4 and for IPv6.
    pub stateful: [bool; 2],
    /// Whether packets to public addresses arrive on the interface.
    pub outside: bool,
    /// Validation of source addresses (BCP 38).
    pub validation: SourceValidation,
    /// Validity checks of headers.
    pub validity: validity::Policy,
    /// Whether to complete partial checksums, which local senders with checksum offload produce. If the flag is not
    /// set, packets with partial checksums are dropped.
    pub complete_checksums: bool,
    /// Settings of neighbour discovery.
    pub neighbours: NeighbourSettings,
    /// Router advertisements, if enabled.
    pub advertise: Option<Advertise>,
    /// Maximum value in bytes of the MSS option in IPv4 SYNs that arrive or leave through the interface. For IPv6 the
    /// maximum is 20 bytes lower, because the header is longer.
    pub segment_size: Option<u16>,
    /// The peer interface, if this is an interface of an inter-router link.
    pub peer: Option<u16>,
    /// The tunnel, if the interface is a tunnel.
    pub tunnel: Option<Tunnel>,
    /// Whether the router of the interface has a host. The host receives those packets to the router that Sluice
    /// doesn't answer itself.
    pub host: bool,
    /// The bridge, if this is one of the two interfaces of a bridge. The interface then belongs to no router.
    pub bridge: Option<Bridge>,
}

/// Settings of neighbour discovery. Independently of these settings, the gateway answers for the interface's own
/// addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighbourSettings {
    /// Whether to answer as a proxy for addresses whose route leads through another interface: for IPv4 (proxy ARP, RFC
    /// 1027), and for IPv6 (RFC 4861, 7.2.8).
    pub proxy: [bool; 2],
    /// Whether to announce the interface's addresses when an address or the MAC changes, or the link comes up (RFC
    /// 5227, 2.3; RFC 4861,
    /// 7.2.6).
    pub announces: bool,
    /// Whether to send redirects to hosts (RFC 1812, 5.2.7.2; RFC 4861, 8.2).
    pub redirects: bool,
}

/// Priority in the tags of sent frames (IEEE 802.1Q, 6.9.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// The priority of the outermost received tag; 0 if the frame had no tag.
    #[default]
    Keep,
    /// A fixed priority, 0 to 7.
    Set(u8),
}

impl Priority {
    /// Mask of the priority bits that a sent frame takes over from the received frame. The mask applies to the first
    /// byte of the tag's control information.
    #[inline]
    pub fn kept(self) -> u8 {
        match self {
            Self::Keep => (vlan::PRIORITY >> 8) as u8,
            Self::Set(_) => 0,
        }
    }

    /// Returns `tag` with the priority that it has in frames that arrived without tags.
    pub fn of(self, tag: Tag) -> Tag {
        match self {
            Self::Keep => tag.with_priority(0),
            Self::Set(priority) => tag.with_priority(priority),
        }
    }
}

/// The bridge of an interface. All frames received on the interface leave through the peer interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// The other interface of the bridge.
    pub peer: u16,
    /// Whether to drop invalid packets. If the flag is not set, invalid packets are counted and forwarded.
    pub drops_invalid: bool,
    /// Whether to forward packets if inspection is configured but can't inspect them. If the flag is not set, such
    /// packets are dropped.
    pub fails_open: bool,
}

/// Flag in the contexts of bridges. The tags are part of the context, because flows of different VLANs are different.
pub const BRIDGES: Context = 1 << 31;

/// Flag in the context of frames that arrived on the second interface of a bridge. Packets with equal addresses that
/// arrive on different interfaces of the bridge belong to different flows: one of them was returned by a host behind
/// the other interface, or has a forged source.
pub const SECOND_INTERFACE: Context = 1 << 30;

/// Maximum number of bridges. The number is limited because a context also contains the tags and the flag of the second
/// interface.
pub const MAX_BRIDGES: usize = 1 << 6;

/// The context of a bridge, given by its position in the configuration.
pub fn bridge_context(bridge: usize) -> Context {
    BRIDGES | ((bridge % MAX_BRIDGES) as Context) << 24
}

/// The context of frames with these outermost VLANs that arrive on interface `number` of a bridge.
pub fn bridged_context(bridge: &Bridge, context: Context, number: u16, vlans: [u16; 2]) -> Context {
    let side = if number > bridge.peer { SECOND_INTERFACE } else { 0 };
    context | side | Context::from(vlans[0]) << 12 | Context::from(vlans[1])
}

/// Settings of an interface's router advertisements (RFC 4861).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertise {
    /// Seconds between unsolicited advertisements.
    pub interval: u32,
    /// Router lifetime in seconds; 0 if the gateway is not a default router.
    pub lifetime: u16,
    /// Valid lifetime of prefixes in seconds.
    pub valid: u32,
    /// Preferred lifetime of prefixes in seconds.
    pub preferred: u32,
    /// Whether hosts may configure addresses from prefixes of 64 bits themselves (SLAAC).
    pub autonomous: bool,
    /// Whether hosts get addresses by DHCPv6.
    pub managed: bool,
    /// Whether hosts get other settings by DHCPv6.
    pub other: bool,
}

impl Interface {
    /// Source address of packets that the gateway sends to `address`.
    pub fn source4(&self, address: u32) -> Option<u32> {
        match self.link.source_for(Address::V4(address)) {
            Some(Address::V4(source)) => Some(source),
            _ => None,
        }
    }

    /// Source address of packets that the gateway sends to `address`.
    pub fn source6(&self, address: u128) -> Option<u128> {
        match self.link.source_for(Address::V6(address)) {
            Some(Address::V6(source)) => Some(source),
            _ => None,
        }
    }

    /// Whether the interface is a point-to-point link, which needs no neighbour resolution.
    pub fn is_pair(&self) -> bool {
        self.tunnel.is_some_and(|tunnel| !tunnel.carries_frames())
    }

    /// Pushes the interface's tags onto an untagged frame. Returns `false` if the headroom is too small.
    pub fn push_tags(&self, packet: &mut Packet<'_>) -> bool {
        self.push_tags_after(packet, None)
    }

    /// Pushes the interface's tags onto an untagged frame; `before` is the outermost tag of the received frame. Returns
    /// `false` if the headroom is too small.
    pub fn push_tags_after(&self, packet: &mut Packet<'_>, before: Option<Tag>) -> bool {
        let kept = before.map_or(0, |tag| tag.control & u16::from(self.priority.kept()) << 8);
        let mut tags = self.tags.iter().rev().map(|&tag| self.priority.of(tag));
        tags.all(|Tag { protocol, control }| {
            let control = control | kept;
            vlan::push(packet, Tag { protocol, control })
        })
    }
}

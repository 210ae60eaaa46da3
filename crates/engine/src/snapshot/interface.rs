//! Interfaces: ports, VLANs on them, ends of virtual links, tunnels.

use sluice_route::{Address, RouterIndex, SourceValidation};
use sluice_wire::vlan::{self, Tag};
use sluice_wire::{Context, Packet, validity};

use crate::packet::io::PortIndex;
use crate::snapshot::tunnels::Tunnel;

/// An interface: a port, or a VLAN on one.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Name in the configuration.
    pub name: String,
    /// Its port; [`crate::packet::io::NO_PORT`] of an end of a virtual link, and of a tunnel.
    pub port: PortIndex,
    /// Its tags, outermost first; none for untagged.
    pub tags: Vec<Tag>,
    /// Priority of its tags.
    pub priority: Priority,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Largest L3 datagram in bytes.
    pub mtu: u16,
    /// Its addresses and networks.
    pub link: sluice_route::Interface,
    /// Its virtual router.
    pub router: RouterIndex,
    /// What keeps its flows apart from those of other routers.
    pub context: Context,
    /// A translation rule may concern IPv4, IPv6 packets that come in here.
    pub stateful: [bool; 2],
    /// Packets to public addresses come in here.
    pub outside: bool,
    /// Check of source addresses (BCP 38).
    pub validation: SourceValidation,
    /// What validity looks at.
    pub validity: validity::Policy,
    /// Complete checksums that a local sender left to offload; otherwise drop.
    pub complete_checksums: bool,
    /// What its link is told beside answers for its own addresses.
    pub neighbours: NeighbourSettings,
    /// Router advertisements, where they are on.
    pub advertise: Option<Advertise>,
    /// Largest TCP segment in bytes of data that SYNs over IPv4 may offer, whether they come in or go out here; 20 less
    /// over IPv6, whose header is as much longer.
    pub segment_size: Option<u16>,
    /// It is an end of a virtual link: the other end.
    pub peer: Option<u16>,
    /// It is a tunnel.
    pub tunnel: Option<Tunnel>,
    /// Its router has a host, which gets what is addressed to the router and is not answered in its place.
    pub host: bool,
    /// It is one of the two interfaces of a bridge, and no router's.
    pub bridge: Option<Bridge>,
}

/// What a link is told beside answers for the addresses of the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeighbourSettings {
    /// Addresses that are reached by other interfaces are answered for: over IPv4 (proxy ARP, RFC 1027), over IPv6 (RFC 4861, 7.2.8).
    pub proxy: [bool; 2],
    /// Own addresses are announced where they or the MAC address change, or the link comes up (RFC 5227, 2.3; RFC 4861, 7.2.6).
    pub announces: bool,
    /// Hosts are told of better next hops on the link (RFC 1812, 5.2.7.2; RFC 4861, 8.2).
    pub redirects: bool,
}

/// Priority of the tags of frames that leave (IEEE 802.1Q, 6.9.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Priority {
    /// That of the outermost tag that a frame came with; 0 where it had none.
    #[default]
    Keep,
    /// This one, 0 to 7.
    Set(u8),
}

impl Priority {
    /// Bits of the first byte of a tag's control information that a frame keeps.
    #[inline]
    pub fn kept(self) -> u8 {
        match self {
            Self::Keep => (vlan::PRIORITY >> 8) as u8,
            Self::Set(_) => 0,
        }
    }

    /// A tag of a frame that came without any.
    pub fn of(self, tag: Tag) -> Tag {
        match self {
            Self::Keep => tag.with_priority(0),
            Self::Set(priority) => tag.with_priority(priority),
        }
    }
}

/// What an interface has to know of its bridge. Everything that comes in by it leaves by the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// The other interface.
    pub peer: u16,
    /// What is not valid is dropped; otherwise it is counted and passes.
    pub drops_invalid: bool,
    /// What should be inspected and can't be passes; otherwise it is dropped.
    pub fails_open: bool,
}

/// The contexts of bridges, and what tags add to them: flows of different VLANs are not each other's.
pub const BRIDGES: Context = 1 << 31;

/// Set where a frame came in by the later of a bridge's two interfaces. A flow has one side of the bridge; the same addresses from
/// the other side are another flow: a host between them that sends it back, or somebody who feigns to be its peer.
pub const LATER_SIDE: Context = 1 << 30;

/// Most bridges: what tags and sides leave of a context.
pub const MOST_BRIDGES: usize = 1 << 6;

/// The context of a bridge, by its place in the configuration.
pub fn bridge_context(bridge: usize) -> Context {
    BRIDGES | ((bridge % MOST_BRIDGES) as Context) << 24
}

/// The context of frames that come in by `number`, an interface of a bridge, with these VLANs outermost.
pub fn bridged_context(bridge: &Bridge, context: Context, number: u16, vlans: [u16; 2]) -> Context {
    let side = if number > bridge.peer { LATER_SIDE } else { 0 };
    context | side | Context::from(vlans[0]) << 12 | Context::from(vlans[1])
}

/// Router advertisements of an interface (RFC 4861).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertise {
    /// Seconds between unsolicited ones.
    pub interval: u32,
    /// Router lifetime in seconds; 0: not a default router.
    pub lifetime: u16,
    /// Valid lifetime of prefixes in seconds.
    pub valid: u32,
    /// Preferred lifetime of prefixes in seconds.
    pub preferred: u32,
    /// Hosts may make addresses of their own in prefixes of 64 bits.
    pub autonomous: bool,
    /// Hosts get addresses by DHCPv6.
    pub managed: bool,
    /// Hosts get other settings by DHCPv6.
    pub other: bool,
}

impl Interface {
    /// Source for what the gateway sends to `address`.
    pub fn source4(&self, address: u32) -> Option<u32> {
        match self.link.source_towards(Address::V4(address)) {
            Some(Address::V4(source)) => Some(source),
            _ => None,
        }
    }

    /// Source for what the gateway sends to `address`.
    pub fn source6(&self, address: u128) -> Option<u128> {
        match self.link.source_towards(Address::V6(address)) {
            Some(Address::V6(source)) => Some(source),
            _ => None,
        }
    }

    /// Whether it is a link of two ends, where nobody is asked for.
    pub fn is_pair(&self) -> bool {
        self.tunnel.is_some_and(|tunnel| !tunnel.carries_frames())
    }

    /// Put the interface's tags behind the Ethernet addresses of an untagged frame; false where there is no room.
    pub fn push_tags(&self, packet: &mut Packet<'_>) -> bool {
        self.push_tags_after(packet, None)
    }

    /// The same for a frame that came with the tag `before` outermost.
    pub fn push_tags_after(&self, packet: &mut Packet<'_>, before: Option<Tag>) -> bool {
        let kept = before.map_or(0, |tag| tag.control & u16::from(self.priority.kept()) << 8);
        let mut tags = self.tags.iter().rev().map(|&tag| self.priority.of(tag));
        tags.all(|Tag { protocol, control }| {
            let control = control | kept;
            vlan::push(packet, Tag { protocol, control })
        })
    }
}

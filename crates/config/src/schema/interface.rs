//! `[interfaces.NAME]`: a device, a bond of devices, a VLAN of another interface, an end of a virtual link, or a tunnel.

use serde::{Deserialize, Serialize};

use super::Tunnel;
use super::pool::is_default;
use crate::value::{BitRate, Device, InterfaceAddress, Mac, MssClamp, Period, TagProtocol, Tags, VlanPriority};

/// `[interfaces.NAME]`. Exactly one of `device`, `bond`, `parent`, `peer` and `tunnel` says what it is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Interface {
    /// The device: `eth1`, `0000:3b:00.0`, `pcap:…`, `tap:…`, `memif:…`, `vhost:…`, `virtio:…`, `ring:…`, `null:`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    /// Several devices as one link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond: Option<Bond>,
    /// The interface whose tagged frames these are; with `vlan`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// One tag or two: `"100"`, `"100.200"`; with `parent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Tags>,
    /// Type of the outermost tag: `"0x8100"` (802.1Q), `"0x88a8"` (802.1ad), `"0x9100"` or `"0x9200"`; with `vlan`. Where not given
    /// a single tag is of 802.1Q, the outer one of two of 802.1ad.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag_protocol: Option<TagProtocol>,
    /// Priority of the tags of frames that leave, 0 to 7, or `"keep"` for that of the tag that a frame came with; with `vlan`.
    /// `"keep"` where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan_priority: Option<VlanPriority>,
    /// The other end of a virtual link, an interface of another virtual router whose `peer` is this one: what leaves by one end
    /// comes in by the other, without a copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// A tunnel over another network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Tunnel>,
    /// The virtual router that it is in: `default` where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
    /// What if this machine itself is reached over the device.
    #[serde(skip_serializing_if = "is_default")]
    pub in_use: InUse,
    /// Addresses of the gateway, each with the prefix length of the link.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<InterfaceAddress>,
    /// Largest IP packet in bytes: 1500, of a VLAN that of its parent, of a tunnel what fits the interface that has its `local`,
    /// where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Receive queues; as many as the device and the workers allow where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u16>,
    /// Ethernet address in place of the device's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Refuse sources that could not be answered by way of this interface (BCP 38). It holds for every packet: a session is
    /// bound to the interfaces that its packets come in by, and a packet by another one is validated as a first one is.
    pub source_validation: SourceValidation,
    /// Answer ARP for addresses that are reached by other interfaces (RFC 1027).
    #[serde(skip_serializing_if = "is_default")]
    pub proxy_arp: bool,
    /// Answer neighbour solicitations for addresses that are reached by other interfaces (RFC 4861, 7.2.8).
    #[serde(skip_serializing_if = "is_default")]
    pub proxy_ndp: bool,
    /// Announce the addresses that this gateway has on the link, those of translation included, at the start, and where they, the
    /// Ethernet address or the link change (RFC 5227, 2.3; RFC 4861, 7.2.6).
    #[serde(skip_serializing_if = "is_default")]
    pub announce_addresses: bool,
    /// Tell hosts that send here what goes on by the same link whom to send it to (RFC 1812, 5.2.7.2; RFC 4861, 8.2).
    #[serde(skip_serializing_if = "is_default")]
    pub redirects: bool,
    /// Announce this gateway to IPv6 hosts (RFC 4861).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_advertisements: Option<RouterAdvertisements>,
    /// What happens to TCP and UDP whose checksum a local sender left to the device.
    pub partial_checksums: LeftToOffload,
    /// Largest TCP segment that SYNs may offer that come in or go out here: `"mtu"`, or bytes of data as over IPv4 (20
    /// less over IPv6). A SYN that offers more is lowered to it; off where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mss_clamp: Option<MssClamp>,
    /// Its part of the link that it leaves by, beside those of the other interfaces on the same device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<LinkShare>,
    /// Bits a second that leave: by the link, with all of its VLANs; of a VLAN or a virtual link, by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
}

/// `share = { … }` of an interface: what it may send while the link takes less than there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LinkShare {
    /// Its part, beside the weights of others, 1 to 255: 10 where not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u8>,
    /// Bits a second that it may send whatever others do. The link must have a `rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<BitRate>,
}

impl Default for Interface {
    fn default() -> Self {
        Self {
            device: None,
            bond: None,
            parent: None,
            vlan: None,
            tag_protocol: None,
            vlan_priority: None,
            peer: None,
            tunnel: None,
            router: None,
            in_use: InUse::Refuse,
            addresses: Vec::new(),
            mtu: None,
            queues: None,
            mac: None,
            source_validation: SourceValidation::Loose,
            proxy_arp: false,
            proxy_ndp: false,
            announce_addresses: false,
            redirects: false,
            router_advertisements: None,
            partial_checksums: LeftToOffload::Complete,
            mss_clamp: None,
            share: None,
            rate: None,
        }
    }
}

/// What becomes of a device over which this machine's own default route leads, or somebody is logged in by SSH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InUse {
    /// It is not opened: whoever manages the machine would be locked out.
    #[default]
    Refuse,
    /// It is opened.
    Take,
}

/// Several devices as one link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bond {
    /// The devices.
    pub members: Vec<Device>,
    /// How they share the traffic.
    #[serde(default)]
    pub mode: BondMode,
}

/// How the members of a bond share the traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BondMode {
    /// Link aggregation with LACP (IEEE 802.1AX).
    #[default]
    Lacp,
}

/// Refuse sources that could not be answered (BCP 38; RFC 3704, 2.2 and 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceValidation {
    /// The best route to the source leads out by the interface that it came in by.
    Strict,
    /// There is a route to the source.
    Loose,
    /// Any source.
    Off,
}

/// What happens to TCP and UDP whose checksum a local sender left to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftToOffload {
    /// It is completed and counted.
    Complete,
    /// The packet is dropped and counted.
    Drop,
}

/// `router-advertisements = { … }` of an interface (RFC 4861, 6.2.1). Given means sent. The networks of its
/// own addresses are announced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RouterAdvertisements {
    /// Whether they are sent.
    pub send: bool,
    /// Longest time between two of them, 4 s to 30 min.
    pub interval: Period,
    /// How long hosts use this gateway as default router; 0 s: not at all.
    pub lifetime: Period,
    /// Hosts may make addresses of their own in the networks of this interface (RFC 4862); needs /64.
    pub autonomous: bool,
    /// How long an address that a host made is preferred for new connections.
    pub preferred_lifetime: Period,
    /// How long such an address is valid.
    pub valid_lifetime: Period,
    /// Hosts get addresses by DHCPv6.
    pub managed: bool,
    /// Hosts get other settings by DHCPv6.
    pub other: bool,
}

impl Default for RouterAdvertisements {
    fn default() -> Self {
        Self {
            send: true,
            interval: Period::seconds(600),
            lifetime: Period::seconds(1800),
            autonomous: true,
            preferred_lifetime: Period::seconds(604_800),
            valid_lifetime: Period::seconds(2_592_000),
            managed: false,
            other: false,
        }
    }
}

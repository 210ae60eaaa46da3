//! `[interfaces.NAME]`: a device, a bond, a VLAN of another interface, an end of a virtual link, or a tunnel.

use serde::{Deserialize, Serialize};

use super::Tunnel;
use super::pool::is_default;
use crate::value::{BitRate, Device, InterfaceAddress, Mac, MssClamp, Period, TagProtocol, Tags, VlanPriority};

/// `[interfaces.NAME]`. Exactly one of `device`, `bond`, `parent`, `peer` and `tunnel` is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Interface {
    /// The device: `eth1`, `0000:3b:00.0`, `pcap:…`, `tap:…`, `memif:…`, `vhost:…`, `virtio:…`, `ring:…`, `null:`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    /// Several devices as one link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond: Option<Bond>,
    /// Parent interface of a VLAN; with `vlan`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// One tag or two: `"100"`, `"100.200"`; with `parent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Tags>,
    /// Tag protocol of the outermost tag: `"0x8100"` (802.1Q), `"0x88a8"` (802.1ad), `"0x9100"` or `"0x9200"`; with
    /// `vlan`. Default: 802.1Q for a single tag, 802.1ad for the outer one of two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag_protocol: Option<TagProtocol>,
    /// Priority of the tags of sent frames, 0 to 7, or `"keep"` for the priority in the received tag; with `vlan`.
    /// Default `"keep"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan_priority: Option<VlanPriority>,
    /// Other end of a virtual link: an interface of another virtual router, whose `peer` is this one. Packets sent by
    /// one end are received on the other without copying.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// A tunnel over another network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Tunnel>,
    /// Virtual router of the interface; default `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
    /// Handling of a device over which this machine is managed.
    #[serde(skip_serializing_if = "is_default")]
    pub in_use: InUse,
    /// Addresses of the gateway, each with the prefix length of the link.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<InterfaceAddress>,
    /// MTU in bytes. Default: 1500; for a VLAN that of its parent; for a tunnel what fits the interface with its
    /// `local` address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Number of receive queues; default as many as the device and the workers support.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u16>,
    /// Ethernet address instead of the device's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Validate source addresses by the reverse route (BCP 38). The check covers every packet: a session is bound to
    /// the input interfaces of its packets, and a packet from another interface is validated like the first one.
    pub source_validation: SourceValidation,
    /// Reply to ARP requests for addresses that are reached by other interfaces (RFC 1027).
    #[serde(skip_serializing_if = "is_default")]
    pub proxy_arp: bool,
    /// Reply to neighbour solicitations for addresses that are reached by other interfaces (RFC 4861, section 7.2.8).
    #[serde(skip_serializing_if = "is_default")]
    pub proxy_ndp: bool,
    /// Announce the gateway's addresses on the link, including those of translation, at the start and when the
    /// addresses, the Ethernet address or the link change (RFC 5227, section 2.3; RFC 4861, section 7.2.6).
    #[serde(skip_serializing_if = "is_default")]
    pub announce_addresses: bool,
    /// Send redirects to hosts whose packets are forwarded by the same link (RFC 1812, section 5.2.7.2; RFC 4861,
    /// section 8.2).
    #[serde(skip_serializing_if = "is_default")]
    pub redirects: bool,
    /// Send router advertisements to IPv6 hosts (RFC 4861).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_advertisements: Option<RouterAdvertisements>,
    /// Handling of TCP and UDP packets whose checksum a local sender has left to the device.
    pub partial_checksums: LeftToOffload,
    /// Maximum MSS in SYNs that are received or sent here: `"mtu"`, or bytes of data for IPv4 (20 less for IPv6). A
    /// larger MSS is lowered to it; if omitted, the MSS is not changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mss_clamp: Option<MssClamp>,
    /// Share of the output link relative to the other interfaces on the same device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<LinkShare>,
    /// Maximum output rate in bits per second: of the link including its VLANs, or of this VLAN or virtual link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
}

/// `share = { … }` of an interface: its share of the link under congestion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LinkShare {
    /// Weight relative to other interfaces, 1 to 255; default 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u8>,
    /// Guaranteed output rate in bits per second. Requires a `rate` of the link.
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

/// Handling of a device that carries this machine's default route or an SSH session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InUse {
    /// The device is not opened, since the operator would be locked out.
    #[default]
    Refuse,
    /// The device is opened.
    Take,
}

/// Several devices as one link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bond {
    /// Member devices.
    pub members: Vec<Device>,
    /// Distribution of traffic over the members.
    #[serde(default)]
    pub mode: BondMode,
}

/// Distribution of traffic over the members of a bond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BondMode {
    /// Link aggregation with LACP (IEEE 802.1AX).
    #[default]
    Lacp,
}

/// Source address validation (BCP 38; RFC 3704, sections 2.2 and 2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceValidation {
    /// Strict: the best route to the source leads by the input interface.
    Strict,
    /// Loose: a route to the source exists.
    Loose,
    /// No validation.
    Off,
}

/// Handling of TCP and UDP packets whose checksum a local sender has left to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftToOffload {
    /// Compute the checksum, and count the packet.
    Complete,
    /// Drop and count the packet.
    Drop,
}

/// `router-advertisements = { … }` of an interface (RFC 4861, section 6.2.1). If the table is present, advertisements
/// are sent with the networks of the interface's addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RouterAdvertisements {
    /// Whether advertisements are sent.
    pub send: bool,
    /// Maximum interval between advertisements, 4 s to 30 min.
    pub interval: Period,
    /// Time for which hosts use this gateway as default router; 0 s for not at all.
    pub lifetime: Period,
    /// Whether hosts may autoconfigure addresses in the interface's networks (RFC 4862); requires /64.
    pub autonomous: bool,
    /// Preferred lifetime of autoconfigured addresses.
    pub preferred_lifetime: Period,
    /// Valid lifetime of autoconfigured addresses.
    pub valid_lifetime: Period,
    /// Managed flag: hosts get addresses by DHCPv6.
    pub managed: bool,
    /// Other-configuration flag: hosts get other settings by DHCPv6.
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

//! `[interfaces.NAME]`: a device, a bond, a VLAN of another interface, an end of an inter-router link, or a tunnel.

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
    /// Several devices that form one link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond: Option<Bond>,
    /// Parent interface of a VLAN. Requires `vlan`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// One or two tags: `"100"`, `"100.200"`. Requires `parent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Tags>,
    /// Tag protocol of the outermost tag: `"0x8100"` (802.1Q), `"0x88a8"` (802.1ad), `"0x9100"` or `"0x9200"`. Requires
    /// `vlan`. Default: 802.1Q for a single tag, 802.1ad for the outer of two tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag_protocol: Option<TagProtocol>,
    /// Priority of the tags of sent frames, 0 to 7, or `"keep"` for the priority of the received tag. Requires `vlan`.
    /// Default: `"keep"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan_priority: Option<VlanPriority>,
    /// Peer interface at the other end of a virtual link. The peer belongs to another virtual router, and has this
    /// interface as its `peer`. Packets sent on one end are received on the other end without copying.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// A tunnel over another network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<Tunnel>,
    /// Virtual router of the interface. Default: `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
    /// What happens if this machine is managed over the device.
    #[serde(skip_serializing_if = "is_default")]
    pub in_use: InUse,
    /// Addresses of the gateway, each with the prefix length of the link.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<InterfaceAddress>,
    /// MTU in bytes. Default: 1500; for a VLAN the MTU of its parent; for a tunnel the largest MTU with which outer
    /// packets fit the interface with the `local` address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Number of receive queues. Default: the maximum that the device and the number of workers permit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u16>,
    /// Ethernet address that replaces the address of the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Validate source addresses by the reverse route (BCP 38). Every packet is checked: a session is bound to the
    /// input interfaces of its packets, and a packet from another interface is validated like a first packet.
    pub source_validation: SourceValidation,
    /// Reply to ARP requests for addresses that are reached through other interfaces (RFC 1027).
    #[serde(skip_serializing_if = "is_default")]
    pub proxy_arp: bool,
    /// Reply to neighbour solicitations for addresses that are reached through other interfaces (RFC 4861, section
    /// 7.2.8).
    #[serde(skip_serializing_if = "is_default")]
    pub proxy_ndp: bool,
    /// Announce the gateway's addresses on the link, including outside addresses of translation. Announcements are sent
    /// at the start, and when the addresses, the Ethernet address or the link state change (RFC 5227, section 2.3; RFC
    /// 4861, section 7.2.6).
    #[serde(skip_serializing_if = "is_default")]
    pub announce_addresses: bool,
    /// Send redirects to a host if its packets are forwarded on the link on which they were received (RFC 1812, section
    /// 5.2.7.2; RFC 4861, section 8.2).
    #[serde(skip_serializing_if = "is_default")]
    pub redirects: bool,
    /// Send router advertisements to IPv6 hosts (RFC 4861).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_advertisements: Option<RouterAdvertisements>,
    /// What happens to TCP and UDP packets with a partial checksum, which a local sender has left for the device to
    /// complete.
    pub partial_checksums: PartialChecksums,
    /// Maximum MSS in SYN segments that are received or sent here: `"mtu"`, or a number of bytes for IPv4 (20 less for
    /// IPv6). A larger MSS is lowered to the configured value. If omitted, the MSS is not changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mss_clamp: Option<MssClamp>,
    /// Share of the capacity of the output link, relative to the other interfaces on the same device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<LinkShare>,
    /// Maximum output rate in bits per second. For a device, the rate applies to the link including its VLANs; for a
    /// VLAN or virtual link, to this link only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<BitRate>,
}

/// `share = { … }` of an interface: its share of the link under congestion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LinkShare {
    /// Weight relative to other interfaces, 1 to 255. Default: 10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u8>,
    /// Guaranteed output rate in bits per second. Requires that the link has a `rate`.
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
            partial_checksums: PartialChecksums::Complete,
            mss_clamp: None,
            share: None,
            rate: None,
        }
    }
}

/// What happens if a device carries this machine's default route or an SSH session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InUse {
    /// The device is not opened, because the operator would be locked out.
    #[default]
    Refuse,
    /// The device is opened.
    Take,
}

/// Several devices that form one link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bond {
    /// Member devices.
    pub members: Vec<Device>,
    /// How traffic is distributed over the members.
    #[serde(default)]
    pub mode: BondMode,
}

/// How traffic is distributed over the members of a bond.
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
    /// Strict: the best route to the source uses the input interface.
    Strict,
    /// Loose: a route to the source exists.
    Loose,
    /// No validation.
    Off,
}

/// What happens to TCP and UDP packets with a partial checksum, which a local sender has left for the device to
/// complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartialChecksums {
    /// Compute the checksum, and count the packet.
    Complete,
    /// Drop and count the packet.
    Drop,
}

/// `router-advertisements = { … }` of an interface (RFC 4861, section 6.2.1). If the table is present, advertisements
/// with the networks of the interface's addresses are sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RouterAdvertisements {
    /// Whether advertisements are sent.
    pub send: bool,
    /// Maximum interval between advertisements, 4 s to 30 min.
    pub interval: Period,
    /// Time for which hosts use this gateway as default router. With 0 s, hosts don't use this gateway as default
    /// router.
    pub lifetime: Period,
    /// Whether hosts may autoconfigure addresses in the interface's networks (RFC 4862). Autoconfiguration requires
    /// networks of length /64.
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

//! Ethernet II.

use crate::field::{Mac, header};
use crate::packet::Packet;

header! {
    /// An Ethernet header without VLAN tags.
    Ethernet 14
    "Destination address." destination: Mac = DESTINATION @ 0, set_destination;
    "Source address." source: Mac = SOURCE @ 6, set_source;
    "EtherType of what follows." ethertype: u16 = ETHERTYPE @ 12, set_ethertype;
}

/// Minimum frame length in bytes, without the frame check sequence.
pub const MIN_FRAME: usize = 60;

/// EtherTypes that Sluice uses.
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// An 802.1Q tag.
    pub const VLAN: u16 = 0x8100;
    /// An 802.1ad service tag.
    pub const SERVICE_VLAN: u16 = 0x88a8;
    /// EtherTypes of service tags from before 802.1ad.
    pub const QINQ: [u16; 2] = [0x9100, 0x9200];
    /// EtherTypes of tags and headers that may carry IP but are not parsed: MPLS (RFC 5332), PPPoE sessions (RFC 2516),
    /// PPP, service tags before 802.1ad, MACsec, provider backbone bridges, 802.1BR and VN tags, Ethernet in Ethernet,
    /// TRILL (RFC 6325), network service headers (RFC 8300), compressed TCP (RFC 1701).
    pub const ENCAPSULATIONS: [u16; 14] = [
        0x8847, 0x8848, 0x8864, 0x880b, 0x9300, 0x88e5, 0x88e7, 0x893f, 0x8926, 0x6558, 0x22f3, 0x8903, 0x894f, 0x876b,
    ];
}

/// Maximum value of the length field in an 802.3 frame. Larger values are EtherTypes.
const MAX_802_3: u16 = 1500;

/// Whether `body`, the data after the EtherType `kind` and after any VLAN tags, may contain IP inside a header that is
/// not parsed. Such a header is one of [`ethertype::ENCAPSULATIONS`], or LLC (RFC 1042).
pub fn hides_ip(kind: u16, body: &[u8]) -> bool {
    if kind > MAX_802_3 {
        return ethertype::ENCAPSULATIONS.contains(&kind);
    }
    match body {
        // LLC with the service access point (SAP) of IP.
        [0x06, 0x06, ..] => true,
        // LLC/SNAP with the organisation code for EtherTypes (RFC 1042) or for bridge tunnels (802.1H).
        [0xaa, 0xaa, 0x03, 0, 0, 0 | 0xf8, high, low, ..] => {
            let kind = u16::from_be_bytes([*high, *low]);
            matches!(kind, ethertype::IPV4 | ethertype::IPV6)
                || crate::vlan::is_tag(kind)
                || ethertype::ENCAPSULATIONS.contains(&kind)
        }
        _ => false,
    }
}

/// The broadcast address.
pub const BROADCAST: Mac = [0xff; 6];

/// Whether an address is a group address: multicast or broadcast.
#[inline(always)]
pub fn is_group(address: Mac) -> bool {
    address[0] & 1 != 0
}

/// The multicast MAC address of an IPv4 group (RFC 1112, section 6.4).
pub fn multicast4(group: u32) -> Mac {
    let [_, b, c, d] = group.to_be_bytes();
    [0x01, 0x00, 0x5e, b & 0x7f, c, d]
}

/// The multicast MAC address of an IPv6 group (RFC 2464, section 7).
pub fn multicast6(group: u128) -> Mac {
    let [a, b, c, d] = (group as u32).to_be_bytes();
    [0x33, 0x33, a, b, c, d]
}

impl<B: AsMut<[u8]> + AsRef<[u8]>> Ethernet<B> {
    /// Sets source and destination MAC address of a forwarded frame.
    #[inline(always)]
    pub fn set_addresses(&mut self, destination: Mac, source: Mac) {
        self.set_destination(destination);
        self.set_source(source);
    }
}

/// Source and destination MAC address of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Source address.
    pub source: Mac,
    /// Destination address.
    pub destination: Mac,
}

/// Writes an untagged Ethernet header and `length` zero bytes to `packet`, and returns the zero bytes. `None`, without
/// effect, if the buffer is too small. [`crate::vlan::push`] adds VLAN tags.
pub fn start<'p>(packet: &'p mut Packet<'_>, link: Link, ethertype: u16, length: usize) -> Option<&'p mut [u8]> {
    if !packet.set_len(LENGTH + length) {
        return None;
    }
    let mut frame = Ethernet::new(packet.bytes_mut())?;
    frame.set_addresses(link.destination, link.source);
    frame.set_ethertype(ethertype);
    let body = frame.0.get_mut(LENGTH..)?;
    body.fill(0);
    Some(body)
}

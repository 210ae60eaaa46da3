//! Ethernet II.

use crate::field::{Mac, header};
use crate::packet::Packet;

header! {
    /// An Ethernet header without tags.
    Ethernet 14
    "Destination address." destination: Mac = DESTINATION @ 0, set_destination;
    "Source address." source: Mac = SOURCE @ 6, set_source;
    "EtherType of what follows." ethertype: u16 = ETHERTYPE @ 12, set_ethertype;
}

/// Bytes of the shortest frame, without its check sequence.
pub const MIN_FRAME: usize = 60;

/// EtherTypes that Sluice knows.
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
    /// Service tags as they were before 802.1ad.
    pub const QINQ: [u16; 2] = [0x9100, 0x9200];
    /// Those of tags and headers that carry IP and are not read: MPLS (RFC 5332), sessions of PPPoE (RFC 2516), PPP, service
    /// tags as they were before 802.1ad, MACsec, provider backbone bridges, the tags of 802.1BR and of virtual interfaces,
    /// Ethernet in Ethernet, TRILL (RFC 6325), network service headers (RFC 8300), compressed TCP (RFC 1701).
    pub const ENCAPSULATIONS: [u16; 14] = [
        0x8847, 0x8848, 0x8864, 0x880b, 0x9300, 0x88e5, 0x88e7, 0x893f, 0x8926, 0x6558, 0x22f3, 0x8903, 0x894f, 0x876b,
    ];
}

/// Lengths of 802.3 frames; what is above is an EtherType.
const MAX_802_3: u16 = 1500;

/// Whether what begins behind an EtherType, tags aside, hides IP from who reads neither its header nor what that carries:
/// one of [`ethertype::ENCAPSULATIONS`], or IP behind LLC (RFC 1042).
pub fn hides_ip(kind: u16, body: &[u8]) -> bool {
    if kind > MAX_802_3 {
        return ethertype::ENCAPSULATIONS.contains(&kind);
    }
    match body {
        // The SAP of IP.
        [0x06, 0x06, ..] => true,
        // SNAP, with the organisation of EtherTypes, or that of bridges (802.1H).
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

/// The multicast address that carries an IPv4 group (RFC 1112, 6.4).
pub fn multicast4(group: u32) -> Mac {
    let [_, b, c, d] = group.to_be_bytes();
    [0x01, 0x00, 0x5e, b & 0x7f, c, d]
}

/// The multicast address that carries an IPv6 group (RFC 2464, 7).
pub fn multicast6(group: u128) -> Mac {
    let [a, b, c, d] = (group as u32).to_be_bytes();
    [0x33, 0x33, a, b, c, d]
}

impl<B: AsMut<[u8]> + AsRef<[u8]>> Ethernet<B> {
    /// Send the frame on: other addresses, the same EtherType.
    #[inline(always)]
    pub fn set_addresses(&mut self, destination: Mac, source: Mac) {
        self.set_destination(destination);
        self.set_source(source);
    }
}

/// Who sends a frame to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Source address.
    pub source: Mac,
    /// Destination address.
    pub destination: Mac,
}

/// Make `packet` an untagged frame with `length` bytes behind its Ethernet header, all zero, and return them; none,
/// and nothing done, where its room is too small. Tags are added by [`crate::vlan::push`].
pub fn begin<'p>(packet: &'p mut Packet<'_>, link: Link, ethertype: u16, length: usize) -> Option<&'p mut [u8]> {
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

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

//! Ethernet frames with DHCP datagrams. A site sends with its own MAC, which kernel sockets do not support.

use std::net::{Ipv4Addr, SocketAddrV4};

use sluice_wire::ethernet::{self, Ethernet, ethertype};
use sluice_wire::ipv4::{self, Ipv4, protocol};
use sluice_wire::udp::{self, Udp};
use sluice_wire::vlan::{self, Tag};
use sluice_wire::{Mac, Packet, Window, arp, checksum};

/// Length in bytes of the headers before the payload.
pub const HEADERS: usize = ethernet::LENGTH + ipv4::LENGTH + udp::LENGTH;

/// Length in bytes of the Ethernet addresses before the tags.
const ADDRESSES: usize = 12;

/// A UDP datagram with its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Source MAC.
    pub source_mac: Mac,
    /// Destination MAC.
    pub destination_mac: Mac,
    /// Source address and port.
    pub source: SocketAddrV4,
    /// Destination address and port.
    pub destination: SocketAddrV4,
    /// UDP payload.
    pub payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Build the untagged frame, with both checksums. `None` if the payload exceeds the maximum length.
    pub fn frame(&self) -> Option<Vec<u8>> {
        let length = u16::try_from(udp::LENGTH + self.payload.len()).ok()?;
        let total = length.checked_add(ipv4::LENGTH as u16)?;
        let mut frame = vec![0; HEADERS];
        frame.extend_from_slice(self.payload);
        let mut link = Ethernet::new(&mut frame)?;
        link.set_addresses(self.destination_mac, self.source_mac);
        link.set_ethertype(ethertype::IPV4);
        let mut header = Ipv4::new(frame.get_mut(ethernet::LENGTH..)?)?;
        header.set_version_length(0x45);
        header.set_total_length(total);
        header.set_ttl(64);
        header.set_protocol(protocol::UDP);
        header.set_source(self.source.ip().to_bits());
        header.set_destination(self.destination.ip().to_bits());
        header.fill_checksum();
        let mut datagram = Udp::new(frame.get_mut(ethernet::LENGTH + ipv4::LENGTH..)?)?;
        datagram.set_source_port(self.source.port());
        datagram.set_destination_port(self.destination.port());
        datagram.set_length(length);
        let sum = self.sum(datagram.bytes());
        datagram.set_checksum(if sum == 0xffff { sum } else { !sum });
        Some(frame)
    }

    /// Parse the datagram in a frame. `None` if the frame contains no datagram or only a fragment, or if a checksum is
    /// wrong.
    pub fn of(frame: &'a [u8]) -> Option<Self> {
        let link = Ethernet::new(frame)?;
        if link.ethertype() != ethertype::IPV4 {
            return None;
        }
        let header = Ipv4::new(frame.get(ethernet::LENGTH..)?)?;
        let (start, end) = (header.header_length(), usize::from(header.total_length()));
        let whole = header.version_length() >> 4 == 4
            && start >= ipv4::LENGTH
            && header.protocol() == protocol::UDP
            && header.fragment() & !ipv4::DONT_FRAGMENT == 0
            && header.has_valid_checksum();
        if !whole {
            return None;
        }
        let bytes = frame.get(ethernet::LENGTH + start..ethernet::LENGTH + end)?;
        let datagram = Udp::new(bytes)?;
        let bytes = bytes.get(..usize::from(datagram.length()))?;
        let address = |bits, port| SocketAddrV4::new(Ipv4Addr::from_bits(bits), port);
        let found = Self {
            source_mac: link.source(),
            destination_mac: link.destination(),
            source: address(header.source(), datagram.source_port()),
            destination: address(header.destination(), datagram.destination_port()),
            payload: bytes.get(udp::LENGTH..)?,
        };
        (datagram.checksum() == 0 || found.sum(bytes) == 0xffff).then_some(found)
    }

    /// Checksum over the UDP pseudo-header and the datagram.
    fn sum(&self, datagram: &[u8]) -> u16 {
        let (source, destination) = (self.source.ip().to_bits(), self.destination.ip().to_bits());
        let pseudo = checksum::pseudo4(source, destination, protocol::UDP, datagram.len() as u16);
        checksum::add(pseudo, checksum::sum(datagram))
    }
}

/// Maximum number of tags that are parsed. A frame with more tags belongs to no site.
const MAX_TAGS: usize = 3;

/// VLAN IDs of a frame, the outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagNumbers {
    numbers: [u16; MAX_TAGS],
    count: usize,
}

impl TagNumbers {
    /// The VLAN IDs.
    pub fn numbers(&self) -> &[u16] {
        self.numbers.get(..self.count).unwrap_or_default()
    }
}

/// Remove the tags of a frame. Returns the frame and the VLAN IDs of the tags. If the frame had tags, `buffer` stores
/// the frame without tags.
pub fn plain<'a>(frame: &'a [u8], buffer: &'a mut Vec<u8>) -> (TagNumbers, &'a [u8]) {
    let mut tags = TagNumbers {
        numbers: [0; MAX_TAGS],
        count: 0,
    };
    for (place, number) in (0..).zip(&mut tags.numbers) {
        let Some(tag) = vlan::tag(frame, place) else { break };
        (*number, tags.count) = (tag.id(), place + 1);
    }
    if tags.count == 0 {
        return (tags, frame);
    }
    buffer.clear();
    buffer.extend_from_slice(frame.get(..ADDRESSES).unwrap_or_default());
    buffer.extend_from_slice(frame.get(ADDRESSES + vlan::LENGTH * tags.count..).unwrap_or_default());
    (tags, buffer)
}

/// Add tags to an untagged frame. The outermost tag comes first.
pub fn tagged(mut frame: Vec<u8>, tags: [Option<Tag>; 2]) -> Vec<u8> {
    let bytes = tags.into_iter().flatten().flat_map(|tag| {
        let ([a, b], [c, d]) = (tag.protocol.to_be_bytes(), tag.control.to_be_bytes());
        [a, b, c, d]
    });
    let place = ADDRESSES.min(frame.len());
    frame.splice(place..place, bytes);
    frame
}

/// ARP probe for an address that a host intends to use (RFC 5227, section 2.1.1).
pub fn probe(mac: Mac, address: Ipv4Addr) -> Vec<u8> {
    question(mac, 0, address)
}

/// ARP announcement of an address (RFC 5227, section 2.3).
pub fn announcement(mac: Mac, address: Ipv4Addr) -> Vec<u8> {
    question(mac, address.to_bits(), address)
}

/// Minimum length of an Ethernet frame without its check sequence.
const SHORTEST: usize = 60;

fn question(mac: Mac, sender: u32, target: Ipv4Addr) -> Vec<u8> {
    let mut frame = vec![0; SHORTEST];
    let mut window = Window::default();
    let mut packet = Packet::new(&mut frame, &mut window);
    arp::emit_request(&mut packet, mac, sender, target.to_bits());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_wire::ethernet::BROADCAST;

    fn datagram(payload: &[u8]) -> Datagram<'_> {
        Datagram {
            source_mac: [2, 0, 0, 0, 0, 7],
            destination_mac: BROADCAST,
            source: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 68),
            destination: SocketAddrV4::new(Ipv4Addr::BROADCAST, 67),
            payload,
        }
    }

    #[test]
    fn frame_is_what_an_independent_builder_makes() {
        let payload: Vec<u8> = (0..=255).cycle().take(301).collect();
        let built = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 7], BROADCAST)
            .ipv4([0; 4], [255; 4], 64)
            .udp(68, 67);
        let mut expected = Vec::new();
        built.write(&mut expected, &payload).expect("a frame");
        // The builder sets the don't-fragment flag. The test frame gets the same flag before the comparison.
        let mut frame = datagram(&payload).frame().expect("a frame");
        let fragment = ethernet::LENGTH + 6;
        let mut header = Ipv4::new(&mut frame[ethernet::LENGTH..]).expect("a header");
        header.set_fragment(u16::from_be_bytes([expected[fragment], expected[fragment + 1]]));
        header.fill_checksum();
        assert_eq!(expected, frame);
    }

    #[test]
    fn frame_leads_back_to_its_datagram_and_padding_is_left_out() {
        let datagram = datagram(b"odd");
        let mut frame = datagram.frame().expect("a frame");
        frame.resize(60, 0);
        assert_eq!(Some(datagram), Datagram::of(&frame));
    }

    #[test]
    fn frame_with_a_byte_changed_is_no_datagram() {
        let frame = datagram(b"payload").frame().expect("a frame");
        for place in ethernet::LENGTH - 2..frame.len() {
            let mut changed = frame.clone();
            changed[place] ^= 0x40;
            assert_eq!(None, Datagram::of(&changed), "byte {place}");
        }
        for length in 0..frame.len() {
            assert_eq!(None, Datagram::of(&frame[..length]), "{length} bytes");
        }
    }
}

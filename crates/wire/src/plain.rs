//! Fast path: parses and validates the most common packets in one pass.
//!
//! The functions of this module accept only packets that are valid under every policy. The result is `None` for other
//! packets, which need [`crate::layers::parse`] and [`crate::validity::validate`].

use core::hint::select_unpredictable;

use crate::checksum;
use crate::ethernet::{self, ethertype};
use crate::field::Mac;
use crate::ipv4::{self, protocol};
use crate::ipv6;
use crate::layers::{self, Class, Flags, Fragment, Layers};
use crate::packet::Checksums;
use crate::validity::{self, Validity};

/// Parses an unfragmented TCP or UDP packet over IPv4 without options. The frame is addressed to `mac` and has `tags`
/// VLAN tags, which are not checked.
#[inline(always)]
pub fn plain4(frame: &[u8], tags: usize, checksums: Checksums, mac: &Mac) -> Option<Layers> {
    let (frame, is_local) = behind(frame, tags, mac)?;
    let head: &[u8; 54] = frame.first_chunk()?;
    let layers = layers::parse_fast(head, frame.len()).filter(|_| is_local)?;
    let network = head.last_chunk::<40>()?.first_chunk()?;
    let payload_length = layers.end.wrapping_sub(layers.l4);
    let good = validity::has_valid_fields(network, layers.protocol, payload_length, layers.tcp_flags)
        && (checksums == Checksums::Vouched
            || (checksums == Checksums::Unverified && validity::has_valid_checksums(frame, layers, network)));
    good.then(|| shifted(layers, tags))
}

/// The frame without its VLAN tags, and whether it is addressed to `mac`. The first 12 bytes of the returned frame are
/// not its MAC addresses. The frame's length fits the 16-bit offsets in `Layers`.
#[inline(always)]
fn behind<'f>(frame: &'f [u8], tags: usize, mac: &Mac) -> Option<(&'f [u8], bool)> {
    let is_local = frame.first_chunk()? == mac;
    let longest = u16::MAX as usize;
    frame
        .get(4 * tags..frame.len().min(longest))
        .map(|frame| (frame, is_local))
}

/// Adds the length of the VLAN tags to the offsets of layers.
#[inline(always)]
fn shifted(layers: Layers, tags: usize) -> Layers {
    let bytes = 4 * tags as u16;
    Layers {
        l3: layers.l3 + bytes,
        l4: layers.l4 + bytes,
        end: layers.end + bytes,
        tags: tags as u8,
        ..layers
    }
}

/// Checks whether a packet needs only routing. Returns the destination, and whether the frame has bytes after the
/// datagram. The frame must be addressed to `mac`. The packet must be unfragmented IPv4 without options, with a unicast
/// destination, at least 20 bytes after the IP header, and a TTL above 1. The function does not check the `tags` VLAN
/// tags. It checks only the checksum of the payload, if the device has not verified it.
#[inline(always)]
pub fn transit4(frame: &[u8], tags: usize, checksums: Checksums, mac: &Mac) -> Option<(u32, bool)> {
    let link = u64::from_le_bytes(*frame.first_chunk()?);
    // Skip the VLAN tags, so that EtherType and data have the offsets of an untagged frame.
    let frame = frame.get(4 * tags..)?;
    let head: &[u8; ethernet::LENGTH + ipv4::LENGTH] = frame.first_chunk()?;
    let [a, b, c, d, e, f] = *mac;
    // EtherType, IP version and header length, type of service, total length.
    let kind = u64::from_be_bytes([
        head[12], head[13], head[14], head[15], head[16], head[17], head[18], head[19],
    ]);
    // Fragment field and TTL, in memory order.
    let life = u32::from_ne_bytes([head[20], head[21], head[22], head[23]]);
    let [more, offset] = (ipv4::MORE_FRAGMENTS | ipv4::FRAGMENT_OFFSET).to_be_bytes();
    let total = (kind >> 16) as u16 as usize;
    let source = u32::from_be_bytes([head[26], head[27], head[28], head[29]]);
    let destination = u32::from_be_bytes([head[30], head[31], head[32], head[33]]);
    let passes = link << 16 == u64::from_le_bytes([0, 0, a, b, c, d, e, f])
        && kind >> 40 == 0x08_0045
        && life & u32::from_ne_bytes([more, offset, 0, 0]) == 0
        // The TTL must be greater than 1.
        && life & u32::from_ne_bytes([0, 0, !1, 0]) != 0
        && total >= ipv4::LENGTH + 20
        && ethernet::LENGTH + total <= frame.len()
        && validity::is_unicast(source)
        && validity::is_unicast(destination)
        && source != destination
        && (checksums == Checksums::Vouched || (checksums == Checksums::Unverified && has_valid_checksums(frame)));
    passes.then_some((destination, ethernet::LENGTH + total != frame.len()))
}

/// Whether the checksums of an unfragmented IPv4 packet without options are correct. ICMP checksums are not checked
/// here.
#[inline(never)]
fn has_valid_checksums(frame: &[u8]) -> bool {
    let network = frame
        .get(ethernet::LENGTH..)
        .and_then(|network| network.first_chunk::<34>());
    let layers = frame
        .first_chunk()
        .and_then(|head| layers::parse_fast(head, frame.len()));
    match (network, layers) {
        (Some(network), Some(layers)) => validity::has_valid_checksums(frame, layers, network),
        (Some(network), None) => {
            let (header, _) = network.split_at(ipv4::LENGTH);
            !matches!(
                header[9],
                protocol::TCP | protocol::UDP | protocol::UDP_LITE | protocol::ICMP
            ) && checksum::sum(header) == 0xffff
        }
        (None, _) => false,
    }
}

/// Parses an unfragmented TCP or UDP packet over IPv6 without extension headers. The frame is addressed to `mac` and
/// has `tags` VLAN tags, which are not checked.
#[inline(always)]
pub fn plain6(frame: &[u8], tags: usize, checksums: Checksums, mac: &Mac) -> Option<Layers> {
    const L4: usize = ethernet::LENGTH + ipv6::LENGTH;
    let (frame, is_local) = behind(frame, tags, mac)?;
    let head: &[u8; L4 + 20] = frame.first_chunk()?;
    let (link, datagram) = head.split_first_chunk::<{ ethernet::LENGTH }>()?;
    let (network, transport) = datagram.split_first_chunk::<{ ipv6::LENGTH }>()?;
    let payload_length = u16::from_be_bytes([network[4], network[5]]);
    let end = L4 + payload_length as usize;
    let protocol = network[6];
    let tcp = protocol == protocol::TCP;
    let min = select_unpredictable(tcp, 20, 8);
    let placed = is_local
        && link[12..] == ethertype::IPV6.to_be_bytes()
        && network[0] >> 4 == 6
        && (tcp | (protocol == protocol::UDP))
        && payload_length >= min
        && end <= frame.len();
    if !placed {
        return None;
    }
    let layers = Layers {
        l3: ethernet::LENGTH as u16,
        l4: L4 as u16,
        end: end as u16,
        source_port: u16::from_be_bytes([transport[0], transport[1]]),
        destination_port: u16::from_be_bytes([transport[2], transport[3]]),
        protocol,
        ttl: network[7],
        tcp_flags: select_unpredictable(tcp, transport[13], 0),
        class: Class::Ipv6,
        fragment: Fragment::Whole,
        tags: 0,
        flags: Flags::PLAIN,
    };
    let (source, destination) = (ipv6::SOURCE.read(network), ipv6::DESTINATION.read(network));
    let good = validity::has_valid_lengths(transport.first_chunk()?, protocol, payload_length, layers.tcp_flags)
        && validity::martian6(source, destination, &layers).is_ok()
        && (checksums == Checksums::Vouched
            || (checksums == Checksums::Unverified && has_valid_checksum(frame, layers)));
    good.then(|| shifted(layers, tags))
}

/// Whether the transport checksum of a plain IPv6 packet is correct.
#[inline(never)]
fn has_valid_checksum(frame: &[u8], layers: Layers) -> bool {
    let (datagram, payload) = (layers.datagram(frame), layers.payload(frame));
    validity::transport_checksum(datagram, payload, Checksums::Unverified, &layers) == Ok(Validity::Valid)
}

//! The short way: a packet as most are is placed and checked in one look.
//!
//! Both functions know only packets in which nothing is wrong, whatever the policy. None stands for every other packet,
//! which [`crate::layers::parse`] places and [`crate::validity::validate`] judges.

use core::hint::select_unpredictable;

use crate::ethernet::{self, ethertype};
use crate::field::Mac;
use crate::ipv4::protocol;
use crate::ipv6;
use crate::layers::{self, Class, Flags, Fragment, Layers};
use crate::packet::Checksums;
use crate::validity::{self, Validity};

/// The layers of an untagged whole TCP or UDP packet to `mac`, over IPv4 without options.
#[inline(always)]
pub fn plain4(frame: &[u8], checksums: Checksums, mac: &Mac) -> Option<Layers> {
    let head: &[u8; 54] = frame.first_chunk()?;
    let (ours, _) = head.split_first_chunk()?;
    let layers = layers::short(head, frame.len()).filter(|_| ours == mac)?;
    let network = head.last_chunk::<40>()?.first_chunk()?;
    let room = layers.end.wrapping_sub(layers.l4);
    let good = validity::short(network, layers.protocol, room, layers.tcp_flags)
        && (checksums == Checksums::Vouched
            || (checksums == Checksums::Unverified && validity::sums_are_right(frame, layers, network)));
    good.then_some(layers)
}

/// The layers of an untagged whole TCP or UDP packet to `mac`, over IPv6 without extension headers.
#[inline(always)]
pub fn plain6(frame: &[u8], checksums: Checksums, mac: &Mac) -> Option<Layers> {
    const L4: usize = ethernet::LENGTH + ipv6::LENGTH;
    let head: &[u8; L4 + 20] = frame.first_chunk()?;
    let (ours, _) = head.split_first_chunk()?;
    let (link, datagram) = head.split_first_chunk::<{ ethernet::LENGTH }>()?;
    let (network, transport) = datagram.split_first_chunk::<{ ipv6::LENGTH }>()?;
    let room = u16::from_be_bytes([network[4], network[5]]);
    let end = L4 + room as usize;
    let protocol = network[6];
    let tcp = protocol == protocol::TCP;
    let least = select_unpredictable(tcp, 20, 8);
    let placed = ours == mac
        && link[12..] == ethertype::IPV6.to_be_bytes()
        && network[0] >> 4 == 6
        && (tcp | (protocol == protocol::UDP))
        && room >= least
        && end <= frame.len().min(u16::MAX as usize);
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
    let good = validity::lengths_are_right(transport.first_chunk()?, protocol, room, layers.tcp_flags)
        && validity::martian6(source, destination, &layers).is_ok()
        && (checksums == Checksums::Vouched || (checksums == Checksums::Unverified && sum_is_right(frame, layers)));
    good.then_some(layers)
}

/// Whether the transport checksum of a plain IPv6 packet is right.
#[inline(never)]
fn sum_is_right(frame: &[u8], layers: Layers) -> bool {
    let (datagram, payload) = (layers.datagram(frame), layers.payload(frame));
    validity::transport_checksum(datagram, payload, Checksums::Unverified, &layers) == Ok(Validity::Valid)
}

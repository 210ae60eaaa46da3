//! What the lane reads and writes in the first bytes of a frame, by address family.

use sluice_nat::rewrite::{rewrite_plain4, rewrite_plain6};
use sluice_nat::tracking::Segment;
use sluice_wire::ethernet::{self, ethertype};
use sluice_wire::field::Mac;
use sluice_wire::ipv4::protocol::{TCP, UDP};
use sluice_wire::key::{KeyWords4, KeyWords6, context4, context6};
use sluice_wire::{Context, Direction, FlowKey4, FlowKey6, Packet, ipv4, ipv6, plain4, plain6};

use crate::session::family::{Family, V4, V6};
use crate::session::record::{Session4, Session6};

/// Number of bytes that the lane reads and writes at most: an untagged frame up to the end of a TCP header without
/// options, for both families.
pub const HEAD: usize = 96;

/// The first bytes of a frame. If the frame is shorter, the bytes after its end have no meaning.
pub type Head = [u8; HEAD];

/// Offset of the transport header.
const L4_OF_V4: usize = ethernet::LENGTH + ipv4::LENGTH;
const L4_OF_V6: usize = ethernet::LENGTH + ipv6::LENGTH;

/// The parts of the lane that depend on the address family.
pub trait LaneFamily: Family {
    /// Length in bytes of the IP header.
    const NETWORK: u16;

    /// The protocol of a plain packet to `mac`: whole, TCP or UDP, without IP options or extension headers, with a hop
    /// limit above 1. `length` is the length of the frame. Neither the transport header nor the addresses are checked:
    /// packets with invalid addresses have no session.
    fn protocol_of_plain(head: &Head, length: usize, mac: &Mac) -> Option<u8>;

    /// Whether the EtherType is that of the other address family.
    fn is_of_other_family(head: &Head) -> bool;

    /// Verifies the checksums of a plain packet in software. Returns whether they are correct.
    fn is_verified(packet: &Packet<'_>, mac: &Mac) -> bool;

    /// The key of a plain packet, and the length of its datagram.
    fn key_of(head: &Head, context: Context) -> (Self::Key, u16);

    /// The transport header of a plain packet.
    fn transport(head: &Head) -> &[u8; 20];

    /// Whether the packet must not be fragmented.
    fn is_atomic(head: &Head) -> bool;

    /// Translates a plain packet of a session and decrements its hop limit.
    fn translate<const IS_TCP: bool>(head: &mut Head, session: &Self::Session, direction: Direction);

    /// The segment of a plain TCP packet with a datagram of this length.
    #[inline(always)]
    fn segment(head: &Head, length: u16) -> Segment {
        Segment::of(Self::transport(head), usize::from(length - Self::NETWORK))
    }
}

#[inline(always)]
fn be16(head: &Head, at: usize) -> u16 {
    u16::from_be_bytes([head[at], head[at + 1]])
}

/// The words of a head up to the TTL or hop limit and the protocol, whose lowest bytes come first in the head.
#[inline(always)]
fn words(head: &Head) -> [u64; 3] {
    let [first, second, third]: [u64; 3] = head.first_chunk::<24>().map_or([0; 3], |bytes| bytemuck::cast(*bytes));
    [first.to_le(), second.to_le(), third.to_le()]
}

/// The bytes of a word that a MAC address in its lowest bytes occupies.
const MAC: u64 = (1 << 48) - 1;

/// A MAC address in the lowest bytes of a word.
#[inline(always)]
fn word_of(mac: &Mac) -> u64 {
    let [a, b, c, d, e, f] = *mac;
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

impl LaneFamily for V4 {
    const NETWORK: u16 = ipv4::LENGTH as u16;

    #[inline(always)]
    fn protocol_of_plain(head: &Head, length: usize, mac: &Mac) -> Option<u8> {
        /// EtherType, IP version and header length.
        const KIND: u64 = u64::from_le_bytes([0, 0, 0, 0, 0x08, 0x00, 0x45, 0]);
        const OF_KIND: u64 = u64::from_le_bytes([0, 0, 0, 0, 0xff, 0xff, 0xff, 0]);
        const FRAGMENT: u16 = ipv4::MORE_FRAGMENTS | ipv4::FRAGMENT_OFFSET;
        let [first, second, third] = words(head);
        let [.., fragment_low, ttl, protocol] = third.to_le_bytes();
        let [total_high, total_low, _, _, fragment_high, ..] = third.to_le_bytes();
        let total = u16::from_be_bytes([total_high, total_low]);
        let fragment = u16::from_be_bytes([fragment_high, fragment_low]) & FRAGMENT;
        let difference = (first ^ word_of(mac)) & MAC | (second ^ KIND) & OF_KIND | u64::from(fragment);
        let is_plain = (difference == 0) & (ttl > 1) & (ethernet::LENGTH + usize::from(total) <= length);
        (is_plain && matches!(protocol, TCP | UDP)).then_some(protocol)
    }

    #[inline(always)]
    fn is_of_other_family(head: &Head) -> bool {
        be16(head, 12) == ethertype::IPV6
    }

    #[inline(never)]
    fn is_verified(packet: &Packet<'_>, mac: &Mac) -> bool {
        plain4(packet.bytes(), 0, packet.checksums(), mac).is_some()
    }

    #[inline(always)]
    fn key_of(head: &Head, context: Context) -> (FlowKey4, u16) {
        let words = head[22..].first_chunk().map_or_else(KeyWords4::default, |headers| {
            KeyWords4::of_headers(headers, context4(context))
        });
        let high = (context >> 24) as u8;
        (FlowKey4 { words, high }, be16(head, 16))
    }

    #[inline(always)]
    fn transport(head: &Head) -> &[u8; 20] {
        head[L4_OF_V4..].first_chunk().unwrap_or(&[0; 20])
    }

    #[inline(always)]
    fn is_atomic(head: &Head) -> bool {
        be16(head, 20) & ipv4::DONT_FRAGMENT != 0
    }

    #[inline(always)]
    fn translate<const IS_TCP: bool>(head: &mut Head, session: &Session4, direction: Direction) {
        let (_, rest) = head.split_at_mut(ethernet::LENGTH);
        if let Some((network, rest)) = rest.split_first_chunk_mut()
            && let Some(transport) = rest.first_chunk_mut()
        {
            let other = &session.keys[direction.opposite() as usize];
            rewrite_plain4(network, transport, !IS_TCP, (other, session.verdict.nat, direction));
        }
    }
}

impl LaneFamily for V6 {
    const NETWORK: u16 = ipv6::LENGTH as u16;

    #[inline(always)]
    fn protocol_of_plain(head: &Head, length: usize, mac: &Mac) -> Option<u8> {
        /// EtherType and IP version.
        const KIND: u64 = u64::from_le_bytes([0, 0, 0, 0, 0x86, 0xdd, 0x60, 0]);
        const OF_KIND: u64 = u64::from_le_bytes([0, 0, 0, 0, 0xff, 0xff, 0xf0, 0]);
        let [first, second, third] = words(head);
        let [_, _, payload_high, payload_low, protocol, hop_limit, ..] = third.to_le_bytes();
        let payload = usize::from(u16::from_be_bytes([payload_high, payload_low]));
        let difference = (first ^ word_of(mac)) & MAC | (second ^ KIND) & OF_KIND;
        let is_plain = (difference == 0) & (hop_limit > 1) & (L4_OF_V6 + payload <= length);
        (is_plain && matches!(protocol, TCP | UDP)).then_some(protocol)
    }

    #[inline(always)]
    fn is_of_other_family(head: &Head) -> bool {
        be16(head, 12) == ethertype::IPV4
    }

    #[inline(never)]
    fn is_verified(packet: &Packet<'_>, mac: &Mac) -> bool {
        plain6(packet.bytes(), 0, packet.checksums(), mac).is_some()
    }

    #[inline(always)]
    fn key_of(head: &Head, context: Context) -> (FlowKey6, u16) {
        let words = head[18..].first_chunk().map_or_else(KeyWords6::default, |headers| {
            KeyWords6::of_headers(headers, context6(context))
        });
        let high = (context >> 24) as u8;
        // The frame contains the datagram, so the sum does not overflow.
        (FlowKey6 { words, high }, be16(head, 18).wrapping_add(Self::NETWORK))
    }

    #[inline(always)]
    fn transport(head: &Head) -> &[u8; 20] {
        head[L4_OF_V6..].first_chunk().unwrap_or(&[0; 20])
    }

    #[inline(always)]
    fn is_atomic(_: &Head) -> bool {
        // Routers do not fragment IPv6.
        true
    }

    #[inline(always)]
    fn translate<const IS_TCP: bool>(head: &mut Head, session: &Session6, direction: Direction) {
        let (_, rest) = head.split_at_mut(ethernet::LENGTH);
        if let Some((network, rest)) = rest.split_first_chunk_mut()
            && let Some(transport) = rest.first_chunk_mut()
        {
            let other = &session.keys[direction.opposite() as usize];
            rewrite_plain6(network, transport, !IS_TCP, (other, session.verdict.nat, direction));
        }
    }
}

//! What the lane reads and writes in the first bytes of a frame, by address family.

use sluice_nat::rewrite::{rewrite_plain4, rewrite_plain6};
use sluice_table::hash::Hasher;
use sluice_table::simd::bytes::Pattern;
use sluice_wire::ethernet::{self, ethertype};
use sluice_wire::field::Mac;
use sluice_wire::ipv4::protocol::{TCP, UDP};
use sluice_wire::key::{KeyWords4, KeyWords6, context4, context6};
use sluice_wire::validity::{has_valid_lengths, is_unicast};
use sluice_wire::{Context, Direction, FlowKey4, FlowKey6, Packet, ipv4, ipv6, plain4, plain6, transit4};

use crate::packet::io::{HEAD, Head};
use crate::session::family::{Family, V4, V6};
use crate::session::record::{Session4, Session6};
use crate::snapshot::MAX_TAGS;

/// The bytes of a head behind its tags: the EtherType is at offset 12, as in an untagged frame.
pub type Untagged = [u8; HEAD - 4 * MAX_TAGS];

/// The bytes of a frame with this number of tags, as if it had none. The bytes before the EtherType have no meaning if there are
/// tags.
#[inline(always)]
pub fn behind<const TAGS: usize>(head: &Head) -> &Untagged {
    head[4 * TAGS..].first_chunk().unwrap_or(&[0; _])
}

/// Like [`behind`], mutable. `None` if there are more than [`MAX_TAGS`] tags.
#[inline(always)]
pub fn behind_mut<const TAGS: usize>(head: &mut Head) -> Option<&mut Untagged> {
    head[4 * TAGS..].first_chunk_mut()
}

/// Offset of the transport header.
const L4_OF_V4: usize = ethernet::LENGTH + ipv4::LENGTH;
const L4_OF_V6: usize = ethernet::LENGTH + ipv6::LENGTH;

/// The parts of the lane that depend on the address family.
pub trait LaneFamily: Family {
    /// A key without the high bits of its context.
    type KeyWords: Copy + Default;
    /// Length in bytes of the IP header.
    const NETWORK: u16;

    /// The pattern of a plain packet to `mac`, or to any MAC: whole, without IP options or extension headers, with a hop limit above
    /// 1. Tags, length, protocol, transport header and addresses are not checked: packets with invalid addresses have no session.
    fn pattern(mac: Option<&Mac>, tags: usize) -> Pattern;

    /// The protocol of a plain packet.
    fn protocol_of(head: &Untagged) -> u8;

    /// The length of the datagram of a packet that matches the pattern. `None` if the frame of this length is too short for it.
    fn length_of(head: &Untagged, frame: u16) -> Option<u16>;

    /// Whether the EtherType is that of the other address family.
    fn is_of_other_family(head: &Untagged) -> bool;

    /// Verifies the checksums of a plain packet in software. Returns whether they are correct.
    fn is_verified(packet: &Packet<'_>, tags: usize, mac: &Mac) -> bool;

    /// The low bits of a context at their place in the words of a key.
    fn context(context: Context) -> u64;

    /// The key of a plain packet. `context` is the result of [`context`](Self::context).
    fn words_of(head: &Untagged, context: u64) -> Self::KeyWords;

    /// The key that has these words. `high` are the high bits of its context.
    fn whole_key(words: Self::KeyWords, high: u8) -> Self::Key;

    /// Whether the key of a session's direction has these words.
    fn has_words(session: &Self::Session, direction: Direction, words: &Self::KeyWords) -> bool;

    /// Hashes keys that have these words. `high` are the high bits of their contexts.
    fn hash_words(hasher: &Hasher, words: &[Self::KeyWords], high: u8, out: &mut [u64]);

    /// The transport header of a plain packet.
    fn transport(head: &Untagged) -> &[u8; 20];

    /// Whether the packet must not be fragmented.
    fn is_atomic(head: &Untagged) -> bool;

    /// Length from which a datagram that matches the pattern may be routed without a complete validation.
    const MIN_ROUTED: u16;

    /// Whether a packet that matches the pattern may be routed, apart from its addresses.
    fn is_routable(head: &Untagged) -> bool;

    /// Whether a packet that matches the pattern is a TCP or UDP packet with a valid transport header.
    fn has_transport(head: &Untagged) -> bool;

    /// Destination port of a TCP or UDP packet.
    #[inline(always)]
    fn destination_port(head: &Untagged) -> u16 {
        let transport = Self::transport(head);
        u16::from_be_bytes([transport[2], transport[3]])
    }

    /// Source of an IPv4 packet.
    fn source_of_v4(head: &Untagged) -> Option<u32>;

    /// Type of service or traffic class.
    fn traffic_class(head: &Untagged) -> u8;

    /// TTL or hop limit.
    fn hop_limit(head: &Untagged) -> u8;

    /// Source and destination.
    fn addresses_of(head: &Untagged) -> [Self::Address; 2];

    /// Whether packets between these addresses may be routed. The result `true` is exact; `false` may be wrong.
    fn may_be_routed(addresses: [Self::Address; 2]) -> bool;

    /// Verifies the checksums of a packet that is only routed in software. Returns whether they are correct.
    fn is_verified_transit(packet: &Packet<'_>, tags: usize, mac: &Mac) -> bool;

    /// Decrements the hop limit.
    fn decrement_hop_limit(head: &mut Untagged);

    /// Translates a plain packet of a session and decrements its hop limit.
    fn translate<const IS_TCP: bool>(head: &mut Untagged, session: &Self::Session, direction: Direction);
}

#[inline(always)]
fn be16(head: &Untagged, at: usize) -> u16 {
    u16::from_be_bytes([head[at], head[at + 1]])
}

/// The pattern of frames to `mac`, or to any MAC.
#[inline(always)]
fn to(mac: Option<&Mac>) -> Pattern {
    mac.map_or(Pattern::ANY, |mac| Pattern::ANY.with(0, *mac))
}

/// Whether the transport header of a packet with this payload is a valid one of TCP or UDP.
#[inline(always)]
fn has_valid_transport(protocol: u8, transport: &[u8; 20], payload: u16) -> bool {
    let is_known = matches!(protocol, TCP | UDP);
    let header = transport.first_chunk();
    is_known && header.is_some_and(|header| has_valid_lengths(header, protocol, payload, transport[13]))
}

impl LaneFamily for V4 {
    type KeyWords = KeyWords4;
    const NETWORK: u16 = ipv4::LENGTH as u16;

    #[inline(always)]
    fn pattern(mac: Option<&Mac>, tags: usize) -> Pattern {
        let at = 4 * tags;
        let [ethertype_high, ethertype_low] = ethertype::IPV4.to_be_bytes();
        let [fragment_high, fragment_low] = (ipv4::MORE_FRAGMENTS | ipv4::FRAGMENT_OFFSET).to_be_bytes();
        to(mac)
            .with(at + 12, [ethertype_high, ethertype_low, 0x45])
            .with_bits(at + 20, fragment_high, 0)
            .with_bits(at + 21, fragment_low, 0)
            .with_minimum(at + 22, 2)
    }

    #[inline(always)]
    fn protocol_of(head: &Untagged) -> u8 {
        head[23]
    }

    #[inline(always)]
    fn length_of(head: &Untagged, frame: u16) -> Option<u16> {
        let length = be16(head, 16);
        (ethernet::LENGTH + usize::from(length) <= usize::from(frame)).then_some(length)
    }

    #[inline(always)]
    fn is_of_other_family(head: &Untagged) -> bool {
        be16(head, 12) == ethertype::IPV6
    }

    #[inline(never)]
    fn is_verified(packet: &Packet<'_>, tags: usize, mac: &Mac) -> bool {
        plain4(packet.bytes(), tags, packet.checksums(), mac).is_some()
    }

    #[inline(always)]
    fn context(context: Context) -> u64 {
        context4(context)
    }

    #[inline(always)]
    fn words_of(head: &Untagged, context: u64) -> KeyWords4 {
        let headers = head[22..].first_chunk();
        headers.map_or_else(KeyWords4::default, |headers| KeyWords4::of_headers(headers, context))
    }

    #[inline(always)]
    fn whole_key(words: KeyWords4, high: u8) -> FlowKey4 {
        FlowKey4 { words, high }
    }

    #[inline(always)]
    fn has_words(session: &Session4, direction: Direction, words: &KeyWords4) -> bool {
        session.has_words(direction, words)
    }

    #[inline(always)]
    fn hash_words(hasher: &Hasher, words: &[KeyWords4], high: u8, out: &mut [u64]) {
        hasher.words4(words, high, out);
    }

    #[inline(always)]
    fn transport(head: &Untagged) -> &[u8; 20] {
        head[L4_OF_V4..].first_chunk().unwrap_or(&[0; 20])
    }

    #[inline(always)]
    fn is_atomic(head: &Untagged) -> bool {
        be16(head, 20) & ipv4::DONT_FRAGMENT != 0
    }

    const MIN_ROUTED: u16 = ipv4::LENGTH as u16 + 20;

    #[inline(always)]
    fn is_routable(_: &Untagged) -> bool {
        true
    }

    #[inline(always)]
    fn has_transport(head: &Untagged) -> bool {
        let payload = be16(head, 16).saturating_sub(Self::NETWORK);
        has_valid_transport(Self::protocol_of(head), Self::transport(head), payload)
    }

    #[inline(always)]
    fn source_of_v4(head: &Untagged) -> Option<u32> {
        Some(Self::addresses_of(head)[0])
    }

    #[inline(always)]
    fn traffic_class(head: &Untagged) -> u8 {
        head[15]
    }

    #[inline(always)]
    fn hop_limit(head: &Untagged) -> u8 {
        head[22]
    }

    #[inline(always)]
    fn addresses_of(head: &Untagged) -> [u32; 2] {
        let address = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        [address(26), address(30)]
    }

    #[inline(always)]
    fn may_be_routed([source, destination]: [u32; 2]) -> bool {
        is_unicast(source) & is_unicast(destination) & (source != destination)
    }

    #[inline(never)]
    fn is_verified_transit(packet: &Packet<'_>, tags: usize, mac: &Mac) -> bool {
        transit4(packet.bytes(), tags, packet.checksums(), mac).is_some()
    }

    #[inline(always)]
    fn decrement_hop_limit(head: &mut Untagged) {
        if let Some(header) = head[ethernet::LENGTH..].first_chunk_mut() {
            ipv4::decrement_header_ttl(header);
        }
    }

    #[inline(always)]
    fn translate<const IS_TCP: bool>(head: &mut Untagged, session: &Session4, direction: Direction) {
        let (_, rest) = head.split_at_mut(ethernet::LENGTH);
        if let Some((network, rest)) = rest.split_first_chunk_mut()
            && let Some(transport) = rest.first_chunk_mut()
        {
            let other = &session.keys[direction as usize ^ 1];
            rewrite_plain4(network, transport, !IS_TCP, (other, session.verdict.nat, direction));
        }
    }
}

impl LaneFamily for V6 {
    type KeyWords = KeyWords6;
    const NETWORK: u16 = ipv6::LENGTH as u16;

    #[inline(always)]
    fn pattern(mac: Option<&Mac>, tags: usize) -> Pattern {
        let at = 4 * tags;
        let [ethertype_high, ethertype_low] = ethertype::IPV6.to_be_bytes();
        to(mac)
            .with(at + 12, [ethertype_high, ethertype_low])
            .with_bits(at + 14, 0xf0, 0x60)
            .with_minimum(at + 21, 2)
    }

    #[inline(always)]
    fn protocol_of(head: &Untagged) -> u8 {
        head[20]
    }

    #[inline(always)]
    fn length_of(head: &Untagged, frame: u16) -> Option<u16> {
        let payload = be16(head, 18);
        (L4_OF_V6 + usize::from(payload) <= usize::from(frame)).then(|| payload + Self::NETWORK)
    }

    #[inline(always)]
    fn is_of_other_family(head: &Untagged) -> bool {
        be16(head, 12) == ethertype::IPV4
    }

    #[inline(never)]
    fn is_verified(packet: &Packet<'_>, tags: usize, mac: &Mac) -> bool {
        plain6(packet.bytes(), tags, packet.checksums(), mac).is_some()
    }

    #[inline(always)]
    fn context(context: Context) -> u64 {
        context6(context)
    }

    #[inline(always)]
    fn words_of(head: &Untagged, context: u64) -> KeyWords6 {
        let headers = head[18..].first_chunk();
        headers.map_or_else(KeyWords6::default, |headers| KeyWords6::of_headers(headers, context))
    }

    #[inline(always)]
    fn whole_key(words: KeyWords6, high: u8) -> FlowKey6 {
        FlowKey6 { words, high }
    }

    #[inline(always)]
    fn has_words(session: &Session6, direction: Direction, words: &KeyWords6) -> bool {
        session.has_words(direction, words)
    }

    #[inline(always)]
    fn hash_words(hasher: &Hasher, words: &[KeyWords6], high: u8, out: &mut [u64]) {
        hasher.words6(words, high, out);
    }

    #[inline(always)]
    fn transport(head: &Untagged) -> &[u8; 20] {
        head[L4_OF_V6..].first_chunk().unwrap_or(&[0; 20])
    }

    #[inline(always)]
    fn is_atomic(_: &Untagged) -> bool {
        // Routers do not fragment IPv6.
        true
    }

    const MIN_ROUTED: u16 = ipv6::LENGTH as u16 + 8;

    #[inline(always)]
    fn is_routable(head: &Untagged) -> bool {
        // There are no extension headers.
        Self::has_transport(head)
    }

    #[inline(always)]
    fn has_transport(head: &Untagged) -> bool {
        has_valid_transport(Self::protocol_of(head), Self::transport(head), be16(head, 18))
    }

    #[inline(always)]
    fn source_of_v4(_: &Untagged) -> Option<u32> {
        None
    }

    #[inline(always)]
    fn traffic_class(head: &Untagged) -> u8 {
        (be16(head, 14) >> 4) as u8
    }

    #[inline(always)]
    fn hop_limit(head: &Untagged) -> u8 {
        head[21]
    }

    #[inline(always)]
    fn addresses_of(head: &Untagged) -> [[u64; 2]; 2] {
        let half = |at: usize| {
            let bytes = head[at..].first_chunk();
            bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
        };
        [[half(22), half(30)], [half(38), half(46)]]
    }

    #[inline(always)]
    fn may_be_routed([source, destination]: [[u64; 2]; 2]) -> bool {
        // Global unicast addresses 2000::/3 and unique local addresses fc00::/7.
        let is_unicast = |[high, _]: [u64; 2]| (high >> 61 == 1) | (high >> 57 == 0x7e);
        is_unicast(source) & is_unicast(destination) & (source[0] != destination[0] || source[1] != destination[1])
    }

    #[inline(never)]
    fn is_verified_transit(packet: &Packet<'_>, tags: usize, mac: &Mac) -> bool {
        Self::is_verified(packet, tags, mac)
    }

    #[inline(always)]
    fn decrement_hop_limit(head: &mut Untagged) {
        head[21] = head[21].wrapping_sub(1);
    }

    #[inline(always)]
    fn translate<const IS_TCP: bool>(head: &mut Untagged, session: &Session6, direction: Direction) {
        let (_, rest) = head.split_at_mut(ethernet::LENGTH);
        if let Some((network, rest)) = rest.split_first_chunk_mut()
            && let Some(transport) = rest.first_chunk_mut()
        {
            let other = &session.keys[direction as usize ^ 1];
            rewrite_plain6(network, transport, !IS_TCP, (other, session.verdict.nat, direction));
        }
    }
}

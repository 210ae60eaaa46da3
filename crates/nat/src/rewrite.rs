//! Fast path: rewrites the addresses, ports, checksums and hop count of a packet in one pass.
//!
//! Checksums are updated incrementally with precomputed changes from the decision, so an incorrect checksum stays
//! incorrect.

use core::hint::select_unpredictable;

use sluice_wire::checksum::{self, Delta};
use sluice_wire::key::{KeyWords4, KeyWords6};
use sluice_wire::layers::{Flags, Fragment, Layers};
use sluice_wire::{Direction, Tuple4, Tuple6};

use crate::{Decision, Tuple};

/// Fields of a transport header that a rewrite changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Transport {
    /// TCP: ports, and checksum at offset 16.
    Tcp,
    /// UDP: ports, and checksum at offset 6, where 0 means no checksum. UDP-Lite also has its checksum at offset 6. A
    /// UDP-Lite checksum covers the ports for any coverage length. An update never results in 0, because a UDP-Lite
    /// checksum of 0 is invalid (RFC 3828, section 3.1).
    Udp,
    /// ICMP or ICMPv6 query: identifier at offset 4, and checksum at offset 2.
    Query,
    /// DCCP: only the checksum at offset 6, which covers the addresses. DCCP ports are not rewritten.
    AddressesOnly,
    /// No fields. Applies to later fragments, and to protocols without a checksum over the addresses.
    None,
}

impl Transport {
    /// Fields to rewrite in a parsed packet. ICMP messages other than queries have no identifier.
    #[inline(always)]
    pub fn of_layers(layers: &Layers) -> Self {
        let transport = Self::of(layers.protocol, layers.fragment == Fragment::Later);
        if transport == Transport::Query && !layers.flags.has(Flags::ICMP_QUERY) {
            Transport::None
        } else {
            transport
        }
    }

    /// Fields to rewrite for a protocol. `later` is true for later fragments.
    #[inline(always)]
    pub fn of(protocol: u8, later: bool) -> Self {
        match protocol {
            _ if later => Transport::None,
            6 => Transport::Tcp,
            17 | 136 => Transport::Udp,
            1 | 58 => Transport::Query,
            33 => Transport::AddressesOnly,
            _ => Transport::None,
        }
    }
}

/// Rewrite of the packets of one direction of a session.
#[derive(Clone, Copy, Debug)]
pub struct Rewrite<'a, T> {
    /// Key of the opposite direction. Source and destination of the rewritten packet are the destination and source of
    /// this key.
    pub(crate) other: &'a T,
    pub(crate) l3: Delta,
    pub(crate) l4: Delta,
}

impl<'a, T> Rewrite<'a, T> {
    /// Creates the rewrite from the keys and the decision of a session.
    #[inline(always)]
    pub fn new(forward: &'a T, reverse: &'a T, decision: Decision, direction: Direction) -> Self {
        let other = select_unpredictable(direction == Direction::Forward, reverse, forward);
        Self {
            other,
            l3: decision.l3(direction),
            l4: decision.l4(direction),
        }
    }
}

/// Writes bytes at offset `at`. Unlike copies of slices, assignments of arrays never become calls.
#[inline(always)]
fn put<const N: usize, const M: usize>(header: &mut [u8; N], at: usize, value: [u8; M]) {
    if let Some(place) = header.get_mut(at..).and_then(|rest| rest.first_chunk_mut()) {
        *place = value;
    }
}

/// Updates the checksum field at offset `at`.
#[inline(always)]
fn update_checksum<const N: usize>(header: &mut [u8; N], at: usize, delta: Delta) {
    let field = u16::from_be_bytes([header[at], header[at + 1]]);
    put(header, at, delta.apply(field).to_be_bytes());
}

/// The updated value of a UDP checksum. A missing checksum stays missing, and a result of 0 is written as all ones (RFC
/// 768).
#[inline(always)]
pub(crate) fn udp_checksum(field: u16, delta: Delta) -> u16 {
    let changed = delta.apply(field);
    let changed = if changed == 0 { 0xffff } else { changed };
    if field == 0 { 0 } else { changed }
}

/// The updated value of a TCP or UDP checksum. The code has no branch, because a branch on TCP or UDP would be
/// mispredicted often.
#[inline(always)]
fn changed(field: u16, udp: bool, l4: Delta) -> u16 {
    // Adding the opposite change has the same result as `apply`, but never 0 unless the field is 0.
    let datagram = select_unpredictable(field == 0, 0, checksum::add(field, !l4.0));
    select_unpredictable(udp, datagram, l4.apply(field))
}

/// Source and destination port of the rewritten packet, taken from the key of the opposite direction.
#[inline(always)]
fn ports<T: Tuple>(other: &T) -> u32 {
    u32::from(other.destination_port()) << 16 | u32::from(other.source_port())
}

/// Rewrites addresses, checksum and TTL of an IPv4 header.
#[inline(always)]
fn network4(header: &mut [u8; 20], rewrite: &Rewrite<'_, Tuple4>, hops: u8) {
    let other = rewrite.other;
    // Subtracting `hops` from the TTL subtracts hops * 256 from the 16-bit word of TTL and protocol.
    let changed = rewrite.l3.and(Delta(!(u16::from(hops) << 8)));
    header[8] = header[8].wrapping_sub(hops);
    update_checksum(header, 10, changed);
    let addresses = u64::from(other.destination) << 32 | u64::from(other.source);
    put(header, 12, addresses.to_be_bytes());
}

/// Rewrites addresses and hop limit of an IPv6 header.
#[inline(always)]
fn network6(header: &mut [u8; 40], rewrite: &Rewrite<'_, Tuple6>, hops: u8) {
    let other = rewrite.other;
    header[7] = header[7].wrapping_sub(hops);
    let words = [
        other.destination[0],
        other.destination[1],
        other.source[0],
        other.source[1],
    ];
    for (bytes, word) in header[8..].as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_be_bytes();
    }
}

/// Rewrites a plain IPv4 packet ([`Flags::PLAIN`]) of a session, and subtracts 1 from its TTL, which must be larger.
/// `other` is the session's key of the opposite direction.
#[inline(always)]
pub fn rewrite_plain4(
    network: &mut [u8; 20],
    transport: &mut [u8; 20],
    udp: bool,
    (other, decision, direction): (&KeyWords4, Decision, Direction),
) {
    let [l3, l4] = decision.in_packet_order(direction);
    // Subtracting 1 from the TTL subtracts 1 from the first byte of the word of TTL and protocol.
    let hop = !u16::from_ne_bytes([1, 0]);
    let sum = l3.apply_with(hop, u16::from_ne_bytes([network[10], network[11]]));
    network[8] = network[8].wrapping_sub(1);
    put(network, 10, sum.to_ne_bytes());
    let (addresses, ports) = other.opposite_ends();
    put(network, 12, addresses);
    plain_transport(transport, udp, ports, l4);
}

/// Rewrites a plain IPv6 packet of a session, and subtracts 1 from its hop limit, which must be larger. `other` is the
/// session's key of the opposite direction.
#[inline(always)]
pub fn rewrite_plain6(
    network: &mut [u8; 40],
    transport: &mut [u8; 20],
    udp: bool,
    (other, decision, direction): (&KeyWords6, Decision, Direction),
) {
    network[7] = network[7].wrapping_sub(1);
    let (addresses, ports) = other.opposite_ends();
    put(network, 8, addresses);
    let [_, l4] = decision.in_packet_order(direction);
    plain_transport(transport, udp, ports, l4);
}

/// Rewrites ports and checksum in the TCP or UDP header of a plain packet. `l4` is in the byte order of the packet's
/// memory.
#[inline(always)]
fn plain_transport(header: &mut [u8; 20], udp: bool, ports: [u8; 4], l4: Delta) {
    let (tcp_field, udp_field) = ([header[16], header[17]], [header[6], header[7]]);
    let field = u16::from_ne_bytes(select_unpredictable(udp, udp_field, tcp_field));
    let at = select_unpredictable(udp, 6, 16);
    let after = changed(field, udp, l4).to_ne_bytes();
    put(header, 0, ports);
    put(header, at, after);
}

/// Identifier of an ICMP query of this type. The key contains the identifier as the port of the requesting host.
#[inline(always)]
pub(crate) fn identifier(kind: u8, ports: u32) -> u16 {
    // Reply types of both families. None of these values is a request type in the other family.
    let is_reply = matches!(kind, 0 | 14 | 18 | 129);
    if is_reply { ports as u16 } else { (ports >> 16) as u16 }
}

/// Rewrites ports (source and destination in one word), identifier and checksum of a transport header. Returns false if
/// `bytes` is too short. TCP and UDP share one code path, because a branch between TCP and UDP would be mispredicted
/// often.
#[inline(always)]
fn transport_header(bytes: &mut [u8], transport: Transport, ports: u32, l4: Delta) -> bool {
    if matches!(transport, Transport::Tcp | Transport::Udp) {
        let udp = transport == Transport::Udp;
        let at = select_unpredictable(udp, 6, 16);
        let Some(field) = bytes.get_mut(at..).and_then(|tail| tail.first_chunk_mut::<2>()) else {
            return false;
        };
        *field = changed(u16::from_be_bytes(*field), udp, l4).to_be_bytes();
        let Some(header) = bytes.first_chunk_mut::<4>() else {
            return false;
        };
        *header = ports.to_be_bytes();
        return true;
    }
    let Some(header) = bytes.first_chunk_mut::<8>() else {
        return transport == Transport::None;
    };
    match transport {
        Transport::Query => {
            update_checksum(header, 2, l4);
            let identifier = identifier(header[0], ports);
            put(header, 4, identifier.to_be_bytes());
        }
        Transport::AddressesOnly => update_checksum(header, 6, l4),
        Transport::Tcp | Transport::Udp | Transport::None => {}
    }
    true
}

/// Rewrites an IPv4 packet with its IP header at offset `l3` and its transport header at `l4`. Subtracts `hops` from
/// the TTL, which must be larger. Returns false if the frame ends before a rewritten field; the caller must then drop
/// the packet. The function makes no other checks.
#[inline(always)]
pub fn rewrite4(
    frame: &mut [u8],
    l3: usize,
    l4: usize,
    transport: Transport,
    rewrite: &Rewrite<'_, Tuple4>,
    hops: u8,
) -> bool {
    let Some(header) = frame.get_mut(l3..).and_then(|tail| tail.first_chunk_mut::<20>()) else {
        return false;
    };
    network4(header, rewrite, hops);
    let ports = ports(rewrite.other);
    let Some(tail) = frame.get_mut(l4..) else { return false };
    transport_header(tail, transport, ports, rewrite.l4)
}

/// Rewrites an IPv6 packet. See [`rewrite4`] for parameters and result.
#[inline(always)]
pub fn rewrite6(
    frame: &mut [u8],
    l3: usize,
    l4: usize,
    transport: Transport,
    rewrite: &Rewrite<'_, Tuple6>,
    hops: u8,
) -> bool {
    let Some(header) = frame.get_mut(l3..).and_then(|tail| tail.first_chunk_mut::<40>()) else {
        return false;
    };
    network6(header, rewrite, hops);
    let ports = ports(rewrite.other);
    let Some(tail) = frame.get_mut(l4..) else { return false };
    transport_header(tail, transport, ports, rewrite.l4)
}

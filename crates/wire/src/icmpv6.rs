//! ICMPv6 (RFC 4443).

use crate::checksum::{self, Delta};
use crate::ethernet::{self, Link, ethertype};
use crate::field::header;
use crate::icmp::Error;
use crate::ipv4::protocol;
use crate::ipv6;
use crate::layers::{Class, Flags, Fragment, Layers};
use crate::packet::Packet;

header! {
    /// An ICMPv6 message: its fixed part and the data after it.
    Icmpv6 8
    "Type." kind: u8 = KIND @ 0, set_kind;
    "Code." code: u8 = CODE @ 1, set_code;
    "Checksum over pseudo-header and message." checksum: u16 = CHECKSUM @ 2, set_checksum;
    "Identifier of an echo." identifier: u16 = IDENTIFIER @ 4, set_identifier;
    "Sequence number of an echo." sequence: u16 = SEQUENCE @ 6, set_sequence;
    "Second word: parameter of an error, as the MTU of packet too big." parameter: u32 = PARAMETER @ 4, set_parameter;
}

/// ICMPv6 message types.
pub mod kind {
    /// Destination unreachable.
    pub const UNREACHABLE: u8 = 1;
    /// Packet too big.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 128;
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 129;
    /// Router solicitation (RFC 4861).
    pub const ROUTER_SOLICITATION: u8 = 133;
    /// Router advertisement (RFC 4861).
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    /// Neighbour solicitation (RFC 4861).
    pub const NEIGHBOUR_SOLICITATION: u8 = 135;
    /// Neighbour advertisement (RFC 4861).
    pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
    /// Redirect (RFC 4861).
    pub const REDIRECT: u8 = 137;
}

/// Codes of destination unreachable.
pub mod unreachable {
    /// No route to the destination.
    pub const NO_ROUTE: u8 = 0;
    /// Communication administratively prohibited.
    pub const PROHIBITED: u8 = 1;
    /// Address unreachable.
    pub const ADDRESS: u8 = 3;
    /// Port unreachable.
    pub const PORT: u8 = 4;
}

/// Flags of an ICMPv6 message type: error, echo request, or echo reply. Other types have no flags.
#[inline]
pub fn flags(kind: u8) -> Flags {
    match kind {
        0..128 => Flags::ICMP_ERROR,
        kind::ECHO_REQUEST => Flags::ICMP_QUERY,
        kind::ECHO_REPLY => Flags::ICMP_QUERY.with(Flags::ICMP_REPLY),
        _ => Flags(0),
    }
}

/// The hop limit expired in transit.
pub const HOP_LIMIT_EXCEEDED: Error = Error {
    kind: kind::TIME_EXCEEDED,
    code: 0,
    parameter: 0,
};

/// Destination unreachable with this code.
pub const fn unreachable_error(code: u8) -> Error {
    Error {
        kind: kind::UNREACHABLE,
        code,
        parameter: 0,
    }
}

/// The packet exceeds the next hop's MTU.
pub const fn packet_too_big(mtu: u32) -> Error {
    Error {
        kind: kind::PACKET_TOO_BIG,
        code: 0,
        parameter: mtu,
    }
}

/// Maximum length in bytes of an IPv6 packet that carries an ICMP error: the minimum MTU (RFC 4443, section 2.4 c).
pub const LONGEST_ERROR: usize = 1280;

/// Whether an ICMPv6 error may be sent for an IPv6 packet (RFC 4443, section 2.4 e). An ICMPv6 error must not be sent
/// for an ICMPv6 error, a redirect, or a packet whose source is not a single host. For a packet to a group address,
/// only the error "packet too big" (`too_big`) may be sent. Unlike in IPv4 (RFC 1812, section 4.3.2.7), an error may be
/// sent for a later fragment, because errors and redirects are never fragmented (RFC 4443, section 2.4 c; RFC 6980).
pub fn may_send_error(frame: &[u8], layers: &Layers, too_big: bool) -> bool {
    let datagram = layers.datagram(frame);
    let source = ipv6::SOURCE.read(datagram);
    let group = layers.flags.has(Flags::MULTICAST) || ipv6::DESTINATION.read(datagram) >> 120 == 0xff;
    let has_kind = layers.protocol == protocol::ICMPV6 && layers.fragment != Fragment::Later;
    let redirect = has_kind && KIND.read(layers.payload(frame)) == kind::REDIRECT;
    layers.class == Class::Ipv6
        && !layers.flags.has(Flags::ICMP_ERROR)
        && !redirect
        && (too_big || !group)
        && source != 0
        && source >> 120 != 0xff
}

/// Writes to `packet` an ICMPv6 message of `length` bytes, which are zero except for type and code. Returns the message
/// and the sum of its pseudo-header. The caller completes the message, and passes message and sum to [`finish`].
/// `None`, without effect, if the buffer is too small.
pub(crate) fn start<'p>(
    packet: &'p mut Packet<'_>,
    link: Link,
    (source, destination): (u128, u128),
    hop_limit: u8,
    (kind, code): (u8, u8),
    length: usize,
) -> Option<(&'p mut [u8], u16)> {
    let body = ethernet::start(packet, link, ethertype::IPV6, ipv6::LENGTH + length)?;
    let (header, message) = body.split_at_mut_checked(ipv6::LENGTH)?;
    ipv6::VERSION_CLASS_FLOW.write(header, 6 << 28);
    ipv6::PAYLOAD_LENGTH.write(header, length as u16);
    ipv6::NEXT_HEADER.write(header, protocol::ICMPV6);
    ipv6::HOP_LIMIT.write(header, hop_limit);
    ipv6::SOURCE.write(header, source);
    ipv6::DESTINATION.write(header, destination);
    KIND.write(message, kind);
    CODE.write(message, code);
    Some((
        message,
        checksum::pseudo6(source, destination, protocol::ICMPV6, length as u16),
    ))
}

/// Writes the checksum of a complete message. The checksum field must be zero before.
pub(crate) fn finish(message: &mut [u8], pseudo: u16) {
    CHECKSUM.write(message, !checksum::add(checksum::sum(message), pseudo));
}

/// Writes to `packet` an ICMPv6 error from `source` to `destination`. The error quotes `datagram`, up to a total length
/// of 1,280 bytes. Returns false, without effect, if the buffer is too small.
pub fn emit_error(
    packet: &mut Packet<'_>,
    link: Link,
    source: u128,
    destination: u128,
    error: Error,
    datagram: &[u8],
) -> bool {
    let quote = datagram
        .get(..LONGEST_ERROR - ipv6::LENGTH - LENGTH)
        .unwrap_or(datagram);
    let kind = (error.kind, error.code);
    let Some((message, pseudo)) = start(packet, link, (source, destination), 64, kind, LENGTH + quote.len()) else {
        return false;
    };
    PARAMETER.write(message, error.parameter);
    for (to, from) in message.iter_mut().skip(LENGTH).zip(quote) {
        *to = *from;
    }
    finish(message, pseudo);
    true
}

/// Whether a packet is an echo request or a fragment of an echo request. A later fragment has no ICMPv6 header, so
/// virtual reassembly must have set the port fields in its `layers`.
pub fn is_echo_request(frame: &[u8], layers: &Layers) -> bool {
    let is_request = layers.destination_port.wrapping_sub(layers.source_port) == kind::ECHO_REQUEST.into();
    layers.class == Class::Ipv6
        && layers.protocol == protocol::ICMPV6
        && match layers.fragment {
            Fragment::Later => is_request,
            Fragment::Whole | Fragment::First => KIND.read(layers.payload(frame)) == kind::ECHO_REQUEST,
        }
}

/// Converts an echo request into an echo reply from `source`, in place. Returns false, without effect, for other
/// packets. The caller sets the Ethernet header.
pub fn answer_echo(frame: &mut [u8], layers: &Layers, source: u128) -> bool {
    if !is_echo_request(frame, layers) {
        return false;
    }
    let datagram = layers.datagram_mut(frame);
    let (sender, queried) = (ipv6::SOURCE.read(datagram), ipv6::DESTINATION.read(datagram));
    ipv6::DESTINATION.write(datagram, sender);
    ipv6::SOURCE.write(datagram, source);
    ipv6::HOP_LIMIT.write(datagram, 64);
    if layers.fragment == Fragment::Later {
        return true;
    }
    let message = layers.payload_mut(frame);
    let delta = Delta::default()
        .word((kind::ECHO_REQUEST as u16) << 8, (kind::ECHO_REPLY as u16) << 8)
        .quad((queried >> 64) as u64, (source >> 64) as u64)
        .quad(queried as u64, source as u64);
    KIND.write(message, kind::ECHO_REPLY);
    CHECKSUM.write(message, delta.apply(CHECKSUM.read(message)));
    true
}

//! ICMP (RFC 792).

use crate::checksum::{self, Delta};
use crate::ethernet::{self, Link, ethertype};
use crate::field::header;
use crate::ipv4::{self, protocol};
use crate::layers::{Class, Flags, Fragment, Layers};
use crate::packet::Packet;

header! {
    /// An ICMP message: its fixed part and the data after it.
    Icmp 8
    "Type." kind: u8 = KIND @ 0, set_kind;
    "Code." code: u8 = CODE @ 1, set_code;
    "Checksum over the message." checksum: u16 = CHECKSUM @ 2, set_checksum;
    "Identifier of a query." identifier: u16 = IDENTIFIER @ 4, set_identifier;
    "Sequence number of a query, or the next hop's MTU of a fragmentation-needed error (RFC 1191)." sequence: u16 = SEQUENCE @ 6, set_sequence;
    "Second word: parameter of an error." parameter: u32 = PARAMETER @ 4, set_parameter;
}

/// ICMP message types.
pub mod kind {
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination unreachable.
    pub const UNREACHABLE: u8 = 3;
    /// Source quench.
    pub const SOURCE_QUENCH: u8 = 4;
    /// Redirect.
    pub const REDIRECT: u8 = 5;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 8;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 12;
}

/// Codes of destination unreachable.
pub mod unreachable {
    /// Network unreachable.
    pub const NETWORK: u8 = 0;
    /// Host unreachable.
    pub const HOST: u8 = 1;
    /// Protocol unreachable.
    pub const PROTOCOL: u8 = 2;
    /// Port unreachable.
    pub const PORT: u8 = 3;
    /// Fragmentation needed, but the don't-fragment flag is set.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// Communication administratively prohibited (RFC 1812, section 5.2.7.1).
    pub const PROHIBITED: u8 = 13;
}

/// Flags of an ICMP message type: error, query, or reply to a query (RFC 5508, section 2). Other types have no flags,
/// including the obsolete information requests (RFC 5508, REQ-10c; RFC 6918).
#[inline]
pub fn flags(kind: u8) -> Flags {
    match kind {
        0 | 14 | 18 => Flags::ICMP_QUERY.with(Flags::ICMP_REPLY),
        8 | 13 | 17 => Flags::ICMP_QUERY,
        3 | 4 | 5 | 11 | 12 => Flags::ICMP_ERROR,
        _ => Flags(0),
    }
}

/// The request type that corresponds to a reply type. A request type is returned unchanged.
#[inline]
pub fn request(kind: u8) -> u8 {
    match kind {
        kind::ECHO_REPLY => kind::ECHO_REQUEST,
        // Timestamp and address mask replies.
        14 | 18 => kind - 1,
        other => other,
    }
}

/// An ICMP error: type, code, and the second 32-bit word of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// ICMP type of the error.
    pub kind: u8,
    /// ICMP code of the error.
    pub code: u8,
    /// Second 32-bit word of the message: pointer, MTU, redirect gateway, or 0.
    pub parameter: u32,
}

impl Error {
    /// The time to live expired in transit.
    pub const TIME_EXCEEDED: Error = Error {
        kind: kind::TIME_EXCEEDED,
        code: 0,
        parameter: 0,
    };

    /// Destination unreachable with this code.
    pub const fn unreachable(code: u8) -> Error {
        Error {
            kind: kind::UNREACHABLE,
            code,
            parameter: 0,
        }
    }

    /// Redirect for a host: use another gateway (RFC 1812, section 5.2.7.2).
    pub const fn redirect(gateway: u32) -> Error {
        Error {
            kind: kind::REDIRECT,
            code: 1,
            parameter: gateway,
        }
    }

    /// The datagram exceeds the MTU of the next hop, and its don't-fragment flag is set (RFC 1191).
    pub const fn fragmentation_needed(mtu: u16) -> Error {
        Error {
            kind: kind::UNREACHABLE,
            code: unreachable::FRAGMENTATION_NEEDED,
            parameter: mtu as u32,
        }
    }
}

/// Maximum length in bytes of an IPv4 datagram that carries an ICMP error (RFC 1812, section 4.3.2.3).
pub const MAX_ERROR: usize = 576;

/// Whether an ICMP error may be sent for an IPv4 packet (RFC 1812, section 4.3.2.7). An ICMP error must not be sent for
/// an ICMP error, a later fragment, a packet to a group address, or a packet whose source is not a single host.
pub fn may_send_error(frame: &[u8], layers: &Layers) -> bool {
    let datagram = layers.datagram(frame);
    let (source, destination) = (ipv4::SOURCE.read(datagram), ipv4::DESTINATION.read(datagram));
    layers.class == Class::Ipv4
        && layers.fragment != Fragment::Later
        && !layers.flags.has(Flags::ICMP_ERROR.with(Flags::MULTICAST))
        && destination >> 28 != 0xe
        && source >> 28 != 0xe
        && destination != u32::MAX
        && source != u32::MAX
        && !matches!(source >> 24, 0 | 127)
}

/// Writes to `packet` an ICMP error from `source` to `destination`. The error quotes `datagram`, up to a total length
/// of 576 bytes. Returns false, without effect, if the buffer is too small.
pub fn emit_error(
    packet: &mut Packet<'_>,
    link: Link,
    source: u32,
    destination: u32,
    error: Error,
    datagram: &[u8],
) -> bool {
    const HEAD: usize = ipv4::LENGTH + LENGTH;
    let quote = datagram.get(..MAX_ERROR - HEAD).unwrap_or(datagram);
    let total = HEAD + quote.len();
    let Some(body) = ethernet::start(packet, link, ethertype::IPV4, total) else {
        return false;
    };
    let Some((header, message)) = body.split_at_mut_checked(ipv4::LENGTH) else {
        return false;
    };
    ipv4::VERSION_LENGTH.write(header, 0x45);
    // The type of service has the precedence "internetwork control" (RFC 1812, section 4.3.2.5).
    ipv4::SERVICE.write(header, 0xc0);
    ipv4::TOTAL_LENGTH.write(header, total as u16);
    ipv4::FRAGMENT.write(header, ipv4::DONT_FRAGMENT);
    ipv4::TTL.write(header, 64);
    ipv4::PROTOCOL.write(header, protocol::ICMP);
    ipv4::SOURCE.write(header, source);
    ipv4::DESTINATION.write(header, destination);
    ipv4::CHECKSUM.write(header, checksum::checksum(header));
    KIND.write(message, error.kind);
    CODE.write(message, error.code);
    PARAMETER.write(message, error.parameter);
    for (to, from) in message.iter_mut().skip(LENGTH).zip(quote) {
        *to = *from;
    }
    CHECKSUM.write(message, checksum::checksum(message));
    true
}

/// Whether a packet is an echo request or a fragment of an echo request. A later fragment has no ICMP header, so
/// virtual reassembly must have set the port fields in its `layers`.
pub fn is_echo_request(frame: &[u8], layers: &Layers) -> bool {
    let is_request = layers.destination_port.wrapping_sub(layers.source_port) == kind::ECHO_REQUEST.into();
    layers.class == Class::Ipv4
        && layers.protocol == protocol::ICMP
        && match layers.fragment {
            Fragment::Later => is_request,
            Fragment::Whole | Fragment::First => KIND.read(layers.payload(frame)) == kind::ECHO_REQUEST,
        }
}

/// Converts an echo request or its fragment into an echo reply from `source`, in place. Returns false, without effect,
/// for other packets. The caller sets the Ethernet header.
pub fn answer_echo(frame: &mut [u8], layers: &Layers, source: u32) -> bool {
    if !is_echo_request(frame, layers) {
        return false;
    }
    let datagram = layers.datagram_mut(frame);
    ipv4::DESTINATION.write(datagram, ipv4::SOURCE.read(datagram));
    ipv4::SOURCE.write(datagram, source);
    ipv4::TTL.write(datagram, 64);
    if let Some(mut header) = ipv4::Ipv4::new(datagram) {
        header.fill_checksum();
    }
    if layers.fragment == Fragment::Later {
        return true;
    }
    let message = layers.payload_mut(frame);
    let delta = Delta::default().word((kind::ECHO_REQUEST as u16) << 8, (kind::ECHO_REPLY as u16) << 8);
    KIND.write(message, kind::ECHO_REPLY);
    CHECKSUM.write(message, delta.apply(CHECKSUM.read(message)));
    true
}

//! ICMPv6 (RFC 4443).

use crate::field::header;
use crate::layers::Flags;

header! {
    /// An ICMPv6 message: its fixed part and what follows it.
    Icmpv6 8
    "Type." kind: u8 = KIND @ 0, set_kind;
    "Code." code: u8 = CODE @ 1, set_code;
    "Checksum over pseudo-header and message." checksum: u16 = CHECKSUM @ 2, set_checksum;
    "Identifier of an echo." identifier: u16 = IDENTIFIER @ 4, set_identifier;
    "Sequence number of an echo." sequence: u16 = SEQUENCE @ 6, set_sequence;
    "Second word: parameter of an error, as the MTU of packet too big." parameter: u32 = PARAMETER @ 4, set_parameter;
}

/// Types.
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

/// What a message of this type is: error, echo request, echo reply, or none of them.
#[inline]
pub fn flags(kind: u8) -> Flags {
    match kind {
        0..128 => Flags::ICMP_ERROR,
        kind::ECHO_REQUEST => Flags::ICMP_QUERY,
        kind::ECHO_REPLY => Flags::ICMP_QUERY.with(Flags::ICMP_REPLY),
        _ => Flags(0),
    }
}

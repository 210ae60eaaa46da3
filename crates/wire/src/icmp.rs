//! ICMP (RFC 792).

use crate::field::header;
use crate::layers::Flags;

header! {
    /// An ICMP message: its fixed part and what follows it.
    Icmp 8
    "Type." kind: u8 = KIND @ 0, set_kind;
    "Code." code: u8 = CODE @ 1, set_code;
    "Checksum over the message." checksum: u16 = CHECKSUM @ 2, set_checksum;
    "Identifier of a query." identifier: u16 = IDENTIFIER @ 4, set_identifier;
    "Sequence number of a query, or the next hop's MTU of a fragmentation-needed error (RFC 1191)." sequence: u16 = SEQUENCE @ 6, set_sequence;
    "Second word: parameter of an error." parameter: u32 = PARAMETER @ 4, set_parameter;
}

/// Types.
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
    /// Fragmentation needed, but the datagram forbids it.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// Communication administratively prohibited (RFC 1812, 5.2.7.1).
    pub const PROHIBITED: u8 = 13;
}

/// What a message of this type is: error, query, reply to a query (RFC 5508, 2), or none of them.
#[inline]
pub fn flags(kind: u8) -> Flags {
    match kind {
        0 | 14 | 16 | 18 => Flags::ICMP_QUERY.with(Flags::ICMP_REPLY),
        8 | 13 | 15 | 17 => Flags::ICMP_QUERY,
        3 | 4 | 5 | 11 | 12 => Flags::ICMP_ERROR,
        _ => Flags(0),
    }
}

//! Conditions on packet headers.

use std::ops::RangeInclusive;

use crate::signature::{Bits, Condition, Sender};

/// Fields of a packet, other than its data, that rules test.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketFields {
    /// Fields of the IP header.
    pub ip: IpFields,
    /// Fields of the TCP header, if the packet is TCP.
    pub tcp: Option<TcpFields>,
    /// Fields of the ICMP or ICMPv6 header, if the packet has one.
    pub icmp: Option<IcmpFields>,
    /// Length of the payload in bytes.
    pub payload: u32,
    /// Bytes of the stream sent so far, by the client and by the server.
    pub sent: [u64; 2],
}

/// Fields of the IP header.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct IpFields {
    pub ttl: u8,
    pub type_of_service: u8,
    pub protocol: u8,
    /// Identification field of the IPv4 header.
    pub identification: Option<u16>,
    /// Flags of the fragment field: reserved 4, don't fragment 2, more fragments 1.
    pub fragment_bits: u8,
    /// Fragment offset in units of 8 bytes.
    pub fragment_offset: u16,
    /// Whether the source and destination addresses are equal.
    pub same_address: bool,
}

/// Fields of the TCP header.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct TcpFields {
    pub flags: u8,
    pub sequence: u32,
    pub acknowledgement: u32,
    pub window: u16,
}

/// Fields of the ICMP header. Identifier and sequence number are 0 for ICMP types without these fields.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct IcmpFields {
    pub kind: u8,
    pub code: u8,
    pub identifier: u16,
    pub sequence: u16,
}

impl PacketFields {
    /// Whether a condition on headers holds. Returns false for conditions on data.
    pub(crate) fn holds(&self, condition: &Condition) -> bool {
        let ip = &self.ip;
        match condition {
            Condition::PayloadSize(bytes) => bytes.contains(&self.payload),
            Condition::Flags(flags) => self
                .tcp
                .is_some_and(|tcp| compare(flags.mode, tcp.flags & !flags.ignored, flags.flags & !flags.ignored)),
            Condition::Sequence(number) => self.tcp.is_some_and(|tcp| tcp.sequence == *number),
            Condition::Acknowledgement(number) => self.tcp.is_some_and(|tcp| tcp.acknowledgement == *number),
            Condition::Window { values, negated } => {
                self.tcp.is_some_and(|tcp| values.contains(&tcp.window) != *negated)
            }
            Condition::IcmpType(kinds) => self.icmp.is_some_and(|icmp| kinds.contains(&icmp.kind)),
            Condition::IcmpCode(codes) => self.icmp.is_some_and(|icmp| codes.contains(&icmp.code)),
            Condition::IcmpIdentifier(number) => self.icmp.is_some_and(|icmp| icmp.identifier == *number),
            Condition::IcmpSequence(number) => self.icmp.is_some_and(|icmp| icmp.sequence == *number),
            Condition::Ttl(values) => values.contains(&ip.ttl),
            Condition::TypeOfService { value, negated } => (ip.type_of_service == *value) != *negated,
            Condition::IpIdentification(number) => ip.identification == Some(*number),
            Condition::IpProtocol { numbers, negated } => numbers.contains(&ip.protocol) != *negated,
            Condition::FragmentBits { mode, bits } => compare(*mode, ip.fragment_bits, *bits),
            Condition::FragmentOffset(units) => units.contains(&ip.fragment_offset),
            Condition::SameAddress => ip.same_address,
            Condition::StreamSize { by, bytes } => sent(*by, bytes, self.sent),
            Condition::Content(_)
            | Condition::Expression(_)
            | Condition::ByteTest(_)
            | Condition::ByteJump(_)
            | Condition::ByteExtract(_)
            | Condition::IsDataAt(_)
            | Condition::Base64Decode(_)
            | Condition::BufferLength(..)
            | Condition::ByteMath(_)
            | Condition::FlowBits(_)
            | Condition::FlowInt(_)
            | Condition::XBits(_)
            | Condition::Dataset(_)
            | Condition::Event(_) => false,
        }
    }
}

fn compare(mode: Bits, has: u8, required: u8) -> bool {
    match mode {
        Bits::Exactly => has == required,
        Bits::All => has & required == required,
        Bits::Any => has & required != 0,
        Bits::None => has & required == 0,
    }
}

fn sent(by: Sender, bytes: &RangeInclusive<u32>, [client, server]: [u64; 2]) -> bool {
    let holds = |sent: u64| bytes.contains(&u32::try_from(sent).unwrap_or(u32::MAX));
    match by {
        Sender::Client => holds(client),
        Sender::Server => holds(server),
        Sender::Either => holds(client) || holds(server),
        Sender::Both => holds(client) && holds(server),
    }
}

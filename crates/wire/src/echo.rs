//! ICMP echo requests from the gateway itself, and replies to these requests (RFC 792; RFC 4443, section 4).

use crate::ethernet::{self, Link, ethertype};
use crate::ipv4::{self, protocol};
use crate::layers::{Class, Fragment, Layers};
use crate::packet::Packet;
use crate::{checksum, icmp, icmpv6, ipv6};

/// Number of data bytes in a request. The reply repeats these bytes.
const DATA: usize = 8;

/// Length of a message in bytes.
const LENGTH: usize = 8 + DATA;

/// Fields with equal values in an echo request and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Identifier of the echo messages.
    pub identifier: u16,
    /// Sequence number of the echo messages.
    pub sequence: u16,
    /// Data of the request. The reply repeats the data.
    pub data: u64,
}

impl Echo {
    /// Reads the fields of an echo reply. `None` if the frame is not an unfragmented echo reply with exactly 8 bytes of
    /// data.
    pub fn replied(frame: &[u8], layers: &Layers) -> Option<Self> {
        let message = layers.payload(frame);
        let reply = match (layers.class, layers.protocol) {
            (Class::Ipv4, protocol::ICMP) => icmp::kind::ECHO_REPLY,
            (Class::Ipv6, protocol::ICMPV6) => icmpv6::kind::ECHO_REPLY,
            _ => return None,
        };
        let data = message.get(8..LENGTH)?;
        (layers.fragment == Fragment::Whole && icmp::KIND.read(message) == reply).then(|| Self {
            identifier: icmp::IDENTIFIER.read(message),
            sequence: icmp::SEQUENCE.read(message),
            data: data.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)),
        })
    }

    /// Writes the request to the zeroed `message`. `pseudo` is the sum of the pseudo-header, or 0 for IPv4.
    fn write(self, message: &mut [u8], kind: u8, pseudo: u16) {
        icmp::KIND.write(message, kind);
        icmp::IDENTIFIER.write(message, self.identifier);
        icmp::SEQUENCE.write(message, self.sequence);
        for (byte, value) in message.iter_mut().skip(8).zip(self.data.to_be_bytes()) {
            *byte = value;
        }
        icmp::CHECKSUM.write(message, !checksum::add(checksum::sum(message), pseudo));
    }

    /// Writes an echo request between two IPv4 addresses to `packet`. Returns false, without effect, if the buffer is
    /// too small.
    pub fn emit4(self, packet: &mut Packet<'_>, link: Link, source: u32, destination: u32) -> bool {
        let body = ethernet::start(packet, link, ethertype::IPV4, ipv4::LENGTH + LENGTH);
        let Some((header, message)) = body.and_then(|body| body.split_at_mut_checked(ipv4::LENGTH)) else {
            return false;
        };
        ipv4::VERSION_LENGTH.write(header, 0x45);
        ipv4::TOTAL_LENGTH.write(header, (ipv4::LENGTH + LENGTH) as u16);
        ipv4::FRAGMENT.write(header, ipv4::DONT_FRAGMENT);
        ipv4::TTL.write(header, 64);
        ipv4::PROTOCOL.write(header, protocol::ICMP);
        ipv4::SOURCE.write(header, source);
        ipv4::DESTINATION.write(header, destination);
        ipv4::CHECKSUM.write(header, checksum::checksum(header));
        self.write(message, icmp::kind::ECHO_REQUEST, 0);
        true
    }

    /// Writes an echo request between two IPv6 addresses to `packet`. Returns false, without effect, if the buffer is
    /// too small.
    pub fn emit6(self, packet: &mut Packet<'_>, link: Link, source: u128, destination: u128) -> bool {
        let body = ethernet::start(packet, link, ethertype::IPV6, ipv6::LENGTH + LENGTH);
        let Some((header, message)) = body.and_then(|body| body.split_at_mut_checked(ipv6::LENGTH)) else {
            return false;
        };
        ipv6::VERSION_CLASS_FLOW.write(header, 6 << 28);
        ipv6::PAYLOAD_LENGTH.write(header, LENGTH as u16);
        ipv6::NEXT_HEADER.write(header, protocol::ICMPV6);
        ipv6::HOP_LIMIT.write(header, 64);
        ipv6::SOURCE.write(header, source);
        ipv6::DESTINATION.write(header, destination);
        let pseudo = checksum::pseudo6(source, destination, protocol::ICMPV6, LENGTH as u16);
        self.write(message, icmpv6::kind::ECHO_REQUEST, pseudo);
        true
    }
}

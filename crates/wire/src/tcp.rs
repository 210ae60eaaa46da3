//! TCP (RFC 9293).

use crate::checksum::{self, Delta};
use crate::ethernet::{self, Link, ethertype};
use crate::field::{Field, header};
use crate::ipv4::{self, protocol};
use crate::layers::{Class, Layers};
use crate::{Checksums, Packet, ipv6};

header! {
    /// A TCP header and the data after it.
    Tcp 20
    "Source port." source_port: u16 = SOURCE_PORT @ 0, set_source_port;
    "Destination port." destination_port: u16 = DESTINATION_PORT @ 2, set_destination_port;
    "Sequence number." sequence: u32 = SEQUENCE @ 4, set_sequence;
    "Acknowledgment number." acknowledgment: u32 = ACKNOWLEDGMENT @ 8, set_acknowledgment;
    "Header length in words (4 bits), reserved (4)." data_offset: u8 = DATA_OFFSET @ 12, set_data_offset;
    "Control flags." flags: u8 = FLAGS @ 13, set_flags;
    "Window." window: u16 = WINDOW @ 14, set_window;
    "Checksum over pseudo-header, header and data." checksum: u16 = CHECKSUM @ 16, set_checksum;
    "Urgent pointer." urgent: u16 = URGENT @ 18, set_urgent;
}

/// TCP control flags.
pub mod flag {
    /// Finish: the sender sends no further data.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push function.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment number is valid.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer is valid.
    pub const URG: u8 = 0x20;
}

/// Types of TCP options.
pub mod option {
    /// End of the option list.
    pub const END: u8 = 0;
    /// No operation: padding of one byte.
    pub const NO_OPERATION: u8 = 1;
    /// Maximum segment size.
    pub const MAXIMUM_SEGMENT_SIZE: u8 = 2;
    /// Window scale (RFC 7323, 2.2).
    pub const WINDOW_SCALE: u8 = 3;
}

impl<B: AsRef<[u8]>> Tcp<B> {
    /// Header length in bytes from the data offset field: 0 to 60.
    #[inline(always)]
    pub fn header_length(&self) -> usize {
        ((self.data_offset() >> 4) as usize) << 2
    }

    /// The options; empty if the header length is invalid.
    pub fn options(&self) -> &[u8] {
        self.bytes().get(LENGTH..self.header_length()).unwrap_or_default()
    }

    /// Offset of the value of the maximum-segment-size option, relative to the header.
    pub fn mss_offset(&self) -> Option<usize> {
        let options = self.options();
        let mut at = 0;
        loop {
            match *options.get(at)? {
                option::END => return None,
                option::NO_OPERATION => at += 1,
                kind => {
                    let length = *options.get(at + 1)? as usize;
                    if length < 2 {
                        return None;
                    }
                    if kind == option::MAXIMUM_SEGMENT_SIZE {
                        return (length == 4 && at + 4 <= options.len()).then_some(LENGTH + at + 2);
                    }
                    at += length;
                }
            }
        }
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Tcp<B> {
    /// Limits the MSS option of a SYN to `max` and updates the checksum. An incorrect checksum stays incorrect. Returns
    /// false, without effect, if the option is missing or its value does not exceed `max`.
    pub fn clamp_mss(&mut self, max: u16) -> bool {
        let Some(at) = self.mss_offset() else {
            return false;
        };
        let size: Field<u16> = Field::at(at);
        let offered = size.read(self.bytes());
        if offered <= max {
            return false;
        }
        size.write(self.bytes_mut(), max);
        // A value at an odd offset lies in two 16-bit words of the checksum. For the checksum, its two bytes are
        // therefore swapped.
        let delta = match at % 2 {
            0 => Delta::default().word(offered, max),
            _ => Delta::default().word(offered.swap_bytes(), max.swap_bytes()),
        };
        let checksum = delta.apply(self.checksum());
        self.set_checksum(checksum);
        true
    }
}
/// Contents of a reset (RFC 9293, sections 3.5.1 and 3.10.7.1) in reply to a segment. The source of the reset is the
/// destination of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reset {
    /// Source port and destination port.
    pub ports: (u16, u16),
    sequence: u32,
    acknowledgment: u32,
    flags: u8,
}

impl Reset {
    /// The reset in reply to a segment whose TCP header and data have `length` bytes. `None` if the segment is a reset
    /// or has a truncated header.
    pub fn to(segment: &[u8], length: usize) -> Option<Self> {
        let header = Tcp::new(segment.get(..LENGTH)?)?;
        let flags = header.flags();
        if flags & flag::RST != 0 {
            return None;
        }
        let ports = (header.destination_port(), header.source_port());
        if flags & flag::ACK != 0 {
            let sequence = header.acknowledgment();
            return Some(Self {
                ports,
                sequence,
                acknowledgment: 0,
                flags: flag::RST,
            });
        }
        let data = length.checked_sub(header.header_length())? as u32;
        let controls = u32::from(flags & flag::SYN != 0) + u32::from(flags & flag::FIN != 0);
        let acknowledgment = header.sequence().wrapping_add(data).wrapping_add(controls);
        Some(Self {
            ports,
            sequence: 0,
            acknowledgment,
            flags: flag::RST | flag::ACK,
        })
    }

    /// Replaces a data segment by a reset without data, which is forwarded to the segment's destination. To the
    /// destination, it looks as if the original sender had reset the connection. Returns false, without effect, if the
    /// segment does not belong to an established connection.
    pub fn replace(packet: &mut Packet<'_>, layers: &Layers) -> bool {
        let (l3, l4) = (usize::from(layers.l3), usize::from(layers.l4));
        let Some(header) = packet.bytes().get(l4..).and_then(Tcp::new) else {
            return false;
        };
        if header.flags() & (flag::SYN | flag::RST | flag::ACK) != flag::ACK {
            return false;
        }
        let reset = Self {
            ports: (header.source_port(), header.destination_port()),
            sequence: header.sequence(),
            acknowledgment: header.acknowledgment(),
            flags: flag::RST | flag::ACK,
        };
        if !packet.set_len(l4 + LENGTH) {
            return false;
        }
        let Some((front, message)) = packet.bytes_mut().split_at_mut_checked(l4) else {
            return false;
        };
        let network = front.get_mut(l3..).unwrap_or_default();
        let pseudo = match layers.class {
            Class::Ipv4 => {
                ipv4::TOTAL_LENGTH.write(network, (l4 - l3 + LENGTH) as u16);
                ipv4::CHECKSUM.write(network, 0);
                ipv4::CHECKSUM.write(network, checksum::checksum(network));
                let (source, destination) = (ipv4::SOURCE.read(network), ipv4::DESTINATION.read(network));
                checksum::pseudo4(source, destination, protocol::TCP, LENGTH as u16)
            }
            _ => {
                ipv6::PAYLOAD_LENGTH.write(network, (l4 - l3 - ipv6::LENGTH + LENGTH) as u16);
                let (source, destination) = (ipv6::SOURCE.read(network), ipv6::DESTINATION.read(network));
                checksum::pseudo6(source, destination, protocol::TCP, LENGTH as u16)
            }
        };
        message.fill(0);
        reset.write(message, pseudo);
        packet.set_checksums(Checksums::Vouched);
        true
    }

    /// Writes the reset to the start of the zeroed `message`. `pseudo` is the sum of the pseudo-header.
    fn write(self, message: &mut [u8], pseudo: u16) {
        SOURCE_PORT.write(message, self.ports.0);
        DESTINATION_PORT.write(message, self.ports.1);
        SEQUENCE.write(message, self.sequence);
        ACKNOWLEDGMENT.write(message, self.acknowledgment);
        DATA_OFFSET.write(message, (LENGTH as u8 / 4) << 4);
        FLAGS.write(message, self.flags);
        CHECKSUM.write(message, !checksum::add(checksum::sum(message), pseudo));
    }

    /// Writes a reset between two IPv4 addresses to `packet`. Returns false, without effect, if the buffer is too
    /// small.
    pub fn emit4(self, packet: &mut Packet<'_>, link: Link, source: u32, destination: u32) -> bool {
        let body = ethernet::start(packet, link, ethertype::IPV4, ipv4::LENGTH + LENGTH);
        let Some((header, message)) = body.and_then(|body| body.split_at_mut_checked(ipv4::LENGTH)) else {
            return false;
        };
        ipv4::VERSION_LENGTH.write(header, 0x45);
        ipv4::TOTAL_LENGTH.write(header, (ipv4::LENGTH + LENGTH) as u16);
        ipv4::FRAGMENT.write(header, ipv4::DONT_FRAGMENT);
        ipv4::TTL.write(header, 64);
        ipv4::PROTOCOL.write(header, protocol::TCP);
        ipv4::SOURCE.write(header, source);
        ipv4::DESTINATION.write(header, destination);
        ipv4::CHECKSUM.write(header, checksum::checksum(header));
        let pseudo = checksum::pseudo4(source, destination, protocol::TCP, LENGTH as u16);
        self.write(message, pseudo);
        true
    }

    /// Writes a reset between two IPv6 addresses to `packet`. Returns false, without effect, if the buffer is too
    /// small.
    pub fn emit6(self, packet: &mut Packet<'_>, link: Link, source: u128, destination: u128) -> bool {
        let body = ethernet::start(packet, link, ethertype::IPV6, ipv6::LENGTH + LENGTH);
        let Some((header, message)) = body.and_then(|body| body.split_at_mut_checked(ipv6::LENGTH)) else {
            return false;
        };
        ipv6::VERSION_CLASS_FLOW.write(header, 6 << 28);
        ipv6::PAYLOAD_LENGTH.write(header, LENGTH as u16);
        ipv6::NEXT_HEADER.write(header, protocol::TCP);
        ipv6::HOP_LIMIT.write(header, 64);
        ipv6::SOURCE.write(header, source);
        ipv6::DESTINATION.write(header, destination);
        let pseudo = checksum::pseudo6(source, destination, protocol::TCP, LENGTH as u16);
        self.write(message, pseudo);
        true
    }
}

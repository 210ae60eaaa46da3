//! Frames built with `etherparse`, independently of the project's own header code. All checksums are correct.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::str::FromStr;

pub use etherparse::{
    IcmpEchoHeader, Icmpv4Type, Icmpv6Type, IpFragOffset, IpNumber, Ipv4Header, Ipv6Extensions, Ipv6FragmentHeader,
    Ipv6Header, TcpHeader,
};
use etherparse::{Icmpv4Header, Icmpv6Header, UdpHeader};

/// TCP control flags, for [`Frame::flags`].
pub mod flag {
    /// FIN.
    pub const FIN: u8 = 0x01;
    /// SYN.
    pub const SYN: u8 = 0x02;
    /// RST.
    pub const RST: u8 = 0x04;
    /// PSH.
    pub const PSH: u8 = 0x08;
    /// ACK.
    pub const ACK: u8 = 0x10;
}

/// Default source MAC address of a frame.
pub const SOURCE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Default destination MAC address of a frame.
pub const DESTINATION_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// An address, or an address with a port. The address is given in its own type or as text.
pub trait Named<A> {
    /// The address, parsed if it is text.
    fn resolve(self) -> A;
}

impl<A: FromStr> Named<A> for &str {
    fn resolve(self) -> A {
        self.parse()
            .unwrap_or_else(|_| panic!("{self} is no address of the wanted kind"))
    }
}

macro_rules! itself {
    ($($address:ty)+) => { $(impl Named<$address> for $address {
        fn resolve(self) -> $address {
            self
        }
    })+ };
}
itself!(Ipv4Addr Ipv6Addr SocketAddrV4 SocketAddrV6);

/// IP header of a frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Network {
    /// IPv4.
    V4(Ipv4Header),
    /// An IPv6 header with its extension headers.
    V6(Ipv6Header, Box<Ipv6Extensions>),
}

/// Transport header of a frame.
#[derive(Clone, Debug, PartialEq)]
pub enum Transport {
    /// TCP.
    Tcp(TcpHeader),
    /// UDP with source and destination port.
    Udp(u16, u16),
    /// ICMP.
    Icmp4(Icmpv4Type),
    /// ICMPv6.
    Icmp6(Icmpv6Type),
    /// No transport header, so the payload follows the IP header.
    Raw(IpNumber),
}

/// A frame to be built. All parts can be set through fields or methods.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Source MAC address.
    pub source_mac: [u8; 6],
    /// Destination MAC address.
    pub destination_mac: [u8; 6],
    /// VLAN tags with TPID and control information, starting with the outermost tag.
    pub tags: Vec<(u16, u16)>,
    /// IP header. The lengths, protocol and checksum are computed.
    pub network: Network,
    /// Transport header. The lengths and checksum are computed.
    pub transport: Transport,
    /// Payload after the transport header.
    pub payload: Vec<u8>,
    /// Length to which the frame is padded with zeros.
    pub pad: usize,
}

/// A TCP segment over IPv4. The ACK flag is set.
pub fn tcp4(source: impl Named<SocketAddrV4>, destination: impl Named<SocketAddrV4>) -> Frame {
    let (source, destination) = (source.resolve(), destination.resolve());
    frame4(*source.ip(), *destination.ip(), tcp(source.port(), destination.port()))
}

/// A UDP datagram over IPv4.
pub fn udp4(source: impl Named<SocketAddrV4>, destination: impl Named<SocketAddrV4>) -> Frame {
    let (source, destination) = (source.resolve(), destination.resolve());
    frame4(
        *source.ip(),
        *destination.ip(),
        Transport::Udp(source.port(), destination.port()),
    )
}

/// An ICMP echo request.
pub fn icmp4_echo(source: impl Named<Ipv4Addr>, destination: impl Named<Ipv4Addr>, id: u16, seq: u16) -> Frame {
    let echo = Icmpv4Type::EchoRequest(IcmpEchoHeader { id, seq });
    frame4(source.resolve(), destination.resolve(), Transport::Icmp4(echo))
}

/// An ICMP echo reply.
pub fn icmp4_echo_reply(source: impl Named<Ipv4Addr>, destination: impl Named<Ipv4Addr>, id: u16, seq: u16) -> Frame {
    let echo = Icmpv4Type::EchoReply(IcmpEchoHeader { id, seq });
    frame4(source.resolve(), destination.resolve(), Transport::Icmp4(echo))
}

/// An ICMP error that quotes the first `quote` bytes of `frame`, beginning at its IP header. `frame` must not have tags.
pub fn icmp4_error(
    source: impl Named<Ipv4Addr>,
    destination: impl Named<Ipv4Addr>,
    kind: u8,
    code: u8,
    frame: &[u8],
    quote: usize,
) -> Frame {
    let kind = Icmpv4Type::Unknown {
        type_u8: kind,
        code_u8: code,
        bytes5to8: [0; 4],
    };
    let datagram = &frame[14..];
    frame4(source.resolve(), destination.resolve(), Transport::Icmp4(kind))
        .payload(&datagram[..quote.min(datagram.len())])
}

/// A TCP segment over IPv6. The ACK flag is set.
pub fn tcp6(source: impl Named<SocketAddrV6>, destination: impl Named<SocketAddrV6>) -> Frame {
    let (source, destination) = (source.resolve(), destination.resolve());
    frame6(*source.ip(), *destination.ip(), tcp(source.port(), destination.port()))
}

/// A UDP datagram over IPv6.
pub fn udp6(source: impl Named<SocketAddrV6>, destination: impl Named<SocketAddrV6>) -> Frame {
    let (source, destination) = (source.resolve(), destination.resolve());
    frame6(
        *source.ip(),
        *destination.ip(),
        Transport::Udp(source.port(), destination.port()),
    )
}

/// An ICMPv6 echo request.
pub fn icmp6_echo(source: impl Named<Ipv6Addr>, destination: impl Named<Ipv6Addr>, id: u16, seq: u16) -> Frame {
    let echo = Icmpv6Type::EchoRequest(IcmpEchoHeader { id, seq });
    frame6(source.resolve(), destination.resolve(), Transport::Icmp6(echo))
}

/// An ICMPv6 error that quotes the first `quote` bytes of `frame`, beginning at its IP header. `frame` must not have tags.
pub fn icmp6_error(
    source: impl Named<Ipv6Addr>,
    destination: impl Named<Ipv6Addr>,
    kind: u8,
    code: u8,
    frame: &[u8],
    quote: usize,
) -> Frame {
    let kind = Icmpv6Type::Unknown {
        type_u8: kind,
        code_u8: code,
        bytes5to8: [0; 4],
    };
    let datagram = &frame[14..];
    frame6(source.resolve(), destination.resolve(), Transport::Icmp6(kind))
        .payload(&datagram[..quote.min(datagram.len())])
}

/// A neighbour solicitation or advertisement (`kind` 135 or 136) with hop limit 255. Further parameters are the flags word, the target and the
/// options.
pub fn neighbour(
    source: impl Named<Ipv6Addr>,
    destination: impl Named<Ipv6Addr>,
    kind: u8,
    flags: u32,
    target: impl Named<Ipv6Addr>,
    options: &[u8],
) -> Frame {
    let kind = Icmpv6Type::Unknown {
        type_u8: kind,
        code_u8: 0,
        bytes5to8: flags.to_be_bytes(),
    };
    let body = [&target.resolve().octets()[..], options].concat();
    frame6(source.resolve(), destination.resolve(), Transport::Icmp6(kind))
        .payload(&body)
        .ttl(255)
}

/// A broadcast ARP request from `mac`.
pub fn arp_request(mac: [u8; 6], sender: impl Named<Ipv4Addr>, target: impl Named<Ipv4Addr>) -> Vec<u8> {
    arp(1, mac, [0xff; 6], sender.resolve(), [0; 6], target.resolve())
}

/// An ARP reply from `mac` to `target_mac`.
pub fn arp_reply(
    mac: [u8; 6],
    sender: impl Named<Ipv4Addr>,
    target_mac: [u8; 6],
    target: impl Named<Ipv4Addr>,
) -> Vec<u8> {
    arp(2, mac, target_mac, sender.resolve(), target_mac, target.resolve())
}

fn arp(operation: u16, mac: [u8; 6], to: [u8; 6], sender: Ipv4Addr, target_mac: [u8; 6], target: Ipv4Addr) -> Vec<u8> {
    let message = etherparse::ArpEthIpv4Packet {
        operation: etherparse::ArpOperation(operation),
        sender_mac: mac,
        sender_ipv4: sender.octets(),
        target_mac,
        target_ipv4: target.octets(),
    };
    let mut bytes = ethernet(to, mac, &[], 0x0806);
    bytes.extend_from_slice(&message.to_bytes());
    bytes
}

fn tcp(source_port: u16, destination_port: u16) -> Transport {
    let mut header = TcpHeader::new(source_port, destination_port, 1, 65_535);
    header.ack = true;
    Transport::Tcp(header)
}

/// A frame over IPv4.
pub fn frame4(source: Ipv4Addr, destination: Ipv4Addr, transport: Transport) -> Frame {
    let header = Ipv4Header {
        source: source.octets(),
        destination: destination.octets(),
        time_to_live: 64,
        ..Ipv4Header::default()
    };
    frame(Network::V4(header), transport)
}

/// A frame over IPv6.
pub fn frame6(source: Ipv6Addr, destination: Ipv6Addr, transport: Transport) -> Frame {
    let header = Ipv6Header {
        source: source.octets(),
        destination: destination.octets(),
        hop_limit: 64,
        ..Ipv6Header::default()
    };
    frame(Network::V6(header, Box::default()), transport)
}

fn frame(network: Network, transport: Transport) -> Frame {
    Frame {
        source_mac: SOURCE_MAC,
        destination_mac: DESTINATION_MAC,
        tags: Vec::new(),
        network,
        transport,
        payload: Vec::new(),
        pad: 0,
    }
}

fn ethernet(destination: [u8; 6], source: [u8; 6], tags: &[(u16, u16)], ethertype: u16) -> Vec<u8> {
    let mut bytes = [destination, source].concat();
    for (protocol, control) in tags {
        bytes.extend_from_slice(&protocol.to_be_bytes());
        bytes.extend_from_slice(&control.to_be_bytes());
    }
    bytes.extend_from_slice(&ethertype.to_be_bytes());
    bytes
}

impl Frame {
    /// Set the MAC addresses.
    #[must_use]
    pub fn macs(mut self, source: [u8; 6], destination: [u8; 6]) -> Self {
        (self.source_mac, self.destination_mac) = (source, destination);
        self
    }

    /// Add a tag inside the existing tags, with this protocol (0x8100 or 0x88a8) and this VLAN.
    #[must_use]
    pub fn tag(mut self, protocol: u16, vlan: u16) -> Self {
        self.tags.push((protocol, vlan));
        self
    }

    /// Set the TTL or hop limit.
    #[must_use]
    pub fn ttl(mut self, ttl: u8) -> Self {
        match &mut self.network {
            Network::V4(header) => header.time_to_live = ttl,
            Network::V6(header, _) => header.hop_limit = ttl,
        }
        self
    }

    /// Set exactly these TCP control flags.
    #[must_use]
    pub fn flags(mut self, flags: u8) -> Self {
        let Transport::Tcp(header) = &mut self.transport else {
            panic!("flags are TCP's")
        };
        header.fin = flags & 0x01 != 0;
        header.syn = flags & 0x02 != 0;
        header.rst = flags & 0x04 != 0;
        header.psh = flags & 0x08 != 0;
        header.ack = flags & 0x10 != 0;
        header.urg = flags & 0x20 != 0;
        self
    }

    /// Set the TCP sequence and acknowledgment numbers.
    #[must_use]
    pub fn numbers(mut self, sequence: u32, acknowledgment: u32) -> Self {
        let Transport::Tcp(header) = &mut self.transport else {
            panic!("sequence numbers are TCP's")
        };
        (header.sequence_number, header.acknowledgment_number) = (sequence, acknowledgment);
        self
    }

    /// Set the TCP options, padded to a multiple of 4 bytes.
    #[must_use]
    pub fn tcp_options(mut self, options: &[u8]) -> Self {
        let Transport::Tcp(header) = &mut self.transport else {
            panic!("TCP's options")
        };
        header.set_options_raw(options).expect("at most 40 bytes");
        self
    }

    /// Set the payload.
    #[must_use]
    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    /// Set the IPv4 options, whose length must be a multiple of 4 bytes.
    #[must_use]
    pub fn options(mut self, options: &[u8]) -> Self {
        let Network::V4(header) = &mut self.network else {
            panic!("options are IPv4's")
        };
        header.options = options.try_into().expect("a multiple of 4, at most 40 bytes");
        self
    }

    /// Set the Don't Fragment flag.
    #[must_use]
    pub fn dont_fragment(mut self) -> Self {
        let Network::V4(header) = &mut self.network else {
            panic!("the flag is IPv4's")
        };
        header.dont_fragment = true;
        self
    }

    /// Turn the frame into a fragment. `offset` is in units of 8 bytes, and `more` states whether more fragments follow.
    /// If the offset is not 0, the frame has no transport header, and the payload follows the IP header.
    #[must_use]
    pub fn fragment(mut self, offset: u16, more: bool, identification: u32) -> Self {
        let offset = IpFragOffset::try_new(offset).expect("13 bits");
        match &mut self.network {
            Network::V4(header) => {
                header.fragment_offset = offset;
                header.more_fragments = more;
                header.identification = identification as u16;
            }
            Network::V6(_, extensions) => {
                extensions.fragment = Some(Ipv6FragmentHeader::new(IpNumber::UDP, offset, more, identification));
            }
        }
        self
    }

    /// Pad with zeros to `length`, like a card that pads to 60 bytes.
    #[must_use]
    pub fn padded(mut self, length: usize) -> Self {
        self.pad = length;
        self
    }

    /// Protocol number of the transport header.
    pub fn protocol(&self) -> u8 {
        match &self.transport {
            Transport::Tcp(_) => 6,
            Transport::Udp(..) => 17,
            Transport::Icmp4(_) => 1,
            Transport::Icmp6(_) => 58,
            Transport::Raw(number) => number.0,
        }
    }

    /// Build the bytes of the frame.
    pub fn build(&self) -> Vec<u8> {
        let body = [self.transport_header(), self.payload.clone()].concat();
        let ethertype = if matches!(self.network, Network::V4(_)) {
            0x0800
        } else {
            0x86dd
        };
        let mut bytes = ethernet(self.destination_mac, self.source_mac, &self.tags, ethertype);
        let written = match &self.network {
            Network::V4(header) => {
                let mut header = header.clone();
                header.protocol = IpNumber(self.protocol());
                header
                    .set_payload_len(body.len())
                    .expect("a datagram of at most 65,535 bytes");
                header.write(&mut bytes)
            }
            Network::V6(header, extensions) => {
                let (mut header, mut extensions) = (header.clone(), extensions.clone());
                header.next_header = extensions.set_next_headers(IpNumber(self.protocol()));
                header
                    .set_payload_length(extensions.header_len() + body.len())
                    .expect("at most 65,535 bytes");
                header.write(&mut bytes).and_then(|()| {
                    extensions
                        .write(&mut bytes, header.next_header)
                        .map_err(|e| std::io::Error::other(e.to_string()))
                })
            }
        };
        written.expect("headers that can be written");
        bytes.extend_from_slice(&body);
        bytes.resize(bytes.len().max(self.pad), 0);
        bytes
    }

    fn transport_header(&self) -> Vec<u8> {
        let offset = match &self.network {
            Network::V4(header) => header.fragment_offset,
            Network::V6(_, extensions) => extensions
                .fragment
                .as_ref()
                .map_or(IpFragOffset::ZERO, |f| f.fragment_offset),
        };
        if offset != IpFragOffset::ZERO {
            return Vec::new();
        }
        const SHORT: &str = "a payload that a length field holds";
        match (&self.transport, &self.network) {
            (Transport::Tcp(header), Network::V4(ip)) => {
                let mut header = header.clone();
                header.checksum = header.calc_checksum_ipv4(ip, &self.payload).expect(SHORT);
                header.to_bytes().to_vec()
            }
            (Transport::Tcp(header), Network::V6(ip, _)) => {
                let mut header = header.clone();
                header.checksum = header.calc_checksum_ipv6(ip, &self.payload).expect(SHORT);
                header.to_bytes().to_vec()
            }
            (Transport::Udp(source, destination), Network::V4(ip)) => {
                let header = UdpHeader::with_ipv4_checksum(*source, *destination, ip, &self.payload).expect(SHORT);
                header.to_bytes().to_vec()
            }
            (Transport::Udp(source, destination), Network::V6(ip, _)) => {
                let header = UdpHeader::with_ipv6_checksum(*source, *destination, ip, &self.payload).expect(SHORT);
                header.to_bytes().to_vec()
            }
            (Transport::Icmp4(kind), _) => Icmpv4Header::with_checksum(kind.clone(), &self.payload)
                .to_bytes()
                .to_vec(),
            (Transport::Icmp6(kind), Network::V6(ip, _)) => {
                let header = Icmpv6Header::with_checksum(*kind, ip.source, ip.destination, &self.payload);
                header.expect(SHORT).to_bytes().to_vec()
            }
            (Transport::Icmp6(_), Network::V4(_)) => panic!("ICMPv6 over IPv4 has no checksum to compute"),
            (Transport::Raw(_), _) => Vec::new(),
        }
    }
}

/// A frame in a buffer with headroom and tailroom, as a driver provides it.
pub fn room(frame: &[u8]) -> (Vec<u8>, sluice_wire::Window) {
    const HEADROOM: usize = 128;
    let mut room = vec![0; HEADROOM + frame.len().max(1514) + 256];
    room[HEADROOM..HEADROOM + frame.len()].copy_from_slice(frame);
    let window = sluice_wire::Window {
        start: HEADROOM as u16,
        length: frame.len() as u16,
        checksums: sluice_wire::Checksums::Unverified,
        changed: false,
    };
    (room, window)
}

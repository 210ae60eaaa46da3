//! The layers of a frame: offsets of headers, and frequently used header fields. A frame is parsed once, and the result
//! takes 18 bytes.

use core::hint::select_unpredictable;

use crate::ethernet::{self, ethertype};
use crate::fault::Fault;
use crate::field::Mac;
use crate::ipv4::protocol;
use crate::ipv6::Chain;
use crate::key::{Context, FlowKey4, FlowKey6, Tuple4, Tuple6};
use crate::vlan::{self, Tag};
use crate::{icmp, icmpv6, ipv4, ipv6};

/// Protocol above Ethernet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Class {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// ARP.
    Arp,
    /// Another protocol, at the offset `l3`.
    #[default]
    Other,
}

/// Fragment kind of a packet: whole datagram, first fragment or later fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fragment {
    /// The packet is a whole datagram.
    #[default]
    Whole,
    /// The packet is the first fragment, which has the ports.
    First,
    /// The packet is a later fragment, which has no transport header.
    Later,
}

/// Set of packet properties, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// IPv4 options or IPv6 extension headers are present.
    pub const OPTIONS: Flags = Flags(0x01);
    /// The Ethernet destination is a group address, broadcast included.
    pub const MULTICAST: Flags = Flags(0x02);
    /// The Ethernet destination is the broadcast address.
    pub const BROADCAST: Flags = Flags(0x04);
    /// An ICMP or ICMPv6 error, which quotes another packet.
    pub const ICMP_ERROR: Flags = Flags(0x08);
    /// An ICMP query or its reply, or an ICMPv6 echo request or reply. The identifier serves as the port of the
    /// requesting host.
    pub const ICMP_QUERY: Flags = Flags(0x10);
    /// An ICMP reply. Always set together with [`Flags::ICMP_QUERY`].
    pub const ICMP_REPLY: Flags = Flags(0x20);
    /// An unfragmented TCP or UDP packet over IPv4 without options, or over IPv6 without extension headers.
    pub const PLAIN: Flags = Flags(0x40);

    /// Whether at least one of `bits` is set.
    #[inline(always)]
    pub const fn has(self, bits: Flags) -> bool {
        self.0 & bits.0 != 0
    }

    /// Union of two sets.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, bits: Flags) -> Flags {
        Flags(self.0 | bits.0)
    }
}

/// The layers of one frame. Offsets are relative to the first byte of the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// Offset of the IP or ARP header, after VLAN tags.
    pub l3: u16,
    /// Offset of the transport header; in a later fragment, offset of the payload. Equal to `l3` for ARP and other
    /// protocols.
    pub l4: u16,
    /// Offset of the end of the IP datagram, without Ethernet padding. For ARP and other protocols: length of the
    /// frame.
    pub end: u16,
    /// Source port of TCP, UDP or UDP-Lite. For ICMP queries see [`crate::key::Tuple4`]; 0 for other protocols.
    pub source_port: u16,
    /// Destination port of TCP, UDP or UDP-Lite. For ICMP queries see [`crate::key::Tuple4`]; 0 for other protocols.
    pub destination_port: u16,
    /// Transport protocol, after extension headers.
    pub protocol: u8,
    /// Time to live or hop limit.
    pub ttl: u8,
    /// TCP control flags; 0 for other protocols.
    pub tcp_flags: u8,
    /// Protocol above Ethernet.
    pub class: Class,
    /// Fragment kind of the packet.
    pub fragment: Fragment,
    /// Number of VLAN tags: 0 to 2.
    pub tags: u8,
    /// Properties of the packet.
    pub flags: Flags,
}

const _: () = assert!(size_of::<Layers>() <= 24 && size_of::<Result<Layers, Fault>>() <= 24);

/// Fast path: parses an untagged, unfragmented TCP or UDP packet over IPv4 without options. `head` contains the first
/// bytes of a frame of `length` bytes. The flags for multicast and broadcast are not set.
#[inline(always)]
pub fn parse_fast(head: &[u8; 54], length: usize) -> Option<Layers> {
    const L4: usize = ethernet::LENGTH + ipv4::LENGTH;
    // EtherType, IP version and header length in one word. The lowest byte, where the frame has the type of service, is
    // 0.
    let kind = u32::from_be_bytes([head[12], head[13], head[14], 0]);
    let total = u16::from_be_bytes([head[16], head[17]]) as usize;
    let fragment = u16::from_ne_bytes([head[20], head[21]]) & (ipv4::MORE_FRAGMENTS | ipv4::FRAGMENT_OFFSET).to_be();
    let protocol = head[23];
    let tcp = protocol == protocol::TCP;
    let min = select_unpredictable(tcp, 40, 28);
    let end = ethernet::LENGTH + total;
    let plain = kind == 0x0800_4500
        && fragment == 0
        && (tcp | (protocol == protocol::UDP))
        && total >= min
        && end <= length.min(u16::MAX as usize);
    plain.then(|| Layers {
        l3: ethernet::LENGTH as u16,
        l4: L4 as u16,
        end: end as u16,
        source_port: u16::from_be_bytes([head[L4], head[L4 + 1]]),
        destination_port: u16::from_be_bytes([head[L4 + 2], head[L4 + 3]]),
        protocol,
        ttl: head[22],
        tcp_flags: select_unpredictable(tcp, head[L4 + 13], 0),
        class: Class::Ipv4,
        fragment: Fragment::Whole,
        tags: 0,
        flags: Flags::PLAIN,
    })
}

/// Parses the layers of a frame. Checks only the fields that determine header offsets. [`crate::validity::validate`]
/// checks all other fields. An untagged, unfragmented TCP or UDP packet over IPv4 without options takes the fast path.
#[inline(always)]
pub fn parse(frame: &[u8]) -> Result<Layers, Fault> {
    if let Some(head) = frame.first_chunk()
        && let Some(mut layers) = parse_fast(head, frame.len())
    {
        let destination = [head[0], head[1], head[2], head[3], head[4], head[5]];
        layers.flags = layers.flags.with(destination_flags(destination));
        return Ok(layers);
    }
    // The slow path uses a separate variable, so that the compiler keeps the fast path's result in registers.
    let mut layers = Layers::default();
    match parse_any(frame, &mut layers) {
        None => Ok(layers),
        Some(fault) => Err(fault),
    }
}

#[inline(always)]
fn destination_flags(address: Mac) -> Flags {
    let group = ((address[0] & 1) as u16 * Flags::MULTICAST.0 as u16) as u8;
    let broadcast = if address == ethernet::BROADCAST {
        Flags::BROADCAST.0
    } else {
        0
    };
    Flags(group | broadcast)
}

#[inline(never)]
fn parse_any(frame: &[u8], layers: &mut Layers) -> Option<Fault> {
    link(frame, layers).err()
}

fn link(frame: &[u8], layers: &mut Layers) -> Result<(), Fault> {
    let Some(head) = frame.first_chunk::<{ ethernet::LENGTH }>() else {
        return Err(Fault::ShortFrame);
    };
    if frame.len() > u16::MAX as usize {
        return Err(Fault::LongFrame);
    }
    layers.flags = destination_flags([head[0], head[1], head[2], head[3], head[4], head[5]]);
    layers.end = frame.len() as u16;
    let mut kind = u16::from_be_bytes([head[12], head[13]]);
    let mut l3 = ethernet::LENGTH;
    while vlan::is_tag(kind) {
        if layers.tags == 2 {
            return Err(Fault::TooManyTags);
        }
        let inner = frame
            .get(l3..)
            .and_then(|tail| tail.first_chunk::<4>())
            .ok_or(Fault::ShortFrame)?;
        kind = u16::from_be_bytes([inner[2], inner[3]]);
        layers.tags += 1;
        l3 += vlan::LENGTH;
    }
    layers.l3 = l3 as u16;
    layers.l4 = l3 as u16;
    match kind {
        ethertype::IPV4 => network4(frame, layers)?,
        ethertype::IPV6 => network6(frame, layers)?,
        ethertype::ARP => layers.class = Class::Arp,
        _ => {}
    }
    Ok(())
}

fn network4(frame: &[u8], layers: &mut Layers) -> Result<(), Fault> {
    let bytes = frame.get(layers.l3 as usize..).unwrap_or_default();
    let header = ipv4::Ipv4::new(bytes).ok_or(Fault::BadTotalLength)?;
    if header.version_length() >> 4 != 4 {
        return Err(Fault::BadVersion);
    }
    let (header_length, total) = (header.header_length(), header.total_length() as usize);
    if total > bytes.len() || total < ipv4::LENGTH {
        return Err(Fault::BadTotalLength);
    }
    if header_length < ipv4::LENGTH || header_length > total {
        return Err(Fault::BadHeaderLength);
    }
    layers.class = Class::Ipv4;
    layers.l4 = layers.l3 + header_length as u16;
    layers.end = layers.l3 + total as u16;
    layers.protocol = header.protocol();
    layers.ttl = header.ttl();
    let fragment = header.fragment();
    layers.fragment = if fragment & ipv4::FRAGMENT_OFFSET != 0 {
        Fragment::Later
    } else if fragment & ipv4::MORE_FRAGMENTS != 0 {
        Fragment::First
    } else {
        Fragment::Whole
    };
    if header_length > ipv4::LENGTH {
        layers.flags = layers.flags.with(Flags::OPTIONS);
    }
    transport(frame, layers)?;
    mark_plain(layers, header_length == ipv4::LENGTH);
    Ok(())
}

fn network6(frame: &[u8], layers: &mut Layers) -> Result<(), Fault> {
    let bytes = frame.get(layers.l3 as usize..).unwrap_or_default();
    let header = ipv6::Ipv6::new(bytes).ok_or(Fault::BadTotalLength)?;
    if header.version_class_flow() >> 28 != 6 {
        return Err(Fault::BadVersion);
    }
    let total = ipv6::LENGTH + header.payload_length() as usize;
    let datagram = bytes.get(..total).ok_or(Fault::BadTotalLength)?;
    let chain = ipv6::walk(datagram)?;
    layers.class = Class::Ipv6;
    layers.l4 = layers.l3 + chain.end as u16;
    layers.end = layers.l3 + total as u16;
    layers.protocol = chain.protocol;
    layers.ttl = header.hop_limit();
    layers.fragment = chain_fragment(datagram, &chain);
    if chain.count > 0 {
        layers.flags = layers.flags.with(Flags::OPTIONS);
    }
    transport(frame, layers)?;
    mark_plain(layers, chain.count == 0);
    Ok(())
}

/// Sets [`Flags::PLAIN`] for an unfragmented TCP or UDP packet with adjacent IP and transport headers.
fn mark_plain(layers: &mut Layers, adjacent: bool) {
    if adjacent && layers.fragment == Fragment::Whole && matches!(layers.protocol, protocol::TCP | protocol::UDP) {
        layers.flags = layers.flags.with(Flags::PLAIN);
    }
}

/// Fragment kind of a packet with these extension headers. An atomic fragment counts as a whole datagram (RFC 6946).
pub(crate) fn chain_fragment(datagram: &[u8], chain: &Chain) -> Fragment {
    let field = chain.fragment.map_or(0, |at| {
        ipv6::fragment::OFFSET_MORE.read(datagram.get(at..).unwrap_or_default())
    });
    if field & !7 != 0 {
        Fragment::Later
    } else if field & ipv6::fragment::MORE_FRAGMENTS != 0 {
        Fragment::First
    } else {
        Fragment::Whole
    }
}

fn transport(frame: &[u8], layers: &mut Layers) -> Result<(), Fault> {
    let min = match (layers.protocol, layers.class) {
        (protocol::TCP, _) => 20,
        (protocol::UDP | protocol::UDP_LITE, _) | (protocol::ICMP, Class::Ipv4) | (protocol::ICMPV6, Class::Ipv6) => 8,
        _ => return Ok(()),
    };
    if layers.fragment == Fragment::Later {
        return Ok(());
    }
    let payload = layers.payload(frame);
    if payload.len() < min {
        return Err(if layers.fragment == Fragment::First {
            Fault::TinyFragment
        } else {
            Fault::ShortTransport
        });
    }
    if let Some(ports) = ports(payload, layers.protocol, &mut layers.flags) {
        (layers.source_port, layers.destination_port) = ports;
    }
    if layers.protocol == protocol::TCP {
        layers.tcp_flags = crate::tcp::FLAGS.read(payload);
    }
    Ok(())
}

/// Ports of a transport header. For TCP and UDP, `payload` must contain at least the ports; for ICMP, at least 8 bytes.
/// `None` for ICMP messages other than queries, such as errors. Sets the ICMP flags.
///
/// For an ICMP query, the source port is the identifier, and the destination port is the sum of the identifier and the
/// request's type. The ports of a reply are exchanged. Thus two hosts that ping each other with equal identifiers have
/// separate flows.
pub(crate) fn ports(payload: &[u8], protocol: u8, flags: &mut Flags) -> Option<(u16, u16)> {
    if matches!(protocol, protocol::TCP | protocol::UDP | protocol::UDP_LITE) {
        let head = payload.first_chunk::<4>()?;
        return Some((
            u16::from_be_bytes([head[0], head[1]]),
            u16::from_be_bytes([head[2], head[3]]),
        ));
    }
    let head = payload.first_chunk::<8>()?;
    let (kind, request) = match protocol {
        protocol::ICMP => (icmp::flags(head[0]), icmp::request(head[0])),
        _ => (icmpv6::flags(head[0]), icmpv6::kind::ECHO_REQUEST),
    };
    *flags = flags.with(kind);
    let sender = u16::from_be_bytes([head[4], head[5]]);
    let queried = sender.wrapping_add(request.into());
    kind.has(Flags::ICMP_QUERY)
        .then_some(match kind.has(Flags::ICMP_REPLY) {
            false => (sender, queried),
            true => (queried, sender),
        })
}

/// Headers of a plain packet ([`Flags::PLAIN`]).
#[derive(Debug)]
pub struct Plain<'f, const N: usize> {
    /// Ethernet header and VLAN tags.
    pub link: &'f mut [u8],
    /// IP header.
    pub network: &'f mut [u8; N],
    /// TCP header, or UDP header and the data after it.
    pub transport: &'f mut [u8; 20],
}

impl Layers {
    /// The IP datagram or ARP message.
    #[inline(always)]
    pub fn datagram<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        frame.get(self.l3 as usize..self.end as usize).unwrap_or_default()
    }

    /// Payload of the IP header and its extensions: transport header and data.
    #[inline(always)]
    pub fn payload<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        frame.get(self.l4 as usize..self.end as usize).unwrap_or_default()
    }

    /// The IP datagram or ARP message, mutable.
    #[inline(always)]
    pub fn datagram_mut<'f>(&self, frame: &'f mut [u8]) -> &'f mut [u8] {
        frame.get_mut(self.l3 as usize..self.end as usize).unwrap_or_default()
    }

    /// Transport header and data, mutable.
    #[inline(always)]
    pub fn payload_mut<'f>(&self, frame: &'f mut [u8]) -> &'f mut [u8] {
        frame.get_mut(self.l4 as usize..self.end as usize).unwrap_or_default()
    }

    /// Link, IP and transport header, mutable, of a plain packet ([`Flags::PLAIN`]) with an IP header of `N` bytes.
    /// `None` for other packets, or if fewer than 20 bytes of the frame start at the transport header.
    #[inline(always)]
    pub fn plain_mut<'f, const N: usize>(&self, frame: &'f mut [u8]) -> Option<Plain<'f, N>> {
        if !self.flags.has(Flags::PLAIN) {
            return None;
        }
        let (link, rest) = frame.split_at_mut_checked(self.l3 as usize)?;
        let (network, rest) = rest.split_first_chunk_mut()?;
        let transport = rest.first_chunk_mut()?;
        Some(Plain {
            link,
            network,
            transport,
        })
    }

    /// The `k`-th VLAN tag. Tag 0 is the outermost tag.
    #[inline(always)]
    pub fn tag(&self, frame: &[u8], k: usize) -> Option<Tag> {
        if k < self.tags as usize {
            vlan::tag(frame, k)
        } else {
            None
        }
    }

    /// Flow key of an IPv4 packet. The addresses are zero if they lie beyond the end of `frame`.
    #[inline(always)]
    pub fn key4(&self, frame: &[u8], context: Context) -> FlowKey4 {
        let at = self.l3 as usize + ipv4::SOURCE.offset;
        let addresses = frame
            .get(at..)
            .and_then(|tail| tail.first_chunk::<8>())
            .copied()
            .unwrap_or_default();
        let addresses = u64::from_be_bytes(addresses);
        let tuple = Tuple4 {
            source: (addresses >> 32) as u32,
            destination: addresses as u32,
            source_port: self.source_port,
            destination_port: self.destination_port,
            context,
        };
        FlowKey4::new(tuple, self.protocol)
    }

    /// Flow key of an IPv6 packet. The addresses are zero if they lie beyond the end of `frame`.
    #[inline(always)]
    pub fn key6(&self, frame: &[u8], context: Context) -> FlowKey6 {
        let at = self.l3 as usize + ipv6::SOURCE.offset;
        let mut words = [0; 4];
        if let Some(addresses) = frame.get(at..).and_then(|tail| tail.first_chunk::<32>()) {
            for (word, bytes) in words.iter_mut().zip(addresses.as_chunks::<8>().0) {
                *word = u64::from_be_bytes(*bytes);
            }
        }
        let tuple = Tuple6 {
            source: [words[0], words[1]],
            destination: [words[2], words[3]],
            source_port: self.source_port,
            destination_port: self.destination_port,
            context,
        };
        FlowKey6::new(tuple, self.protocol)
    }
}

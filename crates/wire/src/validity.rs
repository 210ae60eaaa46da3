//! Checks whether a packet may be forwarded. The checks cover lengths, checksums that the device has not verified,
//! martian addresses, fragments and flags. [`crate::layers::parse`] must parse the packet before these checks.

use core::hint::select_unpredictable;

use crate::fault::Fault;
use crate::ipv4::{Ipv4, protocol};
use crate::ipv6::Ipv6;
use crate::layers::{Class, Flags, Fragment, Layers};
use crate::packet::Checksums;
use crate::tcp::flag;
use crate::{arp, checksum, icmp, icmpv6, ipv4, ipv6, tcp, udp};

/// Checks that an operator may disable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Reject addresses that are not permitted as source or destination (martians).
    pub martians: bool,
    /// Also reject addresses of 240.0.0.0/4. If not set, addresses of 240.0.0.0/4 count as host addresses, except for
    /// 255.255.255.255.
    pub reserved: bool,
    /// Reject IPv4 source routes. IPv6 routing headers of type 0 are always rejected (RFC 5095).
    pub source_routes: bool,
    /// Reject invalid lengths and flags in TCP and UDP headers. RFC 1812 (section 5.2.2) does not require this check of
    /// routers. Checksums are checked regardless of this setting. Otherwise, a packet that requires checksum offload
    /// could be forwarded with an incomplete checksum.
    pub headers: bool,
}

impl Default for Policy {
    /// The default policy enables all checks.
    fn default() -> Self {
        Self {
            martians: true,
            reserved: true,
            source_routes: true,
            headers: true,
        }
    }
}

/// Result for a packet without fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// The packet has passed all checks.
    Valid,
    /// The packet is valid, but requires checksum offload: its TCP or UDP checksum field contains the folded sum of the
    /// pseudo-header. [`complete_checksum`] computes the checksum.
    PartialChecksum,
}

/// Validates a packet that [`crate::layers::parse`] has parsed. Checksums are verified only if the device has not
/// verified them. Transport checksums are verified only in unfragmented packets. A TCP or UDP packet over IPv4 without
/// options takes the fast path.
#[inline(always)]
pub fn validate(frame: &[u8], checksums: Checksums, layers: &Layers, policy: &Policy) -> Result<Validity, Fault> {
    if layers.flags.has(Flags::PLAIN)
        && layers.class == Class::Ipv4
        && matches!(checksums, Checksums::Vouched | Checksums::Unverified)
        && let Some(head) = frame
            .get(layers.l3 as usize..)
            .and_then(|tail| tail.first_chunk::<34>())
        && has_valid_fields(
            head,
            layers.protocol,
            layers.end.saturating_sub(layers.l4),
            layers.tcp_flags,
        )
        && (checksums == Checksums::Vouched || has_valid_checksums(frame, *layers, head))
    {
        return Ok(Validity::Valid);
    }
    validate_any(frame, checksums, layers, policy)
}

/// Whether the fields of a plain packet are valid and its addresses cannot be martian. `false` means that the packet
/// needs the full check. `head` starts with the IP header. Checksums are not verified.
#[inline(always)]
pub(crate) fn has_valid_fields(head: &[u8; 34], protocol: u8, payload_length: u16, tcp_flags: u8) -> bool {
    let Some(transport) = head.last_chunk() else {
        return false;
    };
    let suspect = SUSPECT[head[12] as usize] & BAD_SOURCE | SUSPECT[head[16] as usize] & BAD_DESTINATION;
    let (source, destination) = (&head[12..16], &head[16..20]);
    has_valid_lengths(transport, protocol, payload_length, tcp_flags) && suspect == 0 && source != destination
}

/// Whether the lengths and flags of a TCP or UDP header are valid for the packet. The code does not branch on the
/// protocol, because a branch on TCP or UDP would be mispredicted often.
#[inline(always)]
pub fn has_valid_lengths(transport: &[u8; 14], protocol: u8, payload_length: u16, tcp_flags: u8) -> bool {
    let tcp = protocol == protocol::TCP;
    let data_offset = u16::from(transport[12] >> 4) * 4;
    let length = u16::from_be_bytes([transport[4], transport[5]]);
    let claimed = select_unpredictable(tcp, data_offset, length);
    let min = select_unpredictable(tcp, tcp::LENGTH as u16, udp::LENGTH as u16);
    // Substitute valid TCP flags for UDP, which has no flags.
    let flags = select_unpredictable(tcp, tcp_flags, flag::ACK);
    claimed >= min && claimed <= payload_length && !has_invalid_flags(flags)
}

/// For each value of an address's first byte: whether the address may be invalid as a source or destination.
const SUSPECT: [u8; 256] = {
    let mut table = [0; 256];
    let mut net = 0;
    while net < 256 {
        let address = (net as u32) << 24;
        if is_suspect(address, 224) {
            table[net] |= BAD_SOURCE;
        }
        if is_suspect(address, 240) {
            table[net] |= BAD_DESTINATION;
        }
        net += 1;
    }
    table
};
const BAD_SOURCE: u8 = 1;
const BAD_DESTINATION: u8 = 2;

/// Whether the checksums of a plain packet are correct; `head` is the beginning of the packet.
#[inline(never)]
pub(crate) fn has_valid_checksums(frame: &[u8], layers: Layers, head: &[u8; 34]) -> bool {
    let covered = if layers.protocol == protocol::TCP {
        layers.end.saturating_sub(layers.l4)
    } else {
        u16::from_be_bytes([head[24], head[25]])
    };
    let Some((header, _)) = head.split_first_chunk::<{ ipv4::LENGTH }>() else {
        return false;
    };
    let start = layers.l4 as usize;
    let Some(payload) = frame.get(start..start + covered as usize) else {
        return false;
    };
    let none = layers.protocol == protocol::UDP && udp::CHECKSUM.read(payload) == 0;
    let (source, destination) = (ipv4::SOURCE.read(header), ipv4::DESTINATION.read(header));
    let pseudo = checksum::pseudo4(source, destination, layers.protocol, covered);
    checksum::sum(header) == 0xffff && (none || checksum::add(checksum::sum(payload), pseudo) == 0xffff)
}

/// Whether an address can belong to a remote host: the first byte is not 0 or 127, and is below 224.
#[inline(always)]
pub fn is_unicast(address: u32) -> bool {
    // The first byte is in the range 1 to 223, and is not 127.
    (address >> 24).wrapping_sub(1) < 223 && address >> 24 != 127
}

/// Whether the first byte of an address is 0, 127, or at least `reserved`.
#[inline(always)]
const fn is_suspect(address: u32, reserved: u32) -> bool {
    let net = address >> 24;
    (net == 0) | (net == 127) | (net >= reserved)
}

/// Bitmap of invalid flag combinations: one bit for each value of the six flags.
const NONSENSE: u64 = {
    let mut set = 1;
    let mut flags = 1;
    while flags < 64u8 {
        if flags & flag::SYN != 0 && flags & (flag::FIN | flag::RST) != 0 {
            set |= 1 << flags;
        }
        flags += 1;
    }
    set
};

#[inline(always)]
fn has_invalid_flags(flags: u8) -> bool {
    NONSENSE >> (flags & 63) & 1 != 0
}

#[inline(never)]
fn validate_any(frame: &[u8], checksums: Checksums, layers: &Layers, policy: &Policy) -> Result<Validity, Fault> {
    let datagram = layers.datagram(frame);
    let segments_left = match layers.class {
        Class::Ipv4 => {
            network4(datagram, checksums, layers, policy)?;
            0
        }
        Class::Ipv6 => network6(datagram, checksums, layers, policy)?,
        Class::Arp => {
            let message = arp::Arp::new(datagram).ok_or(Fault::BadArp)?;
            return if message.is_ipv4_over_ethernet() {
                Ok(Validity::Valid)
            } else {
                Err(Fault::BadArp)
            };
        }
        Class::Other => return Ok(Validity::Valid),
    };
    let payload = layers.payload(frame);
    match layers.fragment {
        Fragment::Whole => {
            if policy.headers {
                transport(payload, layers)?;
            }
            // Before the last segment of a routing header, the pseudo-header contains a different destination than the
            // IP header.
            if segments_left > 0 {
                Ok(Validity::Valid)
            } else {
                transport_checksum(datagram, payload, checksums, layers)
            }
        }
        _ if checksums == Checksums::PartialChecksum => Err(Fault::OffloadOnFragment),
        Fragment::First if !policy.headers => Ok(Validity::Valid),
        Fragment::First => match transport(payload, layers) {
            Err(Fault::BadTcpOffset) => Err(Fault::TinyFragment),
            // The UDP length is the length of the whole datagram, so it need not match the length of this fragment.
            Ok(()) | Err(Fault::BadUdpLength) => Ok(Validity::Valid),
            Err(fault) => Err(fault),
        },
        Fragment::Later => Ok(Validity::Valid),
    }
}

fn network4(datagram: &[u8], checksums: Checksums, layers: &Layers, policy: &Policy) -> Result<(), Fault> {
    let header = Ipv4::new(datagram).ok_or(Fault::BadTotalLength)?;
    match checksums {
        Checksums::BadL3 => return Err(Fault::BadHeaderChecksum),
        Checksums::Vouched => {}
        _ if header.has_valid_checksum() => {}
        _ => return Err(Fault::BadHeaderChecksum),
    }
    if layers.flags.has(Flags::OPTIONS) {
        ipv4::check_options(header.options(), policy.source_routes)?;
    }
    if policy.martians {
        martian4(header.source(), header.destination(), layers, policy.reserved)?;
    }
    let more = header.fragment() & ipv4::MORE_FRAGMENTS != 0;
    let length = datagram.len() - header.header_length().min(datagram.len());
    fragment(
        layers,
        header.fragment_offset(),
        more,
        length,
        u16::MAX as usize - header.header_length(),
    )
}

fn network6(datagram: &[u8], checksums: Checksums, layers: &Layers, policy: &Policy) -> Result<u8, Fault> {
    let header = Ipv6::new(datagram).ok_or(Fault::BadTotalLength)?;
    if checksums == Checksums::BadL3 {
        return Err(Fault::BadHeaderChecksum);
    }
    if policy.martians {
        martian6(header.source(), header.destination(), layers)?;
    }
    if !layers.flags.has(Flags::OPTIONS) {
        return Ok(0);
    }
    let chain = ipv6::walk(datagram)?;
    if let Some(at) = chain.fragment {
        let field = ipv6::fragment::Fragment::new(datagram.get(at..).unwrap_or_default()).ok_or(Fault::BadOptions)?;
        let length = datagram.len().saturating_sub(at + ipv6::fragment::LENGTH);
        // The maximum length applies to the reassembled datagram, which includes all headers before the fragment header.
        let max = (u16::MAX as usize).saturating_sub(at.saturating_sub(ipv6::LENGTH));
        fragment(layers, field.offset(), field.more(), length, max)?;
    }
    Ok(chain.segments_left)
}

/// Validates a fragment with `length` payload bytes at `offset`. The reassembled payload must not exceed `max` bytes.
fn fragment(layers: &Layers, offset: usize, more: bool, length: usize, max: usize) -> Result<(), Fault> {
    if offset + length > max {
        return Err(Fault::FragmentTooLong);
    }
    if more && (length == 0 || !length.is_multiple_of(8)) {
        return Err(Fault::BadFragmentLength);
    }
    if offset == 8 && layers.protocol == protocol::TCP {
        return Err(Fault::HeaderOverlap);
    }
    Ok(())
}

/// Rejects sources and destinations that must not be forwarded according to RFC 1812 (section 5.3.7) and RFC 6890. An
/// unspecified source is permitted for DHCP clients (RFC 2131). If `reserved` is set, addresses of 240.0.0.0/4 are also
/// rejected.
fn martian4(source: u32, destination: u32, layers: &Layers, reserved: bool) -> Result<(), Fault> {
    let is_host = |address: u32| !reserved && address >> 28 == 0xf && address != u32::MAX;
    let is_request = layers.protocol == protocol::UDP && layers.destination_port == 67 && destination == u32::MAX;
    if is_suspect(source, 224) && !(source == 0 && is_request) && !is_host(source) {
        return Err(Fault::MartianSource);
    }
    if is_suspect(destination, 240) && destination != u32::MAX && !is_host(destination) {
        return Err(Fault::MartianDestination);
    }
    if source == destination {
        Err(Fault::Land)
    } else {
        Ok(())
    }
}

/// Rejects sources and destinations that must not be forwarded according to RFC 4291: multicast sources, loopback and
/// IPv4-mapped addresses, and unspecified sources. An unspecified source is permitted in ICMPv6 messages to a group
/// (duplicate address detection, router solicitation, listener reports).
pub(crate) fn martian6(source: u128, destination: u128, layers: &Layers) -> Result<(), Fault> {
    let reserved = |address: u128| address == 1 || address >> 32 == 0xffff;
    let group = destination >> 120 == 0xff;
    if source >> 120 == 0xff || reserved(source) || (source == 0 && !(group && layers.protocol == protocol::ICMPV6)) {
        return Err(Fault::MartianSource);
    }
    let inside_host = group && (destination >> 112) & 0x0f <= 1;
    if destination == 0 || reserved(destination) || inside_host {
        return Err(Fault::MartianDestination);
    }
    if source == destination {
        Err(Fault::Land)
    } else {
        Ok(())
    }
}

/// Whether the lengths and flags of the TCP or UDP header of an unfragmented packet are valid.
pub fn validate_headers(frame: &[u8], layers: &Layers) -> Result<(), Fault> {
    match layers.fragment {
        Fragment::Whole => transport(layers.payload(frame), layers),
        _ => Ok(()),
    }
}

fn transport(payload: &[u8], layers: &Layers) -> Result<(), Fault> {
    match layers.protocol {
        protocol::TCP => {
            let header = tcp::Tcp::new(payload).ok_or(Fault::ShortTransport)?;
            if header.header_length() < tcp::LENGTH || header.header_length() > payload.len() {
                return Err(Fault::BadTcpOffset);
            }
            let flags = header.flags() & 63;
            if flags == 0 {
                Err(Fault::NoFlags)
            } else if flags & flag::SYN != 0 && flags & flag::FIN != 0 {
                Err(Fault::SynFin)
            } else if flags & flag::SYN != 0 && flags & flag::RST != 0 {
                Err(Fault::SynReset)
            } else {
                Ok(())
            }
        }
        protocol::UDP => {
            let length = udp::DATAGRAM_LENGTH.read(payload) as usize;
            if length < udp::LENGTH || length > payload.len() {
                Err(Fault::BadUdpLength)
            } else {
                Ok(())
            }
        }
        protocol::UDP_LITE if udp::coverage(payload).is_none() => Err(Fault::BadUdpLength),
        _ => Ok(()),
    }
}

/// The part of an unfragmented packet that its transport checksum covers.
struct Covered {
    /// Offset of the checksum field in the payload.
    field: usize,
    /// Number of covered payload bytes.
    length: usize,
    /// Sum of the pseudo-header; 0 for protocols without pseudo-header.
    pseudo: u16,
}

fn covered(datagram: &[u8], payload: &[u8], layers: &Layers) -> Option<Covered> {
    let (field, length) = match (layers.protocol, layers.class) {
        (protocol::TCP, _) => (tcp::CHECKSUM.offset, payload.len()),
        (protocol::UDP, _) => (udp::CHECKSUM.offset, udp::DATAGRAM_LENGTH.read(payload) as usize),
        (protocol::UDP_LITE, _) => (udp::CHECKSUM.offset, udp::coverage(payload)?),
        (protocol::ICMP, Class::Ipv4) => (icmp::CHECKSUM.offset, payload.len()),
        (protocol::ICMPV6, Class::Ipv6) => (icmpv6::CHECKSUM.offset, payload.len()),
        _ => return None,
    };
    // The pseudo-header of UDP-Lite contains the length of the whole packet, whatever the coverage is (RFC 3828,
    // section 3.1).
    let covered_bytes = if layers.protocol == protocol::UDP_LITE {
        payload.len()
    } else {
        length
    };
    let pseudo = match layers.class {
        Class::Ipv4 if layers.protocol == protocol::ICMP => 0,
        Class::Ipv4 => checksum::pseudo4(
            ipv4::SOURCE.read(datagram),
            ipv4::DESTINATION.read(datagram),
            layers.protocol,
            covered_bytes as u16,
        ),
        _ => checksum::pseudo6(
            ipv6::SOURCE.read(datagram),
            ipv6::DESTINATION.read(datagram),
            layers.protocol,
            covered_bytes as u16,
        ),
    };
    Some(Covered { field, length, pseudo })
}

pub(crate) fn transport_checksum(
    datagram: &[u8],
    payload: &[u8],
    checksums: Checksums,
    layers: &Layers,
) -> Result<Validity, Fault> {
    let port_protocol = matches!(layers.protocol, protocol::TCP | protocol::UDP);
    // A UDP checksum of 0 (no checksum) is also accepted for IPv6, because tunnel packets may omit the checksum and
    // must be forwarded (RFC 6936, section 5).
    let none = || layers.protocol == protocol::UDP && udp::CHECKSUM.read(payload) == 0;
    match checksums {
        Checksums::Vouched => return Ok(Validity::Valid),
        Checksums::BadL4 | Checksums::Unverified if none() => return Ok(Validity::Valid),
        Checksums::BadL4 | Checksums::BadL3 => return Err(Fault::BadTransportChecksum),
        Checksums::PartialChecksum if port_protocol => return Ok(Validity::PartialChecksum),
        Checksums::PartialChecksum | Checksums::Unverified => {}
    }
    let Some(covered) = covered(datagram, payload, layers) else {
        return Ok(Validity::Valid);
    };
    let field = crate::field::Field::<u16>::at(covered.field).read(payload);
    let sum = checksum::sum(payload.get(..covered.length).unwrap_or_default());
    // A UDP-Lite checksum is mandatory (RFC 3828, section 3.1).
    let is_missing = layers.protocol == protocol::UDP_LITE && field == 0;
    if checksum::add(sum, covered.pseudo) == 0xffff && !is_missing {
        Ok(Validity::Valid)
    } else if port_protocol && field == covered.pseudo {
        Ok(Validity::PartialChecksum)
    } else {
        Err(Fault::BadTransportChecksum)
    }
}

/// Validates a reassembled datagram. `payload` is the payload of the reassembled datagram. `datagram` is one of the
/// fragments, with the layers `layers`.
pub fn validate_assembled(datagram: &[u8], payload: &[u8], layers: &Layers) -> Result<Validity, Fault> {
    transport(payload, layers)?;
    // Before the last segment of a routing header, the pseudo-header contains a different destination than the IP
    // header.
    if layers.class == Class::Ipv6 && ipv6::walk(datagram)?.segments_left > 0 {
        return Ok(Validity::Valid);
    }
    transport_checksum(datagram, payload, Checksums::Unverified, layers)
}

/// Computes and writes the TCP, UDP, UDP-Lite, ICMP or ICMPv6 checksum of an unfragmented packet. Fragments and packets
/// of other protocols are not changed.
pub fn complete_checksum(frame: &mut [u8], layers: &Layers) {
    if layers.fragment != Fragment::Whole {
        return;
    }
    let Some(covered) = covered(layers.datagram(frame), layers.payload(frame), layers) else {
        return;
    };
    let payload = layers.payload_mut(frame);
    let field = crate::field::Field::<u16>::at(covered.field);
    field.write(payload, 0);
    let sum = checksum::sum(payload.get(..covered.length).unwrap_or_default());
    let value = !checksum::add(sum, covered.pseudo);
    // A UDP checksum field of 0 means that the packet has no checksum (RFC 768). UDP-Lite forbids the value 0 (RFC 3828, section 3.1).
    field.write(
        payload,
        if value == 0 && matches!(layers.protocol, protocol::UDP | protocol::UDP_LITE) {
            0xffff
        } else {
            value
        },
    );
}

//! Locates the packet that an ICMP or ICMPv6 error quotes, so that translation can rewrite it.

use crate::fault::Fault;
use crate::ipv4::{self, Ipv4, protocol};
use crate::ipv6;
use crate::key::{Context, FlowKey4, FlowKey6};
use crate::layers::{Class, Flags, Fragment, Layers, chain_fragment, ports};

/// A quoted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted {
    /// Layers of the quoted packet, with offsets in the enclosing frame. `end` is the end of the quoted bytes, which is
    /// usually before the end of the original datagram. At least 8 bytes follow `l4`. The flags for ICMP queries are
    /// set.
    pub layers: Layers,
}

impl Quoted {
    /// Key of the quoted IPv4 packet, in its original direction.
    #[inline]
    pub fn key4(&self, frame: &[u8], context: Context) -> FlowKey4 {
        self.layers.key4(frame, context)
    }

    /// Key of the quoted IPv6 packet, in its original direction.
    #[inline]
    pub fn key6(&self, frame: &[u8], context: Context) -> FlowKey6 {
        self.layers.key6(frame, context)
    }
}

/// Locates the packet quoted by an ICMP or ICMPv6 error (RFC 5508, section 4; RFC 4443, section 2.4).
#[inline]
pub fn quoted(frame: &[u8], layers: &Layers) -> Result<Quoted, Fault> {
    quoted_with(frame, layers, 8)
}

/// Like [`quoted`], but requires only the ports of TCP or UDP after `l4`, which are sufficient to identify the flow.
/// Some hosts quote fewer than the 8 bytes of the transport header that RFC 792 requires, because they count IP options
/// among the 8 bytes.
#[inline]
pub fn quoted_flow(frame: &[u8], layers: &Layers) -> Result<Quoted, Fault> {
    quoted_with(frame, layers, 4)
}

/// `ports_end` is the required number of transport header bytes for TCP and UDP. Other protocols require 8 bytes.
fn quoted_with(frame: &[u8], layers: &Layers, ports_end: usize) -> Result<Quoted, Fault> {
    if !layers.flags.has(Flags::ICMP_ERROR) || layers.fragment != Fragment::Whole {
        return Err(Fault::NotAnError);
    }
    let l3 = layers.l4.saturating_add(crate::icmp::LENGTH as u16);
    let bytes = frame.get(l3 as usize..layers.end as usize).ok_or(Fault::ShortQuote)?;
    let mut quote = Layers {
        l3,
        class: layers.class,
        ..Layers::default()
    };
    let (header, total) = match layers.class {
        Class::Ipv4 => network4(bytes, &mut quote)?,
        Class::Ipv6 => network6(bytes, &mut quote)?,
        Class::Arp | Class::Other => return Err(Fault::NotAnError),
    };
    quote.l4 = l3.saturating_add(header as u16);
    quote.end = l3.saturating_add(total.min(bytes.len()) as u16);
    if quote.fragment == Fragment::Later {
        return Err(Fault::QuotedFragment);
    }
    let payload = quote.payload(frame);
    let min = match quote.protocol {
        protocol::TCP | protocol::UDP | protocol::UDP_LITE => ports_end,
        _ => 8,
    };
    if payload.len() < min {
        return Err(Fault::ShortQuote);
    }
    let has_ports = match quote.protocol {
        protocol::TCP | protocol::UDP | protocol::UDP_LITE => true,
        protocol::ICMP => quote.class == Class::Ipv4,
        protocol::ICMPV6 => quote.class == Class::Ipv6,
        _ => false,
    };
    if has_ports && let Some(found) = ports(payload, quote.protocol, &mut quote.flags) {
        (quote.source_port, quote.destination_port) = found;
    }
    if quote.flags.has(Flags::ICMP_ERROR) {
        return Err(Fault::QuotedError);
    }
    Ok(Quoted { layers: quote })
}

/// Header length and total length of a quoted IPv4 datagram.
fn network4(bytes: &[u8], quote: &mut Layers) -> Result<(usize, usize), Fault> {
    let header = Ipv4::new(bytes).ok_or(Fault::ShortQuote)?;
    if header.version_length() >> 4 != 4 {
        return Err(Fault::BadVersion);
    }
    let (length, total) = (header.header_length(), header.total_length() as usize);
    if length < ipv4::LENGTH || total < length {
        return Err(Fault::BadHeaderLength);
    }
    if bytes.len() < length {
        return Err(Fault::ShortQuote);
    }
    if !header.has_valid_checksum() {
        return Err(Fault::QuotedChecksum);
    }
    quote.protocol = header.protocol();
    quote.ttl = header.ttl();
    if header.fragment() & ipv4::FRAGMENT_OFFSET != 0 {
        quote.fragment = Fragment::Later;
    } else if header.fragment() & ipv4::MORE_FRAGMENTS != 0 {
        quote.fragment = Fragment::First;
    }
    if length > ipv4::LENGTH {
        quote.flags = Flags::OPTIONS;
    }
    Ok((length, total))
}

/// Header length and total length of a quoted IPv6 packet.
fn network6(bytes: &[u8], quote: &mut Layers) -> Result<(usize, usize), Fault> {
    let header = ipv6::Ipv6::new(bytes).ok_or(Fault::ShortQuote)?;
    if header.version_class_flow() >> 28 != 6 {
        return Err(Fault::BadVersion);
    }
    let total = ipv6::LENGTH + header.payload_length() as usize;
    let datagram = bytes.get(..total).unwrap_or(bytes);
    let chain = ipv6::walk(datagram).map_err(|fault| match fault {
        Fault::BadOptions | Fault::TinyFragment => Fault::ShortQuote,
        other => other,
    })?;
    quote.protocol = chain.protocol;
    quote.ttl = header.hop_limit();
    quote.fragment = chain_fragment(datagram, &chain);
    if chain.count > 0 {
        quote.flags = Flags::OPTIONS;
    }
    Ok((chain.end, total))
}

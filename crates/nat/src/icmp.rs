//! Translation of ICMP errors that quote a translated packet (RFC 5508, section 4; RFC 4443 for IPv6).
//!
//! An ICMP error travels in the direction of the replies to the quoted packet. A lookup of the quoted packet's reversed
//! key ([`quoted_flow4`], [`quoted_flow6`]) finds the session, and the direction in which the error travels. The
//! header, ports and checksums of the quoted packet are rewritten to their values before the packet's translation. The
//! error is sent to the source address of the rewritten quote. If the destination of the quoted packet was translated,
//! the source of the error becomes the rewritten destination. An ICMP error never changes the state or the timers of
//! the session (RFC 5508, REQ-6).

use sluice_wire::checksum::Delta;
use sluice_wire::icmp::kind::SOURCE_QUENCH;
use sluice_wire::layers::Layers;
use sluice_wire::quote::{Quoted, quoted};
use sluice_wire::{Context, FlowKey4, FlowKey6, Tuple4, Tuple6};

use crate::Reason;
use crate::rewrite::{Rewrite, Transport, identifier, udp_checksum};

/// The packet that an IPv4 error quotes, and the key with which the session of this packet is looked up.
pub fn quoted_flow4(frame: &[u8], layers: &Layers, context: Context) -> Result<(Quoted, FlowKey4), Reason> {
    let quote = quoted(frame, layers).map_err(|_| Reason::BadIcmpQuote)?;
    Ok((quote, quote.key4(frame, context).reversed()))
}

/// The packet that an IPv6 error quotes, and the key with which the session of this packet is looked up.
pub fn quoted_flow6(frame: &[u8], layers: &Layers, context: Context) -> Result<(Quoted, FlowKey6), Reason> {
    let quote = quoted(frame, layers).map_err(|_| Reason::BadIcmpQuote)?;
    Ok((quote, quote.key6(frame, context).reversed()))
}

/// Checksum change between two byte ranges of equal length. The length must be even.
fn difference(old: &[u8], new: &[u8]) -> Delta {
    let words = old.as_chunks::<2>().0.iter().zip(new.as_chunks::<2>().0);
    words.fold(Delta::default(), |delta, (&old, &new)| {
        delta.word(u16::from_be_bytes(old), u16::from_be_bytes(new))
    })
}

/// Applies `change` to a two-byte checksum field. Does nothing if the header ends before the field.
fn update_checksum(header: &mut [u8], at: usize, change: impl FnOnce(u16) -> u16) {
    if let Some(field) = header.get_mut(at..).and_then(|tail| tail.first_chunk_mut::<2>()) {
        *field = change(u16::from_be_bytes(*field)).to_be_bytes();
    }
}

/// Rewrites a quoted transport header, of which at least 8 bytes are present. Returns the checksum change of the
/// enclosing ICMP message.
fn quoted_transport(header: &mut [u8], transport: Transport, ports: (u16, u16), l4: Delta) -> Delta {
    let mut before = [0; 18];
    let length = header.len().min(before.len()) & !1;
    let (Some(old), Some(now)) = (before.get_mut(..length), header.get_mut(..length)) else {
        return Delta::default();
    };
    old.copy_from_slice(now);
    let both = u32::from(ports.0) << 16 | u32::from(ports.1);
    match transport {
        Transport::Tcp | Transport::Udp => {
            if let Some(field) = now.first_chunk_mut::<4>() {
                *field = both.to_be_bytes();
            }
        }
        Transport::Query => {
            let kind = now.first().copied().unwrap_or_default();
            update_checksum(now, 4, |_| identifier(kind, both));
        }
        Transport::AddressesOnly | Transport::None => {}
    }
    match transport {
        Transport::Tcp => update_checksum(now, 16, |field| l4.apply(field)),
        Transport::Udp => update_checksum(now, 6, |field| udp_checksum(field, l4)),
        Transport::Query => update_checksum(now, 2, |field| l4.apply(field)),
        Transport::AddressesOnly => update_checksum(now, 6, |field| l4.apply(field)),
        Transport::None => {}
    }
    difference(old, now)
}

/// Translates an IPv4 error and subtracts `hops` from its TTL. `rewrite` is the session's rewrite for the direction in
/// which the error travels.
pub fn translate_error4(
    frame: &mut [u8],
    layers: &Layers,
    quote: &Quoted,
    rewrite: &Rewrite<'_, Tuple4>,
    hops: u8,
) -> Result<(), Reason> {
    let outer = quote.key4(frame, 0).tuple();
    let other = rewrite.other;
    let (l3, l4, inner) = (
        usize::from(layers.l3),
        usize::from(layers.l4),
        usize::from(quote.layers.l3),
    );
    if frame.get(l4) == Some(&SOURCE_QUENCH) {
        return Err(Reason::SourceQuench);
    }

    let Some(header) = frame.get_mut(l3..).and_then(|tail| tail.first_chunk_mut::<20>()) else {
        return Err(Reason::Truncated);
    };
    let mut before = *header;
    // The destination of the error must be the source of the quoted packet.
    if header[16..20] != outer.source.to_be_bytes() {
        return Err(Reason::BadIcmpQuote);
    }
    if other.destination != outer.destination {
        header[12..16].copy_from_slice(&other.destination.to_be_bytes());
    }
    header[16..20].copy_from_slice(&other.source.to_be_bytes());
    header[8] = header[8].wrapping_sub(hops);
    let l3_delta = difference(&before, header);
    update_checksum(header, 10, |field| l3_delta.apply(field));

    let Some(header) = frame.get_mut(inner..).and_then(|tail| tail.first_chunk_mut::<20>()) else {
        return Err(Reason::Truncated);
    };
    before = *header;
    header[12..16].copy_from_slice(&other.source.to_be_bytes());
    header[16..20].copy_from_slice(&other.destination.to_be_bytes());
    update_checksum(header, 10, |field| rewrite.l3.apply(field));
    let message = difference(&before, header);

    let transport = Transport::of_layers(&quote.layers);
    let ports = (other.source_port, other.destination_port);
    let message = message.and(quoted_transport(
        quote.layers.payload_mut(frame),
        transport,
        ports,
        rewrite.l4,
    ));
    update_checksum(frame, l4 + 2, |field| message.apply(field));
    Ok(())
}

/// Translates an IPv6 error. See [`translate_error4`] for the parameters.
pub fn translate_error6(
    frame: &mut [u8],
    layers: &Layers,
    quote: &Quoted,
    rewrite: &Rewrite<'_, Tuple6>,
    hops: u8,
) -> Result<(), Reason> {
    let outer = quote.key6(frame, 0).tuple();
    let other = rewrite.other;
    let (l3, l4, inner) = (
        usize::from(layers.l3),
        usize::from(layers.l4),
        usize::from(quote.layers.l3),
    );
    let [source, destination] = [other.source, other.destination].map(octets);

    let Some(header) = frame.get_mut(l3..).and_then(|tail| tail.first_chunk_mut::<40>()) else {
        return Err(Reason::Truncated);
    };
    let mut before = *header;
    if header[24..40] != octets(outer.source) {
        return Err(Reason::BadIcmpQuote);
    }
    if other.destination != outer.destination {
        header[8..24].copy_from_slice(&destination);
    }
    header[24..40].copy_from_slice(&source);
    header[7] = header[7].wrapping_sub(hops);
    // The ICMPv6 checksum covers the IPv6 addresses of the error as part of the pseudo-header.
    let pseudo = difference(&before[8..], &header[8..]);

    let Some(header) = frame.get_mut(inner..).and_then(|tail| tail.first_chunk_mut::<40>()) else {
        return Err(Reason::Truncated);
    };
    before = *header;
    header[8..24].copy_from_slice(&source);
    header[24..40].copy_from_slice(&destination);
    let message = pseudo.and(difference(&before, header));

    let transport = Transport::of_layers(&quote.layers);
    let ports = (other.source_port, other.destination_port);
    let message = message.and(quoted_transport(
        quote.layers.payload_mut(frame),
        transport,
        ports,
        rewrite.l4,
    ));
    update_checksum(frame, l4 + 2, |field| message.apply(field));
    Ok(())
}

/// An IPv6 address in network byte order.
fn octets(address: [u64; 2]) -> [u8; 16] {
    (u128::from(address[0]) << 64 | u128::from(address[1])).to_be_bytes()
}

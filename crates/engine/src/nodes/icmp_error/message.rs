//! The messages that report errors.

use sluice_wire::ethernet::Link;
use sluice_wire::layers::Class;
use sluice_wire::tcp::Reset;
use sluice_wire::{Packet, icmp, icmpv6};

use crate::packet::batch::Meta;
use crate::packet::icmp_error::IcmpError;
use crate::session::family::{Family, V4, V6};
use crate::snapshot::Interface;

/// Turns a packet into the ICMP error about this packet. The source of the error is the address of the interface on
/// which the packet arrived.
pub(super) fn make(packet: &mut Packet<'_>, meta: &Meta, icmp_error: IcmpError, interface: &Interface) -> bool {
    let mut quote = [0; icmpv6::LONGEST_ERROR];
    let datagram = meta.layers.datagram(packet.bytes());
    let length = datagram.len().min(quote.len());
    quote[..length].copy_from_slice(&datagram[..length]);
    let quote = &quote[..length];
    // On a bridge, the answer is sent with the MAC and IP address of the packet's destination as its source.
    let bridged = interface.bridge.is_some();
    let link = match packet.bytes().first_chunk() {
        Some(&[a, b, c, d, e, f, g, h, i, j, k, l]) if bridged => Link {
            source: [a, b, c, d, e, f],
            destination: [g, h, i, j, k, l],
        },
        _ => Link {
            source: interface.mac,
            destination: interface.mac,
        },
    };
    if icmp_error == IcmpError::Reset {
        return reset(packet, meta, link);
    }
    match meta.layers.class {
        Class::Ipv4 => {
            let (sender, target) = V4::addresses(&meta.layers, packet.bytes());
            let own = || interface.source4(sender);
            let Some(source) = bridged.then_some(target).or_else(own) else {
                return false;
            };
            icmp::emit_error(packet, link, source, sender, icmp_error.icmp(), quote)
        }
        Class::Ipv6 => {
            let (sender, target) = V6::addresses(&meta.layers, packet.bytes());
            let (sender, target) = (number(sender), number(target));
            let own = || interface.source6(sender);
            let Some(source) = bridged.then_some(target).or_else(own) else {
                return false;
            };
            icmpv6::emit_error(packet, link, source, sender, icmp_error.icmpv6(), quote)
        }
        _ => false,
    }
}

/// Turns a TCP segment into a reset of its connection. The source address of the reset is the destination of the
/// segment.
fn reset(packet: &mut Packet<'_>, meta: &Meta, link: Link) -> bool {
    let layers = &meta.layers;
    let length = layers.end.saturating_sub(layers.l4) as usize;
    let Some(reset) = Reset::to(layers.payload(packet.bytes()), length) else {
        return false;
    };
    if layers.class == Class::Ipv6 {
        let (sender, target) = V6::addresses(layers, packet.bytes());
        return reset.emit6(packet, link, number(target), number(sender));
    }
    let (sender, target) = V4::addresses(layers, packet.bytes());
    reset.emit4(packet, link, target, sender)
}

fn number([high, low]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

impl IcmpError {
    /// The ICMP type and code of the error (RFC 792, 1812, 1191, 6888 REQ-11).
    fn icmp(self) -> icmp::Error {
        use icmp::unreachable as code;
        match self {
            Self::TimeExceeded => icmp::Error::TIME_EXCEEDED,
            Self::TooBig(mtu) => icmp::Error::fragmentation_needed(mtu),
            Self::NoRoute => icmp::Error::unreachable(code::NETWORK),
            Self::HostUnreachable | Self::NoResources => icmp::Error::unreachable(code::HOST),
            Self::Prohibited => icmp::Error::unreachable(code::PROHIBITED),
            Self::PortUnreachable | Self::Reset => icmp::Error::unreachable(code::PORT),
        }
    }

    /// The ICMPv6 type and code of the error (RFC 4443).
    fn icmpv6(self) -> icmp::Error {
        use icmpv6::unreachable as code;
        match self {
            Self::TimeExceeded => icmpv6::HOP_LIMIT_EXCEEDED,
            Self::TooBig(mtu) => icmpv6::packet_too_big(mtu.into()),
            Self::NoRoute => icmpv6::unreachable_error(code::NO_ROUTE),
            Self::HostUnreachable | Self::NoResources => icmpv6::unreachable_error(code::ADDRESS),
            Self::Prohibited => icmpv6::unreachable_error(code::PROHIBITED),
            Self::PortUnreachable | Self::Reset => icmpv6::unreachable_error(code::PORT),
        }
    }

    /// The error for a packet that the routing table rejects (RFC 1812, 5.2.7.1); `None` if the packet is dropped silently.
    pub fn of(reason: sluice_route::Reason) -> Option<Self> {
        match reason {
            sluice_route::Reason::Prohibited => Some(Self::Prohibited),
            sluice_route::Reason::Unreachable => Some(Self::HostUnreachable),
            sluice_route::Reason::NoRoute => Some(Self::NoRoute),
            _ => None,
        }
    }
}

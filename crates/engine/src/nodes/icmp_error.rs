//! icmp-error: answers a packet with an ICMP error or a TCP reset, which is made in the buffer of that packet.

use sluice_route::Address;
use sluice_route::policer::ControlClass as Policed;
use sluice_wire::ethernet::Link;
use sluice_wire::layers::{self, Class};
use sluice_wire::tcp::Reset;
use sluice_wire::{Packet, icmp, icmpv6};

use crate::features::context::NodeContext;
use crate::features::sites;
use crate::nodes::declaration::{Exit, Node, needs};
use crate::nodes::dispatch::NodeTools;
use crate::nodes::{bridge, subscriber};
use crate::packet::batch::{Batch, Meta, Origin, put};
use crate::packet::counters::CycleStage;
use crate::packet::hand_off::{EntryPoint, HandOffNote};
use crate::packet::icmp_error::IcmpError;
use crate::packet::lists::{Leave, Lists};
use crate::session::family::{Family, V4, V6};
use crate::snapshot::Interface;
use crate::snapshot::tunnels::addresses;

/// Declaration of this node of the graph.
pub const NODE: Node = Node {
    name: "icmp-error",
    help: "makes ICMP errors and resets",
    stage: Some(CycleStage::Forward),
    leaves: &[Leave::HandOver, Leave::Drop],
    exits: &[
        Exit::new("forward", "ICMP error", needs::ROUTED),
        Exit::new("session-lookup", "hairpinned", needs::STATEFUL),
        Exit::new("transmit", "ICMP error in a site", needs::SITES),
        Exit::new("bridge", "ICMP error on a bridge", needs::BRIDGED | needs::INSPECTED),
    ],
};

/// Makes ICMP errors and TCP resets.
#[inline(never)]
pub fn icmp_error(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    _tools: &mut NodeTools<'_>,
) {
    for (slot, icmp_error, reason) in std::mem::take(&mut lists.icmp_error) {
        let meta = *batch.meta(slot);
        if meta.is_from_gateway() {
            learn(&icmp_error, &meta, batch.packets[slot as usize].bytes(), ctx);
            lists.drop_packet(slot, reason);
            continue;
        }
        let Some(owner) = ctx.owner.as_deref_mut() else {
            lists.hand_over(
                slot,
                ctx.snapshot.owner,
                HandOffNote::new(EntryPoint::SendIcmpError(icmp_error, reason), &meta),
            );
            continue;
        };
        let packet = &mut batch.packets[slot as usize];
        let (tags, bridged) = (
            bridge::tags(&meta, packet.bytes()),
            ctx.snapshot.is_bridged(meta.interface),
        );
        // An answer to a terminal of a site is sent to the MAC from which the packet came, because sites have no routes.
        let of_site = sites::came_from(ctx.snapshot, &meta);
        let sender = packet.bytes().get(6..12).and_then(|mac| mac.try_into().ok());
        let terminal: Option<[u8; 6]> = sender.filter(|_| of_site);
        let made = ctx.snapshot.interface(meta.interface).is_some_and(|interface| {
            may_report(packet, &meta, icmp_error)
                && owner
                    .policer
                    .admits(Policed::IcmpError, meta.interface, ctx.now.nanoseconds)
                && owner
                    .policer
                    .admits_error_to(sender_of(packet, &meta), ctx.now.nanoseconds)
                && make(packet, &meta, icmp_error, interface)
        });
        if !made {
            lists.drop_packet(slot, reason);
            continue;
        }
        if let Some(counters) = ctx.counters.interfaces.get(meta.interface as usize) {
            counters.drop(reason);
            counters.originated.add(1);
        }
        match (bridged, terminal) {
            (true, _) => bridge::answer(slot, tags, batch, lists, ctx),
            (false, Some(mac)) => subscriber::answer(slot, mac, Some(tags), batch, lists, ctx),
            (false, None) => reinject(slot, batch, lists),
        }
    }
}

/// Lowers the path MTU of a tunnel if an outer packet exceeds the MTU of a link. No ICMP error is sent, because the gateway
/// itself sent the outer packet.
#[cold]
fn learn(icmp_error: &IcmpError, meta: &Meta, frame: &[u8], ctx: &NodeContext<'_, '_>) {
    let IcmpError::TooBig(mtu) = *icmp_error else { return };
    let router = ctx.snapshot.router_of(meta.interface);
    if ctx
        .snapshot
        .tunnels
        .lower(router, addresses(&meta.layers, frame), mtu, ctx.now)
    {
        ctx.counters.path_mtus_lowered.add(1);
    }
}

/// Sends a packet that the gateway has made in a slot: the packet is parsed again and then routed. An error for a packet between
/// two inside hosts has an outside address as its destination and is translated (RFC 5508, REQ-7).
pub fn reinject(slot: crate::packet::io::BufferIndex, batch: &mut Batch<'_, '_>, lists: &mut Lists) {
    let meta = &mut batch.meta[slot as usize % crate::packet::io::BURST_BUFFERS];
    let hairpinned = meta.origin == Origin::Hairpinned;
    if !hairpinned {
        meta.origin = Origin::Own;
    }
    match layers::parse(batch.packets[slot as usize].bytes()) {
        Ok(layers) => {
            meta.layers = layers;
            match (layers.class, hairpinned) {
                (Class::Ipv6, false) => put(&mut lists.forward.v6, slot),
                (_, false) => put(&mut lists.forward.v4, slot),
                (Class::Ipv6, true) => put(&mut lists.session_lookup.v6, slot),
                (_, true) => put(&mut lists.session_lookup.v4, slot),
            }
        }
        Err(fault) => lists.drop_packet(slot, fault),
    }
}

/// The address to which the error is sent.
fn sender_of(packet: &Packet<'_>, meta: &Meta) -> Address {
    match meta.layers.class {
        Class::Ipv4 => V4::address(V4::addresses(&meta.layers, packet.bytes()).0),
        _ => V6::address(V6::addresses(&meta.layers, packet.bytes()).0),
    }
}

fn may_report(packet: &Packet<'_>, meta: &Meta, icmp_error: IcmpError) -> bool {
    match meta.layers.class {
        Class::Ipv4 => icmp::may_report(packet.bytes(), &meta.layers),
        Class::Ipv6 => icmpv6::may_report(packet.bytes(), &meta.layers, matches!(icmp_error, IcmpError::TooBig(_))),
        _ => false,
    }
}

fn number([high, low]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// Turns a TCP segment into a reset of its connection, which has the segment's destination as its source address.
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

/// Turns a packet into an ICMP error for it. The source of the error is the address of the interface on which the packet arrived.
fn make(packet: &mut Packet<'_>, meta: &Meta, icmp_error: IcmpError, interface: &Interface) -> bool {
    let mut quote = [0; icmpv6::LONGEST_ERROR];
    let datagram = meta.layers.datagram(packet.bytes());
    let length = datagram.len().min(quote.len());
    quote[..length].copy_from_slice(&datagram[..length]);
    let quote = &quote[..length];
    // On a bridge, the source of the answer is the MAC and IP address of the packet's destination.
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

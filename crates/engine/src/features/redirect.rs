//! ICMP redirects. If the gateway forwards a packet on the link on which it arrived, a redirect informs the sender of
//! the better next hop (RFC 1812, 5.2.7.2; RFC 4861, 8.2). The packet itself is forwarded as usual. The worker sends
//! the redirect after the nodes have run.

use sluice_route::{Address, Prefix};
use sluice_wire::ethernet::Link;
use sluice_wire::layers::{Flags, Layers};
use sluice_wire::{Packet, Window, icmp, icmpv6, ndp};

use crate::features::context::NodeContext;
use crate::packet::adjacency::AdjacencyIndex;
use crate::packet::batch::Meta;
use crate::packet::lists::Lists;
use crate::session::family::Family;
use crate::snapshot::Interface;
use crate::snapshot::tunnels::addresses;

/// Maximum length in bytes of a redirect with its link header.
const MAX_LENGTH: usize = icmpv6::LONGEST_ERROR + 14;

/// Sends a redirect to the sender of a packet that leaves through the interface on which it arrived. The TTL of the packet is not
/// decremented yet.
#[cold]
#[inline(never)]
pub fn redirect<F: Family>(
    packet: &Packet<'_>,
    meta: &Meta,
    hop: AdjacencyIndex,
    lists: &mut Lists,
    ctx: &NodeContext<'_, '_>,
) {
    let interface = ctx.snapshot.interface(meta.interface);
    let Some(interface) = interface.filter(|interface| interface.neighbours.redirects && !interface.is_pair()) else {
        return;
    };
    let (layers, frame) = (&meta.layers, packet.bytes());
    let (Some(next), Some(&sender)) = (
        ctx.forwarding.unresolved(hop),
        frame.get(6..).and_then(|mac| mac.first_chunk()),
    ) else {
        return;
    };
    let may_send_error = match F::IS_V6 {
        false => icmp::may_send_error(frame, layers),
        true => icmpv6::may_send_error(frame, layers, false),
    };
    let (source, _) = addresses(layers, frame);
    // IP options may contain a source route, which would determine the next hop.
    let is_applicable = may_send_error
        && !layers.flags.has(Flags::OPTIONS)
        && source != next.address
        && interface.link.has_neighbour(source);
    if !is_applicable {
        return;
    }
    let (mut buffer, mut window) = ([0; MAX_LENGTH], Window::default());
    let mut message = Packet::new(&mut buffer, &mut window);
    let link = Link {
        source: interface.mac,
        destination: sender,
    };
    let made = match next.address {
        Address::V4(gateway) => emit4(&mut message, (layers, frame), link, gateway, interface),
        Address::V6(target) => emit6(
            &mut message,
            (layers, frame),
            link,
            (target, ctx.forwarding.mac(hop)),
            interface,
        ),
    };
    if made
        && ctx.snapshot.admits_redirect(meta.interface, ctx.now)
        && lists.copies.take(meta.interface, message.bytes())
    {
        ctx.counters.redirects.add(1);
    }
}

/// Makes the IPv4 redirect. Sender and gateway must be in one network of the link.
fn emit4(
    message: &mut Packet<'_>,
    (layers, frame): (&Layers, &[u8]),
    link: Link,
    gateway: u32,
    interface: &Interface,
) -> bool {
    let (Address::V4(sender), _) = addresses(layers, frame) else {
        return false;
    };
    let is_common = |&(own, length): &(Address, u8)| {
        let network = Prefix::new(own, length);
        network.contains(Address::V4(sender)) && network.contains(Address::V4(gateway))
    };
    let Some(own) = interface
        .source4(sender)
        .filter(|_| interface.link.addresses.iter().any(is_common))
    else {
        return false;
    };
    let error = icmp::Error::redirect(gateway);
    icmp::emit_error(message, link, own, sender, error, layers.datagram(frame))
}

/// Makes the IPv6 redirect. The target of the redirect is the destination itself, or the link-local address of a
/// router.
fn emit6(
    message: &mut Packet<'_>,
    (layers, frame): (&Layers, &[u8]),
    link: Link,
    (target, mac): (u128, Option<[u8; 6]>),
    interface: &Interface,
) -> bool {
    let (Address::V6(sender), Address::V6(destination)) = addresses(layers, frame) else {
        return false;
    };
    let own = interface.link.addresses.iter().find_map(|(own, _)| match own {
        Address::V6(bits) if own.is_link_local() => Some(*bits),
        _ => None,
    });
    let is_first_hop = target == destination || Address::V6(target).is_link_local();
    let Some(own) = own.filter(|_| is_first_hop) else {
        return false;
    };
    let redirect = ndp::Redirect {
        target,
        destination,
        target_link: mac,
    };
    ndp::emit_redirect(message, link, (own, sender), &redirect, layers.datagram(frame))
}

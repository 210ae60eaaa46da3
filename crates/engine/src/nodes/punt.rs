//! punt: what a router's host gets: addressed to the router, or to a group of the link.
//!
//! Exits: taken in (the host has a copy), drop (not for hosts, policed, queue full).

use sluice_wire::ipv4::protocol;
use sluice_wire::layers::{Class, Flags, Layers};

use crate::batch::{Batch, Lists, put};
use crate::context::Ctx;
use crate::family::{Family, V4, V6};
use crate::punt::{self, Host, Multicast};
use crate::reason::Own;

/// Give hosts their packets.
#[inline(never)]
pub fn punt(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &mut Ctx<'_, '_>) {
    for slot in std::mem::take(&mut lists.punt) {
        let meta = *batch.meta(slot);
        let layers = &meta.layers;
        let frame = batch.packets[slot as usize].bytes();
        let Some(host) = ctx.policy.host(meta.interface) else {
            lists.discard(slot, Own::NoLocalService);
            continue;
        };
        if layers.flags.has(Flags::MULTICAST) && !hears(host, layers, frame) {
            lists.discard(slot, Own::Multicast);
            continue;
        }
        let class = punt::Class::of(layers);
        if !host.admits(meta.interface, class, ctx.now.nanoseconds) {
            lists.discard(slot, class.policed());
            continue;
        }
        // Without its tags, and without what fills a short frame up.
        let begin = (layers.l3 as usize).saturating_sub(2);
        let parts = (frame.get(..12), frame.get(begin..layers.end as usize));
        let (Some(addresses), Some(rest)) = parts else {
            lists.discard(slot, Own::Forgotten);
            continue;
        };
        if ctx.punts.give(meta.interface, [addresses, rest], ctx.counters) {
            host.count(class);
            put(&mut lists.taken, slot);
        } else {
            lists.discard(slot, Own::PuntQueueFull);
        }
    }
}

/// Whether a host is given what a group frame holds: a group of the link (RFC 5771, 4; RFC 4291, 2.7), where it wants all
/// any group, or DHCP to everybody. Nobody answers an echo request to a group, and discovery does not come here.
fn hears(host: &Host, layers: &Layers, frame: &[u8]) -> bool {
    let asks = layers.flags.has(Flags::ICMP_QUERY) && !layers.flags.has(Flags::ICMP_REPLY);
    if host.multicast() == Multicast::None || asks {
        return false;
    }
    let all = host.multicast() == Multicast::All;
    match layers.class {
        Class::Ipv4 => {
            let address = V4::addresses(layers, frame).1;
            let dhcp = layers.protocol == protocol::UDP && matches!(layers.destination_port, 67 | 68);
            address >> 8 == 0xe0_00_00 || all && address >> 28 == 0xe || address == u32::MAX && dhcp
        }
        Class::Ipv6 => {
            let first = V6::addresses(layers, frame).1[0];
            first >> 48 == 0xff02 || all && first >> 56 == 0xff
        }
        _ => false,
    }
}

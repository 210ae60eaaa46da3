//! Rewrites the headers of a packet that leaves.

use sluice_wire::{Packet, ethernet, ipv4};

use crate::nodes::output::Adjacency;

/// Decrements the TTL of a packet and writes the MAC addresses of an adjacency. If the packet needs further changes,
/// returns `false` without an effect.
#[inline(always)]
pub(super) fn rewrite(packet: &mut Packet<'_>, adjacency: &mut Adjacency) -> bool {
    let bytes = packet.len();
    let head: Option<&mut [u8; ethernet::LENGTH + ipv4::LENGTH]> = packet.bytes_mut().first_chunk_mut();
    if let Some((link, network)) = head.and_then(|head| head.split_first_chunk_mut::<{ ethernet::LENGTH }>())
        && let (Some(addresses), Some(network)) = (link.first_chunk_mut(), network.first_chunk_mut())
        && adjacency.is_direct_for::<0>(ipv4::TOTAL_LENGTH.read(network))
    {
        ipv4::decrement_header_ttl(network);
        adjacency.rewrite_link(addresses, bytes);
        return true;
    }
    false
}

/// Forwards a packet that arrived with this number of tags. The adjacency may have tags. If the packet needs further
/// changes, returns `false` without an effect.
#[inline(always)]
pub(super) fn relabel(packet: &mut Packet<'_>, adjacency: &mut Adjacency, tags: u8) -> bool {
    let at = ethernet::LENGTH + 4 * usize::from(tags);
    let network = packet.bytes().get(at..).and_then(|network| network.first_chunk());
    if !network.is_some_and(|network: &[u8; ipv4::LENGTH]| adjacency.may_send(ipv4::TOTAL_LENGTH.read(network)))
        || !adjacency.relabel(packet, tags)
    {
        return false;
    }
    let at = ethernet::LENGTH + 4 * usize::from(adjacency.tags());
    if let Some(network) = packet
        .bytes_mut()
        .get_mut(at..)
        .and_then(|network| network.first_chunk_mut())
    {
        ipv4::decrement_header_ttl(network);
    }
    true
}

/// Forwards a packet that arrived without tags. The adjacency may have tags. If the packet needs further changes,
/// returns `false` without an effect.
#[inline(never)]
pub(super) fn give_tags(packet: &mut Packet<'_>, adjacency: &mut Adjacency) -> bool {
    relabel(packet, adjacency, 0)
}

//! The inner packet of a tunnel.

use sluice_wire::ethernet::{self, ethertype, multicast4, multicast6};
use sluice_wire::ipv4::{self, protocol};
use sluice_wire::layers::Layers;
use sluice_wire::tunnel::{gre, vxlan};
use sluice_wire::{ipv6, udp};

use crate::snapshot::tunnels::TunnelKind;

/// Position of the inner packet in the frame.
pub(super) struct Inside {
    pub(super) id: Option<u32>,
    /// Byte range of the inner packet: offset of its first byte, and offset after its last byte.
    pub(super) from: usize,
    pub(super) to: usize,
    /// EtherType of the inner datagram.
    pub(super) kind: u16,
    /// Offset of the inner datagram.
    pub(super) datagram: usize,
}

/// Finds the inner packet; `None` if headers are malformed, or if the tunnel doesn't carry this protocol.
pub(super) fn inside(kind: TunnelKind, layers: &Layers, frame: &[u8]) -> Option<Inside> {
    let (l4, end) = (usize::from(layers.l4), usize::from(layers.end));
    let payload = layers.payload(frame);
    let ip = |id, from, kind| {
        matches!(kind, ethertype::IPV4 | ethertype::IPV6).then_some(Inside {
            id,
            from,
            to: end,
            kind,
            datagram: from,
        })
    };
    match kind {
        TunnelKind::Vxlan(_) => {
            let to = l4 + usize::from(udp::DATAGRAM_LENGTH.read(payload));
            // A router that only routes does not validate the UDP length.
            let id = vxlan::read(frame.get(l4 + udp::LENGTH..to).filter(|_| to <= end)?)?;
            let from = l4 + udp::LENGTH + vxlan::LENGTH;
            let inner = frame.get(from..to).filter(|inner| inner.len() >= ethernet::LENGTH)?;
            Some(Inside {
                id: Some(id),
                from,
                to,
                kind: ethernet::ETHERTYPE.read(inner),
                datagram: from + ethernet::LENGTH,
            })
        }
        TunnelKind::Gre => {
            let header = gre::read(payload)?;
            ip(header.key, l4 + header.length, header.inside)
        }
        TunnelKind::Ipip if layers.protocol == protocol::IPV6 => ip(None, l4, ethertype::IPV6),
        TunnelKind::Ipip => ip(None, l4, ethertype::IPV4),
    }
}

/// The multicast MAC that corresponds to the destination of a multicast datagram.
pub(super) fn group(kind: u16, datagram: &[u8]) -> Option<[u8; 6]> {
    if kind == ethertype::IPV6 {
        let group = ipv6::DESTINATION.read(datagram);
        return (group >> 120 == 0xff).then(|| multicast6(group));
    }
    match ipv4::DESTINATION.read(datagram) {
        u32::MAX => Some(ethernet::BROADCAST),
        group => (group >> 28 == 0xe).then(|| multicast4(group)),
    }
}

//! MSS clamping: lowers the maximum segment size option in forwarded TCP SYNs, so that endpoints don't send segments that exceed
//! the path MTU, even if ICMP errors are lost.
//!
//! The lower of the limits of the ingress and the egress interface applies, so one configured interface is enough. A
//! SYN without the option implies 536 bytes (RFC 9293, section 3.7.1) and is not changed. The option is never raised.

use sluice_wire::Packet;
use sluice_wire::layers::Layers;
use sluice_wire::tcp::{Tcp, flag};

use crate::session::family::Family;
use crate::snapshot::Snapshot;

/// Number of bytes by which an IPv6 header is longer than an IPv4 header.
const LONGER: u16 = 20;

/// Whether a packet may have the MSS option. Every SYN may, with or without ACK.
#[inline(always)]
pub fn has_mss(layers: &Layers) -> bool {
    layers.tcp_flags & flag::SYN != 0
}

/// Lowers the MSS of a SYN to the limits of its ingress and egress interface.
#[inline(never)]
pub fn clamp<F: Family>(packet: &mut Packet<'_>, layers: &Layers, interfaces: [u16; 2], snapshot: &Snapshot) {
    let allowed = interfaces.map(|number| snapshot.interface(number)?.segment_size);
    let Some(max) = allowed.into_iter().flatten().min() else {
        return;
    };
    let max = if F::IS_V6 { max.saturating_sub(LONGER) } else { max };
    if let Some(mut segment) = Tcp::new(layers.payload_mut(packet.bytes_mut())) {
        segment.clamp_mss(max);
    }
}

//! TCP's maximum segment size, lowered in SYNs that pass (MSS clamping): ends whose path is narrower than they know, and
//! whose ICMP errors get lost, then send nothing that does not fit.
//!
//! The least of what both interfaces of the packet's way allow counts, so that it is enough to name one. A SYN without
//! the option offers 536 bytes (RFC 9293, section 3.7.1), and stays as it is. Nothing is ever raised.

use sluice_wire::Packet;
use sluice_wire::layers::Layers;
use sluice_wire::tcp::{Tcp, flag};

use crate::session::family::Family;
use crate::snapshot::Snapshot;

/// How much longer IPv6's header is.
const LONGER: u16 = 20;

/// Whether a packet says how long its sender's segments may become: every SYN does, with or without ACK.
#[inline(always)]
pub fn has_mss(layers: &Layers) -> bool {
    layers.tcp_flags & flag::SYN != 0
}

/// Lower what a SYN offers to what the interfaces allow that it comes in and goes out by.
#[inline(never)]
pub fn clamp<F: Family>(packet: &mut Packet<'_>, layers: &Layers, interfaces: [u16; 2], snapshot: &Snapshot) {
    let allowed = interfaces.map(|number| snapshot.interface(number)?.segment_size);
    let Some(most) = allowed.into_iter().flatten().min() else {
        return;
    };
    let most = if F::IS_V6 { most.saturating_sub(LONGER) } else { most };
    if let Some(mut segment) = Tcp::new(layers.payload_mut(packet.bytes_mut())) {
        segment.clamp_mss(most);
    }
}

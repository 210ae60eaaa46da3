//! Links without a device: inter-router links and tunnels.

use arrayvec::ArrayVec;

use super::{ResumeReason, Worker};
use crate::features::context::WaitingPacket;
use crate::packet::batch::{Origin, put};
use crate::packet::io::{BURST_BUFFERS, BufferIndex, Packets};
use crate::packet::reason::EngineReason;

impl Worker<'_> {
    /// Handles packets that were made at the end of a burst and leave through a link without a device: the next burst
    /// processes them.
    pub(super) fn forward_link_packets(&mut self) {
        let slots = std::mem::take(&mut self.parts.lists.inter_router_link);
        if slots.is_empty() {
            return;
        }
        let lengths = {
            let mut allocated = Packets::new();
            self.io.packets(&mut allocated);
            let length = |slot: &BufferIndex| {
                allocated
                    .get(usize::from(*slot))
                    .map_or(0, |packet| packet.len() as u64)
            };
            slots.iter().map(length).collect::<ArrayVec<u64, BURST_BUFFERS>>()
        };
        let snapshot = self.snapshot.load();
        let (mut gone, state) = (
            ArrayVec::<(WaitingPacket, ResumeReason), BURST_BUFFERS>::new(),
            &mut self.parts,
        );
        for (slot, length) in slots.into_iter().zip(lengths) {
            let meta = &mut state.meta[slot as usize % BURST_BUFFERS];
            let egress = snapshot.interface(meta.egress);
            let peer = egress.and_then(|interface| interface.peer);
            let tunnel = egress.and_then(|interface| interface.tunnel);
            meta.interface = peer.unwrap_or(meta.egress);
            let Some(counters) = state.counters.interfaces.get(meta.interface as usize) else {
                continue;
            };
            let resume = match tunnel {
                // The packet is encapsulated in the next burst, and counted as sent at that time.
                Some(_) => {
                    counters.sent.remove(1);
                    counters.sent_bytes.remove(length);
                    ResumeReason::Tunnelled
                }
                None => {
                    counters.received.add(1);
                    counters.received_bytes.add(length);
                    ResumeReason::InterRouterLink
                }
            };
            let parked = (peer.is_some() || tunnel.is_some()).then(|| self.io.park(slot));
            match parked {
                Some(Some(parked)) => {
                    counters.parked.add(1);
                    let waiting = WaitingPacket {
                        parked,
                        interface: meta.interface,
                        origin: Origin::Received,
                    };
                    put(&mut gone, (waiting, resume));
                }
                Some(None) => put(&mut state.lists.drop, (slot, EngineReason::ParkingFull.into())),
                None => put(&mut state.lists.drop, (slot, EngineReason::InterfaceGone.into())),
            }
        }
        gone.into_iter()
            .for_each(|(waiting, resume)| self.resume(waiting, resume));
    }
}

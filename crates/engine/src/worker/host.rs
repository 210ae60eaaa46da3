//! Frames from routers' hosts and from the subscriber service. The owner worker processes these frames.

use sluice_wire::layers::{self, Class};

use super::{State, Worker};
use crate::features::context::NodeContext;
use crate::packet::batch::{Batch, Meta, Origin, put};
use crate::packet::io::{BURST_BUFFERS, BufferIndex, Handover, Packets};
use crate::packet::lists::Lists;
use crate::packet::punt::PuntReceiver;
use crate::packet::reason::EngineReason;

/// Maximum number of frames that the worker takes in one round.
const MAX_FRAMES: usize = 32;

impl Worker<'_> {
    /// Whether hosts may send packets through this worker, so that the worker must not sleep for long.
    pub fn serves_hosts(&self) -> bool {
        self.serves_hosts
    }

    /// Whether frames from hosts are queued.
    #[inline(always)]
    pub(super) fn hosts_sent(&self) -> bool {
        self.host.as_ref().is_some_and(|queue| queue.has_frame())
    }

    /// Whether frames from the subscriber service are queued.
    #[inline(always)]
    pub(super) fn service_sent(&self) -> bool {
        self.service.as_ref().is_some_and(|queue| queue.has_frame())
    }

    /// Moves frames from hosts to the burst buffers. Returns their number.
    pub(super) fn take_from_hosts(&mut self) -> usize {
        take(self.host.as_mut(), &mut *self.io, &mut self.parts)
    }

    /// Moves frames from the subscriber service to the burst buffers. Returns their number.
    pub(super) fn take_from_service(&mut self) -> usize {
        take(self.service.as_mut(), &mut *self.io, &mut self.parts)
    }
}

/// Moves frames from a queue to the burst buffers. Returns their number.
fn take(queue: Option<&mut PuntReceiver>, io: &mut dyn Handover, state: &mut State<'_>) -> usize {
    let Some(queue) = queue else { return 0 };
    if queue.head().is_none() {
        return 0;
    }
    // The number of queued frames is not known in advance.
    let made = io.allocate(MAX_FRAMES);
    let mut allocated = Packets::new();
    io.packets(&mut allocated);
    let mut count = 0;
    while count < made
        && let Some((interface, length)) = queue.head()
        && let Some(packet) = allocated.get_mut(count)
    {
        // A frame that doesn't fit in a buffer is replaced by an empty packet, which is later dropped and counted as
        // such.
        let fits = packet.set_len(length);
        queue.pop(if fits { packet.bytes_mut() } else { &mut [] });
        state.meta[count % BURST_BUFFERS] = Meta {
            interface,
            origin: Origin::Gateway,
            ..Meta::default()
        };
        count += 1;
    }
    for slot in count..made {
        put(&mut state.lists.used, slot as BufferIndex);
    }
    count
}

/// Puts `count` packets that hosts have sent on the lists of their first nodes.
pub fn sent(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>, count: usize) {
    for slot in 0..count.min(batch.packets.len()) {
        let (packet, meta) = (&batch.packets[slot], &mut batch.meta[slot % BURST_BUFFERS]);
        let place = slot as BufferIndex;
        let Some(counters) = ctx.counters.interfaces.get(meta.interface as usize) else {
            // No interface has the number that the queue contains for this frame.
            put(&mut lists.used, place);
            continue;
        };
        counters.originated.add(1);
        match layers::parse(packet.bytes()) {
            _ if packet.bytes().is_empty() => lists.drop_packet(place, EngineReason::NoBuffer),
            Ok(layers) if matches!(layers.class, Class::Ipv4 | Class::Ipv6) && layers.tags == 0 => {
                meta.layers = layers;
                put(&mut lists.host, place);
            }
            Ok(_) => lists.drop_packet(place, EngineReason::UnknownEthertype),
            Err(fault) => lists.drop_packet(place, fault),
        }
    }
}

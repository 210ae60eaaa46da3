//! Frames that hosts send, as packets of the worker that owns what the gateway itself sends.

use sluice_wire::layers::{self, Class};

use super::{State, Worker};
use crate::features::context::NodeContext;
use crate::packet::batch::{Batch, Meta, Origin, put};
use crate::packet::io::{BURST_BUFFERS, BufferIndex, Handover, Packets};
use crate::packet::lists::Lists;
use crate::packet::punt::PuntReceiver;
use crate::packet::reason::Own;

/// Frames of hosts that one round takes.
const PORTION: usize = 32;

impl Worker<'_> {
    /// Whether hosts may send something by this worker: then it does not sleep for long.
    pub fn serves_hosts(&self) -> bool {
        self.serves_hosts
    }

    /// Whether hosts have sent something.
    #[inline(always)]
    pub(super) fn hosts_sent(&self) -> bool {
        self.host.as_ref().is_some_and(|queue| queue.has_frame())
    }

    /// Whether who serves subscribers' sites has sent something.
    #[inline(always)]
    pub(super) fn service_sent(&self) -> bool {
        self.service.as_ref().is_some_and(|queue| queue.has_frame())
    }

    /// Take frames that hosts have sent into the hand. Returns how many.
    pub(super) fn take_from_hosts(&mut self) -> usize {
        take(self.host.as_mut(), &mut *self.io, &mut self.parts)
    }

    /// Take frames of who serves subscribers' sites into the hand. Returns how many.
    pub(super) fn take_from_service(&mut self) -> usize {
        take(self.service.as_mut(), &mut *self.io, &mut self.parts)
    }
}

/// Take frames out of a queue into the hand. Returns how many.
fn take(queue: Option<&mut PuntReceiver>, io: &mut dyn Handover, state: &mut State<'_>) -> usize {
    let Some(queue) = queue else { return 0 };
    if queue.head().is_none() {
        return 0;
    }
    // How many frames wait is only known at the end of them.
    let made = io.allocate(PORTION);
    let mut lent = Packets::new();
    io.packets(&mut lent);
    let mut count = 0;
    while count < made
        && let Some((interface, length)) = queue.head()
        && let Some(packet) = lent.get_mut(count)
    {
        // A frame that is too long for a buffer is nothing, and counted as such.
        let fits = packet.set_len(length);
        queue.pop(if fits { packet.bytes_mut() } else { &mut [] });
        state.meta[count % BURST_BUFFERS] = Meta {
            interface,
            origin: Origin::Own,
            ..Meta::default()
        };
        count += 1;
    }
    for slot in count..made {
        put(&mut state.lists.used, slot as BufferIndex);
    }
    count
}

/// What hosts have sent, `count` packets, begins its way.
pub fn sent(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>, count: usize) {
    for slot in 0..count.min(batch.packets.len()) {
        let (packet, meta) = (&batch.packets[slot], &mut batch.meta[slot % BURST_BUFFERS]);
        let place = slot as BufferIndex;
        let Some(counters) = ctx.counters.interfaces.get(meta.interface as usize) else {
            // Nobody's, by a queue that names what is not there.
            put(&mut lists.used, place);
            continue;
        };
        counters.made.add(1);
        match layers::parse(packet.bytes()) {
            _ if packet.bytes().is_empty() => lists.drop_packet(place, Own::NoBuffer),
            Ok(layers) if matches!(layers.class, Class::Ipv4 | Class::Ipv6) && layers.tags == 0 => {
                meta.layers = layers;
                put(&mut lists.host, place);
            }
            Ok(_) => lists.drop_packet(place, Own::UnknownEthertype),
            Err(fault) => lists.drop_packet(place, fault),
        }
    }
}

//! Frames that hosts send, as packets of the worker that owns what the gateway itself sends.

use sluice_wire::layers::{self, Class};

use super::{State, Worker};
use crate::batch::{Batch, Lists, Meta, Origin, put};
use crate::context::Ctx;
use crate::io::{HAND, Handover, Lent, Slot};
use crate::punt::Taker;
use crate::reason::Own;

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
        self.host.as_ref().is_some_and(|queue| queue.waits())
    }

    /// Whether who serves subscribers' sites has sent something.
    #[inline(always)]
    pub(super) fn service_sent(&self) -> bool {
        self.service.as_ref().is_some_and(|queue| queue.waits())
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
fn take(queue: Option<&mut Taker>, io: &mut dyn Handover, state: &mut State<'_>) -> usize {
    let Some(queue) = queue else { return 0 };
    if queue.head().is_none() {
        return 0;
    }
    // How many frames wait is only known at the end of them.
    let made = io.allocate(PORTION);
    let mut lent = Lent::new();
    io.lend(&mut lent);
    let mut count = 0;
    while count < made
        && let Some((interface, length)) = queue.head()
        && let Some(packet) = lent.get_mut(count)
    {
        // A frame that is too long for a buffer is nothing, and counted as such.
        let fits = packet.set_len(length);
        queue.take(if fits { packet.bytes_mut() } else { &mut [] });
        state.meta[count % HAND] = Meta {
            interface,
            origin: Origin::Own,
            ..Meta::default()
        };
        count += 1;
    }
    for slot in count..made {
        put(&mut state.lists.used, slot as Slot);
    }
    count
}

/// What hosts have sent, `count` packets, begins its way.
pub fn sent(batch: &mut Batch<'_, '_>, lists: &mut Lists, ctx: &Ctx<'_, '_>, count: usize) {
    for slot in 0..count.min(batch.packets.len()) {
        let (packet, meta) = (&batch.packets[slot], &mut batch.meta[slot % HAND]);
        let place = slot as Slot;
        let Some(counters) = ctx.counters.interfaces.get(meta.interface as usize) else {
            // Nobody's, by a queue that names what is not there.
            put(&mut lists.used, place);
            continue;
        };
        counters.made.add(1);
        match layers::parse(packet.bytes()) {
            _ if packet.bytes().is_empty() => lists.discard(place, Own::NoBuffer),
            Ok(layers) if matches!(layers.class, Class::Ipv4 | Class::Ipv6) && layers.tags == 0 => {
                meta.layers = layers;
                put(&mut lists.host, place);
            }
            Ok(_) => lists.discard(place, Own::UnknownEthertype),
            Err(fault) => lists.discard(place, fault),
        }
    }
}

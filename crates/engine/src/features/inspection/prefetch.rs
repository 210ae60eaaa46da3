//! Prefetches the flow states of the packets of a burst. A flow state occupies about a dozen cache lines that are
//! linked by references, and the CPU caches are too small for the states of all flows.

use arrayvec::ArrayVec;
use sluice_inspect::inspector::{FlowHandle, Inspector};
use sluice_table::memory::LINE;
use sluice_table::prefetch::prefetch_read_at;
use sluice_wire::Direction;

use crate::features::inspection::InspectState;
use crate::packet::batch::Batch;
use crate::packet::io::BURST_BUFFERS;
use crate::packet::lists::SessionPackets;
use crate::session::family::{Family, Session};
use crate::session::shard::Shard;

/// Number of cache lines of a packet that are prefetched. The packet is read sequentially, so the hardware prefetches
/// the later lines.
const LINES: usize = 4;

/// Shard and flow of each packet of a burst; `None` for packets without a flow.
pub struct FlowPrefetch(ArrayVec<Option<(u16, FlowHandle, Direction)>, BURST_BUFFERS>);

impl FlowPrefetch {
    /// Creates the list for these packets, and prefetches the first line of each flow.
    #[inline(always)]
    pub fn of<F: Family>(packets: &SessionPackets, batch: &Batch<'_, '_>, shards: &[Option<Box<Shard<'_>>>]) -> Self {
        let flow = |&(slot, index, direction): &_| {
            let number = batch.meta(slot).shard;
            let shard = shards.get(usize::from(number))?.as_deref()?;
            let InspectState::Flow(handle) = F::table_ref(shard).get(index)?.inspect() else {
                return None;
            };
            let handle = FlowHandle(handle);
            shard.inspector.as_deref()?.prefetch(handle);
            Some((number, handle, direction))
        };
        Self(packets.iter().map(flow).collect())
    }

    /// Prefetches the state for the packet after the packet at this position.
    #[inline(always)]
    pub fn prefetch(
        &self,
        place: usize,
        packets: &SessionPackets,
        batch: &Batch<'_, '_>,
        shards: &mut [Option<Box<Shard<'_>>>],
    ) {
        if let Some((inspector, handle, direction)) = self.flow(place + 2, shards) {
            inspector.prefetch_more(handle, direction);
        }
        if let Some((inspector, handle, direction)) = self.flow(place + 1, shards) {
            inspector.prefetch_window(handle, direction);
        }
        if let Some(&(slot, ..)) = packets.get(place + 1) {
            let bytes = batch.packets[slot as usize].bytes();
            (1..=LINES).for_each(|line| prefetch_read_at(bytes, line * LINE));
        }
    }

    #[inline(always)]
    fn flow<'s, 'm>(
        &self,
        place: usize,
        shards: &'s mut [Option<Box<Shard<'m>>>],
    ) -> Option<(&'s mut Inspector<'m>, FlowHandle, Direction)> {
        let (number, handle, direction) = (*self.0.get(place)?)?;
        let shard = shards.get_mut(usize::from(number))?.as_deref_mut()?;
        Some((shard.inspector.as_deref_mut()?, handle, direction))
    }
}

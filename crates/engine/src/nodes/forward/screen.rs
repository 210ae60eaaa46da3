//! Evaluation of the stateless filter.

use arrayvec::ArrayVec;
use sluice_filter::{Filters, SessionMarking};

use crate::features::context::NodeContext;
use crate::features::filter::{self, Exception, FilterQueries};
use crate::packet::batch::Batch;
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::packet::lists::Lists;
use crate::session::family::Family;
use crate::snapshot::forwarding::ForwardingDecision;
use crate::snapshot::marks::set_class;

/// Evaluates the filter for received packets, and keeps the accepted packets on the list.
#[inline(never)]
pub(super) fn screen<F: Family>(
    batch: &mut Batch<'_, '_>,
    slots: &mut ArrayVec<BufferIndex, BURST_BUFFERS>,
    (addresses, routes): (&mut [F::Address; BURST_BUFFERS], &mut [u32; BURST_BUFFERS]),
    lists: &mut Lists,
    filter: &Filters,
    ctx: &NodeContext<'_, '_>,
) {
    let mut queried = FilterQueries::<F>::default();
    for (place, &slot) in slots.iter().enumerate() {
        let (meta, frame) = (batch.meta(slot), batch.packets[slot as usize].bytes());
        let egress = match ctx.forwarding.destination::<F>(routes[place], addresses[place]) {
            ForwardingDecision::Hop(hop) => hop.interface() as u16,
            ForwardingDecision::Unknown(wanted) => wanted.interface,
            ForwardingDecision::Local | ForwardingDecision::Refused(_) => continue,
        };
        let context = ctx
            .snapshot
            .interface(meta.interface)
            .map_or(0, |interface| interface.context);
        if meta.is_from_gateway() || F::is_group(addresses[place]) || ctx.snapshot.filter_of(context).is_none() {
            continue;
        }
        let key = F::key(&meta.layers, frame, context);
        queried.push(
            place,
            filter::header::<F>(ctx.snapshot, meta, frame, &F::tuple(&key), egress),
        );
    }
    let marked = |place: usize, marking: SessionMarking| {
        if let (false, Some(&slot)) = (marking.class.is_any(), slots.get(place)) {
            let slot = slot as usize % BURST_BUFFERS;
            set_class::<F>(batch.packets[slot].bytes_mut(), &batch.meta[slot].layers, marking.class);
        }
    };
    let mut refused = [None; BURST_BUFFERS];
    for (place, exception) in queried.exceptions(filter, ctx, marked) {
        if let Exception::Refused(reason) = exception {
            refused[place] = Some(reason);
        }
    }
    let (mut place, mut kept) = (0, 0);
    slots.retain(|slot| {
        let refused = refused[place];
        (addresses[kept], routes[kept]) = (addresses[place], routes[place]);
        place += 1;
        match refused {
            None => kept += 1,
            Some(refused) => lists.reject(*slot, refused),
        }
        refused.is_none()
    });
}

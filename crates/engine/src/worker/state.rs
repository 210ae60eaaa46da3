//! The state that a burst borrows from its worker.

use crate::features::context::{NodeContext, Revalidations};
use crate::features::inspection::Inspector;
use crate::nodes::express::Lane;
use crate::nodes::session_lookup::LookupScratch;
use crate::packet::batch::Meta;
use crate::packet::io::BURST_BUFFERS;
use crate::packet::lists::Lists;
use crate::packet::time::Now;
use crate::snapshot::Snapshot;

use super::State;

/// The state of a worker, borrowed for a burst.
pub(super) struct BurstState<'c, 'm> {
    pub(super) ctx: NodeContext<'c, 'm>,
    pub(super) lists: &'c mut Lists,
    pub(super) meta: &'c mut [Meta; BURST_BUFFERS],
    pub(super) lookups: &'c mut LookupScratch,
    pub(super) lane: Option<&'c mut Lane>,
    pub(super) inspector: Option<&'c mut Inspector>,
}

impl<'m> State<'m> {
    /// Borrows the state for a burst that revalidates no session, and neither defers nor counts packets.
    #[inline(always)]
    pub(super) fn for_burst<'c>(&'c mut self, snapshot: &'c Snapshot, now: Now) -> BurstState<'c, 'm> {
        BurstState {
            ctx: NodeContext {
                now,
                own: self.own,
                start: &self.start,
                role: &self.role,
                snapshot,
                forwarding: &self.forwarding,
                hasher: &self.hasher,
                shards: &mut self.shards,
                counters: &self.counters,
                events: &self.events,
                records: &self.records,
                punts: &self.punts,
                subscribers: &self.subscribers,
                recognition: &self.recognition,
                owner: self.owner.as_deref_mut(),
                revisions: Revalidations::default(),
                defers: false,
                seen: &mut [],
            },
            lists: &mut self.lists,
            meta: &mut self.meta,
            lookups: &mut self.lookups,
            lane: self.lane.as_deref_mut(),
            inspector: self.inspecting.as_deref_mut(),
        }
    }
}

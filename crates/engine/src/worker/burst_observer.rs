//! Observers of a burst: a tracer, a capture, or both.

use crate::features::context::NodeContext;
use crate::nodes::dispatch::Observer;
use crate::packet::batch::Batch;
use crate::packet::io::BufferIndex;
use crate::packet::lists::{Lists, NodeIndex};
use crate::packet::time::Now;
use crate::worker::capture::Tap;
use crate::worker::trace::Tracer;

/// The tracer and the capture of a worker. The observer exists for the duration of a burst.
pub struct BurstObserver<'w> {
    tracer: Option<&'w mut Tracer>,
    tap: Option<&'w mut Tap>,
}

impl<'w> BurstObserver<'w> {
    /// Creates the observer; `None` if there is neither a tracer nor a capture.
    pub fn new(tracer: Option<&'w mut Tracer>, tap: Option<&'w mut Tap>) -> Option<Self> {
        (tracer.is_some() || tap.is_some()).then_some(Self { tracer, tap })
    }

    /// Starts to observe a burst. `node` has put the packets of the burst on their first lists.
    pub fn begin(&mut self, node: &'static str, batch: &Batch<'_, '_>, lists: &Lists, now: Now) {
        if let Some(tracer) = &mut self.tracer {
            tracer.begin(node, batch, lists, now);
        }
    }

    /// Ends the observation after all nodes have run.
    pub fn end(&mut self, batch: &Batch<'_, '_>, lists: &Lists, now: Now) {
        if let Some(tracer) = &mut self.tracer {
            tracer.end(batch, lists);
        }
        if let Some(tap) = &mut self.tap {
            tap.leaving(batch, lists, 0, now);
        }
    }
}

impl Observer for BurstObserver<'_> {
    fn after(&mut self, node: NodeIndex, lists: &Lists) {
        if let Some(tracer) = &mut self.tracer {
            tracer.after(node.node().name, lists);
        }
    }

    fn crosses(&mut self, batch: &Batch<'_, '_>, slots: &[BufferIndex], ctx: &NodeContext<'_, '_>) {
        if let Some(tap) = &mut self.tap {
            tap.crossing(batch, slots, ctx.snapshot, ctx.now);
        }
    }

    fn arrives(&mut self, batch: &Batch<'_, '_>, slots: &[BufferIndex], ctx: &NodeContext<'_, '_>) {
        if let Some(tap) = &mut self.tap {
            tap.arrived(batch, slots, ctx.now);
        }
    }
}

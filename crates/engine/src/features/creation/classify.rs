//! The first step of session creation: builds the keys of new flows and matches destination rules.

use super::{FlowDecision, NewFlow, NewFlows};
use crate::features::context::NodeContext;
use crate::packet::batch::{Batch, put};
use crate::packet::io::{BURST_BUFFERS, BufferIndex};
use crate::session::family::Family;

use arrayvec::ArrayVec;

impl<F: Family> NewFlows<F> {
    /// Classifies the packets for which no decision has been made yet. One call matches the destination rules for all
    /// of them.
    pub fn classify(&mut self, slots: &[BufferIndex], batch: &Batch<'_, '_>, ctx: &NodeContext<'_, '_>) {
        let mut queried = ArrayVec::<_, BURST_BUFFERS>::new();
        for &slot in slots {
            let meta = batch.meta(slot);
            let frame = batch.packets[slot as usize].bytes();
            let key = F::key(&meta.layers, frame, ctx.snapshot.context(meta, frame));
            put(&mut self.keys, key);
            put(&mut queried, (F::tuple(&key), F::protocol(&key), meta.interface));
        }
        let mut matches = [None; BURST_BUFFERS];
        ctx.snapshot.nat::<F>().rules.match_destinations(&queried, &mut matches);
        for (&slot, &destination) in slots.iter().zip(&matches) {
            put(&mut self.flows, NewFlow::new(slot, destination, FlowDecision::Plain));
        }
    }
}

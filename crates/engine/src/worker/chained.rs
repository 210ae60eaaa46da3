//! Chains within a burst: what has just come in by an interface takes them before anything else.

use std::ops::Range;

use super::arrivals::Runs;
use crate::features::context::NodeContext;
use crate::nodes::{chain, hand_off};
use crate::packet::batch::{Batch, Lists};
use crate::worker::trace::Tracer;

/// What was parsed in this burst, or has crossed a virtual link, goes to its router's chains.
#[inline(always)]
pub fn divert(batch: &Batch<'_, '_>, lists: &mut Lists, ctx: &NodeContext<'_, '_>, runs: &Runs) {
    if ctx.snapshot.is_chained() {
        let parsed = runs.iter().map(|(_, slots)| mask_of(slots));
        let fresh = parsed.fold(lists.fresh, |all, slots| all | slots);
        lists.fresh = 0;
        chain::divert(batch, lists, ctx.snapshot, fresh);
    }
}

/// It takes them.
#[inline(always)]
pub fn walk(
    batch: &mut Batch<'_, '_>,
    lists: &mut Lists,
    ctx: &mut NodeContext<'_, '_>,
    tracer: &mut Option<&mut Tracer>,
) {
    if lists.chain.is_empty() {
        return;
    }
    chain::chain(batch, lists, ctx);
    if !ctx.role.sessions.is_empty() {
        hand_off::both(batch, lists, ctx);
    }
    if let Some(tracer) = tracer {
        tracer.after("chain", lists);
    }
}

/// A bit for each slot.
fn mask_of(slots: &Range<usize>) -> u128 {
    let below = |end: usize| 1u128.checked_shl(end as u32).map_or(u128::MAX, |bit| bit - 1);
    below(slots.end) & !below(slots.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_has_a_bit_for_each_slot() {
        assert_eq!(0, mask_of(&(5..5)));
        assert_eq!(0b1110, mask_of(&(1..4)));
        assert_eq!(u128::MAX, mask_of(&(0..128)));
        assert_eq!(1 << 127, mask_of(&(127..128)));
    }
}

//! Searches the trees for a batch of headers simultaneously, or for a single header.

use core::num::NonZero;
use core::sync::atomic::Ordering;

use sluice_table::arena::View;
use sluice_table::prefetch::prefetch_all_far_at;
use sluice_table::simd::lanes::{Lanes, Work};

use super::leaf::{LEAF_RULES, Leaf};
use super::{BATCH, Child, CutTree, Group, Node};
use crate::{Address, Header, RuleNumber};

/// If all leaves together have at most this size in bytes, they are not prefetched, because a core's caches hold them.
const MAX_CACHED_LEAF_BYTES: usize = 2 << 20;

/// Search for a batch of headers. The search finds the first matching rule of each header that has an entry in `found`.
pub struct BatchSearch<'a, A: Address> {
    pub best: &'a CutTree<A>,
    pub headers: &'a [Header<A>; BATCH],
    pub found: &'a mut [Option<RuleNumber>],
}

/// Set of lanes, with one bit for each header of a batch.
type Bits = u64;

/// Calls `keep` for each lane in order, and returns the lanes for which it returned true. The result is accumulated
/// without a branch.
#[inline(always)]
fn kept(mut lanes: Bits, mut keep: impl FnMut(usize) -> bool) -> Bits {
    let mut kept = 0;
    while let Some(remaining) = NonZero::new(lanes) {
        let lane = remaining.trailing_zeros();
        kept |= Bits::from(keep(lane as usize)) << lane;
        lanes &= lanes - 1;
    }
    kept
}

impl<A: Address> Work for BatchSearch<'_, A> {
    type Output = ();

    /// All lanes advance by one tree level together. Bit sets select the active lanes of each step, without a branch
    /// for each lane.
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let Self { best, headers, found } = self;
        let count = found.len().min(BATCH);
        let mut first = [RuleNumber::MAX; BATCH];
        let mut at = [Child::EMPTY; BATCH];
        // The headers are prefetched first, because more prefetches than loads can be in flight at a time.
        for lane in 0..count {
            prefetch_all_far_at(headers, lane);
        }
        let trees = best.trees();
        let all = Bits::MAX.checked_shr((BATCH - count) as u32).unwrap_or(0);
        for group in &best.groups {
            let (mut later, starts) = (0, group.first.load(Ordering::Relaxed));
            for (number, first) in first.as_chunks().0.iter().enumerate() {
                later |= Bits::from(!lanes.not_below(first, starts)) << (LEAF_RULES * number);
            }
            let queried = match &group.reach {
                Some(reach) => kept(all & later, |lane| reach.has(&headers[lane])),
                None => all & later,
            };
            trees.descend(group, queried, headers, &mut at, lanes);
            if best.built * size_of::<Leaf<A>>() > MAX_CACHED_LEAF_BYTES {
                kept(queried, |lane| {
                    trees.leaves.prefetch_all_far(at[lane].leaf_number());
                    true
                });
            }
            let mut queried = queried;
            while queried != 0 {
                queried = kept(queried, |lane| {
                    let Some(leaf) = trees.leaves.get(at[lane].leaf_number()) else {
                        return false;
                    };
                    let rule = best.first_of_leaf(leaf, &headers[lane], lanes);
                    first[lane] = first[lane].min(rule);
                    let next = leaf.next();
                    let continues = (next != 0) & (rule == RuleNumber::MAX);
                    if continues {
                        at[lane] = Child::leaf(next as usize);
                    }
                    continues
                });
            }
        }
        for (found, first) in found.iter_mut().zip(&first[..count]) {
            *found = (*first != RuleNumber::MAX).then_some(*first);
        }
    }
}

/// The trees of all groups.
struct Trees<'a, A: Address> {
    nodes: View<'a, Node>,
    leaves: View<'a, Leaf<A>>,
}

impl<A: Address> CutTree<A> {
    #[inline(always)]
    fn trees(&self) -> Trees<'_, A> {
        Trees {
            nodes: self.nodes.view(),
            leaves: self.leaves.view(),
        }
    }
}

impl<A: Address> Trees<'_, A> {
    /// Descends from the root to a leaf in all lanes.
    #[inline(always)]
    fn descend<L: Lanes>(
        &self,
        group: &Group,
        queried: Bits,
        headers: &[Header<A>; BATCH],
        at: &mut [Child; BATCH],
        lanes: L,
    ) {
        let root = &*group.root;
        let word = root.word % 16;
        let mut active = kept(queried, |lane| {
            at[lane] = root.child(headers[lane].words[word], lanes);
            at[lane].is_node()
        });
        while active != 0 {
            active = kept(active, |lane| {
                at[lane] = self.below(at[lane], &headers[lane], lanes);
                at[lane].is_node()
            });
        }
    }

    /// The child of a node for the value of a header.
    #[inline(always)]
    fn below<L: Lanes>(&self, node: Child, header: &Header<A>, lanes: L) -> Child {
        // `map_or` is not used, because its closure would be compiled without the instruction set of `lanes`.
        match self.nodes.get(node.node_number()) {
            Some(below) => below.child(header.words[node.word()], lanes),
            None => Child::EMPTY,
        }
    }
}

/// Numbers of trees, nodes and leaves that a lookup visits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VisitCounts {
    /// Searched trees.
    pub groups: usize,
    /// Visited nodes.
    pub nodes: usize,
    /// Visited leaves.
    pub leaves: usize,
}

/// Search for a single header: returns the visit counts, and the first rule or [`RuleNumber::MAX`].
pub struct SingleSearch<'a, A: Address> {
    pub best: &'a CutTree<A>,
    pub header: &'a Header<A>,
}

impl<A: Address> Work for SingleSearch<'_, A> {
    type Output = (VisitCounts, RuleNumber);

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> (VisitCounts, RuleNumber) {
        let Self { best, header } = self;
        let trees = best.trees();
        let mut visits = VisitCounts::default();
        let mut first = RuleNumber::MAX;
        for group in &best.groups {
            if !group.may_precede(header, first) {
                continue;
            }
            visits.groups += 1;
            visits.nodes += 1;
            let mut at = group.root.child(header.words[group.root.word % 16], lanes);
            while at.is_node() {
                visits.nodes += 1;
                at = trees.below(at, header, lanes);
            }
            while let Some(leaf) = trees.leaves.get(at.leaf_number()) {
                visits.leaves += 1;
                let rule = best.first_of_leaf(leaf, header, lanes);
                first = first.min(rule);
                at = Child::leaf(leaf.next() as usize);
                if at == Child::EMPTY || rule != RuleNumber::MAX {
                    break;
                }
            }
        }
        (visits, first)
    }
}

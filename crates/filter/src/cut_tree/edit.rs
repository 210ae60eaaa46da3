//! Insertion and removal of single rules while workers search the trees.
//!
//! An insertion builds new leaves for the regions of the rule, and replaces each old leaf with a single atomic store,
//! so that a search sees either the old or the new leaf. A removal first restores the rules that the removed rule
//! covered, and then clears the bit of the rule in its leaves. Leaves without references are freed together with the
//! whole matcher.

use core::ops::Range as Places;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{MutexGuard, PoisonError};

use thiserror::Error;

use super::build::{Builder, kind};
use super::covered::{CoveredIndex, CoveredRules};
use super::leaf::{Entry, LEAF_RULES, Leaf, has_further_conditions};
use super::region::Region;
use super::{Child, CutTree, Group, MAX_PIECES};
use crate::{Address, Range, Rule, RuleNumber};

/// The capacity for new rules is exhausted. The caller must rebuild the matcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the filter has no space for further rules")]
pub struct CapacityError;

/// Maximum number of additional leaves that a rule may create in each region that it overlaps.
const MAX_NEW_LEAVES: usize = 2;

/// Number of leaves that may be added to a small tree before the matcher should be rebuilt.
const MAX_ADDED_LEAVES: usize = 64;

/// New nodes and leaves, and the reference to the root of the new subtree.
type Tree<A> = (Builder<A>, Child);

/// All references to a leaf, and the region of the leaf.
struct LeafParents<A> {
    from: Parent,
    part: Region<A>,
    depth: usize,
}

/// References to leaves from some pieces of a node, or of the group's root if `node` is `None`.
struct Parent {
    node: Option<usize>,
    pieces: Places<usize>,
}

impl<A: Address> CutTree<A> {
    /// Inserts a rule with its number. A header matches the rule if it is within one of the hyperrectangles.
    ///
    /// # Errors
    /// The capacity is exhausted. Some leaves may already contain the rule, so the rule may match a part of its
    /// packets.
    pub fn insert(&self, number: RuleNumber, hyperrectangles: &[Rule<A>]) -> Result<(), CapacityError> {
        let mut hidden = self.hidden();
        let further: Vec<_> = hyperrectangles
            .iter()
            .filter(|rule| has_further_conditions(rule))
            .cloned()
            .collect();
        if !further.is_empty() {
            self.added.add(number, further.into()).map_err(|_| CapacityError)?;
        }
        hyperrectangles
            .iter()
            .try_for_each(|rule| self.put(number, rule, rule, Some(&mut hidden)))
    }

    /// Removes a rule. `hyperrectangles` must contain all hyperrectangles of the rule. Given the number of another
    /// rule, `rules` returns the hyperrectangles of that rule.
    ///
    /// # Errors
    /// The capacity to restore the rules that the removed rule covered is exhausted. The removed rule is still present.
    pub fn remove<'r>(
        &self,
        number: RuleNumber,
        hyperrectangles: &[Rule<A>],
        rules: impl Fn(RuleNumber) -> &'r [Rule<A>],
    ) -> Result<(), CapacityError> {
        let mut hidden = self.hidden();
        for CoveredRules { part, numbers, .. } in hidden.by(number) {
            for &number in numbers {
                for rule in rules(number) {
                    if let Some(within) = part.clipped(rule) {
                        // Don't divide the leaf. The covering rule is still present and matches every header of the
                        // region. A new subtree would therefore treat the restored rule as covered and omit it again.
                        self.put(number, rule, &within, None)?;
                    }
                }
            }
        }
        hidden.forget(number);
        for rule in hyperrectangles {
            let (group, leads) = self.reach(rule, rule);
            for leads in leads {
                for leaf in self.chain(self.child_of(group, &leads)) {
                    leaf.remove(number);
                }
            }
        }
        Ok(())
    }

    /// Locks the index of covered rules. All changes of the trees are made under this lock.
    fn hidden(&self) -> MutexGuard<'_, CoveredIndex<A>> {
        self.hidden.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the number of added leaves is so large that the matcher should be rebuilt.
    pub fn is_crowded(&self) -> bool {
        self.leaves.len() - self.built > self.built / 8 + MAX_ADDED_LEAVES
    }

    /// The group of a rule, and the references to all leaves that the rule overlaps within the hyperrectangle `within`.
    fn reach(&self, rule: &Rule<A>, within: &Rule<A>) -> (&Group, Vec<LeafParents<A>>) {
        let kind = kind(rule);
        let group = self
            .groups
            .iter()
            .position(|group| group.kinds[kind])
            .unwrap_or_default();
        let group = &self.groups[group];
        let mut leads = Vec::new();
        let (root, whole) = (&group.root, Region::whole());
        for (pieces, part) in parts(whole, root.word, root.cuts(), root.children().len(), within) {
            let from = Parent { node: None, pieces };
            let depth = 1;
            self.descend_with(within, group, LeafParents { from, part, depth }, &mut leads);
        }
        (group, leads)
    }

    fn descend_with(&self, rule: &Rule<A>, group: &Group, leads: LeafParents<A>, found: &mut Vec<LeafParents<A>>) {
        let child = self.child_of(group, &leads);
        let number = child.node_number();
        let Some(node) = self.nodes.get(number).filter(|_| child.is_node()) else {
            return found.push(leads);
        };
        for (pieces, part) in parts(leads.part, child.word(), node.cuts(), MAX_PIECES, rule) {
            let below = LeafParents {
                from: Parent {
                    node: Some(number),
                    pieces,
                },
                part,
                depth: leads.depth + 1,
            };
            self.descend_with(rule, group, below, found);
        }
    }

    fn child_of(&self, group: &Group, leads: &LeafParents<A>) -> Child {
        let first = self.leading(group, &leads.from).first();
        first.map_or(Child::EMPTY, |child| Child(child.load(Ordering::Relaxed)))
    }

    fn leading<'b>(&'b self, group: &'b Group, Parent { node, pieces }: &Parent) -> &'b [AtomicU32] {
        let children = match node {
            Some(node) => self.nodes.get(*node).map_or(&[][..], |node| &node.children),
            None => group.root.children(),
        };
        children.get(pieces.clone()).unwrap_or_default()
    }

    /// Inserts the part of a rule that lies within the hyperrectangle `within`. Divides full leaves only if `hidden` is
    /// present. Rules that become covered are recorded in `hidden`.
    fn put(
        &self,
        number: RuleNumber,
        rule: &Rule<A>,
        within: &Rule<A>,
        mut hidden: Option<&mut CoveredIndex<A>>,
    ) -> Result<(), CapacityError> {
        let (group, leads) = self.reach(rule, within);
        let entry = Entry {
            number,
            rule: rule.clone(),
            further: has_further_conditions(rule),
        };
        group.add(number, rule);
        for leads in &leads {
            let chain: Vec<&Leaf<A>> = self.chain(self.child_of(group, leads)).collect();
            let starts = |leaf: &&Leaf<A>| leaf.entries().next().is_some_and(|first| first.number <= number);
            let at = chain.iter().rposition(starts).unwrap_or_default();
            let Some(&leaf) = chain.get(at) else {
                return Err(CapacityError);
            };
            let existing: Vec<_> = leaf.entries().collect();
            let place = existing.partition_point(|other| other.number <= number);
            let mut entries: Vec<&Entry<A>> = existing.iter().collect();
            entries.insert(place, &entry);
            let divides = hidden.is_some() && chain.len() == 1 && entries.len() > LEAF_RULES;
            let tree = if divides { self.divided(&entries, leads) } else { None };
            let (builder, top) = tree.unwrap_or_else(|| self.chained(&entries, leaf.next()));
            self.leaves.append_all(builder.leaves).map_err(|_| CapacityError)?;
            self.nodes.append_all(builder.nodes).map_err(|_| CapacityError)?;
            if let Some(hidden) = &mut hidden {
                hidden.add(builder.hidden);
            }
            match at.checked_sub(1) {
                Some(before) => chain[before].set_next(top.leaf_number() as u32),
                None => {
                    let leading = self.leading(group, &leads.from).iter();
                    leading.for_each(|child| child.store(top.0, Ordering::Release));
                }
            }
        }
        Ok(())
    }

    /// Builds a tree of the rules of a full leaf; `None` if the tree needs too many leaves.
    fn divided(&self, entries: &[&Entry<A>], leads: &LeafParents<A>) -> Option<Tree<A>> {
        let mut builder = Builder::new([self.nodes.len(), self.leaves.len()]);
        builder.spare = entries.len();
        let top = builder.child(entries, leads.part, leads.depth);
        let fits = builder.leaves.len() <= 1 + MAX_NEW_LEAVES && builder.nodes.len() <= self.nodes.capacity_left();
        fits.then_some((builder, top))
    }

    /// Builds a chain of leaves that replaces one leaf. The last leaf of the chain refers to the leaf `then`.
    fn chained(&self, entries: &[&Entry<A>], then: u32) -> Tree<A> {
        let mut builder = Builder::new([self.nodes.len(), self.leaves.len()]);
        let first = builder.leaves(entries, then);
        (builder, first)
    }
}

/// The pieces of a region that overlap a rule, each with its child. The last piece includes the unused child entries.
fn parts<A: Address>(
    part: Region<A>,
    word: usize,
    cuts: &[u32],
    children: usize,
    rule: &Rule<A>,
) -> impl Iterator<Item = (Places<usize>, Region<A>)> {
    let dimension = Region::<A>::dimension(word);
    let (_, within) = part.word(dimension);
    let queried = part.of_rule(dimension, rule);
    let first = cuts.partition_point(|cut| *cut <= queried.first);
    let last = cuts.partition_point(|cut| *cut <= queried.last);
    (first..=last).map(move |piece| {
        let range = Range {
            first: piece.checked_sub(1).map_or(within.first, |before| cuts[before]),
            last: cuts.get(piece).map_or(within.last, |next| next - 1),
        };
        let end = if piece == cuts.len() { children } else { piece + 1 };
        (piece..end, part.narrowed(dimension, range))
    })
}

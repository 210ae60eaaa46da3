//! Single rules come and go while others look.
//!
//! A rule is put into new leaves in place of those of its part of the space, which are then led to in place of them: who
//! looks comes to the old leaf or to the new one. A rule goes by a mark in its leaves, after those that it has hidden came back. What is not led to any more stays until
//! the whole matcher goes.

use core::ops::Range as Places;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{MutexGuard, PoisonError};

use thiserror::Error;

use super::build::{Builder, kind};
use super::hidden::{AllHidden, Hidden};
use super::leaf::{Entry, Leaf, SLOTS, asks_further};
use super::part::Part;
use super::{Best, Child, Group, PIECES};
use crate::{Address, Range, Rule, RuleNumber};

/// There is no room for a further rule: it is time to build the matcher anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("there is no room for a further rule")]
pub struct Full;

/// Leaves that a rule takes at most beyond those that were there, for each part that it reaches into.
const MORE: usize = 2;

/// Leaves that may be added to few before that is a crowd.
const CROWD: usize = 64;

/// Nodes and leaves to be added, and what leads to all of them.
type Tree<A> = (Builder<A>, Child);

/// Where a leaf is led to, and the part that it is for.
struct Leads<A> {
    from: From,
    part: Part<A>,
    depth: usize,
}

/// What leads to a leaf: pieces of a node, or of the group's root where that is none.
struct From {
    node: Option<usize>,
    pieces: Places<usize>,
}

impl<A: Address> Best<A> {
    /// Add a rule with its number: boxes of which each is the whole rule for the headers in it.
    ///
    /// # Errors
    /// There is no room; it may hold some of its headers then.
    pub fn insert(&self, number: RuleNumber, boxes: &[Rule<A>]) -> Result<(), Full> {
        let mut hidden = self.hidden();
        let further: Vec<_> = boxes.iter().filter(|rule| asks_further(rule)).cloned().collect();
        if !further.is_empty() {
            self.added.add(number, further.into()).map_err(|_| Full)?;
        }
        boxes
            .iter()
            .try_for_each(|rule| self.put(number, rule, rule, Some(&mut hidden)))
    }

    /// Do without a rule from now on, of whose boxes none is left out. `rules` says the boxes of the others by their number.
    ///
    /// # Errors
    /// There is no room for what it has hidden; it is still there then.
    pub fn remove<'r>(
        &self,
        number: RuleNumber,
        boxes: &[Rule<A>],
        rules: impl Fn(RuleNumber) -> &'r [Rule<A>],
    ) -> Result<(), Full> {
        let mut hidden = self.hidden();
        for Hidden { part, numbers, .. } in hidden.by(number) {
            for &number in numbers {
                for rule in rules(number) {
                    if let Some(within) = part.clipped(rule) {
                        // Divided it would be hidden again: what hides it is still there, so that there is no gap.
                        self.put(number, rule, &within, None)?;
                    }
                }
            }
        }
        hidden.forget(number);
        for rule in boxes {
            let (group, leads) = self.reach(rule, rule);
            for leads in leads {
                for leaf in self.chain(self.led(group, &leads)) {
                    leaf.remove(number);
                }
            }
        }
        Ok(())
    }

    /// Who has it is the only one that changes anything.
    fn hidden(&self) -> MutexGuard<'_, AllHidden<A>> {
        self.hidden.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether so much has been added that it is time to build the matcher anew.
    pub fn is_crowded(&self) -> bool {
        self.leaves.len() - self.built > self.built / 8 + CROWD
    }

    /// A rule's group, and all that leads to leaves that it belongs to, as far as it is `within` a box.
    fn reach(&self, rule: &Rule<A>, within: &Rule<A>) -> (&Group, Vec<Leads<A>>) {
        let kind = kind(rule);
        let group = self
            .groups
            .iter()
            .position(|group| group.kinds[kind])
            .unwrap_or_default();
        let group = &self.groups[group];
        let mut leads = Vec::new();
        let (root, whole) = (&group.root, Part::whole());
        for (pieces, part) in parts(whole, root.word, root.cuts(), root.children().len(), within) {
            let from = From { node: None, pieces };
            let depth = 1;
            self.descend_with(within, group, Leads { from, part, depth }, &mut leads);
        }
        (group, leads)
    }

    fn descend_with(&self, rule: &Rule<A>, group: &Group, leads: Leads<A>, found: &mut Vec<Leads<A>>) {
        let child = self.led(group, &leads);
        let number = child.node_number();
        let Some(node) = self.nodes.get(number).filter(|_| child.is_node()) else {
            return found.push(leads);
        };
        for (pieces, part) in parts(leads.part, child.word(), node.cuts(), PIECES, rule) {
            let below = Leads {
                from: From {
                    node: Some(number),
                    pieces,
                },
                part,
                depth: leads.depth + 1,
            };
            self.descend_with(rule, group, below, found);
        }
    }

    fn led(&self, group: &Group, leads: &Leads<A>) -> Child {
        let first = self.leading(group, &leads.from).first();
        first.map_or(Child::NOTHING, |child| Child(child.load(Ordering::Relaxed)))
    }

    fn leading<'b>(&'b self, group: &'b Group, From { node, pieces }: &From) -> &'b [AtomicU32] {
        let children = match node {
            Some(node) => self.nodes.get(*node).map_or(&[][..], |node| &node.children),
            None => group.root.children(),
        };
        children.get(pieces.clone()).unwrap_or_default()
    }

    /// Put a rule where it belongs, as far as it is `within` a box. Leaves that overflow are divided where it may be `hidden`.
    fn put(
        &self,
        number: RuleNumber,
        rule: &Rule<A>,
        within: &Rule<A>,
        mut hidden: Option<&mut AllHidden<A>>,
    ) -> Result<(), Full> {
        let (group, leads) = self.reach(rule, within);
        let entry = Entry {
            number,
            rule: rule.clone(),
            further: asks_further(rule),
        };
        group.add(number, rule);
        for leads in &leads {
            let chain: Vec<&Leaf<A>> = self.chain(self.led(group, leads)).collect();
            let begins = |leaf: &&Leaf<A>| leaf.entries().next().is_some_and(|first| first.number <= number);
            let at = chain.iter().rposition(begins).unwrap_or_default();
            let Some(&leaf) = chain.get(at) else { return Err(Full) };
            let there: Vec<_> = leaf.entries().collect();
            let place = there.partition_point(|other| other.number <= number);
            let mut entries: Vec<&Entry<A>> = there.iter().collect();
            entries.insert(place, &entry);
            let divides = hidden.is_some() && chain.len() == 1 && entries.len() > SLOTS;
            let tree = if divides { self.divided(&entries, leads) } else { None };
            let (builder, top) = tree.unwrap_or_else(|| self.chained(&entries, leaf.next()));
            self.leaves.append_all(builder.leaves).map_err(|_| Full)?;
            self.nodes.append_all(builder.nodes).map_err(|_| Full)?;
            if let Some(hidden) = &mut hidden {
                hidden.add(builder.hidden);
            }
            match at.checked_sub(1) {
                Some(before) => chain[before].go_on(top.leaf_number() as u32),
                None => {
                    let leading = self.leading(group, &leads.from).iter();
                    leading.for_each(|child| child.store(top.0, Ordering::Release));
                }
            }
        }
        Ok(())
    }

    /// A leaf that overflows as a tree of its own; none where that takes many leaves.
    fn divided(&self, entries: &[&Entry<A>], leads: &Leads<A>) -> Option<Tree<A>> {
        let mut builder = Builder::new([self.nodes.len(), self.leaves.len()]);
        builder.spare = entries.len();
        let top = builder.child(entries, leads.part, leads.depth);
        let fits = builder.leaves.len() <= 1 + MORE && builder.nodes.len() <= self.nodes.room();
        fits.then_some((builder, top))
    }

    /// Leaves in place of one, and the leaf that goes on behind them.
    fn chained(&self, entries: &[&Entry<A>], then: u32) -> Tree<A> {
        let mut builder = Builder::new([self.nodes.len(), self.leaves.len()]);
        let first = builder.leaves(entries, then);
        (builder, first)
    }
}

/// The pieces of a cut part that a rule reaches into, each with what leads to it: the last of all has what is left.
fn parts<A: Address>(
    part: Part<A>,
    word: usize,
    cuts: &[u32],
    children: usize,
    rule: &Rule<A>,
) -> impl Iterator<Item = (Places<usize>, Part<A>)> {
    let dimension = Part::<A>::dimension(word);
    let (_, within) = part.word(dimension);
    let asked = part.of_rule(dimension, rule);
    let first = cuts.partition_point(|cut| *cut <= asked.first);
    let last = cuts.partition_point(|cut| *cut <= asked.last);
    (first..=last).map(move |piece| {
        let range = Range {
            first: piece.checked_sub(1).map_or(within.first, |before| cuts[before]),
            last: cuts.get(piece).map_or(within.last, |next| next - 1),
        };
        let end = if piece == cuts.len() { children } else { piece + 1 };
        (piece..end, part.narrowed(dimension, range))
    })
}

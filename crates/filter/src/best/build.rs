//! From rules to three trees.

use super::block::{Block, SLOTS, asks_further};
use super::{Best, CUTS, Child, FIELDS, Group, Node};
use crate::header::Dimension;
use crate::{Address, Range, Rule, RuleNumber};

/// Times that a group's rules may be copied, all in all.
const COPIES: usize = 8;
/// Rules of a block that is meant to be full: room for a few more.
const FULL: usize = 12;
/// Most nodes on a packet's way: what is not divided by then is compared block by block.
const DEPTH: usize = 24;

/// The part of the space that a node is for.
#[derive(Clone, Copy)]
struct Part<A> {
    source: Range<A>,
    destination: Range<A>,
    fields: [Range<u32>; FIELDS.len()],
}

impl<A: Address> Part<A> {
    fn has_all(&self, rule: &Rule<A>) -> bool {
        let fields = FIELDS.iter().zip(&self.fields);
        rule.source.covers(&self.source)
            && rule.destination.covers(&self.destination)
            && fields.into_iter().all(|(&field, part)| rule.get(field).covers(part))
            && !asks_further(rule)
    }
}

struct Builder<'r, A: Address> {
    rules: &'r [Rule<A>],
    best: Best<A>,
    /// Entries that may still be written beyond those that must.
    spare: usize,
}

pub(super) fn build<A: Address>(rules: &[Rule<A>]) -> Best<A> {
    let further = (0..).zip(rules).filter(|(_, rule)| asks_further(rule));
    let mut builder = Builder {
        rules,
        best: Best {
            groups: Vec::new(),
            nodes: Vec::new(),
            addresses: Vec::new(),
            numbers: Vec::new(),
            blocks: Vec::new(),
            further: further.map(|(number, rule)| (number, rule.clone())).collect(),
        },
        spare: 0,
    };
    let mut groups: [Vec<RuleNumber>; 3] = Default::default();
    for (number, rule) in (0..).zip(rules) {
        let group = match (is_narrow(&rule.source), is_narrow(&rule.destination)) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        };
        groups[group].push(number);
    }
    let all = Rule::<A>::any();
    let whole = Part {
        source: all.source,
        destination: all.destination,
        fields: FIELDS.map(|field| all.get(field)),
    };
    for group in groups.into_iter().filter(|group| !group.is_empty()) {
        builder.spare = group.len() * (COPIES - 1);
        let first = group[0];
        let root = builder.child(group, whole, 0);
        builder.best.groups.push(Group { root, first });
    }
    // Those with the first rules first: what they find spares others.
    builder.best.groups.sort_by_key(|group| group.first);
    builder.best
}

/// Whether a range is of less than 1 in 4096 of all addresses.
fn is_narrow<A: Address>(range: &Range<A>) -> bool {
    range.last.distance(range.first) < A::LAST.shifted(12)
}

impl<A: Address> Builder<'_, A> {
    fn child(&mut self, mut rules: Vec<RuleNumber>, part: Part<A>, depth: usize) -> Child {
        if let Some(last) = rules.iter().position(|&rule| part.has_all(&self.rules[rule as usize])) {
            rules.truncate(last + 1);
        }
        if rules.is_empty() {
            return Child::NOTHING;
        }
        if rules.len() <= SLOTS || depth == DEPTH {
            return self.blocks(&rules);
        }
        match self.node(&rules, part, depth) {
            Some(child) => child,
            None => self.blocks(&rules),
        }
    }

    fn blocks(&mut self, rules: &[RuleNumber]) -> Child {
        let first = self.best.blocks.len();
        let count = rules.len().div_ceil(SLOTS);
        for (number, rules) in rules.chunks(SLOTS).enumerate() {
            self.best.blocks.push(Block::new(self.rules, rules, number + 1 < count));
        }
        Child::block(first)
    }

    /// A node that cuts rules by what divides them best; none where nothing does.
    fn node(&mut self, rules: &[RuleNumber], part: Part<A>, depth: usize) -> Option<Child> {
        let all = self.rules;
        let pieces = rules.len().div_ceil(FULL).min(CUTS + 1);
        let of = |range: fn(&Rule<A>) -> Range<A>, within: Range<A>| {
            let ranges: Vec<_> = rules.iter().map(|&rule| range(&all[rule as usize])).collect();
            Division::of(&ranges, within, pieces)
        };
        let source = of(|rule| rule.source, part.source);
        let destination = of(|rule| rule.destination, part.destination);
        let fields: Vec<_> = FIELDS
            .iter()
            .zip(part.fields)
            .map(|(&field, within)| {
                let ranges: Vec<_> = rules.iter().map(|&rule| all[rule as usize].get(field)).collect();
                Division::of(&ranges, within, pieces)
            })
            .collect();
        let costs = [source.cost, destination.cost].into_iter();
        let costs = costs.chain(fields.iter().map(|division| division.cost));
        let (choice, _) = costs.enumerate().min_by_key(|(_, cost)| *cost)?;
        let copied = match choice {
            0 => source.copied,
            1 => destination.copied,
            field => fields[field - 2].copied,
        }?;
        self.spare = self.spare.checked_sub(copied)?;
        let number = self.best.nodes.len();
        self.best.nodes.push(Node {
            cut: Dimension::Source,
            count: 0,
            values: 0,
            children: [Child::NOTHING; CUTS + 1],
        });
        let mut node = self.best.nodes[number];
        match choice {
            0 | 1 => {
                let (cut, division) =
                    [(Dimension::Source, source), (Dimension::Destination, destination)][choice].clone();
                node.cut = cut;
                node.count = division.cuts.len() as u32;
                node.values = self.best.addresses.len() as u32;
                self.best.addresses.push(padded(&division.cuts, A::LAST));
                for (child, (within, members)) in node.children.iter_mut().zip(division.pieces) {
                    let part = match cut {
                        Dimension::Source => Part { source: within, ..part },
                        _ => Part {
                            destination: within,
                            ..part
                        },
                    };
                    *child = self.child(members.iter().map(|&at| rules[at]).collect(), part, depth + 1);
                }
            }
            field => {
                let division = &fields[field - 2];
                node.cut = Dimension::Field(FIELDS[field - 2]);
                node.count = division.cuts.len() as u32;
                node.values = self.best.numbers.len() as u32;
                self.best.numbers.push(padded(&division.cuts, u32::MAX));
                for (child, (within, members)) in node.children.iter_mut().zip(&division.pieces) {
                    let mut part = part;
                    part.fields[field - 2] = *within;
                    *child = self.child(members.iter().map(|&at| rules[at]).collect(), part, depth + 1);
                }
            }
        }
        self.best.nodes[number] = node;
        Some(Child(number as u32))
    }
}

fn padded<T: Copy>(cuts: &[T], last: T) -> [T; CUTS] {
    let mut values = [last; CUTS];
    values[..cuts.len()].copy_from_slice(cuts);
    values
}

/// A field cut into pieces.
#[derive(Clone)]
struct Division<T> {
    /// The first value of each piece but the first.
    cuts: Vec<T>,
    /// Each piece, with the places of the rules that reach into it.
    pieces: Vec<(Range<T>, Vec<usize>)>,
    /// What it is worth, the lower the better.
    cost: u128,
    /// Copies that it makes; none where it divides nothing.
    copied: Option<usize>,
}

impl<T: Address> Division<T> {
    /// Cut where as many ranges begin or end on either side.
    fn of(ranges: &[Range<T>], within: Range<T>, pieces: usize) -> Self {
        let mut edges = Vec::new();
        for range in ranges {
            if range.first > within.first {
                edges.push(range.first);
            }
            if let Some(next) = range.last.next().filter(|_| range.last < within.last) {
                edges.push(next);
            }
        }
        edges.sort_unstable();
        let mut cuts: Vec<T> = (1..pieces)
            .filter_map(|piece| edges.get(edges.len() * piece / pieces).copied())
            .collect();
        cuts.dedup();
        let firsts = [within.first].into_iter().chain(cuts.iter().copied());
        let lasts = cuts.iter().filter_map(|cut| cut.before()).chain([within.last]);
        let mut whole = Vec::new();
        for (first, last) in firsts.zip(lasts) {
            let reaches = |range: &Range<T>| range.first <= last && first <= range.last;
            let members: Vec<usize> = (0..ranges.len()).filter(|&at| reaches(&ranges[at])).collect();
            whole.push((Range { first, last }, members));
        }
        let sizes = || whole.iter().map(|(_, members)| members.len());
        let divides = sizes().all(|size| size < ranges.len());
        let cost = sizes().map(|size| (size * size) as u128).sum::<u128>();
        Self {
            copied: divides.then(|| sizes().sum::<usize>().saturating_sub(ranges.len())),
            cost: if divides { cost } else { u128::MAX },
            cuts,
            pieces: whole,
        }
    }
}

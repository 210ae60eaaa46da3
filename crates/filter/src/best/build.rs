//! From rules to three trees.

use sluice_table::simd::lanes::Vectors;

use super::leaf::{Leaf, SLOTS, asks_further};
use super::{Best, Child, FIELDS, Group, Node, PIECES};
use crate::header::Dimension;
use crate::{Address, Range, Rule, RuleNumber};

/// Which part of all rules may be copied once more, in each group's tree.
const SPARE: (usize, usize) = (5, 6);
/// A group of less than so many of all rules is none.
const FEW: usize = 64;
/// Rules of a leaf that is meant to be full: room for a few more.
const FULL: usize = 10;
/// Most nodes on a packet's way: what is not divided by then is compared leaf by leaf.
const DEPTH: usize = 24;
/// What nodes may cut.
const DIMENSIONS: [Dimension; 2 + FIELDS.len()] = [
    Dimension::Source,
    Dimension::Destination,
    Dimension::Field(FIELDS[0]),
    Dimension::Field(FIELDS[1]),
    Dimension::Field(FIELDS[2]),
];

/// Values of a word that rules ask for, within those that a part of the space has.
struct Asked {
    word: usize,
    within: Range<u32>,
    of_rules: Vec<Range<u32>>,
}

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

    /// Number of the word of a header that a cut is of, and which of its values the part has: of an address the first word
    /// that has several.
    fn word(&self, dimension: usize) -> (usize, Range<u32>) {
        let of = |range: Range<A>| {
            let at = (0..A::WORDS - 1).find(|&at| range.first.word(at) != range.last.word(at));
            let at = at.unwrap_or(A::WORDS - 1);
            let (first, last) = (range.first.word(at), range.last.word(at));
            (at, Range { first, last })
        };
        match dimension {
            0 => of(self.source),
            1 => {
                let (at, range) = of(self.destination);
                (A::WORDS + at, range)
            }
            _ => (A::FIELDS + FIELDS[dimension - 2] as usize, self.fields[dimension - 2]),
        }
    }

    /// The values of that word that a rule asks for.
    fn of_rule(&self, dimension: usize, rule: &Rule<A>) -> Range<u32> {
        let (at, _) = self.word(dimension);
        let of = |range: Range<A>, part: Range<A>, at: usize| Range {
            first: range.first.max(part.first).word(at),
            last: range.last.min(part.last).word(at),
        };
        match DIMENSIONS[dimension] {
            Dimension::Source => of(rule.source, self.source, at),
            Dimension::Destination => of(rule.destination, self.destination, at - A::WORDS),
            Dimension::Field(field) => rule.get(field),
        }
    }

    /// The part with some of that word's values.
    fn narrowed(mut self, dimension: usize, to: Range<u32>) -> Self {
        let (at, _) = self.word(dimension);
        let narrow = |range: Range<A>, at: usize| Range {
            first: range.first.max(range.first.with_word(at, to.first, A::default())),
            last: range.last.min(range.last.with_word(at, to.last, A::LAST)),
        };
        match dimension {
            0 => self.source = narrow(self.source, at),
            1 => self.destination = narrow(self.destination, at - A::WORDS),
            _ => self.fields[dimension - 2] = to,
        }
        self
    }
}

struct Builder<'r, A: Address> {
    rules: &'r [Rule<A>],
    best: Best<A>,
    /// Entries that the tree below may still have beyond those that it must.
    spare: usize,
}

pub(super) fn build<A: Address>(rules: &[Rule<A>]) -> Best<A> {
    let further = (0..).zip(rules).filter(|(_, rule)| asks_further(rule));
    let mut builder = Builder {
        rules,
        best: Best {
            vectors: Vectors::detect(),
            groups: Vec::new(),
            nodes: Vec::new(),
            leaves: vec![Leaf::new(rules, &[], false)],
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
    // A tree for few rules costs every packet more than they cost those of the last one.
    for group in 0..2 {
        if groups[group].len() < rules.len() / FEW {
            let few = core::mem::take(&mut groups[group]);
            groups[2].extend(few);
            groups[2].sort_unstable();
        }
    }
    let all = Rule::<A>::any();
    let whole = Part {
        source: all.source,
        destination: all.destination,
        fields: FIELDS.map(|field| all.get(field)),
    };
    for group in groups.into_iter().filter(|group| !group.is_empty()) {
        builder.spare = rules.len() * SPARE.0 / SPARE.1;
        let first = group[0];
        let root = builder.child(group, whole, 0);
        let level = builder.level(root);
        builder.best.groups.push(Group { root, level, first });
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
            return self.leaves(&rules);
        }
        match self.node(&rules, part, depth) {
            Some(child) => child,
            None => self.leaves(&rules),
        }
    }

    /// How many nodes every way down from here goes through at least.
    fn level(&self, from: Child) -> usize {
        match from.is_node() {
            true => {
                let children = self.best.nodes[from.node_number()].children;
                1 + children.into_iter().map(|child| self.level(child)).min().unwrap_or(0)
            }
            false => 0,
        }
    }

    /// What rules ask for within a part.
    fn asked(&self, dimension: usize, rules: &[RuleNumber], part: &Part<A>) -> Asked {
        let (word, within) = part.word(dimension);
        let of_rule = |&rule: &RuleNumber| part.of_rule(dimension, &self.rules[rule as usize]);
        let of_rules = rules.iter().map(of_rule).collect();
        Asked { word, within, of_rules }
    }

    /// As many leaves as it takes, one behind the other.
    fn leaves(&mut self, rules: &[RuleNumber]) -> Child {
        let first = self.best.leaves.len();
        let count = rules.len().div_ceil(SLOTS);
        for (number, rules) in rules.chunks(SLOTS).enumerate() {
            self.best.leaves.push(Leaf::new(self.rules, rules, number + 1 < count));
        }
        Child::leaf(first)
    }

    /// A node that cuts rules by what divides them best, into as many pieces as may be copied for; none where nothing does.
    fn node(&mut self, rules: &[RuleNumber], part: Part<A>, depth: usize) -> Option<Child> {
        let asked: Vec<Asked> = (0..DIMENSIONS.len())
            .map(|dimension| self.asked(dimension, rules, &part))
            .collect();
        let most = rules.len().div_ceil(FULL).min(PIECES);
        let pieces = core::iter::successors(Some(most), |pieces| Some(pieces / 2)).take_while(|pieces| *pieces > 1);
        let (dimension, division) = pieces
            .filter_map(|pieces| {
                let divisions = asked
                    .iter()
                    .map(|asked| Division::of(&asked.of_rules, asked.within, pieces));
                let affordable = |division: &Division| division.copied.is_some_and(|copied| copied <= self.spare);
                let divisions = divisions.enumerate().filter(|(_, division)| affordable(division));
                divisions.min_by_key(|(_, division)| division.cost)
            })
            .next()?;
        let mut spare = self.spare - division.copied?;
        let number = self.best.nodes.len();
        let mut values = [u32::MAX; PIECES];
        values[..division.cuts.len()].copy_from_slice(&division.cuts);
        let mut children = [Child::NOTHING; PIECES];
        self.best.nodes.push(Node { values, children });
        // What may be copied is shared by those that want dividing.
        let wants = |members: &[usize]| members.len().saturating_sub(SLOTS);
        let mut all: usize = division.pieces.iter().map(|(_, members)| wants(members)).sum();
        for (child, (within, members)) in children.iter_mut().zip(&division.pieces) {
            let wanted = wants(members);
            self.spare = if wanted == 0 { 0 } else { spare * wanted / all };
            (spare, all) = (spare - self.spare, all - wanted);
            let members = members.iter().map(|&at| rules[at]).collect();
            *child = self.child(members, part.narrowed(dimension, *within), depth + 1);
            spare += self.spare;
        }
        self.spare = spare;
        // The largest value is not below those that are not used.
        let last = children[division.cuts.len()];
        children[division.cuts.len()..].fill(last);
        self.best.nodes[number].children = children;
        Some(Child::node(number, asked[dimension].word))
    }
}

/// A word cut into pieces.
struct Division {
    /// The first value of each piece but the first.
    cuts: Vec<u32>,
    /// Each piece, with the places of the rules that reach into it.
    pieces: Vec<(Range<u32>, Vec<usize>)>,
    /// What it is worth, the lower the better.
    cost: u128,
    /// Copies that it makes; none where it divides nothing.
    copied: Option<usize>,
}

impl Division {
    /// Cut where as many ranges begin or end on either side.
    fn of(ranges: &[Range<u32>], within: Range<u32>, pieces: usize) -> Self {
        let mut edges = Vec::new();
        for range in ranges {
            if range.first > within.first {
                edges.push(range.first);
            }
            if range.last < within.last {
                edges.push(range.last + 1);
            }
        }
        edges.sort_unstable();
        let mut cuts: Vec<u32> = (1..pieces)
            .filter_map(|piece| edges.get(edges.len() * piece / pieces).copied())
            .collect();
        cuts.dedup();
        let firsts = [within.first].into_iter().chain(cuts.iter().copied());
        let lasts = cuts.iter().map(|cut| cut - 1).chain([within.last]);
        let mut whole = Vec::new();
        for (first, last) in firsts.zip(lasts) {
            let reaches = |range: &Range<u32>| range.first <= last && first <= range.last;
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

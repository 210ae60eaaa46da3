//! Builds a trie from rules.

use std::collections::HashMap;

use super::{Child, Node, Trie, TrieTooLarge};
use crate::header::Dimension;
use crate::interval::{Interval, intervals, of_field};
use crate::{Address, Field, Matcher, Range, Rule, RuleNumber};

struct Builder<'r, A> {
    rules: &'r [Rule<A>],
    max: usize,
    trie: Trie<A>,
    /// Existing nodes by level and rules. Nodes with equal level and rules are shared.
    made: HashMap<(usize, Vec<RuleNumber>), Child>,
    /// Size in bytes of `made`, which is freed after the build.
    freed_bytes: usize,
}

pub(super) fn build<A: Address>(rules: &[Rule<A>], max_bytes: usize) -> Result<Trie<A>, TrieTooLarge> {
    let all = Range {
        first: A::default(),
        last: A::LAST,
    };
    let named = |field: Field| rules.iter().any(|rule| !rule.is_any(field));
    let mut levels = Vec::new();
    if rules.iter().any(|rule| rule.source != all) {
        levels.push(Dimension::Source);
    }
    if rules.iter().any(|rule| rule.destination != all) {
        levels.push(Dimension::Destination);
    }
    levels.extend(
        Field::ALL
            .into_iter()
            .filter(|&field| named(field))
            .map(Dimension::Field),
    );
    let mut builder = Builder {
        rules,
        // A trie of at most 4 GiB has node numbers that fit in 32 bits.
        max: max_bytes.min(u32::MAX as usize),
        trie: Trie {
            levels,
            nodes: Vec::new(),
            addresses: Vec::new(),
            numbers: Vec::new(),
            children: Vec::new(),
            root: Child::EMPTY,
        },
        made: HashMap::new(),
        freed_bytes: 0,
    };
    let every = (0..rules.len() as RuleNumber).collect();
    builder.trie.root = builder.child(0, every)?;
    let mut trie = builder.trie;
    trie.nodes.shrink_to_fit();
    trie.addresses.shrink_to_fit();
    trie.numbers.shrink_to_fit();
    trie.children.shrink_to_fit();
    Ok(trie)
}

impl<A: Address> Builder<'_, A> {
    /// The child of an interval, given the rules whose ranges contain the interval.
    fn child(&mut self, level: usize, mut rules: Vec<RuleNumber>) -> Result<Child, TrieTooLarge> {
        if let Some(last) = rules.iter().position(|&rule| self.holds_all(level, rule)) {
            rules.truncate(last + 1);
            if last == 0 {
                return Ok(Child::rule(rules[0]));
            }
        }
        if rules.is_empty() {
            return Ok(Child::EMPTY);
        }
        if let Some(&child) = self.made.get(&(level, rules.clone())) {
            return Ok(child);
        }
        let child = self.node(level, &rules)?;
        self.freed_bytes += size_of::<(usize, Vec<RuleNumber>, Child)>() + size_of_val(rules.as_slice());
        self.made.insert((level, rules), child);
        self.check()?;
        Ok(child)
    }

    /// Whether a rule matches all values of a level and of all later levels.
    fn holds_all(&self, level: usize, rule: RuleNumber) -> bool {
        let rule = &self.rules[rule as usize];
        let all = Range {
            first: A::default(),
            last: A::LAST,
        };
        self.trie.levels[level..].iter().all(|dimension| match dimension {
            Dimension::Source => rule.source == all,
            Dimension::Destination => rule.destination == all,
            Dimension::Field(field) => rule.is_any(*field),
        })
    }

    fn node(&mut self, level: usize, rules: &[RuleNumber]) -> Result<Child, TrieTooLarge> {
        let all = self.rules;
        match self.trie.levels[level] {
            dimension @ (Dimension::Source | Dimension::Destination) => {
                let range = |rule: &Rule<A>| match dimension {
                    Dimension::Source => rule.source,
                    _ => rule.destination,
                };
                let ranges: Vec<_> = rules.iter().map(|&rule| (rule, range(&all[rule as usize]))).collect();
                let (values, children) = self.pieces(level, |each| intervals(&ranges, A::LAST, each))?;
                let first = self.trie.addresses.len();
                self.trie.addresses.extend(values);
                Ok(self.add(level, first, children))
            }
            Dimension::Field(field) => {
                let (values, children) = self.pieces(level, |each| of_field(all, rules, field, each))?;
                let first = self.trie.numbers.len();
                self.trie.numbers.extend(values);
                Ok(self.add(level, first, children))
            }
        }
    }

    /// The intervals of a node with their children. Adjacent intervals with the same child are merged.
    fn pieces<T>(
        &mut self,
        level: usize,
        cut: impl FnOnce(&mut dyn FnMut(Interval<T>) -> bool),
    ) -> Result<(Vec<T>, Vec<Child>), TrieTooLarge> {
        let (mut values, mut children) = (Vec::new(), Vec::<Child>::new());
        let mut failed = None;
        cut(&mut |piece: Interval<T>| match self.child(level + 1, piece.rules) {
            Ok(child) => {
                if children.last() == Some(&child) {
                    values.pop();
                } else {
                    children.push(child);
                }
                values.push(piece.last);
                true
            }
            Err(error) => {
                failed = Some(error);
                false
            }
        });
        match failed {
            Some(error) => Err(error),
            None => Ok((values, children)),
        }
    }

    fn add(&mut self, level: usize, values: usize, children: Vec<Child>) -> Child {
        let trie = &mut self.trie;
        trie.nodes.push(Node {
            level: level as u32,
            count: children.len() as u32,
            values: values as u32,
            children: trie.children.len() as u32,
        });
        trie.children.extend(children);
        Child::node(trie.nodes.len() - 1)
    }

    /// Checks the size of the trie, and that of the temporary memory, which may be four times the maximum size of the
    /// trie.
    fn check(&self) -> Result<(), TrieTooLarge> {
        let max = self.max;
        if self.trie.bytes() > max || self.freed_bytes > max.saturating_mul(4) {
            return Err(TrieTooLarge {
                rules: self.rules.len(),
                max,
            });
        }
        Ok(())
    }
}

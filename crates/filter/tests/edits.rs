//! Tests of the insertion and removal of single rules: afterwards the matcher gives the results of a linear search over
//! the current rules.

use std::collections::BTreeMap;

use crate::drawn::{self, Drawn, edges, sets};
use proptest::prelude::*;
use sluice_filter::{Address, CutTree, Field, Header, Matcher, Range, Rule, RuleNumber};
use sluice_table::simd::lanes::Vectors;

/// Rules by number, and a matcher in which the same edits are made.
struct Edited<A: Address> {
    rules: BTreeMap<RuleNumber, Vec<Rule<A>>>,
    best: CutTree<A>,
    built: usize,
}

impl<A: Address> Edited<A> {
    fn new(rules: BTreeMap<RuleNumber, Vec<Rule<A>>>) -> Self {
        let best = built(&rules);
        Self { rules, best, built: 0 }
    }

    fn insert(&mut self, number: RuleNumber, hyperrectangles: Vec<Rule<A>>) {
        let done = self.best.insert(number, &hyperrectangles);
        self.rules.insert(number, hyperrectangles);
        if done.is_err() {
            self.build();
        }
    }

    fn remove(&mut self, number: RuleNumber) -> Vec<Rule<A>> {
        let hyperrectangles = self.rules.remove(&number).unwrap();
        let others = |number| self.rules.get(&number).map_or(&[][..], Vec::as_slice);
        if self.best.remove(number, &hyperrectangles, others).is_err() {
            self.build();
        }
        hyperrectangles
    }

    fn build(&mut self) {
        self.best = built(&self.rules);
        self.built += 1;
    }

    fn check(&self, headers: &[Header<A>]) {
        let mut found = vec![None; headers.len()];
        self.best.first_of_batch(&mut (), headers, &mut found);
        for (header, found) in headers.iter().zip(found) {
            let holds =
                |(_, hyperrectangles): &(&u32, &Vec<Rule<A>>)| hyperrectangles.iter().any(|rule| rule.matches(header));
            let expected = self.rules.iter().find(holds).map(|(number, _)| *number);
            assert_eq!(expected, found, "{header:?}");
        }
    }
}

fn built<A: Address>(rules: &BTreeMap<RuleNumber, Vec<Rule<A>>>) -> CutTree<A> {
    let each = |(number, hyperrectangles): (&u32, &Vec<Rule<A>>)| {
        let number = *number;
        hyperrectangles.clone().into_iter().map(move |rule| (number, rule))
    };
    CutTree::numbered(rules.iter().flat_map(each))
}

/// Headers inside a rule, at its corners, and just outside of it.
fn around(rule: &Rule<u32>, drawn: &mut Drawn, count: usize) -> Vec<Header<u32>> {
    let mut made = Vec::new();
    for number in 0..count {
        let corner = number % 2 == 0;
        let mut one = |range: Range<u32>, last: u32| match corner {
            true => edges(range)[drawn.below(4)],
            false => range.first + drawn.below((range.last.min(last) - range.first) as usize + 1) as u32,
        };
        let mut header = Header::new(one(rule.source, u32::MAX), one(rule.destination, u32::MAX));
        for field in Field::ALL {
            header = header.with(field, one(rule.get(field), field.last_named()));
        }
        made.push(header);
    }
    made
}

#[test]
fn oracle_thousand_edits_of_each_set_have_no_mismatch() {
    let mut drawn = Drawn(11);
    for (name, rules) in sets() {
        let count = rules.len();
        let numbered = (1u32..)
            .map(|number| number << 8)
            .zip(rules.into_iter().map(|rule| vec![rule]));
        let mut edited = Edited::new(numbered.collect());
        let mut gone: Vec<(RuleNumber, Vec<Rule<u32>>)> = Vec::new();
        for edit in 0..1_000 {
            let at = edited.rules.range(drawn.below(count << 8) as u32..).next();
            let Some((&number, hyperrectangles)) = at else { continue };
            let hyperrectangles = hyperrectangles.clone();
            match edit % 4 {
                0 | 1 => {
                    let went = edited.remove(number);
                    gone.push((number, went));
                }
                2 => {
                    let (number, hyperrectangles) = gone.swap_remove(drawn.below(gone.len()));
                    edited.insert(number, hyperrectangles);
                }
                // A new rule, inserted before existing rules, that combines conditions of two of them.
                _ => {
                    let (_, other) = gone.last().unwrap();
                    let rule = other[0]
                        .clone()
                        .between(hyperrectangles[0].source, other[0].destination)
                        .unwrap();
                    let rule = rule
                        .with(Field::DestinationPort, 0, 1023 + drawn.below(64_000) as u32)
                        .unwrap();
                    if !edited.rules.contains_key(&(number - 1)) {
                        edited.insert(number - 1, vec![rule]);
                    }
                }
            }
            let rule = &hyperrectangles[0];
            edited.check(&around(rule, &mut drawn, 12));
            if let Some((_, hyperrectangles)) = gone.last() {
                edited.check(&around(&hyperrectangles[0], &mut drawn, 4));
            }
        }
        eprintln!("{name}: built {} times", edited.built);
        assert!(edited.built < 10, "{name}: built {} times", edited.built);
        for vectors in Vectors::all() {
            edited.best = edited.best.with_vectors(vectors);
            for hyperrectangles in edited.rules.clone().values().step_by(count / 200) {
                edited.check(&around(&hyperrectangles[0], &mut drawn, 2));
            }
        }
    }
}

proptest! {
    #[test]
    fn oracle_edits_of_generated_rules_have_no_mismatch(
        rules in proptest::collection::vec(proptest::collection::vec(drawn::any_rule(), 1..3), 0..40),
        edits in proptest::collection::vec((any::<bool>(), 0u32..41, proptest::collection::vec(drawn::any_rule(), 1..3)), 1..60),
        headers in proptest::collection::vec(drawn::any_header(), 1..40),
    ) {
        let mut edited = Edited::new((1u32..).map(|number| number * 100).zip(rules).collect());
        let mut hundred = 0;
        for (goes, place, hyperrectangles) in edits {
            hundred += 1;
            let at = edited.rules.range(place * 100..).next().map(|(number, _)| *number);
            match at {
                Some(number) if goes => {
                    edited.remove(number);
                }
                _ => edited.insert(place * 100 + hundred, hyperrectangles),
            }
            edited.check(&headers);
        }
    }
}

#[test]
fn rule_that_hides_others_lets_them_come_back_but_those_that_went() {
    let port = |first: u32| Rule::<u32>::any().with(Field::DestinationPort, first, first).unwrap();
    let mut edited = Edited::new(BTreeMap::new());
    edited.insert(10, vec![Rule::any()]);
    let rules = (1u32..400).map(|number| (number * 100, vec![port(number)]));
    let all = [(10, vec![Rule::any()])].into_iter().chain(rules);
    let mut edited_from_all = Edited::new(all.collect());
    let headers: Vec<_> = (0..500)
        .map(|to| Header::new(1, 2).with(Field::DestinationPort, to))
        .collect();
    for edited in [&mut edited, &mut edited_from_all] {
        edited.check(&headers);
        if edited.rules.contains_key(&700) {
            edited.remove(700);
        }
        edited.insert(50, vec![port(7), port(9)]);
        edited.check(&headers);
        edited.remove(10);
        edited.check(&headers);
    }
}

#[test]
fn edits_fill_their_room_and_then_say_so() {
    let rule = |number: u32| {
        Rule::<u32>::any()
            .with(Field::SourcePort, number % 60_000, number % 60_000)
            .unwrap()
    };
    let best = CutTree::new(&[rule(0)]);
    let full = (1..100_000).find(|&number| best.insert(number, &[rule(number)]).is_err());
    assert!(full.is_some_and(|number| number > 200), "{full:?}");
    assert_eq!(
        Some(3),
        best.first(&mut (), &Header::new(1, 2).with(Field::SourcePort, 3))
    );
}

#[test]
fn readers_see_a_rule_or_do_not_while_it_comes_and_goes() {
    let network = |at: u32| {
        let range = Range {
            first: at << 12,
            last: (at << 12) + 0xfff,
        };
        let any = Rule::<u32>::any();
        let destination = any.destination;
        any.between(range, destination).unwrap()
    };
    let rules: BTreeMap<_, _> = (0..3_000u32).map(|at| ((at + 1) * 10, vec![network(at)])).collect();
    let mut best = built(&rules);
    let headers: Vec<_> = (0..3_000u32).map(|at| Header::new(at << 12, 7)).collect();
    let mut drawn = Drawn(3);
    for _ in 0..3 {
        let stop = std::sync::atomic::AtomicBool::new(false);
        let looked = std::thread::scope(|scope| {
            let looking = scope.spawn(|| {
                let (mut found, mut looked) = (vec![None; headers.len()], 0);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) || looked == 0 {
                    best.first_of_batch(&mut (), &headers, &mut found);
                    for (at, found) in (1u32..).zip(&found) {
                        // The result is the permanent rule, or the preceding rule that another thread repeatedly
                        // inserts and removes.
                        assert!([Some(at * 10), Some(at * 10 - 1)].contains(found), "{at}: {found:?}");
                    }
                    looked += 1;
                }
                looked
            });
            while !best.is_crowded() {
                let at = drawn.below(3_000) as u32;
                let (number, hyperrectangles) = ((at + 1) * 10 - 1, [network(at)]);
                best.insert(number, &hyperrectangles).unwrap();
                assert_eq!(Some(number), best.first(&mut (), &headers[at as usize]));
                best.remove(number, &hyperrectangles, |number| {
                    rules.get(&number).map_or(&[][..], Vec::as_slice)
                })
                .unwrap();
                assert_eq!(Some(number + 1), best.first(&mut (), &headers[at as usize]));
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            looking.join().unwrap()
        });
        assert!(looked > 0);
        best = built(&rules);
    }
}

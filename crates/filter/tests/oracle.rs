//! Tests that every matcher gives the results of the linear matcher.

use crate::drawn::{Drawn, any_header, any_rule, edges, sets};
use proptest::prelude::*;
use sluice_filter::{
    Address, CachedTrie, CutTree, Field, FlagsMask, Header, Linear, ListSearch, Matcher, Range, Rule, Trie,
};
use sluice_table::simd::lanes::Vectors;

const ENOUGH: usize = 64 << 20;

/// Results of the linear matcher. Also checks that the default matcher gives the same results, for single headers and
/// for a batch, with every instruction set of the processor.
fn expected<A: Address>(rules: &[Rule<A>], headers: &[Header<A>]) -> Vec<Option<u32>> {
    let linear = Linear::new(rules);
    let mut expected = vec![None; headers.len()];
    linear.first_of_batch(&mut (), headers, &mut expected);
    let mut best = CutTree::new(rules);
    for vectors in Vectors::all() {
        best = best.with_vectors(vectors);
        let mut found = vec![Some(u32::MAX); headers.len()];
        best.first_of_batch(&mut (), headers, &mut found);
        for ((header, expected), found) in headers.iter().zip(&expected).zip(&found) {
            assert_eq!(expected, found, "{header:?} in a batch, {vectors:?}");
            assert_eq!(*expected, best.first(&mut (), header), "{header:?}, {vectors:?}");
        }
    }
    expected
}

/// Compares the results of tries and of linear search for all headers.
fn compare<A: Address>(rules: &[Rule<A>], trie: &Trie<A>, headers: &[Header<A>]) {
    let expected = expected(rules, headers);
    let mut found = vec![None; headers.len()];
    trie.first_of_batch(&mut (), headers, &mut found);
    let wrong = |found: &[_]| {
        (0..headers.len())
            .find(|&at| found[at] != expected[at])
            .map(|at| headers[at])
    };
    assert_eq!(None, wrong(&found), "trie");
    for (size, probe) in [
        (0, ListSearch::InOrder),
        (1, ListSearch::InOrder),
        (11, ListSearch::InOrder),
        (11, ListSearch::Bisection),
    ] {
        let cached = CachedTrie::new(trie.clone(), size, probe);
        let mut lists = cached.cache();
        cached.first_of_batch(&mut lists, headers, &mut found);
        assert_eq!(None, wrong(&found), "lists of {size}, {probe:?}");
        for node in 0..trie.nodes() {
            assert!(lists.of_node(node).is_sorted_by(|a, b| a < b), "a list is in order");
        }
    }
}

/// Headers at the corners of rules, and random headers.
fn headers(rules: &[Rule<u32>], count: usize) -> Vec<Header<u32>> {
    let mut drawn = Drawn(7);
    let mut made = Vec::new();
    for _ in 0..count {
        let rule = &rules[drawn.below(rules.len())];
        let mut header = Header::new(
            edges(rule.source)[drawn.below(4)],
            edges(rule.destination)[drawn.below(4)],
        );
        if drawn.below(4) == 0 {
            header = Header::new(drawn.below(1 << 32) as u32, drawn.below(1 << 32) as u32);
        }
        for field in Field::ALL {
            header = header.with(field, edges(rule.get(field))[drawn.below(4)]);
        }
        made.push(header);
    }
    made
}

#[test]
fn oracle_classbench_sets_have_no_mismatch() {
    for (name, mut rules) in sets() {
        expected(&rules, &headers(&rules, 500));
        let best = CutTree::new(&rules);
        let each = best.bytes() as f64 / rules.len() as f64;
        let copies = best.entries() as f64 / rules.len() as f64;
        eprintln!(
            "{name}: {} rules, {each:.0} bytes each, {copies:.2} copies",
            rules.len()
        );
        // If the trie of the whole rule set is too large, a part of the rule set is compared.
        let trie = loop {
            match Trie::new(&rules, ENOUGH / 4) {
                Ok(trie) => break trie,
                Err(_) => rules.truncate(rules.len() / 2),
            }
        };
        let (nodes, bytes) = (trie.nodes(), trie.bytes());
        eprintln!("{name}: {} rules, {nodes} nodes, {bytes} bytes", rules.len());
        compare(&rules, &trie, &headers(&rules, 500));
    }
}

#[test]
fn trie_over_its_memory_is_refused_by_name() {
    // Ranges that partially overlap in two dimensions. The trie then has as many intervals as the product of the
    // intervals in each dimension.
    let rule = |at: u32| {
        let range = Range {
            first: at << 16,
            last: u32::MAX - (at << 15),
        };
        Rule::any()
            .between(range, range)?
            .with(Field::DestinationPort, at % 1000, 60_000 - at % 997)
    };
    let rules: Vec<Rule<u32>> = (0..500).map(|at| rule(at).unwrap()).collect();
    let refused = Trie::new(&rules, 1 << 16).unwrap_err();
    assert_eq!(
        "a trie of 500 rules exceeds the limit of 65536 bytes, or its construction exceeds four times this limit",
        refused.to_string()
    );
}

#[test]
fn oracle_rules_within_each_other_have_no_mismatch() {
    // Rules that no cut separates: each rule is contained in the preceding one, or all but one are equal.
    let nested = |at: u32| {
        let range = Range {
            first: at,
            last: u32::MAX - at,
        };
        Rule::any()
            .between(range, range)?
            .with(Field::DestinationPort, at, 9_000 - at)
    };
    let alike = |at: u32| {
        let range = Range {
            first: at / 2_999,
            last: u32::MAX / 2,
        };
        Rule::any()
            .between(range, Rule::<u32>::any().source)?
            .with(Field::Length, at, at)
    };
    for rules in [
        (0..3_000).rev().map(nested).collect::<Result<Vec<_>, _>>().unwrap(),
        (0..3_000).map(alike).collect::<Result<Vec<_>, _>>().unwrap(),
    ] {
        expected(&rules, &headers(&rules, 500));
        let best = CutTree::new(&rules);
        assert!(best.bytes() < 1000 * rules.len(), "{} bytes", best.bytes());
    }
}

proptest! {
    #[test]
    fn oracle_generated_rules_have_no_mismatch(
        rules in proptest::collection::vec(any_rule(), 0..40),
        headers in proptest::collection::vec(any_header(), 1..60),
    ) {
        let trie = Trie::new(&rules, ENOUGH).unwrap();
        compare(&rules, &trie, &headers);
    }
}

#[test]
fn best_with_fewer_places_than_headers_fills_them_and_with_fewer_headers_leaves_the_rest() {
    let best = CutTree::new(&[Rule::<u32>::any()]);
    let headers = [Header::new(1, 2); 100];
    for (asked, places) in [(100, 70), (70, 100), (0, 3), (64, 3), (3, 64)] {
        let headers = &headers[..asked];
        let mut found = vec![Some(7); places];
        best.first_of_batch(&mut (), headers, &mut found);
        let both = asked.min(places);
        assert_eq!(vec![Some(0); both], found[..both]);
        assert_eq!(vec![Some(7); places - both], found[both..]);
    }
}

#[test]
fn rule_impossible_is_refused_with_its_field() {
    let any = Rule::<u32>::any;
    let refused = any().with(Field::SourcePort, 9, 1).unwrap_err();
    assert_eq!(
        "the range 9 to 1 of SourcePort ends before it begins",
        refused.to_string()
    );
    let refused = any().with(Field::Vlan, 1, 4096).unwrap_err();
    assert_eq!("the maximum of Vlan is 4095, not 4096", refused.to_string());
    assert!(any().with_flags(FlagsMask { set: 2, of: 0x10 }).is_err());
    let reversed = Range { first: 2, last: 1 };
    assert!(any().between(reversed, reversed).is_err());
}

#[test]
fn rule_that_names_ports_does_not_match_what_has_none() {
    let rule = Rule::<u32>::any().with(Field::DestinationPort, 0, 65_535).unwrap();
    assert!(!rule.matches(&Header::new(1, 2)));
    assert!(rule.matches(&Header::new(1, 2).with(Field::DestinationPort, 0)));
    assert!(Rule::any().matches(&Header::new(1u32, 2)));
    let flags = Rule::<u32>::any().with_flags(FlagsMask { set: 0, of: 2 }).unwrap();
    assert!(
        !flags.matches(&Header::new(1, 2)),
        "of a packet without flags none is unset"
    );
    assert!(flags.matches(&Header::new(1, 2).with(Field::Flags, 0x10)));
}

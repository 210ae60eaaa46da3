//! Tests with the example of paper P1 (see docs/papers.md): Table 1 and Fig. 1, 2 and 5, with field values from 0 to 15.

use sluice_filter::{CachedTrie, Field, Header, Linear, ListSearch, Matcher, Range, Rule, Trie};

const ENOUGH: usize = 1 << 20;

/// Filters 0, 1, 2 and the last one of the paper's Table 1. The middle column is the source port, as in the example in
/// the text.
fn table1() -> Vec<Rule<u32>> {
    let rows = [
        [(3, 8), (0, 15), (3, 11)],
        [(0, 8), (0, 8), (3, 15)],
        [(3, 15), (0, 15), (0, 11)],
        [(0, 15), (0, 15), (0, 15)],
    ];
    let rule = |[(first, last), from, to]: [(u32, u32); 3]| {
        let all = Rule::<u32>::any().destination;
        Rule::any()
            .between(Range { first, last }, all)?
            .with(Field::SourcePort, from.0, from.1)?
            .with(Field::DestinationPort, to.0, to.1)
    };
    rows.map(|row| rule(row).unwrap()).to_vec()
}

fn header(source: u32, source_port: u32, destination_port: u32) -> Header<u32> {
    Header::new(source, 0)
        .with(Field::SourcePort, source_port)
        .with(Field::DestinationPort, destination_port)
}

#[test]
fn p1_table1_example_is_filter_2_in_every_matcher() {
    let rules = table1();
    let trie = Trie::new(&rules, ENOUGH).unwrap();
    for header in [header(4, 6, 2), header(8, 6, 2)] {
        assert_eq!(Some(2), Linear::new(&rules).first(&mut (), &header));
        assert_eq!(Some(2), trie.first(&mut (), &header));
        for size in [0, 1, 3] {
            for probe in [ListSearch::InOrder, ListSearch::Bisection] {
                let cached = CachedTrie::new(trie.clone(), size, probe);
                let mut lists = cached.cache();
                assert_eq!([Some(2); 3], [(); 3].map(|()| cached.first(&mut lists, &header)));
            }
        }
    }
}

#[test]
fn p1_fig2_first_node_has_intervals_to_2_to_8_and_to_15() {
    let trie = Trie::new(&table1(), ENOUGH).unwrap();
    let index = |source| trie.path(&header(source, 6, 2)).0[0];
    // Values above 15, the largest value of the paper's example, form an additional interval.
    let expected = [1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3];
    assert_eq!(expected.to_vec(), (0..16).map(index).collect::<Vec<_>>());
    assert_eq!((vec![4], None), {
        let (path, found) = trie.path(&header(16, 6, 2));
        (path, found)
    });
}

#[test]
fn p1_fig2_way_goes_by_index_2() {
    // The path in the paper: node 1-1 index 2, node 2-2 index 1, node 3-3 index 1.
    let (path, found) = Trie::new(&table1(), ENOUGH).unwrap().path(&header(4, 6, 2));
    assert_eq!((vec![2, 1, 1], Some(2)), (path, found));
}

#[test]
fn p1_every_header_of_the_example_has_one_answer() {
    let rules = table1();
    let (linear, trie) = (Linear::new(&rules), Trie::new(&rules, ENOUGH).unwrap());
    let cached = CachedTrie::new(trie.clone(), 2, ListSearch::InOrder);
    let mut lists = cached.cache();
    for number in 0..17 * 17 * 17u32 {
        let header = header(number % 17, number / 17 % 17, number / 289);
        let expected = linear.first(&mut (), &header);
        assert_eq!(expected, trie.first(&mut (), &header), "{header:?}");
        assert_eq!(expected, cached.first(&mut lists, &header), "{header:?}");
    }
}

#[test]
fn p1_fig15_searches_are_counted_three_ways() {
    let cached = CachedTrie::new(Trie::new(&table1(), ENOUGH).unwrap(), 1, ListSearch::InOrder);
    let mut lists = cached.cache();
    let counts = |lists: &sluice_filter::NodeLists| {
        let searches = lists.searches;
        (searches.hits, searches.misses, searches.binary)
    };
    cached.first(&mut lists, &header(4, 6, 2));
    assert_eq!((0, 0, 3), counts(&lists));
    cached.first(&mut lists, &header(4, 6, 2));
    assert_eq!((3, 0, 3), counts(&lists));
    // The header falls in a different interval of the first node, whose list has a single entry, and in a node of the
    // second level that was not visited before.
    cached.first(&mut lists, &header(0, 6, 3));
    assert_eq!((3, 1, 6), counts(&lists));
}

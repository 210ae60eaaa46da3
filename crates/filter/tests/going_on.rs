//! Tests of rules that don't decide: the evaluation continues with later rules.

use sluice_filter::{
    Action, CompiledRule, Counters, DecidedBy, FilterResult, Filters, Header, MatcherKind, Range, Rule, Settings,
    Verdict,
};
use sluice_table::token_bucket::TokenRate;

const ACCEPTED: FilterResult = FilterResult {
    verdict: Verdict::Accept,
    by: DecidedBy::Default,
};

/// A rule that matches 0 to 15, with a second hyperrectangle from 4 to 7.
fn overlapping(action: Action) -> Filters {
    let all = Rule::<u32>::any().destination;
    let rule = |first, last| Rule::any().between(Range { first, last }, all).unwrap();
    let written = CompiledRule {
        action,
        v4: vec![rule(0, 15), rule(4, 7)],
        v6: Vec::new(),
        applications: Vec::new(),
        conditions: Default::default(),
    };
    let settings = Settings {
        kind: MatcherKind::Linear,
        default: Verdict::Accept,
        sessions: false,
        workers: 1,
    };
    Filters::new(&[written], &settings, Counters::new(1)).unwrap()
}

fn decided(filters: &Filters, source: u32) -> FilterResult {
    let mut fates = [ACCEPTED];
    let headers = [Header::new(source, 0)];
    filters.v4.decide(&headers, &mut fates, &filters.counters, 0, 0);
    fates[0]
}

#[test]
fn packet_that_two_values_of_a_counting_rule_fit_is_counted_once() {
    let filters = overlapping(Action::Count);
    assert_eq!(ACCEPTED, decided(&filters, 5));
    assert_eq!(1, filters.counters.of(0).unwrap().packets());
}

#[test]
fn packet_that_two_values_of_a_logging_rule_fit_is_logged_once() {
    let filters = overlapping(Action::Log);
    decided(&filters, 5);
    assert_eq!(1, filters.counters.take_log().len());
}

#[test]
fn packet_that_two_values_of_a_rate_fit_takes_of_it_once() {
    let filters = overlapping(Action::Limit(TokenRate::new(1, 2)));
    assert_eq!(ACCEPTED, decided(&filters, 5));
    assert_eq!(ACCEPTED, decided(&filters, 5));
    assert_eq!(Verdict::Drop, decided(&filters, 5).verdict);
}

#[test]
fn rule_that_two_values_of_fit_is_named_once_before_what_decides() {
    let filters = overlapping(Action::Count);
    assert_eq!((vec![0], ACCEPTED), filters.v4.explain(&Header::new(5, 0)));
}

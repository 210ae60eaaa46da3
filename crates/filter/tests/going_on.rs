//! Rules after which others are asked.

use sluice_filter::{Action, By, Counters, Fate, Filter, Header, Kind, Range, Rule, Verdict};

const ACCEPTED: Fate = Fate {
    verdict: Verdict::Accept,
    by: By::Default,
};

/// A rule that names 0 to 15, and 4 to 7 once more.
fn overlapping(action: Action) -> Filter<u32> {
    let all = Rule::<u32>::any().destination;
    let rule = |first, last| Rule::any().between(Range { first, last }, all).unwrap();
    let boxes = [rule(0, 15), rule(4, 7)];
    let boxes = boxes.iter().map(|one| (0, action, one));
    Filter::new(boxes, Kind::Linear, Verdict::Accept, 1).unwrap()
}

fn decided(filter: &Filter<u32>, counters: &Counters, source: u32) -> Fate {
    let mut fates = [ACCEPTED];
    filter.decide(&[Header::new(source, 0)], &mut fates, counters, 0, 0);
    fates[0]
}

#[test]
fn packet_that_two_values_of_a_counting_rule_fit_is_counted_once() {
    let (filter, counters) = (overlapping(Action::Count), Counters::new(1));
    assert_eq!(ACCEPTED, decided(&filter, &counters, 5));
    assert_eq!(1, counters.of(0).unwrap().packets());
}

#[test]
fn packet_that_two_values_of_a_logging_rule_fit_is_logged_once() {
    let (filter, counters) = (overlapping(Action::Log), Counters::new(1));
    decided(&filter, &counters, 5);
    assert_eq!(1, counters.take_log().len());
}

#[test]
fn packet_that_two_values_of_a_rate_fit_takes_of_it_once() {
    let (filter, counters) = (overlapping(Action::Limit { rate: 1, burst: 2 }), Counters::new(1));
    assert_eq!(ACCEPTED, decided(&filter, &counters, 5));
    assert_eq!(ACCEPTED, decided(&filter, &counters, 5));
    assert_eq!(Verdict::Drop, decided(&filter, &counters, 5).verdict);
}

#[test]
fn rule_that_two_values_of_fit_is_named_once_before_what_decides() {
    let filter = overlapping(Action::Count);
    assert_eq!((vec![0], ACCEPTED), filter.explain(&Header::new(5, 0)));
}

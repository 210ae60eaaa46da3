//! Rules about applications: what a filter says of sessions whose application is known is what asking rule by rule says.

use crate::drawn::{any_header, any_rule};
use proptest::prelude::*;
use sluice_filter::{
    Action, By, Counters, Field, Filters, Header, Kind, Known, Named, Place, Rule, Settings, Verdict, With, Written,
};

const ACCEPT: Action = Action::Decide(Verdict::Accept);
const DROP: Action = Action::Decide(Verdict::Drop);

fn settings(kind: Kind) -> Settings {
    Settings {
        kind,
        default: Verdict::Accept,
        sessions: true,
        workers: 1,
    }
}

fn filters(kind: Kind, rules: &[Written]) -> Filters {
    Filters::new(rules, &settings(kind), Counters::new(rules.len())).unwrap()
}

/// A rule by rule answer; `undecided` where a rule that drops waits for what one before it may still say.
fn meant(rules: &[Written], header: &Header<u128>, known: Option<Known>) -> (Verdict, Option<Place>) {
    let mut waits = false;
    let mut left = false;
    for (place, rule) in (0..).zip(rules) {
        if !rule.six.iter().any(|one| one.has(header)) {
            continue;
        }
        let Action::Decide(verdict) = rule.action else { continue };
        if rule.applications.is_empty() {
            return (verdict, Some(place));
        }
        let Some(known) = known else { continue };
        if left {
            continue;
        }
        let is_meant = rule
            .applications
            .iter()
            .any(|named| match (named.master, named.application) {
                (Some(master), application) => (known.master, known.application) == (master, application),
                (None, 0) => known.master == 0 && known.application == 0,
                (None, one) => known.master == one || known.application == one,
            });
        if !is_meant {
            waits |= !known.is_all && verdict == Verdict::Accept;
        } else if waits && verdict != Verdict::Accept {
            // Nothing about applications decides by now.
            left = true;
        } else {
            return (verdict, Some(place));
        }
    }
    (Verdict::Accept, None)
}

fn any_known() -> impl Strategy<Value = Option<Known>> {
    let known = (0..3u16, 0..4u16, any::<bool>()).prop_map(|(master, application, is_all)| Known {
        master,
        application,
        is_all,
    });
    proptest::option::of(known)
}

fn any_named() -> impl Strategy<Value = Named> {
    (proptest::option::of(0..3u16), 0..4u16).prop_map(|(master, application)| Named { master, application })
}

fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        Just(ACCEPT),
        Just(DROP),
        Just(Action::Decide(Verdict::Reject(With::Reset))),
        Just(Action::Count),
    ]
}

fn any_written() -> impl Strategy<Value = Written> {
    let applications = prop_oneof![Just(Vec::new()), proptest::collection::vec(any_named(), 1..3)];
    (any_action(), proptest::collection::vec(any_rule(), 0..3), applications).prop_map(|(action, six, applications)| {
        Written {
            action,
            four: Vec::new(),
            six,
            applications,
            conditions: Default::default(),
        }
    })
}

proptest! {
    #[test]
    fn oracle_filter_with_applications_says_what_rule_by_rule_says(
        rules in proptest::collection::vec(any_written(), 0..12),
        asked in proptest::collection::vec((any_header(), any_known()), 1..20),
    ) {
        for kind in [Kind::Best, Kind::Linear] {
            let filters = filters(kind, &rules);
            for (header, known) in &asked {
                let (verdict, place) = meant(&rules, header, *known);
                let fate = filters.six.would_as(header, *known);
                let by = match fate.by {
                    By::Rule(place) => Some((place, false)),
                    By::Application(place) => Some((place, true)),
                    By::Limit(_) | By::Default => None,
                };
                let expected = place.map(|place| (place, !rules[place as usize].applications.is_empty()));
                prop_assert_eq!((verdict, expected), (fate.verdict, by), "{:?} {:?}", header, known);
            }
        }
    }
}

fn rule(action: Action, applications: &[u16]) -> Written {
    let named = |&application| Named {
        master: None,
        application,
    };
    Written {
        action,
        four: vec![Rule::any()],
        six: Vec::new(),
        applications: applications.iter().map(named).collect(),
        conditions: Default::default(),
    }
}

const TLS: u16 = 91;
const NETFLIX: u16 = 133;

fn known(master: u16, application: u16, is_all: bool) -> Known {
    Known {
        master,
        application,
        is_all,
    }
}

#[test]
fn packet_of_no_known_application_is_none_of_rules_about_them() {
    let filters = filters(Kind::Best, &[rule(DROP, &[TLS]), rule(ACCEPT, &[])]);
    let header = Header::<u32>::new(1, 2).with(Field::Protocol, 6);
    let mut fates = [filters.four.would(&header)];
    assert_eq!((Verdict::Accept, By::Rule(1)), (fates[0].verdict, fates[0].by));
    filters.four.decide(&[header], &mut fates, &filters.counters, 0, 1);
    assert_eq!(By::Rule(1), fates[0].by);
    let packets = |place| filters.counters.of(place).unwrap().packets();
    assert_eq!((0, 1), (packets(0), packets(1)));
}

#[test]
fn rule_that_drops_waits_for_what_one_before_it_may_accept() {
    let filters = filters(
        Kind::Best,
        &[rule(ACCEPT, &[NETFLIX]), rule(DROP, &[TLS]), rule(ACCEPT, &[])],
    );
    let header = Header::<u32>::new(1, 2);
    let by = |known| filters.four.would_as(&header, Some(known)).by;
    assert_eq!(By::Rule(2), by(known(0, TLS, false)));
    assert_eq!(By::Application(0), by(known(TLS, NETFLIX, false)));
    assert_eq!(By::Application(1), by(known(0, TLS, true)));
    assert_eq!(By::Application(1), by(known(TLS, 126, true)));
}

#[test]
fn rules_about_an_application_count_a_session_when_it_is_known() {
    let rules = [
        rule(Action::Count, &[]),
        rule(Action::Count, &[TLS]),
        rule(DROP, &[TLS]),
    ];
    let filters = filters(Kind::Best, &rules);
    let (fate, _) = filters
        .four
        .decide_as(&Header::new(1, 2), known(0, TLS, true), &filters.counters, 1);
    assert_eq!((Verdict::Drop, By::Application(2)), (fate.verdict, fate.by));
    let packets = [0, 1, 2].map(|place| filters.counters.of(place).unwrap().packets());
    assert_eq!([0, 1, 1], packets);
}

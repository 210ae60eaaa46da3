//! Tests of rules with application conditions: for sessions whose application is identified, the results of the filter
//! equal those of a linear evaluation.

use crate::drawn::{any_header, any_rule};
use proptest::prelude::*;
use sluice_filter::{
    Action, ApplicationMatch, CompiledRule, Counters, DecidedBy, Field, Filters, Header, MatcherKind, RejectKind, Rule,
    RulePosition, SessionApplication, Settings, Verdict,
};

const ACCEPT: Action = Action::Decide(Verdict::Accept);
const DROP: Action = Action::Decide(Verdict::Drop);

fn settings(kind: MatcherKind) -> Settings {
    Settings {
        kind,
        default: Verdict::Accept,
        sessions: true,
        workers: 1,
    }
}

fn filters(kind: MatcherKind, rules: &[CompiledRule]) -> Filters {
    Filters::new(rules, &settings(kind), Counters::new(rules.len())).unwrap()
}

/// Linear evaluation. A dropping rule with an application condition does not decide as long as an earlier accepting
/// rule may still match.
fn meant(
    rules: &[CompiledRule],
    header: &Header<u128>,
    known: Option<SessionApplication>,
) -> (Verdict, Option<RulePosition>) {
    let mut waits = false;
    let mut left = false;
    for (place, rule) in (0..).zip(rules) {
        if !rule.v6.iter().any(|one| one.matches(header)) {
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
            // Application rules do not decide yet, because an earlier accepting rule may still match.
            left = true;
        } else {
            return (verdict, Some(place));
        }
    }
    (Verdict::Accept, None)
}

fn any_known() -> impl Strategy<Value = Option<SessionApplication>> {
    let known = (0..3u16, 0..4u16, any::<bool>()).prop_map(|(master, application, is_all)| SessionApplication {
        master,
        application,
        is_all,
    });
    proptest::option::of(known)
}

fn any_named() -> impl Strategy<Value = ApplicationMatch> {
    (proptest::option::of(0..3u16), 0..4u16).prop_map(|(master, application)| ApplicationMatch { master, application })
}

fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        Just(ACCEPT),
        Just(DROP),
        Just(Action::Decide(Verdict::Reject(RejectKind::Reset))),
        Just(Action::Count),
    ]
}

fn any_written() -> impl Strategy<Value = CompiledRule> {
    let applications = prop_oneof![Just(Vec::new()), proptest::collection::vec(any_named(), 1..3)];
    (any_action(), proptest::collection::vec(any_rule(), 0..3), applications).prop_map(|(action, six, applications)| {
        CompiledRule {
            action,
            v4: Vec::new(),
            v6: six,
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
        for kind in [MatcherKind::Best, MatcherKind::Linear] {
            let filters = filters(kind, &rules);
            for (header, known) in &asked {
                let (verdict, place) = meant(&rules, header, *known);
                let fate = filters.v6.evaluate_as(header, *known);
                let by = match fate.by {
                    DecidedBy::Rule(place) => Some((place, false)),
                    DecidedBy::Application(place) => Some((place, true)),
                    DecidedBy::Limit(_) | DecidedBy::Default => None,
                };
                let expected = place.map(|place| (place, !rules[place as usize].applications.is_empty()));
                prop_assert_eq!((verdict, expected), (fate.verdict, by), "{:?} {:?}", header, known);
            }
        }
    }
}

fn rule(action: Action, applications: &[u16]) -> CompiledRule {
    let named = |&application| ApplicationMatch {
        master: None,
        application,
    };
    CompiledRule {
        action,
        v4: vec![Rule::any()],
        v6: Vec::new(),
        applications: applications.iter().map(named).collect(),
        conditions: Default::default(),
    }
}

const TLS: u16 = 91;
const NETFLIX: u16 = 133;

fn known(master: u16, application: u16, is_all: bool) -> SessionApplication {
    SessionApplication {
        master,
        application,
        is_all,
    }
}

#[test]
fn packet_of_no_known_application_is_none_of_rules_about_them() {
    let filters = filters(MatcherKind::Best, &[rule(DROP, &[TLS]), rule(ACCEPT, &[])]);
    let header = Header::<u32>::new(1, 2).with(Field::Protocol, 6);
    let mut fates = [filters.v4.evaluate(&header)];
    assert_eq!((Verdict::Accept, DecidedBy::Rule(1)), (fates[0].verdict, fates[0].by));
    filters.v4.decide(&[header], &mut fates, &filters.counters, 0, 1);
    assert_eq!(DecidedBy::Rule(1), fates[0].by);
    let packets = |place| filters.counters.of(place).unwrap().packets();
    assert_eq!((0, 1), (packets(0), packets(1)));
}

#[test]
fn rule_that_drops_waits_for_what_one_before_it_may_accept() {
    let filters = filters(
        MatcherKind::Best,
        &[rule(ACCEPT, &[NETFLIX]), rule(DROP, &[TLS]), rule(ACCEPT, &[])],
    );
    let header = Header::<u32>::new(1, 2);
    let by = |known| filters.v4.evaluate_as(&header, Some(known)).by;
    assert_eq!(DecidedBy::Rule(2), by(known(0, TLS, false)));
    assert_eq!(DecidedBy::Application(0), by(known(TLS, NETFLIX, false)));
    assert_eq!(DecidedBy::Application(1), by(known(0, TLS, true)));
    assert_eq!(DecidedBy::Application(1), by(known(TLS, 126, true)));
}

#[test]
fn rules_about_an_application_count_a_session_when_it_is_known() {
    let rules = [
        rule(Action::Count, &[]),
        rule(Action::Count, &[TLS]),
        rule(DROP, &[TLS]),
    ];
    let filters = filters(MatcherKind::Best, &rules);
    let (fate, _) = filters
        .v4
        .decide_as(&Header::new(1, 2), known(0, TLS, true), &filters.counters, 1);
    assert_eq!((Verdict::Drop, DecidedBy::Application(2)), (fate.verdict, fate.by));
    let packets = [0, 1, 2].map(|place| filters.counters.of(place).unwrap().packets());
    assert_eq!([0, 1, 1], packets);
}

//! Tests of a filter with single insertions and removals: its results and counts equal those of a simple list.

use std::collections::BTreeMap;

use crate::drawn::{Drawn, any_header, any_rule};
use proptest::prelude::*;
use sluice_filter::{
    Action, ChangeResult, CompiledRule, Counters, DecidedBy, Field, FilterResult, Header, MatcherKind, Rebuild,
    RejectKind, Rule, RuleList, Settings, Verdict,
};

const SETTINGS: Settings = Settings {
    kind: MatcherKind::Best,
    default: Verdict::Drop,
    sessions: false,
    workers: 1,
};

/// A rule with a name that identifies it.
#[derive(Clone, Debug)]
struct Named {
    name: usize,
    written: CompiledRule,
}

#[derive(Clone, Debug)]
enum Step {
    Insert(usize, Action, Vec<Rule<u128>>),
    InsertTwo(usize, [Action; 2], Vec<Rule<u128>>),
    Remove(usize),
    RemoveThree(usize),
    BeginFold,
    EndFold,
}

fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => Just(Action::Decide(Verdict::Accept)),
        3 => Just(Action::Decide(Verdict::Drop)),
        2 => Just(Action::Decide(Verdict::Reject(RejectKind::Reset))),
        1 => Just(Action::Count),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let hyperrectangles = || proptest::collection::vec(any_rule(), 0..3);
    let two = (0usize..40, any_action(), any_action(), hyperrectangles());
    prop_oneof![
        1 => two.prop_map(|(index, one, other, hyperrectangles)| Step::InsertTwo(index, [one, other], hyperrectangles)),
        1 => (0usize..40).prop_map(Step::RemoveThree),
        5 => (0usize..40, any_action(), hyperrectangles()).prop_map(|(index, action, hyperrectangles)| Step::Insert(index, action, hyperrectangles)),
        3 => (0usize..40).prop_map(Step::Remove),
        1 => Just(Step::BeginFold),
        1 => Just(Step::EndFold),
    ]
}

/// Model of the filter: the expected list, and the expected counts by name.
#[derive(Default)]
struct Meant {
    rules: Vec<Named>,
    counted: BTreeMap<usize, u64>,
    by_default: u64,
}

impl Meant {
    fn ask(&mut self, header: &Header<u128>) -> (Verdict, Option<usize>) {
        for Named { name, written } in &self.rules {
            if written.v6.iter().any(|rule| rule.matches(header)) {
                *self.counted.entry(*name).or_default() += 1;
                if let Action::Decide(verdict) = written.action {
                    return (verdict, Some(*name));
                }
            }
        }
        self.by_default += 1;
        (SETTINGS.default, None)
    }
}

fn list(rules: &[Named]) -> RuleList<usize> {
    let rules = rules.iter().map(|rule| (rule.written.clone(), rule.name));
    let count = rules.len();
    RuleList::new(rules, SETTINGS, Counters::new(count)).unwrap()
}

fn check(list: &RuleList<usize>, meant: &mut Meant, headers: &[Header<u128>]) {
    let names: Vec<usize> = list.iter().map(|(_, name)| *name).collect();
    assert_eq!(names, meant.rules.iter().map(|rule| rule.name).collect::<Vec<_>>());
    let filters = list.filters();
    let decides = |rule: &&Named| matches!(rule.written.action, Action::Decide(_));
    let hyperrectangles = meant.rules.iter().filter(decides).map(|rule| rule.written.v6.len());
    assert_eq!(hyperrectangles.sum::<usize>(), filters.v6.len());
    let pass = FilterResult {
        verdict: Verdict::Accept,
        by: DecidedBy::Default,
    };
    let mut fates = vec![pass; headers.len()];
    filters.v6.decide(headers, &mut fates, &filters.counters, 0, 1);
    for (header, fate) in headers.iter().zip(fates) {
        let (verdict, by) = meant.ask(header);
        let said = match fate.by {
            DecidedBy::Rule(place) | DecidedBy::Application(place) => Some(*list.at(place).unwrap()),
            DecidedBy::Limit(_) | DecidedBy::Default => None,
        };
        assert_eq!((verdict, by), (fate.verdict, said), "{header:?}");
    }
    for (place, name) in list.iter() {
        let counted = filters.counters.of(place).unwrap().packets();
        assert_eq!(meant.counted.get(name).copied().unwrap_or_default(), counted, "{name}");
    }
    assert_eq!(meant.by_default, filters.counters.of_default().packets());
}

proptest! {
    #[test]
    fn oracle_list_that_changes_says_and_counts_what_it_means(
        start in proptest::collection::vec((any_action(), proptest::collection::vec(any_rule(), 0..3)), 0..20),
        steps in proptest::collection::vec(any_step(), 1..60),
        headers in proptest::collection::vec(any_header(), 1..20),
    ) {
        let mut meant = Meant::default();
        let written = |action, six| CompiledRule { action, v4: Vec::new(), v6: six, applications: Vec::new(), conditions: Default::default() };
        for (name, (action, six)) in start.into_iter().enumerate() {
            meant.rules.push(Named { name, written: written(action, six) });
        }
        let mut list = list(&meant.rules);
        let mut fold: Option<Rebuild<usize>> = None;
        // The numbers between two adjacent rules are used up only after several insertions.
        let mut is_anew = true;
        for (name, step) in (1_000..).zip(steps) {
            match step {
                Step::Insert(index, action, six) => {
                    let index = index.min(meant.rules.len());
                    let written = written(action, six);
                    let change = list.insert(index, written.clone(), name).unwrap();
                    let decides = matches!(written.action, Action::Decide(_));
                    match change {
                        ChangeResult::InPlace => assert!(decides),
                        ChangeResult::Rebuilt => assert!(!decides || !is_anew),
                    }
                    is_anew = change == ChangeResult::Rebuilt;
                    meant.rules.insert(index, Named { name, written });
                }
                Step::InsertTwo(index, actions, six) => {
                    let index = index.min(meant.rules.len());
                    let rules = [(actions[0], name), (actions[1], name + 100_000)];
                    let rules = rules.map(|(action, name)| (written(action, six.clone()), name));
                    is_anew = list.insert_all(index, rules.to_vec()).unwrap() == ChangeResult::Rebuilt;
                    for (written, name) in rules.into_iter().rev() {
                        meant.rules.insert(index, Named { name, written });
                    }
                }
                Step::RemoveThree(first) => {
                    let last = meant.rules.len().min(first + 3);
                    let places = (first..last).filter_map(|index| list.place(index)).collect();
                    list.remove_all(&places).unwrap();
                    meant.rules.drain(first.min(last)..last);
                }
                Step::Remove(index) if index < meant.rules.len() => {
                    list.remove(index).unwrap();
                    meant.rules.remove(index);
                }
                Step::Remove(_) => {}
                Step::BeginFold => fold = fold.or(list.force_rebuild()),
                Step::EndFold => {
                    if let Some(fold) = fold.take() {
                        list.end_rebuild(fold.build().unwrap()).unwrap();
                    }
                }
            }
            check(&list, &mut meant, &headers);
        }
    }
}

fn port(port: u32) -> CompiledRule {
    let rule = Rule::any().with(Field::DestinationPort, port, port).unwrap();
    CompiledRule {
        action: Action::Decide(Verdict::Accept),
        v4: vec![rule],
        v6: Vec::new(),
        applications: Vec::new(),
        conditions: Default::default(),
    }
}

#[test]
fn list_is_folded_before_its_room_is_used_up() {
    let mut list = RuleList::new(
        (0..1_000).map(|number| (port(number), number)),
        SETTINGS,
        Counters::new(1_000),
    )
    .unwrap();
    let (mut folds, mut drawn) = (0, Drawn(5));
    for number in 1_000..3_000 {
        assert_eq!(
            Ok(ChangeResult::InPlace),
            list.insert(drawn.below(list.len()), port(number), number),
            "{number}"
        );
        if let Some(fold) = list.begin_rebuild() {
            // The rebuild runs on another thread, while the list continues to change.
            assert!(list.begin_rebuild().is_none());
            list.insert(0, port(60_000 + number % 1_000), 0).unwrap();
            assert_eq!(Ok(true), list.end_rebuild(fold.build().unwrap()));
            folds += 1;
        }
    }
    assert!((5..100).contains(&folds), "{folds}");
    assert_eq!(3_000 + folds, list.len());
    let four = &list.filters().v4;
    for port in 0..3_000 {
        assert_eq!(
            Verdict::Accept,
            four.evaluate(&Header::new(1, 2).with(Field::DestinationPort, port))
                .verdict
        );
    }
}

#[test]
fn fold_of_a_list_that_was_built_anew_meanwhile_is_not_taken() {
    let mut list = list(&[]);
    let fold = list.force_rebuild().unwrap();
    let count = CompiledRule {
        action: Action::Count,
        ..port(1)
    };
    assert_eq!(Ok(ChangeResult::Rebuilt), list.insert(0, count, 1));
    assert_eq!(Ok(false), list.end_rebuild(fold.build().unwrap()));
    assert_eq!(1, list.len());
}

#[test]
fn rule_of_many_boxes_that_was_hidden_comes_back_in_little_time_and_memory() {
    let ports = |at: u32| (at * 500, at * 500 + 99);
    let wide = |number: u32| {
        let ((first, last), (from, to)) = (ports(number % 100), ports(number / 100));
        let rule = Rule::<u32>::any().with(Field::SourcePort, first, last).unwrap();
        rule.with(Field::DestinationPort, from, to).unwrap()
    };
    let of = |four| CompiledRule {
        action: Action::Decide(Verdict::Accept),
        v4: four,
        v6: Vec::new(),
        applications: Vec::new(),
        conditions: Default::default(),
    };
    let rules = [(of(vec![Rule::any()]), 0), (of((0..10_000).map(wide).collect()), 1)];
    let mut list = RuleList::new(rules.into_iter(), SETTINGS, Counters::new(2)).unwrap();
    list.remove(0).unwrap();
    let four = &list.filters().v4;
    for (from, to, verdict) in [
        (0, 0, Verdict::Accept),
        (1_099, 1_500, Verdict::Accept),
        (100, 0, Verdict::Drop),
    ] {
        let header = Header::new(1, 2)
            .with(Field::SourcePort, from)
            .with(Field::DestinationPort, to);
        assert_eq!(verdict, four.evaluate(&header).verdict, "{from} {to}");
    }
    assert_eq!(10_000, four.len());
}

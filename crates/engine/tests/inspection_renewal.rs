//! Tests of the replacement of inspection rules during traffic. Each flow uses the correct rules, no packet is lost,
//! and old rules are freed.

use std::sync::{Arc, Weak};

use crate::inspected::{self, Talk, alerts, inspected_by, ledger, payloads, plan};
use crate::rig::{self, Plan, Rig};
use sluice_engine::control::plane::ControlPlaneError;
use sluice_engine::features::inspection::rule_updates::RuleUpdateError;
use sluice_engine::session::rule_channel::GRACE_PERIOD;
use sluice_engine::snapshot::Snapshot;
use sluice_inspect::Ruleset;
use sluice_testkit::packet;

/// Rules with a different pattern than the initial rules.
const OTHERS: &str = r#"
drop tcp any any -> any 80 (msg:"wicked"; flow:to_server,established; content:"wicked"; sid:11;)
alert tcp any any -> any 80 (msg:"noted"; flow:to_server,established; flowbits:isset,seen; content:"strange"; sid:12;)
alert tcp any any -> any 80 (msg:"notes"; flow:to_server,established; flowbits:set,seen; content:"curious"; sid:13;)
drop udp any any -> any 53 (msg:"name"; content:"wicked"; sid:14;)
"#;

/// Rules whose flow bits differ from those of the first rules.
const OTHER_NOTES: &str = r#"
alert tcp any any -> any 80 (msg:"noted"; flow:to_server,established; flowbits:isset,other; content:"strange"; sid:21;)
alert tcp any any -> any 80 (msg:"notes"; flow:to_server,established; flowbits:set,other; content:"odd"; sid:22;)
"#;

/// A rule whose pattern is too short for the pattern search.
const SHORT: &str = r#"alert tcp any any -> any 80 (msg:"short"; flow:to_server,established; content:"~"; sid:31;)"#;

/// Number of milliseconds after which existing flows use the new rules.
const OVER: u64 = GRACE_PERIOD / 1_000_000 + 200;

fn others(snapshot: &mut Snapshot) {
    inspected_by(snapshot, OTHERS);
}

fn commit(rig: &mut Rig, change: fn(&mut Snapshot)) -> Result<u32, ControlPlaneError> {
    let (snapshot, routes) = rig::snapshot(&Plan {
        snapshot: change,
        ..plan()
    });
    rig.plane.commit(snapshot, std::slice::from_ref(&routes))
}

fn reopened(rig: &Rig) -> u64 {
    rig.plane
        .counters()
        .iter()
        .map(|worker| worker.inspection.reopened.get())
        .sum()
}

fn rules(rig: &Rig) -> Weak<Ruleset> {
    Arc::downgrade(&rig.plane.snapshot().inspection.as_ref().unwrap().rules)
}

#[test]
fn connection_under_way_goes_by_the_rules_that_it_began_with() {
    for workers in [1, 4] {
        let mut rig = Rig::new(Plan { workers, ..plan() });
        let talk = Talk::open(&mut rig, 40_000);
        assert_eq!(1, rig.host_sends(&talk.data(0, b"wicked, some ev")).len());
        commit(&mut rig, others).unwrap();
        // A match is found even if its first part is in a segment before the commit and its second part is in a segment
        // after the commit.
        assert_eq!(0, rig.host_sends(&talk.data(15, b"il")).len());
        assert_eq!(1, rig.drops("signature"));
        let told = alerts(&mut rig);
        assert_eq!(
            vec![(0, 0)],
            told.iter()
                .map(|alert| (alert.rule.generation, alert.rule.number))
                .collect::<Vec<_>>()
        );
        assert_eq!((0, 5), (reopened(&rig), ledger(&mut rig).received));
        rig.check();
    }
}

#[test]
fn connection_begun_after_a_commit_goes_by_the_new_rules() {
    for workers in [1, 4] {
        let mut rig = Rig::new(Plan { workers, ..plan() });
        let before = Talk::open(&mut rig, 40_000);
        commit(&mut rig, others).unwrap();
        let talk = Talk::open(&mut rig, 40_001);
        assert_eq!(1, rig.host_sends(&talk.data(0, b"some evil is wick")).len());
        assert_eq!(0, rig.host_sends(&talk.data(17, b"ed")).len());
        assert_eq!(1, alerts(&mut rig)[0].rule.generation);
        assert_eq!(1, rig.host_sends(&before.data(0, b"a wicked")).len());
        assert_eq!(0, rig.host_sends(&before.data(8, b"evil")).len());
        assert_eq!((0, 2), (reopened(&rig), rig.drops("signature")));
        ledger(&mut rig);
        rig.check();
    }
}

#[test]
fn connection_under_way_goes_over_to_the_new_rules_when_its_own_are_over() {
    for workers in [1, 4] {
        let mut rig = Rig::new(Plan { workers, ..plan() });
        let talk = Talk::open(&mut rig, 40_000);
        assert_eq!(1, rig.host_sends(&talk.data(0, b"harmless")).len());
        commit(&mut rig, others).unwrap();
        rig.pass(OVER);
        assert_eq!(0, reopened(&rig));
        assert_eq!(vec![&b" evil"[..]], payloads(&rig.host_sends(&talk.data(8, b" evil"))));
        assert_eq!(1, reopened(&rig));
        assert_eq!(1, rig.router_sends(&talk.answer(0, b"an answer")).len());
        assert_eq!(0, rig.host_sends(&talk.data(13, b"wicked")).len());
        assert_eq!((1, 1), (reopened(&rig), rig.drops("signature")));
        ledger(&mut rig);
        rig.check();
    }
}

#[test]
fn connection_that_goes_over_is_searched_from_what_is_kept_of_its_message() {
    let mut rig = Rig::new(plan());
    let talk = Talk::open(&mut rig, 40_000);
    assert_eq!(1, rig.host_sends(&talk.data(0, b"curious and wick")).len());
    commit(&mut rig, others).unwrap();
    rig.pass(OVER);
    assert_eq!(0, rig.host_sends(&talk.data(16, b"ed")).len());
    assert_eq!((1, 1), (reopened(&rig), rig.drops("signature")));
    rig.check();
}

#[test]
fn notes_that_rules_took_of_a_flow_are_not_those_of_other_rules() {
    let mut rig = Rig::new(Plan {
        snapshot: others,
        ..plan()
    });
    let talk = Talk::open(&mut rig, 40_000);
    rig.host_sends(&talk.data(0, b"curious"));
    let numbers = |rig: &mut Rig| alerts(rig).iter().map(|alert| alert.rule.number).collect::<Vec<_>>();
    assert_eq!(1, numbers(&mut rig).len());
    // The flow bits of the first rules don't apply to the new rules.
    commit(&mut rig, |snapshot| inspected_by(snapshot, OTHER_NOTES)).unwrap();
    rig.host_sends(&talk.data(7, b"strange"));
    assert_eq!(1, numbers(&mut rig).len());
    rig.pass(OVER);
    rig.host_sends(&talk.data(14, b"strange"));
    assert_eq!((1, 0), (reopened(&rig), numbers(&mut rig).len()));
    rig.host_sends(&talk.data(21, b"odd"));
    rig.host_sends(&talk.data(24, b"strange"));
    assert_eq!(2, numbers(&mut rig).len());
    ledger(&mut rig);
}

#[test]
fn rules_that_nothing_is_searched_for_are_asked_once_a_flow_has_gone_over() {
    let mut rig = Rig::new(plan());
    let talk = Talk::open(&mut rig, 40_000);
    rig.host_sends(&talk.data(0, b"harmless"));
    commit(&mut rig, |snapshot| inspected_by(snapshot, SHORT)).unwrap();
    assert_eq!(1, rig.host_sends(&talk.data(8, b"~")).len());
    rig.pass(OVER);
    assert_eq!(1, rig.host_sends(&talk.data(9, &[b'.'; 1400])).len());
    assert_eq!((1, 1), (reopened(&rig), alerts(&mut rig).len()));
    let after = Talk::open(&mut rig, 40_001);
    rig.host_sends(&after.data(0, b"~"));
    assert_eq!(1, alerts(&mut rig).len());
    ledger(&mut rig);
}

#[test]
fn datagrams_of_a_flow_under_way_go_over_too() {
    let mut rig = Rig::new(plan());
    let ask = |word: &[u8]| packet::udp4("192.168.1.10:5353", "198.51.100.7:53").payload(word);
    assert_eq!(1, rig.host_sends(&ask(b"wicked")).len());
    commit(&mut rig, others).unwrap();
    assert_eq!(1, rig.host_sends(&ask(b"wicked")).len());
    rig.pass(OVER);
    assert_eq!(0, rig.host_sends(&ask(b"wicked")).len());
    assert_eq!((1, 1), (reopened(&rig), rig.drops("signature")));
    ledger(&mut rig);
    rig.check();
}

#[test]
fn what_came_ahead_of_a_gap_before_a_commit_is_searched_with_what_fills_it() {
    for milliseconds in [0, OVER] {
        let mut rig = Rig::new(plan());
        let talk = Talk::open(&mut rig, 40_000);
        assert_eq!(1, rig.host_sends(&talk.data(3, b"ked")).len());
        commit(&mut rig, others).unwrap();
        rig.pass(milliseconds);
        // The flow uses its original rules during the grace period.
        let sent = rig.host_sends(&talk.data(0, b"wic"));
        assert_eq!(usize::from(milliseconds == 0), sent.len(), "{:?}", rig.all_drops());
        ledger(&mut rig);
        rig.check();
    }
}

#[test]
fn rules_are_let_go_when_their_time_is_over_though_a_flow_is_silent() {
    let mut rig = Rig::new(Plan { workers: 2, ..plan() });
    let talk = Talk::open(&mut rig, 40_000);
    rig.host_sends(&talk.data(0, b"harmless"));
    let old = rules(&rig);
    commit(&mut rig, others).unwrap();
    rig.pass(1_000);
    rig.plane.collect();
    assert!(old.upgrade().is_some());
    rig.pass(OVER);
    rig.plane.collect();
    assert!(old.upgrade().is_none());
    assert_eq!((0, 1), (reopened(&rig), rig.live()));
    // The flow now uses the new rules.
    assert_eq!(1, rig.host_sends(&talk.data(8, b"evil")).len());
    assert_eq!(1, reopened(&rig));
}

#[test]
fn rules_that_no_flow_goes_by_are_let_go_at_once() {
    let mut rig = Rig::new(Plan { workers: 2, ..plan() });
    let old = rules(&rig);
    commit(&mut rig, others).unwrap();
    rig.pass(100);
    rig.plane.collect();
    assert!(old.upgrade().is_none());
}

#[test]
fn rules_of_two_commits_before_are_over_at_once() {
    let mut rig = Rig::new(plan());
    let talk = Talk::open(&mut rig, 40_000);
    rig.host_sends(&talk.data(0, b"harmless"));
    commit(&mut rig, others).unwrap();
    commit(&mut rig, inspected::inspected).unwrap();
    // The flow uses the rules of the newest commit, not those of the commit before it.
    assert_eq!(1, rig.host_sends(&talk.data(8, b"wicked")).len());
    assert_eq!(0, rig.host_sends(&talk.data(14, b"evil")).len());
    assert_eq!((1, 2), (reopened(&rig), alerts(&mut rig)[0].rule.generation));
    ledger(&mut rig);
    rig.check();
}

#[test]
fn commits_that_no_worker_has_followed_are_refused_until_one_has() {
    let mut rig = Rig::new(plan());
    for _ in 0..4 {
        commit(&mut rig, others).unwrap();
    }
    let generation = rig.plane.snapshot().generation;
    assert!(matches!(
        commit(&mut rig, others),
        Err(ControlPlaneError::Renewal(RuleUpdateError::WorkersBehind))
    ));
    assert_eq!(generation, rig.plane.snapshot().generation);
    rig.pass(100);
    commit(&mut rig, others).unwrap();
    rig.pass(100);
    let talk = Talk::open(&mut rig, 40_000);
    assert_eq!(0, rig.host_sends(&talk.data(0, b"wicked")).len());
    rig.check();
}

#[test]
fn workers_without_shards_follow_too() {
    let mut rig = Rig::new(Plan {
        workers: 2,
        stages: [vec![0], vec![0], vec![1], vec![1]],
        ..plan()
    });
    for _ in 0..12 {
        commit(&mut rig, others).unwrap();
        rig.pass(100);
    }
    let talk = Talk::open(&mut rig, 40_000);
    assert_eq!(0, rig.host_sends(&talk.data(0, b"wicked")).len());
    rig.check();
}

#[test]
fn commit_that_is_refused_leaves_the_rules() {
    let mut rig = Rig::new(plan());
    let before = Talk::open(&mut rig, 40_000);
    let (snapshot, routes) = rig::snapshot(&Plan {
        snapshot: |snapshot| {
            others(snapshot);
            snapshot.interfaces.push(snapshot.interfaces[0].clone());
        },
        ..plan()
    });
    assert!(rig.plane.commit(snapshot, std::slice::from_ref(&routes)).is_err());
    rig.pass(OVER);
    let after = Talk::open(&mut rig, 40_001);
    for talk in [&before, &after] {
        assert_eq!(1, rig.host_sends(&talk.data(0, b"wicked")).len());
        assert_eq!(0, rig.host_sends(&talk.data(6, b"evil")).len());
    }
    assert_eq!(0, reopened(&rig));
    ledger(&mut rig);
}

#[test]
fn shard_that_moves_before_it_has_followed_follows_where_it_is() {
    use sluice_engine::worker::request::{Reply, Request};
    let mut rig = Rig::new(Plan { workers: 2, ..plan() });
    let talk = Talk::open(&mut rig, 40_000);
    assert_eq!(1, rig.host_sends(&talk.data(0, b"some ev")).len());
    for shard in 0..4 {
        let from = rig.plane.start_parameters().owners.of(shard).unwrap();
        let to = 1 - from;
        let moves = [
            (to, Request::Expect { shard }),
            (from, Request::StartRelease { shard, to }),
            (from, Request::Release),
        ];
        for (worker, request) in moves {
            assert!(matches!(rig.ask(worker.into(), request), Reply::Done));
        }
        if shard == 0 {
            commit(&mut rig, others).unwrap();
        }
        while rig.workers.iter().any(|worker| worker.is_answering()) {
            rig.workers.iter_mut().for_each(|worker| {
                worker.round(rig.now);
            });
        }
    }
    assert_eq!(0, rig.host_sends(&talk.data(7, b"il")).len());
    let after = Talk::open(&mut rig, 40_001);
    assert_eq!(0, rig.host_sends(&after.data(0, b"wicked")).len());
    assert_eq!(2, rig.drops("signature"));
    rig.check();
}

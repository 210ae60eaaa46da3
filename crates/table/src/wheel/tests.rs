use super::*;
use crate::flow::Part;
use crate::memory::Line;
use crate::reserve::Reserve;
use bytemuck::{Pod, Zeroable};
use proptest::prelude::*;
use sluice_wire::key::Direction;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C, align(64))]
struct Timed {
    keys: [u64; 2],
    due: Tick,
    checked: u64,
    links: Links,
    rest: [u64; 3],
}

impl Record for Timed {
    type Key = u64;

    fn key(&self, direction: Direction) -> u64 {
        self.keys[direction as usize]
    }

    fn matches(&self, key: &u64, direction: Direction) -> bool {
        self.keys[direction as usize] == *key
    }

    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

fn hash(key: u64) -> u64 {
    (key + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

fn memory(capacity: usize) -> Vec<Line> {
    vec![Line::ZERO; FlowTable::<Timed>::lines_for(capacity)]
}

fn insert(table: &mut FlowTable<'_, Timed>, number: u64) -> Option<RecordIndex> {
    let keys = [2 * number, 2 * number + 1];
    table
        .insert(
            hash(keys[0]),
            hash(keys[1]),
            Timed {
                keys,
                ..Timed::zeroed()
            },
        )
        .ok()
}

/// Callback that lets a record expire after its idle timeout.
fn due_by(now: Tick) -> impl FnMut(RecordIndex, &mut Timed) -> TimerAction {
    move |_, record| {
        record.checked += 1;
        if record.due <= now {
            TimerAction::Expire
        } else {
            TimerAction::Rearm(record.due)
        }
    }
}

#[test]
fn records_of_a_table_that_has_grown_expire_as_others() {
    let (mut home, mut rest) = (memory(3), [memory(4), memory(4)]);
    let parts = rest.iter_mut().map(|memory| Part::new(memory, 4).unwrap()).collect();
    let reserve = Reserve::new(parts).map(Arc::new).unwrap();
    let mut table = FlowTable::new(&mut home, 3).unwrap();
    table.share(reserve.clone());
    let mut wheel = Wheel::new(0);
    for number in 0..11 {
        let index = insert(&mut table, number).unwrap();
        table.get_mut(index).unwrap().due = 10 + number % 3;
        assert!(wheel.schedule(&mut table, index, 10 + number % 3));
    }
    assert_eq!((0, None), (reserve.available(), insert(&mut table, 11)));
    let mut ended = Vec::new();
    for now in 0..20 {
        let mut due = due_by(now);
        let mut silent = Vec::new();
        wheel.advance(&mut table, now, 64, |index, record| {
            let verdict = due(index, record);
            if verdict == TimerAction::Expire {
                silent.push((index, record.keys));
            }
            verdict
        });
        for (index, keys) in silent {
            ended.push((now, keys[0] / 2));
            assert!(table.remove(index, hash(keys[0]), hash(keys[1])).is_some());
        }
    }
    ended.sort_by_key(|&(now, number)| (number, now));
    let expected: Vec<_> = (0..11).map(|number| (10 + number % 3, number)).collect();
    assert_eq!((expected, 0, 2), (ended, table.len(), reserve.available()));
}

#[test]
fn advance_tick_by_tick_expires_each_record_at_its_tick() {
    let due_times: &[Tick] = if cfg!(miri) {
        &[1, 65, 200]
    } else {
        &[1, 2, 63, 64, 65, 127, 128, 4095, 4096, 4097, 262_144, 300_001]
    };
    let start = 1000;
    let mut memory = memory(due_times.len());
    let mut table = FlowTable::new(&mut memory, due_times.len()).unwrap();
    let mut wheel = Wheel::new(start);
    for (number, &due) in (0..).zip(due_times) {
        let index = insert(&mut table, number).unwrap();
        table.get_mut(index).unwrap().due = start + due;
        assert!(wheel.schedule(&mut table, index, start + due));
    }
    let mut expired = Vec::new();
    for now in start..=start + due_times[due_times.len() - 1] {
        let progress = wheel.advance(&mut table, now, u32::MAX, |index, record| {
            let verdict = due_by(now)(index, record);
            if verdict == TimerAction::Expire {
                expired.push(now - start);
            }
            verdict
        });
        assert!(progress.caught_up);
    }
    assert_eq!(due_times, expired);
    assert!(wheel.is_empty());
    table.scan(0, u32::MAX, |_, record| assert!(record.checked <= 5, "{record:?}"));
}

#[test]
fn advance_with_a_budget_carries_the_rest_over() {
    let mut memory = memory(10);
    let mut table = FlowTable::new(&mut memory, 10).unwrap();
    let mut wheel = Wheel::new(0);
    for number in 0..10 {
        let index = insert(&mut table, number).unwrap();
        assert!(wheel.schedule(&mut table, index, 5 + number % 2));
    }
    let steps: Vec<Progress> = (0..5)
        .map(|_| wheel.advance(&mut table, 1_000_000_000_000, 3, |_, _| TimerAction::Expire))
        .collect();
    let expected = [(3, false), (3, false), (3, false), (1, true), (0, true)];
    assert_eq!(
        expected
            .map(|(checked, caught_up)| Progress { checked, caught_up })
            .to_vec(),
        steps
    );
}

#[test]
fn rearm_in_the_past_is_asked_at_the_next_tick_not_for_ever() {
    let mut memory = memory(1);
    let mut table = FlowTable::new(&mut memory, 1).unwrap();
    let mut wheel = Wheel::new(0);
    let index = insert(&mut table, 0).unwrap();
    assert!(wheel.schedule(&mut table, index, 0));
    for now in [7, 7, 8] {
        let expected = u32::from(now == 8 || wheel.current == 0);
        let progress = wheel.advance(&mut table, now, 100, |_, _| TimerAction::Rearm(0));
        assert_eq!(
            Progress {
                checked: expected,
                caught_up: true
            },
            progress
        );
    }
}

#[test]
fn remove_of_a_scheduled_record_needs_the_wheel() {
    let mut memory = memory(2);
    let mut table = FlowTable::new(&mut memory, 2).unwrap();
    let mut wheel = Wheel::new(0);
    let index = insert(&mut table, 0).unwrap();
    assert!(wheel.schedule(&mut table, index, 10));
    assert!(table.remove(index, hash(0), hash(1)).is_none());
    assert!(wheel.remove(&mut table, index, hash(1), hash(0)).is_none());
    assert_eq!(1, wheel.len());
    assert!(wheel.remove(&mut table, index, hash(0), hash(1)).is_some());
    assert_eq!((0, 0), (wheel.len(), table.len()));
    assert!(!wheel.schedule(&mut table, index, 10));
    assert!(!wheel.cancel(&mut table, index));
}

#[derive(Clone, Debug)]
enum Step {
    Insert {
        due: Tick,
    },
    Reschedule {
        which: usize,
        due: Tick,
    },
    /// A packet arrives: the record is due later, but its schedule is unchanged.
    Touch {
        which: usize,
        later: Tick,
    },
    Cancel {
        which: usize,
    },
    Remove {
        which: usize,
    },
    Advance {
        by: Tick,
        budget: u32,
    },
}

fn span() -> impl Strategy<Value = Tick> {
    prop_oneof![0u64..70, 0u64..5000, 0u64..400_000, Just(1 << 22)]
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0usize..64;
    prop_oneof![
        3 => span().prop_map(|due| Step::Insert { due }),
        1 => (which.clone(), span()).prop_map(|(which, due)| Step::Reschedule { which, due }),
        2 => (which.clone(), span()).prop_map(|(which, later)| Step::Touch { which, later }),
        1 => which.clone().prop_map(|which| Step::Cancel { which }),
        1 => which.prop_map(|which| Step::Remove { which }),
        4 => (span(), prop_oneof![Just(u32::MAX), 0u32..6]).prop_map(|(by, budget)| Step::Advance { by, budget }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 400 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wheel_under_any_steps_expires_what_an_ordered_map_would(
        steps in prop::collection::vec(step(), 0..if cfg!(miri) { 30 } else { 300 })
    ) {
        let mut memory = memory(64);
        let mut table = FlowTable::new(&mut memory, 64).unwrap();
        let (mut wheel, mut now, mut number) = (Wheel::new(500), 500, 0);
        let mut oracle: BTreeMap<RecordIndex, Tick> = BTreeMap::new();
        for step in steps {
            let nth = |which: usize, table: &FlowTable<'_, Timed>| {
                let index = RecordIndex(which as u32);
                table.get(index).filter(|record| record.links().is_live()).map(|_| index)
            };
            match step {
                Step::Insert { due } => if let Some(index) = insert(&mut table, number) {
                    number += 1;
                    table.get_mut(index).unwrap().due = now + due;
                    prop_assert!(wheel.schedule(&mut table, index, now + due));
                    oracle.insert(index, now + due);
                },
                Step::Reschedule { which, due } => if let Some(index) = nth(which, &table) {
                    table.get_mut(index).unwrap().due = now + due;
                    prop_assert!(wheel.schedule(&mut table, index, now + due));
                    oracle.insert(index, now + due);
                },
                Step::Touch { which, later } => if let Some(due) = oracle.get_mut(&RecordIndex(which as u32)) {
                    *due = (*due).max(now + later);
                    table.get_mut(RecordIndex(which as u32)).unwrap().due = *due;
                },
                Step::Cancel { which } => if let Some(index) = nth(which, &table) {
                    prop_assert_eq!(oracle.remove(&index).is_some(), wheel.cancel(&mut table, index));
                },
                Step::Remove { which } => if let Some(index) = nth(which, &table) {
                    let keys = table.get(index).unwrap().keys;
                    prop_assert!(wheel.remove(&mut table, index, hash(keys[0]), hash(keys[1])).is_some());
                    oracle.remove(&index);
                },
                Step::Advance { by, budget } => {
                    now += by;
                    let mut expired = Vec::new();
                    let progress = wheel.advance(&mut table, now, budget, |index, record| {
                        let verdict = due_by(now)(index, record);
                        if verdict == TimerAction::Expire {
                            expired.push(index);
                        }
                        verdict
                    });
                    prop_assert!(progress.checked <= budget);
                    for index in expired {
                        let due = oracle.remove(&index);
                        prop_assert!(due.is_some_and(|due| due <= now), "{:?} expired", index);
                        let keys = table.get(index).unwrap().keys;
                        prop_assert!(table.remove(index, hash(keys[0]), hash(keys[1])).is_some());
                    }
                    if progress.caught_up {
                        // For a record that becomes due at this tick, the callback runs at the next tick at the latest.
                        prop_assert!(oracle.values().all(|&due| due + 1 > now));
                    }
                }
            }
            prop_assert_eq!(oracle.len(), wheel.len());
        }
    }
}

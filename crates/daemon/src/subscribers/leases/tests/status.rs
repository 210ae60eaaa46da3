use proptest::prelude::*;

use super::*;

fn apply(table: &mut Table, entry: Entry, now: u64) -> Vec<String> {
    let mut changes = Vec::new();
    table.apply(entry, now, &mut changes).expect("there is room");
    words(&changes)
}

fn expire(table: &mut Table, now: u64) -> Vec<String> {
    let mut changes = Vec::new();
    table.expire(now, &mut changes);
    words(&changes)
}

fn none() -> Vec<String> {
    Vec::new()
}

#[test]
fn lease_renewed_is_told_once_and_expires_later() {
    let mut table = Table::new(9);
    assert_eq!(vec!["+1=7"], apply(&mut table, Entry::Leased(leased(1, 7, 1000)), 1000));
    assert_eq!(vec!["~1=7"], apply(&mut table, Entry::Leased(leased(1, 7, 1030)), 1030));
    assert_eq!(none(), apply(&mut table, Entry::Leased(leased(1, 7, 1030)), 1031));
    assert_eq!(none(), expire(&mut table, 1089));
    assert_eq!(vec!["-1 expired"], expire(&mut table, 1090));
    assert!(table.is_empty());
}

#[test]
fn lease_cut_short_expires_at_its_new_end() {
    let mut table = Table::new(9);
    apply(&mut table, Entry::Leased(leased(1, 7, 1000)), 1000);
    let short = Lease {
        expires: Expiry::At(1020),
        ..leased(1, 7, 1010)
    };
    assert_eq!(vec!["~1=7"], apply(&mut table, Entry::Leased(short), 1010));
    assert_eq!(none(), expire(&mut table, 1019));
    assert_eq!(vec!["-1 expired"], expire(&mut table, 1020));
    assert_eq!(none(), expire(&mut table, 2000));
}

#[test]
fn lease_without_end_stays_until_it_gets_one() {
    let mut table = Table::new(9);
    apply(&mut table, Entry::Leased(leased(1, 7, 1000)), 1000);
    let forever = Lease {
        expires: Expiry::Never,
        ..leased(1, 7, 1001)
    };
    assert_eq!(vec!["~1=7"], apply(&mut table, Entry::Leased(forever), 1001));
    assert_eq!(none(), expire(&mut table, u64::MAX));
    assert_eq!(vec!["~1=7"], apply(&mut table, Entry::Leased(leased(1, 7, 5000)), 5000));
    assert_eq!(vec!["-1 expired"], expire(&mut table, 5060));
}

#[test]
fn lease_of_another_terminal_is_a_change() {
    let mut table = Table::new(9);
    apply(&mut table, Entry::Leased(leased(1, 7, 1000)), 1000);
    assert_eq!(
        vec!["1=7>8"],
        apply(&mut table, Entry::Leased(leased(1, 8, 1010)), 1010)
    );
    // The previous lease had already expired.
    assert_eq!(
        vec!["-1 expired", "+1=9"],
        apply(&mut table, Entry::Leased(leased(1, 9, 2000)), 2000)
    );
}

#[test]
fn lease_renewed_past_the_relay_stays_where_it_was() {
    let circuit = |text: &[u8]| {
        let circuit = text.into();
        Some(Box::new(RelayInformation {
            circuit,
            ..Default::default()
        }))
    };
    let (mut table, mut at) = (Table::new(9), leased(1, 7, 1000));
    at.relay = circuit(b"one");
    apply(&mut table, Entry::Leased(at.clone()), 1000);
    assert_eq!(vec!["~1=7"], apply(&mut table, Entry::Leased(leased(1, 7, 1010)), 1010));
    assert_eq!(circuit(b"one"), table.get(address(1)).unwrap().relay);
    at.relay = circuit(b"two");
    assert_eq!(vec!["1=7>7"], apply(&mut table, Entry::Leased(at), 1020));
    // A different terminal may be at a different location.
    assert_eq!(
        vec!["1=7>8"],
        apply(&mut table, Entry::Leased(leased(1, 8, 1030)), 1030)
    );
    assert_eq!(None, table.get(address(1)).unwrap().relay);
}

#[test]
fn lease_that_is_over_when_it_is_read_is_none() {
    let mut table = Table::new(9);
    assert_eq!(none(), apply(&mut table, Entry::Leased(leased(1, 7, 1000)), 1060));
    apply(&mut table, Entry::Leased(leased(1, 7, 1050)), 1060);
    assert_eq!(
        vec!["-1 expired"],
        apply(&mut table, Entry::Leased(leased(1, 7, 1000)), 1060)
    );
    assert!(table.is_empty());
}

#[test]
fn free_address_is_lost_for_its_reason() {
    for why in [Lost::Expired, Lost::Released, Lost::Declined] {
        let mut table = Table::new(9);
        let (address, renewed) = (address(1), 1000);
        let free = Entry::Free { address, renewed, why };
        assert_eq!(none(), apply(&mut table, free.clone(), 1000));
        apply(&mut table, Entry::Leased(leased(1, 7, 1000)), 1000);
        assert_eq!(vec![format!("-1 {}", why.name())], apply(&mut table, free, 1000));
        assert_eq!(none(), expire(&mut table, 9999));
    }
}

#[test]
fn table_that_is_full_refuses_the_new_and_keeps_the_old() {
    let (mut table, mut changes) = (Table::new(2), Vec::new());
    for last in 1..=2 {
        apply(&mut table, Entry::Leased(leased(last, last, 1000)), 1000);
    }
    assert_eq!(
        Err(Reason::Full),
        table.apply(Entry::Leased(leased(3, 3, 1000)), 1000, &mut changes)
    );
    assert_eq!((2, 0), (table.len(), changes.len()));
    assert_eq!(
        vec!["1=1>4"],
        apply(&mut table, Entry::Leased(leased(1, 4, 1001)), 1001)
    );
}

#[test]
fn leases_that_come_and_go_leave_nothing_behind() {
    let mut table = Table::new(9);
    for _ in 0..10_000 {
        apply(&mut table, Entry::Leased(leased(1, 7, 1000)), 1000);
        let (address, renewed, why) = (address(1), 1000, Lost::Released);
        apply(&mut table, Entry::Free { address, renewed, why }, 1000);
    }
    assert!(table.waiting() <= 2 * table.len() + 1025, "{}", table.waiting());
}

proptest! {
    /// Reference model: the last entry of each address, without a queue of expiry times.
    #[test]
    fn table_is_what_was_said_last_and_is_not_over(
        said in proptest::collection::vec((0..6_u8, 0..4_u8, 1..80_u64, 0..8_u8), 1..80),
    ) {
        let (mut table, mut expected, mut now) = (Table::new(99), std::collections::BTreeMap::new(), 1000);
        let mut mirror = std::collections::BTreeMap::new();
        for (last, terminal, length, how) in said {
            let mut changes = Vec::new();
            now += u64::from(how) * 5;
            table.expire(now, &mut changes);
            let lease = Lease { expires: Expiry::At(now + length), ..leased(last, terminal, now) };
            let entry = match how {
                0 => Entry::Free { address: address(last), renewed: now, why: Lost::Released },
                _ => Entry::Leased(lease.clone()),
            };
            table.apply(entry, now, &mut changes).expect("there is room");
            match how {
                0 => drop(expected.remove(&address(last))),
                _ => drop(expected.insert(address(last), lease)),
            }
            expected.retain(|_, lease: &mut Lease| !lease.expires.is_past(now));
            // A receiver of the changes can reconstruct the table.
            for change in changes {
                match change {
                    Change::Gained(lease) => prop_assert!(mirror.insert(lease.address, lease.clone()).is_none()),
                    Change::Changed { was, now } => {
                        prop_assert_eq!(Some(was), mirror.insert(now.address, now));
                    }
                    Change::Renewed(lease) => prop_assert!(mirror.insert(lease.address, lease).is_some()),
                    Change::Lost { was, .. } => {
                        let mirrored = mirror.remove(&was.address);
                        prop_assert_eq!(Some(was), mirrored);
                    }
                }
            }
            prop_assert_eq!(expected.values().cloned().collect::<Vec<_>>(), sorted(&table));
            let mirrored: Vec<Lease> = mirror.values().map(|lease| Lease::clone(lease)).collect();
            prop_assert_eq!(mirrored, sorted(&table));
        }
    }
}

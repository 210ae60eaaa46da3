//! Tests of the neighbour state machine with a virtual clock.

use std::sync::Arc;

use proptest::prelude::*;

use sluice_route::neighbour::{
    Action, Advertisement, Conflict, Neighbour, NeighbourIndex, NeighbourMessage, NeighbourWriter, Neighbours,
    Resolution, State, Timing,
};
use sluice_route::{Address, Reason, SECOND, Time};

const HOST: Address = Address::V4(0x0a00_0005);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 5];
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 6];
const REPLY: NeighbourMessage = NeighbourMessage::Advertisement(Advertisement {
    solicited: true,
    overrides: true,
});
const GRATUITOUS: NeighbourMessage = NeighbourMessage::Advertisement(Advertisement {
    solicited: false,
    overrides: true,
});

struct Bench {
    writer: NeighbourWriter,
    now: Time,
    actions: Vec<Action>,
}

impl Bench {
    fn new(capacity: usize, timing: Timing) -> Self {
        let table = Arc::new(Neighbours::new(capacity, [7, 11]));
        Self {
            writer: NeighbourWriter::new(table, timing, 0),
            now: 0,
            actions: Vec::new(),
        }
    }

    fn usual() -> Self {
        Self::new(16, Timing::default())
    }

    fn resolve(&mut self, address: Address) -> Resolution {
        self.writer
            .resolve(1, address, self.now, &mut |action| self.actions.push(action))
    }

    fn hear(&mut self, address: Address, mac: [u8; 6], heard: NeighbourMessage) {
        self.writer
            .receive(1, address, Some(mac), heard, true, self.now, &mut |action| {
                self.actions.push(action)
            });
    }

    /// Advances the time in steps of 100 ms, and returns the actions.
    fn pass(&mut self, time: Time) -> Vec<Action> {
        self.actions.clear();
        let end = self.now + time;
        while self.now < end {
            self.now += SECOND / 10;
            while self
                .writer
                .advance(self.now, 4, &mut |action| self.actions.push(action))
                == 4
            {}
        }
        self.actions.clone()
    }

    fn entry(&self, address: Address) -> Option<Neighbour> {
        self.writer.table().resolve(1, address)
    }

    fn state(&self) -> State {
        self.entry(HOST).map_or(State::Free, |entry| entry.state)
    }

    fn reachable() -> (Self, NeighbourIndex) {
        let mut bench = Self::usual();
        let Resolution::Pending(index) = bench.resolve(HOST) else {
            panic!("not pending")
        };
        bench.hear(HOST, MAC, REPLY);
        (bench, index)
    }
}

#[test]
fn unknown_neighbour_that_answers_is_resolved() {
    let mut bench = Bench::usual();
    let Resolution::Pending(index) = bench.resolve(HOST) else {
        panic!("not pending")
    };
    assert_eq!(vec![Action::Request { index }], bench.actions);
    assert_eq!(None, bench.writer.table().mac(index));
    bench.hear(HOST, MAC, REPLY);
    assert_eq!(Some(&Action::Resolved { index }), bench.actions.last());
    assert_eq!(Resolution::Known(index), bench.resolve(HOST));
    assert_eq!(Some(MAC), bench.writer.table().mac(index));
    assert_eq!(State::Reachable, bench.state());
    assert_eq!(0, bench.writer.unresolved());
}

#[test]
fn silent_neighbour_is_asked_thrice_then_fails_and_is_forgotten() {
    let mut bench = Bench::usual();
    let Resolution::Pending(index) = bench.resolve(HOST) else {
        panic!("not pending")
    };
    let request = Action::Request { index };
    assert_eq!(vec![request, request, Action::Failed { index }], bench.pass(3 * SECOND));
    assert_eq!(Resolution::Refused(Reason::NeighbourUnresolved), bench.resolve(HOST));
    // The entry was used in the failed state, so it is resolved again after the failed state expires.
    assert_eq!(Some(&request), bench.pass(3 * SECOND).first());
    bench.pass(10 * SECOND);
    assert_eq!(State::Free, bench.state());
    assert_eq!(0, bench.writer.len());
    assert_eq!(0, bench.writer.unresolved());
}

#[test]
fn unused_neighbour_goes_stale_and_is_not_probed() {
    let (mut bench, _) = Bench::reachable();
    assert_eq!(Vec::<Action>::new(), bench.pass(60 * SECOND));
    assert_eq!(State::Stale, bench.state());
    bench.pass(1300 * SECOND);
    assert_eq!(State::Free, bench.state());
}

#[test]
fn used_stale_neighbour_is_probed_and_confirmed_or_fails() {
    let (mut bench, index) = Bench::reachable();
    bench.pass(60 * SECOND);
    assert_eq!(Some(MAC), bench.writer.table().mac_for_sending(index));
    assert_eq!(Some(&Action::Probe { index }), bench.pass(5 * SECOND).first());
    assert_eq!(Some(MAC), bench.writer.table().mac(index));
    bench.hear(HOST, MAC, REPLY);
    assert_eq!(State::Reachable, bench.state());
    bench.pass(60 * SECOND);
    bench.writer.table().mac_for_sending(index);
    let probe = Action::Probe { index };
    assert_eq!(
        vec![probe, probe, probe, Action::Failed { index }],
        bench.pass(8 * SECOND)
    );
    assert_eq!(None, bench.writer.table().mac(index));
}

#[test]
fn gratuitous_announcement_updates_but_never_creates() {
    let mut bench = Bench::usual();
    bench.hear(HOST, MAC, GRATUITOUS);
    bench.hear(HOST, MAC, REPLY);
    assert_eq!(0, bench.writer.len());
    let (mut bench, index) = Bench::reachable();
    bench.hear(HOST, OTHER, GRATUITOUS);
    assert_eq!(Some(OTHER), bench.writer.table().mac(index));
    assert_eq!(State::Stale, bench.state());
}

#[test]
fn advertisement_without_override_leaves_the_mac() {
    let (mut bench, index) = Bench::reachable();
    bench.hear(
        HOST,
        OTHER,
        NeighbourMessage::Advertisement(Advertisement {
            solicited: true,
            overrides: false,
        }),
    );
    assert_eq!(Some(MAC), bench.writer.table().mac(index));
    assert_eq!(State::Stale, bench.state());
}

#[test]
fn solicitation_from_the_link_makes_a_stale_entry() {
    let mut bench = Bench::usual();
    bench.hear(HOST, MAC, NeighbourMessage::Solicitation);
    assert_eq!(State::Stale, bench.state());
    assert_eq!(MAC, bench.entry(HOST).unwrap().mac);
}

#[test]
fn nothing_is_learned_off_link_or_of_a_group_mac() {
    let mut bench = Bench::usual();
    bench.writer.receive(
        1,
        HOST,
        Some(MAC),
        NeighbourMessage::Solicitation,
        false,
        0,
        &mut |_| panic!("acted"),
    );
    bench.hear(HOST, [0xff; 6], NeighbourMessage::Solicitation);
    bench.hear(HOST, [0; 6], NeighbourMessage::Solicitation);
    bench.hear(Address::V4(0xe000_0001), MAC, NeighbourMessage::Solicitation);
    assert_eq!(0, bench.writer.len());
}

#[test]
fn scan_of_an_empty_network_displaces_no_neighbour_that_answers() {
    let timing = Timing {
        unresolved: 8,
        ..Timing::default()
    };
    let mut bench = Bench::new(32, timing);
    bench.resolve(HOST);
    bench.hear(HOST, MAC, REPLY);
    bench.actions.clear();
    for address in 0..5000u32 {
        assert!(matches!(
            bench.resolve(Address::V4(0x0a01_0000 + address)),
            Resolution::Pending(_)
        ));
        assert!(bench.writer.unresolved() <= 8);
    }
    assert_eq!(9, bench.writer.len());
    assert_eq!(State::Reachable, bench.state());
    // The maximum burst is the number of requests in a tenth of a second. The first host has used one request.
    let requests = bench
        .actions
        .iter()
        .filter(|action| matches!(action, Action::Request { .. }))
        .count();
    assert_eq!(99, requests);
    bench.pass(30 * SECOND);
    assert_eq!(1, bench.writer.len());
}

#[test]
fn full_table_refuses_the_new() {
    let mut bench = Bench::new(2, Timing::default());
    for last in 1..=2 {
        bench.resolve(Address::V4(0x0a00_0000 + last));
        bench.hear(Address::V4(0x0a00_0000 + last), MAC, REPLY);
    }
    assert_eq!(
        Resolution::Refused(Reason::NeighbourTableFull),
        bench.resolve(Address::V4(0x0a00_0003))
    );
}

#[test]
fn held_entry_outlives_failure_and_removal_in_its_slot() {
    let (mut bench, index) = Bench::reachable();
    assert!(bench.writer.table().hold(index, 1, HOST));
    let now = bench.now;
    bench.writer.remove(index, now, &mut |_| {});
    assert_eq!(None, bench.writer.table().mac(index));
    bench.pass(100 * SECOND);
    assert_eq!(Some(index), bench.writer.table().find(1, HOST));
    // A new use of the entry starts resolution in the unchanged slot.
    bench.writer.table().mac_for_sending(index);
    assert_eq!(Some(&Action::Request { index }), bench.pass(4 * SECOND).first());
    bench.hear(HOST, OTHER, REPLY);
    assert_eq!(Some(OTHER), bench.writer.table().mac(index));
    bench.writer.table().release(index);
    bench.pass(1300 * SECOND);
    assert_eq!(0, bench.writer.len());
}

#[test]
fn permanent_neighbour_is_not_overridden_and_never_ages() {
    let mut bench = Bench::usual();
    let index = bench.writer.set_permanent(1, HOST, MAC, 0, &mut |_| {}).unwrap();
    bench.hear(HOST, OTHER, REPLY);
    bench.hear(HOST, OTHER, NeighbourMessage::Solicitation);
    bench.pass(2000 * SECOND);
    assert_eq!(Some(MAC), bench.writer.table().mac(index));
    assert_eq!(State::Permanent, bench.state());
}

proptest! {
    #[test]
    fn keeper_random_events_keep_the_bounds_and_end_empty(
        events in proptest::collection::vec((0u8..8, 1u32..12, 0u8..3, 0u64..8_000_000_000), 1..300)
    ) {
        let timing = Timing { unresolved: 4, requests_per_second: 5, ..Timing::default() };
        let mut bench = Bench::new(8, timing);
        let table = bench.writer.table().clone();
        let mut held = Vec::new();
        for (kind, host, mac, time) in events {
            let address = Address::V4(0x0a00_0000 + host);
            let mac = [2, 0, 0, 0, 0, mac];
            match kind {
                0 | 1 => {
                    let known = matches!(bench.resolve(address), Resolution::Known(_));
                    prop_assert_eq!(known, bench.entry(address).is_some_and(|entry| entry.state.has_mac()));
                }
                2 => bench.hear(address, mac, REPLY),
                3 => bench.hear(address, mac, GRATUITOUS),
                4 => bench.hear(address, mac, NeighbourMessage::Solicitation),
                5 => {
                    let found = table.find(1, address);
                    held.extend(found.filter(|index| table.hold(*index, 1, address)).map(|index| (index, address)));
                }
                6 => {
                    if let Some((index, _)) = held.pop() {
                        table.release(index);
                    }
                }
                _ => {
                    if let (Some(index), 0) = (table.find(1, address), mac[5]) {
                        let now = bench.now;
                        bench.writer.remove(index, now, &mut |_| {});
                    }
                }
            }
            bench.now += time;
            let now = bench.now;
            bench.writer.advance(now, 3, &mut |_| {});
            let entries: Vec<_> = (0..8).filter_map(|slot| table.snapshot(NeighbourIndex(slot))).collect();
            prop_assert_eq!(entries.len(), bench.writer.len());
            let unresolved = entries.iter().filter(|entry| !entry.state.has_mac()).count();
            prop_assert_eq!(unresolved, bench.writer.unresolved());
            for entry in &entries {
                prop_assert_eq!(Some(entry.index), table.find(entry.interface, entry.address));
            }
            for (index, address) in &held {
                prop_assert_eq!(Some(*address), table.snapshot(*index).map(|entry| entry.address));
            }
        }
        for (index, _) in held {
            table.release(index);
        }
        bench.pass(1400 * SECOND);
        prop_assert_eq!(0, bench.writer.len());
        prop_assert_eq!(None, bench.writer.next_deadline());
    }
}

#[test]
fn link_of_two_ends_has_one_neighbour_which_is_known_whoever_is_asked_for() {
    let mut bench = Bench::usual();
    bench.writer.table().set_pair(1, true);
    let Resolution::Known(index) = bench.resolve(HOST) else {
        panic!("not known at once")
    };
    for other in [Address::V4(0x0a00_0006), Address::V6(1 << 64 | 7), Address::V4(0)] {
        assert_eq!(Resolution::Known(index), bench.resolve(other));
        assert!(bench.writer.table().hold(index, 1, other));
    }
    // On a point-to-point link, nothing is learned from ARP or neighbour discovery.
    bench.hear(HOST, MAC, NeighbourMessage::Solicitation);
    bench.hear(HOST, MAC, GRATUITOUS);
    assert_eq!(
        (1, State::Permanent),
        (bench.writer.len(), bench.writer.table().state(index))
    );
    // Other interfaces are not affected.
    assert_eq!(None, bench.writer.table().find(2, HOST));
    bench.writer.table().set_pair(1, false);
    assert_eq!(None, bench.writer.table().find(1, HOST));
}

#[test]
fn claim_to_an_address_that_another_has_is_told_of() {
    let (mut bench, _) = Bench::reachable();
    let conflicts = bench.writer.conflicts().clone();
    assert_eq!((0, None), (conflicts.count(), conflicts.take()));
    // Repeated conflicts and announcements without a change don't count as conflicts.
    bench.hear(HOST, MAC, GRATUITOUS);
    bench.hear(Address::V4(0x0a00_0009), OTHER, NeighbourMessage::Solicitation);
    assert_eq!(0, conflicts.count());
    bench.hear(HOST, OTHER, GRATUITOUS);
    let expected = Conflict {
        interface: 1,
        address: HOST,
        mac: OTHER,
        of: Some(MAC),
    };
    assert_eq!((1, Some(expected)), (conflicts.count(), conflicts.take()));
    // A permanent neighbour is not changed.
    let now = bench.now;
    bench.writer.set_permanent(1, HOST, MAC, now, &mut |_| {}).unwrap();
    for heard in [GRATUITOUS, REPLY, NeighbourMessage::Solicitation] {
        bench.hear(HOST, OTHER, heard);
        assert_eq!(Some(expected), conflicts.take());
    }
    assert_eq!(
        Some((State::Permanent, MAC)),
        bench.entry(HOST).map(|entry| (entry.state, entry.mac))
    );
    // The number of conflicts in the queue is limited.
    for _ in 0..1000 {
        bench.hear(HOST, OTHER, GRATUITOUS);
    }
    assert_eq!(1004, conflicts.count());
    assert!(std::iter::from_fn(|| conflicts.take()).count() <= 64);
}

fn quotas(bench: &mut Bench, interfaces: usize) {
    bench
        .writer
        .set_quotas(std::iter::repeat_n(0, interfaces), std::iter::once(u32::MAX));
}

#[test]
fn one_mac_cannot_say_to_be_more_neighbours_than_hosts_have_addresses() {
    let mut bench = Bench::new(1024, Timing::default());
    let address = |number: u32| Address::V4(0x0a01_0000 + number);
    for number in 0..500 {
        bench.hear(address(number), OTHER, NeighbourMessage::Solicitation);
    }
    assert_eq!(64, bench.writer.len());
    // The table still learns neighbours with other MACs, and hosts that answer a request.
    bench.hear(address(501), MAC, NeighbourMessage::Solicitation);
    assert!(matches!(bench.resolve(address(499)), Resolution::Pending(_)));
    bench.hear(address(499), OTHER, REPLY);
    assert_eq!(
        (66, Some(State::Reachable)),
        (bench.writer.len(), bench.entry(address(499)).map(|entry| entry.state))
    );
    // Confirmed entries don't count against the quota of unconfirmed entries.
    let index = bench.writer.table().find(1, address(0)).unwrap();
    let now = bench.now;
    bench.writer.confirm(index, now);
    bench.hear(address(502), OTHER, NeighbourMessage::Solicitation);
    assert_eq!(67, bench.writer.len());
    bench.pass(1400 * SECOND);
    bench.hear(address(503), OTHER, NeighbourMessage::Solicitation);
    assert!(bench.entry(address(503)).is_some());
}

#[test]
fn one_interface_does_not_fill_the_table_with_what_nobody_has_confirmed() {
    for interfaces in [1, 2] {
        let mut bench = Bench::new(64, Timing::default());
        quotas(&mut bench, interfaces);
        for number in 0..200u8 {
            bench.hear(
                Address::V4(0x0a01_0000 + u32::from(number)),
                [2, 0, 0, 0, 1, number],
                NeighbourMessage::Solicitation,
            );
        }
        // A single interface may use the whole table. The newest entries are kept.
        assert_eq!(if interfaces == 1 { 64 } else { 32 }, bench.writer.len());
        assert!(bench.entry(Address::V4(0x0a01_0000 + 199)).is_some());
    }
}

#[test]
fn one_interface_does_not_have_all_that_is_asked_for() {
    let mut bench = Bench::new(4096, Timing::default());
    quotas(&mut bench, 2);
    for number in 0..2000 {
        bench.resolve(Address::V4(0x0a01_0000 + number));
    }
    assert_eq!(Timing::default().unresolved / 2, bench.writer.unresolved());
}

//! Tests of rules with conditions outside of the matcher: the results equal those of a linear evaluation.

use crate::drawn;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};

use proptest::collection::vec;
use proptest::prelude::*;
use sluice_filter::{
    Action, AddressSet, CompiledRule, Conditions, Counters, DecidedBy, Element, ElementSet, Field, FilterResult,
    Filters, Header, ListSearch, MacCondition, Mark, MarkCondition, MatcherKind, Membership, Range, Rule,
    SessionMarking, Settings, SharedSet, TrafficClass, Verdict,
};

const LAST: u32 = 6;

fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

/// A packet: its addresses, and the last byte of each MAC address if it has an Ethernet header.
#[derive(Clone, Copy, Debug)]
struct Packet {
    source: u32,
    destination: u32,
    macs: Option<[u8; 2]>,
    /// Mark of the session.
    mark: u32,
}

impl Packet {
    fn header(&self, filters: &Filters) -> Header<u32> {
        let header = Header::new(self.source, self.destination).with_mark(self.mark);
        self.macs.map_or(header, |[source, destination]| {
            let number = |number| filters.stations.number(mac(number));
            header
                .with(Field::SourceMac, number(source))
                .with(Field::DestinationMac, number(destination))
        })
    }
}

fn any_packet() -> impl Strategy<Value = Packet> {
    let macs = proptest::option::of([0u8..6, 0u8..6]);
    (0..=LAST, 0..=LAST, macs, 0u32..4).prop_map(|(source, destination, macs, mark)| Packet {
        source,
        destination,
        macs,
        mark,
    })
}

fn any_macs() -> impl Strategy<Value = MacCondition> {
    prop_oneof![
        2 => Just(MacCondition::default()),
        1 => (any::<bool>(), vec(0u8..5, 1..3)).prop_map(|(not, of)| MacCondition { not, of: of.into_iter().map(mac).collect() }),
    ]
}

fn any_mark() -> impl Strategy<Value = Mark> {
    (0u32..8, 0u32..8).prop_map(|(value, mask)| Mark {
        value: value & mask,
        mask,
    })
}

/// The addresses in each set.
const SETS: [&[u32]; 3] = [&[], &[1, 4], &[0, 1, 2, 6]];

fn sets() -> &'static [Arc<ElementSet>; 3] {
    static SHARED: OnceLock<[Arc<ElementSet>; 3]> = OnceLock::new();
    SHARED.get_or_init(|| {
        SETS.map(|addresses| {
            let set = AddressSet::new(8, None);
            for &address in addresses {
                set.add(ip(address), None, 0).unwrap();
            }
            Arc::new(set.into())
        })
    })
}

fn ip(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(number).into()
}

fn any_membership() -> impl Strategy<Value = Option<Membership>> {
    let some = (any::<bool>(), 0usize..3).prop_map(|(not, set)| {
        let set = SharedSet(sets()[set].clone());
        Some(Membership { not, set })
    });
    prop_oneof![2 => Just(None), 1 => some]
}

fn is_member(asked: &Option<Membership>, address: u32) -> bool {
    let Some(Membership { not, set }) = asked else {
        return true;
    };
    let number = sets().iter().position(|other| Arc::ptr_eq(other, &set.0)).unwrap();
    SETS[number].contains(&address) != *not
}

fn any_written() -> impl Strategy<Value = CompiledRule> {
    let action = prop_oneof![
        2 => Just(Action::Decide(Verdict::Accept)),
        1 => Just(Action::Decide(Verdict::AcceptUntracked)),
        2 => Just(Action::Decide(Verdict::Drop)),
        1 => Just(Action::Count),
        2 => any_mark().prop_map(Action::SetMark),
        1 => (0u8..64).prop_map(Action::SetDscp),
        1 => (0u8..4).prop_map(Action::SetEcn),
    ];
    let mark = proptest::option::of((any::<bool>(), any_mark()).prop_map(|(not, mark)| MarkCondition { not, mark }));
    let hyperrectangles = vec((drawn::any_range(LAST), drawn::any_range(LAST)), 1..3);
    let sets = [any_membership(), any_membership()];
    (action, hyperrectangles, [any_macs(), any_macs()], mark, sets).prop_map(
        |(action, hyperrectangles, macs, mark, sets)| {
            let range = |(first, last)| Range { first, last };
            let one = |&(source, destination): &((u32, u32), (u32, u32))| {
                Rule::any().between(range(source), range(destination)).unwrap()
            };
            CompiledRule {
                action,
                v4: hyperrectangles.iter().map(one).collect(),
                v6: Vec::new(),
                applications: Vec::new(),
                conditions: Conditions {
                    macs,
                    mark,
                    sets,
                    port_sets: Default::default(),
                    adds_to: None,
                },
            }
        },
    )
}

fn names(macs: &MacCondition, own: Option<u8>) -> bool {
    macs.of.is_empty() || own.is_some_and(|own| macs.of.contains(&mac(own)) != macs.not)
}

/// Expected result for a packet, with the matching rules before the deciding rule and the marking that they set.
fn read(rules: &[CompiledRule], packet: &Packet) -> (Vec<u32>, FilterResult, SessionMarking) {
    let (mut before, mut own, mut class) = (Vec::new(), packet.mark, TrafficClass::ANY);
    for (place, rule) in (0..).zip(rules) {
        let within = rule
            .v4
            .iter()
            .any(|one| one.source.contains(packet.source) && one.destination.contains(packet.destination));
        let macs = [0, 1].map(|end: usize| names(&rule.conditions.macs[end], packet.macs.map(|macs| macs[end])));
        let marked = match rule.conditions.mark {
            Some(MarkCondition { not: false, mark }) => own & mark.mask == mark.value,
            Some(MarkCondition { not: true, mark }) => own & mark.mask != mark.value,
            None => true,
        };
        let [from, to] = &rule.conditions.sets;
        let are_members = is_member(from, packet.source) && is_member(to, packet.destination);
        if !within || macs.contains(&false) || !marked || !are_members {
            continue;
        }
        if let Action::SetMark(mark) = rule.action {
            // Set the mark bit by bit, as an independent implementation.
            for bit in (0..32).filter(|bit| mark.mask >> bit & 1 != 0) {
                own = own & !(1 << bit) | mark.value & 1 << bit;
            }
        }
        match rule.action {
            Action::SetDscp(set) => {
                let (value, mask) = class.parts();
                class = TrafficClass::new(set << 2 | value & 3, 0xfc | mask & 3);
                before.push(place);
            }
            Action::SetEcn(set) => {
                let (value, mask) = class.parts();
                class = TrafficClass::new(set | value & 0xfc, 3 | mask & 0xfc);
                before.push(place);
            }
            Action::Decide(verdict) => {
                let by = DecidedBy::Rule(place);
                return (
                    before,
                    FilterResult { verdict, by },
                    SessionMarking { mark: own, class },
                );
            }
            _ => before.push(place),
        }
    }
    (before, FilterResult::PASS, SessionMarking { mark: own, class })
}

fn filters(rules: &[CompiledRule], kind: MatcherKind) -> Filters {
    let settings = Settings {
        kind,
        default: Verdict::Accept,
        sessions: true,
        workers: 1,
    };
    Filters::new(rules, &settings, Counters::new(rules.len())).unwrap()
}

proptest! {
    #[test]
    fn rules_with_conditions_are_found_by_every_matcher(
        rules in vec(any_written(), 0..12),
        packets in vec(any_packet(), 1..40),
    ) {
        let max = 64 << 20;
        let kinds = [MatcherKind::Best, MatcherKind::Linear, MatcherKind::Trie { max }, MatcherKind::CachedTrie { max, entries: 7, probe: ListSearch::InOrder }];
        for kind in kinds {
            let filters = filters(&rules, kind);
            for packet in &packets {
                let header = packet.header(&filters);
                let (before, fate) = filters.v4.explain(&header);
                let mut fates = [FilterResult::PASS];
                let mut own = SessionMarking { mark: packet.mark, class: TrafficClass::ANY };
                filters.v4.decide_marking(&[header], &mut fates, &filters.counters, (0, 0), |_, set| own = set);
                prop_assert_eq!(read(&rules, packet), (before, fate, own), "{:?} {:?}", kind, packet);
                prop_assert_eq!([fate], fates);
            }
        }
    }
}

#[test]
fn rule_that_adds_to_a_set_decides_about_the_next_packet_of_that_source() {
    let set: Arc<ElementSet> = Arc::new(AddressSet::new(8, None).into());
    let every = |action, conditions| CompiledRule {
        action,
        v4: vec![Rule::any()],
        v6: Vec::new(),
        applications: Vec::new(),
        conditions,
    };
    let banned = Conditions {
        sets: [
            Some(Membership {
                not: false,
                set: SharedSet(set.clone()),
            }),
            None,
        ],
        ..Conditions::default()
    };
    let ban = Conditions {
        adds_to: Some(SharedSet(set.clone())),
        ..Conditions::default()
    };
    let rules = [every(Action::Decide(Verdict::Drop), banned), every(Action::Count, ban)];
    let filters = filters(&rules, MatcherKind::Best);
    let decided = |source| {
        let mut fates = [FilterResult::PASS];
        let header = [Header::new(source, 9)];
        filters.v4.decide(&header, &mut fates, &filters.counters, 0, 1);
        fates[0].verdict
    };
    // The evaluation of a hypothetical packet adds no element to a set.
    assert_eq!(Verdict::Accept, filters.v4.evaluate(&Header::new(7, 9)).verdict);
    assert!(set.is_empty());
    assert_eq!([Verdict::Accept, Verdict::Drop, Verdict::Drop], [7, 7, 7].map(decided));
    assert_eq!(Verdict::Accept, decided(8));
    assert_eq!(1, set.remove(Element::Network(ip(7), 32)));
    assert_eq!(Verdict::Accept, decided(7));
    assert_eq!(Some(3), filters.counters.of(1).map(|counter| counter.packets()));
}

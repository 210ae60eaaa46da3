//! Rules that ask for more than boxes say, against a reading of them one by one.

mod drawn;

use proptest::collection::vec;
use proptest::prelude::*;
use sluice_filter::{
    Action, By, Conditions, Counters, Fate, Field, Filters, Header, Kind, Macs, Probe, Range, Rule, Settings, Verdict,
    Written,
};

const LAST: u32 = 6;

fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

/// A packet: its addresses, and the last bytes of its MAC addresses where a frame brought it.
#[derive(Clone, Copy, Debug)]
struct Packet {
    source: u32,
    destination: u32,
    macs: Option<[u8; 2]>,
}

impl Packet {
    fn header(&self, filters: &Filters) -> Header<u32> {
        let header = Header::new(self.source, self.destination);
        self.macs.map_or(header, |[source, destination]| {
            let number = |number| filters.stations.number(mac(number));
            header
                .with(Field::SourceMac, number(source))
                .with(Field::DestinationMac, number(destination))
        })
    }
}

fn any_packet() -> impl Strategy<Value = Packet> {
    (0..=LAST, 0..=LAST, proptest::option::of([0u8..6, 0u8..6])).prop_map(|(source, destination, macs)| Packet {
        source,
        destination,
        macs,
    })
}

fn any_macs() -> impl Strategy<Value = Macs> {
    prop_oneof![
        2 => Just(Macs::default()),
        1 => (any::<bool>(), vec(0u8..5, 1..3)).prop_map(|(not, of)| Macs { not, of: of.into_iter().map(mac).collect() }),
    ]
}

fn any_written() -> impl Strategy<Value = Written> {
    let action = prop_oneof![
        2 => Just(Action::Decide(Verdict::Accept)),
        2 => Just(Action::Decide(Verdict::Drop)),
        1 => Just(Action::Count),
    ];
    let boxes = vec((drawn::any_range(LAST), drawn::any_range(LAST)), 1..3);
    (action, boxes, [any_macs(), any_macs()]).prop_map(|(action, boxes, macs)| {
        let range = |(first, last)| Range { first, last };
        let one = |&(source, destination): &((u32, u32), (u32, u32))| {
            Rule::any().between(range(source), range(destination)).unwrap()
        };
        Written {
            action,
            four: boxes.iter().map(one).collect(),
            six: Vec::new(),
            applications: Vec::new(),
            conditions: Conditions { macs },
        }
    })
}

fn names(macs: &Macs, own: Option<u8>) -> bool {
    macs.of.is_empty() || own.is_some_and(|own| macs.of.contains(&mac(own)) != macs.not)
}

/// The fate of a packet, and the rules that go on before.
fn read(rules: &[Written], packet: &Packet) -> (Vec<u32>, Fate) {
    let mut before = Vec::new();
    for (place, rule) in (0..).zip(rules) {
        let within = rule
            .four
            .iter()
            .any(|one| one.source.has(packet.source) && one.destination.has(packet.destination));
        let macs = [0, 1].map(|end: usize| names(&rule.conditions.macs[end], packet.macs.map(|macs| macs[end])));
        if !within || macs.contains(&false) {
            continue;
        }
        match rule.action {
            Action::Decide(verdict) => {
                let by = By::Rule(place);
                return (before, Fate { verdict, by });
            }
            _ => before.push(place),
        }
    }
    (before, Fate::PASS)
}

fn filters(rules: &[Written], kind: Kind) -> Filters {
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
        let most = 64 << 20;
        let kinds = [Kind::Best, Kind::Linear, Kind::Trie { most }, Kind::CachedTrie { most, entries: 7, probe: Probe::InOrder }];
        for kind in kinds {
            let filters = filters(&rules, kind);
            for packet in &packets {
                let found = filters.four.explain(&packet.header(&filters));
                prop_assert_eq!(read(&rules, packet), found, "{:?} {:?}", kind, packet);
            }
        }
    }
}

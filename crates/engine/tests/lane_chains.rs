//! Tests of chains in the express lane: a router with the lane and a router without it execute the same chains for the same frames.

use std::sync::Arc;

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, Plan, Rig, plain, route};
use crate::transit::{LINKS, exchange, frames, give_tags, in_lane, moved};
use proptest::collection::vec;
use proptest::prelude::*;
use sluice_engine::snapshot::chains::{Action, ChainText, Chains, ClassText, PolicerRate};
use sluice_filter::{Address, Field, FlagsMask, Range, Rule};
use sluice_route::Via;
use sluice_testkit::packet::{self, Frame};
use sluice_wire::Checksums;

/// A condition of a class.
#[derive(Clone, Debug)]
enum Condition {
    Field(Field, u32, u32),
    /// Which side, and the low half or the high half of the addresses, divided at the address of a host.
    Addresses(bool, bool),
    Flags(FlagsMask),
}

fn condition() -> impl Strategy<Value = Condition> {
    let field = |field, values: &[(u32, u32)]| {
        let range = prop::sample::select(values.to_vec());
        range
            .prop_map(move |(first, last)| Condition::Field(field, first, last))
            .boxed()
    };
    let ports = [(0, 65_535), (53, 53), (0, 1_023), (1_024, 65_535), (80, 60_000)];
    prop_oneof![
        field(Field::SourcePort, &ports),
        field(Field::DestinationPort, &ports),
        field(Field::Protocol, &[(6, 6), (17, 17), (6, 17), (1, 1), (0, 255)]),
        field(Field::Length, &[(0, 60), (61, 65_535), (40, 100)]),
        field(Field::Dscp, &[(0, 0), (1, 63), (46, 46)]),
        field(Field::Ecn, &[(0, 0), (1, 3)]),
        field(Field::Ttl, &[(0, 2), (3, 255), (64, 64)]),
        field(Field::Message, &[(0, 65_535), (0x0800, 0x0800)]),
        field(Field::Fragment, &[(0, 0), (1, 2), (0, 1)]),
        field(Field::Vlan, &[(0, 4_095), (100, 100), (300, 300)]),
        field(Field::Incoming, &[(0, 0), (1, 1), (0, 1)]),
        field(Field::Outgoing, &[(0, 7), (65_535, 65_535)]),
        field(Field::Context, &[(0, 0), (1, 9)]),
        any::<(bool, bool)>().prop_map(|(source, high)| Condition::Addresses(source, high)),
        Just(Condition::Flags(FlagsMask { set: 2, of: 2 })),
    ]
}

/// A rule with these conditions. `half` is the address that divides the addresses.
fn rule<A: Address>(conditions: &[Condition], half: A) -> Rule<A> {
    let all = Rule::any().source;
    conditions.iter().fold(Rule::any(), |rule, condition| match condition {
        Condition::Field(field, first, last) => rule.with(*field, *first, *last).unwrap(),
        Condition::Flags(flags) => rule.with_flags(*flags).unwrap(),
        Condition::Addresses(source, high) => {
            let range = match high {
                true => Range { first: half, ..all },
                false => Range { last: half, ..all },
            };
            let (source, destination) = match source {
                true => (range, rule.destination),
                false => (rule.source, range),
            };
            rule.between(source, destination).unwrap()
        }
    })
}

/// A step of the chain `input`. Packets of classes, and packets above a rate, continue at the chain `side`.
#[derive(Clone, Debug)]
enum Step {
    Count(u8),
    Classify(Vec<Vec<Condition>>),
    /// Whether all packets exceed the rate limit, in packets or in bits, and whether they are then dropped.
    Police(bool, bool, bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..3u8).prop_map(Step::Count),
        4 => vec(vec(condition(), 0..4), 1..4).prop_map(Step::Classify),
        1 => any::<(bool, bool, bool)>().prop_map(|(none, bits, drop)| Step::Police(none, bits, drop)),
    ]
}

fn action(step: &Step, to: &str) -> Action {
    match step {
        Step::Count(name) => Action::Count(format!("c{name}")),
        Step::Classify(rules) => Action::Classify {
            v4: rules.iter().map(|of| rule(of, rig::v4("192.168.1.10"))).collect(),
            v6: rules.iter().map(|of| rule(of, 0x2001_0db8_0005u128 << 80)).collect(),
            to: to.into(),
        },
        Step::Police(none, bits, drop) => {
            let rate = match (none, bits) {
                (true, true) => PolicerRate::Bits(1, 0),
                (true, false) => PolicerRate::Packets(1, 0),
                (false, true) => PolicerRate::Bits(1, 1 << 40),
                (false, false) => PolicerRate::Packets(1, 1 << 40),
            };
            Action::Police(rate, (!drop).then(|| to.into()))
        }
    }
}

fn compile(written: Vec<(&str, Vec<Action>)>) -> Arc<Chains> {
    let text = |action| ClassText {
        text: format!("{action:?}"),
        action,
    };
    let written: Vec<_> = written
        .into_iter()
        .map(|(name, actions)| ChainText {
            name: name.into(),
            steps: actions.into_iter().map(text).collect(),
        })
        .collect();
    Chains::new(&written, 4).unwrap().into()
}

/// A router with chains, with or without the lane.
fn router(link: usize, chains: Arc<Chains>, has_lane: bool) -> Rig {
    let via = |address| Via::Gateway {
        address: plain(address),
        interface: None,
    };
    let plan = || Plan {
        translate: false,
        interfaces: give_tags(link),
        routes: vec![
            route("10.0.0.0", 8, via("192.168.1.10")),
            route("10.9.0.0", 16, via("203.0.113.254")),
        ],
        ..Plan::default()
    };
    let mut rig = Rig::new(plan());
    let (mut snapshot, routes) = rig::snapshot(&plan());
    snapshot.chains = vec![Some(chains)];
    rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
    rig.plane.collect();
    rig.workers.iter_mut().for_each(|worker| worker.set_lane(has_lane));
    rig
}

/// Packets and bytes of each step.
fn counted(rig: &Rig) -> Vec<(String, Option<(u64, u64)>)> {
    let snapshot = rig.plane.snapshot();
    let chains = snapshot.chains[0].as_deref().unwrap();
    let total = |tally| chains.tally(tally).map(|tally| tally.total());
    let listed = chains.listed().iter();
    listed
        .map(|step| (step.text.clone(), step.tally.and_then(total)))
        .collect()
}

fn udp(port: u16) -> Frame {
    packet::udp4("192.168.1.10:5000", format!("198.51.100.7:{port}").as_str()).payload(&[0; 26])
}

/// Sends a burst of packets to these ports. The frames that are sent are returned.
fn burst(rig: &mut Rig, ports: impl IntoIterator<Item = u16>) -> usize {
    for port in ports {
        let bytes = udp(port).macs(HOST_MAC, INSIDE_MAC).build();
        rig.wires[0].inject(INSIDE, &bytes, Checksums::Vouched);
    }
    rig.round();
    rig.sent().len()
}

#[test]
fn lane_runs_the_chain_of_a_router_and_counts_as_the_graph_does() {
    let names = Step::Classify(vec![vec![
        Condition::Field(Field::Protocol, 17, 17),
        Condition::Field(Field::DestinationPort, 53, 53),
    ]]);
    let input = vec![
        Action::Count("all".into()),
        action(&names, "names"),
        Action::Count("rest".into()),
        Action::Forward,
    ];
    let names = vec![Action::Count("names".into()), Action::Drop];
    let mut rig = router(0, compile(vec![("input", input), ("names", names)]), true);
    // The first packet resolves the adjacency of the gateway.
    burst(&mut rig, [1]);
    let before = in_lane(&rig);
    assert_eq!(2, burst(&mut rig, [80, 53, 53, 443, 53]));
    assert_eq!(5, in_lane(&rig) - before, "also packets that a chain drops");
    assert_eq!(vec![("chain-drop", 3)], rig.all_drops());
    let length = udp(1).macs(HOST_MAC, INSIDE_MAC).build().len() as u64;
    let found: Vec<_> = counted(&rig).into_iter().filter_map(|(_, total)| total).collect();
    let of = |packets| (packets, packets * length);
    assert_eq!(vec![of(6), of(3), of(3), of(3), of(3), of(3)], found);
    rig.check();
}

#[test]
fn policer_admits_as_many_packets_of_the_lane_as_it_has_tokens() {
    let police = Action::Police(PolicerRate::Packets(1, 20), None);
    let mut rig = router(0, compile(vec![("input", vec![police, Action::Forward])]), true);
    burst(&mut rig, [1]);
    let before = in_lane(&rig);
    let sent = [0; 3].map(|_| burst(&mut rig, (0..16).map(|port| 1_000 + port)));
    assert_eq!([16, 3, 0], sent);
    assert_eq!(48, in_lane(&rig) - before);
    assert_eq!(vec![("chain-policed", 29)], rig.all_drops());
    rig.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    #[test]
    fn routers_with_and_without_the_lane_run_chains_alike(
        (link, frames) in (0..LINKS.len()).prop_flat_map(|link| (Just(link), frames(link))),
        steps in [vec(step(), 0..5), vec(step(), 0..3)],
        ends in any::<(bool, bool)>(),
        checksums in prop::sample::select(vec![Checksums::Unverified, Checksums::Vouched]),
        burst in prop::sample::select(vec![1, 2, 5, 40]),
    ) {
        let written = |own: &[Step], to: &str, drops: bool| {
            let end = if drops { Action::Drop } else { Action::Sessions };
            own.iter().map(|step| action(step, to)).chain([end]).collect::<Vec<_>>()
        };
        let [input, side] = &steps;
        let chains = || compile(vec![
            ("input", written(input, "side", ends.0 && ends.1)),
            ("side", written(side, "end", ends.0)),
            ("end", vec![Action::Forward]),
        ]);
        let (mut with, mut without) = (router(link, chains(), true), router(link, chains(), false));
        for frames in frames.chunks(burst) {
            prop_assert_eq!(exchange(&mut without, frames, checksums), exchange(&mut with, frames, checksums));
        }
        prop_assert_eq!(without.all_drops(), with.all_drops());
        prop_assert_eq!(counted(&without), counted(&with));
        for interface in [INSIDE, OUTSIDE] {
            prop_assert_eq!(moved(&without, interface), moved(&with, interface));
        }
        with.check();
    }
}

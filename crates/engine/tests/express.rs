//! Tests of the express lane against the graph: a gateway with the lane and a gateway without it receive the same frames.
//! The frames that they send, their sessions and their counters must be equal.

use crate::rig::Plan;
use proptest::collection::vec;
use proptest::prelude::*;
use sluice_wire::Checksums;
use sluice_wire::tcp::flag::{ACK, FIN, PSH, RST, SYN};

use pair::{
    DIVISIONS, Draw, Event, FLOWS, HAND_OVER, LINKS, ONE_PORT, Oddity, Pair, TWO_STAGES, chained, data, plan, tight,
};

mod pair;

fn oddity() -> impl Strategy<Value = Oddity> {
    let flags = prop::sample::select(vec![
        SYN,
        SYN | ACK,
        FIN | ACK,
        RST,
        RST | ACK,
        PSH | ACK,
        0,
        ACK | 0x20,
        SYN | FIN,
    ]);
    prop_oneof![
        24 => Just(Oddity::Nothing),
        2 => flags.prop_map(Oddity::Flags),
        2 => (any::<i16>(), any::<i16>()).prop_map(|(a, b)| Oddity::Numbers(a as u32, b as u32)),
        1 => any::<(u32, u32)>().prop_map(|(a, b)| Oddity::Numbers(a, b)),
        1 => (0..3u8).prop_map(Oddity::Ttl),
        2 => (0..40u8).prop_map(Oddity::Padded),
        2 => Just(Oddity::MayBeCut),
        1 => Just(Oddity::TcpOptions),
        1 => Just(Oddity::IpOptions),
        1 => Just(Oddity::Fragment),
        1 => Just(Oddity::Tagged),
        1 => Just(Oddity::OtherMac),
        3 => any::<(u16, u8)>().prop_map(|(at, value)| Oddity::Edited(at, value)),
        1 => any::<u16>().prop_map(Oddity::Truncated),
        1 => (0..8u16).prop_map(Oddity::Stranger),
    ]
}

fn draw() -> impl Strategy<Value = Draw> {
    let checksums = prop_oneof![
        8 => Just(Checksums::Vouched),
        4 => Just(Checksums::Unverified),
        1 => Just(Checksums::BadL4),
        1 => Just(Checksums::BadL3),
        1 => Just(Checksums::PartialChecksum),
    ];
    (0..FLOWS, any::<bool>(), oddity(), 26..=255u8, checksums).prop_map(
        |(flow, is_reply, oddity, payload, checksums)| Draw {
            flow,
            is_reply,
            oddity,
            payload,
            checksums,
        },
    )
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        12 => vec(draw(), 1..64).prop_map(Event::Burst),
        2 => (1..2_000u16).prop_map(Event::Pass),
        1 => Just(Event::Commit),
        1 => any::<u16>().prop_map(Event::Move),
    ];
    vec(event, 1..12)
}

#[test]
fn data_of_known_flows_takes_the_lane_in_both_directions() {
    let plans = [
        (Plan::default as fn() -> Plan, false),
        (plan, false),
        (plan, true),
        (chained, false),
        (chained, true),
    ];
    for ((plan, v6), link) in plans
        .into_iter()
        .flat_map(|plan| (0..LINKS.len()).map(move |link| (plan, link)))
    {
        let mut pair = Pair::on(link, plan, v6);
        let before = pair.express();
        let burst: Vec<_> = (0..FLOWS)
            .flat_map(|flow| [data(flow, false), data(flow, true)])
            .collect();
        pair.step(&Event::Burst(burst));
        assert_eq!(2 * u64::from(FLOWS), pair.express() - before, "v6: {v6}, link {link}");
    }
}

#[test]
fn workers_that_look_up_sessions_take_the_lane_however_the_work_is_divided() {
    for (division, v6) in (0..DIVISIONS.len()).flat_map(|division| [(division, false), (division, true)]) {
        for link in [0, 2, 4] {
            let mut pair = Pair::divided([link, division], plan, v6);
            let before = pair.express();
            let burst: Vec<_> = (0..FLOWS)
                .flat_map(|flow| [data(flow, false), data(flow, true)])
                .collect();
            pair.step(&Event::Burst(burst));
            let taken = pair.express() - before;
            assert_eq!(
                2 * u64::from(FLOWS),
                taken,
                "division {division}, v6: {v6}, link {link}"
            );
        }
    }
}

#[test]
fn flows_take_the_lane_also_from_a_nearly_full_table_and_after_their_shard_has_moved() {
    for (division, v6) in [(0, false), (HAND_OVER, false), (TWO_STAGES, true)] {
        let mut pair = Pair::divided([0, division], plan, v6);
        // The shard of the host has space for 256 sessions, so many entries are not in the bucket of their hash.
        pair.open_flows(240, v6);
        for _ in 0..2 {
            let before = pair.express();
            for flows in (0..240).collect::<Vec<_>>().chunks(60) {
                for is_reply in [false, true] {
                    pair.step(&Event::Burst(flows.iter().map(|flow| data(*flow, is_reply)).collect()));
                }
            }
            assert_eq!(480, pair.express() - before, "division {division}");
            (0..16).for_each(|shard| pair.step(&Event::Move(shard)));
            // The worker that now has the shard did not try the lane while all packets belonged to another worker.
            for flow in 0..8 {
                pair.step(&Event::Burst(vec![data(flow, false), data(flow, true)]));
            }
        }
    }
}

#[test]
fn lane_is_not_tried_for_some_bursts_after_a_flood_of_strangers() {
    let mut pair = Pair::new(plan, false);
    let strangers = (0..16).map(|port| Draw {
        oddity: Oddity::Stranger(port),
        ..data(1, false)
    });
    pair.step(&Event::Burst(strangers.collect()));
    let before = pair.express();
    let taken: Vec<_> = (0..9)
        .map(|_| {
            pair.step(&Event::Burst(vec![data(0, false)]));
            pair.express() - before
        })
        .collect();
    assert_eq!(vec![0, 0, 0, 0, 0, 0, 0, 1, 2], taken);
}

#[test]
fn packets_that_follow_an_unusual_packet_of_their_flow_do_not_take_the_lane() {
    let mut pair = Pair::new(plan, false);
    let unusual = |flow, oddity| Draw {
        oddity,
        ..data(flow, false)
    };
    let before = pair.express();
    let burst = vec![
        data(0, false),
        unusual(0, Oddity::IpOptions),
        data(0, false),
        unusual(2, Oddity::Flags(FIN | ACK)),
        data(2, false),
        data(3, false),
        data(4, false),
        // Any flow between these hosts may be the one to which the later fragments belong.
        unusual(1, Oddity::Fragment),
        data(1, false),
        data(5, false),
    ];
    pair.step(&Event::Burst(burst));
    assert_eq!(3, pair.express() - before);
}

#[test]
fn sessions_return_to_the_lane_after_a_commit() {
    let mut pair = Pair::new(plan, false);
    pair.step(&Event::Commit);
    let burst = Event::Burst((0..FLOWS).map(|flow| data(flow, false)).collect());
    // The graph revalidates four sessions in each burst.
    let taken = [0; 3].map(|_| {
        let before = pair.express();
        pair.step(&burst);
        pair.express() - before
    });
    assert_eq!([0, 4, 6], taken);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn lane_and_graph_agree_about_any_history(
        events in events(),
        link in prop_oneof![2 => Just(0), 3 => 1..ONE_PORT],
        division in prop_oneof![2 => Just(0), 3 => 1..DIVISIONS.len()],
        v6 in prop::bool::weighted(0.3),
        plan in prop_oneof![3 => Just(plan as fn() -> Plan), 1 => Just(tight as fn() -> Plan), 2 => Just(chained as fn() -> Plan)],
    ) {
        let mut pair = Pair::divided([link, division], plan, v6);
        let events = events.into_iter().flat_map(|event| match event {
            // Workers may exchange the directions of a flow.
            Event::Burst(draws) if division != 0 => {
                let (replies, others) = draws.into_iter().partition(|draw| draw.is_reply);
                vec![Event::Burst(others), Event::Burst(replies)]
            }
            event => vec![event],
        });
        for event in events {
            pair.step(&event);
        }
    }

    #[test]
    fn lane_and_graph_agree_about_any_bytes_of_a_fuzzer(bytes in vec(any::<u8>(), 0..300)) {
        pair::run(&bytes);
    }
}

#[test]
fn lane_and_graph_agree_about_the_committed_corpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/express");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the corpus is in the tree") {
        pair::run(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 8, "only {count} seeds");
}

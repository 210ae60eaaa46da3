//! Tests of chains: steps for a router's packets before session lookup and routing.

use std::net::SocketAddrV4;
use std::sync::Arc;

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, plain, route, v4};
use sluice_engine::packet::copies;
use sluice_engine::packet::io::NO_PORT;
use sluice_engine::snapshot::chains::{Action, ChainText, Chains, ClassText, NamedPolicers, PolicerRate};
use sluice_engine::snapshot::{Interface, Router, Snapshot};
use sluice_filter::{Counters, Field, Filters, MatcherKind, Rule, RuleList, Settings, Verdict};
use sluice_route::{Address, Via};
use sluice_testkit::packet::{self, Frame};
use sluice_wire::Checksums;

const SERVER: &str = "198.51.100.7:5060";

fn count(name: &str) -> Action {
    Action::Count(name.into())
}

/// A step after which UDP packets to a port continue at a chain.
fn to_port(port: u32, to: &str) -> Action {
    fn rule<A: sluice_filter::Address>(port: u32) -> Vec<Rule<A>> {
        let rule = Rule::any().with(Field::Protocol, 17, 17).unwrap();
        vec![rule.with(Field::DestinationPort, port, port).unwrap()]
    }
    Action::Classify {
        v4: rule(port),
        v6: rule(port),
        to: to.into(),
    }
}

fn chains(written: Vec<(&str, Vec<Action>)>) -> Arc<Chains> {
    compiled(written).into()
}

fn compiled(written: Vec<(&str, Vec<Action>)>) -> Chains {
    let text = |action: &Action| format!("{action:?}");
    let written: Vec<ChainText> = written
        .into_iter()
        .map(|(name, actions)| ChainText {
            name: name.into(),
            steps: actions
                .into_iter()
                .map(|action| ClassText {
                    text: text(&action),
                    action,
                })
                .collect(),
        })
        .collect();
    Chains::new(&written, 4).unwrap()
}

fn chained(snapshot: &mut Snapshot, written: Vec<(&str, Vec<Action>)>) {
    snapshot.chains = vec![Some(chains(written))];
}

/// Voice packets bypass the sessions, packets to one port are dropped, and all other packets are processed as usual.
fn branches(snapshot: &mut Snapshot) {
    let input = vec![
        count("all"),
        to_port(5060, "voice"),
        to_port(9, "refused"),
        count("rest"),
        Action::Sessions,
    ];
    let voice = vec![count("voice"), Action::Forward];
    chained(
        snapshot,
        vec![("input", input), ("voice", voice), ("refused", vec![Action::Drop])],
    );
}

/// Packets and bytes counted by each step, with the text of the step.
fn counted(rig: &Rig) -> Vec<(String, u64, u64)> {
    let chains = rig.plane.snapshot().chains[0].as_deref().unwrap();
    let line = |listed: &sluice_engine::snapshot::chains::ListedStep| {
        let (packets, bytes) = chains.tally(listed.tally?)?.total();
        Some((listed.text.clone(), packets, bytes))
    };
    chains.listed().iter().filter_map(line).collect()
}

/// Packets counted by the step whose text starts with `text`.
#[track_caller]
fn packets(rig: &Rig, text: &str) -> u64 {
    let all = counted(rig);
    let found = all.iter().find(|(step, ..)| step.starts_with(text));
    found.unwrap_or_else(|| panic!("{text} in {all:?}")).1
}

fn udp(port: u16) -> Frame {
    let server: SocketAddrV4 = SERVER.parse().unwrap();
    packet::udp4("192.168.1.10:4000", SocketAddrV4::new(*server.ip(), port)).payload(b"something to say")
}

fn udp6(port: u16) -> Frame {
    packet::udp6("[2001:db8:1::10]:4000", format!("[2001:db8:99::7]:{port}").as_str()).payload(b"something")
}

#[test]
fn branches_lead_past_sessions_to_a_drop_or_on_and_count() {
    let mut rig = Rig::new(Plan {
        snapshot: branches,
        ..Plan::default()
    });
    let voice = rig.host_sends(&udp(5060));
    assert_eq!("192.168.1.10:4000", rig::flow(&voice[0].frame).0.to_string());
    assert_eq!(0, rig.live());
    let web = rig.public(&udp(80));
    assert_eq!(rig::POOL, *web.ip().min(&rig::POOL));
    assert_eq!(1, rig.live());
    assert_eq!(0, rig.host_sends(&udp(9)).len());
    assert_eq!(vec![("chain-drop", 1)], rig.all_drops());
    // IPv6 packets have no sessions in this gateway, but they pass the same chain.
    assert_eq!(1, rig.host_sends(&udp6(5060)).len());
    assert_eq!(1, rig.host_sends(&udp6(80)).len());
    let length = udp(80).macs(HOST_MAC, INSIDE_MAC).build().len() as u64;
    let length6 = udp6(80).macs(HOST_MAC, INSIDE_MAC).build().len() as u64;
    let found: Vec<_> = counted(&rig)
        .into_iter()
        .map(|(_, packets, bytes)| (packets, bytes))
        .collect();
    let expected = vec![
        (5, 3 * length + 2 * length6),
        (2, length + length6),
        (1, length),
        (2, length + length6),
        (2, length + length6),
        (2, length + length6),
        (2, length + length6),
        (1, length),
    ];
    assert_eq!(expected, found);
}

#[test]
fn packets_of_a_flow_that_go_through_different_chains_keep_their_order() {
    fn long<A: sluice_filter::Address>() -> Vec<Rule<A>> {
        vec![Rule::any().with(Field::Length, 100, 65_535).unwrap()]
    }
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| {
            let classify = Action::Classify {
                v4: long(),
                v6: long(),
                to: "long".into(),
            };
            let input = vec![classify, Action::Sessions];
            chained(snapshot, vec![("input", input), ("long", vec![Action::Sessions])]);
        },
        ..Plan::default()
    });
    for has_lane in [false, true] {
        rig.workers[0].set_lane(has_lane);
        let lengths = [200, 10, 200, 20, 30, 200];
        for length in lengths {
            let frame = udp(80).payload(&vec![0; length]).macs(HOST_MAC, INSIDE_MAC).build();
            rig.wires[0].inject(INSIDE, &frame, Checksums::Vouched);
        }
        rig.round();
        // The headers take 42 bytes.
        let sent: Vec<_> = rig.sent().iter().map(|sent| sent.frame.len() - 42).collect();
        assert_eq!(lengths.to_vec(), sent, "{has_lane}");
    }
}

#[test]
fn burst_of_many_flows_is_sorted_and_keeps_its_order() {
    let mut rig = Rig::new(Plan {
        snapshot: branches,
        ..Plan::default()
    });
    let ports = [5060, 80, 9, 5060, 81, 5060, 9, 82];
    for number in 0..60u16 {
        let frame = udp(ports[usize::from(number) % ports.len()]).payload(&number.to_be_bytes());
        rig.wires[0].inject(INSIDE, &frame.macs(HOST_MAC, INSIDE_MAC).build(), Checksums::Unverified);
    }
    rig.round();
    let numbers: Vec<u16> = rig
        .sent()
        .iter()
        .filter(|sent| rig::flow(&sent.frame).1.port() == 5060)
        .map(|sent| u16::from_be_bytes([sent.frame[42], sent.frame[43]]))
        .collect();
    assert_eq!(23, numbers.len());
    assert!(numbers.is_sorted(), "{numbers:?}");
    assert_eq!((60, 15), (packets(&rig, "Count(\"all\")"), packets(&rig, "Drop")));
}

#[test]
fn many_classes_in_a_row_are_found_as_few_are() {
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| {
            let names: Vec<String> = (0..40).map(|k| format!("c{k}")).collect();
            let mut input: Vec<_> = (0..40).map(|k| to_port(1000 + k, &names[k as usize])).collect();
            input.push(Action::Forward);
            let mut all = vec![("input", input)];
            all.extend(
                names
                    .iter()
                    .map(|name| (name.as_str(), vec![count(name), Action::Drop])),
            );
            chained(snapshot, all);
        },
        ..Plan::default()
    });
    for port in 1000..1045 {
        assert_eq!(usize::from(port >= 1040), rig.host_sends(&udp(port)).len(), "{port}");
    }
    for k in 0..40 {
        assert_eq!(1, packets(&rig, &format!("Count(\"c{k}\")")));
    }
    assert_eq!((5, 40), (packets(&rig, "Forward"), rig.drops("chain-drop")));
}

#[test]
fn policer_takes_what_is_above_its_rate_by_the_clock() {
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| {
            let police = Action::Police(PolicerRate::Packets(10, 5), None);
            chained(snapshot, vec![("input", vec![police, Action::Forward])]);
        },
        ..Plan::default()
    });
    let sent = |rig: &mut Rig, count: usize| (0..count).map(|_| rig.host_sends(&udp(80)).len()).sum::<usize>();
    assert_eq!(5, sent(&mut rig, 12));
    rig.pass(100);
    assert_eq!(1, sent(&mut rig, 3));
    rig.pass(10_000);
    assert_eq!(5, sent(&mut rig, 6));
    assert_eq!(10, rig.drops("chain-policed"));
    assert_eq!((10, 11), (packets(&rig, "Police"), packets(&rig, "Forward")));
}

#[test]
fn policer_is_one_for_all_workers() {
    let mut rig = Rig::new(Plan {
        workers: 3,
        snapshot: |snapshot| {
            let police = Action::Police(PolicerRate::Packets(10, 5), None);
            chained(snapshot, vec![("input", vec![police, Action::Forward])]);
        },
        ..Plan::default()
    });
    let frame = udp(80).macs(HOST_MAC, INSIDE_MAC).build();
    let passed: usize = (0..12).map(|k| rig.send_at(k % 3, INSIDE, &frame).len()).sum();
    assert_eq!((5, 7, 7), (passed, rig.drops("chain-policed"), packets(&rig, "Police")));
}

/// Two routers share a policer of five packets. Packets above the rate are dropped.
fn sharing(snapshot: &mut Snapshot) {
    let mut named = NamedPolicers::default();
    let mut own = || {
        let police = Action::PoliceBy("five".into(), PolicerRate::Packets(1, 5), None);
        let mut made = compiled(vec![("input", vec![police, Action::Drop])]);
        made.share_named(&mut named);
        Some(Arc::new(made))
    };
    snapshot.routers = vec![Default::default(), named_router("other")];
    snapshot.hosts = vec![Arc::default(); 2];
    snapshot.chains = vec![own(), own()];
}

fn named_router(name: &str) -> Router {
    Router {
        name: name.into(),
        ..Router::default()
    }
}

#[test]
fn policer_with_a_name_is_one_for_all_routers_and_over_a_commit() {
    let plan = || Plan {
        translate: false,
        interfaces: |interfaces| (interfaces[1].router, interfaces[1].context) = (1, 1),
        snapshot: sharing,
        ..Plan::default()
    };
    let mut rig = Rig::new(plan());
    let frames = [
        (INSIDE, udp(80).macs(HOST_MAC, INSIDE_MAC).build()),
        (OUTSIDE, udp(80).macs(ROUTER_MAC, OUTSIDE_MAC).build()),
    ];
    let send = |rig: &mut Rig, place: usize, count: usize| {
        let (interface, frame) = &frames[place];
        (0..count).for_each(|_| assert_eq!(0, rig.send(*interface, frame).len()));
        (rig.drops("chain-drop"), rig.drops("chain-policed"))
    };
    assert_eq!((3, 0), send(&mut rig, 0, 3));
    assert_eq!((5, 2), send(&mut rig, 1, 4));
    assert_eq!((5, 3), send(&mut rig, 0, 1));
    let (snapshot, routes) = rig::snapshot(&plan());
    rig.plane.commit(snapshot, &[routes]).unwrap();
    assert_eq!((5, 5), [0, 1].map(|place| send(&mut rig, place, 1))[1]);
}

#[test]
fn policer_that_names_a_chain_sends_there_what_is_above() {
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| {
            let police = Action::Police(PolicerRate::Bits(8, 100), Some("slow".into()));
            let slow = vec![count("slow"), Action::Forward];
            chained(snapshot, vec![("input", vec![police, Action::Forward]), ("slow", slow)]);
        },
        ..Plan::default()
    });
    for _ in 0..3 {
        assert_eq!(1, rig.host_sends(&udp(80)).len());
    }
    // Each frame has 58 bytes, and the burst is 100 bytes.
    assert_eq!(58, udp(80).macs(HOST_MAC, INSIDE_MAC).build().len());
    assert_eq!((2, 2), (packets(&rig, "Police"), packets(&rig, "Count(\"slow\")")));
}

fn mirrored(snapshot: &mut Snapshot) {
    chained(
        snapshot,
        vec![("input", vec![Action::Mirror(OUTSIDE), Action::Sessions])],
    );
}

#[test]
fn mirror_sends_each_byte_as_it_came_and_the_packet_goes_on() {
    let mut rig = Rig::new(Plan {
        snapshot: mirrored,
        ..Plan::default()
    });
    let frame = udp(80).macs(HOST_MAC, INSIDE_MAC).build();
    let sent = rig.send(INSIDE, &frame);
    assert_eq!(2, sent.len());
    assert!(sent.iter().all(|sent| sent.port == OUTSIDE));
    assert_eq!(1, sent.iter().filter(|sent| sent.frame == frame).count(), "{sent:?}");
    // A packet that was received on the mirror interface itself is not copied.
    let answer = packet::udp4(
        "198.51.100.7:80",
        rig::flow(&sent.iter().find(|s| s.frame != frame).unwrap().frame).0,
    );
    let answered = rig.router_sends(&answer.payload(b"x"));
    assert_eq!(vec![INSIDE], answered.iter().map(|sent| sent.port).collect::<Vec<_>>());
    assert_eq!(1, packets(&rig, "Mirror"));
}

#[test]
fn mirror_without_room_or_buffers_loses_copies_alone() {
    let mut rig = Rig::new(Plan {
        snapshot: mirrored,
        ..Plan::default()
    });
    let frame = udp(80).macs(HOST_MAC, INSIDE_MAC).build();
    for _ in 0..60 {
        rig.wires[0].inject(INSIDE, &frame, Checksums::Unverified);
    }
    rig.round();
    let sent = rig.sent();
    let copies = sent.iter().filter(|sent| sent.frame == frame).count();
    assert_eq!((copies::MAX, 60), (copies, sent.len() - copies));
    let lost = |rig: &Rig| rig.plane.counters()[0].copies_lost.get();
    assert_eq!(60 - copies::MAX as u64, lost(&rig));
    rig.wires[0].limit_allocate(0);
    assert_eq!(1, rig.send(INSIDE, &frame).len());
    assert_eq!(61 - copies::MAX as u64, lost(&rig));
    assert_eq!(Vec::<(&str, u64)>::new(), rig.all_drops());
}

#[test]
fn packet_past_sessions_that_waits_for_its_neighbour_goes_on_past_them_and_counts_once() {
    for workers in [1, 3] {
        let mut rig = Rig::new(Plan {
            snapshot: branches,
            known_neighbours: false,
            workers,
            ..Plan::default()
        });
        for worker in 0..workers {
            let frame = udp(5060).macs(HOST_MAC, INSIDE_MAC).build();
            let queried = rig.send_at(worker, INSIDE, &frame);
            assert!(queried.iter().all(|sent| sent.frame[12..14] == [8, 6]), "{queried:?}");
        }
        let answer = packet::arp_reply(ROUTER_MAC, "203.0.113.254", OUTSIDE_MAC, "203.0.113.1");
        let sent = rig.send(OUTSIDE, &answer);
        assert_eq!(workers, sent.len(), "{:?}", rig.all_drops());
        assert!(
            sent.iter()
                .all(|sent| rig::flow(&sent.frame).0.to_string() == "192.168.1.10:4000")
        );
        assert_eq!((0, workers as u64), (rig.live(), packets(&rig, "Count(\"voice\")")));
    }
}

#[test]
fn later_fragments_have_no_ports_and_go_the_way_of_the_rest() {
    let mut rig = Rig::new(Plan {
        snapshot: branches,
        ..Plan::default()
    });
    let whole = udp(5060).payload(&[7; 64]);
    let first = whole.clone().fragment(0, true, 77).macs(HOST_MAC, INSIDE_MAC).build();
    let later = packet::frame4(
        "192.168.1.10".parse().unwrap(),
        "198.51.100.7".parse().unwrap(),
        packet::Transport::Raw(packet::IpNumber(17)),
    );
    let later = later
        .payload(&[7; 16])
        .fragment(72, false, 77)
        .macs(HOST_MAC, INSIDE_MAC)
        .build();
    assert_eq!(1, rig.send(INSIDE, &first).len());
    assert_eq!(0, rig.send(INSIDE, &later).len());
    assert_eq!(
        (1, 1),
        (packets(&rig, "Count(\"voice\")"), packets(&rig, "Count(\"rest\")"))
    );
    rig.seconds(60);
    assert_eq!(vec![("fragment-timeout", 1)], rig.all_drops());
}

#[test]
fn what_a_filter_is_asked_about_by_session_is_not_led_past_it() {
    let mut rig = Rig::new(Plan {
        translate: false,
        snapshot: |snapshot| {
            let settings = Settings {
                kind: MatcherKind::Best,
                default: Verdict::Drop,
                sessions: true,
                workers: 1,
            };
            let none = Vec::<(sluice_filter::CompiledRule, ())>::new();
            let list = RuleList::new(none.into_iter(), settings, Counters::new(0)).unwrap();
            let filters: Arc<Filters> = list.filters().clone();
            snapshot.filter_by(filters);
            branches(snapshot);
        },
        ..Plan::default()
    });
    assert_eq!(0, rig.host_sends(&udp(5060)).len());
    assert_eq!(vec![("filter-default", 1)], rig.all_drops());
}

#[test]
fn commit_that_keeps_a_name_goes_on_counting() {
    let mut rig = Rig::new(Plan {
        snapshot: branches,
        ..Plan::default()
    });
    rig.host_sends(&udp(5060));
    let plan = Plan {
        snapshot: |snapshot| {
            chained(
                snapshot,
                vec![("input", vec![count("new"), count("all"), Action::Sessions])],
            )
        },
        ..Plan::default()
    };
    let (snapshot, routes) = rig::snapshot(&plan);
    rig.plane.commit(snapshot, &[routes]).unwrap();
    rig.host_sends(&udp(5060));
    assert_eq!(
        (1, 2),
        (packets(&rig, "Count(\"new\")"), packets(&rig, "Count(\"all\")"))
    );
    let (snapshot, routes) = rig::snapshot(&Plan::default());
    rig.plane.commit(snapshot, &[routes]).unwrap();
    assert_eq!(1, rig.host_sends(&udp(5060)).len());
}

#[test]
fn pipeline_leads_past_sessions_too() {
    let mut rig = Rig::new(Plan {
        snapshot: branches,
        workers: 3,
        stages: [vec![0], vec![1], vec![2], vec![2]],
        ..Plan::default()
    });
    let voice = rig.host_sends(&udp(5060));
    assert_eq!("192.168.1.10:4000", rig::flow(&voice[0].frame).0.to_string());
    assert_ne!("192.168.1.10", rig.public(&udp(80)).ip().to_string());
    assert_eq!(
        (2, 1),
        (packets(&rig, "Count(\"all\")"), packets(&rig, "Count(\"voice\")"))
    );
}

/// Both interfaces of an inter-router link are in the only router.
fn linked(interfaces: &mut Vec<Interface>) {
    for (own, peer) in [(2u16, 3u16), (3, 2)] {
        let mut end = interfaces[0].clone();
        end.name = format!("end{own}");
        (end.port, end.peer) = (NO_PORT, Some(peer));
        end.mac = [2, 0, 0, 0, 9, own as u8];
        end.link = sluice_route::Interface {
            index: own,
            addresses: match own {
                2 => vec![(Address::V4(v4("10.9.0.2")), 24)],
                _ => Vec::new(),
            },
        };
        interfaces.push(end);
    }
}

#[test]
fn what_crosses_a_virtual_link_takes_the_chain_of_the_other_end() {
    let over = Via::Gateway {
        address: plain("10.9.0.3"),
        interface: Some(2),
    };
    let mut rig = Rig::new(Plan {
        translate: false,
        interfaces: linked,
        routes: vec![route("198.51.100.0", 24, over)],
        snapshot: branches,
        ..Plan::default()
    });
    rig.know(2, plain("10.9.0.3"), [2, 0, 0, 0, 9, 3]);
    // The packet crosses the link repeatedly, until it exceeds the maximum number of passes.
    assert_eq!(0, rig.host_sends(&udp(5060)).len());
    assert_eq!(vec![("too-many-passes", 1)], rig.all_drops());
    assert_eq!(4, packets(&rig, "Count(\"voice\")"));
}

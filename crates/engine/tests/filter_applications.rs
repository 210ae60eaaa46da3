//! Tests of filter rules with application conditions: the filter is evaluated again when the application of a session
//! is known.

use std::sync::Arc;

use crate::applied::{self, Played, capture, plan, seek, sessions};
use crate::rig::{self, INSIDE, OUTSIDE, Plan, Rig};
use sluice_engine::snapshot::Snapshot;
use sluice_engine::worker::request::{Filter, Reply, Request};
use sluice_filter::{
    Action, ApplicationMatch, CompiledRule, Counters, Filters, MatcherKind, RejectKind, Rule, Settings, Verdict,
};
use sluice_inspect::applications::{ApplicationNames, ApplicationSelector};
use sluice_testkit::packet::{self, flag};
use sluice_wire::Direction;

const ACCEPT: Action = Action::Decide(Verdict::Accept);
const DROP: Action = Action::Decide(Verdict::Drop);
const REJECT: Action = Action::Decide(Verdict::Reject(RejectKind::Reset));

/// A rule for both families that matches these applications. Without applications, the rule matches all packets.
fn rule(action: Action, applications: &[&str]) -> CompiledRule {
    let names = ApplicationNames::installed().unwrap();
    let named = |name: &&str| {
        let ApplicationSelector { master, application } = names.selector(name).unwrap();
        ApplicationMatch { master, application }
    };
    CompiledRule {
        action,
        v4: vec![Rule::any()],
        v6: vec![Rule::any()],
        applications: applications.iter().map(named).collect(),
        conditions: Default::default(),
    }
}

fn filter(snapshot: &mut Snapshot, rules: &[CompiledRule]) {
    let settings = Settings {
        kind: MatcherKind::Best,
        default: Verdict::Drop,
        sessions: true,
        workers: 2,
    };
    let filters = Filters::new(rules, &settings, Counters::new(rules.len())).unwrap();
    snapshot.filter_by(Arc::new(filters));
    seek(snapshot);
}

fn without_git(snapshot: &mut Snapshot) {
    filter(snapshot, &[rule(DROP, &["Git", "BitTorrent"]), rule(ACCEPT, &[])]);
}

fn packets(rig: &Rig, place: u32) -> u64 {
    let filters = rig.plane.snapshot().filter.as_ref().unwrap();
    filters.counters.of(place).unwrap().packets()
}

/// Commits a new snapshot with the same routes.
fn commit(rig: &mut Rig, plan: &Plan, change: fn(&mut Snapshot)) {
    let (mut snapshot, routes) = rig::snapshot(&Plan {
        snapshot: |_| {},
        translate: plan.translate,
        ..Plan::default()
    });
    change(&mut snapshot);
    rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
    rig.round();
}

const GIT: &str = "git.pcap";

#[test]
fn session_of_a_denied_application_is_dropped_from_the_packet_that_tells_it() {
    for translate in [true, false] {
        let Some(captured) = capture(GIT) else { return };
        let session = &sessions(&captured)[0];
        let mut rig = Rig::new(Plan {
            translate,
            snapshot: without_git,
            ..plan()
        });
        let mut played = Played::new(session, 2000);
        let sent: Vec<_> = session.iter().map(|packet| played.send(&mut rig, 0, packet)).collect();
        let passed = sent.iter().take_while(|&&sent| sent > 0).count();
        assert!(passed >= 3, "the handshake passes: {sent:?}");
        assert!(sent[passed..].iter().all(|&sent| sent == 0), "{sent:?}");
        let directions = &session[passed..];
        for direction in [Direction::Forward, Direction::Reverse] {
            assert!(directions.iter().any(|packet| packet.direction == direction));
        }
        // The packet with the request identifies the application. Before that, no byte of the request has left.
        assert!(session[passed].bytes.windows(4).any(|bytes| bytes == b"git-"));
        assert_eq!((session.len() - passed) as u64, rig.drops("filter-application"));
        assert_eq!((1, 1), (packets(&rig, 0), packets(&rig, 1)));
        assert_eq!(Some("Git"), played.application(&mut rig).as_deref());
        assert_eq!(1, rig.live());
    }
}

#[test]
fn sessions_of_other_applications_go_on() {
    for (name, place) in [("irc.pcap", 0), ("mysql.pcapng", 0), ("443-curl.pcap", 0)] {
        let Some(captured) = capture(name) else { return };
        let session = &sessions(&captured)[place];
        let mut rig = Rig::new(Plan {
            snapshot: without_git,
            ..plan()
        });
        let mut played = Played::new(session, 2000);
        let sent: Vec<_> = session.iter().map(|packet| played.send(&mut rig, 0, packet)).collect();
        assert_eq!(0, rig.drops("filter-application"), "{name} {sent:?}");
        assert_eq!(0, packets(&rig, 0));
    }
}

fn resets_git(snapshot: &mut Snapshot) {
    filter(snapshot, &[rule(REJECT, &["Git"]), rule(ACCEPT, &[])]);
}

#[test]
fn session_of_a_rejected_application_is_reset() {
    let Some(captured) = capture(GIT) else { return };
    let session = &sessions(&captured)[0];
    let mut rig = Rig::new(Plan {
        snapshot: resets_git,
        ..plan()
    });
    let mut played = Played::new(session, 2000);
    let request = session.iter().position(|packet| packet.bytes.len() > 100).unwrap();
    played.play(&mut rig, &session[..request]);
    assert_eq!(0, rig.drops("filter-application"));
    let frame = applied::addressed(
        &session[request].bytes,
        [rig::INSIDE_MAC, rig::HOST_MAC],
        played.host,
        played.remote,
    );
    let answers = rig.send(INSIDE, &frame);
    assert_eq!(1, answers.len());
    assert_eq!(INSIDE, answers[0].port);
    let layers = sluice_wire::layers::parse(&answers[0].frame).unwrap();
    assert_ne!(0, layers.tcp_flags & sluice_wire::tcp::flag::RST);
    assert_eq!(1, rig.drops("filter-application"));
}

fn all_pass(snapshot: &mut Snapshot) {
    filter(snapshot, &[rule(ACCEPT, &[])]);
}

#[test]
fn session_whose_application_is_allowed_again_goes_on() {
    let Some(captured) = capture(GIT) else { return };
    let session = &sessions(&captured)[0];
    let plan = Plan {
        snapshot: without_git,
        ..plan()
    };
    let shape = Plan {
        translate: true,
        ..Plan::default()
    };
    let mut rig = Rig::new(plan);
    let mut played = Played::new(session, 2000);
    let half = session.len() / 2;
    played.play(&mut rig, &session[..half]);
    assert!(rig.drops("filter-application") > 0);
    commit(&mut rig, &shape, all_pass);
    let before = rig.drops("filter-application");
    let sent = played.play(&mut rig, &session[half..]);
    assert_eq!((session.len() - half, before), (sent, rig.drops("filter-application")));
    // When the rules deny the application again, packets of the session are dropped; the application need not be
    // identified again.
    commit(&mut rig, &shape, without_git);
    assert_eq!(0, played.play(&mut rig, &session[half..]));
    assert_eq!(1, rig.live());
    assert_eq!(0, rig.plane.counters()[0].identification.identifying.get());
}

fn inspected_without_git(snapshot: &mut Snapshot) {
    let rules = "drop tcp any any -> any 80 (msg:\"no\"; content:\"evil\"; sid:1;)";
    snapshot.inspect_by(Arc::new(rig::inspected::inspection(rules)));
    without_git(snapshot);
}

#[test]
fn inspected_session_of_a_denied_application_is_dropped_and_leaves_inspection() {
    let Some(captured) = capture(GIT) else { return };
    let session = &sessions(&captured)[0];
    let mut rig = Rig::new(Plan {
        inspection: Some(rig::inspected::plan()),
        snapshot: inspected_without_git,
        ..plan()
    });
    let mut played = Played::new(session, 2000);
    let sent = played.play(&mut rig, session);
    let dropped = rig.drops("filter-application");
    assert!(dropped > 0 && sent as u64 + dropped == session.len() as u64);
    assert_eq!(Some("Git"), played.application(&mut rig).as_deref());
}

fn dns(snapshot: &mut Snapshot) {
    filter(snapshot, &[rule(DROP, &["DNS"]), rule(ACCEPT, &[])]);
}

fn question(port: u16) -> packet::Frame {
    let dns = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03org\x00\x00\x01\x00\x01";
    packet::udp4(format!("192.168.1.10:{port}").as_str(), "198.51.100.7:53").payload(dns)
}

#[test]
fn datagrams_of_a_denied_application_do_not_begin_it_anew() {
    let mut rig = Rig::new(Plan {
        snapshot: dns,
        ..plan()
    });
    for _ in 0..20 {
        assert_eq!(0, rig.host_sends(&question(4000)).len());
        rig.seconds(60);
    }
    assert_eq!((20, 1), (rig.drops("filter-application"), rig.live()));
    assert_eq!(1, packets(&rig, 0));
    rig.seconds(600);
    assert_eq!(0, rig.live());
}

#[test]
fn denied_session_stays_so_when_its_shard_moves() {
    let mut rig = Rig::new(Plan {
        workers: 2,
        snapshot: dns,
        ..plan()
    });
    assert_eq!(0, rig.host_sends(&question(4000)).len());
    let shard = rig.sessions(Filter::default())[0].shard;
    let from = usize::from(rig.plane.start_parameters().owners.of(shard).unwrap());
    let to = 1 - from;
    assert!(matches!(rig.ask(to, Request::Expect { shard }), Reply::Done));
    let give = Request::StartRelease { shard, to: to as u16 };
    assert!(matches!(rig.ask(from, give), Reply::Done));
    rig.round();
    rig.round();
    assert!(matches!(rig.ask(from, Request::Release), Reply::Done));
    while rig.plane.counters()[to].shards_taken.get() == 0 {
        rig.round();
    }
    assert_eq!(0, rig.host_sends(&question(4000)).len());
    assert_eq!(2, rig.drops("filter-application"));
}

fn unknown(snapshot: &mut Snapshot) {
    filter(snapshot, &[rule(DROP, &["Unknown"]), rule(ACCEPT, &[])]);
}

#[test]
fn session_that_stays_unknown_is_dropped_once_it_is_sure() {
    let mut rig = Rig::new(Plan {
        snapshot: unknown,
        ..plan()
    });
    let datagram = packet::udp4("192.168.1.10:4000", "198.51.100.7:41234").payload(&[0xa5; 90]);
    let sent: Vec<_> = (0..30).map(|_| rig.host_sends(&datagram).len()).collect();
    assert_eq!(
        (24, 6),
        (sent.iter().sum::<usize>(), rig.drops("filter-application")),
        "{sent:?}"
    );
    // A session without data has not been identified, so it doesn't count as a session of an unknown application.
    let syn = packet::tcp4("192.168.1.10:4000", "198.51.100.7:41234").flags(flag::SYN);
    assert_eq!(OUTSIDE, rig.host_sends(&syn)[0].port);
}

//! Tests of application identification of sessions by their first packets. The session keeps the result even if later
//! packets belong to another protocol.

use crate::applied::captured;
use crate::applied::{CAPACITY, Played, by_itself, capture, plan, seek, sessions};
use crate::rig::{self, INSIDE, OUTSIDE, Plan, Rig};
use sluice_engine::packet::counters::IdentificationOutcome;
use sluice_engine::snapshot::{Bridge, Snapshot, bridge_context};
use sluice_engine::worker::request::{Filter, Reply, Request};
use sluice_inspect::applications::ApplicationCapacity;
use sluice_testkit::packet::{self, flag};
use sluice_wire::Checksums;

/// The value of the counter of identification results with this name.
fn result(rig: &Rig, name: &str) -> u64 {
    let place = IdentificationOutcome::ALL
        .iter()
        .position(|result| result.name() == name)
        .unwrap();
    let counters = rig.plane.counters().iter();
    counters
        .map(|counters| counters.identification.results[place].get())
        .sum()
}

fn pending(rig: &Rig) -> u64 {
    let counters = rig.plane.counters().iter();
    counters.map(|counters| counters.identification.identifying.get()).sum()
}

/// Sessions of captures, with the applications that nDPI's own reader reports.
const NAMED: [(&str, usize, &str); 7] = [
    ("443-curl.pcap", 0, "TLS.ntop"),
    ("ftp.pcap", 0, "FTP_CONTROL"),
    ("git.pcap", 0, "Git"),
    ("irc.pcap", 0, "IRC"),
    ("mysql.pcapng", 0, "MySQL"),
    ("KakaoTalk_chat.pcap", 0, "DNS.KakaoTalk"),
    ("ocsp.pcapng", 0, "HTTP"),
];

#[test]
fn session_of_a_capture_has_the_name_that_ndpis_reader_gives_it() {
    for translate in [true, false] {
        for (name, place, expected) in NAMED {
            let Some(packets) = capture(name) else { return };
            let sessions = sessions(&packets);
            let mut rig = Rig::new(Plan { translate, ..plan() });
            let mut played = Played::new(&sessions[place], 40_000);
            let session = &sessions[place];
            let middle = session.len() / 2;
            played.play(&mut rig, &session[..middle]);
            played.play(&mut rig, &session[middle..]);
            assert_eq!(
                Some(expected),
                played.application(&mut rig).as_deref(),
                "{name} {translate} {:?}",
                rig.all_drops()
            );
        }
    }
}

#[test]
fn sessions_of_all_captures_are_what_ndpi_says_by_itself() {
    let (mut all, mut agreed) = (0, 0);
    for path in captured::captures() {
        let packets = captured::packets(&path);
        let mut rig = Rig::new(plan());
        for (port, session) in (40_000..).zip(sessions(&packets).iter().take(40)) {
            let mut played = Played::new(session, port);
            played.play(&mut rig, session);
            let Some(shown) = played.shown(&mut rig) else { continue };
            let expected = by_itself(session);
            let Some(known) = shown.application else { continue };
            all += 1;
            agreed += usize::from(expected == known);
            if expected != known {
                let names = &rig.plane.snapshot().applications.as_ref().unwrap().names;
                println!("{}: {} is {}", path.display(), names.text(expected), names.text(known));
            }
        }
        rig.seconds(8000);
        assert_eq!((0, 0), (rig.live(), pending(&rig)), "{}", path.display());
        assert_eq!(0, result(&rig, "short-of-memory") + result(&rig, "refused"));
    }
    println!("{agreed} of {all}");
    assert!(agreed * 100 >= all * 99, "{agreed} of {all}");
}

fn question(host: &str, remote: &str) -> packet::Frame {
    let dns = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03org\x00\x00\x01\x00\x01";
    packet::udp4(host, remote).payload(dns)
}

const HOST: &str = "192.168.1.10:4000";

#[test]
fn session_beyond_the_pool_is_refused_and_goes_on() {
    let mut rig = Rig::new(Plan {
        applications: Some(ApplicationCapacity { flows: 1, ..CAPACITY }),
        ..plan()
    });
    let syn = |port| packet::tcp4(format!("192.168.1.10:{port}").as_str(), "198.51.100.7:80").flags(flag::SYN);
    assert_eq!(1, rig.host_sends(&syn(1000)).len());
    assert_eq!(1, rig.host_sends(&syn(1001)).len());
    assert_eq!(
        (1, 1, 1),
        (result(&rig, "opened"), result(&rig, "refused"), pending(&rig))
    );
    let known: Vec<_> = rig
        .sessions(Filter::default())
        .iter()
        .map(|shown| shown.application)
        .collect();
    assert_eq!(1, known.iter().filter(|known| known.is_none()).count());
    assert_eq!(1, known.iter().flatten().filter(|pair| pair.application == 0).count());
    // The entry of the first session is reused after that session has ended.
    rig.seconds(300);
    assert_eq!((0, 0), (rig.live(), pending(&rig)));
    rig.host_sends(&syn(1002));
    assert_eq!((2, 1), (result(&rig, "opened"), pending(&rig)));
}

#[test]
fn session_whose_application_is_known_is_no_longer_looked_at() {
    let mut rig = Rig::new(plan());
    let public = rig.public(&question(HOST, "198.51.100.7:53"));
    let answer = packet::udp4("198.51.100.7:53", public).payload(
        b"\x12\x34\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00\x07example\x03org\x00\x00\x01\x00\x01\
          \xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x01\x00\x04\x01\x02\x03\x04",
    );
    assert_eq!(1, rig.router_sends(&answer).len());
    assert_eq!((1, 0), (result(&rig, "found"), pending(&rig)));
    let names = rig.plane.snapshot().applications.as_ref().unwrap().names.clone();
    let dns = names.number("DNS").unwrap();
    assert_eq!(
        1,
        rig.plane.counters()[0].identification.sessions[usize::from(dns)].get()
    );
    let wanted = |name| Filter {
        application: names.selector(name),
        ..Filter::default()
    };
    assert_eq!(1, rig.sessions(wanted("dns")).len());
    assert_eq!(0, rig.sessions(wanted("TLS")).len());
    assert_eq!(1, rig.host_sends(&question(HOST, "198.51.100.7:53")).len());
    assert_eq!(1, result(&rig, "opened"));
}

#[test]
fn echo_is_of_its_protocol_and_takes_no_place() {
    let mut rig = Rig::new(plan());
    let echo = packet::icmp4_echo("192.168.1.10", "198.51.100.7", 7, 1);
    assert_eq!(1, rig.host_sends(&echo).len());
    let names = rig.plane.snapshot().applications.as_ref().unwrap().names.clone();
    let shown = rig.sessions(Filter::default());
    assert_eq!(
        Some("ICMP".to_owned()),
        shown[0].application.map(|pair| names.text(pair))
    );
    assert_eq!(0, result(&rig, "opened"));
}

#[test]
fn connection_in_its_midst_is_forwarded_without_a_session() {
    let mut rig = Rig::new(Plan {
        translate: false,
        ..plan()
    });
    let segment = packet::tcp4(HOST, "198.51.100.7:80").flags(flag::ACK).numbers(7, 8);
    assert_eq!(1, rig.host_sends(&segment).len());
    assert_eq!(0, rig.live());
}

/// A bridge that only identifies applications.
fn bridge() -> Plan {
    Plan {
        translate: false,
        known_neighbours: false,
        interfaces: |interfaces| {
            for (interface, peer) in interfaces.iter_mut().zip([OUTSIDE, INSIDE]) {
                interface.bridge = Some(Bridge {
                    peer,
                    drops_invalid: false,
                    fails_open: false,
                });
                interface.context = bridge_context(0);
            }
        },
        ..plan()
    }
}

#[test]
fn bridge_names_what_it_carries_and_lets_everything_pass() {
    let mut rig = Rig::new(bridge());
    let query = question(HOST, "198.51.100.7:53").build();
    for frame in [
        query.clone(),
        packet::tcp4(HOST, "198.51.100.7:80").flags(flag::ACK).build(),
        packet::icmp4_echo("192.168.1.10", "198.51.100.7", 7, 1).build(),
        packet::udp4(HOST, "198.51.100.7:9")
            .payload(&[7; 32])
            .fragment(0, true, 7)
            .build(),
        packet::udp4(HOST, "198.51.100.7:9")
            .payload(&[7; 32])
            .fragment(32, false, 7)
            .build(),
    ] {
        let sent = rig.send(INSIDE, &frame);
        assert_eq!([(OUTSIDE, &frame)], [(sent[0].port, &sent[0].frame)]);
    }
    let names = rig.plane.snapshot().applications.as_ref().unwrap().names.clone();
    let shown = rig.sessions(Filter::default());
    assert_eq!(1, shown.len());
    assert_eq!(
        Some("DNS".to_owned()),
        shown[0].application.map(|pair| names.text(pair))
    );
    assert_eq!(0, rig.plane.counters()[0].inspection.received.get());
    assert!(rig.all_drops().is_empty(), "{:?}", rig.all_drops());
}

#[test]
fn bridge_with_a_full_table_lets_sessions_pass() {
    let mut rig = Rig::new(Plan {
        sessions: 4,
        shards: 1,
        ..bridge()
    });
    for port in 1000..1100 {
        let frame = question(&format!("192.168.1.10:{port}"), "198.51.100.7:53").build();
        assert_eq!(1, rig.send(INSIDE, &frame).len());
    }
}

fn inspecting(snapshot: &mut Snapshot) {
    let rules = "drop tcp any any -> any 80 (msg:\"no\"; content:\"evil\"; sid:1;)";
    snapshot.inspect_by(std::sync::Arc::new(rig::inspected::inspection(rules)));
    seek(snapshot);
}

#[test]
fn inspected_session_has_its_application_too() {
    for (name, place, expected) in NAMED {
        let Some(packets) = capture(name) else { return };
        let sessions = sessions(&packets);
        let mut rig = Rig::new(Plan {
            inspection: Some(rig::inspected::plan()),
            snapshot: inspecting,
            ..plan()
        });
        let mut played = Played::new(&sessions[place], 40_000);
        played.play(&mut rig, &sessions[place]);
        let shown = played.application(&mut rig);
        assert_eq!(Some(expected), shown.as_deref(), "{name}");
        assert!(rig.plane.counters()[0].inspection.inspected.get() > 0);
    }
}

const GIT: &str = "git.pcap";

/// Moves the shard of the host's sessions to the other worker.
fn move_shard(rig: &mut Rig, shard: u16) -> usize {
    let from = usize::from(rig.plane.start_parameters().owners.of(shard).unwrap());
    let to = 1 - from;
    assert!(matches!(rig.ask(to, Request::Expect { shard }), Reply::Done));
    let give = Request::StartRelease { shard, to: to as u16 };
    assert!(matches!(rig.ask(from, give), Reply::Done));
    rig.round();
    rig.round();
    assert!(matches!(rig.ask(from, Request::Release), Reply::Done));
    for _ in 0..100_000 {
        if rig.plane.counters()[to].shards_taken.get() > 0 {
            return to;
        }
        rig.round();
    }
    panic!("the shard does not come");
}

#[test]
fn application_goes_along_with_its_shard() {
    let Some(packets) = capture(GIT) else { return };
    let sessions = sessions(&packets);
    let mut rig = Rig::new(Plan { workers: 2, ..plan() });
    let mut played = Played::new(&sessions[0], 40_000);
    played.play(&mut rig, &sessions[0]);
    let shard = played.shown(&mut rig).unwrap().shard;
    move_shard(&mut rig, shard);
    assert_eq!(Some("Git"), played.application(&mut rig).as_deref());
}

#[test]
fn session_that_is_looked_at_when_its_shard_moves_is_given_up() {
    let mut rig = Rig::new(Plan { workers: 2, ..plan() });
    let syn = packet::tcp4(HOST, "198.51.100.7:9999").flags(flag::SYN);
    assert_eq!(1, rig.host_sends(&syn).len());
    let shown = rig.sessions(Filter::default())[0];
    assert_eq!((None, 1), (shown.application, pending(&rig)));
    let from = usize::from(rig.plane.start_parameters().owners.of(shown.shard).unwrap());
    move_shard(&mut rig, shown.shard);
    assert_eq!(
        (0, 1),
        (
            pending(&rig),
            rig.plane.counters()[from].identification.results[IdentificationOutcome::Moved as usize].get()
        )
    );
    let known = rig.sessions(Filter::default())[0].application;
    assert_eq!(Some(0), known.map(|pair| pair.application));
    // The new worker no longer identifies packets of the session.
    let again = packet::tcp4(HOST, "198.51.100.7:9999").flags(flag::SYN);
    rig.wires[0].inject(
        INSIDE,
        &again.macs(rig::HOST_MAC, rig::INSIDE_MAC).build(),
        Checksums::Unverified,
    );
    rig.round();
    assert_eq!(1, rig.sent().len());
    assert_eq!(1, result(&rig, "opened"));
}

#[test]
fn session_that_comes_back_is_looked_at_on_both_its_ways() {
    let mut rig = Rig::new(plan());
    rig.know(INSIDE, rig::plain("192.168.1.11"), [2, 0, 0, 0, 1, 11]);
    let callee = rig.public(&packet::udp4("192.168.1.11:7000", "198.51.100.7:9"));
    let to_callee = callee.to_string();
    let sent = rig.host_sends(&question(HOST, &to_callee));
    assert_eq!(
        [INSIDE],
        sent.iter().map(|sent| sent.port).collect::<Vec<_>>()[..],
        "{:?}",
        rig.all_drops()
    );
    // There are three sessions: one of the callee, one of the caller, and the hairpinned one of the caller.
    assert_eq!((3, 3), (result(&rig, "opened"), pending(&rig)));
}

//! Tests of the lifetimes of sessions, on a virtual clock, and of the resources that ending sessions release.

use std::net::SocketAddrV4;

use crate::rig::{self, HOST, INSIDE, OUTSIDE, Plan, Rig};
use sluice_engine::worker::request::{Filter, SessionInfo};
use sluice_nat::timeout::Timeouts;
use sluice_nat::{Pool, Pools};
use sluice_testkit::packet::{self, Frame, flag};

fn remote() -> SocketAddrV4 {
    "198.51.100.7:80".parse().unwrap()
}

fn inside() -> SocketAddrV4 {
    "192.168.1.10:40000".parse().unwrap()
}

fn only(rig: &mut Rig) -> SessionInfo {
    let sessions = rig.sessions(Filter::default());
    assert_eq!(1, sessions.len());
    sessions[0]
}

/// Checks that the session ends after exactly `seconds` further seconds.
#[track_caller]
fn ends_after(rig: &mut Rig, seconds: u64) {
    rig.seconds(seconds - 1);
    assert_eq!(1, rig.live(), "too early");
    rig.seconds(2);
    assert_eq!(0, rig.live(), "too late");
}

fn segment(from_host: bool, public: SocketAddrV4, flags: u8, numbers: (u32, u32)) -> Frame {
    let frame = if from_host {
        packet::tcp4(inside(), remote())
    } else {
        packet::tcp4(remote(), public)
    };
    frame.flags(flags).numbers(numbers.0, numbers.1)
}

/// Opens a connection with a three-way handshake. Returns its public source.
fn connected(rig: &mut Rig) -> SocketAddrV4 {
    let public = rig.public(&segment(true, remote(), flag::SYN, (100, 0)));
    assert_eq!(
        1,
        rig.router_sends(&segment(false, public, flag::SYN | flag::ACK, (500, 101)))
            .len()
    );
    assert_eq!(1, rig.host_sends(&segment(true, public, flag::ACK, (101, 501))).len());
    public
}

#[test]
fn rfc4787_req5c_udp_session_ends_after_300_seconds_and_its_traffic_keeps_it() {
    let mut rig = Rig::new(Plan::default());
    let question = packet::udp4(inside(), remote());
    let public = rig.public(&question);
    rig.seconds(299);
    assert_eq!(public, rig.public(&question));
    rig.seconds(299);
    assert_eq!(1, rig.router_sends(&packet::udp4(remote(), public)).len());
    ends_after(&mut rig, 300);
    assert!(rig.router_sends(&packet::udp4(remote(), public)).is_empty());
    assert_eq!(1, rig.drops("unsolicited"));
}

#[test]
fn rfc4787_req6a_udp_session_that_inbound_does_not_refresh_ends_under_inbound_traffic() {
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| {
            let pool = Pool {
                timeouts: Timeouts {
                    inbound_refresh: false,
                    udp_by_port: vec![(53, 30)],
                    ..Timeouts::default()
                },
                ..Pool::new(rig::POOL.to_bits(), rig::POOL.to_bits())
            };
            snapshot.nat4.pools = Pools::new(&[pool]).unwrap();
        },
        ..Plan::default()
    });
    let public = rig.public(&packet::udp4(inside(), remote()));
    rig.seconds(200);
    assert_eq!(1, rig.router_sends(&packet::udp4(remote(), public)).len());
    ends_after(&mut rig, 100);
    // Port 53 has a separate timeout.
    let resolver: SocketAddrV4 = "198.51.100.7:53".parse().unwrap();
    rig.public(&packet::udp4(inside(), resolver));
    ends_after(&mut rig, 30);
}

#[test]
fn rfc5508_req2_echo_session_ends_after_60_seconds() {
    let mut rig = Rig::new(Plan::default());
    rig.public(&packet::icmp4_echo(HOST, "198.51.100.7", 7, 1));
    ends_after(&mut rig, 60);
}

#[test]
fn rfc5382_req5_tcp_session_half_open_ends_after_240_seconds() {
    let mut rig = Rig::new(Plan::default());
    rig.public(&segment(true, remote(), flag::SYN, (100, 0)));
    assert_eq!(Some("SYN_SENT"), only(&mut rig).state);
    ends_after(&mut rig, 240);
}

#[test]
fn rfc5382_req5_tcp_session_established_ends_after_7440_seconds() {
    let mut rig = Rig::new(Plan::default());
    connected(&mut rig);
    let shown = only(&mut rig);
    assert_eq!((Some("ESTABLISHED"), 7440), (shown.state, shown.seconds_left));
    ends_after(&mut rig, 7440);
}

#[test]
fn rfc5382_req5_rfc7857_section2_2_tcp_session_reset_or_closed_ends_after_240_seconds() {
    for ends in ["reset", "closed"] {
        let mut rig = Rig::new(Plan::default());
        let public = connected(&mut rig);
        rig.seconds(1000);
        if ends == "reset" {
            assert_eq!(1, rig.router_sends(&segment(false, public, flag::RST, (501, 0))).len());
        } else {
            let last = flag::FIN | flag::ACK;
            assert_eq!(1, rig.host_sends(&segment(true, public, last, (101, 501))).len());
            assert_eq!(1, rig.router_sends(&segment(false, public, last, (501, 102))).len());
            assert_eq!(1, rig.host_sends(&segment(true, public, flag::ACK, (102, 502))).len());
        }
        assert_eq!(240, only(&mut rig).seconds_left, "{ends}");
        ends_after(&mut rig, 240);
    }
}

#[test]
fn rfc7857_section2_2_reset_far_outside_the_window_passes_and_changes_nothing() {
    let mut rig = Rig::new(Plan::default());
    let public = connected(&mut rig);
    assert_eq!(
        1,
        rig.router_sends(&segment(false, public, flag::RST, (0x9000_0000, 0)))
            .len()
    );
    assert_eq!(7440, only(&mut rig).seconds_left);
}

#[test]
fn sessions_that_expire_give_everything_back() {
    let mut rig = Rig::new(Plan {
        pool: vec![(rig::POOL.to_bits(), rig::POOL.to_bits())],
        pool_ports: (1024, 1024 + 1023),
        ..Plan::default()
    });
    let before = rig.uses(INSIDE, HOST);
    for round in 0..3u16 {
        for port in 0..800 {
            let source = SocketAddrV4::new(*inside().ip(), 10_000 + port);
            rig.send(
                INSIDE,
                &packet::udp4(source, remote())
                    .macs(rig::HOST_MAC, rig::INSIDE_MAC)
                    .build(),
            );
        }
        let made = rig.live();
        assert!(made >= 200, "round {round}: {made}");
        assert_eq!(before + made as u32, rig.uses(INSIDE, HOST));
        rig.seconds(310);
        assert_eq!(0, rig.live());
        assert_eq!(before, rig.uses(INSIDE, HOST));
        assert_eq!(1, rig.uses(OUTSIDE, "203.0.113.254"));
        // According to RFC 6888, REQ-8, the ports stay in quarantine before they are allocated again.
        rig.seconds(120);
    }
    let counters = &rig.plane.counters()[0];
    assert_eq!(counters.sessions_created.get(), counters.sessions_ended.get());
}

#[test]
fn worker_whose_timers_are_behind_does_not_want_to_sleep() {
    let mut rig = Rig::new(Plan {
        shards: 1,
        ..Plan::default()
    });
    for port in 0..1000 {
        let question = packet::udp4(SocketAddrV4::new(*inside().ip(), 20_000 + port), remote());
        assert_eq!(1, rig.host_sends(&question).len());
    }
    assert_eq!(1000, rig.live());
    rig.now = sluice_engine::packet::time::Now::at(rig.now.nanoseconds + 400_000_000_000);
    let mut rounds = 0;
    while rig.workers[0].round(rig.now) != 0 || rig.workers[0].is_answering() {
        rounds += 1;
    }
    assert_eq!(0, rig.live(), "it would have slept after {rounds} rounds");
}

#[test]
fn shard_with_many_sessions_to_end_leaves_turns_to_the_others() {
    // The worker runs the timers of one shard per round. The test is repeated, so that every shard is served once at
    // the time when the sessions expire.
    for lead in 0..4 {
        let mut rig = Rig::new(Plan {
            sessions: 65_536,
            ..Plan::default()
        });
        let opened = |rig: &mut Rig, host: &str, ports: std::ops::Range<u16>| {
            rig.know(INSIDE, rig::plain(host), rig::HOST_MAC);
            for port in ports {
                let question = packet::udp4(SocketAddrV4::new(host.parse().unwrap(), port), remote());
                assert_eq!(1, rig.host_sends(&question).len());
            }
        };
        // All flows of a host belong to one shard.
        opened(&mut rig, HOST, 20_000..26_000);
        let busy = rig.sessions(Filter::default())[0].shard;
        let others: Vec<_> = (20..40).map(|last| format!("192.168.1.{last}")).collect();
        others.iter().for_each(|host| opened(&mut rig, host, 20_000..20_001));
        let beside = rig
            .sessions(Filter::default())
            .iter()
            .filter(|shown| shown.shard != busy)
            .count() as u64;
        let all = rig.live();
        rig.seconds(290);
        assert_eq!(all, rig.live());
        for _ in 0..lead {
            rig.workers[0].round(rig.now);
        }
        rig.now = sluice_engine::packet::time::Now::at(rig.now.nanoseconds + 20_000_000_000);
        for _ in 0..40 {
            rig.workers[0].round(rig.now);
        }
        // The busy shard ends 128 sessions per round, and each of the other shards ends all of its sessions.
        let ended = rig.plane.counters()[0].sessions_ended.get();
        assert!(beside > 0 && all > ended, "{beside} beside, {ended} of {all} ended");
        assert_eq!(beside, ended % 128, "{ended} ended, with a lead of {lead}");
    }
}

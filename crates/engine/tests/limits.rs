//! Full tables and pools: the new is refused and told so, what exists goes on.

mod rig;

use std::net::SocketAddrV4;

use rig::{OUTSIDE, Plan, Rig, flow};
use sluice_engine::request::Filter;
use sluice_testkit::packet;

fn remote() -> SocketAddrV4 {
    "198.51.100.7:53".parse().unwrap()
}

fn inside(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new("192.168.1.10".parse().unwrap(), port)
}

/// Open flows from port 1 on; how many got through, and that every other was told that its host is unreachable.
fn open(rig: &mut Rig, count: u16, reason: &str) -> Vec<(u16, SocketAddrV4)> {
    let mut through = Vec::new();
    for port in 1..=count {
        rig.pass(10);
        let sent = rig.host_sends(&packet::udp4(inside(port), remote()));
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        if sent[0].port == OUTSIDE {
            through.push((port, flow(&sent[0].frame).0));
        } else {
            assert_eq!(&[3, 1], &sent[0].frame[34..36]);
            assert!(rig::is_valid(&sent[0].frame));
        }
    }
    assert_eq!(u64::from(count) - through.len() as u64, rig.drops(reason));
    through
}

#[track_caller]
fn all_still_answered(rig: &mut Rig, through: &[(u16, SocketAddrV4)]) {
    for &(port, public) in through {
        let sent = rig.router_sends(&packet::udp4(remote(), public));
        assert_eq!(1, sent.len());
        assert_eq!((remote(), inside(port)), flow(&sent[0].frame));
    }
}

#[test]
fn rfc6888_req11_session_table_full_refuses_the_new_and_keeps_the_old() {
    let mut rig = Rig::new(Plan {
        shards: 1,
        sessions: 10,
        ..Plan::default()
    });
    let through = open(&mut rig, 30, "sessions-full");
    assert_eq!(10, through.len());
    all_still_answered(&mut rig, &through);
    assert_eq!(10, rig.live());
    // A refused flow has kept no port: once there is room there are as many again.
    rig.seconds(310);
    assert_eq!(0, rig.live());
    let sent = rig.host_sends(&packet::udp4(inside(1), remote()));
    assert_eq!(OUTSIDE, sent[0].port);
}

#[test]
fn rfc6888_req11_pool_exhausted_refuses_the_new_and_keeps_the_old() {
    let mut rig = Rig::new(Plan {
        shards: 1,
        pool: vec![(rig::POOL.to_bits(), rig::POOL.to_bits())],
        pool_ports: (2000, 2019),
        ..Plan::default()
    });
    let through = open(&mut rig, 50, "ports-exhausted");
    assert_eq!(20, through.len());
    assert!(through.iter().all(|(_, public)| (2000..=2019).contains(&public.port())));
    all_still_answered(&mut rig, &through);
    assert_eq!(20, rig.sessions(Filter::default()).len());
    // Each protocol has all ports.
    let ping = packet::icmp4_echo("192.168.1.10", "198.51.100.7", 7, 1);
    assert_eq!(OUTSIDE, rig.host_sends(&ping)[0].port);
    // The sessions end, and their ports wait a while longer (RFC 6888, REQ-8).
    rig.seconds(310);
    assert_eq!(rig::INSIDE, rig.host_sends(&packet::udp4(inside(60), remote()))[0].port);
    rig.seconds(130);
    assert_eq!(OUTSIDE, rig.host_sends(&packet::udp4(inside(60), remote()))[0].port);
}

#[test]
fn rfc5508_req10f_errors_about_a_flood_are_limited_and_every_packet_is_counted() {
    let mut rig = Rig::new(Plan {
        shards: 1,
        sessions: 1,
        ..Plan::default()
    });
    rig.public(&packet::udp4(inside(1), remote()));
    let mut errors = 0;
    for port in 2..1002 {
        errors += rig.host_sends(&packet::udp4(inside(port), remote())).len();
    }
    assert_eq!(200, errors, "the burst of the class");
    assert_eq!(vec![("sessions-full", 1000)], rig.all_drops());
}

#[test]
fn device_that_takes_no_frames_is_counted_and_nothing_counts_as_sent() {
    let mut rig = Rig::new(Plan::default());
    rig.public(&packet::udp4(inside(1), remote()));
    let sent = |rig: &Rig| {
        let counters = &rig.plane.counters()[0].interfaces[OUTSIDE as usize];
        (counters.sent.get(), counters.sent_bytes.get())
    };
    let before = sent(&rig);
    rig.wires[0].limit_transmit(0);
    assert!(rig.host_sends(&packet::udp4(inside(1), remote())).is_empty());
    assert_eq!(vec![("transmit-full", 1)], rig.all_drops());
    assert_eq!(before, sent(&rig));
}

#[test]
fn pool_of_buffers_exhausted_the_question_for_a_neighbour_is_asked_later() {
    let mut rig = Rig::new(Plan {
        known_neighbours: false,
        ..Plan::default()
    });
    rig.wires[0].limit_allocate(0);
    assert!(rig.host_sends(&packet::udp4(inside(1), remote())).is_empty());
    rig.wires[0].limit_allocate(usize::MAX);
    rig.pass(1200);
    let sent = rig.sent();
    assert_eq!(1, sent.len());
    assert_eq!([0x08, 0x06], sent[0].frame[12..14]);
    assert_eq!(OUTSIDE, sent[0].port);
}

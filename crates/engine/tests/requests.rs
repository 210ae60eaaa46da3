//! Tests of requests of the control thread during traffic: lists, clearing, traces, captures.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;

use crate::rig::{self, HOST, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, Plan, Rig};
use sluice_engine::worker::capture::{CaptureFilter, CapturePoint, Tap};
use sluice_engine::worker::request::{Cursor, Filter, Reply, Request};
use sluice_engine::worker::trace::Tracer;
use sluice_testkit::packet::{self, Frame, flag};
use sluice_wire::Checksums;

fn remote() -> SocketAddrV4 {
    "198.51.100.7:53".parse().unwrap()
}

fn question(port: u16) -> Frame {
    packet::udp4(SocketAddrV4::new(HOST.parse().unwrap(), port), remote()).macs(HOST_MAC, INSIDE_MAC)
}

/// A plan in which the table has entries for all sessions of one host. These sessions belong to one shard.
fn roomy() -> Plan {
    Plan {
        sessions: 16_384,
        ..Plan::default()
    }
}

fn opened(sessions: u16, plan: Plan) -> Rig {
    let mut rig = Rig::new(plan);
    for port in 0..sessions {
        rig.wires[0].inject(INSIDE, &question(1000 + port).build(), Checksums::Unverified);
    }
    rig.round();
    assert_eq!(usize::from(sessions), rig.sent().len(), "{:?}", rig.all_drops());
    rig
}

/// Lists sessions with memory for `capacity` records in each part of the list, and sends packets between two parts.
fn list(rig: &mut Rig, worker: usize, filter: Filter, capacity: usize) -> Vec<u16> {
    let mut ports = Vec::new();
    let mut cursor = Some(Cursor::default());
    while let Some(from) = cursor {
        let request = Request::List {
            cursor: from,
            filter,
            into: Vec::with_capacity(capacity),
        };
        let Reply::Listed { next, sessions } = rig.ask(worker, request) else {
            panic!("not a list")
        };
        assert!(sessions.len() <= capacity);
        ports.extend(sessions.iter().map(|shown| shown.forward.source_port));
        cursor = next;
        rig.host_sends(&question(1000));
    }
    ports
}

#[test]
fn list_shows_every_session_once_whatever_memory_it_is_given() {
    let mut rig = opened(3000, roomy());
    for capacity in [1, 10, 64, 100, 5000] {
        let ports = list(&mut rig, 0, Filter::default(), capacity);
        assert_eq!(3000, ports.len(), "{capacity}");
        assert_eq!((1000..4000).collect::<BTreeSet<_>>(), ports.into_iter().collect());
    }
}

#[test]
fn list_with_a_filter_shows_what_it_asks_for_of_every_worker() {
    let mut rig = opened(
        500,
        Plan {
            workers: 4,
            ..Plan::default()
        },
    );
    let filter = Filter {
        source: Some(HOST.parse().unwrap()),
        source_port: Some(1234),
        protocol: Some(17),
        reply_source: Some((*remote().ip()).into()),
        ..Filter::default()
    };
    let found: Vec<_> = (0..4).flat_map(|worker| list(&mut rig, worker, filter, 100)).collect();
    assert_eq!(vec![1234], found);
    let other = Filter {
        protocol: Some(6),
        ..Filter::default()
    };
    assert!((0..4).all(|worker| list(&mut rig, worker, other, 100).is_empty()));
}

#[test]
fn clear_with_a_filter_ends_what_it_asks_for_and_traffic_goes_on() {
    let mut rig = opened(3000, roomy());
    let filter = Filter {
        destination: Some((*remote().ip()).into()),
        source_port: Some(1500),
        ..Filter::default()
    };
    let clear = |filter| Request::Clear {
        cursor: Cursor::default(),
        filter,
        ended: 0,
    };
    assert!(matches!(rig.ask(0, clear(filter)), Reply::Cleared(1)));
    assert_eq!(2999, rig.live());
    assert_eq!(OUTSIDE, rig.host_sends(&question(1500))[0].port);
    assert!(matches!(rig.ask(0, clear(Filter::default())), Reply::Cleared(3000)));
    assert_eq!(0, rig.live());
    assert_eq!(OUTSIDE, rig.host_sends(&question(1500))[0].port);
}

#[test]
fn trace_shows_the_nodes_of_the_first_packets_that_match() {
    let mut rig = Rig::new(Plan::default());
    let filter = Filter {
        source: Some(HOST.parse().unwrap()),
        ..Filter::default()
    };
    rig.ask(0, Request::Trace(Box::new(Tracer::new(filter, 3))));
    rig.router_sends(&packet::udp4(
        remote(),
        "203.0.113.10:1".parse::<SocketAddrV4>().unwrap(),
    ));
    rig.host_sends(&question(1000));
    rig.host_sends(&question(1000));
    let stray = packet::tcp4("192.168.1.10:1".parse::<SocketAddrV4>().unwrap(), remote()).flags(flag::ACK);
    rig.host_sends(&stray);
    rig.host_sends(&question(1000));
    let Reply::Traced(Some(tracer)) = rig.ask(0, Request::EndTrace) else {
        panic!("no trace")
    };
    assert!(tracer.is_full());
    let adjacencies: Vec<Vec<_>> = tracer
        .traces()
        .iter()
        .map(|way| way.steps.iter().map(|step| (step.node, step.exit)).collect())
        .collect();
    let first = vec![
        ("parse", "session-lookup"),
        ("session-lookup", "slow-path"),
        ("slow-path", "session-lookup"),
        ("session-lookup", "transmit"),
    ];
    let second = vec![("parse", "session-lookup"), ("session-lookup", "transmit")];
    let third = vec![
        ("parse", "session-lookup"),
        ("session-lookup", "slow-path"),
        ("slow-path", "tcp-not-opening"),
    ];
    assert_eq!(vec![first, second, third], adjacencies);
    assert_eq!(question(1000).build()[..], tracer.traces()[0].bytes[..]);
    assert!(tracer.traces().iter().all(|way| way.interface == INSIDE));
}

#[test]
fn trace_of_a_damaged_frame_is_not_taken_for_the_packet_before_it() {
    let mut rig = Rig::new(Plan::default());
    rig.host_sends(&question(1000));
    let filter = Filter {
        source_port: Some(1000),
        ..Filter::default()
    };
    rig.ask(0, Request::Trace(Box::new(Tracer::new(filter, 9))));
    let mut damaged = question(1000).build();
    damaged[14] = 0x46;
    damaged.truncate(36);
    rig.send(INSIDE, &damaged);
    let Reply::Traced(Some(tracer)) = rig.ask(0, Request::EndTrace) else {
        panic!("no trace")
    };
    assert!(tracer.traces().is_empty(), "{:?}", tracer.traces());
}

#[test]
fn capture_of_an_interface_has_what_came_and_what_went() {
    let mut rig = Rig::new(Plan::default());
    rig.ask(
        0,
        Request::Capture(Box::new(Tap::new(CaptureFilter::Interface(OUTSIDE), 10, 60))),
    );
    let sent = rig.host_sends(&question(1000));
    let public = rig::flow(&sent[0].frame).0;
    let answer = packet::udp4(remote(), public).payload(&[7; 100]);
    rig.router_sends(&answer);
    let Reply::Captured(Some(tap)) = rig.ask(0, Request::EndCapture) else {
        panic!("no capture")
    };
    let frames: Vec<_> = tap.frames().collect();
    assert_eq!(2, frames.len());
    assert_eq!(
        (CapturePoint::Sent, &sent[0].frame[..]),
        (frames[0].0.seen, frames[0].1)
    );
    assert_eq!((CapturePoint::Received, 142), (frames[1].0.seen, frames[1].0.length));
    assert_eq!(60, frames[1].1.len());
    assert_eq!(0, tap.missed);
}

#[test]
fn capture_of_all_that_is_received_has_every_interface_and_nothing_that_went() {
    let mut rig = Rig::new(Plan::default());
    rig.ask(
        0,
        Request::Capture(Box::new(Tap::new(CaptureFilter::Received, 10, 200))),
    );
    let sent = rig.host_sends(&question(1000));
    let public = rig::flow(&sent[0].frame).0;
    rig.router_sends(&packet::udp4(remote(), public).payload(&[7; 100]));
    let Reply::Captured(Some(tap)) = rig.ask(0, Request::EndCapture) else {
        panic!("no capture")
    };
    let seen: Vec<_> = tap
        .frames()
        .map(|(copied, _)| (copied.interface, copied.seen))
        .collect();
    assert_eq!(
        vec![(INSIDE, CapturePoint::Received), (OUTSIDE, CapturePoint::Received)],
        seen
    );
}

#[test]
fn capture_of_drops_has_the_reason_and_counts_what_it_missed() {
    let mut rig = Rig::new(Plan::default());
    rig.ask(0, Request::Capture(Box::new(Tap::new(CaptureFilter::Drops, 2, 200))));
    rig.host_sends(&question(1000));
    let stray = packet::udp4(remote(), "203.0.113.10:1".parse::<SocketAddrV4>().unwrap());
    (0..5).for_each(|_| drop(rig.router_sends(&stray)));
    let Reply::Captured(Some(tap)) = rig.ask(0, Request::EndCapture) else {
        panic!("no capture")
    };
    assert!(tap.is_full());
    assert_eq!(3, tap.missed);
    for (copied, bytes) in tap.frames() {
        let CapturePoint::Dropped(reason) = copied.seen else {
            panic!("not a drop")
        };
        assert_eq!(("unsolicited", OUTSIDE), (reason.name(), copied.interface));
        assert_eq!(stray.clone().macs(rig::ROUTER_MAC, rig::OUTSIDE_MAC).build(), bytes);
    }
}

#[test]
fn port_is_received_from_only_while_it_was_renewed_with_a_queue() {
    let mut rig = Rig::new(Plan::default());
    assert_eq!(1, rig.host_sends(&question(1000)).len());
    for port in [INSIDE, 77] {
        let renew = Request::RenewPort { port, receives: false };
        let expected = if port == INSIDE { "Done" } else { "Refused" };
        assert_eq!(expected, format!("{:?}", rig.ask(0, renew)));
    }
    assert_eq!(0, rig.host_sends(&question(1001)).len(), "it waits in the device");
    let renew = Request::RenewPort {
        port: INSIDE,
        receives: true,
    };
    assert!(matches!(rig.ask(0, renew), Reply::Done));
    rig.round();
    assert_eq!(1, rig.sent().len());
}

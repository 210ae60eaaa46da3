//! Tests that the packets of a batch create the same sessions as if the packets arrived one by one.

use std::net::SocketAddrV4;

use crate::rig::{self, HOST, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, Plan, Rig, flow};
use sluice_testkit::packet::{self, Frame, flag};
use sluice_wire::Checksums;

fn remote() -> SocketAddrV4 {
    "198.51.100.7:53".parse().unwrap()
}

fn inside(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(HOST.parse().unwrap(), port)
}

fn datagram(port: u16) -> Frame {
    packet::udp4(inside(port), remote())
}

fn one_shard() -> Plan {
    Plan {
        shards: 1,
        ..Plan::default()
    }
}

fn few_ports() -> Plan {
    Plan {
        pool: vec![(rig::POOL.to_bits(), rig::POOL.to_bits())],
        pool_ports: (2000, 2019),
        ..one_shard()
    }
}

/// Sends frames of the inside host in batches of this size. Returns the frames that left outside, in order.
fn send(rig: &mut Rig, frames: &[Frame], batch: usize) -> Vec<Vec<u8>> {
    let mut sent = Vec::new();
    for frames in frames.chunks(batch) {
        for frame in frames {
            let frame = frame.clone().macs(HOST_MAC, INSIDE_MAC).build();
            rig.wires[0].inject(INSIDE, &frame, Checksums::Unverified);
        }
        rig.round();
        sent.extend(
            rig.sent()
                .into_iter()
                .filter(|sent| sent.port == OUTSIDE)
                .map(|sent| sent.frame),
        );
    }
    sent
}

/// Sends frames in one batch, and compares the result with the result of sending them one by one.
#[track_caller]
fn assert_alone_and_together_alike(plan: fn() -> Plan, frames: &[Frame]) -> (Rig, Vec<Vec<u8>>) {
    let (mut alone, mut together) = (Rig::new(plan()), Rig::new(plan()));
    let expected = send(&mut alone, frames, 1);
    let sent = send(&mut together, frames, 64);
    assert_eq!(expected, sent);
    assert_eq!(alone.all_drops(), together.all_drops());
    assert_eq!(alone.live(), together.live());
    for (interface, neighbour) in [(INSIDE, HOST), (OUTSIDE, "203.0.113.254")] {
        assert_eq!(alone.uses(interface, neighbour), together.uses(interface, neighbour));
    }
    (together, sent)
}

#[test]
fn batch_with_several_packets_of_a_flow_opens_one_session_and_keeps_their_order() {
    let mut frames = Vec::new();
    for number in 0..8 {
        frames.push(datagram(1000).payload(&[number; 8]));
        frames.push(datagram(2000 + u16::from(number % 3)).payload(&[number; 8]));
    }
    let (rig, sent) = assert_alone_and_together_alike(Plan::default, &frames);
    assert_eq!(4, rig.live());
    let public = flow(&sent[0]).0;
    let numbers: Vec<_> = sent
        .iter()
        .filter(|frame| flow(frame).0 == public)
        .map(|frame| frame[42])
        .collect();
    assert_eq!((0..8).collect::<Vec<_>>(), numbers);
}

#[test]
fn batch_whose_flow_begins_with_what_opens_nothing_goes_on_with_what_does() {
    let tcp = |flags| packet::tcp4(inside(1000), remote()).flags(flags);
    let frames = [
        tcp(flag::ACK),
        tcp(flag::SYN),
        tcp(flag::ACK),
        datagram(1000),
        datagram(1001).ttl(1),
        datagram(1001),
    ];
    let (rig, sent) = assert_alone_and_together_alike(one_shard, &frames);
    assert_eq!((3, 4), (rig.live(), sent.len()));
    assert_eq!((1, 1), (rig.drops("tcp-not-opening"), rig.drops("ttl-exceeded")));
}

#[test]
fn batch_larger_than_the_free_ports_is_refused_packet_by_packet() {
    // Hosts with refused flows send again within the batch, and each of their packets is refused.
    let frames: Vec<_> = (0..64).map(|number| datagram(1000 + number % 30)).collect();
    let (rig, _) = assert_alone_and_together_alike(few_ports, &frames);
    assert_eq!(20, rig.live());
    let refused = (0..64).filter(|number| number % 30 >= 20).count();
    assert_eq!(vec![("ports-exhausted", refused as u64)], rig.all_drops());
}

#[test]
fn batch_larger_than_the_table_is_refused_and_keeps_no_port() {
    fn small() -> Plan {
        Plan {
            sessions: 10,
            ..few_ports()
        }
    }
    let frames: Vec<_> = (0..60).map(|number| datagram(1000 + number)).collect();
    let (mut rig, _) = assert_alone_and_together_alike(small, &frames);
    assert_eq!(10, rig.live());
    assert_eq!(vec![("sessions-full", 50)], rig.all_drops());
    // The pool has twice as many ports as sessions are possible. If refused packets kept their ports, the second
    // iteration would exhaust the pool.
    for _ in 0..2 {
        rig.seconds(310);
        assert_eq!(0, rig.live());
        assert_eq!(10, send(&mut rig, &frames, 64).len());
    }
    assert_eq!(vec![("sessions-full", 150)], rig.all_drops());
}

#[test]
fn sessions_that_end_together_give_back_ports_and_neighbours() {
    let mut rig = Rig::new(one_shard());
    let neighbours = [(INSIDE, HOST), (OUTSIDE, "203.0.113.254")];
    // One packet is sent first, so that the routes already reference their neighbours.
    send(&mut rig, &[datagram(1)], 1);
    rig.seconds(310);
    let before = neighbours.map(|(interface, address)| rig.uses(interface, address));
    let frames: Vec<_> = (0..1000).map(|number| datagram(1000 + number)).collect();
    for _ in 0..3 {
        assert_eq!(1000, send(&mut rig, &frames, 64).len());
        let held = neighbours.map(|(interface, address)| rig.uses(interface, address));
        assert_eq!(before.map(|uses| uses + 1000), held);
        rig.seconds(310);
        assert_eq!(0, rig.live());
        let after = neighbours.map(|(interface, address)| rig.uses(interface, address));
        assert_eq!(before, after);
    }
    assert!(rig.all_drops().is_empty());
}

//! Tests with several workers. For equal input, the output and the order of the packets in each flow don't depend on
//! which worker receives the frames.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig, plain};
use sluice_nat::rule::{DestinationAction, DestinationRule, Prefix};
use sluice_testkit::packet::{self, flag};
use sluice_wire::Checksums;

fn host(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 168, 1, 10 + number)
}

fn remote(number: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, number), 80)
}

/// Sent frames in order, by wire and flow. Sequence numbers show the order within a flow.
type Output = BTreeMap<(u16, Vec<u8>), Vec<Vec<u8>>>;

/// Addresses and ports of a frame, as bytes.
fn name(frame: &[u8]) -> Vec<u8> {
    frame[26..38].to_vec()
}

fn plan(workers: usize) -> Plan {
    Plan {
        workers,
        shards: 8,
        forwards: vec![DestinationRule {
            context: 0,
            protocol: Some(6),
            external: Prefix::host(Ipv4Addr::new(203, 0, 113, 20).to_bits()),
            ports: Some((80, 80)),
            inbound: None,
            action: DestinationAction::Host(host(0).to_bits(), Some(8080)),
        }],
        ..Plan::default()
    }
}

fn ready(mut plan: Plan, change: impl FnOnce(&mut Plan)) -> Rig {
    change(&mut plan);
    let mut rig = Rig::new(plan);
    for number in 0..8 {
        rig.know(INSIDE, plain(&host(number).to_string()), HOST_MAC);
    }
    rig
}

/// Traffic between eight hosts and their remote hosts. The function `deal` distributes the frames to the workers.
fn traffic(rig: &mut Rig, mut deal: impl FnMut(usize) -> usize) -> Output {
    let mut output = Output::new();
    let mut count = 0;
    let mut send = |rig: &mut Rig, interface, frame: Vec<u8>| {
        count += 1;
        rig.wires[deal(count) % rig.workers.len()].inject(interface, &frame, Checksums::Unverified);
    };
    let outward = |frame: packet::Frame| frame.macs(HOST_MAC, INSIDE_MAC).build();
    let mut publics = BTreeMap::new();
    for sequence in 0..6u32 {
        for number in 0..8 {
            for port in 0..4u16 {
                let source = SocketAddrV4::new(host(number), 1000 + port);
                let flags = if sequence == 0 { flag::SYN } else { flag::ACK };
                let frame = packet::tcp4(source, remote(number)).flags(flags).numbers(sequence, 0);
                send(rig, INSIDE, outward(frame));
            }
        }
        rig.round();
        for sent in rig.sent() {
            if sent.port == OUTSIDE {
                let (public, remote) = rig::flow(&sent.frame);
                publics.insert(public, remote);
            }
            output
                .entry((sent.port, name(&sent.frame)))
                .or_default()
                .push(sent.frame);
        }
        for (&public, &remote) in &publics {
            let frame = packet::tcp4(remote, public)
                .flags(flag::SYN | flag::ACK)
                .numbers(sequence, 0);
            send(rig, OUTSIDE, frame.macs(ROUTER_MAC, OUTSIDE_MAC).build());
            let quoted = packet::tcp4(public, remote).build();
            let error = packet::icmp4_error(*remote.ip(), *public.ip(), 11, 0, &quoted, 60);
            send(rig, OUTSIDE, error.macs(ROUTER_MAC, OUTSIDE_MAC).build());
        }
        let external: SocketAddrV4 = "203.0.113.20:80".parse().unwrap();
        let frame = packet::tcp4(remote(99), external).flags(flag::SYN).numbers(sequence, 0);
        send(rig, OUTSIDE, frame.macs(ROUTER_MAC, OUTSIDE_MAC).build());
        // Packets that only the owner worker can process: errors, echo requests, fragments.
        send(
            rig,
            INSIDE,
            outward(packet::udp4(SocketAddrV4::new(host(1), 9), remote(1)).ttl(1)),
        );
        send(
            rig,
            INSIDE,
            outward(packet::icmp4_echo(
                host(2),
                Ipv4Addr::new(192, 168, 1, 1),
                5,
                sequence as u16,
            )),
        );
        let first = packet::udp4(SocketAddrV4::new(host(3), 9), remote(3)).payload(&[1; 24]);
        let mut later = first.clone().payload(&[2; 20]);
        later.transport = packet::Transport::Raw(packet::IpNumber(17));
        send(rig, INSIDE, outward(later.fragment(4, false, sequence)));
        send(rig, INSIDE, outward(first.fragment(0, true, sequence)));
        rig.round();
        for sent in rig.sent() {
            output
                .entry((sent.port, name(&sent.frame)))
                .or_default()
                .push(sent.frame);
        }
    }
    output
}

#[test]
fn same_frames_give_the_same_bytes_in_order_with_any_number_of_workers() {
    let alone = traffic(&mut ready(plan(1), |_| {}), |_| 0);
    assert!(alone.len() > 32 * 2, "{}", alone.len());
    for workers in [2, 4] {
        let mut rig = ready(plan(workers), |_| {});
        // The frames arrive at the workers in turn, two consecutive frames at each worker. The frames of a flow keep
        // their order only if they arrive in one queue.
        let together = traffic(&mut rig, |count| count % 8 / 2);
        assert_eq!(alone.len(), together.len());
        for (flow, frames) in &alone {
            let mut theirs = together[flow].clone();
            let mut ours = frames.clone();
            theirs.sort();
            ours.sort();
            assert_eq!(ours, theirs, "{flow:?}");
        }
        let (given, taken) = rig.plane.counters().iter().fold((0, 0), |(given, taken), c| {
            (given + c.all_handed_off(), taken + c.taken_over.get())
        });
        assert!(given > 0);
        assert_eq!(given, taken);
        assert!(
            rig.all_drops().iter().all(|(name, _)| *name == "ttl-exceeded"),
            "{:?}",
            rig.all_drops()
        );
    }
}

#[test]
fn flow_that_arrives_at_the_wrong_worker_keeps_its_order() {
    for wrong in 0..4 {
        let mut rig = ready(plan(4), |_| {});
        let source = SocketAddrV4::new(host(1), 1000);
        let frame = |sequence, flags| {
            packet::tcp4(source, remote(1))
                .flags(flags)
                .numbers(sequence, 0)
                .macs(HOST_MAC, INSIDE_MAC)
                .build()
        };
        rig.send_at(wrong, INSIDE, &frame(0, flag::SYN));
        for sequence in 1..200 {
            rig.wires[wrong].inject(INSIDE, &frame(sequence, flag::ACK), Checksums::Unverified);
        }
        rig.round();
        let sequences: Vec<_> = rig
            .sent()
            .iter()
            .map(|sent| u32::from_be_bytes(sent.frame[38..42].try_into().unwrap()))
            .collect();
        assert_eq!((1..200).collect::<Vec<_>>(), sequences);
    }
}

#[test]
fn ring_that_is_full_drops_by_name_and_loses_nothing_else() {
    let mut rig = ready(plan(4), |plan| plan.ring = 5);
    for number in 0..8 {
        for port in 0..16 {
            let frame = packet::udp4(SocketAddrV4::new(host(number), 1000 + port), remote(1));
            rig.wires[0].inject(INSIDE, &frame.macs(HOST_MAC, INSIDE_MAC).build(), Checksums::Unverified);
        }
    }
    rig.round();
    let sent = rig.sent().len() as u64;
    let dropped = rig.drops("handover-full");
    assert!(dropped > 0);
    assert_eq!(128, sent + dropped, "{:?}", rig.all_drops());
}

#[test]
fn port_with_one_queue_is_sent_by_the_worker_that_has_it() {
    for workers in [1, 2, 4] {
        let mut rig = ready(plan(workers), |plan| plan.senders = vec![plan.workers as u16 - 1]);
        let output = traffic(&mut rig, |count| count);
        assert!(output.len() > 32 * 2);
        for (worker, counters) in rig.plane.counters().iter().enumerate() {
            let sent: u64 = counters.interfaces.iter().map(|i| i.sent.get()).sum();
            assert_eq!(worker == workers - 1, sent > 0, "{worker} of {workers}");
        }
    }
}

#[test]
fn neighbour_unknown_is_asked_for_by_the_owner_whoever_needs_it() {
    for worker in 0..4 {
        let mut rig = Rig::new(Plan {
            known_neighbours: false,
            ..plan(4)
        });
        let frame = packet::udp4("192.168.1.10:5000", "198.51.100.7:53");
        let sent = rig.send_at(worker, INSIDE, &frame.macs(HOST_MAC, INSIDE_MAC).build());
        assert_eq!(1, sent.len());
        let reply = packet::arp_reply(ROUTER_MAC, "203.0.113.254", OUTSIDE_MAC, "203.0.113.1");
        assert_eq!(1, rig.send_at((worker + 1) % 4, OUTSIDE, &reply).len());
        let reply = packet::arp_reply(HOST_MAC, rig::HOST, INSIDE_MAC, "192.168.1.1");
        let sent = rig.send_at((worker + 2) % 4, INSIDE, &reply);
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        assert_eq!(OUTSIDE, sent[0].port);
    }
}

/// Pipelines: number of workers, and the workers of the parts receive, parse, session and transmit.
const PIPELINES: [(usize, [&[u16]; 4]); 8] = [
    (2, [&[0], &[0], &[1], &[1]]),
    (2, [&[0], &[1], &[1], &[1]]),
    (2, [&[0], &[0], &[0], &[1]]),
    // The first and the last stage are on one core, as in P0 (see `docs/performance.md`).
    (2, [&[0], &[0], &[1], &[0]]),
    (2, [&[0], &[1], &[0], &[1]]),
    (4, [&[0], &[1], &[2], &[3]]),
    (4, [&[0], &[0], &[1, 2], &[3]]),
    (4, [&[0], &[1, 2], &[2, 3], &[3, 0]]),
];

fn pipeline(workers: usize, stages: [&[u16]; 4]) -> Plan {
    Plan {
        stages: stages.map(<[_]>::to_vec),
        senders: stages[3].to_vec(),
        ..plan(workers)
    }
}

#[test]
fn same_frames_give_the_same_bytes_through_any_pipeline() {
    let alone = traffic(&mut ready(plan(1), |_| {}), |_| 0);
    for (workers, stages) in PIPELINES {
        let mut rig = ready(pipeline(workers, stages), |_| {});
        let piped = traffic(&mut rig, |_| 0);
        assert_eq!(alone.len(), piped.len(), "{stages:?} {:?}", rig.all_drops());
        for (flow, frames) in &alone {
            let (mut ours, mut theirs) = (frames.clone(), piped[flow].clone());
            ours.sort();
            theirs.sort();
            assert_eq!(ours, theirs, "{flow:?} {stages:?}");
        }
        for (worker, counters) in rig.plane.counters().iter().enumerate() {
            let worker = worker as u16;
            let sent: u64 = counters.interfaces.iter().map(|i| i.sent.get()).sum();
            let received: u64 = counters.interfaces.iter().map(|i| i.received.get()).sum();
            assert_eq!(stages[1].contains(&worker), received > 0, "{worker} {stages:?}");
            assert_eq!(stages[2].contains(&worker), counters.session_packets.get() > 0);
            assert_eq!(stages[3].contains(&worker), sent > 0, "{worker} {stages:?}");
        }
    }
}

#[test]
fn flows_keep_their_order_through_any_pipeline() {
    for (workers, stages) in PIPELINES {
        for translate in [true, false] {
            let mut rig = ready(pipeline(workers, stages), |plan| plan.translate = translate);
            for sequence in 0..150u32 {
                for number in 0..4 {
                    let source = SocketAddrV4::new(host(number), 1000);
                    let flags = if sequence == 0 { flag::SYN } else { flag::ACK };
                    let frame = packet::tcp4(source, remote(number)).flags(flags).numbers(sequence, 0);
                    let frame = frame.macs(HOST_MAC, INSIDE_MAC).build();
                    rig.wires[0].inject(INSIDE, &frame, Checksums::Unverified);
                }
            }
            rig.round();
            let mut flows = BTreeMap::<_, Vec<u32>>::new();
            for sent in rig.sent() {
                let sequence = u32::from_be_bytes(sent.frame[38..42].try_into().unwrap());
                flows.entry(name(&sent.frame)).or_default().push(sequence);
            }
            assert_eq!(4, flows.len(), "{stages:?} {:?}", rig.all_drops());
            for sequences in flows.values() {
                assert_eq!((0..150).collect::<Vec<_>>(), *sequences, "{stages:?}");
            }
        }
    }
}

#[test]
fn what_a_later_stage_has_no_room_for_is_shed_where_it_enters() {
    const FRAMES: u64 = 1000;
    for (workers, stages) in PIPELINES {
        // If packets return to a worker, that worker can't wait. It drops packets, and the drop reason names the full
        // ring.
        let comes_back = stages == PIPELINES[3].1 || stages == PIPELINES[4].1 || stages == PIPELINES[7].1;
        let mut rig = ready(pipeline(workers, stages), |plan| plan.ring = 128);
        for number in 0..FRAMES {
            let frame = packet::udp4(SocketAddrV4::new(host((number % 8) as u8), 1000), remote(1));
            rig.wires[0].inject(INSIDE, &frame.macs(HOST_MAC, INSIDE_MAC).build(), Checksums::Unverified);
        }
        // The last stage does not run, so the rings fill from the last stage back to the first stage.
        let last = *stages[3].last().unwrap() as usize;
        for _ in 0..60 {
            for worker in (0..workers).filter(|&worker| worker != last) {
                rig.workers[worker].round(rig.now);
            }
        }
        if !comes_back {
            assert!(rig.drops("shed") > 0, "{stages:?} {:?}", rig.all_drops());
            assert_eq!(0, rig.drops("handover-full"), "{stages:?}");
        }
        rig.round();
        let sent = rig.sent().len() as u64;
        assert_eq!(
            FRAMES,
            sent + rig.drops("shed") + rig.drops("handover-full"),
            "{stages:?}"
        );
        if !comes_back {
            assert!(sent >= 128, "{sent} {stages:?}");
            // No packet that the first stage has admitted is lost.
            assert_eq!(0, rig.drops("handover-full"), "{stages:?} {:?}", rig.all_drops());
        }
    }
}

//! Tests of inspected sessions, with and without translation: delivered data, alerts, and complete accounting of packets.

use std::net::SocketAddrV4;

use crate::inspected::{self, FIRST, Talk, alerts, assured, ledger, payloads, plan};
use crate::rig::{self, HOST_MAC, INSIDE_MAC, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig};
use sluice_inspect::{Limit, Skipped};
use sluice_testkit::packet::{self, flag};

#[test]
fn harmless_connection_passes_translated_both_ways() {
    for translate in [true, false] {
        let mut rig = Rig::new(Plan { translate, ..plan() });
        let talk = Talk::open(&mut rig, 40_000);
        let sent = rig.host_sends(&talk.data(0, b"hello"));
        assert_eq!(vec![&b"hello"[..]], payloads(&sent));
        assert!(rig::is_valid(&sent[0].frame));
        assert_eq!([ROUTER_MAC, OUTSIDE_MAC].concat(), sent[0].frame[..12]);
        let sent = rig.router_sends(&talk.answer(0, b"welcome"));
        assert_eq!(vec![&b"welcome"[..]], payloads(&sent));
        assert_eq!([HOST_MAC, INSIDE_MAC].concat(), sent[0].frame[..12]);
        rig.check();
    }
}

#[test]
fn answers_find_the_sessions_of_flows_that_are_not_translated() {
    let mut rig = Rig::new(Plan {
        translate: false,
        shards: 64,
        ..plan()
    });
    for last in 1..=8 {
        let (host, remote) = ("192.168.1.10:4000", format!("198.51.100.{last}:53"));
        let remote: SocketAddrV4 = remote.parse().unwrap();
        assert_eq!(1, rig.host_sends(&packet::udp4(host, remote).payload(b"ask")).len());
        let answer = packet::udp4(remote, host.parse::<SocketAddrV4>().unwrap()).payload(b"answer");
        assert_eq!(1, rig.router_sends(&answer).len());
    }
    assert_eq!(8, rig.live());
}

#[test]
fn match_is_never_delivered_complete_and_ends_its_flow() {
    for workers in [1, 4] {
        let mut rig = Rig::new(Plan { workers, ..plan() });
        let talk = Talk::open(&mut rig, 40_000);
        assert_eq!(1, rig.host_sends(&talk.data(0, b"some ev")).len());
        assert_eq!(0, rig.host_sends(&talk.data(7, b"il is")).len());
        assert_eq!(1, rig.drops("signature"));
        assert_eq!(0, rig.host_sends(&talk.data(12, b"more")).len());
        assert_eq!(0, rig.router_sends(&talk.answer(0, b"answer")).len());
        assert_eq!(2, rig.drops("flow-dropped"));
        let told = alerts(&mut rig);
        assert_eq!(1, told.len());
        assert_eq!(
            ["192.168.1.10", "198.51.100.7"].map(|text| text.parse::<std::net::IpAddr>().unwrap()),
            told[0].about.addresses
        );
        assert_eq!(([40_000, 80], true), (told[0].about.ports, told[0].about.to_server));
        rig.check();
    }
}

#[test]
fn segments_ahead_of_a_gap_leave_at_once_and_the_gap_may_be_filled_late() {
    for workers in [1, 4] {
        let mut rig = Rig::new(Plan { workers, ..plan() });
        let talk = Talk::open(&mut rig, 40_000);
        for (place, data) in [(6, b"ghi"), (3, b"def")] {
            let sent = rig.host_sends(&talk.data(place, data));
            assert_eq!(vec![&data[..]], payloads(&sent), "{workers} {:?}", rig.all_drops());
        }
        rig.check();
        // A retransmission timeout backs off to a minute or more (RFC 6298, section 5.5).
        rig.seconds(100);
        let sent = rig.host_sends(&talk.data(0, b"abc"));
        assert_eq!(vec![&b"abc"[..]], payloads(&sent), "{:?}", rig.all_drops());
        let sent = rig.host_sends(&talk.data(9, b"jkl"));
        assert_eq!(vec![&b"jkl"[..]], payloads(&sent));
        assert_eq!((7, 0), (ledger(&mut rig).inspected, ledger(&mut rig).waiting));
        rig.check();
    }
}

#[test]
fn what_came_ahead_of_a_gap_goes_with_its_shard() {
    use sluice_engine::worker::request::{Reply, Request};
    let mut rig = Rig::new(Plan { workers: 2, ..plan() });
    let talk = Talk::open(&mut rig, 40_000);
    assert_eq!(1, rig.host_sends(&talk.data(6, b"vil")).len());
    for shard in 0..4 {
        let from = rig.plane.start_parameters().owners.of(shard).unwrap();
        let to = 1 - from;
        let moves = [
            (to, Request::Expect { shard }),
            (from, Request::StartRelease { shard, to }),
            (from, Request::Release),
        ];
        for (worker, request) in moves {
            assert!(matches!(rig.ask(worker.into(), request), Reply::Done));
        }
        while rig.workers.iter().any(|worker| worker.is_answering()) {
            rig.workers.iter_mut().for_each(|worker| {
                worker.round(rig.now);
            });
        }
    }
    rig.check();
    let mut sent = rig.host_sends(&talk.data(0, b"some e"));
    rig.round();
    sent.extend(rig.sent());
    assert_eq!((0, 1), (sent.len(), rig.drops("signature")), "{:?}", rig.all_drops());
    rig.check();
}

#[test]
fn match_in_segments_out_of_order_is_not_delivered() {
    let mut rig = Rig::new(plan());
    let talk = Talk::open(&mut rig, 40_000);
    assert_eq!(1, rig.host_sends(&talk.data(6, b"vil")).len());
    // The gateway never delivers the segment that fills the gap, even if the host repeats it.
    for dropped in ["signature", "flow-dropped"] {
        assert_eq!(0, rig.host_sends(&talk.data(0, b"some e")).len());
        assert_eq!(1, rig.drops(dropped));
    }
    rig.check();
}

#[test]
fn acknowledgment_from_the_clients_side_does_not_free_what_the_client_has_sent() {
    for translate in [true, false] {
        let mut rig = Rig::new(Plan { translate, ..plan() });
        let talk = Talk::open(&mut rig, 40_000);
        for place in 0..16 {
            assert_eq!(1, rig.host_sends(&talk.data(1000 * place, &[b'a'; 1000])).len());
            // A forged acknowledgment with the server's address.
            let forged = packet::tcp4(talk.remote, talk.public).flags(flag::ACK);
            rig.host_sends(&forged.numbers(FIRST[1] + 1, FIRST[0] + 1001 + 1000 * place));
        }
        let sent = rig.host_sends(&talk.data(0, b"evil is what comes in its place"));
        assert_eq!(vec![&[b'a'; 31][..]], payloads(&sent), "{:?}", rig.all_drops());
        // An acknowledgment from the server's interface is accepted.
        let answer = packet::tcp4(talk.remote, talk.public).flags(flag::ACK);
        rig.router_sends(&answer.numbers(FIRST[1] + 1, FIRST[0] + 1 + 16_000));
        let sent = rig.host_sends(&talk.data(0, b"old"));
        assert_eq!(vec![&b"old"[..]], payloads(&sent));
    }
}

#[test]
fn urgent_pointer_is_cleared_and_counted_where_that_is_configured() {
    for clear in [false, true] {
        let mut rig = Rig::new(plan());
        if clear {
            rig = Rig::new(Plan {
                snapshot: |snapshot| {
                    inspected::inspected(snapshot);
                    inspected::change(snapshot, |inspection| inspection.settings.clear_urgent = true);
                },
                ..plan()
            });
        }
        let talk = Talk::open(&mut rig, 40_000);
        let mut bytes = talk.data(0, b"\xff\xf4\xff\xf2").macs(HOST_MAC, INSIDE_MAC).build();
        (bytes[47], bytes[53]) = (bytes[47] | 0x20, 4);
        rig.wires[0].inject(rig::INSIDE, &bytes, sluice_wire::Checksums::Vouched);
        rig.round();
        let sent = rig.sent();
        let frame = &sent[0].frame;
        assert_eq!(if clear { (0, 0) } else { (0x20, 4) }, (frame[47] & 0x20, frame[53]));
        let counted: u64 = rig
            .plane
            .counters()
            .iter()
            .map(|worker| worker.inspection.urgent_cleared.get())
            .sum();
        assert_eq!(u64::from(clear), counted);
    }
}

#[test]
fn copy_that_differs_is_put_right() {
    let mut rig = Rig::new(plan());
    let talk = Talk::open(&mut rig, 40_000);
    rig.host_sends(&talk.data(0, b"first copy"));
    let sent = rig.host_sends(&talk.data(0, b"other copy"));
    assert_eq!(vec![&b"first copy"[..]], payloads(&sent));
    assert!(rig::is_valid(&sent[0].frame));
}

#[test]
fn rule_that_rejects_tells_who_asked() {
    let mut rig = Rig::new(plan());
    let ask = packet::udp4("192.168.1.10:5353", "198.51.100.7:53").payload(b"\x04evil");
    let sent = rig.host_sends(&ask);
    assert_eq!(1, sent.len());
    // The ICMP error is "administratively prohibited".
    assert_eq!([3, 13], sent[0].frame[34..36]);
    assert_eq!(1, rig.drops("signature"));
    rig.check();
}

#[test]
fn rule_that_rejects_ends_a_connection_on_both_sides() {
    for translate in [true, false] {
        let mut rig = Rig::new(Plan { translate, ..plan() });
        let talk = Talk::open(&mut rig, 40_000);
        rig.host_sends(&talk.data(0, b"harmless"));
        let segment = talk.data(8, b"refuse");
        // The receiver gets a reset with the next sequence number and without the data.
        let sent = rig.host_sends(&segment);
        assert_eq!((1, OUTSIDE_MAC), (sent.len(), sent[0].frame[6..12].try_into().unwrap()));
        let told = |sent: &rig::Sent| {
            assert!(rig::is_valid(&sent.frame));
            let number = u32::from_be_bytes(sent.frame[38..42].try_into().unwrap());
            (
                sent.frame.len(),
                sent.frame[47] & flag::RST,
                number,
                rig::flow(&sent.frame),
            )
        };
        assert_eq!(
            (54, flag::RST, FIRST[0] + 9, (talk.public, talk.remote)),
            told(&sent[0])
        );
        assert_eq!(1, rig.drops("signature"));
        // The sender gets a reset when it retransmits the unacknowledged segment.
        let sent = rig.host_sends(&segment);
        assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
        assert_eq!((54, flag::RST, FIRST[1] + 1, (talk.remote, talk.host)), told(&sent[0]));
        assert_eq!(1, rig.drops("flow-dropped"));
        // A reset is not answered.
        let reset = packet::tcp4(talk.host, talk.remote).flags(flag::RST);
        assert_eq!(0, rig.host_sends(&reset.numbers(FIRST[0] + 9, 0)).len());
        rig.check();
    }
}

#[test]
fn answer_that_is_rejected_ends_the_connection_of_who_asked() {
    let mut rig = Rig::new(plan());
    let talk = Talk::open(&mut rig, 40_000);
    let answer = talk.answer(0, b"we decline");
    let sent = rig.router_sends(&answer);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!(
        ((talk.remote, talk.host), flag::RST),
        (rig::flow(&sent[0].frame), sent[0].frame[47] & flag::RST)
    );
    let sent = rig.router_sends(&answer);
    assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
    assert_eq!((talk.public, talk.remote), rig::flow(&sent[0].frame));
    rig.check();
}

#[test]
fn flows_that_no_place_is_left_for_are_dropped_under_their_name() {
    let mut rig = Rig::new(Plan { shards: 1, ..plan() });
    // A source may have at most as many flows as are free.
    let there = (7000..7008).filter(|&port| assured(&mut rig, rig::HOST, port)).count();
    assert_eq!(
        (7, 1),
        (there, rig.drops("inspection-source-full")),
        "{:?}",
        rig.all_drops()
    );
    // When sessions end, their flow entries become free.
    rig.seconds(400);
    assert!(assured(&mut rig, rig::HOST, 7008));
    rig.check();
}

#[test]
fn flows_whose_clients_answer_nothing_give_way_and_go_on_from_their_handshakes() {
    let mut rig = Rig::new(Plan { shards: 1, ..plan() });
    let talk = Talk::open(&mut rig, 40_000);
    // The server has answered the client's SYN, but the client has not acknowledged the answer.
    let host: SocketAddrV4 = "192.168.1.10:41000".parse().unwrap();
    let syn = packet::tcp4(host, talk.remote).flags(flag::SYN).numbers(FIRST[0], 0);
    let public = rig.public(&syn);
    let half = Talk { host, public, ..talk };
    let answer = packet::tcp4(half.remote, public).flags(flag::SYN | flag::ACK);
    assert_eq!(1, rig.router_sends(&answer.numbers(FIRST[1], FIRST[0] + 1)).len());
    for port in 0..100 {
        let forged = SocketAddrV4::new("192.168.1.10".parse().unwrap(), 1024 + port);
        let forged = packet::tcp4(forged, half.remote).flags(flag::SYN);
        assert_eq!(1, rig.host_sends(&forged).len(), "{:?}", rig.all_drops());
    }
    rig.round();
    let limits = &rig.plane.counters()[0].inspection.limits;
    assert_eq!(2 + 100 - 8, limits.get(Limit::FlowsEvicted as usize));
    // The established flow was kept. The evicted flow is inspected again from the initial sequence numbers.
    assert_eq!(0, rig.host_sends(&talk.data(0, b"evil")).len());
    assert_eq!(1, rig.host_sends(&half.data(0, b"")).len(), "{:?}", rig.all_drops());
    assert_eq!(1, rig.host_sends(&half.data(0, b"ev")).len(), "{:?}", rig.all_drops());
    assert_eq!(0, rig.host_sends(&half.data(2, b"il")).len());
    assert_eq!(2, rig.drops("signature"), "{:?}", rig.all_drops());
    assert_eq!(0, inspected::bypassed(&rig, Skipped::Midstream));
    rig.check();
}

#[test]
fn connection_that_was_reset_is_not_taken_up_in_its_midst_after_its_session() {
    let mut rig = Rig::new(Plan {
        translate: false,
        ..plan()
    });
    let talk = Talk::open(&mut rig, 40_000);
    assert_eq!(1, rig.host_sends(&talk.data(0, b"ev")).len());
    let reset = packet::tcp4(talk.host, talk.remote).flags(flag::RST);
    assert_eq!(1, rig.host_sends(&reset.numbers(FIRST[0] + 3, 0)).len());
    rig.seconds(400);
    assert_eq!(0, rig.live());
    // The server has not received the reset.
    assert_eq!(0, rig.host_sends(&talk.data(2, b"il")).len());
    assert_eq!(1, rig.drops("stream-closed"), "{:?}", rig.all_drops());
    // Open another connection between the same ports.
    rig.seconds(400);
    let talk = Talk::open(&mut rig, 40_000);
    assert_eq!(1, rig.host_sends(&talk.data(0, b"fine")).len());
    rig.check();
}

#[test]
fn sessions_of_interfaces_that_are_not_inspected_are_not() {
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| {
            inspected::inspected(snapshot);
            inspected::change(snapshot, |inspection| inspection.interfaces = vec![false, false]);
        },
        ..plan()
    });
    let talk = Talk::open(&mut rig, 40_000);
    assert_eq!(1, rig.host_sends(&talk.data(0, b"evil")).len());
}

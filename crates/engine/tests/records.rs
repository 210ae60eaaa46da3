//! Tests of records of inspected flows: their contents and flow numbers. A full queue must never block a worker.

use std::net::SocketAddrV4;
use std::sync::Arc;

use crate::rig::{self, Plan, Rig, inspected};
use sluice_engine::session::records::{EndReason, FlowState, Record, RecordKind, Records};
use sluice_engine::snapshot::Snapshot;
use sluice_engine::worker::request::{Cursor, Filter, Request};
use sluice_inspect::Reason;
use sluice_inspect::signature::Service;
use sluice_inspect::transactions::{LoggedProtocols, Part};
use sluice_testkit::packet::{self, Frame, flag};

const RULES: &str = r#"
drop udp any any -> any any (msg:"evil"; content:"evil"; sid:7;)
alert udp any any -> any any (msg:"odd"; content:"odd"; sid:8;)
"#;

fn recorded(snapshot: &mut Snapshot, records: Records, depth: u64) {
    let mut inspection = inspected::inspection(RULES);
    inspection.records = records;
    inspection.settings.depth = depth;
    inspection.settings.logged = LoggedProtocols {
        http: true,
        dns: true,
        tls: true,
    };
    snapshot.inspect_by(Arc::new(inspection));
}

const ALL: Records = Records {
    drops: true,
    flows: true,
    max: 64,
};

fn plan() -> Plan {
    Plan {
        inspection: Some(inspected::plan()),
        snapshot: |snapshot| recorded(snapshot, ALL, 0),
        ..Plan::default()
    }
}

fn taken(rig: &mut Rig) -> Vec<Record> {
    let queues = rig.desks.iter_mut().filter_map(|requests| requests.records.as_mut());
    queues
        .flat_map(|queue| std::iter::from_fn(|| queue.pop().ok()))
        .collect()
}

fn host(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new("192.168.1.10".parse().unwrap(), port)
}

fn remote(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new("198.51.100.7".parse().unwrap(), port)
}

fn told(rig: &Rig) -> [u64; 2] {
    let counters = rig.plane.counters();
    [
        counters
            .iter()
            .map(|worker| worker.inspection.records_queued.get())
            .sum(),
        counters.iter().map(|worker| worker.inspection.records_lost.get()).sum(),
    ]
}

#[test]
fn packets_that_are_dropped_are_told_with_reason_and_rule() {
    let mut rig = Rig::new(plan());
    let ask = packet::udp4(host(4000), remote(9));
    assert_eq!(0, rig.host_sends(&ask.clone().payload(b"evil")).len());
    assert_eq!(0, rig.host_sends(&ask.payload(b"good")).len());
    let records = taken(&mut rig);
    let expected = [(Reason::Signature, 32), (Reason::FlowDropped, 32)];
    let said: Vec<_> = records
        .iter()
        .map(|record| match record.said {
            RecordKind::Drop { reason, rule, length } => {
                assert_eq!(Some(0), rule.map(|rule| rule.number));
                (reason, length)
            }
            _ => panic!("{record:?}"),
        })
        .collect();
    assert_eq!(expected.to_vec(), said);
    let alert = rig.desks[0].alerts.as_mut().unwrap().pop().unwrap();
    assert_eq!([alert.about.flow; 2], [records[0].about.flow, records[1].about.flow]);
    assert_ne!(0, alert.about.flow);
    let [source, destination] = [host(4000), remote(9)].map(|end| std::net::IpAddr::V4(*end.ip()));
    assert_eq!(
        ([source, destination], [4000, 9]),
        (records[0].about.addresses, records[0].about.ports)
    );
    assert!(records[0].about.to_server);
    assert_eq!([2, 0], told(&rig));
}

#[test]
fn flow_that_ends_is_told_with_what_it_was() {
    let mut rig = Rig::new(plan());
    let odd = packet::udp4(host(4000), remote(9)).payload(b"odd");
    let public = rig.public(&odd);
    rig.seconds(1);
    rig.router_sends(&packet::udp4(remote(9), public).payload(b"answer"));
    rig.host_sends(&packet::udp4(host(4001), remote(9)).payload(b"alone"));
    assert!(taken(&mut rig).is_empty());
    rig.seconds(400);
    let mut records = taken(&mut rig);
    records.sort_by_key(|record| record.about.ports);
    assert_eq!(2, records.len());
    let [first, second] = [0, 1].map(|number| match records[number].said {
        RecordKind::Flow(ended) => ended,
        _ => panic!("{records:?}"),
    });
    assert_eq!(
        (FlowState::Established, EndReason::Timeout, true),
        (first.state, first.reason, first.alerted)
    );
    assert_eq!(([1, 1], [31, 34]), (first.packets, first.bytes));
    assert_eq!(1_000_000_000, first.seen[1] - first.seen[0]);
    assert_eq!(
        (FlowState::New, false, [1, 0]),
        (second.state, second.alerted, second.packets)
    );
    assert_ne!(records[0].about.flow, records[1].about.flow);
    // The record contains the untranslated addresses and ports.
    assert_eq!([4000, 9], records[0].about.ports);
    assert_ne!(4000, public.port());
}

#[test]
fn flow_that_is_cleared_or_no_longer_inspected_is_told_so() {
    let mut rig = Rig::new(plan());
    rig.host_sends(&packet::udp4(host(4000), remote(9)).payload(b"x"));
    let clear = Request::Clear {
        cursor: Cursor::default(),
        filter: Filter::default(),
        ended: 0,
    };
    rig.ask(0, clear);
    let mut bypassed = Rig::new(Plan {
        snapshot: |snapshot| recorded(snapshot, ALL, 1),
        ..plan()
    });
    bypassed.host_sends(&packet::udp4(host(4000), remote(9)).payload(b"clean"));
    bypassed.seconds(400);
    for (rig, state, reason) in [
        (&mut rig, FlowState::New, EndReason::Forced),
        (&mut bypassed, FlowState::Bypassed, EndReason::Bypass),
    ] {
        let records = taken(rig);
        let [
            Record {
                said: RecordKind::Flow(ended),
                ..
            },
        ] = records[..]
        else {
            panic!("{records:?}")
        };
        assert_eq!((state, reason), (ended.state, ended.reason));
    }
}

fn segment(place: u32, data: &[u8]) -> Frame {
    let frame = packet::tcp4(host(4000), remote(80)).flags(flag::ACK | flag::PSH);
    frame.numbers(1001 + place, 9001).payload(data)
}

/// Opens a connection from the host. Returns its public endpoint.
fn connect(rig: &mut Rig) -> SocketAddrV4 {
    let syn = packet::tcp4(host(4000), remote(80)).flags(flag::SYN).numbers(1000, 0);
    let public = rig.public(&syn);
    let answer = packet::tcp4(remote(80), public).flags(flag::SYN | flag::ACK);
    rig.router_sends(&answer.numbers(9000, 1001));
    rig.host_sends(&segment(0, b""));
    public
}

#[test]
fn what_flows_say_is_told_under_their_number() {
    for workers in [1, 4] {
        let mut rig = Rig::new(Plan { workers, ..plan() });
        let public = connect(&mut rig);
        let request = b"GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n";
        assert_eq!(1, rig.host_sends(&segment(0, request)).len());
        let answer = packet::tcp4(remote(80), public).flags(flag::ACK | flag::PSH);
        let answer = answer.numbers(9001, 1001 + request.len() as u32);
        let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        assert_eq!(1, rig.router_sends(&answer.payload(response)).len());
        rig.host_sends(&segment(request.len() as u32, b"GET /y HTTP/1.1\r\n\r\n"));
        rig.seconds(9000);
        let records = taken(&mut rig);
        let said: Vec<_> = records
            .iter()
            .map(|record| match &record.said {
                RecordKind::Transaction(said) => {
                    assert_eq!(
                        (Service::Http, Some(Service::Http)),
                        (said.service, record.about.service)
                    );
                    assert_eq!([4000, 80], record.about.ports);
                    format!("{} {}", said.text(Part::Url).escape_ascii(), said.status)
                }
                RecordKind::Flow(ended) => format!("{:?}", ended.state),
                RecordKind::Drop { .. } => panic!("{record:?}"),
            })
            .collect();
        // An unanswered request is recorded at the end of the flow.
        assert_eq!(vec!["/x 200", "/y 0", "Established"], said, "{workers}");
        assert!(records.iter().all(|record| record.about.flow == records[0].about.flow));
    }
}

#[test]
fn segments_without_memory_ahead_of_a_gap_are_told() {
    let mut plan = plan();
    plan.inspection.as_mut().unwrap().streams.share = 0;
    let mut rig = Rig::new(plan);
    connect(&mut rig);
    assert_eq!(0, rig.host_sends(&segment(3, b"def")).len());
    let records = taken(&mut rig);
    let [
        Record {
            said: RecordKind::Drop { reason, .. },
            about,
        },
    ] = records[..]
    else {
        panic!("{records:?}")
    };
    assert_eq!(
        (Reason::GapFull, [4000, 80], true),
        (reason, about.ports, about.to_server)
    );
    assert_eq!(1, rig.drops("stream-gap-full"));
}

#[test]
fn packets_that_no_flow_has_are_told_without_a_number() {
    let mut rig = Rig::new(Plan { shards: 1, ..plan() });
    // Established flows use all flow entries. One source has all entries except the last one, which a second source
    // has.
    const OTHER: &str = "192.168.1.11";
    rig.know(rig::INSIDE, rig::plain(OTHER), rig::HOST_MAC);
    let of_one = (7000..7007).map(host);
    for client in of_one.chain([SocketAddrV4::new(OTHER.parse().unwrap(), 7000)]) {
        let public = rig.public(&packet::udp4(client, remote(9)));
        rig.router_sends(&packet::udp4(remote(9), public));
        assert_eq!(1, rig.host_sends(&packet::udp4(client, remote(9))).len());
    }
    rig.host_sends(&packet::udp4(host(7008), remote(9)));
    let records = taken(&mut rig);
    let [
        Record {
            said: RecordKind::Drop { reason, .. },
            about,
        },
    ] = records[..]
    else {
        panic!("{records:?}")
    };
    assert_eq!((Reason::FlowsFull, 0, [7008, 9]), (reason, about.flow, about.ports));
}

#[test]
fn queue_that_is_full_loses_records_and_holds_no_packet_up() {
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| recorded(snapshot, Records { max: 3, ..ALL }, 0),
        ..plan()
    });
    let ask = packet::udp4(host(4000), remote(53))
        .payload(b"\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\x01\x00\x01");
    for _ in 0..10 {
        assert_eq!(1, rig.host_sends(&ask).len());
    }
    assert_eq!([3, 7], told(&rig));
    assert_eq!(3, taken(&mut rig).len());
    assert_eq!(1, rig.host_sends(&ask).len());
    assert_eq!([4, 7], told(&rig));
    rig.check();
}

#[test]
fn records_that_are_not_wanted_are_not_made() {
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| {
            let none = Records {
                drops: false,
                flows: false,
                max: 8,
            };
            recorded(snapshot, none, 0);
        },
        ..plan()
    });
    rig.host_sends(&packet::udp4(host(4000), remote(9)).payload(b"evil"));
    rig.seconds(400);
    assert_eq!(([0, 0], 0), (told(&rig), taken(&mut rig).len()));
    // If no records are enabled, there is no queue.
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| recorded(snapshot, Records::default(), 0),
        ..plan()
    });
    rig.host_sends(&packet::udp4(host(4000), remote(53)).payload(&[0; 12]));
    assert!(rig.desks.iter().all(|requests| requests.records.is_none()));
    assert_eq!([0, 0], told(&rig));
}

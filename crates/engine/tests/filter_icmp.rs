//! Tests of the packet filter with ICMP: queries of several types, and queries of two hosts with one identifier.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::rig::{self, INSIDE, OUTSIDE, Plan, Rig};
use etherparse::{IcmpEchoHeader, Icmpv4Type, Icmpv6Type, IpNumber, icmpv4::TimestampMessage};
use sluice_engine::snapshot::Snapshot;
use sluice_filter::{Action, CompiledRule, Counters, Field, Filters, MatcherKind, RejectKind, Rule, Settings, Verdict};
use sluice_testkit::packet::{Frame, Transport, frame4, frame6};

const ACCEPT: Action = Action::Decide(Verdict::Accept);
const REJECT: Action = Action::Decide(Verdict::Reject(RejectKind::Prohibited));
const HOST4: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 10);
const FAR4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
const HOST6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0x10);
const FAR6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 1);

/// A rule for both families that matches echo requests received on an interface.
fn echo_from(interface: u16, action: Action) -> CompiledRule {
    fn rule<A: sluice_filter::Address>(interface: u16, kind: u32) -> Rule<A> {
        Rule::any()
            .with(Field::Incoming, interface.into(), interface.into())
            .and_then(|rule| rule.with(Field::Message, kind << 8, kind << 8 | 0xff))
            .unwrap()
    }
    CompiledRule {
        action,
        v4: vec![rule(interface, 8)],
        v6: vec![rule(interface, 128)],
        applications: Vec::new(),
        conditions: Default::default(),
    }
}

fn filter(snapshot: &mut Snapshot, rules: &[CompiledRule]) {
    let settings = Settings {
        kind: MatcherKind::Best,
        default: Verdict::Drop,
        sessions: true,
        workers: 1,
    };
    let filters = Filters::new(rules, &settings, Counters::new(rules.len())).unwrap();
    snapshot.filter_by(Arc::new(filters));
}

fn packets(rig: &Rig, place: u32) -> u64 {
    let filters = rig.plane.snapshot().filter.as_ref().unwrap();
    filters.counters.of(place).unwrap().packets()
}

fn untranslated(snapshot: fn(&mut Snapshot)) -> Rig {
    Rig::new(Plan {
        translate: false,
        snapshot,
        ..Plan::default()
    })
}

/// An echo message with identifier 8 from the inside host to a remote host. If `back` is set, the message is from the
/// remote host to the inside host.
fn message(v6: bool, back: bool, reply: bool) -> Frame {
    // The identifier 8 is also an ICMP type, the echo request.
    let echo = IcmpEchoHeader { id: 8, seq: 1 };
    if v6 {
        let kind = if reply {
            Icmpv6Type::EchoReply(echo)
        } else {
            Icmpv6Type::EchoRequest(echo)
        };
        let (from, to) = if back { (FAR6, HOST6) } else { (HOST6, FAR6) };
        return frame6(from, to, Transport::Icmp6(kind));
    }
    let kind = if reply {
        Icmpv4Type::EchoReply(echo)
    } else {
        Icmpv4Type::EchoRequest(echo)
    };
    let (from, to) = if back { (FAR4, HOST4) } else { (HOST4, FAR4) };
    frame4(from, to, Transport::Icmp4(kind))
}

fn timestamp() -> Frame {
    let message = TimestampMessage {
        id: 8,
        seq: 1,
        originate_timestamp: 0,
        receive_timestamp: 0,
        transmit_timestamp: 0,
    };
    frame4(HOST4, FAR4, Transport::Icmp4(Icmpv4Type::TimestampRequest(message)))
}

#[test]
fn filter_by_session_asks_about_echo_requests_against_a_session() {
    let mut rig = untranslated(|snapshot| filter(snapshot, &[echo_from(INSIDE, ACCEPT), echo_from(OUTSIDE, ACCEPT)]));
    for v6 in [false, true] {
        assert_eq!(OUTSIDE, rig.host_sends(&message(v6, false, false))[0].port);
        assert_eq!(INSIDE, rig.router_sends(&message(v6, true, true))[0].port);
        for _ in 0..2 {
            let came = rig.router_sends(&message(v6, true, false));
            assert_eq!(1, came.len(), "{:?}", rig.all_drops());
            assert_eq!(INSIDE, came[0].port);
            assert!(rig::is_valid(&came[0].frame));
            assert_eq!(OUTSIDE, rig.host_sends(&message(v6, false, true))[0].port);
        }
        // The session keeps its original direction.
        assert_eq!(1, rig.host_sends(&message(v6, false, false)).len());
        assert_eq!(1, rig.router_sends(&message(v6, true, true)).len());
    }
    // The requests of each host are a separate flow, even with the same identifier.
    assert_eq!((2, 2), (packets(&rig, 0), packets(&rig, 1)));
    assert_eq!(4, rig.live());
}

#[test]
fn filter_by_session_refuses_echo_requests_against_a_session_by_their_own_rule() {
    let mut rig = untranslated(|snapshot| filter(snapshot, &[echo_from(INSIDE, ACCEPT), echo_from(OUTSIDE, REJECT)]));
    for v6 in [false, true] {
        assert_eq!(1, rig.host_sends(&message(v6, false, false)).len());
        // No request precedes this echo reply.
        assert!(rig.host_sends(&message(v6, false, true)).is_empty());
        let told = rig.router_sends(&message(v6, true, false).ttl(1));
        assert_eq!((1, OUTSIDE), (told.len(), told[0].port), "{:?}", rig.all_drops());
        assert_eq!(
            if v6 { &[1, 1][..] } else { &[3, 13] },
            &told[0].frame[if v6 { 54..56 } else { 34..36 }]
        );
        assert!(rig.host_sends(&message(v6, false, true)).is_empty());
    }
    assert_eq!((2, 2), (packets(&rig, 0), packets(&rig, 1)));
    assert_eq!(
        (2, 4),
        (rig.drops("filter-reject"), rig.drops("filter-default")),
        "{:?}",
        rig.all_drops()
    );
    assert_eq!(2, rig.live());
}

#[test]
fn filter_by_session_asks_about_other_types_of_queries() {
    let mut rig = untranslated(|snapshot| filter(snapshot, &[echo_from(INSIDE, ACCEPT)]));
    assert_eq!(1, rig.host_sends(&message(false, false, false)).len());
    assert!(rig.host_sends(&timestamp()).is_empty());
    assert_eq!(1, rig.drops("filter-default"), "{:?}", rig.all_drops());
    assert_eq!(1, rig.host_sends(&message(false, false, false)).len());
    assert_eq!((1, 1), (packets(&rig, 0), rig.live()));
}

#[test]
fn filter_sees_messages_in_the_icmp_of_their_own_family_alone() {
    fn any<A: sluice_filter::Address>() -> Rule<A> {
        Rule::any().with(Field::Message, 0, 0xffff).unwrap()
    }
    let mut rig = untranslated(|snapshot| {
        let messages = CompiledRule {
            action: ACCEPT,
            v4: vec![any()],
            v6: vec![any()],
            applications: Vec::new(),
            conditions: Default::default(),
        };
        filter(snapshot, &[messages]);
    });
    let of = |protocol| Transport::Raw(IpNumber(protocol));
    for other in [frame4(HOST4, FAR4, of(58)), frame6(HOST6, FAR6, of(1))] {
        assert!(rig.host_sends(&other.payload(&[8; 16])).is_empty());
    }
    for v6 in [false, true] {
        assert_eq!(1, rig.host_sends(&message(v6, false, false)).len());
    }
    assert_eq!(2, rig.drops("filter-default"), "{:?}", rig.all_drops());
}

#[test]
fn filter_rejects_later_fragments_of_ipv6_by_an_error_and_those_of_ipv4_in_silence() {
    for (with, told) in [(RejectKind::Reset, [1, 4]), (RejectKind::Prohibited, [1, 1])] {
        let mut rig = Rig::new(Plan {
            translate: false,
            ..Plan::default()
        });
        let settings = Settings {
            kind: MatcherKind::Best,
            default: Verdict::Reject(with),
            sessions: false,
            workers: 1,
        };
        let filters = Filters::new(&[] as &[CompiledRule], &settings, Counters::new(0)).unwrap();
        rig.plane.replace_filter(Arc::new(filters));
        let later = |frame: Frame| frame.payload(&[2; 64]).fragment(4, false, 1);
        let segment = |protocol| Transport::Raw(IpNumber(protocol));
        for protocol in [6, 17] {
            let sent = rig.host_sends(&later(frame6(HOST6, FAR6, segment(protocol))));
            assert_eq!(1, sent.len(), "{:?}", rig.all_drops());
            assert!(rig::is_valid(&sent[0].frame));
            assert_eq!((INSIDE, &told[..]), (sent[0].port, &sent[0].frame[54..56]));
            assert!(
                rig.host_sends(&later(frame4(HOST4, FAR4, segment(protocol))))
                    .is_empty()
            );
        }
        assert_eq!(4, rig.drops("filter-default"));
    }
}

#[test]
fn translated_sessions_leave_requests_against_them_unanswered() {
    let mut rig = Rig::new(Plan {
        snapshot: |snapshot| filter(snapshot, &[echo_from(INSIDE, ACCEPT), echo_from(OUTSIDE, ACCEPT)]),
        ..Plan::default()
    });
    let public = rig.public(&message(false, false, false));
    let echo = IcmpEchoHeader {
        id: public.port(),
        seq: 1,
    };
    let asks = frame4(FAR4, *public.ip(), Transport::Icmp4(Icmpv4Type::EchoRequest(echo)));
    assert!(rig.router_sends(&asks).is_empty());
    assert_eq!((1, 0), (rig.drops("unsolicited"), packets(&rig, 1)));
}

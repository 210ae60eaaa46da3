//! Shared code of the inspection tests: rules, a gateway that inspects, connections, and the counters of inspected packets.
#![allow(dead_code, reason = "each test file uses its part")]

use std::net::SocketAddrV4;
use std::sync::Arc;

use sluice_engine::features::inspection::{Alert, InspectionPolicy, Overload, ReassemblyLimits};
use sluice_engine::snapshot::Snapshot;
use sluice_inspect::Skipped;
use sluice_inspect::host_table::HostTable;
use sluice_inspect::inspector::{self, Settings};
use sluice_inspect::protocols::ParserCapacity;
use sluice_inspect::ruleset::OrderedRules;
use sluice_inspect::signatures::{Classes, Dialect, Variables, read};
use sluice_inspect::stream::{self, Exception};
use sluice_testkit::packet::{self, Frame, IpNumber, Network, Transport, flag};

use crate::rig::{self, Plan, Rig};

const RULES: &str = r#"
drop tcp any any -> any 80 (msg:"evil"; flow:to_server,established; content:"evil"; sid:1;)
alert tcp any any -> any 80 (msg:"odd"; flow:to_server,established; content:"odd"; sid:2;)
reject udp any any -> any 53 (msg:"name"; content:"|04|evil"; sid:3;)
reject tcp any any -> any 80 (msg:"bad"; flow:established; content:"refuse"; sid:6;)
reject tcp any 80 -> any any (msg:"bad"; flow:to_client,established; content:"decline"; sid:7;)
drop udp any any -> any 99 (msg:"long"; content:"planted here"; sid:4;)
drop tcp any any -> any 99 (msg:"long"; content:"planted here"; sid:5;)
"#;

/// Applies the default rules to flows on the inside interface.
pub fn inspected(snapshot: &mut Snapshot) {
    inspected_by(snapshot, RULES);
}

/// Replaces the inspection rules.
pub fn inspected_by(snapshot: &mut Snapshot, rules: &str) {
    let file = read(
        rules.as_bytes(),
        Dialect::Suricata,
        &Variables::default(),
        &Classes::default(),
    );
    assert!(file.refused.is_empty(), "{:?}", file.refused);
    let ordered = OrderedRules::new(file.signatures);
    let prefilter = ordered.pattern_set().compile(&mut |_, _| {}).unwrap();
    snapshot.inspect_by(Arc::new(InspectionPolicy {
        settings: Settings::default(),
        rates: Arc::new(HostTable::new(64, [1, 2])),
        rules: Arc::new(ordered.with_prefilter(prefilter)),
        alerts: 16,
        records: Default::default(),
        interfaces: vec![true, false],
        fragments: ReassemblyLimits {
            datagrams: 4,
            ..ReassemblyLimits::default()
        },
        overload: Overload::default(),
        bypass: Vec::new(),
    }));
}

/// Changes the inspection policy.
pub fn change(snapshot: &mut Snapshot, change: impl FnOnce(&mut InspectionPolicy)) {
    let mut inspection = snapshot.inspection.as_deref().unwrap().clone();
    change(&mut inspection);
    snapshot.inspection = Some(Arc::new(inspection));
}

/// Changes the inspection policy for an exception.
pub fn say(snapshot: &mut Snapshot, exception: Exception, said: stream::Policy) {
    change(snapshot, |on| {
        on.settings.policies = on.settings.policies.with(exception, said)
    });
}

/// A gateway that has memory to inspect only a few flows.
pub fn plan() -> Plan {
    let streams = stream::StreamCapacity::of(8);
    let protocols = ParserCapacity {
        messages: 8,
        names: 8,
        inflaters: 1,
        ..ParserCapacity::default()
    };
    Plan {
        inspection: Some(inspector::InspectorCapacity {
            flows: 8,
            streams,
            protocols,
        }),
        snapshot: inspected,
        ..Plan::default()
    }
}

/// A connection of the host: its two endpoints as the host sees them, and the host's public endpoint.
pub struct Talk {
    pub host: SocketAddrV4,
    pub remote: SocketAddrV4,
    /// The host's outside address and port.
    pub public: SocketAddrV4,
}

/// Initial sequence numbers of both streams.
pub const FIRST: [u32; 2] = [1000, 9000];

impl Talk {
    pub fn open(rig: &mut Rig, port: u16) -> Self {
        let host: SocketAddrV4 = format!("192.168.1.10:{port}").parse().unwrap();
        let remote: SocketAddrV4 = "198.51.100.7:80".parse().unwrap();
        let syn = packet::tcp4(host, remote).flags(flag::SYN).numbers(FIRST[0], 0);
        let public = rig.public(&syn);
        let talk = Self { host, remote, public };
        let answer = packet::tcp4(remote, public)
            .flags(flag::SYN | flag::ACK)
            .numbers(FIRST[1], FIRST[0] + 1);
        assert_eq!(1, rig.router_sends(&answer).len(), "{:?}", rig.all_drops());
        let ack = packet::tcp4(host, remote)
            .flags(flag::ACK)
            .numbers(FIRST[0] + 1, FIRST[1] + 1);
        assert_eq!(1, rig.host_sends(&ack).len());
        talk
    }

    /// A segment of the host, with data at an offset of its stream.
    pub fn data(&self, place: u32, data: &[u8]) -> Frame {
        let frame = packet::tcp4(self.host, self.remote).flags(flag::ACK | flag::PSH);
        frame.numbers(FIRST[0] + 1 + place, FIRST[1] + 1).payload(data)
    }

    /// A segment of the remote host, with data at an offset of its stream.
    pub fn answer(&self, place: u32, data: &[u8]) -> Frame {
        let frame = packet::tcp4(self.remote, self.public).flags(flag::ACK | flag::PSH);
        frame.numbers(FIRST[1] + 1 + place, FIRST[0] + 1).payload(data)
    }
}

/// Exchanges packets so that the flow is protected from eviction: the host sends, the remote host answers, and the host
/// sends again. Returns `false` if the last packet doesn't pass.
pub fn assured(rig: &mut Rig, host: &str, port: u16) -> bool {
    let ask = packet::udp4(SocketAddrV4::new(host.parse().unwrap(), port), "198.51.100.7:9");
    let sent = rig.host_sends(&ask);
    let Some(queried) = sent.first() else { return false };
    let (public, remote) = rig::flow(&queried.frame);
    rig.router_sends(&packet::udp4(remote, public));
    rig.host_sends(&ask).len() == 1
}

/// The payloads of sent frames.
pub fn payloads(sent: &[rig::Sent]) -> Vec<&[u8]> {
    sent.iter().map(|sent| &sent.frame[54..]).collect()
}

/// The alerts of all workers.
pub fn alerts(rig: &mut Rig) -> Vec<Alert> {
    let taken = rig.desks.iter_mut().filter_map(|requests| requests.alerts.as_mut());
    taken
        .flat_map(|alerts| std::iter::from_fn(|| alerts.pop().ok()))
        .collect()
}

/// Counters of packets that pass, bypass or wait for inspection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    pub received: u64,
    pub inspected: u64,
    pub bypassed: u64,
    pub dropped: u64,
    pub waiting: u64,
}

/// The sums of all workers' counters. Asserts that the sums are consistent.
#[track_caller]
pub fn ledger(rig: &mut Rig) -> Ledger {
    rig.round();
    let mut all = Ledger::default();
    for worker in rig.plane.counters() {
        all.received = all.received.wrapping_add(worker.inspection.received.get());
        all.inspected += worker.inspection.inspected.get();
        all.bypassed += worker.all_bypassed();
        all.dropped += worker.all_dropped_by_inspection();
        all.waiting += worker.inspection.waiting.get();
    }
    assert_eq!(
        all.received,
        all.inspected + all.bypassed + all.dropped + all.waiting,
        "{all:?} {:?}",
        rig.all_drops()
    );
    all
}

/// Number of packets that bypassed inspection for the given reason.
pub fn bypassed(rig: &Rig, reason: Skipped) -> u64 {
    let counters = rig.plane.counters().iter();
    counters
        .map(|worker| worker.inspection.bypassed[reason as usize].get())
        .sum()
}

/// The fragments of a frame. Each element of `cuts` is the end offset of a fragment, in units of 8 bytes after the IP
/// header.
pub fn pieces(whole: &Frame, cuts: &[usize], identification: u32) -> Vec<Frame> {
    let network = match whole.network {
        Network::V4(_) => 34,
        Network::V6(..) => 54,
    };
    let transport = whole.build()[network..].to_vec();
    let ends = cuts.iter().map(|cut| cut * 8).chain([transport.len()]);
    let mut from = 0;
    let mut made = Vec::new();
    for to in ends {
        made.push(piece(
            whole,
            from,
            &transport[from..to],
            to < transport.len(),
            identification,
        ));
        from = to;
    }
    made
}

/// A fragment of a frame that contains `bytes` at an offset after the IP header.
pub fn piece(whole: &Frame, from: usize, bytes: &[u8], more: bool, identification: u32) -> Frame {
    let mut part = whole.clone();
    part.transport = Transport::Raw(IpNumber(whole.protocol()));
    part.payload(bytes).fragment((from / 8) as u16, more, identification)
}

//! Tests that management access to a router's own addresses works even if features are enabled on the router's
//! interfaces.

use crate::inspected;
use std::net::SocketAddrV4;
use std::sync::Arc;

use crate::rig::{self, HOST_MAC, INSIDE, INSIDE_MAC, OUTSIDE, OUTSIDE_MAC, Plan, ROUTER_MAC, Rig};
use sluice_engine::snapshot::{Interface, Snapshot};
use sluice_filter::{CompiledRule, Counters, Filters, MatcherKind, Settings, Verdict};
use sluice_testkit::packet::{self, flag};

/// The gateway's own addresses.
const OWN: [&str; 2] = ["192.168.1.1", "203.0.113.1"];

fn hosted(interfaces: &mut [Interface]) {
    interfaces.iter_mut().for_each(|interface| interface.host = true);
}

/// A filter that accepts no packets.
fn closed(snapshot: &mut Snapshot, sessions: bool) {
    let settings = Settings {
        kind: MatcherKind::Best,
        default: Verdict::Drop,
        sessions,
        workers: 2,
    };
    let filters = Filters::new(&[] as &[CompiledRule], &settings, Counters::new(0));
    snapshot.filter_by(Arc::new(filters.unwrap()));
}

/// The features to enable, with a pool that contains the outside interface's own address.
fn plans() -> [(&'static str, Plan); 5] {
    let masquerading = |translate| Plan {
        translate,
        pool: vec![(rig::v4(OWN[1]), rig::v4(OWN[1]))],
        unsolicited_syns: 8,
        interfaces: |interfaces| hosted(interfaces),
        ..Plan::default()
    };
    let filtering = |snapshot, translate| Plan {
        snapshot,
        ..masquerading(translate)
    };
    let inspecting = Plan {
        snapshot: |snapshot| {
            inspected::inspected_by(
                snapshot,
                "drop tcp any any -> any any (msg:\"all\"; content:\"login\"; sid:1;)\n",
            );
            inspected::change(snapshot, |on| on.interfaces = vec![true, true]);
        },
        inspection: inspected::plan().inspection,
        ..masquerading(true)
    };
    [
        ("nothing", masquerading(false)),
        ("translation", masquerading(true)),
        ("filter by session", filtering(|snapshot| closed(snapshot, true), true)),
        ("filter by packet", filtering(|snapshot| closed(snapshot, false), false)),
        ("inspection", inspecting),
    ]
}

/// Checks a connection to an address of the router. The host receives all packets of the client unchanged, and its
/// answers leave unchanged.
fn talks(rig: &mut Rig, interface: u16, client: SocketAddrV4, own: SocketAddrV4, case: &str) {
    let macs = match interface {
        INSIDE => [HOST_MAC, INSIDE_MAC],
        _ => [ROUTER_MAC, OUTSIDE_MAC],
    };
    let queried = [
        packet::tcp4(client, own).flags(flag::SYN),
        packet::tcp4(client, own).flags(flag::ACK),
        packet::tcp4(client, own).flags(flag::ACK).payload(b"login"),
    ];
    for frame in queried {
        let frame = frame.macs(macs[0], macs[1]).build();
        assert_eq!(0, rig.send(interface, &frame).len(), "{case}");
        let mut got = Vec::new();
        for requests in &mut rig.desks {
            let taker = requests.to_hosts.as_mut().unwrap();
            while let Some((by, length)) = taker.head() {
                let mut frame = vec![0; length];
                taker.pop(&mut frame);
                got.push((by, frame));
            }
        }
        assert_eq!(vec![(interface, frame)], got, "{case}: {:?}", rig.all_drops());
    }
    for flags in [flag::SYN | flag::ACK, flag::ACK] {
        let answer = packet::tcp4(own, client).flags(flags).macs(macs[1], macs[0]).build();
        let queue = rig.desks[rig.owner].from_hosts.as_mut().unwrap();
        assert!(queue.push(interface, [&answer, &[]]));
        rig.round();
        let sent: Vec<_> = rig.sent().into_iter().map(|sent| (sent.port, sent.frame)).collect();
        assert_eq!(vec![(interface, answer)], sent, "{case}: {:?}", rig.all_drops());
    }
}

#[test]
fn session_with_an_own_address_lives_whatever_is_enabled() {
    for (enabled, plan) in plans() {
        let mut rig = Rig::new(plan);
        let clients = [(INSIDE, "192.168.1.10:40000"), (OUTSIDE, "198.51.100.7:40000")];
        for (interface, client) in clients {
            for own in OWN {
                for port in [22, 179] {
                    let own = SocketAddrV4::new(own.parse().unwrap(), port);
                    let case = format!("{enabled}, {client} to {own}");
                    talks(&mut rig, interface, client.parse().unwrap(), own, &case);
                }
            }
        }
        assert_eq!(Vec::<(&str, u64)>::new(), rig.all_drops(), "{enabled}");
    }
}

#[test]
fn session_with_an_own_address_outlives_that_everything_is_enabled() {
    let [(_, before), (_, after), ..] = plans();
    let mut rig = Rig::new(Plan {
        inspection: inspected::plan().inspection,
        ..before
    });
    let (client, own) = ("198.51.100.7:40000".parse().unwrap(), "203.0.113.1:22".parse().unwrap());
    talks(&mut rig, OUTSIDE, client, own, "before");
    let (mut snapshot, routes) = rig::snapshot(&after);
    closed(&mut snapshot, true);
    rig.plane.commit(snapshot, std::slice::from_ref(&routes)).unwrap();
    talks(&mut rig, OUTSIDE, client, own, "after");
}
